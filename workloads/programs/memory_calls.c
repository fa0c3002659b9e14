/*
 * What few programs ask of memory: locked, moved, another task's, of files, of tmpfs, and of the
 * files in which the kernel shows it.  One operation at a time.
 */
#include "program.h"

#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define PAGES 64UL
/* Not every C library knows their numbers. */
#define MSEAL 462
#define PROCESS_MADVISE 440
#define SET_MEMPOLICY_HOME_NODE 450
#define PLACE "/mnt/calls"

static size_t page;

static char *region(int flags, int fd)
{
	char *at = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, flags, fd, 0);

	need(at != MAP_FAILED, "mmap");
	for (unsigned long n = 0; n < PAGES; n++)
		at[n * page] = 1 + n;
	return at;
}

static char *memory(void)
{
	return region(MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

static void unmap(char *at)
{
	need(munmap(at, PAGES * page) == 0, "munmap");
}

/* A part of a region locked as it is touched, all that there is, and all that comes. */
static void lock(unsigned long count)
{
	while (count--) {
		char *at = memory();
		unsigned long from = draw(PAGES / 2), pages = 1 + draw(PAGES / 2);

		need(mlock2(at + from * page, pages * page, MLOCK_ONFAULT) == 0, "mlock2");
		need(mlockall(MCL_CURRENT | (draw(2) ? MCL_FUTURE | MCL_ONFAULT : 0)) == 0, "mlockall");
		unmap(memory());
		need(munlockall() == 0, "munlockall");
		unmap(at);
	}
}

/* Words of a child's region read and written, and advice given on it. */
static void other(unsigned long count)
{
	static const int advice[] = { MADV_COLD, MADV_PAGEOUT, MADV_WILLNEED };
	char *at = memory(), *mine = memory(), name[32];
	pid_t child = fork();
	int task, status, file;

	while (child == 0)
		pause();
	need(child > 0, "fork");
	task = syscall(SYS_pidfd_open, child, 0);
	snprintf(name, sizeof(name), "/proc/%d/mem", child);
	file = open(name, O_RDWR);
	need(task >= 0 && file >= 0, name);
	need(ptrace(PTRACE_SEIZE, child, NULL, NULL) == 0, "ptrace");
	need(ptrace(PTRACE_INTERRUPT, child, NULL, NULL) == 0, "ptrace");
	need(waitpid(child, &status, 0) == child, "waitpid");
	while (count--) {
		unsigned long from = draw(PAGES / 2) * page, bytes = (1 + draw(PAGES / 2)) * page;
		struct iovec there = { at + from, bytes };

		need(pread(file, mine, bytes, (uintptr_t)at + from) == (ssize_t)bytes, "mem");
		need(pwrite(file, mine, page, (uintptr_t)at + from) == (ssize_t)page, "mem");
		ptrace(PTRACE_PEEKDATA, child, at + from, NULL);
		need(errno == 0, "PTRACE_PEEKDATA");
		need(syscall(PROCESS_MADVISE, task, &there, 1, advice[draw(3)], 0) >= 0, "madvise");
	}
	need(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child, "kill");
	close(task);
	close(file);
}

/* Where pages are, pages moved to where they are, and a policy for a part of them. */
static void move(unsigned long count)
{
	unsigned long node = 1;
	char bytes[4096];

	while (count--) {
		char *at = memory();
		unsigned long from = draw(PAGES / 2), pages = 1 + draw(PAGES / 2);
		void *which[PAGES];
		int nodes[PAGES] = { 0 }, status[PAGES], fd = open("/proc/self/numa_maps", O_RDONLY);

		for (unsigned long n = 0; n < pages; n++)
			which[n] = at + (from + n) * page;
		need(syscall(SYS_move_pages, 0, pages, which, NULL, status, 0) == 0, "move_pages");
		need(syscall(SYS_move_pages, 0, pages, which, nodes, status, MPOL_MF_MOVE) == 0, "move_pages");
		need(syscall(SYS_migrate_pages, 0, 2, &node, &node) == 0, "migrate_pages");
		need(syscall(SYS_mbind, at + from * page, pages * page, draw(2) ? MPOL_BIND : 5, &node, 2,
			     MPOL_MF_MOVE) == 0, "mbind");
		need(syscall(SET_MEMPOLICY_HOME_NODE, at + from * page, pages * page, 0, 0) == 0, "home");
		while (read(fd, bytes, sizeof(bytes)) > 0)
			;
		close(fd);
		unmap(at);
	}
}

/* A file mapped in another order, looked for in the cache, read ahead, spliced and synced. */
static void file(unsigned long count)
{
	int fd = open(PLACE, O_RDWR | O_CREAT, 0600), pipes[2];
	unsigned char in[PAGES];

	need(fd >= 0 && ftruncate(fd, 2 * PAGES * page) == 0 && pipe(pipes) == 0, PLACE);
	while (count--) {
		char *at = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		off_t from = draw(PAGES) * page, zero = PAGES * page;
		struct iovec whole = { at, page };

		need(at != MAP_FAILED, "mmap");
		for (unsigned n = 0; n < 4; n++)
			at[draw(PAGES) * page]++;
		need(remap_file_pages(at, page, 0, from / page, 0) == 0, "remap_file_pages");
		need(mincore(at, PAGES * page, in) == 0, "mincore");
		need(readahead(fd, from, PAGES * page) == 0, "readahead");
		need(splice(fd, draw(2) ? &from : &zero, pipes[1], NULL, page, 0) == (ssize_t)page, "splice");
		need(read(pipes[0], in, PAGES) == (ssize_t)PAGES, "read");
		need(vmsplice(pipes[1], &whole, 1, 0) == (ssize_t)page, "vmsplice");
		for (size_t left = 2 * page - PAGES; left; left -= left < PAGES ? left : PAGES)
			need(read(pipes[0], in, PAGES) > 0, "read");
		need(msync(at, PAGES * page, MS_SYNC) == 0, "msync");
		need(sync_file_range(fd, 0, 0, 7) == 0, "sync_file_range");
		unmap(at);
	}
	/* What is sealed stays as it is until the task ends. */
	need(syscall(MSEAL, memory(), page, 0) == 0 || errno == ENOSYS, "mseal");
	errno = 0;
}

/* A file system made, looked at, changed and gone, with what is seldom in one. */
static void mounted(unsigned long count)
{
	char name[256], target[256];
	struct statfs space;

	need(mkdir(PLACE ".fs", 0700) == 0, PLACE ".fs");
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	while (count--) {
		int fd, at;

		need(mount("tmpfs", PLACE ".fs", "tmpfs", 0, "size=1m,nr_inodes=64,mpol=bind:0") == 0, "mount");
		at = open(PLACE ".fs", O_RDONLY | O_DIRECTORY);
		fd = openat(at, ".", O_TMPFILE | O_RDWR, 0600);
		need(at >= 0 && fd >= 0 && ftruncate(fd, PAGES * page) == 0, "O_TMPFILE");
		unmap(region(MAP_SHARED, fd));
		need(fallocate(fd, 3, draw(PAGES / 2) * page, (1 + draw(PAGES / 2)) * page) == 0, "hole");
		need(symlinkat(name, at, "link") == 0, "symlink");
		need(readlinkat(at, "link", target, sizeof(target)) > 0, "readlink");
		need(mkdirat(at, "folder", 0700) == 0 && unlinkat(at, "folder", AT_REMOVEDIR) == 0, "rmdir");
		need(fstatfs(fd, &space) == 0 && space.f_bfree < space.f_blocks, "statfs");
		close(fd);
		need(mount("", PLACE ".fs", "", MS_REMOUNT, "size=2m") == 0, "remount");
		close(at);
		need(umount(PLACE ".fs") == 0, "umount");
	}
	need(rmdir(PLACE ".fs") == 0, "rmdir");
}

static const struct operation operations[] = {
	{ "lock", lock }, { "other", other }, { "move", move }, { "file", file },
	{ "mounted", mounted }, {},
};

int main(int argc, char **argv)
{
	page = sysconf(_SC_PAGESIZE);
	return run_operation(operations, argc, argv);
}
