"""How often each rule cries wolf, and how often it sees a change: simulated sessions.

Sessions of runs with known noise are judged by our wall-mode rule and, on noise drawn
the same way, by the published rules of LKP and mmtests.  Prints the table of
docs/evidence.md.

    .venv/bin/python benchmarks/simulation.py            # minutes
    .venv/bin/python benchmarks/simulation.py --quick    # seconds

A run's value is a log bandwidth with a standard deviation of 1 % between boots.  Ours are
blocks of three boots (base, patched, base again) in random order; the others measure
all runs of one arm and then all of the other, over the same length of session.

LKP: lib/changed_stat.rb of lkp-tests: a change where the smallest of one arm is above
the median of the other and its median above the other's largest; its median is the upper
one, and each 32 runs lose one at either end (sort_remove_margin in lib/stats.rb).
mmtests: means with 1.96 standard deviations around them do not overlap, and beside it
the Welch test at 5 % that its bin/lib/VMR/Stat.pm has; iterations run within one boot.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import stats

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from analysis import statistics
from analysis.statistics import rate_interval
from experiment.plan import LOOKS, Look, at_look
from experiment.spec import WALL_CHANGE, Thresholds

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Random = np.random.Generator
SPREAD = 0.01
SEED = 20261121
TRIALS, QUICK_TRIALS = 20_000, 2_000
THRESHOLDS = Thresholds(change=WALL_CHANGE)
BLOCKS = 12
ARMS = 3
# Sessions judged at once, which bounds the memory of their Walsh averages.
CHUNK = 2_000


@dataclass(frozen=True)
class Noise:
    """How runs scatter: ``draw(random, trials, runs)`` has the shape (trials, runs).

    The runs of a trial are in order of time over one session; ``one_boot`` draws the
    same for runs that are repeats within a single boot.
    """

    name: str
    draw: Callable[[Random, int, int], Floats]
    one_boot: Callable[[Random, int, int], Floats] | None = None


def normal(random: Random, trials: int, runs: int) -> Floats:
    return SPREAD * random.standard_normal((trials, runs))


def skewed(random: Random, trials: int, runs: int) -> Floats:
    """Lognormal of shape 1, mirrored: now and then a run is much slower."""
    values = -random.lognormal(0.0, 1.0, (trials, runs))
    return SPREAD * (values + math.exp(0.5)) / math.sqrt((math.e - 1) * math.e)


def heavy_tailed(random: Random, trials: int, runs: int) -> Floats:
    return SPREAD * random.standard_t(3, (trials, runs)) / math.sqrt(3)


def bimodal(random: Random, trials: int, runs: int) -> Floats:
    """Two modes 1.9 spreads apart, such as two layouts of memory, a coin for each boot."""
    modes = random.integers(0, 2, (trials, runs)) * 2.0 - 1
    return SPREAD * (0.95 * modes + math.sqrt(1 - 0.95**2) * random.standard_normal((trials, runs)))


def linear_drift(random: Random, trials: int, runs: int) -> Floats:
    """Three spreads up or down over the session."""
    time = np.linspace(0, 1, runs)
    direction = random.choice([-1.0, 1.0], (trials, 1))
    return normal(random, trials, runs) + 3 * SPREAD * direction * time


def periodic_drift(random: Random, trials: int, runs: int) -> Floats:
    """A day's rhythm: one period over the session, three spreads from peak to peak."""
    time = np.linspace(0, 1, runs)
    phase = random.uniform(0, 1, (trials, 1))
    return normal(random, trials, runs) + 1.5 * SPREAD * np.sin(2 * math.pi * (time + phase))


def between_boots(random: Random, trials: int, runs: int) -> Floats:
    """Most of the spread is between boots: one boot a run."""
    return normal(random, trials, runs) + within_boot(random, trials, runs)


def within_boot(random: Random, trials: int, runs: int) -> Floats:
    return 0.3 * SPREAD * random.standard_normal((trials, runs))


def repeats_of_one_boot(random: Random, trials: int, runs: int) -> Floats:
    return normal(random, trials, 1) + within_boot(random, trials, runs)


NOISES = (
    Noise("normal", normal),
    Noise("skewed (lognormal)", skewed),
    Noise("heavy tails (t, 3 d.f.)", heavy_tailed),
    Noise("bimodal", bimodal),
    Noise("linear drift", linear_drift),
    Noise("periodic drift", periodic_drift),
    Noise("between boots", between_boots, repeats_of_one_boot),
)


@dataclass(frozen=True)
class SimulatedSession:
    """Log values of our blocks, each of shape (trials, blocks)."""

    base: Floats
    patched: Floats
    again: Floats


def blocks(
    noise: Noise, random: Random, trials: int, count: int, effect: float, *, shuffled: bool = True
) -> SimulatedSession:
    """Randomised complete blocks; without ``shuffled`` one arm after the other."""
    drawn = noise.draw(random, trials, ARMS * count)
    if shuffled:
        slots = drawn.reshape(trials, count, ARMS)
        slots = random.permuted(slots, axis=2)
    else:
        slots = drawn.reshape(trials, ARMS, count).transpose(0, 2, 1)
    return SimulatedSession(base=slots[..., 0], patched=slots[..., 1] + effect, again=slots[..., 2])


def rank_sums(differences: Floats) -> Floats:
    """Wilcoxon's W+ of each row, shape (trials,); no ties and no zeros, as drawn noise has."""
    order = np.argsort(np.abs(differences), axis=1)
    signs = np.take_along_axis(differences, order, axis=1) > 0
    return np.asarray((signs * np.arange(1, differences.shape[1] + 1)).sum(axis=1), dtype=float)


def critical(n: int, alpha: float) -> int:
    """Largest c with P(W+ <= c) <= alpha / 2; -1 when there is none."""
    cumulated = np.cumsum(statistics.signed_rank_probabilities(n))
    return int(np.searchsorted(cumulated, alpha / 2 * (1 + 1e-12), side="right")) - 1


def above(differences: Floats, value: float, alpha: float) -> Bools:
    """Whether the whole interval of level ``1 - alpha`` lies above ``value``."""
    n = differences.shape[1]
    return np.asarray(rank_sums(value - differences) <= critical(n, alpha))


def below(differences: Floats, value: float, alpha: float) -> Bools:
    return np.asarray(rank_sums(differences - value) <= critical(differences.shape[1], alpha))


def estimates(differences: Floats) -> Floats:
    """Hodges-Lehmann of each row, shape (trials,)."""
    first, second = np.triu_indices(differences.shape[1])
    parts = [
        np.median((chunk[:, first] + chunk[:, second]) / 2, axis=1)
        for start in range(0, len(differences), CHUNK)
        for chunk in (differences[start : start + CHUNK],)
    ]
    return np.concatenate(parts) if parts else np.empty(0)


def judge(session: SimulatedSession, thresholds: Thresholds) -> tuple[Bools, Bools]:
    """Called a change, and called equal, for each trial: the rule of analysis/verdict.py."""
    differences = session.patched - session.base
    again = session.again - session.base
    alpha, change = thresholds.alpha, thresholds.change
    steady = ~(above(again, 0, alpha) | below(again, 0, alpha))
    called = (above(differences, 0, alpha) | below(differences, 0, alpha)) & steady
    called[called] = np.abs(np.expm1(estimates(differences[called]))) >= change / 2
    outer = 2 * thresholds.equivalence_alpha
    equal = above(differences, math.log1p(-change), outer)
    equal &= below(differences, math.log1p(change), outer)
    return called, equal & steady & ~called


def ours(session: SimulatedSession, looks: Sequence[Look]) -> tuple[Bools, Bools, Floats]:
    """Called a change, called equal, and blocks spent, with looks after which it may stop."""
    trials = len(session.base)
    called, equal = np.zeros(trials, dtype=bool), np.zeros(trials, dtype=bool)
    spent = np.full(trials, float(looks[-1].blocks))
    for look in looks:
        left = np.flatnonzero(~(called | equal))
        remaining = SimulatedSession(
            session.base[left, : look.blocks],
            session.patched[left, : look.blocks],
            session.again[left, : look.blocks],
        )
        now_called, now_equal = judge(remaining, at_look(THRESHOLDS, look))
        called[left], equal[left] = now_called, now_equal
        spent[left[now_called | now_equal]] = look.blocks
    return called, equal, spent


def in_sequence(
    draw: Callable[[Random, int, int], Floats], random: Random, trials: int, runs: int,
    effect: float,
) -> tuple[Floats, Floats]:  # fmt: skip
    """All runs of the base, then all of the patched arm, over one session."""
    drawn = draw(random, trials, 2 * runs)
    return np.exp(drawn[:, :runs]), np.exp(drawn[:, runs:] + effect)


def lkp(base: Floats, patched: Floats) -> Bools:
    """The rule of LKP on plain values, shape (trials, runs) each."""

    def summary(values: Floats) -> tuple[Floats, Floats, Floats]:
        margin = values.shape[1] >> 5
        kept = np.sort(values, axis=1)[:, margin : values.shape[1] - margin]
        return kept[:, 0], kept[:, kept.shape[1] // 2], kept[:, -1]

    low_a, middle_a, high_a = summary(base)
    low_b, middle_b, high_b = summary(patched)
    up = (low_b > middle_a) & (middle_b > high_a)
    return np.asarray(up | ((low_a > middle_b) & (middle_a > high_b)))


def mmtests(base: Floats, patched: Floats) -> Bools:
    """The rule of mmtests on plain values, shape (trials, runs) each."""
    apart = np.abs(base.mean(axis=1) - patched.mean(axis=1))
    reach = 1.96 * (base.std(axis=1, ddof=1) + patched.std(axis=1, ddof=1))
    return np.asarray(apart > reach)


def welch(base: Floats, patched: Floats) -> Bools:
    """Welch's t test at 5 % on plain values, shape (trials, runs) each."""
    return np.asarray(stats.ttest_ind(base, patched, axis=1, equal_var=False).pvalue < 0.05)


RULES = (
    "ours, 12 blocks",
    "ours, looks to 48",
    "LKP, 4 runs",
    "LKP, 12 runs",
    "mmtests, 12 runs",
    "Welch 5 %, 12 runs",
)


def calls(noise: Noise, random: Random, trials: int, effect: float) -> dict[str, int]:
    """How many of ``trials`` sessions each rule calls a change, by rule."""
    session = blocks(noise, random, trials, LOOKS[-1].blocks, effect)
    short = blocks(noise, random, trials, BLOCKS, effect)
    by_rule = {
        RULES[0]: ours(short, (Look(BLOCKS, 1.0),))[0],
        RULES[1]: ours(session, LOOKS)[0],
        RULES[2]: lkp(*in_sequence(noise.draw, random, trials, 4, effect)),
        RULES[3]: lkp(*in_sequence(noise.draw, random, trials, BLOCKS, effect)),
    }
    if noise.one_boot is None:
        values = in_sequence(noise.draw, random, trials, BLOCKS, effect)
    else:
        base = np.exp(noise.one_boot(random, trials, BLOCKS))
        other = np.exp(noise.one_boot(random, trials, BLOCKS) + effect)
        values = (base, other)
    by_rule[RULES[4]] = mmtests(*values)
    by_rule[RULES[5]] = welch(*values)
    return {rule: int(called.sum()) for rule, called in by_rule.items()}


def table(trials: int, effect: float, seed: int = SEED) -> list[tuple[str, dict[str, int]]]:
    """Name of each noise, and calls by rule."""
    return [
        (noise.name, calls(noise, np.random.default_rng([seed, number]), trials, effect))
        for number, noise in enumerate(NOISES)
    ]


def markdown(rows: list[tuple[str, dict[str, int]]], trials: int) -> str:
    """The rows as percentages, ours with their 95 % interval."""
    lines = ["| noise | " + " | ".join(RULES) + " |", "|---" * (len(RULES) + 1) + "|"]
    for name, called in rows:
        cells = [name]
        for rule in RULES:
            rate = called[rule] / trials
            low, high, _ = rate_interval(called[rule], trials)
            span = f" ({100 * low:.2f}–{100 * high:.2f})" if rule.startswith("ours") else ""
            cells.append(f"{100 * rate:.2f}{span}" if rate < 0.1 else f"{100 * rate:.0f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_TRIALS} sessions a cell")
    trials = QUICK_TRIALS if parser.parse_args().quick else TRIALS
    print(f"{trials} sessions a cell, seed {SEED}; percent of sessions called a change.\n")
    print("False alarms: nothing changed.\n")
    print(markdown(table(trials, 0.0), trials))
    for effect in (0.01, 0.02):
        print(f"\nDetection: a change of {100 * effect:.0f} %.\n")
        print(markdown(table(trials, math.log1p(effect)), trials))
    random = np.random.default_rng(SEED)
    print("\nBlocks spent with looks, normal noise:\n")
    print("| change | called a change | called no change | mean blocks |\n|---|---|---|---|")
    for effect in (0.0, 0.005, 0.01, 0.015, 0.02):
        session = blocks(NOISES[0], random, trials, LOOKS[-1].blocks, math.log1p(effect))
        called, equal, spent = ours(session, LOOKS)
        cells = (f"{100 * effect:g} %", f"{called.mean():.1%}", f"{equal.mean():.1%}")
        print(f"| {' | '.join(cells)} | {spent.mean():.1f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
