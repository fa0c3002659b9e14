"""The report as plain text: for a terminal of any width, and 80 columns in a file."""

from __future__ import annotations

from collections.abc import Sequence

from reports import (
    across,
    count_wording,
    differences,
    gate_wording,
    many_wording,
    matrix,
    repeat,
    steps,
    text_counts,
    wall_wording,
    wording,
)
from reports.gate_model import ArmGate
from reports.headline import Headline, headline
from reports.many import SessionComparison
from reports.model import CaseComparison, Comparison, FailedRun, Finding, MetricComparison
from reports.text_lines import NARROWEST, WIDTH, wrapped

__all__ = ["WIDTH", "render", "verdict_lines"]

# Groups of columns of a table of metrics, from the least important.
STDDEV_FIRST = ((2, 4), (1,), (3,))


def render(session: SessionComparison, width: int = WIDTH, folder: str = "") -> str:
    """Return the whole report, ending in a newline; ``folder`` is as for ``headline``.

    No line is longer than ``width`` but for a command with a longer word, which would be
    another command in two pieces.
    """
    width = max(width, NARROWEST)
    manifest, first = session.manifest, session.comparisons[0]
    experiment = manifest.experiment
    lines = wrapped(experiment.title, width, "")
    lines += wrapped(experiment.question, width, "")
    subject = (
        f"{experiment.name}: {wording.subject(experiment)}, guest {manifest.guest.name}, "
        f"{experiment.mode} mode; {many_wording.against(session)}"
    )
    lines += [*wrapped(subject, width, ""), ""]
    happened = headline(session, folder)
    lines += [*headline_lines(happened, width), ""]
    if happened.has_verdicts:
        lines += [*verdict_lines(session, width), ""]
        lines += [*wrapped(f"{many_wording.family(session)}.", width, ""), ""]
    lines += [*_host(first, width), *_gate(session.gates, width)]
    lines += _section("Patch by patch", steps.answers(session), width)
    lines += _section(differences.LEAD, differences.sentences(session.arms), width)
    lines += _tables(first, width) if session.single else _of_arms(session, width)
    lines += _published(first, width) if session.single else []
    for one in session.comparisons:
        if not session.single:
            name = f"--- {many_wording.name(one)}: {many_wording.counts(one)}"
            lines += [*wrapped(name, width, ""), "", *_tables(one, width)]
        lines += _parts("Where it came from", text_counts.origin(one, width), width)
        lines += _parts("Locks", text_counts.locks(one, width), width)
    lines += _section("Failures", [] if session.single else matrix.failures(session), width)
    lines += _section("Findings", [_finding(f, f"{f.scope}: ") for f in session.findings], width)
    lines += _section("Failed runs", _failed_runs(session.failed_runs), width)
    lines += [*_repeat(session, width, folder), *_meaning(first, width)]
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def headline_lines(happened: Headline, width: int = WIDTH) -> list[str]:
    """What happened and why; a command that does not fit beside it has lines of its own."""
    lines = wrapped(happened.sentence, width, "")
    if happened.command and len(lines) > 1:
        lines = [
            *wrapped(f"{happened.text}; go on:", width, ""),
            *_command(happened.command, width),
        ]
    return lines + [line for cause in happened.causes for line in wrapped(cause, width)]


def verdict_lines(
    comparison: Comparison | SessionComparison, width: int = WIDTH, indent: str = ""
) -> list[str]:
    """The verdicts, two lines a primary metric or three; also the summary of a session."""
    if isinstance(comparison, SessionComparison):
        if comparison.single:
            return verdict_lines(comparison.single, width)
        lines = []
        for one in comparison.comparisons:
            if many_wording.measured(one):
                lines += wrapped(f"{many_wording.name(one)}:", width, "")
                lines += verdict_lines(one, width, "  ")
            else:
                lines += wrapped(f"{many_wording.name(one)}: not measured", width, "")
        return lines
    lines = []
    for metric in comparison.primary:
        lines += wrapped(wording.head(metric), width, indent)
        lines += wrapped(wording.tail(metric), width, f"{indent}    ")
        lines += wrapped(count_wording.explained(comparison, metric), width, f"{indent}    ")
    return lines


def _cells(metric: MetricComparison) -> tuple[str, ...]:
    base, patched = metric.base, metric.patched
    values = (
        wording.figure(base.mean if base else None),
        wording.spread(base.stddev if base else None),
        wording.figure(patched.mean if patched else None),
        wording.spread(patched.stddev if patched else None),
    )
    change, verdict = wording.change(metric), wording.verdict(metric)
    if metric.again is None:
        return (metric.name, *values, change, verdict)
    return (metric.name, *values[::2], change, wall_wording.size(metric), verdict)


def _table(case: CaseComparison, base: str, patched: str, width: int) -> list[str]:
    measured = [metric for metric in case.metrics if metric.base]
    if not measured:
        return []
    rows = [tuple(map(wording.clean, _cells(metric))) for metric in measured]
    if measured[0].again is None:
        head = ("metric", base, "stddev", patched, "stddev", "change", "verdict")
        rows = [head, *rows]
        return text_counts.fitted(rows, width, left=(0, 6), drop=STDDEV_FIRST, before_names=1)
    rows = [("metric", base, patched, "change", "A/A", "verdict"), *rows]
    return text_counts.fitted(rows, width, left=(0, 5), drop=((1,), (2,), (4,)))


def _tables(comparison: Comparison, width: int) -> list[str]:
    """All metrics of each case; the columns are headed by the arms' own names."""
    arms = wording.clean(comparison.manifest.base), wording.clean(comparison.manifest.patched)
    lines: list[str] = []
    for case in comparison.cases:
        table = _table(case, *arms, width)
        if table:
            lines += [*wrapped(f"{case.name}: {case.title}", width, ""), *table, ""]
    return lines


def _of_arms(session: SessionComparison, width: int) -> list[str]:
    """The tables of documents: a row an arm, and with many cases a row a workload."""
    found = across.rows(session)
    lines = matrix.by_arm(session, found, width)
    if len(session.comparisons[0].cases) >= across.MANY_CASES:
        lines += matrix.by_case(session, found, width)
    return lines


def _published(comparison: Comparison, width: int) -> list[str]:
    said = [
        f"{r.case} {r.metric}: {wording.reference_values(r)}, "
        f"{wording.reference_change(r)} ({r.document})"
        for r in comparison.published
    ]
    return _section("Published", said, width)


def _host(comparison: Comparison, width: int) -> list[str]:
    """What to know of the host beside the verdicts of a wall session; none in exact mode."""
    if comparison.wall is None:
        return []
    said = [f"- {line}" for line in wall_wording.noise_lines(comparison)]
    said += [_finding(found) for found in comparison.host_findings]
    return _section("This host", said, width)


def _gate(gates: Sequence[ArmGate], width: int) -> list[str]:
    """What was checked, and what was found, quoted."""
    if not gates:
        return []
    lines = ["Correctness"]
    for each in gates:
        bad = each.standing != "green"
        lines += wrapped(f"{'!' if bad else '-'} {gate_wording.line(each)}", width)
        # What a green guest looked at is on the page and in the record: half a screen of it
        # stood before the numbers.
        for text in gate_wording.details(each) if bad else ():
            lines += wrapped(text, width, "      ")
        for quoted in gate_wording.quoted(each):
            lines += [f"      | {wording.clean(line)}"[:width].rstrip() for line in quoted]
    return [*lines, ""]


def _finding(found: Finding, scope: str = "") -> str:
    return f"{'!' if found.level == 'warning' else '-'} {scope}{found.text}"


def _failed_runs(runs: Sequence[FailedRun]) -> list[str]:
    """Every failure once, with the runs that failed so."""
    alike: dict[str, list[str]] = {}
    for run in runs:
        why = f"{run.failure.kind}, blame {run.failure.blame}: {run.failure.message}"
        alike.setdefault(why, []).append(run.run_id)
    return [f"{', '.join(run_ids)}: {why}" for why, run_ids in alike.items()]


def _repeat(session: SessionComparison, width: int, folder: str) -> list[str]:
    """The commands that make it again, and what must come out."""
    again = repeat.repeat(session, folder)
    lines = ["How to repeat this", *wrapped(f"{again.lab}.", width)]
    lines += [line for command in again.commands for line in _command(command, width)]
    for note in again.notes:
        lines += wrapped(note, width)
    lines += wrapped(f"{again.expected}:", width) if again.expected else []
    for result in again.results:
        lines += wrapped(result, width, "    ")
    return [*lines, ""]


def _command(command: str, width: int) -> list[str]:
    return [f"    {line}" for line in wording.wrap_command(wording.clean(command), width - 4)]


def _meaning(comparison: Comparison, width: int) -> list[str]:
    """What the numbers mean, and what they do not."""
    if comparison.wall is not None:
        return wrapped(wall_wording.meaning(comparison.wall), width, "")
    return wrapped(wording.EXACT, width, "")


def _parts(title: str, parts: list[tuple[str, list[str]]], width: int) -> list[str]:
    """A section of sentences, which are wrapped, and tables, which fit already.

    A part with neither is an empty line.
    """
    if not parts:
        return []
    lines = [title]
    for sentence, table in parts:
        lines += [*wrapped(sentence, width), *table]
        lines += [] if sentence or table else [""]
    return [*lines, ""]


def _section(title: str, entries: Sequence[str], width: int) -> list[str]:
    """A title and its entries, wrapped; nothing where there are none."""
    if not entries:
        return []
    return [title, *(line for entry in entries for line in wrapped(entry, width)), ""]
