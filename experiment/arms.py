"""Arms: a kernel with or without patches, and the settings it is booted with."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from experiment.architecture import ARCHITECTURES, Arch, Architecture
from experiment.frozen import Frozen, Name
from experiment.shape import ShapeSpec

# A command line word must stay one word, a mount option one option.
WORD = r"^[A-Za-z0-9_.,:=/+-]+$"


# Whose time a guest has: that of its instructions, or the host's.
Mode = Literal["exact", "wall"]
# The flavour of a kernel that the lab did not configure.
PREBUILT = "prebuilt"
PREBUILT_SOURCES = ("deb:linux-image-", "image:")


class KernelSpec(Frozen):
    """Where the source comes from, how it is configured, and what compiles it.

    ``source`` is ``deb:PACKAGE``, ``tarball:PATH``, ``dir:PATH`` or
    ``git:PATH@REF``; ``flavour`` names ``configs/kconfig/<flavour>.config``.  A kernel
    that is built already is ``deb:linux-image-RELEASE[=VERSION]`` or
    ``image:PATH[@MODULES_FOLDER]``: it has no flavour of ours, and no patches.
    ``page_kib`` is the size of its pages, where an architecture has several.  ``mode`` is
    written by the lab, from the experiment's: a wall guest shares the host's root, and its
    kernel has what that takes.
    """

    source: Annotated[str, Field(pattern=r"^(deb|tarball|dir|git|image):.+$")]
    flavour: Name = "perf"
    compiler: Literal["gcc", "clang"] = "gcc"
    arch: Arch = "x86_64"
    page_kib: Annotated[int, Field(ge=1)] = 4
    mode: Mode = "exact"

    @model_validator(mode="after")
    def _architecture_has_it(self) -> KernelSpec:
        sizes = self.architecture.build.page_kib
        if self.page_kib not in sizes:
            known = ", ".join(map(str, sizes))
            raise ValueError(f"page_kib: {self.page_kib} found; {self.arch} has pages of {known}")
        if self.is_prebuilt and self.arch != "x86_64":
            raise ValueError(f"arch: {self.arch} found; a prebuilt kernel is one for x86_64")
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
    def is_prebuilt(self) -> bool:
        """Whether it is booted as it is, and never built here."""
        return self.source.startswith(PREBUILT_SOURCES)


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
    """One side compared: a kernel, and the settings it is booted with.

    The kernel is the experiment's with its series where ``patches`` says so, of that the
    first ``upto`` patches only, and with the arm's own ``series`` on top; ``kernel`` is
    another source or flavour.  ``sysctl`` values are written before the first phase and
    read back, ``mount_options`` take the place of the workload's, ``cmdline`` words are
    added to the kernel's command line, and ``guest`` changes the shape.
    """

    name: Name
    label: str = ""
    patches: bool = False
    upto: Annotated[int, Field(ge=0, le=1000)] | None = None
    series: SeriesSpec | None = None
    kernel: KernelSpec | None = None
    sysctl: dict[Annotated[str, Field(pattern=r"^[a-z0-9_]+([./][A-Za-z0-9_-]+)+$")], str] = Field(
        default_factory=dict
    )
    mount_options: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.,:=/+-]*$")] = ""
    cmdline: tuple[Annotated[str, Field(pattern=WORD)], ...] = ()
    guest: ShapeSpec = ShapeSpec()

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
