"""A session in the units of who reads it: instructions per read, or per operation.  Pure.

What is judged of a phase of I/Os is an index: instructions for a standard amount of work, which the
two arms need equally much of.  A reader counts in I/Os.  So the index is multiplied by the work
that one I/O needs on the session's base arm: base is its mean instructions per I/O, and patched
what an I/O of as much work takes.  One factor for both arms and all seeds moves no change, no
interval and no verdict.  What was counted per the same work is multiplied alike, so that a page
has one denominator.
"""

from __future__ import annotations

import functools
import re
from typing import Any, NamedTuple

from analysis.counts import OnePhase, Paired
from analysis.explain import Explained
from analysis.explain.functions import Attribution
from analysis.many import SessionComparison, of_comparisons
from analysis.model import Comparison, MetricComparison, Summary
from results.profile import PATH, PER_WORK, WORK
from results.record import Manifest, PhaseRecord, Record
from results.units import INSTRUCTIONS, read_name

IO = "io"
DIRECTIONS = re.compile(r"--rw=(?:rand)?(read|write)\b")
# Numbers of records that are per unit of work and no pair.
OF_WORK = frozenset({"difference", "size", "together"})
# Ratios, and what is each time: no unit of work is in them.
APART = frozenset({"ratios", "held_each", "saturation", "slow_share"})
# Most values of most fields.
PLAIN = (str, int, float, type(None))


class Operation(NamedTuple):
    """What one phase is read per.

    ``title`` is one ``read``; ``was`` are the titles of units that are called so instead, by the
    factor that their counts are multiplied by.
    """

    title: str
    factor: float
    was: dict[str, float]


NOWHERE = Operation("", 1.0, {})


def operations(session: SessionComparison) -> dict[tuple[str, str], Operation]:
    """By case and phase what an operation is there, of the phases that have a path or I/Os."""
    work = {
        (row.case, row.phase): row.base.summary.mean
        for row in session.rows
        if row.short == WORK and row.base.summary is not None
    }
    return {
        (case.name, phase.name): operation_of(phase, work.get((case.name, phase.name)))
        for case in session.cases
        for phase in case.phases
    }


def operation_of(phase: PhaseRecord, work: float | None) -> Operation:
    """What a phase is read per; ``work`` is what each needs on the base arm in ns, if known."""
    titles = {unit.name: unit.title for unit in phase.units}
    direction = DIRECTIONS.search(phase.command)
    title = direction[1] if direction else titles.get(IO, "operation")
    if WORK not in titles:
        # A program's operation has a name of its own.
        title = title if IO in titles or direction else next(iter(titles.values()), title)
        return Operation(title, 1.0, {titles[IO]: 1.0} if IO in titles else {})
    if work is None:
        return Operation(titles[WORK], 1.0, {})
    return Operation(title, work / PER_WORK, {titles[WORK]: work / PER_WORK})


def per_operation(session: SessionComparison) -> SessionComparison:
    """The session with instructions per read, or per operation, in place of indices."""
    of_phase = operations(session)
    compared = [_comparison(each, of_phase) for each in session.comparisons]
    shown = of_comparisons(_manifest(session.manifest), compared)
    return shown.model_copy(update={"timed": session.timed})


def _manifest(manifest: Manifest) -> Manifest:
    """The head with the thresholds of metrics under the names that these have here."""
    thresholds = manifest.experiment.thresholds
    own = {read_name(name): change for name, change in thresholds.metrics.items()}
    thresholds = thresholds.model_copy(update={"metrics": own})
    experiment = manifest.experiment.model_copy(update={"thresholds": thresholds})
    return manifest.model_copy(update={"experiment": experiment})


def _comparison(comparison: Comparison, of_phase: dict[tuple[str, str], Operation]) -> Comparison:
    def shown(name: str) -> tuple[Record, ...]:
        kept = []
        for each in comparison.explained.get(name, ()):
            at = (each.case, each.phase) if isinstance(each, OnePhase) else ("", "")
            operation = of_phase.get(at, NOWHERE)
            # What is per I/O is given once, at equal work.
            if isinstance(each, Attribution) and each.unit == IO and operation.factor != 1.0:
                continue
            factor = operation.was.get(getattr(each, "unit_title", ""))
            if factor is not None:
                whole = each if factor == 1.0 else _scaled(each, factor)
                each = whole.model_copy(update={"unit_title": operation.title})
            kept.append(each)
        return tuple(kept)

    read = comparison.with_metrics(lambda each: _metric(each, of_phase[each.case, each.phase]))
    update = {"manifest": _manifest(comparison.manifest), "explained": Explained(shown)}
    return read.model_copy(update=update)


def _metric(metric: MetricComparison, operation: Operation) -> MetricComparison:
    short = metric.name.rpartition(".")[2]
    if short == WORK:
        title = f"{metric.phase}: work per {operation.title}, at fixed costs"
        return metric.model_copy(update={"title": title})
    if short != PATH:
        return metric
    pairs = (
        pair.model_copy(
            update={name: operation.factor * getattr(pair, name) for name in ("base", "patched")}
        )
        for pair in metric.pairs
    )
    return metric.model_copy(
        update={
            "name": read_name(metric.name),
            "title": f"{metric.phase}: instructions per {operation.title}, at equal work",
            "unit": f"{INSTRUCTIONS} per {operation.title}",
            "base": _summary(metric.base, operation.factor),
            "patched": _summary(metric.patched, operation.factor),
            "pairs": tuple(pairs),
        }
    )


def _summary(summary: Summary | None, factor: float) -> Summary | None:
    if summary is None:
        return None
    scaled = {name: factor * getattr(summary, name) for name in ("mean", "minimum", "maximum")}
    return summary.model_copy(update=scaled)


def _scaled(value: Any, factor: float) -> Any:
    """A value with all that is per the unit of work multiplied."""
    if isinstance(value, Paired):
        return value.times(factor)
    if isinstance(value, tuple):
        return tuple(_scaled(each, factor) for each in value)
    if isinstance(value, dict):
        return {key: _scaled(each, factor) for key, each in value.items()}
    if not isinstance(value, Record):
        return value
    of_work, others = _fields(type(value))
    update = {name: factor * getattr(value, name) for name in of_work}
    update |= {
        name: _scaled(each, factor)
        for name in others
        for each in [getattr(value, name)]
        if not isinstance(each, PLAIN)
    }
    return value.model_copy(update=update)


@functools.cache
def _fields(kind: type[Record]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Fields that are numbers per the unit of work, and those that may have such numbers."""
    names = [name for name in kind.model_fields if name not in APART]
    of_work = [name for name in names if name in OF_WORK]
    return tuple(of_work), tuple(name for name in names if name not in OF_WORK)
