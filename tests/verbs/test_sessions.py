"""The list of sessions tells what each one's report tells."""

import json
from collections.abc import Collection
from pathlib import Path

import pytest

from results.profile import Profile
from results.store import SessionStore
from tests.analysis import counts_factory
from tests.analysis.factory import ExactSession, fails
from tests.analysis.factory import stored as on_disk
from tests.analysis.many_factory import Many
from tests.analysis.test_gate import SLEEPS, checked
from tests.conftest import Terminal
from tests.verbs.test_gate import session_folder

SLOWER = ExactSession(effect={"4k": -0.013, "thp": 0.0, "switch": 0.0})


def stored(
    folder: Path,
    day: int,
    session: ExactSession | Many,
    *,
    runs: int | None = None,
    broken: str = "",
) -> Path:
    records = session.records()
    records = (fails(records, broken, blame="series") if broken else records)[:runs]
    return on_disk(folder, session, records, created=f"2026-01-{day:02d}T08:00:00Z").folder


def test_each_line_is_what_its_report_exits_with_and_says(main: Terminal, tmp_path: Path) -> None:
    stored(tmp_path / "good", 1, ExactSession())
    stored(tmp_path / "slower", 4, SLOWER)
    stored(tmp_path / "panics", 3, ExactSession(), broken="filemap-4k-000-patched")
    stored(tmp_path / "half", 2, ExactSession(), runs=7)
    stored(tmp_path / "many", 5, Many())
    session_folder(tmp_path / "broken", checked("base"), checked("patched", SLEEPS), recorded=0)
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "manifest.json").write_text("{")
    assert main("sessions", tmp_path, "--json") == 0
    shown = json.loads(main.out)
    names = [Path(entry["folder"]).name for entry in shown]
    assert names == ["many", "slower", "panics", "half", "good", "broken", "torn"]
    for entry in shown[:-1]:
        code = main("report", entry["folder"], "--form", "json")
        report = json.loads(main.out)
        assert entry["exit_code"] == code
        judged = [
            (m["case"], m["name"], m["judgement"]["verdict"])
            for pair in report["comparisons"]
            for case in pair["cases"]
            for m in case["metrics"]
            if m["primary"]
        ]
        assert [(m["case"], m["metric"], m["verdict"]) for m in entry["primary"]] == judged
    assert {Path(entry["folder"]).name: entry["exit_code"] for entry in shown} == {
        "many": shown[0]["exit_code"],
        "slower": 1,
        "panics": 4,
        "half": 3,
        "good": 0,
        "broken": 4,
        "torn": None,
    }
    assert shown[-1]["problem"]
    assert shown[0]["primary"][0]["line"].startswith("vanilla -> sleepy: filemap-4k")


def test_the_newest_few_and_the_rest(main: Terminal, tmp_path: Path) -> None:
    assert main("sessions", tmp_path) == 0
    assert (main.out, main.err) == ("", f"no session in {tmp_path}\n")
    assert main("report", "latest") == 2
    assert "there is no session yet" in main.err
    stored(tmp_path / "slower", 2, SLOWER)
    stored(tmp_path / "good", 1, ExactSession())
    assert main("sessions", tmp_path, "--limit", "1") == 0
    lines = main.out.splitlines()
    assert lines[0].startswith("2026-01-02 08:00  exit 1  slower  1 regression, ")
    assert [line.split()[:2] for line in lines[1:]] == [
        ["filemap-4k", "4k.bw"],
        ["filemap-thp", "thp.bw"],
        ["filemap-thp", "switch.bw"],
    ]
    assert main.err.startswith("1 older ")
    assert main("report", "latest", "--form", "summary") == 1
    assert main("report", "lates") == 2
    assert "next: the nearest: latest" in main.err
    assert main("report", "good", "--write", "--form", "summary") == 0
    assert (tmp_path / "good" / "report.html").exists()


def test_what_reaches_no_verdict_is_not_read(
    main: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large session it took gigabytes and most of a minute."""
    store = on_disk(tmp_path / "slower", SLOWER, ())
    profiles = {profile.run_id: [profile] for profile in counts_factory.profiles(SLOWER)}
    for record in SLOWER.records():
        store.append(record, *profiles.get(record.run_id, ()))
    assert store.profiles()
    main("sessions", tmp_path, "--json")
    shown = main.out
    assert json.loads(shown)[0]["exit_code"] == 1

    read = SessionStore.profiles

    def of_judged(store: SessionStore, of: Collection[str] | None = None) -> list[Profile]:
        """The functions of the judged runs say what was tested, and nothing else is read."""
        assert of is not None
        assert not any("repeat" in run_id for run_id in of)
        return read(store, of)

    def unread(store: SessionStore) -> None:
        raise AssertionError("read")

    monkeypatch.setattr(SessionStore, "profiles", of_judged)
    monkeypatch.setattr(SessionStore, "locks", unread)
    main("sessions", tmp_path, "--json")
    assert main.out == shown
