/*
 * What is done with pages that are there: collapsed into huge ones and split, compacted,
 * bound to nodes, and in files of memory.  One operation at a time.
 */
#include "program.h"

#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define HUGE_BYTES (2UL << 20)
#define PAGES 512UL /* of a region; those of a huge page */
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static size_t page;

static void unmap(char *at, size_t bytes)
{
	need(munmap(at, bytes) == 0, "munmap");
}

/* Two huge pages of room, so that one is within, of a file if there is one; all of it is written. */
static char *written(char **room, int fd)
{
	char *at = mmap(NULL, 2 * HUGE_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	need(at != MAP_FAILED, "mmap");
	*room = at;
	at = (char *)(((uintptr_t)at + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1));
	if (fd >= 0)
		need(mmap(at, HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == at,
		     "mmap");
	for (unsigned long n = 0; n < PAGES; n++)
		at[n * page] = 1 + n;
	return at;
}

static int file(void)
{
	int fd = syscall(SYS_memfd_create, "pages", 0);

	need(fd >= 0 && ftruncate(fd, 2 * HUGE_BYTES) == 0, "memfd_create");
	return fd;
}

static void put(const char *name, const char *text)
{
	int fd = open(name, O_WRONLY);

	need(fd >= 0 && write(fd, text, strlen(text)) > 0 && close(fd) == 0, name);
}

/* Small pages become a huge one, a part of it goes another way, and it is split. */
static void collapse_(int fd, unsigned long count)
{
	while (count--) {
		unsigned pages = 1 + draw(64), from = draw(PAGES - 64);
		char *room, *at = written(&room, fd);

		need(madvise(at, HUGE_BYTES, MADV_COLLAPSE) == 0, "MADV_COLLAPSE");
		need(at[from * page] == (char)(1 + from), "content");
		switch (draw(3)) {
		case 0:
			need(mprotect(at + from * page, pages * page, PROT_READ) == 0, "mprotect");
			break;
		case 1:
			need(madvise(at + from * page, pages * page, MADV_DONTNEED) == 0, "DONTNEED");
			break;
		default:
			need(madvise(at, HUGE_BYTES, MADV_PAGEOUT) == 0, "MADV_PAGEOUT");
		}
		unmap(room, 2 * HUGE_BYTES);
	}
}

static void collapse(unsigned long count)
{
	collapse_(-1, count);
}

static void collapse_file(unsigned long count)
{
	int fd = file();

	collapse_(fd, count);
	close(fd);
}

/* A child has a huge page with its parent, writes to it, and gives it back. */
static void fork_huge(unsigned long count)
{
	char *room, *at = written(&room, -1);

	while (count--) {
		unsigned at_page = draw(PAGES);
		pid_t child;
		int status;

		need(madvise(at, HUGE_BYTES, MADV_COLLAPSE) == 0, "MADV_COLLAPSE");
		child = fork();
		if (child == 0) {
			need(mprotect(at, HUGE_BYTES, PROT_READ | PROT_WRITE) == 0, "mprotect");
			at[at_page * page]++;
			need(madvise(at, HUGE_BYTES, MADV_FREE) == 0, "MADV_FREE");
			_exit(0);
		}
		need(child > 0 && waitpid(child, &status, 0) == child && status == 0, "child");
	}
	unmap(room, 2 * HUGE_BYTES);
}

/* All memory put together, with some of it held in places that were drawn. */
static void compact(unsigned long count)
{
	while (count--) {
		char *room, *at = written(&room, -1);

		for (unsigned n = 128; n; n--)
			need(madvise(at + draw(PAGES) * page, page, MADV_DONTNEED) == 0, "DONTNEED");
		put("/proc/sys/vm/compact_memory", "1");
		unmap(room, 2 * HUGE_BYTES);
	}
}

/* Policies of a region and of the task, and where its pages are. */
static void bind(unsigned long count)
{
	static const int modes[] = { MPOL_BIND, MPOL_PREFERRED, MPOL_INTERLEAVE, MPOL_LOCAL };
	unsigned long node = 1;
	char *room, *at = written(&room, -1);

	while (count--) {
		int mode = modes[draw(4)], status = 0, to = 0;
		void *one = at + draw(PAGES) * page;
		unsigned long *nodes = mode == MPOL_LOCAL ? NULL : &node;

		need(syscall(SYS_mbind, at, (1 + draw(PAGES)) * page, mode, nodes, nodes ? 64 : 0,
			     MPOL_MF_MOVE) == 0, "mbind");
		need(syscall(SYS_set_mempolicy, mode, nodes, nodes ? 64 : 0) == 0, "set_mempolicy");
		need(syscall(SYS_move_pages, 0, 1UL, &one, &to, &status, MPOL_MF_MOVE) == 0, "move_pages");
		need(madvise(one, page, MADV_DONTNEED) == 0, "DONTNEED");
		*(char *)one = 1;
	}
	unmap(room, 2 * HUGE_BYTES);
	need(syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0) == 0, "set_mempolicy");
}

/* A hole in a file of memory, filled again, sent through a pipe, and written back to it. */
static void hole(unsigned long count)
{
	int fd = file(), ends[2];

	need(pipe(ends) == 0, "pipe");
	while (count--) {
		off_t at = draw(PAGES) * page, size = (1 + draw(16)) * page;
		loff_t from = at;
		char bytes[512] = { 1 };

		need(pwrite(fd, bytes, sizeof(bytes), at) == sizeof(bytes), "pwrite");
		need(fallocate(fd, 0, at, size) == 0, "fallocate");
		need(splice(fd, &from, ends[1], NULL, page, 0) == (ssize_t)page, "splice");
		for (size_t left = page; left; left -= sizeof(bytes))
			need(read(ends[0], bytes, sizeof(bytes)) == sizeof(bytes), "read");
		need(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, size) == 0, "hole");
		need(lseek(fd, 0, SEEK_DATA) != at, "lseek");
		errno = 0;
	}
	close(fd);
}

static const struct operation operations[] = {
	{ "collapse", collapse }, { "collapse_file", collapse_file }, { "fork_huge", fork_huge },
	{ "compact", compact }, { "bind", bind }, { "hole", hole }, {},
};

int main(int argc, char **argv)
{
	page = sysconf(_SC_PAGESIZE);
	return run_operation(operations, argc, argv);
}
