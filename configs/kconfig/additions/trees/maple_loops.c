// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Loops over maple trees, which hold ranges: areas of memory, interrupts, names of some file systems.
 */
#include <linux/maple_tree.h>
#include <linux/mutex.h>
#include <linux/xarray.h>

#include "loops.h"

#define APART 64ul /* from one range to the next, which is half as long at the most */

static DEFINE_MTREE(tree);
static struct maple_tree room = MTREE_INIT(room, MT_FLAGS_ALLOC_RANGE);
static struct maple_tree bulk, copied;
static DEFINE_MUTEX(outside);

static void store_ranges(struct maple_tree *into, ulong entries)
{
	for (ulong i = 0; i < entries; i++)
		expect(!mtree_store_range(into, i * APART, i * APART + draw(APART / 2),
					  xa_mk_value(i), GFP_KERNEL));
}

/* Ranges stored, looked up, others put between them, and all erased in a drawn order. */
static void ranges(ulong entries)
{
	ulong step = draw(MOST / 2) * 2 + 1;

	store_ranges(&tree, entries);
	for (ulong i = 0; i < entries; i++) {
		ulong hole = i * APART + APART / 2;

		expect(mtree_load(&tree, i * APART) == xa_mk_value(i));
		expect(!(i & 1 ? mtree_insert(&tree, hole, xa_mk_value(i), GFP_KERNEL)
			       : mtree_insert_range(&tree, hole, hole + 15, xa_mk_value(i), GFP_KERNEL)));
	}
	for (ulong i = 0; i < MOST; i++) {
		ulong at = (i * step) % MOST;

		if (at >= entries)
			continue;
		expect(mtree_erase(&tree, at * APART) == xa_mk_value(at));
		expect(mtree_erase(&tree, at * APART + APART / 2) == xa_mk_value(at));
	}
	expect(mtree_empty(&tree));
}

/* Each range is walked over in every way there is, forwards and back. */
static void walk(ulong entries)
{
	ulong last = entries * APART, index = 0, met = 0;
	MA_STATE(mas, &tree, 0, 0);
	void *entry;

	store_ranges(&tree, entries);
	mt_for_each(&tree, entry, index, last)
		met++;
	for (entry = mt_next(&tree, 0, last); entry; entry = mt_next(&tree, index, last))
		index = xa_to_value(entry) * APART, met++;
	for (index = last; (entry = mt_prev(&tree, index, 0)); met++)
		index = xa_to_value(entry) * APART;
	mas_lock(&mas);
	mas_for_each(&mas, entry, last) {
		if (++met % 64)
			continue;
		mas_pause(&mas);
		mas_unlock(&mas);
		mas_lock(&mas);
	}
	mas_set(&mas, last);
	while (mas_find_rev(&mas, 0))
		met++;
	for (mas_set(&mas, 0), entry = mas_find_range(&mas, last); mas.last < last;
	     entry = mas_find_range(&mas, last))
		met += entry != NULL;
	for (mas_set(&mas, last); mas.index; met += entry != NULL)
		entry = mas_find_range_rev(&mas, 0);
	for (mas_set(&mas, 0), entry = mas_walk(&mas); entry; entry = mas_next(&mas, last))
		met++;
	mas_unlock(&mas);
	expect(met == 8 * entries - 1);
	mtree_destroy(&tree);
}

/* Room looked for from below, from above and in a circle, and given back. */
static void gaps(ulong entries)
{
	ulong at, next = 0;

	for (ulong i = 0; i < entries; i++) {
		void *entry = xa_mk_value(i);
		ulong pages = 1 + draw(16);

		if (i % 3 == 0)
			expect(!mtree_alloc_range(&room, &at, entry, pages, 0, 1ul << 40, GFP_KERNEL));
		else if (i % 3 == 1)
			expect(!mtree_alloc_rrange(&room, &at, entry, pages, 0, 1ul << 40, GFP_KERNEL));
		else
			expect(mtree_alloc_cyclic(&room, &at, entry, 1, 1ul << 40, &next, GFP_KERNEL) >= 0);
		if (i % 4)
			expect(mtree_erase(&room, at) == entry);
	}
	mtree_destroy(&room);
}

/*
 * Newer kernels set memory aside for a store at a time.  What older ones do must stay as it was, so
 * Kbuild looks which of them this is.
 */
#ifdef NO_EXPECTED_ENTRIES
#define mas_expected_entries(mas, entries) 0
#define mas_store(mas, entry) expect(!mas_store_gfp(mas, entry, GFP_KERNEL))
#endif

/*
 * Ranges stored in order into memory that is set aside for them and what is between, then the tree
 * is duplicated.
 */
static void copy(ulong entries)
{
	MA_STATE(mas, &bulk, 0, 0);

	mt_init_flags(&bulk, MT_FLAGS_LOCK_EXTERN);
	mt_set_external_lock(&bulk, &outside);
	mt_init_flags(&copied, MT_FLAGS_LOCK_EXTERN);
	mt_set_external_lock(&copied, &outside);
	mutex_lock(&outside);
	expect(!mas_expected_entries(&mas, 2 * entries));
	for (ulong i = 0; i < entries; i++) {
		mas_set_range(&mas, i * APART, i * APART + draw(APART / 2));
		mas_store(&mas, xa_mk_value(i));
		expect(!mas_is_err(&mas));
	}
	mas_destroy(&mas);
	expect(!__mt_dup(&bulk, &copied, GFP_KERNEL));
	expect(mtree_load(&copied, (entries - 1) * APART) == xa_mk_value(entries - 1));
	__mt_destroy(&copied);
	__mt_destroy(&bulk);
	mutex_unlock(&outside);
}

static const struct loop known[] = {
	{ "ranges", ranges }, { "walk", walk }, { "gaps", gaps }, { "copy", copy },
	{},
};

static int __init maple_loops_init(void)
{
	return run_loop("maple_loops", known);
}
module_init(maple_loops_init);

MODULE_DESCRIPTION("Loops over maple trees");
MODULE_LICENSE("GPL");
