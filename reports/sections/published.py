"""What documents print of the same experiment, beside what was measured here."""

from __future__ import annotations

from reports import verdict_words, wording
from reports.document import Block, Column, Paragraph, Table, row
from reports.sections.view import View, titled

HEADS = (
    Column("case and metric", left=True),
    Column("arm", left=True, drop=3),
    Column("without"),
    Column("with"),
    Column("change"),
    Column("here"),
    Column("document", left=True, drop=1),
)


def blocks(view: View) -> list[Block]:
    """One row a figure; the change is computed from the figures."""
    here = {
        (comparison.manifest.patched, metric.case, metric.name): wording.change(metric)
        for comparison in reversed(view.session.comparisons)
        for metric in (m for case in comparison.cases for m in case.metrics)
    }
    rows = tuple(
        row(
            f"{r.case} {r.metric}", arm, f"{r.base:.2f}", f"{r.patched:.2f} {r.unit}",
            wording.reference_change(r), here.get((arm, r.case, r.metric), wording.NOTHING),
            r.document,
        )
        for arm, r in verdict_words.references(view.session)
    )  # fmt: skip
    note = (
        "Measured by others on other machines in real time. The change is computed from the "
        "figures; “here” is that of this session."
    )
    body: list[Block] = [Table("Published figures", HEADS, rows), Paragraph(note, "note")]
    return titled("Published figures", "published", body if rows else [])
