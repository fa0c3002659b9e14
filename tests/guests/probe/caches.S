# A machine that reads lines in orders whose misses are known: as machine.S.
	.set	MAGIC, 0x1badb002
	.set	LINES, 0x1000000
# PASSES times, each STRIDE-th byte of COUNT; every phase has a buffer of its own.
	.macro	phase number, count, stride, passes
	nopl	(0x54570000 + \number)(%eax)
	movl	$\passes, %edx
0:	movl	$(LINES + \number * 0x400000), %esi
	movl	$\count, %ecx
1:	movl	(%esi), %eax
	addl	$\stride, %esi
	decl	%ecx
	jnz	1b
	decl	%edx
	jnz	0b
	nopl	0x54570000(%eax)
	.endm
	.section .text
	.globl	_start
	.long	MAGIC, 0, -MAGIC
_start:
	phase	1, 96, 64, 10
	phase	2, 192, 64, 10
	phase	3, 512, 64, 10
	phase	4, 2048, 64, 3
# A line in each of so many pages, as a chase of pointers has them: no stream.
	phase	5, 192, 4160, 2
# Backwards, one page, from its last line.
	nopl	0x54570006(%eax)
	movl	$(LINES + 6 * 0x400000 + 4032), %esi
	movl	$64, %ecx
2:	movl	(%esi), %eax
	subl	$64, %esi
	decl	%ecx
	jnz	2b
	nopl	0x54570000(%eax)
# The same word over and over, and one that is in two lines.
	nopl	0x54570007(%eax)
	movl	$(LINES + 7 * 0x400000), %esi
	movl	$100, %ecx
3:	movl	62(%esi), %eax
	decl	%ecx
	jnz	3b
	nopl	0x54570000(%eax)
	movb	$16, %al
	outb	%al, $0xf4
4:	jmp	4b
