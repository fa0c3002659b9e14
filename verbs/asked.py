"""What every verb shares: the options of the command line, and how it answers."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from errors import UsageError
from host import facts

# What makes experiments and boots is imported where it is called: a verb that only lists
# would wait for it.
if TYPE_CHECKING:
    from experiment.spec import Experiment
    from runs.options import Options
    from runs.progress import Reporter
    from runs.question import Question

CHECKOUT = Path(__file__).resolve().parent.parent
SESSIONS = CHECKOUT / "sessions"


def session_folder(name: Path) -> Path:
    """The folder of a session by path, by name among this lab's, or ``latest``.

    Raises:
        UsageError: there is no session that could be the newest.
    """
    from results.sessions import named_session

    folder = named_session(name, SESSIONS)
    if folder is None:
        raise UsageError("there is no session yet", where=str(SESSIONS), next_step="./lab.py run")
    return folder


Named = Annotated[
    str, typer.Argument(help="an experiment file, or its name", metavar="[EXPERIMENT]")
]
Set = Annotated[
    list[str],
    typer.Option(
        "--set", metavar="KEY=VALUE", envvar="TWINBOOT_SET", help="override a key of the experiment"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="for scripts")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="print commands that can be pasted, run none")
]
Folder = Annotated[Path | None, typer.Option("--session", help="folder of a new session")]
Resume = Annotated[Path | None, typer.Option(help="finish the session in this folder")]
Snapshots = Annotated[
    bool, typer.Option("--snapshot/--no-snapshot", help="restore runs, or boot each from cold")
]
Anyway = Annotated[
    bool, typer.Option("--measure-anyway", help="boot even where both arms are the same code")
]
Guests = Annotated[int | None, typer.Option("--guests", min=1, help="guests at once")]
Executor = Annotated[
    str,
    typer.Option(
        metavar="WHERE",
        envvar="TWINBOOT_EXECUTOR",
        help="local, dask://HOST:PORT or dask-jobqueue:NAME; see docs/fleet.md",
    ),
]
Store = Annotated[
    str,
    typer.Option(metavar="URL", envvar="TWINBOOT_STORE",
                 help="of --executor: a folder that all hosts see, or an fsspec URL"),
]  # fmt: skip
Probe = Annotated[
    bool, typer.Option("--probe/--no-probe", help="count instructions and calls by function")
]
Twins = Annotated[
    bool | None,
    typer.Option("--twins/--no-twins", help="also run the twins that explain, as for locks"),
]
PerPatch = Annotated[
    bool, typer.Option("--per-patch", help="an arm for each patch of the series, without twins")
]
CheckFirst = Annotated[
    bool | None,
    typer.Option("--check/--no-check", help="check the correctness of every arm, or do not"),
]
Quick = Annotated[
    bool, typer.Option("--quick", help="the first case alone, no checks and no diagnostic runs")
]
Mode = Annotated[str, typer.Option(help="exact, or wall: real time under virtme-ng and KVM")]
Series = Annotated[
    list[str], typer.Option(metavar="SERIES", help="FOLDER, FILE, MESSAGE-ID or A..B; see docs")
]
Arm = Annotated[
    list[str],
    typer.Option(metavar="KERNEL", help="a kernel to compare, the first is the base: "
                 "deb:linux-image-RELEASE, image:PATH@MODULES, or as --source"),
]  # fmt: skip
Source = Annotated[str, typer.Option(help="of --series: deb:, tarball:, dir: or git:PATH[@REF]")]
Workloads = Annotated[
    str, typer.Option(metavar="NAME,NAME", help="of --series and --arm: what to run")
]
Auto = Annotated[bool, typer.Option("--auto", help="of --series: what its files call for")]
Reverse = Annotated[bool, typer.Option("--reverse", help="the source holds --series already")]
Strict = Annotated[bool, typer.Option("--strict", help="exit 5 where a verdict is inconclusive")]
Session = Annotated[
    Path,
    typer.Argument(
        help="a session's folder, its name, or latest", metavar="SESSION", callback=session_folder
    ),
]


def read(question: Question) -> Experiment:
    """The experiment that the command line asks for, checked, its series taken in."""
    from runs import prepare
    from runs.question import experiment_of

    known = prepare.catalogue(CHECKOUT)
    return experiment_of(
        question, checkout=CHECKOUT, cache=facts.cache_folder(), here=Path.cwd(), catalogue=known
    )


def options(**asked: Any) -> Options:
    """The options of this invocation."""
    from runs.options import Options

    return Options(checkout=CHECKOUT, cache=facts.cache_folder(), **asked)


@contextmanager
def placed(asked: Options, executor: str, store: str, reporter: Reporter) -> Iterator[Options]:
    """The options with what ``--executor`` names; nothing is connected before it is needed.

    Raises:
        UsageError: no such form of an executor.
        SpecError: the file of a cluster does not hold what it must.
    """
    from fleet.configured import executor_of

    where = executor_of(executor, store, checkout=CHECKOUT, cache=asked.cache, say=reporter.say)
    with where as chosen:
        yield replace(asked, executor=chosen)


@contextmanager
def resumable(again: Sequence[str] = (), begun: Path | None = None) -> Iterator[None]:
    """Where the user ends the block, say what is kept, and how to go on.

    ``begun`` is the file that is there once something can be resumed, by ``./lab.py again``;
    before that kernels are built, and those that are finished stay in the cache.
    """
    try:
        yield
    except KeyboardInterrupt:
        if begun is not None and begun.exists():
            log(f"every finished run is on record; to go on: ./lab.py {shlex.join(again)}")
        else:
            log("finished kernels stay in the cache; to go on: start the same command again")
        raise


def emit(value: object) -> None:
    """JSON on standard output."""
    print(json.dumps(value, indent=2, default=str))


def terminal_width() -> int:
    """Columns of the terminal on standard output; 80 where it is none."""
    from reports.text_lines import WIDTH

    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or WIDTH
    except (OSError, ValueError):
        return WIDTH


def log(text: str) -> None:
    """A line on standard error."""
    print(text, file=sys.stderr)
