/*
 * Accesses of a block that one callback can stand for: those in a row whose addresses differ by
 * numbers that are known when the block is translated (x86-64 alone).
 *
 * PUSH, POP, CALL and RET move the stack's pointer by known steps, compilers reach the members of a
 * structure through one register, and what is addressed by the program counter is known itself.  So
 * each register is followed through a block as a symbol and a distance from it: an instruction that
 * copies a register or adds a constant keeps the symbol, any other that writes one makes a new one.
 * Two accesses by the same symbols, index and segment are a group where no access of others comes
 * between, and nothing that is counted by where it comes (ends_group() in probe.c).  An instruction
 * that is not known here is a group by itself, and all symbols are new behind it: LOCK, REP, vectors,
 * operands of two kinds, and what the machine itself does.
 *
 * The callback is that of the first access.  Where a later one faults, which is in another page then,
 * it was seen before its fault, and is seen again when the block goes on; so the models look whether
 * that page is there.  A page that a user's code reads may be one that it does not write yet (it is
 * copied first), so a store does not follow its loads in a group.
 *
 * No plugin is told whether code is of 64 bits.  Code of 32 bits lies below 4 GiB, and what lies
 * there is not grouped, but with the argument bits=64: all of the guest's code is of 64 bits.
 */
#include <string.h>

#include "plugin.h"

#define ABOVE_32_BITS (1ull << 32)
#define KERNEL_HALF (1ull << 63)
/* The numbers of what a group touches, from its first access on, fit into a byte each. */
#define NEAR 100

#define RAX 0u
#define RDX 2u
#define RSP 4u
#define RBP 5u
#define REGISTERS 16u
#define NO_INDEX REGISTERS

/* What a register holds.  Of a symbol nothing is known; CONSTANT is 0. */
#define CONSTANT 0u
struct value {
	uint32_t symbol;
	int64_t distance;
};

static bool is_wide, is_user;
static struct value registers[REGISTERS];
static uint32_t symbols;

/* An instruction, taken apart. */
enum prefix { WORD = 1, REPEATS = 2, WIDE = 4 };
struct parts {
	const uint8_t *end;
	unsigned int prefixes, rex, segment, map, opcode;
	/* Of the byte behind the opcode, and of what it addresses. */
	unsigned int field, reg, rm, index, scale;
	bool has_operand, in_memory;
	struct value base;
};

/* What an instruction does to registers, and how wide its operand is; 0 where it is not known. */
enum effect {
	KNOWN = 1, OPERAND = 2, BYTE = 4, OF_2 = 8, OF_4 = 16, OF_8 = 32, OF_16 = 64,
	SETS_REG = 128, SETS_RM = 256, SETS_RAX = 512, SETS_RDX = 1024
};

/* Where an instruction reads or writes memory. */
struct reach {
	uint32_t symbol, index;
	unsigned int scale, segment, bytes;
	int64_t at;
	bool loads, stores;
};

static void forget(unsigned int each)
{
	registers[each] = (struct value){ ++symbols, 0 };
}

static void forget_all(void)
{
	for (unsigned int each = 0; each < REGISTERS; each++)
		forget(each);
}

/* The signed number of 1 or 4 bytes at AT. */
static int64_t number_at(const uint8_t *at, unsigned int bytes)
{
	int32_t number;

	if (bytes == 1)
		return (int8_t)*at;
	memcpy(&number, at, sizeof(number));
	return number;
}

/* The operand that the byte at AT names, of an instruction that ends at BEHIND. */
static bool read_operand(struct parts *parts, const uint8_t *at, uint64_t behind)
{
	unsigned int mode, low, bytes;

	if (at >= parts->end)
		return false;
	mode = *at >> 6;
	low = *at & 7;
	parts->has_operand = true;
	parts->in_memory = mode != 3;
	parts->field = *at >> 3 & 7;
	parts->reg = parts->field | (parts->rex & 4) << 1;
	parts->rm = low | (parts->rex & 1) << 3;
	parts->index = NO_INDEX;
	parts->base = (struct value){ CONSTANT, 0 };
	if (!parts->in_memory)
		return true;
	at++;
	bytes = mode == 1 ? 1 : mode == 2 ? 4 : 0;
	if (low == 4) {
		if (at >= parts->end)
			return false;
		parts->index = (*at >> 3 & 7) | (parts->rex & 2) << 2;
		if (parts->index == RSP)
			parts->index = NO_INDEX;
		parts->scale = *at >> 6;
		if ((*at & 7) == 5 && mode == 0)
			bytes = 4;
		else
			parts->base = registers[(*at & 7) | (parts->rex & 1) << 3];
		at++;
	} else if (low == 5 && mode == 0) {
		bytes = 4;
		parts->base.distance = (int64_t)behind;
	} else {
		parts->base = registers[parts->rm];
	}
	if (bytes) {
		if (parts->end - at < (ptrdiff_t)bytes)
			return false;
		parts->base.distance += number_at(at, bytes);
	}
	return true;
}

static enum effect of_one_byte(unsigned int opcode, unsigned int field)
{
	/* Of pairs the even one is of bytes. */
	enum effect width = KNOWN | (opcode & 1 ? 0 : BYTE), operand = width | OPERAND;
	bool compares = opcode >= 0x38;

	switch (opcode) {
	case 0x00 ... 0x3f: /* eight operations of six forms each; the last compares */
		if ((opcode & 7) >= 6)
			return 0;
		if ((opcode & 7) >= 4)
			return width | (compares ? 0 : SETS_RAX);
		return operand | (compares ? 0 : (opcode & 7) < 2 ? SETS_RM : SETS_REG);
	case 0x50 ... 0x5f: case 0x68: case 0x6a: case 0x9c: case 0x9d: case 0xc3: case 0xc9: case 0xe8:
		return KNOWN | OF_8; /* of the stack */
	case 0x63:
		return KNOWN | OPERAND | OF_4 | SETS_REG;
	case 0x69: case 0x6b:
		return KNOWN | OPERAND | SETS_REG;
	case 0x70 ... 0x7f: case 0x90: case 0xe9: case 0xeb: case 0xf5: case 0xf8: case 0xf9: case 0xfc:
		return KNOWN; /* jumps, NOP, flags */
	case 0x80: case 0x81: case 0x83:
		return operand | (field == 7 ? 0 : SETS_RM);
	case 0x84: case 0x85:
		return operand;
	case 0x88: case 0x89: case 0xc0: case 0xc1: case 0xd0 ... 0xd3:
		return operand | SETS_RM;
	case 0x8a: case 0x8b:
		return operand | SETS_REG;
	case 0x8d:
		return KNOWN | OPERAND | SETS_REG;
	case 0x98:
		return KNOWN | SETS_RAX;
	case 0x99:
		return KNOWN | SETS_RDX;
	case 0xa8: case 0xa9:
		return KNOWN;
	case 0xb0 ... 0xbf:
		return KNOWN; /* the register is in the opcode */
	case 0xc6: case 0xc7:
		return field == 0 ? operand | SETS_RM : 0;
	case 0xf6: case 0xf7:
		return operand | (field < 2 ? 0 : field < 4 ? SETS_RM : SETS_RAX | SETS_RDX);
	case 0xfe:
		return field < 2 ? operand | SETS_RM : 0;
	case 0xff:
		return field < 2 ? operand | SETS_RM :
		       field == 2 || field == 4 ? KNOWN | OPERAND | OF_8 : 0;
	}
	return 0;
}

/* Of those behind 0f. */
static enum effect of_two_bytes(unsigned int opcode, unsigned int field, bool in_memory)
{
	switch (opcode) {
	case 0x0d: case 0x18: case 0x1f:
		return KNOWN | OPERAND; /* prefetches, NOP */
	case 0x10: case 0x11: case 0x28: case 0x29: case 0x6f: case 0x7f:
		return KNOWN | OPERAND | OF_16; /* MOVUPS, MOVAPS, MOVDQA, MOVDQU */
	case 0x1e:
		return in_memory ? 0 : KNOWN | OPERAND | SETS_RM; /* ENDBR64; RDSSP */
	case 0x40 ... 0x4f:
		return in_memory ? 0 : KNOWN | OPERAND | SETS_REG; /* CMOV */
	case 0x80 ... 0x8f: case 0xc8 ... 0xcf:
		return KNOWN; /* jumps; BSWAP, whose register is in the opcode */
	case 0x90 ... 0x9f:
		return KNOWN | OPERAND | BYTE | SETS_RM;
	case 0xa3:
		return in_memory ? 0 : KNOWN | OPERAND; /* in memory its register is an address, too */
	case 0xa4: case 0xa5: case 0xac: case 0xad:
		return KNOWN | OPERAND | SETS_RM;
	case 0xaf: case 0xb8: case 0xbc: case 0xbd:
		return KNOWN | OPERAND | SETS_REG;
	case 0xb6: case 0xbe:
		return KNOWN | OPERAND | BYTE | SETS_REG;
	case 0xb7: case 0xbf:
		return KNOWN | OPERAND | OF_2 | SETS_REG;
	case 0xba:
		return field < 4 ? 0 : KNOWN | OPERAND | (field == 4 ? 0 : SETS_RM);
	}
	return 0;
}

/* Where that prefix repeats nothing: RET, ENDBR64, counts of bits, MOVDQU. */
static bool may_repeat(const struct parts *parts)
{
	if (!parts->map)
		return parts->opcode == 0xc3;
	switch (parts->opcode) {
	case 0x1e: case 0x6f: case 0x7f: case 0xb8: case 0xbc: case 0xbd:
		return true;
	}
	return false;
}

/* What an instruction is, 0 where that is not known. */
static enum effect take_apart(struct parts *parts, const uint8_t *at, size_t size, uint64_t address)
{
	const uint8_t *const end = at + size;
	enum effect effect;

	*parts = (struct parts){ .end = end };
	for (;; at++) {
		if (at == end)
			return 0;
		if (*at == 0x66)
			parts->prefixes |= WORD;
		else if (*at == 0xf3)
			parts->prefixes |= REPEATS;
		else if (*at == 0x64 || *at == 0x65)
			parts->segment = *at;
		else if (*at != 0x26 && *at != 0x2e && *at != 0x36 && *at != 0x3e)
			break;
	}
	if ((*at & 0xf0) == 0x40) {
		parts->rex = *at++;
		parts->prefixes |= parts->rex & 8 ? WIDE : 0;
	}
	if (at < end && *at == 0x0f) {
		parts->map = 1;
		at++;
	}
	if (at == end)
		return 0;
	parts->opcode = *at++;
	/* Instructions without that byte do not read these. */
	if (at < end) {
		parts->field = *at >> 3 & 7;
		parts->in_memory = *at < 0xc0;
	}
	effect = parts->map ? of_two_bytes(parts->opcode, parts->field, parts->in_memory) :
			      of_one_byte(parts->opcode, parts->field);
	if (parts->prefixes & REPEATS && !may_repeat(parts))
		return 0;
	/* Without a prefix they are of 8 bytes. */
	if (parts->map && (parts->opcode & 0xef) == 0x6f && !(parts->prefixes & (REPEATS | WORD)))
		return 0;
	/* The stack in words of 16 bits. */
	if (parts->prefixes & WORD && effect & (OF_8 | OF_4))
		return 0;
	if (effect & OPERAND && !read_operand(parts, at, address + size))
		return 0;
	return effect;
}

/* Without REX registers 4 to 7 of a byte are the upper bytes of the first four. */
static unsigned int whole(const struct parts *parts, enum effect effect, unsigned int each)
{
	return effect & BYTE && !parts->rex && each < 8 ? each & 3 : each;
}

/* Instructions that keep a symbol, or make a constant; false for any other. */
static bool keep_symbol(const struct parts *parts)
{
	const bool in_register = parts->has_operand && !parts->in_memory;
	struct value *const reg = &registers[parts->reg], *const rm = &registers[parts->rm];

	if (parts->map || !(parts->prefixes & WIDE))
		return false;
	switch (parts->opcode) {
	case 0x05: /* ADD and SUB of a constant */
		registers[RAX].distance += number_at(parts->end - 4, 4);
		return true;
	case 0x2d:
		registers[RAX].distance -= number_at(parts->end - 4, 4);
		return true;
	case 0x81: case 0x83:
		if (!in_register || (parts->field != 0 && parts->field != 5))
			return false;
		rm->distance += (parts->field == 0 ? 1 : -1) *
				(parts->opcode == 0x81 ? number_at(parts->end - 4, 4) :
							 number_at(parts->end - 1, 1));
		return true;
	case 0xff: /* INC, DEC */
		if (!in_register || parts->field > 1)
			return false;
		rm->distance += parts->field == 0 ? 1 : -1;
		return true;
	case 0x89:
		if (in_register)
			*rm = *reg;
		return in_register;
	case 0x8b:
		if (in_register)
			*reg = *rm;
		return in_register;
	case 0x8d:
		if (in_register || parts->index != NO_INDEX)
			return false;
		*reg = parts->base;
		return true;
	case 0xc7:
		if (in_register)
			*rm = (struct value){ CONSTANT, number_at(parts->end - 4, 4) };
		return in_register;
	}
	return false;
}

static struct reach by_value(struct value value, unsigned int bytes, unsigned int kinds)
{
	return (struct reach){ .symbol = value.symbol, .at = value.distance, .bytes = bytes,
			       .loads = kinds >> LOAD & 1, .stores = kinds >> STORE & 1 };
}

/*
 * Follow an instruction whose only accesses are those of REACH, without bytes where it makes
 * none; false for any other, of which nothing is known.
 */
static bool follow(const uint8_t *bytes, size_t size, uint64_t address, struct reach *reach)
{
	unsigned int kinds = kinds_mask(bytes, size), opcode, low, width;
	enum effect effect;
	struct parts parts;

	*reach = (struct reach){ 0 };
	if (kinds & ~(1u << LOAD | 1u << STORE))
		return false;
	effect = take_apart(&parts, bytes, size, address);
	if (effect == 0)
		return false;
	opcode = parts.map << 8 | parts.opcode;
	low = (opcode & 7) | (parts.rex & 1) << 3;
	switch (opcode) {
	case 0x50 ... 0x57: case 0x68: case 0x6a: case 0x9c: case 0xe8:
		registers[RSP].distance -= 8;
		*reach = by_value(registers[RSP], 8, kinds);
		return true;
	case 0x58 ... 0x5f: case 0x9d: case 0xc3:
		*reach = by_value(registers[RSP], 8, kinds);
		registers[RSP].distance += 8;
		if (opcode >> 3 == 0x58 >> 3)
			forget(low);
		return true;
	case 0xc9: /* LEAVE */
		*reach = by_value(registers[RBP], 8, kinds);
		registers[RSP] = registers[RBP];
		registers[RSP].distance += 8;
		forget(RBP);
		return true;
	case 0xff:
		if (parts.field == 2) {
			/* A call through memory reads that before it writes the stack. */
			if (parts.in_memory)
				return false;
			registers[RSP].distance -= 8;
			*reach = by_value(registers[RSP], 8, kinds);
			return true;
		}
		break;
	case 0x90:
		/* With REX it exchanges registers. */
		return !(parts.rex & 1);
	case 0xb0 ... 0xb7:
		forget(parts.rex ? low : low & 3);
		return true;
	case 0xb8 ... 0xbf: case 0x1c8 ... 0x1cf:
		forget(low);
		/* 32 bits that fill a register of 64. */
		if (!parts.map && !(parts.prefixes & (WORD | WIDE)))
			registers[low] = (struct value){ CONSTANT,
							 (uint32_t)number_at(parts.end - 4, 4) };
		return true;
	}
	width = effect & BYTE ? 1 : effect & OF_2 ? 2 : effect & OF_4 ? 4 : effect & OF_16 ? 16 :
		effect & OF_8 || parts.prefixes & WIDE ? 8 : parts.prefixes & WORD ? 2 : 4;
	if (parts.has_operand && parts.in_memory && kinds) {
		*reach = by_value(parts.base, width, kinds);
		reach->segment = parts.segment;
		if (parts.index != NO_INDEX) {
			const struct value index = registers[parts.index];

			reach->index = index.symbol;
			reach->scale = index.symbol == CONSTANT ? 0 : parts.scale;
			reach->at += index.distance * (1 << parts.scale);
		}
	}
	if (kinds && reach->bytes == 0)
		return false;
	if (keep_symbol(&parts))
		return true;
	if (effect & SETS_REG)
		forget(opcode >> 4 == 0x1b ? parts.reg : whole(&parts, effect, parts.reg));
	if (effect & SETS_RM && !parts.in_memory)
		forget(whole(&parts, effect, parts.rm));
	if (effect & SETS_RAX)
		forget(RAX);
	if (effect & SETS_RDX)
		forget(RDX);
	return true;
}

bool is_called_again(enum again again, qemu_plugin_meminfo_t info, uint64_t address, uint64_t *half)
{
	if (again == TO_STORE)
		return qemu_plugin_mem_is_store(info);
	if (qemu_plugin_mem_size_shift(info) > 3)
		return false;
	if (address == *half) {
		*half = UINT64_MAX;
		return true;
	}
	*half = address + 8;
	return false;
}

int groups_argument(const char *argument)
{
	if (strncmp(argument, "bits=", 5))
		return 0;
	is_wide = strcmp(argument + 5, "64") == 0;
	return is_wide ? 1 : -1;
}

static bool add_access(struct group *group, int64_t distance, unsigned int bytes, bool stores)
{
	const int64_t last = distance + bytes - 1;

#if PROBE_API == 1
	/* Before 8.1 QEMU reads and writes no more at once. */
	if (bytes > 8)
		return add_access(group, distance, 8, stores) &&
		       add_access(group, distance + 8, bytes - 8, stores);
#endif
	if (group->count == MAX_ACCESSES || distance < -NEAR || last > NEAR)
		return false;
	group->accesses[group->count++] = (struct access){ distance, bytes, stores };
	if (distance < group->low)
		group->low = distance;
	if (last > group->high)
		group->high = last;
	return true;
}

/* Add what an instruction reaches; false where it does not belong to the group. */
static bool add_reach(struct group *group, const struct reach *first, const struct reach *reach)
{
	const struct group before = *group;

	if (reach->symbol != first->symbol || reach->index != first->index ||
	    reach->scale != first->scale || reach->segment != first->segment ||
	    (group->user_loads && reach->stores))
		return false;
	group->user_loads |= is_user && reach->loads;
	if ((!reach->loads || add_access(group, reach->at - first->at, reach->bytes, false)) &&
	    (!reach->stores || add_access(group, reach->at - first->at, reach->bytes, true)))
		return true;
	*group = before;
	return false;
}

size_t groups_of(struct qemu_plugin_tb *tb, size_t count, size_t counted,
		 const struct group **groups)
{
	static struct group *kept;
	static size_t room;
#ifdef PROBE_ARM64
	const bool may_group = false;
#else
	const bool may_group = is_wide || qemu_plugin_tb_vaddr(tb) >= ABOVE_32_BITS;
#endif
	struct group *open = NULL;
	struct reach first;
	uint8_t bytes[MAX_BYTES];
	size_t used = 0;

	if (count > room) {
		room = count;
		kept = more(kept, room, sizeof(*kept));
	}
	is_user = qemu_plugin_tb_vaddr(tb) < KERNEL_HALF;
	symbols = CONSTANT;
	forget_all();
	for (size_t i = 0; i < count; i++) {
		const struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		const uint64_t address = qemu_plugin_insn_vaddr(insn);
		const size_t size = bytes_of(insn, bytes);
		struct reach reach;

		/* What counts by itself (probe.c) is listed with a part of its bytes. */
		if (!may_group || i >= counted || !follow(bytes, size, address, &reach)) {
			kept[used++] = (struct group){ .first = i };
			open = NULL;
			forget_all();
			continue;
		}
		if (reach.bytes && is_user && reach.loads && reach.stores) {
			kept[used++] = (struct group){ .first = i };
			open = NULL;
		} else if (reach.bytes == 0) {
#if PROBE_API == 1
			/*
			 * QEMU 7.2 leaves callbacks in force, for what the next interrupt stores, behind
			 * one that ends its block in a helper, until another that calls helpers has
			 * callbacks of its own.
			 */
			kept[used++] = (struct group){ .first = i };
#endif
		} else if (open == NULL || !add_reach(open, &first, &reach)) {
			open = &kept[used++];
			*open = (struct group){ .first = i };
			first = reach;
			open->again = reach.bytes > 8 ? OF_HALVES :
				      reach.loads && reach.stores ? TO_STORE : NEVER;
			add_reach(open, &first, &reach);
		}
		if (ends_group(address, bytes, size))
			open = NULL;
	}
	*groups = kept;
	return used;
}
