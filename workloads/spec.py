"""Workloads as data: phases of fio or of a program, and what a valid run of them must show.

A workload is one file under ``workloads/catalogue/``.  Its variants give other
settings to the same phases; the variant ``default`` always exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from errors import SpecError
from experiment.frozen import WRITTEN_BY_LAB, Frozen, Name
from experiment.load import read_toml, validated
from experiment.spec import Change
from workloads.job_file import (
    JOBS,
    KEYWORDS,
    MOUNT,
    elsewhere,
    laid_out,
    options_of,
    placed,
    read_job_file,
)

# Each phase is asked for some of its options hundreds of times: for every metric there is.
_options_of = lru_cache(1024)(options_of)
CATALOGUE = Path(__file__).parent / "catalogue"
PROGRAMS = Path(__file__).parent / "programs"
Check = Literal[
    "limit_hit",
    "charged",
    "refaults",
    "thp_present",
    "thp_absent",
    "thp_before",
    "caches_kept",
    "written_back",
    "huge_as_asked",
    "memory_as_asked",
    "reclaimed",
    "swapped",
    "zswapped",
]

# No run lasts for as many operations (or their nanoseconds); a GiB is more than is read ahead.
MOST_OPS, MOST_KIB = 10**12, 1 << 20
# The lab gives the seed; each of these takes it away again.
SEED_OPTIONS = ("randseed", "randrepeat", "allrandrepeat")


class Unit(Frozen):
    """A unit of work that counts are given per.

    Counted by exactly one of: ``calls`` of kernel functions together, a ``counter``
    of ``/proc/vmstat``, a ``cgroup_counter`` of its ``memory.stat``, pages of 4 KiB that the
    cgroup read from the device (``pages_read``), or fio's I/Os, ramp included, which are the
    operations of a phase with a program of its own.
    """

    name: Name
    title: str
    calls: tuple[str, ...] = ()
    counter: str = ""
    cgroup_counter: str = ""
    pages_read: bool = False
    ios: bool = False

    def _mistakes(self) -> Iterator[str]:
        ways = (self.calls, self.counter, self.cgroup_counter, self.pages_read, self.ios)
        if sum(map(bool, ways)) != 1:
            yield "exactly one of calls, counter, cgroup_counter, pages_read and ios is wanted"


class Cost(Unit):
    """A unit that the work of a phase is added up from, and what one costs, about.

    ``ns`` is in instructions of an exact guest.  It is a weight that stays as it is, whatever
    kernel is measured: fitted to sessions of two lengths.
    """

    ns: Annotated[float, Field(gt=0, le=MOST_OPS)]


class Ratio(Frozen):
    """Calls of some kernel functions per unit, a claim of a series made countable.

    Calls of the functions in ``less`` are taken off: what only passes through.
    """

    name: Name
    title: str
    calls: Annotated[tuple[str, ...], Field(min_length=1)]
    less: tuple[str, ...] = ()
    unit: Name


IO = Unit(name="io", title="I/O", ios=True)


class Phase(Frozen):
    """One fio invocation, or one program of ours, inside the measured cgroup.

    ``drop_caches`` is done and asserted before the phase; ``thp`` is the value
    written to ``transparent_hugepage/enabled``; ``fio`` holds the arguments that
    say what is read and how (the lab adds jobs, times, seed and output); in a file
    ``job_file`` names one of ``workloads/jobs/`` instead, whose first section is meant
    and whose sections are variants where it has several.  In place of both, ``program`` is a
    source of ``workloads/programs/`` and its operation, of which ``ops`` are done in every
    guest: its path is instructions per operation.  With ``whole`` correctness checks do all of
    them, and not a tenth: the phases after it need what it makes.  A phase that ``prepares``
    makes the same for those what is another in each boot; no function of it is called changed.
    ``thresholds`` are the smallest changes that matter of metrics (``path``) that exact guests
    which do the same differ in by more than the usual; ``functions`` is that of any function, as
    a share of the phase.
    ``checks`` are asserted of every run beside those that always hold; fewer
    than ``min_ios`` I/Os are no evidence of anything.  The first of ``units`` is
    the one that attribution is given per.  ``readahead_kib`` is written to the device's
    queue, 0 keeps what is there: XFS makes no folio larger than what is read ahead.
    ``costs`` and ``start_ns``, which fio's own start takes, are what the work of a run is
    added up from; a phase without them has no path and no work.
    ``places`` has the line of the job file that each option comes from, by its name.
    ``on_device`` follows from the workload's file system.  Without ``time_based`` fio
    does its work once, and the run time of the case is the most that it may take.
    """

    name: Name
    drop_caches: bool
    thp: Literal["always", "madvise", "never"]
    fio: tuple[str, ...] = ()
    program: Annotated[tuple[str, ...], Field(max_length=2)] = ()
    ops: Annotated[int, Field(ge=0, le=MOST_OPS)] = 0
    whole: bool = False
    prepares: bool = False
    thresholds: dict[str, Change] = Field(default_factory=dict)
    checks: tuple[Check, ...] = ()
    min_ios: Annotated[int, Field(ge=1, le=MOST_OPS)] = 1000
    units: Annotated[tuple[Unit, ...], Field(min_length=1)] = (IO,)
    ratios: tuple[Ratio, ...] = ()
    readahead_kib: Annotated[int, Field(ge=0, le=MOST_KIB)] = 0
    costs: tuple[Cost, ...] = ()
    start_ns: Annotated[float, Field(ge=0, le=MOST_OPS)] = 0.0
    on_device: bool = True
    time_based: bool = True
    places: Annotated[dict[str, str], WRITTEN_BY_LAB] = Field(default_factory=dict)

    def option(self, name: str) -> str:
        """The value of a fio option, the last one given; empty where there is none."""
        return _options_of(self.fio).get(name, "")

    @property
    def pattern(self) -> str:
        """Fio's word for what is done in which order: ``read``, ``randrw`` and so on."""
        return (self.option("rw") or self.option("readwrite") or "read").partition(":")[0]

    @property
    def directions(self) -> frozenset[Literal["read", "write"]]:
        """What fio does to the file."""
        pattern = self.pattern
        if pattern in ("rw", "readwrite", "randrw"):
            return frozenset({"read", "write"})
        return frozenset({"write"} if "write" in pattern else {"read"})

    @property
    def syncs(self) -> bool:
        """Whether fio waits for the device after writes."""
        return any(self.option(name) not in ("", "0") for name in ("fsync", "fdatasync"))

    def _mistakes(self) -> Iterator[str]:
        units, costs = ([each.name for each in group] for group in (self.units, self.costs))
        if bool(self.fio) == bool(self.program):
            yield "exactly one of fio (or job_file) and program is wanted"
        if len(self.program) == 1 or bool(self.program) != bool(self.ops):
            yield "a program is [NAME, OPERATION] and a number of ops; ops belong to programs only"
        if self.program and not self.units[0].ios:
            yield "units: the first one of a program is its operation, with ios = true"
        if self.program and self.costs:
            yield "costs: a program does the same work in every run and has none"
        if len(set(units)) != len(units):
            yield f"units: a name is given twice in {', '.join(units)}"
        for ratio in self.ratios:
            if ratio.unit not in units:
                known = ", ".join(units)
                yield f"ratios: {ratio.name}: no such unit: {ratio.unit}; known: {known}"
        if len(set(costs)) != len(costs):
            yield f"costs: a name is given twice in {', '.join(costs)}"
        if costs and not any(cost.ios for cost in self.costs):
            yield "costs: one of them has ios = true: work is given per I/O"


class Variant(Frozen):
    """Settings that replace those of the workload, some by phase name.

    A variant with ``since`` is the default one of kernels from that release (``7.3``) on.
    """

    since: Annotated[str, Field(pattern=r"^(\d+\.\d+)?$")] = ""
    title: str | None = None
    fs: Literal["brd", "tmpfs"] | None = None
    mkfs: str | None = None
    mount_options: str | None = None
    fio: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    readahead_kib: dict[str, Annotated[int, Field(ge=1, le=MOST_KIB)]] = Field(default_factory=dict)
    drop_caches: dict[str, bool] = Field(default_factory=dict)
    thresholds: dict[str, dict[str, Change]] = Field(default_factory=dict)
    places: Annotated[dict[str, dict[str, str]], WRITTEN_BY_LAB] = Field(default_factory=dict)


class Workload(Frozen):
    """A program and how to read it.

    ``mkfs`` and ``mount_options`` prepare the brd; with ``fs`` ``tmpfs`` there is none and
    nothing to make.  With ``file_per_job`` each job has a file of its own and they share
    the experiment's ``file_mib``; a workload of programs alone has no files.  ``additions`` are
    those of the kernel's configuration that it needs, and ``modules`` are of that kernel: the
    guest has them as ``/modules/NAME.ko``, and its programs load them.  ``host_programs`` are
    the host's, which the guest has besides, as ``/usr/bin/NAME`` with their libraries.
    """

    name: Name
    title: str
    fs: Literal["brd", "tmpfs"] = "brd"
    mkfs: str = ""
    mount_options: str
    file_per_job: bool = False
    additions: tuple[Name, ...] = ()
    modules: tuple[Name, ...] = ()
    host_programs: tuple[Name, ...] = ()
    phases: Annotated[tuple[Phase, ...], Field(min_length=1)]
    variants: dict[str, Variant] = Field(default_factory=dict)

    def on_release(self, release: str) -> Workload:
        """The workload as kernels of ``release`` are measured; empty: it is not known."""
        fitting = [
            (_place(variant.since), name)
            for name, variant in self.variants.items()
            if release and variant.since and _place(variant.since) <= _place(release)
        ]
        if not fitting:
            return self
        name = max(fitting)[1]
        own = self.variants[name].fio
        # What the release needs, it needs in every variant that has the phase's fio for itself.
        variants = {
            each: variant.model_copy(
                update={
                    "fio": {
                        **variant.fio,
                        **{phase: own[phase] for phase in own.keys() & variant.fio},
                    }
                }
            )
            for each, variant in self.variants.items()
        }
        return self.as_variant(name).model_copy(update={"variants": variants})

    def as_variant(self, variant: str) -> Workload:
        """The workload with the variant's phases and file system in place of its own."""
        changed = self.variants[variant] if variant != "default" else Variant()
        update: dict[str, object] = {
            key: value
            for key in ("title", "fs", "mkfs", "mount_options")
            if (value := getattr(changed, key)) is not None
        }
        update["phases"] = tuple(
            phase.model_copy(
                update={
                    **{
                        key: getattr(changed, key).get(phase.name, getattr(phase, key))
                        for key in ("fio", "places", "readahead_kib", "drop_caches")
                    },
                    "thresholds": {**phase.thresholds, **changed.thresholds.get(phase.name, {})},
                    "on_device": (changed.fs or self.fs) != "tmpfs",
                }
            )
            for phase in self.phases
        )
        return self.model_copy(update=update)

    def phases_of(self, variant: str) -> tuple[Phase, ...]:
        """The phases with the variant's settings put in."""
        return self.as_variant(variant).phases

    def in_guest(self, *, page_bytes: int, vcpus: int) -> Workload:
        """The workload with what fio's keywords stand for in such a guest."""
        values = dict(zip(KEYWORDS, (str(page_bytes), str(vcpus)), strict=False))

        def put_in(fio: tuple[str, ...]) -> tuple[str, ...]:
            for word, value in values.items():
                fio = tuple(argument.replace(word, value) for argument in fio)
            return fio

        phases = [phase.model_copy(update={"fio": put_in(phase.fio)}) for phase in self.phases]
        variants = {
            name: variant.model_copy(
                update={"fio": {key: put_in(fio) for key, fio in variant.fio.items()}}
            )
            for name, variant in self.variants.items()
        }
        return self.model_copy(update={"phases": tuple(phases), "variants": variants})

    def files(self, jobs: int) -> tuple[str, ...]:
        """The files that are laid out in a guest, by the names that fio gives them."""
        if not any(phase.fio for phase in self.phases):
            return ()
        if not self.file_per_job:
            return laid_out(phase.fio for phase in self.phases)
        return tuple(f"{MOUNT}/data.{job}.0" for job in range(jobs))


def _place(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def load_workload(path: Path) -> Workload:
    """Read one catalogue file; SpecError: names file and key of each mistake."""
    if not path.is_file() or path.is_symlink():
        raise SpecError([f"{path}: is no plain file"])
    data = read_toml(path)
    _read_job_files(data)
    workload, problems = validated(data, Workload)
    mistakes = _mistakes(workload, path.stem) if workload else ()
    lines = [problem.line(str(path)) for problem in problems]
    lines += [f"{path}: {mistake}" for mistake in mistakes]
    if lines or workload is None:
        raise SpecError(lines)
    return workload


def read_catalogue(
    folder: Path = CATALOGUE,
) -> tuple[dict[str, Workload], dict[str, tuple[str, ...]]]:
    """All workloads by name, sorted, and by theirs the mistakes of files that cannot be used.

    What a folder holds is read once a process.
    """
    usable, broken = _read_once(folder)
    return dict(usable), dict(broken)


@lru_cache
def _read_once(folder: Path) -> tuple[dict[str, Workload], dict[str, tuple[str, ...]]]:
    usable: dict[str, Workload] = {}
    broken: dict[str, tuple[str, ...]] = {}
    for path in sorted(folder.glob("*.toml")):
        try:
            usable[path.stem] = load_workload(path)
        except SpecError as error:
            broken[path.stem] = tuple(error.problems)
    return usable, broken


def load_catalogue(folder: Path = CATALOGUE) -> dict[str, Workload]:
    """The workloads that can be used, by name."""
    return read_catalogue(folder)[0]


class Extras(NamedTuple):
    """What a workload needs in its guest beside the lab's root, each sorted.

    ``programs`` are C sources, ``modules`` names of the kernel's own, ``host_programs`` names
    of programs that the host has installed.
    """

    programs: tuple[Path, ...] = ()
    modules: tuple[str, ...] = ()
    host_programs: tuple[str, ...] = ()


def extras_of(workload: Workload) -> Extras:
    """What the guest of a workload needs besides."""
    return Extras(
        programs_of(workload.phases),
        tuple(sorted(workload.modules)),
        tuple(sorted(workload.host_programs)),
    )


def programs_of(phases: Iterable[Phase]) -> tuple[Path, ...]:
    """The C sources of the programs that phases run, sorted."""
    names = {phase.program[0] for phase in phases if phase.program}
    return tuple(PROGRAMS / f"{name}.c" for name in sorted(names))


def all_programs() -> tuple[Path, ...]:
    """The C sources of all programs, sorted."""
    return tuple(sorted(PROGRAMS.glob("*.c")))


def phase_names(catalogue: Mapping[str, Workload]) -> dict[str, dict[str, tuple[str, ...]]]:
    """Workload name → variant name → phase names: what an experiment may ask for."""
    return {
        name: {
            variant: tuple(phase.name for phase in workload.phases)
            for variant in ("default", *sorted(workload.variants))
        }
        for name, workload in catalogue.items()
    }


def _read_job_files(data: dict[str, Any]) -> None:
    """Put the settings of job files where the phases name one; each section is a variant, too."""
    phases = data.get("phases")
    for phase in phases if isinstance(phases, list) else ():
        if not isinstance(phase, dict) or not isinstance(phase.get("job_file"), str):
            continue
        sections = read_job_file(JOBS / phase.pop("job_file"), JOBS)
        per_job = bool(data.get("file_per_job"))
        jobs = [
            (placed(job.fio, file_per_job=per_job), dict(job.places)) for job in sections.values()
        ]
        if "fio" not in phase:
            phase["fio"], phase["places"] = jobs[0]
        for name, (fio, places) in zip(sections, jobs, strict=True):
            variant = data.setdefault("variants", {}).setdefault(name, {})
            if phase.get("name") not in variant.setdefault("fio", {}):
                variant["fio"][phase.get("name")] = fio
                variant.setdefault("places", {})[phase.get("name")] = places


def _mistakes(workload: Workload, stem: str) -> Iterator[str]:
    """What the types do not say, each with its key."""
    if workload.name != stem:
        yield f"name: found {workload.name!r}; the name of the file is wanted, {stem!r}"
    named = {f"variants.{name}.mkfs": workload.as_variant(name) for name in workload.variants}
    for key, whole in {"mkfs": workload, **named}.items():
        if (whole.fs == "tmpfs") == bool(whole.mkfs):
            yield f"{key}: found {whole.mkfs!r}; wanted for a brd, and not for tmpfs"
    known = {file.stem for file in all_programs()}
    names = [phase.name for phase in workload.phases]
    for number, phase in enumerate(workload.phases):
        if phase.name in names[:number]:
            yield f"phases[{number}].name: {phase.name!r} is the name of a phase before it"
        if workload.fs == "tmpfs" and phase.readahead_kib:
            yield (
                f"phases[{number}].readahead_kib: found {phase.readahead_kib}; "
                "nothing is read ahead in tmpfs"
            )
        if phase.program and phase.program[0] not in known:
            yield (
                f"phases[{number}].program: no such program: {phase.program[0]}; "
                f"known: {', '.join(sorted(known))}"
            )
        if not phase.on_device:
            yield f"phases[{number}].on_device: follows from fs, and is not given"
        if phase.fio:
            key = f"phases[{number}].fio"
            yield from _fio_mistakes(key, phase.fio, phase.places, workload.file_per_job)
    yield from _variant_mistakes(workload, names)


def _variant_mistakes(workload: Workload, names: Sequence[str]) -> Iterator[str]:
    if "default" in workload.variants:
        yield "variants.default: always the phases as they are; another name is wanted"
    for variant, settings in workload.variants.items():
        place = f"variants.{variant}"
        for key in ("fio", "readahead_kib", "drop_caches", "thresholds"):
            unknown = getattr(settings, key).keys() - {*names}
            for name in sorted(unknown):
                yield f"{place}.{key}.{name}: no such phase; known: {', '.join(names)}"
        for name, fio in settings.fio.items():
            places = settings.places.get(name, {})
            yield from _fio_mistakes(f"{place}.fio.{name}", fio, places, workload.file_per_job)


def _fio_mistakes(
    key: str, fio: tuple[str, ...], places: Mapping[str, str], file_per_job: bool
) -> Iterator[str]:
    """What no phase may have, at its line of a job file where it comes from one."""
    for number, argument in enumerate(fio):
        option = argument.lstrip("-").partition("=")[0]
        if option in SEED_OPTIONS:
            place = places.get(option, f"{key}[{number}]")
            yield f"{place}: --{option} is the lab's to give (found {argument!r})"
    for option, problem in elsewhere(fio, file_per_job=file_per_job):
        yield f"{places.get(option) or places.get('name', key)}: {option}: {problem}"
