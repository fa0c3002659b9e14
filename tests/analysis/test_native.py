"""Native mode: what is called, how often wrongly, and what withholds a verdict."""

from collections.abc import Callable, Iterable

import pytest

from analysis.native import is_finished, judge, undecided
from analysis.verdict import CALLED, Cause, Verdict
from experiment.spec import looks_of
from results.native import NativeBoot
from tests.analysis.native_factory import World, boots_of, head_of
from tests.values import but, there

SESSIONS = 150


def verdicts(world: World, rounds: int = 24, sessions: int = SESSIONS) -> list[Verdict]:
    head = head_of(rounds)
    return [judge(head, boots_of(head, world, seed))[0].verdict for seed in range(sessions)]


def test_of_a_round_that_was_made_anew_the_last_try_counts() -> None:
    """The first try was interrupted: its boots are of another hour."""
    head = head_of(24)
    boots = boots_of(head, World(change=0.02), 1)
    early = boots_of(head, World(change=0.5, biased=0.5), 2)
    begun = [boot for boot in early if boot.round == 5][:2]
    at = next(number for number, boot in enumerate(boots) if boot.round == 5)
    assert judge(head, (*boots[:at], *begun, *boots[at:])) == judge(head, boots)


def test_the_same_code_in_other_places_is_hardly_ever_called() -> None:
    """One in a hundred at most: of 150 sessions no more than four (the 0.99 quantile is 5)."""
    called = [verdict for verdict in verdicts(World()) if verdict in CALLED]
    assert len(called) <= 4


def test_layout_alone_is_not_called_though_rounds_agree() -> None:
    """Many rounds of an order agree on a difference that is not the patch's."""
    world = World(layout=0.006, noise=0.0005)
    assert sum(verdict in CALLED for verdict in verdicts(world)) <= 4
    assert sum(verdict in CALLED for verdict in verdicts(world, rounds=96, sessions=40)) <= 2


def test_a_change_of_one_percent_is_called() -> None:
    answers = verdicts(World(change=0.01))
    assert answers.count(Verdict.REGRESSION) >= 0.9 * SESSIONS
    assert Verdict.IMPROVEMENT not in answers


def ended(world: World, seed: int) -> tuple[Verdict, int]:
    """The verdict of a session that adds rounds, and how many it has then."""
    head = but(head_of(96), first=24)
    for rounds in looks_of(24, 96).seeds:
        # Its boots so far: the same as of the whole session.
        made = boots_of(but(head, rounds=rounds), world, seed)
        if not undecided(head, made):
            break
    verdict = judge(head, made)[0].verdict
    assert verdict is not Verdict.NOT_FINISHED
    return verdict, rounds


def test_looks_cost_no_more_errors_and_end_a_session_early() -> None:
    """As noisy as a phase of a real session: without a change, and with one of a percent."""
    world = World(layout=0.003, noise=0.005)
    none = [ended(world, seed) for seed in range(SESSIONS)]
    assert sum(verdict in CALLED for verdict, _ in none) <= 4
    assert sum(rounds == 24 for _, rounds in none) >= 0.8 * SESSIONS
    some = [ended(but(world, change=0.01), seed)[0] for seed in range(SESSIONS)]
    assert some.count(Verdict.REGRESSION) >= 0.95 * SESSIONS


def test_between_looks_the_last_one_stands() -> None:
    head = but(head_of(96), first=24)
    boots = boots_of(head, World(layout=0.006, noise=0.02), 1)
    at = {made: judge(head, boots[: 3 * made])[0] for made in (8, 24, 30, 32, 96)}
    assert (at[8].cause, at[24].cause, at[96].verdict) == (
        Cause.TOO_FEW,
        Cause.UNFINISHED,
        Verdict.INCONCLUSIVE,
    )
    assert at[30] == at[24] != at[32]
    assert [is_finished(head, boots[: 3 * made]) for made in (8, 32, 96)] == [False, False, True]
    assert {of.verdict for made, of in at.items() if made < 96} == {Verdict.NOT_FINISHED}


def test_a_difference_of_the_base_that_nobody_would_call_withholds_nothing() -> None:
    head = head_of(96)
    steady = World(noise=0.0004, layout=0.0004)
    (of,) = judge(head, boots_of(head, but(steady, biased=0.0045), 1))
    assert there(there(of.again).low) > 0
    assert of.verdict is Verdict.NO_CHANGE
    assert of.reason == "with 90 % confidence the change is within ±1.00 %"
    (of,) = judge(head, boots_of(head, but(steady, biased=0.0055), 1))
    assert of.cause is Cause.UNSTEADY


def test_half_of_the_threshold_is_the_least_that_is_called() -> None:
    head = head_of(96)
    steady = World(noise=0.0004, layout=0.0004)
    for change, verdict in ((0.0045, Verdict.NO_CHANGE), (0.0055, Verdict.REGRESSION)):
        (of,) = judge(head, boots_of(head, but(steady, change=change), 1))
        assert there(there(of.change).low) > 0
        assert of.verdict is verdict


def test_a_wide_interval_that_holds_zero_is_undecided() -> None:
    head = head_of(24)
    (of,) = judge(head, boots_of(head, World(layout=0.02, noise=0.01), 0))
    change = there(of.change)
    assert there(change.low) < 0 < there(change.high)
    assert abs(change.estimate) > 0.005
    assert (of.verdict, of.cause) == (Verdict.INCONCLUSIVE, Cause.UNDECIDED)


def test_an_improvement_is_one() -> None:
    assert verdicts(World(change=-0.02), sessions=3) == [Verdict.IMPROVEMENT] * 3


def test_a_quiet_host_says_no_change() -> None:
    answers = verdicts(World(layout=0.0005, noise=0.0005), sessions=20)
    assert answers.count(Verdict.NO_CHANGE) >= 18


def test_few_slow_boots_are_counted_and_do_not_move_a_verdict() -> None:
    head = head_of(24)
    every = [judge(head, boots_of(head, World(change=0.02, slow=0.02), s))[0] for s in range(40)]
    assert sum(of.slow >= 1 for of in every) > 20
    assert sum(of.verdict is Verdict.REGRESSION for of in every) >= 38


def test_slow_boots_of_either_arm_move_no_estimate() -> None:
    head = head_of(24)
    world = World(noise=0.004, slow=0.08)
    changes = [there(judge(head, boots_of(head, world, s))[0].change).estimate for s in range(100)]
    assert sum(changes) / len(changes) == pytest.approx(0, abs=0.0005)


def test_many_slow_boots_withhold_it() -> None:
    head = head_of(24)
    of = judge(head, boots_of(head, World(change=0.05, slow=0.3), 1))[0]
    assert (of.verdict, of.cause) == (Verdict.INCONCLUSIVE, Cause.UNSTEADY)
    assert f"{of.slow} of 24 rounds have a boot that is 5.00 % slower" in of.reason


@pytest.mark.parametrize("world", [World(biased=0.01), World(stolen=0.2)])
def test_a_host_that_is_not_steady_withholds_it(world: World) -> None:
    head = head_of(24)
    of = judge(head, boots_of(head, World(**{**vars(world), "change": 0.05}), 1))[0]
    assert (of.verdict, of.cause) == (Verdict.INCONCLUSIVE, Cause.UNSTEADY)
    assert of.reason.startswith("withheld: ")


def test_what_the_family_alone_withholds_says_so() -> None:
    """A change that would be called alone is withheld among nine phases that show none."""
    names = ("readahead", *(f"other{number}" for number in range(9)))
    head = head_of(24, phases=names)
    boots = boots_of(head, World(change=0.009, noise=0.008, layout=0.003), 3)
    alone = but(head, phases={"filemap-4k": names[:1]})
    assert judge(alone, boots)[0].verdict is Verdict.REGRESSION
    of = judge(head, boots)[0]
    assert (of.verdict, of.cause) == (Verdict.INCONCLUSIVE, Cause.FAMILY)
    assert of.reason.startswith("not significant among 10 phases (Holm); a change of 1.00 %")


def test_what_is_not_finished_is_not_judged() -> None:
    head = head_of(24)
    boots = boots_of(head, World(change=0.05), 1)
    assert judge(head, boots[: 3 * 12])[0].verdict is Verdict.NOT_FINISHED
    assert judge(head, boots[:7])[0].verdict is Verdict.NOT_FINISHED
    assert judge(head, ())[0].verdict is Verdict.NOT_FINISHED
    few = head_of(3)
    assert judge(few, boots_of(few, World(), 1))[0].verdict is Verdict.NOT_JUDGED


def test_the_same_code_is_no_change_without_a_boot() -> None:
    of = judge(head_of(24, same_code=True), ())[0]
    assert (of.verdict, of.cause, of.base_ns) == (Verdict.NO_CHANGE, Cause.SAME_CODE, None)


def test_the_interval_holds_layout_and_nanoseconds_are_of_a_folio() -> None:
    head = head_of(24)
    widths = []
    for layout in (0.0, 0.004):
        of = judge(head, boots_of(head, World(layout=layout, noise=0.0005), 1))[0]
        widths.append(
            [there(each.high) - there(each.low) for each in (there(of.change), there(of.again))]
        )
    assert widths[0][0] < 1.5 * widths[0][1]
    assert widths[1][0] > 4 * widths[1][1]
    assert of.base_ns == pytest.approx(100_000 / 64 / 2, rel=0.02)
    assert of.crossing == pytest.approx(0.18, abs=0.01)


def test_many_rounds_of_few_orders_are_few_numbers() -> None:
    head = but(head_of(24), orders=2)
    of = judge(head, boots_of(head, World(change=0.05), 1))[0]
    assert (of.verdict, of.change) == (Verdict.NOT_JUDGED, None)


def with_slow(boots: Iterable[NativeBoot], slow: Callable[[NativeBoot], bool]) -> list[NativeBoot]:
    """The same boots, of which some take 1.4 times as long."""

    def longer(boot: NativeBoot) -> NativeBoot:
        phase = boot.phases["readahead"]
        ticks = tuple(round(1.4 * each) for each in phase.ticks)
        return but(boot, phases={**boot.phases, "readahead": but(phase, ticks=ticks)})

    return [longer(boot) if slow(boot) else boot for boot in boots]


def test_a_few_slow_boots_of_the_base_hide_no_change() -> None:
    """As on 7.3.4: in three of 24 orders the base took 1.4 times its time."""
    head = head_of(24)
    boots = boots_of(head, World(change=0.01), 5)
    (judged,) = judge(
        head,
        with_slow(boots, lambda boot: boot.arm == "base" and boot.round in (3, 14, 16)),
    )
    assert judged.verdict is Verdict.REGRESSION
    assert judged.change
    assert 0.006 < (judged.change.low or 0) < 0.01 < (judged.change.high or 0) < 0.014
    assert judged.slow == 3
    again = there(judged.again)
    assert there(again.high) - there(again.low) < 0.006


def test_too_few_rounds_without_slow_boots_are_not_judged() -> None:
    head = head_of(24)
    boots = boots_of(head, World(), 5)
    # In ten of them the base is slow, in ten the arm.
    (judged,) = judge(
        head,
        with_slow(boots, lambda boot: boot.round < 20 and (boot.arm == "base") == boot.round % 2),
    )
    assert (judged.verdict, judged.rounds, judged.slow) == (Verdict.NOT_JUDGED, 24, 20)
    assert judged.reason.startswith("4 orders ")
