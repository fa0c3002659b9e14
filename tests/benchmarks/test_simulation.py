"""The fast forms of our rules are those of the verdicts, and keep the rates that are published."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis import statistics
from analysis.statistics import Floats, rate_interval
from analysis.verdict import Evidence, Verdict, judge_primary
from benchmarks import looks as b
from benchmarks import simulation as s
from experiment.plan import LOOKS, Look, at_look
from experiment.spec import Looks

CALLED = (Verdict.IMPROVEMENT, Verdict.REGRESSION)


@pytest.mark.parametrize("interim", [Look(12, 1.0), *LOOKS])
@pytest.mark.parametrize("effect", [0.0, 0.012])
def test_fast_form_is_the_rule_of_the_reports(interim: Look, effect: float) -> None:
    random = np.random.default_rng(interim.blocks)
    session = s.blocks(s.normal, random, 25, interim.blocks, effect)
    thresholds = at_look(s.THRESHOLDS, interim)
    called, equal = s.judge(session, thresholds)
    for row in range(25):
        base, patched, again = (
            tuple(np.exp(arm[row])) for arm in (session.base, session.patched, session.again)
        )
        arms = Evidence("higher", base, patched, interim.blocks, again=again)
        verdict = judge_primary([arms], thresholds)[0].verdict
        assert called[row] == (verdict in CALLED)
        assert equal[row] == (verdict is Verdict.NO_CHANGE)


def test_estimates_are_hodges_lehmann() -> None:
    rows = np.random.default_rng(1).normal(size=(5, 13))
    assert s.estimates(rows) == pytest.approx([statistics.hodges_lehmann(row) for row in rows])


@pytest.mark.parametrize("name", s.NOISES)
def test_noise_has_the_spread_it_says(name: str) -> None:
    """Around its own mean over time: what drifts is drift, not spread."""
    drawn = s.NOISES[name](np.random.default_rng(5), 20_000, 1)
    if "drift" not in name:
        assert float(np.std(drawn)) == pytest.approx(s.SPREAD, rel=0.1)
    assert abs(float(np.mean(drawn))) < s.SPREAD / 10


@pytest.mark.parametrize("name", s.NOISES)
def test_our_false_alarms_are_not_above_alpha(name: str) -> None:
    number = [*s.NOISES].index(name)
    called = s.calls(name, np.random.default_rng([s.SEED, number]), 2_000, 0.0)
    for rule in ("ours, 12 blocks", "ours, looks to 48"):
        low, _, _ = rate_interval(called[rule], 2_000)
        assert low <= s.THRESHOLDS.alpha, rule


@pytest.mark.parametrize("draw", [s.linear_drift, s.periodic_drift])
def test_same_rule_on_one_arm_after_the_other_would_not_keep_it(draw: s.Draw) -> None:
    """The check above can fail: without random order a drift is taken for a change.

    A drift shows in A/A as well, so the A/A arm is one that tells nothing.
    """
    random = np.random.default_rng(1)
    session = s.blocks(draw, random, 2_000, 12, 0.0, shuffled=False)
    again = session.base + 1e-6 * random.standard_normal(session.base.shape)
    blind = s.SimulatedSession(session.base, session.patched, again)
    called, _ = s.judge(blind, s.THRESHOLDS)
    low, _, _ = rate_interval(int(called.sum()), 2_000)
    assert low > 5 * s.THRESHOLDS.alpha


def test_a_change_of_two_percent_is_detected_by_the_last_look() -> None:
    called = s.calls("normal", np.random.default_rng(2), 500, math.log1p(0.02))
    assert called["ours, looks to 48"] > 0.95 * 500


def test_published_rules_by_hand() -> None:
    base = np.array([[100.0, 101.0, 102.0, 103.0]])
    # The upper of two middle values is LKP's median: 102 and 105.
    assert s.lkp(base, np.array([[103.0, 104.0, 105.0, 106.0]]))[0]
    assert not s.lkp(base, np.array([[102.0, 103.0, 104.0, 105.0]]))[0]
    assert s.lkp(np.array([[103.0, 104.0, 105.0, 106.0]]), base)[0]
    # Standard deviations 1.29 each: 1.96 times their sum is 5.06.
    assert not s.mmtests(base, base + 5.0)[0]
    assert s.mmtests(base, base + 5.1)[0]
    # Welch: t = d / sqrt(2 * 1.667 / 4), 6 degrees of freedom, 2.447 at 5 %.
    assert not s.welch(base, base + 2.2)[0]
    assert s.welch(base, base + 2.3)[0]


def test_table_has_every_noise_and_rule() -> None:
    head, _, *rows = (line.split(" | ") for line in s.table(50, 0.0).splitlines())
    assert len(head) == 7
    assert [row[0].removeprefix("| ") for row in rows] == list(s.NOISES)
    assert {len(row) for row in rows} == {len(head)}


TRIALS = 4000


def drawn(name: str) -> Floats:
    random = np.random.Generator(np.random.SFC64(11))
    return b.FAMILIES[name](random, (TRIALS, b.ADDING.seeds[-1]))


@pytest.mark.slow
@pytest.mark.parametrize("looks", [b.FIXED, b.ADDING])
def test_the_fast_form_is_the_rule_of_the_reports(looks: Looks) -> None:
    values = drawn("skewed (lognormal)")[:30]
    shown = b.bounds(values, looks)
    for effect in (0.0, 0.002):
        ends, spent = b.ended(shown, effect, b.SD)
        judgements = [b.judged(row * b.SD + effect, looks) for row in values]
        assert judgements == list(zip(ends.tolist(), spent.astype(int).tolist(), strict=True))


@pytest.mark.parametrize("name", list(b.FAMILIES))
def test_sessions_that_add_seeds_keep_their_error_rates(name: str) -> None:
    values = drawn(name)
    assert values.mean() == pytest.approx(0.0, abs=0.02)
    assert values.std() == pytest.approx(1.0, abs=0.1)
    shown = b.bounds(values, b.ADDING)
    skewed = name.startswith(("skewed", "mixture"))
    # 4,000 sessions: 2 % and 1 % with two and a half standard errors.
    for sd in b.SPREADS:
        wrong = b.simulated(shown, 0.0, sd)
        assert wrong.called + wrong.wrong_way <= (0.0255 if skewed else 0.014)
    for side in (1, -1):
        assert b.simulated(shown, side * b.CHANGE).same <= (0.075 if skewed else 0.055)
    assert b.simulated(shown, 2 * b.CHANGE).called >= 0.95


def test_five_seeds_are_too_few_for_differences_that_take_two_values() -> None:
    """All of one sign is 1 in 16: no rule that knows the differences alone can have less."""
    looks = Looks((5, *b.ADDING.seeds), sequential=True)
    rates = {
        name: b.simulated(b.bounds(drawn(name), looks), 0.0)
        for name in ("two values", "heavy tails (t, 3 d.f.)")
    }
    wrong = {name: of.called + of.wrong_way for name, of in rates.items()}
    assert 0.05 < wrong["two values"] < 0.08
    assert wrong["heavy tails (t, 3 d.f.)"] <= 0.014


def test_what_adding_seeds_gains() -> None:
    values = drawn("normal")
    few, many = (b.simulated(b.bounds(values, looks), b.CHANGE) for looks in (b.FIXED, b.ADDING))
    assert few.called < 0.3 < 0.9 < many.called
    assert 19 < many.seeds < 22
    nothing = b.simulated(b.bounds(values, b.ADDING), 0.0)
    assert nothing.same > 0.98
    assert nothing.seeds < 18
