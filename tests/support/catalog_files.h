// Files in memory as a step, for catalogs: one, and the chunks and pieces that stand beside it have its bytes, too; or several, each
// with its own. And a walk over all that a catalog promises.
#pragma once

#include "tests/support/array_files.h"

#include "core/array/catalog.h"

// A catalog of the one file, ended. What ckpt_catalog_read() says of it.
int ckpt_catalog_of_bytes(struct ckpt_bytes *b, const char *path, struct ckpt_catalog **ret_catalog);
// Corrects each checksum in it that the reader of HDF5 refuses the file for: so what was changed behind one is looked at. Ends when the
// reader has another word, or after many of them.
void ckpt_sample_sums(struct ckpt_bytes *b, const char *path);
// A catalog of one file among others, ended, or with path NULL of all of them. Each has its own bytes; there are no further ones.
struct ckpt_sample_file {
	const char *path;
	struct ckpt_bytes bytes;
};
int ckpt_catalog_of_files(struct ckpt_sample_file *files, size_t count, const char *path,
			  struct ckpt_catalog **ret_catalog);
// They say the same of the same arrays, pieces and faults, in one order.
bool ckpt_same_catalogs(const struct ckpt_catalog *a, const struct ckpt_catalog *b);
// A block of OCDBT is added to b: a manifest or a node with this body, not compressed, whose length and checksum are right.
#define CKPT_SAMPLE_MANIFEST 0x0cdb3a2au
#define CKPT_SAMPLE_NODE 0x0cdb20deu
void ckpt_sample_block(struct ckpt_bytes *b, uint32_t magic, const void *body, size_t len);
// Every promise of catalog.h that can be seen from outside. What does not hold ends the process with assert(). file_bytes: of
// the one file.
void ckpt_walk_catalog(const struct ckpt_catalog *c, uint64_t file_bytes);
void ckpt_walk_catalog_of(const struct ckpt_catalog *c, const struct ckpt_sample_file *files, size_t count);
