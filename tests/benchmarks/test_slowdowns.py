"""Slow-downs of known size: what each series adds, and at which look a change is called."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.slowdowns import CHECKOUT, FILES, judged, slowed
from experiment.load import load_experiment
from results.session import MeasuredSession
from runs.resolved import catalogue
from tests.analysis import factory
from tests.analysis.factory import ExactSession

NAMES = [name for names in FILES.values() for name in names]
SEEDS = tuple(range(1, 17))


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
    made = ExactSession(seeds=SEEDS)
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
