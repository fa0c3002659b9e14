"""Judge a session, or the newest nights of a history, by a policy."""

from __future__ import annotations

import os
from pathlib import Path

from errors import InfraError, UsageError
from history.changes import changes_of
from history.gate import Gate, of_history, of_session, workflow_commands
from history.known import load_known
from history.policy import Policy
from history.store import HistoryStore
from reports.comparison import unfinished
from reports.many import SessionComparison, compare_session
from reports.outcome import pending
from results.session import open_session
from text import clean_line
from verbs.actions.policy import policy_of
from verbs.output import emit, write_out


def judge(
    session: Path | None,
    history: Path | None,
    policy_file: Path,
    known_file: Path,
    night: str,
    *,
    annotate: bool | None,
    as_json: bool,
) -> int:
    """Print what the policy says of a session, or else of a history; return the exit code.

    Raises:
        InfraError: the session is not finished, or no session of ``night`` was added.
        UsageError: a history without entries.
    """
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
        write_out(workflow_commands(gate.messages), end="")
    return gate.exit_code


def _finished(folder: Path) -> SessionComparison:
    session = open_session(folder)
    open_runs = unfinished(session)
    if open_runs:
        raise InfraError(
            open_runs, where=str(folder), next_step=f"./lab.py run --resume {folder}"
        )  # fmt: skip
    compared = compare_session(session)
    if pending(compared):
        raise InfraError(
            "its checks are pending", where=str(folder),
            next_step=f"./lab.py run --resume {folder}",
        )  # fmt: skip
    return compared


def _of_history(folder: Path, policy: Policy, known_file: Path, night: str) -> Gate:
    store, known_changes = HistoryStore(folder), load_known(known_file)
    read = store.read()
    if not read.entries:
        # A gate that judges nothing must not look like a gate that passed.
        raise UsageError(
            "a history without entries", where=str(folder),
            next_step="./lab.py history add SESSION",
        )  # fmt: skip
    if night and night not in {entry.night_key for entry in read.entries}:
        # The night before would be judged in its place, and pass once more.
        raise InfraError(
            f"no entry of night {night!r}: none of its sessions was added", where=str(folder),
            next_step=f"./lab.py history add SESSION --night {night}",
        )  # fmt: skip
    changes = changes_of(read.entries, store.functions, known_changes, policy)
    return of_history(
        read.entries, changes, policy, problems=read.problems, known_changes=known_changes
    )
