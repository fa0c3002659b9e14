"""What the command line asks, made an experiment that says everything."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from errors import UsageError
from experiment.ad_hoc import choose, from_here, from_kernels, from_series
from experiment.load import Catalogue, known_experiments, load_experiment
from experiment.spec import CheckSpec, Experiment
from experiment.steps import per_patch
from kernels.intake import records_of
from kernels.settle import settle
from results.record import QUICK
from runs.requirements import require_supported


@dataclass(frozen=True)
class Question:
    """An experiment by name, or a series or kernels with how to measure them, or nothing.

    ``workloads`` are names, separated by commas; ``automatic`` chooses them by the
    files of the series.  ``per_patch`` makes an arm of each prefix of the series; twins
    are then left out unless asked for.  ``check`` asks for the gate or leaves it out, None
    keeps what the experiment says.  ``quick`` leaves the first case alone, without gate and
    twins.
    """

    name: str = ""
    overrides: tuple[str, ...] = ()
    mode: str = ""
    twins: bool | None = None
    series: tuple[str, ...] = ()
    source: str = ""
    workloads: str = ""
    automatic: bool = False
    reverse: bool = False
    per_patch: bool = False
    check: bool | None = None
    arms: tuple[str, ...] = ()
    quick: bool = False

    @property
    def named_workloads(self) -> tuple[str, ...]:
        """The names in ``workloads``."""
        return tuple(name.strip() for name in self.workloads.split(",") if name.strip())

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all is asked."""
        return not (self.name or self.recorded or self.by_series or self.per_patch)

    @property
    def with_twins(self) -> bool:
        """Whether the experiment's twins are run, too."""
        return not self.per_patch if self.twins is None else self.twins

    @property
    def all_overrides(self) -> tuple[str, ...]:
        """The overrides, with those that ``mode`` stands for.

        A wall guest counts real seconds, so it has a profile of its own.
        """
        guest = ("guest=wall",) if self.mode == "wall" else ()
        return (*guest, *self.overrides, f"mode={self.mode}") if self.mode else self.overrides

    @property
    def recorded(self) -> tuple[str, ...]:
        """What a session keeps of what was changed in its experiment."""
        return (*self.all_overrides, *([QUICK] if self.quick else []))

    @property
    def by_series(self) -> bool:
        """Whether anything is said that needs no experiment file."""
        return bool(self.arms or self.workloads or self.of_series)

    @property
    def of_series(self) -> bool:
        """Whether anything is said that is about a series only."""
        return bool(self.series or self.source or self.automatic or self.reverse)


def arguments(question: Question, *, here: Path, checkout: Path) -> tuple[str, ...]:
    """The arguments with which ``./lab.py run`` asks the same in the checkout.

    ``here`` is where the user is: what is there is named by its whole path.
    """

    def placed(name: str) -> str:
        return from_here(name, here=here, checkout=checkout)

    by_file = question.name.endswith(".toml")
    values = [
        *(("--series", placed(name)) for name in question.series),
        ("--source", placed(question.source) if question.source else ""),
        *(("--arm", placed(name)) for name in question.arms),
        ("--workloads", question.workloads),
        *(("--set", override) for override in question.overrides),
        ("--mode", question.mode),
    ]
    flags = {
        "--auto": question.automatic,
        "--reverse": question.reverse,
        "--per-patch": question.per_patch,
        "--twins": question.twins is True,
        "--no-twins": question.twins is False,
        "--check": question.check is True,
        "--no-check": question.check is False,
        "--quick": question.quick,
    }
    name = placed(question.name) if by_file else question.name
    return (
        *([name] if name else []),
        *(word for option, value in values if value for word in (option, value)),
        *(flag for flag, given in flags.items() if given),
    )


def experiment_of(
    question: Question, *, checkout: Path, cache: Path, here: Path, catalogue: Catalogue
) -> Experiment:
    """The experiment, checked, with its series taken in; ``here`` is where the user is.

    Raises:
        UsageError: neither an experiment nor a series is named, or both are.
        SpecError: something in the experiment or the overrides is wrong.
        SeriesError, InfraError: as ``kernels.intake.keep``.
    """
    if not question.name and not question.series and not question.arms:
        raise UsageError(
            "no experiment named",
            where="lab.py",
            next_step=f"name a file, or one of: {', '.join(known_experiments())}; "
            "or --series FILE|MESSAGE-ID|A..B, or --arm KERNEL --arm KERNEL",
        )
    if question.arms and (question.of_series or question.per_patch or len(question.arms) == 1):
        raise UsageError(
            "kernels are compared as they are, and at least two of them",
            where="--arm",
            next_step="name two or more, and nothing that is about a series",
        )
    if question.name and question.by_series:
        raise UsageError(
            "both an experiment and a series, or kernels, are named",
            where=question.name,
            next_step="leave one out, or change the experiment: --set series.path=PATH",
        )
    if question.name:
        asked = load_experiment(
            Path(question.name), overrides=question.all_overrides, catalogue=catalogue
        )
    elif question.arms:
        asked = from_kernels(
            [from_here(name, here=here, checkout=checkout) for name in question.arms],
            workloads=question.named_workloads,
            overrides=question.all_overrides,
            catalogue=catalogue,
        )
    else:
        asked = _of_series(question, checkout, cache, here, catalogue)
    asked = settle(asked, checkout=checkout, cache=cache)
    if question.check and asked.prebuilt:
        raise UsageError(
            f"the gate builds kernels of its own, and that of {asked.prebuilt[0]} is prebuilt",
            where="--check",
            next_step="leave it out",
        )
    if question.check is not None:
        gate = (asked.check or CheckSpec()) if question.check else None
        asked = asked.model_copy(update={"check": gate})
    if question.per_patch:
        asked = per_patch(asked, subjects_of(asked, checkout=checkout, cache=cache))
    if question.quick and question.check:
        raise UsageError(
            "checks nothing but speed", where=QUICK, next_step="leave out --quick or --check"
        )
    if question.quick:
        asked = asked.model_copy(update={"cases": asked.cases[:1], "check": None})
    if question.quick or not question.with_twins:
        asked = asked.model_copy(update={"twins": ()})
    require_supported(asked)
    return asked


def subjects_of(asked: Experiment, *, checkout: Path, cache: Path) -> tuple[str, ...]:
    """The subjects of a settled experiment's patches, in the order they apply."""
    if asked.series is None:
        return ()
    records = records_of(asked.series, checkout=checkout, cache=cache)
    return tuple(patch.subject for record in records for patch in record.patches)


def _of_series(
    question: Question, checkout: Path, cache: Path, here: Path, catalogue: Catalogue
) -> Experiment:
    def made(workloads: tuple[str, ...]) -> Experiment:
        source = question.source
        return from_series(
            [from_here(name, here=here, checkout=checkout) for name in question.series],
            source=from_here(source, here=here, checkout=checkout) if source else "",
            workloads=workloads,
            reverse=question.reverse,
            overrides=question.all_overrides,
            catalogue=catalogue,
        )

    named = question.named_workloads
    if named or not question.automatic:
        return made(named)
    series = settle(made(()), checkout=checkout, cache=cache).series
    assert series is not None
    records = records_of(series, checkout=checkout, cache=cache)
    return made(
        choose(file for record in records for patch in record.patches for file in patch.files)
    )
