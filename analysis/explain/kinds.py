"""Kinds of instructions by function, counted in the judged runs: pure."""

from __future__ import annotations

from collections.abc import Iterator

from analysis import counts
from analysis.counts import Arm, Named, OnePhase, Paired, Recorded, Row
from analysis.explain import Explanation
from results.profile import IDLE_PROGRAM, KINDS, PhaseProfile
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
