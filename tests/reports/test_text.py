"""The report on a terminal."""

from __future__ import annotations

from reports import text
from reports.model import Comparison
from tests.reports.factory import Session, fails
from tests.reports.measured import compare


def test_within_a_hundred_columns_and_complete(normal: Comparison) -> None:
    said = text.render(normal)
    assert max(map(len, said.splitlines())) <= 100
    for part in (
        "2 improvements, 1 without change.",
        "filemap-4k  4k.bw  +1.16 %  [+0.94, +1.30] at 99 %  improvement",
        "virtual MiB/s",
        "2445.02 -> 2625.56 MiB/s, +7.38 %",
        "bit-exact",
        "Cache misses",
    ):
        assert part in " ".join(said.split("\n")), part


def test_columns_are_aligned(normal: Comparison) -> None:
    lines = text.render(normal).splitlines()
    head = next(line for line in lines if line.split()[:2] == ["metric", "base"])
    row = next(line for line in lines if line.startswith("  4k.iops"))
    assert head.index("patched") + len("patched") == row.index("67080.1") + len("67080.1")


def test_failed_runs_are_named() -> None:
    session = Session()
    found = fails(session.records(), "filemap-4k-002-patched")
    said = text.render(compare(session.manifest(), found))
    assert "filemap-4k-002-patched: invalid, blame workload: phase 4k: THP was on" in said
    assert "! filemap-4k: fail:runs 0:8 in base, 1:8 in patched" in said


def test_hostile_strings_cannot_move_the_cursor(hostile: Comparison) -> None:
    said = text.render(hostile)
    assert max(map(len, said.splitlines())) <= 100
    assert all(c.isprintable() or c == "\n" for c in said)
