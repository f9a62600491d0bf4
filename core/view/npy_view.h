// An array of a catalog as a file of NumPy: its header, then the elements in C order (NumPy's numpy/lib/format.py, version 1.0; 2.0
// where the shape is too long for that).
//
// The size is known before an element is read. Elements of types that NumPy does not have are opaque: bfloat16 is <V2, the 8-bit floats are
// <V1; `.view(ml_dtypes...)` of what is loaded gives the numbers.
//
// Ownership: the caller's; catalog and files live as long. Threads: any; one reads at a time, others wait. Blocks as the files do.
// Errors: those of gather.h.
#pragma once

#include "core/view/elements.h"

#include <sys/types.h>

struct ckpt_npy_view;

// The bytes of the file. False: it cannot be one (ckpt_catalog_array.why, or elements that share a byte).
bool ckpt_npy_view_bytes(const struct ckpt_catalog_array *a, uint64_t *ret_bytes);
bool ckpt_npy_view_bytes_of(enum ckpt_dtype dtype, unsigned ndim, const uint64_t *shape, uint64_t *ret_bytes);

int ckpt_npy_view_open(const struct ckpt_catalog *c, size_t array, const struct ckpt_catalog_files *files,
		       struct ckpt_npy_view **ret_view);
int ckpt_npy_view_open_chosen(const struct ckpt_array_choice *k, size_t i, const struct ckpt_catalog_files *files,
			      struct ckpt_npy_view **ret_view);
void ckpt_npy_view_close(struct ckpt_npy_view *n); // NULL is fine
// As pread(2).
ssize_t ckpt_npy_view_read(struct ckpt_npy_view *n, void *buf, size_t len, uint64_t offset);

// All elements lie in one file as they are here: those behind the header, which has so many bytes, begin at this byte of it.
bool ckpt_npy_view_is_plain(const struct ckpt_npy_view *n, const char **ret_file, uint64_t *ret_offset,
			    size_t *ret_header);
// Its pieces have to be decoded: memory, and one reader.
bool ckpt_npy_view_is_decoded(const struct ckpt_npy_view *n);
// The memory of what is open, as of the last read; and all of it closed until the next one.
size_t ckpt_npy_view_held(const struct ckpt_npy_view *n);
void ckpt_npy_view_rest(struct ckpt_npy_view *n);
