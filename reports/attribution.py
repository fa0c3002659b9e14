"""Where a change came from: instructions and calls by function, per unit of work, in pairs.

Pure.  Counts explain; of a verdict they say whether the changed code can have made it
(``reports.explained``).  What fails a gate by choice is that a function changed at all
(``reports.changed_functions``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from experiment.spec import FUNCTIONS
from reports import changed_functions, paired
from reports.attribution_hints import find_hints
from reports.attribution_model import Arm, Attribution, FileRow, FunctionRow, GroupRow, RatioRow
from reports.explained import Counted, network, split
from reports.paired import Floats, Paired
from reports.subsystems import subsystem
from results.calls import Calls
from results.profile import IDLE_PROGRAM, UNKNOWN, WORK, PhaseProfile, Profile
from results.record import CaseRecord, Manifest, PhaseRecord, RunRecord, UnitRecord

# The listed functions sum to the whole difference within this fraction of it ...
TOLERANCE = 0.05
# ... and make up at least this share of all absolute differences, so that two large ones
# which cancel each other are not passed over.
MOVEMENT = 0.80
MOST_LISTED = 40
USER = "user: "
# A process drags in dozens of libraries; below this share of all instructions a file is
# not worth a row among the parts.
SMALL_FILE = 0.005
SMALL_FILES = "user: other files"
# Instructions that a profile counts and gives to no function and no file.
NOT_ATTRIBUTED = "[not attributed]"


class SeedProfiles(NamedTuple):
    """One seed: the same phase of both arms' runs."""

    seed: int
    base: PhaseProfile
    patched: PhaseProfile


class _FunctionKey(NamedTuple):
    user: bool
    name: str


class _FunctionTable(NamedTuple):
    """Raw counts: ``base`` and ``patched`` are (instructions, calls), each (seeds, keys).

    ``lines`` are where definitions begin on both arms.
    """

    keys: list[_FunctionKey]
    files: dict[_FunctionKey, str]
    lines: dict[_FunctionKey, tuple[int, int]]
    base: tuple[Floats, Floats]
    patched: tuple[Floats, Floats]


def profiled_phases(
    manifest: Manifest, records: Sequence[RunRecord], profiles: Sequence[Profile], twin: str = ""
) -> Iterator[tuple[CaseRecord, PhaseRecord, list[SeedProfiles]]]:
    """Each case and phase that has seeds with a profile on both arms, and those seeds.

    In the order of the manifest; of the judged runs, or of a twin's.
    """
    for case in manifest.cases:
        for phase in case.phases:
            blocks = _blocks_of(manifest, records, profiles, case.name, phase.name, twin=twin)
            if blocks:
                yield case, phase, blocks


def _blocks_of(
    manifest: Manifest, records: Sequence[RunRecord], profiles: Sequence[Profile], case: str,
    phase: str, *, twin: str = "",
) -> list[SeedProfiles]:  # fmt: skip
    """The seeds for which both arms' runs, measured or of a twin, have a profile of this phase."""
    by_run = {profile.run_id: profile for profile in profiles}
    by_block: dict[int, dict[str, tuple[int, PhaseProfile]]] = {}
    for record in records:
        if record.case != case or record.repeat or record.twin != twin or record.samples is None:
            continue
        profile = by_run.get(record.run_id)
        for phase_profile in profile.phases if profile else ():
            if phase_profile.phase == phase:
                by_block.setdefault(record.block, {})[record.arm] = (record.seed, phase_profile)
    return [
        SeedProfiles(arms[manifest.base][0], arms[manifest.base][1], arms[manifest.patched][1])
        for _, arms in sorted(by_block.items())
        if manifest.base in arms and manifest.patched in arms
    ]


def path_unit(phase: PhaseRecord, runs: Sequence[PhaseProfile]) -> tuple[str, str] | None:
    """Name and title of the unit that the path is given per: the first that every run counted.

    Where folios are huge, how many a unit of work needs is luck.
    """
    for unit in phase.units:
        if all(run.units.get(unit.name, 0.0) > 0 for run in runs):
            return unit.name, unit.title
    return None


def _table(blocks: Sequence[SeedProfiles]) -> _FunctionTable:
    counts: dict[_FunctionKey, int] = {}
    files: dict[_FunctionKey, str] = {}
    lines: dict[_FunctionKey, tuple[int, int]] = {}
    phases = [(row, arm, phase) for row, block in enumerate(blocks)
              for arm, phase in enumerate((block.base, block.patched))]  # fmt: skip
    for _, arm, phase in phases:
        for function in phase.kernel:
            key = _FunctionKey(False, function.name)
            counts.setdefault(key, 0)
            files[key] = files.get(key) or function.file
            base_line, patched_line = lines.get(key, (0, 0))
            lines[key] = (function.line, patched_line) if arm == 0 else (base_line, function.line)
        for name, _ in _programs(phase):
            counts.setdefault(_FunctionKey(True, name), 0)
    remainder = _FunctionKey(False, NOT_ATTRIBUTED)
    keys = [*sorted(counts), remainder]
    column = {key: number for number, key in enumerate(keys)}
    table = np.zeros((2, 2, len(blocks), len(keys)))
    for row, arm, phase in phases:
        for function in phase.kernel:
            where = column[_FunctionKey(False, function.name)]
            table[arm, 0, row, where] += function.instructions
            table[arm, 1, row, where] += function.calls
        for name, instructions in _programs(phase):
            table[arm, 0, row, column[_FunctionKey(True, name)]] += instructions
        table[arm, 0, row, -1] = phase.busy - table[arm, 0, row, :-1].sum()
    used = np.asarray(table.any(axis=(0, 1, 2)), dtype=np.bool_)
    used_keys = [key for key, is_used in zip(keys, used, strict=True) if is_used]
    table = table[:, :, :, used]
    return _FunctionTable(
        used_keys, files, lines, (table[0, 0], table[0, 1]), (table[1, 0], table[1, 1])
    )


def _programs(phase: PhaseProfile) -> list[tuple[str, int]]:
    """User code, but what only keeps the vCPU from being idle."""
    return [(name, count) for name, count in phase.user.items() if name != IDLE_PROGRAM]


def _per(blocks: Sequence[SeedProfiles], unit: str) -> tuple[Floats, Floats] | None:
    """Units of work by seed and arm, each of shape (seeds, 1); None unless all are above zero."""
    both = [
        np.array([[phase.units.get(unit, 0.0)] for phase in arm], dtype=np.float64)
        for arm in ([b.base for b in blocks], [b.patched for b in blocks])
    ]
    return (both[0], both[1]) if all((units > 0).all() for units in both) else None


def _only_in(base: Floats, patched: Floats) -> Arm:
    if base.any() and patched.any():
        return ""
    return "base" if base.any() else "patched"


def _functions(table: _FunctionTable, per: tuple[Floats, Floats]) -> list[tuple[int, FunctionRow]]:
    """Every row with its column, the largest difference first, then by name."""
    instructions = paired.columns(table.base[0] / per[0], table.patched[0] / per[1])
    calls = paired.columns(table.base[1] / per[0], table.patched[1] / per[1])
    rows = []
    for column, key in enumerate(table.keys):
        file = table.files.get(key, "")
        rows.append((column, FunctionRow(
            name=key.name,
            file=file,
            lines=table.lines.get(key, (0, 0)),
            subsystem=f"{USER}{key.name}" if key.user else subsystem(key.name, file),
            instructions=instructions[column],
            calls=None if key.user else calls[column],
            user=key.user,
            only_in=_only_in(table.base[0][:, column], table.patched[0][:, column]),
        )))  # fmt: skip
    return sorted(
        rows, key=lambda row: (-abs(row[1].instructions.difference), row[1].name, row[1].user)
    )


def listed(differences: Sequence[float], most: int = MOST_LISTED) -> int:
    """How many of the differences, sorted by size, are to be listed: at most ``most``.

    The fewest whose sum lies within :data:`TOLERANCE` of the whole difference and whose
    absolute sum is at least :data:`MOVEMENT` of all; zeros are never listed.
    """
    moved = sum(value != 0 for value in differences)
    whole, everything = sum(differences), sum(map(abs, differences))
    total = absolute = 0.0
    for number, value in enumerate(differences[:most], start=1):
        total, absolute = total + value, absolute + abs(value)
        if abs(whole - total) <= TOLERANCE * abs(whole) and absolute >= MOVEMENT * everything:
            return min(number, moved)
    return min(most, moved)


def _summed(table: _FunctionTable, per: tuple[Floats, Floats], columns: Sequence[int]) -> Paired:
    return paired.pair(
        table.base[0][:, columns].sum(axis=1) / per[0][:, 0],
        table.patched[0][:, columns].sum(axis=1) / per[1][:, 0],
    )


def _groups(
    rows: Sequence[tuple[int, FunctionRow]],
    summed: Callable[[Sequence[int]], Paired],
    total: Paired,
) -> tuple[GroupRow, ...]:
    least = SMALL_FILE * total.base
    alone = {column: row.instructions for column, row in rows}
    members: dict[str, dict[str, list[int]]] = {}
    for column, row in rows:
        small = row.user and max(row.instructions.base, row.instructions.patched) < least
        files = members.setdefault(SMALL_FILES if small else row.subsystem, {})
        files.setdefault(row.name if row.user else row.file, []).append(column)
    groups = []
    for title, files in members.items():
        columns = sorted(column for of_file in files.values() for column in of_file)
        file_rows = [
            FileRow(
                file=file,
                functions=len(of_file),
                # Most files and programs are a single row.
                instructions=summed(sorted(of_file)) if of_file[1:] else alone[of_file[0]],
            )
            for file, of_file in files.items()
        ]
        file_rows.sort(key=lambda row: (-abs(row.instructions.difference), row.file))
        groups.append(GroupRow(
            title=title, functions=len(columns), instructions=summed(columns),
            files=tuple(file_rows),
        ))  # fmt: skip
    return tuple(sorted(groups, key=lambda g: (-abs(g.instructions.difference), g.title)))


def _ratios(
    phase: PhaseRecord, blocks: Sequence[SeedProfiles], table: _FunctionTable
) -> tuple[RatioRow, ...]:
    rows = []
    for ratio in phase.ratios:
        per = _per(blocks, ratio.unit)
        if per is None:
            continue
        columns = _columns(table, ratio.functions)
        less = _columns(table, ratio.less)
        entered = [
            {table.keys[i].name for i in columns if calls[:, i].any()}
            for calls in (table.base[1], table.patched[1])
        ]
        rows.append(RatioRow(
            name=ratio.name,
            title=ratio.title,
            functions=ratio.functions,
            calls=paired.pair(
                *(
                    (calls[:, columns].sum(axis=1) - calls[:, less].sum(axis=1)) / units[:, 0]
                    for (_, calls), units in zip((table.base, table.patched), per, strict=True)
                )
            ),
            absent=tuple(name for name in ratio.functions
                         if name not in entered[0] or name not in entered[1]),
        ))  # fmt: skip
    return tuple(rows)


def _columns(table: _FunctionTable, functions: Sequence[str]) -> list[int]:
    names = set(functions)
    return [i for i, key in enumerate(table.keys) if not key.user and key.name in names]


def _units(phase: PhaseRecord, blocks: Sequence[SeedProfiles]) -> Sequence[UnitRecord]:
    names = sorted(blocks[0].base.units)
    return phase.units or [UnitRecord(name=name, title=name) for name in names]


def _phase(
    case: CaseRecord, phase: PhaseRecord, blocks: Sequence[SeedProfiles], table: _FunctionTable
) -> list[Attribution]:
    attributions: list[Attribution] = []
    identical = all(
        np.array_equal(base, patched)
        for base, patched in zip(table.base, table.patched, strict=True)
    ) and all(block.base.units == block.patched.units for block in blocks)
    for unit in _units(phase, blocks):
        per = _per(blocks, unit.name)
        if per is None:
            continue
        rows = _functions(table, per)
        number = listed([row.instructions.difference for _, row in rows])

        def summed(columns: Sequence[int], per: tuple[Floats, Floats] = per) -> Paired:
            return _summed(table, per, columns)

        functions = tuple(row for _, row in rows)
        total = summed(range(len(table.keys)))
        rest = sorted(column for column, _ in rows[number:])
        attributions.append(Attribution(
            case=case.name,
            phase=phase.name,
            unit=unit.name,
            unit_title=unit.title,
            headline=not attributions,
            seeds=tuple(block.seed for block in blocks),
            total=total,
            functions=functions,
            listed=number,
            others=summed(rest) if rest else None,
            groups=_groups(rows, summed, total),
            ratios=() if attributions else _ratios(phase, blocks, table),
            hints=find_hints(functions),
            identical=identical,
        ))  # fmt: skip
    return attributions


def attribute(
    manifest: Manifest,
    records: Sequence[RunRecord],
    profiles: Sequence[Profile],
    *,
    trusted: bool = True,
    ran: Mapping[tuple[str, str], Collection[str]] = MappingProxyType({}),
    calls: Calls | None = None,
) -> tuple[Attribution, ...]:
    """One attribution a case, phase and unit of work, in the order of the manifest.

    Only seeds for which both arms' measured runs have a profile count; repeats, twins
    and failed runs do not.  A unit of which some run did none is left out.  Where the session
    is not ``trusted``, because it is not finished or not exact, no function is called changed,
    and none of a phase that prepares others.  ``ran`` are the functions whose code differs, as far
    as a case's phase executed them: with ``calls`` they split what the phase moved by, and none is
    called changed of the functions that are not linked with them.
    """
    attributions: list[Attribution] = []
    counts_of: dict[int, changed_functions.PhaseCounts] = {}
    thresholds = manifest.experiment.thresholds
    for case, phase, blocks in profiled_phases(manifest, records, profiles):
        table = _table(blocks)
        here = _phase(case, phase, blocks, table)
        if here and not phase.prepares:
            names = ran.get((case.name, phase.name), ())
            divided = bool(names) and calls is not None
            # What boots differ by is in the rest, where there is one.
            smallest = None if divided else thresholds.own(case.name, f"{phase.name}.{FUNCTIONS}")
            counts = _counts(blocks, table, here[0].unit, smallest)
            counts_of[len(attributions)] = counts
            if divided and calls is not None:
                counted = _counted(blocks, table, here[0].unit, counts)
                parts = split(counted, names, network(counts.names, calls))
                here[0] = here[0].model_copy(update={"split": parts})
        attributions += here
    tests = changed_functions.changed(list(counts_of.values()) if trusted else [], thresholds.alpha)
    for at, tested in zip(counts_of, tests, strict=False):
        of = attributions[at].split
        functions = tuple(f for f in tested.changed if of is None or f.name in of.linked_with)
        attributions[at] = attributions[at].model_copy(
            update={"tested": tested.functions, "changed": functions}
        )
    return tuple(attributions)


def counted(phase: PhaseRecord, blocks: Sequence[SeedProfiles]) -> Counted | None:
    """What a phase's path is made of; None without a unit that every run counted."""
    unit = path_unit(phase, [run for block in blocks for run in (block.base, block.patched)])
    if unit is None:
        return None
    table = _table(blocks)
    return _counted(blocks, table, unit[0], _counts(blocks, table, unit[0]))


def _counted(
    blocks: Sequence[SeedProfiles],
    table: _FunctionTable,
    unit: str,
    counts: changed_functions.PhaseCounts,
) -> Counted:
    """The same per a unit; of a phase with a program a path is the kernel's alone."""
    per = _per(blocks, unit)
    assert per is not None
    counting = [at for at, key in enumerate(table.keys) if unit == WORK or not key.user]
    arms = zip((table.base, table.patched), per, strict=True)
    whole = [spent[:, counting].sum(axis=1) / units[:, 0] for (spent, _), units in arms]
    return Counted(counts.names, counts.instructions, counts.calls, whole)


def _counts(
    blocks: Sequence[SeedProfiles], table: _FunctionTable, unit: str, smallest: float | None = None
) -> changed_functions.PhaseCounts:
    """The kernel's functions per a unit; None for the usual smallest change."""
    per = _per(blocks, unit)
    assert per is not None
    kernel = [
        at for at, key in enumerate(table.keys)
        if not key.user and key.name not in (NOT_ATTRIBUTED, UNKNOWN)
    ]  # fmt: skip
    instructions, calls = (
        (table.base[kind][:, kernel] / per[0], table.patched[kind][:, kernel] / per[1])
        for kind in (0, 1)
    )
    return changed_functions.PhaseCounts(
        names=[table.keys[at].name for at in kernel],
        files=[table.files.get(table.keys[at], "") for at in kernel],
        lines=[table.lines.get(table.keys[at], (0, 0)) for at in kernel],
        instructions=instructions,
        calls=calls,
        total=float((table.base[0] / per[0]).sum(axis=1).mean()),
        smallest=smallest or changed_functions.SMALLEST,
    )
