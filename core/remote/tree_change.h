// One change of the plain tree that is another node's: a name gets another file or folder, or goes.
//
// A mount does it while no request changes the tree, and tells the kernel (ckpt_store_calls.change_tree). Threads: any. Blocks on the disk.
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

struct ckpt_tree_change {
	int dirfd; // the place: of its folder, and the name in it
	const char *name;
	const struct stat *expect; // as it was looked at, NULL: nothing is there
	const char *aside; // a free name in the same folder that it gets; NULL: it goes. A folder that goes is empty
	int from_dirfd;    // what takes the place
	const char *from;  // NULL: nothing does
	const struct stat *moves; // that is a folder or file of the tree, as it was looked at; else NULL
};

// 0; -EAGAIN: something else is there by now; -ENOTEMPTY: a folder is not empty; -errno of the disk. Nothing has changed then.
int ckpt_tree_change(const struct ckpt_tree_change *c);
