// What verbs ask of a mount: they act on its store through it, for it alone may write there.
//
// A request and its answer are JSON objects; {"error", "hint"} refuses. Threads: one, that of the control socket. May block
// on the disk.
#pragma once

struct ckpt_fs;

// {"verb": "status" | "sessions" | "abort" | "delete" | "undelete" | "move", ...}; steps are named by "session", their uuid.
// malloc'ed; NULL: no memory.
char *verbs_answer(struct ckpt_fs *fs, const char *request);
