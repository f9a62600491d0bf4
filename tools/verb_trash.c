// trash: which deleted steps there are, and their room back at once.
#include "tools/verb.h"

#include "core/base/clock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/base/uuid.h"
#include "core/gc/gc.h"
#include "core/save/delete.h"
#include "core/step/ask.h"
#include "core/store/room.h"
#include "tools/act.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/rows.h"
#include "tools/units.h"

#include <stdio.h>

enum { KEY_OLDER = 0x100 };

struct item {
	char session[CKPT_UUID_LEN + 1];
	bool packed;
	uint64_t bytes;
	json_t *row;
};

struct trash {
	bool empties, yes;
	int64_t older_ns;
	struct ckpt_operand o;
	// The steps that are meant, by name, the newest first.
	struct item *items;
	size_t count;
	bool any_packed;
	uint64_t bytes, freed;
};

// --- Which --------------------------------------------------------------------------------------------------------------

static int64_t deleted_at(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	return step->deleted_ns;
}

static bool is_named(const struct trash *t, const char *name, bool *found)
{
	bool is = !t->o.count;

	for (size_t i = 0; i < t->o.count; i++) {
		const char *word = t->o.steps[i];

		if (strcmp(ckpt_listing_is_trash(word) ? word + strlen("trash/") : word, name))
			continue;
		is = found[i] = true;
	}
	return is;
}

static int say_missing(const struct trash *t, const bool *found)
{
	int status = 0;

	for (size_t i = 0; i < t->o.count; i++)
		if (!found[i])
			status = ckpt_fail(t->o.steps[i], "`ckptfs trash list` shows what is there",
					   "no such step in the trash");
	return status;
}

static void take(struct trash *t, struct ckpt_step *step, json_t *row)
{
	CLEANUP_VERSION struct ckpt_version *v = ckpt_step_version(step);
	struct item *item = &t->items[t->count++];

	*item = (struct item){.packed = v->is.packed, .bytes = ckpt_room_of_deleted(step), .row = row};
	memcpy(item->session, step->session, sizeof(item->session));
	if (json_object_set_new(row, "room_bytes", json_integer((json_int_t)item->bytes)))
		ckpt_need(NULL);
	t->bytes += item->bytes;
	t->any_packed |= item->packed;
}

static int choose(struct trash *t, const struct ckpt_listing *l)
{
	CLEANUP_FREE bool *found = ckpt_need(calloc(t->o.count + 1, sizeof(*found)));
	struct ckpt_step **all;
	size_t count;

	if (ckpt_deleted_list(l->store, &all, &count))
		ckpt_need(NULL);
	t->items = ckpt_need(calloc(count + 1, sizeof(*t->items)));
	for (size_t i = 0; i < count; i++) {
		json_t *row = ckpt_row_deleted(l, all, i, true);
		bool old = ckpt_sys.now_ns() - deleted_at(all[i]) >= t->older_ns;

		if (is_named(t, json_string_value(json_object_get(row, "name")), found) && old)
			take(t, all[i], row);
		else
			json_decref(row);
	}
	ckpt_step_list_free(all, count);
	return say_missing(t, found);
}

// --- Emptying -----------------------------------------------------------------------------------------------------------

// The mount or we ourselves, as of gc: {"deleted_bytes": ...}, malloc'ed.
static int free_packs(struct trash *t, struct ckpt_store *own, char **ret_figures)
{
	static const char request[] = "{\"verb\":\"gc\",\"progress\":true,\"grace_ns\":0,\"no_repack\":true}";
	const struct ckpt_gc_how how = {.repack = {.none = true}};
	struct ckpt_gc_done done;
	int rc;

	if (own) {
		rc = ckpt_gc(own, &how, &done);
		*ret_figures = rc ? NULL : ckpt_need(ckpt_gc_json(&done));
		return rc ? ckpt_fail(t->o.store, ckpt_gc_hint(rc), "packs were not removed: %s",
				      *done.why ? done.why : strerror(-rc))
			  : 0;
	}
	rc = ckpt_ask_at_length(t->o.store, request, ckpt_progress_add, ret_figures);
	return rc ? ckpt_fail(t->o.store, NULL, "packs were not removed: %s", strerror(-rc))
		  : ckpt_answer_fail(t->o.store, *ret_figures);
}

static int empty_packs(struct trash *t, struct ckpt_store *own)
{
	CLEANUP_FREE char *text = NULL;
	json_t *figures;
	int rc = t->any_packed ? free_packs(t, own, &text) : 0;

	if (rc || !text)
		return rc;
	figures = ckpt_need(json_loads(text, 0, NULL));
	t->freed += (uint64_t)json_integer_value(json_object_get(figures, "deleted_bytes"));
	json_decref(figures);
	return 0;
}

static const char *name_of(const struct trash *t, size_t i)
{
	return json_string_value(json_object_get(t->items[i].row, "name"));
}

static void say_gone(struct trash *t, size_t i)
{
	const struct item *item = &t->items[i];
	char size[CKPT_SIZE_MAX];

	if (!item->packed)
		t->freed += item->bytes; // of packs, those say it that go
	if (!ckpt_output.json && !ckpt_output.quiet)
		printf("%s: removed from the trash, %s\n", name_of(t, i), ckpt_size_text(item->bytes, size));
	if (json_object_set_new(item->row, "removed", json_true()))
		ckpt_need(NULL);
}

static int empty_at_rest(struct trash *t)
{
	struct ckpt_listing l;
	int status = ckpt_listing_open(t->o.store, CKPT_STORE_WRITE, &l);

	if (status)
		return status;
	for (size_t i = 0; i < t->count; i++) {
		struct ckpt_step *step = ckpt_step_of_session(l.store, t->items[i].session);
		int rc = step ? ckpt_expire_at_once(step) : -ESTALE;

		ckpt_step_unref(step);
		if (!rc)
			say_gone(t, i);
		else if (rc != -ESTALE) // it has expired, or was had back
			status = ckpt_fail_errno(name_of(t, i), ckpt_expire_hint(rc), rc);
	}
	status = MAX(status, empty_packs(t, l.store));
	ckpt_listing_close(&l);
	return status;
}

static int empty_mounted(struct trash *t)
{
	static const struct ckpt_verb_act act = {.verb = "delete", .for_good = true, .deleted_only = true};
	int status = 0;

	for (size_t i = 0; i < t->count; i++) {
		int rc = ckpt_act_ask(t->o.store, name_of(t, i), t->items[i].session, &act, NULL);

		if (rc == -ENOENT)
			return i ? status : empty_at_rest(t);
		if (!rc)
			say_gone(t, i);
		status = MAX(status, rc);
	}
	return MAX(status, empty_packs(t, NULL));
}

static int empty(struct trash *t)
{
	char size[CKPT_SIZE_MAX];
	int rc = t->count ? ckpt_confirm("trash", t->yes, "Delete %zu step%s in the trash, %s, permanently?", t->count,
					 t->count == 1 ? "" : "s", ckpt_size_text(t->bytes, size))
			  : 0;

	if (rc || !t->count)
		return rc;
	rc = empty_mounted(t);
	if (!ckpt_output.json && !ckpt_output.quiet)
		printf("%s freed\n", ckpt_size_text(t->freed, size));
	return rc;
}

// --- The answer ---------------------------------------------------------------------------------------------------------

static const char *time_of(const json_t *row, const char *key, char text[CKPT_TIME_MAX])
{
	const char *value = json_string_value(json_object_get(row, key));
	int64_t ns;

	return value && !ckpt_time_parse(value, false, &ns) ? ckpt_time_local(ns, text) : "-";
}

static void print_list(const struct trash *t)
{
	struct ckpt_table *table = ckpt_table_new();
	char size[CKPT_SIZE_MAX], deleted[CKPT_TIME_MAX], expires[CKPT_TIME_MAX];

	ckpt_table_column(table, "NAME", CKPT_LEFT);
	ckpt_table_column(table, "ROOM", CKPT_RIGHT);
	ckpt_table_column(table, "DELETED", CKPT_LEFT);
	ckpt_table_column(table, "EXPIRES", CKPT_LEFT);
	for (size_t i = 0; i < t->count; i++) {
		const struct item *item = &t->items[i];

		ckpt_table_row(table, (const char *[]){name_of(t, i), ckpt_size_text(item->bytes, size),
						       time_of(item->row, "deleted_at", deleted),
						       time_of(item->row, "expires_at", expires)});
	}
	ckpt_table_print(table);
}

static void report(const struct trash *t)
{
	json_t *steps = ckpt_need(json_array());

	if (!ckpt_output.json) {
		json_decref(steps);
		if (!t->empties)
			print_list(t);
		return;
	}
	for (size_t i = 0; i < t->count; i++)
		if (!t->empties || json_object_get(t->items[i].row, "removed"))
			json_array_append(steps, t->items[i].row);
	ckpt_output_json(ckpt_need(json_pack("{s:I, s:I, s:o}", "bytes", (json_int_t)t->bytes, "freed_bytes",
					     (json_int_t)t->freed, "steps", steps)));
}

static void trash_done(struct trash *t)
{
	for (size_t i = 0; i < t->count; i++)
		json_decref(t->items[i].row);
	free(t->items);
}

// --- The verb -----------------------------------------------------------------------------------------------------------

static int on_option(int key, char *arg, void *input)
{
	struct trash *t = input;

	if (key == 'y') {
		t->yes = true;
		return 0;
	}
	return ckpt_duration_parse(arg, &t->older_ns) ? ckpt_usage(arg, "as in 30m, 24h, 7d", "is not a duration") : 0;
}

static int run(struct trash *t)
{
	struct ckpt_listing l;
	int rc = ckpt_listing_open(t->o.store, CKPT_STORE_READ, &l);

	if (rc)
		return rc;
	rc = choose(t, &l);
	ckpt_listing_close(&l); // nobody has a store open twice
	if (!rc && t->empties)
		rc = empty(t);
	if (!rc)
		report(t);
	trash_done(t);
	return rc;
}

int ckpt_verb_trash(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"older", KEY_OLDER, "D", 0, "only steps that were deleted D ago or earlier", 0},
		{"yes", 'y', NULL, 0, "empty: do not ask; needed where stdin is no terminal", 0},
		{0},
	};
	static const struct ckpt_syntax syntax = {
		.operands = "list|empty [STORE] [STEP...]",
		.doc = "Lists deleted steps, with the room that each takes and the time until which `ckptfs undelete` "
		       "restores it; or removes them now and frees their room.\v"
		       "A mount removes deleted steps by itself: after a week (trash=7d), beyond a limit "
		       "(trash_limit=10%), and earlier when the disk has too little room for the next save "
		       "(trash_reserve). Pinned steps are never in the trash. The packs that only these steps need are "
		       "removed with them.\n\n"
		       "Examples:\n"
		       "  ckptfs trash list /ckpt\n"
		       "  ckptfs trash empty --older 1d --yes /data/run42",
		.options = options,
		.option = on_option,
		.operands_min = 1,
		.operands_max = UINT_MAX,
	};
	struct trash t = {.older_ns = INT64_MIN};
	struct ckpt_words words, rest;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, &t, &words);
	t.empties = !strcmp(words.at[0], "empty");
	if (!t.empties && strcmp(words.at[0], "list"))
		return ckpt_usage(words.at[0], "`ckptfs trash list` or `ckptfs trash empty`", "is neither");
	rest = (struct ckpt_words){.at = words.at + 1, .count = words.count - 1};
	rc = ckpt_operand_take(&rest, &t.o);
	if (rc)
		return rc;
	rc = run(&t);
	ckpt_operand_done(&t.o);
	return rc;
}
