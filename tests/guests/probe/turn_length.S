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
	movl	%ebp, %eax
	movl	$4, %ecx
0:	outb	%al, $0xe9
	shrl	$8, %eax
	subl	$1, %ecx
	jnz	0b
	movb	$16, %al
	outb	%al, $0xf4
2:	jmp	2b

other:	movl	$1, up
0:	jmp	0b
