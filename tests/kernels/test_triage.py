from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from experiment.spec import SeriesSpec
from kernels.build import provide
from kernels.cache import Kernel
from kernels.compare import compare, triage
from kernels.compiled import Touched, governing, load, unmet
from kernels.intake import records_of
from kernels.symbols import FunctionCode
from reports.series_findings import summary
from results.record import PatchRecord, TriageRecord
from tests.kernels.fake import COMMENT, GROWN, Lab, replace

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
    record = compare(base, patched, patches)
    assert record is not None
    return record


def built(lab: Lab, *edits: Callable[[Path], None]) -> TriageRecord:
    base = provide(lab.spec, [], **lab.where)
    patched = provide(lab.spec, lab.series("asked", *edits), **lab.where)
    (record,) = records_of(SeriesSpec(path="configs/series/asked"), **lab.where)
    return compared(base, patched, record.patches)


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


def test_a_comment_is_the_same_code(lab: Lab) -> None:
    record = built(lab, COMMENT)
    assert record.verdict == "same code"
    assert record.functions == ()
    assert record.findings == ("mm/filemap.c is built, and none of its functions changed",)


def test_data_that_no_function_shows(lab: Lab) -> None:
    record = built(lab, replace("mm/filemap.c", "table[TABLE_SIZE]", "table[TABLE_SIZE + 1]"))
    assert record.verdict == "data or layout"
    assert summary(record) == "no function changed; data changed: table (64 to 68 bytes)"


def test_data_of_the_same_size_is_named(lab: Lab) -> None:
    replace("mm/filemap.c", "int filemap_last", "int limit = 7;\nint filemap_last")(lab.source)
    record = built(lab, replace("mm/filemap.c", "limit = 7", "limit = 8"))
    assert record.verdict == "data or layout"
    assert summary(record) == "no function changed; data changed: limit (4 bytes)"


def test_a_header_that_changes_nothing_is_the_same_code(lab: Lab) -> None:
    record = built(lab, replace("include/folio.h", "#define", "/* sizes */\n#define"))
    assert (record.verdict, record.left_out) == ("same code", ())


def test_a_series_taken_out_is_compared_the_other_way(lab: Lab) -> None:
    plain = provide(lab.spec, [], **lab.where)
    other = provide(lab.spec, lab.series("asked", GROWN), **lab.where)
    (series,) = records_of(SeriesSpec(path="configs/series/asked"), **lab.where)
    (function,) = compared(other, plain, series.patches).functions
    assert function.file == "mm/filemap.c"
    assert (function.before or 0) > (function.after or 0)


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


def test_warnings_of_the_patched_arm_only(lab: Lab) -> None:
    odd = replace("mm/slow.c", "return filemap", 'if (0)\n#warning "odd"\n\t\t;\n\treturn filemap')
    record = built(lab, odd)
    (warning,) = record.warnings
    assert warning.startswith("mm/slow.c:9: #warning")


def test_kernels_of_an_older_lab_have_no_such_file(lab: Lab) -> None:
    patched = provide(lab.spec, lab.series("asked", GROWN), **lab.where)
    assert len(load(patched.touched)) == 1
    patched.touched.unlink()
    assert load(patched.touched) == ()
    assert compared(patched, patched, ()).verdict == "same code"


def test_a_function_without_a_file_is_put_to_the_headers() -> None:
    record = triage(
        same_code=False, before=BEFORE, after=AFTER, touched=(FILEMAP,), patches=(FIRST, SECOND)
    )
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
    record = triage(
        same_code=False, before=BEFORE, after=after, touched=(FILEMAP,), patches=(FIRST,)
    )
    assert {each.name: each.file for each in record.functions} == {
        "g.cold": "mm/filemap.c",
        "f@other.c": "",
    }


MAKEFILE = """\
# obj-$(CONFIG_WRONG) += filemap.o
obj-y := mmap.o \\
	memory.o
obj-$(CONFIG_THP) += huge_memory.o khugepaged.o
obj-$(CONFIG_BRD) += brd.o
brd-y += brd_main.o
brd-$(CONFIG_BRD_X) += brd_x.o
"""


@pytest.mark.parametrize(
    ("file", "options"),
    [
        ("mm/huge_memory.c", ("THP", "MM")),
        ("mm/memory.c", ("MM",)),
        ("mm/brd_main.c", ("BRD", "MM")),
        ("mm/brd_x.c", ("BRD_X", "BRD", "MM")),
        ("mm/filemap.c", ("MM",)),
        ("mm/deep/x.c", ("MM",)),
    ],
)
def test_options_in_makefiles(tmp_path: Path, file: str, options: tuple[str, ...]) -> None:
    (tmp_path / "mm").mkdir()
    (tmp_path / "mm/Makefile").write_text(MAKEFILE)
    (tmp_path / "Kbuild").write_text("obj-$(CONFIG_MM) += mm/\n")
    assert governing(file, tmp_path) == options


SOURCE = """\
#ifdef CONFIG_A
1
#else
3
#endif
#if IS_ENABLED(CONFIG_B) /* why */
6
#ifndef CONFIG_A
8
#endif
#endif
#if defined(CONFIG_A) && defined(CONFIG_C)
12
#elif 1
14
#endif
# if !defined(CONFIG_A)
17
# endif
"""


@pytest.mark.parametrize(
    ("line", "values", "options"),
    [
        (2, {}, ("A",)), (2, {"A": "y"}, ()), (2, {"A": "m"}, ()),
        (4, {"A": "y"}, ("A",)), (4, {}, ()), (5, {}, ()),
        (7, {}, ("B",)), (9, {"A": "y"}, ("B", "A")), (9, {"B": "y"}, ()),
        (13, {}, ()), (15, {}, ()), (18, {"A": "y"}, ("A",)), (18, {}, ()),
    ],
)  # fmt: skip
def test_options_in_sources(line: int, values: dict[str, str], options: tuple[str, ...]) -> None:
    assert unmet(SOURCE, [line], values) == [options]


def test_looking_at_many_lines_takes_linear_time() -> None:
    text = "#ifdef CONFIG_A\n" * 100_000 + "x\n" * 100_000
    started = time.process_time()
    options = unmet(text, range(1, 200_000), {})
    assert len(options) == 199_999
    assert options[-1] == ("A",) * 64
    assert time.process_time() - started < 10
