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
from kernels.configure import agreed, load_reasons
from kernels.git_range import WORK_TREE, commit_of, find_commit, head_of, work_tree_of
from kernels.intake import Taken, take_in
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

    Raises:
        UsageError, SeriesError, InfraError: as ``kernels.intake.take_in``.
    """
    spec = experiment.kernel.source
    place, ref = _repository(spec)
    where = {"checkout": checkout, "cache": cache}
    series = {
        name: known[name] if name in known else take_in(each, **where, repository=place)
        for name, each in series_of(experiment)
    }
    common = series[COMMON].spec if COMMON in series else None
    kernel = experiment.kernel
    if place:
        # A source that holds the series is no longer what the series was based on.
        records = series[COMMON].records if common and not common.reverse else ()
        base = records[0].base_commit if records else ""
        folder = _existing(spec, checkout, place)
        # The first series of a stack says where all of it begins.
        commit = ref or (base if base and find_commit(folder, base) else "")
        settled_source = f"git:{place}@{_commit(folder, commit, clean(spec))}"
        kernel = kernel.model_copy(update={"source": settled_source})
    elif kernel.is_prebuilt:
        kernel = prebuilt.settle(kernel, **where)
    if common and not common.title:
        titles = [each.title for each in series[COMMON].records]
        common = common.model_copy(update={"title": "; ".join(titles)})
    arms = tuple(
        arm.model_copy(
            update={
                "series": series[arm.name].spec if arm.series else None,
                "kernel": _settled(arm.kernel, checkout, cache) if arm.kernel else None,
            }
        )
        for arm in experiment.arms
    )
    settled = experiment.model_copy(update={"series": common, "kernel": kernel, "arms": arms})
    return Settled(_agreed(settled, checkout, cache), series)


def series_of(experiment: Experiment) -> list[tuple[str, SeriesSpec]]:
    """Every series of an experiment, by the name of its arm; ``COMMON`` is the experiment's own."""
    common = [(COMMON, experiment.series)] if experiment.series is not None else []
    return common + [(arm.name, arm.series) for arm in experiment.arms if arm.series is not None]


def _agreed(experiment: Experiment, checkout: Path, cache: Path) -> Experiment:
    """Arms of several releases, asked for the same of what the releases have to choose from."""
    built = [arm.kernel for arm in experiment.arms if arm.kernel and not arm.kernel.is_prebuilt]
    if len(built) < len(experiment.arms) and not experiment.kernel.is_prebuilt:
        built.append(experiment.kernel)
    sources = dict.fromkeys(kernel.source for kernel in built)
    if len(sources) < 2:
        return experiment
    every = (source.identify(each, checkout=checkout, cache=cache) for each in sources)
    releases = [source.release_of(each) for each in every]
    reasons = load_reasons(checkout)

    def with_common(kernel: KernelSpec) -> KernelSpec:
        parts = config.fragments(
            checkout, kernel.flavour, kernel.architecture, kernel.page_kib, experiment.mode,
            additions=kernel.additions,
        )  # fmt: skip
        common = agreed(config.parse(config.merge(parts)), releases, reasons)
        return kernel.model_copy(update={"config": {**common, **kernel.config}})

    if not all(releases):
        return experiment
    kernel = experiment.kernel
    return experiment.model_copy(
        update={
            "kernel": kernel if kernel.is_prebuilt else with_common(kernel),
            "arms": tuple(
                arm.model_copy(update={"kernel": with_common(arm.kernel)})
                if arm.kernel and not arm.kernel.is_prebuilt
                else arm
                for arm in experiment.arms
            ),
        }
    )


def _settled(kernel: KernelSpec, checkout: Path, cache: Path) -> KernelSpec:
    """The kernel of one arm, made definite; a repository without a ref is its HEAD."""
    if kernel.is_prebuilt:
        return prebuilt.settle(kernel, checkout=checkout, cache=cache)
    place, ref = _repository(kernel.source)
    if not place:
        return kernel
    commit = _commit(_existing(kernel.source, checkout, place), ref, clean(kernel.source))
    return kernel.model_copy(update={"source": f"git:{place}@{commit}"})


def _commit(folder: Path, ref: str, where: str) -> str:
    if ref == WORK_TREE:
        return work_tree_of(folder, where)
    return commit_of(folder, ref, where) if ref else head_of(folder, where)


def series_records(
    experiment: Experiment, records: Sequence[SeriesRecord], *, checkout: Path
) -> tuple[SeriesRecord, ...]:
    """The records of a settled experiment's series, with what is to be said of their base."""
    text = _about_base(experiment, records[0].base_commit, checkout) if records else ""
    if not text:
        return tuple(records)
    first = records[0].model_copy(update={"findings": (*records[0].findings, text)})
    return (first, *records[1:])


def _about_base(experiment: Experiment, base: str, checkout: Path) -> str:
    if not base or experiment.series is None or experiment.series.reverse:
        return ""
    spec = experiment.kernel.source
    place, ref = _repository(spec)
    if not place:
        return f"is based on commit {base[:12]}; cannot tell whether {spec} is that commit"
    folder = _existing(spec, checkout, place)
    if not find_commit(folder, base):
        return f"is based on commit {base[:12]}, not in the repository; built on {ref[:12]}"
    if find_commit(folder, base) != find_commit(folder, ref):
        return f"is based on commit {base[:12]}; built on {ref[:12]}"
    return ""


def _repository(spec: str) -> tuple[str, str]:
    """Path and ref of a git source; both empty for any other kind."""
    kind, _, name = spec.partition(":")
    if kind != "git":
        return "", ""
    place, at, ref = name.rpartition("@")
    return (place, ref) if at else (name, "")


def _existing(spec: str, checkout: Path, place: str) -> Path:
    folder = checkout / Path(place).expanduser()
    if not folder.is_dir():
        raise UsageError(
            f"no such folder: {clean(place)}",
            where=clean(spec),
            next_step="correct kernel.source",
        )
    return folder
