"""The cover-letter block: its shape, and that it cannot disagree with itself."""

from __future__ import annotations

import re
import shlex

import pytest

from analysis.model import Comparison
from reports import forms
from tests.analysis.factory import FIO, ExactSession
from tests.analysis.measured import compare


def blocks(letter: str) -> list[tuple[float, float, float]]:
    """(average before, average after, printed percentage) of each pair of bw lines."""
    percentages = [
        float(x) for x in re.findall(r"^After.*\(([-+0-9.]+)%\):$", letter, re.MULTILINE)
    ]
    section = re.findall(r"^(Before|After)[^\n]*:\n(bw .*?avg=([0-9.]+))", letter, re.MULTILINE)
    before = [float(avg) for when, _, avg in section if when == "Before"]
    after = [float(avg) for when, _, avg in section if when == "After"]
    return list(zip(before, after, percentages, strict=True))


@pytest.mark.parametrize("effect", [0.1250, 0.073, -0.02, 0.5])
def test_printed_percentages_are_those_of_the_printed_figures(effect: float) -> None:
    session = ExactSession(effect={"4k": effect, "thp": effect, "switch": effect}, spread=0.1)
    pairs = blocks(forms.render(compare(session.manifest(), session.records()), "letter"))
    assert len(pairs) == 3
    for before, after, printed in pairs:
        rounding = 0.005 + 100 * 0.005 * (1 / before + after / before**2)
        assert 100 * (after / before - 1) == pytest.approx(printed, abs=rounding)


def test_commands_can_be_pasted(normal: Comparison) -> None:
    letter = forms.render(normal, "letter")
    start = letter.index("fio -name")
    command = letter[start : letter.index("\n\n", start)]
    assert shlex.split(command.replace("\\\n", "")) == shlex.split(FIO)
    assert letter.count("echo 3 > /proc/sys/vm/drop_caches") == 2


def test_nothing_measured_claims_nothing() -> None:
    session = ExactSession(same_code=True)
    letter = forms.render(compare(session.manifest(), []), "letter")
    assert "Before" not in letter
    assert letter.startswith("Identical machine code: nothing was booted.")
