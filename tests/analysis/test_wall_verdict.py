"""The rules of wall verdicts, one after the other, and what they may not say."""

from dataclasses import replace

import numpy as np
import pytest

from analysis import statistics
from analysis.statistics import as_change
from analysis.verdict import Evidence, Verdict, decides, judge_primary
from experiment.plan import LOOKS, at_look
from experiment.spec import Direction, Thresholds
from results.record import Failure

THRESHOLDS = Thresholds(change=0.01)


def evidence(
    effect: float,
    *,
    n: int = 24,
    spread: float = 0.005,
    seed: int = 1,
    again: float = 0.0,
    direction: Direction = "higher",
    real_time: bool = True,
    planned: int | None = None,
    same_code: bool = False,
    failures: tuple[Failure, ...] = (),
    unusable: str = "",
) -> Evidence:
    """Blocks with an effect on the patched arm, and one on the A/A arm if asked."""
    random = np.random.default_rng(seed)
    values = 1000 * np.exp(spread * random.standard_normal((3, n)))
    return Evidence(
        direction=direction,
        base=tuple(values[0]),
        patched=tuple(values[1] * (1 + effect)),
        blocks_planned=n if planned is None else planned,
        failures=failures,
        same_code=same_code,
        unusable=unusable,
        again=tuple(values[2] * (1 + again)),
        real_time=real_time,
    )


def verdict(measured: Evidence, thresholds: Thresholds = THRESHOLDS) -> Verdict | None:
    return judge_primary([measured], thresholds)[0].verdict


def test_numbers_beside_a_verdict_are_those_of_the_ranks() -> None:
    measured = evidence(0.03)
    judged = judge_primary([measured], THRESHOLDS)[0]
    assert (judged.verdict, verdict(replace(measured, again=()))) == (Verdict.IMPROVEMENT,) * 2
    differences = statistics.log_ratios(measured.base, measured.patched)
    interval = statistics.signed_rank_interval(differences, 0.99)
    assert interval is not None
    change = judged.change
    assert change is not None
    assert change.estimate == as_change(statistics.hodges_lehmann(differences))
    assert (change.low, change.high) == (as_change(interval.low), as_change(interval.high))
    assert judged.p_value == statistics.signed_rank_p(differences)


def test_one_wild_run_moves_the_mean_and_not_the_verdict() -> None:
    measured = evidence(0.0, spread=0.004)
    wild = (measured.patched[0] * 1.5, *measured.patched[1:])
    arms = replace(measured, patched=wild)
    assert verdict(arms) == Verdict.NO_CHANGE


def test_small_change_within_the_threshold_is_no_change() -> None:
    judgement = judge_primary([evidence(0.001, spread=0.003)], THRESHOLDS)[0]
    assert judgement.verdict == Verdict.NO_CHANGE
    assert judgement.reason == "with 90 % confidence the change is within ±1.00 %"


def test_clear_but_tiny_change_is_not_called() -> None:
    """0.3 % seen for certain is below half the threshold of 1 %."""
    assert verdict(evidence(0.003, spread=0.0005)) == Verdict.NO_CHANGE


def test_inconclusive_says_what_would_decide() -> None:
    judgement = judge_primary([evidence(0.01, n=12, spread=0.02)], THRESHOLDS)[0]
    assert judgement.verdict == Verdict.INCONCLUSIVE
    assert judgement.detectable is not None
    assert judgement.detectable > 0.01
    assert judgement.blocks_to_decide is not None
    assert judgement.blocks_to_decide > 12
    assert judgement.reason.startswith("minimum detectable effect with 12 blocks: ")
    assert judgement.reason.endswith(f"about {judgement.blocks_to_decide} blocks needed")


@pytest.mark.parametrize("effect", [0.0, 0.05, -0.5])
def test_translated_time_gets_no_verdict(effect: float) -> None:
    judged = judge_primary([evidence(effect, real_time=False)], THRESHOLDS)[0]
    assert judged.verdict == Verdict.INCONCLUSIVE
    assert judged.reason.startswith("withheld: the guests had no real CPUs")
    assert 'mode = "exact"' in judged.reason
    # The numbers are shown all the same.
    assert judged.change is not None


@pytest.mark.parametrize("effect", [0.0, 0.05])
def test_nothing_is_concluded_where_the_same_kernel_differs(effect: float) -> None:
    judgement = judge_primary([evidence(effect, again=0.02)], THRESHOLDS)[0]
    assert judgement.verdict == Verdict.INCONCLUSIVE
    assert judgement.reason.startswith("A/A differs by ")


def test_family_makes_it_harder() -> None:
    """Twelve blocks that all go up have p = 2 / 4096: enough alone at the first look."""
    first = at_look(THRESHOLDS, LOOKS[0])
    clear = evidence(0.05, n=12, spread=0.001)
    assert verdict(clear, first) == Verdict.IMPROVEMENT
    dull = evidence(0.0, n=12, spread=0.05, seed=2)
    alone, *_ = judge_primary([clear, dull, dull], first)
    assert alone.verdict == Verdict.INCONCLUSIVE
    assert "among 3 primary metrics" in alone.reason


def verdicts(family: list[Evidence]) -> list[Verdict | None]:
    return [each.verdict for each in judge_primary(family, THRESHOLDS)]


def test_session_stops_early_only_when_every_metric_is_decided() -> None:
    clear = evidence(0.05, spread=0.002)
    equal = evidence(0.0, spread=0.002, seed=3)
    unclear = evidence(0.01, n=12, spread=0.05, seed=2)
    assert decides(verdicts([clear, equal]))
    assert not decides(verdicts([clear, unclear]))
    assert not decides(verdicts([evidence(0.05, real_time=False)]))


def test_what_so_many_blocks_detect_is_called_from_half_of_the_smallest_change_on() -> None:
    """Not from twice of it on, whatever they scatter by."""
    judged = judge_primary([evidence(0.01, spread=0.012)], THRESHOLDS)[0]
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert judged.detectable is not None
    assert 0.01 < judged.detectable < 0.018
