// Drafts in the mount: new content of plain files that nobody sees before it is whole (core/save/draft.h has the disk's side).
// What becomes a draft, outside of steps:
//   - a new file whose name has the form of a file step (name.h)
//   - an existing file of that form that is opened with O_TRUNC; without it, on a disk with reflinks, as such a copy
//   - any other existing file of at most 64 KiB that is opened with O_TRUNC, but for logs (tracker.h): a tracker
// All other plain files are live, and what is here costs them one look at a counter.
//
// States, and what moves a draft between them:
//   PENDING     draft_begin_new(), draft_enter(): in the table, under the folder and name that it is to have
//   PUBLISHING  the last writer's close, a tracker's fsync, or the watch: opens for writing wait meanwhile
//   RESTING     left over, and looked for by its exact name (draft_left.c)
//   over        it has no name in the table any more: published; or its name was removed or taken by another file, and the
//               writers go on into nothing; or left over, as a session of its own: its writer was killed, its bytes were
//               lost or are not whole. A killed writer's tracker that is none of the known ones (tracker.h) is published.
// The file step of a living writer that is not whole stays PENDING until its last RELEASE: a fork's close is no end. One that has
// only the header of an array stays PENDING after it (draft_live.c): it is about to be mapped and filled.
//
// Which node: the draft's file has a node of its own, because an inode of the kernel has one backing file at a time. Where
// the tree has no file of the name, a lookup of it finds that node; a listing has none. Where there is an old one, lookups
// go on finding it, but for the thread that has just opened the old one for writing: it is invited and answered ESTALE, so
// the kernel looks the name up again, from that very thread, and gets the draft's node. Readers keep the old bytes, those
// that were there before the publication also after it.
//
// Ownership: reference-counted; the table holds one while it is pending, each handle open for writing one.
// Threads: any. No I/O under the table's lock. What publishes blocks on the disk and runs on a thread of its own.
#pragma once

#include "core/save/draft.h"
#include "fs/call.h"
#include "fs/handle.h"

struct draft;
struct drafts;

struct drafts *drafts_new(void); // NULL: no memory
// What is still pending is left over. Nobody may be using one any more. NULL is fine.
void drafts_free(struct drafts *t);

// --- Names ------------------------------------------------------------------------------------------------------------

// The draft that is to have this name, with a reference, or NULL.
struct draft *draft_find(struct ckpt_fs *fs, struct node *dir, const char *name);
void draft_unref(struct ckpt_fs *fs, struct draft *d); // NULL is fine
bool draft_is_at(struct ckpt_fs *fs, struct node *dir, const char *name);
bool draft_is_written(struct ckpt_fs *fs, struct node *dir, const char *name); // the same of one that somebody has open
bool draft_is_of(struct ckpt_fs *fs, struct node *n);                          // the node is a draft's
bool draft_is_below(struct ckpt_fs *fs, const struct node *dir);               // at any depth
bool draft_is_below_locked(struct ckpt_fs *fs, const struct node *dir);        // names_lock held
// Waits until there is none: -EBUSY.
int draft_wait_below(struct ckpt_fs *fs, const struct node *dir, int64_t timeout_ns);
// The draft's node with one more lookup. -ENOENT: it is over.
int draft_lookup(struct ckpt_fs *fs, struct draft *d, struct fuse_entry_param *ret_entry);
// The same where the thread of the request is invited to one of this name; -ENOENT.
int draft_lookup_invited(fuse_req_t req, struct node *dir, const char *name, struct fuse_entry_param *ret_entry);
// In the plain tree, where a file may have new content that is not published: where it is all that there is, it is found,
// and what else the name leads to is not for keeping.
int draft_lookup_plain(struct ckpt_fs *fs, struct node *parent, const char *name, struct fuse_entry_param *ret_entry);

// The name goes, or another file has taken it: true if a draft had it.
bool draft_remove(struct ckpt_fs *fs, struct node *dir, const char *name);
// `ckptfs commit` of a left-over draft. -ENOENT: its folder is not there any more; and as draft_publish_left().
int draft_commit(struct ckpt_fs *fs, struct ckpt_step *left);
// What a rename does to drafts. check: before it: -EBUSY, -EXDEV, -EEXIST, or 0; only: the tree has nothing under the
// old name but a draft, which moved; moved: after a rename in the tree.
int draft_rename_check(struct call *c);
int draft_rename_only(struct call *c);
// Where the tree has nothing under the old name but a left-over one: it is published. -ENOENT: it is none; -EINPROGRESS: not on
// this thread (call.mode says on which it is).
int draft_rename_left(struct call *c);
void draft_renamed(struct call *c);

// --- Opens ------------------------------------------------------------------------------------------------------------

// A CREATE in a plain folder (open as dirfd): NULL where the file is to be live. The file is then made in draft_dirfd();
// draft_made() puts it into the table, once it has a node, and draft_joined() ends the open as for draft_enter().
int draft_begin_new(struct call *c, int dirfd, struct draft **ret_draft);
int draft_dirfd(const struct draft *d);
int draft_made(struct call *c, struct draft *d, struct node *n, int fd);
void draft_drop_new(struct ckpt_fs *fs, struct draft *d); // the CREATE failed
void draft_cancel(struct ckpt_fs *fs, struct draft *d);

// Before a plain file is opened for writing. 0: open it; *ret_draft is then the draft that it is, or NULL. -ESTALE: the
// thread is invited. -EINPROGRESS: the call was handed to another thread, which answers.
int draft_enter(struct call *c, struct draft **ret_draft);
// After it; rc is how the open went, h its handle if it went well. Takes the reference.
void draft_joined(struct ckpt_fs *fs, fuse_req_t req, struct draft *d, struct handle *h, int rc);
// Before one is opened for reading: -ESTALE when the thread is to see the old file.
int draft_read_check(fuse_req_t req, struct node *n);

// It counts against the limits of unfinished work (limit.h): it is a draft, and no tracker.
bool draft_is_limited(const struct handle *h);
// A write of the handle found no room: whatever its writer says by its close, the format must be whole. If it is a draft's.
void draft_lacks_room(struct ckpt_fs *fs, const struct handle *h);

// --- Closes (handles with h->draft) -----------------------------------------------------------------------------------

void draft_flush(fuse_req_t req, struct handle *h);
void draft_release(fuse_req_t req, struct handle *h);
// The handle goes, and nobody will say how it was closed: the connection is gone.
void draft_forsake(struct ckpt_fs *fs, struct handle *h);
// After a client's fsync, which told it rc, as the disk did: a tracker is published. What the client is told now. Blocks.
int draft_synced(struct ckpt_fs *fs, struct handle *h, int rc, int disk);
