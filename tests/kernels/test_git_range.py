"""Repositories that somebody else owns."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from errors import UsageError
from host.process import run
from kernels.git_range import run_git

STRANGER = 65_534


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """With a setting that has git run a program, as its owner may leave there."""
    folder = tmp_path / "repository"
    folder.mkdir()
    run(["git", "init", "-q", str(folder)], timeout_s=60)
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/canary\n")
    program.chmod(0o755)
    run(["git", "-C", str(folder), "config", "core.fsmonitor", str(program)], timeout_s=60)
    return folder


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a repository to somebody")
def test_the_settings_of_somebody_elses_repository_are_not_read(
    repository: Path, tmp_path: Path
) -> None:
    for path in (repository, *repository.rglob("*")):
        os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
    with pytest.raises(UsageError, match="somebody else owns"):
        run_git(repository, "status", check=False)
    assert not (tmp_path / "canary").exists()


def test_ones_own_are(repository: Path, tmp_path: Path) -> None:
    assert run_git(repository, "status").returncode == 0
    assert (tmp_path / "canary").exists()
