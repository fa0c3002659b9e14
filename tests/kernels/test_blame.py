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
from tests.values import data
from text import clean

COMPILER = data(__file__, "compiler")


def test_first_real_errors_with_paths_from_the_top() -> None:
    assert tuple(map(str, mistakes(COMPILER))) == (
        "mm/filemap.c:881: 'nothing' undeclared (first use in this function)",
        "mm/filemap.c:900: expected ';'",
        "mm/filemap.c:901: third",
    )


@pytest.mark.parametrize(("log", "first"), data(__file__, "other_kinds_of_errors"))
def test_other_kinds_of_errors(log: str, first: str) -> None:
    assert str(mistakes(log)[0]) == first
    assert host_trouble(log) == ""


def test_a_log_without_mistakes_has_none() -> None:
    assert mistakes("  CC      mm/filemap.o\n") == ()


@pytest.mark.parametrize("line", data(__file__, "trouble_of_the_host_is_recognised_among_errors"))
def test_trouble_of_the_host_is_recognised_among_errors(line: str) -> None:
    assert host_trouble(f"{COMPILER}{line}\n  CC      b.o\n") == clean(line)


@pytest.mark.parametrize("line", data(__file__, "words_in_the_source_are_not_trouble_of_the_host"))
def test_words_in_the_source_are_not_trouble_of_the_host(line: str) -> None:
    assert host_trouble(line + "\n") == ""


def test_the_object_that_failed_is_that_of_the_first_mistake() -> None:
    """With several jobs make names objects in another order than the compilers do."""
    log = COMPILER.replace("make[3]", "make[3]: *** [../s:2: lib/xarray.o] Error 1\nmake[3]")
    assert failed_object(log, mistakes(log)[0]) == "mm/filemap.o"
    assert failed_object(log, Mistake("x")) == "lib/xarray.o"


@pytest.mark.parametrize(
    ("line", "target"), data(__file__, "only_what_one_compiler_made_is_an_object")
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
