/*
 * A file in the page cache, where programs map it: read, written, and copied when written.
 *
 * It is written in pieces of up to 256 KiB, so that its folios are as large as the file system
 * makes them; each region that is mapped is a part of it, and each page of a region is touched.
 */
#include "program.h"

#include <fcntl.h>
#include <sys/mman.h>

#define PAGES 1024UL
#define REGION 64UL /* pages at most */
#define FILE_NAME "/mnt/mapped"

static size_t page;

static void fill(unsigned long count)
{
	static char bytes[REGION * 4096];
	int fd = open(FILE_NAME, O_WRONLY | O_CREAT, 0600);
	off_t at = 0;

	while (count) {
		unsigned long pages = 1 + draw(REGION);
		size_t length;

		pages = pages < count ? pages : count;
		length = pages * page;
		need(pwrite(fd, bytes, length, at) == (ssize_t)length, FILE_NAME);
		at = at + length < PAGES * page ? at + length : 0;
		count -= pages;
	}
	need(close(fd) == 0, FILE_NAME);
}

/* Regions of drawn places and lengths, mapped, touched in each page and unmapped. */
static void touched(unsigned long count, int flags, int writes)
{
	int fd = open(FILE_NAME, O_RDWR);

	need(fd >= 0, FILE_NAME);
	while (count) {
		unsigned long pages = 1 + draw(REGION), from = draw(PAGES - REGION);
		volatile char *at;

		pages = pages < count ? pages : count;
		at = mmap(NULL, pages * page, PROT_READ | (writes ? PROT_WRITE : 0), flags, fd, from * page);
		need(at != MAP_FAILED, "mmap");
		for (unsigned long n = 0; n < pages; n++)
			if (writes)
				at[n * page] = 1 + n;
			else
				(void)at[n * page];
		need(munmap((void *)at, pages * page) == 0, "munmap");
		count -= pages;
	}
	need(close(fd) == 0, FILE_NAME);
}

static void read_(unsigned long count)
{
	touched(count, MAP_SHARED, 0);
}

static void write_(unsigned long count)
{
	touched(count, MAP_SHARED, 1);
}

static void copy(unsigned long count)
{
	touched(count, MAP_PRIVATE, 1);
}

static const struct operation operations[] = {
	{ "fill", fill }, { "read", read_ }, { "write", write_ }, { "copy", copy }, {},
};

int main(int argc, char **argv)
{
	page = sysconf(_SC_PAGESIZE);
	return run_operation(operations, argc, argv);
}
