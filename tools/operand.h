// The operands STORE, STEP and PATH, as every verb understands them.
//
// The first operand is STORE if it is a URL, a store or a mount point; a path inside a mount, or below a store's own
// directory, is STORE and STEP (and PATH) at once; else it is a STEP. Left out, STORE is $CKPTFS_STORE, else that of the
// mount the current directory is in.
//
// Calling sequence: ckpt_operand_take() on the operands of a verb, then ckpt_operand_done().
// Threads: one. Reads the mount table and looks at paths; a mount that hangs can make it wait. Failures are said on
// stderr here, once; the functions return 0 or an exit status.
#pragma once

#include "tools/verb.h"

struct ckpt_operand {
	char *store;      // absolute path of the store's directory
	bool in_bucket;   // it was named by the URL of its bucket
	char *mountpoint; // the mount by which it was found, else NULL
	char *folder;     // the current directory in that mount: STEPs are looked up there first; "" at its root
	char **steps;     // what is left: STEP or STEP/PATH, as names from the root of the store
	size_t count;
};

int ckpt_operand_take(const struct ckpt_words *words, struct ckpt_operand *ret_operand);
// One word that is a STORE, or leads into one: what it names there is the one STEP, or a folder. Options of -o are the verb's to judge.
int ckpt_operand_source(const char *word, struct ckpt_operand *ret_operand);
// One word that is a STORE which may be absent: one is made in a directory that is absent or empty, or at the URL. make false: nothing is
// made, and where there is none the store is NULL.
int ckpt_operand_target(const char *word, bool make, struct ckpt_operand *ret_operand);
// A new name, the i-th of steps, which word was before: in the current directory of the mount, if that is where we are, as
// mv(1) has it; malloc'ed.
char *ckpt_operand_new_name(const struct ckpt_operand *operand, size_t i, const char *word);
void ckpt_operand_done(struct ckpt_operand *operand);

// A STORE that need not exist yet, for init and mount: the absolute path of its directory, malloc'ed.
int ckpt_operand_directory(const char *word, char **ret_path);
// path made absolute, symlinks resolved as far as they can be; malloc'ed. Never fails.
char *ckpt_path_absolute(const char *path);
