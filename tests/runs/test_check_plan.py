"""The gate's guests, planned: every shipped experiment can be checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiment.load import known_experiments, load_experiment
from experiment.spec import CheckSpec, Experiment
from runs.check_plan import MORE_MEMORY_MIB, CheckGuest, guest_of, planned
from runs.prepare import catalogue
from workloads.spec import load_catalogue

CHECKOUT = Path(__file__).resolve().parents[2]
WORKLOADS = load_catalogue()
INITRAMFS_MIB = 100


def load(name: str, *overrides: str) -> Experiment:
    asked = load_experiment(Path(name), overrides=overrides, catalogue=catalogue(CHECKOUT))
    return asked if asked.check else asked.model_copy(update={"check": CheckSpec()})


def guests(asked: Experiment) -> dict[str, CheckGuest]:
    return {
        one.run_id: guest_of(asked, WORKLOADS, one, INITRAMFS_MIB)
        for one in planned(asked, WORKLOADS)
    }


@pytest.mark.parametrize("name", known_experiments())
def test_each_shipped_experiment_can_be_checked(name: str) -> None:
    asked = load(name)
    found = guests(asked)
    assert {run_id.split(".")[1] for run_id in found} == {arm.name for arm in asked.all_arms}
    for guest in found.values():
        # XFS needs as much beside its file, and each job a whole file of its own.
        assert guest.size.brd_mib >= 64
        assert guest.size.file_mib % guest.size.jobs == 0 or "test.img" in guest.prepare_text
        assert guest.guest.memory_mib > guest.size.brd_mib + 2 * INITRAMFS_MIB + MORE_MEMORY_MIB
        # The gate's own steps, and whatever fio reads; programs compare nothing.
        assert len(guest.task.compared) > 7 or (name == "workloads" and guest.programs)


@pytest.mark.parametrize("name", ["filemap-v1", "filemap-v4", "iomap-dirty", "reclaim-contention"])
def test_experiments_of_patches_ask_for_it_themselves(name: str) -> None:
    asked = load_experiment(Path(name), overrides=(), catalogue=catalogue(CHECKOUT))
    assert asked.check is not None
    assert asked.check.selftests == ("xarray",)


def test_arms_of_reclaim_contention_are_on_four_nodes_with_their_settings() -> None:
    found = guests(load("reclaim-contention"))
    assert len(found) == 10
    shapes = {(one.guest.vcpus, one.guest.numa_nodes) for one in found.values()}
    assert shapes == {(4, 4), (1, 1)}
    for run_id, one in found.items():
        assert one.guest.memory_mib % one.guest.numa_nodes == 0
        assert ("vm.zone_reclaim_mode=1" in one.job_text) == (".zr1." in run_id)
        assert "LEFT_MIB=64\n" in one.job_text


def test_cases_with_files_of_their_own_have_a_guest_of_their_own() -> None:
    cases = (
        'cases=[{workload="filemap-4k", primary=[], times={smoke={"4k"={runtime_s=1}}}},'
        '{workload="iomap-dirty", primary=[], times={smoke={overwrite={runtime_s=1}}}}]'
    )
    asked = load("filemap-v4", "guest=smoke", cases, "twins=[]", "check={vcpus=[1], selftests=[]}")
    ones = {one.run_id: one for one in planned(asked, WORKLOADS)}
    assert [(run_id, one.does) for run_id, one in ones.items() if ".base." in run_id] == [
        ("check.base.lockdep.v1", "lockdep, 1 vCPU: filemap-4k"),
        ("check.base.lockdep.v1.1", "lockdep, 1 vCPU: iomap-dirty"),
    ]
    shared, own = (guests(asked)[run_id] for run_id in list(ones)[:2])
    assert "FILES=/mnt/test.img\n" in shared.prepare_text
    assert "FILES='/mnt/data.0.0 /mnt/data.1.0" in own.prepare_text


def test_tmpfs_is_checked_with_a_device_beside_it() -> None:
    one = guests(load("thp-matrix"))["check.always.lockdep.v4"]
    assert one.size.brd_mib == 64
    assert "MOUNT_OPTIONS=huge=always\n" in one.prepare_text
    assert "MKFS=''\n" in one.prepare_text
