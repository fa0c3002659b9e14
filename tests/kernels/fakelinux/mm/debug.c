#include "folio.h"

int debug(int index)
{
	return slow(index) + 1;
}
