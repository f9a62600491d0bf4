// Which steps of a store stay: what is read of it, and that nothing is judged by half of that.
#include "core/save/version.h"
#include "tests/support/fixture.h"
#include "tests/support/history.h"
#include "tests/support/hooks.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/policy/retain.h"
#include "core/save/pin.h"

#include <stdio.h>

static void save(const char *name, const char *metadata)
{
	struct ckpt_step *step = ckpt_staged_begin(s, name);

	close(ckpt_staged_put(step, "model.bin", "weights"));
	ck_ok(ckpt_staged_commit(step, 5000000, metadata));
	ckpt_step_unref(step);
}

static void pin(const char *name)
{
	struct ckpt_step *step = ckpt_step_find(s, "", name);

	ck_ok(ckpt_pin(step, true));
	ckpt_step_unref(step);
}

static int judge(const char *policy, struct ckpt_retain *ret)
{
	struct ckpt_policy p = policy_of(policy);
	int rc = ckpt_retain_judge(s, &p, ckpt_sys.now_ns(), ret);

	ckpt_policy_done(&p);
	return rc;
}

START_TEST(steps_are_seen_in_the_order_of_their_commits_with_all_that_matters)
{
	struct ckpt_history h;
	int64_t before = ckpt_sys.now_ns();

	save("step_20", NULL);
	save("best", "{\"metrics\":{\"loss\":9}}");
	save("step_9", "{\"metrics\":{\"loss\":0.5},\"temporary\":true}");
	save("step_100", "{\"extras\":{}}");
	pin("step_20"); // a version of its own, and no commit
	ck_ok(ckpt_history_read(s, "", true, &h));
	ck_assert_uint_eq(h.count, 3);
	ck_assert(h.steps[0].number == 20 && h.steps[0].pinned && !h.steps[0].temporary && !h.steps[0].metrics);
	ck_assert(h.steps[1].number == 9 && !h.steps[1].pinned && h.steps[1].temporary);
	ck_assert_double_eq(json_number_value(json_object_get(h.steps[1].metrics, "loss")), 0.5);
	ck_assert(h.steps[2].number == 100 && !h.steps[2].metrics);
	ck_assert_str_eq(h.at[2]->name, "step_100");
	for (size_t i = 0; i < h.count; i++) {
		ck_assert_int_ge(h.steps[i].committed_ns, before);
		before = h.steps[i].committed_ns;
	}
	ckpt_history_done(&h);
	ck_ok(ckpt_history_read(s, "", false, &h));
	ck_assert(h.count == 3 && !h.steps[1].metrics);
	ckpt_history_done(&h);
	ck_ok(ckpt_history_read(s, "0123456789abcdef", true, &h));
	ck_assert_uint_eq(h.count, 0);
	ckpt_history_done(&h);
}
END_TEST

static int64_t long_ago(void)
{
	return 1000;
}

START_TEST(the_order_is_that_of_the_commits_where_the_clock_was_set_back)
{
	struct ckpt_history h;

	save("1", NULL);
	save("2", NULL);
	ckpt_hook_set(now_ns, long_ago);
	save("3", NULL);
	save("4", NULL);
	ck_ok(ckpt_history_read(s, "", false, &h));
	for (size_t i = 0; i < h.count; i++)
		ck_assert_int_eq(h.steps[i].number, (int64_t)i + 1);
	ckpt_history_done(&h);
}
END_TEST

START_TEST(metrics_of_the_newest_version_count)
{
	struct ckpt_step *step;
	struct ckpt_retain r;

	save("1", "{\"metrics\":{\"loss\":1}}");
	save("2", "{\"metrics\":{\"loss\":2}}");
	save("3", "{\"metrics\":{\"loss\":3}}");
	step = ckpt_step_find(s, "", "1");
	ck_ok(ckpt_commit_metadata(step, "{\"metrics\":{\"loss\":7}}"));
	ckpt_step_unref(step);
	ck_ok(judge("{'keep':{'best_n':{'metric':'loss','n':1}}}", &r));
	ck_assert(r.verdicts[0].keep && !r.verdicts[1].keep && r.verdicts[2].keep);
	ck_assert_str_eq(r.verdicts[0].why, "best_n");
	ckpt_retain_done(&r);
}
END_TEST

START_TEST(what_was_read_before_counts_for_the_version_that_it_is_of)
{
	const int losses[] = {7, 2, 3};
	struct ckpt_history before, h;
	struct ckpt_step *step;

	save("1", "{\"metrics\":{\"loss\":1}}");
	save("2", "{\"metrics\":{\"loss\":2}}");
	ck_ok(ckpt_history_read(s, NULL, true, &before));
	step = ckpt_step_find(s, "", "1");
	ck_ok(ckpt_commit_metadata(step, "{\"metrics\":{\"loss\":7}}"));
	ckpt_step_unref(step);
	save("3", "{\"metrics\":{\"loss\":3}}");
	ck_ok(ckpt_history_read_again(s, NULL, &before, &h));
	ck_assert_uint_eq(h.count, 3);
	for (size_t i = 0; i < 3; i++)
		ck_assert_int_eq(json_integer_value(json_object_get(h.steps[i].metrics, "loss")), losses[i]);
	ck_assert_ptr_eq(h.steps[1].metrics, before.steps[1].metrics);
	ckpt_history_done(&h);
	ckpt_history_done(&before);
}
END_TEST

START_TEST(where_a_record_cannot_be_read_nothing_is_judged_by_metrics)
{
	struct ckpt_retain r;
	struct ckpt_step *step;

	save("1", "{\"metrics\":{\"loss\":1}}");
	save("2", "{\"metrics\":{\"loss\":2}}");
	save("3", NULL);
	step = ckpt_step_find(s, "", "1");
	ckpt_save_spoil_record(step, 100, 1);
	ckpt_step_unref(step);
	ck_error(judge("{'keep':{'any':[{'latest_n':{'n':1}},{'best_n':{'metric':'loss','n':1}}]}}", &r), EBADMSG);
	ck_ok(judge("{'keep':{'latest_n':{'n':1}}}", &r));
	ck_assert(!r.verdicts[0].keep && !r.verdicts[1].keep && r.verdicts[2].keep);
	ckpt_retain_done(&r);
	ck_ok(ckpt_sys.rename(s->dirfd, "log", s->dirfd, "away", 0));
	ck_error(judge("{'keep':{'best_n':{'metric':'loss','n':1}}}", &r), ENOENT);
}
END_TEST

START_TEST(a_store_without_steps_has_nothing_to_judge)
{
	struct ckpt_retain r;

	ck_ok(judge("{}", &r));
	ck_assert_uint_eq(r.history.count, 0);
	ckpt_retain_done(&r);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("retain");
	TCase *tcase = tcase_create("retain");

	tcase_add_checked_fixture(tcase, ckpt_fixture_open, ckpt_fixture_close);
	tcase_add_test(tcase, steps_are_seen_in_the_order_of_their_commits_with_all_that_matters);
	tcase_add_test(tcase, the_order_is_that_of_the_commits_where_the_clock_was_set_back);
	tcase_add_test(tcase, metrics_of_the_newest_version_count);
	tcase_add_test(tcase, what_was_read_before_counts_for_the_version_that_it_is_of);
	tcase_add_test(tcase, where_a_record_cannot_be_read_nothing_is_judged_by_metrics);
	tcase_add_test(tcase, a_store_without_steps_has_nothing_to_judge);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
