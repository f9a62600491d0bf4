#include "core/log/snapshot.h"

#include "core/base/util.h"
#include "core/record/container.h"

#include <inttypes.h>
#include <stdio.h>

// head := store id, seq, SHA-256 of that entry.
enum {
	HEAD_STORE = 0,
	HEAD_SEQ = 40,
	HEAD_SHA256 = 48,
	HEAD_BYTES = 80,
};

#define SECTION_HEAD CKPT_FOURCC('H', 'E', 'A', 'D')
#define SECTION_STATE CKPT_FOURCC('S', 'T', 'A', 'T')
#define NEWEST_KEPT 2

static const uint32_t known_sections[] = {SECTION_HEAD, SECTION_STATE};
static const struct ckpt_container_kind snapshot_kind = {
	.magic = {'c', 'k', 'p', 't', '-', 's', 'n', 'p'},
	.major = 1,
	.types = known_sections,
	.type_count = ARRAY_LEN(known_sections),
	.bytes_max = CKPT_SNAPSHOT_BYTES_MAX,
};

struct snapshot {
	struct ckpt_log_position at;
	const void *state; // in data
	size_t len;
	void *data;
};

void ckpt_snapshot_key(uint64_t seq, char ret_key[CKPT_SNAPSHOT_KEY_MAX])
{
	snprintf(ret_key, CKPT_SNAPSHOT_KEY_MAX, "snap/%016" PRIx64, seq);
}

static int encode(const char *store_id, const struct ckpt_log_position *at, const void *state, size_t len,
		  void **ret_data, size_t *ret_len)
{
	uint8_t head[HEAD_BYTES] = {0};
	const struct ckpt_section sections[] = {
		{.type = SECTION_HEAD, .required = true, .data = head, .len = sizeof(head)},
		{.type = SECTION_STATE, .required = true, .data = state, .len = len}};

	memcpy(head + HEAD_STORE, store_id, CKPT_UUID_LEN);
	ckpt_put64(head + HEAD_SEQ, at->seq);
	memcpy(head + HEAD_SHA256, at->sha256, CKPT_SHA256_LEN);
	return ckpt_container_encode(&snapshot_kind, 0, 0, sections, ARRAY_LEN(sections), ret_data, ret_len);
}

static int decode(const char *store_id, uint64_t seq, struct snapshot *s, size_t len)
{
	struct ckpt_section head, state;
	struct ckpt_container c;
	const uint8_t *p;
	int rc = ckpt_container_parse(&snapshot_kind, s->data, len, &c);

	if (rc)
		return rc;
	if (ckpt_container_find(&c, SECTION_HEAD, &head) || head.len != HEAD_BYTES ||
	    ckpt_container_find(&c, SECTION_STATE, &state))
		return -EBADMSG;
	p = head.data;
	s->at.seq = ckpt_get64(p + HEAD_SEQ);
	memcpy(s->at.sha256, p + HEAD_SHA256, CKPT_SHA256_LEN);
	s->state = state.data;
	s->len = state.len;
	return s->at.seq == seq && !memcmp(p + HEAD_STORE, store_id, CKPT_UUID_LEN) ? 0 : -EBADMSG;
}

// Free s->data.
static int read_one(struct ckpt_objects *objects, const char *store_id, uint64_t seq, struct snapshot *s)
{
	char key[CKPT_SNAPSHOT_KEY_MAX];
	size_t len;
	int rc;

	ckpt_snapshot_key(seq, key);
	*s = (struct snapshot){0};
	rc = ckpt_objects_get_all(objects, key, CKPT_SNAPSHOT_BYTES_MAX, &s->data, &len, NULL);
	if (!rc)
		rc = decode(store_id, seq, s, len);
	if (rc)
		free(TAKE_PTR(s->data));
	return rc == -EFBIG ? -EBADMSG : rc;
}

int ckpt_snapshot_put(struct ckpt_objects *objects, const char *store_id, const struct ckpt_log_position *at,
		      const void *state, size_t len)
{
	CLEANUP_FREE void *data = NULL;
	char key[CKPT_SNAPSHOT_KEY_MAX];
	struct snapshot back;
	size_t data_len;
	int rc = encode(store_id, at, state, len, &data, &data_len);

	if (rc)
		return rc;
	ckpt_snapshot_key(at->seq, key);
	rc = ckpt_objects_put(objects, key, data, data_len, NULL);
	if (rc && rc != -EEXIST)
		return rc;
	if (rc)
		rc = ckpt_objects_sync(objects, key);
	if (!rc)
		rc = read_one(objects, store_id, at->seq, &back);
	if (rc)
		return rc;
	free(back.data);
	return memcmp(back.at.sha256, at->sha256, CKPT_SHA256_LEN) != 0 ? -EBADMSG : 0;
}

int ckpt_snapshot_read(struct ckpt_objects *objects, const char *store_id, uint64_t seq,
		       struct ckpt_log_position *ret_at, void **ret_state, size_t *ret_len)
{
	struct snapshot s;
	int rc = read_one(objects, store_id, seq, &s);

	if (rc)
		return rc;
	memmove(s.data, s.state, s.len);
	*ret_at = s.at;
	*ret_state = s.data;
	*ret_len = s.len;
	return 0;
}

// --- Those that there are ---------------------------------------------------------------------------------------------

struct numbers {
	uint64_t *at; // ascending
	size_t count, cap;
};

static int add_number(void *arg, const char *key, const struct ckpt_object *object)
{
	struct numbers *n = arg;
	uint64_t seq = ckpt_log_number(key);
	int rc = seq ? ckpt_grow((void **)&n->at, &n->cap, n->count + 1, sizeof(*n->at)) : 0;

	(void)object;
	if (!rc && seq)
		n->at[n->count++] = seq;
	return rc;
}

static void numbers_done(struct numbers *n)
{
	free(n->at);
}

int ckpt_snapshot_newest(struct ckpt_objects *objects, const char *store_id, struct ckpt_log_position *ret_at,
			 void **ret_state, size_t *ret_len)
{
	CLEANUP(numbers_done) struct numbers n = {0};
	int rc = ckpt_objects_list(objects, "snap/", NULL, add_number, &n);

	for (size_t i = n.count; !rc && i-- > 0;) {
		rc = ckpt_snapshot_read(objects, store_id, n.at[i], ret_at, ret_state, ret_len);
		if (rc != -EBADMSG && rc != -ENOENT)
			return rc;
		rc = 0; // an older one, and the entries behind that, say the same
	}
	return rc ? rc : -ENOENT;
}

// --- Trimming ---------------------------------------------------------------------------------------------------------

// The older of the two newest that are whole; 0: there are not two.
static int find_kept(struct ckpt_objects *objects, const char *store_id, const struct numbers *n, uint64_t *ret_seq)
{
	unsigned whole = 0;

	*ret_seq = 0;
	for (size_t i = n->count; i-- > 0 && whole < NEWEST_KEPT;) {
		struct snapshot s;
		int rc = read_one(objects, store_id, n->at[i], &s);

		if (rc == -EBADMSG || rc == -ENOENT)
			continue;
		if (rc)
			return rc;
		free(s.data);
		whole++;
		*ret_seq = whole == NEWEST_KEPT ? n->at[i] : 0;
	}
	return 0;
}

// Those below a number, the lowest first.
static int remove_below(struct ckpt_objects *objects, const struct numbers *n, uint64_t below,
			ckpt_log_needed_fn *is_needed, void *arg, void (*key_of)(uint64_t seq, char *ret_key))
{
	int rc = 0;

	for (size_t i = 0; i < n->count && n->at[i] < below && !rc; i++) {
		char key[MAX(CKPT_LOG_KEY_MAX, CKPT_SNAPSHOT_KEY_MAX)];

		if (is_needed && is_needed(arg, n->at[i]))
			continue;
		key_of(n->at[i], key);
		rc = ckpt_objects_remove(objects, key);
		rc = rc == -ENOENT ? 0 : rc;
	}
	return rc;
}

int ckpt_log_trim(struct ckpt_objects *objects, const char *store_id, uint64_t keep_from, ckpt_log_needed_fn *is_needed,
		  void *arg)
{
	CLEANUP(numbers_done) struct numbers snapshots = {0};
	CLEANUP(numbers_done) struct numbers entries = {0};
	uint64_t kept = 0;
	int rc = ckpt_objects_list(objects, "snap/", NULL, add_number, &snapshots);

	if (!rc)
		rc = ckpt_objects_list(objects, "log/", NULL, add_number, &entries);
	if (!rc)
		rc = find_kept(objects, store_id, &snapshots, &kept);
	// The entry at the older snapshot stays.
	if (!rc)
		rc = remove_below(objects, &entries, MIN(kept, keep_from), is_needed, arg, ckpt_log_key);
	if (!rc)
		rc = remove_below(objects, &snapshots, kept, NULL, NULL, ckpt_snapshot_key);
	return rc;
}
