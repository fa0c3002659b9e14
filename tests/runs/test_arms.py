"""The kernels of many arms: which are the same, and which patch stops a series."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from errors import SeriesError
from experiment.plan import make_plan
from experiment.spec import CheckSpec, Experiment, KernelSpec, SeriesSpec
from experiment.steps import per_patch
from kernels import build
from kernels.cache import planned
from kernels.make import MakeProgress
from runs.arms import build_arms, kernel_spec, planned_kernels, same_as_before
from runs.manifest import _label
from runs.options import Options
from tests.experiment.test_plan import make_experiment
from tests.runs.test_session import PATCH

SUBJECTS = ("mm: one", "mm: two", "mm: three")


@pytest.fixture
def options(tmp_path: Path) -> Options:
    series = tmp_path / "configs/series/mine"
    series.mkdir(parents=True)
    for number, subject in enumerate(SUBJECTS, 1):
        patch = PATCH.replace("mm: x", subject)
        (series / f"000{number}-p.patch").write_text(patch)
    return Options(checkout=tmp_path, cache=tmp_path / "cache")


def steps(**series: Any) -> Experiment:
    experiment = make_experiment(
        [("w", "default")], series=SeriesSpec(path="configs/series/mine", **series)
    )
    return per_patch(experiment, SUBJECTS)


def silent(arm: str, so_far: MakeProgress) -> None:
    """Nobody looks."""


def test_kernels_are_built_from_few_patches_to_many(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[int] = []

    def provide(spec: KernelSpec, patches: Sequence[Path], **_: Any) -> Any:
        built.append(len(patches))
        return SimpleNamespace(patches=[path.name for path in patches])

    monkeypatch.setattr(build, "provide", provide)
    made: Any = build_arms(steps(reverse=True), options, silent)
    assert built == [0, 1, 2, 3]
    # The base of a source that holds the series has all that takes it out.
    assert [len(kernel.patches) for kernel in made.values()] == [3, 2, 1, 0]
    assert made["patch-2"].patches == ["0001-p.patch"]


def test_progress_says_which_kernel_of_all_flavours_is_built(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    def provide(spec: KernelSpec, patches: Sequence[Path], *, progress: Any, **_: Any) -> Any:
        progress(MakeProgress(1, 2, 3.0))

    experiment = make_experiment([("w", "default")], series=SeriesSpec(path="configs/series/mine"))
    experiment = experiment.model_copy(update={"check": CheckSpec(selftests=())})
    monkeypatch.setattr(build, "provide", provide)
    names: list[str] = []
    for flavour in ("", "lockdep"):
        build_arms(experiment, options, lambda name, _: names.append(name), flavour)
    assert names == [
        "kernel 1 of 4, base", "kernel 2 of 4, patched",
        "kernel 3 of 4, base (lockdep)", "kernel 4 of 4, patched (lockdep)",
    ]  # fmt: skip


def test_arms_that_differ_in_a_setting_share_a_kernel(options: Options) -> None:
    experiment = make_experiment([("w", "default")])
    base = experiment.all_arms[0]
    other = base.model_copy(update={"name": "other", "sysctl": {"vm.x": "1"}})
    experiment = experiment.model_copy(update={"arms": (base, other)})
    assert [kernel.arm for kernel in planned_kernels(experiment, options)] == [base.name]


@pytest.mark.parametrize("blamed", ["0002-p.patch (mm: two)", "0001-p.patch (mm: one)"])
def test_the_patch_that_does_not_build_in_the_middle_is_named(
    options: Options, monkeypatch: pytest.MonkeyPatch, blamed: str
) -> None:
    built: list[int] = []

    def provide(spec: KernelSpec, patches: Sequence[Path], **_: Any) -> Any:
        if len(patches) == 2:
            raise SeriesError("does not build: x.c:1: error", where=blamed, next_step="see log")
        built.append(len(patches))

    monkeypatch.setattr(build, "provide", provide)
    with pytest.raises(SeriesError) as caught:
        build_arms(steps(), options, silent)
    message = str(caught.value)
    assert message.startswith("the series up to 0002-p.patch (mm: two): ")
    assert blamed in message
    assert message.endswith("does not build: x.c:1: error\nnext: see log")
    # What was built before stays in the cache.
    assert built == [0, 1]


def broken_at(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> list[int]:
    """Has series of so many patches not build; what is tried is noted."""
    tries: list[int] = []

    def provide(spec: KernelSpec, patches: Sequence[Path], **_: Any) -> Any:
        tries.append(len(patches))
        if len(patches) in numbers:
            raise SeriesError("does not build", where=f"{len(patches)} patches")
        return planned(spec, str(len(patches)), Path("/nowhere"))

    def key_of(spec: KernelSpec, patches: Sequence[Path], **_: Any) -> str:
        return f"key-{len(patches)}"

    monkeypatch.setattr(build, "provide", provide)
    monkeypatch.setattr(build, "key_of", key_of)
    return tries


def test_an_arm_that_does_not_build_does_not_keep_others_from_it(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = steps()
    # An arm with the same kernel is not tried once more.
    twice = experiment.arms[2].model_copy(update={"name": "again", "sysctl": {"vm.x": "1"}})
    experiment = experiment.model_copy(update={"arms": (*experiment.arms, twice)})
    tries = broken_at(monkeypatch, 2)
    failures: dict[str, SeriesError] = {}
    kernels = build_arms(experiment, options, silent, failures=failures)
    assert tries == [0, 1, 2, 3]
    assert list(kernels) == ["base", "patch-1", "patch-2", "patch-3", "again"]
    assert [kernel.identity.key for kernel in kernels.values()] == [
        "0", "1", "key-2", "3", "key-2",
    ]  # fmt: skip
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
        build_arms(steps(), options, silent, failures={})


def test_a_step_is_compared_with_the_last_one_that_was_built() -> None:
    experiment = steps().model_copy(update={"unbuilt": ("patch-2",)})
    assert experiment.compared == (
        ("base", "patch-1"), ("patch-1", "patch-2"), ("patch-1", "patch-3"), ("base", "patch-3"),
    )  # fmt: skip
    last = experiment.model_copy(update={"unbuilt": ("patch-2", "patch-3")})
    assert last.compared == (("base", "patch-1"), ("patch-1", "patch-2"), ("patch-1", "patch-3"))
    # What is repeated to see that runs are exact is a run that can be made.
    assert {run.arm for run in make_plan(last, 2).runs if run.repeat} == {"patch-1"}


def test_arms_with_the_code_of_the_one_before_are_known() -> None:
    def kernel(code: str) -> Any:
        return SimpleNamespace(identity=SimpleNamespace(code_key=code))

    experiment = steps()
    kernels = {arm.name: kernel(code) for arm, code in zip(experiment.arms, "aabb", strict=True)}
    assert same_as_before(experiment, kernels) == {"patch-1", "patch-3"}
    session: Any = SimpleNamespace(experiment=experiment, measured=SimpleNamespace(kernels=kernels))
    assert [_label(session, arm) for arm in experiment.arms] == [
        "without the series", "1: mm: one: same code as the step before", "2: mm: two",
        "3: mm: three: same code as the step before",
    ]  # fmt: skip
    session.experiment = experiment.model_copy(update={"compare": "base"})
    assert _label(session, experiment.arms[1]) == "1: mm: one"
    # Another setting is another arm, whatever its code.
    arms = [experiment.arms[0], experiment.arms[1].model_copy(update={"sysctl": {"vm.x": "1"}})]
    other = experiment.model_copy(update={"arms": tuple(arms)})
    assert same_as_before(other, kernels) == frozenset()


def test_an_arm_keeps_its_flavour_under_the_name_of_the_experiments_own() -> None:
    own = KernelSpec(source="deb:linux-source-6.12", flavour="selftest")
    experiment = make_experiment([("w", "default")])
    arm = experiment.all_arms[0].model_copy(update={"kernel": own})
    assert (
        kernel_spec(experiment, arm)
        == kernel_spec(experiment, arm, experiment.kernel.flavour)
        == own
    )
    assert kernel_spec(experiment, arm, "lockdep").flavour == "lockdep"


def test_kernels_of_wall_guests_are_requested_as_such() -> None:
    experiment = make_experiment([("w", "default")])
    wall = experiment.model_copy(update={"mode": "wall"})
    arm = experiment.all_arms[0]
    for flavour in ("", "lockdep"):
        assert kernel_spec(experiment, arm, flavour).mode == "exact"
        assert kernel_spec(wall, arm, flavour).mode == "wall"
