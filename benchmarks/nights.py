"""A year of simulated nights: what the history finds, how late, and what it makes up.

Every scenario is a number of tracks of 365 nights with changes at known nights, judged
by the code that judges real ones.  Prints the table of docs/history.md.

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


@dataclass(frozen=True)
class Scenario:
    """A kind of year; ``make`` draws one."""

    name: str
    mode: Mode
    make: Callable[[np.random.Generator], Year]


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


def spread_out(random: np.random.Generator, count: int, first: int = 30) -> list[int]:
    """Nights at least 30 apart, the same number in each part of the year."""
    width = (NIGHTS - first - 20) // count
    return [first + width * i + int(random.integers(0, max(1, width - 30))) for i in range(count)]


def nothing(random: np.random.Generator) -> Year:
    return Year([0.0] * NIGHTS)


def quiet(random: np.random.Generator) -> Year:
    """Another kernel on every third night only."""
    return Year([0.0] * NIGHTS, codes=tuple(f"c{night // 3:x}" for night in range(NIGHTS)))


def steps(size: float) -> Callable[[np.random.Generator], Year]:
    def make(random: np.random.Generator) -> Year:
        levels = np.zeros(NIGHTS)
        truth = []
        for night in spread_out(random, 5):
            signed = size * float(random.choice([-1, 1]))
            levels[night:] += signed
            truth.append(Truth(night, signed, night))
        return Year(levels.tolist(), truth)

    return make


def drifts(a_night: float, length: int) -> Callable[[np.random.Generator], Year]:
    def make(random: np.random.Generator) -> Year:
        levels = np.zeros(NIGHTS)
        truth = []
        for night in spread_out(random, 3):
            way = -a_night * np.arange(1, length + 1)
            levels[night : night + length] += way
            levels[night + length :] += way[-1]
            truth.append(Truth(night, float(way[-1]), night + length))
        return Year(levels.tolist(), truth)

    return make


def spikes(random: np.random.Generator) -> Year:
    """A bad kernel on one night, taken back on the next: two true steps."""
    levels, truth = np.zeros(NIGHTS), []
    for night in spread_out(random, 5):
        levels[night] -= 0.02
        truth += [Truth(night, -0.02, night), Truth(night + 1, 0.02, night + 1)]
    return Year(levels.tolist(), truth)


def outliers(random: np.random.Generator) -> Year:
    """One night in fifty is off by 3 % for no reason of the kernel's: nothing to be told."""
    off = random.random(NIGHTS) < 0.02
    return Year((np.where(off, 0.03, 0.0) * random.choice([-1, 1], NIGHTS)).tolist())


def lab_moves(pinned: bool) -> Callable[[np.random.Generator], Year]:
    def make(random: np.random.Generator) -> Year:
        moves = {night: 0.03 * float(random.choice([-1, 1])) for night in spread_out(random, 5)}
        return Year([0.0] * NIGHTS, lab=moves, pinned=pinned)

    return make


def every_week(
    make: Callable[[np.random.Generator], Year],
) -> Callable[[np.random.Generator], Year]:
    """The same year with an environment that changes every seven nights, by 1 % each time."""

    def made(random: np.random.Generator) -> Year:
        year = make(random)
        year.lab = {n: 0.01 * float(random.choice([-1, 1])) for n in range(7, NIGHTS, 7)}
        return year

    return made


def at_once(size: float) -> Callable[[np.random.Generator], Year]:
    """The kernel's steps on the very nights on which the lab moves."""

    def make(random: np.random.Generator) -> Year:
        year = steps(size)(random)
        year.lab = {step.night: 0.03 * float(random.choice([-1, 1])) for step in year.truth}
        return year

    return make


SCENARIOS = (
    Scenario("nothing", "exact", nothing),
    Scenario("nothing, a new kernel every third night", "exact", quiet),
    Scenario("steps of 0.25 %", "exact", steps(0.0025)),
    Scenario("steps of 0.5 %", "exact", steps(0.005)),
    Scenario("steps of 1 %", "exact", steps(0.01)),
    Scenario("bad for one night, 2 %", "exact", spikes),
    Scenario("drifts, 0.02 % a night for 40 nights", "exact", drifts(0.0002, 40)),
    Scenario("lab moves of 3 %", "exact", lab_moves(True)),
    Scenario("lab moves of 3 %, no pinned arm", "exact", lab_moves(False)),
    Scenario("steps of 1 % on nights of lab moves", "exact", at_once(0.01)),
    Scenario("nothing, the environment changes every week", "exact", every_week(nothing)),
    Scenario(
        "drifts, 0.02 % a night for 40 nights, the environment changes every week",
        "exact",
        every_week(drifts(0.0002, 40)),
    ),
    Scenario(
        "drifts, 0.05 % a night for 40 nights, the environment changes every week",
        "exact",
        every_week(drifts(0.0005, 40)),
    ),
    Scenario("nothing", "wall", nothing),
    Scenario("single nights 3 % off", "wall", outliers),
    Scenario("steps of 1 %", "wall", steps(0.01)),
    Scenario("steps of 2 %", "wall", steps(0.02)),
    Scenario("steps of 4 %", "wall", steps(0.04)),
    Scenario("drifts, 0.05 % a night for 40 nights", "wall", drifts(0.0005, 40)),
    Scenario("lab moves of 3 %", "wall", lab_moves(True)),
    Scenario("steps of 2 % on nights of lab moves", "wall", at_once(0.02)),
)


def nights_of(year: Year, mode: Mode, seed: int) -> list[Entry]:
    """The entries of a year."""
    more = WALL if mode == "wall" else {}
    made = Nights(
        levels=tuple(year.levels), codes=year.codes, lab=year.lab, pinned=year.pinned, mode=mode,
        random_seed=seed, **more,  # type: ignore[arg-type]
    )  # fmt: skip
    return made.entries()


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
    into.lab_false += len([n for n in labs if not any(abs(n - lab) <= 3 for lab in year.lab)])
    into.false += len([c for c in changes if c.kind == "unexplained"])
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


def run(scenario: Scenario, tracks: int) -> Score:
    """The score of one scenario."""
    result = Score()
    for track, year in years_of(scenario, tracks):
        score(year, changes_of(nights_of(year, scenario.mode, track)), result)
    return result


def row(scenario: Scenario, result: Score) -> str:
    """One line of the table."""
    detected = f"{result.detected} of {result.changes}" if result.changes else "–"
    delay = place = "–"
    if result.delays:
        low, high = np.percentile(result.delays, [50, 95])
        delay, place = f"{low:.0f}, {high:.0f}", f"{np.median(result.misplaced):.0f}"
    lab = f"{result.lab_detected} of {result.lab_moves}" if result.lab_moves else "–"
    years = result.tracks
    again = f"{result.again / years:.2f}" if result.changes else "–"
    return (
        f"| {scenario.mode} | {scenario.name} | {detected} | {delay} | {place} | {again} "
        f"| {result.false / years:.2f} | {lab} | {result.lab_false / years:.2f} |"
    )


def rules(tracks: int) -> None:
    """Exact nights by other baselines and thresholds: the table of rules in docs/history.md."""
    print("| baseline, nights | share of the threshold | the year | found | delay | false |")
    print("|---|---|---|---|---|---|")
    names = (
        "nothing",
        "steps of 0.25 %",
        "steps of 0.5 %",
        "drifts, 0.02 % a night for 40 nights",
    )
    known = exact.find
    for scenario in (
        candidate
        for candidate in SCENARIOS
        if candidate.mode == "exact" and candidate.name in names
    ):
        years = [(y, nights_of(y, "exact", track)) for track, y in years_of(scenario, tracks)]
        for baseline, share in ((1, 0.5), (8, 0.5), (1, 1.0), (8, 1.0)):
            result = Score()
            exact.find = functools.partial(known, baseline=baseline, share=share)
            for year, entries in years:
                score(year, changes_of(entries), result)
            exact.find = known
            delay = f"{np.mean(result.delays):.1f}" if result.delays else "–"
            detected = f"{result.detected} of {result.changes}" if result.changes else "–"
            print(f"| {baseline} | {share:g} | {scenario.name} | {detected} | {delay} "
                  f"| {result.false / tracks:.2f} |", flush=True)  # fmt: skip


def years_of(scenario: Scenario, tracks: int) -> Iterator[tuple[int, Year]]:
    for track in range(tracks):
        random = np.random.default_rng([SEED, track, len(scenario.name)])
        yield track, scenario.make(random)


def write_series(file: Path, tracks: int) -> None:
    """The nightly ratios of the wall scenarios with their truth, as JSON."""
    series = []
    for scenario in SCENARIOS:
        if scenario.mode != "wall":
            continue
        for track, year in years_of(scenario, tracks):
            values = followed(nights_of(year, "wall", track), "filemap-4k", "4k.bw", "tonight")
            _, estimates, _ = wall.nightly(values.relative())
            truth = [[step.night, step.size, step.last] for step in year.truth]
            series.append(
                {"name": scenario.name, "estimates": estimates.tolist(), "truth": truth}
            )  # fmt: skip
    file.write_text(json.dumps(series))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="fewer years")
    parser.add_argument("--series", type=Path, help="write the wall nights here, judge nothing")
    parser.add_argument("--rules", action="store_true", help="exact nights by other rules")
    arguments = parser.parse_args()
    tracks = QUICK_TRACKS if arguments.quick else TRACKS
    if arguments.rules:
        rules(tracks)
        return
    if arguments.series:
        write_series(arguments.series, tracks)
        return
    print("| mode | the year | found | delay, nights | misplaced | told again | false | lab moves "
          "| false lab |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|")
    for scenario in SCENARIOS:
        print(row(scenario, run(scenario, tracks)), flush=True)


if __name__ == "__main__":
    main()
