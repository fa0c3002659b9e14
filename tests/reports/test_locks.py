"""Locks of the twins: per unit, in pairs, each quantity only where it means something."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.lock_model import LockComparison, LockRow
from reports.lock_rows import saturation
from reports.locks import compare_locks
from reports.model import Comparison
from reports.outcome import outcome
from results.record import Manifest
from tests.reports import counts_factory as counts
from tests.reports.factory import ExactSession, fails
from tests.reports.measured import compare


@pytest.fixture
def manifest() -> Manifest:
    return counts.with_twins(counts.counted(ExactSession().manifest()))


def twin(comparison: Comparison, name: str) -> LockComparison:
    return next(each for each in comparison.locks if each.twin == name)


def row(table: LockComparison, label: str) -> LockRow:
    return next(row for row in table.rows if row.label == label)


def test_hold_times_on_one_vcpu(counted: Comparison) -> None:
    table = twin(counted, "hold")
    assert table.serial
    assert (table.unit_title, table.other_kernel, len(table.seeds)) == ("folio added", True, 2)
    xa_lock = table.rows[0]
    assert (xa_lock.label, xa_lock.by) == ("i_pages.xa_lock", "sites")
    assert xa_lock.hold is not None
    assert xa_lock.hold_each is not None
    assert (xa_lock.hold_each.base, xa_lock.hold_each.patched) == pytest.approx((318, 262))
    assert xa_lock.hold.base == pytest.approx(2.02 * 318, rel=1e-3)
    assert xa_lock.acquisitions.base == pytest.approx(2.02, rel=1e-3)
    assert xa_lock.saturation is not None
    assert xa_lock.saturation.patched > xa_lock.saturation.base > 20
    assert xa_lock.contentions is xa_lock.wait is None
    assert xa_lock.only_in == ""


def test_only_locks_that_serialise_have_a_saturation(counted: Comparison) -> None:
    table = twin(counted, "hold")
    for label in ("page-table locks", "pcp->lock (each CPU)", "mmap_lock (read)",
                  "&xfs_nondir_ilock_class (read)", "rcu_read_lock (never waits)"):  # fmt: skip
        assert row(table, label).saturation is None, label
    assert row(table, "zone->lock").saturation is not None
    # What is no lock, and what is hardly ever taken, stands after all that matters.
    assert [each.label for each in table.rows[-2:]] == [
        "rcu_read_lock (never waits)", "mmap_lock (write)",
    ]  # fmt: skip


def test_contention_on_several(counted: Comparison) -> None:
    table = twin(counted, "contention")
    assert not table.serial
    xa_lock = table.rows[0]
    assert xa_lock.label == "i_pages.xa_lock"
    assert xa_lock.contentions is not None
    assert xa_lock.contentions.base == pytest.approx(61, rel=0.1)
    assert xa_lock.hold is xa_lock.saturation is None
    assert xa_lock.waiters[0].function == "__filemap_add_folio"
    assert all(each.contended for each in table.rows)
    assert table.slow_entries is not None
    assert (table.slow_entries.base, table.slow_entries.patched) == pytest.approx(
        (932, 772), rel=0.01
    )
    assert table.slow_share is not None
    assert table.slow_share.base > table.slow_share.patched > 0


def test_waits_by_caller(counted: Comparison) -> None:
    table = twin(counted, "callers")
    assert (table.observe, table.other_kernel, table.rows) == ("contention", False, ())
    first = table.waits[0]
    assert (first.caller, first.flags) == ("__filemap_add_folio", "SPIN")
    assert first.count.base == pytest.approx(81, rel=0.15)
    assert first.wait.base == pytest.approx(first.count.base * 1.45)
    assert first.chain[1] == "filemap_add_folio"


def test_the_same_kernels_show_no_difference(manifest: Manifest) -> None:
    records, profiles, locks = counts.twin_runs(manifest, same=True)
    # The random part of the factory depends on the arm, so both arms get one arm's locks.
    by_run = {of_run.run_id: of_run for of_run in locks}
    same = [of_run.model_copy(update={
        "phases": by_run[of_run.run_id.replace("-patched-", "-base-")].phases
    }) for of_run in locks]  # fmt: skip
    counted = {p.run_id: p for p in profiles}
    profiles = [p.model_copy(update={
        "phases": counted[p.run_id.replace("-patched-", "-base-")].phases
    }) for p in profiles]  # fmt: skip
    for table in compare_locks(manifest, records, profiles, same):
        for each in table.rows:
            for quantity in (each.hold, each.contentions, each.wait, each.acquisitions):
                assert quantity is None or quantity.equal
        assert table.virtual_ns.equal
        assert all(wait.count.equal and wait.wait.equal for wait in table.waits)


def test_the_order_does_not_matter(manifest: Manifest, counted: Comparison) -> None:
    records, profiles, locks = counts.twin_runs(manifest)
    locks = [of_run.model_copy(update={"phases": tuple(
        phase.model_copy(update={"classes": phase.classes[::-1], "waits": phase.waits[::-1]})
        for phase in of_run.phases
    )}) for of_run in locks]  # fmt: skip
    for rows in (records, profiles, locks):
        random.Random(3).shuffle(rows)
    assert compare_locks(manifest, records, profiles, locks) == counted.locks


def test_without_a_profile_counts_are_per_virtual_millisecond(manifest: Manifest) -> None:
    records, _, locks = counts.twin_runs(manifest)
    tables = compare_locks(manifest, records, [], locks)
    assert {each.unit_title for each in tables} == {"virtual ms"}
    assert all(each.slow_share is None for each in tables)
    assert tables[0].virtual_ns.base == pytest.approx(1e6)


def test_a_twin_without_the_other_twin_has_no_sites(manifest: Manifest) -> None:
    alone = counts.with_twins(manifest, ["hold"])
    records, profiles, locks = counts.twin_runs(alone)
    (table,) = compare_locks(alone, records, profiles, locks)
    labels = {each.label: each.by for each in table.rows}
    assert labels["i_pages.xa_lock"] == "use"
    assert labels["&xa->xa_lock#2"] == "number"


def test_a_failed_twin_is_a_note_and_nothing_more(manifest: Manifest) -> None:
    records, profiles, locks = counts.twin_runs(manifest)
    session = ExactSession()
    broken = fails(records, "filemap-4k-000-patched-hold", blame="series", kind="panic",
                   message="kernel panic")  # fmt: skip
    healthy = compare(manifest, session.records())
    comparison = compare(manifest, session.records() + broken, profiles, locks)
    assert outcome(comparison) == outcome(healthy) == 0
    assert comparison.primary == healthy.primary
    assert comparison.failed_runs == ()
    (note,) = [f for f in comparison.findings if f not in healthy.findings]
    assert (note.level, note.scope) == ("note", "twin hold")
    assert note.kind == "diagnostic-failed"
    assert note.values["runs"] == ["filemap-4k-000-patched-hold"]
    assert "panic" in note.values["why"]
    assert len(twin(comparison, "hold").seeds) == 1


def test_dropped_events_are_reported(manifest: Manifest) -> None:
    records, profiles, locks = counts.twin_runs(manifest)
    locks = [of_run.model_copy(update={"phases": tuple(
        phase.model_copy(update={"dropped": 3}) for phase in of_run.phases
    )}) if of_run.twin == "callers" else of_run for of_run in locks]  # fmt: skip
    comparison = compare(manifest, ExactSession().records() + records, profiles, locks)
    assert twin(comparison, "callers").dropped == (6, 6)
    assert any(
        finding.kind == "events-dropped" and finding.values["events"] == 12
        for finding in comparison.findings
    )


def test_no_twins_no_locks() -> None:
    session = ExactSession()
    assert compare(session.manifest(), session.records()).locks == ()


@given(st.floats(1, 1e9), st.floats(1, 1e9), st.floats(1.01, 10))
def test_longer_holds_saturate_earlier(time: float, hold: float, factor: float) -> None:
    assert saturation(time, hold * factor) < saturation(time, hold)
    assert saturation(time * factor, hold) > saturation(time, hold)


def test_saturation_of_a_lock_held_a_tenth_of_the_time() -> None:
    assert saturation(1000.0, 100.0) == 10.0
    with pytest.raises(ValueError, match="above zero"):
        saturation(1000.0, 0.0)
