"""The form of mmtests: statistics of each operation in blocks, derived reclaim rows below.

A percentage in parentheses is against the first arm, and positive always means better;
stars take the place of the parentheses where the difference is significant.
Lines are at most 75 columns: arms that do not fit go into a further table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from reports import by_arm, derived, headline, mail
from reports.by_arm import ArmCell, MetricRow
from reports.derived import Derived
from reports.mail import WIDTH, fit
from reports.many import SessionComparison
from reports.verdict import CALLED
from results.record import ArmRecord
from results.units import shown_name
from text import ascii_only

CELL = 22
STATISTIC = 10
# Half, nearly all, all but the worst: means of the best values only.
BEST = (50, 95, 99)


class Statistic(NamedTuple):
    """One block: ``value`` of an arm's numbers, ``more_is_better``, and whether it is the mean."""

    name: str
    value: Callable[[Sequence[float]], float]
    more_is_better: bool
    is_mean: bool = False


def _harmonic(values: Sequence[float]) -> float:
    """Harmonic mean, the mean of rates; 0 where a value is not above zero."""
    if any(value <= 0 for value in values):
        return 0.0
    return len(values) / sum(1 / value for value in values)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _deviation(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _variation(values: Sequence[float]) -> float:
    mean = _mean(values)
    return 100 * _deviation(values) / abs(mean) if mean else 0.0


def statistics_of(row: MetricRow) -> tuple[Statistic, ...]:
    """The blocks of one metric: harmonic means of rates, arithmetic ones of everything else."""
    up = row.direction == "higher"
    rate = row.unit.endswith("/s")
    letter, mean = ("H", _harmonic) if rate else ("A", _mean)

    def best(percent: int) -> Callable[[Sequence[float]], float]:
        def of(values: Sequence[float]) -> float:
            ordered = sorted(values, reverse=up)
            return mean(ordered[: max(1, math.ceil(len(ordered) * percent / 100))])

        return of

    return (
        Statistic("Min", min, up),
        Statistic(f"{letter}mean", mean, up, is_mean=True),
        Statistic("Stddev", _deviation, False),
        Statistic("CoeffVar", _variation, False),
        Statistic("Max", max, up),
        *(Statistic(f"B{letter}mean-{percent}", best(percent), up) for percent in BEST),
    )


def gain(base: float, value: float, *, more_is_better: bool) -> float:
    """The difference in percent of base, positive where better; 0 of a base of zero."""
    if not base:
        return 0.0
    change = 100 * (value - base) / abs(base)
    return change if more_is_better or not change else -change


def _cell(row: MetricRow, cell: ArmCell, statistic: Statistic, *, first: bool) -> str:
    base = row.base.numbers
    if not cell.numbers or not base:
        return f"{'-':>{CELL}}"
    value, before = statistic.value(cell.numbers), statistic.value(base)
    better = 0.0 if first else gain(before, value, more_is_better=statistic.more_is_better)
    size = f"{_figure(value):>11}"
    if cell.withheld:
        # A percentage in this place is a claim.
        return f"{size} {'-':>10}".rjust(CELL)
    change = f"{better:7.2f}%" if abs(better) < 1e4 else f"{better:7.0e}%"
    stars = statistic.is_mean and not first and _significant(cell)
    left, right = ("*", "*") if stars else ("(", ")")
    return f"{size} {left}{change}{right}"[:CELL].rjust(CELL)


def _figure(value: float) -> str:
    """Two decimals; an exponent where they would be wider than a cell."""
    return f"{value:.2f}" if abs(value) < 1e8 else f"{value:.4g}"


def _significant(cell: ArmCell) -> bool:
    if cell.against is None:
        return False
    judgement = cell.against.judgement
    return judgement.verdict in CALLED or judgement.differs


def heads(arms: Sequence[ArmRecord], label: int) -> list[str]:
    """Two lines of names, split at the first dash as mmtests does."""
    parts = [arm.name.partition("-") for arm in arms]
    upper = [fit(part[0], CELL - 2) for part in parts]
    lower = [fit(part[2], CELL - 2) for part in parts]
    lines = [" " * label + "".join(f"{name:>{CELL}}" for name in names)
             for names in (upper, lower)]  # fmt: skip
    return [line.rstrip() for line in lines if line.strip()]


def _operations(rows: Sequence[MetricRow]) -> list[str]:
    """What the rows of one metric are told apart by: the case, and the phase where it matters."""
    cases = [row.case for row in rows]
    return [row.case if cases.count(row.case) == 1 else f"{row.case}-{row.phase}" for row in rows]


def _metric(session: SessionComparison, rows: Sequence[MetricRow]) -> list[str]:
    """All tables of one metric: its blocks of statistics, arms a few at a time."""
    arms = session.arms
    first = rows[0]
    better = "more" if first.direction == "higher" else "less"
    title = first.title.partition(": ")[2] or first.title
    name = shown_name(first.short, first.unit)
    lines = mail.wrapped(f"{name}: {title} ({first.unit}, {better} is better)")
    names = _operations(rows)
    room = WIDTH - 2 * CELL - STATISTIC - 1
    longest = min(room, max(len(ascii_only(name)) for name in names))
    label = STATISTIC + longest + 1
    for others in mail.chunks(arms, WIDTH - label - CELL, CELL):
        ordered = (arms[0], *others)
        lines += heads(ordered, label)
        for at in range(len(statistics_of(first))):
            for row, name in zip(rows, names, strict=True):
                statistic = statistics_of(row)[at]
                cells = [_cell(row, row.cell(arm.name), statistic, first=arm is arms[0])
                         for arm in ordered]  # fmt: skip
                lines.append(f"{statistic.name:<{STATISTIC}}{fit(name, longest):<{longest}} "
                             + "".join(cells))  # fmt: skip
        lines.append("")
    return lines


def _derived(session: SessionComparison) -> list[str]:
    """The reclaim rows of every phase."""
    derived_rows = derived.reclaim(session)
    arms, lines = session.arms, []
    label, width = 37, 19
    for (case, phase), grouped in groupby(derived_rows, key=lambda row: (row.case, row.phase)):
        rows = list(grouped)
        lines += mail.wrapped(f"{case}, phase {phase}, reclaim, means of the runs:")
        for others in mail.chunks(arms, WIDTH - label - width, width):
            ordered = (arms[0], *others)
            lines.append(" " * label + "".join(f"{fit(arm.name, width - 1):>{width}}"
                                               for arm in ordered))  # fmt: skip
            lines += [_derived_row(session, row, ordered, label, width) for row in rows]
            lines.append("")
    return lines


def _derived_row(
    session: SessionComparison, row: Derived, arms: Sequence[ArmRecord], label: int, width: int
) -> str:
    names = [arm.name for arm in session.arms]
    values = [row.values[names.index(arm.name)] for arm in arms]
    cells = "".join(f"{'-' if value is None else _figure(value):>{width}}" for value in values)
    return f"{fit(f'{row.title}, {row.unit}', label):<{label}}{cells}"


def _failures(session: SessionComparison) -> list[str]:
    """``fail:runs`` an arm, for every case in which a run failed."""
    counts = session.failures
    failed = sorted({case for (case, _), (bad, _) in counts.items() if bad})
    lines = ["fail:runs"] if failed else []
    for case in failed:
        arms = [arm.name for arm in session.manifest.arms if (case, arm.name) in counts]
        text = ", ".join(f"{arm} {counts[case, arm][0]}:{counts[case, arm][1]}" for arm in arms)
        lines += mail.wrapped(f"{case}: {text}", "  ")
    return [*lines, ""] if lines else []


def render(session: SessionComparison) -> str:
    """Return the tables and what stands above and below them, ending in a newline."""
    manifest = session.manifest
    lines = mail.wrapped(f"{manifest.experiment.name}: {manifest.experiment.title}")
    lines += [*mail.wrapped(headline.sentence(session)), ""]
    rows = session.rows
    visible = [row for row in by_arm.columns(rows) if row.measured]
    lines += mail.wrapped(mail.measured_under(manifest), hang="")
    lines += ["", *mail.banner(session), *mail.warnings(session), *_failures(session)]
    if not visible:
        lines += [*mail.unmeasured(session), *mail.checked(session)]
        return "\n".join(lines).rstrip() + "\n"
    # One table a metric, its operations are cases and phases.
    for short in dict.fromkeys(row.short for row in visible):
        lines += _metric(session, [row for row in visible if row.short == short])
    lines += mail.wrapped(
        "Percentages are against the first arm, positive is better; stars mark what is more "
        "than chance."
    )
    lines.append("")
    lines += [*mail.below(session, rows), *mail.checked(session), *mail.family(session)]
    lines += _derived(session)
    return "\n".join(lines).rstrip() + "\n"
