"""Sessions of stand-in guests, on this host and over a cluster."""

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

import runs.measure
from guests import exact
from guests.initramfs import Initramfs
from guests.probe import fold, plugin
from guests.probe.plugin import Probe
from results.record import Failure, RunRecord
from results.store import SessionStore
from runs import local
from runs.boots import Executor, Reporter
from runs.fleet.executor import DaskExecutor, _client
from runs.fleet.parcel import ArtefactStore
from runs.local import LocalExecutor, Options
from runs.measure import measure
from runs.prepare import Prepared
from runs.stages import of_twins
from tests.integration.lab_process import written_ids
from tests.runs.fleet import stand_in
from tests.runs.fleet.cluster import Cluster
from tests.runs.made_up import CHECKOUT, SMALL, prepared, shipped, sound_results
from tests.values import but
from tests.waiting import wait_until

MEMORY_MIB = 16


class LoggingReporter(Reporter):
    """A reporter that remembers."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def log(self, text: str) -> None:
        self.lines.append(text)


@dataclasses.dataclass
class FleetBench:
    """Measures the same plan wherever it is told to, into folders of its own."""

    folder: Path

    def session(self, blocks: int, *overrides: str) -> Prepared:
        """Blocks of both arms, their files on disk."""
        experiment = shipped(SMALL, f"blocks={blocks}", *overrides)
        made = prepared(experiment, kernels=self.folder / "cache" / "kernels")
        for arm, kernel in made.measured.items():
            kernel.folder.mkdir(parents=True, exist_ok=True)
            (kernel.folder / "bzImage").write_bytes(f"kernel of {arm}".encode())
        for name in ("initramfs", "preload", "probe"):
            (self.folder / name).write_bytes(name.encode() * 1000)
        bench = made.resolved.measured
        small = {"memory_mib": MEMORY_MIB}
        guests = {arm: but(guest, **small) for arm, guest in bench.guests.items()}
        bench = dataclasses.replace(bench, guests=guests)
        return dataclasses.replace(
            made,
            resolved=dataclasses.replace(made.resolved, measured=bench),
            initramfs=Initramfs(self.folder / "initramfs", "0"),
            preload=self.folder / "preload",
            probe=Probe(self.folder / "probe", "", 1, "7"),
        )

    def store(self, name: str) -> SessionStore:
        """The record of a session, empty at first."""
        store = SessionStore(self.folder / name / "session")
        store.raw.mkdir(parents=True, exist_ok=True)
        return store

    def measure(
        self,
        name: str,
        blocks: int,
        executor: Executor | None = None,
        *,
        workers: int = 0,
        stages: Sequence[bool] = (False, True),
    ) -> LoggingReporter:
        """Measure, or go on measuring, one session, once so many workers serve.

        ``stages`` are the judged runs, and their repeats.

        On a busy host one may start so late that it shows nothing of what it was started for.
        """
        reporter = LoggingReporter()
        cache = self.folder / "cache"
        (cache / "locks").mkdir(parents=True, exist_ok=True)
        if isinstance(executor, DaskExecutor):
            executor.log = reporter.log
            if workers:
                wait_until(lambda: _serving(executor) >= workers, "workers")
        options = Options(
            checkout=CHECKOUT, cache=cache, guests_at_once=4, executor=executor or LocalExecutor()
        )
        session = self.session(blocks)
        for repeats in stages:
            part = of_twins(session, ("",), repeats=repeats)
            measure(part, options, self.store(name), reporter)
        return reporter

    def executor(self, cluster: Cluster, losses: int = 10) -> DaskExecutor:
        """An executor on a cluster, with a store of its own."""
        return DaskExecutor(
            cluster.address,
            lambda stack: self._connect(stack, cluster),
            ArtefactStore(str(self.folder / "store")),
            print,
            losses=losses,
        )

    @staticmethod
    def _connect(stack: ExitStack, cluster: Cluster) -> object:
        return _client(stack, f"tcp://{cluster.host}:{cluster.port}")

    def records(self, name: str) -> dict[str, RunRecord]:
        """By run id; no run is on record twice."""
        store = self.store(name)
        ids = written_ids(store.folder)
        assert len(ids) == len(set(ids))
        return {record.run_id: record for record in store.records()}

    def failures(self, name: str) -> dict[str, Failure]:
        """Those of runs that failed, of those that were made."""
        records = self.records(name)
        assert records
        return {run_id: record.failure for run_id, record in records.items() if record.failure}

    def require_same(self, first: str, other: str, *, resumed: bool = False) -> None:
        """The same records and the same raw files.

        A process that resumes numbers the snapshots that it takes, here as on one host.
        """
        assert self.records(first) == self.records(other)
        assert self.failures(first) == {}
        assert self.raw(first, not resumed) == self.raw(other, not resumed)

    def raw(self, name: str, snapshots: bool = True) -> dict[str, bytes]:
        """Content of every raw file, with those of snapshots or without."""
        top = self.store(name).raw
        return {
            path.relative_to(top).as_posix(): path.read_bytes()
            for path in sorted(top.rglob("*"))
            if path.is_file() and (snapshots or "snapshot-" not in path.as_posix())
        }


def _serving(executor: DaskExecutor) -> int:
    executor.members.refresh()
    return len(executor.members.serving)


def stand_in_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guests of this process stand in, and what they send is judged as sound."""
    sound_results(monkeypatch)
    monkeypatch.setattr(exact, "take_snapshot", stand_in.take_snapshot)
    monkeypatch.setattr(exact, "run", stand_in.run_guest)
    monkeypatch.setattr(local, "RESERVE_BYTES", 0)
    monkeypatch.setattr(plugin, "lock_words", lambda kernel: ())
    monkeypatch.setattr(fold, "locks_of", lambda kernel: ())
    monkeypatch.setattr(runs.measure, "observe", lambda *of_run: ((), ()))


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FleetBench:
    """Guests stand in here, too; the client judges them as it judges real ones."""
    stand_in_here(monkeypatch)
    return FleetBench(tmp_path)


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A scheduler, whose workers are those of one test after the other: processes start slowly."""
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        made.start_scheduler()
        yield made
    finally:
        made.stop()


@pytest.fixture
def cluster(scheduler: Cluster) -> Cluster:
    """A scheduler without workers."""
    scheduler.keep_workers(())
    return scheduler


@pytest.fixture
def three(scheduler: Cluster) -> Cluster:
    """A scheduler with three sound workers, which may be there from the test before."""
    names = ("one", "two", "three")
    scheduler.keep_workers(names)
    for name in names:
        if name not in scheduler.processes:
            scheduler.start_worker(name)
    return scheduler
