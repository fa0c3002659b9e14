"""Keep nights in the history, and show or copy what is kept."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from errors import RecordError, UsageError
from experiment.frozen import closest
from history import wording
from history.changes import changes_of
from history.entry import calendar_date
from history.function_changes import function_changes
from history.ingest import SessionError, read_session
from history.known import KnownChanges, load_known
from history.policy import too_late
from history.store import HistoryContents, HistoryStore, UnreadFile, export_lines, read_lines
from history.trend import trends
from results.record import as_json as as_json_values
from text import clean_line
from verbs.actions.policy import policy_of
from verbs.output import emit, log, write_out

# Clocks and time zones differ by less.
AHEAD = timedelta(days=1)
NIGHT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def add(sessions: Sequence[Path], folder: Path, night: str, link: str) -> None:
    """Keep what the sessions measured, as one entry each; exit 2 where one could not be."""
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
    read = export_lines(HistoryStore(folder), file)
    _left_out(read.problems)
    write_out(f"{len(read.entries)} entries in {file}")


def read_in(files: Sequence[Path], folder: Path) -> None:
    """Add the entries of exported files; exit 2 where any could not be read."""
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
    try:
        if text:
            calendar_date(text)
    except ValueError as error:
        raise UsageError(str(error), where=option, next_step="write YYYY-MM-DD") from None
