import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.profile import Wait
from tests.values import spaced
from tests.workloads.conftest import Change, Run, swap
from workloads import parse
from workloads.parse import (
    BEGINS,
    ENDS,
    WAITS,
    ParseError,
    Side,
    callers,
    guest_result,
    kind,
    phase_locks,
    waits,
)


def test_whole_run(run_4k: Run) -> None:
    result = run_4k.result
    assert result.failure == ""
    assert result.build_id == "4dc6a058b44191bb76567f8b167d704456ec6021"
    assert result.release == "6.12.117"
    assert result.tainted == 0
    assert [phase.name for phase in result.phases] == ["4k"]


def test_fio_of_a_phase(run_4k: Run) -> None:
    phase = run_4k.result.phases[0]
    assert (phase.status, phase.output) == (0, "")
    assert phase.fio is not None
    assert (phase.fio.ios, phase.fio.io_bytes, phase.fio.iops) == (149571, 612642816, 74524.663677)
    assert (phase.fio.runtime_ms, phase.fio.ramp_ms, phase.fio.error) == (2007, 600, 0)
    assert phase.fio.options["randseed"] == "1"
    assert phase.fio.options["rw"] == "randread"


def test_observations_around_a_phase(run_4k: Run) -> None:
    phase = run_4k.result.phases[0]
    before, after = phase.before, phase.after
    assert (before.memory_stat["file"], after.memory_stat["file"]) == (0, 55767040)
    assert (before.memory_events["max"], after.memory_events["max"]) == (0, 2097)
    assert (before.memory_peak_bytes, after.memory_peak_bytes) == (0, 67108864)
    assert (before.memory_max, after.memory_max) == ("67108864", "67108864")
    assert after.vmstat["workingset_refault_file"] == 74206
    assert after.vmstat["pgmajfault"] == 114274
    assert (before.thp_enabled, after.thp_enabled) == ("never", "never")
    assert (before.device_read_bytes, after.device_read_bytes) == (0, 468045824)
    assert (before.device_written_bytes, after.device_written_bytes) == (0, 0)
    assert (before.cpu_ns, after.cpu_ns) == (0, 2773271000)


def test_phases_follow_each_other(run_thp: Run) -> None:
    thp, switch = run_thp.result.phases
    assert (thp.name, switch.name) == ("thp", "switch")
    assert thp.fio is not None
    assert switch.fio is not None
    assert (thp.fio.ios, switch.fio.ios) == (6758, 41163)
    assert (thp.fio.ramp_ms, switch.fio.ramp_ms) == (300, 0)
    assert (thp.before.thp_enabled, switch.before.thp_enabled) == ("always", "never")
    # Nothing happens between them: caches are kept.
    assert thp.after.memory_stat == switch.before.memory_stat
    assert thp.after.memory_stat["file_thp"] == 56623104
    assert switch.after.memory_stat["file_thp"] == 0


def test_build_id_among_other_notes() -> None:
    other = b"\4\0\0\0\3\0\0\0\1\1\0\0Xen\0abc\0"
    gnu = b"\4\0\0\0\4\0\0\0\3\0\0\0GNU\0\xde\xad\xbe\xef"
    assert parse.build_id(gnu) == "deadbeef"
    assert parse.build_id(other + gnu) == "deadbeef"
    assert parse.build_id(other) == ""
    assert parse.build_id(b"") == ""
    assert parse.build_id(gnu[:-1]) == ""


def test_thp_selected() -> None:
    assert parse.thp_selected("always [madvise] never\n") == "madvise"
    assert parse.thp_selected("nothing selected") == ""


def test_device_without_a_line_was_not_used() -> None:
    line = "1:0 rbytes=5 wbytes=6 rios=1 wios=1 dbytes=0 dios=0\n"
    assert parse.device_bytes(f"8:0 rbytes=1 wbytes=2\n{line}\n", "1:0") == (5, 6)
    assert parse.device_bytes("", "1:0") == (0, 0)


def test_fio_that_wrote_nothing_or_says_something_first(run_4k: Run) -> None:
    assert parse.fio_result("") is None
    assert parse.fio_result("fio: unable to open '/mnt/test.img'\n") is None
    text = run_4k.files["4k/fio.json"].decode()
    note = "note: both iodepth >= 1 and synchronous\n"
    assert parse.fio_result(note + text) == parse.fio_result(text)
    with pytest.raises(ParseError, match="RecursionError"):
        parse.fio_result('{"a":' * 100_000)


NEEDED = [
    f"4k/{name}"
    for name in spaced(
        "status fio.out before/cgroup/io.stat before/cgroup/memory.stat "
        "before/cgroup/memory.events before/cgroup/memory.peak before/cgroup/memory.max "
        "before/cgroup/cpu.stat before/proc/vmstat before/proc/enabled "
        "after/cgroup/memory.stat after/proc/vmstat"
    )
]


@pytest.mark.parametrize("name", [*NEEDED, "tainted"])
def test_missing_file_is_named(run_4k: Run, name: str) -> None:
    with pytest.raises(ParseError, match=f"^{name}: not among the files the guest sent$"):
        _ = run_4k.without(name).result


DAMAGE: tuple[tuple[str, Change, str], ...] = (
    ("tainted", swap("0", "no"), "tainted: "),
    ("4k/status", swap("0", ""), "4k/status: "),
    ("4k/before/cgroup/memory.peak", swap("0", "max"), "4k/before/cgroup/memory.peak: "),
    ("4k/after/proc/vmstat", swap("pgmajfault ", "pgmajfault x"), "4k/after/proc/vmstat: "),
    (
        "4k/after/proc/vmstat",
        swap("pgmajfault ", "other "),
        "4k/after/proc/vmstat: no counter pgmajfault",
    ),
    (
        "4k/after/cgroup/memory.stat",
        swap("file_thp", "thp"),
        "4k/after/cgroup/memory.stat: no counter file_thp",
    ),
    (
        "4k/after/cgroup/memory.events",
        swap("oom_kill 0", ""),
        "4k/after/cgroup/memory.events: no counter oom_kill",
    ),
    (
        "4k/after/cgroup/cpu.stat",
        swap("usage_usec", "usage"),
        "4k/after/cgroup/cpu.stat: no counter usage_usec",
    ),
    ("4k/after/cgroup/io.stat", swap("rbytes=", "rbytes:"), "4k/after/cgroup/io.stat: "),
    ("4k/fio.json", swap('"jobs"', '"job"'), "4k/fio.json: "),
    ("4k/fio.json", lambda content: content[:-50], "4k/fio.json: "),
    # Neither a time nor a number: rates would be over no time at all.
    (
        "4k/fio.json",
        swap('"runtime" : "2000ms"', '"other" : "2000ms"'),
        "4k/fio.json: KeyError('runtime')",
    ),
)


@pytest.mark.parametrize(("name", "change", "message"), DAMAGE)
def test_damaged_file_is_named(run_4k: Run, name: str, change: Change, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        _ = run_4k.but(name, change).result
    assert str(caught.value).startswith(message)


def test_agent_that_stopped_before_the_phases() -> None:
    result = guest_result({"failure": b"layout: no space\n", "tainted": b"0\n"}, ("4k",))
    assert (result.failure, result.phases, result.build_id) == ("layout: no space", (), "")


def test_agent_that_stopped_between_phases(run_thp: Run) -> None:
    files = {name: run_thp.files[name] for name in run_thp.files if "switch/" not in name}
    result = guest_result({**files, "failure": b"switch: THP state never"}, ("thp", "switch"))
    assert result.failure == "switch: THP state never"
    assert [phase.name for phase in result.phases] == ["thp"]


def test_pressure() -> None:
    lines = "some avg10=0.00 avg60=1.00 avg300=0.00 total=1234\nfull avg10=0.00 total=99\n"
    assert parse.stalled_us(lines) == 1234
    for text in (
        "",
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n",
        "some avg10=0.00 avg60=0.00 avg300=0.00\n",
        "some total=-7\n",
        "some total=seven\n",
    ):
        with pytest.raises(ParseError, match="no total"):
            parse.stalled_us(text)


def test_directions_of_fio_and_how_long_syncs_took(run_matrix: Run, run_dirty: Run) -> None:
    mixed, written = run_matrix.result.phases[0].fio, run_dirty.result.phases[0].fio
    assert mixed is not None
    assert written is not None
    assert (mixed.read, mixed.write) == (Side(45022, 184410112), Side(45730, 187310080))
    assert (mixed.ios, mixed.io_bytes) == (90752, 371720192)
    assert (written.read, written.write.ios) == (Side(0, 0), 66804)
    assert mixed.sync_ns == ()
    # The last one of 0.1 % waited for the other three jobs' turns of 4 ms.
    assert written.sync_ns == (22144.0, 22144.0, 11993088.0)


def test_what_is_mounted(run_matrix: Run, run_dirty: Run, run_4k: Run) -> None:
    assert run_matrix.result.phases[0].mounted == "tmpfs rw,relatime,huge=always"
    assert run_dirty.result.phases[0].mounted.startswith("xfs rw,noatime,")
    # Recorded before it was sent.
    assert run_4k.result.phases[0].mounted == ""
    assert parse.mounted("none /mnt\nproc /proc proc rw 0 0\n") == ""


HUGE = "9" * 401


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("4k/fio.json", '"total_ios" : ', '"total_ios" : 1' + "0" * 400),
        ("4k/fio.json", '"total_ios" : ', '"total_ios" : -'),
        ("4k/fio.json", '"iops" : ', '"iops" : 1e999'),
        ("4k/fio.json", '"runtime" : "', '"runtime" : "0ms", "x" : "'),
        ("4k/fio.json", '"ramp_time" : "', '"ramp_time" : "-'),
        ("4k/after/proc/vmstat", "pgmajfault ", f"pgmajfault {HUGE}"),
        ("4k/after/cgroup/cpu.stat", "usage_usec ", f"usage_usec {HUGE}"),
        ("4k/after/cgroup/memory.pressure", "total=", f"total={HUGE}"),
        ("4k/after/cgroup/io.stat", "rbytes=", f"rbytes={HUGE}"),
        ("tainted", "0", HUGE),
    ],
)
def test_numbers_of_guests_are_bounded(run_4k: Run, name: str, old: str, new: str) -> None:
    with pytest.raises(ParseError, match=name):
        _ = run_4k.but(name, swap(old, new)).result


RECORDED = Path(__file__).parent / "recorded" / "locks"
FILES = {name: (RECORDED / name).read_text() for name in (BEGINS, ENDS, WAITS)}
SYSCALL = ("do_syscall_64", "entry_SYSCALL_64_after_hwframe")


def totals(hits: int, entries: int, dropped: int = 0) -> str:
    return f"\nTotals:\n    Hits: {hits}\n    Entries: {entries}\n    Dropped: {dropped}\n"


def entry(flags: int, stack: tuple[str, ...], count: int, wait_ns: int) -> str:
    frames = "\n".join(f"         {name}+0x1/0x20" for name in stack)
    return (
        f"{{ flags: {flags:10}, stack.stacktrace{frames}\n}} "
        f"hitcount: {count:10}  wait_ns: {wait_ns:10}\n"
    )


def hists(*entries: str, hits: int = 1, dropped: int = 0) -> dict[str, str]:
    body = "# event histogram\n" + "".join(entries)
    return FILES | {WAITS: body + totals(hits, len(entries), dropped)}


def test_recorded_waits() -> None:
    summed, dropped = waits(FILES)
    assert dropped == 0
    mutex = next(wait for wait in summed if wait.callers[0] == "__lru_add_drain_all")
    assert mutex == Wait(
        callers=("__lru_add_drain_all", "generic_fadvise", "__x64_sys_fadvise64", *SYSCALL),
        flags="MUTEX",
        count=3,
        total_ns=1383812620,
    )


def test_stacks_that_differ_in_offsets_or_lock_functions_are_one_caller() -> None:
    slow = ("native_queued_spin_lock_slowpath", "_raw_spin_lock_irq", "__filemap_add_folio")
    summed, _ = waits(
        hists(entry(1, slow, 3, 500), entry(1, slow[1:], 2, 70), entry(2, slow, 1, 9))
    )
    assert summed == (
        Wait(callers=("__filemap_add_folio",), flags="SPIN", count=5, total_ns=570),
        Wait(callers=("__filemap_add_folio",), flags="READ", count=1, total_ns=9),
    )


@pytest.mark.parametrize(
    "function",
    [
        *spaced(
            "native_queued_spin_lock_slowpath queued_spin_lock_slowpath "
            "__pv_queued_spin_lock_slowpath queued_read_lock_slowpath "
            "queued_write_lock_slowpath _raw_spin_lock _raw_spin_lock_irqsave "
            "_raw_spin_lock_bh _raw_write_lock_irq _raw_read_lock _raw_spin_lock_nested "
            "do_raw_spin_lock __mutex_lock __mutex_lock.constprop.0 mutex_lock "
            "mutex_lock_nested ww_mutex_lock __mutex_lock_slowpath rwsem_down_read_slowpath "
            "rwsem_down_write_slowpath down_read down_write down_write_killable "
            "down_read_killable down_read_nested __down down __down_common "
            "__down_interruptible percpu_rwsem_wait __percpu_down_read rt_mutex_lock "
            "__traceiter_contention_begin"
        )
    ],
)
def test_lock_functions_are_not_callers(function: str) -> None:
    assert callers(f"{function}+0x1/0x2\n caller+0x3/0x4\n") == ("caller",)


@pytest.mark.parametrize(
    "function",
    [
        *spaced(
            "__filemap_add_folio lru_add_drain xfs_ilock shutdown downgrade_write lock_page "
            "folio_lruvec_lock_irqsave task_rq_lock unlock_page mutex_init countdown_read"
        )
    ],
)
def test_what_only_sounds_like_a_lock_is_a_caller(function: str) -> None:
    assert callers(f"{function}+0x1/0x2\n") == (function,)
    assert callers(f"{function}+0x1/0x2\n caller+0x3/0x4\n") == (function, "caller")


def test_stack_of_lock_functions_alone_is_kept() -> None:
    assert callers("_raw_spin_lock+0x1/0x2\n") == ("_raw_spin_lock",)


def test_function_of_a_module_and_an_address_without_name() -> None:
    assert callers("a+0x1/0x2 [xfs]\n 0xffffffffc0000000\n b.isra.0+0x3/0x4") == (
        "a",
        "0xffffffffc0000000",
        "b.isra.0",
    )


def test_kinds() -> None:
    assert [kind(n) for n in (0, 1, 3, 5, 32, 33, 16 | 2)] == [
        *spaced("SEMAPHORE SPIN SPIN|READ SPIN|WRITE MUTEX SPIN|MUTEX READ|PERCPU")
    ]


def test_dropped_events_of_all_histograms_are_added_up() -> None:
    files = hists(dropped=2)
    files[BEGINS] = re.sub("Dropped: 0", "Dropped: 5", files[BEGINS])
    assert waits(files) == ((), 7)


@pytest.mark.parametrize("name", [BEGINS, ENDS, WAITS])
def test_missing_or_cut_histogram_is_refused(name: str) -> None:
    with pytest.raises(ParseError, match=f"no histogram of {name}"):
        waits({other: text for other, text in FILES.items() if other != name})
    with pytest.raises(ParseError, match=f"{name}: no totals"):
        waits(FILES | {name: FILES[name][:-20]})


def test_entries_that_are_not_all_there_are_refused() -> None:
    files = hists(entry(1, ("a",), 1, 1))
    files[WAITS] = files[WAITS].replace("Entries: 1", "Entries: 2")
    with pytest.raises(ParseError, match="lock_wait: 1 entries, 2 announced"):
        waits(files)


FUNCTIONS = st.from_regex(r"[a-z_][a-z0-9_]{0,30}(\.(isra|constprop)\.[0-9])?", fullmatch=True)


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.integers(0, 63),
            st.lists(FUNCTIONS, min_size=1, max_size=16),
            st.integers(1, 2**40),
            st.integers(0, 2**60),
        ),
        max_size=6,
    )
)
def test_nothing_is_lost(rows: list[tuple[int, list[str], int, int]]) -> None:
    summed, _ = waits(hists(*(entry(flags, tuple(stack), n, ns) for flags, stack, n, ns in rows)))
    assert sum(wait.count for wait in summed) == sum(count for _, _, count, _ in rows)
    assert sum(wait.total_ns for wait in summed) == pytest.approx(sum(ns for *_, ns in rows))


SENT = {f"4k/locks/{path.name}": path.read_bytes() for path in RECORDED.iterdir()}


def test_a_phase_of_a_run() -> None:
    locks = phase_locks(SENT, "4k")
    assert (locks.phase, locks.virtual_ns, locks.dropped) == ("4k", 1038895000, 0)
    assert locks.waits[0].callers[0] == "__lru_add_drain_all"


def test_missing_and_wrong_files_are_named() -> None:
    for name in ("begin", "end", WAITS):
        files = {path: text for path, text in SENT.items() if path != f"4k/locks/{name}"}
        with pytest.raises(ParseError, match=rf"^4k/locks/{name}: not among the files"):
            phase_locks(files, "4k")
    with pytest.raises(ParseError, match=r"^4k/locks/end: no time in it"):
        phase_locks(SENT | {"4k/locks/end": b"adjtimex: not found\n"}, "4k")
    with pytest.raises(ParseError, match=r"^4k/locks: lock_wait: no totals"):
        phase_locks(SENT | {"4k/locks/lock_wait": b""}, "4k")
