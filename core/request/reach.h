// An act on the store in a directory, by whichever process may write it: the one that has it mounted is asked, and where none has,
// this process opens it for writing.
//
// Threads: any. Blocks on either, and on other processes that have the store open for a short while.
#pragma once

#include "core/step/ask.h"

#include <stdbool.h>

struct ckpt_store;

struct ckpt_reach {
	int (*ask_mount)(const char *directory, void *arg, char **ret_why); // -ENOTCONN: nobody has it mounted
	int (*at_rest)(struct ckpt_store *s, void *arg, char **ret_why);    // -ESTALE: it is to be done again
	void *arg;                                                          // of both
	int64_t patience_ns;                                                // of those who have it open; then -EBUSY
	bool read_only;                                                     // set: it cannot be opened for writing
};

// 0; what either answers; errors of ckpt_hold(). *ret_why: where there is more to say than the errno (malloc'ed, or NULL).
int ckpt_reach(const char *directory, struct ckpt_reach *reach, char **ret_why);

// ckpt_ask_json(), with a word on a mount that does not answer.
int ckpt_reach_ask(const char *directory, json_t *request, int seconds, json_t **ret_reply, char **ret_why);
bool ckpt_reach_is_end(int error); // the mount that was asked has ended meanwhile
