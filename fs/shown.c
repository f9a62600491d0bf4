#include "fs/shown.h"

#include "core/base/util.h"
#include "core/cold/file.h"
#include "fs/node.h"
#include "fs/tell.h"

#include <limits.h>
#include <string.h>

static struct node *find_entry(struct ckpt_fs *fs, struct ckpt_step *step, const struct ckpt_entry *e)
{
	return node_find(fs, node_space(step), e->index ? e->ino : step->born.dir_ino);
}

// A file that has another name, elsewhere in the step, is found by that one from now on.
static void drop_names(struct ckpt_fs *fs, struct ckpt_step *step, struct ckpt_manifest *m, const struct ckpt_entry *e)
{
	struct node *n = find_entry(fs, step, e), *dir;
	struct ckpt_entry parent, child;

	for (uint32_t i = 0; i < e->child_count; i++) {
		ckpt_manifest_entry(m, e->child_first + i, &child);
		drop_names(fs, step, m, &child);
	}
	ckpt_manifest_entry(m, e->parent, &parent);
	dir = n ? find_entry(fs, step, &parent) : NULL;
	if (dir) {
		names_write_lock(fs);
		name_drop_locked(fs, n, dir, e->name);
		names_unlock(fs);
	}
	node_unref(fs, dir);
	node_unref(fs, n);
}

// All that the kernel knows of the name goes, and all that its folder's node has kept.
void shown_forget(struct ckpt_fs *fs, struct ckpt_step *step, struct ckpt_manifest *m, const char *path)
{
	struct ckpt_entry e, parent;
	struct node *dir;
	uint32_t index;

	if (ckpt_manifest_lookup(m, path, &index))
		return;
	ckpt_manifest_entry(m, index, &e);
	ckpt_manifest_entry(m, e.parent, &parent);
	drop_names(fs, step, m, &e);
	dir = find_entry(fs, step, &parent);
	if (!dir)
		return;
	tell_name(fs->store, fs->se, node_id(fs, dir), e.name);
	(void)fuse_lowlevel_notify_inval_inode(fs->se, node_id(fs, dir), 0, 0);
	node_unref(fs, dir);
}

// Of versions of different sessions, as edits by different nodes are.
static bool has_same_seal(struct ckpt_manifest *was, const struct ckpt_entry *a, struct ckpt_manifest *is,
			  const struct ckpt_entry *b)
{
	struct ckpt_seal was_seal, is_seal;

	return a->bytes == b->bytes && ckpt_manifest_seal(was, a->index, &was_seal) &&
	       ckpt_manifest_seal(is, b->index, &is_seal) &&
	       !memcmp(was_seal.sha256, is_seal.sha256, sizeof(is_seal.sha256));
}

static bool is_shown_alike(struct ckpt_step *step, struct ckpt_manifest *was, uint32_t index, struct ckpt_manifest *is,
			   const char *path)
{
	struct ckpt_entry a, b;
	uint32_t at;

	if (ckpt_manifest_lookup(is, path, &at))
		return false;
	ckpt_manifest_entry(was, index, &a);
	ckpt_manifest_entry(is, at, &b);
	if (a.type != b.type || a.ino != b.ino)
		return false;
	return a.type != CKPT_ENTRY_FILE || has_same_seal(was, &a, is, &b) ||
	       !ckpt_file_find_same(step, was, index, is, &at);
}

// Entries of a manifest that the other shows otherwise, or not at all, are looked up again. gone: their nodes are found no more.
static void show_others(struct ckpt_fs *fs, struct ckpt_step *step, struct ckpt_manifest *m,
			struct ckpt_manifest *other, bool gone)
{
	char path[PATH_MAX];

	for (uint32_t i = 1; i < ckpt_manifest_count(m); i++) {
		struct ckpt_entry e;

		if (ckpt_manifest_path(m, i, path, sizeof(path)) < 0 || is_shown_alike(step, m, i, other, path))
			continue;
		ckpt_manifest_entry(m, i, &e);
		shown_forget(fs, step, m, path);
		if (gone && e.type != CKPT_ENTRY_DIR)
			node_retire(fs, node_space(step), e.ino);
	}
}

// Of the rest the attributes may be others.
static void show_attributes(struct ckpt_fs *fs, struct ckpt_step *step, struct ckpt_manifest *m)
{
	for (uint32_t i = 0; i < ckpt_manifest_count(m); i++) {
		struct ckpt_entry e;
		struct node *n;

		ckpt_manifest_entry(m, i, &e);
		n = find_entry(fs, step, &e);
		if (n)
			(void)fuse_lowlevel_notify_inval_inode(fs->se, node_id(fs, n), -1, 0);
		node_unref(fs, n);
	}
}

void shown_change(struct ckpt_fs *fs, struct ckpt_step *step, struct ckpt_manifest *was, struct ckpt_manifest *is)
{
	show_others(fs, step, was, is, true);
	show_others(fs, step, is, was, false);
	show_attributes(fs, step, is);
}
