// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Loops over XArrays, the trees of what a file or swap has in memory and of numbers given out.
 */
#include <linux/rcupdate.h>
#include <linux/xarray.h>

#include "loops.h"

#define ORDER 9 /* of an entry with several indices: a huge page's */

static DEFINE_XARRAY(array);
static DEFINE_XARRAY_ALLOC(numbers);

/* Entries at the same distance from each other: stored, looked up, erased. */
static void store_at(ulong first, ulong step, ulong entries)
{
	for (ulong i = 0; i < entries; i++)
		expect(!xa_err(xa_store(&array, (u32)(first + i * step), xa_mk_value(i), GFP_KERNEL)));
	for (ulong i = 0; i < entries; i++)
		expect(xa_load(&array, (u32)(first + i * step)) == xa_mk_value(i));
	for (ulong i = 0; i < entries; i++)
		expect(xa_erase(&array, (u32)(first + i * step)) == xa_mk_value(i));
}

static void store(ulong entries)
{
	store_at(draw(1u << 20), 1, entries);
}

/*
 * An odd step meets no index of 32 bits twice.  An entry has three nodes of its own, which RCU frees:
 * where more than 10,000 wait, each call_rcu() does more, so whether they come to as many between
 * two ticks must not be luck.
 */
static void scatter(ulong entries)
{
	for (ulong left = entries, now; left; left -= now) {
		now = min(left, MOST / 2);
		store_at(draw(1u << 31), 2654435761u, now);
		rcu_barrier();
	}
}

/* Entries of 512 indices each; every second one is split, as a large folio is. */
static void large(ulong entries)
{
	void *entry = xa_mk_value(1);

	for (ulong i = 0; i < entries; i++) {
		ulong first = i << ORDER;
		XA_STATE_ORDER(xas, &array, first, ORDER);
		XA_STATE(split, &array, first);

		do {
			xas_lock(&xas);
			xas_store(&xas, entry);
			xas_unlock(&xas);
		} while (xas_nomem(&xas, GFP_KERNEL));
		expect(!xas_error(&xas) && xa_get_order(&array, first) == ORDER);
		if (i & 1)
			continue;
		xas_split_alloc(&split, entry, ORDER, GFP_KERNEL);
		xas_lock(&split);
		xas_split(&split, entry, ORDER);
		xas_unlock(&split);
		expect(!xas_error(&split));
		expect(xa_get_order(&array, first + draw(1 << ORDER)) == 0);
	}
	expect(!xa_err(xa_store_range(&array, 0, (entries << ORDER) - 1, NULL, GFP_KERNEL)));
	expect(xa_empty(&array));
}

/* Of entries that are there, some are marked, found by their mark, and cleared. */
static void marks(ulong entries)
{
	void *some[16], *entry;
	ulong index, marked = 0, met = 0, all = min(8 * entries, MOST);
	XA_STATE(xas, &array, 0);

	for (index = 0; index < all; index++)
		expect(!xa_err(xa_store(&array, index, xa_mk_value(index), GFP_KERNEL)));
	while (entries--) {
		index = draw(all);
		marked += !xa_get_mark(&array, index, XA_MARK_0);
		xa_set_mark(&array, index, XA_MARK_0);
	}
	expect(xa_extract(&array, some, 0, all - 1, ARRAY_SIZE(some), XA_MARK_0) ==
	       min(marked, ARRAY_SIZE(some)));
	xas_lock(&xas);
	xas_for_each_marked(&xas, entry, all - 1, XA_MARK_0) {
		met += xas_get_mark(&xas, XA_MARK_0);
		if (met % 64)
			continue;
		xas_pause(&xas);
		xas_unlock(&xas);
		xas_lock(&xas);
	}
	xas_unlock(&xas);
	xa_for_each_marked(&array, index, entry, XA_MARK_0)
		xa_clear_mark(&array, index, XA_MARK_0);
	expect(met == marked && !xa_marked(&array, XA_MARK_0));
	xa_destroy(&array);
}

/* Numbers given out from the lowest, or in a circle, exchanged and taken back. */
static void ids(ulong entries)
{
	u32 id, next = 0;

	for (ulong i = 0; i < entries; i++) {
		void *entry = xa_mk_value(i), *other = xa_mk_value(i + 1);

		expect((i & 1 ? xa_alloc(&numbers, &id, entry, xa_limit_31b, GFP_KERNEL)
			      : xa_alloc_cyclic(&numbers, &id, entry, XA_LIMIT(0, 4095), &next,
						GFP_KERNEL)) >= 0);
		expect(xa_cmpxchg(&numbers, id, entry, other, GFP_KERNEL) == entry);
		if (i % 4)
			expect(xa_erase(&numbers, id) == other);
	}
	xa_destroy(&numbers);
}

static const struct loop known[] = {
	{ "store", store }, { "scatter", scatter }, { "large", large }, { "marks", marks },
	{ "ids", ids },
	{},
};

static int __init xarray_loops_init(void)
{
	return run_loop("xarray_loops", known);
}
module_init(xarray_loops_init);

MODULE_DESCRIPTION("Loops over XArrays");
MODULE_LICENSE("GPL");
