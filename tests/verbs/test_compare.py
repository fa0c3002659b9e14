"""``compare`` from the command line: exit codes, and what is on which stream."""

import json
from pathlib import Path

from results.session import MeasuredSession
from results.store import SessionStore
from tests.analysis.test_two_sessions import FIRST, HEAD, SLOWER, other_series, session
from tests.conftest import Terminal
from tests.values import but


def stored(folder: Path, kept: MeasuredSession, created: str) -> None:
    store = SessionStore(folder)
    store.create(but(kept.manifest, created=created))
    for record in kept.records:
        store.append(record)


def test_the_exit_code_is_the_verdicts_and_nothing_is_written(
    main: Terminal, tmp_path: Path
) -> None:
    stored(tmp_path / "one", session(FIRST), "2026-01-01T00:00:00Z")
    stored(tmp_path / "two", other_series(SLOWER), "2026-01-02T00:00:00Z")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert main("compare", "one", "latest") == 1
    assert "4k.bw, virtual MiB/s" in main.out
    assert main("compare", "latest", "one") == 0
    assert main("compare", "one", "one") == 0
    assert main("compare", "one", "two", "--json") == 1
    shown = json.loads(main.out)
    assert shown["differences"][0]["name"] == "patched: kernel"
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_what_is_not_comparable_is_shown_and_no_verdict(main: Terminal, tmp_path: Path) -> None:
    stored(tmp_path / "one", session(FIRST), "2026-01-01T00:00:00Z")
    other = session(SLOWER, guest=but(HEAD.guest, vcpus=4))
    stored(tmp_path / "two", other, "2026-01-02T00:00:00Z")
    assert main("compare", "one", "two") == 2
    assert "guest: vcpus: 1, then 4" in main.out
    assert "259.019" in main.out
    assert "regression" not in main.out
    assert "not comparable" in main.err
    assert main("compare", "one", "nowhere") == 2


def test_a_session_that_is_not_finished_is_not_compared(main: Terminal, tmp_path: Path) -> None:
    whole = session(FIRST)
    stored(tmp_path / "one", whole, "2026-01-01T00:00:00Z")
    half = SessionStore(tmp_path / "half")
    half.create(whole.manifest)
    half.append(whole.records[0])
    for names in (("one", "half"), ("half", "one"), ("one", "half", "--json")):
        assert main("compare", *names) == 2
        assert main.out == ""
        assert f"next: ./lab.py run --resume {tmp_path / 'half'}" in main.err
