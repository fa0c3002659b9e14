#include "folio.h"

static int table[TABLE_SIZE];

/* Remember an index. */
__attribute__((noipa)) static int remember(int index)
{
	table[index & 15] += index;
	return table[index & 15];
}

/* Add a folio. */
int filemap_add(int index)
{
	int order = index >> 4;

	return remember(index) + order;
}

int filemap_last(void)
{
	return table[15];
}
