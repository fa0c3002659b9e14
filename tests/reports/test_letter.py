"""The cover-letter block: its shape, and that it cannot disagree with itself."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from reports import forms
from reports.model import Comparison
from tests.reports.factory import FIO, Session
from tests.reports.measured import compare

GOLDEN = Path(__file__).parent / "golden" / "letter.txt"


def test_golden(normal: Comparison) -> None:
    assert forms.render(normal, "letter") == GOLDEN.read_text(encoding="ascii")


def blocks(said: str) -> list[tuple[float, float, float]]:
    """(average before, average after, printed percentage) of each pair of bw lines."""
    percentages = [float(x) for x in re.findall(r"^After.*\(([-+0-9.]+)%\):$", said, re.MULTILINE)]
    section = re.findall(r"^(Before|After)[^\n]*:\n(bw .*?avg=([0-9.]+))", said, re.MULTILINE)
    before = [float(avg) for when, _, avg in section if when == "Before"]
    after = [float(avg) for when, _, avg in section if when == "After"]
    return list(zip(before, after, percentages, strict=True))


@pytest.mark.parametrize("effect", [0.1250, 0.073, -0.02, 0.5])
def test_printed_percentages_are_those_of_the_printed_figures(effect: float) -> None:
    session = Session(effect={"4k": effect, "thp": effect, "switch": effect}, spread=0.1)
    found = blocks(forms.render(compare(session.manifest(), session.records()), "letter"))
    assert len(found) == 3
    for before, after, printed in found:
        rounding = 0.005 + 100 * 0.005 * (1 / before + after / before**2)
        assert 100 * (after / before - 1) == pytest.approx(printed, abs=rounding)


def test_closing_says_the_same_percentage(normal: Comparison) -> None:
    said = forms.render(normal, "letter")
    assert "After (+1.16%):" in said
    assert "4k.virtual_bw +1.16% [+0.94, +1.30] at 99%: improvement." in said


def test_plain_ascii_within_75_columns(normal: Comparison, hostile: Comparison) -> None:
    for comparison in (normal, hostile):
        said = forms.render(comparison, "letter")
        assert said.isascii()
        assert all(c.isprintable() or c == "\n" for c in said)
        assert max(map(len, said.splitlines())) <= 75


def test_lines_fit_at_every_size() -> None:
    for scale in (0.001, 1.0, 40.0, 5000.0):
        session = Session()
        found = [
            r.model_copy(update={"samples": {k: v * scale for k, v in r.samples.items()}})
            if r.samples
            else r
            for r in session.records()
        ]
        said = forms.render(compare(session.manifest(), found), "letter")
        assert max(map(len, said.splitlines())) <= 75, scale


def test_commands_can_be_pasted(normal: Comparison) -> None:
    said = forms.render(normal, "letter")
    start = said.index("fio -name")
    command = said[start : said.index("\n\n", start)]
    assert shlex.split(command.replace("\\\n", "")) == shlex.split(FIO)
    assert said.count("echo 3 > /proc/sys/vm/drop_caches") == 2


def test_nothing_measured_claims_nothing() -> None:
    session = Session(same_code=True)
    said = forms.render(compare(session.manifest(), []), "letter")
    assert "Before" not in said
    assert "4k.virtual_bw: no change (same code)." in said
