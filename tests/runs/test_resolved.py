"""The gate's guests, planned: every shipped experiment can be checked."""

from collections import defaultdict
from pathlib import Path

import pytest

from experiment.load import EXPERIMENTS
from experiment.machine import names_in
from experiment.spec import ArmSpec, CheckSpec
from guests.initramfs import Initramfs, Lacks
from runs.boots import Boot
from runs.check import MORE_MEMORY_MIB, boot_of
from runs.resolved import Resolved
from tests.runs.made_up import prepared, resolved, shipped
from tests.values import but, data
from workloads.check import CheckTask
from workloads.spec import extras_of

INITRAMFS_MIB = 100


def load(name: str, *overrides: str) -> Resolved:
    experiment = shipped(name, *overrides)
    checked = but(experiment, check=experiment.check or CheckSpec())
    return resolved(checked)


@pytest.mark.parametrize(
    ("sources", "opens"), data(__file__, "arms_are_measured_as_the_newest_of_their_releases")
)
def test_arms_are_measured_as_the_newest_of_their_releases(sources: list[str], opens: int) -> None:
    experiment = shipped("filemap-v4")
    arms = tuple(
        ArmSpec(name=f"n{number}", kernel=experiment.kernel.model_copy(update={"source": each}))
        for number, each in enumerate(sources)
    )
    made = resolved(experiment.model_copy(update={"arms": arms, "series": None}))
    thp = made.workload(made.case("filemap-thp")).phases[0]
    assert len(thp.option("filename").split(":")) == opens


@pytest.fixture
def image(tmp_path: Path) -> Initramfs:
    with (tmp_path / "initramfs").open("wb") as file:
        file.truncate(INITRAMFS_MIB << 20)
    return Initramfs(tmp_path / "initramfs", "0")


def guests(made: Resolved, image: Initramfs) -> dict[str, tuple[Boot, CheckTask]]:
    overlaid: dict[Lacks, Initramfs] = defaultdict(lambda: image)
    flavours = made.flavours[1:]
    session = prepared(
        made.experiment, resolved=made, flavours=flavours, initramfs=image, overlaid=overlaid
    )
    return {check.run_id: boot_of(session, check) for check in made.checks}


@pytest.mark.parametrize("name", names_in(EXPERIMENTS))
def test_each_shipped_experiment_can_be_checked(name: str, image: Initramfs) -> None:
    made = load(name)
    by_run = guests(made, image)
    arms = {arm.name for arm in made.experiment.all_arms}
    assert {run_id.split(".")[1] for run_id in by_run} == arms
    cases = {check.run_id: check.cases[0] for check in made.checks}
    for run_id, (boot, task) in by_run.items():
        machine = boot.machine
        size, memory_mib = machine.size, machine.guest.memory_mib
        # XFS needs as much beside its file, and each job a whole file of its own.
        assert size.brd_mib >= 64
        assert size.file_mib % size.jobs == 0 or "test.img" in machine.prepare_text
        assert memory_mib > size.brd_mib + 2 * INITRAMFS_MIB + MORE_MEMORY_MIB
        # The gate's own steps, and whatever fio reads; programs compare nothing.
        assert len(task.compared) > 7 or extras_of(made.workload(cases[run_id])).programs


@pytest.mark.parametrize("name", ["filemap-v1", "filemap-v4", "iomap-dirty", "reclaim-contention"])
def test_experiments_of_patches_ask_for_it_themselves(name: str) -> None:
    check = shipped(name).check
    assert check is not None
    assert check.selftests == ("xarray",)


def test_cases_with_files_of_their_own_have_a_guest_of_their_own(image: Initramfs) -> None:
    cases = (
        'cases=[{workload="filemap-4k", primary=["4k.bw"], times={smoke={"4k"={runtime_s=1}}}},'
        '{workload="iomap-dirty", times={smoke={overwrite={runtime_s=1}}}}]'
    )
    experiment = load(
        "filemap-v4", "guest=smoke", cases, "twins=[]", "check={vcpus=[1], selftests=[]}"
    )
    checks = {check.run_id: check for check in experiment.checks}
    assert [(run_id, check.does) for run_id, check in checks.items() if ".base." in run_id] == [
        ("check.base.lockdep.v1", "lockdep, 1 vCPU: filemap-4k"),
        ("check.base.lockdep.v1.1", "lockdep, 1 vCPU: iomap-dirty"),
    ]
    booted = guests(experiment, image)
    shared, own = (booted[run_id][0].machine.prepare_text for run_id in list(checks)[:2])
    assert "FILES=/mnt/test.img\n" in shared
    assert "FILES='/mnt/data.0.0 /mnt/data.1.0" in own


def test_tmpfs_is_checked_with_a_device_beside_it(image: Initramfs) -> None:
    machine = guests(load("thp-matrix"), image)["check.always.lockdep.v4"][0].machine
    assert machine.size.brd_mib == 64
    assert "MOUNT_OPTIONS=huge=always\n" in machine.prepare_text
    assert "MKFS=''\n" in machine.prepare_text
