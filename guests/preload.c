/*
 * Preloaded into QEMU: takes the host's time out of two of its decisions.
 *
 * 1. gettimeofday() always gives the same time.  QEMU's software TLB shrinks by a
 *    window of 100 ms of this clock, and a smaller TLB forgets entries.  A guest
 *    sees that: a forgotten entry is walked again, which sets the Accessed bit
 *    that page reclaim had cleared.
 *
 * 2. A vCPU thread that stops the machine lets the main loop go first.  It asks the
 *    main loop to stop the machine and then stops itself; a main loop that comes
 *    second finds a stopped vCPU in a running machine, takes it for idle, and moves
 *    the virtual clock to the next timer.
 *    The vCPU thread first tells the monitor that the guest panicked (its only
 *    message ever), then wakes the main loop by 8 bytes to an eventfd, both under
 *    the big lock; the pause comes after that lock is released.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define PAUSE_NS 20000000

static __thread enum { RUNS, HAS_TOLD, HAS_WOKEN } vcpu;

static int in_main_thread(void)
{
	return syscall(SYS_gettid) == getpid();
}

int gettimeofday(struct timeval *tv, void *tz)
{
	(void)tz;
	*tv = (struct timeval){ .tv_sec = 1767225600 };
	return 0;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	if (!in_main_thread())
		vcpu = HAS_TOLD;
	return syscall(SYS_sendmsg, fd, message, flags);
}

ssize_t write(int fd, const void *buffer, size_t length)
{
	if (vcpu == HAS_TOLD && length == sizeof(uint64_t))
		vcpu = HAS_WOKEN;
	return syscall(SYS_write, fd, buffer, length);
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	static int (*next)(pthread_mutex_t *);
	int status;

	if (next == NULL)
		next = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_unlock");
	status = next(mutex);
	if (vcpu == HAS_WOKEN) {
		vcpu = RUNS;
		nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
	}
	return status;
}
