from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from host.errors import InfraError
from kernels.toolchain import FIXED, Toolchain, identify, make_argv


def asked(toolchain: Toolchain, folder: Path, *targets: str) -> str:
    argv = make_argv(toolchain, "obj", targets, ccache_folder=folder / "ccache")
    return subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "Makefile").write_text("show:\n\t@echo O=$(O) CC=$(CC) K=$(KCFLAGS); env\n")
    return tmp_path


def test_identity_is_compiler_and_linker() -> None:
    toolchain = identify()
    assert toolchain.compiler.startswith("gcc ")
    assert "ld" in toolchain.linker
    assert "\n" not in toolchain.identity


def test_missing_compiler_is_the_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfraError):
        identify()


def test_make_sees_nothing_of_the_callers_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KCFLAGS", "MAKEFLAGS", "ARCH", "CROSS_COMPILE", "HOME", "LANG"):
        monkeypatch.setenv(name, "foreign")
    said = asked(Toolchain("gcc", "ld", ccache=True), folder, "show")
    assert "foreign" not in said
    assert "O=obj CC=ccache gcc K=\n" in said
    assert f"CCACHE_DIR={folder}/ccache\n" in said
    for name, value in FIXED.items():
        assert f"{name}={value}\n" in said


def test_without_ccache_the_compiler_is_the_trees_own(folder: Path) -> None:
    assert "ccache" not in asked(Toolchain("gcc", "ld", ccache=False), folder, "show").split()[1]
