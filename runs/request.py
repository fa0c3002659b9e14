"""What is to be measured, as one request: its fields are the options of the command line.

Every verb that takes an experiment has these options, from here (``verbs.cli``), and a
session's manifest has the arguments that a request stands for, from here, too.  Nothing that is
slow to import is imported: ``--help`` and completion read this file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

from experiment.series_name import from_here

CHECKOUT = Path(__file__).resolve().parent.parent
EXPERIMENTS = CHECKOUT / "configs" / "experiments"
MACHINES = CHECKOUT / "configs" / "machines"
WORKLOADS = CHECKOUT / "workloads" / "catalogue"
SESSIONS = CHECKOUT / "sessions"
MANIFEST = "manifest.json"
MODES = ("exact", "wall")


def experiments(incomplete: str) -> list[str]:
    """Names of shipped experiments that begin so."""
    return _beginning(incomplete, (path.stem for path in sorted(EXPERIMENTS.glob("*.toml"))))


def modes(incomplete: str) -> list[str]:
    """The ways to measure that begin so."""
    return _beginning(incomplete, MODES)


def machines(incomplete: str) -> list[str]:
    """Names of machines whose caches are modelled, and ``none``, that begin so."""
    return _beginning(
        incomplete, ["none", *(path.stem for path in sorted(MACHINES.glob("*.toml")))]
    )


def workloads(incomplete: str) -> list[str]:
    """Names of workloads; with commas the last of them is completed."""
    before, comma, last = incomplete.rpartition(",")
    names = (path.stem for path in sorted(WORKLOADS.glob("*.toml")))
    return [f"{before}{comma}{name}" for name in _beginning(last, names)]


def sessions(incomplete: str) -> list[str]:
    """``latest``, and names of this lab's sessions, newest first."""
    heads = sorted(
        SESSIONS.glob(f"*/{MANIFEST}"), key=lambda path: path.stat().st_mtime, reverse=True
    )
    return _beginning(incomplete, ["latest", *(path.parent.name for path in heads)])


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


SUBJECT = "What is compared"
METHOD = "How it is measured"
# Their values name places, of which relative ones start where the user is.
PLACES = ("series", "source", "arms")


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
            help="an experiment file, or a name from `lab.py list`",
            metavar="EXPERIMENT",
            autocompletion=experiments,
        ),
    ] = ""
    overrides: Annotated[
        tuple[str, ...],
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            envvar="TWINBOOT_SET",
            rich_help_panel=SUBJECT,
            help="override a key of the experiment: guest=smoke, blocks=12",
        ),
    ] = ()
    mode: Annotated[
        str,
        typer.Option(
            "--mode",
            metavar="MODE",
            autocompletion=modes,
            rich_help_panel=METHOD,
            help="exact, or wall: real time under virtme-ng and KVM",
        ),
    ] = ""
    twins: Annotated[
        bool | None,
        typer.Option(
            "--twins/--no-twins",
            rich_help_panel=METHOD,
            help="also make the diagnostic runs (lock waits, cache misses, lines that move)",
        ),
    ] = None
    series: Annotated[
        tuple[str, ...],
        typer.Option(
            "--series",
            metavar="SERIES",
            rich_help_panel=SUBJECT,
            help="patches: a FOLDER, FILE, MESSAGE-ID or range A..B; see docs/series.md",
        ),
    ] = ()
    source: Annotated[
        str,
        typer.Option(
            "--source",
            metavar="SOURCE",
            rich_help_panel=SUBJECT,
            help="kernel source for --series: deb:, tarball:, dir: or git:PATH\\[@REF]",
        ),
    ] = ""
    workloads: Annotated[
        str,
        typer.Option(
            "--workloads",
            metavar="NAME,NAME",
            autocompletion=workloads,
            rich_help_panel=METHOD,
            help="with --series or --arm: workloads to run",
        ),
    ] = ""
    automatic: Annotated[
        bool,
        typer.Option(
            "--auto",
            rich_help_panel=METHOD,
            help="the default with --series: the workloads that execute what it changes",
        ),
    ] = False
    reverse: Annotated[
        bool,
        typer.Option(
            "--reverse",
            rich_help_panel=SUBJECT,
            help="the source contains --series already: remove it for the base",
        ),
    ] = False
    per_patch: Annotated[
        bool,
        typer.Option(
            "--per-patch",
            rich_help_panel=SUBJECT,
            help="measure after each patch of the series, without diagnostic runs",
        ),
    ] = False
    check: Annotated[
        bool | None,
        typer.Option(
            "--check/--no-check",
            rich_help_panel=METHOD,
            help="run the correctness checks on every arm, or skip them",
        ),
    ] = None
    arms: Annotated[
        tuple[str, ...],
        typer.Option(
            "--arm",
            metavar="KERNEL",
            rich_help_panel=SUBJECT,
            help="a kernel to compare; the first one is the base: deb:linux-image-RELEASE, "
            "image:PATH@MODULES, or a source as for --source",
        ),
    ] = ()
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            rich_help_panel=METHOD,
            help="only the first case, without correctness checks and diagnostic runs",
        ),
    ] = False

    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            metavar="N",
            min=1,
            max=1000,
            rich_help_panel=METHOD,
            help="as many seeds, and no more (with --max-seeds: at first)",
        ),
    ] = None
    max_seeds: Annotated[
        int | None,
        typer.Option(
            "--max-seeds",
            metavar="N",
            min=1,
            max=1000,
            rich_help_panel=METHOD,
            help="add seeds, up to as many, until every verdict is decided",
        ),
    ] = None

    memory: Annotated[
        str,
        typer.Option(
            "--memory",
            metavar="MACHINE",
            autocompletion=machines,
            rich_help_panel=METHOD,
            help="after the verdict: what this machine's caches and TLBs would miss; none: nothing",
        ),
    ] = ""

    config: Annotated[
        tuple[str, ...],
        typer.Option(
            "--config",
            metavar="\\[ARM:]CONFIG_X=y",
            rich_help_panel=SUBJECT,
            help="an option of the kernel, on all arms or one: patched:CONFIG_X=y",
        ),
    ] = ()

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
        """The overrides, with those that ``mode``, ``seeds`` and ``max_seeds`` stand for.

        A wall guest counts real seconds, so it has a profile of its own.
        """
        guest = ("guest=wall",) if self.mode == "wall" else ()
        mode = (f"mode={self.mode}",) if self.mode else ()
        return (*guest, *self.overrides, *self._of_seeds, *mode)

    @property
    def _of_seeds(self) -> tuple[str, ...]:
        settings = {"blocks": self.seeds, "max_seeds": self.max_seeds}
        return tuple(f"{key}={value}" for key, value in settings.items() if value is not None)

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
    """The arguments with which ``./lab.py run`` asks the same in the checkout.

    ``here`` is where the user is: what is there is named by its whole path.
    """
    hints = get_type_hints(Request, include_extras=True)
    words: list[str] = []
    for field in fields(Request):
        value = getattr(request, field.name)
        if value == field.default:
            continue
        if field.name in PLACES or (field.name == "name" and value.endswith(".toml")):
            value = _placed(value, here, checkout)
        (declared,) = hints[field.name].__metadata__
        words += _words(declared, value)
    return tuple(words)


def _placed(value: Any, here: Path, checkout: Path) -> Any:
    if isinstance(value, tuple):
        return tuple(from_here(name, here=here, checkout=checkout) for name in value)
    return from_here(value, here=here, checkout=checkout)


def _words(declared: ArgumentInfo | OptionInfo, value: Any) -> Iterator[str]:
    """The words of a command line that give a parameter this value."""
    if isinstance(declared, ArgumentInfo):
        yield value
        return
    # typer keeps the first name of an annotated option as its default.
    option, _, negated = str(declared.default).partition("/")
    if isinstance(value, bool):
        yield option if value else negated
        return
    for item in value if isinstance(value, tuple) else (value,):
        yield from (option, str(item))
