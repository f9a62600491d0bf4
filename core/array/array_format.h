// Between array.c and the formats, array_NAME.c. Each reads a source that begins like its format: 0; -EINVAL it breaks a rule;
// -ENOMEM, or what the source says. What it added by then stays in the set.
#pragma once

#include "core/array/array.h"

int ckpt_arrays_npy(struct ckpt_arrays *a, const char *name, size_t name_len, const struct ckpt_source *s,
		    uint64_t offset, uint64_t bytes); // the file is these bytes of the source
int ckpt_arrays_safetensors(struct ckpt_arrays *a, const struct ckpt_source *s);
int ckpt_arrays_zip(struct ckpt_arrays *a, const struct ckpt_source *s);

// The name is copied, of array->name only so many bytes; ndim is right. -EINVAL a name that is too long or has a NUL; -ENOMEM.
int ckpt_arrays_add(struct ckpt_arrays *a, const struct ckpt_array *array, size_t name_len);
// How many elements a shape has. False: no file could hold them, whether or not one of the dimensions is 0.
bool ckpt_array_elements(const uint64_t *shape, unsigned ndim, uint64_t *ret_elements);
