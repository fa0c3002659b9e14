"""The verb that says in one line what the lab knows of one patch: for b4 prep --check."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from errors import Exit, SeriesError, SpecError, UsageError
from experiment.series_name import split_mail
from text import clean, enumerated
from verbs.invocation import write_out
from verbs.options import SESSIONS, opt, sessions_folder

if TYPE_CHECKING:
    from kernels.diff import Diff
    from reports.sessions import ListedMetric, ListedSession
    from results.record import Manifest
    from results.session import SessionHead

app = typer.Typer(add_completion=False)


@app.command("patch")
def patch_verb(
    mail: Annotated[
        Path, typer.Argument(metavar="MAIL", help="a patch as a mail; - reads standard input")
    ] = Path("-"),
    sessions: Annotated[Path, opt("--sessions", "folder with the sessions to search")] = SESSIONS,
    always: Annotated[bool, opt("--always", "print a line even if there is no regression")] = False,
) -> None:
    """Print what past sessions say of one patch, in one line.

    Prints nothing if the patch was measured without a regression. Nothing is built or booted: the
    verdict is from the newest session that measured the patch, alone (--per-patch) or with its
    series. Without such a session the line names the workloads that execute the functions the
    patch changes. The line begins with ERROR: for a regression (exit 1) and for a patch that
    cannot be read (exit 4), as b4 prep --check expects; see docs/command-line.md.

    Examples:
    ./lab.py patch 0001-mm-faster.patch --always  # a patch in a file
    ./lab.py patch --sessions /srv/sessions -  # a mail, as b4 hands it over
    """
    given = answer(mail, sessions)
    if always or given.is_shown:
        write_out(given.line)
    raise typer.Exit(given.code)


TIMEOUT_S = 20.0
LONGEST = 300
MOST_NAMES = 4
# Files of a kernel tree that no kernel is built from.
TEXTS = ("Documentation/*", "MAINTAINERS", "CREDITS", ".mailmap", "*.rst")


@dataclass(frozen=True)
class PatchAnswer:
    """The one line, whether it is shown unasked, and the exit code."""

    line: str
    is_shown: bool
    code: Exit = Exit.NO_REGRESSION


@dataclass(frozen=True)
class Measured:
    """A session that has the patch: the patch's number in its series, and of how many."""

    head: SessionHead
    manifest: Manifest
    number: int
    count: int


def answer(mail: Path, sessions: Path) -> PatchAnswer:
    """What is known of the patch in ``mail``, or on standard input for ``-``.

    Of a mailbox it is the series that ``--series`` would take; ``FILE#MESSAGE-ID`` is one mail.
    Raises UsageError: the mail cannot be read, or there is no such folder of sessions.
    """
    from kernels.diff import read_diff
    from kernels.intake import read_series
    from kernels.mail import as_patch

    sessions = sessions_folder(sessions)
    file, named = (str(mail), "") if mail.exists() else split_mail(str(mail))
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot be read: {error.strerror}", where=file, next_step="name a mail, or -"
        ) from None
    try:
        series = read_series(raw, file, named=named, alone=True)
        patches = [as_patch(each, each.number, each.total) for each in series.patches]
        text = b"\n".join(patches).decode(errors="replace")
        diff = read_diff(text, "the patch")
        if not diff.files:
            raise SeriesError("changes no file", where=file, next_step="name a mail with a diff")
    except SeriesError as error:
        return PatchAnswer(_line(f"ERROR: {error.in_one_line}"), True, Exit.SERIES)
    alone = len(patches) == 1
    measured = next(sessions_with(text, diff, sessions), None) if alone else None
    return of_session(measured) if measured else unmeasured(text, diff)


def sessions_with(text: str, diff: Diff, sessions: Path) -> Iterator[Measured]:
    """Sessions that have this very change, newest first; lines that moved make no difference."""
    from results.session import heads_in

    patch_id = ""
    for head in heads_in(sessions):
        if head.manifest is None:
            continue
        for record in head.manifest.series:
            for number, patch in enumerate(record.patches, start=1):
                if set(patch.files) != set(diff.files):
                    continue
                patch_id = patch_id or _patch_id(text)
                copies = _copies(head.folder, patch.name)
                if any(_patch_id(copy.decode(errors="replace")) == patch_id for copy in copies):
                    yield Measured(head, head.manifest, number, len(record.patches))


def _copies(session: Path, name: str) -> Iterator[bytes]:
    """The patch of this name as a session, which may be a stranger's, has it."""
    from kernels.series import LARGEST
    from results import door
    from results.door import StoreError
    from runs.session import SERIES

    for series in door.names(session, SERIES):
        with suppress(StoreError, OSError):
            yield door.read(session, f"{SERIES}/{series}/{name}", LARGEST)


def of_session(measured: Measured) -> PatchAnswer:
    """What the report of a session says of the patch."""
    from analysis.verdict import Verdict
    from reports.sessions import listed

    session, name = listed(measured.head), measured.head.folder.name
    alone = measured.manifest.experiment.compare == "steps"
    metrics = _of_patch(measured, session) if alone else session.primary
    scope = "this patch alone" if alone or measured.count == 1 else f"all {measured.count} patches"
    where = f"{scope}, session {name}"
    lost = [metric for metric in metrics if metric.verdict == Verdict.REGRESSION]
    if lost:
        text = f"ERROR: regression of {'; '.join(map(_change, lost))} ({where})"
        return PatchAnswer(_line(text), True, Exit.REGRESSION)
    decided = {Verdict.IMPROVEMENT, Verdict.NO_CHANGE}
    is_good = bool(metrics) and all(metric.verdict in decided for metric in metrics)
    # The code of a session with steps is that of all its patches.
    is_good = is_good and (alone or session.exit_code == Exit.NO_REGRESSION)
    if is_good:
        changes = "; ".join(f"{_change(metric)}, {metric.verdict}" for metric in metrics)
        return PatchAnswer(_line(f"{changes} ({where})"), False)
    why = session.problem or "; ".join(
        f"{metric.case} {metric.metric}: {metric.verdict}" for metric in metrics
    )
    return PatchAnswer(_line(f"no verdict: {why or session.verdict} ({where})"), True)


def unmeasured(text: str, diff: Diff) -> PatchAnswer:
    """What could be measured of a patch that no session has."""
    from kernels.diff import changed_functions, of_kernel
    from results.coverage import suggest
    from runs.coverage import shipped, workloads_for

    if not of_kernel(diff.files):
        names = enumerated(diff.files, most=MOST_NAMES)
        text = f"ERROR: no path or folder of it is in a kernel's source: {names}"
        return PatchAnswer(_line(text), True, Exit.SERIES)
    files = [
        file for file in diff.files if not any(fnmatchcase(file, pattern) for pattern in TEXTS)
    ]
    if not files:
        return PatchAnswer("changes documentation or tools only: no kernel is affected", False)
    functions = changed_functions(text, "the patch")
    names = enumerated([f"{name}()" for name in functions] or files, most=MOST_NAMES)
    try:
        coverage = shipped()
        suggestion = suggest(coverage, functions, files)
        workloads = workloads_for(suggestion, files)
    except SpecError:
        return PatchAnswer(_line(f"not measured: no workload is known to execute {names}"), True)
    line = f"not measured: changes {names}"
    if suggestion.candidates and not suggestion.by_files:
        count = len(
            {
                name
                for pattern in suggestion.candidates
                if pattern.case.workload in workloads
                for name in pattern.functions
            }
        )
        line += f"; {count} of {len(functions)} executed by {', '.join(workloads)}"
        line += f" (counts of {coverage.release})"
    else:
        line += f"; workloads for these files: {', '.join(workloads)} (by name, not by counts)"
    return PatchAnswer(_line(f"{line}; measure: twinboot run --base UPSTREAM --per-patch"), True)


def _of_patch(measured: Measured, session: ListedSession) -> tuple[ListedMetric, ...]:
    """The metrics of the step that adds the patch: arm 0 is the base."""
    arms = [arm.name for arm in measured.manifest.arms]
    name = arms[measured.number] if measured.number < len(arms) else ""
    return tuple(metric for metric in session.primary if metric.patched == name)


def _change(metric: ListedMetric) -> str:
    change = "" if metric.change is None else f" {100 * metric.change:+.2f} %"
    return f"{metric.case} {metric.metric}{change}"


def _patch_id(text: str) -> str:
    """Git's id of a change: the same whatever lines it is at, and whoever mailed it."""
    from host.process import run

    result = run(["git", "patch-id", "--stable"], timeout_s=TIMEOUT_S, stdin_text=text)
    return result.stdout.partition(" ")[0]


def _line(text: str) -> str:
    return clean(text, LONGEST)
