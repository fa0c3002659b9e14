/*
 * Preloaded into QEMU: takes the host's time out of two of its decisions.
 *
 * 1. gettimeofday() always gives the same time.  QEMU's software TLB shrinks by a
 *    window of 100 ms of this clock, and a smaller TLB forgets entries.  A guest
 *    sees that: a forgotten entry is walked again, which sets the Accessed bit
 *    that page reclaim had cleared.
 *
 * 2. A vCPU thread that has woken the main loop lets it go first.  When the agent
 *    stops the machine, the vCPU thread asks the main loop for it and then stops
 *    itself.  If the main loop comes second it finds a stopped vCPU in a running
 *    machine, takes it for idle, and moves the virtual clock to the next timer.
 *    The request is a write of 8 bytes to an eventfd, made under the big lock;
 *    the pause comes after that lock is released.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define PAUSE_NS 20000000

static __thread int has_woken;

int gettimeofday(struct timeval *tv, void *tz)
{
	(void)tz;
	*tv = (struct timeval){ .tv_sec = 1767225600 };
	return 0;
}

ssize_t write(int fd, const void *buffer, size_t length)
{
	if (length == sizeof(uint64_t) && syscall(SYS_gettid) != getpid())
		has_woken = 1;
	return syscall(SYS_write, fd, buffer, length);
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	static int (*next)(pthread_mutex_t *);
	int status;

	if (next == NULL)
		next = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_unlock");
	status = next(mutex);
	if (has_woken) {
		has_woken = 0;
		nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
	}
	return status;
}
