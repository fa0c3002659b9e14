"""The verdict rules of docs/method.md: pure, and allowed to say "cannot tell".

Each primary metric of the experiment is judged on its paired log ratios.  A
change is called improvement or regression when the interval excludes zero, the
estimate is at least half the threshold, and the t test survives Holm's
correction over all primary metrics.  Holm runs on the t test because the
signed-rank p value of eight pairs cannot go below 0.0078: corrected for two
metrics it could never say anything.  The rank test keeps its veto through the
interval.

In wall mode the estimate, the interval and the p value are those of the signed ranks alone: noise
of real time has tails and outliers, which the mean follows and ranks do not.  Nothing is called
where guests did not run on the host's own CPUs, and nothing where the A/A arm, the same kernel
under another name, differs as well.

A session that adds seeds until it is decided is judged at each of its looks by that look's
share of the error rates (``analysis.looks``); its t test and interval are guarded against skewed
differences, which few seeds do not show.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from analysis import looks as rates
from analysis import power, statistics, wall_power
from analysis.statistics import Interval, NoiseFloor, as_change
from experiment.spec import Direction, Looks, Thresholds
from results.record import Failure, Record
from text import percent

FALSE_DISCOVERY_RATE = 0.10
# A panic among many runs is the news; a full disk is not the series' fault.
BLAME_ORDER = ("series", "workload", "host", "lab", "user")


class Verdict(StrEnum):
    """What is said about one primary metric."""

    IMPROVEMENT = "improvement"
    REGRESSION = "regression"
    NO_CHANGE = "no change"
    INCONCLUSIVE = "inconclusive"
    # Of fewer seeds or blocks than any verdict needs.
    NOT_JUDGED = "not judged"
    # Runs are still to be made.
    NOT_FINISHED = "not finished"
    FAILED = "failed"
    NOT_TESTED = "not tested"
    UNEXPLAINED = "unexplained"


class Cause(StrEnum):
    """What a verdict follows from: one word for a program, as ``reason`` is for people."""

    EXCLUDES_ZERO = "interval excludes zero"
    WITHIN_THRESHOLD = "within threshold"
    SAME_CODE = "same code"
    EXACTLY_ZERO = "exactly zero"
    # More seeds or blocks may decide these.
    UNDECIDED = "undecided"
    FAMILY = "not significant in family"
    TOO_FEW = "too few"
    # And not these.
    NO_RATIO = "no ratio"
    UNUSABLE = "unusable"
    UNSTEADY = "unsteady host"
    LOST = "runs lost"
    UNFINISHED = "unfinished"
    INEXACT = "not exact"
    UNCHECKED = "correctness"
    # Nothing that differs ran.
    NOT_EXECUTED = "not executed"
    # More than what differs can have made.
    UNEXPLAINED = "unexplained"
    # Nothing of the series is in the kernel.
    NOT_BUILT = "not built"


WITHHELD = (
    "withheld: the guests had no real CPUs, so their time is that of QEMU's translator and not "
    'of this host; measure with mode = "exact", or on a host with KVM'
)
# What a verdict's reason ends with while correctness may take it back.
PENDING = "checks pending"
# The verdicts of which there is none, for what was not or not soundly measured.
MISSING = (Verdict.FAILED, Verdict.NOT_FINISHED)
# The verdicts that leave it open.
UNDECIDED = (Verdict.INCONCLUSIVE, Verdict.NOT_JUDGED, Verdict.UNEXPLAINED)
# The verdicts that say that something changed.
CALLED = (Verdict.IMPROVEMENT, Verdict.REGRESSION)
# The causes that more pairs may do away with.
OPEN = (Cause.UNDECIDED, Cause.FAMILY, Cause.TOO_FEW)


class Change(Record):
    """A change with its interval; fractions of the base value, not percent.

    With fewer pairs than a rank interval of this level needs there is none: ``low`` and ``high``
    are None.
    """

    estimate: float
    hodges_lehmann: float
    low: float | None = None
    high: float | None = None
    level: float


class Judgement(Record):
    """What is said about one metric of one case, and why.

    ``verdict`` is None for a secondary metric: it is shown and never gates;
    ``differs`` is true where it survives Benjamini-Hochberg at 10 %.
    ``cause`` and the numbers are what ``reason`` puts into a sentence.  ``detectable`` is a
    fraction; ``blocks_to_decide`` counts seeds or blocks in all; ``limit`` is the fraction that a
    verdict of no change says the change is within, None where it is exact.
    """

    verdict: Verdict | None
    reason: str
    cause: Cause | None = None
    blame: str = ""
    change: Change | None = None
    pairs: int = 0
    p_value: float | None = None
    p_adjusted: float | None = None
    differs: bool = False
    limit: float | None = None
    detectable: float | None = None
    blocks_to_decide: int | None = None


@dataclass(frozen=True)
class Evidence:
    """The paired values of one metric of one case, and what got lost on the way.

    ``base`` and ``patched`` have one value a complete block, in the same order.
    ``unusable`` says why the numbers are no evidence although they exist; ``dropped``
    are the reasons for which blocks were left out for the host's sake.  ``case`` and ``metric``
    are the names by which the thresholds may hold a change of its own.  ``resolution`` is the
    largest error of a log ratio that is no chance and does not average out
    (``analysis.blocks``).  ``looks`` are those of its case so far, the last one now; None for
    a single one.  ``again`` are the A/A arm's values in the same blocks, none without that arm, and
    None in exact mode; ``real_time`` is false where guests ran under TCG, or on a KVM that is
    itself emulated.
    """

    direction: Direction
    base: tuple[float, ...]
    patched: tuple[float, ...]
    blocks_planned: int
    failures: tuple[Failure, ...] = ()
    same_code: bool = False
    unusable: str = ""
    dropped: tuple[str, ...] = ()
    case: str = ""
    metric: str = ""
    resolution: float = 0.0
    looks: Looks | None = None
    again: tuple[float, ...] | None = None
    real_time: bool = True

    @property
    def repeated(self) -> str:
        """What is repeated: seeds, and in wall mode blocks."""
        return "seed" if self.again is None else "block"


@dataclass(frozen=True)
class _Estimates:
    """The numbers of one metric; None where there are too few pairs or no ratio."""

    n: int
    estimate: float
    hodges_lehmann: float
    sd: float | None
    interval: Interval | None
    rank_interval: Interval | None
    equivalence: Interval | None
    p_value: float | None
    exactly_zero: bool = False
    noise: NoiseFloor | None = None


@dataclass(frozen=True)
class _Rule:
    """By what a metric is judged: thresholds, the looks there were, and how many share alpha."""

    thresholds: Thresholds
    looks: Looks
    family: int = 1

    @property
    def question(self) -> power.Question:
        """The same as what power is computed for."""
        thresholds = self.thresholds
        return power.Question(
            thresholds.change, thresholds.alpha, thresholds.equivalence_alpha, self.family
        )


def _measure(evidence: Evidence, rule: _Rule) -> _Estimates | None:
    exactly_zero = bool(evidence.base) and evidence.base == evidence.patched
    again = None
    try:
        if exactly_zero and evidence.again is None:
            ones = [1.0] * len(evidence.base)
            differences = statistics.log_ratios(ones, ones)
        else:
            differences = statistics.log_ratios(evidence.base, evidence.patched)
        if evidence.again:
            again = statistics.log_ratios(evidence.base, evidence.again)
    except ValueError:
        return None
    thresholds, looks = rule.thresholds, rule.looks
    outer, inner = 1 - thresholds.alpha, 1 - 2 * thresholds.equivalence_alpha
    rank = statistics.signed_rank_interval(differences, outer)
    equal = statistics.signed_rank_interval(differences, inner)
    middle = statistics.hodges_lehmann(differences)
    if evidence.again is not None:
        return _Estimates(
            n=len(differences),
            estimate=middle,
            hodges_lehmann=middle,
            sd=statistics.standard_deviation(differences),
            interval=rank,
            rank_interval=rank,
            equivalence=equal,
            p_value=statistics.signed_rank_p(differences),
            noise=None if again is None else statistics.noise_floor(again, thresholds.alpha),
        )
    of_mean = statistics.mean_interval if looks.sequential else statistics.t_interval
    p_of_mean = statistics.mean_p if looks.sequential else statistics.t_p
    interval = of_mean(differences, 1 - rates.change_level(looks, thresholds.alpha))
    level = 1 - 2 * rates.equivalence_level(looks, thresholds.equivalence_alpha)
    p_value = p_of_mean(differences)
    return _Estimates(
        n=len(differences),
        estimate=statistics.mean(differences),
        hodges_lehmann=middle,
        sd=statistics.standard_deviation(differences),
        interval=statistics.wider(interval, rank),
        rank_interval=rank,
        equivalence=statistics.wider(of_mean(differences, level), equal) if equal else None,
        p_value=None if p_value is None else rates.repeated_p(looks, p_value),
        exactly_zero=exactly_zero,
    )


def _change(measured: _Estimates, thresholds: Thresholds) -> Change:
    interval = measured.interval if measured.rank_interval else None
    return Change(
        estimate=as_change(measured.estimate),
        hodges_lehmann=as_change(measured.hodges_lehmann),
        low=as_change(interval.low) if interval else None,
        high=as_change(interval.high) if interval else None,
        level=1 - thresholds.alpha,
    )


def blamed(failures: Iterable[Failure]) -> str:
    """The gravest blame among failures, in the order series, workload, host, lab, user."""
    blames = {failure.blame for failure in failures}
    return next((blame for blame in BLAME_ORDER if blame in blames), "")


def count_text(n: int, what: str) -> str:
    """``1 seed``, ``8 seeds``."""
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def lost(evidence: Evidence, n: int) -> Judgement:
    """Failed: too few of the planned seeds or blocks are left; says whose fault."""
    reason = f"{n} of {evidence.blocks_planned} {evidence.repeated}s left"
    blame = "lab"
    if evidence.dropped:
        reason += f", {len(evidence.dropped)} dropped ({evidence.dropped[0]})"
    if evidence.failures:
        blame = blamed(evidence.failures)
        kinds = sorted({failure.kind for failure in evidence.failures if failure.blame == blame})
        runs = count_text(len(evidence.failures), "run")
        reason += f", {runs} failed ({', '.join(kinds)}; blame: {blame})"
    elif evidence.dropped:
        blame, reason = "host", f"{reason}: a quieter host is needed"
    else:
        reason += ": the others were not recorded; finish the session with --resume"
    return Judgement(verdict=Verdict.FAILED, reason=reason, cause=Cause.LOST, blame=blame)


def _undecided(evidence: Evidence, measured: _Estimates, rule: _Rule) -> Judgement:
    """Inconclusive, or not judged: what so many seeds or blocks detect, and how many are needed."""
    thresholds, n, what = rule.thresholds, measured.n, evidence.repeated
    level = 1 - thresholds.alpha
    needed = statistics.pairs_needed(level)
    detectable = decide = None
    if evidence.again is not None:
        most = wall_power.MOST_BLOCKS
        if n < needed or measured.sd is None:
            decide = needed
        else:
            ranks = wall_power.DecisionRule(
                thresholds.alpha / rule.family, least=thresholds.change / 2
            )
            detectable = wall_power.detectable_effect(measured.sd, n, ranks)
            decide = wall_power.blocks_to_decide(
                measured.estimate, measured.sd, change=thresholds.change, rule=ranks,
                equivalence_alpha=thresholds.equivalence_alpha,
            )  # fmt: skip
    else:
        most = power.MOST_SEEDS
        if measured.sd is not None:
            # Of a session that lost seeds and has one look: what is left of it.
            looks = rule.looks if rule.looks.sequential else Looks((n,), sequential=False)
            if n >= needed:
                detectable = power.detectable_effect(measured.sd, looks, rule.question)
            decide = power.seeds_to_decide(measured.estimate, measured.sd, looks, rule.question)
    if decide is not None and (evidence.again is None or n >= needed):
        decide = max(decide, needed, n + 1)
    if n < needed:
        reason = f"{count_text(n, what)}, {needed} needed at {100 * level:g} %"
        verdict, cause = Verdict.NOT_JUDGED, Cause.TOO_FEW
    else:
        effect = "none" if detectable is None else percent(as_change(detectable))
        more = f"more than {most}" if decide is None else f"about {decide}"
        with_these = f"minimum detectable effect with {count_text(n, what)}"
        reason = f"{with_these}: {effect}; {more} {what}s needed"
        verdict, cause = Verdict.INCONCLUSIVE, Cause.UNDECIDED
    return Judgement(
        verdict=verdict,
        reason=reason,
        cause=cause,
        detectable=None if detectable is None else as_change(detectable),
        blocks_to_decide=decide,
    )


def _decide(
    evidence: Evidence, measured: _Estimates, adjusted: float | None, rule: _Rule
) -> Judgement:
    thresholds = rule.thresholds
    delta = thresholds.change
    estimate = as_change(measured.estimate)
    significant = (
        measured.rank_interval is not None
        and measured.interval is not None
        and measured.interval.excludes(0)
        and abs(estimate) >= delta / 2
    )
    inner = measured.equivalence
    step = evidence.resolution if evidence.again is None else 0.0
    equal = (
        inner is not None
        and -delta < as_change(inner.low - step)
        and as_change(inner.high + step) < delta
    )
    noise = measured.noise
    if (significant or equal) and noise is not None and noise.differs:
        # The same kernel differs from itself: neither a change nor its absence is
        # worth anything from this session.
        text = percent(as_change(noise.estimate))
        reason = f"A/A differs by {text}: the host is not steady, nothing can be said"
        return Judgement(verdict=Verdict.INCONCLUSIVE, reason=reason, cause=Cause.UNSTEADY)
    if significant and adjusted is not None and adjusted <= thresholds.alpha:
        better = (estimate > 0) == (evidence.direction == "higher")
        return Judgement(
            verdict=Verdict.IMPROVEMENT if better else Verdict.REGRESSION,
            reason="the interval excludes zero",
            cause=Cause.EXCLUDES_ZERO,
        )
    if equal:
        level = 100 * (1 - 2 * thresholds.equivalence_alpha)
        return Judgement(
            verdict=Verdict.NO_CHANGE,
            reason=f"with {level:.4g} % confidence the change is within ±{percent(delta)}",
            cause=Cause.WITHIN_THRESHOLD,
            limit=delta,
        )
    if inner and as_change(step) >= delta:
        # The metric is known in steps that hide a change that matters.
        return Judgement(
            verdict=Verdict.INCONCLUSIVE,
            reason=f"the time is known to 1 ms, {percent(as_change(step))} of the shortest run: "
            f"too coarse for ±{percent(delta)}; a longer run is needed (times, or a larger guest)",
            cause=Cause.UNUSABLE,
        )
    needed = statistics.pairs_needed(1 - thresholds.alpha)
    if measured.n < min(evidence.blocks_planned, needed):
        return lost(evidence, measured.n)
    left = _undecided(evidence, measured, rule)
    if not significant:
        return left
    # It would be a change if it were the only metric.
    reason = f"not significant among {rule.family} primary metrics (Holm); {left.reason}"
    return left.model_copy(update={"cause": Cause.FAMILY, "reason": reason})


def _judge_one(
    evidence: Evidence, measured: _Estimates | None, adjusted: float | None, rule: _Rule
) -> Judgement:
    n = len(evidence.base)
    same = Judgement(verdict=Verdict.NO_CHANGE, reason="same code", cause=Cause.SAME_CODE)
    if n == 0:
        return same if evidence.same_code else lost(evidence, 0)
    if measured is None:
        return Judgement(
            verdict=Verdict.INCONCLUSIVE,
            pairs=n,
            reason="a value is zero or no number: no ratio",
            cause=Cause.NO_RATIO,
        )
    enough = statistics.pairs_needed(1 - 2 * rule.thresholds.equivalence_alpha)
    withheld = evidence.unusable or ("" if evidence.real_time else WITHHELD)
    all_zero = measured.exactly_zero and not evidence.resolution
    if withheld:
        judgement = Judgement(verdict=Verdict.INCONCLUSIVE, reason=withheld, cause=Cause.UNUSABLE)
    elif evidence.same_code:
        exactly = ", change exactly 0" if measured.exactly_zero else ""
        judgement = same.model_copy(update={"reason": f"same code{exactly}"})
    elif all_zero and n >= min(evidence.blocks_planned, enough):
        judgement = Judgement(
            verdict=Verdict.NO_CHANGE, reason="change exactly 0", cause=Cause.EXACTLY_ZERO
        )
    else:
        judgement = _decide(evidence, measured, adjusted, rule)
    return judgement.model_copy(
        update={
            "change": _change(measured, rule.thresholds),
            "pairs": n,
            "p_value": measured.p_value,
            "p_adjusted": adjusted,
        }
    )


def judge_primary(family: Sequence[Evidence], thresholds: Thresholds) -> list[Judgement]:
    """Judge all primary metrics of an experiment together; same order as given.

    Holm's family is every metric asked for, also one whose runs failed: losing
    runs must not make the others easier to call.  At an early look of wall mode ``thresholds`` are
    those of the look (``experiment.design.at_look``).
    """
    rules = [
        _Rule(thresholds.of(evidence.case, evidence.metric), _looks(evidence), len(family))
        for evidence in family
    ]
    measured = [_measure(evidence, rule) for evidence, rule in zip(family, rules, strict=True)]
    p_values = [1.0 if m is None or m.p_value is None else m.p_value for m in measured]
    judged = []
    for evidence, estimates, p, rule in zip(
        family, measured, statistics.holm(p_values), rules, strict=True
    ):
        known = estimates is not None and estimates.p_value is not None
        judged.append(_judge_one(evidence, estimates, p if known else None, rule))
    return judged


def decides(verdicts: Iterable[Verdict | None]) -> bool:
    """Whether a wall session may stop early: no primary metric is left inconclusive."""
    return not {*UNDECIDED, *MISSING} & set(verdicts)


def _looks(evidence: Evidence) -> Looks:
    return evidence.looks or Looks((max(1, len(evidence.base)),), sequential=False)


def judge_secondary(metrics: Sequence[Evidence], thresholds: Thresholds) -> list[Judgement]:
    """Describe the secondary metrics: numbers and what differs, no verdict."""
    measured = [_measure(each, _Rule(thresholds, _looks(each))) for each in metrics]
    p_values = [m.p_value for m in measured if m is not None and m.p_value is not None]
    values = iter(statistics.benjamini_hochberg(p_values))
    judgements = []
    for evidence, measurement in zip(metrics, measured, strict=True):
        q = next(values) if measurement is not None and measurement.p_value is not None else None
        judgements.append(
            Judgement(
                verdict=None,
                reason=evidence.unusable or ("" if measurement else "no pairs with a ratio"),
                change=_change(measurement, thresholds) if measurement else None,
                pairs=len(evidence.base),
                p_value=measurement.p_value if measurement else None,
                p_adjusted=q,
                differs=q is not None and q <= FALSE_DISCOVERY_RATE and not evidence.unusable,
            )
        )
    return judgements
