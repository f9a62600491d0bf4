// Steps whose bytes on this node are damaged or gone are passed over by the push, told, and pushed once they are whole again.
#include "tests/support/hooks.h"
#include "tests/support/save.h"
#include "tests/support/suite.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/pack.h"
#include "core/remote/arrival.h"
#include "core/remote/failures.h"
#include "core/remote/place.h"
#include "core/remote/remote.h"
#include "core/remote/tree.h"
#include "core/store/open.h"
#include "core/tier/cool.h"
#include "core/tier/seal.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FAST 50 // times as fast as the clock goes, by which a step is tried again
#define BAD 0   // the step that is damaged
#define GOOD 4

static char remote_dir[PATH_MAX], url[PATH_MAX + 8];

struct node {
	char dir[PATH_MAX];
	struct ckpt_store *store;
};

static struct node a, b;

static int64_t fast_mono_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (t.tv_sec * INT64_C(1000000000) + t.tv_nsec) * FAST;
}

static void open_node(struct node *n)
{
	char why[CKPT_OBJECTS_WHY_MAX];
	CLEANUP_FREE char *path = NULL;

	ckpt_temp_dir(n->dir);
	setenv("CKPTFS_WORK_DIR", n->dir, 1);
	ck_ok(ckpt_remote_place(&(struct ckpt_remote_at){.url = url, .make = true}, &path, why));
	ck_ok(ckpt_store_open(path, CKPT_STORE_WRITE, NULL, &n->store));
}

static void close_node(struct node *n)
{
	ckpt_store_rest(n->store);
	ckpt_save_settle_all(n->store);
	ckpt_store_close(n->store);
}

static void setup(void)
{
	ckpt_hook_set(mono_ns, fast_mono_ns);
	ckpt_temp_dir(remote_dir);
	snprintf(url, sizeof(url), "file://%s", remote_dir);
	open_node(&a);
	open_node(&b);
	ck_ok(ckpt_store_work_behind(b.store));
}

static void teardown(void)
{
	close_node(&a);
	close_node(&b);
}

#define WAIT_UNTIL(is_so)                                                                                              \
	do {                                                                                                           \
		for (unsigned tries = 0; !(is_so); tries++) {                                                          \
			ck_assert_msg(tries < 2000, "in vain: %s", #is_so);                                            \
			ckpt_remote_wake(*ckpt_remote_of(a.store));                                                    \
			ckpt_remote_wake(*ckpt_remote_of(b.store));                                                    \
			usleep(5000);                                                                                  \
		}                                                                                                      \
	} while (0)

static bool b_lists(unsigned i)
{
	struct ckpt_step *step = ckpt_save_find(b.store, i);

	ckpt_step_unref(step);
	return step;
}

static bool b_has(const char *name, const char *text)
{
	char is[64] = "";
	int fd = openat(b.store->tree_fd, name, O_RDONLY);

	if (fd < 0)
		return !text;
	(void)!read(fd, is, sizeof(is) - 1);
	close(fd);
	return text && !strcmp(is, text);
}

static void put_plain(const char *name, const char *text)
{
	int fd = openat(a.store->tree_fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	ckpt_tree_take_name(ckpt_remote_tree(*ckpt_remote_of(a.store)), a.store->tree_fd, name);
}

static bool is_alone_in_failures(const char *session)
{
	CLEANUP(ckpt_failure_list_done) struct ckpt_failure_list list;

	ck_ok(ckpt_remote_failures(*ckpt_remote_of(a.store), &list));
	return list.count == 1 && !strcmp(list.failures[0].session, session) && list.failures[0].error < 0;
}

static bool is_idle(void)
{
	struct ckpt_remote_queue q;

	ckpt_remote_queue(*ckpt_remote_of(a.store), &q);
	return !q.steps && !q.files;
}

// --- Ways to lose bytes --------------------------------------------------------------------------------------------------

static char lost[PATH_MAX + 512], kept[PATH_MAX + 512]; // where the file was, and is

static void lose(const char *path)
{
	snprintf(lost, sizeof(lost), "/proc/self/fd/%d/%.400s", a.store->dirfd, path);
	snprintf(kept, sizeof(kept), "%s/kept", a.dir);
	ck_assert_int_eq(rename(lost, kept), 0);
}

static void lose_raw(const struct ckpt_step *step)
{
	char path[256];

	snprintf(path, sizeof(path), "sessions/%s/model.bin", step->session);
	lose(path);
}

// The same length, and other bytes.
static void spoil_raw(const struct ckpt_step *step)
{
	FILE *from, *to;
	int c;

	lose_raw(step);
	from = fopen(kept, "r");
	to = fopen(lost, "w");
	ck_assert(from && to);
	while ((c = fgetc(from)) != EOF)
		fputc(c ^ 1, to);
	fclose(from);
	fclose(to);
}

// One of packs/XX/NAME.
static void lose_pack(struct ckpt_step *step)
{
	const struct ckpt_tier_how how = {.keeps_raw = true, .pack_bytes = a.store->settings.pack_bytes};
	struct ckpt_tier_done done;
	struct ckpt_manifest *m;
	struct ckpt_pack pack;
	char key[CKPT_PACK_KEY_MAX];

	ck_ok(ckpt_cool(step, &how, &done));
	ck_ok(ckpt_step_manifest(step, &m));
	ck_assert_uint_gt(ckpt_manifest_pack_count(m), 0);
	ckpt_manifest_pack(m, 0, &pack);
	ckpt_manifest_unref(m);
	ckpt_pack_key(pack.id, key);
	lose(key);
}

static void (*const ways[])(struct ckpt_step *step) = {(void (*)(struct ckpt_step *))lose_raw,
						       (void (*)(struct ckpt_step *))spoil_raw, lose_pack};

// The step that a has damaged, and what was written before, behind it and behind the next one.
static struct ckpt_step *save_all(int way)
{
	struct ckpt_step *bad;

	put_plain("before", "0");
	bad = ckpt_save_one(a.store, BAD);
	ck_ok(ckpt_seal(bad, &(struct ckpt_seal_how){0}));
	ways[way](bad);
	put_plain("latest", "1000");
	put_plain("notes", "of 1000");
	ckpt_step_unref(ckpt_save_one(a.store, GOOD));
	put_plain("latest", "1003");
	ck_ok(ckpt_store_work_behind(a.store));
	return bad;
}

START_TEST(damaged_step_is_passed_over_and_what_names_it_waits)
{
	struct ckpt_step *bad = save_all(_i);

	WAIT_UNTIL(b_lists(GOOD) && b_has("latest", "1003") && b_has("before", "0"));
	ck_assert(is_alone_in_failures(bad->session));
	ck_assert(!b_lists(BAD) && b_has("notes", NULL));
	ck_assert_uint_eq(ckpt_save_errors(a.store, "it cannot be uploaded"), 1);
	ck_assert(!ckpt_remote_has(a.store, bad->session));
	ck_assert_int_eq(rename(kept, lost), 0);
	WAIT_UNTIL(b_lists(BAD) && b_has("notes", "of 1000") && is_idle());
	ck_assert(b_has("latest", "1003"));
	ck_assert(ckpt_remote_has(a.store, bad->session));
	ckpt_step_unref(bad);
}
END_TEST

START_TEST(damaged_step_alone_does_not_hold_up_folders_and_later_changes_of_it)
{
	struct ckpt_step *bad = ckpt_save_one(a.store, BAD);

	ck_ok(ckpt_seal(bad, &(struct ckpt_seal_how){0}));
	lose_raw(bad);
	ck_ok(ckpt_store_work_behind(a.store));
	WAIT_UNTIL(is_alone_in_failures(bad->session));
	ck_assert_int_eq(mkdirat(a.store->tree_fd, "run", 0755), 0);
	ckpt_tree_touch(ckpt_remote_tree(*ckpt_remote_of(a.store)));
	WAIT_UNTIL(!faccessat(b.store->tree_fd, "run", F_OK, 0));
	ck_assert_int_eq(rename(kept, lost), 0);
	ck_ok(ckpt_save_metadata(bad, BAD)); // another act: it is tried anew at once
	WAIT_UNTIL(b_lists(BAD));
	WAIT_UNTIL(is_idle());
	ckpt_step_unref(bad);
}
END_TEST

// --- The list alone ------------------------------------------------------------------------------------------------------

static int64_t now_ns;

static int64_t set_mono_ns(void)
{
	return now_ns;
}

#define MINUTE_NS (INT64_C(60) * 1000000000)

START_TEST(failure_is_tried_again_less_and_less_and_told_each_hour)
{
	const struct ckpt_failure failure = {.session = "s", .error = -EIO, .number = 7, .place = 3};
	struct ckpt_failure_list list;
	struct ckpt_failures f;
	unsigned told = 0, tried = 0;

	ckpt_hook_set(mono_ns, set_mono_ns);
	now_ns = 1;
	ckpt_failures_init(&f);
	for (unsigned minute = 0; minute < 6 * 60; minute++) {
		ck_ok(ckpt_failures_list(&f, &list));
		if (!ckpt_failure_waits(&list, "s")) {
			tried++;
			told += ckpt_failures_add(&f, &failure) == 1;
		}
		ckpt_failure_list_done(&list);
		now_ns += MINUTE_NS;
	}
	ck_assert_uint_ge(tried, 10); // 0, 1, 3, 7, 15, 31, 63, and each hour
	ck_assert_uint_le(tried, 12);
	ck_assert_uint_ge(told, 5);
	ck_assert_uint_le(told, 6);
	ck_assert_int_eq(ckpt_failures_add(&f, &(struct ckpt_failure){.session = "s", .error = -EBADMSG}), 1);
	ck_ok(ckpt_failures_list(&f, &list));
	ck_assert_int_eq(ckpt_failure_of(&list, "s")->error, -EBADMSG);
	ck_assert_ptr_null(ckpt_failure_of(&list, "t"));
	ckpt_failure_list_done(&list);
	ckpt_failures_done(&f);
}
END_TEST

START_TEST(files_are_held_from_the_step_on_until_the_next_one_was_pushed)
{
	const struct ckpt_failure failure = {.session = "s", .error = -EIO, .number = 7, .place = 5};
	struct ckpt_failures f;

	ckpt_failures_init(&f);
	ck_assert(!ckpt_failures_hold(&f, 5));
	ck_assert_int_eq(ckpt_failures_add(&f, &failure), 1);
	ckpt_failures_pushed(&f, 4); // one that was saved before
	ck_assert(!ckpt_failures_hold(&f, 4));
	ck_assert(ckpt_failures_hold(&f, 5));
	ck_assert(ckpt_failures_hold(&f, UINT64_MAX - 1));
	ckpt_failures_pushed(&f, 9);
	ckpt_failures_pushed(&f, 12);
	ck_assert(ckpt_failures_hold(&f, 8));
	ck_assert(!ckpt_failures_hold(&f, 9));
	ck_assert_int_eq(ckpt_failures_add(&f, &failure), 0);
	ck_assert(!ckpt_failures_hold(&f, 9)); // another attempt holds no more than the first
	ckpt_failures_done(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("failures");
	TCase *tcase = tcase_create("list");

	tcase_add_test(tcase, failure_is_tried_again_less_and_less_and_told_each_hour);
	tcase_add_test(tcase, files_are_held_from_the_step_on_until_the_next_one_was_pushed);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("nodes");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, damaged_step_is_passed_over_and_what_names_it_waits, 0, (int)ARRAY_LEN(ways));
	tcase_add_test(tcase, damaged_step_alone_does_not_hold_up_folders_and_later_changes_of_it);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
