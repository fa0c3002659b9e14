import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from errors import SpecError
from results.profile import PhaseProfile, Profile
from tests.values import but
from tests.workloads.conftest import CATALOGUE, RECORDED, Run, counter, swap
from workloads.metrics import (
    METRIC_NAMES,
    OF_FIO,
    TABLE,
    before_phases,
    metrics_of,
    of_profile,
    samples,
    shown_by,
    thresholds_of,
    uncounted,
)
from workloads.spec import Cost, Phase

# Written down from recorded runs, by workload; exact, as the guests are.
SAMPLES = json.loads((RECORDED / "samples.json").read_text())


def samples_of(run: Run) -> dict[str, float]:
    return samples(run.result.phases, run.phases)


def test_samples_of_recorded_runs_are_the_metrics_of_their_cases(
    run_4k: Run, run_thp: Run, run_dirty: Run, run_matrix: Run, run_overwrite: Run
) -> None:
    for run in (run_4k, run_thp, run_dirty, run_matrix, run_overwrite):
        got = samples_of(run)
        assert got == SAMPLES[run.workload]
        assert [metric.name for metric in metrics_of(run.phases)] == list(got)


COSTED = Phase(
    name="4k",
    drop_caches=True,
    thp="never",
    fio=("--name=x",),
    start_ns=1000,
    costs=(
        Cost(name="io", title="I/O", ios=True, ns=10),
        Cost(name="folio", title="folio added", calls=("add",), ns=200),
    ),
)


def counted(**work: float) -> Profile:
    """30000 instructions, of which 2000 are the program that keeps the vCPU from being idle."""
    phase = PhaseProfile(
        phase="4k",
        instructions=30000,
        kernel=(),
        user={"busybox": 2000, "fio": 500},
        by_vcpu=(30000,),
        units={},
        work=work,
    )
    return Profile(run_id="r", phases=(phase,))


def test_what_an_io_takes_is_path_times_work() -> None:
    """100 I/Os and 60 folios are 1000 + 1000 + 12000 of work; 28000 were executed for it."""
    got = of_profile(counted(io=100, folio=60), (COSTED,))
    assert got == {"4k.path": 2000.0, "4k.work": 140.0}
    # Twice as many folios: more work for an I/O, and of the same cost a shorter path.
    assert of_profile(counted(io=100, folio=120), (COSTED,)) == {
        "4k.path": 1000 * 28000 / 26000,
        "4k.work": 260.0,
    }


def test_a_kernel_that_lacks_a_function_has_no_path_and_says_so() -> None:
    assert of_profile(counted(io=100), (COSTED,)) == {}
    (note,) = uncounted(counted(io=100), (COSTED,))
    assert "folio added" in note
    assert "add" in note
    assert uncounted(counted(io=100, folio=0), (COSTED,)) == ()


def test_path_and_work_are_metrics_where_somebody_counts_and_costs_are_known(
    run_matrix: Run,
) -> None:
    def names(phases: Sequence[Phase], counted: bool) -> set[str]:
        return {metric.name for metric in metrics_of(phases, counted=counted)}

    of_both = names((COSTED,), True) - names((COSTED,), False)
    assert of_both == {"4k.path", "4k.work", "4k.before"}
    more = names(run_matrix.phases, True) - names(run_matrix.phases, False)
    assert more == {f"{phase.name}.before" for phase in run_matrix.phases}


def test_what_goes_by_before_a_phase_is_since_the_one_before(run_thp: Run) -> None:
    """1,060 ms from power-on, 12.5 ms from the end of the first phase; nothing on arm64."""
    marks = {"thp/clock": b"1 1060000000\n0 1900000000\n", "switch/clock": b"2 1912500000\n0 2\n"}
    run = replace(run_thp, files={**run_thp.files, **marks, "uname": b"Linux (none) 6.12 x86_64"})
    assert before_phases(run.result.phases) == {"thp.before": 1060.0, "switch.before": 12.5}
    other = replace(run, files={**run.files, "uname": b"Linux (none) 6.12 aarch64"})
    assert before_phases(other.result.phases) == {}


def test_rates_of_a_number_of_ios_are_over_the_time_they_took(run_4k: Run) -> None:
    """1000 I/Os of each of 4 jobs in 50 ms; fio was told no time, and there was no ramp."""
    (measured,) = run_4k.result.phases
    assert measured.fio is not None
    by_number = replace(
        measured.fio,
        ios=4000,
        io_bytes=4000 * 4096,
        planned_ios=4000,
        planned_ms=0,
        ramp_ms=0,
        runtime_ms=50,
    )
    got = samples((replace(measured, fio=by_number),), run_4k.phases)
    assert got["4k.iops"] == pytest.approx(80_000)
    assert got["4k.guest_ns_per_io"] == (measured.after.cpu_ns - measured.before.cpu_ns) / 4000


def test_samples_of_a_run_of_a_given_work() -> None:
    """96256 writes of a page in 1216 ms, of which fio says so: rates are over that time."""
    assert SAMPLES["reclaim-overwrite"]["overwrite.bw"] == pytest.approx(376 / 1.216)
    assert SAMPLES["reclaim-overwrite"]["overwrite.runtime"] == 1.216


def test_share_of_the_slow_path_is_of_busy_time() -> None:
    """Two vCPUs, 1000 instructions: 2000 of vCPU time, 400 idle, 200 spinning."""
    phase = PhaseProfile(
        phase="w",
        instructions=1000,
        kernel=(),
        user={},
        by_vcpu=(600, 400),
        units={},
        waits={"spinning": (150, 50), "idle": (0, 400)},
    )
    phases = (but(COSTED, name="w", costs=()),)
    assert of_profile(Profile(run_id="r", phases=(phase,)), phases) == {"w.slowpath_share": 12.5}
    nobody_looked = but(phase, waits={})
    assert of_profile(Profile(run_id="r", phases=(nobody_looked,)), phases) == {}
    never_busy = but(phase, waits={"spinning": (0, 0), "idle": (1000, 1000)})
    assert of_profile(Profile(run_id="r", phases=(never_busy,)), phases) == {}


def test_share_of_the_slow_path_is_a_metric_where_somebody_looks(run_4k: Run) -> None:
    names = {metric.name for metric in metrics_of(run_4k.phases, waits=True)}
    assert names - {metric.name for metric in metrics_of(run_4k.phases)} == {"4k.slowpath_share"}


def test_directions_add_up(run_matrix: Run) -> None:
    got = samples_of(run_matrix)
    assert got["io.read_bw"] + got["io.write_bw"] == pytest.approx(got["io.bw"])
    # 45022 reads and 45730 writes of 4 KiB in 0.3 s.
    assert got["io.read_bw"] == pytest.approx(45022 * 4096 / 0.3 / 2**20)
    assert got["io.write_iops"] == pytest.approx(45730 / 0.3)


def test_what_a_write_costs_the_device(run_dirty: Run) -> None:
    """66804 writes of a block; the cgroup's io.stat and /proc/vmstat agree on the bytes."""
    (phase,) = run_dirty.result.phases
    moved = (phase.after.vmstat["pgpgout"] - phase.before.vmstat["pgpgout"]) * 1024
    assert moved == phase.after.device_written_bytes == 4364910592
    got = samples_of(run_dirty)["overwrite.device_bytes_per_written_byte"]
    assert got == pytest.approx(moved / (66804 * 4096))


def test_a_time_without_a_sync_is_none(run_dirty: Run) -> None:
    """fio writes no percentiles of nothing."""
    none = run_dirty.but("overwrite/fio.json", swap('"N" : 66802,', '"N" : 0,'))
    got = samples_of(none)
    assert [got[f"overwrite.sync_{name}_ns"] for name in ("p50", "p99", "p999")] == [0, 0, 0]


def test_metrics_follow_from_what_a_phase_does() -> None:
    def names(workload: str, variant: str) -> set[str]:
        (phase,) = CATALOGUE[workload].phases_of(variant)
        return set(shown_by(phase))

    always = {"bw", "iops", "ios"}
    assert names("thp-matrix", "sync-read") == always | {"guest_ns_per_io"}
    writes = {"write_bw", "write_iops"}
    assert names("thp-matrix", "mmap-write") == always | writes | {"guest_ns_per_io"}
    both = writes | {"read_bw", "read_iops"}
    assert names("thp-matrix", "libaio-randrw") == always | both | {"guest_ns_per_io"}
    syncs = {"sync_p50_ns", "sync_p99_ns", "sync_p999_ns"}
    device = {"device_bytes_per_written_byte"}
    # pre_read is done by the cgroup, and is no I/O of fio's.
    assert names("iomap-dirty", "1m") == always | writes | syncs | device


def test_bandwidth_by_hand_and_per_io_metrics_with_the_ramp(run_4k: Run) -> None:
    """The kernel's counters run through 0.6 s of ramp and 2 s of measurement."""
    got = samples_of(run_4k)
    # Every I/O is a page: 149571 of 4096 bytes in the 2 s that were asked for.
    assert got["4k.bw"] == pytest.approx(149571 / 2 * 4096 / 2**20)
    ios = 149571 / 2 * 2.6
    assert got["4k.refaults_per_io"] == pytest.approx(74206 / ios)
    assert got["4k.major_faults_per_io"] == pytest.approx(114274 / ios)
    assert got["4k.guest_ns_per_io"] == pytest.approx(2773271000 / ios)


def test_counters_are_differences_over_the_phase(run_thp: Run) -> None:
    """Both ends moved by as much: the same number."""
    before, after = "switch/before/proc/vmstat", "switch/after/proc/vmstat"
    moved = run_thp.but(before, counter("pgmajfault", 3883 + 7)).but(
        after, counter("pgmajfault", 30660 + 7)
    )
    assert samples_of(moved) == samples_of(run_thp)


def test_a_phase_without_fio_has_no_samples(run_thp: Run) -> None:
    got = samples_of(run_thp.without("thp/fio.json"))
    assert {name.partition(".")[0] for name in got} == {"switch"}


def test_directions() -> None:
    """Less work and less traffic for an I/O is better."""
    assert tuple(TABLE) == METRIC_NAMES
    lower = {name for name in OF_FIO if TABLE[name][2] == "lower"}
    # A time, or work and traffic for something, or a share of what should not be.
    assert lower - {"runtime", "direct_scan_share"} == {
        name for name in METRIC_NAMES if "_per_" in name or name.startswith("sync_")
    }


def test_in_real_time_rates_are_fios_own(run_4k: Run, run_thp: Run) -> None:
    for run in (run_4k, run_thp):
        got = samples(run.result.phases, run.phases, real_time=True)
        for phase in run.result.phases:
            assert phase.fio is not None
            assert got[f"{phase.name}.iops"] == pytest.approx(phase.fio.iops, rel=1e-6)
            assert got[f"{phase.name}.ios"] == phase.fio.ios


def test_a_variant_has_the_thresholds_of_its_workload_and_its_own() -> None:
    own = thresholds_of(CATALOGUE)
    assert own["sqlite", "ext4"] == {"fill.path": 0.004, "mapped.path": 0.005}
    assert own["sqlite", "default"] == {}
    assert own["filemap-4k", "ext4"] == own["filemap-4k", "default"] == {"4k.work": 0.005}


def test_a_threshold_of_no_metric_is_named() -> None:
    workload = CATALOGUE["redis"]
    wrong = but(workload.phases[1], thresholds={"work": 0.01, "functions": 0.01})
    phases = (workload.phases[0], wrong)
    with pytest.raises(SpecError) as raised:
        thresholds_of({"redis": but(workload, phases=phases)})
    assert raised.value.problems == [
        "workloads/catalogue/redis.toml: thresholds of phase append (default): no metric is named "
        "'work'; allowed: time, ops, path, before, slowpath_share, functions"
    ]
