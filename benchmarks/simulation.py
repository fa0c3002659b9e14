"""How often each rule cries wolf, and how often it sees a change: simulated sessions.

Sessions of runs with known noise are judged by our wall-mode rule and, on noise drawn
the same way, by the published rules of LKP and mmtests.  Prints the table of
docs/notebook/evidence.md.

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
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from analysis import statistics
from analysis.statistics import Floats, rate_interval
from experiment.plan import LOOKS, Look, at_look
from experiment.spec import WALL_CHANGE, Thresholds

Bools = npt.NDArray[np.bool_]
Random = np.random.Generator
Draw = Callable[[Random, int, int], Floats]
SPREAD = 0.01
SEED = 20261121
TRIALS, QUICK_TRIALS = 20_000, 2_000
THRESHOLDS = Thresholds(change=WALL_CHANGE)
BLOCKS = 12
ARMS = 3
# Sessions judged at once, which bounds the memory of their Walsh averages.
CHUNK = 2_000


def normal(random: Random, trials: int, runs: int) -> Floats:
    """Runs of each trial in order of time over one session, shape (trials, runs), as all below."""
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
    direction = random.choice([-1.0, 1.0], (trials, 1))
    return normal(random, trials, runs) + 3 * SPREAD * direction * np.linspace(0, 1, runs)


def periodic_drift(random: Random, trials: int, runs: int) -> Floats:
    """A day's rhythm: one period over the session, three spreads from peak to peak."""
    times = np.linspace(0, 1, runs) + random.uniform(0, 1, (trials, 1))
    return normal(random, trials, runs) + 1.5 * SPREAD * np.sin(2 * math.pi * times)


def between_boots(random: Random, trials: int, runs: int) -> Floats:
    """Most of the spread is between boots: one boot a run."""
    return normal(random, trials, runs) + 0.3 * normal(random, trials, runs)


def of_one_boot(random: Random, trials: int, runs: int) -> Floats:
    """The same for runs that are repeats within a single boot."""
    return normal(random, trials, 1) + 0.3 * normal(random, trials, runs)


NOISES: dict[str, Draw] = {
    "normal": normal,
    "skewed (lognormal)": skewed,
    "heavy tails (t, 3 d.f.)": heavy_tailed,
    "bimodal": bimodal,
    "linear drift": linear_drift,
    "periodic drift": periodic_drift,
    "between boots": between_boots,
}


class SimulatedSession(NamedTuple):
    """Log values of our blocks, each of shape (trials, blocks)."""

    base: Floats
    patched: Floats
    again: Floats


def blocks(
    draw: Draw, random: Random, trials: int, count: int, effect: float, *, shuffled: bool = True
) -> SimulatedSession:
    """Randomised complete blocks; without ``shuffled`` one arm after the other."""
    drawn = draw(random, trials, ARMS * count)
    if shuffled:
        slots = random.permuted(drawn.reshape(trials, count, ARMS), axis=2)
    else:
        slots = drawn.reshape(trials, ARMS, count).transpose(0, 2, 1)
    return SimulatedSession(slots[..., 0], slots[..., 1] + effect, slots[..., 2])


def above(differences: Floats, value: float, alpha: float) -> Bools:
    """Whether the whole interval of level ``1 - alpha`` lies above ``value``, for each row.

    By Wilcoxon's W+ of a row without ties and zeros, as drawn noise is, and the largest W+ that
    is no likelier than ``alpha / 2``.
    """
    less = value - differences
    order = np.argsort(np.abs(less), axis=1)
    n = less.shape[1]
    ranks = (np.take_along_axis(less, order, axis=1) > 0) * np.arange(1, n + 1)
    cumulated = np.cumsum(statistics.signed_rank_probabilities(n))
    critical = np.searchsorted(cumulated, alpha / 2 * (1 + 1e-12), side="right") - 1
    return np.asarray(ranks.sum(axis=1) <= critical)


def below(differences: Floats, value: float, alpha: float) -> Bools:
    return above(-differences, -value, alpha)


def estimates(differences: Floats) -> Floats:
    """Hodges-Lehmann of each row, shape (trials,)."""
    first, second = np.triu_indices(differences.shape[1])
    chunks = (differences[start : start + CHUNK] for start in range(0, len(differences), CHUNK))
    parts = [np.median((chunk[:, first] + chunk[:, second]) / 2, axis=1) for chunk in chunks]
    return np.concatenate(parts) if parts else np.empty(0)


def judge(session: SimulatedSession, thresholds: Thresholds) -> tuple[Bools, Bools]:
    """Called a change, and called equal, for each trial: the rule of analysis/verdict.py."""
    differences, again = session.patched - session.base, session.again - session.base
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
        so_far = SimulatedSession(*(arm[left, : look.blocks] for arm in session))
        called[left], equal[left] = judge(so_far, at_look(THRESHOLDS, look))
        spent[left[called[left] | equal[left]]] = look.blocks
    return called, equal, spent


def in_sequence(
    draw: Draw, random: Random, trials: int, runs: int, effect: float
) -> tuple[Floats, Floats]:
    """All runs of the base, then all of the patched arm, over one session."""
    drawn = draw(random, trials, 2 * runs)
    return np.exp(drawn[:, :runs]), np.exp(drawn[:, runs:] + effect)


def lkp(base: Floats, patched: Floats) -> Bools:
    """The rule of LKP on plain values, shape (trials, runs) each."""
    margin = base.shape[1] >> 5
    a, b = (np.sort(v, axis=1)[:, margin : v.shape[1] - margin] for v in (base, patched))
    middle = a.shape[1] // 2
    up = (b[:, 0] > a[:, middle]) & (b[:, middle] > a[:, -1])
    return np.asarray(up | ((a[:, 0] > b[:, middle]) & (a[:, middle] > b[:, -1])))


def mmtests(base: Floats, patched: Floats) -> Bools:
    """The rule of mmtests on plain values, shape (trials, runs) each."""
    apart = np.abs(base.mean(axis=1) - patched.mean(axis=1))
    reach = 1.96 * (base.std(axis=1, ddof=1) + patched.std(axis=1, ddof=1))
    return np.asarray(apart > reach)


def welch(base: Floats, patched: Floats) -> Bools:
    """Welch's t test at 5 % on plain values, shape (trials, runs) each."""
    return np.asarray(stats.ttest_ind(base, patched, axis=1, equal_var=False).pvalue < 0.05)


def calls(name: str, random: Random, trials: int, effect: float) -> dict[str, int]:
    """How many of ``trials`` sessions with this noise each rule calls a change, by rule."""
    draw = NOISES[name]
    session = blocks(draw, random, trials, LOOKS[-1].blocks, effect)
    short = blocks(draw, random, trials, BLOCKS, effect)
    by_rule = {
        "ours, 12 blocks": ours(short, (Look(BLOCKS, 1.0),))[0],
        "ours, looks to 48": ours(session, LOOKS)[0],
        "LKP, 4 runs": lkp(*in_sequence(draw, random, trials, 4, effect)),
        "LKP, 12 runs": lkp(*in_sequence(draw, random, trials, BLOCKS, effect)),
    }
    if draw is between_boots:
        base, other = (of_one_boot(random, trials, BLOCKS) for _ in range(2))
        values = np.exp(base), np.exp(other + effect)
    else:
        values = in_sequence(draw, random, trials, BLOCKS, effect)
    by_rule |= {"mmtests, 12 runs": mmtests(*values), "Welch 5 %, 12 runs": welch(*values)}
    return {rule: int(called.sum()) for rule, called in by_rule.items()}


def table(trials: int, effect: float) -> str:
    """Percent of sessions called a change, by noise and rule, ours with their 95 % interval."""
    lines: list[str] = []
    for number, name in enumerate(NOISES):
        called = calls(name, np.random.default_rng([SEED, number]), trials, effect)
        if not lines:
            lines = ["| noise | " + " | ".join(called) + " |", "|---" * (len(called) + 1) + "|"]
        cells = [name]
        for rule, count in called.items():
            rate = count / trials
            low, high, _ = rate_interval(count, trials)
            span = f" ({100 * low:.2f}–{100 * high:.2f})" if rule.startswith("ours") else ""
            cells.append(f"{100 * rate:.2f}{span}" if rate < 0.1 else f"{100 * rate:.0f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_TRIALS} sessions a cell")
    trials = QUICK_TRIALS if parser.parse_args().quick else TRIALS
    print(f"{trials} sessions a cell, seed {SEED}; percent of sessions called a change.\n")
    print(f"False alarms: nothing changed.\n\n{table(trials, 0.0)}")
    for effect in (0.01, 0.02):
        print(f"\nDetection: a change of {100 * effect:.0f} %.\n")
        print(table(trials, math.log1p(effect)))
    random = np.random.default_rng(SEED)
    print("\nBlocks spent with looks, normal noise:\n")
    print("| change | called a change | called no change | mean blocks |\n|---|---|---|---|")
    for effect in (0.0, 0.005, 0.01, 0.015, 0.02):
        session = blocks(normal, random, trials, LOOKS[-1].blocks, math.log1p(effect))
        called, equal, spent = ours(session, LOOKS)
        cells = (f"{100 * effect:g} %", f"{called.mean():.1%}", f"{equal.mean():.1%}")
        print(f"| {' | '.join(cells)} | {spent.mean():.1f} |")


if __name__ == "__main__":
    main()
