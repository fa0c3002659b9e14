"""The headline: what happened, in the same words everywhere, and with its cause."""

from analysis.many import SessionComparison, compare_session
from analysis.model import Comparison
from analysis.verdict import Judgement, Verdict
from experiment.plan import LOOKS
from reports.headline import Headline, headline, outcome, runs
from reports.sentences import verdict_counts
from results.record import FunctionRecord, TriageRecord
from tests.analysis.factory import ExactSession, fails
from tests.analysis.measured import compare, measured, render, whole
from tests.analysis.test_gate import checked, compared
from tests.analysis.wall_factory import WallSession
from tests.reports.test_words import arms_of
from tests.values import but, there

RESUME = "./lab.py run --resume /srv/ab"


def unfinished(many: int = 7) -> SessionComparison:
    session = ExactSession()
    return compare_session(measured(session.manifest(), session.records()[:many]))


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
    ended = WallSession(
        blocks=48, recorded=LOOKS[1].blocks, effect=0.2, early_looks=True
    ).compared()
    assert there(ended.wall).early
    assert headline(whole(ended)).text == "All improvements"
    between = WallSession(blocks=24, recorded=7, effect=0.2, early_looks=True).compared()
    assert headline(whole(between)).text == "Not finished: 42 of 144 runs"


def test_failures_that_cost_no_verdict_are_no_headline() -> None:
    session = ExactSession(seeds=tuple(range(1, 21)))
    records = fails(session.records(), "filemap-4k-002-patched")
    assert headline(compare_session(measured(session.manifest(), records))) == (
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
