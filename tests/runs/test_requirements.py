from __future__ import annotations

from pathlib import Path

import pytest

from errors import SpecError
from experiment.arms import ArmSpec
from experiment.load import load_experiment
from guests.probe.plugin import Probe
from kernels import config
from runs.arms import guest_of
from runs.prepare import catalogue, workloads_of
from runs.requirements import require_counted, require_jobs, require_settings, wants_of

CHECKOUT = Path(__file__).resolve().parents[2]
PROBE = Probe(Path("/probe"), "0" * 64, 1, "7.2.22")


def test_what_is_judged_must_be_counted() -> None:
    experiment = load_experiment(Path("reclaim-contention"), catalogue=catalogue(CHECKOUT))
    guest = guest_of(experiment)
    require_counted(experiment, guest, PROBE)
    with pytest.raises(SpecError, match=r"primary: overwrite.slowpath_share .* without the probe"):
        require_counted(experiment, guest, None)
    single_vcpu = guest.model_copy(update={"vcpus": 1, "numa_nodes": 1})
    with pytest.raises(SpecError, match="laptop-numa has one vCPU"):
        require_counted(experiment, single_vcpu, PROBE)


def test_bandwidth_needs_no_probe() -> None:
    experiment = load_experiment(Path("filemap-v4"), catalogue=catalogue(CHECKOUT))
    require_counted(experiment, guest_of(experiment), PROBE)
    with pytest.raises(SpecError, match=r"4k.path .* judge 4k.bw in its place"):
        require_counted(experiment, guest_of(experiment), None)
    by_bandwidth = load_experiment(
        Path("filemap-v4"),
        overrides=['cases.0.primary=["4k.bw"]', 'cases.1.primary=["thp.bw"]'],
        catalogue=catalogue(CHECKOUT),
    )
    require_counted(by_bandwidth, guest_of(experiment), None)


def test_what_fio_would_refuse_is_refused_before_a_build() -> None:
    experiment = load_experiment(Path("filemap-v4"), catalogue=catalogue(CHECKOUT))
    workloads = workloads_of(experiment)
    require_jobs(experiment, workloads)
    workload = workloads["filemap-thp"]
    first, second = workload.phases
    places = {"name": "own.fio:1 [a]", "iodepth": "own.fio:7 [a]"}
    bad = second.model_copy(update={"fio": (*second.fio, "--iodepth=many"), "places": places})
    changed = {**workloads, "filemap-thp": workload.model_copy(update={"phases": (first, bad)})}
    with pytest.raises(SpecError) as caught:
        require_jobs(experiment, changed)
    assert caught.value.problems == [
        "own.fio:7 [a]: phase switch: fio: failed parsing iodepth=many"
    ]
    other = experiment.model_copy(
        update={"kernel": experiment.kernel.model_copy(update={"arch": "arm64"})}
    )
    require_jobs(other, changed)


def test_what_a_prebuilt_kernel_must_have_follows_from_the_workloads() -> None:
    def options(name: str) -> set[str]:
        experiment = load_experiment(Path(name), catalogue=catalogue(CHECKOUT))
        return {want.option for want in wants_of(experiment, workloads_of(experiment))}

    assert options("filemap-v4") - options("thp-matrix") == {"BLK_DEV_RAM", "XFS_FS"}
    assert "EXT4_FS" in options("filemap-ext4")
    # The lab's own configuration has all of it.
    base = config.parse((CHECKOUT / "configs/kconfig/base.config").read_text())
    assert {base.get(option, "n") for option in options("filemap-ext4")} == {"y"}


def test_a_setting_that_the_kernel_has_not_the_option_for_is_refused_before_a_build() -> None:
    experiment = load_experiment(Path("filemap-v4"), catalogue=catalogue(CHECKOUT))
    base = ArmSpec(name="base")
    other = ArmSpec(
        name="on", sysfs={"kernel/mm/lru_gen/enabled": "y", "block/ram0/queue/nomerges": "1"}
    )
    arms = experiment.model_copy(update={"arms": (base, other)})
    with pytest.raises(SpecError) as caught:
        require_settings(arms, CHECKOUT)
    assert caught.value.problems == [
        "arms: on: /sys/kernel/mm/lru_gen/enabled needs CONFIG_LRU_GEN, which a kernel of perf has "
        'not; [kernel] additions = ["lru-gen"] switches it on'
    ]
    kernel = arms.kernel.model_copy(update={"additions": ("lru-gen",)})
    require_settings(arms.model_copy(update={"kernel": kernel}), CHECKOUT)
