// What a store's open believes: records that are whole and say what their key says; and of the index nothing that the
// store does not say too.
#include "tests/support/formats.h"
#include "tests/support/rows.h"
#include "tests/support/save.h"

#include "backends/backends.h"
#include "core/base/sys.h"
#include "core/base/util.h"
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

// Neither its record nor its session is there.
static struct ckpt_store *open_without(const char *key)
{
	char record[64];
	struct ckpt_store *s;
	struct ckpt_step *step;

	snprintf(record, sizeof(record), "steps/%s", key);
	forget(record);
	s = ckpt_save_open(dir);
	step = ckpt_save_unfinished(s);
	ck_ok(ckpt_stage_abort(step, false));
	ckpt_step_unref(step);
	return s;
}

START_TEST(a_reader_that_looks_again_sees_new_steps_and_keeps_the_old)
{
	struct ckpt_store *reader, *s;
	struct ckpt_step *kept;

	s = open_without("1003");
	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &reader));
	ck_assert_ptr_null(ckpt_save_find(reader, 4));
	kept = ckpt_save_find(reader, 0);
	ck_ok(ckpt_load_refresh(reader)); // nothing is new
	ckpt_step_unref(ckpt_save_one(s, 4));
	ckpt_store_close(s);
	ck_ok(ckpt_load_refresh(reader));
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

START_TEST(a_left_session_that_turns_out_to_be_a_steps_is_dropped)
{
	char record[PATH_MAX], aside[PATH_MAX];
	struct ckpt_store *reader;
	struct ckpt_step *seen;

	path_of(record, "steps/1000");
	path_of(aside, "aside");
	ck_assert_int_eq(rename(record, aside), 0);
	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &reader));
	ck_assert_uint_eq(ckpt_save_count(reader, CKPT_STEP_LEFT), 1);
	ck_assert_int_eq(rename(aside, record), 0);
	ck_ok(ckpt_load_refresh(reader));
	seen = ckpt_save_find(reader, 0);
	ck_assert_ptr_nonnull(seen);
	ck_assert_uint_eq(ckpt_save_count(reader, CKPT_STEP_LEFT), 0);
	ckpt_step_unref(seen);
	ckpt_store_close(reader);
}
END_TEST

START_TEST(a_look_that_failed_is_taken_again)
{
	struct ckpt_fault fault = {.at = 1, .error = -EIO};
	struct ckpt_store *reader, *s;
	struct ckpt_step *seen;

	s = open_without("1003");
	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &reader));
	ckpt_step_unref(ckpt_save_one(s, 4));
	ckpt_store_close(s);
	ckpt_sys.sleep_ns(50000000); // the time of steps/ is one to be believed
	ck_ok(ckpt_fault_new(reader->objects, &fault, &reader->objects));
	ck_error(ckpt_load_refresh(reader), EIO);
	ck_ok(ckpt_load_refresh(reader));
	seen = ckpt_save_find(reader, 4);
	ck_assert_ptr_nonnull(seen);
	ckpt_step_unref(seen);
	ckpt_store_close(reader);
}
END_TEST

// What comes within a tick of the last look leaves steps/ with the same time.
START_TEST(a_time_within_the_tick_is_not_believed)
{
	struct timespec times[2] = {{.tv_sec = time(NULL) + 3600}, {.tv_sec = time(NULL) + 3600}};
	struct ckpt_store *reader, *s;
	struct ckpt_step *seen;
	char path[2 * PATH_MAX];

	snprintf(path, sizeof(path), "%s/steps", dir);
	s = open_without("1003");
	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &reader));
	ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
	ck_ok(ckpt_load_refresh(reader));
	ckpt_step_unref(ckpt_save_one(s, 4));
	ckpt_store_close(s);
	ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
	ck_ok(ckpt_load_refresh(reader));
	seen = ckpt_save_find(reader, 4);
	ck_assert_ptr_nonnull(seen);
	ckpt_step_unref(seen);
	ckpt_store_close(reader);
}
END_TEST

static void *refresh_in_thread(void *reader)
{
	return (void *)(intptr_t)ckpt_load_refresh(reader);
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

// --- Records ----------------------------------------------------------------------------------------------------------------

START_TEST(a_damaged_record_is_told_and_not_listed)
{
	static uint8_t data[RECORD_BYTES_MAX];
	size_t len = slurp("steps/1003/1", data);

	for (size_t at = 0; at < len; at += len / 7) {
		data[at] ^= 0x10;
		spill("steps/1003/1", data, len);
		data[at] ^= 0x10;
		forget("index");
		assert_lists("0123", "1003\tEBADMSG\tversion 1 is not listed");
	}
	spill("steps/1003/1", data, len - 1);
	forget("index");
	assert_lists("0123", NULL);
	spill("steps/1003/1", data, len);
	forget("index");
	assert_whole();
}
END_TEST

START_TEST(a_damaged_second_version_shows_the_first)
{
	forget("index");
	spill("steps/1000/2", "x", 1);
	assert_lists("01234", "1000\tEBADMSG\tversion 2 is not listed");
}
END_TEST

START_TEST(a_reader_knows_once_of_a_record_that_it_cannot_read)
{
	struct ckpt_store *reader;

	forget("index");
	spill("steps/1000/2", "x", 1);
	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &reader));
	for (int round = 0; round < 3; round++) {
		ck_assert_uint_eq(reader->unreadable_count, 1);
		ck_assert_str_eq(reader->unreadable[0], "1000");
		ck_ok(ckpt_load_steps(reader, false));
	}
	ckpt_store_close(reader);
}
END_TEST

START_TEST(a_record_that_expires_while_a_reader_looks_is_not_one_that_cannot_be_read)
{
	static const int errors[] = {-ENOENT, -EIO};

	forget("index");
	for (unsigned i = 0; i < ARRAY_LEN(errors); i++) {
		struct ckpt_fault fault = {.at = 2, .error = errors[i]}; // first the records are listed
		struct ckpt_store *reader;

		ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &reader));
		ck_ok(ckpt_fault_new(reader->objects, &fault, &reader->objects));
		ck_ok(ckpt_load_steps(reader, false));
		ck_assert_uint_eq(reader->unreadable_count, i);
		ck_assert_uint_eq(ckpt_save_errors(reader, "is not listed"), i);
		ckpt_store_close(reader);
	}
}
END_TEST

START_TEST(a_record_of_a_newer_version_is_told_and_not_listed)
{
	static uint8_t data[RECORD_BYTES_MAX];
	size_t len = slurp("steps/1003/1", data);

	data[REQUIRED_AT + 7] |= 0x40; // a feature that nobody knows yet
	ckpt_sample_reseal(data, len);
	spill("steps/1003/1", data, len);
	forget("index");
	assert_lists("0123", "newer ckptfs");
}
END_TEST

START_TEST(a_record_under_another_key_is_not_believed)
{
	static uint8_t data[RECORD_BYTES_MAX];
	size_t len = slurp("steps/1003/1", data);

	make_dir("steps/9999");
	spill("steps/9999/1", data, len);
	spill("steps/1003/2", data, len);
	assert_lists("01234", "9999\tEBADMSG");
	assert_lists("01234", "1003\tEBADMSG\tversion 2");
	forget("steps/9999");
	forget("steps/1003/2");
	assert_whole();
}
END_TEST

START_TEST(a_record_of_another_store_is_not_believed)
{
	static uint8_t data[RECORD_BYTES_MAX];
	char other[PATH_MAX], own[PATH_MAX];
	struct ckpt_store *s;
	size_t len;

	ckpt_save_init(other);
	s = ckpt_save_open(other);
	ckpt_step_unref(ckpt_save_one(s, 0));
	ckpt_store_close(s);
	memcpy(own, dir, sizeof(own));
	memcpy(dir, other, sizeof(dir));
	len = slurp("steps/1000/1", data);
	memcpy(dir, own, sizeof(dir));
	forget("steps/1000/2");
	spill("steps/1000/1", data, len);
	forget("index");
	assert_lists("1234", "1000\tEBADMSG\tversion 1");
}
END_TEST

START_TEST(what_is_no_record_is_not_seen)
{
	make_dir("steps/77");
	make_dir("steps/77/1");
	spill("steps/77/01", "x", 1);
	spill("steps/77/0", "x", 1);
	spill("steps/77/-1", "x", 1);
	spill("steps/77/one", "x", 1);
	spill("steps/77/99999999999", "x", 1);
	spill("steps/file", "x", 1);
	make_dir("steps/empty");
	assert_whole();
}
END_TEST

START_TEST(a_symlink_among_the_records_is_not_followed)
{
	char from[PATH_MAX], to[PATH_MAX];

	path_of(from, "steps/1003");
	ckpt_temp_dir(to);
	strcat(to, "/moved");
	ck_assert_int_eq(rename(from, to), 0);
	ck_assert_int_eq(symlink(to, from), 0);
	assert_lists("0123", NULL);
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

static void index_edit(void (*edit)(struct ckpt_index *ix))
{
	struct ckpt_store *s = ckpt_save_open(dir);

	edit(s->index);
	ckpt_store_close(s);
}

static void add_phantoms(struct ckpt_index *ix)
{
	struct ckpt_summary sum;

	ckpt_sample_summary(&sum, "phantom", 1);
	sum.folder_id[0] = '\0';
	ck_ok(ckpt_index_put(ix, "phantom", &sum, NULL, 0));
	ck_ok(ckpt_rows_get(ix, "1003", 1, &sum));
	sum.version = 2;
	ck_ok(ckpt_index_put(ix, "1003", &sum, NULL, 0));
}

START_TEST(what_only_the_index_knows_is_not_listed_and_removed_from_it)
{
	struct ckpt_store *s;
	struct ckpt_summary sum;

	index_edit(add_phantoms);
	assert_whole();
	s = ckpt_save_open(dir);
	ck_error(ckpt_rows_get(s->index, "phantom", 1, &sum), ENOENT);
	ck_error(ckpt_rows_get(s->index, "1003", 2, &sum), ENOENT);
	ckpt_store_close(s);
}
END_TEST

static void drop_some(struct ckpt_index *ix)
{
	ck_ok(ckpt_index_remove(ix, "1003", 1));
	ck_ok(ckpt_index_remove(ix, "1000", 2));
}

START_TEST(what_the_index_lacks_is_read_from_the_store_and_put_there)
{
	struct ckpt_store *s;
	struct ckpt_summary sum;

	index_edit(drop_some);
	assert_whole();
	s = ckpt_save_open(dir);
	ck_ok(ckpt_rows_get(s->index, "1003", 1, &sum));
	ck_ok(ckpt_rows_get(s->index, "1000", 2, &sum));
	ckpt_store_close(s);
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
	tcase_add_test(tcase, a_left_session_that_turns_out_to_be_a_steps_is_dropped);
	tcase_add_test(tcase, a_look_that_failed_is_taken_again);
	tcase_add_test(tcase, a_time_within_the_tick_is_not_believed);
	tcase_add_test(tcase, threads_that_look_at_once_all_see_everything);
	tcase_add_test(tcase, a_damaged_record_is_told_and_not_listed);
	tcase_add_test(tcase, a_damaged_second_version_shows_the_first);
	tcase_add_test(tcase, a_reader_knows_once_of_a_record_that_it_cannot_read);
	tcase_add_test(tcase, a_record_that_expires_while_a_reader_looks_is_not_one_that_cannot_be_read);
	tcase_add_test(tcase, a_record_of_a_newer_version_is_told_and_not_listed);
	tcase_add_test(tcase, a_record_under_another_key_is_not_believed);
	tcase_add_test(tcase, a_record_of_another_store_is_not_believed);
	tcase_add_test(tcase, what_is_no_record_is_not_seen);
	tcase_add_test(tcase, a_symlink_among_the_records_is_not_followed);
	tcase_add_test(tcase, a_damaged_manifest_is_an_error_and_not_other_files);
	tcase_add_test(tcase, an_index_that_is_removed_or_damaged_changes_nothing);
	tcase_add_test(tcase, what_only_the_index_knows_is_not_listed_and_removed_from_it);
	tcase_add_test(tcase, what_the_index_lacks_is_read_from_the_store_and_put_there);
	tcase_add_test(tcase, the_index_of_another_store_is_not_believed);
	tcase_add_test(tcase, what_is_no_session_is_not_seen);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(load_suite());
}
