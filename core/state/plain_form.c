// The plain tree as bytes, for a snapshot. A tree that acts could not have made is refused.
#include "core/state/plain.h"

#include "core/base/util.h"
#include "core/state/act.h"
#include "core/state/table.h"

// plains := count u32, zero u32, plain*
// plain  := version u64, modified i64, mode u32, node u32, type u16, length of name u16, length of content u32, its seq u64, offset u32,
//           zero u32, folder id (16), id (16), SHA-256 of the file, uid u32, gid u32, bytes of the file u64, name
enum {
	HEAD_BYTES = 8,

	VERSION = 0,
	TIME = 8,
	MODE = 16,
	NODE = 20,
	TYPE = 24,
	NAME_LEN = 26,
	CONTENT_LEN = 28,
	CONTENT_SEQ = 32,
	CONTENT_OFFSET = 40,
	ZEROS = 44,
	FOLDER = 48,
	ID = 64,
	SHA256 = 80,
	UID = 112,
	GID = 116,
	SIZE = 120,
	NAME = 128,

	TYPE_FOLDER = 0,
	TYPE_FILE = 1,
	TYPE_LINK = 2,
	TYPE_LARGE = 3,
};

size_t ckpt_plains_bytes(const struct ckpt_state *s)
{
	size_t bytes = HEAD_BYTES;

	for (size_t i = 0; i < s->plains.count; i++)
		bytes += NAME + strlen(s->plains.all[i]->name);
	return bytes;
}

static int by_version(const void *a, const void *b)
{
	uint64_t x = (*(struct ckpt_plain *const *)a)->version, y = (*(struct ckpt_plain *const *)b)->version;

	return (x > y) - (x < y);
}

static uint8_t *put_one(const struct ckpt_plain *e, const uint32_t *ranks, uint8_t *p)
{
	size_t len = strlen(e->name);

	memset(p, 0, NAME);
	ckpt_put64(p + VERSION, e->version);
	ckpt_put64(p + TIME, (uint64_t)e->mtime_ns);
	ckpt_put32(p + MODE, e->mode);
	ckpt_put32(p + NODE, ranks[e->node]);
	ckpt_put16(p + TYPE, *e->id ? TYPE_FOLDER : e->link ? TYPE_LINK : e->large ? TYPE_LARGE : TYPE_FILE);
	ckpt_put32(p + UID, e->uid);
	ckpt_put32(p + GID, e->gid);
	ckpt_put64(p + SIZE, e->size);
	ckpt_put16(p + NAME_LEN, (uint16_t)len);
	ckpt_put32(p + CONTENT_LEN, e->content.len);
	ckpt_put64(p + CONTENT_SEQ, e->content.seq);
	ckpt_put32(p + CONTENT_OFFSET, e->content.offset);
	memcpy(p + FOLDER, e->folder_id, strlen(e->folder_id));
	memcpy(p + ID, e->id, strlen(e->id));
	memcpy(p + SHA256, e->sha256, CKPT_SHA256_LEN);
	memcpy(p + NAME, e->name, len);
	return p + NAME + len;
}

struct ckpt_plain **ckpt_plains_sorted(const struct ckpt_state *s)
{
	size_t count = s->plains.count;
	struct ckpt_plain **sorted = ckpt_calloc(count + 1, sizeof(struct ckpt_plain *));

	if (sorted && count) {
		memcpy(sorted, s->plains.all, count * sizeof(*sorted));
		qsort(sorted, count, sizeof(*sorted), by_version);
	}
	return sorted;
}

int ckpt_plains_put(const struct ckpt_state *s, const uint32_t *ranks, uint8_t *at)
{
	size_t count = s->plains.count;
	CLEANUP_FREE struct ckpt_plain **sorted = ckpt_plains_sorted(s);

	if (!sorted)
		return -ENOMEM;
	ckpt_put32(at, (uint32_t)count);
	ckpt_put32(at + 4, 0);
	at += HEAD_BYTES;
	for (size_t i = 0; i < count; i++)
		at = put_one(sorted[i], ranks, at);
	return 0;
}

static bool take_id(const uint8_t *p, char ret_id[CKPT_FOLDER_ID_LEN + 1])
{
	static const uint8_t zeros[CKPT_FOLDER_ID_LEN];

	memcpy(ret_id, p, CKPT_FOLDER_ID_LEN);
	ret_id[CKPT_FOLDER_ID_LEN] = '\0';
	return !memcmp(p, zeros, sizeof(zeros)) || (*ret_id && ckpt_name_is_folder_id(ret_id));
}

// That of a link has no NUL, which is seen when it is read.
static bool has_content(const struct ckpt_plain *e)
{
	const struct ckpt_span *c = &e->content;
	uint8_t none[CKPT_SHA256_LEN];

	if (e->large ? c->len != CKPT_PLAIN_LARGE_BYTES || e->size <= CKPT_PLAIN_INLINE_MAX || e->size > INT64_MAX
		     : e->size != c->len)
		return false;
	if (c->len)
		return ckpt_span_check(c, e->link ? CKPT_PLAIN_TARGET_MAX : CKPT_PLAIN_INLINE_MAX);
	ckpt_sha256("", 0, none);
	return !e->link && !c->seq && !c->offset && !memcmp(e->sha256, none, sizeof(none));
}

static bool has_none(const struct ckpt_plain *e)
{
	static const uint8_t zeros[CKPT_SHA256_LEN];

	return !e->content.len && !e->size && !e->content.seq && !e->content.offset && !e->mtime_ns &&
	       !memcmp(e->sha256, zeros, sizeof(zeros));
}

// All but its name and its place among the others.
static int take_fields(const struct ckpt_state *s, const uint8_t *p, struct ckpt_plain *e)
{
	unsigned type = ckpt_get16(p + TYPE);
	uint64_t seq;

	if (type > TYPE_LARGE)
		return -ENOTSUP;
	*e = (struct ckpt_plain){
		.version = ckpt_get64(p + VERSION),
		.mtime_ns = (int64_t)ckpt_get64(p + TIME),
		.mode = ckpt_get32(p + MODE),
		.node = ckpt_get32(p + NODE),
		.uid = ckpt_get32(p + UID),
		.gid = ckpt_get32(p + GID),
		.link = type == TYPE_LINK,
		.large = type == TYPE_LARGE,
		.size = ckpt_get64(p + SIZE),
		.content = {.seq = ckpt_get64(p + CONTENT_SEQ),
			    .offset = ckpt_get32(p + CONTENT_OFFSET),
			    .len = ckpt_get32(p + CONTENT_LEN)},
	};
	memcpy(e->sha256, p + SHA256, CKPT_SHA256_LEN);
	seq = e->version >> CKPT_PLAIN_INDEX_BITS;
	if (!seq || seq > s->remote.seq || e->mode > CKPT_ACT_MODE_MAX || e->node >= s->node_count ||
	    ckpt_get32(p + ZEROS) || !take_id(p + FOLDER, e->folder_id) || !take_id(p + ID, e->id) ||
	    !*e->id != (type != TYPE_FOLDER))
		return -EBADMSG;
	return (*e->id ? has_none(e) : has_content(e)) ? 0 : -EBADMSG;
}

static int add(struct ckpt_state *s, const struct ckpt_plain *is, const char *name)
{
	struct ckpt_plain *e = ckpt_plain_new(is, name);
	int rc = e ? ckpt_plain_insert(s, e) : -ENOMEM;

	if (rc)
		free(e);
	return rc;
}

// The name stands behind the fields, with this many bytes to the end of all.
static int take_one(struct ckpt_state *s, const uint8_t *p, size_t left, uint64_t before, size_t *ret_taken)
{
	size_t len = left < NAME ? 0 : ckpt_get16(p + NAME_LEN);
	char name[CKPT_NAME_MAX + 1] = "";
	struct ckpt_plain is;
	int rc;

	if (left < NAME || len > CKPT_NAME_MAX || len > left - NAME)
		return -EBADMSG;
	rc = take_fields(s, p, &is);
	if (rc)
		return rc;
	memcpy(name, p + NAME, len);
	if (is.version <= before || ckpt_name_check(name, len) || ckpt_state_plain(s, is.folder_id, name) ||
	    (*is.id && ckpt_state_plain_folder(s, is.id)))
		return -EBADMSG;
	*ret_taken = NAME + len;
	return add(s, &is, name);
}

int ckpt_plains_take(struct ckpt_state *s, const uint8_t *data, size_t len, size_t *ret_taken)
{
	uint32_t count = len < HEAD_BYTES ? 0 : ckpt_get32(data);
	size_t at = HEAD_BYTES, taken = 0;
	uint64_t before = 0;

	if (!count || ckpt_get32(data + 4))
		return -EBADMSG;
	for (uint32_t i = 0; i < count; i++, at += taken) {
		int rc = take_one(s, data + at, len - at, before, &taken);

		if (rc)
			return rc;
		before = ckpt_get64(data + at + VERSION);
	}
	*ret_taken = at;
	return ckpt_plains_check(s);
}
