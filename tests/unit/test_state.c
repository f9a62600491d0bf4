// The state of a log: what each act does to it, which acts are void, that neither these nor errors change anything, and that a state
// has one form as bytes. tests/state/ compares long and short sequences of acts with a model.
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

static void begin(void)
{
	state = ckpt_state_new();
	ck_assert_ptr_nonnull(state);
	seq = 1;
}

static void end(void)
{
	ckpt_state_free(state);
}

// --- Acts ---------------------------------------------------------------------------------------------------------------

struct body {
	struct ckpt_operation op;
	void *bytes;
};

static void body_done(struct body *b)
{
	free(b->bytes);
}
#define CLEANUP_BODY CLEANUP(body_done)

static struct body encoded(const struct ckpt_act *a)
{
	struct body b = {.op = {.node = NODE, .kind = (uint16_t)a->kind, .required = true}};

	ck_ok(ckpt_act_encode(a, &b.bytes, &b.op.len));
	b.op.body = b.bytes;
	return b;
}

static struct ckpt_summary summary(const char *id, uint32_t version, const char *folder_id, const char *name)
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

static struct body of_record(enum ckpt_act_kind kind, const struct ckpt_summary *s, const char *store_id,
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

static struct body recorded(enum ckpt_act_kind kind, const char *id, uint32_t version, const char *name,
			    const char *replaces)
{
	struct ckpt_summary s = summary(id, version, "", name);

	return of_record(kind, &s, STORE, replaces);
}

static struct body plain(enum ckpt_act_kind kind, const char *id, uint32_t version, uint32_t flags, const char *name)
{
	struct ckpt_act a = {.kind = kind, .version = version, .flags = flags, .time_ns = 2000 + version};

	strcpy(a.step, id);
	strcpy(a.name, name);
	return encoded(&a);
}

static struct body valued(const char *key, uint64_t before, const char *value)
{
	struct ckpt_act a = {.kind = CKPT_ACT_SET, .before = before, .value = value, .value_len = strlen(value)};

	strcpy(a.key, key);
	return encoded(&a);
}

static int apply_to(struct ckpt_state *s, const struct body *b, uint64_t at)
{
	return ckpt_state_apply(s, STORE, &b->op,
				&(struct ckpt_span){.seq = at, .offset = OFFSET, .len = (uint32_t)b->op.len});
}

static int apply(struct body b)
{
	int rc = apply_to(state, &b, seq++);

	body_done(&b);
	return rc;
}

static int save(const char *id, uint32_t version, const char *name, const char *replaces)
{
	return apply(recorded(CKPT_ACT_SAVE, id, version, name, replaces));
}

static int amend(const char *id, uint32_t version, const char *name)
{
	return apply(recorded(CKPT_ACT_AMEND, id, version, name, ""));
}

static int delete (const char *id, uint32_t version)
{
	return apply(plain(CKPT_ACT_DELETE, id, version, 0, ""));
}

static int undelete(const char *id, uint32_t version)
{
	return apply(plain(CKPT_ACT_UNDELETE, id, version, 0, ""));
}

static int expire(const char *id)
{
	const struct ckpt_state_step *step = ckpt_state_step(state, id);

	return apply(plain(CKPT_ACT_EXPIRE, id, step && step->deleted_by ? step->deleted_by : 1, 0, ""));
}

static int rename_to(const char *id, const char *name)
{
	return apply(plain(CKPT_ACT_RENAME, id, 0, 0, name));
}

static int flag(const char *id, uint32_t version, uint32_t flags)
{
	return apply(plain(CKPT_ACT_FLAG, id, version, flags, ""));
}

static int set(const char *key, uint64_t before, const char *value)
{
	return apply(valued(key, before, value));
}

// --- What there is ----------------------------------------------------------------------------------------------------

static const struct ckpt_state_step *step(const char *id)
{
	const struct ckpt_state_step *found = ckpt_state_step(state, id);

	ck_assert_ptr_nonnull(found);
	ck_assert_str_eq(found->id, id);
	ck_assert_str_eq(found->is.session, id);
	return found;
}

static void assert_listed(const char *name, const char *id)
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

static void assert_trash(const char *id, uint32_t by, int64_t ns)
{
	ck_assert_uint_eq(step(id)->deleted_by, by);
	ck_assert_int_eq(step(id)->deleted_ns, ns);
	ck_assert_ptr_ne(ckpt_state_listed(state, step(id)->is.folder_id, step(id)->is.name), step(id));
}

// The value under this key, and the entry that says so. NULL: there is none.
static void assert_value(const char *key, const char *text, uint64_t at)
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
static void assert_newest(const char *id, uint32_t version, int64_t ns, uint64_t record)
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

static void bytes_of(const struct ckpt_state *s, uint8_t **ret, size_t *ret_len)
{
	void *data;

	ck_ok(ckpt_state_encode(s, &data, ret_len));
	*ret = data;
}

static void assert_bytes(const struct ckpt_state *s, const void *bytes, size_t len)
{
	CLEANUP_FREE uint8_t *now = NULL;
	size_t now_len;

	bytes_of(s, &now, &now_len);
	ck_assert_uint_eq(now_len, len);
	ck_assert_mem_eq(now, bytes, len);
}

static void assert_is(const char *id, const struct ckpt_summary *want)
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

START_TEST(an_empty_state_has_nothing)
{
	CLEANUP_FREE const struct ckpt_state_step **steps = NULL;
	size_t count;

	ck_assert_uint_eq(ckpt_state_count(state), 0);
	ck_assert_ptr_null(ckpt_state_step(state, A));
	ck_assert_ptr_null(ckpt_state_listed(state, "", "x"));
	ck_assert_uint_eq(ckpt_state_number(state, NODE), 0);
	ck_ok(ckpt_state_steps(state, &steps, &count));
	ck_assert_uint_eq(count, 0);
	ckpt_state_free(NULL);
}
END_TEST

// --- Acts with a record -------------------------------------------------------------------------------------------------

START_TEST(a_save_lists_its_step)
{
	struct ckpt_summary s = summary(A, 5, FOLDER, "step-7");
	CLEANUP_BODY struct body b = {0};
	struct ckpt_record r;

	s.pinned = true;
	s.temporary = true;
	b = of_record(CKPT_ACT_SAVE, &s, STORE, "");
	ck_fits(apply_to(state, &b, 77));
	ck_assert_uint_eq(ckpt_state_count(state), 1);
	ck_assert_ptr_eq(ckpt_state_listed(state, FOLDER, "step-7"), step(A));
	ck_assert_ptr_null(ckpt_state_listed(state, "", "step-7"));
	assert_is(A, &s);
	ck_assert_uint_eq(step(A)->count, 1);
	assert_newest(A, 5, 1005, 77);
	ck_assert(step(A)->versions[0].pinned && step(A)->versions[0].temporary && !step(A)->versions[0].deleted);
	ck_assert_uint_eq(step(A)->versions[0].record.offset, OFFSET + 40);
	ck_ok(ckpt_record_decode((uint8_t *)b.bytes + (step(A)->versions[0].record.offset - OFFSET),
				 step(A)->versions[0].record.len, &r));
	ckpt_record_done(&r);
}
END_TEST

START_TEST(a_save_over_the_step_that_it_names_puts_that_in_the_trash)
{
	ck_fits(save(A, 1, "x", ""));
	ck_fits(flag(A, 2, CKPT_FLAG_PINNED)); // pinned is no hindrance: its name is given to another, by who saw it
	ck_fits(save(B, 3, "x", A));
	assert_listed("x", B);
	assert_trash(A, 3, 1003);
	assert_newest(A, 2, 2002, 1);
	ck_assert_uint_eq(step(A)->count, 2);
	ck_assert_uint_eq(ckpt_state_count(state), 2);
}
END_TEST

START_TEST(a_save_is_void_where_it_does_not_fit)
{
	ck_void(save(A, 1, "x", B)); // nobody has that name
	ck_fits(save(A, 1, "x", ""));
	ck_void(save(B, 1, "x", "")); // the name is taken
	ck_void(save(B, 1, "x", C));  // by another than that
	ck_void(save(A, 2, "y", "")); // the id is known
	ck_void(save(A, 2, "x", A));  // and replaces nothing of itself
	ck_void(save(B, 1, "y", A));  // A has another name
	ck_fits(delete (A, 2));
	ck_void(save(A, 3, "y", "")); // known in the trash, too
	ck_void(save(B, 1, "x", A));  // the trash has no names
	ck_fits(save(B, 1, "x", ""));
	ck_fits(expire(A));
	ck_fits(save(A, 1, "y", "")); // nothing is left that would know it
}
END_TEST

START_TEST(each_act_with_a_record_makes_the_next_version)
{
	struct ckpt_summary s = summary(A, 7, "", "x");

	ck_fits(save(A, 1, "x", ""));
	ck_fits(apply(recorded((enum ckpt_act_kind)_i, A, 2, "x", "")));
	assert_newest(A, 2, 1002, 2);
	ck_assert_uint_eq(ckpt_state_version(step(A), 2)->record.offset, OFFSET);
	s.pinned = true;
	s.files = 99;
	ck_fits(apply(of_record((enum ckpt_act_kind)_i, &s, STORE, ""))); // numbers may be left out
	assert_newest(A, 7, 1007, 3);
	assert_is(A, &s);
	ck_assert_uint_eq(step(A)->count, 3);
	ck_assert_ptr_null(ckpt_state_version(step(A), 0));
	ck_assert_ptr_null(ckpt_state_version(step(A), 3));
	ck_assert_ptr_null(ckpt_state_version(step(A), 8));
	ck_assert_uint_eq(ckpt_state_version(step(A), 1)->record.seq, 1);
	assert_listed("x", A);
}
END_TEST

START_TEST(an_act_with_a_record_is_void_where_it_does_not_fit)
{
	enum ckpt_act_kind kind = (enum ckpt_act_kind)_i;
	struct ckpt_summary elsewhere = summary(A, 9, FOLDER, "x");

	ck_void(apply(recorded(kind, A, 1, "x", ""))); // no such step
	ck_fits(save(A, 3, "x", ""));
	ck_void(apply(recorded(kind, A, 2, "x", "")));
	ck_void(apply(recorded(kind, A, 3, "x", "")));
	ck_void(apply(recorded(kind, B, 4, "x", "")));
	ck_void(apply(recorded(kind, A, 4, "y", "")));
	ck_void(apply(of_record(kind, &elsewhere, STORE, "")));
	ck_fits(rename_to(A, "y"));
	ck_void(apply(recorded(kind, A, 4, "x", ""))); // was its name
	ck_fits(apply(recorded(kind, A, 4, "y", "")));
	ck_fits(delete (A, 5));
	ck_void(apply(recorded(kind, A, 6, "y", "")));
	ck_fits(save(B, 1, "y", ""));
	ck_fits(save(C, 2, "y", B));
	ck_void(apply(recorded(kind, B, 3, "y", "")));
}
END_TEST

START_TEST(a_record_that_cannot_be_here_is_damage)
{
	struct ckpt_summary s = summary(A, 1, "", "x");

	ck_error(apply(of_record((enum ckpt_act_kind)_i, &s, B, "")), EBADMSG); // of another store
	s.deleted = true;
	ck_error(apply(of_record((enum ckpt_act_kind)_i, &s, STORE, "")), EBADMSG);
	s = summary(A, 1, "", "x");
	s.session[0] = '\0';
	ck_error(apply(of_record((enum ckpt_act_kind)_i, &s, STORE, "")), EBADMSG);
	ck_assert_uint_eq(ckpt_state_count(state), 0);
}
END_TEST

// --- Others -----------------------------------------------------------------------------------------------------------

START_TEST(a_deleted_step_is_in_the_trash_by_a_version)
{
	ck_void(delete (A, 1)); // no such step
	ck_fits(save(A, 2, "x", ""));
	ck_void(delete (A, 1));
	ck_void(delete (A, 2));
	ck_fits(amend(A, 3, "x"));
	ck_fits(delete (A, 4));
	assert_listed("x", NULL);
	assert_trash(A, 4, 2004);
	assert_newest(A, 4, 2004, 5); // the record of the one before
	ck_assert(ckpt_state_version(step(A), 4)->deleted);
	ck_assert_uint_eq(step(A)->is.version, 3);
	ck_assert_str_eq(step(A)->is.name, "x");
	ck_assert(!step(A)->is.deleted);
	ck_void(delete (A, 5));
	ck_fits(save(B, 1, "x", ""));
	assert_listed("x", B);
}
END_TEST

START_TEST(a_version_says_how_its_files_came_to_be)
{
	static const enum ckpt_state_files want[] = {CKPT_FILES_SAVED, CKPT_FILES_REPACKED, CKPT_FILES_EDITED,
						     CKPT_FILES_SAME,  CKPT_FILES_SAVED,    CKPT_FILES_SAME,
						     CKPT_FILES_SAME,  CKPT_FILES_SAME};
	CLEANUP_FREE uint8_t *bytes = NULL;
	size_t len;

	ck_fits(save(A, 1, "x", ""));
	ck_fits(apply(recorded(CKPT_ACT_REPACK, A, 2, "x", "")));
	ck_fits(amend(A, 3, "x"));
	ck_fits(apply(recorded(CKPT_ACT_NOTE, A, 4, "x", "")));
	ck_fits(apply(recorded(CKPT_ACT_RESTORE, A, 5, "x", "")));
	ck_fits(flag(A, 6, 0));
	ck_fits(delete (A, 7));
	ck_fits(undelete(A, 8));
	bytes_of(state, &bytes, &len);
	for (int round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < ARRAY_LEN(want); i++)
			ck_assert_int_eq(ckpt_state_version(step(A), i + 1)->files, want[i]);
		ckpt_state_free(TAKE_PTR(state));
		ck_ok(ckpt_state_decode(bytes, len, &state));
	}
}
END_TEST

START_TEST(a_pinned_step_is_not_deleted)
{
	ck_fits(save(A, 1, "x", ""));
	ck_fits(flag(A, 2, CKPT_FLAG_PINNED));
	ck_void(delete (A, 3));
	ck_fits(flag(A, 3, CKPT_FLAG_TEMPORARY));
	ck_fits(delete (A, 4));
	ck_assert(ckpt_state_version(step(A), 4)->temporary && !ckpt_state_version(step(A), 4)->pinned);
}
END_TEST

START_TEST(an_undeleted_step_is_listed_and_permanent)
{
	ck_void(undelete(A, 1)); // no such step
	ck_fits(save(A, 1, "x", ""));
	ck_fits(flag(A, 2, CKPT_FLAG_TEMPORARY));
	ck_void(undelete(A, 3)); // it is listed
	ck_fits(delete (A, 3));
	ck_void(undelete(A, 2));
	ck_void(undelete(A, 3));
	ck_fits(undelete(A, 4));
	assert_listed("x", A);
	assert_newest(A, 4, 2004, 2);
	ck_assert(!step(A)->is.temporary && !step(A)->is.pinned);
	ck_assert_uint_eq(step(A)->count, 4);
	ck_void(undelete(A, 5));
	ck_fits(amend(A, 5, "x"));
}
END_TEST

START_TEST(a_name_that_is_taken_is_not_undeleted)
{
	ck_fits(save(A, 1, "x", ""));
	ck_fits(save(B, 7, "x", A));
	ck_void(undelete(A, 8)); // B has the name
	ck_fits(rename_to(B, "y"));
	ck_void(undelete(A, 7)); // 7 took its place: what brings it back is later
	ck_fits(undelete(A, 8));
	assert_listed("x", A);
	assert_listed("y", B);
	assert_newest(A, 8, 2008, 1);
}
END_TEST

START_TEST(a_replaced_step_that_is_pinned_is_so_when_it_is_back)
{
	ck_fits(save(A, 1, "x", ""));
	ck_fits(flag(A, 2, CKPT_FLAG_PINNED | CKPT_FLAG_TEMPORARY));
	ck_fits(save(B, 3, "x", A));
	ck_fits(delete (B, 4));
	ck_fits(undelete(A, 4));
	ck_assert(step(A)->is.pinned && !step(A)->is.temporary);
	ck_void(delete (A, 5));
}
END_TEST

START_TEST(only_what_is_in_the_trash_expires)
{
	ck_void(expire(A)); // no such step
	ck_fits(save(A, 1, "x", ""));
	ck_void(expire(A)); // listed
	ck_fits(delete (A, 2));
	ck_void(apply(plain(CKPT_ACT_EXPIRE, A, 3, 0, ""))); // by another deletion
	ck_fits(expire(A));
	ck_assert_ptr_null(ckpt_state_step(state, A));
	ck_assert_uint_eq(ckpt_state_count(state), 0);
	assert_listed("x", NULL);
	ck_void(expire(A));
	ck_void(undelete(A, 3));
}
END_TEST

START_TEST(a_renamed_step_is_found_by_its_new_name)
{
	struct ckpt_act to_folder = {.kind = CKPT_ACT_RENAME, .step = A, .folder_id = FOLDER, .name = "x"};

	ck_void(rename_to(A, "y")); // no such step
	ck_fits(save(A, 1, "step-1", ""));
	ck_fits(save(B, 1, "best", ""));
	ck_void(rename_to(A, "best"));   // taken
	ck_void(rename_to(A, "step-1")); // by itself
	ck_fits(rename_to(A, "step-22"));
	assert_listed("step-1", NULL);
	assert_listed("step-22", A);
	ck_assert_int_eq(step(A)->is.number, 22);
	assert_newest(A, 1, 1001, 2); // no version
	ck_fits(rename_to(B, "step-1"));
	ck_assert_int_eq(step(B)->is.number, 1);
	ck_fits(apply(encoded(&to_folder)));
	ck_assert_ptr_eq(ckpt_state_listed(state, FOLDER, "x"), step(A));
	ck_assert_int_eq(step(A)->is.number, -1);
	assert_listed("x", NULL);
	ck_fits(delete (A, 2));
	ck_void(rename_to(A, "z")); // in the trash
}
END_TEST

START_TEST(a_deleted_step_comes_back_under_the_name_that_it_had_last)
{
	ck_fits(save(A, 1, "x", ""));
	ck_fits(rename_to(A, "y"));
	ck_fits(save(B, 1, "x", ""));
	ck_fits(delete (A, 2));
	ck_fits(undelete(A, 3));
	assert_listed("y", A);
	assert_listed("x", B);
}
END_TEST

START_TEST(flags_are_what_the_act_says)
{
	ck_void(flag(A, 1, 0)); // no such step
	ck_fits(save(A, 1, "x", ""));
	ck_void(flag(A, 1, CKPT_FLAG_PINNED));
	for (uint32_t flags = 0; flags < 4; flags++) {
		ck_fits(flag(A, 2 + flags, flags));
		assert_newest(A, 2 + flags, 2002 + flags, 2);
		ck_assert_int_eq(step(A)->is.pinned, flags & CKPT_FLAG_PINNED);
		ck_assert_int_eq(step(A)->is.temporary, flags / CKPT_FLAG_TEMPORARY);
	}
	ck_fits(flag(A, 6, 0));
	ck_fits(delete (A, 7));
	ck_void(flag(A, 8, CKPT_FLAG_PINNED));
}
END_TEST

START_TEST(steps_are_told_by_their_ids)
{
	CLEANUP_FREE const struct ckpt_state_step **steps = NULL;
	size_t count;

	ck_fits(save(B, 1, "x", ""));
	ck_fits(save(C, 1, "y", ""));
	ck_fits(save(A, 1, "z", ""));
	ck_fits(delete (C, 2));
	ck_ok(ckpt_state_steps(state, &steps, &count));
	ck_assert_uint_eq(count, 3);
	ck_assert_str_eq(steps[0]->id, A);
	ck_assert_str_eq(steps[1]->id, B);
	ck_assert_str_eq(steps[2]->id, C);
}
END_TEST

// --- Operations ---------------------------------------------------------------------------------------------------------

START_TEST(a_value_is_the_one_that_was_set_last)
{
	assert_value("policy", NULL, 0);
	ck_fits(set("policy", CKPT_ACT_ANY, "a"));
	ck_fits(set("expected", CKPT_ACT_ANY, "b"));
	ck_fits(set("zeta", CKPT_ACT_ANY, "c"));
	assert_value("policy", "a", 1);
	ck_fits(set("policy", CKPT_ACT_ANY, "much longer than it was"));
	ck_fits(set("expected", CKPT_ACT_ANY, "b")); // the same again is another one
	assert_value("policy", "much longer than it was", 4);
	assert_value("expected", "b", 5);
	assert_value("zeta", "c", 3);
	assert_value("polic", NULL, 0);
	ck_fits(set("policy", CKPT_ACT_ANY, ""));
	ck_fits(set("decisions", CKPT_ACT_ANY, "")); // which has none
	assert_value("policy", NULL, 0);
	assert_value("decisions", NULL, 0);
	assert_value("expected", "b", 5);
	assert_value("zeta", "c", 3);
	ck_assert_uint_eq(ckpt_state_count(state), 0);
}
END_TEST

START_TEST(a_value_is_set_only_in_the_place_of_the_one_that_is_meant)
{
	ck_void(set("policy", 1, "a"));
	ck_fits(set("policy", 0, "a"));
	ck_void(set("policy", 0, "b"));
	ck_void(set("policy", 1, "b"));
	ck_void(set("policy", 0, ""));
	ck_fits(set("policy", 2, "b"));
	ck_void(set("policy", 2, "c"));
	assert_value("policy", "b", 6);
	ck_fits(set("policy", 6, ""));
	ck_void(set("policy", 6, "c"));
	ck_fits(set("policy", 0, ""));
	assert_value("policy", NULL, 0);
}
END_TEST

START_TEST(an_unknown_kind_is_void_unless_it_is_required)
{
	struct ckpt_operation op = {.node = NODE, .kind = CKPT_ACT_KINDS, .body = "?", .len = 1};
	struct ckpt_span at = {.seq = 1, .offset = OFFSET, .len = 1};

	ck_fits(save(A, 1, "x", ""));
	ck_void(ckpt_state_apply(state, STORE, &op, &at));
	op.kind = UINT16_MAX;
	ck_void(ckpt_state_apply(state, STORE, &op, &at));
	op.required = true;
	op.number = 7;
	ck_error(ckpt_state_apply(state, STORE, &op, &at), ENOTSUP);
	ck_assert_uint_eq(ckpt_state_number(state, NODE), 0);
	op.required = false;
	ck_assert_int_eq(ckpt_state_apply(state, STORE, &op, &at), CKPT_STATE_VOID);
	ck_assert_uint_eq(ckpt_state_number(state, NODE), 7);
	op.kind = 0;
	ck_error(ckpt_state_apply(state, STORE, &op, &at), EBADMSG);
}
END_TEST

START_TEST(numbers_are_those_of_each_node)
{
	CLEANUP_BODY struct body b = recorded(CKPT_ACT_SAVE, A, 1, "x", "");

	b.op.number = 5;
	ck_fits(apply_to(state, &b, 1));
	ck_assert_uint_eq(ckpt_state_number(state, NODE), 5);
	ck_assert_uint_eq(ckpt_state_number(state, NODE_2), 0);
	b.op.number = 6; // the number of a void operation has been used, too
	ck_assert_int_eq(apply_to(state, &b, 2), CKPT_STATE_VOID);
	ck_assert_uint_eq(ckpt_state_number(state, NODE), 6);
	b.op.number = 4;
	ck_void(apply_to(state, &b, 3));
	b.op.number = 0;
	strcpy(b.op.node, NODE_2);
	ck_void(apply_to(state, &b, 4)); // publishes nothing: not a byte is of that node
	b.op.number = UINT64_MAX;
	ck_assert_int_eq(apply_to(state, &b, 5), CKPT_STATE_VOID);
	ck_assert_uint_eq(ckpt_state_number(state, NODE_2), UINT64_MAX);
	ck_assert_uint_eq(ckpt_state_number(state, NODE), 6);
}
END_TEST

// One of each kind that fits the state of make_rich(). Those on the plain tree fit in the log of a remote only (test_plain.c).
static struct body fitting(enum ckpt_act_kind kind)
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
static void make_rich(struct ckpt_state *s)
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

// Applies the body with these bytes in the place of its own to a rich state.
static int try_bytes(const struct body *b, const void *bytes, size_t len, const uint8_t *before, size_t before_len)
{
	CLEANUP_FREE uint8_t *exact = malloc(len);
	struct ckpt_state *s;
	struct body changed = *b;
	int rc;

	if (len)
		memcpy(exact, bytes, len);
	changed.op.body = exact;
	changed.op.len = len;
	ck_ok(ckpt_state_decode(before, before_len, &s));
	rc = apply_to(s, &changed, 100);
	if (rc)
		assert_bytes(s, before, before_len);
	ckpt_state_free(s);
	return rc;
}

START_TEST(each_byte_that_is_changed_is_seen_or_is_another_act)
{
	CLEANUP_BODY struct body b = fitting((enum ckpt_act_kind)_i);
	CLEANUP_FREE uint8_t *before = NULL;
	uint8_t *bytes = b.bytes;
	size_t before_len, record_at = _i == CKPT_ACT_SAVE ? 40 : 0;

	make_rich(state);
	bytes_of(state, &before, &before_len);
	ck_fits(try_bytes(&b, bytes, b.op.len, before, before_len));
	for (size_t i = 0; i < b.op.len; i++)
		for (unsigned bit = 0; bit < 8; bit++) {
			int rc;

			bytes[i] ^= (uint8_t)(1u << bit);
			rc = try_bytes(&b, bytes, b.op.len, before, before_len);
			bytes[i] ^= (uint8_t)(1u << bit);
			if (!ckpt_act_has_record((enum ckpt_act_kind)_i))
				ck_assert(rc == 0 || rc == CKPT_STATE_VOID || rc == -EBADMSG);
			else if (i < record_at) // the step that it replaces
				ck_assert(rc == CKPT_STATE_VOID || rc == -EBADMSG);
			else
				ck_error(rc, EBADMSG);
		}
}
END_TEST

START_TEST(each_length_but_its_own_is_damage)
{
	CLEANUP_BODY struct body b = fitting((enum ckpt_act_kind)_i);
	CLEANUP_FREE uint8_t *before = NULL, *longer = calloc(1, b.op.len + 8);
	size_t before_len;

	make_rich(state);
	bytes_of(state, &before, &before_len);
	memcpy(longer, b.bytes, b.op.len);
	for (size_t n = 0; n <= b.op.len + 8; n++)
		if (n != b.op.len)
			ck_error(try_bytes(&b, longer, n, before, before_len), EBADMSG);
}
END_TEST

START_TEST(without_memory_nothing_changes)
{
	CLEANUP_BODY struct body b = fitting((enum ckpt_act_kind)_i);
	CLEANUP_FREE uint8_t *before = NULL, *after = NULL;
	size_t before_len, after_len;
	int failed = 0;

	b.op.number = 1000;
	strcpy(b.op.node, B);
	make_rich(state);
	bytes_of(state, &before, &before_len);
	ck_fits(apply_to(state, &b, 100));
	bytes_of(state, &after, &after_len);
	for (uint64_t n = 1, count = n; count + 1 >= n; n++) {
		struct ckpt_state *s;
		int rc;

		ck_ok(ckpt_state_decode(before, before_len, &s)); // with no room for one more
		ckpt_allocfault_begin(n, false);
		rc = apply_to(s, &b, 100);
		count = ckpt_allocfault_end();
		ck_assert(rc == 0 || rc == -ENOMEM);
		if (rc) {
			failed++;
			assert_bytes(s, before, before_len);
			ck_fits(apply_to(s, &b, 100));
		}
		assert_bytes(s, after, after_len);
		ckpt_state_free(s);
	}
	ck_assert_int_eq(failed > 0, _i != CKPT_ACT_EXPIRE && _i != CKPT_ACT_RENAME); // these need none
}
END_TEST

START_TEST(a_number_is_not_counted_without_memory)
{
	CLEANUP_BODY struct body b = plain(CKPT_ACT_EXPIRE, A, 1, 0, "");
	int rc;

	b.op.number = 1;
	ckpt_allocfault_begin(1, false);
	rc = apply_to(state, &b, 1);
	ckpt_allocfault_end();
	ck_error(rc, ENOMEM);
	ck_assert_uint_eq(ckpt_state_number(state, NODE), 0);
	ck_assert_int_eq(apply_to(state, &b, 1), CKPT_STATE_VOID);
	ck_assert_uint_eq(ckpt_state_number(state, NODE), 1);
}
END_TEST

// An error is met again by who reads the entry again.
START_TEST(an_error_counts_no_number)
{
	CLEANUP_BODY struct body b = recorded(CKPT_ACT_SAVE, A, 1, "x", "");

	b.op.number = 1;
	((uint8_t *)b.bytes)[b.op.len - 1] ^= 1;
	ck_error(apply_to(state, &b, 1), EBADMSG);
	ck_assert_uint_eq(ckpt_state_number(state, NODE), 0);
	b.op.len = 3;
	ck_error(apply_to(state, &b, 1), EBADMSG);
	ck_assert_uint_eq(ckpt_state_number(state, NODE), 0);
}
END_TEST

// --- Many steps -------------------------------------------------------------------------------------------------------

enum { MANY = 3000 };

static void many_id(unsigned i, char id[CKPT_UUID_LEN + 1])
{
	snprintf(id, CKPT_UUID_LEN + 1, "%08x-0000-4000-8000-%012x", i * 2654435761u, i);
}

// Every second one is deleted. fails: a save has no more allocations than one that does not enlarge the table.
static void make_many(struct ckpt_state *s, bool fails)
{
	uint64_t usual = 0, count;

	for (unsigned i = 0; i < MANY; i++) {
		CLEANUP_BODY struct body saved = {0}, deleted = {0};
		char id[CKPT_UUID_LEN + 1], name[32];
		int rc;

		many_id(i, id);
		snprintf(name, sizeof(name), "step-%u", i);
		saved = recorded(CKPT_ACT_SAVE, id, 1, name, "");
		deleted = plain(CKPT_ACT_DELETE, id, 2, 0, "");
		ckpt_allocfault_begin(fails && usual ? usual + 1 : 0, true);
		rc = apply_to(s, &saved, i + 1);
		count = ckpt_allocfault_end();
		if (!usual)
			usual = count;
		ck_assert_int_eq(rc, 0);
		if (i % 2)
			ck_assert_int_eq(apply_to(s, &deleted, i + 1), 0);
	}
}

START_TEST(many_steps_are_found)
{
	CLEANUP_FREE uint8_t *bytes = NULL;
	struct ckpt_state *back;
	size_t len;

	make_many(state, _i);
	ck_assert_uint_eq(ckpt_state_count(state), MANY);
	bytes_of(state, &bytes, &len);
	ck_ok(ckpt_state_decode(bytes, len, &back));
	assert_bytes(back, bytes, len);
	ckpt_state_free(back);
	for (unsigned i = 0; i < MANY; i++) {
		char id[CKPT_UUID_LEN + 1], name[32];

		many_id(i, id);
		snprintf(name, sizeof(name), "step-%u", i);
		assert_listed(name, i % 2 ? NULL : id);
		ck_assert_uint_eq(step(id)->deleted_by, i % 2 ? 2 : 0);
		if (i % 2)
			ck_fits(expire(id));
	}
	ck_assert_uint_eq(ckpt_state_count(state), MANY / 2);
	for (unsigned i = 0; i < MANY; i++) {
		char id[CKPT_UUID_LEN + 1];

		many_id(i, id);
		ck_assert_int_eq(ckpt_state_step(state, id) == NULL, i % 2);
	}
}
END_TEST

START_TEST(one_name_in_many_folders_is_many_names)
{
	enum { FOLDERS = 200 };
	char folder[CKPT_FOLDER_ID_LEN + 1], id[CKPT_UUID_LEN + 1];

	for (unsigned i = 0; i < FOLDERS; i++) {
		struct ckpt_summary s;

		many_id(i, id);
		snprintf(folder, sizeof(folder), "%016x", i);
		s = summary(id, 1, folder, "x");
		ck_fits(apply(of_record(CKPT_ACT_SAVE, &s, STORE, "")));
	}
	for (unsigned i = 0; i < FOLDERS; i++) {
		many_id(i, id);
		snprintf(folder, sizeof(folder), "%016x", i);
		ck_assert_ptr_eq(ckpt_state_listed(state, folder, "x"), step(id));
	}
	assert_listed("x", NULL);
}
END_TEST

// --- As bytes -----------------------------------------------------------------------------------------------------------

START_TEST(the_same_state_has_the_same_bytes)
{
	CLEANUP_BODY struct body a = recorded(CKPT_ACT_SAVE, A, 1, "x", ""), b = recorded(CKPT_ACT_SAVE, B, 1, "y", "");
	CLEANUP_FREE uint8_t *bytes = NULL;
	struct ckpt_state *other = ckpt_state_new(), *back;
	size_t len;

	a.op.number = 3;
	b.op.number = 4;
	strcpy(b.op.node, NODE_2);
	ck_fits(apply_to(state, &a, 1));
	ck_fits(apply_to(state, &b, 2));
	ck_fits(apply_to(other, &b, 2));
	ck_fits(apply_to(other, &a, 1));
	bytes_of(state, &bytes, &len);
	assert_bytes(other, bytes, len);
	ck_ok(ckpt_state_decode(bytes, len, &back));
	assert_bytes(back, bytes, len);
	ck_assert_uint_eq(ckpt_state_number(back, NODE), 3);
	ck_assert_uint_eq(ckpt_state_number(back, NODE_2), 4);
	ckpt_state_free(back);
	ckpt_state_free(other);
}
END_TEST

START_TEST(a_state_of_bytes_goes_on_as_the_one_that_they_are_of)
{
	CLEANUP_BODY struct body b = fitting((enum ckpt_act_kind)_i);
	CLEANUP_FREE uint8_t *bytes = NULL, *after = NULL;
	struct ckpt_state *back;
	size_t len, after_len;

	make_rich(state);
	bytes_of(state, &bytes, &len);
	ck_ok(ckpt_state_decode(bytes, len, &back));
	ck_fits(apply_to(state, &b, 100));
	ck_fits(apply_to(back, &b, 100));
	bytes_of(state, &after, &after_len);
	assert_bytes(back, after, after_len);
	ckpt_state_free(back);
}
END_TEST

static int decode(const void *bytes, size_t len)
{
	CLEANUP_FREE uint8_t *exact = malloc(len);
	struct ckpt_state *s;
	int rc;

	if (len)
		memcpy(exact, bytes, len);
	rc = ckpt_state_decode(exact, len, &s);
	if (rc)
		return rc;
	assert_bytes(s, bytes, len);
	ckpt_state_free(s);
	return 0;
}

START_TEST(each_bit_that_is_flipped_is_seen_or_is_another_state)
{
	CLEANUP_FREE uint8_t *bytes = NULL;
	size_t len, others = 0;

	make_rich(state);
	bytes_of(state, &bytes, &len);
	ck_ok(decode(bytes, len));
	for (size_t i = 0; i < len * 8; i++) {
		int rc;

		bytes[i / 8] ^= (uint8_t)(1u << i % 8);
		rc = decode(bytes, len);
		bytes[i / 8] ^= (uint8_t)(1u << i % 8);
		ck_assert(rc == 0 || rc == -EBADMSG || rc == -ENOTSUP); // newer: the form of a summary
		others += !rc;
	}
	ck_assert_uint_gt(others, 0);
}
END_TEST

START_TEST(each_length_but_its_own_is_no_state)
{
	CLEANUP_FREE uint8_t *bytes = NULL, *longer = NULL;
	size_t len;

	make_rich(state);
	bytes_of(state, &bytes, &len);
	longer = calloc(1, len + 8);
	memcpy(longer, bytes, len);
	for (size_t n = 0; n <= len + 8; n++)
		if (n != len)
			ck_error(decode(longer, n), EBADMSG);
}
END_TEST

START_TEST(mutations_are_no_state_or_have_one_form)
{
	CLEANUP_FREE uint8_t *bytes = NULL, *mutant = NULL;
	uint64_t random = 1;
	size_t len;

	make_rich(state);
	bytes_of(state, &bytes, &len);
	mutant = malloc(len + 64);
	for (unsigned i = 0; i < 50000; i++) {
		size_t mutant_len;
		int rc;

		memcpy(mutant, bytes, len);
		mutant_len = ckpt_sample_mutate(&random, mutant, len, len + 64);
		rc = decode(mutant, mutant_len);
		ck_assert_msg(rc == 0 || rc == -EBADMSG || rc == -ENOTSUP, "mutation %u: %d", i, rc);
	}
}
END_TEST

// The places in the bytes of a state of two nodes and two steps; each step has two versions.
enum {
	TWO_NODES = 16,
	NODE_BYTES = 48,
	TWO_STEPS = TWO_NODES + 2 * NODE_BYTES,
	VERSIONS = 16, // of a step
	VERSION_BYTES = 56,
	SUMMARY = VERSIONS + 2 * VERSION_BYTES,
	SUMMARY_VERSION = SUMMARY + 8,
};

static void make_two(uint8_t **ret_bytes, size_t *ret_len, size_t *ret_step_bytes)
{
	ck_fits(save(A, 1, "x", ""));
	ck_fits(amend(A, 2, "x"));
	ck_fits(save(B, 1, "y", ""));
	ck_fits(delete (B, 2));
	for (int i = 0; i < 2; i++) {
		CLEANUP_BODY struct body b = recorded(CKPT_ACT_NOTE, A, 1, "x", "");

		strcpy(b.op.node, i ? NODE : NODE_2);
		b.op.number = 5;
		ck_assert_int_eq(apply_to(state, &b, 9), CKPT_STATE_VOID);
	}
	bytes_of(state, ret_bytes, ret_len);
	ck_assert_uint_eq((*ret_len - TWO_STEPS) % 2, 0);
	*ret_step_bytes = (*ret_len - TWO_STEPS) / 2;
}

static void swap(uint8_t *p, uint8_t *q, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		uint8_t was = p[i];

		p[i] = q[i];
		q[i] = was;
	}
}

static void assert_by(const struct ckpt_state *s, const char *id, uint32_t version, const char *node, uint32_t uid,
		      const char *comm)
{
	const struct ckpt_state_version *v = ckpt_state_version(ckpt_state_step(s, id), version);

	ck_assert_str_eq(ckpt_state_node(s, v->by.node), node);
	ck_assert_uint_eq(v->by.actor.uid, uid);
	ck_assert_str_eq(v->by.actor.comm, comm);
}

static void apply_by(struct body b, const char *node, uint32_t uid, const char *comm, int rc)
{
	b.op.actor.uid = uid;
	strcpy(b.op.actor.comm, comm);
	strcpy(b.op.node, node);
	b.op.number = uid % 7; // 0 too: such a version has its node all the same
	ck_assert_int_eq(apply_to(state, &b, uid + 1), rc);
	body_done(&b);
}

// A version that has the record of another has its own maker; what is void makes nobody one.
START_TEST(each_version_says_who_made_it)
{
	CLEANUP_FREE uint8_t *bytes = NULL;
	struct ckpt_state *back;
	size_t len;

	apply_by(recorded(CKPT_ACT_SAVE, A, 1, "x", ""), NODE_2, 1000, "python3", 0);
	apply_by(plain(CKPT_ACT_DELETE, A, 2, 0, ""), NODE, 7, "rm", 0);
	apply_by(plain(CKPT_ACT_UNDELETE, A, 3, 0, ""), NODE_2, 0, "ckptfs", 0);
	apply_by(plain(CKPT_ACT_FLAG, A, 4, 1, ""), NODE, CKPT_UID_UNKNOWN, "", 0);
	apply_by(plain(CKPT_ACT_FLAG, A, 4, 0, ""), NODE, 14, "late", CKPT_STATE_VOID);
	apply_by(recorded(CKPT_ACT_AMEND, A, 5, "x", ""), NODE_2, 1001, "\xc3\xa9", 0);
	bytes_of(state, &bytes, &len);
	ck_ok(ckpt_state_decode(bytes, len, &back));
	for (int i = 0; i < 2; i++) {
		const struct ckpt_state *s = i ? back : state;

		assert_by(s, A, 1, NODE_2, 1000, "python3");
		assert_by(s, A, 2, NODE, 7, "rm");
		assert_by(s, A, 3, NODE_2, 0, "ckptfs");
		assert_by(s, A, 4, NODE, CKPT_UID_UNKNOWN, "");
		assert_by(s, A, 5, NODE_2, 1001, "\xc3\xa9");
	}
	ckpt_state_free(back);
}
END_TEST

START_TEST(nodes_and_steps_stand_once_and_in_order)
{
	CLEANUP_FREE uint8_t *bytes = NULL, *kept = NULL;
	size_t len, step_bytes;

	make_two(&bytes, &len, &step_bytes);
	kept = malloc(len);
	memcpy(kept, bytes, len);
	swap(bytes + TWO_NODES, bytes + TWO_NODES + NODE_BYTES, NODE_BYTES);
	ck_error(decode(bytes, len), EBADMSG);
	memcpy(bytes, kept, len);
	memcpy(bytes + TWO_NODES + NODE_BYTES, bytes + TWO_NODES, NODE_BYTES);
	ck_error(decode(bytes, len), EBADMSG);
	memcpy(bytes, kept, len);
	ckpt_put64(bytes + TWO_NODES + 40, 0); // it has published nothing
	ck_ok(decode(bytes, len));
	memcpy(bytes, kept, len);
	swap(bytes + TWO_STEPS, bytes + TWO_STEPS + step_bytes, step_bytes);
	ck_error(decode(bytes, len), EBADMSG);
	memcpy(bytes, kept, len);
	memcpy(bytes + TWO_STEPS, bytes + TWO_STEPS + step_bytes, step_bytes);
	ck_error(decode(bytes, len), EBADMSG);
	memcpy(bytes, kept, len);
	ck_ok(decode(bytes, len));
}
END_TEST

START_TEST(two_listed_steps_of_one_name_are_no_state)
{
	CLEANUP_FREE uint8_t *bytes = NULL;
	size_t len, step_bytes;

	make_two(&bytes, &len, &step_bytes);
	bytes[len - 1] = 'x'; // the name of B, which is in the trash
	ck_ok(decode(bytes, len));
	ck_fits(undelete(B, 3));
	free(bytes);
	bytes_of(state, &bytes, &len);
	bytes[len - 1] = 'x';
	ck_error(decode(bytes, len), EBADMSG);
}
END_TEST

START_TEST(versions_that_no_act_makes_are_no_state)
{
	static const struct {
		size_t at;     // in a step
		uint32_t a, b; // not of A, which is listed; not of B, which is deleted by its version 2
	} hostile[] = {
		{0, 1, 1}, // deleted by that
		{0, 2, 3},
		{0, 2, 0},
		{4, 0, 0}, // so many versions
		{4, UINT32_MAX, UINT32_MAX},
		{VERSIONS, 0, 0}, // the number of the first one
		{VERSIONS, 2, 2},
		{VERSIONS, 3, 3},
		{VERSIONS + 4, 64, 64}, // flags
		{VERSIONS + 4, 20, 20}, // the first one is a deletion
		{VERSIONS + 4, 8, 8},   // or has files of another
		{VERSIONS + 4, 16, 16},
		{VERSIONS + VERSION_BYTES, 1, 1}, // the number of the second one
		{VERSIONS + VERSION_BYTES, 3, 3},
		{VERSIONS + VERSION_BYTES + 4, 20, 16}, // a deletion, or not
		{VERSIONS + VERSION_BYTES + 4, 20, 4},  // a deletion that has other files
		{VERSIONS + 16, 0, 0},                  // the record: in no entry, no bytes, behind the end
		{VERSIONS + 24, CKPT_LOG_ENTRY_BYTES_MAX, CKPT_LOG_ENTRY_BYTES_MAX},
		{VERSIONS + 28, 0, 0},
		{VERSIONS + 28, CKPT_LOG_ENTRY_BYTES_MAX + 1, CKPT_LOG_ENTRY_BYTES_MAX + 1},
		{VERSIONS + 32, 2, 2}, // the node: there are two
		{VERSIONS + 32, UINT32_MAX, UINT32_MAX},
		{VERSIONS + 40, '\n', '\x7f'}, // the name of a program
		{VERSIONS + 40, 'a' << 8, 0xc3},
		{VERSIONS + 52, 'a' << 24, 'a' << 24},
		{SUMMARY_VERSION, 1, 2}, // the newest that is no deletion
		{SUMMARY_VERSION, 3, 3},
	};
	CLEANUP_FREE uint8_t *bytes = NULL;
	size_t len, step_bytes;

	make_two(&bytes, &len, &step_bytes);
	for (size_t i = 0; i < ARRAY_LEN(hostile); i++)
		for (int which = 0; which < 2; which++) {
			uint8_t *at = bytes + TWO_STEPS + (size_t)which * step_bytes + hostile[i].at;
			uint32_t was = ckpt_get32(at), value = which ? hostile[i].b : hostile[i].a;
			int rc;

			if (!which && !hostile[i].at)
				continue; // as if another had replaced it
			ckpt_put32(at, value);
			rc = decode(bytes, len);
			ckpt_put32(at, was);
			ck_assert_msg(rc == -EBADMSG, "row %zu of step %d: %d", i, which, rc);
		}
	ck_ok(decode(bytes, len));
}
END_TEST

// Two values, of 4 bytes with a key of 3.
START_TEST(values_that_no_act_makes_are_no_state)
{
	enum { FIRST = 16 + NODE_BYTES, HEAD = 16, ONE = HEAD + 7 }; // behind the node
	static const struct {
		size_t at;
		uint8_t is, becomes;
	} hostile[] = {
		{8, 2, 1},                  // so many
		{8, 2, 3},                  //
		{12, 0, 1},                 // zeros
		{FIRST, 2, 0},              // the entry that says so
		{FIRST + 8, 3, 2},          // length of the key
		{FIRST + 10, 0, 1},         // zeros
		{FIRST + 12, 4, 3},         // length of the value
		{FIRST + HEAD, 'o', 'u'},   // the order of keys
		{FIRST + HEAD, 'o', 'O'},   // what is no key
		{FIRST + HEAD + 3, 'v', 0}, // what is no value
		{FIRST + HEAD + 3, 'v', 0xff},
		{FIRST + ONE + HEAD, 't', 'o'}, // of one key
	};
	CLEANUP_FREE uint8_t *bytes = NULL, *shorter = NULL;
	size_t len;

	ck_fits(set("two", CKPT_ACT_ANY, "v222"));
	ck_fits(set("one", CKPT_ACT_ANY, "v111"));
	bytes_of(state, &bytes, &len);
	ck_assert_uint_eq(len, FIRST + 2 * ONE);
	ck_ok(decode(bytes, len));
	for (size_t i = 0; i < ARRAY_LEN(hostile); i++) {
		uint8_t *at = bytes + hostile[i].at, was = *at;
		bool is_order = hostile[i].at == FIRST + ONE + HEAD;
		int rc;

		ck_assert_uint_eq(was, hostile[i].is);
		*at = hostile[i].becomes;
		if (is_order)
			memcpy(at, "one", 3);
		rc = decode(bytes, len);
		*at = was;
		if (is_order)
			memcpy(at, "two", 3);
		ck_assert_msg(rc == -EBADMSG, "row %zu: %d", i, rc);
	}
	ck_ok(decode(bytes, len));
	shorter = malloc(len); // an empty value is none
	memcpy(shorter, bytes, len);
	ckpt_put32(shorter + FIRST + ONE + 12, 0);
	ck_error(decode(shorter, len - 4), EBADMSG);
}
END_TEST

START_TEST(without_memory_there_is_no_state)
{
	CLEANUP_FREE uint8_t *bytes = NULL;
	size_t len;

	make_rich(state);
	bytes_of(state, &bytes, &len);
	for (uint64_t n = 1, count = n; count + 1 >= n; n++) {
		struct ckpt_state *s = NULL;
		int rc;

		ckpt_allocfault_begin(n, false);
		rc = ckpt_state_decode(bytes, len, &s);
		count = ckpt_allocfault_end();
		ck_assert(rc == (count >= n ? -ENOMEM : 0) && !s == !!rc);
		ckpt_state_free(s);
	}
	for (uint64_t n = 1, count = n; count + 1 >= n; n++) {
		void *made = NULL;
		size_t made_len;
		int rc;

		ckpt_allocfault_begin(n, false);
		rc = ckpt_state_encode(state, &made, &made_len);
		count = ckpt_allocfault_end();
		ck_assert(rc == (count >= n ? -ENOMEM : 0) && !made == !!rc);
		free(made);
		assert_bytes(state, bytes, len);
	}
	for (uint64_t n = 1; n <= 3; n++) {
		struct ckpt_state *s;

		ckpt_allocfault_begin(n, false);
		s = ckpt_state_new();
		ckpt_allocfault_end();
		ck_assert_ptr_null(s);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("state");
	TCase *acts = tcase_create("acts"), *operations = tcase_create("operations"), *bytes = tcase_create("bytes");

	tcase_add_checked_fixture(acts, begin, end);
	tcase_add_test(acts, an_empty_state_has_nothing);
	tcase_add_test(acts, a_save_lists_its_step);
	tcase_add_test(acts, a_save_over_the_step_that_it_names_puts_that_in_the_trash);
	tcase_add_test(acts, a_save_is_void_where_it_does_not_fit);
	tcase_add_loop_test(acts, each_act_with_a_record_makes_the_next_version, CKPT_ACT_AMEND, CKPT_ACT_DELETE);
	tcase_add_loop_test(acts, an_act_with_a_record_is_void_where_it_does_not_fit, CKPT_ACT_AMEND, CKPT_ACT_DELETE);
	tcase_add_loop_test(acts, a_record_that_cannot_be_here_is_damage, CKPT_ACT_SAVE, CKPT_ACT_DELETE);
	tcase_add_test(acts, a_deleted_step_is_in_the_trash_by_a_version);
	tcase_add_test(acts, a_version_says_how_its_files_came_to_be);
	tcase_add_test(acts, a_pinned_step_is_not_deleted);
	tcase_add_test(acts, an_undeleted_step_is_listed_and_permanent);
	tcase_add_test(acts, a_name_that_is_taken_is_not_undeleted);
	tcase_add_test(acts, a_replaced_step_that_is_pinned_is_so_when_it_is_back);
	tcase_add_test(acts, only_what_is_in_the_trash_expires);
	tcase_add_test(acts, a_renamed_step_is_found_by_its_new_name);
	tcase_add_test(acts, a_deleted_step_comes_back_under_the_name_that_it_had_last);
	tcase_add_test(acts, flags_are_what_the_act_says);
	tcase_add_test(acts, steps_are_told_by_their_ids);
	tcase_add_test(acts, a_value_is_the_one_that_was_set_last);
	tcase_add_test(acts, a_value_is_set_only_in_the_place_of_the_one_that_is_meant);
	suite_add_tcase(suite, acts);

	tcase_add_checked_fixture(operations, begin, end);
	tcase_add_test(operations, an_unknown_kind_is_void_unless_it_is_required);
	tcase_add_test(operations, numbers_are_those_of_each_node);
	tcase_add_loop_test(operations, each_byte_that_is_changed_is_seen_or_is_another_act, CKPT_ACT_SAVE,
			    CKPT_ACT_MKDIR);
	tcase_add_loop_test(operations, each_length_but_its_own_is_damage, CKPT_ACT_SAVE, CKPT_ACT_MKDIR);
	tcase_add_loop_test(operations, without_memory_nothing_changes, CKPT_ACT_SAVE, CKPT_ACT_MKDIR);
	tcase_add_test(operations, a_number_is_not_counted_without_memory);
	tcase_add_test(operations, an_error_counts_no_number);
	tcase_add_loop_test(operations, many_steps_are_found, 0, 2);
	tcase_add_test(operations, one_name_in_many_folders_is_many_names);
	suite_add_tcase(suite, operations);

	tcase_add_checked_fixture(bytes, begin, end);
	tcase_add_test(bytes, the_same_state_has_the_same_bytes);
	tcase_add_loop_test(bytes, a_state_of_bytes_goes_on_as_the_one_that_they_are_of, CKPT_ACT_SAVE, CKPT_ACT_MKDIR);
	tcase_add_test(bytes, each_bit_that_is_flipped_is_seen_or_is_another_state);
	tcase_add_test(bytes, each_length_but_its_own_is_no_state);
	tcase_add_test(bytes, mutations_are_no_state_or_have_one_form);
	tcase_add_test(bytes, each_version_says_who_made_it);
	tcase_add_test(bytes, nodes_and_steps_stand_once_and_in_order);
	tcase_add_test(bytes, two_listed_steps_of_one_name_are_no_state);
	tcase_add_test(bytes, versions_that_no_act_makes_are_no_state);
	tcase_add_test(bytes, values_that_no_act_makes_are_no_state);
	tcase_add_test(bytes, without_memory_there_is_no_state);
	suite_add_tcase(suite, bytes);
	return ckpt_suite_run(suite);
}
