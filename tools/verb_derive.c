// derive: arrays of a step become a new step of the same store.
#include "tools/verb.h"

#include "core/base/util.h"
#include "tools/array_export.h"
#include "tools/arrival.h"
#include "tools/new_step.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/stop.h"

enum { KEY_FORCE = 0x200 };

static const struct argp_option options[] = {
	CKPT_ARRAY_EXPORT_OPTIONS,
	{"force", KEY_FORCE, NULL, 0, "replace a step of this name; it goes to the trash in the same act", 0},
	{0},
};

struct derive {
	struct ckpt_array_export of;
	struct ckpt_new_step step;
};

static int on_option(int key, char *arg, void *input)
{
	struct derive *v = input;

	if (key != KEY_FORCE)
		return ckpt_array_export_option(&v->of, key, arg);
	v->step.force = true;
	return 0;
}

static int fill(void *arg, int dirfd)
{
	struct derive *v = arg;
	int rc;

	ckpt_progress_start("deriving", v->of.of.bytes, 1);
	rc = ckpt_array_export_write(&v->of, dirfd);
	ckpt_progress_stop();
	return rc;
}

static int print(const struct derive *v)
{
	const struct ckpt_export *e = &v->of.of;

	if (ckpt_output.json)
		ckpt_output_json(ckpt_need(json_pack("{s:o, s:s, s:I, s:I, s:I, s:O}", "step",
						     ckpt_json_text(v->step.name), "format", e->format, "arrays",
						     (json_int_t)e->array_count, "files", (json_int_t)e->file_count,
						     "bytes", (json_int_t)e->bytes, "left_out", v->of.left_out)));
	return 0;
}

static int make(struct derive *v)
{
	struct ckpt_new_step *n = &v->step;
	int rc;

	n->fill = fill;
	n->arg = v;
	ckpt_stop_begin();
	rc = ckpt_stop_end(ckpt_new_step_make(n));
	if (!rc)
		rc = ckpt_arrival_await(n->store, n->name, n->session, n->reply);
	json_decref(n->reply);
	return rc ? rc : print(v);
}

static int run(struct derive *v, const struct ckpt_operand *o)
{
	struct ckpt_listing l;
	int rc = ckpt_listing_open_beside(o->store, &l);

	if (rc)
		return rc;
	rc = ckpt_array_export_read(&v->of, &l, o, o->steps[0]);
	if (!rc)
		rc = ckpt_array_export_plan(&v->of);
	if (!rc)
		rc = make(v);
	ckpt_array_export_done(&v->of);
	ckpt_listing_close(&l);
	return rc;
}

int ckpt_verb_derive(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] STEP[/PATH] NEW",
		.doc = "Makes a new step of arrays of another one, in one act. No mount is needed. Only the arrays "
		       "that are "
		       "chosen are read. The format is that of the arrays, if all have one that can be written, else "
		       "safetensors.\v"
		       "Only arrays go into the new step, no other files. A GLOB is over names: `*` stops at `.` and "
		       "`/`, `**` "
		       "does not; with a colon it is over TREE:NAME.\n\n"
		       "Examples:\n"
		       "  ckptfs derive /data/run42 latest serving --only 'model.**' --dtype bfloat16\n"
		       "  ckptfs derive /ckpt 1000 1000-params --not 'optimizer.**' --shard-bytes 5GB\n"
		       "  ckptfs derive s3://bucket/run42 1000 serving --only 'params.**'",
		.options = options,
		.option = on_option,
		.operands_min = 2,
		.operands_max = 3,
	};
	struct derive v = {0};
	CLEANUP_FREE char *name = NULL;
	struct ckpt_words words;
	struct ckpt_operand o;
	int rc;

	ckpt_array_export_begin(&v.of);
	ckpt_verb_parse(&syntax, argc, argv, &v, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	if (o.count == 2) {
		name = ckpt_operand_new_name(&o, 1, words.at[words.count - 1]);
		v.step.store = o.store;
		v.step.name = name;
		rc = run(&v, &o);
	} else {
		rc = ckpt_usage("derive", "usage: ckptfs derive [STORE] STEP NEW", "wants one step and a name");
	}
	ckpt_array_export_done(&v.of);
	ckpt_operand_done(&o);
	return rc;
}
