"""The exit code of a comparison."""

import pytest

from analysis.many import SessionComparison, compare_session
from analysis.verdict import Judgement, Verdict
from reports.headline import decided, exit_code, outcome, standing_verdicts
from results.record import Failure, Manifest
from tests.analysis.factory import ExactSession, fails
from tests.analysis.measured import measured, whole
from tests.analysis.wall_factory import WallSession
from tests.values import but


def judgement(verdict: Verdict, blame: str = "") -> Judgement:
    return Judgement(verdict=verdict, reason="r", blame=blame)


def failed(blame: str) -> Failure:
    return Failure.model_validate({"kind": "panic", "blame": blame, "message": "m"})


GOOD, BAD = judgement(Verdict.IMPROVEMENT), judgement(Verdict.REGRESSION)
UNKNOWN = judgement(Verdict.INCONCLUSIVE)


@pytest.mark.parametrize(
    ("judgements", "failures", "strict", "code"),
    [
        ([GOOD, judgement(Verdict.NO_CHANGE)], [], True, 0),
        ([GOOD, BAD], [], False, 1),
        ([BAD, UNKNOWN], [], True, 1),
        ([UNKNOWN], [], False, 0),
        ([UNKNOWN], [], True, 5),
        ([judgement(Verdict.FAILED, "series")], [], False, 4),
        ([GOOD], [failed("series")], False, 4),
        ([BAD], [failed("series")], False, 4),
        ([judgement(Verdict.FAILED, "host"), GOOD], [failed("host")], False, 3),
        ([judgement(Verdict.FAILED, "lab")], [], False, 3),
        ([judgement(Verdict.FAILED, "workload")], [], True, 3),
        ([judgement(Verdict.FAILED, "user")], [], False, 2),
        ([BAD, judgement(Verdict.FAILED, "host")], [], False, 1),
        ([GOOD], [failed("host")], False, 0),
    ],
)
def test_exit_codes(
    judgements: list[Judgement], failures: list[Failure], strict: bool, code: int
) -> None:
    assert exit_code(judgements, failures, strict=strict) == code


def test_outcome_of_a_session() -> None:
    assert outcome(whole(ExactSession().compared())) == 0
    slow = ExactSession(effect={"4k": -0.013, "thp": 0.0, "switch": 0.0})
    assert outcome(whole(slow.compared())) == 1
    full_disk = fails(
        slow.records(),
        *[f"filemap-4k-{b:03d}-patched" for b in range(8)],
        kind="lost",
        blame="host",
    )
    assert outcome(whole(slow.compared(full_disk))) == 3


@pytest.mark.parametrize(
    ("session", "expected"),
    [
        # After 20 blocks, at the look's own thresholds.
        (WallSession(blocks=48, recorded=20, effect=0.05, early_looks=True), True),
        # No look: whatever the numbers say, the session goes on.
        (WallSession(blocks=48, recorded=16, effect=0.05, early_looks=True), False),
        (
            WallSession(blocks=48, recorded=20, effect=0.05, accelerator="tcg", early_looks=True),
            False,
        ),
        # Twelve blocks that all go up are not enough for three metrics at 0.1 %.
        (WallSession(blocks=48, recorded=12, effect=0.05, early_looks=True), False),
    ],
)
def test_session_may_stop_only_where_a_look_decides(session: WallSession, expected: bool) -> None:
    compared = compare_session(measured(session.manifest(), session.records()))
    assert decided(compared) is expected


EFFECT = {"4k": 0.03, "thp": 0.0, "switch": 0.0}


def adding(session: ExactSession) -> Manifest:
    """The head of a session of eight seeds that adds more until it is decided."""
    manifest = session.manifest()
    return but(manifest, experiment=but(manifest.experiment, max_seeds=32, blocks=8))


def words(session: SessionComparison) -> set[str]:
    return {word for named in standing_verdicts(session).values() for word in named.values()}


def test_verdicts_that_more_seeds_may_decide_are_open() -> None:
    session = ExactSession(effect=EFFECT)
    manifest = adding(session)
    verdicts = standing_verdicts(compare_session(measured(manifest, session.records())))
    assert verdicts["filemap-4k"]["4k.bw"] == "improvement"
    assert verdicts["filemap-thp"]["switch.bw"] == ""
    # What was lost stays lost, however many seeds are added.
    records = session.records()
    lost = fails(records, *(record.run_id for record in records))
    assert words(compare_session(measured(manifest, lost))) == {"failed"}


@pytest.mark.parametrize(("recorded", "judged"), [(12, 12), (11, 10), (9, 8), (7, 0)])
def test_a_session_stopped_while_it_adds_seeds_is_judged_at_its_last_look(
    recorded: int, judged: int
) -> None:
    session = ExactSession(seeds=tuple(range(1, 13)), effect=EFFECT)
    manifest = adding(session)
    records = [record for record in session.records() if record.block < recorded]
    compared = compare_session(measured(manifest, records))
    stopped = [finding.values for finding in compared.findings if finding.kind == "between-looks"]
    if not judged:
        assert stopped == []
        assert words(compared) == {"not finished"}
        return
    assert len(compared.manifest.seeds) == judged
    assert {metric.judgement.pairs for metric in compared.primary} == {judged}
    assert standing_verdicts(compared)["filemap-4k"]["4k.bw"] == "improvement"
    assert stopped == ([] if judged == 12 else [{"judged": judged, "planned": 12}])


def test_a_case_is_judged_by_the_seeds_and_looks_that_it_has() -> None:
    """4k was decided with 8 seeds, and the other case has 12."""
    session = ExactSession(seeds=tuple(range(1, 13)), effect=EFFECT)
    whole = adding(session)
    fewer = whole.with_seeds(whole.seeds, {"filemap-4k": 8, "filemap-thp": 12})
    assert fewer.case_seeds == {"filemap-4k": 8}
    assert fewer.runs_planned == 2 * (8 + 12)
    kept = [r for r in session.records() if r.case != "filemap-4k" or r.block < 8]
    compared = compare_session(measured(fewer, kept))
    assert [
        finding.kind
        for finding in compared.findings
        if finding.kind in ("between-looks", "not-finished")
    ] == []
    pairs = {metric.name: metric.judgement.pairs for metric in compared.primary}
    assert pairs == {"4k.bw": 8, "thp.bw": 12, "switch.bw": 12}
    # By the looks of its own: as in a session that ended after 8 seeds.
    first = whole.with_seeds(whole.seeds[:8], {"filemap-4k": 8, "filemap-thp": 8})
    then = compare_session(measured(first, [r for r in session.records() if r.block < 8]))
    now_p, then_p = (
        next(m.judgement.p_value for m in each.primary if m.name == "4k.bw")
        for each in (compared, then)
    )
    assert now_p == then_p
    # A run that the second look of the other case lacks leaves what both had at the first.
    stopped = compare_session(measured(fewer, [r for r in kept if r.block < 11]))
    assert {m.name: m.judgement.pairs for m in stopped.primary} == {
        "4k.bw": 8,
        "thp.bw": 10,
        "switch.bw": 10,
    }
