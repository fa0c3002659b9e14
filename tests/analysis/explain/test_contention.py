"""Waits of diagnostic runs: per unit of work, in pairs."""

import random

import pytest

from analysis.counts import Recorded
from analysis.explain.locks import WAITS as LOCKS
from analysis.explain.locks import LockComparison, saturation
from analysis.model import Comparison
from reports.headline import outcome
from results.record import Manifest
from tests.analysis import counts_factory as counts
from tests.analysis.factory import ExactSession, fails
from tests.analysis.measured import compare, whole
from tests.values import but, there


@pytest.fixture
def manifest() -> Manifest:
    return counts.with_twins(counts.counted(ExactSession().manifest()))


def twin(comparison: Comparison, name: str) -> LockComparison:
    return next(each for each in LOCKS.of(comparison) if each.twin == name)


def test_waits_by_caller(counted: Comparison) -> None:
    table = twin(counted, "callers")
    assert (table.unit_title, len(table.seeds)) == ("folio added", 2)
    first = table.waits[0]
    assert (first.caller, first.flags) == ("__filemap_add_folio", "SPIN")
    assert first.count.base == pytest.approx(81, rel=0.15)
    assert first.wait.base == pytest.approx(first.count.base * 1.45)
    assert first.chain[1] == "filemap_add_folio"
    assert (there(table.slow_entries).base, there(table.slow_entries).patched) == pytest.approx(
        (932, 772), rel=0.01
    )
    assert there(table.slow_share).base > there(table.slow_share).patched > 0


def test_the_same_kernels_show_no_difference(manifest: Manifest) -> None:
    records, profiles, locks = counts.twin_runs(manifest, same=True)
    for table in LOCKS.made(Recorded(manifest, records, profiles, locks=locks)):
        assert table.virtual_ns.equal
        assert all(wait.count.equal and wait.wait.equal for wait in table.waits)


def test_the_order_does_not_matter(manifest: Manifest, counted: Comparison) -> None:
    records, profiles, locks = counts.twin_runs(manifest)
    locks = [
        but(of_run, phases=tuple(but(phase, waits=phase.waits[::-1]) for phase in of_run.phases))
        for of_run in locks
    ]
    for rows in (records, profiles, locks):
        random.Random(3).shuffle(rows)
    assert LOCKS.made(Recorded(manifest, records, profiles, locks=locks)) == LOCKS.of(counted)


def test_without_a_profile_counts_are_per_virtual_millisecond(manifest: Manifest) -> None:
    records, _, locks = counts.twin_runs(manifest)
    tables = LOCKS.made(Recorded(manifest, records, [], locks=locks))
    assert {each.unit_title for each in tables} == {"virtual ms"}
    assert all(each.slow_share is None for each in tables)
    assert tables[0].virtual_ns.base == pytest.approx(1e6)


def test_a_failed_twin_is_a_note_and_nothing_more(manifest: Manifest) -> None:
    records, profiles, locks = counts.twin_runs(manifest)
    session = ExactSession()
    broken = fails(
        records,
        "filemap-4k-000-patched-callers",
        blame="series",
        kind="panic",
        message="kernel panic",
    )
    healthy = compare(manifest, session.records())
    comparison = compare(manifest, session.records() + broken, profiles, locks)
    assert outcome(whole(comparison)) == outcome(whole(healthy)) == 0
    assert comparison.primary == healthy.primary
    assert comparison.failed_runs == ()
    (note,) = [f for f in comparison.findings if f not in healthy.findings]
    assert (note.level, note.scope) == ("note", "twin callers")
    assert note.kind == "diagnostic-failed"
    assert note.values["runs"] == ["filemap-4k-000-patched-callers"]
    assert "panic" in note.values["why"]
    assert len(twin(comparison, "callers").seeds) == 1


def test_dropped_events_are_reported(manifest: Manifest) -> None:
    records, profiles, locks = counts.twin_runs(manifest)
    locks = [
        but(of_run, phases=tuple(but(phase, dropped=3) for phase in of_run.phases))
        if of_run.twin == "callers"
        else of_run
        for of_run in locks
    ]
    comparison = compare(manifest, ExactSession().records() + records, profiles, locks)
    assert twin(comparison, "callers").dropped == (6, 6)
    assert any(
        finding.kind == "events-dropped" and finding.values["events"] == 12
        for finding in comparison.findings
    )


def test_saturation_of_a_lock_held_a_tenth_of_the_time() -> None:
    assert saturation(1000.0, 100.0) == 10.0
    with pytest.raises(ValueError, match="above zero"):
        saturation(1000.0, 0.0)
