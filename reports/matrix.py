"""The tables of documents: a row an arm, and workloads by read and write; plain text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from reports import by_arm as laid_out
from reports import differences, headline, mail, wording
from reports.by_arm import MetricRow
from reports.many import SessionComparison
from reports.render.text import columns, wrapped
from reports.sections import checks
from reports.sections.arms import change, direction, values
from text import clean_line

WIDTH = 100


def matrix(rows: Sequence[MetricRow]) -> tuple[MetricRow, ...]:
    """The rows of the matrix: what is judged, in order, measured or not."""
    return tuple(row for row in rows if row.primary)


def measured(rows: Sequence[MetricRow]) -> tuple[MetricRow, ...]:
    """The rows of the matrix that have a value."""
    return tuple(row for row in matrix(rows) if row.measured)


def by_case(
    session: SessionComparison, rows: Sequence[MetricRow], width: int | None = None
) -> list[str]:
    """Workload; read or write; baseline; stddev; each other arm; stddev; change; verdict.

    Arms that do not fit into ``width`` get a further table.
    """
    visible = measured(rows)
    if not visible:
        return []
    others = [arm.name for arm in session.arms[1:]]
    body: list[str] = []
    while others:
        many = len(others)
        table = _workloads(visible, rows, session.arms[0].name, others)
        while width and many > 1 and max(map(len, table)) > width:
            many -= 1
            table = _workloads(visible, rows, session.arms[0].name, others[:many])
        body += [*(line[:width].rstrip() for line in table), ""]
        others = others[many:]
    units = dict.fromkeys(row.unit for row in visible)
    over = session.manifest.experiment.repeated
    note = f"Means and standard deviations over the {over}, {', '.join(units)}."
    return [*body, *wrapped(note, width or WIDTH, ""), ""]


def _workloads(
    visible: Sequence[MetricRow], rows: Sequence[MetricRow], base: str, others: Sequence[str]
) -> list[str]:
    heads: tuple[str, ...] = ("read/write", base, "stddev")
    for name in others:
        heads += (name, "stddev", "change", "verdict")
    lines: list[tuple[str, ...]] = [heads]
    titles: dict[int, str] = {}
    for case, grouped in groupby(visible, key=lambda row: row.case):
        titles[len(lines)] = case
        for row in grouped:
            cells = [direction(row, rows), *values(row.base)]
            for cell in map(row.cell, others):
                cells += [*values(cell), change(row, cell), wording.cell_verdict(cell)]
            lines.append(tuple(map(clean_line, cells)))
    left = (0, *(6 + 4 * at for at in range(len(others))))
    table = columns(lines, left=left)
    output = ["Workload", table[0], "-" * max(map(len, table))]
    for at, line in enumerate(table[1:], 1):
        output += [clean_line(titles[at])] if at in titles else []
        output.append(line)
    return output


def side_by_side(arms: Sequence[str], rows: Sequence[MetricRow], width: int = WIDTH) -> list[str]:
    """Two columns a metric, in as many tables below each other as the width asks for."""
    names = ("arm", "", *arms)
    phases = {row.phase for row in rows}
    groups = []
    for row in rows:
        heads = [(row.short if len(phases) == 1 else row.name, ""), (row.unit, "change")]
        for arm in arms:
            cell = row.cell(arm)
            moved = f"{change(row, cell)} {wording.cell_verdict(cell)}".strip()
            heads.append((values(cell)[0], "" if cell is row.base else moved))
        groups.append([tuple(map(clean_line, pair)) for pair in heads])
    lines: list[str] = []
    table: list[str] = []
    columns: list[list[tuple[str, ...]]] = []
    for group in groups:
        wider = _table(names, [*columns, group])
        if columns and max(map(len, wider)) > width:
            lines += [*table, ""]
            columns, wider = [], _table(names, [group])
        columns, table = [*columns, group], wider
    return [*(line[:width].rstrip() for line in [*lines, *table]), ""]


def _table(names: Sequence[str], groups: Sequence[Sequence[tuple[str, ...]]]) -> list[str]:
    rows = [
        (clean_line(name), *(cell for group in groups for cell in group[at]))
        for at, name in enumerate(names)
    ]
    return columns(rows, left=(0,))


def by_arm(session: SessionComparison, rows: Sequence[MetricRow], width: int = WIDTH) -> list[str]:
    """One table a case: a row an arm that was measured, a column a metric, published figures."""
    lines: list[str] = []
    for case in session.comparisons[0].cases:
        visible = [row for row in laid_out.columns(laid_out.of_case(tuple(rows), case.name))
                 if row.measured]  # fmt: skip
        if not visible:
            continue
        lines += wrapped(f"{case.name}: {case.title}", width, "")
        arms = [arm.name for arm in session.arms
                if any(row.cell(arm.name).values for row in visible)]  # fmt: skip
        lines += side_by_side(arms, visible, width)
    published = [
        line
        for arm, r in wording.references(session)
        for line in wrapped(
            f"{arm}  {r.metric}: {wording.reference_values(r)}, {wording.reference_change(r)} "
            f"({r.document})", width,
        )
    ]  # fmt: skip
    return lines + (["Published:", *published, ""] if published else [])


def below(session: SessionComparison, rows: Sequence[MetricRow]) -> list[str]:
    """n, interval and verdict of everything that is judged, an arm at a time."""
    lines = []
    for row in rows:
        if not row.primary:
            continue
        for cell in row.others:
            metric = cell.against
            if metric is None:
                continue
            size = (wording.change(metric), wording.interval(metric))
            parts = (size[0], f"n={metric.judgement.pairs}", size[1])
            remarks = [part for part in parts if part and not (cell.withheld and part in size)]
            text = ", ".join(remarks)
            why = wording.reason(metric)
            lines.append(
                f"{row.case} {row.shown_name} {cell.arm}: {text}: {wording.verdict(metric)}"
                + (f" ({why})" if why else "")
            )
    lines += [
        line for comparison in session.comparisons for line in wording.noise_lines(comparison)
    ]
    if len(session.primary) > 1:
        lines.append(f"{wording.family(session)}.")
    lines += [text] if (text := checks.sentence(session.gates)) else []
    return [part for line in lines for part in wrapped(line, WIDTH, "")]


def failures(session: SessionComparison) -> list[str]:
    """``fail:runs`` of each arm, for every case in which a run failed."""
    counts = session.failures
    failed = sorted({case for (case, _), (bad, _) in counts.items() if bad})
    return [
        clean_line(
            f"fail:runs {case}: "
            + ", ".join(f"{arm.name} {counts[case, arm.name][0]}:{counts[case, arm.name][1]}"
                        for arm in session.manifest.arms if (case, arm.name) in counts)
        )
        for case in failed
    ]  # fmt: skip


def render(session: SessionComparison) -> str:
    """Return the tables, ending in a newline."""
    rows = session.rows
    cases = session.comparisons[0].cases
    manifest = session.manifest
    lines = [clean_line(manifest.experiment.title), headline.sentence(session), ""]
    lines += [*wrapped(mail.measured_under(manifest), WIDTH, ""), ""]
    sentences = differences.sentences(session.arms)
    if sentences:
        lines += [f"{differences.LEAD}:", *(f"  {clean_line(text)}" for text in sentences), ""]
    if len(session.arms) > 2:
        lines += by_arm(session, rows)
    if len(session.arms) == 2 or len(cases) >= laid_out.MANY_CASES:
        lines += by_case(session, rows)
    counts = failures(session)
    lines += [*counts, ""] if counts else []
    lines += below(session, rows)
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"
