// gc: now what a mount does behind: on its own packs once an hour, on a bucket once a day.
#include "tools/verb.h"

#include "core/base/util.h"
#include "core/gc/gc.h"
#include "core/remote/collect.h"
#include "core/step/ask.h"
#include "core/step/errlog.h"
#include "tools/listing.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/units.h"

#include <inttypes.h>
#include <stdio.h>

enum { KEY_DRY_RUN = 0x100, KEY_GRACE, KEY_DELAY, KEY_FORCE };

struct asked {
	bool in_bucket, dry_run, force;
	int64_t grace_ns, delay_ns;
};

static const struct argp_option options[] = {
	{"dry-run", KEY_DRY_RUN, NULL, 0, "remove nothing; show what would be removed", 0},
	{"grace", KEY_GRACE, "D", 0, "keep packs that are younger than D (default 24h)", 0},
	{"delay", KEY_DELAY, "D", 0, "s3://: between the entry that says what goes, and its removal (default 1h)", 0},
	{"force", KEY_FORCE, NULL, 0, "also if this removes more than half of all packed bytes", 0},
	{0},
};

static int on_option(int key, char *arg, void *input)
{
	struct asked *a = input;

	switch (key) {
	case KEY_DRY_RUN:
		a->dry_run = true;
		return 0;
	case KEY_FORCE:
		a->force = true;
		return 0;
	default:
		return ckpt_duration_parse(arg, key == KEY_GRACE ? &a->grace_ns : &a->delay_ns)
			       ? ckpt_usage(arg, "as in 0, 30m, 24h, 7d", "is not a duration")
			       : 0;
	}
}

static bool show(void *arg __attribute__((unused)))
{
	ckpt_progress_add(0);
	return true;
}

static bool show_removed(void *arg __attribute__((unused)), uint64_t bytes)
{
	ckpt_progress_add(bytes);
	return true;
}

// *ret_figures is JSON text; of a failure *ret_why is the cause, or "".
static int gc_here(struct ckpt_store *s, const struct asked *a, char **ret_figures, char *ret_why)
{
	const struct ckpt_gc_how how = {
		.grace_ns = a->grace_ns, .dry_run = a->dry_run, .force = a->force, .go_on = show};
	struct ckpt_gc_done done;
	int rc = ckpt_gc(s, &how, &done);

	snprintf(ret_why, CKPT_GC_WHY_MAX, "%s", done.why);
	if (!rc)
		*ret_figures = ckpt_need(ckpt_gc_json(&done));
	return rc;
}

static int gc_bucket(struct ckpt_store *s, const struct asked *a, char **ret_figures, char *ret_why)
{
	const struct ckpt_collect_how how = {.grace_ns = a->grace_ns,
					     .delay_ns = a->delay_ns,
					     .dry_run = a->dry_run,
					     .force = a->force,
					     .repack = {.bytes_max = UINT64_MAX},
					     .go_on = show_removed};
	struct ckpt_collect_done done;
	int rc = ckpt_collect(s, &how, &done);

	snprintf(ret_why, CKPT_GC_WHY_MAX, "%s", done.why);
	if (!rc)
		*ret_figures = ckpt_need(ckpt_collect_json(&done));
	return rc;
}

static int gc_at_rest(const char *store, const struct asked *a, char **ret_figures)
{
	char why[CKPT_GC_WHY_MAX];
	struct ckpt_listing l;
	const char *hint;
	int rc = ckpt_listing_open(store, CKPT_STORE_WRITE, &l);

	if (rc)
		return rc;
	rc = (a->in_bucket ? gc_bucket : gc_here)(l.store, a, ret_figures, why);
	ckpt_listing_close(&l);
	hint = a->in_bucket ? ckpt_collect_hint(rc) : ckpt_gc_hint(rc);
	if (rc && *why)
		return ckpt_fail(store, hint, "%s", why);
	return rc ? ckpt_fail_errno(store, hint, rc) : 0;
}

static int gc(const char *store, const struct asked *a, char **ret_figures)
{
	json_t *json =
		ckpt_need(json_pack("{s:s, s:b, s:b, s:I, s:I, s:b, s:b}", "verb", "gc", "progress", 1, "bucket",
				    (int)a->in_bucket, "grace_ns", (json_int_t)a->grace_ns, "delay_ns",
				    (json_int_t)a->delay_ns, "dry_run", (int)a->dry_run, "force", (int)a->force));
	CLEANUP_FREE char *request = ckpt_need(json_dumps(json, JSON_COMPACT));
	int rc = ckpt_ask_at_length(store, request, ckpt_progress_add, ret_figures);

	json_decref(json);
	if (rc == -ENOENT)
		return gc_at_rest(store, a, ret_figures);
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

// "3 objects, 192.0 MiB"
static const char *counted(const json_t *figures, const char *key, char ret_text[CKPT_SIZE_MAX + 64])
{
	const json_t *n = json_object_get(figures, key);
	char size[CKPT_SIZE_MAX];

	snprintf(ret_text, CKPT_SIZE_MAX + 64, "%" PRIu64 " objects, %s", number(n, "objects"),
		 ckpt_size_text(number(n, "bytes"), size));
	return ret_text;
}

static void report_half_dead(const json_t *found, const json_t *moved, bool dry_run)
{
	uint64_t left = number(found, "objects") - number(moved, "objects");
	char moved_size[CKPT_SIZE_MAX], size[CKPT_SIZE_MAX];

	if (number(moved, "objects"))
		ckpt_note("%s %s out of %" PRIu64 " half-dead packs, which are garbage once that is uploaded",
			  dry_run ? "would move" : "moved", ckpt_size_text(number(moved, "bytes"), moved_size),
			  number(moved, "objects"));
	if (number(found, "objects"))
		ckpt_note("%s in %" PRIu64 " half-dead packs are needed by no step",
			  ckpt_size_text(number(found, "bytes"), size), number(found, "objects"));
	if (left)
		ckpt_note("kept %" PRIu64
			  " of them: this machine has no room, they are damaged, or it is another round's work",
			  left);
}

static void report_bucket(const json_t *figures, bool dry_run)
{
	char text[CKPT_SIZE_MAX + 64], live[CKPT_SIZE_MAX + 64];
	uint64_t seconds = number(figures, "waiting_seconds");

	ckpt_note("%s %s of the bucket; %s are needed", dry_run ? "would remove" : "removed",
		  counted(figures, "deleted", text), counted(figures, "live", live));
	if (number(json_object_get(figures, "condemned"), "objects"))
		ckpt_note("%s %s as garbage, which other nodes do not name from then on",
			  dry_run ? "would mark" : "marked", counted(figures, "condemned", text));
	if (number(json_object_get(figures, "waiting"), "objects"))
		ckpt_note("%s of the garbage may be removed in %" PRIu64
			  " minutes: readers have this time; run it again then",
			  counted(figures, "waiting", text), (seconds + 59) / 60);
	if (number(json_object_get(figures, "young"), "objects"))
		ckpt_note("kept %s: younger than the grace time", counted(figures, "young", text));
	report_half_dead(json_object_get(figures, "half_dead"), json_object_get(figures, "repacked"), dry_run);
	if (number(figures, "uploads"))
		ckpt_note("gave up %" PRIu64 " unfinished uploads", number(figures, "uploads"));
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
		       "With s3://BUCKET/PREFIX it removes packs and manifests from the bucket that no node "
		       "needs. First an entry of the log names them, and no node uses them from then on. "
		       "They are removed by the first collection that comes an hour later or more. "
		       "Any node may do this at any time, and so may a cron job: nobody has to stop for it. "
		       "A mount does it once a day, if no other node has. What listed steps need of half-dead packs "
		       "is downloaded and put into new packs; a later collection removes the old ones.\n"
		       "\n"
		       "Examples:\n"
		       "  ckptfs gc --dry-run /ckpt\n"
		       "  ckptfs gc --grace 0 /data/run42\n"
		       "  ckptfs gc s3://bucket/run42",
		.options = options,
		.option = on_option,
		.operands_max = 1,
	};
	struct asked asked = {.grace_ns = CKPT_GC_GRACE_NS, .delay_ns = CKPT_COLLECT_DELAY_NS};
	CLEANUP_FREE char *text = NULL;
	struct ckpt_operand o;
	struct ckpt_words words;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, &asked, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	if (o.count)
		rc = ckpt_usage(o.steps[0], "usage: ckptfs gc [STORE]",
				"is not a store, and single steps cannot be named");
	asked.in_bucket = o.in_bucket;
	ckpt_progress_start("gc", 0, 1);
	if (!rc)
		rc = gc(o.store, &asked, &text);
	ckpt_progress_stop();
	if (!rc) {
		json_t *figures = ckpt_need(json_loads(text, 0, NULL));

		if (ckpt_output.json)
			ckpt_output_json(json_incref(figures));
		else
			(asked.in_bucket ? report_bucket : report)(figures, asked.dry_run);
		json_decref(figures);
	}
	ckpt_operand_done(&o);
	return rc;
}
