"""The kernels of a session: which are the same, which patch stops a series, and what they take."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from errors import SeriesError
from experiment.plan import make_plan
from experiment.spec import CheckSpec, Experiment, KernelSpec, SeriesSpec
from experiment.steps import per_patch
from kernels import build
from kernels.build import Expected, KernelRequest, provide, remember
from kernels.cache import planned
from kernels.make import MakeProgress
from results.record import RunCost
from results.store import SessionStore
from runs import resolved
from runs.building import (
    UNKNOWN_RUN_S,
    RunForecast,
    build_arms,
    forecast_kernels,
    forecast_run,
    same_as_before,
)
from runs.coverage import changed_by, shipped
from runs.local import Options
from runs.resolved import Resolved, cache_key, resolve
from tests.analysis.factory import ExactSession
from tests.experiment.test_plan import make_experiment
from tests.kernels.conftest import lab as lab
from tests.kernels.fake import FASTER, Lab, renamed, replace
from tests.runs.test_session import PATCH
from tests.values import but, silent

CHECKED = CheckSpec(vcpus=(1,), selftests=())
PLAIN = make_experiment([("w", "default")], series=SeriesSpec(path="configs/series/mine"))
SUBJECTS = ("mm: one", "mm: two", "mm: three")


@pytest.fixture
def options(tmp_path: Path) -> Options:
    series = tmp_path / "configs/series/mine"
    series.mkdir(parents=True)
    for number, subject in enumerate(SUBJECTS, 1):
        patch = PATCH.replace("mm: x", subject)
        (series / f"000{number}-p.patch").write_text(patch)
    return Options(checkout=tmp_path, cache=tmp_path / "cache")


@pytest.fixture(autouse=True)
def any_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the experiment's only arms and kernels are looked at."""
    monkeypatch.setattr(resolved, "load_catalogue", dict)
    monkeypatch.setattr(resolved, "planned_checks", lambda *_: ())


@pytest.fixture(autouse=True)
def _nothing_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "require_applies", lambda request: None)


def made_of(experiment: Experiment, options: Options) -> Resolved:
    return resolve(experiment, checkout=options.checkout, cache=options.cache)


def steps(**series: Any) -> Experiment:
    return per_patch(but(PLAIN, series=but(PLAIN.series, **series)), SUBJECTS)


def test_kernels_are_built_from_few_patches_to_many(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[int] = []

    def provide(request: KernelRequest, _: object) -> Any:
        built.append(len(request.patches))
        return SimpleNamespace(patches=[path.name for path in request.patches])

    monkeypatch.setattr(build, "provide", provide)
    made: Any = build_arms(made_of(steps(reverse=True), options), options, silent, "perf")
    assert built == [0, 1, 2, 3]
    # The base of a source that holds the series has all that takes it out.
    assert [len(kernel.patches) for kernel in made.values()] == [3, 2, 1, 0]
    assert made["patch-2"].patches == ["0001-p.patch"]


def test_progress_says_which_kernel_of_all_flavours_is_built(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    def provide(_: KernelRequest, progress: Any) -> Any:
        progress(MakeProgress(1, 2, 3.0))

    monkeypatch.setattr(build, "provide", provide)
    names: list[str] = []
    made = made_of(but(PLAIN, check=CHECKED), options)
    for flavour in ("perf", "lockdep"):
        build_arms(made, options, lambda name, _: names.append(name), flavour)
    assert names == [
        "kernel 1 of 4, base",
        "kernel 2 of 4, patched",
        "kernel 3 of 4, base (lockdep)",
        "kernel 4 of 4, patched (lockdep)",
    ]


def test_arms_that_differ_in_a_setting_share_a_kernel(options: Options) -> None:
    base = PLAIN.all_arms[0]
    other = but(base, name="other", sysctl={"vm.x": "1"})
    experiment = but(PLAIN, arms=(base, other))
    assert [kernel.arm for kernel in made_of(experiment, options).planned_kernels()] == [base.name]


@pytest.mark.parametrize("blamed", ["0002-p.patch (mm: two)", "0001-p.patch (mm: one)"])
def test_the_patch_that_does_not_build_in_the_middle_is_named(
    options: Options, monkeypatch: pytest.MonkeyPatch, blamed: str
) -> None:
    built: list[int] = []

    def provide(request: KernelRequest, _: object) -> Any:
        if len(request.patches) == 2:
            raise SeriesError("does not build: x.c:1: error", where=blamed, next_step="see log")
        built.append(len(request.patches))

    monkeypatch.setattr(build, "provide", provide)
    with pytest.raises(SeriesError) as caught:
        build_arms(made_of(steps(), options), options, silent, "perf")
    message = str(caught.value)
    assert message.startswith("the series up to 0002-p.patch (mm: two): ")
    assert blamed in message
    assert message.endswith("does not build: x.c:1: error\nnext: see log")
    # What was built before stays in the cache.
    assert built == [0, 1]


def broken_at(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> list[int]:
    """Has series of so many patches not build; what is tried is noted."""
    tries: list[int] = []

    def provide(request: KernelRequest, _: object) -> Any:
        tries.append(len(request.patches))
        if len(request.patches) in numbers:
            raise SeriesError("does not build", where=f"{len(request.patches)} patches")
        return planned(request.spec, str(len(request.patches)), Path("/nowhere"))

    def key_of(request: KernelRequest) -> str:
        return f"key-{len(request.patches)}"

    monkeypatch.setattr(build, "provide", provide)
    monkeypatch.setattr(build, "key_of", key_of)
    return tries


def test_an_arm_that_does_not_build_does_not_keep_others_from_it(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = steps()
    # An arm with the same kernel is not tried once more.
    twice = but(experiment.arms[2], name="again", sysctl={"vm.x": "1"})
    experiment = but(experiment, arms=(*experiment.arms, twice))
    tries = broken_at(monkeypatch, 2)
    failures: dict[str, SeriesError] = {}
    kernels = build_arms(made_of(experiment, options), options, silent, "perf", failures)
    assert tries == [0, 1, 2, 3]
    assert list(kernels) == ["base", "patch-1", "patch-2", "patch-3", "again"]
    assert [kernel.identity.key for kernel in kernels.values()] == ["0", "1", "key-2", "3", "key-2"]
    assert list(failures) == ["patch-2", "again"]
    assert str(failures["patch-2"]).startswith(
        "the series up to 0002-p.patch (mm: two): 2 patches: does not"
    )


@pytest.mark.parametrize("numbers", [(0,), (1, 2, 3)])
def test_without_a_base_or_anything_beside_it_nothing_is_measured(
    options: Options, monkeypatch: pytest.MonkeyPatch, numbers: tuple[int, ...]
) -> None:
    broken_at(monkeypatch, *numbers)
    with pytest.raises(SeriesError, match="does not build"):
        build_arms(made_of(steps(), options), options, silent, "perf", {})


def test_a_step_is_compared_with_the_last_one_that_was_built() -> None:
    experiment = but(steps(), unbuilt=("patch-2",))
    assert experiment.compared == (
        ("base", "patch-1"),
        ("patch-1", "patch-2"),
        ("patch-1", "patch-3"),
        ("base", "patch-3"),
    )
    last = but(experiment, unbuilt=("patch-2", "patch-3"))
    assert last.compared == (("base", "patch-1"), ("patch-1", "patch-2"), ("patch-1", "patch-3"))
    # What is repeated to see that runs are exact is a run that can be made.
    assert {run.arm for run in make_plan(last, 2).runs if run.repeat} == {"patch-1"}


def test_arms_with_the_code_of_the_one_before_are_known(options: Options) -> None:
    def kernel(code: str) -> Any:
        return SimpleNamespace(identity=SimpleNamespace(code_key=code))

    experiment = steps()
    kernels = {arm.name: kernel(code) for arm, code in zip(experiment.arms, "aabb", strict=True)}
    assert same_as_before(made_of(experiment, options), kernels) == {"patch-1", "patch-3"}
    # Another setting is another arm, whatever its code.
    arms = [experiment.arms[0], but(experiment.arms[1], sysctl={"vm.x": "1"})]
    other = but(experiment, arms=tuple(arms))
    assert same_as_before(made_of(other, options), kernels) == frozenset()


def test_an_arm_keeps_its_flavour_under_the_name_of_the_experiments_own(options: Options) -> None:
    own = KernelSpec(source="deb:linux-source-6.12", flavour="selftest")
    arm = but(PLAIN.all_arms[0], kernel=own)
    experiment = but(PLAIN, arms=(arm,), check=CHECKED)
    made = made_of(experiment, options).arms[0].kernels
    assert {name: spec.flavour for name, spec in made.items()} == {
        "perf": "selftest",
        "lockdep": "lockdep",
    }


@pytest.mark.parametrize("mode", ["exact", "wall"])
def test_kernels_of_wall_guests_are_requested_as_such(options: Options, mode: str) -> None:
    arms = made_of(but(PLAIN, mode=mode), options).arms
    assert {kernel.mode for arm in arms for kernel in arm.kernels.values()} == {mode}


def test_kernels_that_are_missing_take_as_long_as_the_last_ones_did(lab: Lab) -> None:
    lab.series("mine", FASTER)
    experiment = but(PLAIN, kernel=lab.spec)
    options = Options(checkout=lab.checkout, cache=lab.cache)
    lab.cache.mkdir()
    remember(lab.cache, "perf", "first", Expected(1943, 500.0))
    remember(lab.cache, "perf", "next", Expected(30, 60.0))
    rows = forecast_kernels(made_of(experiment, options), options)
    assert [(row.arm, row.cached, row.seconds) for row in rows] == [
        ("base", False, 500.0),
        ("patched", False, 60.0),
    ]
    built = provide(lab.request())
    base, patched = forecast_kernels(made_of(experiment, options), options)
    assert (base.key, base.cached, base.seconds) == (built.identity.key, True, 0.0)
    # An object more than what is compiled each time.
    assert (patched.cached, patched.seconds) == (False, 62.0)
    lab.series("two", FASTER, replace("mm/debug.c", "+ 1", "+ 2"))
    two = but(experiment, series=SeriesSpec(path="configs/series/two"))
    steps = made_of(per_patch(two, SUBJECTS[:2]), options)
    # The second has no object here; boxed it begins with the objects of the base, not of the first.
    for boxed, last in ((False, 60.0), (True, 62.0)):
        rows = forecast_kernels(steps, but(options, sandbox=boxed))
        assert [row.seconds for row in rows] == [0.0, 62.0, last]


def test_where_functions_got_another_name_alone_the_lines_say_what_is_executed(lab: Lab) -> None:
    paths = lab.series("mine", renamed)
    for patches in ((), paths):
        provide(lab.request(patches))
    options = Options(checkout=lab.checkout, cache=lab.cache)
    both = made_of(but(PLAIN, kernel=lab.spec), options)
    lines = {path.name: path.read_text() for path in paths}
    names, by_kernels = changed_by(both, lines, options)
    assert ("steady" in names, by_kernels) == (True, False)
    assert changed_by(both, {}, options) == ((), True)


def test_a_run_takes_what_it_took_in_the_newest_session_of_the_same(tmp_path: Path) -> None:
    manifest = ExactSession().manifest()
    other = but(manifest.experiment, name="other")
    sessions = {
        "a-old": (manifest, (90.0,), 1),
        "b-new": (manifest, (10.0, 20.0), 2),
        "c-other": (but(manifest, experiment=other), (70.0,), 3),
        "d-empty": (manifest, (), 4),
    }
    for name, (written, seconds, moment) in sessions.items():
        store = SessionStore(tmp_path / name)
        store.create(written)
        for record, elapsed in zip(ExactSession().records(), seconds, strict=False):
            store.append(record, RunCost(run_id=record.run_id, elapsed_s=elapsed, guest_cpu_s=1.0))
        os.utime(tmp_path / name / "manifest.json", (moment, moment))
    (tmp_path / "e-torn").mkdir()
    (tmp_path / "e-torn" / "manifest.json").write_text("{")
    assert forecast_run(manifest.experiment, tmp_path) == RunForecast(15.0, "b-new")
    elsewhere = but(manifest.experiment, name="never")
    # By what a run of its cases took where coverage was counted, or else by a guess.
    counted = {(case.case, case.guest): case.run_cpu_s for case in shipped().cases}
    known = (counted["filemap-4k", "laptop"] + counted["filemap-thp", "laptop"]) / 2
    assert forecast_run(elsewhere, tmp_path) == RunForecast(known, "")
    full = but(elsewhere, guest="full")
    assert forecast_run(full, tmp_path) == RunForecast(UNKNOWN_RUN_S, "")


KEYS = {("perf", "base"): "a" * 32, ("perf", "patched"): "b" * 32}


def test_the_same_kernels_have_the_same_key_under_any_name_and_others_another() -> None:
    renamed = {("perf", "one"): "b" * 32, ("perf", "two"): "a" * 32, ("x", "y"): "a" * 32}
    assert cache_key(renamed) == cache_key(KEYS)
    for other in ({}, {("perf", "base"): "a" * 32}, {**KEYS, ("l", "b"): "c"}):
        assert cache_key(other) != cache_key(KEYS)
