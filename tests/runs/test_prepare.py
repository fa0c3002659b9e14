from __future__ import annotations

from pathlib import Path

import pytest

from experiment.load import load_experiment
from experiment.plan import scaled
from experiment.spec import Experiment, SpecError
from runs.prepare import catalogue, guest_of, require_job_fits
from workloads.spec import Workload, load_catalogue

CHECKOUT = Path(__file__).resolve().parents[2]


def filemap() -> Experiment:
    return load_experiment(Path("filemap-v4"), catalogue=catalogue(CHECKOUT))


def with_long_line(workload: Workload) -> Workload:
    first = workload.phases[0].model_copy(
        update={"fio": ("--name=cached", "--description=" + "x" * 4096)}
    )
    return workload.model_copy(update={"phases": (first, *workload.phases[1:])})


def test_shipped_jobs_fit() -> None:
    asked = filemap()
    guest = guest_of(asked)
    require_job_fits(asked, guest, (scaled(asked.dataset, guest),), load_catalogue())


def test_a_job_too_long_is_refused_before_anything_is_built() -> None:
    asked = filemap()
    guest = guest_of(asked)
    workloads = load_catalogue()
    workloads["filemap-4k"] = with_long_line(workloads["filemap-4k"])
    with pytest.raises(SpecError, match=r"case filemap-4k: job of \d+ bytes, at most 4096 fit"):
        require_job_fits(asked, guest, (scaled(asked.dataset, guest),), workloads)


def test_everything_an_experiment_may_name_is_in_the_catalogue() -> None:
    known = catalogue(CHECKOUT)
    assert known.workloads["filemap-thp"] == {
        "default": ("thp", "switch"),
        "v1": ("thp", "switch"),
    }
    assert {"bw", "iops", "refaults_per_io"} <= set(known.metrics)
    assert "configs/series/noop" in known.series
    assert {"smoke", "laptop", "full"} == set(known.guests)
