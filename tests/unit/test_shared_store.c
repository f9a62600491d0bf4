// Settings and policies that nodes share, stores that get a remote or lose it, and jumps over a part of the log.
#include "tests/support/shared_nodes.h"

// _i: after a restart, or over a jump.
START_TEST(policy_of_one_node_is_that_of_all)
{
	begin();
	ck_ok(set(US, CKPT_VALUE_POLICY, "a"));
	ck_ok(set(US, "garbage", "mine"));
	ck_assert_str_eq(value(US), "a");
	if (_i == 1)
		replace_by_its_snapshot(US);
	push_all(US);
	ck_assert_uint_eq(end, 1);
	put_snapshot(US);
	if (_i == 1)
		replace_by_its_snapshot(US);
	if (_i == 2) {
		jump_to(THEM, end);
	} else {
		pull_all(THEM);
	}
	ck_assert_str_eq(value(THEM), "a");
	ck_assert(ckpt_state_value(THEM->state, CKPT_VALUE_POLICY)->pulled);
	ck_assert(!ckpt_state_value(US->state, CKPT_VALUE_POLICY)->pulled);
	ck_assert_ptr_null(ckpt_state_value(THEM->state, "garbage"));
	replace_by_its_snapshot(THEM);
	ck_ok(set(THEM, CKPT_VALUE_POLICY, ""));
	push_all(THEM);
	pull_all(US);
	ck_assert_ptr_null(ckpt_state_value(US->state, CKPT_VALUE_POLICY));
	finish();
}
END_TEST

START_TEST(of_two_policies_the_later_in_the_log_holds)
{
	begin();
	ck_ok(set(US, CKPT_VALUE_POLICY, "a"));
	ck_ok(set(THEM, CKPT_VALUE_POLICY, "b"));
	push_all(US);
	pull_all(THEM);
	ck_assert_str_eq(value(THEM), "b");
	replace_by_its_snapshot(THEM);
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++)
		ck_assert_str_eq(value(&nodes[i]), "b");
	ck_assert(ckpt_state_value(US->state, CKPT_VALUE_POLICY)->pulled);
	finish();
}
END_TEST

// Each has a key of its own. _i: by its entries, or over a jump.
START_TEST(changes_of_different_settings_are_both_kept)
{
	begin();
	ck_ok(set(US, "settingtrash", "=1d"));
	ck_ok(set(US, "settingdelta", "=1"));
	ck_ok(set(THEM, "settinghere", "=2"));
	ck_ok(set(THEM, "settingdelta", "=2"));
	push_all(US);
	put_snapshot(US);
	replace_by_its_snapshot(THEM);
	if (_i == 0)
		pull_all(THEM);
	else
		jump_to(THEM, end);
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		ck_assert_str_eq(ckpt_state_value(nodes[i].state, "settingtrash")->text, "=1d");
		ck_assert_str_eq(ckpt_state_value(nodes[i].state, "settinghere")->text, "=2");
		ck_assert_str_eq(ckpt_state_value(nodes[i].state, "settingdelta")->text, "=2");
	}
	ck_ok(set(US, "settingtrash", ""));
	meet();
	ck_assert_ptr_null(ckpt_state_value(THEM->state, "settingtrash"));
	finish();
}
END_TEST

// A policy is no setting, and takes the place of none: whether it was read before them, as by a jump, or behind them.
START_TEST(policy_counts_for_no_setting)
{
	char key[CKPT_VALUE_KEY_MAX + 1];

	begin();
	for (unsigned i = 0; i < CKPT_VALUE_SETTINGS_MAX; i++) {
		snprintf(key, sizeof(key), "settingx%c%c", 'a' + i / 26, 'a' + i % 26);
		put_value(US, key, CKPT_ACT_ANY, "=1");
		pull_all(US);
	}
	put_value(US, CKPT_VALUE_POLICY, CKPT_ACT_ANY, "a");
	pull_all(US);
	put_value(US, "settingy", CKPT_ACT_ANY, "=1"); // one too many
	pull_all(US);
	put_snapshot(US);
	jump_to(THEM, end);
	pull_all(&nodes[NODES - 1]);
	for (unsigned i = 0; i < NODES; i++) {
		ck_assert_str_eq(value(&nodes[i]), "a");
		ck_assert_ptr_nonnull(ckpt_state_value(nodes[i].state, key));
		ck_assert_ptr_null(ckpt_state_value(nodes[i].state, "settingy"));
	}
	finish();
}
END_TEST

START_TEST(values_that_are_not_shared_are_nobody_elses_matter)
{
	begin();
	ck_ok(set(US, "garbage", "mine"));
	put_value(THEM, "garbage", CKPT_ACT_ANY, "theirs");
	pull_all(THEM);
	put_value(THEM, CKPT_VALUE_POLICY, 7, "theirs");
	pull_all(US);
	ck_assert_str_eq(ckpt_state_value(US->state, "garbage")->text, "mine");
	ck_assert_str_eq(value(US), "");
	finish();
}
END_TEST

START_TEST(all_of_a_store_is_a_change_where_a_remote_is_attached)
{
	begin();
	ckpt_state_free(US->state);
	US->state = ckpt_state_new();
	strcpy(id, save(US, "1000"));
	strcpy(other, save(US, "2000"));
	ck_assert(!ckpt_state_is_attached(US->state));
	attach(US);
	ck_assert(ckpt_state_is_attached(US->state));
	ck_assert_uint_eq(changes(US), 2);
	meet();
	ck_assert_str_eq(listed(THEM, "1000")->id, id);
	ck_assert_str_eq(listed(THEM, "2000")->id, other);
	finish();
}
END_TEST

static void assert_plain_store(const struct ckpt_state *state)
{
	size_t count;

	ck_assert(!ckpt_state_is_attached(state));
	ck_assert_uint_eq(ckpt_state_remote(state).seq, 0);
	(void)ckpt_state_changed(state, &count);
	ck_assert_uint_eq(count, 0);
	(void)ckpt_state_plains(state, &count);
	ck_assert_uint_eq(count, 0);
	(void)ckpt_state_named_objects(state, &count);
	ck_assert_uint_eq(count, 0);
}

START_TEST(a_store_whose_remote_is_detached_is_a_plain_one_with_what_it_had)
{
	CLEANUP_FREE void *bytes = NULL;
	struct ckpt_state *again;
	size_t len;

	begin();
	share("1000");
	share("2000");
	share("3000");
	strcpy(other, save(US, "4000"));
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
	ck_ok(plain(US, CKPT_ACT_FLAG, listed(US, "2000"), CKPT_FLAG_PINNED));
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "3000"), 0));
	strcpy(id, ckpt_state_named(US->state, "", "3000", 1)->id);
	ck_ok(plain(US, CKPT_ACT_EXPIRE, step_of(US, id), 0));
	ck_ok(set(THEM, "policy", "{}"));
	push_next(THEM, true);
	pull_all(US);
	ck_ok(set(US, "policy", "{\"a\":1}"));
	ck_assert_uint_eq(changes(US), 4);
	ck_ok(pull(US, &(struct ckpt_pull){.host = ""}));
	assert_plain_store(US->state);
	ck_assert_str_eq(listed(US, "4000")->id, other);
	ck_assert(listed(US, "2000")->is.pinned && !listed(US, "1000"));
	ck_assert_ptr_null(ckpt_state_step(US->state, id));
	ck_assert_str_eq(value(US), "{\"a\":1}");
	ck_assert_int_eq(pull(US, &(struct ckpt_pull){.host = ""}), CKPT_STATE_VOID);

	ck_ok(ckpt_state_encode(US->state, &bytes, &len));
	ck_ok(ckpt_state_decode(bytes, len, &again));
	assert_plain_store(again);
	ckpt_state_free(again);

	attach(US);
	ck_assert_uint_eq(changes(US), 3);
	finish();
}
END_TEST

START_TEST(steps_of_a_store_that_is_attached_are_pushed_in_the_order_of_their_commits)
{
	static const char *const names[] = {"9", "8", "7", "6", "5", "4", "3", "2"};
	struct ckpt_state_step *const *changed;
	size_t count;

	begin();
	ckpt_state_free(US->state);
	US->state = ckpt_state_new();
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct ckpt_summary sum = fresh(names[i], 1);

		sum.sequence = ARRAY_LEN(names) - i;
		ck_ok(act_with(US, CKPT_ACT_SAVE, &sum, ""));
	}
	attach(US);
	changed = ckpt_state_changed(US->state, &count);
	ck_assert_uint_eq(count, ARRAY_LEN(names));
	for (size_t i = 0; i < count; i++)
		ck_assert_str_eq(changed[i]->is.name, names[ARRAY_LEN(names) - 1 - i]);
	finish();
}
END_TEST

START_TEST(changes_of_a_node_stay_over_a_jump)
{
	char third[CKPT_UUID_LEN + 1];

	begin();
	share("1000");
	ck_ok(plain(US, CKPT_ACT_FLAG, listed(US, "1000"), CKPT_FLAG_PINNED));
	strcpy(other, save(US, "mine"));
	save(THEM, "2000");
	ck_ok(amend(THEM, listed(THEM, "1000")));
	strcpy(third, save(THEM, "mine"));
	push_all(THEM);
	put_snapshot(THEM);
	ck_assert(jump(US));
	ck_assert_uint_eq(changes(US), 2);
	ck_assert(listed(US, "1000")->is.pinned && listed(US, "1000")->is.files == 5 + 1);
	ck_assert_ptr_nonnull(listed(US, "2000"));
	ck_assert_str_eq(listed(US, "mine")->id, third);
	ck_assert_str_eq(listed(US, "mine.conflict-h0")->id, other);
	meet();
	check_all_same();
	finish();
}
END_TEST

START_TEST(jump_ends_changes_of_what_has_expired)
{
	begin();
	share("1000");
	ck_ok(plain(US, CKPT_ACT_FLAG, listed(US, "1000"), CKPT_FLAG_PINNED));
	save(THEM, "2000");
	push_all(THEM);
	ck_ok(plain(THEM, CKPT_ACT_DELETE, listed(THEM, "1000"), 0));
	ck_ok(plain(THEM, CKPT_ACT_EXPIRE, step_of(THEM, id), 0));
	push_all(THEM);
	put_snapshot(THEM);
	ck_assert(jump(US));
	ck_assert_ptr_null(step_of(US, id));
	ck_assert_uint_eq(changes(US), 0);
	finish();
}
END_TEST

START_TEST(jump_back_or_without_a_remote_is_void)
{
	const struct ckpt_operation op = {.number = 1, .kind = CKPT_JUMP_KIND, .node = STORE};
	const struct ckpt_log_position at = {.seq = 1};
	struct ckpt_state *to = ckpt_state_new(), *alone = ckpt_state_new();

	begin();
	share("1000");
	ck_assert_int_eq(ckpt_state_jump(US->state, &op, &at, to), CKPT_STATE_VOID);
	ck_assert_int_eq(ckpt_state_jump(US->state, &op, &at, NULL), CKPT_STATE_VOID);
	ck_assert_int_eq(ckpt_state_jump(alone, &op, &at, to), CKPT_STATE_VOID);
	ck_assert_int_eq(ckpt_state_jump(US->state, &op, &(struct ckpt_log_position){.seq = 2}, NULL), -EBADMSG);
	ck_assert_str_eq(listed(US, "1000")->id, id);
	ckpt_state_free(to);
	ckpt_state_free(alone);
	finish();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("shared_store");
	TCase *tc = tcase_create("shared_store");

	tcase_add_loop_test(tc, policy_of_one_node_is_that_of_all, 0, 3);
	tcase_add_test(tc, of_two_policies_the_later_in_the_log_holds);
	tcase_add_loop_test(tc, changes_of_different_settings_are_both_kept, 0, 2);
	tcase_add_test(tc, policy_counts_for_no_setting);
	tcase_add_test(tc, values_that_are_not_shared_are_nobody_elses_matter);
	tcase_add_test(tc, all_of_a_store_is_a_change_where_a_remote_is_attached);
	tcase_add_test(tc, a_store_whose_remote_is_detached_is_a_plain_one_with_what_it_had);
	tcase_add_test(tc, steps_of_a_store_that_is_attached_are_pushed_in_the_order_of_their_commits);
	tcase_add_test(tc, changes_of_a_node_stay_over_a_jump);
	tcase_add_test(tc, jump_ends_changes_of_what_has_expired);
	tcase_add_test(tc, jump_back_or_without_a_remote_is_void);
	suite_add_tcase(suite, tc);
	return ckpt_suite_run(suite);
}
