"""A phase in which nothing that differs ran says nothing of the series: in every form and place."""

import dataclasses
import re
from pathlib import Path

import pytest

from analysis.execution import changed_files
from analysis.many import SessionComparison, compare_session
from analysis.two_sessions import compare_two
from analysis.verdict import CALLED, Cause, Verdict
from experiment.spec import SeriesSpec
from history.gate import of_history
from history.gate import of_session as gate_of_session
from history.ingest import read_session
from history.pages.tracks import of_night
from history.policy import Policy, Rule
from history.wording import unseen
from queues.work import of_session as queue_outcome
from reports import forms, sessions
from reports.headline import headline, outcome
from reports.sentences import of_finding
from reports.wording import percent
from results.profile import Calls, FunctionCount, Profile, calls_of
from results.record import (
    ArmRecord,
    FunctionRecord,
    Manifest,
    OptionRecord,
    PatchRecord,
    SeriesRecord,
    TriageRecord,
)
from results.session import MeasuredSession, SessionHead
from results.store import SessionStore
from tests.analysis.counts_factory import counted, profiles
from tests.analysis.factory import ExactSession
from tests.analysis.measured import measured, render
from tests.values import but, there

FORMS = ("text", "markdown", "html", "summary", "letter", "lkp", "mmtests", "json")


def triage(*names: str) -> TriageRecord:
    functions = tuple(FunctionRecord(name=name, before=16, after=32) for name in names)
    return TriageRecord(verdict="functions", functions=functions)


def on_record(*names: str, **effect: float) -> MeasuredSession:
    """A session whose kernels differ by these functions; log ratios of bandwidth by phase."""
    session = ExactSession(effect=dict.fromkeys(("4k", "thp", "switch"), 0.0) | effect, noise=3e-4)
    manifest = but(session.manifest(), triage=triage(*names))
    return measured(counted(manifest), session.records(), profiles(session))


def running(
    session: MeasuredSession, name: str, *phases: str, arms: tuple[str, ...] = ("base", "patched")
) -> MeasuredSession:
    """The same with a function that these phases of these arms execute."""
    here = FunctionCount(name=name, file="", instructions=40, calls=2)

    def of(profile: Profile) -> Profile:
        added = tuple(
            but(phase, kernel=(*phase.kernel, here))
            if phase.phase in phases and profile.run_id.endswith(arms)
            else phase
            for phase in profile.phases
        )
        return but(profile, phases=added)

    return dataclasses.replace(session, profiles=tuple(map(of, session.profiles)))


def verdicts(session: SessionComparison) -> dict[str, Verdict | None]:
    return {metric.name: metric.judgement.verdict for metric in session.primary}


def test_a_session_in_which_nothing_that_differs_ran_is_not_tested() -> None:
    session = compare_session(on_record("vmalloc", "vunmap", **{"4k": 0.02}))
    assert set(verdicts(session).values()) == {Verdict.NOT_TESTED}
    judged = session.primary[0].judgement
    assert judged.cause is Cause.NOT_EXECUTED
    # By how much two kernels that do the same differ here is still on record.
    assert there(judged.change).estimate == pytest.approx(0.02, abs=0.005)
    words = "Not tested: none of the changed functions ran (vmalloc, vunmap)"
    assert headline(session).text == words
    assert headline(session).causes == (
        "workloads that run them: ./lab.py suggest configs/series/filemap-walks",
    )
    assert outcome(session) == 3
    assert {(each.phase, each.ran) for each in session.comparisons[0].executions} == {
        ("4k", ()),
        ("thp", ()),
        ("switch", ()),
    }


def test_two_sessions_side_by_side_name_which_tested_nothing() -> None:
    idle, busy = on_record("vmalloc"), running(on_record("vmalloc"), "vmalloc", "4k")
    note = "filemap-v4-20260101-000000: Not tested: none of the changed functions ran (vmalloc)"
    assert compare_two(idle, busy).notes[0] == note
    assert not any("Not tested" in each for each in compare_two(busy, busy).notes)


def test_every_form_says_so() -> None:
    session = compare_session(on_record("vmalloc"))
    for form in FORMS:
        rendered = " ".join(render(session, form).split()).lower()
        assert "not tested" in rendered, form
        assert "none of the changed functions ran (vmalloc)" in rendered, form
        assert "all unchanged" not in rendered, form


def test_a_gate_fails_unless_a_policy_says_otherwise() -> None:
    session = compare_session(on_record("vmalloc", **{"4k": -0.02}))
    gate = gate_of_session(session, Policy())
    assert gate.exit_code == 3
    failing = {message.title.partition(":")[0] for message in gate.messages if message.code}
    assert failing == {"not_tested"}
    lax = Policy(rules=(Rule(not_tested="pass"),))
    assert gate_of_session(session, lax).exit_code == 0


def test_a_queue_has_it_as_done_and_says_why() -> None:
    entry = queue_outcome(compare_session(on_record("vmalloc")))
    assert (entry.code, entry.blame) == (3, "")
    assert entry.message.startswith("Not tested: none of the changed functions ran (vmalloc)")
    assert "suggest" in entry.message
    assert {result.verdict for result in entry.results} == {"not tested"}


def test_lists_and_histories_have_the_same_verdict(tmp_path: Path) -> None:
    session = on_record("vmalloc")
    store = SessionStore(tmp_path / "s")
    store.create(session.manifest)
    for record in session.records:
        beside = [each for each in session.profiles if each.run_id == record.run_id]
        store.append(record, *beside)
    listed = sessions.listed(SessionHead(store.folder, session.manifest))
    assert listed.exit_code == 3
    assert listed.verdict == headline(compare_session(session)).text
    assert {metric.verdict for metric in listed.primary} == {"not tested"}
    entry = read_session(store.folder)
    assert {each.verdict for case in entry.cases for each in case.conclusions} == {
        Verdict.NOT_TESTED
    }
    assert len(unseen([entry])) == 3
    night = of_history([entry], [], Policy())
    assert night.exit_code == 3
    assert {m.title.partition(":")[0] for m in night.messages if m.code} == {"not_tested"}
    assert of_night(entry, [], first=True).word == "not tested"


def test_where_some_ran_the_headline_says_where_and_where_not() -> None:
    one_case = running(on_record("added"), "added", "4k")
    session = compare_session(one_case)
    assert verdicts(session) == {
        "4k.bw": Verdict.NO_CHANGE,
        "thp.bw": Verdict.NOT_TESTED,
        "switch.bw": Verdict.NOT_TESTED,
    }
    assert headline(session).text == (
        "2 not tested, 1 unchanged (within 0.25 %); the changed functions ran in 1 of 2 cases, "
        "not in filemap-thp"
    )
    # Said at the first of the two.
    letter = forms.render(session, "letter")
    assert letter.count(" not tested\n") == 2
    assert letter.count("none of the changed functions ran (added)") == 1
    assert outcome(session) == 0
    gate = gate_of_session(session, Policy())
    assert gate.exit_code == 0
    levels = [m.level for m in gate.messages if m.title.startswith("partly_tested")]
    assert levels == ["warning", "warning"]
    strict = Policy(rules=(Rule(partly_tested="fail"),))
    assert gate_of_session(session, strict).exit_code == 3
    phases = compare_session(running(one_case, "added", "switch"))
    assert headline(phases).text.endswith(
        "the changed functions ran in 2 of 3 phases, not in filemap-thp thp"
    )


def test_what_one_arm_alone_executes_ran() -> None:
    added = running(on_record("added"), "added", "4k", "thp", "switch", arms=("patched",))
    assert Verdict.NOT_TESTED not in verdicts(compare_session(added)).values()


@pytest.mark.parametrize(
    ("built", "counted_as"),
    [("twice@shmem.c", "twice"), ("copied.isra.0", "copied.isra.1"), ("numbered#2", "numbered")],
)
def test_a_function_of_several_names_is_known_by_each(built: str, counted_as: str) -> None:
    session = running(on_record(built), counted_as, "4k", "thp", "switch")
    assert Verdict.NOT_TESTED not in verdicts(compare_session(session)).values()


def test_a_cold_part_ran_only_where_it_did_itself() -> None:
    session = running(on_record("f.cold"), "f", "4k", "thp", "switch")
    assert set(verdicts(compare_session(session)).values()) == {Verdict.NOT_TESTED}


def test_what_ran_before_a_phase_may_act_in_it_and_is_no_unchanged() -> None:
    """A function of the first phase leaves memory that the second one meets."""
    quiet = running(on_record("added"), "added", "4k", "thp")
    [metric] = [m for m in compare_session(quiet).primary if m.name == "switch.bw"]
    assert metric.judgement.verdict is Verdict.NOT_TESTED
    assert metric.judgement.reason.endswith("added ran before it")
    loud = running(on_record("added", switch=-0.02), "added", "4k", "thp")
    [metric] = [m for m in compare_session(loud).primary if m.name == "switch.bw"]
    assert metric.judgement.verdict is Verdict.UNEXPLAINED
    assert metric.judgement.reason.startswith("none of the changed functions ran (added); added")


def headed(session: MeasuredSession, **head: object) -> MeasuredSession:
    """The same with a manifest that has these fields."""
    return dataclasses.replace(session, manifest=but(session.manifest, **head))


def other_arm(manifest: Manifest, **arm: object) -> dict[str, object]:
    base, patched = manifest.arms
    return {"arms": (base, but(patched, **arm))}


def test_where_it_is_not_known_what_ran_the_verdicts_are_as_before() -> None:
    session = on_record("vmalloc")
    manifest = session.manifest
    prebuilt = but(manifest.arms[1].kernel, flavour="prebuilt")
    heads: list[dict[str, object]] = [
        {"triage": None},
        {"triage": TriageRecord(verdict="data or layout")},
        other_arm(manifest, kernel=prebuilt),
        other_arm(manifest, settings={"sysctl vm.swappiness": "1"}),
    ]
    for head in heads:
        judged = compare_session(headed(session, **head))
        assert Verdict.NOT_TESTED not in verdicts(judged).values()
    uncounted = compare_session(measured(manifest, session.records))
    assert Verdict.NOT_TESTED not in verdicts(uncounted).values()


# As the factory's kernels have it: the add walks a tree, and so does the fault.
EDGES = {
    "filemap_fault": {"filemap_get_entry", "page_cache_ra_unbounded"},
    "page_cache_ra_unbounded": {"__filemap_add_folio"},
    "__filemap_add_folio": {"xas_load", "filemap_range_has_entry", "xas_store"},
    "filemap_get_entry": {"xas_load"},
    "xas_load": {"xas_start", "xas_descend"},
}
WALKS = ("__filemap_add_folio", "filemap_range_has_entry", "xas_get_order", "xa_get_order")
CALLS = calls_of(EDGES, boot=["setup"])


def known(session: MeasuredSession, calls: Calls | None = CALLS) -> SessionComparison:
    return compare_session(dataclasses.replace(session, calls=calls))


def test_what_the_changed_functions_and_their_callees_made_stands() -> None:
    session = known(on_record(*WALKS, **{"4k": 0.02}))
    assert verdicts(session)["4k.bw"] is Verdict.IMPROVEMENT
    split = there(session.comparisons[0].headlines[0].split)
    assert split.linked.difference < -100
    assert abs(split.rest.difference) < 0.1 * abs(split.explained)
    shown, *_ = [line for line in render(session, "text").splitlines() if "whose code" in line]
    assert shown.strip().startswith(
        f"Of the change, {percent(split.share(split.total.difference))}: "
    )


def test_what_they_cannot_have_made_is_unexplained_and_named() -> None:
    session = known(on_record("lru_add", **{"4k": 0.02}))
    assert verdicts(session)["4k.bw"] is Verdict.UNEXPLAINED
    judged = session.primary[0].judgement
    assert (judged.cause, judged.blame) == (Cause.UNEXPLAINED, "")
    assert judged.change is not None
    assert "xas_load -" in judged.reason
    assert "instructions per I/O" in judged.reason
    assert (outcome(session), outcome(session, strict=True)) == (0, 5)
    text = render(session, "text")
    assert "unexplained" in text.lower()
    assert "xas_load" in text
    gate = gate_of_session(session, Policy())
    assert gate.exit_code == 5
    assert gate_of_session(session, Policy(rules=(Rule(unexplained="warn"),))).exit_code == 0


def test_no_function_changed_where_nothing_ran_that_differs() -> None:
    session = on_record("vmalloc")
    judged = compare_session(session)
    own = judged.comparisons[0].headlines
    assert all(each.tested > 0 and each.changed == () for each in own)
    unknown = headed(session, triage=None)
    assert any(each.changed for each in compare_session(unknown).comparisons[0].headlines)


def test_a_function_changed_where_changed_code_is_linked_with_it() -> None:
    walks, other = (known(on_record(*names)) for names in (WALKS, ("lru_add",)))
    of_walks, of_other = (each.comparisons[0].headlines[0] for each in (walks, other))
    assert {"xas_load", "xas_start", "filemap_range_has_entry"} <= {
        f.name for f in of_walks.changed
    }
    assert of_walks.tested == of_other.tested > 0
    assert of_other.changed == ()


def test_beside_a_result_that_is_no_change_stands_what_the_changed_code_made() -> None:
    session = known(on_record(*WALKS))
    assert verdicts(session)["4k.bw"] not in CALLED
    (own, *_) = session.comparisons[0].headlines
    assert own.split is not None
    shown = " ".join(" ".join(forms.answer_lines(session)).split())
    for part in (own.split.changed, own.split.linked, own.split.rest):
        assert percent(own.split.share(part.difference)) in shown


def test_a_slow_down_that_memory_hides_is_not_unchanged() -> None:
    # The walks got shorter, and the changed function longer by as much.
    session = on_record("brd_submit_bio")

    def longer(profile: Profile) -> Profile:
        if not profile.run_id.endswith("patched"):
            return profile
        phases = []
        for phase in profile.phases:
            more = round(240 * phase.units["folio"])
            kernel = tuple(
                dataclasses.replace(each, instructions=each.instructions + more)
                if each.name == "brd_submit_bio"
                else each
                for each in phase.kernel
            )
            whole = phase.instructions + more
            phases.append(but(phase, kernel=kernel, instructions=whole, by_vcpu=(whole,)))
        return but(profile, phases=tuple(phases))

    hidden = dataclasses.replace(session, profiles=tuple(map(longer, session.profiles)))
    assert set(verdicts(known(session)).values()) == {Verdict.NO_CHANGE}
    assert verdicts(known(hidden))["4k.bw"] is Verdict.UNEXPLAINED


def test_nothing_is_divided_where_it_is_not_known_who_calls_whom_or_who_waits() -> None:
    session = on_record("lru_add", **{"4k": 0.02})
    assert verdicts(known(session, None))["4k.bw"] is Verdict.IMPROVEMENT
    many = headed(session, guest=but(session.manifest.guest, vcpus=4))
    assert verdicts(known(many))["4k.bw"] is Verdict.IMPROVEMENT


def test_what_is_executed_at_boot_or_is_data_may_act_later() -> None:
    booted = known(on_record("setup", **{"4k": -0.02}))
    assert verdicts(booted)["4k.bw"] is Verdict.UNEXPLAINED
    assert "setup ran at boot" in booted.primary[0].judgement.reason
    assert verdicts(booted)["thp.bw"] is Verdict.NOT_TESTED
    session = on_record("setup", **{"4k": -0.02})
    judged = known(headed(session, triage=TriageRecord(verdict="data or layout")))
    assert verdicts(judged)["4k.bw"] is Verdict.UNEXPLAINED
    assert "no function's code differs" in judged.primary[0].judgement.reason


def test_a_change_beside_other_data_is_unexplained_though_nothing_changed_ran() -> None:
    session = on_record("vmalloc", **{"4k": -0.02})
    limit = FunctionRecord(name="limit", before=4, after=4)
    judged = known(headed(session, triage=but(triage("vmalloc"), data=(limit,))))
    assert verdicts(judged)["4k.bw"] is Verdict.UNEXPLAINED
    assert "data differs (limit)" in judged.primary[0].judgement.reason
    assert verdicts(judged)["thp.bw"] is Verdict.NOT_TESTED


def test_every_patch_of_a_stack_is_named_in_the_next_step() -> None:
    session = on_record("vmalloc")
    series = SeriesSpec(path="a b.mbox", stack=("c.patch",))
    experiment = but(session.manifest.experiment, series=series)
    shown = headline(compare_session(headed(session, experiment=experiment)))
    assert shown.causes == ("workloads that run them: ./lab.py suggest 'a b.mbox' c.patch",)


def with_option(option: OptionRecord) -> tuple[ArmRecord, ArmRecord]:
    base, patched = ExactSession(same_code=True).manifest().arms
    return base, but(patched, options=(option,))


def stepped(number: int, *patches: str) -> ArmRecord:
    """An arm of several, compared with the one before it: both have an option more."""
    arm = ExactSession(same_code=True).manifest().arms[number]
    option = OptionRecord(name="CONFIG_HINT", before="", after="y")
    return but(arm, kernel=but(arm.kernel, patches=("0.patch", *patches)), options=(option,))


SAME = TriageRecord(verdict="same code")
KCONFIG = SeriesRecord(
    kind="folder",
    origin="s",
    title="mm: an option",
    patches=(PatchRecord(name="1.patch", subject="s", sha256="0", files=("mm/Kconfig",)),),
)


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (
            {"triage": but(SAME, left_out=("mm/numa.c (CONFIG_NUMA is n)",))},
            "nothing that the series changes is in this kernel: mm/numa.c (CONFIG_NUMA is n)",
        ),
        (
            {
                "triage": SAME,
                "arms": with_option(OptionRecord(name="CONFIG_HINT", before="n", after="y")),
            },
            "the kernels differ in their configuration alone: CONFIG_HINT n -> y",
        ),
        # Not what both have, and the base of the session has not.
        (
            {"triage": SAME, "series": (KCONFIG,), "arms": (stepped(0), stepped(1, "1.patch"))},
            "the series changes mm/Kconfig, and both kernels have the same configuration",
        ),
        (
            {"triage": SAME, "series": (KCONFIG,)},
            "the series changes mm/Kconfig, and both kernels have the same configuration",
        ),
    ],
)
def test_same_code_is_no_answer_where_the_series_is_not_in_it(
    head: dict[str, object], reason: str
) -> None:
    session = ExactSession(same_code=True).as_session([], **head)
    assert set(verdicts(session).values()) == {Verdict.NOT_TESTED}
    assert session.primary[0].judgement.cause is Cause.NOT_BUILT
    assert headline(session)[:2] == (f"Not tested: {reason}", ())
    assert outcome(session) == 3
    for form in FORMS[:-1]:
        assert "same code" not in render(session, form).lower(), form


def test_the_answer_of_a_run_says_what_else_the_arms_differ_by() -> None:
    option = OptionRecord(name="CONFIG_HINT", before="n", after="y")
    session = ExactSession()
    for arms, count in ((with_option(option), 1), (session.manifest().arms, 0)):
        shown = "\n".join(forms.answer_lines(session.as_session(arms=arms)))
        assert shown.count("CONFIG_HINT: n in base; y in patched") == count
        assert shown.count("Beyond the series") == count


def test_the_answer_says_what_differs_where_no_function_does() -> None:
    named = TriageRecord(verdict="data or layout", renamed=(("f", "g"),))
    shown = "\n".join(forms.answer_lines(ExactSession().as_session(triage=named)))
    assert re.search(r"^Code +no function changed; .*f -> g$", shown, re.M | re.S)
    assert "Code" not in "\n".join(forms.answer_lines(ExactSession().as_session()))


def test_a_comment_is_still_the_same_code() -> None:
    session = ExactSession(same_code=True).as_session([], triage=SAME)
    assert set(verdicts(session).values()) == {Verdict.NO_CHANGE}
    assert outcome(session) == 0


def test_a_step_that_is_a_document_is_the_same_code_whatever_steps_before_it_change() -> None:
    document = PatchRecord(name="2.patch", subject="s", sha256="0", files=("Documentation/x.rst",))
    series = but(KCONFIG, patches=(*KCONFIG.patches, document))
    arms = (stepped(0, "1.patch"), stepped(1, "1.patch", "2.patch"))
    session = ExactSession(same_code=True).as_session([], triage=SAME, series=(series,), arms=arms)
    assert changed_files(session.manifest) == document.files
    assert set(verdicts(session).values()) == {Verdict.NO_CHANGE}


@pytest.mark.parametrize(
    ("beside", "quiet", "loud"),
    [
        (
            {"data": (FunctionRecord(name="vm_swappiness", before=4, after=4),)},
            Verdict.NOT_TESTED,
            Verdict.UNEXPLAINED,
        ),
        ({"modules": ("test_vmalloc.ko",)}, Verdict.NO_CHANGE, Verdict.IMPROVEMENT),
        (
            {"data": (FunctionRecord(name="read_by_new_code", before=None, after=8),)},
            Verdict.NOT_TESTED,
            Verdict.NOT_TESTED,
        ),
    ],
)
def test_data_and_modules_may_act_where_no_changed_function_runs(
    beside: dict[str, object], quiet: Verdict, loud: Verdict
) -> None:
    differing = but(triage("vmalloc"), **beside)
    for verdict, effect in ((quiet, 0.0), (loud, 0.02)):
        session = headed(on_record("vmalloc", **{"4k": effect}), triage=differing)
        judged = compare_session(session)
        assert verdicts(judged)["4k.bw"] is verdict
        texts = [of_finding(finding) for finding in judged.findings]
        assert any(f"{next(iter(beside))} changed: " in text for text in texts)
