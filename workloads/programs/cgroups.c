/*
 * Control groups: made, entered, limited, read, reclaimed from and removed, one operation at a time.
 */
#include "program.h"
#include "group.h"

#include <signal.h>
#include <sys/klog.h>
#include <sys/mman.h>

#define CONSOLE_LEVEL 8 /* of syslog(2) */
#define PAGES 512UL	/* of a task in a group */

static size_t page;

/* How many bytes a file of a group has. */
static size_t get(const char *file)
{
	static char text[16384];
	int fd = open(file, O_RDONLY);
	ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	need(got > 0 && close(fd) == 0, file);
	text[got] = 0;
	return got;
}

static void touch(unsigned long pages)
{
	char *at = mmap(NULL, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	need(at != MAP_FAILED, "mmap");
	for (unsigned long n = 0; n < pages; n++)
		at[n * page] = 1;
}

/* A group with a task of drawn size, and what both leave behind. */
static void life(unsigned long count)
{
	while (count--) {
		make_group();
		put(GROUP "/cpu.weight", 1 + draw(10000));
		put(GROUP "/memory.max", PAGES * page * 2);
		need(in_group(touch, 1 + draw(64)) == 0, "child");
		if (!draw(4))
			need(in_group(write_file, 1 + draw(16)) == 0, "child");
		remove_group();
	}
}

static const char *const limits[] = {
	GROUP "/memory.min", GROUP "/memory.low", GROUP "/memory.high", GROUP "/memory.max",
	GROUP "/memory.swap.high", GROUP "/memory.swap.max", GROUP "/cpu.weight",
	GROUP "/memory.oom.group",
};

/* A limit written and read; nothing is above it. */
static void limit(unsigned long count)
{
	make_group();
	while (count--) {
		unsigned of = draw(8);

		put(limits[of], of == 7 ? draw(2) : of == 6 ? 1 + draw(10000) :
					    (1UL << 26) + draw(1 << 20) * page);
		get(limits[of]);
	}
	remove_group();
}

static const char *const files[] = {
	GROUP "/memory.stat", GROUP "/memory.numa_stat", GROUP "/memory.events",
	GROUP "/memory.events.local", GROUP "/memory.current", GROUP "/memory.peak",
	GROUP "/memory.swap.current", GROUP "/memory.swap.peak", GROUP "/memory.swap.events",
	GROUP "/memory.oom.group",
	GROUP "/cpu.stat", GROUP "/cpu.pressure", GROUP "/memory.pressure",
	GROUP "/io.pressure", GROUP "/cgroup.stat", GROUP "/cgroup.events",
};

/* One of a group's files read, after some of its memory has changed. */
static void statistics(unsigned long count)
{
	make_group();
	while (count) {
		unsigned long now = count < 64 ? count : 64;

		need(in_group(touch, 1 + draw(64)) == 0, "child");
		for (unsigned long n = 0; n < now; n++)
			get(files[draw(sizeof(files) / sizeof(*files))]);
		count -= now;
	}
	remove_group();
}

/* From the device: nothing of the file is in memory. */
static void read_file(unsigned long pages)
{
	static char bytes[4096];
	int fd = open("/mnt/group", O_RDONLY);

	need(fd >= 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0, "/mnt/group");
	while (pages--)
		need(read(fd, bytes, sizeof(bytes)) == sizeof(bytes), "read");
}

/*
 * Pages of a file above memory.high, reclaimed on the way out.  They are clean, so that nobody has
 * to wait until they are: how many ticks come meanwhile is another number on another kernel.
 */
static void high(unsigned long count)
{
	write_file(PAGES);
	make_group();
	put(GROUP "/memory.high", 128 * page);
	while (count) {
		unsigned long now = 256 + draw(256);

		now = now < count ? now : count;
		need(in_group(read_file, now) == 0, "child");
		count -= now;
	}
	remove_group();
}

/* Pages of a file taken back as memory.reclaim says. */
static void reclaim(unsigned long count)
{
	make_group();
	while (count) {
		unsigned long now = count < PAGES ? count : PAGES;

		need(in_group(write_file, now) == 0, "child");
		put(GROUP "/memory.reclaim", (now - now / 4) * page);
		count -= now;
	}
	remove_group();
}

/* A task that wants more than there is, and is killed. */
static void oom(unsigned long count)
{
	/* What the kernel says of it is long, and slow on a console. */
	need(klogctl(CONSOLE_LEVEL, NULL, 1) >= 0, "syslog");
	make_group();
	put(GROUP "/memory.max", 64 * page);
	while (count--) {
		int status = in_group(touch, 128 + draw(128));

		need(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "not killed");
	}
	remove_group();
	need(klogctl(CONSOLE_LEVEL, NULL, 4) >= 0, "syslog");
}

static const struct operation operations[] = {
	{ "life", life }, { "limit", limit }, { "statistics", statistics }, { "high", high },
	{ "reclaim", reclaim }, { "oom", oom }, {},
};

int main(int argc, char **argv)
{
	page = sysconf(_SC_PAGESIZE);
	return run_operation(operations, argc, argv);
}
