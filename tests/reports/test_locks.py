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
from tests.reports.factory import Session, fails
from tests.reports.measured import compare


@pytest.fixture
def manifest() -> Manifest:
    return counts.with_twins(counts.counted(Session().manifest()))


def twin(comparison: Comparison, name: str) -> LockComparison:
    return next(found for found in comparison.locks if found.twin == name)


def row(found: LockComparison, label: str) -> LockRow:
    return next(row for row in found.rows if row.label == label)


def test_hold_times_on_one_vcpu(counted: Comparison) -> None:
    found = twin(counted, "hold")
    assert found.serial
    assert (found.unit_title, found.other_kernel, len(found.seeds)) == ("folio added", True, 2)
    xa_lock = found.rows[0]
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


def test_saturation_is_only_said_of_locks_that_serialise(counted: Comparison) -> None:
    found = twin(counted, "hold")
    for label in ("page-table locks", "pcp->lock (each CPU)", "mmap_lock (read)",
                  "&xfs_nondir_ilock_class (read)", "rcu_read_lock (never waits)"):  # fmt: skip
        assert row(found, label).saturation is None, label
    assert row(found, "zone->lock").saturation is not None
    # What is no lock, and what is hardly ever taken, stands after all that matters.
    assert [one.label for one in found.rows[-2:]] == [
        "rcu_read_lock (never waits)", "mmap_lock (write)",
    ]  # fmt: skip


def test_contention_on_several(counted: Comparison) -> None:
    found = twin(counted, "contention")
    assert not found.serial
    xa_lock = found.rows[0]
    assert xa_lock.label == "i_pages.xa_lock"
    assert xa_lock.contentions is not None
    assert xa_lock.contentions.base == pytest.approx(61, rel=0.1)
    assert xa_lock.hold is xa_lock.saturation is None
    assert xa_lock.waiters[0].function == "__filemap_add_folio"
    assert all(one.contended for one in found.rows)
    assert found.slow_entries is not None
    assert (found.slow_entries.base, found.slow_entries.patched) == pytest.approx(
        (932, 772), rel=0.01
    )
    assert found.slow_share is not None
    assert found.slow_share.base > found.slow_share.patched > 0


def test_waits_by_caller(counted: Comparison) -> None:
    found = twin(counted, "callers")
    assert (found.observe, found.other_kernel, found.rows) == ("contention", False, ())
    first = found.waits[0]
    assert (first.caller, first.flags) == ("__filemap_add_folio", "SPIN")
    assert first.count.base == pytest.approx(81, rel=0.15)
    assert first.wait.base == pytest.approx(first.count.base * 1.45)
    assert first.chain[1] == "filemap_add_folio"


def test_the_same_kernels_show_no_difference(manifest: Manifest) -> None:
    records, profiles, locks = counts.twin_runs(manifest, same=True)
    # The random part of the factory depends on the arm, so both arms get one arm's locks.
    by_run = {seen.run_id: seen for seen in locks}
    same = [seen.model_copy(update={
        "phases": by_run[seen.run_id.replace("-patched-", "-base-")].phases
    }) for seen in locks]  # fmt: skip
    counted = {p.run_id: p for p in profiles}
    profiles = [p.model_copy(update={
        "phases": counted[p.run_id.replace("-patched-", "-base-")].phases
    }) for p in profiles]  # fmt: skip
    for found in compare_locks(manifest, records, profiles, same):
        for one in found.rows:
            for quantity in (one.hold, one.contentions, one.wait, one.acquisitions):
                assert quantity is None or quantity.equal
        assert found.virtual_ns.equal
        assert all(wait.count.equal and wait.wait.equal for wait in found.waits)


def test_the_order_does_not_matter(manifest: Manifest, counted: Comparison) -> None:
    records, profiles, locks = counts.twin_runs(manifest)
    locks = [seen.model_copy(update={"phases": tuple(
        phase.model_copy(update={"classes": phase.classes[::-1], "waits": phase.waits[::-1]})
        for phase in seen.phases
    )}) for seen in locks]  # fmt: skip
    for rows in (records, profiles, locks):
        random.Random(3).shuffle(rows)
    assert compare_locks(manifest, records, profiles, locks) == counted.locks


def test_without_a_profile_counts_are_per_virtual_millisecond(manifest: Manifest) -> None:
    records, _, locks = counts.twin_runs(manifest)
    found = compare_locks(manifest, records, [], locks)
    assert {one.unit_title for one in found} == {"virtual ms"}
    assert all(one.slow_share is None for one in found)
    assert found[0].virtual_ns.base == pytest.approx(1e6)


def test_a_twin_without_the_other_twin_has_no_sites(manifest: Manifest) -> None:
    alone = counts.with_twins(manifest, ["hold"])
    records, profiles, locks = counts.twin_runs(alone)
    (found,) = compare_locks(alone, records, profiles, locks)
    labels = {one.label: one.by for one in found.rows}
    assert labels["i_pages.xa_lock"] == "use"
    assert labels["&xa->xa_lock#2"] == "number"


def test_a_failed_twin_is_a_note_and_nothing_more(manifest: Manifest) -> None:
    records, profiles, locks = counts.twin_runs(manifest)
    session = Session()
    broken = fails(records, "filemap-4k-000-patched-hold", blame="series", kind="panic",
                   message="kernel panic")  # fmt: skip
    healthy = compare(manifest, session.records())
    comparison = compare(manifest, session.records() + broken, profiles, locks)
    assert outcome(comparison) == outcome(healthy) == 0
    assert comparison.primary == healthy.primary
    assert comparison.failed_runs == ()
    (said,) = [f for f in comparison.findings if f not in healthy.findings]
    assert (said.level, said.scope) == ("note", "twin hold")
    assert said.kind == "diagnostic-failed"
    assert said.values["runs"] == ["filemap-4k-000-patched-hold"]
    assert "panic" in said.values["why"]
    assert len(twin(comparison, "hold").seeds) == 1


def test_dropped_events_are_said(manifest: Manifest) -> None:
    records, profiles, locks = counts.twin_runs(manifest)
    locks = [seen.model_copy(update={"phases": tuple(
        phase.model_copy(update={"dropped": 3}) for phase in seen.phases
    )}) if seen.twin == "callers" else seen for seen in locks]  # fmt: skip
    comparison = compare(manifest, Session().records() + records, profiles, locks)
    assert twin(comparison, "callers").dropped == (6, 6)
    assert any(
        finding.kind == "events-dropped" and finding.values["events"] == 12
        for finding in comparison.findings
    )


def test_no_twins_no_locks() -> None:
    session = Session()
    assert compare(session.manifest(), session.records()).locks == ()


@given(st.floats(1, 1e9), st.floats(1, 1e9), st.floats(1.01, 10))
def test_longer_holds_saturate_earlier(time: float, hold: float, factor: float) -> None:
    assert saturation(time, hold * factor) < saturation(time, hold)
    assert saturation(time * factor, hold) > saturation(time, hold)


def test_saturation_of_a_lock_held_a_tenth_of_the_time() -> None:
    assert saturation(1000.0, 100.0) == 10.0
    with pytest.raises(ValueError, match="above zero"):
        saturation(1000.0, 0.0)
