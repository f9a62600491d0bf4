#include "core/policy/policy.h"

#include "core/base/json.h"
#include "core/base/util.h"
#include "core/limits.h"

#define SECONDS_MAX INT64_C(1000000000) // so that all of them are ns that an int64_t holds

#define AT(field) offsetof(struct ckpt_policy_node, field)
#define STEP_INTERVAL(word)                                                                                            \
	{                                                                                                              \
		.name = word, .kind = CKPT_POLICY_WHOLE, .at = AT(interval), .required = true, .least = 1,             \
		.most = INT64_MAX                                                                                      \
	}
#define SECONDS(word)                                                                                                  \
	{                                                                                                              \
		.name = word, .kind = CKPT_POLICY_WHOLE, .at = AT(interval), .required = true, .least = 1,             \
		.most = SECONDS_MAX                                                                                    \
	}
#define AT_MOST(word, from)                                                                                            \
	{                                                                                                              \
		.name = word, .kind = CKPT_POLICY_WHOLE, .at = AT(most), .nullable = true,                             \
		.initial = CKPT_POLICY_NULL, .least = (from), .most = INT64_MAX                                        \
	}
#define STEPS                                                                                                          \
	{                                                                                                              \
		.name = "steps", .kind = CKPT_POLICY_STEPS, .required = true                                           \
	}

const struct ckpt_policy_word ckpt_policy_words[CKPT_POLICY_WORDS] = {
	[CKPT_POLICY_ANY] = {"any", true, true, CKPT_POLICY_NODES, {{0}}},
	[CKPT_POLICY_ALL] = {"all", true, false, CKPT_POLICY_NODES, {{0}}},
	[CKPT_POLICY_NOT] = {"not", true, false, CKPT_POLICY_NODE, {{0}}},
	[CKPT_POLICY_FIXED_INTERVAL] = {"fixed_interval", true, false, CKPT_POLICY_OBJECT, {STEP_INTERVAL("interval")}},
	[CKPT_POLICY_SPECIFIC_STEPS] = {"specific_steps", true, false, CKPT_POLICY_OBJECT, {STEPS}},
	[CKPT_POLICY_CONTINUOUS] = {"continuous",
				    true,
				    false,
				    CKPT_POLICY_OBJECT,
				    {{.name = "minimum_interval_secs",
				      .kind = CKPT_POLICY_WHOLE,
				      .at = AT(interval),
				      .nullable = true,
				      .initial = CKPT_POLICY_NULL,
				      .least = 0,
				      .most = SECONDS_MAX}}},
	[CKPT_POLICY_INITIAL] = {"initial", true, false, CKPT_POLICY_OBJECT, {{0}}},
	[CKPT_POLICY_PREEMPTION] = {"preemption", true, false, CKPT_POLICY_OBJECT, {{0}}},
	[CKPT_POLICY_STEP_INTERVALS] = {"step_intervals", true, false, CKPT_POLICY_INTERVALS, {{0}}},
	[CKPT_POLICY_TIME_INTERVAL] =
		{"time_interval", true, false, CKPT_POLICY_OBJECT, {SECONDS("save_interval_secs")}},
	[CKPT_POLICY_EXEC] = {"exec",
			      true,
			      false,
			      CKPT_POLICY_OBJECT,
			      {{.name = "command", .kind = CKPT_POLICY_COMMAND, .required = true},
			       {.name = "timeout_secs",
				.kind = CKPT_POLICY_WHOLE,
				.at = AT(interval),
				.initial = 5,
				.least = 1,
				.most = CKPT_POLICY_EXEC_SECS_MAX}}},
	[CKPT_POLICY_PRESERVE_ALL] = {"preserve_all", false, true, CKPT_POLICY_OBJECT, {{0}}},
	[CKPT_POLICY_LATEST_N] = {"latest_n", false, true, CKPT_POLICY_OBJECT, {AT_MOST("n", 0)}},
	[CKPT_POLICY_EVERY_N_SECONDS] =
		{"every_n_seconds", false, true, CKPT_POLICY_OBJECT, {SECONDS("interval_secs")}},
	[CKPT_POLICY_EVERY_N_STEPS] =
		{"every_n_steps",
		 false,
		 true,
		 CKPT_POLICY_OBJECT,
		 {STEP_INTERVAL("interval_steps"),
		  {.name = "exact_interval", .kind = CKPT_POLICY_FLAG, .at = AT(exact), .initial = true},
		  AT_MOST("max_to_keep", 1)}},
	[CKPT_POLICY_EVERY_N_STEPS_CLOSEST] = {"every_n_steps_closest",
					       false,
					       true,
					       CKPT_POLICY_OBJECT,
					       {STEP_INTERVAL("interval_steps"), AT_MOST("max_to_keep", 1)}},
	[CKPT_POLICY_CUSTOM_STEPS] = {"custom_steps", false, true, CKPT_POLICY_OBJECT, {STEPS}},
	[CKPT_POLICY_BEST_N] = {"best_n",
				false,
				true,
				CKPT_POLICY_OBJECT,
				{{.name = "metric", .kind = CKPT_POLICY_NAME, .at = AT(metric), .required = true},
				 AT_MOST("n", 0),
				 {.name = "reverse", .kind = CKPT_POLICY_FLAG, .at = AT(reverse)},
				 {.name = "keep_checkpoints_without_metrics",
				  .kind = CKPT_POLICY_FLAG,
				  .at = AT(unmeasured),
				  .initial = true}}},
	[CKPT_POLICY_LATEST_DURATION] = {"latest_duration", false, true, CKPT_POLICY_OBJECT, {SECONDS("secs")}},
};

const struct ckpt_policy_field ckpt_policy_interval_fields[] = {
	{.name = "every",
	 .kind = CKPT_POLICY_WHOLE,
	 .at = offsetof(struct ckpt_policy_interval, every),
	 .required = true,
	 .least = 1,
	 .most = INT64_MAX},
	{.name = "until",
	 .kind = CKPT_POLICY_WHOLE,
	 .at = offsetof(struct ckpt_policy_interval, until),
	 .nullable = true,
	 .initial = CKPT_POLICY_NULL,
	 .least = 0,
	 .most = INT64_MAX},
	{0},
};

#define AS_ORBAX "\"only_after_latest\":true,\"skip_zero\":false,\"skip_duplicate\":true}"

// What these systems do by default: Orbax's Checkpointer, its older CheckpointManager, the example of eFormer's
// documentation, MaxText.
const struct ckpt_policy_preset ckpt_policy_presets[] = {
	{"orbax-v1", "{\"save\":{\"any\":[{\"initial\":{}},{\"continuous\":{}},{\"preemption\":{}}]},"
		     "\"keep\":{\"preserve_all\":{}}," AS_ORBAX},
	{"orbax-v0", "{\"save\":{\"any\":[{\"fixed_interval\":{\"interval\":1}},{\"specific_steps\":{\"steps\":[]}},"
		     "{\"preemption\":{}},{\"initial\":{}}]},"
		     "\"keep\":{\"latest_n\":{\"n\":null}}," AS_ORBAX},
	{"eformer", "{\"save\":{\"any\":[{\"step_intervals\":[{\"every\":500,\"until\":5000},{\"every\":1000}]},"
		    "{\"time_interval\":{\"save_interval_secs\":900}}]},"
		    "\"keep\":{\"preserve_all\":{}},"
		    "\"only_after_latest\":false,\"skip_zero\":true,\"skip_duplicate\":true}"},
	{"maxtext", "{\"save\":{\"any\":[{\"fixed_interval\":{\"interval\":10000}},{\"specific_steps\":{\"steps\":[]}},"
		    "{\"preemption\":{}},{\"initial\":{}}]},"
		    "\"keep\":{\"latest_n\":{\"n\":null}}," AS_ORBAX},
	{0},
};

int ckpt_policy_default(struct ckpt_policy *ret_policy)
{
	CLEANUP_FREE char *why = NULL;

	return ckpt_policy_parse("{}", 2, ret_policy, &why);
}

void ckpt_policy_node_done(struct ckpt_policy_node *node)
{
	for (size_t i = 0; i < node->below_count; i++)
		ckpt_policy_node_done(&node->below[i]);
	for (char **word = node->command; word && *word; word++)
		free(*word);
	free(node->below);
	free(node->command);
	free(node->metric);
	free(node->ranges);
	free(node->intervals);
	*node = (struct ckpt_policy_node){0};
}

void ckpt_policy_done(struct ckpt_policy *p)
{
	ckpt_policy_node_done(&p->save);
	ckpt_policy_node_done(&p->keep);
}

const char *ckpt_policy_word(enum ckpt_policy_kind kind)
{
	return ckpt_policy_words[kind].word;
}

bool ckpt_policy_has(const struct ckpt_policy_node *tree, enum ckpt_policy_kind kind)
{
	if (tree->kind == kind)
		return true;
	for (size_t i = 0; i < tree->below_count; i++)
		if (ckpt_policy_has(&tree->below[i], kind))
			return true;
	return false;
}

bool ckpt_policy_in_ranges(const struct ckpt_policy_node *node, int64_t step)
{
	for (size_t i = 0; i < node->range_count; i++)
		if (step >= node->ranges[i].first && step <= node->ranges[i].last)
			return true;
	return false;
}

// --- The canonical form -----------------------------------------------------------------------------------------------

// jansson takes a value that is NULL, for want of memory, as an error of the call that is given it: json.h notices it.

static json_t *whole_json(int64_t n)
{
	return n == CKPT_POLICY_NULL ? json_null() : json_integer(n);
}

// Up to two steps that follow each other are said one by one.
static json_t *steps_json(const struct ckpt_policy_node *node)
{
	json_t *steps = json_array();

	for (size_t i = 0; i < node->range_count; i++) {
		const struct ckpt_policy_range *r = &node->ranges[i];

		if (r->last - r->first > 1) {
			json_array_append_new(steps, json_pack("[I, I]", (json_int_t)r->first, (json_int_t)r->last));
			continue;
		}
		json_array_append_new(steps, json_integer(r->first));
		if (r->last > r->first)
			json_array_append_new(steps, json_integer(r->last));
	}
	return steps;
}

static json_t *command_json(const struct ckpt_policy_node *node)
{
	json_t *command = json_array();

	for (char **word = node->command; *word; word++)
		json_array_append_new(command, json_string(*word));
	return command;
}

static json_t *fields_json(const struct ckpt_policy_field *fields, const struct ckpt_policy_node *node,
			   const void *base)
{
	json_t *object = json_object();

	for (const struct ckpt_policy_field *f = fields; f->name; f++) {
		const void *at = (const char *)base + f->at;
		json_t *value = NULL;

		switch (f->kind) {
		case CKPT_POLICY_WHOLE:
			value = whole_json(*(const int64_t *)at);
			break;
		case CKPT_POLICY_FLAG:
			value = json_boolean(*(const bool *)at);
			break;
		case CKPT_POLICY_NAME:
			value = json_string(*(char *const *)at);
			break;
		case CKPT_POLICY_STEPS:
			value = steps_json(node);
			break;
		case CKPT_POLICY_COMMAND:
			value = command_json(node);
			break;
		}
		json_object_set_new(object, f->name, value);
	}
	return object;
}

static json_t *node_json(const struct ckpt_policy_node *node)
{
	const struct ckpt_policy_word *word = &ckpt_policy_words[node->kind];
	json_t *value = NULL;

	switch (word->form) {
	case CKPT_POLICY_OBJECT:
		value = fields_json(word->fields, node, node);
		break;
	case CKPT_POLICY_NODE:
		value = node_json(node->below);
		break;
	case CKPT_POLICY_NODES:
		value = json_array();
		for (size_t i = 0; i < node->below_count; i++)
			json_array_append_new(value, node_json(&node->below[i]));
		break;
	case CKPT_POLICY_INTERVALS:
		value = json_array();
		for (size_t i = 0; i < node->interval_count; i++)
			json_array_append_new(value,
					      fields_json(ckpt_policy_interval_fields, NULL, &node->intervals[i]));
		break;
	}
	return json_pack("{s:o}", word->word, value);
}

char *ckpt_policy_text(const struct ckpt_policy *p)
{
	ckpt_json_begin();
	return ckpt_json_dump(json_pack("{s:o, s:o, s:b, s:b, s:b}", "save", node_json(&p->save), "keep",
					node_json(&p->keep), "skip_zero", (int)p->skip_zero, "skip_duplicate",
					(int)p->skip_duplicate, "only_after_latest", (int)p->only_after_latest),
			      JSON_COMPACT | JSON_SORT_KEYS);
}
