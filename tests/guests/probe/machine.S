# A machine without a kernel: loads by multiboot, marks phases, loops, and switches off.
	.set	MAGIC, 0x1badb002
	.section .text
	.globl	_start
	.long	MAGIC, 0, -MAGIC
_start:
	movl	$5, %ecx
0:	decl	%ecx
	jnz	0b
	nopl	0x54570001(%eax)
	movl	$1000, %ecx
	.globl	first
first:	decl	%ecx
	jnz	first
	nopl	0x54570000(%eax)
	movl	$70, %ecx
1:	decl	%ecx
	jnz	1b
	nopl	0x54570002(%eax)
	nopl	0(%eax)
	movl	$300, %ecx
	.globl	second
second:	addl	$1, %eax
	decl	%ecx
	jnz	second
	nopl	0x54570000(%eax)
	nopl	0x54570003(%eax)
	movl	$200, %ecx
	jmp	third
	# The second instruction of the loop is in two pages.
	.balign	4096
	.skip	4094
	.globl	third
third:	incl	%eax
	addl	$1, %ebx
	decl	%ecx
	jnz	third
	nopl	0x54570000(%eax)
	movb	$16, %al
	outb	%al, $0xf4
2:	jmp	2b
