from __future__ import annotations

import gzip
import subprocess
from pathlib import Path

import pytest

from errors import InfraError
from kernels import addresses, symbols
from kernels.addresses import Origin

# Two files of one name in two folders, each with a static function of one name.
SOURCES = {
    "mm/core.c": "static __attribute__((noipa)) int walk(int a) { return a + 1; }\n"
    "int mm(int a) { return walk(a); }\n__attribute__((weak)) int either(void) { return 1; }\n",
    "fs/core.c": "static __attribute__((noipa)) int walk(int a) { return a + 2; }\n"
    "int fs(int a) { return walk(a); }\nint either(void) { return 2; }\n",
    "fs/other.c": "static __attribute__((noipa)) int walk(int a) { return a + 3; }\n"
    "int other(int a) { return walk(a); }\n",
    "lib/low.S": ".globl low\n.type low, @function\nlow: ret\n.size low, .-low\n",
    "lib/unused.c": "int unused(void) { return 0; }\n",
    "start.c": "int mm(int), fs(int), other(int), low(void), either(void);\n"
    "int _start(void) { return mm(1) + fs(2) + other(3) + low() + either(); }\n",
}
FLAGS = ("-O2", "-fno-pic", "-ffreestanding", "-fno-asynchronous-unwind-tables")


def sh(*argv: object, cwd: Path) -> str:
    return subprocess.run(
        [*map(str, argv)], cwd=cwd, check=True, capture_output=True, text=True, timeout=60
    ).stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source tree with an object folder in it, linked as Linux links vmlinux."""
    source = tmp_path_factory.mktemp("linux")
    objects = source / "obj"
    for name, text in SOURCES.items():
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text(text)
        target = (objects / name).with_suffix(".o")
        target.parent.mkdir(parents=True, exist_ok=True)
        sh("gcc", *FLAGS, "-c", "-o", target, f"../{name}", cwd=objects)
    inside = ["start.o", "mm/core.o", "fs/core.o", "fs/other.o"]
    sh("ar", "cDPrST", "vmlinux.a", *inside, cwd=objects)
    sh("ar", "cDPrsT", "lib/lib.a", "lib/low.o", "lib/unused.o", cwd=objects)
    sh(
        "ld", "-o", "vmlinux", "--whole-archive", "vmlinux.a", "--no-whole-archive", "lib/lib.a",
        cwd=objects,
    )  # fmt: skip
    return source


def placed(source: Path) -> dict[str, set[str]]:
    """Name → files, of all the functions that were placed."""
    placed = addresses.collect(source / "obj", source)
    table: dict[str, set[str]] = {}
    for line in sh("nm", "vmlinux", cwd=source / "obj").splitlines():
        address, _, name = line.split()
        if int(address, 16) in placed:
            table.setdefault(name, set()).add(placed[int(address, 16)].file)
    return table


def test_every_function_has_its_file(built: Path) -> None:
    assert placed(built) == {
        "_start": {"start.c"},
        "mm": {"mm/core.c"},
        "fs": {"fs/core.c"},
        "other": {"fs/other.c"},
        "walk": {"mm/core.c", "fs/core.c", "fs/other.c"},
        "low": {"lib/low.S"},
        "either": {"fs/core.c"},
    }


def test_static_functions_of_one_name_are_not_mixed_up(built: Path) -> None:
    placed = addresses.collect(built / "obj", built)
    linked = symbols.read(built / "obj/vmlinux")
    text = next(section for section in linked.sections if section.name == ".text")
    # lea N(%rdi),%eax: the third byte is what each file's walk adds.
    adds = {
        placed[int(symbol["value"])].file: text.data[int(symbol["value"]) - text.address + 2]
        for symbol in linked.symbols
        if linked.name(int(symbol["name"])) == "walk"
    }
    assert adds == {"mm/core.c": 1, "fs/core.c": 2, "fs/other.c": 3}


def test_more_places_than_objects_are_left_out(built: Path) -> None:
    linked = symbols.read(built / "obj/vmlinux")
    built_from = addresses.built_from(linked, {"walk": ("mm/core.o",)}, {})
    # core.c has two in the image and one object here; other.c is of another name.
    assert [each.object for each in built_from.values()] == ["mm/core.o"]


def test_a_build_without_the_archive_has_no_origins(tmp_path: Path) -> None:
    assert addresses.collect(tmp_path, tmp_path) == {}


def test_an_object_without_a_source_is_named_itself(built: Path, tmp_path: Path) -> None:
    assert Origin("mm/core.o") in addresses.collect(built / "obj", tmp_path).values()


def test_saved_and_loaded(tmp_path: Path) -> None:
    table = {
        0xFFFFFFFF81000000: Origin("mm/filemap.c", 3), 0xFFFFFFFF81000010: Origin("lib/xarray.c"),
    }  # fmt: skip
    first, second = tmp_path / "one", tmp_path / "other"
    addresses.save(table, first)
    addresses.save(dict(reversed(table.items())), second)
    assert addresses.load(first) == table
    assert first.read_bytes() == second.read_bytes()


def test_every_function_has_the_line_of_its_definition(built: Path) -> None:
    names = {line.split()[2]: int(line.split()[0], 16)
             for line in sh("nm", "vmlinux", cwd=built / "obj").splitlines()}  # fmt: skip
    placed = addresses.collect(built / "obj", built)
    assert placed[names["mm"]] == Origin("mm/core.c", 2)
    assert placed[names["_start"]] == Origin("start.c", 2)


STYLE = """\
/* walk(a) { in a comment } */
static int walk(int a);
#define ADD(a) { a }

static __always_inline __printf(1, 2)
int walk(int a,
\t int (*call)(int b))
{
\treturn other(a) + 1;
}

SYSCALL_DEFINE2(mark, int, a,
\t\tint, b)
{
\treturn walk(a, b);
}

#ifdef CONFIG_TWO
static int either(void) { return 1; }
#else
static int either(void) { return 2; }
#endif
MADE_BY(macro);
struct table { int (*call)(void); };
struct table t = { .call = last };
struct page *last(void)
{ return 0; }
"""


def test_lines_are_of_definitions_and_of_those_alone() -> None:
    symbols = {
        "walk.isra.0", "other", "__x64_sys_mark", "__do_sys_mark", "either", "macro", "last",
        "ADD", "call",
    }  # fmt: skip
    assert addresses.definition_lines(STYLE, symbols) == {
        "walk.isra.0": 6, "__x64_sys_mark": 12, "__do_sys_mark": 12, "last": 26,
    }  # fmt: skip


def test_lines_of_assembly() -> None:
    text = "SYM_TYPED_FUNC_START(__memcpy)\n\tret\nSYM_FUNC_START_LOCAL(memcpy_orig)\n"
    assert addresses.definition_lines(text, {"__memcpy", "memcpy_orig", "ret"}) == {
        "__memcpy": 1, "memcpy_orig": 3,
    }  # fmt: skip


def test_kernel_without_the_file_has_none(tmp_path: Path) -> None:
    assert addresses.load(tmp_path / "origins.json.gz") == {}


# By name: gzip puts the time of day into its bytes, and every worker must find the same tests.
DAMAGED = {
    "empty": b"",
    "no gzip": b"no gzip",
    "no format": gzip.compress(b"{}"),
    "another format": gzip.compress(b'{"format": 0}'),
    "no such file": gzip.compress(b'{"format": 1, "files": [], "at": {"ff": 0}}'),
    "no address": gzip.compress(b'{"format": 1, "files": ["a"], "at": {"x": 0}}'),
    "a list": gzip.compress(b"[1]"),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_damaged_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "origins.json.gz"
    path.write_bytes(content)
    with pytest.raises(InfraError, match="not an origins file"):
        addresses.load(path)


def test_marks_in_objects_of_arm64_are_no_functions() -> None:
    lines = [
        "mm/core.o:0000000000000000 t $x",
        "mm/core.o:0000000000000010 t $x.3",
        "mm/core.o:0000000000000010 t walk",
    ]
    assert addresses.definitions(lines, "") == ({"walk": ("mm/core.o",)}, {})
