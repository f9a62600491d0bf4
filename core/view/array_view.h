// A view of the arrays of a step (view_spec.h): which it has, their names as a tree, each array as NAME.npy, and model.safetensors with all of
// them.
//
// Globs and renames that its name has the paths of are read from files of the step, CKPT_VIEW_LIST_BYTES_MAX each.
//
// Ownership: the caller's; catalog and files live as long. Threads: any; a view is never changed. Blocks: _new() on those files.
// Memory: that of array_choice.h, array_tree.h and joined_view.h.
#pragma once

#include "core/view/array_choice.h"
#include "core/view/array_tree.h"
#include "core/view/joined_view.h"
#include "core/view/view_spec.h"

#define CKPT_VIEW_LIST_BYTES_MAX ((size_t)1 << 20)

struct ckpt_array_view;

// -ENOENT: there is no view of this name; ret_why says why. -ENOMEM; what files say.
int ckpt_array_view_new(const struct ckpt_catalog *c, const struct ckpt_catalog_files *files, const char *name,
			struct ckpt_array_view **ret_view, struct ckpt_view_why *ret_why);
void ckpt_array_view_free(struct ckpt_array_view *v);          // NULL is fine
size_t ckpt_array_view_bytes(const struct ckpt_array_view *v); // of memory

// The files of the step that say what it has.
#define CKPT_VIEW_LISTS 3
const char *ckpt_array_view_list(const struct ckpt_array_view *v, size_t i); // NULL: it has no such file
const struct ckpt_array_choice *ckpt_array_view_choice(const struct ckpt_array_view *v);
// Takes the tree out of it, once.
struct ckpt_array_tree *ckpt_array_view_take_tree(struct ckpt_array_view *v);
// NULL: it has no model.safetensors; why.
const struct ckpt_joined_plan *ckpt_array_view_joined(const struct ckpt_array_view *v,
						      const struct ckpt_view_why **ret_why);
