// Between array.c and the formats, array_NAME.c. Each reads a source that begins like its format: 0; -EINVAL it breaks a rule;
// -ENOMEM, or what the source says. What it added by then stays in the set.
#pragma once

#include "core/array/array.h"

// The header of a .npy file, which is these bytes of the source.
struct ckpt_npy {
	enum ckpt_dtype dtype; // whatever the order of its bytes
	bool big_endian, column_major;
	unsigned ndim;
	uint64_t shape[CKPT_ARRAY_DIMS_MAX];
	uint64_t offset, bytes; // of the array, in the source
	const char *opaque;     // static: its elements are no numbers, and the size of one is not known; NULL: it is
	const char *broken;     // static: the rule that is broken, where ckpt_npy_read() is -EINVAL; else NULL
};
#define CKPT_NPY_BROKEN "its header is not what NumPy writes"
// Numbers, by NumPy's kind and size in bytes: 'f' and 4.
enum ckpt_dtype ckpt_npy_number(char kind, uint64_t bytes);
int ckpt_npy_read(const struct ckpt_source *s, uint64_t offset, uint64_t bytes, struct ckpt_npy *ret_npy);

int ckpt_arrays_npy(struct ckpt_arrays *a, const char *name, size_t name_len, const struct ckpt_source *s,
		    uint64_t offset, uint64_t bytes); // the file is these bytes of the source
int ckpt_arrays_safetensors(struct ckpt_arrays *a, const struct ckpt_source *s);
#define CKPT_ARRAYS_TWICE "has a name twice"
// The bytes of the whole file, of which the source has the header at least. *ret_why: as of ckpt_safetensors_bytes().
int ckpt_arrays_safetensors_bytes(struct ckpt_arrays *a, const struct ckpt_source *s, uint64_t *ret_bytes,
				  const char **ret_why);
int ckpt_arrays_zip(struct ckpt_arrays *a, const struct ckpt_source *s);

// The name is copied, of array->name only so many bytes; ndim is right. -EINVAL a name that is too long or has a NUL; -ENOMEM.
int ckpt_arrays_add(struct ckpt_arrays *a, const struct ckpt_array *array, size_t name_len);
// How many elements a shape has. False: no file could hold them, whether or not one of the dimensions is 0.
bool ckpt_array_elements(const uint64_t *shape, unsigned ndim, uint64_t *ret_elements);
