"""The suite for every night: what its file has is what the lab chooses, in the time it says."""

from __future__ import annotations

import tomllib

import pytest

from errors import UsageError
from experiment.ad_hoc import load_auto
from experiment.load import CONFIGS
from results.coverage import Coverage
from runs import suite
from runs.coverage import shipped
from workloads.spec import load_catalogue

FILE = CONFIGS / "experiments" / f"{suite.NAME}.toml"
HOUR, CORES = 60.0, 4


def test_the_shipped_file_is_what_the_command_writes() -> None:
    coverage = shipped()
    chosen = suite.choose(coverage, HOUR, CORES)
    assert FILE.read_text() == suite.experiment_text(coverage, chosen, HOUR, CORES)


def test_every_case_of_it_is_one_of_the_lab() -> None:
    data = tomllib.loads(FILE.read_text())
    catalogue = load_catalogue()
    for case in data["cases"]:
        workload = catalogue[case["workload"]]
        assert case.get("variant", "default") in {"default", *workload.variants}
        assert set(workload.additions) <= set(data["kernel"]["additions"])


def test_a_night_of_it_ends_in_time_on_any_number_of_cores() -> None:
    coverage = shipped()
    for minutes, cores in ((60.0, 4), (60.0, 2), (30.0, 4), (25.0, 2)):
        chosen = suite.choose(coverage, minutes, cores)
        assert 0 < suite.minutes_of(chosen, cores) <= minutes
    assert suite.minutes_of([], 4) < suite.minutes_of(suite.choose(coverage, 60, 4), 4)


def test_more_time_executes_no_less() -> None:
    coverage = shipped()
    together = [suite.choose(coverage, minutes, 2)[-1].together for minutes in (25, 35, 45, 60)]
    assert together == sorted(together)


def test_where_nothing_fits_somebody_has_to_give_more() -> None:
    with pytest.raises(UsageError, match="15 minutes on 2 cores: no case fits") as failure:
        suite.choose(shipped(), 15, 2)
    assert "--minutes" in failure.value.next_step


def test_an_empty_coverage_has_no_suite() -> None:
    with pytest.raises(UsageError):
        suite.choose(Coverage("a", "6", (), {}), HOUR, CORES, load_auto())
