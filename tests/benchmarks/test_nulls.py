"""What arms have of their own is told from what seeds scatter by."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from analysis.statistics import Floats
from benchmarks.nulls import CHECKOUT, NULLS, NULLS_OF_MEMORY, nulls_of, shift, word
from experiment.load import load_experiment
from experiment.spec import Experiment
from runs.resolved import catalogue

ARMS, SEEDS = 13, 8


def made(rng: np.random.Generator, own: float) -> Floats:
    """Logarithms: a level for each seed, a shift for each arm, and noise of 0.001."""
    seeds = 0.01 * rng.standard_normal(SEEDS)
    arms = own * rng.standard_normal((ARMS, 1))
    return np.asarray(5 + seeds + arms + 0.001 * rng.standard_normal((ARMS, SEEDS)))


def test_arms_without_a_shift_have_none_and_p_values_are_even() -> None:
    rng = np.random.default_rng(1)
    shifts = [shift(made(rng, 0.0)) for _ in range(400)]
    assert stats.kstest([each.p_value for each in shifts], "uniform").pvalue > 0.01
    # Of two runs of one seed: 0.1 % times the root of two.
    assert np.mean([each.pair for each in shifts]) == pytest.approx(0.1414, rel=0.02)
    assert np.median([each.own for each in shifts]) < 0.02


def test_a_shift_of_a_build_is_measured() -> None:
    rng = np.random.default_rng(2)
    shifts = [shift(made(rng, 0.001)) for _ in range(200)]
    assert np.mean([each.own**2 for each in shifts]) == pytest.approx(0.1**2, rel=0.1)
    assert np.mean([each.p_value < 0.01 for each in shifts]) > 0.99


def test_equal_arms_have_no_shift_and_unequal_ones_without_noise_have_one() -> None:
    seeds = np.linspace(1, 2, SEEDS)
    assert shift(np.tile(seeds, (ARMS, 1))).p_value == 1.0
    apart = shift(seeds + np.arange(ARMS)[:, None])
    assert apart.pair == pytest.approx(0, abs=1e-9)
    assert apart.p_value == pytest.approx(0)


def nulls(name: str, arm: str = "") -> Experiment:
    file = CHECKOUT / f"configs/experiments/{name}.toml"
    return nulls_of(load_experiment(file, catalogue=catalogue(CHECKOUT)), arm=arm)


@pytest.mark.parametrize("name", ["filemap-v4", "iomap-dirty", "thp-matrix", "reclaim-contention"])
def test_nulls_take_the_place_of_a_shipped_experiments_arms(name: str) -> None:
    experiment = nulls(name)
    # Whoever reads the session reads it whole.
    again = type(experiment).model_validate(experiment.model_dump())
    memory = name == "reclaim-contention"
    assert again.all_arms == (NULLS_OF_MEMORY if memory else NULLS)
    assert len(again.compared) == 13 * 12 // 2
    assert (again.series, again.check, again.twins) == (None, None, ())
    settings = [(arm.series, arm.settings) for arm in again.all_arms]
    assert all(setting not in settings[:at] for at, setting in enumerate(settings))


def test_no_null_takes_memory_where_the_page_cache_has_what_is_left() -> None:
    """A MiB of 64 would be a change of 1.5 % of what is cached."""
    arms = nulls("reclaim-contention").all_arms
    assert all(arm.guest == arms[0].guest for arm in arms)
    words = [word.partition("=")[0] for arm in arms for word in arm.cmdline]
    assert set(words) == {"null.of"}


def test_no_null_is_in_the_environment_of_what_is_measured() -> None:
    """The kernel hands words that it does not know on to init, but for those with a dot."""
    known = {"log_buf_len", "dhash_entries", "ihash_entries"}
    names = {word.partition("=")[0] for arm in NULLS for word in arm.cmdline}
    assert {name for name in names if "." not in name} == known
    assert [len(word(length)) for length in (13, 131)] == [13, 131]


def test_all_nulls_have_the_settings_of_the_arm_that_is_named() -> None:
    assert {arm.mount_options for arm in nulls("thp-matrix", "always").all_arms} == {"huge=always"}
    assert {arm.mount_options for arm in nulls("thp-matrix").all_arms} == {""}
