"""The comparison on one screen of Markdown: for a job's summary and a pull request's comment.

Both are rendered by GitHub, where Markdown alone is possible: a data URI and inline SVG are
taken out, a file of an artifact has no address, and a summary holds 1 MiB.  So the picture
is drawn with characters, and the figures are in the report that is uploaded beside.

What guests, hosts and mails say may be in any text.  A comment is read by people and by
machines that act on it, so nothing in it names a user, an issue or an address.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from analysis.model import MetricComparison
from analysis.verdict import CALLED
from experiment.spec import Thresholds
from reports import sentences, wording
from reports.document import Block, Code, Heading, Item, Listing, Paragraph
from reports.headline import headline
from reports.render import markdown
from reports.sections import answer
from reports.sections.view import View
from reports.sentences import of_finding

# Columns of the picture on either side of zero.
HALF = 24
# A step's summary may have 1 MiB; a comment 65,536 characters, and it is the smaller one.
MOST = 60_000
CUT = "\n\n(cut here; the whole report is in the artifacts)\n"
# Takes the meaning of "@name", "#1", "a/b#1", "http://" and "www." and changes no glyph.
BREAK = "\u2060"
ACTIVE = re.compile(r"(?<=[@#])(?=\w)|(?<=:)(?=//)|(?<=www)(?=\.)|(?<=GH-)(?=\d)", re.IGNORECASE)


def inert(text: str) -> str:
    """Text in which GitHub finds no user to notify, no issue to link and no address."""
    return ACTIVE.sub(BREAK, text)


def picture(primary: Sequence[MetricComparison], thresholds: Thresholds) -> list[str]:
    """Lines of text: each change with its interval on one axis in percent.

    The range within a metric's threshold is dotted.  A bound beyond the axis
    ends in an arrow.
    """
    changes = [metric.judgement.change for metric in primary]
    numbers = [change for change in changes if change is not None]
    if not numbers:
        return []
    bounds = [change.estimate for change in numbers]
    # What is called is whole; of what is not, an interval may be wide and say nothing.
    for metric in primary:
        if metric.judgement.verdict in CALLED and (change := metric.judgement.change):
            bounds += [end for end in (change.low, change.high) if end is not None]
    reach = 1.2 * max(2 * thresholds.change, *map(abs, bounds))
    width = max(len(metric.name) for metric in primary)
    lines = []
    for metric, change in zip(primary, changes, strict=True):
        cells = [" "] * (2 * HALF + 1)
        own = thresholds.of(metric.case, metric.name).change
        for at in range(_column(-own, reach), _column(own, reach) + 1):
            cells[at] = "·"
        cells[HALF] = "│"
        if change is not None:
            low = change.estimate if change.low is None else change.low
            high = change.estimate if change.high is None else change.high
            first, last = _column(low, reach), _column(high, reach)
            cells[first : last + 1] = ["─"] * (last + 1 - first)
            cells[first] = "◂" if low < -reach else "├" if first < last else "─"
            cells[last] = "▸" if high > reach else "┤" if first < last else "─"
            cells[_column(change.estimate, reach)] = "●"
        word = sentences.verdict(metric)
        lines.append(
            f"{metric.name:<{width}}  {''.join(cells)}  {sentences.MARKS.get(word, ' ')} "
            f"{wording.change(metric)} {sentences.judged(metric)}".rstrip()
        )
    ends = f"{-100 * reach:.2f} %", f"{100 * reach:+.2f} %"
    scale = f"{ends[0]:<{HALF}}0{ends[1]:>{HALF}}"
    return [*lines, f"{'':<{width}}  {scale}"]


def _column(fraction: float, reach: float) -> int:
    return HALF + round(HALF * min(max(fraction / reach, -1.0), 1.0))


def render(view: View, whole: str) -> str:
    """Return the summary, ending in a newline: verdicts, a picture, then the ``whole`` report.

    Of that as much as there is room for: nothing but the fold has to be closed where it is cut.
    """
    session = view.session
    experiment = session.manifest.experiment
    blocks: list[Block] = [Heading(experiment.title, 2), *answer.answer(view)]
    if headline(session).has_verdicts:
        for comparison in session.comparisons:
            name = session.name_of(comparison)
            chart = picture(comparison.primary, experiment.thresholds)
            blocks += [Paragraph(f"{name}:")] if name and chart else []
            blocks += [Code("\n".join(chart), "text")] if chart else []
    warnings = (finding for finding in session.findings if finding.level == "warning")
    items = tuple(Item(of_finding(f), f.level, f.scope) for f in warnings)
    blocks += [Listing(items)] if items else []
    head = inert("\n".join([*markdown.render(blocks), ""]))
    fold = f"<details><summary>The whole report</summary>\n\n{whole}\n</details>\n"
    text = f"{head}\n{inert(fold)}"
    return text if len(text) <= MOST else f"{head[:MOST]}{CUT}"
