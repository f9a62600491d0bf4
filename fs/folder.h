// Plain folders, and the steps in them.
//
// Threads: any, without a lock. All but folder_touch may read the disk.
#pragma once

#include "fs/fs.h"

// The id of a plain folder under which its steps are found. -ENOENT: it holds none and has no id; make gives it one.
// -ENOTDIR: not a plain folder.
int folder_id_of(struct ckpt_fs *fs, struct node *dir, bool make, char *ret_id);
// The name of a directory, and the folder that it is in: a reference. ret_name has CKPT_NAME_MAX + 1 bytes. -ESTALE.
int folder_above(struct ckpt_fs *fs, const struct node *dir, char *ret_name, struct node **ret_above);
// A folder may be removed or replaced with steps in it that no listing shows: whether each is a staged one that nobody writes;
// and, once the folder is gone, those are left over (stage.h), as far as that is still so.
bool folder_is_idle(struct ckpt_fs *fs, const char *id);
void folder_set_aside(struct ckpt_fs *fs, const char *id);
// Its modification time is now: a step came or went, which its own directory on disk does not show.
void folder_touch(struct ckpt_fs *fs, struct node *dir);
// The same of the folder that holds the step which this node is in, if it is in one.
void folder_touch_above(struct ckpt_fs *fs, struct node *n);
// The kernel still believes the name of a step that is gone, and would say that it exists to whoever makes it anew. It
// is told when we hold no lock: for this it takes the folder's own, which a request may hold that waits for one of ours.
void folder_forget(struct ckpt_fs *fs, struct node *top);
// The same of a step that was deleted in whatever way; fs is a struct ckpt_fs.
void folder_step_gone(void *fs, struct ckpt_step *step);
// A step was completed although nobody asked for it: its folder shows a new one.
void folder_step_listed(void *fs, struct ckpt_step *step);
// The step of this name in a plain folder, whatever its state, with a reference: 0. -ENOENT: there is none, nor can there be. Else
// (-EMFILE, -EIO ...) nobody can say, and neither may who asks: a name that seems free would be given away.
int folder_find(struct ckpt_fs *fs, struct node *dir, const char *name, struct ckpt_step **ret_step);
// The same, unless it is only left over or deleted. A removal or reopening that has stood still for too long ends by this.
int folder_step(struct ckpt_fs *fs, struct node *dir, const char *name, struct ckpt_step **ret_step);
