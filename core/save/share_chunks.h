// Files of a committed step that are chunks in packs, in a staged step: its commit names the same chunks, and no byte of them is read.
//
// An empty file stands, until the commit, in the staged step, which only its owner may open. It says in an extended attribute which bytes
// are meant: the session of the step that has them, their SHA-256, and the path. It never is a raw file of the version: the entry names
// another place for that.
//
// The scan alone may take it for a file before the commit: it has no byte of what it stands for. A mount refuses to read it, and to change its
// attributes. It refuses to move or link it out of the step, and to make a plain folder of the step.
//
// Threads: any. Blocks on the disk, and _find on the store, which is asked for the packs.
#pragma once

#include "core/save/pack_hold.h"
#include "core/step/step.h"

// The file with this index in m, the manifest of a version of step, gets that place below dirfd. -EXDEV: it is no chunks, or the current version of
// the step has other bytes there; -EEXIST; ...
int ckpt_share_chunks(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index, int dirfd, const char *path);

struct ckpt_shared_chunks {
	struct ckpt_step *step;
	struct ckpt_manifest *m; // references
	uint32_t index;
};

// The file that the one open at fd stands for, whose packs are held from then on. -ENODATA: it is an ordinary file. -ESTALE: the step that has the
// bytes, or its packs, are gone meanwhile; -ENOMEM, ...
int ckpt_share_chunks_find(struct ckpt_store *s, int fd, struct ckpt_pack_hold *hold,
			   struct ckpt_shared_chunks *ret_of);
void ckpt_shared_chunks_done(struct ckpt_shared_chunks *of);

// It may be such a file, as it is empty, and only read by its owner: its size is another once it is committed.
bool ckpt_share_chunks_may_be(const struct statx *stx);
// -EPERM: name in dirfd (any kind of descriptor; "": that itself) is such a file of this staged step; `errors` says so, once for each step. 0: it is
// none, as nothing is where step is NULL.
int ckpt_share_chunks_guard(struct ckpt_step *step, int dirfd, const char *name);
// The same of all that is in the step. -errno of the disk.
int ckpt_share_chunks_guard_all(struct ckpt_step *step);
// The file is an ordinary one from now on: empty. 0, too, where it was one before.
int ckpt_share_chunks_drop(int fd);
