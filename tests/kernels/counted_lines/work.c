#include <stdlib.h>
static volatile int sink;

static inline int twice(int x)
{
	if (x < 0) {
		sink++;
		return 0;
	}
	sink += x;
	return x * 2;
}

static inline int often(int n)
{
	int sum = 0;
	for (int i = 0; i < n; i++) {
		sum += twice(i);
		if (i % 8 == 3)
			sink--;
	}
	return sum;
}

__attribute__((noinline)) static int search(const int *list, int many, int wanted)
{
	int at = 0;
	while (at < many) {
		if (list[at] == wanted)
			goto out;
		at++;
	}
	sink = wanted;
	return -1;
out:
	sink++;
	return at;
}

__attribute__((weak)) int chosen(int x)
{
	return x;
}

int main(int argc, char **argv)
{
	int list[32], n = atoi(argv[1]);
	for (int i = 0; i < 32; i++)
		list[i] = i * 3;
	for (int i = 0; i < n; i++) {
		if (i & 1)
			often(i);
		else
			twice(-i);
		if (search(list, 32, i) >= 0)
			sink += 5;
		if (argc > 5)
			sink = often(argc);
	}
	return 0;
}
