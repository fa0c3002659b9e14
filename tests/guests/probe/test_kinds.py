"""What kinds an instruction is of, by its bytes; the words are those of ``llvm-mc``."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from guests import programs
from guests.probe import plugin
from results.profile import KINDS

SOURCE = plugin.HERE / "kinds.c"
L, S, A, B, D, Y = KINDS
X86_64: dict[str, tuple[str, ...]] = {
    "488b07 movq (%rdi), %rax": (L,),
    "488907 movq %rax, (%rdi)": (S,),
    "c60701 movb $1, (%rdi)": (S,),
    "b801000000 movl $1, %eax": (),
    "4889c3 movq %rax, %rbx": (),
    "488d4708 leaq 8(%rdi), %rax": (),
    "48830701 addq $1, (%rdi)": (L, S),
    "480307 addq (%rdi), %rax": (L,),
    "480107 addq %rax, (%rdi)": (L, S),
    "483907 cmpq %rax, (%rdi)": (L,),
    "483b07 cmpq (%rdi), %rax": (L,),
    "833f01 cmpl $1, (%rdi)": (L,),
    "f60701 testb $1, (%rdi)": (L,),
    "488507 testq %rax, (%rdi)": (L,),
    "4801c3 addq %rax, %rbx": (),
    "31c0 xorl %eax, %eax": (),
    "ff07 incl (%rdi)": (L, S),
    "ffc8 decl %eax": (),
    "48f71f negq (%rdi)": (L, S),
    "48f7d0 notq %rax": (),
    "48c12703 shlq $3, (%rdi)": (L, S),
    "480faf07 imulq (%rdi), %rax": (L,),
    "48f7e3 mulq %rbx": (),
    "48f7f3 divq %rbx": (D,),
    "f73f idivl (%rdi)": (L, D),
    "f20f5ec1 divsd %xmm1, %xmm0": (D,),
    "0f5e07 divps (%rdi), %xmm0": (L, D),
    "50 pushq %rax": (S,),
    "58 popq %rax": (L,),
    "ff37 pushq (%rdi)": (L, S),
    "8f07 popq (%rdi)": (L, S),
    "6a01 pushq $1": (S,),
    "9c pushfq": (S,),
    "9d popfq": (L,),
    "ffd0 callq *%rax": (S,),
    "ff17 callq *(%rdi)": (L, S),
    "ff27 jmpq *(%rdi)": (L,),
    "ffe0 jmpq *%rax": (),
    "c3 retq": (L,),
    "c9 leave": (L,),
    "a4 movsb": (L, S),
    "48ab stosq": (S,),
    "f348a5 rep movsq": (L, S),
    "f3aa rep stosb": (S,),
    "ac lodsb": (L,),
    "ae scasb": (L,),
    "a6 cmpsb": (L,),
    "0fb607 movzbl (%rdi), %eax": (L,),
    "486307 movslq (%rdi), %rax": (L,),
    "480f4507 cmovneq (%rdi), %rax": (L,),
    "0f9407 sete (%rdi)": (S,),
    "0f94c0 sete %al": (),
    "480fba2701 btq $1, (%rdi)": (L,),
    "480fba2f01 btsq $1, (%rdi)": (L, S),
    "480fbc07 bsfq (%rdi), %rax": (L,),
    "0fc8 bswapl %eax": (),
    "f3480fb807 popcntq (%rdi), %rax": (L,),
    "480f38f007 movbeq (%rdi), %rax": (L,),
    "480f38f107 movbeq %rax, (%rdi)": (S,),
    "480fc307 movnti %rax, (%rdi)": (S,),
    "f0480fb10f lock cmpxchgq %rcx, (%rdi)": (L, S, A),
    "480fb10f cmpxchgq %rcx, (%rdi)": (L, S),
    "3e480fb10f ds cmpxchgq %rcx, (%rdi)": (L, S, A),
    "f00fc107 lock xaddl %eax, (%rdi)": (L, S, A),
    "488707 xchgq %rax, (%rdi)": (L, S, A),
    "4893 xchgq %rax, %rbx": (),
    "f0ff07 lock incl (%rdi)": (L, S, A),
    "f0480fab07 lock btsq %rax, (%rdi)": (L, S, A),
    "f0480fc70f lock cmpxchg16b (%rdi)": (L, S, A),
    "65f0800f01 lock orb $1, %gs:(%rdi)": (L, S, A),
    "f0834424fc01 lock addl $1, -4(%rsp)": (L, S, A),
    "f0834424fc00 lock addl $0, -4(%rsp)": (L, S, B),
    "f0830c2400 lock orl $0, (%rsp)": (L, S, B),
    "0faef0 mfence": (B,),
    "0faee8 lfence": (B,),
    "0faef8 sfence": (B,),
    "3effe0 notrack jmpq *%rax": (),
    "3eff27 notrack jmpq *(%rdi)": (L,),
    "fa cli": (Y,),
    "fb sti": (Y,),
    "f4 hlt": (Y,),
    "ec inb %dx, %al": (Y,),
    "e6f4 outb %al, $0xf4": (Y,),
    "6c insb": (S, Y),
    "48cf iretq": (L, Y),
    "0f05 syscall": (Y,),
    "480f07 sysretq": (Y,),
    "cc int3": (Y,),
    "0f0b ud2": (Y,),
    "0fa2 cpuid": (Y,),
    "0f31 rdtsc": (Y,),
    "0f01f9 rdtscp": (Y,),
    "0f32 rdmsr": (Y,),
    "0f30 wrmsr": (Y,),
    "0f20d8 movq %cr3, %rax": (Y,),
    "0f22d8 movq %rax, %cr3": (Y,),
    "0f013f invlpg (%rdi)": (Y,),
    "0f01f8 swapgs": (Y,),
    "0f0117 lgdt (%rdi)": (Y,),
    "f3480faec8 rdgsbase %rax": (Y,),
    "660f388207 invpcid (%rdi), %rax": (Y,),
    "90 nop": (),
    "0f1f4008 nopl 8(%rax)": (),
    "f30f1efa endbr64": (),
    "0f180f prefetcht0 (%rdi)": (),
    "0f0d0f prefetchw (%rdi)": (),
    "0fae3f clflush (%rdi)": (),
    "0fae07 fxsave (%rdi)": (S,),
    "0fae0f fxrstor (%rdi)": (L,),
    "0fae17 ldmxcsr (%rdi)": (L,),
    "0fae1f stmxcsr (%rdi)": (S,),
    "0fae37 xsaveopt (%rdi)": (S,),
    "0fae2f xrstor (%rdi)": (L,),
    "0f1007 movups (%rdi), %xmm0": (L,),
    "0f1107 movups %xmm0, (%rdi)": (S,),
    "660f7f07 movdqa %xmm0, (%rdi)": (S,),
    "660f7e07 movd %xmm0, (%rdi)": (S,),
    "660fd607 movq %xmm0, (%rdi)": (S,),
    "f30f7e07 movq (%rdi), %xmm0": (L,),
    "660fefc0 pxor %xmm0, %xmm0": (),
    "660f3a160701 pextrd $1, %xmm0, (%rdi)": (S,),
    "660f380007 pshufb (%rdi), %xmm0": (L,),
    "c5fe6f07 vmovdqu (%rdi), %ymm0": (L,),
    "c5fe7f07 vmovdqu %ymm0, (%rdi)": (S,),
    "c5fa7e07 vmovq (%rdi), %xmm0": (L,),
    "c5fdefc0 vpxor %ymm0, %ymm0, %ymm0": (),
    "c4e37d390701 vextracti128 $1, %ymm0, (%rdi)": (S,),
    "c5f35e07 vdivsd (%rdi), %xmm1, %xmm0": (L, D),
    "c4e27d7807 vpbroadcastb (%rdi), %ymm0": (L,),
    "62f1fe487f07 vmovdqu64 %zmm0, (%rdi)": (S,),
    "dd07 fldl (%rdi)": (L,),
    "dd1f fstpl (%rdi)": (S,),
    "dc37 fdivl (%rdi)": (L, D),
    "de0f fimuls (%rdi)": (L,),
    "d93f fnstcw (%rdi)": (S,),
    "d92f fldcw (%rdi)": (L,),
    "ded9 fcompp": (),
}
ARM64: dict[str, tuple[str, ...]] = {
    "200040f9 ldr x0,[x1]": (L,),
    "200400f9 str x0,[x1,#8]": (S,),
    "e007c1a8 ldp x0,x1,[sp],#16": (L,),
    "fd7bbfa9 stp x29,x30,[sp,#-16]!": (S,),
    "20686238 ldrb w0,[x1,x2]": (L,),
    "20240078 strh w0,[x1],#2": (S,),
    "200080b9 ldrsw x0,[x1]": (L,),
    "2000c039 ldrsb w0,[x1]": (L,),
    "20d05ff8 ldur x0,[x1,#-3]": (L,),
    "20d01fb8 stur w0,[x1,#-3]": (S,),
    "80000058 ldr x0,#16": (L,),
    "2000c03d ldr q0,[x1]": (L,),
    "2000803d str q0,[x1]": (S,),
    "200000fd str d0,[x1]": (S,),
    "200040bd ldr s0,[x1]": (L,),
    "000400ad stp q0,q1,[x0]": (S,),
    "400440a8 ldnp x0,x1,[x2]": (L,),
    "0070404c ld1 {v0.16b},[x0]": (L,),
    "00709f4c st1 {v0.16b},[x0],#16": (S,),
    "0004400d ld1 {v0.b}[1],[x0]": (L,),
    "00c8404d ld1r {v0.4s},[x0]": (L,),
    "0008004c st4 {v0.4s,v1.4s,v2.4s,v3.4s},[x0]": (S,),
    "207c5fc8 ldxr x0,[x1]": (L,),
    "20fc5f88 ldaxr w0,[x1]": (L,),
    "417c00c8 stxr w0,x1,[x2]": (S, A),
    "41fc0088 stlxr w0,w1,[x2]": (S, A),
    "40047fc8 ldxp x0,x1,[x2]": (L,),
    "610820c8 stxp w0,x1,x2,[x3]": (S, A),
    "41fc0008 stlxrb w0,w1,[x2]": (S, A),
    "20fcdfc8 ldar x0,[x1]": (L,),
    "20fc9fc8 stlr x0,[x1]": (S,),
    "20c0bff8 ldapr x0,[x1]": (L,),
    "207cdfc8 ldlar x0,[x1]": (L,),
    "204040d9 ldapur x0,[x1,#4]": (L,),
    "204000d9 stlur x0,[x1,#4]": (S,),
    "417ca0c8 cas x0,x1,[x2]": (L, S, A),
    "41fce088 casal w0,w1,[x2]": (L, S, A),
    "827c2048 casp x0,x1,x2,x3,[x4]": (L, S, A),
    "417ce008 casab w0,w1,[x2]": (L, S, A),
    "410020f8 ldadd x0,x1,[x2]": (L, S, A),
    "4100e0b8 ldaddal w0,w1,[x2]": (L, S, A),
    "3f3020f8 stset x0,[x1]": (L, S, A),
    "418020f8 swp x0,x1,[x2]": (L, S, A),
    "4110e0f8 ldclral x0,x1,[x2]": (L, S, A),
    "000080f9 prfm pldl1keep,[x0]": (),
    "1168a1f8 prfm pstl1strm,[x0,x1]": (),
    "00f09ff8 prfum pldl1keep,[x0,#-1]": (),
    "800000d8 prfm pldl1keep,#16": (),
    "200420f8 ldraa x0,[x1]": (L,),
    "200840f8 ldtr x0,[x1]": (L,),
    "200800f8 sttr x0,[x1]": (S,),
    "bf3b03d5 dmb ish": (B,),
    "9f3f03d5 dsb sy": (B,),
    "9f3a03d5 dsb ishst": (B,),
    "df3f03d5 isb": (B,),
    "ff3003d5 sb": (B,),
    "5f3f03d5 clrex": (),
    "1f2003d5 nop": (),
    "3f2003d5 yield": (),
    "5f2003d5 wfe": (),
    "5f2403d5 hint #34": (),
    "5f2403d5 bti c": (),
    "3f2303d5 paciasp": (),
    "004138d5 mrs x0,sp_el0": (Y,),
    "df4203d5 msr daifset,#2": (Y,),
    "20421bd5 msr daif,x0": (Y,),
    "010000d4 svc #0": (Y,),
    "020000d4 hvc #0": (Y,),
    "200020d4 brk #1": (Y,),
    "e0039fd6 eret": (Y,),
    "208308d5 tlbi vae1is,x0": (Y,),
    "20740bd5 dc zva,x0": (Y,),
    "1f7508d5 ic iallu": (Y,),
    "2008c29a udiv x0,x1,x2": (D,),
    "200cc21a sdiv w0,w1,w2": (D,),
    "2018621e fdiv d0,d1,d2": (D,),
    "20fc226e fdiv v0.4s,v1.4s,v2.4s": (D,),
    "2018e21e fdiv h0,h1,h2": (D,),
    "2000028b add x0,x1,x2": (),
    "2020c29a lslv x0,x1,x2": (),
    "80000010 adr x0,#16": (),
    "04000094 bl #16": (),
    "c0035fd6 ret": (),
    "400000b4 cbz x0,#8": (),
    "2028621e fadd d0,d1,d2": (),
    "200c029b madd x0,x1,x2,x3": (),
    "209ca24e mul v0.4s,v1.4s,v2.4s": (),
    "20dc226e fmul v0.4s,v1.4s,v2.4s": (),
    "00001fd6 br x0": (),
    "20003fd6 blr x1": (),
    "200080d2 movz x0,#1": (),
    "e0030091 mov x0,sp": (),
    "2000829a csel x0,x1,x2,eq": (),
    "2040c21a crc32b w0,w1,w2": (),
}


def library(folder: Path, *flags: str) -> ctypes.CDLL:
    return ctypes.CDLL(str(programs.build(SOURCE, (*programs.SHARED_LIBRARY, *flags), folder)))


@pytest.fixture(scope="module", params=["x86-64", "arm64"])
def decoded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[ctypes.CDLL, dict[str, tuple[str, ...]]]:
    arm = request.param == "arm64"
    flags = ("-DPROBE_API=1", *(["-DPROBE_ARM64"] if arm else []))
    return library(tmp_path_factory.mktemp(request.param), *flags), ARM64 if arm else X86_64


def kinds(decoder: ctypes.CDLL, code: bytes) -> tuple[str, ...]:
    counts = (ctypes.c_uint16 * len(KINDS))()
    decoder.add_kinds(code, ctypes.c_size_t(len(code)), counts)
    assert set(counts) <= {0, 1}
    return tuple(kind for kind, count in zip(KINDS, counts, strict=True) if count)


def test_every_form_is_of_its_kinds(
    decoded: tuple[ctypes.CDLL, dict[str, tuple[str, ...]]],
) -> None:
    decoder, cases = decoded
    classified = {text: kinds(decoder, bytes.fromhex(text.partition(" ")[0])) for text in cases}
    assert classified == cases


def test_no_instruction_is_read_beyond_its_end(
    decoded: tuple[ctypes.CDLL, dict[str, tuple[str, ...]]],
) -> None:
    """QEMU 7.2 lists one that is in two pages with the bytes of the first page alone."""
    decoder, cases = decoded
    for text in cases:
        code = bytes.fromhex(text.partition(" ")[0])
        for size in range(len(code)):
            # What follows would be read as operands in memory.
            counts = (ctypes.c_uint16 * len(KINDS))()
            rest = (ctypes.c_uint16 * len(KINDS))()
            decoder.add_kinds(code[:size] + b"\x00" * 16, ctypes.c_size_t(size), counts)
            decoder.add_kinds(code[:size] + b"\xff" * 16, ctypes.c_size_t(size), rest)
            assert list(counts) == list(rest)
