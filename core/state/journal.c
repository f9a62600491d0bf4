// States of the log here: quiet; led, by the one thread that reads it or appends to it, without j->lock. Its function, apply_entry(),
// takes j->lock for the state. Who wants to append while it is led waits, and is appended by whoever leads next.
#include "core/state/journal.h"

#include "core/base/lock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/log/snapshot.h"
#include "core/state/jump.h"
#include "core/state/needed.h"
#include "core/state/shared.h"

#include <stdio.h>

#define BATCH_MAX 64u                // operations of one entry
#define BATCH_BYTES_MAX (192u << 10) // of one entry, but for a single one
#define SNAPSHOT_ENTRIES 256u        // at least so many are between two snapshots
#define READ_TRIES 8                 // of who reads beside a process that trims
#define APPEND_TRIES 8

struct waiting {
	struct waiting *next;
	struct ckpt_operation op;
	bool frees;
	bool done, unknown;
	int rc;
};

struct ckpt_journal {
	struct ckpt_objects *objects;
	char store_id[CKPT_UUID_LEN + 1], node[CKPT_UUID_LEN + 1];
	enum ckpt_journal_mode mode;
	uint64_t damaged; // the first entry that was passed over; 0: none

	struct ckpt_lock lock;
	pthread_cond_t quiet;
	// Guarded by lock.
	bool led;
	bool unsettled; // nobody knows what came of the last append
	bool news;      // entries were read, or settled, of which who asks has not been told
	struct waiting *first, **last;
	struct waiting *batch; // being appended: chained, in the order of the entry
	struct ckpt_state *state;
	uint64_t snapshot_seq; // of the newest one
	uint64_t snapshot_bytes, bytes_since;
	bool jumped; // since: who reads it again has the whole state of a remote to read
	// Of who leads.
	struct ckpt_log *log;
};

// --- The state follows the log ----------------------------------------------------------------------------------------------

static struct waiting *of_batch(struct ckpt_journal *j, const struct ckpt_operation *op)
{
	struct waiting *w = j->batch;

	while (w && memcmp(w->op.nonce, op->nonce, sizeof(op->nonce)) != 0)
		w = w->next;
	return w;
}

struct jumped {
	struct ckpt_log_position at;
	struct ckpt_state *to; // NULL: the entry has no JUMP, or one that was made
};

static void jumped_done(struct jumped *jumped)
{
	ckpt_state_free(jumped->to);
}

// A replay after -ENOMEM finds the first operations of the entry applied: they are void then.
static int apply_operations(struct ckpt_journal *j, const struct ckpt_log_entry *entry, struct jumped *jumped)
{
	struct ckpt_operation op;
	LOCK_SCOPE(&j->lock);

	for (size_t cursor = 0; ckpt_log_entry_next(entry, &cursor, &op);) {
		struct ckpt_span at = {.seq = entry->seq,
				       .offset = (uint32_t)((const uint8_t *)op.body - entry->data),
				       .len = (uint32_t)op.len};
		struct waiting *w = of_batch(j, &op);
		int rc = op.kind == CKPT_JUMP_KIND ? ckpt_state_jump(j->state, &op, &jumped->at, jumped->to)
						   : ckpt_state_apply(j->state, j->store_id, &op, &at);

		if (rc < 0)
			return rc;
		if (w)
			w->rc = rc == CKPT_STATE_VOID ? -ESTALE : 0;
		j->news |= !w;
		j->jumped |= op.kind == CKPT_JUMP_KIND && !rc;
	}
	j->bytes_since += entry->operations_len;
	return 0;
}

// A copy goes when nobody needs it: a newer snapshot has what it said.
static int apply_entry(void *arg, const struct ckpt_log_entry *entry)
{
	CLEANUP(jumped_done) struct jumped jumped = {0};
	struct ckpt_journal *j = arg;
	uint64_t seq;
	int rc;

	ckpt_lock_take(&j->lock);
	seq = ckpt_state_remote(j->state).seq;
	ckpt_lock_drop(&j->lock);
	rc = ckpt_jump_of_entry(j->objects, j->store_id, entry, seq, &jumped.at, &jumped.to);
	return rc ? rc : apply_operations(j, entry, &jumped);
}

static void lead_locked(struct ckpt_journal *j)
{
	while (j->led)
		ckpt_lock_wait(&j->quiet, &j->lock);
	j->led = true;
	ckpt_lock_drop(&j->lock);
}

static void follow_locked(struct ckpt_journal *j)
{
	ckpt_lock_take(&j->lock);
	j->led = false;
	pthread_cond_broadcast(&j->quiet);
}

// --- Opening ----------------------------------------------------------------------------------------------------------

static void replace(struct ckpt_journal *j, struct ckpt_state *state, struct ckpt_log *log)
{
	ckpt_state_free(j->state);
	ckpt_log_free(j->log);
	j->state = state;
	j->log = log;
}

// The state at the newest snapshot, and a log that goes on from there. By who leads, or alone.
static int begin(struct ckpt_journal *j)
{
	struct ckpt_log_position at = {0};
	struct ckpt_state *state = NULL;
	CLEANUP_FREE void *data = NULL;
	struct ckpt_log *log;
	size_t len = 0;
	int rc = ckpt_snapshot_newest(j->objects, j->store_id, &at, &data, &len);

	if (!rc)
		rc = ckpt_state_decode(data, len, &state);
	else if (rc == -ENOENT)
		rc = (state = ckpt_state_new()) ? 0 : -ENOMEM;
	if (!rc)
		rc = ckpt_log_new(j->objects, j->store_id, j->node, at.seq ? &at : NULL, true, apply_entry, j, &log);
	if (rc) {
		ckpt_state_free(state);
		return rc;
	}
	LOCK_SCOPE(&j->lock);
	replace(j, state, log);
	j->snapshot_seq = at.seq;
	j->snapshot_bytes = len;
	j->bytes_since = 0;
	j->jumped = false;
	return 0;
}

// Entries go while they are read, where another process writes: then a newer snapshot has what they said.
static int read_all(struct ckpt_journal *j)
{
	int rc = ckpt_log_read(j->log);

	for (int tries = 0; rc == -ESTALE && tries < READ_TRIES; tries++) {
		rc = begin(j);
		if (!rc)
			rc = ckpt_log_read(j->log);
	}
	return rc == -ESTALE ? -EBADMSG : rc;
}

static int read_what_is_whole(struct ckpt_journal *j, bool to_the_end)
{
	int rc = read_all(j);

	while (rc == -EBADMSG || (to_the_end && !rc && (rc = ckpt_log_check_end(j->log)) == -EBADMSG)) {
		ckpt_lock_take(&j->lock);
		if (!j->damaged)
			j->damaged = ckpt_log_position(j->log).seq + 1;
		ckpt_lock_drop(&j->lock);
		if (j->mode == CKPT_JOURNAL_WRITE || ckpt_log_pass_over(j->log))
			return rc;
		rc = ckpt_log_read(j->log);
	}
	return rc;
}

// The last entry that a process has put which died then may not be durable.
static int make_durable(struct ckpt_journal *j)
{
	uint64_t seq = ckpt_log_position(j->log).seq;
	char key[CKPT_LOG_KEY_MAX];

	if (!seq || j->mode == CKPT_JOURNAL_READ)
		return 0;
	ckpt_log_key(seq, key);
	return ckpt_objects_sync(j->objects, key);
}

int ckpt_journal_open(struct ckpt_objects *objects, const char *store_id, const char *node, enum ckpt_journal_mode mode,
		      struct ckpt_journal **ret_journal, uint64_t *ret_damaged)
{
	struct ckpt_journal *j = calloc(1, sizeof(*j));
	int rc;

	*ret_damaged = 0;
	if (!j)
		return -ENOMEM;
	j->objects = objects;
	memcpy(j->store_id, store_id, sizeof(j->store_id));
	memcpy(j->node, node, sizeof(j->node));
	j->mode = mode;
	j->last = &j->first;
	ckpt_lock_init(&j->lock, CKPT_LOCK_LEAF);
	pthread_cond_init(&j->quiet, NULL);
	rc = begin(j);
	if (!rc)
		rc = read_what_is_whole(j, true);
	*ret_damaged = j->damaged;
	if (!rc)
		rc = make_durable(j);
	j->news = false;
	if (rc) {
		ckpt_journal_close(j);
		return rc;
	}
	*ret_journal = j;
	return 0;
}

void ckpt_journal_close(struct ckpt_journal *j)
{
	if (!j)
		return;
	replace(j, NULL, NULL);
	pthread_cond_destroy(&j->quiet);
	ckpt_lock_done(&j->lock);
	free(j);
}

const char *ckpt_journal_node(const struct ckpt_journal *j)
{
	return j->node;
}

uint64_t ckpt_journal_damaged(struct ckpt_journal *j)
{
	LOCK_SCOPE(&j->lock);

	return j->damaged;
}

static int tell_news_locked(struct ckpt_journal *j)
{
	bool news = j->news;

	j->news = false;
	return news;
}

int ckpt_journal_refresh(struct ckpt_journal *j)
{
	int rc;

	ckpt_lock_take(&j->lock);
	lead_locked(j);
	rc = read_what_is_whole(j, false);
	follow_locked(j);
	if (!rc)
		rc = tell_news_locked(j);
	ckpt_lock_drop(&j->lock);
	return rc;
}

// --- Appending --------------------------------------------------------------------------------------------------------

static int settle(struct ckpt_journal *j)
{
	int rc = ckpt_log_settle(j->log);

	return rc == -EEXIST ? ckpt_log_read(j->log) : rc == -ENOENT ? 0 : rc;
}

static int settle_locked(struct ckpt_journal *j)
{
	int rc = 0;

	if (!j->unsettled)
		return 0;
	lead_locked(j);
	if (!ckpt_log_is_settled(j->log))
		rc = settle(j);
	follow_locked(j);
	j->unsettled = rc < 0;
	return rc;
}

int ckpt_journal_settle(struct ckpt_journal *j)
{
	int rc;

	ckpt_lock_take(&j->lock);
	rc = settle_locked(j);
	if (rc >= 0)
		rc = tell_news_locked(j);
	ckpt_lock_drop(&j->lock);
	return rc;
}

// Takes the first acts of the queue, as many as the next entry has room for.
static uint32_t take_batch_locked(struct ckpt_journal *j, struct ckpt_operation ops[BATCH_MAX])
{
	uint64_t number = ckpt_state_number(j->state, j->node);
	struct waiting *w = j->first, *end = NULL;
	uint32_t count = 0;
	size_t bytes = 0;

	for (; w && count < BATCH_MAX && w->frees == j->first->frees; end = w, w = w->next) {
		bytes += ckpt_log_entry_bytes(&w->op);
		if (count && bytes > BATCH_BYTES_MAX)
			break;
		w->op.number = ++number;
		ops[count++] = w->op;
	}
	j->batch = j->first;
	j->first = w;
	if (!w)
		j->last = &j->first;
	end->next = NULL;
	return count;
}

// Another's entry is in the place, which cannot be in a store with one writer; or was, and is gone. A lost answer is asked for at once,
// and most often comes.
static int append(struct ckpt_journal *j, const struct ckpt_operation *ops, uint32_t count, bool frees)
{
	int rc = -EAGAIN;

	for (int tries = 0; tries < APPEND_TRIES && (rc == -EAGAIN || rc == -EEXIST); tries++) {
		if (rc == -EEXIST && (rc = ckpt_log_read(j->log)) != 0)
			return rc;
		rc = ckpt_log_append(j->log, ops, count, frees);
		if (rc && !ckpt_log_is_settled(j->log) && !ckpt_log_settle(j->log))
			rc = 0;
	}
	return rc;
}

static void answer_locked(struct ckpt_journal *j, int rc, bool unknown)
{
	for (struct waiting *w = j->batch, *next; w; w = next) {
		next = w->next; // it may be gone once it is done
		if (rc) {
			w->rc = rc;
			w->unknown = unknown;
		}
		w->done = true;
	}
	j->batch = NULL;
}

static void lead_batch_locked(struct ckpt_journal *j)
{
	struct ckpt_operation ops[BATCH_MAX];
	bool frees, sent = false;
	uint32_t count;
	int rc = 0;

	lead_locked(j);
	if (!ckpt_log_is_settled(j->log))
		rc = settle(j);
	ckpt_lock_take(&j->lock);
	count = take_batch_locked(j, ops);
	frees = j->batch->frees;
	ckpt_lock_drop(&j->lock);
	if (!rc) {
		rc = append(j, ops, count, frees);
		sent = rc && !ckpt_log_is_settled(j->log);
	}
	follow_locked(j);
	j->unsettled = sent || (rc < 0 && j->unsettled);
	answer_locked(j, rc, sent);
}

static void wait_locked(struct ckpt_journal *j, const struct waiting *w)
{
	while (!w->done)
		if (j->led)
			ckpt_lock_wait(&j->quiet, &j->lock);
		else
			lead_batch_locked(j);
}

// With the bodies and kinds of the operations. That of the first that failed.
static int append_operations(struct ckpt_journal *j, struct waiting *w, size_t count, bool *ret_unknown)
{
	int rc = 0;

	for (size_t i = 0; i < count && !rc; i++) {
		rc = ckpt_sys.random(w[i].op.nonce, sizeof(w[i].op.nonce));
		memcpy(w[i].op.node, j->node, sizeof(w[i].op.node));
		w[i].op.actor = ckpt_actor_get();
		w[i].op.required = true;
	}
	if (rc)
		return rc;
	LOCK_SCOPE(&j->lock);
	for (size_t i = 0; i < count; i++) {
		*j->last = &w[i];
		j->last = &w[i].next;
	}
	for (size_t i = 0; i < count; i++) {
		wait_locked(j, &w[i]);
		*ret_unknown |= w[i].unknown;
		rc = rc ? rc : w[i].rc;
	}
	return rc;
}

int ckpt_journal_append(struct ckpt_journal *j, const struct ckpt_act *act, bool frees, bool *ret_unknown)
{
	struct waiting w = {.op.kind = (uint16_t)act->kind, .frees = frees};
	CLEANUP_FREE void *body = NULL;
	int rc = ckpt_act_encode(act, &body, &w.op.len);

	*ret_unknown = false;
	w.op.body = body;
	return rc ? rc : append_operations(j, &w, 1, ret_unknown);
}

// --- Beside the log of a remote -------------------------------------------------------------------------------------------

static int make_pull(const struct ckpt_journal *j, const struct ckpt_pull *pull, struct ckpt_operation *op)
{
	void *body;
	int rc = ckpt_pull_encode(pull, &body, &op->len);

	if (rc)
		return rc;
	op->kind = CKPT_PULL_KIND;
	op->body = body;
	return ckpt_pull_check(j->store_id, body, op->len); // behind it stands what could not be read any more
}

int ckpt_journal_pull(struct ckpt_journal *j, const struct ckpt_pull *pulls, size_t count)
{
	CLEANUP_FREE struct waiting *w = ckpt_calloc(count, sizeof(*w));
	bool unknown = false;
	size_t made = 0;
	int rc = w ? 0 : -ENOMEM;

	while (made < count && !rc) {
		rc = make_pull(j, &pulls[made], &w[made].op);
		made++;
	}
	if (!rc)
		rc = append_operations(j, w, count, &unknown);
	for (size_t i = 0; i < made; i++)
		free((void *)(uintptr_t)w[i].op.body);
	return rc == -ESTALE ? 0 : rc;
}

int ckpt_journal_jump(struct ckpt_journal *j, uint64_t seq, const void *data, size_t len)
{
	struct ckpt_jump jump = {.seq = seq, .bytes = len};
	uint8_t body[CKPT_JUMP_BYTES];
	struct waiting w = {.op = {.kind = CKPT_JUMP_KIND, .body = body, .len = sizeof(body)}};
	bool unknown = false;
	int rc = ckpt_jump_copy_put(j->objects, seq, data, len);

	if (rc)
		return rc;
	ckpt_sha256(data, len, jump.sha256);
	ckpt_jump_encode(&jump, body);
	rc = append_operations(j, &w, 1, &unknown);
	return rc == -ESTALE ? 0 : rc;
}

int ckpt_journal_other_name(struct ckpt_journal *j, const char *folder_id, const char *name, unsigned n,
			    char ret_name[CKPT_NAME_MAX + 1])
{
	LOCK_SCOPE(&j->lock);

	if (!ckpt_state_is_attached(j->state))
		return -ENOENT;
	ckpt_state_other_name(j->state, name, n, ret_name);
	return ckpt_state_listed(j->state, folder_id, ret_name) ? -EEXIST : 0;
}

int ckpt_journal_look(struct ckpt_journal *j, ckpt_journal_look_fn *fn, void *arg)
{
	LOCK_SCOPE(&j->lock);

	return fn(arg, j->state);
}

// --- Reading ----------------------------------------------------------------------------------------------------------

int ckpt_journal_each(struct ckpt_journal *j, ckpt_journal_fn *fn, void *arg)
{
	LOCK_SCOPE(&j->lock);
	CLEANUP_FREE const struct ckpt_state_step **steps = NULL;
	size_t count = 0;
	int rc = ckpt_state_steps(j->state, &steps, &count);

	for (size_t i = 0; i < count && !rc; i++)
		rc = fn(arg, steps[i]);
	return rc;
}

int ckpt_journal_step(struct ckpt_journal *j, const char *id, ckpt_journal_fn *fn, void *arg)
{
	LOCK_SCOPE(&j->lock);
	const struct ckpt_state_step *step = ckpt_state_step(j->state, id);

	return step ? fn(arg, step) : -ENOENT;
}

static struct ckpt_said said_of(const struct ckpt_journal *j, const struct ckpt_state_step *step)
{
	return (struct ckpt_said){.is = step->is,
				  .deleted_by = step->deleted_by,
				  .last = ckpt_state_last(step),
				  .deleted_ns = step->deleted_ns,
				  .pulled = ckpt_state_is_attached(j->state) && (!step->since || step->shared)};
}

int ckpt_journal_said(struct ckpt_journal *j, const char *id, struct ckpt_said *ret_said)
{
	LOCK_SCOPE(&j->lock);
	const struct ckpt_state_step *step = ckpt_state_step(j->state, id);

	if (!step)
		return -ENOENT;
	*ret_said = said_of(j, step);
	return 0;
}

int ckpt_journal_list(struct ckpt_journal *j, struct ckpt_said **ret_list, size_t *ret_count)
{
	LOCK_SCOPE(&j->lock);
	CLEANUP_FREE const struct ckpt_state_step **steps = NULL;
	struct ckpt_said *list;
	size_t count = 0;
	int rc = ckpt_state_steps(j->state, &steps, &count);

	if (rc)
		return rc;
	list = ckpt_calloc(count + 1, sizeof(*list));
	if (!list)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		list[i] = said_of(j, steps[i]);
	*ret_list = list;
	*ret_count = count;
	return 0;
}

struct wanted {
	char id[CKPT_UUID_LEN + 1];
	struct ckpt_state_version is;
	struct ckpt_journal_by by;
	struct ckpt_summary now; // the step's name
};

static int find_version(struct ckpt_journal *j, const char *id, uint32_t version, struct wanted *ret)
{
	LOCK_SCOPE(&j->lock);
	const struct ckpt_state_step *step = ckpt_state_step(j->state, id);

	if (step && !ckpt_state_version(step, version))
		step = ckpt_state_named(j->state, step->is.folder_id, step->is.name, version);
	if (!step)
		return -ENOENT;
	memcpy(ret->id, step->id, sizeof(ret->id));
	ret->is = *ckpt_state_version(step, version);
	ret->by.actor = ret->is.by.actor;
	memcpy(ret->by.node, ckpt_state_node(j->state, ret->is.by.node), sizeof(ret->by.node));
	ret->now = step->is;
	return 0;
}

int ckpt_journal_read(struct ckpt_journal *j, const struct ckpt_span *at, void **ret_data)
{
	CLEANUP_FREE uint8_t *data = ckpt_calloc(1, (size_t)at->len + 1);
	char key[CKPT_SNAPSHOT_KEY_MAX];
	size_t got = 0;
	int rc;

	if (!data)
		return -ENOMEM;
	ckpt_span_key(at, key);
	rc = at->len ? ckpt_objects_get(j->objects, key, at->offset, data, at->len, &got, NULL) : 0;
	if (rc || got != at->len)
		return rc ? rc : -EBADMSG;
	*ret_data = TAKE_PTR(data);
	return 0;
}

static int read_record(struct ckpt_journal *j, const struct ckpt_span *at, struct ckpt_record *ret)
{
	CLEANUP_FREE void *data = NULL;
	int rc = ckpt_journal_read(j, at, &data);

	return rc ? rc : ckpt_record_decode(data, at->len, ret);
}

static void say_deleted(struct ckpt_record *r)
{
	free(TAKE_PTR(r->metadata));
	free(TAKE_PTR(r->manifest));
	r->manifest_len = 0;
	r->summary.deleted = true;
	memset(r->summary.event, 0, sizeof(r->summary.event));
	memcpy(r->summary.event, "delete", sizeof("delete"));
}

int ckpt_journal_record(struct ckpt_journal *j, const char *id, uint32_t version, struct ckpt_record *ret)
{
	struct ckpt_summary *sum = &ret->summary;
	struct wanted w;
	int rc = find_version(j, id, version, &w);

	if (!rc)
		rc = read_record(j, &w.is.record, ret);
	if (rc)
		return rc;
	if (strcmp(sum->session, w.id) || strcmp(ret->store_id, j->store_id)) {
		ckpt_record_done(ret);
		return -EBADMSG;
	}
	memcpy(sum->folder_id, w.now.folder_id, sizeof(sum->folder_id));
	memcpy(sum->name, w.now.name, sizeof(sum->name));
	sum->number = w.now.number;
	sum->version = version;
	sum->pinned = w.is.pinned;
	sum->temporary = w.is.temporary;
	sum->committed_ns = w.is.committed_ns;
	if (w.is.deleted)
		say_deleted(ret);
	return 0;
}

int ckpt_journal_by(struct ckpt_journal *j, const char *id, uint32_t version, struct ckpt_journal_by *ret_by)
{
	struct wanted w;
	int rc = find_version(j, id, version, &w);

	if (!rc)
		*ret_by = w.by;
	return rc;
}

struct ckpt_log_position ckpt_journal_position(struct ckpt_journal *j)
{
	struct ckpt_log_position at;

	ckpt_lock_take(&j->lock);
	lead_locked(j);
	at = ckpt_log_position(j->log);
	follow_locked(j);
	ckpt_lock_drop(&j->lock);
	return at;
}

// --- Values -----------------------------------------------------------------------------------------------------------

static int get_locked(struct ckpt_journal *j, const char *key, char **ret_value, uint64_t *ret_seq)
{
	const struct ckpt_state_value *v;
	char *copy;

	v = ckpt_state_value(j->state, key);
	if (!v)
		return -ENOENT;
	copy = ret_value ? strdup(v->text) : NULL;
	if (ret_value && !copy)
		return -ENOMEM;
	if (ret_value)
		*ret_value = copy;
	*ret_seq = v->seq;
	return 0;
}

int ckpt_journal_get(struct ckpt_journal *j, const char *key, char **ret_value, uint64_t *ret_seq)
{
	int rc;

	ckpt_lock_take(&j->lock);
	(void)settle_locked(j); // an act that is still not known is not there yet
	rc = get_locked(j, key, ret_value, ret_seq);
	ckpt_lock_drop(&j->lock);
	return rc;
}

int ckpt_journal_set(struct ckpt_journal *j, const char *key, uint64_t before, const char *value)
{
	struct ckpt_act act = {.kind = CKPT_ACT_SET, .before = before, .value = value, .value_len = strlen(value)};
	CLEANUP_FREE char *is = NULL;
	const struct ckpt_state_value *there;
	bool unknown, pulled;
	uint64_t seq = 0;
	int rc;

	ckpt_lock_take(&j->lock);
	rc = settle_locked(j);
	if (rc >= 0)
		rc = get_locked(j, key, &is, &seq);
	there = ckpt_state_value(j->state, key);
	pulled = there && there->pulled;
	ckpt_lock_drop(&j->lock);
	if (rc && rc != -ENOENT)
		return rc;
	if (before != CKPT_ACT_ANY && before != seq)
		return -ESTALE;
	if (!strcmp(is ? is : "", value) && !pulled) // of another node: from now on it is this one's, too
		return 0;
	snprintf(act.key, sizeof(act.key), "%s", key);
	act.time_ns = ckpt_sys.now_ns();
	return ckpt_journal_append(j, &act, false, &unknown);
}

// --- Snapshots --------------------------------------------------------------------------------------------------------

int ckpt_journal_snapshot(struct ckpt_journal *j, bool now)
{
	struct ckpt_log_position at;
	CLEANUP_FREE void *data = NULL;
	CLEANUP(ckpt_needed_done) struct ckpt_needed n = {0};
	size_t len = 0;
	int rc = 0;
	bool due;

	ckpt_lock_take(&j->lock);
	lead_locked(j); // position and state are of one moment
	at = ckpt_log_position(j->log);
	follow_locked(j);
	due = at.seq != j->snapshot_seq &&
	      (now || j->jumped ||
	       (at.seq - j->snapshot_seq >= SNAPSHOT_ENTRIES && j->bytes_since >= j->snapshot_bytes / 2));
	if (due)
		rc = ckpt_state_encode(j->state, &data, &len);
	if (due && !rc)
		rc = ckpt_needed_find(j->state, &n);
	ckpt_lock_drop(&j->lock);
	if (due && !rc)
		rc = ckpt_snapshot_put(j->objects, j->store_id, &at, data, len);
	if (due && !rc) {
		ckpt_lock_take(&j->lock);
		j->snapshot_seq = at.seq;
		j->snapshot_bytes = len;
		j->bytes_since = 0;
		j->jumped = false;
		ckpt_lock_drop(&j->lock);
		rc = ckpt_log_trim(j->objects, j->store_id, at.seq, ckpt_needed_has, &n);
		if (!rc)
			rc = ckpt_jump_copies_trim(j->objects, j->store_id, ckpt_needed_has, &n);
	}
	return rc;
}
