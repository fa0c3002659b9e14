"""What happened, and every verdict."""

from __future__ import annotations

from analysis.many import ArmCell
from analysis.many import MetricRow as ArmRow
from analysis.model import Comparison, MetricComparison
from reports import sentences, wording
from reports.document import (
    Block,
    Cell,
    Column,
    Fold,
    Heading,
    Mono,
    Paragraph,
    Row,
    Table,
    VerdictRow,
    Verdicts,
    Words,
    row,
)
from reports.headline import headline
from reports.sections import functions
from reports.sections.view import View

# As many columns of verdicts as a table of arms may have before it is turned around.
MOST_COLUMNS = 4


def happened(view: View) -> list[Block]:
    """What happened in a few words, how to go on, and why."""
    result = headline(view.session, view.folder)
    words: Words = f"{result.text}."
    if result.command:
        words = (f"{result.text}; to finish: ", Mono(result.command))
    return [Paragraph(words, "bottom"), *(Paragraph(cause, "cause") for cause in result.causes)]


def verdict(comparison: Comparison, metric: MetricComparison) -> VerdictRow:
    """One verdict, with its reason and values, and the functions behind it or beside it."""
    word = sentences.verdict(metric)
    behind = functions.explained(comparison, metric) or functions.beside(comparison, metric)
    lines = (sentences.tail(metric), behind)
    return VerdictRow(
        word=sentences.judged(metric), style=word, mark=sentences.MARKS[word],
        case=metric.case, metric=metric.name,
        change=wording.change(metric) if metric.judgement.change else "",
        interval=wording.interval(metric), lines=tuple(line for line in lines if line),
    )  # fmt: skip


def of_pair(comparison: Comparison) -> Verdicts:
    """All verdicts of two arms."""
    return Verdicts(tuple(verdict(comparison, metric) for metric in comparison.primary))


def beside(comparison: Comparison) -> list[Block]:
    """What a user would see of the phases that are judged by something else: bandwidth."""
    judged = {(metric.case, metric.phase) for metric in comparison.primary}
    parts = []
    for case in comparison.cases:
        for phase in case.phases:
            metric = case.metric(f"{phase.name}.bw")
            in_verdict = metric is not None and (case.name, phase.name) in judged
            if (
                metric is None
                or not in_verdict
                or metric.primary
                or metric.judgement.change is None
            ):
                continue
            text = f"{metric.name} {wording.change(metric)}, {sentences.values(metric)}"
            reference = sentences.published(metric)
            parts.append(f"{text} ({reference})" if reference else text)
    return [Paragraph(f"Beside them, not judged: {'; '.join(parts)}.", "note")] if parts else []


def every(view: View) -> list[Block]:
    """Every verdict with its reason, pair by pair."""
    blocks: list[Block] = []
    for comparison in view.session.comparisons:
        name = view.session.name_of(comparison)
        if name:
            measured = "" if comparison.measured else ": not measured"
            blocks.append(Heading(f"{name}{measured}", 3))
        if comparison.measured or not name:
            blocks += [of_pair(comparison), *beside(comparison)]
    return blocks


def _verdict_cell(metric_row: ArmRow, cell: ArmCell) -> Cell:
    """A verdict in a cell; of an arm that is not judged against the base its change alone."""
    change, word = wording.cell_change(metric_row, cell), sentences.cell_verdict(cell)
    if cell.against is None:
        return Cell(change, under="not judged", tone="faint")
    return Cell(
        f"{change} {word}", under=wording.cell_bounds(metric_row, cell), tone=word,
        mark=sentences.MARKS.get(word, ""),
    )  # fmt: skip


def table(view: View) -> list[Block]:
    """The verdicts of many arms beside each other; turned around where metrics are many."""
    judged = [each for each in view.session.rows if each.primary]
    names = [arm.name for arm in view.session.arms[1:]]
    if not judged or view.session.is_pair:
        return []
    label = "Verdicts by arm and case"
    rows: tuple[Row, ...]
    if len(judged) > MOST_COLUMNS:
        heads = [Column("case and metric", left=True), *map(Column, names)]
        rows = tuple(
            row(Cell(each.case, under=f"{each.name}, {each.unit}"),
                *(_verdict_cell(each, cell) for cell in each.others))
            for each in judged
        )  # fmt: skip
    else:
        heads = [Column("arm", left=True), *(Column(f.name, under=f.case) for f in judged)]
        rows = tuple(row(name, *(_verdict_cell(f, f.cell(name)) for f in judged)) for name in names)
    return [Table(label, tuple(heads), rows, together=1)]


def blocks(view: View) -> list[Block]:
    """The section: what happened, and the verdicts as the number of arms and cases asks for."""
    body: list[Block] = [Heading("Verdict", 2, "verdict"), *happened(view)]
    if not headline(view.session).has_verdicts:
        return body
    if view.session.is_pair and not view.many_cases:
        body += every(view)
    else:
        body += [*table(view), Fold("Every verdict with its reason", tuple(every(view)))]
    return [*body, Paragraph(f"{sentences.family(view.session)}.", "note")]
