#include "folio.h"

int slow(int index)
{
#ifdef CONFIG_SLOW_TWICE
	index += filemap_add(index) ^ 5;
#endif
	return filemap_add(index) * 3;
}
