"""Two sessions side by side for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.two_sessions import PairedMetric, SessionPair
from analysis.verdict import CALLED
from reports import verdict_words, wording
from reports.render.text import columns, wrapped
from results.record import Manifest
from text import clean_line

HEADS = ("metric", "mean 1", "median 1", "mean 2", "median 2", "change", "verdict")


def render(pair: SessionPair) -> str:
    """The whole comparison as text."""
    lines = [*_head("1", pair.first), *_head("2", pair.second), ""]
    if pair.obstacles:
        lines += ["Not comparable, so nothing is judged"]
        for text in pair.obstacles:
            lines += wrapped(text)
        lines += [""]
    lines += ["Different between them" if pair.differences else "Nothing differs between them"]
    for each in pair.differences:
        lines += wrapped(f"{each.name}: {each.first} -> {each.second}")
    for note in pair.notes:
        lines += wrapped(note)
    for arm in dict.fromkeys(metric.arm for metric in pair.metrics):
        same = ", the same machine code and settings" if arm in pair.same_code else ""
        lines += ["", clean_line(f"Arm {arm}{same}")]
        of_arm = [metric for metric in pair.metrics if metric.arm == arm]
        for case in dict.fromkeys(metric.case for metric in of_arm):
            lines += [clean_line(f"  {case}")]
            lines += _table([m for m in of_arm if m.case == case], judged=not pair.obstacles)
    return "\n".join(lines) + "\n"


def _head(number: str, manifest: Manifest) -> list[str]:
    subject = verdict_words.subject(manifest.experiment)
    return [
        clean_line(f"{number}  {manifest.session}, begun {manifest.created}"),
        *wrapped(subject, indent="   "),
    ]


def _table(metrics: Sequence[PairedMetric], *, judged: bool) -> list[str]:
    """The primary metrics of an arm; ``--json`` has the others."""
    primary = [metric for metric in metrics if metric.primary]
    if not primary:
        return ["  no primary metric is in both"]
    heads = HEADS if judged else HEADS[:-1]
    lines = columns([heads, *(_row(metric)[: len(heads)] for metric in primary)], left=(0, 6))
    for metric in primary:
        lines += wrapped(f"{metric.name}: {_evidence(metric)}", indent="    ")
    return lines


def _row(metric: PairedMetric) -> tuple[str, ...]:
    before = metric.first.mean if metric.first else None
    after = metric.second.mean if metric.second else None
    change = metric.judgement.change if metric.judgement else None
    estimate = after / before - 1 if before and after is not None else None
    return (
        f"{metric.name}, {metric.unit}",
        *(wording.figure(v) for v in (before, metric.first_median, after, metric.second_median)),
        wording.percent(change.estimate if change else estimate),
        str(metric.judgement.verdict) if metric.judgement else "",
    )


def _evidence(metric: PairedMetric) -> str:
    """Seeds, interval, and the reason of a verdict that says no change."""
    parts = [wording.seeds(metric.seeds)]
    judgement = metric.judgement
    change = judgement.change if judgement else None
    if change and change.low is not None and change.high is not None:
        within = wording.between(change.low, change.high)
        parts.append(f"{within} at {100 * change.level:g} %")
    if judgement and judgement.verdict not in CALLED:
        parts.append(judgement.reason)
    return ", ".join(parts)
