// Steps that a node takes out of its queue, beside the other nodes.
#include "tests/support/shared_nodes.h"

static bool is_held(const struct node *n, uint64_t number)
{
	return ckpt_state_held_by(n->state, number);
}

// Before those that cannot be pushed.
static void push_alone(struct node *n, const char *step_id)
{
	struct ckpt_act acts[CKPT_DIFFERENCE_MAX];
	struct batch b = {0};
	size_t count;

	pull_all(n);
	count = ckpt_state_difference(n->state, step_of(n, step_id), false, acts);
	ck_assert_uint_gt(count, 0);
	for (size_t i = 0; i < count; i++)
		add_act(&b, n, step_of(n, step_id), &acts[i]);
	put_entry(n, &b);
	for (uint32_t i = 0; i < b.count; i++)
		free(b.bodies[i]);
	pull_all(n);
}

// _i: after a restart.
START_TEST(files_do_not_wait_for_a_step_that_is_dropped_when_a_later_one_has_arrived)
{
	uint64_t behind, between;

	begin();
	strcpy(id, save(US, "1000"));
	behind = US->number;
	strcpy(other, save(US, "2000"));
	between = US->number;
	push_alone(US, other);
	push_alone(US, save(US, "2500"));
	if (_i)
		replace_by_its_snapshot(US);
	ck_ok(drop(US, listed(US, "1000")));
	ck_assert(!is_held(US, between));
	if (_i)
		replace_by_its_snapshot(US);
	ck_assert(ckpt_state_is_dropped(step_of(US, id)));
	ck_assert(is_held(US, behind) && !is_held(US, US->number));
	save(US, "3000");
	ck_assert(!is_held(US, US->number));
	meet();
	ck_assert(is_held(US, behind) && !is_held(US, US->number));
	finish();
}
END_TEST

// _i: after a restart.
START_TEST(dropped_step_stays_here_and_is_pushed_once_it_is_changed)
{
	uint64_t before, behind;

	begin();
	before = US->number;
	strcpy(id, save(US, "1000"));
	behind = US->number;
	ck_ok(drop(US, listed(US, "1000")));
	if (_i)
		replace_by_its_snapshot(US);
	ck_assert(ckpt_state_is_dropped(step_of(US, id)));
	strcpy(other, save(US, "2000"));
	ck_assert(!is_held(US, before) && is_held(US, behind) && is_held(US, US->number));
	meet();
	if (_i)
		replace_by_its_snapshot(US);
	ck_assert_ptr_null(step_of(THEM, id));
	ck_assert_str_eq(listed(THEM, "2000")->id, other);
	ck_assert_str_eq(listed(US, "1000")->id, id);
	ck_assert_uint_eq(changes(US), 1);
	ck_assert(!is_held(US, before) && is_held(US, behind) && !is_held(US, US->number));
	ck_ok(plain(US, CKPT_ACT_FLAG, listed(US, "1000"), CKPT_FLAG_PINNED));
	ck_assert(!ckpt_state_is_dropped(step_of(US, id)) && !is_held(US, behind));
	meet();
	ck_assert_str_eq(listed(THEM, "1000")->id, id);
	ck_assert_uint_eq(changes(US), 0);
	finish();
}
END_TEST

// It may have been sent before: then it is there.
START_TEST(dropped_step_that_arrives_is_no_change_any_more)
{
	begin();
	strcpy(id, save(US, "1000"));
	ck_assert(push_next(US, false));
	ck_ok(drop(US, listed(US, "1000")));
	meet();
	ck_assert_uint_eq(changes(US), 0);
	ck_assert_str_eq(listed(THEM, "1000")->id, id);
	finish();
}
END_TEST

START_TEST(dropped_edit_leaves_the_remote_as_it_is_and_takes_what_others_change)
{
	uint32_t theirs;

	begin();
	share("1000");
	theirs = listed(THEM, "1000")->is.version;
	ck_ok(amend(US, listed(US, "1000")));
	ck_ok(drop(US, listed(US, "1000")));
	meet();
	ck_assert_uint_eq(listed(THEM, "1000")->is.version, theirs);
	ck_ok(rename_to(THEM, listed(THEM, "1000"), "4000"));
	push_all(THEM);
	pull_all(US);
	ck_assert(ckpt_state_is_dropped(listed(US, "4000")));
	ck_assert(ckpt_state_has_changed_files(listed(US, "4000")));
	ck_assert(!push_next(US, true));
	finish();
}
END_TEST

// _i: the step that was replaced has expired here, and the node has begun again.
START_TEST(what_a_dropped_step_has_replaced_stays_in_the_remote)
{
	begin();
	share("1000");
	strcpy(other, save(US, "1000"));
	ck_ok(drop(US, listed(US, "1000")));
	if (_i) {
		ck_ok(plain(US, CKPT_ACT_EXPIRE, step_of(US, id), 0));
		replace_by_its_snapshot(US);
	}
	meet();
	ck_assert_str_eq(listed(THEM, "1000")->id, id);
	ck_assert_str_eq(listed(US, "1000")->id, other);
	ck_ok(plain(US, CKPT_ACT_FLAG, listed(US, "1000"), CKPT_FLAG_PINNED));
	meet();
	ck_assert_str_eq(listed(THEM, "1000")->id, other);
	ck_assert_uint_eq(changes(US), 0);
	finish();
}
END_TEST

// Others wait for its name, or take it for deleted.
START_TEST(what_does_not_wait_or_has_another_name_is_not_dropped)
{
	struct ckpt_act a = {.kind = CKPT_ACT_DROP, .time_ns = 2000};

	begin();
	share("1000");
	ck_assert_int_eq(drop(US, listed(US, "1000")), CKPT_STATE_VOID);
	ck_ok(rename_to(US, listed(US, "1000"), "2000"));
	ck_assert_int_eq(drop(US, listed(US, "2000")), CKPT_STATE_VOID);
	strcpy(other, save(US, "3000"));
	strcpy(a.step, other);
	a.version = listed(US, "3000")->is.version + 1;
	ck_assert_int_eq(act(US, &a), CKPT_STATE_VOID);
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "3000"), 0));
	ck_assert_int_eq(drop(US, step_of(US, other)), CKPT_STATE_VOID);
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "2000"), 0));
	ck_assert_int_eq(drop(US, step_of(US, id)), CKPT_STATE_VOID);
	finish();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("shared_drop");
	TCase *tc = tcase_create("shared_drop");

	tcase_add_loop_test(tc, files_do_not_wait_for_a_step_that_is_dropped_when_a_later_one_has_arrived, 0, 2);
	tcase_add_loop_test(tc, dropped_step_stays_here_and_is_pushed_once_it_is_changed, 0, 2);
	tcase_add_test(tc, dropped_step_that_arrives_is_no_change_any_more);
	tcase_add_test(tc, dropped_edit_leaves_the_remote_as_it_is_and_takes_what_others_change);
	tcase_add_loop_test(tc, what_a_dropped_step_has_replaced_stays_in_the_remote, 0, 2);
	tcase_add_test(tc, what_does_not_wait_or_has_another_name_is_not_dropped);
	suite_add_tcase(suite, tc);
	return ckpt_suite_run(suite);
}
