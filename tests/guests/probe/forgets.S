# Pages of 4 KiB from 4 MiB on: many are read, the machine stops, and a page whose Accessed bit was
# cleared is read again after nine pages that a TLB of 256 entries keeps in the same place (eight of
# them are kept beside it).  Says the page's bit to the second serial port: 1 where it was forgotten.
#include "multiboot.inc"
	.set	FIRST, 0x400000
	.set	PAGES, 3072
	movl	$(tables + 7), directory
	movl	$(tables + 0x1007), directory + 4
	movl	$(tables + 0x2007), directory + 8
	movl	$(tables + 0x3007), directory + 12
	movl	$tables, %edi
	movl	$7, %eax
	movl	$4096, %ecx
0:	movl	%eax, (%edi)
	addl	$4096, %eax
	addl	$4, %edi
	subl	$1, %ecx
	jnz	0b
	movl	$directory, %eax
	movl	%eax, %cr3
	movl	%cr0, %eax
	orl	$0x80000000, %eax
	movl	%eax, %cr0
# As a boot does: the TLB grows at each flush that finds it full.
	movl	$20, %edx
1:	movl	$FIRST, %esi
	movl	$PAGES, %ecx
2:	movl	(%esi), %eax
	addl	$4096, %esi
	subl	$1, %ecx
	jnz	2b
	movl	%cr3, %eax
	movl	%eax, %cr3
	subl	$1, %edx
	jnz	1b
	movb	$1, %al
	movw	$0x505, %dx
	outb	%al, %dx
	movl	FIRST, %eax
	andl	$~0x20, tables + FIRST / 1024
	movl	$(FIRST + 256 * 4096), %esi
	movl	$9, %ecx
3:	movl	(%esi), %eax
	addl	$(256 * 4096), %esi
	subl	$1, %ecx
	jnz	3b
	movl	FIRST, %eax
	movl	tables + FIRST / 1024, %eax
	shrl	$5, %eax
	andl	$1, %eax
	movw	$0x2f8, %dx
	outb	%al, %dx
	movb	$16, %al
	movw	$0x501, %dx
	outb	%al, %dx
4:	jmp	4b

	.section .bss
	.balign	4096
directory:
	.fill	4096
tables:	.fill	4 * 4096
	.fill	4096
stack:
