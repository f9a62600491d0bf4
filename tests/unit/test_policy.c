// The policy document: what it may say, what is said of what it may not, and its canonical form.
#include "tests/support/history.h"
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/limits.h"

#include <stdio.h>

#define REST ",'skip_duplicate':true,'skip_zero':false}"
#define AFTER "'only_after_latest':true,"
#define SAVE_V1 AFTER "'save':{'any':[{'initial':{}},{'continuous':{'minimum_interval_secs':null}},{'preemption':{}}]}"
#define KEEP_ALL "{'keep':{'preserve_all':{}},"

static char *quoted(const char *text)
{
	char *copy = strdup(text);

	for (char *at = copy; *at; at++)
		if (*at == '\'')
			*at = '"';
	return copy;
}

static const struct {
	const char *text, *canonical; // ' stands for "
} forms[] = {
	{"{}", KEEP_ALL SAVE_V1 REST},
	{"{'preset':'orbax-v1'}", KEEP_ALL SAVE_V1 REST},
	{"{'preset':'orbax-v0'}",
	 "{'keep':{'latest_n':{'n':null}}," AFTER "'save':{'any':[{'fixed_interval':{'interval':1}},{'"
	 "specific_steps':{'steps':[]}},"
	 "{'preemption':{}},{'initial':{}}]}" REST},
	{"{'preset':'maxtext'}",
	 "{'keep':{'latest_n':{'n':null}}," AFTER "'save':{'any':[{'fixed_interval':{'interval':10000}},"
	 "{'specific_steps':{'steps':[]}},{'preemption':{}},{'initial':{}}]}" REST},
	{"{'preset':'eformer'}",
	 KEEP_ALL "'only_after_latest':false,'save':{'any':[{'step_intervals':[{'every':500,'until':5000},{'every':"
		  "1000,'until':null}]},"
		  "{'time_interval':{'save_interval_secs':900}}]},'skip_duplicate':true,'skip_zero':true}"},
	// What is said replaces a part of the preset, wherever it stands.
	{"{'skip_zero':false,'keep':{'latest_n':{}},'preset':'eformer','skip_duplicate':false,'only_after_latest':true,"
	 "'save':{'initial':{}}}",
	 "{'keep':{'latest_n':{'n':null}},'only_after_latest':true,'save':{'initial':{}},'skip_duplicate':false,'skip_"
	 "zero':false}"},
	// Lists of steps are sets.
	{"{'save':{'specific_steps':{'steps':[9,7,5,6,7,[100,200],[150,300],[301,301],1]}}}",
	 KEEP_ALL AFTER "'save':{'specific_steps':{'steps':[1,[5,7],9,[100,301]]}}" REST},
	{"{'save':{'specific_steps':{'steps':[2,1,4,[9223372036854775806,9223372036854775807]]}}}",
	 KEEP_ALL AFTER "'save':{'specific_steps':{'steps':[1,2,4,9223372036854775806,9223372036854775807]}}" REST},
	{"{'save':{'any':[{'fixed_interval':{'interval':1000}},{'continuous':{'minimum_interval_secs':600}},"
	 "{'all':[{'not':{'specific_steps':{'steps':[3000]}}},{'exec':{'command':['/opt/decide','-x']}}]}]}}",
	 KEEP_ALL AFTER
	 "'save':{'any':[{'fixed_interval':{'interval':1000}},{'continuous':{'minimum_interval_secs':600}},"
	 "{'all':[{'not':{'specific_steps':{'steps':[3000]}}},"
	 "{'exec':{'command':['/opt/decide','-x'],'timeout_secs':5}}]}]}" REST},
	{"{'keep':{'any':[{'latest_n':{'n':0}},{'every_n_seconds':{'interval_secs':3600}},"
	 "{'every_n_steps':{'interval_steps':1000}},{'every_n_steps_closest':{'max_to_keep':2,'interval_steps':9}},"
	 "{'custom_steps':{'steps':[500]}},{'best_n':{'metric':'loss'}},{'latest_duration':{'secs':86400}}]}}",
	 "{'keep':{'any':[{'latest_n':{'n':0}},{'every_n_seconds':{'interval_secs':3600}},"
	 "{'every_n_steps':{'exact_interval':true,'interval_steps':1000,'max_to_keep':null}},"
	 "{'every_n_steps_closest':{'interval_steps':9,'max_to_keep':2}},{'custom_steps':{'steps':[500]}},"
	 "{'best_n':{'keep_checkpoints_without_metrics':true,'metric':'loss','n':null,'reverse':false}},"
	 "{'latest_duration':{'secs':86400}}]}," SAVE_V1 REST},
	{"{'keep':{'best_n':{'metric':'loss','n':2,'reverse':true,'keep_checkpoints_without_metrics':false}}}",
	 "{'keep':{'best_n':{'keep_checkpoints_without_metrics':false,'metric':'loss','n':2,'reverse':true}}," SAVE_V1
		 REST},
	{"{'save':{'step_intervals':[]}}", KEEP_ALL AFTER "'save':{'step_intervals':[]}" REST},
};

START_TEST(a_policy_has_one_canonical_form)
{
	CLEANUP_FREE char *text = quoted(forms[_i].text), *canonical = quoted(forms[_i].canonical), *why = NULL;
	struct ckpt_policy p;

	for (int again = 0; again < 2; again++) {
		const char *from = again ? canonical : text;
		int rc = ckpt_policy_parse(from, strlen(from), &p, &why);
		CLEANUP_FREE char *got = NULL;

		ck_assert_msg(!rc, "%s: %s", from, why);
		got = ckpt_policy_text(&p);
		ck_assert_str_eq(got, canonical);
		ckpt_policy_done(&p);
	}
}
END_TEST

static const struct {
	const char *text, *why;
} refused[] = {
	{"", "not JSON: line 1, column 0: ..."},
	{"[]", "must be an object, as {'preset': 'orbax-v1'}"},
	{"{'save':{'initial':{}},'save':{'initial':{}}}", "not JSON: line 1, column 29: duplicate object key..."},
	{"{'svae':{}}", "there is no field 'svae'; did you mean 'save'?"},
	{"{'interval':7}",
	 "there is no field 'interval'; there is preset, save, keep, skip_zero, skip_duplicate, only_after_latest"},
	{"{'preset':'orbax-v2'}", "there is no preset 'orbax-v2'; did you mean 'orbax-v1'?"},
	{"{'preset':'mine'}", "there is no preset 'mine'; there is orbax-v1, orbax-v0, eformer, maxtext"},
	{"{'preset':null}", "preset: must be a name"},
	{"{'skip_zero':0}", "skip_zero: must be true or false"},
	{"{'skip_duplicate':null}", "skip_duplicate: must be true or false"},
	{"{'only_after_latest':1}", "only_after_latest: must be true or false"},
	{"{'save':null}", "save: must be an object of one policy, as {'initial': {}}"},
	{"{'keep':{}}", "keep: must be an object of one policy, as {'preserve_all': {}}"},
	{"{'save':{'initial':{},'preemption':{}}}", "save: must be an object of one policy, as {'initial': {}}"},
	{"{'save':{'fixed_intervl':{}}}",
	 "save: there is no policy to save 'fixed_intervl'; did you mean 'fixed_interval'?"},
	{"{'save':{'latest_n':{'n':3}}}", "save: there is no policy to save 'latest_n'; there is any, all, not, "
					  "fixed_interval, specific_steps, continuous, "
					  "initial, preemption, step_intervals, time_interval, exec"},
	{"{'keep':{'any':[{'preserve_all':{}},{'\\u001b[2J\\u00e9-and-so-on-and-so-on-and-so-on-and-so-on-and-so-on':{}"
	 "}]}}",
	 "keep.any[1]: there is no policy to keep '?[2J?\?-and-so-on-and-so-on-and-so-on-and-so-on-and-so-on'; there "
	 "is any, "
	 "preserve_all, latest_n, every_n_seconds, every_n_steps, every_n_steps_closest, custom_steps, best_n, "
	 "latest_duration"},
	{"{'keep':{'all':[{'preserve_all':{}}]}}", "keep: there is no policy to keep 'all'; did you mean 'any'?"},
	{"{'save':{'any':[]}}", "save.any: must be an array of one policy or more"},
	{"{'save':{'all':{}}}", "save.all: must be an array of one policy or more"},
	{"{'save':{'not':[]}}", "save.not: must be an object of one policy, as {'initial': {}}"},
	{"{'save':{'any':[{'initial':{}},{'preemption':{}},{'fixed_interval':{'interval':0}}]}}",
	 "save.any[2].fixed_interval.interval: must be a whole number of at least 1"},
	{"{'save':{'fixed_interval':{'interval':-5}}}",
	 "save.fixed_interval.interval: must be a whole number of at least 1"},
	{"{'save':{'fixed_interval':{'interval':10.0}}}",
	 "save.fixed_interval.interval: must be a whole number of at least 1"},
	{"{'save':{'fixed_interval':{'interval':null}}}",
	 "save.fixed_interval.interval: must be a whole number of at least 1"},
	{"{'save':{'fixed_interval':{}}}", "save.fixed_interval.interval: is missing"},
	{"{'save':{'fixed_interval':1000}}", "save.fixed_interval: must be an object with interval"},
	{"{'save':{'fixed_interval':{'every':1000}}}",
	 "save.fixed_interval: there is no field 'every'; there is interval"},
	{"{'save':{'initial':{'x':1}}}", "save.initial: there is no field 'x'; there is none at all"},
	{"{'save':{'initial':true}}", "save.initial: must be an object: {}"},
	{"{'save':{'continuous':{'minimum_interval_secs':-1}}}",
	 "save.continuous.minimum_interval_secs: must be a whole number of at least 0, or null"},
	{"{'save':{'continuous':{'minimum_interval_secs':1000000001}}}",
	 "save.continuous.minimum_interval_secs: must be a whole number of at most 1000000000, or null"},
	{"{'save':{'time_interval':{'save_interval_secs':0}}}",
	 "save.time_interval.save_interval_secs: must be a whole number of at least 1"},
	{"{'save':{'specific_steps':{'steps':7}}}",
	 "save.specific_steps.steps: must be an array of steps and of ranges, as [1, 5, [100, 200]]"},
	{"{'save':{'specific_steps':{'steps':[1,-1]}}}", "save.specific_steps.steps[1]: must be a whole number of at "
							 "least 0, or two of them: the first and the last step"},
	{"{'save':{'specific_steps':{'steps':[[2,1]]}}}", "save.specific_steps.steps[0]: must be a whole number of at "
							  "least 0, or two of them: the first and the last step"},
	{"{'save':{'specific_steps':{'steps':[[1,2,3]]}}}", "save.specific_steps.steps[0]: must be a whole number of "
							    "at least 0, or two of them: the first and the last step"},
	{"{'save':{'step_intervals':{'every':1}}}",
	 "save.step_intervals: must be an array, as [{'every': 100, 'until': 1000}, {'every': 1000}]"},
	{"{'save':{'step_intervals':[{'every':1,'until':9},{'until':10}]}}",
	 "save.step_intervals[1].every: is missing"},
	{"{'save':{'step_intervals':[{'every':1},{'every':10,'until':100}]}}",
	 "save.step_intervals[1]: is never reached: only the last row can have an 'until' of null"},
	{"{'save':{'step_intervals':[{'every':1,'until':100},{'every':10,'until':100}]}}",
	 "save.step_intervals[1]: 'until' must be greater than that of the row before, 100"},
	{"{'save':{'exec':{'command':[]}}}",
	 "save.exec.command: must be an array of texts: the program and its arguments"},
	{"{'save':{'exec':{'command':'/bin/true'}}}",
	 "save.exec.command: must be an array of texts: the program and its arguments"},
	{"{'save':{'exec':{'command':['/bin/true',7]}}}", "save.exec.command[1]: must be a text"},
	{"{'save':{'exec':{'command':['true']}}}", "save.exec.command[0]: must be the absolute path of a program"},
	{"{'save':{'any':[{'exec':{'command':['/a'],'timeout_secs':56}},{'not':{'exec':{'command':['/b']}}}]}}",
	 "save.any[1].not.exec: the programs may take more than 60 s together: give one of them a smaller "
	 "\"timeout_secs\""},
	{"{'save':{'exec':{'command':['/bin/true'],'timeout_secs':61}}}",
	 "save.exec.timeout_secs: must be a whole number of at most 60"},
	{"{'keep':{'latest_n':{'n':-1}}}", "keep.latest_n.n: must be a whole number of at least 0, or null"},
	{"{'keep':{'every_n_steps':{'interval_steps':0}}}",
	 "keep.every_n_steps.interval_steps: must be a whole number of at least 1"},
	{"{'keep':{'every_n_steps':{'interval_steps':9,'max_to_keep':0}}}",
	 "keep.every_n_steps.max_to_keep: must be a whole number of at least 1, or null"},
	{"{'keep':{'every_n_steps':{'interval_steps':9,'exact_interval':1}}}",
	 "keep.every_n_steps.exact_interval: must be true or false"},
	{"{'keep':{'best_n':{'n':1}}}", "keep.best_n.metric: is missing"},
	{"{'keep':{'best_n':{'metric':''}}}", "keep.best_n.metric: must be a text that is not empty"},
	{"{'keep':{'latest_duration':{'secs':'7d'}}}",
	 "keep.latest_duration.secs: must be a whole number of at least 1"},
};

static bool ends_in_dots(const char *text)
{
	return strlen(text) > 3 && !strcmp(text + strlen(text) - 3, "...");
}

START_TEST(what_is_wrong_is_said_with_its_place)
{
	CLEANUP_FREE char *text = quoted(refused[_i].text), *want = quoted(refused[_i].why), *why = NULL;
	struct ckpt_policy p = {.skip_zero = true}, before = p;

	ck_error(ckpt_policy_parse(text, strlen(text), &p, &why), EINVAL);
	if (ends_in_dots(want)) { // jansson's words go on
		want[strlen(want) - 3] = '\0';
		why[strlen(want)] = '\0';
	}
	ck_assert_str_eq(why, want);
	ck_assert_mem_eq(&p, &before, sizeof(p));
}
END_TEST

static int parse(const char *text, char **ret_why)
{
	struct ckpt_policy p;
	int rc = ckpt_policy_parse(text, strlen(text), &p, ret_why);

	if (!rc)
		ckpt_policy_done(&p);
	return rc;
}

// The text of `count` parts between a head and a tail; malloc'ed.
static char *repeat(const char *head, const char *part, size_t count, const char *tail)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	fputs(head, f);
	for (size_t i = 0; i < count; i++)
		fputs(part, f);
	fputs(tail, f);
	fclose(f);
	return text;
}

static void assert_limit(const char *head, const char *part, size_t most, const char *tail, int error, const char *want)
{
	CLEANUP_FREE char *fits = repeat(head, part, most, tail), *too_much = repeat(head, part, most + 1, tail),
			  *why = NULL;

	ck_assert_msg(!parse(fits, &why), "%s", why);
	ck_error(parse(too_much, &why), error);
	ck_assert_msg(strstr(why, want), "%s", why);
}

START_TEST(sizes_depths_and_counts_have_limits)
{
	assert_limit("{}", " ", CKPT_POLICY_BYTES_MAX - 2, "", EFBIG, "has more than 65536 bytes");
	// Each policy gets fields that were not said.
	assert_limit("{\"keep\":{\"any\":[{\"latest_n\":{}}", ",{\"latest_n\":{}}", CKPT_POLICY_NODES_MAX - 2, "]}}",
		     EINVAL, "there are more than 256 policies");
	assert_limit("{\"save\":{\"any\":[{\"initial\":{}}", ",{}", 0, "]}}", EINVAL, "save.any[1]: must be an object");
	assert_limit("{\"save\":{\"specific_steps\":{\"steps\":[1", ",1", CKPT_POLICY_STEPS_MAX - 1, "]}}}", EINVAL,
		     "has more than 4096 steps");
	assert_limit("{\"save\":{\"exec\":{\"command\":[\"/x\"", ",\"\"", CKPT_POLICY_WORDS_MAX - 1, "]}}}", EINVAL,
		     "has more than 64 words");
	for (unsigned depth = CKPT_POLICY_DEPTH_MAX - 1; depth <= CKPT_POLICY_DEPTH_MAX; depth++) {
		CLEANUP_FREE char *head = repeat("{\"save\":", "{\"not\":", depth, "{\"initial\":{}}"), *why = NULL;
		CLEANUP_FREE char *text = repeat(head, "}", depth + 1, "");

		ck_assert_int_eq(parse(text, &why), depth < CKPT_POLICY_DEPTH_MAX ? 0 : -EINVAL);
		ck_assert(!why || strstr(why, ".not: nested more than 16 deep"));
	}
}
END_TEST

// Fields that were not said need some bytes.
START_TEST(the_canonical_form_has_the_same_limit)
{
	CLEANUP_FREE char *head = repeat("{\"save\":{\"exec\":{\"command\":[\"/", "x", CKPT_POLICY_BYTES_MAX - 35,
					 "\"]}}}"),
			  *why = NULL;

	ck_assert_uint_eq(strlen(head), CKPT_POLICY_BYTES_MAX);
	ck_error(parse(head, &why), EFBIG);
	ck_assert_str_eq(why, "has more than 65536 bytes in its canonical form");
}
END_TEST

START_TEST(the_default_is_the_first_preset)
{
	struct ckpt_policy p;

	ck_ok(ckpt_policy_default(&p));
	CLEANUP_FREE char *text = ckpt_policy_text(&p), *want = quoted(KEEP_ALL SAVE_V1 REST);
	ck_assert_str_eq(text, want);
	ck_assert(ckpt_policy_has(&p.save, CKPT_POLICY_PREEMPTION) && !ckpt_policy_has(&p.save, CKPT_POLICY_EXEC));
	ckpt_policy_done(&p);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("policy");
	TCase *tcase = tcase_create("policy");

	tcase_add_loop_test(tcase, a_policy_has_one_canonical_form, 0, ARRAY_LEN(forms));
	tcase_add_loop_test(tcase, what_is_wrong_is_said_with_its_place, 0, ARRAY_LEN(refused));
	tcase_add_test(tcase, sizes_depths_and_counts_have_limits);
	tcase_add_test(tcase, the_canonical_form_has_the_same_limit);
	tcase_add_test(tcase, the_default_is_the_first_preset);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
