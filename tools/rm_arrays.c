// Arrays are dropped per file. A file goes if all of its arrays do; one that has others is written again without them (safetensors, npz,
// torch). An index loses their names. An array of zarr goes with its folder; metadata above it that name it (drop_tree.c) are written again without it.
// .metadata of torch.distributed.checkpoint is written again; its .distcp files go if all of their pieces do, and stay as they are otherwise.
// All of this is one version (core/save/amend.h): until that is appended the new files have names that no version names. Before that the
// catalog of the version that is to be is compared with what it should have (rm_check.h).
//
// Refused, before anything is written: a format whose metadata cannot be written here as they were (torch without a zip, OCDBT ...).
#include "tools/rm_arrays.h"

#include "core/array/write.h"
#include "core/base/sys.h"
#include "core/base/texts.h"
#include "core/base/util.h"
#include "core/save/amend.h"
#include "core/save/amend_left.h"
#include "core/save/delete.h"
#include "core/save/pin.h"
#include "core/save/session.h"
#include "core/step/amending.h"
#include "core/step/attributes.h"
#include "core/view/array_row.h"
#include "core/view/drop.h"
#include "core/view/export.h"
#include "core/view/step_arrays.h"
#include "tools/act.h"
#include "tools/output.h"
#include "tools/rm_check.h"
#include "tools/stop.h"

#include <fcntl.h>
#include <stdio.h>

#define INDEX ".index.json"

enum how {
	REMOVED,
	SAFETENSORS,
	NPZ,
	TORCH,
	INDEXED,
	DCP,      // .metadata
	PIECES,   // of dcp: removed, or with others in it left as it is
	FOLDER,   // of an array of zarr: removed
	METADATA, // of folders
};

struct file {
	char *path;
	const char *format; // of its arrays
	size_t dropped, kept;
	uint64_t dropped_bytes;
	enum how how;
	char raw[CKPT_AMENDING_RAW_MAX]; // once it is written
};

struct dropping {
	const char *word, *prefix;
	struct ckpt_step *step;
	struct ckpt_manifest *m;
	struct ckpt_step_arrays *arrays;
	const struct ckpt_catalog *c;
	struct file *files;
	size_t count, cap;
	struct ckpt_texts paths; // of files, while they are found
	size_t dropped, kept;    // arrays
	bool keeps_pieces;       // files of dcp stay
	int dirfd;               // the session's directory
	char *why;               // a file cannot be written again
	struct ckpt_amend_change *changes;
	size_t change_count;
};

static bool drops(void *arg, const char *name)
{
	const struct dropping *d = arg;

	return !strncmp(name, d->prefix, strlen(d->prefix));
}

// --- The plan ---------------------------------------------------------------------------------------------------------------

static struct file *add_file(struct dropping *d, const char *path)
{
	if (ckpt_grow((void **)&d->files, &d->cap, d->count + 1, sizeof(*d->files)))
		ckpt_need(NULL);
	d->files[d->count] = (struct file){.path = ckpt_text("%s", path)};
	return &d->files[d->count++];
}

// While all files come from here, their numbers are those of their paths.
static struct file *find_file(struct dropping *d, const char *path)
{
	size_t i;

	if (ckpt_texts_number(&d->paths, path, &i))
		ckpt_need(NULL);
	return i < d->count ? &d->files[i] : add_file(d, path);
}

static bool is_file(const struct dropping *d, const char *path)
{
	struct ckpt_entry e;
	uint32_t index;

	if (ckpt_manifest_lookup(d->m, path, &index))
		return false;
	ckpt_manifest_entry(d->m, index, &e);
	return e.type == CKPT_ENTRY_FILE;
}

static int refuse(const struct dropping *d, const char *what, const char *format, const char *why)
{
	return ckpt_fail(d->word, "`ckptfs derive` makes a new step without them: --not GLOB", "%s is %s: %s", what,
			 format, why);
}

static void count_in(const struct dropping *d, struct file *f, const struct ckpt_catalog_array *a)
{
	bool dropped = drops((void *)d, a->name);

	f->format = a->format;
	f->dropped += dropped;
	f->kept += !dropped;
	if (dropped)
		f->dropped_bytes += ckpt_array_bytes(a);
}

static bool is_known(const char *format)
{
	return !strcmp(format, "safetensors") || !strcmp(format, "npy") || !strcmp(format, "npz") ||
	       !strcmp(format, "torch");
}

static int add_folder(struct dropping *d, const struct ckpt_catalog_array *a)
{
	struct file *f;

	if (strcmp(a->tree, ".") || !strcmp(a->name, "."))
		return refuse(d, a->name, a->format, "it is no folder of the step");
	f = find_file(d, a->name);
	f->format = a->format;
	f->dropped = 1;
	f->how = FOLDER;
	return 0;
}

// All files that have pieces of it, and .metadata.
static void add_pieces(struct dropping *d, size_t i, const struct ckpt_catalog_array *a)
{
	bool top = !strcmp(a->tree, ".");
	CLEANUP_FREE char *metadata = ckpt_text("%s%s.metadata", top ? "" : a->tree, top ? "" : "/");
	struct file *f = find_file(d, metadata);
	struct ckpt_piece p;

	f->how = DCP;
	count_in(d, f, a);
	for (size_t k = 0; k < a->pieces; k++) {
		ckpt_catalog_piece(d->c, i, k, &p);
		f = find_file(d, p.file);
		f->how = PIECES;
		count_in(d, f, a);
	}
	// The reader does not know all places of it.
	if (!drops(d, a->name) && a->why && !(ckpt_catalog_is_object(a) && a->pieces))
		d->keeps_pieces = true;
}

static int add_array(struct dropping *d, size_t i)
{
	CLEANUP_FREE char *index = NULL;
	struct ckpt_catalog_array a;
	struct ckpt_piece p;

	ckpt_catalog_get(d->c, i, &a);
	*(drops(d, a.name) ? &d->dropped : &d->kept) += 1;
	if (!strcmp(a.format, "zarr2") || !strcmp(a.format, "zarr3"))
		return drops(d, a.name) ? add_folder(d, &a) : 0;
	if (!strcmp(a.format, "dcp")) {
		add_pieces(d, i, &a);
		return 0;
	}
	if (!is_known(a.format))
		return drops(d, a.name) ? refuse(d, a.name, a.format, "its metadata cannot be rewritten here") : 0;
	if (a.pieces)
		ckpt_catalog_piece(d->c, i, 0, &p);
	else if (is_file(d, a.tree))
		p.file = a.tree;
	else
		return drops(d, a.name) ? refuse(d, a.name, a.format, "no file has a part of it") : 0;
	count_in(d, find_file(d, p.file), &a);
	index = ckpt_text("%s" INDEX, a.tree);
	if (is_file(d, index)) {
		struct file *f = find_file(d, index);

		count_in(d, f, &a);
		f->how = INDEXED;
	}
	return 0;
}

static void choose_how(struct file *f)
{
	if (f->how == FOLDER || f->how == METADATA || f->how == DCP || f->how == PIECES)
		return;
	if (!f->kept)
		f->how = REMOVED;
	else if (f->how != INDEXED) // of the known formats an npy has one array
		f->how = !strcmp(f->format, "safetensors") ? SAFETENSORS : !strcmp(f->format, "npz") ? NPZ : TORCH;
}

// --- Folders ----------------------------------------------------------------------------------------------------------------

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct file *)a)->path, ((const struct file *)b)->path);
}

static const struct file *find_planned(const struct dropping *d, const char *path)
{
	const struct file want = {.path = (char *)path};

	return d->count ? bsearch(&want, d->files, d->count, sizeof(want), by_path) : NULL;
}

// It is in a folder that goes, or is one.
static bool is_in_folder(void *arg, const char *path)
{
	CLEANUP_FREE char *above = ckpt_need(strdup(path));
	const struct file *f;
	char *slash;

	do {
		f = find_planned(arg, above);
		if (f && f->how == FOLDER)
			return true;
		slash = strrchr(above, '/');
		if (slash)
			*slash = '\0';
	} while (slash);
	return false;
}

static void add_metadata(struct dropping *d, const char *dir, const char *name)
{
	CLEANUP_FREE char *path = ckpt_text("%s%s%s", dir, *dir ? "/" : "", name);
	struct file *f;

	if (!is_file(d, path))
		return;
	f = add_file(d, path);
	f->format = "zarr";
	f->dropped = 1;
	f->how = METADATA;
}

static int add_process(void *arg, const char *path, uint64_t bytes __attribute__((unused)))
{
	add_metadata(arg, "", path);
	return 0;
}

static int add_metadata_of(struct dropping *d, const char *dir)
{
	static const char *const names[] = {".zmetadata", "zarr.json", "_METADATA", "_sharding",
					    "tensorstore_index.json"};
	CLEANUP_FREE char *processes = ckpt_text("%s%s%s", dir, *dir ? "/" : "", CKPT_ORBAX_FOLDER);
	const struct ckpt_catalog_files *files = ckpt_step_arrays_files(d->arrays);
	int rc;

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		add_metadata(d, dir, names[i]);
	rc = files->each(files->arg, processes, add_process, d);
	return rc == -ENOENT ? 0 : rc;
}

static bool is_above(const char *dir, const char *path)
{
	size_t len = strlen(dir);

	return !len || (!strncmp(path, dir, len) && path[len] == '/');
}

// The folders above each array. Those of the array before, in order, have been seen.
static int add_metadata_above(struct dropping *d, size_t folders)
{
	const char *before = NULL;
	int rc = 0;

	for (size_t i = 0; i < folders && !rc; i++) {
		CLEANUP_FREE char *dir = ckpt_need(strdup(d->files[i].path));
		const char *path = d->files[i].path;

		if (d->files[i].how != FOLDER)
			continue;
		while (*dir && !rc) {
			char *slash = strrchr(dir, '/');

			*(slash ? slash : dir) = '\0';
			if (before && is_above(dir, before))
				break;
			rc = add_metadata_of(d, dir);
		}
		before = path;
	}
	return rc;
}

// A folder in another one goes with that.
static int plan_folders(struct dropping *d)
{
	const char *above = NULL;
	size_t kept = 0;
	int rc;

	if (d->count)
		qsort(d->files, d->count, sizeof(*d->files), by_path);
	for (size_t i = 0; i < d->count; i++) {
		if (d->files[i].how == FOLDER && above && is_above(above, d->files[i].path)) {
			free(d->files[i].path);
			continue;
		}
		if (d->files[i].how == FOLDER)
			above = d->files[i].path;
		d->files[kept++] = d->files[i];
	}
	d->count = kept;
	rc = add_metadata_above(d, d->count);
	if (d->count)
		qsort(d->files, d->count, sizeof(*d->files), by_path);
	return rc ? ckpt_fail_errno(d->word, NULL, rc) : 0;
}

static int plan(struct dropping *d)
{
	size_t kept = 0;
	int rc = 0;

	for (size_t i = 0; i < ckpt_catalog_count(d->c) && !rc; i++)
		rc = add_array(d, i);
	if (!rc && !d->dropped)
		rc = ckpt_fail(d->word, "`ckptfs arrays STORE STEP` lists the arrays of a step",
			       "no array has a name that begins with %s", d->prefix);
	if (!rc && !d->kept)
		rc = ckpt_fail(d->word, "`ckptfs rm` removes a step", "all of its arrays have names that begin with %s",
			       d->prefix);
	if (rc)
		return rc;
	for (size_t i = 0; i < d->count; i++) {
		struct file f = d->files[i];

		if (f.dropped)
			choose_how(&f);
		if (f.dropped && !(f.how == PIECES && (f.kept || d->keeps_pieces)))
			d->files[kept++] = f;
		else
			free(f.path);
	}
	d->count = kept;
	return plan_folders(d);
}

// --- Writing ----------------------------------------------------------------------------------------------------------------

// The one file of a layout, with the name that it has here.
static int create(void *arg, const char *path __attribute__((unused)), uint64_t bytes __attribute__((unused)),
		  void **ret_file)
{
	*ret_file = arg;
	return 0;
}

static int write_at(void *arg __attribute__((unused)), void *file, const void *bytes, size_t len, uint64_t offset)
{
	ssize_t n = ckpt_sys.pwrite(*(int *)file, bytes, len, (off_t)offset);

	return n < 0 ? (int)n : 0;
}

static int close_file(void *arg __attribute__((unused)), void *file __attribute__((unused)),
		      bool whole __attribute__((unused)))
{
	return 0;
}

static int write_npz(struct dropping *d, const struct file *f, int fd)
{
	struct ckpt_write_target target = {.create = create, .write = write_at, .close = close_file, .arg = &fd};
	struct ckpt_export e = {.files = ckpt_step_arrays_files(d->arrays), .format = "npz", .stop = &ckpt_stopped};
	int rc = 0;

	for (size_t i = 0; i < ckpt_catalog_count(d->c) && !rc; i++) {
		struct ckpt_catalog_array a;
		struct ckpt_expr *expr;
		struct ckpt_piece p;

		ckpt_catalog_get(d->c, i, &a);
		if (strcmp(a.format, "npz") || drops(d, a.name))
			continue;
		if (a.pieces)
			ckpt_catalog_piece(d->c, i, 0, &p);
		if (strcmp(a.pieces ? p.file : a.tree, f->path))
			continue;
		rc = a.dtype && !a.why ? ckpt_expr_array(d->c, i, e.files, &expr) : -EBADMSG;
		if (!rc) {
			rc = ckpt_export_add(&e, a.name, expr);
			ckpt_expr_unref(expr);
		}
	}
	if (!rc)
		rc = ckpt_export_plan(&e);
	if (!rc)
		rc = ckpt_export_write(&e, &target);
	ckpt_export_done(&e);
	return rc;
}

static int write_bytes(struct dropping *d, const struct file *f, int fd, bool *ret_changed)
{
	const struct ckpt_catalog_files *files = ckpt_step_arrays_files(d->arrays);
	const struct ckpt_drop how = {f->how == METADATA ? is_in_folder : drops, d, &ckpt_stopped};
	struct ckpt_source from;
	int rc;

	if (f->how == NPZ)
		return write_npz(d, f, fd);
	rc = files->open(files->arg, f->path, &from);
	if (rc)
		return rc;
	if (f->how == METADATA)
		rc = ckpt_drop_folders(&how, f->path, &from, fd, ret_changed);
	else if (f->how == DCP)
		rc = ckpt_drop_dcp(&how, &from, fd);
	else if (f->how == TORCH)
		rc = ckpt_drop_torch(&how, &from, fd, &d->why);
	else if (f->how == INDEXED)
		rc = ckpt_drop_index(&how, &from, f->dropped_bytes, fd);
	else
		rc = ckpt_drop_safetensors(&how, &from, fd);
	files->close(files->arg, &from);
	return rc;
}

// *ret_changed false: it stays as it is.
static int write_file(struct dropping *d, struct file *f, bool *ret_changed)
{
	char raw[CKPT_AMENDING_RAW_MAX];
	CLEANUP_FD int fd = -1;
	int rc = ckpt_amend_left_name(raw);

	if (rc)
		return rc;
	fd = ckpt_sys.open(d->dirfd, raw, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0)
		return fd;
	memcpy(f->raw, raw, sizeof(f->raw));
	rc = ckpt_amending_mark(fd);
	if (!rc)
		rc = write_bytes(d, f, fd, ret_changed);
	if (!rc && !*ret_changed) {
		ckpt_sys.unlink(d->dirfd, raw, 0);
		*f->raw = '\0';
	}
	return rc;
}

static bool is_removed(const struct file *f)
{
	return f->how == REMOVED || f->how == FOLDER || f->how == PIECES;
}

static int write_files(struct dropping *d)
{
	int held;

	d->changes = ckpt_need(ckpt_calloc(d->count, sizeof(*d->changes)));
	d->dirfd = ckpt_session_open(d->step);
	if (d->dirfd < 0)
		return ckpt_fail_errno(
			d->word, d->dirfd == -ENOENT ? "`ckptfs warm` brings its files here first" : NULL, d->dirfd);
	held = ckpt_amend_left_hold(d->dirfd);
	if (held)
		return ckpt_fail_errno(d->word, NULL, held);
	for (size_t i = 0; i < d->count; i++) {
		struct file *f = &d->files[i];
		bool changed = true;
		struct ckpt_entry e;
		uint32_t index;
		int rc = ckpt_manifest_lookup(d->m, f->path, &index);

		if (!rc && !is_removed(f))
			rc = write_file(d, f, &changed);
		if (rc == -EINTR && ckpt_stopped)
			return 1;
		if (rc)
			return rc == -EBADMSG
				       ? refuse(d, f->path, f->format, d->why ?: "it has parts that cannot be read")
				       : ckpt_fail_errno(f->path, NULL, rc);
		if (!changed)
			continue;
		ckpt_manifest_entry(d->m, index, &e);
		ckpt_attributes_apply(d->step, d->m, &e);
		d->changes[d->change_count++] = (struct ckpt_amend_change){
			f->path, is_removed(f) ? NULL : f->raw, e.ino, e.bytes, e.mtime_s, e.mtime_ns};
	}
	return 0;
}

// --- The look at what it will be --------------------------------------------------------------------------------------------

static int changed_file(void *arg, const char *path, int *ret_fd)
{
	const struct dropping *d = arg;
	const struct file *f = find_planned(d, path);

	if (is_in_folder(arg, path) || (f && is_removed(f)))
		return -ENOENT;
	if (!f || !*f->raw)
		return 0;
	*ret_fd = ckpt_sys.open(d->dirfd, f->raw, O_RDONLY, 0);
	return *ret_fd < 0 ? *ret_fd : 1;
}

static int check_new(struct dropping *d, const char *path)
{
	const struct ckpt_step_changed changed = {changed_file, d};
	struct ckpt_step_arrays *now = NULL;
	CLEANUP_FREE char *what = NULL;
	int rc = ckpt_step_arrays_read_changed(d->step, d->m, path, &changed, &now);

	if (!rc)
		rc = ckpt_rm_check(d->c, ckpt_step_arrays_catalog(now), drops, d, &what);
	ckpt_step_arrays_free(now);
	if (rc == -EBADMSG && what)
		return ckpt_fail(d->word, "`ckptfs derive` makes a new step without them: --not GLOB",
				 "without these arrays %s would not be as it is now", what);
	return rc ? ckpt_fail_errno(d->word, NULL, rc) : 0;
}

// --- The version --------------------------------------------------------------------------------------------------------

static int change_at_rest(struct ckpt_step *step, const struct ckpt_verb_act *act)
{
	const struct dropping *d = act->arg;

	return ckpt_amend_change_all(step, d->changes, d->change_count);
}

static const char *hint(int error)
{
	return error == -ESTALE ? "it was changed meanwhile: try again" : ckpt_delete_hint(error);
}

static int put_version(struct dropping *d, const char *store)
{
	struct ckpt_verb_act act = {.verb = "change", .at_rest = change_at_rest, .hint = hint, .arg = d};
	json_t *list = ckpt_need(json_array());
	CLEANUP_FREE char *text = NULL;

	for (size_t i = 0; i < d->change_count; i++) {
		const struct ckpt_amend_change *c = &d->changes[i];

		ckpt_need(json_array_append_new(list, json_pack("{s:s, s:s?, s:I, s:I, s:I, s:I}", "path", c->path,
								"raw", c->raw, "ino", (json_int_t)c->ino, "bytes",
								(json_int_t)c->bytes, "mtime_s", (json_int_t)c->mtime_s,
								"mtime_ns", (json_int_t)c->mtime_ns))
				  ? NULL
				  : list);
	}
	text = ckpt_need(json_dumps(list, JSON_COMPACT));
	json_decref(list);
	act.to = text;
	return ckpt_act_on(store, d->word, d->step->session, &act);
}

// --- All of it ----------------------------------------------------------------------------------------------------------

static void remove_new_files(struct dropping *d)
{
	for (size_t i = 0; i < d->count; i++)
		if (*d->files[i].raw)
			ckpt_sys.unlink(d->dirfd, d->files[i].raw, 0);
}

static int wait_to_ask(struct dropping *d, int *ret_asks)
{
	*ret_asks = ckpt_amend_left_ask(d->step->store, d->dirfd);
	if (*ret_asks == -EINTR && ckpt_stopped)
		return 1;
	return *ret_asks < 0 ? ckpt_fail_errno(d->word, NULL, *ret_asks) : 0;
}

static int run(struct dropping *d, const struct ckpt_operand *o, const struct ckpt_listing *l)
{
	CLEANUP_FREE char *path = NULL;
	CLEANUP_FD int asks = -1;
	int rc = ckpt_listing_find(l, o, d->word, &d->step, &path);

	if (!rc)
		rc = ckpt_step_manifest(d->step, &d->m) ?: ckpt_step_arrays_read_files(d->step, d->m, path, &d->arrays);
	else
		return rc;
	if (rc)
		return ckpt_fail(d->word, "`ckptfs verify` says what is damaged", "its arrays cannot be read: %s",
				 strerror(-rc));
	if (ckpt_pin_is(d->step))
		return ckpt_fail(d->word, "`ckptfs unpin` it first", "it is pinned, so nothing of it is removed");
	d->c = ckpt_step_arrays_catalog(d->arrays);
	rc = plan(d);
	if (rc)
		return rc;
	ckpt_stop_begin();
	rc = write_files(d);
	if (!rc)
		rc = check_new(d, path);
	if (!rc)
		rc = wait_to_ask(d, &asks);
	rc = ckpt_stop_end(rc);
	if (rc && d->dirfd >= 0)
		remove_new_files(d);
	// From here on the new files are those of who makes the version, also where that is refused.
	return rc ? rc : put_version(d, o->store);
}

int ckpt_rm_arrays(const struct ckpt_operand *o, const char *word, const char *prefix)
{
	struct dropping d = {.word = word, .prefix = prefix, .dirfd = -1};
	struct ckpt_listing l;
	int rc;

	if (!*prefix)
		return ckpt_usage(word, "`ckptfs rm` removes a step", "no beginning of names is given");
	if (ckpt_listing_is_trash(word))
		return ckpt_usage(word, "`ckptfs undelete` it first", "in the trash, where nothing can be changed");
	rc = ckpt_listing_open_beside(o->store, &l);
	if (rc)
		return rc;
	rc = run(&d, o, &l);
	if (d.dirfd >= 0)
		ckpt_sys.close(d.dirfd);
	for (size_t i = 0; i < d.count; i++)
		free(d.files[i].path);
	free(d.files);
	ckpt_texts_done(&d.paths);
	free(d.changes);
	free(d.why);
	ckpt_step_arrays_free(d.arrays);
	ckpt_manifest_unref(d.m);
	ckpt_step_unref(d.step);
	ckpt_listing_close(&l);
	return rc;
}
