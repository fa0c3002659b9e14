"""Labels of locks: by key within a kernel, by sites across kernels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.lock_identity import agreed, class_id, identify, split_name
from results.locks import CallSite, LockClass


def lock(name: str, key: str = "", *sites: str, acquisitions: int = 10) -> LockClass:
    return LockClass(
        name=name,
        key=key,
        contentions=5 if sites else 0,
        wait_total_ns=0,
        wait_max_ns=0,
        acquisitions=acquisitions,
        hold_total_ns=100,
        hold_max_ns=10,
        waiters=tuple(
            CallSite(function=site, offset=16, count=9 - i) for i, site in enumerate(sites)
        ),
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("&xa->xa_lock#4", ("&xa->xa_lock", "")),
        ("&mm->mmap_lock-R", ("&mm->mmap_lock", "-R")),
        ("&sb->s_type->i_mutex_key#9/4", ("&sb->s_type->i_mutex_key", "")),
        ("&rq->__lock/1", ("&rq->__lock", "")),
        ("&foo#2-W", ("&foo", "-W")),
        ("", ("", "")),
    ],
)
def test_printed_names(name: str, expected: tuple[str, str]) -> None:
    assert split_name(name) == expected


def test_a_key_joins_guests_and_sites_name_the_class() -> None:
    one_vcpu = lock("&xa->xa_lock#4", "ff10")
    several = lock("&xa->xa_lock#6", "ff10", "__filemap_add_folio")
    stranger = lock("&xa->xa_lock#4", "ff20", "idr_alloc")
    identities = identify([one_vcpu, several, stranger])
    assert identities[class_id(one_vcpu)].label == "i_pages.xa_lock"
    assert identities[class_id(one_vcpu)] == identities[class_id(several)]
    assert identities[class_id(one_vcpu)].by == "sites"
    assert identities[class_id(stranger)].label == "&xa->xa_lock at idr_alloc"


def test_without_sites_only_the_number_is_left_and_is_marked_so() -> None:
    first, second = lock("&xa->xa_lock#4", "ff10"), lock("&xa->xa_lock#2", "ff20")
    identities = identify([first, second])
    assert identities[class_id(first)][:3] == ("&xa->xa_lock#4", "number", "unknown")
    assert identities[class_id(second)].label == "&xa->xa_lock#2"


def test_a_class_taken_far_more_often_is_taken_to_be_the_known_one_and_is_marked_so() -> None:
    busy, idle = lock("&xa->xa_lock#4", "ff10", acquisitions=200), lock("&xa->xa_lock#2", "ff20")
    identities = identify([busy, idle])
    assert identities[class_id(busy)][:3] == ("i_pages.xa_lock", "use", "one")
    assert identities[class_id(idle)].by == "number"
    # Where anybody waited for a namesake, sites decide and nothing is guessed.
    waited = lock("&xa->xa_lock#2", "ff20", "idr_alloc")
    assert identify([busy, waited])[class_id(busy)].by == "number"


def test_two_kernels_agree_by_sites_whatever_the_numbers() -> None:
    base = identify([lock("&xa->xa_lock#4", "a1", "__remove_mapping")])
    patched = identify([lock("&xa->xa_lock#7", "b9", "__filemap_add_folio", "__remove_mapping")])
    assert set(base.values()) == set(patched.values())


def test_readers_and_writers_of_one_class_are_two_rows_with_common_sites() -> None:
    read = lock("&foo->sem#2-R", "c1")
    write = lock("&foo->sem#2-W", "c1", "foo_write")
    twin = lock("&foo->sem", "c2", "bar")
    identities = identify([read, write, twin])
    assert identities[class_id(read)].label == "&foo->sem at foo_write (read)"
    assert identities[class_id(write)].label == "&foo->sem at foo_write (write)"
    assert identify([lock("&mm->mmap_lock-R", "d")]).popitem()[1].label == "mmap_lock (read)"


def test_all_page_table_locks_are_one_to_a_reader() -> None:
    classes = [lock("ptlock_ptr(ptdesc)", "e1"), lock("ptlock_ptr(ptdesc)#2", "e2")]
    assert {known.label for known in identify(classes).values()} == {"page-table locks"}


NAMES = st.text(max_size=12) | st.sampled_from(
    ["&xa->xa_lock#1", "a-R", "a-W", "a#1/2-R", "#", "/"]
)


@given(st.lists(st.builds(lock, NAMES, st.sampled_from(["", "k1", "k2"]), NAMES), max_size=8))
def test_any_name_has_a_label_whatever_the_order(classes: list[LockClass]) -> None:
    identities = identify(classes)
    assert set(identities) == {class_id(each) for each in classes}
    assert identify(classes[::-1]) == identities


def test_a_name_that_one_kernel_tells_apart_and_the_other_does_not_is_one_row() -> None:
    plain = [lock("&dentry->d_lock", "1"), lock("&dentry->d_lock#2", "2")]
    with_sites = [lock("&dentry->d_lock", "1", "dput"), plain[1]]
    apart = identify(with_sites)
    assert {each.label for each in apart.values()} == {
        "&dentry->d_lock at dput",
        "&dentry->d_lock#2",
    }
    both = agreed({"base": identify(plain), "patched": apart})
    for identities in both.values():
        assert {each.label for each in identities.values()} == {"&dentry->d_lock"}
    # Where both kernels tell, it is told.
    same = agreed({"base": apart, "patched": apart})
    assert same["base"] == apart
