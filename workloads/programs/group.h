/*
 * A control group beside the measured one, so that the counters of that stay as they are, and
 * what a task does in it.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define GROUP "/sys/fs/cgroup/group"

static void put(const char *file, unsigned long value)
{
	char text[24];
	int length = snprintf(text, sizeof(text), "%lu", value), fd = open(file, O_WRONLY);

	need(fd >= 0 && write(fd, text, length) == length && close(fd) == 0, file);
}

static void make_group(void)
{
	need(mkdir(GROUP, 0755) == 0, GROUP);
}

/* What a task that is gone was charged for is uncharged after a grace period. */
static void remove_group(void)
{
	for (unsigned tries = 0; rmdir(GROUP); tries++) {
		need(errno == EBUSY && tries < 1000, GROUP);
		usleep(1000);
	}
	errno = 0;
}

/* The status of a child that does something in the group. */
static int in_group(void (*run)(unsigned long), unsigned long count)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		put(GROUP "/cgroup.procs", 0);
		run(count);
		_exit(0);
	}
	need(child > 0 && waitpid(child, &status, 0) == child, "fork");
	return status;
}

static void write_file(unsigned long pages)
{
	static char bytes[4096];
	int fd = open("/mnt/group", O_RDWR | O_CREAT | O_TRUNC, 0600);

	need(fd >= 0, "/mnt/group");
	while (pages--)
		need(write(fd, bytes, sizeof(bytes)) == sizeof(bytes), "write");
	need(fsync(fd) == 0 && close(fd) == 0, "fsync");
}
