"""Many CPUs as a range: its ends are arithmetic, what is equal stays so, misses are added once."""

import json
from dataclasses import replace

import pytest

from analysis.counts import Recorded
from analysis.explain.locks import EXPLANATION as MEASURED_LOCKS
from analysis.explain.modelled import weights
from analysis.explain.scaling import EXPLANATION as SCALING
from analysis.explain.scaling import (
    FARTHEST,
    LINES,
    MissedEach,
    Scaling,
    cycles_of,
    lock_throughput,
    missed_in_phases,
)
from analysis.model import Comparison
from reports.sections import counted as section
from results.profile import FunctionMisses, LockSite, LockUse, MemoryUse, Misses, Profile
from results.record import Manifest, RunRecord
from tests.analysis import counts_factory as counts
from tests.analysis.factory import ExactSession
from tests.analysis.measured import compare, render
from tests.values import but, there

SESSION = ExactSession()
MANIFEST = counts.counted(SESSION.manifest())
WITH_TWIN = but(MANIFEST, twins=(counts.twin(MANIFEST, "memory", "memory"),))
HELD, MACHINE = 500_000, counts.MACHINE
USE = MemoryUse(
    kernel=(
        FunctionMisses(name="xas_load", file="lib/xarray.c", l1d=9000, llc=2000, l2=2500),
        FunctionMisses(name="zap_pte_range", file="mm/memory.c", tlb=300, walks=400),
    ),
    user={"fio": Misses(l2=70, llc=70, prefetched=5000), "busybox": Misses(llc=10**9)},
)


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compare(MANIFEST, SESSION.records(), counts.profiles(SESSION))


@pytest.fixture(scope="module")
def first(comparison: Comparison) -> Scaling:
    return SCALING.of(comparison)[0]


def tree_lock(**numbers: int) -> tuple[LockUse, ...]:
    site = LockSite(function="__filemap_add_folio", file="mm/filemap.c", shared=False, **numbers)
    return (LockUse(instances=1, sleeps=False, symbol="", sites=(site,)),)


def ranges(manifest: Manifest, records: list[RunRecord], profiles: list[Profile]) -> list[Scaling]:
    recorded = Recorded(manifest, records, profiles)
    return [*SCALING.made(recorded)]


def runs(
    manifest: Manifest = WITH_TWIN, *, saved: int = 0, by_lock: bool = True
) -> tuple[list[RunRecord], list[Profile]]:
    """Of the twin: 2 L2 misses and 1 LLC miss a folio with the lock held, on patched fewer."""
    arms: dict[str, list[dict[str, object]]] = {}
    for arm, fewer in (("base", 0), ("patched", saved)):
        locks = tree_lock(taken=1000, held=HELD, l2=2000 - fewer, llc=1000 - fewer, walks=100)
        arms[arm] = [{"memory": but(USE, by_lock=by_lock), "locks": locks}] * 2
    return counts.of_twin(manifest, "memory", arms)


def with_misses(
    manifest: Manifest = WITH_TWIN, *, same: bool = False, saved: int = 0, by_lock: bool = True
) -> Scaling:
    """The range of phase 4k."""
    own, twin = counts.profiles(SESSION, same=same), runs(manifest, saved=saved, by_lock=by_lock)
    return ranges(manifest, SESSION.records() + twin[0], own + twin[1])[0]


def test_the_lock_that_fills_first_is_taken_from_the_judged_runs(
    comparison: Comparison, first: Scaling
) -> None:
    locks = MEASURED_LOCKS.of(comparison)[0]
    tree = next(row for row in locks.rows if row.label == "i_pages.xa_lock")
    assert first.lock == tree.label
    assert first.held == pytest.approx((tree.held.base, tree.held.patched))
    assert first.acquisitions == pytest.approx((tree.taken.base, tree.taken.patched))
    assert first.instructions == (locks.busy.base, locks.busy.patched)
    assert first.at_one == pytest.approx(locks.busy.base / locks.busy.patched - 1)


def test_path_length_and_the_full_lock_are_in_the_range(first: Scaling) -> None:
    full = first.points[-1]
    for each in (first, with_misses(saved=900)):
        alone = each.points[0]
        assert alone.cpus == 1
        assert alone.base == (1.0, 1.0)
        assert alone.change[0] <= each.at_one <= alone.change[1]
    # Instructions alone, where the lock is always held: lines that move make it less.
    assert full.change[1] == pytest.approx(first.held[0] / first.held[1] - 1, abs=2e-4)
    assert 0 < full.change[0] < first.at_one


def test_more_cpus_are_no_slower_and_never_faster_than_as_many(first: Scaling) -> None:
    for point in first.points:
        for low, high in (point.base, point.patched):
            assert 1.0 <= low <= high <= 1.02 * point.cpus
    best = [point.base[1] for point in first.points]
    assert best == sorted(best)


def test_equal_arms_have_no_change_at_any_number() -> None:
    equal = ranges(MANIFEST, SESSION.records(), counts.profiles(SESSION, same=True))
    missed = with_misses(same=True)
    assert equal
    assert missed.missed is not None
    for each in (*equal, missed):
        assert {end for point in each.points for end in point.change} == {0.0}


def test_no_range_without_a_machine_or_with_several_vcpus() -> None:
    without = but(MACHINE, many=None)
    guest = but(MANIFEST.guest, vcpus=2)
    for update in ({"machine": None}, {"machine": without}, {"guest": guest}):
        profiles = counts.profiles(SESSION)
        assert ranges(but(MANIFEST, **update), SESSION.records(), profiles) == []


def test_no_range_where_no_lock_is_near() -> None:
    """A lock that is held for a hundred-thousandth of the time fills up nowhere."""
    rare = counts.of_runs(
        SESSION,
        lambda phase, *_: {"locks": tree_lock(taken=9, held=int(phase.busy / FARTHEST))},
    )
    assert ranges(MANIFEST, SESSION.records(), rare) == []


def test_what_may_be_luck_is_in_parentheses(comparison: Comparison, first: Scaling) -> None:
    assert first.significant
    assert section.SCALING.lines(first)[0].change.startswith("+")
    locks = MEASURED_LOCKS.of(comparison)[0]
    tree = next(row for row in locks.rows if row.label == first.lock)
    loose = replace(tree.held, low=-99.0, high=9.0)
    rows = tuple(but(r, held=loose) if r is tree else r for r in locks.rows)
    recorded = Recorded(comparison.manifest, [], [])
    recorded.kept["measured_locks"] = (but(locks, rows=rows),)
    (luck,) = SCALING.made(recorded)
    assert not luck.significant
    (line,) = section.SCALING.lines(luck)
    assert (line.change[:2], line.faint) == ("(+", True)


def test_the_published_figure_is_held_against_the_range(
    comparison: Comparison, first: Scaling
) -> None:
    published = there(first.published)
    assert published.jobs == 16
    assert published.change == pytest.approx(2625.56 / 2445.02 - 1)
    point = there(first.at(16))
    assert published.change > point.change[1]
    assert section.SCALING.lines(first)[0].says == "below published +7.38 %"
    for change, where in ((point.change[0] - 0.01, "above"), (first.at_one, "holds")):
        other = but(published, change=change)
        (line,) = section.SCALING.lines(but(first, published=other))
        assert line.says.startswith(f"{where} published ")
    none = but(first, published=None)
    assert section.SCALING.lines(none)[0].says == "estimated"


def test_every_form_says_that_it_is_an_estimate(comparison: Comparison) -> None:
    for form in ("text", "markdown", "html"):
        assert "Estimated range, not measured" in " ".join(render(comparison, form).split())
    (pair,) = json.loads(render(comparison, "json"))["comparisons"]
    assert pair["scaling"][0]["lines"] == list(LINES)
    assert pair["scaling"][0]["points"][0]["base"] == [1.0, 1.0]


def mean_value_analysis(cpus: int, apart: float, held: float) -> float:
    """Machine repairman, exponential times: Jain (1991), chapter 34."""
    waiting = throughput = 0.0
    for customers in range(1, cpus + 1):
        response = held * (1 + waiting)
        throughput = customers / (apart + response)
        waiting = throughput * response
    return throughput


@pytest.mark.parametrize("cpus", [1, 2, 7, 16, 64])
@pytest.mark.parametrize("held", [0.1, 1.0, 30.0])
def test_without_a_handover_it_is_the_machine_repairman(cpus: int, held: float) -> None:
    expected = mean_value_analysis(cpus, 20.0, held)
    assert lock_throughput(cpus, 20.0, held, 0.0) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        # One CPU waits for nobody and hands over to nobody.
        ((1, 20.0, 5.0, 100.0), 1 / 25),
        # Three states, 0, 1 or 2 at the lock: rates 2/4 in, 1/2 out; 1/4 in, 1/3 out; so weights
        # are 1, 1, 3/4.
        ((2, 4.0, 2.0, 1.0), (1 / 2 + 0.75 / 3) / 2.75),
        # A full lock gives the reciprocal of its time.
        ((5000, 20.0, 5.0, 1.0), 1 / 6),
        ((8, 0.0, 5.0, 1.0), 1 / 6),
        ((1, 0.0, 5.0, 1.0), 1 / 5),
    ],
)
def test_throughput_by_hand(times: tuple[int, float, float, float], expected: float) -> None:
    assert lock_throughput(*times) == pytest.approx(expected)


@pytest.mark.parametrize(
    "times", [(0, 1.0, 1.0, 0.0), (2, -1.0, 1.0, 0.0), (2, 1.0, 0.0, 0.0), (2, 1.0, 1.0, -1.0)]
)
def test_what_is_no_queue_is_refused(times: tuple[int, float, float, float]) -> None:
    with pytest.raises(ValueError, match="no queue"):
        lock_throughput(*times)


def test_misses_are_per_unit_and_per_instruction_with_the_lock() -> None:
    ((key, missed),) = missed_in_phases(Recorded(WITH_TWIN, *runs(saved=500))).items()
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


def test_what_is_saved_under_the_lock_widens_the_range() -> None:
    without, plain, saved = (
        with_misses(by_lock=False),
        with_misses(),
        with_misses(saved=900),
    )
    assert (without.missed, without.missed_held) == (None, None)
    # As many as instructions with the lock held of the judged runs have.
    assert there(plain.missed_held).l2[0] == pytest.approx(2000 / HELD * plain.held[0])
    assert saved.points[-1].change[1] > 1.05 * plain.points[-1].change[1]
    # With the lock always held, each instruction and each miss at its slowest.
    cycles = cycles_of(MACHINE, there(saved.missed_held))
    base, patched = map(sum, zip(saved.held, cycles, strict=True))
    assert saved.points[-1].change[1] > base / patched - 1 - 2e-4


def test_a_machine_that_does_not_say_what_is_without_misses_has_none() -> None:
    many = but(there(MACHINE.many), instructions_per_cycle_in_caches=None)
    machine = but(MACHINE, many=many)
    twins = tuple(but(twin, machine=machine) for twin in WITH_TWIN.twins)
    without = but(WITH_TWIN, machine=machine, twins=twins)
    scaling, plain = with_misses(without), with_misses(by_lock=False)
    assert scaling.missed is None
    assert scaling.points == plain.points


def test_misses_of_another_machine_are_not_added() -> None:
    twins = tuple(but(twin, machine=but(MACHINE, name="other")) for twin in WITH_TWIN.twins)
    assert missed_in_phases(Recorded(but(WITH_TWIN, twins=twins), *runs())) == {}


def test_the_section_says_with_what_it_was_computed() -> None:
    added, without = with_misses(), with_misses(by_lock=False)
    assert dict(section.assumptions(without, MACHINE))["misses"].startswith("without: ")
    facts = dict(section.assumptions(added, MACHINE))
    assert facts["instructions per cycle"].startswith("1 to 2 at 3.4 GHz")
    assert "counted by diagnostic runs per folio added: 2.570 -> 2.570 L2 misses" in facts["misses"]
    assert "(60, 218, 30 cycles)" in facts["misses"]
    facts = dict(section.assumptions(without, MACHINE))
    assert facts["instructions per cycle"].startswith("0.5 to 2 at 3.4 GHz")
