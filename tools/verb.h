// A verb of the command line, and the parsing that all verbs share.
//
// A verb is a function with main()'s arguments, argv[0] being "ckptfs VERB", that returns an exit status: 0 done (or
// yes), 1 failed (or no). It describes its syntax in a struct ckpt_syntax, and ckpt_verb_parse() does the rest: options
// by argp, --help, --json, --quiet, -v, the number of operands. Wrong usage ends the process with 2.
// Threads: one. Nothing blocks.
#pragma once

#include "core/base/nearest.h"

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>

struct ckpt_verb {
	const char *name;
	const char *summary; // one line, for the list of verbs
	int (*run)(int argc, char **argv);
};

#define CKPT_EXIT_USAGE 2

struct ckpt_syntax {
	const char *operands;              // as the usage line shows them: "STORE [STEP]"
	const char *doc;                   // purpose in one line, then '\v' and the examples
	const struct argp_option *options; // the verb's own, or NULL
	// Called for each of them. 0, or wrong usage: what ckpt_usage() returned.
	int (*option)(int key, char *arg, void *input);
	// What the value of an option may hold, for the help: words with OPTION_DOC, or NULL.
	const struct argp_option *values;
	const char *values_title;
	unsigned operands_min, operands_max;
	bool no_json;    // the verb has no --json
	bool no_options; // nor -o: no STORE is among its operands
};

// The operands, in order, followed by NULL; they point into argv. The array stays to the end of the process.
struct ckpt_words {
	char **at;
	size_t count;
};

// Returns only when the usage is right and --help was not asked for (help.h says in which form it is given).
void ckpt_verb_parse(const struct ckpt_syntax *syntax, int argc, char **argv, void *input,
		     struct ckpt_words *ret_words);

// All that was given with -o by the options of all verbs, with ',' between; NULL: nothing. To the end of the process.
const char *ckpt_verb_store_options(void);
// The options of all verbs, as a man page has them.
void ckpt_verb_help_common(void);

int ckpt_verb_abort(int argc, char **argv);
int ckpt_verb_arrays(int argc, char **argv);
int ckpt_verb_check(int argc, char **argv);
int ckpt_verb_derive(int argc, char **argv);
int ckpt_verb_begin(int argc, char **argv);
int ckpt_verb_bench(int argc, char **argv);
int ckpt_verb_cat(int argc, char **argv);
int ckpt_verb_commit(int argc, char **argv);
int ckpt_verb_cool(int argc, char **argv);
int ckpt_verb_config(int argc, char **argv);
int ckpt_verb_convert(int argc, char **argv);
int ckpt_verb_copy(int argc, char **argv);
int ckpt_verb_diff(int argc, char **argv);
int ckpt_verb_doctor(int argc, char **argv);
int ckpt_verb_du(int argc, char **argv);
int ckpt_verb_export(int argc, char **argv);
int ckpt_verb_gc(int argc, char **argv);
int ckpt_verb_get(int argc, char **argv);
int ckpt_verb_index(int argc, char **argv);
int ckpt_verb_info(int argc, char **argv);
int ckpt_verb_init(int argc, char **argv);
int ckpt_verb_latest(int argc, char **argv);
int ckpt_verb_log(int argc, char **argv);
int ckpt_verb_ls(int argc, char **argv);
int ckpt_verb_mount(int argc, char **argv);
int ckpt_verb_mv(int argc, char **argv);
int ckpt_verb_note(int argc, char **argv);
int ckpt_verb_pin(int argc, char **argv);
int ckpt_verb_policy(int argc, char **argv);
int ckpt_verb_preempt(int argc, char **argv);
int ckpt_verb_promote(int argc, char **argv);
int ckpt_verb_remote(int argc, char **argv);
int ckpt_verb_resolve(int argc, char **argv);
int ckpt_verb_resume(int argc, char **argv);
int ckpt_verb_retain(int argc, char **argv);
int ckpt_verb_rm(int argc, char **argv);
int ckpt_verb_seal(int argc, char **argv);
int ckpt_verb_save(int argc, char **argv);
int ckpt_verb_sessions(int argc, char **argv);
int ckpt_verb_should_save(int argc, char **argv);
int ckpt_verb_status(int argc, char **argv);
int ckpt_verb_umount(int argc, char **argv);
int ckpt_verb_trash(int argc, char **argv);
int ckpt_verb_restore(int argc, char **argv);
int ckpt_verb_undelete(int argc, char **argv);
int ckpt_verb_unpin(int argc, char **argv);
int ckpt_verb_verify(int argc, char **argv);
int ckpt_verb_wait(int argc, char **argv);
int ckpt_verb_warm(int argc, char **argv);
// mount.fuse.ckptfs, as mount(8) calls it.
int ckpt_verb_mount_helper(int argc, char **argv);
