/*
 * Anonymous memory that goes to swap and comes back, one operation at a time: on /dev/ram0, on
 * zram, or on /dev/ram0 with zswap in front of it.
 *
 * Each operation makes its own swap area and gives it up at its end.
 */
#include "program.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/swap.h>

#define ZRAM "/sys/block/zram0/"
#define ZSWAP "/sys/module/zswap/parameters/enabled"
#define LIMIT "/sys/fs/cgroup/twinboot/memory.max"
#define PAGES 1024UL /* of what is sent out as a whole */

static const char *device = "/dev/ram0";
static size_t page;

static void set(const char *file, const char *value)
{
	int fd = open(file, O_WRONLY);

	need(fd >= 0 && write(fd, value, strlen(value)) > 0 && close(fd) == 0, file);
}

/* Layout: union swap_header of include/linux/swap.h. */
static void swap_on(void)
{
	char *header = calloc(1, page);
	uint32_t *info = (uint32_t *)(header + 1024);
	uint64_t bytes;
	int fd = open(device, O_RDWR);

	need(fd >= 0 && ioctl(fd, BLKGETSIZE64, &bytes) == 0, device);
	info[0] = 1;
	info[1] = bytes / page - 1;
	memcpy(header + page - 10, "SWAPSPACE2", 10);
	need(pwrite(fd, header, page, 0) == (ssize_t)page && close(fd) == 0, device);
	need(swapon(device, 0) == 0, "swapon");
	free(header);
}

static void swap_off(void)
{
	need(swapoff(device) == 0, "swapoff");
}

static char *map(size_t pages)
{
	char *at = mmap(NULL, pages * page, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	need(at != MAP_FAILED, "mmap");
	/* Pages that differ: what is all of one byte is not always written. */
	for (size_t n = 0; n < pages; n++)
		memset(at + n * page, n, page / 2);
	return at;
}

static void send_out(char *at, size_t pages)
{
	need(madvise(at, pages * page, MADV_PAGEOUT) == 0, "madvise");
}

/* Sent out in pieces of drawn sizes and faulted in again at once. */
static void pageout(unsigned long count)
{
	char *at;

	swap_on();
	at = map(PAGES);
	while (count) {
		size_t pages = 1 + draw(64), from = draw(PAGES - 64);

		if (pages > count)
			pages = count;
		send_out(at + from * page, pages);
		for (size_t n = 0; n < pages; n++)
			at[(from + n) * page]++;
		count -= pages;
	}
	need(munmap(at, PAGES * page) == 0, "munmap");
	swap_off();
}

/* A region half as large again as the limit, filled, then written at random: usemem. */
static void over_limit(unsigned long count)
{
	unsigned long limit = 0;
	size_t pages;
	FILE *file = fopen(LIMIT, "r");
	char *at;

	need(file && fscanf(file, "%lu", &limit) == 1, LIMIT);
	fclose(file);
	swap_on();
	pages = limit / page / 2 * 3;
	at = map(pages);
	while (count--)
		at[(size_t)draw(pages) * page]++;
	need(munmap(at, pages * page) == 0, "munmap");
	swap_off();
}

/* What is out is brought back by giving the area up. */
static void swapoff_(unsigned long count)
{
	char *at = map(PAGES);

	while (count) {
		size_t pages = count < PAGES ? count : PAGES;

		swap_on();
		send_out(at, pages);
		swap_off();
		/* Written again, so that nothing of it is known to be on the device. */
		for (size_t n = 0; n < pages; n++)
			at[n * page] = draw(256);
		count -= pages;
	}
}

/* Pages are compressed and stay in memory: no device behind them. */
static void on_zram(void (*run)(unsigned long), unsigned long count)
{
	set(ZRAM "disksize", "256M");
	device = "/dev/zram0";
	run(count);
	set(ZRAM "reset", "1");
}

/* The same in front of a device, which pages go to that do not fit. */
static void with_zswap(void (*run)(unsigned long), unsigned long count)
{
	set(ZSWAP, "Y");
	run(count);
	set(ZSWAP, "N");
}

static void zram_pageout(unsigned long count)
{
	on_zram(pageout, count);
}

static void zram_random(unsigned long count)
{
	on_zram(over_limit, count);
}

static void zswap_pageout(unsigned long count)
{
	with_zswap(pageout, count);
}

static void zswap_random(unsigned long count)
{
	with_zswap(over_limit, count);
}

static const struct operation operations[] = {
	{ "pageout", pageout }, { "random", over_limit }, { "swapoff", swapoff_ },
	{ "zram_pageout", zram_pageout }, { "zram_random", zram_random },
	{ "zswap_pageout", zswap_pageout }, { "zswap_random", zswap_random }, {},
};

int main(int argc, char **argv)
{
	page = sysconf(_SC_PAGESIZE);
	return run_operation(operations, argc, argv);
}
