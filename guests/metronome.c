/*
 * Give a guest of several vCPUs a timer that costs it no instruction.
 *
 *     metronome PERIOD_NS
 *
 * QEMU ends a vCPU's turn at the next virtual timer.  Comparator 2 of the HPET, which
 * Linux leaves alone, is set to a period with its interrupt disabled: QEMU keeps its
 * timer going (hw/timer/hpet.c arms it when the comparator is written, whether or not
 * it may interrupt) and the guest never hears of it.  It is part of a snapshot.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define HPET 0xfed00000
#define SIZE 1024
#define CAPABILITIES 0x000
#define PERIOD_FS 0x004
#define CONFIGURATION 0x010
#define ENABLED 1
#define TIMER_CONFIGURATION 0x140
#define TIMER_COMPARATOR 0x148
#define PERIODIC (1 << 3)
#define SET_ACCUMULATOR (1 << 6)
#define COMPARATORS(capabilities) (((capabilities) >> 8 & 0x1f) + 1)

static volatile uint32_t *hpet;

static uint32_t get(unsigned int at)
{
	return hpet[at / 4];
}

static void set(unsigned int at, uint32_t value)
{
	hpet[at / 4] = value;
}

int main(int argc, char **argv)
{
	uint64_t period_ns = argc == 2 ? strtoull(argv[1], NULL, 10) : 0;
	int fd = open("/dev/mem", O_RDWR | O_SYNC);
	uint64_t ticks;

	if (fd < 0 || period_ns == 0)
		return 1;
	hpet = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, HPET);
	if (hpet == MAP_FAILED)
		return 2;
	if (COMPARATORS(get(CAPABILITIES)) < 3 || !(get(CONFIGURATION) & ENABLED))
		return 3;
	ticks = period_ns * 1000000 / get(PERIOD_FS);
	if (ticks == 0 || ticks > UINT32_MAX)
		return 4;
	set(TIMER_CONFIGURATION, PERIODIC | SET_ACCUMULATOR);
	set(TIMER_COMPARATOR, ticks);
	set(TIMER_COMPARATOR + 4, 0);
	return 0;
}
