#include "core/view/array_dir.h"

#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/cold/file.h"
#include "core/step/attributes.h"
#include "core/view/array_index.h"
#include "core/view/npy_view.h"
#include "core/view/step_arrays.h"

#include <limits.h>
#include <stdio.h>

#define READ_BITS 0444u
#define SEARCH_BITS 0111u
#define UNKNOWN 0xffffu
#define NO_FOLDER UINT32_MAX

struct ckpt_array_dir {
	int refs; // atomic
	struct ckpt_step *step;
	struct ckpt_manifest *m;
	struct ckpt_version *version;
	struct ckpt_step_arrays *arrays;
	struct ckpt_array_tree *tree;
	uint16_t *
		modes; // of each array, and behind them of all: as the version has them; UNKNOWN: not computed yet; atomic
	struct ckpt_lock lock;
	struct ckpt_array_index *index; // guarded by lock; NULL: not computed yet
	uint64_t index_bytes;           // 0: the same; atomic
};

// --- Rights -----------------------------------------------------------------------------------------------------------

struct rights {
	struct ckpt_array_dir *s;
	const struct ckpt_summary *top;
	bool keeps;
	uint32_t folder; // of the file before, and
	unsigned folder_bits;
	uint32_t tree; // the entry that is that of the array without pieces before, and
	unsigned tree_bits;
};

// The bits of an entry that count, moved to where a file has the right to read.
static unsigned bits_of(const struct rights *r, uint32_t index, bool folder, uint32_t *ret_parent)
{
	unsigned all = folder ? SEARCH_BITS : READ_BITS, bits;
	struct ckpt_entry e;

	ckpt_manifest_entry(r->s->m, index, &e);
	ckpt_attributes_apply(r->s->step, r->s->m, &e);
	*ret_parent = e.parent;
	bits = (e.mode & all) << (folder ? 2 : 0);
	if (e.uid == r->top->dir_uid && e.gid == r->top->dir_gid)
		return bits;
	bits &= bits >> 3 & bits >> 6 & 04;
	return bits | bits << 3 | bits << 6;
}

static unsigned bits_above(struct rights *r, uint32_t folder)
{
	unsigned bits = READ_BITS;

	if (folder == r->folder)
		return r->folder_bits;
	r->folder = folder;
	while (folder) // the kernel asks for the step's own directory
		bits &= bits_of(r, folder, true, &folder);
	r->folder_bits = bits;
	return bits;
}

// A file that is not there makes nothing readable: reading says that it is missing.
static unsigned mode_of_file(struct rights *r, const char *path)
{
	uint32_t index, parent;
	unsigned bits;

	if (ckpt_manifest_lookup(r->s->m, path, &index))
		return READ_BITS;
	bits = bits_of(r, index, false, &parent);
	return bits & bits_above(r, parent);
}

static int count_file(void *arg, const char *path, uint64_t bytes)
{
	struct rights *r = arg;

	(void)bytes;
	r->tree_bits &= mode_of_file(r, path);
	return !r->tree_bits;
}

// Of an array without pieces, whose metadata is in its tree.
static unsigned mode_of_tree(struct rights *r, const char *tree)
{
	const struct ckpt_catalog_files *files = ckpt_array_dir_files(r->s);
	char path[PATH_MAX] = "";
	uint32_t index = 0;

	if (strcmp(tree, ".") != 0)
		snprintf(path, sizeof(path), "%s", tree);
	while (ckpt_manifest_lookup(r->s->m, path, &index) && *path) {
		char *slash = strrchr(path, '/');

		*(slash ? slash : path) = '\0';
	}
	if (r->tree == index)
		return r->tree_bits;
	r->tree = index;
	r->tree_bits = READ_BITS;
	if (files->each(files->arg, path, count_file, r))
		r->tree_bits = 0;
	return r->tree_bits;
}

static unsigned mode_of_array(struct rights *r, size_t array)
{
	const struct ckpt_catalog *c = ckpt_array_dir_catalog(r->s);
	struct ckpt_catalog_array a;
	const char *before = NULL;
	unsigned bits = READ_BITS;

	ckpt_catalog_get(c, array, &a);
	if (!a.pieces)
		return mode_of_tree(r, a.tree);
	for (size_t k = 0; k < a.pieces && bits; k++) {
		struct ckpt_piece p;

		ckpt_catalog_piece(c, array, k, &p);
		if (!before || strcmp(before, p.file) != 0)
			bits &= mode_of_file(r, p.file);
		before = p.file;
	}
	return bits;
}

// Kept for the version; what was changed since is looked at each time, and becomes a version soon.
static unsigned mode_kept(const struct ckpt_array_dir *s, size_t array)
{
	return ckpt_attributes_any(s->step) ? UNKNOWN : __atomic_load_n(&s->modes[array], __ATOMIC_RELAXED);
}

static void keep_mode(struct ckpt_array_dir *s, size_t array, unsigned bits)
{
	if (!ckpt_attributes_any(s->step))
		__atomic_store_n(&s->modes[array], (uint16_t)bits, __ATOMIC_RELAXED);
}

// Of what the index tells: names are in the files of the pieces, or in files that are beside them. That of each array is known then.
static unsigned mode_of_all(struct rights *r)
{
	const struct ckpt_catalog *c = ckpt_array_dir_catalog(r->s);
	unsigned bits = READ_BITS;

	for (size_t i = 0; i < ckpt_catalog_count(c) && (bits || r->keeps); i++) {
		unsigned one = mode_of_array(r, i);

		if (r->keeps)
			keep_mode(r->s, i, one);
		bits &= one;
	}
	for (size_t i = 0; i < ckpt_catalog_faults(c) && bits; i++) {
		struct ckpt_catalog_fault f;

		ckpt_catalog_fault(c, i, &f);
		bits &= mode_of_file(r, f.file);
	}
	return bits;
}

static unsigned mode_of(struct ckpt_array_dir *s, size_t array, const struct ckpt_summary *top)
{
	size_t count = ckpt_catalog_count(ckpt_array_dir_catalog(s));
	struct rights r = {
		.s = s, .top = top, .keeps = !ckpt_attributes_any(s->step), .folder = NO_FOLDER, .tree = NO_FOLDER};
	unsigned bits = r.keeps ? mode_kept(s, array) : UNKNOWN;

	if (bits != UNKNOWN)
		return bits;
	bits = array == count ? mode_of_all(&r) : mode_of_array(&r, array);
	if (r.keeps)
		keep_mode(s, array, bits);
	return bits;
}

// --- Entries ----------------------------------------------------------------------------------------------------------

static int make_index_locked(struct ckpt_array_dir *s)
{
	return s->index ? 0 : ckpt_array_index_new(ckpt_array_dir_catalog(s), &s->index);
}

// Without the lock once it is known: a reader of the index holds that for long.
static int index_bytes(struct ckpt_array_dir *s, uint64_t *ret_bytes)
{
	int rc;

	*ret_bytes = __atomic_load_n(&s->index_bytes, __ATOMIC_RELAXED);
	if (*ret_bytes)
		return 0;
	LOCK_SCOPE(&s->lock);
	rc = make_index_locked(s);
	if (!rc) {
		*ret_bytes = ckpt_array_index_bytes(s->index);
		__atomic_store_n(&s->index_bytes, *ret_bytes, __ATOMIC_RELAXED);
	}
	return rc;
}

// Of a folder and the index: the place of the mode of all.
static size_t array_of(const struct ckpt_array_dir *s, uint32_t at)
{
	return ckpt_array_tree_type(s->tree, at) == CKPT_ARRAY_TREE_ARRAY
		       ? ckpt_array_tree_array(s->tree, at)
		       : ckpt_catalog_count(ckpt_array_dir_catalog(s));
}

bool ckpt_array_dir_knows(const struct ckpt_array_dir *s, uint32_t at)
{
	return mode_kept(s, array_of(s, at)) != UNKNOWN &&
	       (ckpt_array_tree_type(s->tree, at) != CKPT_ARRAY_TREE_INDEX ||
		__atomic_load_n(&s->index_bytes, __ATOMIC_RELAXED));
}

int ckpt_array_dir_entry(struct ckpt_array_dir *s, uint32_t at, struct ckpt_entry *ret_entry)
{
	const struct ckpt_catalog *c = ckpt_array_dir_catalog(s);
	enum ckpt_array_tree_type type = ckpt_array_tree_type(s->tree, at);
	size_t array = array_of(s, at);
	struct ckpt_summary top = s->version->is;
	struct ckpt_catalog_array a;
	struct ckpt_entry e = {.nlink = 1};
	int rc = 0;

	ckpt_lock_take(&s->step->lock);
	ckpt_attributes_apply_top_locked(s->step, &top);
	ckpt_lock_drop(&s->step->lock);
	e.mode = mode_of(s, array, &top);
	if (type == CKPT_ARRAY_TREE_ARRAY) {
		ckpt_catalog_get(c, array, &a);
		(void)ckpt_npy_view_bytes(&a, &e.bytes);
	} else if (type == CKPT_ARRAY_TREE_INDEX) {
		rc = index_bytes(s, &e.bytes);
	} else {
		e.type = CKPT_ENTRY_DIR;
		e.nlink = 2;
		e.mode |= top.dir_mode & SEARCH_BITS;
	}
	if (type != CKPT_ARRAY_TREE_FOLDER)
		e.type = CKPT_ENTRY_FILE;
	e.uid = top.dir_uid;
	e.gid = top.dir_gid;
	e.mtime_s = s->version->is.committed_ns / 1000000000;
	e.mtime_ns = (uint32_t)(s->version->is.committed_ns % 1000000000);
	if (!rc)
		*ret_entry = e;
	return rc;
}

ssize_t ckpt_array_dir_read_index(struct ckpt_array_dir *s, void *buf, size_t len, uint64_t offset)
{
	LOCK_SCOPE(&s->lock);
	int rc = make_index_locked(s);

	return rc ? rc : ckpt_array_index_read(s->index, buf, len, offset);
}

// --- All --------------------------------------------------------------------------------------------------------------

// The version and its manifest: another version may come between the two.
static int take_version(struct ckpt_array_dir *s)
{
	for (;;) {
		struct ckpt_version *now;
		int rc;

		s->version = ckpt_step_version(s->step);
		rc = ckpt_step_manifest(s->step, &s->m);
		if (rc)
			return rc;
		now = ckpt_step_version(s->step);
		ckpt_version_unref(now);
		if (now == s->version)
			return 0;
		ckpt_version_unref(TAKE_PTR(s->version));
		ckpt_manifest_unref(TAKE_PTR(s->m));
	}
}

int ckpt_array_dir_new(struct ckpt_step *step, struct ckpt_array_dir **ret_set)
{
	struct ckpt_array_dir *s = ckpt_calloc(1, sizeof(*s));
	size_t modes;
	int rc;

	if (!s)
		return -ENOMEM;
	s->refs = 1;
	ckpt_lock_init(&s->lock, CKPT_LOCK_VIEW);
	s->step = ckpt_step_ref(step);
	rc = take_version(s);
	if (!rc)
		rc = ckpt_step_arrays_read(step, s->m, "", &s->arrays);
	if (!rc)
		rc = ckpt_array_tree_new(ckpt_array_dir_catalog(s), &s->tree);
	if (!rc) {
		modes = (ckpt_catalog_count(ckpt_array_dir_catalog(s)) + 1) * sizeof(*s->modes);
		s->modes = malloc(modes);
		if (s->modes)
			memset(s->modes, 0xff, modes);
		else
			rc = -ENOMEM;
	}
	if (rc)
		ckpt_array_dir_unref(s);
	else
		*ret_set = s;
	return rc;
}

struct ckpt_array_dir *ckpt_array_dir_ref(struct ckpt_array_dir *s)
{
	__atomic_add_fetch(&s->refs, 1, __ATOMIC_RELAXED);
	return s;
}

void ckpt_array_dir_unref(struct ckpt_array_dir *s)
{
	if (!s || __atomic_sub_fetch(&s->refs, 1, __ATOMIC_ACQ_REL))
		return;
	ckpt_array_index_free(s->index);
	ckpt_array_tree_free(s->tree);
	ckpt_step_arrays_free(s->arrays);
	if (s->m)
		ckpt_manifest_unref(s->m);
	ckpt_version_unref(s->version);
	ckpt_step_unref(s->step);
	ckpt_lock_done(&s->lock);
	free(s->modes);
	free(s);
}

size_t ckpt_array_dir_bytes(const struct ckpt_array_dir *s)
{
	const struct ckpt_catalog *c = ckpt_array_dir_catalog(s);

	// The numbers of the index, too, and the rights.
	return sizeof(*s) + ckpt_catalog_bytes(c) + ckpt_array_tree_bytes(s->tree) + ckpt_manifest_bytes(s->m) +
	       ckpt_catalog_count(c) * (sizeof(uint64_t) + sizeof(*s->modes));
}

struct ckpt_version *ckpt_array_dir_version(const struct ckpt_array_dir *s)
{
	return s->version;
}

bool ckpt_array_dir_is_packed(const struct ckpt_array_dir *s)
{
	CLEANUP_VERSION struct ckpt_version *now = ckpt_step_version(s->step);

	return s->version->is.packed || now->is.packed;
}

struct ckpt_step *ckpt_array_dir_step(const struct ckpt_array_dir *s)
{
	return s->step;
}

const struct ckpt_array_tree *ckpt_array_dir_tree(const struct ckpt_array_dir *s)
{
	return s->tree;
}

const struct ckpt_catalog *ckpt_array_dir_catalog(const struct ckpt_array_dir *s)
{
	return ckpt_step_arrays_catalog(s->arrays);
}

const struct ckpt_catalog_files *ckpt_array_dir_files(const struct ckpt_array_dir *s)
{
	return ckpt_step_arrays_files(s->arrays);
}

int ckpt_array_dir_open_file(const struct ckpt_array_dir *s, const char *path, struct ckpt_file **ret_file)
{
	uint32_t index;
	int rc = ckpt_manifest_lookup(s->m, path, &index);

	return rc ? -ENOENT : ckpt_file_open(s->step, s->m, index, ret_file);
}
