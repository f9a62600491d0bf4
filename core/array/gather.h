// The elements of an array, gathered from its pieces: a box of them, or a run of them in C order, packed and in native byte order.
//
// Pieces cost what the part of them costs that is asked for, but for those with codecs (decode.h). Pieces lie in order of their bytes in
// memory as they are wanted: rows that are contiguous in both are copied once, others row by row; a piece whose elements lie
// in another order (a transposed view) is read in the order of its own.
//
// Every byte is from outside. Memory: CKPT_GATHER_BYTES_MAX for pieces that are open. Ownership: the caller's; catalog and files live as
// long. Threads: one at a time for one struct ckpt_gather. Blocks as the files do.
// Pieces may overlap, but not far beyond what the array has. Decoding is bounded (CKPT_GATHER_DECODED_MAX): a part far behind the beginning of a
// compressed piece may be out of reach.
//
// Errors: -EFBIG: more work than that; -ENOTSUP: the array has no elements here (ckpt_catalog_array.why), or a codec is not known; -ENODATA: a part of it is in no
// piece, and it has no fill; -EBADMSG: bytes break a rule of their format; -ENOMEM; what the files say.
#pragma once

#include "core/array/catalog.h"

#define CKPT_GATHER_BYTES_MAX ((size_t)96 << 20)
#define CKPT_GATHER_OPEN_MAX 64                     // pieces
#define CKPT_GATHER_DECODED_MAX (UINT64_C(4) << 30) // bytes that a call decodes at most, beside 64 times what is wanted
#define CKPT_GATHER_OVERLAP_MAX 4                   // times the elements of the array, in all pieces together

struct ckpt_gather;

int ckpt_gather_new(const struct ckpt_catalog *c, size_t array, const struct ckpt_catalog_files *files,
		    struct ckpt_gather **ret_gather); // -ENOTSUP, -EFBIG, -ENOMEM
void ckpt_gather_free(struct ckpt_gather *g);         // NULL is fine

uint64_t ckpt_gather_elements(const struct ckpt_gather *g);
unsigned ckpt_gather_width(const struct ckpt_gather *g); // bytes of an element

// Some piece has codecs, or elements in another order: reading a part may cost far more than the part, and forwards is cheapest.
bool ckpt_gather_is_decoded(const struct ckpt_gather *g);
// All elements lie in one file as they are wanted: from which byte of it on. The second one needs no gather.
bool ckpt_gather_is_plain(const struct ckpt_gather *g, const char **ret_file, uint64_t *ret_offset);
bool ckpt_gather_finds_plain(const struct ckpt_catalog *c, size_t array, const char **ret_file, uint64_t *ret_offset);
// The memory of what is open, and its files; and all of it closed, until the next read.
size_t ckpt_gather_held(const struct ckpt_gather *g);
// About what that is once all of it was read: CKPT_GATHER_BYTES_MAX or less.
uint64_t ckpt_gather_held_most(const struct ckpt_gather *g);
void ckpt_gather_rest(struct ckpt_gather *g);

// start and extent have ndim numbers; the box is in the array. into has room for its elements.
int ckpt_gather_box(struct ckpt_gather *g, const uint64_t *start, const uint64_t *extent, void *into);
// Elements [first, first + count) in C order; first + count is no more than there are.
int ckpt_gather_run(struct ckpt_gather *g, uint64_t first, uint64_t count, void *into);
