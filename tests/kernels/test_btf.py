"""Types of structures: what a byte is a member of, against what the compiler says of it."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import InfraError
from kernels import btf, symbols
from tests.values import data, script
from tests.waiting import completed

SOURCE = data(__file__, "source")


def types_of(source: str, folder: Path) -> bytes:
    """BTF of a C source, by the host's gcc."""
    (folder / "a.c").write_text(source)
    subprocess.run(
        ["gcc", "-O2", "-gbtf", "-c", "-o", "a.o", "a.c"], cwd=folder, check=True, timeout=300
    )
    sections = symbols.read(folder / "a.o").sections
    return next(each.data for each in sections if each.name == ".BTF")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return types_of(SOURCE, tmp_path_factory.mktemp("btf"))


def measured(tmp_path: Path, *expressions: str) -> list[int]:
    """What the compiler computes, which reads no BTF."""
    prints = "".join(f'printf("%zu\\n", (unsigned long)({each}));' for each in expressions)
    text = f"#include <stddef.h>\n#include <stdio.h>\n{SOURCE}\nint main(void) {{ {prints} }}\n"
    (tmp_path / "b.c").write_text(text)
    subprocess.run(["gcc", "-o", "b", "b.c"], cwd=tmp_path, check=True, timeout=300)
    done = completed([tmp_path / "b"])
    return [int(line) for line in done.stdout.split()]


def test_sizes_and_offsets_are_the_compilers(written: bytes, tmp_path: Path) -> None:
    types = btf.Types([written])
    members = ("kind", "count", "lru", "unnamed_three", "data", "more", "state", "real")
    offsets = measured(tmp_path, *(f"offsetof(struct outer, {name})" for name in members))
    assert [types.offset("outer", name) for name in members] == offsets
    assert [types.size("outer"), types.size("inner")] == measured(
        tmp_path, "sizeof(struct outer)", "sizeof(struct inner)"
    )
    assert types.offset("outer", "nonesuch") is None
    assert (types.offset("nonesuch", "kind"), types.size("nonesuch")) == (None, None)


@pytest.mark.parametrize(
    ("place", "further", "name"), data(__file__, "a_byte_has_the_name_of_its_member")
)
def test_a_byte_has_the_name_of_its_member(
    written: bytes, tmp_path: Path, place: str, further: int, name: str
) -> None:
    (offset,) = measured(tmp_path, f"offsetof(struct outer, {place})")
    assert btf.Types([written]).member_at("outer", offset + further) == name


def test_holes_and_what_is_outside_have_no_name(written: bytes) -> None:
    types = btf.Types([written])
    size = types.size("outer")
    assert size is not None
    names = [types.member_at("outer", at) for at in (2, 3, -1, size, size + 7)]
    assert names == [""] * 5
    assert types.member_at("nonesuch", 0) == ""


def test_of_several_files_the_first_that_knows_a_structure_counts(written: bytes) -> None:
    assert btf.Types([written, written]).member_at("tree", 4) == "flags"
    assert btf.Types([]).size("tree") is None


@given(st.data())
def test_a_damaged_file_is_refused_or_read_to_its_end(written: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(written) - 1))
    damaged = bytearray(written)
    damaged[at] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.sampled_from((len(damaged), at)))
    try:
        types = btf.Types([bytes(damaged[:cut])])
    except ValueError:
        return
    for offset in range(0, 200, 3):
        assert isinstance(types.member_at("outer", offset), str)
    types.offset("outer", "real")


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "slub.btf"
    path.write_bytes(b"no types")
    with pytest.raises(InfraError) as caught:
        btf.load((path,))
    assert caught.value.where == str(tmp_path)
    with pytest.raises(InfraError) as caught:
        btf.load((path, tmp_path / "nonesuch.btf"))
    assert caught.value.where == str(tmp_path / "nonesuch.btf")


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
    done = completed(["sh", "-c", btf.script(objects, "obj")], cwd=objects.parent)
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


def test_types_are_compiled_where_ccache_has_no_home(objects: Path) -> None:
    record = objects / "mm/.slub.o.cmd"
    record.write_text(record.read_text().replace(":= gcc", ":= ccache gcc"))
    # As in a box, where it finds no home: it ends without compiling.
    script(objects / "ccache", "exit 1")
    argv = ["sh", "-c", btf.script(objects, "obj")]
    env = {"PATH": f"{objects}:{os.environ['PATH']}"}
    subprocess.run(argv, cwd=objects.parent, env=env, capture_output=True, timeout=300)
    assert [name for name, _ in btf.collected(objects)] == ["slub.btf"]


def test_types_of_another_kernel_are_not_left(objects: Path) -> None:
    argv = ["sh", "-c", btf.script(objects, "obj")]
    subprocess.run(argv, cwd=objects.parent, check=True, capture_output=True, timeout=300)
    assert len(list(btf.collected(objects))) == 1
    (objects.parent / "mm/slub.c").write_text("int broken(;\n")
    subprocess.run(argv, cwd=objects.parent, check=True, capture_output=True, timeout=300)
    assert list(btf.collected(objects)) == []
