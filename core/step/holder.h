// The lock of a store, and who has it. One process at a time has a store for writing: a mount, which says so in "holder.json", or a
// verb, which does not.
//
// A process that was killed keeps the lock until the last of its threads is gone, and one that waits for the disk goes when the
// disk has answered. So a number alone says nothing of a process: what counts is whether its descriptor (pidfd) is ready,
// which it is when all threads are gone, and whether it is on its way out.
//
// Threads: any. Blocks: _take, where said; the others read a few small files.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct ckpt_store;

enum ckpt_holder_state {
	CKPT_HOLDER_UNKNOWN, // it is of another machine, boot or container, or has not said who it is
	CKPT_HOLDER_LIVES,
	CKPT_HOLDER_ENDS, // it was killed, or has ended, but for threads that wait for the disk
	CKPT_HOLDER_GONE, // all of it; a child may still have the lock
};

// As the holder wrote it to "holder.json".
struct ckpt_holder {
	int pid;
	char host[65];
	char boot_id[37];
	char *mountpoint; // NULL: a verb; as ckpt_name_clean() writes it
	int64_t since_ns;
	enum ckpt_holder_state state;
};

// Who has it: -ENOENT when nobody does (the file of a dead holder does not count). ret_holder may be NULL.
int ckpt_store_holder(const char *path, struct ckpt_holder *ret_holder);
void ckpt_holder_done(struct ckpt_holder *h);
bool ckpt_holder_is_at(const struct ckpt_holder *h, const char *mountpoint);
// Its process is on its way out and answers nobody any more. dirfd is the store's directory, open in any way.
bool ckpt_holder_is_ending(int dirfd);
// The lock's holder writes where it is mounted, for others to read.
int ckpt_store_announce(struct ckpt_store *s, const char *mountpoint);

// For store.c. Takes the lock: 0; -EBUSY another process has it, and lives, or 2 s are over. A process that ends is waited for as
// long as it takes: until then -EINTR, when a signal that would end this process is pending.
int ckpt_holder_take(struct ckpt_store *s);
void ckpt_holder_drop(struct ckpt_store *s);
// To whom it is said, once, that it waits for this process; NULL: to nobody. Set before threads start.
extern void (*ckpt_holder_tell)(pid_t pid);

// The id of this boot of the machine; "" where it is not to be had.
void ckpt_boot_id(char ret_id[37]);
