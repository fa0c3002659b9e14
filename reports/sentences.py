"""What is said of findings, verdicts, noise and what was compared: the one place, for all forms.

A finding is data (kind and values), and so is a verdict: what is said of them is the same wherever
they are shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from analysis import power
from analysis.explain.functions import Attribution
from analysis.many import ArmCell, SessionComparison
from analysis.model import Comparison, Finding, MetricComparison, Reference
from analysis.verdict import CALLED, PENDING, Judgement, Verdict
from experiment.spec import Experiment, KernelSpec
from reports import wording
from results.record import Manifest
from results.units import read_name
from text import counted, enumerated

# Seeds, blocks and functions that are named; more are a number.
NAMED, NAMED_BLOCKS, CHANGED_NAMED = 5, 6, 4
ONE_BUILD = (
    "each kernel is one build, and what its layout gives is in no interval: base against itself is "
    "one binary, and more blocks do not average it out"
)
# A path of the sender's: from the root, the home or the folder above.
LOCAL = re.compile(r"(?:^|(?<=[:=]))(?:~|\.\.)?/(?:[^@\s]*/)?([^/@\s]+)/?(?=@|$)")
ELSEWHERE = "PATH"
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
Values = Mapping[str, Any]


def elsewhere(text: str) -> str:
    """A place as it is named to others: of a path of the sender's the last name, below ``PATH``."""
    return LOCAL.sub(rf"{ELSEWHERE}/\1", text)


def upper_first(text: str) -> str:
    """A text as a sentence begins."""
    return f"{text[:1].upper()}{text[1:]}"


def of_finding(finding: Finding) -> str:
    """What a finding says; one line without a full stop."""
    return KINDS[finding.kind](finding.values)


def changed_words(tested: int, count: int, largest: Sequence[tuple[str, float]]) -> str:
    """``3 of 512 functions changed: xas_load -3.9, xas_start -1.2``; or that none did.

    ``largest`` are names and differences in instructions per unit of work, of some or all of the
    ``count`` that changed.  Empty where none was tested.
    """
    if not tested:
        return ""
    if not count:
        return f"no function changed, of {tested} tested"
    names = [f"{name} {wording.signed(apart, 2)}" for name, apart in largest[:CHANGED_NAMED]]
    rest = f" and {count - len(names)} more" if count > len(names) else ""
    return f"{count} of {tested} functions changed: {', '.join(names)}{rest}"


def changed(attribution: Attribution) -> str:
    """The functions of a phase that changed, as :func:`changed_words` has them."""
    largest = [(each.name, each.instructions.difference) for each in attribution.changed]
    return changed_words(attribution.tested, len(largest), largest)


def changed_per_unit(attribution: Attribution) -> str:
    """The same with what the numbers are of; empty where nothing was tested."""
    unit = f" instructions per {attribution.unit_title}" * bool(attribution.changed)
    return f"{changed(attribution)}{unit}"


def _seeds(values: Values) -> str:
    seeds = values["seeds"]
    text, rest = ", ".join(map(str, seeds[:NAMED])), ", ..." if len(seeds) > NAMED else ""
    return (
        f"arm {values['arm']}: different seeds gave bit-identical values ({text}{rest}); "
        "they count as one sample"
    )


def _failed_runs(values: Values) -> str:
    arms = ", ".join(f"{arm} {failed} of {runs}" for arm, failed, runs in values["arms"])
    kinds = "; ".join(f"{number} {kind}" for kind, number in values["kinds"].items())
    each = f" ({kinds})" if kinds else ""
    return f"failed runs: {arms}{each}; their {values['repeated']} are excluded on all arms"


def _executed(values: Values) -> str:
    executed, idle = values["executed"], values["not_executed"]
    if not executed:
        return (
            f"none of the changed functions was executed ({enumerated(idle)}): these workloads "
            "cannot show an effect of the series; choose others"
        )
    ran = sum(len(each["functions"]) for each in executed)
    named = [f"{enumerated(each['functions'])} in {', '.join(each['phases'])}" for each in executed]
    text = f"executed: {ran} of {ran + len(idle)} changed functions: {enumerated(named, '; ')}"
    return f"{text}; not executed: {enumerated(idle)}" if idle else text


def _accelerator(values: Values) -> str:
    name = values["accelerator"]
    if values["real_time"]:
        return f"guests ran on this host's CPUs ({name})"
    return (
        f"guests ran under {accelerator(name)}, an emulator: its time says nothing about hardware, "
        'so no verdict is given; measure with mode = "exact"'
    )


def accelerator(name: str) -> str:
    """What runs guests that no hardware does."""
    return "TCG" if name == "tcg" else name or "an unknown accelerator"


def _dropped(values: Values) -> str:
    blocks = values["blocks"]
    text = "; ".join(f"block {number}: {why}" for number, why in blocks[:NAMED_BLOCKS])
    rest = "; ..." if len(blocks) > NAMED_BLOCKS else ""
    what = "excluded"
    if values["kept"]:
        what = "would be excluded, but are shown because no verdict depends on them"
    return f"{values['case']}: {len(blocks)} of {values['of']} blocks {what} ({text}{rest})"


# What is on record as a text, of a mail, a build, or a run, is that text.
KINDS: Mapping[str, Callable[[Values], str]] = MappingProxyType(
    {
        "quick": lambda _: (
            "made with --quick: only the experiment's first case, without correctness checks and "
            "diagnostic runs"
        ),
        "exactness": lambda v: (
            f"{'' if v['status'] in ('not asked', 'inexact') else v['status'] + ': '}{v['detail']}"
        ),
        "kept-runs": lambda v: "; ".join(
            f"{arm}: {kept} of {of} runs reused from {days}, host {hosts}"
            if kept
            else f"{arm}: measured"
            for arm, kept, of, days, hosts in v["arms"]
        ),
        "qemu-untried": lambda v: f"{v['why']}; to check it: ./lab.py doctor --kernel TREE",
        "few-ios": lambda v: (
            f"phase {v['phase']}: only {v['ios']} I/Os in a run, too few for a verdict"
        ),
        "seeds-without-effect": _seeds,
        "failed-runs": _failed_runs,
        "not-finished": lambda v: (
            f"{v['recorded']} of {v['planned']} runs recorded; --resume finishes the session"
        ),
        "between-looks": lambda v: (
            f"stopped while {v['repeated']} were added: judged after {v['judged']} "
            f"{v['repeated']}, {v['planned']} were planned; --resume goes on"
        ),
        "checks-pending": lambda _: (
            "correctness checks are pending, and the verdict is withdrawn if one fails; to run "
            "them: ./lab.py run --resume SESSION"
        ),
        "same-code": lambda _: "the machine code of both arms is identical",
        "same-code-differs": lambda v: (
            f"the machine code is identical, but {v['differ']} of {v['of']} {v['repeated']} differ"
        ),
        "of-runs": lambda v: f"{v['text']} ({counted(v['runs'], 'run')})",
        "published": lambda v: f"{v['metric']}: {v['note']}",
        "diagnostic-failed": lambda v: (
            f"diagnostic run{'s' * (len(v['runs']) > 1)} failed: {', '.join(v['runs'])}: {v['why']}"
        ),
        "events-dropped": lambda v: (
            f"{v['case']}, phase {v['phase']}: {v['events']} trace events were lost, so waits are "
            "incomplete"
        ),
        "executed": _executed,
        "accelerator": _accelerator,
        "host-check": lambda v: f"{v['name']}: {v['found']} ({v['status']})",
        "one-build": lambda v: ONE_BUILD,
        "dropped-blocks": _dropped,
        **dict.fromkeys(
            ("not-known", "series", "origin", "build", "triage"), lambda v: str(v["text"])
        ),
    }
)


def titles(manifest: Manifest) -> str:
    """The titles of the series under test as they were posted; empty where none is known."""
    series = manifest.experiment.series
    posted = ", ".join(record.title for record in manifest.series if record.title)
    return (series.title if series else "") or posted


def title(manifest: Manifest) -> str:
    """What a report is called: a session of a series alone, which has no title, by the series'."""
    experiment, series = manifest.experiment, manifest.experiment.series
    if series is None or experiment.title != f"series {series.path}":
        return experiment.title
    return titles(manifest) or f"series {elsewhere(series.path)}"


def series_title(experiment: Experiment) -> str:
    """What is under test in few words: the series, or that there is none."""
    series = experiment.series
    return series.title or elsewhere(series.path) if series else "no series"


def posting(message_id: str) -> str:
    """The address of a mail at lore.kernel.org by its message-id; empty for none."""
    plain = message_id.strip().strip("<>")
    return f"{LORE}{quote(plain, safe='@+=')}/" if "@" in plain else ""


def _kernels(experiment: Experiment) -> list[KernelSpec]:
    return [arm.kernel or experiment.kernel for arm in experiment.all_arms]


def sources(experiment: Experiment) -> str:
    """Where the arms' kernels come from, each once; of those built here how they were built."""
    names = (
        elsewhere(kernel.source)
        if kernel.is_prebuilt
        else f"{elsewhere(kernel.source)}, flavour {kernel.configuration}"
        + (f", {kernel.built_for}" if kernel.built_for else "")
        for kernel in _kernels(experiment)
    )
    return "; ".join(dict.fromkeys(names))


def subject(experiment: Experiment) -> str:
    """What is compared: a series on its source, or kernels with each other."""
    kernels = dict.fromkeys(elsewhere(kernel.source) for kernel in _kernels(experiment))
    if experiment.series is None and len(kernels) > 1:
        return " against ".join(kernels)
    return f"{series_title(experiment)} on {elsewhere(experiment.kernel.source)}"


def verdict(metric: MetricComparison) -> str:
    """The verdict's word; for a secondary metric what stands out, or nothing."""
    judgement = metric.judgement
    if judgement.verdict is not None:
        return str(judgement.verdict)
    if not judgement.differs or judgement.change is None:
        return ""
    better = (judgement.change.estimate > 0) == (metric.direction == "higher")
    return "better" if better else "worse"


def cell_verdict(cell: ArmCell) -> str:
    """The same of an arm; empty for the base and where none was asked."""
    return verdict(cell.against) if cell.against else ""


def judged(metric: MetricComparison) -> str:
    """:func:`verdict`, of no change with what it is within: ``no change (< 0.5 %)``."""
    limit = metric.judgement.limit
    return f"{verdict(metric)}{f' (< {100 * limit:g} %)' if limit is not None else ''}"


def published(metric: MetricComparison) -> str:
    """``published +7.38 %`` for each published figure of the metric, joined by commas."""
    changes = ", ".join(map(wording.reference_change, metric.published))
    return f"published {changes}" if changes else ""


def means(metric: MetricComparison) -> str:
    """``259.019 -> 262.032``, of a metric that was measured."""
    both = (metric.base, metric.patched)
    return " -> ".join(wording.figure(each.mean if each else None) for each in both)


def samples(metric: MetricComparison) -> str:
    """``8 seeds``; in wall mode, where a seed is not what runs differ by, ``24 blocks``."""
    count = metric.base.n if metric.base else 0
    return counted(count, "seed" if metric.again is None else "block")


def reason(metric: MetricComparison) -> str:
    """Why, where the numbers do not say it themselves: not for improvement and regression.

    Of these only that correctness may take them back.
    """
    judgement = metric.judgement
    if judgement.verdict in CALLED:
        return PENDING if judgement.reason.endswith(PENDING) else ""
    return judgement.reason


def head(metric: MetricComparison) -> str:
    """The metric in one line: what changed by how much, and the verdict."""
    size = (wording.change(metric), wording.interval(metric), judged(metric))
    if metric.judgement.change is None:
        size = ("", "not measured", verdict(metric))
    return "  ".join(filter(None, (metric.case, read_name(metric.name), *size)))


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
    many, arms = len(session.comparisons), len(session.arms)
    if many == 1:
        return f"{session.arms[1].name} against {base}"
    if compare == "pairs":
        return f"all {many} pairs of {arms} arms"
    if compare == "steps":
        return f"each of {arms} arms against the one before, and the last against base"
    return f"{arms - 1} arms against {base}"


def family(session: SessionComparison) -> str:
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
    many = counted(again.pairs, "block")
    if both := wording.ends(again):
        bounds = wording.within(metric.unit, metric.base, *both)
        text = f"{text} {bounds} at {100 * again.level:.4g} % ({many})"
    else:
        text = f"{text} in {many}, too few for an interval"
    smallest = f"{100 * again.change:g} %"
    if again.differs:
        # How many blocks a steady host would need is no advice for one that is not.
        return f"{text}. That is significant: the host is too unstable for a verdict"
    if again.beyond:
        return f"{text}; more than {power.MOST_SEEDS} blocks needed to detect {smallest}"
    if again.needed is not None:
        return f"{text}; {again.needed} blocks needed to detect {smallest}"
    if again.pairs < power.FEWEST_AGAIN:
        return f"{text}; too few blocks to estimate how many would detect {smallest}"
    return text
