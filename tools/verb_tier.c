// cool and warm: steps into packs, and out of them again.
#include "tools/verb.h"

#include "core/base/util.h"
#include "core/tier/cool.h"
#include "tools/act.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/units.h"

#include <inttypes.h>
#include <stdio.h>

struct chosen {
	char *session, *name;
};

struct tier {
	const char *verb;
	bool cools;
	const char *only; // warm
	struct chosen *steps;
	size_t count;
	uint64_t expected; // bytes, of the bar
	struct ckpt_tier_done done;
};

// What is at rest is read by this process, and where it is not sealed by several threads of it.
static bool show(void *arg __attribute__((unused)), uint64_t bytes)
{
	ckpt_progress_add(bytes);
	return true;
}

static void add_done(struct tier *v, const struct ckpt_tier_done *done)
{
	v->done.files += done->files;
	v->done.bytes += done->bytes;
	v->done.stored_bytes += done->stored_bytes;
}

static int tier_at_rest(struct ckpt_step *step, const struct ckpt_verb_act *act)
{
	struct tier *v = act->arg;
	const struct ckpt_tier_how how = {
		.go_on = show, .pack_bytes = step->store->settings.pack_bytes, .only = v->only};
	struct ckpt_tier_done done = {0};
	int rc = v->cools ? ckpt_cool_sealed(step, &how, &done) : ckpt_warm(step, &how, &done);

	add_done(v, &done);
	return rc;
}

// --- Which ----------------------------------------------------------------------------------------------------------------

// What is not sealed is read twice.
static uint64_t bytes_to_read(const struct tier *v, struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	return step->version->is.bytes * (v->cools && !step->version->is.sealed ? 2 : 1);
}

static void add(struct tier *v, const struct ckpt_listing *l, struct ckpt_step *step)
{
	v->steps = ckpt_need(reallocarray(v->steps, v->count + 1, sizeof(*v->steps)));
	v->steps[v->count++] = (struct chosen){.session = ckpt_text("%s", step->session),
					       .name = ckpt_listing_name(l, step->folder_id, step->name)};
	v->expected += bytes_to_read(v, step);
}

static int choose(struct tier *v, const struct ckpt_listing *l, const struct ckpt_operand *o)
{
	int rc = 0;

	for (size_t i = 0; i < o->count && !rc; i++) {
		CLEANUP_FREE char *path = NULL;
		struct ckpt_step *step;

		if (ckpt_listing_is_trash(o->steps[i]))
			return ckpt_usage(o->steps[i], "`ckptfs undelete` it first",
					  "in the trash, where nothing changes");
		rc = ckpt_listing_find(l, o, o->steps[i], &step, &path);
		if (rc)
			return rc;
		if (*path)
			rc = ckpt_usage(o->steps[i],
					v->cools ? "name the step alone"
						 : "name the step alone, and its files by --only",
					"a file in a step, where a whole step is wanted");
		else
			add(v, l, step);
		ckpt_step_unref(step);
	}
	return rc;
}

// --- The act --------------------------------------------------------------------------------------------------------------

static void add_reply(struct tier *v, const json_t *reply)
{
	const struct ckpt_tier_done done = {
		.files = (uint64_t)json_integer_value(json_object_get(reply, "files")),
		.bytes = (uint64_t)json_integer_value(json_object_get(reply, "bytes")),
		.stored_bytes = (uint64_t)json_integer_value(json_object_get(reply, "stored_bytes")),
	};

	add_done(v, &done);
}

// Each in its own opening of the store, so that others can have it between two.
static int act_on_each(struct tier *v, const char *store)
{
	json_t *reply = NULL;
	const struct ckpt_verb_act act = {.verb = v->verb,
					  .only = v->only,
					  .at_rest = tier_at_rest,
					  .hint = ckpt_tier_hint,
					  .arg = v,
					  .reply = &reply};
	int status = 0;

	ckpt_progress_start(v->verb, v->expected, 1);
	for (size_t i = 0; i < v->count; i++) {
		int rc = ckpt_act_on(store, v->steps[i].name, v->steps[i].session, &act);

		status = MAX(status, rc);
		if (reply)
			add_reply(v, reply);
		json_decref(reply);
		reply = NULL;
	}
	ckpt_progress_stop();
	return status;
}

static void report(const struct tier *v)
{
	char size[CKPT_SIZE_MAX], stored[CKPT_SIZE_MAX];

	if (ckpt_output.json)
		ckpt_output_json(json_pack("{s:I, s:I, s:I}", "files", (json_int_t)v->done.files, "bytes",
					   (json_int_t)v->done.bytes, "stored_bytes",
					   (json_int_t)v->done.stored_bytes));
	else if (!v->done.files)
		ckpt_note(v->cools ? "everything is in packs already"
				   : "nothing to do: all these files are raw already");
	else if (v->cools)
		ckpt_note("cooled %" PRIu64 " files, %s; the packs grew by %s", v->done.files,
			  ckpt_size_text(v->done.bytes, size), ckpt_size_text(v->done.stored_bytes, stored));
	else
		ckpt_note("warmed %" PRIu64 " files, %s", v->done.files, ckpt_size_text(v->done.bytes, size));
}

static int run(struct tier *v, const struct ckpt_operand *o)
{
	struct ckpt_listing l;
	int rc = ckpt_listing_open(o->store, CKPT_STORE_READ, &l);

	if (rc)
		return rc;
	rc = choose(v, &l, o);
	ckpt_listing_close(&l);
	if (!rc)
		rc = act_on_each(v, o->store);
	if (!rc)
		report(v);
	return rc;
}

static int tier(struct tier *v, const struct ckpt_words *words)
{
	CLEANUP_FREE char *usage = ckpt_text("usage: ckptfs %s [STORE] STEP...", v->verb);
	struct ckpt_operand o;
	int rc = ckpt_operand_take(words, &o);

	if (rc)
		return rc;
	rc = o.count ? run(v, &o) : ckpt_usage(v->verb, usage, "wants a step");
	for (size_t i = 0; i < v->count; i++) {
		free(v->steps[i].session);
		free(v->steps[i].name);
	}
	free(v->steps);
	ckpt_operand_done(&o);
	return rc;
}

// --- The verbs ------------------------------------------------------------------------------------------------------------

int ckpt_verb_cool(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] STEP...",
		.doc = "Compresses the files of steps into packs. Parts that files have in common are "
		       "stored once. The raw files are removed only after everything was read back and "
		       "compared. A step that is not sealed is sealed first. Names and paths stay; reading "
		       "is slower.\v"
		       "Examples:\n"
		       "  ckptfs cool /data/run42 1000 2000\n"
		       "  ckptfs cool /ckpt latest~1 && ckptfs du /ckpt",
		.operands_min = 1,
		.operands_max = ~0u,
	};
	struct tier v = {.verb = "cool", .cools = true};
	struct ckpt_words words;

	ckpt_verb_parse(&syntax, argc, argv, NULL, &words);
	return tier(&v, &words);
}

enum { KEY_ONLY = 0x100 };

static int on_option(int key __attribute__((unused)), char *arg, void *input)
{
	((struct tier *)input)->only = arg;
	return *arg ? 0 : ckpt_usage("--only", "as in --only '*.safetensors'", "an empty pattern");
}

int ckpt_verb_warm(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"only", KEY_ONLY, "GLOB", 0, "only files whose path or name matches: '*.safetensors', 'params/*'", 0},
		{0},
	};
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] STEP...",
		.doc = "Writes the raw files of cooled steps again, so that they are read at the speed of "
		       "the disk. They stay in packs, too: cooling them again writes nothing.\v"
		       "Examples:\n"
		       "  ckptfs warm /data/run42 1000\n"
		       "  ckptfs warm --only 'params/*' /ckpt latest",
		.options = options,
		.option = on_option,
		.operands_min = 1,
		.operands_max = ~0u,
	};
	struct tier v = {.verb = "warm"};
	struct ckpt_words words;

	ckpt_verb_parse(&syntax, argc, argv, &v, &words);
	return tier(&v, &words);
}
