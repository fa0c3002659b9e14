"""The vectorised rule is that of the verdicts, and keeps the rates that are published."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.statistics import Floats
from benchmarks import looks as b
from experiment.spec import Looks

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
