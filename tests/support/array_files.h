// Files with arrays in them, made byte by byte: right ones, and what breaks a rule; and a walk over all that is read of one.
// For unit tests and fuzzers: what does not hold ends the process with assert().
#pragma once

#include "core/array/array.h"

#include <stddef.h>
#include <stdint.h>

// Grows as it is added to; {0} is empty. free(data).
struct ckpt_bytes {
	uint8_t *data;
	size_t len, cap;
	uint64_t zeros; // as many more stand at zeros_at, in a source of it
	size_t zeros_at;
	uint64_t reads, read_end; // that the source has seen, and the end of the furthest
	uint64_t fails_at;        // the read of this number, from 1, answers -EIO
};

void ckpt_bytes_add(struct ckpt_bytes *b, const void *data, size_t len);
void ckpt_bytes_text(struct ckpt_bytes *b, const char *text);
void ckpt_bytes_number(struct ckpt_bytes *b, uint64_t value, size_t bytes);
void ckpt_bytes_fill(struct ckpt_bytes *b, size_t len, unsigned seed); // with what is as good as random

// It is asked for nothing outside: that is an assertion.
struct ckpt_source ckpt_bytes_source(struct ckpt_bytes *b);
// What ckpt_arrays_read() says of it.
int ckpt_bytes_arrays(struct ckpt_bytes *b, const char *name, struct ckpt_arrays **ret_arrays);
// The same of what can be read, and walked: NULL, it has none.
struct ckpt_arrays *ckpt_bytes_read(struct ckpt_bytes *b, const char *name);
bool ckpt_bytes_has_arrays(struct ckpt_bytes *b, const char *name);
struct ckpt_array ckpt_array_at(const struct ckpt_arrays *a, size_t i);
void ckpt_check_array(const struct ckpt_arrays *a, size_t i, const char *name, enum ckpt_dtype dtype, uint64_t offset,
		      uint64_t bytes);

// What was in b is gone. data bytes are behind the header: zeros that take no memory.
void ckpt_sample_safetensors(struct ckpt_bytes *b, const char *header, uint64_t data);
void ckpt_sample_npy(struct ckpt_bytes *b, int version, const char *header, uint64_t data);

struct ckpt_zip_sample {
	struct ckpt_bytes *file, directory;
	unsigned members;
	uint64_t directory_at; // once it is ended
};

struct ckpt_zip_part {
	const char *name;
	const void *data;
	size_t len;
	uint64_t zeros; // as many more, which take no memory; one part of a zip may have some
	uint16_t method, flags;
	size_t padding; // an extra field of the local header alone, at least 4 bytes, as torch aligns by
	bool zip64;     // says sizes and place in 64 bits
};

void ckpt_sample_zip_begin(struct ckpt_zip_sample *z, struct ckpt_bytes *b);
void ckpt_sample_zip_add(struct ckpt_zip_sample *z, const struct ckpt_zip_part *part);
void ckpt_sample_zip_end(struct ckpt_zip_sample *z, bool zip64);

// Every promise of array.h and chunk.h that can be seen from outside.
void ckpt_walk_arrays(const struct ckpt_arrays *a, uint64_t file_bytes);
void ckpt_walk_cuts(const struct ckpt_source *s);
