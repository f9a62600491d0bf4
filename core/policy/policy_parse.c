// A policy out of a document that anybody may have written. What is wrong with it is said with the place where it is, as
// "save.any[2].fixed_interval.interval", which is made of words and numbers of ours: what is the document's is shown in part.
#include "core/policy/policy.h"

#include "core/base/json.h"
#include "core/base/nearest.h"
#include "core/base/util.h"
#include "core/limits.h"

#include <ctype.h>
#include <stdio.h>

#define SHOWN_MAX 60 // bytes of the document's own words
#define WORDS_MAX 32 // of ours in one list; more than there are

struct parse {
	char place[CKPT_POLICY_DEPTH_MAX * 64]; // "" at the top
	size_t place_len;
	unsigned depth, nodes;   // of the tree that it is in
	int64_t program_seconds; // that its programs may take, one after the other
	bool keep;
	char **ret_why;
};

// --- Places and messages ----------------------------------------------------------------------------------------------

// Where it was before; leave() goes back there.
__attribute__((format(printf, 2, 3))) static size_t enter(struct parse *p, const char *format, ...)
{
	size_t before = p->place_len, room = sizeof(p->place) - before;
	va_list ap;
	int len;

	va_start(ap, format);
	len = vsnprintf(p->place + before, room, format, ap);
	va_end(ap);
	p->place_len += MIN((size_t)MAX(len, 0), room - 1);
	return before;
}

static void leave(struct parse *p, size_t before)
{
	p->place_len = before;
	p->place[before] = '\0';
}

__attribute__((format(printf, 2, 3))) static int refuse(struct parse *p, const char *format, ...)
{
	CLEANUP_FREE char *what = NULL;
	va_list ap;
	int len;

	va_start(ap, format);
	len = vasprintf(&what, format, ap);
	va_end(ap);
	if (len < 0)
		what = NULL;
	if (!what || asprintf(p->ret_why, "%s%s%s", p->place, *p->place ? ": " : "", what) < 0)
		*p->ret_why = NULL;
	return -EINVAL;
}

struct shown {
	char text[SHOWN_MAX + 4];
};

static struct shown shown(const char *word)
{
	struct shown s = {""};
	size_t len = strnlen(word, SHOWN_MAX + 1), n = MIN(len, (size_t)SHOWN_MAX);

	for (size_t i = 0; i < n; i++)
		s.text[i] = (char)(isascii((unsigned char)word[i]) && isprint((unsigned char)word[i]) ? word[i] : '?');
	if (len > n)
		strcpy(s.text + n, "...");
	return s;
}

// words end with NULL.
static int refuse_word(struct parse *p, const char *kind, const char *word, const char *const *words)
{
	const char *nearest = ckpt_nearest(word, words);
	char list[WORDS_MAX * 40] = "";
	size_t len = 0;

	if (nearest)
		return refuse(p, "there is no %s \"%s\"; did you mean \"%s\"?", kind, shown(word).text, nearest);
	for (size_t i = 0; words[i] && len < sizeof(list); i++)
		len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%s", i ? ", " : "", words[i]);
	return refuse(p, "there is no %s \"%s\"; there is %s", kind, shown(word).text, *list ? list : "none at all");
}

// --- Fields -----------------------------------------------------------------------------------------------------------

static int parse_whole(struct parse *p, const struct ckpt_policy_field *f, const json_t *value, int64_t *ret)
{
	const char *or_null = f->nullable ? ", or null" : "";

	if (f->nullable && json_is_null(value)) {
		*ret = CKPT_POLICY_NULL;
		return 0;
	}
	if (!json_is_integer(value) || json_integer_value(value) < f->least)
		return refuse(p, "must be a whole number of at least %lld%s", (long long)f->least, or_null);
	if (json_integer_value(value) > f->most)
		return refuse(p, "must be a whole number of at most %lld%s", (long long)f->most, or_null);
	*ret = json_integer_value(value);
	return 0;
}

static int parse_name(struct parse *p, const json_t *value, char **ret)
{
	char *copy;

	if (!json_string_length(value))
		return refuse(p, "must be a text that is not empty");
	copy = strdup(json_string_value(value));
	if (!copy)
		return -ENOMEM;
	free(*ret);
	*ret = copy;
	return 0;
}

static bool is_step(const json_t *value)
{
	return json_is_integer(value) && json_integer_value(value) >= 0;
}

static int compare_ranges(const void *a, const void *b)
{
	const struct ckpt_policy_range *x = a, *y = b;

	return (x->first > y->first) - (x->first < y->first);
}

// A list of steps is a set: sorted, and what touches is one range.
static void join_ranges(struct ckpt_policy_node *node)
{
	size_t n = 0;

	if (node->range_count)
		qsort(node->ranges, node->range_count, sizeof(*node->ranges), compare_ranges);
	for (size_t i = 0; i < node->range_count; i++) {
		struct ckpt_policy_range *last = n ? &node->ranges[n - 1] : NULL, r = node->ranges[i];

		if (last && r.first - 1 <= last->last)
			last->last = MAX(last->last, r.last);
		else
			node->ranges[n++] = r;
	}
	node->range_count = n;
}

static int parse_steps(struct parse *p, const json_t *value, struct ckpt_policy_node *node)
{
	const json_t *item;
	size_t i;

	if (!json_is_array(value))
		return refuse(p, "must be an array of steps and of ranges, as [1, 5, [100, 200]]");
	if (json_array_size(value) > CKPT_POLICY_STEPS_MAX)
		return refuse(p, "has more than %u steps and ranges", CKPT_POLICY_STEPS_MAX);
	if (ckpt_grow((void **)&node->ranges, &node->range_cap, json_array_size(value), sizeof(*node->ranges)))
		return -ENOMEM;
	json_array_foreach(value, i, item)
	{
		const json_t *first = json_is_array(item) ? json_array_get(item, 0) : item;
		const json_t *last = json_is_array(item) ? json_array_get(item, 1) : item;
		bool whole = is_step(first) && is_step(last) && (!json_is_array(item) || json_array_size(item) == 2);

		if (!whole || json_integer_value(first) > json_integer_value(last)) {
			enter(p, "[%zu]", i);
			return refuse(p, "must be a whole number of at least 0, or two of them: the first and the last "
					 "step");
		}
		node->ranges[node->range_count++] =
			(struct ckpt_policy_range){json_integer_value(first), json_integer_value(last)};
	}
	join_ranges(node);
	return 0;
}

static int parse_command(struct parse *p, const json_t *value, struct ckpt_policy_node *node)
{
	size_t count = json_array_size(value), i;
	const json_t *item;

	if (!count)
		return refuse(p, "must be an array of texts: the program and its arguments");
	if (count > CKPT_POLICY_WORDS_MAX)
		return refuse(p, "has more than %u words", CKPT_POLICY_WORDS_MAX);
	node->command = ckpt_calloc(count + 1, sizeof(*node->command));
	if (!node->command)
		return -ENOMEM;
	json_array_foreach(value, i, item)
	{
		if (!json_is_string(item)) {
			enter(p, "[%zu]", i);
			return refuse(p, "must be a text");
		}
		node->command[i] = strdup(json_string_value(item));
		if (!node->command[i])
			return -ENOMEM;
	}
	// What is relative would depend on where the process that decides was started.
	if (node->command[0][0] != '/') {
		enter(p, "[0]");
		return refuse(p, "must be the absolute path of a program");
	}
	return 0;
}

// value is NULL where the document has no such field.
static int parse_field(struct parse *p, const struct ckpt_policy_field *f, const json_t *value,
		       struct ckpt_policy_node *node, void *base)
{
	void *at = (char *)base + f->at;

	if (!value && f->required)
		return refuse(p, "is missing");
	switch (f->kind) {
	case CKPT_POLICY_WHOLE:
		*(int64_t *)at = f->initial;
		return value ? parse_whole(p, f, value, at) : 0;
	case CKPT_POLICY_FLAG:
		*(bool *)at = f->initial;
		if (value && !json_is_boolean(value))
			return refuse(p, "must be true or false");
		*(bool *)at = value ? json_is_true(value) : f->initial;
		return 0;
	case CKPT_POLICY_NAME:
		return parse_name(p, value, at);
	case CKPT_POLICY_STEPS:
		return parse_steps(p, value, node);
	case CKPT_POLICY_COMMAND:
		return parse_command(p, value, node);
	}
	return -EINVAL;
}

static bool is_field(const struct ckpt_policy_field *fields, const char *key)
{
	while (fields->name && strcmp(fields->name, key))
		fields++;
	return fields->name;
}

// An object of these fields, into base; into node where a field's kind says so.
static int parse_fields(struct parse *p, const struct ckpt_policy_field *fields, const json_t *object,
			struct ckpt_policy_node *node, void *base)
{
	const char *names[WORDS_MAX] = {0}, *key;
	const json_t *value;
	size_t before;
	int rc;

	for (size_t i = 0; fields[i].name; i++)
		names[i] = fields[i].name;
	if (!json_is_object(object))
		return refuse(p, "must be an object%s%s", fields->name ? " with " : ": {}",
			      fields->name ? fields->name : "");
	json_object_foreach((json_t *)object, key, value)
	{
		if (!is_field(fields, key))
			return refuse_word(p, "field", key, names);
	}
	for (; fields->name; fields++) {
		before = enter(p, ".%s", fields->name);
		rc = parse_field(p, fields, json_object_get(object, fields->name), node, base);
		if (rc)
			return rc;
		leave(p, before);
	}
	return 0;
}

static int parse_intervals(struct parse *p, const json_t *value, struct ckpt_policy_node *node)
{
	size_t count = json_array_size(value);

	if (!json_is_array(value))
		return refuse(p, "must be an array, as [{\"every\": 100, \"until\": 1000}, {\"every\": 1000}]");
	if (count > CKPT_POLICY_STEPS_MAX)
		return refuse(p, "has more than %u rows", CKPT_POLICY_STEPS_MAX);
	node->intervals = ckpt_calloc(count + 1, sizeof(*node->intervals));
	if (!node->intervals)
		return -ENOMEM;
	for (; node->interval_count < count; node->interval_count++) {
		size_t i = node->interval_count, before = enter(p, "[%zu]", i);
		struct ckpt_policy_interval *row = &node->intervals[i];
		int rc = parse_fields(p, ckpt_policy_interval_fields, json_array_get(value, i), node, row);

		if (!rc && i && row[-1].until == CKPT_POLICY_NULL)
			rc = refuse(p, "is never reached: only the last row can have an \"until\" of null");
		if (!rc && i && row->until != CKPT_POLICY_NULL && row->until <= row[-1].until)
			rc = refuse(p, "\"until\" must be greater than that of the row before, %lld",
				    (long long)row[-1].until);
		if (rc)
			return rc;
		leave(p, before);
	}
	return 0;
}

// --- Nodes ------------------------------------------------------------------------------------------------------------

static int parse_node(struct parse *p, json_t *value, struct ckpt_policy_node *node);

static int parse_below(struct parse *p, json_t *value, struct ckpt_policy_node *node)
{
	bool many = ckpt_policy_words[node->kind].form == CKPT_POLICY_NODES;
	size_t count = many ? json_array_size(value) : 1;

	if (!count)
		return refuse(p, "must be an array of one policy or more");
	if (count > CKPT_POLICY_NODES_MAX)
		return refuse(p, "has more than %u policies", CKPT_POLICY_NODES_MAX);
	node->below = ckpt_calloc(count, sizeof(*node->below));
	if (!node->below)
		return -ENOMEM;
	node->below_count = count;
	for (size_t i = 0; i < count; i++) {
		size_t before = many ? enter(p, "[%zu]", i) : p->place_len;
		int rc = parse_node(p, many ? json_array_get(value, i) : value, &node->below[i]);

		if (rc)
			return rc;
		leave(p, before);
	}
	return 0;
}

// The words of the tree that it is in, and which of them this is.
static int find_word(struct parse *p, const char *word, enum ckpt_policy_kind *ret_kind)
{
	const char *words[WORDS_MAX] = {0};
	size_t n = 0;

	_Static_assert(CKPT_POLICY_WORDS < WORDS_MAX, "room for all of them and NULL");
	for (unsigned kind = 0; kind < CKPT_POLICY_WORDS; kind++) {
		const struct ckpt_policy_word *w = &ckpt_policy_words[kind];

		if (!(p->keep ? w->in_keep : w->in_save))
			continue;
		words[n++] = w->word;
		if (!strcmp(w->word, word)) {
			*ret_kind = kind;
			return 0;
		}
	}
	return refuse_word(p, p->keep ? "policy to keep" : "policy to save", word, words);
}

// Whoever asks for a step waits for all of them.
static int check_programs(struct parse *p, const struct ckpt_policy_node *node)
{
	p->program_seconds += node->interval;
	if (p->program_seconds <= CKPT_POLICY_EXEC_SECS_MAX)
		return 0;
	return refuse(p, "the programs may take more than %d s together: give one of them a smaller \"timeout_secs\"",
		      CKPT_POLICY_EXEC_SECS_MAX);
}

static int parse_node(struct parse *p, json_t *value, struct ckpt_policy_node *node)
{
	const char *word = json_object_iter_key(json_object_iter(value));
	const struct ckpt_policy_word *w;
	size_t before;
	int rc;

	if (json_object_size(value) != 1)
		return refuse(p, "must be an object of one policy, as {\"%s\": {}}",
			      p->keep ? "preserve_all" : "initial");
	if (++p->nodes > CKPT_POLICY_NODES_MAX)
		return refuse(p, "there are more than %u policies", CKPT_POLICY_NODES_MAX);
	if (p->depth == CKPT_POLICY_DEPTH_MAX)
		return refuse(p, "nested more than %d deep", CKPT_POLICY_DEPTH_MAX);
	rc = find_word(p, word, &node->kind);
	if (rc)
		return rc;
	w = &ckpt_policy_words[node->kind];
	value = json_object_get(value, word);
	before = enter(p, ".%s", w->word);
	p->depth++;
	if (w->form == CKPT_POLICY_OBJECT)
		rc = parse_fields(p, w->fields, value, node, node);
	else if (w->form == CKPT_POLICY_INTERVALS)
		rc = parse_intervals(p, value, node);
	else
		rc = parse_below(p, value, node);
	p->depth--;
	if (!rc && node->kind == CKPT_POLICY_EXEC)
		rc = check_programs(p, node);
	if (!rc)
		leave(p, before);
	return rc;
}

// --- The document -----------------------------------------------------------------------------------------------------

static int replace_tree(struct parse *p, const char *key, json_t *value, struct ckpt_policy_node *tree)
{
	struct ckpt_policy_node node = {0};
	size_t before = enter(p, "%s", key);
	int rc;

	p->keep = !strcmp(key, "keep");
	p->nodes = 0;
	p->program_seconds = 0;
	rc = parse_node(p, value, &node);
	if (rc) {
		ckpt_policy_node_done(&node);
		return rc;
	}
	ckpt_policy_node_done(tree);
	*tree = node;
	leave(p, before);
	return 0;
}

static int replace_flag(struct parse *p, const char *key, const json_t *value, bool *flag)
{
	if (!json_is_boolean(value)) {
		enter(p, "%s", key);
		return refuse(p, "must be true or false");
	}
	*flag = json_is_true(value);
	return 0;
}

static int replace_part(struct parse *p, const char *key, json_t *value, struct ckpt_policy *policy)
{
	static const char *const keys[] = {"preset", "save", "keep", "skip_zero", "skip_duplicate", "only_after_latest",
					   NULL};

	if (!strcmp(key, "preset"))
		return 0;
	if (!strcmp(key, "save"))
		return replace_tree(p, key, value, &policy->save);
	if (!strcmp(key, "keep"))
		return replace_tree(p, key, value, &policy->keep);
	if (!strcmp(key, "skip_zero"))
		return replace_flag(p, key, value, &policy->skip_zero);
	if (!strcmp(key, "skip_duplicate"))
		return replace_flag(p, key, value, &policy->skip_duplicate);
	if (!strcmp(key, "only_after_latest"))
		return replace_flag(p, key, value, &policy->only_after_latest);
	return refuse_word(p, "field", key, keys);
}

static int replace_parts(struct parse *p, json_t *root, struct ckpt_policy *policy)
{
	const char *key;
	json_t *value;
	int rc = 0;

	json_object_foreach(root, key, value)
	{
		rc = replace_part(p, key, value, policy);
		if (rc)
			break;
	}
	return rc;
}

static int find_preset(struct parse *p, const json_t *name, const char **ret_text)
{
	const char *names[WORDS_MAX] = {0};

	*ret_text = ckpt_policy_presets[0].text;
	if (!name)
		return 0;
	if (!json_is_string(name))
		return refuse(p, "preset: must be a name");
	for (size_t i = 0; ckpt_policy_presets[i].name; i++) {
		names[i] = ckpt_policy_presets[i].name;
		*ret_text = ckpt_policy_presets[i].text;
		if (!strcmp(names[i], json_string_value(name)))
			return 0;
	}
	return refuse_word(p, "preset", json_string_value(name), names);
}

static int take_preset(struct parse *p, const json_t *name, struct ckpt_policy *policy)
{
	const char *text;
	json_t *root;
	int rc = find_preset(p, name, &text);

	if (rc)
		return rc;
	rc = ckpt_json_load(text, strlen(text), 0, NULL, &root);
	if (!rc)
		rc = replace_parts(p, root, policy);
	json_decref(root);
	return rc;
}

// A long list in another form may need more room than it came with.
static int check_length(struct parse *p, const struct ckpt_policy *policy)
{
	CLEANUP_FREE char *text = ckpt_policy_text(policy);

	if (!text)
		return -ENOMEM;
	if (strlen(text) <= CKPT_POLICY_BYTES_MAX)
		return 0;
	refuse(p, "has more than %u bytes in its canonical form", CKPT_POLICY_BYTES_MAX);
	return -EFBIG;
}

int ckpt_policy_parse(const char *text, size_t len, struct ckpt_policy *ret_policy, char **ret_why)
{
	struct ckpt_policy policy = {0};
	struct parse p = {.ret_why = ret_why};
	json_error_t error;
	json_t *root;
	int rc;

	*ret_why = NULL;
	if (len > CKPT_POLICY_BYTES_MAX) {
		refuse(&p, "has more than %u bytes", CKPT_POLICY_BYTES_MAX);
		return -EFBIG;
	}
	rc = ckpt_json_load(text, len, JSON_REJECT_DUPLICATES, &error, &root);
	if (rc == -ENOMEM)
		return rc;
	if (rc)
		return refuse(&p, "not JSON: line %d, column %d: %s", error.line, error.column, shown(error.text).text);
	if (!json_is_object(root))
		rc = refuse(&p, "must be an object, as {\"preset\": \"%s\"}", ckpt_policy_presets[0].name);
	if (!rc)
		rc = take_preset(&p, json_object_get(root, "preset"), &policy);
	if (!rc)
		rc = replace_parts(&p, root, &policy);
	if (!rc)
		rc = check_length(&p, &policy);
	json_decref(root);
	if (rc) {
		ckpt_policy_done(&policy);
		return rc;
	}
	*ret_policy = policy;
	return 0;
}
