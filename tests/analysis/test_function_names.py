"""Hints on inlined, renamed and cloned functions: pointed out, never merged, seldom wrong."""

from __future__ import annotations

import pytest

from analysis.counts import Arm
from analysis.function_names import FunctionRow, find_hints, stem
from analysis.paired import pair


def row(
    name: str, base: float, patched: float, calls: tuple[float, float] = (1.0, 1.0),
    file: str = "mm/filemap.c",
) -> FunctionRow:  # fmt: skip
    only: Arm = "" if base and patched else "base" if base else "patched"
    return FunctionRow(
        name=name, file=file, subsystem="page cache",
        instructions=pair([base, base * 1.001], [patched, patched * 1.001]),
        calls=pair([calls[0] if base else 0.0] * 2, [calls[1] if patched else 0.0] * 2),
        only_in=only,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("xas_create", "xas_create"),
        ("xas_create.constprop.0", "xas_create"),
        ("foo.isra.0.cold", "foo"),
        ("foo.part.12", "foo"),
        ("foo.partial", "foo.partial"),
    ],
)
def test_stems(name: str, expected: str) -> None:
    assert stem(name) == expected


def test_a_clone_is_paired_with_its_original() -> None:
    (hint,) = find_hints([row("xas_x.constprop.0", 36, 0), row("xas_x", 0, 30)])
    assert (hint.kind, hint.name, hint.other) == ("variant", "xas_x.constprop.0", "xas_x")
    assert hint.together == pytest.approx(-6, rel=0.01)


def test_a_part_of_a_function_that_stayed() -> None:
    (hint,) = find_hints([row("xas_x", 40, 25), row("xas_x.part.0", 0, 14)])
    assert (hint.kind, {hint.name, hint.other}) == ("variant", {"xas_x", "xas_x.part.0"})


def test_a_rename_has_the_calls_and_the_size() -> None:
    (hint,) = find_hints([row("old", 100, 0, (2, 0)), row("new", 0, 103, (0, 2.05))])
    assert (hint.kind, hint.name, hint.other) == ("renamed", "old", "new")
    assert find_hints([row("old", 100, 0, (2, 0)), row("new", 0, 103, (0, 9.0))]) == ()
    other_file = row("new", 0, 103, (0, 2.0), file="mm/swap.c")
    assert find_hints([row("old", 100, 0, (2, 0)), other_file]) == ()


def test_a_callee_that_went_into_its_caller() -> None:
    rows = [row("callee", 50, 0), row("caller", 200, 238), row("bystander", 90, 90)]
    (hint,) = find_hints(rows)
    assert (hint.kind, hint.name, hint.other) == ("inlined", "callee", "caller")
    (hint,) = find_hints([row("callee", 0, 50), row("caller", 238, 200)])
    assert (hint.kind, hint.name, hint.other) == ("split", "callee", "caller")


def test_who_is_called_less_often_lost_work_and_not_code() -> None:
    rows = [row("callee", 0, 50), row("caller", 238, 200, (9.0, 7.3))]
    assert find_hints(rows) == ()


def test_a_growth_far_larger_or_smaller_is_another_cause() -> None:
    assert find_hints([row("callee", 50, 0), row("caller", 200, 900)]) == ()
    assert find_hints([row("callee", 50, 0), row("caller", 200, 203)]) == ()


def test_what_hardly_moved_gets_no_hint() -> None:
    rows = [row("big", 9000, 4000), row("tiny.isra.0", 3, 0), row("tiny", 0, 3)]
    assert find_hints(rows) == ()


def test_functions_without_a_file_are_not_guessed_at() -> None:
    rows = [row("callee", 50, 0, file=""), row("caller", 200, 238, file="")]
    assert find_hints(rows) == ()
