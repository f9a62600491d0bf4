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
	struct ckpt_log_position at;
	struct ckpt_log_position sent; // seq not 0: put, and the answer is not known
};

void ckpt_log_key(uint64_t seq, char ret_key[CKPT_LOG_KEY_MAX])
{
	snprintf(ret_key, CKPT_LOG_KEY_MAX, "log/%016" PRIx64, seq);
}

int ckpt_log_new(struct ckpt_objects *objects, const char *store_id, const char *node,
		 const struct ckpt_log_position *from, bool trimmed, struct ckpt_log **ret_log)
{
	struct ckpt_log *log = calloc(1, sizeof(*log));

	if (!log)
		return -ENOMEM;
	log->objects = objects;
	log->trimmed = trimmed;
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

// Behind this entry.
static void go_on(struct ckpt_log *log, const struct ckpt_log_position *to)
{
	log->at = *to;
	log->sent.seq = 0; // its place is taken, by whomever
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
			       !memcmp(ret->before, log->at.sha256, CKPT_SHA256_LEN)
		       ? 0
		       : -EBADMSG;
}

static int see_any(void *arg, const char *key, const struct ckpt_object *object)
{
	(void)arg, (void)key, (void)object;
	return -ESTALE;
}

// Nothing is behind the position: because nobody has appended, or because it was trimmed together with the entry there.
static int check_end(const struct ckpt_log *log)
{
	struct ckpt_object object;
	char key[CKPT_LOG_KEY_MAX];
	int rc;

	if (!log->trimmed)
		return 0;
	if (!log->at.seq) // who made a snapshot has appended
		return ckpt_objects_list(log->objects, "snap/", NULL, see_any, NULL);
	ckpt_log_key(log->at.seq, key);
	rc = ckpt_objects_head(log->objects, key, &object);
	return rc == -ENOENT ? -ESTALE : rc;
}

int ckpt_log_read(struct ckpt_log *log, ckpt_log_fn *fn, void *arg)
{
	for (;;) {
		struct ckpt_log_position next = {.seq = log->at.seq + 1};
		CLEANUP_FREE void *data = NULL;
		struct ckpt_log_entry entry;
		size_t len;
		int rc = get_next(log, &data, &len);

		if (rc)
			return rc == -ENOENT ? check_end(log) : rc;
		rc = check_next(log, data, len, &entry);
		if (!rc)
			rc = fn(arg, &entry);
		if (rc)
			return rc;
		ckpt_sha256(data, len, next.sha256);
		go_on(log, &next);
	}
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
	if (!rc) {
		struct ckpt_log_position sent = log->sent;

		go_on(log, &sent);
	}
	return rc;
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
		go_on(log, &next);
		return 0;
	}
	if (rc != -EEXIST && !is_unknown(rc))
		return rc;
	// A put that was made twice, by a layer below, meets itself.
	log->sent = next;
	if (rc == -EEXIST)
		rc = ckpt_log_settle(log);
	return rc == -ENOENT ? -EAGAIN : rc; // what was there is gone again
}
