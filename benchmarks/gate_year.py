"""A year of nights judged by `lab.py gate --history` each night: what it says, and forgets.

Each simulated year has regressions (0.6 to 5 %) that are fixed after 5 to 11 nights, fixed by
half, muted for four nights or acknowledged by their id, and nights on which somebody
measured other seeds, fewer blocks, one case less, another name of a metric or with laxer
thresholds, measured again, or added two nights at once.  The truth of each night is known;
counted are nights on which the gate's exit code is another.

    .venv/bin/python benchmarks/gate_year.py --years 2    # a quarter of an hour
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import numpy as np

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

import lab
from history.entry import Entry
from history.store import HistoryStore
from tests.history import altered
from tests.history.factory import Nights

NIGHTS = 365
# In the past: the lab refuses nights of the future.
FIRST = date(2025, 1, 1)
CASES = ("filemap-4k", "filemap-thp")
SEEDS = range(1, 9)
# Every two weeks something happens; what a year has room for, in random order.
EVENTS = (
    "fixed",
    "fixed",
    "fixed",
    "fixed",
    "half fixed",
    "half fixed",
    "muted",
    "muted",
    "muted",
    "acknowledged",
    "acknowledged",
    "acknowledged",
    "other seeds",
    "other seeds",
    "fewer blocks",
    "case left out",
    "metric renamed",
    "laxer thresholds",
    "measured again",
    "measured again",
    "catch-up",
    "catch-up",
)
EVERY, BEGIN = 15, 25
# What the gate has to exit with where a night was measured in another way.
EXITS = {
    "other seeds": 3,
    "fewer blocks": 3,
    "case left out": 3,
    "metric renamed": 3,
    "laxer thresholds": 2,
}


@dataclass
class PolicyYear:
    """Levels and measurements by night, and by night what the gate has to exit with."""

    levels: list[float] = field(default_factory=lambda: [0.0] * NIGHTS)
    measured: dict[int, str] = field(default_factory=dict)
    expected: list[int] = field(default_factory=lambda: [0] * NIGHTS)
    event: list[str] = field(default_factory=lambda: ["quiet"] * NIGHTS)
    muted: list[tuple[int, int]] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)


def drawn(random: np.random.Generator) -> PolicyYear:
    """A year of events; those of one measurement are on one night, with a step or without."""
    year = PolicyYear()
    for number, event in enumerate(random.permutation(np.array(EVENTS))):
        night = BEGIN + EVERY * number
        size = float(random.uniform(0.006, 0.05))
        back = night + int(random.integers(5, 12))
        year.event[night:back] = [str(event)] * (back - night)
        year.measured[night] = str(event)
        year.expected[night] = EXITS.get(event, 0)
        # With laxer thresholds there is a step every other time, with other measurements none.
        if event in EXITS and (event != "laxer thresholds" or random.random() >= 0.5):
            continue
        year.levels[night:back] = [-size] * (back - night)
        year.expected[night:back] = [1] * (back - night)
        if event == "half fixed":
            year.levels[back : back + 3] = [-size / 2] * 3
            year.expected[back : back + 3] = [1] * 3
        elif event == "muted":
            year.muted.append((night, night + 4))
            year.expected[night : night + 4] = [0] * 4
        elif event == "acknowledged":
            year.acknowledged.append(night)
            year.expected[night + 1 : back] = [0] * (back - night - 1)
    return year


def nights_of(year: PolicyYear, seed: int) -> Iterator[list[Entry]]:
    """The entries that each night adds."""
    nights = Nights(tuple(year.levels), cases=CASES, seeds=12, random_seed=seed)
    for night, entry in enumerate(altered.in_year(nights.entries(), FIRST)):
        what = year.measured.get(night, "")
        seeds = {"other seeds": range(5, 13), "fewer blocks": range(1, 7)}.get(what, SEEDS)
        made = altered.on_seeds(entry, seeds)
        if what == "case left out":
            made = altered.without_case(made, CASES[1])
        elif what == "metric renamed":
            made = altered.renamed(made, "4k.bw", "4k.rate")
        elif what == "laxer thresholds":
            made = altered.judged_by(made, change=0.1)
        yield [made, altered.measured_again(made)] if what == "measured again" else [made]


def known_of(year: PolicyYear, night: int, ids: dict[int, list[str]]) -> str:
    """The file of known changes as somebody keeps it: mutes that expire, ids once seen."""
    entries = []
    for begin, end in year.muted:
        first, last = (date.fromordinal(FIRST.toordinal() + at) for at in (begin, end))
        if night >= begin:
            entries.append(
                f'[[known]]\nkind = "muted"\nexperiment = "nightly"\nreason = "looked into"\n'
                f'at_most = 0.1\nfrom = "{first}"\nuntil = "{last}"\n'
            )
    entries += [
        f'[[known]]\nkind = "acknowledged"\nchange = "{name}"\nreason = "accepted"\n'
        for begin in year.acknowledged
        for name in ids.get(begin, [])
    ]
    return "\n".join(entries)


def gate(folder: Path, known: Path) -> tuple[int, list[dict[str, str]]]:
    """Exit code and messages of the verb."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = lab.main(
            ["gate", "--history", str(folder), "--known", str(known), "--json", "--no-annotations"]
        )
    return code, json.loads(out.getvalue())["messages"]


def live(seed: int, counts: dict[str, Counter[str]]) -> None:
    """One year, night by night."""
    random = np.random.default_rng([20261122, seed])
    year = drawn(random)
    with tempfile.TemporaryDirectory() as place:
        folder, known = Path(place) / "history", Path(place) / "known.toml"
        store = HistoryStore(folder)
        ids: dict[int, list[str]] = {}
        waiting: list[Entry] = []
        for night, entries in enumerate(nights_of(year, seed)):
            waiting += entries
            if year.measured.get(night) == "catch-up":
                # The gate's step crashed; tonight is judged with the next night.
                continue
            for entry in waiting:
                store.add(entry)
            waiting = []
            known.write_text(known_of(year, night, ids))
            code, messages = gate(folder, known)
            if night in year.acknowledged:
                ids[night] = [m["change"] for m in messages if m["level"] == "error"]
            right = code == year.expected[night]
            expected = "fail" if year.expected[night] else "pass"
            name = "right" if right else "passed wrongly" if code == 0 else "failed wrongly"
            counts[year.event[night]][f"{expected}: {name}"] += 1
            if not right:
                first = messages[0]["text"][:90] if messages else ""
                print(
                    f"year {seed} night {night} {year.event[night]}: exit {code}, expected "
                    f"{year.expected[night]}: {first}",
                    file=sys.stderr,
                )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--years", type=int, default=2)
    parser.add_argument("--first", type=int, default=1, help="number of the first year")
    arguments = parser.parse_args()
    counts: dict[str, Counter[str]] = {name: Counter() for name in ("quiet", *sorted({*EVENTS}))}
    for seed in range(arguments.first, arguments.first + arguments.years):
        live(seed, counts)
    heads = (
        "fail: right",
        "fail: passed wrongly",
        "fail: failed wrongly",
        "pass: right",
        "pass: failed wrongly",
    )
    print(f"| event | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}")
    for name, outcomes in counts.items():
        print(f"| {name} | {' | '.join(str(outcomes[head]) for head in heads)} |")


if __name__ == "__main__":
    main()
