/*
 * A file and memory, touched as programs do: by calls and where they are mapped.
 */
#include <fcntl.h>
#include <sys/mman.h>

#define FILE_PAGES 512u
#define HUGE_BYTES (2UL << 20)
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static size_t page;

/* A file mapped, and behind it a page of memory. */
static char *mapped(int *fd)
{
	char *at = mmap(NULL, (FILE_PAGES + 1) * page, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	*fd = open("/mnt/traced", O_RDWR | O_CREAT, 0600);
	need(*fd >= 0 && ftruncate(*fd, FILE_PAGES * page) == 0, "/mnt/traced");
	need(at != MAP_FAILED && mmap(at, FILE_PAGES * page, PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_FIXED, *fd, 0) == at, "mmap");
	return at;
}

/* A page of the file, by a call or where it is mapped; now and then all of it. */
static void of_file(int fd, char *at)
{
	off_t where = draw(FILE_PAGES) * page;
	unsigned what = draw(16);

	if (what == 0)
		need(fdatasync(fd) == 0, "fdatasync");
	else if (what == 1)
		need(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0, "posix_fadvise");
	else if (what == 2)
		need(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, where, page) == 0, "hole");
	else if (what < 8)
		at[where] += what & 1;
	else if (what < 12)
		need(pread(fd, at + FILE_PAGES * page, page, where) == (ssize_t)page, "pread");
	else
		need(pwrite(fd, at + FILE_PAGES * page, page, where) == (ssize_t)page, "pwrite");
}

/* Memory mapped, written, changed and unmapped; now and then a huge page, or all compacted. */
static void region(void)
{
	unsigned pages = 2 + draw(14), what = draw(64);
	size_t bytes = what ? pages * page : 2 * HUGE_BYTES;
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *huge = (char *)(((uintptr_t)at + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1));

	need(at != MAP_FAILED, "mmap");
	for (unsigned n = 0; n < pages; n++)
		(what ? at : huge)[n * page] = 1;
	if (what == 0)
		need(madvise(huge, HUGE_BYTES, MADV_COLLAPSE) == 0, "MADV_COLLAPSE");
	else if (what == 1)
		put("/proc/sys/vm/compact_memory", 1);
	need(mprotect(at + page, page, PROT_READ) == 0 && munmap(at, bytes) == 0, "mprotect, munmap");
}
