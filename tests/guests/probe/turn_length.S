# Two vCPUs that never wait: one says how long at most the other one's turns kept it from reading the
# time, in ns; as turns.S.
#include "second.inc"
#include "multiboot.inc"
	start_other
	movl	$200000, %esi
	xorl	%ebp, %ebp
	rdtsc
	movl	%eax, %ebx
again:	rdtsc
	movl	%eax, %ecx
	subl	%ebx, %eax
	movl	%ecx, %ebx
	cmpl	%ebp, %eax
	jbe	0f
	movl	%eax, %ebp
0:	subl	$1, %esi
	jnz	again
	say_and_end %ebp

other:	movl	$1, up
0:	jmp	0b
