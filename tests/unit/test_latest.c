// Which step is the newest: by each order, behind the newest, in one folder and in all; and which steps do not count.
#include "tests/support/fixture.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/delete.h"
#include "core/save/remove.h"
#include "core/step/latest.h"

#include <stdio.h>

#define FOLDER "0123456789abcdef"

// A committed step, as if it had been read from the store.
static void loaded(const char *folder_id, const char *name, uint64_t sequence, int64_t first_ns, int64_t mtime_ns)
{
	static unsigned sessions;
	struct ckpt_summary summary = {
		.version = 1,
		.number = ckpt_name_number(name),
		.sequence = sequence,
		.committed_ns = first_ns,
		.first_committed_ns = first_ns,
		.dir_mtime_ns = mtime_ns,
	};

	snprintf(summary.folder_id, sizeof(summary.folder_id), "%s", folder_id);
	snprintf(summary.name, sizeof(summary.name), "%s", name);
	snprintf(summary.session, sizeof(summary.session), "00000000-0000-4000-8000-%012u", ++sessions);
	ck_ok(ckpt_step_enter(s, &(struct ckpt_said){.is = summary}));
}

static void is(const char *folder_id, enum ckpt_latest_by by, size_t back, const char *name) // NULL: there is none
{
	struct ckpt_latest latest;
	int rc = ckpt_latest(s, folder_id, by, back, &latest);

	if (name) {
		ck_ok(rc);
		ck_assert_str_eq(latest.name, name);
	} else {
		ck_error(rc, ENOENT);
	}
}

START_TEST(each_order_has_its_newest)
{
	//                        commit  first  mtime
	loaded("", "3000", 1, 40, 10);
	loaded("", "1000", 2, 20, 40);
	loaded("", "2000", 4, 30, 20);
	loaded("", "best", 9, 90, 90); // without a number: behind all that have one
	loaded("", "release", 8, 99, 80);
	is("", CKPT_LATEST_BY_COMMIT, 0, "2000");
	is("", CKPT_LATEST_BY_STEP, 0, "3000");
	is("", CKPT_LATEST_BY_TIMESTAMP, 0, "3000");
	is("", CKPT_LATEST_BY_MTIME, 0, "1000");
}
END_TEST

START_TEST(steps_behind_the_newest_are_found_by_their_place)
{
	const char *by_commit[] = {"2000", "1000", "3000", "best", "release", NULL},
		   *by_step[] = {"3000", "2000", "1000", "best", "release", NULL};

	is("", CKPT_LATEST_BY_COMMIT, 0, NULL);
	is("", CKPT_LATEST_BY_COMMIT, 3, NULL);
	loaded("", "3000", 1, 0, 0);
	loaded("", "1000", 2, 0, 0);
	loaded("", "2000", 4, 0, 0);
	loaded("", "best", 9, 0, 0);
	loaded("", "release", 8, 0, 0);
	for (size_t back = 0; back < ARRAY_LEN(by_commit); back++) {
		is("", CKPT_LATEST_BY_COMMIT, back, by_commit[back]);
		is("", CKPT_LATEST_BY_STEP, back, by_step[back]);
	}
}
END_TEST

START_TEST(the_later_commit_wins_among_equals)
{
	loaded("", "step_7", 1, 5, 5);
	loaded("", "checkpoint-7", 3, 5, 5);
	loaded("", "7", 2, 5, 5);
	for (enum ckpt_latest_by by = CKPT_LATEST_BY_COMMIT; by <= CKPT_LATEST_BY_MTIME; by++)
		is("", by, 0, "checkpoint-7");
}
END_TEST

START_TEST(folders_have_a_newest_each_and_the_store_one)
{
	struct ckpt_latest latest;

	loaded("", "5", 7, 0, 0);
	loaded(FOLDER, "3", 8, 0, 0);
	loaded(FOLDER, "4", 6, 0, 0);
	is("", CKPT_LATEST_BY_COMMIT, 0, "5");
	is("", CKPT_LATEST_BY_COMMIT, 1, NULL);
	is(FOLDER, CKPT_LATEST_BY_COMMIT, 0, "3");
	is(FOLDER, CKPT_LATEST_BY_STEP, 0, "4");
	is(NULL, CKPT_LATEST_BY_COMMIT, 0, "3");
	is("fedcba9876543210", CKPT_LATEST_BY_COMMIT, 0, NULL);
	ck_ok(ckpt_latest(s, NULL, CKPT_LATEST_BY_STEP, 1, &latest));
	ck_assert_str_eq(latest.folder_id, FOLDER);
	ck_ok(ckpt_latest(s, FOLDER, CKPT_LATEST_BY_STEP, 0, &latest));
	ck_assert_uint_eq(latest.newest_sequence, 8); // whatever the order chose
}
END_TEST

static struct ckpt_step *save(const char *name)
{
	return ckpt_staged_one(s, name, "model.bin", "the bytes");
}

START_TEST(only_steps_that_are_committed_and_not_on_their_way_out_count)
{
	struct ckpt_step *steps[] = {save("1000"), save("2000"), save("3000")};
	struct ckpt_step *staged = ckpt_staged_begin(s, "4000");

	is("", CKPT_LATEST_BY_COMMIT, 0, "3000");
	ck_ok(ckpt_delete(steps[2]));
	is("", CKPT_LATEST_BY_COMMIT, 0, "2000");
	ck_ok(ckpt_staged_remove(steps[1], "model.bin"));
	is("", CKPT_LATEST_BY_COMMIT, 0, "1000");
	is("", CKPT_LATEST_BY_COMMIT, 1, NULL);
	ck_ok(ckpt_delete(steps[0]));
	is("", CKPT_LATEST_BY_COMMIT, 0, NULL);
	ck_ok(ckpt_undelete(steps[2]));
	is("", CKPT_LATEST_BY_COMMIT, 0, "3000");
	for (size_t i = 0; i < ARRAY_LEN(steps); i++)
		ckpt_step_unref(steps[i]);
	ckpt_step_unref(staged);
}
END_TEST

START_TEST(a_step_whose_framework_writes_latest_is_told_even_while_it_is_staged)
{
	struct ckpt_latest latest;
	struct ckpt_step *staged;

	loaded("", "step_7", 1, 5, 5);
	loaded(FOLDER, "global_step7", 2, 5, 5);
	ck_ok(ckpt_latest(s, "", CKPT_LATEST_BY_COMMIT, 0, &latest));
	ck_assert(!latest.framework_writes_it);
	ck_ok(ckpt_latest(s, FOLDER, CKPT_LATEST_BY_COMMIT, 0, &latest));
	ck_assert(latest.framework_writes_it);
	staged = ckpt_staged_begin(s, "global_step8");
	ck_ok(ckpt_latest(s, "", CKPT_LATEST_BY_COMMIT, 0, &latest));
	ck_assert(latest.framework_writes_it);
	ck_assert_str_eq(latest.name, "step_7");
	ckpt_step_unref(staged);
}
END_TEST

// Not a measurement, but a pass over so many must stay one: sorting them would be far over this, on any machine.
START_TEST(ten_thousand_steps_are_one_pass)
{
	struct ckpt_latest latest;
	char name[32];
	int64_t began;

	for (unsigned i = 0; i < 10000; i++) {
		snprintf(name, sizeof(name), "%u", i * 7919 % 10000);
		loaded("", name, i + 1, i, i);
	}
	began = ckpt_sys.mono_ns();
	for (unsigned i = 0; i < 100; i++)
		ck_ok(ckpt_latest(s, "", CKPT_LATEST_BY_STEP, 0, &latest));
	fprintf(stderr, "latest of 10000 steps: %lld us\n", (long long)(ckpt_sys.mono_ns() - began) / 100000);
	ck_assert_str_eq(latest.name, "9999");
	is("", CKPT_LATEST_BY_STEP, 9999, "0");
}
END_TEST

static Suite *suite(void)
{
	Suite *all = suite_create("latest");
	TCase *t = tcase_create("latest");

	tcase_add_checked_fixture(t, ckpt_fixture_open, ckpt_fixture_close);
	tcase_add_test(t, each_order_has_its_newest);
	tcase_add_test(t, steps_behind_the_newest_are_found_by_their_place);
	tcase_add_test(t, the_later_commit_wins_among_equals);
	tcase_add_test(t, folders_have_a_newest_each_and_the_store_one);
	tcase_add_test(t, only_steps_that_are_committed_and_not_on_their_way_out_count);
	tcase_add_test(t, a_step_whose_framework_writes_latest_is_told_even_while_it_is_staged);
	tcase_add_test(t, ten_thousand_steps_are_one_pass);
	suite_add_tcase(all, t);
	return all;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
