/*
 * Reads and writes of a file past the page cache, and by io_uring, on the file system at /mnt.
 */
#include "program.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "uring.h"

#define FILE_NAME "/mnt/direct"
#define BLOCK 4096UL
#define BLOCKS 2048UL /* of the file: 8 MiB */

static char *buffer;

static int open_file(int flags)
{
	int fd = open(FILE_NAME, O_RDWR | O_CREAT | flags, 0600);
	struct stat about;

	need(fd >= 0 && fstat(fd, &about) == 0, FILE_NAME);
	if (about.st_size != BLOCKS * BLOCK) {
		/* 64 KiB at once, so that the file has few extents. */
		for (size_t n = 0; n < BLOCKS / 16; n++)
			need(pwrite(fd, buffer, 16 * BLOCK, n * 16 * BLOCK) == 16 * BLOCK, "pwrite");
		need(fsync(fd) == 0, "fsync");
	}
	return fd;
}

/* 1 to 16 blocks at a drawn place. */
static void read_(unsigned long count)
{
	int fd = open_file(O_DIRECT);

	while (count--) {
		size_t blocks = 1 + draw(16), at = draw(BLOCKS - blocks + 1);

		need(pread(fd, buffer, blocks * BLOCK, at * BLOCK) == (ssize_t)(blocks * BLOCK),
		     "pread");
	}
}

static void write_(unsigned long count)
{
	int fd = open_file(O_DIRECT);

	while (count--) {
		size_t blocks = 1 + draw(16), at = draw(BLOCKS - blocks + 1);

		need(pwrite(fd, buffer, blocks * BLOCK, at * BLOCK) == (ssize_t)(blocks * BLOCK),
		     "pwrite");
	}
}

/* Into holes of an empty file: space is reserved, and extents are made and written to. */
static void extend(unsigned long count)
{
	int fd = open_file(O_DIRECT);

	for (size_t n = 0; n < count; n++) {
		/* Every other block, so that each is an extent of its own. */
		size_t at = n * 2 % BLOCKS;

		if (at == 0)
			need(ftruncate(fd, 0) == 0 && ftruncate(fd, BLOCKS * BLOCK) == 0, "ftruncate");
		need(pwrite(fd, buffer, BLOCK, at * BLOCK) == (ssize_t)BLOCK, "pwrite");
	}
	/* XFS gives extents back after unlink, whenever that may be: in the next phase, else. */
	need(ftruncate(fd, 0) == 0 && unlink(FILE_NAME) == 0, "unlink");
}

static void with_ring(unsigned long count, int flags, int opcode)
{
	int fd = open_file(flags);

	ring_open();
	for (size_t n = 0; n < count; n++)
		ring_add(opcode, fd, buffer + n % DEPTH * BLOCK, BLOCK, draw(BLOCKS) * BLOCK);
	if (ring.waiting)
		ring_wait(BLOCK);
}

static void uring_read(unsigned long count)
{
	with_ring(count, O_DIRECT, IORING_OP_READ);
}

static void uring_write(unsigned long count)
{
	with_ring(count, O_DIRECT, IORING_OP_WRITE);
}

/* Through the page cache: what is not there is read for it first. */
static void buffered(unsigned long count)
{
	with_ring(count, 0, IORING_OP_READ);
}

static const struct operation operations[] = {
	{ "read", read_ }, { "write", write_ }, { "extend", extend },
	{ "uring_read", uring_read }, { "uring_write", uring_write }, { "buffered", buffered }, {},
};

int main(int argc, char **argv)
{
	need(posix_memalign((void **)&buffer, BLOCK, DEPTH * BLOCK) == 0, "memory");
	/*
	 * Pages that are beside each other in memory, too, are one piece of a request, and whether
	 * free ones are is a draw of the boot.  So the order in which they are had is another: they
	 * lie apart, as in a program that has run for long.
	 */
	for (size_t n = 0; n < DEPTH; n++)
		buffer[(n % 4 * (DEPTH / 4) + n / 4) * BLOCK] = 1;
	memset(buffer, 1, DEPTH * BLOCK);
	return run_operation(operations, argc, argv);
}
