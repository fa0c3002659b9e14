# Instructions of each kind, as machine.S: a phase's loop has so many of each.  A jump ends the block
# of each mark, which counts for the phase before it.
#include "multiboot.inc"
	movl	$word, %edi
	nopl	0x54570001(%eax)
	jmp	0f
0:	movl	$100, %ecx
	.globl	mixed
mixed:	movl	(%edi), %eax
	movl	%eax, 4(%edi)
	addl	$1, 8(%edi)
	lock addl $1, 8(%edi)
	# As the kernel of one CPU patches it.
	.byte	0x3e
	addl	$1, 8(%edi)
	xchgl	%eax, 12(%edi)
	lock addl $0, -4(%esp)
	cmpl	$7, 16(%edi)
	leal	20(%edi), %edx
	nopl	20(%edi)
	subl	$1, %ecx
	jnz	mixed
	nopl	0x54570000(%eax)
	jmp	0f
0:	nopl	0x54570002(%eax)
	jmp	0f
0:	movl	$50, %esi
	.globl	others
others:	movl	$9, %eax
	xorl	%edx, %edx
	movl	$3, %ebx
	divl	%ebx
	pushl	%eax
	popl	%eax
	mfence
	lfence
	cpuid
	movl	%cr0, %eax
	call	back
	subl	$1, %esi
	jnz	others
	nopl	0x54570000(%eax)
	jmp	0f
0:	movb	$16, %al
	outb	%al, $0xf4
2:	jmp	2b
back:	movl	$word, %edi
	ret
	.section .data
	.balign	64
word:	.fill	64
	.fill	4096
stack:
