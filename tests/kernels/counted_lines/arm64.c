/* An arm64 machine without a kernel: a stack, main("work", ROUNDS), and power off. */
int main(int argc, char **argv);

/* What atoi() is, with libc's headers, in optimised code. */
long strtol(const char *text, char **end, int base)
{
	long value = 0;

	(void)end;
	while (*text)
		value = value * base + *text++ - '0';
	return value;
}

void begin(void)
{
	char *words[] = { "work", ROUNDS, 0 };

	main(2, words);
	/* SYSTEM_OFF of PSCI */
	__asm__ volatile("ldr w0, =0x84000008\n\thvc #0" ::: "x0");
}

__asm__(".globl _start\n_start: adrp x0, _start\n\tmov sp, x0\n\tb begin");
