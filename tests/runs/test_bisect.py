"""The search over real files and made-up guests: found, skipped, stopped and gone on."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import runs.bisect
from errors import InfraError, SeriesError, UsageError, WorkloadError
from experiment.spec import Experiment, SeriesSpec
from experiment.steps import step_arms
from kernels.intake import take_in
from results.record import ArmRecord, Failure, Manifest, RunRecord
from results.store import SessionStore
from runs.bisect import STATE, Result, Search, begin, read, run
from runs.boots import Reporter
from runs.local import Options
from tests.analysis import factory
from tests.runs.test_session import PATCH
from tests.values import but, silent

SEEDS = 3


@dataclass
class Machines:
    """Stands in for kernels and guests: what each point's machine code and value are.

    ``broken`` points do not build, ``failing`` ones fail as said when they run.
    """

    code: Sequence[str]
    value: dict[str, float]
    broken: set[int] = field(default_factory=set)
    failing: dict[int, Failure] = field(default_factory=dict)
    noise: tuple[float, ...] = (0.0,) * SEEDS
    killed_at: int = -1
    built: list[str] = field(default_factory=list)
    booted: list[str] = field(default_factory=list)

    def prepare(self, experiment: Experiment, options: Options, progress: object) -> Any:
        kernels = {}
        for arm in experiment.all_arms:
            point = self.point(arm.name)
            if point in self.broken:
                raise SeriesError("does not build: error: x", where=arm.name)
            self.built.append(arm.name)
            identity = but(
                factory.ExactSession().manifest().arms[0].kernel,
                key=arm.name,
                code_key=self.code[point],
            )
            kernels[arm.name] = SimpleNamespace(identity=identity)
        codes = {kernel.identity.code_key for kernel in kernels.values()}
        manifest = factory.ExactSession().manifest()
        return SimpleNamespace(
            experiment=experiment,
            same_code=len(codes) == 1,
            benches=(),
            unbuilt={},
            resolved=SimpleNamespace(measured=SimpleNamespace(guest=manifest.guest)),
            qemu=None,
            measured=kernels,
            roots_sha256=manifest.provenance.initramfs_sha256,
        )

    @staticmethod
    def point(arm: str) -> int:
        return 0 if arm == "base" else int(arm.removeprefix("patch-"))

    def manifest_of(
        self, session: Any, options: Options, *, name: str, created: str, overrides: tuple[str, ...]
    ) -> Manifest:
        arms = tuple(
            ArmRecord(name=arm, label=arm, kernel=kernel.identity)
            for arm, kernel in session.measured.items()
        )
        update = {
            "session": name,
            "created": created,
            "experiment": session.experiment,
            "arms": arms,
        }
        return but(factory.ExactSession().manifest(), **update)

    def measure(
        self, session: Any, options: Options, store: SessionStore, reporter: Reporter
    ) -> None:
        done = {record.run_id for record in store.records()}
        for arm in session.experiment.all_arms:
            point = self.point(arm.name)
            for seed in range(SEEDS):
                run_id = f"c.b{seed:02}.{arm.name}"
                if run_id in done:
                    continue
                if point == self.killed_at and seed == 1:
                    self.killed_at = -1
                    raise KeyboardInterrupt
                self.booted.append(run_id)
                failure = self.failing.get(point)
                # Seeds shift all arms alike, but for the noise.
                value = self.value[self.code[point]] * (1 + 0.01 * seed)
                value *= 1 + self.noise[seed] * (point != 0)
                store.append(
                    RunRecord(
                        run_id=run_id,
                        case="c",
                        arm=arm.name,
                        block=seed,
                        seed=seed,
                        kernel_key=arm.name,
                        failure=failure,
                        samples=None if failure else {"4k.bw": value},
                    )
                )


@pytest.fixture
def options(tmp_path: Path) -> Options:
    series = tmp_path / "checkout/configs/series/mine"
    series.mkdir(parents=True)
    (series / "0001-x.patch").write_text(PATCH)
    return Options(checkout=tmp_path / "checkout", cache=tmp_path / "cache")


@dataclass
class Searcher:
    """Begins a search of as many points as the machines have in ``folder``, and runs it."""

    options: Options
    patched: pytest.MonkeyPatch
    folder: Path

    def begin(self, machines: Machines) -> None:
        for name in ("prepare", "measure", "manifest_of"):
            self.patched.setattr(runs.bisect, name, getattr(machines, name))
        self.patched.setattr(runs.bisect, "resolve", lambda experiment, **_: experiment)
        total = len(machines.code) - 1
        series = SeriesSpec(path="configs/series/mine")
        experiment = but(
            factory.ExactSession().manifest().experiment,
            blocks=SEEDS,
            series=series,
            compare="steps",
        )
        search = Search(
            experiment=but(experiment, cases=experiment.cases[:1]),
            overrides=(),
            points=step_arms(series, [f"subject {number}" for number in range(1, total + 1)]),
            metric="4k.bw",
            threshold=0.005,
        )
        taken = take_in(series, checkout=self.options.checkout, cache=self.options.cache)
        begin(search, {"": taken}, self.folder, self.options)

    def run(self, machines: Machines | None = None) -> Result:
        """Search with these machines, or go on."""
        if machines is not None:
            self.begin(machines)
        return run(self.folder, self.options, Reporter(), silent)


@pytest.fixture
def bench(tmp_path: Path, options: Options, monkeypatch: pytest.MonkeyPatch) -> Searcher:
    return Searcher(options, monkeypatch, tmp_path / "search")


BASE, SLOW = 100.0, 98.0
VALUES = {"a": BASE, "b": BASE * 1.001, "c": SLOW, "d": SLOW * 1.001, "x": SLOW}


def test_the_patch_is_named_and_only_what_differs_is_booted(bench: Searcher) -> None:
    machines = Machines("aaabbcdd", VALUES)
    result = bench.run(machines)
    assert (result.kind, result.old, result.new) == ("found", 4, 5)
    assert result.whole == pytest.approx(-0.01902)
    states = {step.point: (step.state, step.how) for step in result.steps}
    assert states[7] == ("new", "measured")
    assert states[4] == ("old", "same code as patch-3")
    assert states[5] == ("new", "measured")
    # Halving asks for 3, 5 and 4; 4 is the code of 3.
    assert len(machines.booted) == len(set(machines.booted)) == SEEDS * 4
    assert {arm.name for arm in SessionStore(bench.folder).manifest().arms} >= {"base", "patch-7"}


def test_the_same_code_is_not_booted_again(bench: Searcher) -> None:
    machines = Machines("aacc", VALUES)
    result = bench.run(machines)
    assert (result.kind, result.old, result.new) == ("found", 1, 2)
    assert [step.how for step in result.steps] == [
        "measured",
        "same code as base",
        "same code as patch-3",
        "measured",
    ]
    assert [step.change for step in result.steps] == pytest.approx([0, 0, -0.02, -0.02])
    assert {run_id.rpartition(".")[2] for run_id in machines.booted} == {"base", "patch-3"}
    assert len(machines.booted) == 2 * SEEDS


@pytest.mark.parametrize(
    ("code", "arms"), [("abb", 2), ("aba", 0), ("aaa", 0)], ids=["small", "undone", "no code"]
)
def test_nothing_to_find(bench: Searcher, code: str, arms: int) -> None:
    machines = Machines(code, VALUES)
    result = bench.run(machines)
    assert result.kind == "nothing"
    assert len(machines.booted) == arms * SEEDS
    assert {step.state for step in result.steps} == {"old"}


def test_what_does_not_build_is_skipped_and_the_range_is_named(bench: Searcher) -> None:
    result = bench.run(Machines("aabbcc", VALUES, broken={2, 3}))
    assert (result.kind, result.old, result.new) == ("range", 1, 4)
    skipped = [step for step in result.steps if step.state == "skip"]
    assert [step.point for step in skipped] == [2, 3]
    assert "does not build: error: x" in skipped[0].how


def failure(blame: Any, kind: str = "panic") -> Failure:
    return Failure(kind=kind, blame=blame, message="Oops")


@pytest.mark.parametrize("blame", ["series", "workload"])
def test_what_does_not_run_is_skipped_too_and_so_is_the_same_code(
    bench: Searcher, blame: str
) -> None:
    machines = Machines("abbxxcc", VALUES, failing={3: failure(blame)})
    result = bench.run(machines)
    assert (result.kind, result.old, result.new) == ("range", 2, 5)
    assert not [run_id for run_id in machines.booted if run_id.endswith("patch-4")]
    assert bench.run().steps == result.steps


def test_a_failing_host_stops_the_search_and_blames_no_patch(bench: Searcher) -> None:
    bench.begin(Machines("abxcc", VALUES, failing={2: failure("host", "lost")}))
    for _ in range(2):
        with pytest.raises(InfraError, match="lost"):
            bench.run()
    assert read(bench.folder, bench.options).skipped == {}


@pytest.mark.parametrize(
    ("broken", "failing", "error"),
    [
        ({4}, {}, SeriesError),
        (set(), {4: failure("series")}, SeriesError),
        (set(), {0: failure("workload", "invalid")}, WorkloadError),
    ],
)
def test_ends_that_cannot_be_tested_are_errors(
    bench: Searcher, broken: set[int], failing: dict[int, Failure], error: type[Exception]
) -> None:
    with pytest.raises(error):
        bench.run(Machines("abccc", VALUES, broken=broken, failing=failing))


@pytest.mark.parametrize("point", range(6))
def test_stopped_at_any_point_it_goes_on_without_a_run_made_twice(
    bench: Searcher, tmp_path: Path, point: int
) -> None:
    codes = [f"{number}" for number in range(7)]
    values = {code: BASE if int(code) < 4 else SLOW for code in codes}
    whole, stopped = Machines(codes, values), Machines(codes, values, killed_at=point)
    expected = bench.run(whole)
    bench.folder = tmp_path / "stopped"
    try:
        result = bench.run(stopped)
    except KeyboardInterrupt:
        result = bench.run()
    assert result.steps == expected.steps
    assert (result.kind, result.old, result.new) == ("found", 3, 4)
    assert result.whole == expected.whole
    assert sorted(stopped.booted) == sorted(whole.booted)
    assert len(set(stopped.booted)) == len(stopped.booted)


def test_a_spread_that_hides_the_threshold_is_reported(bench: Searcher) -> None:
    result = bench.run(Machines("acc", VALUES, noise=(0.0, 0.03, -0.03)))
    assert "3 seeds cannot tell 0.50 % for sure" in result.finding


def test_a_folder_is_searched_once(bench: Searcher, tmp_path: Path) -> None:
    bench.begin(Machines("ac", VALUES))
    with pytest.raises(UsageError, match="holds a session already"):
        begin(read(bench.folder, bench.options), {}, bench.folder, bench.options)
    with pytest.raises(UsageError, match=f"no {STATE} here"):
        read(tmp_path, bench.options)
    (bench.folder / STATE).write_text("{}")
    with pytest.raises(UsageError, match="is no search"):
        read(bench.folder, bench.options)
