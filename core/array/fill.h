// Elements of an array in the memory of a program: as another type, with strides of its own, and padded or reshaped as match.h says.
//
//	ckpt_fill_box()   reads the box of the wanted array that `start` and `extent` name into `into`
//	ckpt_fill_flat()  the same of a range of the box, whose elements follow each other in C order
//
// Elements that lie as they are wanted are read in place. Others go by way of a buffer, a slab at a time. Its size
// is CKPT_FILL_BYTES, and CKPT_FILL_DECODED_BYTES for pieces with codecs, so that not every slab decodes the same pieces.
//
// Ownership: nothing is kept. Threads: one at a time for one gather. Blocks as the gather does. Memory: two buffers, and the gather's.
// Errors: those of gather.h; -ERANGE: the box is not in the wanted array; -ENOTSUP: a cast of a type that is not floating; -EFBIG: sizes
// that overflow.
#pragma once

#include "core/array/gather.h"
#include "core/array/match.h"

#define CKPT_FILL_BYTES ((size_t)1 << 20)
#define CKPT_FILL_DECODED_BYTES ((size_t)32 << 20)

struct ckpt_fill {
	enum ckpt_match_fit fit; // neither KEPT nor ABSENT
	enum ckpt_dtype from, to;
	unsigned ndim;                  // of the wanted array
	const uint64_t *shape;          // as well
	const uint64_t *found;          // of the array in the catalog; as many for SAME and PADDED, else not looked at
	const uint64_t *start, *extent; // NULL: all of it
	void *into;                     // of the first element of the box
	const int64_t *strides;         // in bytes, a number for each dimension; NULL: packed in C order
};

int ckpt_fill_box(struct ckpt_gather *g, const struct ckpt_fill *fill);
// Elements [first, first + count) of the box, as boxes: two for each dimension at most. strides: NULL, or one number, from one element to the next.
// -ERANGE: they are not in the box.
int ckpt_fill_flat(struct ckpt_gather *g, const struct ckpt_fill *fill, uint64_t first, uint64_t count);
