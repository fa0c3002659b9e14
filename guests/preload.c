/*
 * Preloaded into QEMU: takes the host's time out of what it decides.
 *
 * 1. gettimeofday() always gives the same time.  QEMU's software TLB shrinks by a
 *    window of 100 ms of this clock, and a smaller TLB forgets entries.  A guest
 *    sees that: a forgotten entry is walked again, which sets the Accessed bit
 *    that page reclaim had cleared.
 *
 * 2. While the guest runs the main loop sleeps: it is not let out of ppoll() for a
 *    timeout or a mere notification.  Woken, it would run the virtual timers, if it
 *    happened to look between the end of a vCPU's turn and the vCPU thread's own
 *    look at them; and what is run there ends turns, while the same timer run by
 *    the vCPU thread does not.
 *
 * 3. The vCPU thread runs expired virtual timers whenever it releases the big lock.
 *    QEMU (before 8.1) does it at the start of a turn, but has computed the length
 *    of that turn before, from the expired timer, as none: where timers end turns,
 *    every second vCPU never ran.
 *
 * 4. A vCPU thread that stops the machine waits until the main loop has asked all
 *    vCPUs to stop, or others go on for as long as the host likes; and a main loop
 *    that finds a stopped vCPU in a running machine takes it for idle and moves the
 *    virtual clock to the next timer.
 *    The vCPU thread first tells the monitor that the guest panicked (its only
 *    message ever), then wakes the main loop by 8 bytes to an eventfd, both under
 *    the big lock; it waits once that lock is released.
 *
 * 5. A vCPU thread that starts waits until the main loop has nothing left to do.
 *
 * 6. The vCPU thread of a stopped machine stays with the vCPU whose turn it is.  Work
 *    that is queued meanwhile, for saving the machine, would let it walk on past the
 *    vCPUs that must not run, as far as the host's timing takes it.
 *
 * What is called in QEMU are functions that its plugins and modules may use, too.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define WAIT_NS 20000
#define PATIENCE 1000000 /* times WAIT_NS: at least 20 s */
#define KNOWN_FDS 1024
/* QEMUClockType of include/qemu/timer.h */
#define QEMU_REALTIME 0
#define QEMU_VIRTUAL 1

static bool (*guest_runs)(void);
static int (*shutdown_asked)(void), (*reset_asked)(void);
static bool (*timers_expired)(int clock), (*run_timers)(int clock);
static void (*lock_qemu)(const char *file, int line), (*unlock_qemu)(void);
static void (*wake_main)(void), (*kick_vcpus)(void *);
static int (*real_unlock)(pthread_mutex_t *);
static int (*real_wait)(pthread_cond_t *, pthread_mutex_t *);
static int (*real_ppoll)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);
static int (*real_eventfd)(unsigned int, int);

static atomic_bool is_eventfd[KNOWN_FDS];
static atomic_bool stop_asked, main_is_quiet, main_waits, vcpus_are_idle;
/* The big lock, known as what a vCPU thread gives up to wait. */
static pthread_mutex_t *_Atomic big_lock;

static __thread enum { OTHER, RUNS, STARTS, HAS_TOLD, HAS_WOKEN } vcpu;
static __thread bool inside;
static __thread void **current_cpu;

/* Other libraries lock before this one is initialised. */
static void find(void)
{
	if (real_unlock)
		return;
	real_unlock = (void *)dlsym(RTLD_NEXT, "pthread_mutex_unlock");
	real_wait = (void *)dlsym(RTLD_NEXT, "pthread_cond_wait");
	real_ppoll = (void *)dlsym(RTLD_NEXT, "ppoll");
	real_eventfd = (void *)dlsym(RTLD_NEXT, "eventfd");
	guest_runs = (void *)dlsym(RTLD_DEFAULT, "runstate_is_running");
	shutdown_asked = (void *)dlsym(RTLD_DEFAULT, "qemu_shutdown_requested_get");
	reset_asked = (void *)dlsym(RTLD_DEFAULT, "qemu_reset_requested_get");
	timers_expired = (void *)dlsym(RTLD_DEFAULT, "qemu_clock_expired");
	run_timers = (void *)dlsym(RTLD_DEFAULT, "qemu_clock_run_timers");
	lock_qemu = (void *)dlsym(RTLD_DEFAULT, "qemu_mutex_lock_iothread_impl");
	unlock_qemu = (void *)dlsym(RTLD_DEFAULT, "qemu_mutex_unlock_iothread");
	wake_main = (void *)dlsym(RTLD_DEFAULT, "qemu_notify_event");
	/* Of any vCPU: they share a thread, so all are asked to give up their turns. */
	kick_vcpus = (void *)dlsym(RTLD_DEFAULT, "qemu_cpu_kick");
}

static bool in_main_thread(void)
{
	return syscall(SYS_gettid) == getpid();
}

static void await(bool (*done)(void), const char *what)
{
	for (int n = 0; !done(); n++) {
		if (n == PATIENCE) {
			fprintf(stderr, "preload: the main loop never %s\n", what);
			abort();
		}
		nanosleep(&(struct timespec){ .tv_nsec = WAIT_NS }, NULL);
	}
}

/* Waiting for the vCPUs, the main loop has asked all of them to stop. */
static bool main_stops_vcpus(void)
{
	return main_waits;
}

static bool main_is_done(void)
{
	return main_is_quiet || main_waits || !guest_runs();
}

int gettimeofday(struct timeval *tv, void *tz)
{
	(void)tz;
	*tv = (struct timeval){ .tv_sec = 1767225600 };
	return 0;
}

int eventfd(unsigned int count, int flags)
{
	int fd;

	find();
	fd = real_eventfd(count, flags);
	if (fd >= 0 && fd < KNOWN_FDS)
		is_eventfd[fd] = true;
	return fd;
}

/* Whether only notifications came; takes them. */
static bool nothing_but_wakes(struct pollfd *fds, nfds_t count)
{
	uint64_t taken;

	for (nfds_t n = 0; n < count; n++)
		if (fds[n].revents && !(fds[n].fd < KNOWN_FDS && is_eventfd[fds[n].fd]))
			return false;
	for (nfds_t n = 0; n < count; n++)
		if (fds[n].revents && read(fds[n].fd, &taken, sizeof(taken)) < 0 && errno != EAGAIN)
			return false;
	return true;
}

static bool main_is_needed(void)
{
	return stop_asked || vcpus_are_idle || !guest_runs() || shutdown_asked() ||
	       reset_asked() || timers_expired(QEMU_REALTIME);
}

int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask)
{
	static const struct timespec at_once;
	bool has_work = timeout && timeout->tv_sec == 0 && timeout->tv_nsec == 0;
	int ready;

	find();
	/* What was begun before the guest ran is finished first. */
	if (!guest_runs || !in_main_thread() || !guest_runs() || has_work)
		return real_ppoll(fds, count, timeout, mask);
	ready = real_ppoll(fds, count, &at_once, mask);
	if (ready != 0)
		return ready;
	do {
		main_is_quiet = true;
		ready = real_ppoll(fds, count, NULL, mask);
		/* First, so that a vCPU thread that starts sees it or is seen. */
		main_is_quiet = false;
		/* Taken before it is asked: a wake that comes later is not lost. */
	} while (ready > 0 && nothing_but_wakes(fds, count) && !main_is_needed());
	return ready;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	if (vcpu == RUNS) {
		vcpu = HAS_TOLD;
		stop_asked = true;
	}
	return syscall(SYS_sendmsg, fd, message, flags);
}

ssize_t write(int fd, const void *buffer, size_t length)
{
	if (vcpu == HAS_TOLD && length == sizeof(uint64_t))
		vcpu = HAS_WOKEN;
	return syscall(SYS_write, fd, buffer, length);
}

int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
	int status;

	find();
	if (!guest_runs)
		return real_wait(condition, mutex);
	if (in_main_thread()) {
		main_waits = true;
		status = real_wait(condition, mutex);
		main_waits = false;
		return status;
	}
	if (!current_cpu)
		current_cpu = dlsym(RTLD_DEFAULT, "current_cpu");
	big_lock = mutex;
	vcpu = STARTS;
	vcpus_are_idle = true;
	wake_main();
	status = real_wait(condition, mutex);
	vcpus_are_idle = false;
	return status;
}

static void run_expired_timers(void)
{
	void *cpu = *current_cpu;

	/* Without a current vCPU the clock is what has been accounted for. */
	inside = true;
	*current_cpu = NULL;
	if (timers_expired(QEMU_VIRTUAL)) {
		lock_qemu(__FILE__, __LINE__);
		run_timers(QEMU_VIRTUAL);
		unlock_qemu();
	}
	*current_cpu = cpu;
	inside = false;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	int status;

	find();
	status = real_unlock(mutex);
	if (vcpu == OTHER || mutex != big_lock || inside)
		return status;
	if (vcpu == HAS_WOKEN) {
		await(main_stops_vcpus, "stopped the machine");
		stop_asked = false;
		vcpu = RUNS;
	} else if (vcpu == STARTS) {
		await(main_is_done, "came to rest");
		if (guest_runs())
			vcpu = RUNS;
	}
	if (guest_runs())
		run_expired_timers();
	else if (*current_cpu)
		kick_vcpus(*current_cpu);
	return status;
}
