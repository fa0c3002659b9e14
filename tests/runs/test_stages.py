"""What a session does in which order, and what a reader is told on the way."""

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from experiment.plan import Plan
from experiment.spec import MODELLED, CheckSpec, Observed, TwinSpec, looks_of
from results.record import Check, CheckStatus, Failure, RunCost, RunRecord
from results.store import SessionStore
from runs import stages
from runs.boots import Executor, Reporter
from runs.building import KernelForecast
from runs.check import without_broken
from runs.local import Options
from runs.prepare import Prepared, parts_of
from runs.session import with_seeds
from tests.analysis import factory
from tests.runs.made_up import CHECKOUT, NOWHERE, SMALL, kernels_in, prepared, shipped
from tests.values import but

# The verdict is there before a run of each case is repeated for longer than a report takes.
REPEATED = ("verdict, left: repeated runs", "runs")


class StagedLab:
    """A session of two arms, checks and two twins; what is built and made is noted in order."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        self.red: tuple[str, ...] = ()
        self.stop_before = ""
        self.enough = 0
        self.wants: dict[str, int] = {}
        self.executors: list[Executor] = []
        self.adds: int | None = None
        self.elapsed_s = 20.0
        self.observed: Observed = "contention"
        self.store = SessionStore(folder / "session")
        self.store.create(factory.ExactSession().manifest())
        self.options = Options(checkout=CHECKOUT, cache=folder / "cache", guests_at_once=2)
        monkeypatch.setattr(stages, "with_kernels", self.with_kernels)
        monkeypatch.setattr(stages, "run_gate", self.run_gate)
        monkeypatch.setattr(stages, "kernel_keys", self.keys)
        monkeypatch.setattr(stages, "forecast_kernels", self.forecast)

    def session(self) -> Prepared:
        if self.adds is not None:
            return self.adding(self.adds)
        small = shipped(SMALL)
        case = small.cases[0].name
        modelled = "ice-lake-sp" if self.observed in MODELLED else None
        twins = (
            TwinSpec(name="held", observe="contention", cases=(case,), blocks=1),
            TwinSpec(
                name="waits", observe=self.observed, machine=modelled, cases=(case,), blocks=1
            ),
        )
        session = prepared(but(small, check=CheckSpec(), twins=twins))
        runs = tuple(run for run in session.plan.runs if not run.repeat)
        return dataclasses.replace(session, plan=Plan(runs=runs, seeds=session.plan.seeds))

    def adding(self, most: int) -> Prepared:
        """A session of eight seeds, or as many as its manifest has, and no stages after it."""
        small, manifest = shipped(SMALL, "blocks=8"), self.store.manifest()
        (case,) = small.cases
        cases = (case, but(case, variant="v1"))[: max(1, len(self.wants))]
        session = prepared(but(small, max_seeds=most, cases=cases))
        if len(manifest.seeds) == 8:
            records = [but(manifest.cases[0], name=case.name) for case in cases]
            manifest = but(manifest, cases=tuple(records), runs_planned=2 * 8 * len(cases))
            self.store.create(manifest)
        return with_seeds(session, len(manifest.seeds), manifest.case_seeds)

    def keys(self, *_: object, **__: object) -> dict[tuple[str, str], str]:
        flavours = ("lockdep", "selftest")
        return {(flavour, arm): "k" for flavour in flavours for arm in ("base", "patched")}

    def forecast(self, *_: object, timed: bool) -> tuple[KernelForecast, ...]:
        assert not timed
        return tuple(
            KernelForecast(arm, flavour, "k", cached=flavour == "perf", seconds=60.0)
            for flavour in ("perf", "lockdep", "selftest")
            for arm in ("base", "patched")
        )

    def with_kernels(
        self, session: Prepared, options: Options, progress: object, flavours: Collection[str]
    ) -> Prepared:
        self.made += [f"kernels {' '.join(flavours)}"] if flavours else []
        more = {flavour: kernels_in(NOWHERE, ("base", "patched")) for flavour in flavours}
        return dataclasses.replace(session, kernels={**session.kernels, **more})

    def measure(self, session: Prepared, options: Options) -> None:
        self.executors.append(options.executor)
        twins = {run.twin for run in session.plan.runs}
        self.note(f"runs {' '.join(sorted(twins))}".strip())
        on_record = {record.run_id for record in self.store.records()}
        for run in session.plan.runs:
            if self.adds is not None and run.run_id in on_record:
                continue
            assert parts_of(session, run).kernel, "booted before its kernel was built"
            record = RunRecord(
                run_id=run.run_id,
                case=run.case,
                arm=run.arm,
                block=run.block,
                seed=run.seed,
                twin=run.twin,
                kernel_key="k",
                samples={"4k.bw": 1.0},
            )
            self.store.append(
                record, RunCost(run_id=run.run_id, elapsed_s=self.elapsed_s, guest_cpu_s=4.0)
            )

    def run_gate(
        self, session: Prepared, options: Options, store: SessionStore, reporter: Reporter
    ) -> Prepared:
        self.note("checks")
        todo = session.checks
        for guest in todo:
            status: CheckStatus = "red" if guest.arm.name in self.red else "green"
            problem = {"kind": "crash", "title": "BUG: x", "says": "crashes"}
            check = Check.model_validate(
                {
                    "run_id": guest.run_id,
                    "arm": guest.arm.name,
                    "of": len(todo) // 2,
                    "flavour": guest.flavour,
                    "vcpus": guest.vcpus,
                    "cases": (),
                    "kernel_key": "k",
                    "status": status,
                    "problems": [problem] if status == "red" else [],
                }
            )
            store.append(check, RunCost(run_id=guest.run_id, elapsed_s=9.0, guest_cpu_s=9.0))
        return without_broken(session, store.checks(), reporter)

    def note(self, what: str) -> None:
        if what == self.stop_before:
            raise KeyboardInterrupt
        self.made.append(what)

    def verdict(self, pending: tuple[stages.Pending, ...]) -> None:
        self.made.append(f"verdict, left: {'; '.join(each.title for each in pending)}")
        self.pending = pending

    def make(self) -> None:
        stages.make(
            self.session(),
            self.options,
            self.store,
            Reporter(),
            building=lambda *_: None,
            measure=self.measure,
            verdict=self.verdict,
            verdicts=self.verdicts,
        )

    def verdicts(self) -> dict[str, dict[str, str]]:
        """Each case is decided with as many seeds on record as ``enough``, or as it wants."""
        seeds = {
            case.name: {r.seed for r in self.store.records() if not r.twin and r.case == case.name}
            for case in self.store.manifest().cases
        }
        self.note(f"judged after {max(map(len, seeds.values()))}")
        return {
            case: {"4k.bw": "improvement" if len(of) >= self.wants.get(case, self.enough) else ""}
            for case, of in seeds.items()
        }


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StagedLab:
    return StagedLab(tmp_path, monkeypatch)


EVERYTHING = "correctness checks; diagnostic runs"


def test_what_is_judged_is_on_record_before_any_other_kernel_is_built(lab: StagedLab) -> None:
    lab.make()
    assert lab.made == [
        "runs",
        f"verdict, left: {EVERYTHING}",
        "kernels lockdep selftest",
        "checks",
        "verdict, left: diagnostic runs",
        "runs held waits",
    ]


def test_what_is_pending_has_its_kernels_and_guests(lab: StagedLab) -> None:
    lab.stop_before = "checks"
    with pytest.raises(KeyboardInterrupt):
        lab.make()
    checks, waits = lab.pending
    assert checks.kernels == (
        "lockdep of base",
        "lockdep of patched",
        "selftest of base",
        "selftest of patched",
    )
    assert checks.guests == 6
    assert (waits.kernels, waits.guests) == ((), 4)
    assert str(waits) == "diagnostic runs pending: 4 guests"


@pytest.mark.parametrize("at", ["checks", "runs held waits"])
def test_a_session_that_was_interrupted_goes_on_where_it_was(lab: StagedLab, at: str) -> None:
    lab.stop_before = at
    with pytest.raises(KeyboardInterrupt):
        lab.make()
    done = [what for what in lab.made if what.startswith(("runs", "checks"))]
    lab.stop_before, lab.made = "", []
    lab.make()
    again = [what for what in lab.made if what.startswith(("runs", "checks"))]
    # Of the judged runs there is nothing left to make, which is said by who makes runs.
    assert again[0] == "runs"
    assert again[1] == at
    assert [*done, *again[1:]] == ["runs", "checks", "runs held waits"]
    assert len(lab.store.records()) == 6


def test_a_repeat_of_seconds_has_no_report_before_it(lab: StagedLab) -> None:
    lab.adds, lab.elapsed_s = 8, 4.0
    lab.make()
    assert lab.made == ["runs", "judged after 8", "runs"]


def test_an_arm_that_turns_out_broken_stays_on_record_and_is_not_explained(lab: StagedLab) -> None:
    lab.red = ("patched",)
    lab.make()
    assert lab.made[-1] == "checks"
    assert {record.arm for record in lab.store.records()} == {"base", "patched"}
    lab.made = []
    lab.make()
    assert lab.made == []


def test_a_host_that_lost_a_diagnostic_run_makes_it_again(lab: StagedLab) -> None:
    lab.make()
    lost = next(record for record in lab.store.records() if record.twin == "held")
    failure = Failure(kind="lost", blame="host", message="gone")
    lab.store.append(but(lost, samples=None, failure=failure))
    lab.made = []
    lab.make()
    assert lab.made[1:] == ["verdict, left: diagnostic runs", "runs held waits"]


def test_the_same_code_has_no_stages(lab: StagedLab) -> None:
    session: Any = dataclasses.replace(lab.session(), same_code=True)
    assert stages.stages_of(session) == ()


def test_seeds_are_added_until_all_is_decided(lab: StagedLab) -> None:
    lab.adds, lab.enough = 32, 12
    lab.make()
    assert lab.made == [
        "runs",
        "judged after 8",
        "runs",
        "judged after 10",
        "runs",
        "judged after 12",
        *REPEATED,
    ]
    # All looks on one executor, which keeps its snapshots and is not that of other stages.
    *looks, repeats = lab.executors
    assert len({id(executor) for executor in looks}) == 1
    assert looks[0] is not lab.options.executor
    assert repeats is lab.options.executor
    manifest = lab.store.manifest()
    assert len(manifest.seeds) == 12
    assert lab.session().plan.seeds == manifest.seeds
    assert manifest.runs_planned == 2 * 12
    # Two arms of each seed, and the repeat of the first one, which stays the only one.
    made = [record.run_id for record in lab.store.records()]
    assert len(made) == len({*made}) == 2 * 12 + 1
    assert [run_id for run_id in made if run_id.endswith("repeat")] == [
        "filemap-4k.b00.patched.repeat"
    ]


def test_seeds_are_added_to_undecided_cases_alone(lab: StagedLab) -> None:
    """One case is decided with 8 seeds and the other with 12."""
    first, second = "filemap-4k", "filemap-4k:v1"
    lab.adds, lab.wants = 32, {first: 12, second: 8}
    lab.make()
    manifest = lab.store.manifest()
    assert (len(manifest.seeds), manifest.case_seeds) == (12, {second: 8})
    assert (len(manifest.seeds_of(first)), len(manifest.seeds_of(second))) == (12, 8)
    assert manifest.runs_planned == 2 * (12 + 8)
    made = [record for record in lab.store.records() if not record.run_id.endswith("repeat")]
    assert sum(record.case == first for record in made) == 2 * 12
    assert sum(record.case == second for record in made) == 2 * 8
    # Begun again it is the same session, with nothing left to do.
    planned_runs = {run.run_id for run in lab.session().plan.runs}
    assert planned_runs == {record.run_id for record in lab.store.records()}


def test_a_session_decided_at_its_first_look_has_its_first_seeds(lab: StagedLab) -> None:
    lab.adds, lab.enough = 32, 8
    lab.make()
    assert lab.made == ["runs", "judged after 8", *REPEATED]
    assert len(lab.store.manifest().seeds) == 8


def test_a_budget_ends_a_session_and_a_larger_one_goes_on(lab: StagedLab) -> None:
    lab.adds, lab.enough = 10, 16
    lab.make()
    assert lab.made[-3:] == ["judged after 10", *REPEATED]
    assert len(lab.store.manifest().seeds) == 10
    lab.adds, lab.made = 24, []
    lab.make()
    assert [what for what in lab.made if what != "runs"] == [
        "judged after 10",
        "judged after 12",
        "judged after 16",
    ]
    assert len(lab.store.manifest().seeds) == 16


def test_a_session_that_was_stopped_while_seeds_were_added_makes_the_rest(lab: StagedLab) -> None:
    lab.adds, lab.enough, lab.stop_before = 32, 12, "judged after 12"
    with pytest.raises(KeyboardInterrupt):
        lab.make()
    lab.stop_before, lab.made = "", []
    lab.make()
    assert lab.made == ["runs", "judged after 12", *REPEATED]
    assert len(lab.store.manifest().seeds) == 12


def test_a_look_is_reported_in_a_line() -> None:
    first = {"4k": {"4k.path": "improvement", "4k.work": ""}}
    text = stages.look_text(8, first, {"4k": 8}, {"4k": 10})
    assert (
        text == "after 8 seeds: 4k.path decided (improvement), 4k.work undecided; measuring 2 more"
    )
    two = {**first, "thp": {"thp.path": "no change"}}
    text = stages.look_text(8, two, {"4k": 8, "thp": 8}, {"4k": 10})
    assert text.endswith("; measuring 2 more of 4k")
    open_ = {"4k": {"4k.work": ""}}
    assert "budget is spent" in stages.look_text(10, open_, {"4k": 10}, {})
    lost = {"4k": {"4k.work": "failed"}}
    assert stages.look_text(8, lost, {"4k": 8}, {}) == "after 8 seeds: 4k.work failed"
    # Variants of a workload have metrics of one name.
    both = {"iomap": {"w.bw": "no change"}, "iomap:1m": {"w.bw": ""}}
    text = stages.look_text(8, both, {"iomap": 8, "iomap:1m": 8}, {"iomap:1m": 10})
    assert "iomap w.bw decided (no change), iomap:1m w.bw undecided" in text


def test_what_is_added_is_for_open_cases() -> None:
    looks = looks_of(8, 12)
    counts = {"a": 8, "b": 8}
    assert stages.to_add(counts, ["a", "b"], looks) == {"a": 10, "b": 10}
    assert stages.to_add(counts, ["b"], looks) == {"b": 10}
    assert stages.to_add(counts, [], looks) == {}
    # Open again: first the seeds that the other has, then both go on.
    assert stages.to_add({"a": 8, "b": 12}, ["a"], looks) == {"a": 12}
    assert stages.to_add({"a": 8, "b": 10}, ["a", "b"], looks) == {"a": 10}
    assert stages.to_add({"a": 12, "b": 12}, ["a"], looks) == {}
