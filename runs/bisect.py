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
from experiment.steps import Boundary, State, can_decide, next_step, state_of
from kernels.intake import Taken
from results import door
from results.door import StoreError
from results.record import Record, RunRecord
from results.store import MANIFEST, SessionStore
from results.units import read_name
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
    def shown_metric(self) -> str:
        """The metric as people read it."""
        return read_name(self.metric)

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
    _write(search, folder)


def _write(search: Search, folder: Path) -> None:
    door.write(folder, STATE, json.dumps(search.model_dump(mode="json"), indent=1) + "\n")


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
    return _Searching(read(folder, options), folder, options, reporter, building).run()


@dataclass
class _Searching:
    """A search under way: ``search`` is what is known of it by now."""

    search: Search
    folder: Path
    options: Options
    reporter: Reporter
    building: Building

    def run(self) -> Result:
        last = self.search.last
        self._update(tested=(0, last, *self.search.tested))
        session = self._grown()
        _write(self.search, self.folder)
        whole = 0.0
        if not session.same_code:
            measure(session, self.options, SessionStore(self.folder), self.reporter)
            whole = self._change(last)
        if abs(whole) <= self.search.threshold:
            return self._result("nothing", whole, 0, last)
        finding = self._too_fine()
        if finding:
            self.reporter.log(f"note: {finding}")
        while True:
            decided = next_step(len(self.search.points), self._known(whole))
            if isinstance(decided, Boundary):
                kind: Literal["found", "range"] = "found" if decided.single else "range"
                return self._result(kind, whole, decided.old, decided.new, finding)
            self._try_point(decided)

    def _update(self, **fields: object) -> None:
        """Note what was found out; points with runs in their order."""
        search = self.search.model_copy(update=fields)
        self.search = search.model_copy(update={"tested": tuple(sorted({*search.tested}))})

    def _try_point(self, point: int) -> None:
        """Build and measure one more point."""
        search = self.search
        arm = search.points[point]
        self.reporter.log(f"trying   {arm.name} of {search.last}: {arm.label}")
        try:
            session = self._prepared((*search.tested, point))
            code = {
                each: session.measured[search.points[each].name].identity.code_key
                for each in (*search.tested, point)
            }
            equal = [each for each in search.tested if code[each] == code[point] and each != point]
            if equal:
                nearest = min(equal, key=lambda each: abs(each - point))
                self._update(same={**search.same, point: nearest})
                if nearest in search.skipped:
                    skipped = search.points[nearest].name
                    raise SeriesError(f"same code as {skipped}, which was skipped")
            else:
                self._update(tested=(*search.tested, point))
                _write(self.search, self.folder)
                measure(self._grown(), self.options, SessionStore(self.folder), self.reporter)
                self._change(point)
        except (SeriesError, WorkloadError) as error:
            self.reporter.log(f"skipped  {arm.name}: {error.what}")
            why = f"{error.where}: {error.what}" if error.where else error.what
            self._update(skipped={**search.skipped, point: why})
        _write(self.search, self.folder)

    def _prepared(self, tested: Sequence[int]) -> Prepared:
        experiment, options = self.search.experiment_on(tested), self.options
        resolved = resolve(experiment, checkout=options.checkout, cache=options.cache)
        session = prepare(resolved, options, self.building)
        for error in session.unbuilt.values():
            raise error
        return session

    def _grown(self) -> Prepared:
        """Prepare a session with all arms that are tested, and write its head anew."""
        store = SessionStore(self.folder)
        session = self._prepared(self.search.tested)
        created = now()
        if (self.folder / MANIFEST).exists():
            manifest = store.manifest()
            created = manifest.created
            require_same(manifest, session, self.folder)
        name, overrides = self.folder.name, self.search.overrides
        store.create(
            manifest_of(session, self.options, name=name, created=created, overrides=overrides)
        )
        return session

    def _runs(self, point: int) -> list[RunRecord]:
        name = self.search.points[self.search.stands_for(point)].name
        return [record for record in SessionStore(self.folder).records() if record.arm == name]

    def _ratios(self, point: int) -> list[float]:
        """ln(point / point 0) of the metric for each seed that both were measured with."""
        sides = []
        for each in (0, point):
            runs = [run for run in self._runs(each) if run.samples and not run.repeat]
            sides.append({run.seed: (run.samples or {})[self.search.metric] for run in runs})
        base, other = sides
        return [
            math.log(other[seed] / base[seed])
            for seed in sorted(base.keys() & other.keys())
            if base[seed] > 0 and other[seed] > 0
        ]

    def _change(self, point: int) -> float:
        """The change of the metric from point 0, a fraction; LabError: a run of it failed."""
        for run in (*self._runs(0), *self._runs(point)):
            if run.failure is not None:
                kinds: dict[str, type[LabError]] = {
                    "series": SeriesError,
                    "workload": WorkloadError,
                }
                kind = kinds.get(run.failure.blame, InfraError)
                raise kind(f"{run.failure.kind}: {run.failure.message}", where=run.run_id)
        ratios, search = self._ratios(point), self.search
        if len(ratios) < search.experiment.blocks:
            what = f"{len(ratios)} of {search.experiment.blocks} seeds have a value above zero"
            where = f"{search.points[point].name} {search.shown_metric}"
            step = f"./lab.py bisect --resume {self.folder}"
            raise InfraError(what, where=where, next_step=step)
        return math.expm1(statistics.fmean(ratios))

    def _known(self, whole: float) -> dict[int, State]:
        search = self.search
        known: dict[int, State] = dict.fromkeys(search.skipped, "skip")
        for point in (*search.tested, *search.same):
            if point in known:
                continue
            ratios = self._ratios(point)
            if len(ratios) == search.experiment.blocks:
                change = math.expm1(statistics.fmean(ratios))
                known[point] = state_of(change, whole, search.threshold)
        return {**known, 0: "old", search.last: "new"}

    def _too_fine(self) -> str:
        ratios, threshold = self._ratios(self.search.last), self.search.threshold
        if len(ratios) < 3:
            return ""
        spread = statistics.stdev(ratios)
        if can_decide(threshold, spread, len(ratios)):
            return ""
        return (
            f"the change differs from seed to seed by {percent(spread)} (sd): {len(ratios)} seeds "
            f"cannot tell {percent(threshold)} for sure; --seeds makes it more"
        )

    def _result(
        self,
        kind: Literal["found", "range", "nothing"],
        whole: float,
        old: int,
        new: int,
        finding: str = "",
    ) -> Result:
        search, known = self.search, self._known(whole)
        if kind == "nothing":
            known[search.last] = "old"
        steps = []
        for point in sorted(known):
            change, how = None, search.skipped.get(point, "")
            if not how:
                stands = search.points[search.stands_for(point)].name
                is_own = search.stands_for(point) == point
                how = "measured" if is_own else f"same code as {stands}"
                ratios = self._ratios(point)
                change = math.expm1(statistics.fmean(ratios)) if ratios else 0.0
            label = search.points[point].label
            steps.append(
                BisectStep(point=point, label=label, state=known[point], change=change, how=how)
            )
        return Result(kind, search, whole, old, new, tuple(steps), finding)
