// A file that is moved into a committed step, over what has its name or not; and acts on a step whose place an edit has taken, which are
// acts on that.
#include "core/save/amend.h"
#include "tests/support/fixture.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/record/metadata.h"
#include "core/save/reopen.h"
#include "core/save/restore.h"
#include "core/save/stage.h"
#include "core/step/amending.h"

#include <fcntl.h>
#include <stdio.h>

static struct ckpt_step *base, *edited; // a committed step, and an edit of it that has its place, or NULL

static void setup(void)
{
	ckpt_fixture_open();
	base = ckpt_staged_begin(s, "1000");
	close(ckpt_staged_put(base, "config.json", "committed"));
	ck_ok(ckpt_sys.mkdir(base->dirfd, "sub", 0755));
	close(ckpt_staged_put(base, "sub/w", "w"));
	ck_ok(ckpt_commit(base, &ckpt_staged_plain));
	edited = NULL;
}

static void teardown(void)
{
	ckpt_step_unref(edited);
	ckpt_step_unref(base);
	ckpt_fixture_close();
}

static int session_fd(const struct ckpt_step *step)
{
	int fd = ckpt_sys.open(s->sessions_fd, step->session, O_RDONLY | O_DIRECTORY, 0);

	ck_ok(fd);
	return fd;
}

static void put_raw(const char *raw, const char *text)
{
	CLEANUP_FD int dirfd = session_fd(base), fd = ckpt_sys.open(dirfd, raw, O_RDWR | O_CREAT | O_EXCL, 0644);

	ck_ok(fd);
	ck_ok(ckpt_sys.pwrite(fd, text, strlen(text), 0));
}

static bool has_raw(const struct ckpt_step *step, const char *raw)
{
	CLEANUP_FD int dirfd = session_fd(step);

	return !faccessat(dirfd, raw, F_OK, AT_SYMLINK_NOFOLLOW);
}

static uint32_t version_of(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	return step->version->is.version;
}

// --- Over what is there --------------------------------------------------------------------------------------------------

START_TEST(a_file_that_is_moved_in_takes_a_name_and_leaves_the_version_before)
{
	const char *path = _i ? "new.json" : "config.json";

	put_raw(".in-1", "moved in");
	ck_ok(ckpt_amend_add_over(base, path, ".in-1"));
	ck_assert_uint_eq(version_of(base), 2);
	ckpt_staged_check(base, path, "moved in");
	ckpt_staged_check(base, "sub/w", "w");
	ck_ok(ckpt_restore_files(base, 1));
	ckpt_staged_check(base, "config.json", "committed");
	ck_assert(!ckpt_staged_has(base, "new.json"));
}
END_TEST

START_TEST(a_link_is_moved_in_over_a_file)
{
	CLEANUP_FD int dirfd = session_fd(base);
	struct ckpt_manifest *m;
	struct ckpt_entry e;
	uint32_t index;

	ck_ok(ckpt_sys.symlink("sub/w", dirfd, ".in-1"));
	ck_ok(ckpt_amend_add_over(base, "config.json", ".in-1"));
	m = ckpt_staged_manifest(base);
	ck_ok(ckpt_manifest_lookup(m, "config.json", &index));
	ckpt_manifest_entry(m, index, &e);
	ck_assert_int_eq(e.type, CKPT_ENTRY_SYMLINK);
	ck_assert_str_eq(e.target, "sub/w");
	ckpt_manifest_unref(m);
}
END_TEST

// As after an answer that was lost: no second version is made.
START_TEST(what_was_moved_in_before_is_there)
{
	put_raw(".in-1", "moved in");
	ck_ok(ckpt_amend_add_over(base, "config.json", ".in-1"));
	__atomic_store_n(&ckpt_amending_of(base)->amend_unknown, true, __ATOMIC_RELAXED);
	ck_ok(ckpt_amend_add_over(base, "config.json", ".in-1"));
	ck_assert_uint_eq(version_of(base), 2);
	ckpt_staged_check(base, "config.json", "moved in");
}
END_TEST

START_TEST(what_an_evaluation_says_is_known_once_its_file_is_moved_in)
{
	struct ckpt_record r;

	put_raw(".in-1", "{\"loss\": 0.5}");
	ck_ok(ckpt_amend_add_over(base, CKPT_METRICS_FILE, ".in-1"));
	put_raw(".in-2", "{\"loss\": 0.25}");
	ck_ok(ckpt_amend_add_over(base, CKPT_METRICS_FILE, ".in-2"));
	ck_ok(ckpt_step_record(base, version_of(base), &r));
	ck_assert_str_eq(r.metadata, "{\"metrics\":{\"loss\":0.25}}");
	ckpt_record_done(&r);
}
END_TEST

START_TEST(what_cannot_be_moved_in_leaves_the_step_as_it_was)
{
	char deep[PATH_MAX + 2];

	memset(deep, 'd', sizeof(deep));
	deep[PATH_MAX] = '/';
	deep[PATH_MAX + 1] = '\0';
	put_raw(".in-1", "moved in");
	ck_error(ckpt_amend_add_over(base, "sub", ".in-1"), EISDIR);
	ck_error(ckpt_amend_add_over(base, "nowhere/x", ".in-1"), ENOENT);
	ck_error(ckpt_amend_add_over(base, "config.json/x", ".in-1"), ENOTDIR);
	ck_error(ckpt_amend_add_over(base, deep, ".in-1"), ENAMETOOLONG);
	ck_error(ckpt_amend_add_over(base, "config.json", ".in-2"), ENOENT);
	ck_error(ckpt_amend_remove(base, ""), EINVAL);
	ck_assert_uint_eq(version_of(base), 1);
	ck_assert(has_raw(base, ".in-1"));
	ckpt_staged_check(base, "config.json", "committed");
}
END_TEST

// --- A step whose place an edit has taken ----------------------------------------------------------------------------------

// As another node's edit takes it: the step of before is a deleted one.
static void edit_removing(const char *path)
{
	const struct ckpt_commit how = {
		.event = "quiet", .profile = "generic", .keeps_metadata = true, .keeps_place = true};

	ck_ok(ckpt_reopen(base, &edited));
	ck_ok(ckpt_stage_enter(edited, true));
	if (path)
		ck_ok(ckpt_sys.unlink(edited->dirfd, path, 0));
	ckpt_stage_leave(edited);
	ck_ok(ckpt_commit(edited, &how));
	ck_assert_int_eq(ckpt_step_state(base), CKPT_STEP_DELETED);
}

// Its bytes go from one step's directory to that of the other.
START_TEST(what_is_added_to_a_step_is_in_the_edit_that_has_its_place)
{
	edit_removing("sub/w");
	put_raw(".in-1", "added");
	ck_ok(_i ? ckpt_amend_add_over(base, "config.json", ".in-1") : ckpt_amend_add_raw(base, "new.json", ".in-1"));
	ckpt_staged_check(edited, _i ? "config.json" : "new.json", "added");
	ck_assert(!ckpt_staged_has(edited, "sub/w"));
	ck_assert(!has_raw(base, ".in-1"));
	ck_assert_int_eq(ckpt_step_state(base), CKPT_STEP_DELETED);
}
END_TEST

START_TEST(what_is_removed_from_a_step_is_not_in_the_edit_that_has_its_place)
{
	edit_removing(NULL);
	ck_ok(ckpt_amend_remove(base, "config.json"));
	ck_assert(!ckpt_staged_has(edited, "config.json"));
	ckpt_staged_check(edited, "sub/w", "w");
}
END_TEST

// A file that the edit does not take is not lost: its bytes stay where the caller has put them.
START_TEST(what_the_edit_does_not_take_stays_where_it_was)
{
	edit_removing(NULL);
	put_raw(".in-1", "not added");
	ck_error(ckpt_amend_add_over(base, "sub", ".in-1"), EISDIR);
	ck_error(ckpt_amend_add_raw(base, "nowhere/x", ".in-1"), ENOENT);
	ck_error(ckpt_amend_remove(base, "nowhere"), ENOENT);
	ck_assert(has_raw(base, ".in-1"));
	ck_ok(ckpt_amend_add_raw(base, "new.json", ".in-1"));
	ckpt_staged_check(edited, "new.json", "not added");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("amend over");
	TCase *over = tcase_create("over"), *successor = tcase_create("successor");

	tcase_add_checked_fixture(over, setup, teardown);
	tcase_add_loop_test(over, a_file_that_is_moved_in_takes_a_name_and_leaves_the_version_before, 0, 2);
	tcase_add_test(over, a_link_is_moved_in_over_a_file);
	tcase_add_test(over, what_was_moved_in_before_is_there);
	tcase_add_test(over, what_an_evaluation_says_is_known_once_its_file_is_moved_in);
	tcase_add_test(over, what_cannot_be_moved_in_leaves_the_step_as_it_was);
	suite_add_tcase(suite, over);
	tcase_add_checked_fixture(successor, setup, teardown);
	tcase_add_loop_test(successor, what_is_added_to_a_step_is_in_the_edit_that_has_its_place, 0, 2);
	tcase_add_test(successor, what_is_removed_from_a_step_is_not_in_the_edit_that_has_its_place);
	tcase_add_test(successor, what_the_edit_does_not_take_stays_where_it_was);
	suite_add_tcase(suite, successor);
	return ckpt_suite_run(suite);
}
