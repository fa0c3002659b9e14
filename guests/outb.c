/*
 * Write one byte to an I/O port: outb PORT VALUE
 *
 * For kernels without /dev/port, as distributions build them.
 */
#include <stdlib.h>
#include <sys/io.h>

int main(int argc, char **argv)
{
	if (argc != 3 || iopl(3) != 0)
		return 1;
	outb((unsigned char)atoi(argv[2]), (unsigned short)atoi(argv[1]));
	return 0;
}
