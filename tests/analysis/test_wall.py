"""Wall sessions compared: what is called, what is withheld, what is left out."""

import pytest

from analysis import power
from analysis.many import compare_session
from analysis.model import Comparison, ReportError
from analysis.power import Question
from analysis.statistics import as_change, log_ratios, noise_floor
from analysis.verdict import WITHHELD, Verdict
from experiment.plan import AGAIN
from experiment.spec import Looks
from reports.headline import is_decided, outcome, standing_verdicts
from reports.sentences import of_finding
from tests.analysis import factory
from tests.analysis.factory import fails
from tests.analysis.measured import compare, measured, whole
from tests.analysis.wall_factory import WallSession
from tests.values import but, data, there

EVERY_BUSY = tuple(
    (case, block, "base") for case in ("filemap-4k", "filemap-thp") for block in range(12)
)


def verdicts(comparison: Comparison) -> set[Verdict | None]:
    return {metric.judgement.verdict for metric in comparison.primary}


def host(comparison: Comparison) -> str:
    return "\n".join(of_finding(finding) for finding in comparison.host_findings)


@pytest.mark.parametrize(
    ("session", "verdict", "code", "strict"),
    [
        (WallSession(effect=0.03), Verdict.IMPROVEMENT, 0, 0),
        (WallSession(effect=-0.03), Verdict.REGRESSION, 1, 1),
        (WallSession(effect=0.0, spread=0.003), Verdict.NO_CHANGE, 0, 0),
        (WallSession(blocks=12, effect=0.01, spread=0.04), Verdict.INCONCLUSIVE, 0, 5),
        (WallSession(effect=0.03, again=0.02), Verdict.INCONCLUSIVE, 0, 5),
        (WallSession(again=0.02), Verdict.INCONCLUSIVE, 0, 5),
        (WallSession(effect=-0.3, accelerator="tcg"), Verdict.INCONCLUSIVE, 0, 5),
        (WallSession(effect=0.03, drift=0.1), Verdict.IMPROVEMENT, 0, 0),
    ],
)
def test_verdicts_and_exit_codes(
    session: WallSession, verdict: Verdict, code: int, strict: int
) -> None:
    comparison = session.compared()
    assert verdicts(comparison) == {verdict}
    assert outcome(whole(comparison)) == code
    assert outcome(whole(comparison), strict=True) == strict


def test_withheld_points_to_exact_mode_and_secondary_metrics_are_silent() -> None:
    comparison = WallSession(effect=0.2, accelerator="tcg").compared()
    for metric in (metric for case in comparison.cases for metric in case.metrics):
        assert not metric.judgement.differs
        if metric.name.endswith((".bw", ".iops")):
            assert metric.judgement.reason == WITHHELD
            assert metric.judgement.change is not None
    assert 'mode = "exact"' in host(comparison)
    # Nor would more blocks show any.
    assert is_decided(whole(comparison))
    # The same numbers on KVM do stand out.
    iops = there(WallSession(effect=0.2).compared().cases[0].metric("4k.iops"))
    assert iops.judgement.differs


def test_where_a_a_differs_secondary_metrics_of_the_case_are_silent() -> None:
    comparison = WallSession(effect=0.03, again=0.02).compared()
    assert all(m.again is not None and m.again.differs for m in comparison.primary)
    assert comparison.primary[0].judgement.reason.startswith("A/A differs by ")
    assert not any(m.judgement.differs for case in comparison.cases for m in case.metrics)


def test_a_a_below_half_of_the_threshold_withholds_nothing() -> None:
    comparison = WallSession(effect=0.03, again=0.004, spread=0.001).compared()
    for metric in comparison.primary:
        assert there(there(metric.again).low) > 0
        assert metric.judgement.verdict is Verdict.IMPROVEMENT
    # Half of the threshold is a change that would be called.
    changed = WallSession(effect=0.03, again=0.006, spread=0.001).compared()
    assert verdicts(changed) == {Verdict.INCONCLUSIVE}


def test_a_a_is_that_of_the_same_blocks() -> None:
    session = WallSession(spread=0.01)
    metric = session.compared().primary[0]
    values = [
        [
            r.samples["4k.bw"]
            for r in sorted(session.records(), key=lambda r: r.block)
            if (r.case, r.arm) == ("filemap-4k", arm) and r.samples
        ]
        for arm in ("base", AGAIN)
    ]
    noise = noise_floor(log_ratios(*values), 0.01)
    assert metric.again is not None
    assert metric.again.pairs == 24
    assert metric.again.estimate == as_change(noise.estimate)
    assert metric.again.low == as_change(there(noise.interval).low)
    assert metric.again.sd == noise.sd
    question = Question(0.01, 0.01, 0.05, family=3, ranked=True)
    looks = Looks((8,), sequential=False)
    assert metric.again.needed == power.seeds_to_decide(0.01, noise.sd or 0.0, looks, question)


def test_few_blocks_give_a_a_without_interval_or_forecast() -> None:
    again = there(WallSession(blocks=3).compared().primary[0].again)
    assert again.estimate is not None
    assert (again.low, again.needed, again.beyond, again.pairs) == (None, None, False, 3)


def test_blocks_are_dropped_whole_with_their_reason() -> None:
    busy = (("filemap-4k", 3, "patched"), ("filemap-4k", 5, AGAIN))
    comparison = WallSession(effect=0.03, busy=busy).compared()
    of_4k, of_thp = comparison.cases
    assert (of_4k.blocks, of_thp.blocks) == (22, 24)
    assert {pair.block for pair in of_4k.metrics[0].pairs}.isdisjoint({3, 5})
    assert (
        "filemap-4k: 2 of 24 blocks excluded "
        "(block 3: 40.0% of CPU time foreign, 5.0% allowed; block 5" in host(comparison)
    )


def test_dropping_is_blind_to_the_arm() -> None:
    sessions = [
        WallSession(effect=0.03, busy=(("filemap-4k", 3, arm),)).compared()
        for arm in ("base", "patched", AGAIN)
    ]
    assert len({tuple(m.pairs for m in comparison.primary) for comparison in sessions}) == 1


def test_host_that_spoils_every_block_is_to_blame() -> None:
    comparison = WallSession(blocks=12, effect=0.03, busy=EVERY_BUSY).compared()
    assert verdicts(comparison) == {Verdict.FAILED}
    assert {m.judgement.blame for m in comparison.primary} == {"host"}
    assert "12 dropped (40.0% of CPU time foreign" in comparison.primary[0].judgement.reason
    assert outcome(whole(comparison)) == 3


def test_under_tcg_a_busy_host_costs_no_numbers() -> None:
    comparison = WallSession(blocks=12, accelerator="tcg", busy=EVERY_BUSY).compared()
    assert verdicts(comparison) == {Verdict.INCONCLUSIVE}
    assert comparison.primary[0].judgement.pairs == 12
    assert "12 of 12 blocks would be excluded, but are shown because" in host(comparison)


@pytest.mark.parametrize(
    ("kind", "blame"), data(__file__, "failed_runs_are_distinguished_and_never_data_points")
)
@pytest.mark.parametrize("arm", ["base", "patched", AGAIN])
def test_failed_runs_are_distinguished_and_never_data_points(
    kind: str, blame: str, arm: str
) -> None:
    session = WallSession(blocks=12, effect=0.03)
    run_id = f"filemap-4k.b02.{arm}"
    records = fails(session.records(), run_id, kind=kind, blame=blame)
    comparison = session.compared(records)
    metric = comparison.primary[0]
    assert [pair.block for pair in metric.pairs] == [b for b in range(12) if b != 2]
    assert [(run.run_id, run.failure.kind) for run in comparison.failed_runs] == [(run_id, kind)]
    text = "\n".join(of_finding(finding) for finding in comparison.findings)
    assert f"(1 {kind}, blame {blame}); their blocks are excluded on all arms" in text
    assert f"base-again {int(arm == AGAIN)} of 12" in text
    assert outcome(whole(comparison)) == (4 if blame == "series" else 0)
    assert "blocks excluded" not in host(comparison)


def test_a_session_that_adds_blocks_ends_at_the_look_that_decides() -> None:
    """Ranks of 12 blocks that all agree are called among three metrics, as those of 16."""
    for blocks in (12, 16):
        comparison = WallSession(blocks=blocks, most=48, effect=0.05).compared()
        assert verdicts(comparison) == {Verdict.IMPROVEMENT}
        assert there(comparison.primary[0].judgement.change).level == 0.99
        assert is_decided(whole(comparison))
        assert not any("--resume" in of_finding(finding) for finding in comparison.findings)


@pytest.mark.parametrize(
    "session",
    [
        WallSession(blocks=12, most=48, effect=0.01, spread=0.03),
        WallSession(blocks=12, most=48, effect=0.03, again=0.02),
        WallSession(blocks=12, most=48, effect=0.03, busy=EVERY_BUSY),
    ],
)
def test_what_more_blocks_may_decide_is_open(session: WallSession) -> None:
    """Blocks of another hour may be whole, and the base the same as itself."""
    assert set(standing_verdicts(whole(session.compared()))["filemap-4k"].values()) == {""}


@pytest.mark.parametrize(("most", "verdict"), [(None, "not finished"), (48, "improvement")])
def test_between_looks_the_last_one_stands(most: int | None, verdict: str) -> None:
    """Interrupted in the last block: of a session that adds some, 12 blocks are judged."""
    session = WallSession(blocks=16, most=most, effect=0.05)
    compared = compare_session(measured(session.manifest(), session.records()[:-1]))
    assert {metric.judgement.verdict for metric in compared.primary} == {verdict}
    (text,) = (of_finding(f) for f in compared.findings if "--resume" in of_finding(f))
    if most:
        assert {case.blocks for case in compared.comparisons[0].cases} == {12}
        assert text.startswith("stopped while blocks were added: judged after 12 blocks, 16 were")
    else:
        assert text.startswith("95 of 96 runs recorded")


def test_primary_and_secondary_metrics_have_the_same_estimate() -> None:
    # A boot that stood still moves the mean of the logarithms, and not this.
    session = WallSession(effect=0.02)
    manifest, records = session.manifest(), session.records()
    slow = next(r for r in records if r.arm == "patched" and r.block == 3)
    samples = {name: value / 7 for name, value in there(slow.samples).items()}
    records[records.index(slow)] = but(slow, samples=samples)
    case = compare(manifest, records).cases[0]
    by_name = {metric.name: metric.judgement.change for metric in case.metrics}
    bw, iops = by_name["4k.bw"], by_name["4k.iops"]
    assert bw is not None
    assert iops is not None
    assert iops.estimate == pytest.approx(bw.estimate)
    assert abs(iops.estimate - 0.02) < 0.01


def test_host_is_described() -> None:
    comparison = WallSession().compared()
    levels = {(f.level, of_finding(f)) for f in comparison.host_findings}
    assert ("note", "governor: powersave (warn)") in levels
    assert ("warning", "other guests: qemu-system-x86 (4711) (fail)") in levels
    assert ("note", "guests ran on this host's CPUs (kvm)") in levels
    assert not any("steal" in text for _, text in levels)
    assert comparison.exactness.status == "not asked"
    assert not any(f.level == "warning" and "exact" in of_finding(f) for f in comparison.findings)


def test_wall_session_without_its_a_a_arm_is_refused() -> None:
    manifest = WallSession().manifest()
    two = but(manifest, arms=manifest.arms[:2])
    with pytest.raises(ReportError, match="base-again"):
        compare(two, [])


def test_exact_session_has_nothing_of_wall_mode() -> None:
    session = factory.ExactSession()
    comparison = session.compared()
    assert comparison.wall is None
    assert comparison.host_findings == ()
    assert all(m.again is None and m.again_values is None for m in comparison.primary)
