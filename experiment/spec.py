"""The question in one file, as frozen values.

Sizes are given at the original's scale; a guest divides all of them by its
``scale``, so that the ratios between cgroup limit, file and brd stay those of
the original at every size.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Direction = Literal["higher", "lower"]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]


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

    ``path`` is a folder of ``*.patch`` files, relative to the checkout.  With
    ``reverse`` the source already holds the series and the patches take it out:
    the base arm is built with them, the patched arm is the source as it is.
    """

    path: str
    title: str = ""
    reverse: bool = False


class ArmSpec(Frozen):
    """One side compared; ``patches`` says whether the folder's patches are applied."""

    name: Name
    label: str = ""
    patches: bool


class Dataset(Frozen):
    """Sizes of the original set-up, in MiB, before a guest scales them down."""

    cgroup_limit_mib: Annotated[int, Field(gt=0)]
    brd_mib: Annotated[int, Field(gt=0)]
    file_mib: Annotated[int, Field(gt=0)]
    jobs: Annotated[int, Field(gt=0)]

    @model_validator(mode="after")
    def _file_fits(self) -> Dataset:
        if self.file_mib >= self.brd_mib:
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


class Guest(Frozen):
    """The shape of the VM: one file under ``configs/guests/``."""

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


class Experiment(Frozen):
    """One experiment file, complete and checked against the catalogues."""

    name: Name
    title: str
    question: str = ""
    mode: Literal["exact"] = "exact"
    kernel: KernelSpec
    series: SeriesSpec
    arms: tuple[ArmSpec, ...] = ()
    guest: Name = "laptop"
    dataset: Dataset
    cases: Annotated[tuple[CaseSpec, ...], Field(min_length=1)]
    blocks: Annotated[int, Field(ge=1, le=1000)] = 8
    seed: Annotated[int, Field(ge=1, le=2**31 - 1)] = 1
    thresholds: Thresholds = Thresholds()

    @field_validator("cases")
    @classmethod
    def _cases_differ(cls, cases: tuple[CaseSpec, ...]) -> tuple[CaseSpec, ...]:
        names = [case.name for case in cases]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"case named twice: {', '.join(twice)}")
        return cases

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
