"""A real scheduler and real workers on this machine, each a process that can be killed."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from tests.values import spaced

CHECKOUT = Path(__file__).resolve().parents[3]
PATIENCE_S = 120.0
MOST_KILLS = 3
POLL_S = 0.05
# A lost process is noticed by its connection that breaks, a network that is cut by these;
# distributed takes no less.
QUICK = {
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "12s",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "5s",
    "DASK_DISTRIBUTED__ADMIN__TICK__LIMIT": "60s",
}
# Most of a worker's start is what it imports: it is forked off a process that has.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["distributed.cli.dask_worker", "tests.runs.fleet.stand_in"])


class Forked:
    """A forked process, with what is used of one that was started."""

    def __init__(self, words: Sequence[str], environment: dict[str, str], log: Path) -> None:
        self._process: ForkServerProcess = FORKS.Process(
            target=serve, args=(words, environment, log), daemon=True
        )
        self._process.start()

    def send_signal(self, number: int) -> None:
        assert self._process.pid
        os.kill(self._process.pid, number)

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> None:
        self._process.join()


def serve(words: Sequence[str], environment: dict[str, str], log: Path) -> None:
    """What ``python -m dask worker`` does."""
    import dask
    from distributed.cli.dask_worker import main

    with log.open("ab") as sink:
        os.dup2(sink.fileno(), 1)
        os.dup2(sink.fileno(), 2)
    os.environ.update(QUICK | environment)
    # It was read as dask was imported.
    dask.config.refresh()
    os.chdir(CHECKOUT)
    main([*words], standalone_mode=False)


Process = subprocess.Popen[bytes] | Forked


@dataclass
class Cluster:
    """Processes by name, their logs in ``folder``; ``preload`` is loaded by every worker."""

    folder: Path
    preload: str = "tests.runs.fleet.stand_in"
    host: str = "127.0.0.1"
    processes: dict[str, Process] = field(default_factory=dict)
    environments: dict[str, dict[str, str]] = field(default_factory=dict)
    prefixes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    port: int = 0

    @property
    def address(self) -> str:
        """Of the scheduler, as ``--executor`` has it."""
        return f"dask://{self.host}:{self.port}"

    def start_scheduler(self, **environment: str) -> None:
        """Start it where the lab's code is not found, and wait until it answers.

        It has the port that it had if there was one before.
        """
        file = self.folder / "scheduler.json"
        file.unlink(missing_ok=True)
        self._start(
            "scheduler",
            [
                "scheduler",
                "--host",
                self.host,
                "--port",
                str(self.port),
                "--no-dashboard",
                "--scheduler-file",
                str(file),
            ],
            {"PYTHONPATH": "", **environment},
            where=self.folder,
        )
        limit = time.monotonic() + PATIENCE_S
        contact: dict[str, str] = {}
        while not contact:
            assert time.monotonic() < limit, self.log("scheduler")
            time.sleep(POLL_S)
            # It is there before all of it is written.
            with suppress(OSError, ValueError):
                contact = json.loads(file.read_text())
        self.port = int(contact["address"].rpartition(":")[2])

    def start_worker(
        self, name: str, *, prefix: Sequence[str] = (), host: str = "", **environment: str
    ) -> None:
        """Start a worker with one thread and a cache of its own, without waiting for it."""
        self.environments[name] = environment
        self.prefixes[name] = tuple(prefix)
        words = [
            *spaced(f"tcp://{self.host}:{self.port} --nthreads 1 --no-nanny --no-dashboard"),
            *spaced(f"--host {host or self.host} --memory-limit 0 --local-directory"),
            str(self.folder / f"dask-{name}"),
        ]
        words += ["--preload", self.preload] if self.preload else []
        own = {"TWINBOOT_CACHE": str(self.folder / f"cache-{name}")}
        if prefix or not self.preload:
            self._start(name, ["worker", *words], own | environment)
        else:
            self.processes[name] = Forked(words, own | environment, self._log(name))

    def kill(self, name: str) -> None:
        """SIGKILL, to the process alone."""
        process = self.processes.pop(name)
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        process.wait()

    def again(self, name: str) -> None:
        """Kill a worker and start it anew."""
        self.kill(name)
        self.start_worker(name, prefix=self.prefixes[name], **self.environments[name])

    @contextmanager
    def losing(self, names: Sequence[str], every_s: float, lines_of: Path) -> Iterator[list[str]]:
        """Kill one of these workers again and again; yield the names of those that were.

        The first is killed once ``lines_of`` has a line, the next ones when it has grown since;
        ``MOST_KILLS`` at most: on a host so busy that a worker lives too shortly for a single
        answer nothing would ever end.
        """
        over = threading.Event()
        kills: list[str] = []

        def lines() -> int:
            return lines_of.read_bytes().count(b"\n") if lines_of.exists() else 0

        def killer() -> None:
            counted = 0
            while len(kills) < MOST_KILLS and not over.wait(every_s if kills else POLL_S):
                if lines() > counted:
                    counted = lines()
                    name = names[len(kills) % len(names)]
                    self.again(name)
                    kills.append(name)

        thread = threading.Thread(target=killer)
        thread.start()
        try:
            yield kills
        finally:
            over.set()
            thread.join()

    def stop(self, *names: str) -> None:
        """Kill these, or everything."""
        for name in names or tuple(self.processes):
            self.kill(name)

    def keep_workers(self, names: Collection[str]) -> None:
        """Kill all workers but the sound ones of these names."""
        for name in tuple(self.processes):
            sound = self.processes[name].poll() is None and not self.environments.get(name)
            if name != "scheduler" and not (sound and name in names):
                self.kill(name)

    def log(self, name: str) -> str:
        """What a process said."""
        return self._log(name).read_text(errors="replace")

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _start(
        self, name: str, words: Sequence[str], environment: dict[str, str], where: Path = CHECKOUT
    ) -> None:
        argv = [*self.prefixes.get(name, ()), sys.executable, "-m", "dask", *words]
        with self._log(name).open("ab") as log:
            self.processes[name] = subprocess.Popen(
                argv,
                cwd=where,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(CHECKOUT), **QUICK, **environment},
            )
