"""What is said of a wall session's host, course and noise: the one place, so that forms agree."""

from __future__ import annotations

from reports import power, wording
from reports.model import Comparison, MetricComparison
from reports.wall_model import WallFacts
from reports.wall_statistics import FEWEST_AGAIN

VALUES = (
    "Values are geometric means over the blocks, with the spread between boots as ± standard "
    "deviation. A/A is base-again against base: what chance shows on this host."
)
REAL_TIME = "Wall mode: times are real and of this host, noise and all."
TRANSLATED = "Wall mode under TCG: times are those of a translator, and say nothing of any machine."
DESIGN = (
    "Each boot is one sample; the change is the Hodges-Lehmann estimate over whole blocks. "
    "base-again is the base once more; what it differs by is noise."
)


def again(metric: MetricComparison) -> str:
    """What A/A says of this host, and how many blocks would see the threshold on it."""
    return "" if metric.again is None else f"A/A on this host: {noise(metric)}"


def noise(metric: MetricComparison) -> str:
    """``base against itself differs by +0.12 % [-0.30, +0.41] at 99 % (24 blocks), so ...``."""
    seen = metric.again
    if seen is None or not seen.pairs:
        return "no block in which every arm ran"
    if seen.estimate is None:
        return "a value is zero or no number, so there is no ratio"
    said = f"base against itself differs by {size(metric)}"
    blocks = wording.blocks(seen.pairs)
    if seen.low is None or seen.high is None:
        said = f"{said} in {blocks}, too few for an interval"
    else:
        between = wording.within(metric, seen.low, seen.high)
        said = f"{said} {between} at {100 * seen.level:.4g} % ({blocks})"
    smallest = f"{100 * seen.change:g} %"
    if seen.differs:
        # How many blocks a steady host would need is no advice for one that is not.
        return f"{said}. The host is not steady: nothing can be said"
    if seen.beyond:
        said = f"{said}, so more than {power.MOST_BLOCKS} blocks would be needed to see {smallest}"
    elif seen.needed is not None:
        said = f"{said}, so {seen.needed} blocks would be needed to see {smallest}"
    elif seen.pairs < FEWEST_AGAIN:
        said = f"{said}; from {FEWEST_AGAIN} blocks on it tells how many would see {smallest}"
    return said


def meaning(facts: WallFacts) -> str:
    """What the numbers of the session are."""
    return f"{REAL_TIME if facts.real_time else TRANSLATED} {DESIGN}"


def size(metric: MetricComparison) -> str:
    """What base differs by from itself, as changes are said; a dash where that is not known."""
    estimate = metric.again.estimate if metric.again else None
    if wording.is_share(metric.unit) and metric.base and estimate is not None:
        return wording.points(metric.base.mean * estimate)
    return wording.percent(estimate)


def level(comparison: Comparison) -> float:
    """The level of all intervals of a wall session: at an early look a higher one."""
    found = (metric.again.level for metric in comparison.primary if metric.again)
    return next(found, 1 - comparison.manifest.experiment.thresholds.alpha)


def noise_lines(comparison: Comparison) -> list[str]:
    """One line a primary metric; none in exact mode."""
    return [
        f"A/A on this host, {metric.case} {metric.name}: {noise(metric)}"
        for metric in comparison.primary
        if metric.again is not None
    ]


def withheld(comparison: Comparison, metric: MetricComparison) -> bool:
    """Whether nothing at all is claimed of a metric, not even a size."""
    if comparison.wall is None:
        return False
    seen = comparison.wall
    differs = metric.again is not None and metric.again.differs
    return differs or seen.unfinished or not seen.real_time
