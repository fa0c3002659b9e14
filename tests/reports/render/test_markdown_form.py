"""The report as Markdown."""

from __future__ import annotations

from reports import forms
from reports.model import Comparison


def test_the_tables_have_every_measured_metric_once(normal: Comparison) -> None:
    rendered = forms.render(normal, "markdown")
    rows = [line for line in rendered.splitlines() if line.startswith(("| 4k.", "| **4k."))]
    assert len(rows) == 7
    assert rows[0] == (
        r"| **4k.bw virtual MiB/s** | +1.16 % | \[+0.94, +1.30\] | 259.019 ±0.21 % | "
        "262.032 ±0.21 % | +7.38 % | improvement |"
    )


def test_hostile_strings_stay_text(hostile: Comparison) -> None:
    rendered = forms.render(hostile, "markdown")
    outside_code = "".join(rendered.split("```")[::2])
    assert "<script" not in outside_code.replace(r"\<script", "")
    assert "\x1b" not in rendered
    assert "\u202e" not in rendered


def test_how_to_repeat_it(normal: Comparison) -> None:
    rendered = forms.render(normal, "markdown")
    for part in ("1001, 1002", "fio-3.33", "blocks=8", "AMD EPYC"):
        assert part in rendered
