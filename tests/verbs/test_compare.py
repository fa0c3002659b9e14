"""``compare`` from the command line: exit codes, and what is on which stream."""

import json
import logging
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import lab
from results.session import MeasuredSession
from results.store import SessionStore
from tests.analysis.test_two_sessions import FIRST, SLOWER, guest, other_series, session
from tests.values import but

Main = Callable[..., int]


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Main]:
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    monkeypatch.setattr("verbs.options.SESSIONS", tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    yield lambda *arguments: lab.main(list(arguments))
    signal.signal(signal.SIGTERM, before)


def stored(folder: Path, kept: MeasuredSession, created: str) -> Path:
    store = SessionStore(folder)
    store.create(but(kept.manifest, created=created))
    for record in kept.records:
        store.append(record)
    return folder


def test_the_exit_code_is_the_verdicts_and_nothing_is_written(
    main: Main, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(tmp_path / "one", session(FIRST), "2026-01-01T00:00:00Z")
    stored(tmp_path / "two", other_series(SLOWER), "2026-01-02T00:00:00Z")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert main("compare", "one", "latest") == 1
    assert "4k.bw, virtual MiB/s" in capsys.readouterr().out
    assert main("compare", "latest", "one") == 0
    assert main("compare", "one", "one") == 0
    capsys.readouterr()
    assert main("compare", "one", "two", "--json") == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["differences"][0]["name"] == "patched: kernel"
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_what_is_not_comparable_is_shown_and_no_verdict(
    main: Main, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(tmp_path / "one", session(FIRST), "2026-01-01T00:00:00Z")
    other = session(SLOWER, **guest(SLOWER.manifest()))
    stored(tmp_path / "two", other, "2026-01-02T00:00:00Z")
    assert main("compare", "one", "two") == 2
    shown = capsys.readouterr()
    assert "guest: vcpus: 1, then 4" in shown.out
    assert "259.019" in shown.out
    assert "regression" not in shown.out
    assert "not comparable" in shown.err
    assert main("compare", "one", "nowhere") == 2


def test_a_session_that_is_not_finished_is_not_compared(
    main: Main, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = session(FIRST)
    stored(tmp_path / "one", whole, "2026-01-01T00:00:00Z")
    half = SessionStore(tmp_path / "half")
    half.create(whole.manifest)
    half.append(whole.records[0])
    for names in (("one", "half"), ("half", "one"), ("one", "half", "--json")):
        assert main("compare", *names) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert f"next: ./lab.py run --resume {tmp_path / 'half'}" in shown.err
