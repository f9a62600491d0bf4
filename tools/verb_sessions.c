// sessions, abort, begin, resume: steps that are not complete.
#include "tools/verb.h"

#include "core/base/clock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/stage.h"
#include "tools/act.h"
#include "tools/output.h"
#include "tools/rows.h"
#include "tools/session.h"
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

static const char *time_text(const json_t *row, const char *key, char text[CKPT_TIME_MAX])
{
	const char *at = text_of(row, key);
	int64_t ns;

	return at && !ckpt_time_parse(at, false, &ns) ? ckpt_time_local(ns, text) : NULL;
}

static const char *ago_text(const json_t *row, char text[CKPT_DURATION_MAX + 8])
{
	const char *at = text_of(row, "changed_at");
	int64_t ns;

	if (!at || ckpt_time_parse(at, false, &ns))
		return NULL;
	ckpt_duration_text(MAX(ckpt_time_between(ns, ckpt_sys.now_ns()), 0), text);
	return strcat(text, " ago");
}

static void print_sessions(json_t *rows)
{
	struct ckpt_table *t = ckpt_table_new();
	json_t *row;
	size_t i;

	ckpt_table_column(t, "NAME", CKPT_LEFT);
	ckpt_table_column(t, "STATE", CKPT_LEFT);
	ckpt_table_column(t, "BEGAN", CKPT_LEFT);
	ckpt_table_column(t, "CHANGED", CKPT_LEFT);
	ckpt_table_column(t, "FILES", CKPT_RIGHT);
	ckpt_table_column(t, "SIZE", CKPT_RIGHT);
	ckpt_table_column(t, "WRITERS", CKPT_RIGHT);
	ckpt_table_column(t, "PROFILE", CKPT_LEFT);
	ckpt_table_column(t, "ID", CKPT_LEFT);
	json_array_foreach(rows, i, row)
	{
		char files[24], writers[24], size[CKPT_SIZE_MAX], began[CKPT_TIME_MAX], ago[CKPT_DURATION_MAX + 8];
		const json_t *bytes = json_object_get(row, "bytes");

		ckpt_table_row(t, (const char *[]){text_of(row, "name"), text_of(row, "state"),
						   time_text(row, "began_at", began), ago_text(row, ago),
						   count_text(row, "files", files),
						   json_is_integer(bytes)
							   ? ckpt_size_text((uint64_t)json_integer_value(bytes), size)
							   : NULL,
						   count_text(row, "open_writers", writers), text_of(row, "profile"),
						   text_of(row, "id")});
	}
	ckpt_table_print(t);
}

int ckpt_verb_sessions(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE]",
		.doc = "Lists the unfinished steps of a store. live: it is being written. interrupted: its "
		       "writer was killed, or the mount ended; you can still open it by its name. left: it "
		       "has lost its name, and is in .ckptfs/staged.\v"
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

static int confirm(const json_t *row, bool yes)
{
	const char *name = text_of(row, "name"), *id = text_of(row, "id");
	char size[CKPT_SIZE_MAX];

	return ckpt_confirm(name ? name : id, yes, "Delete the staged step %s with %lld files, %s, permanently?",
			    name ? name : id, json_integer_value(json_object_get(row, "files")),
			    ckpt_size_text((uint64_t)json_integer_value(json_object_get(row, "bytes")), size));
}

static int abort_at_rest(struct ckpt_step *step, const struct ckpt_verb_act *act __attribute__((unused)))
{
	return ckpt_stage_abort(step, false);
}

// The row of `sessions` that the operand names.
static int find(const struct ckpt_operand *o, json_t **ret_rows, json_t **ret_row)
{
	int rc = ckpt_sessions_read(o->store, ret_rows);

	return rc ? rc : ckpt_sessions_find(*ret_rows, o->steps[0], o->store, ret_row);
}

static int abort_one(const struct ckpt_operand *o, bool yes)
{
	static const struct ckpt_verb_act act = {
		.verb = "abort", .for_good = true, .sessions = true, .at_rest = abort_at_rest};
	json_t *rows, *row;
	int rc = find(o, &rows, &row);

	if (!rc)
		rc = confirm(row, yes);
	if (!rc)
		rc = ckpt_act_on(o->store, text_of(row, "id"), text_of(row, "id"), &act);
	json_decref(rows);
	return rc;
}

static int take_one(const struct ckpt_words *words, const char *verb, struct ckpt_operand *ret_operand)
{
	CLEANUP_FREE char *usage = ckpt_text("usage: ckptfs %s [STORE] NAME", verb);
	int rc = ckpt_operand_take(words, ret_operand);

	if (rc)
		*ret_operand = (struct ckpt_operand){0};
	else if (ret_operand->count != 1)
		rc = ckpt_usage(verb, usage, "wants the name or id of one staged step");
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
		.doc = "Drops a staged step, by its name or id: its files are deleted permanently.\v"
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
	rc = take_one(&words, "abort", &o);
	if (!rc)
		rc = abort_one(&o, yes);
	ckpt_operand_done(&o);
	return rc;
}

// --- begin, resume ----------------------------------------------------------------------------------------------

struct begin {
	const char *from; // or NULL
	bool add_only;
};

static int begin_option(int key, char *arg, void *input)
{
	struct begin *b = input;

	if (key == 'f')
		b->from = arg;
	else
		b->add_only = true;
	return 0;
}

// The session of the step that --from names; malloc'ed.
static int find_from(const struct ckpt_operand *o, const char *word, char **ret_session)
{
	CLEANUP_FREE char *path = NULL;
	struct ckpt_listing l;
	struct ckpt_step *step;
	int rc = ckpt_listing_open(o->store, CKPT_STORE_READ, &l);

	if (rc)
		return rc;
	rc = ckpt_listing_find(&l, o, word, &step, &path);
	if (!rc && *path)
		rc = ckpt_usage(word, "name the step alone", "a file in a step, where a whole step is wanted");
	if (!rc)
		*ret_session = ckpt_text("%s", step->session);
	if (path)
		ckpt_step_unref(step);
	ckpt_listing_close(&l);
	return rc;
}

int ckpt_verb_begin(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"from", 'f', "STEP", 0, "begin with all files of this step; bytes are copied only when they change",
		 0},
		{"add-only", 'a', NULL, 0, "a closed file cannot be opened for writing again, and not be replaced", 0},
		{0},
	};
	static const struct ckpt_syntax syntax = {
		.options = options,
		.option = begin_option,
		.operands = "[STORE] NAME",
		.doc = "Opens a staged step by hand, in a store that is mounted: NAME is then a directory "
		       "of the mount. It is hidden from `ls` until `ckptfs commit` or its marker completes "
		       "it. For names without a step form.\v"
		       "Examples:\n"
		       "  ckptfs begin /ckpt final && cp -r out/. /ckpt/final && ckptfs commit /ckpt final\n"
		       "  ckptfs begin --from latest --add-only /data/run42 runs/a/best",
		.operands_min = 1,
		.operands_max = 2,
	};
	struct ckpt_verb_act act = {.verb = "begin"};
	CLEANUP_FREE char *name = NULL, *from = NULL;
	struct begin b = {0};
	struct ckpt_operand o;
	struct ckpt_words words;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, &b, &words);
	rc = take_one(&words, "begin", &o);
	if (!rc && b.from)
		rc = find_from(&o, b.from, &from);
	if (!rc) {
		name = ckpt_operand_new_name(&o, 0, words.at[words.count - 1]);
		act.to = name;
		act.add_only = b.add_only;
		rc = ckpt_act_ask(o.store, o.steps[0], from, &act, NULL);
	}
	if (rc == -ENOENT)
		rc = ckpt_fail(o.store, "`ckptfs mount STORE DIR` first: a staged step is written through its mount",
			       "not mounted");
	ckpt_operand_done(&o);
	return rc;
}

int ckpt_verb_resume(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] SESSION",
		.doc = "Gives a left-over session its name again, by its name or id, in a store that is "
		       "mounted. An interrupted step still has its name and needs no resume.\v"
		       "Examples:\n"
		       "  ckptfs sessions /ckpt\n"
		       "  ckptfs resume /ckpt 1000\n"
		       "  ckptfs resume /ckpt 4b0f2f4e-3c1e-4a35-9f0e-9d0d3f1f9a11",
		.operands_min = 1,
		.operands_max = 2,
	};
	static const struct ckpt_verb_act act = {.verb = "resume"};
	struct ckpt_operand o;
	struct ckpt_words words;
	json_t *rows = NULL, *row;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, NULL, &words);
	rc = take_one(&words, "resume", &o);
	if (!rc)
		rc = find(&o, &rows, &row);
	if (!rc)
		rc = ckpt_act_ask(o.store, o.steps[0], text_of(row, "id"), &act, NULL);
	if (rc == -ENOENT)
		rc = ckpt_fail(o.store, "`ckptfs mount STORE DIR` first; `ckptfs commit` completes it without",
			       "not mounted");
	json_decref(rows);
	ckpt_operand_done(&o);
	return rc;
}
