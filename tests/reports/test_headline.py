"""The headline: what happened, in the same words everywhere, with its cause; and the exit code."""

import pytest

from analysis.many import SessionComparison, compare_session
from analysis.model import Comparison
from analysis.verdict import Judgement, Verdict
from reports.headline import (
    Headline,
    exit_code,
    headline,
    outcome,
    runs,
    standing_verdicts,
)
from reports.sentences import verdict_counts
from results.record import Failure, FunctionRecord, Manifest, TriageRecord
from tests.analysis.factory import ExactSession, fails
from tests.analysis.measured import compare, measured, render, whole
from tests.analysis.test_gate import checked, compared
from tests.analysis.wall_factory import WallSession
from tests.reports.test_words import arms_of
from tests.values import but

RESUME = "./lab.py run --resume /srv/ab"


def unfinished(many: int = 7) -> SessionComparison:
    session = ExactSession()
    return session.as_session(session.records()[:many])


def test_verdicts_are_counted(normal: Comparison) -> None:
    assert headline(whole(normal)) == Headline("2 improvements, 1 unchanged (within 0.25 %)")
    slow = ExactSession(effect={"4k": -0.02, "thp": -0.02, "switch": -0.02})
    worst = slow.compared()
    assert headline(whole(worst)).text == "All regressions"
    manifest = slow.manifest()
    only = compare(
        but(manifest, cases=manifest.cases[:1], runs_planned=16),
        [r for r in slow.records() if r.case == "filemap-4k"],
    )
    assert headline(whole(only)).sentence == "Regression."
    quiet = [
        Judgement(verdict=Verdict.NO_CHANGE, reason="", limit=limit)
        for limit in (0.05, None, 0.0025, 0.05)
    ]
    worse = Judgement(verdict=Verdict.REGRESSION, reason="")
    assert verdict_counts([quiet[0], Judgement(verdict=None, reason=""), worse]) == (
        "1 regression, 1 unchanged (within 5 %)"
    )
    assert verdict_counts(quiet) == "4 unchanged (within 0.25 and 5 %)"
    assert verdict_counts([]) == ""


def test_the_command_names_the_folder_that_is_known() -> None:
    assert headline(unfinished(), "/srv/a b").command == "./lab.py run --resume '/srv/a b'"
    rendered = render(unfinished(), "text", width=80, folder="/srv/ab")
    assert f"Not finished: 7 of 32 runs; to finish: {RESUME}\n" in rendered
    # What is sent to others names no folder of the sender.
    for form in ("letter", "lkp", "mmtests", "summary", "markdown", "html"):
        rendered = render(unfinished(), form, drawn=False)
        assert "Not finished: 7 of 32 runs." in rendered
        assert "run --resume" not in rendered


def test_a_wall_session_that_ended_at_a_look_is_finished() -> None:
    ended = WallSession(blocks=16, most=48, effect=0.2).compared()
    assert headline(whole(ended)).text == "All improvements"
    before = WallSession(blocks=12, most=48, recorded=7, effect=0.2).compared()
    assert headline(whole(before)).text == "Not finished: 42 of 72 runs"


def test_failures_that_cost_no_verdict_are_no_headline() -> None:
    session = ExactSession(seeds=tuple(range(1, 21)))
    records = fails(session.records(), "filemap-4k-002-patched")
    assert headline(session.as_session(records)) == (
        "2 improvements, 1 unchanged (within 0.25 %)",
        (),
        True,
        "",
    )


def test_checks_that_were_not_made_are_made_by_going_on() -> None:
    session = compared(checked("base"), checked("patched", of=3))
    top = headline(session, "/srv/ab")
    assert top.text.endswith("; checks pending")
    assert top.has_verdicts
    assert top.command == RESUME
    assert outcome(session) == 3
    before = headline(
        compared(checked("base"), checked("patched", of=3), measured=False), "/srv/ab"
    )
    assert (before.text, before.command) == ("Not finished: 0 of 32 runs", RESUME)


def test_without_a_primary_metric_nothing_is_judged(normal: Comparison) -> None:
    cases = tuple(
        but(case, metrics=tuple(but(m, primary=False) for m in case.metrics))
        for case in normal.cases
    )
    assert headline(whole(but(normal, cases=cases))).text == (
        "No verdict: the experiment has no primary metric"
    )


def test_what_is_left_out_for_good_is_not_to_be_finished() -> None:
    session = arms_of("bourney")
    assert headline(session).has_verdicts
    assert runs(session) == (64, 64)
    assert "--resume" not in render(session, "text")


def test_what_changed_where_no_function_did(normal: Comparison) -> None:
    data = TriageRecord(
        verdict="data or layout", data=(FunctionRecord(name="vm_swappiness", before=4, after=4),)
    )

    def of_triage(triage: TriageRecord) -> Headline:
        return headline(whole(but(normal, manifest=but(normal.manifest, triage=triage))))

    ending = "; no function changed, data or layout did"
    of_data = of_triage(data).text
    assert of_data == f"{headline(whole(normal)).text}{ending}"
    module = but(data, data=(), modules=("zram.ko",))
    of_module = of_triage(module).text
    assert of_module.endswith("; no function changed, modules did")
    code = but(data, verdict="functions")
    assert ending not in of_triage(code).text


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
    assert stopped == (
        [] if judged == 12 else [{"judged": judged, "planned": 12, "repeated": "seeds"}]
    )


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
