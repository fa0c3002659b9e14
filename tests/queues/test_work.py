"""A queue worked off: order, outcomes, the host in the way, and workers that are killed."""

import collections
import contextlib
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import queues.work
from errors import InfraError, SeriesError, SpecError, UsageError, WorkloadError
from queues.page import INDEX
from queues.store import QueueStore
from queues.work import Rules, work
from reports.forms import write_all
from results.record import RunRecord
from tests.analysis.factory import ExactSession, fails
from tests.queues.made_up import SLOWER, SMALL, MadeUpMeasuring, plain_report, queued
from tests.values import silent

pytestmark = pytest.mark.slow

WORKER = Path(__file__).with_name("worker.py")
RUNS = len(SMALL.records())


@pytest.fixture
def store(tmp_path: Path) -> QueueStore:
    store = QueueStore(tmp_path / "queue")
    store.create()
    return store


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports as they are."""
    monkeypatch.setattr(queues.work, "write_all", write_all)


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues.work, "write_all", plain_report)


def states(store: QueueStore) -> dict[str, str]:
    return {entry.title: entry.state for entry in store.read().entries}


def test_by_priority_and_then_by_arrival(store: QueueStore) -> None:
    for name, priority in (("a", 0), ("b", 0), ("c", 5), ("d", -1), ("e", 5)):
        queued(store, name, priority=priority)
    measuring = MadeUpMeasuring()
    assert work(store, measuring, silent) == 5
    order = [job.request.series[0] for job in measuring.jobs]
    assert order == [f"git:/src/linux@base..{name}" for name in "ceabd"]
    assert set(states(store).values()) == {"done"}


def test_each_entry_has_a_session_a_report_and_its_verdicts(store: QueueStore, drawn: None) -> None:
    good, bad = queued(store, "good"), queued(store, "bad")
    work(store, MadeUpMeasuring(sessions={bad.id: SLOWER}), silent)
    by_title = {entry.title: entry for entry in store.read().entries}
    assert (by_title["good"].code, by_title["bad"].code) == (0, 1)
    assert by_title["bad"].blame == ""
    assert by_title["bad"].headline == "1 regression, 1 unchanged (within 0.25 %), 1 inconclusive"
    judged = {(primary.case, primary.metric): primary for primary in by_title["bad"].results}
    assert judged["filemap-4k", "4k.bw"].verdict == "regression"
    assert judged["filemap-4k", "4k.bw"].change == pytest.approx(-0.0129, abs=0.002)
    page = (store.folder / INDEX).read_text()
    for entry in (good, bad):
        assert (store.session(entry) / "report.html").is_file()
        assert f'href="sessions/{entry.id}/report.html"' in page
    assert "regression" in page


@pytest.mark.parametrize(
    ("error", "code", "blame", "message"),
    [
        (SeriesError("does not apply to mm/x.c", where="0001-x.patch"), 4, "series", "0001-x.p"),
        (UsageError("no such file", where="x.mbox", next_step="name one"), 2, "user", "name one"),
        (SpecError(["--series: no workload is known"]), 2, "user", "no workload is known"),
        (WorkloadError("measured nothing"), 3, "workload", "measured nothing"),
        (ZeroDivisionError("oops"), 3, "lab", "ZeroDivisionError: oops"),
    ],
    ids=["series", "usage", "experiment", "workload", "bug"],
)
def test_a_failure_is_the_outcome_of_its_entry_and_the_queue_goes_on(
    store: QueueStore, error: Exception, code: int, blame: str, message: str
) -> None:
    first, _ = queued(store, "first"), queued(store, "second")
    lines: list[str] = []
    assert work(store, MadeUpMeasuring(errors={first.id: [error]}), lines.append) == 2
    assert states(store) == {"first": "failed", "second": "done"}
    kept = store.find(first.id)
    assert (kept.code, kept.blame) == (code, blame)
    assert message in kept.message
    assert message in (store.folder / INDEX).read_text()
    assert any("Traceback" in line for line in lines) == (blame == "lab")


def test_what_the_series_breaks_in_a_guest_is_its_outcome(store: QueueStore) -> None:
    entry = queued(store, "panics")

    class Panics(ExactSession):
        def records(self) -> list[RunRecord]:
            return fails(super().records(), "filemap-4k-000-patched", kind="panic", blame="series")

    work(store, MadeUpMeasuring(sessions={entry.id: Panics()}), silent)
    kept = store.find(entry.id)
    assert (kept.state, kept.code, kept.blame) == ("failed", 4, "series")
    assert kept.message.startswith("filemap-4k-000-patched: panic: ")
    assert f"sessions/{entry.id}/report.html" in (store.folder / INDEX).read_text()


def test_without_a_verdict_the_page_has_the_headline_of_the_report(
    store: QueueStore, drawn: None
) -> None:
    entry = queued(store, "broken")

    class Broken(ExactSession):
        def records(self) -> list[RunRecord]:
            records = super().records()
            failed = [record.run_id for record in records if record.arm == "patched"]
            return fails(records, *failed, kind="panic", blame="series", message="Oops: 0002")

    work(store, MadeUpMeasuring(sessions={entry.id: Broken()}), silent)
    kept = store.find(entry.id)
    sentence = (
        "No verdict: 16 runs of patched failed, none of base: panic, blame series: Oops: 0002"
    )
    assert (kept.blame, kept.headline, kept.message) == ("series", sentence, sentence)
    assert sentence in (store.session(entry) / "report.md").read_text()
    page = (store.folder / INDEX).read_text()
    assert page.count(sentence) == 1
    assert "4k.bw: failed" not in page


def test_what_the_host_ended_is_tried_again_and_goes_on(store: QueueStore) -> None:
    entry = queued(store, "unlucky")
    lost = InfraError("QEMU is gone", where="qemu")
    measuring = MadeUpMeasuring(errors={entry.id: [lost]})
    assert work(store, measuring, silent, Rules(tries=2)) == 1
    assert [job.resume for job in measuring.jobs] == [False, True]
    assert store.find(entry.id).state == "done"
    assert len((store.session(entry) / "runs.jsonl").read_text().splitlines()) == RUNS


def test_the_host_ends_one_often_enough_and_it_is_set_aside(store: QueueStore) -> None:
    entry, _ = queued(store, "unlucky"), queued(store, "next")
    lost: list[BaseException | None] = [InfraError("cannot be fetched"), OSError(28, "full")]
    measuring = MadeUpMeasuring(errors={entry.id: lost})
    assert work(store, measuring, silent, Rules(tries=2)) == 2
    kept = store.find(entry.id)
    assert (kept.state, kept.code, kept.blame, kept.tries) == ("failed", 3, "host", 2)
    assert "full" in kept.message
    assert states(store)["next"] == "done"


def test_two_in_a_row_stop_the_queue_and_a_retry_goes_on(store: QueueStore) -> None:
    names = ("a", "b", "c")
    entries = [queued(store, name) for name in names]
    errors: dict[str, list[BaseException | None]] = {
        entry.id: [OSError(28, "No space left on device")] for entry in entries
    }
    with pytest.raises(InfraError, match="2 entries in a row") as caught:
        work(store, MadeUpMeasuring(errors=errors), silent, Rules(tries=1))
    assert "No space left" in caught.value.what
    assert states(store) == {"a": "failed", "b": "failed", "c": "waiting"}
    # The same session goes on: three runs are on record.
    again = store.find(entries[0].id).requeued()
    assert again.session == entries[0].session
    store.save(again)
    measuring = MadeUpMeasuring()
    work(store, measuring, silent)
    assert {job.folder.name: job.resume for job in measuring.jobs} == {
        entries[0].id: True,
        entries[2].id: False,
    }


def test_an_entry_measured_again_has_a_session_of_its_own(store: QueueStore) -> None:
    entry = queued(store, "twice")
    work(store, MadeUpMeasuring(), silent)
    store.save(store.find(entry.id).requeued())
    measuring = MadeUpMeasuring()
    work(store, measuring, silent)
    assert [(job.folder.name, job.resume) for job in measuring.jobs] == [(f"{entry.id}-2", False)]
    assert (store.session(entry) / "report.html").exists()


def test_no_more_than_requested(store: QueueStore) -> None:
    for name in ("a", "b", "c"):
        queued(store, name)
    assert work(store, MadeUpMeasuring(), silent, Rules(limit=2)) == 2
    assert list(states(store).values()) == ["done", "done", "waiting"]


def test_interrupted_by_the_keyboard_it_is_still_to_be_done(store: QueueStore) -> None:
    entry = queued(store, "a")
    with pytest.raises(KeyboardInterrupt):
        work(store, MadeUpMeasuring(errors={entry.id: [KeyboardInterrupt()]}), silent)
    assert states(store) == {"a": "running"}
    measuring = MadeUpMeasuring()
    lines: list[str] = []
    work(store, measuring, lines.append)
    assert [job.resume for job in measuring.jobs] == [True]
    # The same words as in a list of the queue.
    ended = store.find(entry.id)
    results = "; ".join(map(str, ended.results))
    assert (results[:17], lines[-1]) == ("filemap-4k 4k.bw:", f"done  {entry.id}  {results}")


def start(store: QueueStore, ledger: Path, pause_s: float, *meeting: Path) -> subprocess.Popen[str]:
    argv = [sys.executable, str(WORKER), str(store.folder), str(ledger), str(pause_s)]
    argv += map(str, meeting)
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(worker: subprocess.Popen[str], timeout_s: float = 240) -> str:
    out, err = worker.communicate(timeout=timeout_s)
    assert worker.returncode == 0, err
    return out


def test_killed_again_and_again_nothing_is_measured_twice(
    store: QueueStore, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    names = ("a", "b", "c")
    for name in names:
        queued(store, name)
    moments = random.Random(1)
    kills = 0
    for _ in range(3):
        before = ledger.stat().st_size if ledger.exists() else 0
        worker = start(store, ledger, 0.03)
        limit = time.monotonic() + 120
        # Let it do something first: starting Python takes longer than a run of this one.
        while worker.poll() is None and time.monotonic() < limit:
            if ledger.exists() and ledger.stat().st_size > before:
                break
            time.sleep(0.02)
        time.sleep(moments.uniform(0, 0.5))
        with contextlib.suppress(ProcessLookupError):
            worker.send_signal(signal.SIGKILL)
        worker.communicate()
        kills += worker.returncode == -signal.SIGKILL
    assert kills >= 2
    ended(start(store, ledger, 0.0))
    assert states(store) == dict.fromkeys(names, "done")
    # A kill between the record and the ledger's line loses the line, never the record.
    lines = collections.Counter(ledger.read_text().splitlines())
    assert [line for line, count in lines.items() if count > 1] == []
    for entry in store.read().entries:
        folder = store.session(entry)
        records = [
            RunRecord.model_validate_json(line).run_id
            for line in (folder / "runs.jsonl").read_text().splitlines()
        ]
        assert len(records) == len(set(records)) == RUNS
        assert (folder / "report.html").exists()
        assert entry.attempt == 1
    assert len(list((store.folder / "sessions").iterdir())) == len(names)


def test_two_workers_never_take_the_same_entry(store: QueueStore, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    names = [f"s{number}" for number in range(4)]
    for name in names:
        queued(store, name)
    workers = [start(store, ledger, 0.01, tmp_path / "meeting") for _ in range(2)]
    outputs = [ended(worker) for worker in workers]
    begun = [line.split()[1] for out in outputs for line in out.splitlines() if "begins" in line]
    assert sorted(begun) == sorted(entry.id for entry in store.read().entries)
    assert all("begins" in out for out in outputs)
    assert set(states(store).values()) == {"done"}
    lines = collections.Counter(ledger.read_text().splitlines())
    assert len(lines) == RUNS * len(names)
    assert set(lines.values()) == {1}


def test_what_nobody_expected_of_two_entries_does_not_keep_the_others_waiting(
    store: QueueStore,
) -> None:
    bad = [queued(store, name) for name in ("a", "b", "c")]
    good = queued(store, "good")
    bugs: tuple[BaseException, ...] = (RecursionError("deep"), KeyError("x"), ValueError("y"))
    errors: dict[str, list[BaseException | None]] = {
        entry.id: [bug] for entry, bug in zip(bad, bugs, strict=True)
    }
    assert work(store, MadeUpMeasuring(errors=errors), silent) == 4
    assert [store.find(entry.id).blame for entry in bad] == ["lab"] * 3
    assert store.find(good.id).state == "done"
