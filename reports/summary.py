"""The comparison on one screen of Markdown, and in one line.

The screen is for a job's summary and a pull request's comment: what guests, hosts and mails say may
be in any text, and a comment is read by machines that act on it, so nothing in it names a user, an
issue or an address.  The line is for who edits a kernel and looks at one verdict after the other.
"""

from __future__ import annotations

import re

from analysis.many import SessionComparison
from analysis.two_sessions import SessionPair
from analysis.verdict import CALLED, Verdict
from reports import sentences, wording
from reports.document import Block, Heading, Item, Listing
from reports.headline import headline, standing_verdicts
from reports.render import markdown
from reports.sections import answer
from reports.sections.view import View
from reports.sentences import of_finding, verdict_counts
from results.units import read_name
from text import counted

# A step's summary may have 1 MiB; a comment 65,536 characters, and it is the smaller one.
MOST = 60_000
CUT = "\n\n(cut here; the whole report is in the artifacts)\n"
# Takes the meaning of "@name", "#1", "a/b#1", "http://" and "www." and changes no glyph.
BREAK = "\u2060"
ACTIVE = re.compile(r"(?<=[@#])(?=\w)|(?<=:)(?=//)|(?<=www)(?=\.)|(?<=GH-)(?=\d)", re.IGNORECASE)


def inert(text: str) -> str:
    """Text in which GitHub finds no user to notify, no issue to link and no address."""
    return ACTIVE.sub(BREAK, text)


def render(view: View, whole: str) -> str:
    """Return the summary, ending in a newline: verdicts, then the ``whole`` report.

    Of that as much as there is room for: nothing but the fold has to be closed where it is cut.
    """
    session = view.session
    title = sentences.title(session.manifest)
    blocks: list[Block] = [Heading(title, 2), *answer.answer(view)]
    warnings = (finding for finding in session.findings if finding.level == "warning")
    items = tuple(Item(of_finding(f), f.level, f.scope) for f in warnings)
    blocks += [Listing(items)] if items else []
    head = inert("\n".join([*markdown.render(blocks), ""]))
    fold = f"<details><summary>The whole report</summary>\n\n{whole}\n</details>\n"
    text = f"{head}\n{inert(fold)}"
    return text if len(text) <= MOST else f"{head[:MOST]}{CUT}"


def is_decided(session: SessionComparison) -> bool:
    """Whether more seeds decide nothing more."""
    return all(word for named in standing_verdicts(session).values() for word in named.values())


def line(session: SessionComparison, since: SessionPair | None = None) -> str:
    """What happened, the result that changed most, its change since another session, and where.

    ``1 regression: direct buffered.instructions +0.15 % [+0.15, +0.16]; since the last save
    +0.05 % [+0.04, +0.06]; filemap_get_read_batch +4.3 instructions; 8 seeds``.
    """
    happened = headline(session)
    tested = [
        metric
        for metric in session.primary
        if metric.judgement.change and metric.judgement.verdict is not Verdict.NOT_TESTED
    ]
    if not (tested and happened.has_verdicts):
        return "; ".join((happened.text, *happened.causes))
    most = max(
        tested,
        key=lambda m: (
            m.judgement.verdict in CALLED,
            abs(wording.estimate(m.judgement.change) or 0.0),
        ),
    )
    bounds = wording.bounds(most)
    if not bounds and (of_seeds := [each.change for each in most.pairs if each.change is not None]):
        bounds = f"({wording.within(most, min(of_seeds), max(of_seeds))} seed by seed)"
    words = verdict_counts(metric.judgement for metric in tested)
    parts = [f"{words}: {most.case} {read_name(most.name)} {wording.change(most)} {bounds}"]
    if since is not None:
        parts.append(f"since the last save {since_other(since, most.case, most.name)}")
    parts += [
        f"{row.name} {wording.signed(row.instructions.difference, 2)} instructions"
        for comparison in session.comparisons
        for own in comparison.headlines
        if (own.case, own.phase) == (most.case, most.phase)
        for row in own.functions[:1]
        if row.instructions.difference
    ]
    return "; ".join((*parts, counted(most.judgement.pairs, "seed")))


def since_other(pair: SessionPair, case: str, name: str) -> str:
    """The change of a metric of the patched arm since another session, or why there is none."""
    patched = pair.second.arms[-1].name
    if patched in pair.same_code:
        return "the same machine code"
    for metric in pair.metrics:
        change = metric.judgement and metric.judgement.change
        if change and (metric.arm, metric.case, metric.name) == (patched, case, name):
            bounds = None not in (change.low, change.high)
            interval = wording.between(change.low or 0.0, change.high or 0.0) if bounds else ""
            return f"{wording.percent(change.estimate)} {interval}".rstrip()
    return f"not comparable: {pair.obstacles[0]}" if pair.obstacles else "another workload"
