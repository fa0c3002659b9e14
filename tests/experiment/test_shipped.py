"""What comes with the lab loads, fits its guests, and says what the documents say."""

from pathlib import Path

import pytest

from experiment.ad_hoc import from_series
from experiment.load import Catalogue, known_experiments, known_guests, load_experiment, load_guest
from experiment.plan import make_plan, require_memory, scaled
from experiment.spec import Experiment, Mode, PhaseTimes
from runs import resolved
from tests.experiment.conftest import CHECKOUT, SERIES

# More than the initramfs of the lab has ever been.
INITRAMFS_MIB = 100
SHIPPED = ("filemap-v1", "filemap-v4", "noop", "slow-add")
MODES: tuple[Mode, ...] = ("exact", "wall")
CATALOGUE = resolved.catalogue(CHECKOUT)


def load(name: str, catalogue: Catalogue, *overrides: str) -> Experiment:
    path = CHECKOUT / "configs/experiments" / f"{name}.toml"
    return load_experiment(path, overrides=overrides, catalogue=catalogue)


def test_all_are_known_by_name() -> None:
    assert {*SHIPPED, "thp-matrix"} <= set(known_experiments())
    assert {"full", "laptop", "smoke", "wall"} <= set(known_guests())


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


def test_full_is_the_original(catalogue: Catalogue) -> None:
    v4, v1 = (load(name, catalogue) for name in ("filemap-v4", "filemap-v1"))
    shape = load_guest(CHECKOUT / "configs/guests/full.toml")
    assert (shape.vcpus, shape.jobs, shape.scale) == (16, v4.dataset.jobs, 1)

    def times(experiment: Experiment) -> dict[str, PhaseTimes]:
        return {
            phase: value for case in experiment.cases for phase, value in case.times["full"].items()
        }

    four, switch = PhaseTimes(ramp_s=30, runtime_s=300), PhaseTimes(ramp_s=0, runtime_s=5)
    assert times(v4) == {"4k": four, "thp": PhaseTimes(ramp_s=30, runtime_s=600), "switch": switch}
    assert times(v1) == {"4k": four, "thp": PhaseTimes(ramp_s=0, runtime_s=300), "switch": switch}


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        (
            "filemap-v4",
            {
                "4k.bw": (2445.02, 2625.56, "MiB/s", "+7.4"),
                "4k.iops": (625924.36, 672142.61, "1/s", "+7.4"),
                "thp.bw": (7935.51, 8928.74, "KiB/s", "+12.5"),
                "thp.iops": (1979.52, 2231.27, "1/s", "+12.7"),
                "switch.bw": (4545, 4635, "B/s", "+2.0"),
            },
        ),
        (
            "filemap-v1",
            {
                "4k.bw": (2499.17, 2599.83, "MiB/s", "+4.0"),
                "4k.iops": (639785.81, 665556.34, "1/s", "+4.0"),
                "thp.bw": (53542.44, 53635.82, "KiB/s", "+0.2"),
                "thp.iops": (13379.39, 13402.82, "1/s", "+0.2"),
                "switch.bw": (3923.21, 3914.68, "MiB/s", "-0.2"),
                "switch.iops": (1004340.78, 1002158.11, "1/s", "-0.2"),
            },
        ),
    ],
)
def test_published_figures_are_those_of_the_documents(
    name: str, figures: dict[str, tuple[float, float, str, str]], catalogue: Catalogue
) -> None:
    published = [figure for case in load(name, catalogue).cases for figure in case.published]
    assert {
        figure.metric: (figure.base, figure.patched, figure.unit, f"{figure.change:+.1%}"[:-1])
        for figure in published
    } == figures


def test_where_a_document_contradicts_itself_a_note_says_so(catalogue: Catalogue) -> None:
    notes = {
        figure.metric: figure.note
        for case in load("filemap-v4", catalogue).cases
        for figure in case.published
    }
    assert "+10.4 %" in notes["thp.bw"]
    assert "+12.5 %" in notes["thp.bw"]
    assert "16 reads" in notes["switch.bw"]


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
    ("override", "expected"),
    [
        ("thresholds.change=0.02", 0.02),
        ("thresholds.change=0.001", 0.015),
        ('cases.0.thresholds={"random.path"=0.003}', 0.003),
        ('thresholds.metrics={"random.path"=0.004}', 0.004),
        ("mode=wall", 0.01),
    ],
)
def test_what_an_experiment_says_of_a_metric_holds(override: str, expected: float) -> None:
    made = load_experiment(Path("swap-tables"), overrides=[override], catalogue=CATALOGUE)
    assert made.thresholds.of("swap", "random.path").change == expected
