// Shared by the files of amend: fs/amend.c (files from creation on), fs/amend_close.c (closes, and writes after one),
// fs/amend_name.c (names) and fs/amend_out.c (moves out of a step).
#pragma once

#include "core/save/amend.h"
#include "core/step/amending.h"
#include "fs/amend.h"
#include "fs/amend_file.h"

// In a committed step what is neither pending nor a copy is what the step has, whoever committed it. Under the lock of its use.
void amend_see_commit_locked(struct ckpt_fs *fs, struct node *n);
void amend_show_change(struct ckpt_fs *fs, struct node *dir);
// Answers a call that made c->name in c->node, or failed to with rc.
void amend_reply_made(struct call *c, int rc);

// --- Names: fs/amend_name.c ---------------------------------------------------------------------------------------------

// Whether the step of the call takes additions as it is: 0, CALL_REOPENS, -EROFS.
int amend_may(const struct call *c);
// The path in the step of a name in this directory.
int amend_path_of(struct ckpt_fs *fs, struct node *dir, const char *name, struct place *p, char *buf, size_t cap);
// Whether a client may make this name in dir, which is at p, and nothing has it. ret_raw: where what it is for is to stand.
int amend_check_place(const struct call *c, struct node *dir, const struct place *p, const char *name, const char *path,
		      char ret_raw[CKPT_AMENDING_RAW_MAX]);
// Gives the client the new raw file, with the mode of the call and, in a directory with setgid, the group of that.
int amend_give(struct call *c, const struct place *p, int dirfd, const char *raw);

// The two ends of a rename: the directories, and the names in them.
struct amend_ends {
	struct place from, to;
	char path[sizeof(((struct place *)0)->buf)], to_path[sizeof(((struct place *)0)->buf)];
};
// The entry at a path of the step, with a reference to its manifest; -ENOENT, also where it is marked as removed.
int amend_find_entry(struct ckpt_step *step, const char *path, struct ckpt_manifest **ret_m, struct ckpt_entry *ret);
// That of a file that leaves its step: -EXDEV a directory, or a file that is not closed yet.
int amend_find_outgoing(struct call *c, const struct amend_ends *e, struct ckpt_manifest **ret_m,
			struct ckpt_entry *ret);
// The file's name in its step is marked as removed, as unlink(2) does it.
int amend_mark_removed(struct call *c, const struct place *dir);

// --- Moves out: fs/amend_out.c --------------------------------------------------------------------------------------------

int amend_move_out(struct call *c, const struct amend_ends *e); // or CALL_REOPENS
