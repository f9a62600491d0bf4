// Open files of the control directory, and what becomes of its names. What they say is what was true when they were opened. Two of them may be written, by the user
// who mounts; what was written is judged at each close that comes after a write, which has the result:
//
//   policy.json  a policy, which takes the place of the one before. EINVAL: it is none; the error log says where and why, and the one
//                before stays in force. What is cut off and not written says nothing: a shell closes a descriptor between the two.
//   preempted    a preemption is reached at the step with this number, or empty: at the next step that is decided. That it is empty is
//                known when it is touched, or closed for the last time: a shell makes it before what writes to it is begun
//
// Threads: any. _open and what _flush begins block on the disk, or for a decision (control.h).
#pragma once

#include "fs/call.h"
#include "fs/handle.h"

// Answers an OPEN, on a thread of its own.
void control_open(struct call *c);
// Answers a CREATE in the control directory, which can be of `preempted` alone.
void control_create(struct call *c);
void control_read(fuse_req_t req, struct handle *h, size_t size, off_t offset);
ssize_t control_write(struct handle *h, const void *data, size_t len, off_t offset); // -EFBIG, -ENOMEM
int control_truncate(struct handle *h, off_t size);                                  // the same
void control_flush(fuse_req_t req, struct handle *h);
// Its times are set, as touch(1) does.
void control_touch(struct ckpt_fs *fs, const struct node *n);
void control_release(struct ckpt_fs *fs, struct handle *h); // frees the handle
// Below STEP/.arrays -EROFS. -EPERM, as of all names that were to come, go or change but that of `preempted`. Who writes policy.json by a rename over it, or
// makes a file beside it for that, is told in the error log how it is written.
int control_refuse(struct ckpt_fs *fs, const struct node *dir, const char *name);
// A name in the control directory goes: -EPERM but for `preempted`, after which there is no preemption.
int control_unlink(struct ckpt_fs *fs, struct node *dir, const char *name);
