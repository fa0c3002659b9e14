/*
 * What kinds an instruction is of, by its bytes alone: loads, stores, atomics, barriers, divisions
 * and system instructions.  Times how often a block was entered, which the probe counts anyway,
 * they are counted without anything that runs with the guest.
 *
 * An instruction is of each kind at most once: one that reads and writes memory is a load and a
 * store, a locked one an atomic besides.  Addresses that are only computed, and hints that fetch,
 * are none.  Sources: Intel 64 and IA-32 Architectures Software Developer's Manual 325383, volume 2,
 * appendix A (opcode maps); Arm Architecture Reference Manual DDI 0487, C4.1.
 *
 * x86-64: with one vCPU the kernel patches its LOCK prefixes to DS, which no compiler writes before an
 * instruction that reads and writes memory: both are atomics, since the kernel of more CPUs
 * executes them.  A locked addition of 0 to the stack is how the kernel writes smp_mb(): a barrier,
 * and no atomic.  A REP instruction counts once for each time that QEMU executes it, which is for
 * each element.
 *
 * arm64: of an exclusive pair the store is the atomic.  Loads that acquire and stores that release
 * are loads and stores.
 */
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

#define IS(kind) (1u << (kind))
#define READS IS(LOAD)
#define WRITES IS(STORE)
#define CHANGES (READS | WRITES)

#ifdef PROBE_ARM64

static unsigned int of_memory(uint32_t word)
{
	unsigned int opc = word >> 22 & 3, size = word >> 30;
	unsigned int by_l = word & 1u << 22 ? READS : WRITES;
	bool vector = word & 1u << 26;

	switch (word >> 24 & 0x3b) {
	case 0x08: /* exclusives, ordered accesses, compare and swap; with bit 26 vectors */
		if (vector)
			return by_l;
		if (word & 1u << 21 && (word & 1u << 23 || size < 2))
			return CHANGES | IS(ATOMIC); /* CAS, CASP */
		if (word & 1u << 23 || word & 1u << 22)
			return by_l;
		return WRITES | IS(ATOMIC); /* STXR */
	case 0x09: /* single structures of vectors; else tags, copies, unscaled and ordered */
		if (vector)
			return by_l;
		return word & 1u << 10 ? CHANGES : opc ? READS : WRITES;
	case 0x18:
	case 0x19:
		if (word >> 24 & 1) /* LDAPUR, STLUR and their like */
			return word >> 10 & 3 ? CHANGES : opc ? READS : WRITES;
		return !vector && size == 3 ? 0 : READS; /* of the program counter; PRFM */
	case 0x28:
	case 0x29:
		return by_l; /* pairs */
	}
	if ((word & 1u << 24) == 0 && word & 1u << 21 && (word >> 10 & 3) == 0 && !vector) {
		bool ordered_load = (word >> 12 & 15) == 12;

		return ordered_load ? READS : CHANGES | IS(ATOMIC); /* LDAPR; LSE */
	}
	if ((word & 1u << 24) == 0 && word & 1u << 21 && word >> 10 & 1)
		return READS; /* LDRAA */
	if (vector)
		return opc & 1 ? READS : WRITES;
	if (size == 3 && opc == 2)
		return 0; /* PRFM */
	return opc ? READS : WRITES;
}

unsigned int kinds_mask(const uint8_t *bytes, size_t size)
{
	uint32_t word;

	if (size != sizeof(word))
		return 0;
	memcpy(&word, bytes, sizeof(word));
	if ((word & 0x0a000000) == 0x08000000)
		return of_memory(word);
	/* DSB, DMB, ISB, SB. */
	if ((word & 0xfffff09f) == 0xd503309f)
		return IS(BARRIER);
	if ((word & 0xfffff0ff) == 0xd50330df || (word & 0xfffff0ff) == 0xd50330ff)
		return IS(BARRIER);
	/* Hints and CLREX; then MSR, MRS, SYS, exceptions, ERET. */
	if ((word & 0xfffff000) == 0xd5032000 || (word & 0xfffff0ff) == 0xd503305f)
		return 0;
	if ((word & 0xffc00000) == 0xd5000000 || (word & 0xff000000) == 0xd4000000 ||
	    (word & 0xffff0000) == 0xd69f0000)
		return IS(OF_SYSTEM);
	/* UDIV, SDIV; FDIV of scalars and of vectors. */
	if ((word & 0x7fe0f800) == 0x1ac00800 || (word & 0xff20fc00) == 0x1e201800 ||
	    (word & 0xbfa0fc00) == 0x2e20fc00)
		return IS(DIVISION);
	return 0;
}

#else

enum prefix { LOCK = 1, DS = 2, WORD = 4, REPNE = 8, REP = 16 };

/* Of the one-byte opcodes: their memory operand's use, or that of the stack. */
static unsigned int of_one_byte(unsigned int opcode, unsigned int reg, bool memory)
{
	unsigned int use = memory ? READS : 0;
	unsigned int change = memory ? CHANGES : 0;

	if (opcode < 0x40) /* eight operations of six forms each; the last compares */
		return (opcode & 7) < 2 ? opcode < 0x38 ? change : use : (opcode & 7) < 4 ? use : 0;
	switch (opcode) {
	case 0x50 ... 0x57: case 0x68: case 0x6a: case 0x9c: case 0xc8: case 0xe8:
		return WRITES; /* PUSH, PUSHF, ENTER, CALL */
	case 0x58 ... 0x5f: case 0x9d: case 0xc2: case 0xc3: case 0xc9: case 0xca: case 0xcb:
		return READS; /* POP, POPF, RET, LEAVE */
	case 0x6c: case 0x6d:
		return WRITES | IS(OF_SYSTEM); /* INS */
	case 0x6e: case 0x6f: case 0xcf:
		return READS | IS(OF_SYSTEM); /* OUTS, IRET */
	case 0x80 ... 0x83:
		return reg == 7 ? use : change;
	case 0x86: case 0x87:
		return memory ? CHANGES | IS(ATOMIC) : 0; /* XCHG locks by itself */
	case 0x88: case 0x89: case 0x8c: case 0xc6: case 0xc7:
		return memory ? WRITES : 0;
	case 0x63: case 0x69: case 0x6b: case 0x84: case 0x85: case 0x8a: case 0x8b: case 0x8e:
		return use;
	case 0x8f:
		return READS | (memory ? WRITES : 0); /* POP to memory */
	case 0xa0: case 0xa1: case 0xa6: case 0xa7: case 0xac ... 0xaf: case 0xd7:
		return READS; /* offsets; CMPS, LODS, SCAS, XLAT */
	case 0xa2: case 0xa3: case 0xaa: case 0xab:
		return WRITES; /* offsets; STOS */
	case 0xa4: case 0xa5:
		return CHANGES; /* MOVS */
	case 0xc0: case 0xc1: case 0xd0 ... 0xd3:
		return change;
	case 0xcc ... 0xce: case 0xe4 ... 0xe7: case 0xec ... 0xef: case 0xf1: case 0xf4:
	case 0xfa: case 0xfb:
		return IS(OF_SYSTEM); /* INT, IN, OUT, HLT, CLI, STI */
	case 0xd8: case 0xda: case 0xdc: case 0xde:
		return use | (reg >= 6 ? IS(DIVISION) : 0);
	case 0xd9: case 0xdb: case 0xdd: case 0xdf:
		return !memory ? 0 : reg == 0 || reg == 4 || reg == 5 ? READS : WRITES;
	case 0xf6: case 0xf7:
		return (reg == 2 || reg == 3 ? change : use) | (reg >= 6 ? IS(DIVISION) : 0);
	case 0xfe:
		return change;
	case 0xff:
		if (reg < 2)
			return change;
		return (reg < 7 ? use : 0) | (reg == 2 || reg == 3 || reg == 6 ? WRITES : 0);
	}
	return 0;
}

/* Of those behind 0f. */
static unsigned int of_two_bytes(unsigned int opcode, unsigned int reg, bool memory,
				 unsigned int prefixes)
{
	unsigned int use = memory ? READS : 0;
	unsigned int change = memory ? CHANGES : 0;

	switch (opcode) {
	case 0x00: case 0x01: case 0x05 ... 0x09: case 0x0b: case 0x20 ... 0x23:
	case 0x30 ... 0x35: case 0xa2:
		return IS(OF_SYSTEM); /* descriptors, SYSCALL, UD2, MOV CR, WRMSR, RDTSC, CPUID ... */
	case 0x0d: case 0x18 ... 0x1f: case 0x77: case 0x80 ... 0x8f: case 0xc8 ... 0xcf:
		return 0; /* prefetches, NOP, jumps, BSWAP */
	case 0x11: case 0x13: case 0x17: case 0x29: case 0x2b: case 0x7f: case 0xc3: case 0xd6:
	case 0xe7: case 0x90 ... 0x9f:
		return memory ? WRITES : 0; /* MOVUPS, MOVAPS, MOVNTI, MOVQ, SETcc ... */
	case 0x7e:
		return !memory ? 0 : prefixes & REP ? READS : WRITES;
	case 0x5e:
		return use | IS(DIVISION);
	case 0xa0: case 0xa8: case 0xf7:
		return WRITES; /* PUSH FS, MASKMOVQ */
	case 0xa1: case 0xa9:
		return READS;
	case 0xa4: case 0xa5: case 0xac: case 0xad: case 0xab: case 0xb0: case 0xb1: case 0xb3:
	case 0xbb: case 0xc0: case 0xc1:
		return change; /* SHLD, SHRD, BTS, CMPXCHG, BTR, BTC, XADD */
	case 0xba:
		return reg == 4 ? use : change;
	case 0xae:
		if (memory)
			return reg == 1 || reg == 2 || reg == 5 ? READS : reg == 7 ? 0 : WRITES;
		if (prefixes & (REP | WORD | REPNE))
			return reg < 4 ? IS(OF_SYSTEM) : 0; /* RDFSBASE and its like */
		return reg >= 5 ? IS(BARRIER) : 0;
	case 0xc7:
		return !memory ? 0 : reg == 1 ? CHANGES : reg == 3 || reg == 6 ? READS : WRITES;
	}
	return use;
}

/* Behind 0f 38 and 0f 3a. */
static unsigned int of_three_bytes(unsigned int map, unsigned int opcode, bool memory, bool vex,
				   unsigned int prefixes)
{
	bool stores;

	if (map == 2 && !vex && opcode >= 0x80 && opcode <= 0x82)
		return IS(OF_SYSTEM); /* INVEPT, INVVPID, INVPCID */
	if (map == 2)
		stores = vex ? opcode == 0x2e || opcode == 0x2f || opcode == 0x8e :
			       opcode == 0xf9 || (opcode == 0xf1 && !(prefixes & REPNE));
	else
		stores = (opcode >= 0x14 && opcode <= 0x17) ||
			 (vex && (opcode == 0x19 || opcode == 0x1d || opcode == 0x39));
	return !memory ? 0 : stores ? WRITES : READS;
}

/* ADD or OR of 0 to what the stack's pointer is next to. */
static bool is_full_barrier(const uint8_t *at, const uint8_t *end)
{
	return end - at >= 4 && at[0] == 0x83 && (at[1] & 0x38) <= 8 && (at[1] & 7) == 4 &&
	       at[2] == 0x24 && end[-1] == 0;
}

unsigned int kinds_mask(const uint8_t *at, size_t size)
{
	const uint8_t *end = at + size;
	unsigned int prefixes = 0, map = 0, opcode, reg, mask;
	bool memory, vex = false, locked;

	for (; at < end; at++) {
		if (*at == 0xf0)
			prefixes |= LOCK;
		else if (*at == 0x3e)
			prefixes |= DS;
		else if (*at == 0x66)
			prefixes |= WORD;
		else if (*at == 0xf2)
			prefixes |= REPNE;
		else if (*at == 0xf3)
			prefixes |= REP;
		else if (*at != 0x26 && *at != 0x2e && *at != 0x36 && *at != 0x64 && *at != 0x65 &&
			 *at != 0x67)
			break;
	}
	if (at < end && (*at & 0xf0) == 0x40)
		at++;
	locked = prefixes & (LOCK | DS);
	if (locked && is_full_barrier(at, end))
		return CHANGES | IS(BARRIER);
	if (end - at >= 3 && *at == 0xc5) {
		vex = true;
		map = 1;
		prefixes |= (at[1] & 3) == 2 ? REP : 0;
		at += 2;
	} else if (end - at >= 4 && *at == 0xc4) {
		vex = true;
		map = at[1] & 31;
		prefixes |= (at[2] & 3) == 2 ? REP : 0;
		at += 3;
	} else if (end - at >= 5 && *at == 0x62) {
		vex = true;
		map = at[1] & 7;
		prefixes |= (at[2] & 3) == 2 ? REP : 0;
		at += 4;
	} else if (end - at >= 2 && *at == 0x0f) {
		at++;
		map = 1;
		if (end - at >= 2 && (*at == 0x38 || *at == 0x3a))
			map = *at++ == 0x38 ? 2 : 3;
	}
	if (at >= end)
		return 0;
	opcode = *at++;
	/* Opcodes without the byte that names operands do not read these. */
	memory = at < end && *at < 0xc0;
	reg = at < end ? *at >> 3 & 7 : 0;
	mask = map == 0 ? of_one_byte(opcode, reg, memory) :
	       map == 1 ? of_two_bytes(opcode, reg, memory, prefixes) :
			  of_three_bytes(map, opcode, memory, vex, prefixes);
	if (locked && !vex && (mask & CHANGES) == CHANGES && memory && opcode != 0xff)
		mask |= IS(ATOMIC);
	/* INC and DEC; calls and pushes of memory are never locked. */
	if (locked && map == 0 && opcode == 0xff && reg < 2 && memory)
		mask |= IS(ATOMIC);
	return mask;
}

#endif

void add_kinds(const uint8_t *bytes, size_t size, uint16_t kinds[KINDS_COUNTED])
{
	unsigned int mask = kinds_mask(bytes, size);

	for (unsigned int kind = 0; kind < KINDS_COUNTED; kind++)
		kinds[kind] += mask >> kind & 1;
}
