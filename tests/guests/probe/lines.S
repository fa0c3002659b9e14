# Two vCPUs that take turns at words whose lines move known numbers of times, ROUNDS times a phase: each
# phase is a piece of work for either.  A PAUSE ends a vCPU's turn.
	.set	ROUNDS, 50
#include "second.inc"
#include "multiboot.inc"
	start_other
# The work of a phase for each of them; the word that passes the turn on has a line of its own.
	.macro	phase number, first, second
	nopl	(0x54570000 + \number)(%eax)
	movl	$\second, work
	movl	$ROUNDS, %esi
0:	call	\first
	call	pass
	subl	$1, %esi
	jnz	0b
	nopl	0x54570000(%eax)
	.endm
	phase	1, nothing, nothing
	phase	2, add_first, add_second
	phase	3, write_first, read_far
	phase	4, add_first, add_apart
	phase	5, lock_first, lock_again
	movb	$16, %al
	outb	%al, $0xf4
2:	jmp	2b

	.globl	pass, waits, other_waits, other_passes
pass:	movl	$1, turn
waits:	pause
	cmpl	$0, turn
	jne	waits
	ret

other:	movl	$1, up
other_waits:
	pause
	cmpl	$1, turn
	jne	other_waits
	movl	work, %eax
	call	*%eax
other_passes:
	movl	$0, turn
	jmp	other_waits

	.globl	add_first, add_second, write_first, read_far, add_apart, lock_first, lock_again
nothing: ret
add_first:
	addl	$1, words
	ret
add_second:
	addl	$1, words + 4
	ret
write_first:
	movl	%esi, words
	ret
read_far:
	movl	words + 32, %eax
	ret
add_apart:
	addl	$1, words + 64
	ret
lock_first:
	lock addl $1, words + 128
	ret
lock_again:
	lock addl $1, words + 128
	ret

	.section .data
	.balign	64
turn:	.long	0
	.balign	64
work:	.long	0
	.balign	64
words:	.fill	256
