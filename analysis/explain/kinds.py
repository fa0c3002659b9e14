"""Kinds of instructions, and of interruptions, by function: counted in the judged runs.  Pure.

An interruption is an interrupt, an exception or a host call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from analysis import counts
from analysis.counts import (
    Arm,
    Named,
    OnePhase,
    Paired,
    Recorded,
    Row,
)
from analysis.explain import Explanation
from results.profile import (
    IDLE_PROGRAM,
    INTERRUPTIONS,
    KINDS,
    InterruptionKind,
    PhaseProfile,
)
from results.record import Record


class Kinds(Record):
    """Instructions of each kind per unit of work; see ``results.profile.KINDS``.

    One instruction may be of several kinds: what adds to memory is a load and a store.
    """

    loads: Paired
    stores: Paired
    atomics: Paired
    barriers: Paired
    divisions: Paired
    system: Paired


class KindsIn(Kinds):
    """Those of one function, or of one of the user's files."""

    name: str
    file: str
    user: bool
    only_in: Arm = ""


class KindsComparison(OnePhase):
    """One phase of one case in the judged runs, per its first unit of work.

    ``total`` is of everything but idling.  ``rows`` are all functions; the first ``listed`` moved
    some kind beyond its scatter, by the largest share of all instructions of that kind first.
    """

    unit: str
    total: Kinds
    rows: tuple[KindsIn, ...]
    listed: int


def _counted(run: PhaseProfile) -> Iterator[Row[Named]]:
    for function in run.kernel:
        yield Named(function.name, False), function.file, function.kinds
    for name, kinds in run.user_kinds.items():
        if name != IDLE_PROGRAM:
            yield Named(name, True), "", kinds


def compare_kinds(recorded: Recorded) -> Iterator[KindsComparison]:
    """One comparison a case and phase whose instructions were told apart on both arms."""
    for here in counts.phases(
        recorded, lambda run: bool(run.kernel) and all(each.kinds for each in run.kernel)
    ):
        table = here.table(_counted, len(KINDS))
        total = table.total()
        ranked = [
            (
                max(map(counts.share, pairs, total)),
                KindsIn(**place, **dict(zip(KINDS, pairs, strict=True))),
            )
            for place, pairs in zip(table.places(), table.rows(), strict=True)
        ]
        ranked.sort(key=lambda each: (-each[0], each[1].name, each[1].user))
        yield KindsComparison(
            **here.where,
            unit=here.unit,
            total=Kinds(**dict(zip(KINDS, total, strict=True))),
            rows=tuple(row for _, row in ranked),
            listed=counts.listed(share for share, _ in ranked),
        )


EXPLANATION = Explanation(
    "kinds",
    "Kinds of instructions",
    60,
    KindsComparison,
    compare_kinds,
    lambda each: each.model_copy(update={"rows": each.rows[: each.listed]}),
)


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


class InterruptionComparison(OnePhase):
    """One phase of one case in the judged runs, virtual, per its first unit of work.

    ``kinds`` has each kind that there was, ``handlers`` is in the order of kinds and names.
    ``rows`` are of exceptions and host calls, by handler and function; the first ``listed`` moved
    beyond their scatter, by the largest share of all of their kind first.
    """

    unit: str
    kinds: dict[InterruptionKind, Paired]
    handlers: tuple[HandlerCount, ...]
    rows: tuple[InterruptionCount, ...]
    listed: int


class _Place(NamedTuple):
    kind: InterruptionKind
    handler: str
    user: bool
    function: str


def _interrupted(run: PhaseProfile) -> Iterator[Row[_Place]]:
    for each in run.interruptions or ():
        yield _Place(each.kind, each.handler, each.user, each.function), "", (each.count,)


def compare_interruptions(recorded: Recorded) -> Iterator[InterruptionComparison]:
    """One comparison a case and phase whose interruptions were counted on both arms."""
    for here in counts.phases(recorded, lambda run: run.interruptions is not None):
        every = here.table(_interrupted, 1)
        kinds = every.grouped(lambda key: key.kind)
        of_kind = {kind: count for kind, (count,) in zip(kinds.keys, kinds.rows(), strict=True)}
        handlers = every.grouped(lambda key: key[:2])
        entered = [
            HandlerCount(kind=kind, handler=handler, count=count)
            for (kind, handler), (count,) in zip(handlers.keys, handlers.rows(), strict=True)
        ]
        entered.sort(key=lambda each: (INTERRUPTIONS.index(each.kind), each.handler))
        ranked = [
            (
                -counts.share(count, of_kind[key.kind]),
                key,
                InterruptionCount(**key._asdict(), count=count, only_in=only_in),
            )
            for key, only_in, (count,) in zip(every.keys, every.only_in, every.rows(), strict=True)
            # The clock's interrupts come anywhere, and that says nothing.
            if key.kind != "interrupt"
        ]
        ranked.sort(key=lambda each: each[:2])
        yield InterruptionComparison(
            **here.where,
            unit=here.unit,
            kinds={kind: of_kind[kind] for kind in INTERRUPTIONS if kind in of_kind},
            handlers=tuple(entered),
            rows=tuple(row for _, _, row in ranked),
            listed=counts.listed(-share for share, _, _ in ranked),
        )


INTERRUPTED = Explanation(
    "interruptions",
    "Interrupts and faults",
    70,
    InterruptionComparison,
    compare_interruptions,
    lambda each: each.model_copy(update={"rows": each.rows[: each.listed]}),
)
