"""What a wall session's host was like, and what its numbers mean: beside every verdict of it."""

from __future__ import annotations

from reports import verdict_words
from reports.document import Block, Item, Listing
from reports.model import Comparison
from reports.sections.view import View, titled
from reports.sentences import of_finding

VALUES = (
    "Values are geometric means over the blocks, with the spread between boots as ± standard "
    "deviation. A/A is base-again against base: the size of chance differences on this host."
)


def level(comparison: Comparison) -> float:
    """The level of all intervals of a wall session: at an early look a higher one."""
    levels = (metric.again.level for metric in comparison.primary if metric.again)
    return next(levels, 1 - comparison.manifest.experiment.thresholds.alpha)


def blocks(view: View) -> list[Block]:
    """A/A of everything that is judged, then what was found of the host; none in exact mode."""
    if view.first.wall is None:
        return []
    items = [Item(line, "note") for line in verdict_words.noise_lines(view.first)]
    items += [Item(of_finding(finding), finding.level) for finding in view.first.host_findings]
    return titled("This host", "host", [Listing(tuple(items))])
