"""One test for each rule of the verdict table, and for what must never be said."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from analysis import statistics
from analysis.statistics import as_change, pairs_needed
from analysis.verdict import (
    Cause,
    Evidence,
    Judgement,
    Verdict,
    judge_primary,
    judge_secondary,
)
from experiment.spec import Direction, Thresholds, looks_of
from results.record import Failure
from tests.values import but, there

DEFAULTS = Thresholds()


def evidence(
    percent: list[float],
    *,
    direction: Direction = "higher",
    planned: int | None = None,
    failures: tuple[Failure, ...] = (),
    same_code: bool = False,
    unusable: str = "",
) -> Evidence:
    """Pairs around 259 MiB/s whose changes are the given percentages."""
    base = tuple(259.0 + i for i in range(len(percent)))
    patched = tuple(b * (1 + p / 100) for b, p in zip(base, percent, strict=True))
    return Evidence(
        direction=direction,
        base=base,
        patched=patched,
        blocks_planned=len(percent) if planned is None else planned,
        failures=failures,
        same_code=same_code,
        unusable=unusable,
    )


def failure(blame: str, kind: str = "invalid") -> Failure:
    return Failure.model_validate({"kind": kind, "blame": blame, "message": "m"})


def judge(measured: Evidence, thresholds: Thresholds = DEFAULTS) -> Judgement:
    return judge_primary([measured], thresholds)[0]


FASTER = [1.1, 1.4, 1.3, 1.2, 1.5, 1.35, 1.25, 1.45]


def test_two_times_that_read_the_same_are_not_no_change() -> None:
    """80 ms in steps of one: equal values may be 1.2 % apart."""
    equal = evidence([0.0] * 8)
    assert judge(equal).cause is Cause.EXACTLY_ZERO
    coarse = judge(replace(equal, resolution=math.log1p(1 / 80)))
    assert (coarse.verdict, coarse.cause) == (Verdict.INCONCLUSIVE, Cause.UNUSABLE)
    assert "1.25 % of the shortest run" in coarse.reason
    # 0.1 % is finer than the threshold of 0.25 %, and no exact zero.
    finer = judge(replace(equal, resolution=0.001))
    assert (finer.verdict, finer.cause) == (Verdict.NO_CHANGE, Cause.WITHIN_THRESHOLD)
    # An interval that ends at 0.16 % leaves no room for 0.1 % more.
    near = evidence([-0.1, 0.2, 0.15, -0.05, 0.2, 0.1, 0.0, 0.1])
    assert judge(near).verdict is Verdict.NO_CHANGE
    left = judge(replace(near, resolution=0.001))
    assert (left.verdict, left.cause) == (Verdict.INCONCLUSIVE, Cause.UNDECIDED)
    assert there(left.blocks_to_decide) > left.pairs
    mirrored = replace(near, base=near.patched, patched=near.base)
    assert judge(mirrored).verdict is Verdict.NO_CHANGE
    assert judge(replace(mirrored, resolution=0.001)).cause is Cause.UNDECIDED
    # What is clear is called, and the same code is the same.
    clear = replace(evidence(FASTER), resolution=0.0125)
    assert judge(clear).verdict is Verdict.IMPROVEMENT
    same = replace(equal, resolution=0.0125, same_code=True)
    assert judge(same).cause is Cause.SAME_CODE


def test_improvement_needs_the_direction_only_for_the_word() -> None:
    up = judge(evidence(FASTER))
    assert up.verdict is Verdict.IMPROVEMENT
    assert up.change is not None
    assert 0.009 < there(up.change.low) < up.change.estimate < 0.016
    down = judge(evidence(FASTER, direction="lower"))
    assert down.verdict is Verdict.REGRESSION
    assert down.change == up.change
    slower = judge(evidence([-p for p in FASTER]))
    assert slower.verdict is Verdict.REGRESSION


@pytest.mark.parametrize("alpha", [0.01, 0.05])
def test_an_interval_has_the_level_of_its_alpha(alpha: float) -> None:
    change = there(judge(evidence(FASTER), Thresholds(alpha=alpha)).change)
    assert change.level == pytest.approx(1 - alpha)


def test_how_many_equal_pairs_are_an_exact_zero() -> None:
    """As many as an interval at 90 % needs, where more were planned."""
    enough = pairs_needed(1 - 2 * DEFAULTS.equivalence_alpha)
    causes = [judge(evidence([0.0] * n, planned=99)).cause for n in (enough - 1, enough)]
    assert (causes[0] is Cause.EXACTLY_ZERO, causes[1] is Cause.EXACTLY_ZERO) == (False, True)


def test_a_metric_may_have_a_smallest_change_of_its_own() -> None:
    """What scatters by 2 % is no change within 5 %, and inconclusive within 0.25 %."""
    thresholds = but(DEFAULTS, metrics={"thp.work": 0.05})
    scattered = evidence([2.1, -1.7, 1.2, -2.4, 0.3, -0.6, 1.9, -1.1])
    judged = judge_primary([replace(scattered, metric="thp.work"), scattered], thresholds)
    assert [each.verdict for each in judged] == [Verdict.NO_CHANGE, Verdict.INCONCLUSIVE]
    below_half = replace(evidence(FASTER), metric="thp.work")
    assert judge_primary([below_half], thresholds)[0].verdict is Verdict.NO_CHANGE


def test_a_real_change_below_half_the_threshold_is_no_change() -> None:
    result = judge(evidence([0.10, 0.11, 0.12, 0.10, 0.11, 0.12, 0.10, 0.11]))
    assert result.verdict is Verdict.NO_CHANGE
    assert "within ±0.25 %" in result.reason
    wide = judge(
        evidence([0.10, 0.11, 0.12, 0.10, 0.11, 0.12, 0.10, 0.11]), Thresholds(change=0.002)
    )
    assert wide.verdict is Verdict.IMPROVEMENT


def test_a_spread_around_zero_is_inconclusive_and_says_what_would_decide() -> None:
    result = judge(evidence([0.9, -0.6, 0.3, -0.8, 0.7, -0.2, 0.5, -0.9]))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert there(result.detectable) > 0.0025
    assert there(result.blocks_to_decide) > 8
    assert result.cause is Cause.UNDECIDED
    assert f"about {result.blocks_to_decide} seeds needed" in result.reason
    assert f"with 8 seeds: {100 * there(result.detectable):.2f} %" in result.reason


def test_seven_pairs_say_95_percent() -> None:
    assert judge(evidence(FASTER[:7]), Thresholds(alpha=0.05)).verdict is Verdict.IMPROVEMENT


def zeros(n: int = 8, **more: Any) -> Evidence:
    return evidence([0.0] * n, **more)


HOST, SERIES = failure("host", "lost"), failure("series", "panic")
TIGHT = [0.02, -0.03, 0.01, 0.0, -0.02, 0.03, 0.01]


@pytest.mark.parametrize(
    ("measured", "verdict", "reason"),
    [
        (zeros(), Verdict.NO_CHANGE, "change exactly 0"),
        (zeros(0, planned=8, same_code=True), Verdict.NO_CHANGE, "same code"),
        (zeros(same_code=True), Verdict.NO_CHANGE, "same code, change exactly 0"),
        # A metric that is zero in all runs, and one of whose values has no ratio.
        (Evidence("lower", (0.0,) * 8, (0.0,) * 8, 8), Verdict.NO_CHANGE, "change exactly 0"),
        *(
            (Evidence("higher", (1.0,) * 8, (2.0,) * 7 + (bad,), 8), Verdict.FAILED, "")
            for bad in (0.0, math.nan, math.inf, -1.0)
        ),
        (evidence(FASTER[:7]), Verdict.NOT_JUDGED, "7 seeds, 8 needed at 99 %"),
        (evidence([1.3]), Verdict.NOT_JUDGED, "1 seed, 8 needed at 99 %"),
        (evidence(FASTER, unusable="too few I/Os"), Verdict.INCONCLUSIVE, "too few I/Os"),
        # Lost seeds: what is left may be enough, and the gravest blame is named.
        (
            evidence(FASTER[:7], planned=8, failures=(HOST,)),
            Verdict.FAILED,
            "7 of 8 seeds left, 1 run failed (lost; blame: host)",
        ),
        (evidence([*FASTER, 1.3], planned=10, failures=(HOST,)), Verdict.IMPROVEMENT, ""),
        (evidence(TIGHT, planned=8, failures=(HOST,)), Verdict.NO_CHANGE, ""),
        (
            zeros(1, planned=8, failures=(SERIES,) * 7),
            Verdict.FAILED,
            "1 of 8 seeds left, 7 runs failed (panic; blame: series)",
        ),
        (
            zeros(0, planned=8, failures=(HOST, SERIES, failure("workload"))),
            Verdict.FAILED,
            "0 of 8 seeds left, 3 runs failed (panic; blame: series)",
        ),
    ],
)
def test_each_rule_of_the_verdict_on_its_own_evidence(
    measured: Evidence, verdict: Verdict, reason: str
) -> None:
    result = judge(measured)
    assert (result.verdict, reason or result.reason) == (verdict, result.reason)
    if verdict is Verdict.NOT_JUDGED or reason == "change exactly 0":
        change = there(result.change)
        assert change.low == change.high == (0.0 if "0" in reason[-1:] else None)


def test_nothing_recorded_asks_for_resume() -> None:
    result = judge(evidence([], planned=8))
    assert (result.verdict, result.blame) == (Verdict.FAILED, "lab")
    assert "--resume" in result.reason


def test_holm_covers_all_primary_metrics_also_failed_ones() -> None:
    marginal = evidence([0.2, 0.9, 0.3, 1.1, 0.15, 0.8, 0.35, 1.0])
    alone = judge(marginal)
    assert alone.verdict is Verdict.IMPROVEMENT
    among = judge_primary([marginal, *[evidence([], planned=8)] * 20], DEFAULTS)[0]
    assert among.verdict is Verdict.INCONCLUSIVE
    assert among.cause is Cause.FAMILY
    assert "among 21 primary metrics" in among.reason
    assert among.p_adjusted == pytest.approx(21 * there(alone.p_value))


def test_secondary_metrics_are_described_and_never_judged() -> None:
    judgements = judge_secondary([evidence(FASTER), evidence([0.9, -0.6, 0.3, -0.8])], DEFAULTS)
    assert [s.verdict for s in judgements] == [None, None]
    assert [s.differs for s in judgements] == [True, False]


def test_a_look_is_stricter_than_a_fixed_number_and_seeds_make_up_for_it() -> None:
    """What eight seeds call in a fixed session is open at the first look, and decided later."""
    clear = [0.2, 0.9, 0.3, 1.1, 0.15, 0.8, 0.35, 1.0]
    assert judge(evidence(clear)).verdict is Verdict.IMPROVEMENT
    first = judge(replace(evidence(clear), looks=looks_of(8, 32, until=8)))
    assert (first.verdict, first.cause) == (Verdict.INCONCLUSIVE, Cause.UNDECIDED)
    assert there(there(first.change).low) < 0
    later = judge(replace(evidence(clear * 3), looks=looks_of(8, 32, until=24)))
    assert later.verdict is Verdict.IMPROVEMENT


def test_p_values_are_those_over_all_looks() -> None:
    looks = looks_of(8, 32, until=16)
    values = evidence(FASTER * 2)
    now_ = replace(values, looks=looks)
    alone, now = judge(values), judge(now_)
    assert there(now.p_value) > there(alone.p_value)
    among = judge_primary([now_] * 4, DEFAULTS)[0]
    assert among.p_adjusted == pytest.approx(4 * there(now.p_value))


def in_wall(effect: float, spread: float, n: int = 24) -> Evidence:
    """Blocks with an effect on the patched arm, and an A/A arm."""
    values = 1000 * np.exp(spread * np.random.default_rng(1).standard_normal((3, n)))
    base, patched, again = map(tuple, values.tolist())
    patched = tuple(value * (1 + effect) for value in patched)
    return Evidence("higher", base, patched, n, again=again)


WALL = Thresholds(change=0.01)


def test_in_wall_mode_numbers_beside_a_verdict_are_those_of_the_ranks() -> None:
    measured = in_wall(0.03, 0.005)
    judged = judge(measured, WALL)
    without_again = judge(replace(measured, again=()), WALL)
    assert (judged.verdict, without_again.verdict) == (Verdict.IMPROVEMENT,) * 2
    differences = statistics.log_ratios(measured.base, measured.patched)
    interval = there(statistics.signed_rank_interval(differences, 0.99))
    change = there(judged.change)
    assert change.estimate == as_change(statistics.hodges_lehmann(differences))
    assert (change.low, change.high) == (as_change(interval.low), as_change(interval.high))
    assert judged.p_value == statistics.signed_rank_p(differences)


@pytest.mark.parametrize(
    ("edge", "verdict"), [(0.0099, Verdict.NO_CHANGE), (0.0101, Verdict.INCONCLUSIVE)]
)
def test_no_change_is_two_tests_at_its_error_rate(edge: float, verdict: Verdict) -> None:
    """That is the interval of 90 % within the threshold, for a rate of 5 %."""
    differences = np.random.default_rng(1).normal(0.2, 1.0, 24)
    interval = there(statistics.signed_rank_interval(differences, 0.9))
    patched = np.exp(differences * math.log1p(edge) / interval.high)
    ones = (1.0,) * 24
    measured = Evidence("higher", ones, tuple(patched.tolist()), 24, again=ones)
    assert judge(measured, WALL).verdict is verdict


def test_what_so_many_blocks_detect_is_called_from_half_of_the_smallest_change_on() -> None:
    """Not from twice of it on, whatever they scatter by."""
    judged = judge(in_wall(0.01, 0.012), WALL)
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert 0.01 < there(judged.detectable) < 0.018
    few = judge(in_wall(0.01, 0.02, 12), WALL)
    assert there(few.blocks_to_decide) > 12
    assert few.reason.startswith("minimum detectable effect with 12 blocks: ")
    assert few.reason.endswith(f"about {few.blocks_to_decide} blocks needed")
