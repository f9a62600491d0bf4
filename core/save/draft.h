// A draft: new content of a plain file, from the open that began it until it is published, in place of what the tree has
// under the name, or left over. Until then it is a file in a session of its own, sessions/UUID/NAME: so a draft whose
// writer or daemon dies is a left-over session like that of a step, wherever it was cut, and nothing has to be moved then.
//
// Calling sequence: ckpt_draft_begin(); the file is made in dirfd under name; then either
//	ckpt_draft_write_out(), ckpt_draft_publish(), ckpt_draft_published()      the new content is there
//	ckpt_draft_drop()                                                         nobody wants it
//	ckpt_draft_leave()                                                        kept as a left-over session
// A left-over one goes on with ckpt_draft_find() and ckpt_draft_retake(), then as above.
// Ownership: the struct is the caller's memory, and stays where it is; its descriptor is open from begin to the end. Threads: one call at a time
// for one draft. All block on the disk. Errors: -errno of the disk.
//
// What is where after a crash: publish is one rename. Before it is on disk the name has the old content, after it the new
// one, whole, because write_out came first. A session that publish has emptied goes at the next open of the store.
#pragma once

#include "core/step/drafts.h"

// Who begins it, and what it is to be. path is that in the tree, for people; gid applies where the tree's folder gives its
// own on to new files (folder_fd, borrowed).
struct ckpt_draft_origin {
	const char *path, *name;
	const char *folder_id; // "": none
	uid_t uid;
	gid_t gid;
	pid_t pid;
	int folder_fd;
	uint64_t folder; // its number, 0: not known
};

int ckpt_draft_begin(struct ckpt_store *s, const struct ckpt_draft_origin *origin, struct ckpt_draft *ret_draft);
// What the file holds is on disk. Another error than a write that was lost may go away; after that one the content is not
// what was written, and must not be published.
int ckpt_draft_write_out(const struct ckpt_draft *d, int fd);
// The draft takes the name. Nothing has changed when it fails.
int ckpt_draft_publish(const struct ckpt_draft *d, int to_dirfd, const char *to_name);
// After it: the session goes. durable: the name is on disk when this returns; an error of that is returned, and the name
// has the new content all the same.
int ckpt_draft_published(struct ckpt_draft *d, int to_dirfd, bool durable);
void ckpt_draft_drop(struct ckpt_draft *d);
// Kept, and listed among the left-over sessions from now on.
int ckpt_draft_leave(struct ckpt_draft *d);
// What it is to be called by now, before it is left: path, name and folder as in its origin. The file is renamed with it.
int ckpt_draft_move(struct ckpt_draft *d, const char *path, const char *name, uint64_t folder);

// The left-over draft of this name in this folder, with a reference; the newest, where there are several. NULL: none.
// born_ns: of the folder, 0 not known; what was begun before that was for another folder, whose number it has now.
struct ckpt_step *ckpt_draft_find(struct ckpt_store *s, uint64_t folder, int64_t born_ns, const char *name);
// Its path in the tree, malloc'ed; NULL: not known.
char *ckpt_draft_path(struct ckpt_step *left);
// A view of it: reads and publishes nothing, and is closed with ckpt_draft_close(). -ESTALE: it is not left over any more.
int ckpt_draft_view(struct ckpt_step *left, struct ckpt_draft *ret_draft);
// The view becomes the draft, and its session is in no list any more. -ESTALE.
int ckpt_draft_retake(struct ckpt_step *left, struct ckpt_draft *d);
// The descriptor goes, the session stays: for the end of a mount.
void ckpt_draft_close(struct ckpt_draft *d);

// At the opening of a store: whether this session is nothing to be shown (1, 0), because it holds no file and was a draft's, or
// does not say what it was. When it is open for writing such a one is removed, and one that holds a file is told of in errors,
// once. -ENOMEM.
int ckpt_draft_is_empty(struct ckpt_store *s, const char *session);
