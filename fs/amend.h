// New names in committed steps, as clients make them (core/save/amend.h): a directory or symlink is part of the step at once, a file
// at its close. Until then the daemon reads and writes it, not the kernel itself: nothing that was published may change.
//
// A close counts if neither the process that closes the file nor the one that opened it has another descriptor that writes it, and
// no other open of it is left. It publishes the file, empty or not, whichever process closes it, and has the result. The last release
// publishes a file that no close did; a writer that was killed publishes nothing.
// Threads: any. Each answers its request exactly once.
#pragma once

#include "fs/call.h"
#include "fs/handle.h"

// For call.committed: what a call does in a committed step. amend_make: mkdir, mknod and symlink.
int amend_make(struct call *c);
int amend_create(struct call *c);
int amend_rename(struct call *c);  // within a step, into one and out of one
int amend_link(struct call *c);    // into one
int amend_pending(struct call *c); // c->run, where the node is such a file

// Opens a file for writing whose close may complete a step (complete.h), in the step of the call or in the plain tree: as
// handle_open().
int amend_serve(struct call *c, struct node *n, int fd, int writer, bool creates);

bool amend_is_name(const struct place *p, const char *name); // of a pending file in this directory
// The same; and where in the session's directory (amend_open_session) it is.
bool amend_raw_of(const struct place *p, const char *name, char *ret_raw, size_t cap);
// The session's directory of the step, in which what is added to it stands.
int amend_open_session(struct ckpt_fs *fs, const struct place *p);
// The pending file of this name in a committed directory was removed: 0; -ENOENT: there is none.
int amend_remove(struct ckpt_fs *fs, struct node *dir, const struct place *p, const char *name);

void amend_flush(fuse_req_t req, struct handle *h);
void amend_release(struct ckpt_fs *fs, fuse_req_t req, struct handle *h);
// The same, or that of any other file, where nobody will ever close it: its open had no answer.
void amend_release_unanswered(struct ckpt_fs *fs, struct handle *h);
// Around a write through the daemon, or a change of size: what was published stays as it is, and none is published in the
// middle of one. 0, or why it cannot be written, and then it has not begun.
int amend_write_begin(struct ckpt_fs *fs, struct handle *h);
void amend_write_end(struct handle *h);
// The same for a change of several calls, which is not made under the lock of the node's use: until its end no close publishes
// the file.
int amend_change_begin(struct ckpt_fs *fs, struct handle *h);
void amend_change_end(struct node *n);
