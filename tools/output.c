#include "tools/output.h"

#include "core/base/clock.h"
#include "core/base/util.h"
#include "core/record/name.h"
#include "core/step/errlog.h"
#include "tools/progress.h"
#include "tools/verb.h"

#include <libsmartcols/libsmartcols.h>
#include <stdarg.h>
#include <stdio.h>

struct ckpt_output ckpt_output;

// What --json still owes: the first failure, when no document was printed.
static struct {
	bool printed;
	char *error, *hint;
} owed;

void *ckpt_need(void *memory)
{
	if (!memory) {
		static const char text[] = "ckptfs: out of memory\n"
					   "hint: free memory, then try again\n";

		(void)!write(STDERR_FILENO, text, sizeof(text) - 1);
		_exit(1);
	}
	return memory;
}

char *ckpt_text(const char *format, ...)
{
	va_list args;
	char *text;
	int n;

	va_start(args, format);
	n = vasprintf(&text, format, args);
	va_end(args);
	return ckpt_need(n < 0 ? NULL : text);
}

// --- Failures and messages ------------------------------------------------------------------------------------------

bool ckpt_output_colour(int fd)
{
	const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");

	return isatty(fd) && !(no_color && *no_color) && !(term && !strcmp(term, "dumb"));
}

// File names may hold anything: control bytes do not reach the terminal, and a line stays a line.
static void put_line(const char *label, const char *text)
{
	char *clean = ckpt_need(strdup(text));

	for (char *p = clean; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	ckpt_progress_hide();
	fprintf(stderr, "%s: %s\n", label, clean);
	free(clean);
}

static void fail_with(const char *what, const char *hint, const char *why, va_list args)
{
	CLEANUP_FREE char *reason = NULL, *line = NULL;

	if (vasprintf(&reason, why, args) < 0)
		reason = ckpt_need(NULL);
	line = what ? ckpt_text("%s: %s", what, reason) : ckpt_text("%s", reason);
	fflush(stdout);
	put_line("ckptfs", line);
	if (hint)
		put_line("hint", hint);
	if (!owed.error) {
		owed.error = TAKE_PTR(line);
		owed.hint = hint ? ckpt_text("%s", hint) : NULL;
	}
}

int ckpt_fail(const char *what, const char *hint, const char *why, ...)
{
	va_list args;

	va_start(args, why);
	fail_with(what, hint, why, args);
	va_end(args);
	return 1;
}

int ckpt_fail_errno(const char *what, const char *hint, int error)
{
	return ckpt_fail(what, hint ? hint : ckpt_errno_hint(error), "%s", strerror(error < 0 ? -error : error));
}

int ckpt_usage(const char *what, const char *hint, const char *why, ...)
{
	va_list args;

	va_start(args, why);
	fail_with(what, hint, why, args);
	va_end(args);
	return CKPT_EXIT_USAGE;
}

static void note_with(const char *text, va_list args)
{
	CLEANUP_FREE char *line = NULL;

	if (vasprintf(&line, text, args) < 0)
		line = ckpt_need(NULL);
	put_line("ckptfs", line);
}

int ckpt_confirm(const char *what, bool yes, const char *question, ...)
{
	CLEANUP_FREE char *text = NULL;
	char answer[8] = "";
	va_list ap;

	if (yes)
		return 0;
	va_start(ap, question);
	if (vasprintf(&text, question, ap) < 0)
		text = ckpt_need(NULL);
	va_end(ap);
	if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
		return ckpt_usage(what, "give --yes where nobody can be asked", "nobody can be asked: %s", text);
	fprintf(stderr, "%s [y/N] ", text);
	if (!fgets(answer, sizeof(answer), stdin) || (answer[0] != 'y' && answer[0] != 'Y'))
		return ckpt_fail(what, NULL, "kept");
	return 0;
}

int ckpt_answer_fail(const char *what, const char *answer)
{
	json_t *reply = json_loads(answer, 0, NULL);
	const char *error = json_string_value(json_object_get(reply, "error"));
	int rc = error ? ckpt_fail(what, json_string_value(json_object_get(reply, "hint")), "%s", error) : 0;

	json_decref(reply);
	return rc;
}

void ckpt_note(const char *text, ...)
{
	va_list args;

	if (ckpt_output.quiet)
		return;
	va_start(args, text);
	note_with(text, args);
	va_end(args);
}

void ckpt_note_verbose(const char *text, ...)
{
	va_list args;

	if (!ckpt_output.verbose)
		return;
	va_start(args, text);
	note_with(text, args);
	va_end(args);
}

// --- JSON -----------------------------------------------------------------------------------------------------------

void ckpt_output_json(json_t *document)
{
	ckpt_need(document);
	ckpt_progress_hide();
	if (json_dumpf(document, stdout, JSON_INDENT(isatty(STDOUT_FILENO) ? 2 : 0) | JSON_ENSURE_ASCII))
		ckpt_need(NULL);
	putchar('\n');
	json_decref(document);
	owed.printed = true;
}

int ckpt_output_finish(int status)
{
	int error;

	ckpt_progress_hide();
	if (ckpt_output.json && !owed.printed && (status == 0 || owed.error)) {
		if (owed.error)
			ckpt_output_json(json_pack("{s:o, s:o}", "error", ckpt_json_text(owed.error), "hint",
						   ckpt_json_text(owed.hint)));
		else
			ckpt_output_json(json_pack("{s:b}", "ok", 1));
	}
	errno = 0;
	error = ferror(stdout) ? EIO : 0;
	if (fflush(stdout))
		error = errno;
	if (!error)
		return status;
	// The reader has what it wanted: a pipe that was closed is no news.
	if (error != EPIPE)
		ckpt_fail_errno("standard output", NULL, error);
	return status ? status : 1;
}

json_t *ckpt_json_text(const char *text)
{
	CLEANUP_FREE char *clean = text ? ckpt_need(ckpt_name_clean(text)) : NULL;

	return clean ? ckpt_need(json_string(clean)) : json_null();
}

json_t *ckpt_json_time(int64_t time_ns)
{
	char text[CKPT_TIME_LEN + 1];

	if (!time_ns)
		return json_null();
	ckpt_time_format(time_ns, text);
	return ckpt_need(json_string(text));
}

// --- Tables ---------------------------------------------------------------------------------------------------------

struct ckpt_table {
	struct libscols_table *scols;
	size_t columns;
};

struct ckpt_table *ckpt_table_new(void)
{
	struct ckpt_table *t = ckpt_need(calloc(1, sizeof(*t)));

	t->scols = ckpt_need(scols_new_table());
	scols_table_enable_nowrap(t->scols, 1);
	if (ckpt_output_colour(STDOUT_FILENO))
		scols_table_enable_colors(t->scols, 1);
	return t;
}

void ckpt_table_column(struct ckpt_table *t, const char *title, enum ckpt_align align)
{
	struct libscols_column *column =
		scols_table_new_column(t->scols, title, 0, align == CKPT_RIGHT ? SCOLS_FL_RIGHT : 0);

	ckpt_need(column);
	scols_cell_set_color(scols_column_get_header(column), "bold");
	t->columns++;
}

void ckpt_table_row(struct ckpt_table *t, const char *const *cells)
{
	struct libscols_line *line = ckpt_need(scols_table_new_line(t->scols, NULL));

	for (size_t i = 0; i < t->columns; i++)
		if (scols_line_set_data(line, i, cells[i] ? cells[i] : "-"))
			ckpt_need(NULL);
}

void ckpt_table_print(struct ckpt_table *t)
{
	ckpt_progress_hide();
	if (!scols_table_is_empty(t->scols))
		scols_print_table(t->scols);
	scols_unref_table(t->scols);
	free(t);
}
