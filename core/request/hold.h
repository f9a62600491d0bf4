// A store that is not mounted, open for writing: once for all that the threads of this process do in it at a time, as nobody can open
// it a second time. For a library, in a program of which nothing is known.
//
// Ownership: each ckpt_hold() has its ckpt_let_go(). Threads: any. Blocks on the disk, and for another thread that opens or closes one.
// After fork() what the parent holds is the parent's.
#pragma once

#include <signal.h>

struct ckpt_store;

int ckpt_hold(const char *directory, struct ckpt_store **ret_store); // 0; errors of ckpt_store_open()
void ckpt_let_go(struct ckpt_store *s);                              // NULL is fine

// The calling thread takes no signals: threads of the store begin with the mask of who makes them, and a handler of the program is
// not to run on them.
void ckpt_hold_signals(sigset_t *ret_before);
void ckpt_let_signals_go(const sigset_t *before);
