"""The same plan on this host and over workers that are real processes; guests stand in.

Whatever is lost, at any moment, the session ends and no run is on record twice.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from errors import InfraError, UsageError
from runs.fleet.executor import DaskExecutor, executor_of
from runs.fleet.parcel import ArtefactStore
from runs.local import LocalExecutor
from tests.runs.fleet.cluster import CHECKOUT, Cluster
from tests.runs.fleet.conftest import MEMORY_MIB, FleetBench
from tests.runs.made_up import shipped
from tests.values import script
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

ALONE = "1 repeats were made by the worker of the run: no other served"


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


def test_three_workers_give_what_this_host_gives(bench: FleetBench, three: Cluster) -> None:
    bench.measure("local", 4)
    with bench.executor(three) as executor:
        reporter = bench.measure("fleet", 4, executor, workers=3)
    bench.require_same("local", "fleet")
    # The repeat was made by another worker than the run.
    assert not [line for line in reporter.lines if "repeats were" in line]
    assert not [line for line in reporter.lines if "aside" in line or "refused" in line]


def test_workers_are_killed_all_the_time(bench: FleetBench, three: Cluster) -> None:
    bench.measure("local", 6)
    records = bench.store("fleet").folder / "runs.jsonl"
    with (
        three.losing(["two", "one", "three"], 0.2, records) as kills,
        bench.executor(three) as executor,
    ):
        bench.measure("fleet", 6, executor)
    assert kills
    bench.require_same("local", "fleet")


def test_the_client_is_killed_and_the_session_resumed(bench: FleetBench, three: Cluster) -> None:
    bench.measure("local", 6)
    argv = [
        sys.executable,
        "-m",
        "tests.runs.fleet.driver",
        str(bench.folder),
        str(three.port),
        "6",
    ]
    client = subprocess.Popen(
        argv, cwd=CHECKOUT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    wait_until(lambda: recorded(bench) >= 2 or client.poll() is not None, "record")
    assert client.poll() is None
    client.send_signal(signal.SIGKILL)
    client.wait()
    with bench.executor(three) as executor:
        bench.measure("fleet", 6, executor)
    bench.require_same("local", "fleet", resumed=True)


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


@pytest.mark.parametrize(
    ("lie", "what"),
    [("STAND_IN_LIES", "out: line 1"), ("STAND_IN_MISCOUNTS", "what the probe counted")],
)
def test_a_worker_with_other_bytes_fails_the_session_and_both_hosts_are_named(
    bench: FleetBench, cluster: Cluster, lie: str, what: str
) -> None:
    cluster.start_worker("liar", **{lie: "1"})
    cluster.start_worker("one")
    with (
        bench.executor(cluster) as executor,
        pytest.raises(InfraError, match="has other bytes on") as error,
    ):
        bench.measure("fleet", 1, executor, workers=2)
    assert error.value.exit_code == 3
    assert all(address in error.value.what for address in executor.members.serving)
    assert error.value.what.count(os.uname().nodename) == 2
    assert what in error.value.what
    # The record says so, too: this session never passes.
    (failure,) = bench.failures("fleet").values()
    assert (failure.blame, failure.kind) == ("lab", "inexact")


def test_counts_are_compared_with_those_of_a_session_that_goes_on(
    bench: FleetBench, cluster: Cluster
) -> None:
    cluster.start_worker("liar", STAND_IN_MISCOUNTS="1")
    with bench.executor(cluster) as executor:
        bench.measure("fleet", 1, executor, workers=1, stages=(False,))
    cluster.start_worker("one")
    with (
        bench.executor(cluster) as executor,
        pytest.raises(InfraError, match=r"has other bytes on .* what the probe counted"),
    ):
        bench.measure("fleet", 1, executor, workers=2)
    (failure,) = bench.failures("fleet").values()
    assert (failure.blame, failure.kind) == ("lab", "inexact")


def test_one_worker_that_is_large_enough_does_all_and_its_repeats_are_reported(
    bench: FleetBench, cluster: Cluster
) -> None:
    cluster.start_worker("one")
    memory = f"{MEMORY_MIB // 2}"
    cluster.start_worker("small", DASK_DISTRIBUTED__WORKER__RESOURCES__MEMORY=memory)
    bench.measure("local", 1)
    with bench.executor(cluster) as executor:
        reporter = bench.measure("fleet", 1, executor, workers=2)
    bench.require_same("local", "fleet")
    assert ALONE in reporter.lines


def test_a_worker_with_another_qemu_is_refused(
    bench: FleetBench, cluster: Cluster, tmp_path: Path
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    script(programs / "qemu-system-x86_64", 'exec /usr/bin/qemu-system-x86_64 "$@"')
    cluster.start_worker("one")
    with bench.executor(cluster) as executor:
        members = executor.members
        members.refresh(at_once=True)
        # On a busy host a worker may take longer to start than the whole plan takes.
        cluster.start_worker("other", PATH=f"{programs}:/usr/bin:/bin:/usr/sbin:/sbin")

        def refused() -> dict[str, str]:
            members.refresh()
            return members.refused

        wait_until(refused, "worker that is refused")
        reporter = bench.measure("fleet", 3, executor)
    assert bench.failures("fleet") == {}
    # Nobody else served.
    assert ALONE in reporter.lines
    (reason,) = members.refused.values()
    assert "QEMU binary" in reason
    assert "QEMU version" not in reason


def test_what_the_only_worker_began_is_made_by_the_next(
    bench: FleetBench, cluster: Cluster
) -> None:
    cluster.start_worker("one", STAND_IN_SECONDS="300")
    with bench.executor(cluster) as executor:
        executor.members.refresh(at_once=True)
        (first,) = executor.members.serving
        client = executor.members.client
        measuring = threading.Thread(target=bench.measure, args=("fleet", 1, executor))
        measuring.start()
        wait_until(lambda: client.processing()[first], "something begun")
        cluster.kill("one")
        cluster.start_worker("two")
        measuring.join(120)
        assert not measuring.is_alive(), cluster.log("two")
    assert bench.failures("fleet") == {}


def test_a_parcel_that_kills_its_workers_is_named(bench: FleetBench, cluster: Cluster) -> None:
    for number in range(3):
        # Seed 8 is that of block 1.
        cluster.start_worker(f"w{number}", STAND_IN_DIES_OF="--randseed=8,kernel of patched")
    with bench.executor(cluster, losses=1) as executor:
        bench.measure("fleet", 2, executor)
    ((run_id, failure),) = bench.failures("fleet").items()
    assert run_id == "filemap-4k.b01.patched"
    assert failure.blame == "host"
    assert failure.message.startswith("2 workers died while they made it; last tcp://")


def test_a_worker_whose_disk_is_full_is_set_aside(
    bench: FleetBench, cluster: Cluster, small_disk: Path
) -> None:
    bench.measure("local", 4)
    cluster.start_worker("full", TWINBOOT_CACHE=str(small_disk), STAND_IN_FILLS_MIB="48")
    with bench.executor(cluster) as executor:
        members = executor.members

        def serving() -> bool:
            members.refresh()
            return bool(members.serving)

        wait_until(serving, "worker")
        members.patience_s = 12.0
        with pytest.raises(InfraError, match=r"no worker can serve.*No space left") as error:
            bench.measure("fleet", 4, executor)
    assert error.value.exit_code == 3
    cluster.start_worker("one")
    with bench.executor(cluster) as executor:
        reporter = bench.measure("fleet", 4, executor, workers=2)
    bench.require_same("local", "fleet")
    (line,) = [line for line in reporter.lines if "is set aside" in line]
    assert "No space left on device" in line
    # What it had begun is removed.
    assert shutil.disk_usage(small_disk).free > 36 << 20


class Wire:
    """Two network namespaces: the scheduler's host end, and a worker's."""

    host, far = "10.213.7.1", "10.213.7.2"
    space, here, there = "twinboot-far", "tbfleet0", "tbfleet1"

    def __enter__(self) -> "Wire":
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


def test_the_network_to_a_worker_is_cut(bench: FleetBench, tmp_path: Path) -> None:
    bench.measure("local", 4)
    with ExitStack() as held:
        try:
            wire = held.enter_context(Wire())
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no network namespaces here: {error}")
        cluster = Cluster(tmp_path, host=wire.host)
        held.callback(cluster.stop)
        cluster.start_scheduler()
        prefix = ("ip", "netns", "exec", wire.space)
        cluster.start_worker("far", prefix=prefix, host=wire.far, STAND_IN_SECONDS="3")
        for name in ("one", "two"):
            cluster.start_worker(name, STAND_IN_SECONDS="1")
        with bench.executor(cluster) as executor:
            members = executor.members

            def busy() -> bool:
                return any(
                    m.guests for m in list(members.serving.values()) if wire.far in m.address
                )

            cutter = once(busy, wire.cut)
            bench.measure("fleet", 4, executor, workers=3)
            cutter.join()
    bench.require_same("local", "fleet")


@pytest.mark.parametrize(
    ("override", "what"),
    [
        ("mode=wall", "wall mode is measured on the host"),
        ("mode=native", "native mode is measured on the host"),
        ("kernel.arch=arm64", "x86_64 only.* is for arm64"),
    ],
)
def test_what_workers_cannot_measure_is_refused_before_anything_is_built(
    tmp_path: Path, override: str, what: str
) -> None:
    def nobody(stack: ExitStack) -> object:
        raise AssertionError("nobody is to be asked")

    made = DaskExecutor("dask://h:1", nobody, ArtefactStore(str(tmp_path)), print)
    with made as executor, pytest.raises(UsageError, match=what) as error:
        executor.require(shipped("noop", override))
    assert error.value.next_step.startswith("--executor local")


def chosen(text: str, tmp_path: Path, store: str = "", *, insecure: bool = False) -> object:
    with executor_of(text, store, cache=tmp_path / "cache", log=print, insecure=insecure) as made:
        return made


def test_this_host_is_the_default(tmp_path: Path) -> None:
    assert chosen("local", tmp_path) == LocalExecutor()
    with pytest.raises(UsageError, match="on this host") as error:
        chosen("local", tmp_path, "s3://bucket")
    assert error.value.where == "--store s3://bucket ($TWINBOOT_STORE)"
    with pytest.raises(UsageError, match="on this host") as error:
        chosen("local", tmp_path, insecure=True)
    assert error.value.where == "--insecure"


def test_a_scheduler_by_address_and_a_store_for_it(tmp_path: Path) -> None:
    made = chosen("tls://host:8786", tmp_path)
    assert isinstance(made, DaskExecutor)
    assert made.store.url == str(tmp_path / "cache" / "store")
    other = chosen("dask://localhost:8786", tmp_path, "s3://bucket/kernels")
    assert isinstance(other, DaskExecutor)
    assert other.store.url == "s3://bucket/kernels"


@pytest.mark.parametrize("host", ["build-7", "10.0.0.1", "0.0.0.0", "[fe80::1]", "127.0.0.1.org"])
def test_a_scheduler_that_others_reach_needs_tls_or_a_word(host: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a shell") as error:
        chosen(f"dask://{host}:8786", tmp_path)
    assert "tls://HOST:PORT" in error.value.next_step
    assert "--insecure" in error.value.next_step
    assert isinstance(chosen(f"dask://{host}:8786", tmp_path, insecure=True), DaskExecutor)
    assert isinstance(chosen(f"tls://{host}:8786", tmp_path), DaskExecutor)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "[::1]"])
def test_a_scheduler_on_loopback_needs_none(host: str, tmp_path: Path) -> None:
    assert isinstance(chosen(f"dask://{host}:8786", tmp_path), DaskExecutor)


def test_a_scheduler_that_listens_everywhere_is_refused_by_its_own_address(tmp_path: Path) -> None:
    script = (
        "import asyncio\nfrom distributed import Scheduler\n"
        "async def main():\n"
        "    async with Scheduler(host='0.0.0.0', port=0, dashboard=False,\n"
        "                         contact_address='tcp://192.0.2.7:1') as made:\n"
        "        print(made.listeners[0].listen_address, flush=True)\n"
        "        await made.finished()\n"
        "asyncio.run(main())\n"
    )
    argv = [sys.executable, "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip().rpartition(":")[2]
            made = chosen(f"dask://127.0.0.1:{port}", tmp_path)
            assert isinstance(made, DaskExecutor)
            with pytest.raises(UsageError, match="listens on 192"):
                _ = made.members
            trusted = chosen(f"dask://127.0.0.1:{port}", tmp_path, insecure=True)
            assert isinstance(trusted, DaskExecutor)
            assert trusted.members
        finally:
            process.kill()


def test_nobody_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runs.fleet.executor.CONNECT_S", 1.0)
    made = chosen("dask://127.0.0.1:1", tmp_path)
    assert isinstance(made, DaskExecutor)
    with pytest.raises(InfraError, match="no scheduler answers") as error:
        _ = made.members
    assert error.value.exit_code == 3
