/*
 * An io_uring of this process, by its three system calls: as many reads or writes as fit are
 * handed over together, and waited for together.
 */
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define DEPTH 16

static struct {
	int fd;
	unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
	unsigned waiting;
} ring;

static void *map_ring(size_t bytes, off_t offset)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.fd,
			offset);

	need(at != MAP_FAILED, "mmap of a ring");
	return at;
}

static void ring_open(void)
{
	struct io_uring_params p = { 0 };
	char *sq, *cq;

	ring.fd = syscall(SYS_io_uring_setup, DEPTH, &p);
	need(ring.fd >= 0, "io_uring_setup");
	sq = map_ring(p.sq_off.array + p.sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
	cq = map_ring(p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe),
		      IORING_OFF_CQ_RING);
	ring.sqes = map_ring(p.sq_entries * sizeof(struct io_uring_sqe), IORING_OFF_SQES);
	ring.sq_tail = (unsigned *)(sq + p.sq_off.tail);
	ring.sq_mask = (unsigned *)(sq + p.sq_off.ring_mask);
	ring.sq_array = (unsigned *)(sq + p.sq_off.array);
	ring.cq_head = (unsigned *)(cq + p.cq_off.head);
	ring.cq_tail = (unsigned *)(cq + p.cq_off.tail);
	ring.cq_mask = (unsigned *)(cq + p.cq_off.ring_mask);
	ring.cqes = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
}

/* Hand over what was added, and wait for all of it. */
static void ring_wait(unsigned bytes)
{
	unsigned head = *ring.cq_head;

	need(syscall(SYS_io_uring_enter, ring.fd, ring.waiting, ring.waiting,
		     IORING_ENTER_GETEVENTS, NULL, 0) == (long)ring.waiting, "io_uring_enter");
	for (; ring.waiting; ring.waiting--) {
		need(head != __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE), "a completion");
		errno = 0;
		need(ring.cqes[head++ & *ring.cq_mask].res == (int)bytes, "bytes of a request");
	}
	__atomic_store_n(ring.cq_head, head, __ATOMIC_RELEASE);
}

static void ring_add(int opcode, int fd, void *buffer, unsigned bytes, uint64_t offset)
{
	unsigned tail = *ring.sq_tail, at = tail & *ring.sq_mask;

	ring.sqes[at] = (struct io_uring_sqe){
		.opcode = opcode, .fd = fd, .addr = (uintptr_t)buffer, .len = bytes, .off = offset,
	};
	ring.sq_array[at] = at;
	__atomic_store_n(ring.sq_tail, tail + 1, __ATOMIC_RELEASE);
	if (++ring.waiting == DEPTH)
		ring_wait(bytes);
}
