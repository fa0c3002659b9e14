# Calls of every kind, on two stacks; test_stacks.py has how many instructions each function executes
# on each path.  What is before the label kernel is the user's.
	.macro	mark number
	jmp	0f
0:	nopl	(0x54570000 + \number)(%eax)
	jmp	0f
0:
	.endm
#include "multiboot.inc"
	movl	$on_interrupt, %eax
	movw	%ax, gates + 8 * 32
	movw	$8, gates + 8 * 32 + 2
	movw	$0x8e00, gates + 8 * 32 + 4
	shrl	$16, %eax
	movw	%ax, gates + 8 * 32 + 6
	lidt	gates_end
	lgdt	segments_end
	ljmp	$8, $loaded
	.balign	8
segments: .quad	0, 0x00cf9a000000ffff, 0x00cf92000000ffff
segments_end: .word 23
	.long	segments
gates_end: .word 8 * 40 - 1
	.long	gates
loaded:	movw	$16, %ax
	movw	%ax, %ds
	movw	%ax, %es
	movw	%ax, %ss
# A call, a call by a register, a jump to another function at the end; ten times.
	mark	1
	movl	$10, %ebx
0:	call	outer
	subl	$1, %ebx
	jnz	0b
# A call by way of what replaces its own return address.
	mark	2
	call	speculated
# A function that calls itself, three deep.
	mark	3
	movl	$3, %ebx
	call	deeper
# An interrupt below a function, with a call of its own.
	mark	4
	call	interrupted
# A call that throws away its return address, so that the next return is two up.
	mark	5
	call	leaving
# To another stack and back, in the middle of a function each.
	mark	6
	movl	$other_stack - 8, next
	movl	$other, other_stack - 4
	call	sleeper
# As a call of the system does: nothing is below it.
	mark	7
	pushl	$back
	jmp	system
back:	nop
	mark	0
	movb	$16, %al
	outb	%al, $0xf4
2:	jmp	2b

kernel:
outer:	nop
	nop
	call	inner
	nop
	jmp	tail
inner:	movl	$leaf, %eax
	call	*%eax
	ret
leaf:	nop
	nop
	ret
tail:	call	leaf
	nop
	ret
speculated: movl $leaf, %eax
	call	thunk
	nop
	ret
thunk:	call	1f
0:	pause
	jmp	0b
1:	movl	%eax, (%esp)
	ret
deeper:	subl	$1, %ebx
	jz	3f
	call	deeper
3:	ret
interrupted: nop
	int	$32
	nop
	ret
on_interrupt: nop
	call	leaf
	iret
leaving: nop
	call	middle
	nop
	call	leaf
	ret
middle:	nop
	call	thrower
	nop
	ret
thrower: addl	$4, %esp
	ret
sleeper: nop
	call	switch
	nop
	ret
switch:	pushl	%ebp
	movl	%esp, %eax
	xchgl	%eax, next
	movl	%eax, %esp
	popl	%ebp
	ret
other:	call	leaf
	call	switch
system:	call	leaf
	nop
	ret
ends:

	.section .bss
	.balign	16384
gates:	.skip	8 * 40
next:	.skip	4
	.balign	16384
	.skip	16384
stack:
	.skip	16384
other_stack:
