"""Steps of wall courses: on which night they are dated, and with which interval.

Each track has a step at a known night and is judged by the code that judges real nights, once
all of its nights are there.  Prints the table of docs/history.md.

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
from dataclasses import dataclass, field
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


@dataclass
class Tally:
    """What came of the tracks of one size of step."""

    tracks: int = 0
    verdicts: int = 0
    suspected: int = 0
    unexplained: int = 0
    zero_inside: int = 0
    in_range: int = 0
    widths: list[int] = field(default_factory=list)
    size_inside: int = 0
    offsets: Counter[int] = field(default_factory=Counter)
    best: int = 0
    more: int = 0

    def row(self, size: float, share: float) -> str:
        """One line of the table."""
        off = ", ".join(f"{at:+d}: {count}" for at, count in sorted(self.offsets.items()) if at)
        return (
            f"| {100 * size:g} % | {100 * share:g} % | {self.verdicts} of {self.tracks} "
            f"| {self.offsets[0]} | {self.best} | {off or '–'} "
            f"| {self.in_range}, {np.mean(self.widths) if self.widths else 0:.1f} "
            f"| {self.zero_inside} | {self.size_inside} | {self.suspected}, {self.unexplained} "
            f"| {self.more} |"
        )


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


def tally(size: float, share: float, tracks: int) -> Tally:
    """Date the step of every track."""
    result = Tally()
    for number in range(tracks):
        entries, night = track(size, share, number)
        logs = followed(entries, "filemap-4k", "4k.bw", "tonight").relative()
        codes = [entry.subject.kernel.code_key for entry in entries]
        new = np.array([0.0, *(float(a != b) for a, b in itertools.pairwise(codes))])
        result.tracks += 1
        result.best += best_date(wall.nightly(logs)[1], size, new) == night
        changes = [c for c in changes_of(entries) if c.course.arm == "tonight"]
        kinds = Counter(change.kind for change in changes)
        result.suspected += kinds["suspected"]
        result.unexplained += kinds["unexplained"]
        verdicts = [change for change in changes if change.verdict is not None]
        result.verdicts += bool(verdicts)
        result.more += max(0, len(verdicts) - 1)
        result.zero_inside += sum((c.low or 0) <= 0 <= (c.high or 0) for c in verdicts)
        # Of several the one nearest to the truth is that of the step.
        nearest = min(verdicts, key=lambda c: abs(night_number(c.night) - night), default=None)
        if nearest:
            result.offsets[night_number(nearest.night) - night] += 1
            first, last = map(night_number, (nearest.earliest, nearest.latest))
            result.in_range += first <= night <= last
            result.widths.append(last - first + 1)
            result.size_inside += (nearest.low or 0) <= -size <= (nearest.high or 0)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="fewer tracks")
    tracks = QUICK_TRACKS if parser.parse_args().quick else TRACKS
    print("| step | new code on | verdict | dated right | best possible | off by nights "
          "| in the range of dates, its nights | zero in the interval | true size in it "
          "| suspected, unexplained | verdicts more |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for share in SHARES:
        for size in SIZES:
            print(tally(size, share, tracks).row(size, share), flush=True)


if __name__ == "__main__":
    main()
