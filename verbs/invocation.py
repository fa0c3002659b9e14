"""What one call of the lab works with: its options, experiment and executor, and where it answers.

Results go to standard output, words for people to standard error.  Everything printed goes through
here, and no character of it moves a cursor, sets a title, fills a clipboard or reorders what is
read: names, messages and consoles come from anywhere.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import typer

from errors import UsageError
from host import facts
from runs.request import Request
from text import printed
from verbs.options import CHECKOUT, ExecutorOptions

# What makes experiments and boots is imported where it is called: ``--help`` would wait for it.
if TYPE_CHECKING:
    from kernels.make import MakeProgress
    from kernels.settle import Settled
    from runs.boots import Reporter
    from runs.local import Options
    from runs.resolved import Resolved


COLOURS = {
    "regression": "red",
    "failed": "red",
    "improvement": "green",
    "inconclusive": "yellow",
    "not tested": "yellow",
    "unexplained": "yellow",
}
VERDICT = re.compile(rf"(?<!\w)({'|'.join(COLOURS)})s?(?!\w)")
# Columns where standard output is no terminal; ``reports.render.text`` has the same.
WIDTH = 80


def emit(value: object) -> None:
    """JSON on standard output; records and dataclasses are objects of their fields."""
    from pydantic_core import to_jsonable_python

    print(json.dumps(to_jsonable_python(value, fallback=str), indent=2))


def terminal_width() -> int:
    """Columns of the terminal on standard output; 80 where it is none."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or WIDTH
    except (OSError, ValueError):
        return WIDTH


def log(text: str) -> None:
    """A line on standard error."""
    print(printed(text), file=sys.stderr)


def write_out(
    text: object = "", *, end: str = "\n", flush: bool = False, verdicts: bool = False
) -> None:
    """Text on standard output; ``verdicts`` in it have their colours on a terminal."""
    shown = printed(str(text))
    # https://no-color.org
    if verdicts and sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        shown = VERDICT.sub(lambda word: typer.style(word[0], COLOURS[word[1]], bold=True), shown)
    print(shown, end=end, flush=flush)


def resolved_of(
    request: Request,
    on: Options | None = None,
    progress: Callable[[str, MakeProgress], None] = lambda arm, so_far: None,
    *,
    nearest: tuple[str, ...] = (),
) -> Resolved:
    """What the command line asks for, checked, its series unpacked and shown.

    With ``on`` kernels are built there where only these tell what the series changes.  Raises
    LabError: as ``runs.resolve.resolve_request``; a series that cannot be measured with its source.
    """
    from runs.coverage import changed_by
    from runs.resolve import resolve_request
    from runs.resolved import catalogue

    chosen = "what the series changes"

    def code(usual: Resolved) -> tuple[str, ...] | None:
        nonlocal chosen
        if on is not None:
            build_judged(usual, on, progress)
        functions, by_kernels = changed_by(usual, {}, options())
        if by_kernels:
            chosen = f"what is compiled otherwise: {len(functions)} functions"
            return functions
        chosen = "names of files; what is compiled otherwise is known once it is built"
        return None

    resolved = resolve_request(
        request,
        checkout=CHECKOUT,
        cache=facts.cache_folder(),
        here=Path.cwd(),
        catalogue=catalogue(CHECKOUT),
        on_intake=show_intake,
        code=code,
        nearest=nearest,
    )
    if request.series:
        remark = "" if request.named_workloads else f" (chosen by {chosen})"
        cases = ", ".join(case.name for case in resolved.experiment.cases)
        log(fill(f"workloads: {cases}{remark}", WIDTH, subsequent_indent="    "))
    return resolved


def require_trusted(parts: Iterable[str], trusted: Iterable[str]) -> None:
    """Raise UsageError for a name of ``--trust-series`` that is of no series of ``parts``."""
    from experiment.ad_hoc import name_of
    from experiment.frozen import likely

    names = {name_of(part) for part in parts}
    for name in trusted:
        if name not in names:
            step = f"it has {likely(name, sorted(names)) or 'none'}"
            where = f"--trust-series {name}"
            raise UsageError("no series of what is built", where=where, next_step=step)


def build_judged(
    usual: Resolved, on: Options, progress: Callable[[str, MakeProgress], None]
) -> None:
    """Build the kernels that are judged, as far as the series builds: their code tells them apart.

    Raises LabError: the base cannot be built.
    """
    from runs.building import build_arms

    build_arms(usual, on, progress, usual.flavours[0], {})


def show_intake(settled: Settled, *, must_apply: bool = True) -> None:
    """Say what was taken in of the series, where there is any.

    Raises SeriesError: with ``must_apply``, it can be measured with its source in no way.
    """
    from runs.resolve import taken_in

    summary = taken_in(settled, options())
    for line in summary.lines(with_problem=not must_apply):
        log(line)
    if summary.problem and must_apply:
        raise summary.problem


def options(executor: ExecutorOptions | None = None, *, fit_only: bool = False) -> Options:
    """The options of this call; the executor is still the local one, see :func:`placed`."""
    from kernels.cache import KEPT_RUNS
    from runs.boots import KeptRuns
    from runs.keeping import shared_at
    from runs.local import Options

    values = asdict(executor) if executor else {}
    # Words, which are made an executor when it is needed.
    for name in ("executor", "store", "insecure"):
        values.pop(name, None)
    cache = facts.cache_folder()
    if "guests" in values:
        values["guests_at_once"] = values.pop("guests")
        again, shared = values.pop("measure_again"), values.pop("kept_at")
        values["kept"] = KeptRuns(cache / KEPT_RUNS, shared and shared_at(shared), again)
    return Options(checkout=CHECKOUT, cache=cache, fit_only=fit_only, **values)


@contextmanager
def placed(
    run_options: Options, executor: ExecutorOptions, reporter: Reporter
) -> Iterator[Options]:
    """The options with what ``--executor`` names; nothing is connected before it is needed.
    Raises UsageError: no such form of an executor.
    """
    from runs.fleet.executor import executor_of

    where = executor_of(
        executor.executor,
        executor.store,
        cache=run_options.cache,
        log=reporter.log,
        insecure=executor.insecure,
    )
    with where as connected:
        yield replace(run_options, executor=connected)


@contextmanager
def resumable(again: Sequence[str] = (), folder: Path | None = None) -> Iterator[None]:
    """Where the user ends the block, say what is kept, and how to go on.
    ``begun`` is the file that is there once something can be resumed, by ``./lab.py again``;
    before that kernels are built, and those that are finished stay in the cache.
    """
    try:
        yield
    except KeyboardInterrupt:
        if folder is not None and folder.exists():
            log(f"finished runs are saved; to continue: ./lab.py {shlex.join(again)}")
        else:
            log("finished kernels are kept in the cache; to continue, run the same command again")
        raise
