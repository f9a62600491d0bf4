// Some of the arrays of a catalog, each whole or a part of it, with names of their own: what views have, and the verbs that write arrays.
//
// In this order:
//   only, not   globs (array_glob.h) over the names of the catalog
//   names       NAME, or TREE:NAME where several of the chosen arrays have the name
//   unroll      a slice for each index of an axis, without that axis. Of the chosen arrays which have that axis, those below a component
//               "layers" or "..._layers", which becomes "layers_I"; where there is none, all of them, as NAME.I. Others stay whole
//   shard       ceil(n / N) rows of an axis, the last ones fewer or none, as torch.chunk. Arrays without that axis stay whole
//   dtype       of floating arrays
//   renames     of exactly these names; TREE:NAME means the array, too, where its name is NAME
//   prefix      in front of all names
//
// Arrays that have no elements here (ckpt_catalog_array.why), or elements that share a byte, are not chosen.
//
// Ownership: the caller's; the catalog lives as long, what says how is needed by _new() alone. Threads: any; a choice is never changed.
// Nothing blocks. Memory: 16 bytes for each array that is chosen, and its name; CKPT_CHOICE_ARRAYS_MAX and CKPT_CHOICE_NAME_BYTES_MAX.
#pragma once

#include "core/array/catalog.h"
#include "core/array/expr.h"
#include "core/view/view_spec.h"

#include <jansson.h>

#define CKPT_CHOICE_ARRAYS_MAX (1u << 17)
#define CKPT_CHOICE_NAME_BYTES_MAX ((size_t)8 << 20)
#define CKPT_CHOICE_WORK_MAX (UINT64_C(1) << 29) // steps of comparing names with globs

struct ckpt_choice_how {
	const char *const *only, *const * not ; // NULL behind the last one; NULL: none
	bool unroll;
	unsigned unroll_axis;
	uint64_t shard, shards; // 1 .. shards; 0: all
	unsigned axis;
	enum ckpt_dtype dtype; // NONE: their own
	const json_t *renames; // an object of strings; NULL: none
	const char *prefix;    // NULL: none
	// Arrays that match and have no elements here; NULL: nobody wants to know. Ends with what it answers, unless 0.
	int (*left_out)(void *arg, const struct ckpt_catalog_array *a);
	void *arg;
};

struct ckpt_array_choice;

// 0, also where none is chosen. -EFBIG: limits; -EINVAL: two would have one name; both with ret_why. -ENOMEM.
int ckpt_array_choice_new(const struct ckpt_catalog *c, const struct ckpt_choice_how *how,
			  struct ckpt_array_choice **ret_choice, struct ckpt_view_why *ret_why);
void ckpt_array_choice_free(struct ckpt_array_choice *k);          // NULL is fine
size_t ckpt_array_choice_bytes(const struct ckpt_array_choice *k); // of memory
const struct ckpt_catalog *ckpt_array_choice_catalog(const struct ckpt_array_choice *k);
size_t ckpt_array_choice_count(const struct ckpt_array_choice *k);

struct ckpt_array_chosen {
	const char *name;
	size_t array; // of the catalog
	enum ckpt_dtype dtype;
	unsigned ndim;
	uint64_t shape[CKPT_ARRAY_DIMS_MAX];
	bool is_run; // its elements are those of the array from `first` on, one behind the other, in the array's own dtype
	uint64_t first;
};
void ckpt_array_choice_get(const struct ckpt_array_choice *k, size_t i, struct ckpt_array_chosen *ret_chosen);
// Errors of expr.h.
int ckpt_array_choice_expr(const struct ckpt_array_choice *k, size_t i, const struct ckpt_catalog_files *files,
			   struct ckpt_expr **ret_expr);

// --- The same of one array, for those who choose arrays in another way -----------------------------------------------------------------

#define CKPT_CHOICE_WHOLE UINT32_MAX // it is not unrolled

// The name has a component that unroll changes.
bool ckpt_choice_is_layer(const char *name);
// The name that it gets, malloc'ed; NULL: no memory. slice: its index, or WHOLE; layers: the component "layers" has that. full: another name that
// renames may have for it; NULL: none.
char *ckpt_choice_name(const struct ckpt_choice_how *how, const char *name, const char *full, uint32_t slice,
		       bool layers);
// Its part: unroll, shard and dtype. A reference.
int ckpt_choice_part(const struct ckpt_choice_how *how, struct ckpt_expr *whole, uint32_t slice,
		     struct ckpt_expr **ret_expr);

// Lists that come as JSON: of globs, malloc'ed with NULL behind the last one, and {OLD: NEW}. They live as long as the JSON. -EINVAL: ret_why.
int ckpt_choice_globs(const json_t *json, const char ***ret_globs, struct ckpt_view_why *ret_why);
int ckpt_choice_renames(const json_t *json, struct ckpt_view_why *ret_why);
