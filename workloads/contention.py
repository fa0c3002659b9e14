"""Waits for locks by the kernel's contention events: pure, from tracefs' ``hist`` files.

The agent keeps the begin of a wait by task and lock, and sums what the ends yield by
kind of lock and stack.  The format is that of kernel/trace/trace_events_hist.c.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from results.profile import PhaseLocks, Wait
from workloads.parse import ParseError

CLOCK = re.compile(r"time\.tv_sec: +(\d+)\n.*time\.tv_usec: +(\d+)\n")
BEGINS, ENDS, WAITS = "contention_begin", "contention_end", "lock_wait"
# LCB_F_* of include/trace/events/lock.h, from bit 0 on.  A semaphore sets none.
FLAGS = ("SPIN", "READ", "WRITE", "RT", "PERCPU", "MUTEX")
NO_FLAGS = "SEMAPHORE"
ENTRY = re.compile(
    r"\{ flags: +(\d{1,19}), stack\.stacktrace(.*?)\} hitcount: +(\d{1,19}) +wait_ns: +(\d{1,20})",
    re.DOTALL,
)
# Only from where a word begins: looked for from each of its letters, a long one takes minutes.
FRAME = re.compile(
    r"(?<![^\s+])([^\s+]+)\+0x[0-9a-f]+/0x[0-9a-f]+(?: \[\S+\])?|(0x[0-9a-f]+|[0-9a-f]{16})"
)
TOTALS = re.compile(
    r"Totals:\n +Hits: (\d{1,20})\n +Entries: (\d{1,20})\n +Dropped: (\d{1,20})\n?\Z"
)
# What stands between the event and the caller that wanted the lock.
LOCK_FUNCTION = re.compile(
    r"_*(native_|pv_)*queued_(spin|read|write)_lock_slowpath"
    r"|_*(do_)?raw_(spin|read|write)_(try)?lock\w*"
    r"|_*(ww_)?(rt_)?mutex_\w*lock\w*"
    r"|_*rwsem_\w+|_*percpu_(rwsem_wait|down_\w+)"
    r"|_*down(_read|_write|_interruptible|_killable|_timeout|_common|_trylock)*(_nested|_nest_lock)*"
    r"|_*(down_read|down_write)_(killable|interruptible)\w*"
    r"|_*traceiter_\w+|trace_\w+|event_\w+|hist_trigger\w*|stack_trace_save\w*"
)


def phase_locks(files: Mapping[str, bytes], phase: str) -> PhaseLocks:
    """Read one phase's files of locks; ParseError: one is missing, cut short or other."""
    folder = f"{phase}/locks"

    def text(name: str) -> str:
        try:
            return files[f"{folder}/{name}"].decode(errors="replace")
        except KeyError:
            raise ParseError(f"{folder}/{name}: not among the files the guest sent") from None

    # Nanoseconds of the guest's clock as busybox's ``adjtimex`` prints it.
    times = []
    for name in ("begin", "end"):
        match = CLOCK.search(text(name))
        if match is None:
            raise ParseError(f"{folder}/{name}: no time in it")
        times.append(int(match[1]) * 10**9 + int(match[2]) * 1000)
    texts = {name: text(name) for name in (BEGINS, ENDS, WAITS)}
    try:
        summed, dropped = waits(texts)
    except ParseError as error:
        raise ParseError(f"{folder}: {error}") from None
    return PhaseLocks(phase=phase, virtual_ns=times[1] - times[0], waits=summed, dropped=dropped)


def waits(files: Mapping[str, str]) -> tuple[tuple[Wait, ...], int]:
    """Waits by caller and kind of lock, longest first, and how many events were dropped.

    ``files`` maps the events' names (``contention_begin``, ``contention_end``, ``lock_wait``) to
    their ``hist`` files.  Raises ParseError: a file is missing, cut short or not the kernel's
    format, or its totals do not agree with its entries.
    """
    missing = [name for name in (BEGINS, ENDS, WAITS) if name not in files]
    if missing:
        raise ParseError(f"no histogram of {', '.join(missing)}")
    dropped = sum(_totals(name, files[name])[1] for name in (BEGINS, ENDS, WAITS))
    entries = ENTRY.findall(files[WAITS])
    announced, _ = _totals(WAITS, files[WAITS])
    if len(entries) != announced:
        raise ParseError(f"{WAITS}: {len(entries)} entries, {announced} announced")
    counts: dict[tuple[tuple[str, ...], str], int] = defaultdict(int)
    times: dict[tuple[tuple[str, ...], str], int] = defaultdict(int)
    for flags, stack, hits, wait_ns in entries:
        key = (callers(stack), kind(int(flags)))
        counts[key] += int(hits)
        times[key] += int(wait_ns)
    rows = [
        Wait(callers=key[0], flags=key[1], count=count, total_ns=float(times[key]))
        for key, count in counts.items()
    ]
    return tuple(sorted(rows, key=lambda wait: (-wait.total_ns, wait.callers, wait.flags))), dropped


def callers(stack: str) -> tuple[str, ...]:
    """Functions of a printed stack, innermost first, without lock functions (if others are)."""
    functions = tuple(match[1] or match[2] for match in FRAME.finditer(stack))
    for depth, function in enumerate(functions):
        # The compiler's copies of a function have its name and a suffix.
        if not LOCK_FUNCTION.fullmatch(function.partition(".")[0]):
            return functions[depth:]
    return functions


def kind(flags: int) -> str:
    """The kernel's words for the flags of a lock, as ``SPIN|READ``."""
    words = [word for bit, word in enumerate(FLAGS) if flags >> bit & 1]
    return "|".join(words) or NO_FLAGS


def _totals(name: str, text: str) -> tuple[int, int]:
    """Entries and dropped events of a histogram."""
    match = TOTALS.search(text)
    if match is None:
        raise ParseError(f"{name}: no totals at its end")
    return int(match[2]), int(match[3])
