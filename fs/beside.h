// Files that editors and desktops make beside those that they work on, in a committed step: swap files, backups, locks (the names
// are in beside.c). They are no part of any version. Here they are plain files of the node, in a directory of their own for each
// directory of the step, tree/.ckptfs/ID (core/FORMAT.md), of which clients see the names where the step's are.
//
// A name of these forms that the step itself has, because it was saved with it, or had in its version when it was removed, is the
// step's. All calls about another one
// are made of the directory here instead: it is a node as those of plain folders are, but the kernel does not know it.
// Threads: any. These look at the disk, for names of these forms only.
#pragma once

#include "fs/fs.h"

#include <stdbool.h>

bool beside_is_name(const char *name);
// The directory whose child of this name a request means: dir itself, or the one beside it. _find: what is there; _make: what is
// to be made there, with the directory where it is missing (dir itself where that cannot be).
struct node *beside_find(struct ckpt_fs *fs, struct node *dir, const char *name);
struct node *beside_make(struct ckpt_fs *fs, struct node *dir, const char *name, pid_t tid);
// The directory beside dir, open; -ENOENT: none, -errno. Its files are listed with dir, but for names that are the step's own.
int beside_open(struct ckpt_fs *fs, struct node *dir);
bool beside_is_own(struct ckpt_fs *fs, struct node *dir, const char *name);
// Whether something stands beside the directory of this name, which keeps that from being removed. step: of this name, or NULL.
bool beside_any(struct ckpt_fs *fs, struct node *dir, const char *name, struct ckpt_step *step);
// Before a store is mounted for writing: what stands beside steps that are gone is removed.
void beside_sweep(struct ckpt_store *s);
