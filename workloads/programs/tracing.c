/*
 * What the kernel does besides while it is traced: its events are on, each leaves a record in a
 * buffer, and records are printed.
 */
#include "program.h"
#include "group.h"
#include "touch.h"

#include <glob.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#define TRACING "/sys/kernel/tracing/"

/* Without the first they are of any file system. */
static const char *const of_files[] = { "xfs", "filemap", "iomap", "writeback", "block", NULL };
static const char *const of_memory[] = {
	"kmem", "mmap", "mmap_lock", "maple_tree", "pagemap", "huge_memory", "thp", "percpu", "vmalloc",
	"migrate", "compaction", "tlb", "exceptions", NULL
};
static const char *const of_reclaim[] = { "vmscan", "oom", "memcg", "cgroup", NULL };
static const char *const of_counted[] = {
	"filemap", "iomap", "kmem", "mmap", "mmap_lock", "maple_tree", "migrate", "vmscan", "compaction",
	"percpu", "vmalloc", NULL
};
static const char *const of_tasks[] = {
	"sched", "task", "signal", "timer", "irq", "raw_syscalls", "workqueue", NULL
};

/* Groups of events on or off; a kernel need not have all. */
static void events(const char *const *groups, unsigned long on)
{
	char name[96];

	for (; *groups; groups++) {
		snprintf(name, sizeof(name), TRACING "events/%s/enable", *groups);
		if (access(name, F_OK) == 0)
			put(name, on);
	}
	errno = 0;
}

/* From an empty buffer on. */
static void begin(const char *const *groups)
{
	need(mount("tracefs", TRACING, "tracefs", 0, NULL) == 0 || errno == EBUSY, TRACING);
	need(close(open(TRACING "trace", O_WRONLY | O_TRUNC)) == 0, TRACING "trace");
	put(TRACING "buffer_size_kb", 1024);
	events(groups, 1);
}

static void files(unsigned long count)
{
	int fd;
	char *at = mapped(&fd);

	begin(of_files);
	while (count--)
		of_file(fd, at);
	events(of_files, 0);
}

static void memory(unsigned long count)
{
	begin(of_memory);
	while (count--)
		region();
	events(of_memory, 0);
}

/* Pages of a file written and taken back, then names and inodes. */
static void take_back(unsigned long count)
{
	make_group();
	while (count) {
		unsigned long now = count < FILE_PAGES ? count : FILE_PAGES;

		need(in_group(write_file, now) == 0, "child");
		put(GROUP "/memory.reclaim", (now - now / 4) * page);
		put("/proc/sys/vm/drop_caches", 2);
		count -= now;
	}
	remove_group();
}

static void reclaim(unsigned long count)
{
	begin(of_reclaim);
	take_back(count);
	events(of_reclaim, 0);
}

/* A counter of perf for each event of a group. */
static void count_events(const char *const *groups)
{
	char name[96], text[16] = "";
	glob_t ids;

	for (; *groups; groups++) {
		snprintf(name, sizeof(name), TRACING "events/%s/*/id", *groups);
		if (glob(name, 0, NULL, &ids))
			continue;
		for (size_t n = 0; n < ids.gl_pathc; n++) {
			struct perf_event_attr event = { .type = PERF_TYPE_TRACEPOINT, .size = sizeof(event) };
			int fd = open(ids.gl_pathv[n], O_RDONLY);

			need(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 && close(fd) == 0, name);
			event.config = strtoul(text, NULL, 10);
			need(syscall(SYS_perf_event_open, &event, 0, -1, -1, 0UL) >= 0, ids.gl_pathv[n]);
		}
		globfree(&ids);
	}
	errno = 0;
}

/* Both at once: records are made, and perf counts. */
static void counted(unsigned long count)
{
	int fd;
	char *at = mapped(&fd);

	begin(of_counted);
	count_events(of_counted);
	take_back(64);
	while (count--) {
		of_file(fd, at);
		region();
	}
	events(of_counted, 0);
	/* What ends a counter waits for two grace periods: a task keeps them until the guest ends. */
	if (fork() == 0) {
		need(close(fd) == 0 && munmap(at, (FILE_PAGES + 1) * page) == 0, "munmap");
		for (;;)
			pause();
	}
}

static void ignore(int number)
{
	(void)number;
}

/* A task that begins and ends, a signal and a timer. */
static void tasks(unsigned long count)
{
	begin(of_tasks);
	signal(SIGUSR1, ignore);
	while (count--) {
		int status;
		pid_t child = fork();

		if (child == 0)
			_exit(0);
		put("/proc/self/oom_score_adj", draw(1000));
		need(kill(getpid(), SIGUSR1) == 0 && usleep(1 + draw(50)) == 0, "signal, sleep");
		need(child > 0 && waitpid(child, &status, 0) == child && status == 0, "child");
	}
	events(of_tasks, 0);
}

/* Records as text; while they are printed none is made. */
static void print(unsigned long count)
{
	static char text[4096];
	int fd, records;
	char *at = mapped(&fd);

	begin(of_files + 1);
	events(of_memory, 1);
	records = open(TRACING "trace_pipe", O_RDONLY | O_NONBLOCK);
	while (count) {
		ssize_t got;

		for (unsigned n = 0; n < 64; n++) {
			of_file(fd, at);
			region();
		}
		put(TRACING "tracing_on", 0);
		while (count && (got = read(records, text, sizeof(text))) > 0)
			for (ssize_t n = 0; n < got; n++)
				count -= count && text[n] == '\n';
		need(count == 0 || errno == EAGAIN, TRACING "trace_pipe");
		put(TRACING "tracing_on", 1);
	}
	events(of_memory, 0);
	events(of_files + 1, 0);
}

static const struct operation operations[] = {
	{ "files", files }, { "memory", memory }, { "reclaim", reclaim }, { "tasks", tasks },
	{ "print", print }, { "counted", counted }, {},
};

int main(int argc, char **argv)
{
	page = sysconf(_SC_PAGESIZE);
	return run_operation(operations, argc, argv);
}
