"""What an experiment may name, and the checks that need to know it.

Checks read raw data, not a validated experiment, so that one wrong value does not
hide the others; what has a wrong type is left to the validation of types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from experiment.machine import known_machines
from experiment.problems import Path, Problem, not_allowed
from experiment.series_name import kind_of
from experiment.spec import CaseSpec, Experiment, KernelSpec

# The keys of a case that name what is judged.
PRIMARY = ("primary", "wall_primary")


@dataclass(frozen=True)
class Catalogue:
    """Every name that an experiment can use.

    ``workloads`` maps workload to variant to phase names; ``metrics`` are the names
    that follow ``PHASE.``, and ``measured`` those of one workload, variant and phase where
    it has not all of them; ``series`` are folders relative to the checkout, such as
    ``configs/series/noop``.  ``additions`` are those of kernels' configurations, and ``needs``
    those that a workload cannot do without.  ``fixed`` are the workloads and phases whose amount
    of work an experiment does not give.  ``thresholds`` are workloads' own, by workload and
    variant, then by metric (``PHASE.METRIC``; ``PHASE.functions`` are shares of a phase).
    ``broken`` are workloads whose file cannot be used, with what is wrong there.
    """

    workloads: Mapping[str, Mapping[str, tuple[str, ...]]]
    metrics: tuple[str, ...]
    guests: tuple[str, ...]
    flavours: tuple[str, ...]
    series: tuple[str, ...]
    additions: tuple[str, ...] = ()
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    measured: Mapping[tuple[str, str, str], tuple[str, ...]] = field(default_factory=dict)
    machines: tuple[str, ...] = field(default_factory=known_machines)
    fixed: frozenset[tuple[str, str]] = frozenset()
    thresholds: Mapping[tuple[str, str], Mapping[str, float]] = field(default_factory=dict)
    broken: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def needed(self, workloads: Iterable[object]) -> tuple[str, ...]:
        """What the configuration of a kernel has besides for these workloads."""
        return tuple(sorted({each for name in workloads for each in self.needs.get(str(name), ())}))

    def metrics_of(self, workload: object, variant: object, phase: str) -> tuple[str, ...]:
        """The metrics of a phase."""
        key = (str(workload), str(variant), phase)
        return self.measured.get(key, self.metrics)


def unknown_names(data: Mapping[str, object], catalogue: Catalogue) -> list[Problem]:
    """Return a problem for each name in ``data`` that the catalogue does not hold."""
    guest = data.get("guest", Experiment.model_fields["guest"].default)
    kernel, series = _table(data.get("kernel")), _table(data.get("series"))
    flavour = kernel.get("flavour", KernelSpec.model_fields["flavour"].default)
    problems = [
        *not_allowed(("guest",), guest, catalogue.guests),
        *not_allowed(("kernel", "flavour"), flavour, catalogue.flavours),
        *_series_problems(("series", "path"), series.get("path"), catalogue),
    ]
    additions = kernel.get("additions", [])
    for position, name in enumerate(additions if isinstance(additions, list) else ()):
        problems += not_allowed(("kernel", "additions", position), name, catalogue.additions)
    check = _table(data.get("check"))
    for key in ("flavour", "selftest_flavour"):
        problems += not_allowed(("check", key), check.get(key), catalogue.flavours)
    twins = data.get("twins")
    for position, twin in enumerate(twins if isinstance(twins, list) else ()):
        machine = _table(twin).get("machine")
        problems += not_allowed(("twins", position, "machine"), machine, catalogue.machines)
    stack = series.get("stack")
    for position, name in enumerate(stack if isinstance(stack, list) else ()):
        problems += _series_problems(("series", "stack", position), name, catalogue)
    cases = data.get("cases")
    listed = cases if isinstance(cases, list) else []
    needed = catalogue.needed(_table(case).get("workload") for case in listed)
    missing = [name for name in needed if isinstance(additions, list) and name not in additions]
    if missing:
        users = [
            str(name)
            for case in listed
            if {*catalogue.needs.get(str(name := _table(case).get("workload")), ())} & {*missing}
        ]
        words = f"{', '.join(dict.fromkeys(users))} needs {', '.join(missing)}"
        problems.append(Problem(("kernel", "additions"), words, value=additions, allowed=needed))
    for position, case in enumerate(listed):
        problems += _case_problems(("cases", position), _table(case), guest, catalogue)
    return problems


def _series_problems(at: Path, name: object, catalogue: Catalogue) -> Iterator[Problem]:
    """A folder that comes with the lab must exist; the user's own are looked for later."""
    if not isinstance(name, str) or kind_of(name) != "folder":
        return
    if "/" not in name or name.startswith("configs/"):
        yield from not_allowed(at, name, catalogue.series)


def _case_problems(
    at: Path, case: Mapping[str, object], guest: object, catalogue: Catalogue
) -> Iterator[Problem]:
    workload = case.get("workload")
    variant = case.get("variant", CaseSpec.model_fields["variant"].default)
    if workload in catalogue.broken:
        words = f"its file cannot be used: {'; '.join(catalogue.broken[str(workload)])}"
        yield Problem((*at, "workload"), words, value=workload)
    else:
        yield from not_allowed((*at, "workload"), workload, catalogue.workloads)
    variants = catalogue.workloads.get(workload, {}) if isinstance(workload, str) else {}
    if variants:
        yield from not_allowed((*at, "variant"), variant, variants)
    # Without a known workload and variant nothing can be said about phases.
    phases = variants.get(variant) if isinstance(variant, str) else None
    timed = phases and tuple(phase for phase in phases if (workload, phase) not in catalogue.fixed)
    times = case.get("times", {} if phases else None)
    if timed != ():
        yield from _times_problems((*at, "times"), times, guest, timed, catalogue)
    elif times:
        words = "its phases do a fixed amount of work; leave the times out"
        yield Problem((*at, "times"), words, value=times)

    def metric_problems(path: Path, name: object) -> Iterator[Problem]:
        metrics = None
        if phases is not None:
            metrics = {phase: catalogue.metrics_of(workload, variant, phase) for phase in phases}
        return _metric_problems(path, name, metrics, catalogue.metrics)

    for key in PRIMARY:
        yield from _primary_problems((*at, key), case.get(key), metric_problems)
    for name in _table(case.get("thresholds")):
        yield from metric_problems((*at, "thresholds", name), name)
    published = case.get("published")
    for position, figure in enumerate(published if isinstance(published, list) else ()):
        path = (*at, "published", position)
        yield from metric_problems((*path, "metric"), _table(figure).get("metric"))
        if _table(figure).get("base") == 0:
            yield Problem((*path, "base"), "must not be 0, the change is relative to it", value=0)


def _primary_problems(
    at: Path, names: object, metric_problems: Callable[[Path, object], Iterable[Problem]]
) -> Iterator[Problem]:
    listed = names if isinstance(names, list) else []
    for position, name in enumerate(listed):
        yield from metric_problems((*at, position), name)
        if name in listed[:position]:
            yield Problem((*at, position), "named twice", value=name)


def _times_problems(
    at: Path, times: object, guest: object, phases: tuple[str, ...] | None, catalogue: Catalogue
) -> Iterator[Problem]:
    if not isinstance(times, dict):
        return
    for name, by_phase in times.items():
        yield from not_allowed((*at, name), name, catalogue.guests, what="unknown guest")
        for phase in _table(by_phase) if phases is not None else ():
            yield from not_allowed((*at, name, phase), phase, phases or (), what="unknown phase")
    if not isinstance(guest, str) or guest not in catalogue.guests:
        return
    if guest not in times:
        yield Problem(
            (*at, guest),
            f"missing: no times for guest {guest!r}",
            allowed=tuple(times),
            allowed_word="given for",
        )
        return
    times_of_guest = _table(times[guest])
    for phase in phases or ():
        if phase not in times_of_guest:
            yield Problem(
                (*at, guest, phase),
                f"missing: no times for phase {phase!r}",
                allowed=tuple(times_of_guest),
                allowed_word="given for",
            )


def _metric_problems(
    at: Path,
    name: object,
    phases: Mapping[str, tuple[str, ...]] | None,
    metrics: tuple[str, ...],
) -> Iterator[Problem]:
    """``phases`` maps those of the case to their metrics, None where it is not known."""
    if not isinstance(name, str):
        return
    phase, dot, metric = name.partition(".")
    pairs = tuple(
        f"{phase}.{metric}" for phase, names in (phases or {}).items() for metric in names
    )
    metrics = (phases or {}).get(phase, metrics)
    if not dot:
        # The name to mean is any of the pairs, the ones to read are the parts.
        words = "is not PHASE.METRIC"
        yield Problem(at, words, value=name, allowed=pairs or metrics)
    elif phases is not None and phase not in phases:
        words = f"the workload has no phase {phase!r}"
        yield Problem(at, words, value=name, allowed=tuple(phases), candidates=pairs)
    elif metric not in metrics:
        words = f"no metric is named {metric!r}"
        candidates = tuple(f"{phase}.{metric}" for metric in metrics)
        yield Problem(at, words, value=name, allowed=metrics, candidates=candidates)


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
