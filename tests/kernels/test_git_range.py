"""Repositories that somebody else owns, and clones that have not all of one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from errors import UsageError
from host.process import run
from kernels.git_range import run_git, series_of, tree_at, write_patches
from kernels.source import identify, unpack
from tests.kernels.posting import git

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


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """Five commits of a tree that is a kernel's by its names, to be cloned in part."""
    folder = tmp_path / "full"
    (folder / "mm").mkdir(parents=True)
    (folder / "lib").mkdir()
    for name in ("Makefile", "Kconfig"):
        (folder / name).write_text(f"{name}\n")
    git(folder, "init", "-q", "-b", "main")
    for number in range(5):
        (folder / "mm/x.c").write_text(f"int x = {number};\n")
        (folder / f"lib/{number}.c").write_text(f"int y = {number};\n")
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", f"number {number}")
    for key in ("uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"):
        git(folder, "config", key, "true")
    return folder


def clone(full: Path, name: str, *options: str) -> Path:
    place = full.with_name(name)
    git(full, "clone", "-q", *options, f"file://{full}", str(place))
    return place


def patches(place: Path, words: str, tmp_path: Path) -> list[str]:
    into = tmp_path / f"patches-{words.replace('/', '-')}-{place.name}"
    into.mkdir(exist_ok=True)
    write_patches(f"git:{place}@{words}", into, checkout=tmp_path)
    return [path.name for path in sorted(into.iterdir())]


def missing(place: Path) -> int:
    listing = run_git(place, "rev-list", "--objects", "--all", "--missing=print").stdout
    return sum(line.startswith("?") for line in listing.splitlines())


@pytest.mark.parametrize("option", ["--no-checkout", "--sparse"])
def test_a_partial_clone_names_the_command_that_fetches_and_fetches_nothing(
    full: Path, tmp_path: Path, option: str
) -> None:
    place = clone(full, "partial", "--filter=blob:none", option)
    before = missing(place)
    assert before > 0
    with pytest.raises(UsageError, match="a partial clone without") as error:
        patches(place, "HEAD~2..HEAD", tmp_path)
    assert missing(place) == before
    run(["sh", "-c", error.value.next_step], timeout_s=60)
    assert patches(place, "HEAD~2..HEAD", tmp_path) == [
        "0001-number-3.patch", "0002-number-4.patch",
    ]  # fmt: skip


def test_one_command_fetches_what_series_and_source_need(full: Path, tmp_path: Path) -> None:
    place = clone(full, "partial", "--filter=blob:none", "--no-checkout")
    with pytest.raises(UsageError, match="a partial clone without") as error:
        series_of(place, "HEAD~2..", base="", uncommitted=False, cache=tmp_path)
    run(["sh", "-c", error.value.next_step], timeout_s=60)
    series = series_of(place, "HEAD~2..", base="", uncommitted=False, cache=tmp_path)
    source = identify(series.source, checkout=tmp_path, cache=tmp_path)
    unpack(source, tmp_path / "tree")
    assert (tmp_path / "tree/lib/2.c").read_text() == "int y = 2;\n"
    assert patches(place, "HEAD~2..HEAD", tmp_path)


def test_a_source_in_a_partial_clone_is_not_fetched_file_by_file(
    full: Path, tmp_path: Path
) -> None:
    place = clone(full, "partial", "--filter=blob:none", "--no-checkout")
    before = missing(place)
    source = identify(f"git:{place}@HEAD", checkout=tmp_path, cache=tmp_path)
    with pytest.raises(UsageError, match="a partial clone without 8 of the files") as error:
        unpack(source, tmp_path / "tree")
    assert missing(place) == before
    run(["sh", "-c", error.value.next_step], timeout_s=60)
    run(["rm", "-rf", str(tmp_path / "tree")], timeout_s=60)
    unpack(source, tmp_path / "tree")
    assert (tmp_path / "tree/mm/x.c").read_text() == "int x = 4;\n"


def test_a_range_that_a_shallow_clone_has_not(full: Path, tmp_path: Path) -> None:
    place = clone(full, "shallow", "--depth=2")
    assert patches(place, "HEAD~1..HEAD", tmp_path) == ["0001-number-4.patch"]
    with pytest.raises(UsageError, match="git does not know HEAD~3") as error:
        patches(place, "HEAD~3..HEAD", tmp_path)
    assert "fetch --deepen=1000" in error.value.next_step


def test_what_is_left_of_a_cut_history_is_no_series(full: Path, tmp_path: Path) -> None:
    git(full, "checkout", "-q", "-b", "topic", "main~3")
    for number in range(3):
        (full / "mm/topic.c").write_text(f"int t = {number};\n")
        git(full, "add", "-A")
        git(full, "commit", "-qm", f"topic {number}")
    place = clone(full, "shallow", "--depth=2", "--no-single-branch")
    with pytest.raises(UsageError, match="in common in this shallow clone") as error:
        patches(place, "origin/main..origin/topic", tmp_path)
    assert "fetch --deepen=1000" in error.value.next_step
    git(place, "fetch", "-q", "--unshallow")
    names = patches(place, "origin/main..origin/topic", tmp_path)
    assert names == [f"000{number + 1}-topic-{number}.patch" for number in range(3)]


def test_a_sparse_checkout_is_a_tree_and_no_folder_of_a_source(full: Path, tmp_path: Path) -> None:
    place = clone(full, "sparse", "--sparse")
    git(place, "sparse-checkout", "set", "--no-cone", "/mm/")
    assert not (place / "Makefile").exists()
    assert tree_at(place / "mm") == place
    series = series_of(place, "HEAD~1..", base="", uncommitted=False, cache=tmp_path)
    unpack(identify(series.source, checkout=tmp_path, cache=tmp_path), tmp_path / "tree")
    assert (tmp_path / "tree/lib/3.c").exists()
    with pytest.raises(UsageError, match="a sparse checkout") as error:
        identify(f"dir:{place}", checkout=tmp_path, cache=tmp_path)
    assert f"git:{place}@HEAD" in error.value.next_step
