// Names: which are valid, which have a step form, what number a step has, and the key of a step in the store.
//
// Pure functions, no state, no I/O, nothing blocks. Forms are those of DESIGN.md section 1.
#pragma once

#include "core/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CKPT_OWN_XATTRS "user.ckptfs." // extended attributes with such names are ours, and no client sees them

#define CKPT_FOLDER_ID_LEN 16 // hex digits; the root's id is the empty string
#define CKPT_STEP_KEY_MAX (CKPT_FOLDER_ID_LEN + 3 + CKPT_KEY_NAME_MAX + 1) // with the NUL
#define CKPT_MARKER_DEFAULT ".finalize"
#define CKPT_CONTROL_NAME ".ckptfs"

// 0; -ENAMETOOLONG over CKPT_NAME_MAX bytes; -EINVAL: empty, ".", "..", with '/', NUL or a control byte;
// -EILSEQ: not UTF-8. len bytes, need not end in NUL.
int ckpt_name_check(const char *name, size_t len);
// True for well-formed UTF-8 (no overlong forms, no surrogates); NUL bytes count as text.
bool ckpt_name_is_utf8(const char *text, size_t len);
// A path, which may be any bytes, for where only UTF-8 will do: each byte of what is none becomes U+FFFD. malloc'ed; NULL
// without memory.
char *ckpt_name_clean(const char *text);
// In a pattern '#' stands for a run of digits, '*' for one or more bytes, all else for itself.
bool ckpt_name_matches(const char *pattern, const char *name);
// True for the empty string and for CKPT_FOLDER_ID_LEN lower-case hex digits.
bool ckpt_name_is_folder_id(const char *folder_id);

// A temp form: a name that a framework gives a step only while it is unfinished (*.orbax-checkpoint-tmp*,
// *.partial_save, tmp-checkpoint-*, checkpoint_tmp ...). A rename from it to a name that is none commits.
bool ckpt_name_is_temp(const char *name);

// Where a directory is made decides, with its name, whether it is a step.
struct ckpt_place {
	bool root;           // directly at the root of the mount
	bool below_logs;     // some folder above is named logs, *_logs, runs, tensorboard, wandb or mlruns
	bool in_checkpoints; // the folder is named checkpoint(s) or ckpt(s)
	bool holds_steps;    // the folder already holds a step
};

// True when a directory of this name, made in this place outside any step, is a staged step.
bool ckpt_name_is_step(const char *name, const struct ckpt_place *place);

// True for names of steps (global_stepN of DeepSpeed) whose framework writes a file `latest` in their folder.
bool ckpt_name_has_own_latest(const char *name);
// True for the folder names that end prefixed step forms below them (logs, *_logs, runs ...).
bool ckpt_name_is_logs(const char *name);
// True for checkpoint, checkpoints, ckpt, ckpts.
bool ckpt_name_is_checkpoints(const char *name);

// True for the names of file steps: a checkpoint that is one file (*.pt, *.safetensors, flax's checkpoint_N ...).
bool ckpt_name_is_file_step(const char *name);

// Stands in the names of steps and files that two nodes have made of the same name, before that of the node.
#define CKPT_NAME_CONFLICT ".conflict-"
#define CKPT_NAME_HOST_MAX 63u
// NAME.conflict-HOST, and NAME.conflict-HOST-n for n over 1; host: at most CKPT_NAME_HOST_MAX bytes. What NAME has from .conflict- on is left out,
// and so is its end where it is too long. name: not ret_name.
void ckpt_name_conflict(char ret_name[CKPT_NAME_MAX + 1], const char *name, const char *host, unsigned n);

// The last run of digits in the name as a number, without the version of `*N-vN.ckpt`; -1: none, or one that does not fit.
int64_t ckpt_name_number(const char *name);

// The step's key, in the index and to compare: <folder id>%2F<name>, percent-encoded; names too long for that are "%%" + SHA-256.
// The root's folder id is empty and its keys have no "%2F". ret_key has CKPT_STEP_KEY_MAX bytes. 0, -EINVAL.
int ckpt_name_key(const char *folder_id, const char *name, char *ret_key);
