/* steps START END PROGRAM ...: the addresses in [START, END) that a program executes, in order. */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	unsigned long start = strtoul(argv[1], NULL, 16), end = strtoul(argv[2], NULL, 16), at;
	struct user_regs_struct regs;
	struct iovec io = { &regs, sizeof(regs) };
	pid_t child = fork();
	int status;

	(void)argc;
	if (child == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		execv(argv[3], argv + 3);
		_exit(127);
	}
	for (waitpid(child, &status, 0); WIFSTOPPED(status); waitpid(child, &status, 0)) {
		io.iov_len = sizeof(regs);
		ptrace(PTRACE_GETREGSET, child, NT_PRSTATUS, &io);
#ifdef __x86_64__
		at = regs.rip;
#else
		at = regs.pc;
#endif
		if (at >= start && at < end)
			printf("%lx\n", at);
		ptrace(PTRACE_SINGLESTEP, child, 0, 0);
	}
	return WEXITSTATUS(status);
}
