"""What a session would take, by what is in the cache and what earlier sessions took."""

from __future__ import annotations

import os
from pathlib import Path

from experiment.spec import SeriesSpec
from kernels.build import provide
from kernels.expected import Expected, remember
from results.record import RunCost
from results.store import SessionStore
from runs.coverage import shipped
from runs.forecast import UNKNOWN_RUN_S, RunForecast, forecast_kernels, forecast_run
from runs.options import Options
from tests.experiment.test_plan import make_experiment
from tests.kernels.conftest import lab as lab
from tests.kernels.fake import FASTER, Lab
from tests.reports.factory import ExactSession


def test_kernels_that_are_missing_take_as_long_as_the_last_ones_did(lab: Lab) -> None:
    lab.series("mine", FASTER)
    experiment = make_experiment([("w", "default")], series=SeriesSpec(path="configs/series/mine"))
    experiment = experiment.model_copy(update={"kernel": lab.spec})
    options = Options(checkout=lab.checkout, cache=lab.cache)
    lab.cache.mkdir()
    remember(lab.cache, "perf", "first", Expected(1943, 500.0))
    remember(lab.cache, "perf", "next", Expected(30, 60.0))
    rows = forecast_kernels(experiment, options)
    assert [(row.arm, row.cached, row.seconds) for row in rows] == [
        ("base", False, 500.0), ("patched", False, 60.0),
    ]  # fmt: skip
    built = provide(lab.spec, [], **lab.where)
    base, patched = forecast_kernels(experiment, options)
    assert (base.key, base.cached, base.seconds) == (built.identity.key, True, 0.0)
    assert (patched.cached, patched.seconds) == (False, 60.0)


def test_a_run_takes_what_it_took_in_the_newest_session_of_the_same(tmp_path: Path) -> None:
    manifest = ExactSession().manifest()
    other = manifest.experiment.model_copy(update={"name": "other"})
    sessions = {
        "a-old": (manifest, (90.0,), 1),
        "b-new": (manifest, (10.0, 20.0), 2),
        "c-other": (manifest.model_copy(update={"experiment": other}), (70.0,), 3),
        "d-empty": (manifest, (), 4),
    }
    for name, (written, seconds, moment) in sessions.items():
        store = SessionStore(tmp_path / name)
        store.create(written)
        for record, elapsed in zip(ExactSession().records(), seconds, strict=False):
            store.append(record, RunCost(run_id=record.run_id, elapsed_s=elapsed, guest_cpu_s=1.0))
        os.utime(tmp_path / name / "manifest.json", (moment, moment))
    (tmp_path / "e-torn").mkdir()
    (tmp_path / "e-torn" / "manifest.json").write_text("{")
    assert forecast_run(manifest.experiment, tmp_path) == RunForecast(15.0, "b-new")
    elsewhere = manifest.experiment.model_copy(update={"name": "never"})
    # By what a run of its cases took where coverage was counted, or else by a guess.
    counted = {(case.case, case.guest): case.run_cpu_s for case in shipped().cases}
    known = (counted["filemap-4k", "laptop"] + counted["filemap-thp", "laptop"]) / 2
    assert forecast_run(elsewhere, tmp_path) == RunForecast(known, "")
    full = elsewhere.model_copy(update={"guest": "full"})
    assert forecast_run(full, tmp_path) == RunForecast(UNKNOWN_RUN_S, "")
