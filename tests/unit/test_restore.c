// The files of an earlier version as the next one: what is refused, why, and what the hint says then; and that bytes which are in packs come
// from there, unless they are gone.
#include "core/save/restore.h"
#include "tests/support/fixture.h"
#include "tests/support/packed.h"

#include "backends/backends.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/pack.h"
#include "core/objects/objects.h"
#include "core/save/amend.h"
#include "core/save/delete.h"
#include "core/save/reopen.h"
#include "core/step/amending.h"

#include <fcntl.h>

static struct ckpt_step *step;

// Version 2 has another text, version 3 is without the folder.
static void setup(void)
{
	ckpt_fixture_open();
	step = ckpt_staged_begin(s, "1000");
	ck_ok(ckpt_sys.mkdir(step->dirfd, "d", 0755));
	close(ckpt_staged_put(step, "a", "first"));
	close(ckpt_staged_put(step, "d/x", "x"));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	step->dirfd = ckpt_sys.open(s->sessions_fd, step->session, O_RDONLY | O_DIRECTORY, 0);
	close(ckpt_staged_put(step, ".again", "second"));
	ck_ok(ckpt_amend_replace(step, "a", ".again"));
	ck_ok(ckpt_amend_remove(step, "d"));
}

static void teardown(void)
{
	ckpt_step_unref(step);
	ckpt_fixture_close();
}

static uint32_t version(void)
{
	LOCK_SCOPE(&step->lock);

	return step->version->is.version;
}

static void refuse(int error, uint32_t of, const char *hint)
{
	uint32_t before = version();
	int rc = ckpt_restore(step, of);

	ck_assert_int_eq(rc, error);
	ck_assert_uint_eq(version(), before);
	ck_assert_ptr_nonnull(ckpt_restore_hint(rc));
	ck_assert_msg(strstr(ckpt_restore_hint(rc), hint), "%s", ckpt_restore_hint(rc));
	ck_assert_uint_eq(ckpt_save_errors(s, "could not be restored"), 0); // who asked is told
}

START_TEST(each_version_can_be_had_back)
{
	ck_ok(ckpt_restore(step, 1));
	ckpt_staged_check(step, "a", "first");
	ckpt_staged_check(step, "d/x", "x");
	ck_ok(ckpt_restore(step, 3));
	ckpt_staged_check(step, "a", "second");
	ck_assert(!ckpt_staged_has(step, "d"));
	refuse(-ESTALE, 2, "has expired"); // of edits within an hour the last stays
	ck_assert_uint_eq(version(), 5);
}
END_TEST

START_TEST(what_cannot_be_restored_says_why)
{
	struct ckpt_step *changed;

	refuse(-ENOENT, 9, "has expired");
	refuse(-EALREADY, 3, "has these files now");
	ck_ok(ckpt_sys.unlink(step->dirfd, "a", 0)); // as a disk that was repaired leaves it
	refuse(-ENODATA, 1, "ckptfs verify");
	ck_ok(ckpt_staged_remove(step, "a"));
	refuse(-EBUSY, 2, "being changed or removed");
	ck_assert_ptr_null(ckpt_restore_hint(-ENOSPC)); // what goes for it anywhere
	ckpt_step_unref(TAKE_PTR(step));
	step = ckpt_staged_one(s, "2000", "a", "text");
	ck_ok(ckpt_reopen(step, &changed));
	ck_error(ckpt_restore_files(step, 1), EBUSY);
	ckpt_step_unref(changed);
}
END_TEST

START_TEST(a_step_that_is_gone_gets_no_files)
{
	ck_ok(ckpt_delete(step));
	ck_error(ckpt_restore_files(step, 1), ESTALE);
	ck_assert_ptr_nonnull(strstr(ckpt_restore_hint(-ESTALE), "the step is gone"));
}
END_TEST

// Its raw files are gone by then, and its packs are those of an older version alone.
START_TEST(bytes_come_from_packs)
{
	struct ckpt_pack pack;
	struct ckpt_chunk chunk;
	char key[CKPT_PACK_KEY_MAX];

	ck_ok(ckpt_cool_sealed(step, &(struct ckpt_tier_how){0}, &(struct ckpt_tier_done){0}));
	pack = ckpt_packed_place(step, "a", &chunk);
	ck_ok(ckpt_amend_remove(step, "a"));
	if (_i) {
		ckpt_pack_key(pack.id, key);
		ck_ok(ckpt_objects_remove(s->objects, key));
		ck_error(ckpt_restore_files(step, version() - 1), ENODATA);
		return;
	}
	ck_ok(ckpt_restore_files(step, version() - 1));
	ck_ok(ckpt_packed_read(step, "a", "second"));
}
END_TEST

static struct ckpt_fault fault;

START_TEST(a_disk_that_fails_is_told_of_and_leaves_the_version)
{
	static const struct {
		int error;
		bool half;
		const char *told;
	} ways[] = {{-ENOSPC, false, "the files of version 1 could not be restored"},
		    {-EIO, true, "outcome unknown: cannot confirm that it has the files of version 1"}};

	ckpt_save_fault(s, &fault);
	fault = (struct ckpt_fault){.at = 1, .error = ways[_i].error, .half = ways[_i].half, .sticky = true};
	ck_error(ckpt_restore_files(step, 1), -ways[_i].error);
	ck_assert_uint_eq(ckpt_save_errors(s, ways[_i].told), 1);
	fault.at = 0;
	ck_ok(ckpt_amending_settle(step));
	ck_assert(!ckpt_restore_files(step, 1) || version() == 4);
	ckpt_staged_check(step, "a", "first");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("restore");
	TCase *files = tcase_create("files");

	tcase_add_checked_fixture(files, setup, teardown);
	tcase_add_test(files, each_version_can_be_had_back);
	tcase_add_test(files, what_cannot_be_restored_says_why);
	tcase_add_test(files, a_step_that_is_gone_gets_no_files);
	tcase_add_loop_test(files, bytes_come_from_packs, 0, 2);
	tcase_add_loop_test(files, a_disk_that_fails_is_told_of_and_leaves_the_version, 0, 2);
	suite_add_tcase(suite, files);
	return ckpt_suite_run(suite);
}
