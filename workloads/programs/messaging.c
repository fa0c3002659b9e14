/*
 * Groups of tasks that send messages to each other through pipes, in the style of hackbench.
 *
 * On one vCPU this is the path of waking, switching and picking the next task; where tasks
 * are placed is not in it.
 */
#include "program.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define GROUPS 3U
#define EACH 5U /* senders of a group, and receivers */
#define BYTES 100

struct task {
	int pipes[EACH][2];
	unsigned index;
	unsigned long messages;
	uint64_t seed;
	unsigned long *received;
};

static struct task senders[GROUPS][EACH], receivers[GROUPS][EACH];

static void *send_all(void *at)
{
	struct task *task = at;
	uint64_t from = task->seed;
	char bytes[BYTES] = "";

	while (task->messages--) {
		/* Threads share draw(), and its order would be that of the scheduler. */
		from = from * 6364136223846793005ull + 1442695040888963407ull;
		need(write(task->pipes[(from >> 33) % EACH][1], bytes, BYTES) == BYTES, "write");
	}
	return NULL;
}

static void *receive_all(void *at)
{
	struct task *task = at;
	char bytes[BYTES];

	/* A sender's last message to each receiver says so. */
	for (unsigned ended = 0; ended < EACH; ended += bytes[0]) {
		need(read(task->pipes[task->index][0], bytes, BYTES) == BYTES, "read");
		*task->received += !bytes[0];
	}
	return NULL;
}

static void end_all(struct task *task)
{
	const char last[BYTES] = { 1 };

	for (unsigned n = 0; n < EACH; n++)
		need(write(task->pipes[n][1], last, BYTES) == BYTES, "write");
}

static unsigned long *prepare(unsigned long count)
{
	size_t size = GROUPS * EACH * sizeof(unsigned long);
	unsigned long *received = mmap(NULL, size, PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	need(received != MAP_FAILED, "mmap");
	for (unsigned group = 0; group < GROUPS; group++) {
		struct task made = { .seed = 0 };

		for (unsigned n = 0; n < EACH; n++)
			need(pipe(made.pipes[n]) == 0, "pipe");
		for (unsigned n = 0; n < EACH; n++) {
			unsigned number = group * EACH + n;

			made.index = n;
			made.seed = draw(UINT32_MAX);
			made.received = received + number;
			made.messages = count / (GROUPS * EACH) +
					(number < count % (GROUPS * EACH));
			senders[group][n] = receivers[group][n] = made;
		}
	}
	return received;
}

static void finish(const unsigned long *received, unsigned long count)
{
	for (unsigned n = 0; n < GROUPS * EACH; n++)
		count -= received[n];
	need(count == 0, "messages received");
}

static void process(unsigned long count)
{
	unsigned long *received = prepare(count);
	int status;

	for (unsigned n = 0; n < 2 * GROUPS * EACH; n++) {
		struct task *task = (n % 2 ? *senders : *receivers) + n / 2;
		pid_t child = fork();

		need(child >= 0, "fork");
		if (child > 0)
			continue;
		(n % 2 ? send_all : receive_all)(task);
		if (n % 2)
			end_all(task);
		_exit(0);
	}
	for (unsigned n = 0; n < 2 * GROUPS * EACH; n++)
		need(wait(&status) > 0 && status == 0, "child");
	finish(received, count);
}

static void *sender(void *at)
{
	send_all(at);
	end_all(at);
	return NULL;
}

static void thread(unsigned long count)
{
	unsigned long *received = prepare(count);
	pthread_t tasks[2 * GROUPS * EACH];

	for (unsigned n = 0; n < 2 * GROUPS * EACH; n++)
		need(pthread_create(&tasks[n], NULL, n % 2 ? sender : receive_all,
				    (n % 2 ? *senders : *receivers) + n / 2) == 0, "pthread_create");
	for (unsigned n = 0; n < 2 * GROUPS * EACH; n++)
		need(pthread_join(tasks[n], NULL) == 0, "pthread_join");
	finish(received, count);
}

static const struct operation operations[] = {
	{ "process", process }, { "thread", thread }, {},
};

int main(int argc, char **argv)
{
	return run_operation(operations, argc, argv);
}
