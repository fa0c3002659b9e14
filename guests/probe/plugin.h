/*
 * What the plugin calls of QEMU, and what the sources beside probe.c and it give each other.
 *
 * Declared by hand from the documented API, since Debian ships no header.
 * PROBE_API is its version (guests/probe/plugin.py chooses):
 *   1  QEMU 7.2 to 8.2: inline counters are one for all vCPUs.
 *   2  QEMU 9.0: scoreboards have a counter for each vCPU.
 *   3  QEMU 9.1 to 11.0: the bytes of an instruction are copied out.
 *   7  QEMU 11.1: callbacks get what they were registered with instead of the plugin's
 *      id; interrupts, exceptions and calls of the host call, too.
 */
#ifndef PLUGIN_H
#define PLUGIN_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if PROBE_API != 1 && PROBE_API != 2 && PROBE_API != 3 && PROBE_API != 7
#error "PROBE_API is 1, 2, 3 or 7"
#endif

#define EXPORT __attribute__((visibility("default")))

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64, QEMU_PLUGIN_INLINE_STORE_U64 };
enum qemu_plugin_mem_rw { QEMU_PLUGIN_MEM_R = 1, QEMU_PLUGIN_MEM_W, QEMU_PLUGIN_MEM_RW };
typedef uint32_t qemu_plugin_meminfo_t;

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

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc,
			       char **argv);

void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb,
					  void (*cb)(unsigned int, void *),
					  enum qemu_plugin_cb_flags flags, void *data);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn,
					    void (*cb)(unsigned int, void *),
					    enum qemu_plugin_cb_flags flags, void *data);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn,
				      void (*cb)(unsigned int, qemu_plugin_meminfo_t, uint64_t,
						 void *),
				      enum qemu_plugin_cb_flags flags,
				      enum qemu_plugin_mem_rw which, void *data);
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t info);
unsigned int qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t info);
struct qemu_plugin_hwaddr;
/* Good within a callback of the access. */
struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(qemu_plugin_meminfo_t info, uint64_t address);
bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *where);
uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *where);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t at);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);

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
/* Called once it is prepared: TO is what is executed next, FROM what was not any more. */
enum qemu_plugin_discon_type {
	QEMU_PLUGIN_DISCON_INTERRUPT = 1,
	QEMU_PLUGIN_DISCON_EXCEPTION = 2,
	QEMU_PLUGIN_DISCON_HOSTCALL = 4,
	QEMU_PLUGIN_DISCON_ALL = -1
};
void qemu_plugin_register_vcpu_discon_cb(qemu_plugin_id_t id, enum qemu_plugin_discon_type types,
					 void (*cb)(unsigned int, enum qemu_plugin_discon_type,
						    uint64_t from, uint64_t to, void *),
					 void *data);
#endif

#if PROBE_API < 3
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
#else
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *to, size_t size);
#endif

#if PROBE_API == 1
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
/* Calls where the word compares so with VALUE, as numbers without a sign. */
enum qemu_plugin_cond { QEMU_PLUGIN_COND_LT = 4 };
void qemu_plugin_register_vcpu_tb_exec_cond_cb(struct qemu_plugin_tb *tb,
					       void (*cb)(unsigned int, void *),
					       enum qemu_plugin_cb_flags flags,
					       enum qemu_plugin_cond condition,
					       qemu_plugin_u64 word, uint64_t value, void *data);
void qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(struct qemu_plugin_insn *insn,
							 enum qemu_plugin_op op,
							 qemu_plugin_u64 counter, uint64_t step);
uint64_t qemu_plugin_u64_get(qemu_plugin_u64 counter, unsigned int vcpu);
void qemu_plugin_u64_set(qemu_plugin_u64 counter, unsigned int vcpu, uint64_t value);
#endif

#define MAX_BYTES 16
/* Kinds of instructions (kinds.c), in the order of the file. */
enum kind { LOAD, STORE, ATOMIC, BARRIER, DIVISION, OF_SYSTEM, KINDS_COUNTED };
/* Numbers of a row of misses, in the order of the file. */
enum miss { MISS_L1D, MISS_L1I, MISS_L2, MISS_LLC, PREFETCHED, MISS_TLB, WALK, MISSES };

struct misses {
	uint32_t phase, instructions;
	uint64_t address, counts[MISSES];
};

/* Transfers of one object's lines from what FROM touched to what TO touches, and bytes of both. */
struct move {
	uint32_t phase, unused;
	uint64_t object, to, from, reads, writes, apart, mine, theirs;
};

/* A slab cache: SIZE of its objects in bytes, and how many share it (SLUB merges them). */
struct slab {
	char name[40];
	uint32_t size, users;
};

/* What interrupts a vCPU, in the order of the file. */
enum { OF_INTERRUPT, OF_EXCEPTION, OF_HOST_CALL };
/* How often it went from an instruction to HANDLER. */
struct interruption {
	uint32_t phase, kind;
	uint64_t handler, from, count;
};

/* A function (0: the user's code) as called from another path, by its number. */
struct path {
	uint32_t parent, unused;
	uint64_t function;
};
/* What was executed in the function of a path itself, and how often it was called on it. */
struct spent {
	uint32_t phase, path;
	uint64_t instructions, calls;
};

/*
 * The vCPU that executes, which callbacks of translated code ask for.  From QEMU 10.0 on they are
 * given the number of the vCPU that the code was translated for, where all of them take turns on one
 * thread (-icount).
 */
#if PROBE_API < 3
#define RUNNING(vcpu) (vcpu)
#else
#define RUNNING(vcpu) running(vcpu)
unsigned int running(unsigned int vcpu);
#endif

void *more(void *old, size_t count, size_t size);
/* Zeroes that are kept to the end: what is looked up all over has the host's huge pages here. */
void *kept(size_t count, size_t size);
size_t bytes_of(const struct qemu_plugin_insn *insn, uint8_t bytes[MAX_BYTES]);

/* The kinds that an instruction is of, as bits; and added to those of others. */
unsigned int kinds_mask(const uint8_t *bytes, size_t size);
void add_kinds(const uint8_t *bytes, size_t size, uint16_t kinds[KINDS_COUNTED]);

/*
 * Accesses of a block that its instruction FIRST is called back for (groups.c): each by its distance
 * from the first one's address, in their order, and the bytes from LOW to HIGH that they touch.  With
 * none of them nothing is known of the instruction, and each access of it is called back for.
 */
#define MAX_ACCESSES 24
struct access {
	int8_t distance;
	uint8_t bytes;
	bool stores;
};
/* Whether the first instruction is called back for twice: to load and to store, or by halves. */
enum again { NEVER, TO_STORE, OF_HALVES };
struct group {
	uint32_t first, count;
	int8_t low, high;
	bool user_loads; /* a user's code loads in it */
	enum again again;
	struct access accesses[MAX_ACCESSES];
};
int groups_argument(const char *argument);
/* Whether a callback is the second one of the group's first instruction.  HALF: of two halves. */
bool is_called_again(enum again again, qemu_plugin_meminfo_t info, uint64_t address, uint64_t *half);
/* All groups of a block of COUNT instructions, of which COUNTED are executed with it. */
size_t groups_of(struct qemu_plugin_tb *tb, size_t count, size_t counted,
		 const struct group **groups);
/* Whether something is counted at an instruction that what comes behind must not come before. */
bool ends_group(uint64_t address, const uint8_t *bytes, size_t size);

/* A block as it is counted (probe.c). */
struct block;
/* One entry of it was of EXECUTED instructions of these kinds and no more. */
void uncount(struct block *block, unsigned int vcpu, unsigned int executed,
	     const uint16_t kinds[KINDS_COUNTED]);

/* Instructions of a vCPU up to one that has LEFT in its block, itself included. */
uint64_t clock_of(unsigned int vcpu, int left);

/* As those of memory_, for call stacks (stacks.c); a block counts COUNTED instructions at once. */
int stacks_argument(const char *argument);
bool stacks_begin(unsigned int vcpus);
void stacks_watch(struct qemu_plugin_tb *tb, size_t count, size_t counted);
void stacks_mark(uint32_t phase);
const struct spent *stacks_rows(size_t *count);
const struct path *stacks_paths(size_t *count);

/* Whether QEMU tells of discontinuities; have it tell of them (discontinuities.c). */
bool discontinuities_begin(qemu_plugin_id_t id, unsigned int vcpus);
/* Have a block of COUNT instructions followed to its end; before it is counted. */
void discontinuities_watch(struct qemu_plugin_tb *tb, struct block *block, size_t count);
void discontinuities_mark(uint32_t phase);
const struct interruption *discontinuities_rows(size_t *count);

/* Whether an argument is one of the model's: 1, or -1 where it is and cannot be read. */
int memory_argument(const char *argument);
/* Whether a machine was described; what is missing of it is said, and then this is -1. */
int memory_wanted(void);
/* Have the COUNT instructions of a block fed to the model. */
void memory_watch(struct qemu_plugin_tb *tb, size_t count, size_t counted);
/* A phase ends, and the model's machine goes on, or begins. */
void memory_mark(uint32_t phase);
/* All rows so far, and how many accesses had no translation. */
const struct misses *memory_rows(size_t *count, uint64_t *unmapped);

/* What an instruction does to translations: nothing, to the user's, to one, or to all. */
enum drops { KEPT, DROPS_USER, DROPS_PAGE, DROPS_ALL };
enum drops drops_translations(const uint8_t *bytes, size_t size);
/* A word of the kernel's memory, 0 where its page tables are not known or there is none. */
uint64_t memory_word(uint64_t address);
/* Where the variables of a CPU are, 0 where that is not known. */
uint64_t memory_of_cpu(unsigned int vcpu);

/* As those of memory_, for lines that move between vCPUs; WANTED makes a cache for each of them. */
int lines_argument(const char *argument);
bool lines_wanted(unsigned int vcpus);
void lines_watch(struct qemu_plugin_tb *tb, size_t count, size_t counted);
void lines_mark(uint32_t phase);
const struct move *lines_rows(size_t *count);
/* Slab caches that objects of moves and of locks may be of, by the number that these have. */
const struct slab *lines_slabs(size_t *count);
/* Whether objects of slab caches can be told; have them, where they can, read as they are now. */
bool slabs_wanted(void);
void slabs_read(void);
/* The object at an address as in a move (lines.c), 0 where it is of no slab cache. */
uint64_t slab_object(uint64_t address);
/* A line came to a vCPU from another: for the locks that it holds. */
void moved(unsigned int vcpu);
/* The model missed L2, LLC or a page: for the locks that are held. */
void missed(enum miss what);

#endif
