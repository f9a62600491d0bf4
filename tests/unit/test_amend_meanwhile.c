// Files that are being added to a committed step, and what becomes of step and files meanwhile: other names, a step that is
// reopened, removed or deleted, answers that are lost, and disks that fail.
#include "core/index/indexer.h"
#include "core/save/reopen.h"
#include "core/save/stage.h"
#include "core/step/amending.h"
#include "tests/support/fixture.h"
#include "tests/support/hooks.h"

#include "backends/backends.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/record/manifest.h"
#include "core/save/amend.h"
#include "core/save/delete.h"
#include "core/save/pin.h"
#include "core/save/remove.h"
#include "core/save/restore.h"
#include "core/step/reopened.h"
#include "core/step/trash.h"

#include <fcntl.h>
#include <stdio.h>

static struct ckpt_step *base;
static struct ckpt_fault fault;

static void setup(void)
{
	ckpt_fixture_open();
	base = ckpt_staged_begin(s, "1000");
	close(ckpt_staged_put(base, "model.bin", "committed"));
	ck_ok(ckpt_sys.mkdir(base->dirfd, "sub", 0755));
	close(ckpt_staged_put(base, "sub/w", "w"));
	ck_ok(ckpt_commit(base, &ckpt_staged_plain));
	fault = (struct ckpt_fault){0};
	ckpt_save_fault(s, &fault);
}

static void teardown(void)
{
	ckpt_step_unref(base);
	ckpt_fixture_close();
}

static int session_fd(void)
{
	int fd = ckpt_sys.open(s->sessions_fd, base->session, O_RDONLY | O_DIRECTORY, 0);

	ck_ok(fd);
	return fd;
}

static void put_at(const char *path, const char *text)
{
	CLEANUP_FD int dirfd = session_fd();
	int fd = ckpt_sys.open(dirfd, path, O_RDWR | O_CREAT | O_EXCL, 0644);

	ck_ok(fd);
	ck_ok(ckpt_sys.pwrite(fd, text, strlen(text), 0));
	close(fd);
}

static void begin_file(const char *path, const char *text)
{
	put_at(path, text);
	ck_ok(ckpt_amending_begin(base, path, NULL));
}

static bool stands(int dirfd, const char *path)
{
	return !faccessat(dirfd, path, F_OK, AT_SYMLINK_NOFOLLOW);
}

static uint32_t version(void)
{
	LOCK_SCOPE(&base->lock);

	return base->version->is.version;
}

// --- Names of pending files -------------------------------------------------------------------------------------------

START_TEST(a_pending_file_is_known_by_its_name_until_it_is_forgotten)
{
	ck_assert(!ckpt_amending_is_pending(base, "one"));
	begin_file("one", "1");
	begin_file("sub/two", "2");
	ck_assert(ckpt_amending_is_pending(base, "one") && ckpt_amending_is_pending(base, "sub/two"));
	ck_assert(!ckpt_amending_is_pending(base, "two"));
	ck_assert(ckpt_amending_any_below(base, "sub"));
	ck_assert(!ckpt_amending_any_below(base, "su"));
	ck_assert(!ckpt_amending_any_below(base, "one"));
	ck_assert(!ckpt_amending_any_below(base, "sub/two"));
	ckpt_amending_forget(base, "two"); // nobody's
	ckpt_amending_forget(base, "one");
	ck_assert(!ckpt_amending_is_pending(base, "one") && ckpt_amending_is_pending(base, "sub/two"));
	ckpt_amending_forget(base, "sub/two");
	ck_assert(!ckpt_amending_any_below(base, "sub"));
}
END_TEST

static int rename_result;
static unsigned renames;

static int rename_it(void *arg __attribute__((unused)))
{
	renames++;
	return rename_result;
}

START_TEST(a_pending_file_that_is_renamed_is_added_under_its_new_name)
{
	begin_file("one", "1");
	rename_result = -EIO;
	ck_error(ckpt_amending_rename(base, "one", "other", rename_it, NULL), EIO);
	ck_assert(ckpt_amending_is_pending(base, "one") && !ckpt_amending_is_pending(base, "other"));
	rename_result = 0;
	ck_ok(ckpt_amending_rename(base, "one", "other", rename_it, NULL));
	ck_assert(!ckpt_amending_is_pending(base, "one") && ckpt_amending_is_pending(base, "other"));
	ck_error(ckpt_amending_rename(base, "one", "third", rename_it, NULL), EAGAIN);
	ck_assert_uint_eq(renames, 2);
	ck_ok(ckpt_amend_add(base, "other"));
	ckpt_amending_forget(base, "other");
	ckpt_staged_check(base, "other", "1");
}
END_TEST

START_TEST(nothing_is_added_to_a_step_that_is_not_committed_or_reopened)
{
	struct ckpt_step *staged = ckpt_staged_begin(s, "2000"), *changed;
	CLEANUP_FD int dirfd = session_fd();

	ck_error(ckpt_amending_begin(staged, "late", NULL), EAGAIN);
	ckpt_step_unref(staged);
	begin_file("one", "1");
	ck_ok(ckpt_reopen(base, &changed));
	ck_error(ckpt_amending_begin(base, "late", NULL), EAGAIN);
	ck_error(ckpt_amending_rename(base, "one", "other", rename_it, &dirfd), EAGAIN); // it is the other's now
	ck_error(ckpt_amend_add(base, "one"), EBUSY);
	ck_error(ckpt_amend_remove(base, "model.bin"), EBUSY);
	ck_assert_uint_eq(version(), 1);
	ckpt_step_unref(changed);
}
END_TEST

// --- A step that is reopened ------------------------------------------------------------------------------------------

static int (*real_link)(int from_dirfd, const char *from, int to_dirfd, const char *to);
static const char *fails_for;
static int begun_meanwhile;

static int failing_link(int from_dirfd, const char *from, int to_dirfd, const char *to)
{
	begun_meanwhile = ckpt_amending_begin(base, "meanwhile", NULL);
	return fails_for && !strcmp(to, fails_for) ? -ENOSPC : real_link(from_dirfd, from, to_dirfd, to);
}

START_TEST(pending_files_go_along_into_the_reopened_step_or_stay_where_they_were)
{
	struct ckpt_step *changed;
	CLEANUP_FD int dirfd = session_fd();

	begin_file("one", "1");
	begin_file("two", "2");
	real_link = ckpt_hooks.link;
	ckpt_hook_set(link, failing_link);
	fails_for = _i ? "one" : "two";
	ck_error(ckpt_reopen(base, &changed), ENOSPC);
	ck_error(begun_meanwhile, EAGAIN);
	ck_assert(ckpt_amending_is_pending(base, "one") && ckpt_amending_is_pending(base, "two"));
	ck_assert(stands(dirfd, "one") && stands(dirfd, "two"));
	fails_for = NULL;
	ck_ok(ckpt_reopen(base, &changed));
	ckpt_hook_set(link, real_link);
	ck_assert(!ckpt_amending_is_pending(base, "one") && !ckpt_amending_is_pending(base, "two"));
	ck_assert(!stands(dirfd, "one") && !stands(dirfd, "two"));
	ck_ok(ckpt_commit(changed, &ckpt_staged_plain));
	ckpt_staged_check(changed, "one", "1");
	ckpt_staged_check(changed, "two", "2");
	ckpt_staged_check(changed, "model.bin", "committed");
	ckpt_step_unref(changed);
}
END_TEST

// --- Places -----------------------------------------------------------------------------------------------------------

static void read_raw(uint32_t at, const char *path, const char *text)
{
	struct ckpt_manifest *m;
	char have[32] = "";
	uint32_t index;
	int fd;

	ck_assert_uint_eq(version(), at);
	ck_ok(ckpt_step_manifest(base, &m));
	ck_ok(ckpt_manifest_lookup(m, path, &index));
	ck_ok(ckpt_step_open_raw(base, m, index, &fd));
	ck_assert_int_eq(pread(fd, have, sizeof(have) - 1, 0), (ssize_t)strlen(text));
	ck_assert_str_eq(have, text);
	close(fd);
	ckpt_manifest_unref(m);
}

// An older version keeps its raw file under the path: what is added there stands elsewhere.
START_TEST(a_file_under_the_path_of_a_removed_one_takes_nothing_from_the_version_before)
{
	char raw[CKPT_AMENDING_RAW_MAX];

	ck_ok(ckpt_amend_remove(base, "model.bin"));
	ck_ok(ckpt_amending_check_free(base, "model.bin"));
	ck_ok(ckpt_amending_raw_name(raw));
	put_at(raw, "new");
	ck_ok(ckpt_amending_begin(base, "model.bin", raw));
	ck_error(ckpt_amending_check_free(base, "model.bin"), EEXIST);
	ck_ok(ckpt_amend_add(base, "model.bin"));
	ckpt_amending_forget(base, "model.bin");
	ck_error(ckpt_amending_check_free(base, "model.bin"), EEXIST);
	read_raw(3, "model.bin", "new");
	ck_ok(ckpt_restore_files(base, 1));
	read_raw(4, "model.bin", "committed");
	ck_ok(ckpt_restore_files(base, 3));
	read_raw(5, "model.bin", "new");
}
END_TEST

// What the version has can be an object of its own, which is read at need.
static struct ckpt_step *without_manifest(void)
{
	struct ckpt_step *large = ckpt_save_one(s, CKPT_SAVE_LARGE), *found;
	char folder_id[sizeof(large->folder_id)], name[sizeof(large->name)];

	memcpy(folder_id, large->folder_id, sizeof(folder_id));
	memcpy(name, large->name, sizeof(name));
	ckpt_step_unref(large);
	ckpt_step_unref(TAKE_PTR(base));
	ckpt_fixture_reopen();
	fault = (struct ckpt_fault){0};
	ckpt_save_fault(s, &fault);
	found = ckpt_step_find(s, folder_id, name);
	ck_assert_ptr_nonnull(found);
	return found;
}

START_TEST(where_the_version_cannot_be_read_nothing_is_added_or_taken)
{
	struct ckpt_index *index;

	base = without_manifest();
	CLEANUP_FD int dirfd = session_fd();
	put_at("stray", "left by a crash");
	index = TAKE_PTR(s->index); // else it has the manifest
	fault = (struct ckpt_fault){.at = 1, .error = -EACCES, .sticky = true};
	ck_error(ckpt_amending_check_free(base, "stray"), EACCES);
	ck_error(ckpt_amend_add(base, "stray"), EACCES);
	ck_error(ckpt_amend_remove(base, "model.bin"), EACCES);
	ck_error(ckpt_remove_whole(base), EACCES);
	ck_assert(!ckpt_amending_has_raw(base, "model.bin", ".again-1"));
	ck_assert(stands(dirfd, "stray") && stands(dirfd, "model.bin"));
	fault.at = 0;
	s->index = index;
	ck_assert_uint_eq(version(), 1);
	ckpt_save_check_files(base, CKPT_SAVE_LARGE);
	ck_ok(ckpt_amending_check_free(base, "stray"));
}
END_TEST

// --- Other bytes ------------------------------------------------------------------------------------------------------

START_TEST(a_file_that_was_written_again_says_with_which_bytes)
{
	uint32_t before;

	ck_assert(!ckpt_amending_has_raw(base, "model.bin", ".again-1"));
	ck_assert(!ckpt_amending_has_raw(base, "nothing", ".again-1"));
	put_at(".again-1", "later");
	ck_ok(ckpt_amend_replace(base, "model.bin", ".again-1"));
	ck_assert(ckpt_amending_has_raw(base, "model.bin", ".again-1"));
	ck_assert(!ckpt_amending_has_raw(base, "model.bin", ".again-2"));
	ckpt_staged_check(base, "model.bin", "later");
	before = version();
	ck_ok(ckpt_amend_replace(base, "model.bin", ".again-1")); // it has them
	ck_assert_uint_eq(version(), before);
	put_at(".again-2", "latest");
	ck_ok(ckpt_amend_replace(base, "model.bin", ".again-2"));
	ck_assert_uint_eq(version(), before + 1);
	ckpt_staged_check(base, "model.bin", "latest");
	ck_error(ckpt_amend_replace(base, "sub", ".again-2"), EEXIST);
}
END_TEST

// The write may have been lost for the file in the step, or for the one that has its new bytes.
START_TEST(bytes_that_a_sync_has_lost_do_not_replace_those_that_are_there)
{
	struct statx stx;
	CLEANUP_FD int dirfd = session_fd();

	put_at(".again-1", "later");
	ck_assert_int_eq(statx(dirfd, _i ? ".again-1" : "model.bin", 0, CKPT_STATX_WANT, &stx), 0);
	ckpt_stage_synced(base, ckpt_store_ino(&stx), 0, 0, -EIO);
	ck_error(ckpt_amend_replace(base, "model.bin", ".again-1"), EIO);
	ckpt_staged_check(base, "model.bin", "committed");
	ck_assert_uint_eq(version(), 1);
	ckpt_stage_rewritten(base, ckpt_store_ino(&stx));
	ck_ok(ckpt_amend_replace(base, "model.bin", ".again-1"));
	ckpt_staged_check(base, "model.bin", "later");
}
END_TEST

// --- Removal and deletion ---------------------------------------------------------------------------------------------

START_TEST(a_step_that_is_being_removed_gets_nothing_and_loses_nothing_else)
{
	put_at("late", "late");
	ck_ok(ckpt_staged_remove(base, "model.bin"));
	ck_error(ckpt_amend_add(base, "late"), EBUSY);
	ck_error(ckpt_amend_remove(base, "sub"), EBUSY);
	ck_assert_uint_eq(version(), 1);
	ck_assert_uint_eq(ckpt_save_errors(s, "late could not be added to the step"), 1);
}
END_TEST

START_TEST(a_pinned_step_gets_files_and_loses_none)
{
	put_at("late", "late");
	ck_ok(ckpt_pin(base, true));
	ck_error(ckpt_amend_remove(base, "model.bin"), EPERM);
	ck_ok(ckpt_amend_add(base, "late"));
	ckpt_staged_check(base, "model.bin", "committed");
	ckpt_staged_check(base, "late", "late");
}
END_TEST

// --- Answers that are lost --------------------------------------------------------------------------------------------

static void lose_answers(bool done)
{
	fault = (struct ckpt_fault){.at = 2, .error = -EIO, .half = done, .sticky = true};
}

START_TEST(an_addition_without_an_answer_is_asked_for_before_all_else)
{
	struct ckpt_step *changed;

	begin_file("late", "late");
	begin_file("other", "other");
	lose_answers(true);
	ck_error(ckpt_amend_add(base, "late"), EIO);
	ck_error(ckpt_amending_check_free(base, "free"), EIO);
	ck_error(ckpt_amending_settle(base), EIO);
	ck_error(ckpt_amend_remove(base, "model.bin"), EIO);
	ck_error(ckpt_reopen(base, &changed), EIO);
	ck_assert(ckpt_amending_is_pending(base, "late"));
	fault.at = 0;
	ck_ok(ckpt_amending_settle(base));
	ck_assert(!ckpt_amending_is_pending(base, "late") && ckpt_amending_is_pending(base, "other"));
	ckpt_staged_check(base, "late", "late");
}
END_TEST

START_TEST(a_second_attempt_finds_what_the_first_did_without_an_answer)
{
	begin_file("late", "late");
	lose_answers(true);
	ck_error(ckpt_amend_add(base, "late"), EIO);
	fault.at = 0;
	if (_i) { // by somebody else
		CLEANUP_FD int dirfd = session_fd();

		ck_ok(ckpt_sys.unlink(dirfd, "late", 0));
		if (_i == 1)
			put_at("late", "another");
		ck_error(ckpt_amend_add(base, "late"), EEXIST);
	} else {
		ck_ok(ckpt_amend_add(base, "late"));
		ckpt_staged_check(base, "late", "late");
	}
	ck_assert_uint_eq(version(), 2);
	lose_answers(true);
	ck_error(ckpt_amend_remove(base, "sub"), EIO);
	fault.at = 0;
	ck_ok(ckpt_amend_remove(base, "sub"));
	ck_error(ckpt_amend_remove(base, "sub"), ENOENT);
	ck_assert_uint_eq(version(), 3);
}
END_TEST

// Of a large step, whose manifest is an object: it is there after the first attempt, under the name that its bytes have.
START_TEST(what_a_failed_addition_has_put_is_taken_by_the_next)
{
	unsigned failed = 0;
	int rc = -ENOSPC;

	base = without_manifest();
	put_at("late", "late");
	for (uint64_t n = 1; rc; n++) {
		ck_assert_uint_lt(n, 20);
		fault = (struct ckpt_fault){.at = n, .error = -ENOSPC};
		rc = ckpt_amend_add(base, "late");
		ck_assert(!rc || rc == -ENOSPC);
		failed += rc != 0;
	}
	fault.at = 0;
	ck_assert_uint_ge(failed, 2); // the manifest, the record
	ck_assert_uint_eq(version(), 2);
	ckpt_staged_check(base, "late", "late");
}
END_TEST

// What is not known is asked for until each part of the answer is there.
START_TEST(an_answer_that_cannot_be_read_is_not_an_answer)
{
	struct ckpt_index *index;
	unsigned failed = 0;
	int rc = -EACCES;

	base = without_manifest();
	begin_file("late", "late");
	index = TAKE_PTR(s->index);                       // else it has the manifest
	while (ckpt_journal_settle(s->journal) != -EIO) { // at first it is the manifest's put that is lost
		fault = (struct ckpt_fault){.at = 3, .error = -EIO, .half = true, .sticky = true};
		ck_error(ckpt_amend_add(base, "late"), EIO);
	}
	for (uint64_t n = 1; rc; n++) {
		fault = (struct ckpt_fault){.at = n, .error = -EACCES};
		rc = ckpt_amending_settle(base);
		ck_assert(!rc || rc == -EACCES);
		ck_assert_int_eq(ckpt_amending_is_pending(base, "late"), rc != 0);
		failed += rc != 0;
	}
	fault.at = 0;
	s->index = index;
	ck_assert_uint_ge(failed, 2);
	ckpt_staged_check(base, "late", "late");
}
END_TEST

START_TEST(a_deletion_settles_what_is_not_known)
{
	begin_file("late", "late");
	begin_file("other", "other");
	lose_answers(true);
	ck_error(ckpt_amend_add(base, "late"), EIO);
	fault.at = 0;
	ck_ok(ckpt_delete(base));
	ck_ok(ckpt_amending_settle(base));
	ck_assert(!ckpt_amending_is_pending(base, "late") && ckpt_amending_is_pending(base, "other"));
	ck_ok(ckpt_undelete(base));
	ckpt_staged_check(base, "late", "late");
}
END_TEST

// It was asked for, and was not there yet: who puts the next version finds it, and changes what it says.
START_TEST(a_version_that_arrives_late_is_not_lost_to_the_next)
{
	put_at("late", "late");
	put_at("other", "other");
	lose_answers(true);
	ck_error(ckpt_amend_add(base, "late"), EIO);
	fault.at = 0;
	__atomic_store_n(&ckpt_amending_of(base)->amend_unknown, false, __ATOMIC_RELAXED);
	ck_ok(ckpt_amend_add(base, "other"));
	ck_assert_uint_eq(version(), 3);
	ckpt_staged_check(base, "late", "late");
	ckpt_staged_check(base, "other", "other");
}
END_TEST

START_TEST(a_step_is_amended_without_an_index_too)
{
	struct ckpt_indexer *indexer;

	ckpt_save_settle(s); // the commit that made the step hands its manifest over
	indexer = TAKE_PTR(*ckpt_indexer_of(s));
	put_at("late", "late");
	ck_ok(ckpt_amend_add(base, "late"));
	ck_error(ckpt_amend_remove(base, "late/below"), ENOTDIR);
	ck_ok(ckpt_amend_remove(base, "model.bin"));
	*ckpt_indexer_of(s) = indexer;
	ck_assert_uint_eq(version(), 3);
	ckpt_staged_check(base, "late", "late");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("amend meanwhile");
	TCase *names = tcase_create("names"), *places = tcase_create("places"), *answers = tcase_create("answers");

	tcase_add_checked_fixture(names, setup, teardown);
	tcase_add_test(names, a_pending_file_is_known_by_its_name_until_it_is_forgotten);
	tcase_add_test(names, a_pending_file_that_is_renamed_is_added_under_its_new_name);
	tcase_add_test(names, nothing_is_added_to_a_step_that_is_not_committed_or_reopened);
	tcase_add_loop_test(names, pending_files_go_along_into_the_reopened_step_or_stay_where_they_were, 0, 2);
	suite_add_tcase(suite, names);
	tcase_add_checked_fixture(places, setup, teardown);
	tcase_add_test(places, a_file_under_the_path_of_a_removed_one_takes_nothing_from_the_version_before);
	tcase_add_test(places, where_the_version_cannot_be_read_nothing_is_added_or_taken);
	tcase_add_test(places, a_file_that_was_written_again_says_with_which_bytes);
	tcase_add_loop_test(places, bytes_that_a_sync_has_lost_do_not_replace_those_that_are_there, 0, 2);
	tcase_add_test(places, a_step_that_is_being_removed_gets_nothing_and_loses_nothing_else);
	tcase_add_test(places, a_pinned_step_gets_files_and_loses_none);
	suite_add_tcase(suite, places);
	tcase_add_checked_fixture(answers, setup, teardown);
	tcase_add_test(answers, an_addition_without_an_answer_is_asked_for_before_all_else);
	tcase_add_loop_test(answers, a_second_attempt_finds_what_the_first_did_without_an_answer, 0, 3);
	tcase_add_test(answers, what_a_failed_addition_has_put_is_taken_by_the_next);
	tcase_add_test(answers, an_answer_that_cannot_be_read_is_not_an_answer);
	tcase_add_test(answers, a_deletion_settles_what_is_not_known);
	tcase_add_test(answers, a_version_that_arrives_late_is_not_lost_to_the_next);
	tcase_add_test(answers, a_step_is_amended_without_an_index_too);
	suite_add_tcase(suite, answers);
	return ckpt_suite_run(suite);
}
