# Two vCPUs in long mode that take turns at lines, as in lines.S, which each accesses in a group
# (guests/probe/groups.c); test_groups.py has what moves.
	.set	ROUNDS, 50
#include "long.inc"
#include "second.inc"
#include "multiboot.inc"
	.code32
	map_pages
	start_other
	enter_long_mode long
other:	enter_long_mode other_long
	.code64
	.macro	phase number, first, second
	nopl	(0x54570000 + \number)(%rax)
	movl	$\second, work(%rip)
	movl	$ROUNDS, %ebp
0:	call	\first
	call	pass
	subl	$1, %ebp
	jnz	0b
	nopl	0x54570000(%rax)
	.endm
long:	phase	1, read_and_write, read_and_write
	phase	2, write_and_read, read_twice
	phase	3, two_lines, two_lines
	phase	4, two_pages, two_pages
	phase	5, on_the_stack, on_the_stack
	phase	6, locked, read_twice
	movb	$16, %al
	outb	%al, $0xf4
2:	jmp	2b

	.globl	pass, waits, other_waits, other_passes
pass:	movl	$1, turn(%rip)
waits:	pause
	cmpl	$0, turn(%rip)
	jne	waits
	ret
other_long: movl $other_stack, %esp
	movl	$1, up(%rip)
other_waits:
	pause
	cmpl	$1, turn(%rip)
	jne	other_waits
	movl	work(%rip), %eax
	call	*%rax
other_passes:
	movl	$0, turn(%rip)
	jmp	other_waits

	.globl	read_and_write, write_and_read, read_twice, two_lines, two_pages, on_the_stack, locked
read_and_write:
	movl	$words, %edi
	movl	(%rdi), %eax
	movl	8(%rdi), %ecx
	movl	%eax, 16(%rdi)
	ret
write_and_read:
	movl	$words, %edi
	movl	%eax, 16(%rdi)
	movl	8(%rdi), %ecx
	addl	$1, (%rdi)
	ret
read_twice:
	movl	$words, %edi
	movl	32(%rdi), %eax
	movups	(%rdi), %xmm0
	ret
two_lines:
	movl	$(words + 64), %edi
	movl	56(%rdi), %eax
	movl	64(%rdi), %eax
	movq	%rax, 60(%rdi)
	movl	8(%rdi), %eax
	ret
# Translations are forgotten each time, so that neither page is known.
two_pages:
	movq	%cr3, %rax
	movq	%rax, %cr3
	movl	$(SMALL + 0x5000), %edi
	movl	-8(%rdi), %eax
	movl	%eax, 8(%rdi)
	movl	%eax, -4(%rdi)
	ret
on_the_stack:
	movq	%rsp, %rdi
	movl	$(SMALL + 0x9010), %esp
	pushq	%rax
	pushq	%rbx
	pushq	%rcx
	popq	%rcx
	popq	%rbx
	popq	%rax
	movq	%rdi, %rsp
	ret
locked:	movl	$words, %edi
	movl	(%rdi), %eax
	lock addl $1, 8(%rdi)
	movl	%eax, 16(%rdi)
	ret

	tables
	.balign	64
turn:	.long	0
	.balign	64
work:	.long	0
	.balign	64
words:	.fill	256
