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

/* Few places are for what takes long, before a window or in it. */
enum { PLACES = 400, FEW = 100, WINDOWS = 12, WARM = 2, FOLIOS = 64, BYTES = FOLIOS * 4096 };
enum { FILES = 8 };
/* Of the phase with refaults: more than its cgroup holds, read round and round. */
enum { ROUND = 48, ROUNDS = 8 };

static char buffer[BYTES] __attribute__((aligned(4096)));
static int file, scratch, shmem, device, loops = -1, ends[2];
static const char *loop;
static unsigned values[PLACES];

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
	require(readahead(file, at, BYTES), 0, "readahead");
}

static void drop(off_t at)
{
	require(posix_fadvise(file, at, BYTES, POSIX_FADV_DONTNEED), 0, "fadvise");
}

static void fill_and_drop(off_t at)
{
	fill(at);
	drop(at);
}

static void copy_out(off_t at)
{
	require(pread(file, buffer, BYTES, at), BYTES, "pread");
}

static void write_and_truncate(off_t at)
{
	require(pwrite(scratch, buffer, BYTES, at), BYTES, "pwrite");
	require(ftruncate(scratch, 0), 0, "ftruncate");
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

static void cache_clean(off_t at)
{
	(void)at;
	require(pwrite(scratch, buffer, BYTES, 0), BYTES, "pwrite");
	require(fdatasync(scratch), 0, "fdatasync");
}

static void truncate_all(off_t at)
{
	(void)at;
	require(ftruncate(scratch, 0), 0, "ftruncate");
}

static void create_and_unlink(off_t at)
{
	char name[] = "/mnt/files/name-00";

	(void)at;
	for (int number = 0; number < FILES; number++) {
		name[sizeof(name) - 2] = '0' + number;
		require(mknod(name, S_IFREG | 0600, 0), 0, "mknod");
	}
	for (int number = 0; number < FILES; number++) {
		name[sizeof(name) - 2] = '0' + number;
		require(unlink(name), 0, "unlink");
	}
}

static void in_kernel(off_t at)
{
	(void)at;
	if (write(loops, loop, strlen(loop)) <= 0)
		end("/proc/loops: %s: %s", loop, strerror(errno));
}

static unsigned timed(void (*before)(off_t), void (*window)(off_t), off_t at)
{
	uint64_t begin;

	if (before)
		before(at);
	begin = __rdtsc();
	window(at);
	return __rdtsc() - begin;
}

struct lowest {
	unsigned first, second;
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

static void say(const char *name, int folios, int calls, int places)
{
	printf("phase %s %d %d", name, folios, calls);
	for (int place = 0; place < places; place++)
		printf(" %u", values[place]);
	printf("\n");
}

/* Words of the command line that no kernel knows are its first program's variables. */
static int wanted(const char *name)
{
	const char *all = getenv("phases");
	char word[64];

	snprintf(word, sizeof(word), ",%s,", name);
	return !all || strstr(all, word);
}

static void phase_after(const char *name, void (*before)(off_t), void (*window)(off_t), int folios,
			int calls, int places)
{
	if (!wanted(name))
		return;
	for (int place = 0; place < places; place++) {
		struct lowest lowest = { ~0U, ~0U };
		off_t at = (off_t)place * BYTES;

		for (int warm = 0; warm < WARM; warm++)
			timed(before, window, at);
		for (int number = 0; number < WINDOWS; number++)
			note(&lowest, timed(before, window, at));
		values[place] = lowest.second;
	}
	say(name, folios, calls, places);
}

static void phase(const char *name, void (*window)(off_t), int folios, int calls)
{
	phase_after(name, NULL, window, folios, calls, PLACES);
}

/* A loop of the lab's module, which says how many operations a window has. */
static void phase_in_kernel(const char *name)
{
	int module, operations;

	if (!wanted(name))
		return;
	if (loops < 0) {
		module = opened("/kernel_loops.ko", O_RDONLY);
		require(syscall(SYS_finit_module, module, "", 0), 0, "kernel_loops.ko");
		loops = opened("/proc/loops", O_WRONLY);
	}
	loop = name;
	operations = write(loops, loop, strlen(loop));
	phase(name, in_kernel, operations, 1);
}

static void refaults(void)
{
	static struct lowest lowest[ROUND];
	long before;
	int count = 0;

	mkdir("/cg/small", 0755);
	put("/cg/cgroup.subtree_control", "+memory");
	put("/cg/small/memory.max", "8388608");
	put("/cg/small/cgroup.procs", "0");
	for (int place = 0; place < 2 * ROUND; place++)
		fill((off_t)(place % ROUND) * BYTES);
	before = counted("workingset_refault_file");
	for (int round = 0; round < ROUNDS; round++) {
		for (int place = 0; place < ROUND; place++)
			lowest[place] = (struct lowest){ ~0U, ~0U };
		for (int number = 0; number < WINDOWS * ROUND; number++) {
			int place = number % ROUND;

			note(&lowest[place], timed(NULL, fill, (off_t)place * BYTES));
		}
		for (int place = 0; place < ROUND; place++)
			values[count++] = lowest[place].second;
	}
	before = counted("workingset_refault_file") - before;
	if (before < ROUNDS * WINDOWS * ROUND * FOLIOS / 100 * 95)
		end("refault: %ld refaults in %d pages", before,
		    ROUNDS * WINDOWS * ROUND * FOLIOS);
	say("refault", FOLIOS, 1, count);
	put("/cg/cgroup.procs", "0");
}

static void lay_out(void)
{
	int blocks = opened("/ext4.blocks", O_RDONLY), disk = opened("/dev/ram0", O_RDWR);
	uint32_t number;

	while (read(blocks, &number, sizeof(number)) == sizeof(number)) {
		require(read(blocks, buffer, 4096), 4096, "/ext4.blocks");
		require(pwrite(disk, buffer, 4096, (off_t)number << 12), 4096, "/dev/ram0");
	}
	require(fsync(disk), 0, "/dev/ram0");
	close(disk);
	require(mount("/dev/ram0", "/mnt", "ext4", MS_NOATIME, ""), 0, "mount ext4");
	/* Else readahead ends after 128 KiB, whatever is asked for. */
	put("/sys/block/ram0/queue/read_ahead_kb", "1024");
	memset(buffer, 1, sizeof(buffer));
	file = opened("/mnt/file", O_RDWR | O_CREAT);
	for (int place = 0; place < PLACES; place++)
		require(pwrite(file, buffer, BYTES, (off_t)place * BYTES), BYTES, "/mnt/file");
	require(fsync(file), 0, "/mnt/file");
	require(posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED), 0, "fadvise");
	scratch = opened("/mnt/scratch", O_RDWR | O_CREAT);
	require(mkdir("/mnt/files", 0755), 0, "/mnt/files");
	shmem = opened("/run/scratch", O_RDWR | O_CREAT);
	device = opened("/dev/ram0", O_RDONLY | O_DIRECT);
	if (pipe(ends) || fcntl(ends[1], F_SETPIPE_SZ, 1 << 20) < BYTES)
		end("pipe: %s", strerror(errno));
}

int main(void)
{
	static const char *const folders[] = { "/proc", "/sys", "/dev", "/mnt", "/cg", "/run" };
	struct timespec then, now;
	uint64_t tick;
	long in;

	for (size_t at = 0; at < sizeof(folders) / sizeof(*folders); at++)
		mkdir(folders[at], 0755);
	require(mount("proc", "/proc", "proc", 0, ""), 0, "mount proc");
	mount("dev", "/dev", "devtmpfs", 0, "");
	require(mount("sys", "/sys", "sysfs", 0, ""), 0, "mount sysfs");
	require(mount("run", "/run", "tmpfs", 0, ""), 0, "mount tmpfs");
	require(mount("cg", "/cg", "cgroup2", 0, ""), 0, "mount cgroup2");
	lay_out();
	clock_gettime(CLOCK_MONOTONIC, &then);
	tick = __rdtsc();
	phase("crossing", crossing, 1, 1);
	in = counted("pgpgin");
	phase("readahead", fill_and_drop, FOLIOS, 2);
	in = counted("pgpgin") - in;
	if (wanted("readahead") && in < (long)PLACES * (WINDOWS + WARM) * BYTES / 1024)
		end("readahead: %ld KiB read", in);
	for (int place = 0; place < PLACES; place++)
		fill((off_t)place * BYTES);
	in = counted("pgpgin");
	phase("pread", copy_out, FOLIOS, 1);
	if (counted("pgpgin") - in > BYTES / 1024)
		end("pread: %ld KiB were not cached", counted("pgpgin") - in);
	for (int place = 0; place < PLACES; place++)
		drop((off_t)place * BYTES);
	phase("write", write_and_truncate, FOLIOS, 2);
	phase_after("truncate", cache_clean, truncate_all, FOLIOS, 1, FEW);
	phase_after("create", NULL, create_and_unlink, FILES, 2 * FILES, FEW);
	phase("shmem", allocate_and_truncate, FOLIOS, 2);
	phase("pipe", through_pipe, FOLIOS, 2);
	phase("direct", from_device, FOLIOS, 1);
	phase_in_kernel("slab");
	phase_in_kernel("xarray");
	phase_in_kernel("maple");
	if (wanted("refault"))
		refaults();
	tick = __rdtsc() - tick;
	clock_gettime(CLOCK_MONOTONIC, &now);
	printf("tsc_hz %.0f\n", tick / (now.tv_sec - then.tv_sec +
					(now.tv_nsec - then.tv_nsec) / 1e9));
	printf("done\n");
	end(NULL);
}
