/*
 * Loops over the kernel's trees, XArrays and maple trees, in modules of the lab's own
 * (configs/kconfig/additions/trees): each does what it is asked as it is loaded.
 */
#include "program.h"
#include "module.h"

#define XARRAY "/modules/xarray_loops.ko"
#define MAPLE "/modules/maple_loops.ko"

static void loop(const char *file, const char *operation, unsigned long count)
{
	char parameters[128], name[16];
	unsigned long done = 0, wrong = 1;
	int log = open_log();
	const char *words;

	snprintf(parameters, sizeof(parameters), "operation=%s count=%lu seed=%u", operation, count,
		 1 + draw(1u << 30));
	load_module(file, parameters);
	words = logged(log, "_loops: ");
	errno = 0;
	need(words && sscanf(words, "%15s %lu wrong %lu", name, &done, &wrong) == 3 &&
	     !strcmp(name, operation) && done == count && wrong == 0, file);
	close(log);
}

#define LOOP(file, name)                           \
	static void name(unsigned long count)      \
	{                                          \
		loop(file, #name, count);          \
	}
LOOP(XARRAY, store)
LOOP(XARRAY, scatter)
LOOP(XARRAY, large)
LOOP(XARRAY, marks)
LOOP(XARRAY, ids)
LOOP(MAPLE, ranges)
LOOP(MAPLE, walk)
LOOP(MAPLE, gaps)
LOOP(MAPLE, copy)

static const struct operation operations[] = {
	{ "store", store }, { "scatter", scatter }, { "large", large }, { "marks", marks },
	{ "ids", ids }, { "ranges", ranges }, { "walk", walk }, { "gaps", gaps }, { "copy", copy }, {},
};

int main(int argc, char **argv)
{
	return run_operation(operations, argc, argv);
}
