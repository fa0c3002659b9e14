from __future__ import annotations

import pytest

from kernels.blame import first_errors, host_trouble

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
    assert first_errors(COMPILER) == (
        "mm/filemap.c:881: 'nothing' undeclared (first use in this function)",
        "mm/filemap.c:900: expected ';'",
        "mm/filemap.c:901: third",
    )


@pytest.mark.parametrize(
    ("log", "first"),
    [
        ("../mm/x.c:1:10: fatal error: no.h: No such file or directory\n",
         "mm/x.c:1: no.h: No such file or directory"),
        ("ld: mm/filemap.o: in function `f':\nfilemap.c:(.text+0x1): undefined reference to `g'\n",
         "filemap.c:(.text+0x1): undefined reference to `g'"),
        ("ERROR: modpost: vmlinux: x\n", "ERROR: modpost: vmlinux: x"),
        ("make[2]: *** No rule to make target 'mm/gone.o', needed by 'mm/built-in.a'.  Stop.\n",
         "make[2]: *** No rule to make target 'mm/gone.o', needed by 'mm/built-in.a'.  Stop."),
    ],
)  # fmt: skip
def test_other_kinds_of_errors(log: str, first: str) -> None:
    assert first_errors(log)[0] == first
    assert host_trouble(log) == ""


def test_nothing_found_is_nothing() -> None:
    assert first_errors("  CC      mm/filemap.o\n") == ()


@pytest.mark.parametrize(
    "line",
    [
        "gcc: fatal error: Killed signal terminated program cc1",
        "make[3]: *** [../scripts/Makefile.build:229: mm/filemap.o] Killed",
        "/bin/sh: line 1:  4242 Killed                  gcc -c x.c",
        "cc1: out of memory allocating 65536 bytes after a total of 1 bytes",
        "virtual memory exhausted: Cannot allocate memory",
        "/tmp/ccX.s: fatal error: error writing to /tmp/ccX.s: No space left on device",
        "/bin/sh: 1: flex: not found",
    ],
)
def test_trouble_of_the_host_is_found_among_errors(line: str) -> None:
    assert host_trouble(f"{COMPILER}{line}\n  CC      b.o\n") == line


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
