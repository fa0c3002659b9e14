r"""Which releases were tried with which workloads, and what came out: configs/kernels-tried.csv.

Of sessions that compare a kernel with itself.  A row a release, architecture, case and number of
vCPUs: how many numbers of both arms are equal, whether the repeated run gave the same bits, how far
the first judged metric scatters between the seeds, in %, and the kernel's functions that were
executed.

    ./lab.py run --arm deb:linux-source-7.3 --arm deb:linux-source-7.3 --workloads all --seeds 8 \
        --set guest=smoke --no-twins --measure-anyway --measure-again --session sessions/aa
    .venv/bin/python benchmarks/kernels.py sessions/aa
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from analysis.findings import check_exactness
from results.session import MeasuredSession, open_session

TABLE = CHECKOUT / "configs/kernels-tried.csv"
KEY = ("release", "arch", "case", "vcpus")
REPEATS = {"bit-exact": "same bits", "inexact": "differs", "pending": "not made"}
FIELDS = (*KEY, "seeds", "equal", "numbers", "repeat", "spread", "functions", "failed", "date")


def rows_of(session: MeasuredSession) -> Iterator[dict[str, str]]:
    """A row for each case of a session of two equal arms."""
    manifest = session.manifest
    base, other = (arm.name for arm in manifest.arms[:2])
    profiles = {profile.run_id: profile for profile in session.profiles}
    for case in manifest.cases:
        judged = [r for r in session.records if r.case == case.name and not r.repeat and not r.twin]
        by_arm = {
            arm: {r.seed: dict(r.samples) for r in judged if r.arm == arm and r.samples}
            for arm in (base, other)
        }
        pairs = [
            (value, by_arm[other][seed].get(name))
            for seed, samples in by_arm[base].items()
            if seed in by_arm[other]
            for name, value in samples.items()
        ]
        repeats = [r for r in session.records if r.case == case.name and r.repeat]
        exactness = check_exactness([*judged, *repeats])
        failed = [r.failure for r in (*judged, *repeats) if r.failure is not None]
        primary = [
            samples[case.primary[0]]
            for samples in by_arm[base].values()
            if case.primary and case.primary[0] in samples
        ]
        executed = {
            (function.file, function.name)
            for r in judged
            if r.run_id in profiles
            for phase in profiles[r.run_id].phases
            for function in phase.kernel
            if function.calls
        }
        spread = 100 * np.std(primary, ddof=1) / np.mean(primary) if len(primary) > 1 else np.nan
        yield {
            "release": manifest.arms[0].kernel.release,
            "arch": manifest.guest.arch,
            "case": case.name,
            "vcpus": str(manifest.guest.vcpus),
            "seeds": str(len(by_arm[base])),
            "equal": str(sum(value == same for value, same in pairs)),
            "numbers": str(len(pairs)),
            "repeat": REPEATS.get(exactness.status, exactness.status),
            "spread": "" if np.isnan(spread) else f"{spread:.2f}",
            "functions": str(len(executed)),
            "date": manifest.created[:10],
            "failed": f"{failed[0].kind}: {failed[0].message}" if failed else "",
        }


def is_good(row: Mapping[str, str]) -> bool:
    """Whether every run was valid, and both arms and the repeats had the same numbers."""
    equal = row["numbers"] != "0" and row["equal"] == row["numbers"]
    return equal and row["repeat"] == "same bits" and not row["failed"]


def merged(new: Iterable[dict[str, str]], table: Path) -> list[dict[str, str]]:
    """The rows on file with new ones in the place of older ones."""
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    if table.exists():
        with table.open(newline="") as file:
            rows = {tuple(row[key] for key in KEY): row for row in csv.DictReader(file)}
    rows |= {tuple(row[key] for key in KEY): row for row in new}
    return [rows[key] for key in sorted(rows)]


def main() -> int:
    """Put the sessions' rows into the table; 3: one of them is not as it has to be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sessions", nargs="+", type=Path)
    parser.add_argument("--table", type=Path, default=TABLE)
    given = parser.parse_args()
    new = [row for folder in given.sessions for row in rows_of(open_session(folder))]
    rows = merged(new, given.table)
    with given.table.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    for row in new:
        sys.stdout.write(f"{' '.join(row[field] for field in FIELDS)}\n")
    return 0 if all(map(is_good, new)) else 3


if __name__ == "__main__":
    sys.exit(main())
