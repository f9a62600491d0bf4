// sessions and abort: what was staged and never completed.
#include "tools/verb.h"

#include "core/stage.h"
#include "core/store.h"
#include "core/trash.h"
#include "core/util.h"
#include "fs/mount.h"
#include "tools/output.h"
#include "tools/rows.h"
#include "tools/units.h"

#include <stdio.h>

// --- sessions -----------------------------------------------------------------------------------------------------------

static const char *text_of(const json_t *row, const char *key)
{
	return json_string_value(json_object_get(row, key));
}

static const char *count_text(const json_t *row, const char *key, char text[24])
{
	const json_t *value = json_object_get(row, key);

	if (!json_is_integer(value))
		return NULL;
	snprintf(text, 24, "%lld", json_integer_value(value));
	return text;
}

static void print_sessions(json_t *rows)
{
	struct ckpt_table *t = ckpt_table_new();
	json_t *row;
	size_t i;

	ckpt_table_column(t, "NAME", CKPT_LEFT);
	ckpt_table_column(t, "STATE", CKPT_LEFT);
	ckpt_table_column(t, "BEGAN", CKPT_LEFT);
	ckpt_table_column(t, "FILES", CKPT_RIGHT);
	ckpt_table_column(t, "SIZE", CKPT_RIGHT);
	ckpt_table_column(t, "WRITERS", CKPT_RIGHT);
	ckpt_table_column(t, "ID", CKPT_LEFT);
	json_array_foreach(rows, i, row)
	{
		char files[24], writers[24], size[CKPT_SIZE_MAX], at[CKPT_TIME_MAX];
		const json_t *bytes = json_object_get(row, "bytes");
		const char *began = text_of(row, "began_at");
		int64_t ns;

		ckpt_table_row(t,
			       (const char *[]){text_of(row, "name"), text_of(row, "state"),
						began && !ckpt_time_parse(began, &ns) ? ckpt_time_local(ns, at) : NULL,
						count_text(row, "files", files),
						json_is_integer(bytes)
							? ckpt_size_text((uint64_t)json_integer_value(bytes), size)
							: NULL,
						count_text(row, "open_writers", writers), text_of(row, "id")});
	}
	ckpt_table_print(t);
}

int ckpt_verb_sessions(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE]",
		.doc = "Lists the staged steps of a store: live ones, and those that were left over.\v"
		       "Examples:\n"
		       "  ckptfs sessions /ckpt\n"
		       "  ckptfs sessions --json /data/run42",
		.operands_max = 1,
	};
	struct ckpt_listing l;
	struct ckpt_operand o;
	struct ckpt_words words;
	json_t *rows = NULL;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, NULL, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	rc = o.count ? ckpt_usage(o.steps[0], "`ckptfs sessions STORE` lists all", "not a store") : 0;
	if (!rc)
		rc = ckpt_listing_open(o.store, CKPT_STORE_READ, &l);
	if (!rc) {
		rc = ckpt_rows_sessions(&l, &rows);
		ckpt_listing_close(&l);
	}
	ckpt_operand_done(&o);
	if (rc)
		return rc;
	if (ckpt_output.json) {
		ckpt_output_json(rows);
		return 0;
	}
	print_sessions(rows);
	json_decref(rows);
	return 0;
}

// --- abort --------------------------------------------------------------------------------------------------------------

// The one session that word names, by name or id, out of the rows of `sessions`.
static int find_session(const json_t *rows, const char *word, const char *store, json_t **ret_row)
{
	CLEANUP_FREE char *hint = ckpt_text("`ckptfs sessions %s` lists them", store);
	json_t *row, *found = NULL;
	size_t i, matches = 0;

	json_array_foreach(rows, i, row)
	{
		const char *name = text_of(row, "name"), *id = text_of(row, "id");

		if (id && !strcmp(id, word)) {
			*ret_row = row;
			return 0;
		}
		if (name && !strcmp(name, word)) {
			found = row;
			matches++;
		}
	}
	if (!found)
		return ckpt_fail(word, hint, "no such staged step");
	if (matches > 1)
		return ckpt_fail(word, hint, "%zu sessions have this name: give the id of one", matches);
	*ret_row = found;
	return 0;
}

static int confirm(const json_t *row, bool yes)
{
	const char *name = text_of(row, "name"), *id = text_of(row, "id");
	char size[CKPT_SIZE_MAX];

	return ckpt_confirm(name ? name : id, yes, "Delete the staged step %s with %lld files, %s, for good?",
			    name ? name : id, json_integer_value(json_object_get(row, "files")),
			    ckpt_size_text((uint64_t)json_integer_value(json_object_get(row, "bytes")), size));
}

static int abort_at_rest(const char *store, const char *id)
{
	struct ckpt_step **steps;
	struct ckpt_listing l;
	size_t count;
	int rc = ckpt_listing_open(store, CKPT_STORE_WRITE, &l);

	if (rc)
		return rc;
	if (ckpt_step_list(l.store, NULL, 1u << CKPT_STEP_LEFT, &steps, &count))
		ckpt_need(NULL);
	rc = -ENOENT;
	for (size_t i = 0; i < count; i++)
		if (!strcmp(steps[i]->session, id))
			rc = ckpt_stage_abort(steps[i], false);
	ckpt_step_list_free(steps, count);
	if (!rc)
		ckpt_trash_drain(l.store->trash);
	ckpt_listing_close(&l);
	return rc ? ckpt_fail_errno(id, NULL, rc) : 0;
}

// The process that has the store mounted does it; where there is none, this one.
static int abort_session(const char *store, const char *id)
{
	CLEANUP_FREE char *request = ckpt_text("{\"verb\":\"abort\",\"session\":\"%s\"}", id), *text = NULL;
	int rc = ckpt_mount_ask(store, request, &text);

	if (rc == -ENOENT)
		return abort_at_rest(store, id);
	return rc ? ckpt_fail(store, NULL, "the process that has it mounted does not answer: %s", strerror(-rc))
		  : ckpt_answer_fail(id, text);
}

static int abort_one(const struct ckpt_operand *o, bool yes)
{
	json_t *rows = NULL, *row = NULL;
	struct ckpt_listing l;
	int rc = ckpt_listing_open(o->store, CKPT_STORE_READ, &l);

	if (rc)
		return rc;
	rc = ckpt_rows_sessions(&l, &rows);
	ckpt_listing_close(&l);
	if (rc)
		return rc;
	rc = find_session(rows, o->steps[0], o->store, &row);
	if (!rc)
		rc = confirm(row, yes);
	if (!rc)
		rc = abort_session(o->store, text_of(row, "id"));
	json_decref(rows);
	return rc;
}

static int abort_option(int key __attribute__((unused)), char *arg __attribute__((unused)), void *input)
{
	*(bool *)input = true;
	return 0;
}

int ckpt_verb_abort(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"yes", 'y', NULL, 0, "do not ask; needed where stdin is no terminal", 0},
		{0},
	};
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] SESSION",
		.doc = "Drops a staged step, by its name or id: its files are deleted for good.\v"
		       "Examples:\n"
		       "  ckptfs abort /ckpt 1000\n"
		       "  ckptfs abort --yes /data/run42 4b0f2f4e-3c1e-4a35-9f0e-9d0d3f1f9a11",
		.options = options,
		.option = abort_option,
		.operands_min = 1,
		.operands_max = 2,
	};
	struct ckpt_operand o;
	struct ckpt_words words;
	bool yes = false;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, &yes, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	if (o.count != 1)
		rc = ckpt_usage("abort", "usage: ckptfs abort [STORE] SESSION",
				"wants the name or id of one staged step");
	else
		rc = abort_one(&o, yes);
	ckpt_operand_done(&o);
	return rc;
}
