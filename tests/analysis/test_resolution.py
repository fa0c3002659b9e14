"""How finely a rate is known, by what a phase was asked for."""

from __future__ import annotations

import math

import pytest

from analysis.comparison import time_resolution
from analysis.model import Comparison
from analysis.two_sessions import compare_two
from analysis.verdict import Verdict
from experiment.spec import PhaseTimes
from results.record import Manifest, Metric, RunRecord
from tests.analysis.factory import ExactSession
from tests.analysis.measured import compare, measured


def by_number(manifest: Manifest) -> Manifest:
    """The same with a number of I/Os in 4k, in place of a time."""
    cases = tuple(
        case.model_copy(
            update={"times": {"laptop": {**case.times["laptop"], "4k": PhaseTimes(ios=24_000)}}}
        )
        for case in manifest.experiment.cases
    )
    experiment = manifest.experiment.model_copy(update={"cases": cases})
    return manifest.model_copy(update={"experiment": experiment})


def short_runs(records: list[RunRecord], seconds: float) -> list[RunRecord]:
    """Runs of 24,000 I/Os, all as long and of one bandwidth."""
    update = {"4k.ios": 24_000.0, "4k.iops": 24_000 / seconds, "4k.bw": 24_000 / 256 / seconds}
    return [
        record.model_copy(update={"samples": {**(record.samples or {}), **update}})
        if record.case == "filemap-4k"
        else record
        for record in records
    ]


def test_a_rate_is_as_fine_as_the_time_of_the_shortest_run() -> None:
    session = ExactSession()
    manifest = by_number(session.manifest())
    records = short_runs(session.records(), 0.08)
    case = manifest.cases[0]

    def resolution(metric: str, of: Manifest = manifest) -> float:
        return time_resolution(of, case, metric, records)

    for name in ("bw", "iops"):
        assert resolution(f"4k.{name}") == pytest.approx(math.log1p(1 / 80))
    assert resolution("4k.refaults_per_io") == 0.0
    # Of a given time what is divided by is exact.
    assert resolution("4k.bw", session.manifest()) == 0.0
    # Work that is given by its files has a time, too.
    runtime = Metric(name="4k.runtime", title="time", unit="s", direction="lower")
    timed = case.model_copy(update={"metrics": (*case.metrics, runtime)})
    assert time_resolution(session.manifest(), timed, "4k.bw", records) > 0.01


def test_a_session_of_short_runs_does_not_say_no_change() -> None:
    session = ExactSession()
    records = short_runs(session.records(), 0.08)

    def verdict(compared: Comparison) -> Verdict | None:
        return next(
            metric for metric in compared.primary if metric.name == "4k.bw"
        ).judgement.verdict

    assert verdict(compare(session.manifest(), records)) is Verdict.NO_CHANGE
    assert verdict(compare(by_number(session.manifest()), records)) is Verdict.INCONCLUSIVE


def test_two_sessions_of_short_runs_do_not_say_no_change_either() -> None:
    session = ExactSession()
    records, manifest = short_runs(session.records(), 0.08), by_number(session.manifest())
    base, patched = manifest.arms
    kernel = patched.kernel.model_copy(update={"code_key": "77" * 32})
    arms = (base, patched.model_copy(update={"kernel": kernel}))
    other = measured(manifest.model_copy(update={"arms": arms}), records)
    pair = compare_two(measured(manifest, records), other)
    verdicts = {
        metric.arm: metric.judgement.verdict
        for metric in pair.metrics
        if metric.name == "4k.bw" and metric.judgement
    }
    assert verdicts == {"base": Verdict.NO_CHANGE, "patched": Verdict.INCONCLUSIVE}
