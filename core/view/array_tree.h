// The names below .arrays as a tree (ARRAYS.md section 3 of the design): each array at FOLDER/PATH, and at PATH alone where no other array
// has its name; beside them index.json. Forms of names are those of array_name.h.
//
// Arrays that cannot be one file of NumPy (npy_view.h) have no name here, and neither have those whose FOLDER/PATH is longer than PATH_MAX
// or has more than CKPT_DEPTH_MAX components: with few bytes a file could name folders without end. Where two arrays have one path, it is
// that of the first one in the catalog; FOLDER/PATH wins over PATH.
//
// Ownership: the caller's; the catalog is needed by _new() alone. Threads: any, once it is made. Nothing blocks. Memory: 16 bytes for
// each name, 8 for finding it, and its text once; CKPT_ARRAY_TREE_BYTES_MAX in all.
#pragma once

#include "core/array/catalog.h"

#define CKPT_ARRAY_TREE_TOP 0u // .arrays itself
#define CKPT_ARRAY_TREE_NONE UINT32_MAX
#define CKPT_ARRAY_TREE_BYTES_MAX ((size_t)256 << 20) // of memory

struct ckpt_array_tree;

// 0; -EFBIG: it would need more than CKPT_ARRAY_TREE_BYTES_MAX; -ENOMEM.
int ckpt_array_tree_new(const struct ckpt_catalog *c, struct ckpt_array_tree **ret_tree);
// A tree with a file `all` beside its arrays (NULL: none); each array has the path that is added for it, under the rules above. `array` is what
// ckpt_array_tree_array() answers.
int ckpt_array_tree_begin(const char *all, struct ckpt_array_tree **ret_tree);
int ckpt_array_tree_add(struct ckpt_array_tree *t, const char *path, size_t array);
void ckpt_array_tree_free(struct ckpt_array_tree *t);          // NULL is fine
size_t ckpt_array_tree_bytes(const struct ckpt_array_tree *t); // of memory

// The item with this path; "" is the top. -ENOENT.
int ckpt_array_tree_find(const struct ckpt_array_tree *t, const char *path, uint32_t *ret_at);

enum ckpt_array_tree_type {
	CKPT_ARRAY_TREE_FOLDER,
	CKPT_ARRAY_TREE_ARRAY,
	CKPT_ARRAY_TREE_ALL, // the file beside the arrays: index.json, if no other was asked for
};
enum ckpt_array_tree_type ckpt_array_tree_type(const struct ckpt_array_tree *t, uint32_t at);
size_t ckpt_array_tree_array(const struct ckpt_array_tree *t, uint32_t at); // of an ARRAY: which of the catalog
const char *ckpt_array_tree_name(const struct ckpt_array_tree *t, uint32_t at);
// The names in a folder, in no order: NONE behind the last.
uint32_t ckpt_array_tree_first(const struct ckpt_array_tree *t, uint32_t folder);
uint32_t ckpt_array_tree_next(const struct ckpt_array_tree *t, uint32_t at);
