"""What is said of verdicts, of what was compared and of the noise: the one place, for all forms."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

from analysis import wall_power
from analysis.by_arm import ArmCell
from analysis.many import SessionComparison
from analysis.model import Comparison, MetricComparison, Reference
from analysis.verdict import CALLED, PENDING, Judgement, Verdict
from analysis.wall_power import FEWEST_AGAIN
from experiment.spec import Experiment, KernelSpec
from reports import wording
from results.record import Manifest

LORE = "https://lore.kernel.org/r/"
# Beside every verdict, for the eye; the word stands beside it.
MARKS = {
    "improvement": "▲",
    "regression": "▼",
    "no change": "=",
    "inconclusive": "?",
    "not judged": "?",
    "not finished": "…",
    "failed": "✕",
    "not tested": "⊘",
    "unexplained": "!",
}
# In the order a reader wants to hear of them.
PLURALS = {
    Verdict.REGRESSION: "regressions",
    Verdict.FAILED: "failed",
    Verdict.NOT_FINISHED: "not finished",
    Verdict.NOT_TESTED: "not tested",
    Verdict.IMPROVEMENT: "improvements",
    Verdict.NO_CHANGE: "unchanged",
    Verdict.UNEXPLAINED: "unexplained",
    Verdict.INCONCLUSIVE: "inconclusive",
    Verdict.NOT_JUDGED: "not judged",
}


def series_title(experiment: Experiment) -> str:
    """What is under test in few words: the series, or that there is none."""
    series = experiment.series
    return series.title or series.path if series else "no series"


def titles(manifest: Manifest) -> str:
    """The titles of the series under test as they were posted; empty where none is known."""
    series = manifest.experiment.series
    posted = ", ".join(record.title for record in manifest.series if record.title)
    return (series.title if series else "") or posted


def title(manifest: Manifest) -> str:
    """What a report is called: a session of a series alone, which has no title, by the series'."""
    experiment = manifest.experiment
    unnamed = experiment.series and experiment.title == f"series {experiment.series.path}"
    return titles(manifest) or experiment.title if unnamed else experiment.title


def posting(message_id: str) -> str:
    """The address of a mail at lore.kernel.org by its message-id; empty for none."""
    plain = message_id.strip().strip("<>")
    return f"{LORE}{quote(plain, safe='@+=')}/" if "@" in plain else ""


def sources(experiment: Experiment) -> str:
    """Where the arms' kernels come from, each once, with the flavour of those built here."""
    kernels = [arm.kernel or experiment.kernel for arm in experiment.all_arms]
    names = [built_as(kernel) for kernel in kernels]
    return "; ".join(dict.fromkeys(names))


def built_as(kernel: KernelSpec) -> str:
    """Where a kernel comes from; its flavour, and what it is built for, where it was built here."""
    if kernel.is_prebuilt:
        return kernel.source
    built_for = [kernel.built_for] if kernel.built_for else []
    return ", ".join([kernel.source, f"flavour {kernel.configuration}", *built_for])


def subject(experiment: Experiment) -> str:
    """What is compared: a series on its source, or kernels with each other."""
    kernels = [(arm.kernel or experiment.kernel).source for arm in experiment.all_arms]
    if experiment.series is None and len(set(kernels)) > 1:
        return " against ".join(dict.fromkeys(kernels))
    return f"{series_title(experiment)} on {experiment.kernel.source}"


def verdict(metric: MetricComparison) -> str:
    """The verdict's word; for a secondary metric what stands out, or nothing."""
    judgement = metric.judgement
    if judgement.verdict is not None:
        return str(judgement.verdict)
    if not judgement.differs or judgement.change is None:
        return ""
    better = (judgement.change.estimate > 0) == (metric.direction == "higher")
    return "better" if better else "worse"


def judged(metric: MetricComparison) -> str:
    """:func:`verdict`, of no change with what it is within: ``no change (< 0.5 %)``."""
    limit = metric.judgement.limit
    return f"{verdict(metric)}{f' (< {100 * limit:g} %)' if limit is not None else ''}"


def published(metric: MetricComparison) -> str:
    """``published +7.38 %`` for each published figure of the metric, joined by commas."""
    changes = ", ".join(map(wording.reference_change, metric.published))
    return f"published {changes}" if changes else ""


def values(metric: MetricComparison) -> str:
    """``259.019 -> 262.032 virtual MiB/s, 8 seeds``; empty where nothing was measured."""
    if metric.base is None or metric.patched is None:
        return ""
    both = f"{wording.figure(metric.base.mean)} -> {wording.figure(metric.patched.mean)}"
    return f"{both}{wording.after(metric.unit)}, {samples(metric)}"


def samples(metric: MetricComparison) -> str:
    """``8 seeds``; in wall mode, where a seed is not what runs differ by, ``24 blocks``."""
    count = metric.base.n if metric.base else 0
    return wording.seeds(count) if metric.again is None else wording.blocks(count)


def reason(metric: MetricComparison) -> str:
    """Why, where the numbers do not say it themselves: not for improvement and regression.

    Of these only that correctness may take them back.
    """
    judgement = metric.judgement
    if judgement.verdict in CALLED:
        return PENDING if judgement.reason.endswith(PENDING) else ""
    return judgement.reason


def head(metric: MetricComparison) -> str:
    """First half of the sentence: what changed by how much, and the verdict."""
    size = (wording.change(metric), wording.interval(metric), judged(metric))
    if metric.judgement.change is None:
        size = ("", "not measured", verdict(metric))
    return "  ".join(filter(None, (metric.case, metric.name, *size)))


def tail(metric: MetricComparison) -> str:
    """Second half: reason, values, number of seeds, the published change."""
    text = "; ".join(part for part in (reason(metric), values(metric)) if part)
    reference = published(metric)
    return f"{text} ({reference})" if text and reference else text or reference


def sentence(metric: MetricComparison) -> str:
    """The metric in one line a tired maintainer understands."""
    rest = tail(metric)
    return f"{head(metric)}   {rest}" if rest else head(metric)


def verdict_counts(judgements: Iterable[Judgement]) -> str:
    """``1 regression, 2 unchanged (within 0.25 and 5 %)``; empty for no verdict."""
    by_verdict: dict[Verdict | None, list[Judgement]] = {}
    for judgement in judgements:
        by_verdict.setdefault(judgement.verdict, []).append(judgement)
    return ", ".join(
        f"{len(alike)} {plural if len(alike) > 1 or verdict is Verdict.NO_CHANGE else verdict}"
        f"{limits(alike)}"
        for verdict, plural in PLURALS.items()
        if (alike := by_verdict.get(verdict))
    )


def limits(judgements: Iterable[Judgement]) -> str:
    """What unchanged metrics are within, each limit once: `` (within 0.25, 0.5 and 5 %)``."""
    numbers = sorted({each.limit for each in judgements if each.limit is not None})
    *others, last = [f"{100 * number:g}" for number in numbers] or [""]
    return f" (within {' and '.join(filter(None, (', '.join(others), last)))} %)" if last else ""


def against(session: SessionComparison) -> str:
    """What is compared with what."""
    compare, base = session.manifest.experiment.compare, session.manifest.base
    many = len(session.comparisons)
    if many == 1:
        return f"{session.arms[1].name} against {base}"
    if compare == "pairs":
        return f"all {many} pairs of {len(session.arms)} arms"
    if compare == "steps":
        return f"each of {len(session.arms)} arms against the one before, and the last against base"
    return f"{len(session.arms) - 1} arms against {base}"


def family(session: Comparison | SessionComparison) -> str:
    """How many comparisons the p values are corrected for: all of the session are one family."""
    many = len(session.primary)
    if many == 1:
        return "1 comparison, so p values need no correction"
    return f"{many} comparisons; their p values are Holm-corrected"


def pair_counts(comparison: Comparison) -> str:
    """``1 regression, 2 unchanged``: one pair's verdicts in few words."""
    if not comparison.measured and comparison.count(Verdict.FAILED) == len(comparison.primary):
        return "not measured"
    return verdict_counts(metric.judgement for metric in comparison.primary) or "nothing judged"


def cell_verdict(cell: ArmCell) -> str:
    """The verdict's word, or what stands out; empty for the base and where none was asked."""
    return verdict(cell.against) if cell.against else ""


def references(session: SessionComparison) -> tuple[tuple[str, Reference], ...]:
    """Every published figure with the arm it is of, once."""
    lines = [
        (comparison.manifest.patched, reference)
        for comparison in session.comparisons
        if comparison.manifest.base == session.manifest.base
        for reference in comparison.published
    ]
    return tuple(dict.fromkeys(lines))


def noise(metric: MetricComparison) -> str:
    """``base against itself differs by +0.12 % [-0.30, +0.41] at 99 % (24 blocks), so ...``."""
    again = metric.again
    if again is None or not again.pairs:
        return "no block has results of every arm"
    if again.estimate is None:
        return "no ratio: a value is zero or not a number"
    text = f"base against itself differs by {wording.again_size(metric)}"
    many = wording.blocks(again.pairs)
    if again.low is None or again.high is None:
        text = f"{text} in {many}, too few for an interval"
    else:
        bounds = wording.within(metric, again.low, again.high)
        text = f"{text} {bounds} at {100 * again.level:.4g} % ({many})"
    smallest = f"{100 * again.change:g} %"
    if again.differs:
        # How many blocks a steady host would need is no advice for one that is not.
        return f"{text}. That is significant: the host is too unstable for a verdict"
    if again.beyond:
        return f"{text}; more than {wall_power.MOST_BLOCKS} blocks needed to detect {smallest}"
    if again.needed is not None:
        return f"{text}; {again.needed} blocks needed to detect {smallest}"
    if again.pairs < FEWEST_AGAIN:
        return f"{text}; too few blocks to estimate how many would detect {smallest}"
    return text


def noise_lines(comparison: Comparison) -> list[str]:
    """One line a primary metric; none in exact mode."""
    return [
        f"A/A on this host, {metric.case} {metric.name}: {noise(metric)}"
        for metric in comparison.primary
        if metric.again is not None
    ]
