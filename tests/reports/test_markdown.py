"""The report as Markdown."""

from __future__ import annotations

from reports import forms, markdown
from reports.model import Comparison


def test_the_table_has_every_measured_metric(normal: Comparison) -> None:
    said = forms.render(normal, "markdown")
    rows = [line for line in said.splitlines() if line.startswith("| 4k.")]
    assert len(rows) == 7
    assert rows[0] == (
        "| 4k.bw | virtual MiB/s | 259.019 | ±0.21 % | 262.032 | ±0.21 % | +1.16 % | "
        r"\[+0.94, +1.30\] at 99 % | improvement |"
    )
    assert all(line.count("|") == 10 for line in rows)


def test_hostile_strings_stay_text(hostile: Comparison) -> None:
    said = forms.render(hostile, "markdown")
    outside_code = "".join(said.split("```")[::2])
    assert "<script" not in outside_code.replace(r"\<script", "")
    assert "\x1b" not in said
    assert "\u202e" not in said


def test_a_fence_is_longer_than_what_it_holds() -> None:
    assert markdown.code_block("a ```` b")[0] == "`````"


def test_how_to_repeat_it(normal: Comparison) -> None:
    said = forms.render(normal, "markdown")
    for part in ("1001, 1002", "fio-3.33", "blocks=8", "AMD EPYC"):
        assert part in said
