// Older versions of a step: their files, wherever the bytes are by then; what keeps them; and what goes when they have expired.
#include "core/save/outdated.h"
#include "core/step/older.h"
#include "tests/support/fixture_gc.h"
#include "tests/support/hooks.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/amend.h"
#include "core/save/amend_move.h"
#include "core/save/delete.h"
#include "core/save/pin.h"
#include "core/save/reopen.h"
#include "core/save/restore.h"
#include "core/save/version.h"
#include "core/step/amending.h"
#include "core/step/trash.h"
#include "core/tier/seal.h"

#include <fcntl.h>
#include <stdio.h>

#define S_NS INT64_C(1000000000)
#define HOUR_NS (3600 * S_NS)
#define DAY_NS (24 * HOUR_NS)

static struct ckpt_step *step;
static int64_t (*real_now)(void);
static int64_t ahead_ns;
static int64_t apart_ns; // edits

// The thread of the trash asks, too.
static int64_t later(void)
{
	return real_now() + __atomic_load_n(&ahead_ns, __ATOMIC_RELAXED);
}

static void set_ahead(int64_t ns)
{
	__atomic_store_n(&ahead_ns, ns, __ATOMIC_RELAXED);
}

static void go_ahead(int64_t ns)
{
	__atomic_add_fetch(&ahead_ns, ns, __ATOMIC_RELAXED);
}

static void setup(void)
{
	set_ahead(0);
	apart_ns = 60 * S_NS;
	real_now = ckpt_hooks.now_ns;
	ckpt_hook_set(now_ns, later);
	ckpt_fixture_gc_open();
	step = ckpt_staged_begin(s, "1000");
	close(ckpt_staged_put(step, "config", "one"));
	close(ckpt_staged_put(step, "model", LONG_1));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
}

static void teardown(void)
{
	ckpt_step_unref(step);
	ckpt_fixture_gc_close();
	ckpt_hook_set(now_ns, real_now);
}

static void reopen(void)
{
	ckpt_step_unref(TAKE_PTR(step));
	ckpt_fixture_gc_reopen();
	step = ckpt_step_find(s, "", "1000");
	ck_assert_ptr_nonnull(step);
}

static void put_at(const char *path, const char *text)
{
	CLEANUP_FD int dirfd = ckpt_sys.open(s->sessions_fd, step->session, O_RDONLY | O_DIRECTORY, 0);
	CLEANUP_FD int fd = ckpt_sys.open(dirfd, path, O_RDWR | O_CREAT | O_EXCL, 0644);

	ck_ok(fd);
	ck_ok(ckpt_sys.pwrite(fd, text, strlen(text), 0));
}

static void edit(const char *path, const char *text)
{
	char raw[CKPT_AMENDING_RAW_MAX];

	go_ahead(apart_ns);
	ck_ok(ckpt_amending_raw_name(raw));
	put_at(raw, text);
	ck_ok(ckpt_amend_replace(step, path, raw));
}

static void seal(void)
{
	ck_ok(ckpt_seal(step, &(struct ckpt_seal_how){0}));
}

static void cool(void)
{
	seal();
	(void)ckpt_packed_cool(step);
}

static void expire_versions(void)
{
	ckpt_trash_wake(*ckpt_trash_of(s));
	ckpt_trash_drain(*ckpt_trash_of(s));
}

static int open_version(int64_t number)
{
	CLEANUP_VERSION struct ckpt_version *v = NULL;
	struct ckpt_step *of;
	int rc = ckpt_older_find(step, number, &of, &v);

	if (!rc)
		ckpt_step_unref(of);
	return rc;
}

// 0, or why it cannot be read.
static int read_older(int64_t number, const char *path, char text[256])
{
	CLEANUP_VERSION struct ckpt_version *v = NULL;
	struct ckpt_manifest *m;
	struct ckpt_step *of;
	uint32_t index;
	ssize_t n;
	int rc = ckpt_older_find(step, number, &of, &v);

	if (rc)
		return rc;
	ck_ok(ckpt_step_read_manifest(of, &v->is, &m));
	rc = ckpt_manifest_lookup(m, path, &index);
	n = rc ? rc : ckpt_staged_read(of, m, index, text, 255);
	ckpt_manifest_unref(m);
	ckpt_step_unref(of);
	text[MAX(n, 0)] = '\0';
	return (int)MIN(n, 0);
}

#define ck_older(number, path, want)                                                                                   \
	do {                                                                                                           \
		char text_[256];                                                                                       \
		ck_ok(read_older(number, path, text_));                                                                \
		ck_assert_str_eq(text_, want);                                                                         \
	} while (0)

static bool is_raw(const char *path)
{
	char name[PATH_MAX];

	snprintf(name, sizeof(name), "%s/%s", step->session, path);
	return !faccessat(s->sessions_fd, name, F_OK, AT_SYMLINK_NOFOLLOW);
}

// --- Opening ------------------------------------------------------------------------------------------------------------

START_TEST(each_version_has_its_files)
{
	CLEANUP_VERSION struct ckpt_version *v = NULL;

	edit("config", "two");                                // 2
	ck_ok(ckpt_commit_metadata(step, "{\"extras\":{}}")); // 3
	seal();                                               // 4
	edit("config", "three");                              // 5
	ck_older(1, "config", "one");
	ck_older(2, "config", "two");
	ck_older(3, "config", "two");
	ck_older(4, "config", "two");
	ck_older(5, "config", "three");
	ck_older(0, "config", "three");
	ck_older(-1, "config", "two");
	ck_older(-2, "config", "one");
	ck_error(open_version(-3), ENOENT);
	ck_error(open_version(6), ENOENT);
	ck_error(open_version(INT64_MAX), ENOENT);
	ck_error(open_version(-INT64_MAX), ENOENT);
	ck_ok(ckpt_older_open(step, 2, &v));
	ck_assert_uint_eq(v->is.version, 4); // which says the most of its bytes
	ck_assert(v->is.sealed);
	reopen();
	ck_older(1, "config", "one");
	ck_older(-1, "config", "two");
}
END_TEST

START_TEST(what_a_re_save_has_replaced_is_an_older_version)
{
	struct ckpt_step *next;

	edit("config", "two");
	ck_ok(ckpt_reopen(step, &next));
	ck_ok(ckpt_sys.unlink(next->dirfd, "config", 0));
	close(ckpt_staged_put(next, "config", "three"));
	ck_ok(ckpt_commit(next, &ckpt_staged_plain));
	ckpt_step_unref(step);
	step = next;
	ck_older(3, "config", "three");
	ck_older(-1, "config", "two");
	ck_older(-2, "config", "one");
	ck_older(1, "config", "one");
	ck_error(open_version(-3), ENOENT);
	ck_error(ckpt_restore(step, 1), ENOENT); // it is another step's
}
END_TEST

// --- Packs --------------------------------------------------------------------------------------------------------------

START_TEST(an_older_version_is_read_of_the_packs_of_a_later_one)
{
	const struct ckpt_names names = {.from = "model", .to = "renamed"};

	set_ahead(HOUR_NS - real_now() % HOUR_NS + S_NS);
	ck_ok(ckpt_amend_move(step, &names)); // 2
	edit("config", "two");                // 3
	cool();                               // 4, 5
	ck_assert(!is_raw("model"));
	ck_assert(is_raw("config"));
	for (int round = 0; round < 2; round++) {
		ck_older(1, "model", LONG_1);
		ck_older(1, "config", "one");
		ck_older(2, "renamed", LONG_1);
		ck_older(3, "config", "two");
		gc_all();
		reopen();
	}
	edit("renamed", LONG_2); // from now on no current version has those bytes
	cool();
	gc_all();
	ck_older(1, "model", LONG_1);
	ck_older(5, "renamed", LONG_1);
	ck_older(0, "renamed", LONG_2);
	ck_older(1, "config", "one");
	go_ahead(2 * HOUR_NS); // the version with those packs is thinned, and they stay
	ck_error(open_version(5), ESTALE);
	expire_versions();
	gc_all();
	ck_older(1, "model", LONG_1);
	ck_older(1, "config", "one");
}
END_TEST

START_TEST(packs_of_older_versions_are_not_repacked_and_go_when_these_expire)
{
	size_t packs;

	cool();
	packs = ckpt_packed_count(s);
	edit("model", LONG_2);
	cool();
	gc_all();
	ck_assert_uint_gt(ckpt_packed_count(s), packs);
	ck_older(1, "model", LONG_1);
	set_ahead(8 * DAY_NS);
	ck_error(open_version(1), ESTALE);
	expire_versions();
	gc_all();
	ck_assert_uint_eq(ckpt_packed_count(s), packs);
	ck_assert_uint_eq(garbage(), 0);
	ck_ok(ckpt_packed_read(step, "model", LONG_2));
	ck_ok(ckpt_packed_read(step, "config", "one"));
}
END_TEST

START_TEST(of_many_edits_in_a_row_packs_are_looked_for_once)
{
	cool();
	for (int i = 0; i < 5; i++)
		edit("config", i & 1 ? "odd" : "even");
	gc_all();
	ck_older(-5, "config", "one");
	ck_older(-1, "config", "odd");
	ck_older(-1, "model", LONG_1);
}
END_TEST

// --- Restoring ----------------------------------------------------------------------------------------------------------

START_TEST(an_older_version_comes_back)
{
	uint32_t before;

	edit("config", "two");
	before = step->version->is.version;
	ck_ok(ckpt_restore(step, 1));
	ck_assert_uint_eq(step->version->is.version, before + 1);
	ck_ok(ckpt_packed_read(step, "config", "one"));
	ck_error(ckpt_restore(step, 1), EALREADY);
	ck_error(ckpt_restore(step, 9), ENOENT);
	ck_older(-1, "config", "two");
	ck_ok(ckpt_restore(step, 2));
	ck_ok(ckpt_packed_read(step, "config", "two"));
}
END_TEST

START_TEST(an_older_version_comes_back_whose_bytes_only_a_later_one_has_in_packs)
{
	edit("config", "two");
	cool();
	edit("model", LONG_2);
	cool();
	ck_ok(ckpt_restore(step, 1));
	gc_all();
	reopen();
	ck_ok(ckpt_packed_read(step, "model", LONG_1));
	ck_ok(ckpt_packed_read(step, "config", "one"));
	cool();
	gc_all();
	ck_ok(ckpt_packed_read(step, "model", LONG_1));
	ck_ok(ckpt_packed_read(step, "config", "one"));
}
END_TEST

START_TEST(what_has_expired_does_not_come_back)
{
	edit("config", "two");
	set_ahead(8 * DAY_NS);
	ck_error(ckpt_restore(step, 1), ESTALE);
	expire_versions();
	ck_error(ckpt_restore(step, 1), ESTALE);
	set_ahead(0); // the clock is set back: its raw file is gone all the same
	ck_error(ckpt_restore(step, 1), ESTALE);
	ck_error(open_version(1), ESTALE);
	reopen();
	ck_error(open_version(1), ESTALE);
	ck_ok(ckpt_packed_read(step, "config", "two"));
}
END_TEST

// --- Expiry -------------------------------------------------------------------------------------------------------------

START_TEST(raw_files_that_only_expired_versions_name_go)
{
	edit("config", "two");
	set_ahead(6 * DAY_NS);
	expire_versions();
	ck_assert(is_raw("config"));
	ck_older(1, "config", "one");
	set_ahead(8 * DAY_NS);
	edit("config", "three");
	expire_versions();
	ck_assert(!is_raw("config"));
	ck_assert(is_raw("model"));
	ck_older(2, "config", "two");
	ck_ok(ckpt_packed_read(step, "config", "three"));
	ck_ok(ckpt_packed_read(step, "model", LONG_1));
	set_ahead(16 * DAY_NS);
	expire_versions();
	ck_error(open_version(2), ESTALE);
	ck_ok(ckpt_packed_read(step, "config", "three"));
}
END_TEST

START_TEST(a_raw_file_that_a_later_version_names_again_stays)
{
	edit("config", "two");
	ck_ok(ckpt_restore(step, 1));
	set_ahead(8 * DAY_NS);
	expire_versions();
	ck_assert(is_raw("config"));
	ck_ok(ckpt_packed_read(step, "config", "one"));
	ck_error(open_version(1), ESTALE);
	ck_error(open_version(2), ESTALE);
}
END_TEST

START_TEST(versions_of_a_pinned_step_stay)
{
	edit("config", "two");
	ck_ok(ckpt_pin(step, true));
	set_ahead(100 * DAY_NS);
	expire_versions();
	ck_older(1, "config", "one");
	ck_ok(ckpt_pin(step, false));
	ck_error(open_version(1), ESTALE);
	expire_versions();
	ck_assert(!is_raw("config"));
}
END_TEST

// The clock is at the beginning of an hour.
START_TEST(of_edits_of_one_hour_the_last_one_stays)
{
	char text[8];

	set_ahead(HOUR_NS - real_now() % HOUR_NS + S_NS);
	for (int i = 2; i <= 5; i++) {
		snprintf(text, sizeof(text), "%d", i);
		edit("config", text);
	}
	go_ahead(HOUR_NS);
	edit("config", "6"); // of the next hour
	go_ahead(30 * 60 * S_NS);
	for (int64_t v = 2; v <= 4; v++)
		ck_error(open_version(v), ESTALE);
	expire_versions();
	ck_assert(is_raw("config"));
	ck_older(1, "config", "one"); // which was saved
	ck_older(5, "config", "5");
	ck_older(6, "config", "6");
	ck_error(open_version(4), ESTALE);
	go_ahead(8 * DAY_NS);
	expire_versions();
	ck_ok(ckpt_packed_read(step, "config", "6"));
}
END_TEST

START_TEST(edits_within_five_seconds_are_one)
{
	apart_ns = S_NS;
	edit("config", "two");
	edit("model", LONG_2);
	edit("config", "four");
	ck_error(open_version(2), ESTALE);
	ck_error(open_version(3), ESTALE);
	ck_older(-1, "config", "one");
	ck_older(-1, "model", LONG_1);
	ck_error(open_version(-2), ENOENT);
	expire_versions();
	ck_older(1, "config", "one");
	ck_ok(ckpt_packed_read(step, "config", "four"));
	ck_ok(ckpt_packed_read(step, "model", LONG_2));
}
END_TEST

START_TEST(restored_versions_are_not_thinned)
{
	set_ahead(HOUR_NS - real_now() % HOUR_NS + S_NS);
	edit("config", "two");
	ck_ok(ckpt_restore(step, 1)); // 3
	edit("config", "four");
	go_ahead(2 * HOUR_NS);
	ck_older(1, "config", "one");
	ck_older(2, "config", "two"); // what came then was no edit
	ck_older(3, "config", "one");
	ck_older(4, "config", "four");
}
END_TEST

START_TEST(while_a_step_is_reopened_its_raw_files_stay)
{
	struct ckpt_step *next;

	edit("config", "two");
	set_ahead(8 * DAY_NS);
	ck_ok(ckpt_reopen(step, &next));
	expire_versions();
	ck_assert(is_raw("config"));
	ckpt_step_unref(next);
}
END_TEST

static int (*real_random)(void *buf, size_t len);
static struct ckpt_step *reopened;

// The removal has chosen what goes, and asks for its names in trash/.
static int random_and_reopen(void *buf, size_t len)
{
	ckpt_hook_set(random, real_random);
	ck_ok(ckpt_reopen(step, &reopened));
	return real_random(buf, len);
}

START_TEST(when_a_step_is_reopened_meanwhile_its_raw_files_stay)
{
	static const bool stop = false;

	edit("config", "two");
	set_ahead(8 * DAY_NS);
	real_random = ckpt_hooks.random;
	ckpt_hook_set(random, random_and_reopen);
	ck_assert_int_lt(ckpt_outdated_remove(s, &stop), later() + HOUR_NS); // it is tried again
	ck_assert_ptr_nonnull(reopened);
	ck_assert(is_raw("config"));
	ckpt_step_unref(reopened);
}
END_TEST

static int (*real_rename)(int from_dirfd, const char *from, int to_dirfd, const char *to, unsigned flags);

static int fail_rename(int from_dirfd __attribute__((unused)), const char *from __attribute__((unused)),
		       int to_dirfd __attribute__((unused)), const char *to __attribute__((unused)),
		       unsigned flags __attribute__((unused)))
{
	return -EIO;
}

START_TEST(a_removal_that_fails_is_tried_again)
{
	static const bool stop = false;

	edit("config", "two");
	set_ahead(8 * DAY_NS);
	real_rename = ckpt_hooks.rename;
	ckpt_hook_set(rename, fail_rename);
	ck_assert_int_lt(ckpt_outdated_remove(s, &stop), later() + HOUR_NS);
	ckpt_hook_set(rename, real_rename);
	ck_assert(is_raw("config"));
	expire_versions();
	ck_assert(!is_raw("config"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("older");
	TCase *t = tcase_create("versions");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, each_version_has_its_files);
	tcase_add_test(t, what_a_re_save_has_replaced_is_an_older_version);
	tcase_add_test(t, an_older_version_is_read_of_the_packs_of_a_later_one);
	tcase_add_test(t, packs_of_older_versions_are_not_repacked_and_go_when_these_expire);
	tcase_add_test(t, of_many_edits_in_a_row_packs_are_looked_for_once);
	tcase_add_test(t, an_older_version_comes_back);
	tcase_add_test(t, an_older_version_comes_back_whose_bytes_only_a_later_one_has_in_packs);
	tcase_add_test(t, what_has_expired_does_not_come_back);
	tcase_add_test(t, raw_files_that_only_expired_versions_name_go);
	tcase_add_test(t, a_raw_file_that_a_later_version_names_again_stays);
	tcase_add_test(t, versions_of_a_pinned_step_stay);
	tcase_add_test(t, of_edits_of_one_hour_the_last_one_stays);
	tcase_add_test(t, edits_within_five_seconds_are_one);
	tcase_add_test(t, restored_versions_are_not_thinned);
	tcase_add_test(t, while_a_step_is_reopened_its_raw_files_stay);
	tcase_add_test(t, when_a_step_is_reopened_meanwhile_its_raw_files_stay);
	tcase_add_test(t, a_removal_that_fails_is_tried_again);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
