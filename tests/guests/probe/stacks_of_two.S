# Calls on two vCPUs that take turns in the middle of functions, and a task that goes on on the other
# one; as stacks.S.  A PAUSE ends a vCPU's turn.
	.macro	mark number
	jmp	0f
0:	nopl	(0x54570000 + \number)(%eax)
	jmp	0f
0:
	.endm
#include "second.inc"
#include "multiboot.inc"
	start_other
	movl	$first_stack, %esp
# Ten calls on either vCPU.
	mark	1
	movl	$1, step
	movl	$10, %ebx
0:	call	ours
	subl	$1, %ebx
	jnz	0b
1:	pause
	cmpl	$2, step
	jne	1b
# This task leaves the first vCPU in the middle of a function, and the second one has it next.
	mark	2
	movl	$left, third_stack - 4
	movl	$third_stack - 8, next
	call	sleeper
	movl	$4, step
1:	pause
	jmp	1b
# The first vCPU, on another stack.
left:	movl	$3, step
1:	pause
	cmpl	$4, step
	jne	1b
	mark	0
	movb	$16, %al
	outb	%al, $0xf4
2:	jmp	2b

other:	movl	$second_stack, %esp
	movl	$1, up
1:	pause
	cmpl	$1, step
	jne	1b
	movl	$10, %ebx
0:	call	theirs
	subl	$1, %ebx
	jnz	0b
	movl	$2, step
1:	pause
	cmpl	$3, step
	jne	1b
	call	resumer

kernel:
ours:	nop
	pause
	call	leaf
	pause
	ret
theirs:	pause
	call	leaf
	nop
	pause
	nop
	ret
leaf:	nop
	nop
	ret
sleeper: nop
	call	switch
	nop
	ret
resumer: nop
	call	switch
switch:	pushl	%ebp
	movl	%esp, %eax
	xchgl	%eax, next
	movl	%eax, %esp
	popl	%ebp
	ret
ends:

	.section .bss
	.balign	64
step:	.skip	64
next:	.skip	64
	.balign	16384
	.skip	16384
first_stack:
	.skip	16384
second_stack:
	.skip	16384
third_stack:
