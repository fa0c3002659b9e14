/*
 * What the programs of workloads have in common: NAME OPERATION COUNT SEED.
 *
 * An operation does COUNT units of work, neither more nor less; sizes and orders come
 * from SEED alone.  The one line that is printed says what was done and how long it took,
 * for workloads/parse.py.  An error ends the program: half a measurement is none.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct operation {
	const char *name;
	void (*run)(unsigned long count);
};

static uint64_t drawn_from;

/* Of 0 to below - 1, by xorshift64* (Vigna, ACM TOMS 42, 2016). */
static inline uint32_t draw(uint32_t below)
{
	drawn_from ^= drawn_from >> 12;
	drawn_from ^= drawn_from << 25;
	drawn_from ^= drawn_from >> 27;
	return (uint32_t)(drawn_from * 0x2545f4914f6cdd1dull >> 32) % below;
}

static inline void need(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "%s: %s\n", what, errno ? strerror(errno) : "not as expected");
	exit(1);
}

static inline uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static inline int run_operation(const struct operation *known, int argc, char **argv)
{
	unsigned long count = argc == 4 ? strtoul(argv[2], NULL, 10) : 0;
	unsigned long seed = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
	uint64_t began;

	for (; count && seed && known->name; known++) {
		if (strcmp(known->name, argv[1]))
			continue;
		/* Seeds beside each other begin far from each other; none begins at 0. */
		drawn_from = seed * 0x9e3779b97f4a7c15ull | 1;
		draw(1);
		began = now_ns();
		known->run(count);
		printf("{\"operation\": \"%s\", \"count\": %lu, \"seed\": %lu, \"ns\": %llu}\n",
		       known->name, count, seed, (unsigned long long)(now_ns() - began));
		return 0;
	}
	fprintf(stderr, "usage: %s OPERATION COUNT SEED\n", argv[0]);
	return 2;
}
