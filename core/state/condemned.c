// Each CONDEMN and HOLD stands as one row, which a snapshot has as its version and the act itself. A CONDEMN without names stays until the next
// one. Versions ascend, so that an entry which is applied again, after a failure, adds nothing twice.
#include "core/state/condemned.h"

#include "core/base/util.h"
#include "core/state/act.h"
#include "core/state/table.h"

// condemned := count u32, zero u32, named*      named := version u64, kind u16, zero u16, length of the body u32, body
enum {
	HEAD_BYTES = 8,

	VERSION = 0,
	KIND = 8,
	LENGTH = 12,
	ROW_BYTES = 16,
	BODY_BYTES = 48, // and the names
};

// --- Looking ------------------------------------------------------------------------------------------------------------

const struct ckpt_named *const *ckpt_state_named_objects(const struct ckpt_state *s, size_t *ret_count)
{
	*ret_count = s->condemned.count;
	return (const struct ckpt_named *const *)s->condemned.all;
}

uint64_t ckpt_named_seq(const struct ckpt_named *n)
{
	return n->version >> CKPT_PLAIN_INDEX_BITS;
}

static int by_name(const void *a, const void *b)
{
	return memcmp(a, b, CKPT_SHA256_LEN);
}

bool ckpt_named_has_pack(const struct ckpt_named *n, const uint8_t name[CKPT_SHA256_LEN])
{
	return bsearch(name, n->objects, n->pack_count, CKPT_SHA256_LEN, by_name);
}

bool ckpt_named_has_manifest(const struct ckpt_named *n, const uint8_t sha256[CKPT_SHA256_LEN])
{
	return bsearch(sha256, n->objects + n->pack_count, n->manifest_count, CKPT_SHA256_LEN, by_name);
}

typedef bool has_fn(const struct ckpt_named *n, const uint8_t *name);

static uint64_t find(const struct ckpt_state *s, has_fn *has, const uint8_t *name)
{
	for (size_t i = 0; i < s->condemned.count; i++) {
		const struct ckpt_named *n = s->condemned.all[i];

		if (!*n->step && has(n, name))
			return ckpt_named_seq(n);
	}
	return 0;
}

uint64_t ckpt_state_pack_condemned(const struct ckpt_state *s, const uint8_t name[CKPT_SHA256_LEN])
{
	return find(s, ckpt_named_has_pack, name);
}

uint64_t ckpt_state_manifest_condemned(const struct ckpt_state *s, const uint8_t sha256[CKPT_SHA256_LEN])
{
	return find(s, ckpt_named_has_manifest, sha256);
}

uint64_t ckpt_state_last_condemn(const struct ckpt_state *s)
{
	for (size_t i = s->condemned.count; i-- > 0;)
		if (!*s->condemned.all[i]->step)
			return ckpt_named_seq(s->condemned.all[i]);
	return 0;
}

struct question {
	const uint8_t *pack, *manifest;
	const struct ckpt_manifest *m;
	bool is_object;
};

static int ask_pack(void *arg, const struct ckpt_state *s)
{
	const struct question *q = arg;

	return ckpt_state_pack_condemned(s, q->pack) != 0;
}

bool ckpt_journal_pack_condemned(struct ckpt_journal *j, const uint8_t name[CKPT_SHA256_LEN])
{
	return ckpt_journal_look(j, ask_pack, &(struct question){.pack = name});
}

static int ask_manifest_alone(void *arg, const struct ckpt_state *s)
{
	const struct question *q = arg;

	return ckpt_state_manifest_condemned(s, q->manifest) != 0;
}

bool ckpt_journal_manifest_condemned(struct ckpt_journal *j, const uint8_t sha256[CKPT_SHA256_LEN])
{
	return ckpt_journal_look(j, ask_manifest_alone, &(struct question){.manifest = sha256});
}

static int ask_manifest(void *arg, const struct ckpt_state *s)
{
	const struct question *q = arg;

	if (q->is_object && ckpt_state_manifest_condemned(s, ckpt_manifest_sha256(q->m)))
		return true;
	for (uint32_t i = 0; i < ckpt_manifest_pack_count(q->m); i++) {
		struct ckpt_pack pack;

		ckpt_manifest_pack(q->m, i, &pack);
		if (ckpt_state_pack_condemned(s, pack.id))
			return true;
	}
	return false;
}

bool ckpt_journal_names_condemned(struct ckpt_journal *j, const struct ckpt_manifest *m, bool is_object)
{
	return ckpt_journal_look(j, ask_manifest, &(struct question){.m = m, .is_object = is_object});
}

// --- Acts ---------------------------------------------------------------------------------------------------------------

static size_t count_of(const struct ckpt_named *n)
{
	return (size_t)n->pack_count + n->manifest_count;
}

static struct ckpt_named *new_named(const struct ckpt_act *a, uint64_t version)
{
	size_t bytes = ((size_t)a->pack_count + a->manifest_count) * CKPT_SHA256_LEN;
	struct ckpt_named *n = malloc(sizeof(*n) + bytes);

	if (!n)
		return NULL;
	*n = (struct ckpt_named){.version = version, .pack_count = a->pack_count, .manifest_count = a->manifest_count};
	memcpy(n->step, a->step, sizeof(n->step));
	if (bytes)
		memcpy(n->objects, a->objects, bytes);
	return n;
}

static void drop(struct ckpt_condemned_table *t, size_t i)
{
	free(t->all[i]);
	memmove(&t->all[i], &t->all[i + 1], (--t->count - i) * sizeof(*t->all));
}

// One that only said that somebody has looked is of no use once another says it.
static void drop_empty(struct ckpt_condemned_table *t)
{
	for (size_t i = t->count; i-- > 0;)
		if (!*t->all[i]->step && !count_of(t->all[i]))
			drop(t, i);
}

static bool shares_one(const struct ckpt_named *a, const struct ckpt_named *b)
{
	for (uint32_t i = 0; i < a->pack_count; i++)
		if (ckpt_named_has_pack(b, a->objects[i]))
			return true;
	for (uint32_t i = 0; i < a->manifest_count; i++)
		if (ckpt_named_has_manifest(b, a->objects[a->pack_count + i]))
			return true;
	return false;
}

// The HOLD of a condemned object is over, as its condemner has found.
static void end_old_holds(struct ckpt_condemned_table *t, const struct ckpt_named *condemns)
{
	for (size_t i = t->count; i-- > 0;)
		if (*t->all[i]->step && shares_one(t->all[i], condemns))
			drop(t, i);
}

static int add(struct ckpt_state *s, const struct ckpt_act *a, uint64_t version)
{
	struct ckpt_condemned_table *t = &s->condemned;
	struct ckpt_named *n;

	if (t->count && version <= t->all[t->count - 1]->version)
		return CKPT_STATE_VOID;
	n = new_named(a, version);
	if (!n || ckpt_grow((void **)&t->all, &t->cap, t->count + 1, sizeof(*t->all))) {
		free(n);
		return -ENOMEM;
	}
	if (!*n->step) {
		drop_empty(t);
		end_old_holds(t, n);
	}
	t->all[t->count++] = n;
	return 0;
}

int ckpt_condemned_act(struct ckpt_state *s, const struct ckpt_act *a)
{
	return s->plains.version ? add(s, a, s->plains.version) : CKPT_STATE_VOID;
}

void ckpt_condemned_end_holds(struct ckpt_state *s, const char *step)
{
	for (size_t i = s->condemned.count; i-- > 0;)
		if (!strcmp(s->condemned.all[i]->step, step))
			drop(&s->condemned, i);
}

void ckpt_condemned_done(struct ckpt_state *s)
{
	while (s->condemned.count)
		drop(&s->condemned, s->condemned.count - 1);
	free(s->condemned.all);
}

static struct ckpt_act act_of(const struct ckpt_named *n)
{
	struct ckpt_act a = {.kind = *n->step ? CKPT_ACT_HOLD : CKPT_ACT_CONDEMN,
			     .objects = *n->objects,
			     .pack_count = n->pack_count,
			     .manifest_count = n->manifest_count};

	memcpy(a.step, n->step, sizeof(a.step));
	return a;
}

int ckpt_condemned_copy(struct ckpt_state *to, const struct ckpt_state *from)
{
	int rc = 0;

	for (size_t i = 0; i < from->condemned.count && !rc; i++) {
		const struct ckpt_act a = act_of(from->condemned.all[i]);

		rc = add(to, &a, from->condemned.all[i]->version);
	}
	return rc;
}

// --- As bytes -----------------------------------------------------------------------------------------------------------

size_t ckpt_condemned_bytes(const struct ckpt_state *s)
{
	size_t bytes = HEAD_BYTES;

	for (size_t i = 0; i < s->condemned.count; i++)
		bytes += ROW_BYTES + BODY_BYTES + count_of(s->condemned.all[i]) * CKPT_SHA256_LEN;
	return bytes;
}

int ckpt_condemned_put(const struct ckpt_state *s, uint8_t *at)
{
	ckpt_put32(at, (uint32_t)s->condemned.count);
	ckpt_put32(at + 4, 0);
	at += HEAD_BYTES;
	for (size_t i = 0; i < s->condemned.count; i++) {
		const struct ckpt_act a = act_of(s->condemned.all[i]);
		CLEANUP_FREE void *body = NULL;
		size_t len;
		int rc = ckpt_act_encode(&a, &body, &len);

		if (rc)
			return rc;
		memset(at, 0, ROW_BYTES);
		ckpt_put64(at + VERSION, s->condemned.all[i]->version);
		ckpt_put16(at + KIND, (uint16_t)a.kind);
		ckpt_put32(at + LENGTH, (uint32_t)len);
		memcpy(at + ROW_BYTES, body, len);
		at += ROW_BYTES + len;
	}
	return 0;
}

// Versions ascend, and are of entries that were read.
static int take_row(struct ckpt_state *s, const uint8_t *p, size_t left, size_t *ret_taken)
{
	uint64_t version = left < ROW_BYTES ? 0 : ckpt_get64(p + VERSION), seq = version >> CKPT_PLAIN_INDEX_BITS;
	uint16_t kind = left < ROW_BYTES ? 0 : ckpt_get16(p + KIND);
	size_t len = left < ROW_BYTES ? 0 : ckpt_get32(p + LENGTH), count = s->condemned.count;
	struct ckpt_act a;
	int rc;

	if (left < ROW_BYTES || len > left - ROW_BYTES || ckpt_get16(p + KIND + 2) || !seq || seq > s->remote.seq ||
	    !ckpt_act_is_on_objects(kind))
		return -EBADMSG;
	rc = ckpt_act_decode(kind, p + ROW_BYTES, len, &a);
	if (!rc)
		rc = add(s, &a, version);
	if (rc > 0 || (!rc && s->condemned.count != count + 1)) // one without names is gone once another follows
		rc = -EBADMSG;
	*ret_taken = ROW_BYTES + len;
	return rc;
}

int ckpt_condemned_take(struct ckpt_state *s, const uint8_t *data, size_t len, size_t *ret_taken)
{
	uint32_t count = len < HEAD_BYTES ? 0 : ckpt_get32(data);
	size_t at = HEAD_BYTES, taken = 0;
	int rc = !count || ckpt_get32(data + 4) ? -EBADMSG : 0;

	for (uint32_t i = 0; i < count && !rc; i++, at += taken)
		rc = take_row(s, data + at, len - at, &taken);
	*ret_taken = at;
	return rc;
}
