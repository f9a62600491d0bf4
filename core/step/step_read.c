// What a committed step has on disk: its raw files, its records and its manifests.
#include "core/step/step.h"

#include "core/base/hash.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/index/index.h"
#include "core/index/indexer.h"
#include "core/objects/objects.h"
#include "core/record/manifest.h"
#include "core/step/attributes.h"
#include "core/step/errlog.h"
#include "core/step/store.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#define NUMBERS_TRIED 3 // of a version, each after the last one was given away

int ckpt_step_raw_path(const struct ckpt_step *step, const struct ckpt_manifest *m, uint32_t index, char *buf,
		       size_t cap)
{
	struct ckpt_entry e;
	int n;

	ckpt_manifest_entry(m, index, &e);
	if (e.type != CKPT_ENTRY_FILE)
		return -EINVAL;
	n = snprintf(buf, cap, "%s/", ckpt_manifest_session(m, e.session) ?: step->session);
	if (e.raw_path)
		n = snprintf(buf + n, cap - (size_t)n, "%s", e.raw_path);
	else
		n = ckpt_manifest_path(m, index, buf + n, cap - (size_t)n);
	return MIN(n, 0);
}

static bool is_time(const struct stat *st, int64_t s, int64_t ns)
{
	return st->st_mtim.tv_sec == s && st->st_mtim.tv_nsec == ns;
}

// A file that packs can stand in for is believed only with the mtime that it was written with, which the entry has, or says of its
// raw file. A wrong refusal costs a read of packs; where there are none it would cost the file.
static bool is_raw_of(const struct ckpt_manifest *m, uint32_t index, const struct stat *st)
{
	struct timespec mtime;
	struct ckpt_entry e;
	uint32_t mode;

	ckpt_manifest_entry(m, index, &e);
	if (!S_ISREG(st->st_mode) || (uint64_t)st->st_size != e.bytes)
		return false;
	return e.content != CKPT_CONTENT_CHUNKS || is_time(st, e.mtime_s, e.mtime_ns) ||
	       (ckpt_attributes_raw(m, &e, &mode, &mtime) && is_time(st, mtime.tv_sec, mtime.tv_nsec));
}

bool ckpt_step_has_raw(const struct ckpt_step *step, const struct ckpt_manifest *m, uint32_t index)
{
	char path[CKPT_RAW_PATH_MAX];
	struct stat st;

	return !ckpt_step_raw_path(step, m, index, path, sizeof(path)) &&
	       !fstatat(step->store->sessions_fd, path, &st, AT_SYMLINK_NOFOLLOW) && is_raw_of(m, index, &st);
}

int ckpt_step_open_raw(struct ckpt_step *step, const struct ckpt_manifest *m, uint32_t index, int *ret_fd)
{
	char path[CKPT_RAW_PATH_MAX];
	struct stat st;
	int fd, rc = ckpt_step_raw_path(step, m, index, path, sizeof(path));

	if (rc)
		return rc;
	fd = ckpt_sys.open(step->store->sessions_fd, path, O_RDONLY | O_NONBLOCK, 0);
	if (fd < 0)
		return fd == -ENOENT || fd == -ELOOP || fd == -ENOTDIR ? -EIO : fd;
	if (fstat(fd, &st))
		rc = -errno;
	else if (!is_raw_of(m, index, &st))
		rc = -EIO;
	if (rc) {
		ckpt_sys.close(fd);
		return rc;
	}
	*ret_fd = fd;
	return 0;
}

int ckpt_step_record(struct ckpt_step *step, uint32_t version, struct ckpt_record *ret_record)
{
	return ckpt_journal_record(step->store->journal, step->session, version, ret_record);
}

// --- Manifests --------------------------------------------------------------------------------------------------------

static int parse_checked(void *data, size_t len, const uint8_t sha256[32], struct ckpt_manifest **ret_manifest)
{
	struct ckpt_manifest *m;
	int rc = ckpt_manifest_parse(data, len, &m);

	if (rc)
		return rc;
	if (memcmp(ckpt_manifest_sha256(m), sha256, 32)) {
		ckpt_manifest_unref(m);
		return -EBADMSG;
	}
	*ret_manifest = m;
	return 0;
}

static bool has_nonce_of(const struct ckpt_summary *sum, const struct ckpt_summary *is)
{
	return !memcmp(sum->nonce, is->nonce, sizeof(sum->nonce));
}

// The version may have come from the remote's log since the caller looked, with another manifest of the same files: it has the same nonce then.
static bool is_of(const struct ckpt_summary *sum, const struct ckpt_summary *is)
{
	return !memcmp(sum->manifest_sha256, is->manifest_sha256, CKPT_SHA256_LEN) || has_nonce_of(sum, is);
}

// -ESTALE: the version of this number has another manifest.
static int record_of(struct ckpt_step *step, uint32_t version, const struct ckpt_summary *sum, struct ckpt_record *ret)
{
	int rc = ckpt_step_record(step, version, ret);

	if (rc || is_of(sum, &ret->summary))
		return rc;
	ckpt_record_done(ret);
	return -ESTALE;
}

// The record that has the manifest in it. An entry of the remote's log may have given the version's number to one of another node since,
// and a later number to that of this node, which the step follows a moment later.
static int find_record(struct ckpt_step *step, const struct ckpt_summary *sum, struct ckpt_record *ret)
{
	struct ckpt_said said;
	int rc = record_of(step, sum->version, sum, ret);

	for (int i = 0; i < NUMBERS_TRIED && (rc == -ESTALE || rc == -ENOENT); i++)
		if (ckpt_step_said(step->store, step->session, &said) || said.is.version <= sum->version ||
		    !is_of(sum, &said.is))
			return rc;
		else
			rc = record_of(step, said.is.version, sum, ret);
	return rc;
}

static int manifest_object(struct ckpt_step *step, const struct ckpt_summary *sum, struct ckpt_manifest **ret_manifest)
{
	char key[2 + 64 + 1] = "m/";
	void *data = NULL;
	size_t len = 0;
	int rc;

	ckpt_hex(sum->manifest_sha256, 32, key + 2);
	rc = ckpt_objects_get_all(step->store->objects, key, CKPT_MANIFEST_BYTES_MAX, &data, &len, NULL);
	if (rc)
		return rc == -ENOENT ? -EBADMSG : rc;
	return parse_checked(data, len, sum->manifest_sha256, ret_manifest);
}

static int manifest_from_store(struct ckpt_step *step, const struct ckpt_summary *sum,
			       struct ckpt_manifest **ret_manifest)
{
	const struct ckpt_summary *is = sum;
	struct ckpt_record r;
	void *data;
	int rc;

	if (sum->manifest_bytes > CKPT_MANIFEST_EMBED_MAX)
		return manifest_object(step, sum, ret_manifest);
	rc = find_record(step, sum, &r);
	if (rc)
		return rc;
	if (has_nonce_of(sum, &r.summary))
		is = &r.summary;
	data = TAKE_PTR(r.manifest);
	if (data)
		rc = parse_checked(data, r.manifest_len, is->manifest_sha256, ret_manifest);
	else
		rc = is == sum ? -EBADMSG : manifest_object(step, is, ret_manifest);
	ckpt_record_done(&r);
	return rc;
}

// It may have come from afar, and is not asked for there again. Without memory it is.
static void put_into_index(struct ckpt_store *s, const struct ckpt_manifest *m)
{
	struct ckpt_indexer *indexer = *ckpt_indexer_of(s);
	size_t len;
	const void *data = ckpt_manifest_data(m, &len);
	void *copy = indexer ? malloc(len) : NULL;

	if (!copy)
		return;
	memcpy(copy, data, len);
	ckpt_indexer_put(indexer, ckpt_manifest_sha256(m), copy, len);
}

// The index is asked first, and believed only when the digest agrees.
int ckpt_step_read_manifest(struct ckpt_step *step, const struct ckpt_summary *sum, struct ckpt_manifest **ret_manifest)
{
	struct ckpt_index *ix = step->store->index;
	void *data = NULL;
	size_t len;
	int rc;

	if (sum->manifest_bytes > CKPT_MANIFEST_EMBED_MAX && ix &&
	    !ckpt_index_manifest(ix, sum->manifest_sha256, &data, &len) &&
	    !parse_checked(data, len, sum->manifest_sha256, ret_manifest))
		return 0;
	rc = manifest_from_store(step, sum, ret_manifest);
	if (!rc && sum->manifest_bytes > CKPT_MANIFEST_EMBED_MAX)
		put_into_index(step->store, *ret_manifest);
	if (rc == -EBADMSG)
		ckpt_errlog_add(step->store->errlog, step->name, rc, "run `ckptfs verify` on the store",
				"the manifest of version %u is damaged or missing", sum->version);
	return rc;
}

int ckpt_step_read_current(struct ckpt_step *step, struct ckpt_manifest **ret_manifest)
{
	CLEANUP_VERSION struct ckpt_version *v = ckpt_step_version(step);

	return ckpt_step_read_manifest(step, &v->is, ret_manifest);
}
