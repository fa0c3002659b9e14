/*
 * A module of the kernel that does all its work as it is loaded, refuses to stay, and leaves a line
 * in the kernel's log that says what it did.  Behind program.h.
 */
#include <fcntl.h>
#include <sys/syscall.h>

#define LOG "/dev/kmsg"

/* The kernel's log, from here on. */
static int open_log(void)
{
	int log = open(LOG, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	need(log >= 0 && lseek(log, 0, SEEK_END) >= 0, LOG);
	return log;
}

static void load_module(const char *file, const char *parameters)
{
	int module = open(file, O_RDONLY | O_CLOEXEC);

	need(module >= 0, file);
	need(syscall(SYS_finit_module, module, parameters, 0) < 0 && errno == EAGAIN, file);
	close(module);
}

/* What follows WORD in the next line of the log that has it; NULL at the log's end. */
static const char *logged(int log, const char *word)
{
	static char record[1024];
	ssize_t length;
	char *at;

	while ((length = read(log, record, sizeof(record) - 1)) > 0) {
		record[length] = 0;
		at = strstr(record, word);
		if (at)
			return at + strlen(word);
	}
	return NULL;
}
