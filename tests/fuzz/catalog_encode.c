// Hostile catalogs of manifests. Each input is tried as it is, and as what a frame of zstd holds, so that mutations meet the grammar. What is taken
// comes back as it is when it is written again.
#include "tests/fuzz/replay.h"

#include "tests/support/catalog_files.h"

#include "core/array/catalog_encode.h"
#include "core/array/catalog_form.h"
#include "core/base/util.h"
#include "core/codec/codec_zstd.h"

#define ROOM 1024 // of a frame that becomes no smaller

static void try_bytes(const void *bytes, size_t len)
{
	struct ckpt_catalog *c, *again;
	void *encoded;
	size_t encoded_len;
	int rc = ckpt_catalog_decode(bytes, len, &c);

	fuzz_assert(rc == 0 || rc == -EBADMSG || rc == -ENOTSUP);
	if (rc)
		return;
	fuzz_assert(!ckpt_catalog_encode(c, &encoded, &encoded_len));
	fuzz_assert(!ckpt_catalog_decode(encoded, encoded_len, &again));
	fuzz_assert(ckpt_same_catalogs(c, again));
	free(encoded);
	ckpt_catalog_free(again);
	ckpt_walk_catalog(c, INT64_MAX);
	ckpt_catalog_free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	CLEANUP_FREE uint8_t *framed = malloc(FORM_HEAD + len + ROOM);
	struct ckpt_zstd *z;
	uint32_t stored;

	try_bytes(data, len);
	if (!len || !framed || ckpt_zstd_new(&z))
		return 0;
	fuzz_assert(!ckpt_zstd_encode(z, CKPT_ZSTD_FAST, data, (uint32_t)len, framed + FORM_HEAD, (uint32_t)len + ROOM,
				      &stored));
	ckpt_zstd_free(z);
	ckpt_put32(framed + FORM_VERSION, CKPT_CATALOG_FORM);
	ckpt_put32(framed + FORM_PLAIN, (uint32_t)len);
	try_bytes(framed, FORM_HEAD + stored);
	return 0;
}
