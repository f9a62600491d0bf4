// The state of a log: what each act does to it, which acts are void, and that neither these nor errors change anything.
// test_state_form.c is about its bytes. tests/state/ compares long and short sequences of acts with a model.
#include "tests/support/state_acts.h"

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
int main(void)
{
	Suite *suite = suite_create("state");
	TCase *acts = tcase_create("acts"), *operations = tcase_create("operations");

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
	return ckpt_suite_run(suite);
}
