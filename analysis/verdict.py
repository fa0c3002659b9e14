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

A session that adds seeds or blocks until it is decided is judged at each of its looks by that
look's share of the error rates (``analysis.power``).  In exact mode its t test and interval are
guarded against skewed differences, which few seeds do not show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from analysis import power, statistics
from analysis.statistics import Interval, NoiseFloor, as_change
from experiment.spec import Direction, Looks, Thresholds
from results.record import Failure, Record
from text import counted, percent

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
    UNSTEADY = "unsteady host"
    # And not these.
    NO_RATIO = "no ratio"
    UNUSABLE = "unusable"
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
OPEN = (Cause.UNDECIDED, Cause.FAMILY, Cause.TOO_FEW, Cause.UNSTEADY)


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


def change_of(
    estimate: float, interval: Interval | None, level: float, middle: float | None = None
) -> Change:
    """A change from log ratios; ``middle`` is Hodges and Lehmann's, where the estimate is not."""
    return Change(
        estimate=as_change(estimate),
        hodges_lehmann=as_change(estimate if middle is None else middle),
        low=as_change(interval.low) if interval else None,
        high=as_change(interval.high) if interval else None,
        level=level,
    )


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
    (``analysis.comparison``).  ``looks`` are those of its case so far, the last one now; None for
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

    @property
    def exactly_zero(self) -> bool:
        """Whether, in exact mode, every value is the same on both arms."""
        return self.again is None and bool(self.base) and self.base == self.patched

    @property
    def reached(self) -> Looks:
        """The looks so far; a single one where nothing else is said."""
        return self.looks or Looks((max(1, len(self.base)),), sequential=False)


@dataclass(frozen=True)
class _Estimates:
    """The numbers of one metric, log ratios; None where there are too few pairs or no ratio.

    ``level`` is that of the interval of signed ranks.
    """

    estimate: float
    sd: float | None
    interval: Interval | None
    equivalence: Interval | None
    p_value: float | None
    noise: NoiseFloor | None
    change: Change
    level: float


def _question(evidence: Evidence, thresholds: Thresholds, family: int = 1) -> power.Question:
    """By what a metric is judged: the same as what power is computed for."""
    own = thresholds.of(evidence.case, evidence.metric)
    in_wall = evidence.again is not None
    return power.Question(own.change, own.alpha, own.equivalence_alpha, family, in_wall)


def _measure(evidence: Evidence, question: power.Question) -> _Estimates | None:
    looks, again, noise = evidence.reached, evidence.again, None
    spent = power.change_level(looks, question.alpha)
    spent_on_none = power.equivalence_level(looks, question.equivalence_alpha)
    # In exact mode ranks have a veto alone, and spend nothing.
    alpha = question.alpha if again is None else spent
    equivalence = question.equivalence_alpha if again is None else spent_on_none
    try:
        if evidence.exactly_zero:
            ones = [1.0] * len(evidence.base)
            differences = statistics.log_ratios(ones, ones)
        else:
            differences = statistics.log_ratios(evidence.base, evidence.patched)
        if again:
            same = statistics.log_ratios(evidence.base, again)
            noise = statistics.noise_floor(same, alpha, question.change)
    except ValueError:
        return None
    interval = statistics.signed_rank_interval(differences, 1 - alpha)
    equal = statistics.signed_rank_interval(differences, 1 - 2 * equivalence)
    estimate = middle = statistics.hodges_lehmann(differences)
    if again is not None:
        p_value: float | None = statistics.signed_rank_p(differences)
    else:
        of_mean = statistics.mean_interval if looks.sequential else statistics.t_interval
        p_of_mean = statistics.mean_p if looks.sequential else statistics.t_p
        estimate = statistics.mean(differences)
        if interval:
            interval = statistics.wider(of_mean(differences, 1 - spent), interval)
        if equal:
            equal = statistics.wider(of_mean(differences, 1 - 2 * spent_on_none), equal)
        p_value = p_of_mean(differences)
    p_value = None if p_value is None else power.repeated_p(looks, p_value)
    change = change_of(estimate, interval, 1 - question.alpha, middle)
    sd = statistics.standard_deviation(differences)
    return _Estimates(estimate, sd, interval, equal, p_value, noise, change, 1 - alpha)


def _lost(evidence: Evidence) -> Judgement:
    """Failed: too few of the planned seeds or blocks are left; says whose fault."""
    reason = f"{len(evidence.base)} of {evidence.blocks_planned} {evidence.repeated}s left"
    blame, cause = "lab", Cause.LOST
    if evidence.dropped:
        reason += f", {len(evidence.dropped)} dropped ({evidence.dropped[0]})"
    if evidence.failures:
        blame = min((failure.blame for failure in evidence.failures), key=BLAME_ORDER.index)
        kinds = sorted({failure.kind for failure in evidence.failures if failure.blame == blame})
        runs = counted(len(evidence.failures), "run")
        reason += f", {runs} failed ({', '.join(kinds)}; blame: {blame})"
    elif evidence.dropped:
        blame, reason = "host", f"{reason}: a quieter host is needed"
    else:
        reason += ": the others were not recorded; finish the session with --resume"
    if blame == "host" and evidence.again is not None:
        # Another hour's blocks may be whole; an exact session makes such runs again.
        cause = Cause.UNSTEADY
    return Judgement(verdict=Verdict.FAILED, reason=reason, cause=cause, blame=blame)


def _undecided(evidence: Evidence, measured: _Estimates, question: power.Question) -> Judgement:
    """Inconclusive, or not judged: what so many seeds or blocks detect, and how many are needed."""
    n, what, sd = len(evidence.base), evidence.repeated, measured.sd
    needed = statistics.pairs_needed(measured.level)
    few, detectable, decide = n < needed, None, None
    if sd is not None:
        # Of a session that lost some and has one look: what is left of it.
        looks = evidence.reached
        looks = looks if looks.sequential else Looks((n,), sequential=False)
        detectable = None if few else power.detectable_effect(sd, looks, question)
        decide = power.seeds_to_decide(measured.estimate, sd, looks, question)
    if decide is not None:
        decide = max(decide, needed, n + 1)
    if few:
        reason = f"{counted(n, what)}, {needed} needed at {100 * measured.level:.4g} %"
    else:
        effect = "none" if detectable is None else percent(as_change(detectable))
        more = f"more than {power.MOST_SEEDS}" if decide is None else f"about {decide}"
        with_these = f"minimum detectable effect with {counted(n, what)}"
        reason = f"{with_these}: {effect}; {more} {what}s needed"
    return Judgement(
        verdict=Verdict.NOT_JUDGED if few else Verdict.INCONCLUSIVE,
        reason=reason,
        cause=Cause.TOO_FEW if few else Cause.UNDECIDED,
        detectable=None if detectable is None else as_change(detectable),
        blocks_to_decide=decide,
    )


def _decide(
    evidence: Evidence, measured: _Estimates, adjusted: float | None, question: power.Question
) -> Judgement:
    delta, estimate, inner = question.change, measured.change.estimate, measured.equivalence
    interval, noise = measured.interval, measured.noise
    significant = interval is not None and interval.excludes(0) and abs(estimate) >= delta / 2
    step = evidence.resolution if evidence.again is None else 0.0
    equal = (
        inner is not None
        and -delta < as_change(inner.low - step)
        and as_change(inner.high + step) < delta
    )
    if (significant or equal) and noise is not None and noise.differs:
        # The same kernel differs from itself: neither a change nor its absence is
        # worth anything from this session.
        text = percent(as_change(noise.estimate))
        reason = f"A/A differs by {text}: the host is not steady, nothing can be said"
        return Judgement(verdict=Verdict.INCONCLUSIVE, reason=reason, cause=Cause.UNSTEADY)
    if significant and adjusted is not None and adjusted <= question.alpha:
        better = (estimate > 0) == (evidence.direction == "higher")
        verdict = Verdict.IMPROVEMENT if better else Verdict.REGRESSION
        reason = "the interval excludes zero"
        return Judgement(verdict=verdict, reason=reason, cause=Cause.EXCLUDES_ZERO)
    if equal:
        level = 100 * (1 - 2 * question.equivalence_alpha)
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
    needed = statistics.pairs_needed(measured.level)
    if len(evidence.base) < min(evidence.blocks_planned, needed):
        return _lost(evidence)
    left = _undecided(evidence, measured, question)
    if not significant:
        return left
    # It would be a change if it were the only metric.
    reason = f"not significant among {question.family} primary metrics (Holm); {left.reason}"
    return left.model_copy(update={"cause": Cause.FAMILY, "reason": reason})


def _judge_one(
    evidence: Evidence,
    measured: _Estimates | None,
    adjusted: float | None,
    question: power.Question,
) -> Judgement:
    n, exactly = len(evidence.base), evidence.exactly_zero
    zero = ", change exactly 0" if exactly else ""
    same = Judgement(verdict=Verdict.NO_CHANGE, reason=f"same code{zero}", cause=Cause.SAME_CODE)
    if n == 0:
        return same if evidence.same_code else _lost(evidence)
    if measured is None:
        reason = "a value is zero or no number: no ratio"
        # Where the arms have the same there is none either, and nothing is lost.
        equal = evidence.base == evidence.patched
        lost = {} if equal else {"verdict": Verdict.FAILED, "blame": "workload"}
        judgement = Judgement(verdict=Verdict.INCONCLUSIVE, reason=reason, cause=Cause.NO_RATIO)
        return judgement.model_copy(update={"pairs": n, **lost})
    enough = statistics.pairs_needed(1 - 2 * question.equivalence_alpha)
    withheld = evidence.unusable or ("" if evidence.real_time else WITHHELD)
    if withheld:
        judgement = Judgement(verdict=Verdict.INCONCLUSIVE, reason=withheld, cause=Cause.UNUSABLE)
    elif evidence.same_code:
        judgement = same
    elif exactly and not evidence.resolution and n >= min(evidence.blocks_planned, enough):
        judgement = Judgement(
            verdict=Verdict.NO_CHANGE, reason="change exactly 0", cause=Cause.EXACTLY_ZERO
        )
    else:
        judgement = _decide(evidence, measured, adjusted, question)
    update = {"p_value": measured.p_value, "p_adjusted": adjusted}
    return judgement.model_copy(update={"change": measured.change, "pairs": n, **update})


def judge_primary(family: Sequence[Evidence], thresholds: Thresholds) -> list[Judgement]:
    """Judge all primary metrics of an experiment together; same order as given.

    Holm's family is every metric asked for, also one whose runs failed: losing
    runs must not make the others easier to call.
    """
    questions = [_question(evidence, thresholds, len(family)) for evidence in family]
    measured = [_measure(*each) for each in zip(family, questions, strict=True)]
    p_values = [None if m is None else m.p_value for m in measured]
    adjusted = statistics.holm([1.0 if p is None else p for p in p_values])
    return [
        _judge_one(evidence, estimates, None if p is None else corrected, question)
        for evidence, estimates, p, corrected, question in zip(
            family, measured, p_values, adjusted, questions, strict=True
        )
    ]


def judge_secondary(metrics: Sequence[Evidence], thresholds: Thresholds) -> list[Judgement]:
    """Describe the secondary metrics: numbers and what differs, no verdict."""
    measured = [_measure(each, _question(each, thresholds)) for each in metrics]
    p_values = [m.p_value for m in measured if m is not None and m.p_value is not None]
    values = iter(statistics.benjamini_hochberg(p_values))
    judgements = []
    for evidence, measurement in zip(metrics, measured, strict=True):
        p_value = measurement.p_value if measurement else None
        q = None if p_value is None else next(values)
        step, interval = evidence.resolution, measurement.interval if measurement else None
        beyond = not step or (interval and (interval.low > step or interval.high < -step))
        judgements.append(
            Judgement(
                verdict=None,
                reason=evidence.unusable or ("" if measurement else "no pairs with a ratio"),
                change=measurement.change if measurement else None,
                pairs=len(evidence.base),
                p_value=p_value,
                p_adjusted=q,
                differs=bool(beyond and q is not None and q <= FALSE_DISCOVERY_RATE)
                and not evidence.unusable,
            )
        )
    return judgements
