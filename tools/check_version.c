#include "tools/check_version.h"

#include "core/base/hash.h"
#include "core/base/util.h"
#include "core/cold/file.h"
#include "tools/output.h"

#include <limits.h>
#include <stdio.h>

#define PIECE (1u << 20)

// 0, -errno: of all bytes.
static int read_all(struct ckpt_check_version *c, struct ckpt_file *f, uint8_t ret_sha256[CKPT_SHA256_LEN])
{
	CLEANUP_FREE char *buf = ckpt_need(malloc(PIECE));
	struct ckpt_sha256 sum;

	ckpt_sha256_begin(&sum);
	for (uint64_t at = 0; at < ckpt_file_bytes(f);) {
		ssize_t n = ckpt_file_read(f, buf, PIECE, at);

		if (n < 0)
			return (int)n;
		ckpt_sha256_add(&sum, buf, (size_t)n);
		c->progress(c->arg, (uint64_t)n);
		at += (uint64_t)n;
	}
	ckpt_sha256_end(&sum, ret_sha256);
	return 0;
}

static void check_data(struct ckpt_check_version *c, struct ckpt_manifest *m, uint32_t index, struct ckpt_file *f,
		       const char *path)
{
	uint8_t sha256[CKPT_SHA256_LEN];
	struct ckpt_seal seal;
	int rc = read_all(c, f, sha256);

	if (rc)
		c->bad(c->arg, path, "cannot be read");
	else if (!ckpt_manifest_seal(m, index, &seal))
		c->unsealed++;
	else if (memcmp(seal.sha256, sha256, sizeof(sha256)) != 0)
		c->bad(c->arg, path, "its bytes do not match its SHA-256");
}

static void check_file(struct ckpt_check_version *c, struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index)
{
	char path[PATH_MAX] = "";
	struct ckpt_file *f;

	(void)ckpt_manifest_path(m, index, path, sizeof(path));
	if (ckpt_file_open(step, m, index, &f)) {
		c->bad(c->arg, path, "its bytes are missing");
		return;
	}
	c->bytes += ckpt_file_bytes(f);
	if (c->read_data)
		check_data(c, m, index, f, path);
	else
		c->progress(c->arg, 1);
	ckpt_file_close(f);
}

void ckpt_check_version(struct ckpt_step *step, struct ckpt_manifest *m, struct ckpt_check_version *c)
{
	for (uint32_t i = 1; i < ckpt_manifest_count(m); i++) {
		struct ckpt_entry e;

		ckpt_manifest_entry(m, i, &e);
		if (e.type == CKPT_ENTRY_DIR || ckpt_manifest_first_link(m, i) != i)
			continue;
		c->files++;
		if (e.type == CKPT_ENTRY_FILE && e.bytes)
			check_file(c, step, m, i);
	}
}
