#include "folio.h"

int slow(int index)
{
	return filemap_add(index) * 3;
}
