// seal: now what a mount does behind.
#include "tools/verb.h"

#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/tier/seal.h"
#include "tools/act.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/units.h"

#include <inttypes.h>
#include <stdio.h>

// A step as it was when we looked: who has the store mounted may have sealed it since.
struct unsealed {
	char *session, *name;
	uint64_t files, bytes;
};

struct seal {
	struct unsealed *steps;
	size_t count;
	uint64_t files, bytes, done;
};

// What is at rest is read by this process.
static bool show(void *arg __attribute__((unused)), uint64_t bytes)
{
	ckpt_progress_add(bytes);
	return true;
}

static int seal_at_rest(struct ckpt_step *step, const struct ckpt_verb_act *act __attribute__((unused)))
{
	const struct ckpt_seal_how how = {.go_on = show};

	return ckpt_seal(step, &how);
}

static const char *seal_hint(int error)
{
	return error == -EBUSY    ? "it is being changed or removed; try again later"
	       : error == -ESTALE ? "it is gone, or was replaced; `ckptfs ls` lists the steps"
	       : error == -EIO    ? "`ckptfs verify` says which file; .ckptfs/errors in the mount says more"
				  : NULL;
}

static void add(struct seal *v, const struct ckpt_listing *l, struct ckpt_step *step)
{
	struct ckpt_summary s;

	ckpt_lock_take(&step->lock);
	s = step->version->is;
	ckpt_lock_drop(&step->lock);
	if (s.sealed)
		return;
	v->steps = ckpt_need(reallocarray(v->steps, v->count + 1, sizeof(*v->steps)));
	v->steps[v->count++] = (struct unsealed){.session = ckpt_text("%s", s.session),
						 .name = ckpt_listing_name(l, s.folder_id, s.name),
						 .files = s.files,
						 .bytes = s.bytes};
	v->bytes += s.bytes;
}

static int choose_named(struct seal *v, const struct ckpt_listing *l, const struct ckpt_operand *o)
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
			rc = ckpt_usage(o->steps[i], "name the step alone",
					"a file in a step, where a whole step is wanted");
		else
			add(v, l, step);
		ckpt_step_unref(step);
	}
	return rc;
}

static void choose_all(struct seal *v, const struct ckpt_listing *l)
{
	struct ckpt_step **steps;
	size_t count;

	if (ckpt_step_list(l->store, NULL, 1u << CKPT_STEP_COMMITTED, &steps, &count))
		ckpt_need(NULL);
	for (size_t i = 0; i < count; i++)
		add(v, l, steps[i]);
	ckpt_step_list_free(steps, count);
}

// Each in its own opening of the store, so that others can have it between two.
static int seal_each(struct seal *v, const char *store)
{
	const struct ckpt_verb_act act = {.verb = "seal", .at_rest = seal_at_rest, .hint = seal_hint};
	int status = 0;

	ckpt_progress_start("seal", v->bytes, 1);
	for (size_t i = 0; i < v->count; i++) {
		const struct unsealed *step = &v->steps[i];
		int rc = ckpt_act_on(store, step->name, step->session, &act);

		status = MAX(status, rc);
		if (!rc) {
			v->files += step->files;
			v->done += step->bytes;
		}
		ckpt_progress_update(v->done);
	}
	ckpt_progress_stop();
	return status;
}

static void report(const struct seal *v)
{
	char size[CKPT_SIZE_MAX];

	if (ckpt_output.json)
		ckpt_output_json(json_pack("{s:I, s:I, s:I}", "files", (json_int_t)v->files, "bytes",
					   (json_int_t)v->done, "stored_bytes", (json_int_t)v->done));
	else if (!v->count)
		ckpt_note("everything is sealed already");
	else
		ckpt_note("sealed %" PRIu64 " files, %s", v->files, ckpt_size_text(v->done, size));
}

int ckpt_verb_seal(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] [STEP...]",
		.doc = "Reads the files of steps (of all steps without STEP), and keeps the SHA-256 of each "
		       "file and of its chunks. `ckptfs verify --read-data` compares them from then on. A "
		       "mount does this in the background (setting `seal`). What is sealed is not read "
		       "again.\v"
		       "Examples:\n"
		       "  ckptfs seal /data/run42\n"
		       "  ckptfs seal /ckpt latest && ckptfs ls --json /ckpt latest",
		.operands_max = ~0u,
	};
	struct seal v = {0};
	struct ckpt_listing l;
	struct ckpt_operand o;
	struct ckpt_words words;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, NULL, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	rc = ckpt_listing_open(o.store, CKPT_STORE_READ, &l);
	if (!rc) {
		if (o.count)
			rc = choose_named(&v, &l, &o);
		else
			choose_all(&v, &l);
		ckpt_listing_close(&l);
	}
	if (!rc)
		rc = seal_each(&v, o.store);
	if (!rc)
		report(&v);
	for (size_t i = 0; i < v.count; i++) {
		free(v.steps[i].session);
		free(v.steps[i].name);
	}
	free(v.steps);
	ckpt_operand_done(&o);
	return rc;
}
