// A state as bytes, for a snapshot. Who decodes one believes nothing: a state that apply could not have made is refused.
#include "core/state/table.h"

#include "core/base/util.h"
#include "core/state/act.h"
#include "core/state/shared.h"

// state    := nodes u32, steps u32, values u32, parts u32, node*, step*, value*, [attached], [plains: plain_form.c],
//             [condemned: condemned.c], [there]
// node     := id (40), number u64
// step     := deleted_by u32, versions u32, deleted_ns i64, version*, summary
// version  := version u32, flags u32, committed i64, seq u64, offset u32, length u32, node u32 (its place above), uid u32, comm (16)
// attached := seq of the remote's log u64, SHA-256 of that entry, length of host u32, changed u32, host, changed*
// changed  := id (40), since u64, latest u64, flags u32, merged u32, [until u64, of a dropped one], [step as the remote's log has it]
// value    := seq u64, length of key u16, flags u16, length of text u32, key, text
// there    := count u32, zero u32, value*

enum {
	HEAD_BYTES = 16,
	NODE_BYTES = 48,
	STEP_BYTES = 16,
	VERSION_BYTES = 56,
	VALUE_BYTES = 16,
	ATTACHED_BYTES = 48,
	CHANGED_BYTES = 64,
	UNTIL_BYTES = 8,

	ATTACHED_SHA256 = 8,
	ATTACHED_HOST_LEN = 40,
	ATTACHED_CHANGED = 44,
	CHANGED_SINCE = 40,
	CHANGED_LATEST = 48,
	CHANGED_FLAGS = 56,
	CHANGED_MERGED = 60,
	CHANGED_GONE = 1,
	CHANGED_SHARED = 2,
	CHANGED_DROPPED = 4,
	CHANGED_PASSED = 8, // a later step has arrived

	PART_ATTACHED = 1,
	PART_PLAINS = 2,    // only with PART_ATTACHED, or in a view
	PART_CONDEMNED = 4, // the same
	PART_THERE = 8,     // only with PART_ATTACHED

	THERE_BYTES = 8,
	VALUE_PULLED = 1,

	FLAG_DELETED = 4, // beside CKPT_FLAG_*
	FILES_SHIFT = 3,  // bits 3 and 4: enum ckpt_state_files
	FILES_MASK = 3 << FILES_SHIFT,
	FLAG_UNMERGED = 32,
	FLAGS_ALL = 63,
};

struct bytes {
	uint8_t *at;
	size_t len, cap;
};

// NULL: no memory.
static uint8_t *add(struct bytes *b, size_t len)
{
	uint8_t *p;

	if (ckpt_grow((void **)&b->at, &b->cap, b->len + len, 1))
		return NULL;
	p = b->at + b->len;
	memset(p, 0, len);
	b->len += len;
	return p;
}

static void put_version(uint8_t *p, const struct ckpt_state_version *v, const uint32_t *ranks)
{
	uint32_t flags = (v->pinned ? CKPT_FLAG_PINNED : 0) | (v->temporary ? CKPT_FLAG_TEMPORARY : 0) |
			 (v->deleted ? FLAG_DELETED : 0) | (v->unmerged ? FLAG_UNMERGED : 0) |
			 (uint32_t)v->files << FILES_SHIFT;

	ckpt_put32(p, v->version);
	ckpt_put32(p + 4, flags);
	ckpt_put64(p + 8, (uint64_t)v->committed_ns);
	ckpt_put64(p + 16, v->record.seq);
	ckpt_put32(p + 24, v->record.offset);
	ckpt_put32(p + 28, v->record.len);
	ckpt_put32(p + 32, ranks[v->by.node]);
	ckpt_put32(p + 36, v->by.actor.uid);
	memcpy(p + 40, v->by.actor.comm, sizeof(v->by.actor.comm));
}

static int add_step(struct bytes *b, const struct ckpt_state_step *step, const uint32_t *ranks)
{
	CLEANUP_FREE void *summary = NULL;
	size_t len;
	int rc = ckpt_summary_encode(&step->is, &summary, &len);
	uint8_t *p = rc ? NULL : add(b, STEP_BYTES + step->count * VERSION_BYTES + len);

	if (!p)
		return rc ? rc : -ENOMEM;
	ckpt_put32(p, step->deleted_by);
	ckpt_put32(p + 4, (uint32_t)step->count);
	ckpt_put64(p + 8, (uint64_t)step->deleted_ns);
	p += STEP_BYTES;
	for (size_t i = 0; i < step->count; i++, p += VERSION_BYTES)
		put_version(p, &step->versions[i], ranks);
	memcpy(p, summary, len);
	return 0;
}

static int add_value(struct bytes *b, const struct ckpt_state_value *v)
{
	size_t key_len = strlen(v->key), len = strlen(v->text);
	uint8_t *p = add(b, VALUE_BYTES + key_len + len);

	if (!p)
		return -ENOMEM;
	ckpt_put64(p, v->seq);
	ckpt_put16(p + 8, (uint16_t)key_len);
	ckpt_put16(p + 10, v->pulled ? VALUE_PULLED : 0);
	ckpt_put32(p + 12, (uint32_t)len);
	memcpy(p + VALUE_BYTES, v->key, key_len);
	memcpy(p + VALUE_BYTES + key_len, v->text, len);
	return 0;
}

static uint32_t rank_of(const struct ckpt_state *s, size_t node)
{
	uint32_t rank = 0;

	for (size_t i = 0; i < s->node_count; i++)
		rank += strcmp(s->nodes[i].node, s->nodes[node].node) < 0;
	return rank;
}

// ret_ranks: of each node, its place among all of them when they are sorted.
static int add_nodes(struct bytes *b, const struct ckpt_state *s, uint32_t **ret_ranks)
{
	CLEANUP_FREE uint32_t *ranks = ckpt_calloc(s->node_count + 1, sizeof(*ranks));
	uint8_t *nodes = ranks ? add(b, s->node_count * NODE_BYTES) : NULL;

	if (!nodes)
		return -ENOMEM;
	for (size_t i = 0; i < s->node_count; i++) {
		uint8_t *p = nodes + (ranks[i] = rank_of(s, i)) * NODE_BYTES;

		memcpy(p, s->nodes[i].node, CKPT_UUID_LEN);
		ckpt_put64(p + 40, s->nodes[i].number);
	}
	*ret_ranks = TAKE_PTR(ranks);
	return 0;
}

// A step that has expired here, which the table has no more, is as the remote's log has it.
static int add_changed(struct bytes *b, const struct ckpt_state_step *c, const uint32_t *ranks)
{
	uint8_t *p = add(b, CHANGED_BYTES);

	if (!p)
		return -ENOMEM;
	memcpy(p, c->id, CKPT_UUID_LEN);
	ckpt_put64(p + CHANGED_SINCE, c->since);
	ckpt_put64(p + CHANGED_LATEST, c->latest);
	ckpt_put32(p + CHANGED_FLAGS, (c->gone ? CHANGED_GONE : 0) | (c->shared ? CHANGED_SHARED : 0) |
					      (ckpt_state_is_dropped(c) ? CHANGED_DROPPED : 0) |
					      (c->until && !c->gone ? CHANGED_PASSED : 0));
	ckpt_put32(p + CHANGED_MERGED, c->merged);
	if (c->until && !c->gone) {
		p = add(b, UNTIL_BYTES);
		if (!p)
			return -ENOMEM;
		ckpt_put64(p, c->until);
	}
	return c->shared ? add_step(b, c->shared, ranks) : 0;
}

static int add_attached(struct bytes *b, const struct ckpt_state *s, const uint32_t *ranks)
{
	uint8_t *p = add(b, ATTACHED_BYTES);
	size_t host_len = strlen(s->host);
	int rc = 0;

	if (!p)
		return -ENOMEM;
	ckpt_put64(p, s->remote.seq);
	memcpy(p + ATTACHED_SHA256, s->remote.sha256, CKPT_SHA256_LEN);
	ckpt_put32(p + ATTACHED_HOST_LEN, (uint32_t)host_len);
	ckpt_put32(p + ATTACHED_CHANGED, (uint32_t)s->changed_count);
	p = add(b, host_len);
	if (!p)
		return -ENOMEM;
	memcpy(p, s->host, host_len);
	for (size_t i = 0; i < s->changed_count && !rc; i++)
		rc = add_changed(b, s->changed[i], ranks);
	return rc;
}

static int add_plains(struct bytes *b, const struct ckpt_state *s, const uint32_t *ranks)
{
	uint8_t *p = add(b, ckpt_plains_bytes(s));

	return p ? ckpt_plains_put(s, ranks, p) : -ENOMEM;
}

static int add_condemned(struct bytes *b, const struct ckpt_state *s)
{
	uint8_t *p = add(b, ckpt_condemned_bytes(s));

	return p ? ckpt_condemned_put(s, p) : -ENOMEM;
}

static int add_there(struct bytes *b, const struct ckpt_state *s)
{
	uint8_t *p = add(b, THERE_BYTES);
	int rc = p ? 0 : -ENOMEM;

	if (p)
		ckpt_put32(p, (uint32_t)s->values.there.count);
	for (size_t i = 0; i < s->values.there.count && !rc; i++)
		rc = add_value(b, &s->values.there.at[i]);
	return rc;
}

static uint32_t parts_of(const struct ckpt_state *s)
{
	return (s->host ? PART_ATTACHED : 0) | (s->plains.count ? PART_PLAINS : 0) |
	       (s->condemned.count ? PART_CONDEMNED : 0) | (s->values.there.count ? PART_THERE : 0);
}

int ckpt_state_encode(const struct ckpt_state *s, void **ret_data, size_t *ret_len)
{
	CLEANUP_FREE const struct ckpt_state_step **steps = NULL;
	CLEANUP_FREE uint32_t *ranks = NULL;
	struct bytes b = {0};
	uint8_t *head = add(&b, HEAD_BYTES);
	size_t count = 0;
	int rc = head ? ckpt_state_steps(s, &steps, &count) : -ENOMEM;

	if (!rc) {
		ckpt_put32(head, (uint32_t)s->node_count);
		ckpt_put32(head + 4, (uint32_t)count);
		ckpt_put32(head + 8, (uint32_t)s->values.is.count);
		ckpt_put32(head + 12, parts_of(s));
		rc = add_nodes(&b, s, &ranks);
	}
	for (size_t i = 0; i < count && !rc; i++)
		rc = add_step(&b, steps[i], ranks);
	for (size_t i = 0; i < s->values.is.count && !rc; i++)
		rc = add_value(&b, &s->values.is.at[i]);
	if (!rc && s->host)
		rc = add_attached(&b, s, ranks);
	if (!rc && s->plains.count)
		rc = add_plains(&b, s, ranks);
	if (!rc && s->condemned.count)
		rc = add_condemned(&b, s);
	if (!rc && s->values.there.count)
		rc = add_there(&b, s);
	if (rc) {
		free(b.at);
		return rc;
	}
	*ret_data = b.at;
	*ret_len = b.len;
	return 0;
}

struct cursor {
	const uint8_t *at;
	size_t left;
	char id[CKPT_UUID_LEN + 1]; // of the last step; they ascend
};

// NULL: there is not so much.
static const uint8_t *take(struct cursor *c, size_t len)
{
	const uint8_t *p = c->at;

	if (len > c->left)
		return NULL;
	c->at += len;
	c->left -= len;
	return p;
}

static int take_node(struct ckpt_state *s, struct cursor *c)
{
	const uint8_t *p = take(c, NODE_BYTES);
	char node[CKPT_UUID_LEN + 1] = "";

	if (!p || ckpt_get32(p + CKPT_UUID_LEN))
		return -EBADMSG;
	memcpy(node, p, CKPT_UUID_LEN);
	if (!ckpt_uuid_check(node) || (s->node_count && strcmp(s->nodes[s->node_count - 1].node, node) >= 0))
		return -EBADMSG;
	if (ckpt_state_make_node_room(s, 1))
		return -ENOMEM;
	ckpt_state_add_node(s, s->node_count, node, ckpt_get64(p + 40));
	return 0;
}

bool ckpt_span_check(const struct ckpt_span *at, uint32_t most)
{
	uint32_t whole = at->seq & CKPT_SPAN_COPY ? CKPT_REMOTE_SNAPSHOT_BYTES_MAX : CKPT_LOG_ENTRY_BYTES_MAX;

	return at->seq & ~CKPT_SPAN_COPY && at->len && at->len <= most && at->offset <= whole - at->len;
}

static int take_version(const struct ckpt_state *s, struct ckpt_state_step *step, const uint8_t *p)
{
	uint32_t flags = ckpt_get32(p + 4);
	struct ckpt_state_version v = {
		.version = ckpt_get32(p),
		.deleted = flags & FLAG_DELETED,
		.pinned = flags & CKPT_FLAG_PINNED,
		.temporary = flags & CKPT_FLAG_TEMPORARY,
		.files = (enum ckpt_state_files)((flags & FILES_MASK) >> FILES_SHIFT),
		.unmerged = flags & FLAG_UNMERGED,
		.committed_ns = (int64_t)ckpt_get64(p + 8),
		.record = {.seq = ckpt_get64(p + 16), .offset = ckpt_get32(p + 24), .len = ckpt_get32(p + 28)},
		.by = {.node = ckpt_get32(p + 32), .actor = {.uid = ckpt_get32(p + 36)}},
	};

	memcpy(v.by.actor.comm, p + 40, sizeof(v.by.actor.comm));
	if (v.by.node >= s->node_count || !ckpt_comm_check(v.by.actor.comm))
		return -EBADMSG;
	if (v.version <= ckpt_state_newest(step) || flags & ~(uint32_t)FLAGS_ALL ||
	    !ckpt_span_check(&v.record, CKPT_LOG_ENTRY_BYTES_MAX))
		return -EBADMSG;
	step->versions[step->count++] = v;
	return 0;
}

// The first version is a save. A deletion has the files of the version before, which is none, and the newest that is none is what the step is.
static bool versions_ok(const struct ckpt_state_step *step)
{
	const struct ckpt_state_version *v = step->versions, *last = &v[step->count - 1];

	if (v->files != CKPT_FILES_SAVED)
		return false;
	for (size_t i = 0; i < step->count; i++)
		if (v[i].deleted && (!i || v[i - 1].deleted || v[i].files != CKPT_FILES_SAME))
			return false;
	if (last->deleted)
		return step->deleted_by == last->version && step->is.version == last[-1].version;
	return step->is.version == last->version;
}

static int take_step(struct ckpt_state *s, struct cursor *c, struct ckpt_state_step *step)
{
	const uint8_t *head = take(c, STEP_BYTES), *summary;
	uint32_t count = head ? ckpt_get32(head + 4) : 0;
	const uint8_t *versions =
		count && count <= c->left / VERSION_BYTES ? take(c, (size_t)count * VERSION_BYTES) : NULL;
	int rc = 0;

	if (!versions)
		return -EBADMSG;
	step->versions = ckpt_calloc(count, sizeof(*step->versions));
	step->cap = count;
	if (!step->versions)
		return -ENOMEM;
	for (uint32_t i = 0; i < count && !rc; i++)
		rc = take_version(s, step, versions + (size_t)i * VERSION_BYTES);
	if (rc)
		return rc;
	step->deleted_by = ckpt_get32(head);
	step->deleted_ns = (int64_t)ckpt_get64(head + 8);
	summary = c->left < 4 ? NULL : take(c, ckpt_get32(c->at));
	rc = summary ? ckpt_summary_decode(summary, (size_t)(c->at - summary), &step->is) : -EBADMSG;
	if (rc)
		return rc;
	memcpy(step->id, step->is.session, sizeof(step->id));
	return !step->is.deleted && versions_ok(step) && (step->deleted_by || !step->deleted_ns) ? 0 : -EBADMSG;
}

static int new_step(struct ckpt_state *s, struct cursor *c, struct ckpt_state_step **ret_step)
{
	struct ckpt_state_step *step = calloc(1, sizeof(*step));
	int rc = step ? take_step(s, c, step) : -ENOMEM;

	if (rc)
		ckpt_state_step_free(step);
	else
		*ret_step = step;
	return rc;
}

// A step that apply could not have made is damage, or hostile.
static int take_shown(struct ckpt_state *s, struct cursor *c)
{
	struct ckpt_state_step *step;
	int rc = new_step(s, c, &step);

	if (rc)
		return rc;
	if (strcmp(step->id, c->id) <= 0 ||
	    (!step->deleted_by && ckpt_table_listed(s, step->is.folder_id, step->is.name))) {
		ckpt_state_step_free(step);
		return -EBADMSG;
	}
	memcpy(c->id, step->id, sizeof(c->id));
	ckpt_table_insert(s, step);
	return 0;
}

// flags: those that it may have.
static int take_value(struct ckpt_value_list *values, struct cursor *c, unsigned flags)
{
	const uint8_t *head = take(c, VALUE_BYTES);
	size_t key_len = head ? ckpt_get16(head + 8) : 0, len = head ? ckpt_get32(head + 12) : 0;
	const char *key = head ? (const char *)take(c, key_len) : NULL;
	const char *text = key ? (const char *)take(c, len) : NULL;
	struct ckpt_state_value v = {.text = (char *)text};

	if (!text || key_len > CKPT_VALUE_KEY_MAX || ckpt_get16(head + 10) & ~flags || !ckpt_get64(head))
		return -EBADMSG;
	memcpy(v.key, key, key_len);
	v.seq = ckpt_get64(head);
	v.pulled = ckpt_get16(head + 10);
	if (!ckpt_act_is_key(v.key, key_len) || !len || !ckpt_act_is_value(text, len) ||
	    (values->count && strcmp(values->at[values->count - 1].key, v.key) >= 0) ||
	    (v.pulled && !ckpt_value_is_shared(v.key)))
		return -EBADMSG;
	return ckpt_value_put(values, &v, len);
}

static int take_there(struct ckpt_state *s, struct cursor *c)
{
	const uint8_t *p = take(c, THERE_BYTES);
	uint32_t count = p ? ckpt_get32(p) : 0;
	int rc = count && !ckpt_get32(p + 4) ? 0 : -EBADMSG;

	for (uint32_t i = 0; i < count && !rc; i++) {
		rc = take_value(&s->values.there, c, 0);
		if (!rc && !ckpt_value_is_shared(s->values.there.at[i].key))
			rc = -EBADMSG;
	}
	return rc;
}

static int take_changed(struct ckpt_state *s, struct cursor *c)
{
	const uint8_t *p = take(c, CHANGED_BYTES), *until = NULL;
	uint32_t flags = p ? ckpt_get32(p + CHANGED_FLAGS) : 0;
	struct ckpt_state_step *shared = NULL, *step, *of;
	uint32_t merged;
	char id[CKPT_UUID_LEN + 1] = "";
	int rc;

	if (!p || ckpt_get32(p + CKPT_UUID_LEN) ||
	    flags & ~(uint32_t)(CHANGED_GONE | CHANGED_SHARED | CHANGED_DROPPED | CHANGED_PASSED) ||
	    !ckpt_get64(p + CHANGED_SINCE) || ckpt_get64(p + CHANGED_LATEST) < ckpt_get64(p + CHANGED_SINCE))
		return -EBADMSG;
	memcpy(id, p, CKPT_UUID_LEN);
	if (flags & CHANGED_GONE && flags & (CHANGED_DROPPED | CHANGED_PASSED))
		return -EBADMSG;
	if (flags & CHANGED_PASSED && (!(until = take(c, UNTIL_BYTES)) || !ckpt_get64(until)))
		return -EBADMSG;
	rc = flags & CHANGED_SHARED ? new_step(s, c, &shared) : 0;

	if (rc)
		return rc;
	step = ckpt_table_find(s, id);
	merged = ckpt_get32(p + CHANGED_MERGED);
	of = shared ? shared : step;
	rc = (shared && strcmp(shared->id, id)) || !step != !!(flags & CHANGED_GONE) || (step && step->since) ||
			     (of && merged > ckpt_state_last(of))
		     ? -EBADMSG
		     : ckpt_shared_take(s, id, step, shared, ckpt_get64(p + CHANGED_SINCE),
					ckpt_get64(p + CHANGED_LATEST), merged);
	if (rc) {
		ckpt_state_step_free(shared);
	} else if (step) {
		step->dropped = flags & CHANGED_DROPPED ? step->latest : 0;
		step->until = until ? ckpt_get64(until) : 0;
	}
	return rc;
}

static int take_attached(struct ckpt_state *s, struct cursor *c)
{
	const uint8_t *p = take(c, ATTACHED_BYTES);
	uint32_t host_len = p ? ckpt_get32(p + ATTACHED_HOST_LEN) : 0, count = p ? ckpt_get32(p + ATTACHED_CHANGED) : 0;
	const char *host = p ? (const char *)take(c, host_len) : NULL;
	int rc = 0;

	if (!host || !ckpt_pull_is_host(host, host_len))
		return -EBADMSG;
	s->host = strndup(host, host_len);
	if (!s->host)
		return -ENOMEM;
	s->remote.seq = ckpt_get64(p);
	memcpy(s->remote.sha256, p + ATTACHED_SHA256, CKPT_SHA256_LEN);
	for (uint32_t i = 0; i < count && !rc; i++)
		rc = take_changed(s, c);
	return rc;
}

static int take_plains(struct ckpt_state *s, struct cursor *c)
{
	size_t taken;
	int rc = ckpt_plains_take(s, c->at, c->left, &taken);

	if (!rc)
		(void)take(c, taken);
	return rc;
}

static int take_condemned(struct ckpt_state *s, struct cursor *c)
{
	size_t taken;
	int rc = ckpt_condemned_take(s, c->at, c->left, &taken);

	if (!rc)
		(void)take(c, taken);
	return rc;
}

// The parts of a remote, in a state that has one, or in a view.
static bool parts_ok(uint32_t parts, bool is_view)
{
	if (parts & ~(uint32_t)(PART_ATTACHED | PART_PLAINS | PART_CONDEMNED | PART_THERE))
		return false;
	return is_view ? !(parts & (PART_ATTACHED | PART_THERE)) : !parts || parts & PART_ATTACHED;
}

// view: at the position, or NULL: it is none.
static int decode(const void *data, size_t len, const struct ckpt_log_position *view, struct ckpt_state **ret_state)
{
	struct cursor c = {.at = data, .left = len};
	const uint8_t *head = take(&c, HEAD_BYTES);
	uint32_t parts = head ? ckpt_get32(head + 12) : 0;
	struct ckpt_state *s = head ? ckpt_state_new() : NULL;
	int rc = !head ? -EBADMSG : !s ? -ENOMEM : 0;

	if (!rc && !parts_ok(parts, view))
		rc = -EBADMSG;
	if (!rc && view)
		s->remote = *view;
	for (uint32_t i = 0; !rc && i < ckpt_get32(head); i++)
		rc = take_node(s, &c);
	for (uint32_t i = 0; !rc && i < ckpt_get32(head + 4); i++)
		rc = take_shown(s, &c);
	for (uint32_t i = 0; !rc && i < ckpt_get32(head + 8); i++)
		rc = take_value(&s->values.is, &c, parts & PART_ATTACHED ? VALUE_PULLED : 0);
	if (!rc && parts & PART_ATTACHED)
		rc = take_attached(s, &c);
	if (!rc && parts & PART_PLAINS)
		rc = take_plains(s, &c);
	if (!rc && parts & PART_CONDEMNED)
		rc = take_condemned(s, &c);
	if (!rc && parts & PART_THERE)
		rc = take_there(s, &c);
	if (!rc && c.left)
		rc = -EBADMSG;
	if (rc) {
		ckpt_state_free(s);
		return rc;
	}
	*ret_state = s;
	return 0;
}

int ckpt_state_decode(const void *data, size_t len, struct ckpt_state **ret_state)
{
	return decode(data, len, NULL, ret_state);
}

int ckpt_view_decode(const void *data, size_t len, const struct ckpt_log_position *at, struct ckpt_state **ret_state)
{
	return decode(data, len, at, ret_state);
}
