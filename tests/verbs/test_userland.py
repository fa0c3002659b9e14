"""The verbs for guests' programs, from one cache to another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import lab
from guests import userland

pytestmark = pytest.mark.slow


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TWINBOOT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_what_is_exported_here_is_imported_there_and_forgotten_again(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = str(tmp_path / "userland.tar.gz")
    assert lab.main(["userland", "export", archive]) == 0
    key = capsys.readouterr().out.strip()
    other = tmp_path / "other"
    monkeypatch.setenv("TWINBOOT_CACHE", str(other))
    assert lab.main(["userland", "import", archive, "--key", "0" * 64]) == 2
    assert userland.in_use(other) is None
    assert lab.main(["userland", "import", archive, "--key", key]) == 0
    capsys.readouterr()
    assert lab.main(["userland", "show", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["key"], shown["imported"]) == (key, True)
    assert set(shown["tools"]) == set(userland.TOOLS)
    assert lab.main(["userland", "forget"]) == 0
    assert userland.in_use(other) is None
    assert userland.in_use(cache) is None


@pytest.mark.parametrize("text", ["", "no archive"])
def test_a_file_that_is_no_userland_is_the_users_mistake(
    cache: Path, tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    assert lab.main(["userland", "import", str(file)]) == 2
    file.write_text(text)
    assert lab.main(["userland", "import", str(file)]) == 2
    assert "userland export" in capsys.readouterr().err
