/*
 * Call stacks: which functions of the kernel called which, and how many instructions were
 * executed in each on each path (x86-64 alone).
 *
 * A stack is kept beside each of the guest's own, by what the code does: a CALL puts a frame on it,
 * a RET takes one off, and what else begins a function (a jump at the end of another) takes
 * the place of its last frame.  Neither a register nor the guest's stack is read, and the guest
 * pays nothing.  A frame that went wrong (code that changes its own return address, speculation
 * barriers) is put right where the next call returns: the function there must be one of the stack's.
 *
 * An interrupt or an exception begins where one of the enter= functions does, on top of what it
 * interrupted, and ends with an IRET.  At one of the begin= functions the task has no frame (a call
 * of the system, a new task).  A task is known by where its stack is, and the function
 * switches= goes from one stack to another.
 *
 * Arguments: functions=FILE is the kernel's System.map; enter=, begin= and switches= are addresses
 * (hexadecimal) of functions in it (guests/probe/stacks.py chooses them).
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

#define MAX_FRAMES 256
#define STACK_BITS 14
/* The user's code, whose calls are not followed. */
#define ROOT 0u

enum part { PLAIN, ENTERS, BEGINS, SWITCHES };

/* Where functions begin, sorted, and what that of each means. */
static struct function {
	uint64_t start;
	enum part part;
} *functions;
static size_t function_count, function_room;
static bool named;

/* A function as called on one path, and what was counted of it in this phase. */
static struct node {
	uint64_t function, instructions, calls;
	uint32_t parent;
} *nodes;
static uint32_t node_count, node_room;
static uint32_t *node_table; /* open addressing by parent and function; 0 is none */
static size_t table_room;

/* A call that has not returned; a FRESH one has executed nothing of what it called. */
struct frame {
	uint32_t node;
	bool fresh, interrupt;
};
/* The frames of a task, by its stack. */
static struct task {
	uint64_t stack;
	unsigned int count;
	struct frame frames[MAX_FRAMES];
} **tasks;
static size_t task_count, task_room;
static struct lane {
	struct task *task;
	uint64_t since; /* the clock up to which instructions are counted */
} *lanes;
static unsigned int lane_count;

static struct spent *written;
static size_t written_count, written_room;

static void add_function(uint64_t start)
{
	if (function_count == function_room) {
		function_room = function_room ? function_room * 2 : 1 << 16;
		functions = more(functions, function_room, sizeof(*functions));
	}
	functions[function_count++] = (struct function){ start, PLAIN };
}

static int by_start(const void *one, const void *other)
{
	uint64_t a = ((const struct function *)one)->start;
	uint64_t b = ((const struct function *)other)->start;

	return a < b ? -1 : a > b;
}

static bool read_functions(const char *path)
{
	FILE *map = fopen(path, "r");
	char line[1024], kind;
	unsigned long long start;

	if (map == NULL)
		return false;
	while (fgets(line, sizeof(line), map))
		if (sscanf(line, "%llx %c", &start, &kind) == 2 && strchr("tTwW", kind))
			add_function(start);
	fclose(map);
	qsort(functions, function_count, sizeof(*functions), by_start);
	return function_count > 0;
}

/* The function that an address is in, NULL for none.  The last symbol is the end of the code. */
static struct function *function_of(uint64_t address)
{
	size_t low = 0, high = function_count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (functions[middle].start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low && low < function_count ? &functions[low - 1] : NULL;
}

int stacks_argument(const char *argument)
{
	static const char *const WORDS[] = { [ENTERS] = "enter=", [BEGINS] = "begin=",
					     [SWITCHES] = "switches=" };

	if (strncmp(argument, "functions=", 10) == 0) {
		named = read_functions(argument + 10);
		return named ? 1 : -1;
	}
	for (enum part part = ENTERS; part <= SWITCHES; part++) {
		size_t length = strlen(WORDS[part]);
		struct function *function;
		char *end;

		if (strncmp(argument, WORDS[part], length))
			continue;
		function = function_of(strtoull(argument + length, &end, 16));
		if (*end || function == NULL)
			return -1;
		/* Of several names for one address each is listed. */
		for (uint64_t start = function->start;
		     function >= functions && function->start == start; function--)
			function->part = part;
		return 1;
	}
	return 0;
}

static uint32_t *node_slot(uint32_t parent, uint64_t function)
{
	uint64_t key = (function ^ (uint64_t)parent << 40) * 0x9e3779b97f4a7c15u;
	size_t slot = (key ^ key >> 32) & (table_room - 1);

	while (node_table[slot] && (nodes[node_table[slot]].parent != parent ||
				    nodes[node_table[slot]].function != function))
		slot = (slot + 1) & (table_room - 1);
	return &node_table[slot];
}

static uint32_t child(uint32_t parent, uint64_t function)
{
	uint32_t *slot;

	if (node_count * 2 >= table_room) {
		table_room = table_room ? table_room * 2 : 1 << 14;
		node_table = more(node_table, table_room, sizeof(*node_table));
		memset(node_table, 0, table_room * sizeof(*node_table));
		for (uint32_t at = 1; at < node_count; at++)
			*node_slot(nodes[at].parent, nodes[at].function) = at;
	}
	slot = node_slot(parent, function);
	if (*slot == 0) {
		if (node_count == node_room) {
			node_room *= 2;
			nodes = more(nodes, node_room, sizeof(*nodes));
		}
		nodes[node_count] = (struct node){ .function = function, .parent = parent };
		*slot = node_count++;
	}
	return *slot;
}

static struct task *new_task(uint64_t stack)
{
	struct task *task = more(NULL, 1, sizeof(*task));

	task->stack = stack;
	task->count = 0;
	return task;
}

static void add_task(struct task *task)
{
	if (task_count == task_room) {
		task_room = task_room ? task_room * 2 : 64;
		tasks = more(tasks, task_room, sizeof(*tasks));
	}
	tasks[task_count++] = task;
}

/* A stack that is used again begins with what its last task left, up to the first begin=. */
static struct task *task_of(uint64_t stack)
{
	for (size_t at = 0; at < task_count; at++)
		if (tasks[at]->stack == stack)
			return tasks[at];
	add_task(new_task(stack));
	return tasks[task_count - 1];
}

static uint32_t top(const struct task *task)
{
	return task->count ? task->frames[task->count - 1].node : ROOT;
}

/* Count what was executed since the last time, up to a moment, for who is on top. */
static void settle(struct lane *lane, uint64_t moment)
{
	nodes[top(lane->task)].instructions += moment - lane->since;
	lane->since = moment;
}

static void push(struct task *task, uint32_t node, bool fresh, bool interrupt)
{
	if (task->count == MAX_FRAMES)
		memmove(task->frames, task->frames + 1, --task->count * sizeof(*task->frames));
	task->frames[task->count++] = (struct frame){ node, fresh, interrupt };
}

/* DATA of these: the instructions of the block that are not executed when it is called. */
static void on_call(unsigned int vcpu, void *data)
{
	struct lane *lane = &lanes[vcpu = RUNNING(vcpu)];

	settle(lane, clock_of(vcpu, (intptr_t)data));
	/* Until it is seen what begins there that is the caller's. */
	push(lane->task, top(lane->task), true, false);
}

static void on_return(unsigned int vcpu, void *data)
{
	struct lane *lane = &lanes[vcpu = RUNNING(vcpu)];

	settle(lane, clock_of(vcpu, (intptr_t)data));
	if (lane->task->count)
		lane->task->count--;
}

/* From an interrupt to what it interrupted, which is the user where nothing else is known. */
static void on_interrupt_return(unsigned int vcpu, void *data)
{
	struct lane *lane = &lanes[vcpu = RUNNING(vcpu)];
	struct task *task = lane->task;

	settle(lane, clock_of(vcpu, (intptr_t)data));
	while (task->count && !task->frames[--task->count].interrupt)
		;
}

static void on_system_return(unsigned int vcpu, void *data)
{
	struct lane *lane = &lanes[vcpu = RUNNING(vcpu)];

	settle(lane, clock_of(vcpu, (intptr_t)data));
	lane->task->count = 0;
}

/* A block that begins a function is about to be executed; of each the address is in DATA. */
struct at {
	uint64_t function;
	enum part part;
	unsigned int instructions; /* of the block */
	uint32_t parent, node; /* the path that it was called on last, and the function there; 0 is none */
};

static uint32_t child_at(struct at *at, uint32_t parent)
{
	if (at->node == 0 || at->parent != parent) {
		at->parent = parent;
		at->node = child(parent, at->function);
	}
	return at->node;
}

static void on_function(unsigned int vcpu, void *data)
{
	struct lane *lane = &lanes[vcpu = RUNNING(vcpu)];
	struct task *task = lane->task;
	struct at *at = data;
	struct frame *last;

	settle(lane, clock_of(vcpu, at->instructions));
	if (at->part == BEGINS)
		task->count = 0;
	if (at->part == ENTERS || task->count == 0) {
		push(task, child_at(at, top(task)), false, at->part != PLAIN);
	} else {
		last = &task->frames[task->count - 1];
		/* What the assembler of an entry jumps to is more of it. */
		if (last->interrupt)
			return;
		last->node = child_at(at, last->fresh ? last->node : nodes[last->node].parent);
		last->fresh = false;
	}
	nodes[top(task)].calls++;
}

/* A call may have returned to here. */
static void on_site(unsigned int vcpu, void *data)
{
	struct lane *lane = &lanes[vcpu = RUNNING(vcpu)];
	struct task *task = lane->task;
	const struct at *at = data;
	unsigned int count = task->count;

	if (nodes[top(task)].function == at->function)
		return;
	settle(lane, clock_of(vcpu, at->instructions));
	/* Not below the last interrupt: what it interrupted goes on later. */
	while (count && nodes[task->frames[count - 1].node].function != at->function)
		count = task->frames[count - 1].interrupt ? 0 : count - 1;
	if (count) {
		task->count = count;
		return;
	}
	/* A task that was there before the plugin: of its stack only this is known. */
	while (task->count && !task->frames[task->count - 1].interrupt)
		task->count--;
	push(task, child(top(task), at->function), false, false);
}

static void on_switch(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t stack, void *data)
{
	struct lane *lane = &lanes[vcpu = RUNNING(vcpu)];

	(void)info;
	stack >>= STACK_BITS;
	if (lane->task->stack == stack)
		return;
	if (lane->task->stack == 0) {
		/* What ran when the plugin was loaded. */
		lane->task->stack = stack;
		add_task(lane->task);
		return;
	}
	settle(lane, clock_of(vcpu, (intptr_t)data));
	lane->task = task_of(stack);
}

static void watch_block(struct qemu_plugin_tb *tb, void (*what)(unsigned int, void *),
			const struct function *function, size_t count)
{
	struct at *at = kept(1, sizeof(*at));

	*at = (struct at){ function->start, function->part, count, 0, 0 };
	/* Called at an instruction, which is behind what counts the block. */
	qemu_plugin_register_vcpu_insn_exec_cb(qemu_plugin_tb_get_insn(tb, 0), what,
					       QEMU_PLUGIN_CB_NO_REGS, at);
}

/* Addresses behind calls, by open addressing. */
static uint64_t *sites;
static size_t site_count, site_room;

static uint64_t *site_slot(uint64_t address)
{
	size_t slot = address * 0x9e3779b97f4a7c15u >> 32 & (site_room - 1);

	while (sites[slot] && sites[slot] != address)
		slot = (slot + 1) & (site_room - 1);
	return &sites[slot];
}

static void add_site(uint64_t address)
{
	if (site_count * 2 >= site_room) {
		uint64_t *old = sites;
		size_t old_room = site_room;

		site_room = old_room ? old_room * 2 : 1 << 14;
		sites = more(NULL, site_room, sizeof(*sites));
		memset(sites, 0, site_room * sizeof(*sites));
		for (size_t at = 0; at < old_room; at++)
			if (old[at])
				*site_slot(old[at]) = old[at];
		free(old);
	}
	if (*site_slot(address) == 0) {
		*site_slot(address) = address;
		site_count++;
	}
}

/* What an instruction does to the stack; prefixes of branches are hints and sizes. */
enum does { NOTHING, CALLS, RETURNS, RETURNS_FROM_INTERRUPT, RETURNS_TO_USER };

static enum does does(const uint8_t *bytes, size_t size)
{
	const uint8_t *end = bytes + size;

	while (bytes < end && (*bytes == 0x2e || *bytes == 0x3e || *bytes == 0x66 ||
			       *bytes == 0xf2 || *bytes == 0xf3 || (*bytes & 0xf0) == 0x40))
		bytes++;
	if (bytes == end)
		return NOTHING;
	if (*bytes == 0xe8)
		return CALLS;
	if (*bytes == 0xff && end - bytes > 1 && (bytes[1] & 0x38) == 0x10)
		return CALLS;
	if (*bytes == 0xc3 || *bytes == 0xc2)
		return RETURNS;
	if (*bytes == 0xcf)
		return RETURNS_FROM_INTERRUPT;
	return *bytes == 0x0f && end - bytes > 1 && (bytes[1] == 0x07 || bytes[1] == 0x35) ?
		       RETURNS_TO_USER :
		       NOTHING;
}

void stacks_watch(struct qemu_plugin_tb *tb, size_t count, size_t counted)
{
	static void (*const WHAT[])(unsigned int, void *) = {
		[CALLS] = on_call, [RETURNS] = on_return,
		[RETURNS_FROM_INTERRUPT] = on_interrupt_return, [RETURNS_TO_USER] = on_system_return
	};
	uint64_t begin = qemu_plugin_tb_vaddr(tb);
	struct function *function = function_of(begin);
	uint8_t bytes[MAX_BYTES];

	/* What modules execute is counted for the function that called them. */
	if (begin < functions[0].start)
		return;
	if (function && function->start == begin)
		watch_block(tb, on_function, function, counted);
	else if (function && site_room && *site_slot(begin))
		watch_block(tb, on_site, function, counted);
	for (size_t i = 0; i < count; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		size_t size = bytes_of(insn, bytes);
		enum does what = does(bytes, size);
		/* One that counts by itself counts once this was called. */
		intptr_t left = i < counted ? (intptr_t)(counted - i - 1) : -1;

		/* Of PUSH and POP alone, as in probe.c. */
		if (function && function->part == SWITCHES && size <= 2 && (bytes[size - 1] & 0xf0) == 0x50)
			qemu_plugin_register_vcpu_mem_cb(insn, on_switch, QEMU_PLUGIN_CB_NO_REGS,
							 QEMU_PLUGIN_MEM_RW,
							 (void *)left);
		if (what == CALLS)
			add_site(qemu_plugin_insn_vaddr(insn) + size);
		if (what != NOTHING)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, WHAT[what],
							       QEMU_PLUGIN_CB_NO_REGS,
							       (void *)left);
	}
}

bool stacks_begin(unsigned int vcpus)
{
	if (!named)
		return false;
	node_room = 1 << 12;
	nodes = more(NULL, node_room, sizeof(*nodes));
	nodes[ROOT] = (struct node){ 0 };
	node_count = 1;
	lane_count = vcpus;
	lanes = more(NULL, vcpus, sizeof(*lanes));
	for (unsigned int vcpu = 0; vcpu < vcpus; vcpu++) {
		/* Whose stack it is is known from the first switch on. */
		lanes[vcpu] = (struct lane){ new_task(0), 0 };
	}
	return true;
}

/* A vCPU that is in a function at the end of a phase goes on there in the next one. */
void stacks_mark(uint32_t phase)
{
	for (unsigned int vcpu = 0; vcpu < lane_count; vcpu++)
		settle(&lanes[vcpu], clock_of(vcpu, 0));
	for (uint32_t at = 0; at < node_count; at++) {
		struct node *node = &nodes[at];

		if (phase && (node->instructions || node->calls)) {
			if (written_count == written_room) {
				written_room = written_room ? written_room * 2 : 1 << 12;
				written = more(written, written_room, sizeof(*written));
			}
			written[written_count++] = (struct spent){ phase, at, node->instructions,
								   node->calls };
		}
		node->instructions = node->calls = 0;
	}
}

const struct spent *stacks_rows(size_t *count)
{
	*count = written_count;
	return written;
}

const struct path *stacks_paths(size_t *count)
{
	struct path *paths = more(NULL, node_count, sizeof(*paths));

	for (uint32_t at = 0; at < node_count; at++)
		paths[at] = (struct path){ nodes[at].parent, 0, nodes[at].function };
	*count = node_count;
	return paths;
}
