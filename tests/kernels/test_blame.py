"""test blame"""

import itertools
import math

import pytest

from kernels.blame import (
    Mistake,
    failed_object,
    first_failing,
    host_trouble,
    mistakes,
    new_warnings,
    warnings,
)
from text import clean

COMPILER = """\
  CC      mm/filemap.o
In file included from ../mm/filemap.c:14:
../mm/filemap.c: In function '__filemap_add_folio':
../mm/filemap.c:880:17: warning: unused variable 'x' [-Wunused-variable]
../mm/filemap.c:881:17: error: 'nothing' undeclared (first use in this function)
../mm/filemap.c:881:17: note: each undeclared identifier is reported only once
../mm/filemap.c:900:1: error: expected ';'
../mm/filemap.c:901:1: error: third
../mm/filemap.c:902:1: error: fourth
make[3]: *** [../scripts/Makefile.build:229: mm/filemap.o] Error 1
"""


def test_first_real_errors_with_paths_from_the_top() -> None:
    assert tuple(map(str, mistakes(COMPILER))) == (
        "mm/filemap.c:881: 'nothing' undeclared (first use in this function)",
        "mm/filemap.c:900: expected ';'",
        "mm/filemap.c:901: third",
    )


@pytest.mark.parametrize(
    ("log", "first"),
    [
        (
            "../mm/x.c:1:10: fatal error: no.h: No such file or directory\n",
            "mm/x.c:1: no.h: No such file or directory",
        ),
        (
            "ld: mm/filemap.o: in function `f':\n"
            "filemap.c:(.text+0x1): undefined reference to `g'\n",
            "mm/filemap.c: filemap.c:(.text+0x1): undefined reference to `g'",
        ),
        (
            "ld: mm/a.o:(.data+0x8): undefined reference to `g'\n",
            "ld: mm/a.o:(.data+0x8): undefined reference to `g'",
        ),
        (
            'ERROR: modpost: "slow" [drivers/block/brd.ko] undefined!\n',
            'drivers/block/brd.c: "slow" [drivers/block/brd.ko] undefined!',
        ),
        (
            "../arch/x86/lib/x.S:7: Error: no such instruction: `movx'\n",
            "arch/x86/lib/x.S:7: no such instruction: `movx'",
        ),
        ("../mm/Kconfig:12: syntax error\n", "mm/Kconfig:12: syntax error"),
        (
            "../mm/Makefile:9: *** missing separator.  Stop.\n",
            "mm/Makefile:9: missing separator. Stop.",
        ),
        ("../x.c:1:2: error: #error \x1b[2J\u202e\n", "x.c:1: #error ?[2J?"),
        ("ERROR: modpost: vmlinux: x\n", "ERROR: modpost: vmlinux: x"),
        (
            "make[2]: *** No rule to make target 'mm/gone.o', needed by 'mm/built-in.a'.  Stop.\n",
            "make[2]: *** No rule to make target 'mm/gone.o', needed by 'mm/built-in.a'. Stop.",
        ),
    ],
)
def test_other_kinds_of_errors(log: str, first: str) -> None:
    assert str(mistakes(log)[0]) == first
    assert host_trouble(log) == ""


def test_a_log_without_mistakes_has_none() -> None:
    assert mistakes("  CC      mm/filemap.o\n") == ()


@pytest.mark.parametrize(
    "line",
    [
        "gcc: fatal error: Killed signal terminated program cc1",
        "make[3]: *** [../scripts/Makefile.build:229: mm/filemap.o] Killed",
        "collect2: fatal error: ld terminated with signal 9 [Killed]",
        "/bin/sh: line 1:  4242 Killed                  gcc -c x.c",
        "cc1: out of memory allocating 65536 bytes after a total of 1 bytes",
        "virtual memory exhausted: Cannot allocate memory",
        "/tmp/ccX.s: fatal error: error writing to /tmp/ccX.s: No space left on device",
        "/bin/sh: 1: flex: not found",
    ],
)
def test_trouble_of_the_host_is_recognised_among_errors(line: str) -> None:
    assert host_trouble(f"{COMPILER}{line}\n  CC      b.o\n") == clean(line)


@pytest.mark.parametrize(
    "line",
    [
        "  CC      mm/oom_kill.o",
        "../mm/x.c:3:1: error: 'Killed' undeclared (first use in this function)",
        "    3 |         Killed = 1;",
        "../mm/x.c:1:10: fatal error: killed.h: No such file or directory",
    ],
)
def test_words_in_the_source_are_not_trouble_of_the_host(line: str) -> None:
    assert host_trouble(line + "\n") == ""


def test_the_object_that_failed_is_that_of_the_first_mistake() -> None:
    """With several jobs make names objects in another order than the compilers do."""
    log = COMPILER.replace("make[3]", "make[3]: *** [../s:2: lib/xarray.o] Error 1\nmake[3]")
    assert failed_object(log, mistakes(log)[0]) == "mm/filemap.o"
    assert failed_object(log, Mistake("x")) == "lib/xarray.o"


@pytest.mark.parametrize(
    ("line", "target"),
    [
        ("make[1]: *** [../Makefile:21: mm/filemap.o] Error 1", "mm/filemap.o"),
        ("make[3]: *** [mm/filemap.o] Error 2", "mm/filemap.o"),
        (
            "make[2]: *** [../scripts/Makefile.build:113: arch/x86/kernel/asm-offsets.s] Error 1",
            "arch/x86/kernel/asm-offsets.s",
        ),
        ("make[1]: *** [../scripts/Makefile.vmlinux:34: vmlinux] Error 1", ""),
        ("make[2]: *** No rule to make target 'mm/gone.o', needed by 'mm/built-in.a'.  Stop.", ""),
        ("make[2]: *** Deleting file 'mm/filemap.o'", ""),
        ("make[3]: *** Waiting for unfinished jobs....", ""),
    ],
)
def test_only_what_one_compiler_made_is_an_object(line: str, target: str) -> None:
    assert failed_object(f"  CC      a.o\n{line}\n", Mistake("x")) == target


def test_a_mistake_in_code_that_includes_a_patched_header() -> None:
    log = """\
In file included from ../include/linux/xarray.h:19,
                 from ../lib/xarray.c:13:
../include/linux/gfp.h: In function 'f':
../include/linux/gfp.h:9:1: error: unknown type name 'nothing'
"""
    (mistake,) = mistakes(log)
    assert mistake.file == "include/linux/gfp.h"
    assert mistake.through == ("include/linux/xarray.h", "lib/xarray.c")
    failed = (
        "make[3]: *** [../s:2: mm/slow.o] Error 1\nmake[3]: *** [../s:2: lib/xarray.o] Error 1\n"
    )
    assert failed_object(f"{log}{failed}", mistake) == "lib/xarray.o"


OLD = """\
  CC      mm/filemap.o
../mm/filemap.c:10:5: warning: unused variable 'x' [-Wunused-variable]
"""


def test_only_warnings_that_the_base_lacks_are_new() -> None:
    log = """\
  CC      mm/filemap.o
../mm/filemap.c:14:5: warning: unused variable 'x' [-Wunused-variable]
../mm/filemap.c:20:5: warning: unused variable 'y' [-Wunused-variable]
../mm/filemap.c:20:5: warning: unused variable 'y' [-Wunused-variable]
  CC      lib/xarray.o
../lib/xarray.c:3:1: warning: odd
mm/filemap.o: warning: objtool: f+0x1: unreachable instruction
"""
    assert new_warnings(OLD, log) == (
        "mm/filemap.c:20: unused variable 'y' [-Wunused-variable]",
        "lib/xarray.c:3: odd (the base's own build of it was not seen)",
        "mm/filemap.o: objtool: f+0x1: unreachable instruction",
    )
    assert len(warnings(log)) == 5
    assert new_warnings(log, log) == ()
    assert new_warnings("", "") == ()


def test_a_warning_in_a_header_belongs_to_who_includes_it() -> None:
    log = """\
In file included from ../mm/filemap.c:3:
../include/x.h:3:1: warning: odd
"""
    assert new_warnings(OLD, log) == ("include/x.h:3: odd",)
    assert new_warnings("", log) == (
        "include/x.h:3: odd (the base's own build of it was not seen)",
    )


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16])
def test_the_first_failing_of_any_series_in_few_attempts(count: int) -> None:
    for culprit in range(count + 1):
        tried: list[int] = []

        def builds(number: int, culprit: int = culprit, tried: list[int] = tried) -> bool:
            tried.append(number)
            return number < culprit

        assert first_failing(count, builds) == culprit
        assert len(tried) == len(set(tried)) <= 2 * math.ceil(math.log2(count + 1))
        assert count not in tried, "that the whole series fails is known"


def test_the_answer_holds_for_every_order_of_good_and_bad() -> None:
    """Patches may break what earlier ones mended: n - 1 builds, n does not."""
    for states in itertools.product([True, False], repeat=6):
        builds = (*states, False)
        number = first_failing(6, builds.__getitem__)
        assert not builds[number]
        assert number == 0 or builds[number - 1]


def test_what_was_mended_is_not_blamed() -> None:
    builds = (True, True, False, True, True, False)
    assert first_failing(5, builds.__getitem__) == 5
