// A request that changes a tree, in a form that can wait: while a step is being committed, changes of it are parked on a
// thread of their own, so that the threads that serve the kernel never wait for a disk or for each other.
//
// Calling sequence: fill in a struct call on the stack and hand it to call_run(). The run function answers the request,
// now or on the other thread; it finds the steps entered (stage.h) and must not keep the call.
// Acts on the store that a call makes have the client that asks as their actor (core/base/actor.h). A call without a request takes over the
// actor of the thread that makes it: the client whose call that thread runs, else the mount.
// Ownership: strings and data are copied when a call is parked. Nodes stay alive: the kernel counts them as long as the
// request is open. Threads: any.
#pragma once

#include "core/limits.h"
#include "fs/fs.h"

#include <stdbool.h>

struct call {
	void (*run)(struct call *c);
	// Instead of it in a committed step, which its commit may have become meanwhile; or NULL. Its answer, or one of these.
	int (*committed)(struct call *c);
#define CALL_ANSWERED 1               // it was given already
#define CALL_REOPENS 2                // run it, in the step reopened
	void (*live)(struct call *c); // of who does its act in a committed step on another thread: run of the live one
	// Before a committed step is reopened for it: 0, or why it is not. NULL: nothing forbids it.
	int (*before_reopen)(struct call *c);
	// Of amend_pending: what it does to a file or directory that the step has. NULL: run it, in the step reopened.
	int (*edits)(struct call *c);
	fuse_req_t req;
	struct ckpt_fs *fs;
	struct node *node, *other; // the directory (or file) of the request; the second of a rename or link
	char name[CKPT_NAME_MAX + 1], other_name[CKPT_NAME_MAX + 1];
	char *data; // a symlink's target, an attribute's value; borrowed
	size_t data_len;
	mode_t mode;
	int flags;
	fuse_ino_t other_dir; // of a rename: the new parent as the kernel knows it, which other is not (beside.h)
	unsigned looks;       // how often it has waited for the end of others
	bool opens;           // it is an open(2)
	bool makes;           // who asks for it is a maker of the steps from now on (core/save/makers.h)
	bool reopens;         // it changes what there is: a committed step is reopened for it (core/save/reopen.h)
	bool copies;          // it may have to copy a shared file: that is done on a thread of its own
	pid_t process;        // who asks for it, if it is noted as a maker; 0: not known
	bool settled; // it was asked whether it makes a staged step plain, or a plain folder staged (unstage.h, restage.h)
	void (*then)(struct call *c); // what is run after that
	bool waits_for_clients;       // for call_detach: its end may depend on what some client does first
	struct stat attr;
	struct fuse_file_info fi;
	struct ckpt_step *step, *other_step; // set for run: the steps of node and other, NULL for the plain tree
};

// A call about a name in a directory; all else is empty.
struct call call_for(fuse_req_t req, fuse_ino_t dir, const char *name, void (*run)(struct call *c));
// Enters the steps of node and other and runs the call, or answers with the error that forbids it: -EROFS in a committed
// step that it does not reopen, -ESTALE when it is gone.
void call_run(struct call *c);
// For a run that finds that it will wait for the disk: runs the call once more, as call_run does, on a thread of its own.
void call_again(struct call *c);
// For one that must wait for what others do: the same a moment later. It holds nothing meanwhile that they could need.
void call_again_soon(struct call *c);
// Runs on a thread of its own, without entering a step: for what takes as long as a disk or a long walk. When there are
// too many already it waits its turn; it always runs.
void call_detach(struct call *c);
// The same for what is changed outside of a call. False: n is in a step.
bool call_plain_enter(struct ckpt_fs *fs, struct node *n);
void call_plain_leave(void);
// Between these no change of the plain tree is under way; steps go on.
void call_plain_stop(void);
void call_plain_go(void);
// Waits until no call is left on a thread of its own, at most so long; for the end of a mount.
void call_drain(int64_t timeout_ns);
