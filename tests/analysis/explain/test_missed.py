"""Misses in the range of many CPUs: counted by lock, added once, nothing for equal arms."""

import pytest

from analysis.counts import Recorded
from analysis.explain.locks import EXPLANATION as MEASURED_LOCKS
from analysis.explain.memory import weights
from analysis.explain.scaling import EXPLANATION as SCALING
from analysis.explain.scaling import MissedEach, Scaling, cycles_of, missed_in_phases
from reports.sections import counted as section
from results.profile import FunctionMisses, LockSite, LockUse, MemoryUse, Misses, Profile
from results.record import Manifest, RunRecord
from tests.analysis import counts_factory as counts
from tests.analysis.factory import ExactSession
from tests.values import but

HELD, MACHINE = 500_000, counts.MACHINE
USE = MemoryUse(
    kernel=(
        FunctionMisses(name="xas_load", file="lib/xarray.c", l1d=9000, llc=2000, l2=2500),
        FunctionMisses(name="zap_pte_range", file="mm/memory.c", tlb=300, walks=400),
    ),
    user={"fio": Misses(l2=70, llc=70, prefetched=5000), "busybox": Misses(llc=10**9)},
)


@pytest.fixture(scope="module")
def session() -> ExactSession:
    return ExactSession()


@pytest.fixture(scope="module")
def manifest(session: ExactSession) -> Manifest:
    counted = counts.counted(session.manifest())
    return but(counted, twins=(counts.twin(counted, "memory", "memory"),))


def runs(
    manifest: Manifest, *, saved: int = 0, by_lock: bool = True
) -> tuple[list[RunRecord], list[Profile]]:
    """Of the twin: 2 L2 misses and 1 LLC miss a folio with the lock held, on patched fewer."""
    arms = [arm.name for arm in manifest.arms]
    use: dict[str, object] = {"memory": but(USE, by_lock=by_lock)}
    records, profiles = counts.of_twin(manifest, "memory", {arm: [use] * 2 for arm in arms})

    def with_locks(record: RunRecord, profile: Profile) -> Profile:
        fewer = saved if record.arm == arms[1] else 0
        site = LockSite(
            function="__filemap_add_folio",
            file="mm/filemap.c",
            shared=False,
            taken=1000,
            held=HELD,
            l2=2000 - fewer,
            llc=1000 - fewer,
            walks=100,
        )
        locks = (LockUse(instances=1, sleeps=False, symbol="", sites=(site,)),)
        (phase,) = profile.phases
        return but(profile, phases=(but(phase, locks=locks),))

    return records, [with_locks(r, p) for r, p in zip(records, profiles, strict=True)]


def ranges(
    session: ExactSession,
    manifest: Manifest,
    *,
    same: bool = False,
    saved: int = 0,
    by_lock: bool = True,
) -> Scaling:
    """The range of phase 4k."""
    own, twin = counts.profiles(session, same=same), runs(manifest, saved=saved, by_lock=by_lock)
    records, profiles = session.records() + twin[0], own + twin[1]
    recorded = Recorded(manifest, records, profiles)
    recorded.explained["measured_locks"] = MEASURED_LOCKS.made(recorded)
    return SCALING.made(recorded)[0]


def test_misses_are_per_unit_and_per_instruction_with_the_lock(manifest: Manifest) -> None:
    ((key, missed),) = missed_in_phases(Recorded(manifest, *runs(manifest, saved=500))).items()
    assert (key, missed.unit_title) == (("filemap-4k", "4k"), "folio added")
    # What idles is in none of it.
    assert missed.total == MissedEach(l2=(2.57, 2.57), llc=(2.07, 2.07), walks=(0.4, 0.4))
    assert missed.held == {
        "i_pages.xa_lock": MissedEach(
            l2=(2000 / HELD, 1500 / HELD), llc=(1000 / HELD, 500 / HELD), walks=(100 / HELD,) * 2
        )
    }


def test_a_miss_takes_the_way_from_its_level_to_the_next() -> None:
    cycles = MACHINE.cycles
    missed = MissedEach(l2=(1, 2), llc=(1, 0), walks=(0, 3))
    way = weights(MACHINE)["l2"]
    assert way == cycles.llc - cycles.l2
    assert cycles_of(MACHINE, missed) == (cycles.memory - cycles.l2, 2 * way + 3 * cycles.walk)


def test_what_is_saved_under_the_lock_widens_the_range(
    session: ExactSession, manifest: Manifest
) -> None:
    without, with_misses, saved = (
        ranges(session, manifest, by_lock=False),
        ranges(session, manifest),
        ranges(session, manifest, saved=900),
    )
    assert (without.missed, without.missed_held) == (None, None)
    assert with_misses.missed_held is not None
    # As many as instructions with the lock held of the judged runs have.
    assert with_misses.missed_held.l2[0] == pytest.approx(2000 / HELD * with_misses.held[0])
    assert saved.points[-1].change[1] > 1.05 * with_misses.points[-1].change[1]
    # With the lock always held, each instruction and each miss at its slowest.
    many = MACHINE.many
    assert many is not None
    assert saved.missed_held is not None
    base, patched = (
        held + cycles
        for held, cycles in zip(saved.held, cycles_of(MACHINE, saved.missed_held), strict=True)
    )
    assert saved.points[-1].change[1] > base / patched - 1 - 2e-4


def test_path_length_stays_an_end_with_misses(session: ExactSession, manifest: Manifest) -> None:
    scaling = ranges(session, manifest, saved=900)
    alone = scaling.points[0]
    assert alone.base == (1.0, 1.0)
    assert alone.change[0] <= scaling.at_one <= alone.change[1]


def test_equal_arms_have_no_change_with_misses(session: ExactSession, manifest: Manifest) -> None:
    scaling = ranges(session, manifest, same=True)
    assert scaling.missed is not None
    assert {end for point in scaling.points for end in point.change} == {0.0}


def test_a_machine_that_does_not_say_what_is_without_misses_has_none(
    session: ExactSession, manifest: Manifest
) -> None:
    assert MACHINE.many is not None
    many = but(MACHINE.many, instructions_per_cycle_in_caches=None)
    machine = but(MACHINE, many=many)
    twins = tuple(but(twin, machine=machine) for twin in manifest.twins)
    without = but(manifest, machine=machine, twins=twins)
    scaling, plain = ranges(session, without), ranges(session, manifest, by_lock=False)
    assert scaling.missed is None
    assert scaling.points == plain.points


def test_misses_of_another_machine_are_not_added(manifest: Manifest) -> None:
    twins = tuple(but(twin, machine=but(MACHINE, name="other")) for twin in manifest.twins)
    assert missed_in_phases(Recorded(but(manifest, twins=twins), *runs(manifest))) == {}


def test_the_section_says_with_what_it_was_computed(
    session: ExactSession, manifest: Manifest
) -> None:
    with_misses, without = (ranges(session, manifest), ranges(session, manifest, by_lock=False))
    assert dict(section.assumptions(without, MACHINE))["misses"].startswith("without: ")
    facts = dict(section.assumptions(with_misses, MACHINE))
    assert facts["instructions per cycle"].startswith("1 to 2 at 3.4 GHz")
    assert "counted by diagnostic runs per folio added: 2.570 -> 2.570 L2 misses" in facts["misses"]
    assert "(60, 218, 30 cycles)" in facts["misses"]
    facts = dict(section.assumptions(without, MACHINE))
    assert facts["instructions per cycle"].startswith("0.5 to 2 at 3.4 GHz")
    assert facts["misses"].startswith("without")
