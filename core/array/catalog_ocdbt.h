// A database of OCDBT as a table: its keys in order, and where their values are.
#pragma once

#include "core/array/catalog_listing.h"

#define CKPT_OCDBT_NONE UINT32_MAX

struct ckpt_ocdbt_entry {
	uint64_t offset, bytes;
	uint32_t key;  // in text; it ends with a NUL, and has no other
	uint32_t file; // of the listing; NONE: it is missing, or shorter than the value
	uint32_t data; // in text, if the value stands in the node; NONE
	uint32_t key_len;
};

struct ckpt_ocdbt {
	struct ckpt_catalog_reading *reading;
	struct ckpt_catalog_listing listing;
	struct ckpt_ocdbt_entry *entries;
	char *text;
	size_t count, cap, text_len, text_cap;
	size_t bytes; // of entries and text
};

// The latest version of the database whose manifest is read. {0} is what *ret_table was. 0; -EINVAL after ckpt_catalog_refuse();
// -ENOMEM; what the sources say. May block.
int ckpt_ocdbt_read(struct ckpt_catalog_reading *r, struct ckpt_ocdbt *ret_table);
void ckpt_ocdbt_done(struct ckpt_ocdbt *t); // also after a failed read
