/*
 * The kernel's own test of vmalloc, lib/test_vmalloc.c, one of its tests at a time.
 *
 * The module does all its work as it is loaded, refuses to stay, and leaves a line in the
 * kernel's log for each test.  Its tests of random sizes draw from the kernel's random numbers,
 * which are others on another kernel; here sizes are drawn from the seed, a load of the module
 * for each.
 *
 * Stacks of the kernel's tasks leave holes of three pages between them, and how many there are is a
 * boot's draw: one more made the tree of free addresses deeper and moved a page's path by 2 %
 * (docs/notebook/evidence.md).  "settle" fills them before the others, for as long as the guest runs, and makes
 * areas up to twice as many and a multiple of STEP, whatever the number of tasks.
 */
#include "program.h"
#include "module.h"
#include <linux/filter.h>
#include <sys/socket.h>

#define MODULE "/modules/test_vmalloc.ko"
#define ROUNDS 8 /* drawn sizes */
#define IN_USE "/proc/vmallocinfo"
#define EVERYBODY "/sys/fs/cgroup/cgroup.procs"
#define STEP 128U
#define WORDS 700 /* of a filter that takes two pages, and a third to guard them */

/* Bits of run_test_mask. */
enum {
	FIX_SIZE = 1, FULL_FIT = 2, LONG_BUSY_LIST = 4, FIX_ALIGN = 16, PER_CPU = 128,
	KVFREE_RCU = 512, VM_MAP_RAM = 1024,
};

/* What the test says of itself: it passed, after as many loops as it was given. */
static void require_passed(int log, unsigned long loops)
{
	int passed = 0, failed = 1;
	unsigned long done = 0;
	const char *words;

	while (!done && (words = logged(log, "Summary: ")))
		if (sscanf(words, "%*s passed: %d failed: %d repeat: 1 loops: %lu", &passed, &failed,
			   &done) < 3) /* newer kernels count failures that are expected, too */
			sscanf(words, "%*s passed: %d failed: %d xfailed: 0 repeat: 1 loops: %lu",
			       &passed, &failed, &done);
	errno = 0;
	need(passed == 1 && failed == 0 && done == loops, "the summary of " MODULE);
}

static void test(int mask, unsigned long loops, unsigned pages, const char *more)
{
	char parameters[160];
	int log = open_log();

	snprintf(parameters, sizeof(parameters),
		 "nr_threads=1 run_test_mask=%d test_loop_count=%lu nr_pages=%u %s", mask, loops,
		 pages, more);
	load_module(MODULE, parameters);
	require_passed(log, loops);
	close(log);
}

static unsigned areas_in_use(void)
{
	FILE *list = fopen(IN_USE, "re");
	unsigned areas = 0;

	need(list != NULL, IN_USE);
	for (int c; (c = getc(list)) != EOF;)
		areas += c == '\n';
	fclose(list);
	errno = 0;
	need(areas > 0, "the number of areas in " IN_USE);
	return areas;
}

/* By filters of sockets, each of which is an area; says by a byte when all are there. */
static void keep_areas(int said)
{
	static struct sock_filter words[WORDS];
	const struct sock_fprog filter = { WORDS, words };
	unsigned areas = areas_in_use(), wanted = (2 * areas + STEP - 1) / STEP * STEP;

	for (unsigned at = 0; at < WORDS; at++)
		words[at] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_IMM, 0);
	words[WORDS - 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0);
	for (; areas < wanted; areas++) {
		int any = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

		need(any >= 0 && setsockopt(any, SOL_SOCKET, SO_ATTACH_FILTER, &filter,
					    sizeof(filter)) == 0, "a socket's filter");
	}
	need(write(said, "", 1) == 1, "write");
	for (;;)
		pause();
}

/*
 * A child keeps them, whose own stack is in use by then.  Outside of the measured control group, which
 * is to be as it was at the end.
 */
static void settle(unsigned long count)
{
	int said[2], group = open(EVERYBODY, O_WRONLY | O_CLOEXEC);
	pid_t child;
	char byte;

	(void)count;
	need(group >= 0 && write(group, "0", 1) == 1 && close(group) == 0, EVERYBODY);
	need(pipe2(said, O_CLOEXEC) == 0 && (child = fork()) >= 0, "a child");
	if (child == 0)
		keep_areas(said[1]);
	close(said[1]);
	need(read(said[0], &byte, 1) == 1, "areas made up");
}

static void page_(unsigned long count)
{
	test(FIX_SIZE, count, 1, "");
}

/* Areas of 1 to 100 pages, of as many sizes as there are rounds. */
static void sizes(unsigned long count)
{
	for (int left = ROUNDS; left && count; left--) {
		unsigned long share = count / left;

		if (share)
			test(FIX_SIZE, share, 1 + draw(100), "");
		count -= share;
	}
}

/* 2 MiB, mapped by one entry of the second level. */
static void huge(unsigned long count)
{
	test(FIX_SIZE, count, 512, "use_huge=1");
}

static void align(unsigned long count)
{
	test(FIX_ALIGN, count, 1, "");
}

/* An area of 100 pages and one of a page, where 15,000 others are. */
static void busy(unsigned long count)
{
	test(LONG_BUSY_LIST, count, 1, "");
}

/* A page that fits into the holes between 8,192 others. */
static void fit(unsigned long count)
{
	test(FULL_FIT, count, 1, "");
}

/* Freed when a grace period is over, in batches. */
static void rcu(unsigned long count)
{
	test(KVFREE_RCU, count, 1, "");
}

static void map(unsigned long count)
{
	test(VM_MAP_RAM, count, 16, "");
}

/* 35,000 objects of per-CPU memory, whatever the loops. */
static void percpu(unsigned long count)
{
	while (count--)
		test(PER_CPU, 1, 1, "");
}

static const struct operation operations[] = {
	{ "settle", settle }, { "page", page_ }, { "sizes", sizes }, { "huge", huge }, { "align", align },
	{ "busy", busy }, { "fit", fit }, { "rcu", rcu }, { "map", map }, { "percpu", percpu }, {},
};

int main(int argc, char **argv)
{
	return run_operation(operations, argc, argv);
}
