"""What comes with the lab loads, fits its guests, and says what the documents say."""

from pathlib import Path

import pytest

from experiment.ad_hoc import from_series
from experiment.load import EXPERIMENTS, GUESTS, Catalogue, load_experiment, load_guest
from experiment.machine import names_in
from experiment.plan import make_plan, require_memory, scaled
from experiment.spec import Experiment, Mode
from runs import resolved
from tests.experiment.conftest import CHECKOUT, SERIES
from tests.values import data

# More than the initramfs of the lab has ever been.
INITRAMFS_MIB = 100
SHIPPED = ("filemap-v1", "filemap-v4", "noop", "slow-add")
MODES: tuple[Mode, ...] = ("exact", "wall")
CATALOGUE = resolved.catalogue(CHECKOUT)


def load(name: str, catalogue: Catalogue, *overrides: str) -> Experiment:
    path = CHECKOUT / "configs/experiments" / f"{name}.toml"
    return load_experiment(path, overrides=overrides, catalogue=catalogue)


def test_all_are_known_by_name() -> None:
    assert {*SHIPPED, "thp-matrix"} <= set(names_in(EXPERIMENTS))
    assert {"full", "laptop", "smoke", "wall"} <= set(names_in(GUESTS))


@pytest.mark.parametrize("guest", ["full", "laptop", "smoke", "wall"])
@pytest.mark.parametrize("name", SHIPPED)
def test_each_runs_on_each_guest(name: str, guest: str, catalogue: Catalogue) -> None:
    experiment = load(name, catalogue, f"guest={guest}")
    blocks = 24 if name == "slow-add" else 8
    assert (experiment.name, experiment.blocks, experiment.seed) == (name, blocks, 1)
    shape = load_guest(CHECKOUT / "configs/guests" / f"{guest}.toml")
    size = scaled(experiment.dataset, shape)
    assert size.brd_mib / size.cgroup_limit_mib == (2.5 if name == "filemap-v1" else 2)
    assert size.file_mib / size.brd_mib == 13 / 16
    require_memory(size, shape, INITRAMFS_MIB)
    twins = sum(2 * len(twin.cases) * twin.blocks for twin in experiment.twins)
    assert twins == {"filemap-v4": 16, "slow-add": 8}.get(name, 0)
    assert len(make_plan(experiment).runs) == (blocks * 2 + 1) * len(experiment.cases) + twins


@pytest.mark.parametrize("series", SERIES)
def test_the_series_of_the_tests_exist(series: str) -> None:
    assert list((CHECKOUT / series).glob("*.patch"))


def test_path_and_work_of_the_first_phases_are_judged(catalogue: Catalogue) -> None:
    for name, cases in {
        "filemap-v4": ["filemap-4k", "filemap-thp"],
        "filemap-v1": ["filemap-4k:v1", "filemap-thp:v1"],
    }.items():
        experiment = load(name, catalogue)
        assert [case.name for case in experiment.cases] == cases
        exact, wall = ([case.judged(mode) for case in experiment.cases] for mode in MODES)
        assert exact == [("4k.path", "4k.work"), ("thp.path", "thp.work")]
        assert wall == [("4k.bw",), ("thp.bw",)]
        # The source holds the series: the base arm is the one with patches.
        assert [arm.patches for arm in experiment.all_arms] == [True, False]
    for name in ("noop", "slow-add"):
        assert [arm.patches for arm in load(name, catalogue).all_arms] == [False, True]


@pytest.mark.parametrize("name", ["swap-tables", "workloads"])
def test_what_belongs_to_a_build_is_within_the_threshold_of_its_workload(name: str) -> None:
    """Two kernels that do the same differ by up to 0.5 % in ``random`` of ``swap``."""
    made = load_experiment(Path(name), catalogue=CATALOGUE)
    assert made.thresholds.of("swap", "random.path").change == 0.015
    assert made.thresholds.of("swap", "pageout.path").change == 0.0025


def test_a_threshold_is_of_its_workload_alone() -> None:
    """Both have a phase ``mapped``; only that of SQLite on ext4 has a threshold of its own."""
    made = from_series(["configs/series/noop"], workloads=["all"], catalogue=CATALOGUE)
    assert made.thresholds.of("block", "mapped.path").change == 0.0025
    assert made.thresholds.of("sqlite", "mapped.path").change == 0.0025
    assert made.thresholds.of("redis", "append.path").change == 0.015
    both = load_experiment(Path("applications"), catalogue=CATALOGUE).thresholds
    assert both.of("sqlite:ext4", "mapped.path").change == 0.005
    assert both.of("sqlite", "mapped.path").change == 0.0025


@pytest.mark.parametrize(
    ("override", "expected"), data(__file__, "what_an_experiment_says_of_a_metric_holds")
)
def test_what_an_experiment_says_of_a_metric_holds(override: str, expected: float) -> None:
    made = load_experiment(Path("swap-tables"), overrides=[override], catalogue=CATALOGUE)
    assert made.thresholds.of("swap", "random.path").change == expected
