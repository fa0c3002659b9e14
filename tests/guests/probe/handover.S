# Two vCPUs that pass a lock on, ten times each way: as machine.S.  A PAUSE ends a vCPU's turn.
	.set	TRAMPOLINE, 0x8000
#include "multiboot.inc"
	movl	$real_mode, %esi
	movl	$TRAMPOLINE, %edi
	movl	$real_end - real_mode, %ecx
	rep movsb
	# INIT and two times SIPI to the other vCPU (Intel SDM 3, 9.4.4.1).
	movl	$0x000c4500, 0xfee00300
	call	a_while
	movl	$0x000c4608, 0xfee00300
	call	a_while
	movl	$0x000c4608, 0xfee00300
0:	pause
	cmpl	$1, up
	jne	0b
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

a_while:
	movl	$100000, %ecx
0:	subl	$1, %ecx
	jnz	0b
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

	.code16
real_mode:
	cli
	xorw	%ax, %ax
	movw	%ax, %ds
	lgdtl	TRAMPOLINE + table - real_mode
	movl	%cr0, %eax
	orl	$1, %eax
	movl	%eax, %cr0
	ljmpl	$8, $TRAMPOLINE + protected - real_mode
	.code32
protected:
	movw	$16, %ax
	movw	%ax, %ds
	movw	%ax, %es
	movw	%ax, %ss
	movl	$other_stack, %esp
	movl	$other, %eax
	jmp	*%eax
	.balign	8
entries:
	.quad	0, 0x00cf9a000000ffff, 0x00cf92000000ffff
table:	.word	23
	.long	TRAMPOLINE + entries - real_mode
real_end:

	.section .data
	.balign	64
	.globl	lock
lock:	.long	0
	.balign	64
up:	.long	0
round:	.long	0
tried:	.long	0
had:	.long	0
	.fill	4096
other_stack:
	.fill	4096
stack:
