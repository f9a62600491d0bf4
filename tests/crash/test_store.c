// A store is made, and a setting of it is changed, when the power goes at any point: what was acknowledged is so, and what was cut off can be
// done again.
//
// CKPT_CRASH_SEEDS in the environment: states for each point of a power cut, 20 by default; CKPT_TEST_FULL=1: 80.
#include "core/step/store.h"
#include "core/store/open.h"
#include "tests/support/disk.h"
#include "tests/support/save.h"
#include "tests/support/staged.h"

#include "core/base/util.h"

#include <stdio.h>
#include <stdlib.h>

#define SETTING "trash"
#define SET "30d"

static struct {
	size_t made, set; // changes of the disk when each was acknowledged
} done;

static bool is_set(const char *dir)
{
	struct ckpt_settings settings;
	CLEANUP_FREE char *text = NULL;

	ck_ok(ckpt_store_settings(dir, &settings));
	text = ckpt_setting_text(ckpt_setting_find(SETTING), &settings);
	ckpt_settings_done(&settings);
	return text && !strcmp(text, SET);
}

static void check(const char *dir, size_t point)
{
	struct ckpt_store *s;

	if (!ckpt_store_probe(dir)) {
		ck_assert_uint_lt(point, done.made);
		ck_ok(ckpt_store_init(dir));
	}
	if (!is_set(dir)) {
		ck_assert_uint_lt(point, done.set);
		ck_ok(ckpt_store_set(dir, ckpt_setting_find(SETTING), SET));
		ck_assert(is_set(dir));
	}
	s = ckpt_save_open(dir);
	ckpt_step_unref(ckpt_staged_one(s, "1000", "model.bin", "weights"));
	ckpt_save_settle_all(s);
	ckpt_store_close(s);
}

START_TEST(power_cuts_at_every_point_keep_what_was_acknowledged)
{
	char dir[PATH_MAX], out[PATH_MAX];
	struct ckpt_disk *disk;
	size_t states = 0;

	ckpt_temp_dir(dir);
	ckpt_temp_dir(out);
	ck_ok(ckpt_disk_begin(dir, &disk));
	ck_ok(ckpt_store_init(dir));
	done.made = ckpt_disk_count(disk);
	ck_ok(ckpt_store_set(dir, ckpt_setting_find(SETTING), SET));
	done.set = ckpt_disk_count(disk);
	ckpt_disk_end(disk);
	ck_assert_uint_eq(ckpt_disk_unknown(disk), 0);
	for (size_t point = 0; point <= done.set; point++)
		for (unsigned k = 0; k < ckpt_suite_seeds(20, 80); k++, states++) {
			ck_ok(ckpt_disk_crash(disk, point, ckpt_disk_seed(k), out));
			check(out, point);
			ckpt_temp_empty(out, false);
		}
	printf("power: %zu states at %zu points\n", states, done.set + 1);
	ck_assert_uint_gt(done.set, done.made);
	ckpt_disk_free(disk);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store crash");
	TCase *tcase = tcase_create("power");

	tcase_add_test(tcase, power_cuts_at_every_point_keep_what_was_acknowledged);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
