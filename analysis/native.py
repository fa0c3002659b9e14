"""Judge a session of native mode: real time, of a process of the host; pure.

A boot's value of a phase is a low quantile over places, each of which is the second lowest of
twelve windows already: what disturbs a window only makes it longer.  A round boots the base, the
base again and the other arms, and its logarithms of ratios are what is judged.

An arm is one kernel whose objects are linked in several orders, because a binary's layout moves
real time by tenths of a percent and belongs to the binary, not to the patch.  The arms of a round
have the same order, so what differs in a round is the patch, and how what it moves lies in that
order.  What is judged by signed ranks is one number an order, whatever the number of its rounds:
many rounds of few binaries would speak of these binaries alone.

Where rounds are added until every verdict is decided, each look has its share of the error rates
(``analysis.power``).  What later looks share with earlier ones is more than the sums of that
theory share, the layouts, and the more they share the less often any of them errs.
"""

from __future__ import annotations

import itertools
import math
import statistics as plain
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from analysis import power, statistics
from analysis.statistics import as_change
from analysis.verdict import Cause, Change, Judgement, Verdict, change_of
from experiment.spec import Looks, looks_of
from results.native import (
    CROSSING,
    NativeBoot,
    NativeHead,
    NativePhase,
    by_round,
    whole_rounds,
)
from results.record import Manifest, Record
from text import percent

# Of places: the lowest quarter is what a place takes that nothing disturbs.
QUANTILE = 0.25
# A boot that takes that much longer than the median of its arm is a slow one, and in more than
# that share of rounds they withhold a verdict.
SLOW, MOST_SLOW = 1.05, 0.25
# Share of the host's CPU time that a hypervisor takes from which on time is not ours.
MOST_STOLEN = 0.05


@dataclass(frozen=True)
class Judged:
    """A phase of a case: nanoseconds a folio of the base, and what an arm changes.

    ``again`` is the base against itself, whose interval has what boots differ by and no layout;
    ``crossing`` is the share of a window that system calls are, all fractions.
    """

    case: str
    phase: str
    arm: str
    verdict: Verdict
    cause: Cause
    reason: str
    base_ns: float | None = None
    rounds: int = 0
    change: Change | None = None
    again: Change | None = None
    p_adjusted: float | None = None
    slow: int = 0
    crossing: float | None = None

    @property
    def judgement(self) -> Judgement:
        """The verdict as one of any session."""
        return Judgement(
            verdict=self.verdict, reason=self.reason, cause=self.cause, change=self.change
        )


def value(ticks: Sequence[int]) -> float:
    """A low quantile over places."""
    return float(sorted(ticks)[int(QUANTILE * len(ticks))])


def nanoseconds(timed: NativePhase, hertz: float) -> float:
    """What a boot takes for a folio or an operation of a phase."""
    return value(timed.ticks) / timed.folios / hertz * 1e9


class TimedArms(Record):
    """What a session of native mode shows of the same arms as another session."""

    session: str
    cpu: str
    judged: tuple[Judged, ...]


@dataclass(frozen=True)
class _Rounds:
    """One phase of whole rounds: nanoseconds a folio, and what an arm differs by in each order.

    Differences are of logarithms: ``same`` of the base's two boots, ``differences`` from their
    mean.  They are of boots that are not slow, as three in 24 that are make an interval useless.
    What is slow goes by an arm's own median, so that a change leaves out no more of one arm;
    ``slow`` are the rounds with such a boot.
    """

    base: tuple[float, ...]
    again: tuple[float, ...]
    slow: int
    same: tuple[float, ...]
    differences: tuple[float, ...]


def same_arms(head: NativeHead, manifest: Manifest) -> bool:
    """Whether a session of native mode has the first two arms of another session.

    They are of the same source, with the same patches in the same order.
    """
    contents = {
        patch.name: patch.sha256
        for series in itertools.chain(manifest.series, *(arm.series for arm in manifest.arms))
        for patch in series.patches
    }
    kernels = [arm.kernel for arm in manifest.arms[:2]]
    patches = [tuple(contents.get(name, "") for name in kernel.patches) for kernel in kernels]
    return head.source == kernels[0].source == kernels[1].source and patches == [
        arm.contents for arm in head.arms[:2]
    ]


def judge(head: NativeHead, boots: Sequence[NativeBoot]) -> tuple[Judged, ...]:
    """Every phase of every case for each arm but the base, in the head's order."""
    subjects = [
        (case, phase, arm.name)
        for arm in head.arms[1:]
        for case, phases in head.phases.items()
        for phase in phases
    ]
    if head.same_code:
        reason = "the arms' machine code is the same: nothing was booted"
        same = (Verdict.NO_CHANGE, Cause.SAME_CODE, reason)
        return tuple(Judged(*subject, *same) for subject in subjects)
    looks, boots = reached(head, boots)
    # A phase that several cases share is one question.
    measured = {
        (phase, arm): rounds_of(head, boots, phase, arm)
        for _, phase, arm in dict.fromkeys(subjects)
    }
    levels = _levels(head, looks)
    needed = max(map(statistics.pairs_needed, levels))
    p_values = {
        at: power.repeated_p(looks, statistics.signed_rank_p(rounds.differences))
        for at, rounds in measured.items()
        if len(rounds.differences) >= needed
    }
    adjusted = dict(zip(p_values, statistics.holm(list(p_values.values())), strict=True))
    stolen = plain.fmean(boot.stolen for boot in boots) if boots else 0.0
    results = [
        judge_phase(
            head,
            (case, phase, arm),
            measured[phase, arm],
            adjusted.get((phase, arm)),
            levels,
            family=len(adjusted),
            stolen=stolen,
        )
        for case, phase, arm in subjects
    ]
    shares = crossings(boots)
    return tuple(
        each if each.phase not in shares else replace(each, crossing=shares[each.phase])
        for each in results
    )


def reached(head: NativeHead, boots: Sequence[NativeBoot]) -> tuple[Looks, Sequence[NativeBoot]]:
    """The looks that a session has had, the last one now, and the boots of which that is.

    Rounds beyond a look wait for the next one.
    """
    if head.first is None:
        return Looks((head.rounds,), sequential=False), boots
    whole = whole_rounds(head, boots)
    looks = looks_of(head.first, head.rounds, max(len(whole), head.first))
    judged = set(whole[: looks.seeds[-1]])
    return looks, [boot for boot in boots if boot.round in judged]


def is_finished(head: NativeHead, boots: Sequence[NativeBoot]) -> bool:
    """Whether a session has all rounds that it was to make."""
    return all(each.verdict is not Verdict.NOT_FINISHED for each in judge(head, boots))


def undecided(head: NativeHead, boots: Sequence[NativeBoot]) -> tuple[str, ...]:
    """The phases that more rounds may decide."""
    open_ = (Verdict.NOT_FINISHED, Verdict.INCONCLUSIVE)
    return tuple(dict.fromkeys(each.phase for each in judge(head, boots) if each.verdict in open_))


def _levels(head: NativeHead, looks: Looks) -> tuple[float, float]:
    """Those of the intervals for a change, and for none, at the last of these looks."""
    one_sided = power.equivalence_level(looks, head.equivalence_alpha)
    return 1 - power.change_level(looks, head.alpha), 1 - 2 * one_sided


def crossings(boots: Iterable[NativeBoot]) -> Mapping[str, float]:
    """The share of each phase's window that goes to its system calls, of a call that does nothing.

    On the base's boots; at most 1, for a call may find the caches warmer than this one does.
    """
    shares: dict[str, list[float]] = {}
    for boot in boots:
        call = value(boot.phases[CROSSING].ticks)
        for name, phase in boot.phases.items():
            share = min(1.0, call * phase.calls / value(phase.ticks))
            shares.setdefault(name, []).append(share)
    return {name: plain.median(values) for name, values in shares.items()}


def rounds_of(head: NativeHead, boots: Sequence[NativeBoot], phase: str, arm: str) -> _Rounds:
    """A phase of whole rounds."""
    base = head.arms[0].name
    keys = ((base, False), (base, True), (arm, False))
    whole = [of for _, of in sorted(by_round(boots).items()) if all(key in of for key in keys)]

    first, again, other = (
        tuple(nanoseconds(of[key].phases[phase], of[key].hertz) for of in whole) for key in keys
    )
    usual_base, usual_other = (SLOW * _median(boots) for boots in ((*first, *again), other))
    by_order: dict[int, list[float]] = {}
    same, slow = [], 0
    for of, early, late, changed in zip(whole, first, again, other, strict=True):
        before = [boot for boot in (early, late) if boot <= usual_base]
        slow += len(before) < 2 or changed > usual_other
        if len(before) == 2:
            same.append(math.log(late / early))
        if before and changed <= usual_other:
            difference = math.log(changed) - plain.fmean(map(math.log, before))
            by_order.setdefault(of[base, False].order, []).append(difference)
    differences = tuple(map(statistics.hodges_lehmann, by_order.values()))
    return _Rounds(first, again, slow, tuple(same), differences)


def _median(boots: Sequence[float]) -> float:
    return plain.median(boots) if boots else 0.0


def judge_phase(
    head: NativeHead,
    subject: tuple[str, str, str],
    rounds: _Rounds,
    adjusted: float | None,
    levels: tuple[float, float],
    *,
    family: int,
    stolen: float,
) -> Judged:
    """One phase of one case; ``subject`` names case, phase and arm, ``family`` counts phases.

    ``levels`` are those of the intervals for a change and for none.
    """
    needed, made = max(map(statistics.pairs_needed, levels)), len(rounds.base)
    base_ns, slow = _median(rounds.base), rounds.slow
    if adjusted is None:
        reason = f"{made} of {head.rounds} rounds are whole, {needed} are needed"
        if made >= needed:
            usable = len(rounds.differences)
            reason = f"{usable} orders have rounds without slow boots, {needed} are needed"
        unfinished = made < (head.rounds if head.first else min(head.rounds, needed))
        verdict = Verdict.NOT_FINISHED if unfinished else Verdict.NOT_JUDGED
        return Judged(*subject, verdict, Cause.TOO_FEW, reason, base_ns or None, made, slow=slow)
    level, level_of_none = levels
    differences = rounds.differences
    same = rounds.same or statistics.log_ratios(rounds.base, rounds.again)
    noise = statistics.noise_floor(same, 1 - level, head.change)
    interval = statistics.signed_rank_interval(differences, level)
    equal = statistics.signed_rank_interval(differences, level_of_none)
    assert interval is not None
    assert equal is not None
    # Over all looks, as in the other modes.
    change = change_of(statistics.hodges_lehmann(differences), interval, 1 - head.alpha)
    again = change_of(noise.estimate, noise.interval, 1 - head.alpha)
    of = Judged(
        *subject,
        Verdict.INCONCLUSIVE,
        Cause.UNDECIDED,
        "",
        base_ns,
        made,
        change,
        again,
        adjusted,
        slow,
    )
    if made < (head.first or head.rounds):
        reason = f"{made} of {head.first or head.rounds} rounds are whole"
        return replace(of, verdict=Verdict.NOT_FINISHED, cause=Cause.UNFINISHED, reason=reason)
    withheld = ""
    if noise.differs:
        withheld = f"the base differs from itself by {percent(again.estimate)}"
    elif slow > MOST_SLOW * made:
        withheld = f"{slow} of {made} rounds have a boot that is {percent(SLOW - 1)} slower"
    elif stolen > MOST_STOLEN:
        withheld = f"a hypervisor took {percent(stolen)} of the CPU time"
    differs, large = interval.excludes(0), abs(change.estimate) >= head.change / 2
    more = f"more rounds ({'--max-seeds' if head.first else '--seeds'})"
    left = f"a change of {percent(head.change)} is not excluded; {more}"
    if withheld:
        of = replace(of, cause=Cause.UNSTEADY, reason=f"withheld: {withheld}")
    elif differs and large and adjusted <= head.alpha:
        verdict = Verdict.REGRESSION if change.estimate > 0 else Verdict.IMPROVEMENT
        reason = "the interval, with what lies between orders of objects, excludes zero"
        return replace(of, verdict=verdict, cause=Cause.EXCLUDES_ZERO, reason=reason)
    elif -head.change < as_change(equal.low) and as_change(equal.high) < head.change:
        sure = 100 * (1 - 2 * head.equivalence_alpha)
        reason = f"with {sure:.4g} % confidence the change is within ±{percent(head.change)}"
        return replace(of, verdict=Verdict.NO_CHANGE, cause=Cause.WITHIN_THRESHOLD, reason=reason)
    elif differs and large:
        reason = f"not significant among {family} phases (Holm); {left}"
        of = replace(of, cause=Cause.FAMILY, reason=reason)
    else:
        of = replace(of, reason=f"zero is not excluded, and {left}")
    if made < head.rounds:
        reason = f"open after {made} of up to {head.rounds} rounds: --resume goes on"
        return replace(of, verdict=Verdict.NOT_FINISHED, cause=Cause.UNFINISHED, reason=reason)
    return of
