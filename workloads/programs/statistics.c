/*
 * What a monitor reads of a kernel, and what an administrator writes, one file at a time: of a
 * task, of the whole memory, of slab caches, and settings that are written as they are.
 */
#include "program.h"

#include <fcntl.h>
#include <sys/mman.h>

#define PAGES 256UL /* of the task that is looked at */

static char bytes[1 << 16];

/* A file from its beginning to its end; how much there was. */
static size_t read_all(const char *name)
{
	size_t total = 0;
	ssize_t got;
	int fd = open(name, O_RDONLY);

	need(fd >= 0, name);
	while ((got = read(fd, bytes, sizeof(bytes) - 1)) > 0) {
		bytes[got] = 0;
		total += got;
	}
	need(got == 0 && close(fd) == 0, name);
	return total;
}

static const char *const of_task[] = {
	"maps", "smaps", "smaps_rollup", "status", "stat", "statm", "limits", "wchan",
	"cgroup", "mounts", "mountinfo", "cmdline", "environ", "oom_score", "oom_score_adj",
};

/* Of this task, some of whose memory changes between. */
static void task(unsigned long count)
{
	size_t page = sysconf(_SC_PAGESIZE);
	char name[64], *at = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int map = open("/proc/self/pagemap", O_RDONLY);

	need(at != MAP_FAILED && map >= 0, "mmap");
	while (count--) {
		unsigned number = draw(sizeof(of_task) / sizeof(*of_task) + 1);

		at[draw(PAGES) * page]++;
		if (number == sizeof(of_task) / sizeof(*of_task)) {
			need(pread(map, bytes, PAGES * 8, (uintptr_t)at / page * 8) == PAGES * 8, "pagemap");
			continue;
		}
		snprintf(name, sizeof(name), "/proc/self/%s", of_task[number]);
		read_all(name);
	}
	close(map);
	need(munmap(at, PAGES * page) == 0, "munmap");
}

#define HUGE "/sys/kernel/mm/transparent_hugepage/"
#define SIZE HUGE "hugepages-64kB/"
#define DEVICE "/sys/block/ram0/"

static const char *const of_system[] = {
	"/proc/meminfo", "/proc/vmstat", "/proc/zoneinfo", "/proc/buddyinfo", "/proc/pagetypeinfo",
	"/proc/slabinfo", "/proc/swaps", "/proc/stat", "/proc/loadavg", "/proc/uptime",
	"/proc/diskstats", "/proc/partitions", "/proc/filesystems", "/proc/mounts",
	"/proc/interrupts", "/proc/softirqs", "/proc/locks", "/proc/cgroups", "/proc/pressure/cpu",
	"/proc/pressure/io", "/proc/pressure/memory", HUGE "hpage_pmd_size",
	HUGE "khugepaged/full_scans", HUGE "khugepaged/pages_collapsed",
	SIZE "stats/anon_fault_alloc", SIZE "stats/anon_fault_fallback",
	SIZE "stats/anon_fault_fallback_charge", SIZE "stats/swpout", SIZE "stats/swpout_fallback",
	SIZE "stats/shmem_alloc", SIZE "stats/shmem_fallback", SIZE "stats/shmem_fallback_charge",
	SIZE "stats/split", SIZE "stats/split_failed", SIZE "stats/split_deferred",
	SIZE "stats/nr_anon", SIZE "stats/nr_anon_partially_mapped",
	DEVICE "bdi/stable_pages_required",
};

static void memory(unsigned long count)
{
	/* Of locks and swaps there may be none. */
	while (count--)
		read_all(of_system[draw(sizeof(of_system) / sizeof(*of_system))]);
}

static const char *const caches[] = {
	"kmalloc-64", "kmalloc-1k", "dentry", "radix_tree_node", "vm_area_struct", "maple_node",
	"task_struct", "filp",
};

static const char *const of_cache[] = {
	"aliases", "align", "cpu_partial", "cpu_slabs", "ctor", "destroy_by_rcu", "hwcache_align",
	"min_partial", "object_size", "objects", "objects_partial", "objs_per_slab", "order",
	"partial", "poison", "reclaim_account", "red_zone", "sanity_checks", "slab_size", "slabs",
	"slabs_cpu_partial", "store_user", "total_objects", "trace",
};

static void slab(unsigned long count)
{
	char name[96];

	while (count--) {
		const char *cache = caches[draw(sizeof(caches) / sizeof(*caches))];

		if (draw(32)) {
			snprintf(name, sizeof(name), "/sys/kernel/slab/%s/%s", cache,
				 of_cache[draw(sizeof(of_cache) / sizeof(*of_cache))]);
			read_all(name);
		} else {
			int fd;

			snprintf(name, sizeof(name), "/sys/kernel/slab/%s/shrink", cache);
			fd = open(name, O_WRONLY);
			need(fd >= 0 && write(fd, "1", 1) == 1 && close(fd) == 0, name);
		}
	}
}

static const char *const settings[] = {
	HUGE "enabled", HUGE "defrag", HUGE "shmem_enabled", HUGE "use_zero_page",
	HUGE "shrink_underused", SIZE "enabled", SIZE "shmem_enabled", HUGE "khugepaged/defrag",
	HUGE "khugepaged/alloc_sleep_millisecs", HUGE "khugepaged/scan_sleep_millisecs",
	HUGE "khugepaged/pages_to_scan", HUGE "khugepaged/max_ptes_none",
	HUGE "khugepaged/max_ptes_swap", HUGE "khugepaged/max_ptes_shared",
	DEVICE "bdi/min_ratio", DEVICE "bdi/max_ratio", DEVICE "bdi/min_ratio_fine",
	DEVICE "bdi/max_ratio_fine", DEVICE "bdi/min_bytes", DEVICE "bdi/max_bytes",
	DEVICE "bdi/strict_limit", DEVICE "bdi/read_ahead_kb",
	DEVICE "queue/nomerges", DEVICE "queue/rotational",
	"/proc/sys/vm/min_free_kbytes", "/proc/sys/vm/watermark_scale_factor",
	"/sys/kernel/mm/numa/demotion_enabled", "/sys/kernel/mm/swap/vma_ra_enabled",
	"/sys/kernel/mm/mempolicy/weighted_interleave/node0",
	"/sys/kernel/slab/dentry/min_partial", "/sys/kernel/slab/dentry/cpu_partial",
	"/sys/kernel/slab/dentry/remote_node_defrag_ratio",
	"/proc/sys/vm/min_slab_ratio", "/proc/sys/vm/min_unmapped_ratio",
	"/proc/sys/vm/numa_zonelist_order", "/proc/sys/vm/lowmem_reserve_ratio",
	"/proc/sys/vm/dirty_ratio",
	"/proc/sys/vm/dirty_background_ratio", "/proc/sys/vm/dirty_writeback_centisecs",
	"/proc/sys/vm/overcommit_memory", "/proc/sys/vm/overcommit_ratio",
	"/proc/sys/vm/compaction_proactiveness", "/proc/sys/vm/percpu_pagelist_high_fraction",
	"/proc/sys/vm/numa_stat", "/proc/sys/vm/stat_refresh", "/proc/sys/vm/swappiness",
	"/proc/sys/kernel/sched_rt_runtime_us", "/proc/sys/kernel/sched_rr_timeslice_ms",
};

/* Read and written as it is; of several words the one in brackets is in force. */
static void setting(unsigned long count)
{
	while (count--) {
		const char *name = settings[draw(sizeof(settings) / sizeof(*settings))];
		char *value = bytes, *end;
		int fd;

		bytes[0] = 0;
		read_all(name);
		if ((end = strchr(bytes, ']'))) {
			*end = 0;
			value = strchr(bytes, '[') + 1;
		}
		if (!*value)
			continue;
		fd = open(name, O_WRONLY);
		need(fd >= 0 && write(fd, value, strlen(value)) > 0 && close(fd) == 0, name);
	}
}

static const struct operation operations[] = {
	{ "task", task }, { "memory", memory }, { "slab", slab }, { "setting", setting }, {},
};

int main(int argc, char **argv)
{
	return run_operation(operations, argc, argv);
}
