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
from reports import mail
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


def _harmonic(values: Sequence[float]) -> float:
    return statistics.harmonic_mean(values) if min(values) > 0 else 0.0


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _variation(values: Sequence[float]) -> float:
    mean = statistics.fmean(values)
    return 100 * _deviation(values) / abs(mean) if mean else 0.0


def statistics_of(row: MetricRow) -> dict[str, Callable[[Sequence[float]], float]]:
    """The blocks of one metric: the harmonic mean of a rate, else the arithmetic one."""
    is_rate = row.unit.endswith("/s")
    mean = {"Hmean": _harmonic} if is_rate else {"Amean": statistics.fmean}
    return {"Min": min, **mean, "Stddev": _deviation, "CoeffVar": _variation, "Max": max}


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
    lines = [
        (
            f"{name:<{STATISTIC}}{row.case}{f'-{row.phase}' if cases.count(row.case) > 1 else ''}",
            [_cell(row, cell, name) for cell in row.cells],
        )
        for name in statistics_of(first)
        for row in rows
    ]
    return [*mail.wrapped(head), *_tabled([arm.name for arm in session.arms], lines, CELL)]


def _reclaim(session: SessionComparison) -> Iterator[str]:
    """What reclaim did in every phase, of the means of each arm's runs."""
    arms, mode = [arm.name for arm in session.arms], session.manifest.experiment.mode
    for case in session.cases:
        for phase in case.phases:
            own = {row.short: row for row in session.of_case(case.name) if row.phase == phase.name}
            lines = []
            for title, unit, factor, needed in RECLAIM:
                cells = [[own[name].cell(arm).summary for name in needed if name in own]
                         for arm in arms]  # fmt: skip
                values = [
                    factor * math.prod(each.mean for each in of_arm if each)
                    if len(of_arm) == len(needed) and all(of_arm)
                    else None
                    for of_arm in cells
                ]
                if any(value is not None for value in values):
                    lines.append((f"{title}, {shown_unit(unit, mode)}", [*map(_figure, values)]))
            if lines:
                where = f"{case.name}, phase {phase.name}, reclaim, means of the runs:"
                yield from [*mail.wrapped(where), *_tabled(arms, lines, 19)]


def render(session: SessionComparison) -> str:
    """Return the tables and what stands above and below them, ending in a newline."""
    experiment = session.manifest.experiment
    lines = mail.wrapped(f"{experiment.name}: {experiment.title}")
    lines += [*mail.wrapped(headline(session).sentence), "", *mail.measured_under(session)]
    lines += [*mail.banner(session), *mail.warnings(session), *mail.failures(session)]
    visible = [row for row in chosen_columns(session.rows) if row.measured]
    for short in dict.fromkeys(row.short for row in visible):
        lines += _metric(session, [row for row in visible if row.short == short])
    if visible:
        note = "Percentages are against the first arm, positive is better; stars are significant."
        lines += [*mail.wrapped(note), "", *mail.below(session, session.rows)]
    else:
        lines += mail.unmeasured(session)
    lines += [*mail.checked(session), *(mail.family(session) if visible else [])]
    lines += _reclaim(session)
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"
