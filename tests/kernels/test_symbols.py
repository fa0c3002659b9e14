import subprocess
from pathlib import Path

import numpy as np
import pytest

from errors import InfraError
from kernels.symbols import (
    RELOCATION,
    FunctionCode,
    Pointer,
    Section,
    _blank_branches,
    changed_functions,
    code_key,
    differing,
    differing_variables,
    functions,
    load,
    renamed,
    save,
    variables,
)
from results.record import FunctionRecord
from tests.values import data, spaced

CODE = data(__file__, "code")


def build(folder: Path, name: str, code: str, *, build_id: str = "sha1") -> Path:
    """Compile to ``name`` (linked) and ``name.o`` (relocatable)."""
    (folder / "x.c").write_text(code)
    flags = ["-O2", "-ffreestanding", "-fno-pic", "-fno-asynchronous-unwind-tables"]
    where = [str(folder / "x.c"), "-o", str(folder / f"{name}.o")]
    subprocess.run(["gcc", *flags, "-c", *where], check=True)
    linked = folder / name
    link = ["ld", f"--build-id={build_id}", "-e", "start", "-o", str(linked), f"{linked}.o"]
    subprocess.run(link, check=True)
    return linked


def names(before: Path, after: Path) -> list[str]:
    for image in (before, after):
        save(functions(Path(f"{image}.o")), Path(f"{image}.gz"))
    return [change.name for change in changed_functions(Path(f"{before}.gz"), Path(f"{after}.gz"))]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return build(tmp_path, "base", CODE)


def test_comments_and_build_ids_and_banners_are_not_code(base: Path, tmp_path: Path) -> None:
    comment = build(tmp_path, "comment", CODE.replace("int table", "/* ! */ int table"))
    assert code_key(comment) == code_key(base)
    other_id = build(tmp_path, "id", CODE, build_id="0x1234567890123456789012345678901234567890")
    assert other_id.read_bytes() != base.read_bytes()
    assert code_key(other_id) == code_key(base)
    banner = build(tmp_path, "banner", CODE.replace("BANNER", "banner"))
    assert code_key(banner) == code_key(base)
    assert names(base, comment) == names(base, other_id) == names(base, banner) == []


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    data(__file__, "a_change_gives_another_key_and_names_its_function_alone"),
)
def test_a_change_gives_another_key_and_names_its_function_alone(
    base: Path, tmp_path: Path, old: str, new: str, changed: tuple[str, ...]
) -> None:
    assert old in CODE
    after = build(tmp_path, "after", CODE.replace(old, new))
    assert code_key(after) != code_key(base)
    assert names(base, after) == [*changed]


def test_data_counts_in_the_key(base: Path, tmp_path: Path) -> None:
    more = build(tmp_path, "more", CODE.replace("limit = 7", "limit = 8"))
    assert code_key(more) != code_key(base)
    bss = build(tmp_path, "bss", CODE.replace("table[4]", "table[64]"))
    assert code_key(bss) != code_key(base)
    assert names(base, more) == []


DATA = data(__file__, "data")


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ("limit = 7", "limit = 8", [("limit", 4, 4)]),
        ("counts[4]", "counts[8]", [("counts", 32, 64)]),
        ('"two"', '"2nd"', [("names", 16, 16)]),
        ("{start, 0}", "{0, start}", [("ops", 16, 16)]),
        ("calls = 1", "calls = 2", [("calls", 4, 4)]),
        ("int limit", "int added = 3; int limit", [("added", None, 4)]),
        ("int limit", "/* */ int limit", []),
    ],
)
def test_variables_that_differ_are_named(
    tmp_path: Path, old: str, new: str, changes: list[tuple[str, int | None, int | None]]
) -> None:
    before, after = (
        build(tmp_path, "before", DATA),
        build(tmp_path, "after", DATA.replace(old, new)),
    )
    for image in (before, after):
        linked = Path(f"{image}.o")
        save(functions(linked), Path(f"{image}.gz"), variables(linked))
    tables = [load(Path(f"{image}.gz"))[1] or {} for image in (before, after)]
    assert [(c.name, c.before, c.after) for c in differing_variables(*tables)] == changes


def test_a_static_variable_more_in_a_file_is_no_change_of_the_others(tmp_path: Path) -> None:
    code = (
        "int start(void) { static int once = 1; { static int once = 2; once++; } return once++; }"
    )
    more = code.replace("return", "{ static int once = 3; once++; } return")
    tables = [
        variables(Path(f"{build(tmp_path, str(n), c)}.o")) for n, c in enumerate((code, more))
    ]
    (change,) = differing_variables(*tables)
    assert (change.name, change.before, change.after) == ("once@x.c", None, 4)


def test_modules_count_in_the_key(base: Path, tmp_path: Path) -> None:
    module = Path(f"{build(tmp_path, 'module', DATA)}.o")
    keys = {code_key(base), code_key(base, [module])}
    module = Path(f"{build(tmp_path, 'module', DATA.replace('7', '8'))}.o")
    assert len({*keys, code_key(base, [module])}) == 3


def test_new_strings_and_functions_do_not_move_the_others(base: Path, tmp_path: Path) -> None:
    code = CODE.replace(
        "__attribute__((noipa)) static int first",
        'int added(void) { log_it("a new string before the others"); return 1; }\n'
        "__attribute__((noipa)) static int first",
    )
    after = build(tmp_path, "after", code)
    assert names(base, after) == ["added"]
    assert changed_functions(Path(f"{base}.gz"), Path(f"{after}.gz"))[0].before is None
    gone = changed_functions(Path(f"{after}.gz"), Path(f"{base}.gz"))[0]
    assert gone.name == "added"
    assert gone.after is None


def test_one_name_in_two_files_is_two_functions(tmp_path: Path) -> None:
    for name, factor in (("one", 3), ("two", 5)):
        (tmp_path / f"{name}.c").write_text(
            f"__attribute__((noipa)) static int same(int x) {{ return x * {factor}; }}\n"
            f"int {name}(int x) {{ return same(x); }}\n"
        )
        argv = ["gcc", "-O2", "-c", f"{name}.c", "-o", f"{name}.o"]
        subprocess.run(argv, cwd=tmp_path, check=True)
    subprocess.run(["ld", "-r", "-o", "both.o", "one.o", "two.o"], cwd=tmp_path, check=True)
    table = functions(tmp_path / "both.o")
    assert {"same@one.c", "same@two.c", "one", "two"} <= table.keys()
    assert table["same@one.c"] != table["same@two.c"]


def test_saved_tables_come_back_and_are_the_same_bytes(tmp_path: Path) -> None:
    table = {"b": FunctionCode(3, "00ff", "11ee"), "a": FunctionCode(16, "abcd", "bcde")}
    save(table, tmp_path / "one")
    save(dict(reversed(table.items())), tmp_path / "two")
    assert load(tmp_path / "one") == (table, None)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    save({"a": FunctionCode(17, "abcd", "bcde")}, tmp_path / "two")
    assert changed_functions(tmp_path / "one", tmp_path / "two") == (
        FunctionRecord(name="a", before=16, after=17),
        FunctionRecord(name="b", before=3, after=None),
    )


@pytest.mark.parametrize("content", [b"", b"not gzip", b"\x1f\x8b\x08\x00"])
def test_damaged_tables_and_images_are_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "damaged"
    path.write_bytes(content)
    with pytest.raises(InfraError, match="damaged"):
        load(path)
    with pytest.raises(InfraError, match="damaged"):
        code_key(path)


def test_either_hash_is_enough_and_sizes_must_agree() -> None:
    code = FunctionCode(16, "exact", "named")
    assert code.is_same(FunctionCode(16, "exact", "taken for a call"), {})
    assert code.is_same(FunctionCode(16, "moved", "named"), {})
    assert not code.is_same(FunctionCode(16, "moved", "taken for a call"), {})
    assert not code.is_same(FunctionCode(17, "exact", "named"), {})
    assert not code.is_same(None, {})


VARIANT = """
extern int far(int); extern int other(int);
__attribute__((noinline)) int {leaf}(int x) {{ return x * 1234567; }}
__attribute__((noinline)) int {middle}(int x) {{ return {leaf}(x) + {called}(x + 1) + 1; }}
int top(int x) {{ return {middle}(x) ^ {leaf}(x + {more}); }}
int (*table)(int) = {middle};
"""


def variant(folder: Path, **other: str) -> dict[str, FunctionCode]:
    words = {"leaf": "leaf", "middle": "middle", "called": "far", "more": "2", **other}
    (folder / "a.c").write_text(VARIANT.format(**words))
    argv = spaced("gcc -O2 -fno-inline -ffunction-sections -c a.c -o a.o")
    subprocess.run(argv, cwd=folder, check=True)
    return functions(folder / "a.o")


@pytest.mark.parametrize(
    ("other", "new", "changed"),
    [
        ({"leaf": "root"}, {"leaf": "root"}, []),
        # What is renamed calls what is, and its callers are the same code.
        (
            {"leaf": "root", "middle": "between"},
            {"leaf": "root", "middle": "between"},
            [],
        ),
        ({"leaf": "root", "more": "3"}, {"leaf": "root"}, ["top"]),
        # Another function is called: that is no other name.
        ({"called": "other"}, {}, ["middle"]),
        ({"middle": "between", "called": "other"}, {}, ["between", "middle", "top"]),
    ],
)
def test_a_function_of_another_name_is_the_same_code_and_so_are_its_callers(
    tmp_path: Path, other: dict[str, str], new: dict[str, str], changed: list[str]
) -> None:
    before, after = variant(tmp_path), variant(tmp_path, **other)
    assert renamed(before, after) == new
    assert [each.name for each in differing(before, after)] == changed
    # Tables of before had no such hash.
    old = {name: code._replace(blind="", names="") for name, code in before.items()}
    assert renamed(old, after) == {}


def test_code_that_several_have_is_nobodys_and_padding_goes_with_its_function() -> None:
    leaf, root, pad = (FunctionCode(size, "", f"{size}", f"{size}") for size in (8, 9, 16))
    before = {"a": leaf, "b": root, "__pfx_a": pad, "__pfx_b": pad}
    after = {"c": leaf, "d": root, "__pfx_c": pad, "__pfx_d": pad}
    new = {"a": "c", "b": "d", "__pfx_a": "__pfx_c", "__pfx_b": "__pfx_d"}
    assert (renamed(before, after), differing(before, after)) == (new, ())
    assert renamed({"a": leaf, "b": leaf}, {"c": leaf}) == {}
    # Of a long chain of calls whose end differs none is the same, in linear time.
    chains = [
        {f"{which}{at}": FunctionCode(at, "", "", "x", f"{which}{at + 1}") for at in range(20_000)}
        for which in "ab"
    ]
    chains[0]["a19999"] = chains[0]["a19999"]._replace(names="else")
    before, after = (
        {name: code._replace(exact=name, named=name) for name, code in chain.items()}
        for chain in chains
    )
    assert renamed(before, after) == {}
    # A second function of the name is no other name of the first.
    assert renamed({"a": leaf}, {"a@one.c": leaf, "a@two.c": root}) == {}


# arm64, a word each: what branches to 0 ("first") from here, and the same without a distance.
BRANCHES = (
    (0x97FFFFFF, 0x94000000),  # bl, one word back
    (0x17FFFFFE, 0x14000000),  # b, two
    (0x54FFFFA1, 0x54000001),  # b.ne, three
    (0xB4FFFF80, 0xB4000000),  # cbz x0, four
    (0x37FFFF60, 0x37F80000),  # tbnz w0 bit 31, five
)


def test_branches_of_arm64_that_the_assembler_resolved() -> None:
    nop, other, loop = 0xD503201F, 0x94000002, 0x17FFFFFF
    words = [nop, *(word for word, _ in BRANCHES), other, loop]
    data = b"".join(word.to_bytes(4, "little") for word in words) + b"\1\2"
    section = Section(1, ".text", "SHT_PROGBITS", 6, 0, len(data), data)
    blanked, calls = _blank_branches(section, {0: "first"}, np.zeros(0, RELOCATION))
    kept = b"".join(word.to_bytes(4, "little") for _, word in BRANCHES)
    assert blanked == data[:4] + kept + data[24:]
    assert calls == [Pointer(4 * at, "call first") for at in range(1, 6)]


def test_branches_of_arm64_that_the_linker_resolves_stay() -> None:
    data = (0x97FFFFFF).to_bytes(4, "little") * 2
    section = Section(1, ".text", "SHT_PROGBITS", 6, 0, len(data), data)
    relocated = np.array([(4, 283, 1, 0)], RELOCATION)
    assert _blank_branches(section, {0: "first"}, relocated) == (data, [])
