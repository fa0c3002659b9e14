"""What is to be measured, as one request: its fields are the options of the command line.

Every verb that takes an experiment has these options, from here (``verbs.cli``), and a
session's manifest has the arguments that a request stands for, from here, too.  Nothing that is
slow to import is imported: ``--help`` and completion read this file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.models import ArgumentInfo

from experiment.series_name import from_here

CHECKOUT = Path(__file__).resolve().parent.parent
EXPERIMENTS = CHECKOUT / "configs" / "experiments"
GUESTS = CHECKOUT / "configs" / "guests"
MACHINES = CHECKOUT / "configs" / "machines"
WORKLOADS = CHECKOUT / "workloads" / "catalogue"
SESSIONS = CHECKOUT / "sessions"
MANIFEST = "manifest.json"
MODES = ("exact", "wall", "native")
# Of --mode.  With 8 blocks alone no rank test calls one of two metrics; the first rounds of native
# mode go once through all orders of the objects.
FIRST = {
    "wall": ("guest=wall", "blocks=12", "max_seeds=48"),
    "native": ("blocks=24", "max_seeds=96"),
}


def _stems(folder: Path) -> list[str]:
    return [path.stem for path in sorted(folder.glob("*.toml"))]


def _completion(names: Callable[[], list[str]]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


# Values that begin so, as shells ask for them.
experiments = _completion(lambda: _stems(EXPERIMENTS))
modes = _completion(lambda: [*MODES])
guests = _completion(lambda: _stems(GUESTS))
machines = _completion(lambda: ["none", *_stems(MACHINES)])


def workloads(incomplete: str) -> list[str]:
    """Names of workloads; with commas the last of them is completed."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _stems(WORKLOADS) if name.startswith(last)]


@_completion
def sessions() -> list[str]:
    """``latest``, and names of this lab's sessions, newest first."""
    heads = SESSIONS.glob(f"*/{MANIFEST}")
    newest = sorted(heads, key=lambda path: path.stat().st_mtime, reverse=True)
    return ["latest", *(path.parent.name for path in newest)] if newest else []


SUBJECT = "What is compared"
METHOD = "How it is measured"
RARELY = "Needed rarely"
# Their values name places, of which relative ones start where the user is.
PLACES = ("series", "source", "arms")


def opt(flags: str, help_text: str, panel: str | None = None, **more: Any) -> Any:
    """An option as its help shows it: ``--name -n METAVAR``, and what it does.

    Names behind the first are short or former ones, which are accepted, too.
    """
    words = flags.split(" ")
    names = [word for word in words if word.startswith("-")]
    metavar = " ".join(word for word in words if word not in names)
    return typer.Option(
        *names, help=help_text, rich_help_panel=panel, metavar=metavar or None, **more
    )


SEEDS: dict[str, Any] = {"min": 1, "max": 1000}


@dataclass(frozen=True, kw_only=True)
class Request:
    """An experiment by name, or a series or kernels with how to measure them, or nothing.

    ``workloads`` are names, separated by commas; where a series has none they are chosen by what
    they execute of it, as ``automatic`` says in a word.  ``per_patch`` makes an arm of each
    prefix of the series; diagnostic runs (``twins``) are then left out unless asked for.
    ``check`` asks for the correctness checks or leaves them out, None keeps what the experiment
    says.  ``quick`` leaves the first case alone, without checks and diagnostic runs.  ``seeds`` is
    a fixed number of seeds, ``max_seeds`` the most of a session that adds seeds until it is
    decided.  ``memory`` names the machine of the diagnostic run that models caches, or is
    ``none``; empty keeps the experiment's.
    Names and order of the fields are those of a queue's entries, whose ids are made of them.
    """

    name: Annotated[
        str,
        typer.Argument(
            help="a file, a name from ./lab.py list, or commits of a tree",
            metavar="EXPERIMENT|A..B",
            autocompletion=experiments,
        ),
    ] = ""
    overrides: Annotated[
        tuple[str, ...],
        opt("--set KEY=VALUE", "any key of the experiment", METHOD, envvar="TWINBOOT_SET"),
    ] = ()
    mode: Annotated[
        str,
        opt(
            "--mode MODE",
            "exact; wall: real time under KVM; native: of User-Mode Linux",
            METHOD,
            autocompletion=modes,
        ),
    ] = ""
    twins: Annotated[
        bool | None,
        opt(
            "--diagnostics/--no-diagnostics --twins/--no-twins",
            "diagnostic runs: misses, moving lines, waits",
            METHOD,
        ),
    ] = None
    series: Annotated[
        tuple[str, ...],
        opt("--series SERIES", "patches: FOLDER, FILE, MESSAGE-ID or A..B", SUBJECT),
    ] = ()
    source: Annotated[
        str,
        opt("--source SOURCE", "their kernel: deb:, tarball:, dir: or git:PATH[@REF]", SUBJECT),
    ] = ""
    workloads: Annotated[
        str,
        opt(
            "--workloads NAME,NAME",
            "of the catalogue, with --series or --arm",
            METHOD,
            autocompletion=workloads,
        ),
    ] = ""
    automatic: Annotated[
        bool,
        opt(
            "--auto",
            "the default with --series: the workloads that execute what it changes",
            RARELY,
        ),
    ] = False
    reverse: Annotated[
        bool,
        opt("--reverse", "the source contains --series already: remove it for the base", RARELY),
    ] = False
    per_patch: Annotated[bool, opt("--per-patch", "measure after each patch", SUBJECT)] = False
    check: Annotated[
        bool | None, opt("--check/--no-check", "correctness checks of every arm", METHOD)
    ] = None
    arms: Annotated[
        tuple[str, ...],
        opt("--arm KERNEL", "deb:linux-image-X, image:PATH@MODULES or a source", SUBJECT),
    ] = ()
    quick: Annotated[
        bool, opt("--quick", "the first case alone, no checks or diagnostics", METHOD)
    ] = False
    seeds: Annotated[
        int | None, opt("--seeds N", "as many seeds, and no more", METHOD, **SEEDS)
    ] = None
    max_seeds: Annotated[
        int | None,
        opt(
            "--max-seeds N",
            "add seeds, up to as many, until every verdict is decided",
            RARELY,
            **SEEDS,
        ),
    ] = None
    memory: Annotated[
        str,
        opt(
            "--memory MACHINE",
            "after the verdict: what this machine's caches and TLBs would miss; none: nothing",
            RARELY,
            autocompletion=machines,
        ),
    ] = ""
    config: Annotated[
        tuple[str, ...], opt("--config [ARM:]OPTION", "CONFIG_X=y, on all arms or one", SUBJECT)
    ] = ()
    guest: Annotated[
        str,
        opt(
            "--guest NAME",
            "its memory and CPUs: smoke is the smallest",
            METHOD,
            autocompletion=guests,
        ),
    ] = ""

    @property
    def named_workloads(self) -> tuple[str, ...]:
        """The names in ``workloads``."""
        return tuple(name.strip() for name in self.workloads.split(",") if name.strip())

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all is asked."""
        return not (self.name or self.recorded or self.by_series or self.per_patch)

    @property
    def with_twins(self) -> bool:
        """Whether the experiment's diagnostic runs are made, too."""
        return not self.per_patch if self.twins is None else self.twins

    @property
    def all_overrides(self) -> tuple[str, ...]:
        """The overrides, with those that ``mode``, ``guest`` and the seeds stand for."""
        settings: dict[str, Any] = {"blocks": self.seeds, "max_seeds": self.max_seeds}
        settings |= {"guest": self.guest or None, "mode": self.mode or None}
        given = (f"{key}={value}" for key, value in settings.items() if value is not None)
        first = FIRST.get(self.mode, ())
        if self.seeds is not None or any(text.startswith("blocks=") for text in self.overrides):
            # A number that was asked for is that number.
            first = tuple(text for text in first if text.partition("=")[0] == "guest")
        return (*first, *self.overrides, *given)

    @property
    def recorded(self) -> tuple[str, ...]:
        """What a session keeps of what was changed in its experiment."""
        from results.record import QUICK

        config = (f"--config {text}" for text in self.config)
        return (*self.all_overrides, *config, *([QUICK] if self.quick else []))

    @property
    def by_series(self) -> bool:
        """Whether anything is said that needs no experiment file."""
        return bool(self.arms or self.workloads or self.of_series)

    @property
    def of_series(self) -> bool:
        """Whether anything is said that is about a series only."""
        return bool(self.series or self.source or self.automatic or self.reverse)


def arguments(request: Request, *, here: Path, checkout: Path) -> tuple[str, ...]:
    """The arguments with which ``./lab.py run`` asks the same in the checkout."""
    hints = get_type_hints(Request, include_extras=True)
    words: list[str] = []
    for field in fields(Request):
        value = getattr(request, field.name)
        if value == field.default:
            continue
        values = list(value) if isinstance(value, tuple) else [value]
        if field.name in PLACES or (field.name == "name" and value.endswith(".toml")):
            values = [from_here(each, here=here, checkout=checkout) for each in values]
        (declared,) = hints[field.name].__metadata__
        # typer keeps the first name of an annotated option as its default.
        flag, _, negated = str(declared.default).partition("/")
        if isinstance(declared, ArgumentInfo):
            words += values
        elif isinstance(value, bool):
            words.append(flag if value else negated)
        else:
            words += [word for each in values for word in (flag, str(each))]
    return tuple(words)
