"""Where functions are and where they come from, of texts and of a tree that is linked."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import InfraError
from kernels import addresses, symbols
from kernels.addresses import AddressesError, FunctionMap, Origin
from tests.values import data, spaced
from tests.waiting import completed

SYSTEM_MAP = data(__file__, "system_map")
TABLE = addresses.parse(SYSTEM_MAP)
START = 0xFFFFFFFF81000000


def names_at(functions: FunctionMap) -> dict[int, str]:
    starts = functions.table.starts.tolist()
    return {
        start - START: functions.named[owner][0]
        for start, owner in zip(starts, functions.owner.tolist(), strict=True)
    }


def test_code_only_and_its_ranges() -> None:
    assert [hex(start - START) for start in TABLE.starts.tolist()] == [
        *spaced("0x0 0x100 0x200 0x300 0x400 0x500 0x580 0x1000010")
    ]
    assert [(low - START, end - START) for low, end in TABLE.ranges] == [
        (0, 0x1000),
        (0x1000000, 0x1001000),
    ]


def test_one_name_of_several_and_the_others_are_known() -> None:
    names = TABLE.names[3]
    assert names == ("strong_one", "another_strong_one", "__strong_one", "weak_one", "local_one")
    functions = addresses.functions(TABLE)
    assert {functions.called(name) for name in names} == {functions.called("strong_one")}
    assert functions.called("nonesuch") == ()
    # And one that is asked for is the one used.
    assert names_at(addresses.functions(TABLE, names={"local_one"}))[0x300] == "local_one"
    # A word of the linker script yields to a function.
    assert TABLE.names[0][0] == "startup_64"


def test_cold_part_belongs_to_its_function_and_is_no_entry() -> None:
    functions = addresses.functions(TABLE)
    assert names_at(functions)[0x200] == names_at(functions)[0x100] == "walk"
    assert functions.is_entry.tolist() == [True, True, False, True, True, True, False, True]


def test_one_name_in_two_files_is_distinguished() -> None:
    files = {
        START + 0x400: Origin("fs/a.c", 4),
        START + 0x500: Origin("mm/b.c"),
        START + 0x580: Origin("mm/b.c", 5),
    }
    functions = addresses.functions(TABLE, files)
    names = names_at(functions)
    assert (names[0x400], names[0x500], names[0x580]) == ("twin@a.c", "twin@b.c", "twin@b.c")
    assert len(functions.called("twin")) == 2
    lines = dict(zip(functions.named, functions.lines, strict=True))
    assert lines["twin@a.c", "fs/a.c"] == 4
    assert lines["twin@b.c", "mm/b.c"] == 5
    assert set(lines.values()) == {0, 4, 5}


def test_files_of_one_name_are_distinguished_by_their_folder() -> None:
    files = {START + 0x400: Origin("fs/core.c"), START + 0x500: Origin("mm/core.c")}
    names = names_at(addresses.functions(TABLE, files))
    assert (names[0x400], names[0x500]) == ("twin@fs/core.c", "twin@mm/core.c")
    assert names[0x580] == "twin"


def test_one_name_without_files_is_one_function() -> None:
    functions = addresses.functions(TABLE)
    assert names_at(functions)[0x400] == names_at(functions)[0x500] == "twin"
    assert functions.named.count(("twin", "")) == 1


def test_suffixes_of_the_compiler_stay() -> None:
    text = SYSTEM_MAP.replace("walk.cold", "walk.isra.0").replace("local_one", "f.part.0")
    names = names_at(addresses.functions(addresses.parse(text)))
    assert names[0x200] == "walk.isra.0"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *data(__file__, "what_is_no_system_map_is_refused"),
        (f"{'9' * 5000} T _stext\n", "line 1 has no address"),
    ],
)
def test_what_is_no_system_map_is_refused(text: str, message: str) -> None:
    with pytest.raises(AddressesError, match=message):
        addresses.parse(text)


def test_kallsyms_is_read_alike_without_its_modules() -> None:
    text = SYSTEM_MAP + "ffffffffa0000000 t walk\t[xfs]\n"
    assert addresses.parse(text).names == TABLE.names


def test_running_kernel_that_is_the_same() -> None:
    running = "ffffffff81000000 T _stext\nffffffff81000100 t walk\nffffffff81001000 T _etext\n"
    assert addresses.require_same(TABLE, running) == 3
    assert addresses.require_same(TABLE, "") == 0
    # Addresses that the kernel hides prove nothing.
    assert addresses.require_same(TABLE, "0000000000000000 T _stext\n") == 0


@pytest.mark.parametrize(("running", "message"), data(__file__, "running_kernel_that_is_another"))
def test_running_kernel_that_is_another(running: str, message: str) -> None:
    with pytest.raises(AddressesError, match=message):
        addresses.require_same(TABLE, running)


def test_modules_by_their_ranges() -> None:
    text = "xfs 4096 1 - Live 0xffffffffa0100000\nbrd 16384 1 - Live 0xffffffffa0000000 (E)\n"
    low = 0xFFFFFFFFA0000000
    assert addresses.module_ranges(text) == ((low, low + 16384), (low + 0x100000, low + 0x101000))
    assert addresses.module_ranges("brd 16384 1 - Live 0x0000000000000000\n") == ()
    with pytest.raises(AddressesError, match="no line of /proc/modules: 'brd'"):
        addresses.module_ranges("brd\n")


SYMBOL = st.builds(
    "{:016x} {} {}".format,
    st.integers(START, START + 0xFFF),
    st.sampled_from("TtWwDb"),
    st.sampled_from(("a", "b", "a.cold", "__a", "_stext", "__pfx_a", "c.isra.0", "b.cold")),
)


ORIGIN = st.builds(Origin, st.text(), st.integers(0, 9))


@given(st.lists(SYMBOL, max_size=30), st.dictionaries(st.integers(START, START + 0xFFF), ORIGIN))
def test_every_start_belongs_to_one_function(lines: list[str], files: dict[int, Origin]) -> None:
    text = "\n".join([SYSTEM_MAP.strip(), *(line for line in lines if "_stext" not in line)])
    functions = addresses.functions(addresses.parse(text), files)
    starts = functions.table.starts
    assert len(starts) == len(functions.owner) == len(functions.is_entry)
    assert (np.diff(starts.astype(object)) > 0).all()
    assert set(functions.owner.tolist()) == set(range(len(functions.named)))
    assert len(set(functions.named)) == len(functions.named) == len(functions.lines)


# Two files of one name in two folders, each with a static function of one name.
SOURCES = data(__file__, "sources")
FLAGS = ("-O2", "-fno-pic", "-ffreestanding", "-fno-asynchronous-unwind-tables")


def sh(*argv: object, cwd: Path) -> str:
    return completed([*map(str, argv)], cwd=cwd).stdout


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
    whole = ["--whole-archive", "vmlinux.a", "--no-whole-archive"]
    sh("ld", "-o", "vmlinux", *whole, "lib/lib.a", cwd=objects)
    return source


def placed(source: Path) -> dict[str, set[Origin]]:
    """Name → files and lines, of all the functions that were placed."""
    placed = addresses.collect(source / "obj", source)
    table: dict[str, set[Origin]] = {}
    for line in sh("nm", "vmlinux", cwd=source / "obj").splitlines():
        address, _, name = line.split()
        if int(address, 16) in placed:
            table.setdefault(name, set()).add(placed[int(address, 16)])
    return table


def test_every_function_has_its_file_and_the_line_of_its_definition(built: Path) -> None:
    assert placed(built) == {
        "_start": {Origin("start.c", 2)},
        "mm": {Origin("mm/core.c", 2)},
        "fs": {Origin("fs/core.c", 2)},
        "other": {Origin("fs/other.c", 2)},
        "walk": {Origin(file, 1) for file in ("mm/core.c", "fs/core.c", "fs/other.c")},
        "low": {Origin("lib/low.S")},
        "either": {Origin("fs/core.c", 3)},
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


def test_an_object_without_a_source_is_named_itself(built: Path, tmp_path: Path) -> None:
    assert Origin("mm/core.o") in addresses.collect(built / "obj", tmp_path).values()


def test_saved_and_loaded(tmp_path: Path) -> None:
    table = {
        0xFFFFFFFF81000000: Origin("mm/filemap.c", 3),
        0xFFFFFFFF81000010: Origin("lib/xarray.c"),
    }
    first, second = tmp_path / "one", tmp_path / "other"
    addresses.save(table, first)
    addresses.save(dict(reversed(table.items())), second)
    assert addresses.load(first) == table
    assert first.read_bytes() == second.read_bytes()


STYLE = data(__file__, "style")


def test_lines_are_of_definitions_and_of_those_alone() -> None:
    symbols = {*spaced("walk.isra.0 other __x64_sys_mark __do_sys_mark either macro last ADD call")}
    assert addresses.definition_lines(STYLE, symbols) == {
        "walk.isra.0": 6,
        "__x64_sys_mark": 12,
        "__do_sys_mark": 12,
        "last": 26,
    }

    # And of assembly.
    text = "SYM_TYPED_FUNC_START(__memcpy)\n\tret\nSYM_FUNC_START_LOCAL(memcpy_orig)\n"
    assert addresses.definition_lines(text, {"__memcpy", "memcpy_orig", "ret"}) == {
        "__memcpy": 1,
        "memcpy_orig": 3,
    }


def test_a_build_without_the_archive_and_a_kernel_without_the_file_have_none(
    tmp_path: Path,
) -> None:
    assert addresses.collect(tmp_path, tmp_path) == {}
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
    with pytest.raises(InfraError, match="not a table of this version"):
        addresses.load(path)


def test_marks_in_objects_of_arm64_are_no_functions() -> None:
    lines = [
        "mm/core.o:0000000000000000 t $x",
        "mm/core.o:0000000000000010 t $x.3",
        "mm/core.o:0000000000000010 t walk",
    ]
    assert addresses.definitions(lines, "") == ({"walk": ["mm/core.o"]}, {})
