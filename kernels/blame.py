"""Whose fault a failed build is: what its log says, and which patch it stops building with."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from kernels.series import Patch
from kernels.worktree import WorkTree, switch
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
    """One error or warning: ``file`` from the tree's top, and through what it was included."""

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
    """The first errors of a failed build, at most three; make's own where there are no others."""
    errors: list[Mistake] = []
    for pattern in (PLACED, LINKER, MODPOST, OTHER, MAKE):
        for match in islice(() if errors else pattern.finditer(log), MOST_READ):
            groups = match.groupdict()
            text = groups["text"] or groups.get("kconfig") or groups.get("make") or ""
            if groups.get("file"):
                errors.append(_placed(log, match, text))
            else:
                linked = groups.get("object", "")
                errors.append(Mistake(text.strip(), _source_of(linked, text) if linked else ""))
    return tuple(dict.fromkeys(errors))[:ERRORS_SHOWN]


def failed_object(log: str, mistake: Mistake) -> str:
    """The object that make could not build, that of the mistake if it can; empty for none."""
    objects = [match["target"] for match in FAILED.finditer(log)]
    unit = (mistake.file, *mistake.through)[-1]
    own = [name for name in objects if name.rpartition(".")[0] == unit.rpartition(".")[0]]
    return clean((own or objects or [""])[0])


def new_warnings(base_log: str, patched_log: str) -> tuple[str, ...]:
    """Warnings of the patched build that the base build does not have, wherever they moved to;
    where the base's log does not compile a file, doubt is said.
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
    matches = [*WARNING.finditer(log), *OBJTOOL.finditer(log)]
    return tuple(
        _placed(log, match, match["text"])
        for match in sorted(matches, key=lambda match: match.start())
    )


def _source_of(linked: str, text: str) -> str:
    """The source of what a linker complains about; without its folder in a linked whole."""
    inside = re.search(r"([^\s:/]+\.[cS]):\(", text)
    if linked.startswith("vmlinux") and inside:
        return clean(inside[1])
    return _from_top(f"{linked.removesuffix('.o')}.c")


def _placed(log: str, match: re.Match[str], text: str) -> Mistake:
    """A mistake with its place and the include chain printed right before it, innermost first."""
    lines = log[max(0, match.start() - 4000) : match.start()].splitlines()
    while lines and (": In function " in lines[-1] or ": At top level" in lines[-1]):
        lines.pop()
    through: list[str] = []
    while lines and (included := INCLUDED.match(lines.pop())):
        through.insert(0, _from_top(included["file"]))
    line = int(match.groupdict().get("line") or 0)
    return Mistake(text, _from_top(match["file"]), line, tuple(through))


def _from_top(path: str) -> str:
    return clean(path.removeprefix("../").removeprefix("./"))


log = logging.getLogger(__name__)

SOURCES = (".c", ".S")


@dataclass(frozen=True)
class Goal:
    """What is built to find the patch at fault: one object of ``source``, or the kernel."""

    title: str
    argvs: tuple[Sequence[str], ...]
    source: str = ""


def source_of(tree: WorkTree, target: str) -> str:
    """The file in the tree that an object, as ``mm/filemap.o``, is made of; empty if none is."""
    stem = target.rpartition(".")[0]
    return next((f"{stem}{end}" for end in SOURCES if (tree.src / f"{stem}{end}").is_file()), "")


def culprit(
    tree: WorkTree,
    patches: Sequence[Patch],
    goals: Sequence[Goal],
    make: Callable[[Sequence[str]], bool],
    *,
    source_builds: bool,
    boxed: bool = False,
) -> tuple[int, Goal]:
    """Find the patch with which the last of ``goals`` stops building, by the first that shows it.

    Returns its number, from 1, or 0 for the source itself, and the goal that was built for it.
    All of ``patches`` are applied, and the last goal is known to fail; ``make`` runs one command
    and says whether it ended well.  ``source_builds``: the last goal is known to be made without
    any patch.  The tree is left with some of the patches.  The caller holds its lock.
    """

    def builds(goal: Goal, number: int) -> bool:
        if goal is goals[-1] and not number and source_builds:
            return True
        switch(tree, patches[:number], boxed=boxed)
        if goal.source and not (tree.src / goal.source).is_file():
            return True  # a later patch brings it
        good = all(make(argv) for argv in goal.argvs)
        log.info(
            "looking for the patch at fault: with %d of %d patches %s %s",
            number,
            len(patches),
            goal.title,
            "builds" if good else "does not build",
        )
        return good

    for goal in goals[:-1]:
        # What builds by itself, or never does, shows nothing: all of the kernel is built then.
        if not builds(goal, len(patches)):
            number = first_failing(len(patches), partial(builds, goal))
            if number:
                return number, goal
    return first_failing(len(patches), partial(builds, goals[-1])), goals[-1]


def first_failing(count: int, builds: Callable[[int], bool]) -> int:
    """The first of ``count`` patches with which a series that does not build stops building.

    ``builds`` tries the first n patches.  The answer n is true in this sense: it builds with
    n - 1 patches and does not with n; 0: it does not build without any.  The search goes back
    from the end in growing steps and then halves the rest, as git bisect does: a mistake that
    a later patch mended is not named, and a series takes 2 log2(count) attempts at most.
    """
    failing, working, step = count, max(0, count - 1), 1
    while not builds(working):
        if not working:
            return 0
        step *= 2
        failing, working = working, max(0, working - step)
    while failing - working > 1:
        middle = (failing + working) // 2
        if builds(middle):
            working = middle
        else:
            failing = middle
    return failing
