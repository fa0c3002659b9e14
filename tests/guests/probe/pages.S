# A machine in long mode that reads a word of each page: 4 KiB pages from 1 GiB on, which are not
# global, and 2 MiB pages, which are, below.  Both map the same memory.
	.set	MAGIC, 0x1badb002
	.set	SMALL, 0x40000000
	.set	LARGE, 0x1000000
	.macro	phase number, from, pages, passes
	nopl	(0x54570000 + \number)(%rax)
	movl	$\passes, %edx
0:	movl	$\from, %esi
	movl	$\pages, %ecx
1:	movl	(%rsi), %eax
	addq	$4096, %rsi
	decl	%ecx
	jnz	1b
	decl	%edx
	jnz	0b
	nopl	0x54570000(%rax)
	.endm
	.section .text
	.globl	_start
	.long	MAGIC, 0, -MAGIC
	.code32
_start:
	movl	$(third + 7), top
	movl	$(large + 7), third
	movl	$(middle + 7), third + 8
	movl	$(small + 7), middle
# 1 GiB of large pages, present, writable, global; 512 small ones from LARGE on.
	movl	$large, %edi
	movl	$0x187, %eax
	movl	$512, %ecx
0:	movl	%eax, (%edi)
	addl	$0x200000, %eax
	addl	$8, %edi
	decl	%ecx
	jnz	0b
	movl	$small, %edi
	movl	$(LARGE + 7), %eax
	movl	$512, %ecx
1:	movl	%eax, (%edi)
	addl	$4096, %eax
	addl	$8, %edi
	decl	%ecx
	jnz	1b
	movl	%cr4, %eax
	orl	$0xa0, %eax
	movl	%eax, %cr4
	movl	$top, %eax
	movl	%eax, %cr3
	movl	$0xc0000080, %ecx
	rdmsr
	orl	$0x100, %eax
	wrmsr
	movl	%cr0, %eax
	orl	$0x80000000, %eax
	movl	%eax, %cr0
	lgdt	gdt_end
	ljmp	$8, $long
	.balign	8
gdt:	.quad	0, 0x00209a0000000000
gdt_end:
	.word	15
	.long	gdt
	.code64
long:
	phase	1, SMALL, 48, 10
	phase	2, SMALL, 96, 10
	phase	3, SMALL, 256, 10
	phase	4, LARGE, 256, 10
# After a write of CR3 small pages are gone, large ones (global) are not.
	phase	5, SMALL, 8, 1
	movq	%cr3, %rax
	movq	%rax, %cr3
	phase	6, SMALL, 8, 1
	movq	%cr3, %rax
	movq	%rax, %cr3
	phase	7, LARGE, 8, 1
# INVLPG of a page that stays, then of one that moves.
	phase	8, SMALL, 8, 1
	invlpg	SMALL
	phase	9, SMALL, 8, 1
	movl	$small, %edi
	movl	$(LARGE + 0x100000 + 7), (%rdi)
	invlpg	SMALL
	phase	10, SMALL, 8, 1
# New pages, with a lock held, with two, and with none: first outside of any phase, for the code.
	movl	$stack, %esp
	movl	$2, %ebp
	movl	$(SMALL + 0x100000), %esi
again:	movl	$first, %edi
	.globl	outer
outer:	call	take
	movl	$16, %ecx
	call	read
	movl	$second, %edi
	.globl	inner
inner:	call	take
	movl	$8, %ecx
	call	read
	movb	$0, (%rdi)
	movl	$first, %edi
	movb	$0, (%rdi)
	movl	$4, %ecx
	call	read
	decl	%ebp
	jz	done
	nopl	0x5457000b(%rax)
	jmp	again
done:	nopl	0x54570000(%rax)
	movb	$16, %al
	outb	%al, $0xf4
2:	jmp	2b
	.globl	take, read, ends
take:	xorl	%eax, %eax
	movl	$1, %edx
	lock cmpxchgl %edx, (%rdi)
	ret
read:	movl	(%rsi), %eax
	addq	$4096, %rsi
	decl	%ecx
	jnz	read
	ret
ends:
	.section .bss
	.balign	4096
	.skip	64
first:	.skip	64
second:	.skip	64
	.skip	256
stack:
	.balign	4096
	.globl	top
top:	.skip	4096
third:	.skip	4096
large:	.skip	4096
middle:	.skip	4096
small:	.skip	4096
