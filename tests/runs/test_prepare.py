from __future__ import annotations

from pathlib import Path

import pytest

from experiment.load import load_experiment
from experiment.plan import Size, scaled
from experiment.spec import Experiment, SpecError
from runs.arms import shapes
from runs.prepare import catalogue, require_job_fits
from workloads.spec import Workload, load_catalogue

CHECKOUT = Path(__file__).resolve().parents[2]


def filemap() -> Experiment:
    return load_experiment(Path("filemap-v4"), catalogue=catalogue(CHECKOUT))


def with_long_line(workload: Workload) -> Workload:
    first = workload.phases[0].model_copy(
        update={"fio": ("--name=cached", "--description=" + "x" * 4096)}
    )
    return workload.model_copy(update={"phases": (first, *workload.phases[1:])})


def sizes_of(asked: Experiment) -> list[dict[str, Size]]:
    return [
        {arm: scaled(asked.dataset, guest) for arm, guest in of_arms.items()}
        for of_arms in shapes(asked).values()
    ]


def test_shipped_jobs_fit() -> None:
    asked = filemap()
    require_job_fits(asked, sizes_of(asked), load_catalogue())


def test_a_job_too_long_is_refused_before_anything_is_built() -> None:
    asked = filemap()
    workloads = load_catalogue()
    workloads["filemap-4k"] = with_long_line(workloads["filemap-4k"])
    with pytest.raises(SpecError, match=r"case filemap-4k: job of \d+ bytes, at most 4096 fit"):
        require_job_fits(asked, sizes_of(asked), workloads)


def test_everything_an_experiment_may_name_is_in_the_catalogue() -> None:
    known = catalogue(CHECKOUT)
    assert known.workloads["filemap-thp"] == {
        "default": ("thp", "switch"),
        "v1": ("thp", "switch"),
    }
    assert {"bw", "iops", "refaults_per_io"} <= set(known.metrics)
    assert "configs/series/noop" in known.series
    assert {"smoke", "laptop", "full", "wall"} == set(known.guests)
