// Small helpers that every module uses: scope-bound cleanup, overflow-checked sizes, bytes in little-endian order.
//
// Ownership: CLEANUP_* frees at the end of the scope; TAKE_PTR/TAKE_FD hand the value on and disarm the cleanup.
// Threads: nothing here has state. Nothing blocks. No errors but those documented.
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
// What is a call is made twice: no call that does something.
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

static inline void ckpt_free_cleanup(void *p)
{
	free(*(void **)p);
}

static inline void ckpt_fd_cleanup(const int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

#define CLEANUP(fn) __attribute__((cleanup(fn)))
#define CLEANUP_FREE CLEANUP(ckpt_free_cleanup)
#define CLEANUP_FD CLEANUP(ckpt_fd_cleanup)

#define TAKE_PTR(p)                                                                                                    \
	({                                                                                                             \
		__typeof__(p) take_ptr_ = (p);                                                                         \
		(p) = NULL;                                                                                            \
		take_ptr_;                                                                                             \
	})

static inline int ckpt_take_fd(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}
#define TAKE_FD(fd) ckpt_take_fd(&(fd))

// Allocates count zeroed items; NULL on overflow too, so that one check covers both.
static inline void *ckpt_calloc(size_t count, size_t item_bytes)
{
	return calloc(count, item_bytes);
}

// Grows a malloc'ed array of *cap items to hold at least need; the capacity doubles. 0, -ENOMEM.
static inline int ckpt_grow(void **items, size_t *cap, size_t need, size_t item_bytes)
{
	size_t want = *cap ? *cap : 16, bytes;
	void *grown;

	if (need <= *cap)
		return 0;
	while (want < need)
		if (__builtin_mul_overflow(want, (size_t)2, &want))
			return -ENOMEM;
	if (__builtin_mul_overflow(want, item_bytes, &bytes))
		return -ENOMEM;
	grown = realloc(*items, bytes);
	if (!grown)
		return -ENOMEM;
	*items = grown;
	*cap = want;
	return 0;
}

static inline bool ckpt_is_full(int rc) // of the disk, or of what a user may have of it
{
	return rc == -ENOSPC || rc == -EDQUOT;
}

static inline void ckpt_put16(uint8_t *p, uint16_t v)
{
	memcpy(p, &v, sizeof(v));
}

static inline void ckpt_put32(uint8_t *p, uint32_t v)
{
	memcpy(p, &v, sizeof(v));
}

static inline void ckpt_put64(uint8_t *p, uint64_t v)
{
	memcpy(p, &v, sizeof(v));
}

static inline uint16_t ckpt_get16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline uint32_t ckpt_get32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline uint64_t ckpt_get64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "formats are little-endian and copied as they are");
