"""The patches of a session, in its own folder: what it can be finished and repeated from.

``series/common/`` are those of the experiment, ``series/arm-NAME/`` those of one arm.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from experiment.spec import Experiment, SeriesSpec
from kernels.intake import adopt, copy_out
from runs.options import Options

SERIES = "series"
COMMON = "common"


def copy_series(experiment: Experiment, folder: Path, options: Options) -> None:
    """Copy every patch of a settled experiment into its session's ``folder``.

    Raises:
        UsageError, SeriesError, InfraError: as ``kernels.intake.keep``.
    """
    for name, series in series_of(experiment):
        place = folder / SERIES / name
        copy_out(series, place, checkout=options.checkout, cache=options.cache)


def with_series_of(experiment: Experiment, folder: Path, options: Options) -> Experiment:
    """The same experiment, its patches taken from a session's folder as far as it has them.

    Raises:
        SeriesError: they are not the patches that the experiment names.
    """
    adopted = {
        name: adopt(series, folder / SERIES / name, cache=options.cache)
        for name, series in series_of(experiment)
        if (folder / SERIES / name).is_dir()
    }
    arms = tuple(
        arm.model_copy(update={"series": adopted.get(_of_arm(arm.name), arm.series)})
        for arm in experiment.arms
    )
    series = adopted.get(COMMON, experiment.series)
    return experiment.model_copy(update={"series": series, "arms": arms})


def series_of(experiment: Experiment) -> Iterator[tuple[str, SeriesSpec]]:
    """Every series of an experiment, by the name of its folder."""
    if experiment.series is not None:
        yield COMMON, experiment.series
    for arm in experiment.arms:
        if arm.series is not None:
            yield _of_arm(arm.name), arm.series


def _of_arm(name: str) -> str:
    # No arm can be mistaken for what is common to all.
    return f"arm-{name}"
