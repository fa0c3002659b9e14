"""A year of simulated nights: what the history finds, how late, and what it makes up.

Every scenario is a number of tracks of 365 nights with changes at known nights, judged
by the code that judges real ones.  Prints the table of docs/notebook/nights.md.

    .venv/bin/python benchmarks/nights.py            # minutes
    .venv/bin/python benchmarks/nights.py --quick    # under a minute
    .venv/bin/python benchmarks/nights.py --rules    # exact nights by other rules
    .venv/bin/python benchmarks/nights.py --series FILE    # the wall nights, for otava_nights.py

Exact nights: eight seeds, each rolled anew (0.25 % between two kernels) for every kernel
and every setting of the lab.  Wall nights: twelve blocks, of 0.8 % each, a host that moves
by 2 % from night to night, and 0.3 % that is neither.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from experiment.spec import Mode
from history import exact, wall
from history.changes import NightlyChange, changes_of
from history.entry import PINNED, Entry
from history.exact import followed
from tests.history.factory import FIRST, Nights

NIGHTS = 365
TRACKS, QUICK_TRACKS = 20, 3
SEED = 20261121
# A change that is told later than this many nights after it came is a miss.
LATEST = 30
WALL = {"seeds": 12, "noise": 0.008, "host": 0.02, "between": 0.003}
Random = np.random.Generator


@dataclass(frozen=True)
class Truth:
    """One change: its first night and last (of a drift), and its size, a logarithm."""

    night: int
    size: float
    last: int


@dataclass
class Year:
    """What happens in one track: levels, the kernel's changes, and the lab's by night."""

    levels: list[float]
    truth: list[Truth] = field(default_factory=list)
    lab: dict[int, float] = field(default_factory=dict)
    codes: tuple[str, ...] = ()
    pinned: bool = True


@dataclass
class Score:
    """What came of the tracks of one scenario."""

    tracks: int = 0
    changes: int = 0
    detected: int = 0
    delays: list[int] = field(default_factory=list)
    misplaced: list[int] = field(default_factory=list)
    again: int = 0
    false: int = 0
    lab_moves: int = 0
    lab_detected: int = 0
    lab_false: int = 0


def spread_out(random: Random, count: int) -> list[int]:
    """Nights at least 30 apart, the same number in each part of the year."""
    width = (NIGHTS - 50) // count
    return [30 + width * i + int(random.integers(0, max(1, width - 30))) for i in range(count)]


def signed(random: Random, size: float) -> float:
    return size * float(random.choice([-1, 1]))


def nothing(random: Random) -> Year:
    return Year([0.0] * NIGHTS)


def quiet(random: Random) -> Year:
    """Another kernel on every third night only."""
    return Year([0.0] * NIGHTS, codes=tuple(f"c{night // 3:x}" for night in range(NIGHTS)))


def steps(size: float, random: Random) -> Year:
    levels, truth = np.zeros(NIGHTS), []
    for night in spread_out(random, 5):
        truth.append(Truth(night, signed(random, size), night))
        levels[night:] += truth[-1].size
    return Year(levels.tolist(), truth)


def drifts(a_night: float, random: Random, length: int = 40) -> Year:
    levels, truth = np.zeros(NIGHTS), []
    for night in spread_out(random, 3):
        way = -a_night * np.arange(1, length + 1)
        levels[night : night + length] += way
        levels[night + length :] += way[-1]
        truth.append(Truth(night, float(way[-1]), night + length))
    return Year(levels.tolist(), truth)


def spikes(random: Random) -> Year:
    """A bad kernel on one night, taken back on the next: two true steps."""
    levels, truth = np.zeros(NIGHTS), []
    for night in spread_out(random, 5):
        levels[night] -= 0.02
        truth += [Truth(night, -0.02, night), Truth(night + 1, 0.02, night + 1)]
    return Year(levels.tolist(), truth)


def outliers(random: Random) -> Year:
    """One night in fifty is off by 3 % for no reason of the kernel's: nothing to be told."""
    off = random.random(NIGHTS) < 0.02
    return Year((np.where(off, 0.03, 0.0) * random.choice([-1, 1], NIGHTS)).tolist())


def lab_moves(pinned: bool, random: Random) -> Year:
    moves = {night: signed(random, 0.03) for night in spread_out(random, 5)}
    return Year([0.0] * NIGHTS, lab=moves, pinned=pinned)


def every_week(make: Callable[[Random], Year], random: Random) -> Year:
    """The same year with an environment that changes every seven nights, by 1 % each time."""
    year = make(random)
    year.lab = {night: signed(random, 0.01) for night in range(7, NIGHTS, 7)}
    return year


def at_once(size: float, random: Random) -> Year:
    """The kernel's steps on the very nights on which the lab moves."""
    year = steps(size, random)
    year.lab = {step.night: signed(random, 0.03) for step in year.truth}
    return year


DRIFTS = "drifts, 0.02 % a night for 40 nights"
STEEPER = "drifts, 0.05 % a night for 40 nights"
WEEKLY = "the environment changes every week"
SCENARIOS: dict[tuple[Mode, str], Callable[[Random], Year]] = {
    ("exact", "nothing"): nothing,
    ("exact", "nothing, a new kernel every third night"): quiet,
    ("exact", "steps of 0.25 %"): partial(steps, 0.0025),
    ("exact", "steps of 0.5 %"): partial(steps, 0.005),
    ("exact", "steps of 1 %"): partial(steps, 0.01),
    ("exact", "bad for one night, 2 %"): spikes,
    ("exact", DRIFTS): partial(drifts, 0.0002),
    ("exact", "lab moves of 3 %"): partial(lab_moves, True),
    ("exact", "lab moves of 3 %, no pinned arm"): partial(lab_moves, False),
    ("exact", "steps of 1 % on nights of lab moves"): partial(at_once, 0.01),
    ("exact", f"nothing, {WEEKLY}"): partial(every_week, nothing),
    ("exact", f"{DRIFTS}, {WEEKLY}"): partial(every_week, partial(drifts, 0.0002)),
    ("exact", f"{STEEPER}, {WEEKLY}"): partial(every_week, partial(drifts, 0.0005)),
    ("wall", "nothing"): nothing,
    ("wall", "single nights 3 % off"): outliers,
    ("wall", "steps of 1 %"): partial(steps, 0.01),
    ("wall", "steps of 2 %"): partial(steps, 0.02),
    ("wall", "steps of 4 %"): partial(steps, 0.04),
    ("wall", STEEPER): partial(drifts, 0.0005),
    ("wall", "lab moves of 3 %"): partial(lab_moves, True),
    ("wall", "steps of 2 % on nights of lab moves"): partial(at_once, 0.02),
}


def years_of(mode: Mode, name: str, tracks: int) -> Iterator[tuple[Year, list[Entry]]]:
    """Years of a scenario, each with its entries."""
    for track in range(tracks):
        year = SCENARIOS[mode, name](np.random.default_rng([SEED, track, len(name)]))
        made = Nights(
            levels=tuple(year.levels),
            codes=year.codes,
            lab=year.lab,
            pinned=year.pinned,
            mode=mode,
            random_seed=track,
            **(WALL if mode == "wall" else {}),  # type: ignore[arg-type]
        )
        yield year, made.entries()


def night_number(night: str) -> int:
    return (type(FIRST).fromisoformat(night) - FIRST).days


def score(year: Year, changes: Sequence[NightlyChange], into: Score) -> None:
    """Hold what was told against what happened."""
    into.tracks += 1
    into.changes += len(year.truth)
    into.lab_moves += len(year.lab)
    first = next((change.course.arm for change in changes if change.course.arm != PINNED), "")
    # Without a pinned arm both followed arms tell the same; one of them is counted.
    kernel = [c for c in changes if c.kind in ("step", "drift") and c.course.arm == first]
    labs = {night_number(c.night) for c in changes if c.kind in ("lab", "mixed")}
    into.lab_detected += len(labs & set(year.lab))
    into.lab_false += sum(all(abs(night - lab) > 3 for lab in year.lab) for night in labs)
    into.false += sum(change.kind == "unexplained" for change in changes)
    met: set[int] = set()
    for change in kernel:
        noticed, size = night_number(change.detected), change.estimate or 0.0
        hits = [
            number
            for number, step in enumerate(year.truth)
            if step.night <= noticed <= step.last + LATEST and size * step.size > 0
        ]
        if not hits:
            into.false += 1
        elif hits[-1] in met:
            into.again += 1
        else:
            met.add(hits[-1])
            step = year.truth[hits[-1]]
            into.detected += 1
            into.delays.append(noticed - step.night)
            into.misplaced.append(abs(night_number(change.night) - step.night))


def row(mode: Mode, name: str, tracks: int) -> str:
    """One line of the table."""
    result = Score()
    for year, entries in years_of(mode, name, tracks):
        score(year, changes_of(entries), result)
    detected = delay = place = again = lab = "–"
    if result.changes:
        detected, again = f"{result.detected} of {result.changes}", f"{result.again / tracks:.2f}"
    if result.delays:
        low, high = np.percentile(result.delays, [50, 95])
        delay, place = f"{low:.0f}, {high:.0f}", f"{np.median(result.misplaced):.0f}"
    if result.lab_moves:
        lab = f"{result.lab_detected} of {result.lab_moves}"
    return (
        f"| {mode} | {name} | {detected} | {delay} | {place} | {again} "
        f"| {result.false / tracks:.2f} | {lab} | {result.lab_false / tracks:.2f} |"
    )


def rules(tracks: int) -> None:
    """Exact nights by other baselines and thresholds: a table of docs/notebook/nights.md."""
    print("| baseline, nights | share of the threshold | the year | found | delay | false |")
    print("|---|---|---|---|---|---|")
    known = exact.find
    for name in ("nothing", "steps of 0.25 %", "steps of 0.5 %", DRIFTS):
        years = list(years_of("exact", name, tracks))
        for baseline, share in ((1, 0.5), (8, 0.5), (1, 1.0), (8, 1.0)):
            result = Score()
            exact.find = functools.partial(known, baseline=baseline, share=share)
            for year, entries in years:
                score(year, changes_of(entries), result)
            exact.find = known
            delay = f"{np.mean(result.delays):.1f}" if result.delays else "–"
            detected = f"{result.detected} of {result.changes}" if result.changes else "–"
            cells = (f"{baseline}", f"{share:g}", name, detected, delay)
            print(f"| {' | '.join(cells)} | {result.false / tracks:.2f} |", flush=True)


def write_series(file: Path, tracks: int) -> None:
    """The nightly ratios of the wall scenarios with their truth, as JSON."""
    series = []
    for mode, name in SCENARIOS:
        for year, entries in years_of(mode, name, tracks) if mode == "wall" else ():
            values = followed(entries, "filemap-4k", "4k.bw", "tonight")
            _, estimates, _ = wall.nightly(values.relative())
            truth = [[step.night, step.size, step.last] for step in year.truth]
            series.append({"name": name, "estimates": estimates.tolist(), "truth": truth})
    file.write_text(json.dumps(series))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer years")
    parser.add_argument("--series", type=Path, help="write the wall nights here, judge nothing")
    parser.add_argument("--rules", action="store_true", help="exact nights by other rules")
    arguments = parser.parse_args()
    tracks = QUICK_TRACKS if arguments.quick else TRACKS
    if arguments.rules:
        rules(tracks)
    elif arguments.series:
        write_series(arguments.series, tracks)
    else:
        print(
            "| mode | the year | found | delay, nights | misplaced | told again | false "
            "| lab moves | false lab |"
        )
        print("|---|---|---|---|---|---|---|---|---|")
        for mode, name in SCENARIOS:
            print(row(mode, name, tracks), flush=True)


if __name__ == "__main__":
    main()
