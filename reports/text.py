"""The report as plain text for a terminal, at most 100 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from reports import count_wording, differences, gate_wording, text_counts, wall_wording, wording
from reports.gate_model import ArmGate
from reports.many import SessionComparison
from reports.model import CaseComparison, Comparison, FailedRun, MetricComparison

WIDTH = 100
COLUMNS = ("metric", "base", "stddev", "patched", "stddev", "change", "verdict")
WALL_COLUMNS = ("metric", "base", "patched", "change", "A/A", "verdict")


def wrapped(text: str, indent: str = "  ") -> list[str]:
    """The text in lines of at most 100 columns."""
    return textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )


def _row(metric: MetricComparison) -> tuple[str, ...]:
    base, patched = metric.base, metric.patched
    if metric.again is not None:
        return (
            metric.name,
            wording.figure(base.mean if base else None),
            wording.figure(patched.mean if patched else None),
            wording.change(metric),
            wording.percent(metric.again.estimate),
            wording.verdict(metric),
        )
    return (
        metric.name,
        wording.figure(base.mean if base else None),
        wording.spread(base.stddev if base else None),
        wording.figure(patched.mean if patched else None),
        wording.spread(patched.stddev if patched else None),
        wording.change(metric),
        wording.verdict(metric),
    )


def _table(case: CaseComparison, heads: tuple[str, ...]) -> list[str]:
    rows = [heads, *(_row(metric) for metric in case.metrics if metric.base)]
    if len(rows) == 1:
        return []
    return [*text_counts.columns(rows, left=(0, len(heads) - 1)), ""]


def verdict_lines(comparison: Comparison | SessionComparison, indent: str = "") -> list[str]:
    """The verdicts, two lines a primary metric or three; also the summary of a session."""
    if isinstance(comparison, SessionComparison):
        if comparison.single:
            return verdict_lines(comparison.single)
        lines = []
        for one in comparison.comparisons:
            lines += [wording.clean(f"{one.manifest.base} -> {one.manifest.patched}:")]
            lines += verdict_lines(one, "  ")
        return lines
    lines = []
    for metric in comparison.primary:
        lines += wrapped(wording.clean(wording.head(metric)), indent)
        tail = wording.tail(metric)
        lines += wrapped(wording.clean(tail), f"{indent}    ") if tail else []
        why = count_wording.explained(comparison, metric)
        lines += wrapped(wording.clean(why), f"{indent}    ") if why else []
    return lines


def host_lines(comparison: Comparison) -> list[str]:
    """What to know of the host beside the verdicts of a wall session; none in exact mode."""
    if comparison.wall is None:
        return []
    lines = [f"- {line}" for line in wall_wording.noise_lines(comparison)]
    found = comparison.host_findings
    lines += [f"{'!' if f.level == 'warning' else '-'} {f.text}" for f in found]
    return section("This host", lines)


def render(comparison: Comparison) -> str:
    """Return the whole report, ending in a newline."""
    manifest = comparison.manifest
    experiment = manifest.experiment
    lines = [wording.clean(experiment.title)]
    lines += wrapped(wording.clean(experiment.question), "") if experiment.question else []
    lines += wrapped(wording.clean(
        f"{experiment.name}: {wording.subject(experiment)}, "
        f"guest {manifest.guest.name}, {experiment.mode} mode"
    ), "")  # fmt: skip
    lines += ["", f"{wording.bottom_line(comparison)}.", ""]
    lines += [*verdict_lines(comparison), "", *host_lines(comparison)]
    lines += gate(comparison.gates)
    lines += section(differences.LEAD, differences.sentences(manifest.arms))
    lines += tables(comparison)
    lines += section("Published", [
        f"{r.case} {r.metric}: {wording.reference_values(r)}, "
        f"{wording.sized(r.change)} ({r.document})"
        for r in comparison.published
    ])  # fmt: skip
    lines += origins(comparison)
    lines += section("Findings", [
        f"{'!' if f.level == 'warning' else '-'} {f.scope}: {f.text}" for f in comparison.findings
    ])  # fmt: skip
    lines += section("Failed runs", [failed_run(run) for run in comparison.failed_runs])
    lines += meaning(comparison)
    return "\n".join(lines).rstrip() + "\n"


def tables(comparison: Comparison) -> list[str]:
    """All metrics of each case."""
    lines: list[str] = []
    for case in comparison.cases:
        table = _table(case, WALL_COLUMNS if comparison.wall else COLUMNS)
        if table:
            lines += wrapped(wording.clean(f"{case.name}: {case.title}"), "")
            lines += table
    return lines


def origins(comparison: Comparison) -> list[str]:
    """Where the change came from, and what twins say of locks."""
    return [
        *_parts("Where it came from", text_counts.origin(comparison)),
        *_parts("Locks", text_counts.locks(comparison)),
    ]


def failed_run(run: FailedRun) -> str:
    """One failed run with its reason."""
    return f"{run.run_id}: {run.failure.kind}, blame {run.failure.blame}: {run.failure.message}"


def meaning(comparison: Comparison) -> list[str]:
    """What the numbers mean, and what they do not."""
    lines: list[str] = []
    if comparison.manifest.experiment.mode == "exact":
        lines += wrapped(
            "Exact mode: one guest instruction is one virtual nanosecond, so bandwidth is path "
            "length. Cache misses, NUMA and true parallelism are not seen.",
            "",
        )
    if comparison.wall is not None:
        lines += wrapped(wall_wording.meaning(comparison.wall), "")
    return lines


def gate(gates: Sequence[ArmGate]) -> list[str]:
    """What was checked, and what was found, quoted."""
    if not gates:
        return []
    lines = ["Correctness"]
    for each in gates:
        bad = each.standing != "green"
        lines += wrapped(wording.clean(f"{'!' if bad else '-'} {gate_wording.line(each)}"))
        # What a green guest looked at is on the page and in the record: half a screen of it
        # stood before the numbers.
        for text in gate_wording.details(each) if bad else ():
            lines += wrapped(wording.clean(text), "      ")
        for quoted in gate_wording.quoted(each):
            lines += [f"      | {wording.clean(line)}"[:WIDTH].rstrip() for line in quoted]
    return [*lines, ""]


def _parts(title: str, parts: list[tuple[str, list[str]]]) -> list[str]:
    """A section of sentences, which are wrapped, and tables, which are not.

    A part with neither is an empty line.
    """
    if not parts:
        return []
    lines = [title]
    for sentence, table in parts:
        lines += wrapped(wording.clean(sentence)) if sentence else []
        lines += [line[:WIDTH].rstrip() for line in table]
        lines += [] if sentence or table else [""]
    return [*lines, ""]


def section(title: str, entries: list[str]) -> list[str]:
    """A title and its entries, wrapped; nothing where there are none."""
    if not entries:
        return []
    lines = [title]
    for entry in entries:
        lines += wrapped(wording.clean(entry))
    return [*lines, ""]
