/* Blocks made of bytes, for what the plugin reads of QEMU's. */
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

#define MOST_INSTRUCTIONS 64

struct qemu_plugin_insn {
	uint64_t address;
	const uint8_t *bytes;
	size_t size;
};
struct qemu_plugin_tb {
	size_t count;
	struct qemu_plugin_insn instructions[MOST_INSTRUCTIONS];
};

size_t groups_in(uint64_t address, const uint8_t *bytes, const size_t *sizes, size_t count,
		 const struct group **groups)
{
	static struct qemu_plugin_tb tb;

	tb.count = count;
	for (size_t i = 0; i < count; i++) {
		tb.instructions[i] = (struct qemu_plugin_insn){ address, bytes, sizes[i] };
		address += sizes[i];
		bytes += sizes[i];
	}
	return groups_of(&tb, count, count, groups);
}

uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb)
{
	return tb->instructions[0].address;
}

struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t at)
{
	return (struct qemu_plugin_insn *)&tb->instructions[at];
}

uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn)
{
	return insn->address;
}

size_t bytes_of(const struct qemu_plugin_insn *insn, uint8_t bytes[MAX_BYTES])
{
	memcpy(bytes, insn->bytes, insn->size);
	return insn->size;
}

void *more(void *old, size_t count, size_t size)
{
	return realloc(old, count * size);
}

/* Marks of a phase. */
bool ends_group(uint64_t address, const uint8_t *bytes, size_t size)
{
	(void)address;
	return size == 7 && bytes[0] == 0x0f && bytes[1] == 0x1f && bytes[2] == 0x80;
}

bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t info)
{
	return info & 1;
}

unsigned int qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t info)
{
	return info >> 1;
}
