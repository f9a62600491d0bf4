// One file in memory as a step, for catalogs: the chunks and pieces that stand beside it have its bytes, too; and a walk over all that a catalog promises.
#pragma once

#include "tests/support/array_files.h"

#include "core/array/catalog.h"

// A catalog of the one file, ended. What ckpt_catalog_read() says of it.
int ckpt_catalog_of_bytes(struct ckpt_bytes *b, const char *path, struct ckpt_catalog **ret_catalog);
// Every promise of catalog.h that can be seen from outside. What does not hold ends the process with assert(). file_bytes: of
// the one file.
void ckpt_walk_catalog(const struct ckpt_catalog *c, uint64_t file_bytes);
