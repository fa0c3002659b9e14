# A lock that is let go of unseen, and one that has waiters and no holder: as machine.S.
#include "multiboot.inc"
	movl	$lock, %edi
	nopl	0x54570001(%eax)
	.globl	owner
owner:	call	take
	.globl	waiter
waiter:	call	take
	movb	$0, (%edi)
	# An exchange in vain, since a bit of the word is set.
	movl	$0x100, vain
	movl	$vain, %edi
	.globl	queued
queued:	call	take
	call	slow
	nop
	movb	$0, (%edi)
	nopl	0x54570000(%eax)
	movb	$16, %al
	outb	%al, $0xf4
2:	jmp	2b
#include "spinlock.inc"
	.section .data
	.globl	lock
lock:	.long	0
vain:	.long	0
	.fill	4096
stack:
