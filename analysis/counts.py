"""Counts of both arms by key, per unit of work and paired by seed: what explanations share.

Pure.  What is counted explains a verdict and never makes one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, NamedTuple, TypeVar

import numpy as np

from analysis import paired
from analysis.paired import Floats, Paired
from experiment.spec import Published
from results.calls import Calls
from results.profile import Locks, PhaseProfile, Profile
from results.record import CaseRecord, Manifest, PhaseRecord, Record, RunRecord

T = TypeVar("T")
Key = TypeVar("Key", bound=tuple[object, ...] | str)
# What only one arm has is of it.
Arm = Literal["", "base", "patched"]
# What moved by less than this share of all is not worth a row, and so many rows are enough.
LEAST_SHARE, MOST_LISTED = 0.0005, 40
FAVOURITE_UNIT = "folio"


@dataclass(frozen=True)
class Recorded:
    """Two arms of a session and everything recorded of them: what explanations are made of.

    Records, profiles and locks are those of diagnostic runs, too.  The session's numbers are
    ``trusted`` where it is finished and exact.  ``ran`` are the functions whose code differs, as
    far as a case's phase executed them.  ``explained`` is what was explained before, by name.
    """

    manifest: Manifest
    records: Sequence[RunRecord]
    profiles: Sequence[Profile]
    trusted: bool = True
    ran: Mapping[tuple[str, str], Collection[str]] = field(default_factory=dict)
    calls: Calls | None = None
    locks: Sequence[Locks] = ()
    explained: dict[str, tuple[Record, ...]] = field(default_factory=dict)

    def published(self, case: str) -> list[Published]:
        """The published figures of a case that are of these two arms."""
        base = self.manifest.experiment.all_arms[0].name
        return [
            figure
            for spec in self.manifest.experiment.cases
            for figure in spec.published
            # Documents compare with their base: a step within a series has no published figure.
            if (spec.name, self.manifest.base) == (case, base)
            and figure.arm in ("", self.manifest.patched)
        ]


class BothArms(NamedTuple, Generic[T]):
    """One seed: the same of both arms' runs."""

    seed: int
    base: T
    patched: T


SeedProfiles = BothArms[PhaseProfile]


class Named(NamedTuple):
    """A kernel function, or one file of user code."""

    name: str
    user: bool


@dataclass(frozen=True)
class CountedPhase:
    """A phase whose runs have the counts in question on both arms, and the unit they are per."""

    case: CaseRecord
    phase: PhaseRecord
    blocks: Sequence[SeedProfiles]
    unit: str
    unit_title: str

    @property
    def runs(self) -> tuple[list[PhaseProfile], list[PhaseProfile]]:
        """By arm and seed."""
        return [block.base for block in self.blocks], [block.patched for block in self.blocks]

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds, in the order of the blocks."""
        return tuple(block.seed for block in self.blocks)

    @property
    def units(self) -> Floats:
        """Units of work done: (arms, seeds)."""
        return np.array([[run.units[self.unit] for run in arm] for arm in self.runs], np.float64)

    def per_unit(self, of: Callable[[PhaseProfile], float], scale: float = 1.0) -> Paired:
        """One number of each run, or ``scale`` times as much."""
        return paired.per([[of(run) for run in arm] for arm in self.runs], self.units, scale)


def paired_phases(
    recorded: Recorded, runs: Mapping[str, Mapping[str, T]], twin: str = ""
) -> Iterator[tuple[CaseRecord, PhaseRecord, list[BothArms[T]]]]:
    """Each case and phase that has seeds with something on both arms, and those seeds.

    ``runs`` has what there is of a run, by its id and phase.  In the order of the manifest; of the
    judged runs, or of a twin's.  Repeats and failed runs have no part in it.
    """
    base, patched = recorded.manifest.base, recorded.manifest.patched
    of_phase: dict[tuple[str, str], dict[int, dict[str, tuple[int, T]]]] = {}
    for record in recorded.records:
        if record.repeat or record.twin != twin or record.samples is None:
            continue
        for phase, each in runs.get(record.run_id, {}).items():
            of_block = of_phase.setdefault((record.case, phase), {}).setdefault(record.block, {})
            of_block[record.arm] = record.seed, each
    for case in recorded.manifest.cases:
        for of_case in case.phases:
            blocks = [
                BothArms(arms[base][0], arms[base][1], arms[patched][1])
                for _, arms in sorted(of_phase.get((case.name, of_case.name), {}).items())
                if base in arms and patched in arms
            ]
            if blocks:
                yield case, of_case, blocks


def profiled_phases(
    recorded: Recorded, twin: str = ""
) -> Iterator[tuple[CaseRecord, PhaseRecord, list[SeedProfiles]]]:
    """Each case and phase that has seeds with a profile on both arms, and those seeds."""
    runs = {each.run_id: {phase.phase: phase for phase in each.phases}
            for each in recorded.profiles}  # fmt: skip
    return paired_phases(recorded, runs, twin)


def unit_of(
    phase: PhaseRecord, runs: Sequence[PhaseProfile], favourite: str = ""
) -> tuple[str, str] | None:
    """Name and title of the unit that counts are given per: the first that every run counted.

    The ``favourite`` goes first, but where folios are huge: how many of them a unit of work needs
    is luck then.
    """
    favourite = favourite if phase.thp == "never" else ""
    for unit in sorted(phase.units, key=lambda unit: unit.name != favourite):
        if all(run.units.get(unit.name, 0.0) > 0 for run in runs):
            return unit.name, unit.title
    return None


def phases(
    recorded: Recorded, has: Callable[[PhaseProfile], bool], twin: str = "", favourite: str = ""
) -> Iterator[CountedPhase]:
    """The phases of the judged runs, or of a twin's, in which every run has the counts."""
    for case, phase, blocks in profiled_phases(recorded, twin):
        runs = [run for block in blocks for run in (block.base, block.patched)]
        unit = unit_of(phase, runs, favourite)
        if unit and all(map(has, runs)):
            yield CountedPhase(case, phase, blocks, *unit)


@dataclass(frozen=True)
class CountTable(Generic[Key]):
    """Sums by key: ``raw`` is (arms, seeds, keys, columns), ``units`` (arms, seeds)."""

    keys: list[Key]
    files: dict[Key, str]
    only_in: list[Arm]
    raw: Floats
    units: Floats

    @property
    def per_unit(self) -> Floats:
        """The same per unit of work."""
        return np.asarray(self.raw / self.units[:, :, None, None])

    def rows(self) -> list[list[Paired]]:
        """For each key, each column per unit."""
        _, seeds, keys, columns = self.raw.shape
        flat = self.per_unit.reshape(2, seeds, keys * columns)
        # All at once: a session has tens of thousands, and each array has a price.
        pairs = paired.columns(flat[0], flat[1])
        return [pairs[at * columns : (at + 1) * columns] for at in range(keys)]

    def total(self, keys: Sequence[int] | slice = slice(None)) -> list[Paired]:
        """Each column per unit over these keys, all without."""
        sums = self.raw[:, :, keys].sum(axis=2) / self.units[:, :, None]
        return [paired.pair(*sums[..., column]) for column in range(sums.shape[2])]


def table(
    here: CountedPhase,
    counted: Callable[[PhaseProfile], Iterable[tuple[Key, str, Sequence[float]]]],
    columns: int,
) -> CountTable[Key]:
    """Sums what ``counted`` has of each run: a key, its source file, a number a column."""
    at: dict[Key, int] = {}
    files: dict[Key, str] = {}
    where: list[tuple[int, int, int]] = []
    numbers: list[Sequence[float]] = []
    for arm, runs in enumerate(here.runs):
        for seed, run in enumerate(runs):
            for key, file, row in counted(run):
                where.append((arm, seed, at.setdefault(key, len(at))))
                numbers.append(row)
                files[key] = files.get(key) or file
    raw = np.zeros((2, len(here.blocks), len(at), columns))
    present = np.zeros((2, len(at)), np.bool_)
    if where:
        arms, seeds, places = np.array(where).T
        np.add.at(raw, (arms, seeds, places), np.array(numbers, np.float64))
        present[arms, places] = True
    keys = sorted(at)
    order = [at[key] for key in keys]
    only: list[Arm] = [
        "" if base and patched else "base" if base else "patched"
        for base, patched in present[:, order].T.tolist()
    ]
    return CountTable(keys, files, only, np.ascontiguousarray(raw[:, :, order]), here.units)


def share(count: Paired, whole: Paired) -> float:
    """How much of the whole a row moved; 0 within its scatter."""
    if count.within_scatter or max(whole.base, whole.patched) <= 0:
        return 0.0
    return abs(count.difference) / max(whole.base, whole.patched)


def listed(shares: Iterable[float]) -> int:
    """How many rows are worth one."""
    return min(sum(value >= LEAST_SHARE for value in shares), MOST_LISTED)
