"""Many CPUs as a range: its ends are arithmetic, and what is equal stays so."""

import json
from dataclasses import replace

import pytest

from analysis.counts import Recorded
from analysis.explain.locks import EXPLANATION as MEASURED_LOCKS
from analysis.explain.scaling import EXPLANATION as SCALING
from analysis.explain.scaling import FARTHEST, LINES, Scaling, lock_throughput
from analysis.model import Comparison
from reports import forms
from reports.sections import counted as section
from results.profile import LockSite, LockUse, Profile
from results.record import Manifest
from tests.analysis import counts_factory as counts
from tests.analysis.factory import ExactSession
from tests.analysis.measured import compare
from tests.values import but


@pytest.fixture(scope="module")
def session() -> ExactSession:
    return ExactSession()


@pytest.fixture(scope="module")
def comparison(session: ExactSession) -> Comparison:
    manifest = counts.counted(session.manifest())
    return compare(manifest, session.records(), counts.profiles(session))


@pytest.fixture(scope="module")
def first(comparison: Comparison) -> Scaling:
    return SCALING.of(comparison)[0]


def ranges(
    manifest: Manifest, session: ExactSession, profiles: list[Profile]
) -> tuple[Scaling, ...]:
    recorded = Recorded(manifest, session.records(), profiles)
    recorded.explained["measured_locks"] = MEASURED_LOCKS.made(recorded)
    return SCALING.made(recorded)


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
    (alone, full) = first.points[0], first.points[-1]
    assert alone.cpus == 1
    assert alone.base == (1.0, 1.0)
    assert alone.change[0] <= first.at_one <= alone.change[1]
    # Instructions alone, where the lock is always held: lines that move make it less.
    assert full.change[1] == pytest.approx(first.held[0] / first.held[1] - 1, abs=2e-4)
    assert 0 < full.change[0] < first.at_one


def test_more_cpus_are_no_slower_and_never_faster_than_as_many(first: Scaling) -> None:
    for point in first.points:
        for low, high in (point.base, point.patched):
            assert 1.0 <= low <= high <= 1.02 * point.cpus
    best = [point.base[1] for point in first.points]
    assert best == sorted(best)


def test_equal_arms_have_no_change_at_any_number(session: ExactSession) -> None:
    manifest = counts.counted(session.manifest())
    equal = ranges(manifest, session, counts.profiles(session, same=True))
    assert equal
    assert {end for each in equal for point in each.points for end in point.change} == {0.0}


def test_no_range_without_a_machine_or_with_several_vcpus(session: ExactSession) -> None:
    manifest = counts.counted(session.manifest())
    profiles = counts.profiles(session)
    machine = manifest.machine
    assert machine is not None
    without = but(machine, many=None)
    guest = but(manifest.guest, vcpus=2)
    for update in ({"machine": None}, {"machine": without}, {"guest": guest}):
        assert ranges(but(manifest, **update), session, profiles) == ()


def test_no_range_where_no_lock_is_near(session: ExactSession) -> None:
    """A lock that is held for a hundred-thousandth of the time fills up nowhere."""
    manifest = counts.counted(session.manifest())

    def rare(profile: Profile) -> Profile:
        phases = tuple(
            but(
                phase,
                locks=(
                    LockUse(
                        instances=1,
                        sleeps=False,
                        symbol="",
                        sites=(
                            LockSite(
                                function="__filemap_add_folio",
                                file="",
                                shared=False,
                                taken=9,
                                held=int(phase.busy / FARTHEST),
                            ),
                        ),
                    ),
                ),
            )
            for phase in profile.phases
        )
        return but(profile, phases=phases)

    assert ranges(manifest, session, [rare(p) for p in counts.profiles(session)]) == ()


def test_what_may_be_luck_is_in_parentheses(comparison: Comparison, first: Scaling) -> None:
    assert first.significant
    assert section.SCALING.lines(first)[0].change.startswith("+")
    locks = MEASURED_LOCKS.of(comparison)[0]
    tree = next(row for row in locks.rows if row.label == first.lock)
    loose = replace(tree.held, low=-99.0, high=9.0)
    rows = tuple(but(r, held=loose) if r is tree else r for r in locks.rows)
    recorded = Recorded(comparison.manifest, [], [])
    recorded.explained["measured_locks"] = (but(locks, rows=rows),)
    (luck,) = SCALING.made(recorded)
    assert not luck.significant
    (line,) = section.SCALING.lines(luck)
    assert (line.change[:2], line.faint) == ("(+", True)


def test_the_published_figure_is_held_against_the_range(
    comparison: Comparison, first: Scaling
) -> None:
    published = first.published
    assert published is not None
    assert published.jobs == 16
    assert published.change == pytest.approx(2625.56 / 2445.02 - 1)
    point = first.at(16)
    assert point is not None
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
        assert "Estimated range, not measured" in " ".join(forms.render(comparison, form).split())
    (pair,) = json.loads(forms.render(comparison, "json"))["comparisons"]
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


def test_one_cpu_waits_for_nobody_and_hands_over_to_nobody() -> None:
    assert lock_throughput(1, 20.0, 5.0, 100.0) == pytest.approx(1 / 25)


def test_two_cpus_with_a_handover_are_three_states() -> None:
    """At the lock are 0, 1 or 2 of them: solved by hand for apart 4, held 2, handover 1."""
    # Rates: 2/4 in, 1/2 out; 1/4 in, 1/3 out.  Weights 1, 1, 3/4.
    assert lock_throughput(2, 4.0, 2.0, 1.0) == pytest.approx((1 / 2 + 0.75 / 3) / 2.75)


def test_a_full_lock_gives_the_reciprocal_of_its_time() -> None:
    assert lock_throughput(5000, 20.0, 5.0, 1.0) == pytest.approx(1 / 6)
    assert lock_throughput(8, 0.0, 5.0, 1.0) == pytest.approx(1 / 6)
    assert lock_throughput(1, 0.0, 5.0, 1.0) == pytest.approx(1 / 5)


@pytest.mark.parametrize(
    "times", [(0, 1.0, 1.0, 0.0), (2, -1.0, 1.0, 0.0), (2, 1.0, 0.0, 0.0), (2, 1.0, 1.0, -1.0)]
)
def test_what_is_no_queue_is_refused(times: tuple[int, float, float, float]) -> None:
    with pytest.raises(ValueError, match="no queue"):
        lock_throughput(*times)
