// Rules that change arrays: other names, shapes, dtypes; cut and joined (ARRAYS.md section 4 of the design). JSON, a list of objects:
//
//	{"rename": [REGEX, REPLACEMENT]}      POSIX extended; each match in a name; \1 to \9 are its groups, \0 all of it, \\ is "\"
//	{"drop": GLOB}
//	{"transpose": GLOB, "axes": [1, 0]}   as numpy.transpose()
//	{"reshape": GLOB, "shape": [4, -1]}   one of the numbers may be -1
//	{"split": NAME, "axis": 0, "into": [NAME, ...], "sizes": [8, 2, 2]}    without "sizes": equal parts
//	{"concat": [NAME, ...], "axis": 0, "to": NAME}
//	{"stack": GLOB, "axis": 0, "to": NAME}    on a new axis, in the order of names; numbers in names are compared as numbers
//	{"unstack": NAME, "axis": 0, "to": "layers.{}.w"}    {}: the index, from 0
//	{"cast": GLOB, "dtype": "bfloat16"}   floating arrays, to a floating type
//	{"pad": NAME, "shape": [16, 8]}       zeros at the ends of axes
//
// They are applied in this order, each to what the ones before left. An axis below 0 counts from the end. GLOB: array_glob.h. NAME: the name of an array, or its
// TREE:NAME. Arrays that a rule takes are gone but for what it makes of them. No two arrays have one name after a rule.
//
// The text is from outside. Limits: CKPT_RULES_BYTES_MAX; CKPT_ARRAYS_MAX arrays.
//
// Ownership: rules are the caller's. Threads: any; rules are never changed. Nothing blocks. Time: rules times arrays.
#pragma once

#include "core/view/array_list.h"

#define CKPT_RULES_BYTES_MAX (8u << 20)
#define CKPT_RULES_WHY_MAX 512

struct ckpt_array_rules;

// -EINVAL: why says which rule, what is wrong, and what would be right. -ENOMEM.
int ckpt_array_rules_parse(const char *text, size_t len, char why[CKPT_RULES_WHY_MAX],
			   struct ckpt_array_rules **ret_rules);
void ckpt_array_rules_free(struct ckpt_array_rules *r); // NULL is fine
size_t ckpt_array_rules_count(const struct ckpt_array_rules *r);

struct ckpt_array_rules_telling {
	void (*note)(void *arg, const char *text); // a rename or a drop that no array matches; may be NULL
	void *arg;
	char why[CKPT_RULES_WHY_MAX];
};
// 0; -EINVAL: why says the same of the rule. -ENOMEM. After an error the list is some state between, and is to be freed.
int ckpt_array_rules_apply(const struct ckpt_array_rules *r, struct ckpt_array_list *l,
			   struct ckpt_array_rules_telling *t);
