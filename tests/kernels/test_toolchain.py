from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from errors import InfraError
from experiment.architecture import ARM64
from kernels.build import provide
from kernels.toolchain import (
    FIXED,
    LLVM_TOOLS,
    Family,
    Toolchain,
    environment,
    identify,
    make_argv,
)
from tests.kernels.fake import Lab


def output_of(toolchain: Toolchain, folder: Path, *targets: str) -> str:
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


def test_missing_clang_names_the_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfraError) as caught:
        identify("clang")
    assert caught.value.what.startswith("not installed: clang, ld.lld, llvm-ar")
    assert caught.value.next_step == "apt-get install --no-install-recommends clang lld llvm"


def test_missing_cross_compiler_names_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfraError) as caught:
        identify("gcc", ARM64)
    assert caught.value.what == "not installed: aarch64-linux-gnu-gcc"
    assert caught.value.next_step == (
        "apt-get install --no-install-recommends gcc-aarch64-linux-gnu"
    )


@pytest.mark.parametrize("family", ["gcc", "clang"])
def test_make_gets_the_architecture(folder: Path, family: Family) -> None:
    (folder / "Makefile").write_text("show:\n\t@echo $(ARCH) $(CROSS_COMPILE) $(LLVM) $(CC)\n")
    compiler = {"gcc": "aarch64-linux-gnu-gcc", "clang": "1 ccache clang"}[family]
    output = output_of(Toolchain("", "", True, family, ARM64), folder, "show")
    words = ["arm64", "aarch64-linux-gnu-", *compiler.split()]
    assert output.split() == (words if family == "clang" else [*words[:2], "ccache", words[2]])
    assert "ARCH=" not in make_argv(Toolchain("", "", True, family), "obj", [], ccache_folder="c")


def tools(folder: Path) -> Path:
    """Programs with the names of LLVM's that pass on to those of gcc and binutils."""
    folder.mkdir()
    behind = {"clang": "gcc", "ld.lld": "ld"} | {name: name[5:] for name in LLVM_TOOLS}
    for name, other in behind.items():
        answer = f'[ "$1" = --version ] && echo {name} version 99 && exit'
        # ccache asks a compiler called clang for colours in clang's way.
        words = 'for word; do shift; [ "$word" = -fcolor-diagnostics ] || set -- "$@" "$word"; done'
        (folder / name).write_text(f'#!/bin/sh\n{answer}\n{words}\nexec {other} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


def test_clang_is_another_kernel(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gcc = provide(lab.spec, [], **lab.where)
    monkeypatch.setenv("PATH", f"{tools(tmp_path / 'bin')}:{os.environ['PATH']}")
    spec = lab.spec.model_copy(update={"compiler": "clang"})
    clang = provide(spec, [], **lab.where)
    assert clang.identity.compiler == "clang version 99; ld.lld version 99"
    assert clang.identity.key != gcc.identity.key
    assert clang.identity.code_key == gcc.identity.code_key  # gcc is behind both
    log = clang.build_log.read_text()
    assert " LLVM=1 " in log
    assert "CC=ccache gcc" not in log
    assert "LLVM=1" not in gcc.build_log.read_text()
    assert provide(lab.spec, [], **lab.where) == gcc


def test_make_sees_nothing_of_the_callers_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KCFLAGS", "MAKEFLAGS", "ARCH", "CROSS_COMPILE", "HOME", "LANG"):
        monkeypatch.setenv(name, "foreign")
    output = output_of(Toolchain("gcc", "ld", ccache=True), folder, "show")
    assert "foreign" not in output
    assert "O=obj CC=ccache gcc K=\n" in output
    assert f"CCACHE_DIR={folder}/ccache\n" in output
    for name, value in FIXED.items():
        assert f"{name}={value}\n" in output


def test_without_ccache_the_compiler_is_the_trees_own(folder: Path) -> None:
    assert (
        "ccache" not in output_of(Toolchain("gcc", "ld", ccache=False), folder, "show").split()[1]
    )


def test_a_file_that_an_object_includes_whole_is_read_each_time(tmp_path: Path) -> None:
    """As piggy.S includes the compressed kernel: of one size, with another content."""
    (tmp_path / "piggy.S").write_text('.globl data\ndata:\n.incbin "kernel.lz4"\n')
    argv = ["ccache", "gcc", "-Wp,-MMD,.piggy.o.d", "-D__ASSEMBLY__", "-c", "piggy.S", "-o"]
    env = environment(tmp_path / "ccache")
    for content in (b"first kernel", b"other kernel", b"other kernel"):
        (tmp_path / "kernel.lz4").write_bytes(content)
        subprocess.run([*argv, "piggy.o"], cwd=tmp_path, env=env, check=True, timeout=60)
        assert content in (tmp_path / "piggy.o").read_bytes()
