/*
 * A plugin of QEMU's translator (TCG) that counts how often each translation block
 * was entered, by vCPU and by phase of the workload.
 *
 * A phase begins where the guest executes MARK, a NOP whose displacement or constant
 * holds the phase's number (guests/mark.c); phase 0 is outside of any, and is not written.
 * The guest pays one instruction for a mark, and nothing for being counted.
 *
 * Arguments: out=PATH, and, for whoever looks into a run, window=N, which cuts a
 * phase into windows of N instructions.
 *
 * Each span=START-END (hexadecimal, END is not in it) is code that vCPUs wait in, a
 * lock's slow path or the idle task's halt.  A vCPU is in it from the block there that it
 * enters until the next block of its own elsewhere; what all vCPUs execute meanwhile
 * is the time that it waited.
 *
 * The file (numbers in the host's order, little-endian on every host of the lab):
 *
 *   header   char magic[8]; u32 version; u32 vcpus; u64 window; u64 spans;
 *   rows     u32 phase; u32 window; u32 vcpu; u32 instructions; u64 address;
 *            u64 entries;   only blocks that were entered
 *            A row whose address is SPAN + N is no block: its entries are the
 *            instructions that all vCPUs executed while this one was in span N.
 *   trailer  a row with phase 0xffffffff whose entries are the number of rows, written
 *            when QEMU ends by itself: a file without one was cut short.
 *
 * Declared by hand from the documented API, since Debian ships no header.
 * PROBE_API is its version (guests/probe/plugin.py chooses):
 *   1  QEMU 7.2 to 8.2: inline counters are one for all vCPUs.
 *   2  QEMU 9.0: scoreboards have a counter for each vCPU.
 *   3  QEMU 9.1 to 11.0: the bytes of an instruction are copied out.
 *   7  QEMU 11.1: callbacks get what they were registered with instead of the plugin's
 *      id.
 * With several vCPUs a callback counts, whatever the version.  -icount runs all of them on
 * one thread: nothing races.  (Scoreboards would do in principle; but a guest of four vCPUs
 * whose blocks count in one hangs or ends within seconds in QEMU 10.0.13.)
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if PROBE_API != 1 && PROBE_API != 2 && PROBE_API != 3 && PROBE_API != 7
#error "PROBE_API is 1, 2, 3 or 7"
#endif

#define EXPORT __attribute__((visibility("default")))

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };

typedef struct {
	const char *target_name;
	struct {
		int min, cur;
	} version;
	bool system_emulation;
	struct {
		int smp_vcpus, max_vcpus;
	} system;
} qemu_info_t;

EXPORT int qemu_plugin_version = PROBE_API;
EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc,
			       char **argv);

void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb,
					  void (*cb)(unsigned int, void *),
					  enum qemu_plugin_cb_flags flags, void *data);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn,
					    void (*cb)(unsigned int, void *),
					    enum qemu_plugin_cb_flags flags, void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t at);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);

#if PROBE_API < 7
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
					   void (*cb)(qemu_plugin_id_t,
						      struct qemu_plugin_tb *));
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id,
				    void (*cb)(qemu_plugin_id_t, void *), void *data);
#else
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
					   void (*cb)(struct qemu_plugin_tb *, void *),
					   void *data);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, void (*cb)(void *), void *data);
#endif

#if PROBE_API < 3
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
#else
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *to, size_t size);
#endif

#if PROBE_API == 1
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *tb,
					      enum qemu_plugin_op op, void *counter,
					      uint64_t step);
void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *insn,
						enum qemu_plugin_op op, void *counter,
						uint64_t step);
#else
struct qemu_plugin_scoreboard;
typedef struct {
	struct qemu_plugin_scoreboard *score;
	size_t offset;
} qemu_plugin_u64;
struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t element_size);
void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(struct qemu_plugin_tb *tb,
						       enum qemu_plugin_op op,
						       qemu_plugin_u64 counter,
						       uint64_t step);
uint64_t qemu_plugin_u64_get(qemu_plugin_u64 counter, unsigned int vcpu);
void qemu_plugin_u64_set(qemu_plugin_u64 counter, unsigned int vcpu, uint64_t value);
#endif

#ifdef PROBE_ARM64
/* movz xzr, #0x545N, lsl #32; no compiler has a use for it. */
#define MARK_BYTES 4
#define MARK 0xd2ca8a1fu
#define MARK_NUMBER 0x000001e0u
#else
/* nopl 0x5457NNNN(%rax): 0f 1f 80, NN NN, 57 54.  Compilers pad with displacement 0. */
#define MARK_BYTES 7
static const uint8_t MARK_HEAD[] = { 0x0f, 0x1f, 0x80 };
static const uint8_t MARK_TAIL[] = { 0x57, 0x54 };
#endif

#define TRAILER_PHASE 0xffffffffu
/* No address of a guest has these bits and not those above. */
#define SPAN 0x0053504100000000u
#define MAX_SPANS 4
/* The smallest pages of x86, and its longest instruction. */
#define PAGE_BYTES 4096u
#define LONGEST 15u
/* Counters of a scoreboard: one board for each block would be slow to make. */
#define BOARD_COUNTERS 4096

struct header {
	char magic[8];
	uint32_t version, vcpus;
	uint64_t window, spans;
};

struct row {
	uint32_t phase, window, vcpu, instructions;
	uint64_t address, entries;
};

struct block {
	uint64_t address;
	uint32_t instructions;
	uint32_t span; /* its number + 1, 0 for none */
#if PROBE_API > 1
	qemu_plugin_u64 counter;
#endif
	uint64_t entries[];
};

static struct block **blocks; /* in the order they were first translated */
static struct block **table; /* the same, open addressing by key */
static size_t used, room;
static unsigned int vcpus;
static bool inlined;
static uint32_t phase, window;
static uint64_t window_size, window_left, rows;
static FILE *out;
static bool failed;

static struct {
	uint64_t start, end;
} spans[MAX_SPANS];
static unsigned int span_count;
/* Of each vCPU: the span it is in, since when, and the time it was in each. */
struct stay {
	uint32_t span;
	uint64_t since, spent[MAX_SPANS];
};
static struct stay *stays;
static uint64_t executed;

static void *more(void *old, size_t count, size_t size)
{
	void *new = reallocarray(old, count, size);

	if (new == NULL) {
		fprintf(stderr, "probe: out of memory\n");
		abort();
	}
	return new;
}

static void write_row(uint32_t in_phase, unsigned int vcpu, uint32_t instructions,
		      uint64_t address, uint64_t entries)
{
	struct row row = { in_phase, window, vcpu, instructions, address, entries };

	/* The guest goes on: its result is good without counts. */
	if (!failed && fwrite(&row, sizeof(row), 1, out) != 1) {
		failed = true;
		perror("probe: the counts could not be written");
	}
}

/* Return a counter and set it to zero. */
static uint64_t take(struct block *block, unsigned int vcpu)
{
	uint64_t entries;

#if PROBE_API > 1
	if (inlined) {
		entries = qemu_plugin_u64_get(block->counter, vcpu);
		qemu_plugin_u64_set(block->counter, vcpu, 0);
		return entries;
	}
#endif
	entries = block->entries[vcpu];
	block->entries[vcpu] = 0;
	return entries;
}

static void take_all(void)
{
	for (size_t i = 0; i < used; i++) {
		for (unsigned int vcpu = 0; vcpu < vcpus; vcpu++) {
			uint64_t entries = take(blocks[i], vcpu);

			if (entries == 0 || phase == 0)
				continue;
			write_row(phase, vcpu, blocks[i]->instructions, blocks[i]->address,
				  entries);
			rows++;
		}
	}
}

static void leave(struct stay *stay)
{
	if (stay->span)
		stay->spent[stay->span - 1] += executed - stay->since;
	stay->since = executed;
}

/* A vCPU that waits at the end of a phase waits on in the next one. */
static void take_spans(void)
{
	for (unsigned int vcpu = 0; vcpu < vcpus; vcpu++) {
		leave(&stays[vcpu]);
		for (unsigned int n = 0; n < span_count; n++) {
			if (stays[vcpu].spent[n] && phase) {
				write_row(phase, vcpu, 0, SPAN + n, stays[vcpu].spent[n]);
				rows++;
			}
			stays[vcpu].spent[n] = 0;
		}
	}
}

static void on_mark(unsigned int vcpu, void *next)
{
	(void)vcpu;
	take_all();
	take_spans();
	phase = (uint32_t)(uintptr_t)next;
	window = 0;
	window_left = window_size;
}

static void on_block(unsigned int vcpu, void *data)
{
	((struct block *)data)->entries[vcpu]++;
}

static void on_block_in_window(unsigned int vcpu, void *data)
{
	struct block *block = data;

	if (window_left < block->instructions) {
		take_all();
		window++;
		window_left += window_size;
	}
	window_left -= block->instructions;
	block->entries[vcpu]++;
}

static void on_block_with_spans(unsigned int vcpu, void *data)
{
	struct block *block = data;
	struct stay *stay = &stays[vcpu];

	if (block->span != stay->span) {
		leave(stay);
		stay->span = block->span;
	}
	executed += block->instructions;
	block->entries[vcpu]++;
}

static size_t slot_of(uint64_t address, uint32_t instructions)
{
	uint64_t key = (address ^ ((uint64_t)instructions << 48)) * 0x9e3779b97f4a7c15u;
	size_t slot = (key ^ key >> 32) & (room - 1);

	while (table[slot] &&
	       (table[slot]->address != address || table[slot]->instructions != instructions))
		slot = (slot + 1) & (room - 1);
	return slot;
}

static void grow(void)
{
	room = room ? room * 2 : 1 << 16;
	blocks = more(blocks, room, sizeof(*blocks));
	table = more(table, room, sizeof(*table));
	memset(table, 0, room * sizeof(*table));
	for (size_t i = 0; i < used; i++)
		table[slot_of(blocks[i]->address, blocks[i]->instructions)] = blocks[i];
}

static struct block *new_block(uint64_t address, uint32_t instructions)
{
	struct block *block = more(NULL, 1, sizeof(*block) + vcpus * sizeof(uint64_t));

	memset(block, 0, sizeof(*block) + vcpus * sizeof(uint64_t));
	block->address = address;
	block->instructions = instructions;
	for (unsigned int n = 0; n < span_count; n++)
		if (address >= spans[n].start && address < spans[n].end)
			block->span = n + 1;
#if PROBE_API > 1
	static struct qemu_plugin_scoreboard *board;

	if (used % BOARD_COUNTERS == 0)
		board = qemu_plugin_scoreboard_new(BOARD_COUNTERS * sizeof(uint64_t));
	block->counter.score = board;
	block->counter.offset = used % BOARD_COUNTERS * sizeof(uint64_t);
#endif
	return block;
}

/* The same code translated again, after a flush for instance, counts on. */
static struct block *block_of(uint64_t address, uint32_t instructions)
{
	size_t slot;

	if (used * 2 >= room)
		grow();
	slot = slot_of(address, instructions);
	if (table[slot] == NULL) {
		table[slot] = new_block(address, instructions);
		blocks[used++] = table[slot];
	}
	return table[slot];
}

static bool is_mark(const struct qemu_plugin_insn *insn, uint32_t *number)
{
	uint8_t bytes[MARK_BYTES];

	if (qemu_plugin_insn_size(insn) != MARK_BYTES)
		return false;
#if PROBE_API < 3
	memcpy(bytes, qemu_plugin_insn_data(insn), MARK_BYTES);
#else
	if (qemu_plugin_insn_data(insn, bytes, MARK_BYTES) != MARK_BYTES)
		return false;
#endif
#ifdef PROBE_ARM64
	uint32_t word;

	memcpy(&word, bytes, sizeof(word));
	if ((word & ~MARK_NUMBER) != MARK)
		return false;
	*number = (word & MARK_NUMBER) >> 5;
#else
	if (memcmp(bytes, MARK_HEAD, sizeof(MARK_HEAD)) || memcmp(bytes + 5, MARK_TAIL, 2))
		return false;
	*number = bytes[3] | (uint32_t)bytes[4] << 8;
#endif
	return true;
}

static void (*counting(void))(unsigned int, void *)
{
	return span_count ? on_block_with_spans : window_size ? on_block_in_window : on_block;
}

/*
 * How many of a block's instructions count with the block: all but the last one where that
 * may be in two pages.  QEMU takes such an instruction out of the block, unless it is the
 * first, and makes a block of it alone.  7.2 goes on listing it in both (later ones correct
 * the count, in plugin_gen_tb_end()): an instruction of a loop, and there was one in
 * xas_load(), counted twice, and a path moved by 0.1 % when the function moved by 80 bytes.
 * So it counts by itself.  Only what is executed does: what was taken out has lost its
 * counter, too.
 */
static size_t together(struct qemu_plugin_tb *tb)
{
	size_t count = qemu_plugin_tb_n_insns(tb);
#if PROBE_API == 1 && !defined(PROBE_ARM64)
	struct qemu_plugin_insn *last = qemu_plugin_tb_get_insn(tb, count - 1);
	uint64_t address = qemu_plugin_insn_vaddr(last);
	struct block *block;

	/* It is listed with no more bytes than the first page has. */
	if (count == 1 || (address & (PAGE_BYTES - 1)) <= PAGE_BYTES - LONGEST)
		return count;
	block = block_of(address, 1);
	if (inlined)
		qemu_plugin_register_vcpu_insn_exec_inline(last, QEMU_PLUGIN_INLINE_ADD_U64,
							   &block->entries[0], 1);
	else
		qemu_plugin_register_vcpu_insn_exec_cb(last, counting(), QEMU_PLUGIN_CB_NO_REGS,
						       block);
	count--;
#endif
	return count;
}

static void instrument(struct qemu_plugin_tb *tb)
{
	size_t count = qemu_plugin_tb_n_insns(tb);
	struct block *block = block_of(qemu_plugin_tb_vaddr(tb), together(tb));
	uint32_t number;

	if (!inlined)
		qemu_plugin_register_vcpu_tb_exec_cb(tb, counting(), QEMU_PLUGIN_CB_NO_REGS,
						     block);
#if PROBE_API == 1
	else
		qemu_plugin_register_vcpu_tb_exec_inline(tb, QEMU_PLUGIN_INLINE_ADD_U64,
							 &block->entries[0], 1);
#else
	else
		qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
			tb, QEMU_PLUGIN_INLINE_ADD_U64, block->counter, 1);
#endif
	for (size_t i = 0; i < count; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);

		if (is_mark(insn, &number))
			qemu_plugin_register_vcpu_insn_exec_cb(
				insn, on_mark, QEMU_PLUGIN_CB_NO_REGS, (void *)(uintptr_t)number);
	}
}

static void finish(void)
{
	take_all();
	take_spans();
	write_row(TRAILER_PHASE, 0, 0, 0, rows);
	if (fclose(out) != 0)
		perror("probe: the counts could not be written");
}

#if PROBE_API < 7
static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	(void)id;
	instrument(tb);
}

static void on_end(qemu_plugin_id_t id, void *data)
{
	(void)id;
	(void)data;
	finish();
}
#else
static void on_translation(struct qemu_plugin_tb *tb, void *data)
{
	(void)data;
	instrument(tb);
}

static void on_end(void *data)
{
	(void)data;
	finish();
}
#endif

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	struct header header = { "TWINPROB", 2, 0, 0, 0 };
	const char *path = NULL;

	for (int i = 0; i < argc; i++) {
		if (strncmp(argv[i], "out=", 4) == 0) {
			path = argv[i] + 4;
		} else if (strncmp(argv[i], "window=", 7) == 0) {
			window_size = strtoull(argv[i] + 7, NULL, 10);
		} else if (strncmp(argv[i], "span=", 5) == 0 && span_count < MAX_SPANS) {
			char *end;

			spans[span_count].start = strtoull(argv[i] + 5, &end, 16);
			spans[span_count].end = *end == '-' ? strtoull(end + 1, &end, 16) : 0;
			if (*end || spans[span_count].end <= spans[span_count].start) {
				fprintf(stderr, "probe: no span: %s\n", argv[i]);
				return -1;
			}
			span_count++;
		} else {
			fprintf(stderr, "probe: unknown argument %s\n", argv[i]);
			return -1;
		}
	}
	if (!info->system_emulation || path == NULL) {
		fprintf(stderr, "probe: needs system emulation and out=PATH\n");
		return -1;
	}
	if (span_count && window_size) {
		fprintf(stderr, "probe: spans or windows, not both\n");
		return -1;
	}
	out = fopen(path, "wb");
	if (out == NULL) {
		perror(path);
		return -1;
	}
	vcpus = info->system.smp_vcpus;
	inlined = window_size == 0 && span_count == 0 && vcpus == 1;
	stays = more(NULL, vcpus, sizeof(*stays));
	memset(stays, 0, vcpus * sizeof(*stays));
	header.vcpus = vcpus;
	header.window = window_size;
	header.spans = span_count;
	if (fwrite(&header, sizeof(header), 1, out) != 1) {
		perror(path);
		return -1;
	}
#if PROBE_API < 7
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
#else
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation, NULL);
#endif
	qemu_plugin_register_atexit_cb(id, on_end, NULL);
	return 0;
}
