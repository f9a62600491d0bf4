#include "core/state/jump.h"

#include "core/base/util.h"
#include "core/state/plain.h"
#include "core/state/shared.h"
#include "core/state/table.h"

// body := seq u64, bytes u64, sha256
enum {
	JUMP_SEQ = 0,
	JUMP_LENGTH = 8,
	JUMP_SHA256 = 16,
};

void ckpt_jump_encode(const struct ckpt_jump *jump, uint8_t ret_body[CKPT_JUMP_BYTES])
{
	ckpt_put64(ret_body + JUMP_SEQ, jump->seq);
	ckpt_put64(ret_body + JUMP_LENGTH, jump->bytes);
	memcpy(ret_body + JUMP_SHA256, jump->sha256, CKPT_SHA256_LEN);
}

int ckpt_jump_decode(const void *body, size_t len, struct ckpt_jump *ret)
{
	const uint8_t *p = body;
	struct ckpt_jump jump;

	if (len != CKPT_JUMP_BYTES)
		return -EBADMSG;
	jump.seq = ckpt_get64(p + JUMP_SEQ);
	jump.bytes = ckpt_get64(p + JUMP_LENGTH);
	memcpy(jump.sha256, p + JUMP_SHA256, CKPT_SHA256_LEN);
	if (!jump.seq || jump.seq & CKPT_SPAN_COPY || jump.bytes > CKPT_REMOTE_SNAPSHOT_BYTES_MAX)
		return -EBADMSG;
	*ret = jump;
	return 0;
}

// --- The remote's part of a state -----------------------------------------------------------------------------------------

// The place of a node in the view, which has those alone that made a version, or put a plain entry.
static int map_node(struct ckpt_state *view, const struct ckpt_state *s, uint32_t node, uint32_t *ret_place)
{
	size_t place = ckpt_state_node_place(view, s->nodes[node].node);
	int rc = ckpt_state_make_node_room(view, 1);

	if (rc)
		return rc;
	ckpt_state_add_node(view, place, s->nodes[node].node, 0);
	*ret_place = (uint32_t)place;
	return 0;
}

// As the remote's log has it; NULL: it has none.
static int add_step(struct ckpt_state *view, const struct ckpt_state *s, const struct ckpt_state_step *of)
{
	struct ckpt_state_step *step = of ? ckpt_state_step_clone(of) : NULL;
	int rc = of && !step ? -ENOMEM : 0;

	for (size_t i = 0; step && i < step->count && !rc; i++)
		rc = map_node(view, s, step->versions[i].by.node, &step->versions[i].by.node);
	if (rc)
		ckpt_state_step_free(step);
	else if (step)
		ckpt_table_insert(view, step);
	return rc;
}

static int add_plains(struct ckpt_state *view, const struct ckpt_state *s)
{
	size_t count;
	struct ckpt_plain *const *all = ckpt_state_plains(s, &count);
	int rc = 0;

	for (size_t i = 0; i < count && !rc; i++) {
		uint32_t node;

		rc = map_node(view, s, all[i]->node, &node);
		if (!rc)
			rc = ckpt_plains_add_copy(view, all[i], node);
	}
	return rc;
}

struct ckpt_state *ckpt_state_view(const struct ckpt_state *s)
{
	struct ckpt_state *view = ckpt_state_new();
	int rc = view ? 0 : -ENOMEM;

	for (size_t i = 0; i < s->bucket_count && !rc; i++)
		for (const struct ckpt_state_step *step = s->of_id[i]; step && !rc; step = step->next_of_id)
			rc = add_step(view, s, step->since ? NULL : step);
	for (size_t i = 0; i < s->changed_count && !rc; i++)
		rc = add_step(view, s, s->changed[i]->shared);
	if (!rc)
		rc = add_plains(view, s);
	if (!rc)
		rc = ckpt_condemned_copy(view, s);
	for (size_t i = 0; i < s->values.there.count && !rc; i++)
		rc = ckpt_value_put(&view->values.is, &s->values.there.at[i], strlen(s->values.there.at[i].text));
	if (!rc)
		return view;
	ckpt_state_free(view);
	return NULL;
}

// --- A snapshot is made -------------------------------------------------------------------------------------------------

// Records of versions, and behind them contents of plain files.
struct records {
	struct ckpt_objects *objects; // where they are read
	uint64_t seq;                 // of the snapshot
	uint8_t *at;
	size_t len, cap;
};

void ckpt_span_key(const struct ckpt_span *at, char ret_key[CKPT_SNAPSHOT_KEY_MAX])
{
	if (at->seq & CKPT_SPAN_COPY)
		ckpt_snapshot_copy_key(at->seq & ~CKPT_SPAN_COPY, ret_key);
	else
		ckpt_log_key(at->seq, ret_key);
}

// Bytes of a node's log, or of a copy, go into the snapshot; at says where they are there.
static int carry(struct records *r, struct ckpt_span *at)
{
	char key[CKPT_SNAPSHOT_KEY_MAX];
	size_t got, offset = CKPT_SNAPSHOT_RECORDS_AT + r->len;
	int rc;

	if (at->len > CKPT_REMOTE_SNAPSHOT_BYTES_MAX - MIN(offset, CKPT_REMOTE_SNAPSHOT_BYTES_MAX))
		return -EFBIG;
	rc = ckpt_grow((void **)&r->at, &r->cap, r->len + at->len, 1);
	if (rc)
		return rc;
	ckpt_span_key(at, key);
	rc = ckpt_objects_get(r->objects, key, at->offset, r->at + r->len, at->len, &got, NULL);
	if (rc || got != at->len)
		return rc ? rc : -EBADMSG;
	r->len += got;
	at->seq = r->seq | CKPT_SPAN_COPY;
	at->offset = (uint32_t)offset;
	return 0;
}

static bool is_same(const struct ckpt_span *a, const struct ckpt_span *b)
{
	return a->seq == b->seq && a->offset == b->offset && a->len == b->len;
}

// A version without a record of its own has that of the one before.
static int carry_step(struct records *r, struct ckpt_state_step *step)
{
	struct ckpt_span was = {0};
	int rc = 0;

	for (size_t i = 0; i < step->count && !rc; i++) {
		struct ckpt_span *at = &step->versions[i].record;
		bool again = i && is_same(at, &was);

		was = *at;
		if (again)
			*at = step->versions[i - 1].record;
		else
			rc = carry(r, at);
	}
	return rc;
}

// Of each step by its id, so that all nodes make the same of the same.
static int carry_steps(struct records *r, const struct ckpt_state *view)
{
	CLEANUP_FREE const struct ckpt_state_step **steps = NULL;
	size_t count = 0;
	int rc = ckpt_state_steps(view, &steps, &count);

	for (size_t i = 0; i < count && !rc; i++)
		rc = carry_step(r, ckpt_table_find(view, steps[i]->id));
	return rc;
}

// In the order in which they stand in the state.
static int carry_plains(struct records *r, const struct ckpt_state *view)
{
	CLEANUP_FREE struct ckpt_plain **sorted = ckpt_plains_sorted(view);
	int rc = sorted ? 0 : -ENOMEM;

	for (size_t i = 0; i < view->plains.count && !rc; i++)
		if (sorted[i]->content.len)
			rc = carry(r, &sorted[i]->content);
	return rc;
}

int ckpt_jump_snapshot(struct ckpt_objects *objects, const char *store_id, struct ckpt_state *view,
		       const struct ckpt_log_position *at, void **ret_data, size_t *ret_len)
{
	struct records r = {.objects = objects, .seq = at->seq};
	CLEANUP_FREE void *state = NULL;
	struct ckpt_snapshot s = {.at = *at};
	int rc = carry_steps(&r, view);

	if (!rc)
		rc = carry_plains(&r, view);
	if (!rc)
		rc = ckpt_state_encode(view, &state, &s.state_len);
	s.state = state;
	s.records = r.at ? (const void *)r.at : "";
	s.records_len = r.len;
	if (!rc)
		rc = ckpt_snapshot_encode(store_id, &s, ret_data, ret_len);
	free(r.at);
	if (!rc && *ret_len > CKPT_REMOTE_SNAPSHOT_BYTES_MAX) {
		free(TAKE_PTR(*ret_data));
		rc = -EFBIG;
	}
	return rc;
}

// --- A snapshot is read: of a bucket, to which others may write --------------------------------------------------------------

struct check {
	const char *store_id;
	const struct ckpt_snapshot *s;
};

// NULL: they are elsewhere, or not all there.
static const uint8_t *find_bytes(const struct check *c, const struct ckpt_span *at)
{
	uint64_t begin = CKPT_SNAPSHOT_RECORDS_AT;

	if (at->seq != (c->s->at.seq | CKPT_SPAN_COPY) || at->offset < begin ||
	    at->offset - begin > c->s->records_len || at->len > c->s->records_len - (at->offset - begin))
		return NULL;
	return (const uint8_t *)c->s->records + (at->offset - begin);
}

static int check_record(const struct check *c, const struct ckpt_state_step *step, size_t i)
{
	const struct ckpt_summary *is = &step->is;
	bool last = i + 1 == step->count;
	const struct ckpt_span *at = &step->versions[i].record;
	const uint8_t *bytes = find_bytes(c, at);
	struct ckpt_record r;
	int rc = bytes ? ckpt_record_decode(bytes, at->len, &r) : -EBADMSG;

	if (rc)
		return rc;
	if (strcmp(r.store_id, c->store_id) || strcmp(r.summary.session, step->id) || r.summary.deleted ||
	    r.summary.version > CKPT_STATE_VERSION_MAX ||
	    (last && (memcmp(r.summary.nonce, is->nonce, sizeof(is->nonce)) ||
		      memcmp(r.summary.manifest_sha256, is->manifest_sha256, sizeof(is->manifest_sha256)))))
		rc = -EBADMSG;
	ckpt_record_done(&r);
	return rc;
}

static int check_step(const struct check *c, const struct ckpt_state_step *step)
{
	int rc = ckpt_state_last(step) > CKPT_STATE_VERSION_MAX ? -EBADMSG : 0;

	for (size_t i = 0; i < step->count && !rc; i++)
		if (i + 1 == step->count || !is_same(&step->versions[i].record, &step->versions[i + 1].record))
			rc = check_record(c, step, i);
	return rc;
}

static int check_plains(const struct check *c, const struct ckpt_state *state)
{
	size_t count;
	struct ckpt_plain *const *all = ckpt_state_plains(state, &count);

	for (size_t i = 0; i < count; i++) {
		const uint8_t *bytes = all[i]->content.len ? find_bytes(c, &all[i]->content) : NULL;

		if (all[i]->content.len && (!bytes || !ckpt_plain_is_content(all[i], bytes)))
			return -EBADMSG;
	}
	return 0;
}

static int check_all(const struct check *c, const struct ckpt_state *state)
{
	CLEANUP_FREE const struct ckpt_state_step **steps = NULL;
	size_t count = 0;
	int rc = 0;

	for (size_t i = 0; i < state->values.is.count && !rc; i++)
		if (!ckpt_value_is_shared(state->values.is.at[i].key))
			rc = -EBADMSG;
	if (!rc)
		rc = check_plains(c, state);

	if (!rc)
		rc = ckpt_state_steps(state, &steps, &count);
	for (size_t i = 0; i < count && !rc; i++)
		rc = check_step(c, steps[i]);
	return rc;
}

int ckpt_jump_state(const char *store_id, uint64_t seq, const void *data, size_t len, struct ckpt_log_position *ret_at,
		    struct ckpt_state **ret_state)
{
	struct ckpt_state *state = NULL;
	struct ckpt_snapshot s;
	int rc = ckpt_snapshot_decode(store_id, seq, data, len, &s);

	if (!rc && (!s.records || len > CKPT_REMOTE_SNAPSHOT_BYTES_MAX))
		rc = -EBADMSG;
	if (!rc)
		rc = ckpt_view_decode(s.state, s.state_len, &s.at, &state);
	if (!rc)
		rc = check_all(&(struct check){.store_id = store_id, .s = &s}, state);
	if (rc) {
		ckpt_state_free(state);
		return rc;
	}
	*ret_at = s.at;
	*ret_state = state;
	return 0;
}

// --- Copies of a node -----------------------------------------------------------------------------------------------------

static int put_again(struct ckpt_objects *objects, const char *key, const void *data, size_t len)
{
	CLEANUP_FREE void *there = NULL;
	size_t there_len;
	int rc = ckpt_objects_get_all(objects, key, CKPT_REMOTE_SNAPSHOT_BYTES_MAX, &there, &there_len, NULL);

	if (!rc && there_len == len && !memcmp(there, data, len))
		return ckpt_objects_sync(objects, key);
	if (rc && rc != -EFBIG)
		return rc;
	rc = ckpt_objects_remove(objects, key);
	return rc && rc != -ENOENT ? rc : ckpt_objects_put(objects, key, data, len, NULL);
}

int ckpt_jump_copy_put(struct ckpt_objects *objects, uint64_t seq, const void *data, size_t len)
{
	char key[CKPT_SNAPSHOT_KEY_MAX];
	int rc;

	ckpt_snapshot_copy_key(seq, key);
	rc = ckpt_objects_put(objects, key, data, len, NULL);
	return rc == -EEXIST ? put_again(objects, key, data, len) : rc;
}

int ckpt_jump_copy_read(struct ckpt_objects *objects, const char *store_id, const struct ckpt_jump *jump,
			struct ckpt_log_position *ret_at, struct ckpt_state **ret_state)
{
	uint8_t sha256[CKPT_SHA256_LEN];
	CLEANUP_FREE void *data = NULL;
	char key[CKPT_SNAPSHOT_KEY_MAX];
	size_t len;
	int rc;

	ckpt_snapshot_copy_key(jump->seq, key);
	rc = ckpt_objects_get_all(objects, key, jump->bytes, &data, &len, NULL);
	if (rc)
		return rc == -EFBIG ? -EBADMSG : rc;
	ckpt_sha256(data, len, sha256);
	if (len != jump->bytes || memcmp(sha256, jump->sha256, sizeof(sha256)) != 0)
		return -EBADMSG;
	return ckpt_jump_state(store_id, jump->seq, data, len, ret_at, ret_state);
}

static int find_jump(const struct ckpt_log_entry *entry, struct ckpt_jump *ret)
{
	struct ckpt_operation op;
	int rc = 0;

	*ret = (struct ckpt_jump){0};
	for (size_t cursor = 0; !rc && ckpt_log_entry_next(entry, &cursor, &op);)
		if (op.kind == CKPT_JUMP_KIND) // one is alone in its entry
			rc = ret->seq ? -EBADMSG : ckpt_jump_decode(op.body, op.len, ret);
	return rc;
}

int ckpt_jump_of_entry(struct ckpt_objects *objects, const char *store_id, const struct ckpt_log_entry *entry,
		       uint64_t remote_seq, struct ckpt_log_position *ret_at, struct ckpt_state **ret_to)
{
	struct ckpt_jump jump;
	int rc = find_jump(entry, &jump);

	*ret_at = (struct ckpt_log_position){.seq = jump.seq};
	*ret_to = NULL;
	if (rc || jump.seq <= remote_seq)
		return rc;
	rc = ckpt_jump_copy_read(objects, store_id, &jump, ret_at, ret_to);
	return rc == -ENOENT ? -ESTALE : rc;
}

struct copies {
	ckpt_log_needed_fn *is_needed;
	void *arg;
	uint64_t *at; // those in which nothing is needed
	size_t count, cap;
	uint64_t own, own_count; // the oldest snapshot of the node's log, and how many it has
};

static int see_copy(void *arg, const char *key, const struct ckpt_object *object)
{
	uint64_t seq = ckpt_snapshot_copy_number(key), own = ckpt_log_number(key);
	struct copies *c = arg;
	int rc;

	(void)object;
	if (own && !c->own_count++)
		c->own = own;
	if (!seq || c->is_needed(c->arg, seq | CKPT_SPAN_COPY))
		return 0;
	rc = ckpt_grow((void **)&c->at, &c->cap, c->count + 1, sizeof(*c->at));
	if (!rc)
		c->at[c->count++] = seq;
	return rc;
}

// Up to where the node had read the remote's log at its oldest snapshot: a JUMP to there or before is not read again.
static int find_bound(struct ckpt_objects *objects, const char *store_id, const struct copies *c, uint64_t *ret_seq)
{
	CLEANUP_FREE void *data = NULL;
	struct ckpt_log_position at;
	struct ckpt_state *state;
	size_t len;
	int rc = ckpt_snapshot_read(objects, store_id, c->own, &at, &data, &len);

	if (!rc)
		rc = ckpt_state_decode(data, len, &state);
	if (rc)
		return rc;
	*ret_seq = ckpt_state_remote(state).seq;
	ckpt_state_free(state);
	return 0;
}

int ckpt_jump_copies_trim(struct ckpt_objects *objects, const char *store_id, ckpt_log_needed_fn *is_needed, void *arg)
{
	struct copies c = {.is_needed = is_needed, .arg = arg};
	uint64_t bound = 0;
	int rc = ckpt_objects_list(objects, "snap/", NULL, see_copy, &c);

	if (!rc && c.count && c.own_count > 1) // with one alone the log may be read from its beginning
		rc = find_bound(objects, store_id, &c, &bound);
	for (size_t i = 0; i < c.count && !rc; i++) {
		char key[CKPT_SNAPSHOT_KEY_MAX];

		if (c.at[i] > bound)
			continue;
		ckpt_snapshot_copy_key(c.at[i], key);
		rc = ckpt_objects_remove(objects, key);
		rc = rc == -ENOENT ? 0 : rc;
	}
	free(c.at);
	return rc == -EBADMSG ? 0 : rc;
}
