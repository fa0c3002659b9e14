"""The form of mmtests: statistics of each operation in blocks, reclaim as vmstat has it below.

A percentage in parentheses is against the first arm, and positive always means better;
stars take the place of the parentheses where the difference is significant.
Lines are at most 75 columns: arms that do not fit go into a further table.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence

from analysis.many import ArmCell, MetricRow, SessionComparison, chosen_columns
from analysis.verdict import CALLED
from reports import mail, sentences
from reports.headline import headline
from reports.mail import WIDTH, fit
from results.units import shown_name, shown_unit

CELL, STATISTIC = 22, 10
# Reclaim: title, unit, and the samples whose product it is, times a factor.  Samples are per I/O;
# times I/Os per second they are rates.
RECLAIM: tuple[tuple[str, str, float, tuple[str, ...]], ...] = (
    ("Pages scanned", "1/s", 1, ("scanned_per_io", "iops")),
    ("Pages reclaimed", "1/s", 1, ("scanned_per_io", "iops", "reclaim_efficiency")),
    ("Reclaim efficiency", "%", 100, ("reclaim_efficiency",)),
    ("Scanned by direct reclaim", "%", 100, ("direct_scan_share",)),
    ("Refaults", "1/s", 1, ("refaults_per_io", "iops")),
    ("Major faults", "1/s", 1, ("major_faults_per_io", "iops")),
    ("Stalled on memory (PSI some)", "%", 1e-7, ("memory_stall_ns_per_io", "iops")),
    ("Huge pages in the page cache", "MiB", 1, ("file_thp_mib",)),
)
Rows = Sequence[tuple[str, Sequence[str]]]


def statistics_of(row: MetricRow) -> dict[str, Callable[[Sequence[float]], float]]:
    """The blocks of one metric: the harmonic mean of a rate, else the arithmetic one."""

    def harmonic(values: Sequence[float]) -> float:
        return statistics.harmonic_mean(values) if min(values) > 0 else 0.0

    def deviation(values: Sequence[float]) -> float:
        return statistics.stdev(values) if len(values) > 1 else 0.0

    def variation(values: Sequence[float]) -> float:
        mean = statistics.fmean(values)
        return 100 * deviation(values) / abs(mean) if mean else 0.0

    is_rate = row.unit.endswith("/s")
    mean = {"Hmean": harmonic} if is_rate else {"Amean": statistics.fmean}
    return {"Min": min, **mean, "Stddev": deviation, "CoeffVar": variation, "Max": max}


def gain(base: float, value: float, *, more_is_better: bool) -> float:
    """The difference in percent of base, positive where better; 0 of a base of zero."""
    change = 100 * (value - base) / abs(base) if base else 0.0
    return change if more_is_better or not change else -change


def _figure(value: float | None) -> str:
    """Two decimals; an exponent where they would be wider than a cell."""
    if value is None:
        return "-"
    return f"{value:.2f}" if abs(value) < 1e8 else f"{value:.4g}"


def _cell(row: MetricRow, cell: ArmCell, name: str) -> str:
    base, of = row.base.numbers, statistics_of(row)[name]
    if not cell.numbers or not base:
        return "-"
    size = f"{_figure(of(cell.numbers)):>11}"
    if cell.withheld:
        # A percentage in this place is a claim.
        return f"{size} {'-':>10}"
    up = row.direction == "higher" and name not in ("Stddev", "CoeffVar")
    better = gain(of(base), of(cell.numbers), more_is_better=up)
    change = f"{better:7.2f}%" if abs(better) < 1e4 else f"{better:7.0e}%"
    judgement = cell.against.judgement if cell.against else None
    significant = judgement and (judgement.verdict in CALLED or judgement.differs)
    left, right = "**" if significant and name.endswith("mean") else "()"
    return f"{size} {left}{change}{right}"[:CELL]


def _tabled(arms: Sequence[str], rows: Rows, wide: int) -> Iterator[str]:
    """Rows of a name and a cell an arm; the arms but the first as many at a time as there fit."""
    label = min(WIDTH - 2 * wide, max(len(name) for name, _ in rows) + 1)
    many = max(1, (WIDTH - label - wide) // wide)
    for at in range(1, len(arms), many):
        shown = [0, *range(at, min(at + many, len(arms)))]
        for name, cells in (("", [fit(arm, wide - 2) for arm in arms]), *rows):
            texts = "".join(f"{cells[number]:>{wide}}" for number in shown)
            yield f"{fit(name, label - 1):<{label}}{texts}"
        yield ""


def _metric(session: SessionComparison, rows: Sequence[MetricRow]) -> list[str]:
    """One table a metric: its operations, cases and phases, in blocks of statistics."""
    first, cases = rows[0], [row.case for row in rows]
    better = "more" if first.direction == "higher" else "less"
    title = first.title.partition(": ")[2] or first.title
    head = f"{shown_name(first.short, first.unit)}: {title} ({first.unit}, {better} is better)"
    lines = []
    for name in statistics_of(first):
        for row in rows:
            phase = f"-{row.phase}" if cases.count(row.case) > 1 else ""
            cells = [_cell(row, cell, name) for cell in row.cells]
            lines.append((f"{name:<{STATISTIC}}{row.case}{phase}", cells))
    return [*mail.wrapped(head), *_tabled([arm.name for arm in session.arms], lines, CELL)]


def _reclaim(session: SessionComparison) -> Iterator[str]:
    """What reclaim did in every phase, of the means of each arm's runs."""
    arms, mode = [arm.name for arm in session.arms], session.manifest.experiment.mode
    for case in session.cases:
        rows = session.of_case(case.name)
        for phase in case.phases:
            own = {row.short: row for row in rows if row.phase == phase.name}
            lines = []
            for title, unit, factor, needed in RECLAIM:
                cells = []
                for arm in arms:
                    samples = (own[name].cell(arm).summary for name in needed if name in own)
                    means = [each.mean for each in samples if each]
                    whole = len(means) == len(needed)
                    cells.append(_figure(factor * math.prod(means) if whole else None))
                if set(cells) != {"-"}:
                    lines.append((f"{title}, {shown_unit(unit, mode)}", cells))
            if lines:
                where = f"{case.name}, phase {phase.name}, reclaim, means of the runs:"
                yield from [*mail.wrapped(where), *_tabled(arms, lines, 19)]


def render(session: SessionComparison) -> str:
    """Return the tables and what stands above and below them, ending in a newline."""
    experiment = session.manifest.experiment
    lines = mail.wrapped(f"{experiment.name}: {sentences.title(session.manifest)}")
    lines += [*mail.wrapped(headline(session).sentence), "", *mail.under(session)]
    lines += [*mail.apart(session), *mail.warnings(session)]
    counts = session.failures
    if failed := sorted({case for (case, _), (bad, _) in counts.items() if bad}):
        lines.append("fail:runs")
        for case in failed:
            arms = [arm.name for arm in session.manifest.arms if (case, arm.name) in counts]
            numbers = (f"{arm} {':'.join(map(str, counts[case, arm]))}" for arm in arms)
            lines += mail.wrapped(f"{case}: {', '.join(numbers)}", "  ")
        lines.append("")
    visible = [row for row in chosen_columns(session.rows) if row.measured]
    for short in dict.fromkeys(row.short for row in visible):
        lines += _metric(session, [row for row in visible if row.short == short])
    if visible:
        note = "Percentages are against the first arm, positive is better; stars are significant."
        lines += [*mail.wrapped(note), "", *mail.below(session.rows)]
    else:
        lines += mail.unmeasured(session)
    lines += [*mail.closing(session, measured=bool(visible)), *_reclaim(session)]
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"
