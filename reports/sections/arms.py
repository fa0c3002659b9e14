"""Many arms, many cases, and patches one by one: the tables of documents."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from reports import by_arm, steps, wording
from reports.by_arm import Cell as ArmCell
from reports.by_arm import Row as ArmRow
from reports.charts import arms as arm_charts
from reports.charts import course, heat
from reports.document import Block, Cell, Column, Heading, Paragraph, Row, Table, listing, row
from reports.many import SessionComparison
from reports.sections import functions
from reports.sections.view import View, figure, gallery, titled

DIRECTIONS = {"read_bw": "read", "write_bw": "write"}


def direction(row: ArmRow, found: Sequence[ArmRow]) -> str:
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


def deviation(cell: ArmCell) -> float | None:
    """The arm's standard deviation in the metric's own unit."""
    summary = cell.summary
    if summary is None or summary.stddev is None:
        return None
    return summary.stddev * abs(summary.mean)


def values(cell: ArmCell) -> tuple[str, str]:
    """Mean and standard deviation of one arm."""
    if cell.summary is None:
        return wording.NOTHING, wording.NOTHING
    mean = cell.summary.mean
    return number(mean, mean), number(deviation(cell), mean)


def change(row: ArmRow, cell: ArmCell) -> str:
    """The change with two decimals; in points where the metric is a percentage."""
    if cell.withheld:
        return wording.NOTHING
    if row.is_share:
        return wording.cell_change(row, cell)
    return f"{100 * cell.change.estimate:+.2f}%" if cell.change else wording.NOTHING


def _moved(row_: ArmRow, cell: ArmCell) -> Cell:
    word = wording.cell_verdict(cell)
    said = f"{change(row_, cell)} {word}".strip()
    return Cell(said, tone=word or "faint", mark=wording.MARKS.get(word, ""))


def workloads(view: View) -> list[Block]:
    """Workload, read or write, and each arm with its change: where cases are many."""
    shown = [found for found in view.session.rows if found.primary and found.measured]
    if not view.many_cases or not shown:
        return []
    names = [arm.name for arm in view.session.arms]
    heads = [Column("workload", left=True), Column("", left=True), Column(names[0])]
    for name in names[1:]:
        heads += [Column(name), Column("change", left=True)]
    rows = []
    for at, found in enumerate(shown):
        again = at > 0 and shown[at - 1].case == found.case
        cells = [
            Cell("" if again else found.case),
            Cell(direction(found, view.session.rows)),
            _mean(found.base),
        ]
        for cell in found.others:
            cells += [_mean(cell), _moved(found, cell)]
        rows.append(Row(tuple(cells)))
    drawn = heat.draw(view.session) if view.drawn else []
    units = ", ".join(dict.fromkeys(found.unit for found in shown))
    note = (
        f"Means and standard deviations over the {view.session.manifest.experiment.repeated}, "
        f"{units}."
    )
    return titled("Workload by workload", "workloads", [
        *(figure(chart, wide=True) for chart in drawn),
        Table("Workload by workload", tuple(heads), tuple(rows), together=2),
        Paragraph(note, "note"),
    ])  # fmt: skip


def _mean(cell: ArmCell) -> Cell:
    mean, spread = values(cell)
    return Cell(mean, small=f"±{spread}" if cell.summary and spread != wording.NOTHING else "")


def blocks(view: View) -> list[Block]:
    """Arm by arm, a table a case, and the change of each arm; none for two arms."""
    session = view.session
    if session.single:
        return []
    found: list[Block] = []
    if view.drawn:
        found += [figure(chart) for chart in arm_charts.forest(session)]
        found += [] if view.many_cases else [figure(c, wide=True) for c in heat.draw(session)]
    for case in view.first.cases:
        shown = [each for each in by_arm.columns(by_arm.of_case(session.rows, case.name))
                 if each.measured]  # fmt: skip
        arms = [arm.name for arm in session.arms if any(r.cell(arm.name).values for r in shown)]
        if not shown:
            continue
        heads = [Column("arm", left=True)]
        for each in shown:
            heads += [Column(each.name, under=each.unit), Column("change")]
        rows = []
        for name in arms:
            cells = [Cell(name)]
            for each in shown:
                cell = each.cell(name)
                cells += [_mean(cell), Cell() if cell is each.base else _moved(each, cell)]
            rows.append(Row(tuple(cells)))
        found += [
            Heading(f"{case.name}: {case.title}", 3),
            Table(f"{case.name} by arm", tuple(heads), tuple(rows), together=2),
        ]
    if found:
        found.append(Paragraph(
            f"Values are geometric means over the {session.manifest.experiment.repeated}, ± their "
            f"standard deviation; changes are from {session.arms[0].name}, those of percentages "
            "in points.", "note",
        ))  # fmt: skip
    return titled("Arm by arm", "arms", found)


def runs(view: View) -> list[Block]:
    """Every run of every arm, drawn."""
    if view.session.single or not view.drawn:
        return []
    return titled("Every run", "runs", gallery(arm_charts.runs(view.session)))


def patches(view: View) -> list[Block]:
    """Patch by patch: which of them accounts for the change; none where steps are not compared."""
    session = view.session
    answers = steps.answers(session)
    if not answers:
        return []
    courses = [(each, steps.course(session, each)) for each in session.rows if each.primary]
    heads = [Column("step", left=True)]
    for each, _ in courses:
        heads += [Column(f"{each.name}, this step", under=each.case), Column("all so far")]
    rows = []
    for at, step in enumerate(courses[0][1]):
        cells = [Cell(f"{at + 1} {step.title}")]
        for each, taken in courses:
            own, word = taken[at].own, wording.verdict(taken[at].own)
            cells.append(Cell(f"{wording.change(own)} {word}".strip(), tone=word,
                              mark=wording.MARKS.get(word, "")))  # fmt: skip
            cells.append(Cell(wording.cell_change(each, taken[at].cell), tone="faint"))
        rows.append(row(*cells))
    drawn = course.draw(session) if view.drawn else []
    return titled("Patch by patch", "patches", [
        *listing(f"{answer}." for answer in answers),
        Table("Patch by patch", tuple(heads), tuple(rows), together=2),
        *listing(_functions_by_step(session)),
        *gallery(drawn),
    ])  # fmt: skip


def _functions_by_step(session: SessionComparison) -> list[str]:
    """Which functions each step changed, a line for each phase in which functions were tested."""
    by_pair = {(one.manifest.base, one.manifest.patched): one for one in session.comparisons}
    return [
        f"Step {number}, {found.case} {found.phase}: {functions.changed_per_unit(found)}."
        for number, (before, arm) in enumerate(itertools.pairwise(session.arms), start=1)
        for found in by_pair[before.name, arm.name].headlines
        if found.tested and not found.identical
    ]
