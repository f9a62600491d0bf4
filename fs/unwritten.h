// Files of committed steps that are open for writing, and that nobody has written yet.
//
// An open changes nothing: the step stays listed. It is led to another node of the same name, the file's twin (look_again.h), which
// the daemon reads and writes; who had the file itself open reads on, in passthrough or not. As long as somebody has the twin open
// so, the name leads all to it, so that they see what will be written. The first write, truncation or fallocate reopens the step
// (core/save/reopen.h) and gives the file's name a copy there (copy_up.h), and the twin is that copy's node from then on.
//
// Threads: any. unwritten_begin() blocks for as long as the bytes take.
#pragma once

#include "fs/call.h"
#include "fs/handle.h"
#include "fs/unwritten_list.h"

// For call.committed: an open of a file of the step, or of its twin. CALL_REOPENS: not like this, since it truncates, or cannot be
// led to the twin.
int unwritten_open(struct call *c);
// The twin is to be opened, and its step was reopened meanwhile, or for this open: it becomes the copy's node. -ESTALE: it was nobody's.
int unwritten_open_staged(struct call *c);

// The first change through the handle. 0: it may be made, in the copy. A file that lost its name is nobody's, as on a disk.
int unwritten_begin(struct ckpt_fs *fs, struct handle *h);

// A lookup of the name found this: it is led to the twin of that. False: the name has another file by now. Look it up once more.
bool unwritten_lead(struct ckpt_fs *fs, const struct node *dir, const char *name, struct fuse_entry_param *found);
