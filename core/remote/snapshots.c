#include "core/remote/snapshots.h"

#include "core/base/util.h"
#include "core/log/snapshot.h"
#include "core/remote/expired.h"
#include "core/remote/near.h"
#include "core/state/jump.h"
#include "core/step/store.h"

#include <stdio.h>

#define KEPT 2u
#define TRIES 4u            // snapshots that a node looks at
#define JUMP_MIN 64u        // entries: fewer are read as fast
#define REQUEST_BYTES 8192u // an entry is read, and put into the own log, in the time of so many bytes of a snapshot

struct found {
	uint64_t seq, bytes;
};

struct list {
	uint64_t most;    // higher ones are not seen
	struct found *at; // ascending
	size_t count, cap;
};

static void list_done(struct list *l)
{
	free(l->at);
}

static int see(void *arg, const char *key, const struct ckpt_object *object)
{
	uint64_t seq = ckpt_log_number(key);
	struct list *l = arg;
	int rc;

	if (!seq || seq > l->most)
		return 0;
	rc = ckpt_grow((void **)&l->at, &l->cap, l->count + 1, sizeof(*l->at));
	if (!rc)
		l->at[l->count++] = (struct found){.seq = seq, .bytes = object->bytes};
	return rc;
}

static int list_all(struct ckpt_objects *there, struct list *l)
{
	return ckpt_objects_list(there, "snap/", NULL, see, l);
}

// --- Putting ----------------------------------------------------------------------------------------------------------

struct look {
	bool with_view;
	struct ckpt_log_position at;
	struct ckpt_state *view; // NULL: no memory
};

static int look_at(void *arg, const struct ckpt_state *state)
{
	struct look *look = arg;

	look->at = ckpt_state_remote(state);
	look->view = look->with_view ? ckpt_state_view(state) : NULL;
	return 0;
}

static struct ckpt_log_position position(struct ckpt_store *s)
{
	struct look look = {0};

	(void)ckpt_journal_look(s->journal, look_at, &look);
	return look.at;
}

struct log_size {
	uint64_t most, bytes;
};

static int add_entry(void *arg, const char *key, const struct ckpt_object *object)
{
	struct log_size *size = arg;

	if (ckpt_log_number(key) <= size->most)
		size->bytes += object->bytes;
	return 0;
}

// The log since the newest one is half as large as that.
static int is_due(struct ckpt_objects *there, const struct list *l, uint64_t seq, bool *ret_due)
{
	const struct found *newest = l->count ? &l->at[l->count - 1] : NULL;
	struct log_size size = {.most = seq};
	char after[CKPT_LOG_KEY_MAX];
	int rc = 0;

	if (newest) {
		ckpt_log_key(newest->seq, after);
		rc = ckpt_objects_list(there, "log/", after, add_entry, &size);
	}
	*ret_due = !newest || size.bytes >= newest->bytes / 2;
	return rc;
}

// Nothing of it is put that is not whole: who reads it relies on it.
static int make(struct ckpt_store *s, struct ckpt_log_position *ret_at, void **ret_data, size_t *ret_len)
{
	struct look look = {.with_view = true};
	struct ckpt_state *state = NULL;
	struct ckpt_log_position at;
	int rc;

	(void)ckpt_journal_look(s->journal, look_at, &look);
	if (!look.view)
		return -ENOMEM;
	rc = ckpt_jump_snapshot(ckpt_near_here(s->objects), s->id, look.view, &look.at, ret_data, ret_len);
	ckpt_state_free(look.view);
	if (rc)
		return rc;
	rc = ckpt_jump_state(s->id, look.at.seq, *ret_data, *ret_len, &at, &state);
	ckpt_state_free(state);
	if (rc)
		free(TAKE_PTR(*ret_data));
	*ret_at = look.at;
	return rc;
}

// A node that reads one which goes takes a newer one, or the log. Who may not remove leaves them. No key of the log ever goes (REMOTE.md L6).
static int remove_older(struct ckpt_objects *there, uint64_t newest)
{
	CLEANUP(list_done) struct list l = {.most = newest};
	int rc = list_all(there, &l);

	for (size_t i = 0; i + KEPT < l.count && !rc; i++) {
		char key[CKPT_SNAPSHOT_KEY_MAX];

		ckpt_snapshot_key(l.at[i].seq, key);
		rc = ckpt_objects_remove(there, key);
		rc = rc == -ENOENT ? 0 : rc;
	}
	return rc == -EACCES ? 0 : rc;
}

static int put(struct ckpt_store *s, struct ckpt_objects *there)
{
	CLEANUP_FREE void *data = NULL;
	char key[CKPT_SNAPSHOT_KEY_MAX];
	struct ckpt_log_position at;
	size_t len;
	int rc = make(s, &at, &data, &len);

	if (rc)
		return rc;
	ckpt_snapshot_key(at.seq, key);
	rc = ckpt_objects_put(there, key, data, len, NULL);
	return rc && rc != -EEXIST ? rc : remove_older(there, at.seq); // another's says the same
}

int ckpt_snapshots_put(struct ckpt_store *s, bool forced)
{
	struct ckpt_objects *there = ckpt_near_there(s->objects);
	uint64_t seq = position(s).seq;
	CLEANUP(list_done) struct list l = {.most = seq};
	bool due = seq;
	int rc = seq ? list_all(there, &l) : 0;

	if (!rc && l.count && l.at[l.count - 1].seq == seq)
		due = false;
	if (!rc && due && !forced)
		rc = is_due(there, &l, seq, &due);
	return rc || !due ? rc : put(s, there);
}

// --- Jumping ----------------------------------------------------------------------------------------------------------

// The entry behind which it is stands in the log: else the next one would never follow.
static int check_entry(struct ckpt_objects *there, const struct ckpt_log_position *at)
{
	uint8_t sha256[CKPT_SHA256_LEN];
	CLEANUP_FREE void *data = NULL;
	char key[CKPT_LOG_KEY_MAX];
	size_t len;
	int rc;

	ckpt_log_key(at->seq, key);
	rc = ckpt_objects_get_all(there, key, CKPT_LOG_ENTRY_BYTES_MAX, &data, &len, NULL);
	if (rc)
		return rc == -EFBIG ? -EBADMSG : rc;
	ckpt_sha256(data, len, sha256);
	return memcmp(sha256, at->sha256, sizeof(sha256)) ? -EBADMSG : 0;
}

static int jump_to(struct ckpt_store *s, struct ckpt_objects *there, uint64_t seq)
{
	struct ckpt_expired expired = {0};
	struct ckpt_state *state = NULL;
	CLEANUP_FREE void *data = NULL;
	char key[CKPT_SNAPSHOT_KEY_MAX];
	struct ckpt_log_position at;
	size_t len;
	int rc;

	ckpt_snapshot_key(seq, key);
	rc = ckpt_objects_get_all(there, key, CKPT_REMOTE_SNAPSHOT_BYTES_MAX, &data, &len, NULL);
	if (!rc)
		rc = ckpt_jump_state(s->id, seq, data, len, &at, &state);
	if (!rc)
		rc = check_entry(there, &at);
	ckpt_lock_take(&s->acts_lock);
	if (!rc)
		rc = ckpt_expired_before_jump(s, state, &expired);
	if (!rc)
		rc = ckpt_journal_jump(s->journal, seq, data, len);
	ckpt_expired_after_jump(s, &expired);
	ckpt_lock_drop(&s->acts_lock);
	ckpt_state_free(state);
	return rc;
}

static bool is_no_use(int rc)
{
	return rc == -EBADMSG || rc == -ENOTSUP || rc == -ENOENT || rc == -EFBIG;
}

static bool is_worth(const struct found *f, uint64_t seq)
{
	return f->seq > seq && f->seq - seq >= JUMP_MIN && f->bytes / REQUEST_BYTES <= f->seq - seq;
}

int ckpt_snapshots_jump(struct ckpt_store *s)
{
	CLEANUP(list_done) struct list l = {.most = ~CKPT_SPAN_COPY};
	struct ckpt_objects *there = ckpt_near_there(s->objects);
	uint64_t seq = position(s).seq;
	int rc = list_all(there, &l);

	for (size_t i = l.count, tries = 0; !rc && i-- > 0 && tries < TRIES; tries++) {
		rc = is_worth(&l.at[i], seq) ? jump_to(s, there, l.at[i].seq) : -ENOENT;
		if (!is_no_use(rc))
			return rc;
		rc = 0;
	}
	return rc;
}
