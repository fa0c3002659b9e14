"""An experiment made definite: its series taken in, its source a commit.

What a user may leave open (which commit a series is based on, which repository a bare
range belongs to) is decided here, once, and written into the experiment, so that the
session can be finished and repeated as it was begun.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from errors import UsageError
from experiment.spec import Experiment, KernelSpec, SeriesSpec
from kernels import config, prebuilt, source
from kernels.config import agreed, load_reasons
from kernels.git_range import find_commit, settled_commit
from kernels.intake import Taken, take_in
from kernels.source import OTHER
from results.record import SeriesRecord
from text import clean

# Its name among the series of an experiment; the others are called by their arms.
COMMON = ""


class Settled(NamedTuple):
    """A definite experiment, and its series by arm as they were taken in; ``COMMON`` is its own."""

    experiment: Experiment
    series: Mapping[str, Taken]


def settle(
    experiment: Experiment,
    *,
    checkout: Path,
    cache: Path,
    known: Mapping[str, Taken] = MappingProxyType({}),
) -> Settled:
    """Take the series in, and choose a commit where the source is a repository.

    ``known`` are series of the same experiment that are taken in already.  ``git:PATH`` without a
    ref is the series' base-commit if the repository has it, else HEAD, if nothing is changed and
    not committed; ``git:PATH@WORKTREE`` is HEAD with these changes, ``git:PATH@REF`` what it says.
    All become a commit's full name.  A prebuilt package is the newest version, unless one is
    named; it becomes that version.
    Raises UsageError, SeriesError, InfraError as ``kernels.intake.take_in``.
    """

    def definite(kernel: KernelSpec, base: str = "") -> KernelSpec:
        if kernel.is_prebuilt:
            return prebuilt.settle(kernel, checkout=checkout, cache=cache)
        place, ref, folder = _repository(kernel.source, checkout)
        if not place:
            return kernel
        ref = ref or (base if base and find_commit(folder, base) else "")
        commit = settled_commit(folder, ref, clean(kernel.source))
        return kernel.model_copy(update={"source": f"git:{place}@{commit}"})

    place = _repository(experiment.kernel.source, checkout)[0]
    series = {
        name: known.get(name) or take_in(each, checkout=checkout, cache=cache, repository=place)
        for name, each in series_of(experiment)
    }
    common, base = None, ""
    if COMMON in series:
        common, records = series[COMMON].spec, series[COMMON].records
        # The first series of a stack says where all of it begins; but a source that holds the
        # series is no longer what it was based on.
        base = records[0].base_commit if records and not common.reverse else ""
        title = common.title or "; ".join(record.title for record in records)
        common = common.model_copy(update={"title": title})
    arms = tuple(
        arm.model_copy(
            update={
                "series": series[arm.name].spec if arm.series else None,
                "kernel": definite(arm.kernel) if arm.kernel else None,
            }
        )
        for arm in experiment.arms
    )
    kernel = definite(experiment.kernel, base)
    settled = experiment.model_copy(update={"series": common, "kernel": kernel, "arms": arms})
    return Settled(_agreed(settled, checkout), series)


def series_of(experiment: Experiment) -> list[tuple[str, SeriesSpec]]:
    """Every series of an experiment, by the name of its arm; ``COMMON`` is the experiment's own."""
    named = [(COMMON, experiment.series), *((arm.name, arm.series) for arm in experiment.arms)]
    return [(name, series) for name, series in named if series is not None]


def _agreed(experiment: Experiment, checkout: Path) -> Experiment:
    """Arms of several releases, asked for the same of what the releases have to choose from."""
    kernels = [arm.kernel or experiment.kernel for arm in experiment.arms] or [experiment.kernel]
    sources = dict.fromkeys(kernel.source for kernel in kernels if not kernel.is_prebuilt)
    if len(sources) < 2:
        return experiment
    releases = [source.release_of(each, checkout) for each in sources]
    if not all(releases):
        return experiment
    reasons = load_reasons(checkout)

    def with_common(kernel: KernelSpec | None) -> KernelSpec | None:
        if kernel is None or kernel.is_prebuilt:
            return kernel
        own = kernel.model_copy(update={"mode": experiment.mode})
        parts = config.fragments(checkout, own)
        common = agreed(config.parse(config.merge(parts)), releases, reasons)
        return kernel.model_copy(update={"config": {**common, **kernel.config}})

    arms = tuple(
        arm.model_copy(update={"kernel": with_common(arm.kernel)}) for arm in experiment.arms
    )
    kernel = with_common(experiment.kernel)
    return experiment.model_copy(update={"kernel": kernel, "arms": arms})


def series_records(
    experiment: Experiment, records: Sequence[SeriesRecord], *, checkout: Path
) -> tuple[SeriesRecord, ...]:
    """The records of a settled experiment's series, with what is to be said of their base."""
    base = records[0].base_commit if records else ""
    if not base or experiment.series is None or experiment.series.reverse:
        return tuple(records)
    spec = experiment.kernel.source
    place, ref, folder = _repository(spec, checkout)
    if not place:
        built = f"; cannot tell whether {spec} is that commit"
    elif not (commit := find_commit(folder, base)):
        built = f", not in the repository; built on {ref[:12]}"
    elif commit != find_commit(folder, ref):
        built = f"; built on {ref[:12]}"
    else:
        return tuple(records)
    findings = (*records[0].findings, f"is based on commit {base[:12]}{built}")
    return (records[0].model_copy(update={"findings": findings}), *records[1:])


def _repository(spec: str, checkout: Path) -> tuple[str, str, Path]:
    """Path, ref (both empty but for git) and folder of a source; UsageError: no such folder."""
    kind, _, name = spec.partition(":")
    if kind != "git":
        return "", "", checkout
    place, at, ref = name.rpartition("@")
    place, ref = (place, ref) if at else (name, "")
    folder = checkout / Path(place).expanduser()
    if not folder.is_dir():
        what, step = f"no such folder: {clean(place)}", OTHER
        raise UsageError(what, where=clean(spec), next_step=step)
    return place, ref, folder
