"""Where what is asked is done: every verb that builds or boots takes an executor."""

from __future__ import annotations

from pathlib import Path

import pytest

import lab

SERIES = "configs/series/slow-add-16"


@pytest.mark.parametrize(
    "asked",
    [
        ("build", "noop"),
        ("run", "noop", "--set", "guest=smoke"),
        ("bisect", "--series", SERIES, "--workloads", "filemap-4k", "--metric", "4k.bw"),
    ],
    ids=lambda asked: asked[0],
)
def test_a_scheduler_that_is_not_there_ends_every_verb_alike(
    asked: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TWINBOOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("fleet.configured.CONNECT_S", 0.5)
    folder = () if asked[0] == "build" else ("--session", str(tmp_path / "session"))
    assert lab.main([*asked, *folder, "--executor", "dask://127.0.0.1:1"]) == 3
    assert "no scheduler answers" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["build", "run", "measure", "bisect", "repro"])
def test_an_unknown_executor_is_refused_with_the_known_ones(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TWINBOOT_CACHE", str(tmp_path / "cache"))
    rest = {
        "repro": ("--check", str(tmp_path / "none.tar.gz")),
        "bisect": ("--resume", str(tmp_path / "none")),
        "build": ("noop",),
    }.get(verb, ("noop", "--session", str(tmp_path / "session")))
    if verb == "bisect":
        (tmp_path / "none").mkdir()
        (tmp_path / "none" / "bisect.json").write_text("{}")
    assert lab.main([verb, *rest, "--executor", "ray://x"]) == 2
    said = capsys.readouterr().err
    assert "unknown executor 'ray://x'" in said
    assert "dask-jobqueue:NAME" in said
