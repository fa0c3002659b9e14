/*
 * Anonymous memory, one operation at a time, in the style of will-it-scale and micromm.
 *
 * No operation has more than 8 MiB, so that all run under the smallest guest's limit.
 */
#include "program.h"

#include <sys/mman.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

#define MOST 512UL /* pages of a mapping */
#define HUGE_BYTES (2UL << 20)

static size_t page;

static char *map(size_t pages, int flags)
{
	char *at = mmap(NULL, pages * page, PROT_READ | PROT_WRITE,
			MAP_ANONYMOUS | flags, -1, 0);

	need(at != MAP_FAILED, "mmap");
	return at;
}

static void unmap(char *at, size_t pages)
{
	need(munmap(at, pages * page) == 0, "munmap");
}

/* Write to each page of a mapping once, in an order of the seed's: a stride that has no
 * divisor in common with a power of two comes by all of them. */
static void touch(char *at, size_t pages)
{
	size_t round = 1, stride = draw(MOST) | 1, from = draw(MOST);

	while (round < pages)
		round *= 2;
	for (size_t n = 0; n < round; n++) {
		size_t which = (from + n * stride) & (round - 1);

		if (which < pages)
			at[which * page]++;
	}
}

/* Mappings of drawn sizes until all of count pages were in one. */
static void in_mappings(unsigned long count, int flags, int zero)
{
	while (count) {
		size_t pages = 1 + draw(MOST);
		char *at;

		if (pages > count)
			pages = count;
		at = map(pages, flags);
		for (size_t n = 0; zero && n < pages; n++)
			need(((volatile char *)at)[n * page] == 0, "zero page");
		touch(at, pages);
		unmap(at, pages);
		count -= pages;
	}
}

static void fault(unsigned long count)
{
	in_mappings(count, MAP_PRIVATE, 0);
}

/* The zero page first, and a page of one's own with the write. */
static void zero(unsigned long count)
{
	in_mappings(count, MAP_PRIVATE, 1);
}

static void shared(unsigned long count)
{
	in_mappings(count, MAP_SHARED, 0);
}

/* Pieces of what is mapped and written, so that areas are cut in two. */
static void munmap_(unsigned long count)
{
	while (count) {
		char *at = map(MOST, MAP_PRIVATE | MAP_POPULATE);

		for (size_t n = 0; n < MOST && count;) {
			size_t pages = 1 + draw(4);

			if (n + pages > MOST)
				pages = MOST - n;
			unmap(at + n * page, pages);
			count--;
			n += pages + draw(2);
		}
		unmap(at, MOST);
	}
}

static void mprotect_(unsigned long count)
{
	char *at = map(MOST, MAP_PRIVATE | MAP_POPULATE);

	while (count--) {
		size_t from = draw(MOST - 32), pages = 1 + draw(32);
		int rights = PROT_READ | (draw(2) ? PROT_WRITE : 0);

		need(mprotect(at + from * page, pages * page, rights) == 0, "mprotect");
	}
	unmap(at, MOST);
}

/* Moved to and fro between two places, and made larger and smaller. */
static void mremap_(unsigned long count)
{
	char *places = mmap(NULL, 2 * MOST * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *from = places, *to = places + MOST * page;
	size_t pages = 32;

	need(places != MAP_FAILED, "mmap");
	need(mmap(from, pages * page, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_POPULATE, -1, 0) == from, "mmap");
	while (count--) {
		size_t wanted = 1 + draw(64);
		char *then = from;

		need(mremap(from, pages * page, wanted * page, MREMAP_MAYMOVE | MREMAP_FIXED,
			    to) == to, "mremap");
		to[(wanted - 1) * page]++;
		pages = wanted;
		from = to;
		to = then;
	}
}

static void madvise_(unsigned long count)
{
	static const int advices[] = {
		MADV_DONTNEED, MADV_FREE, MADV_COLD, MADV_PAGEOUT, MADV_WILLNEED,
		MADV_POPULATE_READ, MADV_POPULATE_WRITE, MADV_SEQUENTIAL, MADV_NORMAL,
	};
	char *at = map(MOST, MAP_PRIVATE | MAP_POPULATE);

	while (count--) {
		size_t from = draw(MOST - 32), pages = 1 + draw(32);

		need(madvise(at + from * page, pages * page,
			     advices[count % (sizeof(advices) / sizeof(*advices))]) == 0, "madvise");
		at[from * page]++;
	}
	unmap(at, MOST);
}

static void mlock_(unsigned long count)
{
	char *at = map(MOST, MAP_PRIVATE);
	unsigned char there[32];

	while (count--) {
		size_t from = draw(MOST - 32), pages = 1 + draw(32);

		need(mlock(at + from * page, pages * page) == 0, "mlock");
		need(mincore(at + from * page, pages * page, there) == 0 && there[0] & 1, "mincore");
		need(munlock(at + from * page, pages * page) == 0, "munlock");
	}
	unmap(at, MOST);
}

/* Huge pages: written, cut by a change of rights in the middle, and given back. */
static void huge(unsigned long count)
{
	size_t pages = 2 * HUGE_BYTES / page;

	while (count--) {
		char *at = map(pages, MAP_PRIVATE);
		char *aligned = (char *)(((uintptr_t)at + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1));
		size_t cut = (1 + draw(HUGE_BYTES / page - 1)) * page;

		need(madvise(aligned, HUGE_BYTES, MADV_HUGEPAGE) == 0, "madvise");
		aligned[draw(HUGE_BYTES)] = 1;
		need(mprotect(aligned, cut, PROT_READ) == 0, "mprotect");
		need(madvise(aligned + cut, page, MADV_DONTNEED) == 0, "madvise");
		unmap(at, pages);
	}
}

static const struct operation operations[] = {
	{ "fault", fault }, { "zero", zero }, { "shared", shared }, { "munmap", munmap_ },
	{ "mprotect", mprotect_ }, { "mremap", mremap_ }, { "madvise", madvise_ },
	{ "mlock", mlock_ }, { "huge", huge }, {},
};

int main(int argc, char **argv)
{
	page = sysconf(_SC_PAGESIZE);
	return run_operation(operations, argc, argv);
}
