"""Contention against interleaving and hold time: the tables of docs/locks.md.

Guests of several vCPUs take turns, and a turn ends at a virtual timer or where a vCPU
waits.  `interleaving` counts contentions of the page cache's tree lock against the
number of vCPUs and the period of the metronome.  `hold` does it for series that add 4096
instructions outside and inside of that lock.  `events` does the same without lockdep,
with the contention events and the entries of the slow path.

    .venv/bin/python benchmarks/contention.py interleaving --seeds 2
    .venv/bin/python benchmarks/contention.py hold --seeds 4
    .venv/bin/python benchmarks/contention.py events --seeds 4
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from experiment.load import load_experiment
from experiment.plan import PlannedRun
from experiment.spec import Observed, ShapeSpec, TwinSpec
from guests import exact
from host.facts import cache_folder
from results.locks import LockClass, Locks, PhaseLocks
from results.profile import PhaseProfile, Profile
from runs.observe import observe
from runs.options import Options
from runs.prepare import Session, catalogue, prepare
from workloads.parse import guest_result

PHASE = "4k"
NATIVE_LOCKS = "Nehalem,-hypervisor"
SLOW_PATH = "native_queued_spin_lock_slowpath"
TREE_LOCK_SITES = {"__filemap_add_folio", "__remove_mapping"}
NO_SERIES = ""
OUTSIDE, INSIDE = "slow-add-4096", "slow-add-locked-4096"
MORE_MEMORY_MIB = 256


@dataclass(frozen=True)
class Shape:
    """Series applied (none, or its folder), vCPUs, and the metronome's period in ns."""

    series: str
    vcpus: int
    metronome_ns: int


@dataclass(frozen=True)
class ContentionRun:
    """One run: its counts by function, its locks, and its cost in host CPU seconds."""

    profile: PhaseProfile
    locks: PhaseLocks
    cpu_s: float

    @property
    def folios(self) -> float:
        """Folios added."""
        return self.profile.units["folio"]

    @property
    def slow_path(self) -> int:
        """Entries of the slow path of spinlocks."""
        return sum(function.calls for function in self.profile.kernel if function.name == SLOW_PATH)

    def per_folio(self, count: float) -> float:
        """Per 1,000 folios added."""
        return 1000 * count / self.folios


def silent(word: str) -> None:
    """Nobody watches."""


def measured(shape: Shape, observed: Observed, seeds: int, guest: str) -> Iterator[ContentionRun]:
    """Runs of one shape from one snapshot, a seed each."""
    overrides = [f"guest={guest}", "blocks=1"]
    if shape.series:
        overrides += [f"series.path=configs/series/{shape.series}", "series.reverse=false"]
    experiment = load_experiment(
        Path("filemap-v4"), overrides=overrides, catalogue=catalogue(CHECKOUT)
    )
    twin = TwinSpec(
        name="study", observe=observed, cases=("filemap-4k",), blocks=seeds,
        flavour="lockstat" if observed == "lock_stat" else "perf",
        guest=ShapeSpec(
            vcpus=shape.vcpus, jobs=max(4, shape.vcpus), cpu=NATIVE_LOCKS,
            metronome_ns=shape.metronome_ns, more_memory_mib=MORE_MEMORY_MIB,
        ),
    )  # fmt: skip
    experiment = experiment.model_copy(update={"twins": (twin,)})
    session = prepare(experiment, Options(CHECKOUT, cache_folder()), lambda arm, progress: None)
    # filemap-v4 takes its series out for the base, the others put theirs in.
    arm = next(a.name for a in experiment.all_arms if a.patches == bool(shape.series))
    runs = [run for run in session.plan.runs if run.twin == twin.name and run.arm == arm]
    with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
        top = Path(folder)
        snapshot = exact.take_snapshot(session.machine(runs[0]), top / "s", top / "logs", silent)
        for run in runs:
            yield _run(session, snapshot, run, top / run.run_id)


def _run(session: Session, snapshot: exact.Snapshot, run: PlannedRun, place: Path) -> ContentionRun:
    done = exact.run_restored(
        snapshot, session.job(run), place, place / "logs", silent, probe=session.probe
    )
    if done.files is None:
        raise SystemExit(f"{run.run_id}: {done.ending.message}")
    phases = tuple(phase.name for phase in session.phases(session.case(run.case)))
    observed = observe(session, run, done, guest_result(done.files, phases))
    if observed.findings:
        raise SystemExit(f"{run.run_id}: {'; '.join(observed.findings)}")
    shutil.rmtree(place)
    profile = next(record for record in observed.beside if isinstance(record, Profile))
    locks = next(record for record in observed.beside if isinstance(record, Locks))
    return ContentionRun(profile.phases[0], locks.phases[0], done.cpu_s)


def tree_lock(run: ContentionRun, key: str = "") -> LockClass:
    """The class of i_pages.xa_lock: by its key, else by who waited for it."""
    for lock in run.locks.classes:
        known = lock.key == key or {site.function for site in lock.waiters} & TREE_LOCK_SITES
        if known and lock.name.startswith("&xa->xa_lock"):
            return lock
    raise SystemExit("the tree lock was not contended, and no key is known for it")


def queue(vcpus: int, think: float, hold: float) -> float:
    """Share of arrivals that find the server busy in a closed queue.

    The machine-repairman model: ``vcpus`` customers think for ``think`` and are served
    for ``hold``, both exponential, by one server.  An arrival sees the queue as it is
    with one customer less (Sevcik and Mitrani 1981; Lavenberg and Reiser 1980); the
    response time follows by mean value analysis.
    """
    waiting = 0.0
    busy = 0.0
    for customers in range(1, vcpus):
        response = hold * (1 + waiting)
        throughput = customers / (think + response)
        waiting, busy = throughput * response, throughput * hold
    return busy


def mean_sd(values: Sequence[float], digits: int = 0) -> str:
    """Mean and standard deviation over seeds, as text."""
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.{digits}f} ± {spread:.{digits}f}"


@dataclass(frozen=True)
class Alone:
    """The tree lock on one vCPU: key, and ns of hold and of everything per acquisition."""

    key: str
    hold_ns: float
    cycle_ns: float
    per_folio: float


def alone(series: str, guest: str) -> Alone:
    """What one vCPU says of the tree lock; its key comes from a guest in which it is contended."""
    contended = next(iter(measured(Shape(series, 4, 20_000), "lock_stat", 1, guest)))
    key = tree_lock(contended).key
    run = next(iter(measured(Shape(series, 1, 0), "lock_stat", 1, guest)))
    lock = tree_lock(run, key)
    return Alone(
        key=key,
        hold_ns=lock.hold_total_ns / lock.acquisitions,
        cycle_ns=run.profile.instructions / lock.acquisitions,
        per_folio=lock.acquisitions / run.folios,
    )


def row(*cells: object) -> None:
    """One row of a Markdown table, at once."""
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def interleaving(seeds: int, guest: str) -> None:
    """Contentions against vCPUs and metronome, without a series."""
    single = alone(NO_SERIES, guest)
    print(f"one vCPU: hold {single.hold_ns:.0f} ns, cycle {single.cycle_ns:.0f} ns, "
          f"{single.per_folio:.2f} acquisitions a folio")  # fmt: skip
    row("vCPUs", "metronome µs", "tree lock", "queue", "wait µs", "lru_lock", "slow path", "host s")
    for vcpus in (2, 4, 8):
        expected = (
            queue(vcpus, single.cycle_ns - single.hold_ns, single.hold_ns) * single.per_folio * 1000
        )
        for period_us in (0, 100, 50, 20, 10, 5):
            runs = list(
                measured(Shape(NO_SERIES, vcpus, period_us * 1000), "lock_stat", seeds, guest)
            )
            locks = [tree_lock(run, single.key) for run in runs]
            lru = [
                sum(lock.contentions for lock in run.locks.classes
                    if lock.name.startswith("&lruvec->lru_lock"))
                for run in runs
            ]  # fmt: skip
            waits = sum(lock.wait_total_ns for lock in locks)
            row(
                vcpus, period_us or "none",
                mean_sd([s.per_folio(lo.contentions) for s, lo in zip(runs, locks, strict=True)]),
                f"{expected:.0f}",
                f"{waits / max(1, sum(lock.contentions for lock in locks)) / 1000:.0f}",
                mean_sd([s.per_folio(count) for s, count in zip(runs, lru, strict=True)]),
                mean_sd([run.per_folio(run.slow_path) for run in runs]),
                f"{statistics.mean(run.cpu_s for run in runs):.1f}",
            )  # fmt: skip


def hold(seeds: int, guest: str, period_us: int) -> None:
    """Contentions against hold time and vCPUs, with lock_stat."""
    row("series", "hold ns", "cycle ns", "vCPUs", "contentions", "queue", "waited µs", "slow path")
    for series in (NO_SERIES, OUTSIDE, INSIDE):
        single = alone(series, guest)
        for vcpus in (2, 4, 8):
            runs = list(measured(Shape(series, vcpus, period_us * 1000), "lock_stat", seeds, guest))
            locks = [tree_lock(run, single.key) for run in runs]
            expected = (
                queue(vcpus, single.cycle_ns - single.hold_ns, single.hold_ns)
                * single.per_folio
                * 1000
            )
            row(
                series or "none", f"{single.hold_ns:.0f}", f"{single.cycle_ns:.0f}", vcpus,
                mean_sd([s.per_folio(lo.contentions) for s, lo in zip(runs, locks, strict=True)]),
                f"{expected:.0f}",
                mean_sd(
                    [lo.wait_total_ns / s.folios / 1000 for s, lo in zip(runs, locks, strict=True)],
                    1,
                ),
                mean_sd([run.per_folio(run.slow_path) for run in runs]),
            )  # fmt: skip


def events(seeds: int, guest: str, period_us: int) -> None:
    """Contention events and slow-path entries of the measured kernel's flavour."""
    row("series", "vCPUs", "slow path", "waits at the tree lock", "their µs a folio", "other waits")
    for vcpus in (2, 4, 8):
        for series in (NO_SERIES, OUTSIDE, INSIDE):
            shape = Shape(series, vcpus, period_us * 1000)
            runs = list(measured(shape, "contention", seeds, guest))
            if any(run.locks.dropped for run in runs):
                raise SystemExit(f"{shape}: events were dropped")
            at = [
                [wait for wait in run.locks.waits if set(wait.callers[:2]) & TREE_LOCK_SITES]
                for run in runs
            ]
            both = list(zip(runs, at, strict=True))
            counts = [s.per_folio(sum(wait.count for wait in waits)) for s, waits in both]
            times = [sum(wait.total_ns for wait in waits) / s.folios / 1000 for s, waits in both]
            everything = [s.per_folio(sum(wait.count for wait in s.locks.waits)) for s in runs]
            row(
                series or "none", vcpus,
                mean_sd([run.per_folio(run.slow_path) for run in runs]),
                mean_sd(counts), mean_sd(times, 1),
                mean_sd([total - there for total, there in zip(everything, counts, strict=True)]),
            )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table", choices=["interleaving", "hold", "events"])
    parser.add_argument("--guest", default="smoke")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--period-us", type=int, default=20)
    arguments = parser.parse_args()
    if arguments.table == "interleaving":
        interleaving(arguments.seeds, arguments.guest)
    elif arguments.table == "hold":
        hold(arguments.seeds, arguments.guest, arguments.period_us)
    else:
        events(arguments.seeds, arguments.guest, arguments.period_us)


if __name__ == "__main__":
    main()
