"""All metrics: of a pair of arms with every run, of many arms and cases, and patch by patch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from analysis.many import ArmCell, MetricRow, SessionComparison, Step, chosen_columns
from analysis.model import CaseComparison, Comparison, MetricComparison, Summary
from analysis.verdict import CALLED
from experiment.spec import of_case
from reports import charts, sentences, wording
from reports import sections as shapes
from reports.charts import Chart
from reports.document import (
    Block,
    Cell,
    Column,
    Fold,
    Heading,
    Paragraph,
    Row,
    Table,
    listing,
    row,
)
from reports.sections import View, figure, gallery, titled
from reports.sections.trust import VALUES
from text import counted

# From here on a drawing for each case would be a wall of them.
MANY_CASES = 8


def _value(summary: Summary | None) -> Cell:
    spread = wording.spread(summary.stddev) if summary and summary.stddev is not None else ""
    return Cell(wording.figure(summary.mean if summary else None), small=spread)


def _table(
    comparison: Comparison, case: CaseComparison, metrics: Sequence[MetricComparison]
) -> Table:
    wall = any(metric.again for metric in case.metrics)
    published = any(metric.published for metric in metrics)
    base, patched = shapes.arms(comparison)
    heads = (
        *(Column("metric", left=True), Column("change"), Column("interval", drop=5)),
        *([Column("A/A", drop=4)] if wall else []),
        *(Column(base.head, drop=2), Column(patched.head, drop=3)),
        *([Column("published", drop=1)] if published else []),
        Column("verdict", left=True),
    )
    rows = []
    for metric in metrics:
        cells = [
            Cell(metric.name, small=wording.after(metric.unit).strip()),
            *(Cell(wording.change(metric)), Cell(wording.bounds(metric))),
            *([Cell(wording.again_size(metric))] if metric.again else []),
            *(_value(metric.base), _value(metric.patched)),
        ]
        if published:
            cells.append(Cell(", ".join(map(wording.reference_change, metric.published))))
        cells.append(Cell(sentences.judged(metric), tone=sentences.verdict(metric)))
        rows.append(Row(tuple(cells), strong=metric.primary))
    label = f"Metrics of {case.name}{'' if metrics[0].primary else ', not significant'}"
    return Table(label, heads, tuple(rows))


def _of_case(comparison: Comparison, case: CaseComparison, *, alone: bool) -> list[Block]:
    """What is judged, or differs beyond chance; the other metrics are folded.

    Forms that cannot fold have them only where the pair is ``alone``.
    """
    measured = [metric for metric in case.metrics if metric.base]
    first = [m for m in measured if m.primary or m.judgement.differs]
    rest = [metric for metric in measured if metric not in first]
    if not measured:
        return []
    blocks: list[Block] = [Heading(f"{case.name}: {case.title}", 3)]
    blocks += [_table(comparison, case, first)] if first else []
    if rest and first:
        summary = f"{counted(len(rest), 'other metric')}, not significant"
        blocks.append(Fold(summary, (_table(comparison, case, rest),), page_only=not alone))
    elif rest:
        blocks.append(_table(comparison, case, rest))
    return blocks


def note(comparison: Comparison) -> str:
    """What the values and intervals are."""
    judged = (
        "Primary metrics come first and alone have verdicts; of the others, what survives "
        "Benjamini-Hochberg at 10 % is better or worse"
    )
    confidence = 100 - 100 * comparison.manifest.experiment.thresholds.alpha
    if comparison.wall:
        intervals = f"{VALUES} Intervals are at {confidence:g} %, in percent."
        withheld = any(comparison.withholds(metric) for metric in comparison.primary)
        return intervals if withheld else f"{intervals} {judged}."
    return (
        "Values are geometric means over the seeds with the spread between seeds as ± standard "
        f"deviation; intervals are at {confidence:g} %, in percent, those of percentages in "
        f"points. {judged}."
    )


def of_pair(view: View, comparison: Comparison) -> list[Block]:
    """The changes of a pair, of many cases folded, and every run of it."""
    alone = view.session.is_pair
    tables = [
        block for case in comparison.cases for block in _of_case(comparison, case, alone=alone)
    ]
    drawn_changes = changes(view) if alone else []
    called, shown, more = _runs(view, comparison)
    if tables and called and any(chart.kind == "forest" for chart in drawn_changes):
        # The seeds of what was called stand beside the changes.
        body, called = gallery([*drawn_changes, *called]), []
    else:
        body = [figure(chart) for chart in drawn_changes]
    if view.many_cases and tables:
        body.append(Fold("All metrics, case by case", tuple(tables)))
    else:
        body += tables
    # Of many pairs it is said once, below them all.
    notes = [Paragraph(note(comparison), "note")] if alone else []
    drawn = gallery([*called, *shown])
    if more:
        drawn.append(Fold("Other runs and phases", tuple(gallery(more)), page_only=True))
    return [
        *(titled("The change", "change", [*body, *notes]) if tables else []),
        *titled("Every run", "runs", drawn),
    ]


def _runs(view: View, comparison: Comparison) -> tuple[list[Chart], list[Chart], list[Chart]]:
    """Drawings of every run: seeds of what was called, of what else was judged, and the rest.

    The rest are other phases, which are there to look up.
    """
    wall, few = comparison.wall is not None, len(comparison.cases) < MANY_CASES
    # Runs of many arms beside each other are in a chart of their own.
    samples = wall or (few and view.session.is_pair)
    drawings = view.charts(comparison, charts.samples) if samples else []
    called: list[Chart] = []
    judged: list[Chart] = []
    more: list[Chart] = []
    for metric, chart in zip(charts.charted_metrics(comparison), drawings, strict=False):
        of_called = metric.judgement.verdict in CALLED
        (called if of_called else judged if metric.primary else more).append(chart)
    # Where something was called, what was not is there to look up, too.
    return (called, [], [*judged, *more]) if called and not wall else (called, judged, more)


DIRECTIONS = {"read_bw": "read", "write_bw": "write"}


def direction(row: MetricRow, rows: Sequence[MetricRow]) -> str:
    """``read`` or ``write`` for bandwidth in one direction, else the metric's name."""
    if row.short != "bw":
        return DIRECTIONS.get(row.short, row.name)
    shorts = {other.short for other in rows if (other.case, other.phase) == (row.case, row.phase)}
    # A phase that writes has a bandwidth of writing; one that only reads has no other.
    return "/".join(word for short, word in DIRECTIONS.items() if short in shorts) or "read"


def number(value: float | None, like: float) -> str:
    """Two decimals as documents have them; more where ``like`` is so small that they say less."""
    if value is None:
        return wording.NOTHING
    return f"{value:.{2 if abs(like) >= 1 or not like else 4}f}"


def values(cell: ArmCell) -> tuple[str, str]:
    """Mean and standard deviation of one arm, in the metric's own unit."""
    summary = cell.summary
    if summary is None:
        return wording.NOTHING, wording.NOTHING
    mean, spread = summary.mean, summary.stddev
    return number(mean, mean), number(None if spread is None else spread * abs(mean), mean)


def change(row: MetricRow, cell: ArmCell) -> str:
    """The change with two decimals; in points where the metric is a percentage."""
    if cell.withheld:
        return wording.NOTHING
    if row.is_share:
        return wording.cell_change(row, cell)
    return f"{100 * cell.change.estimate:+.2f}%" if cell.change else wording.NOTHING


def _judged(text: str, word: str, tone: str = "") -> Cell:
    """A change with its verdict."""
    mark = sentences.MARKS.get(word, "")
    return Cell(f"{text} {word}".strip(), tone=word or tone, mark=mark)


def _moved(row_: MetricRow, cell: ArmCell) -> Cell:
    return _judged(change(row_, cell), sentences.cell_verdict(cell), "faint")


def _mean(cell: ArmCell) -> Cell:
    mean, spread = values(cell)
    return Cell(mean, small=f"±{spread}" if cell.summary and spread != wording.NOTHING else "")


def workloads(view: View) -> list[Block]:
    """Workload, read or write, and each arm with its change: where cases are many."""
    judged = [row for row in view.session.rows if row.primary and row.measured]
    if not view.many_cases or not judged:
        return []
    names = [arm.name for arm in view.session.arms]
    # Changes first: on a phone they are what is seen without scrolling.
    heads = [Column("workload", left=True), Column("", left=True)]
    heads += [
        Column("change" if len(names) == 2 else f"change, {name}", left=True) for name in names[1:]
    ]
    rows = []
    for before, each in zip((None, *judged), judged, strict=False):
        first = "" if before and before.case == each.case else each.case
        moved = (_moved(each, cell) for cell in each.others)
        means = map(_mean, (each.base, *each.others))
        rows.append(row(first, direction(each, view.session.rows), *moved, *means))
    units = ", ".join(dict.fromkeys(row.unit for row in judged))
    over = view.session.manifest.experiment.repeated
    title = "Workload by workload"
    columns = (*heads, *map(Column, names))
    return titled(
        title,
        "workloads",
        [
            Table(title, columns, tuple(rows), together=2),
            Paragraph(f"Means and standard deviations over the {over}, {units}.", "note"),
        ],
    )


def changes(view: View) -> list[Chart]:
    """The change of every arm in each metric that is judged, with its interval."""
    if not view.drawn:
        return []
    thresholds = view.session.manifest.experiment.thresholds
    alone = view.session.is_pair
    judged = [row for row in view.session.rows if row.primary]
    # Of many metrics the mark alone says it.
    ranked = alone and len(judged) >= charts.MANY
    groups = []
    for each in judged:
        lines = []
        for cell in each.others:
            metric, word = cell.against, sentences.cell_verdict(cell)
            mark = sentences.MARKS.get(word, "")
            word = sentences.judged(metric) if metric and alone else word
            parts = (wording.cell_change(each, cell), mark, "" if ranked else word)
            line = charts.ChangeLine(
                label="" if alone else cell.arm,
                text=" ".join(filter(None, parts)),
                change=cell.change,
                called=metric is not None and metric.judgement.verdict in CALLED,
                again=metric.again if metric else None,
                published=tuple(reference.change for reference in cell.published),
            )
            lines.append(line)
        if any(line.change for line in lines):
            own = thresholds.of(each.case, each.name).change
            groups.append(charts.ChangeGroup(f"{each.case} {each.name}", own, tuple(lines)))
    names = {name for row in judged for name in (row.name, of_case(row.case, row.name))}
    return charts.draw(groups, wording.threshold(thresholds, names))


def by_arm(view: View) -> list[Block]:
    """Arm by arm, a table a case, and the change of each arm; none for two arms."""
    session = view.session
    if session.is_pair:
        return []
    body: list[Block] = [figure(chart) for chart in changes(view)]
    for case in view.first.cases:
        of_case = chosen_columns(session.of_case(case.name))
        columns = [each for each in of_case if each.measured]
        if not columns:
            continue
        heads = [Column("arm", left=True)]
        for each in columns:
            heads += [Column(each.name, under=each.unit), Column("change")]
        rows = []
        for arm in session.arms:
            cells = [each.cell(arm.name) for each in columns]
            if any(cell.values for cell in cells):
                moved = [
                    Cell() if cell is each.base else _moved(each, cell)
                    for each, cell in zip(columns, cells, strict=True)
                ]
                both = zip(map(_mean, cells), moved, strict=True)
                rows.append(row(arm.name, *itertools.chain.from_iterable(both)))
        body.append(Heading(f"{case.name}: {case.title}", 3))
        body.append(Table(f"{case.name} by arm", tuple(heads), tuple(rows), together=2))
    if body:
        text = (
            f"Values are geometric means over the {session.manifest.experiment.repeated}, ± their "
            f"standard deviation; changes are from {session.arms[0].name}, those of percentages "
            "in points."
        )
        body.append(Paragraph(text, "note"))
    return titled("Arm by arm", "arms", body)


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
        cells = [Cell(f"{step.number} {step.title}")]
        for each, course in courses:
            own = course[at].own
            so_far = Cell(wording.cell_change(each, course[at].cell), tone="faint")
            cells += [_judged(wording.change(own), sentences.verdict(own)), so_far]
        rows.append(row(*cells))
    return titled(
        "Patch by patch",
        "patches",
        [
            *listing(f"{text}." for text in answered),
            Table("Patch by patch", tuple(heads), tuple(rows), together=2),
            # Which functions each step changed, of each phase in which functions were tested.
            *listing(
                f"Step {number}, {phase.case} {phase.phase}: {sentences.changed_per_unit(phase)}."
                for number, comparison in session.steps
                for phase in comparison.headlines
                if phase.tested and not phase.identical
            ),
        ],
    )


def answers(session: SessionComparison) -> list[str]:
    """One sentence for each metric that is judged; none where steps are not compared."""
    if not session.is_by_steps:
        return []
    return [answer(session, row) for row in session.rows if row.primary]


def answer(session: SessionComparison, row: MetricRow) -> str:
    """Which of the patches gives the change, as far as the intervals allow to say it."""
    steps, whole = session.course(row), row.cells[-1].against
    where = f"{row.case} {row.name}"
    if not steps or whole is None or whole.judgement.change is None:
        return f"{where}: not measured on every step"
    verdict, bounds = whole.judgement.verdict, wording.interval(whole)
    text = f"{where}: all {len(steps)} steps together {wording.change(whole)}"
    text += f" {bounds}, {sentences.verdict(whole)}" if bounds else ""
    called = [step for step in steps if step.own.judgement.verdict in CALLED]
    along = [step for step in called if step.own.judgement.verdict is verdict]
    those = "; ".join(
        f"step {step.number} ({step.title}) {wording.change(step.own)} {wording.bounds(step.own)}"
        for step in called
    )
    if not called:
        if verdict in CALLED:
            return f"{text}; no single step is significant, so the change cannot be attributed"
        return f"{text}; no step changes it significantly"
    if verdict in CALLED and not along:
        return f"{text}; the only steps that change it go the other way: {those}"
    if verdict not in CALLED or len(called) > 1:
        return f"{text}; steps that change it: {those}"
    if _stands_apart(called[0], steps):
        rest = "the intervals of all other steps end below its own"
        return f"{text}; {those} accounts for it: {rest}"
    more = "others perhaps for as much: intervals overlap"
    return f"{text}; {those} accounts for part of it, {more}"


def _stands_apart(step: Step, steps: tuple[Step, ...]) -> bool:
    """Whether no other step can be as large as this one, in its direction."""
    own = step.own.judgement.change
    others = [wording.ends(each.own.judgement.change) for each in steps if each is not step]
    if own is None or (both := wording.ends(own)) is None:
        return False
    (low, high), up = both, own.estimate > 0
    return all(each and (each[1] < low if up else each[0] > high) for each in others)
