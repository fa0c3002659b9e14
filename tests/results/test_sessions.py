from __future__ import annotations

from pathlib import Path

import pytest

from results.session import heads_in, named_session
from results.store import SessionStore
from tests.analysis.factory import ExactSession


def begun(folder: Path, created: str) -> Path:
    manifest = ExactSession().manifest().model_copy(update={"created": created})
    SessionStore(folder).create(manifest)
    return folder


def test_newest_first_and_what_cannot_be_read_last(tmp_path: Path) -> None:
    for name, created in (("b", "2026-01-02T00:00:00Z"), ("c", "2026-01-01T00:00:00Z"),
                          ("a", "2026-01-03T00:00:00Z")):  # fmt: skip
        begun(tmp_path / name, created)
    (tmp_path / "z").mkdir()
    (tmp_path / "z" / "manifest.json").write_bytes(b"\xff{")
    (tmp_path / "no session").mkdir()
    heads = heads_in(tmp_path)
    assert [head.folder.name for head in heads] == ["a", "b", "c", "z"]
    assert [bool(head.problem) for head in heads] == [False, False, False, True]
    assert heads_in(tmp_path / "nowhere") == ()


def test_a_session_by_path_by_name_or_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions, here = tmp_path / "sessions", tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert named_session(Path("latest"), sessions) is None
    begun(sessions / "old", "2026-01-02T00:00:00Z")
    begun(sessions / "new", "2026-01-03T00:00:00Z")
    assert named_session(Path("latest"), sessions) == sessions / "new"
    assert named_session(Path("old"), sessions) == sessions / "old"
    assert named_session(Path("other"), sessions) == Path("other")
    assert named_session(tmp_path / "x", sessions) == tmp_path / "x"
    # What is here comes first.
    begun(here / "latest", "2026-01-01T00:00:00Z")
    assert named_session(Path("latest"), sessions) == Path("latest")
