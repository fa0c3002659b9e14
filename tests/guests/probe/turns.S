# Two vCPUs: one has the machine's memory laid out anew again and again, of which QEMU frees what was
# before, and says at the end how far the other one had come each time: as machine.S.
#include "second.inc"
#include "multiboot.inc"
	.set	ROUNDS, 3000
	start_other
	# The byte at 0x5a of the host bridge says what is read and written at 0xc0000 (82441FX, PAM1).
	movl	$0x80000058, %eax
	movw	$0xcf8, %dx
	outl	%eax, %dx
	movl	$ROUNDS, %esi
	xorl	%ebp, %ebp
	xorl	%ebx, %ebx
again:	xorb	$0x33, %bl
	movb	%bl, %al
	movw	$0xcfe, %dx
	outb	%al, %dx
	movl	$300, %ecx
0:	subl	$1, %ecx
	jnz	0b
	imull	$33, %ebp
	addl	count, %ebp
	subl	$1, %esi
	jnz	again
	say_and_end %ebp

other:	movl	$1, up
0:	addl	$1, count
	jmp	0b

	.section .data
	.balign	64
count:	.long	0
