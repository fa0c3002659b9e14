"""A series, or kernels, without an experiment file: it is made from ``configs/auto.toml``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from errors import SpecError
from experiment.arms import PREBUILT_SOURCES
from experiment.frozen import Frozen, KeyPath, Name, Problem, plain_name
from experiment.load import CONFIGS, Catalogue, check_experiment, load
from experiment.series_name import kind_of, message_id, split_range
from experiment.spec import Experiment, TwinSpec

AUTO = CONFIGS / "auto.toml"
# In place of workloads: every one of the file.
ALL = "all"
VERSION = re.compile(r"\d+(\.\d+)+(-rc\d+)?")


class NoWorkloadError(SpecError):
    """No workload is known to execute anything that a series changes."""


class NotYetKnownError(NoWorkloadError):
    """What a series changes is known once its kernels are built."""


class Touches(Frozen):
    """Workloads for a series of whose functions none is known, by patterns of its files."""

    patterns: Annotated[tuple[str, ...], Field(min_length=1)]
    workloads: Annotated[tuple[Name, ...], Field(min_length=1)]


class Auto(Frozen):
    """The file: ``experiment`` and ``case`` are as in an experiment file.

    A case may have a ``dataset`` of its own: it is then measured with others of the same.  One
    without ``times`` reads none of the dataset's files, and is measured with any other.
    ``usual`` is what kernels (``--arm``) are measured by where nobody names workloads, and phases
    that end by time are ``prebuilt_longer`` times as long where one of them is prebuilt.
    ``diagnostic`` are diagnostic runs as in an experiment file, each of every case.
    """

    experiment: dict[str, Any]
    prebuilt_longer: Annotated[float, Field(ge=1)] = 1
    usual: Annotated[tuple[Name, ...], Field(min_length=1)]
    case: Annotated[tuple[dict[str, Any], ...], Field(min_length=1)]
    diagnostic: tuple[dict[str, Any], ...] = ()
    touches: tuple[Touches, ...] = ()

    @property
    def workloads(self) -> tuple[str, ...]:
        """What can be measured, in the file's order."""
        return tuple(str(case.get("workload")) for case in self.case)

    def case_of(self, name: str) -> dict[str, Any]:
        """The case of ``WORKLOAD`` or ``WORKLOAD:VARIANT``."""
        workload, _, variant = name.partition(":")
        own = self.case[self.workloads.index(workload)]
        return {**own, "variant": variant} if variant else own

    def diagnostics_of(self, experiment: Experiment) -> tuple[TwinSpec, ...]:
        """The diagnostic runs of every case of an experiment that has none of its own."""
        cases = tuple(case.name for case in experiment.cases)
        return tuple(TwinSpec(**each, cases=cases) for each in self.diagnostic)

    def datasets_of(self, workloads: Sequence[str]) -> list[dict[str, Any]]:
        """Files and limits of those of the workloads that have any, in their order."""
        cases = [self.case_of(name) for name in workloads]
        own = self.experiment.get("dataset", {})
        return [dict(case.get("dataset", own)) for case in cases if "times" in case]


def load_auto(file: Path = AUTO) -> Auto:
    """Read the file.  Raises SpecError: it is wrong; one line for each mistake."""
    auto = load(file, Auto)
    named = {"usual": auto.usual} | {
        f"touches.{number}": rule.workloads for number, rule in enumerate(auto.touches)
    }
    mistakes = [
        f"{file}: {key}: no case has this workload: {name}"
        for key, names in named.items()
        for name in names
        if name not in auto.workloads
    ]
    if mistakes:
        raise SpecError(mistakes)
    return auto


def from_series(
    series: Sequence[str],
    *,
    source: str = "",
    workloads: Sequence[str] = (),
    reverse: bool = False,
    overrides: Sequence[str] = (),
    catalogue: Catalogue,
) -> Experiment:
    """The experiment that measures a stack of series (held and ``reverse``) by ``workloads``.

    Raises SpecError: as for ``load_experiment``; also for a workload that has no times here.
    """
    auto = load_auto()
    path, *stack = series
    cases = _cases(workloads, auto, catalogue)
    data = {
        **auto.experiment,
        **cases,
        "kernel": {**_kernel(cases, auto, catalogue), **({"source": source} if source else {})},
        "name": name_of(path),
        "title": f"series {path}",
        "series": {"path": path, "stack": stack, "reverse": reverse, "revert": reverse},
    }
    options: dict[KeyPath, str] = {("series", "stack", at): "series" for at in range(len(stack))}
    options |= {("series", "path"): "series", ("kernel", "source"): "--source"}
    options[("cases",)] = "--workloads"
    return check_experiment(data, AUTO, overrides=overrides, catalogue=catalogue, options=options)


def from_kernels(
    sources: Sequence[str],
    *,
    workloads: Sequence[str] = (),
    overrides: Sequence[str] = (),
    catalogue: Catalogue,
) -> Experiment:
    """The experiment that compares kernels by their ``KernelSpec.source``, the first the base.

    Raises SpecError: as for ``load_experiment``; also for a workload that has no times here.
    """
    auto = load_auto()
    names, labels = arm_names(sources), [label_of(source) for source in sources]
    cases = _cases(workloads, auto, catalogue)
    if any(source.startswith(PREBUILT_SOURCES) for source in sources):
        cases = _longer(cases, auto.prebuilt_longer)
    kernel = _kernel(cases, auto, catalogue)
    data = {
        **auto.experiment,
        **cases,
        "kernel": {**kernel, "source": sources[0]},
        "name": plain_name("-to-".join([names[0], names[-1]])),
        "title": f"kernels {', '.join(labels)}",
        "arms": [
            {"name": name, "label": label, "kernel": {**kernel, "source": source}}
            for name, label, source in zip(names, labels, sources, strict=True)
        ],
    }
    options: dict[KeyPath, str] = {("kernel", "source"): "--arm", ("cases",): "--workloads"}
    options |= {("arms", at, "kernel", "source"): "--arm" for at in range(len(sources))}
    return check_experiment(data, AUTO, overrides=overrides, catalogue=catalogue, options=options)


def label_of(source: str) -> str:
    """What a kernel's source is called by people: a package's release, a file, a ref."""
    kind, _, rest = source.partition(":")
    if kind == "deb":
        return rest.removeprefix("linux-image-").removeprefix("linux-").partition("=")[0]
    if kind == "git":
        place, at, ref = rest.rpartition("@")
        return ref if at else Path(place or rest).name
    return Path(rest.partition("@")[0]).name


def arm_names(sources: Sequence[str]) -> tuple[str, ...]:
    """A name for each kernel: its version where these differ, else its label, with a number."""
    labels = [label_of(source) for source in sources]
    versions_of_labels = [VERSION.search(label) for label in labels]
    versions = [match[0] for match in versions_of_labels if match]
    parts = versions if len(versions) == len(labels) == len(set(versions)) else labels
    plain = [plain_name(name) or "kernel" for name in parts]
    return tuple(
        name if plain.count(name) == 1 else f"{name}-{plain[: number + 1].count(name)}"
        for number, name in enumerate(plain)
    )


def _cases(workloads: Sequence[str], auto: Auto, catalogue: Catalogue) -> dict[str, Any]:
    """The cases of workloads, ``all`` or the usual ones, that can be used, and a dataset."""
    unknown = [name for name in workloads if name.partition(":")[0] not in (*auto.workloads, ALL)]
    if unknown:
        problems = [Problem((), "unknown", name, (*auto.workloads, ALL)) for name in unknown]
        raise SpecError([problem.line("--workloads") for problem in problems])
    able = tuple(name for name in auto.workloads if name not in catalogue.broken)
    usual = tuple(name for name in auto.usual if name in able) or able or auto.usual
    names = tuple(dict.fromkeys(workloads)) or usual
    if ALL in names:
        names = alike(able, auto)
    together = alike(names, auto)
    apart = [name for name in names if name not in together]
    if apart:
        raise SpecError(
            [
                f"--workloads: {', '.join(apart)} has files of another size than {names[0]}; "
                "measure them one after the other"
            ]
        )
    cases = []
    for case in map(auto.case_of, names):
        # A variant may have fewer phases; one that is not there is refused with the experiment.
        variants = catalogue.workloads.get(case["workload"], {})
        phases = variants.get(case.get("variant", "default"))
        primary = [m for m in case["primary"] if not phases or m.partition(".")[0] in phases]
        cases.append({**case, "primary": primary})
        cases[-1].pop("dataset", None)
    datasets = auto.datasets_of(names) or [dict(auto.experiment.get("dataset", {}))]
    return {"cases": cases, "dataset": datasets[0]}


def _longer(value: Any, factor: float) -> Any:
    """Cases with each ``runtime_s`` in them so many times as long."""
    if isinstance(value, dict):
        return {
            key: inner * factor if key == "runtime_s" else _longer(inner, factor)
            for key, inner in value.items()
        }
    return [_longer(inner, factor) for inner in value] if isinstance(value, list) else value


def _kernel(cases: Mapping[str, Any], auto: Auto, catalogue: Catalogue) -> dict[str, Any]:
    """The file's kernel, with the options that these cases need besides."""
    needed = catalogue.needed(case["workload"] for case in cases["cases"])
    kernel = dict(auto.experiment.get("kernel", {}))
    return {**kernel, "additions": [*needed]} if needed else kernel


def alike(workloads: Sequence[str], auto: Auto) -> tuple[str, ...]:
    """Those that can be measured in one session with the first that has files, in their order."""
    first = auto.datasets_of(workloads)[:1]
    return tuple(
        name for name in workloads if all(own in first for own in auto.datasets_of([name]))
    )


def choose(files: Iterable[str], auto: Auto | None = None) -> tuple[str, ...]:
    """The workloads for a series that changes ``files``, by names; NoWorkloadError: none known."""
    auto = auto or load_auto()
    changed = tuple(dict.fromkeys(files))
    values = {
        name
        for rule in auto.touches
        if any(fnmatchcase(file, pattern) for file in changed for pattern in rule.patterns)
        for name in rule.workloads
    }
    if not values:
        raise NoWorkloadError(
            [
                f"--series: no workload is known for {', '.join(changed[:5]) or 'no file at all'}; "
                f"name some: --workloads {','.join(auto.workloads)}"
            ]
        )
    return tuple(name for name in auto.workloads if name in values)


def name_of(series: str) -> str:
    """A name for the session of a series: the telling part of what was asked for."""
    kind = kind_of(series)
    if kind == "thread":
        stem = message_id(series)
    elif kind == "range":
        parts = split_range(series)
        stem = parts[2] if parts else series
    else:
        stem = Path(series).stem if kind == "file" else Path(series).name
    return plain_name(stem) or "series"
