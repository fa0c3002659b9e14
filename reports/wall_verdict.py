"""The verdict rules of wall mode: pure, and slower to speak than those of exact mode.

A change is called when the exact signed-rank interval excludes zero, the estimate is
at least half the threshold, and the exact p value survives Holm's correction over all
primary metrics.  Nothing is called where guests did not run on the host's own CPUs,
and nothing where the A/A arm, the same kernel under another name, differs as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from experiment.spec import Thresholds
from reports import statistics, wall_power, wall_statistics
from reports.statistics import Floats, Interval, as_change
from reports.verdict import (
    MISSING,
    UNDECIDED,
    Cause,
    Change,
    Evidence,
    Judgement,
    Verdict,
    excludes_zero,
    lost,
    no_ratio,
    not_in_family,
    percent,
    undecided,
    within,
)
from reports.wall_statistics import NoiseFloor

# What wall mode repeats.
BLOCK = "block"
WITHHELD = (
    "withheld: the guests had no real CPUs, so their time is that of QEMU's translator and not "
    "of this host; measure with mode = \"exact\", or on a host with KVM"
)  # fmt: skip


@dataclass(frozen=True)
class WallEvidence:
    """A metric's paired values, and the A/A arm's in the same blocks.

    ``again`` has one value for each of ``arms.base``.  ``real_time`` is false where
    guests ran under TCG, or on a KVM that is itself emulated.
    """

    arms: Evidence
    again: tuple[float, ...]
    real_time: bool


@dataclass(frozen=True)
class WallJudgement:
    """The verdict, with the noise of this host beside it; both are shown together."""

    judgement: Judgement
    noise: NoiseFloor | None


@dataclass(frozen=True)
class _WallEstimates:
    differences: Floats
    estimate: float
    sd: float | None
    interval: Interval | None
    equivalence: Interval | None
    p_value: float
    noise: NoiseFloor | None


def judge_wall(family: Sequence[WallEvidence], thresholds: Thresholds) -> list[WallJudgement]:
    """Judge all primary metrics of a wall session together; same order as given.

    At an early look ``thresholds`` are those of the look (``experiment.plan.at_look``).
    Holm's family is every metric asked for, also one whose runs failed.
    """
    measured = [_measure(evidence, thresholds) for evidence in family]
    p_values = [1.0 if item is None else item.p_value for item in measured]
    return [
        WallJudgement(
            _judge_one(
                evidence,
                item,
                adjusted,
                thresholds.of(evidence.arms.case, evidence.arms.metric),
                len(family),
            ),
            item.noise if item else None,
        )
        for evidence, item, adjusted in zip(
            family, measured, statistics.holm(p_values), strict=True
        )
    ]


def decides(verdicts: Iterable[Verdict | None]) -> bool:
    """Whether a session may stop early: no primary metric is left inconclusive."""
    return not {*UNDECIDED, *MISSING} & set(verdicts)


def _measure(evidence: WallEvidence, thresholds: Thresholds) -> _WallEstimates | None:
    arms = evidence.arms
    try:
        differences = statistics.log_ratios(arms.base, arms.patched)
        again = statistics.log_ratios(arms.base, evidence.again) if evidence.again else None
    except ValueError:
        return None
    level = 1 - 2 * thresholds.equivalence_alpha
    return _WallEstimates(
        differences=differences,
        estimate=statistics.hodges_lehmann(differences),
        sd=statistics.standard_deviation(differences),
        interval=statistics.signed_rank_interval(differences, 1 - thresholds.alpha),
        equivalence=statistics.signed_rank_interval(differences, level),
        p_value=statistics.signed_rank_p(differences),
        noise=None if again is None else wall_statistics.noise_floor(again, thresholds.alpha),
    )


def _judge_one(
    evidence: WallEvidence, measured: _WallEstimates | None, adjusted: float,
    thresholds: Thresholds, family: int,
) -> Judgement:  # fmt: skip
    arms, n = evidence.arms, len(evidence.arms.base)
    if n == 0 and arms.same_code:
        return Judgement(verdict=Verdict.NO_CHANGE, reason="same code", cause=Cause.SAME_CODE)
    if n == 0:
        return lost(arms, 0, BLOCK)
    if measured is None:
        return no_ratio(n)
    withheld = arms.unusable or ("" if evidence.real_time else WITHHELD)
    if withheld:
        judgement = Judgement(verdict=Verdict.INCONCLUSIVE, reason=withheld, cause=Cause.UNUSABLE)
    elif arms.same_code:
        judgement = Judgement(verdict=Verdict.NO_CHANGE, reason="same code", cause=Cause.SAME_CODE)
    else:
        judgement = _decide(evidence, measured, adjusted, thresholds, family)
    low, high = (
        (measured.interval.low, measured.interval.high) if measured.interval else (None,) * 2
    )
    return judgement.model_copy(
        update={
            "change": Change(
                estimate=as_change(measured.estimate),
                hodges_lehmann=as_change(measured.estimate),
                low=None if low is None else as_change(low),
                high=None if high is None else as_change(high),
                level=1 - thresholds.alpha,
            ),
            "pairs": n,
            "p_value": measured.p_value,
            "p_adjusted": adjusted,
        }
    )


def _decide(
    evidence: WallEvidence, measured: _WallEstimates, adjusted: float,
    thresholds: Thresholds, family: int,
) -> Judgement:  # fmt: skip
    arms, delta = evidence.arms, thresholds.change
    estimate = as_change(measured.estimate)
    noise = measured.noise
    excludes = measured.interval is not None and measured.interval.excludes(0)
    significant = excludes and abs(estimate) >= delta / 2
    inner = measured.equivalence
    equal = inner is not None and -delta < as_change(inner.low) and as_change(inner.high) < delta
    if (significant or equal) and noise is not None and noise.differs:
        # The same kernel differs from itself: neither a change nor its absence is
        # worth anything from this session.
        text = percent(as_change(noise.estimate))
        reason = f"A/A differs by {text}: the host is not steady, nothing can be said"
        return Judgement(verdict=Verdict.INCONCLUSIVE, reason=reason, cause=Cause.UNSTEADY)
    if significant and adjusted <= thresholds.alpha:
        return excludes_zero(estimate, arms.direction)
    if equal and inner is not None:
        return within(delta, inner.level)
    needed = statistics.pairs_needed(1 - thresholds.alpha)
    if len(measured.differences) < min(arms.blocks_planned, needed):
        return lost(arms, len(measured.differences), BLOCK)
    left = _undecided(measured, thresholds, family)
    return not_in_family(left, family) if significant else left


def _undecided(measured: _WallEstimates, thresholds: Thresholds, family: int) -> Judgement:
    """Inconclusive: what these blocks could have seen, and how many would decide."""
    n, level = len(measured.differences), 1 - thresholds.alpha
    needed = statistics.pairs_needed(level)
    detectable, decide = None, None
    if n < needed or measured.sd is None:
        decide = needed
    else:
        rule = wall_power.DecisionRule(thresholds.alpha / family, least=thresholds.change / 2)
        detectable = wall_power.detectable_effect(measured.sd, n, rule)
        decide = wall_power.blocks_to_decide(
            measured.estimate, measured.sd, change=thresholds.change, rule=rule,
            equivalence_alpha=thresholds.equivalence_alpha,
        )  # fmt: skip
        decide = None if decide is None else max(decide, needed, n + 1)
    return undecided(n, needed, level, detectable, decide, what=BLOCK, most=wall_power.MOST_BLOCKS)
