#include "core/log/log.h"

#include "core/base/sys.h"
#include "core/base/util.h"

#include <inttypes.h>
#include <stdio.h>

#define TRIMMED "trimmed" // with its NUL: what stands in place of an entry that a snapshot has taken the place of

struct ckpt_log {
	struct ckpt_objects *objects;
	char store_id[CKPT_UUID_LEN + 1], node[CKPT_UUID_LEN + 1];
	bool trimmed;
	ckpt_log_entry_fn *fn;
	void *arg;
	struct ckpt_log_position at;
	bool passed_over;              // the entry there is damaged
	struct ckpt_log_position sent; // seq not 0: put, and the answer is not known
};

void ckpt_log_key(uint64_t seq, char ret_key[CKPT_LOG_KEY_MAX])
{
	snprintf(ret_key, CKPT_LOG_KEY_MAX, "log/%016" PRIx64, seq);
}

uint64_t ckpt_log_number(const char *key)
{
	const char *digits = strchr(key, '/') + 1;

	return strspn(digits, "0123456789abcdef") == 16 && !digits[16] ? strtoull(digits, NULL, 16) : 0;
}

static int add_number(void *arg, const char *key, const struct ckpt_object *object __attribute__((unused)))
{
	struct ckpt_log_numbers *n = arg;
	uint64_t seq = ckpt_log_number(key);
	int rc = seq ? ckpt_grow((void **)&n->at, &n->cap, n->count + 1, sizeof(*n->at)) : 0;

	if (!rc && seq)
		n->at[n->count++] = seq;
	return rc;
}

int ckpt_log_list(struct ckpt_objects *objects, const char *prefix, struct ckpt_log_numbers *ret_numbers)
{
	ret_numbers->count = 0;
	return ckpt_objects_list(objects, prefix, NULL, add_number, ret_numbers);
}

void ckpt_log_numbers_done(struct ckpt_log_numbers *numbers)
{
	free(numbers->at);
}

int ckpt_log_new(struct ckpt_objects *objects, const char *store_id, const char *node,
		 const struct ckpt_log_position *from, bool trimmed, ckpt_log_entry_fn *fn, void *arg,
		 struct ckpt_log **ret_log)
{
	struct ckpt_log *log = calloc(1, sizeof(*log));

	if (!log)
		return -ENOMEM;
	log->objects = objects;
	log->trimmed = trimmed;
	log->fn = fn;
	log->arg = arg;
	snprintf(log->store_id, sizeof(log->store_id), "%s", store_id);
	snprintf(log->node, sizeof(log->node), "%s", node);
	if (from)
		log->at = *from;
	*ret_log = log;
	return 0;
}

void ckpt_log_free(struct ckpt_log *log)
{
	free(log);
}

struct ckpt_log_position ckpt_log_position(const struct ckpt_log *log)
{
	return log->at;
}

bool ckpt_log_is_settled(const struct ckpt_log *log)
{
	return !log->sent.seq;
}

// Over this entry, the one behind the position.
static int pass(struct ckpt_log *log, const struct ckpt_log_entry *entry, const void *data, size_t len)
{
	int rc = log->fn(log->arg, entry);

	if (rc)
		return rc;
	log->at.seq++;
	ckpt_sha256(data, len, log->at.sha256);
	log->passed_over = false;
	log->sent.seq = 0; // its place is taken, by whomever
	return 0;
}

// --- Reading ----------------------------------------------------------------------------------------------------------

// The bytes behind the position, malloc'ed; -ENOENT: the log ends here.
static int get_next(const struct ckpt_log *log, void **ret_data, size_t *ret_len)
{
	char key[CKPT_LOG_KEY_MAX];
	int rc;

	ckpt_log_key(log->at.seq + 1, key);
	rc = ckpt_objects_get_all(log->objects, key, CKPT_LOG_ENTRY_BYTES_MAX, ret_data, ret_len, NULL);
	return rc == -EFBIG ? -EBADMSG : rc;
}

static int check_next(const struct ckpt_log *log, const void *data, size_t len, struct ckpt_log_entry *ret)
{
	int rc;

	if (len == sizeof(TRIMMED) && !memcmp(data, TRIMMED, len))
		return -ESTALE;
	rc = ckpt_log_entry_decode(data, len, ret);
	if (rc)
		return rc;
	return ret->seq == log->at.seq + 1 && !strcmp(ret->store_id, log->store_id) &&
			       (log->passed_over || !memcmp(ret->before, log->at.sha256, CKPT_SHA256_LEN))
		       ? 0
		       : -EBADMSG;
}

static int see_later(void *arg, const char *key, const struct ckpt_object *object)
{
	(void)object;
	return ckpt_log_number(key) > *(const uint64_t *)arg ? -ESTALE : 0;
}

// Nothing is behind the position: because nobody has appended; or because it was trimmed, and then a snapshot is behind it. (Single
// entries before that may be there.)
static int check_end(const struct ckpt_log *log)
{
	uint64_t seq = log->at.seq;

	return log->trimmed ? ckpt_objects_list(log->objects, "snap/", NULL, see_later, &seq) : 0;
}

int ckpt_log_read(struct ckpt_log *log)
{
	for (;;) {
		CLEANUP_FREE void *data = NULL;
		struct ckpt_log_entry entry;
		size_t len;
		int rc = get_next(log, &data, &len);

		if (rc)
			return rc == -ENOENT ? check_end(log) : rc;
		rc = check_next(log, data, len, &entry);
		if (!rc)
			rc = pass(log, &entry, data, len);
		if (rc)
			return rc;
	}
}

static int see_behind(void *arg, const char *key, const struct ckpt_object *object)
{
	(void)object;
	return ckpt_log_number(key) > *(const uint64_t *)arg ? -EBADMSG : 0;
}

int ckpt_log_check_end(struct ckpt_log *log)
{
	uint64_t seq;
	int rc;

	do { // others may have appended
		seq = log->at.seq;
		rc = ckpt_objects_list(log->objects, "log/", NULL, see_behind, &seq);
		if (rc == -EBADMSG && (rc = ckpt_log_read(log)) == 0)
			rc = -EBADMSG;
	} while (rc == -EBADMSG && log->at.seq != seq);
	return rc;
}

int ckpt_log_pass_over(struct ckpt_log *log)
{
	CLEANUP_FREE void *data = NULL;
	size_t len = 0;
	int rc = get_next(log, &data, &len);

	if (rc && rc != -EBADMSG && rc != -ENOENT)
		return rc;
	log->at.seq++;
	ckpt_sha256(data ? data : "", len, log->at.sha256); // as it is
	log->passed_over = true;
	return 0;
}

// --- Appending --------------------------------------------------------------------------------------------------------

static bool is_unknown(int rc)
{
	return rc == -EIO || rc == -ETIMEDOUT || rc == -ECANCELED;
}

int ckpt_log_settle(struct ckpt_log *log)
{
	uint8_t sha256[CKPT_SHA256_LEN];
	CLEANUP_FREE void *data = NULL;
	struct ckpt_log_entry entry;
	char key[CKPT_LOG_KEY_MAX];
	size_t len;
	int rc;

	if (!log->sent.seq)
		return -ENOENT;
	rc = get_next(log, &data, &len);
	if (rc == -ENOENT || rc == -EBADMSG)
		log->sent.seq = 0;
	if (rc)
		return rc == -EBADMSG ? -EEXIST : rc; // who reads it says what it is
	ckpt_sha256(data, len, sha256);
	if (memcmp(sha256, log->sent.sha256, sizeof(sha256)) != 0) {
		log->sent.seq = 0;
		return -EEXIST;
	}
	ckpt_log_key(log->sent.seq, key);
	rc = ckpt_objects_sync(log->objects, key);
	if (!rc)
		rc = ckpt_log_entry_decode(data, len, &entry);
	return rc ? rc : pass(log, &entry, data, len);
}

int ckpt_log_append(struct ckpt_log *log, const struct ckpt_operation *operations, uint32_t count, bool frees)
{
	struct ckpt_log_entry entry = {.seq = log->at.seq + 1, .time_ns = ckpt_sys.now_ns(), .count = count};
	struct ckpt_log_position next = {.seq = entry.seq};
	CLEANUP_FREE void *data = NULL;
	char key[CKPT_LOG_KEY_MAX];
	size_t len;
	int rc;

	if (log->sent.seq)
		return -EBUSY;
	memcpy(entry.store_id, log->store_id, sizeof(entry.store_id));
	memcpy(entry.node, log->node, sizeof(entry.node));
	memcpy(entry.before, log->at.sha256, sizeof(entry.before));
	rc = ckpt_log_entry_encode(&entry, operations, &data, &len);
	if (rc)
		return rc;
	ckpt_sha256(data, len, next.sha256);
	ckpt_log_key(next.seq, key);
	rc = ckpt_objects_put_how(log->objects, key, data, len, frees, NULL);
	if (!rc) {
		rc = ckpt_log_entry_decode(data, len, &entry);
		if (!rc)
			rc = pass(log, &entry, data, len);
		if (rc)
			log->sent = next;
		return rc ? -EIO : 0;
	}
	if (rc != -EEXIST && !is_unknown(rc))
		return rc;
	// A put that was made twice, by a layer below, meets itself.
	log->sent = next;
	if (rc == -EEXIST)
		rc = ckpt_log_settle(log);
	return rc == -ENOENT ? -EAGAIN : rc; // what was there is gone again
}
