// Older versions of a step. They can be opened until they expire.
//
// Versions that follow each other and have the same files are one state of the files. The newest of them says where the bytes are. Three rules
// say when a state has expired; the current one never does:
//   1. It was replaced longer ago than deleted steps are kept (settings.trash_ns), unless the step is pinned. Then its packs and raw files may
//      go, too.
//   2. An edit made it, and another edit made the next one: either within five seconds, as where a program writes a temporary file and renames it;
//      or in the same hour of the clock, more than an hour ago. Then its raw files may go. Its packs stay until rule 1: an older state may be read
//      of them (file.h).
//   3. Its raw files have gone by an earlier setting: an attribute of the session's directory says up to which moments (outdated.h).
//
// Ownership: lists are the caller's. Threads: any. Blocks on the disk.
#pragma once

#include "core/step/step.h"

struct ckpt_older {
	uint32_t first, last; // the versions, deletions too
	uint32_t says;        // of them the newest that is no deletion: its manifest says where the bytes are
	int64_t made_ns;      // the commit of the first
	int64_t replaced_ns;  // that of what came in its place; INT64_MAX: it is current
	uint32_t node;        // that made them, as of core/state/state.h
	bool edited;          // an edit made them; else a save, or a version that was restored
	bool repacked;        // bytes were moved, or got their seals, by one of the versions
	bool unmerged;        // it lacks changes of other nodes that a later version has (core/state/state.h)
	bool over;            // rule 1
	bool expired;         // any of the rules
};

// The states of a step's files, ascending; the last is the current one. -ENOENT: the log has no such step (any more); -ENOMEM.
int ckpt_older_list(struct ckpt_step *step, struct ckpt_older **ret_list, size_t *ret_count);

// The version that says where the bytes of the files of version `number` are. -ENOENT: the step has no such version; -ESTALE: it has expired;
// -EBADMSG, ...
int ckpt_older_open(struct ckpt_step *step, uint32_t number, struct ckpt_version **ret_version);
// The same of one that has expired, too: its files may be gone.
int ckpt_older_open_expired(struct ckpt_step *step, uint32_t number, struct ckpt_version **ret_version);
// The same by a number, or by how many states ago it was of those that can be opened (below 0), with the step that has it: this one, or a deleted one that
// had its name before and that it took the place of. References.
int ckpt_older_find(struct ckpt_step *step, int64_t number, struct ckpt_step **ret_step,
		    struct ckpt_version **ret_version);

// The oldest state of those that the remote's log is to have by themselves: none of them is current, or has expired, or is unmerged. sent: the
// newest version that it has. -ENOENT: there is none, and the current one is next.
int ckpt_older_unsent(struct ckpt_step *step, uint32_t sent, struct ckpt_older *ret_state);

// Calls fn with the manifests of older versions that, together, need each pack that such a version needs. Ends with its first answer that is not 0.
// -EBADMSG, -ENOMEM, ...: one cannot be read.
typedef int ckpt_older_fn(void *arg, const struct ckpt_manifest *m);
int ckpt_older_each_packs(struct ckpt_step *step, ckpt_older_fn *fn, void *arg);

// --- For core/save -------------------------------------------------------------------------------------------------------

// By rule 1, for what was replaced until then, and by rule 2 as of a moment.
struct ckpt_older_limits {
	int64_t replaced_ns, thinned_ns;
};
#define CKPT_OLDER_XATTR CKPT_OWN_XATTRS "older"

// Those of now, without rule 3; and those that the session's directory says.
struct ckpt_older_limits ckpt_older_limits(struct ckpt_step *step, int64_t now_ns);
struct ckpt_older_limits ckpt_older_limits_done(const struct ckpt_step *step);
int ckpt_older_limits_keep(const struct ckpt_step *step, const struct ckpt_older_limits *limits);
// The i-th of a list, by these limits alone.
bool ckpt_older_is_over(const struct ckpt_older *o, const struct ckpt_older_limits *limits);
bool ckpt_older_has_expired(const struct ckpt_older *list, size_t count, size_t i,
			    const struct ckpt_older_limits *limits);
// When it will have: at the latest, by the clock of the system. INT64_MAX: never.
int64_t ckpt_older_expires_ns(const struct ckpt_older *list, size_t count, size_t i, struct ckpt_step *step);
