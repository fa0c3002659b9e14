"""What is known of a QEMU: its release, a trial of its binary, and what is remembered."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from errors import InfraError
from host import doctor, exactness, facts, packages
from host.exactness import KnownRelease, Trial, judged, remember, shipped, standing, trials

QEMU = "qemu-system-x86_64"
KNOWN = (
    KnownRelease(QEMU, "7.2", "1, 4", "tests"),
    KnownRelease("qemu-system-aarch64", "8.0", "1", "tests"),
)
TRIAL = Trial("8.2.2", "ab" * 32, "cd" * 32, "2026-01-02", (1, 4))


@pytest.fixture
def qemu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A QEMU of no release that was run, alone on PATH but for what starts it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("setpriv", "sh"):
        (folder / name).symlink_to(packages.locate(name) or "")
    program = folder / QEMU
    program.write_text("#!/bin/sh\necho 'QEMU emulator version 8.2.2 (Other 1:8.2.2)'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(packages, "SYSTEM_FOLDERS", ())
    return program


def trial_of(program: Path, *differences: str) -> Trial:
    binary = hashlib.sha256(program.read_bytes()).hexdigest()
    preload = hashlib.sha256(exactness.PRELOAD.read_bytes()).hexdigest()
    return replace(
        TRIAL, binary_sha256=binary, preload_sha256=preload, differences=tuple(differences)
    )


@pytest.mark.parametrize(
    ("program", "version", "status"),
    [
        (QEMU, "7.2.22 (Debian 1:7.2)", "known"),
        (QEMU, "7.2", "known"),
        (QEMU, "7.20.1", "untried"),
        (QEMU, "8.0.4", "untried"),
        ("qemu-system-aarch64", "8.0.4", "known"),
        ("qemu-system-aarch64", "7.2.22", "untried"),
        (QEMU, "not found", "untried"),
    ],
)
def test_a_release_stands_for_its_patch_releases(program: str, version: str, status: str) -> None:
    assert judged(program, version, "ab" * 32, KNOWN, None).status == status


def test_a_trial_counts_for_more_than_the_release() -> None:
    differs = replace(TRIAL, version="7.2.22", differences=("4 vCPUs: 4k/vmstat: line 3", "more"))
    judgement = judged(QEMU, "7.2.22", "ab" * 32, KNOWN, differs)
    assert judgement.status == "inexact"
    assert "4k/vmstat: line 3 (and 1 more)" in judgement.text
    assert "2026-01-02" in judgement.text
    assert judged(QEMU, "8.2.2", "ab" * 32, KNOWN, TRIAL).status == "exact"


def test_a_trial_is_remembered_by_binary_and_by_what_is_loaded_into_it(
    qemu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert standing(tmp_path).status == "untried"
    remember(tmp_path, trial_of(qemu))
    remember(tmp_path, TRIAL)
    assert standing(tmp_path).status == "exact"
    assert len(trials(tmp_path)) == 2
    # The lab's side of it changed, which may mend or break it.
    (tmp_path / "preload.c").write_text("int other;\n")
    with monkeypatch.context() as changed:
        changed.setattr(exactness, "PRELOAD", tmp_path / "preload.c")
        assert standing(tmp_path).status == "untried"
    remember(tmp_path, trial_of(qemu, "1 vCPUs: 4k/vmstat: line 1"))
    assert standing(tmp_path).status == "inexact"
    qemu.write_text(qemu.read_text() + "# rebuilt\n")
    assert standing(tmp_path).status == "untried"


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a": 1}', '{"a": {"version": "1"}}'])
def test_a_damaged_memory_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / exactness.TRIALS).write_text(text)
    assert trials(tmp_path) == {}
    remember(tmp_path, TRIAL)
    assert list(trials(tmp_path).values()) == [TRIAL]


def test_doctor_says_what_is_known(qemu: Path, tmp_path: Path) -> None:
    check = doctor.check_exactness(tmp_path)
    assert (check.status, check.mend) == ("warn", "./lab.py doctor --exact")
    remember(tmp_path, trial_of(qemu))
    check = doctor.check_exactness(tmp_path)
    assert check.status == "ok"
    assert "QEMU 8.2.2" in check.found
    remember(tmp_path, trial_of(qemu, "4 vCPUs: 4k/vmstat: line 1"))
    assert doctor.check_exactness(tmp_path).status == "fail"
    qemu.unlink()
    assert doctor.check_exactness(tmp_path).status == "fail"


def test_guests_that_differ_are_not_measured_in(qemu: Path, tmp_path: Path) -> None:
    exactness.require_exact(standing(tmp_path))
    remember(tmp_path, trial_of(qemu, "4 vCPUs: 4k/vmstat: line 1"))
    with pytest.raises(InfraError, match="boots differed") as caught:
        exactness.require_exact(standing(tmp_path))
    assert "doctor --exact" in caught.value.next_step


def test_the_shipped_table_is_read_and_a_bad_line_is_named() -> None:
    assert {each.program for each in shipped()} == {QEMU, "qemu-system-aarch64"}
    assert all(len(each.release.split(".")) == 2 for each in shipped())
    with pytest.raises(InfraError, match=r"qemu.txt:2"):
        shipped("# comment\nqemu | 7.2 | 1\n")


def test_the_documented_table_is_the_shipped_one() -> None:
    text = (facts.CHECKOUT / "docs" / "systems.md").read_text()
    for each in shipped():
        assert f"| {each.release} | `{each.program}` | {each.vcpus} | {each.what} |" in text
