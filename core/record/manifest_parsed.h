// A manifest as its reader has it in memory: tables of the rows that manifest_layout.h describes. For manifest.c and
// manifest_seals.c only.
#pragma once

#include "core/record/manifest_layout.h"

#include <stdatomic.h>

// A section as a table of fixed-size rows.
struct ckpt_table {
	const uint8_t *rows;
	uint32_t count;
};

struct ckpt_manifest {
	void *data;
	size_t len;
	uint8_t sha256[32];
	struct ckpt_table entries, inodes, sessions, xattr_sets, xattrs, seals, chunks, packs, bases;
	const char *strings;
	uint32_t strings_len;
	const void *catalog; // NULL: none
	size_t catalog_len;
	uint64_t files, bytes;
	uint32_t files_with_bytes, packed_files;
	bool conflicts;
	atomic_uint refs;
};

static inline const uint8_t *ckpt_table_row(const struct ckpt_table *t, uint32_t i, size_t row_bytes)
{
	return t->rows + (size_t)i * row_bytes;
}

static inline const uint8_t *ckpt_manifest_entry_at(const struct ckpt_manifest *m, uint32_t i)
{
	return ckpt_table_row(&m->entries, i, ENTRY_BYTES);
}

// The entries and the list of inodes were checked before. 0, -EBADMSG.
int ckpt_manifest_check_seals(const struct ckpt_manifest *m);
