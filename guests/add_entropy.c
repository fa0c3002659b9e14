/*
 * Make the guest's random number generator ready with a fixed seed.
 *
 * An exact guest has no RDRAND and no other source the kernel would credit, so
 * the generator stays unready, and libuuid (in mkfs) waits a virtual second for
 * it at each call.  A fixed seed keeps the guest a pure function of its inputs.
 */
#include <fcntl.h>
#include <linux/random.h>
#include <stdint.h>
#include <sys/ioctl.h>

int main(void)
{
	struct {
		int entropy_count;
		int buf_size;
		uint32_t buf[16];
	} seed = { .entropy_count = 512, .buf_size = sizeof(seed.buf) };
	int fd = open("/dev/random", O_RDWR);

	for (int i = 0; i < 16; i++)
		seed.buf[i] = 0x9e3779b9u * (i + 1);
	return fd < 0 || ioctl(fd, RNDADDENTROPY, &seed) != 0;
}
