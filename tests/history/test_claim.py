"""What a mail claims of a commit is read as it is meant, and a session is held against it."""

import html
import time
import tomllib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from analysis.many import compare_session
from analysis.model import MetricComparison
from analysis.verdict import Verdict
from errors import UsageError
from experiment.ad_hoc import AUTO
from history import claim
from history.claim import Stands
from tests.analysis.factory import ExactSession
from tests.analysis.test_execution import on_record
from tests.history.test_recall import EQUAL, NAME, locked, with_locks
from tests.history.test_recall import session as lock_session
from tests.values import but, data

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ROBOT = data(__file__, "robot")
SCALE = data(__file__, "scale")
FASTPATH = data(__file__, "fastpath")
BROKEN = data(__file__, "broken")
PERSON = data(__file__, "person")
READ = {
    "robot": (
        ROBOT,
        ("regression", 0.373, "stress-ng.bigheap.realloc_calls_per_sec", COMMIT, "memory"),
    ),
    "robot, test apart": (
        SCALE,
        (
            "improvement",
            0.087,
            "will-it-scale.page_fault3.per_thread_ops",
            COMMIT[:12],
            "mapped-file",
        ),
    ),
    "fastpath": (FASTPATH, ("regression", 0.0758, "micromm.munmap", "", "memory")),
    "fastpath, rows broken": (
        BROKEN,
        ("regression", 0.1119, "perf.syscall.fork", COMMIT[:12], "memory"),
    ),
    "person": (PERSON, ("regression", 0.13, "hackbench", COMMIT[:12], "messaging")),
}


def read(body: str, subject: str = "a report", commit: str = "") -> claim.ReportedChange:
    return claim.read(subject, body, by="A <a@b>", message_id="m@x", commit=commit)


@pytest.mark.parametrize("name", READ)
def test_a_report_is_read(name: str) -> None:
    body, expected = READ[name]
    own = read(body)
    near = claim.benchmarks().nearest(own.benchmark)
    assert near
    assert (own.kind, own.size, own.benchmark, own.commit, near.workloads[0]) == expected
    assert own.releases == (("v6.18", "v6.19-rc1") if name == "fastpath" else ())


@pytest.mark.parametrize("name", ["robot", "robot, test apart"])
def test_a_report_is_read_from_an_archive_that_has_it_on_one_line(name: str) -> None:
    body = READ[name][0]
    assert read(" ".join(body.split())) == read(body)


@pytest.mark.parametrize("name", READ)
def test_a_report_is_read_from_the_source_of_a_page(name: str) -> None:
    body = READ[name][0]
    quoted = "".join(f"> {line}" for line in body.splitlines(keepends=True))
    assert read(html.escape(quoted)) == read(body)


@pytest.mark.parametrize(
    "words", data(__file__, "of_several_commits_the_one_that_is_blamed_is_read")
)
def test_of_several_commits_the_one_that_is_blamed_is_read(words: str) -> None:
    assert read(words.replace("HASH", COMMIT[:12])).commit == COMMIT[:12]


@pytest.mark.parametrize(
    ("words", "kind", "size", "benchmark"), data(__file__, "what_is_claimed_is_read")
)
def test_what_is_claimed_is_read(words: str, kind: str, size: float, benchmark: str) -> None:
    own = read(words, commit=COMMIT)
    assert (own.kind, own.size, own.benchmark) == (kind, size, benchmark)


def test_releases_that_a_subject_compares_are_read() -> None:
    assert read("slower", "Pipes, kernel 6.6 → 6.12").releases == ("6.6", "6.12")


@pytest.mark.parametrize("before", ["test machine: ", "on test machine: "])
def test_the_machine_of_the_robot_is_read(before: str) -> None:
    body = ROBOT.replace("test machine: ", before)
    assert read(body).machine == "64 threads 2 sockets with 256G memory"


@pytest.mark.parametrize("quote", ["> ", "> > ", ">>"])
@pytest.mark.parametrize("name", READ)
def test_a_report_that_is_quoted_in_an_answer_is_read_as_it_is(name: str, quote: str) -> None:
    body = READ[name][0]
    quoted = "".join(f"{quote}{line}" for line in body.splitlines(keepends=True))
    assert read(f"On Monday A wrote:\n{quoted}\nI see that too.\n") == read(body)


def test_what_the_user_says_that_it_is_about_counts() -> None:
    assert read(PERSON, commit="fedcba9876543").commit == "fedcba9876543"
    assert read(PERSON, commit="fedcba9876543210").commit == "fedcba9876543210"
    # The same change in a tree of the user's.
    assert read(PERSON, commit="abcdef0123456") == read(PERSON)
    assert read("fork is 5 % slower", commit="abcdef0123456").commit == "abcdef0123456"


def test_a_mail_without_a_commit_says_what_to_do() -> None:
    with pytest.raises(UsageError) as refused:
        read("fio is 10% slower since yesterday")
    assert "--commit" in refused.value.in_one_line


@settings(max_examples=20)
@given(st.text(max_size=3000))
@example("bisect")
@example("regress")
@example("5% ")
@example("| a |")
@example("(R) ")
@example("|  ")
@example("stress-ng ")
@example("1x slow ")
def test_any_text_is_read_or_refused_in_linear_time(text: str) -> None:
    begun = time.process_time()
    try:
        read((text or "x") * (claim.READ // max(len(text), 1) // 4), commit="abcdef0")
    finally:
        assert time.process_time() - begun < 10


@pytest.mark.parametrize(
    ("name", "workload"), data(__file__, "the_nearest_workload_of_a_benchmark")
)
def test_the_nearest_workload_of_a_benchmark(name: str, workload: str) -> None:
    near = claim.benchmarks().nearest(name)
    assert near
    assert next(iter(near.workloads), "") == workload


def test_each_workload_of_the_table_can_be_chosen_and_no_pattern_stands_twice() -> None:
    table = claim.benchmarks()
    # A workload that only its own experiment measures cannot be.
    chosen = {each["workload"] for each in tomllib.loads(AUTO.read_text())["case"]}
    assert {name for each in table.benchmark for name in each.workloads} <= chosen
    names = [name for each in table.benchmark for name in each.names]
    assert len(names) == len(set(names)) >= 100
    # Each is reached: no longer pattern has all that one stands for.
    for each in table.benchmark:
        for name in each.names:
            assert table.nearest(name.replace("*", "x")) is each
    assert tomllib.loads(claim.TABLE.read_text())


@pytest.mark.parametrize(
    ("effect", "noise", "body", "word"),
    [
        (-0.02, 0.0018, ROBOT, Stands.PATH),
        (0.02, 0.0018, ROBOT, Stands.OTHER_WAY),
        (0.02, 0.0018, SCALE, Stands.PATH),
        (0.0, 0.0018, ROBOT, Stands.OPEN),
        (0.0, 0.0001, ROBOT, Stands.SILENT),
    ],
)
def test_how_a_session_stands_to_a_claim(
    effect: float, noise: float, body: str, word: Stands
) -> None:
    made = ExactSession(effect=dict.fromkeys(("4k", "thp", "switch"), effect), noise=noise)
    session = made.as_session()
    assert claim.answer(read(body), session).word is word


def test_a_session_in_which_nothing_that_differs_ran_tests_no_claim() -> None:
    session = compare_session(on_record("vmalloc"))
    assert claim.answer(read(ROBOT), session).word is Stands.NOT_TESTED


def test_the_phase_that_the_test_is_named_by_goes_first() -> None:
    made = ExactSession(effect={"4k": -0.02, "thp": -0.05, "switch": -0.02}, noise=0.0018)
    session = made.as_session()
    benchmarks = ("hackbench", "suite.other", "suite.4k2.per_thp_ops")
    reports = [but(read(ROBOT), benchmark=name) for name in benchmarks]
    places = [claim.answer(each, session).why.partition(":")[0] for each in reports]
    assert places == ["filemap-thp", "filemap-thp", "filemap-4k"]


def test_no_lock_is_named_where_a_phase_moved_unexplained() -> None:
    session = compare_session(lock_session(**EQUAL))
    (pair,) = session.comparisons
    locks = with_locks(locked("m.lock", {NAME: (2.0, 1.0)}))
    pair = but(pair, explained={**pair.explained, **locks})
    assert claim.answer(read(ROBOT), but(session, comparisons=(pair,))).word is Stands.LOCK

    def moved(metric: MetricComparison) -> MetricComparison:
        judgement = but(metric.judgement, verdict=Verdict.UNEXPLAINED)
        return but(metric, judgement=judgement) if metric.primary else metric

    unexplained = but(session, comparisons=(pair.with_metrics(moved),))
    answer = claim.answer(read(ROBOT), unexplained)
    assert answer.word is Stands.OPEN
    assert answer.why.endswith("which no code that differs explains")
