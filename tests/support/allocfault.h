// Faults in allocations, by number: the n-th of this process fails, n = 1, 2, 3 ... until none fires, whoever makes it: core,
// libc for it (strdup, opendir, pthread_create), or a library (jansson, LMDB).
//
//	ckpt_allocfault_begin(n, false);
//	... the body, which must not assert: Check allocates ...
//	count = ckpt_allocfault_end();
//	if (count < n) done;
//
// A store has threads of its own, which allocate when they like: ckpt_allocfault_begin_mine() is for a body that must meet the
// n-th of the calling thread.
//
// This header defines malloc and its kin for the whole program, under the sanitizers too: it is for the one file that is a
// test program. A child of the body goes on with the count.
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ALLOC_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ALLOC_SANITIZED
#endif
#endif
// The loader allocates before a sanitizer is ready for a call of code that it watches.
#ifdef __SANITIZE_THREAD__
#define ALLOC_UNWATCHED __attribute__((no_sanitize_thread))
#else
#define ALLOC_UNWATCHED
#endif
#ifdef ALLOC_SANITIZED
#define ALLOC_BELOW(name) __interceptor_##name
#else
#define ALLOC_BELOW(name) __libc_##name
#endif

void *ALLOC_BELOW(malloc)(size_t bytes);
void *ALLOC_BELOW(calloc)(size_t count, size_t bytes);
void *ALLOC_BELOW(realloc)(void *old, size_t bytes);

static struct ckpt_allocfault {
	uint64_t at, count;
	bool sticky, mine;
} * allocfault, *allocfault_memory; // shared with children; NULL: none is on

static __thread bool alloc_spared; // it does not fail for this thread
static __thread bool alloc_mine;   // it began what fails

static inline ALLOC_UNWATCHED bool alloc_fails(void)
{
	struct ckpt_allocfault *f = __atomic_load_n(&allocfault, __ATOMIC_ACQUIRE);
	uint64_t n;

	if (!f || alloc_spared || (f->mine && !alloc_mine))
		return false;
	n = __atomic_add_fetch(&f->count, 1, __ATOMIC_RELAXED);
	if (n < f->at || (n > f->at && !f->sticky))
		return false;
	errno = ENOMEM;
	return true;
}

ALLOC_UNWATCHED void *malloc(size_t bytes)
{
	return alloc_fails() ? NULL : ALLOC_BELOW(malloc)(bytes);
}

ALLOC_UNWATCHED void *calloc(size_t count, size_t bytes)
{
	return alloc_fails() ? NULL : ALLOC_BELOW(calloc)(count, bytes);
}

ALLOC_UNWATCHED void *realloc(void *old, size_t bytes)
{
	return alloc_fails() ? NULL : ALLOC_BELOW(realloc)(old, bytes);
}

#ifdef ALLOC_SANITIZED
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

// Those of a sanitizer allocate past malloc.
ALLOC_UNWATCHED char *strdup(const char *text)
{
	size_t bytes = strlen(text) + 1;
	char *copy = malloc(bytes);

	return copy ? memcpy(copy, text, bytes) : NULL;
}

ALLOC_UNWATCHED char *strndup(const char *text, size_t max)
{
	size_t len = strnlen(text, max);
	char *copy = malloc(len + 1);

	if (!copy)
		return NULL;
	copy[len] = '\0';
	return memcpy(copy, text, len);
}

// A sanitizer asks so where the stack of a new thread is, and cannot do without the answer.
int pthread_getattr_np(pthread_t thread, pthread_attr_t *ret_attr)
{
	int (*below)(pthread_t, pthread_attr_t *), rc;

	alloc_spared = true;
	below = (int (*)(pthread_t, pthread_attr_t *))dlsym(RTLD_NEXT, "pthread_getattr_np");
	rc = below(thread, ret_attr);
	alloc_spared = false;
	return rc;
}
#endif

static inline void allocfault_begin(uint64_t at, bool sticky, bool mine)
{
	if (!allocfault_memory)
		allocfault_memory = mmap(NULL, sizeof(*allocfault_memory), PROT_READ | PROT_WRITE,
					 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	*allocfault_memory = (struct ckpt_allocfault){.at = at ? at : UINT64_MAX, .sticky = sticky, .mine = mine};
	__atomic_store_n(&allocfault, allocfault_memory, __ATOMIC_RELEASE);
}

// at 0: none fails, they are counted.
static inline void ckpt_allocfault_begin(uint64_t at, bool sticky)
{
	allocfault_begin(at, sticky, false);
}

static inline void ckpt_allocfault_begin_mine(uint64_t at)
{
	alloc_mine = true;
	allocfault_begin(at, false, true);
}

static inline uint64_t ckpt_allocfault_end(void)
{
	alloc_mine = false;
	__atomic_store_n(&allocfault, NULL, __ATOMIC_RELEASE);
	return __atomic_load_n(&allocfault_memory->count, __ATOMIC_RELAXED);
}
