"""Whatever is lost, at any moment, the session ends and no run is on record twice."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from errors import InfraError
from tests.fleet.cluster import CHECKOUT, Cluster
from tests.fleet.conftest import FleetBench
from tests.integration.lab_process import wait_until

pytestmark = pytest.mark.slow

ROOT = os.geteuid() == 0


def recorded(bench: FleetBench) -> int:
    path = bench.store("fleet").folder / "runs.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def once(true: Callable[[], object], then: Callable[[], object]) -> threading.Thread:
    """Do something in the middle of a session."""

    def wait() -> None:
        wait_until(true, "moment")
        then()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_the_scheduler_is_lost_and_the_session_resumed(bench: FleetBench, three: Cluster) -> None:
    bench.measure("local", 6)
    stopper = once(lambda: recorded(bench) >= 2, three.stop)
    with bench.executor(three) as executor, pytest.raises(InfraError) as error:
        bench.measure("fleet", 6, executor)
    stopper.join()
    assert error.value.exit_code == 3
    assert "scheduler is gone" in error.value.what
    assert f"--resume {bench.store('fleet').folder}" in error.value.next_step
    assert 2 <= recorded(bench) < 13
    three.start_scheduler()
    for name in ("four", "five"):
        three.start_worker(name)
    with bench.executor(three) as executor:
        bench.measure("fleet", 6, executor)
    bench.require_same("local", "fleet", resumed=True)


def test_the_client_is_killed_and_the_session_resumed(bench: FleetBench, three: Cluster) -> None:
    bench.measure("local", 6)
    argv = [sys.executable, "-m", "tests.fleet.driver", str(bench.folder), str(three.port), "6"]
    kills = 0
    for fewest in (2, 5):
        client = subprocess.Popen(argv, cwd=CHECKOUT, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL)  # fmt: skip
        wait_until(lambda: recorded(bench) >= fewest or client.poll() is not None, "record")  # noqa: B023
        kills += client.poll() is None
        client.send_signal(signal.SIGKILL)
        client.wait()
    assert kills == 2
    with bench.executor(three) as executor:
        bench.measure("fleet", 6, executor)
    bench.require_same("local", "fleet", resumed=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder with 24 MiB, of which a guest of 16 MiB finds enough at first."""
    if not ROOT:
        pytest.skip("mounting a small disk needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no file systems can be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_worker_whose_disk_is_full_is_set_aside(
    bench: FleetBench, cluster: Cluster, small_disk: Path
) -> None:
    bench.measure("local", 4)
    cluster.start_worker("full", TWINBOOT_CACHE=str(small_disk), STAND_IN_FILLS_MIB="32")
    for name in ("one", "two"):
        cluster.start_worker(name)
    with bench.executor(cluster) as executor:
        reporter = bench.measure("fleet", 4, executor, workers=3)
    bench.require_same("local", "fleet")
    (line,) = [line for line in reporter.lines if "is set aside" in line]
    assert "No space left on device" in line
    # What it had begun is removed.
    assert shutil.disk_usage(small_disk).free > 20 << 20


def test_when_nobody_is_left_the_reasons_are_named(
    bench: FleetBench, cluster: Cluster, small_disk: Path
) -> None:
    cluster.start_worker("full", TWINBOOT_CACHE=str(small_disk), STAND_IN_FILLS_MIB="32")
    with bench.executor(cluster) as executor:
        executor.link.members.refresh(at_once=True)
        executor.link.members.patience_s = 4.0
        with pytest.raises(InfraError, match=r"no worker can serve.*No space left") as error:
            bench.measure("fleet", 1, executor)
    assert error.value.exit_code == 3


class Wire:
    """Two network namespaces: the scheduler's host end, and a worker's."""

    host, far = "10.213.7.1", "10.213.7.2"
    space, here, there = "twinboot-far", "tbfleet0", "tbfleet1"

    def __enter__(self) -> Wire:
        self.__exit__()
        self.ip("netns", "add", self.space)
        self.ip("link", "add", self.here, "type", "veth", "peer", "name", self.there)
        self.ip("link", "set", self.there, "netns", self.space)
        self.ip("addr", "add", f"{self.host}/24", "dev", self.here)
        self.ip("link", "set", self.here, "up")
        self.ip("-n", self.space, "addr", "add", f"{self.far}/24", "dev", self.there)
        self.ip("-n", self.space, "link", "set", self.there, "up")
        self.ip("-n", self.space, "link", "set", "lo", "up")
        return self

    def __exit__(self, *_: object) -> None:
        for words in (("netns", "del", self.space), ("link", "del", self.here)):
            subprocess.run(["ip", *words], check=False, capture_output=True)

    def cut(self) -> None:
        """No packet gets through, and nobody is told."""
        self.ip("-n", self.space, "link", "set", self.there, "down")

    @staticmethod
    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def wire() -> Iterator[Wire]:
    with ExitStack() as held:
        try:
            made = held.enter_context(Wire())
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no network namespaces here: {error}")
        yield made


def test_the_network_to_a_worker_is_cut(bench: FleetBench, tmp_path: Path, wire: Wire) -> None:
    bench.measure("local", 4)
    cluster = Cluster(tmp_path, host=wire.host)
    try:
        cluster.start_scheduler()
        cluster.prefixes["far"] = ("ip", "netns", "exec", wire.space)
        cluster.start_worker("far", prefix=cluster.prefixes["far"], host=wire.far,
                             STAND_IN_SECONDS="3")  # fmt: skip
        for name in ("one", "two"):
            cluster.start_worker(name, STAND_IN_SECONDS="1")
        cutter = once(lambda: wire.far in ledger(bench), wire.cut)
        with bench.executor(cluster) as executor:
            bench.measure("fleet", 4, executor)
            cutter.join()
    finally:
        cluster.stop()
    bench.require_same("local", "fleet")


def ledger(bench: FleetBench) -> str:
    path = bench.store("fleet").folder / "fleet.jsonl"
    return path.read_text() if path.exists() else ""
