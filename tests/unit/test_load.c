// The open of a store believes a log that is whole, and nothing of the index that the log does not say too.
#include "core/save/stage.h"
#include "core/step/follow.h"
#include "core/store/open.h"
#include "tests/support/formats.h"
#include "tests/support/rows.h"
#include "tests/support/save.h"

#include "backends/backends.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/delete.h"
#include "core/save/pin.h"
#include "core/store/load.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define RECORD_BYTES_MAX (1u << 20)
#define REQUIRED_AT 16 // the required feature bits of a container

static char dir[PATH_MAX];
static char *before; // the listing of the whole store

static void setup(void)
{
	struct ckpt_store *s;

	ckpt_save_init(dir);
	s = ckpt_save_open(dir);
	for (unsigned i = 0; i < CKPT_SAVE_STEPS; i++) {
		struct ckpt_step *step = ckpt_save_one(s, i);

		ck_ok(ckpt_save_metadata(step, i));
		ckpt_step_unref(step);
	}
	before = ckpt_save_listing(s);
	ckpt_store_close(s);
}

static void teardown(void)
{
	free(before);
}

static void path_of(char *ret, const char *below)
{
	ck_assert_int_lt(snprintf(ret, PATH_MAX, "%s/%s", dir, below), PATH_MAX);
}

static size_t slurp(const char *below, uint8_t *data)
{
	char path[PATH_MAX];
	ssize_t n;

	path_of(path, below);
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	n = read(fd, data, RECORD_BYTES_MAX);
	ck_assert_msg(n > 0, "%s", path);
	return (size_t)n;
}

static void spill(const char *below, const void *data, size_t len)
{
	char path[PATH_MAX];

	path_of(path, below);
	CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_eq(write(fd, data, len), (ssize_t)len);
}

static void make_dir(const char *below)
{
	char path[PATH_MAX];

	path_of(path, below);
	ck_assert_int_eq(mkdir(path, 0700), 0);
}

static void forget(const char *below)
{
	char path[PATH_MAX];
	struct stat st;

	path_of(path, below);
	ck_assert_int_eq(lstat(path, &st), 0);
	if (S_ISDIR(st.st_mode))
		ckpt_temp_empty(path, true);
	else
		ck_assert_int_eq(unlink(path), 0);
}

// The store as it is opened now: which of the saved steps it lists, one digit each, and what its log says.
static void assert_lists(const char *expected, const char *logged)
{
	for (int mode = 0; mode < 3; mode++) { // beside a mount, for writing, and with the index that this left
		struct ckpt_store *s;
		char there[CKPT_SAVE_STEPS + 1] = "";

		ck_ok(ckpt_store_open(dir, mode ? CKPT_STORE_WRITE : CKPT_STORE_READ, NULL, &s));
		for (unsigned i = 0; i < CKPT_SAVE_STEPS; i++) {
			struct ckpt_step *step = ckpt_save_find(s, i);

			if (!step)
				continue;
			sprintf(there + strlen(there), "%u", i);
			ckpt_save_check_step(step, i);
			ckpt_step_unref(step);
		}
		ck_assert_str_eq(there, expected);
		if (logged)
			ck_assert_msg(ckpt_save_errors(s, logged) > 0, "no line has %s", logged);
		ckpt_store_close(s);
	}
}

static void assert_whole(void)
{
	CLEANUP_FREE char *there = NULL;

	assert_lists("01234", NULL);
	there = ckpt_save_listing_at(dir);
	ck_assert_str_eq(there, before);
}

// All but the last step.
static struct ckpt_store *open_without_last(void)
{
	struct ckpt_store *s = ckpt_save_open(dir);
	struct ckpt_step *step = ckpt_save_find(s, 4);

	ck_ok(ckpt_delete_for_good(step));
	ckpt_step_unref(step);
	return s;
}

START_TEST(a_reader_that_looks_again_sees_new_steps_and_keeps_the_old)
{
	struct ckpt_store *reader, *s;
	struct ckpt_step *kept;

	s = open_without_last();
	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &reader));
	ck_assert_ptr_null(ckpt_save_find(reader, 4));
	kept = ckpt_save_find(reader, 0);
	ck_ok(ckpt_follow_refresh(reader)); // nothing is new
	ckpt_step_unref(ckpt_save_one(s, 4));
	ckpt_store_close(s);
	ck_ok(ckpt_follow_refresh(reader));
	struct ckpt_step *seen = ckpt_save_find(reader, 4), *same = ckpt_save_find(reader, 0);

	ck_assert_ptr_nonnull(seen);
	ckpt_save_check_step(seen, 4);
	ck_assert_ptr_eq(same, kept);
	ckpt_step_unref(seen);
	ckpt_step_unref(same);
	ckpt_step_unref(kept);
	ckpt_store_close(reader);
}
END_TEST

START_TEST(a_reader_takes_no_live_session_of_another_for_a_left_one)
{
	struct ckpt_store *reader, *s = ckpt_save_open(dir);
	struct ckpt_step *live;

	ck_ok(ckpt_stage_begin(s, "", "9", 0755, getuid(), getgid(), getpid(), &live));
	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &reader));
	ck_assert_uint_eq(ckpt_save_count(reader, CKPT_STEP_LEFT), 0);
	ckpt_store_close(reader);
	ckpt_step_unref(live);
	ckpt_store_close(s);
	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &reader));
	ck_assert_uint_eq(ckpt_save_count(reader, CKPT_STEP_LEFT), 1);
	ckpt_store_close(reader);
}
END_TEST

START_TEST(a_look_that_failed_is_taken_again)
{
	struct ckpt_fault fault = {.at = 1, .error = -EIO};
	struct ckpt_store *reader, *s;
	struct ckpt_step *seen;

	s = open_without_last();
	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &reader));
	ckpt_step_unref(ckpt_save_one(s, 4));
	ckpt_store_close(s);
	ckpt_save_fault(reader, &fault);
	ck_error(ckpt_follow_refresh(reader), EIO);
	ck_ok(ckpt_follow_refresh(reader));
	seen = ckpt_save_find(reader, 4);
	ck_assert_ptr_nonnull(seen);
	ckpt_step_unref(seen);
	ckpt_store_close(reader);
}
END_TEST

static void *refresh_in_thread(void *reader)
{
	return (void *)(intptr_t)ckpt_follow_refresh(reader);
}

START_TEST(threads_that_look_at_once_all_see_everything)
{
	for (int round = 0; round < 30; round++) {
		struct ckpt_store *reader, *s;
		pthread_t threads[8];
		char dir_of_round[PATH_MAX];

		ckpt_save_init(dir_of_round);
		s = ckpt_save_open(dir_of_round);
		ck_ok(ckpt_store_open(dir_of_round, CKPT_STORE_READ, NULL, &reader));
		for (unsigned i = 0; i < CKPT_SAVE_STEPS; i++)
			if (!ckpt_save_steps[i].leftover)
				ckpt_step_unref(ckpt_save_one(s, i));
		ckpt_store_close(s);
		for (size_t i = 0; i < ARRAY_LEN(threads); i++)
			ck_assert_int_eq(pthread_create(&threads[i], NULL, refresh_in_thread, reader), 0);
		for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
			void *rc;

			pthread_join(threads[i], &rc);
			ck_ok((int)(intptr_t)rc);
		}
		ckpt_store_close(reader);
		ckpt_temp_empty(dir_of_round, true);
	}
}
END_TEST

// --- The log ----------------------------------------------------------------------------------------------------------------

// Its entries, in their order; how many there are.
static unsigned entries(char keys[][CKPT_LOG_KEY_MAX], unsigned max)
{
	unsigned count = 0;

	for (uint64_t seq = 1; count < max; seq++) {
		char path[PATH_MAX];

		ckpt_log_key(seq, keys[count]);
		path_of(path, keys[count]);
		if (access(path, F_OK))
			break;
		count++;
	}
	return count;
}

static void assert_refused(int error, const char *key)
{
	struct ckpt_store *s;

	ck_error(ckpt_store_open(dir, CKPT_STORE_WRITE, NULL, &s), error);
	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &s));
	ck_assert_uint_ge(ckpt_save_errors(s, key), 1);
	ckpt_store_close(s);
}

// A reader sees the store without what that entry said; nobody writes to it.
START_TEST(a_damaged_entry_is_told_and_not_written_behind)
{
	static uint8_t data[RECORD_BYTES_MAX];
	char keys[64][CKPT_LOG_KEY_MAX];
	unsigned count = entries(keys, ARRAY_LEN(keys));

	ck_assert_uint_ge(count, 5);
	for (unsigned i = 0; i < count; i++) {
		size_t len = slurp(keys[i], data);
		size_t at = (i * 97) % len;
		struct ckpt_store *s;

		data[at] ^= 0x10;
		spill(keys[i], data, len);
		data[at] ^= 0x10;
		assert_refused(EUCLEAN, keys[i]);
		ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &s));
		ck_assert_uint_eq(ckpt_journal_damaged(s->journal), i + 1);
		ckpt_store_close(s);
		spill(keys[i], data, len - 1); // cut off
		assert_refused(EUCLEAN, keys[i]);
		spill(keys[i], data, len);
	}
	assert_whole();
}
END_TEST

START_TEST(an_entry_that_is_missing_or_anothers_is_noticed)
{
	static uint8_t data[RECORD_BYTES_MAX], other[RECORD_BYTES_MAX];
	char keys[64][CKPT_LOG_KEY_MAX];
	unsigned count = entries(keys, ARRAY_LEN(keys));
	size_t len = slurp(keys[count - 2], data), other_len = slurp(keys[count - 1], other);

	spill(keys[count - 2], other, other_len); // twice
	assert_refused(EUCLEAN, keys[count - 2]);
	spill(keys[count - 2], data, len);
	spill(keys[count - 1], data, len); // the one before again
	assert_refused(EUCLEAN, keys[count - 1]);
	spill(keys[count - 1], other, other_len);
	assert_whole();
}
END_TEST

// One that is gone leaves those behind it, by which it is missed: also the first, and all but the last.
START_TEST(an_entry_that_is_gone_is_missed)
{
	char keys[64][CKPT_LOG_KEY_MAX], from[PATH_MAX], to[PATH_MAX];
	unsigned count = entries(keys, ARRAY_LEN(keys));

	for (unsigned i = 0; i + 1 < count; i++) {
		struct ckpt_store *s;

		path_of(from, keys[i]);
		path_of(to, "aside");
		ck_assert_int_eq(rename(from, to), 0);
		assert_refused(EUCLEAN, keys[i]);
		ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &s));
		ck_assert_uint_eq(ckpt_journal_damaged(s->journal), i + 1);
		ck_assert_uint_eq(ckpt_journal_position(s->journal).seq, count);
		ckpt_store_close(s);
		ck_assert_int_eq(rename(to, from), 0);
	}
	assert_whole();
}
END_TEST

START_TEST(an_entry_of_a_newer_version_is_refused)
{
	static uint8_t data[RECORD_BYTES_MAX];
	char keys[64][CKPT_LOG_KEY_MAX];
	unsigned count = entries(keys, ARRAY_LEN(keys));
	size_t len = slurp(keys[count - 1], data);
	struct ckpt_store *s;

	data[REQUIRED_AT + 7] |= 0x40; // a feature that nobody knows yet
	ckpt_sample_reseal(data, len);
	spill(keys[count - 1], data, len);
	ck_error(ckpt_store_open(dir, CKPT_STORE_WRITE, NULL, &s), ENOTSUP);
}
END_TEST

// With all entries, and with those alone that are behind a snapshot or that it names.
START_TEST(a_snapshot_says_what_the_entries_before_it_said)
{
	struct ckpt_store *s;

	for (int round = 0; round < 3; round++) {
		s = ckpt_save_open(dir);
		ck_ok(ckpt_journal_snapshot(s->journal, true));
		if (round) {
			struct ckpt_step *step = ckpt_save_find(s, 0);

			ck_ok(ckpt_pin(step, round == 1));
			ckpt_step_unref(step);
		}
		ckpt_store_close(s);
		if (round == 0)
			assert_whole();
		s = ckpt_save_open(dir);
		ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_COMMITTED), CKPT_SAVE_STEPS);
		ckpt_store_close(s);
	}
}
END_TEST

// --- Manifests ----------------------------------------------------------------------------------------------------------------

static void damage_manifests(void)
{
	char command[PATH_MAX + 128];

	snprintf(command, sizeof(command),
		 "for f in '%s'/m/*; do printf X | dd of=\"$f\" bs=1 seek=300 conv=notrunc 2>/dev/null; done", dir);
	ck_assert_int_eq(system(command), 0);
}

START_TEST(a_damaged_manifest_is_an_error_and_not_other_files)
{
	struct ckpt_manifest *m;
	struct ckpt_step *step;
	struct ckpt_store *s;

	damage_manifests();
	s = ckpt_save_open(dir); // the index still has it, and its digest agrees
	step = ckpt_save_find(s, CKPT_SAVE_LARGE);
	ckpt_save_check_step(step, CKPT_SAVE_LARGE);
	ckpt_step_unref(step);
	ckpt_store_close(s);
	forget("index");
	s = ckpt_save_open(dir);
	step = ckpt_save_find(s, CKPT_SAVE_LARGE);
	ck_error(ckpt_step_manifest(step, &m), EBADMSG);
	ck_assert_uint_eq(ckpt_save_errors(s, "the manifest of version 2 is damaged"), 1);
	ckpt_step_unref(step);
	ckpt_store_close(s);
}
END_TEST

// --- The index ----------------------------------------------------------------------------------------------------------------

START_TEST(an_index_that_is_removed_or_damaged_changes_nothing)
{
	uint8_t noise[8192];
	uint64_t state = 7;

	forget("index");
	assert_whole();
	for (int round = 0; round < 8; round++) {
		char path[PATH_MAX];

		path_of(path, "index/data.mdb");
		for (size_t i = 0; i < sizeof(noise); i++)
			noise[i] = (uint8_t)ckpt_sample_random(&state, 256);
		CLEANUP_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
		ck_assert_int_ge(pwrite(fd, noise, sizeof(noise), (off_t)(ckpt_sample_random(&state, 8) * 4096)), 1);
		assert_whole();
	}
	spill("index/data.mdb", "", 0);
	assert_whole();
	spill("index/data.mdb", "short", 5);
	assert_whole();
	forget("index/lock.mdb");
	assert_whole();
}
END_TEST

START_TEST(the_index_of_another_store_is_not_believed)
{
	char other[PATH_MAX], from[PATH_MAX], to[PATH_MAX];
	struct ckpt_store *s;

	ckpt_save_init(other);
	s = ckpt_save_open(other);
	ckpt_step_unref(ckpt_save_one(s, 0));
	ckpt_store_close(s);
	snprintf(from, sizeof(from), "%.*s/index", PATH_MAX - 16, other);
	path_of(to, "index");
	forget("index");
	ck_assert_int_eq(rename(from, to), 0);
	assert_whole();
}
END_TEST

// --- Sessions -----------------------------------------------------------------------------------------------------------------

START_TEST(what_is_no_session_is_not_seen)
{
	struct ckpt_store *s;

	make_dir("sessions/not a uuid");
	spill("sessions/01234567-89ab-4def-8123-456789abcdef", "a file", 6);
	assert_whole();
	s = ckpt_save_open(dir);
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_LEFT), 0);
	ckpt_store_close(s);
}
END_TEST

static Suite *load_suite(void)
{
	Suite *suite = suite_create("load");
	TCase *tcase = tcase_create("load");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_reader_that_looks_again_sees_new_steps_and_keeps_the_old);
	tcase_add_test(tcase, a_reader_takes_no_live_session_of_another_for_a_left_one);
	tcase_add_test(tcase, a_look_that_failed_is_taken_again);
	tcase_add_test(tcase, threads_that_look_at_once_all_see_everything);
	tcase_add_test(tcase, a_damaged_entry_is_told_and_not_written_behind);
	tcase_add_test(tcase, an_entry_that_is_missing_or_anothers_is_noticed);
	tcase_add_test(tcase, an_entry_that_is_gone_is_missed);
	tcase_add_test(tcase, an_entry_of_a_newer_version_is_refused);
	tcase_add_test(tcase, a_snapshot_says_what_the_entries_before_it_said);
	tcase_add_test(tcase, a_damaged_manifest_is_an_error_and_not_other_files);
	tcase_add_test(tcase, an_index_that_is_removed_or_damaged_changes_nothing);
	tcase_add_test(tcase, the_index_of_another_store_is_not_believed);
	tcase_add_test(tcase, what_is_no_session_is_not_seen);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(load_suite());
}
