"""The report on a terminal."""

from __future__ import annotations

import pytest

from analysis.many import SessionComparison
from analysis.model import Comparison
from reports import forms
from reports.document import Column, Table, row
from reports.render import text


@pytest.mark.parametrize("width", [40, 60, 79, 80, 100, 132, 250])
def test_no_line_is_longer_than_the_terminal(
    width: int,
    counted: Comparison,
    five: SessionComparison,
    stepwise: SessionComparison,
    matrix: Comparison,
    hostile: Comparison,
) -> None:
    for session in (counted, five, stepwise, matrix, hostile):
        rendered = forms.render(session, "text", width=width)
        # A command is not broken within a word: it would be another command.
        lines = [
            line for line in rendered.splitlines() if "sessions/" not in line and ".tar" not in line
        ]
        assert max(map(len, lines)) <= width


def test_pairs_of_many_arms_are_headed_by_their_names(five: SessionComparison) -> None:
    for form in ("text", "markdown"):
        heads = [
            line.replace("|", " ").split()
            for line in forms.render(five, form).splitlines()
            if line.replace("|", " ").split()[:1] == ["metric"] and "verdict" in line
        ]
        assert heads
        for head in heads:
            assert {"vanilla", "change"} & set(head), form
            assert not {"base", "patched"} & set(head), form


def test_a_file_is_the_same_wherever_it_is_printed(normal: Comparison) -> None:
    assert forms.render(normal, "text") == forms.render(normal, "text", width=80)
    assert "--resume" not in forms.render(normal, "text")


def test_long_names_of_arms_are_cut_and_no_number_is() -> None:
    """``sorted-bourney`` twice made a table two columns too wide, whose last digits were cut."""
    heads = (
        Column("lock", left=True),
        Column("change"),
        Column("vanilla", group="held"),
        Column("sorted-bourney", group="held"),
        Column("vanilla", group="waits"),
        Column("sorted-bourney", group="waits"),
    )
    numbers = ("(-27.99 %)", "0.7573", "0.5453", "0.09350", "0.02078")
    table = Table("locks", heads, (row("i_pages.xa_lock", *numbers),))
    lines = text.render([table], 66)
    assert max(map(len, lines)) <= 66
    assert lines[-2].split()[-5:] == ["%)", *numbers[1:]]
