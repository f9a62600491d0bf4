// What becomes of steps after their save: deleted, had back, another saved under their name, expired. A script of such
// acts, and a model of it that says which states a cut at any point may leave: the bodies of the loops in
// tests/crash/test_delete.c and test_delete_faults.c.
//
// A life is one save: the content of ckpt_save_steps[shape] (save.h) under a name that several have, one after the other.
// What must not fail ends the test.
#pragma once

#include "tests/support/save.h"

#include "core/base/util.h"

enum ckpt_life_act {
	CKPT_LIFE_SAVE,
	CKPT_LIFE_RESAVE, // over what has its name, which is reopened, changed and committed
	CKPT_LIFE_DERIVE, // of what has the name of LIFE_AGAIN: all files shared, one changed
	CKPT_LIFE_GIVE_UP, // that one is reopened and changed, and given up when it stands still; the changes are dropped
	CKPT_LIFE_METADATA,
	CKPT_LIFE_DELETE,
	CKPT_LIFE_UNDELETE,
	CKPT_LIFE_EXPIRE,     // that one, and its files behind
	CKPT_LIFE_EXPIRE_ALL, // what is deleted
	CKPT_LIFE_MAKE_ROOM,  // the same, before its time: the disk is full (room.h)
};

enum ckpt_life {
	LIFE_FIRST,
	LIFE_LARGE,
	LIFE_THIRD,
	LIFE_OTHER,
	LIFE_LAST,
	LIFE_AGAIN,
	LIFE_ONCE_MORE,
	LIFE_DERIVED,
	CKPT_LIVES
};

struct ckpt_life_op {
	enum ckpt_life_act act;
	enum ckpt_life life; // not of EXPIRE_ALL
};

#define CKPT_LIFE_OPS_MAX 24

struct ckpt_life_script {
	struct ckpt_life_op ops[CKPT_LIFE_OPS_MAX];
	size_t count;
};

// All that can be done to a name, each in front of the things that it may be confused with.
extern const struct ckpt_life_script ckpt_life_whole;
extern const struct ckpt_life_script ckpt_life_reopened; // the same for steps that are reopened or derived

// When each act began and was acknowledged: what clock() said, plus 1; 0: it was not. May be shared with a child.
struct ckpt_life_log {
	uint64_t began[CKPT_LIFE_OPS_MAX], done[CKPT_LIFE_OPS_MAX];
	char session[CKPT_LIVES][37]; // "" before the save
	bool may_leave;               // a session: an act that makes one failed before
};

// One act. 0, -errno: asking again goes on with it. A save that fails stays staged.
int ckpt_life_do(struct ckpt_store *s, const struct ckpt_life_op *op, struct ckpt_life_log *log);
// Opens the store in dir, does all, closes it.
void ckpt_life_run(const char *dir, const struct ckpt_life_script *script, struct ckpt_life_log *log,
		   uint64_t (*clock)(void *arg), void *arg);
// The act that this time of the clock is in, or the number of acts.
size_t ckpt_life_at(const struct ckpt_life_script *script, const struct ckpt_life_log *log, uint64_t point);

// What must hold of a store in which the script was cut at this time of the clock: it opens; what was acknowledged is so,
// the act that was cut happened wholly or not at all; what is listed or in the trash is whole. Then all that is in the
// trash expires, and nothing is left but what is live. thorough: before that, the second open and one without the index
// say the same (I4, I9), and what is in the trash can be had back; after it, the name can be given anew.
void ckpt_life_check(const char *dir, const struct ckpt_life_script *script, const struct ckpt_life_log *log,
		     uint64_t point, bool thorough);
// The first part of it, for a store that is open: done acts are acknowledged, and with cut the next was tried.
void ckpt_life_check_store(struct ckpt_store *s, const struct ckpt_life_script *script, const struct ckpt_life_log *log,
			   size_t done, bool cut);
// The second: what is in the trash expires, and nothing is left but what is live.
void ckpt_life_check_expiry(struct ckpt_store *s, bool saving);
bool ckpt_life_saves(const struct ckpt_life_op *op); // it makes a session
// What is listed and what is in the trash, one line each; malloc'ed.
char *ckpt_life_listing(struct ckpt_store *s);
