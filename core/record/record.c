#include "core/record/record.h"

#include "core/base/hash.h"
#include "core/base/util.h"
#include "core/base/uuid.h"
#include "core/record/container.h"

// record  := container("ckpt-rec") { summary store [metadata] [manifest] }
// summary := fixed part, name

#define SECTION_SUMMARY CKPT_FOURCC('S', 'U', 'M', 'M')
#define SECTION_STORE CKPT_FOURCC('S', 'T', 'O', 'R')
#define SECTION_METADATA CKPT_FOURCC('M', 'E', 'T', 'A')
#define SECTION_MANIFEST CKPT_FOURCC('M', 'A', 'N', 'I')

#define FORM_COMMITTED 1
#define FORM_DELETED 2 // refused as newer by who does not know deletions, and not taken for a step
#define FLAG_TEMPORARY 1u
#define FLAG_PINNED 2u
#define FLAG_SEALED 4u
#define FLAG_PACKED 8u

enum {
	SUMMARY_LENGTH = 0,
	SUMMARY_FORM_AT = 4,
	SUMMARY_NAME_LEN = 6,
	SUMMARY_VERSION = 8,
	SUMMARY_DURABLE = 12,
	SUMMARY_NUMBER = 16,
	SUMMARY_FILES = 24,
	SUMMARY_SIZE = 32,
	SUMMARY_COMMITTED = 40,
	SUMMARY_FIRST_COMMITTED = 48,
	SUMMARY_SEQUENCE = 56,
	SUMMARY_MANIFEST_LEN = 64,
	SUMMARY_DIR_INO = 72,
	SUMMARY_DIR_MTIME = 80,
	SUMMARY_DIR_MODE = 88,
	SUMMARY_DIR_UID = 92,
	SUMMARY_DIR_GID = 96,
	SUMMARY_DIR_NLINK = 100,
	SUMMARY_FLAGS = 104,
	SUMMARY_ZERO = 108,
	SUMMARY_NONCE = 112,
	SUMMARY_SHA256 = 128,
	SUMMARY_FOLDER = 160,
	SUMMARY_SESSION = 176,
	SUMMARY_EVENT = 216,
	SUMMARY_PROFILE = 248,
	SUMMARY_NAME = 280,

	FOLDER_BYTES = 16,
	SESSION_BYTES = 40,
	WORD_BYTES = 32,
};

static const uint32_t known_sections[] = {SECTION_SUMMARY, SECTION_STORE, SECTION_METADATA, SECTION_MANIFEST};

static const struct ckpt_container_kind record_kind = {
	.magic = {'c', 'k', 'p', 't', '-', 'r', 'e', 'c'},
	.major = 1,
	.minor = 0,
	.required_known = 0,
	.types = known_sections,
	.type_count = ARRAY_LEN(known_sections),
	.bytes_max = CKPT_RECORD_BYTES_MAX,
};

// Printable ASCII without spaces, or empty.
static bool is_word(const char *text, size_t cap)
{
	size_t len = strnlen(text, cap);

	for (size_t i = 0; i < len; i++)
		if (text[i] <= ' ' || text[i] > '~')
			return false;
	return len < cap;
}

static bool summary_ok(const struct ckpt_summary *s)
{
	if (!s->version || s->number < -1 || s->dir_mode & ~07777u)
		return false;
	if (s->files > CKPT_STEP_FILES_MAX || s->bytes > INT64_MAX || s->manifest_bytes > CKPT_MANIFEST_BYTES_MAX)
		return false;
	if (s->session[0] && !ckpt_uuid_check(s->session))
		return false;
	if (!is_word(s->event, sizeof(s->event)) || !is_word(s->profile, sizeof(s->profile)))
		return false;
	return ckpt_name_is_folder_id(s->folder_id) && !ckpt_name_check(s->name, strnlen(s->name, sizeof(s->name)));
}

int ckpt_summary_encode(const struct ckpt_summary *s, void **ret_data, size_t *ret_len)
{
	size_t name_len = strnlen(s->name, sizeof(s->name)), len = SUMMARY_NAME + name_len;
	uint32_t flags = (s->temporary ? FLAG_TEMPORARY : 0) | (s->pinned ? FLAG_PINNED : 0) |
			 (s->sealed ? FLAG_SEALED : 0) | (s->packed ? FLAG_PACKED : 0);
	uint8_t *p;

	if (!summary_ok(s))
		return -EINVAL;
	p = ckpt_calloc(1, len);
	if (!p)
		return -ENOMEM;
	ckpt_put32(p + SUMMARY_LENGTH, (uint32_t)len);
	ckpt_put16(p + SUMMARY_FORM_AT, s->deleted ? FORM_DELETED : FORM_COMMITTED);
	ckpt_put16(p + SUMMARY_NAME_LEN, (uint16_t)name_len);
	ckpt_put32(p + SUMMARY_VERSION, s->version);
	ckpt_put32(p + SUMMARY_DURABLE, s->durable);
	ckpt_put64(p + SUMMARY_NUMBER, (uint64_t)s->number);
	ckpt_put64(p + SUMMARY_FILES, s->files);
	ckpt_put64(p + SUMMARY_SIZE, s->bytes);
	ckpt_put64(p + SUMMARY_COMMITTED, (uint64_t)s->committed_ns);
	ckpt_put64(p + SUMMARY_FIRST_COMMITTED, (uint64_t)s->first_committed_ns);
	ckpt_put64(p + SUMMARY_SEQUENCE, s->sequence);
	ckpt_put64(p + SUMMARY_MANIFEST_LEN, s->manifest_bytes);
	ckpt_put64(p + SUMMARY_DIR_INO, s->dir_ino);
	ckpt_put64(p + SUMMARY_DIR_MTIME, (uint64_t)s->dir_mtime_ns);
	ckpt_put32(p + SUMMARY_DIR_MODE, s->dir_mode);
	ckpt_put32(p + SUMMARY_DIR_UID, s->dir_uid);
	ckpt_put32(p + SUMMARY_DIR_GID, s->dir_gid);
	ckpt_put32(p + SUMMARY_DIR_NLINK, s->dir_nlink);
	ckpt_put32(p + SUMMARY_FLAGS, flags);
	memcpy(p + SUMMARY_NONCE, s->nonce, sizeof(s->nonce));
	memcpy(p + SUMMARY_SHA256, s->manifest_sha256, sizeof(s->manifest_sha256));
	memcpy(p + SUMMARY_FOLDER, s->folder_id, strlen(s->folder_id));
	memcpy(p + SUMMARY_SESSION, s->session, strlen(s->session));
	memcpy(p + SUMMARY_EVENT, s->event, strlen(s->event));
	memcpy(p + SUMMARY_PROFILE, s->profile, strlen(s->profile));
	memcpy(p + SUMMARY_NAME, s->name, name_len);
	*ret_data = p;
	*ret_len = len;
	return 0;
}

// A string of a fixed field: what follows its end is zero, so that each content has one form.
static bool take_text(const uint8_t *field, size_t bytes, char *out, size_t cap)
{
	size_t len = strnlen((const char *)field, bytes);

	if (len >= cap)
		return false;
	for (size_t i = len; i < bytes; i++)
		if (field[i])
			return false;
	memset(out, 0, cap);
	memcpy(out, field, len);
	return true;
}

int ckpt_summary_decode(const void *data, size_t len, struct ckpt_summary *ret)
{
	const uint8_t *p = data;
	struct ckpt_summary s = {0};

	if (len < SUMMARY_NAME || ckpt_get32(p + SUMMARY_LENGTH) != len)
		return -EBADMSG;
	s.deleted = ckpt_get16(p + SUMMARY_FORM_AT) == FORM_DELETED;
	if (!s.deleted && ckpt_get16(p + SUMMARY_FORM_AT) != FORM_COMMITTED)
		return ckpt_get16(p + SUMMARY_FORM_AT) > FORM_DELETED ? -ENOTSUP : -EBADMSG;
	if (ckpt_get16(p + SUMMARY_NAME_LEN) != len - SUMMARY_NAME)
		return -EBADMSG;
	if (ckpt_get32(p + SUMMARY_FLAGS) & ~(FLAG_TEMPORARY | FLAG_PINNED | FLAG_SEALED | FLAG_PACKED) ||
	    ckpt_get32(p + SUMMARY_ZERO))
		return -EBADMSG;
	if (!take_text(p + SUMMARY_FOLDER, FOLDER_BYTES, s.folder_id, sizeof(s.folder_id)) ||
	    !take_text(p + SUMMARY_SESSION, SESSION_BYTES, s.session, sizeof(s.session)) ||
	    !take_text(p + SUMMARY_EVENT, WORD_BYTES, s.event, sizeof(s.event)) ||
	    !take_text(p + SUMMARY_PROFILE, WORD_BYTES, s.profile, sizeof(s.profile)))
		return -EBADMSG;
	if (memchr(p + SUMMARY_NAME, 0, len - SUMMARY_NAME) ||
	    !take_text(p + SUMMARY_NAME, len - SUMMARY_NAME, s.name, sizeof(s.name)))
		return -EBADMSG;
	s.version = ckpt_get32(p + SUMMARY_VERSION);
	s.durable = ckpt_get32(p + SUMMARY_DURABLE);
	s.number = (int64_t)ckpt_get64(p + SUMMARY_NUMBER);
	s.files = ckpt_get64(p + SUMMARY_FILES);
	s.bytes = ckpt_get64(p + SUMMARY_SIZE);
	s.committed_ns = (int64_t)ckpt_get64(p + SUMMARY_COMMITTED);
	s.first_committed_ns = (int64_t)ckpt_get64(p + SUMMARY_FIRST_COMMITTED);
	s.sequence = ckpt_get64(p + SUMMARY_SEQUENCE);
	s.manifest_bytes = ckpt_get64(p + SUMMARY_MANIFEST_LEN);
	s.dir_ino = ckpt_get64(p + SUMMARY_DIR_INO);
	s.dir_mtime_ns = (int64_t)ckpt_get64(p + SUMMARY_DIR_MTIME);
	s.dir_mode = ckpt_get32(p + SUMMARY_DIR_MODE);
	s.dir_uid = ckpt_get32(p + SUMMARY_DIR_UID);
	s.dir_gid = ckpt_get32(p + SUMMARY_DIR_GID);
	s.dir_nlink = ckpt_get32(p + SUMMARY_DIR_NLINK);
	s.temporary = ckpt_get32(p + SUMMARY_FLAGS) & FLAG_TEMPORARY;
	s.pinned = ckpt_get32(p + SUMMARY_FLAGS) & FLAG_PINNED;
	s.sealed = ckpt_get32(p + SUMMARY_FLAGS) & FLAG_SEALED;
	s.packed = ckpt_get32(p + SUMMARY_FLAGS) & FLAG_PACKED;
	memcpy(s.nonce, p + SUMMARY_NONCE, sizeof(s.nonce));
	memcpy(s.manifest_sha256, p + SUMMARY_SHA256, sizeof(s.manifest_sha256));
	if (!summary_ok(&s))
		return -EBADMSG;
	*ret = s;
	return 0;
}

// The embedded manifest is the one that the summary names.
static bool manifest_matches(const struct ckpt_summary *s, const void *manifest, size_t len)
{
	uint8_t digest[sizeof(s->manifest_sha256)];

	if (!len || len > CKPT_MANIFEST_EMBED_MAX || s->manifest_bytes != len)
		return false;
	ckpt_sha256(manifest, len, digest);
	return !memcmp(digest, s->manifest_sha256, sizeof(digest));
}

int ckpt_record_encode(const struct ckpt_record *r, void **ret_data, size_t *ret_len)
{
	CLEANUP_FREE void *summary = NULL;
	struct ckpt_section sections[ARRAY_LEN(known_sections)];
	size_t count = 0, summary_len = 0, metadata_len = r->metadata ? strlen(r->metadata) : 0;
	int result;

	if (metadata_len > CKPT_METADATA_BYTES_MAX || (r->manifest && r->manifest_len > CKPT_MANIFEST_EMBED_MAX))
		return -EFBIG;
	if (!ckpt_uuid_check(r->store_id) || !ckpt_name_is_utf8(r->metadata ? r->metadata : "", metadata_len))
		return -EINVAL;
	if (r->manifest && r->summary.deleted)
		return -EINVAL;
	if (r->manifest && !manifest_matches(&r->summary, r->manifest, r->manifest_len))
		return -EINVAL;
	result = ckpt_summary_encode(&r->summary, &summary, &summary_len);
	if (result)
		return result;
	sections[count++] = (struct ckpt_section){SECTION_SUMMARY, true, summary, summary_len};
	sections[count++] = (struct ckpt_section){SECTION_STORE, true, r->store_id, CKPT_UUID_LEN};
	if (r->metadata)
		sections[count++] = (struct ckpt_section){SECTION_METADATA, false, r->metadata, metadata_len};
	if (r->manifest)
		sections[count++] = (struct ckpt_section){SECTION_MANIFEST, true, r->manifest, r->manifest_len};
	return ckpt_container_encode(&record_kind, 0, 0, sections, count, ret_data, ret_len);
}

// A malloc'ed copy with a NUL behind. -ENOMEM.
static int copy_section(const struct ckpt_section *s, void **ret_copy)
{
	uint8_t *copy = malloc(s->len + 1);

	if (!copy)
		return -ENOMEM;
	if (s->len)
		memcpy(copy, s->data, s->len);
	copy[s->len] = '\0';
	*ret_copy = copy;
	return 0;
}

static int take_store(const struct ckpt_container *c, char store_id[CKPT_UUID_LEN + 1])
{
	struct ckpt_section s;

	if (ckpt_container_find(c, SECTION_STORE, &s) || s.len != CKPT_UUID_LEN)
		return -EBADMSG;
	memcpy(store_id, s.data, CKPT_UUID_LEN);
	store_id[CKPT_UUID_LEN] = '\0';
	return ckpt_uuid_check(store_id) ? 0 : -EBADMSG;
}

static int take_metadata(const struct ckpt_container *c, void **ret_metadata)
{
	struct ckpt_section s;

	if (ckpt_container_find(c, SECTION_METADATA, &s))
		return 0;
	if (s.len > CKPT_METADATA_BYTES_MAX || memchr(s.data, 0, s.len) || !ckpt_name_is_utf8(s.data, s.len))
		return -EBADMSG;
	return copy_section(&s, ret_metadata);
}

static int take_manifest(const struct ckpt_container *c, const struct ckpt_summary *summary, void **ret_manifest,
			 size_t *ret_len)
{
	struct ckpt_section s;

	if (ckpt_container_find(c, SECTION_MANIFEST, &s))
		return 0;
	if (summary->deleted || !manifest_matches(summary, s.data, s.len))
		return -EBADMSG;
	*ret_len = s.len;
	return copy_section(&s, ret_manifest);
}

int ckpt_record_decode(const void *data, size_t len, struct ckpt_record *ret)
{
	CLEANUP_FREE void *metadata = NULL, *manifest = NULL;
	struct ckpt_record record = {0};
	struct ckpt_container c;
	struct ckpt_section s;
	int r;

	r = ckpt_container_parse(&record_kind, data, len, &c);
	if (r)
		return r;
	if (ckpt_container_find(&c, SECTION_SUMMARY, &s))
		return -EBADMSG;
	r = ckpt_summary_decode(s.data, s.len, &record.summary);
	if (!r)
		r = take_store(&c, record.store_id);
	if (!r)
		r = take_metadata(&c, &metadata);
	if (!r)
		r = take_manifest(&c, &record.summary, &manifest, &record.manifest_len);
	if (r)
		return r;
	record.metadata = TAKE_PTR(metadata);
	record.manifest = TAKE_PTR(manifest);
	*ret = record;
	return 0;
}

void ckpt_record_done(struct ckpt_record *r)
{
	free(r->metadata);
	free(r->manifest);
	r->metadata = NULL;
	r->manifest = NULL;
	r->manifest_len = 0;
}
