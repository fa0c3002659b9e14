"""1,000 nights of 20 cases, added, queried and made into pages: seconds and bytes.

    .venv/bin/python benchmarks/history.py [--nights 1000]

Four experiments of five cases, two arms, eight seeds, six metrics a case of which one is
primary, and 200 functions a case and arm, made up like those of a real night.  Writing is
timed with every file synced, as a nightly job does it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from history import exchange, pruning
from history.changes import changes_of
from history.entry import (
    PINNED,
    ArmCase,
    Ensemble,
    Entry,
    FunctionCost,
    NightFunctions,
    PhaseCost,
)
from history.store import HistoryStore
from history.table import table
from history.trend import trends
from pages import site
from reports.comparison import summarize
from results.record import Metric
from tests.history.factory import Nights

EXPERIMENTS, CASES, METRICS, FUNCTIONS = 4, 5, 6, 200


@contextmanager
def timed(what: str) -> Iterator[None]:
    begun, used = time.perf_counter(), time.process_time()
    yield
    cpu = time.process_time() - used
    print(f"| {what} | {time.perf_counter() - begun:.2f} s, of CPU {cpu:.2f} s |", flush=True)


def nights_of(number: int, nights: int) -> list[Entry]:
    """One experiment's year or three, with a step in the middle."""
    half = nights // 2
    made = Nights(
        levels=(0.0,) * half + (-0.01,) * (nights - half),
        cases=tuple(f"case-{case}" for case in range(CASES)),
        experiment=f"experiment-{number}", random_seed=number, functions=True,
    )  # fmt: skip
    return [wider(entry) for entry in made.entries()]


def wider(entry: Entry) -> Entry:
    """The same entry with as many metrics as a real one has."""
    names = tuple(f"4k.metric_{number}" for number in range(METRICS - 2))
    more = tuple(Metric(name=name, title=name, unit="1", direction="lower") for name in names)

    def arm(measured: ArmCase) -> ArmCase:
        values = [value for value in measured.metrics["4k.bw"].values if value is not None]
        others = {}
        for number, name in enumerate(names, start=1):
            scaled = tuple(value / number / 3 for value in values)
            others[name] = Ensemble(values=scaled, summary=summarize(scaled))
        return measured.model_copy(update={"metrics": {**measured.metrics, **others}})

    cases = tuple(
        case.model_copy(
            update={"metrics": (*case.metrics, *more), "arms": tuple(map(arm, case.arms))}
        )
        for case in entry.cases
    )
    return entry.model_copy(update={"cases": cases})


def functions_of(entry: Entry, random: np.random.Generator) -> NightFunctions:
    """Counts of one night: a long tail of functions, as there is in a real one."""
    sizes = 700 * 0.97 ** np.arange(FUNCTIONS)
    phases = []
    for case in entry.cases:
        for arm in (PINNED, "tonight"):
            counts = sizes * np.exp(0.001 * random.standard_normal(FUNCTIONS))
            rows = tuple(
                FunctionCost(f"function_number_{at}", "mm/filemap.c", round(float(count), 3),
                             1.234567, 0.1234567)
                for at, count in enumerate(counts)
            )  # fmt: skip
            phases.append(PhaseCost(
                case=case.name, phase="4k", arm=arm, unit="folio", unit_title="folio added",
                seeds=8, total=float(counts.sum()) + 10, others=10.0, functions=rows,
            ))  # fmt: skip
    return NightFunctions(phases=tuple(phases))


def size(folder: Path) -> str:
    files = [path for path in folder.rglob("*.json") if path.is_file()]
    return f"{sum(path.stat().st_size for path in files) / 2**20:.1f} MiB in {len(files)} files"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nights", type=int, default=1000)
    nights = parser.parse_args().nights
    random = np.random.default_rng(1)
    tracks = [nights_of(number, nights) for number in range(EXPERIMENTS)]
    in_order = sorted((entry for track in tracks for entry in track), key=lambda entry: entry.order)
    with tempfile.TemporaryDirectory() as top:
        store = HistoryStore(Path(top) / "history")
        counted = functions_of(in_order[0], random)
        print(f"| {nights} nights, {EXPERIMENTS * CASES} cases | |\n|---|---|")
        with timed("the first night added, synced"):
            for entry in in_order[:EXPERIMENTS]:
                store.add(entry, counted)
        with timed("all other nights added, synced"):
            for entry in in_order[EXPERIMENTS:]:
                store.add(entry, counted)
        for kind in ("nights", "functions"):
            print(f"| {kind} | {size(store.folder / kind)} |")
        with timed("everything read"):
            read = store.read()
        with timed("the table made"):
            frame = table(read.entries)
        with timed("the table asked for one course"):
            course = frame[(frame.case == "case-3") & (frame.metric == "4k.bw") & frame.primary]
            means = (
                course[course.arm == "tonight"].groupby("experiment")["mean"].agg(["min", "max"])
            )
        print(f"| rows, rows asked for | {len(frame)}, {len(course)} ({len(means)} tracks) |")
        with timed("every change of every night found anew"):
            changes = changes_of(read.entries, store.functions)
        steps = [change for change in changes if change.kind == "step"]
        print(f"| steps told, with functions | {len(steps)} of {EXPERIMENTS * CASES} true |")
        with timed("all trends of one experiment"):
            trends(read.tracks()[tracks[0][0].track], changes)
        place = Path(top) / "site"
        with timed("the site made"):
            built = site.build(store, place)
        for name in ("track", "compare", "night"):
            sizes = [path.stat().st_size / 2**20 for path in (place / name).iterdir()]
            print(f"| pages: {name} | {len(sizes)} files, the largest {max(sizes):.2f} MiB |")
        print(f"| nights on it | {built.nights} |")
        for form in exchange.FORMS[1:]:
            file = Path(top) / f"history{form}"
            with timed(f"exported as {form[1:]}"):
                exchange.export(read.entries, store.functions, file)
            print(f"| {form[1:]} | {file.stat().st_size / 2**20:.1f} MiB |")
        with timed("pruned to 60 whole nights"):
            pruning.apply(store, pruning.decide(read.entries, changes, keep_nights=60))
        for kind in ("nights", "functions"):
            print(f"| {kind}, pruned | {size(store.folder / kind)} |")
        with timed("everything read, pruned"):
            read = store.read()
        same: Callable[[], bool] = lambda: changes_of(read.entries) == changes_of(in_order)  # noqa: E731
        print(f"| the same changes are found | {'yes' if same() else 'NO'} |")


if __name__ == "__main__":
    main()
