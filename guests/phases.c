/*
 * The init of a kernel that is a process of the host: times phases that stay in the kernel.
 *
 * A window is 256 KiB of work or as many operations as take 20 to 300 us, timed by the CPU's
 * time-stamp counter.  Each place (a part of a file, or other pages) has twelve windows in a row,
 * and the second lowest of them is kept: what else the host did meanwhile is in the others, and a
 * single lucky one is not kept.
 *
 * The word phases= of the kernel's command line names those that are wanted, with commas around
 * each.  A line for each phase goes to the console: its name, folios or operations and system
 * calls of a window, then the places in ticks.  What a phase claims to do is counted by the kernel
 * itself, and a phase that did something else ends the run.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

/*
 * The places of a phase are spread over passes through all phases: what a boot is like for some
 * milliseconds is then in a few places of each.  More places than these make nothing more precise,
 * for boots differ by more than places of one boot do.
 */
enum { PASSES = 4, PLACES = 64, FEW = 32, WINDOWS = 12, WARM = 2, FOLIOS = 64 };
enum { BYTES = FOLIOS * 4096, FILES = 8 };
/*
 * Of the phase with refaults: more than its cgroup holds, read round and round.  All of it is in a
 * cache of some megabytes: with 12 MiB in place of 3 boots differed ten times as much.
 */
enum { ROUND = 12 };
#define HOLDS "2097152"
/* Requests of the block layer that one system call submits. */
enum { REQUESTS = 64 };
/* What is read lies in other pages of the host for each of so many places. */
enum { COPIES = 16 };

static char buffer[BYTES] __attribute__((aligned(4096)));
static char copies[COPIES * BYTES] __attribute__((aligned(4096)));
static int shmem, device, null_device, loops = -1, ends[2];
static aio_context_t requests;

/* A file system, and what phases use of it; the one of the phase that runs. */
static struct tree {
	const char *device, *type, *blocks, *folder, *read_ahead;
	int file, scratch, files;
} ext4 = { "/dev/ram0", "ext4", "/ext4.blocks", "/ext4", "/sys/block/ram0/queue/read_ahead_kb" },
  xfs = { "/dev/ram1", "xfs", "/xfs.blocks", "/xfs", "/sys/block/ram1/queue/read_ahead_kb" },
  *on = &ext4;

static const char *loop;

static void end(const char *format, ...)
{
	va_list arguments;

	if (format) {
		printf("failed ");
		va_start(arguments, format);
		vprintf(format, arguments);
		va_end(arguments);
		printf("\n");
	}
	fflush(stdout);
	sync();
	reboot(RB_POWER_OFF);
	_exit(1);
}

static void require(long done, long wanted, const char *what)
{
	if (done != wanted)
		end("%s: %ld, %ld wanted: %s", what, done, wanted, strerror(errno));
}

static int opened(const char *path, int flags)
{
	int number = open(path, flags, 0600);

	if (number < 0)
		end("%s: %s", path, strerror(errno));
	return number;
}

static void put(const char *path, const char *text)
{
	int number = opened(path, O_WRONLY);

	require(write(number, text, strlen(text)), strlen(text), path);
	close(number);
}

static long counted(const char *wanted)
{
	FILE *stream = fopen("/proc/vmstat", "r");
	char name[64];
	long value, found = -1;

	while (stream && fscanf(stream, "%63s %ld", name, &value) == 2)
		if (!strcmp(name, wanted))
			found = value;
	if (!stream || found < 0)
		end("/proc/vmstat has no %s", wanted);
	fclose(stream);
	return found;
}

static void crossing(off_t at)
{
	(void)at;
	syscall(SYS_getppid);
}

static void fill(off_t at)
{
	require(readahead(on->file, at, BYTES), 0, "readahead");
}

static void drop(off_t at)
{
	require(posix_fadvise(on->file, at, BYTES, POSIX_FADV_DONTNEED), 0, "fadvise");
}

static void fill_and_drop(off_t at)
{
	fill(at);
	drop(at);
}

static void copy_out(off_t at)
{
	require(pread(on->file, copies + at % sizeof(copies), BYTES, at), BYTES, "pread");
}

static void write_and_truncate(off_t at)
{
	require(pwrite(on->scratch, buffer, BYTES, at), BYTES, "pwrite");
	require(ftruncate(on->scratch, 0), 0, "ftruncate");
}

static void allocate_and_truncate(off_t at)
{
	require(fallocate(shmem, 0, at, BYTES), 0, "fallocate");
	require(ftruncate(shmem, 0), 0, "ftruncate");
}

static void through_pipe(off_t at)
{
	(void)at;
	require(write(ends[1], buffer, BYTES), BYTES, "write");
	require(read(ends[0], buffer, BYTES), BYTES, "read");
}

static void from_device(off_t at)
{
	require(pread(device, buffer, BYTES, at), BYTES, "direct read");
}

/* A device that does nothing: what is left is the block layer, a request of a page each. */
static void through_block_layer(off_t at)
{
	struct iocb blocks[REQUESTS], *each[REQUESTS];
	struct io_event events[REQUESTS];

	(void)at;
	for (int number = 0; number < REQUESTS; number++) {
		blocks[number] = (struct iocb){
			.aio_lio_opcode = IOCB_CMD_PREAD,
			.aio_fildes = null_device,
			.aio_buf = (uintptr_t)buffer + number % FOLIOS * 4096,
			.aio_nbytes = 4096,
			.aio_offset = number * 4096,
		};
		each[number] = &blocks[number];
	}
	require(syscall(SYS_io_submit, requests, REQUESTS, each), REQUESTS, "io_submit");
	require(syscall(SYS_io_getevents, requests, REQUESTS, REQUESTS, events, NULL), REQUESTS,
		"io_getevents");
	for (int number = 0; number < REQUESTS; number++)
		require(events[number].res, 4096, "a read of a null device");
}

static void cache_clean(off_t at)
{
	(void)at;
	require(pwrite(on->scratch, buffer, BYTES, 0), BYTES, "pwrite");
	require(fdatasync(on->scratch), 0, "fdatasync");
}

static void truncate_all(off_t at)
{
	(void)at;
	require(ftruncate(on->scratch, 0), 0, "ftruncate");
}

static void create_and_unlink(off_t at)
{
	char name[] = "name-0";

	(void)at;
	for (int number = 0; number < FILES; number++) {
		name[sizeof(name) - 2] = '0' + number;
		require(mknodat(on->files, name, S_IFREG | 0600, 0), 0, "mknod");
	}
	for (int number = 0; number < FILES; number++) {
		name[sizeof(name) - 2] = '0' + number;
		require(unlinkat(on->files, name, 0), 0, "unlink");
	}
}

static void in_kernel(off_t at)
{
	(void)at;
	if (write(loops, loop, strlen(loop)) <= 0)
		end("/proc/loops: %s: %s", loop, strerror(errno));
}

struct lowest {
	unsigned first, second;
};

struct phase {
	const char *name;
	/* NULL: ext4, or none. */
	struct tree *on;
	/* Around the windows of a place, before each of them, and what is timed. */
	void (*enter)(off_t), (*leave)(off_t), (*before)(off_t), (*window)(off_t);
	int folios, calls, places;
	int count;
	unsigned values[PLACES];
};

static void note(struct lowest *lowest, unsigned ticks)
{
	if (ticks < lowest->first) {
		lowest->second = lowest->first;
		lowest->first = ticks;
	} else if (ticks < lowest->second) {
		lowest->second = ticks;
	}
}

static unsigned timed(const struct phase *phase, off_t at)
{
	uint64_t begin;

	if (phase->before)
		phase->before(at);
	begin = __rdtsc();
	phase->window(at);
	return __rdtsc() - begin;
}

/* Words of the command line that no kernel knows are its first program's variables. */
static int wanted(const char *name)
{
	const char *all = getenv("phases");
	char word[64];

	snprintf(word, sizeof(word), ",%s,", name);
	return !all || strstr(all, word);
}

static void measure_place(struct phase *phase, off_t at)
{
	struct lowest lowest = { ~0U, ~0U };

	if (phase->enter)
		phase->enter(at);
	for (int warm = 0; warm < WARM; warm++)
		timed(phase, at);
	for (int number = 0; number < WINDOWS; number++)
		note(&lowest, timed(phase, at));
	if (phase->leave)
		phase->leave(at);
	phase->values[phase->count++] = lowest.second;
}

/* Every place of a round is read once before any is read again. */
static void measure_refaults(struct phase *phase)
{
	struct lowest lowest[ROUND];
	long before;

	put("/cg/small/cgroup.procs", "0");
	for (int place = 0; place < ROUND; place++)
		lowest[place] = (struct lowest){ ~0U, ~0U };
	for (int place = 0; place < 2 * ROUND; place++)
		fill((off_t)(place % ROUND) * BYTES);
	before = counted("workingset_refault_file");
	for (int number = 0; number < WINDOWS * ROUND; number++) {
		int place = number % ROUND;

		note(&lowest[place], timed(phase, (off_t)place * BYTES));
	}
	before = counted("workingset_refault_file") - before;
	if (before < WINDOWS * ROUND * FOLIOS / 100 * 95)
		end("refault: %ld refaults in %d pages", before, WINDOWS * ROUND * FOLIOS);
	for (int place = 0; place < ROUND; place++) {
		phase->values[phase->count++] = lowest[place].second;
		drop((off_t)place * BYTES);
	}
	put("/cg/cgroup.procs", "0");
}

static struct phase phases[] = {
	{ "crossing", .window = crossing, .folios = 1, .calls = 1 },
	{ "readahead", .window = fill_and_drop, .folios = FOLIOS, .calls = 2 },
	{ "pread", .enter = fill, .leave = drop, .window = copy_out, .folios = FOLIOS, .calls = 1 },
	{ "write", .window = write_and_truncate, .folios = FOLIOS, .calls = 2 },
	{ "truncate", .before = cache_clean, .window = truncate_all, .folios = FOLIOS, .calls = 1,
	  .places = FEW },
	{ "create", .window = create_and_unlink, .folios = FILES, .calls = 2 * FILES,
	  .places = FEW },
	{ "shmem", .window = allocate_and_truncate, .folios = FOLIOS, .calls = 2 },
	{ "pipe", .window = through_pipe, .folios = FOLIOS, .calls = 2 },
	{ "direct", .window = from_device, .folios = FOLIOS, .calls = 1 },
	{ "nullblk", .window = through_block_layer, .folios = REQUESTS, .calls = 2 },
	{ "slab", .window = in_kernel, .calls = 1 },
	{ "xarray", .window = in_kernel, .calls = 1 },
	{ "maple", .window = in_kernel, .calls = 1 },
	{ "xfsread", &xfs, .window = fill_and_drop, .folios = FOLIOS, .calls = 2 },
	{ "xfswrite", &xfs, .window = write_and_truncate, .folios = FOLIOS, .calls = 2 },
	{ "xfscreate", &xfs, .window = create_and_unlink, .folios = FILES, .calls = 2 * FILES,
	  .places = FEW },
	{ "refault", .window = fill, .folios = FOLIOS, .calls = 1 },
};

/* A loop of the lab's module, which says how many operations a window has. */
static void choose_loop(struct phase *phase)
{
	int module;

	if (loops < 0) {
		module = opened("/kernel_loops.ko", O_RDONLY);
		require(syscall(SYS_finit_module, module, "", 0), 0, "kernel_loops.ko");
		loops = opened("/proc/loops", O_WRONLY);
	}
	loop = phase->name;
	phase->folios = write(loops, loop, strlen(loop));
}

/* An empty file system's blocks, and files in it. */
static void lay_out(struct tree *tree)
{
	int blocks = opened(tree->blocks, O_RDONLY), disk = opened(tree->device, O_RDWR);
	uint32_t number;

	while (read(blocks, &number, sizeof(number)) == sizeof(number)) {
		require(read(blocks, buffer, 4096), 4096, tree->blocks);
		require(pwrite(disk, buffer, 4096, (off_t)number << 12), 4096, tree->device);
	}
	require(fsync(disk), 0, tree->device);
	close(disk);
	mkdir(tree->folder, 0755);
	require(mount(tree->device, tree->folder, tree->type, MS_NOATIME, ""), 0, tree->type);
	/* Else readahead ends after 128 KiB, whatever is asked for. */
	put(tree->read_ahead, "1024");
	memset(buffer, 1, sizeof(buffer));
	require(chdir(tree->folder), 0, tree->folder);
	tree->file = opened("file", O_RDWR | O_CREAT);
	for (int place = 0; place < PLACES; place++)
		require(pwrite(tree->file, buffer, BYTES, (off_t)place * BYTES), BYTES, "file");
	require(fsync(tree->file), 0, "file");
	require(posix_fadvise(tree->file, 0, 0, POSIX_FADV_DONTNEED), 0, "fadvise");
	tree->scratch = opened("scratch", O_RDWR | O_CREAT);
	require(mkdir("files", 0755), 0, "files");
	tree->files = opened("files", O_RDONLY | O_DIRECTORY);
}

/* One pass: its share of the places, which the kernel says were read, or were cached. */
static void pass_through(struct phase *phase, int pass)
{
	int share = (phase->places ? phase->places : PLACES) / PASSES;
	long in;

	if (!wanted(phase->name))
		return;
	on = phase->on ? phase->on : &ext4;
	if (on->file <= 0)
		lay_out(on);
	if (phase->window == in_kernel)
		choose_loop(phase);
	if (!strcmp(phase->name, "refault")) {
		measure_refaults(phase);
		return;
	}
	in = counted("pgpgin");
	for (int place = pass * share; place < (pass + 1) * share; place++)
		measure_place(phase, (off_t)place * BYTES);
	in = counted("pgpgin") - in;
	if (phase->window == fill_and_drop && in < (long)share * (WINDOWS + WARM) * BYTES / 1024)
		end("%s: %ld KiB read", phase->name, in);
	/* Each place is read once, before its windows. */
	if (phase->window == copy_out && in > (long)(share + 1) * BYTES / 1024)
		end("pread: %ld KiB were not cached", in - (long)share * BYTES / 1024);
}

static void say(const struct phase *phase)
{
	if (!phase->count)
		return;
	printf("phase %s %d %d", phase->name, phase->folios, phase->calls);
	for (int place = 0; place < phase->count; place++)
		printf(" %u", phase->values[place]);
	printf("\n");
}

int main(void)
{
	static const char *const folders[] = { "/proc", "/sys", "/dev", "/cg", "/run" };
	struct timespec then, now;
	uint64_t tick;

	for (size_t at = 0; at < sizeof(folders) / sizeof(*folders); at++)
		mkdir(folders[at], 0755);
	require(mount("proc", "/proc", "proc", 0, ""), 0, "mount proc");
	mount("dev", "/dev", "devtmpfs", 0, "");
	require(mount("sys", "/sys", "sysfs", 0, ""), 0, "mount sysfs");
	require(mount("run", "/run", "tmpfs", 0, ""), 0, "mount tmpfs");
	require(mount("cg", "/cg", "cgroup2", 0, ""), 0, "mount cgroup2");
	shmem = opened("/run/scratch", O_RDWR | O_CREAT);
	device = opened("/dev/ram0", O_RDONLY | O_DIRECT);
	null_device = opened("/dev/nullb0", O_RDONLY | O_DIRECT);
	require(syscall(SYS_io_setup, REQUESTS, &requests), 0, "io_setup");
	if (pipe(ends) || fcntl(ends[1], F_SETPIPE_SZ, 1 << 20) < BYTES)
		end("pipe: %s", strerror(errno));
	lay_out(&ext4);
	mkdir("/cg/small", 0755);
	put("/cg/cgroup.subtree_control", "+memory");
	put("/cg/small/memory.max", HOLDS);
	clock_gettime(CLOCK_MONOTONIC, &then);
	tick = __rdtsc();
	for (int pass = 0; pass < PASSES; pass++)
		for (size_t at = 0; at < sizeof(phases) / sizeof(*phases); at++)
			pass_through(&phases[at], pass);
	tick = __rdtsc() - tick;
	clock_gettime(CLOCK_MONOTONIC, &now);
	for (size_t at = 0; at < sizeof(phases) / sizeof(*phases); at++)
		say(&phases[at]);
	printf("tsc_hz %.0f\n", tick / (now.tv_sec - then.tv_sec +
					(now.tv_nsec - then.tv_nsec) / 1e9));
	printf("done\n");
	end(NULL);
}
