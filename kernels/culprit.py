"""Which patch breaks a build: what failed is built again with fewer of them.

The file of the first error says little: what it calls may have gone away in another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from kernels.series import Patch
from kernels.worktree import WorkTree, switch

log = logging.getLogger(__name__)

SOURCES = (".c", ".S")


@dataclass(frozen=True)
class Goal:
    """What is built to see which patch is at fault: one object, or all of the kernel.

    ``title`` is for people, ``argvs`` are make's commands, one after another; ``source`` is
    the object's file in the tree, empty for the kernel.
    """

    title: str
    argvs: tuple[Sequence[str], ...]
    source: str = ""


@dataclass(frozen=True)
class Culprit:
    """The ``number`` of a patch, from 1, or 0 for the source itself, and what was built for it."""

    number: int
    goal: Goal


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
) -> Culprit:
    """Find the patch with which the last of ``goals`` stops building, by the first that shows it.

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
            number, len(patches), goal.title, "builds" if good else "does not build",
        )  # fmt: skip
        return good

    for goal in goals[:-1]:
        # What builds by itself, or never does, shows nothing: all of the kernel is built then.
        if not builds(goal, len(patches)):
            number = first_failing(len(patches), partial(builds, goal))
            if number:
                return Culprit(number, goal)
    number = first_failing(len(patches), partial(builds, goals[-1]))
    return Culprit(number, goals[-1])


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
