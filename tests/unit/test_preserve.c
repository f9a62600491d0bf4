// Which steps stay, by a table for each policy and rule.
#include "tests/support/history.h"
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/policy/preserve.h"

#include <stdio.h>

#define TEN "1@10 2@20 3@30 4@40 5@50 6@60 7@70 8@80 9@90 10@100"
#define NONE "'latest_n':{'n':0}"
#define BEST_2 "'best_n':{'metric':'loss','n':2}"
#define LOWEST_2 "'best_n':{'metric':'loss','n':2,'reverse':true}"
#define LOSSES "1@1=0.5 2@2=0.9 3@3=0.1 4@4=0.7 5@5=0.3"
#define SOME_LOSSES "1@1 2@2=0.9 3@3=null 4@4=0.7 5@5=\"NaN\" 6@6=0.8 7@7=true"

// It is 100 s. The newest stays whatever the policy says: where it does so by that rule alone, it has a + behind it.
static const struct {
	const char *keep, *steps, *stay;
} rows[] = {
	{"'preserve_all':{}", TEN, "1 2 3 4 5 6 7 8 9 10"},
	{"'preserve_all':{}", "", ""},
	{"'latest_n':{}", TEN, "1 2 3 4 5 6 7 8 9 10"},
	{"'latest_n':{'n':3}", TEN, "8 9 10"},
	{"'latest_n':{'n':3}", "1@1 2@2", "1 2"},
	{"'latest_n':{'n':1}", "9@1 3@2", "3"}, // the last that was saved
	{NONE, TEN, "10+"},
	// The first, then what is so much later than the last that stays, inclusive.
	{"'every_n_seconds':{'interval_secs':30}", TEN, "1 4 7 10"},
	{"'every_n_seconds':{'interval_secs':31}", TEN, "1 5 9 10+"},
	{"'every_n_seconds':{'interval_secs':30}", "1@10 2@39.9 3@40 4@69.9", "1 3 4+"},
	{"'every_n_seconds':{'interval_secs':30}", "1@50 2@60 3@10 4@20 5@40 6@70", "1 3 5 6"}, // a clock set back
	{"'every_n_steps':{'interval_steps':4}", TEN, "4 8 10+"},
	{"'every_n_steps':{'interval_steps':4}", "0@1 1@2", "0 1+"},
	{"'every_n_steps':{'interval_steps':4,'exact_interval':false}", TEN, "1 5 9 10+"},
	{"'every_n_steps':{'interval_steps':4,'exact_interval':false}", "3@1 6@2 7@3 20@4 23@5", "3 7 20 23+"},
	{"'every_n_steps':{'interval_steps':2,'max_to_keep':2}", TEN, "8 10"},
	{"'every_n_steps':{'interval_steps':3,'exact_interval':false,'max_to_keep':1}", TEN, "10"},
	// Of those that are nearest to one multiple the nearest, of equals the later one; and the last.
	{"'every_n_steps_closest':{'interval_steps':10}", "3@1 8@2 11@3 12@4 19@5 21@6 26@7", "3 11 21 26"},
	{"'every_n_steps_closest':{'interval_steps':10}", "9@1 11@2 18@3 19@4 20@5 31@6", "11 20 31"},
	{"'every_n_steps_closest':{'interval_steps':10}", "5@1 15@2 25@3 35@4",
	 "5 25 35"}, // half-way: the even multiple
	{"'every_n_steps_closest':{'interval_steps':10,'max_to_keep':2}", "9@1 11@2 20@3 31@4", "20 31"},
	{"'every_n_steps_closest':{'interval_steps':10}", "20@1 9@2 21@3 10@4",
	 "20 10"}, // out of order, after a rollback
	{"'every_n_steps_closest':{'interval_steps':10}", "10@1 11@2",
	 "10 11"}, // the last, though it is not the nearest
	{"'every_n_steps_closest':{'interval_steps':10,'max_to_keep':1}", "10@1 11@2", "11"},
	{"'every_n_steps_closest':{'interval_steps':10}", "", ""},
	{"'custom_steps':{'steps':[3,[5,7]]}", TEN, "3 5 6 7 10+"},
	// The highest, reversed the lowest; of equals the later ones.
	{BEST_2, LOSSES, "2 4 5+"},
	{LOWEST_2, LOSSES, "3 5"},
	{BEST_2, "1@1=1 2@2=1 3@3=1 4@4=0", "2 3 4+"},
	{LOWEST_2, "1@1=1 2@2=1 3@3=1 4@4=2", "2 3 4+"},
	{"'best_n':{'metric':'loss','n':5}", LOSSES, "1 2 3 4 5"},
	{"'best_n':{'metric':'loss','n':null}", LOSSES, "1 2 3 4 5"},
	{"'best_n':{'metric':'loss','n':0}", SOME_LOSSES, "7+"},
	{"'best_n':{'metric':'accuracy','n':1,'keep_checkpoints_without_metrics':false}", LOSSES, "5+"},
	// What is no number is none.
	{BEST_2, SOME_LOSSES, "1 2 3 5 6 7"},
	{"'best_n':{'metric':'loss','n':2,'keep_checkpoints_without_metrics':false}", SOME_LOSSES, "2 6 7+"},
	{"'best_n':{'metric':'loss','n':1}", "1@1=-1e308 2@2=3 3@3=-7", "2 3+"},
	// Inclusive, and all after the first that is young.
	{"'latest_duration':{'secs':30}", TEN, "7 8 9 10"},
	{"'latest_duration':{'secs':29}", TEN, "8 9 10"},
	{"'latest_duration':{'secs':30}", "1@10 2@90 3@20", "2 3"},
	{"'latest_duration':{'secs':30}", "1@10 2@20", "2+"},
	{"'any':[{'latest_n':{'n':1}},{'custom_steps':{'steps':[2]}},{'any':[{'every_n_steps':{'interval_steps':5}}]}]",
	 TEN, "2 5 10"},
	// A pin.
	{NONE, "1@1 2@2p 3@3", "2p 3+"},
	{"'latest_n':{'n':1}", "1@1p 2@2tp 3@3", "1p 2p 3"},
	// Temporary ones: the newest step alone, and none takes the place of another.
	{"'preserve_all':{}", "1@1t 2@2 3@3t 4@4t", "2 4+"},
	{"'preserve_all':{}", "1@1t 2@2 3@3t 4@4", "2 4"},
	{"'latest_n':{'n':2}", "1@1 2@2 3@3 4@4t 5@5t", "2 3 5+"},
	{"'every_n_seconds':{'interval_secs':10}", "1@1t 2@2 3@5t 4@11 5@12", "2 5"},
	{"'best_n':{'metric':'loss','n':1}", "1@1=1 2@2t=9 3@3=0", "1 3+"},
	{NONE, "1@1t", "1+"},
};

static void add(char **text, const struct ckpt_policy_step *step, const struct ckpt_verdict *v)
{
	const char *mark = !strcmp(v->why, "the newest") ? "+" : !strcmp(v->why, "pinned") ? "p" : "";
	CLEANUP_FREE char *before = *text;

	if (asprintf(text, "%s%s%lld%s", before, *before ? " " : "", (long long)step->number, mark) < 0)
		ck_abort();
}

START_TEST(steps_stay_as_the_table_says)
{
	CLEANUP_FREE char *text = NULL, *got = strdup("");
	struct ckpt_verdict v[HISTORY_MAX] = {0};
	struct ckpt_policy p;
	struct history h;

	ck_assert_int_gt(asprintf(&text, "{'keep':{%s}}", rows[_i].keep), 0);
	p = policy_of(text);
	history_parse(rows[_i].steps, &h);
	ck_ok(ckpt_preserve(&p, h.steps, h.count, 100 * HISTORY_SECOND, v));
	for (size_t i = 0; i < h.count; i++) {
		ck_assert_ptr_nonnull(v[i].why);
		if (v[i].keep)
			add(&got, &h.steps[i], &v[i]);
	}
	ck_assert_msg(!strcmp(got, rows[_i].stay), "%s of %s: %s, not %s", rows[_i].keep, rows[_i].steps, got,
		      rows[_i].stay);
	history_done(&h);
	ckpt_policy_done(&p);
}
END_TEST

START_TEST(each_verdict_says_why)
{
	static const char *const why[] = {
		"no policy keeps it", "custom_steps", "pinned", "temporary, and not the newest",
		"latest_n",           "the newest"};
	struct ckpt_policy p = policy_of("{'keep':{'any':[{'custom_steps':{'steps':[2,5]}},{'latest_n':{'n':1}}]}}");
	struct ckpt_verdict v[6];
	struct history h;

	history_parse("1@1 2@2 3@3p 4@4t 6@6 7@7t", &h);
	ck_ok(ckpt_preserve(&p, h.steps, h.count, 0, v));
	for (size_t i = 0; i < ARRAY_LEN(why); i++)
		ck_assert_str_eq(v[i].why, why[i]);
	history_done(&h);
	ckpt_policy_done(&p);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("preserve");
	TCase *tcase = tcase_create("preserve");

	tcase_add_loop_test(tcase, steps_stay_as_the_table_says, 0, ARRAY_LEN(rows));
	tcase_add_test(tcase, each_verdict_says_why);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
