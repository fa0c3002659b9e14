"""Interrupts, exceptions and host calls, counted in the judged runs: pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from analysis import counts
from analysis.counts import Arm, CountedPhase, Recorded
from analysis.explain import Explanation
from analysis.paired import Paired
from results.profile import INTERRUPTIONS, InterruptionKind, PhaseProfile
from results.record import Record


class HandlerCount(Record):
    """How often ``handler``, a kernel function, was entered so."""

    kind: InterruptionKind
    handler: str
    count: Paired


class InterruptionCount(HandlerCount):
    """Those of one kernel function, or of one of the user's files, that was interrupted."""

    function: str
    user: bool
    only_in: Arm = ""


class InterruptionComparison(Record):
    """One phase of one case in the judged runs, virtual, per its first unit of work.

    ``kinds`` has each kind that there was, ``handlers`` is in the order of kinds and names.
    ``rows`` are of exceptions and host calls, by handler and function; the first ``listed`` moved
    beyond their scatter, by the largest share of all of their kind first.
    """

    case: str
    phase: str
    unit: str
    unit_title: str
    seeds: tuple[int, ...]
    kinds: dict[InterruptionKind, Paired]
    handlers: tuple[HandlerCount, ...]
    rows: tuple[InterruptionCount, ...]
    listed: int


class _Place(NamedTuple):
    kind: InterruptionKind
    handler: str = ""
    user: bool = False
    function: str = ""


def _phase(here: CountedPhase) -> InterruptionComparison:
    def places(run: PhaseProfile) -> Iterator[tuple[_Place, str, Sequence[float]]]:
        for each in run.interruptions or ():
            # The clock's interrupts come anywhere, and that says nothing.
            if each.kind != "interrupt":
                place = _Place(each.kind, each.handler, each.user, each.function)
                yield place, "", (each.count,)

    def table(*, with_handlers: bool) -> counts.CountTable[_Place]:
        def counted(run: PhaseProfile) -> Iterator[tuple[_Place, str, Sequence[float]]]:
            for each in run.interruptions or ():
                handler = each.handler if with_handlers else ""
                yield _Place(each.kind, handler), "", (each.count,)

        return counts.table(here, counted, 1)

    kinds, handlers = table(with_handlers=False), table(with_handlers=True)
    every = counts.table(here, places, 1)
    of_kind = {key.kind: count for key, (count,) in zip(kinds.keys, kinds.rows(), strict=True)}
    ranked = []
    for key, only_in, (count,) in zip(every.keys, every.only_in, every.rows(), strict=True):
        row = InterruptionCount(**key._asdict(), count=count, only_in=only_in)
        ranked.append((-counts.share(count, of_kind[key.kind]), key, row))
    ranked.sort(key=lambda each: each[:2])
    entered = sorted(
        zip(handlers.keys, handlers.rows(), strict=True),
        key=lambda each: (INTERRUPTIONS.index(each[0].kind), each[0]),
    )
    return InterruptionComparison(
        case=here.case.name,
        phase=here.phase.name,
        unit=here.unit,
        unit_title=here.unit_title,
        seeds=here.seeds,
        kinds={kind: of_kind[kind] for kind in INTERRUPTIONS if kind in of_kind},
        handlers=tuple(
            HandlerCount(kind=key.kind, handler=key.handler, count=count)
            for key, (count,) in entered
        ),
        rows=tuple(row for _, _, row in ranked),
        listed=counts.listed(-share for share, _, _ in ranked),
    )


def compare_interruptions(recorded: Recorded) -> tuple[InterruptionComparison, ...]:
    """One comparison a case and phase whose interruptions were counted on both arms."""
    counted = counts.phases(recorded, lambda run: run.interruptions is not None)
    return tuple(map(_phase, counted))


EXPLANATION = Explanation(
    "interruptions",
    "Interrupts and faults",
    70,
    InterruptionComparison,
    compare_interruptions,
    lambda each: each.model_copy(update={"rows": each.rows[: each.listed]}),
)
