// A catalog as bytes, as a manifest keeps it: FORMAT.md section 5 has its grammar.
//
//	ckpt_catalog_encode()   of a catalog that has ended
//	ckpt_catalog_decode()   one that has ended, with the same arrays, pieces and faults in the same order
//
// Every byte is from outside when it is read back. A catalog that was decoded keeps all that catalog.h says, but for the places of
// pieces: the caller compares these with the files.
//
// Ownership: results are the caller's. Threads: any; the catalog is not changed. Nothing blocks.
// Memory: that of the catalog, and CKPT_CATALOG_PLAIN_MAX beside it.
#pragma once

#include "core/array/catalog.h"

#include <stddef.h>

// Malloc'ed. -EFBIG: it would have more than CKPT_CATALOG_STORED_MAX bytes; -ENOMEM.
int ckpt_catalog_encode(const struct ckpt_catalog *c, void **ret_bytes, size_t *ret_len);
// -EBADMSG: it breaks a rule; -ENOTSUP: another form, or a codec or a format of files that is not known here; -ENOMEM.
int ckpt_catalog_decode(const void *bytes, size_t len, struct ckpt_catalog **ret_catalog);
