// The attributes of a node of any kind: a file of the plain tree or of a step, a marker, `latest`, a piece of the control directory.
//
// Threads: any. May block on the disk, as attr.h.
#pragma once

#include "fs/fs.h"

#include <sys/stat.h>

// -ESTALE when its file is gone or is another now. timeout in seconds.
int attr_of_node(struct ckpt_fs *fs, struct node *n, struct stat *ret_attr, double *ret_timeout);
