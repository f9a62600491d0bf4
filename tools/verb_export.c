// export: arrays of a step become files of a format, all of them or none.
#include "tools/verb.h"

#include "core/base/util.h"
#include "tools/array_export.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/stop.h"
#include "tools/whole_folder.h"

#include <sys/stat.h>

static const struct argp_option options[] = {
	CKPT_ARRAY_EXPORT_OPTIONS,
	CKPT_ARRAY_VIEW_OPTIONS,
	{0},
};

static int on_option(int key, char *arg, void *input)
{
	return ckpt_array_export_option(input, key, arg);
}

// Nobody else looks into the folder before it is whole; then its mode is that of mkdir(1).
static int open_to_others(int fd)
{
	mode_t mask = umask(0);

	umask(mask);
	return fchmod(fd, 0777 & ~mask) ? ckpt_fail_errno("OUT", NULL, -errno) : 0;
}

static int write_files(void *arg, int fd)
{
	int rc = ckpt_array_export_write(arg, fd);

	return rc ? rc : open_to_others(fd);
}

static int print(struct ckpt_array_export *x)
{
	if (ckpt_output.json)
		ckpt_output_json(ckpt_need(json_pack("{s:o, s:s, s:I, s:I, s:I, s:O}", "step", ckpt_json_text(x->word),
						     "format", x->of.format, "arrays", (json_int_t)x->of.array_count,
						     "files", (json_int_t)x->of.file_count, "bytes",
						     (json_int_t)x->of.bytes, "left_out", x->left_out)));
	return 0;
}

static int run(struct ckpt_array_export *x, const struct ckpt_operand *o, const char *dir)
{
	struct ckpt_listing l;
	int rc = ckpt_listing_open(o->store, CKPT_STORE_READ, &l);

	if (rc)
		return rc;
	rc = ckpt_array_export_read(x, &l, o, o->steps[0]);
	if (!rc)
		rc = ckpt_array_export_plan(x);
	if (!rc) {
		ckpt_stop_begin();
		ckpt_progress_start("exporting", x->of.bytes, 1);
		rc = ckpt_stop_end(ckpt_whole_folder(dir, write_files, x));
	}
	if (!rc)
		rc = print(x);
	ckpt_array_export_done(x);
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
		       "name makes a dictionary; raw: arrays.bin and arrays.json, which says where each array lies. On "
		       "the "
		       "disk of the store, if it can (xfs, btrfs), arrays that do not change share its blocks.\n\n"
		       "Examples:\n"
		       "  ckptfs export /data/run42 latest out --format safetensors --shard-bytes 5GB\n"
		       "  ckptfs export /ckpt 1000 out -f npz --only 'model.**' --dtype float32\n"
		       "  ckptfs export s3://bucket/run42 1000/model out -f orbax\n"
		       "  ckptfs export /ckpt 1000 tp3 -f safetensors --shard 3of8 --axis 1 --rename names.json",
		.options = options,
		.option = on_option,
		.operands_min = 2,
		.operands_max = 3,
	};
	struct ckpt_array_export x;
	CLEANUP_FREE char *dir = NULL;
	struct ckpt_words words;
	struct ckpt_operand o;
	int rc;

	ckpt_array_export_begin(&x);
	x.of.shares = true;
	ckpt_verb_parse(&syntax, argc, argv, &x, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	dir = ckpt_path_absolute(words.at[words.count - 1]); // as it was written: it is no STEP
	if (o.count != 2)
		rc = ckpt_usage("export", "usage: ckptfs export [STORE] STEP OUT --format FORMAT",
				"wants one step and a folder");
	else if (!x.of.format)
		rc = ckpt_usage("export", "safetensors, npy, npz, torch, dcp, zarr3, orbax or raw", "wants a --format");
	else
		rc = run(&x, &o, dir);
	ckpt_array_export_done(&x);
	ckpt_operand_done(&o);
	return rc;
}
