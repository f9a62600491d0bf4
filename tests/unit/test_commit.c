// The rules of a commit among threads: the gate, writers, who joins whom, names. Files that a leftover holds are in
// test_commit_leftovers.c, what fails and what dies in tests/crash.
#include "core/save/stage.h"
#include "core/save/version.h"
#include "tests/support/fixture.h"
#include "tests/support/hooks.h"

#include "backends/backends.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#include <stdio.h>

#define MS INT64_C(1000000)

static char *metadata_of(struct ckpt_step *step)
{
	struct ckpt_record r;
	char *metadata;

	ck_ok(ckpt_step_record(step, step->version->is.version, &r));
	metadata = TAKE_PTR(r.metadata);
	ckpt_record_done(&r);
	return metadata;
}

// --- Threads that run beside ------------------------------------------------------------------------------------------------

struct side {
	pthread_t thread;
	struct ckpt_step *step, *into;
	struct ckpt_writer *writer;
	struct ckpt_commit how;
	int64_t delay_ns;
	int result;
	int done; // atomic
};

static void *side_commit(void *arg)
{
	struct side *side = arg;

	side->result = ckpt_commit(side->step, &side->how);
	__atomic_store_n(&side->done, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void *side_leave(void *arg)
{
	struct side *side = arg;

	ckpt_sys.sleep_ns(side->delay_ns);
	__atomic_store_n(&side->done, 1, __ATOMIC_RELEASE);
	if (side->writer) {
		close(TAKE_FD(side->writer->fd));
		ckpt_stage_writer_remove(side->writer);
	} else {
		ckpt_stage_leave(side->step);
	}
	return NULL;
}

static void *side_enter(void *arg)
{
	struct side *side = arg;

	side->result = ckpt_stage_enter(side->step, true);
	return NULL;
}

static void start(struct side *side, void *(*fn)(void *arg))
{
	if (!side->how.event)
		side->how = ckpt_staged_plain;
	ck_assert_int_eq(pthread_create(&side->thread, NULL, fn, side), 0);
}

static void wait_until_committing(struct ckpt_step *step)
{
	while (ckpt_step_state(step) == CKPT_STEP_STAGED)
		ckpt_sys.sleep_ns(MS / 10);
}

// --- The gate -----------------------------------------------------------------------------------------------------------

START_TEST(a_commit_waits_for_the_changes_that_have_begun)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1");
	struct side leaver = {.step = step, .delay_ns = 50 * MS};

	ck_ok(ckpt_stage_enter(step, false));
	start(&leaver, side_leave);
	ck_ok(ckpt_staged_commit(step, 0, NULL));
	ck_assert(__atomic_load_n(&leaver.done, __ATOMIC_ACQUIRE));
	pthread_join(leaver.thread, NULL);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(no_change_begins_while_a_commit_runs)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1");
	struct side committer = {.step = step}, late = {.step = step};

	ck_ok(ckpt_stage_enter(step, false)); // holds the commit at its start
	start(&committer, side_commit);
	wait_until_committing(step);
	ck_error(ckpt_stage_enter(step, false), EAGAIN);
	ck_error(ckpt_stage_rename(step, "", "2"), EBUSY);
	ck_error(ckpt_stage_abort(step, false), EBUSY);
	ck_error(ckpt_stage_remove(step), EBUSY);
	ck_error(ckpt_stage_graft(step, step, step->dirfd, "x"), EBUSY);
	start(&late, side_enter);
	ckpt_sys.sleep_ns(20 * MS);
	ckpt_stage_leave(step);
	pthread_join(committer.thread, NULL);
	pthread_join(late.thread, NULL);
	ck_assert_int_eq(committer.result, 0);
	ck_assert_int_eq(late.result, -EROFS);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(a_change_goes_on_after_a_commit_that_failed)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1");
	struct ckpt_writer w;
	struct side committer = {.step = step, .how = ckpt_staged_plain}, late = {.step = step};
	int fd = ckpt_staged_put(step, "file", "text");

	ckpt_staged_writer(step, &w, fd);
	committer.how.writers_ns = 100 * MS;
	start(&committer, side_commit);
	wait_until_committing(step);
	start(&late, side_enter);
	pthread_join(late.thread, NULL);
	pthread_join(committer.thread, NULL);
	ck_assert_int_eq(committer.result, -EBUSY);
	ck_assert_int_eq(late.result, 0);
	ckpt_stage_leave(step);
	ckpt_stage_writer_remove(&w);
	close(fd);
	ck_ok(ckpt_staged_commit(step, 0, NULL));
	ckpt_step_unref(step);
}
END_TEST

// Whoever holds the gate may remove the step: the commit that waits for him must not name files that are gone.
START_TEST(a_commit_that_comes_too_late_for_its_step_says_so)
{
	unsigned late = 0;

	for (int round = 0; round < 200; round++) {
		char name[16], other[16];
		snprintf(name, sizeof(name), "%d", round);
		snprintf(other, sizeof(other), "into %d", round);
		struct ckpt_step *into = ckpt_staged_begin(s, other), *step = ckpt_staged_begin(s, name), *found;
		struct side committer = {.step = step};
		int rc;

		close(ckpt_staged_put(step, "file", "text"));
		start(&committer, side_commit);
		if (round % 2)
			sched_yield();
		rc = round % 4 < 2 ? ckpt_stage_abort(step, false) : ckpt_stage_graft(step, into, into->dirfd, "item");
		pthread_join(committer.thread, NULL);
		ckpt_save_settle(s);
		found = ckpt_step_find(s, "", name);
		if (rc) {
			ck_assert(rc == -EBUSY || rc == -EROFS);
			ck_assert_int_eq(committer.result, 0);
			ckpt_staged_check(found, "file", "text");
		} else {
			ck_assert_int_eq(committer.result, -ESTALE);
			late++;
			ck_assert_ptr_null(found);
			ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_GONE);
		}
		ckpt_step_unref(found);
		ckpt_step_unref(step);
		ckpt_step_unref(into);
	}
	ck_assert_uint_eq(ckpt_save_errors(s, "moved into another step"), late);
}
END_TEST

// --- Writers --------------------------------------------------------------------------------------------------------------

START_TEST(an_open_writer_is_waited_for_and_then_blamed)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1");
	struct ckpt_writer w;
	int fd = ckpt_staged_put(step, "model.bin", "text");
	int64_t began = ckpt_sys.mono_ns();

	ckpt_staged_writer(step, &w, fd);
	ck_error(ckpt_staged_commit(step, 50 * MS, NULL), EBUSY);
	ck_assert_int_ge(ckpt_sys.mono_ns() - began, 50 * MS);
	ck_assert_uint_eq(ckpt_save_errors(s, "model.bin"), 1);
	ck_assert_uint_eq(ckpt_save_errors(s, "4711"), 1);
	ckpt_stage_writer_remove(&w);
	close(fd);
	ck_ok(ckpt_staged_commit(step, 0, NULL));
	ckpt_step_unref(step);
}
END_TEST

START_TEST(a_writer_that_ends_within_the_time_delays_the_commit_only)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1");
	struct ckpt_writer w;
	struct side closer = {.writer = &w, .delay_ns = 50 * MS};
	int64_t began = ckpt_sys.mono_ns();

	ckpt_staged_writer(step, &w, ckpt_staged_put(step, "file", "text"));
	start(&closer, side_leave);
	ck_ok(ckpt_staged_commit(step, 10000 * MS, NULL));
	ck_assert_int_lt(ckpt_sys.mono_ns() - began, 5000 * MS);
	pthread_join(closer.thread, NULL);
	ckpt_staged_check(step, "file", "text");
	ckpt_step_unref(step);
}
END_TEST

static bool makes_progress(struct ckpt_step *step)
{
	int64_t until_ns = ckpt_sys.mono_ns() + 20000 * MS,
		first = __atomic_load_n(&ckpt_staging_of(step)->progress_ns, __ATOMIC_RELAXED);

	while (__atomic_load_n(&ckpt_staging_of(step)->progress_ns, __ATOMIC_RELAXED) == first &&
	       ckpt_sys.mono_ns() < until_ns)
		ckpt_sys.sleep_ns(MS);
	return __atomic_load_n(&ckpt_staging_of(step)->progress_ns, __ATOMIC_RELAXED) != first;
}

// Else commit_timeout would end what open_writers allows.
START_TEST(a_commit_that_waits_for_a_writer_makes_progress)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1");
	struct side committer = {.step = step, .how = ckpt_staged_plain};
	struct ckpt_writer w;

	ckpt_staged_writer(step, &w, ckpt_staged_put(step, "file", "text"));
	committer.how.writers_ns = 60000 * MS;
	start(&committer, side_commit);
	wait_until_committing(step);
	ck_assert(makes_progress(step));
	close(TAKE_FD(w.fd));
	ckpt_stage_writer_remove(&w);
	pthread_join(committer.thread, NULL);
	ck_ok(committer.result);
	ckpt_step_unref(step);
}
END_TEST

// --- Who asks, and who joins ------------------------------------------------------------------------------------------------

START_TEST(threads_that_commit_one_step_get_one_answer)
{
	for (int round = 0; round < 50; round++) {
		char name[16];
		snprintf(name, sizeof(name), "%d", round);
		struct ckpt_step *step = ckpt_staged_begin(s, name);
		struct side sides[4] = {{.step = step}, {.step = step}, {.step = step}, {.step = step}};

		close(ckpt_staged_put(step, "file", "text"));
		for (size_t i = 0; i < ARRAY_LEN(sides); i++)
			start(&sides[i], side_commit);
		for (size_t i = 0; i < ARRAY_LEN(sides); i++) {
			pthread_join(sides[i].thread, NULL);
			ck_assert_int_eq(sides[i].result, 0);
		}
		ck_assert_uint_eq(step->version->is.version, 1);
		ckpt_step_unref(step);
	}
}
END_TEST

static bool at_once(void *arg)
{
	(void)arg;
	return true;
}

START_TEST(an_abandoned_commit_goes_on_and_can_be_joined)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1");
	struct ckpt_commit how = ckpt_staged_plain;

	how.abandoned = at_once;
	close(ckpt_staged_put(step, "file", "text"));
	ck_ok(ckpt_stage_enter(step, false)); // it cannot be over before it is abandoned
	ck_error(ckpt_commit(step, &how), EINTR);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_COMMITTING);
	ckpt_stage_leave(step);
	ck_ok(ckpt_staged_commit(step, 0, NULL));
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_COMMITTED);
	ckpt_staged_check(step, "file", "text");
	ckpt_step_unref(step);
}
END_TEST

static int (*real_fdatasync)(int fd);
static int hangs; // atomic

static int hanging_fdatasync(int fd)
{
	while (__atomic_load_n(&hangs, __ATOMIC_ACQUIRE))
		ckpt_sys.sleep_ns(MS);
	return real_fdatasync(fd);
}

START_TEST(a_commit_that_stands_still_is_not_waited_for_but_goes_on)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1");

	close(ckpt_staged_put(step, "file", "text"));
	real_fdatasync = ckpt_hooks.fdatasync;
	ckpt_hook_set(fdatasync, hanging_fdatasync);
	hangs = 1;
	s->settings.commit_timeout_ns = 100 * MS;
	ck_error(ckpt_commit(step, &ckpt_staged_plain), EIO);
	ck_assert_uint_eq(ckpt_save_errors(s, "no progress within commit_timeout"), 1);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_COMMITTING);
	__atomic_store_n(&hangs, 0, __ATOMIC_RELEASE);
	s->settings.commit_timeout_ns = 60000 * MS;
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ckpt_save_settle(s);
	ckpt_hook_set(fdatasync, real_fdatasync);
	ckpt_step_unref(step);
}
END_TEST

static struct ckpt_step *told_of;
static unsigned told;

// Both locks are held, so that it is listed under its name, or it is not.
static void count_committed(void *arg, struct ckpt_step *step)
{
	ck_assert_ptr_eq(arg, &told);
	ck_assert_int_eq(step->state, CKPT_STEP_COMMITTED);
	ck_assert_str_eq(step->name, step->version->is.name);
	told_of = step;
	told++;
}

START_TEST(a_mount_hears_of_each_step_that_was_committed_and_of_no_other)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1"), *other = ckpt_staged_begin(s, "2");
	struct ckpt_writer w;
	int fd = ckpt_staged_put(step, "open", "x");

	s->calls.committed = count_committed;
	s->calls.committed_arg = &told;
	ckpt_staged_writer(step, &w, fd);
	ck_error(ckpt_staged_commit(step, 0, NULL), EBUSY);
	ck_assert_uint_eq(told, 0);
	ckpt_stage_writer_remove(&w);
	close(fd);
	ck_ok(ckpt_staged_commit(step, 0, NULL));
	ck_assert_ptr_eq(told_of, step);
	ck_ok(ckpt_staged_commit(step, 0, NULL)); // it was
	ck_assert_uint_eq(told, 1);
	ck_ok(ckpt_staged_commit(other, 0, NULL));
	ck_assert_ptr_eq(told_of, other);
	ck_assert_uint_eq(told, 2);
	ckpt_step_unref(step);
	ckpt_step_unref(other);
}
END_TEST

START_TEST(who_joins_late_brings_his_metadata_as_a_new_version)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1");
	CLEANUP_FREE char *metadata = NULL;

	ck_ok(ckpt_staged_commit(step, 0, "{\"temporary\":true}"));
	ck_assert(step->version->is.temporary);
	ck_ok(ckpt_staged_commit(step, 0, NULL)); // brings none
	ck_ok(ckpt_staged_commit(step, 0, "{\"temporary\":true}"));
	ck_assert_uint_eq(step->version->is.version, 1);
	ck_ok(ckpt_staged_commit(step, 0, "{}")); // says nothing
	ck_assert_uint_eq(step->version->is.version, 1);
	ck_ok(ckpt_staged_commit(step, 0, "{\"temporary\":false}"));
	ck_assert_uint_eq(step->version->is.version, 2);
	ck_assert(!step->version->is.temporary);
	metadata = metadata_of(step);
	ck_assert_str_eq(metadata, "{\"temporary\":false}");
	ckpt_step_unref(step);
}
END_TEST

static void *side_metadata(void *arg)
{
	struct side *side = arg;

	for (int i = 0; i < 20 && !side->result; i++)
		side->result = ckpt_commit_metadata(side->step, side->how.metadata);
	return NULL;
}

START_TEST(metadata_from_many_threads_is_a_row_of_versions)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1");
	struct side sides[3] = {{.how.metadata = "{\"world_size\":1}"},
				{.how.metadata = "{\"world_size\":2}"},
				{.how.metadata = "{\"world_size\":3}"}};
	CLEANUP_FREE char *before = NULL;
	struct ckpt_record r;

	ck_error(ckpt_commit_metadata(step, "{}"), ESTALE); // not committed yet
	ck_ok(ckpt_staged_commit(step, 0, NULL));
	for (size_t i = 0; i < ARRAY_LEN(sides); i++) {
		sides[i].step = step;
		ck_assert_int_eq(pthread_create(&sides[i].thread, NULL, side_metadata, &sides[i]), 0);
	}
	for (size_t i = 0; i < ARRAY_LEN(sides); i++) {
		pthread_join(sides[i].thread, NULL);
		ck_assert_int_eq(sides[i].result, 0);
	}
	for (uint32_t version = 1; version <= step->version->is.version; version++) {
		ck_ok(ckpt_step_record(step, version, &r));
		ck_assert_uint_eq(r.summary.version, version);
		ckpt_record_done(&r);
	}
	ck_error(ckpt_step_record(step, step->version->is.version + 1, &r), ENOENT);
	before = ckpt_save_listing(s);
	ckpt_step_unref(step);
	ckpt_fixture_reopen();
	CLEANUP_FREE char *after = ckpt_save_listing(s);
	ck_assert_str_eq(before, after);
}
END_TEST

// --- Names ------------------------------------------------------------------------------------------------------------------

START_TEST(a_commit_to_a_taken_name_leaves_the_step_staged)
{
	struct ckpt_step *first = ckpt_save_one(s, 0), *step = ckpt_staged_begin(s, "tmp");
	struct ckpt_commit how = ckpt_staged_plain;

	close(ckpt_staged_put(step, "file", "text"));
	how.folder_id = "";
	how.name = "1000";
	ck_error(ckpt_commit(step, &how), EEXIST);
	ck_assert_uint_eq(ckpt_save_errors(s, "there is a step of this name"), 1);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
	ckpt_save_check_step(first, 0);
	how.name = "1001";
	ck_ok(ckpt_commit(step, &how));
	ck_assert_ptr_null(ckpt_step_find(s, "", "tmp"));
	ckpt_staged_check(step, "file", "text");
	ckpt_step_unref(first);
	ckpt_step_unref(step);
}
END_TEST

// The bytes of the manifest of a step with so long a symlink, as a new start reads it.
static uint64_t manifest_bytes_with(const char *name, size_t len)
{
	struct ckpt_step *step = ckpt_staged_begin(s, name);
	char target[PATH_MAX] = "", link[8];
	struct ckpt_manifest *m;
	uint64_t bytes;

	memset(target, 'x', 4000);
	for (int i = 0; i < 15; i++) {
		snprintf(link, sizeof(link), "%d", i);
		ck_ok(ckpt_sys.symlink(target, step->dirfd, link));
	}
	target[len] = '\0';
	ck_ok(ckpt_sys.symlink(target, step->dirfd, "last"));
	ck_ok(ckpt_staged_commit(step, 0, NULL));
	ckpt_step_unref(step);
	ckpt_fixture_reopen();
	step = ckpt_step_find(s, "", name);
	ck_assert_ptr_nonnull(step);
	ck_ok(ckpt_step_manifest(step, &m));
	ck_assert_uint_eq(ckpt_manifest_count(m), 17);
	ckpt_manifest_unref(m);
	bytes = step->version->is.manifest_bytes;
	ckpt_step_unref(step);
	return bytes;
}

START_TEST(a_manifest_that_just_fits_into_its_record_is_found_again)
{
	size_t missing = CKPT_MANIFEST_EMBED_MAX - manifest_bytes_with("1", 1); // both are multiples of 8

	ck_assert_uint_lt(missing, 4000);
	ck_assert_uint_eq(manifest_bytes_with("2", missing + 1 - 8), CKPT_MANIFEST_EMBED_MAX - 8);
	ck_assert_uint_eq(manifest_bytes_with("3", missing + 1), CKPT_MANIFEST_EMBED_MAX);
	ck_assert_uint_eq(manifest_bytes_with("4", missing + 1 + 8), CKPT_MANIFEST_EMBED_MAX + 8);
}
END_TEST

static const char elsewhere[] = "0123456789abcdef"; // another folder

START_TEST(who_joins_under_another_name_is_refused)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "tmp");
	struct side committer = {.step = step, .how = ckpt_staged_plain};
	struct ckpt_commit how = ckpt_staged_plain;

	committer.how.folder_id = how.folder_id = "";
	committer.how.name = "1";
	how.name = "2";
	ck_ok(ckpt_stage_enter(step, false)); // holds the commit at its start
	start(&committer, side_commit);
	wait_until_committing(step);
	ck_error(ckpt_commit(step, &how), EBUSY);
	how.name = "1";
	how.folder_id = elsewhere;
	ck_error(ckpt_commit(step, &how), EBUSY);
	ck_assert_uint_eq(ckpt_save_errors(s, "another name"), 2);
	ckpt_stage_leave(step);
	pthread_join(committer.thread, NULL);
	ck_assert_int_eq(committer.result, 0);
	ck_error(ckpt_commit(step, &how), EROFS);
	how.folder_id = "";
	ck_ok(ckpt_commit(step, &how));
	how.name = "tmp";
	ck_error(ckpt_commit(step, &how), EROFS);
	ck_assert_uint_eq(ckpt_save_errors(s, "was committed under another name"), 2);
	ck_ok(ckpt_staged_commit(step, 0, NULL)); // as it is
	ckpt_step_unref(step);
}
END_TEST

static void *side_rename(void *arg)
{
	struct side *side = arg;

	side->result = ckpt_stage_rename(side->step, "", "2");
	return NULL;
}

// A rename that won over the commit is not undone by it. In test_commit_meanwhile.c it does so each time.
START_TEST(a_commit_gives_the_name_that_a_rename_gave_meanwhile)
{
	for (int round = 0; round < 300; round++) {
		struct ckpt_step *step = ckpt_staged_begin(s, "1"), *found;
		struct side committer = {.step = step}, renamer = {.step = step};

		start(&committer, side_commit);
		start(&renamer, side_rename);
		pthread_join(committer.thread, NULL);
		pthread_join(renamer.thread, NULL);
		ck_assert_int_eq(committer.result, 0);
		found = ckpt_step_find(s, "", renamer.result ? "1" : "2");
		ck_assert_ptr_eq(found, step);
		ckpt_step_unref(found);
		ck_assert_str_eq(step->version->is.name, renamer.result ? "1" : "2");
		ckpt_step_unref(step);
		ckpt_fixture_close();
		ckpt_fixture_open();
	}
}
END_TEST

// --- Write-out --------------------------------------------------------------------------------------------------------------

static int syncfs_left_to_fail;
static int (*real_syncfs)(int fd);

static int failing_syncfs(int fd)
{
	return __atomic_fetch_sub(&syncfs_left_to_fail, 1, __ATOMIC_RELAXED) > 0 ? -EIO : real_syncfs(fd);
}

START_TEST(a_syncfs_error_that_is_nobodys_fails_the_commit)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1");
	char name[16];

	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "%d", i);
		close(ckpt_staged_put(step, name, "text"));
	}
	real_syncfs = ckpt_hooks.syncfs;
	ckpt_hook_set(syncfs, failing_syncfs);
	syncfs_left_to_fail = 1;
	ck_error(ckpt_staged_commit(step, 0, NULL), EIO);
	ck_assert_uint_eq(ckpt_save_errors(s, "is not known"), 1);
	ck_ok(ckpt_stage_enter(step, false));
	ckpt_stage_leave(step);
	ck_ok(ckpt_staged_commit(step, 0, NULL));
	ckpt_save_settle(s);
	ckpt_hook_set(syncfs, real_syncfs);
	ckpt_step_unref(step);
}
END_TEST

static int (*real_open)(int dirfd, const char *path, int flags, mode_t mode);
static int opens_of_last; // of the file "last": the scan's comes first

static int failing_open(int dirfd, const char *path, int flags, mode_t mode)
{
	if (!strcmp(path, "last") && __atomic_add_fetch(&opens_of_last, 1, __ATOMIC_RELAXED) == 2)
		return -EMFILE;
	return real_open(dirfd, path, flags, mode);
}

START_TEST(a_file_that_cannot_be_opened_for_its_write_out_is_not_told_as_lost)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1");

	close(ckpt_staged_put(step, "last", "text"));
	real_open = ckpt_hooks.open;
	ckpt_hook_set(open, failing_open);
	ck_error(ckpt_staged_commit(step, 0, NULL), EMFILE);
	ck_assert_int_eq(opens_of_last, 2);
	ck_assert_uint_eq(ckpt_save_errors(s, "could not be opened"), 1);
	ck_assert_uint_eq(ckpt_save_errors(s, "write the file anew"), 0);
	ck_ok(ckpt_staged_commit(step, 0, NULL));
	ckpt_save_settle(s);
	ckpt_hook_set(open, real_open);
	ckpt_step_unref(step);
}
END_TEST

// A step that appeared under the name behind our table: the log decides, not what we believe.
START_TEST(a_step_that_is_there_already_wins_over_a_commit)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1");

	close(ckpt_staged_put(step, "file", "text"));
	ckpt_save_plant(s, "1");
	ck_error(ckpt_staged_commit(step, 0, NULL), EEXIST);
	ck_assert_uint_eq(ckpt_save_errors(s, "there is a step of this name"), 1);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
	ck_ok(ckpt_stage_rename(step, "", "2"));
	ck_ok(ckpt_staged_commit(step, 0, NULL));
	ckpt_step_unref(step);
}
END_TEST

static int (*real_rename)(int from_dirfd, const char *from, int to_dirfd, const char *to, unsigned flags);

// As where the answer to a call was lost below us, and the call made again.
static int repeated_rename(int from_dirfd, const char *from, int to_dirfd, const char *to, unsigned flags)
{
	int rc = real_rename(from_dirfd, from, to_dirfd, to, flags);

	return rc ? rc : -EEXIST;
}

START_TEST(a_record_of_its_own_that_is_there_already_is_its_success)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1");

	close(ckpt_staged_put(step, "file", "text"));
	real_rename = ckpt_hooks.rename;
	ckpt_hook_set(rename, repeated_rename);
	ck_ok(ckpt_staged_commit(step, 0, NULL));
	ckpt_save_settle(s);
	ckpt_hook_set(rename, real_rename);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_COMMITTED);
	ckpt_staged_check(step, "file", "text");
	ckpt_step_unref(step);
}
END_TEST

START_TEST(the_name_of_a_running_commit_cannot_be_taken)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "tmp"), *other = ckpt_staged_begin(s, "other"), *found;
	struct side committer = {.step = step, .how = ckpt_staged_plain};
	struct ckpt_commit how = ckpt_staged_plain;

	committer.how.folder_id = how.folder_id = "";
	committer.how.name = how.name = "1";
	ck_ok(ckpt_stage_enter(step, false));
	start(&committer, side_commit);
	wait_until_committing(step);
	ckpt_sys.sleep_ns(10 * MS);
	ck_error(ckpt_stage_begin(s, "", "1", 0755, 0, 0, 0, &found), EEXIST);
	ck_error(ckpt_stage_rename(other, "", "1"), EEXIST);
	ck_error(ckpt_commit(other, &how), EEXIST);
	ckpt_stage_leave(step);
	pthread_join(committer.thread, NULL);
	ck_assert_int_eq(committer.result, 0);
	found = ckpt_step_find(s, "", "1");
	ck_assert_ptr_eq(found, step);
	ckpt_step_unref(found);
	ckpt_step_unref(step);
	ckpt_step_unref(other);
}
END_TEST

START_TEST(the_name_of_an_unknown_outcome_cannot_be_taken_nor_changed)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "tmp"), *other;
	struct ckpt_fault fault = {.at = 1, .error = -EIO, .half = true, .sticky = true};
	struct ckpt_commit how = ckpt_staged_plain;

	close(ckpt_staged_put(step, "file", "text"));
	how.folder_id = "";
	how.name = "1";
	ckpt_save_fault(s, &fault);
	ck_error(ckpt_commit(step, &how), EIO);
	ck_error(ckpt_commit(step, &how), EIO);
	ck_assert_uint_eq(ckpt_save_errors(s, "outcome unknown"), 2);
	__atomic_store_n(&fault.at, 0, __ATOMIC_RELAXED);
	ck_error(ckpt_stage_begin(s, "", "1", 0755, 0, 0, 0, &other), EEXIST);
	ck_error(ckpt_stage_rename(step, "", "2"), EBUSY);
	how.name = "2";
	ck_error(ckpt_commit(step, &how), EBUSY);
	ck_assert_uint_eq(ckpt_save_errors(s, "under another name is unknown"), 1);
	how.name = "1";
	how.metadata = "{\"temporary\":true}"; // the first attempt brought none
	ck_ok(ckpt_commit(step, &how));
	ck_assert_uint_eq(step->version->is.version, 2);
	ck_assert(step->version->is.temporary);
	ckpt_staged_check(step, "file", "text");
	ckpt_step_unref(step);
}
END_TEST

START_TEST(an_unknown_outcome_that_was_none_can_be_tried_anew)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1");
	struct ckpt_fault fault = {.at = 1, .error = -EIO, .sticky = true}; // nothing is done, and nothing can be read

	close(ckpt_staged_put(step, "file", "text"));
	ckpt_save_fault(s, &fault);
	ck_error(ckpt_staged_commit(step, 0, NULL), EIO);
	ck_assert(ckpt_staging_of(step)->outcome_unknown);
	ck_error(ckpt_stage_enter(step, true), EROFS);
	__atomic_store_n(&fault.at, 0, __ATOMIC_RELAXED);
	ck_ok(ckpt_staged_commit(step, 0, NULL));
	ckpt_staged_check(step, "file", "text");
	ckpt_step_unref(step);
}
END_TEST

static Suite *commit_suite(void)
{
	Suite *suite = suite_create("commit");
	TCase *tcase = tcase_create("commit");

	tcase_add_checked_fixture(tcase, ckpt_fixture_open, ckpt_fixture_close);
	tcase_add_test(tcase, a_commit_waits_for_the_changes_that_have_begun);
	tcase_add_test(tcase, no_change_begins_while_a_commit_runs);
	tcase_add_test(tcase, a_change_goes_on_after_a_commit_that_failed);
	tcase_add_test(tcase, a_commit_that_comes_too_late_for_its_step_says_so);
	tcase_add_test(tcase, an_open_writer_is_waited_for_and_then_blamed);
	tcase_add_test(tcase, a_writer_that_ends_within_the_time_delays_the_commit_only);
	tcase_add_test(tcase, a_commit_that_waits_for_a_writer_makes_progress);
	tcase_add_test(tcase, threads_that_commit_one_step_get_one_answer);
	tcase_add_test(tcase, an_abandoned_commit_goes_on_and_can_be_joined);
	tcase_add_test(tcase, a_commit_that_stands_still_is_not_waited_for_but_goes_on);
	tcase_add_test(tcase, a_mount_hears_of_each_step_that_was_committed_and_of_no_other);
	tcase_add_test(tcase, who_joins_late_brings_his_metadata_as_a_new_version);
	tcase_add_test(tcase, metadata_from_many_threads_is_a_row_of_versions);
	tcase_add_test(tcase, a_commit_to_a_taken_name_leaves_the_step_staged);
	tcase_add_test(tcase, a_syncfs_error_that_is_nobodys_fails_the_commit);
	tcase_add_test(tcase, a_file_that_cannot_be_opened_for_its_write_out_is_not_told_as_lost);
	tcase_add_test(tcase, a_manifest_that_just_fits_into_its_record_is_found_again);
	tcase_add_test(tcase, who_joins_under_another_name_is_refused);
	tcase_add_test(tcase, a_commit_gives_the_name_that_a_rename_gave_meanwhile);
	tcase_add_test(tcase, a_step_that_is_there_already_wins_over_a_commit);
	tcase_add_test(tcase, a_record_of_its_own_that_is_there_already_is_its_success);
	tcase_add_test(tcase, the_name_of_a_running_commit_cannot_be_taken);
	tcase_add_test(tcase, the_name_of_an_unknown_outcome_cannot_be_taken_nor_changed);
	tcase_add_test(tcase, an_unknown_outcome_that_was_none_can_be_tried_anew);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(commit_suite());
}
