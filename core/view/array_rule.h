// The form of a rule, between array_rules.c, which reads it, and array_rules_apply.c.
#pragma once

#include "core/view/array_rules.h"

#include <jansson.h>
#include <regex.h>

#define RULE_GROUPS 10 // \0 to \9

enum rule_kind { RENAME, DROP, TRANSPOSE, RESHAPE, SPLIT, CONCAT, STACK, UNSTACK, CAST, PAD, RULE_KINDS };

struct rule {
	enum rule_kind kind;
	const char *of; // GLOB, NAME, or the regular expression
	const char *to; // or the replacement
	const char **names;
	size_t name_count;
	int64_t *numbers; // axes, shape, sizes
	size_t number_count;
	int64_t axis;
	enum ckpt_dtype dtype;
	regex_t regex;
	bool has_regex;
};

struct ckpt_array_rules {
	json_t *json; // whose strings they have
	struct rule *at;
	size_t count;
};

const char *ckpt_rule_word(enum rule_kind kind); // "transpose"
void ckpt_rule_clean(char *why);                 // names in it may have bytes that a terminal would obey
