"""Verbs of the benchmark history: nights kept, what changed, the CI policy, and a site."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from errors import InfraError, RecordError, UsageError
from text import clean_line, counted
from verbs.invocation import emit, log, write_out
from verbs.options import CHECKOUT, Json, opt, session_argument, sessions_folder

if TYPE_CHECKING:
    from analysis.many import SessionComparison
    from history.gate import Gate
    from history.policy import Policy

app = typer.Typer(add_completion=False)
HISTORY = CHECKOUT / "history-data"
KNOWN = CHECKOUT / "configs" / "known-changes.toml"
POLICY = CHECKOUT / "configs" / "gate.toml"
FILES = "Files"
Folder = Annotated[Path, opt("--history", "folder of the history", FILES)]


def _there(option: str, default: Path) -> Callable[[Path], Path]:
    """A list of known changes that was named and is not there would silence nothing, silently."""

    def checked(file: Path) -> Path:
        if file != default and not file.exists():
            step = f"correct the name, or leave out {option} ({default.name} is read by default)"
            raise UsageError("no such file", where=f"{option} {file}", next_step=step)
        return file

    return checked


KnownFile = Annotated[
    Path,
    opt("--known", "list of known changes, as TOML", FILES, callback=_there("--known", KNOWN)),
]
PolicyFile = Annotated[
    Path,
    opt(
        "--policy",
        "CI policy: what fails, and thresholds, as TOML",
        FILES,
        callback=_there("--policy", POLICY),
    ),
]
# Clocks and time zones differ by less.
AHEAD = timedelta(days=1)
NIGHT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@app.command("add")
def add_verb(
    sessions: Annotated[list[Path], session_argument("SESSION...")],
    folder: Folder = HISTORY,
    night: Annotated[
        str,
        opt(
            "--night ID",
            "the night of these sessions: an id that all its jobs share, or a date YYYY-MM-DD if "
            "not the session's own",
            FILES,
        ),
    ] = "",
    link: Annotated[str, opt("--link URL", "URL of the session's reports", FILES)] = "",
) -> None:
    """Add the results of sessions to the history, one entry each; exit 2 if one cannot be added.

    Examples:
    ./lab.py history add latest  # with the session's date
    ./lab.py history add sessions/A sessions/B --night 2026-01-02  # as one night
    """
    from history.entry import calendar_date
    from history.ingest import read_session
    from history.store import HistoryStore

    is_date = re.fullmatch(r"[0-9]+-[0-9]+-[0-9]+", night)
    if is_date:
        try:
            calendar_date(night)
        except ValueError as error:
            raise UsageError(str(error), where="--night", next_step="write YYYY-MM-DD") from None
    elif night and not NIGHT_ID.fullmatch(night):
        raise UsageError(
            f"{night!r} is neither a date nor an id",
            where="--night",
            next_step="write YYYY-MM-DD, or up to 64 letters, digits, dots, dashes",
        )
    store, bad = HistoryStore(folder), []
    for session in sessions:
        try:
            entry = read_session(session, night=night if is_date else "", link=link)
            latest = datetime.now(UTC).date() + AHEAD
            if date.fromisoformat(entry.night) > latest:
                what = f"night: found {entry.night!r}; allowed: up to {latest}"
                raise RecordError(f"{what}; write --night, or set this host's clock")
            entry = entry.model_copy(update={"night_id": "" if is_date else night})
            added = store.add(entry)
        except RecordError as error:
            # A night that lost one experiment still has the others.
            log(clean_line(f"left out: {session}: {error.in_one_line}"))
            bad.append(session)
            continue
        write_out(f"{entry.id}  {'added' if added else 'there already'}  {store.path(entry)}")
    if bad:
        raise UsageError(
            "not added",
            where=", ".join(map(str, bad)),
            next_step="see above; what could be added was",
        )


@app.command("show")
def show_verb(
    folder: Folder = HISTORY,
    known_file: KnownFile = KNOWN,
    policy_file: PolicyFile = POLICY,
    as_json: Json = False,
) -> None:
    """Show every benchmark of the history and what changed; `pages` shows every night.

    Examples:
    ./lab.py history show  # every benchmark and every change
    ./lab.py history show --json  # the changes, for a script
    """
    from history import wording
    from history.changes import changes_of, function_changes
    from history.policy import load_known
    from history.store import HistoryStore

    store, known_changes = HistoryStore(folder), load_known(known_file)
    read = store.read()
    changes = changes_of(read.entries, known_changes, policy_of(policy_file))
    of_functions = [
        each for each in function_changes(read.entries, known_changes) if each.functions
    ]
    if as_json:
        emit(
            {
                "changes": [{"id": change.id, **dict(change)} for change in changes],
                "functions": [
                    {
                        "id": change.id,
                        **vars(change),
                        "functions": [each._asdict() for each in change.functions],
                    }
                    for change in of_functions
                ],
                "unseen": wording.unseen(read.entries),
                "left_out": [str(problem) for problem in read.problems],
            }
        )
        return
    write_out("\n".join(wording.overview(read)))
    lines = [*map(wording.change_line, changes)]
    for each in of_functions:
        lines.append(f"{' '.join(each.track)}: {wording.function_change_line(each)}")
    line = "{night} {case} {metric}: {verdict}: {reason}"
    lines += [line.format_map(each) for each in wording.unseen(read.entries)]
    write_out("\n".join(map(clean_line, lines)) or "no change seen")


def policy_of(file: Path) -> Policy:
    """Read a policy, which knows the smallest changes that workloads' metrics have of their own.

    Raises SpecError: the policy or a workload is wrong; a line for each mistake.
    """
    from experiment.load import load
    from experiment.spec import CaseSpec
    from history.policy import Policy
    from results.units import read_name
    from workloads.metrics import thresholds_of
    from workloads.spec import load_catalogue

    policy = load(file, Policy)
    for metric in dict.fromkeys(rule.metric for rule in policy.rules):
        if (name := read_name(metric)) != metric:
            log(f"note: {file}: metric = {metric!r} is called {name!r}; both names are read")
    return policy.with_workloads(
        {
            (CaseSpec(workload=workload, variant=variant).name, metric): change
            for (workload, variant), own in thresholds_of(load_catalogue()).items()
            for metric, change in own.items()
        }
    )


@app.command("gate")
def gate_verb(
    session: Annotated[Path | None, session_argument("SESSION")] = None,
    history: Annotated[
        Path | None, opt("--history", "judge the newest night of this history")
    ] = None,
    policy_file: PolicyFile = POLICY,
    known_file: KnownFile = KNOWN,
    night: Annotated[
        str, typer.Option(metavar="ID", help="with --history: fail if this night is not in it")
    ] = "",
    annotate: Annotated[
        bool | None,
        opt(
            "--annotations/--no-annotations",
            "print GitHub annotations; default: on in GitHub Actions",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Turn a session or a history's newest night into an exit code.

    Examples:
    ./lab.py gate latest  # an exit code for CI
    ./lab.py gate --history history-data --night 2026-01-02  # of the nightly job
    """
    if (session is None) == (history is None):
        raise UsageError(
            "give either SESSION or --history FOLDER",
            where="gate",
            next_step="./lab.py gate SESSION, or ./lab.py gate --history FOLDER",
        )
    if night and history is None:
        what, step = "is of a history, and a session is named", "leave it out, or name --history"
        raise UsageError(what, where=f"--night {night}", next_step=step)
    from history.gate import of_session, workflow_commands

    policy = policy_of(policy_file)
    if session is not None:
        gate = of_session(_finished(session), policy)
    elif history is not None:
        gate = _of_history(history, policy, known_file, night)
    if as_json:
        emit({"exit_code": gate.exit_code, "messages": [m._asdict() for m in gate.messages]})
    else:
        for message in gate.messages:
            write_out(clean_line(f"{message.level}: {message.title}: {message.text}"))
        write_out(f"gate: exit {gate.exit_code}")
    annotated = os.environ.get("GITHUB_ACTIONS") == "true" if annotate is None else annotate
    if annotated:
        sys.stdout.write(workflow_commands(gate.messages))
    raise typer.Exit(gate.exit_code)


def _finished(folder: Path) -> SessionComparison:
    """The comparison of a session that is judged whole.

    Raises InfraError: runs or checks of it are still to be made.
    """
    from analysis.comparison import unfinished
    from analysis.many import compare_session
    from reports.headline import pending
    from results.session import open_session

    session = open_session(folder, counted=False)
    compared = None if (problem := unfinished(session)) else compare_session(session)
    if compared is None or pending(compared):
        raise InfraError(
            problem or "its checks are pending",
            where=str(folder),
            next_step=f"./lab.py run --resume {folder}",
        )
    return compared


def _of_history(folder: Path, policy: Policy, known_file: Path, night: str) -> Gate:
    """What a policy says of the newest night.

    Raises InfraError: no session of ``night`` was added; UsageError: a history without entries.
    """
    from history.changes import changes_of
    from history.gate import of_history
    from history.policy import load_known
    from history.store import HistoryStore

    store, known_changes = HistoryStore(folder), load_known(known_file)
    read = store.read()
    if not read.entries:
        # A gate that judges nothing must not look like a gate that passed.
        raise UsageError(
            "a history without entries",
            where=str(folder),
            next_step="./lab.py history add SESSION",
        )
    if night and night not in {entry.night_key for entry in read.entries}:
        # The night before would be judged in its place, and pass once more.
        raise InfraError(
            f"no entry of night {night!r}: none of its sessions was added",
            where=str(folder),
            next_step=f"./lab.py history add SESSION --night {night}",
        )
    changes = changes_of(read.entries, known_changes, policy)
    return of_history(
        read.entries, changes, policy, problems=read.problems, known_changes=known_changes
    )


@app.command("pages")
def pages_verb(
    history: Annotated[
        Path, typer.Argument(help="folder of the history", metavar="HISTORY")
    ] = HISTORY,
    output: Annotated[
        Path, opt("--output -o", "folder of the site; a site in it is replaced")
    ] = Path("site"),
    sessions: Annotated[
        Path | None,
        typer.Option(help="a folder of sessions; their reports are made again for the site"),
    ] = None,
    known_file: KnownFile = KNOWN,
    policy_file: PolicyFile = POLICY,
) -> None:
    """Write a static web site of the history: trends and nights.

    Examples:
    ./lab.py pages  # a site of the history in ./site
    ./lab.py pages history-data -o /srv/www/perf --sessions sessions  # with reports
    """
    from history.pages import site
    from history.policy import load_known
    from history.store import HistoryStore

    if sessions is not None:
        sessions_folder(sessions)
    counts = site.build(
        HistoryStore(history),
        output,
        known_changes=load_known(known_file),
        policy=policy_of(policy_file),
        sessions=sessions,
    )
    log(
        f"{counted(counts.tracks, 'track')}, {counted(counts.nights, 'night')}, "
        f"{counted(counts.reports, 'report')}"
    )
    for line in counts.left_out:
        log(f"left out: {line}")
    write_out(counts.folder / site.FRONT)
