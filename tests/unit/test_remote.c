// Nodes with a remote, here a directory that they share: what one saves the other reads, and what both do at once stays.
#include "tests/support/save.h"
#include "tests/support/suite.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/remote/place.h"
#include "core/remote/remote.h"
#include "core/save/delete.h"
#include "core/save/warm.h"
#include "core/step/errlog.h"
#include "core/store/open.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char remote_dir[PATH_MAX], url[PATH_MAX + 8];

static void setup(void)
{
	ckpt_temp_dir(remote_dir);
	snprintf(url, sizeof(url), "file://%s", remote_dir);
}

struct node {
	char dir[PATH_MAX];
	struct ckpt_store *store;
};

// A node whose work directory is new, or not.
static void open_node(struct node *n)
{
	char why[CKPT_OBJECTS_WHY_MAX];
	CLEANUP_FREE char *path = NULL;

	if (!*n->dir)
		ckpt_temp_dir(n->dir);
	setenv("CKPTFS_WORK_DIR", n->dir, 1);
	ck_ok(ckpt_remote_place(&(struct ckpt_remote_at){.url = url, .make = true}, &path, why));
	ck_ok(ckpt_store_open(path, CKPT_STORE_WRITE, NULL, &n->store));
}

static void push(struct node *n)
{
	struct ckpt_remote_queue q;

	ck_ok(ckpt_store_work_behind(n->store));
	do {
		ckpt_remote_wake(*ckpt_remote_of(n->store));
		ckpt_sys.sleep_ns(10000000);
		ckpt_remote_queue(*ckpt_remote_of(n->store), &q);
	} while (q.steps);
}

static void close_node(struct node *n)
{
	ckpt_save_settle_all(n->store);
	ckpt_store_close(n->store);
	n->store = NULL;
}

START_TEST(saved_on_one_node_is_read_on_another)
{
	struct node a = {0}, b = {0};

	open_node(&a);
	for (unsigned i = 0; i < CKPT_SAVE_STEPS; i++)
		ckpt_step_unref(ckpt_save_one(a.store, i));
	push(&a);
	close_node(&a);
	open_node(&b);
	for (unsigned i = 0; i < CKPT_SAVE_STEPS; i++) {
		struct ckpt_step *step = ckpt_save_find(b.store, i);

		ck_assert_ptr_nonnull(step);
		ckpt_save_check_files(step, i);
		ckpt_step_unref(step);
	}
	close_node(&b);
}
END_TEST

static bool is_idle(const struct node *n)
{
	struct ckpt_remote_queue q;

	ckpt_remote_queue(*ckpt_remote_of(n->store), &q);
	return !q.steps;
}

struct other {
	const char *name;
	bool is;
};

static int look_for_other(void *arg, const struct ckpt_state *state)
{
	struct other *o = arg;

	o->is = ckpt_state_listed(state, "", o->name);
	return 0;
}

// The log of the node has a step of this name.
static bool knows_step(const struct node *n, const char *name)
{
	struct other o = {.name = name};

	ck_ok(ckpt_journal_look(n->store->journal, look_for_other, &o));
	return o.is;
}

// Waits until it is so; ends the test where it is not soon.
#define WAIT_UNTIL(is_so)                                                                                              \
	do {                                                                                                           \
		for (unsigned tries = 0; !(is_so); tries++) {                                                          \
			ck_assert_msg(tries < 2000, "in vain: %s", #is_so);                                            \
			ckpt_remote_wake(*ckpt_remote_of(a.store));                                                    \
			ckpt_remote_wake(*ckpt_remote_of(b.store));                                                    \
			ckpt_sys.sleep_ns(10000000);                                                                   \
		}                                                                                                      \
	} while (0)

static bool lists(const struct node *n, const char *name)
{
	struct ckpt_step *step = ckpt_step_find(n->store, "", name);
	bool is = step && ckpt_step_state(step) == CKPT_STEP_COMMITTED;

	ckpt_step_unref(step);
	return is;
}

static bool lists_conflict(const struct node *n, const char *name)
{
	struct ckpt_step **steps;
	size_t count, found = 0;
	char want[CKPT_NAME_MAX + 1];

	snprintf(want, sizeof(want), "%s" CKPT_NAME_CONFLICT, name);
	ck_ok(ckpt_step_list(n->store, NULL, 1u << CKPT_STEP_COMMITTED, &steps, &count));
	for (size_t i = 0; i < count; i++)
		found += !strncmp(steps[i]->name, want, strlen(want));
	ckpt_step_list_free(steps, count);
	return found == 1;
}

static void open_both(struct node *a, struct node *b)
{
	open_node(a);
	open_node(b);
	ck_ok(ckpt_store_work_behind(a->store));
	ck_ok(ckpt_store_work_behind(b->store));
}

START_TEST(what_one_does_the_other_sees)
{
	struct node a = {0}, b = {0};
	struct ckpt_tier_done done;
	struct ckpt_step *step;

	open_both(&a, &b);
	step = ckpt_save_one(a.store, 0);
	WAIT_UNTIL(lists(&b, ckpt_save_steps[0].name));
	ck_ok(ckpt_delete(step));
	ckpt_step_unref(step);
	WAIT_UNTIL(!lists(&b, ckpt_save_steps[0].name));
	step = ckpt_step_of_session(b.store, step->session);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_DELETED);
	ck_ok(ckpt_undelete(step));
	ckpt_save_check_files(step, 0);
	ck_ok(ckpt_warm(step, &(struct ckpt_tier_how){0}, &done)); // raw files on this node, too
	ck_assert_uint_gt(done.files, 0);
	ckpt_save_check_files(step, 0);
	ckpt_step_unref(step);
	WAIT_UNTIL(lists(&a, ckpt_save_steps[0].name));
	close_node(&a);
	close_node(&b);
}
END_TEST

START_TEST(step_that_another_saves_while_it_is_staged_keeps_its_name)
{
	struct node a = {0}, b = {0};
	struct ckpt_step *step;
	const char *name = ckpt_save_steps[0].name;

	open_both(&a, &b);
	ck_ok(ckpt_save_begin(b.store, 0, &step));
	ckpt_save_write(step, 0, NULL);
	ckpt_step_unref(ckpt_save_one(a.store, 0));
	WAIT_UNTIL(knows_step(&b, name));
	ck_ok(ckpt_save_commit(step, 0));
	ck_assert(lists_conflict(&b, name));
	ckpt_save_check_files(step, 0);
	ckpt_step_unref(step);
	WAIT_UNTIL(lists(&b, name) && lists(&a, name) && lists_conflict(&a, name));
	ck_assert_uint_eq(ckpt_save_errors(b.store, "another node has saved a step of this name"), 1);
	close_node(&a);
	close_node(&b);
}
END_TEST

START_TEST(two_saves_of_one_name_are_two_steps)
{
	struct node a = {0}, b = {0};
	const char *name = ckpt_save_steps[0].name;

	open_node(&a);
	open_node(&b);
	ckpt_step_unref(ckpt_save_one(a.store, 0));
	ckpt_step_unref(ckpt_save_one(b.store, 0));
	ck_ok(ckpt_store_work_behind(a.store));
	WAIT_UNTIL(is_idle(&a));
	ck_ok(ckpt_store_work_behind(b.store));
	WAIT_UNTIL(is_idle(&b) && lists(&a, name) && lists_conflict(&a, name));
	ck_assert(lists(&b, name) && lists_conflict(&b, name));
	close_node(&a);
	close_node(&b);
}
END_TEST

// What another node has appended since the remote was put back.
static void replace_entry(const char *entry)
{
	CLEANUP_FD int fd = open(entry, O_RDWR);
	uint8_t byte;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, &byte, 1, 100), 1);
	byte ^= 1;
	ck_assert_int_eq(pwrite(fd, &byte, 1, 100), 1);
}

START_TEST(remote_that_was_put_back_is_refused)
{
	char entry[PATH_MAX + 32], why[CKPT_OBJECTS_WHY_MAX];
	CLEANUP_FREE char *path = NULL;
	struct node a = {0};

	open_node(&a);
	ckpt_step_unref(ckpt_save_one(a.store, 0));
	push(&a);
	close_node(&a);
	snprintf(entry, sizeof(entry), "%s/log/%016x", remote_dir, 1);
	if (_i)
		replace_entry(entry);
	else
		ck_assert(!unlink(entry));
	ck_ok(ckpt_remote_place(&(struct ckpt_remote_at){.url = url}, &path, why));
	ck_error(ckpt_store_open(path, CKPT_STORE_WRITE, NULL, &a.store), EREMCHG);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("remote");
	TCase *tcase = tcase_create("nodes");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, saved_on_one_node_is_read_on_another);
	tcase_add_test(tcase, what_one_does_the_other_sees);
	tcase_add_test(tcase, step_that_another_saves_while_it_is_staged_keeps_its_name);
	tcase_add_test(tcase, two_saves_of_one_name_are_two_steps);
	tcase_add_loop_test(tcase, remote_that_was_put_back_is_refused, 0, 2);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
