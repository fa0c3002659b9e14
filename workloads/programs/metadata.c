/*
 * Files and folders of the file system on /mnt, one operation at a time.
 *
 * Each operation finds what those before it left: run create first, unlink last.  File n is
 * in folder n % FOLDERS; orders are strides through a power of two, and come by each file.
 */
#include "program.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#define FOLDERS 16U
#define FILES 2048U /* at most */
#define MOST 16384U /* bytes of a file */

static char bytes[MOST], path[64], other[64];
static const char *const kinds[] = { "file", "name" };

static const char *named(char *to, const char *kind, unsigned n)
{
	snprintf(to, sizeof(path), "/mnt/folder.%u/%s.%u", n % FOLDERS, kind, n);
	return to;
}

/* Calls body for count files, each once, in an order of the seed's. */
static void each(unsigned long count, void (*body)(unsigned))
{
	unsigned stride = draw(FILES) | 1, from = draw(FILES);

	need(count <= FILES, "more files than there may be");
	for (unsigned n = 0; n < FILES; n++) {
		unsigned which = (from + n * stride) % FILES;

		if (which < count)
			body(which);
	}
}

static void create_one(unsigned n)
{
	ssize_t length = draw(4) ? draw(MOST) : 0;
	int fd = open(named(path, kinds[0], n), O_CREAT | O_EXCL | O_WRONLY, 0644);

	need(fd >= 0 && write(fd, bytes, length) == length && close(fd) == 0, path);
}

static void create(unsigned long count)
{
	for (unsigned n = 0; n < FOLDERS; n++) {
		snprintf(path, sizeof(path), "/mnt/folder.%u", n);
		need(mkdir(path, 0755) == 0, path);
	}
	each(count, create_one);
}

static void stat_(unsigned long count)
{
	struct stat found;

	while (count--) {
		/* One of four is not there. */
		int there = draw(4) > 0;

		errno = 0;
		need((stat(named(path, there ? kinds[0] : "none", draw(FILES)), &found) == 0) == there,
		     path);
	}
}

static void readdir_(unsigned long count)
{
	while (count) {
		struct dirent *found;
		DIR *folder;

		snprintf(path, sizeof(path), "/mnt/folder.%u", draw(FOLDERS));
		folder = opendir(path);
		need(folder != NULL, path);
		while (count && (found = readdir(folder)) != NULL)
			count--;
		need(closedir(folder) == 0, path);
	}
}

/* Into the next folder and back: the file has its name again after each pair of calls. */
static void rename_(unsigned long count)
{
	for (; count; count -= count > 1 ? 2 : 1) {
		unsigned n = draw(FILES);

		named(path, kinds[0], n);
		snprintf(other, sizeof(other), "/mnt/folder.%u/moved.%u", (n + draw(2)) % FOLDERS, n);
		need(rename(path, other) == 0, path);
		if (count > 1)
			need(rename(other, path) == 0, other);
	}
}

static void link_one(unsigned n)
{
	named(path, kinds[0], n);
	named(other, kinds[1], n);
	need((draw(2) ? link(path, other) : symlink(path, other)) == 0, other);
}

static void link_(unsigned long count)
{
	each(count, link_one);
}

static void truncate_(unsigned long count)
{
	while (count--)
		need(truncate(named(path, kinds[0], draw(FILES)), draw(MOST)) == 0, path);
}

static void chmod_(unsigned long count)
{
	while (count--) {
		struct timespec times[] = { { draw(1000000), 0 }, { draw(1000000), 0 } };

		need(chmod(named(path, kinds[0], draw(FILES)), 0400 | draw(0400)) == 0, path);
		need(utimensat(AT_FDCWD, path, times, 0) == 0, path);
	}
}

static void fsync_(unsigned long count)
{
	while (count--) {
		ssize_t length = 1 + draw(MOST);
		int fd = open(named(path, kinds[0], draw(FILES)), O_WRONLY);

		need(fd >= 0 && pwrite(fd, bytes, length, draw(MOST)) == length, path);
		need(fsync(fd) == 0 && close(fd) == 0, path);
	}
}

static void unlink_one(unsigned n)
{
	need(unlink(named(path, kinds[0], n)) == 0, path);
	unlink(named(path, kinds[1], n));
}

static void unlink_(unsigned long count)
{
	each(count, unlink_one);
}

static const struct operation operations[] = {
	{ "create", create }, { "stat", stat_ }, { "readdir", readdir_ }, { "rename", rename_ },
	{ "link", link_ }, { "truncate", truncate_ }, { "chmod", chmod_ }, { "fsync", fsync_ },
	{ "unlink", unlink_ }, {},
};

int main(int argc, char **argv)
{
	return run_operation(operations, argc, argv);
}
