/*
 * Lines that move between the CPUs of a guest: a model of private caches, and who took what from whom.
 *
 * It changes nothing: what the guest computes, and its clock, are those of a run without it.
 * Arguments (guests/probe/lines.py makes them):
 *
 *   private=SETS:WAYS   the private cache of each vCPU, of lines of 64 bytes
 *   of_cpu=BYTES        how long the variables of a CPU are (hexadecimal)
 *   slabs=LIST:...      the kernel's list of slab caches (hexadecimal), and in bytes: its place in a
 *                       kmem_cache, those of name, size and refcount; those of slab_cache in a slab
 *                       and of compound_head in a page; and a page's size
 *   sections=TABLE:...  of a kernel without a virtual memory map: mem_section (hexadecimal), the
 *                       place of section_mem_map in an entry, and an entry's size
 *   swapper=, init_mm=, percpu=, ram=   as in memory.c: where the variables of each CPU are
 *
 * Each vCPU has a cache of the machine's private level; the least recently used line goes first.
 * A line is in several to be read, or in one that may write it.  Only data is followed.
 *
 * A transfer is counted where a vCPU
 *   reads a line that another one wrote since this one had it, while that is in some vCPU's cache, or
 *   writes a line that is in the cache of another, which loses it.
 * An atomic instruction takes its line once, to write.  A line that nobody has comes from the shared
 * cache or from memory, and is none.
 *
 * A transfer is false sharing where, until it loses the line again, the taker touches no byte that
 * the others wrote since it last had the line, or, where it took it from readers, that they read.
 *
 * Lines are known by their physical addresses.  A page's is asked for once and kept until this vCPU
 * writes CR3 or executes INVLPG or INVPCID; those of the direct map and the kernel's image do not
 * change.  Of an access that lies in two pages only the first part is followed.
 *
 * One callback stands for a group of accesses (groups.c).  Where this vCPU has the line, and may write
 * it where it is written, they come to the same in any order, for a turn ends with a block; else each
 * is followed in its order.
 *
 * The model begins empty, with the first phase, and goes on between phases.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

#define LINE_BITS 6
#define LINE_BYTES (1u << LINE_BITS)
#define PAGE_BITS 12
#define SLOTS 2048u
/* Of translations that do not change. */
#define EVERY_GENERATION UINT64_MAX
#define CHUNK_BITS 12
/* As many lines as 256 GiB have. */
#define CHUNKS (1u << 20)
/* Bits of the vCPUs that have a line. */
#define MAX_VCPUS 32u
#define USER_END (1ull << 63)
#define DIRECT_MAP 0xffff888000000000u
#define DIRECT_MAP_END 0xffffc88000000000u
#define PAGE_STRUCTS 0xffffea0000000000u
#define PAGE_STRUCTS_END 0xffffeb0000000000u
/* Without a virtual memory map page structures are of sections. */
#define SECTION_BITS 27
#define SECTION_PAGES (1u << (SECTION_BITS - PAGE_BITS))
#define MAX_SECTIONS 1024u
#define KERNEL_IMAGE 0xffffffff80000000u
/* What a line is of, where it is no address in the kernel's image. */
#define OF_CPU 0x0050435500000000u
#define OF_PAGES 0x0050474500000000u
#define OF_USER 0x0055534500000000u
#define OF_MEMORY 0x004d454d00000000u
/* An object of a slab cache: the cache's number, and where in the object the line begins, + 64. */
#define OF_SLAB 0x00534c4100000000u
#define SLAB_BITS 20
#define MAX_SLABS (1u << (32 - SLAB_BITS))

/*
 * A line in one vCPU's cache, in as much of the host's.  FRESH are bytes whose touch makes its last
 * transfer, MOVE, a true one.
 */
struct copy {
	uint64_t line; /* its number + 1, 0 for none */
	uint64_t used, written, touched, fresh;
	const void *reader, *writer; /* the blocks that touched it last */
	uint32_t move;
	bool own;
} __attribute__((aligned(LINE_BYTES)));

/* By virtual line, good as long as the vCPU's translations are of no later generation. */
struct slot {
	uint64_t line, number, generation;
	struct copy *copy;
};

/* Of a slot without one: no line's number. */
static struct copy nobodys;

static struct private {
	struct copy *copies;
	struct slot slots[SLOTS];
	uint64_t generation;
	uint64_t of_cpu; /* where its variables are */
	/* Accesses of a group in a page that was not known yet: from the one of this number on. */
	const struct touched *later;
	unsigned int later_from;
	qemu_plugin_meminfo_t later_info;
	uint64_t later_address;
} *privates;

/* Of a line that was written while another vCPU was interested: bytes that each has not read yet. */
struct history {
	const void *writer;
	uint64_t fresh[];
};

/* A line, by its number: who has it, and where each has it in the set that it belongs to. */
struct entry {
	uint32_t holders, history; /* its number, 0 for none */
	uint8_t ways[];
};

struct watched {
	uint64_t address;
};

/* A group of accesses (groups.c): the bytes that it reads and writes, from LOW on, as bits. */
struct touched {
	const struct watched *block;
	uint64_t loads, stores;
	int8_t low, high;
	uint8_t count;
	uint8_t again;
	uint64_t half; /* for is_called_again() */
	struct access accesses[];
};

static char *chunks[CHUNKS];
static size_t entry_bytes;
static struct history **histories;
static uint32_t history_count, history_room;
static uint32_t sets, ways;
static unsigned int vcpus;
static uint64_t now, of_cpu_bytes;
static bool on;

static struct move *moves;
static uint32_t move_count, move_room, *move_table, move_slots;
static struct move *written;
static size_t written_count;

static struct {
	uint64_t list;
	unsigned int next, name, size, refcount, cache, head, page;
} at_slab = { .page = 64 };
static struct {
	uint64_t table;
	unsigned int map, size;
} at_section;
/* Structures of pages, from that of page FIRST on. */
static struct pages {
	uint64_t start, end, first;
} page_structs[MAX_SECTIONS] = { { PAGE_STRUCTS, PAGE_STRUCTS_END, 0 } };
static uint32_t page_structs_count = 1;
static struct slab *slabs;
static uint64_t *slab_caches;
static uint32_t slab_count;

static struct entry *entry_of(uint64_t number)
{
	char **chunk = &chunks[number >> CHUNK_BITS & (CHUNKS - 1)];

	if (*chunk == NULL)
		*chunk = kept(1u << CHUNK_BITS, entry_bytes);
	return (struct entry *)(*chunk + (number & ((1u << CHUNK_BITS) - 1)) * entry_bytes);
}

static struct copy *set_of(unsigned int vcpu, uint64_t number)
{
	return privates[vcpu].copies + (size_t)(number & (sets - 1)) * ways;
}

/* That of a vCPU that has the line. */
static struct copy *copy_of(const struct entry *entry, unsigned int vcpu, uint64_t number)
{
	return set_of(vcpu, number) + entry->ways[vcpu];
}

static uint64_t address_of(const void *block)
{
	return block ? ((const struct watched *)block)->address : 0;
}

static uint32_t *move_slot(uint64_t object, uint64_t to, uint64_t from)
{
	uint64_t key = (object ^ to << 20 ^ from << 7) * 0x9e3779b97f4a7c15u;
	uint32_t slot = (key ^ key >> 32) & (move_slots - 1);

	while (move_table[slot] &&
	       (moves[move_table[slot]].object != object || moves[move_table[slot]].to != to ||
		moves[move_table[slot]].from != from))
		slot = (slot + 1) & (move_slots - 1);
	return &move_table[slot];
}

/* The row of a transfer; number 0 is none. */
static uint32_t move_of(uint64_t object, uint64_t to, uint64_t from)
{
	uint32_t *slot;

	if ((move_count + 1) * 2 >= move_slots) {
		move_slots = move_slots ? move_slots * 2 : 1 << 12;
		move_table = more(move_table, move_slots, sizeof(*move_table));
		memset(move_table, 0, move_slots * sizeof(*move_table));
		for (uint32_t i = 1; i <= move_count; i++)
			*move_slot(moves[i].object, moves[i].to, moves[i].from) = i;
	}
	slot = move_slot(object, to, from);
	if (*slot == 0) {
		if (move_count + 2 >= move_room) {
			move_room = move_room ? move_room * 2 : 1 << 12;
			moves = more(moves, move_room, sizeof(*moves));
		}
		*slot = ++move_count;
		moves[*slot] = (struct move){ .object = object, .to = to, .from = from };
	}
	return *slot;
}

static void read_sections(void)
{
	uint64_t per_root = (1u << PAGE_BITS) / at_section.size, roots = memory_word(at_section.table);

	page_structs_count = 0;
	for (uint64_t section = 0; roots && section < MAX_SECTIONS; section++) {
		uint64_t root = memory_word(roots + section / per_root * sizeof(root)), map;

		if (root == 0)
			continue;
		map = memory_word(root + section % per_root * at_section.size + at_section.map);
		/* Below a page's size are flags; it is where page 0 would be. */
		map &= ~(uint64_t)((1u << PAGE_BITS) - 1);
		if (map)
			page_structs[page_structs_count++] = (struct pages){
				map + section * SECTION_PAGES * at_slab.page,
				map + (section + 1) * SECTION_PAGES * at_slab.page,
				section * SECTION_PAGES,
			};
	}
}

/* The structures that the one at an address is among; NULL where it is none. */
static const struct pages *page_structs_at(uint64_t address)
{
	for (uint32_t i = 0; i < page_structs_count; i++)
		if (address >= page_structs[i].start && address < page_structs[i].end)
			return &page_structs[i];
	return NULL;
}

static uint64_t page_struct_of(uint64_t page)
{
	for (uint32_t i = 0; i < page_structs_count; i++) {
		const struct pages *some = &page_structs[i];

		if (page >= some->first && (page - some->first) * at_slab.page < some->end - some->start)
			return some->start + (page - some->first) * at_slab.page;
	}
	return 0;
}

/* The slab caches that there are now; those that were there keep their numbers. */
static void list_slabs(void)
{
	uint64_t list = at_slab.list, node = memory_word(list);

	for (uint32_t i = 0; i < MAX_SLABS && node && node != list; i++, node = memory_word(node)) {
		uint64_t cache = node - at_slab.next, name = memory_word(cache + at_slab.name);
		uint32_t known = 0;
		struct slab *slab;

		while (known < slab_count && slab_caches[known] != cache)
			known++;
		if (known == slab_count) {
			if (slab_count == MAX_SLABS)
				return;
			slabs = more(slabs, slab_count + 1, sizeof(*slabs));
			slab_caches = more(slab_caches, slab_count + 1, sizeof(*slab_caches));
			slab_caches[slab_count++] = cache;
		}
		slab = &slabs[known];
		memset(slab, 0, sizeof(*slab));
		for (size_t at = 0; at < sizeof(slab->name) - 1; at++) {
			slab->name[at] = (char)memory_word(name + at);
			if (slab->name[at] == 0)
				break;
		}
		slab->size = (uint32_t)memory_word(cache + at_slab.size);
		slab->users = (uint32_t)memory_word(cache + at_slab.refcount);
	}
}

uint64_t slab_object(uint64_t address)
{
	uint64_t line = address & ~(uint64_t)(LINE_BYTES - 1), page, head, cache, start, object;
	const struct pages *among;

	if (slab_count == 0 || address < DIRECT_MAP || address >= DIRECT_MAP_END)
		return 0;
	page = page_struct_of(address - DIRECT_MAP >> PAGE_BITS);
	head = page ? memory_word(page + at_slab.head) : 0;
	if (head & 1)
		page = head - 1;
	among = page_structs_at(page);
	if (among == NULL)
		return 0;
	cache = memory_word(page + at_slab.cache);
	for (uint32_t i = 0; i < slab_count; i++) {
		if (slab_caches[i] != cache || slabs[i].size == 0)
			continue;
		start = among->first + (page - among->start) / at_slab.page;
		start = DIRECT_MAP + (start << PAGE_BITS);
		object = start + (address - start) / slabs[i].size * slabs[i].size;
		return OF_SLAB + ((uint64_t)i << SLAB_BITS) +
		       (line + LINE_BYTES - object & ((1u << SLAB_BITS) - 1));
	}
	return 0;
}

/* What a line is of, by the address that it is touched at. */
static uint64_t object_of(unsigned int vcpu, uint64_t address)
{
	uint64_t line = address & ~(uint64_t)(LINE_BYTES - 1), object;

	if (address < USER_END)
		return OF_USER;
	if (address >= KERNEL_IMAGE)
		return line;
	if (page_structs_at(address))
		return OF_PAGES;
	for (unsigned int other = 0; other < vcpus; other++) {
		uint64_t start = privates[(vcpu + other) % vcpus].of_cpu;

		if (start && line - start < of_cpu_bytes)
			return OF_CPU + (line - start);
	}
	object = slab_object(address);
	return object ? object : OF_MEMORY;
}

static struct history *history_of(struct entry *entry)
{
	if (entry->history == 0) {
		size_t size = sizeof(struct history) + vcpus * sizeof(uint64_t);

		if (history_count + 1 >= history_room) {
			history_room = history_room ? history_room * 2 : 1 << 12;
			histories = more(histories, history_room, sizeof(*histories));
		}
		entry->history = ++history_count;
		histories[entry->history] = kept(1, size);
	}
	return histories[entry->history];
}

/* What a vCPU wrote is what others have not read. */
static void publish(struct copy *copy, struct entry *entry, unsigned int vcpu)
{
	struct history *history;

	if (copy->written == 0)
		return;
	history = history_of(entry);
	history->writer = copy->writer;
	for (unsigned int other = 0; other < vcpus; other++)
		if (other != vcpu)
			history->fresh[other] |= copy->written;
	copy->written = 0;
}

static void drop(struct copy *copy, struct entry *entry, unsigned int vcpu)
{
	entry->holders &= ~(1u << vcpu);
	copy->line = 0;
}

/* The least recently used line of the set goes. */
static struct copy *room_for(unsigned int vcpu, uint64_t number)
{
	struct copy *set = set_of(vcpu, number), *oldest = set;

	for (uint32_t at = 0; at < ways; at++) {
		if (set[at].line == 0)
			return &set[at];
		if (set[at].used < oldest->used)
			oldest = &set[at];
	}
	struct entry *entry = entry_of(oldest->line - 1);

	/* Who never had the line has no transfer of it to be told about. */
	if (entry->history)
		publish(oldest, entry, vcpu);
	drop(oldest, entry, vcpu);
	return oldest;
}

/* Have a line in a vCPU's cache, to write it where OWN, and count what that moves. */
static struct copy *fetch(unsigned int vcpu, uint64_t number, bool own, uint64_t address,
			  uint64_t mask, const void *block)
{
	struct entry *entry = entry_of(number);
	struct copy *copy = entry->holders >> vcpu & 1 ? copy_of(entry, vcpu, number) : NULL;
	uint32_t others = entry->holders & ~(1u << vcpu);
	uint64_t fresh = 0, theirs = 0, last = 0;
	const void *from = NULL;
	bool dirty = false;

	for (unsigned int other = 0; others >> other; other++) {
		struct copy *held;

		if (!(others >> other & 1))
			continue;
		held = copy_of(entry, other, number);
		if (held->written) {
			dirty = true;
			from = held->writer;
			theirs |= held->written;
			publish(held, entry, other);
		} else if (own && !dirty && held->used >= last) {
			last = held->used;
			from = held->writer && held->reader == NULL ? held->writer : held->reader;
		}
		held->own = false;
		if (own) {
			fresh |= held->touched;
			drop(held, entry, other);
		}
	}
	if (entry->history) {
		struct history *history = histories[entry->history];

		if (from == NULL && history->fresh[vcpu])
			from = history->writer;
		theirs |= history->fresh[vcpu];
		history->fresh[vcpu] = 0;
	}
	if (copy == NULL) {
		copy = room_for(vcpu, number);
		*copy = (struct copy){ .line = number + 1 };
		entry->holders |= 1u << vcpu;
		entry->ways[vcpu] = copy - set_of(vcpu, number);
	}
	if (own ? others != 0 : others && theirs) {
		uint32_t at = move_of(object_of(vcpu, address), address_of(block), address_of(from));

		fresh |= theirs;
		moves[at].reads += !own;
		moves[at].writes += own;
		moves[at].apart++;
		moves[at].mine |= mask;
		moves[at].theirs |= theirs ? theirs : fresh;
		copy->move = at;
		copy->fresh = fresh;
		moved(vcpu);
	}
	copy->own = own || entry->holders == 1u << vcpu;
	return copy;
}

/* A byte that came from another: the transfer was needed. */
static void touch_fresh(struct copy *copy)
{
	moves[copy->move].apart--;
	copy->fresh = 0;
}

/* Whether an access is of memory, and where that is. */
static bool physical_of(qemu_plugin_meminfo_t info, uint64_t address, uint64_t *physical)
{
	struct qemu_plugin_hwaddr *where = qemu_plugin_get_hwaddr(info, address);

	if (where == NULL || qemu_plugin_hwaddr_is_io(where))
		return false;
	*physical = qemu_plugin_hwaddr_phys_addr(where);
	return true;
}

static inline bool is_fixed(uint64_t address)
{
	return address >= KERNEL_IMAGE || (address >= DIRECT_MAP && address < DIRECT_MAP_END);
}

/* Stacks and variables of CPUs begin at like multiples: their lines are spread. */
static inline struct slot *slot_of(struct private *private, uint64_t line)
{
	return &private->slots[(line ^ line >> 8) & (SLOTS - 1)];
}

static inline bool is_known(const struct private *private, const struct slot *slot, uint64_t line)
{
	return slot->line == line && slot->generation >= private->generation;
}

/* Bytes of a line that this vCPU has are read and written by a block. */
static inline void touch(struct copy *copy, uint64_t loads, uint64_t stores, const void *block)
{
	copy->used = ++now;
	copy->touched |= loads | stores;
	if (copy->fresh & (loads | stores))
		touch_fresh(copy);
	if (stores) {
		copy->written |= stores;
		copy->writer = block;
	}
	if (loads)
		copy->reader = block;
}

/* The same where this vCPU has the line, to write it where OWN; false where it has not. */
static inline bool use(struct private *private, uint64_t address, uint64_t loads, uint64_t stores,
		       bool own, const void *block)
{
	const uint64_t line = address >> LINE_BITS;
	const struct slot *slot = slot_of(private, line);
	struct copy *copy = slot->copy;

	if (!is_known(private, slot, line) || copy->line != slot->number + 1 || (own && !copy->own))
		return false;
	touch(copy, loads, stores, block);
	return true;
}

/* The same where it has not the line, or not to write. */
static __attribute__((noinline)) void take(unsigned int vcpu, qemu_plugin_meminfo_t info,
					   uint64_t address, uint64_t mask, bool own, bool store,
					   const void *block)
{
	struct private *private = &privates[vcpu];
	const uint64_t line = address >> LINE_BITS;
	struct slot *slot = slot_of(private, line);

	if (!is_known(private, slot, line)) {
		uint64_t physical;

		slot->copy = &nobodys;
		if (!physical_of(info, address, &physical)) {
			slot->line = UINT64_MAX;
			return;
		}
		slot->line = line;
		slot->generation = is_fixed(address) ? EVERY_GENERATION : private->generation;
		slot->number = physical >> LINE_BITS;
	}
	slot->copy = fetch(vcpu, slot->number, own, address, mask, block);
	touch(slot->copy, store ? 0 : mask, store ? mask : 0, block);
}

static inline void access_line(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address,
			       uint64_t mask, bool own, bool store, const void *block)
{
	if (!use(&privates[vcpu], address, store ? 0 : mask, store ? mask : 0, own, block))
		take(vcpu, info, address, mask, own, store, block);
}

static void access_bytes(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address,
			 unsigned int size, bool own, bool store, const void *block)
{
	unsigned int first = address & (LINE_BYTES - 1);
	uint64_t bytes = size < LINE_BYTES ? (1ull << size) - 1 : UINT64_MAX;

	access_line(vcpu, info, address, bytes << first, own, store, block);
	if (first + size > LINE_BYTES && (address + size - 1) >> PAGE_BITS == address >> PAGE_BITS) {
		uint64_t behind = (address | (LINE_BYTES - 1)) + 1;

		access_line(vcpu, info, behind, bytes >> (LINE_BYTES - first), own, store, block);
	}
}

/*
 * The accesses of a group, from one on, in their order.  QEMU knows where a page is when it has been
 * accessed: where the group goes on in another one that is not known here, that waits for the
 * vCPU's next callback.
 */
static __attribute__((noinline)) void access_each(unsigned int vcpu, qemu_plugin_meminfo_t info,
						  uint64_t address, const struct touched *touched,
						  unsigned int from, bool may_wait)
{
	struct private *private = &privates[vcpu];

	for (unsigned int n = from; n < touched->count; n++) {
		const struct access *access = &touched->accesses[n];
		const uint64_t here = address + (int64_t)access->distance;

		if (may_wait && here >> PAGE_BITS != address >> PAGE_BITS &&
		    !is_known(private, slot_of(private, here >> LINE_BITS), here >> LINE_BITS)) {
			private->later = touched;
			private->later_from = n;
			private->later_info = info;
			private->later_address = address;
			return;
		}
		access_bytes(vcpu, info, here, access->bytes, access->stores, access->stores,
			     touched->block);
	}
}

static __attribute__((noinline)) void access_later(unsigned int vcpu)
{
	struct private *private = &privates[vcpu];
	const struct touched *touched = private->later;

	private->later = NULL;
	access_each(vcpu, private->later_info, private->later_address, touched,
		    private->later_from, false);
}

/* Whether an access is followed; what waited is, before it. */
static inline bool follows(unsigned int vcpu)
{
	if (__builtin_expect(privates[vcpu].later != NULL, false))
		access_later(vcpu);
	return on;
}

static __attribute__((noinline)) void access_any(unsigned int vcpu, qemu_plugin_meminfo_t info,
						 uint64_t address, unsigned int size, bool own,
						 bool store, const void *block)
{
	if (follows(vcpu))
		access_bytes(vcpu, info, address, size, own, store, block);
}

static void on_access(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *block)
{
	const bool store = qemu_plugin_mem_is_store(info);

	access_any(RUNNING(vcpu), info, address, 1u << qemu_plugin_mem_size_shift(info), store,
		   store, block);
}

static void on_atomic(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *block)
{
	access_any(RUNNING(vcpu), info, address, 1u << qemu_plugin_mem_size_shift(info), true,
		   qemu_plugin_mem_is_store(info), block);
}

/*
 * Where an access is the only one of its group, what QEMU would say of it is known.  No vCPU has a
 * line before the first phase.
 */
static inline void access_alone(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address,
				unsigned int size, bool store, const void *block)
{
	const unsigned int first = address & (LINE_BYTES - 1);
	const uint64_t mask = ((1ull << size) - 1) << first;

	if (__builtin_expect(first + size > LINE_BYTES || privates[vcpu].later ||
				     !use(&privates[vcpu], address, store ? 0 : mask,
					  store ? mask : 0, store, block),
			     false))
		access_any(vcpu, info, address, size, store, store, block);
}

#define CALLBACK(name, size, store)                                                              \
	static void name(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address,        \
			 void *block)                                                            \
	{                                                                                        \
		access_alone(RUNNING(vcpu), info, address, size, store, block);                  \
	}
CALLBACK(on_load_1, 1, false)
CALLBACK(on_load_2, 2, false)
CALLBACK(on_load_4, 4, false)
CALLBACK(on_load_8, 8, false)
CALLBACK(on_store_1, 1, true)
CALLBACK(on_store_2, 2, true)
CALLBACK(on_store_4, 4, true)
CALLBACK(on_store_8, 8, true)

/* Of a line that this vCPU has, to write it where it is written, their order is all the same. */
static inline bool use_group(struct private *private, uint64_t address, const struct touched *touched)
{
	const uint64_t start = address + (int64_t)touched->low;
	const unsigned int first = start & (LINE_BYTES - 1);

	return (address + (int64_t)touched->high) >> LINE_BITS == start >> LINE_BITS &&
	       use(private, start, touched->loads << first, touched->stores << first,
		   touched->stores != 0, touched->block);
}

/* A group that is not in such a line, or may have been called for before. */
static __attribute__((noinline)) void access_group(unsigned int vcpu, qemu_plugin_meminfo_t info,
						   uint64_t address, struct touched *touched)
{
	if (follows(vcpu) &&
	    !(touched->again && is_called_again(touched->again, info, address, &touched->half)) &&
	    !use_group(&privates[vcpu], address, touched))
		access_each(vcpu, info, address, touched, 0, true);
}

static void on_group(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data)
{
	struct touched *touched = data;
	struct private *private = &privates[vcpu = RUNNING(vcpu)];

	if (__builtin_expect(touched->again || private->later || !use_group(private, address, touched),
			     false))
		access_group(vcpu, info, address, touched);
}

static void on_translations(unsigned int vcpu, void *data)
{
	(void)data;
	privates[RUNNING(vcpu)].generation++;
}

static struct touched *touched_by(const struct group *group, const struct watched *block)
{
	const size_t size = group->count * sizeof(*group->accesses);
	struct touched *touched = kept(1, sizeof(*touched) + size);

	*touched = (struct touched){ .block = block, .low = group->low, .high = group->high,
				     .count = group->count, .again = group->again,
				     .half = UINT64_MAX };
	memcpy(touched->accesses, group->accesses, size);
	for (unsigned int n = 0; n < group->count; n++) {
		const struct access *access = &group->accesses[n];
		const unsigned int from = access->distance - group->low;
		uint64_t *mask = access->stores ? &touched->stores : &touched->loads;

		/* A group that is longer than a line is never in one. */
		if (from + access->bytes <= LINE_BYTES)
			*mask |= ((1ull << access->bytes) - 1) << from;
	}
	return touched;
}

static void watch_group(struct qemu_plugin_tb *tb, size_t count, const struct group *group,
			struct watched *block)
{
	static void (*const ALONE[])(unsigned int, qemu_plugin_meminfo_t, uint64_t, void *) = {
		on_load_1, on_load_2, on_load_4, on_load_8,
		on_store_1, on_store_2, on_store_4, on_store_8,
	};
	struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, group->first);
	const struct access *first = &group->accesses[0];
	uint8_t bytes[MAX_BYTES];

	if (group->count > 1)
		qemu_plugin_register_vcpu_mem_cb(insn, on_group, QEMU_PLUGIN_CB_NO_REGS,
						 QEMU_PLUGIN_MEM_RW, touched_by(group, block));
	/* Behind a block's last one QEMU 7.2 has calls left in force for an exception's own accesses. */
	else if (group->count == 1 && group->first + 1 < count && first->bytes <= 8)
		qemu_plugin_register_vcpu_mem_cb(
			insn, ALONE[first->stores * 4 + __builtin_ctz(first->bytes)],
			QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, block);
	else
		qemu_plugin_register_vcpu_mem_cb(
			insn,
			kinds_mask(bytes, bytes_of(insn, bytes)) & 1u << ATOMIC ? on_atomic : on_access,
			QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, block);
}

void lines_watch(struct qemu_plugin_tb *tb, size_t count, size_t counted)
{
	struct watched *block = kept(1, sizeof(*block));
	const struct group *groups;
	size_t group_count = groups_of(tb, count, counted, &groups);
	uint8_t bytes[MAX_BYTES];

	block->address = qemu_plugin_tb_vaddr(tb);
	for (size_t i = 0; i < count; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);

		if (drops_translations(bytes, bytes_of(insn, bytes)) != KEPT)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_translations,
							       QEMU_PLUGIN_CB_NO_REGS, NULL);
	}
	for (size_t n = 0; n < group_count; n++)
		watch_group(tb, count, &groups[n], block);
}

void lines_mark(uint32_t phase)
{
	if (!on) {
		for (unsigned int vcpu = 0; vcpu < vcpus; vcpu++)
			privates[vcpu].of_cpu = memory_of_cpu(vcpu);
		on = true;
		return;
	}
	if (phase && move_count) {
		written = more(written, written_count + move_count, sizeof(*written));
		for (uint32_t i = 1; i <= move_count; i++) {
			moves[i].phase = phase;
			written[written_count++] = moves[i];
		}
	}
	if (move_count)
		memset(move_table, 0, move_slots * sizeof(*move_table));
	move_count = 0;
	/* No copy's last transfer is of the phase that begins. */
	for (unsigned int vcpu = 0; vcpu < vcpus; vcpu++)
		for (size_t at = 0; at < (size_t)sets * ways; at++)
			privates[vcpu].copies[at].fresh = 0;
}

const struct move *lines_rows(size_t *count)
{
	*count = written_count;
	return written;
}

bool slabs_wanted(void)
{
	return at_slab.list != 0;
}

void slabs_read(void)
{
	if (!slabs_wanted())
		return;
	if (at_section.table)
		read_sections();
	list_slabs();
}

const struct slab *lines_slabs(size_t *count)
{
	*count = slab_count;
	return slabs;
}

int lines_argument(const char *argument)
{
	char rest, *end;

	if (strncmp(argument, "sections=", 9) == 0)
		return sscanf(argument + 9, "%lx:%u:%u%c", &at_section.table, &at_section.map,
			      &at_section.size, &rest) == 3 && at_section.size &&
		       at_section.size <= 1u << PAGE_BITS ? 1 : -1;
	if (strncmp(argument, "slabs=", 6) == 0)
		return sscanf(argument + 6, "%lx:%u:%u:%u:%u:%u:%u:%u%c", &at_slab.list, &at_slab.next,
			      &at_slab.name, &at_slab.size, &at_slab.refcount, &at_slab.cache,
			      &at_slab.head, &at_slab.page, &rest) == 8 && at_slab.page ? 1 : -1;

	if (strncmp(argument, "of_cpu=", 7) == 0) {
		of_cpu_bytes = strtoull(argument + 7, &end, 16);
		return *end ? -1 : 1;
	}
	if (strncmp(argument, "private=", 8))
		return 0;
	if (sscanf(argument + 8, "%u:%u%c", &sets, &ways, &rest) != 2 || !ways ||
	    ways > UINT8_MAX || !sets || sets & (sets - 1))
		return -1;
	return 1;
}

bool lines_wanted(unsigned int count)
{
	if (sets == 0 || count > MAX_VCPUS)
		return false;
	vcpus = count;
	entry_bytes = (sizeof(struct entry) + vcpus + sizeof(uint64_t) - 1) / sizeof(uint64_t) *
		      sizeof(uint64_t);
	privates = more(NULL, vcpus, sizeof(*privates));
	memset(privates, 0, vcpus * sizeof(*privates));
	for (unsigned int vcpu = 0; vcpu < vcpus; vcpu++) {
		size_t size = (size_t)sets * ways * sizeof(struct copy);

		privates[vcpu].copies = kept(1, size);
		privates[vcpu].generation = 1;
		for (unsigned int at = 0; at < SLOTS; at++)
			privates[vcpu].slots[at] = (struct slot){ .line = UINT64_MAX, .copy = &nobodys };
	}
	return true;
}
