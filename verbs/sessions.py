"""Verbs of sessions: listed with their verdicts, two side by side, packed and repeated."""

from __future__ import annotations

import enum
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from errors import UsageError
from text import counted
from verbs.cli import flattened
from verbs.invocation import emit, log, options, placed, resumable, write_out
from verbs.options import (
    SESSIONS,
    Booting,
    Folder,
    Json,
    Strict,
    opt,
    session_argument,
    sessions_folder,
)

app = typer.Typer(add_completion=False)


@app.command("sessions")
def sessions_verb(
    folder: Annotated[Path, typer.Argument(help="folder of sessions", metavar="FOLDER")] = SESSIONS,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="list the newest N")] = 10,
    everything: Annotated[bool, opt("--all", "every session")] = False,
    as_json: Json = False,
) -> None:
    """List sessions with their verdicts, newest first.

    `report latest` and `report NAME` show one of them; the exit code in each line is that
    of its report.

    Examples:
    ./lab.py sessions  # the newest ten, with verdicts
    ./lab.py sessions --all --json  # all of them, for a script
    """
    from reports.sessions import listed, text_lines
    from results.session import heads_in

    heads = heads_in(sessions_folder(folder))
    limited = heads if everything else heads[:limit]
    listed_sessions = [listed(head) for head in limited]
    if as_json:
        emit(listed_sessions)
        return
    write_out("\n".join(text_lines(listed_sessions)), end="\n" if listed_sessions else "")
    if not heads:
        log(f"no session in {folder}")
    elif len(listed_sessions) < len(heads):
        log(f"{len(heads) - len(listed_sessions)} older sessions not shown; --all lists them")


@app.command("compare")
def compare_verb(
    first: Annotated[Path, session_argument("FIRST")],
    second: Annotated[Path, session_argument("SECOND")],
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Compare two sessions of the same cases, the second to the first.

    Arms of one name are paired seed by seed. All that differs is named: kernels, guest,
    userland, lab. Where more than kernels and their settings differs nothing is judged, and
    the exit code is 2; else it is the verdict's, as that of report.

    Examples:
    ./lab.py compare filemap-v4-20260101-120000 latest  # two runs of one case
    ./lab.py compare A B --strict  # exit 5 if inconclusive
    """
    from analysis.comparison import unfinished
    from analysis.two_sessions import compare_two
    from reports.headline import exit_code
    from reports.sessions import side_by_side
    from results.session import open_session

    sessions = [open_session(folder, counted=False) for folder in (first, second)]
    for folder, session in zip((first, second), sessions, strict=True):
        if open_runs := unfinished(session):
            raise UsageError(
                open_runs, where=str(folder), next_step=f"./lab.py run --resume {folder}"
            )
    pair = compare_two(*sessions)
    if as_json:
        emit(pair)
    else:
        write_out(side_by_side(pair), end="")
    if pair.obstacles:
        raise UsageError(
            "the two sessions are not comparable",
            where=f"{first}, {second}",
            next_step="measure both with the same guest, userland and lab (./lab.py repro carries "
            "the root of a session to another host); or use history, which keeps a baseline "
            "across such changes",
        )
    raise typer.Exit(exit_code(pair.primary, (), strict=strict))


class ReproExit(enum.IntEnum):
    """Exit codes of ``repro --check``; 2, 3 and 4 are those of every verb."""

    SAME = 0
    DIFFERENT = 1


@app.command("repro")
@flattened
def repro_verb(
    where: Booting,
    given: Annotated[Path | None, session_argument("SESSION")] = None,
    output: Annotated[
        Path | None, opt("-o --output ARCHIVE", "archive to write; default: SESSION.tar.gz")
    ] = None,
    check: Annotated[
        Path | None, opt("--check ARCHIVE", "repeat the session of this archive")
    ] = None,
    source: Annotated[
        str,
        opt(
            "--source SOURCE",
            "with --check: the kernel source on this host, if elsewhere than in the archive",
        ),
    ] = "",
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Pack a session into an archive, or repeat an archived session and compare every number.

    Exit codes of --check: 0 every number is equal, 1 some are not.

    Examples:
    ./lab.py repro sessions/NAME -o s.tar.gz  # pack a session
    ./lab.py repro --check s.tar.gz  # repeat it and compare every number
    """
    if (given is None) == (check is None):
        what = "give either SESSION to pack or --check ARCHIVE"
        step = "./lab.py repro SESSION, or ./lab.py repro --check ARCHIVE"
        raise UsageError(what, where="repro", next_step=step)
    if check is not None:
        raise typer.Exit(_repeat(check, source, folder, where, as_json=as_json))
    if source or folder or as_json:
        what = "--source, --session and --json are options of --check"
        raise UsageError(what, where="repro", next_step="leave them out, or add --check ARCHIVE")
    assert given is not None
    from runs import repro

    archive = output or Path(f"{given.resolve().name}.tar.gz")
    names = repro.write_archive(given, archive, options())
    log(f"{len(names)} files, {archive.stat().st_size >> 10} KiB")
    write_out(archive)


def _repeat(
    archive: Path, source: str, folder: Path | None, booting: Booting, *, as_json: bool
) -> ReproExit:
    """Repeat an archive's session wherever is asked; say what differs, and return the exit code."""
    from analysis.two_sessions import compare_two, unequal_runs
    from reports.sessions import side_by_side
    from results.session import open_session
    from results.store import MANIFEST
    from runs import repro, session
    from runs.boots import Reporter
    from runs.manifest import tools_of
    from runs.measure import measure
    from runs.resolved import resolve

    reporter = Reporter()
    with (
        # What is asked is whether it comes out again.
        placed(replace(options(booting), kept=None), booting, reporter) as here,
        tempfile.TemporaryDirectory(prefix="twinboot-repro-") as scratch,
    ):
        if folder is not None and not (folder / MANIFEST).exists():
            session.require_new(folder)
        opened = repro.read_archive(archive, Path(scratch))
        manifest = opened.manifest
        session.require_known(manifest.experiment, archive, here)
        on = session.options_of(manifest, here)
        tools = tools_of(manifest.experiment.kernel.architecture, on)
        differing = list(repro.differs_here(opened, on, tools))
        for line in differing:
            reporter.log(f"differs  {line}")
        experiment = repro.experiment_again(opened, on, source)
        target = folder or session.new_folder(SESSIONS, experiment)
        again = ("repro", "--check", str(archive), "--session", str(target))
        with session.locked(target), resumable(again, target / MANIFEST):
            if (target / MANIFEST).exists():
                prepared, store, on = session.reopen(target, on, reporter.building)
            else:
                prepared, store = session.start(
                    resolve(experiment, checkout=on.checkout, cache=on.cache),
                    on,
                    target,
                    manifest.overrides,
                    reporter.building,
                    manifest.arguments,
                )
            reporter.log(f"session {target}")
            measure(prepared, on, store, reporter)
        then, now = open_session(opened.session), open_session(target)
    pair, unequal = compare_two(then, now), unequal_runs(then, now)
    code = [each.name for each in pair.differences if each.name.endswith(": machine code")]
    if as_json:
        emit({**dict(pair), "differs": differing, "unequal_runs": unequal})
    else:
        lines = [f"differs: {line}" for line in differing]
        lines += [f"{run}: {what}" for run, what in unequal.items()]
        made = counted(len(then.records), "run")
        lines.append(
            f"not reproduced: {len(unequal)} of {made} differ"
            if unequal
            else f"reproduced: {made}, all identical"
        )
        write_out(side_by_side(pair) + "\n" + "\n".join(lines))
    return ReproExit.DIFFERENT if unequal or code else ReproExit.SAME
