// .npy, for the formats that have it inside.
#pragma once

#include "core/array/catalog_format.h"

// Adds the array whose .npy is these bytes of the file that is read; named has its tree, name and format. -EINVAL: it is none, and
// nothing is added: *ret_broken is the reason, static, or NULL: it was refused; as ckpt_catalog_add().
int ckpt_catalog_add_npy(struct ckpt_catalog_reading *r, const struct ckpt_catalog_entry *named, uint64_t offset,
			 uint64_t bytes, const char **ret_broken);
// The same of a .npy that these bytes hold, compressed by deflate; unpacked: its bytes then. Only its header is decoded.
int ckpt_catalog_add_npy_deflated(struct ckpt_catalog_reading *r, const struct ckpt_catalog_entry *named,
				  uint64_t offset, uint64_t bytes, uint64_t unpacked, const char **ret_broken);
