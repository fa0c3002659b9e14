"""What arms have of their own is told from what seeds scatter by."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from benchmarks.nulls import CHECKOUT, NULLS, Floats, nulls_of, shift
from experiment.load import load_experiment
from runs.prepare import catalogue

ARMS, SEEDS = 13, 8


def made(rng: np.random.Generator, own: float) -> Floats:
    """Logarithms: a level for each seed, a shift for each arm, and noise of 0.001."""
    seeds = 0.01 * rng.standard_normal(SEEDS)
    arms = own * rng.standard_normal((ARMS, 1))
    return np.asarray(5 + seeds + arms + 0.001 * rng.standard_normal((ARMS, SEEDS)))


def test_arms_without_a_shift_have_none_and_p_values_are_even() -> None:
    rng = np.random.default_rng(1)
    found = [shift(made(rng, 0.0)) for _ in range(400)]
    assert stats.kstest([one.p_value for one in found], "uniform").pvalue > 0.01
    # Of two runs of one seed: 0.1 % times the root of two.
    assert np.mean([one.pair for one in found]) == pytest.approx(0.1414, rel=0.02)
    assert np.median([one.own for one in found]) < 0.02


def test_a_shift_of_a_build_is_measured() -> None:
    rng = np.random.default_rng(2)
    found = [shift(made(rng, 0.001)) for _ in range(200)]
    assert np.mean([one.own**2 for one in found]) == pytest.approx(0.1**2, rel=0.1)
    assert np.mean([one.p_value < 0.01 for one in found]) > 0.99


def test_equal_arms_have_no_shift_and_unequal_ones_without_noise_have_one() -> None:
    seeds = np.linspace(1, 2, SEEDS)
    assert shift(np.tile(seeds, (ARMS, 1))).p_value == 1.0
    apart = shift(seeds + np.arange(ARMS)[:, None])
    assert apart.pair == pytest.approx(0, abs=1e-9)
    assert apart.p_value == pytest.approx(0)


@pytest.mark.parametrize("name", ["filemap-v4", "iomap-dirty", "thp-matrix"])
def test_nulls_take_the_place_of_a_shipped_experiments_arms(name: str) -> None:
    asked = nulls_of(load_experiment(CHECKOUT / f"configs/experiments/{name}.toml",
                                     catalogue=catalogue(CHECKOUT)))  # fmt: skip
    # Whoever reads the session reads it whole.
    again = type(asked).model_validate(asked.model_dump())
    assert [arm.name for arm in again.all_arms] == [arm.name for arm in NULLS]
    assert len(again.compared) == 13 * 12 // 2
    assert (again.series, again.check, again.twins) == (None, None, ())
    settings = [(arm.series, arm.settings) for arm in again.all_arms]
    assert all(one not in settings[:at] for at, one in enumerate(settings))
