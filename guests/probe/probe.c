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
 * Each spin=, spin_shared=, sleep= and sleep_shared=START-END is a function that takes a lock
 * which is waited for by spinning or by sleeping, for itself or beside others; slow=START-END is
 * where a spin lock that was not had at once is waited for; free=START-END
 * is one that lets go of a lock, and switch=START-END goes from one task's stack to another's
 * (x86-64 alone; guests/probe/plugin.py chooses them).
 * The instruction in it that exchanges, or adds and returns, writes the lock, so that its
 * address tells locks apart.  Where a lock is let go of is anywhere in the kernel, for that is
 * inlined: a store of the byte 0 to a lock that is held, or an addition that returns, for
 * one that is shared.  Who took it is the direct call of the function.  With one vCPU the
 * kernel patches its LOCK prefixes away, so instructions are known by their opcodes.
 * A spin lock that was found held is waited for until a later store in a slow= function
 * writes it while it is free.  Other stores there are to the queue of waiters.  Whether an exchange
 * was in vain is known where the slow path is entered behind it.  Who sleeps for a lock is not followed: that is counted
 * as a wait, and what it does with the lock then is not.
 *
 * The file (numbers in the host's order, little-endian on every host of the lab):
 *
 *   header   char magic[8]; u32 version; u32 vcpus; u64 window, spans, modelled, shared, interrupted,
 *            stacked;
 *   rows     u32 phase; u32 window; u16 vcpu; u16 instructions; u32 kinds; u64 address;
 *            u64 entries;   only blocks that were entered
 *            Kinds is the place in the table of that name that says what the instructions are.
 *            A row whose address is SPAN + N is no block: its entries are the
 *            instructions that all vCPUs executed while this one was in span N.
 *   locks    u32 phase; u32 kind; u64 lock, site, holder, taken, held, waits, waited, moved, object,
 *            l2, llc, walks;
 *            A lock by its address, and the call that took it (0: not seen); the object of a slab
 *            cache that it is in when the phase ends (as of moves), 0 for none; the kinds are
 *            those above from 0 on.  Held are the
 *            instructions of the holder's vCPU from taking it to letting go, waits the times
 *            that it was held by another, waited what all vCPUs executed meanwhile, moved the
 *            lines that came from other vCPUs while it was held (lines.c), l2, llc and walks
 *            what the model missed meanwhile (memory.c).
 *            With 16 added to the kind it is who waited for whom: the lock was found held waits
 *            times by the site, by what the call at holder took; taken are the times that it
 *            came from there to the site that had waited, waited what all vCPUs executed while
 *            the site waited and that held it, or had let go of it last.
 *   misses   u32 phase; u32 instructions; u64 address; u64 L1d, L1i, L2, LLC, prefetched, TLB,
 *            walks;   blocks by which the model (memory.c) counted anything
 *   kinds    u16 loads, stores, atomics, barriers, divisions, system;   of the instructions of a
 *            block (kinds.c)
 *   moves    u32 phase, 0; u64 object, to, from, reads, writes, apart, mine, theirs;
 *            Lines of an object that came to the block TO from what the block FROM of another
 *            vCPU touched, to be read or written (lines.c): apart are those that are false sharing,
 *            mine and theirs the bytes of the line that either touched, as bits.
 *   slabs    char name[40]; u32 size, users;   slab caches, by the number that objects of moves have
 *   interruptions  u32 phase; u32 kind; u64 handler, from, count;   how often a vCPU went from an
 *            instruction to a handler: of an interrupt, an exception, a call of the host (0 to 2).
 *            From is the one that was not executed; none unless the header says interrupted, with
 *            which blocks that were left before their end have the length that was executed
 *            (discontinuities.c).
 *   paths    u32 parent, 0; u64 function;   functions as called on a path, by the number that these
 *            have, from 0, the user's code, on; the address is the function's first (stacks.c)
 *   stacks   u32 phase; u32 path; u64 instructions, calls;   what was executed in the function itself
 *   trailer  u32 phase, 0xffffffff; u32 lost; u64 rows, locks, misses, kinds, moves, slabs,
 *            interruptions, paths, stacks, unmapped;   how many there are of each.  Lost are the times that a lock was taken whose last holder was
 *            never seen to let go, unmapped the accesses that the model found no page for.
 *            Written when QEMU ends by itself: a file without one was cut short.
 *
 * With a machine's caches among the arguments a model of them is fed, too (memory.c), or with a
 * private cache for each vCPU one of the lines that move between them (lines.c).  With a kernel's
 * functions among them call stacks are followed (stacks.c).
 *
 * With several vCPUs a callback counts, whatever the version of the API (plugin.h).  -icount
 * runs all of them on one thread: nothing races.  (A scoreboard would not do from QEMU 10.0 on: the
 * translated code has in it which vCPU it was translated for, and multiplies that where it is kept.)
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "plugin.h"

EXPORT int qemu_plugin_version = PROBE_API;

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
#define MAX_PLACES 64
/* Spin locks nest a few deep; tasks that sleep hold a few each. */
#define MAX_HOLDS 256
#define MAX_CALLS 16
/* Stacks of the kernel have this size at least, and begin at a multiple of it. */
#define STACK_BITS 14
/* The smallest pages of x86, and its longest instruction. */
#define PAGE_BYTES 4096u
#define LONGEST 15u
/* Counters that are made at once: a scoreboard for each block would be slow to make. */
#define COUNTERS 4096
/* Of the host's caches, and of its huge pages, of which so many are taken at once. */
#define HOST_LINE 64u
#define HOST_HUGE (2ul << 20)
#define PIECE (8 * HOST_HUGE)

struct header {
	char magic[8];
	uint32_t version, vcpus;
	uint64_t window, spans, modelled, shared, interrupted, stacked;
};

struct row {
	uint32_t phase, window;
	uint16_t vcpu, instructions;
	uint32_t kinds;
	uint64_t address, entries;
};

struct use {
	uint32_t phase, kind;
	uint64_t lock, site, holder, taken, held, waits, waited, moved, object;
	uint64_t l2, llc, walks;
};

struct trailer {
	uint32_t phase, lost;
	uint64_t rows, locks, misses, kinds, moves, slabs, interruptions, paths, stacks, unmapped;
};

struct block {
	uint64_t address;
	uint16_t instructions;
	uint16_t span; /* its number + 1, 0 for none */
	uint32_t kinds; /* their place in the table */
	struct block *follower; /* what was entered behind it last, with several vCPUs */
#if PROBE_API > 1
	qemu_plugin_u64 counter;
#endif
	uint64_t *entries; /* of each vCPU */
};

static struct block **blocks; /* in the order they were first translated */
static struct block **table; /* the same, open addressing by key */
/*
 * What blocks are made of, each once: open addressing of places by what they hold.  In the file
 * are those of rows alone, in the order of rows, so that rows are the same whatever else ran.
 */
static struct kinds {
	uint16_t counts[KINDS_COUNTED];
} *kinds, *kinds_written;
static uint32_t *kinds_number; /* of each, in the file, with 1 added; 0 is none so far */
static uint32_t kinds_count, kinds_count_room;
static uint32_t *kinds_table;
static uint32_t kinds_used, kinds_room;
static size_t used, room;
static unsigned int vcpus;
static bool inlined, clocked, modelled, shared, interrupted, stacked;
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

/* Functions that take locks or let go of them. */
enum place_kind { SPIN, SPIN_SHARED, SLEEP, SLEEP_SHARED, SLOW, FREE, SWITCH, KINDS };
#define SHARED 1u /* a bit of the kinds before SLOW */
#define PAIR 16u /* of rows: who waited for whom */
static const char *const PLACE_WORDS[KINDS] = { "spin=", "spin_shared=", "sleep=",
						"sleep_shared=", "slow=", "free=", "switch=" };
static struct place {
	uint64_t start, end;
	enum place_kind kind;
} places[MAX_PLACES];
static unsigned int place_count;
static struct hold {
	uint64_t lock, site, since;
	unsigned int vcpu;
	enum place_kind kind;
} holds[MAX_HOLDS];
static unsigned int hold_count, lost;
/*
 * Of each vCPU: its instructions so far; the calls of lock functions that have taken nothing yet,
 * an interrupt's behind those of what it interrupted; the task that it runs, by the place of its
 * stack; the lock that it exchanged last; and the lock that it waits for, since when, and since
 * when for its last holder.
 */
static struct lane {
	uint64_t clock;
	struct call {
		uint64_t site, task;
		unsigned int place;
	} calls[MAX_CALLS];
	unsigned int call_count;
	uint64_t task, took;
	uint64_t lock, site, since, holder, part;
} *lanes;
#if PROBE_API > 1
static qemu_plugin_u64 board_clock;
#endif
/* Uses of the phase so far: open addressing by lock, site and kind. */
static struct use *uses;
static size_t use_count, use_room;
/* Those of the phases before. */
static struct use *written;
static size_t written_count;

void *more(void *old, size_t count, size_t size)
{
	void *new = reallocarray(old, count, size);

	if (new == NULL) {
		fprintf(stderr, "probe: out of memory\n");
		abort();
	}
	return new;
}

void *kept(size_t count, size_t size)
{
	static uintptr_t at, end;
	const size_t wanted = count * size, line = wanted < HOST_LINE ? 2 * sizeof(void *) : HOST_LINE;
	void *piece;

	at = (at + line - 1) / line * line;
	if (end - at < wanted || end == 0) {
		const size_t room = (wanted + PIECE - 1) / HOST_HUGE * HOST_HUGE;

		piece = mmap(NULL, room + HOST_HUGE, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (piece == MAP_FAILED) {
			fprintf(stderr, "probe: out of memory\n");
			abort();
		}
		at = ((uintptr_t)piece + HOST_HUGE - 1) / HOST_HUGE * HOST_HUGE;
		end = at + room;
		/* A host without any has its small ones. */
		madvise((void *)at, room, MADV_HUGEPAGE);
	}
	at += wanted;
	return (void *)(at - wanted);
}

#if PROBE_API >= 3
/* QEMU's own, of its exports, as those that guests/preload.c takes. */
static void **executing; /* of the only thread that executes: the CPU that does */
static void *(*cpu_of)(int number);

unsigned int running(unsigned int vcpu)
{
	static void *last;
	static unsigned int number;

	if (vcpus == 1)
		return vcpu;
	/* A thread has its own. */
	if (executing == NULL)
		executing = dlsym(RTLD_DEFAULT, "current_cpu");
	if (*executing != last) {
		for (number = 0; number < vcpus - 1 && cpu_of(number) != *executing;)
			number++;
		last = *executing;
	}
	return number;
}
#endif

/* The guest goes on whatever becomes of its counts: its result is good without. */
static void write_all(const void *what, size_t size, size_t count)
{
	if (count && !failed && fwrite(what, size, count, out) != count) {
		failed = true;
		perror("probe: the counts could not be written");
	}
}

static void write_row(unsigned int vcpu, uint32_t instructions, uint32_t of_kinds,
		      uint64_t address, uint64_t entries)
{
	struct row row = { phase, window, vcpu, instructions, 0, address, entries };

	if (kinds_number[of_kinds] == 0) {
		if (kinds_count == kinds_count_room) {
			kinds_count_room = kinds_count_room ? kinds_count_room * 2 : 1 << 10;
			kinds_written = more(kinds_written, kinds_count_room,
					     sizeof(*kinds_written));
		}
		kinds_written[kinds_count++] = kinds[of_kinds];
		kinds_number[of_kinds] = kinds_count;
	}
	row.kinds = kinds_number[of_kinds] - 1;
	write_all(&row, sizeof(row), 1);
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
			write_row(vcpu, blocks[i]->instructions, blocks[i]->kinds,
				  blocks[i]->address, entries);
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
				write_row(vcpu, 0, 0, SPAN + n, stays[vcpu].spent[n]);
				rows++;
			}
			stays[vcpu].spent[n] = 0;
		}
	}
}

uint64_t clock_of(unsigned int vcpu, int left)
{
#if PROBE_API > 1
	if (inlined)
		return qemu_plugin_u64_get(board_clock, vcpu) - left;
#endif
	return lanes[vcpu].clock - left;
}

static size_t use_slot(uint64_t lock, uint64_t site, uint32_t kind, uint64_t holder)
{
	uint64_t key = (lock ^ site << 20 ^ holder << 7 ^ kind) * 0x9e3779b97f4a7c15u;
	size_t slot = (key ^ key >> 32) & (use_room - 1);

	while (uses[slot].lock && (uses[slot].lock != lock || uses[slot].site != site ||
				   uses[slot].kind != kind || uses[slot].holder != holder))
		slot = (slot + 1) & (use_room - 1);
	return slot;
}

static struct use *use_of(uint64_t lock, uint64_t site, uint32_t kind, uint64_t holder)
{
	struct use *use;

	if (use_count * 2 >= use_room) {
		struct use *old = uses;
		size_t old_room = use_room;

		use_room = old_room ? old_room * 2 : 1 << 12;
		uses = more(NULL, use_room, sizeof(*uses));
		memset(uses, 0, use_room * sizeof(*uses));
		for (size_t i = 0; i < old_room; i++)
			if (old[i].lock)
				uses[use_slot(old[i].lock, old[i].site, old[i].kind,
					      old[i].holder)] = old[i];
		free(old);
	}
	use = &uses[use_slot(lock, site, kind, holder)];
	if (use->lock == 0) {
		use->lock = lock;
		use->site = site;
		use->kind = kind;
		use->holder = holder;
		use_count++;
	}
	return use;
}

/* A waiter has waited for one holder up to MOMENT (of all vCPUs); GOT where it has the lock now. */
static void end_part(struct lane *lane, uint64_t moment, bool got)
{
	struct use *pair = use_of(lane->lock, lane->site, SPIN | PAIR, lane->holder);

	pair->waited += moment - lane->part;
	pair->taken += got;
	lane->part = moment;
}

static void end_hold(unsigned int at, uint64_t when, uint64_t moment)
{
	struct hold *hold = &holds[at];

	if (when > hold->since)
		use_of(hold->lock, hold->site, hold->kind, 0)->held += when - hold->since;
	for (unsigned int vcpu = 0; vcpu < vcpus; vcpu++) {
		struct lane *lane = &lanes[vcpu];

		if (lane->lock != hold->lock)
			continue;
		/* Since it found the lock held, or since another let go of it. */
		lane->holder = hold->site;
		end_part(lane, moment, false);
	}
	hold_count--;
	memmove(hold, hold + 1, (hold_count - at) * sizeof(*hold));
}

/* A lock that is held at the end of a phase is held on in the next one. */
static void take_locks(void)
{
	slabs_read();
	for (unsigned int i = 0; i < hold_count; i++) {
		struct hold *hold = &holds[i];
		uint64_t when = clock_of(hold->vcpu, 0);

		if (when > hold->since)
			use_of(hold->lock, hold->site, hold->kind, 0)->held += when - hold->since;
		hold->since = when;
	}
	if (phase && use_count) {
		written = more(written, written_count + use_count, sizeof(*written));
		for (size_t i = 0; i < use_room; i++)
			if (uses[i].lock) {
				uses[i].phase = phase;
				uses[i].object = slab_object(uses[i].lock);
				written[written_count++] = uses[i];
			}
	}
	if (use_count)
		memset(uses, 0, use_room * sizeof(*uses));
	use_count = 0;
}

/* The call of a lock function: its address without the bits that all kernel code has. */
#define SITE_BITS 48

static void on_call(unsigned int vcpu, void *data)
{
	struct lane *lane = &lanes[vcpu = RUNNING(vcpu)];
	uint64_t word = (uintptr_t)data;

	if (lane->call_count == MAX_CALLS)
		memmove(lane->calls, lane->calls + 1, --lane->call_count * sizeof(*lane->calls));
	/* Arithmetic shifts bring the upper bits back. */
	lane->calls[lane->call_count++] = (struct call){
		(uint64_t)((int64_t)(word << (64 - SITE_BITS)) >> (64 - SITE_BITS)),
		lane->task, word >> SITE_BITS
	};
}

/* Before the switch this writes the old task's stack, behind it it reads the new one's. */
static void on_switch(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t stack, void *data)
{
	struct lane *lane = &lanes[vcpu = RUNNING(vcpu)];

	(void)info;
	(void)data;
	/* Who ran first is known from the first switch on. */
	for (unsigned int at = 0; lane->task == 0 && at < lane->call_count; at++)
		lane->calls[at].task = stack >> STACK_BITS;
	lane->task = stack >> STACK_BITS;
}

/* The task's latest call of a function.  Later ones of others took nothing (a trylock failed). */
static uint64_t caller(struct lane *lane, unsigned int place)
{
	for (unsigned int at = lane->call_count; at-- > 0;) {
		uint64_t site = lane->calls[at].site;

		if (lane->calls[at].place != place || lane->calls[at].task != lane->task)
			continue;
		lane->call_count--;
		memmove(lane->calls + at, lane->calls + at + 1,
			(lane->call_count - at) * sizeof(*lane->calls));
		return site;
	}
	return 0;
}

/* Whether somebody holds a lock in a way that keeps a taker of this kind out. */
static struct hold *in_the_way(uint64_t lock, enum place_kind kind)
{
	for (unsigned int at = hold_count; at-- > 0;)
		if (holds[at].lock == lock && !(kind & SHARED && holds[at].kind & SHARED))
			return &holds[at];
	return NULL;
}

/* DATA: the number of the function, then the instructions left in the block. */
static void on_take(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t lock, void *data)
{
	struct lane *lane = &lanes[vcpu = RUNNING(vcpu)];
	unsigned int left = (uintptr_t)data & 0xffff, place = (uintptr_t)data >> 16;
	bool slow = places[place].kind == SLOW, waited = lane->lock == lock;
	enum place_kind kind = slow ? SPIN : places[place].kind;
	struct hold *other;
	struct use *use;
	uint64_t site;

	/* QEMU 7.2 calls for what the instruction loads, too, though told to do it for stores. */
	if (!qemu_plugin_mem_is_store(info))
		return;
	if (slow && !waited)
		return;
	site = waited ? lane->site : caller(lane, place);
	other = in_the_way(lock, kind);
	if (other && kind == SPIN && other->vcpu == vcpu) {
		/* It would spin for ever: the holder let go of it unseen. */
		lost++;
		end_hold(other - holds, other->since, executed - left);
	} else if (other) {
		if (waited)
			return;
		use_of(lock, site, kind, 0)->waits++;
		use_of(lock, site, kind | PAIR, other->site)->waits++;
		if (kind == SPIN) {
			lane->lock = lock;
			lane->site = site;
			lane->holder = other->site;
			lane->since = lane->part = executed - left;
		}
		return;
	}
	if (waited)
		end_part(lane, executed - left, true);
	use = use_of(lock, site, kind, 0);
	use->taken++;
	if (waited) {
		use->waited += executed - left - lane->since;
		lane->lock = 0;
	}
	if (hold_count == MAX_HOLDS) {
		lost++;
		end_hold(0, holds[0].since, executed - left);
	}
	holds[hold_count++] = (struct hold){ lock, site, clock_of(vcpu, left), vcpu, kind };
	lane->took = kind == SPIN ? lock : lane->took;
}

/* The call of who waits for a lock longest, and so has it next; 0 where nobody does. */
static uint64_t first_waiter(uint64_t lock)
{
	const struct lane *first = NULL;

	for (unsigned int vcpu = 0; vcpu < vcpus; vcpu++)
		if (lanes[vcpu].lock == lock && (first == NULL || lanes[vcpu].since < first->since))
			first = &lanes[vcpu];
	return first ? first->site : 0;
}

/*
 * The slow path begins.  Where nobody was known to hold the lock it had waiters, and the first of
 * them is about to have it.  DATA: the instructions left in the block.
 */
static void on_slow(unsigned int vcpu, void *data)
{
	struct lane *lane = &lanes[vcpu = RUNNING(vcpu)];
	struct use *use;

	for (unsigned int at = hold_count; lane->lock == 0 && at-- > 0;) {
		struct hold hold = holds[at];

		if (hold.vcpu != vcpu || hold.kind != SPIN || hold.lock != lane->took)
			continue;
		hold_count--;
		memmove(holds + at, holds + at + 1, (hold_count - at) * sizeof(*holds));
		use = use_of(hold.lock, hold.site, SPIN, 0);
		/* It may have been counted in the phase before. */
		use->taken -= use->taken > 0;
		use->waits++;
		lane->holder = first_waiter(hold.lock);
		use_of(hold.lock, hold.site, SPIN | PAIR, lane->holder)->waits++;
		lane->lock = hold.lock;
		lane->site = hold.site;
		lane->since = lane->part = executed - (uintptr_t)data;
	}
}

/* DATA: the instructions left in the block. */
static void on_free(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t lock, void *data)
{
	if (!qemu_plugin_mem_is_store(info))
		return;
	vcpu = RUNNING(vcpu);
	for (unsigned int at = hold_count; at-- > 0;)
		if (holds[at].lock == lock) {
			/* By another vCPU: a task that held it has moved. */
			end_hold(at,
				 holds[at].vcpu == vcpu ? clock_of(vcpu, (uintptr_t)data) :
							  clock_of(holds[at].vcpu, 0),
				 executed - (uintptr_t)data);
			return;
		}
}

void moved(unsigned int vcpu)
{
	for (unsigned int at = 0; at < hold_count; at++)
		if (holds[at].vcpu == vcpu)
			use_of(holds[at].lock, holds[at].site, holds[at].kind, 0)->moved++;
}

void missed(enum miss what)
{
	for (unsigned int at = 0; at < hold_count; at++) {
		struct use *use = use_of(holds[at].lock, holds[at].site, holds[at].kind, 0);

		use->l2 += what == MISS_L2;
		use->llc += what == MISS_LLC;
		use->walks += what == WALK;
	}
}

static void on_mark(unsigned int vcpu, void *next)
{
	(void)vcpu;
	take_all();
	take_spans();
	take_locks();
	if (modelled)
		memory_mark(phase);
	if (shared)
		lines_mark(phase);
	if (stacked)
		stacks_mark(phase);
	discontinuities_mark(phase);
	phase = (uint32_t)(uintptr_t)next;
	window = 0;
	window_left = window_size;
}

static void count_block(struct block *block, unsigned int vcpu)
{
	lanes[vcpu].clock += block->instructions;
	executed += block->instructions;
	block->entries[vcpu]++;
}

/* What followed a block the last time will do so again: the host has it in its caches by then. */
static inline void expect_follower(struct block *block)
{
	static struct block *before;

	if (before)
		before->follower = block;
	before = block;
	__builtin_prefetch(block->follower, 1);
}

static void on_block(unsigned int vcpu, void *data)
{
	expect_follower(data);
	count_block(data, RUNNING(vcpu));
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
	count_block(block, RUNNING(vcpu));
}

static void on_block_with_spans(unsigned int vcpu, void *data)
{
	struct block *block = data;
	struct stay *stay = &stays[vcpu = RUNNING(vcpu)];

	expect_follower(block);
	if (block->span != stay->span) {
		leave(stay);
		stay->span = block->span;
	}
	count_block(block, vcpu);
}

static size_t slot_of(uint64_t address, uint32_t instructions, uint32_t of_kinds)
{
	uint64_t key = (address ^ (uint64_t)instructions << 48 ^ (uint64_t)of_kinds << 32) *
		       0x9e3779b97f4a7c15u;
	size_t slot = (key ^ key >> 32) & (room - 1);

	while (table[slot] && (table[slot]->address != address ||
			       table[slot]->instructions != instructions ||
			       table[slot]->kinds != of_kinds))
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
		table[slot_of(blocks[i]->address, blocks[i]->instructions, blocks[i]->kinds)] =
			blocks[i];
}

static uint32_t *kinds_slot(const struct kinds *of)
{
	uint64_t key = 0;
	uint32_t slot;

	for (unsigned int kind = 0; kind < KINDS_COUNTED; kind++)
		key = (key + of->counts[kind]) * 0x9e3779b97f4a7c15u;
	/* Places are kept with 1 added: 0 is none. */
	for (slot = key >> 32 & (kinds_room - 1); kinds_table[slot]; slot = (slot + 1) & (kinds_room - 1))
		if (memcmp(&kinds[kinds_table[slot] - 1], of, sizeof(*of)) == 0)
			break;
	return &kinds_table[slot];
}

/* The place of kinds in the table. */
static uint32_t place_of_kinds(const struct kinds *of)
{
	uint32_t *slot;

	if (kinds_used * 2 >= kinds_room) {
		kinds_room = kinds_room ? kinds_room * 2 : 1 << 12;
		kinds = more(kinds, kinds_room, sizeof(*kinds));
		kinds_table = more(kinds_table, kinds_room, sizeof(*kinds_table));
		kinds_number = more(kinds_number, kinds_room, sizeof(*kinds_number));
		memset(kinds_number + kinds_used, 0,
		       (kinds_room - kinds_used) * sizeof(*kinds_number));
		memset(kinds_table, 0, kinds_room * sizeof(*kinds_table));
		for (uint32_t i = 0; i < kinds_used; i++)
			*kinds_slot(&kinds[i]) = i + 1;
	}
	slot = kinds_slot(of);
	if (*slot == 0) {
		kinds[kinds_used++] = *of;
		*slot = kinds_used;
	}
	return *slot - 1;
}

/* That of COUNT instructions, from the block's FIRST on. */
static uint32_t kinds_of(const struct qemu_plugin_tb *tb, size_t first, size_t count)
{
	struct kinds of = { { 0 } };
	uint8_t bytes[MAX_BYTES];

	for (size_t i = first; i < first + count; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);

		add_kinds(bytes, bytes_of(insn, bytes), of.counts);
	}
	return place_of_kinds(&of);
}

static struct block *new_block(uint64_t address, uint32_t instructions, uint32_t of_kinds)
{
	/* A callback reads the block besides; what only counts has its neighbours' beside it. */
	static uint64_t *counters;
	const size_t size = sizeof(struct block) + (inlined ? 0 : vcpus * sizeof(uint64_t));
	struct block *block = kept(1, size);

	block->entries = (uint64_t *)(block + 1);
	if (inlined) {
		if (used % COUNTERS == 0)
			counters = kept(COUNTERS, sizeof(*counters));
		block->entries = &counters[used % COUNTERS];
	}
	block->address = address;
	block->instructions = instructions;
	block->kinds = of_kinds;
	for (unsigned int n = 0; n < span_count; n++)
		if (address >= spans[n].start && address < spans[n].end)
			block->span = n + 1;
#if PROBE_API > 1
	static struct qemu_plugin_scoreboard *board;

	if (used % COUNTERS == 0)
		board = qemu_plugin_scoreboard_new(COUNTERS * sizeof(uint64_t));
	block->counter.score = board;
	block->counter.offset = used % COUNTERS * sizeof(uint64_t);
#endif
	return block;
}

/*
 * The same code translated again, after a flush for instance, counts on.  Other code at its address,
 * of another program or patched, counts for itself where its instructions are of other kinds.
 */
static struct block *block_of(uint64_t address, uint32_t instructions, uint32_t of_kinds)
{
	size_t slot;

	if (used * 2 >= room)
		grow();
	slot = slot_of(address, instructions, of_kinds);
	if (table[slot] == NULL) {
		table[slot] = new_block(address, instructions, of_kinds);
		blocks[used++] = table[slot];
	}
	return table[slot];
}

#if PROBE_API > 1
static void add(qemu_plugin_u64 counter, unsigned int vcpu, uint64_t value)
{
	qemu_plugin_u64_set(counter, vcpu, qemu_plugin_u64_get(counter, vcpu) + value);
}
#endif

/* Another entry of a block, or one less; false where there was none. */
static bool count_entry(struct block *block, unsigned int vcpu, int64_t entries)
{
#if PROBE_API > 1
	if (inlined) {
		if (entries < 0 && qemu_plugin_u64_get(block->counter, vcpu) == 0)
			return false;
		add(block->counter, vcpu, entries);
		return true;
	}
#endif
	if (entries < 0 && block->entries[vcpu] == 0)
		return false;
	block->entries[vcpu] += entries;
	return true;
}

void uncount(struct block *block, unsigned int vcpu, unsigned int executed_of,
	     const uint16_t of_kinds[KINDS_COUNTED])
{
	uint64_t rest = block->instructions - executed_of;
	struct kinds of;

#if PROBE_API > 1
	if (inlined && clocked)
		add(board_clock, vcpu, -rest);
#endif
	lanes[vcpu].clock -= rest;
	executed -= rest;
	window_left += rest;
	/* A block with a mark in it was counted for the phase before, and is written. */
	if (!count_entry(block, vcpu, -1) || executed_of == 0)
		return;
	memcpy(of.counts, of_kinds, sizeof(of.counts));
	count_entry(block_of(block->address, executed_of, place_of_kinds(&of)), vcpu, 1);
}

size_t bytes_of(const struct qemu_plugin_insn *insn, uint8_t bytes[MAX_BYTES])
{
	size_t size = qemu_plugin_insn_size(insn);

	if (size > MAX_BYTES)
		return 0;
#if PROBE_API < 3
	memcpy(bytes, qemu_plugin_insn_data(insn), size);
	return size;
#else
	return qemu_plugin_insn_data(insn, bytes, size);
#endif
}

static bool is_mark(const uint8_t *bytes, size_t size, uint32_t *number)
{
	if (size != MARK_BYTES)
		return false;
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

/* What an instruction writes to memory, as far as locks are concerned. */
enum writes { NOTHING, EXCHANGES, ADDS, STORES, CLEARS_BYTE };

static enum writes writes(const uint8_t *bytes, size_t size)
{
	const uint8_t *end = bytes + size;

	/* LOCK, the DS prefix in its place, operand size, segments; then REX. */
	while (bytes < end && (*bytes == 0xf0 || *bytes == 0x3e || *bytes == 0x66 ||
			       *bytes == 0x65 || *bytes == 0x2e))
		bytes++;
	if (bytes < end && (*bytes & 0xf0) == 0x40)
		bytes++;
	/* A second operand in a register is no memory. */
	if (end - bytes >= 3 && bytes[0] == 0x0f && bytes[2] < 0xc0)
		return bytes[1] == 0xb1 ? EXCHANGES : bytes[1] == 0xc1 ? ADDS : NOTHING;
	if (end - bytes < 2 || bytes[1] >= 0xc0)
		return NOTHING;
	if (bytes[0] == 0xc6 && (bytes[1] & 0x38) == 0)
		return end[-1] == 0 ? CLEARS_BYTE : STORES;
	return bytes[0] == 0x88 || bytes[0] == 0x89 || bytes[0] == 0xc7 ? STORES : NOTHING;
}

/* The direct target of a CALL or JMP with 32 bits of distance, 0 for anything else. */
static uint64_t target(uint64_t address, const uint8_t *bytes, size_t size)
{
	int32_t distance;

	if (size != 5 || (bytes[0] != 0xe8 && bytes[0] != 0xe9))
		return 0;
	memcpy(&distance, bytes + 1, sizeof(distance));
	return address + size + distance;
}

/* The place that an address is in, or, with ENTRY, begins; -1 for none. */
static int place_of(uint64_t address, bool entry)
{
	for (unsigned int i = 0; i < place_count; i++)
		if (entry ? address == places[i].start :
			    address >= places[i].start && address < places[i].end)
			return i;
	return -1;
}

static void watch_locks(struct qemu_plugin_insn *insn, const uint8_t *bytes, size_t size,
			unsigned int left)
{
	uint64_t address = qemu_plugin_insn_vaddr(insn);
	int here = place_of(address, false);
	int called = here < 0 ? place_of(target(address, bytes, size), true) : -1;
	enum writes what = writes(bytes, size);
	bool takes, frees;

	if (here >= 0 && places[here].kind == SWITCH) {
		/* Of PUSH and POP alone: QEMU 7.2 has calls left for an exception's own stores. */
		if ((bytes[size - 1] & 0xf0) == 0x50 && size <= 2)
			qemu_plugin_register_vcpu_mem_cb(insn, on_switch, QEMU_PLUGIN_CB_NO_REGS,
							 QEMU_PLUGIN_MEM_RW, NULL);
		return;
	}
	if (called >= 0 && places[called].kind < SLOW)
		qemu_plugin_register_vcpu_insn_exec_cb(
			insn, on_call, QEMU_PLUGIN_CB_NO_REGS,
			(void *)(uintptr_t)((address & ((1ull << SITE_BITS) - 1)) |
					    (uint64_t)called << SITE_BITS));
	if (here >= 0 && places[here].kind == SLOW && address == places[here].start)
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_slow, QEMU_PLUGIN_CB_NO_REGS,
						       (void *)(uintptr_t)left);
	if (here >= 0 && places[here].kind != FREE) {
		takes = what == EXCHANGES ||
			(places[here].kind == SLOW ? what == STORES :
						     places[here].kind & SHARED && what == ADDS);
		if (takes)
			qemu_plugin_register_vcpu_mem_cb(
				insn, on_take, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_W,
				(void *)(uintptr_t)((unsigned int)here << 16 | left));
		return;
	}
	frees = what == CLEARS_BYTE || what == ADDS || (here >= 0 && what == EXCHANGES);
	if (frees)
		qemu_plugin_register_vcpu_mem_cb(insn, on_free, QEMU_PLUGIN_CB_NO_REGS,
						 QEMU_PLUGIN_MEM_W, (void *)(uintptr_t)left);
}

bool ends_group(uint64_t address, const uint8_t *bytes, size_t size)
{
	uint32_t number;
	int here;

	if (is_mark(bytes, size, &number))
		return true;
	switch (writes(bytes, size)) {
	case NOTHING:
		return false;
	case STORES:
		here = place_of(address, false);
		return here >= 0 && places[here].kind == SLOW;
	default:
		return true;
	}
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
	block = block_of(address, 1, kinds_of(tb, count - 1, 1));
	if (inlined)
		qemu_plugin_register_vcpu_insn_exec_inline(last, QEMU_PLUGIN_INLINE_ADD_U64,
							   &block->entries[0], 1);
	if (inlined && clocked)
		qemu_plugin_register_vcpu_insn_exec_inline(last, QEMU_PLUGIN_INLINE_ADD_U64,
							   &lanes[0].clock, 1);
	if (!inlined)
		qemu_plugin_register_vcpu_insn_exec_cb(last, counting(), QEMU_PLUGIN_CB_NO_REGS,
						       block);
	count--;
#endif
	return count;
}

static void instrument(struct qemu_plugin_tb *tb)
{
	size_t count = qemu_plugin_tb_n_insns(tb), counted = together(tb);
	uint64_t address = qemu_plugin_tb_vaddr(tb);
	struct block *block = block_of(address, counted, kinds_of(tb, 0, counted));
	/* Locks are the kernel's, whose half of the addresses begins with the same bit. */
	bool may_lock = place_count && (address ^ places[0].start) >> 63 == 0;
	uint8_t bytes[MAX_BYTES];
	uint32_t number;

	if (interrupted)
		discontinuities_watch(tb, block, count);
	if (!inlined)
		qemu_plugin_register_vcpu_tb_exec_cb(tb, counting(), QEMU_PLUGIN_CB_NO_REGS,
						     block);
#if PROBE_API == 1
	else
		qemu_plugin_register_vcpu_tb_exec_inline(tb, QEMU_PLUGIN_INLINE_ADD_U64,
							 &block->entries[0], 1);
	if (inlined && clocked)
		qemu_plugin_register_vcpu_tb_exec_inline(tb, QEMU_PLUGIN_INLINE_ADD_U64,
							 &lanes[0].clock, counted);
#else
	else
		qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
			tb, QEMU_PLUGIN_INLINE_ADD_U64, block->counter, 1);
	if (inlined && clocked)
		qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
			tb, QEMU_PLUGIN_INLINE_ADD_U64, board_clock, counted);
#endif
	if (modelled)
		memory_watch(tb, count, counted);
	if (shared)
		lines_watch(tb, count, counted);
	if (stacked)
		stacks_watch(tb, count, counted);
	for (size_t i = 0; i < count; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		size_t size = bytes_of(insn, bytes);

		if (is_mark(bytes, size, &number))
			qemu_plugin_register_vcpu_insn_exec_cb(
				insn, on_mark, QEMU_PLUGIN_CB_NO_REGS, (void *)(uintptr_t)number);
		else if (may_lock)
			/* One that counts by itself has counted before it is executed. */
			watch_locks(insn, bytes, size, i < counted ? counted - i : count - i);
	}
}

static void finish(void)
{
	struct trailer trailer = { .phase = TRAILER_PHASE };
	const struct misses *misses = NULL;
	const struct move *moves = NULL;
	const struct slab *slabs = NULL;
	const struct interruption *interruptions;
	const struct path *paths = NULL;
	const struct spent *stacks = NULL;
	size_t missed = 0, moved_count = 0, slab_count = 0, interruption_count;
	size_t path_count = 0, stack_count = 0;

	take_all();
	take_spans();
	take_locks();
	if (modelled) {
		memory_mark(phase);
		misses = memory_rows(&missed, &trailer.unmapped);
	}
	if (shared) {
		lines_mark(phase);
		moves = lines_rows(&moved_count);
	}
	if (stacked) {
		stacks_mark(phase);
		paths = stacks_paths(&path_count);
		stacks = stacks_rows(&stack_count);
	}
	slabs = lines_slabs(&slab_count);
	discontinuities_mark(phase);
	interruptions = discontinuities_rows(&interruption_count);
	write_all(written, sizeof(*written), written_count);
	write_all(misses, sizeof(*misses), missed);
	write_all(kinds_written, sizeof(*kinds_written), kinds_count);
	write_all(moves, sizeof(*moves), moved_count);
	write_all(slabs, sizeof(*slabs), slab_count);
	write_all(interruptions, sizeof(*interruptions), interruption_count);
	write_all(paths, sizeof(*paths), path_count);
	write_all(stacks, sizeof(*stacks), stack_count);
	trailer.lost = lost;
	trailer.rows = rows;
	trailer.locks = written_count;
	trailer.misses = missed;
	trailer.kinds = kinds_count;
	trailer.moves = moved_count;
	trailer.slabs = slab_count;
	trailer.interruptions = interruption_count;
	trailer.paths = path_count;
	trailer.stacks = stack_count;
	write_all(&trailer, sizeof(trailer), 1);
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

/* WORD=START-END, hexadecimal. */
static bool range(const char *argument, uint64_t *start, uint64_t *end)
{
	char *at;

	*start = strtoull(strchr(argument, '=') + 1, &at, 16);
	*end = *at == '-' ? strtoull(at + 1, &at, 16) : 0;
	return *at == 0 && *end > *start;
}

static enum place_kind place_kind(const char *argument)
{
	enum place_kind kind = 0;

	while (kind < KINDS && strncmp(argument, PLACE_WORDS[kind], strlen(PLACE_WORDS[kind])))
		kind++;
	return kind;
}

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	struct header header = { "TWINPROB", 9, 0, 0, 0, 0, 0, 0, 0 };
	const char *path = NULL;

	for (int i = 0; i < argc; i++) {
		int of_memory = lines_argument(argv[i]);

		if (of_memory == 0)
			of_memory = memory_argument(argv[i]);
		if (of_memory == 0)
			of_memory = stacks_argument(argv[i]);
		if (of_memory == 0)
			of_memory = groups_argument(argv[i]);
		if (of_memory < 0) {
			fprintf(stderr, "probe: cannot be used: %s\n", argv[i]);
			return -1;
		}
		if (of_memory > 0)
			continue;
		if (strncmp(argv[i], "out=", 4) == 0) {
			path = argv[i] + 4;
		} else if (strncmp(argv[i], "window=", 7) == 0) {
			window_size = strtoull(argv[i] + 7, NULL, 10);
		} else if (strncmp(argv[i], "span=", 5) == 0 && span_count < MAX_SPANS) {
			if (!range(argv[i], &spans[span_count].start, &spans[span_count].end)) {
				fprintf(stderr, "probe: no span: %s\n", argv[i]);
				return -1;
			}
			span_count++;
		} else if (place_kind(argv[i]) != KINDS && place_count < MAX_PLACES) {
			struct place *place = &places[place_count++];

			place->kind = place_kind(argv[i]);
			if (!range(argv[i], &place->start, &place->end)) {
				fprintf(stderr, "probe: no function: %s\n", argv[i]);
				return -1;
			}
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
	vcpus = info->system.smp_vcpus;
#if PROBE_API >= 3
	cpu_of = (void *(*)(int))dlsym(RTLD_DEFAULT, "qemu_get_cpu");
	if (vcpus > 1 && (cpu_of == NULL || dlsym(RTLD_DEFAULT, "current_cpu") == NULL)) {
		fprintf(stderr, "probe: QEMU does not export which of several vCPUs executes\n");
		return -1;
	}
#endif
	shared = lines_wanted(vcpus);
	modelled = !shared && memory_wanted() > 0;
	if (!shared && (memory_wanted() < 0 || (modelled && vcpus > 1))) {
		fprintf(stderr, "probe: a machine is cache=l1d:, l1i:, l2: and llc:, of one vCPU\n");
		return -1;
	}
	out = fopen(path, "wb");
	if (out == NULL) {
		perror(path);
		return -1;
	}
	inlined = window_size == 0 && span_count == 0 && vcpus == 1;
	stays = more(NULL, vcpus, sizeof(*stays));
	memset(stays, 0, vcpus * sizeof(*stays));
	lanes = more(NULL, vcpus, sizeof(*lanes));
	memset(lanes, 0, vcpus * sizeof(*lanes));
#if PROBE_API > 1
	board_clock.score = qemu_plugin_scoreboard_new(sizeof(uint64_t));
#endif
	header.vcpus = vcpus;
	header.window = window_size;
	header.spans = span_count;
	header.modelled = modelled;
	header.shared = shared;
	interrupted = discontinuities_begin(id, vcpus);
	header.interrupted = interrupted;
	stacked = stacks_begin(vcpus);
	header.stacked = stacked;
	clocked = place_count || stacked;
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
