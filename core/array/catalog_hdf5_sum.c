// Checksums: lookup3 over a structure, in the four bytes behind it. Superblocks from version 2 on, object headers of version 2, B-trees
// of version 2, fractal heaps, fixed and extensible arrays have one. Symbol tables, B-trees of version 1, local and global heaps have none.
//
// A structure that many elements lead to is summed once.
#include "core/array/catalog_hdf5.h"

#include "core/base/lookup3.h"
#include "core/base/util.h"

#define SUM_BYTES 4u
#define STEPS 64u // that are read at once

// Zeros stand for the four bytes at `hole`.
static int sum_of(struct ckpt_hdf5 *h, uint64_t at, uint64_t bytes, uint64_t hole, uint32_t *ret_sum)
{
	uint8_t buf[STEPS * CKPT_LOOKUP3_STEP];
	struct ckpt_lookup3 sum;
	int rc = 0;

	ckpt_lookup3_begin(&sum, bytes);
	for (uint64_t end = at + bytes; at < end && !rc;) {
		size_t n = (size_t)MIN(end - at, sizeof(buf));

		rc = ckpt_hdf5_read(h, at, buf, n);
		for (size_t i = 0; i < n && !rc; i++)
			if (at + i >= hole && at + i - hole < SUM_BYTES)
				buf[i] = 0;
		if (!rc)
			ckpt_lookup3_add(&sum, buf, n);
		at += n;
	}
	*ret_sum = ckpt_lookup3_end(&sum);
	return rc;
}

static int check(struct ckpt_hdf5 *h, const char *field, uint64_t at, uint64_t bytes, uint64_t place)
{
	uint8_t stored[SUM_BYTES];
	uint32_t sum;
	bool before;
	int rc;

	if (at > h->bytes || bytes > h->bytes - at)
		return ckpt_catalog_refuse(h->reading, field, "a part of it lies outside of the file");
	rc = ckpt_hdf5_see(&h->summed, at, &before);
	if (rc || before)
		return rc;
	rc = ckpt_hdf5_read(h, place, stored, sizeof(stored));
	if (!rc)
		rc = sum_of(h, at, bytes, place, &sum);
	if (rc || ckpt_get32(stored) == sum)
		return rc;
	return ckpt_catalog_refuse(h->reading, field, "its checksum, byte %llu of the file, is %08x and should be %08x",
				   (unsigned long long)(h->begin + place), ckpt_get32(stored), sum);
}

int ckpt_hdf5_check(struct ckpt_hdf5 *h, const char *field, uint64_t at, uint64_t bytes)
{
	return check(h, field, at, bytes, at + bytes);
}

int ckpt_hdf5_check_inside(struct ckpt_hdf5 *h, const char *field, uint64_t at, uint64_t bytes, uint64_t place)
{
	return check(h, field, at, bytes, place);
}
