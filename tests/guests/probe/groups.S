# A machine in long mode whose accesses come in groups (guests/probe/groups.c); what each phase misses
# is in test_groups.py.
#include "long.inc"
#include "multiboot.inc"
	.code32
	map_pages
# Ten pages that are not there, and ten that may not be written, each behind one that is and may.
	movl	$10, %ecx
	movl	$(small + 8 * 0x101), %edi
0:	andl	$~1, (%edi)
	andl	$~2, 8 * 0x40(%edi)
	addl	$16, %edi
	subl	$1, %ecx
	jnz	0b
	movl	$on_fault, %eax
	movw	%ax, gates + 16 * 14
	movw	$8, gates + 16 * 14 + 2
	movw	$0x8e00, gates + 16 * 14 + 4
	shrl	$16, %eax
	movw	%ax, gates + 16 * 14 + 6
	lidt	gates_end
	enter_long_mode long
	.macro	mark number
	jmp	0f
0:	nopl	(0x54570000 + \number)(%rax)
	jmp	0f
0:
	.endm
	.code64
long:	movl	$(stack + 4096), %esp
	.set	ROUNDS, 100
# Members of one line, each way of writing them down; a line of its own each round.
	mark	1
	movl	$(LARGE + 0x100000), %esi
	movl	$ROUNDS, %ecx
1:	movl	(%rsi), %eax
	movq	%rsi, %rbx
	addq	$16, %rbx
	movq	%rax, (%rbx)
	movb	%al, -9(%rbx)
	leaq	8(%rbx), %rdx
	addl	$1, (%rdx)
	incq	%rdx
	movzwl	1(%rdx), %eax
	movups	15(%rdx), %xmm0
	movups	%xmm0, (%rsi)
	addq	$64, %rsi
	subl	$1, %ecx
	jnz	1b
# Two lines, and a word that is in both.
	mark	2
	movl	$(LARGE + 0x200000), %esi
	movl	$ROUNDS, %ecx
2:	movq	48(%rsi), %rax
	movq	60(%rsi), %rax
	movq	72(%rsi), %rax
	movups	56(%rsi), %xmm0
	addq	$128, %rsi
	subl	$1, %ecx
	jnz	2b
# The stack, which is another one each round: of 12 words that are in two lines, and one more below.
	mark	3
	movl	$(LARGE + 0x300000 + 32), %ebp
	movl	$ROUNDS, %edx
3:	movq	%rsp, %rdi
	movq	%rbp, %rsp
	pushq	%rax
	pushq	$1
	pushq	%rbx
	pushq	%rcx
	pushfq
	call	4f
	subq	$-1, %rdx
	popfq
	popq	%rcx
	popq	%rbx
	popq	%rax
	popq	%rax
	movq	%rdi, %rsp
	addq	$256, %rbp
	subq	$1, %rdx
	jnz	3b
	jmp	5f
4:	pushq	%rbp
	movq	%rsp, %rbp
	subq	$64, %rsp
	movq	%rax, (%rsp)
	movq	%rax, -8(%rbp)
	subq	$1, %rdx
	leave
	ret
# A register that is written between: a chain of words, each a line and 8 bytes behind the one before.
5:	mark	4
	movl	$(LARGE + 0x400000), %esi
	movl	$ROUNDS, %ecx
6:	leaq	72(%rsi), %rax
	movq	%rax, (%rsi)
	movq	%rax, %rsi
	subl	$1, %ecx
	jnz	6b
	movl	$(LARGE + 0x400000), %esi
	movl	$ROUNDS, %ecx
	mark	5
7:	movq	(%rsi), %rsi
	movq	8(%rsi), %rax
	movl	%esi, %eax
	movq	16(%rax), %rbx
	subl	$1, %ecx
	jnz	7b
# An index that stays, one that is written, and a table by its own address.
	mark	6
	movl	$(LARGE + 0x500000), %esi
	movl	$ROUNDS, %ecx
	xorl	%ebx, %ebx
8:	movl	(%rsi,%rbx,4), %eax
	movl	8(%rsi,%rbx,4), %eax
	addq	$16, %rbx
	movl	(%rsi,%rbx,4), %eax
	movl	LARGE + 0x580000(,%rbx,4), %eax
	movl	LARGE + 0x580004(,%rbx,4), %eax
	subl	$1, %ecx
	jnz	8b
# By the program counter, and by a number.
	mark	7
	movl	words(%rip), %eax
	movl	words + 4(%rip), %eax
	movl	words + 64(%rip), %eax
	movl	$words, %esi
	movl	68(%rsi), %eax
	movl	LARGE + 0x700000, %eax
	movl	$(LARGE + 0x700000), %edi
	movl	8(%rdi), %eax
# Ten groups whose second half is on a page that is not there; then ten on one that may not be written.
	mark	8
	movl	$(SMALL + 0x101000), %esi
	movl	$10, %ecx
9:	nop
	movq	-8(%rsi), %rax
	movq	(%rsi), %rax
	movq	8(%rsi), %rax
	addq	$8192, %rsi
	subl	$1, %ecx
	jnz	9b
	mark	9
	movl	$(SMALL + 0x141000), %esi
	movl	$10, %ecx
10:	nop
	movq	%rax, -8(%rsi)
	movq	%rax, (%rsi)
	addq	$8192, %rsi
	subl	$1, %ecx
	jnz	10b
# What is missed while a lock is held: one line of three each round, far enough apart to be no stream.
	mark	10
	movl	$(LARGE + 0x600000), %esi
	movl	$ROUNDS, %ebp
11:	movl	$lock, %edi
	.globl	site, take, ends
site:	call	take
	movl	(%rsi), %eax
	movl	4(%rsi), %eax
	movb	$0, (%rdi)
	movl	64(%rdi), %eax
	movb	$0, 128(%rsi)
	movl	320(%rsi), %eax
	addq	$512, %rsi
	subl	$1, %ebp
	jnz	11b
	mark	0
	movb	$16, %al
	outb	%al, $0xf4
12:	jmp	12b
take:	xorl	%eax, %eax
	movl	$1, %edx
	lock cmpxchgl %edx, (%rdi)
	ret
ends:
# The page is there from now on, and may be written.
on_fault: pushq	%rax
	movq	%cr2, %rax
	shrl	$12, %eax
	andl	$511, %eax
	movl	$small, %r9d
	orb	$3, (%r9,%rax,8)
	movq	%cr2, %rax
	invlpg	(%rax)
	popq	%rax
	addq	$8, %rsp
	iretq

	tables
gates_end: .word 16 * 15 - 1
	.long	gates
	.balign	64
words:	.fill	192
lock:	.long	0
	.fill	124
	.section .bss
	.balign	4096
gates:	.skip	4096
stack:	.skip	4096
