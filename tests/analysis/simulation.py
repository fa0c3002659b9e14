"""How often verdicts are wrong, and how often they find what is there: simulated sessions.

    PYTHONPATH=. .venv/bin/python tests/analysis/simulation.py [--trials 2000]

Drawn here and by nothing else, with bounds and levels of ``analysis``; tests hold the fast forms
below against ``analysis.verdict``.  Prints tables of docs/notebook/evidence.md.

Wall mode: a run's value is a log bandwidth with a standard deviation of 1 % between boots, in
blocks of three boots (base, patched, base again) in random order.

Exact mode: one primary metric, paired differences of six kinds with a standard deviation of
0.25 %, a threshold of 0.25 %; sessions of eight seeds, and of 8 to 32 until they are decided.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from analysis import power as rates
from analysis import statistics
from analysis.statistics import Floats
from analysis.verdict import CALLED, OPEN, Evidence, Verdict, judge_primary
from experiment.spec import WALL_CHANGE, Looks, Thresholds, looks_of

Bools = npt.NDArray[np.bool_]
Random = np.random.Generator
Draw = Callable[[Random, int, int], Floats]
SEED = 20261121
TRIALS = 20_000
# Of wall mode.
SPREAD = 0.01
THRESHOLDS = Thresholds(change=WALL_CHANGE)
ARMS = 3
BLOCKS = Looks((12,), sequential=False)
ADDING_BLOCKS = looks_of(12, 48)
# Sessions judged at once, which bounds the memory of their Walsh averages.
CHUNK = 2_000
# Of exact mode.
SD, CHANGE, ALPHA, EQUIVALENCE = 0.0025, 0.0025, 0.01, 0.05
EFFECTS = (0.0, 0.001, 0.0015, 0.0025, 0.005)
# Spreads for which a false call is looked for, beside SD: what the least estimate guards against
# differs.
SPREADS = (0.001, 0.0025, 0.005)
FIXED = Looks((8,), sequential=False)
ADDING = looks_of(8, 32)


def rate_interval(calls: int, trials: int) -> tuple[float, float]:
    """The exact 95 % interval of a rate (Clopper, Pearson 1934)."""
    low = special.betaincinv(calls, trials - calls + 1, 0.025) if calls else 0.0
    high = special.betaincinv(calls + 1, trials - calls, 0.975) if calls < trials else 1.0
    return float(low), float(high)


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


NOISES: dict[str, Draw] = {
    "normal": normal,
    "skewed (lognormal)": skewed,
    "heavy tails (t, 3 d.f.)": heavy_tailed,
    "bimodal": bimodal,
    "linear drift": linear_drift,
    "periodic drift": periodic_drift,
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


def judge(session: SimulatedSession, looks: Looks) -> tuple[Bools, Bools]:
    """Called a change, and called equal, for each trial: the rule of analysis/verdict.py."""
    differences, again = session.patched - session.base, session.again - session.base
    alpha, change = rates.change_level(looks, THRESHOLDS.alpha), THRESHOLDS.change
    steady = ~(above(again, 0, alpha) | below(again, 0, alpha))
    called = (above(differences, 0, alpha) | below(differences, 0, alpha)) & steady
    called[called] = np.abs(np.expm1(estimates(differences[called]))) >= change / 2
    outer = 2 * rates.equivalence_level(looks, THRESHOLDS.equivalence_alpha)
    equal = above(differences, math.log1p(-change), outer)
    equal &= below(differences, math.log1p(change), outer)
    return called, equal & steady & ~called


def ours(session: SimulatedSession, looks: Looks) -> tuple[Bools, Bools, Floats]:
    """Called a change, called equal, and blocks spent, with looks after which it may stop."""
    trials = len(session.base)
    called, equal = np.zeros(trials, dtype=bool), np.zeros(trials, dtype=bool)
    spent = np.full(trials, float(looks.seeds[-1]))
    for at in rates.so_far(looks):
        left, made = np.flatnonzero(~(called | equal)), at.seeds[-1]
        called[left], equal[left] = judge(SimulatedSession(*(s[left, :made] for s in session)), at)
        spent[left[called[left] | equal[left]]] = made
    return called, equal, spent


def lognormal(random: Random, trials: int, runs: int) -> Floats:
    """Skewness 3.3, as where a few seeds do much more work."""
    s = 0.75
    values = np.exp(s * random.standard_normal((trials, runs))) - np.exp(s * s / 2)
    return np.asarray(values / np.sqrt((np.exp(s * s) - 1) * np.exp(s * s)))


def mixture(random: Random, trials: int, runs: int) -> Floats:
    """15 % of the seeds are in another regime, four spreads away."""
    share, far = 0.15, 4.0
    moved = far * (random.random((trials, runs)) < share)
    values = random.standard_normal((trials, runs)) + moved - far * share
    return np.asarray(values / np.sqrt(1 + far * far * share * (1 - share)))


def two_point(random: Random, trials: int, runs: int) -> Floats:
    """Two values alone, as where one decision of reclaim makes the difference."""
    return np.asarray(np.where(random.random((trials, runs)) < 0.5, -1.0, 1.0))


FAMILIES: dict[str, Draw] = {
    "normal": lambda *of: normal(*of) / SPREAD,
    "heavy tails (t, 3 d.f.)": lambda *of: heavy_tailed(*of) / SPREAD,
    "skewed (lognormal)": lognormal,
    "mixture (15 %, 4 sd away)": mixture,
    "uniform": lambda random, *shape: random.uniform(-1, 1, shape) * math.sqrt(3),
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


def wall_rows(trials: int, effect: float) -> Iterator[str]:
    """Percent of sessions that are called a change, with its 95 % interval, by noise."""
    yield "| noise | 12 blocks | 12 to 48 blocks |"
    yield "|---|---|---|"
    for number, (name, draw) in enumerate(NOISES.items()):
        cells = [name]
        for looks in (BLOCKS, ADDING_BLOCKS):
            random = np.random.default_rng([SEED, number])
            session = blocks(draw, random, trials, looks.seeds[-1], effect)
            count = int(ours(session, looks)[0].sum())
            low, high = rate_interval(count, trials)
            cells.append(f"{100 * count / trials:.2f} ({100 * low:.2f}–{100 * high:.2f})")
        yield f"| {' | '.join(cells)} |"


def exact_rows(trials: int, looks: Looks) -> Iterator[str]:
    """In %: worst false calls and false "no change"; by effect called, no change, and seeds."""
    head = "".join(f" {100 * effect:g} % |" for effect in EFFECTS)
    yield f"| differences | false calls | false no change |{head}"
    yield f"|---|---|---|{'---|' * len(EFFECTS)}"
    for name, draw in FAMILIES.items():
        shown = bounds(draw(np.random.default_rng(SEED), trials, ADDING.seeds[-1]), looks)
        false = [simulated(shown, 0.0, sd) for sd in SPREADS]
        worst = max(each.called + each.wrong_way for each in false)
        missed = max(simulated(shown, side * CHANGE).same for side in (1, -1))
        cells = [f" {100 * worst:.1f} | {100 * missed:.1f} |"]
        for each in (simulated(shown, effect) for effect in EFFECTS):
            cells.append(f" {100 * each.called:.0f} / {100 * each.same:.0f}, {each.seeds:.0f} |")
        yield f"| {name} |{''.join(cells)}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=TRIALS, help="sessions a cell")
    trials = parser.parse_args().trials
    for effect in (0.0, 0.01, 0.02):
        rows = "\n".join(wall_rows(trials, math.log1p(effect)))
        print(f"Wall mode, a change of {100 * effect:.0f} %:\n\n{rows}\n")
    for title, looks in (("8 seeds", FIXED), ("8 to 32 seeds", ADDING)):
        rows = "\n".join(exact_rows(trials, looks))
        print(f"Exact mode, {title}:\n\n{rows}\n")


if __name__ == "__main__":
    main()
