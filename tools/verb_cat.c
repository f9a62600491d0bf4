#include "tools/verb.h"

#include "core/base/util.h"
#include "core/cold/file.h"
#include "core/view/array_index.h"
#include "core/view/array_name.h"
#include "core/view/array_view.h"
#include "core/view/npy_view.h"
#include "core/view/step_arrays.h"
#include "tools/listing.h"
#include "tools/output.h"

#include <fcntl.h>
#include <sys/sendfile.h>

#define COPY_BYTES (1u << 20)

// 1: a reader that has gone, which is no failure to speak of.
static int write_out(const char *data, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = write(STDOUT_FILENO, data + done, len - done);

		if (n < 0)
			return errno == EPIPE ? 1 : ckpt_fail_errno("standard output", NULL, errno);
		done += (size_t)n;
	}
	return 0;
}

static int fail_read(const char *what, int error)
{
	return ckpt_fail(what, "`ckptfs verify` says what is damaged", "cannot be read: %s", strerror(-error));
}

static int copy_from(struct ckpt_file *f, uint64_t at, const char *what)
{
	CLEANUP_FREE char *buf = ckpt_need(malloc(COPY_BYTES));
	uint64_t bytes = ckpt_file_bytes(f);
	int rc = 0;

	while (at < bytes && !rc) {
		ssize_t n = ckpt_file_read(f, buf, COPY_BYTES, at);

		rc = n < 0 ? fail_read(what, (int)n) : write_out(buf, (size_t)n);
		at += (uint64_t)MAX(n, (ssize_t)0);
	}
	return rc;
}

// By the kernel where there is a raw file and stdout takes it, else by hand.
static int copy_to_stdout(struct ckpt_file *f, const char *what)
{
	off_t at = 0;
	ssize_t n = -1;

	errno = EINVAL;
	if (ckpt_file_fd(f) >= 0)
		while ((n = sendfile(STDOUT_FILENO, ckpt_file_fd(f), &at, 64 * COPY_BYTES)) > 0)
			;
	if (n < 0 && (errno == EINVAL || errno == ENOSYS))
		return copy_from(f, (uint64_t)at, what);
	if (n < 0 && errno == EPIPE)
		return 1;
	return n < 0 ? ckpt_fail_errno(what, NULL, errno) : 0;
}

static int cat_entry(struct ckpt_step *step, struct ckpt_manifest *m, const char *path, const char *what)
{
	CLEANUP_FREE char *hint = NULL;
	struct ckpt_file *f;
	struct ckpt_entry e;
	uint32_t index;
	int rc = ckpt_manifest_lookup(m, path, &index);

	if (rc)
		return ckpt_fail_errno(what, "`ckptfs ls STORE STEP` lists its files", rc);
	ckpt_manifest_entry(m, index, &e);
	if (e.type == CKPT_ENTRY_DIR)
		return ckpt_fail(what, "`ckptfs ls STORE STEP/PATH` lists it", "is a directory");
	if (e.type == CKPT_ENTRY_SYMLINK) {
		hint = ckpt_text("it leads to %s", e.target);
		return ckpt_fail(what, hint, "is a symbolic link");
	}
	if (!e.bytes)
		return 0;
	rc = ckpt_file_open(step, m, index, &f);
	if (rc)
		return fail_read(what, rc);
	rc = copy_to_stdout(f, what);
	ckpt_file_close(f);
	return rc;
}

// --- Arrays -------------------------------------------------------------------------------------------------------------

#define ARRAYS ".arrays"
#define VIEWS ".views"

// A file that is made of a catalog: one of the three.
struct made {
	struct ckpt_npy_view *npy;
	struct ckpt_array_index *index;
	struct ckpt_joined_view *joined;
};

static void made_done(struct made *f)
{
	ckpt_npy_view_close(f->npy);
	ckpt_array_index_free(f->index);
	ckpt_joined_view_close(f->joined);
}

// 0; -errno.
static int open_array(const struct ckpt_step_arrays *arrays, const char *path, struct made *ret)
{
	const struct ckpt_catalog *c = ckpt_step_arrays_catalog(arrays);
	size_t i;
	int rc;

	if (!strcmp(path, CKPT_ARRAY_INDEX))
		return ckpt_array_index_new(c, &ret->index);
	rc = ckpt_array_find(c, path, &i);
	return rc ? rc : ckpt_npy_view_open(c, i, ckpt_step_arrays_files(arrays), &ret->npy);
}

static int copy_made(const struct made *f, const char *what)
{
	CLEANUP_FREE char *buf = ckpt_need(malloc(COPY_BYTES));
	uint64_t at = 0;

	for (;;) {
		ssize_t n = f->npy     ? ckpt_npy_view_read(f->npy, buf, COPY_BYTES, at)
			    : f->index ? ckpt_array_index_read(f->index, buf, COPY_BYTES, at)
				       : ckpt_joined_view_read(f->joined, buf, COPY_BYTES, at);
		int rc;

		if (n <= 0)
			return n ? fail_read(what, (int)n) : 0;
		rc = write_out(buf, (size_t)n);
		if (rc)
			return rc;
		at += (uint64_t)n;
	}
}

static int cat_array(const struct ckpt_step_arrays *arrays, const char *path, const char *what)
{
	struct made f = {0};
	int rc = open_array(arrays, path, &f);

	rc = rc ? ckpt_fail(what, "`ckptfs arrays STORE STEP` lists the arrays of a step", "%s",
			    rc == -ENOENT ? "no array has this path" : strerror(-rc))
		: copy_made(&f, what);
	made_done(&f);
	return rc;
}

// An exit status, said; 0 with the file.
static int open_in_view(const struct ckpt_step_arrays *arrays, struct ckpt_array_view *view, const char *path,
			const char *what, struct made *ret)
{
	const struct ckpt_catalog_files *files = ckpt_step_arrays_files(arrays);
	struct ckpt_array_tree *tree = ckpt_array_view_take_tree(view);
	const struct ckpt_joined_plan *joined;
	const struct ckpt_view_why *why;
	uint32_t at;
	int rc = ckpt_array_tree_find(tree, path, &at);

	joined = ckpt_array_view_joined(view, &why);
	if (rc && !joined && !strcmp(path, CKPT_JOINED_NAME))
		rc = ckpt_fail(what, why->hint, "the view has no such file: %s", why->why);
	else if (rc)
		rc = ckpt_fail(what, "in a view an array is NAME.npy, or TREE%3ANAME.npy where several have the name",
			       "no array of the view has this path");
	else if (ckpt_array_tree_type(tree, at) == CKPT_ARRAY_TREE_FOLDER)
		rc = ckpt_fail(what, "add the path of a file in it", "is a directory");
	else {
		rc = ckpt_array_tree_type(tree, at) == CKPT_ARRAY_TREE_ALL
			     ? ckpt_joined_view_open(joined, files, &ret->joined)
			     : ckpt_npy_view_open_chosen(ckpt_array_view_choice(view), ckpt_array_tree_array(tree, at),
							 files, &ret->npy);
		rc = rc ? fail_read(what, rc) : 0;
	}
	ckpt_array_tree_free(tree);
	return rc;
}

// path: NAME-OF-VIEW/FILE.
static int cat_view(const struct ckpt_step_arrays *arrays, const char *path, const char *what)
{
	CLEANUP_FREE char *name = ckpt_need(strndup(path, strcspn(path, "/")));
	struct ckpt_array_view *view = NULL;
	struct ckpt_view_why why = {0};
	struct made f = {0};
	int rc = *name ? ckpt_array_view_new(ckpt_step_arrays_catalog(arrays), ckpt_step_arrays_files(arrays), name,
					     &view, &why)
		       : 0;

	if (!*name)
		return ckpt_fail(what, "add the name of a view and a file in it, as in only=**/model.safetensors",
				 "is a directory");
	if (rc)
		return *why.why ? ckpt_fail(what, why.hint, "no view has this name: %s", why.why) : fail_read(what, rc);
	path += strlen(name);
	rc = open_in_view(arrays, view, path + (*path == '/'), what, &f);
	if (!rc)
		rc = copy_made(&f, what);
	made_done(&f);
	ckpt_array_view_free(view);
	return rc;
}

// The path of a file below this folder of virtual files; NULL: another path, or the step has an entry of the name itself.
static const char *path_below(const struct ckpt_manifest *m, const char *path, const char *folder)
{
	size_t len = strlen(folder);
	uint32_t index;

	if (strncmp(path, folder, len) || (path[len] && path[len] != '/') || !ckpt_manifest_lookup(m, folder, &index))
		return NULL;
	return path + len + (path[len] == '/');
}

static int cat_path(struct ckpt_step *step, struct ckpt_manifest *m, const char *path, const char *what)
{
	const char *array = path_below(m, path, ARRAYS), *view = path_below(m, path, VIEWS);
	struct ckpt_step_arrays *arrays;
	int rc;

	if (!array && !view)
		return cat_entry(step, m, path, what);
	rc = ckpt_step_arrays_read(step, m, "", &arrays);
	if (rc)
		return fail_read(what, rc);
	rc = array ? cat_array(arrays, array, what) : cat_view(arrays, view, what);
	ckpt_step_arrays_free(arrays);
	return rc;
}

int ckpt_verb_cat(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] STEP PATH",
		.doc = "Writes the bytes of a file of a step, or of a version of it, to stdout.\v"
		       "Examples:\n"
		       "  ckptfs cat /data/run42 latest config.json\n"
		       "  ckptfs cat /data/run42 1000@-1 config.json\n"
		       "  ckptfs cat /ckpt/1000/model.safetensors > model.safetensors\n"
		       "  ckptfs cat /data/run42 1000 .arrays/model.norm.weight.npy > norm.npy\n"
		       "  ckptfs cat /data/run42 1000 .views/dtype=bf16/model.safetensors > small.safetensors\n\n"
		       "`.arrays/NAME.npy` is an array of any format as a file of NumPy, and `.arrays/TREE/NAME.npy` "
		       "one whose name is not unique; "
		       "`.arrays/index.json` has what `ckptfs arrays` says, as JSON. In a name `/` makes a folder, "
		       "and other bytes "
		       "outside [A-Za-z0-9._-] are %XX. `.views/NAME/FILE` is a file of a view, as in a mount: "
		       "ckptfs(7).",
		.operands_min = 1,
		.operands_max = 3,
		.no_json = true,
	};
	CLEANUP_FREE char *path = NULL, *word = NULL;
	struct ckpt_listing l;
	struct ckpt_operand o;
	struct ckpt_words words;
	struct ckpt_manifest *m = NULL;
	struct ckpt_step *step = NULL;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, NULL, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	if (!o.count || o.count > 2) {
		ckpt_operand_done(&o);
		return ckpt_usage("cat", "usage: ckptfs cat [STORE] STEP PATH", "wants a step and a path in it");
	}
	word = o.count == 2 ? ckpt_text("%s/%s", o.steps[0], o.steps[1]) : ckpt_text("%s", o.steps[0]);
	rc = ckpt_listing_open(o.store, CKPT_STORE_READ, &l);
	if (!rc) {
		rc = ckpt_listing_files(&l, &o, word, &step, &m, &path);
		if (!rc)
			rc = cat_path(step, m, path, word);
		ckpt_manifest_unref(m);
		ckpt_step_unref(step);
		ckpt_listing_close(&l);
	}
	ckpt_operand_done(&o);
	return rc;
}
