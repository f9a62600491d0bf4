// Things of this node of steps that another node has let expire: the copy of the record (core/state/record_copy.h), and the files of the session.
//
// The copy goes before the node's own log has the entry, and that is durable: one that has files and no step would tell the next mount that
// the log has lost entries. The files go after it. A crash between the two leaves a left-over session, which goes by its age. A step that
// the entry does not end has its copy again after it, or from the next mount on.
//
// Ownership: all is the caller's. Threads: who reads the remote's log, without acts_lock where not said. Blocks on the disk.
#pragma once

#include "core/state/journal.h"
#include "core/step/store.h"

// ckpt_journal_pull() of entries of the remote's log, and its errors; -EIO ...: the folder of copies cannot be made durable. Takes acts_lock.
int ckpt_expired_pull(struct ckpt_store *s, const struct ckpt_pull *pulls, size_t count);

// Around ckpt_journal_jump() to this state, which does not have all steps that the remote's log had before.
struct ckpt_expired {
	char (*ids)[CKPT_UUID_LEN + 1];
	size_t count;
};
// Under acts_lock. 0, -ENOMEM, and those of an fsync.
int ckpt_expired_before_jump(struct ckpt_store *s, const struct ckpt_state *to, struct ckpt_expired *ret);
void ckpt_expired_after_jump(struct ckpt_store *s, struct ckpt_expired *e); // under acts_lock, too; frees it
