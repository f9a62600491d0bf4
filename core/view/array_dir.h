// The virtual files of one version of a step: its catalog, the names below .arrays, or below a view of it (array_view.h), their sizes, and who
// may read them.
//
// Rights. An array is readable by those who may read every file that has a piece of it, and search every directory of the step above these
// files. It belongs to the owner and the group of the step's directory. A file or directory of another owner or group counts with the
// bits that its owner, its group and all others have in common: nobody can tell here which of the three a reader is. index.json and the
// listings of folders show the names of all arrays, so that they are readable by those who may read every array; who may search the step's
// directory may search these folders. An array without pieces (a fill value, no elements) is as readable as the file that is its tree. If the
// tree is no file, each file below it counts, as any may have the metadata: below the closest directory, if it is no directory either.
// In a view an array is as readable as the one that it is made of, and the files are, too, that the view's name has as lists; model.safetensors
// and the listings are as readable as all arrays of the view. Nothing may be written. The rights follow a change of attributes in the step at once.
//
// Ownership: reference-counted. It holds its step, version and manifest: what was opened by it stays that of its version, as long as the
// store keeps that. Threads: any. Blocks: _new() on the disk or the store; the size of index.json is computed when it is asked for first.
#pragma once

#include "core/step/step.h"
#include "core/view/array_tree.h"
#include "core/view/array_view.h"
#include "core/view/npy_view.h"

#include <sys/types.h>

struct ckpt_array_dir;

// Of the current version. Errors of ckpt_step_arrays_read() and ckpt_step_manifest().
int ckpt_array_dir_new(struct ckpt_step *step, struct ckpt_array_dir **ret_set);
// A view of such a set, which is none itself; it has a reference to that. -ENOENT: there is none of this name; ret_why says why. -ENOMEM; what
// files say.
int ckpt_array_dir_view(struct ckpt_array_dir *base, const char *name, struct ckpt_array_dir **ret_set,
			struct ckpt_view_why *ret_why);
struct ckpt_array_dir *ckpt_array_dir_base(const struct ckpt_array_dir *s); // of a view; else NULL
// A view has no model.safetensors, for this reason. NULL: it has, or is no view.
const struct ckpt_view_why *ckpt_array_dir_lacks(const struct ckpt_array_dir *s);
struct ckpt_array_dir *ckpt_array_dir_ref(struct ckpt_array_dir *s);
void ckpt_array_dir_unref(struct ckpt_array_dir *s);         // NULL is fine
size_t ckpt_array_dir_bytes(const struct ckpt_array_dir *s); // of memory; of a view without those of its base
// The version that it shows; without a reference of the caller's.
struct ckpt_version *ckpt_array_dir_version(const struct ckpt_array_dir *s);
bool ckpt_array_dir_is_packed(const struct ckpt_array_dir *s); // the bytes of some file are in packs
struct ckpt_step *ckpt_array_dir_step(const struct ckpt_array_dir *s);

const struct ckpt_array_tree *ckpt_array_dir_tree(const struct ckpt_array_dir *s);
const struct ckpt_catalog *ckpt_array_dir_catalog(const struct ckpt_array_dir *s);
const struct ckpt_catalog_files *ckpt_array_dir_files(const struct ckpt_array_dir *s);

// A file of the version by its path; the caller closes it. -ENOENT, and the errors of ckpt_file_open().
struct ckpt_file;
int ckpt_array_dir_open_file(const struct ckpt_array_dir *s, const char *path, struct ckpt_file **ret_file);
// An item of the tree as an entry: type, mode, owner, bytes, and the time of the version. -ENOMEM.
int ckpt_array_dir_entry(struct ckpt_array_dir *s, uint32_t at, struct ckpt_entry *ret_entry);
// True: its entry is known, so that _entry() looks through no array.
bool ckpt_array_dir_knows(const struct ckpt_array_dir *s, uint32_t at);
// The reader of an array of the tree; and model.safetensors of a view (joined_view.h). Both live as long as the set.
int ckpt_array_dir_open_npy(const struct ckpt_array_dir *s, uint32_t at, struct ckpt_npy_view **ret_npy);
int ckpt_array_dir_open_joined(const struct ckpt_array_dir *s, struct ckpt_joined_view **ret_joined);
// Part of index.json, as pread(2). One at a time, others wait.
ssize_t ckpt_array_dir_read_index(struct ckpt_array_dir *s, void *buf, size_t len, uint64_t offset);
