"""What functions are part of, and hints on inlined, renamed and cloned ones: seldom wrong."""

import pytest

from analysis.counts import Arm, pair
from analysis.explain.functions import (
    OTHER,
    FunctionRow,
    catalogue,
    find_hints,
    programs,
    subsystem,
)
from tests.values import data


def row(
    name: str,
    base: float,
    patched: float,
    calls: tuple[float, float] = (1.0, 1.0),
    file: str = "mm/filemap.c",
) -> FunctionRow:
    only: Arm = "" if base and patched else "base" if base else "patched"
    return FunctionRow(
        name=name,
        file=file,
        subsystem="page cache",
        instructions=pair([base, base * 1.001], [patched, patched * 1.001]),
        calls=pair([calls[0] if base else 0.0] * 2, [calls[1] if patched else 0.0] * 2),
        only_in=only,
    )


CLONES = ("xas.constprop.0", "xas.isra.0.cold", "xas.part.12", "xas.partial")


@pytest.mark.parametrize("clone", CLONES)
def test_a_clone_is_paired_with_its_original(clone: str) -> None:
    hints = find_hints([row(clone, 36, 0), row("xas", 0, 30, file="")])
    variants = [(hint.kind, hint.name, hint.other) for hint in hints]
    assert variants == ([] if clone == "xas.partial" else [("variant", clone, "xas")])
    assert [hint.together for hint in hints] == pytest.approx([-6] * len(hints), rel=0.01)


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


@pytest.mark.parametrize(("function", "file", "expected"), data(__file__, "where_functions_belong"))
def test_where_functions_belong(function: str, file: str, expected: str) -> None:
    assert subsystem(function, file) == expected


def test_no_prefix_is_in_two_subsystems() -> None:
    for kind in ("files", "functions"):
        prefixes = [prefix for entry in catalogue() for prefix in getattr(entry, kind)]
        assert len(prefixes) == len(set(prefixes))
    titles = [entry.title for entry in catalogue()]
    assert len(titles) == len(set(titles))
    assert OTHER not in titles


def test_the_spinning_agent_is_explained() -> None:
    assert "idle" in programs()["busybox"]
