/*
 * Programs of the host that a workload drives: how one is started, and how it ends.
 */
#include <fcntl.h>
#include <sys/wait.h>

/* Started as argv[0] from file, with standard input and output from and to files; 0 keeps them. */
static inline pid_t start(const char *file, char *const argv[], const char *in, const char *out)
{
	char *const none[] = { "HOME=/tmp", NULL };
	pid_t child = vfork();

	if (child == 0) {
		int from = in ? open(in, O_RDONLY) : 0;
		int to = out ? open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600) : 1;

		if (dup2(from, 0) == 0 && dup2(to, 1) == 1)
			execve(file, argv, none);
		_exit(127);
	}
	need(child > 0, "vfork");
	return child;
}

/* The status it exited with. */
static inline int ended(pid_t child)
{
	int status;

	need(waitpid(child, &status, 0) == child && WIFEXITED(status), "killed");
	return WEXITSTATUS(status);
}
