"""The headline: what happened, in the same words everywhere, and with its cause."""

from __future__ import annotations

import pytest

from experiment.plan import LOOKS
from experiment.spec import CheckSpec
from reports import forms
from reports.headline import Headline, headline, runs, sentence
from reports.many import SessionComparison, compare_session
from reports.model import Comparison
from reports.outcome import outcome
from reports.verdict import Judgement, Verdict
from reports.verdict_words import verdict_counts
from results.checks import Check
from tests.reports.factory import ExactSession, fails, repeat_of
from tests.reports.many_factory import Many
from tests.reports.measured import compare, measured
from tests.reports.render.test_page import ParsedPage
from tests.reports.test_gate import SLEEPS, checked, compared
from tests.reports.wall_factory import WallSession

BROKEN = f"patched is broken: {SLEEPS.title}, xas_split_alloc()"
FORMS = ("text", "markdown", "html", "summary")
RESUME = "./lab.py run --resume sessions/filemap-v4-20260101-000000"


def plain(session: Comparison | SessionComparison, form: str) -> str:
    """A form without its line breaks and without what its markup needs."""
    rendered = forms.render(session, form)
    rendered = ParsedPage(rendered).text if form == "html" else rendered
    return " ".join(rendered.replace("\\", "").replace("\u2060", "").split())


def broken() -> SessionComparison:
    return compared(checked("base"), checked("patched", SLEEPS), measured=False)


def unfinished(many: int = 7) -> SessionComparison:
    session = ExactSession()
    return compare_session(measured(session.manifest(), session.records()[:many]))


def failing(*run_ids: str, message: str = "THP was on", **how: str) -> SessionComparison:
    session = ExactSession()
    records = fails(session.records(), *run_ids, message=message, **how)
    return compare_session(measured(session.manifest(), records))


def all_of(arm: str) -> list[str]:
    return [record.run_id for record in ExactSession().records() if record.arm == arm]


def test_verdicts_are_counted(normal: Comparison) -> None:
    assert headline(normal) == Headline("2 improvements, 1 unchanged (within 0.25 %)")
    slow = ExactSession(effect={"4k": -0.02, "thp": -0.02, "switch": -0.02})
    worst = compare(slow.manifest(), slow.records())
    assert headline(worst).text == "All regressions"
    manifest = slow.manifest()
    only = compare(
        manifest.model_copy(update={"cases": manifest.cases[:1], "runs_planned": 16}),
        [r for r in slow.records() if r.case == "filemap-4k"],
    )
    assert sentence(only) == "Regression."
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


@pytest.mark.parametrize("form", FORMS)
def test_a_broken_series_was_not_measured(form: str) -> None:
    session = broken()
    shown = plain(session, form)
    assert headline(session) == Headline(f"NOT MEASURED: {BROKEN}", (), False)
    assert f"NOT MEASURED: {BROKEN}" in shown
    assert "All failed" not in shown
    assert "not measured failed" not in shown
    # No metric has a row of dashes.
    assert "4k.refaults_per_io" not in shown


@pytest.mark.parametrize("form", FORMS)
def test_an_unfinished_session_says_how_to_go_on(form: str) -> None:
    session = unfinished()
    top = headline(session)
    assert top.text == "Not finished: 7 of 32 runs"
    assert top.command == RESUME
    assert not top.has_verdicts
    shown = plain(session, form)
    assert "Not finished: 7 of 32 runs" in shown
    assert RESUME in shown
    assert "All failed" not in shown
    assert f"{RESUME}." not in shown


def test_the_command_names_the_folder_that_is_known() -> None:
    assert headline(unfinished(), "/srv/a b").command == "./lab.py run --resume '/srv/a b'"
    rendered = forms.render(unfinished(), "text", width=80, folder="/srv/ab")
    assert "Not finished: 7 of 32 runs; to finish: ./lab.py run --resume /srv/ab\n" in rendered


def test_a_session_without_a_run_shows_no_table_of_dashes() -> None:
    for form in FORMS:
        shown = plain(unfinished(0), form)
        assert "Not finished: 0 of 32 runs" in shown
        assert "4k.refaults_per_io" not in shown


@pytest.mark.parametrize("form", FORMS)
def test_real_time_without_kvm_has_no_verdict(form: str) -> None:
    session = WallSession(blocks=12, effect=0.03, spread=0.2, accelerator="tcg").compared()
    shown = plain(session, form)
    assert "No verdict: no KVM" in shown
    assert "guests ran under TCG" in shown
    assert "All inconclusive" not in shown


def test_a_wall_session_that_ended_at_a_look_is_finished() -> None:
    ended = WallSession(
        blocks=48, recorded=LOOKS[1].blocks, effect=0.2, early_looks=True
    ).compared()
    assert ended.wall is not None
    assert ended.wall.early
    assert headline(ended).text == "All improvements"
    between = WallSession(blocks=24, recorded=7, effect=0.2, early_looks=True).compared()
    assert headline(between).text == "Not finished: 42 of 144 runs"


def test_failed_runs_are_named_with_their_cause() -> None:
    everything = failing(*all_of("patched"), kind="panic", blame="series", message="Oops: 0002")
    top = headline(everything)
    assert top.text == "No verdict: 16 runs of patched failed: panic, blame series: Oops: 0002"
    assert not top.has_verdicts
    some = headline(failing(*(run for run in all_of("patched")[:6])))
    assert some.text.startswith("1 failed, ")
    assert some.causes == ("6 runs of patched failed: invalid, blame workload: THP was on",)
    assert some.has_verdicts


def test_failures_that_cost_no_verdict_are_no_headline() -> None:
    session = ExactSession(seeds=tuple(range(1, 21)))
    records = fails(session.records(), "filemap-4k-002-patched")
    assert headline(compare_session(measured(session.manifest(), records))) == (
        "2 improvements, 1 unchanged (within 0.25 %)", (), True, "",
    )  # fmt: skip


def test_a_repeat_with_other_bits_fails_the_session() -> None:
    session = ExactSession()
    records = session.records()
    other = repeat_of(records[0]).model_copy(update={"fingerprint": "other", "run_id": "again"})
    top = headline(compare_session(measured(session.manifest(), [*records[:-1], other])))
    assert top.text == "Session invalid: a repeated run was not bit-identical"
    assert top.causes[0].startswith("again is not bit-identical to ")


def arms_of(*red: str, booted: bool = True) -> SessionComparison:
    many = Many()
    manifest = many.manifest()
    experiment = manifest.experiment.model_copy(update={"check": CheckSpec()})
    checks: list[Check] = [checked(name, *([SLEEPS] if name in red else [])) for name in many.arms]
    records = [r for r in many.records() if booted and r.arm not in red]
    return compare_session(
        measured(manifest.model_copy(update={"experiment": experiment}), records, checks=checks)
    )


def test_one_broken_arm_of_many_takes_nothing_from_the_others() -> None:
    session = arms_of("bourney")
    top = headline(session)
    assert top.text == (
        "3 regressions, 5 unchanged (within 0.25 %), 1 inconclusive; NOT MEASURED: bourney is "
        f"broken: {SLEEPS.title}, xas_split_alloc()"
    )
    assert top.has_verdicts
    # What is left out for good is not to be finished.
    assert runs(session) == (64, 64)
    for form in FORMS:
        assert "--resume" not in forms.render(session, form)


def test_many_broken_arms_of_one_cause_are_one_sentence() -> None:
    top = headline(arms_of("sleepy", "bourney", "sorted-bourney", "zr-1", booted=False))
    assert top.text == (
        "NOT MEASURED: sleepy, bourney, sorted-bourney and zr-1 are broken: "
        f"{SLEEPS.title}, xas_split_alloc()"
    )


def test_checks_that_were_not_made_are_made_by_going_on() -> None:
    session = compared(checked("base"), checked("patched", of=3))
    top = headline(session)
    assert top.text.endswith("; checks pending")
    assert top.has_verdicts
    assert top.command == RESUME
    assert outcome(session) == 3
    before = headline(compared(checked("base"), checked("patched", of=3), measured=False))
    assert (before.text, before.command) == ("Not finished: 0 of 32 runs", RESUME)


def test_an_arm_that_was_measured_before_it_turned_out_broken_is_not_judged() -> None:
    session = compared(checked("base"), checked("patched", SLEEPS))
    top = headline(session)
    assert top == Headline(f"NOT JUDGED: {BROKEN}", (), False)
    assert outcome(session) == 4


def test_without_a_primary_metric_nothing_is_judged(normal: Comparison) -> None:
    cases = tuple(
        case.model_copy(
            update={"metrics": tuple(m.model_copy(update={"primary": False}) for m in case.metrics)}
        )
        for case in normal.cases
    )
    assert headline(normal.model_copy(update={"cases": cases})).text == (
        "No verdict: the experiment has no primary metric"
    )


@pytest.mark.parametrize("form", FORMS)
def test_the_family_is_named_whatever_the_number_of_arms(
    form: str, normal: Comparison, five: SessionComparison
) -> None:
    assert "3 comparisons; their p values" in plain(normal, form)
    assert "12 comparisons; their p values" in plain(five, form)
