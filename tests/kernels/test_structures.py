"""A few files of a kernel compiled again for their types."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kernels import btf

PAGES = "struct page { unsigned long flags; void *mapping; } first;\n"


@pytest.fixture
def objects(tmp_path: Path) -> Path:
    """Objects as kbuild leaves them, each with the command that made it."""
    source = tmp_path / "src"
    objects = source / "obj"
    for name, text in {"mm/slub": PAGES, "lib/xarray": "int broken(;\n"}.items():
        folder, _, stem = name.rpartition("/")
        (source / folder).mkdir(parents=True)
        (objects / folder).mkdir(parents=True)
        (source / f"{name}.c").write_text(text)
        (objects / folder / f".{stem}.o.cmd").write_text(
            f"savedcmd_{name}.o := gcc -Wp,-MMD,{folder}/.{stem}.o.d -O2 -DNAME='\"a b\"'"
            f" -c -o {name}.o ../{name}.c ; ./tools/objtool/objtool {name}.o\n\n"
            f"source_{name}.o := ../{name}.c\n"
        )
    return objects


def test_what_compiles_has_its_types_and_nothing_else_is_touched(objects: Path) -> None:
    before = {path: path.read_bytes() for path in objects.rglob("*") if path.is_file()}
    done = subprocess.run(
        ["sh", "-c", btf.script(objects, "obj")],
        cwd=objects.parent, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0
    assert "broken" in done.stderr
    ((name, content),) = btf.collected(objects)
    assert name == "slub.btf"
    assert btf.Types([content]).member_at("page", 8) == "mapping"
    after = {path: path.read_bytes() for path in objects.rglob("*") if path.is_file()}
    assert {path.name for path in after.keys() - before.keys()} == {"twinboot-types-slub.o"}
    assert before.items() <= after.items()


def test_a_compiler_that_writes_none_leaves_none(objects: Path) -> None:
    record = objects / "mm/.slub.o.cmd"
    record.write_text(record.read_text().replace("gcc", "gcc -gno-btf -g0"))
    (objects / "twinboot-types-old.o").write_bytes(b"no object")
    assert list(btf.collected(objects)) == []


def test_objects_without_these_files_have_nothing_to_compile(tmp_path: Path) -> None:
    first, *clean, last = btf.script(tmp_path, "obj").split("\n")
    assert (first, last) == ("cd obj", "wait")
    assert all(line.startswith("rm ") for line in clean)


def test_types_of_another_kernel_are_not_left(objects: Path) -> None:
    argv = ["sh", "-c", btf.script(objects, "obj")]
    subprocess.run(argv, cwd=objects.parent, check=True, capture_output=True, timeout=60)
    assert len(list(btf.collected(objects))) == 1
    (objects.parent / "mm/slub.c").write_text("int broken(;\n")
    subprocess.run(argv, cwd=objects.parent, check=True, capture_output=True, timeout=60)
    assert list(btf.collected(objects)) == []
