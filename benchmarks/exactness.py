"""How exact is exact mode on this host: boots, restored runs and cold runs compared.

Boots the unpatched kernel of an experiment again and again, with as many guests at
once as asked, and counts how many different memories and results come out.  One of
each is what the lab promises.  With --busy, loops keep the host loaded meanwhile.

    .venv/bin/python benchmarks/exactness.py --boots 8 --runs 6 --cold 2 --busy 2
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from experiment.load import load_experiment
from guests import channel, exact
from guests.exact import Machine
from host.facts import cache_folder
from host.process import spawn
from runs.local import Options
from runs.prepare import boot_of, prepare
from runs.resolved import catalogue, resolve


def silent(word: str) -> None:
    """Nobody watches."""


def boot(machine: Machine, folder: Path) -> str:
    """Digest of the memory at the stop point of one boot."""
    snapshot = exact.take_snapshot(machine, folder, folder / "logs", silent)
    with snapshot.memory.open("rb") as memory:
        digest = hashlib.file_digest(memory, "sha256").hexdigest()
    snapshot.memory.unlink()
    return digest[:16]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--experiment", default="filemap-v4")
    parser.add_argument("--guest", default="laptop")
    parser.add_argument("--boots", type=int, default=8)
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--cold", type=int, default=2)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--busy", type=int, default=0)
    arguments = parser.parse_args()

    overrides = [f"guest={arguments.guest}", "blocks=1"]
    experiment = load_experiment(
        Path(arguments.experiment), overrides=overrides, catalogue=catalogue(CHECKOUT)
    )
    experiment = experiment.model_copy(update={"twins": ()})
    resolved = resolve(experiment, checkout=CHECKOUT, cache=cache_folder())
    session = prepare(resolved, Options(CHECKOUT, cache_folder()), lambda arm, progress: None)
    first = session.plan.runs[0]
    booted = boot_of(session, first, cold=True)
    machine, text = booted.machine, booted.job_text

    with ExitStack() as stack:
        top = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=cache_folder())))
        for number in range(arguments.busy):
            argv = ["sh", "-c", "while :; do :; done"]
            stack.enter_context(spawn(argv, log=top / f"busy-{number}", env=dict(os.environ)))
        pool = stack.enter_context(ThreadPoolExecutor(arguments.at_once))

        boots = pool.map(lambda n: boot(machine, top / f"boot-{n}"), range(arguments.boots))
        print("memories", dict(Counter(boots)))

        snapshot = exact.take_snapshot(machine, top / "snapshot", top / "snapshot-logs", silent)

        def run(number: int) -> str:
            folder = top / f"run-{number}"
            if number < arguments.runs:
                done = exact.run_restored(snapshot, text, folder, folder / "logs", silent)
            else:
                done = exact.run_cold(machine, text, folder, folder / "logs", silent)
            return channel.fingerprint(done.files)[:16] if done.files else done.ending.message

        results = Counter(pool.map(run, range(arguments.runs + arguments.cold)))
        print("results ", dict(results))
    return len(results) != 1


if __name__ == "__main__":
    sys.exit(main())
