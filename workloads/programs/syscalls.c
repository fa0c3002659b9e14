/*
 * System calls, one operation at a time, in the style of will-it-scale.
 *
 * Two tasks are of one process, and with one CPU each wait is a switch to the other.
 */
#include "program.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define BYTES 8192U
#define FILES 64U

static char bytes[BYTES], name[32];
static uint64_t event = 1;

static void getppid_(unsigned long count)
{
	while (count--)
		need(syscall(SYS_getppid) > 0, "getppid");
}

/* Through a pipe and back in one task: what is copied, without a switch. */
static void pipe_(unsigned long count)
{
	int ends[2];

	need(pipe(ends) == 0, "pipe");
	while (count--) {
		ssize_t length = 1 + draw(BYTES);

		need(write(ends[1], bytes, length) == length, "write");
		need(read(ends[0], bytes, length) == length, "read");
	}
}

struct turns {
	int ends[2], back[2];
	unsigned long count;
};

static void *answer(void *at)
{
	struct turns *turns = at;
	char one;

	for (unsigned long n = 0; n < turns->count; n++) {
		need(read(turns->ends[0], &one, 1) == 1, "read");
		need(write(turns->back[1], &one, 1) == 1, "write");
	}
	return NULL;
}

/* A byte there and back between two tasks: two switches. */
static void pingpong(unsigned long count)
{
	struct turns turns = { .count = count };
	pthread_t other;
	char one = 0;

	need(pipe(turns.ends) == 0 && pipe(turns.back) == 0, "pipe");
	need(pthread_create(&other, NULL, answer, &turns) == 0, "pthread_create");
	while (count--) {
		one = draw(256);
		need(write(turns.ends[1], &one, 1) == 1, "write");
		need(read(turns.back[0], &one, 1) == 1, "read");
	}
	need(pthread_join(other, NULL) == 0, "pthread_join");
}

static unsigned int word, turn_limit;

static void *hand_back(void *at)
{
	(void)at;
	for (unsigned int n = 0; n < turn_limit; n++) {
		while (__atomic_load_n(&word, __ATOMIC_SEQ_CST) != 2 * n + 1)
			syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 2 * n, NULL, NULL, 0);
		__atomic_store_n(&word, 2 * n + 2, __ATOMIC_SEQ_CST);
		syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	}
	return NULL;
}

/* A word that two tasks hand to each other, and wakes of nobody on drawn addresses. */
static void futex(unsigned long count)
{
	static unsigned int nobodys[1024];
	pthread_t other;

	turn_limit = count;
	need(pthread_create(&other, NULL, hand_back, NULL) == 0, "pthread_create");
	for (unsigned int n = 0; n < count; n++) {
		syscall(SYS_futex, &nobodys[draw(1024)], FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
		__atomic_store_n(&word, 2 * n + 1, __ATOMIC_SEQ_CST);
		syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
		while (__atomic_load_n(&word, __ATOMIC_SEQ_CST) != 2 * n + 2)
			syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 2 * n + 1, NULL, NULL, 0);
	}
	need(pthread_join(other, NULL) == 0, "pthread_join");
}

static const char *named(const char *kind, unsigned n)
{
	snprintf(name, sizeof(name), "/mnt/%s.%u", kind, n);
	return name;
}

static void open_(unsigned long count)
{
	struct stat found;
	int fd;

	for (unsigned n = 0; n < FILES; n++)
		need(close(open(named("open", n), O_CREAT | O_WRONLY, 0644)) == 0, name);
	while (count--) {
		fd = open(named("open", draw(FILES)), O_RDONLY);
		need(fd >= 0 && fstat(fd, &found) == 0 && close(fd) == 0, name);
	}
}

/* As a search path is gone through: names that are in none of its folders. */
static void missing(unsigned long count)
{
	while (count--)
		need(open(named("none", draw(FILES)), O_RDONLY) < 0 && errno == ENOENT, name);
}

static void poll_(unsigned long count)
{
	struct pollfd polled[FILES];

	for (unsigned n = 0; n < FILES; n++) {
		polled[n] = (struct pollfd){ .fd = eventfd(0, EFD_NONBLOCK), .events = POLLIN };
		need(polled[n].fd >= 0, "eventfd");
	}
	while (count--) {
		int fd = polled[draw(FILES)].fd;

		need(write(fd, &event, 8) == 8, "write");
		need(poll(polled, 1 + draw(FILES), 0) >= 0 && poll(polled, FILES, 0) == 1, "poll");
		need(read(fd, &event, 8) == 8, "read");
	}
}

static void epoll(unsigned long count)
{
	struct epoll_event wanted = { .events = EPOLLIN }, found;
	int fds[FILES], set = epoll_create1(0);

	for (unsigned n = 0; n < FILES; n++) {
		wanted.data.fd = n;
		fds[n] = eventfd(0, EFD_NONBLOCK);
		need(fds[n] >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fds[n], &wanted) == 0, "epoll_ctl");
	}
	while (count--) {
		wanted.data.fd = draw(FILES);
		need(write(fds[wanted.data.fd], &event, 8) == 8, "write");
		need(epoll_wait(set, &found, 1, 0) == 1 && found.data.fd == wanted.data.fd, "epoll_wait");
		need(read(fds[found.data.fd], &event, 8) == 8, "read");
		if (draw(4) == 0)
			need(!epoll_ctl(set, EPOLL_CTL_DEL, fds[found.data.fd], NULL) &&
			     !epoll_ctl(set, EPOLL_CTL_ADD, fds[found.data.fd], &wanted), "epoll_ctl");
	}
}

static volatile sig_atomic_t handled;

static void handle(int number)
{
	handled += number == SIGUSR1 || number == SIGUSR2;
}

static void signal_(unsigned long count)
{
	struct sigaction action = { .sa_handler = handle };

	need(!sigaction(SIGUSR1, &action, NULL) && !sigaction(SIGUSR2, &action, NULL), "sigaction");
	for (unsigned long n = 0; n < count; n++)
		need(raise(draw(2) ? SIGUSR1 : SIGUSR2) == 0, "raise");
	need((unsigned long)handled == count, "signals handled");
}

static const struct operation operations[] = {
	{ "getppid", getppid_ }, { "pipe", pipe_ }, { "pingpong", pingpong }, { "futex", futex },
	{ "open", open_ }, { "missing", missing }, { "poll", poll_ }, { "epoll", epoll },
	{ "signal", signal_ }, {},
};

int main(int argc, char **argv)
{
	return run_operation(operations, argc, argv);
}
