"""The tables of documents, of the blocks of a report: a row an arm, and workloads by direction."""

from __future__ import annotations

from analysis.many import MANY_CASES, SessionComparison
from reports import mail, sentences
from reports.document import Block, Column, Heading, Item, Listing, Paragraph, Table, listing
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
    if not rows:
        return []
    base, blocks = session.arms[0].name, []
    for arm in session.arms[1:]:
        names = (base, "stddev", arm.name, "stddev", "change")
        words = Column("Workload", True), Column("read/write", True)
        columns = (*words, *map(Column, names), Column("verdict", True))
        lines = []
        for before, row in zip((None, *rows), rows, strict=False):
            cell = row.cell(arm.name)
            values = (*arms.values(row.base), *arms.values(cell), arms.change(row, cell))
            first = "" if before and before.case == row.case else row.case
            word = sentences.cell_verdict(cell)
            lines.append(table_row(first, arms.direction(row, session.rows), *values, word))
        blocks.append(Table(f"Workloads, {arm.name}", columns, tuple(lines)))
    units = ", ".join(dict.fromkeys(row.unit for row in rows))
    over = session.manifest.experiment.repeated
    return [*blocks, Paragraph(f"Means and standard deviations over the {over}, {units}.")]


def render(session: SessionComparison) -> str:
    """Return the tables, ending in a newline."""
    view = View(session)
    title = Heading(session.manifest.experiment.title, 1)
    blocks: list[Block] = [title, Paragraph(headline(session).sentence)]
    blocks += [Paragraph(mail.is_of(session)), *trust.differences(view)]
    if len(session.arms) > 2:
        blocks += [*arms.blocks(view), *subject.published(view)]
    if len(session.arms) == 2 or len(session.cases) >= MANY_CASES:
        blocks += _workloads(session)
    blocks += trust.failures(view)
    claims = mail.claims(session, session.rows)
    items = tuple(Item(head, blocks=tuple(listing(lines))) for head, lines in claims)
    blocks += [Listing(items)] if items else []
    notes = [f"{sentences.family(session)}."] if len(session.primary) > 1 else []
    notes.append(trust.checks_sentence(session.gates))
    return text.text([*blocks, *(Paragraph(note) for note in notes if note)], WIDTH)
