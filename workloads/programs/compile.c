/*
 * A tree of C files with headers on /mnt, compiled file by file and linked, by the host's tcc:
 * for each file a process, headers that are looked for and read, and an object that is written.
 *
 * What is linked adds up a number in each file, and ends with the status that they have to give.
 */
#include "program.h"
#include "host_program.h"

#include <sys/stat.h>

#define PROGRAM "/usr/bin/tcc"
#define TREE "/mnt/tree"
#define FILES 64UL
#define HEADERS 48U
#define FOLDERS 4U /* of headers, which the compiler looks through */
#define INCLUDED 12U /* headers of a file */
#define FUNCTIONS 16U /* of a file */
#define EXPECTED TREE "/expected"

static char name[64];

static FILE *create(const char *format, unsigned number)
{
	FILE *file;

	snprintf(name, sizeof(name), format, number % FOLDERS, number);
	file = fopen(name, "w");
	need(file != NULL, name);
	return file;
}

/* Declarations, macros and inline functions; each includes some of those before it. */
static void header(unsigned number)
{
	FILE *file = create(TREE "/include%u/header%u.h", number);

	fprintf(file, "#ifndef HEADER_%u\n#define HEADER_%u\n", number, number);
	for (unsigned n = draw(4); n && number; n--)
		fprintf(file, "#include \"header%u.h\"\n", draw(number));
	for (unsigned n = 20 + draw(40); n; n--)
		fprintf(file, "#define LIMIT_%u_%u(of) ((of) %% %uu + sizeof(struct entry_%u))\n"
			"extern unsigned int in_%u_%u(const struct entry_%u *from, unsigned long size);\n",
			number, n, 1 + draw(1000), number, number, n, number);
	fprintf(file, "struct entry_%u { struct entry_%u *next, *prev; unsigned long flags[%u]; };\n"
		"static inline unsigned int first_%u(const struct entry_%u *entry)\n"
		"{\n\treturn entry->next ? LIMIT_%u_1(entry->flags[0]) : 0;\n}\n#endif\n",
		number, number, 1 + draw(16), number, number, number);
	need(fclose(file) == 0, name);
}

/* Functions that call each other; value_N() gives what is added up in the end. */
static unsigned source(unsigned number)
{
	FILE *file = create(TREE "/source%u/file%u.c", number);
	unsigned value = draw(1000), header;

	for (unsigned n = 0; n < INCLUDED; n++) {
		header = draw(HEADERS);
		fprintf(file, "#include \"header%u.h\"\n", header);
	}
	for (unsigned n = 0; n < FUNCTIONS; n++) {
		fprintf(file, "static unsigned int work_%u(struct entry_%u *entry, unsigned int size)\n"
			"{\n\tunsigned int sum = first_%u(entry);\n", n, header, header);
		for (unsigned line = 4 + draw(12); line; line--)
			fprintf(file, "\tif (size & %uu)\n\t\tsum += LIMIT_%u_%u(size * %uu);\n",
				draw(1 << 16), header, 1 + draw(20), 1 + draw(1 << 16));
		if (n)
			fprintf(file, "\tsum ^= work_%u(entry, size >> 1);\n", draw(n));
		fprintf(file, "\treturn sum;\n}\n");
	}
	fprintf(file, "unsigned int value_%u(void)\n{\n\tstatic struct entry_%u entry;\n"
		"\treturn %uu + 0 * work_%u(&entry, 0);\n}\n",
		number, header, value, FUNCTIONS - 1);
	need(fclose(file) == 0, name);
	return value;
}

static void generate(unsigned long count)
{
	unsigned sum = 0;
	FILE *file;

	need(mkdir(TREE, 0700) == 0, TREE);
	for (unsigned n = 0; n < FOLDERS; n++) {
		snprintf(name, sizeof(name), TREE "/include%u", n);
		need(mkdir(name, 0700) == 0, name);
		snprintf(name, sizeof(name), TREE "/source%u", n);
		need(mkdir(name, 0700) == 0, name);
	}
	for (unsigned n = 0; n < HEADERS; n++)
		header(n);
	for (unsigned n = 0; n < count; n++)
		sum += source(n);
	file = fopen(TREE "/main.c", "w");
	need(file != NULL, "main.c");
	for (unsigned n = 0; n < count; n++)
		fprintf(file, "unsigned int value_%u(void);\n", n);
	fprintf(file, "void _start(void)\n{\n\tunsigned long status = 0");
	for (unsigned n = 0; n < count; n++)
		fprintf(file, " + value_%u()", n);
	/* exit_group() of x86-64. */
	fprintf(file, ";\n\n\tstatus %%= 251;\n"
		"\t__asm__ volatile(\"syscall\" : : \"a\"(231L), \"D\"(status));\n}\n");
	need(fclose(file) == 0, "main.c");
	file = fopen(EXPECTED, "w");
	need(file && fprintf(file, "%lu %u\n", count, sum % 251) > 0 && fclose(file) == 0, EXPECTED);
}

/* How many files there are; the status that they give together. */
static unsigned long expected(int *status)
{
	unsigned long files;
	FILE *file = fopen(EXPECTED, "r");

	need(file && fscanf(file, "%lu %d", &files, status) == 2 && fclose(file) == 0, EXPECTED);
	return files;
}

static void run_tcc(char *const arguments[])
{
	need(ended(start(PROGRAM, arguments, NULL, NULL)) == 0, PROGRAM);
}

static void compile_file(const char *file, char *object)
{
	char *const arguments[] = {
		"tcc", "-nostdinc", "-I" TREE "/include0", "-I" TREE "/include1",
		"-I" TREE "/include2", "-I" TREE "/include3", "-c", (char *)file, "-o", object, NULL,
	};

	run_tcc(arguments);
}

static void compile(unsigned long count)
{
	char object[64];
	int status;
	unsigned long files = expected(&status);

	for (unsigned n = 0; n < count; n++) {
		unsigned number = n % files;

		snprintf(name, sizeof(name), TREE "/source%u/file%u.c", number % FOLDERS, number);
		snprintf(object, sizeof(object), TREE "/file%u.o", number);
		compile_file(name, object);
	}
}

/* All objects become a program, which is run. */
static void link_(unsigned long count)
{
	static char objects[FILES][64];
	char *arguments[FILES + 8] = { "tcc", "-nostdlib", "-o", TREE "/program", TREE "/main.o" };
	char *const nothing[] = { TREE "/program", NULL };
	int status;
	unsigned long files = expected(&status);

	need(files <= FILES, "files");
	for (unsigned n = 0; n < files; n++) {
		snprintf(objects[n], sizeof(objects[n]), TREE "/file%u.o", n);
		arguments[5 + n] = objects[n];
	}
	compile_file(TREE "/main.c", TREE "/main.o");
	while (count--) {
		run_tcc(arguments);
		need(ended(start(TREE "/program", nothing, NULL, NULL)) == status, "status");
	}
}

static const struct operation operations[] = {
	{ "generate", generate }, { "compile", compile }, { "link", link_ }, {},
};

int main(int argc, char **argv)
{
	return run_operation(operations, argc, argv);
}
