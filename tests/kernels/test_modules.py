from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from errors import InfraError, UsageError
from kernels import prebuilt
from tests.kernels import shipped


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shipped.modules_folder(tmp_path / "6.1.2-test")


def names(folder: Path) -> list[str]:
    return [prebuilt.plain(path.name) for path in prebuilt.chosen(folder)]


def test_only_what_is_needed_after_what_it_needs(folder: Path) -> None:
    assert names(folder) == ["qemu_fw_cfg", "brd", "libcrc32c", "xfs"]


def test_built_in_modules_are_not_loaded(folder: Path) -> None:
    for path in folder.rglob("*.ko*"):
        path.unlink()
    every = "".join(f"kernel/x/{need.name}.ko\n" for need in prebuilt.NEEDS)
    (folder / "modules.builtin").write_text(every.replace("qemu_fw_cfg", "qemu-fw-cfg"))
    assert names(folder) == []


def test_dependency_that_is_built_in_is_not_looked_for(folder: Path) -> None:
    next(folder.rglob("libcrc32c*")).unlink()
    with pytest.raises(InfraError, match="depends on libcrc32c, which is not there"):
        prebuilt.chosen(folder)
    with (folder / "modules.builtin").open("a") as builtin:
        builtin.write("kernel/lib/libcrc32c.ko\n")
    assert names(folder) == ["qemu_fw_cfg", "brd", "xfs"]


def test_module_that_is_required_and_nowhere(folder: Path) -> None:
    next(folder.rglob("brd*")).unlink()
    with pytest.raises(UsageError, match="no module brd: the workload's file system"):
        prebuilt.chosen(folder)


def test_file_system_may_be_missing(folder: Path) -> None:
    next(folder.rglob("xfs.ko*")).unlink()
    assert names(folder) == ["qemu_fw_cfg", "brd"]


def test_folder_without_a_list_of_what_is_built_in(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no folder of modules: it has no modules\.builtin"):
        prebuilt.chosen(tmp_path)


@pytest.mark.parametrize("ending", ["", ".xz", ".gz", ".zst"])
def test_unpacked_as_it_is_loaded(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.ko{ending}"
    data = shipped.module(path)
    assert data.startswith(b"\x7fELF")
    assert prebuilt.unpacked_module(path) == data
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("ending", [".xz", ".gz", ".zst"])
def test_damaged_module_is_named(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.ko{ending}"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(UsageError, match=rf"a\.ko{ending}: the module is damaged"):
        prebuilt.unpacked_module(path)


def test_file_that_is_no_module_is_named(folder: Path) -> None:
    (folder / "kernel/drivers/block/brd.ko.gz").write_bytes(gzip.compress(b"a text"))
    with pytest.raises(UsageError, match=r"brd\.ko\.gz: no module"):
        prebuilt.chosen(folder)


def test_modules_of_a_build_are_those_that_kbuild_lists() -> None:
    order = "lib/test_vmalloc.o\ndrivers/a-b.o\n"
    assert prebuilt.built(order) == ("lib/test_vmalloc.ko", "drivers/a-b.ko")
