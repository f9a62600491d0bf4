// Acts of several nodes that have met: what each row of REMOTE.md section 4 says of them.
#include "tests/support/shared_nodes.h"

START_TEST(what_is_pushed_is_no_change_any_more)
{
	begin();
	strcpy(id, save(US, "1000"));
	ck_assert_uint_eq(changes(US), 1);
	ck_ok(amend(US, listed(US, "1000")));
	ck_assert_uint_eq(changes(US), 1);
	push_all(US);
	ck_assert_uint_eq(changes(US), 0);
	ck_assert_uint_eq(end, 1); // both as one
	pull_all(THEM);
	ck_assert_str_eq(listed(THEM, "1000")->id, id);
	ck_assert_uint_eq(listed(THEM, "1000")->is.version, 2);
	ck_assert_uint_eq(changes(THEM), 0);
	finish();
}
END_TEST

// The bytes of entry at, with another number.
static int pull_numbered(struct node *n, uint64_t at, uint64_t seq)
{
	struct ckpt_operation ops[CKPT_DIFFERENCE_MAX];
	CLEANUP_FREE void *data = NULL;
	struct ckpt_log_entry e;
	uint32_t count = 0;
	size_t len;

	ck_ok(ckpt_log_entry_decode(entries[at].data, entries[at].len, &e));
	ck_assert_uint_le(e.count, CKPT_DIFFERENCE_MAX);
	for (size_t cursor = 0; ckpt_log_entry_next(&e, &cursor, &ops[count]);)
		if (++count == e.count)
			break;
	e.seq = seq;
	ck_ok(ckpt_log_entry_encode(&e, ops, &data, &len));
	return pull(n, &(struct ckpt_pull){.host = "", .entry = data, .entry_len = len});
}

START_TEST(entry_that_is_not_the_next_one_says_nothing)
{
	begin();
	save(US, "1000");
	push_all(US);
	save(US, "1001");
	push_all(US);
	ck_assert_uint_eq(end, 2);
	ck_assert_int_eq(pull_numbered(THEM, 2, 2), CKPT_STATE_VOID); // before the first one
	ck_assert_uint_eq(ckpt_state_remote(THEM->state).seq, 0);
	ck_assert(pull_next(THEM));
	ck_assert_int_eq(pull_numbered(THEM, 2, 3),
			 CKPT_STATE_VOID); // it follows the right one, and has not its number
	ck_assert_uint_eq(ckpt_state_remote(THEM->state).seq, 1);
	ck_assert_ptr_null(listed(THEM, "1001"));
	ck_assert(pull_next(THEM));
	ck_assert_ptr_nonnull(listed(THEM, "1001"));
	ck_assert_int_eq(pull_numbered(THEM, 2, 2), CKPT_STATE_VOID); // once more
	ck_assert_uint_eq(ckpt_state_remote(THEM->state).seq, 2);
	finish();
}
END_TEST

START_TEST(second_of_one_name_gets_another)
{
	begin();
	strcpy(id, save(US, "1000"));
	strcpy(other, save(THEM, "1000"));
	push_all(US);
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		ck_assert_str_eq(listed(&nodes[i], "1000")->id, id);
		ck_assert_str_eq(listed(&nodes[i], "1000.conflict-h1")->id, other);
		ck_assert_int_eq(listed(&nodes[i], "1000.conflict-h1")->is.number, -1);
	}
	finish();
}
END_TEST

START_TEST(third_of_one_name_gets_a_number)
{
	begin();
	for (unsigned i = 0; i < 2; i++) {
		save(US, "1000");
		save(THEM, "1000");
		meet();
		ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
		meet();
	}
	ck_assert_ptr_nonnull(listed(US, "1000.conflict-h1"));
	ck_assert_ptr_nonnull(listed(US, "1000.conflict-h1-2"));
	finish();
}
END_TEST

START_TEST(long_name_of_a_conflict_is_cut_between_characters)
{
	char name[CKPT_NAME_MAX + 1] = "";
	const struct ckpt_state_step *step;

	begin();
	for (size_t i = 0; i + 2 <= CKPT_NAME_MAX; i += 2)
		strcat(name, "\xc3\xa4");
	save(US, name);
	strcpy(id, save(THEM, name));
	push_all(US);
	push_all(THEM);
	step = step_of(THEM, id);
	ck_ok(ckpt_name_check(step->is.name, strlen(step->is.name)));
	ck_assert_ptr_nonnull(strstr(step->is.name, "\xc3\xa4.conflict-h1"));
	finish();
}
END_TEST

START_TEST(save_over_a_step_that_went_elsewhere_leaves_it_there)
{
	begin();
	share("1000");
	strcpy(other, save(US, "1000"));
	ck_assert_uint_ne(step_of(US, id)->deleted_by, 0);
	ck_ok(rename_to(THEM, listed(THEM, "1000"), "best"));
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		ck_assert_str_eq(listed(&nodes[i], "best")->id, id);
		ck_assert_str_eq(listed(&nodes[i], "1000")->id, other);
	}
	finish();
}
END_TEST

START_TEST(save_over_a_step_that_was_amended_takes_it_with_its_amendment)
{
	begin();
	share("1000");
	strcpy(other, save(US, "1000"));
	ck_ok(amend(THEM, listed(THEM, "1000")));
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		ck_assert_str_eq(listed(&nodes[i], "1000")->id, other);
		ck_assert_uint_ne(step_of(&nodes[i], id)->deleted_by, 0);
		ck_assert_uint_eq(step_of(&nodes[i], id)->is.version, 2);
	}
	finish();
}
END_TEST

START_TEST(two_saves_over_one_step_stay_both)
{
	char third[CKPT_UUID_LEN + 1];

	begin();
	share("1000");
	strcpy(other, save(US, "1000"));
	strcpy(third, save(THEM, "1000"));
	push_all(US);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		ck_assert_str_eq(listed(&nodes[i], "1000")->id, other);
		ck_assert_str_eq(listed(&nodes[i], "1000.conflict-h1")->id, third);
		ck_assert_uint_ne(step_of(&nodes[i], id)->deleted_by, 0);
	}
	finish();
}
END_TEST

START_TEST(deletion_of_what_was_amended_or_renamed_deletes_it)
{
	begin();
	share("1000");
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
	ck_ok(amend(THEM, listed(THEM, "1000")));
	ck_ok(rename_to(THEM, listed(THEM, "1000"), "best"));
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		ck_assert_uint_ne(step_of(&nodes[i], id)->deleted_by, 0);
		ck_assert_str_eq(step_of(&nodes[i], id)->is.name, "best");
		ck_assert_uint_eq(changes(&nodes[i]), 0);
	}
	finish();
}
END_TEST

START_TEST(deletion_of_what_was_pinned_is_undone)
{
	begin();
	share("1000");
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
	ck_ok(plain(THEM, CKPT_ACT_FLAG, listed(THEM, "1000"), CKPT_FLAG_PINNED));
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++)
		ck_assert(listed(&nodes[i], "1000")->is.pinned);
	finish();
}
END_TEST

START_TEST(pin_of_what_was_deleted_keeps_it_in_the_trash)
{
	begin();
	share("1000");
	ck_ok(plain(US, CKPT_ACT_FLAG, listed(US, "1000"), CKPT_FLAG_PINNED));
	ck_ok(plain(THEM, CKPT_ACT_DELETE, listed(THEM, "1000"), 0));
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		const struct ckpt_state_step *step = step_of(&nodes[i], id);

		ck_assert(step->deleted_by && step->is.pinned);
		ck_assert_int_eq(plain(&nodes[i], CKPT_ACT_EXPIRE, step, 0), CKPT_STATE_VOID);
	}
	finish();
}
END_TEST

START_TEST(amendment_of_what_was_deleted_goes_to_the_trash)
{
	begin();
	share("1000");
	ck_ok(amend(US, listed(US, "1000")));
	ck_ok(plain(THEM, CKPT_ACT_DELETE, listed(THEM, "1000"), 0));
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		const struct ckpt_state_step *step = step_of(&nodes[i], id);

		ck_assert(step->deleted_by && step->is.files == 5 + 1);
	}
	ck_ok(plain(US, CKPT_ACT_EXPIRE, step_of(US, id), 0)); // who knows the amendment may
	finish();
}
END_TEST

// Nobody needs its files before it comes back, by whichever node.
START_TEST(change_of_what_was_deleted_here_is_pushed_when_it_is_undeleted)
{
	begin();
	share("1000");
	ck_ok(amend(US, listed(US, "1000")));
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
	push_all(US);
	pull_all(THEM);
	ck_assert(step_of(THEM, id)->deleted_by && step_of(THEM, id)->is.files == 5);
	ck_assert_uint_eq(step_of(THEM, id)->count, 2);
	ck_assert_uint_eq(step_of(US, id)->is.files, 5 + 1);
	if (_i)
		replace_by_its_snapshot(US);
	ck_ok(plain(_i ? THEM : US, CKPT_ACT_UNDELETE, step_of(_i ? THEM : US, id), 0));
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		const struct ckpt_state_step *step = listed(&nodes[i], "1000");

		ck_assert_uint_eq(step->is.files, 5 + 1);
		ck_assert_int_eq(step->versions[step->count - 1].files, CKPT_FILES_EDITED);
		ck_assert_uint_eq(changes(&nodes[i]), 0);
	}
	finish();
}
END_TEST

// The changes of flags go on, and neither is lost.
START_TEST(what_was_deleted_with_changes_may_be_pinned_by_others)
{
	begin();
	share("1000");
	ck_ok(amend(US, listed(US, "1000")));
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
	push_all(US);
	pull_all(THEM);
	ck_ok(plain(THEM, CKPT_ACT_UNDELETE, step_of(THEM, id), 0));
	ck_ok(plain(THEM, CKPT_ACT_FLAG, step_of(THEM, id), CKPT_FLAG_PINNED));
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++)
		ck_assert(listed(&nodes[i], "1000")->is.pinned && listed(&nodes[i], "1000")->is.files == 5 + 1);
	finish();
}
END_TEST

START_TEST(amendment_of_what_has_expired_is_a_step_of_its_own)
{
	begin();
	share("1000");
	ck_ok(amend(US, listed(US, "1000")));
	ck_ok(plain(THEM, CKPT_ACT_DELETE, listed(THEM, "1000"), 0));
	ck_ok(plain(THEM, CKPT_ACT_EXPIRE, step_of(THEM, id), 0));
	if (_i) // the name is taken, or free
		save(THEM, "1000");
	push_all(THEM);
	pull_all(US);
	ck_assert(ckpt_state_is_unmerged(listed(US, "1000.conflict-h0"))); // it has files that have expired
	ck_assert_uint_eq(ckpt_state_unmerged_theirs(listed(US, "1000.conflict-h0")), 0);
	ck_assert_uint_eq(listed(US, "1000.conflict-h0")->merged, 1);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		const struct ckpt_state_step *step = listed(&nodes[i], "1000.conflict-h0");

		ck_assert_str_eq(step->id, id);
		ck_assert_int_eq(step->is.number, -1);
	}
	finish();
}
END_TEST

// The node waits until both are put together: neither's files are lost in the version that all nodes have.
START_TEST(amendments_of_two_nodes_are_put_together_before_they_are_pushed)
{
	const struct ckpt_state_step *step;
	struct ckpt_act acts[CKPT_DIFFERENCE_MAX];

	begin();
	share("1000");
	ck_ok(amend(US, listed(US, "1000")));
	ck_ok(amend(THEM, listed(THEM, "1000")));
	ck_ok(amend(THEM, listed(THEM, "1000")));
	push_all(THEM);
	pull_all(US);
	step = listed(US, "1000");
	ck_assert(ckpt_state_is_unmerged(step));
	ck_assert_uint_eq(step->merged, 1);
	ck_assert_uint_eq(ckpt_state_unmerged_theirs(step), 3);
	ck_assert_uint_eq(ckpt_state_difference(US->state, step, false, acts), 0);
	if (_i)
		replace_by_its_snapshot(US);
	ck_ok(amend(US, listed(US, "1000"))); // this one does not have the other's files either
	step = listed(US, "1000");
	ck_assert(ckpt_state_is_unmerged(step));
	merge_all(US);
	step = listed(US, "1000");
	ck_assert_uint_eq(step->merged, 3);
	ck_assert_uint_eq(ckpt_state_difference(US->state, step, false, acts), 1);
	ck_assert_int_eq(acts[0].kind, CKPT_ACT_AMEND);
	ck_ok(amend(THEM, listed(THEM, "1000"))); // and once more meanwhile
	push_all(THEM);
	pull_all(US);
	ck_assert(ckpt_state_is_unmerged(listed(US, "1000")));
	ck_assert_uint_eq(listed(US, "1000")->merged, 3);
	meet();
	for (unsigned i = 0; i < NODES; i++)
		ck_assert_uint_eq(changes(&nodes[i]), 0);
	finish();
}
END_TEST

// A merge says which version of the remote's log it has. Without a remote it says nothing, and none is in its log.
START_TEST(merge_of_a_version_that_is_not_there_leaves_it_unmerged)
{
	struct ckpt_summary sum;

	begin();
	share("1000");
	ck_ok(amend(US, listed(US, "1000")));
	ck_ok(amend(THEM, listed(THEM, "1000")));
	push_all(THEM);
	pull_all(US);
	for (merged = 0; merged < 10; merged++) {
		if (merged == 2)
			continue;
		sum = listed(US, "1000")->is;
		sum.version = next_version(listed(US, "1000"));
		ck_ok(act_with(US, CKPT_ACT_MERGE, &sum, ""));
		ck_assert(ckpt_state_is_unmerged(listed(US, "1000")));
	}
	finish();
}
END_TEST

static size_t acts_of(const struct node *n, const char *step)
{
	struct ckpt_act acts[CKPT_DIFFERENCE_MAX];

	return ckpt_state_difference(n->state, step_of(n, step), false, acts);
}

// Neither it nor what this node had before it is pushed before it has all that the other one did, once and again. _i: there is such a thing.
START_TEST(edit_of_a_step_that_was_amended_waits_for_the_amendments)
{
	char amended[CKPT_UUID_LEN + 1];
	struct ckpt_act acts[CKPT_DIFFERENCE_MAX];

	begin();
	share("1000");
	ck_assert_int_ge(_i ? amend(US, listed(US, "1000")) : 0, 0);
	strcpy(amended, id);
	strcpy(other, edit(US, "1000"));
	ck_assert_uint_eq(acts_of(US, amended), _i);
	for (unsigned i = 0; i < 3; i++) {
		ck_ok(amend(THEM, listed(THEM, "1000")));
		push_all(THEM);
		pull_all(US);
		ck_assert(ckpt_state_is_edit_behind(US->state, listed(US, "1000")));
		ck_assert(ckpt_state_has_edit_behind(US->state, step_of(US, amended)));
		ck_assert_uint_eq(acts_of(US, amended), 0);
		ck_assert_uint_eq(acts_of(US, other), 0);
		merge_all(US);
		ck_assert(!ckpt_state_is_edit_behind(US->state, listed(US, "1000")));
		ck_assert(listed(US, "1000")->versions[0].unmerged);
		ck_assert_uint_eq(acts_of(US, amended), 0);
		ck_assert_uint_eq(step_of(US, amended)->merged, ckpt_state_last(listed(THEM, "1000")));
	}
	ck_assert_uint_eq(ckpt_state_difference(US->state, step_of(US, other), false, acts), 1);
	ck_assert_uint_gt(acts->version, ckpt_state_last(listed(THEM, "1000")));
	push_all(US);
	ck_assert_uint_eq(step_of(US, amended)->since, 0);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		ck_assert_str_eq(listed(&nodes[i], "1000")->id, other);
		ck_assert(ckpt_state_was_replaced(step_of(&nodes[i], amended)));
	}
	finish();
}
END_TEST

// A repacked version has the files that were there before.
START_TEST(amendment_beside_new_packs_is_merged)
{
	struct ckpt_summary sum;

	begin();
	share("1000");
	ck_ok(amend(US, listed(US, "1000")));
	sum = listed(THEM, "1000")->is;
	sum.version = 2;
	ck_ok(act_with(THEM, CKPT_ACT_REPACK, &sum, ""));
	push_all(THEM);
	pull_all(US);
	ck_assert(!ckpt_state_is_unmerged(listed(US, "1000")));
	ck_assert_uint_eq(listed(US, "1000")->is.files, 5 + 1);
	meet();
	finish();
}
END_TEST

START_TEST(undeletion_under_a_name_that_was_taken)
{
	begin();
	share("1000");
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
	meet();
	ck_ok(plain(US, CKPT_ACT_UNDELETE, step_of(US, id), 0));
	strcpy(other, save(THEM, "1000"));
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		ck_assert_str_eq(listed(&nodes[i], "1000")->id, other);
		ck_assert_str_eq(listed(&nodes[i], "1000.conflict-h0")->id, id);
	}
	finish();
}
END_TEST

// The expiry is nothing then; the deletion stays. _i: the node that has deleted it has read its own snapshot since.
START_TEST(deletion_and_expiry_of_what_was_amended_deletes_it)
{
	begin();
	share("1000");
	ck_ok(amend(THEM, listed(THEM, "1000")));
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
	ck_ok(plain(US, CKPT_ACT_EXPIRE, step_of(US, id), 0));
	if (_i)
		replace_by_its_snapshot(US);
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		const struct ckpt_state_step *step = step_of(&nodes[i], id);

		ck_assert(step && step->deleted_by && step->is.files == 5 + 1);
		ck_assert_uint_eq(changes(&nodes[i]), 0);
	}
	finish();
}
END_TEST

START_TEST(undeletion_of_what_has_expired_is_nothing)
{
	begin();
	share("1000");
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
	meet();
	ck_ok(plain(US, CKPT_ACT_UNDELETE, step_of(US, id), 0));
	ck_ok(plain(THEM, CKPT_ACT_EXPIRE, step_of(THEM, id), 0));
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		ck_assert_ptr_null(step_of(&nodes[i], id));
		ck_assert_uint_eq(changes(&nodes[i]), 0);
	}
	finish();
}
END_TEST

START_TEST(expiry_of_what_was_undeleted_is_nothing)
{
	begin();
	share("1000");
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
	meet();
	ck_ok(plain(US, CKPT_ACT_EXPIRE, step_of(US, id), 0));
	ck_assert_ptr_null(step_of(US, id));
	ck_ok(plain(THEM, CKPT_ACT_UNDELETE, step_of(THEM, id), 0));
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++)
		ck_assert_str_eq(listed(&nodes[i], "1000")->id, id);
	finish();
}
END_TEST

START_TEST(of_two_new_names_the_later_holds)
{
	begin();
	share("1000");
	ck_ok(rename_to(US, listed(US, "1000"), "mine"));
	ck_ok(rename_to(THEM, listed(THEM, "1000"), "theirs"));
	push_all(THEM);
	meet();
	for (unsigned i = 0; i < NODES; i++)
		ck_assert_str_eq(listed(&nodes[i], "mine")->id, id);
	finish();
}
END_TEST

START_TEST(deleted_before_it_was_pushed_is_never_pushed)
{
	begin();
	strcpy(id, save(US, "1000"));
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
	push_all(US);
	ck_assert_uint_eq(end, 0);
	ck_ok(plain(US, CKPT_ACT_UNDELETE, step_of(US, id), 0));
	push_all(US);
	ck_assert_uint_eq(end, 1);
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
	ck_ok(plain(US, CKPT_ACT_EXPIRE, step_of(US, id), 0));
	push_all(US);
	ck_assert_uint_eq(changes(US), 0);
	pull_all(THEM);
	ck_assert_ptr_null(step_of(THEM, id));
	finish();
}
END_TEST

// Its SAVE may have been sent, and arrives after it is gone here (REMOTE.md P6): then the removal is pushed. _i: after a restart.
START_TEST(removed_while_its_save_was_on_its_way_stays_removed)
{
	begin();
	strcpy(id, save(US, "1000"));
	ck_assert(push_next(US, false));
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
	ck_ok(plain(US, CKPT_ACT_EXPIRE, step_of(US, id), 0));
	ck_assert_ptr_null(step_of(US, id));
	if (_i)
		replace_by_its_snapshot(US);
	pull_all(US);
	ck_assert_ptr_null(step_of(US, id));
	if (_i)
		replace_by_its_snapshot(US);
	push_all(US);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		ck_assert_ptr_null(step_of(&nodes[i], id));
		ck_assert_uint_eq(changes(&nodes[i]), 0);
	}
	finish();
}
END_TEST

// Another entry has the slot: it was not sent, or never arrives.
START_TEST(removed_before_it_was_pushed_leaves_nothing_behind_the_next_entry)
{
	begin();
	strcpy(id, save(US, "1000"));
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
	ck_ok(plain(US, CKPT_ACT_EXPIRE, step_of(US, id), 0));
	push_all(US);
	ck_assert_uint_eq(end, 0);
	ck_assert_uint_eq(changes(US), 1);
	save(_i ? THEM : US, "2000");
	push_all(_i ? THEM : US);
	pull_all(US);
	ck_assert_uint_eq(changes(US), 0);
	ck_assert_uint_eq(end, 1);
	finish();
}
END_TEST

START_TEST(deletion_stands_behind_what_came_before_it)
{
	const struct ckpt_state_step *step;
	uint64_t place;

	begin();
	share("1000");
	ck_ok(amend(US, listed(US, "1000")));
	place = ckpt_state_place(US->state, step_of(US, id));
	save(US, "2000");
	step = listed(US, "2000");
	ck_assert_uint_lt(place, ckpt_state_place(US->state, step));
	ck_ok(plain(US, CKPT_ACT_DELETE, listed(US, "1000"), 0));
	ck_assert_uint_gt(ckpt_state_place(US->state, step_of(US, id)), ckpt_state_place(US->state, step));
	finish();
}
END_TEST

// What was written behind the first save names the step, and goes behind its save.
START_TEST(step_that_is_saved_again_before_it_was_pushed_keeps_its_place)
{
	uint64_t place;

	begin();
	save(US, "1000");
	place = ckpt_state_place(US->state, listed(US, "1000"));
	save(US, "2000");
	save(US, "1000");
	ck_assert_uint_eq(ckpt_state_place(US->state, listed(US, "1000")), place);
	push_all(US);
	save(US, "1000");
	ck_assert_uint_gt(ckpt_state_place(US->state, listed(US, "1000")), place);
	meet();
	finish();
}
END_TEST

// The new name may arrive after the step has its old one back (REMOTE.md P6). _i: 1 after a restart; 2 it was never sent.
START_TEST(old_name_that_was_given_back_is_pushed)
{
	begin();
	share("1000");
	ck_ok(rename_to(US, listed(US, "1000"), "new"));
	if (_i < 2)
		ck_assert(push_next(US, false));
	ck_ok(rename_to(US, listed(US, "new"), "1000"));
	if (_i)
		replace_by_its_snapshot(US);
	ck_assert_uint_eq(changes(US), 1);
	meet();
	for (unsigned i = 0; i < NODES; i++) {
		ck_assert_str_eq(listed(&nodes[i], "1000")->id, id);
		ck_assert_uint_eq(changes(&nodes[i]), 0);
	}
	finish();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("shared");
	TCase *tc = tcase_create("shared");

	tcase_add_test(tc, what_is_pushed_is_no_change_any_more);
	tcase_add_test(tc, entry_that_is_not_the_next_one_says_nothing);
	tcase_add_test(tc, second_of_one_name_gets_another);
	tcase_add_test(tc, third_of_one_name_gets_a_number);
	tcase_add_test(tc, long_name_of_a_conflict_is_cut_between_characters);
	tcase_add_test(tc, save_over_a_step_that_went_elsewhere_leaves_it_there);
	tcase_add_test(tc, save_over_a_step_that_was_amended_takes_it_with_its_amendment);
	tcase_add_test(tc, two_saves_over_one_step_stay_both);
	tcase_add_test(tc, deletion_of_what_was_amended_or_renamed_deletes_it);
	tcase_add_test(tc, deletion_of_what_was_pinned_is_undone);
	tcase_add_test(tc, pin_of_what_was_deleted_keeps_it_in_the_trash);
	tcase_add_test(tc, amendment_of_what_was_deleted_goes_to_the_trash);
	tcase_add_loop_test(tc, change_of_what_was_deleted_here_is_pushed_when_it_is_undeleted, 0, 2);
	tcase_add_test(tc, what_was_deleted_with_changes_may_be_pinned_by_others);
	tcase_add_loop_test(tc, amendment_of_what_has_expired_is_a_step_of_its_own, 0, 2);
	tcase_add_loop_test(tc, amendments_of_two_nodes_are_put_together_before_they_are_pushed, 0, 2);
	tcase_add_test(tc, merge_of_a_version_that_is_not_there_leaves_it_unmerged);
	tcase_add_loop_test(tc, edit_of_a_step_that_was_amended_waits_for_the_amendments, 0, 2);
	tcase_add_test(tc, amendment_beside_new_packs_is_merged);
	tcase_add_test(tc, undeletion_under_a_name_that_was_taken);
	tcase_add_loop_test(tc, deletion_and_expiry_of_what_was_amended_deletes_it, 0, 2);
	tcase_add_test(tc, undeletion_of_what_has_expired_is_nothing);
	tcase_add_test(tc, expiry_of_what_was_undeleted_is_nothing);
	tcase_add_test(tc, of_two_new_names_the_later_holds);
	tcase_add_test(tc, deleted_before_it_was_pushed_is_never_pushed);
	tcase_add_loop_test(tc, removed_while_its_save_was_on_its_way_stays_removed, 0, 2);
	tcase_add_loop_test(tc, removed_before_it_was_pushed_leaves_nothing_behind_the_next_entry, 0, 2);
	tcase_add_test(tc, deletion_stands_behind_what_came_before_it);
	tcase_add_test(tc, step_that_is_saved_again_before_it_was_pushed_keeps_its_place);
	tcase_add_loop_test(tc, old_name_that_was_given_back_is_pushed, 0, 3);
	suite_add_tcase(suite, tc);
	return ckpt_suite_run(suite);
}
