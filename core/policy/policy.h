// A policy: at which steps a run is to be saved, and which of the saved ones stay. It is the document policy.json:
//
//   { "preset": NAME, "save": NODE, "keep": NODE, "skip_zero": bool, "skip_duplicate": bool, "only_after_latest": bool }
//
// All of it may be absent. The preset gives what is not said (without one orbax-v1 does), and what is said replaces parts of
// it. A NODE is an object of one word, {"fixed_interval": {"interval": 1000}}; the table in policy.c has each word with its
// fields. Decisions are core/policy/decide.h's and core/policy/preserve.h's.
//
// Ownership: struct ckpt_policy owns all below it. Threads: plain data. Nothing blocks.
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ckpt_policy_kind {
	// Of both trees.
	CKPT_POLICY_ANY,
	// Of `save`.
	CKPT_POLICY_ALL,
	CKPT_POLICY_NOT,
	CKPT_POLICY_FIXED_INTERVAL,
	CKPT_POLICY_SPECIFIC_STEPS,
	CKPT_POLICY_CONTINUOUS,
	CKPT_POLICY_INITIAL,
	CKPT_POLICY_PREEMPTION,
	CKPT_POLICY_STEP_INTERVALS,
	CKPT_POLICY_TIME_INTERVAL,
	CKPT_POLICY_EXEC,
	// Of `keep`.
	CKPT_POLICY_PRESERVE_ALL,
	CKPT_POLICY_LATEST_N,
	CKPT_POLICY_EVERY_N_SECONDS,
	CKPT_POLICY_EVERY_N_STEPS,
	CKPT_POLICY_EVERY_N_STEPS_CLOSEST,
	CKPT_POLICY_CUSTOM_STEPS,
	CKPT_POLICY_BEST_N,
	CKPT_POLICY_LATEST_DURATION,
};

#define CKPT_POLICY_NULL INT64_C(-1) // of a number: null was said, or nothing where that is the default

struct ckpt_policy_range {
	int64_t first, last; // inclusive
};

struct ckpt_policy_interval {
	int64_t every, until; // steps; until is inclusive, CKPT_POLICY_NULL: for ever
};

// Which fields count is said by the word.
struct ckpt_policy_node {
	enum ckpt_policy_kind kind;
	int64_t interval; // in steps, or in seconds of what goes by time
	int64_t most;     // so many are kept
	bool exact;       // every_n_steps: at multiples alone
	bool reverse;     // best_n: the lowest are the best
	bool unmeasured;  // best_n: what has no such metric is kept, too
	char *metric;
	char **command;                   // NULL behind the last word
	struct ckpt_policy_range *ranges; // sorted, apart from each other
	size_t range_count, range_cap;
	struct ckpt_policy_interval *intervals; // in the order in which they are asked
	size_t interval_count;
	struct ckpt_policy_node *below; // of any, all, not
	size_t below_count;
};

struct ckpt_policy {
	struct ckpt_policy_node save, keep;
	// Unless by force:
	bool skip_zero;      // step 0 is never saved
	bool skip_duplicate; // nor is the step once more that was saved last
	bool only_after_latest; // nor is one below the highest number that there is, which is then the one that counts as saved last
};

// text is such a document, at most CKPT_POLICY_BYTES_MAX bytes. -EINVAL and -EFBIG: *ret_why is one line that says where and
// what is wrong (malloc'ed, may be NULL). -ENOMEM. On failure *ret_policy is untouched.
int ckpt_policy_parse(const char *text, size_t len, struct ckpt_policy *ret_policy, char **ret_why);
int ckpt_policy_default(struct ckpt_policy *ret_policy); // of a store that says nothing. 0, -ENOMEM
void ckpt_policy_done(struct ckpt_policy *p);            // zeroed is fine

// The canonical form: sorted, compact, without a preset, with each field that there is; malloc'ed. Two policies that say the
// same have the same text. NULL: no memory.
char *ckpt_policy_text(const struct ckpt_policy *p);

const char *ckpt_policy_word(enum ckpt_policy_kind kind); // as the document calls it
// Some node of the tree is one of these.
bool ckpt_policy_has(const struct ckpt_policy_node *tree, enum ckpt_policy_kind kind);
bool ckpt_policy_in_ranges(const struct ckpt_policy_node *node, int64_t step);

// --- The words, for policy_parse.c ------------------------------------------------------------------------------------

enum ckpt_policy_field_kind {
	CKPT_POLICY_WHOLE,   // int64_t, from least to most
	CKPT_POLICY_FLAG,    // bool
	CKPT_POLICY_NAME,    // char *: a text that is not empty
	CKPT_POLICY_STEPS,   // ranges
	CKPT_POLICY_COMMAND, // command
};

struct ckpt_policy_field {
	const char *name; // NULL behind the last
	enum ckpt_policy_field_kind kind;
	size_t at; // in struct ckpt_policy_node
	bool required;
	bool nullable;
	int64_t initial, least, most;
};

// What stands behind the word.
enum ckpt_policy_form {
	CKPT_POLICY_OBJECT,    // of fields
	CKPT_POLICY_NODES,     // an array of nodes
	CKPT_POLICY_NODE,      // a node
	CKPT_POLICY_INTERVALS, // an array of {"every", "until"}
};

struct ckpt_policy_word {
	const char *word;
	bool in_save, in_keep;
	enum ckpt_policy_form form;
	struct ckpt_policy_field fields[5]; // a nameless one behind the last
};

#define CKPT_POLICY_WORDS 19
extern const struct ckpt_policy_word ckpt_policy_words[CKPT_POLICY_WORDS]; // by kind
extern const struct ckpt_policy_field ckpt_policy_interval_fields[];       // at: in struct ckpt_policy_interval

struct ckpt_policy_preset {
	const char *name, *text;
};
extern const struct ckpt_policy_preset ckpt_policy_presets[]; // NULL behind the last; the first is the default
void ckpt_policy_node_done(struct ckpt_policy_node *node);
