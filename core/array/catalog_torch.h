// torch.save(), between catalog_torch.c, which reads zips and walks the saved object, and catalog_torch_legacy.c, which reads the form
// without a zip.
#pragma once

#include "core/array/catalog_format.h"
#include "core/array/pickle.h"
#include "core/array/zip.h"

struct ckpt_torch_storage {
	const char *key; // of names
	size_t key_len;
	struct ckpt_zip_member member;
	uint64_t offset; // of its bytes; 0: not looked for yet
	unsigned width;  // of an element; known in the form without a zip only
};

struct ckpt_torch {
	struct ckpt_catalog_reading *catalog;
	const struct ckpt_source *source;
	struct ckpt_pickle *pickle;
	struct ckpt_torch_storage *storages; // sorted by key
	size_t count, cap;
	char *names; // of members
	size_t names_len;
	struct ckpt_zip_member top; // the pickle; name is TOP
	struct ckpt_zip_member byteorder;
	bool has_pickle, has_byteorder, big_endian;
	const char *field; // of faults: what the pickle is called
	// Of the walk:
	char *name;
	size_t name_len;
	uint8_t *on_path; // a bit for each value
	size_t visits;
	size_t latin1_bytes; // of arrays whose bytes the pickle has as text
	ckpt_item key;       // of the dictionary that the value stands in; 0: it stands in none
	unsigned objects;    // on the path, that are neither containers nor arrays
	// Of ckpt_torch_each(), where catalog is NULL.
	int (*seen)(void *arg, const struct ckpt_torch *r);
	void *seen_arg;
};

// The class of a storage is "torch FloatStorage" or "torch.cuda FloatStorage"; U8 stands for one without a type.
enum ckpt_dtype ckpt_torch_storage_dtype(const char *global, size_t len);
// Bytes of an element of such a class, also where no dtype is its equal. 0: it is not known.
unsigned ckpt_torch_storage_width(const char *global, size_t len);
int ckpt_torch_by_key(const void *one, const void *other); // qsort(3)'s, of storages
// Adds the arrays of the pickle; storages are sorted. 0; -EINVAL after ckpt_catalog_refuse(); -ENOMEM; what the source says.
int ckpt_torch_walk(struct ckpt_torch *r);
// Calls seen() for each array in the pickle, with its name and its place (key, objects), and ends with what it answers unless 0. -EINVAL: the
// catalog refuses such a pickle; -ENOMEM. The name of an array that is the root itself is empty.
int ckpt_torch_each(struct ckpt_pickle *p, int (*seen)(void *arg, const struct ckpt_torch *r), void *arg);
void ckpt_torch_done(struct ckpt_torch *r);
