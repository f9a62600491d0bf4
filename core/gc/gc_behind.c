#include "core/gc/gc.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/garbage.h"
#include "core/step/errlog.h"
#include "core/step/store.h"

#include <stdio.h>
#include <string.h>

#define SHORT_PART 8 // of the disk: with less free it is nearly full, and so much garbage is too much
#define SHORT_REST 4 // times as long as it took

static bool is_not_stopped(void *arg)
{
	const bool *stop = arg;

	return !__atomic_load_n(stop, __ATOMIC_RELAXED);
}

void ckpt_gc_behind_begin(struct ckpt_gc_behind *behind)
{
	int64_t first_ns = ckpt_sys.mono_ns() + CKPT_GC_FIRST_NS;

	*behind = (struct ckpt_gc_behind){.after_ns = first_ns, .short_after_ns = first_ns};
}

// The numbers of what is asked about change with each round: the question is one.
static const char *what_is_told(int rc, const struct ckpt_gc_done *done)
{
	return rc == -EPERM ? "more than half" : done->why;
}

static void tell(struct ckpt_store *s, struct ckpt_gc_behind *behind, int rc, const struct ckpt_gc_done *done)
{
	if (!rc)
		behind->damage_told = done->kept[CKPT_GC_DAMAGED].objects > 0;
	if (rc && strcmp(what_is_told(rc, done), behind->told))
		ckpt_errlog_add(s->errlog, "gc", rc,
				rc == -EPERM ? "if this is right, run `ckptfs gc --force`" : ckpt_gc_hint(rc),
				"garbage was not removed: %s", *done->why ? done->why : strerror(-rc));
	snprintf(behind->told, sizeof(behind->told), "%s", what_is_told(rc, done));
}

bool ckpt_gc_is_stuck(const struct ckpt_gc_stuck *stuck, const uint8_t id[32])
{
	size_t i = 0;

	while (i < stuck->count && memcmp(stuck->ids[i], id, sizeof(*stuck->ids)))
		i++;
	return i < stuck->count;
}

static bool may_get_room(struct ckpt_store *s, const struct ckpt_gc_behind *behind)
{
	return behind->young_bytes || ckpt_garbage_packs(s);
}

// Where steps come and go fast, the last eighth of a disk is full before anything is removed of it.
static bool is_short_of_room(struct ckpt_store *s, const struct ckpt_gc_behind *behind)
{
	uint64_t room, all, garbage = MAX(behind->young_bytes, ckpt_garbage_bytes(s));

	return !ckpt_sys.room(s->dirfd, &room, &all) && (room < all / SHORT_PART || garbage >= all / SHORT_PART);
}

// From its end on: others have their time between two rounds, however long one takes.
static void settle(struct ckpt_store *s, struct ckpt_gc_behind *behind, int64_t began_ns, int rc,
		   const struct ckpt_gc_done *done)
{
	int64_t now_ns = ckpt_sys.mono_ns(), pause_ns = SHORT_REST * (now_ns - began_ns);
	bool failed = rc && rc != -EPERM; // who is asked about some may have removed the rest, and can again
	bool soon = !rc && done->repacked_objects && done->later_objects;

	behind->after_ns = now_ns + (soon ? CKPT_GC_FIRST_NS : CKPT_GC_EVERY_NS);
	// What was in vain once is likely to be so again: somebody has it open. What is only young is not in vain.
	if (done->deleted_bytes)
		behind->in_vain_ns = 0;
	else if (!done->kept[CKPT_GC_YOUNG].objects)
		behind->in_vain_ns = MIN(behind->in_vain_ns * 2 + CKPT_GC_FIRST_NS, CKPT_GC_EVERY_NS);
	behind->short_after_ns =
		failed ? behind->after_ns : now_ns + MAX(MAX(pause_ns, behind->in_vain_ns), CKPT_GC_SHORTAGE_NS);
	__atomic_store_n(&ckpt_garbage_of(s)->gc_in_vain, behind->in_vain_ns > 0, __ATOMIC_RELAXED);
}

static int64_t due_ns(struct ckpt_store *s, const struct ckpt_gc_behind *behind)
{
	if (!may_get_room(s, behind))
		return behind->after_ns;
	return MIN(behind->after_ns,
		   is_short_of_room(s, behind) ? behind->short_after_ns : ckpt_sys.mono_ns() + CKPT_GC_LOOK_NS);
}

int64_t ckpt_gc_behind(struct ckpt_store *s, struct ckpt_gc_behind *behind, const bool *stop)
{
	int64_t now_ns = ckpt_sys.mono_ns();
	bool is_short = may_get_room(s, behind) && is_short_of_room(s, behind);
	const struct ckpt_gc_how how = {
		.grace_ns = is_short ? 0 : CKPT_GC_SHORT_GRACE_NS,
		.repack = {.bytes_max = CKPT_GC_REPACK_BYTES,
			   .gently = true,
			   .no_telling = behind->damage_told,
			   .stuck = &behind->stuck},
		.go_on = is_not_stopped,
		.arg = (void *)(uintptr_t)stop,
	};
	struct ckpt_gc_done done;
	int rc;

	if (now_ns < (is_short ? MIN(behind->short_after_ns, behind->after_ns) : behind->after_ns))
		return due_ns(s, behind);
	rc = ckpt_gc(s, &how, &done);
	if (rc != -EINTR)
		behind->young_bytes = done.kept[CKPT_GC_YOUNG].bytes;
	settle(s, behind, now_ns, rc, &done);
	if (rc != -EINTR)
		tell(s, behind, rc, &done);
	return due_ns(s, behind);
}
