"""The block of a cover letter for many arms: one paragraph of figures an arm, as with two."""

from __future__ import annotations

from reports import across, gate_wording, headline, mail
from reports.across import Cell, Row
from reports.letter import SHOWN, commands, percentage, setup, summary_line
from reports.mail import ascii_only
from reports.many import SessionComparison
from reports.model import CaseComparison
from results.units import is_virtual


def _label(row: Row) -> str:
    if row.short == "bw":
        return f"bw ({row.unit})"
    return f"{row.short} (virtual)" if is_virtual(row.unit) else row.short


def _claim(row: Row, cell: Cell) -> str:
    """The percentage over an arm's figures; none where a verdict is withheld."""
    metric = cell.against
    if metric is None or metric.judgement.change is None:
        return ""
    failed = metric.judgement.verdict is not None and metric.judgement.blame
    return "" if failed else f" ({percentage(metric)})"


def _arm(name: str, rows: list[Row], case: CaseComparison, *, first: bool) -> list[str]:
    lines = []
    for phase in case.phases:
        shown = [row for short in SHOWN for row in rows
                 if row.phase == phase.name and row.short == short
                 and row.cell(name).summary]  # fmt: skip
        if not shown:
            continue
        where = f", {phase.name} phase" if len(case.phases) > 1 else ""
        claim = "" if first else _claim(shown[0], shown[0].cell(name))
        lines += mail.wrapped(f"{name}{where}{claim}:")
        for row in shown:
            summary = row.cell(name).summary
            assert summary is not None
            lines += summary_line(ascii_only(_label(row)), summary)
    return lines


def _case(session: SessionComparison, case: CaseComparison, rows: list[Row]) -> list[str]:
    first = session.comparisons[0]
    parts = [setup(first, first.manifest, case), commands(case.phases)]
    parts += [_arm(arm.name, rows, case, first=arm is session.arms[0]) for arm in session.arms]
    closing = mail.below(session, rows)
    return [line for part in parts if part for line in (*part, "")] + closing


def render(session: SessionComparison) -> str:
    """Return the block of every case, ending in a newline; ASCII, at most 75 columns."""
    rows = across.rows(session)
    lines = [*mail.wrapped(mail.measured_under(session.manifest), hang=""), ""]
    lines += mail.banner(session)
    for case in session.comparisons[0].cases:
        lines += _case(session, case, list(across.of_case(rows, case.name)))
    said = gate_wording.sentence(session.gates)
    lines += [*mail.wrapped(said), ""] if said else []
    lines += mail.family(session)
    lines += mail.wrapped(headline.sentence(session))
    return "\n".join(lines).rstrip() + "\n"
