"""Locks of the judged runs, named by who takes them, and waits of diagnostic runs: in pairs."""

import json
import random

import pytest

from analysis.counts import Recorded
from analysis.explain.locks import EXPLANATION as MEASURED_LOCKS
from analysis.explain.locks import (
    WAITS,
    LockComparison,
    MeasuredLock,
    MeasuredLocks,
    TakerNames,
    catalogue,
    saturation,
)
from analysis.model import Comparison
from reports.headline import outcome
from reports.sections import locks as section
from results.profile import FunctionCount, LockSite, LockUse, LockWait, PhaseProfile, Profile
from results.record import CaseRecord, Manifest
from tests.analysis import counts_factory as counts
from tests.analysis.factory import ExactSession, fails
from tests.analysis.measured import compare, render, whole
from tests.values import but, there

XA_LOCK, I_LOCK = "i_pages.xa_lock", "inode i_lock"


def use(*functions: str, sleeps: bool = False, symbol: str = "", shared: bool = False) -> LockUse:
    sites = tuple(
        LockSite(function=name, file="", shared=shared, taken=5 - at, held=100)
        for at, name in enumerate(functions)
    )
    return LockUse(instances=1, sleeps=sleeps, symbol=symbol, sites=sites)


def labels(first: LockUse, *others: LockUse) -> list[tuple[str, str]]:
    return [(taker.label, taker.by) for taker in TakerNames([first, *others]).of(first)]


def test_a_known_taker_names_the_lock_for_all_who_take_it() -> None:
    tree = use("__remove_mapping", "__filemap_add_folio")
    inode = use("__remove_mapping", "unlock_new_inode")
    assert labels(tree, inode) == [(XA_LOCK, "takers")] * 2
    assert labels(inode, tree) == [(I_LOCK, "takers")] * 2


def test_memory_that_held_two_locks_is_distinguished_where_both_are_known() -> None:
    again = use("igrab", "shmem_add_to_page_cache", "who_knows")
    assert [label for label, _ in labels(again)] == [I_LOCK, XA_LOCK, I_LOCK]


def test_an_unknown_lock_goes_by_who_takes_it_most_in_all_runs() -> None:
    """The runs of both arms name it, so a row is not torn apart by a seed."""
    first, second = use("b.isra.0", "a"), use("a", "c", "b@mm/x.c")
    assert labels(first, second) == [("taken in a", "taker")] * 2
    assert labels(use("[unknown]")) == [("taken in [unknown]", "taker")]


def test_a_variable_names_its_lock_and_readers_stand_apart() -> None:
    assert labels(use("__filemap_add_folio", symbol="tasklist_lock", shared=True)) == [
        ("tasklist_lock (read)", "variable")
    ]
    # A function may take one lock that spins and one that is slept for.
    assert labels(use("filemap_fault", sleeps=True)) == [("mapping.invalidate_lock", "takers")]
    assert labels(use("filemap_fault")) == [("taken in filemap_fault", "taker")]


def test_a_member_names_what_no_known_function_takes() -> None:
    typed = but(use("who_knows"), member="task_struct.pi_lock")
    assert labels(typed) == [("task_struct.pi_lock", "member")]
    known = but(use("__filemap_add_folio"), member="i_pages.xa_lock")
    assert labels(known) == [(XA_LOCK, "takers")]


def test_no_function_is_known_for_two_locks() -> None:
    known = [(name, lock.sleeps) for lock in catalogue() for name in lock.taken_in]
    assert len(known) > 20
    assert len(known) == len(set(known))


@pytest.fixture(scope="module")
def session() -> ExactSession:
    return ExactSession()


@pytest.fixture(scope="module")
def manifest(session: ExactSession) -> Manifest:
    return counts.counted(session.manifest())


@pytest.fixture(scope="module")
def locks(session: ExactSession, manifest: Manifest) -> MeasuredLocks:
    return MEASURED_LOCKS.made(Recorded(manifest, session.records(), counts.profiles(session)))[0]


def row(table: MeasuredLocks, label: str) -> MeasuredLock:
    return next(row for row in table.rows if row.label == label)


def test_held_per_unit_and_each_time_and_by_who_takes_it(locks: MeasuredLocks) -> None:
    assert (locks.case, locks.phase, locks.unit_title) == ("filemap-4k", "4k", "folio added")
    lock = locks.rows[0]
    assert (lock.label, lock.by, lock.only_in) == (XA_LOCK, "takers", "")
    assert lock.held.base == pytest.approx(574 + 0.8 * 743, rel=2e-3)
    assert lock.held.patched == pytest.approx(511 + 0.8 * 742, rel=2e-3)
    assert lock.taken.base == pytest.approx(1.8, rel=2e-3)
    assert there(lock.held_each).base == pytest.approx((574 + 0.8 * 743) / 1.8, rel=2e-3)
    assert lock.waits is lock.waited is None
    adds, removes = lock.sites
    assert (adds.function, removes.function) == ("__remove_mapping", "__filemap_add_folio")
    assert (removes.taken.base, removes.held_each) == (1.0, removes.held)
    assert sum(site.held.difference for site in lock.sites) == pytest.approx(lock.held.difference)


def test_what_moved_most_is_a_lock_that_spins_and_moved_beyond_the_scatter(
    session: ExactSession, manifest: Manifest, locks: MeasuredLocks
) -> None:
    assert locks.moved_most == XA_LOCK
    assert not row(locks, XA_LOCK).held.within_scatter
    # Of those that are slept for one moved by more, and stands at the end.
    assert locks.rows[-1].label == "mapping.invalidate_lock (read)"
    assert locks.rows[-1].held.difference > 1000
    assert locks.listed == len(locks.rows) - 1
    equal = MEASURED_LOCKS.made(
        Recorded(manifest, session.records(), counts.profiles(session, same=True))
    )[0]
    lock = row(equal, XA_LOCK)
    assert abs(lock.held.difference) < 0.01 * lock.held.base


def test_saturation_is_of_one_instance(locks: MeasuredLocks) -> None:
    lock = row(locks, XA_LOCK)
    assert lock.saturation is not None
    assert lock.saturation.base == pytest.approx(locks.busy.base / lock.held.base, rel=1e-2)
    assert lock.saturation.patched > lock.saturation.base
    # Three locks, each page table's, one of each task, and one that is slept for.
    for label in (
        "lruvec->lru_lock",
        "page-table locks",
        "taken in try_to_wake_up",
        "mapping.invalidate_lock (read)",
    ):
        assert row(locks, label).saturation is None, label
    assert row(locks, "cgroup_rstat_lock").saturation is not None


def test_the_line_is_of_the_lock_that_moved_most(counted: Comparison) -> None:
    locks = MEASURED_LOCKS.of(counted)[0]
    line = section.LOCKS.lines(locks)[0]
    assert (line.label, line.of, line.faint) == ("i_pages.xa_lock held", "per folio added", False)
    assert line.base.startswith("1,16")
    assert line.change.startswith("-5.")
    assert line.says.startswith("largest change of ")
    still = but(locks, moved_most="")
    assert section.LOCKS.lines(still)[0].says.startswith("none of ")
    assert section.LOCKS.lines(but(locks, rows=(), listed=0)) == []


def many_cpus(manifest: Manifest) -> Manifest:
    guest = but(manifest.guest, vcpus=4, jobs=4)
    return but(manifest, guest=guest)


def waiting(session: ExactSession) -> list[Profile]:
    """Adders wait for removers: for one folio in 20 on base, one in 40 on patched."""

    def phase(profile: PhaseProfile, rare: int) -> PhaseProfile:
        folios = int(profile.units["folio"])
        pairs = tuple(
            LockWait(
                waiter=waiter,
                holder="__remove_mapping",
                shared=False,
                waits=folios // each,
                handovers=folios // each // 2,
                waited=folios * 30,
            )
            for waiter, each in (("__filemap_add_folio", rare), ("__remove_mapping", 10 * rare))
        )
        first, *others = there(profile.locks)
        entered = FunctionCount(
            name="native_queued_spin_lock_slowpath", file="", instructions=50, calls=folios // rare
        )
        locks = (but(first, pairs=pairs), *others)
        return but(profile, locks=locks, kernel=(*profile.kernel, entered))

    return [
        but(each, phases=tuple(phase(p, 20 if "-base" in each.run_id else 40) for p in each.phases))
        for each in counts.profiles(session)
    ]


def test_who_waited_for_whom_is_per_unit_and_paired(
    session: ExactSession, manifest: Manifest
) -> None:
    table = MEASURED_LOCKS.made(Recorded(many_cpus(manifest), session.records(), waiting(session)))[
        0
    ]
    assert [(pair.label, pair.waiter, pair.holder) for pair in table.pairs] == [
        (XA_LOCK, "__filemap_add_folio", "__remove_mapping"),
        (XA_LOCK, "__remove_mapping", "__remove_mapping"),
    ]
    adds = table.pairs[0]
    assert (adds.waits.base, adds.waits.patched) == pytest.approx((50, 25), rel=1e-3)
    assert (adds.handovers.base, adds.handovers.patched) == pytest.approx((25, 12.5), rel=1e-3)
    assert adds.waited.base == pytest.approx(30)
    assert (there(table.slow_entries).base, there(table.slow_entries).patched) == pytest.approx(
        (50, 25), rel=1e-3
    )
    line = section.LOCKS.lines(table)[1]
    assert (line.base, line.of) == ("49.995", "per 1,000 folios added")
    assert line.says == "most in __filemap_add_folio"


def test_on_one_cpu_nobody_waits_and_nothing_is_reported(locks: MeasuredLocks) -> None:
    assert (locks.slow_entries, locks.pairs) == (None, ())
    assert len(section.LOCKS.lines(locks)) == 1


def test_who_waited_is_in_every_form(session: ExactSession, manifest: Manifest) -> None:
    comparison = compare(many_cpus(manifest), session.records(), waiting(session))
    assert "spin lock slow path" in render(comparison, "markdown")
    assert "handovers per 1,000 folios added" in render(comparison, "html")
    (pair,) = json.loads(render(comparison, "json"))["comparisons"]
    assert pair["measured_locks"][0]["pairs"][0]["holder"] == "__remove_mapping"


def test_where_folios_are_huge_locks_are_per_the_first_unit(
    session: ExactSession, manifest: Manifest
) -> None:
    def huge(case: CaseRecord) -> CaseRecord:
        phases = tuple(but(each, thp="always") for each in case.phases)
        return but(case, phases=phases)

    other = but(manifest, cases=tuple(map(huge, manifest.cases)))
    (first, *_) = MEASURED_LOCKS.made(Recorded(other, session.records(), counts.profiles(session)))
    assert first.unit_title == manifest.cases[0].phases[0].units[0].title == "I/O"


@pytest.fixture(scope="module")
def with_twins(manifest: Manifest) -> Manifest:
    return counts.with_twins(manifest)


def callers(comparison: Comparison) -> LockComparison:
    (of_twin,) = WAITS.of(comparison)
    return of_twin


def test_waits_by_caller(counted: Comparison) -> None:
    table = callers(counted)
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


def test_the_same_kernels_show_no_difference(with_twins: Manifest) -> None:
    records, profiles, locks = counts.twin_runs(with_twins, same=True)
    for table in WAITS.made(Recorded(with_twins, records, profiles, locks=locks)):
        assert table.virtual_ns.equal
        assert all(wait.count.equal and wait.wait.equal for wait in table.waits)


def test_the_order_does_not_matter(with_twins: Manifest, counted: Comparison) -> None:
    records, profiles, locks = counts.twin_runs(with_twins)
    locks = [
        but(of_run, phases=tuple(but(phase, waits=phase.waits[::-1]) for phase in of_run.phases))
        for of_run in locks
    ]
    for rows in (records, profiles, locks):
        random.Random(3).shuffle(rows)
    assert WAITS.made(Recorded(with_twins, records, profiles, locks=locks)) == WAITS.of(counted)


def test_without_a_profile_counts_are_per_virtual_millisecond(with_twins: Manifest) -> None:
    records, _, locks = counts.twin_runs(with_twins)
    tables = WAITS.made(Recorded(with_twins, records, [], locks=locks))
    assert {each.unit_title for each in tables} == {"virtual ms"}
    assert all(each.slow_share is None for each in tables)
    assert tables[0].virtual_ns.base == pytest.approx(1e6)


def test_a_failed_twin_is_a_note_and_nothing_more(with_twins: Manifest) -> None:
    records, profiles, locks = counts.twin_runs(with_twins)
    session = ExactSession()
    broken = fails(
        records,
        "filemap-4k-000-patched-callers",
        blame="series",
        kind="panic",
        message="kernel panic",
    )
    healthy = compare(with_twins, session.records())
    comparison = compare(with_twins, session.records() + broken, profiles, locks)
    assert outcome(whole(comparison)) == outcome(whole(healthy)) == 0
    assert comparison.primary == healthy.primary
    assert comparison.failed_runs == ()
    (note,) = [f for f in comparison.findings if f not in healthy.findings]
    assert (note.level, note.scope) == ("note", "twin callers")
    assert note.kind == "diagnostic-failed"
    assert note.values["runs"] == ["filemap-4k-000-patched-callers"]
    assert "panic" in note.values["why"]
    assert len(callers(comparison).seeds) == 1


def test_dropped_events_are_reported(with_twins: Manifest) -> None:
    records, profiles, locks = counts.twin_runs(with_twins)
    locks = [
        but(of_run, phases=tuple(but(phase, dropped=3) for phase in of_run.phases))
        if of_run.twin == "callers"
        else of_run
        for of_run in locks
    ]
    comparison = compare(with_twins, ExactSession().records() + records, profiles, locks)
    assert callers(comparison).dropped == (6, 6)
    assert any(
        finding.kind == "events-dropped" and finding.values["events"] == 12
        for finding in comparison.findings
    )


def test_saturation_of_a_lock_held_a_tenth_of_the_time() -> None:
    assert saturation(1000.0, 100.0) == 10.0
    with pytest.raises(ValueError, match="above zero"):
        saturation(1000.0, 0.0)
