// The process on whose behalf a thread makes an act: its user, and the name of its program, never its arguments.
//
// A thread works for this process itself until it is told otherwise. A thread that takes up work for a client says so first, and takes it
// back at the end:
//
//	struct ckpt_actor_scope was = ckpt_actor_set_client(uid, tid);
//	...                                  // acts here are the client's: core/state/journal.h asks ckpt_actor_get()
//	ckpt_actor_restore(&was);
//
// Work that is handed to another thread carries its actor only on purpose: ckpt_actor_get() before, ckpt_actor_set() there.
//
// Ownership: plain data. Threads: each has its own actor; ckpt_actor_call_process() comes before there are others.
// Blocks: get reads a small file of /proc. Errors: none; a user or a name that is not known is said to be so.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CKPT_UID_UNKNOWN UINT32_MAX
#define CKPT_COMM_BYTES 15 // as of the kernel

struct ckpt_actor {
	uint32_t uid;                   // CKPT_UID_UNKNOWN
	char comm[CKPT_COMM_BYTES + 1]; // printable UTF-8, zeros behind it; "": not known
};

// The client of a thread, if it has one. Only actor.c uses the fields.
struct ckpt_actor_scope {
	bool is_set;
	pid_t tid; // its comm is read when it is asked for; 0: it is known
	struct ckpt_actor actor;
};

struct ckpt_actor ckpt_actor_get(void);
// Both return what was so before. The client's thread tid waits for our answer, so that its number is its own; 0: not known.
struct ckpt_actor_scope ckpt_actor_set(const struct ckpt_actor *actor);
struct ckpt_actor_scope ckpt_actor_set_client(uint32_t uid, pid_t tid);
void ckpt_actor_restore(const struct ckpt_actor_scope *was);
// The name of this process, in place of that in /proc/self/comm.
void ckpt_actor_call_process(const char *comm);

// Whether the bytes are a comm as struct ckpt_actor has it, which holds no byte that a terminal would act on.
bool ckpt_comm_check(const char comm[CKPT_COMM_BYTES + 1]);
// Any text as a comm: a byte that may not be in it is '?', and more than 15 bytes are cut off.
void ckpt_comm_clean(const char *text, char ret_comm[CKPT_COMM_BYTES + 1]);
