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
from reports import power, statistics, wall_statistics
from reports.statistics import Floats, Interval, as_change
from reports.verdict import Change, Evidence, Judgement, Verdict, lost, percent
from reports.wall_statistics import NoiseFloor

WITHHELD = (
    "withheld: the guests ran under TCG, whose time is that of a translator and not of this "
    "host; measure with mode = \"exact\", or on a host with KVM"
)  # fmt: skip


@dataclass(frozen=True)
class WallEvidence:
    """A metric's paired values, and the A/A arm's in the same blocks.

    ``again`` has one value for each of ``arms.base``.  ``real_time`` is false where
    guests ran under TCG.
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
class _Measured:
    differences: Floats
    estimate: float
    sd: float | None
    interval: Interval | None
    equivalence: Interval | None
    p_value: float
    noise: NoiseFloor | None


def judge_wall(family: Sequence[WallEvidence], thresholds: Thresholds) -> list[WallJudgement]:
    """Judge all primary metrics of a wall session together; same order as given.

    At an early look ``thresholds`` are those of the look (``experiment.design.at_look``).
    Holm's family is every metric asked for, also one whose runs failed.
    """
    measured = [_measure(evidence, thresholds) for evidence in family]
    p_values = [1.0 if one is None else one.p_value for one in measured]
    return [
        WallJudgement(
            _judge_one(evidence, one, adjusted, thresholds.of(evidence.arms.metric), len(family)),
            one.noise if one else None,
        )
        for evidence, one, adjusted in zip(family, measured, statistics.holm(p_values), strict=True)
    ]


def decides(verdicts: Iterable[Verdict | None]) -> bool:
    """Whether a session may stop early: no primary metric is left inconclusive."""
    return not {Verdict.INCONCLUSIVE, Verdict.FAILED} & set(verdicts)


def _measure(evidence: WallEvidence, thresholds: Thresholds) -> _Measured | None:
    arms = evidence.arms
    try:
        differences = statistics.log_ratios(arms.base, arms.patched)
        again = statistics.log_ratios(arms.base, evidence.again) if evidence.again else None
    except ValueError:
        return None
    level = 1 - 2 * thresholds.equivalence_alpha
    return _Measured(
        differences=differences,
        estimate=statistics.hodges_lehmann(differences),
        sd=statistics.standard_deviation(differences),
        interval=statistics.signed_rank_interval(differences, 1 - thresholds.alpha),
        equivalence=statistics.signed_rank_interval(differences, level),
        p_value=statistics.signed_rank_p(differences),
        noise=None if again is None else wall_statistics.noise_floor(again, thresholds.alpha),
    )


def _judge_one(
    evidence: WallEvidence, measured: _Measured | None, adjusted: float,
    thresholds: Thresholds, family: int,
) -> Judgement:  # fmt: skip
    arms, n = evidence.arms, len(evidence.arms.base)
    if n == 0 and arms.same_code:
        return Judgement(verdict=Verdict.NO_CHANGE, reason="same code")
    if n == 0:
        blame, reason = lost(arms, 0)
        return Judgement(verdict=Verdict.FAILED, reason=reason, blame=blame)
    if measured is None:
        reason = "a value is zero or no number: no ratio"
        return Judgement(verdict=Verdict.INCONCLUSIVE, pairs=n, reason=reason)
    withheld = arms.unusable or ("" if evidence.real_time else WITHHELD)
    if withheld:
        said = Judgement(verdict=Verdict.INCONCLUSIVE, reason=withheld)
    elif arms.same_code:
        said = Judgement(verdict=Verdict.NO_CHANGE, reason="same code")
    else:
        said = _decide(evidence, measured, adjusted, thresholds, family)
    low, high = (
        (measured.interval.low, measured.interval.high) if measured.interval else (None,) * 2
    )
    return said.model_copy(
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
    evidence: WallEvidence, measured: _Measured, adjusted: float,
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
        seen = percent(as_change(noise.estimate))
        reason = f"A/A differs by {seen}: the host is not steady, nothing can be said"
        return Judgement(verdict=Verdict.INCONCLUSIVE, reason=reason)
    if significant and adjusted <= thresholds.alpha:
        better = (estimate > 0) == (arms.direction == "higher")
        verdict = Verdict.IMPROVEMENT if better else Verdict.REGRESSION
        return Judgement(verdict=verdict, reason="the interval excludes zero")
    if equal and inner is not None:
        reason = f"with {100 * inner.level:.4g} % confidence the change is within ±{percent(delta)}"
        return Judgement(verdict=Verdict.NO_CHANGE, reason=reason)
    needed = statistics.pairs_needed(1 - thresholds.alpha)
    if len(measured.differences) < min(arms.blocks_planned, needed):
        blame, reason = lost(arms, len(measured.differences))
        return Judgement(verdict=Verdict.FAILED, reason=reason, blame=blame)
    said = _undecided(measured, thresholds, family)
    if significant:
        reason = f"does not hold over {family} primary metrics (Holm); {said.reason}"
        return said.model_copy(update={"reason": reason})
    return said


def _undecided(measured: _Measured, thresholds: Thresholds, family: int) -> Judgement:
    """Inconclusive: what these blocks could have seen, and how many would decide."""
    n = len(measured.differences)
    needed = statistics.pairs_needed(1 - thresholds.alpha)
    alpha = thresholds.alpha / family
    blocks = f"{n} block" if n == 1 else f"{n} blocks"
    if n < needed or measured.sd is None:
        level = 100 * (1 - thresholds.alpha)
        reason = f"{blocks}, and {level:g} % needs {needed}"
        return Judgement(verdict=Verdict.INCONCLUSIVE, reason=reason, blocks_to_decide=needed)
    rule = power.Rule(alpha, least=thresholds.change / 2)
    effect = power.detectable_effect(measured.sd, n, rule)
    detectable = None if effect is None else as_change(effect)
    decide = power.blocks_to_decide(
        measured.estimate, measured.sd, change=thresholds.change, rule=rule,
        equivalence_alpha=thresholds.equivalence_alpha,
    )  # fmt: skip
    if decide is not None:
        decide = max(decide, needed, n + 1)
    seen = "cannot see any change" if detectable is None else f"can see {percent(detectable)}"
    more = f"more than {power.MOST_BLOCKS}" if decide is None else f"about {decide}"
    return Judgement(
        verdict=Verdict.INCONCLUSIVE,
        reason=f"{blocks} {seen}; {more} blocks would decide",
        detectable=detectable,
        blocks_to_decide=decide,
    )
