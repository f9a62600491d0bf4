#include "tools/same_files.h"

#include "core/base/hash.h"
#include "core/base/util.h"
#include "core/cold/file.h"

#define READ_BYTES (UINT32_C(1) << 20)

struct side {
	struct ckpt_step *step;
	struct ckpt_manifest *m;
};

static int read_all(struct ckpt_file *f, void (*read)(uint64_t bytes), uint8_t ret_digest[CKPT_SHA256_LEN])
{
	CLEANUP_FREE void *buf = malloc(READ_BYTES);
	struct ckpt_sha256 sum;
	uint64_t offset = 0;
	ssize_t n = 1;

	if (!buf)
		return -ENOMEM;
	ckpt_sha256_begin(&sum);
	while (offset < ckpt_file_bytes(f) && (n = ckpt_file_read(f, buf, READ_BYTES, offset)) > 0) {
		ckpt_sha256_add(&sum, buf, (size_t)n);
		offset += (uint64_t)n;
		if (read)
			read((uint64_t)n);
	}
	ckpt_sha256_end(&sum, ret_digest);
	return n < 0 ? (int)n : offset < ckpt_file_bytes(f) ? -EIO : 0;
}

static int digest(const struct side *s, uint32_t index, void (*read)(uint64_t bytes),
		  uint8_t ret_digest[CKPT_SHA256_LEN])
{
	struct ckpt_seal seal;
	struct ckpt_file *f;
	int rc;

	if (ckpt_manifest_seal(s->m, index, &seal)) {
		memcpy(ret_digest, seal.sha256, CKPT_SHA256_LEN);
		return 0;
	}
	rc = ckpt_file_open(s->step, s->m, index, &f);
	if (rc)
		return rc;
	rc = read_all(f, read, ret_digest);
	ckpt_file_close(f);
	return rc;
}

// Manifests have their entries in one order, that of their names: what differs in a name differs in its place, too.
static bool is_alike(const struct side *a, const struct side *b, uint32_t i)
{
	struct ckpt_entry x, y;

	ckpt_manifest_entry(a->m, i, &x);
	ckpt_manifest_entry(b->m, i, &y);
	if (x.type != y.type || strcmp(x.name, y.name) || x.parent != y.parent)
		return false;
	if (x.type == CKPT_ENTRY_DIR)
		return x.mode == y.mode && x.child_first == y.child_first && x.child_count == y.child_count;
	if (x.mtime_s != y.mtime_s || x.mtime_ns != y.mtime_ns)
		return false;
	if (x.type == CKPT_ENTRY_SYMLINK)
		return !strcmp(x.target, y.target);
	return x.mode == y.mode && x.bytes == y.bytes && x.nlink == y.nlink &&
	       ckpt_manifest_first_link(a->m, i) == ckpt_manifest_first_link(b->m, i);
}

// The bytes of a file with several names count once.
static int has_same_bytes(const struct side *a, const struct side *b, uint32_t i, void (*read)(uint64_t bytes))
{
	uint8_t x[CKPT_SHA256_LEN], y[CKPT_SHA256_LEN];
	struct ckpt_entry e;
	int rc;

	ckpt_manifest_entry(a->m, i, &e);
	if (e.type != CKPT_ENTRY_FILE || !e.bytes || ckpt_manifest_first_link(a->m, i) != i)
		return 1;
	rc = digest(a, i, read, x);
	if (!rc)
		rc = digest(b, i, read, y);
	return rc ? rc : !memcmp(x, y, sizeof(x));
}

static int compare(const struct side *a, const struct side *b, void (*read)(uint64_t bytes))
{
	uint32_t count = ckpt_manifest_count(a->m);
	int same = count == ckpt_manifest_count(b->m);

	for (uint32_t i = 0; same && i < count; i++)
		same = is_alike(a, b, i);
	for (uint32_t i = 0; same > 0 && i < count; i++)
		same = has_same_bytes(a, b, i, read);
	return same;
}

int ckpt_same_files(struct ckpt_step *a, struct ckpt_step *b, void (*read)(uint64_t bytes))
{
	struct side x = {.step = a}, y = {.step = b};
	int rc = ckpt_step_manifest(a, &x.m);

	if (!rc)
		rc = ckpt_step_manifest(b, &y.m);
	if (!rc)
		rc = compare(&x, &y, read);
	ckpt_manifest_unref(x.m);
	ckpt_manifest_unref(y.m);
	return rc;
}
