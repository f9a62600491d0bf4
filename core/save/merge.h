// The files of a step that two have changed at the same time: one manifest with the changes of both, path by path.
//
// The bytes of the weaker side stay in a conflict copy where a host is given: PATH.conflict-HOST, then PATH.conflict-HOST-2 and so on, a file
// or symlink with a number of its own, or a directory with all that is in it. Its entry is marked, so that it is in no listing
// (ckpt_entry.conflict). A removal of the weaker side is dropped, and so are its attributes of a directory.
//
// A path that one side has changed is as that side has it, and gone where that side has removed it. A path that both have changed is as
// the stronger side has it. A directory stays as long as something is in it. A file has changed when its bytes, its size, its time,
// its mode, its owner or its extended attributes have; a directory, when one of the last three has.
//
// A path that one side has moved and the other has changed has the change in its new place, where that can be (merge_moves.h). Else the old place is a
// removal of the one side, the new place an addition, and both stand by themselves. Of two entries with one inode number that are no hard links
// of each other the one of `other` gets a number of its own.
//
// Ownership: all is the caller's. Threads: any. Blocks only in bring().
#pragma once

#include "core/record/manifest.h"

struct ckpt_merge {
	struct ckpt_manifest *was;   // both sides began with this
	struct ckpt_manifest *own;   // the side that the result is of: all that is not changed is as here
	struct ckpt_manifest *other; // the side that brings its changes
	bool own_wins;
	bool keeps_places;   // all of `own` stays where it is: its files are open under these names
	const char *session; // of the step that the result is of
	const char *host;    // of the weaker side; NULL: there are no conflict copies
	// A path that both have changed, which is as the stronger side has it. copy: the name of the conflict copy; NULL: there is none. Only with a host.
	int (*conflict)(void *arg, const char *path, const char *copy);
	// The number in `was` of a file of `own` (of_own) or `other` that has another one without a change; 0: it has none. NULL: no file has.
	uint64_t (*number_before)(void *arg, bool of_own, uint64_t ino);
	// A file of `other` with bytes comes into the result. e is its entry in m, which has all files of `other`, some perhaps in another place. It
	// is to name its raw file and its session there. 0, -errno.
	// NULL: no file of other comes.
	int (*bring)(void *arg, struct ckpt_manifest *m, struct ckpt_entry *e);
	void *arg;
};

// 0; 1: nothing of `other` is to be brought; -E2BIG, -ENOMEM; errors of bring().
// *ret_dirs: so many more directories are at the top than `own` has.
int ckpt_merge(const struct ckpt_merge *merge, struct ckpt_manifest_writer **ret_writer, int *ret_dirs);
