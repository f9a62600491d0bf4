// gc: now what a mount does behind, once an hour.
#include "tools/verb.h"

#include "core/base/util.h"
#include "core/gc/gc.h"
#include "core/step/ask.h"
#include "core/step/errlog.h"
#include "tools/listing.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/units.h"

#include <inttypes.h>

enum { KEY_DRY_RUN = 0x100, KEY_GRACE, KEY_FORCE };

static const struct argp_option options[] = {
	{"dry-run", KEY_DRY_RUN, NULL, 0, "remove nothing; show what would be removed", 0},
	{"grace", KEY_GRACE, "D", 0, "keep packs that are younger than D (default 24h)", 0},
	{"force", KEY_FORCE, NULL, 0, "also if this removes more than half of all packed bytes", 0},
	{0},
};

static int on_option(int key, char *arg, void *input)
{
	struct ckpt_gc_how *how = input;

	switch (key) {
	case KEY_DRY_RUN:
		how->dry_run = true;
		return 0;
	case KEY_FORCE:
		how->force = true;
		return 0;
	default:
		return ckpt_duration_parse(arg, &how->grace_ns)
			       ? ckpt_usage(arg, "as in 0, 30m, 24h, 7d", "is not a duration")
			       : 0;
	}
}

static bool show(void *arg __attribute__((unused)))
{
	ckpt_progress_add(0);
	return true;
}

// *ret_figures is JSON text as of ckpt_gc_json().
static int gc_at_rest(const char *store, const struct ckpt_gc_how *how, char **ret_figures)
{
	struct ckpt_gc_done done;
	struct ckpt_listing l;
	int rc = ckpt_listing_open(store, CKPT_STORE_WRITE, &l);

	if (rc)
		return rc;
	rc = ckpt_gc(l.store, how, &done);
	ckpt_listing_close(&l);
	if (rc && *done.why)
		return ckpt_fail(store, ckpt_gc_hint(rc), "%s", done.why);
	if (rc)
		return ckpt_fail_errno(store, ckpt_gc_hint(rc), rc);
	*ret_figures = ckpt_need(ckpt_gc_json(&done));
	return 0;
}

static int gc(const char *store, const struct ckpt_gc_how *how, char **ret_figures)
{
	json_t *json =
		ckpt_need(json_pack("{s:s, s:b, s:I, s:b, s:b}", "verb", "gc", "progress", 1, "grace_ns",
				    (json_int_t)how->grace_ns, "dry_run", (int)how->dry_run, "force", (int)how->force));
	CLEANUP_FREE char *request = ckpt_need(json_dumps(json, JSON_COMPACT));
	int rc = ckpt_ask_at_length(store, request, ckpt_progress_add, ret_figures);

	json_decref(json);
	if (rc == -ENOENT)
		return gc_at_rest(store, how, ret_figures);
	if (rc)
		return ckpt_fail(store, ckpt_errno_hint(rc), "the process that has it mounted does not answer: %s",
				 strerror(-rc));
	return ckpt_answer_fail(store, *ret_figures);
}

static uint64_t number(const json_t *json, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(json, key));
}

static void report(const json_t *figures, bool dry_run)
{
	char deleted[CKPT_SIZE_MAX], live[CKPT_SIZE_MAX], moved[CKPT_SIZE_MAX], bytes[CKPT_SIZE_MAX];
	const json_t *kept;
	size_t i;

	ckpt_note("%s %" PRIu64 " packs, %s; %s are needed", dry_run ? "would remove" : "removed",
		  number(figures, "deleted_objects"), ckpt_size_text(number(figures, "deleted_bytes"), deleted),
		  ckpt_size_text(number(figures, "live_bytes"), live));
	if (number(figures, "repacked_bytes"))
		ckpt_note("%s %s that are needed of %" PRIu64 " half-dead packs, which then go",
			  dry_run ? "would put elsewhere" : "put elsewhere",
			  ckpt_size_text(number(figures, "repacked_bytes"), moved),
			  number(figures, "repacked_objects"));
	json_array_foreach(json_object_get(figures, "kept"), i, kept) ckpt_note(
		"kept %" PRIu64 " packs, %s: %s", number(kept, "objects"), ckpt_size_text(number(kept, "bytes"), bytes),
		json_string_value(json_object_get(kept, "why")));
}

int ckpt_verb_gc(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE]",
		.doc = "Removes packs that no step needs any more, which frees their room. A mount does "
		       "this once an hour, in the background.\v"
		       "Steps in the trash need their packs until they expire. Packs are removed whole. If "
		       "less than half of a pack is needed, and only by listed steps, that part is moved to "
		       "another pack first, where the disk has twice the room for it. If a record cannot be "
		       "read, nothing is removed.\n"
		       "\n"
		       "Examples:\n"
		       "  ckptfs gc --dry-run /ckpt\n"
		       "  ckptfs gc --grace 0 /data/run42",
		.options = options,
		.option = on_option,
		.operands_max = 1,
	};
	struct ckpt_gc_how how = {.grace_ns = CKPT_GC_GRACE_NS, .go_on = show};
	CLEANUP_FREE char *text = NULL;
	struct ckpt_operand o;
	struct ckpt_words words;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, &how, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	if (o.count)
		rc = ckpt_usage(o.steps[0], "usage: ckptfs gc [STORE]",
				"is not a store, and single steps cannot be named");
	ckpt_progress_start("gc", 0, 1);
	if (!rc)
		rc = gc(o.store, &how, &text);
	ckpt_progress_stop();
	if (!rc) {
		json_t *figures = ckpt_need(json_loads(text, 0, NULL));

		if (ckpt_output.json)
			ckpt_output_json(json_incref(figures));
		else
			report(figures, how.dry_run);
		json_decref(figures);
	}
	ckpt_operand_done(&o);
	return rc;
}
