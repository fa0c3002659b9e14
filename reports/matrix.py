"""The tables of documents: a row an arm, and workloads by read and write; plain text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from reports import (
    across,
    differences,
    gate_wording,
    headline,
    mail,
    many_wording,
    text_counts,
    wall_wording,
    wording,
)
from reports.across import Cell, Row
from reports.many import SessionComparison
from reports.text_lines import wrapped

WIDTH = 100
DIRECTIONS = {"read_bw": "read", "write_bw": "write"}


def direction(row: Row, found: Sequence[Row]) -> str:
    """``read`` or ``write`` for bandwidth in one direction, else the metric's name."""
    shorts = {other.short for other in found if (other.case, other.phase) == (row.case, row.phase)}
    if row.short in DIRECTIONS:
        return DIRECTIONS[row.short]
    if row.short == "bw":
        # A phase that writes has a bandwidth of writing; one that only reads has no other.
        both = {"read_bw", "write_bw"} <= shorts
        return "read/write" if both else "write" if "write_bw" in shorts else "read"
    return row.name


def number(value: float | None, like: float) -> str:
    """Two decimals as documents have them; more where ``like`` is so small that they say less."""
    if value is None:
        return wording.NOTHING
    decimals = 2 if abs(like) >= 1 or not like else 4
    return f"{value:.{decimals}f}"


def deviation(cell: Cell) -> float | None:
    """The arm's standard deviation in the metric's own unit."""
    summary = cell.summary
    if summary is None or summary.stddev is None:
        return None
    return summary.stddev * abs(summary.mean)


def values(cell: Cell) -> tuple[str, str]:
    """Mean and standard deviation of one arm."""
    if cell.summary is None:
        return wording.NOTHING, wording.NOTHING
    mean = cell.summary.mean
    return number(mean, mean), number(deviation(cell), mean)


def change(row: Row, cell: Cell) -> str:
    """The change with two decimals; in points where the metric is a percentage."""
    if cell.withheld:
        return wording.NOTHING
    if row.is_share:
        return many_wording.change(row, cell)
    return f"{100 * cell.change.estimate:+.2f}%" if cell.change else wording.NOTHING


def matrix(found: Sequence[Row]) -> tuple[Row, ...]:
    """The rows of the matrix: what is judged, in order, measured or not."""
    return tuple(row for row in found if row.primary)


def measured(found: Sequence[Row]) -> tuple[Row, ...]:
    """The rows of the matrix that have a value."""
    return tuple(row for row in matrix(found) if row.measured)


def by_case(
    session: SessionComparison, found: Sequence[Row], width: int | None = None
) -> list[str]:
    """Workload; read or write; baseline; stddev; each other arm; stddev; change; verdict.

    Arms that do not fit into ``width`` get a further table.
    """
    shown = measured(found)
    if not shown:
        return []
    others = [arm.name for arm in session.arms[1:]]
    said: list[str] = []
    while others:
        many = len(others)
        table = _workloads(shown, found, session.arms[0].name, others)
        while width and many > 1 and max(map(len, table)) > width:
            many -= 1
            table = _workloads(shown, found, session.arms[0].name, others[:many])
        said += [*(line[:width].rstrip() for line in table), ""]
        others = others[many:]
    units = dict.fromkeys(row.unit for row in shown)
    over = session.manifest.experiment.repeated
    note = f"Means and standard deviations over the {over}, {', '.join(units)}."
    return [*said, *wrapped(note, width or WIDTH, ""), ""]


def _workloads(
    shown: Sequence[Row], found: Sequence[Row], base: str, others: Sequence[str]
) -> list[str]:
    heads: tuple[str, ...] = ("read/write", base, "stddev")
    for name in others:
        heads += (name, "stddev", "change", "verdict")
    lines: list[tuple[str, ...]] = [heads]
    titles: dict[int, str] = {}
    for case, grouped in groupby(shown, key=lambda row: row.case):
        titles[len(lines)] = case
        for row in grouped:
            cells = [direction(row, found), *values(row.base)]
            for cell in map(row.cell, others):
                cells += [*values(cell), change(row, cell), many_wording.verdict(cell)]
            lines.append(tuple(map(wording.clean, cells)))
    left = (0, *(6 + 4 * at for at in range(len(others))))
    table = text_counts.columns(lines, left=left)
    said = ["Workload", table[0], "-" * max(map(len, table))]
    for at, line in enumerate(table[1:], 1):
        said += [wording.clean(titles[at])] if at in titles else []
        said.append(line)
    return said


def side_by_side(arms: Sequence[str], shown: Sequence[Row], width: int = WIDTH) -> list[str]:
    """Two columns a metric, in as many tables below each other as the width asks for."""
    names = ("arm", "", *arms)
    phases = {row.phase for row in shown}
    groups = []
    for row in shown:
        said = [(row.short if len(phases) == 1 else row.name, ""), (row.unit, "change")]
        for arm in arms:
            cell = row.cell(arm)
            moved = f"{change(row, cell)} {many_wording.verdict(cell)}".strip()
            said.append((values(cell)[0], "" if cell is row.base else moved))
        groups.append([tuple(map(wording.clean, pair)) for pair in said])
    lines: list[str] = []
    table: list[str] = []
    taken: list[list[tuple[str, ...]]] = []
    for group in groups:
        wider = _table(names, [*taken, group])
        if taken and max(map(len, wider)) > width:
            lines += [*table, ""]
            taken, wider = [], _table(names, [group])
        taken, table = [*taken, group], wider
    return [*(line[:width].rstrip() for line in [*lines, *table]), ""]


def _table(names: Sequence[str], groups: Sequence[Sequence[tuple[str, ...]]]) -> list[str]:
    rows = [
        (wording.clean(name), *(cell for group in groups for cell in group[at]))
        for at, name in enumerate(names)
    ]
    return text_counts.columns(rows, left=(0,))


def by_arm(session: SessionComparison, found: Sequence[Row], width: int = WIDTH) -> list[str]:
    """One table a case: a row an arm that was measured, a column a metric, published figures."""
    lines: list[str] = []
    for case in session.comparisons[0].cases:
        shown = [row for row in across.columns(across.of_case(tuple(found), case.name))
                 if row.measured]  # fmt: skip
        if not shown:
            continue
        lines += wrapped(f"{case.name}: {case.title}", width, "")
        arms = [arm.name for arm in session.arms
                if any(row.cell(arm.name).values for row in shown)]  # fmt: skip
        lines += side_by_side(arms, shown, width)
    published = [
        line
        for arm, r in many_wording.references(session)
        for line in wrapped(
            f"{arm}  {r.metric}: {wording.reference_values(r)}, {wording.reference_change(r)} "
            f"({r.document})", width,
        )
    ]  # fmt: skip
    return lines + (["Published:", *published, ""] if published else [])


def below(session: SessionComparison, found: Sequence[Row]) -> list[str]:
    """n, interval and verdict of everything that is judged, an arm at a time."""
    lines = []
    for row in found:
        if not row.primary:
            continue
        for cell in row.others:
            metric = cell.against
            if metric is None:
                continue
            size = (wording.change(metric), wording.interval(metric))
            parts = (size[0], f"n={metric.judgement.pairs}", size[1])
            shown = [part for part in parts if part and not (cell.withheld and part in size)]
            said = ", ".join(shown)
            why = wording.reason(metric)
            lines.append(
                f"{row.case} {row.shown_name} {cell.arm}: {said}: {wording.verdict(metric)}"
                + (f" ({why})" if why else "")
            )
    lines += [line for one in session.comparisons for line in wall_wording.noise_lines(one)]
    if len(session.primary) > 1:
        lines.append(f"{many_wording.family(session)}.")
    lines += [said] if (said := gate_wording.sentence(session.gates)) else []
    return [part for line in lines for part in wrapped(line, WIDTH, "")]


def failures(session: SessionComparison) -> list[str]:
    """``fail:runs`` of each arm, for every case in which a run failed."""
    counts = across.failures(session)
    failed = sorted({case for (case, _), (bad, _) in counts.items() if bad})
    return [
        wording.clean(
            f"fail:runs {case}: "
            + ", ".join(f"{arm.name} {counts[case, arm.name][0]}:{counts[case, arm.name][1]}"
                        for arm in session.manifest.arms if (case, arm.name) in counts)
        )
        for case in failed
    ]  # fmt: skip


def render(session: SessionComparison) -> str:
    """Return the tables, ending in a newline."""
    found = across.rows(session)
    cases = session.comparisons[0].cases
    manifest = session.manifest
    lines = [wording.clean(manifest.experiment.title), headline.sentence(session), ""]
    lines += [*wrapped(mail.measured_under(manifest), WIDTH, ""), ""]
    said = differences.sentences(session.arms)
    if said:
        lines += [f"{differences.LEAD}:", *(f"  {wording.clean(text)}" for text in said), ""]
    if len(session.arms) > 2:
        lines += by_arm(session, found)
    if len(session.arms) == 2 or len(cases) >= across.MANY_CASES:
        lines += by_case(session, found)
    counted = failures(session)
    lines += [*counted, ""] if counted else []
    lines += below(session, found)
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"
