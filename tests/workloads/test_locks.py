from __future__ import annotations

from pathlib import Path

import pytest

from workloads.locks import phase_locks
from workloads.parse import ParseError

RECORDED = Path(__file__).parent / "recorded" / "locks"
FILES = {f"4k/locks/{path.name}": path.read_bytes() for path in RECORDED.iterdir()}


def test_lock_stat_of_a_phase() -> None:
    locks = phase_locks(FILES, "4k", "lock_stat")
    assert (locks.phase, locks.virtual_ns, locks.waits) == ("4k", 1038895000, ())
    assert "&xa->xa_lock#4" in [lock.name for lock in locks.classes]


def test_contention_of_a_phase() -> None:
    locks = phase_locks(FILES, "4k", "contention")
    assert locks.classes == ()
    assert locks.waits[0].callers[0] == "__lru_add_drain_all"
    assert locks.dropped == 0


@pytest.mark.parametrize("observe", ["lock_stat", "contention"])
def test_missing_file_is_named(observe: str) -> None:
    needed = {"lock_stat": ("lock_stat", "lockdep"), "contention": ("lock_wait",)}[observe]
    for name in ("begin", "end", *needed):
        files = {path: text for path, text in FILES.items() if path != f"4k/locks/{name}"}
        with pytest.raises(ParseError, match=rf"^4k/locks/{name}: not among the files"):
            phase_locks(files, "4k", observe)  # type: ignore[arg-type]


def test_wrong_file_is_named() -> None:
    with pytest.raises(ParseError, match=r"^4k/locks/end: no time in it"):
        phase_locks(FILES | {"4k/locks/end": b"adjtimex: not found\n"}, "4k", "lock_stat")
    with pytest.raises(ParseError, match=r"^4k/locks: lock_wait: no totals"):
        phase_locks(FILES | {"4k/locks/lock_wait": b""}, "4k", "contention")
    with pytest.raises(ParseError, match=r"^4k/locks: no lock_stat header"):
        phase_locks(FILES | {"4k/locks/lock_stat": b"none\n"}, "4k", "lock_stat")
