/*
 * What the operations have in common.
 */
#include "program.h"

#include <fcntl.h>

static char bytes[4096];

/* One unit of work is one call; sizes are of the seed. */
static void read_(unsigned long count)
{
	int fd = open("/dev/zero", O_RDONLY);

	need(fd >= 0, "/dev/zero");
	while (count--) {
		ssize_t length = 1 + draw(sizeof(bytes));

		need(read(fd, bytes, length) == length, "read");
	}
}

static const struct operation operations[] = {
	{ "read", read_ }, {},
};

int main(int argc, char **argv)
{
	return run_operation(operations, argc, argv);
}
