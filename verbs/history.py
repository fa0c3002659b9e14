"""Verbs of the benchmark history: kept nights, and what changed between them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from errors import RecordError, UsageError
from text import clean_line
from verbs.invocation import emit, log, write_out
from verbs.options import CHECKOUT, OUTPUT, Json

if TYPE_CHECKING:
    from history.known import KnownChanges
    from history.policy import Policy
    from history.store import HistoryContents, HistoryStore, UnreadFile

HISTORY = CHECKOUT / "history-data"


KNOWN = CHECKOUT / "configs" / "known-changes.toml"


POLICY = CHECKOUT / "configs" / "gate.toml"


FILES = "Files"


Folder = Annotated[
    Path, typer.Option("--history", rich_help_panel=FILES, help="folder of the history")
]


def _existing_list(file: Path) -> Path:
    """A list of known changes that was named and is not there would silence nothing, silently."""
    if file != KNOWN and not file.exists():
        raise UsageError(
            "no such file", where=f"--known {file}",
            next_step=f"correct the name, or leave out --known ({KNOWN.name} is read by default)",
        )  # fmt: skip
    return file


KnownFile = Annotated[
    Path,
    typer.Option(
        "--known",
        rich_help_panel=FILES,
        help="list of known changes, as TOML",
        callback=_existing_list,
    ),
]


PolicyFile = Annotated[
    Path,
    typer.Option(
        "--policy", rich_help_panel=FILES, help="CI policy: what fails, and thresholds, as TOML"
    ),
]


app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.command("add")
def add_verb(
    sessions: Annotated[list[Path], typer.Argument(metavar="SESSION...")],
    folder: Folder = HISTORY,
    night: Annotated[
        str,
        typer.Option(
            "--night",
            metavar="ID",
            rich_help_panel=FILES,
            help="the night of these sessions: an id that all its jobs share, or a date "
            "YYYY-MM-DD if not the session's own",
        ),
    ] = "",
    link: Annotated[
        str,
        typer.Option(
            "--link", metavar="URL", rich_help_panel=FILES, help="URL of the session's reports"
        ),
    ] = "",
) -> None:
    """Add the results of sessions to the history, one entry each; exit 2 if one cannot be added.

    Examples:
    ./lab.py history add sessions/NAME  # with the session's date
    ./lab.py history add sessions/A sessions/B --night 2026-01-02  # as one night
    """
    add(sessions, folder, night, link)


@app.command("show")
def show_verb(
    entry: Annotated[str, typer.Argument(help="an entry's id or session", metavar="ENTRY")] = "",
    folder: Folder = HISTORY,
    known_file: KnownFile = KNOWN,
    policy_file: PolicyFile = POLICY,
    experiment: Annotated[
        str,
        typer.Option(
            "--experiment",
            metavar="NAME",
            rich_help_panel=OUTPUT,
            help="also list the nights of this experiment",
        ),
    ] = "",
    nights: Annotated[
        int, typer.Option("--nights", min=1, rich_help_panel=OUTPUT, help="how many nights to list")
    ] = 10,
    as_json: Json = False,
) -> None:
    """Show every benchmark of the history and what changed, or one entry.

    Examples:
    ./lab.py history show  # every benchmark and every change
    ./lab.py history show --experiment nightly --nights 30  # a month of one experiment
    """
    show(
        entry,
        folder,
        known_file,
        policy_file,
        experiment=experiment,
        nights=nights,
        as_json=as_json,
    )


@app.command("export")
def export_verb(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines")],
    folder: Folder = HISTORY,
) -> None:
    """Write the whole history to one file, a line of JSON for each entry.

    Examples:
    ./lab.py history export all.jsonl  # for another lab, or pandas
    ./lab.py history export all.jsonl --history /srv/history  # of another folder
    """
    export(file, folder)


@app.command("import")
def import_verb(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...")],
    folder: Folder = HISTORY,
) -> None:
    """Add the entries of exported files; exit 2 if any cannot be read.

    Examples:
    ./lab.py history import all.jsonl  # from another lab
    ./lab.py history import a.jsonl b.jsonl --history /srv/history  # elsewhere
    """
    read_in(files, folder)


# Clocks and time zones differ by less.
AHEAD = timedelta(days=1)


NIGHT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def add(sessions: Sequence[Path], folder: Path, night: str, link: str) -> None:
    """Keep what the sessions measured, as one entry each; exit 2 where one could not be."""
    from history.ingest import SessionError, read_session
    from history.policy import too_late
    from history.store import HistoryStore

    day, name = _night(night)
    store, bad = HistoryStore(folder), []
    for session in sessions:
        try:
            entry, functions = read_session(session, night=day, link=link)
            if ahead := too_late(entry.night, _today(), AHEAD):
                raise SessionError(f"night: {ahead}; write --night, or set this host's clock")
            entry = entry.model_copy(update={"night_id": name})
            added = store.add(entry, functions)
        except RecordError as error:
            # A night that lost one experiment still has the others.
            log(clean_line(f"left out: {session}: {error}"))
            bad.append(session)
            continue
        write_out(f"{entry.id}  {'added' if added else 'there already'}  {store.path(entry)}")
    if bad:
        raise UsageError(
            "not added", where=", ".join(map(str, bad)),
            next_step="see above; what could be added was",
        )  # fmt: skip


def show(
    entry: str,
    folder: Path,
    known_file: Path,
    policy_file: Path,
    *,
    experiment: str,
    nights: int,
    as_json: bool,
) -> None:
    """Show the tracks and every change, or one entry."""
    from experiment.frozen import closest
    from history import wording
    from history.changes import changes_of
    from history.function_changes import function_changes
    from history.trend import trends
    from results.record import as_json as as_json_values

    store, read, known_changes = _open(folder, known_file)
    if entry:
        of_name = read.entry(entry)
        if of_name is None:
            raise UsageError(
                "no such entry", where=entry, next_step=f"./lab.py history show --history {folder}"
            )
        emit(of_name.model_dump(mode="json")) if as_json else write_out(
            "\n".join(wording.entry_lines(of_name))
        )
        return
    names = sorted({track[0] for track in read.tracks()})
    if experiment and experiment not in names:
        nearest = closest(experiment, names)
        raise UsageError(
            "no night of this experiment", where=f"--experiment {experiment}",
            next_step=f"did you mean {nearest}?" if nearest else f"there are: {', '.join(names)}",
        )  # fmt: skip
    changes = changes_of(read.entries, store.functions, known_changes, policy_of(policy_file))
    of_functions = [
        change for change in function_changes(read.entries, known_changes) if change.functions
    ]
    if as_json:
        emit({
            "changes": [{"id": change.id, **as_json_values(change)} for change in changes],
            "functions": [
                {
                    "id": change.id, **dataclasses.asdict(change),
                    "functions": [each._asdict() for each in change.functions],
                }
                for change in of_functions
            ],
            "left_out": [str(problem) for problem in read.problems],
        })  # fmt: skip
        return
    write_out("\n".join(wording.overview(read)))
    of_functions_lines = wording.function_change_lines(of_functions)
    lines = [*wording.change_lines(changes), *of_functions_lines]
    write_out("\n".join([*lines, *wording.untested_lines(read.entries)]) or "no change seen")
    for track, entries in read.tracks().items():
        if track[0] == experiment:
            write_out(
                "\n".join(wording.trend_lines(trends(entries, changes, primary_only=True), nights))
            )


def export(file: Path, folder: Path) -> None:
    """Write the whole history to one file, a line of JSON for each entry."""
    from history.store import HistoryStore, export_lines

    read = export_lines(HistoryStore(folder), file)
    _left_out(read.problems)
    write_out(f"{len(read.entries)} entries in {file}")


def read_in(files: Sequence[Path], folder: Path) -> None:
    """Add the entries of exported files; exit 2 where any could not be read."""
    from history.policy import too_late
    from history.store import HistoryStore, UnreadFile, read_lines

    store, bad = HistoryStore(folder), False
    for file in files:
        read, problems = read_lines(file)
        added = there = 0
        for entry, functions in read:
            if ahead := too_late(entry.night, _today(), AHEAD):
                problems.append(UnreadFile(file, f"entry {entry.id}: night: {ahead}"))
            elif store.add(entry, functions):
                added += 1
            else:
                there += 1
        write_out(f"{file}: {added} added, {there} there already")
        _left_out(problems)
        bad = bad or bool(problems)
    if bad:
        raise UsageError(
            "entries could not be read",
            where=", ".join(map(str, files)),
            next_step="export them again; what could be read was added",
        )


def _open(folder: Path, known_file: Path) -> tuple[HistoryStore, HistoryContents, KnownChanges]:
    from history.known import load_known
    from history.store import HistoryStore

    store = HistoryStore(folder)
    return store, store.read(), load_known(known_file)


def _left_out(problems: Iterable[UnreadFile]) -> None:
    for problem in problems:
        log(clean_line(f"left out: {problem}"))


def _night(text: str) -> tuple[str, str]:
    """The date and the id that ``--night`` gives; either is empty where it gives none."""
    if re.fullmatch(r"[0-9]+-[0-9]+-[0-9]+", text):
        _date(text, "--night")
        return text, ""
    if text and not NIGHT_ID.fullmatch(text):
        raise UsageError(
            f"{text!r} is neither a date nor an id", where="--night",
            next_step="write YYYY-MM-DD, or up to 64 letters, digits, dots, dashes",
        )  # fmt: skip
    return "", text


def _today() -> date:
    return datetime.now(UTC).date()


def _date(text: str, option: str) -> None:
    from history.entry import calendar_date

    try:
        if text:
            calendar_date(text)
    except ValueError as error:
        raise UsageError(str(error), where=option, next_step="write YYYY-MM-DD") from None


def policy_of(file: Path) -> Policy:
    """Read a policy, which knows the smallest changes that workloads' metrics have of their own.

    Raises:
        SpecError: the policy or a workload is wrong; a line for each mistake.
    """
    from experiment.spec import CaseSpec
    from history.policy import load_policy
    from workloads.metrics import thresholds_of
    from workloads.spec import load_catalogue

    return load_policy(file).with_workloads(
        {
            (CaseSpec(workload=workload, variant=variant).name, metric): change
            for (workload, variant), own in thresholds_of(load_catalogue()).items()
            for metric, change in own.items()
        }
    )
