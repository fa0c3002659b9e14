"""The tables of documents, of the blocks of a report: a row an arm, and workloads by direction."""

from __future__ import annotations

from analysis.many import MANY_CASES, SessionComparison
from reports import mail, sentences
from reports.document import Block, Cell, Column, Heading, Item, Listing, Paragraph, Table, listing
from reports.document import row as table_row
from reports.headline import headline
from reports.render import text
from reports.sections import arms, subject, trust
from reports.sections.view import View

WIDTH = 100


def _workloads(session: SessionComparison) -> list[Block]:
    """Workload; read or write; baseline; stddev; the other arm; stddev; change; verdict.

    A table for each arm but the first.
    """
    rows = [row for row in session.rows if row.primary and row.measured]
    base, others = session.arms[0].name, session.arms[1:] if rows else ()
    blocks: list[Block] = []
    for arm in others:
        names = ("read/write", base, "stddev", arm.name, "stddev", "change", "verdict")
        lines, last = [], ""
        for row in rows:
            cell = row.cell(arm.name)
            values = (*arms.values(row.base), *arms.values(cell), arms.change(row, cell))
            direction, word = arms.direction(row, session.rows), sentences.cell_verdict(cell)
            first = row.case if row.case != last else ""
            lines.append(table_row(first, direction, *map(Cell, values), word))
            last = row.case
        heads = [Column(name, left=name in (names[0], names[-1])) for name in names]
        blocks.append(Table(f"Workloads, {arm.name}", (Column("Workload", True), *heads),
                            tuple(lines)))  # fmt: skip
    units = ", ".join(dict.fromkeys(row.unit for row in rows))
    over = session.manifest.experiment.repeated
    note = Paragraph(f"Means and standard deviations over the {over}, {units}.")
    return [*blocks, note] if rows else []


def render(session: SessionComparison) -> str:
    """Return the tables, ending in a newline."""
    view = View(session)
    title = Heading(session.manifest.experiment.title, 1)
    blocks: list[Block] = [title, Paragraph(headline(session).sentence)]
    blocks += [Paragraph(mail.under(session)), *trust.differences(view)]
    if len(session.arms) > 2:
        blocks += [*arms.blocks(view), *subject.published(view)]
    if len(session.arms) == 2 or len(session.cases) >= MANY_CASES:
        blocks += _workloads(session)
    blocks += trust.failures(view)
    claims = tuple(
        Item(head, blocks=tuple(listing(lines)))
        for head, lines in mail.claims(session, session.rows)
    )
    blocks += [Listing(claims)] if claims else []
    notes = [f"{sentences.family(session)}."] if len(session.primary) > 1 else []
    notes += [checked] if (checked := trust.checks_sentence(session.gates)) else []
    return text.text([*blocks, *map(Paragraph, notes)], WIDTH)
