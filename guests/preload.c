/*
 * Preloaded into QEMU: takes the host's time out of what it decides.
 *
 * 1. gettimeofday() always gives the same time.  QEMU's software TLB shrinks by a
 *    window of 100 ms of this clock, and a smaller TLB forgets entries.  A guest
 *    sees that: a forgotten entry is walked again, which sets the Accessed bit
 *    that page reclaim had cleared.  A guest that goes on after a stop gets TLBs as
 *    large as those of a QEMU that has just been started: a machine that was restored
 *    has no others, and one that went on had those that its boot had made larger.
 *
 * 2. While the guest runs the main loop sleeps: it is not let out of ppoll() for a
 *    timeout or a mere notification.  Woken, it would run the virtual timers, if it
 *    happened to look between the end of a vCPU's turn and the vCPU thread's own
 *    look at them; and what is run there ends turns, while the same timer run by
 *    the vCPU thread does not.
 *
 * 3. The vCPU thread runs expired virtual timers before it takes the big lock, which
 *    is what it does first after a turn.  QEMU 7.2 does it when the next turn
 *    begins, but has computed the length of that turn before, from the expired timer,
 *    as none: where timers end turns, every second vCPU never ran.
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
 * 7. With TWINBOOT_METRONOME_NS a virtual timer goes off at every multiple of that
 *    period.  It does nothing, but QEMU ends a vCPU's turn at a virtual timer, so that
 *    vCPUs take turns of this length.  The guest executes nothing for it and cannot
 *    see it; and as its times are multiples, it need not be saved with a machine.
 *    (A periodic comparator of the HPET, with its interrupt disabled, would do in a
 *    guest's own hands; but QEMU lets it go off twice, 10 ns apart, so that every
 *    second turn is of 10 ns, and with an even number of vCPUs always the same ones'.)
 *    From QEMU 8.1 on a turn is no longer than the time to the next timer divided by the number of
 *    vCPUs.  So there the timer is kept that many periods away from where a turn begins, and never
 *    goes off while a vCPU executes.  Setting it asks all vCPUs to give up their turns, and
 *    each then has the length of its turn computed anew.
 *
 * 8. Nobody ends a vCPU's turn to free memory.  A thread of QEMU's frees what the vCPU thread may
 *    still read once that has left its turn (RCU).  From QEMU 10.2 on it does not wait for turns to
 *    end: it ends them, once 30 things are to be freed or after 50 ms of the host's time, and the
 *    next vCPU goes on from wherever that was.  Turns end soon by themselves, as ever before.
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
#include <string.h>
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
/* struct rcu_reader_data of include/qemu/rcu.h: where a thread has whom to ask to end its turn. */
#define READER_FORCED_BY 32

static bool (*guest_runs)(void);
static int (*shutdown_asked)(void), (*reset_asked)(void);
static bool (*timers_expired)(int clock), (*run_timers)(int clock);
static void (*lock_qemu)(const char *file, int line), (*unlock_qemu)(void);
static void (*wake_main)(void), (*kick_vcpus)(void *);
static void (*init_timer)(void *timer, void *lists, int clock, int scale, int attributes,
			  void (*callback)(void *), void *opaque);
static void (*set_timer)(void *timer, int64_t when_ns);
static int64_t (*clock_ns)(int clock);
static void *(*cpu_of)(int number);
static void (*end_tlb)(void *cpu), (*begin_tlb)(void *cpu);
static char *(*rcu_reader)(void);
static void (*forget_forcing)(void *notifier);
static int (*real_lock)(pthread_mutex_t *), (*real_unlock)(pthread_mutex_t *);
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

/* A function of QEMU's by either of its names: the big lock's changed in QEMU 9.0. */
static void *of_qemu(const char *name, const char *later)
{
	void *found = dlsym(RTLD_DEFAULT, name);

	if (!found && later)
		found = dlsym(RTLD_DEFAULT, later);
	if (!found) {
		fprintf(stderr, "preload: QEMU does not export %s\n", name);
		abort();
	}
	return found;
}

/* Other libraries lock before this one is initialised. */
static void find(void)
{
	if (real_unlock)
		return;
	real_lock = (void *)dlsym(RTLD_NEXT, "pthread_mutex_lock");
	real_unlock = (void *)dlsym(RTLD_NEXT, "pthread_mutex_unlock");
	real_wait = (void *)dlsym(RTLD_NEXT, "pthread_cond_wait");
	real_ppoll = (void *)dlsym(RTLD_NEXT, "ppoll");
	real_eventfd = (void *)dlsym(RTLD_NEXT, "eventfd");
	/* QEMU hands its environment on to the programs that carry its state. */
	if (strncmp(program_invocation_short_name, "qemu-system", strlen("qemu-system")) != 0)
		return;
	shutdown_asked = of_qemu("qemu_shutdown_requested_get", NULL);
	reset_asked = of_qemu("qemu_reset_requested_get", NULL);
	timers_expired = of_qemu("qemu_clock_expired", NULL);
	run_timers = of_qemu("qemu_clock_run_timers", NULL);
	lock_qemu = of_qemu("qemu_mutex_lock_iothread_impl", "bql_lock_impl");
	unlock_qemu = of_qemu("qemu_mutex_unlock_iothread", "bql_unlock");
	wake_main = of_qemu("qemu_notify_event", NULL);
	/* Of any vCPU: they share a thread, so all are asked to give up their turns. */
	kick_vcpus = of_qemu("qemu_cpu_kick", NULL);
	init_timer = of_qemu("timer_init_full", NULL);
	set_timer = of_qemu("timer_mod_ns", NULL);
	clock_ns = of_qemu("qemu_clock_get_ns", NULL);
	cpu_of = of_qemu("qemu_get_cpu", NULL);
	end_tlb = of_qemu("tlb_destroy", NULL);
	begin_tlb = of_qemu("tlb_init", NULL);
	rcu_reader = of_qemu("get_ptr_rcu_reader", NULL);
	forget_forcing = of_qemu("rcu_remove_force_rcu_notifier", NULL);
	guest_runs = of_qemu("runstate_is_running", NULL);
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

static void reset_tlbs(void)
{
	void *cpu;

	for (int number = 0; (cpu = cpu_of(number)); number++) {
		end_tlb(cpu);
		begin_tlb(cpu);
	}
}

/* Of the thread that calls: nobody ends its turns for RCU any more. */
static void keep_turns(void)
{
	void *notifier = *(void **)(rcu_reader() + READER_FORCED_BY);

	if (notifier)
		forget_forcing(notifier);
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
		current_cpu = of_qemu("current_cpu", NULL);
	keep_turns();
	big_lock = mutex;
	vcpu = STARTS;
	vcpus_are_idle = true;
	wake_main();
	status = real_wait(condition, mutex);
	vcpus_are_idle = false;
	return status;
}

/* Of the metronome; without one, 0. */
static int64_t period_ns, turns_end_ns;
/* vCPUs that share the time to the next timer, 0 where each has all of it. */
static int sharing;

static void tick(void *unused)
{
	/* A QEMUTimer has 48 bytes. */
	static uint64_t timer[32];
	static bool is_set_up;
	int64_t now = clock_ns(QEMU_VIRTUAL);

	(void)unused;
	if (!is_set_up)
		init_timer(timer, NULL, QEMU_VIRTUAL, 1, 0, tick, NULL);
	is_set_up = true;
	turns_end_ns = now + period_ns;
	set_timer(timer, sharing ? now + sharing * period_ns : (now / period_ns + 1) * period_ns);
}

/* Also where it goes on: from then on a guest that was kept has the same turns as one that was not. */
static void start_metronome(void)
{
	const char *asked = getenv("TWINBOOT_METRONOME_NS");

	if (!asked || (period_ns && !sharing))
		return;
	period_ns = strtoll(asked, NULL, 10);
	if (period_ns <= 0) {
		fprintf(stderr, "preload: TWINBOOT_METRONOME_NS: not a period: %s\n", asked);
		abort();
	}
	if (dlsym(RTLD_DEFAULT, "icount_percpu_budget"))
		for (sharing = 0; cpu_of(sharing); sharing++)
			;
	lock_qemu(__FILE__, __LINE__);
	tick(NULL);
	unlock_qemu();
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
	void *cpu;

	find();
	if (vcpu != RUNS || mutex != big_lock || inside || !guest_runs())
		return real_lock(mutex);
	/* Without a current vCPU the clock is what has been accounted for. */
	inside = true;
	cpu = *current_cpu;
	*current_cpu = NULL;
	if (timers_expired(QEMU_VIRTUAL)) {
		lock_qemu(__FILE__, __LINE__);
		run_timers(QEMU_VIRTUAL);
		unlock_qemu();
	}
	if (sharing && clock_ns(QEMU_VIRTUAL) >= turns_end_ns) {
		lock_qemu(__FILE__, __LINE__);
		tick(NULL);
		unlock_qemu();
	}
	*current_cpu = cpu;
	inside = false;
	return real_lock(mutex);
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
		if (guest_runs()) {
			vcpu = RUNS;
			inside = true;
			reset_tlbs();
			start_metronome();
			inside = false;
		}
	}
	if (!guest_runs() && *current_cpu)
		kick_vcpus(*current_cpu);
	return status;
}
