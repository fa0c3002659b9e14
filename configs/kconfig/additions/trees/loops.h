/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A module of loops: as it is loaded it does COUNT operations of one kind, says in the kernel's
 * log how many answers of a tree were wrong, and refuses to stay.
 */
#include <linux/module.h>

#define MOST 4096ul /* entries of a tree: more are done in turns */

struct loop {
	const char *name;
	void (*run)(ulong entries);
};

/* It comes with the kernel, which else calls itself tainted, and a tainted kernel's run is refused. */
MODULE_INFO(intree, "Y");

static char *operation;
static ulong count, seed;
module_param(operation, charp, 0);
module_param(count, ulong, 0);
module_param(seed, ulong, 0);

static ulong wrong;

static inline void expect(bool holds)
{
	wrong += !holds;
}

/* Of 0 to below - 1, by xorshift64* (Vigna, ACM TOMS 42, 2016). */
static inline u32 draw(u32 below)
{
	static u64 from;

	from = from ? from : seed * 0x9e3779b97f4a7c15ull | 1;
	from ^= from >> 12;
	from ^= from << 25;
	from ^= from >> 27;
	return (u32)(from * 0x2545f4914f6cdd1dull >> 32) % below;
}

static int __init run_loop(const char *module, const struct loop *known)
{
	for (; operation && known->name; known++) {
		if (strcmp(operation, known->name))
			continue;
		for (ulong left = count; left; left -= min(left, MOST))
			known->run(min(left, MOST));
		pr_info("%s: %s %lu wrong %lu\n", module, operation, count, wrong);
		return -EAGAIN;
	}
	return -EINVAL;
}
