r"""What kinds of added work cost in time, and how well a sum of what they add predicts it.

Forty of the ninety mutations in benchmarks/mutations are drawn, each timed against the empty one at
its place; a model is fitted to the first twenty and held against the others.

    ./lab.py run --series benchmarks/mutations --workloads filemap-4k,memory,trees --mode native \
        --seeds 8 --session sessions/mutations
    .venv/bin/python benchmarks/cycles.py sessions/mutations --half fit --to fit.jsonl
    .venv/bin/python benchmarks/cycles.py sessions/mutations --half sealed --to sealed.jsonl
    .venv/bin/python benchmarks/cycles.py --judge fit.jsonl sealed.jsonl
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from analysis.native import nanoseconds
from analysis.statistics import hodges_lehmann
from guests import uml
from host.facts import cache_folder
from host.fitness import host_cpus, side_by_side
from kernels.cache import load
from results import native


class Work(NamedTuple):
    """What one execution adds; ``chain``: cycles of its longest chain, by published latencies."""

    name: str
    instructions: int
    chain: int = 0
    guesses: float = 0
    l2: int = 0
    llc: int = 0
    locked: int = 0


WORK = (
    Work("24 multiplications in a chain", 24, chain=72),
    Work("8 multiplications in a chain", 8, chain=24),
    Work("128 additions in four chains", 128, chain=32),
    Work("256 no-ops", 256),
    Work("64 no-ops", 64),
    Work("32 branches never taken", 64),
    Work("4 random branches", 21, guesses=2),
    Work("10 random branches", 36, guesses=5),
    Work("16 loads from L1", 16),
    Work("12 loads from L1 in a chain", 12, chain=48),
    Work("4 random loads of 256 KiB", 24, l2=4),
    Work("2 random loads of 4 MiB", 18, llc=2),
    Work("32 stores", 32),
    Work("3 locked additions", 3, locked=3),
    Work("3 divisions in a chain", 9, chain=45),
)
EMPTY = 15
# The phase that goes through each place, and how often an operation does.
PLACES = {1: "readahead", 2: "truncate", 3: "shmem", 4: "slab", 5: "xarray", 6: "maple"}
TIMES = {place: 2 if place == 5 else 1 for place in PLACES}
COLUMNS = ("instructions", "chain", "guesses", "l2", "llc", "locked")
# Of percent: what is near enough, or a quarter of the change.
NEAR, QUARTER = 0.5, 0.25
ROUNDS = 24


def drawn() -> Mapping[str, list[int]]:
    """Both halves of the forty; a mutation is 16 times its place, and its kind."""
    every = [16 * place + kind for place in PLACES for kind in range(len(WORK))]
    forty = random.Random(20261128).sample(every, 40)  # noqa: S311
    return {"fit": sorted(forty[:20]), "sealed": sorted(forty[20:])}


def measure(session: Path, half: str, to: Path) -> None:
    """Time every mutation of a half, and the empty one of each of its places twice a round."""
    head, _ = native.read(session)
    kernel = load(cache_folder(), head.arms[1].kernel)
    if kernel is None:
        sys.exit(f"{session}: its kernel is not in the cache any more: measure it anew")
    mutations = drawn()[half]
    empty = sorted({16 * (each // 16) + EMPTY for each in mutations})
    plan = []
    for number in range(ROUNDS):
        boots = [(number, each, which) for which in (0, 1) for each in empty]
        boots += [(number, each, 0) for each in mutations]
        random.Random(f"{half} {number}").shuffle(boots)  # noqa: S311
        plan += boots
    cpus: SimpleQueue[int | None] = SimpleQueue()
    lanes, _ = side_by_side(host_cpus(), 2)
    for cpu in lanes:
        cpus.put(cpu)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(lanes)) as pool:
        archive = uml.root(Path(folder), cache_folder(), kernel.modules)

        def boot(job: tuple[int, int, int]) -> dict[str, float]:
            number, mutation, which = job
            cpu, phase = cpus.get(), PLACES[mutation // 16]
            image = kernel.orders[number % head.orders]
            place = Path(folder, "-".join(map(str, job)))
            more = [f"mutation={mutation}"]
            result, ending, _ = uml.boot(image, archive, place, [phase], cpu, more=more)
            cpus.put(cpu)
            if result is None:
                sys.exit(f"mutation {mutation}: {ending.message}")
            ns = nanoseconds(result.phases[phase], result.hertz)
            return {"round": number, "mutation": mutation, "which": which, "ns": ns}

        rows = [json.dumps(row) for row in pool.map(boot, plan)]
    to.write_text("\n".join(rows) + "\n")


def changes(file: Path) -> dict[int, tuple[float, float]]:
    """Of each mutation the change in percent, and nanoseconds of its place's empty one."""
    ns: dict[tuple[int, int], dict[int, float]] = {}
    for row in map(json.loads, file.read_text().splitlines()):
        ns.setdefault((row["mutation"], row["which"]), {})[row["round"]] = row["ns"]
    by_mutation = {}
    for (mutation, _), of in ns.items():
        first, again = (ns[16 * (mutation // 16) + EMPTY, which] for which in (0, 1))
        if mutation % 16 != EMPTY:
            logs = [math.log(of[at] / math.sqrt(first[at] * again[at])) for at in of]
            by_mutation[mutation] = 100 * math.expm1(hodges_lehmann(logs)), median(first.values())
    return by_mutation


def judge(fit: Path, sealed: Path) -> None:
    """Fit, say the coefficients, and how near each half is."""

    def added(mutation: int, ns: float) -> list[float]:
        work, times = WORK[mutation % 16], TIMES[mutation // 16]
        return [100 * times * getattr(work, column) / ns for column in COLUMNS]

    near = {half: changes(file) for half, file in (("fit", fit), ("sealed", sealed))}
    weights = [1 / max(NEAR, QUARTER * abs(change)) for change, _ in near["fit"].values()]
    rows = np.array([added(each, ns) for each, (_, ns) in near["fit"].items()])
    measured = np.array([change for change, _ in near["fit"].values()])
    coefficients, _ = nnls(rows * np.array(weights)[:, None], measured * weights)
    print(
        *(f"{name} {ns:.3f} ns" for name, ns in zip(COLUMNS, coefficients, strict=True)), sep=", "
    )
    for half, of in near.items():
        good = 0
        for mutation, (change, ns) in sorted(of.items()):
            model = float(np.dot(added(mutation, ns), coefficients))
            is_near = abs(model - change) <= max(NEAR, QUARTER * abs(change))
            good += is_near
            where, kind = PLACES[mutation // 16], WORK[mutation % 16].name
            mark = "" if is_near else "  not near"
            print(f"  {where:10} {kind:30} measured {change:+7.2f} %  model {model:+7.2f} %{mark}")
        print(f"{half}: {good} of {len(of)} near")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("session", type=Path, nargs="?")
    parser.add_argument("--half", choices=("fit", "sealed"))
    parser.add_argument("--to", type=Path)
    parser.add_argument("--judge", type=Path, nargs=2)
    options = parser.parse_args()
    if options.judge:
        judge(*options.judge)
    elif options.session and options.half and options.to:
        measure(options.session, options.half, options.to)
    else:
        parser.error("a session with --half and --to, or --judge with two files")


if __name__ == "__main__":
    main()
