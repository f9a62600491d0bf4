// The finalize marker: a file in the top directory of a step whose close commits the step.
//
// It is served by the daemon, never by the kernel, because its FLUSH is the commit (PROTOCOL.md 2.1):
// the first FLUSH by the process that opened it commits and carries the result; one by another process (a forked
// child's exit) does not; nor does one of an empty marker while that process has another descriptor that writes it, as a
// shell has that redirects into it; one of a process that was killed completes nothing, nor does the RELEASE after it.
// If no FLUSH committed, the last RELEASE does. Bytes written after a commit replace the metadata at the next FLUSH.
// The result belongs to the handle: a second FLUSH returns it, a new open is a new attempt.
// The file exists only while somebody has it open; it is no part of the step.
//
// Threads: any. flush and release run the commit on a thread of their own and answer from there.
#pragma once

#include "fs/call.h"
#include "fs/handle.h"

bool marker_is_name(struct ckpt_fs *fs, const char *name);
// Its name in a directory where it is one: the top of a step, or a plain folder, which it makes a step.
bool marker_is_here(struct ckpt_fs *fs, struct node *dir, const char *name);
// Answers a CREATE of the marker in such a directory.
void marker_create(struct call *c);
// The marker's node with one more lookup, when somebody has it open; -ENOENT.
int marker_lookup(struct ckpt_fs *fs, struct node *dir, struct node **ret_node);
void marker_open(fuse_req_t req, struct node *n, struct fuse_file_info *fi);
int marker_attr(struct node *n, struct stat *ret_attr, double *ret_timeout);
int marker_truncate(struct handle *h, off_t size);
void marker_read(fuse_req_t req, struct handle *h, size_t size, off_t offset);
ssize_t marker_write(struct handle *h, const void *data, size_t len, off_t offset);
void marker_flush(fuse_req_t req, struct handle *h);
void marker_release(fuse_req_t req, struct handle *h);
