// export: arrays of a step become files of a format, all of them or none.
#include "tools/verb.h"

#include "core/array/write_folder.h"
#include "core/array/write.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/view/export.h"
#include "core/view/step_arrays.h"
#include "tools/listing.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/stop.h"
#include "tools/units.h"
#include "tools/whole_folder.h"

enum { KEY_FORMAT = 'f', KEY_SHARD = 0x100, KEY_ONLY, KEY_NOT, KEY_DTYPE };

static const struct argp_option options[] = {
	{"format", KEY_FORMAT, "FORMAT", 0, "safetensors, npy, npz, torch, dcp, zarr3 or orbax", 0},
	{"shard-bytes", KEY_SHARD, "SIZE", 0,
	 "at most so much of arrays in a file: shards with an index, or chunks of zarr3 and orbax. A larger array is "
	 "alone",
	 0},
	{"only", KEY_ONLY, "GLOB", 0, "only arrays whose names match; may be repeated", 0},
	{"not", KEY_NOT, "GLOB", 0, "no array whose name matches; may be repeated", 0},
	{"dtype", KEY_DTYPE, "TYPE", 0,
	 "floating arrays as float64, float32, float16, bfloat16, float8_e4m3fn, float8_e5m2 or their fnuz forms", 0},
	{0},
};

struct globs {
	const char **at; // behind the last one: NULL
	size_t count, cap;
};

struct export
{
	struct ckpt_export of;
	struct globs only, not ;
	const char *word; // the step, as the user called it
	json_t *left_out;
};

static void add_glob(struct globs *g, const char *glob)
{
	if (ckpt_grow((void **)&g->at, &g->cap, g->count + 2, sizeof(*g->at)))
		ckpt_need(NULL);
	g->at[g->count++] = glob;
	g->at[g->count] = NULL;
}

static int take_format(struct export *x, const char *name)
{
	const char *names[16] = {NULL};
	CLEANUP_FREE char *hint = NULL;

	for (size_t i = 0; ckpt_write_format(i) && i + 1 < ARRAY_LEN(names); i++) {
		names[i] = ckpt_write_format(i);
		if (!strcmp(names[i], name))
			x->of.format = names[i];
	}
	if (x->of.format)
		return 0;
	hint = ckpt_nearest(name, names) ? ckpt_text("did you mean %s?", ckpt_nearest(name, names))
					 : ckpt_text("safetensors, npy, npz, torch, dcp, zarr3 or orbax");
	return ckpt_usage(name, hint, "no format that arrays can be written in");
}

static int on_option(int key, char *arg, void *input)
{
	struct export *x = input;

	switch (key) {
	case KEY_FORMAT:
		return take_format(x, arg);
	case KEY_SHARD:
		return ckpt_size_parse(arg, &x->of.shard_bytes) || !x->of.shard_bytes
			       ? ckpt_usage(arg, "for example 5GB or 512MiB", "no size")
			       : 0;
	case KEY_ONLY:
		add_glob(&x->only, arg);
		return 0;
	case KEY_NOT:
		add_glob(&x->not, arg);
		return 0;
	default:
		x->of.dtype = ckpt_export_dtype(arg);
		return x->of.dtype ? 0 : ckpt_usage(arg, "for example bfloat16 or float32", "no floating type");
	}
}

// --- Writing ----------------------------------------------------------------------------------------------------------------

static void left_out(void *arg, const struct ckpt_catalog_array *a, const char *why)
{
	struct export *x = arg;

	ckpt_note("%s:%s is left out: %s", a->tree, a->name, why);
	json_array_append_new(x->left_out, ckpt_need(json_pack("{s:o, s:o, s:s}", "tree", ckpt_json_text(a->tree),
							       "name", ckpt_json_text(a->name), "why", why)));
}

static int fail(const struct export *x, int rc)
{
	const char *why = *x->of.why ? x->of.why : strerror(-rc);

	if (rc == -EINTR && ckpt_stopped)
		return 1;
	return ckpt_fail(x->word,
			 rc == -EBADMSG ? "`ckptfs verify` says what is damaged; --not leaves an array out" : NULL,
			 "%s", why);
}

// Until it is whole nobody else looks into the folder; then its mode is that of mkdir(1).
static int open_to_others(int fd)
{
	mode_t mask = umask(0);

	umask(mask);
	return fchmod(fd, 0777 & ~mask) ? ckpt_fail_errno("OUT", NULL, -errno) : 0;
}

static int write_files(void *arg, int fd)
{
	struct export *x = arg;
	struct ckpt_write_target target = ckpt_write_folder(&fd);
	char need[CKPT_SIZE_MAX], has[CKPT_SIZE_MAX];
	uint64_t room, all;
	int rc = ckpt_sys.room(fd, &room, &all);

	if (!rc && x->of.bytes > room)
		return ckpt_fail(x->word, "--only and --not choose arrays", "the files take %s, and the disk has %s",
				 ckpt_size_text(x->of.bytes, need), ckpt_size_text(room, has));
	rc = ckpt_export_write(&x->of, &target);
	return rc ? fail(x, rc) : open_to_others(fd);
}

static int print(struct export *x)
{
	if (ckpt_output.json)
		ckpt_output_json(ckpt_need(json_pack("{s:o, s:s, s:I, s:I, s:I, s:O}", "step", ckpt_json_text(x->word),
						     "format", x->of.format, "arrays", (json_int_t)x->of.array_count,
						     "files", (json_int_t)x->of.file_count, "bytes",
						     (json_int_t)x->of.bytes, "left_out", x->left_out)));
	return 0;
}

static int export_arrays(struct export *x, const struct ckpt_step_arrays *arrays, const char *dir)
{
	int rc;

	x->of.catalog = ckpt_step_arrays_catalog(arrays);
	x->of.files = ckpt_step_arrays_files(arrays);
	for (size_t i = 0; i < ckpt_catalog_faults(x->of.catalog); i++) {
		struct ckpt_catalog_fault f;

		ckpt_catalog_fault(x->of.catalog, i, &f);
		ckpt_note("%s: %s: %s", f.file, f.field, f.reason);
	}
	rc = ckpt_export_plan(&x->of);
	if (rc == -ENOENT)
		return ckpt_fail(x->word, "`ckptfs arrays STORE STEP` lists the arrays of a step",
				 "no array to export");
	if (rc)
		return fail(x, rc);
	ckpt_stop_begin();
	ckpt_progress_start("exporting", x->of.bytes, 1);
	rc = ckpt_stop_end(ckpt_whole_folder(dir, write_files, x));
	return rc ? rc : print(x);
}

static int run(struct export *x, const struct ckpt_operand *o, const char *dir)
{
	CLEANUP_FREE char *path = NULL;
	struct ckpt_step_arrays *arrays = NULL;
	struct ckpt_manifest *m = NULL;
	struct ckpt_step *step = NULL;
	struct ckpt_listing l;
	int rc = ckpt_listing_open(o->store, CKPT_STORE_READ, &l);

	if (rc)
		return rc;
	x->word = o->steps[0];
	rc = ckpt_listing_files(&l, o, x->word, &step, &m, &path);
	if (!rc) {
		rc = ckpt_step_arrays_read(step, m, path, &arrays);
		if (rc)
			rc = ckpt_fail(x->word,
				       "`ckptfs ls STORE STEP` lists its files; `ckptfs verify` says what is damaged",
				       "its arrays cannot be read: %s", strerror(-rc));
	}
	if (!rc)
		rc = export_arrays(x, arrays, dir);
	ckpt_export_done(&x->of);
	ckpt_step_arrays_free(arrays);
	ckpt_manifest_unref(m);
	ckpt_step_unref(step);
	ckpt_listing_close(&l);
	return rc;
}

int ckpt_verb_export(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] STEP[/PATH] OUT",
		.doc = "Writes the arrays of a step, of any format, as files of another one, into a folder that is "
		       "absent or "
		       "empty: all of them, or nothing. Memory stays below 256 MiB for any size.\v"
		       "A GLOB is over names: `*` stops at `.` and `/`, `**` does not; with a colon it is over "
		       "TREE:NAME. A "
		       "name is TREE:NAME where several arrays have it. Objects that are no arrays are left out, and "
		       "named.\n\n"
		       "Files: model.safetensors; NAME.npy; model.npz; model.pt; .metadata and .distcp of "
		       "torch.distributed.checkpoint; a group of zarr 3; what orbax-checkpoint restores, where a `.` "
		       "in a "
		       "name makes a dictionary.\n\n"
		       "Examples:\n"
		       "  ckptfs export /data/run42 latest out --format safetensors --shard-bytes 5GB\n"
		       "  ckptfs export /ckpt 1000 out -f npz --only 'model.**' --dtype float32\n"
		       "  ckptfs export s3://bucket/run42 1000/model out -f orbax",
		.options = options,
		.option = on_option,
		.operands_min = 2,
		.operands_max = 3,
	};
	struct export x = {.of = {.stop = &ckpt_stopped, .progress = ckpt_progress_update, .left_out = left_out}};
	CLEANUP_FREE char *dir = NULL;
	struct ckpt_words words;
	struct ckpt_operand o;
	int rc;

	x.of.arg = &x;
	x.left_out = ckpt_need(json_array());
	ckpt_verb_parse(&syntax, argc, argv, &x, &words);
	x.of.only = x.only.at;
	x.of.not = x.not .at;
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	dir = ckpt_path_absolute(words.at[words.count - 1]); // as it was written: it is no STEP
	if (o.count != 2)
		rc = ckpt_usage("export", "usage: ckptfs export [STORE] STEP OUT --format FORMAT",
				"wants one step and a folder");
	else if (!x.of.format)
		rc = ckpt_usage("export", "safetensors, npy, npz, torch, dcp, zarr3 or orbax", "wants a --format");
	else
		rc = run(&x, &o, dir);
	ckpt_operand_done(&o);
	json_decref(x.left_out);
	free(x.only.at);
	free(x.not .at);
	return rc;
}
