"""TOML → Experiment, Guest or MachineSpec, with every mistake of a file named at once."""

from __future__ import annotations

import copy
import json
import math
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import ValidationError

from errors import SpecError
from experiment.arms import OPTION_NAME, OPTION_VALUE
from experiment.frozen import (
    Frozen,
    KeyPath,
    Problem,
    as_name,
    from_validation,
    key_path,
    not_allowed,
    shortened,
)
from experiment.machine import MACHINES, MachineSpec, names_in
from experiment.series_name import kind_of
from experiment.spec import (
    FUNCTIONS,
    REAL_TIME,
    WALL_CHANGE,
    CaseSpec,
    Experiment,
    Guest,
    KernelSpec,
    of_case,
)
from text import escaped

# The options that are short for ``--set KEY=``.
SHORT = {"guest": "--guest", "mode": "--mode", "max_seeds": "--max-seeds"}
# The keys of a case that name what is judged.
PRIMARY = ("primary", "wall_primary")
# What every experiment has and no other file, and what names those by their folders.
REQUIRED = {"kernel", "dataset", "cases"}
OPTION_OF = {"guests": "--guest", "machines": "--memory", "catalogue": "--workloads"}


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
    machines: tuple[str, ...] = field(default_factory=lambda: names_in(MACHINES))
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


def unknown_names(data: Mapping[str, object], catalogue: Catalogue) -> Iterator[Problem]:
    """A problem for each name in ``data`` that the catalogue does not hold."""
    guest = data.get("guest", Experiment.model_fields["guest"].default)
    kernel, series, check = (_table(data.get(key)) for key in ("kernel", "series", "check"))
    flavour = kernel.get("flavour", KernelSpec.model_fields["flavour"].default)
    additions, cases = kernel.get("additions", []), _array(data.get("cases"))
    names: list[tuple[KeyPath, object, Iterable[str]]] = [
        (("guest",), guest, catalogue.guests),
        (("kernel", "flavour"), flavour, catalogue.flavours),
        (("check", "flavour"), check.get("flavour"), catalogue.flavours),
        (("check", "selftest_flavour"), check.get("selftest_flavour"), catalogue.flavours),
    ]
    for at, name in enumerate(_array(additions)):
        names.append((("kernel", "additions", at), name, catalogue.additions))
    for at, twin in enumerate(_array(data.get("twins"))):
        names.append((("twins", at, "machine"), _table(twin).get("machine"), catalogue.machines))
    of_series: list[tuple[KeyPath, object]] = [(("series", "path"), series.get("path"))]
    of_series += [
        (("series", "stack", at), each) for at, each in enumerate(_array(series.get("stack")))
    ]
    for path, name in of_series:
        # A folder that comes with the lab must exist; the user's own are looked for later.
        is_ours = isinstance(name, str) and ("/" not in name or name.startswith("configs/"))
        if is_ours and kind_of(str(name)) == "folder":
            names.append((path, name, catalogue.series))
    for path, name, allowed in names:
        yield from not_allowed(path, name, allowed)
    workloads = [str(_table(case).get("workload")) for case in cases]
    needed = catalogue.needed(workloads)
    missing = [name for name in needed if isinstance(additions, list) and name not in additions]
    if missing:
        users = [name for name in workloads if {*catalogue.needs.get(name, ())} & {*missing}]
        words = f"{', '.join(dict.fromkeys(users))} needs {', '.join(missing)}"
        yield Problem(("kernel", "additions"), words, value=additions, allowed=needed)
    for at, case in enumerate(cases):
        yield from _case_problems(("cases", at), _table(case), guest, catalogue)


def _case_problems(
    at: KeyPath, case: Mapping[str, object], guest: object, catalogue: Catalogue
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
    metrics: list[tuple[KeyPath, object]] = []
    for key in PRIMARY:
        listed = _array(case.get(key))
        for position, name in enumerate(listed):
            path = (*at, key, position)
            metrics.append((path, name))
            if name in listed[:position]:
                yield Problem(path, "named twice", value=name)
    metrics += [((*at, "thresholds", name), name) for name in _table(case.get("thresholds"))]
    for position, figure in enumerate(map(_table, _array(case.get("published")))):
        path = (*at, "published", position)
        metrics.append(((*path, "metric"), figure.get("metric")))
        if figure.get("base") == 0:
            yield Problem((*path, "base"), "must not be 0, the change is relative to it", value=0)
    known = None
    if phases is not None:
        known = {phase: catalogue.metrics_of(workload, variant, phase) for phase in phases}
    for path, name in metrics:
        yield from _metric_problems(path, name, known, catalogue.metrics)


def _times_problems(
    at: KeyPath, times: object, guest: object, phases: tuple[str, ...] | None, catalogue: Catalogue
) -> Iterator[Problem]:
    if not isinstance(times, dict):
        return
    for name, by_phase in times.items():
        yield from not_allowed((*at, name), name, catalogue.guests, what="unknown guest")
        for phase in _table(by_phase) if phases is not None else ():
            yield from not_allowed((*at, name, phase), phase, phases or (), what="unknown phase")
    if not isinstance(guest, str) or guest not in catalogue.guests:
        return
    given = _table(times.get(guest))
    required = [("guest", guest, times), *(("phase", phase, given) for phase in phases or ())]
    for kind, name, known in required:
        if name not in known:
            yield Problem(
                (*at, guest) if kind == "guest" else (*at, guest, name),
                f"missing: no times for {kind} {name!r}",
                allowed=tuple(known),
                allowed_word="given for",
            )
            if kind == "guest":
                return


def _metric_problems(
    at: KeyPath,
    name: object,
    phases: Mapping[str, tuple[str, ...]] | None,
    metrics: tuple[str, ...],
) -> Iterator[Problem]:
    """``phases`` maps those of the case to their metrics, None where it is not known."""
    if not isinstance(name, str):
        return
    phase, dot, metric = name.partition(".")
    pairs = tuple(f"{each}.{its}" for each, names in (phases or {}).items() for its in names)
    metrics = (phases or {}).get(phase, metrics)
    if not dot:
        # The name to mean is any of the pairs, the ones to read are the parts.
        yield Problem(at, "is not PHASE.METRIC", value=name, allowed=pairs or metrics)
    elif phases is not None and phase not in phases:
        words = f"the workload has no phase {phase!r}"
        yield Problem(at, words, value=name, allowed=tuple(phases), candidates=pairs)
    elif metric not in metrics:
        candidates = tuple(f"{phase}.{each}" for each in metrics)
        words = f"no metric is named {metric!r}"
        yield Problem(at, words, name, metrics, candidates, intended=metric)


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _array(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


CONFIGS = Path(__file__).resolve().parent.parent / "configs"
EXPERIMENTS = CONFIGS / "experiments"
GUESTS = CONFIGS / "guests"
# The deepest key there is has five parts: cases[0].times.laptop.4k.ramp_s.
MAX_DEPTH = 12
# Of a file; and of a key with dots, which the parser keeps the square of.
MOST_BYTES, MOST_PARTS = 1 << 20, 16
DOTTED = re.compile(rf"""(?<![\w"'.-])(?:[\w"'-]++[ \t]*+\.[ \t]*+){{{MOST_PARTS}}}""")

S = TypeVar("S", bound=Frozen)


def load_experiment(
    path: Path, *, overrides: Sequence[str] = (), catalogue: Catalogue
) -> Experiment:
    """Read an experiment by path or bare name (``filemap-v4``).

    ``overrides`` are ``key=value`` texts, as ``cases.0.times.laptop.4k.runtime_s=1.5``, applied in
    order.  Raises SpecError: one line for each mistake in file or overrides.
    """
    file = _find(path, EXPERIMENTS, "experiment")
    data = read_toml(file)
    if data and not data.keys() & REQUIRED:
        option = OPTION_OF.get(file.parent.name)
        step = f"; name it with {option} {file.stem}" if option else ""
        what = f"is no experiment: it has none of {', '.join(sorted(REQUIRED))}{step}"
        raise SpecError([f"{file}: {what}"])
    return check_experiment(data, file, overrides=overrides, catalogue=catalogue)


def check_experiment(
    data: dict[str, Any],
    file: Path,
    *,
    overrides: Sequence[str],
    catalogue: Catalogue,
    options: Mapping[KeyPath, str] = MappingProxyType({}),
) -> Experiment:
    """An experiment of raw data and ``overrides``; raises as :func:`load_experiment`.

    ``options`` are the keys whose values are those of options, with their names.
    """
    lines: list[str] = []
    places: dict[KeyPath, str] = {}
    common = copy.deepcopy(data.get("kernel"))
    for text in overrides:
        outcome = apply_override(data, text)
        if isinstance(outcome, str):
            lines.append(outcome)
        else:
            # Last in the order of insertion: it is the one that holds.
            places.pop(outcome, None)
            places[outcome] = place_of(text)
    _tidy(data, places)
    unused = [*_kernel_for_arms(data, places, _table(common))]
    experiment, mistakes = validated(data, Experiment)
    mistakes += unused
    mistakes += _across_cases_and_arms(data) if experiment is None else []
    if experiment and experiment.series and not any(arm.patches for arm in experiment.all_arms):
        words = "no arm has these patches: patches = true is wanted in one, or no series"
        mistakes.append(Problem(("series",), words))
    if experiment and not any(case.judged(experiment.mode) for case in experiment.cases):
        # Sessions on record are read all the same.
        words = "no case has a metric that is judged; name one, as PHASE.METRIC"
        mistakes.append(Problem(("cases", 0, "primary"), words))
    unknown = list(unknown_names(data, catalogue))
    # A name that is unknown needs no second line about its spelling, nor a kernel's for each arm.
    paths = {problem.path for problem in unknown}
    of_kernel = {problem.path for problem in mistakes if problem.path[:1] == ("kernel",)}
    paths |= {problem.path for problem in mistakes if problem.path[2:] in of_kernel}
    mistakes = [*(problem for problem in mistakes if problem.path not in paths), *unknown]
    for problem in mistakes:
        # The last ``--set`` that wrote at, below or above the key, or the file.
        place = ""
        for written in places:
            shorter = min(len(written), len(problem.path))
            if problem.path and written[:shorter] == problem.path[:shorter]:
                place = places[written]
        if not place and problem.path in options:
            # What an option gave has no key that a user wrote.
            place, problem = options[problem.path], replace(problem, path=())
        lines.append(problem.line(place or options.get(problem.path[:1]) or str(file)))
    if lines or experiment is None:
        raise SpecError(list(dict.fromkeys(lines)))
    return _with_thresholds(experiment, catalogue)


def _tidy(data: dict[str, Any], changed: Collection[KeyPath]) -> None:
    """Put into one form what may be written in several, and take out what a change ended."""
    series = data.get("series")
    if isinstance(series, dict):
        path = series.get("path")
        if isinstance(path, str) and kind_of(path) == "folder":
            # Shells complete a folder with a slash behind it.
            series["path"] = PurePosixPath(path).as_posix()
        if ("series", "path") in changed and ("series", "title") not in changed:
            # What the file calls its own series would be a wrong name for another one.
            series.pop("title", None)
    for case in _array(data.get("cases")):
        # A variant may be called as its section of a job file is: ``RND4K Q32T16``.
        if isinstance(case, dict) and isinstance(variant := case.get("variant"), str):
            case["variant"] = as_name(variant) or variant
    if ("blocks",) in changed and ("max_seeds",) not in changed:
        # A number that was asked for is that number.
        data.pop("max_seeds", None)


def _with_thresholds(experiment: Experiment, catalogue: Catalogue) -> Experiment:
    """The experiment whose thresholds have those of its mode, its cases and its workloads, too.

    Exact guests that do the same differ by as much as a workload says, so what is smaller is not
    asked for.  What the experiment says of a metric itself is as it says.
    """
    given, own = experiment.thresholds, experiment.thresholds.metrics
    if experiment.mode in REAL_TIME and "change" not in given.model_fields_set:
        # What only an exact guest shows is not asked of real time by default.
        given = given.model_copy(update={"change": WALL_CHANGE})
    metrics = dict(own)
    for case in experiment.cases:
        metrics |= {of_case(case.name, name): at for name, at in case.thresholds.items()}
    given = given.model_copy(update={"metrics": metrics})
    for case in experiment.cases if experiment.mode == "exact" else ():
        for name, change in catalogue.thresholds.get((case.workload, case.variant), {}).items():
            of_functions = name.endswith(f".{FUNCTIONS}")
            judged = name in case.primary and change > given.change
            if (of_functions or judged) and given.own(case.name, name) is None:
                metrics[of_case(case.name, name)] = change
    thresholds = given.model_copy(update={"metrics": metrics})
    return experiment.model_copy(update={"thresholds": thresholds})


def load_guest(path: Path) -> Guest:
    """Read a guest by path or bare name; SpecError: wrong, or not called as its file."""
    return _named(_find(path, GUESTS, "guest"), Guest)


def load_machine(path: Path) -> MachineSpec:
    """Read a machine whose caches are modelled; raises as :func:`load_guest`."""
    return _named(_find(path, MACHINES, "machine"), MachineSpec)


def _named(file: Path, model: type[S]) -> S:
    data = read_toml(file)
    read, problems = validated(data, model)
    if isinstance(name := data.get("name"), str) and name != file.stem:
        problems.append(Problem(("name",), "must be the file's name", name, (file.stem,)))
    if model is Guest and "arch" in data:
        words = "follows from kernel.arch, and is not given"
        problems.append(Problem(("arch",), words, data["arch"]))
    if problems or read is None:
        raise SpecError([problem.line(str(file)) for problem in problems])
    return read


def load(file: Path, model: type[S]) -> S:
    """Read a file as this model has it; SpecError: one line for each mistake."""
    read, problems = validated(read_toml(file), model)
    if problems or read is None:
        raise SpecError([problem.line(str(file)) for problem in problems])
    return read


def _find(path: Path, folder: Path, kind: str) -> Path:
    bare = path.parent == Path() and not path.is_file()
    file = folder / f"{path.name.removesuffix('.toml')}.toml" if bare else path
    if file.is_file():
        return file
    where = file.parent if names_in(file.parent) else folder
    names = names_in(where)
    problem = Problem(
        (), f"no such {kind}", allowed=names, allowed_word=f"known in {where}", intended=file.stem
    )
    raise SpecError([problem.line(str(path))])


def read_toml(file: Path) -> dict[str, Any]:
    """Raw data of a file; raises ``SpecError`` where it is not TOML that can be read."""
    try:
        with file.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise SpecError([f"{file}: has more than {MOST_BYTES >> 20} MiB"])
        text = data.decode("utf-8")
    except OSError as error:
        raise SpecError([f"{file}: cannot be read: {error.strerror}"]) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise SpecError([f"{file}:{line}: is not UTF-8 (byte {error.start})"]) from None
    if dotted := DOTTED.search(text):
        line = text.count("\n", 0, dotted.start()) + 1
        raise SpecError([f"{file}:{line}: has a key of more than {MOST_PARTS} parts"])
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # The parser's message with its place moved to the front, as compilers write it.
        words, _, place = str(error).partition(" (at ")
        named = re.match(r"line (\d+), column (\d+)", place)
        end = (text.count("\n") + 1, len(text) - text.rfind("\n"))
        at = ":".join(map(str, named.groups() if named else end))
        raise SpecError([f"{file}:{at}: {words}"]) from None
    except (ValueError, RecursionError) as error:
        # Integers of thousands of digits, arrays nested thousands deep.
        raise SpecError([f"{file}: not TOML that can be read: {error}"]) from None


def validated(data: dict[str, Any], model: type[S]) -> tuple[S | None, list[Problem]]:
    """The model of raw data, or None, and every mistake in it."""
    problems = list(_unwritable(data))
    if problems:
        data = _without(data, {problem.path for problem in problems})
    try:
        # Through JSON: in Python mode strict validation refuses lists for tuples.
        valid = model.model_validate_json(json.dumps(data))
    except ValidationError as error:
        paths = {problem.path for problem in problems}
        more = [problem for problem in from_validation(error, model) if problem.path not in paths]
        return None, problems + more
    return (None if problems else valid), problems


def _unwritable(value: object, path: KeyPath = ()) -> Iterator[Problem]:
    """Values that TOML knows and JSON does not: dates, inf, nan, endless nesting, no UTF-8."""
    if len(path) > MAX_DEPTH:
        yield Problem(path, "is nested too deeply")
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _unwritable(inner, (*path, key))
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from _unwritable(inner, (*path, position))
    elif isinstance(value, date | datetime | time):
        yield Problem(path, "is a TOML date or time; write text in quotes", value=value)
    elif isinstance(value, float) and not math.isfinite(value):
        yield Problem(path, "must be a finite number", value=value)
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        yield Problem(path, "is no TOML integer, which has 64 bits", value=value)
    elif isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        yield Problem(path, "is not UTF-8", value=value)


def _without(value: Any, paths: set[KeyPath], at: KeyPath = ()) -> Any:
    """A copy of ``value`` with the values at ``paths`` replaced by null."""
    if at in paths:
        return None
    if isinstance(value, dict):
        return {key: _without(inner, paths, (*at, key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without(inner, paths, (*at, number)) for number, inner in enumerate(value)]
    return value


def _across_cases_and_arms(data: Mapping[str, Any]) -> list[Problem]:
    """Mistakes that pydantic looks for only when all parts are right by themselves."""
    arms = data.get("arms")
    names = [
        {"workload": case["workload"], "variant": case.get("variant", "default"), "times": {}}
        for case in map(_table, _array(data.get("cases")))
        if isinstance(case.get("workload"), str)
    ]
    skeleton = {
        "name": "skeleton",
        "title": "",
        "kernel": {"source": "deb:any"},
        "series": {"path": "any"},
        "dataset": {"cgroup_limit_mib": 1, "brd_mib": 2, "file_mib": 1, "jobs": 1},
        "cases": [{"workload": "any", "times": {}}],
    }
    problems = [
        *(validated({**skeleton, "cases": names}, Experiment)[1] if names else ()),
        *(validated({**skeleton, "arms": arms}, Experiment)[1] if arms else ()),
    ]
    # What is wrong with single values is known already.
    return [problem for problem in problems if problem.path in {("arms",), ("cases",)}]


FILE = CONFIGS / "subsystems.toml"
OTHERS = "others"


class SubsystemWorkloads(Frozen):
    """One part, by its title, with its workloads."""

    title: str
    workloads: tuple[str, ...]


class Subsystems(Frozen):
    """All parts in their order."""

    subsystem: tuple[SubsystemWorkloads, ...] = ()

    def of_case(self, case: str) -> str:
        """The title for a case by its name, :data:`OTHERS` where no part has its workload."""
        workload = case.partition("+")[0]
        parts = (part.title for part in self.subsystem if workload in part.workloads)
        return next(parts, OTHERS)

    def position(self, title: str) -> int:
        """Where a title comes; behind all others that are not in the file."""
        return [*(part.title for part in self.subsystem), title].index(title)


NONE = Subsystems()


def load_subsystems(file: Path = FILE) -> Subsystems:
    """Read the file; raises as :func:`load`."""
    return load(file, Subsystems)


_KEY = re.compile(r"[A-Za-z0-9_-]+|\[\d+\]")


def place_of(text: str) -> str:
    """How an override is named in messages, with the option that is short for it."""
    short = SHORT.get(text.partition("=")[0])
    return f"--set {shortened(escaped(text))}{f' ({short})' if short else ''}"


def apply_override(data: dict[str, Any], text: str) -> KeyPath | str:
    """Put the value of ``key=value`` into ``data``; return what it wrote, or what is wrong.

    The value is TOML where it can be read as TOML and a plain string otherwise, so
    that ``guest=smoke`` needs no quotes.  Tables that are missing on the way are made, and then
    the path of the first of them is returned; whether their keys are known is decided with all
    others.
    """
    key, equals, value = text.partition("=")
    key = key.strip()
    # "cases[0]" and "cases.0" are the same key.
    parts = [part for part in key.replace("[", ".[").split(".") if part]
    well_formed = parts and all(_KEY.fullmatch(part) for part in parts)
    if not equals or not well_formed or ".." in key or key.startswith(".") or key.endswith("."):
        return (
            f"{place_of(text)}: is not KEY=VALUE; for example blocks=4 or "
            "cases.0.times.laptop.4k.runtime_s=1.5"
        )
    here: Any = data
    above: Any = None
    path: KeyPath = ()
    made: KeyPath = ()
    for part in parts:
        problem = None
        step: str | int = part
        if isinstance(here, list):
            index = part.strip("[]")
            step = int(index) if index.isdecimal() else index
            if not isinstance(step, int) or step >= len(here):
                allowed = tuple(key_path((*path, number)) for number in range(len(here)))
                words = f"the array has {len(here)} entries"
                problem = Problem((*path, step), words, allowed=allowed)
        elif not isinstance(here, dict):
            problem = Problem(path, "is a value and has no keys", value=here)
        elif part.startswith("["):
            words = f"is a table, {part} asks for an array"
            problem = Problem(path, words, allowed=tuple(here))
        elif part not in here:
            here[part] = {}
            made = made or (*path, part)
        if problem:
            return problem.line(place_of(text))
        path, above, here = (*path, step), here, here[step]
    above[path[-1]] = _value(value.strip())
    return made or path


def _value(text: str) -> object:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    # A line break in the text could have brought other keys with it.
    return parsed["value"] if list(parsed) == ["value"] else text


FORM = re.compile(rf"(?:(?P<arm>[^:=]+):)?(?P<name>{OPTION_NAME})=(?P<value>{OPTION_VALUE})")


def _kernel_for_arms(
    data: dict[str, Any], overridden: Iterable[KeyPath], before: Mapping[str, object]
) -> Iterator[Problem]:
    """Set what is overridden of the kernel in arms' own kernels; a problem where no arm has it.

    Of arms that all have kernels of their own those are changed that were as the common one.
    """
    own = [_table(arm).get("kernel") for arm in _array(data.get("arms"))]
    kernels = [kernel for kernel in own if isinstance(kernel, dict)]
    for path in overridden if kernels and len(kernels) == len(own) else ():
        if path[0] != "kernel":
            continue
        key = str(path[1]) if path[1:] else "source"
        same = [each for each in kernels if each.get(key, before.get(key)) == before.get(key)]
        if key == "source" or not same:
            words = "no arm has it: each has a kernel of its own, such as arms[0].kernel"
            yield Problem(path, words)
            continue
        for kernel in same:
            kernel[key] = _table(data["kernel"]).get(key)


def with_config(experiment: Experiment, texts: Sequence[str]) -> Experiment:
    """The experiment with these options on all arms or one; SpecError: for each mistake."""
    names = tuple(arm.name for arm in experiment.all_arms)
    mistakes = []
    common: dict[str, str] = {}
    own: dict[str, dict[str, str]] = {}
    for text in texts:
        match = FORM.fullmatch(text)
        if match is None:
            mistakes.append(
                f"--config {text}: is not [ARM:]CONFIG_NAME=VALUE (y, m, n, a number, '\"text\"'); "
                f"for example CONFIG_LRU_GEN=y or {names[-1]}:CONFIG_LRU_GEN=y"
            )
        elif match["arm"] and match["arm"] not in names:
            problem = Problem((), "no such arm", match["arm"], names)
            mistakes.append(problem.line(f"--config {text}"))
        elif match["arm"]:
            own.setdefault(match["arm"], {})[match["name"]] = match["value"]
        else:
            common[match["name"]] = match["value"]
    if mistakes:
        raise SpecError(mistakes)
    if not texts:
        return experiment
    kernel = experiment.kernel
    changed: dict[str, object] = {"kernel": _with_options(kernel, common)}
    if own or experiment.arms:
        changed["arms"] = tuple(
            arm.model_copy(
                update={
                    "kernel": arm.kernel and _with_options(arm.kernel, common),
                    "config": {**arm.config, **own.get(arm.name, {})},
                }
            )
            for arm in experiment.all_arms
        )
    # Through the model's own checks, which a plain copy would pass by.
    return Experiment.model_validate(dict(experiment) | changed)


def _with_options(kernel: KernelSpec, options: dict[str, str]) -> KernelSpec:
    return KernelSpec.model_validate(dict(kernel) | {"config": {**kernel.config, **options}})
