#include "tests/support/rows.h"

#include "tests/support/formats.h"

#include "core/base/hash.h"
#include "core/base/util.h"

#include <stdio.h>

void ckpt_rows_dir(char *ret_dir)
{
	char parent[PATH_MAX];

	ckpt_temp_dir(parent);
	ck_assert_int_lt(snprintf(ret_dir, PATH_MAX, "%.*s/index", PATH_MAX - 10, parent), PATH_MAX);
}

void ckpt_rows_path(const char *dir, const char *name, char *ret_path)
{
	ck_assert_int_lt(snprintf(ret_path, PATH_MAX, "%.*s/%s", PATH_MAX - 40, dir, name), PATH_MAX);
}

struct ckpt_index *ckpt_rows_make(const char *dir, uint32_t count)
{
	struct ckpt_index *ix;
	bool fresh;

	ck_ok(ckpt_index_open(dir, CKPT_SAMPLE_STORE, false, &ix, &fresh));
	ck_assert(fresh);
	for (uint32_t i = 0; i < count; i++)
		ck_ok(ckpt_row_put(ix, i));
	return ix;
}

static size_t make_row(uint32_t i, uint8_t sha256[CKPT_SHA256_LEN], uint8_t manifest[CKPT_ROW_BYTES_MAX])
{
	size_t len = i % 2 ? 400 : CKPT_ROW_BYTES_MAX;

	for (uint32_t k = 0; k < len; k++)
		manifest[k] = (uint8_t)(k * 31 + i);
	ckpt_put32(manifest, i);
	ckpt_sha256(manifest, len, sha256);
	return len;
}

int ckpt_row_put(struct ckpt_index *to, uint32_t i)
{
	uint8_t sha256[CKPT_SHA256_LEN], manifest[CKPT_ROW_BYTES_MAX];
	size_t len = make_row(i, sha256, manifest);

	return ckpt_index_put_manifest(to, sha256, manifest, len);
}

int ckpt_row_check(struct ckpt_index *from, uint32_t i)
{
	uint8_t sha256[CKPT_SHA256_LEN], manifest[CKPT_ROW_BYTES_MAX];
	size_t expected = make_row(i, sha256, manifest), len;
	void *data;
	int r = ckpt_index_manifest(from, sha256, &data, &len);

	if (!r) {
		if (len != expected || memcmp(data, manifest, len))
			ck_abort_msg("manifest %u is wrong", i);
		free(data);
	}
	if (r && r != -ENOENT && r != -EBADMSG)
		ck_abort_msg("manifest %u: %d", i, r);
	return r;
}

int ckpt_rows_count(struct ckpt_index *from)
{
	struct ckpt_index_stat stat;
	int r = ckpt_index_stat(from, &stat);

	return r ? r : (int)stat.manifests;
}
