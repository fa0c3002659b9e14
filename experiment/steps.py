"""Patch by patch: a series of N patches as N + 1 arms, each with one patch more.  Pure."""

from __future__ import annotations

from collections.abc import Sequence

from errors import SpecError
from experiment.arms import ArmSpec, SeriesSpec
from experiment.spec import MOST_ARMS, CaseSpec, Experiment

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
    return f'undoes "{subject}" (patch {shipped} of {len(subjects)} takes it out)'


def per_patch(experiment: Experiment, subjects: Sequence[str]) -> Experiment:
    """The same experiment with an arm for each prefix of its series, compared in steps.

    ``subjects`` are those of the patches in the order they apply.  Published figures are
    about the whole series, so they go to the last arm.

    Raises:
        SpecError: there is no series, the experiment has arms of its own, or the series
            has more patches than can be compared.
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
    changed = {
        "arms": arms,
        "compare": "steps",
        "cases": tuple(_published_of(case, arms[-1].name) for case in experiment.cases),
    }
    # Through the model's own checks, which a plain copy would pass by.
    return Experiment.model_validate(dict(experiment) | changed)


def _published_of(case: CaseSpec, arm: str) -> CaseSpec:
    published = tuple(figure.model_copy(update={"arm": arm}) for figure in case.published)
    return case.model_copy(update={"published": published})
