// The catalog of one version of a step, read from its files: raw ones, and chunks here or in the remote.
//
// A version whose manifest has its catalog needs no file for it. One that cannot be used is damage of a cache: a line in the error log says so,
// once for a version, and the files are read. One of a newer form is not told of.
// Of files only headers are read. Those that hold nothing but pieces of arrays that are known by then (chunks of zarr, .distcp) are not opened.
//
// Ownership: the caller's. It holds the step and the manifest. Threads: any once it is made; ckpt_step_arrays_files() may be called by
// several threads at once. Blocks on the disk or the store.
// Errors: -ENOMEM, and what reading files says: a file that cannot be read is an error of the whole, as nobody would know of its
// arrays; one that breaks a rule of its format is a fault in the catalog.
#pragma once

#include "core/array/catalog.h"
#include "core/base/part.h"
#include "core/step/step.h"

struct ckpt_step_arrays;

// Readers of formats follow what is in each other, as deep as their limits allow: more than a caller's stack may have room for. So read(arg) runs in a
// thread that has CKPT_STEP_ARRAYS_STACK bytes, and the caller waits for it. What it answers; -EAGAIN: there is no thread to be had.
#define CKPT_STEP_ARRAYS_STACK ((size_t)8 << 20)
int ckpt_step_arrays_with_stack(int (*read)(void *arg), void *arg);

// Guarded by step->lock.
struct ckpt_catalog_told {
	uint8_t manifest_sha256[CKPT_SHA256_LEN]; // whose catalog the error log has a line about
};
CKPT_PART(struct ckpt_step, struct ckpt_catalog_told, ckpt_catalog_told)

// path: arrays of the files below it; "": all.
int ckpt_step_arrays_read(struct ckpt_step *step, struct ckpt_manifest *m, const char *path,
			  struct ckpt_step_arrays **ret_arrays);
// The same, which stop ends with -EINTR; it lives as long as the arrays. NULL: none.
int ckpt_step_arrays_read_until(struct ckpt_step *step, struct ckpt_manifest *m, const char *path,
				struct ckpt_catalog_stop *stop, struct ckpt_step_arrays **ret_arrays);
// The same from the files alone, for who looks into these.
int ckpt_step_arrays_read_files(struct ckpt_step *step, struct ckpt_manifest *m, const char *path,
				struct ckpt_step_arrays **ret_arrays);
// A version that is to be made: the manifest's files, but for those of which file() says otherwise.
struct ckpt_step_changed {
	// 0: it is as it was; 1: it has the bytes of *ret_fd, which the caller closes; -ENOENT: it is gone; -errno.
	int (*file)(void *arg, const char *path, int *ret_fd);
	void *arg;
};
// The same of that version, from its files. changed lives as long as the arrays.
int ckpt_step_arrays_read_changed(struct ckpt_step *step, struct ckpt_manifest *m, const char *path,
				  const struct ckpt_step_changed *changed, struct ckpt_step_arrays **ret_arrays);
// The digest of an array (core/array/array_digest.h): the catalog that the manifest has is encoded again then. 0, -ENOMEM, -EFBIG.
int ckpt_step_arrays_set_digest(struct ckpt_step_arrays *a, size_t i, const uint8_t digest[CKPT_ARRAY_DIGEST_LEN]);
// For the manifest (core/array/catalog_encode.h), malloc'ed; without digests if it would be too large with them. NULL: the manifest has it, it is too
// large to be kept, or it could not be read back.
// 0, -ENOMEM.
int ckpt_step_arrays_encode(struct ckpt_step_arrays *a, void **ret_bytes, size_t *ret_len);
void ckpt_step_arrays_free(struct ckpt_step_arrays *a); // NULL is fine

const struct ckpt_catalog *ckpt_step_arrays_catalog(const struct ckpt_step_arrays *a);
const struct ckpt_catalog_files *ckpt_step_arrays_files(const struct ckpt_step_arrays *a);
// A descriptor of the raw file at this path, for reading, which the caller closes. No other descriptor shares its flags. A raw file of a committed version is never
// written to or cut, and it is removed by its name alone: an open descriptor pins its bytes. -ENOENT: the file has no raw file here; -EIO ...
int ckpt_step_arrays_open_raw(const struct ckpt_step_arrays *a, const char *path, int *ret_fd);
