# A machine whose locks are held for as many instructions as are written here: as machine.S.
#include "multiboot.inc"
	nopl	0x54570001(%eax)
# Fifty times the same, for two instructions of the function and five of this.
	movl	$50, %ecx
0:	movl	$first, %edi
	.globl	loop
loop:	call	take
	nop
	nop
	nop
	nop
	nop
	movb	$0, (%edi)
	decl	%ecx
	jnz	0b
# Nested, and let go of in the order they were taken: 8 and 4.
	movl	$first, %edi
	.globl	outer
outer:	call	take
	movl	$second, %edi
	.globl	inner
inner:	call	take
	movb	$0, first
	nop
	movb	$0, second
# A lock that is held is not taken by who only tries, and other bytes of it are no lock: 6.
	movl	$first, %edi
	.globl	tried
tried:	call	take
	movb	$0, 1(%edi)
	call	try
	movb	$0, (%edi)
# Two readers at a time: 9 and 3.
	movl	$shared, %edi
	.globl	one
one:	call	share
	.globl	two
two:	call	share
	movl	$-0x200, %eax
	lock xaddl %eax, (%edi)
	movl	$-0x200, %eax
	lock xaddl %eax, (%edi)
# Found held, which is a wait, then let go of by a function: 10.
	movl	$mutex, %edi
	.globl	slept
slept:	call	sleep
	.globl	woken
woken:	call	sleep
	call	unlock
	movl	$first, %edi
	.globl	earlier
earlier: call	nap
	movb	$0, (%edi)
# Held from one phase to the next.
	movl	$second, %edi
	.globl	across
across:	call	take
	nopl	0x54570002(%eax)
	movl	$300, %ecx
1:	decl	%ecx
	jnz	1b
	movb	$0, (%edi)
	nopl	0x54570000(%eax)
	movb	$16, %al
	outb	%al, $0xf4
2:	jmp	2b
	.globl	take, nap, share, sleep, unlock, switch, ends
take:	xorl	%eax, %eax
	movl	$1, %edx
	lock cmpxchgl %edx, (%edi)
	ret
try:	cmpl	$0, (%edi)
	ret
share:	movl	$0x200, %eax
	lock xaddl %eax, (%edi)
	ret
sleep:	xorl	%eax, %eax
	lock cmpxchgl %edx, (%edi)
	ret
unlock:	movl	$1, %eax
	xorl	%edx, %edx
	lock cmpxchgl %edx, (%edi)
	ret
nap:	call	switch
	xorl	%eax, %eax
	movl	$1, %edx
	lock cmpxchgl %edx, (%edi)
	ret
switch:	pushl	%edi
	xchgl	%esp, sleeper
	popl	%edi
	ret
ends:
# The other task begins here, with the other stack.
task:	movl	$second, %edi
	.globl	later
later:	call	nap
	.section .data
sleeper: .long	born

	.globl	first, second, shared, mutex
first:	.long	0
second:	.long	0
shared:	.long	0
mutex:	.long	0
	.balign	0x4000
	.fill	0x4000 - 8
born:	.long	0, task
	.fill	0x4000 - 8
stack:
