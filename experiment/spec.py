"""The question in one file, as frozen values.

Sizes are given at the original's scale; a guest divides all of them by its
``scale``, so that the ratios between cgroup limit, file and brd stay those of
the original at every size.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, field_validator, model_validator

from experiment.arms import MOST_JOBS, MOST_MIB, MOST_S
from experiment.arms import PREBUILT as PREBUILT
from experiment.arms import REAL_TIME as REAL_TIME
from experiment.arms import ArmSpec as ArmSpec
from experiment.arms import Guest as Guest
from experiment.arms import KernelSpec as KernelSpec
from experiment.arms import Mode as Mode
from experiment.arms import SeriesSpec as SeriesSpec
from experiment.arms import ShapeSpec as ShapeSpec
from experiment.arms import WallShape as WallShape
from experiment.frozen import WRITTEN_BY_LAB, Frozen, Name
from experiment.frozen import Direction as Direction

# Self-tests of the kernel's own that run as it boots (workloads/selftests.toml).
Selftest = Literal["xarray", "ida"]


class CheckSpec(Frozen):
    """Correctness checks, made on every arm."""

    flavour: Name = "lockdep"
    """The kernel that watches itself while it does short forms of the cases."""
    vcpus: Annotated[tuple[Annotated[int, Field(ge=1, le=64)], ...], Field(max_length=64)] = (1, 4)
    """One guest of that kernel for each number of vCPUs; empty: no such kernel is built."""
    selftest_flavour: Name = "selftest"
    """The kernel that runs self-tests as it boots."""
    selftests: tuple[Selftest, ...] = ("xarray",)
    """The kernel's own self-tests; empty: no such kernel is built."""
    cases: tuple[str, ...] = ()
    """Cases whose short form is run; empty: all."""

    def _mistakes(self) -> Iterator[str]:
        if not self.vcpus and not self.selftests:
            yield "vcpus and selftests are both empty: nothing would be checked"

    @property
    def flavours(self) -> tuple[str, ...]:
        """The kernel flavours it needs."""
        watching = (self.flavour,) if self.vcpus else ()
        own = (self.selftest_flavour,) if self.selftests else ()
        return tuple(dict.fromkeys([*watching, *own]))


# Each look has a fifth to a half more seeds than the one before: more looks would each have a
# smaller share of the error rates, fewer would measure many seeds that were not needed.
SEED_LOOKS = (8, 10, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768)


class Looks(NamedTuple):
    """Numbers of seeds after which a session was or will be judged, in ascending order.

    ``sequential`` is true where seeds are added until the verdicts are decided; then each look
    has a share of the error rates (``analysis.power``).  Otherwise there is one look.
    """

    seeds: tuple[int, ...]
    sequential: bool


def looks_of(first: int, most: int | None, until: int | None = None) -> Looks:
    """The looks of a session that begins with ``first`` seeds and has ``most`` at most.

    ``most`` is None for a fixed number of seeds.  ``until`` ends the looks before ``most``: what
    a session with that many seeds has had so far.
    """
    if most is None:
        return Looks((first,), sequential=False)
    end = most if until is None else min(most, until)
    between = tuple(seeds for seeds in SEED_LOOKS if first < seeds <= end)
    return Looks((first, *between), sequential=True)


def budgets(first: int) -> tuple[int, ...]:
    """The numbers of seeds that may be the most of a session that begins with ``first``."""
    return (first, *(seeds for seeds in SEED_LOOKS if seeds > first))


# The word that ends the id of a run that checks exactness.
REPEAT = "repeat"


Mib = Annotated[int, Field(ge=0, le=MOST_MIB)]


class Dataset(Frozen):
    """Sizes of the original set-up, before a guest divides them by its ``scale``."""

    cgroup_limit_mib: Mib = 0
    """Limit of the measured memory cgroup, MiB; 0: no limit."""
    memory_mib: Mib = 0
    """Without a cgroup limit: memory left for the page cache, MiB; 0: room for all files."""
    brd_mib: Mib = 0
    """Size of the ramdisk, MiB; 0: no device, for tmpfs."""
    file_mib: Annotated[int, Field(gt=0, le=MOST_MIB)]
    """Size of all files together, MiB; smaller than ``brd_mib``."""
    jobs: Annotated[int, Field(gt=0, le=MOST_JOBS)]
    """Number of fio jobs of the original; the guest's ``jobs`` is what runs."""

    def _mistakes(self) -> Iterator[str]:
        if self.brd_mib and self.file_mib >= self.brd_mib:
            yield f"file_mib ({self.file_mib}) must be smaller than brd_mib ({self.brd_mib})"


class Published(Frozen):
    """A figure printed in the original document, shown beside ours as reference."""

    metric: str
    """As in ``primary``: ``phase.metric``."""
    unit: str
    """Unit of both figures, as printed."""
    base: float
    """The figure without the series."""
    patched: float
    """The figure with it, or of ``arm``."""
    document: str
    """Where it is printed, and when."""
    note: str = ""
    """What a reader should know of it."""
    arm: str = ""
    """Name of the arm it is of; empty where there are two arms."""

    @property
    def change(self) -> float:
        """(patched - base) / base, computed and never copied from the document."""
        return (self.patched - self.base) / self.base


class PhaseTimes(Frozen):
    """How much a phase does: a number of I/Os, or a ramp and a measured time.

    With ``ios`` both arms do the same I/Os from the first to the last, and none is cut off by
    the end; there is no ramp, what is cold is cold on both.
    """

    ramp_s: Annotated[float, Field(ge=0, le=MOST_S)] = 0.0
    """Seconds before the measured time; goes with ``runtime_s``."""
    runtime_s: Annotated[float, Field(gt=0, le=MOST_S)] | None = None
    """Measured seconds (virtual ones in exact mode); this or ``ios``."""
    ios: Annotated[int, Field(ge=1, le=10**12)] | None = None
    """I/Os of all jobs together; this or ``runtime_s``."""

    def _mistakes(self) -> Iterator[str]:
        if (self.runtime_s is None) == (self.ios is None):
            yield "exactly one of runtime_s and ios is wanted"
        if self.ios is not None and self.ramp_s:
            yield "ramp_s goes with runtime_s: with ios there is no ramp"


Change = Annotated[float, Field(gt=0, lt=1)]


class CaseSpec(Frozen):
    """A workload, one of its variants, and what is judged."""

    workload: Name
    """A file of ``workloads/catalogue/``."""
    variant: Name = "default"
    """One of the workload's variants."""
    primary: tuple[str, ...] = ()
    """Metrics that get a verdict, as ``phase.metric``; all others are shown beside them."""
    wall_primary: tuple[str, ...] = ()
    """The same in wall mode, where other metrics are judged; empty: as ``primary``."""
    thresholds: dict[str, Change] = Field(default_factory=dict)
    """Smallest change that matters, by metric, in place of the workload's."""
    times: dict[str, dict[str, PhaseTimes]] = Field(default_factory=dict)
    """How much each phase of fio does, by guest and phase: ``times.laptop.4k``."""
    published: tuple[Published, ...] = ()
    """Figures of the original document."""

    @property
    def name(self) -> str:
        """The case's name in records and reports."""
        return self.workload if self.variant == "default" else f"{self.workload}:{self.variant}"

    def judged(self, mode: Mode) -> tuple[str, ...]:
        """The metrics that are judged in a mode."""
        return self.wall_primary or self.primary if mode == "wall" else self.primary


# In place of a metric's name: any kernel function of a phase, by its share of the phase.
FUNCTIONS = "functions"


class Thresholds(Frozen):
    """The smallest change that matters, and error rates: fractions, not percent."""

    change: Change = 0.0025
    """Smallest change that matters; without it 0.01 in wall mode."""
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.01
    """Error rate of improvement and regression."""
    equivalence_alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    """Error rate of each of the two one-sided tests of "no change"."""
    metrics: dict[str, Change] = Field(default_factory=dict)
    """Smallest change of metrics: of a case (``"filemap-thp/thp.work"``), else of every one."""

    def own(self, case: str, metric: str) -> float | None:
        """The smallest change that a metric has of its own; None for the one of all metrics."""
        return self.metrics.get(of_case(case, metric), self.metrics.get(metric))

    def of(self, case: str, metric: str) -> Thresholds:
        """The thresholds by which one metric is judged."""
        own = self.own(case, metric)
        return self if own is None else self.model_copy(update={"change": own})


def of_case(case: str, metric: str) -> str:
    """The name of one case's metric among ``Thresholds.metrics``."""
    return f"{case}/{metric}"


Observed = Literal["contention", "memory", "lines"]
# Of what none of the kernel's own words are read: the probe models a machine and counts.
MEMORY: Observed = "memory"
LINES: Observed = "lines"
CONTENTION: Observed = "contention"
MODELLED = (MEMORY, LINES)


class TwinSpec(Frozen):
    """Diagnostic runs: more runs of the same arms, which explain and are never judged.

    They have another guest shape, something that is read in the guest, or a plugin that
    models caches, so that none of their numbers compares with those of the judged runs.
    """

    name: Name
    """Of these diagnostic runs, in reports."""
    observe: Observed
    """What is read: ``contention``, the kernel's events of waits for locks; ``memory``: what a
    modelled machine's caches and TLBs miss; ``lines``: which lines move between its CPUs, in a
    guest with several vCPUs.
    """
    machine: Name | None = None
    """With ``memory`` and ``lines``: the machine, a file of ``configs/machines/``."""
    cases: Annotated[tuple[str, ...], Field(min_length=1)]
    """Cases that are run, as ``workload`` or ``workload:variant``."""
    blocks: Annotated[int, Field(ge=1, le=1000)] = 2
    """Seeds of these runs (in wall mode: blocks)."""
    guest: ShapeSpec = ShapeSpec()
    """Changes of the guest's shape."""

    def _mistakes(self) -> Iterator[str]:
        if (self.observe in MODELLED) != (self.machine is not None):
            yield "machine goes with observe = 'memory' or 'lines', and both are wanted"


Compare = Literal["base", "pairs", "steps"]
# Beyond that nobody reads the table, and Holm leaves nothing to see.
MOST_ARMS = 32
# Smallest change worth a word where time is real: a quiet host has a spread of 0.5 to
# 2 % between boots.
WALL_CHANGE = 0.01


class WallSpec(Frozen):
    """How a wall session is made."""

    attempts: Annotated[int, Field(ge=1, le=10)] = 2
    """Times that a run is tried whose guest was lost to the host."""

    @model_validator(mode="before")
    @classmethod
    def _without_ended_key(cls, data: object) -> object:
        """Every session on record of before has the key, and false says what is so now."""
        if isinstance(data, dict) and data.get("early_looks") is False:
            return {key: value for key, value in data.items() if key != "early_looks"}
        return data


class Experiment(Frozen):
    """One experiment file, complete and checked against the catalogues.

    ``blocks`` is the number of seeds (of blocks in wall mode, of rounds in native mode).  With
    ``max_seeds`` a session adds some, up to that many, until every primary metric is decided.
    """

    name: Name
    """Of the experiment, in records, folders and the history."""
    title: str
    """One line for the head of the report."""
    question: str = ""
    """What the experiment asks, in one sentence."""
    mode: Mode = "exact"
    """``exact``: virtual time, an instruction is a nanosecond; ``wall``: the host's time;
    ``native``: that of a kernel which is a process of the host.
    """
    wall: WallSpec = WallSpec()
    """How a wall session is made."""
    kernel: KernelSpec
    """The kernel of all arms that name none."""
    series: SeriesSpec | None = None
    """The patches under test; makes two arms, ``base`` and ``patched``, where ``arms`` is empty."""
    arms: tuple[ArmSpec, ...] = ()
    """What is compared, the base first: 2 to 32."""
    compare: Compare = "base"
    """Pairs that are judged: each arm against the base, all pairs, or each against the one before.
    """
    guest: Name = "laptop"
    """A file of ``configs/guests/``."""
    dataset: Dataset
    """Sizes at the scale of the original."""
    cases: Annotated[tuple[CaseSpec, ...], Field(min_length=1, max_length=256)]
    """Workloads, and which of their metrics are judged."""
    blocks: Annotated[int, Field(ge=1, le=1000)] = 8
    """Seeds that every arm runs of every case; in wall mode blocks, in native mode rounds."""
    max_seeds: Annotated[int, Field(ge=1, le=1000)] | None = None
    """The most seeds (blocks, rounds) of a session that adds some until every primary metric is
    decided; without it their number is fixed.
    """
    seed: Annotated[int, Field(ge=1, le=2**31 - 1)] = 1
    """The first seed; the others are the numbers behind it."""
    thresholds: Thresholds = Thresholds()
    """The smallest change that matters, and error rates."""
    twins: tuple[TwinSpec, ...] = ()
    """Diagnostic runs, which explain and are never judged."""
    check: CheckSpec | None = None
    """Correctness checks of every arm; without this table none are made."""
    unbuilt: Annotated[tuple[Name, ...], WRITTEN_BY_LAB] = ()
    """The arms whose kernel did not build."""

    @field_validator("cases")
    @classmethod
    def _cases_differ(cls, cases: tuple[CaseSpec, ...]) -> tuple[CaseSpec, ...]:
        names = [case.name for case in cases]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"case named twice: {', '.join(twice)}")
        return cases

    @field_validator("twins")
    @classmethod
    def _twins_differ(cls, twins: tuple[TwinSpec, ...]) -> tuple[TwinSpec, ...]:
        names = [twin.name for twin in twins]
        repeated = sorted({name for name in names if names.count(name) > 1 or name == REPEAT})
        if repeated:
            raise ValueError(f"twin named twice, or {REPEAT!r}: {', '.join(repeated)}")
        return twins

    def _mistakes(self) -> Iterator[str]:
        allowed = budgets(self.blocks)
        if self.max_seeds is not None and self.max_seeds not in allowed:
            yield (
                f"max_seeds: found {self.max_seeds}; with blocks = {self.blocks} a session is "
                f"judged after {', '.join(map(str, allowed))} seeds; write one of these, or leave "
                "max_seeds out for a fixed number"
            )
        cases = [case.name for case in self.cases]
        checked = self.check.cases if self.check else ()
        explained = [(f"twins: {twin.name}", twin.cases) for twin in self.twins]
        for place, names in (*explained, ("check", checked)):
            if unknown := [name for name in names if name not in cases]:
                yield f"{place}: no such case: {', '.join(unknown)}; known: {', '.join(cases)}"
        arms = [arm.name for arm in self.all_arms]
        for case, figure in ((each, f) for each in self.cases for f in each.published):
            if figure.arm and figure.arm not in arms:
                yield (
                    f"cases: {case.name}: published: no such arm: {figure.arm}; "
                    f"known: {', '.join(arms)}"
                )
        yield from self._mistakes_of_arms(arms)
        prebuilt = self.prebuilt
        if prebuilt and self.mode in REAL_TIME:
            yield f"mode: {self.mode} boots no prebuilt kernel, as that of {prebuilt[0]}"
        if prebuilt and self.check is not None:
            yield f"check: kernels are built for it, and that of {prebuilt[0]} is not"
        arch = self.kernel.arch
        for arm in self.all_arms:
            if arm.kernel is not None and arm.kernel.arch != arch:
                yield (
                    f"arms: {arm.name}: its kernel is for {arm.kernel.arch}, the experiment's for "
                    f"{arch}; write the same arch in both"
                )
        if arch != "x86_64" and self.mode in REAL_TIME:
            # virtme-ng's guests, and phases of native mode, are of one architecture alone.
            yield f"mode: {self.mode} has guests of x86_64 only, and the kernel is for {arch}"

    def _mistakes_of_arms(self, names: Sequence[str]) -> Iterator[str]:
        if not self.arms and self.series is None:
            yield "arms: none given, and no series to make two of"
        if self.arms and not 2 <= len(self.arms) <= MOST_ARMS:
            yield f"arms: {len(self.arms)} given, 2 to {MOST_ARMS} can be compared"
        if twice := sorted({name for name in names if names.count(name) > 1}):
            yield f"arms: two arms are named {twice[0]!r}"
        for arm in self.all_arms:
            if self.series is None and (arm.patches or arm.upto is not None):
                yield f"arms: {arm.name}: patches, and the experiment has no series"
            if arm.upto is not None and not arm.patches:
                yield f"arms: {arm.name}: upto counts patches; patches = true is wanted"
            if arm.name in self.prebuilt and (arm.patches or arm.series is not None):
                yield f"arms: {arm.name}: no patch can be applied to a prebuilt kernel"

    def twin(self, name: str) -> TwinSpec:
        """The twin of this name."""
        return next(twin for twin in self.twins if twin.name == name)

    @property
    def repeated(self) -> str:
        """What a session repeats, in the plural: ``seeds``, or in real time ``blocks``."""
        return "blocks" if self.mode in REAL_TIME else "seeds"

    def looks(self, until: int | None = None) -> Looks:
        """After how many seeds a session is judged; ``until`` as in ``looks_of``."""
        if self.max_seeds is None:
            return looks_of(until or self.blocks, None)
        return looks_of(self.blocks, self.max_seeds, until)

    @property
    def all_arms(self) -> tuple[ArmSpec, ...]:
        """The arms in order, base first; derived from the series unless given."""
        if self.arms or self.series is None:
            return self.arms
        return (
            ArmSpec(name="base", label="without the series", patches=self.series.reverse),
            ArmSpec(name="patched", label="with the series", patches=not self.series.reverse),
        )

    @property
    def prebuilt(self) -> tuple[str, ...]:
        """The arms whose kernel is booted as somebody else built it, by name."""
        arms = ((arm.name, arm.kernel or self.kernel) for arm in self.all_arms)
        return tuple(name for name, kernel in arms if kernel.is_prebuilt)

    @property
    def compared(self) -> tuple[tuple[str, str], ...]:
        """Pairs of arms that are compared; ``steps``: each with the last built, and the whole."""
        names = [arm.name for arm in self.all_arms]
        if self.compare == "pairs":
            return tuple(itertools.combinations(names, 2))
        if self.compare == "steps":
            built = [name for name in names if name not in self.unbuilt]
            steps = [
                (next(each for each in reversed(names[:at]) if each in built), name)
                for at, name in enumerate(names)
                if at
            ]
            whole = [(names[0], built[-1])] if len(names) > 2 else []
            return tuple(dict.fromkeys((*steps, *whole)))
        return tuple((names[0], name) for name in names[1:])
