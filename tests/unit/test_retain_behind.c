// What the policy does not keep goes behind: what is deleted, what keeps a step for now, and that nothing goes by half of what is
// to be known.
#include "core/save/reopen.h"
#include "core/save/stage.h"
#include "core/step/amending.h"
#include "core/step/removal.h"
#include "core/step/store_folder.h"
#include "core/store/open.h"
#include "tests/support/fixture.h"
#include "tests/support/history.h"
#include "tests/support/hooks.h"
#include "tests/support/sysfault.h"

#include "backends/backends.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/policy/policy_store.h"
#include "core/policy/retain.h"
#include "core/save/amend.h"
#include "core/save/delete.h"
#include "core/save/pin.h"
#include "core/save/remove.h"
#include "core/step/reopened.h"
#include "core/step/trash.h"

#include <fcntl.h>
#include <stdio.h>

#define TEMPORARY "{\"temporary\":true}"
#define LATEST_2 "{'keep':{'latest_n':{'n':2}}}"
#define BEST_1 "{'keep':{'best_n':{'metric':'loss','n':1,'reverse':true}}}"
#define HOUR_NS (INT64_C(3600) * 1000000000)
#define ROUNDS 20

static bool told;

static void open_one(void)
{
	told = false;
	ckpt_fixture_open();
}

static void save_in(const char *folder_id, const char *name, const char *metadata)
{
	struct ckpt_step *step;

	ck_ok(ckpt_stage_begin(s, folder_id, name, 0755, getuid(), getgid(), getpid(), &step));
	close(ckpt_staged_put(step, "model.bin", name));
	ck_ok(ckpt_staged_commit(step, 0, metadata));
	ckpt_step_unref(step);
}

static void save(const char *name, const char *metadata)
{
	save_in("", name, metadata);
}

static void save_to(int last)
{
	char name[16];

	for (int i = 1; i <= last; i++) {
		snprintf(name, sizeof(name), "%d", i);
		save(name, NULL);
	}
}

static struct ckpt_step *find(const char *name)
{
	return ckpt_step_find(s, "", name);
}

static bool is_there(const char *name)
{
	struct ckpt_step *step = find(name);

	ckpt_step_unref(step);
	return step;
}

static void set(const char *text)
{
	struct ckpt_policy p = policy_of(text);

	ck_ok(ckpt_policy_set(s, &p));
	ckpt_policy_done(&p);
}

static int64_t look(void)
{
	return ckpt_retain_behind(s, 0, NULL, &told);
}

static void expire(void)
{
	ck_assert_int_eq(look(), INT64_MAX);
}

static void needs_another_look(void)
{
	int64_t again_ns = look();

	ck_assert(again_ns > 0 && again_ns <= HOUR_NS);
}

static void pin(const char *name, bool pinned)
{
	struct ckpt_step *step = find(name);

	ck_ok(ckpt_pin(step, pinned));
	ckpt_step_unref(step);
}

static int (*open_before)(int dirfd, const char *path, int flags, mode_t mode);
static unsigned records_read, records_read_locked;

static int open_counting(int dirfd, const char *path, int flags, mode_t mode)
{
	if (!strncmp(path, "log/", 4) && (flags & O_ACCMODE) == O_RDONLY && !(flags & O_DIRECTORY)) {
		bool locked = pthread_mutex_trylock(&s->acts_lock.mutex);

		if (!locked)
			pthread_mutex_unlock(&s->acts_lock.mutex);
		records_read++;
		records_read_locked += locked;
	}
	return open_before(dirfd, path, flags, mode);
}

// Who deletes or reopens would wait for it.
START_TEST(metrics_are_read_before_anybody_is_kept_waiting)
{
	char name[16], metadata[64];

	set(BEST_1);
	for (int i = 1; i <= 20; i++) {
		snprintf(name, sizeof(name), "%d", i);
		snprintf(metadata, sizeof(metadata), "{\"metrics\":{\"loss\":%d}}", abs(i - 7));
		save(name, metadata);
	}
	ckpt_fixture_reopen();
	open_before = ckpt_hooks.open;
	ckpt_hook_set(open, open_counting);
	expire();
	ckpt_hook_set(open, open_before);
	ck_assert_uint_ge(records_read, 20);
	ck_assert_uint_eq(records_read_locked, 0);
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_COMMITTED), 2);
	ck_assert(is_there("7") && is_there("20"));
}
END_TEST

START_TEST(what_no_policy_keeps_is_in_the_trash)
{
	set(LATEST_2);
	save("1", NULL);
	save("2", NULL);
	save("best", NULL);
	save("3", TEMPORARY);
	save("4", NULL);
	save("5", NULL);
	pin("1", true);
	expire();
	ck_assert(is_there("1") && !is_there("2") && is_there("best") && is_there("4") && is_there("5"));
	ck_assert(is_there("3")); // temporary.h's
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_DELETED), 1);
	pin("1", false);
	expire();
	ck_assert(!is_there("1"));
	ckpt_fixture_reopen();
	expire();
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_COMMITTED), 4);
}
END_TEST

START_TEST(the_newest_stays_whatever_the_policy_says)
{
	set("{'keep':{'custom_steps':{'steps':[]}}}");
	save_to(3);
	expire();
	ck_assert(!is_there("1") && !is_there("2") && is_there("3"));
}
END_TEST

static void save_anew(const char *name)
{
	struct ckpt_step *step = find(name), *changed;

	ck_ok(ckpt_reopen(step, &changed));
	close(ckpt_staged_put(changed, "more.bin", "other weights"));
	ck_ok(ckpt_staged_commit(changed, 5000000, NULL));
	ckpt_step_unref(changed);
	ckpt_step_unref(step);
}

// It came first, and was saved last: that of which it takes the place as the last one saved is the newest all the same.
START_TEST(an_old_step_that_is_saved_anew_ends_no_other)
{
	set("{'keep':{'latest_n':{'n':1}}}");
	save("500", NULL);
	pin("500", true);
	save("1000", NULL);
	pin("500", false);
	save_anew("500");
	expire();
	ck_assert(is_there("500") && is_there("1000"));
	save("1500", NULL);
	expire();
	ck_assert(!is_there("500") && !is_there("1000") && is_there("1500"));
}
END_TEST

static int64_t set_back_ns;
static int64_t (*wall_clock)(void);

static int64_t clock_set_back(void)
{
	return wall_clock() - set_back_ns;
}

static void set_clock_back(void)
{
	set_back_ns += HOUR_NS;
	wall_clock = wall_clock ? wall_clock : ckpt_hooks.now_ns;
	ckpt_hook_set(now_ns, clock_set_back);
}

// What came before stays in its place, too, if it is changed afterwards.
START_TEST(a_clock_that_is_set_back_makes_no_new_step_old)
{
	set("{'keep':{'latest_n':{'n':3}}}");
	save("7", NULL);
	pin("7", true);
	save("8", NULL);
	save("9", NULL);
	save("10", NULL);
	set_clock_back();
	save("11", NULL);
	save("12", NULL);
	save("13", NULL);
	save_anew("9");
	save_anew("12");
	save("14", NULL);
	pin("7", false);
	expire();
	ck_assert(is_there("12") && is_there("13") && is_there("14"));
	ck_assert(!is_there("7") && !is_there("8") && !is_there("9") && !is_there("10") && !is_there("11"));
}
END_TEST

START_TEST(who_reads_has_time_where_the_clock_was_set_back)
{
	int64_t again_ns;

	set("{'keep':{'latest_n':{'n':1}}}");
	save_to(2);
	set_clock_back();
	again_ns = ckpt_retain_behind(s, HOUR_NS, NULL, &told);
	ck_assert(again_ns > 0 && again_ns <= HOUR_NS && is_there("1"));
	ckpt_fixture_reopen(); // whoever it was had his time
	ck_assert_int_eq(ckpt_retain_behind(s, HOUR_NS, NULL, &told), INT64_MAX);
	ck_assert(!is_there("1"));
}
END_TEST

static void put_policy(const char *text)
{
	ck_ok(ckpt_journal_set(s->journal, "policy", CKPT_ACT_ANY, text));
}

START_TEST(what_is_asked_for_goes_only_if_it_does_not_stay_by_now)
{
	struct ckpt_step *steps[4];
	int results[4];

	set("{'keep':{'latest_n':{'n':1}}}");
	save("1", NULL);
	save("2", TEMPORARY);
	save("3", NULL);
	save("4", NULL);
	steps[0] = find("1");
	steps[1] = find("2");
	steps[2] = find("3");
	steps[3] = NULL;
	struct ckpt_step *newest = find("4");

	ck_ok(ckpt_delete(newest)); // after they were looked at
	ck_ok(ckpt_retain(s, steps, 4, results));
	ck_assert(!results[0] && !results[1] && results[2] == -ESTALE && results[3] == -ESTALE);
	ck_assert(!is_there("1") && !is_there("2") && is_there("3"));
	ck_ok(ckpt_undelete(newest));
	struct ckpt_step *changed;
	ck_ok(ckpt_reopen(steps[2], &changed));
	ck_ok(ckpt_retain(s, steps + 2, 1, results));
	ck_assert_int_eq(results[0], -EBUSY);
	ckpt_step_unref(changed);
	put_policy("{");
	ck_error(ckpt_retain(s, steps + 2, 1, results), EBADMSG);
	for (int i = 0; i < 3; i++)
		ckpt_step_unref(steps[i]);
	ckpt_step_unref(newest);
}
END_TEST

START_TEST(a_store_that_says_nothing_keeps_all)
{
	save_to(5);
	expire();
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_COMMITTED), 5);
	set("{'save':{'initial':{}}}");
	expire();
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_COMMITTED), 5);
}
END_TEST

// They go in rounds, between which others get on.
START_TEST(many_go_at_one_look)
{
	bool stop = true;

	save_to(40);
	set(LATEST_2);
	ck_assert_int_eq(ckpt_retain_behind(s, 0, &stop, &told), INT64_MAX);
	ck_assert_uint_gt(ckpt_save_count(s, CKPT_STEP_COMMITTED), 2);
	expire();
	ck_assert(is_there("39") && is_there("40"));
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_COMMITTED), 2);
}
END_TEST

START_TEST(a_policy_that_cannot_be_read_deletes_nothing_and_is_told_once)
{
	save_to(3);
	ckpt_trash_drain(*ckpt_trash_of(s)); // whose own look is over then
	put_policy("{\"keep\":{\"latest_n\":{\"n\":-1}}}");
	needs_another_look();
	needs_another_look();
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_COMMITTED), 3);
	ck_assert_uint_eq(ckpt_save_errors(s, "keep.latest_n.n: must be"), 1);
	set(LATEST_2);
	expire();
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_COMMITTED), 2);
	put_policy("{");
	needs_another_look();
	ck_assert_uint_eq(ckpt_save_errors(s, "the policy cannot be applied"), 2);
}
END_TEST

// A step of which nobody knows how good it is may be the best.
START_TEST(metrics_that_cannot_be_read_delete_nothing)
{
	struct ckpt_fault fault = {.error = -EIO, .sticky = true};

	save("1", "{\"metrics\":{\"loss\":1}}");
	save("2", "{\"metrics\":{\"loss\":2}}");
	save("3", "{\"metrics\":{\"loss\":3}}");
	set(BEST_1);
	ckpt_trash_drain(*ckpt_trash_of(s)); // whose own look is over then
	ckpt_save_fault(s, &fault);
	fault.at = 2; // the policy is the first
	needs_another_look();
	fault.at = 0;
	ck_assert_uint_gt(fault.count, 1);
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_COMMITTED), 3);
	ck_assert_uint_eq(ckpt_save_errors(s, "the policy cannot be applied"), 1);
	expire();
	ck_assert(is_there("1") && !is_there("2") && is_there("3"));
}
END_TEST

START_TEST(what_has_no_number_for_a_metric_stays_and_is_not_the_best)
{
	save("1", "{\"metrics\":{\"loss\":1}}");
	save("2", "{\"metrics\":{\"loss\":\"NaN\"}}");
	save("3", "{\"metrics\":{\"loss\":null}}");
	save("4", NULL);
	save("5", "{\"metrics\":{\"loss\":1}}"); // of equals the later one
	save("6", "{\"metrics\":{\"loss\":2}}");
	save("7", "{\"metrics\":{\"loss\":3}}");
	set(BEST_1);
	expire();
	ck_assert(!is_there("1") && is_there("2") && is_there("3") && is_there("4") && is_there("5") && !is_there("6"));
	set("{'keep':{'best_n':{'metric':'loss','n':1,'reverse':true,'keep_checkpoints_without_metrics':false}}}");
	expire();
	ck_assert(!is_there("2") && !is_there("3") && !is_there("4") && is_there("5") && is_there("7"));
}
END_TEST

// What is hidden is missing among the others.
START_TEST(nothing_is_judged_while_a_step_is_being_changed_or_removed)
{
	struct ckpt_step *first, *changed;

	set("{'keep':{'every_n_steps':{'interval_steps':2,'exact_interval':false}}}");
	save_to(4); // of these 1 and 3 stay, and 4; without the first 2 and 4
	first = find("1");
	ck_ok(ckpt_reopen(first, &changed));
	needs_another_look();
	ck_ok(ckpt_stage_abort(changed, false));
	ckpt_step_unref(changed);
	ck_ok(ckpt_staged_remove(first, "model.bin"));
	needs_another_look();
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_DELETED), 0);
	ckpt_removal_forget(first); // its process was killed
	expire();
	ck_assert(is_there("1") && !is_there("2") && is_there("3") && is_there("4"));
	ckpt_step_unref(first);
}
END_TEST

START_TEST(what_somebody_adds_a_file_to_stays_for_now)
{
	struct ckpt_step *step;

	set(LATEST_2);
	save_to(3);
	step = find("1");
	ck_ok(ckpt_amending_begin(step, "late", NULL));
	needs_another_look();
	ck_assert(is_there("1"));
	ckpt_amending_forget(step, "late");
	expire();
	ck_assert(!is_there("1"));
	ckpt_staged_check(step, "model.bin", "1"); // who has it goes on reading
	ckpt_step_unref(step);
}
END_TEST

// A step of another folder is no newer one.
START_TEST(a_framework_has_time_to_remove_its_own)
{
	char id[CKPT_FOLDER_ID_LEN + 1];
	int64_t again_ns;
	int fd;

	ck_ok(ckpt_sys.mkdir(s->tree_fd, "a", 0755));
	fd = ckpt_sys.open(s->tree_fd, "a", O_RDONLY | O_DIRECTORY, 0);
	ck_ok(ckpt_store_folder_id(s, fd, true, id));
	ckpt_sys.close(fd);
	set(LATEST_2);
	save_to(3);
	ckpt_sys.sleep_ns(20000000);
	save_in(id, "1", NULL);
	again_ns = ckpt_retain_behind(s, HOUR_NS, NULL, &told);
	ck_assert(again_ns > HOUR_NS / 2 && again_ns <= HOUR_NS - 20000000);
	ck_assert(is_there("1"));
	ck_assert_int_eq(ckpt_retain_behind(s, 20000000, NULL, &told), INT64_MAX);
	ck_assert(!is_there("1"));
}
END_TEST

START_TEST(a_deletion_that_fails_is_told_and_done_the_next_time)
{
	struct ckpt_sysfault fault = {.at = 1, .error = -ENOSPC, .sticky = true, .changes_only = true};

	set(LATEST_2);
	save_to(3);
	ckpt_sysfault_begin(&fault);
	needs_another_look();
	ckpt_sysfault_end(&fault);
	ck_assert(is_there("1"));
	ck_assert_uint_eq(ckpt_save_errors(s, "it could not be deleted"), 1);
	expire();
	ck_assert(!is_there("1"));
}
END_TEST

struct race {
	pthread_barrier_t start;
	struct ckpt_step *step;
	int (*act)(struct ckpt_step *step);
	int rc;
};

static void *act_at_once(void *arg)
{
	struct race *race = arg;

	pthread_barrier_wait(&race->start);
	race->rc = race->act(race->step);
	return NULL;
}

static void delete (struct ckpt_step *step)
{
	if (ckpt_step_state(step) == CKPT_STEP_COMMITTED)
		ck_ok(ckpt_delete(step));
	ckpt_step_unref(step);
}

static int pin_it(struct ckpt_step *step)
{
	return ckpt_pin(step, true);
}

static void race(int round, struct race *r)
{
	pthread_t thread;

	pthread_barrier_init(&r->start, NULL, 2);
	ck_assert_int_eq(pthread_create(&thread, NULL, act_at_once, r), 0);
	pthread_barrier_wait(&r->start);
	if (round % 2)
		ckpt_sys.sleep_ns(round * 10000);
	(void)look();
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&r->start);
}

START_TEST(a_pin_beside_it_is_done_or_refused)
{
	set(LATEST_2);
	for (int i = 0; i < ROUNDS; i++) {
		struct race r = {.act = pin_it};
		char name[16];

		snprintf(name, sizeof(name), "%d", i);
		save(name, NULL);
		r.step = find(name);
		save("1001", NULL);
		save("1002", NULL);
		race(i, &r);
		ck_assert_int_eq(is_there(name), r.rc == 0);
		ck_assert(r.rc == 0 || r.rc == -ESTALE || r.rc == -EBUSY);
		ckpt_step_unref(r.step);
		delete (find("1001"));
		delete (find("1002"));
	}
}
END_TEST

// Once the third is gone, the first is one of the two latest.
START_TEST(a_deletion_beside_it_never_leaves_fewer_than_are_kept)
{
	set(LATEST_2);
	for (int i = 0; i < ROUNDS; i++) {
		struct race r = {.act = ckpt_delete};
		struct ckpt_step *first;

		save_to(3);
		first = find("1");
		r.step = find("3");
		race(i, &r);
		ck_ok(r.rc);
		ck_assert(is_there("2"));
		ck_assert(is_there("1") || first->deleted_ns <= r.step->deleted_ns);
		delete (first);
		delete (find("2"));
		delete (r.step);
	}
}
END_TEST

START_TEST(a_start_deletes_nothing_and_the_first_commit_does)
{
	struct ckpt_settings settings;

	save_to(3);
	set(LATEST_2);
	ckpt_store_close(s);
	ckpt_settings_init(&settings);
	settings.keep_trash = true; // as a verb has it, which does not wait for anybody
	ck_ok(ckpt_store_open(dir, CKPT_STORE_WRITE, &settings, &s));
	ckpt_settings_done(&settings);
	ckpt_trash_drain(*ckpt_trash_of(s));
	ck_assert(is_there("1"));
	save("4", NULL);
	ckpt_trash_drain(*ckpt_trash_of(s));
	ck_assert(!is_there("1") && !is_there("2") && is_there("3") && is_there("4"));
}
END_TEST

static unsigned gone_calls;

static void count_gone(void *arg, struct ckpt_step *step)
{
	ck_assert_ptr_eq(arg, &gone_calls);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_DELETED);
	ck_ok(ckpt_lock_try_ns(&step->store->acts_lock, 0) ? 0 : -EBUSY); // the kernel is told by it
	ckpt_lock_drop(&step->store->acts_lock);
	gone_calls++;
}

START_TEST(a_mount_hears_of_each_without_a_lock)
{
	set(LATEST_2);
	save_to(20);
	s->calls.gone = count_gone;
	s->calls.gone_arg = &gone_calls;
	expire();
	ck_assert_uint_eq(gone_calls, 18);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("retain_behind");
	TCase *tcase = tcase_create("retain_behind");

	tcase_add_checked_fixture(tcase, open_one, ckpt_fixture_close);
	tcase_add_test(tcase, metrics_are_read_before_anybody_is_kept_waiting);
	tcase_add_test(tcase, what_no_policy_keeps_is_in_the_trash);
	tcase_add_test(tcase, the_newest_stays_whatever_the_policy_says);
	tcase_add_test(tcase, an_old_step_that_is_saved_anew_ends_no_other);
	tcase_add_test(tcase, a_clock_that_is_set_back_makes_no_new_step_old);
	tcase_add_test(tcase, who_reads_has_time_where_the_clock_was_set_back);
	tcase_add_test(tcase, what_is_asked_for_goes_only_if_it_does_not_stay_by_now);
	tcase_add_test(tcase, a_store_that_says_nothing_keeps_all);
	tcase_add_test(tcase, many_go_at_one_look);
	tcase_add_test(tcase, a_policy_that_cannot_be_read_deletes_nothing_and_is_told_once);
	tcase_add_test(tcase, metrics_that_cannot_be_read_delete_nothing);
	tcase_add_test(tcase, what_has_no_number_for_a_metric_stays_and_is_not_the_best);
	tcase_add_test(tcase, nothing_is_judged_while_a_step_is_being_changed_or_removed);
	tcase_add_test(tcase, what_somebody_adds_a_file_to_stays_for_now);
	tcase_add_test(tcase, a_framework_has_time_to_remove_its_own);
	tcase_add_test(tcase, a_deletion_that_fails_is_told_and_done_the_next_time);
	tcase_add_test(tcase, a_pin_beside_it_is_done_or_refused);
	tcase_add_test(tcase, a_deletion_beside_it_never_leaves_fewer_than_are_kept);
	tcase_add_test(tcase, a_start_deletes_nothing_and_the_first_commit_does);
	tcase_add_test(tcase, a_mount_hears_of_each_without_a_lock);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
