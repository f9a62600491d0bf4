// Shared files in live trees (core/save/share.h), as clients change them: the first change gives the name a copy of its own.
//
// A node has one name, and the kernel knows it by the file behind it: so the copy is another node. The old one keeps its
// open handles, which read on what they opened, and loses its name; ESTALE makes the kernel look the name up again. Who stats
// the path cannot be told from who has it open: so a shared file's name is looked up each time.
// Threads: any, one copy at a time. Blocks for as long as the bytes take.
#pragma once

#include "fs/fs.h"

// Whether the file that is open at fd, in a live tree, is shared: nobody may change it.
bool copy_up_is_due(int fd);
// The node's name, or that of what it is the twin of (unwritten.h), gets a copy; empty: without the bytes, which are to be cut off
// anyway. The twin, if there is one, is the copy's node then. ret_fd (may be NULL) is O_PATH to what has the name now. -ESTALE: it
// has none any more.
int copy_up(struct ckpt_fs *fs, struct node *n, bool empty, int *ret_fd);
