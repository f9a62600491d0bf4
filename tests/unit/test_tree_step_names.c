// A plain file of one node and a step of another with the same name, made before the nodes knew of each other. The step hides the file, and
// no content is lost: the file is there on both nodes once the step is gone.
#include "tests/support/hooks.h"
#include "tests/support/two_nodes.h"

#include <time.h>

#define BOTH "2000"   // the name
#define LATER "after" // a file that is carried out after that one
#define TEXT "of the file"
#define OWN "of the other node"
#define FAST 50 // times as fast as the clock goes, by which a node waits between two looks

enum { LISTED, STAGED, STATES };

static int64_t fast_mono_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (t.tv_sec * INT64_C(1000000000) + t.tv_nsec) * FAST;
}

// No file is young.
static int64_t later_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (t.tv_sec + 60) * INT64_C(1000000000) + t.tv_nsec;
}

static void setup_hooks(void)
{
	ckpt_hook_set(mono_ns, fast_mono_ns);
	ckpt_hook_set(now_ns, later_ns);
	setup();
}

static void put_text(const struct node *n, const char *name, const char *text)
{
	CLEANUP_FD int fd = openat(n->store->tree_fd, name, O_WRONLY | O_CREAT | O_EXCL, 0644);

	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	ckpt_tree_take_name(ckpt_remote_tree(*ckpt_remote_of(n->store)), n->store->tree_fd, name);
}

static void put(const struct node *n, const char *name)
{
	put_text(n, name, TEXT);
}

static bool has_content(const struct node *n, const char *name, const char *want)
{
	CLEANUP_FD int fd = openat(n->store->tree_fd, name, O_RDONLY);
	char text[64] = "";

	if (fd < 0)
		return false;
	ck_assert_int_ge(read(fd, text, sizeof(text) - 1), 0);
	return !strcmp(text, want);
}

static bool has(const struct node *n, const char *name)
{
	return has_content(n, name, TEXT);
}

static bool lists(const struct node *n)
{
	struct ckpt_step *step = ckpt_step_find(n->store, "", BOTH);
	bool is = step && ckpt_step_state(step) == CKPT_STEP_COMMITTED;

	ckpt_step_unref(step);
	return is;
}

// _i: the state of the step of b when the file comes.
START_TEST(file_comes_once_the_step_of_its_name_is_gone)
{
	struct ckpt_step *step = ckpt_staged_begin(b.store, BOTH);

	close(ckpt_staged_put(step, "config.json", "of the step"));
	if (_i == LISTED)
		ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	put(&a, BOTH);
	put(&a, LATER);
	work(&b);
	WAIT_UNTIL(has(&b, LATER) && lists(&a) == (_i == LISTED));
	ck_assert(has(&a, BOTH) && !has(&b, BOTH));
	if (_i == LISTED)
		ck_ok(ckpt_delete(step));
	else
		ck_ok(ckpt_stage_abort(step, false));
	ckpt_step_unref(step);
	WAIT_UNTIL(has(&b, BOTH) && !lists(&a));
	WAIT_UNTIL(is_idle(&a) && is_idle(&b) && position(&a) == position(&b));
	ck_assert(has(&a, BOTH) && has(&b, BOTH));
}
END_TEST

static bool has_pushed(const struct node *n)
{
	struct ckpt_remote_queue q;

	ckpt_remote_queue(*ckpt_remote_of(n->store), &q);
	return !q.steps && !q.files;
}

// A node has saved the step, another has written the file, and a third, b, has written one of its own: its content does not wait for the step.
// Here a is the first and the second.
START_TEST(content_of_ones_own_is_pushed_though_a_step_and_a_file_have_its_name)
{
	struct ckpt_step *step = ckpt_staged_one(a.store, BOTH, "config.json", "of the step");

	WAIT_UNTIL(has_pushed(&a));
	put(&a, BOTH);
	put(&a, LATER);
	WAIT_UNTIL(has_pushed(&a));
	put_text(&b, BOTH, OWN);
	work(&b);
	WAIT_UNTIL(has(&b, LATER) && has_content(&a, copy_of(BOTH), OWN));
	ck_assert(lists(&a) && lists(&b) && has(&a, BOTH) && has_content(&b, copy_of(BOTH), OWN));
	ck_assert(!has_content(&b, BOTH, OWN));
	ck_ok(ckpt_delete(step));
	ckpt_step_unref(step);
	WAIT_UNTIL(has(&b, BOTH) && has_pushed(&a) && has_pushed(&b) && position(&a) == position(&b));
	ck_assert(has(&a, BOTH) && has_content(&b, copy_of(BOTH), OWN));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tree_step_names");
	TCase *tcase = tcase_create("tree_step_names");

	tcase_add_checked_fixture(tcase, setup_hooks, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, file_comes_once_the_step_of_its_name_is_gone, 0, STATES);
	tcase_add_test(tcase, content_of_ones_own_is_pushed_though_a_step_and_a_file_have_its_name);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
