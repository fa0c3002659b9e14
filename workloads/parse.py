"""Parsers of what a guest sends back: pure, from file contents to numbers."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from errors import WorkloadError
from results.profile import PhaseLocks, Wait
from workloads.job_file import MOUNT

BRD = "1:0"
UNKNOWN_WORDS = re.compile(r'Unknown kernel command line parameters "(.*)", will be passed')
# Counters that metrics and validity read: a kernel without one cannot be judged.
MEMORY_STAT = ("file", "file_thp", "pgscan", "pgscan_direct", "pgsteal")
MEMORY_EVENTS = ("max", "oom", "oom_kill")
VMSTAT = (
    *("workingset_refault_file", "pgmajfault", "nr_active_file", "nr_inactive_file"),
    *("nr_shmem_hugepages", "nr_free_pages"),
)
PERCENTILES = ("50.000000", "99.000000", "99.900000")
CPU_STAT = ("usage_usec",)
# No counter of a kernel has more bits, with or without a sign.
MOST_DIGITS, MOST = 20, 1 << 64
Value = TypeVar("Value")


class ParseError(WorkloadError):
    """A result that is not what the agent writes; names the file and what is wrong."""


@dataclass(frozen=True)
class Observation:
    """What was read before or after a phase.

    ``memory_stat`` and ``vmstat`` map counters to values (bytes or events);
    ``device_read_bytes`` and ``device_written_bytes`` are what the cgroup moved
    to and from the brd, ``cpu_ns`` is its CPU time, ``memory_stall_ns`` the time in
    which any of its tasks waited for memory (PSI).  ``memory_max`` is the limit as
    the kernel writes it: bytes, or ``max``.
    """

    memory_stat: Mapping[str, int]
    memory_events: Mapping[str, int]
    memory_peak_bytes: int
    memory_max: str
    vmstat: Mapping[str, int]
    thp_enabled: str
    device_read_bytes: int
    device_written_bytes: int
    cpu_ns: int
    memory_stall_ns: int


@dataclass(frozen=True)
class Side:
    """What fio did in one direction."""

    ios: int
    io_bytes: int


@dataclass(frozen=True)
class FioResult:
    """fio's own figures for one phase, all jobs together; the ramp is not in them.

    ``runtime_ms`` is the longest of the jobs, ``asked_ms`` what they were told, 0 for jobs
    that were told a number of I/Os, ``asked_ios`` of all together;
    ``iops`` is fio's, over ``runtime_ms``.  ``sync_ns`` holds the percentiles of
    :data:`PERCENTILES` of how long fsync or fdatasync took, by fio's histogram, whose
    steps are 1.6 % wide; it is empty where fio never called them.
    """

    read: Side
    write: Side
    sync_ns: tuple[float, ...]
    ios: int
    io_bytes: int
    iops: float
    runtime_ms: int
    planned_ms: int
    ramp_ms: int
    error: int
    options: Mapping[str, str]
    planned_ios: int = 0


@dataclass(frozen=True)
class ProgramResult:
    """What a program of ours did: ``count`` times its operation, in ``ns`` of the guest's clock."""

    operation: str
    count: int
    seed: int
    ns: int


@dataclass(frozen=True)
class PhaseResult:
    """One phase as the guest saw it; of ``fio`` and ``program`` the one that it ran.

    ``mounted`` is what ``/proc/mounts`` says of the file system: its type and options.  Before it
    ``before_ns`` went by on the guest's own counter, since the phase before or since power-on: in
    an exact guest of one vCPU the instructions that no phase has.  None on arm64, whose counter
    has another rate.
    """

    name: str
    status: int
    fio: FioResult | None
    output: str
    before: Observation
    after: Observation
    mounted: str = ""
    program: ProgramResult | None = None
    before_ns: int | None = None


@dataclass(frozen=True)
class GuestResult:
    """Everything one run sent.  ``failure`` is the agent's own word when a step failed.

    ``sysctl`` is what the kernel said of the values that were written, by name;
    ``unknown_words`` are those of its command line that it did not know.
    """

    failure: str
    build_id: str
    release: str
    tainted: int
    phases: tuple[PhaseResult, ...]
    sysctl: Mapping[str, str] = field(default_factory=dict)
    unknown_words: frozenset[str] = frozenset()


def guest_result(files: Mapping[str, bytes], phases: tuple[str, ...]) -> GuestResult:
    """Read one run's files for these phases; ParseError: one is missing or unreadable."""
    failure = _text(files, "failure").strip() if "failure" in files else ""
    results: list[PhaseResult] = []
    ended_ns = 0
    for name in phases:
        if failure and f"{name}/status" not in files:
            break
        json_name, output = f"{name}/fio.json", _text(files, f"{name}/fio.out")
        phase = PhaseResult(
            name=name,
            status=_parsed(files, f"{name}/status", whole),
            fio=_parsed(files, json_name, fio_result) if json_name in files else None,
            output=output,
            program=program_result(output),
            before=_observation(files, f"{name}/before"),
            after=_observation(files, f"{name}/after"),
            mounted=mounted(_text(files, "mounts")) if "mounts" in files else "",
        )
        if b"x86_64" in files.get("uname", b"").split() and f"{name}/clock" in files:
            began_ns, last_ns = _parsed(files, f"{name}/clock", marks)
            phase, ended_ns = replace(phase, before_ns=began_ns - ended_ns), last_ns
        results.append(phase)
    # What an agent that stopped early may not have sent yet.
    later = {name: _text(files, name) for name in ("uname", "sysctl", "dmesg") if name in files}
    uname = later.get("uname", "").split()
    lines = (line.partition("=") for line in later.get("sysctl", "").splitlines())
    return GuestResult(
        failure=failure,
        build_id=build_id(files.get("notes", b"")),
        release=uname[2] if len(uname) > 2 else "",
        tainted=_parsed(files, "tainted", whole),
        phases=tuple(results),
        sysctl={name: " ".join(value.split()) for name, _, value in lines},
        unknown_words=unknown_words(later.get("dmesg", "")),
    )


def whole(value: object) -> int:
    """A number that a guest sent as a whole one of at most 64 bits; ParseError: it is none."""
    shown = str(value)[:40]
    try:
        short = not isinstance(value, str | bytes) or len(value.strip()) <= MOST_DIGITS
        number = int(value) if short else MOST  # type: ignore[call-overload]
    except (OverflowError, TypeError, ValueError):
        raise ParseError(f"no whole number: {shown!r}") from None
    if abs(number) >= MOST:
        raise ParseError(f"no number of 64 bits: {shown}...")
    return int(number)


def finite(value: object) -> float:
    """A number of a guest's JSON, finite and of at most 64 bits; ParseError: it is none."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (OverflowError, TypeError, ValueError):
        raise ParseError(f"no number: {str(value)[:40]!r}") from None
    if not math.isfinite(number) or abs(number) >= MOST:
        raise ParseError(f"no number of 64 bits: {number}")
    return number


def marks(text: str) -> tuple[int, int]:
    """When a phase began and ended, from ``NUMBER TICKS`` and ``0 TICKS``; ParseError: neither."""
    words = text.split()
    if len(words) != 4 or words[2] != "0":
        raise ParseError(f"no marks of a phase: {text[:40]!r}")
    return whole(words[1]), whole(words[3])


def unknown_words(dmesg: str) -> frozenset[str]:
    """The words of the command line that the kernel knows nothing of, as it says since 5.14."""
    match = UNKNOWN_WORDS.search(dmesg)
    return frozenset(match[1].split()) if match else frozenset()


def build_id(notes: bytes) -> str:
    """The GNU build id (hexadecimal) in ``/sys/kernel/notes``; empty when there is none."""
    offset = 0
    while offset + 12 <= len(notes):
        name_size, value_size, kind = (
            int.from_bytes(notes[offset + at : offset + at + 4], "little") for at in (0, 4, 8)
        )
        name_at = offset + 12
        value_at = name_at + (name_size + 3) // 4 * 4
        if kind == 3 and notes[name_at : name_at + name_size] == b"GNU\0":
            value = notes[value_at : value_at + value_size]
            return value.hex() if len(value) == value_size else ""
        offset = value_at + (value_size + 3) // 4 * 4
    return ""


def mounted(text: str) -> str:
    """``TYPE OPTIONS`` of what is mounted for fio, from ``/proc/mounts``; empty if nothing."""
    for line in text.splitlines():
        fields = line.split()
        if len(fields) > 3 and fields[1] == MOUNT:
            return f"{fields[2]} {fields[3]}"
    return ""


def counters(text: str) -> dict[str, int]:
    """``name value`` lines, as in vmstat and memory.stat; ParseError: no number."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: whole(pair[1]) for pair in pairs if len(pair) == 2}


def thp_selected(text: str) -> str:
    """The value in brackets of ``transparent_hugepage/enabled``."""
    return text.partition("[")[2].partition("]")[0]


def device_bytes(text: str, device: str) -> tuple[int, int]:
    """Bytes read and written by a cgroup on ``major:minor``, from its ``io.stat``.

    brd keeps no ``/proc/diskstats`` (it is bio-based and does no accounting of its own), while
    ``io.stat`` counts every bio that is submitted.  A device that was never used has no line.
    Raises ParseError: the device's line has no ``rbytes`` or ``wbytes``.
    """
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        if name == device:
            values = dict(pair.partition("=")[::2] for pair in rest.split())
            try:
                return whole(values["rbytes"]), whole(values["wbytes"])
            except (KeyError, ParseError) as error:
                raise ParseError(f"{line!r}: {error!r}") from None
    return 0, 0


def stalled_us(text: str) -> int:
    """Total of the ``some`` line of a pressure file, in microseconds; ParseError: none."""
    for line in text.splitlines():
        kind, *fields = line.split()
        values = dict(field.partition("=")[::2] for field in fields)
        if kind == "some" and values.get("total", "").isdigit():
            return whole(values["total"])
    raise ParseError(f"no total of 'some' in {text[:80]!r}")


def fio_result(text: str) -> FioResult | None:
    """Fio's JSON; None: it wrote none.  ParseError: cut short, or not what fio writes."""
    start = text.find("{")
    if start < 0:
        return None
    try:
        document: dict[str, Any] = json.loads(text[start:])
        job = document["jobs"][0]
        sides = [job["read"], job["write"]]
        read, write = (Side(_count(side["total_ios"]), _count(side["io_bytes"])) for side in sides)
        sync = job["sync"]["lat_ns"]
        percentiles = sync.get("percentile", {}) if sync["N"] else {}
        options = {**document.get("global options", {}), **job.get("job options", {})}
        planned_ios = _count(options.get("number_ios", 0)) * _count(options.get("numjobs", 1))
        runtime_ms = max(_count(side["runtime"]) for side in sides)
        planned_ms = 0 if planned_ios else _ms(options["runtime"])
        if not (planned_ms or planned_ios):
            raise ParseError("fio was told to run for no time")
        return FioResult(
            read=read,
            write=write,
            sync_ns=tuple(finite(percentiles[key]) for key in PERCENTILES if percentiles),
            ios=read.ios + write.ios,
            io_bytes=read.io_bytes + write.io_bytes,
            iops=sum(finite(side["iops"]) for side in sides),
            runtime_ms=runtime_ms,
            planned_ms=planned_ms,
            ramp_ms=_ms(options.get("ramp_time", "0ms")),
            error=whole(job["error"]),
            options=options,
            planned_ios=planned_ios,
        )
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise ParseError(repr(error)) from None


def _count(value: object) -> int:
    number = whole(value)
    if number < 0:
        raise ParseError(f"a count of {number}")
    return number


def _ms(value: object) -> int:
    return _count(str(value).removesuffix("ms"))


def program_result(output: str) -> ProgramResult | None:
    """The last line of what a program printed; None where it is no result of one."""
    try:
        document: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
        return ProgramResult(
            str(document["operation"]),
            _count(document["count"]),
            _count(document["seed"]),
            _count(document["ns"]),
        )
    except (LookupError, RecursionError, TypeError, ValueError, ParseError):
        return None


def _observation(files: Mapping[str, bytes], folder: str) -> Observation:
    cgroup = f"{folder}/cgroup"
    read, written = _parsed(files, f"{cgroup}/io.stat", lambda text: device_bytes(text, BRD))
    return Observation(
        memory_stat=_counters(files, f"{cgroup}/memory.stat", MEMORY_STAT),
        memory_events=_counters(files, f"{cgroup}/memory.events", MEMORY_EVENTS),
        memory_peak_bytes=_parsed(files, f"{cgroup}/memory.peak", whole),
        memory_max=_text(files, f"{cgroup}/memory.max").strip(),
        vmstat=_counters(files, f"{folder}/proc/vmstat", VMSTAT),
        thp_enabled=thp_selected(_text(files, f"{folder}/proc/enabled")),
        device_read_bytes=read,
        device_written_bytes=written,
        cpu_ns=_counters(files, f"{cgroup}/cpu.stat", CPU_STAT)["usage_usec"] * 1000,
        memory_stall_ns=_parsed(files, f"{cgroup}/memory.pressure", stalled_us) * 1000,
    )


def _counters(files: Mapping[str, bytes], name: str, needed: tuple[str, ...]) -> dict[str, int]:
    values = _parsed(files, name, counters)
    missing = [counter for counter in needed if counter not in values]
    if missing:
        raise ParseError(f"{name}: no counter {', '.join(missing)}")
    return values


def _parsed(files: Mapping[str, bytes], name: str, parser: Callable[[str], Value]) -> Value:
    text = _text(files, name)
    try:
        return parser(text)
    except (ParseError, ValueError) as error:
        raise ParseError(f"{name}: {error}") from None


def _text(files: Mapping[str, bytes], name: str) -> str:
    try:
        return files[name].decode(errors="replace")
    except KeyError:
        raise ParseError(f"{name}: not among the files the guest sent") from None


# Waits for locks by the kernel's contention events, from tracefs' ``hist`` files.  The agent keeps
# the begin of a wait by task and lock, and sums what the ends yield by kind of lock and stack.  The
# format is that of kernel/trace/trace_events_hist.c.
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
    # Nanoseconds of the guest's clock as busybox's ``adjtimex`` prints it.
    times = []
    for name in ("begin", "end"):
        match = CLOCK.search(_text(files, f"{folder}/{name}"))
        if match is None:
            raise ParseError(f"{folder}/{name}: no time in it")
        times.append(int(match[1]) * 10**9 + int(match[2]) * 1000)
    texts = {name: _text(files, f"{folder}/{name}") for name in (BEGINS, ENDS, WAITS)}
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
