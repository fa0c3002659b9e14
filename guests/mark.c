/*
 * Mark where a phase begins for the probe: mark PHASE CLOCK [PROGRAM ARGUMENT...]
 *
 * Executes one NOP that holds the number of the phase (guests/probe/probe.c looks for
 * it), then becomes PROGRAM.  0 is outside of any phase.  Without the probe a NOP is a
 * NOP: the guest runs the same with and without.
 *
 * A line "PHASE TICKS" is added to the file CLOCK.  An exact guest's time-stamp counter
 * advances by one for each instruction, so that the ticks between two marks are what
 * the probe ought to have counted.  Writing the line is left outside of the phase.
 *
 * The NOP of arm64 is a move of a constant into the register that holds nothing.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef __aarch64__
#define MARK(n)                                                                     \
	case n:                                                                     \
		__asm__ volatile("movz xzr, %0, lsl #32" : : "i"(0x5450 | n)); \
		return 0

static unsigned long long ticks(void)
{
	unsigned long long now;

	__asm__ volatile("isb; mrs %0, cntvct_el0" : "=r"(now));
	return now;
}
#else
#define MARK(n)                                                          \
	case n:                                                          \
		__asm__ volatile("nopl %c0(%%rax)" : : "i"(0x54570000 | n)); \
		return 0

static unsigned long long ticks(void)
{
	return __builtin_ia32_rdtsc();
}
#endif

static int mark(long phase)
{
	switch (phase) {
		MARK(0);
		MARK(1);
		MARK(2);
		MARK(3);
		MARK(4);
		MARK(5);
		MARK(6);
		MARK(7);
		MARK(8);
		MARK(9);
		MARK(10);
		MARK(11);
		MARK(12);
		MARK(13);
		MARK(14);
		MARK(15);
	}
	return -1;
}

static int note(const char *path, long phase)
{
	char line[64];
	int length = snprintf(line, sizeof(line), "%ld %llu\n", phase, ticks());
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);

	return fd < 0 || write(fd, line, length) != length || close(fd) != 0;
}

int main(int argc, char **argv)
{
	long phase = argc > 2 ? strtol(argv[1], NULL, 10) : -1;

	if (phase == 0 && mark(phase) != 0)
		return 99;
	if (phase < 0 || note(argv[2], phase) != 0)
		return 99;
	if (phase > 0 && mark(phase) != 0)
		return 99;
	if (argc > 3) {
		execvp(argv[3], argv + 3);
		return 99;
	}
	return 0;
}
