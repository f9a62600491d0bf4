// Attributes as clients see them: of live files from the disk, of committed ones from the manifest.
//
// Threads: any. May block on the disk (a manifest that is not in memory is read).
#pragma once

#include "core/record/manifest.h"
#include "fs/fs.h"

#include <sys/stat.h>

struct statx;

// Of a node in a live tree; or of the top of a staged step, whose number is not known yet: n NULL.
void attr_from_statx(struct ckpt_fs *fs, const struct node *n, const struct statx *stx, struct stat *ret_attr);
void attr_from_entry(struct ckpt_fs *fs, const struct ckpt_entry *e, struct stat *ret_attr);
// The same with the holes of a large raw file, which is looked at: st_blocks is that of the disk.
void attr_of_entry(struct ckpt_fs *fs, const struct ckpt_step *step, struct ckpt_manifest *m,
		   const struct ckpt_entry *e, struct stat *ret_attr);
// The directory of a committed step, without its manifest.
void attr_from_summary(struct ckpt_fs *fs, const struct ckpt_summary *s, struct stat *ret_attr);
// Of a live file: how long the kernel may keep its attributes.
double node_attr_timeout(const struct node *n);
// Whether stx is of the file that the node is, which the node may know from before the reopening of its step.
bool node_is_still(struct ckpt_fs *fs, struct node *n, const struct statx *stx);
// access(2) and chdir(2), where the kernel does not look at modes itself: then the client is the user that we are. What is
// done with a raw file is checked by the disk's filesystem all the same.
bool attr_allows(const struct stat *attr, int mask);

// The node's entry in its committed step, with a reference to the manifest; -ESTALE when the step has another file there.
int entry_of_node(struct node *n, const struct place *p, struct ckpt_manifest **ret_manifest,
		  struct ckpt_entry *ret_entry);
// True when the place is in a committed step, or a deleted one: both never change.
bool place_is_committed(const struct place *p);
