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
# Of --mode: rounds of native mode go through all orders of the objects, three times.
FIRST = {"wall": ("guest=wall",), "native": ("blocks=24",)}


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


def option(flag: str, panel: str, text: str, *former: str, **more: Any) -> Any:
    """An option with its help, in one of the three panels; its former names are accepted, too."""
    return typer.Option(flag, *former, rich_help_panel=panel, help=text, **more)


NAMES: dict[str, Any] = {"metavar": "NAME,NAME", "autocompletion": workloads}
SEEDS: dict[str, Any] = {"metavar": "N", "min": 1, "max": 1000}


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
        option(
            "--set", METHOD, "any key of the experiment", metavar="KEY=VALUE", envvar="TWINBOOT_SET"
        ),
    ] = ()
    mode: Annotated[
        str,
        option(
            "--mode",
            METHOD,
            "exact; wall: real time under KVM; native: of User-Mode Linux",
            metavar="MODE",
            autocompletion=modes,
        ),
    ] = ""
    twins: Annotated[
        bool | None,
        option(
            "--diagnostics/--no-diagnostics",
            METHOD,
            "diagnostic runs: waits, misses",
            "--twins/--no-twins",
        ),
    ] = None
    series: Annotated[
        tuple[str, ...],
        option("--series", SUBJECT, "patches: FOLDER, FILE, MESSAGE-ID or A..B", metavar="SERIES"),
    ] = ()
    source: Annotated[
        str,
        option(
            "--source",
            SUBJECT,
            "their kernel: deb:, tarball:, dir: or git:PATH[@REF]",
            metavar="SOURCE",
        ),
    ] = ""
    workloads: Annotated[
        str, option("--workloads", METHOD, "of the catalogue, with --series or --arm", **NAMES)
    ] = ""
    automatic: Annotated[
        bool,
        option(
            "--auto",
            RARELY,
            "the default with --series: the workloads that execute what it changes",
        ),
    ] = False
    reverse: Annotated[
        bool,
        option("--reverse", RARELY, "the source contains --series already: remove it for the base"),
    ] = False
    per_patch: Annotated[bool, option("--per-patch", SUBJECT, "measure after each patch")] = False
    check: Annotated[
        bool | None, option("--check/--no-check", METHOD, "correctness checks of every arm")
    ] = None
    arms: Annotated[
        tuple[str, ...],
        option(
            "--arm", SUBJECT, "deb:linux-image-X, image:PATH@MODULES or a source", metavar="KERNEL"
        ),
    ] = ()
    quick: Annotated[
        bool, option("--quick", METHOD, "the first case alone, no checks or diagnostics")
    ] = False
    seeds: Annotated[
        int | None, option("--seeds", METHOD, "as many seeds, and no more", **SEEDS)
    ] = None
    max_seeds: Annotated[
        int | None,
        option(
            "--max-seeds",
            RARELY,
            "add seeds, up to as many, until every verdict is decided",
            **SEEDS,
        ),
    ] = None
    memory: Annotated[
        str,
        option(
            "--memory",
            RARELY,
            "after the verdict: what this machine's caches and TLBs would miss; none: nothing",
            metavar="MACHINE",
            autocompletion=machines,
        ),
    ] = ""
    config: Annotated[
        tuple[str, ...],
        option("--config", SUBJECT, "CONFIG_X=y, on all arms or one", metavar="[ARM:]OPTION"),
    ] = ()
    guest: Annotated[
        str,
        option(
            "--guest",
            METHOD,
            "its memory and CPUs: smoke is the smallest",
            metavar="NAME",
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
        return (*FIRST.get(self.mode, ()), *self.overrides, *given)

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
