"""Wall blocks on several hosts: each on one, its guests back to back, one block at a time."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import threading
from pathlib import Path

import pytest

from errors import InfraError
from experiment.design import AGAIN
from fleet.site import Site
from fleet.wall import _tried
from guests import virtme
from guests.exact import Outcome
from guests.virtme import on_host
from host import accelerator
from host.accelerator import AcceleratorTest
from runs.arms import plan_of
from runs.options import Options
from runs.prepare import Session, wall_host
from runs.wall import measure_wall
from tests.fleet.cluster import CHECKOUT, Cluster
from tests.fleet.conftest import SOON, FleetBench, LoggingReporter
from tests.integration.lab_process import wait_until

pytestmark = pytest.mark.slow


def wall_session(bench: FleetBench, blocks: int, options: Options | None = None) -> Session:
    """As ``runs.prepare`` lays it out; with options the host is asked, wherever it is."""
    session = bench.session(blocks)
    experiment = session.experiment.model_copy(update={"mode": "wall"})
    measured = session.measured
    kernels = {**measured.kernels, AGAIN: measured.kernels["base"]}
    guests = dict.fromkeys(kernels, measured.guest)
    return dataclasses.replace(
        session,
        experiment=experiment,
        plan=plan_of(experiment),
        measured=dataclasses.replace(
            measured, kernels=kernels, guests=guests, sizes=dict.fromkeys(kernels, measured.size)
        ),
        wall=wall_host({"": guests}, kernels["base"].image, options) if options else None,
    )


def measure(
    bench: FleetBench, cluster: Cluster, blocks: int, patience_s: float = 60.0
) -> LoggingReporter:
    reporter = LoggingReporter()
    (bench.folder / "cache" / "locks").mkdir(parents=True, exist_ok=True)
    settings = SOON.model_copy(update={"patience_s": patience_s})
    with bench.executor(cluster, settings) as executor:
        options = Options(CHECKOUT, bench.folder / "cache", executor=executor)
        session = wall_session(bench, blocks, options)
        measure_wall(session, options, bench.store("wall"), reporter, lambda: False)
    return reporter


def test_a_block_is_made_on_one_host_in_one_go(
    bench: FleetBench, cluster: Cluster, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    for name in ("one", "two"):
        cluster.start_worker(
            name, STAND_IN_LOG=str(log), DASK_DISTRIBUTED__WORKER__RESOURCES__WALL="1"
        )
    cluster.start_worker("three", STAND_IN_LOG=str(log))
    measure(bench, cluster, 6)
    records = bench.records("wall")
    assert len(records) == 18
    assert all(record.failure is None for record in records.values())
    assert all(record.conditions is not None for record in records.values())
    made = [line.split() for line in log.read_text().splitlines()]
    assert len(made) == 18
    by_host = sorted(made, key=lambda line: (line[0], float(line[1])))
    for host, lines in itertools.groupby(by_host, key=lambda line: line[0]):
        runs = list(lines)
        assert len(runs) % 3 == 0, host
        for before, after in itertools.pairwise(runs):
            assert float(before[2]) <= float(after[1])
    # In the order of the plan, by block.
    times = [records[run.run_id].at_s or 0.0 for run in wall_session(bench, 6).plan.runs]
    for block in range(6):
        of_block = times[3 * block : 3 * block + 3]
        assert of_block == sorted(of_block)
        assert of_block[-1] - of_block[0] < 30


def test_a_wall_host_that_comes_after_the_others_is_waited_for(
    bench: FleetBench, cluster: Cluster, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    cluster.start_worker("one", STAND_IN_LOG=str(log))
    late = threading.Timer(
        4.0,
        cluster.start_worker,
        ("two",),
        {"STAND_IN_LOG": str(log), "DASK_DISTRIBUTED__WORKER__RESOURCES__WALL": "1"},
    )
    late.start()
    measure(bench, cluster, 1)
    late.join()
    assert len(bench.records("wall")) == 3


def test_what_the_only_wall_host_was_lost_with_is_made_by_the_next(
    bench: FleetBench, cluster: Cluster, tmp_path: Path
) -> None:
    """Dask lets it wait for a worker to join, and one that joins has no resources yet."""
    log = tmp_path / "log"
    wall = {"STAND_IN_LOG": str(log), "DASK_DISTRIBUTED__WORKER__RESOURCES__WALL": "1"}
    cluster.start_worker("one", STAND_IN_SECONDS="300", **wall)
    measuring = threading.Thread(target=measure, args=(bench, cluster, 1))
    measuring.start()
    wait_until(Path(f"{log}.begun").exists, "a block begun")
    cluster.kill("one")
    cluster.start_worker("two", **wall)
    measuring.join(60.0)
    assert not measuring.is_alive()
    assert len(bench.records("wall")) == 3


def test_a_host_that_lost_its_kvm_has_no_answer(
    bench: FleetBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that its block is made elsewhere; a guest that is lost with KVM there is an answer."""
    device = tmp_path / "kvm"
    device.touch()
    of_device = functools.partial(accelerator.require_device, device=device)
    monkeypatch.setattr(accelerator, "require_device", of_device)

    def refused(*arguments: object) -> Outcome:
        raise InfraError("virtme-ng started no guest", where="here")

    monkeypatch.setattr(virtme, "run", refused)
    session = bench.session(1)
    machine = on_host(session.machine(session.plan.runs[0]), AcceleratorTest("kvm", ()), None)
    site = Site(tmp_path / "cache")
    try:
        run, _ = _tried(machine, "", site, 2)
        assert run.outcome.ending.kind == "lost"
        device.unlink()
        with pytest.raises(InfraError, match="KVM is gone"):
            _tried(machine, "", site, 2)
    finally:
        site.close()


def test_without_a_wall_host_the_message_names_how_to_have_one(
    bench: FleetBench, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.start_worker("one", STAND_IN_LOG=str(tmp_path / "log"))
    with pytest.raises(InfraError, match="no worker is a wall host") as error:
        measure(bench, cluster, 1, patience_s=12.0)
    assert "--resources" in error.value.next_step
