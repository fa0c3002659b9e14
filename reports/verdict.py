"""The verdict rules of docs/method.md: pure, and allowed to say "cannot tell".

Each primary metric of the experiment is judged on its paired log ratios.  A
change is called improvement or regression when the interval excludes zero, the
estimate is at least half the threshold, and the t test survives Holm's
correction over all primary metrics.  Holm runs on the t test because the
signed-rank p value of eight pairs cannot go below 0.0078: corrected for two
metrics it could never say anything.  The rank test keeps its veto through the
interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from experiment.spec import Direction, Thresholds
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
    FAILED = "failed"


# What a verdict's reason ends with while correctness may take it back.
PENDING = "checks pending"
# The verdicts that say that something changed.
CALLED = (Verdict.IMPROVEMENT, Verdict.REGRESSION)


class Change(Record):
    """A change with its interval; fractions of the base value, not percent.

    With fewer pairs than a rank interval needs, ``low`` and ``high`` are those of the
    t interval; a single pair has none.
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
    ``detectable`` is a fraction; ``blocks_to_decide`` counts blocks in all.
    """

    verdict: Verdict | None
    reason: str
    blame: str = ""
    change: Change | None = None
    pairs: int = 0
    p_value: float | None = None
    p_adjusted: float | None = None
    differs: bool = False
    detectable: float | None = None
    blocks_to_decide: int | None = None


@dataclass(frozen=True)
class Evidence:
    """The paired values of one metric of one case, and what got lost on the way.

    ``base`` and ``patched`` have one value a complete block, in the same order.
    ``unusable`` says why the numbers are no evidence although they exist; ``dropped``
    are the reasons for which blocks were left out for the host's sake.  ``metric`` is the
    name by which the thresholds may hold a change of its own.
    """

    direction: Direction
    base: tuple[float, ...]
    patched: tuple[float, ...]
    blocks_planned: int
    failures: tuple[Failure, ...] = ()
    same_code: bool = False
    unusable: str = ""
    dropped: tuple[str, ...] = ()
    metric: str = ""


@dataclass(frozen=True)
class _Measured:
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


def _measure(evidence: Evidence, thresholds: Thresholds) -> _Measured | None:
    if evidence.base and evidence.base == evidence.patched:
        differences = statistics.log_ratios([1.0] * len(evidence.base), [1.0] * len(evidence.base))
    else:
        try:
            differences = statistics.log_ratios(evidence.base, evidence.patched)
        except ValueError:
            return None
    level, equivalence = 1 - thresholds.alpha, 1 - 2 * thresholds.equivalence_alpha
    rank = statistics.signed_rank_interval(differences, level)
    inner = statistics.signed_rank_interval(differences, equivalence)
    return _Measured(
        n=len(differences),
        estimate=statistics.mean(differences),
        hodges_lehmann=statistics.hodges_lehmann(differences),
        sd=statistics.standard_deviation(differences),
        interval=statistics.wider(rank, statistics.t_interval(differences, level)),
        rank_interval=rank,
        equivalence=(
            statistics.wider(inner, statistics.t_interval(differences, equivalence))
            if inner
            else None
        ),
        p_value=statistics.t_p(differences),
        exactly_zero=evidence.base == evidence.patched,
    )


def _change(measured: _Measured, thresholds: Thresholds) -> Change:
    interval = measured.interval
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


def lost(evidence: Evidence, n: int) -> tuple[str, str]:
    """Blame and reason when too few of the planned blocks are left."""
    left = f"{n} of {evidence.blocks_planned} blocks left"
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


def _undecided(measured: _Measured, thresholds: Thresholds, family: int) -> Judgement:
    """Inconclusive: what these blocks could have seen, and how many would decide."""
    level = 1 - thresholds.alpha
    rule = power.Rule(
        thresholds.alpha, t_alpha=thresholds.alpha / family, least=thresholds.change / 2
    )
    needed = statistics.pairs_needed(level)
    detectable = decide = None
    if measured.sd is not None:
        effect = power.detectable_effect(measured.sd, measured.n, rule)
        detectable = None if effect is None else as_change(effect)
        decide = power.blocks_to_decide(
            measured.estimate,
            measured.sd,
            change=thresholds.change,
            rule=rule,
            equivalence_alpha=thresholds.equivalence_alpha,
        )
    more = f"more than {power.MOST_BLOCKS}"
    if decide is not None:
        decide = max(decide, needed, measured.n + 1)
        more = f"about {decide}"
    blocks = f"{measured.n} block" if measured.n == 1 else f"{measured.n} blocks"
    if measured.n < needed:
        reason = f"{blocks}, and {100 * level:g} % needs {needed}"
    else:
        reason = f"{blocks} can see {percent(detectable or 0.0)}; {more} blocks would decide"
    return Judgement(
        verdict=Verdict.INCONCLUSIVE, reason=reason, detectable=detectable, blocks_to_decide=decide
    )


def _decide(
    evidence: Evidence, measured: _Measured, adjusted: float | None, thresholds: Thresholds,
    family: int,
) -> Judgement:  # fmt: skip
    delta = thresholds.change
    estimate = as_change(measured.estimate)
    significant = (
        measured.rank_interval is not None
        and measured.interval is not None
        and measured.interval.excludes(0)
        and abs(estimate) >= delta / 2
    )
    if significant and adjusted is not None and adjusted <= thresholds.alpha:
        better = (estimate > 0) == (evidence.direction == "higher")
        verdict = Verdict.IMPROVEMENT if better else Verdict.REGRESSION
        return Judgement(verdict=verdict, reason="the interval excludes zero")
    inner = measured.equivalence
    if inner and -delta < as_change(inner.low) and as_change(inner.high) < delta:
        level = f"{100 * inner.level:g} %"
        reason = f"with {level} confidence the change is within ±{percent(delta)}"
        return Judgement(verdict=Verdict.NO_CHANGE, reason=reason)
    incomplete = measured.n < min(
        evidence.blocks_planned, statistics.pairs_needed(1 - thresholds.alpha)
    )
    if incomplete:
        blame, reason = lost(evidence, measured.n)
        return Judgement(verdict=Verdict.FAILED, reason=reason, blame=blame)
    undecided = _undecided(measured, thresholds, family)
    if significant:
        reason = f"does not hold over {family} primary metrics (Holm); {undecided.reason}"
        return undecided.model_copy(update={"reason": reason})
    return undecided


def _judge_one(
    evidence: Evidence, measured: _Measured | None, adjusted: float | None,
    thresholds: Thresholds, family: int,
) -> Judgement:  # fmt: skip
    n = len(evidence.base)
    enough = statistics.pairs_needed(1 - 2 * thresholds.equivalence_alpha)
    if measured is None and n == 0 and evidence.same_code:
        return Judgement(verdict=Verdict.NO_CHANGE, reason="same code")
    if measured is None and n == 0:
        blame, reason = lost(evidence, 0)
        return Judgement(verdict=Verdict.FAILED, reason=reason, blame=blame)
    if measured is None:
        return Judgement(
            verdict=Verdict.INCONCLUSIVE, pairs=n, reason="a value is zero or no number: no ratio"
        )
    if evidence.unusable:
        said = Judgement(verdict=Verdict.INCONCLUSIVE, reason=evidence.unusable)
    elif evidence.same_code:
        exactly = ", change exactly 0" if measured.exactly_zero else ""
        said = Judgement(verdict=Verdict.NO_CHANGE, reason=f"same code{exactly}")
    elif measured.exactly_zero and n >= min(evidence.blocks_planned, enough):
        said = Judgement(verdict=Verdict.NO_CHANGE, reason="change exactly 0")
    else:
        said = _decide(evidence, measured, adjusted, thresholds, family)
    return said.model_copy(
        update={
            "change": _change(measured, thresholds),
            "pairs": n,
            "p_value": measured.p_value,
            "p_adjusted": adjusted,
        }
    )


def judge_primary(family: Sequence[Evidence], thresholds: Thresholds) -> list[Judgement]:
    """Judge all primary metrics of an experiment together; same order as given.

    Holm's family is every metric asked for, also one whose runs failed: losing
    runs must not make the others easier to call.
    """
    measured = [_measure(evidence, thresholds) for evidence in family]
    missing = sum(m is None or m.p_value is None for m in measured)
    known = [m.p_value for m in measured if m is not None and m.p_value is not None]
    values = iter(statistics.holm([*known, *([1.0] * missing)]))
    adjusted = [next(values) if m is not None and m.p_value is not None else None for m in measured]
    return [
        _judge_one(evidence, one, p, thresholds.of(evidence.metric), len(family))
        for evidence, one, p in zip(family, measured, adjusted, strict=True)
    ]


def judge_secondary(metrics: Sequence[Evidence], thresholds: Thresholds) -> list[Judgement]:
    """Describe the secondary metrics: numbers and what differs, no verdict."""
    measured = [_measure(evidence, thresholds) for evidence in metrics]
    known = [m.p_value for m in measured if m is not None and m.p_value is not None]
    values = iter(statistics.benjamini_hochberg(known))
    judgements = []
    for evidence, one in zip(metrics, measured, strict=True):
        q = next(values) if one is not None and one.p_value is not None else None
        judgements.append(
            Judgement(
                verdict=None,
                reason=evidence.unusable or ("" if one else "no pairs with a ratio"),
                change=_change(one, thresholds) if one else None,
                pairs=len(evidence.base),
                p_value=one.p_value if one else None,
                p_adjusted=q,
                differs=q is not None and q <= FALSE_DISCOVERY_RATE and not evidence.unusable,
            )
        )
    return judgements
