#include "core/base/lock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HELD_MAX 16
#define PLACES_MAX 64

struct held {
	const void *lock;
	enum ckpt_lock_rank rank;
	const char *where;
};

// From outer to inner.
static __thread struct held held[HELD_MAX];
static __thread size_t held_count;

static void tell_stderr(const char *text)
{
	fprintf(stderr, "%s\n", text);
}

void (*ckpt_lock_order_tell)(const char *text) = tell_stderr;

// A place that is passed all day would fill a disk.
static bool was_told(const char *where)
{
	static const char *told[PLACES_MAX]; // atomic

	for (size_t i = 0; i < PLACES_MAX; i++) {
		const char *none = NULL;

		if (__atomic_compare_exchange_n(&told[i], &none, where, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return false;
		if (none == where)
			return true;
	}
	return true;
}

static void complain(const char *what, const char *where, const struct held *h)
{
	const char *then = getenv("CKPT_LOCK_ORDER");
	char text[1024];

	if (!was_told(where)) {
		snprintf(text, sizeof(text), "lock order: %s %s%s%s", where, what, h ? " " : "", h ? h->where : "");
		ckpt_lock_order_tell(text);
	}
	if (then && !strcmp(then, "abort"))
		abort();
}

static void push(const void *lock, enum ckpt_lock_rank rank, const char *where)
{
	if (held_count < HELD_MAX)
		held[held_count++] = (struct held){.lock = lock, .rank = rank, .where = where};
	else
		complain("is one too many under", where, &held[0]);
}

void ckpt_lock_order_take(const void *lock, enum ckpt_lock_rank rank, const char *where)
{
	if (held_count && held[held_count - 1].rank >= rank)
		complain("is taken under", where, &held[held_count - 1]);
	push(lock, rank, where);
}

void ckpt_lock_order_take_second(const void *lock, enum ckpt_lock_rank rank, const char *where)
{
	const struct held *first = &held[held_count - 1];

	if (!held_count || first->rank != rank || first->lock >= lock)
		complain("is no second one under", where, held_count ? first : NULL);
	push(lock, rank, where);
}

void ckpt_lock_order_drop(const void *lock, const char *where)
{
	size_t i = held_count;

	while (i && held[i - 1].lock != lock)
		i--;
	if (!i) {
		complain("is dropped by a thread that does not hold it", where, NULL);
		return;
	}
	memmove(&held[i - 1], &held[i], (held_count - i) * sizeof(*held));
	held_count--;
}

void ckpt_lock_order_wait(const void *lock, const char *where)
{
	if (!held_count || held[held_count - 1].lock != lock)
		complain("is waited with by a thread that holds another", where,
			 held_count ? &held[held_count - 1] : NULL);
	if (held_count > 1 && held[held_count - 2].rank > CKPT_LOCK_ACT_LAST)
		complain("is waited with under", where, &held[held_count - 2]);
}
