"""How a session is made again: commands for a shell, and the numbers that must come out; pure."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePath
from typing import NamedTuple

from analysis.model import MetricComparison
from reports import verdict_words, wording
from reports.headline import Session, headline
from results.record import Manifest

# A path of the sender's: from the root, the home or the folder above.
LOCAL = re.compile(r"(?:^|(?<=[:=]))(?:~|\.\.)?/(?:[^@\s]*/)?([^/@\s]+)/?(?=@|$)")
ELSEWHERE = "PATH"
DIRTY = "-dirty"
UNKNOWN = "not found"


class Repeat(NamedTuple):
    """``commands`` are lines for a shell in a checkout of the lab; ``results`` a line a number.

    ``expected`` says what the results are, ``notes`` what the commands do not say.
    """

    lab: str
    commands: tuple[str, ...]
    notes: tuple[str, ...]
    expected: str
    results: tuple[str, ...]


def repeat(session: Session, folder: str = "", *, of_others: bool = False) -> Repeat:
    """The commands that make the session again; ``folder`` is as for ``headline``.

    ``of_others`` are those who have neither the session's folder nor the sender's files.
    """
    manifest = session.manifest
    alone = len(session.comparisons) == 1
    names = {each.name: "" if alone else f"{each.name}: " for each in session.comparisons}
    results = tuple(
        f"{names[comparison.name]}{_result(metric, exact=comparison.wall is None)}"
        for comparison in session.comparisons
        for metric in comparison.primary
        if metric.base and metric.patched and headline(session).has_verdicts
    )
    exact = manifest.experiment.mode == "exact"
    return Repeat(
        lab=_lab(manifest),
        commands=_commands(manifest, "" if of_others else folder or f"sessions/{manifest.session}"),
        notes=_notes(manifest, of_others=of_others),
        expected=("Expected means, equal to the last digit on any host" if exact else
                  "Real time gives other digits: the verdicts must come out, with intervals that "
                  "overlap these") if results else "",
        results=results,
    )  # fmt: skip


def _lab(manifest: Manifest) -> str:
    provenance = manifest.provenance
    is_known = provenance.lab_commit not in ("", UNKNOWN)
    commit = f"commit {provenance.lab_commit}" if is_known else "its commit is not known"
    return f"Twinboot {provenance.lab_version}, {commit}"


def _commands(manifest: Manifest, folder: str) -> tuple[str, ...]:
    commit = manifest.provenance.lab_commit.removesuffix(DIRTY)
    commands = [f"git checkout {shlex.quote(commit)}"] if commit not in ("", UNKNOWN) else []
    if manifest.arguments:
        arguments = manifest.arguments if folder else _of_others(manifest)
        commands.append(shlex.join(["./lab.py", "run", *arguments]))
    if manifest.experiment.mode == "exact" and folder:
        archive = f"{PurePath(folder).name}.tar.gz"
        commands.append(shlex.join(["./lab.py", "repro", folder]))
        commands.append(shlex.join(["./lab.py", "repro", "--check", archive]))
    return tuple(commands)


def _of_others(manifest: Manifest) -> list[str]:
    """The arguments as others can use them.

    A posted series is named by its message-id, whatever file the sender has it in; of other
    places only the last name is theirs, below ``PATH``.
    """
    named = {record.origin: record.message_id.strip("<>") for record in manifest.series}
    arguments = []
    for argument in manifest.arguments:
        option, equals, value = argument.rpartition("=" if argument[:2] == "--" else "\0")
        value = named.get(value) or LOCAL.sub(lambda match: f"{ELSEWHERE}/{match[1]}", value)
        arguments.append(f"{option}{equals}{value}")
    return arguments


def _notes(manifest: Manifest, *, of_others: bool) -> tuple[str, ...]:
    notes = []
    if of_others and any(f"{ELSEWHERE}/" in argument for argument in _of_others(manifest)):
        notes.append(f"{ELSEWHERE} is where your own copy lies.")
    if manifest.provenance.lab_commit.endswith(DIRTY):
        notes.append("The lab had changes that are not in this commit.")
    if not manifest.arguments:
        notes.append("The command that started the session is not on record.")
    if manifest.experiment.mode == "exact" and not of_others:
        notes.append(
            "repro packs the session into an archive; repro --check measures it again, on any "
            "machine, and compares every number."
        )
    return tuple(notes)


def _result(metric: MetricComparison, *, exact: bool) -> str:
    """``filemap-4k 4k.bw: 287.053 -> 289.965 virtual MiB/s``; in wall mode the verdict, too."""
    assert metric.base is not None
    assert metric.patched is not None
    both = f"{wording.figure(metric.base.mean)} -> {wording.figure(metric.patched.mean)}"
    text = f"{metric.case} {metric.name}: {both}{wording.after(metric.unit)}"
    if exact:
        return text
    parts = (wording.change(metric), wording.interval(metric), verdict_words.verdict(metric))
    return f"{text}, {', '.join(part for part in parts if part)}"
