// Arrays that are made of others: cut, cast, turned, joined. Nothing is read until a part is wanted, and then only what the part needs.
//
//	ckpt_expr_array(), and the others on top of it
//	ckpt_expr_open(); ckpt_expr_box() or _run() as often as wanted; ckpt_expr_close()
//	ckpt_expr_unref()
//
// Elements are packed, in C order and native order of bytes.
//
// Ownership: counted; an expression takes references of its own to what it is made of. Catalog and files live as long. Threads: any, as
// expressions do not change; one at a time for a reader. Blocks as the files do.
// Memory: a part again for each CAST, TRANSPOSE, PAD and CONCAT above an array, in the dtype that it has there; and for the arrays that a
// reader has open CKPT_EXPR_HELD_MAX, or what one of them takes (gather.h). It is kept for the next part, until _rest().
// Errors: those of gather.h for reading; -EINVAL: shapes, axes or dtypes do not fit, or it is made of too many;
// -EOVERFLOW: more than 2^63 bytes; -ENOTSUP: the array has no elements here.
#pragma once

#include "core/array/catalog.h"

#define CKPT_EXPR_DEPTH_MAX 64         // expressions on each other
#define CKPT_EXPR_NODES_MAX (1u << 24) // in all
#define CKPT_EXPR_HELD_MAX ((size_t)96 << 20)

struct ckpt_expr;

struct ckpt_expr_shape {
	enum ckpt_dtype dtype;
	unsigned ndim;
	const uint64_t *at; // lives as long as the expression
};
const struct ckpt_expr_shape *ckpt_expr_shape(const struct ckpt_expr *e);
uint64_t ckpt_expr_elements(const struct ckpt_expr *e);
struct ckpt_expr *ckpt_expr_ref(struct ckpt_expr *e);
void ckpt_expr_unref(struct ckpt_expr *e); // NULL is fine

int ckpt_expr_array(const struct ckpt_catalog *c, size_t array, const struct ckpt_catalog_files *files,
		    struct ckpt_expr **ret_expr);
// Both dtypes are floating (cast.h).
int ckpt_expr_cast(struct ckpt_expr *of, enum ckpt_dtype dtype, struct ckpt_expr **ret_expr);
int ckpt_expr_slice(struct ckpt_expr *of, unsigned axis, uint64_t start, uint64_t extent, struct ckpt_expr **ret_expr);
// A slice of one, without its axis.
int ckpt_expr_take(struct ckpt_expr *of, unsigned axis, uint64_t index, struct ckpt_expr **ret_expr);
// Axis i is axis axes[i] of what it is made of, as numpy.transpose() has it.
int ckpt_expr_transpose(struct ckpt_expr *of, const unsigned *axes, struct ckpt_expr **ret_expr);
int ckpt_expr_reshape(struct ckpt_expr *of, unsigned ndim, const uint64_t *shape, struct ckpt_expr **ret_expr);
// Zeros at the ends of axes.
int ckpt_expr_pad(struct ckpt_expr *of, const uint64_t *shape, struct ckpt_expr **ret_expr);
int ckpt_expr_concat(struct ckpt_expr *const *of, size_t count, unsigned axis, struct ckpt_expr **ret_expr);
// On a new axis.
int ckpt_expr_stack(struct ckpt_expr *const *of, size_t count, unsigned axis, struct ckpt_expr **ret_expr);

// Elements of an array of a catalog, from `first` on.
struct ckpt_expr_place {
	const struct ckpt_catalog *catalog;
	const struct ckpt_catalog_files *files;
	size_t array;
	uint64_t first;
};
// The elements of e are those, unchanged and one behind the other. False: they are none that do.
bool ckpt_expr_is_part(const struct ckpt_expr *e, struct ckpt_expr_place *ret_place);
// The times that a part of it is held again while it is read: CAST, TRANSPOSE, PAD and CONCAT that stand on each other.
unsigned ckpt_expr_levels(const struct ckpt_expr *e);
// Something in it is transposed: a small part of it costs almost as much as a large one.
bool ckpt_expr_is_transposed(const struct ckpt_expr *e);
// Each array of a catalog that it is made of; one may come several times. Ends with what fn answers, unless 0.
int ckpt_expr_each(const struct ckpt_expr *e, int (*fn)(void *arg, const struct ckpt_catalog *c, size_t array),
		   void *arg);

struct ckpt_expr_reader;

// Arrays are opened at their first read.
int ckpt_expr_open(struct ckpt_expr *e, struct ckpt_expr_reader **ret_reader);
void ckpt_expr_close(struct ckpt_expr_reader *r); // NULL is fine
// start and extent have ndim numbers; the box is in the array. into has room for its elements.
int ckpt_expr_box(struct ckpt_expr_reader *r, const uint64_t *start, const uint64_t *extent, void *into);
// Elements [first, first + count) in C order; first + count is no more than there are.
int ckpt_expr_run(struct ckpt_expr_reader *r, uint64_t first, uint64_t count, void *into);
// The memory that it has; and all of it given back, until the next read.
size_t ckpt_expr_held(const struct ckpt_expr_reader *r);
void ckpt_expr_rest(struct ckpt_expr_reader *r);
