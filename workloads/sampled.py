"""Samples that perf took of lock slow paths: pure, from the agent's summary to waits.

The agent samples every CPU by its clock and folds the stacks in the guest: a line
``total N`` for all samples of busy CPUs, then ``COUNT FUNCTION;CALLER;...`` for each
stack whose innermost function waits for a lock.
"""

from __future__ import annotations

import re

from results.locks import Wait
from workloads.contention import LOCK_FUNCTION
from workloads.parse import ParseError

FILE = "perf"
# What the agent asks perf for: no round number, so that it does not beat with timers, and
# few enough that translated code gets on (at 997 a guest under TCG did nothing else).
FREQUENCY_HZ = 199
KIND = "sampled"
LINE = re.compile(r"(\d{1,15}) (\S+)")
TOTAL = re.compile(r"total (\d{1,15})")


def waits(text: str) -> tuple[tuple[Wait, ...], int]:
    """Samples in slow paths by callers, most first, and how many samples there are in all.

    A sample stands for 1/199 of a second of one CPU.

    Raises:
        ParseError: no total, a line of another form, or more samples in slow paths than
            there are.
    """
    lines = text.splitlines()
    totals = [int(match[1]) for line in lines if (match := TOTAL.fullmatch(line))]
    if len(totals) != 1:
        raise ParseError(f"{FILE}: {len(totals)} lines of totals, one is wanted")
    counts: dict[tuple[str, ...], int] = {}
    for line in lines:
        if TOTAL.fullmatch(line):
            continue
        match = LINE.fullmatch(line)
        if match is None:
            raise ParseError(f"{FILE}: not COUNT and a stack: {line[:80]!r}")
        callers = _callers(match[2])
        counts[callers] = counts.get(callers, 0) + int(match[1])
    if sum(counts.values()) > totals[0]:
        raise ParseError(f"{FILE}: {sum(counts.values())} samples in slow paths of {totals[0]}")
    rows = [
        Wait(callers=callers, flags=KIND, count=count, total_ns=count * 1e9 / FREQUENCY_HZ)
        for callers, count in counts.items()
    ]
    return tuple(sorted(rows, key=lambda wait: (-wait.count, wait.callers))), totals[0]


def _callers(stack: str) -> tuple[str, ...]:
    """Who wanted the lock, from the inside out; a stack of lock functions stays whole."""
    functions = tuple(stack.split(";"))
    for depth, function in enumerate(functions):
        if not LOCK_FUNCTION.fullmatch(function.partition(".")[0]):
            return functions[depth:]
    return functions
