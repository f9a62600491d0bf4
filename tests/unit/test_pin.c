// A pin: a version of its own, which keeps the step from being deleted and from nothing else.
#include "core/save/version.h"
#include "core/step/removal.h"
#include "core/store/open.h"
#include "tests/support/disk.h"
#include "tests/support/fixture.h"
#include "tests/support/sysfault.h"

#include "backends/backends.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/amend.h"
#include "core/save/delete.h"
#include "core/save/move.h"
#include "core/save/pin.h"
#include "core/save/remove.h"

#include <stdio.h>

static void save(const char *name, const char *text)
{
	ckpt_step_unref(ckpt_staged_one(s, name, "model.bin", text));
}

static void setup(void)
{
	ckpt_fixture_open();
	save("1000", "one");
}

static int pin(const char *name, bool pinned)
{
	struct ckpt_step *step = ckpt_step_find(s, "", name);
	int rc = ckpt_pin(step, pinned);

	ckpt_step_unref(step);
	return rc;
}

static int delete (const char *name)
{
	struct ckpt_step *step = ckpt_step_find(s, "", name);
	int rc = ckpt_delete(step);

	ckpt_step_unref(step);
	return rc;
}

static struct ckpt_summary summary(struct ckpt_store *store, const char *name)
{
	struct ckpt_step *step = ckpt_step_find(store, "", name);
	struct ckpt_summary found;

	ck_assert_ptr_nonnull(step);
	found = step->version->is;
	ckpt_staged_check(step, "model.bin", "one");
	ckpt_step_unref(step);
	return found;
}

START_TEST(a_pin_is_a_version_with_the_same_files_and_place)
{
	struct ckpt_summary before, after;
	struct ckpt_store *reader;

	save("2000", "two");
	before = summary(s, "1000");
	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &reader));
	for (int again = 0; again < 2; again++)
		ck_ok(pin("1000", true));
	for (int again = 0; again < 2; again++) {
		after = summary(s, "1000");
		ck_assert(!before.pinned && after.pinned);
		ck_assert_uint_eq(after.version, before.version + 1);
		ck_assert_uint_eq(after.sequence, before.sequence);
		ck_assert_int_eq(after.first_committed_ns, before.first_committed_ns);
		ck_assert_str_eq(after.event, before.event);
		ck_assert_mem_eq(after.manifest_sha256, before.manifest_sha256, 32);
		ckpt_fixture_reopen();
	}
	ckpt_store_close(reader);
	ck_ok(pin("1000", false));
	ck_ok(pin("1000", false));
	ck_assert_uint_eq(summary(s, "1000").version, before.version + 2);
	ckpt_fixture_reopen();
	ck_assert(!summary(s, "1000").pinned);
}
END_TEST

START_TEST(a_pinned_step_is_not_deleted_in_any_way)
{
	struct ckpt_step *step = ckpt_step_find(s, "", "1000");
	struct ckpt_manifest *m;

	ck_ok(ckpt_step_manifest(step, &m));
	ck_ok(pin("1000", true));
	ck_error(delete ("1000"), EPERM);
	ck_error(ckpt_amend_remove(step, "model.bin"), EPERM);
	ck_error(ckpt_remove_entry(step, m, 0, "model.bin", false, 0), EPERM);
	ck_error(ckpt_remove_entry(step, m, 0, "none", false, 0), ENOENT);
	ck_assert(!ckpt_removal_any(step));
	ck_assert_uint_eq(ckpt_save_errors(s, "it is pinned"), 1); // not one for each file
	ck_assert(summary(s, "1000").pinned);
	ck_ok(pin("1000", false));
	ck_ok(ckpt_staged_remove(step, "model.bin"));
	ck_error(ckpt_pin(step, true), EBUSY); // it is being removed
	ck_ok(ckpt_remove_whole(step));
	ck_error(ckpt_pin(step, true), ESTALE);
	ckpt_manifest_unref(m);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(a_pin_goes_with_the_step_and_not_with_what_is_saved_over_it)
{
	struct ckpt_step *step;

	ck_ok(pin("1000", true));
	step = ckpt_step_find(s, "", "1000");
	ck_ok(ckpt_commit_metadata(step, "{\"extras\":{}}"));
	ck_ok(ckpt_move(step, "", "best"));
	ckpt_step_unref(step);
	ck_assert(summary(s, "best").pinned);
	ckpt_fixture_reopen();
	ck_assert(summary(s, "best").pinned);
	ck_error(delete ("best"), EPERM);
}
END_TEST

// Each call fails, once or from there on; then the process ends, or goes on and asks again.
START_TEST(a_call_that_fails_leaves_it_pinned_or_not)
{
	bool pinned = false;

	for (int mode = 0; mode < 4; mode++) {
		bool failed = true;

		for (uint64_t at = 1; failed; at++) {
			struct ckpt_sysfault fault = {
				.at = at, .error = -EIO, .sticky = mode & 1, .changes_only = true};
			int rc;

			ckpt_sysfault_begin(&fault);
			rc = pin("1000", !pinned);
			ckpt_sysfault_end(&fault);
			failed = fault.count >= at;
			ck_assert(rc == 0 || failed);
			if (rc && mode & 2)
				ck_ok(pin("1000", !pinned));
			ckpt_fixture_reopen();
			if (rc == 0 || mode & 2)
				ck_assert_int_eq(summary(s, "1000").pinned, !pinned);
			pinned = summary(s, "1000").pinned;
		}
	}
}
END_TEST

START_TEST(a_pin_whose_answer_was_lost_once_is_done)
{
	struct ckpt_fault fault = {0};
	bool fired = true, pinned = false;
	uint64_t n;
	int rc;

	ckpt_save_fault(s, &fault);
	for (n = 1; fired; n++) {
		fault = (struct ckpt_fault){.at = n, .error = -ENOMEM, .half = true}; // a read fails, a put is done
		rc = pin("1000", !pinned);
		fired = fault.count >= n;
		fault.at = 0;
		ck_assert_msg(!rc || (fired && (rc == -ENOMEM || rc == -EIO)), "%s", strerror(-rc));
		if (rc)
			ck_ok(pin("1000", !pinned)); // asking again gives the answer
		pinned = !pinned;
		ck_assert(summary(s, "1000").pinned == pinned);
	}
	ck_assert_uint_gt(n, 1);
	ckpt_fixture_reopen();
	ck_assert(summary(s, "1000").pinned == pinned);
}
END_TEST

START_TEST(a_pin_that_was_acknowledged_survives_the_power)
{
	struct ckpt_disk *disk;
	char out[PATH_MAX];

	ckpt_store_close(s);
	ck_ok(ckpt_disk_begin(dir, &disk));
	s = ckpt_save_open(dir);
	ck_ok(pin("1000", true));
	size_t acknowledged = ckpt_disk_count(disk);
	ckpt_store_close(s);
	ckpt_disk_end(disk);
	ckpt_temp_dir(out);
	for (size_t point = 0; point <= ckpt_disk_count(disk); point++)
		for (uint64_t seed = 0; seed < 4; seed++) {
			struct ckpt_store *cut;

			ckpt_temp_empty(out, 0);
			ck_ok(ckpt_disk_crash(disk, point, seed, out));
			ck_ok(ckpt_store_open(out, CKPT_STORE_WRITE, NULL, &cut));
			bool pinned = summary(cut, "1000").pinned;
			ck_assert_msg(pinned || point < acknowledged, "point %zu, seed %llu", point,
				      (unsigned long long)seed);
			ckpt_store_close(cut);
		}
	ckpt_disk_free(disk);
	s = ckpt_save_open(dir);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pin");
	TCase *tcase = tcase_create("pin");

	tcase_add_checked_fixture(tcase, setup, ckpt_fixture_close);
	tcase_add_test(tcase, a_pin_is_a_version_with_the_same_files_and_place);
	tcase_add_test(tcase, a_pinned_step_is_not_deleted_in_any_way);
	tcase_add_test(tcase, a_pin_goes_with_the_step_and_not_with_what_is_saved_over_it);
	tcase_add_test(tcase, a_call_that_fails_leaves_it_pinned_or_not);
	tcase_add_test(tcase, a_pin_whose_answer_was_lost_once_is_done);
	tcase_add_test(tcase, a_pin_that_was_acknowledged_survives_the_power);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
