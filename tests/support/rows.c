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

void ckpt_row_of(uint32_t i, char key[CKPT_STEP_KEY_MAX], struct ckpt_summary *s,
		 uint8_t manifest[CKPT_ROW_MANIFEST_BYTES])
{
	char name[32];

	snprintf(name, sizeof(name), "step_%05u", i);
	ckpt_sample_summary(s, name, 1 + i % 3);
	memset(s->folder_id, 0, sizeof(s->folder_id));
	s->sequence = i;
	for (uint32_t k = 0; k < CKPT_ROW_MANIFEST_BYTES; k++)
		manifest[k] = (uint8_t)(k * 31 + i);
	ckpt_put32(manifest, i);
	s->manifest_bytes = CKPT_ROW_MANIFEST_BYTES;
	ckpt_sha256(manifest, CKPT_ROW_MANIFEST_BYTES, s->manifest_sha256);
	ck_ok(ckpt_name_key(s->folder_id, s->name, key));
}

// Manifests of 100 bytes to CKPT_ROW_MANIFEST_BYTES: in the leaf and in pages of their own.
static size_t manifest_len(uint32_t i)
{
	return i % 2 ? 100 : CKPT_ROW_MANIFEST_BYTES;
}

int ckpt_row_put(struct ckpt_index *to, uint32_t i)
{
	char key[CKPT_STEP_KEY_MAX];
	struct ckpt_summary s;
	uint8_t manifest[CKPT_ROW_MANIFEST_BYTES];

	ckpt_row_of(i, key, &s, manifest);
	return ckpt_index_put(to, key, &s, manifest, manifest_len(i));
}

struct wanted {
	const char *key;
	uint32_t version;
	struct ckpt_summary *found;
};

static int is_wanted(void *arg, const char *key, const struct ckpt_summary *summary)
{
	const struct wanted *w = arg;

	if (summary->version != w->version || strcmp(key, w->key))
		return 0;
	*w->found = *summary;
	return 1;
}

int ckpt_rows_get(struct ckpt_index *from, const char *key, uint32_t version, struct ckpt_summary *ret_summary)
{
	struct wanted w = {key, version, ret_summary};
	int r = ckpt_index_each(from, is_wanted, &w);

	return r == 1 ? 0 : r ? r : -ENOENT;
}

int ckpt_row_check(struct ckpt_index *from, uint32_t i)
{
	char key[CKPT_STEP_KEY_MAX];
	struct ckpt_summary s, found;
	uint8_t manifest[CKPT_ROW_MANIFEST_BYTES];
	void *data;
	size_t len;
	int r;

	ckpt_row_of(i, key, &s, manifest);
	r = ckpt_rows_get(from, key, s.version, &found);
	if (r && r != -ENOENT && r != -EBADMSG)
		ck_abort_msg("version %u: %d", i, r);
	if (!r && memcmp(&s, &found, sizeof(s)))
		ck_abort_msg("row %u is wrong", i);
	if (r)
		return r;
	r = ckpt_index_manifest(from, s.manifest_sha256, &data, &len);
	if (r == -ENOENT)
		return -ENODATA;
	if (!r) {
		if (len != manifest_len(i) || memcmp(data, manifest, len))
			ck_abort_msg("manifest %u is wrong", i);
		free(data);
	}
	if (r && r != -EBADMSG)
		ck_abort_msg("row %u: %d", i, r);
	return r;
}

static int count_row(void *arg, const char *key, const struct ckpt_summary *summary)
{
	ck_assert_str_eq(key, summary->name); // names here need no encoding
	return ++*(int *)arg == -1;
}

int ckpt_rows_count(struct ckpt_index *from)
{
	int count = 0, r = ckpt_index_each(from, count_row, &count);

	return r ? r : count;
}
