#include "core/view/array_dir.h"

#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/cold/file.h"
#include "core/step/attributes.h"
#include "core/view/array_index.h"
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
	// Of a view; else NULL. The base has the arrays, and their modes.
	struct ckpt_array_dir *base;
	struct ckpt_array_view *view;
	uint16_t *
		modes; // of each array (a view: of none), and behind them of all: as the version has them; UNKNOWN: not computed yet; atomic
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

// Catalog arrays have their modes in the base of a view.
static size_t mode_count(const struct ckpt_array_dir *s)
{
	return s->view ? 0 : ckpt_catalog_count(ckpt_array_dir_catalog(s));
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

// The files that say what a view has.
static unsigned mode_of_lists(struct rights *r, const struct ckpt_array_view *v)
{
	unsigned bits = READ_BITS;

	for (size_t i = 0; v && i < CKPT_VIEW_LISTS; i++)
		if (ckpt_array_view_list(v, i))
			bits &= mode_of_file(r, ckpt_array_view_list(v, i));
	return bits;
}

static unsigned mode_of_kept(struct rights *r, size_t array)
{
	unsigned bits = r->keeps ? mode_kept(r->s, array) : UNKNOWN;

	if (bits != UNKNOWN)
		return bits;
	bits = mode_of_array(r, array);
	if (r->keeps)
		keep_mode(r->s, array, bits);
	return bits;
}

// r is of the base.
static unsigned mode_of_chosen(struct rights *r, const struct ckpt_array_view *v)
{
	const struct ckpt_array_choice *k = ckpt_array_view_choice(v);
	unsigned bits = mode_of_lists(r, v);
	struct ckpt_array_chosen chosen;

	for (size_t i = 0; i < ckpt_array_choice_count(k) && bits; i++) {
		ckpt_array_choice_get(k, i, &chosen);
		bits &= mode_of_kept(r, chosen.array);
	}
	return bits;
}

static struct rights rights_of(struct ckpt_array_dir *s, const struct ckpt_summary *top)
{
	return (struct rights){.s = s->base ? s->base : s,
			       .top = top,
			       .keeps = !ckpt_attributes_any(s->step),
			       .folder = NO_FOLDER,
			       .tree = NO_FOLDER};
}

// Of a folder, and of the file beside the arrays.
static unsigned mode_of_whole(struct ckpt_array_dir *s, const struct ckpt_summary *top)
{
	struct rights r = rights_of(s, top);
	unsigned bits = r.keeps ? mode_kept(s, mode_count(s)) : UNKNOWN;

	if (bits != UNKNOWN)
		return bits;
	bits = s->view ? mode_of_chosen(&r, s->view) : mode_of_all(&r);
	if (r.keeps)
		keep_mode(s, mode_count(s), bits);
	return bits;
}

// array: of the catalog.
static unsigned mode_of_one(struct ckpt_array_dir *s, size_t array, const struct ckpt_summary *top)
{
	struct rights r = rights_of(s, top);

	return mode_of_kept(&r, array) & mode_of_lists(&r, s->view);
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

// Of an ARRAY of the tree: the one of the catalog.
static size_t array_of(const struct ckpt_array_dir *s, uint32_t at)
{
	struct ckpt_array_chosen chosen;

	if (!s->view)
		return ckpt_array_tree_array(s->tree, at);
	ckpt_array_choice_get(ckpt_array_view_choice(s->view), ckpt_array_tree_array(s->tree, at), &chosen);
	return chosen.array;
}

bool ckpt_array_dir_knows(const struct ckpt_array_dir *s, uint32_t at)
{
	enum ckpt_array_tree_type type = ckpt_array_tree_type(s->tree, at);

	if (type == CKPT_ARRAY_TREE_ARRAY)
		return mode_kept(s->base ? s->base : s, array_of(s, at)) != UNKNOWN;
	return mode_kept(s, mode_count(s)) != UNKNOWN &&
	       (type != CKPT_ARRAY_TREE_ALL || s->view || __atomic_load_n(&s->index_bytes, __ATOMIC_RELAXED));
}

static uint64_t npy_bytes(const struct ckpt_array_dir *s, uint32_t at)
{
	struct ckpt_array_chosen chosen;
	struct ckpt_catalog_array a;
	uint64_t bytes = 0;

	if (s->view) {
		ckpt_array_choice_get(ckpt_array_view_choice(s->view), ckpt_array_tree_array(s->tree, at), &chosen);
		(void)ckpt_npy_view_bytes_of(chosen.dtype, chosen.ndim, chosen.shape, &bytes);
	} else {
		ckpt_catalog_get(ckpt_array_dir_catalog(s), ckpt_array_tree_array(s->tree, at), &a);
		(void)ckpt_npy_view_bytes(&a, &bytes);
	}
	return bytes;
}

static const struct ckpt_joined_plan *joined_of(const struct ckpt_array_dir *s)
{
	const struct ckpt_view_why *why;

	return ckpt_array_view_joined(s->view, &why);
}

int ckpt_array_dir_entry(struct ckpt_array_dir *s, uint32_t at, struct ckpt_entry *ret_entry)
{
	enum ckpt_array_tree_type type = ckpt_array_tree_type(s->tree, at);
	struct ckpt_summary top = s->version->is;
	struct ckpt_entry e = {.type = CKPT_ENTRY_FILE, .nlink = 1};
	int rc = 0;

	ckpt_lock_take(&s->step->lock);
	ckpt_attributes_apply_top_locked(s->step, &top);
	ckpt_lock_drop(&s->step->lock);
	if (type == CKPT_ARRAY_TREE_ARRAY) {
		e.mode = mode_of_one(s, array_of(s, at), &top);
		e.bytes = npy_bytes(s, at);
	} else {
		e.mode = mode_of_whole(s, &top);
	}
	if (type == CKPT_ARRAY_TREE_ALL && s->view) {
		e.bytes = ckpt_joined_plan_bytes(joined_of(s));
	} else if (type == CKPT_ARRAY_TREE_ALL) {
		rc = index_bytes(s, &e.bytes);
	} else if (type == CKPT_ARRAY_TREE_FOLDER) {
		e.type = CKPT_ENTRY_DIR;
		e.nlink = 2;
		e.mode |= top.dir_mode & SEARCH_BITS;
	}
	e.uid = top.dir_uid;
	e.gid = top.dir_gid;
	e.mtime_s = s->version->is.committed_ns / 1000000000;
	e.mtime_ns = (uint32_t)(s->version->is.committed_ns % 1000000000);
	if (!rc)
		*ret_entry = e;
	return rc;
}

int ckpt_array_dir_open_npy(const struct ckpt_array_dir *s, uint32_t at, struct ckpt_npy_view **ret_npy)
{
	size_t array = ckpt_array_tree_array(s->tree, at);

	return s->view ? ckpt_npy_view_open_chosen(ckpt_array_view_choice(s->view), array, ckpt_array_dir_files(s),
						   ret_npy)
		       : ckpt_npy_view_open(ckpt_array_dir_catalog(s), array, ckpt_array_dir_files(s), ret_npy);
}

int ckpt_array_dir_open_joined(const struct ckpt_array_dir *s, struct ckpt_joined_view **ret_joined)
{
	return ckpt_joined_view_open(joined_of(s), ckpt_array_dir_files(s), ret_joined);
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

static int make_modes(struct ckpt_array_dir *s)
{
	size_t bytes = (mode_count(s) + 1) * sizeof(*s->modes);

	s->modes = malloc(bytes);
	if (!s->modes)
		return -ENOMEM;
	memset(s->modes, 0xff, bytes);
	return 0;
}

static struct ckpt_array_dir *new_set(struct ckpt_step *step)
{
	struct ckpt_array_dir *s = ckpt_calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->refs = 1;
	ckpt_lock_init(&s->lock, CKPT_LOCK_VIEW);
	s->step = ckpt_step_ref(step);
	return s;
}

int ckpt_array_dir_new(struct ckpt_step *step, struct ckpt_array_dir **ret_set)
{
	struct ckpt_array_dir *s = new_set(step);
	int rc = s ? take_version(s) : -ENOMEM;

	if (!rc)
		rc = ckpt_step_arrays_read(step, s->m, "", &s->arrays);
	if (!rc)
		rc = ckpt_array_tree_new(ckpt_array_dir_catalog(s), &s->tree);
	if (!rc)
		rc = make_modes(s);
	if (rc)
		ckpt_array_dir_unref(s);
	else
		*ret_set = s;
	return rc;
}

int ckpt_array_dir_view(struct ckpt_array_dir *base, const char *name, struct ckpt_array_dir **ret_set,
			struct ckpt_view_why *ret_why)
{
	struct ckpt_array_dir *s = new_set(base->step);
	int rc;

	if (!s)
		return -ENOMEM;
	s->base = ckpt_array_dir_ref(base);
	s->version = ckpt_version_ref(base->version);
	s->m = ckpt_manifest_ref(base->m);
	rc = ckpt_array_view_new(ckpt_array_dir_catalog(base), ckpt_array_dir_files(base), name, &s->view, ret_why);
	if (!rc) {
		s->tree = ckpt_array_view_take_tree(s->view);
		rc = make_modes(s);
	}
	if (rc)
		ckpt_array_dir_unref(s);
	else
		*ret_set = s;
	return rc;
}

struct ckpt_array_dir *ckpt_array_dir_base(const struct ckpt_array_dir *s)
{
	return s->base;
}

const struct ckpt_view_why *ckpt_array_dir_lacks(const struct ckpt_array_dir *s)
{
	const struct ckpt_view_why *why;

	return s->view && !ckpt_array_view_joined(s->view, &why) ? why : NULL;
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
	ckpt_array_view_free(s->view);
	ckpt_array_dir_unref(s->base);
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

	if (s->view)
		return sizeof(*s) + ckpt_array_view_bytes(s->view) + ckpt_array_tree_bytes(s->tree);
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
	return ckpt_step_arrays_catalog(s->base ? s->base->arrays : s->arrays);
}

const struct ckpt_catalog_files *ckpt_array_dir_files(const struct ckpt_array_dir *s)
{
	return ckpt_step_arrays_files(s->base ? s->base->arrays : s->arrays);
}

int ckpt_array_dir_open_file(const struct ckpt_array_dir *s, const char *path, struct ckpt_file **ret_file)
{
	uint32_t index;
	int rc = ckpt_manifest_lookup(s->m, path, &index);

	return rc ? -ENOENT : ckpt_file_open(s->step, s->m, index, ret_file);
}
