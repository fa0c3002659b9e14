"""Call stacks: what the plugin has to know of a kernel's functions, and what it says of paths.

``stacks.c`` says what the words mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from experiment.architecture import X86_64
from guests.probe.counts import Counts, CountsError, Rows
from kernels.addresses import AddressTable, FunctionMap
from kernels.cache import Kernel
from results.profile import SMALLER, UNKNOWN, StackFrame

# Where the CPU begins to handle an interrupt or an exception, on top of what it executed.
ENTERS = re.compile(r"asm_(exc|sysvec|common_interrupt|spurious_interrupt|fred)\w*")
# Where a task has no kernel function below: a call of the system, and a task's first steps.
BEGINS = re.compile(r"entry_(SYSCALL|SYSENTER|INT80|SYSRETL)\w*|ret_from_fork_asm")
SWITCHES = re.compile(r"__switch_to_asm")
WORDS = {"enter": ENTERS, "begin": BEGINS, "switches": SWITCHES}
# Paths below this share of the kernel's instructions, with all that they called, are put together.
LEAST_SHARE = 0.00005


def words(kernel: Kernel, table: AddressTable) -> tuple[str, ...]:
    """The functions of one kernel; empty for one whose stacks are not followed."""
    places = [
        f"{word}={start:x}"
        for word, pattern in WORDS.items()
        for name, starts in sorted(table.at.items())
        if pattern.fullmatch(name)
        for start in starts
    ]
    if kernel.identity.arch != X86_64.name or not any(p.startswith("switches=") for p in places):
        return ()
    return tuple(places)


def fold(of: Counts, phase: int, functions: FunctionMap) -> tuple[StackFrame, ...]:
    """One phase's stacks: each path by its functions, callers before what they called.

    What the user's code executed is in none of them.

    Raises:
        CountsError: a path that leads to no beginning.
    """
    tree = _Tree(_names(of.paths, functions), of.paths["parent"].tolist())
    for row in of.stacks[of.stacks["phase"] == phase]:
        tree.add(int(row["path"]), int(row["instructions"]), int(row["calls"]))
    return tuple(tree.frames())


def _names(paths: Rows, functions: FunctionMap) -> list[str]:
    at = np.searchsorted(functions.table.starts, paths["function"], side="right") - 1
    return [
        functions.named[int(functions.owner[start])][0] if start >= 0 else UNKNOWN
        for start in at.tolist()
    ]


class _Tree:
    """Paths by their names: what is split into parts in one kernel is one function."""

    def __init__(self, names: Sequence[str], parents: Sequence[int]) -> None:
        self.children: list[dict[str, int]] = [{}]
        self.spent = [[0, 0]]
        self.of_path: list[int] = [0]
        for number, parent in enumerate(parents[1:], start=1):
            if parent >= number:
                raise CountsError(f"path {number} is called from path {parent}")
            self.of_path.append(self._child(self.of_path[parent], names[number]))

    def _child(self, parent: int, name: str) -> int:
        known = self.children[parent]
        if name not in known:
            known[name] = len(self.children)
            self.children.append({})
            self.spent.append([0, 0])
        return known[name]

    def add(self, path: int, instructions: int, calls: int) -> None:
        if path >= len(self.of_path):
            raise CountsError(f"path {path} of {len(self.of_path)}")
        spent = self.spent[self.of_path[path]]
        spent[0] += instructions
        spent[1] += calls

    def frames(self) -> Iterator[StackFrame]:
        # Those that were called are behind their callers.
        below = [own for own, _ in self.spent]
        for number in range(len(self.children) - 1, -1, -1):
            below[number] += sum(below[child] for child in self.children[number].values())
        least = (below[0] - self.spent[0][0]) * LEAST_SHARE
        pending = [(0, number, name) for name, number in sorted(self.children[0].items())][::-1]
        while pending:
            depth, number, name = pending.pop()
            if not below[number]:
                continue
            own, calls = self.spent[number]
            yield StackFrame(depth=depth, function=name, instructions=own, calls=calls)
            called = sorted(self.children[number].items())
            small = sum(below[child] for _, child in called if below[child] < least)
            if small:
                yield StackFrame(depth=depth + 1, function=SMALLER, instructions=small, calls=0)
            pending += [
                (depth + 1, child, name)
                for name, child in reversed(called)
                if below[child] >= least
            ]
