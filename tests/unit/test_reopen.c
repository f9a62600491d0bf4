// Reopened steps: how they begin, what ends them, and that whatever fails on the way the version of before is there.
#include "tests/support/fixture.h"
#include "tests/support/sysfault.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/commit/delete.h"
#include "core/commit/remove.h"
#include "core/commit/reopen.h"
#include "core/commit/share.h"
#include "core/policy/temporary.h"
#include "core/store/load.h"

#include <fcntl.h>
#include <stdio.h>

#define CALLS_MAX 500
#define WAIT_MS 5000

static struct ckpt_step *base;

static void setup(void)
{
	struct ckpt_step *step;

	ckpt_fixture_open();
	step = ckpt_staged_begin(s, "1000");
	close(ckpt_staged_put(step, "model.bin", "committed"));
	close(ckpt_staged_put(step, "config.json", "{}"));
	ck_ok(ckpt_sys.mkdir(step->dirfd, "params", 0755));
	close(ckpt_staged_put(step, "params/w", "w"));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	base = step;
}

static void teardown(void)
{
	ckpt_step_unref(base);
	ckpt_fixture_close();
}

static void start_anew(void)
{
	ckpt_step_unref(TAKE_PTR(base));
	ckpt_fixture_reopen();
	base = ckpt_step_find(s, "", "1000");
}

static struct ckpt_step *reopen(void)
{
	struct ckpt_step *step;

	ck_ok(ckpt_reopen(base, &step));
	return step;
}

// As a client does that opens it with O_TRUNC.
static void write_anew(struct ckpt_step *step, const char *path, const char *text)
{
	ck_ok(ckpt_stage_enter(step, true));
	ck_ok(ckpt_sys.unlink(step->dirfd, path, 0));
	close(ckpt_staged_put(step, path, text));
	ckpt_stage_leave(step);
}

static bool wait_for(struct ckpt_step *step, enum ckpt_step_state state)
{
	for (int i = 0; i < WAIT_MS && ckpt_step_state(step) != state; i++)
		usleep(1000);
	return ckpt_step_state(step) == state;
}

// From here on it is given up when it stands still for 10 ms; before, nothing could hurry the test.
static void be_quick(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	s->settings.quiet_ns = INT64_C(10000000);
	pthread_cond_broadcast(&step->changed);
}

static void is_as_before(void)
{
	struct ckpt_step *found = ckpt_step_find(s, "", "1000");

	ck_assert_ptr_nonnull(found);
	ck_assert(!ckpt_reopen_any(found));
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_COMMITTED), 1);
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_DELETED), 0);
	ckpt_staged_check(found, "model.bin", "committed");
	ckpt_staged_check(found, "config.json", "{}");
	ckpt_staged_check(found, "params/w", "w");
	ckpt_step_unref(found);
}

// --- Beginning --------------------------------------------------------------------------------------------------------

START_TEST(a_reopened_step_is_in_no_list_and_has_the_place_of_the_committed_one)
{
	struct ckpt_step *step = reopen(), *again = reopen(), *now;

	ck_assert_ptr_eq(step, again);
	ckpt_step_unref(again);
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_COMMITTED), 0);
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_STAGED), 1);
	now = ckpt_reopen_now(ckpt_step_ref(base));
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
	ck_ok(ckpt_remove_entry(base, m, 0, "config.json", false));
	step = reopen();
	ck_assert_int_eq(faccessat(step->dirfd, "config.json", F_OK, 0), -1);
	ck_assert_int_eq(faccessat(step->dirfd, "model.bin", F_OK, 0), 0);
	ck_error(ckpt_remove_entry(base, m, 0, "model.bin", false), EAGAIN);
	ck_ok(ckpt_stage_abort(step, false));
	is_as_before();
	ck_ok(ckpt_remove_entry(base, m, 0, "model.bin", false));
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
		removed_meanwhile = ckpt_remove_entry(base, m, 0, "config.json", false);
		ckpt_manifest_unref(m);
	}
	return real_link(from_dirfd, from, to_dirfd, to);
}

START_TEST(nothing_is_removed_while_its_links_are_made)
{
	real_link = ckpt_sys.link;
	ckpt_sys.link = removing_link;
	ckpt_step_unref(reopen());
	ckpt_sys.link = real_link;
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
	uint64_t ino = base->summary.dir_ino;

	write_anew(step, "config.json", "{\"new\":1}");
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	for (int i = 0; i < 2; i++) {
		struct ckpt_step *found = ckpt_step_find(s, "", "1000");

		ck_assert_uint_eq(found->summary.version, 2);
		ck_assert_uint_eq(found->summary.dir_ino, ino);
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
	ck_ok(ckpt_load_refresh(reader));
	step = reopen();
	write_anew(step, "config.json", "{\"new\":1}");
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_ok(ckpt_load_refresh(reader));
	found = ckpt_step_find(reader, "", "1000");
	ck_assert_ptr_nonnull(found);
	ck_assert_uint_eq(found->summary.version, 2);
	ckpt_staged_check(found, "config.json", "{\"new\":1}");
	ckpt_step_unref(found);
	ckpt_store_close(reader);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(what_stands_still_is_given_up_and_kept)
{
	struct ckpt_step *step = reopen();

	write_anew(step, "config.json", "new");
	be_quick(step);
	ck_assert(wait_for(step, CKPT_STEP_LEFT));
	is_as_before();
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_LEFT), 1);
	for (int i = 0; i < 1000 && !ckpt_save_errors(s, "ETIMEDOUT"); i++)
		ckpt_sys.sleep_ns(10000000); // it is told after it is done
	ck_assert_uint_eq(ckpt_save_errors(s, "ETIMEDOUT"), 1);
	ck_error(ckpt_stage_enter(step, true), EROFS);
	ckpt_step_unref(step);
	start_anew();
	is_as_before();
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_LEFT), 1);
}
END_TEST

START_TEST(a_writer_or_a_change_under_way_keeps_it)
{
	struct ckpt_step *step = reopen();
	struct ckpt_writer w;
	CLEANUP_FD int fd = -1;

	ck_ok(ckpt_stage_enter(step, true));
	be_quick(step);
	fd = ckpt_staged_put(step, "more", "x");
	usleep(100000);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
	ckpt_staged_writer(step, &w, fd);
	ckpt_stage_leave(step);
	usleep(100000);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
	ckpt_stage_writer_remove(&w);
	ck_assert(wait_for(step, CKPT_STEP_LEFT));
	ckpt_step_unref(step);
}
END_TEST

START_TEST(what_stands_still_is_committed_where_amends_replace)
{
	struct ckpt_step *step;

	s->settings.amend = CKPT_AMEND_REPLACE;
	step = reopen();
	write_anew(step, "config.json", "new");
	be_quick(step);
	ck_assert(wait_for(step, CKPT_STEP_COMMITTED));
	ck_assert_str_eq(step->summary.event, "quiet");
	ckpt_staged_check(step, "config.json", "new");
	ck_assert_int_eq(ckpt_step_state(base), CKPT_STEP_DELETED);
	ckpt_step_unref(step);
}
END_TEST

#define SAYS "{\"metrics\":{\"loss\":1},\"temporary\":true}"

static void stand_still(const char *name, const char *metadata, bool temporary)
{
	struct ckpt_step *before = ckpt_step_find(s, "", name), *step;
	struct ckpt_record record;

	ck_ok(ckpt_reopen(before, &step));
	write_anew(step, "config.json", "new");
	be_quick(step);
	ck_assert(wait_for(step, CKPT_STEP_COMMITTED));
	ck_ok(ckpt_step_record(step, step->summary.version, &record));
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

	s->settings.amend = CKPT_AMEND_REPLACE;
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
	ck_ok(ckpt_step_record(step, step->summary.version, &record));
	ck_assert_str_eq(record.metadata, "{\"metrics\":{\"loss\":1}}");
	ck_assert(record.summary.temporary);
	ckpt_record_done(&record);
	ckpt_step_unref(step);
	ckpt_step_unref(before);
}
END_TEST

START_TEST(what_stood_still_is_no_version_while_nobody_can_read_what_it_said_before)
{
	CLEANUP_FREE void *data = NULL;
	struct ckpt_step *step;
	size_t len;

	ck_ok(ckpt_commit_metadata(base, SAYS));
	step = reopen();
	ck_ok(ckpt_backend_get_all(s->backend, "steps/1000/2", SIZE_MAX, &data, &len, NULL));
	ck_ok(ckpt_backend_remove(s->backend, "steps/1000/2", NULL));
	ck_error(ckpt_commit(step, &quiet), ENOENT);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
	ck_assert(ckpt_reopen_any(base));
	ck_ok(ckpt_backend_put(s->backend, "steps/1000/2", data, len, NULL));
	ck_ok(ckpt_commit(step, &quiet));
	ck_assert_uint_eq(step->summary.version, 3);
	ck_assert(step->summary.temporary);
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
	ck_assert(ckpt_reopen_any(base));
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_COMMITTED), 0);
	ckpt_stage_writer_remove(&w);
	close(fd);
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_assert(!ckpt_reopen_any(base));
	ckpt_staged_check(step, "more", "x");
	ckpt_step_unref(step);
}
END_TEST

START_TEST(its_removal_is_the_deletion_of_the_version_of_before)
{
	struct ckpt_step *step = reopen();

	ck_error(ckpt_reopen_remove(step), ENOTEMPTY);
	ck_assert(ckpt_reopen_any(base));
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

// --- Versions that expire in any order --------------------------------------------------------------------------------

static struct ckpt_step *next_version(const char *text)
{
	struct ckpt_step *step = base ? reopen() : ckpt_staged_begin(s, "1000");

	if (base)
		write_anew(step, "config.json", text);
	else
		close(ckpt_staged_put(step, "config.json", text));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	return step;
}

START_TEST(of_versions_that_expire_in_any_order_none_comes_back)
{
	static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
	char sessions[3][37];

	for (int n = 0; n < 3; n++) {
		if (n) {
			struct ckpt_step *step = next_version("next");

			ckpt_step_unref(base);
			base = step;
		}
		snprintf(sessions[n], sizeof(sessions[n]), "%s", base->session);
	}
	ck_ok(ckpt_delete(base));
	for (size_t n = 0; n < 3; n++) {
		struct ckpt_step *step;

		if (_i % 2)
			start_anew();
		step = ckpt_step_of_session(s, sessions[orders[_i / 2][n]]);
		ck_assert_ptr_nonnull(step);
		ck_ok(ckpt_expire(step));
		ckpt_step_unref(step);
		ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_DELETED), 2 - n);
		ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_COMMITTED), 0);
	}
	start_anew();
	ck_assert_ptr_null(base);
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_DELETED), 0);
}
END_TEST

// The older one has the deletion of the newer one, comes back and goes: no number of a version is in the way of the next.
START_TEST(no_version_that_is_left_is_in_the_way_of_the_next)
{
	struct ckpt_step *newer = next_version("newer");

	ck_ok(ckpt_delete(newer));
	ck_ok(ckpt_expire(newer));
	ckpt_step_unref(newer);
	ck_ok(ckpt_undelete(base));
	ck_ok(ckpt_delete(base));
	ck_ok(ckpt_expire(base));
	ckpt_step_unref(TAKE_PTR(base));
	if (_i)
		start_anew();
	for (int n = 0; n < 8; n++) {
		struct ckpt_step *step = next_version("again");

		ckpt_step_unref(base);
		base = step;
	}
	start_anew();
	ckpt_staged_check(base, "config.json", "again");
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_DELETED), 7);
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
		if (rc && ckpt_reopen_any(base)) {
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
	tcase_add_test(ends, what_stands_still_is_given_up_and_kept);
	tcase_add_test(ends, a_writer_or_a_change_under_way_keeps_it);
	tcase_add_test(ends, what_stands_still_is_committed_where_amends_replace);
	tcase_add_test(ends, what_stood_still_says_what_it_said_before);
	tcase_add_test(ends, what_stood_still_says_less_where_all_of_it_is_too_much);
	tcase_add_test(ends, what_stood_still_is_no_version_while_nobody_can_read_what_it_said_before);
	tcase_add_test(ends, a_commit_that_fails_leaves_it_reopened);
	tcase_add_test(ends, its_removal_is_the_deletion_of_the_version_of_before);
	tcase_add_test(ends, a_start_finds_the_version_of_before_and_the_changes_left_over);
	tcase_add_loop_test(ends, of_versions_that_expire_in_any_order_none_comes_back, 0, 12);
	tcase_add_loop_test(ends, no_version_that_is_left_is_in_the_way_of_the_next, 0, 2);
	suite_add_tcase(suite, ends);
	tcase_add_checked_fixture(failures, setup, teardown);
	tcase_add_loop_test(failures, a_reopening_that_fails_has_changed_nothing, 0, 4);
	tcase_add_loop_test(failures, a_removal_that_fails_is_no_deletion, 0, 2);
	suite_add_tcase(suite, failures);
	return ckpt_suite_run(suite);
}
