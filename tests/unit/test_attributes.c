// Attributes that are changed in a committed step: seen at once, in one version afterwards, and kept by what is made of the step.
#include "core/record/event.h"
#include "core/save/change.h"
#include "core/save/reopen.h"
#include "tests/support/fixture.h"

#include "backends/backends.h"
#include "core/base/lock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/record/manifest.h"
#include "core/save/amend.h"
#include "core/save/delete.h"
#include "core/save/share.h"
#include "core/step/attributes.h"
#include "core/step/reopened.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define WAIT_MS 10000

static struct ckpt_step *step;
static struct ckpt_manifest *m; // of the version that was committed
static struct ckpt_fault fault;

static void setup(void)
{
	int fd;

	ckpt_fixture_open();
	step = ckpt_staged_begin(s, "1000");
	fd = ckpt_staged_put(step, "model.bin", "committed");
	ck_ok(ckpt_sys.fsetxattr(fd, "user.old", "old", 3, 0));
	close(fd);
	ck_ok(ckpt_sys.mkdir(step->dirfd, "sub", 0755));
	close(ckpt_staged_put(step, "sub/w", "w"));
	ck_ok(ckpt_sys.link(step->dirfd, "sub/w", step->dirfd, "linked"));
	ck_ok(ckpt_sys.symlink("model.bin", step->dirfd, "link"));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	m = ckpt_staged_manifest(step);
	fault = (struct ckpt_fault){0};
	ckpt_save_fault(s, &fault);
}

static void teardown(void)
{
	ckpt_manifest_unref(m);
	ckpt_step_unref(step);
	ckpt_fixture_close();
}

static struct ckpt_entry entry_in(struct ckpt_manifest *of, const char *path)
{
	struct ckpt_entry e;
	uint32_t index;

	ck_ok(ckpt_manifest_lookup(of, path, &index));
	ckpt_manifest_entry(of, index, &e);
	return e;
}

static int set(const char *path, struct ckpt_attributes_new what)
{
	struct ckpt_manifest *now = ckpt_staged_manifest(step);
	struct ckpt_entry e = entry_in(now, path);
	int rc = ckpt_change_attributes(step, now, &e, &what);

	ckpt_manifest_unref(now);
	return rc;
}

static int set_mode(const char *path, uint32_t mode)
{
	return set(path, (struct ckpt_attributes_new){.which = CKPT_ATTRIBUTE_MODE, .mode = mode});
}

static int set_time(const char *path, int64_t mtime_s)
{
	return set(path,
		   (struct ckpt_attributes_new){.which = CKPT_ATTRIBUTE_MTIME, .mtime_s = mtime_s, .mtime_ns = 5});
}

static int set_xattr(const char *path, const char *name, const char *value, int flags)
{
	struct ckpt_manifest *now = ckpt_staged_manifest(step);
	struct ckpt_entry e = entry_in(now, path);
	int rc = ckpt_change_xattr(step, now, &e, name, value, value ? strlen(value) : 0, flags);

	ckpt_manifest_unref(now);
	return rc;
}

// As who reads by that manifest sees it.
static uint32_t mode_by(struct ckpt_manifest *of, const char *path)
{
	struct ckpt_entry e = entry_in(of, path);

	ckpt_attributes_apply(step, of, &e);
	return e.mode;
}

static uint32_t mode_now(const char *path)
{
	struct ckpt_manifest *now = ckpt_staged_manifest(step);
	uint32_t mode = mode_by(now, path);

	ckpt_manifest_unref(now);
	return mode;
}

static bool has_xattr(const char *path, const char *name, const char *value)
{
	struct ckpt_manifest *now = ckpt_staged_manifest(step);
	struct ckpt_entry e = entry_in(now, path);
	const struct ckpt_xattr *have;
	struct ckpt_xattrs x;
	bool has;

	ck_ok(ckpt_attributes_xattrs(step, now, &e, &x));
	have = ckpt_xattrs_find(&x, name);
	has = have && have->len == strlen(value) && !memcmp(have->value, value, have->len);
	ckpt_xattrs_done(&x);
	ckpt_manifest_unref(now);
	return has;
}

// As the thread leaves it that makes a version of changes.
static struct ckpt_summary summary_now(void)
{
	LOCK_SCOPE(&step->lock);

	return step->version->is;
}

static bool has_changes(void)
{
	LOCK_SCOPE(&step->lock);

	return ckpt_changed_of(step)->attributes;
}

static void until_version(uint32_t version)
{
	for (int i = 0; i < WAIT_MS && summary_now().version < version; i++)
		usleep(1000);
	ck_assert_uint_eq(summary_now().version, version);
}

static void reopen_store(void)
{
	ckpt_step_unref(step);
	ckpt_manifest_unref(m);
	ckpt_fixture_reopen();
	step = ckpt_step_find(s, "", "1000");
	m = ckpt_staged_manifest(step);
}

START_TEST(changes_are_seen_at_once_and_are_one_version_a_second_after_the_last)
{
	int64_t began = ckpt_sys.mono_ns();

	ck_ok(set_mode("model.bin", 0600));
	ck_assert_uint_eq(mode_now("model.bin"), 0600);
	ck_assert_uint_eq(step->version->is.version, 1);
	usleep(600000);
	ck_ok(set_time("sub", 1000));
	ck_ok(set_mode("", 0750));
	ck_ok(set_xattr("sub", "user.new", "new", 0));
	until_version(2);
	ck_assert_int_ge(ckpt_sys.mono_ns() - began, INT64_C(1500000000));
	ck_assert_str_eq(summary_now().event, CKPT_EVENT_EDIT);
	ck_assert_uint_eq(summary_now().dir_mode, 0750);
	ck_assert_uint_eq(mode_by(m, "model.bin"), 0600); // who still reads by the version before
	for (int i = 0; i < WAIT_MS && has_changes(); i++)
		usleep(1000);
	ck_assert(!has_changes());
	reopen_store();
	ck_assert_uint_eq(step->version->is.version, 2);
	ck_assert_uint_eq(mode_now("model.bin"), 0600);
	ck_assert_int_eq(entry_in(m, "sub").mtime_s, 1000);
	ck_assert(has_xattr("sub", "user.new", "new") && has_xattr("model.bin", "user.old", "old"));
}
END_TEST

START_TEST(changes_that_go_on_are_a_version_after_five_seconds)
{
	int64_t began = ckpt_sys.mono_ns();

	for (uint32_t i = 0; summary_now().version == 1; i++) {
		ck_ok(set_mode("model.bin", 0600 + i % 8));
		usleep(200000);
		ck_assert_int_lt(ckpt_sys.mono_ns() - began, INT64_C(8000000000));
	}
	ck_assert_int_ge(ckpt_sys.mono_ns() - began, INT64_C(5000000000));
}
END_TEST

START_TEST(what_an_attribute_is_already_is_no_change)
{
	struct ckpt_entry e = entry_in(m, "model.bin");

	ck_ok(set("model.bin", (struct ckpt_attributes_new){.which = 15,
							    .mode = e.mode,
							    .uid = e.uid,
							    .gid = e.gid,
							    .mtime_s = e.mtime_s,
							    .mtime_ns = e.mtime_ns}));
	ck_assert_ptr_null(ckpt_changed_of(step)->attributes);
	ck_ok(set_mode("model.bin", 0600));
	ck_ok(set_mode("model.bin", e.mode));
	ck_ok(ckpt_change_publish(step));
	ck_assert(!ckpt_attributes_any(step));
	ck_assert_uint_eq(mode_now("model.bin"), e.mode);
}
END_TEST

START_TEST(a_change_of_one_hard_link_is_one_of_all)
{
	ck_ok(set_mode("linked", 0600));
	ck_assert_uint_eq(mode_now("sub/w"), 0600);
	ck_ok(ckpt_change_publish(step));
	reopen_store();
	ck_assert_uint_eq(mode_now("sub/w"), 0600);
	ck_assert_uint_eq(mode_now("linked"), 0600);
	ck_assert_uint_eq(entry_in(m, "linked").nlink, 2);
}
END_TEST

START_TEST(xattrs_are_set_and_removed_as_their_flags_say)
{
	ck_error(set_xattr("model.bin", "user.old", "x", XATTR_CREATE), EEXIST);
	ck_error(set_xattr("model.bin", "user.new", "x", XATTR_REPLACE), ENODATA);
	ck_error(set_xattr("model.bin", "user.new", NULL, 0), ENODATA);
	ck_ok(set_xattr("model.bin", "user.new", "", XATTR_CREATE));
	ck_assert(has_xattr("model.bin", "user.new", ""));
	ck_ok(set_xattr("model.bin", "user.old", NULL, 0));
	ck_error(set_xattr("model.bin", "user.old", NULL, 0), ENODATA);
	ck_assert(!has_xattr("model.bin", "user.old", "old"));
	ck_ok(ckpt_change_publish(step));
	ck_assert_uint_eq(step->version->is.version, 2);
	reopen_store();
	ck_assert(has_xattr("model.bin", "user.new", "") && !has_xattr("model.bin", "user.old", "old"));
}
END_TEST

START_TEST(xattrs_have_a_limit_and_leave_room_for_ours)
{
	static char much[CKPT_XATTR_BYTES_MAX + 1];

	memset(much, 'x', sizeof(much) - 1);
	ck_error(set_xattr("model.bin", "user.much", much, 0), ENOSPC);
	much[CKPT_XATTR_BYTES_MAX - 200] = '\0';
	ck_ok(set_xattr("model.bin", "user.much", much, 0));
	ck_ok(set_mode("model.bin", 0600));
	ck_ok(ckpt_change_publish(step));
	ck_assert(has_xattr("model.bin", "user.much", much));
}
END_TEST

START_TEST(an_addition_brings_them_along)
{
	ck_ok(set_mode("model.bin", 0600));
	{
		char path[64];

		snprintf(path, sizeof(path), "%s/more", step->session);
		ck_ok(ckpt_sys.mkdir(s->sessions_fd, path, 0755));
	}
	ck_ok(ckpt_amend_add(step, "more"));
	ck_assert(!ckpt_attributes_any(step));
	ck_assert_uint_eq(step->version->is.version, 2);
	reopen_store();
	ck_assert_uint_eq(mode_now("model.bin"), 0600);
	ck_assert(ckpt_staged_has(step, "more"));
}
END_TEST

// The raw file's attributes are others: the manifest says which, once and for good.
START_TEST(what_the_raw_file_has_is_known)
{
	struct ckpt_entry was = entry_in(m, "model.bin"), e;
	struct timespec mtime;
	uint32_t mode;

	ck_assert(!ckpt_attributes_raw(m, &was, &mode, &mtime));
	ck_ok(set_mode("model.bin", 0600));
	ck_ok(ckpt_change_publish(step));
	ck_ok(set_time("model.bin", 1000));
	ck_ok(ckpt_change_publish(step));
	ckpt_manifest_unref(m);
	m = ckpt_staged_manifest(step);
	e = entry_in(m, "model.bin");
	ck_assert(ckpt_attributes_raw(m, &e, &mode, &mtime));
	ck_assert_uint_eq(mode, was.mode);
	ck_assert_int_eq(mtime.tv_sec, was.mtime_s);
	ck_assert_int_eq(mtime.tv_nsec, was.mtime_ns);
	e = entry_in(m, "sub/w");
	ck_assert(!ckpt_attributes_raw(m, &e, &mode, &mtime));
}
END_TEST

// Shared elsewhere before: 1, or not: 0.
START_TEST(a_reopened_step_has_them)
{
	struct ckpt_step *now;
	struct stat st;
	char value[8];
	int fd;

	if (_i) {
		struct ckpt_step *other = ckpt_staged_begin(s, "2000");

		ck_ok(ckpt_share_entry(step, m, entry_in(m, "model.bin").index, other->dirfd, "model.bin"));
		ckpt_step_unref(other);
	}
	ck_ok(set_mode("model.bin", 0604));
	ck_ok(set_time("sub/w", 1000));
	ck_ok(set_xattr("model.bin", "user.old", NULL, 0));
	ck_ok(set_xattr("model.bin", "user.new", "new", 0));
	ck_ok(ckpt_reopen(step, &now));
	ck_assert_uint_eq(step->version->is.version, 2);
	ck_assert_int_eq(fstatat(now->dirfd, "model.bin", &st, 0), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0604);
	ck_assert_int_eq(fstatat(now->dirfd, "sub/w", &st, 0), 0);
	ck_assert_int_eq(st.st_mtim.tv_sec, 1000);
	fd = openat(now->dirfd, "model.bin", O_RDONLY);
	ck_assert_int_eq(fgetxattr(fd, "user.new", value, sizeof(value)), 3);
	ck_assert_int_lt(fgetxattr(fd, "user.old", value, sizeof(value)), 0);
	close(fd);
	ck_error(set_mode("model.bin", 0600), EAGAIN);
	ck_ok(ckpt_commit(now, &ckpt_staged_plain));
	ckpt_step_unref(step);
	step = now;
	ck_assert_uint_eq(mode_now("model.bin"), 0604);
	ckpt_staged_check(step, "model.bin", "committed");
}
END_TEST

START_TEST(a_version_that_fails_is_tried_again_and_they_are_seen_all_the_while)
{
	fault = (struct ckpt_fault){.at = 1, .sticky = true, .error = -ENOSPC};
	ck_ok(set_mode("model.bin", 0600));
	for (int i = 0; i < WAIT_MS && !ckpt_save_errors(s, "that is not on disk yet"); i++)
		usleep(1000);
	ck_assert_uint_eq(ckpt_save_errors(s, "that is not on disk yet"), 1);
	ck_assert_uint_eq(mode_now("model.bin"), 0600);
	fault.at = 0;
	until_version(2);
	reopen_store();
	ck_assert_uint_eq(mode_now("model.bin"), 0600);
}
END_TEST

START_TEST(an_orderly_end_makes_a_version_of_them)
{
	ck_ok(set_mode("model.bin", 0600));
	reopen_store();
	ck_assert_uint_eq(step->version->is.version, 2);
	ck_assert_uint_eq(mode_now("model.bin"), 0600);
}
END_TEST

START_TEST(a_deletion_drops_them)
{
	uint32_t mode = entry_in(m, "model.bin").mode;

	ck_ok(set_mode("model.bin", 0600));
	ck_ok(ckpt_delete(step));
	ck_error(set_mode("model.bin", 0640), EROFS);
	for (int i = 0; i < WAIT_MS && has_changes(); i++)
		usleep(1000);
	ck_assert(!has_changes());
	ck_ok(ckpt_undelete(step));
	ck_assert_uint_eq(mode_now("model.bin"), mode);
}
END_TEST

START_TEST(many_files_are_one_version)
{
	struct ckpt_step *many = ckpt_staged_begin(s, "2000");
	char name[16];

	for (int i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "%d", i);
		close(ckpt_staged_put(many, name, "x"));
	}
	ck_ok(ckpt_commit(many, &ckpt_staged_plain));
	ckpt_step_unref(step);
	step = many;
	for (int i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "%d", i);
		ck_ok(set_mode(name, 0600 + (uint32_t)i % 64));
	}
	ck_ok(ckpt_change_publish(step));
	ck_assert_uint_eq(step->version->is.version, 2);
	for (int i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "%d", i);
		ck_assert_uint_eq(mode_now(name), 0600 + (uint32_t)i % 64);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("attributes");
	TCase *tcase = tcase_create("attributes");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 30);
	tcase_add_test(tcase, changes_are_seen_at_once_and_are_one_version_a_second_after_the_last);
	tcase_add_test(tcase, changes_that_go_on_are_a_version_after_five_seconds);
	tcase_add_test(tcase, what_an_attribute_is_already_is_no_change);
	tcase_add_test(tcase, a_change_of_one_hard_link_is_one_of_all);
	tcase_add_test(tcase, xattrs_are_set_and_removed_as_their_flags_say);
	tcase_add_test(tcase, xattrs_have_a_limit_and_leave_room_for_ours);
	tcase_add_test(tcase, an_addition_brings_them_along);
	tcase_add_test(tcase, what_the_raw_file_has_is_known);
	tcase_add_loop_test(tcase, a_reopened_step_has_them, 0, 2);
	tcase_add_test(tcase, a_version_that_fails_is_tried_again_and_they_are_seen_all_the_while);
	tcase_add_test(tcase, an_orderly_end_makes_a_version_of_them);
	tcase_add_test(tcase, a_deletion_drops_them);
	tcase_add_test(tcase, many_files_are_one_version);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
