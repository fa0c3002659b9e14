"""Interrupts, exceptions and host calls per unit of work, paired by seed: pure.

They are counted in the judged runs, where QEMU tells of them; nothing here reaches a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from reports import paired
from reports.attribution import SeedProfiles, path_unit, profiled_phases
from reports.interruptions_model import HandlerCount, InterruptionComparison, InterruptionCount
from reports.paired import Paired
from results.profile import INTERRUPTIONS, Interruption, InterruptionKind, PhaseProfile, Profile
from results.record import CaseRecord, Manifest, PhaseRecord, RunRecord

MOST_LISTED = 40
# Less than this share of all of a kind is not worth a row.
LEAST_SHARE = 0.0005
Key = TypeVar("Key", bound=Hashable)


class _Handler(NamedTuple):
    kind: InterruptionKind
    handler: str


class _Place(NamedTuple):
    kind: InterruptionKind
    handler: str
    user: bool
    function: str


def _place(each: Interruption) -> _Place | None:
    """Where it came; the clock's interrupts come anywhere, and that says nothing."""
    if each.kind == "interrupt":
        return None
    return _Place(each.kind, each.handler, each.user, each.function)


def _paired(
    arms: Sequence[Sequence[PhaseProfile]],
    unit: str,
    key_of: Callable[[Interruption], Key | None],
) -> dict[Key, tuple[Paired, tuple[bool, bool]]]:
    """By key, but for None: how many per unit, and on which arms there are any."""
    counted = []
    for arm in arms:
        runs: list[dict[Key, int]] = [{} for _ in arm]
        for sums, profile in zip(runs, arm, strict=True):
            for each in profile.interruptions or ():
                if (key := key_of(each)) is not None:
                    sums[key] = sums.get(key, 0) + each.count
        counted.append(runs)
    keys = list(dict.fromkeys(key for runs in counted for sums in runs for key in sums))
    if not keys:
        return {}
    base, patched = (
        np.array([[sums.get(key, 0) / profile.units[unit] for key in keys]
                  for sums, profile in zip(runs, arm, strict=True)])
        for runs, arm in zip(counted, arms, strict=True)
    )  # fmt: skip
    return {
        key: (pair, (any(key in sums for sums in counted[0]), any(key in s for s in counted[1])))
        for key, pair in zip(keys, paired.columns(base, patched), strict=True)
    }


def _share(count: Paired, whole: Paired) -> float:
    """How much of its kind a row moved; 0 within its scatter."""
    if count.within_scatter:
        return 0.0
    return abs(count.difference) / max(whole.base, whole.patched)


def _phase(
    case: CaseRecord, phase: PhaseRecord, blocks: Sequence[SeedProfiles]
) -> InterruptionComparison | None:
    arms = [block.base for block in blocks], [block.patched for block in blocks]
    both = [*arms[0], *arms[1]]
    unit = path_unit(phase, both)
    if unit is None or any(profile.interruptions is None for profile in both):
        return None
    kinds = _paired(arms, unit[0], lambda each: each.kind)
    handlers = _paired(arms, unit[0], lambda each: _Handler(each.kind, each.handler))
    rows = [
        InterruptionCount(
            kind=key.kind, handler=key.handler, function=key.function, user=key.user, count=count,
            only_in="" if all(present) else "base" if present[0] else "patched",
        )
        for key, (count, present) in _paired(arms, unit[0], _place).items()
    ]  # fmt: skip
    shares = {id(row): _share(row.count, kinds[row.kind][0]) for row in rows}
    rows.sort(key=lambda row: (-shares[id(row)], row.kind, row.handler, row.user, row.function))
    return InterruptionComparison(
        case=case.name,
        phase=phase.name,
        unit=unit[0],
        unit_title=unit[1],
        seeds=tuple(block.seed for block in blocks),
        kinds={kind: kinds[kind][0] for kind in INTERRUPTIONS if kind in kinds},
        handlers=tuple(
            HandlerCount(kind=key.kind, handler=key.handler, count=handlers[key][0])
            for key in sorted(handlers, key=lambda key: (INTERRUPTIONS.index(key.kind), key))
        ),
        rows=tuple(rows),
        listed=min(sum(share >= LEAST_SHARE for share in shares.values()), MOST_LISTED),
    )


def compare_interruptions(
    manifest: Manifest, records: Sequence[RunRecord], profiles: Sequence[Profile]
) -> tuple[InterruptionComparison, ...]:
    """One comparison a case and phase whose interruptions were counted on both arms."""
    compared = []
    for case, phase, blocks in profiled_phases(manifest, records, profiles):
        comparison = _phase(case, phase, blocks)
        compared += [comparison] if comparison else []
    return tuple(compared)
