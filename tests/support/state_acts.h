// A state, and acts on it that are made and applied in one call. For suites of core/state; a call that fails otherwise than it
// returns ends the test.
#pragma once

#include "tests/support/allocfault.h"
#include "tests/support/formats.h"
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/state/act.h"
#include "core/state/state.h"

#include <stdio.h>

#define STORE "11111111-1111-4111-8111-111111111111"
#define NODE "22222222-2222-4222-8222-222222222222"
#define NODE_2 "22222222-2222-4222-8222-222222222223"
#define A "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
#define B "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb"
#define C "cccccccc-cccc-4ccc-8ccc-cccccccccccc"
#define FOLDER "0123456789abcdef"

enum { OFFSET = 1000 };

static struct ckpt_state *state;
static uint64_t seq; // of the act that is applied next

static inline void begin(void)
{
	state = ckpt_state_new();
	ck_assert_ptr_nonnull(state);
	seq = 1;
}

static inline void end(void)
{
	ckpt_state_free(state);
}

// --- Acts ---------------------------------------------------------------------------------------------------------------

struct body {
	struct ckpt_operation op;
	void *bytes;
};

static inline void body_done(struct body *b)
{
	free(b->bytes);
}
#define CLEANUP_BODY CLEANUP(body_done)

static inline struct body encoded(const struct ckpt_act *a)
{
	struct body b = {.op = {.node = NODE, .kind = (uint16_t)a->kind, .required = true}};

	ck_ok(ckpt_act_encode(a, &b.bytes, &b.op.len));
	b.op.body = b.bytes;
	return b;
}

static inline struct ckpt_summary summary(const char *id, uint32_t version, const char *folder_id, const char *name)
{
	struct ckpt_summary s;

	ckpt_sample_summary(&s, name, version);
	strcpy(s.session, id);
	strcpy(s.folder_id, folder_id);
	s.number = ckpt_name_number(name);
	s.temporary = false;
	s.committed_ns = 1000 + version;
	return s;
}

static inline struct body of_record(enum ckpt_act_kind kind, const struct ckpt_summary *s, const char *store_id,
				    const char *replaces)
{
	struct ckpt_record r = {.summary = *s};
	struct ckpt_act a = {.kind = kind};
	CLEANUP_FREE void *record = NULL;

	strcpy(r.store_id, store_id);
	strcpy(a.replaces, replaces);
	ck_ok(ckpt_record_encode(&r, &record, &a.record_len));
	a.record = record;
	return encoded(&a);
}

static inline struct body recorded(enum ckpt_act_kind kind, const char *id, uint32_t version, const char *name,
				   const char *replaces)
{
	struct ckpt_summary s = summary(id, version, "", name);

	return of_record(kind, &s, STORE, replaces);
}

static inline struct body plain(enum ckpt_act_kind kind, const char *id, uint32_t version, uint32_t flags,
				const char *name)
{
	struct ckpt_act a = {.kind = kind, .version = version, .flags = flags, .time_ns = 2000 + version};

	strcpy(a.step, id);
	strcpy(a.name, name);
	return encoded(&a);
}

static inline struct body valued(const char *key, uint64_t before, const char *value)
{
	struct ckpt_act a = {.kind = CKPT_ACT_SET, .before = before, .value = value, .value_len = strlen(value)};

	strcpy(a.key, key);
	return encoded(&a);
}

static inline int apply_to(struct ckpt_state *s, const struct body *b, uint64_t at)
{
	return ckpt_state_apply(s, STORE, &b->op,
				&(struct ckpt_span){.seq = at, .offset = OFFSET, .len = (uint32_t)b->op.len});
}

static inline int apply(struct body b)
{
	int rc = apply_to(state, &b, seq++);

	body_done(&b);
	return rc;
}

static inline int save(const char *id, uint32_t version, const char *name, const char *replaces)
{
	return apply(recorded(CKPT_ACT_SAVE, id, version, name, replaces));
}

static inline int amend(const char *id, uint32_t version, const char *name)
{
	return apply(recorded(CKPT_ACT_AMEND, id, version, name, ""));
}

static inline int delete (const char *id, uint32_t version)
{
	return apply(plain(CKPT_ACT_DELETE, id, version, 0, ""));
}

static inline int undelete(const char *id, uint32_t version)
{
	return apply(plain(CKPT_ACT_UNDELETE, id, version, 0, ""));
}

static inline int expire(const char *id)
{
	const struct ckpt_state_step *step = ckpt_state_step(state, id);

	return apply(plain(CKPT_ACT_EXPIRE, id, step && step->deleted_by ? step->deleted_by : 1, 0, ""));
}

static inline int rename_to(const char *id, const char *name)
{
	return apply(plain(CKPT_ACT_RENAME, id, 0, 0, name));
}

static inline int flag(const char *id, uint32_t version, uint32_t flags)
{
	return apply(plain(CKPT_ACT_FLAG, id, version, flags, ""));
}

static inline int set(const char *key, uint64_t before, const char *value)
{
	return apply(valued(key, before, value));
}

// --- What there is ----------------------------------------------------------------------------------------------------

static inline const struct ckpt_state_step *step(const char *id)
{
	const struct ckpt_state_step *found = ckpt_state_step(state, id);

	ck_assert_ptr_nonnull(found);
	ck_assert_str_eq(found->id, id);
	ck_assert_str_eq(found->is.session, id);
	return found;
}

static inline void assert_listed(const char *name, const char *id)
{
	const struct ckpt_state_step *listed = ckpt_state_listed(state, "", name);

	if (!id) {
		ck_assert_ptr_null(listed);
		return;
	}
	ck_assert_ptr_eq(listed, step(id));
	ck_assert_uint_eq(listed->deleted_by, 0);
	ck_assert_int_eq(listed->deleted_ns, 0);
}

static inline void assert_trash(const char *id, uint32_t by, int64_t ns)
{
	ck_assert_uint_eq(step(id)->deleted_by, by);
	ck_assert_int_eq(step(id)->deleted_ns, ns);
	ck_assert_ptr_ne(ckpt_state_listed(state, step(id)->is.folder_id, step(id)->is.name), step(id));
}

// The value under this key, and the entry that says so. NULL: there is none.
static inline void assert_value(const char *key, const char *text, uint64_t at)
{
	const struct ckpt_state_value *v = ckpt_state_value(state, key);

	ck_assert_int_eq(!v, !text);
	if (!v)
		return;
	ck_assert_str_eq(v->key, key);
	ck_assert_str_eq(v->text, text);
	ck_assert_uint_eq(v->seq, at);
}

// The newest version of the step; record: the entry that has its record.
static inline void assert_newest(const char *id, uint32_t version, int64_t ns, uint64_t record)
{
	const struct ckpt_state_step *s = step(id);
	const struct ckpt_state_version *v = ckpt_state_version(s, version);

	ck_assert_ptr_nonnull(v);
	ck_assert_ptr_eq(v, &s->versions[s->count - 1]);
	ck_assert_int_eq(v->committed_ns, ns);
	ck_assert_uint_eq(v->record.seq, record);
	if (v->deleted)
		return;
	ck_assert_uint_eq(s->is.version, version);
	ck_assert_int_eq(s->is.committed_ns, ns);
	ck_assert_int_eq(s->is.pinned, v->pinned);
	ck_assert_int_eq(s->is.temporary, v->temporary);
}

static inline void bytes_of(const struct ckpt_state *s, uint8_t **ret, size_t *ret_len)
{
	void *data;

	ck_ok(ckpt_state_encode(s, &data, ret_len));
	*ret = data;
}

static inline void assert_bytes(const struct ckpt_state *s, const void *bytes, size_t len)
{
	CLEANUP_FREE uint8_t *now = NULL;
	size_t now_len;

	bytes_of(s, &now, &now_len);
	ck_assert_uint_eq(now_len, len);
	ck_assert_mem_eq(now, bytes, len);
}

static inline void assert_is(const char *id, const struct ckpt_summary *want)
{
	CLEANUP_FREE void *a = NULL, *b = NULL;
	size_t a_len, b_len;

	ck_ok(ckpt_summary_encode(&step(id)->is, &a, &a_len));
	ck_ok(ckpt_summary_encode(want, &b, &b_len));
	ck_assert_uint_eq(a_len, b_len);
	ck_assert_mem_eq(a, b, a_len);
}

// It is void, and all is as it was.
#define ck_void(expr)                                                                                                  \
	do {                                                                                                           \
		CLEANUP_FREE uint8_t *ck_void_bytes = NULL;                                                            \
		size_t ck_void_len;                                                                                    \
		bytes_of(state, &ck_void_bytes, &ck_void_len);                                                         \
		ck_assert_int_eq(expr, CKPT_STATE_VOID);                                                               \
		assert_bytes(state, ck_void_bytes, ck_void_len);                                                       \
	} while (0)
#define ck_fits(expr) ck_assert_int_eq(expr, 0)

// One of each kind that fits the state of make_rich(). Those on the plain tree fit in the log of a remote only (test_plain.c).
static inline struct body fitting(enum ckpt_act_kind kind)
{
	switch (kind) {
	case CKPT_ACT_SAVE:
		return recorded(kind, "dddddddd-dddd-4ddd-8ddd-dddddddddddd", 9, "x", A);
	case CKPT_ACT_UNDELETE:
		return plain(kind, B, 9, 0, "");
	case CKPT_ACT_EXPIRE:
		return plain(kind, C, 3, 0, ""); // as the step that took its place
	case CKPT_ACT_RENAME:
		return plain(kind, A, 0, 0, "new");
	case CKPT_ACT_SET:
		return valued("policy", 11, "{}");
	case CKPT_ACT_DELETE:
	case CKPT_ACT_FLAG:
		return plain(kind, A, 9, 0, "");
	default:
		return recorded(kind, A, 9, "x", "");
	}
}

// A of three versions, renamed to x; B deleted; C replaced, pinned; two nodes; two values.
static inline void make_rich(struct ckpt_state *s)
{
	struct body acts[] = {recorded(CKPT_ACT_SAVE, A, 1, "w", ""),   recorded(CKPT_ACT_SAVE, B, 2, "y", ""),
			      recorded(CKPT_ACT_SAVE, C, 1, "z", ""),   plain(CKPT_ACT_FLAG, A, 2, 2, ""),
			      plain(CKPT_ACT_FLAG, C, 2, 1, ""),        recorded(CKPT_ACT_NOTE, A, 5, "w", ""),
			      plain(CKPT_ACT_DELETE, B, 4, 0, ""),      plain(CKPT_ACT_RENAME, A, 0, 0, "x"),
			      recorded(CKPT_ACT_SAVE, NODE, 3, "z", C), plain(CKPT_ACT_DELETE, NODE, 4, 0, ""),
			      valued("policy", 0, "{\"keep\":1}"),      valued("expected", 0, "\xc3\xa9")};

	for (size_t i = 0; i < ARRAY_LEN(acts); i++) {
		acts[i].op.number = i;
		strcpy(acts[i].op.node, i % 2 ? NODE_2 : NODE);
		ck_assert_int_eq(apply_to(s, &acts[i], i + 1), 0);
		body_done(&acts[i]);
	}
}
