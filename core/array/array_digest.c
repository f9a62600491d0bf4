#include "core/array/array_digest.h"

#include "core/base/util.h"

void ckpt_array_digest_begin(struct ckpt_array_digest *d, uint64_t bytes)
{
	*d = (struct ckpt_array_digest){.one = bytes <= CKPT_ARRAY_DIGEST_PART};
	ckpt_sha256_begin(&d->parts);
	ckpt_sha256_begin(&d->part);
}

void ckpt_array_digest_add_part(struct ckpt_array_digest *d, const uint8_t sha256[CKPT_SHA256_LEN])
{
	memcpy(d->last, sha256, sizeof(d->last));
	d->any = true;
	if (!d->one)
		ckpt_sha256_add(&d->parts, sha256, CKPT_SHA256_LEN);
}

static void end_part(struct ckpt_array_digest *d)
{
	uint8_t sha256[CKPT_SHA256_LEN];

	ckpt_sha256_end(&d->part, sha256);
	ckpt_array_digest_add_part(d, sha256);
	ckpt_sha256_begin(&d->part);
	d->in_part = 0;
}

void ckpt_array_digest_add(struct ckpt_array_digest *d, const void *bytes, size_t len)
{
	const uint8_t *at = bytes;

	while (len) {
		size_t n = (size_t)MIN(CKPT_ARRAY_DIGEST_PART - d->in_part, (uint64_t)len);

		ckpt_sha256_add(&d->part, at, n);
		d->in_part += n;
		at += n;
		len -= n;
		if (d->in_part == CKPT_ARRAY_DIGEST_PART)
			end_part(d);
	}
}

// An array without elements has one part without bytes.
void ckpt_array_digest_end(struct ckpt_array_digest *d, uint8_t ret_digest[CKPT_SHA256_LEN])
{
	if (d->in_part || !d->any)
		end_part(d);
	if (d->one)
		memcpy(ret_digest, d->last, CKPT_SHA256_LEN);
	else
		ckpt_sha256_end(&d->parts, ret_digest);
}
