"""What workloads execute: ranked for a change, counted by folder, and kept in two files."""

from pathlib import Path

import pytest

from results.coverage import (
    Coverage,
    CoverageError,
    CoveredCase,
    by_folder,
    plain,
    read,
    suggest,
    write,
)


def case(name: str) -> CoveredCase:
    workload = name.partition(":")[0]
    return CoveredCase(
        case=name,
        workload=workload,
        experiment=f"{workload}-test",
        guest="smoke",
        ios=1000.0,
        instructions=2.5e09,
        run_cpu_s=2.5,
    )


COVERAGE = Coverage(
    "deb:linux-source-6.12",
    "6.12.1",
    tuple(map(case, ("faults", "reads", "writes:big", "writes:small"))),
    {
        ("mm/a.c", "add"): {"reads": 2.0, "writes:big": 0.5},
        ("mm/a.c", "drop"): {"reads": 0.25},
        ("mm/a.c", "never"): {},
        ("mm/b.c", "split.constprop.0"): {"writes:big": 3.0, "writes:small": 1.0},
        ("mm/b.c", "copy"): {"faults": 1.0},
        ("fs/b.c", "copy"): {"writes:small": 7.0},
    },
)


def ranked(functions: list[str], files: list[str]) -> list[tuple[str, int, float]]:
    result = suggest(COVERAGE, functions, files)
    return [(each.case.case, len(each.functions), each.calls_per_io) for each in result.candidates]


def test_who_executes_all_of_it_now_and_then_is_behind_who_does_part_of_it_often() -> None:
    calls = {
        ("mm/a.c", "add"): {"reads": 8.0, "faults": 0.01},
        ("mm/a.c", "drop"): {"reads": 4.0, "faults": 0.01},
        ("mm/a.c", "trim"): {"faults": 0.01},
    }
    coverage = Coverage(COVERAGE.source, COVERAGE.release, COVERAGE.cases, calls)
    first, second = suggest(coverage, ["add", "drop", "trim"], ["mm/a.c"]).candidates
    # Two functions as often as anybody; one that nobody else executes, and two hardly ever.
    assert (first.case.case, first.functions, first.score) == ("reads", ("add", "drop"), 2.0)
    assert second.case.case == "faults"
    assert second.score == pytest.approx(1 + 0.01 / 8 + 0.01 / 4)


def test_calls_are_weighed_by_the_time_of_a_run_and_not_by_what_is_called_an_operation() -> None:
    cases = (
        CoveredCase(
            case="calls",
            workload="calls",
            experiment="x",
            guest="smoke",
            ios=100000.0,
            instructions=2.0e09,
            run_cpu_s=2.0,
        ),
        CoveredCase(
            case="files",
            workload="files",
            experiment="x",
            guest="smoke",
            ios=100.0,
            instructions=4.0e9,
            run_cpu_s=4.0,
        ),
    )
    # 50,000 and 2,500 calls a second, of 1 and 100 for an operation.
    coverage = Coverage("", "", cases, {("mm/a.c", "add"): {"calls": 1.0, "files": 100.0}})
    best, other = suggest(coverage, ["add"], ["mm/a.c"]).candidates
    assert (best.case.case, best.score) == ("calls", 1.0)
    assert other.case.case == "files"
    assert other.score == pytest.approx(0.05)


def test_who_executes_more_of_it_comes_first() -> None:
    assert ranked(["add", "drop"], ["mm/a.c"]) == [("reads", 2, 2.25), ("writes:big", 1, 0.5)]
    assert ranked(["add", "split"], ["mm/a.c", "mm/b.c"]) == [
        ("writes:big", 2, 3.5),
        ("reads", 1, 2.0),
    ]


def test_a_workload_is_there_once_by_its_best_case() -> None:
    assert ranked(["split"], ["mm/b.c"]) == [("writes:big", 1, 3.0)]


def test_of_two_functions_of_one_name_that_in_the_changed_file_counts() -> None:
    assert ranked(["copy"], ["mm/b.c"]) == [("faults", 1, 1.0)]
    assert ranked(["copy"], ["fs/b.c"]) == [("writes:small", 1, 7.0)]


def test_what_nobody_executes_is_not_what_the_kernel_does_not_have() -> None:
    result = suggest(COVERAGE, ["add", "never", "gone"], ["mm/a.c"])
    assert (result.never, result.absent, result.by_files) == (("never",), ("gone",), False)
    result = suggest(COVERAGE, ["never"], ["mm/a.c"])
    assert (result.candidates, result.never, result.by_files) == ((), ("never",), False)


def test_where_no_function_is_known_others_of_the_same_files_stand_for_it() -> None:
    result = suggest(COVERAGE, ["inlined"], ["mm/a.c"])
    assert result.by_files
    assert result.absent == ("inlined",)
    assert [each.case.case for each in result.candidates] == ["reads", "writes:big"]
    assert suggest(COVERAGE, [], ["include/a.h"]).candidates == ()


@pytest.mark.parametrize(
    ("name", "source"),
    [("f.constprop.0", "f"), ("f.isra.0.part.1", "f"), ("f@mm/a.c", "f"), ("f", "f"), (".L", ".L")],
)
def test_what_the_compiler_adds_to_a_name_is_left_out(name: str, source: str) -> None:
    assert plain(name) == source


def test_folders_are_counted_by_whole_names() -> None:
    mm, fs, file = by_folder(COVERAGE, ("mm", "fs", "mm/a.c"))
    assert (mm.functions, mm.executed) == (5, 4)
    assert mm.by_workload == {"faults": 1, "reads": 2, "writes": 2}
    assert (fs.functions, fs.executed) == (1, 1)
    assert (file.functions, file.executed) == (3, 2)
    assert by_folder(COVERAGE, ("m",))[0].functions == 0


def test_a_later_session_replaces_its_own_cases_alone() -> None:
    later = Coverage(
        COVERAGE.source, COVERAGE.release, (case("reads"),), {("mm/a.c", "never"): {"reads": 1.0}}
    )
    merged = COVERAGE.with_session(later)
    assert [each.case for each in merged.cases] == ["faults", "reads", "writes:big", "writes:small"]
    assert merged.calls["mm/a.c", "add"] == {"writes:big": 0.5}
    assert merged.calls["mm/a.c", "drop"] == {}
    assert merged.calls["mm/a.c", "never"] == {"reads": 1.0}
    with pytest.raises(ValueError, match=r"6\.12\.2"):
        COVERAGE.with_session(Coverage(COVERAGE.source, "6.12.2", (), {}))


def test_files_hold_all_of_it_and_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    table = tmp_path / "kernel.csv"
    write(COVERAGE, table)
    again = read(table)
    assert (again.source, again.release, again.cases) == (
        COVERAGE.source,
        COVERAGE.release,
        COVERAGE.cases,
    )
    assert again.calls == COVERAGE.calls
    before = table.read_bytes(), table.with_suffix(".json").read_bytes()
    write(again, table)
    assert (table.read_bytes(), table.with_suffix(".json").read_bytes()) == before


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda table: table.unlink(), "kernel.csv"),
        (lambda table: table.with_suffix(".json").write_text("{"), "kernel.json"),
        (lambda table: table.write_text("file,function\n"), "kernel.csv: line 1"),
        (lambda table: table.write_text(table.read_text() + "mm/a.c,x\n"), "kernel.csv: line 8"),
        (lambda table: table.write_text(table.read_text() + "a,x,q,,,\n"), "kernel.csv: line 8"),
    ],
)
def test_damage_is_named_with_its_file(tmp_path: Path, spoil: object, named: str) -> None:
    table = tmp_path / "kernel.csv"
    write(COVERAGE, table)
    assert callable(spoil)
    spoil(table)
    with pytest.raises(CoverageError) as caught:
        read(table)
    assert named in caught.value.in_one_line


def test_functions_of_trace_events_are_counted_apart() -> None:
    calls = {
        ("mm/a.c", "add"): {"reads": 1.0},
        ("mm/a.c", "drop"): {},
        ("mm/a.c", "trace_event_raw_event_add"): {},
        ("mm/a.c", "__probestub_add"): {},
        ("mm/a.c", "perf_trace_drop"): {"reads": 1.0},
    }
    (row,) = by_folder(Coverage("a", "6", COVERAGE.cases, calls), ["mm"])
    assert (row.functions, row.executed, row.tracing) == (5, 2, 2)
    assert (row.share, row.untraced_share) == (2 / 5, 2 / 3)
