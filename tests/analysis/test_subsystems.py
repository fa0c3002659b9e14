"""Parts of the kernel by prefix."""

from __future__ import annotations

import pytest

from analysis.function_names import OTHER, catalogue, programs, subsystem


@pytest.mark.parametrize(
    ("function", "file", "expected"),
    [
        ("xas_load", "lib/xarray.c", "page-cache tree (xarray)"),
        ("filemap_fault", "mm/filemap.c", "page cache"),
        ("try_charge_memcg", "mm/memcontrol-v1.c", "memory cgroups"),
        ("do_user_addr_fault", "arch/x86/mm/fault.c", "faults and page tables"),
        ("iomap_iter", "fs/iomap/iter.c", "file system"),
        ("brd_submit_bio", "drivers/block/brd.c", "block and brd"),
        ("asm_exc_page_fault", "", "kernel entry and exit"),
        ("native_queued_spin_lock_slowpath", "", "locks and RCU"),
        ("__xas_next", "", "page-cache tree (xarray)"),
        ("page_vma_mapped_walk", "mm/page_vma_mapped.c", "reclaim"),
        ("folio_mapping", "mm/util.c", "other memory management"),
        ("nobody_knows", "", OTHER),
        # A known file is believed, whatever the name looks like.
        ("xas_imitation", "drivers/foo.c", OTHER),
    ],
)
def test_where_functions_belong(function: str, file: str, expected: str) -> None:
    assert subsystem(function, file) == expected


def test_no_prefix_is_in_two_subsystems() -> None:
    for kind in ("files", "functions"):
        prefixes = [prefix for entry in catalogue() for prefix in getattr(entry, kind)]
        assert len(prefixes) == len(set(prefixes))
    titles = [entry.title for entry in catalogue()]
    assert len(titles) == len(set(titles))
    assert OTHER not in titles


def test_the_spinning_agent_is_explained() -> None:
    assert "idle" in programs()["busybox"]
