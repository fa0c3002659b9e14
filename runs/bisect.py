"""Find the patch that moved a metric: a session that gains an arm with each step.

All is decided from what is on disk, so that a search that was stopped goes on where it was.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from errors import InfraError, LabError, SeriesError, UsageError, WorkloadError
from experiment.spec import ArmSpec, Experiment
from experiment.steps import Boundary, NextPoint, State, can_decide, next_step, state_of
from kernels.intake import Taken
from results import door
from results.door import StoreError
from results.record import Record, RunRecord
from results.store import MANIFEST, SessionStore
from runs.boots import Reporter
from runs.building import Building
from runs.local import Options
from runs.manifest import manifest_of
from runs.measure import measure
from runs.prepare import Prepared, prepare
from runs.resolved import resolve
from runs.session import SEARCH, copy_series, now, require_new, require_same, with_series_of
from text import percent

STATE = SEARCH


class Search(Record):
    """What is looked for, and what was found out that is in no record.

    ``experiment`` has the one case that is measured, and no arms; ``points`` are the arms
    of all prefixes.  ``tested`` are the points with runs, ``same`` maps a point to a
    tested one of the same machine code, ``skipped`` says why a point cannot be tested.
    """

    experiment: Experiment
    overrides: tuple[str, ...]
    points: tuple[ArmSpec, ...] = Field(min_length=2)
    metric: str
    threshold: float
    tested: tuple[int, ...] = ()
    same: dict[int, int] = Field(default_factory=dict)
    skipped: dict[int, str] = Field(default_factory=dict)

    @property
    def case(self) -> str:
        """The case that is measured."""
        return self.experiment.cases[0].name

    @property
    def last(self) -> int:
        """The last point: everything applied."""
        return len(self.points) - 1

    def stands_for(self, point: int) -> int:
        """The tested point whose machine code this one has."""
        return self.same.get(point, point)

    def experiment_on(self, tested: Sequence[int]) -> Experiment:
        """The experiment whose arms are these points."""
        arms = tuple(self.points[point] for point in sorted({*tested}))
        return Experiment.model_validate(dict(self.experiment) | {"arms": arms})


class BisectStep(Record):
    """One point that was looked at: its change from point 0 (a fraction), and what it says."""

    point: int
    label: str
    state: State
    change: float | None
    how: str


@dataclass(frozen=True)
class Result:
    """How a search ended; ``steps`` in the order of the points, changes are fractions.

    ``kind`` is ``found`` (the patch that leads to point ``new``), ``range`` (one of those
    after ``old`` up to ``new``) or ``nothing``.
    """

    kind: Literal["found", "range", "nothing"]
    search: Search
    whole: float
    old: int
    new: int
    steps: tuple[BisectStep, ...]
    finding: str = ""


def begin(search: Search, series: Mapping[str, Taken], folder: Path, options: Options) -> None:
    """Write down a new search.  Raises UsageError: the folder holds one, or a session."""
    require_new(folder)
    copy_series(series, folder, options)
    _save(search, folder)


def read(folder: Path, options: Options) -> Search:
    """The search in a folder, with that folder's patches; UsageError: none that can be read."""
    path = folder / STATE
    try:
        search = Search.model_validate_json(door.read(folder, STATE))
    except FileNotFoundError:
        raise UsageError(
            f"no {STATE} here", where=str(folder), next_step="name the folder of a bisect"
        ) from None
    except (OSError, ValueError, StoreError) as error:
        raise UsageError(
            f"is no search that this lab reads: {error}", where=str(path), next_step="begin anew"
        ) from None
    experiment = with_series_of(search.experiment, folder, options)
    return search.model_copy(update={"experiment": experiment})


def run(folder: Path, options: Options, reporter: Reporter, building: Building) -> Result:
    """Search to the end.  SeriesError: an end does not build or boot; others: no measurement."""
    search = read(folder, options)
    session = _grown(search, folder, (0, search.last), options, building)
    search = _save(search.model_copy(update={"tested": (0, search.last, *search.tested)}), folder)
    whole = 0.0
    if not session.same_code:
        measure(session, options, SessionStore(folder), reporter)
        whole = _change(search, folder, search.last, required=True)
    if abs(whole) <= search.threshold:
        return _result("nothing", search, folder, whole, 0, search.last)
    finding = _too_fine(search, folder)
    if finding:
        reporter.log(f"note: {finding}")
    while True:
        decided = next_step(len(search.points), _known(search, folder, whole))
        if isinstance(decided, Boundary):
            kind: Literal["found", "range"] = "found" if decided.single else "range"
            return _result(kind, search, folder, whole, decided.old, decided.new, finding)
        search = _try_point(decided, search, folder, options, reporter, building)


def _try_point(
    request: NextPoint,
    search: Search,
    folder: Path,
    options: Options,
    reporter: Reporter,
    building: Building,
) -> Search:
    """Build and measure one more point; return what is known then."""
    point = request.point
    arm = search.points[point]
    reporter.log(f"trying   {arm.name} of {search.last}: {arm.label}")
    try:
        session = _prepared(search, (*search.tested, point), options, building)
        code = {
            each: session.measured[search.points[each].name].identity.code_key
            for each in (*search.tested, point)
        }
        equal = [each for each in search.tested if code[each] == code[point] and each != point]
        if equal:
            nearest = min(equal, key=lambda each: abs(each - point))
            search = search.model_copy(update={"same": {**search.same, point: nearest}})
            if nearest in search.skipped:
                raise SeriesError(f"same code as {search.points[nearest].name}, which was skipped")
        else:
            search = search.model_copy(update={"tested": (*search.tested, point)})
            search = _save(search, folder)
            session = _grown(search, folder, search.tested, options, building)
            measure(session, options, SessionStore(folder), reporter)
            _change(search, folder, point, required=True)
    except (SeriesError, WorkloadError) as error:
        reporter.log(f"skipped  {arm.name}: {error.what}")
        why = {
            **search.skipped,
            point: f"{error.where}: {error.what}" if error.where else error.what,
        }
        search = search.model_copy(update={"skipped": why})
    return _save(search, folder)


def _prepared(
    search: Search, tested: Sequence[int], options: Options, building: Building
) -> Prepared:
    session = prepare(
        resolve(search.experiment_on(tested), checkout=options.checkout, cache=options.cache),
        options,
        building,
    )
    for error in session.unbuilt.values():
        raise error
    return session


def _grown(
    search: Search, folder: Path, tested: Sequence[int], options: Options, building: Building
) -> Prepared:
    """Prepare a session with these arms and all that have runs, and write its head anew."""
    store = SessionStore(folder)
    tested = sorted({*tested, *search.tested})
    session = _prepared(search, tested, options, building)
    created = now()
    if (folder / MANIFEST).exists():
        manifest = store.manifest()
        created = manifest.created
        require_same(manifest, session, folder)
    store.create(
        manifest_of(session, options, name=folder.name, created=created, overrides=search.overrides)
    )
    return session


def _save(search: Search, folder: Path) -> Search:
    search = search.model_copy(update={"tested": tuple(sorted({*search.tested}))})
    text = json.dumps(search.model_dump(mode="json"), indent=1)
    door.write(folder, STATE, text + "\n")
    return search


def _runs(search: Search, folder: Path, point: int) -> list[RunRecord]:
    name = search.points[search.stands_for(point)].name
    return [record for record in SessionStore(folder).records() if record.arm == name]


def _ratios(search: Search, folder: Path, point: int) -> list[float]:
    """ln(point / point 0) of the metric for each seed that both were measured with."""
    sides = []
    for each in (0, point):
        runs = [run for run in _runs(search, folder, each) if run.samples and not run.repeat]
        sides.append({run.seed: (run.samples or {})[search.metric] for run in runs})
    base, other = sides
    return [
        math.log(other[seed] / base[seed])
        for seed in sorted(base.keys() & other.keys())
        if base[seed] > 0 and other[seed] > 0
    ]


def _change(search: Search, folder: Path, point: int, *, required: bool = False) -> float:
    """The change of the metric from point 0, a fraction; LabError: ``required`` runs failed."""
    for run in [*_runs(search, folder, 0), *_runs(search, folder, point)] if required else []:
        if run.failure is not None:
            kinds: dict[str, type[LabError]] = {"series": SeriesError, "workload": WorkloadError}
            kind = kinds.get(run.failure.blame, InfraError)
            raise kind(f"{run.failure.kind}: {run.failure.message}", where=run.run_id)
    ratios = _ratios(search, folder, point)
    if len(ratios) < search.experiment.blocks:
        what = f"{len(ratios)} of {search.experiment.blocks} seeds have a value above zero"
        step = f"./lab.py bisect --resume {folder}"
        raise InfraError(what, where=f"{search.points[point].name} {search.metric}", next_step=step)
    return math.expm1(statistics.fmean(ratios))


def _known(search: Search, folder: Path, whole: float) -> dict[int, State]:
    known: dict[int, State] = dict.fromkeys(search.skipped, "skip")
    for point in (*search.tested, *search.same):
        if point in known:
            continue
        ratios = _ratios(search, folder, point)
        if len(ratios) == search.experiment.blocks:
            change = math.expm1(statistics.fmean(ratios))
            known[point] = state_of(change, whole, search.threshold)
    return {**known, 0: "old", search.last: "new"}


def _too_fine(search: Search, folder: Path) -> str:
    ratios = _ratios(search, folder, search.last)
    if len(ratios) < 3:
        return ""
    spread = statistics.stdev(ratios)
    if can_decide(search.threshold, spread, len(ratios)):
        return ""
    return (
        f"the change differs from seed to seed by {percent(spread)} (sd): {len(ratios)} seeds "
        f"cannot tell {percent(search.threshold)} for sure; --seeds makes it more"
    )


def _result(
    kind: Literal["found", "range", "nothing"],
    search: Search,
    folder: Path,
    whole: float,
    old: int,
    new: int,
    finding: str = "",
) -> Result:
    known = _known(search, folder, whole)
    if kind == "nothing":
        known[search.last] = "old"
    steps = []
    for point in sorted(known):
        change, how = None, search.skipped.get(point, "")
        if not how:
            stands = search.stands_for(point)
            how = "measured" if stands == point else f"same code as {search.points[stands].name}"
            ratios = _ratios(search, folder, point)
            change = math.expm1(statistics.fmean(ratios)) if ratios else 0.0
        steps.append(
            BisectStep(
                point=point,
                label=search.points[point].label,
                state=known[point],
                change=change,
                how=how,
            )
        )
    return Result(kind, search, whole, old, new, tuple(steps), finding)
