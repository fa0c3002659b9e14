"""Checks that a run measured what it says; an invalid run is never a data point.

The first posting of filemap measured a mixture of splitting and adding, because
caches were not dropped and THP was left on between two tests.  Each check here
answers one such mistake, from what the guest itself recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from results.profile import Profile
from text import words
from workloads.job import limit_text
from workloads.job_file import NO_DATA, place_of
from workloads.parse import FioResult, GuestResult, PhaseResult
from workloads.spec import Phase

MIB = 1 << 20
# How problems begin that are to be mended by whoever named the arm's settings, or its kernel: the
# agent's words among them.
OF_USER = ("kernel command line: ", "kernel: lacks ", "setting: ", "sysctl: ")
# Page-table pages and slab are charged too, so "full of file pages" is less than
# the limit; half is far from both a full and an uncharged cgroup.
CHARGED_SHARE = 0.5
LIMIT_SHARE = 0.95
# After drop_caches a handful of metadata pages may come back before we look.
LEFT_PAGES = 64
# A wall guest's programs come from the host's root: what is mapped of them cannot be
# dropped (828 pages seen, with udev running).  16 MiB, half of the smallest limit.
LEFT_PAGES_WALL = 4096
# Reading at random, 6.12 adds huge folios alone.  From 7.x on a fault that missed too often adds a
# page (mmap_miss in do_sync_mmap_readahead): 25 to 70 % of the cache are huge there (7.3.4).
THP_SHARE = 0.1
SHMEM_THP_SHARE = 0.5
PAGE = 4096
# A table of pages has a page of entries of 8 bytes; one such table's pages are a huge page.
ENTRY = 8
# The guest's memory is set so that this much is left; kernels and initramfs vary a little.
MEMORY_SHARE = 0.1
# The cache is not all that memory is used for, and the last pages stay.
RECLAIMED_SHARE = 0.8
# Writeback is counted in whole blocks; what fio wrote last may still be on its way.
WRITTEN_SHARE = 0.95
# The last job leaves some turns after its time; one that is later than this was
# held up by something else.
LATE, LATE_MS = 0.05, 50
# How much faster or slower a guest's clock may go than the host counts instructions, and what is
# counted besides: seen were 0.3 % and 320 ms.
FAST, SLOW, START_MS, START_MS_PER_JOB = 0.01, 0.1, 1000, 250
# Fewer pages are inodes and folders; more than so many lines of fio's nobody reads.
TRACE_PAGES, FIO_LINES = 4, 3
# Other names of fio's options, and those that fio must repeat: they decide what is measured.
OPTION_NAMES = {"readwrite": "rw", "blocksize": "bs", "io_limit": "io_size"}
DECIDE = frozenset(
    words(
        "rw bs ioengine filename directory numjobs runtime ramp_time number_ios io_size size "
        "direct buffered randseed randrepeat"
    )
)


@dataclass(frozen=True)
class Claim:
    """What a run says about itself: asked, not observed.

    A limit of 0 is none.  ``left_pages`` are the file pages that may be cached after a
    drop of all caches; ``file_bytes`` is the size of all files together, ``memory_bytes``
    what is to be left for the page cache (0: not said).  ``cmdline`` are the arm's own words of the
    kernel's command line.  ``fio`` has the arguments that each
    phase's fio was given, by its name.
    """

    phases: tuple[Phase, ...]
    limit_bytes: int
    seed: int
    build_id: str
    left_pages: int = LEFT_PAGES
    sysctl: Mapping[str, str] = field(default_factory=dict)
    mount_options: str = ""
    file_bytes: int = 0
    memory_bytes: int = 0
    page_bytes: int = PAGE
    cmdline: Sequence[str] = ()
    fio: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def huge_page_bytes(self) -> int:
        """What one entry of a page table's second level maps."""
        return self.page_bytes * self.page_bytes // ENTRY


def problems(result: GuestResult, claim: Claim) -> tuple[str, ...]:
    """Every way in which the run is not what it claims; empty for a valid run."""
    messages: list[str] = []
    if result.failure:
        messages.append(f"the agent stopped: {result.failure}")
    # An agent that stopped early may not have sent the kernel's notes yet.
    unknown = result.failure and not result.build_id
    if claim.build_id and result.build_id != claim.build_id and not unknown:
        messages.append(
            f"kernel identity: booted build id {result.build_id or 'none'}, built {claim.build_id}"
        )
    if result.tainted:
        messages.append(f"kernel tainted: {result.tainted}")
    if not result.failure and len(result.phases) != len(claim.phases):
        messages.append(f"{len(result.phases)} of {len(claim.phases)} phases ran")
    for name, value in () if result.failure else claim.sysctl.items():
        expected, actual = " ".join(value.split()), result.sysctl.get(name, "nothing")
        if actual != expected:
            messages.append(f"sysctl {name}: {expected} was written, the kernel says {actual}")
    messages += [
        f"{OF_USER[0]}{word}: this kernel does not know it, so the arm has not what it is about"
        for word in claim.cmdline
        if word in result.unknown_words
    ]
    for spec, phase in zip(claim.phases, result.phases, strict=False):
        messages += [f"{spec.name}: {problem}" for problem in _phase_problems(spec, phase, claim)]
    return tuple(messages)


def of_user(result: GuestResult, claim: Claim) -> bool:
    """Whether what is wrong with a run is what its user named for the arm."""
    first = result.failure or next(iter(problems(result, claim)), "")
    return is_of_user(first)


def is_of_user(problem: str) -> bool:
    """Whether a problem is of what a user named: settings, or a kernel that lacks something."""
    return problem.startswith(OF_USER)


def clock_problems(
    result: GuestResult, phases: Sequence[Phase], profile: Profile
) -> tuple[str, ...]:
    """In what a guest of one vCPU tells another time than the instructions that QEMU counted.

    Of such a guest one instruction is one nanosecond, and none of its own: a kernel whose clock
    goes faster shows a bandwidth that it has not.  fio's start and end are counted beside what
    fio says it ran (270 to 320 ms with four jobs), and so is what it reads before it begins.
    """
    messages = []
    for spec, phase, counted in zip(phases, result.phases, profile.phases, strict=False):
        if phase.fio is None:
            continue
        counted_ms = counted.instructions / 1e6
        reported_ms = phase.fio.ramp_ms + phase.fio.runtime_ms
        jobs = int(phase.fio.options.get("numjobs", "1"))
        most_ms = reported_ms * (1 + SLOW) + START_MS + START_MS_PER_JOB * jobs
        reads_before = spec.option("pre_read") not in ("", "0")
        if counted_ms < reported_ms * (1 - FAST) or (counted_ms > most_ms and not reads_before):
            messages.append(
                f"{spec.name}: fio says that it ran for {reported_ms} ms, and the host counted "
                f"instructions of {counted_ms:.0f} ms"
            )
    return tuple(messages)


def few_ios(result: GuestResult, phases: Sequence[Phase]) -> tuple[str, ...]:
    """Findings: phases with too few I/Os to be evidence of anything."""
    return tuple(
        f"{spec.name}: {phase.fio.ios} I/Os, fewer than {spec.min_ios}: too few for a verdict"
        for spec, phase in zip(phases, result.phases, strict=False)
        if phase.fio is not None and phase.fio.ios < spec.min_ios
    )


def _phase_problems(spec: Phase, phase: PhaseResult, claim: Claim) -> list[str]:
    failed = phase.program is None if spec.program else phase.fio is None or phase.fio.error
    if phase.status != 0 or failed:
        lines = phase.output.strip().splitlines() or ["no output"]
        own = [line for line in lines if line.startswith("fio: ")][:FIO_LINES]
        words = "; ".join(own or lines[-1:])
        name = spec.program[0] if spec.program else "fio"
        place = place_of(spec.places, words)
        at = f" ({place})" if place else ""
        return [f"{name} failed (status {phase.status}): {words}{at}"]
    messages = []
    for counter in ("oom", "oom_kill"):
        if events := _rise(phase, "memory_events", counter):
            messages.append(f"memory.events {counter} rose by {events}")
    limit = limit_text(claim.limit_bytes)
    if phase.before.memory_max != limit:
        messages.append(f"cgroup limit {phase.before.memory_max}, expected {limit}")
    if phase.before.thp_enabled != spec.thp:
        messages.append(f"THP state {phase.before.thp_enabled!r}, expected {spec.thp!r}")
    left = phase.before.vmstat["nr_active_file"] + phase.before.vmstat["nr_inactive_file"]
    if spec.drop_caches and left > claim.left_pages:
        messages.append(f"caches not dropped: {left} file pages before the phase")
    if phase.program is not None and spec.program:
        done = phase.program
        messages += [
            f"{name} {value}, expected {expected}"
            for name, value, expected in (
                ("operation", done.operation, spec.program[1]),
                ("count", done.count, spec.ops),
                ("seed", done.seed, claim.seed),
            )
            if value != expected
        ]
    elif phase.fio is not None:
        fio = phase.fio
        if fio.options.get("randseed") != str(claim.seed):
            messages.append(f"seed {fio.options.get('randseed')}, expected {claim.seed}")
        if fio.options.get("randrepeat") != "0" or fio.options.get("allrandrepeat") == "1":
            messages.append("seed without effect: fio ran with randrepeat or allrandrepeat")
        messages += _other_options(claim.fio.get(spec.name, ()), fio)
        messages += filter(None, [_amount(spec, fio)])
        if fio.ios == 0 or fio.runtime_ms == 0:
            messages.append("no I/O at all" if fio.ios == 0 else "fio measured no time")
        messages += _left_no_trace(spec, phase, phase.fio, claim)
    return messages + [words for each in spec.checks if (words := CHECKS[each](phase, claim))]


def _left_no_trace(spec: Phase, phase: PhaseResult, fio: FioResult, claim: Claim) -> Iterator[str]:
    """Whether data moved neither from or to the device nor is cached, tmpfs apart."""
    if not spec.on_device or spec.option("ioengine") in NO_DATA:
        return
    before, after = phase.before, phase.after
    moved = after.device_read_bytes - before.device_read_bytes
    moved += after.device_written_bytes - before.device_written_bytes
    cached = max(
        each.memory_stat["file"] - each.memory_stat.get("shmem", 0) for each in (before, after)
    )
    if moved + cached < min(fio.io_bytes, TRACE_PAGES * claim.page_bytes):
        yield (
            f"{fio.io_bytes} bytes of I/O left no trace on the file system under test: {moved} "
            f"bytes moved from or to its device, {cached} bytes of its files cached"
        )


def _other_options(given: Sequence[str], fio: FioResult) -> list[str]:
    """Options that fio says it ran with and was not given so, as far as it says them."""
    pairs = [argument.removeprefix("--").partition("=") for argument in given]
    expected = {OPTION_NAMES.get(name, name): value for name, is_given, value in pairs if is_given}
    actual = {OPTION_NAMES.get(name, name): str(value) for name, value in fio.options.items()}
    if not expected:
        return []
    different = [
        f"fio ran with {name}={actual.get(name, 'nothing')}, expected {value}"
        for name, value in expected.items()
        if actual.get(name, "") != value and (name in actual or name in DECIDE)
    ]
    return different + [
        f"fio ran with {name}={value}, which it was not given"
        for name, value in actual.items()
        if name in DECIDE and name not in expected
    ]


def _amount(spec: Phase, fio: FioResult) -> str:
    """In what fio did more or less than it was told; empty where it did not."""
    late_ms = fio.runtime_ms - fio.planned_ms
    if fio.planned_ios:
        return (
            "" if fio.ios == fio.planned_ios else f"{fio.ios} I/Os done, expected {fio.planned_ios}"
        )
    if not spec.time_based:
        end = f"work not finished in the {fio.planned_ms} ms that it may take"
        return end if late_ms >= 0 else ""
    if 0 <= late_ms <= LATE_MS + LATE * fio.planned_ms:
        return ""
    return f"fio ran for {fio.runtime_ms} ms, expected {fio.planned_ms} ms"


def _rise(phase: PhaseResult, of: str, counter: str) -> int:
    """By how much a counter rose in the phase; one that the kernel has not stays at 0."""
    before, after = getattr(phase.before, of), getattr(phase.after, of)
    return int(after.get(counter, 0) - before.get(counter, 0))


def _mib(number: float) -> str:
    return f"{number / MIB:.1f} MiB"


def limit_hit(phase: PhaseResult, claim: Claim) -> str:
    """Reclaim was at the limit: it was hit, and the cgroup was as good as full."""
    hits, peak = _rise(phase, "memory_events", "max"), phase.after.memory_peak_bytes
    if hits and peak >= LIMIT_SHARE * claim.limit_bytes:
        return ""
    limit = f"{claim.limit_bytes / MIB:.0f} MiB"
    return f"limit not hit: peak {_mib(peak)} of {limit}, memory.events max rose by {hits}"


def charged(phase: PhaseResult, claim: Claim) -> str:
    """What is cached under the limit, or was: fio drops its file before each pass."""
    stolen = _rise(phase, "memory_stat", "pgsteal") * claim.page_bytes
    file = phase.after.memory_stat["file"] + stolen
    if file >= CHARGED_SHARE * claim.limit_bytes:
        return ""
    return f"file not charged to the cgroup: {_mib(file)} of {claim.limit_bytes / MIB:.0f} MiB"


def refaults(phase: PhaseResult, claim: Claim) -> str:
    """Pages came back that had been evicted."""
    return "" if _rise(phase, "vmstat", "workingset_refault_file") > 0 else "no refaults"


def thp_before(phase: PhaseResult, claim: Claim) -> str:
    """The phase before left huge pages."""
    return "" if phase.before.memory_stat["file_thp"] else "no huge pages left by the phase before"


def thp_present(phase: PhaseResult, claim: Claim) -> str:
    """A share of what is cached is huge."""
    thp, file = phase.after.memory_stat["file_thp"], phase.after.memory_stat["file"]
    if file and thp >= THP_SHARE * file:
        return ""
    return f"no huge pages: file_thp {_mib(thp)} of {_mib(file)} cached"


def thp_absent(phase: PhaseResult, claim: Claim) -> str:
    """Nothing cached is huge, before and after."""
    thp = max(phase.before.memory_stat["file_thp"], phase.after.memory_stat["file_thp"])
    return f"huge pages present: file_thp {_mib(thp)}" if thp else ""


def caches_kept(phase: PhaseResult, claim: Claim) -> str:
    """What the phase before left is cached still."""
    file, limit = phase.before.memory_stat["file"], claim.limit_bytes
    if file >= CHARGED_SHARE * limit:
        return ""
    return f"caches not kept: {_mib(file)} of {limit / MIB:.0f} MiB before the phase"


def written_back(phase: PhaseResult, claim: Claim) -> str:
    """What fio wrote came to the device."""
    written = phase.after.device_written_bytes - phase.before.device_written_bytes
    fio_bytes = phase.fio.write.io_bytes if phase.fio else 0
    if written >= WRITTEN_SHARE * fio_bytes:
        return ""
    return f"not written back: {written} bytes reached the device, fio wrote {fio_bytes}"


def huge_as_configured(phase: PhaseResult, claim: Claim) -> str:
    """Of tmpfs, which says nothing of ``huge=never``: it is the default."""
    kind, _, options = phase.mounted.partition(" ")
    expected, actual = (
        [word for word in words.split(",") if word.startswith("huge=")][-1:] or ["huge=never"]
        for words in (claim.mount_options, options)
    )
    if kind != "tmpfs" or actual != expected:
        return f"mounted as {phase.mounted or 'nothing'}, expected tmpfs with {expected[0]}"
    huge = phase.after.vmstat["nr_shmem_hugepages"] * claim.huge_page_bytes
    if expected == ["huge=never"] and huge:
        return f"huge pages in tmpfs: {huge / MIB:.0f} MiB, expected none"
    if expected == ["huge=always"] and huge < SHMEM_THP_SHARE * claim.file_bytes:
        return f"no huge pages: {huge / MIB:.0f} MiB of {claim.file_bytes / MIB:.0f} MiB in tmpfs"
    return ""


def memory_as_configured(phase: PhaseResult, claim: Claim) -> str:
    """As much memory is free as the experiment says."""
    free, expected = phase.before.vmstat["nr_free_pages"] * claim.page_bytes, claim.memory_bytes
    if abs(free - expected) <= MEMORY_SHARE * expected:
        return ""
    free_mib, expected_mib = free / MIB, expected / MIB
    return f"{free_mib:.0f} MiB of memory free before the phase, expected {expected_mib:.0f} MiB"


def reclaimed(phase: PhaseResult, claim: Claim) -> str:
    """What was written and did not fit must have gone again."""
    reclaimed = _rise(phase, "memory_stat", "pgsteal") * claim.page_bytes
    excess = max(0, claim.file_bytes - claim.memory_bytes)
    if reclaimed >= RECLAIMED_SHARE * excess:
        return ""
    return f"{reclaimed / MIB:.0f} MiB reclaimed, {excess / MIB:.0f} MiB do not fit into memory"


def _went_out(where: str, phase: PhaseResult, claim: Claim) -> str:
    """Of two counters of ``/proc/vmstat``, which a kernel without zswap may not have."""
    written, read = (_rise(phase, "vmstat", f"{where}{way}") for way in ("out", "in"))
    if written and read:
        return ""
    return f"no {WENT_TO[where]}: {written} pages written to it, {read} read back"


WENT_TO = {"pswp": "swap", "zswp": "zswap"}
CHECKS: Mapping[str, Callable[[PhaseResult, Claim], str]] = {
    **{
        check.__name__: check
        for check in (
            *(limit_hit, charged, refaults, thp_present, thp_absent, thp_before, caches_kept),
            *(written_back, reclaimed),
        )
    },
    "huge_as_asked": huge_as_configured,
    "memory_as_asked": memory_as_configured,
    "swapped": partial(_went_out, "pswp"),
    "zswapped": partial(_went_out, "zswp"),
}
