from __future__ import annotations

import pytest

from tests.workloads.conftest import CATALOGUE, Run, counter
from workloads.metrics import DEFINITIONS, METRIC_NAMES, metrics_of, samples

# Written down from the two recorded runs; exact, as the guests are.
SAMPLES_4K = {
    "4k.bw": 292.130859375,
    "4k.iops": 74785.5,
    "4k.ios": 149571.0,
    "4k.guest_ns_per_io": 14262.693868566666,
    "4k.refaults_per_io": 0.38163506603244257,
    "4k.major_faults_per_io": 0.5877013386490492,
    "4k.device_bytes_per_fio_byte": 0.5876756240797398,
    "4k.scanned_per_io": 0.5176651376783755,
    "4k.reclaim_efficiency": 0.9999900651724686,
    "4k.direct_scan_share": 1.0,
    "4k.memory_stall_ns_per_io": 7947.10821667919,
    "4k.file_thp_mib": 0.0,
}
SAMPLES_THP = {
    "thp.bw": 17.598958333333332,
    "thp.iops": 4505.333333333333,
    "thp.ios": 6758.0,
    "thp.guest_ns_per_io": 233734.46285883398,
    "thp.refaults_per_io": 241.61795896221764,
    "thp.major_faults_per_io": 0.47881523133076853,
    "thp.device_bytes_per_fio_byte": 245.09087994475684,
    "thp.scanned_per_io": 243.19633520765515,
    "thp.reclaim_efficiency": 1.0,
    "thp.direct_scan_share": 1.0,
    "thp.memory_stall_ns_per_io": 18729.900364999507,
    "thp.file_thp_mib": 54.0,
    "switch.bw": 321.5859375,
    "switch.iops": 82326.0,
    "switch.ios": 41163.0,
    "switch.guest_ns_per_io": 16511.527342516336,
    "switch.refaults_per_io": 0.09707747248742803,
    "switch.major_faults_per_io": 0.6505113815805457,
    "switch.device_bytes_per_fio_byte": 0.6504627942569784,
    "switch.scanned_per_io": 0.32067633554405656,
    "switch.reclaim_efficiency": 1.0,
    "switch.direct_scan_share": 1.0,
    "switch.memory_stall_ns_per_io": 5684.546801739426,
    "switch.file_thp_mib": 0.0,
}


def test_samples_of_recorded_runs(run_4k: Run, run_thp: Run) -> None:
    assert samples(run_4k.result.phases) == SAMPLES_4K
    assert samples(run_thp.result.phases) == SAMPLES_THP


def test_bandwidth_by_hand(run_4k: Run) -> None:
    """Every I/O is a page: 149571 of 4096 bytes in the 2 s that were asked for."""
    assert samples(run_4k.result.phases)["4k.bw"] == pytest.approx(149571 / 2 * 4096 / 2**20)


def test_per_io_metrics_count_the_ramp(run_4k: Run) -> None:
    """The kernel's counters run through 0.6 s of ramp and 2 s of measurement."""
    got = samples(run_4k.result.phases)
    ios = 149571 / 2 * 2.6
    assert got["4k.refaults_per_io"] == pytest.approx(74206 / ios)
    assert got["4k.major_faults_per_io"] == pytest.approx(114274 / ios)
    assert got["4k.guest_ns_per_io"] == pytest.approx(2773271000 / ios)
    assert got["4k.device_bytes_per_fio_byte"] == pytest.approx(468045824 / (ios * 4096))


def test_counters_are_differences_over_the_phase(run_thp: Run) -> None:
    """Both ends moved by as much: the same number."""
    before, after = "switch/before/proc/vmstat", "switch/after/proc/vmstat"
    moved = run_thp.but(before, counter("pgmajfault", 3883 + 7)).but(
        after, counter("pgmajfault", 30660 + 7)
    )
    assert samples(moved.result.phases) == SAMPLES_THP


def test_a_phase_without_fio_has_no_samples(run_thp: Run) -> None:
    got = samples(run_thp.without("thp/fio.json").result.phases)
    assert {name.partition(".")[0] for name in got} == {"switch"}


def test_metrics_of_a_case_are_those_of_its_samples(run_4k: Run, run_thp: Run) -> None:
    for run in (run_4k, run_thp):
        phases = [phase.name for phase in CATALOGUE[run.workload].phases]
        names = [metric.name for metric in metrics_of(phases)]
        assert names == list(samples(run.result.phases))


def test_directions() -> None:
    """Less work and less traffic for an I/O is better."""
    assert len(set(METRIC_NAMES)) == len(DEFINITIONS)
    lower = {definition.name for definition in DEFINITIONS if definition.direction == "lower"}
    assert lower == {name for name in METRIC_NAMES if "_per_" in name} | {"direct_scan_share"}


def test_in_real_time_rates_are_fios_own(run_4k: Run, run_thp: Run) -> None:
    for run in (run_4k, run_thp):
        got = samples(run.result.phases, real_time=True)
        for phase in run.result.phases:
            assert phase.fio is not None
            assert got[f"{phase.name}.iops"] == pytest.approx(phase.fio.iops, rel=1e-6)
            assert got[f"{phase.name}.ios"] == phase.fio.ios
