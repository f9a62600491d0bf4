// The settings of a store: what `-o` of a mount and `ckptfs config` both know. One table has each of them; a new one is a
// field and a row.
//
// The value in effect: what the mount was told with -o, else, of a store with a remote, what all its nodes share (shared_settings.h), else what
// store.json says, else the default.
// Ownership: struct ckpt_settings owns its texts. Threads: plain data. Nothing blocks.
#pragma once

#include "core/limits.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Changes of a committed step.
enum ckpt_amend {
	CKPT_AMEND_ALLOWED, // not set: each change is a new version
	CKPT_AMEND_DENY,    // EROFS: it can only be deleted
};

// The place where a step is when the call that completes it has returned.
enum ckpt_durability {
	CKPT_DURABILITY_LOCAL,  // on the disk of this node
	CKPT_DURABILITY_REMOTE, // and in the object store
};

// The trouble that is looked for in the arrays of sealed steps (core/store/examiner.h).
enum ckpt_findings_of {
	CKPT_FINDINGS_ELEMENTS, // all of their elements are read
	CKPT_FINDINGS_HEADERS,  // only what headers of files say
	CKPT_FINDINGS_OFF,
};

#define CKPT_HOT_ALL UINT64_MAX
#define CKPT_QUIET_OFF 0 // of commit_quiet_ns

// How many times commit_quiet a step must be quiet: without a neighbour, and after a re-save; where a framework's event is awaited.
#define CKPT_QUIET_TIMES 6
#define CKPT_QUIET_TIMES_CLAIMED 30

// A share of the disk: bytes, or a percentage with this bit.
#define CKPT_SHARE_PERCENT (UINT64_C(1) << 63)
#define CKPT_SHARE_AUTO UINT64_MAX                          // what is best by our own rule
#define CKPT_SHARE_NONE (UINT64_MAX - 1)                    // no limit
uint64_t ckpt_share_of(uint64_t share, uint64_t all_bytes); // in bytes; UINT64_MAX: no limit

// Durations in ns.
// Which step is the newest (latest.h).
enum ckpt_latest_by {
	CKPT_LATEST_BY_COMMIT, // the last to be committed
	CKPT_LATEST_BY_STEP,   // the highest number
	CKPT_LATEST_BY_TIMESTAMP, // the last by its own word (timestamp.h, for find.h only), else by its first commit: new versions do not
	// count, clocks do; of those the highest number; a time that is not known is before all others
	CKPT_LATEST_BY_MTIME,   // the latest modification time of the directory
	CKPT_LATEST_BY_TRACKER, // what a framework's file says (tracker.h); for find.h only
};
// Their words, "commit" ..., in this order, then NULL.
extern const char *const ckpt_latest_words[];
int ckpt_latest_by_word(const char *word, enum ckpt_latest_by *ret_by); // 0, -EINVAL

struct ckpt_settings {
	char marker[CKPT_NAME_MAX + 1];
	char *steps_at;            // patterns, ':' between them; NULL: the rules of DESIGN.md section 1
	int64_t open_writers_ns;   // how long a commit waits for handles open for writing
	int64_t commit_timeout_ns; // without progress
	int64_t trash_ns;          // how long deleted steps can be had back
	uint64_t trash_limit;      // what they may take (room.h): a share
	uint64_t trash_reserve;    // what stays free as long as there are some: a share, CKPT_SHARE_AUTO
	int64_t staging_ttl_ns;    // an unfinished step with a temp name that nobody has changed for so long is dropped
	enum ckpt_durability durability;
	int64_t commit_quiet_ns; // a step that nobody changes for so long is complete; CKPT_QUIET_OFF
	enum ckpt_amend amend;
	uint64_t profiles;              // which frameworks' last act completes a step (profile.h)
	bool seal;                      // a mount seals behind
	enum ckpt_findings_of findings; // and looks into arrays
	uint64_t hot;                   // so many of the newest steps of each folder a mount leaves raw; CKPT_HOT_ALL
	uint64_t delta;                 // a step that is cooled is a difference to one of so many before it (earlier.h)
	uint64_t pack_bytes;            // a pack is put into the store once it has so many (cool.h)
	uint64_t work_limit;            // what unfinished work may take (limit.h); CKPT_LIMIT_NONE
	uint64_t user_limit;            // and what each user's may
	bool show_staged;
	bool show_latest;
	enum ckpt_latest_by latest_by;

	uint64_t given; // bits by row of the table: said to this mount, whatever the store says
	// What belongs to the mount or verb, and is in no table.
	char *work_dir;  // where the index lives; NULL: in the store
	bool keep_trash; // nothing expires by itself: for verbs
};
void ckpt_settings_init(struct ckpt_settings *s); // the defaults
void ckpt_settings_done(struct ckpt_settings *s);
// So many times commit_quiet in ns; where that is off, as if it had its default.
int64_t ckpt_settings_quiet_ns(const struct ckpt_settings *s, int64_t times);
int ckpt_settings_copy(struct ckpt_settings *to, const struct ckpt_settings *from); // 0, -ENOMEM

enum ckpt_setting_kind {
	CKPT_SETTING_NAME,     // char[CKPT_NAME_MAX + 1]: a file name
	CKPT_SETTING_TEXT,     // char *: UTF-8 without control bytes, not empty; NULL is the default
	CKPT_SETTING_DURATION, // int64_t, ns
	CKPT_SETTING_BYTES,    // uint64_t: a size from least to most, or where that may be UINT64_MAX: "none"
	CKPT_SETTING_SHARE,    // uint64_t: a size, or a percentage of the disk; where that may be: "auto", "none"
	CKPT_SETTING_COUNT,    // uint64_t: a number from least to most, or where that may be UINT64_MAX: "all"
	CKPT_SETTING_SWITCH,   // bool: yes or no
	CKPT_SETTING_CHOICE,   // an enum: one of choices, whose places in the list are its values
	CKPT_SETTING_PROFILES, // uint64_t: a bit for each (profile.h)
};

struct ckpt_setting {
	const char *name;
	enum ckpt_setting_kind kind;
	size_t at;              // the field
	const char *initial;    // the default, as it is written; NULL: none
	const char *value;      // what the help calls a value
	const char *wants;      // what a value must be, for messages
	const char *help;       // one line
	const char *choices[4]; // NULL behind the last; "": what it is while it is not set
	uint64_t least, most;   // CKPT_SETTING_BYTES, CKPT_SETTING_COUNT; CKPT_SETTING_DURATION: least alone
	bool or_all;            // CKPT_SETTING_COUNT
	bool or_none;           // CKPT_SETTING_BYTES, CKPT_SETTING_SHARE
	bool or_auto;           // CKPT_SETTING_SHARE
	bool or_off;            // CKPT_SETTING_DURATION
	bool of_node;           // it is about this machine's disk: other nodes of the store have their own
};

#define CKPT_SETTINGS_MAX 64

// The table, in the order in which it is shown; NULL past its end.
const struct ckpt_setting *ckpt_setting_at(size_t i);
const struct ckpt_setting *ckpt_setting_find(const char *name); // or NULL

// Its default again, and nobody's word. 0, -ENOMEM.
int ckpt_setting_reset(const struct ckpt_setting *setting, struct ckpt_settings *s);
// -EINVAL: text is no value of it, and s is as it was; -ENOMEM.
int ckpt_setting_parse(const struct ckpt_setting *setting, const char *text, struct ckpt_settings *s);
// The same as somebody's word that wins over the store's.
int ckpt_setting_give(const struct ckpt_setting *setting, const char *text, struct ckpt_settings *s);
bool ckpt_setting_is_given(const struct ckpt_setting *setting, const struct ckpt_settings *s);
// As parse takes it, malloc'ed; "" for a text or choice that is not set. NULL: no memory.
char *ckpt_setting_text(const struct ckpt_setting *setting, const struct ckpt_settings *s);

// The values out of store.json's object: those that were not given otherwise. Unknown keys are skipped; bad is called for
// each value that is none, with its name ("settings" for all of them), and it stays as it is. 0, -ENOMEM.
int ckpt_settings_load(struct ckpt_settings *s, const json_t *object, void (*bad)(void *arg, const char *name),
		       void *arg);
// All as lines "name=value", malloc'ed; NULL: no memory.
char *ckpt_settings_lines(const struct ckpt_settings *s);
