"""The comparison record of whole sessions."""

import math

import pytest

from analysis.comparison import summarize, time_resolution
from analysis.model import Comparison, MetricComparison, ReportError
from analysis.two_sessions import compare_two
from analysis.verdict import Verdict
from experiment.spec import PhaseTimes
from reports.sentences import of_finding
from results.record import Manifest, Metric, RunRecord
from tests.analysis.factory import SEEDS, ExactSession, fails, repeat_of
from tests.analysis.measured import compare, measured
from tests.values import but, there


def metric(session: ExactSession, records: list[RunRecord], name: str) -> MetricComparison:
    comparison = session.compared(records)
    return next(m for case in comparison.cases for m in case.metrics if m.name == name)


def test_the_normal_session() -> None:
    comparison = ExactSession().compared()
    assert [m.name for m in comparison.primary] == ["4k.bw", "thp.bw", "switch.bw"]
    bw = comparison.primary[0]
    assert bw.judgement.verdict is Verdict.IMPROVEMENT
    assert bw.unit == "virtual MiB/s"
    assert [pair.seed for pair in bw.pairs] == list(SEEDS)
    assert comparison.exactness.status == "bit-exact"
    assert comparison.runs_recorded == 32
    assert not [f for f in comparison.findings if f.level == "warning"]


def test_patched_over_base_is_the_change_in_every_metric() -> None:
    comparison = ExactSession(spread=0.2, noise=0.05).compared()
    compared = 0
    for case in comparison.cases:
        for row in case.metrics:
            if row.base and row.patched and row.judgement.change and row.base.mean:
                compared += 1
                ratio = row.patched.mean / row.base.mean
                assert ratio - 1 == pytest.approx(row.judgement.change.estimate, abs=1e-9)
    assert compared > 15


def test_repeats_are_no_data_points() -> None:
    session = ExactSession()
    records = session.records()
    liar = repeat_of(records[0], samples={"4k.bw": 1.0}, fingerprint=records[0].fingerprint)
    assert (
        metric(session, [*records[:-1], liar], "4k.bw").base
        == metric(session, records, "4k.bw").base
    )


def test_a_block_with_a_missing_arm_is_dropped_whole() -> None:
    session = ExactSession()
    records = fails(session.records(), "filemap-4k-002-patched", blame="host", kind="lost")
    bw = metric(session, records, "4k.bw")
    assert [pair.block for pair in bw.pairs] == [0, 1, 3, 4, 5, 6, 7]
    assert there(bw.base).n == 7
    assert (bw.judgement.verdict, bw.judgement.blame) == (Verdict.FAILED, "host")
    untouched = metric(session, records, "thp.bw")
    assert len(untouched.pairs) == 8


def test_an_interrupted_session_is_not_judged() -> None:
    session = ExactSession()
    comparison = session.compared(session.records()[:9])
    assert {m.judgement.verdict for m in comparison.primary} == {Verdict.NOT_FINISHED}
    assert any("9 of 32 runs recorded" in of_finding(f) for f in comparison.findings)


def test_same_code_without_runs() -> None:
    comparison = ExactSession(same_code=True).compared([])
    assert {m.judgement.reason for m in comparison.primary} == {"same code"}
    assert all(m.base is None and m.pairs == () for m in comparison.primary)
    assert not [f for f in comparison.findings if f.level == "warning"]


def test_a_session_that_is_not_bit_exact_has_no_verdicts() -> None:
    session = ExactSession()
    records = session.records()
    other = {**there(records[0].samples), "4k.bw": there(records[0].samples)["4k.bw"] + 1e-9}
    comparison = session.compared(
        [*records[:-1], repeat_of(records[0], samples=other, fingerprint="x")]
    )
    assert comparison.exactness.status == "inexact"
    assert [field.partition(":")[0] for field in comparison.exactness.fields] == ["4k.bw"]
    assert {m.judgement.verdict for m in comparison.primary} == {Verdict.FAILED}
    assert {m.judgement.blame for m in comparison.primary} == {"lab"}


def test_too_few_ios_are_no_evidence() -> None:
    session = ExactSession(effect={"4k": 0.01, "thp": 0.01, "switch": 0.05})
    records = [
        but(r, samples={**r.samples, "switch.ios": 16.0})
        if r.samples and "switch.ios" in r.samples
        else r
        for r in session.records()
    ]
    switch = metric(session, records, "switch.bw")
    assert switch.judgement.verdict is Verdict.INCONCLUSIVE
    assert "too few I/Os" in switch.judgement.reason
    assert metric(session, records, "thp.bw").judgement.verdict is Verdict.IMPROVEMENT
    findings = session.compared(records).findings
    assert any((f.kind, f.values["ios"]) == ("few-ios", 16) for f in findings)


def test_published_changes_are_computed_from_the_figures() -> None:
    comparison = ExactSession().compared()
    by_metric = {reference.metric: reference for reference in comparison.published}
    assert by_metric["thp.bw"].change == pytest.approx(0.1252, abs=5e-5)
    assert by_metric["4k.bw"].change == pytest.approx(0.0738, abs=5e-5)
    assert comparison.primary[0].published == (by_metric["4k.bw"],)


def test_a_primary_metric_comes_first_and_absent_metrics_do_not_matter() -> None:
    session = ExactSession()
    records = [
        but(r, samples={k: v for k, v in r.samples.items() if k.endswith(".bw")})
        if r.samples
        else r
        for r in session.records()
    ]
    comparison = session.compared(records)
    assert comparison.primary[0].judgement.verdict is Verdict.IMPROVEMENT
    absent = there(comparison.cases[0].metric("4k.refaults_per_io"))
    assert absent.base is None


def test_what_does_not_belong_together_is_refused() -> None:
    session = ExactSession()
    manifest = session.manifest()
    with pytest.raises(ReportError, match="exactly 2"):
        session.compared([], arms=manifest.arms[:1])
    case = but(manifest.cases[0], primary=("4k.latency",))
    with pytest.raises(ReportError, match=r"4k\.latency"):
        session.compared([], cases=(case,))


def test_summary_of_zeros_and_single_values() -> None:
    zeros = there(summarize([0.0, 0.0]))
    assert (zeros.mean, zeros.stddev) == (0.0, None)
    single = there(summarize([3.5]))
    assert (single.mean, single.stddev, single.n) == (3.5, None, 1)
    assert summarize([]) is None
    two = there(summarize([1.0, 4.0]))
    assert two.mean == pytest.approx(2.0)
    assert two.stddev == pytest.approx(math.sqrt(4.5) / 2)


def by_number(manifest: Manifest) -> Manifest:
    """The same with a number of I/Os in 4k, in place of a time."""
    cases = tuple(
        but(case, times={"laptop": {**case.times["laptop"], "4k": PhaseTimes(ios=24_000)}})
        for case in manifest.experiment.cases
    )
    experiment = but(manifest.experiment, cases=cases)
    return but(manifest, experiment=experiment)


def short_runs(records: list[RunRecord], seconds: float) -> list[RunRecord]:
    """Runs of 24,000 I/Os, all as long and of one bandwidth."""
    update = {"4k.ios": 24_000.0, "4k.iops": 24_000 / seconds, "4k.bw": 24_000 / 256 / seconds}
    return [
        but(record, samples={**(record.samples or {}), **update})
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
    timed = but(case, metrics=(*case.metrics, runtime))
    assert time_resolution(session.manifest(), timed, "4k.bw", records) > 0.01


def test_a_session_of_short_runs_does_not_say_no_change() -> None:
    session = ExactSession()
    records = short_runs(session.records(), 0.08)

    def verdict(compared: Comparison) -> Verdict | None:
        return next(
            metric for metric in compared.primary if metric.name == "4k.bw"
        ).judgement.verdict

    assert verdict(session.compared(records)) is Verdict.NO_CHANGE
    assert verdict(compare(by_number(session.manifest()), records)) is Verdict.INCONCLUSIVE


def test_two_sessions_of_short_runs_do_not_say_no_change_either() -> None:
    session = ExactSession()
    records, manifest = short_runs(session.records(), 0.08), by_number(session.manifest())
    base, patched = manifest.arms
    kernel = but(patched.kernel, code_key="77" * 32)
    arms = (base, but(patched, kernel=kernel))
    other = measured(but(manifest, arms=arms), records)
    pair = compare_two(measured(manifest, records), other)
    verdicts = {
        metric.arm: metric.judgement.verdict
        for metric in pair.metrics
        if metric.name == "4k.bw" and metric.judgement
    }
    assert verdicts == {"base": Verdict.NO_CHANGE, "patched": Verdict.INCONCLUSIVE}
