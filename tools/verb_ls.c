#include "tools/verb.h"

#include "core/base/clock.h"
#include "core/base/util.h"
#include "core/save/delete.h"
#include "tools/output.h"
#include "tools/rows.h"
#include "tools/units.h"
#include "tools/where.h"

#include <stdio.h>

static const char *const step_fields[] = {
	"name",         "number",       "version",    "state",      "files",     "bytes",
	"stored_bytes", "committed_at", "deleted_at", "expires_at", "temporary", "pinned",
	"durable",      "hot",          "extras",     "metrics",    "healthy",   NULL};
static const char *const file_fields[] = {"path",   "type",  "bytes", "mode",  "mtime",
					  "sha256", "array", "dtype", "shape", NULL};

struct ls {
	bool details, reverse, staged, trash, all;
	const char *sort, *where;
	char *by; // the field that sort names
	struct ckpt_where *condition;
};

enum { KEY_SORT = 0x100, KEY_WHERE, KEY_STAGED, KEY_TRASH, KEY_ALL };

static const struct argp_option options[] = {
	{"long", 'l', NULL, 0,
	 "a table: state, version, files, sizes, time; \"!\" behind the state: there is trouble in its arrays "
	 "(`ckptfs check`)",
	 0},
	{NULL, 't', NULL, 0, "newest first", 0},
	{"sort", KEY_SORT, "KEY", 0,
	 "by this field of --json, or extras.NAME, metrics.NAME, or a metric's NAME (default name)", 0},
	{"reverse", 'r', NULL, 0, "reverse the order", 0},
	{"where", KEY_WHERE, "EXPR", 0, "only steps that match: number >= 1000 and metrics.loss < 2.5", 0},
	{"staged", KEY_STAGED, NULL, 0, "the staged steps", 0},
	{"trash", KEY_TRASH, NULL, 0, "the steps in the trash", 0},
	{"all", KEY_ALL, NULL, 0, "committed, staged and trash; of a step, its conflict copies, too", 0},
	{0},
};

static int on_option(int key, char *arg, void *input)
{
	struct ls *ls = input;

	switch (key) {
	case 'l':
		ls->details = true;
		break;
	case 't':
		ls->sort = "-t";
		break;
	case KEY_SORT:
		ls->sort = arg;
		break;
	case 'r':
		ls->reverse = true;
		break;
	case KEY_WHERE:
		ls->where = arg;
		break;
	case KEY_STAGED:
		ls->staged = true;
		break;
	case KEY_TRASH:
		ls->trash = true;
		break;
	default:
		ls->all = true;
	}
	return 0;
}

// --- Rows -------------------------------------------------------------------------------------------------------------

static bool needs_metadata(const struct ls *ls)
{
	return ckpt_output.json || ls->details || ckpt_where_asks_metadata(ls->condition) ||
	       (ls->by && ckpt_where_is_metadata(ls->by));
}

static int add_committed(const struct ckpt_listing *l, const struct ls *ls, json_t *rows)
{
	struct ckpt_step **steps;
	size_t count;
	bool metadata = needs_metadata(ls);

	if (ckpt_step_list(l->store, NULL, 1u << CKPT_STEP_COMMITTED, &steps, &count))
		ckpt_need(NULL);
	for (size_t i = 0; i < count; i++)
		json_array_append_new(rows, ckpt_row_step(l, steps[i], metadata));
	ckpt_step_list_free(steps, count);
	return 0;
}

static void add_deleted(const struct ckpt_listing *l, const struct ls *ls, json_t *rows)
{
	struct ckpt_step **steps;
	size_t count;
	bool metadata = needs_metadata(ls);

	if (ckpt_deleted_list(l->store, &steps, &count))
		ckpt_need(NULL);
	for (size_t i = 0; i < count; i++)
		json_array_append_new(rows, ckpt_row_deleted(l, steps, i, metadata));
	ckpt_step_list_free(steps, count);
}

static int add_staged(const struct ckpt_listing *l, json_t *rows)
{
	json_t *sessions, *session;
	size_t i;
	int rc = ckpt_rows_sessions(l, &sessions);

	if (rc)
		return rc;
	json_array_foreach(sessions, i, session) json_array_append_new(rows, ckpt_row_staged(session));
	json_decref(sessions);
	return 0;
}

// On stderr, after the rows: stdout has what was asked for alone.
static void tell_unfinished(size_t count, const struct ckpt_operand *o)
{
	if (count && !fflush(stdout))
		ckpt_note("%zu step%s not complete yet: `ckptfs sessions %s`", count, count == 1 ? " is" : "s are",
			  o->mountpoint ? o->mountpoint : o->store);
}

static int step_rows(const struct ckpt_listing *l, const struct ls *ls, json_t *rows)
{
	int rc = 0;

	if (ls->all || (!ls->staged && !ls->trash))
		rc = add_committed(l, ls, rows);
	if (!rc && (ls->all || ls->staged))
		rc = add_staged(l, rows);
	if (!rc && (ls->all || ls->trash))
		add_deleted(l, ls, rows);
	return rc;
}

// An entry and all below it; the step's own directory has no row. all: and conflict copies; one that is named is listed.
static void add_entries(const struct ckpt_manifest *m, uint32_t index, bool all, json_t *rows)
{
	struct ckpt_entry e;

	ckpt_manifest_entry(m, index, &e);
	if (index)
		json_array_append_new(rows, ckpt_row_file(m, index));
	for (uint32_t i = 0; e.type == CKPT_ENTRY_DIR && i < e.child_count; i++) {
		struct ckpt_entry child;

		ckpt_manifest_entry(m, e.child_first + i, &child);
		if (all || !child.conflict)
			add_entries(m, child.index, all, rows);
	}
}

static int file_rows(const struct ckpt_listing *l, const struct ckpt_operand *o, bool all, json_t *rows)
{
	struct ckpt_manifest *m;
	struct ckpt_step *step;
	CLEANUP_FREE char *path = NULL;
	uint32_t index;
	int rc = ckpt_listing_files(l, o, o->steps[0], &step, &m, &path);

	if (rc)
		return rc;
	ckpt_step_unref(step);
	rc = ckpt_manifest_lookup(m, path, &index);
	if (!rc)
		add_entries(m, index, all, rows);
	ckpt_manifest_unref(m);
	return rc ? ckpt_fail_errno(o->steps[0], "`ckptfs ls STORE STEP` lists its files", rc) : 0;
}

static void filter(json_t *rows, const struct ckpt_where *w)
{
	for (size_t i = 0; w && i < json_array_size(rows);)
		if (ckpt_where_holds(w, json_array_get(rows, i)))
			i++;
		else
			json_array_remove(rows, i);
}

static void order(json_t *rows, const struct ls *ls, bool files)
{
	bool newest = ls->sort && !strcmp(ls->sort, "-t");

	if (!files)
		ckpt_where_sort(rows, "name", ls->reverse && !ls->sort);
	if (newest)
		ckpt_where_sort(rows, files ? "mtime" : "committed_at", !ls->reverse);
	else if (ls->sort || (files && ls->reverse))
		ckpt_where_sort(rows, ls->by, ls->reverse);
}

// --- Tables -----------------------------------------------------------------------------------------------------------

static const char *text_of(const json_t *row, const char *key)
{
	return json_string_value(json_object_get(row, key));
}

static uint64_t number_of(const json_t *row, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(row, key));
}

static const char *time_of(const json_t *row, const char *key, char text[CKPT_TIME_MAX])
{
	const char *value = text_of(row, key);
	int64_t ns;

	return value && !ckpt_time_parse(value, false, &ns) ? ckpt_time_local(ns, text) : "-";
}

static void print_steps(json_t *rows, bool trash)
{
	struct ckpt_table *t = ckpt_table_new();
	json_t *row;
	size_t i;

	ckpt_table_column(t, "NAME", CKPT_LEFT);
	ckpt_table_column(t, "STATE", CKPT_LEFT);
	ckpt_table_column(t, "VERSION", CKPT_RIGHT);
	ckpt_table_column(t, "FILES", CKPT_RIGHT);
	ckpt_table_column(t, "SIZE", CKPT_RIGHT);
	ckpt_table_column(t, "STORED", CKPT_RIGHT);
	ckpt_table_column(t, "COMMITTED", CKPT_LEFT);
	if (trash) {
		ckpt_table_column(t, "DELETED", CKPT_LEFT);
		ckpt_table_column(t, "EXPIRES", CKPT_LEFT);
	}
	json_array_foreach(rows, i, row)
	{
		char version[24], files[24], size[CKPT_SIZE_MAX], stored[CKPT_SIZE_MAX];
		char at[CKPT_TIME_MAX], deleted[CKPT_TIME_MAX], expires[CKPT_TIME_MAX];
		bool known = json_is_integer(json_object_get(row, "stored_bytes"));
		bool temporary = json_is_true(json_object_get(row, "temporary"));
		bool pinned = json_is_true(json_object_get(row, "pinned"));
		bool trouble = json_is_false(json_object_get(row, "healthy"));
		CLEANUP_FREE char *state = ckpt_text("%s%s",
						     pinned      ? "pinned"
						     : temporary ? "temporary"
								 : text_of(row, "state"),
						     trouble ? " !" : "");

		snprintf(version, sizeof(version), "%llu", (unsigned long long)number_of(row, "version"));
		snprintf(files, sizeof(files), "%llu", (unsigned long long)number_of(row, "files"));
		ckpt_table_row(t,
			       (const char *[]){text_of(row, "name"), state, number_of(row, "version") ? version : "-",
						files, ckpt_size_text(number_of(row, "bytes"), size),
						known ? ckpt_size_text(number_of(row, "stored_bytes"), stored) : "-",
						time_of(row, "committed_at", at), time_of(row, "deleted_at", deleted),
						time_of(row, "expires_at", expires)});
	}
	ckpt_table_print(t);
}

static void mode_text(const json_t *row, char text[11])
{
	const char *type = text_of(row, "type");
	uint64_t mode = number_of(row, "mode");

	text[0] = *type == 'd' ? 'd' : *type == 's' ? 'l' : '-';
	for (int i = 0; i < 9; i++)
		text[1 + i] = mode & 0400u >> i ? "rwxrwxrwx"[i] : '-';
	text[10] = '\0';
}

static void print_files(json_t *rows)
{
	struct ckpt_table *t = ckpt_table_new();
	json_t *row;
	size_t i;

	ckpt_table_column(t, "MODE", CKPT_LEFT);
	ckpt_table_column(t, "SIZE", CKPT_RIGHT);
	ckpt_table_column(t, "CHANGED", CKPT_LEFT);
	ckpt_table_column(t, "PATH", CKPT_LEFT);
	json_array_foreach(rows, i, row)
	{
		char mode[11], size[CKPT_SIZE_MAX], at[CKPT_TIME_MAX];
		const char *target = text_of(row, "target");
		CLEANUP_FREE char *path =
			ckpt_text("%s%s%s", text_of(row, "path"), target ? " -> " : "", target ? target : "");

		mode_text(row, mode);
		ckpt_table_row(t, (const char *[]){mode,
						   *mode == 'd' ? "-" : ckpt_size_text(number_of(row, "bytes"), size),
						   time_of(row, "mtime", at), path});
	}
	ckpt_table_print(t);
}

static void print(json_t *rows, const struct ls *ls, bool files)
{
	json_t *row;
	size_t i;

	if (ckpt_output.json) {
		ckpt_output_json(rows);
		return;
	}
	if (ls->details && files)
		print_files(rows);
	else if (ls->details)
		print_steps(rows, ls->trash || ls->all);
	else
		json_array_foreach(rows, i, row) printf("%s%s\n",
							json_is_null(json_object_get(row, "name")) ? "(unnamed)"
							: files ? text_of(row, "path")
								: text_of(row, "name"),
							files && !strcmp(text_of(row, "type"), "dir") ? "/" : "");
	json_decref(rows);
}

// --- The verb ---------------------------------------------------------------------------------------------------------

static int check(struct ls *ls, bool files)
{
	const char *const *fields = files ? file_fields : step_fields;
	CLEANUP_FREE char *why = NULL, *hint = NULL;

	if (ls->sort && strcmp(ls->sort, "-t")) {
		ls->by = ckpt_where_field(ls->sort, fields, &hint);
		if (!ls->by)
			return ckpt_usage(ls->sort, hint, "no such field to sort by");
	}
	if (ls->where && ckpt_where_parse(ls->where, fields, &ls->condition, &why))
		return ckpt_usage("--where", "FIELD =|!=|<|<=|>|>= VALUE, several with \"and\" between them", "%s",
				  why);
	return 0;
}

// What is no field may be a metric, which the steps tell.
static int check_metrics(const struct ls *ls, const json_t *rows)
{
	const char *missing = ckpt_where_missing(ls->condition, rows, step_fields), *nearest;
	CLEANUP_FREE char *hint = NULL;

	if (!missing && ls->by && strcmp(ls->by, ls->sort) && !ckpt_where_is_there(rows, ls->by, step_fields))
		missing = ls->sort;
	if (!missing)
		return 0;
	nearest = ckpt_nearest(missing, step_fields);
	hint = nearest ? ckpt_text("did you mean %s?", nearest)
		       : ckpt_text("fields are those of --json, extras.NAME, metrics.NAME, and NAME of a metric");
	return ckpt_usage(missing, hint, "no such field, and no step has such a metric");
}

static size_t folder_len(const char *word)
{
	size_t len = strlen(word);

	while (len && word[len - 1] == '/')
		len--;
	return len;
}

// A step of the name comes first.
static bool is_folder_alone(const struct ckpt_listing *l, const struct ckpt_operand *o)
{
	CLEANUP_FREE char *word = ckpt_need(strndup(o->steps[0], folder_len(o->steps[0]))), *path = NULL;
	struct ckpt_step *step = ckpt_listing_is_trash(word) ? NULL : ckpt_listing_look(l, o, word, &path);
	bool is = !step && ckpt_listing_is_folder(l, word);

	ckpt_step_unref(step);
	return is;
}

static void keep_in_folder(json_t *rows, const char *folder)
{
	size_t len = folder_len(folder);

	for (size_t i = 0; i < json_array_size(rows);) {
		const char *name = text_of(json_array_get(rows, i), "name");

		if (name && !strncmp(name, folder, len) && (!len || name[len] == '/'))
			i++;
		else
			json_array_remove(rows, i);
	}
}

int ckpt_verb_ls(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] [STEP[/PATH]|FOLDER]",
		.doc = "Lists the steps of a store or of one folder, or the files of a step or of a version of it "
		       "(STEP@3; STEP@-1: the files before the last change).\v"
		       "Examples:\n"
		       "  ckptfs ls -l --sort metrics.loss /ckpt\n"
		       "  ckptfs ls --json /data/run42 latest",
		.options = options,
		.option = on_option,
		.operands_max = 2,
	};
	struct ckpt_listing l;
	struct ckpt_operand o;
	struct ckpt_words words;
	struct ls ls = {0};
	size_t unfinished = 0;
	bool files = false;
	json_t *rows;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, &ls, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	rc = o.count > 1
		     ? ckpt_usage(o.steps[1], "usage: ckptfs ls [STORE] [STEP[/PATH]|FOLDER]", "one operand too many")
		     : 0;
	if (!rc)
		rc = ckpt_listing_open(o.store, CKPT_STORE_READ, &l);
	if (!rc) {
		files = o.count && !is_folder_alone(&l, &o);
		rows = ckpt_need(json_array());
		rc = check(&ls, files);
		if (!rc)
			rc = files ? file_rows(&l, &o, ls.all, rows) : step_rows(&l, &ls, rows);
		if (!rc && o.count && !files)
			keep_in_folder(rows, o.steps[0]);
		if (!files && !ls.staged && !ls.trash && !ls.all && !ckpt_output.json && !ckpt_output.quiet)
			unfinished = ckpt_rows_staged_count(&l, o.count ? o.steps[0] : "");
		ckpt_listing_close(&l);
		if (!rc)
			rc = check_metrics(&ls, rows);
		filter(rows, ls.condition);
		order(rows, &ls, files);
		if (rc)
			json_decref(rows);
		else
			print(rows, &ls, files);
		if (!rc)
			tell_unfinished(unfinished, &o);
	}
	ckpt_where_free(ls.condition);
	free(ls.by);
	ckpt_operand_done(&o);
	return rc;
}
