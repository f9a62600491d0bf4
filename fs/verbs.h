// What verbs ask of a mount: they act on its store through it, for it alone may write there.
//
// A request and its answer are JSON objects; {"error", "errno", "hint"} refuses. Threads: any. May block
// on the disk.
#pragma once

struct ckpt_fs;

// {"verb": "status" | "sessions" | "begin" | "resume" | "commit" | "abort" | "delete" | "retain" | "undelete" | "restore" | "change" | "move" | "pin" |
// "unpin" | "promote" | "note" | "seal" | "cool" | "warm" | "gc" | "index" | "should-save" | "preempt", ...}; steps are named by "session", their
// uuid, and new names are in "to"; "metadata" is JSON text that was checked; of "begin" there are "add_only", "force" and "parents", of "commit" "profile" and "event", or not; of "restore" "version"; of "change" "to" is a JSON array of {"path", "raw" or null, "ino", "bytes", "mtime_s", "mtime_ns"} (core/save/amend.h); of "gc" there are "grace_ns", "dry_run" and "force", of
// "retain" "sessions", several of them, of "should-save" "step", a number, "run", a folder, or not, "force", and "answer", what a function of the user's says, of "preempt" "step", or not.
// peer: the connection that it came by; what takes long is given up when nobody is there any more.
// malloc'ed; NULL: no memory.
char *verbs_answer(struct ckpt_fs *fs, const char *request, int peer_fd);
