"""Many arms, many cases, and patches one by one: the tables of documents."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from analysis.many import (
    ArmCell,
    MetricRow,
    SessionComparison,
    Step,
    chosen_columns,
    geometric_means,
)
from analysis.verdict import CALLED, Change
from reports import sentences, wording
from reports.charts import forest, heat
from reports.charts import runs as drawn_runs
from reports.charts.canvas import Chart
from reports.document import Block, Cell, Column, Heading, Paragraph, Row, Table, listing, row
from reports.sections.view import View, figure, gallery, titled
from reports.sentences import changed_per_unit

DIRECTIONS = {"read_bw": "read", "write_bw": "write"}


def direction(row: MetricRow, rows: Sequence[MetricRow]) -> str:
    """``read`` or ``write`` for bandwidth in one direction, else the metric's name."""
    shorts = {other.short for other in rows if (other.case, other.phase) == (row.case, row.phase)}
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


def change(row: MetricRow, cell: ArmCell) -> str:
    """The change with two decimals; in points where the metric is a percentage."""
    if cell.withheld:
        return wording.NOTHING
    if row.is_share:
        return wording.cell_change(row, cell)
    return f"{100 * cell.change.estimate:+.2f}%" if cell.change else wording.NOTHING


def _moved(row_: MetricRow, cell: ArmCell) -> Cell:
    word = sentences.cell_verdict(cell)
    text = f"{change(row_, cell)} {word}".strip()
    return Cell(text, tone=word or "faint", mark=sentences.MARKS.get(word, ""))


def workloads(view: View) -> list[Block]:
    """Workload, read or write, and each arm with its change: where cases are many."""
    judged = [row for row in view.session.rows if row.primary and row.measured]
    if not view.many_cases or not judged:
        return []
    names = [arm.name for arm in view.session.arms]
    # Changes first: on a phone they are what is seen without scrolling.
    heads = [Column("workload", left=True), Column("", left=True)]
    for name in names[1:]:
        heads += [Column("change" if len(names) == 2 else f"change, {name}", left=True)]
    heads += [Column(name) for name in names]
    rows = []
    for at, each in enumerate(judged):
        again = at > 0 and judged[at - 1].case == each.case
        cells = [
            Cell("" if again else each.case),
            Cell(direction(each, view.session.rows)),
        ]
        cells += [_moved(each, cell) for cell in each.others]
        cells += [_mean(cell) for cell in (each.base, *each.others)]
        rows.append(Row(tuple(cells)))
    rows += _overall(view, judged)
    charts = heat.draw(view.session) if view.drawn else []
    units = ", ".join(dict.fromkeys(row.unit for row in judged))
    note = (
        f"Means and standard deviations over the {view.session.manifest.experiment.repeated}, "
        f"{units}."
    )
    return titled("Workload by workload", "workloads", [
        *(figure(chart, wide=True) for chart in charts),
        Table("Workload by workload", tuple(heads), tuple(rows), together=2),
        Paragraph(note, "note"),
    ])  # fmt: skip


def _overall(view: View, judged: Sequence[MetricRow]) -> list[Row]:
    """A row for each unit: the geometric mean of each arm's changes."""
    names = [arm.name for arm in view.session.arms[1:]]
    means = [
        geometric_means(
            cell.against
            for row in judged
            if (cell := row.cell(name)).against is not None and not cell.withheld
        )
        for name in names
    ]
    rows = []
    for unit in dict.fromkeys(mean.unit for of_arm in means for mean in of_arm):
        cells = []
        for of_arm in means:
            mean = next((mean for mean in of_arm if mean.unit == unit), None)
            text = f"{100 * mean.change:+.2f}%" if mean else wording.NOTHING
            cells.append(Cell(text, small=f"of {mean.n}" if mean else ""))
        blank = (Cell(),) * (len(names) + 1)
        rows.append(Row(
            (Cell("geometric mean"), Cell(), *cells, *blank), strong=True, sum=True
        ))  # fmt: skip
    return rows


def _mean(cell: ArmCell) -> Cell:
    mean, spread = values(cell)
    return Cell(mean, small=f"±{spread}" if cell.summary and spread != wording.NOTHING else "")


def changes(view: View) -> list[Chart]:
    """The change of every arm in each metric that is judged, with its interval."""
    if not view.drawn:
        return []
    thresholds = view.session.manifest.experiment.thresholds
    alone = view.session.is_pair
    groups = []
    judged = [row for row in view.session.rows if row.primary]
    # Of many metrics the mark alone says it.
    ranked = alone and len(judged) >= forest.MANY
    for each in judged:
        lines = []
        for cell in each.others:
            metric = cell.against
            word = sentences.judged(metric) if metric and alone else sentences.cell_verdict(cell)
            mark = sentences.MARKS.get(sentences.cell_verdict(cell), "")
            text = (wording.cell_change(each, cell), mark, "" if ranked else word)
            lines.append(
                forest.ChangeLine(
                    label="" if alone else cell.arm,
                    text=" ".join(filter(None, text)),
                    change=cell.change,
                    called=metric is not None and metric.judgement.verdict in CALLED,
                    again=metric.again if metric else None,
                    published=tuple(reference.change for reference in cell.published),
                )
            )
        if any(line.change for line in lines):
            own = thresholds.of(each.case, each.name).change
            groups.append(forest.ChangeGroup(f"{each.case} {each.name}", own, tuple(lines)))
    means = [
        forest.ChangeLine(
            label=f"geometric mean of {mean.n}",
            text=wording.percent(mean.change),
            change=Change(estimate=mean.change, hodges_lehmann=mean.change, level=0.0),
            is_mean=True,
        )
        for mean in geometric_means(
            cell.against for each in judged for cell in each.others if cell.against
        )
    ]
    return forest.draw(groups, means, wording.threshold(thresholds))


def blocks(view: View) -> list[Block]:
    """Arm by arm, a table a case, and the change of each arm; none for two arms."""
    session = view.session
    if session.is_pair:
        return []
    body: list[Block] = []
    if view.drawn:
        body += [figure(chart) for chart in changes(view)]
        body += [] if view.many_cases else [figure(c, wide=True) for c in heat.draw(session)]
    for case in view.first.cases:
        columns = [each for each in chosen_columns(session.of_case(case.name))
                 if each.measured]  # fmt: skip
        arms = [arm.name for arm in session.arms if any(r.cell(arm.name).values for r in columns)]
        if not columns:
            continue
        heads = [Column("arm", left=True)]
        for each in columns:
            heads += [Column(each.name, under=each.unit), Column("change")]
        rows = []
        for name in arms:
            cells = [Cell(name)]
            for each in columns:
                cell = each.cell(name)
                cells += [_mean(cell), Cell() if cell is each.base else _moved(each, cell)]
            rows.append(Row(tuple(cells)))
        body += [
            Heading(f"{case.name}: {case.title}", 3),
            Table(f"{case.name} by arm", tuple(heads), tuple(rows), together=2),
        ]
    if body:
        body.append(Paragraph(
            f"Values are geometric means over the {session.manifest.experiment.repeated}, ± their "
            f"standard deviation; changes are from {session.arms[0].name}, those of percentages "
            "in points.", "note",
        ))  # fmt: skip
    return titled("Arm by arm", "arms", body)


def runs(view: View) -> list[Block]:
    """Every run of every arm, drawn."""
    if view.session.is_pair or not view.drawn:
        return []
    return titled("Every run", "runs", gallery(drawn_runs.by_arm(view.session)))


def patches(view: View) -> list[Block]:
    """Patch by patch: which of them accounts for the change; none where steps are not compared."""
    session = view.session
    answered = answers(session)
    if not answered:
        return []
    courses = [(each, session.course(each)) for each in session.rows if each.primary]
    heads = [Column("step", left=True)]
    for each, _ in courses:
        heads += [Column(f"{each.name}, this step", under=each.case), Column("all so far")]
    rows = []
    for at, step in enumerate(courses[0][1]):
        cells = [Cell(f"{at + 1} {step.title}")]
        for each, course_steps in courses:
            own, word = course_steps[at].own, sentences.verdict(course_steps[at].own)
            cells.append(Cell(f"{wording.change(own)} {word}".strip(), tone=word,
                              mark=sentences.MARKS.get(word, "")))  # fmt: skip
            cells.append(Cell(wording.cell_change(each, course_steps[at].cell), tone="faint"))
        rows.append(row(*cells))
    charts = drawn_runs.by_patch(session) if view.drawn else []
    return titled("Patch by patch", "patches", [
        *listing(f"{sentence}." for sentence in answered),
        Table("Patch by patch", tuple(heads), tuple(rows), together=2),
        *listing(_functions_by_step(session)),
        *gallery(charts),
    ])  # fmt: skip


def _functions_by_step(session: SessionComparison) -> list[str]:
    """Which functions each step changed, a line for each phase in which functions were tested."""
    by_pair = {
        (comparison.manifest.base, comparison.manifest.patched): comparison
        for comparison in session.comparisons
    }
    return [
        f"Step {number}, {phase.case} {phase.phase}: {changed_per_unit(phase)}."
        for number, (before, arm) in enumerate(itertools.pairwise(session.arms), start=1)
        for phase in by_pair[before.name, arm.name].headlines
        if phase.tested and not phase.identical
    ]


def answer(session: SessionComparison, row: MetricRow) -> str:
    """Which of the patches gives the change, as far as the intervals allow to say it."""
    steps, all_of_them = session.course(row), row.cells[-1].against
    where = f"{row.case} {row.name}"
    if not steps or all_of_them is None or all_of_them.judgement.change is None:
        return f"{where}: not measured on every step"
    text = f"{where}: all {len(steps)} steps together {wording.change(all_of_them)}"
    bounds = wording.interval(all_of_them)
    text = f"{text} {bounds}, {sentences.verdict(all_of_them)}" if bounds else text
    significant = [step for step in steps if step.own.judgement.verdict in CALLED]
    if not significant:
        if all_of_them.judgement.verdict in CALLED:
            return f"{text}; no single step is significant, so the change cannot be attributed"
        return f"{text}; no step changes it significantly"
    those = "; ".join(f"{_step_name(session, step)} {wording.change(step.own)} "
                      f"{wording.bounds(step.own)}" for step in significant)  # fmt: skip
    if all_of_them.judgement.verdict not in CALLED:
        return f"{text}; steps that change it: {those}"
    verdict = all_of_them.judgement.verdict
    along = [step for step in significant if step.own.judgement.verdict is verdict]
    if len(significant) == 1 == len(along) and _stands_apart(along[0], steps):
        return (
            f"{text}; {those} accounts for it: the intervals of all other steps end below its own"
        )
    if not along:
        return f"{text}; the only steps that change it go the other way: {those}"
    if len(significant) == 1:
        more = "others perhaps for as much: intervals overlap"
        return f"{text}; {those} accounts for part of it, {more}"
    return f"{text}; steps that change it: {those}"


def _step_name(session: SessionComparison, step: Step) -> str:
    number = [arm.name for arm in session.arms].index(step.arm.name)
    return f"step {number} ({step.title})"


def _stands_apart(step: Step, steps: tuple[Step, ...]) -> bool:
    """Whether no other step can be as large as this one, in its direction."""
    change = step.own.judgement.change
    if change is None or change.low is None or change.high is None:
        return False
    up = change.estimate > 0
    for other in steps:
        others_change = other.own.judgement.change
        if other is step:
            continue
        if others_change is None or others_change.low is None or others_change.high is None:
            return False
        if (others_change.high >= change.low) if up else (others_change.low <= change.high):
            return False
    return True


def answers(session: SessionComparison) -> list[str]:
    """One sentence for each metric that is judged; none where steps are not compared."""
    if not session.is_by_steps:
        return []
    return [answer(session, row) for row in session.rows if row.primary]
