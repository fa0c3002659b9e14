"""What arms have of their own, slow-downs of known size, and how far paths scatter."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.statistics import Floats
from benchmarks.nulls import CHECKOUT, NULLS, NULLS_OF_MEMORY, nulls_of, shift, word
from benchmarks.scatter import between_seeds, in_pairs
from benchmarks.slowdowns import FILES, judged, slowed
from experiment.load import load_experiment
from experiment.spec import Experiment
from results.session import MeasuredSession
from runs.resolved import catalogue
from tests.analysis import factory
from tests.analysis.factory import ExactSession

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


NAMES = [name for names in FILES.values() for name in names]
SIXTEEN = tuple(range(1, 17))


@pytest.mark.parametrize("name", NAMES)
def test_a_series_adds_what_its_name_says(name: str) -> None:
    (patch,) = (CHECKOUT / "configs/series" / name).glob("*.patch")
    count = name.rpartition("-")[2]
    added = [line for line in patch.read_text().splitlines() if re.match(r"\+(?!\+\+)", line)]
    (code,) = (line for line in added if "asm" in line)
    assert f".rept {count}\\n" in code
    file = next(file for file, names in FILES.items() if name in names)
    assert f"+++ b/{file}" in patch.read_text()


def test_every_series_is_an_arm_of_the_case() -> None:
    file = CHECKOUT / "configs/experiments/filemap-v4.toml"
    loaded = load_experiment(file, catalogue=catalogue(CHECKOUT))
    experiment = slowed(loaded, tuple(NAMES), "filemap-4k", 16)
    again = type(experiment).model_validate(experiment.model_dump())
    assert [arm.name for arm in again.all_arms] == ["base", *NAMES]
    assert {pair[0] for pair in again.compared} == {"base"}
    assert ([case.name for case in again.cases], again.looks().seeds) == (["filemap-4k"], (16,))


def session_of(apart: Sequence[float]) -> MeasuredSession:
    """A session in which the bandwidth of the patched arm is apart from the base's, in %."""
    made = ExactSession(seeds=SIXTEEN)
    manifest, records = made.manifest(), []
    for block, difference in enumerate(apart):
        level = 300.0 + block
        for arm, value in (("base", level), ("patched", level * np.exp(difference / 100))):
            record = factory.run(made, "filemap-4k", arm, block)
            samples = {**(record.samples or {}), "4k.bw": float(value)}
            records.append(record.model_copy(update={"samples": samples}))
    return MeasuredSession(manifest, tuple(records), (), (), (), (), None)


def test_the_verdict_is_that_of_the_look_that_decides() -> None:
    noise = np.random.default_rng(3).standard_normal(16)
    noise = (noise - noise.mean()) / noise.std(ddof=1)

    def verdict(change: float, spread: float) -> str:
        session = session_of(change + spread * noise)
        case = next(each for each in session.manifest.cases if each.name == "filemap-4k")
        return judged(session, case, "patched")["4k.bw"]

    assert verdict(-1.0, 0.1) == "regression after 8"
    assert verdict(0.0, 0.02) == "no change after 8"
    assert verdict(0.0, 0.6) == "undecided after 16"
    assert verdict(-0.2, 0.1) == "regression after 16"


def values(*columns: list[float]) -> pd.DataFrame:
    return pd.DataFrame(dict(zip(("base", "patched"), columns, strict=False)))


def test_the_base_arm_between_its_seeds() -> None:
    base = [1990.0, 2000.0, 2010.0]
    assert between_seeds(values(base, [1.0, 2.0, 3.0])) == "2,000 ± 0.50"


@pytest.mark.parametrize(
    ("apart", "spread"), [([1.5] * 3, "0.00"), (list(np.exp([0.0, 0.01, 0.02])), "1.00")]
)
def test_what_seeds_have_in_common_is_not_in_pairs(apart: list[float], spread: str) -> None:
    base = [1000.0, 5000.0, 300.0]
    assert in_pairs(values(base, list(np.multiply(base, apart)))) == spread
