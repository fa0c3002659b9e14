# Two vCPUs that pass a lock on, ten times each way: as machine.S.  A PAUSE ends a vCPU's turn.
#include "second.inc"
#include "multiboot.inc"
	start_other
	nopl	0x54570001(%eax)
	movl	$lock, %edi
	movl	$10, %esi
	.globl	owner, second
owner:	call	take
	call	hold
	movl	$lock, %edi
second:	call	take
	call	hold
	subl	$1, %esi
	jnz	owner
	nopl	0x54570000(%eax)
	movb	$16, %al
	outb	%al, $0xf4
2:	jmp	2b

# Let the other one find the lock held, let go of it, and wait until it has had it.
hold:	movl	round, %ebx
	addl	$1, %ebx
	movl	%ebx, round
0:	pause
	cmpl	%ebx, tried
	jne	0b
	movl	$lock, %edi
	movb	$0, (%edi)
0:	pause
	cmpl	%ebx, had
	jne	0b
	ret

other:	movl	$1, up
	xorl	%ebp, %ebp
	movl	$lock, %edi
again:	addl	$1, %ebp
0:	pause
	cmpl	%ebp, round
	jne	0b
	.globl	waiter
waiter:	call	take
	movl	%ebp, tried
0:	pause
	cmpb	$0, (%edi)
	jne	0b
	call	slow
	nop
	nop
	movb	$0, (%edi)
	movl	%ebp, had
	jmp	again

#include "spinlock.inc"

	.section .data
	.balign	64
	.globl	lock
lock:	.long	0
	.balign	64
round:	.long	0
tried:	.long	0
had:	.long	0
