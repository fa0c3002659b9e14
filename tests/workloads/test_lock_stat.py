"""``recorded/locks`` has parts of what a smoke guest with one vCPU sent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.locks import CallSite, LockClass
from workloads.lock_stat import classes
from workloads.parse import ParseError

RECORDED = Path(__file__).parent / "recorded" / "locks"
LOCK_STAT = (RECORDED / "lock_stat").read_text()
LOCKDEP = (RECORDED / "lockdep").read_text()
COLUMNS = (
    "con-bounces contentions waittime-min waittime-max waittime-total waittime-avg "
    "acq-bounces acquisitions holdtime-min holdtime-max holdtime-total holdtime-avg"
)
NUMBERS = "0 0 0.00 0.00 0.00 0.00 0 3 0.25 1.00 2.50 0.83"


def lock_stat(*lines: str, columns: str = COLUMNS, version: str = "0.4") -> str:
    head = [f"lock_stat version {version}", "-" * 40, f"   class name {columns}", "-" * 40, ""]
    return "\n".join([*head, *lines]) + "\n"


def lockdep(*names: str) -> str:
    lines = [f"{0xFFFFFFFF82000000 + n:x}: {name}" for n, name in enumerate(names)]
    return "\n".join(["all lock classes:", *lines]) + "\n"


def only(*rows: LockClass) -> LockClass:
    assert len(rows) == 1
    return rows[0]


def test_recorded_classes() -> None:
    by_name = {lock.name: lock for lock in classes(LOCK_STAT, LOCKDEP)}
    pages = by_name["&xa->xa_lock#4"]
    assert (pages.key, pages.contentions, pages.acquisitions) == ("ffffffff824499d0", 0, 17776)
    assert pages.hold_total_ns == 29069240
    assert pages.waiters == pages.holders == ()


def test_sites_of_waiters_and_holders_and_both_rows_of_a_class_have_them() -> None:
    by_name = {lock.name: lock for lock in classes(LOCK_STAT, LOCKDEP)}
    readers, writers = (by_name[f"&mapping->i_mmap_rwsem-{mode}"] for mode in "RW")
    assert readers.waiters == (
        CallSite(function="unlink_file_vma_batch_add", offset=0x5C, count=2),
        CallSite(function="rmap_walk_file", offset=0x197, count=1),
    )
    assert readers.holders == (CallSite(function="vma_link_file", offset=0x26, count=3),)
    assert (writers.waiters, writers.holders) == (readers.waiters, readers.holders)
    assert (writers.contentions, readers.contentions) == (2, 1)
    assert writers.wait_max_ns == 10383530
    assert readers.key == writers.key != ""


def test_most_contended_comes_first() -> None:
    contentions = [lock.contentions for lock in classes(LOCK_STAT, LOCKDEP)]
    assert contentions == sorted(contentions, reverse=True)
    assert contentions[0] > 0


def test_name_that_several_classes_are_printed_under_has_no_key() -> None:
    text = lock_stat(f"  key#1: {NUMBERS}", f"  key#2: {NUMBERS}")
    keys = {lock.name: lock.key for lock in classes(text, lockdep("key#10", "key#12", "key#2"))}
    assert keys == {"key#1": "", "key#2": "ffffffff82000002"}


def test_long_name_is_matched_by_what_is_printed_of_it() -> None:
    name = "a_lock_with_a_name_of_more_than_thirty_seven_characters"
    text = lock_stat(f"{name[:33]}#7/1: {NUMBERS}")
    assert only(*classes(text, lockdep(f"{name}#7/1"))).key == "ffffffff82000000"
    text = lock_stat(f"{name[:37]}: {NUMBERS}")
    assert only(*classes(text, lockdep(name))).key == "ffffffff82000000"


def test_lockdep_with_dependencies_and_usage() -> None:
    text = (
        "all lock classes:\nffffffff82000000 OPS:      12 FD:    5 BD:    1 ....: lock\n"
        " -> [ffffffff82000001] other\n\n"
    )
    assert only(*classes(lock_stat(f"lock: {NUMBERS}"), text)).key == "ffffffff82000000"


def test_version_without_averages() -> None:
    columns = " ".join(name for name in COLUMNS.split() if not name.endswith("-avg"))
    text = lock_stat("lock: 1 2 0.10 0.20 0.30 4 5 0.40 0.50 0.60", columns=columns, version="0.3")
    lock = only(*classes(text, lockdep("lock")))
    assert (lock.contentions, lock.acquisitions) == (2, 5)
    assert (lock.wait_total_ns, lock.hold_total_ns) == (300, 600)


def test_names_with_spaces_colons_and_digits() -> None:
    names = ("&per_cpu(a, 0)->lock", "a: b", "2", "-W", "rcu_read_lock")
    text = lock_stat(*(f"{name}: {NUMBERS}" for name in names))
    keys = {lock.name: lock.key for lock in classes(text, lockdep(*names))}
    assert set(keys) == set(names)
    assert keys["a: b"] == "ffffffff82000001"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("cat: /proc/lock_stat: No such file", "no lock_stat header"),
        ("lock_stat version 0.4\n", "no line with the columns"),
        (lock_stat(columns="contentions"), "no column waittime-max"),
        (lock_stat("  lock: 1 2 3"), "neither a class nor a site"),
        (lock_stat("  lock 4 [<ffffffff81000000>] f+0x1/0x2"), "neither a class nor a site"),
        (lock_stat(f"lock: {NUMBERS[:-9]}"), "neither a class nor a site"),
        (lock_stat().replace("0.4\n", "0.4\n*WARNING* lock debugging disabled!!\n"), "switched"),
    ],
)
def test_what_is_no_lock_stat_is_refused(text: str, why: str) -> None:
    with pytest.raises(ParseError, match=why):
        classes(text, LOCKDEP)


def test_lockdep_with_hashed_or_missing_keys_is_refused() -> None:
    with pytest.raises(ParseError, match="no list of lock classes"):
        classes(LOCK_STAT, "")
    with pytest.raises(ParseError, match="no lock class: '\\(____ptrval____\\): a'"):
        classes(LOCK_STAT, "all lock classes:\n(____ptrval____): a\n")


@given(st.integers(0, len(LOCK_STAT)), st.text(max_size=30), st.integers(0, 40))
def test_damaged_text_is_read_or_refused(at: int, put: str, cut: int) -> None:
    damaged = LOCK_STAT[:at] + put + LOCK_STAT[at + cut :]
    try:
        rows = classes(damaged, LOCKDEP)
    except ParseError:
        return
    assert all(isinstance(lock, LockClass) for lock in rows)


# Not those that end as a version or a subclass does, which the kernel prints alike.
NAMES = st.text(
    st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=60
).filter(lambda name: not re.search(r"[#/]\d+$", name))


@given(NAMES, st.one_of(st.none(), st.integers(2, 99)), st.one_of(st.none(), st.integers(1, 7)))
def test_any_class_finds_its_key(name: str, version: int | None, subclass: int | None) -> None:
    """The printing of seq_stats() in kernel/locking/lockdep_proc.c, done again here."""
    room = 38 - 2 * (version is not None) - 2 * (subclass is not None)
    printed = name[: room - 1]
    full = name
    if version is not None:
        printed, full = printed + f"#{version}"[:2], full + f"#{version}"
    if subclass is not None:
        printed, full = printed + f"/{subclass}"[:2], full + f"/{subclass}"
    lock = only(*classes(lock_stat(f"{printed:>40}: {NUMBERS}"), lockdep(full)))
    assert lock.name == printed
    assert lock.key == "ffffffff82000000"
