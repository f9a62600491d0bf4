// A draft: new content of a plain file, from the open that began it until it is published, in place of what the tree has
// under the name, or left over. Until then it is a file in a session of its own, sessions/UUID/NAME: so a draft whose
// writer or daemon dies is a left-over session like that of a step, wherever it was cut, and nothing has to be moved then.
//
// Calling sequence: ckpt_draft_begin(); the file is made in dirfd under name; then either
//	ckpt_draft_write_out(), ckpt_draft_publish(), ckpt_draft_published()      the new content is there
//	ckpt_draft_drop()                                                         nobody wants it
//	ckpt_draft_leave()                                                        kept as a left-over session
// Ownership: the struct is the caller's memory, and stays where it is; its descriptor is open from begin to the end. Threads: one call at a time
// for one draft. All block on the disk. Errors: -errno of the disk.
//
// What is where after a crash: publish is one rename. Before it is on disk the name has the old content, after it the new
// one, whole, because write_out came first. A session that publish has emptied goes at the next open of the store.
#pragma once

#include "core/store/store.h"

struct ckpt_draft {
	struct ckpt_store *store;
	char session[37];
	char name[CKPT_NAME_MAX + 1];  // of the file in the session
	int dirfd;                     // the session's directory; -1: none (any more)
	struct ckpt_draft *next, **at; // of the store's, from begin to the end; guarded by its lock
};

// Who begins it, and what it is to be. path is that in the tree, for people; gid applies where the tree's folder gives its
// own on to new files (folder_fd, borrowed).
struct ckpt_draft_origin {
	const char *path, *name;
	const char *folder_id; // "": none
	uid_t uid;
	gid_t gid;
	pid_t pid;
	int folder_fd;
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
// The descriptor goes, the session stays: for the end of a mount.
void ckpt_draft_close(struct ckpt_draft *d);

// At the opening of a store: whether this session is nothing to be shown (1, 0), because it holds no file and was a draft's, or
// does not say what it was. When it is open for writing such a one is removed, and one that holds a file is told of in errors,
// once. -ENOMEM.
int ckpt_draft_is_empty(struct ckpt_store *s, const char *session);
