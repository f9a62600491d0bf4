// The neighbour of a staged step: which file the step lacks, of those that the newest step beside it has or had.
#include "core/save/neighbour.h"
#include "tests/support/fixture.h"

#include "backends/backends.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/amend.h"
#include "core/save/amend_move.h"
#include "core/save/delete.h"
#include "core/save/move.h"
#include "core/save/reopen.h"
#include "core/step/amending.h"
#include "core/tier/cool.h"

#include <fcntl.h>
#include <stdio.h>

static struct ckpt_step *step, *other; // the staged one; its neighbour, or NULL

static void setup(void)
{
	ckpt_fixture_open();
	step = ckpt_staged_begin(s, "2000");
	other = NULL;
}

static void teardown(void)
{
	ckpt_step_unref(step);
	ckpt_step_unref(other);
	ckpt_fixture_close();
}

static void put(struct ckpt_step *in, const char *path)
{
	if (strstr(path, ".npy"))
		ckpt_staged_put_array(in, path, 'a', 8);
	else
		close(ckpt_staged_put(in, path, "{}"));
}

// Names with blanks between them.
static void put_all(struct ckpt_step *in, const char *paths)
{
	char all[256], *save = NULL;

	snprintf(all, sizeof(all), "%s", paths);
	for (char *path = strtok_r(all, " ", &save); path; path = strtok_r(NULL, " ", &save))
		put(in, path);
}

static void neighbour(const char *name, const char *paths)
{
	other = ckpt_staged_begin(s, name);
	put_all(other, paths);
	ck_ok(ckpt_commit(other, &ckpt_staged_plain));
}

static int compare(struct ckpt_lack *ret_lack)
{
	struct ckpt_survey survey = {.step = step};
	int rc;

	ck_ok(ckpt_survey_run(&survey));
	rc = ckpt_neighbour_compare(step, &survey, ret_lack);
	ckpt_survey_done(&survey);
	return rc;
}

// file NULL: none.
static void check_lacks(const char *file)
{
	struct ckpt_lack lack;

	ck_ok(compare(&lack));
	ck_assert_str_eq(lack.neighbour, other ? other->name : "");
	ck_assert_msg(lack.file && file ? !strcmp(lack.file, file) : lack.file == file, "it lacks %s, not %s",
		      lack.file ? lack.file : "nothing", file ? file : "nothing");
	ck_assert_uint_eq(lack.sequence, ckpt_neighbour_sequence(step));
	free(lack.file);
}

static const struct {
	const char *neighbour, *has; // its name and its files
	const char *step;            // the files of 2000
	const char *lacks;
} rows[] = {
	{NULL, "", "a.npy", NULL},
	{"1000", "a.npy config.json", "a.npy config.json", NULL},
	{"1000", "a.npy config.json", "a.npy config.json more.npy", NULL},
	{"1000", "a.npy config.json", "a.npy", "config.json"},
	{"1000", "a.npy config.json", "config.json", "a.npy"},
	{"1000", "m-1000.npy", "m-2000.npy", NULL},
	{"1000", "m-1000.npy", "m-1000.npy", NULL},
	{"1000", "m-1000.npy", "m-3000.npy", "m-1000.npy"},
	{"1000", "m-1000.npy m-2000.npy", "m-2000.npy", "m-1000.npy"}, // none counts twice
	{"1000", "m-1000.npy m-2000.npy", "m-1000.npy m-2000.npy", NULL},
	{"1000", "m-1000-of-2000.npy m-2000-of-2000.npy", "m-2000-of-2000.npy", "m-1000-of-2000.npy"},
	{"best", "m-1000.npy", "m-2000.npy", "m-1000.npy"}, // it has no number
	{"1000", "m-01000.npy", "m-02000.npy", NULL},
};

START_TEST(each_file_of_the_neighbour_has_one_of_its_own)
{
	if (rows[_i].neighbour)
		neighbour(rows[_i].neighbour, rows[_i].has);
	put_all(step, rows[_i].step);
	check_lacks(rows[_i].lacks);
	ck_assert(!rows[_i].neighbour == !ckpt_neighbour_sequence(step));
}
END_TEST

// --- A neighbour that was changed since ---------------------------------------------------------------------------------

static void add(const char *path)
{
	char raw[CKPT_AMENDING_RAW_MAX];

	ck_ok(ckpt_amending_raw_name(raw));
	put(other, path);
	ck_ok(ckpt_sys.rename(other->dirfd, path, other->dirfd, raw, 0));
	ck_ok(ckpt_amend_add_raw(other, path, raw));
}

static void cool(void)
{
	const struct ckpt_tier_how how = {0};
	struct ckpt_tier_done done;

	ck_ok(ckpt_cool_sealed(other, &how, &done));
}

// A file that was added later, as the report of an evaluation: the next save has no more reason to bring it than this one had.
START_TEST(of_what_was_added_since_arrays_count_alone)
{
	neighbour("1000", "a.npy");
	put_all(step, "a.npy");
	other->dirfd = ckpt_sys.open(s->sessions_fd, other->session, O_RDONLY | O_DIRECTORY, 0);
	add("metrics.json");
	check_lacks(NULL);
	add("ema.npy");
	check_lacks("ema.npy");
	put(step, "ema.npy");
	check_lacks(NULL);
	cool(); // its files are not looked into any more
	check_lacks(NULL);
}
END_TEST

// An array that was removed to save room is not missed; a text that somebody tidied away is.
START_TEST(of_what_was_removed_since_all_but_arrays_counts)
{
	neighbour("1000", "a.npy b.npy config.json");
	put_all(step, "a.npy");
	ck_ok(ckpt_amend_remove(other, "b.npy"));
	check_lacks("config.json");
	ck_ok(ckpt_amend_remove(other, "config.json"));
	check_lacks("config.json");
	put(step, "config.json");
	check_lacks(NULL);
	cool();
	check_lacks(NULL);
}
END_TEST

// --- Neighbours that are none --------------------------------------------------------------------------------------------

START_TEST(a_step_that_is_deleted_or_being_changed_is_no_neighbour)
{
	struct ckpt_step *changed = NULL;

	neighbour("1000", "a.npy config.json");
	put_all(step, "a.npy");
	check_lacks("config.json");
	if (_i)
		ck_ok(ckpt_delete(other));
	else
		ck_ok(ckpt_reopen(other, &changed));
	ckpt_step_unref(TAKE_PTR(other));
	check_lacks(NULL);
	ckpt_step_unref(changed);
}
END_TEST

// Its number does not count: a run may have begun at an older step again.
START_TEST(the_step_that_was_committed_last_is_the_neighbour)
{
	neighbour("1500", "a.npy config.json");
	put_all(step, "a.npy");
	check_lacks("config.json");
	ckpt_step_unref(other);
	neighbour("500", "a.npy");
	check_lacks(NULL);
}
END_TEST

// --- Disks that fail -------------------------------------------------------------------------------------------------------

static struct ckpt_fault fault;

// It is no answer that the step lacks nothing.
START_TEST(a_neighbour_that_cannot_be_read_is_an_error)
{
	struct ckpt_index *index;
	struct ckpt_lack lack;
	unsigned failed = 0;
	int rc = -EIO;

	other = ckpt_save_one(s, CKPT_SAVE_LARGE);
	ck_ok(ckpt_move_to(other, "1000"));
	ck_ok(ckpt_amend_remove(other, "model.bin"));
	ckpt_step_unref(TAKE_PTR(other));
	ckpt_step_unref(TAKE_PTR(step));
	ckpt_fixture_reopen();
	step = ckpt_staged_begin(s, "2000");
	put_all(step, "a.npy");
	ckpt_save_fault(s, &fault);
	index = TAKE_PTR(s->index); // else it has the manifest
	for (uint64_t n = 1; rc; n++) {
		ck_assert_uint_lt(n, 20);
		fault = (struct ckpt_fault){.at = n, .error = -EIO};
		rc = compare(&lack);
		ck_assert(!rc || rc == -EIO);
		failed += rc != 0;
	}
	fault.at = 0;
	s->index = index;
	ck_assert_uint_ge(failed, 2); // both manifests
	ck_assert_ptr_nonnull(lack.file);
	free(lack.file);
}
END_TEST

// --- Names -----------------------------------------------------------------------------------------------------------------

START_TEST(a_name_that_becomes_too_long_is_no_name)
{
	char path[PATH_MAX], renamed[PATH_MAX];

	memset(path, 'a', sizeof(path));
	path[PATH_MAX - 3] = '7';
	path[PATH_MAX - 2] = '\0';
	ck_assert(ckpt_neighbour_rename(path, 7, 9, renamed));
	ck_assert(!ckpt_neighbour_rename(path, 7, 1000, renamed));
	path[0] = '7';
	path[PATH_MAX - 3] = 'a';
	ck_assert(!ckpt_neighbour_rename(path, 7, 1000, renamed));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("neighbour");
	TCase *files = tcase_create("files");

	tcase_add_checked_fixture(files, setup, teardown);
	tcase_add_loop_test(files, each_file_of_the_neighbour_has_one_of_its_own, 0, (int)ARRAY_LEN(rows));
	tcase_add_test(files, of_what_was_added_since_arrays_count_alone);
	tcase_add_test(files, of_what_was_removed_since_all_but_arrays_counts);
	tcase_add_loop_test(files, a_step_that_is_deleted_or_being_changed_is_no_neighbour, 0, 2);
	tcase_add_test(files, the_step_that_was_committed_last_is_the_neighbour);
	tcase_add_test(files, a_neighbour_that_cannot_be_read_is_an_error);
	tcase_add_test(files, a_name_that_becomes_too_long_is_no_name);
	suite_add_tcase(suite, files);
	return ckpt_suite_run(suite);
}
