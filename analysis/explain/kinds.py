"""Kinds of instructions by function, counted in the judged runs: pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analysis import counts
from analysis.counts import Arm, CountedPhase, Named, Recorded
from analysis.explain import Explanation
from analysis.paired import Paired
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


class KindsComparison(Record):
    """One phase of one case in the judged runs, per its first unit of work.

    ``total`` is of everything but idling.  ``rows`` are all functions; the first ``listed`` moved
    some kind beyond its scatter, by the largest share of all instructions of that kind first.
    """

    case: str
    phase: str
    unit: str
    unit_title: str
    seeds: tuple[int, ...]
    total: Kinds
    rows: tuple[KindsIn, ...]
    listed: int


def _counted(run: PhaseProfile) -> Iterator[tuple[Named, str, Sequence[float]]]:
    for function in run.kernel:
        yield Named(function.name, False), function.file, function.kinds
    for name, kinds in run.user_kinds.items():
        if name != IDLE_PROGRAM:
            yield Named(name, True), "", kinds


def _has(run: PhaseProfile) -> bool:
    return bool(run.kernel) and all(function.kinds for function in run.kernel)


def _phase(here: CountedPhase) -> KindsComparison:
    table = counts.table(here, _counted, len(KINDS))
    total = table.total()
    ranked = []
    for key, only_in, pairs in zip(table.keys, table.only_in, table.rows(), strict=True):
        kinds = dict(zip(KINDS, pairs, strict=True))
        row = KindsIn(name=key.name, file=table.files[key], user=key.user, only_in=only_in, **kinds)
        ranked.append((max(map(counts.share, pairs, total)), row))
    ranked.sort(key=lambda each: (-each[0], each[1].name, each[1].user))
    return KindsComparison(
        case=here.case.name,
        phase=here.phase.name,
        unit=here.unit,
        unit_title=here.unit_title,
        seeds=here.seeds,
        total=Kinds(**dict(zip(KINDS, total, strict=True))),
        rows=tuple(row for _, row in ranked),
        listed=counts.listed(share for share, _ in ranked),
    )


def compare_kinds(recorded: Recorded) -> tuple[KindsComparison, ...]:
    """One comparison a case and phase whose instructions were told apart on both arms."""
    return tuple(map(_phase, counts.phases(recorded, _has)))


EXPLANATION = Explanation(
    "kinds",
    "Kinds of instructions",
    60,
    KindsComparison,
    compare_kinds,
    lambda each: each.model_copy(update={"rows": each.rows[: each.listed]}),
)
