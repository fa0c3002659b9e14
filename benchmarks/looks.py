"""How often exact verdicts are wrong, and how often they find what is there: simulated sessions.

    PYTHONPATH=. .venv/bin/python benchmarks/looks.py [--trials 10000] [--first 5]

One primary metric, six kinds of paired differences with a standard deviation of 0.25 %, true
changes from 0 to 0.5 %, a threshold of 0.25 %.  A session of eight seeds, and one that adds seeds
up to 32 until it is decided.  The differences are drawn here and by nothing else, with a generator
of another kind than that of ``analysis.power``; the bounds come from ``analysis.statistics`` and
the levels from ``analysis.power``, and a share of all sessions is judged by ``analysis.verdict``
itself, which has to say the same.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from analysis import power as rates
from analysis import statistics
from analysis.statistics import Floats
from analysis.verdict import CALLED, OPEN, Evidence, Verdict, judge_primary
from experiment.spec import Looks, Thresholds, looks_of

SD, CHANGE, ALPHA, EQUIVALENCE = 0.0025, 0.0025, 0.01, 0.05
EFFECTS = (0.0, 0.001, 0.0015, 0.0025, 0.005)
# Spreads for which a false call is looked for, beside SD: what the least estimate guards against
# differs.
SPREADS = (0.001, 0.0025, 0.005)
FIXED = Looks((8,), sequential=False)
ADDING = looks_of(8, 32)
# Of a first look at fewer seeds: spreads of false calls and of a strong change.
WIDE_SPREADS, STRONG, STRONG_SPREADS = (0.001, 0.0025, 0.005, 0.01), 0.01, (0.001, 0.0015, 0.0025)
SEED = 7
COMPARED_ONE_IN = 500

Draw = Callable[[np.random.Generator, tuple[int, int]], Floats]


def lognormal(random: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Skewness 3.3, as where a few seeds do much more work."""
    s = 0.75
    values = np.exp(s * random.standard_normal(shape)) - np.exp(s * s / 2)
    return np.asarray(values / np.sqrt((np.exp(s * s) - 1) * np.exp(s * s)))


def mixture(random: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """15 % of the seeds are in another regime, four spreads away."""
    share, far = 0.15, 4.0
    values = random.standard_normal(shape) + far * (random.random(shape) < share) - far * share
    return np.asarray(values / np.sqrt(1 + far * far * share * (1 - share)))


def two_point(random: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Two values alone, as where one decision of reclaim makes the difference."""
    return np.asarray(np.where(random.random(shape) < 0.5, -1.0, 1.0))


FAMILIES: dict[str, Draw] = {
    "normal": lambda random, shape: np.asarray(random.standard_normal(shape)),
    "heavy tails (t, 3 d.f.)": lambda random, shape: np.asarray(
        random.standard_t(3, shape) / np.sqrt(3)
    ),
    "skewed (lognormal)": lognormal,
    "mixture (15 %, 4 sd away)": mixture,
    "uniform": lambda random, shape: np.asarray(random.uniform(-1, 1, shape) * np.sqrt(3)),
    "two values": two_point,
}


class Bounds(NamedTuple):
    """What a look shows of each session, in standard deviations, without a true change."""

    seeds: int
    means: Floats
    change: tuple[Floats, Floats]
    equal: tuple[Floats, Floats]


class Rates(NamedTuple):
    """Shares of sessions, and the mean of their seeds."""

    called: float
    wrong_way: float
    same: float
    seeds: float


def bounds(values: Floats, looks: Looks) -> list[Bounds]:
    """Each look's bounds of all sessions, shape (sessions, seeds)."""
    by_look = []
    for so_far in rates.so_far(looks):
        n = so_far.seeds[-1]
        drawn = values[:, :n]
        means, error = drawn.mean(axis=1), drawn.std(axis=1, ddof=1) / np.sqrt(n)
        skew = statistics.skewness(drawn) if looks.sequential else np.zeros(len(drawn))
        sides: list[tuple[Floats, Floats]] = []
        for level, rank_level in (
            (1 - rates.change_level(so_far, ALPHA), 1 - ALPHA),
            (1 - 2 * rates.equivalence_level(so_far, EQUIVALENCE), 1 - 2 * EQUIVALENCE),
        ):
            low, high = mean = statistics.mean_bounds(means, error, skew, n, level)
            if n >= statistics.pairs_needed(rank_level):
                parts = np.array_split(drawn, max(1, len(drawn) * n // 20_000))
                ranks = np.concatenate(
                    [statistics.signed_rank_bounds(part, rank_level) for part in parts], axis=1
                )
                low, high = np.where(high - low >= ranks[1] - ranks[0], mean, ranks)
            # The p value of a change has to be small, too: the interval of the mean excludes zero.
            sides.append(
                (np.minimum(low, mean[0]), np.maximum(high, mean[1])) if not sides else (low, high)
            )
        by_look.append(Bounds(n, means, *sides))
    return by_look


def ended(shown: list[Bounds], effect: float, sd: float) -> tuple[Floats, Floats]:
    """How each session ends: 1 called up, -1 called down, 2 no change, 0 open; and its seeds."""
    shift, room = effect / sd, CHANGE / sd
    ends = np.zeros(len(shown[0].means))
    spent = np.full(len(ends), float(shown[-1].seeds))
    going = np.ones(len(ends), dtype=bool)
    for look in shown:
        large = np.abs(look.means + shift) >= room / 2
        up = (look.change[0] + shift > 0) & large
        down = (look.change[1] + shift < 0) & large
        same = (look.equal[0] + shift > -room) & (look.equal[1] + shift < room)
        now = np.select([up, down, same], [1.0, -1.0, 2.0], 0.0)
        ends[going] = now[going]
        spent[going & (now != 0)] = look.seeds
        going &= now == 0
    return ends, spent


def simulated(shown: list[Bounds], effect: float, sd: float = SD) -> Rates:
    """The rates of one kind of differences and one true change."""
    ends, spent = ended(shown, effect, sd)
    up, down, same = (float((ends == end).mean()) for end in (1.0, -1.0, 2.0))
    return Rates(up, down, same, float(spent.mean()))


def judged(values: Floats, looks: Looks) -> tuple[float, int]:
    """How one session ends by the verdicts themselves, as :func:`ended` says it."""
    for so_far in rates.so_far(looks):
        n = so_far.seeds[-1]
        evidence = Evidence(
            direction="higher",
            base=(1.0,) * n,
            patched=tuple(np.exp(values[:n]).tolist()),
            blocks_planned=n,
            looks=so_far,
        )
        judgement = judge_primary([evidence], Thresholds(change=CHANGE, alpha=ALPHA))[0]
        if judgement.cause not in OPEN:
            break
    if judgement.verdict in CALLED:
        return (1.0 if judgement.verdict is Verdict.IMPROVEMENT else -1.0), n
    return (2.0 if judgement.verdict is Verdict.NO_CHANGE else 0.0), n


def compared(values: Floats, shown: list[Bounds], looks: Looks, effect: float) -> int:
    """Sessions of which the verdicts say something else than the vectorised rule.

    Changes and log ratios differ by half the square of either, 0.0003 % here: one that lies
    between both thresholds may be told apart.
    """
    ends, spent = ended(shown, effect, SD)
    rows = range(0, len(values), COMPARED_ONE_IN)
    return sum(judged(values[row] * SD + effect, looks) != (ends[row], spent[row]) for row in rows)


def early(first: int, trials: int) -> list[str]:
    """Rows of a table by kind of differences, of sessions judged after ``first`` seeds as well.

    In %: false calls in all, by :data:`WIDE_SPREADS`; sessions of a change of :data:`STRONG` that
    end at the first look, with the mean seeds of all with that look and without it, by
    :data:`STRONG_SPREADS`.
    """
    random = np.random.Generator(np.random.SFC64(SEED))
    rows = []
    for name, draw in FAMILIES.items():
        values = draw(random, (trials, ADDING.seeds[-1]))
        usual = bounds(values, ADDING)
        shown = bounds(values, Looks((first, *ADDING.seeds), sequential=True))
        false = [simulated(shown, 0.0, sd) for sd in WIDE_SPREADS]
        cells = [f" {100 * (rate.called + rate.wrong_way):.1f} |" for rate in false]
        for sd in STRONG_SPREADS:
            ends, spent = ended(shown, STRONG, sd)
            share = float(((spent == first) & (ends == 1)).mean())
            without = simulated(usual, STRONG, sd).seeds
            cells.append(f" {100 * share:.0f}, {spent.mean():.1f} ({without:.1f}) |")
        rows.append(f"| {name} |{''.join(cells)}")
    return rows


def main() -> None:
    """Print the tables of docs/notebook/evidence.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    trials = given.trials
    if given.first:
        spreads = (f"sd {100 * sd:g} %" for sd in (*WIDE_SPREADS, *STRONG_SPREADS))
        print(f"| differences | {' | '.join(spreads)} |")
        print("\n".join(early(given.first, trials)))
        return
    random = np.random.Generator(np.random.SFC64(SEED))
    rows: dict[str, list[str]] = {"8 seeds": [], "8 to 32 seeds": []}
    differ = 0
    for name, draw in FAMILIES.items():
        values = draw(random, (trials, ADDING.seeds[-1]))
        for title, looks in zip(rows, (FIXED, ADDING), strict=True):
            shown = bounds(values, looks)
            false = [simulated(shown, 0.0, sd) for sd in SPREADS]
            worst = max(each.called + each.wrong_way for each in false)
            missed = max(simulated(shown, side * CHANGE).same for side in (1, -1))
            cells = [f" {100 * worst:.1f} | {100 * missed:.1f} |"]
            for each in (simulated(shown, effect) for effect in EFFECTS):
                cells.append(
                    f" {100 * each.called:.0f} / {100 * each.same:.0f}, {each.seeds:.0f} |"
                )
            rows[title].append(f"| {name} |{''.join(cells)}")
            differ += compared(values, shown, looks, EFFECTS[1])
    head = "".join(f" {100 * effect:g} % |" for effect in EFFECTS)
    for title, lines in rows.items():
        print(f"{title}:\n\n| differences | false calls | false no change |{head}")
        print(f"|---|---|---|{'---|' * len(EFFECTS)}")
        print("\n".join(lines), "\n")
    print(f"{differ} sessions were judged otherwise by analysis.verdict")


if __name__ == "__main__":
    main()
