"""Who calls whom, from bytes of code and data whose every reference is known."""

import gzip
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from analysis.findings import summary
from experiment.spec import PREBUILT, SeriesSpec
from host.process import run
from kernels import addresses, compare
from kernels.build import provide
from kernels.cache import Kernel
from kernels.compare import CodeReferences, triage
from kernels.compiled import Touched, governing, load, unmet
from kernels.intake import take_in
from kernels.symbols import SHF_ALLOC, SHF_EXECINSTR, FunctionCode, Section
from results.record import PatchRecord, TriageRecord, patches_apart
from tests.kernels.fake import COMMENT, GROWN, Lab, renamed, replace
from tests.kernels.shipped import boot_image, packed
from tests.values import but, data, identity

FIRST = PatchRecord(name="0001-a.patch", subject="a", sha256="", files=("mm/filemap.c",))
SECOND = PatchRecord(name="0002-b.patch", subject="b", sha256="", files=("include/x.h", "lib/y.c"))
BEFORE = {
    "f": FunctionCode(10, "a", "a"),
    "g": FunctionCode(20, "b", "b"),
    "h": FunctionCode(30, "c", "c"),
}
AFTER = {
    "f": FunctionCode(12, "d", "d"),
    "g": FunctionCode(20, "b", "b"),
    "new": FunctionCode(5, "e", "e"),
}
FILEMAP = Touched(file="mm/filemap.c", built=True, functions=("f", "g"))


def compared(base: Kernel, patched: Kernel, patches: Sequence[PatchRecord]) -> TriageRecord:
    record = compare.compare(base, patched, patches)
    assert record is not None
    return record


def built(lab: Lab, *edits: Callable[[Path], None]) -> TriageRecord:
    base = provide(lab.request())
    patched = provide(lab.request(lab.series("asked", *edits)))
    (record,) = take_in(SeriesSpec(path="configs/series/asked"), **lab.where).records
    return compared(base, patched, record.patches)


@pytest.mark.usefixtures("base")
def test_functions_with_their_file_and_patches(lab: Lab) -> None:
    record = built(lab, GROWN, replace("mm/slow.c", "* 3", "* 5"))
    assert record.verdict == "functions"
    by_name = {function.name: function for function in record.functions}
    assert set(by_name) == {"remember", "slow"}
    assert by_name["remember"].file == "mm/filemap.c"
    assert by_name["remember"].patches == ("0001-mm-asked-step-1.patch",)
    assert by_name["slow"].patches == ("0002-mm-asked-step-2.patch",)
    assert record.findings == ()
    assert summary(record).startswith("only 2 functions changed: remember (")


def test_a_step_has_the_files_and_the_patches_of_its_own(lab: Lab) -> None:
    paths = lab.series("asked", GROWN, replace("mm/slow.c", "* 3", "* 5"))
    before, after = provide(lab.request(paths[:1])), provide(lab.request(paths))
    (record,) = take_in(SeriesSpec(path="configs/series/asked"), **lab.where).records
    step = compared(before, after, record.patches)
    assert [(each.name, each.patches) for each in step.functions] == [("slow", (paths[1].name,))]
    assert step.findings == ()
    # Taken out one by one, and nothing at all apart.
    without = but(after.identity, patches=(paths[1].name,))
    assert patches_apart(record.patches, after.identity, without) == [record.patches[0]]
    assert patches_apart(record.patches, after.identity, after.identity) == record.patches


@pytest.mark.usefixtures("base")
def test_another_name_is_no_change_of_a_function_and_is_reported(lab: Lab) -> None:
    record = built(lab, renamed, GROWN)
    assert record.renamed == (("slow", "steady"),)
    assert [each.name for each in record.functions] == ["remember"]
    assert (record.findings, record.left_out) == ((), ())
    assert summary(record).endswith("; renamed: slow -> steady")


@pytest.mark.usefixtures("base")
def test_a_comment_is_the_same_code(lab: Lab) -> None:
    record = built(lab, COMMENT)
    assert record.verdict == "same code"
    assert record.functions == ()
    assert record.findings == ("mm/filemap.c is built, and none of its functions changed",)


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("table[TABLE_SIZE]", "table[TABLE_SIZE + 1]", "table (64 to 68 bytes)"),
        ("limit = 7", "limit = 8", "limit (4 bytes)"),
    ],
)
def test_data_that_no_function_shows(lab: Lab, old: str, new: str, changed: str) -> None:
    replace("mm/filemap.c", "int filemap_last", "int limit = 7;\nint filemap_last")(lab.source)
    record = built(lab, replace("mm/filemap.c", old, new))
    assert record.verdict == "data or layout"
    assert summary(record) == f"no function changed; data changed: {changed}"


@pytest.mark.usefixtures("base")
def test_a_header_that_changes_nothing_is_the_same_code(lab: Lab) -> None:
    record = built(lab, replace("include/folio.h", "#define", "/* sizes */\n#define"))
    assert (record.verdict, record.left_out) == ("same code", ())


def test_a_change_that_is_compiled_out_is_named_with_its_option(lab: Lab) -> None:
    hidden = "#ifdef CONFIG_NUMA\nint numa(int x) { return x; }\n#endif\nint filemap_last"
    replace("mm/filemap.c", "int filemap_last", hidden)(lab.source)
    record = built(lab, replace("mm/filemap.c", "return x; }", "return x + 1; }"))
    assert record.verdict == "same code"
    assert record.findings == (
        "mm/filemap.c is built, and none of its functions changed: its change is compiled out, "
        "CONFIG_NUMA is n (this source has no such option)",
    )
    assert record.left_out == ("mm/filemap.c (CONFIG_NUMA is n)",)


def test_a_file_that_is_not_built_is_named_with_its_option(lab: Lab) -> None:
    (lab.source / "net").mkdir()
    (lab.source / "net/9p.c").write_text("int p9;\n")
    (lab.source / "net/Makefile").write_text("obj-$(CONFIG_NET_DMA) += 9p.o\n")
    with (lab.source / "Kconfig").open("a") as kconfig:
        kconfig.write('\nconfig NET_DMA\n\tbool "DMA"\n\tdepends on DMA\n')
    record = built(lab, replace("net/9p.c", "p9", "p9, p10"))
    assert record.verdict == "same code"
    assert record.findings == (
        "net/9p.c is not built in this configuration: CONFIG_NET_DMA is n "
        "(Kconfig:26: depends on DMA, and DMA is n); switch it on with --config CONFIG_NET_DMA=y",
    )
    assert record.left_out == ("net/9p.c (CONFIG_NET_DMA is n)",)


@pytest.mark.usefixtures("base")
def test_warnings_of_the_patched_arm_only(lab: Lab) -> None:
    odd = replace("mm/slow.c", "return filemap", 'if (0)\n#warning "odd"\n\t\t;\n\treturn filemap')
    record = built(lab, odd)
    (warning,) = record.warnings
    assert warning.startswith("mm/slow.c:9: #warning")


def test_kernels_of_an_older_lab_have_no_such_file(lab: Lab) -> None:
    patched = provide(lab.request(lab.series("asked", GROWN)))
    assert len(load(patched.touched)) == 1
    patched.touched.unlink()
    assert load(patched.touched) == ()
    assert compared(patched, patched, ()).verdict == "same code"


def triaged(after: dict[str, FunctionCode], *patches: PatchRecord) -> TriageRecord:
    touched = (FILEMAP,)
    return triage(same_code=False, before=BEFORE, after=after, touched=touched, patches=patches)


def test_a_function_without_a_file_is_put_to_the_headers() -> None:
    record = triaged(AFTER, FIRST, SECOND)
    placed = {function.name: (function.file, function.patches) for function in record.functions}
    assert placed == {
        "f": ("mm/filemap.c", ("0001-a.patch",)),
        "h": ("", ("0002-b.patch",)),
        "new": ("", ("0002-b.patch",)),
    }
    assert summary(record) == (
        "only 3 functions changed: h (gone, 30 bytes), new (new, 5 bytes), f (10 to 12 bytes)"
    )


def test_copies_and_parts_that_the_compiler_makes_belong_to_their_function() -> None:
    after = {**BEFORE, "g.cold": FunctionCode(4, "x", "x"), "f@other.c": FunctionCode(1, "y", "y")}
    assert {each.name: each.file for each in triaged(after, FIRST).functions} == {
        "g.cold": "mm/filemap.c",
        "f@other.c": "",
    }


MAKEFILE = data(__file__, "makefile")


@pytest.mark.parametrize(("file", "options"), data(__file__, "options_in_makefiles"))
def test_options_in_makefiles(tmp_path: Path, file: str, options: tuple[str, ...]) -> None:
    (tmp_path / "mm").mkdir()
    (tmp_path / "mm/Makefile").write_text(MAKEFILE)
    (tmp_path / "Kbuild").write_text("obj-$(CONFIG_MM) += mm/\n")
    assert governing(file, tmp_path) == options


SOURCE = data(__file__, "source")


@pytest.mark.parametrize(("line", "values", "options"), data(__file__, "options_in_sources"))
def test_options_in_sources(line: int, values: dict[str, str], options: tuple[str, ...]) -> None:
    assert unmet(SOURCE, [line], values) == [options]


def test_looking_at_many_lines_takes_linear_time() -> None:
    text = "#ifdef CONFIG_A\n" * 20_000 + "x\n" * 20_000
    started = time.process_time()
    options = unmet(text, range(1, 40_000), {})
    assert len(options) == 39_999
    assert options[-1] == ("A",) * 64
    assert time.process_time() - started < 5


START = 0xFFFFFFFF81000000
FUNCTIONS = data(__file__, "functions")
MAP = data(__file__, "map")


def code(pieces: dict[int, bytes], size: int, address: int) -> Section:
    data = bytearray(b"\xcc" * size)
    for at, piece in pieces.items():
        data[at : at + len(piece)] = piece
    return Section(
        1, ".text", "SHT_PROGBITS", SHF_ALLOC | SHF_EXECINSTR, address, size, bytes(data)
    )


def relative(at: int, target: str, behind: int = 4) -> bytes:
    return struct.pack("<i", FUNCTIONS[target] - (at + behind))


def references() -> CodeReferences:
    text = code(
        {
            0x04: b"\xe8" + relative(0x05, "callee"),
            # The part that was split off belongs to its function; into the middle leads nothing.
            0xE4: b"\xe9" + relative(0xE5, "far"),
            0x10: b"\xe8" + struct.pack("<i", 0xC8 - 0x15),
            0x24: b"\x0f\x84" + relative(0x26, "callee"),
            0x30: b"\xeb" + struct.pack("<b", 0x40 - 0x32),
            # mov $callee, %rdi and lea far(%rip), %rsi
            0x54: b"\x48\xc7\xc7" + struct.pack("<i", START + FUNCTIONS["callee"] - (1 << 64)),
            0x74: b"\x48\x8d\x35" + relative(0x77, "far"),
            # call *0x10(%rax)
            0x94: b"\xff\x50\x10",
        },
        0x200,
        START,
    )
    init = code({0x04: b"\xe8" + relative(0x1005, "callee")}, 0x100, START + 0x1000)
    table = struct.pack("<3Q", 7, START + FUNCTIONS["loader"], START + FUNCTIONS["loader"] + 1)
    data = Section(2, ".data", "SHT_PROGBITS", SHF_ALLOC, START + 0x2000, len(table), table)
    note = Section(3, ".debug", "SHT_PROGBITS", 0, 0, 8, struct.pack("<Q", START + 0xC0))
    functions = addresses.functions(addresses.parse(MAP))
    return compare.read(functions, (text, init, data, note), range(START + 0x1000, START + 0x1100))


def test_every_kind_of_reference_and_what_is_thrown_away() -> None:
    known = references()
    assert known.edges == {
        "caller": {"callee", "far"},
        "jumper": {"callee", "neighbour"},
        "holder": {"callee"},
        "loader": {"far"},
        "setup": {"callee"},
    }
    assert known.pointed == {"loader"}
    assert known.indirect == {"through"}
    assert known.boot == {"setup"}


def test_a_call_that_one_of_several_kernels_makes_is_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {
        "first": CodeReferences({"a": {"b"}}, {"b"}, set(), set()),
        "second": CodeReferences({"a": {"c"}, "c": {"a"}}, set(), {"c"}, {"d"}),
        "unknown": None,
    }
    monkeypatch.setattr(compare, "of_kernel", lambda kernel: known[kernel.folder.name])
    first, second, unknown = (Kernel(tmp_path / name, identity()) for name in known)
    both = compare.of_kernels([first, second, first])
    assert both is not None
    assert both.edges() == {"a": {"b", "c"}, "b": set(), "c": {"a"}, "d": set()}
    assert [both.named(which) for which in (both.pointed, both.indirect, both.boot)] == [
        {"b"},
        {"c"},
        {"d"},
    ]
    assert compare.of_kernels([second, first]) == both
    assert compare.of_kernels([first, unknown]) is None


CALLING = """
__attribute__((noinline)) int callee(int x) { __asm__ volatile(""); return x + 1; }
__attribute__((noinline)) int by_pointer(int x) { __asm__ volatile(""); return x + 2; }
int (*table)(int) = by_pointer;
int caller(int x) { return callee(x) + table(x); }
"""
# Where a kernel's code begins and ends, as its linker script has it.
BOUNDS = '__asm__(".globl _stext\\n_stext:");\n{}\n__asm__(".globl _etext\\n_etext:");\n'


def test_a_real_image_of_a_kernel_in_the_cache(tmp_path: Path) -> None:
    source, image = tmp_path / "kernel.c", tmp_path / "vmlinux"
    source.write_text(BOUNDS.format(CALLING))
    flags = ["-O1", "-fno-toplevel-reorder", "-fno-pie", "-mcmodel=kernel", "-fcf-protection=none"]
    link = ["-nostdlib", "-static", "-no-pie", f"-Wl,-Ttext={START:#x},-e,caller,--build-id=none"]
    run(["gcc", *flags, *link, str(source), "-o", str(image)], timeout_s=300)
    (tmp_path / "System.map").write_text(run(["nm", str(image)], timeout_s=300).stdout)
    (tmp_path / "bzImage").write_bytes(boot_image(packed(image.read_bytes(), "gzip", tmp_path)))
    kernel = Kernel(tmp_path, identity())
    known = compare.of_kernels([kernel, kernel])
    assert known is not None
    assert known.edges()["caller"] == {"callee"}
    assert "by_pointer" in known.named(known.pointed)
    assert "caller" in known.named(known.indirect)
    # Kept beside the kernel, and read anew where that is damaged.
    content = kernel.calls.read_bytes()
    of_other_code = gzip.compress(b'{"format": "", "edges": {"a": ["b"]}}')
    for damage in (content, content[:-9], of_other_code, b""):
        kernel.calls.write_bytes(damage)
        compare.of_kernel.cache_clear()
        assert compare.of_kernels([kernel]) == known
        assert kernel.calls.read_bytes() == content
    (tmp_path / "bzImage").unlink()
    compare.of_kernel.cache_clear()
    assert compare.of_kernels([kernel]) == known
    for unknown in (identity(arch="arm64"), identity(flavour=PREBUILT)):
        assert compare.of_kernels([kernel, Kernel(tmp_path / "other", unknown)]) is None
