#include "core/view/array_rules.h"

#include "core/base/json.h"
#include "core/base/nearest.h"
#include "core/base/util.h"
#include "core/limits.h"
#include "core/view/array_rule.h"
#include "core/view/export.h"

#include <stdarg.h>
#include <stdio.h>

#define REGEX_BYTES_MAX 4096
#define REPEATS_MAX 1000UL // {m,n}, added

enum { AXIS = 1, TO = 2, INTO = 4, SIZES = 8, AXES = 16, SHAPE = 32, DTYPE = 64 };

static const struct form {
	const char *word;
	unsigned needs, may; // keys beside it
	const char *right;
} forms[RULE_KINDS] = {
	[RENAME] = {"rename", 0, 0, "{\"rename\": [\"REGEX\", \"REPLACEMENT\"]}"},
	[DROP] = {"drop", 0, 0, "{\"drop\": \"GLOB\"}"},
	[TRANSPOSE] = {"transpose", AXES, 0, "{\"transpose\": \"GLOB\", \"axes\": [1, 0]}"},
	[RESHAPE] = {"reshape", SHAPE, 0, "{\"reshape\": \"GLOB\", \"shape\": [4, -1]}"},
	[SPLIT] = {"split", AXIS | INTO, SIZES, "{\"split\": \"NAME\", \"axis\": 0, \"into\": [\"NAME\", \"NAME\"]}"},
	[CONCAT] = {"concat", AXIS | TO, 0, "{\"concat\": [\"NAME\", \"NAME\"], \"axis\": 0, \"to\": \"NAME\"}"},
	[STACK] = {"stack", AXIS | TO, 0, "{\"stack\": \"GLOB\", \"axis\": 0, \"to\": \"NAME\"}"},
	[UNSTACK] = {"unstack", AXIS | TO, 0, "{\"unstack\": \"NAME\", \"axis\": 0, \"to\": \"layers.{}.w\"}"},
	[CAST] = {"cast", DTYPE, 0, "{\"cast\": \"GLOB\", \"dtype\": \"bfloat16\"}"},
	[PAD] = {"pad", SHAPE, 0, "{\"pad\": \"NAME\", \"shape\": [16, 8]}"},
};

static const struct {
	const char *word;
	unsigned bit;
} keys[] = {{"axis", AXIS}, {"to", TO},       {"into", INTO},  {"sizes", SIZES},
	    {"axes", AXES}, {"shape", SHAPE}, {"dtype", DTYPE}};

struct parse {
	size_t rule; // from 1
	struct rule *at;
	char *why;
};

const char *ckpt_rule_word(enum rule_kind kind)
{
	return forms[kind].word;
}

void ckpt_rule_clean(char *why)
{
	for (unsigned char *at = (unsigned char *)why; *at; at++)
		if (*at < ' ' || *at == 0x7f || (at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0))
			*at = '?';
}

__attribute__((format(printf, 2, 3))) static int refuse(const struct parse *p, const char *format, ...)
{
	int len = snprintf(p->why, CKPT_RULES_WHY_MAX, "rule %zu: ", p->rule);
	va_list args;

	va_start(args, format);
	vsnprintf(p->why + len, CKPT_RULES_WHY_MAX - (size_t)len, format, args);
	va_end(args);
	return -EINVAL;
}

static int refuse_form(const struct parse *p, const char *what)
{
	const struct form *f = &forms[p->at->kind];

	return refuse(p, "\"%s\": %s; right is, for example, %s", f->word, what, f->right);
}

// --- Values -----------------------------------------------------------------------------------------------------------------

static int take_name(const struct parse *p, const json_t *value, const char **ret)
{
	const char *name = json_string_value(value);

	if (!name || !*name)
		return refuse_form(p, "a name is a text that is not empty");
	if (strlen(name) > CKPT_ARRAY_NAME_MAX)
		return refuse_form(p, "a name is too long");
	*ret = name;
	return 0;
}

static int take_names(const struct parse *p, const json_t *value)
{
	size_t count = json_array_size(value);
	int rc = 0;

	if (!count)
		return refuse_form(p, "it wants a list of names");
	p->at->names = ckpt_calloc(count, sizeof(*p->at->names));
	if (!p->at->names)
		return -ENOMEM;
	p->at->name_count = count;
	for (size_t i = 0; i < count && !rc; i++)
		rc = take_name(p, json_array_get(value, i), &p->at->names[i]);
	return rc;
}

static int take_numbers(const struct parse *p, const json_t *value)
{
	size_t count = json_array_size(value);

	if (!json_is_array(value))
		return refuse_form(p, "it wants a list of numbers");
	p->at->numbers = ckpt_calloc(count + 1, sizeof(*p->at->numbers));
	if (!p->at->numbers)
		return -ENOMEM;
	p->at->number_count = count;
	for (size_t i = 0; i < count; i++) {
		const json_t *one = json_array_get(value, i);

		if (!json_is_integer(one))
			return refuse_form(p, "it wants a list of whole numbers");
		p->at->numbers[i] = json_integer_value(one);
	}
	return 0;
}

static int take_key(const struct parse *p, unsigned bit, const json_t *value)
{
	struct rule *r = p->at;

	switch (bit) {
	case AXIS:
		r->axis = json_integer_value(value);
		return json_is_integer(value) ? 0 : refuse_form(p, "\"axis\" is a whole number");
	case TO:
		return take_name(p, value, &r->to);
	case INTO:
		return take_names(p, value);
	case DTYPE:
		r->dtype = json_is_string(value) ? ckpt_export_dtype(json_string_value(value)) : CKPT_DTYPE_NONE;
		return r->dtype ? 0 : refuse_form(p, "\"dtype\" is no floating type");
	default:
		return take_numbers(p, value);
	}
}

// --- Renaming ---------------------------------------------------------------------------------------------------------------

static int check_replacement(const struct parse *p, const char *to)
{
	for (; *to; to++) {
		if (*to != '\\')
			continue;
		to++;
		if (*to == '\\')
			continue;
		if (*to < '0' || *to > '9')
			return refuse(p, "\"rename\": \"\\\" is followed by a digit or another \"\\\" in a replacement "
					 "(in JSON it is written twice)");
		if ((size_t)(*to - '0') > p->at->regex.re_nsub)
			return refuse(p, "\"rename\": the replacement has \\%c, and the expression %zu groups", *to,
				      p->at->regex.re_nsub);
	}
	return 0;
}

// The end of "[...]", whose begin this is.
static const char *bracket_end(const char *at)
{
	at += 1 + (at[1] == '^');
	at += *at == ']';
	for (; *at && *at != ']'; at++)
		if (*at == '[' && (at[1] == ':' || at[1] == '.' || at[1] == '=')) {
			const char *end = strchr(at + 2, ']');

			at = end ? end : at + strlen(at) - 1;
		}
	return *at ? at : at - 1;
}

static unsigned long most_repeats(const char *at)
{
	const char *comma = at + 1 + strspn(at + 1, "0123456789");
	unsigned long least = strtoul(at + 1, NULL, 10), most = *comma == ',' ? strtoul(comma + 1, NULL, 10) : 0;

	return MIN(MAX(least, most), REPEATS_MAX + 1);
}

// The C library takes memory and time without a bound for a repetition of a repetition, and for {m,n} of a group. NULL: none is there.
static const char *check_repeats(const char *regex)
{
	enum { FIRST, ATOM, GROUP, REPEAT } before = FIRST;
	unsigned long repeats = 0;

	for (const char *at = regex; *at; at++) {
		if (strchr("*+?{", *at)) {
			repeats += *at == '{' ? most_repeats(at) : 0;
			if (before == REPEAT || (*at == '{' && before != ATOM))
				return "a repetition is behind a repetition, or {m,n} is behind no single character";
			if (repeats > REPEATS_MAX)
				return "it repeats more than 1000 times";
			before = REPEAT;
			at = *at == '{' && strchr(at, '}') ? strchr(at, '}') : at;
		} else if (*at == '[') {
			at = bracket_end(at);
			before = ATOM;
		} else {
			at += *at == '\\' && at[1];
			before = *at == ')' ? GROUP : ATOM;
		}
	}
	return NULL;
}

static int take_rename(const struct parse *p, const json_t *value)
{
	const json_t *to = json_array_get(value, 1);
	struct rule *r = p->at;
	const char *wrong;
	char text[128];
	int rc;

	if (json_array_size(value) != 2 || !json_is_string(to))
		return refuse_form(p, "it wants two texts");
	rc = take_name(p, json_array_get(value, 0), &r->of);
	if (rc)
		return rc;
	r->to = json_string_value(to);
	wrong = strlen(r->of) > REGEX_BYTES_MAX ? "it is longer than 4096 bytes" : check_repeats(r->of);
	if (wrong)
		return refuse(p, "\"rename\": \"%.200s\": %s", r->of, wrong);
	rc = regcomp(&r->regex, r->of, REG_EXTENDED);
	if (rc == REG_ESPACE)
		return -ENOMEM;
	if (rc) {
		regerror(rc, &r->regex, text, sizeof(text));
		return refuse(p, "\"rename\": \"%.200s\" is no extended regular expression: %s", r->of, text);
	}
	r->has_regex = true;
	return check_replacement(p, r->to);
}

// --- One rule ---------------------------------------------------------------------------------------------------------------

// The form alone says this of the numbers.
static int check_numbers(const struct parse *p)
{
	const struct rule *r = p->at;
	size_t unknown = 0;

	if ((r->kind == TRANSPOSE || r->kind == RESHAPE || r->kind == PAD) && r->number_count > CKPT_ARRAY_DIMS_MAX)
		return refuse_form(p, "an array has at most 32 axes");
	if (r->kind == SPLIT && r->numbers && r->number_count != r->name_count)
		return refuse_form(p, "\"sizes\" has as many numbers as \"into\" has names");
	for (size_t i = 0; r->kind != TRANSPOSE && i < r->number_count; i++) {
		unknown += r->numbers[i] == -1;
		if (r->numbers[i] < 0 && (r->kind != RESHAPE || r->numbers[i] != -1 || unknown > 1))
			return refuse_form(p, r->kind == RESHAPE
						      ? "one number of a shape may be -1, the others are not "
							"below 0"
						      : "a number is below 0");
	}
	return 0;
}

static int check_holes(const struct parse *p)
{
	const char *hole = strstr(p->at->to, "{}");

	return hole && !strstr(hole + 2, "{}") ? 0 : refuse_form(p, "\"to\" has {} once, for the index");
}

static int take_keys(const struct parse *p, const json_t *rule)
{
	const struct form *f = &forms[p->at->kind];
	const char *words[ARRAY_LEN(keys) + 1] = {NULL};
	unsigned had = 0;
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)rule, key, value)
	{
		size_t i = 0;
		int rc;

		if (!strcmp(key, f->word))
			continue;
		while (i < ARRAY_LEN(keys) && strcmp(key, keys[i].word))
			i++;
		if (i == ARRAY_LEN(keys) || !((f->needs | f->may) & keys[i].bit))
			return refuse(p, "\"%s\" has no \"%.100s\"; right is, for example, %s", f->word, key, f->right);
		rc = take_key(p, keys[i].bit, value);
		if (rc)
			return rc;
		had |= keys[i].bit;
	}
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		words[0] = keys[i].word;
		if (f->needs & ~had & keys[i].bit)
			return refuse(p, "\"%s\" wants \"%s\"; right is, for example, %s", f->word, words[0], f->right);
	}
	return p->at->kind == UNSTACK && check_holes(p) ? -EINVAL : check_numbers(p);
}

static int find_kind(const struct parse *p, const json_t *rule, json_t **ret_value)
{
	const char *words[RULE_KINDS + 1] = {NULL}, *key, *near;
	json_t *value;

	for (unsigned i = 0; i < RULE_KINDS; i++) {
		words[i] = forms[i].word;
		*ret_value = json_object_get(rule, forms[i].word);
		p->at->kind = i;
		if (*ret_value)
			return 0;
	}
	if (!json_is_object(rule) || !json_object_size(rule))
		return refuse(p, "a rule is an object; right is, for example, %s", forms[DROP].right);
	json_object_foreach((json_t *)rule, key, value)
	{
		near = ckpt_nearest(key, words);
		if (near)
			return refuse(p, "there is no rule \"%.100s\"; did you mean \"%s\"?", key, near);
	}
	return refuse(p, "it names no rule; there are rename, drop, transpose, reshape, split, concat, stack, unstack, "
			 "cast and pad");
}

static int take_rule(const struct parse *p, const json_t *rule)
{
	json_t *value;
	int rc = find_kind(p, rule, &value);

	if (rc)
		return rc;
	if (p->at->kind == RENAME)
		rc = take_rename(p, value);
	else if (p->at->kind == CONCAT)
		rc = take_names(p, value);
	else
		rc = take_name(p, value, &p->at->of);
	return rc ? rc : take_keys(p, rule);
}

// --- All of them ------------------------------------------------------------------------------------------------------------

static int take_all(struct ckpt_array_rules *r, const char *text, size_t len, char *why)
{
	struct parse p = {.why = why};
	json_error_t error;
	int rc = ckpt_json_load(text, len, JSON_REJECT_DUPLICATES, &error, &r->json);

	if (rc == -ENOMEM)
		return rc;
	if (rc) {
		snprintf(why, CKPT_RULES_WHY_MAX, "no JSON: line %d, column %d: %.200s", error.line, error.column,
			 error.text);
		return -EINVAL;
	}
	if (!json_is_array(r->json)) {
		snprintf(why, CKPT_RULES_WHY_MAX, "rules are a list; right is, for example, [%s]", forms[DROP].right);
		return -EINVAL;
	}
	r->at = ckpt_calloc(json_array_size(r->json) + 1, sizeof(*r->at));
	if (!r->at)
		return -ENOMEM;
	while (!rc && r->count < json_array_size(r->json)) {
		p.rule = r->count + 1;
		p.at = &r->at[r->count++];
		rc = take_rule(&p, json_array_get(r->json, r->count - 1));
	}
	return rc;
}

int ckpt_array_rules_parse(const char *text, size_t len, char why[CKPT_RULES_WHY_MAX],
			   struct ckpt_array_rules **ret_rules)
{
	struct ckpt_array_rules *r;
	int rc;

	if (len > CKPT_RULES_BYTES_MAX) {
		snprintf(why, CKPT_RULES_WHY_MAX, "longer than %u bytes", CKPT_RULES_BYTES_MAX);
		return -EINVAL;
	}
	r = ckpt_calloc(1, sizeof(*r));
	rc = r ? take_all(r, text, len, why) : -ENOMEM;
	if (rc == -EINVAL)
		ckpt_rule_clean(why);
	if (rc)
		ckpt_array_rules_free(r);
	else
		*ret_rules = r;
	return rc;
}

void ckpt_array_rules_free(struct ckpt_array_rules *r)
{
	if (!r)
		return;
	for (size_t i = 0; i < r->count; i++) {
		if (r->at[i].has_regex)
			regfree(&r->at[i].regex);
		free(r->at[i].names);
		free(r->at[i].numbers);
	}
	free(r->at);
	json_decref(r->json);
	free(r);
}

size_t ckpt_array_rules_count(const struct ckpt_array_rules *r)
{
	return r->count;
}
