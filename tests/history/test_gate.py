"""Policies, known changes, and what a gate makes of sessions and nights."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from analysis.many import compare_session
from errors import SpecError
from experiment.ad_hoc import from_series
from experiment.load import load, load_experiment
from experiment.spec import Thresholds
from history.changes import changes_of
from history.entry import Entry
from history.gate import Gate, Message, of_history, of_session, workflow_commands
from history.ingest import entry_of
from history.policy import KnownChange, KnownChanges, Policy, PolicyTarget, Rule, laxer, load_known
from history.store import UnreadFile
from results.record import RunRecord, TriageRecord
from runs import resolved
from tests.analysis import counts_factory
from tests.analysis.factory import ExactSession, fails
from tests.history.factory import Nights
from tests.values import but, data
from verbs.history import policy_of

CONFIGS = Path(__file__).resolve().parent.parent.parent / "configs"
FAILING = Policy(rules=(Rule(inconclusive="fail"),))


def test_a_session_in_which_nothing_is_judged_fails() -> None:
    session = ExactSession()
    manifest = session.manifest()
    cases = tuple(but(case, primary=()) for case in manifest.cases)
    gate = of_session(session.as_session(cases=cases), Policy())
    assert gate.exit_code == 3
    assert any(message.title.startswith("not_tested: ") for message in gate.messages)


def test_what_is_not_tested_has_its_reason_and_no_size() -> None:
    triage = TriageRecord(verdict="same code", left_out=("mm/numa.c",))
    gate = of_session(ExactSession(same_code=True).as_session([], triage=triage), Policy())
    texts = {each.text for each in gate.messages if each.title.startswith("not_tested: ")}
    reason = "nothing that the series changes is in this kernel: mm/numa.c"
    assert texts == {f"patched against base: {reason}"}


def session_gate(policy: Policy, records: Sequence[RunRecord] | None = None, **made: Any) -> Gate:
    return of_session(ExactSession(**made).as_session(records), policy)


def track(*parts: tuple[float, int], **more: object) -> list[Entry]:
    levels = tuple(level for level, count in parts for _ in range(count))
    return Nights(levels, **more).entries()  # type: ignore[arg-type]


SLOWER: dict[str, Any] = {"effect": {"4k": -0.02, "thp": 0.0, "switch": 0.0}}


def test_a_regression_fails_and_says_where() -> None:
    gate = session_gate(Policy(), **SLOWER)
    assert gate.exit_code == 1
    assert gate.messages[0].level == "error"
    assert gate.messages[0].title == "regression: filemap-v4 laptop exact filemap-4k 4k.bw"
    assert "patched against base: -2.12 %" in gate.messages[0].text


def test_a_policy_makes_of_it_what_it_says() -> None:
    warn = Policy(rules=(Rule(experiment="filemap-*", regression="warn"),))
    assert session_gate(warn, **SLOWER).exit_code == 0
    assert session_gate(warn, **SLOWER).messages[0].level == "warning"
    other = Policy(rules=(Rule(metric="thp.*", regression="warn"),))
    assert session_gate(other, **SLOWER).exit_code == 1
    small = Policy(rules=(Rule(at_least=0.05),))
    assert session_gate(small, **SLOWER).exit_code == 0
    # Why it does not fail is said where it would, and only there.
    below, why = session_gate(small, **SLOWER).messages[0], "does not fail: below at_least = 5 %"
    assert why in below.text
    larger = session_gate(Policy(rules=(Rule(at_least=0.01),)), **SLOWER).messages[0]
    warned = Policy(rules=(Rule(at_least=0.05, regression="warn"),))
    for message in (larger, session_gate(warned, **SLOWER).messages[0]):
        assert "at_least" not in message.text
    assert session_gate(Policy()).exit_code == 0


def counted_gate(policy: Policy, *, same: bool = False) -> Gate:
    return of_session(compare_session(counts_factory.measured_with_counts(same=same)), policy)


def test_functions_that_changed_are_shown_and_fail_by_choice() -> None:
    shown = [m for m in counted_gate(Policy()).messages if m.title.startswith("functions: ")]
    assert [m.title.rpartition(" ")[2] for m in shown] == [
        "4k.functions",
        "thp.functions",
        "switch.functions",
    ]
    assert {(m.level, m.code) for m in shown} == {("notice", 0)}
    assert "patched against base: 7 of 64 functions changed: xas_load -85.27" in shown[0].text
    assert counted_gate(Policy()).exit_code == 0
    failing = Policy(rules=(Rule(metric="thp.functions", functions="fail"),))
    assert counted_gate(failing).exit_code == 1
    assert counted_gate(failing).messages[0].title.endswith(" filemap-thp thp.functions")
    # The largest change of the phase is 0.7 % of it.
    assert counted_gate(Policy(rules=(Rule(functions="fail", at_least=0.005),))).exit_code == 1
    assert counted_gate(Policy(rules=(Rule(functions="fail", at_least=0.01),))).exit_code == 0
    every = Policy(rules=(Rule(functions="fail"),))
    assert counted_gate(every, same=True).exit_code == 0


def test_functions_of_the_newest_night_are_what_the_session_s_gate_says() -> None:
    made = counts_factory.measured_with_counts()
    first = entry_of(made)
    later = {"night": "2026-01-02", "created": "2026-01-02T00:00:00Z", "session": "later"}
    untested, equal = (
        tuple(
            but(
                case,
                functions=tuple(
                    but(each, count=0, largest=(), differences=())
                    for each in case.functions
                    if tested
                ),
            )
            for case in first.cases
        )
        for tested in (False, True)
    )

    def gate(policy: Policy, *nights: Entry) -> list[Message]:
        result = of_history(nights, changes_of(nights, KnownChanges(), policy), policy)
        listed = [message for message in result.messages if message.title.startswith("functions: ")]
        # A session's own cannot be acknowledged.
        assert all(message.change for message in listed)
        return [
            message._replace(change="", text=message.text.replace(f"; change {message.change}", ""))
            for message in listed
        ]

    def own(policy: Policy) -> list[Message]:
        messages = of_session(compare_session(made), policy).messages
        return [message for message in messages if message.title.startswith("functions: ")]

    failing = Policy(rules=(Rule(metric="4k.functions", functions="fail"),))
    small = Policy(rules=(Rule(functions="fail", at_least=0.01),))
    for policy in (Policy(), failing, small):
        assert gate(policy, first) == own(policy)
    assert [message.code for message in gate(failing, first)] == [1, 0, 0]
    again = gate(failing, first, but(first, **later))
    assert [message.code for message in again] == [1, 0, 0]
    assert [message.text for message in again] == [
        f"since 2026-01-01: {message.text}" for message in own(failing)
    ]
    # What a later night no longer has is not open, and a night that tested nothing changes nothing.
    assert gate(failing, first, but(first, **later, cases=equal)) == []
    assert gate(failing, first, but(first, **later, cases=untested)) == again


def test_too_few_seeds_for_any_verdict_are_no_pass_unless_the_policy_says_so() -> None:
    few: dict[str, Any] = {**SLOWER, "seeds": (1, 2, 3, 4, 5, 6, 7)}
    gate = session_gate(Policy(), **few)
    assert (gate.exit_code, {m.title.split(":")[0] for m in gate.messages}) == (5, {"too_few"})
    assert session_gate(Policy(rules=(Rule(too_few="warn"),)), **few).exit_code == 0


def test_a_session_that_did_not_repeat_is_inexact_by_name() -> None:
    records = [
        but(record, fingerprint="another") if record.repeat else record
        for record in ExactSession().records()
    ]
    gate = session_gate(Policy(rules=(Rule(failed="pass"),)), records)
    assert [m.title.split(":")[0] for m in gate.messages if m.code] == ["inexact"]
    assert gate.exit_code == 3


@pytest.mark.parametrize(("blame", "code"), [("series", 4), ("lab", 3), ("user", 2)])
def test_a_lost_verdict_is_not_a_slow_kernel(blame: str, code: int) -> None:
    records = ExactSession().records()
    lost = [r.run_id for r in records if r.case == "filemap-4k" and not r.repeat]
    records = fails(records, *lost, kind="panic", blame=blame)
    gate = session_gate(Policy(), records)
    assert gate.exit_code == code
    # By its verdicts and, where the series is to blame, by its runs.
    assert {(m.title.split(":")[0], m.code) for m in gate.messages if m.code} == {
        ("broken" if blame == "series" else "failed", code)
    }
    forgiving = Policy(rules=(Rule(failed="pass", broken="warn"),))
    assert session_gate(forgiving, records).exit_code == 0


def test_expired_entries_are_named() -> None:
    entries = track((0.0, 3))
    old = KnownChange(change="0" * 12, until="2026-01-02", reason="old")
    gate = of_history(entries, [], Policy(), known_changes=KnownChanges(known=(old,)))
    assert gate.messages[0].text == "000000000000 until 2026-01-02 has expired: old"


def test_what_is_not_judged_warns() -> None:
    entries = track((0.0, 20))
    seeds = but(entries[19].cases[0], seeds=tuple(range(5, 13)))
    odd = [*entries[:19], but(entries[19], cases=(seeds,))]
    (gap,) = (c for c in changes_of(odd) if c.course.arm == "tonight")
    gap = but(gap, detected_entry=entries[19].id)
    gate = of_history(entries, [gap], Policy(rules=(Rule(incomparable="warn"),)))
    assert (gate.exit_code, gate.messages[0].level) == (0, "warning")
    assert gate.messages[0].title.startswith("incomparable: nightly")
    assert of_history(entries, [gap], Policy()).exit_code == 3
    # How large the difference is says nothing where it is not judged.
    small = Policy(rules=(Rule(incomparable="fail", at_least=0.09),))
    assert of_history(entries, [gap], small).exit_code == 3


def test_files_left_out_are_named() -> None:
    gate = of_history(track((0.0, 2)), [], Policy(), problems=[UnreadFile(Path("x.json"), "torn")])
    assert gate.messages[0] == Message("warning", "history", "x.json: torn")


def test_a_message_cannot_begin_another_command() -> None:
    evil = Message("error", "a:b,c\n::error::x", "50% off\r\n::stop-commands::t\u2028\x1b[2J")
    line = workflow_commands([evil]).removesuffix("\n")
    assert line.startswith("::error title=a%3Ab%2Cc%0A%3A%3Aerror%3A%3Ax::50%25 off%0D%0A::stop")
    assert len(line.splitlines()) == 1
    assert line.isprintable()
    assert workflow_commands([evil, evil]).count("\n") == 2


def test_shipped_files_are_sound() -> None:
    policy = load(CONFIGS / "gate.toml", Policy)
    assert policy.rule(PolicyTarget("x", "y", "wall")).regression == "warn"
    assert policy.rule(PolicyTarget("x", "y", "exact")).regression == "fail"
    load_known(CONFIGS / "known-changes.toml")
    assert load_known(CONFIGS / "no-such-file.toml") == KnownChanges()


def test_no_shipped_threshold_is_laxer_than_the_policy() -> None:
    """A session judged by such a one is refused, which its user could do nothing about."""
    policy, catalogue = policy_of(CONFIGS / "gate.toml"), resolved.catalogue(CONFIGS.parent)
    experiments = [
        load_experiment(path, overrides=(), catalogue=catalogue)
        for path in sorted((CONFIGS / "experiments").glob("*.toml"))
    ]
    experiments.append(from_series(["configs/series/noop"], workloads=["all"], catalogue=catalogue))
    for experiment in experiments:
        track = (experiment.name, "smoke", experiment.mode)
        own = experiment.thresholds
        judged = [(each.name, name) for each in experiment.cases for name in each.primary]
        assert laxer(own, policy.thresholds(track, own, judged), judged) == "", experiment.name


def test_thresholds_of_workloads_are_those_of_the_policy_where_no_rule_names_the_metric() -> None:
    own = {("redis", "append.path"): 0.015}
    place = PolicyTarget("series", "smoke", "exact", "redis", "append.path")
    everything = Rule(change=0.002)

    def change(*rules: Rule, at: PolicyTarget = place) -> float:
        return Policy(rules=rules).with_workloads(own).change(at)

    assert change() == change(everything) == 0.015
    assert change(Rule(change=0.02)) == 0.02
    assert change(Rule(metric="append.*", change=0.003), everything) == 0.003
    assert change(everything, at=place._replace(case="other")) == 0.002
    of_case = Rule(case="redis", change=0.004)
    assert change(of_case, everything) == 0.004
    assert change(of_case, everything, at=place._replace(case="other")) == 0.002
    assert change(of_case, everything, at=place._replace(case="", metric="")) == 0.002
    assert change(at=place._replace(mode="wall")) == 0.01
    assert Policy(rules=(everything,)).change(place) == 0.002


def test_a_threshold_of_one_case_is_laxer_for_that_case() -> None:
    thresholds = Thresholds(metrics={"redis/append.path": 0.015})
    judged = [("redis", "append.path"), ("other", "append.path")]
    track = ("series", "smoke", "exact")
    (words,) = laxer(thresholds, Policy().thresholds(track, thresholds, judged), judged).split(", ")
    assert words == "change of redis append.path 1.5 % and not 0.25 %"
    knows = Policy().with_workloads({("redis", "append.path"): 0.015})
    assert laxer(thresholds, knows.thresholds(track, thresholds, judged), judged) == ""
    # Nothing of it is judged.
    assert laxer(thresholds, Thresholds(), judged[1:]) == ""


@pytest.mark.parametrize(
    ("text", "message"),
    data(__file__, "a_bad_policy_is_named_by_file_key_value_and_what_is_allowed"),
)
def test_a_bad_policy_is_named_by_file_key_value_and_what_is_allowed(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "gate.toml"
    file.write_text(text)
    with pytest.raises(SpecError) as raised:
        load(file, Policy)
    assert message in str(raised.value)
    assert str(raised.value).startswith(str(file))


@pytest.mark.parametrize(("text", "message"), data(__file__, "a_bad_known_change_is_named"))
def test_a_bad_known_change_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "known.toml"
    file.write_text(f"[[known]]\n{text}")
    with pytest.raises(SpecError) as raised:
        load_known(file)
    assert message in str(raised.value)


def test_codes_win_in_the_order_of_the_documents() -> None:
    def gate(*codes: int) -> int:
        return Gate(tuple(Message("error", "t", "x", code) for code in codes)).exit_code

    assert gate(5, 3, 1, 4) == 4
    assert gate(5, 3, 1) == 1
    assert gate(5, 2, 3) == 3
    assert gate(0, 0) == 0
    assert gate() == 0
