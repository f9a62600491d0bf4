// Reopened steps: how they begin, what ends them, and that whatever fails on the way the version of before is there.
#include "tests/support/reopening.h"

// --- Beginning --------------------------------------------------------------------------------------------------------

START_TEST(a_reopened_step_is_in_no_list_and_has_the_place_of_the_committed_one)
{
	struct ckpt_step *step = reopen(), *again = reopen(), *now;

	ck_assert_ptr_eq(step, again);
	ckpt_step_unref(again);
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_COMMITTED), 0);
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_STAGED), 1);
	now = ckpt_step_now(ckpt_step_ref(base));
	ck_assert_ptr_eq(now, step);
	ckpt_step_unref(now);
	now = ckpt_step_live_session(s, base->session); // its files are a committed step's all the same
	ck_assert_ptr_eq(now, base);
	ckpt_step_unref(now);
	ck_assert_str_eq(step->name, "1000");
	ck_error(ckpt_stage_begin(s, "", "1000", 0755, 0, 0, 0, &now), EEXIST);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(what_is_not_committed_is_not_reopened)
{
	struct ckpt_step *staged = ckpt_staged_begin(s, "2000"), *step;

	ck_error(ckpt_reopen(staged, &step), ESTALE);
	ck_ok(ckpt_delete(base));
	ck_error(ckpt_reopen(base, &step), ESTALE);
	ckpt_step_unref(staged);
}
END_TEST

START_TEST(what_was_removed_is_missing_in_it_and_back_when_it_is_given_up)
{
	struct ckpt_manifest *m;
	struct ckpt_step *step;

	ck_ok(ckpt_step_manifest(base, &m));
	ck_ok(ckpt_remove_entry(base, m, 0, "config.json", false, 0));
	step = reopen();
	ck_assert_int_eq(faccessat(step->dirfd, "config.json", F_OK, 0), -1);
	ck_assert_int_eq(faccessat(step->dirfd, "model.bin", F_OK, 0), 0);
	ck_error(ckpt_remove_entry(base, m, 0, "model.bin", false, 0), EAGAIN);
	ck_ok(ckpt_stage_abort(step, false));
	is_as_before();
	ck_ok(ckpt_remove_entry(base, m, 0, "model.bin", false, 0));
	ckpt_manifest_unref(m);
	ckpt_step_unref(step);
}
END_TEST

static int (*real_link)(int from_dirfd, const char *from, int to_dirfd, const char *to);
static int removed_meanwhile = 1;

static int removing_link(int from_dirfd, const char *from, int to_dirfd, const char *to)
{
	struct ckpt_manifest *m;

	if (removed_meanwhile > 0) {
		ck_ok(ckpt_step_manifest(base, &m));
		removed_meanwhile = ckpt_remove_entry(base, m, 0, "config.json", false, 0);
		ckpt_manifest_unref(m);
	}
	return real_link(from_dirfd, from, to_dirfd, to);
}

START_TEST(nothing_is_removed_while_its_links_are_made)
{
	real_link = ckpt_hooks.link;
	ckpt_hook_set(link, removing_link);
	ckpt_step_unref(reopen());
	ckpt_hook_set(link, real_link);
	ck_error(removed_meanwhile, EAGAIN);
}
END_TEST

START_TEST(a_directory_keeps_its_number_where_it_is_moved)
{
	struct ckpt_step *step = reopen();
	struct ckpt_manifest *m;
	struct ckpt_entry e;
	struct statx stx;
	uint64_t number;
	uint32_t index;

	ck_ok(ckpt_step_manifest(base, &m));
	ck_ok(ckpt_manifest_lookup(m, "params", &index));
	ckpt_manifest_entry(m, index, &e);
	number = e.ino;
	ckpt_manifest_unref(m);
	ck_ok(ckpt_sys.rename(step->dirfd, "params", step->dirfd, "old", 0));
	ck_ok(ckpt_sys.mkdir(step->dirfd, "params", 0755));
	ck_assert_int_eq(statx(step->dirfd, "old", 0, CKPT_STATX_WANT, &stx), 0);
	ck_assert_uint_eq(ckpt_share_ino(step, "old", 1, &stx, false), number);
	ck_assert_int_eq(statx(step->dirfd, "params", 0, CKPT_STATX_WANT, &stx), 0);
	ck_assert_uint_ne(ckpt_share_ino(step, "params", 1, &stx, false), number);
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_ok(ckpt_step_manifest(step, &m));
	ck_ok(ckpt_manifest_lookup(m, "old", &index));
	ckpt_manifest_entry(m, index, &e);
	ck_assert_uint_eq(e.ino, number);
	ckpt_manifest_unref(m);
	ckpt_step_unref(step);
}
END_TEST

// --- The ends ---------------------------------------------------------------------------------------------------------

START_TEST(its_commit_is_the_next_version_and_the_one_before_is_in_the_trash)
{
	struct ckpt_step *step = reopen();
	uint64_t ino = base->born.dir_ino;

	write_anew(step, "config.json", "{\"new\":1}");
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	for (int i = 0; i < 2; i++) {
		struct ckpt_step *found = ckpt_step_find(s, "", "1000");

		ck_assert_uint_eq(found->version->is.version, 2);
		ck_assert_uint_eq(found->born.dir_ino, ino);
		ckpt_staged_check(found, "config.json", "{\"new\":1}");
		ckpt_staged_check(found, "model.bin", "committed");
		ckpt_step_unref(found);
		ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_COMMITTED), 1);
		ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_DELETED), 1);
		ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_LEFT), 0);
		if (!i) {
			ck_assert_int_eq(ckpt_step_state(base), CKPT_STEP_DELETED);
			ck_assert_uint_eq(base->deleted_by, 2);
			ckpt_staged_check(base, "config.json", "{}");
			ckpt_step_unref(step);
			start_anew();
		}
	}
}
END_TEST

START_TEST(a_reader_beside_sees_what_it_became)
{
	struct ckpt_step *step, *found;
	struct ckpt_store *reader;

	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &reader));
	usleep(30000); // else two changes in one tick would look like one
	ck_ok(ckpt_follow_refresh(reader));
	step = reopen();
	write_anew(step, "config.json", "{\"new\":1}");
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_ok(ckpt_follow_refresh(reader));
	found = ckpt_step_find(reader, "", "1000");
	ck_assert_ptr_nonnull(found);
	ck_assert_uint_eq(found->version->is.version, 2);
	ckpt_staged_check(found, "config.json", "{\"new\":1}");
	ckpt_step_unref(found);
	ckpt_store_close(reader);
	ckpt_step_unref(step);
}
END_TEST

static void listed_is(struct ckpt_step *step, uint32_t version, uint64_t sequence)
{
	struct ckpt_step *found = ckpt_step_find(s, "", "1000");

	ck_assert_ptr_eq(found, step);
	ck_assert_uint_eq(step->version->is.version, version);
	ck_assert_uint_eq(step->born.sequence, sequence);
	ck_assert_str_eq(step->version->is.event, "quiet");
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_LEFT), 0);
	ckpt_step_unref(found);
}

START_TEST(an_edit_that_is_quiet_is_a_version_in_the_place_of_the_one_before)
{
	struct ckpt_step *step = reopen();
	uint64_t sequence = base->born.sequence;

	write_anew(step, "config.json", "new");
	usleep(100000);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED); // not yet a second
	ckpt_staged_quiet(step);
	ck_assert(wait_for(step, CKPT_STEP_COMMITTED));
	listed_is(step, 2, sequence);
	ckpt_staged_check(step, "config.json", "new");
	ckpt_staged_check(base, "config.json", "{}");
	ck_assert_int_eq(ckpt_step_state(base), CKPT_STEP_DELETED);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(an_edit_needs_a_second_of_quiet_and_no_more)
{
	struct ckpt_step *step = reopen();

	write_anew(step, "config.json", "new");
	ck_assert(wait_for(step, CKPT_STEP_COMMITTED));
	ckpt_step_unref(step);
}
END_TEST

static void save_arrays(void)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "2000");

	ckpt_staged_put_array(step, "a.npy", 1, 8);
	ckpt_staged_put_array(step, "b.npy", 1, 8);
	close(ckpt_staged_put(step, "config.json", "{}"));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ckpt_step_unref(base);
	base = step;
}

static void rewrite(struct ckpt_step *step, const char *path, size_t bytes)
{
	ck_ok(ckpt_stage_enter(step, true));
	ck_ok(ckpt_sys.unlink(step->dirfd, path, 0));
	ckpt_staged_put_array(step, path, 2, bytes);
	ckpt_stage_leave(step);
}

static bool is_rewritten(struct ckpt_step *step)
{
	for (int i = 0; i < WAIT_MS && !__atomic_load_n(&ckpt_reopen_of(step)->rewritten, __ATOMIC_RELAXED); i++)
		usleep(1000);
	return __atomic_load_n(&ckpt_reopen_of(step)->rewritten, __ATOMIC_RELAXED);
}

START_TEST(arrays_that_are_written_anew_need_the_longer_time_and_make_it_the_latest)
{
	struct ckpt_step *step;

	save_arrays();
	step = reopen();
	rewrite(step, "a.npy", 8);
	ck_assert(is_rewritten(step)); // within a second or two
	usleep(100000);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
	ckpt_staged_quiet(step);
	ck_assert(wait_for(step, CKPT_STEP_COMMITTED));
	ck_assert_uint_eq(step->version->is.version, 2);
	ck_assert_uint_gt(step->born.sequence, base->born.sequence);
	ckpt_step_unref(step);
}
END_TEST

// base->version->is.profile, commit_quiet in ms, and the time after the last change in ms at which it is (not yet) a version.
static const struct {
	const char *profile;
	int64_t commit_quiet_ms, waits_ms, done_ms;
} re_saves[] = {
	{"generic", 10000, 59000, 61000},
	{"generic", CKPT_QUIET_OFF, 59000, 61000},
	{"generic", 20000, 119000, 121000},
	{"dcp", 10000, 299000, 301000},
	{"dcp", 20, 590, 610},
};

static void be_quiet_for(struct ckpt_step *step, int64_t ms)
{
	LOCK_SCOPE(&step->lock);

	__atomic_store_n(&ckpt_staging_of(step)->touched_ns, ckpt_sys.mono_ns() - ms * 1000000, __ATOMIC_RELAXED);
	pthread_cond_broadcast(&step->changed);
}

START_TEST(the_longer_time_is_six_times_commit_quiet_or_thirty_where_an_event_is_awaited)
{
	struct ckpt_step *step;

	s->settings.commit_quiet_ns = INT64_C(3600000000000);
	save_arrays();
	snprintf(base->version->is.profile, sizeof(base->version->is.profile), "%s", re_saves[_i].profile);
	step = reopen();
	rewrite(step, "a.npy", 8);
	__atomic_store_n(&ckpt_reopen_of(step)->rewritten, true, __ATOMIC_RELAXED);
	ckpt_lock_take(&step->lock); // its thread looks at them with it
	s->settings.commit_quiet_ns = re_saves[_i].commit_quiet_ms * 1000000;
	ckpt_lock_drop(&step->lock);
	if (re_saves[_i].waits_ms > 1000) { // else this thread may be too slow for it
		be_quiet_for(step, re_saves[_i].waits_ms - 500);
		usleep(100000);
		ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
	}
	be_quiet_for(step, re_saves[_i].done_ms);
	ck_assert(wait_for(step, CKPT_STEP_COMMITTED));
	ckpt_step_unref(step);
}
END_TEST

static void lose_writer(struct ckpt_step *step)
{
	struct ckpt_writer w;
	CLEANUP_FD int fd = ckpt_staged_put(step, "open", "x");

	ckpt_staged_writer(step, &w, fd);
	ckpt_stage_writer_killed(&w);
	ckpt_stage_writer_remove(&w);
	ck_ok(ckpt_sys.unlink(step->dirfd, "open", 0));
}

// What a writer has written that was killed then, and what becomes of it.
static const struct {
	size_t a_bytes, b_bytes; // 0: as before
	enum { LIVES, IN_FILE, LOST } writer;
	enum ckpt_step_state end;
	const char *says;
} writers[] = {
	{8, 0, IN_FILE, CKPT_STEP_LEFT, "process 4711 was killed"},
	{8, 8, IN_FILE, CKPT_STEP_LEFT, "process 4711 was killed"},
	{0, 0, IN_FILE, CKPT_STEP_LEFT, "process 4711 was killed"}, // an edit
	{8, 0, LOST, CKPT_STEP_LEFT, "not yet: b.npy"},
	{8, 8, LOST, CKPT_STEP_COMMITTED, NULL}, // the re-save was complete
	{0, 0, LOST, CKPT_STEP_LEFT, "were interrupted"},
	{8, 0, LIVES, CKPT_STEP_COMMITTED, NULL},
	{8, 7, LIVES, CKPT_STEP_LEFT, "b.npy is cut off"},
};

START_TEST(changes_of_a_killed_writer_or_that_are_cut_off_are_given_up_and_kept)
{
	struct ckpt_step *step, *found;

	save_arrays();
	step = reopen();
	write_anew(step, "config.json", "new");
	if (writers[_i].a_bytes)
		rewrite(step, "a.npy", writers[_i].a_bytes);
	if (writers[_i].b_bytes)
		rewrite(step, "b.npy", writers[_i].b_bytes);
	if (writers[_i].writer == IN_FILE)
		lose_writer(step);
	ckpt_lock_take(&step->lock);
	ckpt_staging_of(step)->lost.any |= writers[_i].writer == LOST;
	ckpt_lock_drop(&step->lock);
	ckpt_staged_quiet(step);
	for (int i = 0; i < WAIT_MS && ckpt_step_state(step) != writers[_i].end; i++)
		usleep(1000);
	ck_assert_int_eq(ckpt_step_state(step), writers[_i].end);
	found = ckpt_step_find(s, "", "2000");
	ckpt_staged_check(found, "config.json", writers[_i].says ? "{}" : "new");
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_LEFT), writers[_i].says != NULL);
	for (int i = 0; i < 1000 && writers[_i].says && !ckpt_save_errors(s, writers[_i].says); i++)
		ckpt_sys.sleep_ns(10000000); // it is told after it is done
	if (writers[_i].says)
		ck_assert_uint_eq(ckpt_save_errors(s, writers[_i].says), 1);
	ckpt_step_unref(found);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(a_writer_or_a_change_under_way_keeps_it)
{
	struct ckpt_step *step = reopen();
	struct ckpt_writer w;
	int fd;

	ck_ok(ckpt_stage_enter(step, true));
	fd = ckpt_staged_put(step, "more", "x");
	ckpt_staged_quiet(step);
	usleep(100000);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
	ckpt_staged_writer(step, &w, fd);
	ckpt_stage_leave(step);
	ckpt_staged_quiet(step);
	usleep(100000);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
	ckpt_stage_writer_remove(&w);
	close(fd);
	ckpt_staged_quiet(step);
	ck_assert(wait_for(step, CKPT_STEP_COMMITTED));
	ckpt_step_unref(step);
}
END_TEST

START_TEST(an_orderly_end_commits_what_is_closed_and_whole)
{
	struct ckpt_step *step = reopen();

	write_anew(step, "config.json", "new");
	ckpt_step_unref(step);
	start_anew();
	ck_assert_uint_eq(base->version->is.version, 2);
	ckpt_staged_check(base, "config.json", "new");
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_LEFT), 0);
	save_arrays();
	step = reopen();
	rewrite(step, "a.npy", 7);
	ckpt_step_unref(step);
	ckpt_step_unref(TAKE_PTR(base));
	ckpt_fixture_reopen();
	base = ckpt_step_find(s, "", "2000");
	ck_assert_uint_eq(base->version->is.version, 1);
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_LEFT), 1);
}
END_TEST

#define SAYS "{\"metrics\":{\"loss\":1},\"temporary\":true}"

static void stand_still(const char *name, const char *metadata, bool temporary)
{
	struct ckpt_step *before = ckpt_step_find(s, "", name), *step;
	struct ckpt_record record;

	ck_ok(ckpt_reopen(before, &step));
	write_anew(step, "config.json", "new");
	ckpt_staged_quiet(step);
	ck_assert(wait_for(step, CKPT_STEP_COMMITTED));
	ck_ok(ckpt_step_record(step, step->version->is.version, &record));
	ck_assert_str_eq(record.metadata, metadata);
	ck_assert_int_eq(record.summary.temporary, temporary);
	ckpt_record_done(&record);
	ckpt_step_unref(step);
	ckpt_step_unref(before);
}

static void save_saying(const char *name)
{
	struct ckpt_step *step = ckpt_staged_begin(s, name);

	close(ckpt_staged_put(step, "config.json", "{}"));
	ck_ok(ckpt_staged_commit(step, 0, SAYS));
	ckpt_step_unref(step);
}

START_TEST(what_stood_still_says_what_it_said_before)
{
	struct ckpt_step *step;

	save_saying("2000");
	save_saying("3000");
	step = ckpt_step_find(s, "", "3000");
	ck_ok(ckpt_promote(step));
	ckpt_step_unref(step);
	stand_still("2000", SAYS, true);
	stand_still("3000", SAYS, false);
}
END_TEST

static const struct ckpt_commit quiet = {.event = "quiet", .profile = "generic", .keeps_metadata = true};

// What it says itself comes first, and that it is temporary needs no room.
START_TEST(what_stood_still_says_less_where_all_of_it_is_too_much)
{
	CLEANUP_FREE char *full = malloc(CKPT_METADATA_BYTES_MAX + 1);
	struct ckpt_step *before = ckpt_staged_begin(s, "2000"), *step;
	struct ckpt_record record;

	sprintf(full, "{\"extras\":{\"pad\":\"%*s\"},\"temporary\":true}", (int)CKPT_METADATA_BYTES_MAX - 38, "");
	ck_assert_uint_eq(strlen(full), CKPT_METADATA_BYTES_MAX);
	ck_ok(ckpt_staged_commit(before, 0, full));
	ck_ok(ckpt_reopen(before, &step));
	close(ckpt_staged_put(step, "metrics.json", "{\"loss\":1}"));
	ck_ok(ckpt_commit(step, &quiet));
	ck_ok(ckpt_step_record(step, step->version->is.version, &record));
	ck_assert_str_eq(record.metadata, "{\"metrics\":{\"loss\":1}}");
	ck_assert(record.summary.temporary);
	ckpt_record_done(&record);
	ckpt_step_unref(step);
	ckpt_step_unref(before);
}
END_TEST

START_TEST(what_stood_still_is_no_version_while_nobody_can_read_what_it_said_before)
{
	struct ckpt_step *step;

	ck_ok(ckpt_commit_metadata(base, SAYS));
	step = reopen();
	ck_ok(ckpt_sys.rename(s->dirfd, "log", s->dirfd, "away", 0));
	ck_error(ckpt_commit(step, &quiet), ENOENT);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
	ck_assert(ckpt_step_is_reopened(base));
	ck_ok(ckpt_sys.rename(s->dirfd, "away", s->dirfd, "log", 0));
	ck_ok(ckpt_commit(step, &quiet));
	ck_assert_uint_eq(step->version->is.version, 3);
	ck_assert(step->version->is.temporary);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(a_commit_that_fails_leaves_it_reopened)
{
	struct ckpt_step *step = reopen();
	struct ckpt_writer w;
	int fd = ckpt_staged_put(step, "more", "x");

	ckpt_staged_writer(step, &w, fd);
	ck_error(ckpt_commit(step, &ckpt_staged_plain), EBUSY);
	ck_assert(ckpt_step_is_reopened(base));
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_COMMITTED), 0);
	ckpt_stage_writer_remove(&w);
	close(fd);
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_assert(!ckpt_step_is_reopened(base));
	ckpt_staged_check(step, "more", "x");
	ckpt_step_unref(step);
}
END_TEST

START_TEST(its_removal_is_the_deletion_of_the_version_of_before)
{
	struct ckpt_step *step = reopen();

	ck_error(ckpt_reopen_remove(step), ENOTEMPTY);
	ck_assert(ckpt_step_is_reopened(base));
	ck_ok(ckpt_sys.unlink(step->dirfd, "model.bin", 0));
	ck_ok(ckpt_sys.unlink(step->dirfd, "config.json", 0));
	ck_ok(ckpt_sys.unlink(step->dirfd, "params/w", 0));
	ck_ok(ckpt_sys.unlink(step->dirfd, "params", AT_REMOVEDIR));
	ck_ok(ckpt_reopen_remove(step));
	ck_assert_int_eq(ckpt_step_state(base), CKPT_STEP_DELETED);
	ckpt_step_unref(step);
	for (int i = 0; i < 2; i++) {
		ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_COMMITTED), 0);
		ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_DELETED), 1);
		ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_LEFT), 0);
		start_anew();
	}
}
END_TEST

START_TEST(a_start_finds_the_version_of_before_and_the_changes_left_over)
{
	struct ckpt_step *step = reopen(), *left;
	struct ckpt_stage_usage usage;

	write_anew(step, "config.json", "changed");
	ck_ok(ckpt_stage_enter(step, true)); // and never leaves: the daemon dies
	ckpt_step_unref(step);
	start_anew();
	is_as_before();
	left = ckpt_save_left(s);
	ck_assert_str_eq(left->name, "1000");
	ck_ok(ckpt_stage_usage(left, &usage));
	ck_assert_uint_eq(usage.files, 3);
	ckpt_step_unref(left);
}
END_TEST

// --- Failures ---------------------------------------------------------------------------------------------------------

START_TEST(a_reopening_that_fails_has_changed_nothing)
{
	bool sticky = _i % 2;

	for (uint64_t n = 1;; n++) {
		struct ckpt_sysfault fault = {.at = n, .error = _i / 2 ? -ENOSPC : -EIO, .sticky = sticky};
		struct ckpt_step *step = NULL;
		int rc;

		ck_assert_uint_lt(n, CALLS_MAX);
		ckpt_save_settle_all(s);
		ckpt_sysfault_begin(&fault);
		rc = ckpt_reopen(base, &step);
		ckpt_save_settle_all(s);
		ckpt_sysfault_end(&fault);
		if (rc) {
			is_as_before();
			ck_assert_uint_ge(ckpt_save_errors(s, "could not be opened for changes"), 1);
			step = reopen();
		}
		write_anew(step, "config.json", "changed");
		ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_COMMITTED), 0);
		ck_ok(ckpt_stage_abort(step, false));
		ckpt_step_unref(step);
		is_as_before();
		if (fault.count < n)
			break;
		start_anew();
		is_as_before();
	}
}
END_TEST

START_TEST(a_removal_that_fails_is_no_deletion)
{
	for (uint64_t n = 1;; n++) {
		struct ckpt_sysfault fault = {.at = n, .error = -EIO, .sticky = _i};
		struct ckpt_step *step = reopen();
		int rc;

		ck_assert_uint_lt(n, CALLS_MAX);
		ck_ok(ckpt_sys.unlink(step->dirfd, "model.bin", 0));
		ck_ok(ckpt_sys.unlink(step->dirfd, "config.json", 0));
		ck_ok(ckpt_sys.unlink(step->dirfd, "params/w", 0));
		ck_ok(ckpt_sys.unlink(step->dirfd, "params", AT_REMOVEDIR));
		ckpt_save_settle_all(s);
		ckpt_sysfault_begin(&fault);
		rc = ckpt_reopen_remove(step);
		ckpt_save_settle_all(s);
		ckpt_sysfault_end(&fault);
		if (rc && ckpt_step_is_reopened(base)) {
			ck_ok(ckpt_reopen_remove(step));
		} else if (rc) {
			ck_assert_int_eq(ckpt_step_state(base), CKPT_STEP_COMMITTED);
			ckpt_staged_check(base, "config.json", "{}");
			ck_ok(ckpt_delete(base)); // the answer is final now
		}
		ckpt_step_unref(step);
		ck_assert_int_eq(ckpt_step_state(base), CKPT_STEP_DELETED);
		ckpt_staged_check(base, "model.bin", "committed");
		if (fault.count < n)
			break;
		ck_ok(ckpt_undelete(base));
		start_anew();
		is_as_before();
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("reopen");
	TCase *beginning = tcase_create("beginning"), *ends = tcase_create("ends"),
	      *failures = tcase_create("failures");

	tcase_add_checked_fixture(beginning, setup, teardown);
	tcase_add_test(beginning, a_reopened_step_is_in_no_list_and_has_the_place_of_the_committed_one);
	tcase_add_test(beginning, what_is_not_committed_is_not_reopened);
	tcase_add_test(beginning, what_was_removed_is_missing_in_it_and_back_when_it_is_given_up);
	tcase_add_test(beginning, nothing_is_removed_while_its_links_are_made);
	tcase_add_test(beginning, a_directory_keeps_its_number_where_it_is_moved);
	suite_add_tcase(suite, beginning);
	tcase_add_checked_fixture(ends, setup, teardown);
	tcase_add_test(ends, its_commit_is_the_next_version_and_the_one_before_is_in_the_trash);
	tcase_add_test(ends, a_reader_beside_sees_what_it_became);
	tcase_add_test(ends, an_edit_that_is_quiet_is_a_version_in_the_place_of_the_one_before);
	tcase_add_test(ends, an_edit_needs_a_second_of_quiet_and_no_more);
	tcase_add_test(ends, arrays_that_are_written_anew_need_the_longer_time_and_make_it_the_latest);
	tcase_add_loop_test(ends, the_longer_time_is_six_times_commit_quiet_or_thirty_where_an_event_is_awaited, 0,
			    ARRAY_LEN(re_saves));
	tcase_add_loop_test(ends, changes_of_a_killed_writer_or_that_are_cut_off_are_given_up_and_kept, 0,
			    ARRAY_LEN(writers));
	tcase_add_test(ends, an_orderly_end_commits_what_is_closed_and_whole);
	tcase_add_test(ends, a_writer_or_a_change_under_way_keeps_it);
	tcase_add_test(ends, what_stood_still_says_what_it_said_before);
	tcase_add_test(ends, what_stood_still_says_less_where_all_of_it_is_too_much);
	tcase_add_test(ends, what_stood_still_is_no_version_while_nobody_can_read_what_it_said_before);
	tcase_add_test(ends, a_commit_that_fails_leaves_it_reopened);
	tcase_add_test(ends, its_removal_is_the_deletion_of_the_version_of_before);
	tcase_add_test(ends, a_start_finds_the_version_of_before_and_the_changes_left_over);
	suite_add_tcase(suite, ends);
	tcase_add_checked_fixture(failures, setup, teardown);
	tcase_add_loop_test(failures, a_reopening_that_fails_has_changed_nothing, 0, 4);
	tcase_add_loop_test(failures, a_removal_that_fails_is_no_deletion, 0, 2);
	suite_add_tcase(suite, failures);
	return ckpt_suite_run(suite);
}
