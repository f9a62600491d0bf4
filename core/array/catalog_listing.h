// The files below the directory of the file that is read: formats whose parts name others look them up here, so that no name
// leads out of the step.
#pragma once

#include "core/array/catalog_format.h"

struct ckpt_listed {
	char *path; // in the step
	uint64_t bytes;
};

struct ckpt_catalog_listing {
	struct ckpt_listed *files; // sorted by path
	size_t count, cap, path_bytes;
};

// {0} is what *ret_listing was. 0; -EINVAL after ckpt_catalog_refuse(): there are too many; -ENOMEM; what each() says. May block.
int ckpt_catalog_listing_read(struct ckpt_catalog_reading *r, struct ckpt_catalog_listing *ret_listing);
void ckpt_catalog_listing_done(struct ckpt_catalog_listing *l); // also after a failed read

// NULL: there is no such file. The first is by its path in the step, the second by that from the directory on, of len bytes.
const struct ckpt_listed *ckpt_catalog_listing_find(const struct ckpt_catalog_listing *l, const char *path);
const struct ckpt_listed *ckpt_catalog_listing_beside(const struct ckpt_catalog_listing *l,
						      const struct ckpt_catalog_reading *r, const char *name,
						      size_t len);
