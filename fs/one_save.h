// Whether a plain folder holds one save and nothing else, so that the last act of a framework in it makes it a step.
//
// It does if every file in it was made after the folder and after the process of that act began, none has older times (as a copy has),
// none is a log, and none is open for writing but the file of the act and late ones. A run's folder, into which saves go beside logs and
// results, is none, and stays plain.
// Threads: any. Blocks on the disk: looks at each file; and 50 ms at most for closes whose release is still to come.
#pragma once

#include "core/profile/profile.h"
#include "fs/fs.h"

// 0: it does; -ENOENT: it does not; -errno of the disk.
int one_save_check(struct ckpt_fs *fs, struct node *dir, const struct ckpt_deed *deed);
