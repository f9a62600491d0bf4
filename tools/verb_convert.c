// convert: arrays of a step become a new step of the same store, with other names, shapes and dtypes, by rules.
#include "tools/verb.h"

#include "core/base/util.h"
#include "tools/array_export.h"
#include "tools/arrival.h"
#include "tools/new_step.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/stop.h"

#include <fcntl.h>

enum { KEY_FORCE = 0x200, KEY_MAP };

static const struct argp_option options[] = {
	{"map", KEY_MAP, "FILE", 0, "the rules, a file of JSON", 0},
	CKPT_ARRAY_EXPORT_OPTIONS,
	{"force", KEY_FORCE, NULL, 0, "replace a step of this name; it goes to the trash in the same act", 0},
	{0},
};

struct convert {
	struct ckpt_array_export of;
	struct ckpt_new_step step;
	const char *map;
	struct ckpt_array_rules *rules;
};

static int on_option(int key, char *arg, void *input)
{
	struct convert *v = input;

	switch (key) {
	case KEY_FORCE:
		v->step.force = true;
		return 0;
	case KEY_MAP:
		v->map = arg;
		return 0;
	default:
		return ckpt_array_export_option(&v->of, key, arg);
	}
}

// One byte more than may be is an error of the rules' own.
static int read_rules(struct convert *v)
{
	CLEANUP_FREE char *text = ckpt_need(malloc(CKPT_RULES_BYTES_MAX + 1));
	CLEANUP_FD int fd = open(v->map, O_RDONLY | O_CLOEXEC);
	char why[CKPT_RULES_WHY_MAX];
	size_t len = 0;
	ssize_t n = fd < 0 ? -1 : 1;
	int rc;

	for (; n > 0 && len <= CKPT_RULES_BYTES_MAX; len += n > 0 ? (size_t)n : 0)
		n = read(fd, text + len, CKPT_RULES_BYTES_MAX + 1 - len);
	if (n < 0)
		return ckpt_fail_errno(v->map, NULL, -errno);
	rc = ckpt_array_rules_parse(text, len, why, &v->rules);
	if (rc)
		return rc == -EINVAL ? ckpt_fail(v->map, "`ckptfs help convert` shows rules", "%s", why)
				     : ckpt_fail_errno(v->map, NULL, rc);
	v->of.rules = v->rules;
	v->of.rules_word = v->map;
	return 0;
}

static int fill(void *arg, int dirfd)
{
	struct convert *v = arg;
	int rc;

	ckpt_progress_start("converting", v->of.of.bytes, 1);
	rc = ckpt_array_export_write(&v->of, dirfd);
	ckpt_progress_stop();
	return rc;
}

static int print(const struct convert *v)
{
	const struct ckpt_export *e = &v->of.of;

	if (ckpt_output.json)
		ckpt_output_json(ckpt_need(json_pack("{s:o, s:s, s:I, s:I, s:I, s:O}", "step",
						     ckpt_json_text(v->step.name), "format", e->format, "arrays",
						     (json_int_t)e->array_count, "files", (json_int_t)e->file_count,
						     "bytes", (json_int_t)e->bytes, "left_out", v->of.left_out)));
	return 0;
}

static int make(struct convert *v)
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

static int run(struct convert *v, const struct ckpt_operand *o)
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

int ckpt_verb_convert(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] STEP[/PATH] NEW",
		.doc = "Makes a new step of arrays of another one, changed by rules, in one act: names, shapes, "
		       "dtypes, "
		       "arrays that are cut and joined. Only arrays go into the new step. The format is that of the "
		       "arrays, if all have one that can be written, else safetensors.\v"
		       "FILE has a list of rules, which are applied in their order:\n\n"
		       "  [{\"rename\": [\"REGEX\", \"REPLACEMENT\"]},\n"
		       "   {\"drop\": \"GLOB\"},\n"
		       "   {\"transpose\": \"GLOB\", \"axes\": [1, 0]},\n"
		       "   {\"reshape\": \"GLOB\", \"shape\": [4, -1]},\n"
		       "   {\"split\": \"NAME\", \"axis\": 0, \"into\": [\"NAME\", \"NAME\"], \"sizes\": [8, 2]},\n"
		       "   {\"concat\": [\"NAME\", \"NAME\"], \"axis\": 0, \"to\": \"NAME\"},\n"
		       "   {\"stack\": \"GLOB\", \"axis\": 0, \"to\": \"NAME\"},\n"
		       "   {\"unstack\": \"NAME\", \"axis\": 0, \"to\": \"layers.{}.w\"},\n"
		       "   {\"cast\": \"GLOB\", \"dtype\": \"bfloat16\"},\n"
		       "   {\"pad\": \"NAME\", \"shape\": [16, 8]}]\n\n"
		       "--only and --not choose before the rules, --dtype is applied after them. ckptfs(7) says more "
		       "of "
		       "each rule.\n\n"
		       "Examples:\n"
		       "  ckptfs convert /ckpt 1000 1000-hf --map to-hf.json --format safetensors\n"
		       "  ckptfs convert s3://bucket/run42 latest serving --map rules.json --only 'model.**'",
		.options = options,
		.option = on_option,
		.operands_min = 2,
		.operands_max = 3,
	};
	struct convert v = {0};
	CLEANUP_FREE char *name = NULL;
	struct ckpt_words words;
	struct ckpt_operand o;
	int rc;

	ckpt_array_export_begin(&v.of);
	ckpt_verb_parse(&syntax, argc, argv, &v, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	if (o.count == 2 && v.map) {
		name = ckpt_operand_new_name(&o, 1, words.at[words.count - 1]);
		v.step.store = o.store;
		v.step.name = name;
		rc = read_rules(&v);
		if (!rc)
			rc = run(&v, &o);
	} else {
		rc = ckpt_usage("convert", "usage: ckptfs convert [STORE] STEP NEW --map FILE",
				v.map ? "wants one step and a name" : "wants a --map");
	}
	ckpt_array_export_done(&v.of);
	ckpt_array_rules_free(v.rules);
	ckpt_operand_done(&o);
	return rc;
}
