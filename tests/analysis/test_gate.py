"""The gate in a comparison: whose fault, what is withheld, and what every form says."""

import json
import re

import pytest

from analysis.many import SessionComparison, compare_session
from analysis.verdict import Verdict
from experiment.spec import CheckSpec
from reports import sentences
from reports.headline import outcome, pending
from reports.sections import trust
from results.record import Check, CheckProblem, CheckStatus
from tests.analysis.factory import ExactSession
from tests.analysis.measured import measured as on_record
from tests.analysis.measured import render
from tests.reports.render.test_page import ParsedPage
from tests.values import but

SLEEPS = CheckProblem(
    kind="sleeping",
    title="BUG: sleeping function called from invalid context at include/linux/sched/mm.h:321",
    says="sleeps where it must not",
    where="xas_split_alloc",
    evidence=("BUG: sleeping function called from invalid context", "Call Trace:", " <TASK>"),
)
WARNS = CheckProblem(kind="warning", title="WARNING: CPU: 0 PID: 91 at mm/page.c:7", says="warns")


def checked(
    arm: str, *problems: CheckProblem, status: CheckStatus | None = None, of: int = 1
) -> Check:
    return Check(
        run_id=f"check.{arm}.lockdep.v1",
        arm=arm,
        of=of,
        flavour="lockdep",
        vcpus=1,
        cases=("filemap-4k",),
        kernel_key="k",
        status=status or ("red" if problems else "green"),
        problems=problems,
        checked=() if problems else ("36602 blocks of 4 KiB read back",),
        reason="QEMU ended before the agent reported anything" if status == "not run" else "",
        console=f"raw/check.{arm}.lockdep.v1/console.log",
    )


def compared(*checks: Check, measured: bool = True, with_check: bool = True) -> SessionComparison:
    session = ExactSession()
    manifest = session.manifest()
    experiment = but(manifest.experiment, check=CheckSpec() if with_check else None)
    manifest = but(manifest, experiment=experiment)
    return compare_session(
        on_record(manifest, session.records() if measured else [], checks=checks)
    )


def test_green_arms_are_judged_and_say_what_was_checked() -> None:
    session = compared(checked("base"), checked("patched"))
    assert all(m.judgement.verdict is not Verdict.FAILED for m in session.primary)
    assert outcome(session) != 4
    for form in ("text", "markdown", "html"):
        # Where nothing can be folded the numbers come first.
        assert ("36602 blocks of 4 KiB read back" in render(session, form)) == (form == "html")


def test_a_session_says_that_no_checks_were_requested() -> None:
    plain, manifest = compared(with_check=False), compared(with_check=False).manifest
    sessions = {
        "plain": plain,
        "checked": compared(checked("base"), checked("patched")),
        "same": compare_session(on_record(but(manifest, same_code=True), [])),
    }
    words = "none requested (--check)"
    assert [name for name, each in sessions.items() if words in trust.checks_of(each)] == ["plain"]
    for form in ("text", "letter", "lkp", "summary"):
        assert words in render(plain, form)
    assert words in ParsedPage(render(plain, "html", drawn=False)).text


def test_a_page_folds_what_is_green_and_shows_what_is_not() -> None:
    rendered = render(compared(checked("base"), checked("patched", SLEEPS)), "html")
    section = rendered.split(">Correctness checks</h2>", 1)[1].split("<h2", 1)[0]
    assert "&lt;ul" not in section
    shown, _, folded = section.partition("<details>")
    assert "patched: failed: sleeps where it must not" in shown
    assert "Call Trace:" in shown
    assert "<summary>What was checked</summary>" in folded
    assert folded.index("base, lockdep, 1 vCPU: ") < folded.index("36602 blocks of 4 KiB read back")


def test_checks_of_several_workloads_have_their_names() -> None:
    first = checked("base", of=2)
    second = but(first, run_id=f"{first.run_id}.1", cases=("vmalloc",), kept_at="2026-11-24")
    rendered = render(compared(first, second, checked("patched")), "html")
    assert "base, lockdep, 1 vCPU, filemap-4k: " in rendered
    assert re.search(r"base, lockdep, 1 vCPU, vmalloc: [^;:]*, kept from 2026-11-24: ", rendered)
    assert "base, lockdep, 1 vCPU, vmalloc: " in rendered
    assert "patched, lockdep, 1 vCPU: " in rendered


@pytest.mark.parametrize("form", ["letter", "lkp", "mmtests", "summary"])
def test_a_mail_has_one_sentence_on_the_gate(form: str) -> None:
    four = but(checked("patched"), vcpus=4, run_id="check.patched.4", of=2)
    rendered = render(compared(checked("base"), checked("patched", of=2), four), form)
    assert (
        "base: passed (lockdep on 1 vCPU); patched: passed (lockdep on 1 and 4 vCPUs)"
    ) in " ".join(rendered.split()).replace("\\", "")
    if form in ("letter", "mmtests"):
        assert max(map(len, rendered.splitlines())) <= 75
    assert "passed (" not in render(compared(with_check=False), form)


def test_a_broken_series_has_no_verdict_and_exits_4() -> None:
    for measured, own in ((True, ()), (False, ()), (True, (WARNS,))):
        session = compared(
            checked("base", *own), checked("patched", *own, SLEEPS), measured=measured
        )
        assert outcome(session) == 4
        assert {m.judgement.verdict for m in session.primary} == {Verdict.FAILED}
        assert all(m.judgement.change is None for m in session.primary)
    session = compared(checked("base"), checked("patched", SLEEPS), measured=False)
    reasons = {m.judgement.reason for m in session.primary}
    assert reasons == {
        f"not judged: a correctness check failed: {SLEEPS.title} in xas_split_alloc()"
    }
    assert "--resume finishes the session" not in render(session, "text")


def test_json_holds_the_gate_and_only_where_the_experiment_has_one() -> None:
    whole = json.loads(render(compared(checked("base"), checked("patched", SLEEPS)), "json"))
    assert [gate["standing"] for gate in whole["comparisons"][0]["gates"]] == ["green", "red"]
    alone = json.loads(render(compared(with_check=False), "json"))
    assert "gates" not in alone["comparisons"][0]


@pytest.mark.parametrize(
    "checks",
    [
        (checked("base"), checked("patched", status="not run")),
        (checked("base", status="not run"), checked("patched")),
    ],
)
def test_a_gate_that_was_not_run_is_not_green(checks: tuple[Check, ...]) -> None:
    session = compared(*checks)
    assert {m.judgement.verdict for m in session.primary} == {Verdict.FAILED}
    assert outcome(session) == 3
    assert "not checked" in render(session, "text")


@pytest.mark.parametrize(
    "checks", [(), (checked("base"),), (checked("base"), checked("patched", of=3))]
)
def test_a_verdict_whose_checks_are_to_be_made_is_there_and_does_not_pass(
    checks: tuple[Check, ...],
) -> None:
    session, alone = compared(*checks), compared(with_check=False)
    assert pending(session)
    assert not pending(alone)
    assert [m.judgement.verdict for m in session.primary] == [
        m.judgement.verdict for m in alone.primary
    ]
    assert all(m.judgement.reason.endswith("checks pending") for m in session.primary)
    assert (outcome(alone), outcome(session)) == (0, 3)
    # With the verdict, whatever it is.
    called = [m for m in session.primary if m.judgement.verdict is Verdict.IMPROVEMENT]
    assert called
    assert all("checks pending" in sentences.reason(metric) for metric in session.primary)
    assert not any("pending" in sentences.reason(metric) for metric in alone.primary)
    assert session.findings[0].level == "warning"
    for form in ("text", "markdown", "html", "summary", "letter"):
        assert "checks pending" in " ".join(render(session, form).split()), form
