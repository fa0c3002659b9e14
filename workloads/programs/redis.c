/*
 * Requests to a Redis server through a local socket, one kind a phase, and its snapshots.
 *
 * A snapshot forks: page tables are copied, and each page that is written to while the child
 * saves.  The child sleeps at each key for so long that all writes come before its end.
 */
#include "program.h"
#include "host_program.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

/* The server's program: which it is, is decided by the name that it is started by. */
#define PROGRAM "/usr/bin/redis-check-rdb"
#define SOCKET "/tmp/redis.sock"
#define SNAPSHOT "/mnt/dump.rdb"
#define KEYS 512U
#define VALUE 8192U /* bytes, so that a write is to one page of them */
#define WRITES 400UL /* while a snapshot is taken */
#define SAVE_DELAY "250" /* microseconds for each key */

static int fd;
static char reply[16384];

/* A request of one line; the reply begins with expected. */
static void ask(const char *expected, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void read_line(void)
{
	size_t have = 0;

	do {
		ssize_t got = read(fd, reply + have, sizeof(reply) - 1 - have);

		need(got > 0, "read");
		have += got;
		reply[have] = 0;
	} while (!strstr(reply, "\r\n") || (reply[0] == '$' && strcmp(reply + have - 2, "\r\n")));
}

static void ask(const char *expected, const char *format, ...)
{
	char line[128];
	__builtin_va_list values;
	int length;

	__builtin_va_start(values, format);
	length = vsnprintf(line, sizeof(line), format, values);
	__builtin_va_end(values);
	need(write(fd, line, length) == length, "write");
	read_line();
	need(!strncmp(reply, expected, strlen(expected)), reply);
}

static pid_t serve(char *appendonly)
{
	char *const arguments[] = {
		"redis-server", "--port", "0", "--unixsocket", SOCKET, "--dir", "/mnt", "--save", "",
		"--appendonly", appendonly, "--appendfsync", "always", "--rdb-key-save-delay",
		SAVE_DELAY, "--activerehashing", "no", "--rdbcompression", "no",
		"--auto-aof-rewrite-percentage", "0", NULL,
	};
	struct sockaddr_un at = { .sun_family = AF_UNIX, .sun_path = SOCKET };
	pid_t server;

	unlink(SOCKET);
	server = start(PROGRAM, arguments, NULL, "/tmp/redis.log");
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	need(fd >= 0, "socket");
	for (unsigned tries = 0; connect(fd, (struct sockaddr *)&at, sizeof(at)); tries++) {
		need(tries < 10000 && (errno == ENOENT || errno == ECONNREFUSED), SOCKET);
		usleep(1000);
	}
	errno = 0;
	return server;
}

static void stop(pid_t server)
{
	static const char request[] = "SHUTDOWN NOSAVE\r\n";

	need(write(fd, request, sizeof(request) - 1) == sizeof(request) - 1, "write");
	need(ended(server) == 0, PROGRAM);
	close(fd);
}

/* Every key with a value of zeros. */
static void fill(void)
{
	for (unsigned key = 0; key < KEYS; key++)
		ask(":8192", "SETRANGE key:%u %u 0\r\n", key, VALUE - 1);
}

/* SET and GET in turn, of drawn keys; a value of up to 64 bytes. */
static void requests(unsigned long count)
{
	pid_t server = serve("no");

	for (; count; count--) {
		unsigned key = draw(KEYS);

		if (count % 2)
			ask("$", "GET key:%u\r\n", key);
		else
			ask("+OK", "SET key:%u %0*u\r\n", key, 1 + draw(64), key);
	}
	stop(server);
}

/* Each write is on the device before it is answered. */
static void append(unsigned long count)
{
	pid_t server = serve("yes");
	struct stat before, after;

	ask("+OK", "SET first 1\r\n");
	need(stat("/mnt/appendonlydir/appendonly.aof.1.incr.aof", &before) == 0, "appendonlydir");
	while (count--)
		ask("+OK", "SET key:%u %0*u\r\n", draw(KEYS), 1 + draw(64), 7);
	need(stat("/mnt/appendonlydir/appendonly.aof.1.incr.aof", &after) == 0, "appendonlydir");
	need(after.st_size > before.st_size, "appendonly");
	stop(server);
}

static unsigned long info(const char *name)
{
	char *at;

	ask("$", "INFO persistence\r\n");
	at = strstr(reply, name);
	need(at != NULL, name);
	return strtoul(at + strlen(name), NULL, 10);
}

/* One byte of one page each: those written first in a snapshot are copied. */
static void snapshot(unsigned long count)
{
	pid_t server = serve("no");
	struct stat saved;

	fill();
	while (count) {
		unsigned long now = count < WRITES ? count : WRITES;

		ask("+Background saving started", "BGSAVE\r\n");
		for (unsigned long n = 0; n < now; n++)
			ask(":8192", "SETRANGE key:%u %u x\r\n", draw(KEYS), draw(VALUE));
		need(info("rdb_bgsave_in_progress:") == 1, "saved before the last write");
		while (info("rdb_bgsave_in_progress:"))
			usleep(10000);
		need(strstr(reply, "rdb_last_bgsave_status:ok") != NULL, "rdb_last_bgsave_status");
		/* That every second write was the first to its page is far below what is likely. */
		need(info("rdb_last_cow_size:") >= now / 4 * 4096, "rdb_last_cow_size");
		need(stat(SNAPSHOT, &saved) == 0 && saved.st_size > (off_t)KEYS * VALUE, SNAPSHOT);
		count -= now;
	}
	stop(server);
}

static const struct operation operations[] = {
	{ "requests", requests }, { "append", append }, { "snapshot", snapshot }, {},
};

int main(int argc, char **argv)
{
	return run_operation(operations, argc, argv);
}
