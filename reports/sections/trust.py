"""What weakens trust: differences between the arms, findings, and runs that failed."""

from __future__ import annotations

from itertools import starmap

from reports import differences as apart
from reports.document import (
    Block,
    Callout,
    Code,
    Column,
    Fold,
    Item,
    Listing,
    Paragraph,
    Strong,
    Table,
    row,
)
from reports.model import FailedRun
from reports.sections.view import View, titled
from reports.sentences import of_finding

# So many lines stand beside the cause; a console's are folded.
SHORT_EVIDENCE = 2


def differences(view: View) -> list[Block]:
    """What the arms differ by beyond the series: as a banner, so that nobody overlooks it."""
    sentences = apart.sentences(view.session.arms)
    if not sentences:
        return []
    items = Listing(tuple(map(Item, sentences)))
    options, arms = apart.options(view.session.arms), view.session.arms
    heads = (Column("Option", left=True), *(Column(arm.name) for arm in arms))
    rows = tuple(row(option.name, *option.values) for option in options)
    title = f"All {len(options)} options that differ"
    more = [Fold(title, (Table(title, heads, rows),))] if len(options) > apart.NAMED else []
    return [Callout(apart.LEAD, (Paragraph((Strong(f"{apart.LEAD}:"),)), items)), *more]


def findings(view: View) -> list[Block]:
    """Warnings first; then, of an inexact session, what differs."""
    items = [Item(of_finding(f), f.level, f.scope) for f in view.session.findings]
    items += [Item(text, "note", "differs") for text in view.session.exactness.fields]
    return titled("Findings", "findings", [Listing(tuple(items))] if items else [])


def failures(view: View) -> list[Block]:
    """``fail:runs`` by arm, and every cause once with the runs that failed so."""
    session = view.session
    counts = session.failures
    failed = sorted({case for (case, _), (bad, _) in counts.items() if bad})
    arms = [arm.name for arm in session.manifest.arms]
    body: list[Block] = []
    if failed:
        heads = (Column("fail:runs", left=True), *map(Column, arms))
        rows = tuple(
            row(case, *(":".join(map(str, counts.get((case, arm), ("", "")))) for arm in arms))
            for case in failed
        )
        body += [
            Table("Failed runs by arm", heads, rows, together=1),
            Paragraph(
                "Failed runs are not data points; their "
                f"{session.manifest.experiment.repeated} are excluded on all arms.",
                "note",
            ),
        ]
    items = tuple(starmap(_failure, _by_cause(session.failed_runs).items()))
    return titled("Failed runs", "failures", [*body, Listing(items)] if items else body)


def _failure(why: str, alike: list[FailedRun]) -> Item:
    """A cause with the runs that failed so, and the evidence of the first of them."""
    evidence = alike[0].failure.evidence
    runs = ", ".join(run.run_id for run in alike)
    if len(evidence) <= SHORT_EVIDENCE:
        text = f" ({'; '.join(evidence)})" if evidence else ""
        return Item(f"{why}{text}: {runs}", "note")
    fold = Fold(f"{len(evidence)} lines", (Code("\n".join(evidence)),), page_only=True)
    return Item(f"{why}: {runs}", "note", blocks=(fold,))


def _by_cause(runs: tuple[FailedRun, ...]) -> dict[str, list[FailedRun]]:
    alike: dict[str, list[FailedRun]] = {}
    for run in runs:
        why = f"{run.failure.kind}, blame {run.failure.blame}: {run.failure.message}"
        alike.setdefault(why, []).append(run)
    return alike
