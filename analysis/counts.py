"""Counts of both arms by key, per unit of work and paired by seed: what explanations share.

Pure.  What is counted explains a verdict and never makes one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat, starmap
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict

from analysis.statistics import student_quantile
from experiment.spec import Published
from results.profile import Annotation, Calls, Locks, PhaseProfile, Profile
from results.record import CaseRecord, Manifest, PhaseRecord, Record, RunCost, RunRecord

T = TypeVar("T")
Key = TypeVar("Key", bound=tuple[object, ...] | str)
Other = TypeVar("Other", bound=tuple[object, ...] | str)
Floats = npt.NDArray[np.float64]
# One row of numbers an arm, base first; one number a seed.
Table = Sequence[Sequence[float]] | Floats
# What only one arm has is of it.
Arm = Literal["", "base", "patched"]
# Counts explain and gate nothing: a plain 95 % interval, without correction for their number.
LEVEL = 0.95
# What moved by less than this share of all is not worth a row, and so many rows are enough.
LEAST_SHARE, MOST_LISTED = 0.0005, 40
FAVOURITE_UNIT = "folio"


# No Record: a night's session has two million, each of which would be checked for some
# microseconds and take a kilobyte.  What makes them checks what it is given.
@dataclass(frozen=True, slots=True)
class Paired:
    """One quantity on both arms over n seeds; every value in the quantity's own unit.

    ``base``, ``patched`` and ``difference`` (patched minus base) are arithmetic means,
    so that means of parts add up to the mean of the whole.  Ranges are the smallest and
    the largest seed.  ``low`` and ``high`` are Student's 95 % interval of the mean
    difference, None for one seed.
    """

    __pydantic_config__: ClassVar[ConfigDict] = Record.model_config

    base: float
    patched: float
    difference: float
    base_range: tuple[float, float]
    patched_range: tuple[float, float]
    difference_range: tuple[float, float]
    low: float | None
    high: float | None
    n: int

    def times(self, factor: float) -> Paired:
        """The quantity in another unit."""
        # By hand: a session has tens of thousands of them.
        (a, b), (c, d), (e, f) = self.base_range, self.patched_range, self.difference_range
        return Paired(
            factor * self.base,
            factor * self.patched,
            factor * self.difference,
            (factor * a, factor * b),
            (factor * c, factor * d),
            (factor * e, factor * f),
            self.low and factor * self.low,
            self.high and factor * self.high,
            self.n,
        )

    @property
    def both(self) -> float:
        """How much there is of it on both arms."""
        return self.base + self.patched

    @property
    def change(self) -> float | None:
        """Difference as a fraction of base; None where base is zero."""
        return self.difference / self.base if self.base else None

    @property
    def equal(self) -> bool:
        """Whether every seed has the same value on both arms, to the last digit."""
        return self.difference_range == (0.0, 0.0)

    @property
    def within_scatter(self) -> bool:
        """Whether the seeds scatter so much that the mean difference may be zero."""
        if self.equal or self.low is None or self.high is None:
            return False
        return self.low <= 0 <= self.high

    @property
    def is_uncertain(self) -> bool:
        """Whether the arms differ by what may be chance: within the scatter, or of one seed."""
        return self.within_scatter or (self.n < 2 and not self.equal)

    @property
    def is_significant(self) -> bool:
        """Whether the arms differ, and beyond what the seeds scatter by."""
        return not self.equal and not self.within_scatter


def columns(base: Floats, patched: Floats) -> list[Paired]:
    """One :class:`Paired` a column of two matrices of shape (seeds, columns).

    Raises:
        ValueError: shapes that differ, no seed, or a value that is not finite.
    """
    if base.ndim != 2 or base.shape != patched.shape or not base.shape[0]:
        raise ValueError(f"pairs need two equal matrices with rows: {base.shape}, {patched.shape}")
    n = base.shape[0]
    apart = patched - base
    if not np.isfinite(apart).all():
        raise ValueError("pairs need finite numbers")
    means = [matrix.mean(axis=0) for matrix in (base, patched, apart)]
    half = (
        student_quantile(LEVEL, n - 1) * apart.std(axis=0, ddof=1) / math.sqrt(n)
        if n > 1
        else np.zeros(base.shape[1])
    )
    # The mean of equal differences may be off by a last bit: exactly equal stays exact.
    constant = (apart == apart[0]).all(axis=0)
    means[2] = np.where(constant, apart[0], means[2])
    half = np.where(constant, 0.0, half)
    ends = [
        list(zip(matrix.min(axis=0).tolist(), matrix.max(axis=0).tolist(), strict=True))
        for matrix in (base, patched, apart)
    ]
    low, high = ((means[2] + way * half).tolist() if n > 1 else repeat(None) for way in (-1, 1))
    # Numbers of Python's own, by place: taking thousands out of arrays takes longer than all else.
    rows = zip(*(mean.tolist() for mean in means), *ends, low, high, repeat(n))
    return list(starmap(Paired, rows))


def pair(base: Sequence[float] | Floats, patched: Sequence[float] | Floats) -> Paired:
    """One quantity from its values by seed, in the same order on both arms.

    Raises:
        ValueError: lengths that differ, or no seed.
    """
    both = (np.asarray(row, dtype=np.float64).reshape(-1, 1) for row in (base, patched))
    return columns(*both)[0]


def ratios(above: Floats, below: Floats, scale: float = 1.0) -> list[Paired | None]:
    """``scale * above / below``, a column each, of two arrays of shape (2 arms, seeds, columns).

    None where a divisor is not above zero.  ``below`` may have one column for all.

    Raises:
        ValueError: shapes that differ, or no seed.
    """
    below = np.broadcast_to(below, above.shape)
    known = np.asarray((below > 0).all(axis=(0, 1)), dtype=np.bool_)
    both = scale * above[:, :, known] / below[:, :, known]
    pairs = iter(columns(both[0], both[1]))
    return [next(pairs) if is_known else None for is_known in known.tolist()]


def ratio(above: Table, below: Table, scale: float = 1.0) -> Paired | None:
    """``scale * above / below`` by arm and seed; None where a divisor is not above zero."""
    top, bottom = (np.asarray(each, dtype=np.float64)[:, :, None] for each in (above, below))
    return ratios(top, bottom, scale)[0]


def per(above: Table, below: Table, scale: float = 1.0) -> Paired:
    """:func:`ratio` where the divisors are known to be above zero.

    Raises:
        ValueError: one of them is not.
    """
    pair = ratio(above, below, scale)
    if pair is None:
        raise ValueError(f"not above zero: {below}")
    return pair


@dataclass(frozen=True)
class Recorded:
    """Two arms of a session and everything recorded of them: what explanations are made of.

    Records, profiles and locks are those of diagnostic runs, too.  The session's numbers are
    ``trusted`` where it is finished and exact.  ``ran`` are the functions whose code differs, as
    far as a case's phase executed them; not there where that is unknown, or where arms differ in
    settings, so that all code may act otherwise.  ``kept`` is what was made of all this before.
    """

    manifest: Manifest
    records: Sequence[RunRecord]
    profiles: Sequence[Profile]
    trusted: bool = True
    ran: Mapping[tuple[str, str], Collection[str]] = field(default_factory=dict)
    calls: Calls | None = None
    locks: Sequence[Locks] = ()
    costs: Sequence[RunCost] = ()
    annotation: Annotation | None = None
    kept: dict[str, Any] = field(default_factory=dict)

    def once(self, name: str, compute: Callable[[], T]) -> T:
        """What has this name, made at its first use and kept."""
        if name not in self.kept:
            self.kept[name] = compute()
        made: T = self.kept[name]
        return made

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


class OnePhase(Record):
    """What was counted in one phase of one case; ``seeds`` are those that both arms have."""

    case: str
    phase: str
    unit_title: str
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class CountedPhase:
    """A phase whose runs have the counts in question on both arms, and the unit they are per."""

    case: CaseRecord
    phase: PhaseRecord
    blocks: Sequence[SeedProfiles]
    unit: str
    unit_title: str

    @functools.cached_property
    def runs(self) -> tuple[list[PhaseProfile], list[PhaseProfile]]:
        """By arm and seed."""
        return [block.base for block in self.blocks], [block.patched for block in self.blocks]

    @property
    def every(self) -> list[PhaseProfile]:
        """All runs, those of a seed beside each other."""
        return [run for block in self.blocks for run in block[1:]]

    @property
    def where(self) -> dict[str, Any]:
        """The fields of :class:`OnePhase`."""
        seeds = tuple(block.seed for block in self.blocks)
        names = {"case": self.case.name, "phase": self.phase.name}
        return {**names, "unit_title": self.unit_title, "seeds": seeds}

    @property
    def units(self) -> Floats:
        """Units of work done: (arms, seeds)."""
        return np.array([[run.units[self.unit] for run in arm] for arm in self.runs], np.float64)

    def per_unit(self, of: Callable[[PhaseProfile], float], scale: float = 1.0) -> Paired:
        """One number of each run, or ``scale`` times as much."""
        return per([[of(run) for run in arm] for arm in self.runs], self.units, scale)

    def table(
        self, counted: Callable[[PhaseProfile], Iterable[Row[Key]]], columns: int
    ) -> CountTable[Key]:
        """Sums of what ``counted`` has of each run."""
        return table(self.runs, self.units, counted, columns)


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
    runs = {
        each.run_id: {phase.phase: phase for phase in each.phases} for each in recorded.profiles
    }
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
        runs = [run for block in blocks for run in block[1:]]
        unit = unit_of(phase, runs, favourite)
        if unit and all(map(has, runs)):
            yield CountedPhase(case, phase, blocks, *unit)


# A key, the source file where it has one, and a number a column.
Row = tuple[Key, str, Sequence[float]]


@dataclass(frozen=True)
class CountTable(Generic[Key]):
    """Sums by key: ``raw`` is (arms, seeds, keys, columns), ``units`` (arms, seeds).

    ``present`` tells of each arm which keys it has: (arms, keys).
    """

    keys: list[Key]
    files: dict[Key, str]
    present: npt.NDArray[np.bool_]
    raw: Floats
    units: Floats

    @property
    def only_in(self) -> list[Arm]:
        """For each key the arm that alone has it."""
        both = self.present.T.tolist()
        return ["" if base and patched else "base" if base else "patched" for base, patched in both]

    @property
    def per_unit(self) -> Floats:
        """The same per unit of work."""
        return np.asarray(self.raw / self.units[:, :, None, None])

    def rows(self) -> list[list[Paired]]:
        """For each key, each column per unit."""
        _, seeds, keys, columns_ = self.raw.shape
        flat = self.per_unit.reshape(2, seeds, keys * columns_)
        # All at once: a session has tens of thousands, and each array has a price.
        pairs = columns(flat[0], flat[1])
        return [pairs[at * columns_ : (at + 1) * columns_] for at in range(keys)]

    def grouped(self, group: Callable[[Key], Other]) -> CountTable[Other]:
        """The sums of keys that ``group`` makes one of; without files."""
        groups = [group(key) for key in self.keys]
        keys = sorted({*groups})
        at = {key: place for place, key in enumerate(keys)}
        places = [at[key] for key in groups]
        raw = np.zeros((*self.raw.shape[:2], len(keys), self.raw.shape[3]))
        np.add.at(np.moveaxis(raw, 2, 0), places, np.moveaxis(self.raw, 2, 0))
        present = np.zeros((2, len(keys)), np.bool_)
        np.logical_or.at(present.T, places, self.present.T)
        return CountTable(keys, {}, present, raw, self.units)

    def places(self) -> list[dict[str, Any]]:
        """Of keys that are :class:`Named`: what a record says of where a row was counted."""
        return [
            {**key._asdict(), "file": self.files[key], "only_in": only_in}
            for key, only_in in zip(self.keys, self.only_in, strict=True)
            if isinstance(key, Named)
        ]

    def total(self, keys: Sequence[int] | slice = slice(None)) -> list[Paired]:
        """Each column per unit over these keys, all without."""
        sums = self.raw[:, :, keys].sum(axis=2) / self.units[:, :, None]
        return [pair(*sums[..., column]) for column in range(sums.shape[2])]


def table(
    runs: Sequence[Sequence[T]],
    units: Floats,
    counted: Callable[[T], Iterable[Row[Key]]],
    columns: int,
) -> CountTable[Key]:
    """Sums of what ``counted`` has of each run, by arm and seed."""
    every = [[list(counted(run)) for run in arm] for arm in runs]
    keys = sorted({key for arm in every for rows in arm for key, _, _ in rows})
    at = {key: place for place, key in enumerate(keys)}
    files = dict.fromkeys(keys, "")
    # Of files the first that is known.
    for rows in (rows for arm in reversed(every) for rows in reversed(arm)):
        files.update((key, file) for key, file, _ in reversed(rows) if file)
    raw = np.zeros((2, len(runs[0]), len(keys), columns))
    present = np.zeros((2, len(keys)), np.bool_)
    for arm, of_arm in enumerate(every):
        for seed, rows in enumerate(of_arm):
            if rows:
                places = [at[key] for key, _, _ in rows]
                numbers = np.array([row for _, _, row in rows], np.float64)
                np.add.at(raw[arm, seed], places, numbers)
                present[arm, places] = True
    return CountTable(keys, files, present, raw, units)


def share(count: Paired, whole: Paired) -> float:
    """How much of the whole a row moved; 0 within its scatter."""
    if count.within_scatter or max(whole.base, whole.patched) <= 0:
        return 0.0
    return abs(count.difference) / max(whole.base, whole.patched)


def listed(shares: Iterable[float]) -> int:
    """How many rows are worth one."""
    return min(sum(value >= LEAST_SHARE for value in shares), MOST_LISTED)
