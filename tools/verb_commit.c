// commit: completes staged steps, those that are named, or all that are quiet.
#include "tools/verb.h"

#include "core/base/clock.h"
#include "core/base/sys.h"
#include "core/base/units.h"
#include "core/base/util.h"
#include "core/record/name.h"
#include "core/save/commit.h"
#include "core/save/reopen.h"
#include "core/save/stage.h"
#include "core/step/settings.h"
#include "core/step/trash.h"
#include "tools/act.h"
#include "tools/config.h"
#include "tools/arrival.h"
#include "tools/output.h"
#include "tools/session.h"

#include <limits.h>
#include <stdio.h>

struct commit {
	const char *file; // of metadata, or NULL
	bool all_quiet;
};

static const char *commit_hint(int error __attribute__((unused)))
{
	return "the file errors in the store says more";
}

static int commit_at_rest(struct ckpt_step *step, const struct ckpt_verb_act *act)
{
	const struct ckpt_commit how = {
		.event = "verb",
		.profile = "generic",
		.metadata = act->metadata,
		.writers_ns = step->store->settings.open_writers_ns,
	};
	int rc = ckpt_step_state(step) == CKPT_STEP_LEFT ? ckpt_stage_resume(step) : 0;

	if (!rc)
		rc = ckpt_reopen_check_whole(step);
	if (!rc)
		rc = ckpt_commit(step, &how);
	if (!rc)
		ckpt_trash_drain(*ckpt_trash_of(step->store)); // temporary steps that are over
	return rc;
}

static const char *word_of(const json_t *row)
{
	const char *name = ckpt_session_text(row, "name");

	return name ? name : ckpt_session_text(row, "id");
}

// The left session of the same name that the commit made of what it left out: NULL, none. before: the rows of before it.
static const json_t *find_left_out(const json_t *before, const json_t *after, const char *name)
{
	json_t *row, *old;
	size_t i, k;

	json_array_foreach(after, i, row)
	{
		const char *id = ckpt_session_text(row, "id"), *its = ckpt_session_text(row, "name");
		bool known = !its || strcmp(its, name);

		json_array_foreach(before, k, old) known |= !strcmp(ckpt_session_text(old, "id"), id);
		if (!known)
			return row;
	}
	return NULL;
}

static void print_done(const char *store, const json_t *rows, const json_t *row)
{
	long long files = json_integer_value(json_object_get(row, "files")), left_files = 0;
	uint64_t bytes = (uint64_t)json_integer_value(json_object_get(row, "bytes")), left_bytes = 0;
	const char *name = ckpt_session_text(row, "name");
	json_t *after = NULL;
	const json_t *left = NULL;
	char size[CKPT_SIZE_MAX];

	if (name && !ckpt_sessions_read(store, &after))
		left = find_left_out(rows, after, name);
	if (left) {
		left_files = json_integer_value(json_object_get(left, "files"));
		left_bytes = (uint64_t)json_integer_value(json_object_get(left, "bytes"));
	}
	files = MAX(files - left_files, 0);
	printf("%s: committed, %lld file%s, %s\n", word_of(row), files, files == 1 ? "" : "s",
	       ckpt_size_text(bytes - MIN(bytes, left_bytes), size));
	if (left)
		ckpt_note("%s is without %lld file%s, which a killed process had not written to the end: kept in "
			  ".ckptfs/staged until `ckptfs abort %s %s`",
			  name, left_files, left_files == 1 ? "" : "s", store, ckpt_session_text(left, "id"));
	json_decref(after);
}

static int commit_one(const char *store, const json_t *rows, const json_t *row, const char *metadata)
{
	json_t *reply = NULL;
	const struct ckpt_verb_act act = {.verb = "commit",
					  .sessions = true,
					  .metadata = metadata,
					  .at_rest = commit_at_rest,
					  .hint = commit_hint,
					  .reply = &reply};
	int rc = ckpt_act_on(store, word_of(row), ckpt_session_text(row, "id"), &act);

	if (!rc && !ckpt_output.json && !ckpt_output.quiet)
		print_done(store, rows, row);
	if (!rc)
		rc = ckpt_arrival_await(store, word_of(row), ckpt_session_text(row, "id"), reply);
	json_decref(reply);
	return rc;
}

// All names are looked up before the first step is committed. A failure does not keep the others from being committed.
static int commit_named(const struct ckpt_operand *o, const json_t *rows, const char *metadata)
{
	CLEANUP_FREE json_t **found = ckpt_need(calloc(o->count, sizeof(*found)));
	int rc = 0;

	for (size_t i = 0; i < o->count && !rc; i++)
		rc = ckpt_sessions_find(rows, o->steps[i], o->store, &found[i]);
	if (rc)
		return rc;
	for (size_t i = 0; i < o->count; i++)
		if (commit_one(o->store, rows, found[i], metadata))
			rc = 1;
	return rc;
}

// Nobody has it open, and nothing of it has changed for commit_quiet. One with a temporary name waits for its rename.
static bool is_quiet(const json_t *row, int64_t quiet_ns)
{
	const char *name = ckpt_session_text(row, "name"), *changed = ckpt_session_text(row, "changed_at");
	const char *leaf = name && strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
	int64_t ns;

	return name && strcmp(ckpt_session_text(row, "state"), "left") && !ckpt_name_is_temp(leaf) && changed &&
	       !ckpt_time_parse(changed, false, &ns) && ckpt_time_between(ns, ckpt_sys.now_ns()) >= quiet_ns &&
	       json_integer_value(json_object_get(row, "files")) > 0 &&
	       !json_integer_value(json_object_get(row, "open_writers"));
}

static int commit_all_quiet(const char *store, json_t *rows, const char *metadata)
{
	struct ckpt_settings settings;
	int64_t quiet_ns;
	json_t *row;
	size_t i;
	int rc = ckpt_config_read(store, &settings);

	if (rc)
		return ckpt_fail_errno(store, NULL, rc);
	quiet_ns = ckpt_settings_quiet_ns(&settings, 1);
	ckpt_settings_done(&settings);
	json_array_foreach(rows, i, row) if (is_quiet(row, quiet_ns) && commit_one(store, rows, row, metadata)) rc = 1;
	return rc;
}

static int commit_option(int key, char *arg, void *input)
{
	struct commit *c = input;

	if (key == 'm')
		c->file = arg;
	else
		c->all_quiet = true;
	return 0;
}

static int check(const struct commit *c, const struct ckpt_operand *o)
{
	if (c->all_quiet && o->count)
		return ckpt_usage(o->steps[0], "`ckptfs commit --all-quiet STORE` takes no names",
				  "named beside --all-quiet");
	if (!c->all_quiet && !o->count)
		return ckpt_usage("commit", "usage: ckptfs commit [STORE] NAME..., or --all-quiet",
				  "wants the name or id of a staged step");
	return 0;
}

int ckpt_verb_commit(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"all-quiet", 'a', NULL, 0,
		 "all staged steps that no process has open and that have not changed for commit_quiet", 0},
		{"metadata", 'm', "FILE", 0, "JSON of the step, as a marker may hold it; - is stdin", 0},
		{0},
	};
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] NAME...",
		.doc = "Completes staged steps by hand, as closing their marker does. NAME is the name of a "
		       "step, or the id of a session. A left-over session gets its name again first. A file "
		       "that a killed writer left is published under its name.\v"
		       "Examples:\n"
		       "  ckptfs commit /ckpt 1000\n"
		       "  ckptfs commit --metadata meta.json /data/run42 1000\n"
		       "  ckptfs commit --all-quiet /ckpt",
		.options = options,
		.option = commit_option,
		.operands_max = UINT_MAX,
	};
	CLEANUP_FREE char *metadata = NULL;
	struct commit c = {0};
	struct ckpt_operand o;
	struct ckpt_words words;
	json_t *rows = NULL;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, &c, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	rc = check(&c, &o);
	if (!rc && c.file)
		rc = ckpt_act_metadata(c.file, &metadata);
	if (!rc)
		rc = ckpt_sessions_read(o.store, &rows);
	if (!rc)
		rc = c.all_quiet ? commit_all_quiet(o.store, rows, metadata) : commit_named(&o, rows, metadata);
	json_decref(rows);
	ckpt_operand_done(&o);
	return rc;
}
