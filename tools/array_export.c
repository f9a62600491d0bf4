#include "tools/array_export.h"

#include "core/array/write.h"
#include "core/array/write_folder.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/stop.h"
#include "tools/units.h"
#include "tools/verb.h"

static void add_glob(struct ckpt_globs *g, const char *glob)
{
	if (ckpt_grow((void **)&g->at, &g->cap, g->count + 2, sizeof(*g->at)))
		ckpt_need(NULL);
	g->at[g->count++] = glob;
	g->at[g->count] = NULL;
}

static int take_format(struct ckpt_array_export *x, const char *name)
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
					 : ckpt_text("safetensors, npy, npz, torch, dcp, zarr3, orbax or raw");
	return ckpt_usage(name, hint, "no format that arrays can be written in");
}

static int take_renames(struct ckpt_array_export *x, const char *path)
{
	struct ckpt_view_why why = {0};
	json_error_t error;

	json_decref(x->renames);
	x->renames = json_load_file(path, 0, &error);
	if (!x->renames)
		return ckpt_usage(path, "a JSON file, for example {\"old.weight\": \"new.weight\"}", error.text);
	if (ckpt_choice_renames(x->renames, &why))
		return ckpt_usage(path, why.hint, why.why);
	x->how.renames = x->renames;
	return 0;
}

static int take_part(struct ckpt_array_export *x, const char *arg)
{
	return ckpt_view_shard_parse(arg, &x->how.shard, &x->how.shards)
		       ? 0
		       : ckpt_usage(arg, "IofN, I from 1 to N, for example 3of8", "no part of an array");
}

static int take_axis(const char *arg, unsigned *axis, bool *is_there)
{
	*is_there = true;
	return ckpt_view_axis_parse(arg, axis) ? 0 : ckpt_usage(arg, "a number from 0 on", "no axis");
}

int ckpt_array_export_option(struct ckpt_array_export *x, int key, char *arg)
{
	switch (key) {
	case CKPT_KEY_PART:
		return take_part(x, arg);
	case CKPT_KEY_AXIS:
		return take_axis(arg, &x->how.axis, &x->axis);
	case CKPT_KEY_UNROLL:
		return take_axis(arg, &x->how.unroll_axis, &x->how.unroll);
	case CKPT_KEY_RENAME:
		return take_renames(x, arg);
	case CKPT_KEY_PREFIX:
		x->how.prefix = arg;
		return 0;
	case CKPT_KEY_FORMAT:
		return take_format(x, arg);
	case CKPT_KEY_SHARD:
		return ckpt_size_parse(arg, &x->of.shard_bytes) || !x->of.shard_bytes
			       ? ckpt_usage(arg, "for example 5GB or 512MiB", "no size")
			       : 0;
	case CKPT_KEY_ONLY:
		add_glob(&x->only, arg);
		return 0;
	case CKPT_KEY_PARTIAL:
		x->of.partial = true;
		return 0;
	case CKPT_KEY_NOT:
		add_glob(&x->not, arg);
		return 0;
	default:
		x->of.dtype = ckpt_export_dtype(arg);
		return x->of.dtype ? 0 : ckpt_usage(arg, "for example bfloat16 or float32", "no floating type");
	}
}

// --- Reading and choosing ------------------------------------------------------------------------------------------------

static void left_out(void *arg, const struct ckpt_catalog_array *a, const char *why)
{
	struct ckpt_array_export *x = arg;

	ckpt_note("%s:%s is left out: %s", a->tree, a->name, why);
	json_array_append_new(x->left_out, ckpt_need(json_pack("{s:o, s:o, s:s}", "tree", ckpt_json_text(a->tree),
							       "name", ckpt_json_text(a->name), "why", why)));
}

void ckpt_array_export_begin(struct ckpt_array_export *x)
{
	*x = (struct ckpt_array_export){
		.of = {.stop = &ckpt_stopped, .progress = ckpt_progress_update, .left_out = left_out, .arg = x},
		.left_out = ckpt_need(json_array()),
	};
}

void ckpt_array_export_done(struct ckpt_array_export *x)
{
	ckpt_export_done(&x->of);
	ckpt_step_arrays_free(x->arrays);
	json_decref(x->left_out);
	json_decref(x->renames);
	free(x->only.at);
	free(x->not .at);
	*x = (struct ckpt_array_export){0};
}

void ckpt_array_export_take(struct ckpt_array_export *x, const char *word, struct ckpt_step_arrays *arrays,
			    const bool *skip)
{
	x->word = word;
	x->arrays = arrays;
	x->of.catalog = ckpt_step_arrays_catalog(arrays);
	x->of.files = ckpt_step_arrays_files(arrays);
	x->of.skip = skip;
	x->of.how = x->how.shards || x->how.unroll || x->how.renames || x->how.prefix ? &x->how : NULL;
	x->of.only = skip ? NULL : x->only.at;
	x->of.not = skip ? NULL : x->not .at;
}

int ckpt_array_export_read(struct ckpt_array_export *x, const struct ckpt_listing *l, const struct ckpt_operand *o,
			   const char *word)
{
	CLEANUP_FREE char *path = NULL;
	struct ckpt_manifest *m = NULL;
	struct ckpt_step *step = NULL;
	int rc = ckpt_listing_files(l, o, word, &step, &m, &path);

	x->word = word;
	if (rc)
		return rc;
	rc = ckpt_step_arrays_read(step, m, path, &x->arrays);
	if (!rc)
		ckpt_array_export_take(x, word, x->arrays, NULL);
	if (rc)
		rc = ckpt_fail(word, "`ckptfs ls STORE STEP` lists its files; `ckptfs verify` says what is damaged",
			       "its arrays cannot be read: %s", strerror(-rc));
	ckpt_manifest_unref(m);
	ckpt_step_unref(step);
	return rc;
}

static int fail(const struct ckpt_array_export *x, int rc)
{
	const char *why = *x->of.why ? x->of.why : strerror(-rc);

	if (rc == -EINTR && ckpt_stopped)
		return 1;
	return ckpt_fail(x->word,
			 rc == -EBADMSG
				 ? "`ckptfs check` says what is wrong; --not leaves an array out, --partial a file"
			 : rc == -ENOTSUP ? "another --format may have it; --not leaves an array out"
					  : NULL,
			 "%s", why);
}

static void note(void *arg, const char *text)
{
	const struct ckpt_array_export *x = arg;

	ckpt_note("%s: %s", x->rules_word, text);
}

static int add_all(struct ckpt_array_export *x, const struct ckpt_array_list *list)
{
	int rc = list->count ? 0 : -ENOENT;

	for (size_t i = 0; i < list->count && !rc; i++)
		rc = ckpt_export_add(&x->of, list->at[i].name, list->at[i].expr);
	return rc;
}

// The arrays that the rules make of those that are chosen. *ret_status: the exit status of a failure, which was said.
static int apply_rules(struct ckpt_array_export *x, int *ret_status)
{
	struct ckpt_array_rules_telling telling = {.note = note, .arg = x};
	struct ckpt_array_list list = {0};
	int rc = ckpt_export_list(&x->of, &list);

	if (!rc) {
		rc = ckpt_array_rules_apply(x->rules, &list, &telling);
		if (rc == -EINVAL)
			*ret_status = ckpt_fail(x->rules_word, "`ckptfs arrays STORE STEP` lists names and shapes",
						"%s", telling.why);
	}
	if (!rc && x->of.dtype)
		rc = ckpt_array_list_cast(&list, x->of.dtype);
	if (!rc)
		rc = add_all(x, &list);
	x->of.catalog = NULL; // the plan takes these, and no others
	ckpt_array_list_done(&list);
	return rc;
}

static void tell_faults(struct ckpt_array_export *x)
{
	for (size_t i = 0; i < ckpt_catalog_faults(x->of.catalog); i++) {
		struct ckpt_catalog_fault f;

		ckpt_catalog_fault(x->of.catalog, i, &f);
		ckpt_note("%s: %s: %s", f.file, f.field, f.reason);
		if (x->of.partial)
			json_array_append_new(x->left_out,
					      ckpt_need(json_pack("{s:o, s:n, s:o}", "tree", ckpt_json_text(f.file),
								  "name", "why", ckpt_json_text(f.reason))));
	}
}

int ckpt_array_export_choose(struct ckpt_array_export *x)
{
	int rc;

	tell_faults(x);
	rc = ckpt_export_choose(&x->of);
	return rc ? fail(x, rc) : 0;
}

int ckpt_array_export_plan(struct ckpt_array_export *x)
{
	int rc, status = 0;

	if (x->axis && !x->how.shards)
		return ckpt_usage("--axis", "for example --shard 3of8 --axis 0", "stands without --shard");
	tell_faults(x);
	if (!x->of.format)
		x->of.format = ckpt_export_format_of(&x->of);
	rc = x->rules ? apply_rules(x, &status) : 0;
	if (status)
		return status;
	if (!rc)
		rc = ckpt_export_plan(&x->of);
	if (rc == -ENOENT && x->some_stay)
		return 0;
	if (rc == -ENOENT)
		return ckpt_fail(x->word, "`ckptfs arrays STORE STEP` lists the arrays of a step",
				 "no array is chosen");
	return rc ? fail(x, rc) : 0;
}

int ckpt_array_export_write(struct ckpt_array_export *x, int dirfd)
{
	struct ckpt_write_target target = ckpt_write_folder(&dirfd);
	char need[CKPT_SIZE_MAX], has[CKPT_SIZE_MAX];
	uint64_t room, all;
	int rc;

	if (!x->of.array_count)
		return 0;
	rc = ckpt_sys.room(dirfd, &room, &all);
	if (!rc && x->of.bytes > room)
		return ckpt_fail(x->word, "--only and --not choose arrays", "the files take %s, and the disk has %s",
				 ckpt_size_text(x->of.bytes, need), ckpt_size_text(room, has));
	rc = ckpt_export_write(&x->of, &target);
	return rc ? fail(x, rc) : 0;
}
