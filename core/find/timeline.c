// Order: list(); begin() at a snapshot; note_replaced() where one step is wanted; replay(), whose newest rows are kept; tell_kept(); then
// tell_older(). Where entries or snapshots go meanwhile, all up to replay() is done again: nothing was told by then.
#include "core/find/timeline.h"

#include "core/base/util.h"
#include "core/log/snapshot.h"
#include "core/state/act.h"
#include "core/state/jump.h"
#include "core/state/shared.h"

#include <stdio.h>

#define TRIES 4                                      // beside a process that trims
#define CLOCK_SLACK_NS (INT64_C(86400) * 1000000000) // that a clock may have been set back between two entries

struct rows {
	struct ckpt_act_row *at;
	size_t count, cap;
};

struct reader {
	struct ckpt_objects *objects;
	const char *store_id, *node;
	const struct ckpt_timeline_want *want;
	ckpt_timeline_fn *fn;
	void *arg;
	struct ckpt_timeline_end end;

	struct ckpt_log_numbers entries, snapshots;
	struct ckpt_log_position begin; // the snapshot; SEQ 0: the log is read from its beginning
	struct ckpt_state *state;
	struct ckpt_log *log;
	int64_t begin_ns; // the time of the first entry that was replayed; INT64_MIN: none was
	bool stale_is_damage;

	struct rows fresh;              // of the operation at hand, oldest first
	struct rows kept;               // of the replay: a ring once it has as many as are wanted
	size_t oldest;                  // in the ring
	char (*ids)[CKPT_UUID_LEN + 1]; // of the steps that are wanted
	size_t id_count, id_cap;
};

// --- Which rows ---------------------------------------------------------------------------------------------------------

static bool has_id(const struct reader *r, const char *id)
{
	for (size_t i = 0; i < r->id_count; i++)
		if (!strcmp(r->ids[i], id))
			return true;
	return false;
}

static int add_id(struct reader *r, const char *id)
{
	int rc = has_id(r, id) ? 0 : ckpt_grow((void **)&r->ids, &r->id_cap, r->id_count + 1, sizeof(*r->ids));

	if (!rc && !has_id(r, id))
		snprintf(r->ids[r->id_count++], sizeof(*r->ids), "%s", id);
	return rc;
}

static bool is_called(const struct reader *r, const char *folder_id, const char *name)
{
	return r->want->name && !strcmp(folder_id, r->want->folder_id) && !strcmp(name, r->want->name);
}

static bool is_wanted(const struct reader *r, const struct ckpt_act_row *row)
{
	const struct ckpt_timeline_want *want = r->want;

	if (row->at_ns < want->since_ns || (row->is_detail && !want->details))
		return false;
	if (!want->id && !want->name)
		return true;
	return *row->id && ((want->id && has_id(r, row->id)) || is_called(r, row->folder_id, row->name) ||
			    is_called(r, row->old_folder_id, row->old_name));
}

static bool is_full(const struct reader *r)
{
	return r->want->most && r->end.rows >= r->want->most;
}

static int tell(struct reader *r, const struct ckpt_act_row *row)
{
	r->end.rows++;
	return r->fn(r->arg, row);
}

static int keep(struct reader *r, const struct ckpt_act_row *row)
{
	int rc;

	if (r->want->most && r->kept.count == r->want->most) {
		r->kept.at[r->oldest] = *row;
		r->oldest = (r->oldest + 1) % r->kept.count;
		return 0;
	}
	rc = ckpt_grow((void **)&r->kept.at, &r->kept.cap, r->kept.count + 1, sizeof(*r->kept.at));
	if (!rc)
		r->kept.at[r->kept.count++] = *row;
	return rc;
}

static int tell_kept(struct reader *r)
{
	int rc = 0;

	for (size_t i = r->kept.count; i-- > 0 && !rc;)
		rc = tell(r, &r->kept.at[(r->oldest + i) % r->kept.count]);
	return rc;
}

// --- Rows of an operation -----------------------------------------------------------------------------------------------

static int add_row(struct reader *r, struct ckpt_act_row_from *from, const struct ckpt_operation *op)
{
	struct rows *f = &r->fresh;
	int rc = ckpt_grow((void **)&f->at, &f->cap, f->count + 1, sizeof(*f->at));

	from->prior = f->at;
	from->prior_count = f->count;
	if (!rc)
		rc = ckpt_act_row_of(from, op, &f->at[f->count]);
	if (!rc)
		f->count++;
	return rc == CKPT_ACT_ROW_NONE ? 0 : rc;
}

// The plain tree of this node is in the remote's log alone; all else that this node has done is in its own.
static bool is_known(const struct reader *r, const struct ckpt_operation *op)
{
	return !strcmp(op->node, r->node) && op->kind < CKPT_ACT_MKDIR;
}

static int add_pulled(struct reader *r, const struct ckpt_operation *pull, const struct ckpt_pulled *p,
		      struct ckpt_act_row_from *from)
{
	const struct ckpt_act_row_from of_pull = *from;
	struct ckpt_log_entry entry;
	struct ckpt_operation op;
	int rc = ckpt_pulled_entry(p, r->store_id, &entry);

	if (rc)
		return rc;
	from->time_ns = entry.time_ns;
	for (size_t cursor = 0; !rc && ckpt_log_entry_next(&entry, &cursor, &op);)
		rc = is_known(r, &op) ? 0 : add_row(r, from, &op);
	*from = of_pull;
	for (size_t cursor = 0; !rc && ckpt_pulled_next(p, &cursor, &op);) {
		memcpy(op.node, pull->node, sizeof(op.node));
		op.actor = pull->actor;
		rc = add_row(r, from, &op);
	}
	return rc;
}

static int add_operation(struct reader *r, const struct ckpt_operation *op, struct ckpt_act_row_from *from)
{
	struct ckpt_pulled p;
	int rc;

	if (op->kind != CKPT_PULL_KIND)
		return add_row(r, from, op);
	rc = ckpt_pull_decode(r->store_id, op->body, op->len, &p);
	if (rc)
		return rc;
	return p.entry_len ? add_pulled(r, op, &p, from) : add_row(r, from, op);
}

// --- The entries behind the snapshot ------------------------------------------------------------------------------------

static int list(struct reader *r)
{
	int rc = ckpt_log_list(r->objects, "snap/", &r->snapshots);

	return rc ? rc : ckpt_log_list(r->objects, "log/", &r->entries);
}

// Nothing is left out of rc but that it is not whole.
static int read_snapshot(struct reader *r, uint64_t seq, struct ckpt_state **ret_state)
{
	CLEANUP_FREE void *data = NULL;
	struct ckpt_log_position at;
	struct ckpt_state *state;
	size_t len;
	int rc = ckpt_snapshot_read(r->objects, r->store_id, seq, &at, &data, &len);

	if (!rc)
		rc = ckpt_state_decode(data, len, &state);
	if (rc)
		return rc;
	ckpt_state_free(*ret_state);
	*ret_state = state;
	r->begin = at;
	return 0;
}

// The older of the two newest that are whole. Beside one that is alone no entry was trimmed yet.
static int find_snapshot(struct reader *r, struct ckpt_state **ret_state)
{
	unsigned whole = 0;

	r->begin = (struct ckpt_log_position){0};
	for (size_t i = r->snapshots.count; r->snapshots.count > 1 && i-- > 0 && whole < 2;) {
		int rc = read_snapshot(r, r->snapshots.at[i], ret_state);

		if (rc && rc != -EBADMSG && rc != -ENOENT)
			return rc;
		whole += !rc;
	}
	return 0;
}

static int apply(struct reader *r, const struct ckpt_operation *op, const struct ckpt_span *at,
		 const struct ckpt_log_position *jump, struct ckpt_state *to)
{
	return op->kind == CKPT_JUMP_KIND ? ckpt_state_jump(r->state, op, jump, to)
					  : ckpt_state_apply(r->state, r->store_id, op, at);
}

// Behind a damaged entry, acts seem void that were not.
static int replay_operation(struct reader *r, const struct ckpt_log_entry *entry, const struct ckpt_operation *op,
			    const struct ckpt_log_position *jump, struct ckpt_state *to)
{
	const struct ckpt_span at = {.seq = entry->seq,
				     .offset = (uint32_t)((const uint8_t *)op->body - entry->data),
				     .len = (uint32_t)op->len};
	struct ckpt_act_row_from from = {
		.seq = entry->seq, .time_ns = entry->time_ns, .state = r->state, .is_before = true};
	int rc;

	r->fresh.count = 0;
	rc = add_operation(r, op, &from);
	if (!rc)
		rc = apply(r, op, &at, jump, to);
	if (rc < 0)
		return rc;
	if (rc == CKPT_STATE_VOID && !r->end.damaged)
		return 0;
	rc = 0;
	for (size_t i = 0; i < r->fresh.count && !rc; i++)
		if (is_wanted(r, &r->fresh.at[i]))
			rc = keep(r, &r->fresh.at[i]);
	return rc;
}

static int replay_entry(void *arg, const struct ckpt_log_entry *entry)
{
	struct reader *r = arg;
	struct ckpt_log_position jump;
	struct ckpt_operation op;
	struct ckpt_state *to;
	int rc = ckpt_jump_of_entry(r->objects, r->store_id, entry, ckpt_state_remote(r->state).seq, &jump, &to);

	if (rc)
		return rc;
	if (r->begin_ns == INT64_MIN)
		r->begin_ns = entry->time_ns;
	for (size_t cursor = 0; !rc && ckpt_log_entry_next(entry, &cursor, &op);)
		rc = replay_operation(r, entry, &op, &jump, to);
	ckpt_state_free(to);
	return rc;
}

static int begin(struct reader *r)
{
	struct ckpt_state *state = NULL;
	int rc = list(r);

	if (!rc)
		rc = find_snapshot(r, &state);
	if (!rc && !state)
		rc = (state = ckpt_state_new()) ? 0 : -ENOMEM;
	ckpt_state_free(r->state);
	r->state = state;
	ckpt_log_free(TAKE_PTR(r->log));
	if (!rc)
		rc = ckpt_log_new(r->objects, r->store_id, r->node, r->begin.seq ? &r->begin : NULL, true, replay_entry,
				  r, &r->log);
	r->kept.count = r->oldest = 0;
	r->begin_ns = INT64_MIN;
	r->end = (struct ckpt_timeline_end){0};
	return rc;
}

static void note_damaged(struct reader *r, uint64_t seq)
{
	if (!r->end.damaged_count++ || seq < r->end.damaged)
		r->end.damaged = seq;
}

static bool is_damage(const struct reader *r, int rc)
{
	return rc == -EBADMSG || (rc == -ESTALE && r->stale_is_damage);
}

static int replay(struct reader *r)
{
	int rc = ckpt_log_read(r->log);

	while (is_damage(r, rc) || (!rc && (rc = ckpt_log_check_end(r->log)) == -EBADMSG)) {
		note_damaged(r, ckpt_log_position(r->log).seq + 1);
		rc = ckpt_log_pass_over(r->log);
		if (!rc)
			rc = ckpt_log_read(r->log);
	}
	return rc;
}

// --- Entries by themselves ------------------------------------------------------------------------------------------------

// An entry that is read alone borrows data, which is the caller's to free.
static int read_entry(struct reader *r, uint64_t seq, void **ret_data, struct ckpt_log_entry *ret_entry)
{
	char key[CKPT_LOG_KEY_MAX];
	size_t len;
	int rc;

	ckpt_log_key(seq, key);
	rc = ckpt_objects_get_all(r->objects, key, CKPT_LOG_ENTRY_BYTES_MAX, ret_data, &len, NULL);
	if (!rc)
		rc = ckpt_log_entry_decode(*ret_data, len, ret_entry);
	if (!rc && (ret_entry->seq != seq || strcmp(ret_entry->store_id, r->store_id)))
		rc = -EBADMSG;
	return rc == -EFBIG ? -EBADMSG : rc;
}

// fresh has all of its rows, oldest first.
static int rows_of_entry(struct reader *r, const struct ckpt_log_entry *entry)
{
	struct ckpt_operation op;
	int rc = 0;

	r->fresh.count = 0;
	for (size_t cursor = 0; !rc && ckpt_log_entry_next(entry, &cursor, &op);) {
		struct ckpt_act_row_from from = {.seq = entry->seq, .time_ns = entry->time_ns, .state = r->state};

		rc = add_operation(r, &op, &from);
	}
	return rc;
}

// The newest comes first: a commit names the step whose place it took, which is older.
static int follow_replaced(struct reader *r)
{
	int rc = 0;

	for (size_t i = r->fresh.count; i-- > 0 && !rc;)
		if (*r->fresh.at[i].replaces && has_id(r, r->fresh.at[i].id))
			rc = add_id(r, r->fresh.at[i].replaces);
	return rc;
}

static int note_replaced(struct reader *r)
{
	int rc = 0;

	r->id_count = 0;
	if (r->want->id)
		rc = add_id(r, r->want->id);
	for (size_t i = r->want->id ? r->entries.count : 0; i-- > 0 && r->entries.at[i] > r->begin.seq && !rc;) {
		CLEANUP_FREE void *data = NULL;
		struct ckpt_log_entry entry;

		rc = read_entry(r, r->entries.at[i], &data, &entry);
		if (!rc)
			rc = rows_of_entry(r, &entry);
		if (!rc)
			rc = follow_replaced(r);
		if (rc == -EBADMSG || rc == -ENOENT || rc == -ENOTSUP) // replay() says so
			rc = 0;
	}
	return rc;
}

static int tell_entry(struct reader *r, const struct ckpt_log_entry *entry)
{
	int rc = rows_of_entry(r, entry);

	if (!rc)
		rc = follow_replaced(r);
	for (size_t i = r->fresh.count; i-- > 0 && !rc && !is_full(r);)
		if (is_wanted(r, &r->fresh.at[i]))
			rc = tell(r, &r->fresh.at[i]);
	return rc;
}

// Entries at the snapshot and before it: those that were not trimmed.
static int tell_older(struct reader *r)
{
	int64_t until_ns =
		r->want->since_ns < INT64_MIN + CLOCK_SLACK_NS ? INT64_MIN : r->want->since_ns - CLOCK_SLACK_NS;
	size_t count = 0;
	bool trimmed;
	int rc = 0;

	while (count < r->entries.count && r->entries.at[count] <= r->begin.seq)
		count++;
	trimmed = count < r->begin.seq && !is_full(r);
	if (trimmed && r->begin_ns > r->want->since_ns)
		r->end.whole_from_ns = r->begin_ns;
	for (size_t i = count; i-- > 0 && !rc && !is_full(r);) {
		CLEANUP_FREE void *data = NULL;
		struct ckpt_log_entry entry;

		rc = read_entry(r, r->entries.at[i], &data, &entry);
		if (!rc && trimmed && r->begin_ns == INT64_MIN) // nothing is behind the snapshot
			r->end.whole_from_ns = r->begin_ns = entry.time_ns;
		if (!rc && entry.time_ns < until_ns)
			break;
		if (!rc)
			rc = tell_entry(r, &entry);
		if (rc == -EBADMSG)
			note_damaged(r, r->entries.at[i]);
		if (rc == -EBADMSG || rc == -ENOENT)
			rc = 0;
	}
	return rc;
}

static void reader_done(struct reader *r)
{
	ckpt_log_numbers_done(&r->entries);
	ckpt_log_numbers_done(&r->snapshots);
	free(r->fresh.at);
	free(r->kept.at);
	free(r->ids);
	ckpt_log_free(r->log);
	ckpt_state_free(r->state);
}

int ckpt_timeline_read(struct ckpt_objects *objects, const char *store_id, const char *node,
		       const struct ckpt_timeline_want *want, ckpt_timeline_fn *fn, void *arg,
		       struct ckpt_timeline_end *ret_end)
{
	CLEANUP(reader_done)
	struct reader r = {.objects = objects, .store_id = store_id, .node = node, .want = want, .fn = fn, .arg = arg};
	int rc = -ESTALE;

	for (int tries = 0; rc == -ESTALE && tries < TRIES; tries++) {
		r.stale_is_damage = tries + 1 == TRIES;
		rc = begin(&r);
		if (!rc)
			rc = note_replaced(&r);
		if (!rc)
			rc = replay(&r);
	}
	r.end.whole_from_ns = INT64_MIN;
	if (!rc)
		rc = tell_kept(&r);
	if (!rc)
		rc = tell_older(&r);
	*ret_end = r.end;
	return rc;
}
