# A machine in long mode whose blocks are left in their middle: by page faults and a division, by
# instructions that trap, by accesses to a device (the local APIC), and by interrupts behind these.
# Each phase has a number of instructions that is written in test_interruptions.py.
	.set	SMALL, 0x40000000
	.set	LARGE, 0x1000000
	.macro	gate number, to
	movl	$\to, %eax
	movw	%ax, table + 16 * \number
	movw	$8, table + 16 * \number + 2
	movw	$0x8e00, table + 16 * \number + 4
	shrl	$16, %eax
	movw	%ax, table + 16 * \number + 6
	.endm
# A mark ends its block, so that each phase has all of its own and nothing else.
	.macro	mark number
	jmp	0f
0:	nopl	(0x54570000 + \number)(%rax)
	jmp	0f
0:
	.endm
#include "multiboot.inc"
	.code32
	movl	$(third + 7), top
	movl	$(large + 7), third
	movl	$(middle + 7), third + 8
	movl	$(devices + 7), third + 24
	movl	$(small + 7), middle
	movl	$0xfee00187, devices + 8 * 503
# 1 GiB of large pages; 512 small ones from LARGE on, none of them there. Each begins with an address.
	movl	$large, %edi
	movl	$0x187, %eax
	movl	$512, %ecx
0:	movl	%eax, (%edi)
	addl	$0x200000, %eax
	addl	$8, %edi
	subl	$1, %ecx
	jnz	0b
	movl	$small, %edi
	movl	$(LARGE + 6), %eax
	movl	$512, %ecx
1:	movl	%eax, (%edi)
	movl	$behind, -6(%eax)
	addl	$4096, %eax
	addl	$8, %edi
	subl	$1, %ecx
	jnz	1b
	gate	0, on_division
	gate	3, on_trap
	gate	6, on_illegal
	gate	14, on_fault
	gate	32, on_interrupt
	lidt	table_end
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
	lgdt	segments_end
	ljmp	$8, $long
	.balign	8
segments: .quad	0, 0x00209a0000000000, 0x00cf92000000ffff
segments_end: .word 23
	.long	segments
table_end: .word 16 * 40 - 1
	.long	table

	.code64
long:	movl	$SMALL, %esi
# A load in the middle of its block, ten pages that are not there.
	mark	1
	movl	$10, %ecx
	jmp	middles
	.globl	middles, middle_load
middles: nop
	nop
middle_load: movl (%rsi), %eax
	addq	$4096, %rsi
	subl	$1, %ecx
	jnz	middles
# The last instruction of its block.
	mark	2
	movl	$10, %ecx
	jmp	lasts
	.globl	lasts, last_jump
lasts:	nop
	nop
last_jump: jmp	*(%rsi)
behind:	addq	$4096, %rsi
	subl	$1, %ecx
	jnz	lasts
# The first one.
	mark	3
	movl	$10, %ecx
	jmp	firsts
	.globl	firsts
firsts:	movl	(%rsi), %eax
	addq	$4096, %rsi
	subl	$1, %ecx
	jnz	firsts
# Instructions that trap, and that divide by zero.
	mark	4
	xorl	%ebx, %ebx
	movl	$1, %eax
	xorl	%edx, %edx
	nop
	.globl	trap, illegal, division
trap:	int3
	nop
illegal: ud2
	nop
division: divl	%ebx
	nop
# A device's register, read in the middle of a block.
	mark	5
	movl	$0xfee00000, %edi
	movl	$10, %ecx
	jmp	reads
reads:	nop
	movl	0x30(%rdi), %eax
	nop
	subl	$1, %ecx
	jnz	reads
# Interrupts that the vCPU sends to itself: they come behind the instruction.
	mark	6
	movl	$0x1ff, 0xf0(%rdi)
	sti
	movl	$10, %ecx
	jmp	sends
	.globl	sends, sent
sends:	nop
	movl	$0x40020, 0x300(%rdi)
sent:	nop
	subl	$1, %ecx
	jnz	sends
	cli
# A string instruction counts each of its elements; the eleventh is on a page that is not there.
	mark	7
	movl	$(SMALL + 4096 * 101 - 80), %edi
	movl	$(small + 8 * 100), %eax
	orb	$1, (%rax)
	movl	$20, %ecx
	cld
	jmp	strings
	.globl	strings
strings: rep stosq
	nop
# A lock that is held over a fault.
	mark	8
	movl	$lock, %edi
	.globl	holder, held_load
holder:	call	take
	nop
held_load: movl	(%rsi), %eax
	nop
	movb	$0, (%rdi)
	mark	0
	movb	$16, %al
	outb	%al, $0xf4
2:	jmp	2b
	.globl	take, ends
take:	xorl	%eax, %eax
	movl	$1, %edx
	lock cmpxchgl %edx, (%rdi)
	ret
ends:
# Ten instructions.
	.globl	on_fault, on_trap, on_illegal, on_division, on_interrupt
on_fault: pushq	%rax
	movq	%cr2, %rax
	shrl	$12, %eax
	andl	$511, %eax
	movl	$small, %r9d
	orb	$1, (%r9,%rax,8)
	popq	%rax
	addq	$8, %rsp
	nop
	iretq
on_trap: iretq
on_illegal: addq $2, (%rsp)
	iretq
on_division: addl $1, %ebx
	iretq
on_interrupt: movl $0xfee000b0, %r8d
	movl	$0, (%r8)
	iretq

	.section .data
lock:	.long	0

	.section .bss
	.balign	4096
top:	.skip	4096
third:	.skip	4096
large:	.skip	4096
middle:	.skip	4096
small:	.skip	4096
devices: .skip	4096
table:	.skip	4096
	.skip	4096
stack:
