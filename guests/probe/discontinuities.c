/*
 * Interrupts, exceptions and calls of the host, and the blocks that are left before their end:
 * by an exception, and by an access to a device, which QEMU (-icount) makes again in a block of
 * its own, uncounted.  probe.c has counted such a block whole when it began; here its rest is
 * taken back, so that instructions are those of the guest's clock.
 *
 * From API 7 on, and on x86-64; before, nothing is known of either.
 *
 * Each vCPU has a word that says which block it is in, and whether it has come to the block's last
 * instruction.  Where a block begins while the one before has not come to its end, it was left: where
 * this one begins is how far it came.  Blocks that cannot be left before their last
 * instruction are at their end from the beginning.  With one vCPU the translated code writes the word, and calls
 * where it has to; with several everything is a call (probe.c).
 *
 * QEMU 11.1 calls for an exception of x86 twice: when it is raised, with both addresses alike (those
 * of some instruction before), then as an interrupt when it is delivered, with the right ones.
 *
 * An instruction that traps (INT3, UD2) counts as executed, as it does for the guest's clock; one
 * that faults counts when it is executed again.
 */
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

#if PROBE_API < 7 || defined(PROBE_ARM64)

bool discontinuities_begin(qemu_plugin_id_t id, unsigned int vcpus)
{
	(void)id;
	(void)vcpus;
	return false;
}

void discontinuities_watch(struct qemu_plugin_tb *tb, struct block *block, size_t count)
{
	(void)tb;
	(void)block;
	(void)count;
}

void discontinuities_mark(uint32_t phase)
{
	(void)phase;
}

const struct interruption *discontinuities_rows(size_t *count)
{
	*count = 0;
	return NULL;
}

#else

/* Of instructions that fault or that access devices; and the smallest pages. */
#define MAY_LEAVE (1u << LOAD | 1u << STORE | 1u << DIVISION | 1u << OF_SYSTEM)
#define PAGE_BYTES 4096
/* Added to the code a vCPU is in: it has come to the last instruction.  No pointer is as large. */
#define ENDED (1ull << 63)

/* An instruction: how far from the block's beginning, its kinds (kinds.c), and whether it traps. */
struct step {
	uint16_t offset;
	uint8_t kinds, traps;
};

/* What a block was translated from.  Blocks are known by less: programs share addresses. */
static struct code {
	struct block *block;
	uint64_t address;
	size_t count;
	struct step steps[];
} **codes; /* open addressing by content */
static size_t codes_used, codes_room;

/* The word of the only vCPU, NULL with several. */
static qemu_plugin_u64 only;
/* Of each vCPU: the word of one of several; an exception was raised, and is to be delivered. */
static struct course {
	uint64_t word;
	bool raised;
} *courses;

/* Those of the phase so far, open addressing by what they are; and those of phases before. */
static struct interruption *events, *written;
static size_t event_count, event_room, written_count;

static size_t code_slot(const struct code *code)
{
	const size_t size = code->count * sizeof(*code->steps);
	uint64_t key = (uintptr_t)code->block;
	size_t slot;

	for (size_t i = 0; i < code->count; i++)
		key = (key ^ code->steps[i].offset) * 0x9e3779b97f4a7c15u;
	for (slot = (key ^ key >> 32) & (codes_room - 1); codes[slot];
	     slot = (slot + 1) & (codes_room - 1))
		if (codes[slot]->block == code->block && codes[slot]->count == code->count &&
		    memcmp(codes[slot]->steps, code->steps, size) == 0)
			break;
	return slot;
}

static struct code *kept(struct code *code)
{
	const size_t size = sizeof(*code) + code->count * sizeof(*code->steps);
	size_t slot;

	if (codes_used * 2 >= codes_room) {
		struct code **old = codes;
		size_t old_room = codes_room;

		codes_room = old_room ? old_room * 2 : 1 << 16;
		codes = more(NULL, codes_room, sizeof(*codes));
		memset(codes, 0, codes_room * sizeof(*codes));
		for (size_t i = 0; i < old_room; i++)
			if (old[i])
				codes[code_slot(old[i])] = old[i];
		free(old);
	}
	slot = code_slot(code);
	if (codes[slot] == NULL) {
		codes[slot] = memcpy(more(NULL, 1, size), code, size);
		codes_used++;
	}
	return codes[slot];
}

static bool is_trap(const uint8_t *bytes, size_t size)
{
	/* INT3, INT n, ICEBP; UD2. */
	return size > 0 && (bytes[0] == 0xcc || bytes[0] == 0xcd || bytes[0] == 0xf1 ||
			    (size == 2 && bytes[0] == 0x0f && bytes[1] == 0x0b));
}

/*
 * The number of the instruction at an address; COUNT for none.  Code is translated once for all
 * addresses that its page is mapped at, so that those of a block may be another program's.  A block is
 * shorter than a page.
 */
static size_t step_at(const struct code *code, uint64_t address)
{
	size_t at = 0;

	while (at < code->count && (code->address + code->steps[at].offset - address) % PAGE_BYTES)
		at++;
	return at;
}

/* A vCPU has executed so many instructions of a block, and no more. */
static void take_back(const struct code *code, unsigned int vcpu, size_t executed)
{
	uint16_t kinds[KINDS_COUNTED] = { 0 };

	if (executed >= code->count)
		return;
	for (size_t i = 0; i < executed; i++)
		for (unsigned int kind = 0; kind < KINDS_COUNTED; kind++)
			kinds[kind] += code->steps[i].kinds >> kind & 1;
	uncount(code->block, vcpu, executed, kinds);
}

/* A block begins, and the one before has not come to its end.  There is none before the first. */
static void on_left(unsigned int vcpu, void *next)
{
	uint64_t word = only.score ? qemu_plugin_u64_get(only, vcpu) : courses[vcpu].word;
	const struct code *code = (void *)(uintptr_t)word;

	if (code)
		take_back(code, vcpu, step_at(code, ((const struct code *)next)->address));
}

static void on_block(unsigned int vcpu, void *code)
{
	vcpu = RUNNING(vcpu);
	if (courses[vcpu].word < ENDED)
		on_left(vcpu, code);
	courses[vcpu].word = (uintptr_t)code;
}

static void on_short_block(unsigned int vcpu, void *code)
{
	vcpu = RUNNING(vcpu);
	if (courses[vcpu].word < ENDED)
		on_left(vcpu, code);
	courses[vcpu].word = (uintptr_t)code | ENDED;
}

static void on_last(unsigned int vcpu, void *code)
{
	courses[RUNNING(vcpu)].word = (uintptr_t)code | ENDED;
}

static size_t event_slot(uint32_t kind, uint64_t handler, uint64_t from)
{
	uint64_t key = (from ^ handler << 17 ^ kind) * 0x9e3779b97f4a7c15u;
	size_t slot = (key ^ key >> 32) & (event_room - 1);

	while (events[slot].count && (events[slot].kind != kind || events[slot].from != from ||
				      events[slot].handler != handler))
		slot = (slot + 1) & (event_room - 1);
	return slot;
}

static void count_event(uint32_t kind, uint64_t handler, uint64_t from)
{
	struct interruption *event;

	if (event_count * 2 >= event_room) {
		struct interruption *old = events;
		size_t old_room = event_room;

		event_room = old_room ? old_room * 2 : 1 << 12;
		events = more(NULL, event_room, sizeof(*events));
		memset(events, 0, event_room * sizeof(*events));
		for (size_t i = 0; i < old_room; i++)
			if (old[i].count)
				events[event_slot(old[i].kind, old[i].handler, old[i].from)] = old[i];
		free(old);
	}
	event = &events[event_slot(kind, handler, from)];
	if (event->count++ == 0) {
		event->kind = kind;
		event->handler = handler;
		event->from = from;
		event_count++;
	}
}

static void on_discontinuity(unsigned int vcpu, enum qemu_plugin_discon_type type, uint64_t from,
			     uint64_t to, void *data)
{
	struct course *course = &courses[vcpu];
	uint64_t word = only.score ? qemu_plugin_u64_get(only, vcpu) : course->word;
	const struct code *code = (void *)(uintptr_t)(word & ~ENDED);
	bool exception = type == QEMU_PLUGIN_DISCON_EXCEPTION || course->raised;
	size_t at;

	(void)data;
	if (type == QEMU_PLUGIN_DISCON_EXCEPTION && from == to) {
		course->raised = true;
		return;
	}
	course->raised = false;
	/* An interrupt comes behind a block's last instruction, an exception may come with it. */
	if (code && (exception || !(word & ENDED))) {
		at = step_at(code, from);
		if (at + 1 == code->count || !(word & ENDED))
			take_back(code, vcpu, at + (at < code->count && code->steps[at].traps));
	}
	course->word = ENDED;
	if (only.score)
		qemu_plugin_u64_set(only, vcpu, ENDED);
	count_event(exception			 ? OF_EXCEPTION :
		    type == QEMU_PLUGIN_DISCON_HOSTCALL ? OF_HOST_CALL :
							  OF_INTERRUPT,
		    to, from);
}

void discontinuities_watch(struct qemu_plugin_tb *tb, struct block *block, size_t count)
{
	static struct code *code;
	static size_t room;
	struct qemu_plugin_insn *last = qemu_plugin_tb_get_insn(tb, count - 1);
	struct code *own;
	bool early = false;
	uint8_t bytes[MAX_BYTES];

	if (count > room) {
		room = count;
		code = more(code, 1, sizeof(*code) + room * sizeof(*code->steps));
	}
	code->block = block;
	code->address = qemu_plugin_tb_vaddr(tb);
	code->count = count;
	for (size_t i = 0; i < count; i++) {
		const struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		size_t size = bytes_of(insn, bytes);
		unsigned int kinds = kinds_mask(bytes, size);

		code->steps[i] = (struct step){ qemu_plugin_insn_vaddr(insn) - code->address, kinds,
						is_trap(bytes, size) };
		early |= i + 1 < count && kinds & MAY_LEAVE;
	}
	own = kept(code);
	/* In this order: what is asked of the block before, then what this one is. */
	if (only.score) {
		qemu_plugin_register_vcpu_tb_exec_cond_cb(tb, on_left, QEMU_PLUGIN_CB_NO_REGS,
							  QEMU_PLUGIN_COND_LT, only, ENDED, own);
		qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
			tb, QEMU_PLUGIN_INLINE_STORE_U64, only,
			(uintptr_t)own | (early ? 0 : ENDED));
		if (early)
			qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
				last, QEMU_PLUGIN_INLINE_STORE_U64, only, (uintptr_t)own | ENDED);
		return;
	}
	qemu_plugin_register_vcpu_tb_exec_cb(tb, early ? on_block : on_short_block,
					     QEMU_PLUGIN_CB_NO_REGS, own);
	if (early)
		qemu_plugin_register_vcpu_insn_exec_cb(last, on_last, QEMU_PLUGIN_CB_NO_REGS, own);
}

void discontinuities_mark(uint32_t phase)
{
	if (phase && event_count) {
		written = more(written, written_count + event_count, sizeof(*written));
		for (size_t i = 0; i < event_room; i++)
			if (events[i].count) {
				events[i].phase = phase;
				written[written_count++] = events[i];
			}
	}
	if (event_count)
		memset(events, 0, event_room * sizeof(*events));
	event_count = 0;
}

const struct interruption *discontinuities_rows(size_t *count)
{
	*count = written_count;
	return written;
}

bool discontinuities_begin(qemu_plugin_id_t id, unsigned int vcpus)
{
	if (vcpus == 1)
		only.score = qemu_plugin_scoreboard_new(sizeof(uint64_t));
	courses = more(NULL, vcpus, sizeof(*courses));
	memset(courses, 0, vcpus * sizeof(*courses));
	qemu_plugin_register_vcpu_discon_cb(id, QEMU_PLUGIN_DISCON_ALL, on_discontinuity, NULL);
	return true;
}

#endif
