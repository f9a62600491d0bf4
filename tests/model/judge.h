// The state of the remote's log as the models have it: a few rules, written without the code that is judged. What an entry says is decoded by that
// code, what it means is said here.
//
// An operation that does not fit is void, and a correct writer never puts one (REMOTE.md L4): so each is a violation.
// Ownership: the caller's memory, plain data: a copy is a copy. One thread.
#pragma once

#include "tests/model/bucket.h"

#include "core/base/uuid.h"
#include "core/record/name.h"

enum {
	JUDGE_STEPS = 24,
	JUDGE_FILES = 16,
	JUDGE_OBJECTS = 64,
	JUDGE_PLAINS = 32,
	JUDGE_CONDEMNED = 160,
	JUDGE_EVER = 256,
	JUDGE_TOOK = 8,
	JUDGE_NAME = 80
};

struct judge_file {
	char path[JUDGE_NAME];
	uint64_t bytes;
};

struct judge_step {
	char id[CKPT_UUID_LEN + 1], name[JUDGE_NAME];
	char was[JUDGE_NAME];         // the name that it was saved under
	char node;                    // that saved it
	char deleted_by, replaced_by; // nodes
	uint8_t deletions[8];         // in the log, by node
	char is;                      // L listed, T in the trash, X expired
	bool pinned, again;           // again: saved once more after it had expired
	uint32_t last;
	struct judge_file files[JUDGE_FILES];
	size_t file_count;
	uint16_t ever[JUDGE_FILES]; // sizes of files of all versions
	size_t ever_count;
	uint16_t objects[JUDGE_OBJECTS]; // that its versions name, by number
	size_t object_count;
};

struct judge_plain {
	char folder_id[CKPT_FOLDER_ID_LEN + 1], id[CKPT_FOLDER_ID_LEN + 1], name[JUDGE_NAME], names[32];
	uint64_t version, bytes;
	char node;
};

struct judge {
	uint64_t seq; // of the last entry
	struct judge_step steps[JUDGE_STEPS];
	size_t step_count;
	struct judge_plain plains[JUDGE_PLAINS];
	size_t plain_count;
	uint16_t condemned[JUDGE_CONDEMNED];
	size_t condemned_count;
	uint16_t ever[JUDGE_EVER]; // sizes of all plain files that there were
	size_t ever_count;
	struct {
		char node;
		bool removes;
		uint64_t bytes;
	} took[JUDGE_TOOK]; // contents of plain files that the last entry replaces or removes
	size_t took_count;
	char said[512];  // by the last entry, for people and for the number of states
	char wrong[256]; // "": nothing is
};

// Numbers of objects and letters of nodes, in the order in which they were first seen. Of a walk.
void judge_begin(char (*letter_of)(const char *node_id));
unsigned judge_object(const char *key);
unsigned judge_object_of(const char *key, char node); // the same, of one that this node puts
const char *judge_object_label(const char *key);      // "A0": the first of node A

// The entry behind the last one, if it is there: 1; 0. j->wrong says what is wrong with it.
int judge_read(struct judge *j, const struct bucket *b);
// An object is missing that a step needs: its key, or NULL.
const char *judge_missing(const struct judge *j, const struct bucket *b, const struct judge_step **ret_step);
bool judge_is_needed(const struct judge *j, const char *key);
const struct judge_step *judge_step(const struct judge *j, const char *id);
const struct judge_step *judge_listed(const struct judge *j, const char *name);
bool judge_had_file(const struct judge *j, uint64_t bytes);
// Some step has had this name when it was saved.
bool judge_has_saved(const struct judge *j, const char *name);
const struct judge_plain *judge_plain(const struct judge *j, const char *folder_id, const char *name);
// "folder/name"
void judge_path(const struct judge *j, const struct judge_plain *p, char *ret, size_t cap);
