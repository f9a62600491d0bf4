#include "core/state/act.h"

#include "core/base/util.h"

// saved := replaces, record          amended := record          merged := version, record
// other := id, version, flags, time [lengths, folder id, name]
// set := time, before, lengths, key, value      tree := id of the folder, folder id, before, time, mode, type, lengths, uid, gid, name,
//         content      objects := id, packs, manifests, name*
enum {
	SAVED_REPLACES = 0,
	SAVED_RECORD = 40,

	MERGED_VERSION = 0,
	MERGED_RECORD = 8,

	STEP = 0,
	VERSION = 40,
	FLAGS = 44,
	TIME = 48,
	PLAIN_BYTES = 56,
	FOLDER_LEN = 56,
	NAME_LEN = 58,
	NAMES = 64,

	SET_TIME = 0,
	SET_BEFORE = 8,
	SET_KEY_LEN = 16,
	SET_VALUE_LEN = 20,
	SET_KEY = 24,

	TREE_ID = 0,
	TREE_FOLDER = 16,
	TREE_BEFORE = 32,
	TREE_TIME = 40,
	TREE_MODE = 48,
	TREE_TYPE = 52,
	TREE_NAME_LEN = 54,
	TREE_CONTENT_LEN = 56,
	TREE_UID = 60,
	TREE_GID = 64,
	TREE_NAME = 68,

	OBJECTS_STEP = 0,
	OBJECTS_PACKS = 40,
	OBJECTS_MANIFESTS = 44,
	OBJECTS_NAMES = 48,

	LARGE_BYTES = 0,
	LARGE_SHA256 = 8,
	LARGE_MANIFEST = 40,

	TYPE_FILE = 1, // of a FILE: the content stands in the act
	TYPE_LINK = 2,
	TYPE_LARGE = 3,
};

void ckpt_plain_large_encode(const struct ckpt_plain_large *large, uint8_t ret_content[CKPT_PLAIN_LARGE_BYTES])
{
	ckpt_put64(ret_content + LARGE_BYTES, large->bytes);
	memcpy(ret_content + LARGE_SHA256, large->sha256, CKPT_SHA256_LEN);
	memcpy(ret_content + LARGE_MANIFEST, large->manifest, CKPT_SHA256_LEN);
}

void ckpt_plain_large_decode(const uint8_t content[CKPT_PLAIN_LARGE_BYTES], struct ckpt_plain_large *ret)
{
	ret->bytes = ckpt_get64(content + LARGE_BYTES);
	memcpy(ret->sha256, content + LARGE_SHA256, CKPT_SHA256_LEN);
	memcpy(ret->manifest, content + LARGE_MANIFEST, CKPT_SHA256_LEN);
}

bool ckpt_act_has_record(enum ckpt_act_kind kind)
{
	return (kind >= CKPT_ACT_SAVE && kind <= CKPT_ACT_NOTE) || kind == CKPT_ACT_MERGE;
}

bool ckpt_act_is_on_tree(enum ckpt_act_kind kind)
{
	return kind >= CKPT_ACT_MKDIR && kind <= CKPT_ACT_MOVE;
}

bool ckpt_act_is_on_objects(enum ckpt_act_kind kind)
{
	return kind == CKPT_ACT_CONDEMN || kind == CKPT_ACT_HOLD;
}

bool ckpt_act_is_of_remote(enum ckpt_act_kind kind)
{
	return ckpt_act_is_on_tree(kind) || ckpt_act_is_on_objects(kind);
}

static bool is_zero(const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (p[i])
			return false;
	return true;
}

// In 40 bytes; empty: zeros.
static int take_uuid(const uint8_t *p, bool may_be_empty, char ret_uuid[CKPT_UUID_LEN + 1])
{
	memcpy(ret_uuid, p, CKPT_UUID_LEN);
	ret_uuid[CKPT_UUID_LEN] = '\0';
	if (may_be_empty && is_zero(p, SAVED_RECORD))
		return 0;
	return ckpt_uuid_check(ret_uuid) && is_zero(p + CKPT_UUID_LEN, SAVED_RECORD - CKPT_UUID_LEN) ? 0 : -EBADMSG;
}

// The text before it.
static size_t record_at(enum ckpt_act_kind kind)
{
	return kind == CKPT_ACT_SAVE ? SAVED_RECORD : kind == CKPT_ACT_MERGE ? MERGED_RECORD : 0;
}

static int decode_record(const uint8_t *p, size_t len, struct ckpt_act *a)
{
	size_t at = record_at(a->kind);

	if (len <= at)
		return -EBADMSG;
	a->record = p + at;
	a->record_len = len - at;
	a->record_at = at;
	if (a->kind == CKPT_ACT_SAVE)
		return take_uuid(p + SAVED_REPLACES, true, a->replaces);
	if (a->kind == CKPT_ACT_MERGE)
		a->merged = ckpt_get32(p + MERGED_VERSION);
	return a->kind != CKPT_ACT_MERGE || is_zero(p + MERGED_VERSION + 4, MERGED_RECORD - 4) ? 0 : -EBADMSG;
}

static int decode_names(const uint8_t *p, size_t len, struct ckpt_act *a)
{
	size_t folder_len = len < NAMES ? 0 : ckpt_get16(p + FOLDER_LEN);
	size_t name_len = len < NAMES ? 0 : ckpt_get16(p + NAME_LEN);

	if (len < NAMES || len - NAMES != folder_len + name_len || folder_len > CKPT_FOLDER_ID_LEN ||
	    name_len > CKPT_NAME_MAX || !is_zero(p + NAME_LEN + 2, NAMES - NAME_LEN - 2))
		return -EBADMSG;
	memcpy(a->folder_id, p + NAMES, folder_len);
	memcpy(a->name, p + NAMES + folder_len, name_len);
	return ckpt_name_is_folder_id(a->folder_id) && strlen(a->folder_id) == folder_len &&
			       !ckpt_name_check(a->name, name_len)
		       ? 0
		       : -EBADMSG;
}

static int decode_plain(const uint8_t *p, size_t len, struct ckpt_act *a)
{
	if (len < PLAIN_BYTES || take_uuid(p + STEP, false, a->step))
		return -EBADMSG;
	a->version = ckpt_get32(p + VERSION);
	a->flags = ckpt_get32(p + FLAGS);
	a->time_ns = (int64_t)ckpt_get64(p + TIME);
	if ((a->kind == CKPT_ACT_RENAME) == (a->version != 0) || a->flags & ~(CKPT_FLAG_PINNED | CKPT_FLAG_TEMPORARY) ||
	    (a->flags && a->kind != CKPT_ACT_FLAG))
		return -EBADMSG;
	if (a->kind == CKPT_ACT_RENAME)
		return decode_names(p, len, a);
	return len == PLAIN_BYTES ? 0 : -EBADMSG;
}

bool ckpt_act_is_key(const char *key, size_t len)
{
	return len && len <= CKPT_VALUE_KEY_MAX && strspn(key, "abcdefghijklmnopqrstuvwxyz") == len && !key[len];
}

bool ckpt_act_is_value(const char *value, size_t len)
{
	return len <= CKPT_VALUE_BYTES_MAX && !memchr(value, '\0', len) && ckpt_name_is_utf8(value, len);
}

static int decode_set(const uint8_t *p, size_t len, struct ckpt_act *a)
{
	size_t key_len = len < SET_KEY ? 0 : ckpt_get16(p + SET_KEY_LEN);

	if (len < SET_KEY || key_len > CKPT_VALUE_KEY_MAX || len - SET_KEY < key_len ||
	    !is_zero(p + SET_KEY_LEN + 2, SET_VALUE_LEN - SET_KEY_LEN - 2))
		return -EBADMSG;
	memcpy(a->key, p + SET_KEY, key_len);
	a->value = (const char *)p + SET_KEY + key_len;
	a->value_len = len - SET_KEY - key_len;
	a->time_ns = (int64_t)ckpt_get64(p + SET_TIME);
	a->before = ckpt_get64(p + SET_BEFORE);
	return ckpt_get32(p + SET_VALUE_LEN) == a->value_len && ckpt_act_is_key(a->key, key_len) &&
			       ckpt_act_is_value(a->value, a->value_len)
		       ? 0
		       : -EBADMSG;
}

bool ckpt_act_is_target(const void *content, size_t len)
{
	return len && len <= CKPT_PLAIN_TARGET_MAX && !memchr(content, '\0', len);
}

// Zeros: the empty string. False: it is no id.
static bool take_folder_id(const uint8_t *p, char ret_id[CKPT_FOLDER_ID_LEN + 1])
{
	if (!is_zero(p, CKPT_FOLDER_ID_LEN))
		memcpy(ret_id, p, CKPT_FOLDER_ID_LEN);
	return is_zero(p, CKPT_FOLDER_ID_LEN) || (*ret_id && ckpt_name_is_folder_id(ret_id));
}

static bool is_large(const struct ckpt_act *a)
{
	struct ckpt_plain_large large;

	if (a->content_len != CKPT_PLAIN_LARGE_BYTES)
		return false;
	ckpt_plain_large_decode(a->content, &large);
	return large.bytes > CKPT_PLAIN_INLINE_MAX && large.bytes <= INT64_MAX;
}

// Each kind has what it needs, and zeros for all else.
static bool is_tree(const struct ckpt_act *a, unsigned type)
{
	bool is_file = a->kind == CKPT_ACT_FILE, is_mkdir = a->kind == CKPT_ACT_MKDIR;
	bool has_id = is_mkdir || a->kind == CKPT_ACT_MOVE;

	if (!*a->id == has_id || !type == is_file || a->mode > CKPT_ACT_MODE_MAX ||
	    ((a->mode || a->uid || a->gid) && !is_file && !is_mkdir))
		return false;
	if (!is_file && (a->time_ns || a->content_len || !a->before != is_mkdir))
		return false;
	return a->large ? is_large(a) : !a->link || ckpt_act_is_target(a->content, a->content_len);
}

static int decode_tree(const uint8_t *p, size_t len, struct ckpt_act *a)
{
	size_t name_len = len < TREE_NAME ? 0 : ckpt_get16(p + TREE_NAME_LEN);
	size_t content_len = len < TREE_NAME ? 0 : ckpt_get32(p + TREE_CONTENT_LEN);
	unsigned type = len < TREE_NAME ? 0 : ckpt_get16(p + TREE_TYPE);

	if (a->kind == CKPT_ACT_FILE && type > TYPE_LARGE)
		return -ENOTSUP;
	if (len < TREE_NAME || name_len > CKPT_NAME_MAX || content_len > CKPT_PLAIN_INLINE_MAX ||
	    len - TREE_NAME != name_len + content_len || !take_folder_id(p + TREE_ID, a->id) ||
	    !take_folder_id(p + TREE_FOLDER, a->folder_id))
		return -EBADMSG;
	memcpy(a->name, p + TREE_NAME, name_len);
	a->before = ckpt_get64(p + TREE_BEFORE);
	a->time_ns = (int64_t)ckpt_get64(p + TREE_TIME);
	a->mode = ckpt_get32(p + TREE_MODE);
	a->uid = ckpt_get32(p + TREE_UID);
	a->gid = ckpt_get32(p + TREE_GID);
	a->link = type == TYPE_LINK;
	a->large = type == TYPE_LARGE;
	a->content_at = TREE_NAME + name_len;
	a->content = p + a->content_at;
	a->content_len = content_len;
	return is_tree(a, type) && !ckpt_name_check(a->name, name_len) ? 0 : -EBADMSG;
}

static bool ascends(const uint8_t *names, uint32_t count)
{
	for (uint32_t i = 1; i < count; i++)
		if (memcmp(names + (size_t)(i - 1) * CKPT_SHA256_LEN, names + (size_t)i * CKPT_SHA256_LEN,
			   CKPT_SHA256_LEN) >= 0)
			return false;
	return true;
}

static int decode_objects(const uint8_t *p, size_t len, struct ckpt_act *a)
{
	uint32_t packs = len < OBJECTS_NAMES ? 0 : ckpt_get32(p + OBJECTS_PACKS);
	uint32_t manifests = len < OBJECTS_NAMES ? 0 : ckpt_get32(p + OBJECTS_MANIFESTS);

	if (len < OBJECTS_NAMES || packs > CKPT_ACT_OBJECTS_MAX || manifests > CKPT_ACT_OBJECTS_MAX - packs ||
	    len - OBJECTS_NAMES != (size_t)(packs + manifests) * CKPT_SHA256_LEN ||
	    take_uuid(p + OBJECTS_STEP, a->kind == CKPT_ACT_CONDEMN, a->step) ||
	    !*a->step != (a->kind == CKPT_ACT_CONDEMN) || (*a->step && !(packs + manifests)))
		return -EBADMSG;
	a->objects = p + OBJECTS_NAMES;
	a->pack_count = packs;
	a->manifest_count = manifests;
	return ascends(a->objects, packs) && ascends(a->objects + (size_t)packs * CKPT_SHA256_LEN, manifests)
		       ? 0
		       : -EBADMSG;
}

int ckpt_act_decode(uint16_t kind, const void *body, size_t len, struct ckpt_act *ret)
{
	struct ckpt_act a = {.kind = kind};
	int rc;

	if (kind < CKPT_ACT_SAVE || kind >= CKPT_ACT_KINDS)
		return -EBADMSG;
	rc = ckpt_act_has_record(a.kind)      ? decode_record(body, len, &a)
	     : ckpt_act_is_on_tree(a.kind)    ? decode_tree(body, len, &a)
	     : ckpt_act_is_on_objects(a.kind) ? decode_objects(body, len, &a)
	     : a.kind == CKPT_ACT_SET         ? decode_set(body, len, &a)
					      : decode_plain(body, len, &a);
	if (!rc)
		*ret = a;
	return rc;
}

static size_t bytes_of(const struct ckpt_act *a)
{
	if (ckpt_act_has_record(a->kind))
		return record_at(a->kind) + a->record_len;
	if (a->kind == CKPT_ACT_SET)
		return SET_KEY + strlen(a->key) + a->value_len;
	if (ckpt_act_is_on_tree(a->kind))
		return TREE_NAME + strlen(a->name) + a->content_len;
	if (ckpt_act_is_on_objects(a->kind))
		return OBJECTS_NAMES + ((size_t)a->pack_count + a->manifest_count) * CKPT_SHA256_LEN;
	return a->kind == CKPT_ACT_RENAME ? NAMES + strlen(a->folder_id) + strlen(a->name) : PLAIN_BYTES;
}

static void put_plain(const struct ckpt_act *a, uint8_t *p)
{
	memcpy(p + STEP, a->step, strnlen(a->step, CKPT_UUID_LEN));
	ckpt_put32(p + VERSION, a->version);
	ckpt_put32(p + FLAGS, a->flags);
	ckpt_put64(p + TIME, (uint64_t)a->time_ns);
	if (a->kind != CKPT_ACT_RENAME)
		return;
	ckpt_put16(p + FOLDER_LEN, (uint16_t)strlen(a->folder_id));
	ckpt_put16(p + NAME_LEN, (uint16_t)strlen(a->name));
	memcpy(p + NAMES, a->folder_id, strlen(a->folder_id));
	memcpy(p + NAMES + strlen(a->folder_id), a->name, strlen(a->name));
}

static void put_set(const struct ckpt_act *a, uint8_t *p)
{
	size_t key_len = strlen(a->key);

	ckpt_put64(p + SET_TIME, (uint64_t)a->time_ns);
	ckpt_put64(p + SET_BEFORE, a->before);
	ckpt_put16(p + SET_KEY_LEN, (uint16_t)key_len);
	ckpt_put32(p + SET_VALUE_LEN, (uint32_t)a->value_len);
	memcpy(p + SET_KEY, a->key, key_len);
	if (a->value_len)
		memcpy(p + SET_KEY + key_len, a->value, a->value_len);
}

static uint16_t type_of(const struct ckpt_act *a)
{
	return a->kind != CKPT_ACT_FILE ? 0 : a->link ? TYPE_LINK : a->large ? TYPE_LARGE : TYPE_FILE;
}

static void put_tree(const struct ckpt_act *a, uint8_t *p)
{
	size_t name_len = strlen(a->name);

	memcpy(p + TREE_ID, a->id, strnlen(a->id, CKPT_FOLDER_ID_LEN));
	memcpy(p + TREE_FOLDER, a->folder_id, strnlen(a->folder_id, CKPT_FOLDER_ID_LEN));
	ckpt_put64(p + TREE_BEFORE, a->before);
	ckpt_put64(p + TREE_TIME, (uint64_t)a->time_ns);
	ckpt_put32(p + TREE_MODE, a->mode);
	ckpt_put32(p + TREE_UID, a->uid);
	ckpt_put32(p + TREE_GID, a->gid);
	ckpt_put16(p + TREE_TYPE, type_of(a));
	ckpt_put16(p + TREE_NAME_LEN, (uint16_t)name_len);
	ckpt_put32(p + TREE_CONTENT_LEN, (uint32_t)a->content_len);
	memcpy(p + TREE_NAME, a->name, name_len);
	if (a->content_len)
		memcpy(p + TREE_NAME + name_len, a->content, a->content_len);
}

static void put_objects(const struct ckpt_act *a, uint8_t *p)
{
	size_t len = ((size_t)a->pack_count + a->manifest_count) * CKPT_SHA256_LEN;

	memcpy(p + OBJECTS_STEP, a->step, strnlen(a->step, CKPT_UUID_LEN));
	ckpt_put32(p + OBJECTS_PACKS, a->pack_count);
	ckpt_put32(p + OBJECTS_MANIFESTS, a->manifest_count);
	if (len)
		memcpy(p + OBJECTS_NAMES, a->objects, len);
}

int ckpt_act_encode(const struct ckpt_act *a, void **ret_body, size_t *ret_len)
{
	size_t len = bytes_of(a);
	struct ckpt_act back;
	uint8_t *p;
	int rc;

	if (len > CKPT_LOG_ENTRY_BYTES_MAX)
		return -EFBIG;
	p = ckpt_calloc(1, len + 1);
	if (!p)
		return -ENOMEM;
	if (a->kind == CKPT_ACT_SET) {
		put_set(a, p);
	} else if (ckpt_act_is_on_tree(a->kind)) {
		put_tree(a, p);
	} else if (ckpt_act_is_on_objects(a->kind)) {
		put_objects(a, p);
	} else if (!ckpt_act_has_record(a->kind)) {
		put_plain(a, p);
	} else if (a->record_len) {
		memcpy(p + len - a->record_len, a->record, a->record_len);
		if (a->kind == CKPT_ACT_SAVE)
			memcpy(p + SAVED_REPLACES, a->replaces, strnlen(a->replaces, CKPT_UUID_LEN));
		if (a->kind == CKPT_ACT_MERGE)
			ckpt_put32(p + MERGED_VERSION, a->merged);
	}
	rc = ckpt_act_decode((uint16_t)a->kind, p, len, &back);
	if (rc) {
		free(p);
		return -EINVAL;
	}
	*ret_body = p;
	*ret_len = len;
	return 0;
}
