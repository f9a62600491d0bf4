// The arrays inside of files: which there are, and where their bytes lie. Read from the file's own format, which its first
// bytes tell; the bytes of an array are never looked at.
//
//	.npy          NumPy's numpy/lib/format.py, versions 1 to 3: one array, called like the file without ".npy"
//	.safetensors  Hugging Face's safetensors/README.md and src/tensor.rs
//	zip           zip.h; of its members those that are stored and are
//	              *.npy          as numpy.savez writes them (.npz), called by the member's name without ".npy"
//	              TOP/data/N     storages of torch.save (torch/serialization.py: .pt .pth .ckpt .bin), called "data/N"; what
//	                             they hold is said in TOP/data.pkl, a pickle, which is not run: neither dtype nor shape is known
//	              what is compressed is bytes of the file, and no array
//
// Every byte is from outside: what breaks a rule of its format, or a limit (limits.h), has no arrays. The rules are stricter
// than those of some readers. No two arrays share a byte or a name; each lies within the file; shape times dtype is its
// length.
//
// Ownership: a set is the caller's, names and shapes in it live as long. Threads: any; a set is never changed. Memory: some
// three times the header, which is 16 MiB at most. Blocks as the source does.
#pragma once

#include "core/base/source.h"

#include <stdbool.h>

#define CKPT_ARRAY_DIMS_MAX 32

// As the manifest numbers them (FORMAT.md section 7).
enum ckpt_dtype {
	CKPT_DTYPE_NONE, // not known, or none of these: strings, times, structures, numbers in big-endian order
	CKPT_DTYPE_BOOL,
	CKPT_DTYPE_I8,
	CKPT_DTYPE_I16,
	CKPT_DTYPE_I32,
	CKPT_DTYPE_I64,
	CKPT_DTYPE_U8,
	CKPT_DTYPE_U16,
	CKPT_DTYPE_U32,
	CKPT_DTYPE_U64,
	CKPT_DTYPE_F16,
	CKPT_DTYPE_F32,
	CKPT_DTYPE_F64,
	CKPT_DTYPE_BF16,
	CKPT_DTYPE_F8E4M3,
	CKPT_DTYPE_F8E5M2,
	CKPT_DTYPE_C64,  // complex of two f32
	CKPT_DTYPE_C128, // of two f64
	CKPT_DTYPE_I4,   // two in a byte, as the next
	CKPT_DTYPE_U4,
	CKPT_DTYPE_F4E2M1, // two in a byte
	CKPT_DTYPE_F8E4M3FNUZ,
	CKPT_DTYPE_F8E5M2FNUZ,
	CKPT_DTYPE_F8E8M0,
	CKPT_DTYPE_COUNT,
};

// "f32", "bf16" ...; "?" for what is none.
const char *ckpt_dtype_name(enum ckpt_dtype dtype);
// As NumPy and ml_dtypes call it: "float32", "bfloat16"; NULL: not known.
const char *ckpt_dtype_numpy(enum ckpt_dtype dtype);
enum ckpt_dtype ckpt_dtype_called(const char *numpy); // the type of such a name, or NONE
unsigned ckpt_dtype_bits(enum ckpt_dtype dtype);      // of an element; 0: not known
// Bytes of an element, or 1 where a byte holds several; 0: not known.
unsigned ckpt_dtype_width(enum ckpt_dtype dtype);

struct ckpt_array {
	const char *name; // UTF-8 or not, with any byte but NUL
	enum ckpt_dtype dtype;
	unsigned ndim;         // 0: one element, or without a dtype: perhaps the shape is not known
	const uint64_t *shape; // ndim numbers
	uint64_t offset, bytes;
	bool column_major;
};

struct ckpt_arrays;

// *ret_arrays is NULL where the file is of no known format or breaks the rules of its own: that is the user's own affair,
// and no error. name: the file's, or a path of it. -ENOMEM, or what the source says.
int ckpt_arrays_read(const char *name, const struct ckpt_source *s, struct ckpt_arrays **ret_arrays);
void ckpt_arrays_free(struct ckpt_arrays *a);

// A .safetensors file that is still arriving: the bytes that it has when it is whole. The source has its header at least. -EINVAL: it breaks a
// rule; -ENOMEM, or what the source says. Arrays that overlap are found by ckpt_arrays_read() alone.
// *ret_why: the rule that -EINVAL is of, as "has a name twice"; static, or NULL.
int ckpt_safetensors_bytes(const struct ckpt_source *s, uint64_t *ret_bytes, const char **ret_why);

// In the order of their bytes in the file.
size_t ckpt_arrays_count(const struct ckpt_arrays *a);
void ckpt_arrays_get(const struct ckpt_arrays *a, size_t i, struct ckpt_array *ret_array);
