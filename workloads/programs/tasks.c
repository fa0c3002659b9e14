/*
 * Tasks that begin and end, one operation at a time: fork, exec, threads.
 */
#include "program.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define PAGES 128UL /* of memory that a child gets */
#define THREADS 8UL /* at once; the kernel keeps two stacks a CPU for the next ones */

static size_t page;

static char *written(void)
{
	char *at = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	need(at != MAP_FAILED, "mmap");
	return at;
}

static void wait_for(pid_t child)
{
	int status;

	need(child > 0, "fork");
	need(waitpid(child, &status, 0) == child && status == 0, "child");
}

/* The child copies some pages, as every child that does something. */
static void fork_(unsigned long count)
{
	char *at = written();

	while (count--) {
		unsigned pages = draw(16), from = draw(PAGES - 16);
		pid_t child = fork();

		if (child == 0) {
			while (pages--)
				at[(from + pages) * page]++;
			_exit(0);
		}
		wait_for(child);
	}
}

/* A static program that does nothing; what is drawn is the size of its arguments. */
static void exec(unsigned long count)
{
	static char more[4096];

	memset(more, 'x', sizeof(more) - 1);
	for (volatile unsigned long left = count; left; left--) {
		char *argument = more + draw(sizeof(more));
		pid_t child = vfork();

		if (child == 0) {
			execl("/proc/self/exe", "tasks", "nothing", "1", "1", argument, NULL);
			_exit(1);
		}
		wait_for(child);
	}
}

static void *body(void *at)
{
	(*(char *)at)++;
	return NULL;
}

static void thread(unsigned long count)
{
	char *at = written();
	pthread_t threads[THREADS];

	while (count) {
		unsigned long now = 1 + draw(THREADS);

		if (now > count)
			now = count;
		for (unsigned long n = 0; n < now; n++)
			need(pthread_create(&threads[n], NULL, body, at + draw(PAGES) * page) == 0,
			     "pthread_create");
		for (unsigned long n = 0; n < now; n++)
			need(pthread_join(threads[n], NULL) == 0, "pthread_join");
		count -= now;
	}
}

static const struct operation operations[] = {
	{ "fork", fork_ }, { "exec", exec }, { "thread", thread }, {},
};

int main(int argc, char **argv)
{
	/* What exec starts. */
	if (argc > 4 && !strcmp(argv[1], "nothing"))
		return 0;
	page = sysconf(_SC_PAGESIZE);
	return run_operation(operations, argc, argv);
}
