"""Kinds of instructions by function, per unit of work and paired by seed: pure.

They are counted in the judged runs; nothing here reaches a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from reports import paired
from reports.attribution import SeedProfiles, path_unit, profiled_phases
from reports.kinds_model import Kinds, KindsComparison, KindsIn
from reports.paired import Floats, Paired
from results.profile import IDLE_PROGRAM, KINDS, PhaseProfile, Profile
from results.record import CaseRecord, Manifest, PhaseRecord, RunRecord

MOST_LISTED = 40
# Less than this share of all instructions of a kind is not worth a row.
LEAST_SHARE = 0.0005


class _KindsKey(NamedTuple):
    name: str
    user: bool


def _of(phase: PhaseProfile) -> dict[_KindsKey, tuple[str, tuple[int, ...]]]:
    """The file and the kinds of every function and user file, but of what idles."""
    counted = {
        _KindsKey(function.name, False): (function.file, function.kinds)
        for function in phase.kernel
    }
    for name, kinds in phase.user_kinds.items():
        if name != IDLE_PROGRAM:
            counted[_KindsKey(name, True)] = ("", kinds)
    return counted


def _is_counted(phase: PhaseProfile) -> bool:
    return bool(phase.kernel) and all(function.kinds for function in phase.kernel)


def _arm(
    runs: Sequence[dict[_KindsKey, tuple[str, tuple[int, ...]]]], keys: Sequence[_KindsKey]
) -> list[Floats]:
    """An array (seeds, keys) for each kind."""
    nothing = ("", (0,) * len(KINDS))
    counts = np.array([[run.get(key, nothing)[1] for key in keys] for run in runs], dtype=float)
    return [counts[:, :, kind] for kind in range(len(KINDS))]


def _share(row: KindsIn, total: Kinds) -> float:
    """How much of a kind a row moved, the largest over the kinds; 0 within its scatter."""
    shares = [0.0]
    for kind in KINDS:
        here: Paired = getattr(row, kind)
        whole: Paired = getattr(total, kind)
        if not here.within_scatter and max(whole.base, whole.patched) > 0:
            shares.append(abs(here.difference) / max(whole.base, whole.patched))
    return max(shares)


def _phase(
    case: CaseRecord, phase: PhaseRecord, blocks: Sequence[SeedProfiles]
) -> KindsComparison | None:
    both = [profile for block in blocks for profile in (block.base, block.patched)]
    unit = path_unit(phase, both)
    if unit is None or not all(map(_is_counted, both)):
        return None
    arms = [b.base for b in blocks], [b.patched for b in blocks]
    runs = [[_of(profile) for profile in arm] for arm in arms]
    keys = sorted({key for arm in runs for run in arm for key in run})
    files: dict[_KindsKey, str] = {}
    for run in (run for arm in runs for run in arm):
        for key, (file, _) in run.items():
            files[key] = files.get(key) or file
    base, patched = (_arm(arm, keys) for arm in runs)
    per = [np.array([[profile.units[unit[0]]] for profile in arm]) for arm in arms]
    pairs = [
        paired.columns(first / per[0], second / per[1])
        for first, second in zip(base, patched, strict=True)
    ]
    total = Kinds(**{
        kind: paired.columns(
            first.sum(axis=1, keepdims=True) / per[0], second.sum(axis=1, keepdims=True) / per[1]
        )[0]
        for kind, first, second in zip(KINDS, base, patched, strict=True)
    })  # fmt: skip
    rows = []
    for column, key in enumerate(keys):
        present = [any(key in run for run in arm) for arm in runs]
        rows.append(KindsIn(
            name=key.name, file=files[key], user=key.user,
            only_in="" if all(present) else "base" if present[0] else "patched",
            **{kind: pairs[number][column] for number, kind in enumerate(KINDS)},
        ))  # fmt: skip
    share = {_KindsKey(row.name, row.user): _share(row, total) for row in rows}
    rows.sort(key=lambda row: (-share[_KindsKey(row.name, row.user)], row.name, row.user))
    return KindsComparison(
        case=case.name,
        phase=phase.name,
        unit=unit[0],
        unit_title=unit[1],
        seeds=tuple(block.seed for block in blocks),
        total=total,
        rows=tuple(rows),
        listed=min(sum(value >= LEAST_SHARE for value in share.values()), MOST_LISTED),
    )


def compare_kinds(
    manifest: Manifest, records: Sequence[RunRecord], profiles: Sequence[Profile]
) -> tuple[KindsComparison, ...]:
    """One comparison a case and phase whose instructions were told apart on both arms."""
    compared = []
    for case, phase, blocks in profiled_phases(manifest, records, profiles):
        comparison = _phase(case, phase, blocks)
        compared += [comparison] if comparison else []
    return tuple(compared)
