"""The question in one file, as frozen values.

Sizes are given at the original's scale; a guest divides all of them by its
``scale``, so that the ratios between cgroup limit, file and brd stay those of
the original at every size.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Direction = Literal["higher", "lower"]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
# The word that ends the id of a run that checks exactness.
REPEAT = "repeat"


class SpecError(ValueError):
    """What is asked makes no sense; ``problems`` has one line for each mistake."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Frozen(BaseModel):
    """Base of every specification: immutable, strict about types and keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class KernelSpec(Frozen):
    """Where the source comes from and how it is configured.

    ``source`` is ``deb:PACKAGE``, ``tarball:PATH``, ``dir:PATH`` or
    ``git:PATH@REF``; ``flavour`` names ``configs/kconfig/<flavour>.config``.
    """

    source: Annotated[str, Field(pattern=r"^(deb|tarball|dir|git):.+$")]
    flavour: Name = "perf"


class SeriesSpec(Frozen):
    """Ordered patches under test.

    ``path`` is a folder of ``*.patch`` files, an mbox or patch file (relative ones
    start at the checkout), ``mid:MESSAGE-ID`` or a link to one, or
    ``git:REPOSITORY@A..B``; each of ``stack`` is applied on top of the one before.
    With ``reverse`` the source already holds the series and the patches take it out:
    the base arm is built with them, the patched arm is the source as it is.  With
    ``revert`` besides, the patches are the series as it was posted, and are turned
    around, last first, to take it out.
    ``kept`` is written by the lab: the key of the patches as they were taken in.
    """

    path: str
    stack: tuple[str, ...] = ()
    title: str = ""
    reverse: bool = False
    revert: bool = False
    kept: Annotated[str, Field(pattern=r"^([0-9a-f]{32})?$")] = ""

    @model_validator(mode="after")
    def _reverts_what_is_held(self) -> SeriesSpec:
        if self.revert and not self.reverse:
            raise ValueError("revert needs reverse = true: the source holds the series")
        return self

    @property
    def parts(self) -> tuple[str, ...]:
        """Every series, in the order they apply."""
        return (self.path, *self.stack)


class ArmSpec(Frozen):
    """One side compared; ``patches`` says whether the folder's patches are applied."""

    name: Name
    label: str = ""
    patches: bool


class Dataset(Frozen):
    """Sizes of the original set-up, in MiB, before a guest scales them down.

    ``file_mib`` is that of all files together.  Without ``cgroup_limit_mib`` there is no
    limit, and the page cache has ``memory_mib``, or else room for all files; without
    ``brd_mib`` there is no device, for tmpfs.
    """

    cgroup_limit_mib: Annotated[int, Field(ge=0)] = 0
    memory_mib: Annotated[int, Field(ge=0)] = 0
    brd_mib: Annotated[int, Field(ge=0)] = 0
    file_mib: Annotated[int, Field(gt=0)]
    jobs: Annotated[int, Field(gt=0)]

    @model_validator(mode="after")
    def _file_fits(self) -> Dataset:
        if self.brd_mib and self.file_mib >= self.brd_mib:
            raise ValueError(
                f"file_mib ({self.file_mib}) must be smaller than brd_mib ({self.brd_mib})"
            )
        return self


class Published(Frozen):
    """A figure printed in the original document, shown beside ours as reference."""

    metric: str
    unit: str
    base: float
    patched: float
    document: str
    note: str = ""

    @property
    def change(self) -> float:
        """(patched - base) / base, computed and never copied from the document."""
        return (self.patched - self.base) / self.base


class PhaseTimes(Frozen):
    """Ramp and measured time of one phase, in seconds."""

    ramp_s: Annotated[float, Field(ge=0)]
    runtime_s: Annotated[float, Field(gt=0)]


class CaseSpec(Frozen):
    """A workload, one of its variants, and what is judged.

    ``primary`` holds ``phase.metric`` names; ``times`` gives ramp and run time by
    guest profile, then by phase (``times.laptop.4k``).
    """

    workload: Name
    variant: Name = "default"
    primary: tuple[str, ...] = ()
    times: dict[str, dict[str, PhaseTimes]]
    published: tuple[Published, ...] = ()

    @property
    def name(self) -> str:
        """The case's name in records and reports."""
        return self.workload if self.variant == "default" else f"{self.workload}:{self.variant}"


class Thresholds(Frozen):
    """Smallest change someone cares about, and error rates (fractions, not %)."""

    change: Annotated[float, Field(gt=0, lt=1)] = 0.0025
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.01
    equivalence_alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.05


class WallShape(Frozen):
    """What only a guest of wall mode has.

    ``huge_pages`` takes the guest's memory from the host's reserved 2 MiB pages;
    ``cpu`` is QEMU's model, empty for the host's own.
    """

    huge_pages: bool = False
    cpu: str = ""


class Guest(Frozen):
    """The shape of the VM: one file under ``configs/guests/``.

    vCPUs and memory are split evenly over ``numa_nodes``; in wall mode each is bound
    to a host node where the host has as many.  ``cpu`` and ``metronome_ns`` are of
    exact mode, ``wall`` of wall mode.
    """

    name: Name
    title: str
    vcpus: Annotated[int, Field(ge=1, le=64)]
    memory_mib: Annotated[int, Field(ge=128)]
    cpu: str
    scale: Annotated[int, Field(ge=1)]
    jobs: Annotated[int, Field(ge=1)]
    boot_timeout_s: Annotated[float, Field(gt=0)]
    silence_timeout_s: Annotated[float, Field(gt=0)]
    run_timeout_s: Annotated[float, Field(gt=0)]
    metronome_ns: Annotated[int, Field(ge=0)] = 0
    numa_nodes: Annotated[int, Field(ge=1, le=16)] = 1
    wall: WallShape = WallShape()

    @model_validator(mode="before")
    @classmethod
    def _nodes_are_of_both_modes(cls, data: Any) -> Any:
        """Take ``wall.numa_nodes`` for ``numa_nodes``: sessions recorded it there."""
        wall = data.get("wall") if isinstance(data, dict) else None
        if not isinstance(wall, dict) or "numa_nodes" not in wall:
            return data
        if "numa_nodes" in data:
            raise ValueError("numa_nodes and wall.numa_nodes: the same; keep numa_nodes")
        rest = {key: value for key, value in wall.items() if key != "numa_nodes"}
        return {**data, "wall": rest, "numa_nodes": wall["numa_nodes"]}

    @model_validator(mode="after")
    def _nodes_are_equal(self) -> Guest:
        problem = self.unequal_nodes
        if problem:
            raise ValueError(problem)
        return self

    @property
    def unequal_nodes(self) -> str:
        """Why the nodes cannot be alike; empty where they are."""
        for key, value in (("vcpus", self.vcpus), ("memory_mib", self.memory_mib)):
            if value % self.numa_nodes:
                return f"numa_nodes: {self.numa_nodes} nodes cannot share {key} = {value}"
        return ""


class ShapeSpec(Frozen):
    """What a twin changes of the experiment's guest; None keeps what is there.

    ``metronome_ns`` is the period of a virtual timer that ends the turn of a vCPU:
    only a guest of several vCPUs has turns.  ``more_memory_mib`` comes on top.
    """

    vcpus: Annotated[int, Field(ge=1, le=64)] | None = None
    jobs: Annotated[int, Field(ge=1)] | None = None
    cpu: str | None = None
    metronome_ns: Annotated[int, Field(ge=0)] | None = None
    numa_nodes: Annotated[int, Field(ge=1, le=16)] | None = None
    more_memory_mib: Annotated[int, Field(ge=0)] = 0

    def of(self, guest: Guest) -> Guest:
        """The guest with these changes.

        Raises:
            SpecError: vCPUs or memory cannot be shared by that many nodes.
        """
        changed = {
            key: value
            for key in ("vcpus", "jobs", "cpu", "metronome_ns", "numa_nodes")
            if (value := getattr(self, key)) is not None
        }
        memory_mib = guest.memory_mib + self.more_memory_mib
        shaped = guest.model_copy(update={**changed, "memory_mib": memory_mib})
        if shaped.unequal_nodes:
            raise SpecError([f"guest {guest.name}, changed in shape: {shaped.unequal_nodes}"])
        return shaped


Observed = Literal["lock_stat", "contention"]


class TwinSpec(Frozen):
    """More runs of the same arms that explain and never gate.

    A twin has a kernel flavour or a guest shape of its own, so that none of its
    numbers may stand beside those of the measured guests.  ``observe`` says what
    the agent reads: ``/proc/lock_stat``, or histograms of the contention events.
    """

    name: Name
    observe: Observed
    flavour: Name | None = None
    cases: Annotated[tuple[str, ...], Field(min_length=1)]
    blocks: Annotated[int, Field(ge=1, le=1000)] = 2
    guest: ShapeSpec = ShapeSpec()


Mode = Literal["exact", "wall"]
# Smallest change worth a word where time is real: a quiet host has a spread of 0.5 to
# 2 % between boots.
WALL_CHANGE = 0.01


class WallSpec(Frozen):
    """How a wall session is made.

    A run whose guest was lost to the host is made again until it was tried
    ``attempts`` times.  With ``early_looks`` the session ends at the first of the
    pre-set looks that decides, for a share of the error rates at each.
    """

    attempts: Annotated[int, Field(ge=1, le=10)] = 2
    early_looks: bool = False


class Experiment(Frozen):
    """One experiment file, complete and checked against the catalogues."""

    name: Name
    title: str
    question: str = ""
    mode: Mode = "exact"
    wall: WallSpec = WallSpec()
    kernel: KernelSpec
    series: SeriesSpec
    arms: tuple[ArmSpec, ...] = ()
    guest: Name = "laptop"
    dataset: Dataset
    cases: Annotated[tuple[CaseSpec, ...], Field(min_length=1)]
    blocks: Annotated[int, Field(ge=1, le=1000)] = 8
    seed: Annotated[int, Field(ge=1, le=2**31 - 1)] = 1
    thresholds: Thresholds = Thresholds()
    twins: tuple[TwinSpec, ...] = ()

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
        taken = sorted({name for name in names if names.count(name) > 1 or name == REPEAT})
        if taken:
            raise ValueError(f"twin named twice, or {REPEAT!r}: {', '.join(taken)}")
        return twins

    @model_validator(mode="after")
    def _wall_has_its_threshold(self) -> Experiment:
        # What only an exact guest shows is not asked of a wall guest by default.  The
        # values are frozen for everybody who gets them, not yet for us.
        if self.mode == "wall" and "change" not in self.thresholds.model_fields_set:
            changed = self.thresholds.model_copy(update={"change": WALL_CHANGE})
            object.__setattr__(self, "thresholds", changed)
        return self

    @model_validator(mode="after")
    def _twins_know_their_cases(self) -> Experiment:
        known = [case.name for case in self.cases]
        for twin in self.twins:
            unknown = [name for name in twin.cases if name not in known]
            if unknown:
                raise ValueError(
                    f"twins: {twin.name}: no such case: {', '.join(unknown)}; "
                    f"known: {', '.join(known)}"
                )
        return self

    def twin(self, name: str) -> TwinSpec:
        """The twin of this name."""
        return next(twin for twin in self.twins if twin.name == name)

    @model_validator(mode="after")
    def _two_arms(self) -> Experiment:
        if self.arms and len(self.arms) != 2:
            raise ValueError(f"arms: {len(self.arms)} given, this version compares exactly 2")
        names = [arm.name for arm in self.both_arms]
        if len(set(names)) != len(names):
            raise ValueError(f"arms: two arms are named {names[0]!r}")
        return self

    @property
    def both_arms(self) -> tuple[ArmSpec, ...]:
        """The arms in order, base first; derived from the series unless given."""
        if self.arms:
            return self.arms
        return (
            ArmSpec(name="base", label="without the series", patches=self.series.reverse),
            ArmSpec(name="patched", label="with the series", patches=not self.series.reverse),
        )
