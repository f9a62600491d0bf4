#include "core/remote/look.h"

#include "core/base/util.h"
#include "core/log/snapshot.h"
#include "core/remote/place.h"
#include "core/state/jump.h"

#define READER "00000000-0000-0000-0000-000000000000" // puts nothing

struct look {
	struct ckpt_objects *objects;
	const char *store_id;
	struct ckpt_state *state;
	struct ckpt_log_position at;
	struct ckpt_remote_seen *seen;
};

static int see_snapshot(void *arg, const char *key, const struct ckpt_object *object)
{
	struct ckpt_remote_seen *seen = arg;
	uint64_t seq = ckpt_log_number(key);

	if (seq > seen->snapshot) {
		seen->snapshot = seq;
		seen->snapshot_ns = object->mtime_ns;
	}
	return 0;
}

// A snapshot that is damaged is passed over, and so is one that was removed meanwhile: the log says the same.
static int read_snapshot(struct look *l)
{
	CLEANUP_FREE void *data = NULL;
	char key[CKPT_SNAPSHOT_KEY_MAX];
	size_t len;
	int rc;

	if (!l->seen->snapshot)
		return 0;
	ckpt_snapshot_key(l->seen->snapshot, key);
	rc = ckpt_objects_get_all(l->objects, key, CKPT_REMOTE_SNAPSHOT_BYTES_MAX, &data, &len, NULL);
	if (!rc)
		rc = ckpt_jump_state(l->store_id, l->seen->snapshot, data, len, &l->at, &l->state);
	return rc == -EBADMSG || rc == -ENOTSUP || rc == -ENOENT || rc == -EFBIG ? 0 : rc;
}

static int apply(void *arg, const struct ckpt_log_entry *entry)
{
	struct ckpt_operation op;
	struct look *l = arg;
	size_t cursor = 0;
	int rc = 0;

	while (rc >= 0 && ckpt_log_entry_next(entry, &cursor, &op))
		rc = ckpt_state_apply(l->state, l->store_id, &op,
				      &(struct ckpt_span){.seq = entry->seq, .len = (uint32_t)op.len});
	return rc == CKPT_STATE_VOID ? 0 : rc;
}

static int read_log(struct look *l)
{
	struct ckpt_log *log;
	int rc;

	if (!l->state)
		l->state = ckpt_state_new();
	rc = l->state ? ckpt_log_new(l->objects, l->store_id, READER, &l->at, false, apply, l, &log) : -ENOMEM;
	if (rc)
		return rc;
	rc = ckpt_log_read(log);
	l->seen->entries = ckpt_log_position(log).seq;
	ckpt_log_free(log);
	if (rc == -ENOMEM)
		return rc;
	l->seen->unread = rc ? l->seen->entries + 1 : 0;
	l->seen->error = rc;
	return 0;
}

static int count_steps(struct look *l)
{
	CLEANUP_FREE const struct ckpt_state_step **steps = NULL;
	size_t count;
	int rc = ckpt_state_steps(l->state, &steps, &count);

	for (size_t i = 0; i < count && !rc; i++)
		l->seen->steps += !steps[i]->deleted_by && !steps[i]->gone;
	return rc;
}

static int look(struct look *l)
{
	int rc = ckpt_objects_list(l->objects, "snap/", NULL, see_snapshot, l->seen);

	if (!rc)
		rc = read_snapshot(l);
	if (!rc)
		rc = read_log(l);
	if (!rc)
		rc = count_steps(l);
	ckpt_state_free(l->state);
	return rc;
}

int ckpt_remote_look(struct ckpt_objects *objects, struct ckpt_remote_seen *ret_seen)
{
	struct look l = {.objects = objects, .seen = ret_seen};
	json_t *identity;
	int rc = ckpt_remote_identity(objects, &identity);

	if (rc)
		return rc;
	*ret_seen =
		(struct ckpt_remote_seen){.format = (uint64_t)json_integer_value(json_object_get(identity, "format"))};
	l.store_id = json_string_value(json_object_get(identity, "id"));
	rc = look(&l);
	json_decref(identity);
	return rc;
}
