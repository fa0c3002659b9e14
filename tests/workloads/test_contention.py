import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.profile import Wait
from tests.values import spaced
from workloads.parse import BEGINS, ENDS, WAITS, ParseError, callers, kind, phase_locks, waits

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
