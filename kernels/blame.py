"""What a build says, and whose fault it is when it fails.  Pure: log text in, verdict out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice

from text import clean

ERRORS_SHOWN = 3
# The same error may be there for each file that includes it.
MOST_READ = 1000
# Trouble of the host; the first match decides, whatever else is in the log.
HOST_TROUBLE = re.compile(
    r"^.*(?:fatal error: Killed signal|terminated with signal 9|\] Killed\b|\b\d+ Killed\b"
    r"|\bKilled$|virtual memory exhausted|out of memory allocating|Cannot allocate memory"
    r"|No space left on device|Disk quota exceeded|Read-only file system|Input/output error"
    r"|: not found$|: command not found|Text file busy|internal compiler error: Segmentation).*$",
    re.M,
)
# Compiler and assembler; then Kconfig and make, which have a place, too.
PLACED = re.compile(
    r"^(?P<file>[^\s:]+):(?P<line>\d{1,9}):(?:"
    r"(?:\d+:)? (?:fatal )?[Ee]rror: (?P<text>.*)"
    r"|\s*(?P<kconfig>.*(?:syntax error|unknown statement|unknown option|recursive dependency).*)"
    r"| \*\*\* (?P<make>.*))$",
    re.M,
)
# The linker names the object in one line and the mistake in the next.
LINKER = re.compile(
    r"^(?:\S*ld[^:\s]*: )?(?P<object>[^\s:]+\.o): in function .*\n"
    r"(?P<text>.*(?:undefined reference to|multiple definition of).*)$",
    re.M,
)
MODPOST = re.compile(r"^ERROR: modpost: (?P<text>.*?\[(?P<object>[^\]]+)\.ko\].*)$", re.M)
OTHER = re.compile(
    r"^(?P<text>.*(?:undefined reference to|multiple definition of|\berror: |\bError: "
    r"|\bERROR: modpost: ).*)$",
    re.M,
)
# "make[3]: *** [../scripts/Makefile.build:229: mm/filemap.o] Error 1"
FAILED = re.compile(r"^make.*: \*\*\* \[(?:[^\]]*: )?(?P<target>[^\]\s]+\.[os])\] Error \d+$", re.M)
MAKE = re.compile(r"^(?P<text>make.*: \*\*\* .*)$", re.M)
WARNING = re.compile(
    r"^(?P<file>[^\s:]+):(?P<line>\d{1,9}):(?:\d+:)? [Ww]arning: (?P<text>.*)$", re.M
)
OBJTOOL = re.compile(r"^(?P<file>\S+\.o): warning: (?P<text>objtool: .*)$", re.M)
INCLUDED = re.compile(r"^(?:In file included|\s+) from (?P<file>[^\s:]+):\d+[:,]$", re.M)
COMPILED = re.compile(r"^  (?:CC|AS)(?: \[M\])? +(?P<object>\S+)\.o$", re.M)


@dataclass(frozen=True)
class Mistake:
    """One error or warning; ``file`` is a path from the tree's top, empty where none is named.

    ``through`` are the files it was included from, the innermost first.
    """

    text: str
    file: str = ""
    line: int = 0
    through: tuple[str, ...] = ()

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.line else f"{self.file}: " if self.file else ""
        return clean(f"{place}{self.text}")


def host_trouble(log: str) -> str:
    """The line that shows that the host failed (memory, disk, a missing tool), or nothing."""
    match = HOST_TROUBLE.search(log)
    return clean(match[0]) if match else ""


def mistakes(log: str) -> tuple[Mistake, ...]:
    """The first real errors of a failed build, at most three.

    What make says of them is only used where nothing else is said.
    """
    mistakes = [
        Mistake(
            match["text"] or match["kconfig"] or match["make"] or "",
            _from_top(match["file"]),
            int(match["line"]),
            _through(log, match.start()),
        )
        for match in islice(PLACED.finditer(log), MOST_READ)
    ]
    for pattern in (LINKER, MODPOST):
        mistakes = mistakes or [
            Mistake(match["text"].strip(), _source_of(match["object"], match["text"]))
            for match in islice(pattern.finditer(log), MOST_READ)
        ]
    for pattern in (OTHER, MAKE):
        mistakes = mistakes or [
            Mistake(match["text"].strip()) for match in islice(pattern.finditer(log), MOST_READ)
        ]
    return tuple(dict.fromkeys(mistakes))[:ERRORS_SHOWN]


def failed_object(log: str, mistake: Mistake) -> str:
    """The object that make could not build, as ``mm/filemap.o``; empty where it was none.

    Of several that failed at once it is that of the mistake, else the first.
    """
    objects = [match["target"] for match in FAILED.finditer(log)]
    unit = (mistake.file, *mistake.through)[-1]
    own = [name for name in objects if name.rpartition(".")[0] == unit.rpartition(".")[0]]
    return clean((own or objects or [""])[0])


def new_warnings(base_log: str, patched_log: str) -> tuple[str, ...]:
    """Warnings of the patched build that the base build does not have, each once.

    A warning that only moved to another line is not new.  Builds start from each
    other's objects: where the base's log does not compile a file, it is not known
    whether the warning is new, and that is said.
    """
    before = {(warning.file, warning.text) for warning in warnings(base_log)}
    compiled = {match["object"] for match in COMPILED.finditer(base_log)}
    lines: dict[tuple[str, str], str] = {}
    for warning in warnings(patched_log):
        if (warning.file, warning.text) in before:
            continue
        sources = [name for name in (warning.file, *warning.through) if not name.endswith(".h")]
        is_compiled = any(re.sub(r"\.[cSo]$", "", name) in compiled for name in sources)
        doubt = "" if is_compiled else " (the base's own build of it was not seen)"
        lines.setdefault((warning.file, warning.text), f"{warning}{doubt}")
    return tuple(lines.values())


def warnings(log: str) -> tuple[Mistake, ...]:
    """All warnings of compiler, assembler and objtool, in their order."""
    mistakes = [
        (
            match.start(),
            Mistake(
                match["text"],
                _from_top(match["file"]),
                int(match["line"]),
                _through(log, match.start()),
            ),
        )
        for match in WARNING.finditer(log)
    ]
    mistakes += [
        (match.start(), Mistake(match["text"], _from_top(match["file"])))
        for match in OBJTOOL.finditer(log)
    ]
    return tuple(mistake for _, mistake in sorted(mistakes, key=lambda pair: pair[0]))


def _source_of(linked: str, text: str) -> str:
    """The source of what a linker complains about; without its folder in a linked whole."""
    inside = re.search(r"([^\s:/]+\.[cS]):\(", text)
    if linked.startswith("vmlinux") and inside:
        return clean(inside[1])
    return _from_top(f"{linked.removesuffix('.o')}.c")


def _through(log: str, end: int) -> tuple[str, ...]:
    """The include chain printed right before ``end``, innermost first."""
    lines = log[max(0, end - 4000) : end].splitlines()
    while (lines and ": In function " in lines[-1]) or (lines and ": At top level" in lines[-1]):
        lines.pop()
    chain: list[str] = []
    for line in reversed(lines):
        match = INCLUDED.match(line)
        if match is None:
            break
        chain.insert(0, _from_top(match["file"]))
    return tuple(chain)


def _from_top(path: str) -> str:
    return clean(path.removeprefix("../").removeprefix("./"))
