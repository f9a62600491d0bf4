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
#define SECTION_RECORDS CKPT_FOURCC('R', 'E', 'C', 'S')
#define NEWEST_KEPT 2
#define COPY "snap/remote-"

static const uint32_t known_sections[] = {SECTION_HEAD, SECTION_STATE, SECTION_RECORDS};
static const struct ckpt_container_kind snapshot_kind = {
	.magic = {'c', 'k', 'p', 't', '-', 's', 'n', 'p'},
	.major = 1,
	.types = known_sections,
	.type_count = ARRAY_LEN(known_sections),
	.bytes_max = CKPT_SNAPSHOT_BYTES_MAX,
};

void ckpt_snapshot_key(uint64_t seq, char ret_key[CKPT_SNAPSHOT_KEY_MAX])
{
	snprintf(ret_key, CKPT_SNAPSHOT_KEY_MAX, "snap/%016" PRIx64, seq);
}

void ckpt_snapshot_copy_key(uint64_t seq, char ret_key[CKPT_SNAPSHOT_KEY_MAX])
{
	snprintf(ret_key, CKPT_SNAPSHOT_KEY_MAX, COPY "%016" PRIx64, seq);
}

uint64_t ckpt_snapshot_copy_number(const char *key)
{
	char plain[CKPT_SNAPSHOT_KEY_MAX];

	if (strncmp(key, COPY, strlen(COPY)) != 0)
		return 0;
	snprintf(plain, sizeof(plain), "snap/%s", key + strlen(COPY));
	return ckpt_log_number(plain);
}

int ckpt_snapshot_encode(const char *store_id, const struct ckpt_snapshot *s, void **ret_data, size_t *ret_len)
{
	uint8_t head[HEAD_BYTES] = {0};
	struct ckpt_section sections[3] = {{.type = SECTION_HEAD, .required = true, .data = head, .len = sizeof(head)}};
	size_t count = 1;

	memcpy(head + HEAD_STORE, store_id, CKPT_UUID_LEN);
	ckpt_put64(head + HEAD_SEQ, s->at.seq);
	memcpy(head + HEAD_SHA256, s->at.sha256, CKPT_SHA256_LEN);
	if (s->records) // in front of the state, so that their place does not depend on it
		sections[count++] = (struct ckpt_section){
			.type = SECTION_RECORDS, .required = true, .data = s->records, .len = s->records_len};
	sections[count++] =
		(struct ckpt_section){.type = SECTION_STATE, .required = true, .data = s->state, .len = s->state_len};
	return ckpt_container_encode(&snapshot_kind, 0, 0, sections, count, ret_data, ret_len);
}

int ckpt_snapshot_decode(const char *store_id, uint64_t seq, const void *data, size_t len, struct ckpt_snapshot *ret)
{
	struct ckpt_section head, state, records;
	struct ckpt_snapshot s = {0};
	struct ckpt_container c;
	const uint8_t *p;
	int rc = ckpt_container_parse(&snapshot_kind, data, len, &c);

	if (rc)
		return rc;
	if (ckpt_container_find(&c, SECTION_HEAD, &head) || head.len != HEAD_BYTES ||
	    ckpt_container_find(&c, SECTION_STATE, &state))
		return -EBADMSG;
	p = head.data;
	s.at.seq = ckpt_get64(p + HEAD_SEQ);
	memcpy(s.at.sha256, p + HEAD_SHA256, CKPT_SHA256_LEN);
	s.state = state.data;
	s.state_len = state.len;
	if (!ckpt_container_find(&c, SECTION_RECORDS, &records)) {
		if ((const uint8_t *)records.data - (const uint8_t *)data != CKPT_SNAPSHOT_RECORDS_AT)
			return -EBADMSG;
		s.records = records.data;
		s.records_len = records.len;
	}
	if (s.at.seq != seq || memcmp(p + HEAD_STORE, store_id, CKPT_UUID_LEN) != 0)
		return -EBADMSG;
	*ret = s;
	return 0;
}

// Free *ret_data.
static int read_one(struct ckpt_objects *objects, const char *store_id, uint64_t seq, void **ret_data,
		    struct ckpt_snapshot *ret)
{
	char key[CKPT_SNAPSHOT_KEY_MAX];
	void *data;
	size_t len;
	int rc;

	ckpt_snapshot_key(seq, key);
	rc = ckpt_objects_get_all(objects, key, CKPT_SNAPSHOT_BYTES_MAX, &data, &len, NULL);
	if (rc)
		return rc == -EFBIG ? -EBADMSG : rc;
	rc = ckpt_snapshot_decode(store_id, seq, data, len, ret);
	if (rc)
		free(data);
	else
		*ret_data = data;
	return rc;
}

int ckpt_snapshot_put(struct ckpt_objects *objects, const char *store_id, const struct ckpt_log_position *at,
		      const void *state, size_t len)
{
	const struct ckpt_snapshot s = {.at = *at, .state = state, .state_len = len};
	CLEANUP_FREE void *data = NULL, *back_data = NULL;
	char key[CKPT_SNAPSHOT_KEY_MAX];
	struct ckpt_snapshot back;
	size_t data_len;
	int rc = ckpt_snapshot_encode(store_id, &s, &data, &data_len);

	if (rc)
		return rc;
	ckpt_snapshot_key(at->seq, key);
	rc = ckpt_objects_put(objects, key, data, data_len, NULL);
	if (rc && rc != -EEXIST)
		return rc;
	if (rc)
		rc = ckpt_objects_sync(objects, key);
	if (!rc)
		rc = read_one(objects, store_id, at->seq, &back_data, &back);
	return rc ? rc : memcmp(back.at.sha256, at->sha256, CKPT_SHA256_LEN) != 0 ? -EBADMSG : 0;
}

int ckpt_snapshot_read(struct ckpt_objects *objects, const char *store_id, uint64_t seq,
		       struct ckpt_log_position *ret_at, void **ret_state, size_t *ret_len)
{
	struct ckpt_snapshot s;
	void *data;
	int rc = read_one(objects, store_id, seq, &data, &s);

	if (rc)
		return rc;
	memmove(data, s.state, s.state_len);
	*ret_at = s.at;
	*ret_state = data;
	*ret_len = s.state_len;
	return 0;
}

// --- Those that there are ---------------------------------------------------------------------------------------------

int ckpt_snapshot_newest(struct ckpt_objects *objects, const char *store_id, struct ckpt_log_position *ret_at,
			 void **ret_state, size_t *ret_len)
{
	CLEANUP(ckpt_log_numbers_done) struct ckpt_log_numbers n = {0};
	int rc = ckpt_log_list(objects, "snap/", &n);

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
static int find_kept(struct ckpt_objects *objects, const char *store_id, const struct ckpt_log_numbers *n,
		     uint64_t *ret_seq)
{
	unsigned whole = 0;

	*ret_seq = 0;
	for (size_t i = n->count; i-- > 0 && whole < NEWEST_KEPT;) {
		CLEANUP_FREE void *data = NULL;
		struct ckpt_snapshot s;
		int rc = read_one(objects, store_id, n->at[i], &data, &s);

		if (rc == -EBADMSG || rc == -ENOENT)
			continue;
		if (rc)
			return rc;
		whole++;
		*ret_seq = whole == NEWEST_KEPT ? n->at[i] : 0;
	}
	return 0;
}

// Those below a number, the lowest first.
static int remove_below(struct ckpt_objects *objects, const struct ckpt_log_numbers *n, uint64_t below,
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
	CLEANUP(ckpt_log_numbers_done) struct ckpt_log_numbers snapshots = {0};
	CLEANUP(ckpt_log_numbers_done) struct ckpt_log_numbers entries = {0};
	uint64_t kept = 0;
	int rc = ckpt_log_list(objects, "snap/", &snapshots);

	if (!rc)
		rc = ckpt_log_list(objects, "log/", &entries);
	if (!rc)
		rc = find_kept(objects, store_id, &snapshots, &kept);
	// The entry at the older snapshot stays.
	if (!rc)
		rc = remove_below(objects, &entries, MIN(kept, keep_from), is_needed, arg, ckpt_log_key);
	if (!rc)
		rc = remove_below(objects, &snapshots, kept, NULL, NULL, ckpt_snapshot_key);
	return rc;
}
