"""A fleet's throughput, what it costs a run, and what a larger one would do.

Prints the tables of docs/fleet.md.

    .venv/bin/python benchmarks/fleet.py empty       # scheduler and client, with empty parcels
    .venv/bin/python benchmarks/fleet.py guests      # real guests over 1, 2, ... workers
    .venv/bin/python benchmarks/fleet.py simulate    # 1 to 1,000 workers, 100 series a day

``empty`` boots nothing: workers of a real scheduler answer at once with a few bytes, so that
what is left is dask and the client.  ``guests`` measures
tests/integration/small.toml with caches that are empty.  ``simulate`` plays days of series
on workers of one core each with the times below, which were measured here.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from experiment.load import load_guest
from experiment.plan import Size
from fleet.configured import executor_of
from fleet.executor import DaskExecutor
from guests.exact import Machine, Outcome
from host.process import cpu_s_of
from runs.boots import Boot, Place
from runs.progress import Reporter
from tests.fleet.cluster import Cluster

PARCELS = 200
SMALL = CHECKOUT / "tests/integration/small.toml"
DAY_S = 24 * 3600.0
# Series a day for each worker that no worker can do.
MORE_THAN_DONE = 30


@dataclass(frozen=True)
class Costs:
    """What was measured, in seconds, each on one core.

    Of a run of the laptop guest, of a kernel, of the scheduler for a parcel, and of the client
    for the judging of a run.
    """

    run_s: float = 40.0
    spread: float = 0.15
    snapshot_s: float = 30.0
    build_s: float = 960.0
    scheduler_s: float = 0.0
    client_s: float = 0.0
    check_one_in: int = 16


@dataclass(frozen=True)
class Series:
    """What one series asks of the fleet: filemap-v4 as shipped, its base kernels cached."""

    runs: int = 54
    machines: int = 6
    builds: int = 4


@dataclass(frozen=True)
class Day:
    """How a fleet did: series done each day, hours to a report, share of workers busy."""

    workers: int
    done: float
    median_h: float
    late_h: float
    busy: float


class Nobody:
    """A judge that keeps nothing."""

    def first(self, boot: Boot, outcome: Outcome) -> str:
        """None."""
        return ""

    def receive(self, boot: Boot, outcome: Outcome, *, last: bool) -> bool:
        """Never again."""
        return False

    def withdraw(self, names: object) -> None:
        """Nobody lies here."""
        raise AssertionError(names)


class Silent(Reporter):
    """Says nothing."""

    def log(self, text: str) -> None:
        """Nothing."""


@dataclass
class Progress:
    """One series under way: when it came, what is left, and the snapshots it paid for."""

    came: float
    builds: int
    parcels: int
    client: float
    snapshots: set[tuple[int, int]] = field(default_factory=set)


def simulate(
    workers: int, costs: Costs, series: Series = Series(), *, a_day: int = 100, days: int = 3
) -> Day:
    """Days of series that come evenly; no worker is idle while something is ready.

    A worker is one core with one guest, and earlier series go first.  It takes a snapshot of
    each machine of a series that it serves; a parcel is not begun before the scheduler has
    dealt with those before it, and a session's client judges one result at a time.
    """
    rng = np.random.default_rng(workers)
    checks = -(-series.runs // costs.check_one_in) if costs.check_one_in else 0
    parcels = series.runs + checks
    every = [Progress(n * DAY_S / a_day, series.builds, parcels, 0.0) for n in range(a_day * days)]
    events = [(progress.came, 0, number, -1) for number, progress in enumerate(every)]
    heapq.heapify(events)
    # By series, builds (-1) before parcels: what is ready, and workers that are free.
    ready: list[tuple[int, int]] = []
    free = list(range(workers))
    now = scheduler = busy = 0.0
    waits = []
    while events:
        now, came, number, done = heapq.heappop(events)
        progress = every[number]
        if not came:
            for _ in range(series.builds):
                heapq.heappush(ready, (number, -1))
        elif done < 0:
            progress.builds -= 1
            if not progress.builds:
                for parcel in range(parcels):
                    heapq.heappush(ready, (number, parcel))
        else:
            progress.client = max(progress.client, now) + costs.client_s
            progress.parcels -= 1
            if not progress.parcels:
                waits.append(progress.client - progress.came)
        if came:
            heapq.heappush(free, came - 1)
        while ready and free:
            number, parcel = heapq.heappop(ready)
            worker = heapq.heappop(free)
            duration_s, start = costs.build_s, now
            if parcel >= 0:
                start = scheduler = max(scheduler, now) + costs.scheduler_s
                duration_s = costs.run_s * float(np.exp(rng.normal(0.0, costs.spread)))
                fresh = (worker, parcel % series.machines)
                duration_s += costs.snapshot_s * (fresh not in every[number].snapshots)
                every[number].snapshots.add(fresh)
            busy += duration_s
            heapq.heappush(events, (start + duration_s, worker + 1, number, parcel))
    return Day(
        workers,
        a_day * days / now * DAY_S,
        statistics.median(waits) / 3600,
        float(np.percentile(waits, 95)) / 3600,
        busy / (workers * now),
    )


def empty(most: int) -> None:
    """Units that do nothing, over real workers."""
    print("workers | runs/s | ms a run | client CPU ms a run | scheduler CPU ms")
    for count in range(1, most + 1):
        with tempfile.TemporaryDirectory() as name:
            print(_empty(Path(name), count))


def _empty(folder: Path, count: int) -> str:
    cluster = Cluster(folder)
    try:
        cluster.start_scheduler()
        for number in range(count):
            cluster.start_worker(str(number), STAND_IN_SECONDS="0")
        boots = _boots(folder)
        place = Place(folder / "cache", folder / "session" / "raw", Silent(), count)
        place.raw.mkdir(parents=True)
        store = str(folder / "store")
        with executor_of(
            cluster.address, store, checkout=CHECKOUT, cache=folder / "cache", log=lambda text: None
        ) as executor:
            assert isinstance(executor, DaskExecutor)
            while executor.slots(16, None) < count:
                time.sleep(0.1)
            executor.boot([boots[:count]], Nobody(), place)
            pid = cluster.processes["scheduler"].pid
            scheduler = cpu_s_of(pid)
            before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
            executor.boot([boots[count:]], Nobody(), place)
            elapsed = time.monotonic() - began
            after = resource.getrusage(resource.RUSAGE_SELF)
            scheduler = cpu_s_of(pid) - scheduler
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        done = len(boots) - count
        return (
            f"{count} | {done / elapsed:.0f} | {1000 * elapsed / done:.1f} | "
            f"{1000 * used / done:.1f} | {1000 * scheduler / done:.1f}"
        )
    finally:
        cluster.stop()


def _boots(folder: Path) -> list[Boot]:
    files = {}
    for name in ("kernel", "initramfs", "preload"):
        files[name] = folder / name
        files[name].write_bytes(name.encode())
    guest = load_guest(Path("smoke")).model_copy(update={"memory_mib": 16})
    machine = Machine(
        files["kernel"], files["initramfs"], guest, Size(32, 64, 52, 4), "", files["preload"]
    )
    return [Boot(f"run-{n}", "base", machine, f"job {n}", False) for n in range(PARCELS)]


def guests(most: int) -> None:
    """The small experiment over real workers, each with an empty cache."""
    print(
        "workers | s for 7 runs | guests' CPU s | runs a minute | client CPU s a run | "
        "KiB moved a run | MiB fetched a worker"
    )
    for count in range(1, most + 1):
        with tempfile.TemporaryDirectory() as name:
            print(_guests(Path(name), count))


def _guests(folder: Path, count: int) -> str:
    cluster = Cluster(folder, preload="")
    session = folder / "session"
    try:
        cluster.start_scheduler()
        for number in range(count):
            cluster.start_worker(str(number))
        more = ["--executor", cluster.address, "--store", str(folder / "store")]
        arguments = [str(SMALL), "--set", "blocks=3", "--session", str(session)]
        began = time.monotonic()
        spent = _cpu_s("measure", *arguments, *more)
        elapsed = time.monotonic() - began
        idle = _cpu_s("measure", "--resume", str(session))
    finally:
        cluster.stop()
    costs = [json.loads(line) for line in (session / "costs.jsonl").read_text().splitlines()]
    events = [json.loads(line) for line in (session / "fleet.jsonl").read_text().splitlines()]
    received = sum(line.get("received", 0) for line in events) / count / (1 << 20)
    moved = statistics.mean(line["moved"] for line in events if "moved" in line) / 1024
    used = sum(cost["guest_cpu_s"] for cost in costs)
    return (
        f"{count} | {elapsed:.0f} | {used:.0f} | {60 * len(costs) / elapsed:.1f} | "
        f"{(spent - idle) / len(costs):.2f} | {moved:.0f} | {received:.0f}"
    )


def _cpu_s(*words: str) -> float:
    """CPU seconds of one lab process itself."""
    lab = subprocess.Popen(
        [sys.executable, str(CHECKOUT / "lab.py"), *words], stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    _, status, used = os.wait4(lab.pid, 0)
    assert status == 0, words
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("empty", "guests", "simulate"))
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="at most")
    parser.add_argument("--scheduler-ms", type=float, default=6.0, help="of a parcel, as measured")
    parser.add_argument("--client-s", type=float, default=0.35, help="of a run, as measured")
    arguments = parser.parse_args()
    if arguments.what == "empty":
        empty(arguments.workers)
    elif arguments.what == "guests":
        guests(arguments.workers)
    else:
        costs = Costs(scheduler_s=arguments.scheduler_ms / 1000, client_s=arguments.client_s)
        print("workers | most series a day | of 100 a day: hours to a report, 95 % | busy")
        for workers in (1, 10, 100, 1000):
            day = simulate(workers, costs)
            most = simulate(workers, costs, a_day=MORE_THAN_DONE * workers, days=1)
            late = f"{day.median_h:.2f} | {day.late_h:.2f} | {100 * day.busy:.0f} %"
            print(f"{workers} | {most.done:.0f} | {late if day.done > 99 else 'not done | | '}")


if __name__ == "__main__":
    main()
