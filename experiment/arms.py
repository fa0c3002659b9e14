"""Arms: a kernel with or without patches, and the settings it is booted with."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from experiment.architecture import ARCHITECTURES, Arch, Architecture
from experiment.frozen import WRITTEN_BY_LAB, Frozen, Name
from experiment.shape import ShapeSpec

# A command line word must stay one word, a mount option one option.
WORD = r"^[A-Za-z0-9_.,:=/+-]+$"


# Options of a kernel by their whole names, with values as in a .config.
OPTION_NAME = r"CONFIG_[A-Za-z0-9_]+"
OPTION_VALUE = r"y|m|n|-?\d+|0x[0-9A-Fa-f]+|\"[ -!#-\[\]-~]*\""
Options = dict[
    Annotated[str, Field(pattern=f"^{OPTION_NAME}$")],
    Annotated[str, Field(pattern=f"^({OPTION_VALUE})$")],
]

# Whose time a guest has: that of its instructions, or the host's.
Mode = Literal["exact", "wall"]
# The flavour of a kernel that the lab did not configure.
PREBUILT = "prebuilt"
PREBUILT_SOURCES = ("deb:linux-image-", "image:")


class KernelSpec(Frozen):
    """Where the source comes from, how it is configured, and what compiles it.

    A kernel that is built already has no flavour of ours, and no patches.
    """

    source: Annotated[str, Field(pattern=r"^(deb|tarball|dir|git|image):.+$")]
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
    kernel has what that takes.
    """

    def __hash__(self) -> int:
        # Options are a table, which has no hash of its own.
        return hash(self.model_dump_json())

    @model_validator(mode="after")
    def _architecture_has_it(self) -> KernelSpec:
        sizes = self.architecture.build.page_kib
        if self.page_kib not in sizes:
            names = ", ".join(map(str, sizes))
            raise ValueError(f"page_kib: {self.page_kib} found; {self.arch} has pages of {names}")
        if self.is_prebuilt and self.arch != "x86_64":
            raise ValueError(f"arch: {self.arch} found; a prebuilt kernel is one for x86_64")
        if self.is_prebuilt and self.config:
            raise ValueError(f"config: {', '.join(self.config)}; a prebuilt kernel is as it is")
        return self

    @property
    def architecture(self) -> Architecture:
        """What it is built for."""
        return ARCHITECTURES[self.arch]

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
    """The source holds the series already, and the patches take it out: ``base`` is built with
    them.
    """
    revert: bool = False
    """With ``reverse``: the patches are the series as posted, and are turned around, last first."""
    kept: Annotated[str, Field(pattern=r"^([0-9a-f]{32})?$"), WRITTEN_BY_LAB] = ""
    """Key of the patches as they were taken in."""

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
    sysctl: dict[Annotated[str, Field(pattern=r"^[a-z0-9_]+([./][A-Za-z0-9_-]+)+$")], str] = Field(
        default_factory=dict
    )
    """Written before the first phase and read back: ``{ "vm.swappiness" = "10" }``."""
    mount_options: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.,:=/+-]*$")] = ""
    """In place of the workload's."""
    cmdline: tuple[Annotated[str, Field(pattern=WORD)], ...] = ()
    """Words added to the kernel's command line."""
    guest: ShapeSpec = ShapeSpec()
    """Changes of the guest's shape."""

    @field_validator("sysctl")
    @classmethod
    def _one_line_each(cls, sysctl: dict[str, str]) -> dict[str, str]:
        for name, value in sysctl.items():
            if not value or not value.isprintable():
                raise ValueError(f"{name}: a line of text is wanted, found {value!r}")
        return sysctl

    @property
    def settings(self) -> tuple[tuple[str, str], ...]:
        """Name and value of everything set beside the kernel, for people and for equality."""
        shape = self.guest.model_dump(exclude_defaults=True)
        return (
            *((f"sysctl {name}", value) for name, value in sorted(self.sysctl.items())),
            *([("mount options", self.mount_options)] if self.mount_options else []),
            *([("command line", " ".join(self.cmdline))] if self.cmdline else []),
            *((f"guest {name}", str(value)) for name, value in sorted(shape.items())),
        )
