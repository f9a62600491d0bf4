// policy: when steps are saved, and which of them stay.
#include "tools/verb.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/policy/history.h"
#include "core/policy/policy_store.h"
#include "core/policy/should_save.h"
#include "core/request/policy_set.h"
#include "tools/explain.h"
#include "tools/output.h"
#include "tools/policy_file.h"
#include "tools/push.h"
#include "tools/units.h"

#include <stdio.h>

enum { KEY_STEP_TIME = 0x100, KEY_SAVE_TIME, KEY_PREEMPT_AT };

static const struct argp_option options[] = {
	{"step-time", KEY_STEP_TIME, "D", 0, "explain: how long a step takes (default 1s)", 0},
	{"save-time", KEY_SAVE_TIME, "D", 0, "explain: how long a save takes, in the background (default 0s)", 0},
	{"preempt-at", KEY_PREEMPT_AT, "N", 0, "explain: a preemption is reached at step N", 0},
	{0},
};

static int parse_step(const char *text, size_t len, int64_t *ret_step)
{
	int64_t step = 0;

	if (!len || len > 18 || strspn(text, "0123456789") < len) // too few digits to wrap
		return -EINVAL;
	for (size_t i = 0; i < len; i++)
		step = step * 10 + (text[i] - '0');
	*ret_step = step;
	return 0;
}

static int on_option(int key, char *arg, void *input)
{
	struct ckpt_explain *e = input;
	int64_t *ns;

	if (key == KEY_PREEMPT_AT)
		return parse_step(arg, strlen(arg), &e->preempt_at) ? ckpt_usage(arg, NULL, "is not a step number") : 0;
	ns = key == KEY_STEP_TIME ? &e->step_ns : &e->save_ns;
	if (ckpt_duration_parse(arg, ns))
		return ckpt_usage(arg, "as in 1s, 250ms, 10m", "is not a duration");
	return *ns > CKPT_EXPLAIN_NS_MAX ? ckpt_usage(arg, NULL, "is longer than a day") : 0;
}

static json_t *as_json(const struct ckpt_policy *p)
{
	CLEANUP_FREE char *text = ckpt_need(ckpt_policy_text(p));

	return ckpt_need(json_loads(text, 0, NULL));
}

static int show(const struct ckpt_listing *l)
{
	struct ckpt_policy p;
	int rc = ckpt_policy_of_store(l, &p);
	json_t *json;

	if (rc)
		return rc;
	json = as_json(&p);
	ckpt_policy_done(&p);
	if (ckpt_output.json) {
		ckpt_output_json(json);
		return 0;
	}
	CLEANUP_FREE char *text = ckpt_need(json_dumps(json, JSON_INDENT(2) | JSON_SORT_KEYS));
	puts(text);
	json_decref(json);
	return 0;
}

static int check(const char *file)
{
	struct ckpt_policy p = {0};
	int rc = ckpt_policy_file_read(file, &p);

	ckpt_policy_done(&p);
	return rc;
}

static int set(const char *store, const char *file)
{
	CLEANUP_FREE char *why = NULL, *hint = NULL;
	struct ckpt_policy p;
	int rc = ckpt_policy_file_read(file, &p);

	if (rc)
		return rc;
	rc = ckpt_policy_set_in(store, &p, &why);
	ckpt_policy_done(&p);
	if (rc && !why)
		ckpt_listing_explain(store, rc, &why, &hint);
	return !rc ? ckpt_push(store, INT64_MAX)
		   : ckpt_fail(store, rc == -EIO ? "`ckptfs policy show` says whether it is set" : hint, "%s", why);
}

// --- explain ----------------------------------------------------------------------------------------------------------

static int parse_range(const char *word, struct ckpt_explain *e)
{
	const char *dots = strstr(word, "..");

	if (!dots || parse_step(word, (size_t)(dots - word), &e->first) ||
	    parse_step(dots + 2, strlen(dots + 2), &e->last) || e->first > e->last)
		return ckpt_usage(word, "as in 0..2000", "is not a range of steps");
	if (e->last - e->first >= CKPT_EXPLAIN_STEPS_MAX)
		return ckpt_usage(word, NULL, "has more than %d steps", CKPT_EXPLAIN_STEPS_MAX);
	return 0;
}

static const char *word_of(const json_t *row, const char *key)
{
	return json_string_value(json_object_get(row, key));
}

static void add_row(struct ckpt_table *t, const json_t *row)
{
	CLEANUP_FREE char *step = ckpt_text("%" JSON_INTEGER_FORMAT, json_integer_value(json_object_get(row, "step")));
	char after[CKPT_DURATION_MAX];
	bool save = json_is_true(json_object_get(row, "save"));
	const char *answer = !save ? "no" : json_is_true(json_object_get(row, "permanent")) ? "permanent" : "temporary";
	const char *stays = !save ? NULL : json_is_true(json_object_get(row, "keep")) ? "stays" : "goes";

	ckpt_duration_text((int64_t)(json_real_value(json_object_get(row, "seconds")) * 1e9), after);
	ckpt_table_row(t, (const char *const[]){step, after, word_of(row, "error") ? "error" : answer,
						word_of(row, "policy"), stays, word_of(row, "why")});
}

// A no needs -v to be seen: most steps are not saved.
static void print_rows(const json_t *rows)
{
	struct ckpt_table *t = ckpt_table_new();
	size_t i, saved = 0, stay = 0;
	const json_t *row;

	ckpt_table_column(t, "STEP", CKPT_RIGHT);
	ckpt_table_column(t, "AFTER", CKPT_RIGHT);
	ckpt_table_column(t, "SAVE", CKPT_LEFT);
	ckpt_table_column(t, "POLICY", CKPT_LEFT);
	ckpt_table_column(t, "AT END", CKPT_LEFT);
	ckpt_table_column(t, "WHY", CKPT_LEFT);
	json_array_foreach(rows, i, row)
	{
		bool save = json_is_true(json_object_get(row, "save"));

		saved += save;
		stay += json_is_true(json_object_get(row, "keep"));
		if (save || word_of(row, "error") || ckpt_output.verbose)
			add_row(t, row);
	}
	ckpt_table_print(t);
	ckpt_note("%zu of %zu steps are saved, %zu stay", saved, json_array_size(rows), stay);
}

// One line for each reason why nothing could be decided.
static int tell_errors(const json_t *rows)
{
	const char *last = NULL, *error;
	const json_t *row;
	int status = 0;
	size_t i;

	json_array_foreach(rows, i, row)
	{
		error = word_of(row, "error");
		if (error && (!last || strcmp(error, last)))
			status = ckpt_fail("explain", NULL, "%s", error);
		last = error ? error : last;
	}
	return status;
}

static int explain(const struct ckpt_listing *l, const struct ckpt_policy *p, struct ckpt_explain *e)
{
	char folder_id[CKPT_FOLDER_ID_LEN + 1];
	struct ckpt_history h;
	json_t *rows;
	int rc = ckpt_history_read_run(l->store, ckpt_policy_has(&p->keep, CKPT_POLICY_BEST_N), folder_id, &h);

	if (rc == -EMLINK)
		return ckpt_fail(l->store->path, "it simulates the steps of one folder", "several folders have steps");
	if (rc)
		return ckpt_fail_errno(l->store->path, NULL, rc);
	e->steps = h.steps;
	e->count = h.count;
	e->begins_ns = ckpt_sys.now_ns();
	e->store = l->store->path;
	for (size_t i = 0; i < l->folders.count; i++)
		if (!strcmp(l->folders.at[i].id, folder_id))
			e->folder = l->folders.at[i].path;
	rows = ckpt_explain(p, e);
	ckpt_history_done(&h);
	rc = tell_errors(rows);
	if (ckpt_output.json)
		ckpt_output_json(json_incref(rows));
	else
		print_rows(rows);
	json_decref(rows);
	return rc;
}

static int explain_words(const struct ckpt_listing *l, char *const *words, size_t count, struct ckpt_explain *e)
{
	CLEANUP_FREE char *why = NULL;
	struct ckpt_policy p;
	int rc = parse_range(words[0], e);

	if (rc)
		return rc;
	rc = count > 1 ? ckpt_policy_file_read(words[1], &p) : ckpt_policy_of_store(l, &p);
	if (rc)
		return rc;
	rc = count > 1 ? 0 : ckpt_policy_check_programs(l->store, &p, &why);
	rc = rc ? ckpt_fail(l->store->path, ckpt_should_save_hint(rc), "%s", why ? why : strerror(-rc))
		: explain(l, &p, e);
	ckpt_policy_done(&p);
	return rc;
}

// --- The verb ---------------------------------------------------------------------------------------------------------

enum act { SHOW, CHECK, SET, EXPLAIN, ACTS };

static const struct {
	const char *word, *usage;
	size_t least, most; // words behind STORE
} acts[ACTS] = {
	[SHOW] = {"show", "usage: ckptfs policy show [STORE]", 0, 0},
	[CHECK] = {"check", "usage: ckptfs policy check [STORE] FILE", 1, 1},
	[SET] = {"set", "usage: ckptfs policy set [STORE] FILE", 1, 1},
	[EXPLAIN] = {"explain", "usage: ckptfs policy explain [STORE] A..B [FILE]", 1, 2},
};

static int find_act(const char *word, enum act *ret_act)
{
	const char *words[ACTS + 1] = {0}, *nearest;
	CLEANUP_FREE char *hint = NULL;

	for (enum act act = 0; act < ACTS; act++) {
		words[act] = acts[act].word;
		if (!strcmp(word, words[act])) {
			*ret_act = act;
			return 0;
		}
	}
	nearest = ckpt_nearest(word, words);
	hint = nearest ? ckpt_text("did you mean %s?", nearest) : ckpt_text("show, check, set or explain");
	return ckpt_usage(word, hint, "unknown action");
}

static int run(enum act act, const struct ckpt_operand *o, char *const *words, struct ckpt_explain *e)
{
	struct ckpt_listing l;
	int rc = ckpt_listing_open(o->store, CKPT_STORE_READ, &l);

	if (rc)
		return rc;
	rc = act == SHOW ? show(&l) : explain_words(&l, words, o->count, e);
	ckpt_listing_close(&l);
	return rc;
}

static const struct ckpt_syntax syntax = {
	.operands = "show|check|set|explain [STORE] [A..B] [FILE]",
	.doc = "Shows, checks or sets the policy of a store: when steps are saved, and which steps "
	       "stay. explain simulates the steps A to B.\v"
	       "FILE is JSON, - is stdin:\n"
	       "  {\"preset\": \"orbax-v0|orbax-v1|eformer|maxtext\", \"save\": POLICY,\n"
	       "   \"keep\": POLICY, \"skip_zero\": false, \"skip_duplicate\": true,\n"
	       "   \"only_after_latest\": true}\n"
	       "The preset (default orbax-v1) fills in what is missing. skip_zero: step 0 is not "
	       "saved. skip_duplicate: the step that was saved last is not saved again. "
	       "only_after_latest: no step below the highest one is saved (all presets except "
	       "eformer).\n"
	       "Rules for save:\n"
	       "  {\"fixed_interval\": {\"interval\": 1000}}\n"
	       "  {\"specific_steps\": {\"steps\": [1, 5, [100, 200]]}}\n"
	       "  {\"continuous\": {\"minimum_interval_secs\": 600}}\n"
	       "  {\"step_intervals\": [{\"every\": 100, \"until\": 1000}, {\"every\": 1000}]}\n"
	       "  {\"time_interval\": {\"save_interval_secs\": 900}}    temporary\n"
	       "  {\"exec\": {\"command\": [\"/opt/decide\"], \"timeout_secs\": 5}}    0 yes, 1 "
	       "no;\n"
	       "      its environment has CKPT_STEP, CKPT_NOW, CKPT_LATEST_STEP,\n"
	       "      CKPT_LATEST_TIME, CKPT_STEPS, CKPT_SAVING, CKPT_PREEMPTED, CKPT_RUN,\n"
	       "      CKPT_STORE\n"
	       "  {\"initial\": {}}, {\"preemption\": {}}\n"
	       "  {\"any\": [...]}, {\"all\": [...]}, {\"not\": POLICY}\n"
	       "Rules for keep:\n"
	       "  {\"latest_n\": {\"n\": 3}}, {\"latest_duration\": {\"secs\": 86400}}\n"
	       "  {\"every_n_seconds\": {\"interval_secs\": 3600}}\n"
	       "  {\"every_n_steps\": {\"interval_steps\": 1000, \"exact_interval\": true}}\n"
	       "  {\"every_n_steps_closest\": {\"interval_steps\": 1000, \"max_to_keep\": 5}}\n"
	       "  {\"custom_steps\": {\"steps\": [500]}}, {\"preserve_all\": {}}, {\"any\": [...]}\n"
	       "  {\"best_n\": {\"metric\": \"loss\", \"n\": 2, \"reverse\": true}}    the two "
	       "lowest\n"
	       "\n"
	       "Examples:\n"
	       "  ckptfs policy set /data/run42 policy.json\n"
	       "  ckptfs policy explain /ckpt 0..2000 policy.json",
	.options = options,
	.option = on_option,
	.operands_min = 1,
	.operands_max = 4,
};

int ckpt_verb_policy(int argc, char **argv)
{
	struct ckpt_explain e = {.step_ns = 1000000000, .preempt_at = -1};
	struct ckpt_words words, rest;
	struct ckpt_operand o;
	enum act act = SHOW;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, &e, &words);
	rc = find_act(words.at[0], &act);
	if (rc)
		return rc;
	rest = (struct ckpt_words){words.at + 1, words.count - 1};
	if (act == CHECK && rest.count < 2) // it needs no store
		return rest.count ? check(rest.at[0]) : ckpt_usage("policy", acts[act].usage, "wants one file");
	rc = ckpt_operand_take(&rest, &o);
	if (rc)
		return rc;
	if (o.count < acts[act].least || o.count > acts[act].most)
		rc = ckpt_usage("policy", acts[act].usage, "an operand %s",
				o.count < acts[act].least ? "is missing" : "too many");
	else if (act == CHECK)
		rc = check(rest.at[rest.count - 1]);
	else if (act == SET)
		rc = set(o.store, rest.at[rest.count - 1]);
	else
		rc = run(act, &o, rest.at + rest.count - o.count, &e); // files are called as they were written
	ckpt_operand_done(&o);
	return rc;
}
