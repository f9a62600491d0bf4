// Things of this node of steps that another node has let expire: the copy of the record (core/state/record_copy.h), and the files of the session.
//
// The copy goes before the node's own log has the entry: one that has files and no step would tell the next mount that the log has lost
// entries. The files go after it. A crash between the two leaves a left-over session, which goes by its age.
//
// Ownership: all is the caller's. Threads: who reads the remote's log. Blocks on the disk. What fails is left behind.
#pragma once

#include "core/step/store.h"

struct ckpt_log_entry;

// Around ckpt_journal_pull() of this entry.
void ckpt_expired_before(struct ckpt_store *s, const struct ckpt_log_entry *entry);
void ckpt_expired_after(struct ckpt_store *s, const struct ckpt_log_entry *entry);

// Around ckpt_journal_jump() to this state, which does not have all steps that the remote's log had before.
struct ckpt_expired {
	char (*ids)[CKPT_UUID_LEN + 1];
	size_t count;
};
int ckpt_expired_before_jump(struct ckpt_store *s, const struct ckpt_state *to, struct ckpt_expired *ret); // 0, -ENOMEM
void ckpt_expired_after_jump(struct ckpt_store *s, struct ckpt_expired *e);                                // frees it
