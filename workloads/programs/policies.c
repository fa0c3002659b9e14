/*
 * Scheduling policies and priorities of tasks, one operation at a time.
 *
 * On one vCPU this is the path of choosing and switching; where tasks are placed is not in it.
 */
#include "program.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define DEADLINE 6 /* a policy that not every C library knows */
#define TASKS 8U
static uint64_t period_ns = 200000; /* of a deadline: a task may run for a quarter of it */

/* struct sched_attr of include/uapi/linux/sched/types.h; some C libraries have one, too. */
struct attributes {
	uint32_t size, policy;
	uint64_t flags;
	uint32_t nice, priority;
	uint64_t runtime, deadline, period;
};

static void set(pid_t task, unsigned policy, unsigned drawn)
{
	struct attributes is, to = { .size = sizeof(to), .policy = policy, .runtime = period_ns / 4,
				     .deadline = period_ns, .period = period_ns };

	if (policy == SCHED_FIFO || policy == SCHED_RR)
		to.priority = 1 + drawn % 90;
	else if (policy != DEADLINE)
		to.nice = drawn % 20;
	need(syscall(SYS_sched_setattr, task, &to, 0) == 0, "sched_setattr");
	need(syscall(SYS_sched_getattr, task, &is, sizeof(is), 0) == 0 && is.policy == policy, "policy");
}

static pid_t waiting(void)
{
	pid_t child = fork();

	while (child == 0)
		pause();
	return child;
}

static void end(pid_t child)
{
	int status;

	need(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child, "kill");
}

/* Every second change is of the task itself, which runs; the others are of one that waits. */
static void change(unsigned long count)
{
	static const unsigned known[] = {
		SCHED_OTHER, SCHED_BATCH, SCHED_IDLE, SCHED_FIFO, SCHED_RR, DEADLINE,
	};
	pid_t tasks[TASKS];

	period_ns = 1000000000; /* nobody has run for a quarter of it before the next change */
	for (unsigned n = 0; n < TASKS; n++)
		tasks[n] = waiting();
	for (; count; count--) {
		unsigned policy = known[draw(6)];

		/* Two tasks with half of the CPU each are too many. */
		if (count % 2 || policy == DEADLINE)
			set(0, policy, draw(1000));
		else
			set(tasks[draw(TASKS)], policy, draw(1000));
	}
	for (unsigned n = 0; n < TASKS; n++)
		end(tasks[n]);
	set(0, SCHED_OTHER, 0);
}

struct pipes {
	int to[2], from[2];
	unsigned long count;
};

static void *answer(void *at)
{
	struct pipes *pair = at;
	char byte;

	set(0, SCHED_FIFO, 50);
	for (unsigned long n = 0; n < pair->count; n++)
		need(read(pair->to[0], &byte, 1) == 1 && write(pair->from[1], &byte, 1) == 1, "pipe");
	return NULL;
}

/* A byte there and back between two tasks, one of each real-time policy. */
static void realtime(unsigned long count)
{
	struct pipes pair = { .count = count };
	pthread_t other;
	char byte = 0;

	need(pipe(pair.to) == 0 && pipe(pair.from) == 0, "pipe");
	need(pthread_create(&other, NULL, answer, &pair) == 0, "pthread_create");
	set(0, SCHED_RR, 40 + draw(20));
	while (count--)
		need(write(pair.to[1], &byte, 1) == 1 && read(pair.from[0], &byte, 1) == 1, "pipe");
	set(0, SCHED_OTHER, 0);
	need(pthread_join(other, NULL) == 0, "pthread_join");
}

/* Periods that end early: the next one begins 200 microseconds after the last. */
static void deadline(unsigned long count)
{
	set(0, DEADLINE, 0);
	for (unsigned long n = 0; n < count; n++) {
		for (volatile unsigned turn = draw(4000); turn; turn--)
			;
		need(sched_yield() == 0, "sched_yield");
	}
	set(0, SCHED_OTHER, 0);
}

static void *yields(void *at)
{
	for (unsigned long n = *(unsigned long *)at; n; n--)
		sched_yield();
	return NULL;
}

/* Three tasks that run and give up their turn, with nice values and masks set meanwhile. */
static void yield(unsigned long count)
{
	unsigned long each = count / 3, rest = count - 2 * each;
	pthread_t others[2];
	cpu_set_t mask;

	CPU_ZERO(&mask);
	CPU_SET(0, &mask);
	for (unsigned n = 0; n < 2; n++)
		need(pthread_create(&others[n], NULL, yields, &each) == 0, "pthread_create");
	while (rest--) {
		if (!draw(4))
			need(setpriority(PRIO_PROCESS, 0, draw(20)) == 0, "setpriority");
		if (!draw(4))
			need(sched_setaffinity(0, sizeof(mask), &mask) == 0, "sched_setaffinity");
		sched_yield();
	}
	for (unsigned n = 0; n < 2; n++)
		need(pthread_join(others[n], NULL) == 0, "pthread_join");
}

static pthread_mutex_t mutex;
static unsigned long handed;

static void *holds(void *at)
{
	for (unsigned long n = *(unsigned long *)at; n; n--) {
		need(pthread_mutex_lock(&mutex) == 0, "pthread_mutex_lock");
		handed++;
		sched_yield();
		need(pthread_mutex_unlock(&mutex) == 0, "pthread_mutex_unlock");
		sched_yield();
	}
	return NULL;
}

/* A mutex that lends its owner the priority of who waits for it: a real-time task. */
static void inherit(unsigned long count)
{
	pthread_mutexattr_t kind;
	pthread_t other;
	unsigned long half = count / 2, rest = count - half;

	need(pthread_mutexattr_init(&kind) == 0 &&
	     pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT) == 0, "PRIO_INHERIT");
	need(pthread_mutex_init(&mutex, &kind) == 0, "pthread_mutex_init");
	need(pthread_create(&other, NULL, holds, &half) == 0, "pthread_create");
	set(0, SCHED_RR, 10 + draw(50));
	for (; rest; rest--) {
		need(pthread_mutex_lock(&mutex) == 0, "pthread_mutex_lock");
		handed++;
		need(pthread_mutex_unlock(&mutex) == 0, "pthread_mutex_unlock");
		/* Until the other one has the mutex again. */
		usleep(1 + draw(20));
	}
	set(0, SCHED_OTHER, 0);
	need(pthread_join(other, NULL) == 0 && handed == count, "handed");
}

static const struct operation operations[] = {
	{ "change", change }, { "realtime", realtime }, { "deadline", deadline },
	{ "yield", yield }, { "inherit", inherit }, {},
};

int main(int argc, char **argv)
{
	return run_operation(operations, argc, argv);
}
