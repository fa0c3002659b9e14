/*
 * How long this host takes for what a machine's file has (configs/machines/): one measurement a call.
 *
 *   calibrate cycle CPU REPEATS          one of a chain of additions, each of which needs the one before
 *   calibrate chase CPU REPEATS BYTES    a load whose address is what the one before it loaded, over all
 *                                        lines of a buffer in an order that no prefetcher knows
 *   calibrate levels CPU REPEATS BYTES   the same over every fourth line, none of which is in a cache
 *                                        ("memory"), and then over those that were just read ("last")
 *   calibrate pages CPU REPEATS PAGES    a chase over a line in each of so many small pages ("far"),
 *                                        and over as many lines side by side ("near")
 *   calibrate pair FIRST SECOND REPEATS  a line that goes from one CPU to another
 *   calibrate counters CPU REPEATS       instructions and cycles in the kernel, of calls on files in
 *                                        memory: "small" ones that stay in caches, one "large" one
 *   calibrate cpuid                      what the CPU says of its TLBs: leaf, subleaf and registers
 *
 * Answers are lines of a word and numbers: "ns 0.293".  Each measurement has a line of its own, none
 * is left out.  "huge BYTES" is how much of a buffer the kernel gave huge pages.  Where the CPU
 * or the kernel does not tell, there is no line.  Exit status 1 and a line on standard error: it
 * could not be measured.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LINE 64u
#define PAGE 4096u
#define HUGE_PAGE (2u << 20)
#define APART 4u
/* Long enough for a clock of microseconds, short enough to fall between interrupts. */
#define CHAIN 1000000u
#define STEPS 300000u
#define ROUNDS 5000u
#define CALLS 20000u
#define LARGE_BYTES (128u << 20)

static void die(const char *what)
{
	fprintf(stderr, "calibrate: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double now(void)
{
	struct timespec time;

	if (clock_gettime(CLOCK_MONOTONIC, &time))
		die("clock");
	return 1e9 * (double)time.tv_sec + (double)time.tv_nsec;
}

static void stay_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("CPU");
}

static size_t below(size_t end)
{
	static uint64_t state = 88172645463325252u;

	/* xorshift64 (Marsaglia 2003): any order will do, the same each time. */
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % end;
}

/* Memory that begins at a huge page, and is of such where HUGE says so and the kernel has them. */
static char *memory(size_t bytes, bool huge)
{
	/* Part of a huge page is none. */
	size_t whole = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
	char *start = mmap(NULL, whole + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (start == MAP_FAILED)
		die("memory");
	start += HUGE_PAGE - (uintptr_t)start % HUGE_PAGE;
	/* A kernel without huge pages refuses either, and has small ones. */
	madvise(start, whole, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	memset(start, 0, bytes);
	return start;
}

/* How much of the mapping that has an address is of huge pages. */
static long huge_bytes(const char *of)
{
	FILE *maps = fopen("/proc/self/smaps", "r");
	char text[512];
	unsigned long start, end;
	bool here = false;
	long kib, all = 0;

	while (maps && fgets(text, sizeof(text), maps)) {
		if (sscanf(text, "%lx-%lx ", &start, &end) == 2)
			here = (uintptr_t)of >= start && (uintptr_t)of < end;
		if (here && sscanf(text, "AnonHugePages: %ld", &kib) == 1)
			all += kib << 10;
	}
	if (maps)
		fclose(maps);
	return all;
}

/* COUNT places make one circle, in an order of Sattolo (1986); PLACES is used up. */
static void **circle(char **places, size_t count)
{
	void **first;

	for (size_t at = count - 1; at > 0; at--) {
		size_t other = below(at);
		char *place = places[at];

		places[at] = places[other];
		places[other] = place;
	}
	for (size_t at = 0; at < count; at++)
		*(void **)places[at] = places[(at + 1) % count];
	first = (void **)places[0];
	free(places);
	return first;
}

static char **some(size_t count)
{
	char **places = calloc(count, sizeof(*places));

	if (places == NULL || count < 2)
		die("places");
	return places;
}

/* ns of a load; *AT goes on. */
static double steps(void ***at, size_t count)
{
	void **next = *at;
	double start = now();

	for (size_t left = count; left > 0; left--)
		next = *(void ***)next;
	/* What is loaded last is needed. */
	__asm__ volatile("" : "+r"(next));
	*at = next;
	return (now() - start) / (double)count;
}

static void flush(char *line)
{
#if defined(__x86_64__)
	__asm__ volatile("clflush %0" : "+m"(*line));
#elif defined(__aarch64__)
	__asm__ volatile("dc civac, %0" : : "r"(line) : "memory");
#endif
}

static void fence(void)
{
#if defined(__x86_64__)
	__asm__ volatile("mfence" : : : "memory");
#elif defined(__aarch64__)
	__asm__ volatile("dsb sy" : : : "memory");
#endif
}

static void cycle(int repeats)
{
	for (; repeats > 0; repeats--) {
		uint64_t sum = 1, by = 3;
		double start = now();

		/* Registers are added: some CPUs add constants for nothing. */
		for (unsigned int left = CHAIN / 16; left > 0; left--) {
#if defined(__x86_64__)
#define ADD "add %1, %0\n\t"
#elif defined(__aarch64__)
#define ADD "add %0, %0, %1\n\t"
#else
#error "no chain of additions for this architecture"
#endif
			__asm__ volatile(ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD
					 : "+r"(sum)
					 : "r"(by)
					 : "cc");
		}
		printf("ns %.6f\n", (now() - start) / CHAIN);
	}
}

static void chase(int repeats, size_t bytes)
{
	size_t count = bytes / LINE;
	char *buffer = memory(bytes, true), **places = some(count);
	void **at;

	for (size_t line = 0; line < count; line++)
		places[line] = buffer + line * LINE;
	at = circle(places, count);
	printf("huge %ld\n", huge_bytes(buffer));
	/* Twice around: the second time every level has what it keeps. */
	steps(&at, 2 * count);
	for (; repeats > 0; repeats--)
		printf("ns %.4f\n", steps(&at, STEPS));
}

static void levels(int repeats, size_t bytes)
{
	/*
	 * Neighbours of a line may come with it.  And a fourth of the lines are in a fourth of the sets
	 * of the second level, which they overflow, when in the last level they take little room.
	 */
	size_t count = bytes / LINE / APART;
	char *buffer = memory(bytes, true), **places = some(count);
	void **at;

	for (size_t line = 0; line < count; line++)
		places[line] = buffer + line * LINE * APART;
	at = circle(places, count);
	printf("huge %ld\n", huge_bytes(buffer));
	/* In turns, and each in a ms or so: what else runs is the same for both. */
	for (; repeats > 0; repeats--) {
		for (size_t line = 0; line < count; line++)
			flush(buffer + line * LINE * APART);
		fence();
		printf("memory %.4f\n", steps(&at, count));
		steps(&at, count);
		printf("last %.4f\n", steps(&at, count));
	}
}

static void pages(int repeats, size_t count)
{
	char *small = memory(count * PAGE, false), *large = memory(count * LINE, true);
	char **far = some(count), **near = some(count);
	void **far_at, **near_at;

	for (size_t page = 0; page < count; page++) {
		/* All sets of a cache are used. */
		far[page] = small + page * PAGE + page * LINE % PAGE;
		near[page] = large + page * LINE;
	}
	far_at = circle(far, count);
	near_at = circle(near, count);
	steps(&far_at, 2 * count);
	steps(&near_at, 2 * count);
	for (; repeats > 0; repeats--) {
		printf("far %.4f\n", steps(&far_at, count));
		printf("near %.4f\n", steps(&near_at, count));
	}
}

static struct {
	uint32_t turn;
} __attribute__((aligned(256))) ball;

/* Have the ball each time that it is MINE, and give it back. */
static void play(uint32_t mine, unsigned int rounds)
{
	for (; rounds > 0; rounds--) {
		uint32_t turn = mine;

		while (!__atomic_compare_exchange_n(&ball.turn, &turn, !mine, false,
						    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			turn = mine;
	}
}

static int second_cpu, second_repeats;

static void *other(void *unused)
{
	stay_on(second_cpu);
	for (int repeat = 0; repeat <= second_repeats; repeat++)
		play(1, ROUNDS);
	return unused;
}

static void pair(int first, int second, int repeats)
{
	pthread_t thread;

	second_cpu = second;
	second_repeats = repeats;
	stay_on(first);
	if (pthread_create(&thread, NULL, other, NULL))
		die("thread");
	/* The first time until both are where they belong. */
	play(0, ROUNDS);
	for (; repeats > 0; repeats--) {
		double start = now();

		play(0, ROUNDS);
		printf("ns %.4f\n", (now() - start) / (2.0 * ROUNDS));
	}
	pthread_join(thread, NULL);
}

static int counter(uint64_t what, int group)
{
	struct perf_event_attr event = {
		.type = PERF_TYPE_HARDWARE,
		.size = sizeof(event),
		.config = what,
		.disabled = group < 0,
		.exclude_user = 1,
		.exclude_hv = 1,
		.read_format = PERF_FORMAT_GROUP,
	};

	return (int)syscall(SYS_perf_event_open, &event, 0, -1, group, 0);
}

static int file_of(size_t bytes)
{
	int file = memfd_create("calibrate", 0);
	char page[PAGE] = { 1 };

	if (file < 0)
		die("file");
	for (size_t at = 0; at < bytes; at += PAGE)
		if (pwrite(file, page, PAGE, (off_t)at) != PAGE)
			die("file");
	return file;
}

enum call { READS_64, READS_4096, WRITES_64, STATS };

static void calls(enum call call, int file, size_t bytes)
{
	char data[PAGE] = { 0 };
	struct stat status;

	for (unsigned int left = CALLS; left > 0; left--) {
		off_t at = (off_t)(below(bytes / PAGE) * PAGE);
		ssize_t done = call == READS_64	  ? pread(file, data, 64, at) :
			       call == READS_4096 ? pread(file, data, PAGE, at) :
			       call == WRITES_64  ? pwrite(file, data, 64, at) :
						    fstat(file, &status);

		if (done < 0)
			die("call");
	}
}

static void counters(int repeats)
{
	static const struct {
		const char *word;
		enum call call;
		size_t bytes;
	} LOADS[] = { { "small", READS_64, 16 * PAGE },
		      { "small", READS_4096, 16 * PAGE },
		      { "small", WRITES_64, 16 * PAGE },
		      { "small", STATS, 16 * PAGE },
		      { "large", READS_64, LARGE_BYTES } };
	int group = counter(PERF_COUNT_HW_INSTRUCTIONS, -1);
	int of_cycles = group < 0 ? -1 : counter(PERF_COUNT_HW_CPU_CYCLES, group);

	/* A guest often has none, and a kernel may keep them to itself. */
	if (of_cycles < 0)
		return;
	for (size_t load = 0; load < sizeof(LOADS) / sizeof(*LOADS); load++) {
		int file = file_of(LOADS[load].bytes);

		for (int repeat = -1; repeat < repeats; repeat++) {
			struct {
				uint64_t count, instructions, cycles;
			} sums;

			ioctl(group, PERF_EVENT_IOC_RESET, PERF_IOC_FLAG_GROUP);
			ioctl(group, PERF_EVENT_IOC_ENABLE, PERF_IOC_FLAG_GROUP);
			calls(LOADS[load].call, file, LOADS[load].bytes);
			ioctl(group, PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP);
			if (read(group, &sums, sizeof(sums)) != sizeof(sums))
				die("counters");
			/* Counters that others use meanwhile count nothing. */
			if (repeat >= 0 && sums.cycles)
				printf("%s %.4f\n", LOADS[load].word,
				       (double)sums.instructions / (double)sums.cycles);
		}
		close(file);
	}
}

#if defined(__x86_64__)
#include <cpuid.h>

static void leaf(uint32_t number, uint32_t below_it)
{
	uint32_t a, b, c, d;

	if (!__get_cpuid_count(number, below_it, &a, &b, &c, &d))
		return;
	printf("cpuid %u %u %u %u %u %u\n", number, below_it, a, b, c, d);
}

static void cpuid(void)
{
	uint32_t a = 0, b, c, d;

	/* Its subleaf 0 says in EAX which is the last. */
	__get_cpuid_count(0x18, 0, &a, &b, &c, &d);
	for (uint32_t at = 0; at <= a && at < 32; at++)
		leaf(0x18, at);
	leaf(0x80000005, 0);
	leaf(0x80000006, 0);
	leaf(0x80000019, 0);
}
#else
static void cpuid(void)
{
}
#endif

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	long number[3] = { 0 };

	for (int i = 2; i < argc && i < 5; i++)
		number[i - 2] = atol(argv[i]);
	if (strcmp(what, "cpuid") == 0 && argc == 2) {
		cpuid();
		return 0;
	}
	if (strcmp(what, "pair") == 0 && argc == 5) {
		pair((int)number[0], (int)number[1], (int)number[2]);
		return 0;
	}
	if (argc > 3)
		stay_on((int)number[0]);
	if (strcmp(what, "cycle") == 0 && argc == 4)
		cycle((int)number[1]);
	else if (strcmp(what, "counters") == 0 && argc == 4)
		counters((int)number[1]);
	else if (strcmp(what, "chase") == 0 && argc == 5)
		chase((int)number[1], (size_t)number[2]);
	else if (strcmp(what, "levels") == 0 && argc == 5)
		levels((int)number[1], (size_t)number[2]);
	else if (strcmp(what, "pages") == 0 && argc == 5)
		pages((int)number[1], (size_t)number[2]);
	else {
		fprintf(stderr, "calibrate: no such measurement: %s\n", what);
		return 1;
	}
	return 0;
}
