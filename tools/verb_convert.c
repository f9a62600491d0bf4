// convert: arrays of a step become a new step of the same store, with other names, shapes and dtypes, by rules.
#include "tools/verb.h"

#include "core/base/util.h"
#include "tools/array_export.h"
#include "tools/convert_by.h"
#include "tools/new_step.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/units.h"

#include <fcntl.h>

#define HOST "--host-plugin" // of ourselves (convert_by.h), and in no help

enum { KEY_FORCE = 0x200, KEY_MAP, KEY_EXEC, KEY_PLUGIN, KEY_TIMEOUT };

static const struct argp_option options[] = {
	{"map", KEY_MAP, "FILE", 0, "the rules, a file of JSON", 0},
	{"exec", KEY_EXEC, "COMMAND", 0,
	 "a command for /bin/sh, which gets the arrays on stdin and writes those of the new step to stdout; after "
	 "--map",
	 0},
	{"plugin", KEY_PLUGIN, "FILE", 0, "a shared object that does the same, by its ckpt_convert()", 0},
	{"timeout", KEY_TIMEOUT, "D", 0, "end COMMAND or plugin after this time; without it there is no limit", 0},
	CKPT_ARRAY_EXPORT_OPTIONS,
	{"force", KEY_FORCE, NULL, 0, "replace a step of this name; it goes to the trash in the same act", 0},
	{0},
};

struct convert {
	struct ckpt_array_export of;
	struct ckpt_new_step step;
	const char *map;
	struct ckpt_array_rules *rules;
	struct ckpt_convert_by by;
};

static bool is_by(const struct convert *v)
{
	return v->by.exec || v->by.plugin;
}

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
	case KEY_EXEC:
		v->by.exec = arg;
		return 0;
	case KEY_PLUGIN:
		v->by.plugin = arg;
		return 0;
	case KEY_TIMEOUT:
		return ckpt_duration_parse(arg, &v->by.timeout_ns) || v->by.timeout_ns <= 0
			       ? ckpt_usage(arg, "for example 90s or 2h", "no duration")
			       : 0;
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
	rc = is_by(v) ? ckpt_convert_by_write(&v->by, &v->of, dirfd) : ckpt_array_export_write(&v->of, dirfd);
	ckpt_progress_stop();
	return rc;
}

static int print(const struct convert *v)
{
	const struct ckpt_export *e = is_by(v) ? &v->by.out.of : &v->of.of;

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
	rc = ckpt_new_step_run(n);
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
		rc = is_by(v) ? ckpt_convert_by_plan(&v->by, &v->of) : ckpt_array_export_plan(&v->of);
	if (!rc)
		rc = make(v);
	ckpt_convert_by_done(&v->by);
	ckpt_array_export_done(&v->of);
	ckpt_listing_close(&l);
	return rc;
}

static int check_words(const struct convert *v, const struct ckpt_operand *o)
{
	static const char usage[] = "usage: ckptfs convert [STORE] STEP NEW --map FILE";

	if (o->count != 2)
		return ckpt_usage("convert", usage, "wants one step and a name");
	if (!v->map && !is_by(v))
		return ckpt_usage("convert", usage, "wants a --map, an --exec or a --plugin");
	if (v->by.exec && v->by.plugin)
		return ckpt_usage("--plugin", "one after the other, by two steps", "stands beside --exec");
	if (v->by.timeout_ns && !is_by(v))
		return ckpt_usage("--timeout", "for example --exec 'python3 convert.py' --timeout 2h",
				  "stands without --exec and --plugin");
	return 0;
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
		       "of each rule.\n\n"
		       "COMMAND is a program of your own. It gets the arrays, as the rules left them, on its stdin in "
		       "the "
		       "form of a .safetensors file, and writes such a file to its stdout. It runs as you, and the new "
		       "step is made only if it ends with 0 and its output is whole. A plugin does the same without "
		       "parsing: <ckptfs_convert.h> says how.\n\n"
		       "Examples:\n"
		       "  ckptfs convert /ckpt 1000 1000-hf --map to-hf.json --format safetensors\n"
		       "  ckptfs convert s3://bucket/run42 latest serving --map rules.json --only 'model.**'\n"
		       "  ckptfs convert /ckpt 1000 1000-int8 --exec 'python3 quantise.py' --timeout 2h",
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

	if (argc == 3 && !strcmp(argv[1], HOST))
		return ckpt_convert_host(argv[2]);
	ckpt_array_export_begin(&v.of);
	ckpt_verb_parse(&syntax, argc, argv, &v, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	rc = check_words(&v, &o);
	if (!rc) {
		name = ckpt_operand_new_name(&o, 1, words.at[words.count - 1]);
		v.step.store = o.store;
		v.step.name = name;
		rc = v.map ? read_rules(&v) : 0;
	}
	if (!rc)
		rc = run(&v, &o);
	ckpt_array_export_done(&v.of);
	ckpt_array_rules_free(v.rules);
	ckpt_operand_done(&o);
	return rc;
}
