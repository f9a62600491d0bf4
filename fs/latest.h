// `latest`: in each plain folder that holds committed steps a symlink to the newest of them, which no listing shows.
//
// Each lookup says what is true then (core/step/latest.h). A link never changes: when there is a newer step the name is that
// of another one, for the kernel keeps what a link says as long as it knows the link.
// Whatever else has the name comes first: this is only asked for when there is no step, file, folder or link of a user's.
// mkdir, symlink, link and open(O_CREAT) of the name find nothing, and make a user's own.
// Who removes it, ours or theirs, has the name free until the next commit in this folder: `rm latest; ln -s 1000 latest`
// works as it does anywhere.
//
// Threads: any. Nothing blocks for long: the folder's attributes come from the disk.
#pragma once

#include "fs/fs.h"

bool latest_is_name(const char *name);
// The link in a plain folder, with one more lookup, and its attributes. -ENOENT: nothing resolves.
int latest_lookup(struct ckpt_fs *fs, struct node *dir, struct node **ret_node, struct stat *ret_attr);
bool latest_resolves(struct ckpt_fs *fs, struct node *dir);
// Whether readdir has it: with show_latest, unless the name is a user's. ret_number is its st_ino.
bool latest_is_listed(struct ckpt_fs *fs, struct node *dir, uint64_t *ret_number);

// -ESTALE: the name is another link's by now, or nobody's.
int latest_attr(struct ckpt_fs *fs, struct node *n, struct stat *ret_attr, double *ret_timeout);

// The name was removed, or moved away: it is free until the next commit. -ENOENT: nothing resolved, nor would have.
int latest_remove(struct ckpt_fs *fs, struct node *dir);

// A thread has looked the link n of a folder up. -ENOENT, with one lookup less: it is about to make a `latest` of its own, and no
// call that makes one expects ours.
int latest_follow(struct ckpt_fs *fs, struct node *dir, struct node *n, pid_t tid);
