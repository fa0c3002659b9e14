"""What the numbers mean, and what they do not."""

from __future__ import annotations

from collections.abc import Iterable

from reports.document import Block, Paragraph
from reports.sections.view import View, titled
from results.profile import PATH, WORK

EXACT = (
    "Exact mode: one guest instruction is one virtual nanosecond, so bandwidth is path length, and "
    "every rate says “virtual”. The same kernel, guest and seed give the same bits on any host "
    "under any load: the seeds show how much a result depends on the access pattern. Cache misses, "
    "NUMA latency and true parallelism are not seen, and no real machine's bandwidth is predicted."
)
REAL_TIME = "Wall mode: times are real and of this host, noise and all."
TRANSLATED = (
    "Wall mode without real CPUs: times are those of QEMU's translator, and say nothing of any "
    "machine."
)
DESIGN = (
    "Each boot is one sample; the change is the Hodges-Lehmann estimate over whole blocks. "
    "base-again is the base once more; what it differs by is noise."
)


PATH_AND_WORK = (
    "Bandwidth is path and work together. Work is what an I/O needed: I/Os, pages read, folios "
    "added and pages scanned, added up at costs that are the same for all kernels. Path is the "
    "instructions executed for 1,000 ns of that work."
)


def of_judged(names: Iterable[str]) -> str:
    """What path and work are, where a metric of these names is one; else empty."""
    return PATH_AND_WORK if {n.partition(".")[2] for n in names} & {PATH, WORK} else ""


def blocks(view: View) -> list[Block]:
    """One paragraph for each of the ways to measure, and one for path and work."""
    wall = view.first.wall
    text = EXACT if wall is None else f"{REAL_TIME if wall.real_time else TRANSLATED} {DESIGN}"
    more = of_judged(metric.name for metric in view.session.primary)
    body: list[Block] = [Paragraph(part, "note") for part in (text, more) if part]
    return titled("What these numbers mean", "meaning", body)
