/*
 * A model of the caches and TLBs of one core, fed with what a guest of one vCPU executes.
 *
 * It reads the guest's memory and changes nothing: what the guest computes, and its clock, are
 * those of a run without it.  Arguments (guests/probe/memory.py makes them):
 *
 *   cache=LEVEL:SETS:WAYS         l1d, l1i, l2 and llc, of lines of 64 bytes
 *   tlb=LEVEL:SIZES:SETS:WAYS     d1, i1 (first level), d2, i2 (second; s2 is both); SIZES is a
 *                                 sum of 1 (pages of 4 KiB), 2 (2 MiB) and 4 (1 GiB)
 *   prefetch=LINES                lines that a stream is fetched ahead, 0 for none
 *   ram=PATH                      the file that the guest's memory is
 *   swapper=, init_mm=, percpu=, tlbstate=ADDRESS
 *                                 the kernel's swapper_pg_dir, init_mm and __per_cpu_offset, and
 *                                 where cpu_tlbstate is in the variables of a CPU (hexadecimal)
 *   root=ADDRESS                  instead of these: one page table, by its physical address
 *
 * Without swapper= and root= nothing is paged: addresses are physical, and there are no TLBs.
 *
 * Caches are replaced by the least recently used line.  A line comes into L1, L2 and LLC at once,
 * and goes from each by itself (no level includes another, none is filled by what another drops).
 * Writes are reads: what is written back is not counted.  Two lines of a 4 KiB page that miss in
 * L1 one after the other, up or down, are a stream, of which lines ahead in the page are fetched
 * into L2 and LLC; they arrive at once.  Walks of page tables do not go through the caches.
 *
 * Translations are those of the guest's own page tables, which are walked where the modelled TLBs
 * miss, so the sizes of pages are those in use.  A write of CR3 drops what is not global: the
 * guest's CPU has no PCID.  INVLPG does not say to a plugin which page it is for: from then on
 * each entry is compared with the page tables once, when it is next used, and one that differs is
 * gone.  User pages are those of the mm in cpu_tlbstate.loaded_mm (its first member), which the
 * kernel sets behind its write of CR3: it is read when a user address is first missed.
 *
 * The model begins empty, with the first phase, and goes on between phases.
 *
 * One callback stands for a group of accesses (groups.c): lines are used in the order that they are
 * accessed in, and one that is used twice in a row is as new as one that is used once.  The callback of
 * a block's first access is for its lines of code besides, where it surely comes.
 *
 * What was used last is known by stamps, so that an access of a line that is in L1, on a page that
 * is in the first TLB, is two stamps: tables remember which entry a page had and where a line was.
 * They are as good as what they name is still there; a write of CR3 and INVLPG empty that of pages.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

#define LINE_BITS 6
#define PAGE_BITS 12
#define PAGE_BYTES (1u << PAGE_BITS)
#define LINE_BYTES (1u << LINE_BITS)
#define LINES_OF_PAGE (1u << (PAGE_BITS - LINE_BITS))
#define KERNEL_MAP 0xffffffff80000000u
#define KERNEL_HALF (1ull << 63)
#define PRESENT 1u
#define WRITABLE 2u
#define LARGE 0x80u
#define GLOBAL 0x100u
#define FRAME 0x000ffffffffff000ull
/* Where QEMU's pc leaves a hole below 4 GiB (hw/i386/pc_piix.c). */
#define MOST_BELOW 0xe0000000u
#define BELOW 0xc0000000u
#define HIGH (1ull << 32)
#define MAX_TLBS 4
#define HINTS 256u
/* Of how many pages, and lines, it is remembered where they were. */
#define PAGES 1024u
#define LINES 8192u
/* Of a virtual line's number; in the bits above is that of a block, where those have room for it. */
#define LINE_NUMBER_BITS (48 - LINE_BITS)
#define LINE_NUMBERS ((1ull << LINE_NUMBER_BITS) - 1)
#define MAX_NUMBERED (1u << (64 - LINE_NUMBER_BITS))
/* Where an access stands for its block's lines, too, the logarithm of its bytes is between them. */
#define SIZE_AT LINE_NUMBER_BITS
#define SIZE 7u
#define NUMBER_AT (SIZE_AT + 3)
#define MAX_NUMBERED_WITH_SIZE (1u << (64 - NUMBER_AT))
#define CODES_BITS 12
#define STREAMS 32
/* An mm_struct is no longer than that. */
#define MM_BYTES 4096u
#define NOWHERE UINT64_MAX

/* Tags are numbers of lines + 1, 0 is none; those of a set are in the order of use, the last first. */
struct cache {
	uint32_t sets, ways, *tags;
};

/*
 * Places of L1, a set's in STRIDE of them: their tags, LANES of which are compared at once, and when
 * each was used last.  Places that only fill a set up have no line and are the newest.
 */
#define LANES 4u
typedef uint32_t lanes_of_tags __attribute__((vector_size(LANES * sizeof(uint32_t)), may_alias));
struct l1 {
	uint32_t sets, stride;
	uint32_t *tags;
	uint64_t *used;
};

/* Numbered so that a sum of 1 << SIZE names several. */
enum page_size { SMALL, LARGE_2M, HUGE_1G, SIZES };
static const unsigned int BITS[SIZES] = { 12, 21, 30 };

/*
 * A key is the number of the page, its size, and for one that is not global the address space, in
 * the upper bits; 0 is none.
 */
#define SPACE_SHIFT 40
struct entry {
	uint64_t key, frame; /* frame: the physical address of the page */
	uint64_t used;
	uint32_t epoch;
};

struct tlb {
	uint32_t sizes, sets, ways;
	struct entry *entries;
};

/* HINTS are entries that had a page last: where to look first, and no more. */
struct level {
	unsigned int count;
	struct tlb tlbs[MAX_TLBS];
	struct entry *hints[HINTS];
};

/* The entry that a page has in the first TLB, while that has this key, and the tag of its first line. */
struct page {
	uint64_t number, key;
	struct entry *entry;
	uint32_t tag;
};

/* What data go through, and what code does; HINTS are where in L1 lines were. */
struct side {
	struct l1 l1;
	struct level first, second;
	struct page pages[PAGES];
	uint16_t hints[LINES];
	enum miss of_l1;
};

/* A block. */
struct code {
	uint64_t line;
	uint32_t lines, instructions;
	uint64_t address, counts[MISSES];
};

/*
 * A callback of data is given the address of what it is for, and in the bits above that what is asked
 * each time: of a block's access, up to where in a line it is in that line alone; of a group, LOW and
 * HIGH, and in the lowest bits whether it is called again, to store or for a second half, and whether its
 * last access reaches to HIGH.  Elsewhere that would be one more line of the host's caches, which those
 * of thousands of blocks do not fit into.
 */
#define ADDRESS_BITS 48
#define LIMIT_AT 56
#define LOW_AT 48
#define HIGH_AT 56
#define IS_STORED 1u
#define IS_HALVED 2u
#define ENDS_HIGH 4u
#define FLAGS 7u
/* No access has more bytes at once. */
#define MOST_BYTES 16

/* A group of accesses, and the block whose they are. */
struct touched {
	struct code *code;
	int8_t end; /* of the last one */
	uint8_t count;
	uint64_t half; /* for is_called_again() */
	struct access accesses[];
};

static struct side of_data = { .of_l1 = MISS_L1D }, of_code = { .of_l1 = MISS_L1I };
static struct cache l2, llc;
static uint64_t now;
static uint32_t ahead;
/*
 * Lines of a page that missed in L1: the last one, the way they go, and the farthest asked for.  Streams
 * are a ring in the order of use; behind the one of number STREAMS, which is none, is the newest.
 */
static struct stream {
	int32_t last, way, until;
	uint32_t page; /* with 1 added, 0 is none */
	uint32_t older, newer;
} streams[STREAMS + 1];

/* Of a page of memory: its lines that are in L2, as bits, and the stream that it had last. */
struct frame {
	uint64_t in_l2;
	uint32_t stream;
};
/* Chunks of them, by number. */
#define CHUNK_BITS 12
static struct frame *frames[1u << (32 - (PAGE_BITS - LINE_BITS) - CHUNK_BITS)];

static char *ram_path;
static const uint8_t *ram;
static uint64_t ram_bytes;
static uint64_t swapper, init_mm, percpu, tlbstate, given_root;
static uint64_t kernel_root, user_root, pgd_at;
static uint64_t space = 1;
static uint32_t epoch;
static bool paged, on, user_known;

/* Blocks by number, in pieces that stay where they are. */
static struct code **codes;
static uint32_t code_count;
static struct misses *rows;
static size_t row_count, row_room;
static uint64_t unmapped;
/* The page of an access without page tables. */
static struct entry unpaged = { .key = 1 };

static bool is_power_of_two(uint32_t number)
{
	return number && !(number & (number - 1));
}

/* Use a line of an L1, and say where it is from now on; whether it was there. */
static inline bool touch(const struct l1 *l1, uint32_t tag, uint16_t *hint)
{
	const uint32_t first = ((tag - 1) & (l1->sets - 1)) * l1->stride;
	const lanes_of_tags *tags = (const lanes_of_tags *)(l1->tags + first);
	lanes_of_tags number = { 1, 2, 3, 4 }, found = { 0 };
	uint64_t least = UINT64_MAX;
	uint32_t at, oldest = first;

	/* To the end: where it is cannot be foreseen, and a wrong guess costs the host more. */
	for (uint32_t n = 0; n < l1->stride / LANES; n++, number += LANES)
		found |= (lanes_of_tags)(tags[n] == tag) & number;
	at = found[0] | found[1] | found[2] | found[3];
	if (at) {
		*hint = first + at - 1;
		l1->used[*hint] = now;
		return true;
	}
	for (uint32_t each = first; each < first + l1->stride; each++) {
		const uint64_t used = l1->used[each];

		oldest = used < least ? each : oldest;
		least = used < least ? used : least;
	}
	*hint = oldest;
	l1->tags[oldest] = tag;
	l1->used[oldest] = now;
	return false;
}

static inline uint32_t *tags_of(const struct cache *cache, uint32_t line)
{
	return cache->tags + (size_t)(line & (cache->sets - 1)) * cache->ways;
}

/* Use a line of a cache below; whether it was there. */
static inline bool touch_below(struct cache *cache, uint32_t line)
{
	uint32_t *set = tags_of(cache, line), before = line + 1;

	for (uint32_t at = 0; at < cache->ways; at++) {
		uint32_t tag = set[at];

		set[at] = before;
		if (tag == line + 1)
			return true;
		before = tag;
	}
	return false;
}

static inline struct frame *frame_of(uint32_t line)
{
	const uint32_t page = line / LINES_OF_PAGE;
	struct frame **chunk = &frames[page >> CHUNK_BITS];

	if (*chunk == NULL)
		*chunk = kept(1u << CHUNK_BITS, sizeof(**chunk));
	return *chunk + (page & ((1u << CHUNK_BITS) - 1));
}

static inline uint64_t bit_of(uint32_t line)
{
	return 1ull << line % LINES_OF_PAGE;
}

/* Use a line of L2; whether it was there. */
static inline bool touch_l2(struct frame *frame, uint32_t line)
{
	uint32_t *set = tags_of(&l2, line), gone = set[l2.ways - 1];

	if (frame->in_l2 & bit_of(line))
		return touch_below(&l2, line);
	memmove(set + 1, set, (l2.ways - 1) * sizeof(*set));
	set[0] = line + 1;
	frame->in_l2 |= bit_of(line);
	if (gone)
		frame_of(gone - 1)->in_l2 &= ~bit_of(gone - 1);
	return false;
}

static void move_stream(uint32_t number)
{
	struct stream *stream = &streams[number], *none = &streams[STREAMS];

	streams[stream->older].newer = stream->newer;
	streams[stream->newer].older = stream->older;
	stream->newer = STREAMS;
	stream->older = none->older;
	streams[none->older].newer = number;
	none->older = number;
}

/* The stream of a page, which is the newest then; where there is none the oldest becomes it: KNOWN. */
static struct stream *stream_of(struct frame *frame, uint32_t page, int32_t at, bool *known)
{
	*known = streams[frame->stream].page == page + 1;
	if (!*known) {
		frame->stream = streams[STREAMS].newer;
		streams[frame->stream].last = streams[frame->stream].until = at;
		streams[frame->stream].way = 0;
		streams[frame->stream].page = page + 1;
	}
	move_stream(frame->stream);
	return &streams[frame->stream];
}

/* A line missed in L1: part of a stream, whose next lines are fetched? */
static void prefetch(struct frame *frame, uint32_t line, struct code *code)
{
	const uint32_t page = line / LINES_OF_PAGE;
	const int32_t at = line % LINES_OF_PAGE;
	bool known;
	struct stream *stream = stream_of(frame, page, at, &known);
	int32_t way, from, to;

	if (!known)
		return;
	way = at - stream->last;
	stream->last = at;
	if (way != stream->way)
		stream->until = at;
	stream->way = way;
	if (way != 1 && way != -1)
		return;
	/* What was fetched before is not asked for again. */
	from = (stream->until - at) * way > 0 ? stream->until + way : at + way;
	to = at + way * (int32_t)ahead;
	to = to < 0 ? 0 : to >= (int32_t)LINES_OF_PAGE ? (int32_t)LINES_OF_PAGE - 1 : to;
	if ((to - from) * way < 0)
		return;
	stream->until = to;
	for (int32_t next = from; (to - next) * way >= 0; next += way) {
		uint32_t fetched = page * LINES_OF_PAGE + (uint32_t)next;
		/* Those that are left to look at, and are not there. */
		uint64_t absent = ~frame->in_l2 & (way > 0 ? ~0ull << next & ~0ull >> (63 - to) :
							 ~0ull << to & ~0ull >> (63 - next));

		if (absent == 0)
			return;
		/* What is there already stays as old as it was. */
		if (!(absent & bit_of(fetched)))
			continue;
		touch_l2(frame, fetched);
		code->counts[PREFETCHED] += !touch_below(&llc, fetched);
	}
}

/* What is waited for counts for the locks that are held, too. */
static void count(struct code *code, enum miss what)
{
	code->counts[what]++;
	missed(what);
}

static void below_l1(uint32_t line, struct code *code)
{
	struct frame *frame = frame_of(line);

	if (!touch_l2(frame, line)) {
		count(code, MISS_L2);
		if (!touch_below(&llc, line))
			count(code, MISS_LLC);
	}
	if (ahead)
		prefetch(frame, line, code);
}

/* A word of the guest's memory by its physical address; 0 where there is none. */
static uint64_t word_at(uint64_t physical)
{
	uint64_t word, below = ram_bytes < MOST_BELOW ? ram_bytes : BELOW;

	if (physical >= HIGH)
		physical = physical - HIGH + below;
	else if (physical >= below)
		return 0;
	if (physical + sizeof(word) > ram_bytes)
		return 0;
	memcpy(&word, ram + physical, sizeof(word));
	return word;
}

static bool is_ram(uint64_t physical)
{
	uint64_t below = ram_bytes < MOST_BELOW ? ram_bytes : BELOW;

	if (!paged)
		return true;
	return physical >= HIGH ? physical - HIGH < ram_bytes - below : physical < below;
}

/* The page of an address in a tree of page tables; whether there is one.  FLAGS: GLOBAL, WRITABLE. */
static bool walk(uint64_t root, uint64_t address, uint64_t *frame, enum page_size *size,
		 uint64_t *flags)
{
	uint64_t table = root, writable = WRITABLE;

	for (int level = 3; level >= 0; level--) {
		uint64_t index = address >> (PAGE_BITS + 9 * level) & 511;
		uint64_t word = word_at(table + index * sizeof(word));

		if (!(word & PRESENT))
			return false;
		writable &= word;
		if (level == 0 || (level < 3 && word & LARGE)) {
			*size = level;
			*frame = word & FRAME & ~((1ull << BITS[level]) - 1);
			*flags = (word & GLOBAL) | writable;
			return true;
		}
		table = word & FRAME;
	}
	return false;
}

/* The physical address of a kernel address, NOWHERE for none. */
static uint64_t physical_of(uint64_t address)
{
	enum page_size size;
	uint64_t frame, flags;

	if (!walk(kernel_root, address, &frame, &size, &flags))
		return NOWHERE;
	return frame | (address & ((1ull << BITS[size]) - 1));
}

static uint64_t kernel_word(uint64_t address)
{
	uint64_t physical = physical_of(address);

	return physical == NOWHERE ? 0 : word_at(physical);
}

/* Where in an mm_struct its page table is: that of the first one is known. */
static bool find_pgd(void)
{
	for (pgd_at = 0; pgd_at < MM_BYTES; pgd_at += sizeof(uint64_t))
		if (kernel_word(init_mm + pgd_at) == swapper)
			return true;
	return false;
}

static void read_user_root(void)
{
	uint64_t mm = kernel_word(kernel_word(percpu) + tlbstate);
	uint64_t pgd = mm & KERNEL_HALF ? kernel_word(mm + pgd_at) : 0;

	user_root = pgd & KERNEL_HALF ? physical_of(pgd) : NOWHERE;
	user_known = true;
}

static bool page_of(uint64_t address, uint64_t *frame, enum page_size *size, uint64_t *flags)
{
	uint64_t root = kernel_root;

	if (!(address & KERNEL_HALF)) {
		if (!user_known)
			read_user_root();
		root = user_root;
	}
	return root != NOWHERE && walk(root, address, frame, size, flags);
}

static uint64_t key_of(uint64_t address, enum page_size size, bool global)
{
	uint64_t page = (address & ((1ull << 48) - 1)) >> BITS[size];

	return page << 3 | size << 1 | 1 | (global ? 0 : space << SPACE_SHIFT);
}

static struct entry *set_of(const struct tlb *tlb, uint64_t address, enum page_size size)
{
	return tlb->entries + (size_t)(address >> BITS[size] & (tlb->sets - 1)) * tlb->ways;
}

/* Whether an entry that was made before an INVLPG is still what the page tables say. */
static bool is_fresh(struct entry *entry, uint64_t address, enum page_size size)
{
	enum page_size now;
	uint64_t frame, flags;

	if (entry->epoch == epoch)
		return true;
	if (!page_of(address, &frame, &now, &flags) || now < size)
		return false;
	frame |= address & ((1ull << BITS[now]) - 1) & ~((1ull << BITS[size]) - 1);
	if (frame != entry->frame)
		return false;
	entry->epoch = epoch;
	return true;
}

/* The entry of an address, which is used now; NULL where there is none. */
static struct entry *look_up(struct level *level, uint64_t address, enum page_size *size)
{
	struct entry **hint = &level->hints[address >> PAGE_BITS & (HINTS - 1)];

	if (*hint && (*hint)->epoch == epoch) {
		*size = (*hint)->key >> 1 & 3;
		if ((*hint)->key == key_of(address, *size, true) ||
		    (*hint)->key == key_of(address, *size, false)) {
			(*hint)->used = now;
			return *hint;
		}
	}
	for (unsigned int n = 0; n < level->count; n++) {
		struct tlb *tlb = &level->tlbs[n];

		for (enum page_size each = SMALL; each < SIZES; each++) {
			struct entry *set = set_of(tlb, address, each);
			uint64_t global, own;

			if (!(tlb->sizes >> each & 1))
				continue;
			global = key_of(address, each, true);
			own = key_of(address, each, false);
			for (uint32_t at = 0; at < tlb->ways; at++) {
				if (set[at].key != global && set[at].key != own)
					continue;
				if (!is_fresh(&set[at], address, each)) {
					set[at].key = 0;
					break;
				}
				set[at].used = now;
				*size = each;
				*hint = &set[at];
				return &set[at];
			}
		}
	}
	return NULL;
}

/* Whether nothing can find an entry any more: it is none, or of another address space. */
static bool is_stale(const struct entry *entry)
{
	uint64_t of = entry->key >> SPACE_SHIFT;

	return entry->key == 0 || (of && of != space);
}

/* Keep a page in the level's TLB for its size, or, where that knows smaller ones alone, a part. */
static struct entry *fill(struct level *level, uint64_t address, enum page_size *size,
			  uint64_t frame, bool global)
{
	for (int each = *size; each >= 0; each--)
		for (unsigned int n = 0; n < level->count; n++) {
			struct tlb *tlb = &level->tlbs[n];
			struct entry *set, *oldest;

			if (!(tlb->sizes >> each & 1))
				continue;
			set = set_of(tlb, address, each);
			oldest = set;
			for (uint32_t at = 1; at < tlb->ways && !is_stale(oldest); at++)
				if (is_stale(&set[at]) || set[at].used < oldest->used)
					oldest = &set[at];
			frame |= address & ((1ull << BITS[*size]) - 1) & ~((1ull << BITS[each]) - 1);
			*size = each;
			*oldest = (struct entry){ key_of(address, each, global), frame, now, epoch };
			level->hints[address >> PAGE_BITS & (HINTS - 1)] = oldest;
			return oldest;
		}
	return NULL;
}

/*
 * The entry of an address in the first TLB, brought there if it is not, and the bits of the
 * address that are in its page; NULL for no page.
 */
static struct entry *translate(struct side *side, uint64_t address, uint64_t *in_page,
			       struct code *code)
{
	struct entry *entry, *kept;
	enum page_size size;
	uint64_t frame, flags;
	bool global;

	*in_page = UINT64_MAX;
	if (!paged)
		return &unpaged;
	entry = look_up(&side->first, address, &size);
	if (entry == NULL) {
		code->counts[MISS_TLB] += side == &of_data;
		kept = look_up(&side->second, address, &size);
		if (kept) {
			frame = kept->frame;
			global = kept->key >> SPACE_SHIFT == 0;
		} else {
			count(code, WALK);
			if (!page_of(address, &frame, &size, &flags)) {
				unmapped++;
				return NULL;
			}
			global = flags & GLOBAL;
			enum page_size whole = size;

			fill(&side->second, address, &whole, frame, global);
		}
		entry = fill(&side->first, address, &size, frame, global);
		if (entry == NULL)
			return NULL;
	}
	*in_page = (1ull << BITS[size]) - 1;
	return entry;
}

static inline struct page *page_at(struct side *side, uint64_t line)
{
	return &side->pages[line / LINES_OF_PAGE & (PAGES - 1)];
}

/* Stacks and variables of CPUs begin at like multiples: their lines are spread. */
static inline uint16_t *hint_of(struct side *side, uint64_t line)
{
	return &side->hints[(line ^ line >> 8) & (LINES - 1)];
}

static inline bool is_known_page(const struct page *page, uint64_t line)
{
	return page->number == line / LINES_OF_PAGE && page->entry->key == page->key;
}

/* The physical line, which fits into 32 bits for all memory that there is, as a tag. */
static inline uint32_t tag_of(const struct page *page, uint64_t line)
{
	return page->tag + line % LINES_OF_PAGE;
}

/* Use a line that is where it was the last time; false where it may be elsewhere. */
static inline bool use(struct side *side, uint64_t line)
{
	const struct page *page = page_at(side, line);
	const uint16_t at = *hint_of(side, line);

	if (!is_known_page(page, line) || side->l1.tags[at] != tag_of(page, line))
		return false;
	page->entry->used = side->l1.used[at] = ++now;
	return true;
}

/* Use a line wherever it is. */
static __attribute__((noinline)) void look_for(struct side *side, uint64_t line, struct code *code)
{
	/* Arithmetic shifts bring the upper bits back. */
	const uint64_t address = (uint64_t)((int64_t)(line << (64 - LINE_NUMBER_BITS)) >>
					    (64 - LINE_NUMBER_BITS - LINE_BITS));
	struct page *page = page_at(side, line);
	uint64_t in_page, first;
	uint32_t tag;

	if (!on)
		return;
	now++;
	if (is_known_page(page, line)) {
		page->entry->used = now;
	} else {
		page->number = NOWHERE;
		page->entry = translate(side, address, &in_page, code);
		if (page->entry == NULL)
			return;
		first = (page->entry->frame + (address & in_page)) & ~(uint64_t)(PAGE_BYTES - 1);
		/* Devices are not cached. */
		if (!is_ram(first))
			return;
		*page = (struct page){ line / LINES_OF_PAGE, page->entry->key, page->entry,
				       (first >> LINE_BITS) + 1 };
	}
	tag = tag_of(page, line);
	/* What a miss counts and looks at is in none of the host's caches as often as not. */
	__builtin_prefetch(code->counts, 1);
	__builtin_prefetch(tags_of(&l2, tag - 1), 1);
	if (touch(&side->l1, tag, hint_of(side, line)))
		return;
	code->counts[side->of_l1]++;
	below_l1(tag - 1, code);
}

static inline void use_anywhere(struct side *side, uint64_t line, struct code *code)
{
	if (!use(side, line))
		look_for(side, line, code);
}

static struct code *code_of(uint32_t number)
{
	return &codes[number >> CODES_BITS][number & ((1u << CODES_BITS) - 1)];
}

static void *pointer_of(uint64_t word)
{
	return (void *)(uintptr_t)(word & ((1ull << ADDRESS_BITS) - 1));
}

#define UNLIKELY(condition) __builtin_expect(!!(condition), false)

/* An access that may be in two lines. */
static __attribute__((noinline)) void look_for_access(qemu_plugin_meminfo_t info, uint64_t address,
						      struct code *code)
{
	const uint64_t line = address >> LINE_BITS;

	use_anywhere(&of_data, line, code);
	/* One that goes on in the next line. */
	if ((address & (LINE_BYTES - 1)) + (1u << qemu_plugin_mem_size_shift(info)) > LINE_BYTES)
		use_anywhere(&of_data, line + 1, code);
}

static void on_access(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data)
{
	const uint64_t word = (uintptr_t)data, line = address >> LINE_BITS;

	(void)vcpu;
	if (UNLIKELY((address & (LINE_BYTES - 1)) > word >> LIMIT_AT))
		look_for_access(info, address, pointer_of(word));
	else if (UNLIKELY(!use(&of_data, line)))
		look_for(&of_data, line, pointer_of(word));
}

/* Whether an access will not fault for its page. */
static bool is_there(uint64_t address, bool stores)
{
	enum page_size size;
	uint64_t frame, flags;

	return !paged || !on ||
	       (page_of(address, &frame, &size, &flags) && (flags & WRITABLE || !stores));
}

/* Lines of a group's accesses, in their order. */
static __attribute__((noinline)) void use_lines(const struct touched *touched, uint64_t address)
{
	uint64_t last = address >> LINE_BITS;

	use_anywhere(&of_data, last, touched->code);
	for (unsigned int n = 0; n < touched->count; n++) {
		const struct access *access = &touched->accesses[n];
		uint64_t first = address + (int64_t)access->distance;
		uint64_t end = (first + access->bytes - 1) >> LINE_BITS;

		/* One that was used just before is as new as can be. */
		for (uint64_t line = first >> LINE_BITS; line <= end; line++) {
			if (line == last)
				continue;
			if (line / LINES_OF_PAGE != address >> PAGE_BITS &&
			    !is_there(line << LINE_BITS, access->stores))
				return;
			use_anywhere(&of_data, last = line, touched->code);
		}
	}
}

static struct touched *touched_of(uint64_t word)
{
	return pointer_of(word & ~(uint64_t)FLAGS);
}

/* A group that is in several lines, or may be called for once more with another address. */
static __attribute__((noinline)) void look_for_group(qemu_plugin_meminfo_t info, uint64_t address,
						     uint64_t word, uint64_t low, uint64_t high)
{
	struct touched *touched = touched_of(word);
	const uint64_t first = address >> LINE_BITS;

	if (word & (IS_STORED | IS_HALVED) &&
	    is_called_again(word & IS_HALVED ? OF_HALVES : TO_STORE, info, address, &touched->half))
		return;
	if (high - low > 1 || low / LINES_OF_PAGE != high / LINES_OF_PAGE) {
		use_lines(touched, address);
		return;
	}
	/* Of two lines the one that is used last is the newer, however often they take turns before. */
	use_anywhere(&of_data, first, touched->code);
	if (low == high)
		return;
	use_anywhere(&of_data, low + high - first, touched->code);
	if (word & ENDS_HIGH ? first == high :
			       (address + (int64_t)touched->end) >> LINE_BITS == first)
		use_anywhere(&of_data, first, touched->code);
}

static void on_group(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data)
{
	const uint64_t word = (uintptr_t)data;
	const uint64_t low = (address + (int64_t)(int8_t)(word >> LOW_AT)) >> LINE_BITS;
	const uint64_t high = (address + ((int64_t)word >> HIGH_AT)) >> LINE_BITS;

	(void)vcpu;
	if (UNLIKELY(low != high || word & IS_HALVED))
		look_for_group(info, address, word, low, high);
	/* A second call, to store, changes nothing: the line is as new as can be, or there is none. */
	else if (UNLIKELY(!use(&of_data, low)) && !(word & IS_STORED && qemu_plugin_mem_is_store(info)))
		look_for(&of_data, low, touched_of(word)->code);
}

/* The line of code that was used last, which is as new as can be. */
static uint64_t last_code = NOWHERE;

static inline void use_code(uint64_t line, uint32_t number)
{
	if (line == last_code)
		return;
	last_code = line;
	if (!use(&of_code, line))
		look_for(&of_code, line, code_of(number));
}

/* A block in one line or two: the first one, and the block's number in the bits above, are in DATA. */
static void on_line(unsigned int vcpu, void *data)
{
	const uint64_t word = (uintptr_t)data;

	(void)vcpu;
	use_code(word & LINE_NUMBERS, word >> LINE_NUMBER_BITS);
}

static void on_two_lines(unsigned int vcpu, void *data)
{
	const uint64_t word = (uintptr_t)data, line = word & LINE_NUMBERS;

	(void)vcpu;
	use_code(line, word >> LINE_NUMBER_BITS);
	use_code(line + 1, word >> LINE_NUMBER_BITS);
}

/* A block's first access, behind the block's lines: where a block has one, one callback is for both. */
static inline void use_with_code(qemu_plugin_meminfo_t info, uint64_t address, uint64_t word)
{
	const uint64_t line = address >> LINE_BITS;
	const uint32_t bytes = 1u << (word >> SIZE_AT & SIZE);

	if (UNLIKELY((address & (LINE_BYTES - 1)) > LINE_BYTES - bytes))
		look_for_access(info, address, code_of(word >> NUMBER_AT));
	else if (UNLIKELY(!use(&of_data, line)))
		look_for(&of_data, line, code_of(word >> NUMBER_AT));
}

static void on_access_and_line(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address,
			       void *data)
{
	const uint64_t word = (uintptr_t)data;

	(void)vcpu;
	use_code(word & LINE_NUMBERS, word >> NUMBER_AT);
	use_with_code(info, address, word);
}

static void on_access_and_two_lines(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address,
				    void *data)
{
	const uint64_t word = (uintptr_t)data, line = word & LINE_NUMBERS;

	(void)vcpu;
	use_code(line, word >> NUMBER_AT);
	use_code(line + 1, word >> NUMBER_AT);
	use_with_code(info, address, word);
}

/* Any other. */
static void on_lines(unsigned int vcpu, void *data)
{
	struct code *code = data;
	uint64_t line = code->line, end = line + code->lines;

	(void)vcpu;
	line += line == last_code;
	for (; line < end; line++)
		use_anywhere(&of_code, line, code);
	last_code = end - 1;
}

static void forget_pages(void)
{
	for (unsigned int at = 0; at < PAGES; at++)
		of_data.pages[at].number = of_code.pages[at].number = NOWHERE;
	last_code = NOWHERE;
}

static void on_cr3(unsigned int vcpu, void *data)
{
	(void)vcpu;
	(void)data;
	space = space % ((1u << (64 - SPACE_SHIFT)) - 1) + 1;
	user_known = given_root != 0;
	forget_pages();
}

static void on_invlpg(unsigned int vcpu, void *data)
{
	(void)vcpu;
	(void)data;
	epoch++;
	forget_pages();
}

static void forget(struct level *level)
{
	for (unsigned int n = 0; n < level->count; n++) {
		struct tlb *tlb = &level->tlbs[n];

		memset(tlb->entries, 0, (size_t)tlb->sets * tlb->ways * sizeof(*tlb->entries));
	}
}

/* The kernel writes CR4 to drop global pages, too. */
static void on_cr4(unsigned int vcpu, void *data)
{
	on_cr3(vcpu, data);
	forget(&of_data.first);
	forget(&of_code.first);
	forget(&of_data.second);
	forget(&of_code.second);
}

enum drops drops_translations(const uint8_t *bytes, size_t size)
{
	static const uint8_t INVPCID[] = { 0x66, 0x0f, 0x38, 0x82 };
	const uint8_t *end = bytes + size;

	if (size >= sizeof(INVPCID) && memcmp(bytes, INVPCID, sizeof(INVPCID)) == 0)
		return DROPS_ALL;
	if (bytes < end && (*bytes & 0xf0) == 0x40)
		bytes++;
	if (end - bytes < 3 || bytes[0] != 0x0f)
		return KEPT;
	if (bytes[1] == 0x22) {
		unsigned int number = bytes[2] >> 3 & 7;

		return number == 3 ? DROPS_USER : number == 4 ? DROPS_ALL : KEPT;
	}
	/* INVLPG */
	return bytes[1] == 0x01 && (bytes[2] >> 3 & 7) == 7 && bytes[2] < 0xc0 ? DROPS_PAGE : KEPT;
}

static void watch_translations(struct qemu_plugin_insn *insn, const uint8_t *bytes, size_t size)
{
	static void (*const CALLBACKS[])(unsigned int, void *) = {
		[DROPS_USER] = on_cr3, [DROPS_PAGE] = on_invlpg, [DROPS_ALL] = on_cr4
	};
	enum drops what = drops_translations(bytes, size);

	if (what != KEPT)
		qemu_plugin_register_vcpu_insn_exec_cb(insn, CALLBACKS[what],
						       QEMU_PLUGIN_CB_NO_REGS, NULL);
}

static void *with_bits(void *pointer, uint64_t bits)
{
	if ((uintptr_t)pointer >> ADDRESS_BITS)
		abort();
	return (void *)((uintptr_t)pointer | bits);
}

static void *touched_by(const struct group *group, struct code *code)
{
	const size_t size = group->count * sizeof(*group->accesses);
	const struct access *last = &group->accesses[group->count - 1];
	struct touched *touched = kept(1, sizeof(*touched) + size);

	*touched = (struct touched){ .code = code, .count = group->count, .half = NOWHERE,
				     .end = last->distance + last->bytes - 1 };
	memcpy(touched->accesses, group->accesses, size);
	return with_bits(touched, (uint64_t)(uint8_t)group->low << LOW_AT |
					  (uint64_t)(uint8_t)group->high << HIGH_AT |
					  (group->again == TO_STORE ? IS_STORED : 0) |
					  (group->again == OF_HALVES ? IS_HALVED : 0) |
					  (touched->end == group->high ? ENDS_HIGH : 0));
}

/* Behind a block's last one QEMU 7.2 has calls left in force for an exception's own accesses. */
static bool is_known(const struct group *group, size_t count)
{
	return group->count == 1 && group->first + 1 < count;
}

static void watch_group(struct qemu_plugin_tb *tb, size_t count, const struct group *group,
			struct code *code)
{
	const uint64_t limit = LINE_BYTES - (is_known(group, count) ? group->accesses[0].bytes : MOST_BYTES);

	if (group->count > 1)
		qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(tb, group->first), on_group,
						 QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW,
						 touched_by(group, code));
	else
		qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(tb, group->first), on_access,
						 QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW,
						 with_bits(code, limit << LIMIT_AT));
}

static struct code *new_code(void)
{
	if (code_count % (1u << CODES_BITS) == 0) {
		codes = more(codes, (code_count >> CODES_BITS) + 1, sizeof(*codes));
		codes[code_count >> CODES_BITS] = kept(1u << CODES_BITS, sizeof(**codes));
	}
	return code_of(code_count++);
}

/*
 * The access whose callback can be for the block's lines, too: the first one, if it is surely made and by
 * itself.  Where it faults, the block's lines are used when the block goes on.
 */
static const struct group *with_lines(const struct group *groups, size_t group_count, size_t count,
				      const struct code *code, uint64_t number)
{
	size_t first = 0;

	while (first < group_count && groups[first].count == 0)
		first++;
	if (first == group_count || !is_known(&groups[first], count) ||
	    !is_power_of_two(groups[first].accesses[0].bytes) || code->lines > 2 ||
	    number >= MAX_NUMBERED_WITH_SIZE)
		return NULL;
	return &groups[first];
}

static void watch_lines(struct qemu_plugin_tb *tb, struct code *code, uint64_t number,
			const struct group *with)
{
	if (with)
		qemu_plugin_register_vcpu_mem_cb(
			qemu_plugin_tb_get_insn(tb, with->first),
			code->lines == 1 ? on_access_and_line : on_access_and_two_lines,
			QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW,
			(void *)(uintptr_t)(number << NUMBER_AT | code->line |
					    (uint64_t)__builtin_ctz(with->accesses[0].bytes)
						    << SIZE_AT));
	else if (code->lines <= 2 && number < MAX_NUMBERED)
		qemu_plugin_register_vcpu_tb_exec_cb(
			tb, code->lines == 1 ? on_line : on_two_lines, QEMU_PLUGIN_CB_NO_REGS,
			(void *)(uintptr_t)(number << LINE_NUMBER_BITS | code->line));
	else
		qemu_plugin_register_vcpu_tb_exec_cb(tb, on_lines, QEMU_PLUGIN_CB_NO_REGS, code);
}

void memory_watch(struct qemu_plugin_tb *tb, size_t count, size_t counted)
{
	struct qemu_plugin_insn *last = qemu_plugin_tb_get_insn(tb, count - 1);
	const uint64_t begin = qemu_plugin_tb_vaddr(tb);
	uint64_t end = qemu_plugin_insn_vaddr(last) + qemu_plugin_insn_size(last) - 1;
	const struct group *groups, *with;
	size_t group_count = groups_of(tb, count, counted, &groups);
	uint8_t bytes[MAX_BYTES];
	struct code *code = new_code();
	const uint64_t number = code_count - 1;

	*code = (struct code){ .line = begin >> LINE_BITS & LINE_NUMBERS,
			       .lines = (end >> LINE_BITS) - (begin >> LINE_BITS) + 1,
			       .address = begin, .instructions = count };
	with = with_lines(groups, group_count, count, code, number);
	watch_lines(tb, code, number, with);
	for (size_t i = 0; i < count; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);

		watch_translations(insn, bytes, bytes_of(insn, bytes));
	}
	for (size_t n = 0; n < group_count; n++)
		if (&groups[n] != with)
			watch_group(tb, count, &groups[n], code);
}

/* Find the guest's memory among what this process has mapped, and the kernel's tables in it. */
static bool find_tables(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	uint64_t start, end, offset, from = 0;
	char *text = NULL;
	size_t room = 0;

	while (maps && getline(&text, &room, maps) > 0) {
		char *path = strchr(text, '/');

		if (path == NULL || strncmp(path, ram_path, strlen(ram_path)) ||
		    (path[strlen(ram_path)] != '\n' && path[strlen(ram_path)] != ' ') ||
		    sscanf(text, "%lx-%lx %*s %lx", &start, &end, &offset) != 3)
			continue;
		if (offset == 0)
			from = start;
		/* It may be mapped in pieces, one behind the other. */
		if (from && start == from + offset)
			ram_bytes = end - from;
	}
	if (maps)
		fclose(maps);
	free(text);
	ram = (const uint8_t *)(uintptr_t)from;
	kernel_root = user_root = given_root;
	user_known = given_root != 0;
	if (from && swapper) {
		kernel_root = swapper - KERNEL_MAP;
		return find_pgd();
	}
	return from != 0;
}

uint64_t memory_word(uint64_t address)
{
	static bool tried, there;

	if (!tried)
		there = swapper && ram_path && find_tables();
	tried = true;
	return there ? kernel_word(address) : 0;
}

uint64_t memory_of_cpu(unsigned int vcpu)
{
	return percpu ? memory_word(percpu + vcpu * sizeof(uint64_t)) : 0;
}

static void begin(void)
{
	if (paged && !find_tables()) {
		/* Every access is then without a page, which is what whoever reads the file sees. */
		fprintf(stderr, "probe: no page tables in %s\n", ram_path);
		kernel_root = user_root = NOWHERE;
		user_known = true;
	}
	on = true;
	last_code = NOWHERE;
}

void memory_mark(uint32_t phase)
{
	if (!on) {
		begin();
		return;
	}
	/* Those that were translated last come first. */
	for (uint32_t number = code_count; number-- > 0;) {
		struct code *code = code_of(number);
		bool any = false;

		for (unsigned int n = 0; n < MISSES; n++)
			any |= code->counts[n] != 0;
		if (!any)
			continue;
		if (phase) {
			if (row_count == row_room) {
				row_room = row_room ? row_room * 2 : 1 << 12;
				rows = more(rows, row_room, sizeof(*rows));
			}
			rows[row_count] = (struct misses){ phase, code->instructions,
							   code->address, { 0 } };
			memcpy(rows[row_count++].counts, code->counts, sizeof(code->counts));
		}
		memset(code->counts, 0, sizeof(code->counts));
	}
}

const struct misses *memory_rows(size_t *count, uint64_t *without_page)
{
	*count = row_count;
	*without_page = unmapped;
	return rows;
}

static int cache_argument(const char *text)
{
	uint32_t sets, ways;
	size_t lines;
	char name[8], rest;

	if (sscanf(text, "%7[a-z0-9]:%u:%u%c", name, &sets, &ways, &rest) != 3 ||
	    !is_power_of_two(sets) || !ways)
		return -1;
	lines = (size_t)sets * ways;
	if (strcmp(name, "l1d") == 0 || strcmp(name, "l1i") == 0) {
		struct l1 *l1 = &(name[2] == 'd' ? &of_data : &of_code)->l1;

		*l1 = (struct l1){ .sets = sets, .stride = (ways + LANES - 1) / LANES * LANES };
		lines = (size_t)sets * l1->stride;
		if (sets % LINES_OF_PAGE || lines > UINT16_MAX)
			return -1;
		l1->tags = kept(lines, sizeof(*l1->tags));
		l1->used = kept(lines, sizeof(*l1->used));
		for (size_t at = 0; at < lines; at++)
			l1->used[at] = at % l1->stride < ways ? 0 : UINT64_MAX;
		return 1;
	}
	if (strcmp(name, "l2") == 0 || strcmp(name, "llc") == 0) {
		struct cache *cache = name[2] ? &llc : &l2;

		*cache = (struct cache){ sets, ways, kept(lines, sizeof(*cache->tags)) };
		return 1;
	}
	return -1;
}

static int tlb_argument(const char *text)
{
	struct tlb tlb;
	struct level *to[2] = { NULL, NULL };
	char name[3], rest;

	if (sscanf(text, "%2[a-z0-9]:%u:%u:%u%c", name, &tlb.sizes, &tlb.sets, &tlb.ways, &rest) !=
		    4 ||
	    !is_power_of_two(tlb.sets) || !tlb.ways || !tlb.sizes || tlb.sizes >> SIZES)
		return -1;
	if (strcmp(name, "s2") == 0) {
		to[0] = &of_data.second;
		to[1] = &of_code.second;
	} else {
		to[0] = strcmp(name, "d1") == 0 ? &of_data.first :
			strcmp(name, "i1") == 0 ? &of_code.first :
			strcmp(name, "d2") == 0 ? &of_data.second :
			strcmp(name, "i2") == 0 ? &of_code.second :
						  NULL;
	}
	tlb.entries = kept((size_t)tlb.sets * tlb.ways, sizeof(*tlb.entries));
	for (unsigned int n = 0; n < 2; n++) {
		if (to[n] && to[n]->count == MAX_TLBS)
			return -1;
		if (to[n])
			/* The entries of s2 are shared. */
			to[n]->tlbs[to[n]->count++] = tlb;
	}
	return to[0] ? 1 : -1;
}

int memory_argument(const char *argument)
{
	static const struct {
		const char *word;
		uint64_t *value;
	} ADDRESSES[] = { { "swapper=", &swapper }, { "init_mm=", &init_mm },
			  { "percpu=", &percpu }, { "tlbstate=", &tlbstate },
			  { "root=", &given_root } };
	char *end;

	if (strncmp(argument, "cache=", 6) == 0)
		return cache_argument(argument + 6);
	if (strncmp(argument, "tlb=", 4) == 0)
		return tlb_argument(argument + 4);
	if (strncmp(argument, "ram=", 4) == 0)
		return (ram_path = strdup(argument + 4)) ? 1 : -1;
	if (strncmp(argument, "prefetch=", 9) == 0) {
		ahead = strtoul(argument + 9, &end, 10);
		return *end ? -1 : 1;
	}
	for (unsigned int n = 0; n < sizeof(ADDRESSES) / sizeof(*ADDRESSES); n++)
		if (strncmp(argument, ADDRESSES[n].word, strlen(ADDRESSES[n].word)) == 0) {
			*ADDRESSES[n].value =
				strtoull(argument + strlen(ADDRESSES[n].word), &end, 16);
			return *end ? -1 : 1;
		}
	return 0;
}

int memory_wanted(void)
{
	unsigned int given = !!of_data.l1.sets + !!of_code.l1.sets + !!l2.sets + !!llc.sets;

	forget_pages();
	for (uint32_t n = 0; n <= STREAMS; n++) {
		/* The first are taken first. */
		streams[n].newer = n == STREAMS ? 0 : n + 1;
		streams[n].older = n == 0 ? STREAMS : n - 1;
	}
	paged = swapper || given_root;
	/* Where slab caches are is asked of any guest. */
	if (given == 0)
		return (paged || ram_path) && !slabs_wanted() ? -1 : 0;
	if (paged && (!ram_path || !of_data.first.count || !of_code.first.count))
		return -1;
	return given == 4 && (!swapper || (init_mm && percpu)) ? 1 : -1;
}
