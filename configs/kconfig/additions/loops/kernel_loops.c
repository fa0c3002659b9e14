// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Loops that stay in the kernel, for native mode: a name written to /proc/loops runs one window of
 * it, so that one system call has hundreds of operations.
 */
#include <linux/maple_tree.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/xarray.h>

enum { SLABS = 512, ENTRIES = 512, RANGES = 64, APART = 64 };

static DEFINE_XARRAY(array);
static DEFINE_MTREE(tree);
static void *held[SLABS];

/* Objects of four sizes, more than a CPU keeps at hand, and freed in another order. */
static bool slab(void)
{
	bool good = true;

	for (int i = 0; i < SLABS; i++)
		good &= !!(held[i] = kmalloc(64u << i % 4, GFP_KERNEL));
	for (int i = 0; i < SLABS; i++)
		kfree(held[(i * 129) % SLABS]);
	return good;
}

/* Entries side by side, as those of a file: stored, looked up, erased. */
static bool xarray(void)
{
	bool good = true;

	for (ulong i = 0; i < ENTRIES; i++)
		good &= !xa_err(xa_store(&array, i, xa_mk_value(i), GFP_KERNEL));
	for (ulong i = 0; i < ENTRIES; i++)
		good &= xa_load(&array, i) == xa_mk_value(i);
	for (ulong i = 0; i < ENTRIES; i++)
		good &= xa_erase(&array, i) == xa_mk_value(i);
	return good && xa_empty(&array);
}

/* Ranges with room between them, as areas of memory: stored, looked up, erased. */
static bool maple(void)
{
	bool good = true;

	for (ulong i = 0; i < RANGES; i++)
		good &= !mtree_store_range(&tree, i * APART, i * APART + APART / 2, xa_mk_value(i),
					   GFP_KERNEL);
	for (ulong i = 0; i < RANGES; i++)
		good &= mtree_load(&tree, i * APART + 1) == xa_mk_value(i);
	for (ulong i = 0; i < RANGES; i++)
		good &= mtree_erase(&tree, (i * 17) % RANGES * APART) ==
			xa_mk_value((i * 17) % RANGES);
	return good && mtree_empty(&tree);
}

static ssize_t run(struct file *file, const char __user *text, size_t length, loff_t *at)
{
	char name[16] = {};

	if (length >= sizeof(name) || copy_from_user(name, text, length))
		return -EINVAL;
	if (!strcmp(name, "slab"))
		return slab() ? SLABS : -ENOMEM;
	if (!strcmp(name, "xarray"))
		return xarray() ? ENTRIES : -EIO;
	if (!strcmp(name, "maple"))
		return maple() ? RANGES : -EIO;
	return -ENOENT;
}

static const struct proc_ops operations = { .proc_write = run };

static int __init kernel_loops_init(void)
{
	return proc_create("loops", 0200, NULL, &operations) ? 0 : -ENOMEM;
}
module_init(kernel_loops_init);

MODULE_DESCRIPTION("Loops that native mode times");
MODULE_LICENSE("GPL");
