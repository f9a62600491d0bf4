#include "core/state/state.h"

#include "core/base/util.h"
#include "core/state/act.h"

#define BUCKETS_FIRST 256

struct node_number {
	char node[CKPT_UUID_LEN + 1];
	uint64_t number;
};

struct ckpt_state {
	struct ckpt_state_step **of_id, **of_name; // chained
	size_t bucket_count, count;
	struct node_number *nodes;
	size_t node_count, node_cap;
	struct ckpt_state_value *values; // by key
	size_t value_count, value_cap;
};

// --- The table --------------------------------------------------------------------------------------------------------

// FNV-1a
static uint64_t hash(uint64_t h, const char *text)
{
	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
	return (h ^ '/') * UINT64_C(0x100000001b3);
}

static struct ckpt_state_step **id_slot(const struct ckpt_state *s, const char *id)
{
	return &s->of_id[hash(UINT64_C(0xcbf29ce484222325), id) & (s->bucket_count - 1)];
}

static struct ckpt_state_step **name_slot(const struct ckpt_state *s, const char *folder_id, const char *name)
{
	return &s->of_name[hash(hash(UINT64_C(0xcbf29ce484222325), folder_id), name) & (s->bucket_count - 1)];
}

static struct ckpt_state_step *find(const struct ckpt_state *s, const char *id)
{
	struct ckpt_state_step *step = *id_slot(s, id);

	while (step && strcmp(step->id, id))
		step = step->next_of_id;
	return step;
}

static struct ckpt_state_step *find_listed(const struct ckpt_state *s, const char *folder_id, const char *name)
{
	struct ckpt_state_step *step = *name_slot(s, folder_id, name);

	while (step && (step->deleted_by || strcmp(step->is.name, name) || strcmp(step->is.folder_id, folder_id)))
		step = step->next_of_name;
	return step;
}

static void give_name(struct ckpt_state *s, struct ckpt_state_step *step)
{
	struct ckpt_state_step **slot = name_slot(s, step->is.folder_id, step->is.name);

	step->next_of_name = *slot;
	*slot = step;
}

static void take_name(struct ckpt_state *s, struct ckpt_state_step *step)
{
	struct ckpt_state_step **slot = name_slot(s, step->is.folder_id, step->is.name);

	while (*slot != step)
		slot = &(*slot)->next_of_name;
	*slot = step->next_of_name;
}

static void step_free(struct ckpt_state_step *step)
{
	if (!step)
		return;
	free(step->versions);
	free(step);
}

// Growth is an optimisation: without memory for it the chains get longer.
static void grow(struct ckpt_state *s)
{
	size_t was = s->bucket_count, is = was * 4;
	struct ckpt_state_step **ids = calloc(is, sizeof(struct ckpt_state_step *)), **old = s->of_id;
	struct ckpt_state_step **names = calloc(is, sizeof(struct ckpt_state_step *));

	if (!ids || !names) {
		free(ids);
		free(names);
		return;
	}
	free(s->of_name);
	s->of_id = ids;
	s->of_name = names;
	s->bucket_count = is;
	for (size_t i = 0; i < was; i++)
		for (struct ckpt_state_step *step = old[i], *next; step; step = next) {
			struct ckpt_state_step **slot = id_slot(s, step->id);

			next = step->next_of_id;
			step->next_of_id = *slot;
			*slot = step;
			give_name(s, step);
		}
	free(old);
}

static void insert(struct ckpt_state *s, struct ckpt_state_step *step)
{
	struct ckpt_state_step **slot;

	if (s->count >= s->bucket_count)
		grow(s);
	slot = id_slot(s, step->id);
	step->next_of_id = *slot;
	*slot = step;
	s->count++;
	give_name(s, step);
}

static void erase(struct ckpt_state *s, struct ckpt_state_step *step)
{
	struct ckpt_state_step **slot = id_slot(s, step->id);

	take_name(s, step);
	while (*slot != step)
		slot = &(*slot)->next_of_id;
	*slot = step->next_of_id;
	s->count--;
	step_free(step);
}

// --- Values -----------------------------------------------------------------------------------------------------------

// The place of the key, or where it would be.
static size_t value_place(const struct ckpt_state *s, const char *key, bool *ret_found)
{
	size_t i = 0;

	while (i < s->value_count && strcmp(s->values[i].key, key) < 0)
		i++;
	*ret_found = i < s->value_count && !strcmp(s->values[i].key, key);
	return i;
}

static void unset(struct ckpt_state *s, size_t i)
{
	free(s->values[i].text);
	memmove(&s->values[i], &s->values[i + 1], (--s->value_count - i) * sizeof(*s->values));
}

static int set(struct ckpt_state *s, const char *key, const char *value, size_t len, uint64_t seq)
{
	bool found;
	size_t i = value_place(s, key, &found);
	struct ckpt_state_value *v;
	char *text = len ? strndup(value, len) : NULL;
	int rc = len && !text ? -ENOMEM : 0;

	if (!rc && len && !found)
		rc = ckpt_grow((void **)&s->values, &s->value_cap, s->value_count + 1, sizeof(*s->values));
	if (rc) {
		free(text);
		return rc;
	}
	if (found)
		unset(s, i);
	if (!len)
		return 0;
	v = &s->values[i];
	memmove(v + 1, v, (s->value_count++ - i) * sizeof(*v));
	*v = (struct ckpt_state_value){.seq = seq, .text = text};
	strcpy(v->key, key);
	return 0;
}

// --- The whole --------------------------------------------------------------------------------------------------------

struct ckpt_state *ckpt_state_new(void)
{
	struct ckpt_state *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->bucket_count = BUCKETS_FIRST;
	s->of_id = calloc(s->bucket_count, sizeof(struct ckpt_state_step *));
	s->of_name = calloc(s->bucket_count, sizeof(struct ckpt_state_step *));
	if (s->of_id && s->of_name)
		return s;
	ckpt_state_free(s);
	return NULL;
}

void ckpt_state_free(struct ckpt_state *s)
{
	if (!s)
		return;
	for (size_t i = 0; s->of_id && i < s->bucket_count; i++)
		for (struct ckpt_state_step *step = s->of_id[i], *next; step; step = next) {
			next = step->next_of_id;
			step_free(step);
		}
	free(s->of_id);
	free(s->of_name);
	free(s->nodes);
	while (s->value_count)
		unset(s, s->value_count - 1);
	free(s->values);
	free(s);
}

// --- Versions ---------------------------------------------------------------------------------------------------------

static uint32_t newest(const struct ckpt_state_step *step)
{
	return step->count ? step->versions[step->count - 1].version : 0;
}

// Room for one more, so that what follows cannot fail.
static int make_room(struct ckpt_state_step *step)
{
	return ckpt_grow((void **)&step->versions, &step->cap, step->count + 1, sizeof(*step->versions));
}

static enum ckpt_state_files files_of(enum ckpt_act_kind kind)
{
	switch (kind) {
	case CKPT_ACT_SAVE:
	case CKPT_ACT_RESTORE:
		return CKPT_FILES_SAVED;
	case CKPT_ACT_AMEND:
		return CKPT_FILES_EDITED;
	case CKPT_ACT_REPACK:
		return CKPT_FILES_REPACKED;
	default:
		return CKPT_FILES_SAME;
	}
}

static void add_version(struct ckpt_state_step *step, const struct ckpt_span *record, enum ckpt_act_kind kind,
			const struct ckpt_state_by *by)
{
	bool deleted = kind == CKPT_ACT_DELETE;

	step->versions[step->count++] = (struct ckpt_state_version){
		.version = deleted ? step->deleted_by : step->is.version,
		.deleted = deleted,
		.pinned = step->is.pinned,
		.temporary = step->is.temporary,
		.files = files_of(kind),
		.committed_ns = deleted ? step->deleted_ns : step->is.committed_ns,
		.record = *record,
		.by = *by,
	};
}

static const struct ckpt_span *last_record(const struct ckpt_state_step *step)
{
	return &step->versions[step->count - 1].record;
}

// --- Acts with a record -------------------------------------------------------------------------------------------------

static void bury(struct ckpt_state_step *step, uint32_t by, int64_t ns)
{
	step->deleted_by = by;
	step->deleted_ns = ns;
}

static int save(struct ckpt_state *s, const struct ckpt_act *a, const struct ckpt_summary *sum,
		const struct ckpt_span *record, const struct ckpt_state_by *by)
{
	struct ckpt_state_step *there = find_listed(s, sum->folder_id, sum->name), *step;

	if (find(s, sum->session) || (there ? strcmp(there->id, a->replaces) != 0 : *a->replaces != '\0'))
		return CKPT_STATE_VOID;
	step = calloc(1, sizeof(*step));
	if (!step || make_room(step)) {
		step_free(step);
		return -ENOMEM;
	}
	memcpy(step->id, sum->session, sizeof(step->id));
	step->is = *sum;
	add_version(step, record, a->kind, by);
	if (there)
		bury(there, sum->version, sum->committed_ns);
	insert(s, step);
	return 0;
}

static int amend(struct ckpt_state *s, enum ckpt_act_kind kind, const struct ckpt_summary *sum,
		 const struct ckpt_span *record, const struct ckpt_state_by *by)
{
	struct ckpt_state_step *step = find(s, sum->session);

	if (!step || step->deleted_by || sum->version <= newest(step) || strcmp(sum->name, step->is.name) ||
	    strcmp(sum->folder_id, step->is.folder_id))
		return CKPT_STATE_VOID;
	if (make_room(step))
		return -ENOMEM;
	step->is = *sum;
	add_version(step, record, kind, by);
	return 0;
}

static int apply_record(struct ckpt_state *s, const char *store_id, const struct ckpt_act *a,
			const struct ckpt_span *at, const struct ckpt_state_by *by)
{
	struct ckpt_span record = {
		.seq = at->seq, .offset = at->offset + (uint32_t)a->record_at, .len = (uint32_t)a->record_len};
	struct ckpt_record r;
	int rc = ckpt_record_decode(a->record, a->record_len, &r);

	if (rc)
		return rc;
	if (strcmp(r.store_id, store_id) || r.summary.deleted || !*r.summary.session)
		rc = -EBADMSG;
	else if (a->kind == CKPT_ACT_SAVE)
		rc = save(s, a, &r.summary, &record, by);
	else
		rc = amend(s, a->kind, &r.summary, &record, by);
	ckpt_record_done(&r);
	return rc;
}

// --- Others -----------------------------------------------------------------------------------------------------------

static int delete_step(struct ckpt_state_step *step, const struct ckpt_act *a, const struct ckpt_state_by *by)
{
	if (step->deleted_by || step->is.pinned || a->version <= newest(step))
		return CKPT_STATE_VOID;
	if (make_room(step))
		return -ENOMEM;
	bury(step, a->version, a->time_ns);
	add_version(step, last_record(step), a->kind, by);
	return 0;
}

static int undelete(struct ckpt_state *s, struct ckpt_state_step *step, const struct ckpt_act *a,
		    const struct ckpt_state_by *by)
{
	if (!step->deleted_by || a->version <= newest(step) || a->version <= step->deleted_by ||
	    find_listed(s, step->is.folder_id, step->is.name))
		return CKPT_STATE_VOID;
	if (make_room(step))
		return -ENOMEM;
	step->deleted_by = 0;
	step->deleted_ns = 0;
	step->is.version = a->version;
	step->is.committed_ns = a->time_ns;
	step->is.temporary = false; // or the next commit could end it again
	add_version(step, last_record(step), a->kind, by);
	return 0;
}

static int rename_step(struct ckpt_state *s, struct ckpt_state_step *step, const struct ckpt_act *a)
{
	if (step->deleted_by || find_listed(s, a->folder_id, a->name))
		return CKPT_STATE_VOID;
	take_name(s, step);
	memcpy(step->is.folder_id, a->folder_id, sizeof(step->is.folder_id));
	memcpy(step->is.name, a->name, sizeof(step->is.name));
	step->is.number = ckpt_name_number(a->name);
	give_name(s, step);
	return 0;
}

static int flag(struct ckpt_state_step *step, const struct ckpt_act *a, const struct ckpt_state_by *by)
{
	if (step->deleted_by || a->version <= newest(step))
		return CKPT_STATE_VOID;
	if (make_room(step))
		return -ENOMEM;
	step->is.pinned = a->flags & CKPT_FLAG_PINNED;
	step->is.temporary = a->flags & CKPT_FLAG_TEMPORARY;
	step->is.version = a->version;
	step->is.committed_ns = a->time_ns;
	add_version(step, last_record(step), a->kind, by);
	return 0;
}

static int apply_plain(struct ckpt_state *s, const struct ckpt_act *a, const struct ckpt_state_by *by)
{
	struct ckpt_state_step *step = find(s, a->step);

	if (!step)
		return CKPT_STATE_VOID;
	switch (a->kind) {
	case CKPT_ACT_DELETE:
		return delete_step(step, a, by);
	case CKPT_ACT_UNDELETE:
		return undelete(s, step, a, by);
	case CKPT_ACT_RENAME:
		return rename_step(s, step, a);
	case CKPT_ACT_FLAG:
		return flag(step, a, by);
	default: // EXPIRE
		if (!step->deleted_by || step->deleted_by != a->version)
			return CKPT_STATE_VOID;
		erase(s, step);
		return 0;
	}
}

static int apply_set(struct ckpt_state *s, const struct ckpt_act *a, uint64_t seq)
{
	const struct ckpt_state_value *is = ckpt_state_value(s, a->key);

	if (a->before != CKPT_ACT_ANY && a->before != (is ? is->seq : 0))
		return CKPT_STATE_VOID;
	return set(s, a->key, a->value, a->value_len, seq);
}

// The place of the node, or that of the next one that is added.
static size_t node_place(const struct ckpt_state *s, const char *node)
{
	size_t i = 0;

	while (i < s->node_count && strcmp(s->nodes[i].node, node))
		i++;
	return i;
}

// So that add_node() cannot fail.
static int make_node_room(struct ckpt_state *s)
{
	return ckpt_grow((void **)&s->nodes, &s->node_cap, s->node_count + 1, sizeof(*s->nodes));
}

static void add_node(struct ckpt_state *s, size_t place, const char *node, uint64_t number)
{
	struct node_number *n = &s->nodes[place];

	if (place == s->node_count) {
		s->node_count++;
		memcpy(n->node, node, sizeof(n->node));
		n->number = 0;
	}
	n->number = MAX(n->number, number);
}

static int apply_act(struct ckpt_state *s, const char *store_id, const struct ckpt_operation *op,
		     const struct ckpt_span *at, const struct ckpt_state_by *by)
{
	struct ckpt_act a;
	int rc = ckpt_act_decode(op->kind, op->body, op->len, &a);

	if (rc)
		return rc;
	if (a.kind == CKPT_ACT_SET)
		return apply_set(s, &a, at->seq);
	return ckpt_act_has_record(a.kind) ? apply_record(s, store_id, &a, at, by) : apply_plain(s, &a, by);
}

int ckpt_state_apply(struct ckpt_state *s, const char *store_id, const struct ckpt_operation *op,
		     const struct ckpt_span *at)
{
	struct ckpt_state_by by = {.node = (uint32_t)node_place(s, op->node), .actor = op->actor};
	int rc = make_node_room(s);

	if (rc)
		return rc;
	if (op->kind < CKPT_ACT_KINDS)
		rc = apply_act(s, store_id, op, at, &by);
	else
		rc = op->required ? -ENOTSUP : CKPT_STATE_VOID;
	if (!rc || (rc > 0 && op->number)) // a void operation has used its number, too
		add_node(s, by.node, op->node, op->number);
	return rc;
}

// --- What it says -------------------------------------------------------------------------------------------------------

const struct ckpt_state_step *ckpt_state_step(const struct ckpt_state *s, const char *id)
{
	return find(s, id);
}

const struct ckpt_state_step *ckpt_state_listed(const struct ckpt_state *s, const char *folder_id, const char *name)
{
	return find_listed(s, folder_id, name);
}

const struct ckpt_state_version *ckpt_state_version(const struct ckpt_state_step *step, uint32_t version)
{
	for (size_t i = step->count; i-- > 0 && step->versions[i].version >= version;)
		if (step->versions[i].version == version)
			return &step->versions[i];
	return NULL;
}

const struct ckpt_state_step *ckpt_state_named(const struct ckpt_state *s, const char *folder_id, const char *name,
					       uint32_t version)
{
	const struct ckpt_state_step *step = *name_slot(s, folder_id, name);

	while (step && (strcmp(step->is.name, name) || strcmp(step->is.folder_id, folder_id) ||
			!ckpt_state_version(step, version)))
		step = step->next_of_name;
	return step;
}

static int by_id(const void *a, const void *b)
{
	return strcmp((*(struct ckpt_state_step *const *)a)->id, (*(struct ckpt_state_step *const *)b)->id);
}

int ckpt_state_steps(const struct ckpt_state *s, const struct ckpt_state_step ***ret_steps, size_t *ret_count)
{
	const struct ckpt_state_step **steps = ckpt_calloc(s->count + 1, sizeof(struct ckpt_state_step *));
	size_t count = 0;

	if (!steps)
		return -ENOMEM;
	for (size_t i = 0; i < s->bucket_count; i++)
		for (struct ckpt_state_step *step = s->of_id[i]; step; step = step->next_of_id)
			steps[count++] = step;
	qsort(steps, count, sizeof(*steps), by_id);
	*ret_steps = steps;
	*ret_count = count;
	return 0;
}

size_t ckpt_state_count(const struct ckpt_state *s)
{
	return s->count;
}

const struct ckpt_state_value *ckpt_state_value(const struct ckpt_state *s, const char *key)
{
	bool found;
	size_t i = value_place(s, key, &found);

	return found ? &s->values[i] : NULL;
}

uint64_t ckpt_state_number(const struct ckpt_state *s, const char *node)
{
	size_t place = node_place(s, node);

	return place < s->node_count ? s->nodes[place].number : 0;
}

const char *ckpt_state_node(const struct ckpt_state *s, uint32_t index)
{
	return s->nodes[index].node;
}

// --- As bytes -----------------------------------------------------------------------------------------------------------
// state    := nodes u32, steps u32, values u32, zero u32, node*, step*, value*
// node     := id (40), number u64
// step     := deleted_by u32, versions u32, deleted_ns i64, version*, summary
// version  := version u32, flags u32, committed i64, seq u64, offset u32, length u32, node u32 (its place above), uid u32, comm (16)
// value    := seq u64, length of key u16, zero u16, length of text u32, key, text

enum {
	HEAD_BYTES = 16,
	NODE_BYTES = 48,
	STEP_BYTES = 16,
	VERSION_BYTES = 56,
	VALUE_BYTES = 16,

	FLAG_DELETED = 4, // beside CKPT_FLAG_*
	FILES_SHIFT = 3,  // bits 3 and 4: enum ckpt_state_files
	FLAGS_ALL = 31,
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
			 (v->deleted ? FLAG_DELETED : 0) | (uint32_t)v->files << FILES_SHIFT;

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
		ckpt_put32(head + 8, (uint32_t)s->value_count);
		rc = add_nodes(&b, s, &ranks);
	}
	for (size_t i = 0; i < count && !rc; i++)
		rc = add_step(&b, steps[i], ranks);
	for (size_t i = 0; i < s->value_count && !rc; i++)
		rc = add_value(&b, &s->values[i]);
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
	if (make_node_room(s))
		return -ENOMEM;
	add_node(s, s->node_count, node, ckpt_get64(p + 40));
	return 0;
}

static int take_version(const struct ckpt_state *s, struct ckpt_state_step *step, const uint8_t *p)
{
	uint32_t flags = ckpt_get32(p + 4);
	struct ckpt_state_version v = {
		.version = ckpt_get32(p),
		.deleted = flags & FLAG_DELETED,
		.pinned = flags & CKPT_FLAG_PINNED,
		.temporary = flags & CKPT_FLAG_TEMPORARY,
		.files = (enum ckpt_state_files)((flags & FLAGS_ALL) >> FILES_SHIFT),
		.committed_ns = (int64_t)ckpt_get64(p + 8),
		.record = {.seq = ckpt_get64(p + 16), .offset = ckpt_get32(p + 24), .len = ckpt_get32(p + 28)},
		.by = {.node = ckpt_get32(p + 32), .actor = {.uid = ckpt_get32(p + 36)}},
	};

	memcpy(v.by.actor.comm, p + 40, sizeof(v.by.actor.comm));
	if (v.by.node >= s->node_count || !ckpt_comm_check(v.by.actor.comm))
		return -EBADMSG;
	if (v.version <= newest(step) || flags & ~(uint32_t)FLAGS_ALL || !v.record.seq || !v.record.len ||
	    v.record.len > CKPT_LOG_ENTRY_BYTES_MAX || v.record.offset > CKPT_LOG_ENTRY_BYTES_MAX - v.record.len)
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

// A step that apply could not have made is damage, or hostile.
static bool step_ok(const struct ckpt_state *s, const struct cursor *c, const struct ckpt_state_step *step)
{
	if (strcmp(step->id, c->id) <= 0 || step->is.deleted || !versions_ok(step))
		return false;
	return step->deleted_by || (!step->deleted_ns && !find_listed(s, step->is.folder_id, step->is.name));
}

static int take_step_into(struct ckpt_state *s, struct cursor *c, struct ckpt_state_step *step)
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
	if (!step_ok(s, c, step))
		return -EBADMSG;
	memcpy(c->id, step->id, sizeof(c->id));
	insert(s, step);
	return 0;
}

static int take_step(struct ckpt_state *s, struct cursor *c)
{
	struct ckpt_state_step *step = calloc(1, sizeof(*step));
	int rc = step ? take_step_into(s, c, step) : -ENOMEM;

	if (rc)
		step_free(step);
	return rc;
}

static int take_value(struct ckpt_state *s, struct cursor *c)
{
	const uint8_t *head = take(c, VALUE_BYTES);
	size_t key_len = head ? ckpt_get16(head + 8) : 0, len = head ? ckpt_get32(head + 12) : 0;
	const char *key = head ? (const char *)take(c, key_len) : NULL;
	const char *text = key ? (const char *)take(c, len) : NULL;
	char clean[CKPT_VALUE_KEY_MAX + 1] = {0};

	if (!text || key_len > CKPT_VALUE_KEY_MAX || ckpt_get16(head + 10) || !ckpt_get64(head))
		return -EBADMSG;
	memcpy(clean, key, key_len);
	if (!ckpt_act_is_key(clean, key_len) || !len || !ckpt_act_is_value(text, len) ||
	    (s->value_count && strcmp(s->values[s->value_count - 1].key, clean) >= 0))
		return -EBADMSG;
	return set(s, clean, text, len, ckpt_get64(head));
}

int ckpt_state_decode(const void *data, size_t len, struct ckpt_state **ret_state)
{
	struct cursor c = {.at = data, .left = len};
	const uint8_t *head = take(&c, HEAD_BYTES);
	struct ckpt_state *s = head ? ckpt_state_new() : NULL;
	int rc = !head ? -EBADMSG : !s ? -ENOMEM : ckpt_get32(head + 12) ? -EBADMSG : 0;

	for (uint32_t i = 0; !rc && i < ckpt_get32(head); i++)
		rc = take_node(s, &c);
	for (uint32_t i = 0; !rc && i < ckpt_get32(head + 4); i++)
		rc = take_step(s, &c);
	for (uint32_t i = 0; !rc && i < ckpt_get32(head + 8); i++)
		rc = take_value(s, &c);
	if (!rc && c.left)
		rc = -EBADMSG;
	if (rc) {
		ckpt_state_free(s);
		return rc;
	}
	*ret_state = s;
	return 0;
}
