"""The verdict rules of docs/method.md: pure, and allowed to say "cannot tell".

Each primary metric of the experiment is judged on its paired log ratios.  A
change is called improvement or regression when the interval excludes zero, the
estimate is at least half the threshold, and the t test survives Holm's
correction over all primary metrics.  Holm runs on the t test because the
signed-rank p value of eight pairs cannot go below 0.0078: corrected for two
metrics it could never say anything.  The rank test keeps its veto through the
interval.

A session that adds seeds until it is decided is judged at each of its looks by that look's
share of the error rates (``reports.looks``); its t test and interval are guarded against skewed
differences, which few seeds do not show.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from experiment.spec import Direction, Looks, Thresholds
from reports import looks as rates
from reports import power, statistics
from reports.statistics import Interval, as_change
from results.record import Failure, Record

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


# What exact mode repeats.
SEED = "seed"
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
    (``reports.resolution``).  ``looks`` are those of its case so far, the last one now; None for
    a single one.
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
    exactly_zero: bool


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
    if evidence.base and evidence.base == evidence.patched:
        differences = statistics.log_ratios([1.0] * len(evidence.base), [1.0] * len(evidence.base))
    else:
        try:
            differences = statistics.log_ratios(evidence.base, evidence.patched)
        except ValueError:
            return None
    thresholds, looks = rule.thresholds, rule.looks
    outer, inner = 1 - thresholds.alpha, 1 - 2 * thresholds.equivalence_alpha
    of_mean = statistics.mean_interval if looks.sequential else statistics.t_interval
    p_of_mean = statistics.mean_p if looks.sequential else statistics.t_p
    rank = statistics.signed_rank_interval(differences, outer)
    equal = statistics.signed_rank_interval(differences, inner)
    interval = of_mean(differences, 1 - rates.change_level(looks, thresholds.alpha))
    level = 1 - 2 * rates.equivalence_level(looks, thresholds.equivalence_alpha)
    p_value = p_of_mean(differences)
    return _Estimates(
        n=len(differences),
        estimate=statistics.mean(differences),
        hodges_lehmann=statistics.hodges_lehmann(differences),
        sd=statistics.standard_deviation(differences),
        interval=statistics.wider(interval, rank),
        rank_interval=rank,
        equivalence=statistics.wider(of_mean(differences, level), equal) if equal else None,
        p_value=None if p_value is None else rates.repeated_p(looks, p_value),
        exactly_zero=evidence.base == evidence.patched,
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


def lost(evidence: Evidence, n: int, what: str) -> Judgement:
    """Failed: too few of the planned seeds or blocks are left; says whose fault."""
    blame, reason = _lost(evidence, n, what)
    return Judgement(verdict=Verdict.FAILED, reason=reason, cause=Cause.LOST, blame=blame)


def _lost(evidence: Evidence, n: int, what: str) -> tuple[str, str]:
    left = f"{n} of {evidence.blocks_planned} {what}s left"
    if evidence.dropped:
        many = f"{len(evidence.dropped)} dropped ({evidence.dropped[0]})"
        left = f"{left}, {many}"
        if not evidence.failures:
            return "host", f"{left}: a quieter host is needed"
    if not evidence.failures:
        return "lab", f"{left}: the others were not recorded; finish the session with --resume"
    blame = blamed(evidence.failures)
    kinds = sorted({failure.kind for failure in evidence.failures if failure.blame == blame})
    count = len(evidence.failures)
    runs = "run" if count == 1 else "runs"
    return blame, f"{left}, {count} {runs} failed ({', '.join(kinds)}; blame: {blame})"


def percent(fraction: float) -> str:
    """A fraction as people read it, two decimals."""
    return f"{100 * fraction:.2f} %"


def undecided(
    n: int, needed: int, level: float, detectable: float | None, decide: int | None, *,
    what: str, most: int,
) -> Judgement:  # fmt: skip
    """Inconclusive, or not judged: what ``n`` seeds or blocks detect, and how many are needed.

    ``needed`` are the fewest of a verdict at this level; ``detectable`` is a log ratio.
    """
    if n < needed:
        reason = f"{count_text(n, what)}, {needed} needed at {100 * level:g} %"
        verdict, cause = Verdict.NOT_JUDGED, Cause.TOO_FEW
    else:
        with_these = f"minimum detectable effect with {count_text(n, what)}"
        effect = "none" if detectable is None else percent(as_change(detectable))
        more = f"more than {most}" if decide is None else f"about {decide}"
        reason = f"{with_these}: {effect}; {more} {what}s needed"
        verdict, cause = Verdict.INCONCLUSIVE, Cause.UNDECIDED
    return Judgement(
        verdict=verdict,
        reason=reason,
        cause=cause,
        detectable=None if detectable is None else as_change(detectable),
        blocks_to_decide=decide,
    )


def not_in_family(judgement: Judgement, family: int) -> Judgement:
    """An inconclusive judgement that would be a change if it were the only metric."""
    return judgement.model_copy(
        update={
            "cause": Cause.FAMILY,
            "reason": f"not significant among {family} primary metrics (Holm); {judgement.reason}",
        }
    )


def within(change: float, level: float) -> Judgement:
    """No change: an interval of this level lies within the threshold."""
    reason = f"with {100 * level:.4g} % confidence the change is within ±{percent(change)}"
    return Judgement(
        verdict=Verdict.NO_CHANGE, reason=reason, cause=Cause.WITHIN_THRESHOLD, limit=change
    )


def excludes_zero(estimate: float, direction: Direction) -> Judgement:
    """Improvement or regression, by the metric's direction."""
    better = (estimate > 0) == (direction == "higher")
    verdict = Verdict.IMPROVEMENT if better else Verdict.REGRESSION
    return Judgement(
        verdict=verdict, reason="the interval excludes zero", cause=Cause.EXCLUDES_ZERO
    )


def _undecided(measured: _Estimates, rule: _Rule) -> Judgement:
    level = 1 - rule.thresholds.alpha
    needed = statistics.pairs_needed(level)
    detectable = decide = None
    if measured.sd is not None:
        # Of a session that lost seeds and has one look: what is left of it.
        looks = rule.looks if rule.looks.sequential else Looks((measured.n,), sequential=False)
        if measured.n >= needed:
            detectable = power.detectable_effect(measured.sd, looks, rule.question)
        decide = power.seeds_to_decide(measured.estimate, measured.sd, looks, rule.question)
    if decide is not None:
        decide = max(decide, needed, measured.n + 1)
    return undecided(
        measured.n, needed, level, detectable, decide, what=SEED, most=power.MOST_SEEDS
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
    if significant and adjusted is not None and adjusted <= thresholds.alpha:
        return excludes_zero(estimate, evidence.direction)
    inner, step = measured.equivalence, evidence.resolution
    if inner and -delta < as_change(inner.low - step) and as_change(inner.high + step) < delta:
        return within(delta, 1 - 2 * thresholds.equivalence_alpha)
    if inner and as_change(step) >= delta:
        return too_coarse(step, delta)
    needed = statistics.pairs_needed(1 - thresholds.alpha)
    if measured.n < min(evidence.blocks_planned, needed):
        return lost(evidence, measured.n, SEED)
    left = _undecided(measured, rule)
    return not_in_family(left, rule.family) if significant else left


def _judge_one(
    evidence: Evidence, measured: _Estimates | None, adjusted: float | None, rule: _Rule
) -> Judgement:
    n = len(evidence.base)
    enough = statistics.pairs_needed(1 - 2 * rule.thresholds.equivalence_alpha)
    if measured is None and n == 0 and evidence.same_code:
        return Judgement(verdict=Verdict.NO_CHANGE, reason="same code", cause=Cause.SAME_CODE)
    if measured is None and n == 0:
        return lost(evidence, 0, SEED)
    if measured is None:
        return no_ratio(n)
    if evidence.unusable:
        judgement = Judgement(
            verdict=Verdict.INCONCLUSIVE, reason=evidence.unusable, cause=Cause.UNUSABLE
        )
    elif evidence.same_code:
        exactly = ", change exactly 0" if measured.exactly_zero else ""
        judgement = Judgement(
            verdict=Verdict.NO_CHANGE, reason=f"same code{exactly}", cause=Cause.SAME_CODE
        )
    elif (
        measured.exactly_zero
        and not evidence.resolution
        and n >= min(evidence.blocks_planned, enough)
    ):
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


def too_coarse(step: float, change: float) -> Judgement:
    """Inconclusive: the metric is known in steps, a log ratio, that hide a change that matters."""
    return Judgement(
        verdict=Verdict.INCONCLUSIVE,
        reason=f"the time is known to 1 ms, {percent(as_change(step))} of the shortest run: too "
        f"coarse for ±{percent(change)}; a longer run is needed (times, or a larger guest)",
        cause=Cause.UNUSABLE,
    )


def no_ratio(n: int) -> Judgement:
    """Inconclusive: of some of the ``n`` pairs there is no ratio."""
    return Judgement(
        verdict=Verdict.INCONCLUSIVE,
        pairs=n,
        reason="a value is zero or no number: no ratio",
        cause=Cause.NO_RATIO,
    )


def judge_primary(family: Sequence[Evidence], thresholds: Thresholds) -> list[Judgement]:
    """Judge all primary metrics of an experiment together; same order as given.

    Holm's family is every metric asked for, also one whose runs failed: losing
    runs must not make the others easier to call.
    """
    rules = [
        _Rule(
            thresholds.of(evidence.case, evidence.metric),
            _looks(evidence),
            len(family),
        )
        for evidence in family
    ]
    measured = [_measure(evidence, rule) for evidence, rule in zip(family, rules, strict=True)]
    missing = sum(m is None or m.p_value is None for m in measured)
    p_values = [m.p_value for m in measured if m is not None and m.p_value is not None]
    values = iter(statistics.holm([*p_values, *([1.0] * missing)]))
    adjusted = [next(values) if m is not None and m.p_value is not None else None for m in measured]
    return [
        _judge_one(evidence, measurement, p, rule)
        for evidence, measurement, p, rule in zip(family, measured, adjusted, rules, strict=True)
    ]


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
