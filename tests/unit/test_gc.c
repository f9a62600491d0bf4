// Garbage collection: what a step, the trash, an open file or an unknown version needs stays; all else goes, once it is old enough
// and everything that may need it could be read.
#include "core/cold/garbage.h"
#include "core/save/reopen.h"
#include "core/save/stage.h"
#include "core/step/removal.h"
#include "core/store/open.h"
#include "tests/support/fixture_gc.h"

#include "backends/backends.h"
#include "core/base/json.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/delete.h"
#include "core/save/remove.h"
#include "core/step/errlog.h"
#include "core/step/reopened.h"

#include <fcntl.h>
#include <sys/wait.h>

// --- What is needed -----------------------------------------------------------------------------------------------------

START_TEST(what_a_step_needs_stays_and_the_rest_goes)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0", "a1"), *b = ckpt_packed_step(s, "b", "b0", "b1", "b2");
	uint64_t before = ckpt_packs_bytes(s), live;

	ck_assert_uint_eq(ckpt_packed_count(s), 5);
	gc_all();
	ck_assert(!done.deleted_objects && !done.garbage_bytes && done.live_bytes == before);
	expire(b);
	gc_all();
	live = ckpt_packs_bytes(s);
	ck_assert_uint_eq(ckpt_packed_count(s), 2);
	ck_assert_uint_eq(done.deleted_objects, 3);
	ck_assert(done.live_bytes == live && done.deleted_bytes == before - live);
	ck_assert_uint_eq(done.garbage_bytes, done.deleted_bytes);
	gc_all();
	ck_assert(!done.deleted_objects && !done.garbage_bytes);
	ckpt_step_unref(b);
	ckpt_step_unref(a);
	ckpt_fixture_gc_reopen();
	a = ckpt_step_find(s, "", "a");
	ck_ok(ckpt_packed_read(a, "0", "a0"));
	ck_ok(ckpt_packed_read(a, "1", "a1"));
	ckpt_step_unref(a);
}
END_TEST

// It is no question: the door in front of the backend sees to it.
START_TEST(a_file_that_may_not_be_removed_is_told_as_that)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0"), *b = ckpt_packed_step(s, "b", "b0", "b1");
	struct ckpt_fault fault;
	bool told = false;
	int rc = -1;

	expire(a);
	for (uint64_t n = 1; rc; n++) {
		fault = (struct ckpt_fault){.at = n, .error = -EPERM};
		ckpt_save_fault(s, &fault);
		rc = ckpt_gc(s, &(struct ckpt_gc_how){0}, &done);
		fault.at = 0;
		ck_assert_int_ne(rc, -EPERM);
		told |= rc == -EACCES && done.kept[CKPT_GC_FAILED].objects;
	}
	ck_assert(told);
	ck_assert_uint_eq(ckpt_packed_count(s), 2);
	ckpt_step_unref(a);
	ckpt_step_unref(b);
}
END_TEST

START_TEST(what_two_steps_share_goes_with_the_last)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "shared", "a1"), *b = ckpt_packed_step(s, "b", "shared", "b1");

	ck_assert_uint_eq(ckpt_packed_count(s), 3);
	expire(a);
	gc_all();
	ck_assert_uint_eq(ckpt_packed_count(s), 2);
	ck_ok(ckpt_packed_read(b, "0", "shared"));
	expire(b);
	gc_all();
	ck_assert_uint_eq(ckpt_packed_count(s), 0);
	ckpt_step_unref(a);
	ckpt_step_unref(b);
}
END_TEST

START_TEST(what_is_in_the_trash_can_be_had_back)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0"), *anew;
	char session[sizeof(a->session)];

	ck_ok(ckpt_delete(a));
	anew = ckpt_packed_step(s, "a", "anew"); // has its name
	ck_ok(ckpt_delete(anew));
	gc_all();
	ck_assert_uint_eq(done.deleted_objects, 0);
	memcpy(session, anew->session, sizeof(session));
	ckpt_step_unref(anew);
	ckpt_step_unref(a);
	ckpt_fixture_gc_reopen();
	gc_all();
	ck_assert_uint_eq(done.deleted_objects, 0);
	a = ckpt_step_of_session(s, session);
	ck_ok(ckpt_undelete(a));
	ck_ok(ckpt_packed_read(a, "0", "anew"));
	ckpt_step_unref(a);
}
END_TEST

START_TEST(what_is_reopened_can_be_given_up)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0"), *again;

	ck_ok(ckpt_reopen(a, &again));
	gc_all();
	ck_assert_uint_eq(done.deleted_objects, 0);
	ck_ok(ckpt_stage_abort(again, false));
	ckpt_step_unref(again);
	ck_ok(ckpt_packed_read(a, "0", "a0"));
	ckpt_step_unref(a);
}
END_TEST

START_TEST(what_is_being_removed_may_come_back)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0", "a1");
	struct ckpt_manifest *m = ckpt_staged_manifest(a);

	ck_ok(ckpt_remove_entry(a, m, 0, "0", false, 0));
	ckpt_manifest_unref(m);
	gc_all();
	ck_assert_uint_eq(done.deleted_objects, 0);
	ckpt_removal_forget(a);
	ck_ok(ckpt_packed_read(a, "0", "a0"));
	ckpt_step_unref(a);
}
END_TEST

START_TEST(what_is_warm_keeps_its_packs_which_its_next_cooling_uses)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0");
	struct ckpt_tier_done warmed, cooled;

	ck_ok(ckpt_warm(a, &(struct ckpt_tier_how){0}, &warmed));
	gc_all();
	ck_assert_uint_eq(done.deleted_objects, 0);
	cooled = ckpt_packed_cool(a);
	ck_assert(cooled.files == 1 && !cooled.stored_bytes);
	ck_ok(ckpt_packed_read(a, "0", "a0"));
	ckpt_step_unref(a);
}
END_TEST

// --- Open files ---------------------------------------------------------------------------------------------------------

START_TEST(what_is_open_stays_until_it_is_closed)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0"), *b = ckpt_packed_step(s, "b", "b0");
	struct ckpt_file *first = ckpt_packed_open(a, "0"), *second = ckpt_packed_open(a, "0"),
			 *third = ckpt_packed_open(b, "0");

	expire(a);
	gc_all();
	ck_assert_uint_eq(done.deleted_objects, 0);
	ck_assert_uint_eq(done.kept[CKPT_GC_OPEN].objects, 1);
	ck_assert_uint_eq(done.kept[CKPT_GC_OPEN].bytes, done.garbage_bytes);
	ckpt_file_close(first);
	gc_all();
	ck_assert_uint_eq(done.deleted_objects, 0);
	ckpt_packed_check(second, "a0");
	ckpt_file_close(second);
	gc_all();
	ck_assert_uint_eq(done.deleted_objects, 1);
	ckpt_packed_check(third, "b0");
	ckpt_file_close(third);
	ck_assert_ptr_null(ckpt_packed_files_of(s)->first);
	ckpt_step_unref(a);
	ckpt_step_unref(b);
}
END_TEST

// Who has looked at a version that is none by now opens the file where it is now, and nothing that may go.
START_TEST(what_is_opened_late_is_opened_where_it_is)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0");
	struct ckpt_manifest *cold = ckpt_staged_manifest(a);
	struct ckpt_tier_done warmed;
	struct ckpt_file *f;
	uint32_t index;

	ck_ok(ckpt_warm(a, &(struct ckpt_tier_how){0}, &warmed));
	ck_ok(ckpt_manifest_lookup(cold, "0", &index));
	ck_ok(ckpt_file_open(a, cold, index, &f));
	ck_assert_int_ge(ckpt_file_fd(f), 0);
	ckpt_packed_check(f, "a0");
	ckpt_file_close(f);
	ck_assert_ptr_null(ckpt_packed_files_of(s)->first);
	ckpt_manifest_unref(cold);
	ckpt_step_unref(a);
}
END_TEST

// Beside us, with the store open for reading. Tells when it has the file open, and reads it when it is told.
static _Noreturn void read_beside(int tell, int told)
{
	struct ckpt_store *reader;
	struct ckpt_step *step;
	struct ckpt_file *f;
	char word;

	if (ckpt_store_open(dir, CKPT_STORE_READ, NULL, &reader))
		_exit(2);
	step = ckpt_step_find(reader, "", "a");
	f = ckpt_packed_open(step, "0");
	if (write(tell, "o", 1) != 1 || read(told, &word, 1) != 1)
		_exit(3);
	ckpt_packed_check(f, "a0");
	ckpt_file_close(f);
	if (write(tell, "c", 1) != 1 || read(told, &word, 1) != 1)
		_exit(4);
	_exit(0);
}

START_TEST(what_another_process_reads_stays)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0");
	int ours[2], theirs[2], status;
	char word;
	pid_t pid;

	ck_assert(!pipe2(ours, O_CLOEXEC) && !pipe2(theirs, O_CLOEXEC));
	ck_assert(!ckpt_file_others_read(s));
	pid = fork();
	if (!pid)
		read_beside(theirs[1], ours[0]);
	close(theirs[1]); // its end is the end of the pipe
	ck_assert_int_eq(read(theirs[0], &word, 1), 1);
	ck_assert(ckpt_file_others_read(s));
	expire(a);
	gc_all();
	ck_assert_uint_eq(done.kept[CKPT_GC_OPEN].objects, 1);
	ck_assert_int_eq(write(ours[1], "r", 1), 1);
	ck_assert_int_eq(read(theirs[0], &word, 1), 1);
	gc_all(); // it lives, and has it closed
	ck_assert_uint_eq(done.deleted_objects, 1);
	ck_assert_int_eq(write(ours[1], "e", 1), 1);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(!status, "%d", status);
	ckpt_step_unref(a);
}
END_TEST

// --- What cannot be read ------------------------------------------------------------------------------------------------

static const struct {
	size_t at;
	uint8_t with;
	int error; // while the step is known
} spoilt[] = {{100, 1, -EBADMSG}, {8, 0x40, -ENOTSUP}};

START_TEST(what_cannot_be_read_keeps_all)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0"), *b = ckpt_packed_step(s, "b", "b0");

	expire(a);
	ckpt_save_spoil_record(b, spoilt[_i].at, spoilt[_i].with);
	ck_error(ckpt_gc(s, &all, &done), -spoilt[_i].error);
	ck_assert_ptr_nonnull(strstr(done.why, "version 3 of b"));
	ck_assert_uint_eq(ckpt_packed_count(s), 2);
	ckpt_save_spoil_record(b, spoilt[_i].at, spoilt[_i].with);
	gc_all();
	ck_assert_uint_eq(ckpt_packed_count(s), 1);
	ckpt_step_unref(a);
	ckpt_step_unref(b);
}
END_TEST

// As a commit whose answer was lost leaves it: at the next start it is a step.
START_TEST(what_a_version_needs_that_nobody_knows_stays)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0");

	ckpt_lock_take(&s->lock);
	ckpt_step_forget_locked(a);
	ckpt_lock_drop(&s->lock);
	gc_all();
	ck_assert_uint_eq(done.deleted_objects, 0);
	ckpt_step_unref(a);
	ckpt_fixture_gc_reopen();
	a = ckpt_step_find(s, "", "a");
	ck_assert_uint_eq(a->version->is.version, 3);
	ck_ok(ckpt_packed_read(a, "0", "a0"));
	ckpt_step_unref(a);
}
END_TEST

static void spoil_manifest(const struct ckpt_summary *is, uint8_t with)
{
	char key[2 + CKPT_SHA256_HEX_LEN + 1] = "m/";
	uint8_t byte;
	int fd;

	ckpt_hex(is->manifest_sha256, CKPT_SHA256_LEN, key + 2);
	fd = openat(s->dirfd, key, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, &byte, 1, 200), 1);
	byte ^= with;
	ck_assert_int_eq(pwrite(fd, &byte, 1, 200), 1);
	close(fd);
}

// The same of a step whose manifest is an object of its own: as long as that cannot be read, or anything else that may need packs,
// nothing goes that is needed.
START_TEST(what_a_version_needs_that_nobody_knows_stays_whatever_fails)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0"), *large = ckpt_save_one(s, CKPT_SAVE_LARGE);
	struct ckpt_fault fault = {0};
	unsigned failed = 0;
	struct ckpt_summary now;
	int rc = -EIO;

	ck_ok(ckpt_cool_sealed(large, &(struct ckpt_tier_how){0}, &(struct ckpt_tier_done){0}));
	now = large->version->is;
	ck_assert_uint_gt(ckpt_packed_count(s), 1);
	ckpt_lock_take(&s->lock);
	ckpt_step_forget_locked(large);
	ckpt_lock_drop(&s->lock);
	expire(a);
	spoil_manifest(&now, 1);
	ck_error(ckpt_gc(s, &all, &done), EBADMSG);
	ck_assert_ptr_nonnull(strstr(done.why, "needs cannot be read"));
	spoil_manifest(&now, 1);
	ckpt_save_fault(s, &fault);
	for (uint64_t n = 1; rc; n++) {
		ck_assert_uint_lt(n, 50);
		fault = (struct ckpt_fault){.at = n, .error = -EIO};
		rc = ckpt_gc(s, &all, &done);
		ck_assert(!rc || rc == -EIO);
		ck_assert(!rc == !*done.why);
		failed += rc != 0;
	}
	fault.at = 0;
	ck_assert_uint_ge(failed, 3); // the list, the manifest, the removal
	ckpt_step_unref(a);
	ckpt_step_unref(large);
	ckpt_fixture_gc_reopen();
	large = ckpt_step_find(s, now.folder_id, now.name);
	ckpt_save_check_files(large, CKPT_SAVE_LARGE);
	ckpt_step_unref(large);
}
END_TEST

START_TEST(another_store_in_the_directory_is_left_alone)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0");
	char text[4096], *id;
	ssize_t n;
	int fd = openat(s->dirfd, "store.json", O_RDWR | O_CLOEXEC);

	n = pread(fd, text, sizeof(text) - 1, 0);
	ck_assert_int_gt(n, 0);
	text[n] = '\0';
	id = strstr(text, s->id);
	ck_assert_ptr_nonnull(id);
	*id = *id == '0' ? '1' : '0';
	ck_assert_int_eq(pwrite(fd, text, (size_t)n, 0), n);
	close(fd);
	expire(a);
	ck_error(ckpt_gc(s, &all, &done), ESTALE);
	ck_assert_ptr_nonnull(strstr(done.why, "another store"));
	ck_assert_uint_eq(ckpt_packed_count(s), 1);
	ckpt_step_unref(a);
}
END_TEST

START_TEST(who_reads_collects_nothing)
{
	struct ckpt_store *reader;

	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &reader));
	ck_error(ckpt_gc(reader, &all, &done), EROFS);
	ckpt_store_close(reader);
}
END_TEST

// --- When, and how much -------------------------------------------------------------------------------------------------

START_TEST(what_is_young_stays)
{
	const struct ckpt_gc_how how = {.grace_ns = CKPT_GC_GRACE_NS};
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0");

	expire(a);
	ck_ok(ckpt_gc(s, &how, &done));
	ck_assert(!done.deleted_objects && done.kept[CKPT_GC_YOUNG].objects == 1);
	ck_assert_uint_eq(done.kept[CKPT_GC_YOUNG].bytes, done.garbage_bytes);
	ckpt_packed_age(s, DAY_S - 60);
	ck_ok(ckpt_gc(s, &how, &done));
	ck_assert_uint_eq(done.deleted_objects, 0);
	ckpt_packed_age(s, -60); // the clock was set back
	ck_ok(ckpt_gc(s, &how, &done));
	ck_assert_uint_eq(done.deleted_objects, 0);
	ckpt_packed_age(s, DAY_S + 60);
	ck_ok(ckpt_gc(s, &how, &done));
	ck_assert_uint_eq(done.deleted_objects, 1);
	ckpt_step_unref(a);
}
END_TEST

START_TEST(most_of_what_is_there_goes_only_by_force)
{
	const struct ckpt_gc_how plain = {0}, look = {.dry_run = true};
	struct ckpt_step *a = ckpt_packed_step(s, "a", "some text"),
			 *b = ckpt_packed_step(s, "b", "more text", "and more");
	CLEANUP_FREE char *text = NULL;

	expire_earlier(b);
	ck_error(ckpt_gc(s, &plain, &done), EPERM);
	ck_assert(!done.deleted_objects && done.kept[CKPT_GC_MOST].objects == 2);
	ck_assert_ptr_nonnull(strstr(done.why, "would go at once"));
	ck_assert_ptr_nonnull(ckpt_gc_hint(-EPERM));
	ck_assert_uint_eq(ckpt_packed_count(s), 3);
	ck_ok(ckpt_gc(s, &look, &done));
	ck_assert(!done.deleted_objects && done.kept[CKPT_GC_MOST].objects == 2);
	text = ckpt_gc_json(&done);
	ck_assert_ptr_nonnull(
		strstr(text, "\"kept\":[{\"why\":\"more than half of all would go at once\",\"objects\":2"));
	gc_all();
	ck_assert_uint_eq(done.deleted_objects, 2);
	ck_ok(ckpt_packed_read(a, "0", "some text"));
	ckpt_step_unref(b);
	b = ckpt_packed_step(s, "b", "as much b");
	expire_earlier(b); // half of it
	ck_ok(ckpt_gc(s, &plain, &done));
	ck_assert_uint_eq(done.deleted_objects, 1);
	ckpt_step_unref(a);
	ckpt_step_unref(b);
}
END_TEST

START_TEST(what_expired_here_goes_unasked_but_nothing_with_it)
{
	const struct ckpt_gc_how plain = {0};
	struct ckpt_step *a = ckpt_packed_step(s, "a", "some text"),
			 *b = ckpt_packed_step(s, "b", "more text", "and more"),
			 *c = ckpt_packed_step(s, "c", "the text of c");

	expire_earlier(c);
	expire(b);
	ck_error(ckpt_gc(s, &plain, &done), EPERM); // c is more than half of the rest
	ck_assert(!done.deleted_objects && ckpt_garbage_packs(s) == 2);
	ckpt_step_unref(c);
	c = ckpt_packed_step(s, "c", "the text of c");
	ck_ok(ckpt_gc(s, &plain, &done));
	ck_assert(done.deleted_objects == 2 && !ckpt_garbage_packs(s));
	expire(a);
	expire(c);
	expire(other);
	ck_ok(ckpt_gc(s, &plain, &done)); // nor is a store without steps asked about
	ck_assert_uint_eq(ckpt_packed_count(s), 0);
	ckpt_step_unref(a);
	ckpt_step_unref(b);
	ckpt_step_unref(c);
}
END_TEST

START_TEST(what_was_warmed_is_expected_with_its_packs)
{
	const struct ckpt_gc_how plain = {0};
	struct ckpt_step *a = ckpt_packed_step(s, "a", "some text", "more text");
	struct ckpt_tier_done warmed;

	ck_ok(ckpt_warm(a, &(struct ckpt_tier_how){0}, &warmed));
	expire(a);
	ck_assert_uint_eq(ckpt_garbage_packs(s), 2);
	ck_ok(ckpt_gc(s, &plain, &done));
	ck_assert_uint_eq(done.deleted_objects, 2);
	ckpt_step_unref(a);
}
END_TEST

START_TEST(what_expired_is_expected_until_it_goes)
{
	const struct ckpt_gc_how plain = {0}, young = {.grace_ns = INT64_C(3600) * 1000000000};
	struct ckpt_step *a = ckpt_packed_step(s, "a", "some text"),
			 *b = ckpt_packed_step(s, "b", "more text", "and more");

	expire(b);
	ck_ok(ckpt_gc(s, &young, &done));
	ck_assert_uint_eq(done.kept[CKPT_GC_YOUNG].objects, 2);
	ck_ok(ckpt_gc(s, &plain, &done));
	ck_assert_uint_eq(done.deleted_objects, 2);
	ckpt_step_unref(a);
	ckpt_step_unref(b);
}
END_TEST

// As when records are lost, and the steps that are left need no pack.
START_TEST(the_last_that_is_needed_goes_when_it_was_expired_and_not_unasked_when_it_was_not)
{
	const struct ckpt_gc_how plain = {0};
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0");

	expire(a);
	ck_ok(ckpt_gc(s, &plain, &done));
	ck_assert_uint_eq(done.deleted_objects, 1);
	ckpt_step_unref(a);
	a = ckpt_packed_step(s, "a", "a0");
	expire_earlier(a);
	ck_error(ckpt_gc(s, &plain, &done), EPERM); // there is `other`, which is raw
	expire(other);
	ck_error(ckpt_gc(s, &plain, &done), EPERM);
	gc_all();
	ck_assert_uint_eq(done.deleted_objects, 1);
	ckpt_step_unref(a);
}
END_TEST

static bool says_expected(void)
{
	uint64_t seq;

	return !ckpt_journal_get(s->journal, "expected", NULL, &seq);
}

START_TEST(what_another_process_has_expired_goes_unasked_once)
{
	const struct ckpt_gc_how plain = {0};
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0");

	expire(a);
	ckpt_step_unref(a);
	ckpt_fixture_gc_reopen();
	ck_assert(says_expected());
	ck_ok(ckpt_gc(s, &plain, &done));
	ck_assert_uint_eq(done.deleted_objects, 1);
	ck_assert(!says_expected());
	a = ckpt_packed_step(s, "a", "a0");
	expire_earlier(a); // the same pack, of which nobody says anything any more
	ck_error(ckpt_gc(s, &plain, &done), EPERM);
	ckpt_step_unref(a);
}
END_TEST

START_TEST(what_is_expected_is_damaged_and_says_nothing)
{
	static const char *const texts[] = {"", "{", "[]", "{\"packs\":3}", "{\"packs\":[3]}", "{\"packs\":[\"abc\"]}"};
	const struct ckpt_gc_how plain = {0};
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0");

	expire_earlier(a);
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		ck_ok(ckpt_journal_set(s->journal, "expected", CKPT_ACT_ANY, texts[i]));
		ck_error(ckpt_gc(s, &plain, &done), EPERM);
	}
	ckpt_step_unref(a);
}
END_TEST

// Only new packs are appended.
START_TEST(what_is_expected_is_said_once)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0"), *b = ckpt_packed_step(s, "b", "b0");
	uint64_t first, seq;

	expire(a);
	ckpt_step_unref(a);
	ckpt_step_unref(b);
	ckpt_fixture_gc_reopen();
	ck_ok(ckpt_journal_get(s->journal, "expected", NULL, &first));
	ck_ok(ckpt_garbage_load(s));
	ck_assert_uint_eq(ckpt_garbage_packs(s), 1);
	ckpt_fixture_gc_reopen();
	ck_ok(ckpt_journal_get(s->journal, "expected", NULL, &seq));
	ck_assert_uint_eq(seq, first);
	b = ckpt_step_find(s, "", "b");
	expire(b);
	ckpt_step_unref(b);
	ckpt_fixture_gc_reopen();
	ck_ok(ckpt_journal_get(s->journal, "expected", NULL, &seq));
	ck_assert_uint_gt(seq, first);
	ck_ok(ckpt_garbage_load(s));
	ck_assert_uint_eq(ckpt_garbage_packs(s), 2);
}
END_TEST

START_TEST(a_dry_run_says_what_would_go)
{
	const struct ckpt_gc_how look = {.dry_run = true, .force = true};
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0"), *b = ckpt_packed_step(s, "b", "b0");
	CLEANUP_FREE char *text = NULL;
	struct ckpt_gc_done would;

	expire(a);
	ck_ok(ckpt_gc(s, &look, &would));
	ck_assert_uint_eq(ckpt_packed_count(s), 2);
	gc_all();
	ck_assert_uint_eq(would.deleted_objects, 1);
	ck_assert_mem_eq(&would, &done, sizeof(done));
	text = ckpt_gc_json(&would);
	ck_assert_ptr_nonnull(text);
	ck_assert_ptr_nonnull(
		strstr(text, "\"deleted_objects\":1,\"repacked_bytes\":0,\"repacked_objects\":0,\"kept\":[]"));
	ckpt_step_unref(a);
	ckpt_step_unref(b);
}
END_TEST

START_TEST(who_is_told_to_stop_stops)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0", "a1", "a2");
	int left = 0;
	struct ckpt_gc_how how = {.force = true, .go_on = no_more, .arg = &left};

	expire(a);
	ck_error(ckpt_gc(s, &how, &done), EINTR);
	ck_assert_uint_eq(ckpt_packed_count(s), 3);
	left = 3;
	ck_error(ckpt_gc(s, &how, &done), EINTR);
	ck_assert_uint_lt(ckpt_packed_count(s), 3);
	ck_assert_uint_gt(ckpt_packed_count(s), 0);
	gc_all();
	ck_assert_uint_eq(ckpt_packed_count(s), 0);
	ckpt_step_unref(a);
}
END_TEST

struct beside_gc {
	struct ckpt_gc_done done;
	unsigned times;
};

static bool collect_meanwhile(void *arg, uint64_t bytes)
{
	struct beside_gc *beside = arg;

	if (bytes) {
		ck_ok(ckpt_gc(s, &all, &beside->done));
		beside->times++;
	}
	return true;
}

// No version names its packs yet, and it finds those of the garbage, which go if the collection was first.
START_TEST(what_a_cooling_needs_stays)
{
	const char *const texts[] = {"a0", "c1", "c2"};
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0", "a1"),
			 *c = ckpt_packed_sealed(s, "c", texts, ARRAY_LEN(texts));
	struct beside_gc beside = {0};
	const struct ckpt_tier_how how = {.pack_bytes = 1, .go_on = collect_meanwhile, .arg = &beside};
	struct ckpt_tier_done cooled;

	expire(a);
	ck_ok(ckpt_cool(c, &how, &cooled));
	ck_assert_uint_eq(beside.times, ARRAY_LEN(texts));
	ck_assert_uint_eq(cooled.deduplicated_bytes, strlen("a0"));
	ck_assert_uint_eq(ckpt_packed_count(s), 3); // that of "a1" went
	gc_all();
	ck_assert(!done.deleted_objects && !done.garbage_bytes);
	for (unsigned i = 0; i < ARRAY_LEN(texts); i++)
		ck_ok(ckpt_packed_read(c, (const char[]){(char)('0' + i), '\0'}, texts[i]));
	ckpt_step_unref(a);
	ckpt_step_unref(c);
}
END_TEST

struct cools_beside_gc {
	struct ckpt_step *step;
	struct ckpt_pack pack;
	struct ckpt_chunk chunk;
	bool was_condemned;
};

// Once that pack is condemned, which the index has forgotten then.
static bool cool_meanwhile(void *arg)
{
	struct cools_beside_gc *beside = arg;
	struct ckpt_chunk chunk;
	struct ckpt_pack pack;

	if (beside->was_condemned || !ckpt_index_chunk(s->index, beside->chunk.id, &chunk, &pack))
		return true;
	beside->was_condemned = true;
	// As if the step had found it just before.
	ck_ok(ckpt_index_put_pack(s->index, &beside->pack, &beside->chunk, 1));
	(void)ckpt_packed_cool(beside->step);
	return true;
}

START_TEST(what_is_about_to_go_is_packed_again)
{
	const char *const texts[] = {"a0", "a1"};
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0", "a1");
	struct cools_beside_gc beside = {.step = ckpt_packed_sealed(s, "c", texts, ARRAY_LEN(texts))};
	const struct ckpt_gc_how how = {.force = true, .go_on = cool_meanwhile, .arg = &beside};

	beside.pack = ckpt_packed_place(a, "0", &beside.chunk);
	expire(a);
	ck_ok(ckpt_gc(s, &how, &done));
	ck_assert(beside.was_condemned);
	ck_assert_uint_eq(done.deleted_objects, 2);
	ck_assert_uint_eq(ckpt_packed_count(s), 2);
	for (unsigned i = 0; i < ARRAY_LEN(texts); i++)
		ck_ok(ckpt_packed_read(beside.step, (const char[]){(char)('0' + i), '\0'}, texts[i]));
	ckpt_step_unref(a);
	ckpt_step_unref(beside.step);
}
END_TEST

// Two at once, and a cooling, wait for nobody.
START_TEST(a_collection_waits_for_nobody)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0");

	expire(a);
	ckpt_lock_take(&ckpt_cool_turn_of(s)->lock);
	gc_all();
	ckpt_lock_drop(&ckpt_cool_turn_of(s)->lock);
	ck_assert_uint_eq(ckpt_packed_count(s), 0);
	ckpt_step_unref(a);
}
END_TEST

START_TEST(what_is_no_pack_is_not_removed)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "a0");

	ck_ok(ckpt_objects_put(s->objects, "packs/notes", "x", 1, NULL));
	expire(a);
	gc_all();
	ck_assert_uint_eq(done.deleted_objects, 1);
	ck_assert_uint_eq(ckpt_packed_count(s), 1);
	ckpt_step_unref(a);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gc");
	TCase *needed = tcase_create("needed"), *unread = tcase_create("unread"), *when = tcase_create("when");

	tcase_add_checked_fixture(needed, ckpt_fixture_gc_open, ckpt_fixture_gc_close);
	tcase_add_test(needed, what_a_step_needs_stays_and_the_rest_goes);
	tcase_add_test(needed, what_two_steps_share_goes_with_the_last);
	tcase_add_test(needed, a_file_that_may_not_be_removed_is_told_as_that);
	tcase_add_test(needed, what_is_in_the_trash_can_be_had_back);
	tcase_add_test(needed, what_is_reopened_can_be_given_up);
	tcase_add_test(needed, what_is_being_removed_may_come_back);
	tcase_add_test(needed, what_is_warm_keeps_its_packs_which_its_next_cooling_uses);
	tcase_add_test(needed, what_is_open_stays_until_it_is_closed);
	tcase_add_test(needed, what_is_opened_late_is_opened_where_it_is);
	tcase_add_test(needed, what_another_process_reads_stays);
	suite_add_tcase(suite, needed);
	tcase_add_checked_fixture(unread, ckpt_fixture_gc_open, ckpt_fixture_gc_close);
	tcase_add_loop_test(unread, what_cannot_be_read_keeps_all, 0, (int)ARRAY_LEN(spoilt));
	tcase_add_test(unread, what_a_version_needs_that_nobody_knows_stays);
	tcase_add_test(unread, what_a_version_needs_that_nobody_knows_stays_whatever_fails);
	tcase_add_test(unread, another_store_in_the_directory_is_left_alone);
	tcase_add_test(unread, who_reads_collects_nothing);
	suite_add_tcase(suite, unread);
	tcase_add_checked_fixture(when, ckpt_fixture_gc_open, ckpt_fixture_gc_close);
	tcase_add_test(when, what_is_young_stays);
	tcase_add_test(when, most_of_what_is_there_goes_only_by_force);
	tcase_add_test(when, what_expired_here_goes_unasked_but_nothing_with_it);
	tcase_add_test(when, what_was_warmed_is_expected_with_its_packs);
	tcase_add_test(when, what_expired_is_expected_until_it_goes);
	tcase_add_test(when, the_last_that_is_needed_goes_when_it_was_expired_and_not_unasked_when_it_was_not);
	tcase_add_test(when, what_another_process_has_expired_goes_unasked_once);
	tcase_add_test(when, what_is_expected_is_damaged_and_says_nothing);
	tcase_add_test(when, what_is_expected_is_said_once);
	tcase_add_test(when, a_dry_run_says_what_would_go);
	tcase_add_test(when, who_is_told_to_stop_stops);
	tcase_add_test(when, what_a_cooling_needs_stays);
	tcase_add_test(when, what_is_about_to_go_is_packed_again);
	tcase_add_test(when, a_collection_waits_for_nobody);
	tcase_add_test(when, what_is_no_pack_is_not_removed);
	suite_add_tcase(suite, when);
	return ckpt_suite_run(suite);
}
