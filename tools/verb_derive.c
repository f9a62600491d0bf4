// derive: arrays of a step become a new step of the same store.
#include "tools/verb.h"

#include "core/array/write.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "tools/array_export.h"
#include "tools/derive_side.h"
#include "tools/new_step.h"
#include "tools/output.h"
#include "tools/progress.h"

#include <fcntl.h>

enum { KEY_FORCE = 0x200, KEY_MERGE };

static const struct argp_option options[] = {
	CKPT_ARRAY_EXPORT_OPTIONS,
	CKPT_ARRAY_VIEW_OPTIONS,
	{"merge", KEY_MERGE, "STEP", 0, "also the arrays of this step whose names the first one does not give", 0},
	{"force", KEY_FORCE, NULL, 0, "replace a step of this name; it goes to the trash in the same act", 0},
	{0},
};

struct derive {
	struct ckpt_array_export of;
	struct ckpt_new_step step;
	const char *merge; // the other step, or NULL
	struct ckpt_derive_side first, second;
	char *under; // what is written; "" or a folder that ends with "/"
};

static int on_option(int key, char *arg, void *input)
{
	struct derive *v = input;

	switch (key) {
	case KEY_FORCE:
		v->step.force = true;
		return 0;
	case KEY_MERGE:
		v->merge = arg;
		return 0;
	default:
		return ckpt_array_export_option(&v->of, key, arg);
	}
}

// --- Places -----------------------------------------------------------------------------------------------------------------

// The path of a file that stays is one of those that a writer of this format makes at the top (core/array/write.h).
static bool is_taken(const char *format, const char *path)
{
	if (!strcmp(format, "safetensors"))
		return !strncmp(path, "model", 5) && !strchr(path, '/');
	if (!strcmp(format, "npz"))
		return !strcmp(path, "model.npz");
	if (!strcmp(format, "torch"))
		return !strcmp(path, "model.pt") || !strncmp(path, "pytorch_model", 13);
	if (!strcmp(format, "dcp"))
		return !strcmp(path, ".metadata") || !strncmp(path, "__0_", 4);
	return strcmp(format, "npy") != 0; // zarr: the folder is a group of its own
}

static bool any_taken(const struct ckpt_derive_side *s, const char *format)
{
	for (size_t i = 0; i < s->whole.count; i++)
		if (!*s->under && is_taken(format, s->whole.files[i]))
			return true;
	return false;
}

static bool has_below(const struct ckpt_derive_side *s, const char *dir)
{
	size_t len = strlen(dir);

	for (size_t i = 0; i < s->whole.count; i++) {
		const char *path = s->whole.files[i];

		if (!*s->under && !strncmp(path, dir, len) && (path[len] == '/' || !path[len]))
			return true;
	}
	return false;
}

// A folder in which no file that stays is: "NAME/", "NAME-2/" ...
static char *free_folder(const struct derive *v, const char *name)
{
	char *dir = ckpt_text("%s", name);

	for (unsigned n = 2; has_below(&v->first, dir) || has_below(&v->second, dir); n++) {
		free(dir);
		dir = ckpt_text("%s-%u", name, n);
	}
	name = dir;
	dir = ckpt_text("%s/", name);
	free((char *)name);
	return dir;
}

static bool have_same_path(const struct ckpt_derive_side *a, const struct ckpt_derive_side *b)
{
	size_t i = 0, k = 0;

	while (i < a->whole.count && k < b->whole.count) {
		int order = strcmp(a->whole.files[i], b->whole.files[k]);

		if (!order)
			return true;
		i += order < 0;
		k += order > 0;
	}
	return false;
}

// Files of one name in both steps: those of the second are in a folder that is called like it. What is written is beside what stays, or in a folder.
static void find_places(struct derive *v)
{
	const char *leaf = v->merge && strrchr(v->merge, '/') ? strrchr(v->merge, '/') + 1 : v->merge;

	if (have_same_path(&v->first, &v->second)) {
		char *under = free_folder(v, *leaf ? leaf : "merged");

		free(v->second.under);
		v->second.under = under;
	}
	if (any_taken(&v->first, v->of.of.format) || any_taken(&v->second, v->of.of.format))
		v->under = free_folder(v, "derived");
}

// --- Formats ----------------------------------------------------------------------------------------------------------------

// The one format of the arrays that stay, or of those that do not. 0: there is no such array; -1: there are several formats.
static int one_format(const struct derive *v, bool stay, const char **found)
{
	const struct ckpt_derive_side *sides[] = {&v->first, &v->second};

	for (size_t k = 0; k < ARRAY_LEN(sides); k++) {
		const struct ckpt_catalog *c = sides[k]->arrays ? ckpt_step_arrays_catalog(sides[k]->arrays) : NULL;

		for (size_t i = 0; c && i < ckpt_catalog_count(c); i++) {
			struct ckpt_catalog_array a;

			ckpt_catalog_get(c, i, &a);
			if (stay ? !sides[k]->whole.stays[i] : sides[k]->skipped[i] || !a.dtype)
				continue;
			if (*found && strcmp(*found, a.format))
				return -1;
			*found = a.format;
		}
	}
	return *found != NULL;
}

static const char *written_format(const struct derive *v)
{
	const char *found = NULL;

	if (one_format(v, false, &found) > 0)
		for (size_t i = 0; ckpt_write_format(i); i++)
			if (!strcmp(ckpt_write_format(i), found))
				return ckpt_write_format(i);
	return "safetensors";
}

// NULL: there are several.
static const char *format_of(const struct derive *v)
{
	const char *found = v->of.of.array_count ? v->of.of.format : NULL;

	return one_format(v, true, &found) < 0 ? NULL : found;
}

// --- Filling ----------------------------------------------------------------------------------------------------------------

static int write_rest(struct derive *v, int dirfd)
{
	CLEANUP_FD int under = -1;
	int rc;

	if (!v->of.of.array_count || !v->under)
		return ckpt_array_export_write(&v->of, dirfd);
	v->under[strlen(v->under) - 1] = '\0';
	rc = ckpt_sys.mkdir(dirfd, v->under, 0777);
	under = rc ? rc : ckpt_sys.open(dirfd, v->under, O_RDONLY | O_DIRECTORY, 0);
	return under < 0 ? ckpt_fail_errno(v->under, NULL, under) : ckpt_array_export_write(&v->of, under);
}

static int fill(void *arg, int dirfd)
{
	struct derive *v = arg;
	int rc;

	ckpt_progress_start("deriving", v->of.of.bytes, 1);
	rc = write_rest(v, dirfd);
	ckpt_progress_stop();
	// Last: what stands for chunks is an empty file until the commit, which a kill may leave.
	if (!rc)
		rc = ckpt_derive_side_share(&v->first, dirfd);
	if (!rc)
		rc = ckpt_derive_side_share(&v->second, dirfd);
	return rc;
}

static int print(const struct derive *v)
{
	const struct ckpt_export *e = &v->of.of;
	const struct ckpt_derive_side *a = &v->first, *b = &v->second;

	if (ckpt_output.json)
		ckpt_output_json(ckpt_need(json_pack(
			"{s:o, s:s?, s:I, s:I, s:I, s:I, s:I, s:O}", "step", ckpt_json_text(v->step.name), "format",
			format_of(v), "arrays", (json_int_t)(e->array_count + a->array_count + b->array_count), "files",
			(json_int_t)((e->array_count ? e->file_count : 0) + a->whole.count + b->whole.count), "bytes",
			(json_int_t)(e->bytes + a->bytes + b->bytes), "shared_files",
			(json_int_t)(a->whole.count + b->whole.count - a->copied_count - b->copied_count),
			"shared_bytes", (json_int_t)(a->bytes + b->bytes - a->copied_bytes - b->copied_bytes),
			"left_out", v->of.left_out)));
	return 0;
}

static int make(struct derive *v)
{
	struct ckpt_new_step *n = &v->step;
	int rc;

	n->fill = fill;
	n->arg = v;
	rc = ckpt_new_step_run(n);
	return rc ? rc : print(v);
}

// --- The plan ---------------------------------------------------------------------------------------------------------------

static bool chooses_any(const struct ckpt_derive_side *s)
{
	for (size_t i = 0; i < ckpt_catalog_count(ckpt_step_arrays_catalog(s->arrays)); i++)
		if (s->chosen[i])
			return true;
	return false;
}

static int read_sides(struct derive *v, const struct ckpt_listing *l, const struct ckpt_operand *o)
{
	int rc = ckpt_derive_side_read(&v->first, l, o, o->steps[0]);

	if (rc)
		return rc;
	ckpt_array_export_take(&v->of, o->steps[0], v->first.arrays, NULL);
	ckpt_derive_side_choose(&v->first, &v->of.of, NULL);
	rc = ckpt_derive_side_find_whole(&v->first, &v->of.of, v->of.of.format);
	if (!rc && !chooses_any(&v->first))
		rc = ckpt_fail(v->first.word, "`ckptfs arrays STORE STEP` lists the arrays of a step",
			       "no array is chosen");
	if (rc || !v->merge)
		return rc;
	rc = ckpt_derive_side_read(&v->second, l, o, v->merge);
	if (!rc)
		ckpt_derive_side_choose(&v->second, &v->of.of, &v->first);
	return rc ? rc : ckpt_derive_side_find_whole(&v->second, &v->of.of, v->of.of.format);
}

// The faults of the first step count where the options choose what they are about.
static int plan(struct derive *v)
{
	int rc = 0;

	v->of.some_stay = v->first.array_count || v->second.array_count;
	if (!v->of.of.format)
		v->of.of.format = written_format(v);
	v->of.of.skip = v->first.skipped;
	if (v->merge) {
		rc = ckpt_array_export_choose(&v->of);
		ckpt_array_export_take(&v->of, v->merge, v->second.arrays, v->second.skipped);
	}
	if (!rc)
		rc = ckpt_array_export_plan(&v->of);
	if (!rc)
		find_places(v);
	return rc;
}

static int run(struct derive *v, const struct ckpt_operand *o)
{
	struct ckpt_listing l;
	int rc = ckpt_listing_open_beside(o->store, &l);

	if (rc)
		return rc;
	rc = read_sides(v, &l, o);
	if (!rc)
		rc = plan(v);
	if (!rc)
		rc = make(v);
	v->of.arrays = NULL; // the first side's
	ckpt_array_export_done(&v->of);
	ckpt_derive_side_done(&v->first);
	ckpt_derive_side_done(&v->second);
	free(v->under);
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
		       "A file of which every array is chosen, and none changes, costs no byte: the new step links it, "
		       "or "
		       "has the same chunks in packs that are on this node. Index files go with their shards, and a "
		       "DCP or zarr folder stays "
		       "whole. Other files do not go into the new step. Arrays that change are written beside these "
		       "files, or in the folder derived/ where they have the names. A disk that can "
		       "(xfs, btrfs) shares the blocks of arrays that do not change.\n\n"
		       "--merge adds each array of the other STEP whose name the first one does not give. So where "
		       "both "
		       "have an array, the first STEP wins. --only and --not choose arrays of the first STEP alone. "
		       "STEP/PATH limits either to the files below PATH. Files of one path in both stay apart: those "
		       "of "
		       "the other STEP are in a folder of its name.\n\n"
		       "A GLOB is over names: `*` stops at `.` and `/`, `**` does not; with a colon it is over "
		       "TREE:NAME.\n\n"
		       "Examples:\n"
		       "  ckptfs derive /data/run42 latest serving --only 'model.**' --dtype bfloat16\n"
		       "  ckptfs derive /ckpt 1000 1000-params --not 'optimizer.**' --shard-bytes 5GB\n"
		       "  ckptfs derive /ckpt 1000 tuned --only 'params.**' --merge finetuned\n"
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
	v.of.of.shares = true;
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
