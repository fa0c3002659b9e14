/*
 * Transactions of SQLite on a database of /mnt, one kind a phase, by the host's sqlite3.
 *
 * What is done is a script, written before to memory; what it printed is compared with
 * what has to be in the database after it.
 */
#include "program.h"
#include "host_program.h"

#define PROGRAM "/usr/bin/sqlite3"
#define DATABASE "/mnt/sqlite.db"
#define SCRIPT "/tmp/sqlite.sql"
#define ANSWERS "/tmp/sqlite.out"
#define ROWS 4000  /* of the database that "fill" makes */
#define BATCH 50UL  /* of them in a transaction */
#define BODY 1024 /* the longest row, about */

static FILE *script;
static unsigned long changed; /* rows, by the statements of the script */
static long grown;

static void begin(const char *journal)
{
	script = fopen(SCRIPT, "w");
	need(script != NULL, SCRIPT);
	/* 128 pages of 4 KiB: less than the database, so that pages come and go. */
	fprintf(script, "PRAGMA cache_size = 128;\nPRAGMA journal_mode = %s;\n"
		"PRAGMA synchronous = FULL;\n", journal);
}

/* Of one row, which is there whatever was done before: rows go from the front. */
static void change(void)
{
	switch (draw(4)) {
	case 0:
		fprintf(script, "INSERT INTO t(k, n, body) VALUES(%u, 0, zeroblob(%u));\n",
			draw(1 << 20), 1 + draw(BODY));
		grown++;
		break;
	case 1:
		fprintf(script, "DELETE FROM t WHERE id = (SELECT min(id) FROM t);\n");
		grown--;
		break;
	default:
		fprintf(script, "UPDATE t SET n = n + 1, k = %u WHERE id = "
			"(SELECT id FROM t WHERE id >= %u LIMIT 1);\n",
			draw(1 << 20), 1 + draw(ROWS));
	}
	changed++;
}

static void run_script(void)
{
	char *const arguments[] = { "sqlite3", "-batch", "-bail", DATABASE, NULL };

	need(fclose(script) == 0, SCRIPT);
	need(ended(start(PROGRAM, arguments, SCRIPT, ANSWERS)) == 0, PROGRAM);
}

/* As begin() and run_script() with transactions between, and all of it is there in the end. */
static void transactions(const char *journal, unsigned long count)
{
	char actual[16];
	unsigned long before, after, total;
	FILE *answers;

	changed = grown = 0;
	begin(journal);
	fprintf(script, "SELECT count(*) FROM t;\n");
	while (count--) {
		fprintf(script, "BEGIN;\n");
		for (unsigned left = 1 + draw(8); left; left--)
			change();
		fprintf(script, "COMMIT;\n");
	}
	fprintf(script, "SELECT count(*), total_changes() FROM t;\n");
	run_script();
	answers = fopen(ANSWERS, "r");
	need(answers && fscanf(answers, "%15s %lu %lu|%lu", actual, &before, &after, &total) == 4,
	     ANSWERS);
	fclose(answers);
	need(!strcmp(actual, journal), "journal_mode");
	need(total == changed && (long)(after - before) == grown, "rows changed");
}

static void fill(unsigned long count)
{
	begin("delete");
	fprintf(script, "CREATE TABLE t(id INTEGER PRIMARY KEY, k INTEGER, n INTEGER, body BLOB);\n"
		"CREATE INDEX of_k ON t(k);\n");
	for (unsigned long n = 0; n < count; n++)
		fprintf(script, "%sINSERT INTO t(k, n, body) VALUES(%u, 0, zeroblob(%u));\n%s",
			n % BATCH ? "" : "BEGIN;\n", draw(1 << 20), 1 + draw(BODY),
			n % BATCH == BATCH - 1 || n == count - 1 ? "COMMIT;\n" : "");
	run_script();
}

/* The log ahead of the database, brought into it as it grows. */
static void wal(unsigned long count)
{
	transactions("wal", count);
}

/* A journal of what was there, removed with each transaction. */
static void rollback(unsigned long count)
{
	transactions("delete", count);
}

/* Queries by index, of a database that is mapped and not read. */
static void mapped(unsigned long count)
{
	unsigned long lines = 0;
	FILE *answers;

	begin("delete");
	fprintf(script, "PRAGMA mmap_size = 67108864;\n");
	for (unsigned long n = 0; n < count; n++)
		fprintf(script, "SELECT sum(length(body)) FROM "
			"(SELECT body FROM t WHERE k >= %u ORDER BY k LIMIT 4);\n", draw(1 << 19));
	run_script();
	answers = fopen(ANSWERS, "r");
	need(answers != NULL, ANSWERS);
	for (int c; (c = fgetc(answers)) != EOF;)
		lines += c == '\n';
	fclose(answers);
	/* Journal and size of the mapping are answers, too. */
	need(lines == count + 2, "answers");
}

/* The database written anew, and everything in it looked at. */
static void vacuum(unsigned long count)
{
	char answer[8] = "";
	FILE *answers;

	while (count--) {
		begin("delete");
		fprintf(script, "DELETE FROM t WHERE id = (SELECT min(id) FROM t);\nVACUUM;\n"
			"PRAGMA integrity_check;\n");
		run_script();
		answers = fopen(ANSWERS, "r");
		need(answers && fscanf(answers, "delete %7s", answer) == 1, ANSWERS);
		fclose(answers);
		need(!strcmp(answer, "ok"), "integrity_check");
	}
}

static const struct operation operations[] = {
	{ "fill", fill }, { "wal", wal }, { "rollback", rollback },
	{ "mapped", mapped }, { "vacuum", vacuum }, {},
};

int main(int argc, char **argv)
{
	return run_operation(operations, argc, argv);
}
