/*
 * Requests to block devices past the page cache: null_blk, which does nothing with them, a loop
 * device over a file of /mnt, and a linear mapping of device-mapper.
 */
#include "program.h"

#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sys/ioctl.h>

#include "uring.h"

#define NULL_BLK "/dev/nullb0"
#define SCHEDULER "/sys/block/nullb0/queue/scheduler"
#define LOOP "/dev/loop0"
#define IMAGE "/mnt/image"
#define MAPPER "/dev/mapper/control"
#define MAPPED "/dev/dm-0"
#define BLOCK 4096UL
#define SECTOR 512UL
#define BLOCKS 2048UL /* of what is used of a device: 8 MiB */

static char *buffer;

static int open_device(const char *name)
{
	int fd = open(name, O_RDWR | O_DIRECT | O_CLOEXEC);

	need(fd >= 0, name);
	return fd;
}

/* A block at a drawn place; of four, one is written. */
static void transfer(int fd, unsigned long count)
{
	while (count--) {
		off_t at = draw(BLOCKS) * BLOCK;
		int writes = draw(4) == 0;

		need((writes ? pwrite(fd, buffer, BLOCK, at) : pread(fd, buffer, BLOCK, at)) ==
		     (ssize_t)BLOCK, "transfer");
	}
}

static void null(unsigned long count)
{
	transfer(open_device(NULL_BLK), count);
}

static void with_ring(unsigned long count)
{
	int fd = open_device(NULL_BLK);

	ring_open();
	for (size_t n = 0; n < count; n++)
		ring_add(draw(4) ? IORING_OP_READ : IORING_OP_WRITE, fd,
			 buffer + n % DEPTH * BLOCK, BLOCK, draw(BLOCKS) * BLOCK);
	if (ring.waiting)
		ring_wait(BLOCK);
	close(ring.fd);
	close(fd);
}

static void schedule(const char *name)
{
	int fd = open(SCHEDULER, O_WRONLY | O_CLOEXEC);

	need(fd >= 0 && write(fd, name, strlen(name)) > 0 && close(fd) == 0, SCHEDULER);
}

/* The same through a scheduler, which sorts and merges. */
static void deadline(unsigned long count)
{
	schedule("mq-deadline");
	with_ring(count);
	schedule("none");
}

/* Ranges given back, filled with zeros, and flushed. */
static void discard(unsigned long count)
{
	int fd = open_device(NULL_BLK);

	while (count--) {
		uint64_t range[2] = { draw(BLOCKS) * BLOCK, (1 + draw(64)) * BLOCK };
		int kind = draw(3);

		if (kind == 2)
			need(fsync(fd) == 0, "fsync");
		else
			need(ioctl(fd, kind ? BLKZEROOUT : BLKDISCARD, range) == 0 ||
			     errno == EOPNOTSUPP, "a range");
	}
}

/* A file with a table of one partition, as the first loop device. */
static void attach(int image)
{
	struct loop_config config = {
		.fd = image, .block_size = SECTOR,
		.info.lo_flags = LO_FLAGS_DIRECT_IO | LO_FLAGS_PARTSCAN,
	};
	int fd = open_device(LOOP);

	need(ioctl(fd, LOOP_CONFIGURE, &config) == 0, LOOP);
	close(fd);
}

static void detach(void)
{
	int fd = open_device(LOOP);

	need(ioctl(fd, LOOP_CLR_FD) == 0, LOOP);
	close(fd);
}

static int make_image(void)
{
	/* Of type 83 (Linux), from sector 2048, so many sectors long. */
	static const uint8_t partition[16] = { [4] = 0x83, [9] = 8, [13] = 8 };
	int fd = open(IMAGE, O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);

	need(fd >= 0, IMAGE);
	for (size_t n = 0; n < BLOCKS; n += DEPTH)
		need(pwrite(fd, buffer, DEPTH * BLOCK, n * BLOCK) == (ssize_t)(DEPTH * BLOCK), IMAGE);
	memcpy(buffer + 446, partition, sizeof(partition));
	memcpy(buffer + 510, "\x55\xaa", 2);
	need(pwrite(fd, buffer, BLOCK, 0) == (ssize_t)BLOCK, IMAGE);
	return fd;
}

static void loop(unsigned long count)
{
	int fd;

	attach(make_image());
	fd = open_device(LOOP);
	transfer(fd, count);
	close(fd);
	detach();
}

/* A device that comes with its partition and goes. */
static void attach_(unsigned long count)
{
	int image = make_image();

	while (count--) {
		attach(image);
		detach();
	}
}

static void mapper(int control, unsigned long command, uint32_t flags, int with_table)
{
	struct {
		struct dm_ioctl head;
		struct dm_target_spec target;
		char parameters[64];
	} request = {
		.head = {
			.version = { DM_VERSION_MAJOR, 0, 0 }, .data_size = sizeof(request),
			.data_start = sizeof(struct dm_ioctl), .flags = flags,
			.target_count = with_table, .name = "twinboot",
		},
		.target = { .length = BLOCKS * BLOCK / SECTOR, .target_type = "linear" },
		.parameters = NULL_BLK " 0",
	};

	need(ioctl(control, command, &request) == 0, MAPPER);
}

/* Through a mapping that is one to one. */
static void mapped(unsigned long count)
{
	int control = open(MAPPER, O_RDWR | O_CLOEXEC), fd;

	need(control >= 0, MAPPER);
	mapper(control, DM_DEV_CREATE, 0, 0);
	mapper(control, DM_TABLE_LOAD, 0, 1);
	mapper(control, DM_DEV_SUSPEND, 0, 0); /* without the flag: resumed */
	fd = open_device(MAPPED);
	transfer(fd, count);
	close(fd);
	mapper(control, DM_DEV_REMOVE, 0, 0);
}

static const struct operation operations[] = {
	{ "null", null }, { "uring", with_ring }, { "deadline", deadline }, { "discard", discard },
	{ "loop", loop }, { "attach", attach_ }, { "mapped", mapped }, {},
};

int main(int argc, char **argv)
{
	need(posix_memalign((void **)&buffer, BLOCK, DEPTH * BLOCK) == 0, "memory");
	memset(buffer, 0, DEPTH * BLOCK);
	return run_operation(operations, argc, argv);
}
