// Snapshots of a remote's log, and nodes that jump to them: what a node has then is what it would have read; what is hostile is refused
// before anything is changed; a crash anywhere leaves a node that can go on.
#include "tests/support/jumping.h"

// --- Jumps ------------------------------------------------------------------------------------------------------------------

START_TEST(who_jumps_has_what_who_reads_has)
{
	CLEANUP(done) struct snapshot s = {0};

	read_up_to(&a, 25);
	snapshot_of(&a, &s);
	read_up_to(&b, 1);
	ck_ok(jump(&b, &s));
	check_same(&a, &b);
	check_records(&b, ckpt_remote_log_steps(25));
	reopen(&b);
	check_same(&a, &b);
	read_up_to(&a, ENTRIES);
	read_up_to(&b, ENTRIES);
	check_same(&a, &b);
	check_records(&b, ckpt_remote_log_steps(ENTRIES));
	check_plains(&b, ckpt_remote_log_plains(ENTRIES));
}
END_TEST

START_TEST(copy_stays_as_long_as_a_record_is_in_it)
{
	CLEANUP(done) struct snapshot s = {0}, t = {0};

	read_up_to(&a, 20);
	snapshot_of(&a, &s);
	ck_ok(jump(&b, &s));
	for (unsigned i = 0; i < 3; i++) { // the log goes that is behind two snapshots
		read_up_to(&b, 21 + i);
		ck_ok(ckpt_journal_snapshot(b.j, true));
		reopen(&b);
		check_records(&b, ckpt_remote_log_steps(21 + i));
		check_plains(&b, ckpt_remote_log_plains(21 + i));
	}
	ck_assert(has_copy(&b, 20));
	read_up_to(&a, ENTRIES);
	snapshot_of(&a, &t);
	ck_ok(jump(&b, &t));
	ck_assert(has_copy(&b, 20) && has_copy(&b, ENTRIES));
	ck_ok(ckpt_journal_snapshot(b.j, true)); // nothing that is read from the one before needs it
	ck_assert(!has_copy(&b, 20) && has_copy(&b, ENTRIES));
	reopen(&b);
	check_same(&a, &b);
	check_records(&b, ckpt_remote_log_steps(ENTRIES));
}
END_TEST

// Two jumps behind one snapshot: both are read again from there.
START_TEST(copy_stays_that_is_read_again)
{
	CLEANUP(done) struct snapshot s = {0}, t = {0}, u = {0};
	CLEANUP_FREE uint8_t *data = NULL;
	char key[CKPT_SNAPSHOT_KEY_MAX];
	size_t len;

	read_up_to(&b, 1);
	ck_ok(ckpt_journal_snapshot(b.j, true));
	read_up_to(&b, 2);
	ck_ok(ckpt_journal_snapshot(b.j, true));
	read_up_to(&a, 10);
	snapshot_of(&a, &s);
	read_up_to(&a, 20);
	snapshot_of(&a, &t);
	read_up_to(&a, 30);
	snapshot_of(&a, &u);
	ck_ok(jump(&b, &s));
	ck_ok(jump(&b, &t));
	ck_ok(jump(&b, &u));
	ck_ok(ckpt_journal_snapshot(b.j, true));
	ckpt_snapshot_key(ckpt_journal_position(b.j).seq, key); // is damaged: the one before is read
	ck_ok(ckpt_objects_get_all(b.objects, key, CKPT_SNAPSHOT_BYTES_MAX, (void **)&data, &len, NULL));
	ck_ok(ckpt_objects_remove(b.objects, key));
	data[len / 2]++;
	ck_ok(ckpt_objects_put(b.objects, key, data, len, NULL));
	reopen(&b);
	check_same(&a, &b);
}
END_TEST

START_TEST(snapshot_is_due_after_a_jump)
{
	CLEANUP(done) struct snapshot s = {0};
	struct ckpt_log_position at;
	CLEANUP_FREE void *state = NULL;
	size_t len;

	read_up_to(&a, 20);
	snapshot_of(&a, &s);
	ck_ok(ckpt_journal_snapshot(b.j, false));
	ck_error(ckpt_snapshot_newest(b.objects, STORE, &at, &state, &len), ENOENT);
	ck_ok(jump(&b, &s));
	ck_ok(ckpt_journal_snapshot(b.j, false));
	ck_ok(ckpt_snapshot_newest(b.objects, STORE, &at, &state, &len));
}
END_TEST

START_TEST(copy_that_is_missing_or_another_stops_who_writes)
{
	CLEANUP(done) struct snapshot s = {0};
	char key[CKPT_SNAPSHOT_KEY_MAX];
	uint64_t damaged, seq;

	read_up_to(&a, 20);
	snapshot_of(&a, &s);
	ck_ok(jump(&b, &s));
	seq = ckpt_journal_position(b.j).seq;
	ckpt_journal_close(TAKE_PTR(b.j));
	ckpt_snapshot_copy_key(20, key);
	ck_ok(ckpt_objects_remove(b.objects, key));
	if (_i) {
		s.data[s.len / 2]++;
		ckpt_sample_reseal(s.data, s.len);
		ck_ok(ckpt_objects_put(b.objects, key, s.data, s.len, NULL));
	}
	ck_error(ckpt_journal_open(b.objects, STORE, b.id, CKPT_JOURNAL_WRITE, &b.j, &damaged), EBADMSG);
	ck_assert_uint_eq(damaged, seq);
	ck_ok(ckpt_journal_open(b.objects, STORE, b.id, CKPT_JOURNAL_READ, &b.j, &damaged));
	ck_assert_uint_eq(position(&b), 0);
}
END_TEST

START_TEST(left_copy_of_other_bytes_is_put_again)
{
	CLEANUP(done) struct snapshot s = {0};

	read_up_to(&a, 20);
	snapshot_of(&a, &s);
	s.data[s.len / 2]++;
	ck_ok(ckpt_jump_copy_put(b.objects, 20, s.data, s.len));
	s.data[s.len / 2]--;
	ck_ok(jump(&b, &s));
	reopen(&b);
	check_same(&a, &b);
}
END_TEST

// Each call fails, or is carried out and its answer is lost; then the node ends, and begins again.
START_TEST(crash_in_a_jump_leaves_a_node_that_goes_on)
{
	CLEANUP(done) struct snapshot s = {0};
	unsigned n = 0;
	bool hit = true;

	read_up_to(&a, 20);
	snapshot_of(&a, &s);
	for (n = 1; hit; n++) {
		struct node c;

		new_node(&c, 2);
		read_up_to(&c, 1);
		c.fault.count = 0;
		c.fault.error = -EIO;
		c.fault.half = _i;
		c.fault.sticky = true;
		c.fault.at = n;
		(void)jump(&c, &s);
		(void)ckpt_journal_snapshot(c.j, true);
		hit = c.fault.count >= n;
		c.fault.at = 0;
		reopen(&c);
		ck_assert(position(&c) == 1 || position(&c) == 20);
		if (position(&c) == 1)
			ck_ok(jump(&c, &s));
		check_same(&a, &c);
		check_records(&c, ckpt_remote_log_steps(20));
		check_plains(&c, ckpt_remote_log_plains(20));
		close_node(&c);
		ck_assert_uint_lt(n, 1000);
	}
	ck_assert_uint_gt(n, 4);
}
END_TEST

// --- The plain tree ---------------------------------------------------------------------------------------------------------

static void use_remote_without_steps(void)
{
	ckpt_objects_close(remote);
	ck_ok(ckpt_mem_new(&remote));
}

static struct ckpt_act file(const char *name, uint64_t before, const char *content)
{
	struct ckpt_act act = {.kind = CKPT_ACT_FILE, .before = before, .mode = 0644, .content = content};

	strcpy(act.name, name);
	act.content_len = strlen(content);
	return act;
}

static void add_file(const char *name, uint64_t before, const char *content)
{
	struct ckpt_act act = file(name, before, content);

	ckpt_remote_log_add(remote, STORE, &act);
}

static void assert_plain(struct node *n, const char *name, uint64_t version, const void *want, size_t want_len)
{
	CLEANUP_FREE void *is = NULL;
	size_t len;

	ck_ok(ckpt_journal_plain(n->j, "", name, version, &is, &len));
	ck_assert_uint_eq(len, want_len);
	ck_assert_mem_eq(is, want, len);
}

START_TEST(tree_is_that_of_the_snapshot)
{
	CLEANUP(done) struct snapshot s = {0};

	for (uint64_t to = 1; to <= 30; to++) {
		struct node c;

		read_up_to(&a, to);
		free(TAKE_PTR(s.data));
		snapshot_of(&a, &s);
		new_node(&c, 2);
		read_up_to(&c, to / 2);
		ck_ok(jump(&c, &s));
		check_same(&a, &c);
		check_plains(&c, ckpt_remote_log_plains(to));
		reopen(&c);
		check_plains(&c, ckpt_remote_log_plains(to));
		ck_ok(ckpt_journal_snapshot(c.j, true));
		reopen(&c);
		read_up_to(&c, ENTRIES);
		check_plains(&c, ckpt_remote_log_plains(ENTRIES));
		close_node(&c);
	}
	read_up_to(&a, ENTRIES);
	check_plains(&a, ckpt_remote_log_plains(ENTRIES));
}
END_TEST

// A node that jumps may put the next snapshot: out of the copy.
START_TEST(copy_stays_as_long_as_a_content_is_in_it)
{
	CLEANUP(done) struct snapshot s = {0};

	use_remote_without_steps();
	add_file("f", 0, "old");
	add_file("g", 0, "other");
	read_up_to(&a, 2);
	snapshot_of(&a, &s);
	ck_ok(jump(&b, &s));
	for (unsigned i = 0; i < 3; i++) {
		add_file("other", i ? (uint64_t)(2 + i) << 16 : 0, i % 2 ? "x" : "y");
		read_up_to(&b, 3 + i);
		ck_ok(ckpt_journal_snapshot(b.j, true));
		reopen(&b);
		assert_plain(&b, "f", 1 << 16, "old", 3);
	}
	add_file("f", 1 << 16, "new");
	read_up_to(&a, 6);
	read_up_to(&b, 6);
	check_same(&a, &b);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert(has_copy(&b, 2));
		add_file("other", (uint64_t)(i ? 6 + i : 5) << 16, "z");
		read_up_to(&b, 7 + i);
		ck_ok(ckpt_journal_snapshot(b.j, true));
		assert_plain(&b, "g", 2 << 16, "other", 5);
	}
	ck_assert(has_copy(&b, 2));
	add_file("g", 2 << 16, "newer");
	read_up_to(&b, 10);
	ck_ok(ckpt_journal_snapshot(b.j, true));
	ck_assert(!has_copy(&b, 2));
	reopen(&b);
	assert_plain(&b, "f", 6 << 16, "new", 3);
	assert_plain(&b, "g", 10 << 16, "newer", 5);
}
END_TEST

START_TEST(large_file_is_72_bytes)
{
	const struct ckpt_plain_large large = {.bytes = 1u << 20, .sha256 = {1}, .manifest = {2}};
	uint8_t content[CKPT_PLAIN_LARGE_BYTES];
	CLEANUP(done) struct snapshot s = {0}, t = {0};
	struct ckpt_log_position at;
	struct ckpt_snapshot is;
	struct ckpt_state *state;
	struct ckpt_act act = file("large", 0, "");

	use_remote_without_steps();
	ckpt_plain_large_encode(&large, content);
	act.large = true;
	act.content = content;
	act.content_len = sizeof(content);
	ckpt_remote_log_add(remote, STORE, &act);
	read_up_to(&a, 1);
	snapshot_of(&a, &s);
	ck_ok(ckpt_jump_state(STORE, 1, s.data, s.len, &at, &state));
	ckpt_state_free(state);
	ck_ok(jump(&b, &s));
	check_same(&a, &b);
	assert_plain(&b, "large", 1 << 16, content, sizeof(content));
	ck_ok(ckpt_snapshot_decode(STORE, 1, s.data, s.len, &is)); // the sizes are of two files
	content[1]++;
	is.records = content;
	ck_assert_uint_eq(is.records_len, sizeof(content));
	ck_ok(ckpt_snapshot_encode(STORE, &is, (void **)&t.data, &t.len));
	ck_error(ckpt_jump_state(STORE, 1, t.data, t.len, &at, &state), EBADMSG);
}
END_TEST

START_TEST(snapshot_without_a_content_is_not_made)
{
	CLEANUP_FREE void *data = NULL;
	char key[CKPT_LOG_KEY_MAX];
	struct view v;
	size_t len;

	use_remote_without_steps();
	add_file("f", 0, "old");
	read_up_to(&a, 1);
	(void)ckpt_journal_look(a.j, take_view, &v);
	ckpt_log_key(ckpt_journal_position(a.j).seq, key);
	ck_ok(ckpt_objects_remove(a.objects, key));
	ck_error(ckpt_jump_snapshot(a.objects, STORE, v.state, &v.at, &data, &len), ENOENT);
	ckpt_state_free(v.state);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("jump");
	TCase *t = tcase_create("jump");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, who_jumps_has_what_who_reads_has);
	tcase_add_test(t, copy_stays_as_long_as_a_record_is_in_it);
	tcase_add_test(t, copy_stays_that_is_read_again);
	tcase_add_test(t, snapshot_is_due_after_a_jump);
	tcase_add_loop_test(t, copy_that_is_missing_or_another_stops_who_writes, 0, 2);
	tcase_add_test(t, left_copy_of_other_bytes_is_put_again);
	tcase_add_loop_test(t, crash_in_a_jump_leaves_a_node_that_goes_on, 0, 2);
	tcase_add_test(t, tree_is_that_of_the_snapshot);
	tcase_add_test(t, copy_stays_as_long_as_a_content_is_in_it);
	tcase_add_test(t, large_file_is_72_bytes);
	tcase_add_test(t, snapshot_without_a_content_is_not_made);
	tcase_set_timeout(t, 60);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
