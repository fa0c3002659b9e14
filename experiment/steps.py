"""Patch by patch: a series as arms, and the search for the patch that moved a metric.  Pure.

Point ``k`` is the source with the first ``k`` patches: ``old`` (as at point 0), ``new`` (moved by
more than the threshold) or ``skip`` (does not build or boot).  As for ``git bisect``, once moved a
metric stays so; else one of the moves is found.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from errors import SpecError
from experiment.arms import ArmSpec, SeriesSpec
from experiment.spec import MOST_ARMS, Experiment

BASE = "base"
REVERTED = "revert: "


def step_arms(series: SeriesSpec, subjects: Sequence[str]) -> tuple[ArmSpec, ...]:
    """The N + 1 arms of a series whose N patches, in the order they apply, have ``subjects``.

    Arm 0 is without the series, arm N with all of it.  Where the source holds the series
    (``reverse``) the patches take it out: arm 0 has all of them, and forward patch ``k``
    is what undoing the patch ``N - k + 1`` gives.
    """
    total = len(subjects)
    digits = len(str(total))
    arms = [ArmSpec(name=BASE, label="without the series", patches=series.reverse)]
    for number in range(1, total + 1):
        applied = total - number if series.reverse else number
        arms.append(
            ArmSpec(
                name=f"patch-{number:0{digits}}",
                label=f"{number}: {_subject(series, subjects, number)}",
                patches=applied > 0,
                # All of them need no bound: the kernel is the plain experiment's.
                upto=applied if 0 < applied < total else None,
            )
        )
    return tuple(arms)


def _subject(series: SeriesSpec, subjects: Sequence[str], number: int) -> str:
    """What forward patch ``number`` does, in the words that there are."""
    if not series.reverse:
        return subjects[number - 1]
    shipped = len(subjects) - number + 1
    subject = subjects[shipped - 1]
    if series.revert:
        return subject.removeprefix(REVERTED)
    return f'undoes "{subject}" (patch {shipped} of {len(subjects)} removes it)'


def per_patch(experiment: Experiment, subjects: Sequence[str]) -> Experiment:
    """The same experiment with an arm for each prefix of its series, compared in steps.

    ``subjects`` are those of the patches in the order they apply.  Published figures are about the
    whole series, so they go to the last arm.  Raises SpecError: there is no series, the experiment
    has arms of its own, or the series has more patches than can be compared.
    """
    where = f"--per-patch: {experiment.name}"
    if experiment.series is None:
        raise SpecError([f"{where}: has no series; name an experiment that has one, or --series"])
    if experiment.arms:
        names = ", ".join(arm.name for arm in experiment.arms)
        raise SpecError([f"{where}: has arms of its own ({names}); leave them out of the file"])
    if len(subjects) >= MOST_ARMS:
        raise SpecError(
            [
                f"{where}: {len(subjects)} patches; at most {MOST_ARMS - 1} can be compared step "
                "by step; ./lab.py bisect finds one among any number"
            ]
        )
    arms = step_arms(experiment.series, subjects)
    cases = []
    for case in experiment.cases:
        figures = (each.model_copy(update={"arm": arms[-1].name}) for each in case.published)
        cases.append(case.model_copy(update={"published": tuple(figures)}))
    changed = {"arms": arms, "compare": "steps", "cases": tuple(cases)}
    # Through the model's own checks, which a plain copy would pass by.
    return Experiment.model_validate(dict(experiment) | changed)


State = Literal["old", "new", "skip"]

# sd of the log of iops or bandwidth under perturbations that mean nothing (another seed,
# another layout of the code), see docs/method.md; each side of a ratio has its own.
CHAOS = 0.0025
# Two-sided 1 %: how often a step that changes nothing may look like one that does.
QUANTILE = 2.5758
MOST_SEEDS = 32


@dataclass(frozen=True)
class Boundary:
    """The metric moves between points ``old`` and ``new``; those between cannot be tested."""

    old: int
    new: int

    @property
    def single(self) -> bool:
        """Whether it is one patch: that which leads to point ``new``."""
        return self.new == self.old + 1


def next_step(points: int, states: Mapping[int, State]) -> int | Boundary:
    """The point to be measured next, or what was found; ``points`` counts them, the first is 0.

    The first point must be known to be old, the last to be new.  Only what is known decides, so
    that a search that was stopped goes on where it was.  Raises ValueError: the ends are not known
    to differ.
    """
    old, new = 0, points - 1
    if points < 2 or states.get(old) != "old" or states.get(new) != "new":
        raise ValueError("a search begins with an old and ends with a new point")
    while True:
        between = [point for point in range(old + 1, new) if states.get(point) != "skip"]
        if not between:
            return Boundary(old, new)
        middle = min(between, key=lambda point: (abs(2 * point - old - new), point))
        state = states.get(middle)
        if state is None:
            return middle
        if state == "old":
            old = middle
        else:
            new = middle


def state_of(change: float, whole: float, threshold: float) -> State:
    """Whether a change (fraction, from point 0) is beyond the threshold the way ``whole`` is."""
    return "new" if abs(change) > threshold and (change > 0) == (whole > 0) else "old"


def seeds_for(threshold: float) -> int:
    """Seeds of a point (1 or more): one that changes nothing stays within it 99 times of 100.

    The mean of n ratios has the sd ``CHAOS * sqrt(2 / n)``.
    """
    return max(1, min(MOST_SEEDS, math.ceil(2 * (QUANTILE * CHAOS / threshold) ** 2)))


def can_decide(threshold: float, spread: float, seeds: int) -> bool:
    """Whether ratios with this measured sd, over so many seeds, keep within the threshold."""
    return QUANTILE * spread / math.sqrt(seeds) <= threshold


def threshold_of(text: str) -> float:
    """A fraction from ``0.5%`` or ``0.005``; SpecError: not between 0 and 100 %."""
    number, percent, rest = text.strip().partition("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = math.nan
    if rest or not 0 < value < 1:
        raise SpecError(
            [f"--threshold: found {text!r}; a share above 0 and below 1 is wanted: 0.5% or 0.005"]
        )
    return value
