// Locks with a rank, which says what may be taken while they are held. Builds with CKPT_LOCK_ORDER (all presets but release)
// watch that; in others a lock is a mutex and nothing else is done.
//
// The rules:
//   1. A thread takes locks in the order of the ranks below, from outer to inner.
//   2. It never holds two of one rank, but for those that ckpt_lock_take_both() takes.
//   3. Who waits for a condition holds its lock and, besides, at most those of whole acts.
// Who breaks one says which two locks these are and where each was taken: the first time that it could have become a deadlock,
// not the first time that it does, and once for each place. With CKPT_LOCK_ORDER=abort in the environment, as tests have it, it
// aborts then; a mount that people work with goes on.
//
// Calling sequence: ckpt_lock_init() or CKPT_LOCK_INIT; LOCK_SCOPE, or take and drop; ckpt_lock_done().
// Ownership: the caller's. Threads: any; who takes a lock drops it. Blocks: until the lock is free. No errors.
#pragma once

#include "core/base/sys.h"
#include "core/base/util.h"

#include <pthread.h>
#include <stdint.h>
#include <time.h>

#ifndef CKPT_LOCK_ORDER
#define CKPT_LOCK_ORDER 0
#endif

// The order, from outer to inner.
enum ckpt_lock_rank {
	// Of whole acts: held over I/O, and while waiting for others to get on.
	CKPT_LOCK_END,        // fs/end.c: the store is not closed meanwhile; the report of the end is one
	CKPT_LOCK_VIEW,       // core/view: over the reading of an array's elements
	CKPT_LOCK_PUBLISHING, // amend_file: over the publication of one file, which may be what turns its folder into a step
	CKPT_LOCK_PLAIN,      // fs/call.c: over each change of the plain tree; what else is here is part of one
	CKPT_LOCK_COPY_UP, // fs/copy_up.c: one copy at a time, which is put under a name and so takes NAMES
	CKPT_LOCK_REFRESH, // ckpt_store: over a look at the log, which the table of steps follows
	CKPT_LOCK_COOL,    // ckpt_store: over the cooling of a step
	CKPT_LOCK_LOOK,    // ckpt_store: over a look at the packs, which the index follows
	CKPT_LOCK_ACTS,    // ckpt_store: over an act on committed steps; the mount is told of it, and takes NAMES
	CKPT_LOCK_KEYS,    // backends/credentials.c: over a request for the keys of a store, which is called in acts
	CKPT_LOCK_ACT_LAST = CKPT_LOCK_KEYS,

	// Of what the mount knows.
	CKPT_LOCK_UNWRITTEN, // fs/unwritten.c: the lists of those that have a file open, whose use changes
	CKPT_LOCK_USE,       // node_use: an open file of a node; where its file is, is asked under it
	CKPT_LOCK_NAMES,     // node_table: over a path's making and use, for which steps and drafts are looked at
	CKPT_LOCK_DRAFTS,    // drafts: the table, whose drafts hold references of nodes
	CKPT_LOCK_NODES,     // node_table: references

	// Of the store's tables: no I/O under them.
	CKPT_LOCK_STORE, // ckpt_store: names of steps; what goes with a name is changed with the step's lock held, too
	CKPT_LOCK_STEP,  // ckpt_step

	CKPT_LOCK_GATE, // ckpt_index_db: over a transaction of the index
	CKPT_LOCK_LEAF, // nothing but the next is taken under these
	CKPT_LOCK_JOBS, // ckpt_jobs: a job is woken under any other
};

struct ckpt_lock {
	pthread_mutex_t mutex;
	enum ckpt_lock_rank rank;
};

struct ckpt_rwlock {
	pthread_rwlock_t rwlock;
	enum ckpt_lock_rank rank;
};

#define CKPT_LOCK_INIT(of_rank)                                                                                        \
	{                                                                                                              \
		.mutex = PTHREAD_MUTEX_INITIALIZER, .rank = (of_rank)                                                  \
	}
#define CKPT_RWLOCK_INIT(of_rank)                                                                                      \
	{                                                                                                              \
		.rwlock = PTHREAD_RWLOCK_INITIALIZER, .rank = (of_rank)                                                \
	}

// To whom it is said: stderr, unless it is set before threads start. Called with locks held.
extern void (*ckpt_lock_order_tell)(const char *text);

// What a build with CKPT_LOCK_ORDER calls before it takes, drops or waits; where is the place in the source.
void ckpt_lock_order_take(const void *lock, enum ckpt_lock_rank rank, const char *where);
void ckpt_lock_order_take_second(const void *lock, enum ckpt_lock_rank rank, const char *where);
void ckpt_lock_order_drop(const void *lock, const char *where);
void ckpt_lock_order_wait(const void *lock, const char *where);

static inline void ckpt_lock_init(struct ckpt_lock *l, enum ckpt_lock_rank rank)
{
	pthread_mutex_init(&l->mutex, NULL);
	l->rank = rank;
}

static inline void ckpt_lock_done(struct ckpt_lock *l)
{
	pthread_mutex_destroy(&l->mutex);
}

static inline void ckpt_lock_take_at(struct ckpt_lock *l, const char *where)
{
	if (CKPT_LOCK_ORDER)
		ckpt_lock_order_take(l, l->rank, where);
	pthread_mutex_lock(&l->mutex);
}

#ifdef __SANITIZE_THREAD__ // which does not know the other
#define CKPT_LOCK_CLOCK CLOCK_REALTIME
#define ckpt_lock_clocklock(mutex, until) pthread_mutex_timedlock(mutex, until)
#else
#define CKPT_LOCK_CLOCK CLOCK_MONOTONIC
#define ckpt_lock_clocklock(mutex, until) pthread_mutex_clocklock(mutex, CKPT_LOCK_CLOCK, until)
#endif

// False: another thread has it, still after so long.
static inline bool ckpt_lock_try_ns_at(struct ckpt_lock *l, int64_t ns, const char *where)
{
	struct timespec until;

	clock_gettime(CKPT_LOCK_CLOCK, &until);
	ns += until.tv_nsec;
	until.tv_sec += ns / 1000000000;
	until.tv_nsec = ns % 1000000000;
	if (ckpt_lock_clocklock(&l->mutex, &until))
		return false;
	if (CKPT_LOCK_ORDER)
		ckpt_lock_order_take(l, l->rank, where);
	return true;
}

// Two of one rank, in the order of their addresses.
static inline void ckpt_lock_take_both_at(struct ckpt_lock *a, struct ckpt_lock *b, const char *where)
{
	struct ckpt_lock *first = a < b ? a : b, *second = a < b ? b : a;

	ckpt_lock_take_at(first, where);
	if (CKPT_LOCK_ORDER)
		ckpt_lock_order_take_second(second, second->rank, where);
	pthread_mutex_lock(&second->mutex);
}

static inline void ckpt_lock_drop_at(struct ckpt_lock *l, const char *where)
{
	if (CKPT_LOCK_ORDER)
		ckpt_lock_order_drop(l, where);
	pthread_mutex_unlock(&l->mutex);
}

static inline int ckpt_lock_wait_at(pthread_cond_t *changed, struct ckpt_lock *l, const char *where)
{
	if (CKPT_LOCK_ORDER)
		ckpt_lock_order_wait(l, where);
	return ckpt_sys.wait(changed, &l->mutex);
}

// At most so long, whatever happens to the time of day: ETIMEDOUT.
static inline int ckpt_lock_wait_ns_at(pthread_cond_t *changed, struct ckpt_lock *l, int64_t ns, const char *where)
{
	if (CKPT_LOCK_ORDER)
		ckpt_lock_order_wait(l, where);
	return ckpt_sys.wait_ns(changed, &l->mutex, ns);
}

// Kind is one of pthread_rwlockattr_setkind_np(3).
static inline void ckpt_rwlock_init(struct ckpt_rwlock *l, enum ckpt_lock_rank rank, int kind)
{
	pthread_rwlockattr_t attr;

	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, kind);
	pthread_rwlock_init(&l->rwlock, &attr);
	pthread_rwlockattr_destroy(&attr);
	l->rank = rank;
}

static inline void ckpt_rwlock_done(struct ckpt_rwlock *l)
{
	pthread_rwlock_destroy(&l->rwlock);
}

static inline void ckpt_rwlock_read_at(struct ckpt_rwlock *l, const char *where)
{
	if (CKPT_LOCK_ORDER)
		ckpt_lock_order_take(l, l->rank, where);
	pthread_rwlock_rdlock(&l->rwlock);
}

static inline void ckpt_rwlock_write_at(struct ckpt_rwlock *l, const char *where)
{
	if (CKPT_LOCK_ORDER)
		ckpt_lock_order_take(l, l->rank, where);
	pthread_rwlock_wrlock(&l->rwlock);
}

static inline void ckpt_rwlock_drop_at(struct ckpt_rwlock *l, const char *where)
{
	if (CKPT_LOCK_ORDER)
		ckpt_lock_order_drop(l, where);
	pthread_rwlock_unlock(&l->rwlock);
}

static inline struct ckpt_lock *ckpt_lock_enter(struct ckpt_lock *l, const char *where)
{
	ckpt_lock_take_at(l, where);
	return l;
}

static inline void ckpt_lock_leave(struct ckpt_lock **l)
{
	ckpt_lock_drop_at(*l, "the end of a scope");
}

#define CKPT_LOCK_TEXT(x) CKPT_LOCK_TEXT_OF(x)
#define CKPT_LOCK_TEXT_OF(x) #x
#define CKPT_LOCK_WHERE(l) #l " at " __FILE__ ":" CKPT_LOCK_TEXT(__LINE__)

#define ckpt_lock_take(l) ckpt_lock_take_at(l, CKPT_LOCK_WHERE(l))
#define ckpt_lock_try_ns(l, ns) ckpt_lock_try_ns_at(l, ns, CKPT_LOCK_WHERE(l))
#define ckpt_lock_take_both(a, b) ckpt_lock_take_both_at(a, b, CKPT_LOCK_WHERE(a))
#define ckpt_lock_drop(l) ckpt_lock_drop_at(l, CKPT_LOCK_WHERE(l))
#define ckpt_lock_wait(changed, l) ckpt_lock_wait_at(changed, l, CKPT_LOCK_WHERE(l))
#define ckpt_lock_wait_ns(changed, l, ns) ckpt_lock_wait_ns_at(changed, l, ns, CKPT_LOCK_WHERE(l))
#define ckpt_rwlock_read(l) ckpt_rwlock_read_at(l, CKPT_LOCK_WHERE(l))
#define ckpt_rwlock_write(l) ckpt_rwlock_write_at(l, CKPT_LOCK_WHERE(l))
#define ckpt_rwlock_drop(l) ckpt_rwlock_drop_at(l, CKPT_LOCK_WHERE(l))

// Holds the lock to the end of the enclosing scope.
#define LOCK_SCOPE(l) LOCK_SCOPE_AT(l, __LINE__)
#define LOCK_SCOPE_AT(l, line) LOCK_SCOPE_NAMED(l, line)
#define LOCK_SCOPE_NAMED(l, line)                                                                                      \
	CLEANUP(ckpt_lock_leave)                                                                                       \
	struct ckpt_lock *lock_scope_##line __attribute__((unused)) = ckpt_lock_enter(l, CKPT_LOCK_WHERE(l))
