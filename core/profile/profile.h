// Profiles: what a framework does last with a checkpoint, which is when a step of it is complete.
//
// One table of data (profile.c) has a row for each: which directories, which file, and what that must hold. The rows are those
// of FRAMEWORKS.md section 1, seen with strace: a new framework is a row. The act counts in the top directory of a step, or in
// the folder that the step is in (trackers), and never in a directory with a temp name, whose rename counts instead.
//
// Threads: any. Reads the file and lists the directory where said.
#pragma once

#include "core/limits.h"
#include "core/record/event.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// Which profiles apply: a bit for each row. `auto` is all.
// text is "auto" or names with ':' between them, of which "generic" is none: the finalize marker works with any. -EINVAL.
int ckpt_profiles_parse(const char *text, uint64_t *ret_profiles);
char *ckpt_profiles_text(uint64_t profiles); // the same way round, malloc'ed; NULL: no memory

enum ckpt_event {
	CKPT_EVENT_CLOSE = 1,
	CKPT_EVENT_RENAME,
	CKPT_EVENT_UNLINK,
};

// Whether such an act on a file of this name may complete the directory that it is in (beside: another one there). By the
// names alone. from is the name before a rename, else NULL.
bool ckpt_profile_watches(uint64_t profiles, enum ckpt_event act, const char *from, const char *name, bool beside);

// Whether a file of this name may complete the directory that it is in once it is renamed.
bool ckpt_profile_renames(uint64_t profiles, const char *from);

// Whether other ranks may still be writing a file of this name when their step is complete: it is added at its close.
bool ckpt_profile_is_late(uint64_t profiles, const char *name);

// What was done, and where.
struct ckpt_deed {
	enum ckpt_event act;
	const char *from; // RENAME: the name before
	const char *name; // of the file
	int fd;           // reads it; UNLINK: not used
	const char *dir;  // CLOSE and RENAME of a file in the step: the name of its directory, else NULL
	int dirfd;        // reads the directory that the file is in
	pid_t tid;        // the thread that did it; 0: not known
};

struct ckpt_completion {
	enum ckpt_event act;
	const char *profile;
	char event[32]; // "close:metadata.json"
	char beside[CKPT_NAME_MAX +
		    1];       // the directory of this name, in that of the file, is complete; "": that of the file
	const char *metadata; // what the framework says of it, as a marker would; NULL: nothing
	bool leaves_late;     // the step does not wait for late files
	bool awaits_like;     // files that the step beside it has are awaited (ckpt_profile_awaits_like)
	bool settles;         // it is complete when nothing has changed for CKPT_SETTLE_NS more
};
#define CKPT_SETTLE_NS INT64_C(2000000000)

// 0: a step is complete by it; -ENOENT: nothing is. -EINVAL: it would be, but for what the file holds, which is cut or empty;
// then ret has the profile. -EIO, -ENOMEM ... row says which rows of the table were asked, 0 before the first: where there is no
// directory as a completion names it, the rows behind may know another.
int ckpt_profile_completes(uint64_t profiles, const struct ckpt_deed *deed, size_t *row, struct ckpt_completion *ret);
// 0: the directory beside that a completion names looks like a checkpoint of its framework; -ENOENT: it does not, as an empty
// one never does. -EIO, -EMFILE, -ENOMEM ...: it cannot be said.
int ckpt_profile_knows(const struct ckpt_completion *completion, int dirfd);

// What it waits for that others write into its directory dirfd, and the one whose act it is has not waited for: 0: nothing; 1: the file
// *ret_name is not there, or not whole. -EIO, -EMFILE, -ENOMEM ...: it cannot be said.
int ckpt_profile_lacks(const struct ckpt_completion *completion, int dirfd, bool again,
		       char ret_name[CKPT_NAME_MAX + 1]);
// A file of the step beside this one, which this one is to have, too, before it is complete.
bool ckpt_profile_awaits_like(const struct ckpt_completion *completion, const char *name);

// Which profile claims a step, by a file in its top directory that only its framework writes. The name of the directory says nothing.
// Calling sequence: {0}; _see() each name of the top directory; _claims(). NULL: none of those that are on.
struct ckpt_claims {
	uint32_t rows;
	bool arguments, progress;
};
void ckpt_profile_see(struct ckpt_claims *seen, const char *name);
const char *ckpt_profile_claims(uint64_t profiles, const struct ckpt_claims *seen);
// The same of a directory that is open. -errno of the disk.
int ckpt_profile_claims_dir(uint64_t profiles, int dirfd, const char **ret_profile);

// Whose temp name (ckpt_name_is_temp) this is: "generic" nobody's that is known.
const char *ckpt_profile_of_temp(const char *name);
// Which framework gives its steps, staged ones too, such names, as a guess for people; NULL: no telling.
const char *ckpt_profile_of_name(const char *name);
// What the framework that gives directories such names does last, for people; NULL: no telling.
const char *ckpt_profile_awaits(uint64_t profiles, const char *name);
// A plain folder of this name is a part of a checkpoint that is written in parts: it is no step by itself.
bool ckpt_profile_is_part(const char *name);
// A program that copies trees, whose closes come in no order that says anything: comm as in /proc.
bool ckpt_profile_is_copier(const char *comm);
