"""Arms: a kernel with or without patches, its settings, and the shape of its guest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

from pydantic import Field, field_validator

from errors import SpecError
from experiment.architecture import ARCHITECTURES, UML, Arch, Architecture
from experiment.frozen import WRITTEN_BY_LAB, Frozen, Name, of_form
from text import words

# More than any machine has, and little enough to calculate with: files come from anywhere.
MOST_MIB, MOST_JOBS, MOST_S = 1 << 24, 1024, 7 * 86400


class WallShape(Frozen):
    """What only a guest of wall mode has."""

    huge_pages: bool = False
    """Memory is taken from the host's reserved 2 MiB pages."""
    cpu: str = ""
    """QEMU's CPU model; empty: the host's own."""


class Guest(Frozen):
    """The shape of the VM: one file under ``configs/guests/``."""

    name: Name
    """Name of the guest, and of its file."""
    title: str
    """What it is, in one line."""
    vcpus: Annotated[int, Field(ge=1, le=64)]
    """Virtual CPUs, split evenly over ``numa_nodes``."""
    memory_mib: Annotated[int, Field(ge=128, le=MOST_MIB)]
    """Memory, MiB, split evenly over ``numa_nodes``."""
    cpu: str
    """QEMU's CPU model in exact mode; arm64 has one for all guests and ignores it."""
    scale: Annotated[int, Field(ge=1, le=MOST_MIB)]
    """Every size of an experiment's ``dataset`` is divided by this."""
    jobs: Annotated[int, Field(ge=1, le=MOST_JOBS)]
    """Number of fio jobs."""
    boot_timeout_s: Annotated[float, Field(gt=0, le=MOST_S)]
    """Most seconds for boot, mkfs and file layout: in exact mode of QEMU's CPU time, else of the
    host's clock."""
    silence_timeout_s: Annotated[float, Field(gt=0, le=MOST_S)]
    """Most seconds, counted alike, without a word on the console."""
    run_timeout_s: Annotated[float, Field(gt=0, le=MOST_S)]
    """Most seconds, counted alike, for all phases and their results."""
    metronome_ns: Annotated[int, Field(ge=0, le=10**9)] = 0
    """Exact mode with several vCPUs: period of a virtual timer that ends the turn of a vCPU; 0:
    none.
    """
    numa_nodes: Annotated[int, Field(ge=1, le=16)] = 1
    """NUMA nodes; in wall mode each is bound to a host node where the host has as many."""
    wall: WallShape = WallShape()
    """What only a guest of wall mode has."""
    arch: Annotated[Arch, WRITTEN_BY_LAB] = "x86_64"
    """From the kernel's."""

    def _mistakes(self) -> Iterator[str]:
        if problem := self.unequal_nodes:
            yield problem

    @property
    def unequal_nodes(self) -> str:
        """Why the nodes cannot be alike; empty where they are."""
        for key, value in (("vcpus", self.vcpus), ("memory_mib", self.memory_mib)):
            if value % self.numa_nodes:
                return f"numa_nodes: {self.numa_nodes} nodes cannot share {key} = {value}"
        return ""


class ShapeSpec(Frozen):
    """What an arm or a diagnostic run changes of a guest; what is not given stays."""

    vcpus: Annotated[int, Field(ge=1, le=64)] | None = None
    """Virtual CPUs."""
    jobs: Annotated[int, Field(ge=1, le=MOST_JOBS)] | None = None
    """Number of fio jobs."""
    cpu: str | None = None
    """QEMU's CPU model."""
    metronome_ns: Annotated[int, Field(ge=0, le=10**9)] | None = None
    """Period of a virtual timer that ends the turn of a vCPU, where there are several."""
    numa_nodes: Annotated[int, Field(ge=1, le=16)] | None = None
    """NUMA nodes."""
    more_memory_mib: Annotated[int, Field(ge=0, le=MOST_MIB)] = 0
    """Memory on top of the guest's, MiB."""

    def of(self, guest: Guest) -> Guest:
        """The guest with these changes; SpecError: that many nodes cannot share it."""
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


# The folders of /proc/sys.
SYSCTLS = words("abi crypto debug dev fs kernel net sunrpc user vm")
# What is below /sys/kernel, and is easily taken for a sysctl.
IN_SYSFS = ("mm", "debug", "tracing", "security", "slab", "cgroup", "irq")
CGROUP = "/sys/fs/cgroup/twinboot"
CONTROLLERS = ("cpu", "cpuset", "io", "memory", "pids")
# Each phase has its own.
OF_PHASES = {"sysfs": "kernel/mm/transparent_hugepage/enabled", "cgroup": "memory.max"}
# x86's COMMAND_LINE_SIZE, less the lab's own words.
MOST_WORDS = 1500
PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@-]*")


# Options of a kernel by their whole names, with values as in a .config.
OPTION_NAME = r"CONFIG_[A-Za-z0-9_]+"
OPTION_VALUE = r"y|m|n|-?\d+|0x[0-9A-Fa-f]+|\"[ -!#-\[\]-~]*\""
Options = dict[
    Annotated[str, of_form(f"^{OPTION_NAME}$", "an option by its whole name: CONFIG_NAME")],
    Annotated[str, of_form(f"^({OPTION_VALUE})$", "y, m, n, a number or text in quotes")],
]

# Whose time a guest has: that of its instructions, or the host's.
Mode = Literal["exact", "wall", "native"]
REAL_TIME: tuple[Mode, ...] = ("wall", "native")
# The flavour of a kernel that the lab did not configure.
PREBUILT = "prebuilt"
PREBUILT_SOURCES = ("deb:linux-image-", "image:")


class KernelSpec(Frozen):
    """Where the source comes from, how it is configured, and what compiles it.

    A kernel that is built already has neither flavour nor patches.
    """

    source: Annotated[
        str,
        of_form(
            r"^(deb|tarball|dir|git|image):.+$",
            "deb:PACKAGE, tarball:FILE, dir:FOLDER, git:FOLDER[@REF] or image:FILE[@MODULES]",
        ),
    ]
    """``deb:PACKAGE[=VERSION]``, ``tarball:PATH``, ``dir:PATH``, ``git:PATH@REF``; built already:
    ``deb:linux-image-RELEASE[=VERSION]``, ``image:PATH[@MODULES]``.
    """
    flavour: Name = "perf"
    """A file ``configs/kconfig/FLAVOUR.config``."""
    additions: tuple[Name, ...] = ()
    """Options that some workloads need, on top of every flavour of the session: files
    ``configs/kconfig/additions/NAME.config``.
    """
    config: Options = Field(default_factory=dict)
    """Options on top of all others: ``{ CONFIG_SLUB_STATS = "y" }``."""
    compiler: Literal["gcc", "clang"] = "gcc"
    """What compiles it."""
    arch: Arch = "x86_64"
    """What it is built for."""
    page_kib: Annotated[int, Field(ge=1, le=1024)] = 4
    """Size of its pages, KiB: 4; for arm64 4, 16 or 64."""
    mode: Annotated[Mode, WRITTEN_BY_LAB] = "exact"
    """From the experiment's: a wall guest shares the host's root, and its
    kernel has what that takes; a native kernel is a process of the host.
    """

    def __hash__(self) -> int:
        # Options are a table, which has no hash of its own.
        return hash(self.model_dump_json())

    def _mistakes(self) -> Iterator[str]:
        sizes = self.architecture.build.page_kib
        if self.page_kib not in sizes:
            names = ", ".join(map(str, sizes))
            yield f"page_kib: {self.page_kib} found; {self.arch} has pages of {names}"
        if self.is_prebuilt and self.arch != "x86_64":
            yield f"arch: {self.arch} found; a prebuilt kernel is one for x86_64"
        if self.is_prebuilt and self.config:
            yield f"config: {', '.join(self.config)}; a prebuilt kernel is as it is"

    @property
    def architecture(self) -> Architecture:
        """What it is built for."""
        return UML if self.mode == "native" else ARCHITECTURES[self.arch]

    @property
    def built_for(self) -> str:
        """Architecture and size of pages, for people; empty for the usual ones."""
        if self.arch == "x86_64":
            return ""
        return f"{self.architecture.title} with pages of {self.page_kib} KiB"

    @property
    def configuration(self) -> str:
        """The flavour with what is added to it: ``perf``, ``perf+workloads``."""
        return "+".join((self.flavour, *self.additions))

    @property
    def is_prebuilt(self) -> bool:
        """Whether it is booted as it is, and never built here."""
        return self.source.startswith(PREBUILT_SOURCES)


class SeriesSpec(Frozen):
    """Ordered patches under test."""

    path: str
    """A folder of ``*.patch`` files, an mbox or patch file (relative ones start at the checkout),
    ``mid:MESSAGE-ID``, a link to one, or ``git:REPOSITORY@A..B``.
    """
    stack: tuple[str, ...] = ()
    """More series, each applied on top of the one before."""
    title: str = ""
    """What reports call it; without it the series' own title."""
    reverse: bool = False
    """The source holds the series already, and the patches remove it: ``base`` is built with
    them.
    """
    revert: bool = False
    """With ``reverse``: the patches are the series as posted, and are turned around, last first."""
    kept: Annotated[str, Field(pattern=r"^([0-9a-f]{32})?$"), WRITTEN_BY_LAB] = ""
    """Key of the patches as they were taken in."""

    def _mistakes(self) -> Iterator[str]:
        if self.revert and not self.reverse:
            yield "revert needs reverse = true: the source holds the series"

    @property
    def parts(self) -> tuple[str, ...]:
        """Every series, in the order they apply."""
        return (self.path, *self.stack)


class ArmSpec(Frozen):
    """One side compared: a kernel, and the settings it is booted with."""

    name: Name
    """Of the arm, in records and reports; the first arm is the base."""
    label: str = ""
    """What it is, in a few words."""
    patches: bool = False
    """Whether its kernel has the experiment's series."""
    upto: Annotated[int, Field(ge=0, le=1000)] | None = None
    """With ``patches``: the first so many patches only."""
    series: SeriesSpec | None = None
    """A series of this arm alone, on top."""
    kernel: KernelSpec | None = None
    """Another kernel than the experiment's."""
    config: Options = Field(default_factory=dict)
    """Options of its kernel on top of all others: ``{ CONFIG_LRU_GEN = "y" }``."""
    sysctl: dict[str, str] = Field(default_factory=dict)
    """Written before the first phase and read back: ``{ "vm.swappiness" = "10" }``."""
    sysfs: dict[str, str] = Field(default_factory=dict)
    """Files below ``/sys``, written before the first phase:
    ``{ "kernel/mm/lru_gen/enabled" = "y" }``.
    """
    cgroup: dict[str, str] = Field(default_factory=dict)
    """Files of the measured cgroup, beside its hard limit: ``{ "memory.high" = "24M" }``; sizes
    are the guest's.
    """
    mount_options: str = ""
    """In place of the workload's."""
    cmdline: tuple[str, ...] = ()
    """Words added to the kernel's command line."""
    guest: ShapeSpec = ShapeSpec()
    """Changes of the guest's shape."""

    @field_validator("sysctl", "sysfs", "cgroup")
    @classmethod
    def _one_line_each(cls, settings: dict[str, str]) -> dict[str, str]:
        for name, value in settings.items():
            if not value or not value.isprintable():
                raise ValueError(f"{name}: a line of text is wanted, found {value!r}")
        return settings

    @field_validator("sysctl")
    @classmethod
    def _in_proc_sys(cls, sysctl: dict[str, str]) -> dict[str, str]:
        for name in sysctl:
            parts = re.split("[./]", name)
            if parts[0] == "kernel" and parts[1:2] and parts[1] in IN_SYSFS:
                file = "/".join(parts)
                raise ValueError(
                    f'{name} is a file of /sys, no sysctl: sysfs = {{ "{file}" = ... }}'
                )
            if len(parts) < 2 or parts[0] not in SYSCTLS or not _are_names(parts):
                raise ValueError(
                    f"{name} is no sysctl; they are called as vm.swappiness, and begin with "
                    f"{', '.join(SYSCTLS)}; files of /sys go into sysfs, those of the cgroup "
                    "into cgroup"
                )
        return sysctl

    @field_validator("sysfs")
    @classmethod
    def _in_sys(cls, sysfs: dict[str, str]) -> dict[str, str]:
        for name in sysfs:
            if name.startswith("fs/cgroup") or not _are_names(name.split("/")):
                raise ValueError(
                    f"{name}: a file below /sys is wanted, as kernel/mm/lru_gen/enabled; files of "
                    "the measured cgroup go into cgroup"
                )
            if name == OF_PHASES["sysfs"]:
                raise ValueError(f"{name} is set by each phase of a workload: thp")
        return sysfs

    @field_validator("cgroup")
    @classmethod
    def _of_the_cgroup(cls, cgroup: dict[str, str]) -> dict[str, str]:
        for name in cgroup:
            if name == OF_PHASES["cgroup"]:
                raise ValueError(f"{name} is the dataset's: cgroup_limit_mib")
            controller, _, file = name.partition(".")
            if controller not in CONTROLLERS or not PLAIN_NAME.fullmatch(file):
                raise ValueError(
                    f"{name}: a file of the measured cgroup is wanted, as memory.high or "
                    f"cpuset.mems; controllers: {', '.join(CONTROLLERS)}"
                )
        return cgroup

    @field_validator("mount_options")
    @classmethod
    def _one_word(cls, options: str) -> str:
        if options and (not options.isprintable() or re.search(r"\s", options)):
            raise ValueError(f"options with commas between them are wanted, found {options!r}")
        return options

    @field_validator("cmdline")
    @classmethod
    def _words(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        for word in words:
            # The kernel takes blanks between double quotes for part of a word.
            if (
                not word.isprintable()
                or word.count('"') % 2
                or not re.fullmatch(r'(?:[^\s"]|"[^"]*")+', word)
            ):
                raise ValueError(
                    f"found {word!r}; one word each is wanted, blanks only between double quotes"
                )
        if len(" ".join(words)) > MOST_WORDS:
            raise ValueError(f"more than {MOST_WORDS} characters; the kernel cuts the rest off")
        return words

    @property
    def files(self) -> dict[str, str]:
        """Files of the guest that are set beside its sysctls, by their whole paths."""
        return {
            **{f"/sys/{name}": value for name, value in sorted(self.sysfs.items())},
            **{f"{CGROUP}/{name}": value for name, value in sorted(self.cgroup.items())},
        }

    @property
    def settings(self) -> tuple[tuple[str, str], ...]:
        """Name and value of everything set beside the kernel, for people and for equality."""
        shape = self.guest.model_dump(exclude_defaults=True)
        return (
            *((f"sysctl {name}", value) for name, value in sorted(self.sysctl.items())),
            *((f"sysfs {name}", value) for name, value in sorted(self.sysfs.items())),
            *((f"cgroup {name}", value) for name, value in sorted(self.cgroup.items())),
            *([("mount options", self.mount_options)] if self.mount_options else []),
            *([("command line", " ".join(self.cmdline))] if self.cmdline else []),
            *((f"guest {name}", str(value)) for name, value in sorted(shape.items())),
        )


def _are_names(parts: Iterable[str]) -> bool:
    return all(PLAIN_NAME.fullmatch(part) for part in parts)
