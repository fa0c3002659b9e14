"""Steps of wall courses: on which night they are dated, and with which interval.

Each track has a step at a known night and is judged by the code that judges real nights, once
all of its nights are there.  Prints the table of docs/notebook/nights.md.

    .venv/bin/python benchmarks/dating.py            # minutes
    .venv/bin/python benchmarks/dating.py --quick    # under a minute

The best possible is what the true levels and the true noise would give: nobody who has to
estimate them can date a step better.  The noise is that of benchmarks/nights.py.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import Counter
from pathlib import Path

import numpy as np

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from analysis.statistics import Floats
from benchmarks.nights import WALL, night_number
from history import wall
from history.changes import changes_of
from history.entry import Entry
from history.exact import followed
from tests.history.factory import Nights

SIZES = (0.01, 0.02, 0.04)
# Shares of the nights that have a kernel of their own.
SHARES = (1.0, 0.5, 0.15)
BEFORE, AFTER = 30, 30
TRACKS, QUICK_TRACKS = 200, 20
SEED = 20261122


def track(size: float, share: float, number: int) -> tuple[list[Entry], int]:
    """A track of nights with one step down, and the night of the step, which has new code."""
    random = np.random.default_rng([SEED, number, round(1e4 * size), round(100 * share)])
    night = BEFORE + int(random.integers(0, 10))
    new = random.random(night + AFTER) < share
    new[[0, night]] = True
    codes = tuple(f"c{code:x}" for code in np.cumsum(new))
    levels = (0.0,) * night + (float(np.log1p(-size)),) * AFTER
    made = Nights(levels=levels, codes=codes, mode="wall", random_seed=number, **WALL)  # type: ignore[arg-type]
    return made.entries(), night


def best_date(estimates: Floats, size: float, new: Floats) -> int:
    """The likeliest date for who knows both levels: the least squares over the nights."""
    before, after = estimates**2, (estimates - np.log1p(-size)) ** 2
    losses = np.concatenate([[0.0], np.cumsum(before)]) + np.concatenate(
        [np.cumsum(after[::-1])[::-1], [0.0]]
    )
    return int(np.argmin(np.where(new > 0, losses[:-1], np.inf)))


def tally(size: float, share: float, tracks: int) -> dict[str, list[int]]:
    """What came of the tracks with one size of step: a number a track, or a verdict, by heading."""
    result: dict[str, list[int]] = {
        name: []
        for name in (
            "verdict",
            "offset",
            "best",
            "in range",
            "width",
            "zero inside",
            "size inside",
            "suspected",
            "unexplained",
            "more",
        )
    }
    for number in range(tracks):
        entries, night = track(size, share, number)
        logs = followed(entries, "filemap-4k", "4k.bw", "tonight").relative()
        codes = [entry.subject.kernel.code_key for entry in entries]
        new = np.array([0.0, *(float(a != b) for a, b in itertools.pairwise(codes))])
        result["best"].append(best_date(wall.nightly(logs)[1], size, new) == night)
        changes = [c for c in changes_of(entries) if c.course.arm == "tonight"]
        kinds = [change.kind for change in changes]
        result["suspected"].append(kinds.count("suspected"))
        result["unexplained"].append(kinds.count("unexplained"))
        verdicts = [change for change in changes if change.verdict is not None]
        result["verdict"].append(bool(verdicts))
        result["more"].append(max(0, len(verdicts) - 1))
        result["zero inside"] += [(c.low or 0) <= 0 <= (c.high or 0) for c in verdicts]
        # Of several the one nearest to the truth is that of the step.
        nearest = min(verdicts, key=lambda c: abs(night_number(c.night) - night), default=None)
        if nearest:
            first, last = map(night_number, (nearest.earliest, nearest.latest))
            result["offset"].append(night_number(nearest.night) - night)
            result["in range"].append(first <= night <= last)
            result["width"].append(last - first + 1)
            result["size inside"].append((nearest.low or 0) <= -size <= (nearest.high or 0))
    return result


def row(size: float, share: float, result: dict[str, list[int]]) -> str:
    """One line of the table."""
    total = {name: sum(values) for name, values in result.items()}
    offsets = Counter(result["offset"])
    off = ", ".join(f"{at:+d}: {count}" for at, count in sorted(offsets.items()) if at)
    return (
        f"| {100 * size:g} % | {100 * share:g} % | {total['verdict']} of {len(result['best'])} "
        f"| {offsets[0]} | {total['best']} | {off or '–'} "
        f"| {total['in range']}, {np.mean(result['width'] or [0]):.1f} "
        f"| {total['zero inside']} | {total['size inside']} "
        f"| {total['suspected']}, {total['unexplained']} | {total['more']} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer tracks")
    tracks = QUICK_TRACKS if parser.parse_args().quick else TRACKS
    print(
        "| step | new code on | verdict | dated right | best possible | off by nights "
        "| in the range of dates, its nights | zero in the interval | true size in it "
        "| suspected, unexplained | verdicts more |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for share, size in itertools.product(SHARES, SIZES):
        print(row(size, share, tally(size, share, tracks)), flush=True)


if __name__ == "__main__":
    main()
