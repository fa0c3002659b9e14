from __future__ import annotations

import pytest

from workloads.parse import ParseError
from workloads.sampled import FREQUENCY_HZ, waits

PERIOD_NS = 1e9 / FREQUENCY_HZ


def test_samples_are_summed_by_who_wanted_the_lock() -> None:
    rows, total = waits(
        "total 100\n"
        "3 native_queued_spin_lock_slowpath;_raw_spin_lock_irq;__filemap_add_folio;read\n"
        "4 queued_spin_lock_slowpath;__raw_spin_lock_irq;__filemap_add_folio;read\n"
        "9 rwsem_spin_on_owner;down_read;do_user_addr_fault\n"
    )
    assert total == 100
    assert [(wait.callers, wait.count) for wait in rows] == [
        (("do_user_addr_fault",), 9),
        (("__filemap_add_folio", "read"), 7),
    ]
    assert rows[0].total_ns == pytest.approx(9 * PERIOD_NS)
    assert {wait.flags for wait in rows} == {"sampled"}


def test_nobody_waited() -> None:
    assert waits("total 12\n") == ((), 12)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "0 lines of totals"),
        ("total 1\ntotal 2\n", "2 lines of totals"),
        ("total 3\nmany native_queued_spin_lock_slowpath\n", "not COUNT and a stack"),
        ("total 3\n4 native_queued_spin_lock_slowpath;f\n", "4 samples in slow paths of 3"),
    ],
)
def test_a_summary_that_is_none_is_refused(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        waits(text)
