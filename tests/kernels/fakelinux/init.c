#include "folio.h"

const char linux_banner[] = "Linux version 6.12.0-fake #1";

static int clamp(int value)
{
	return value > 4096 ? 4096 : value;
}

int start(int argc)
{
	return filemap_add(clamp(argc)) + slow(argc);
}
