#include "core/gc.h"

#include "core/errlog.h"
#include "core/store.h"
#include "core/sys.h"

#include <string.h>

static bool is_not_stopped(void *arg)
{
	const bool *stop = arg;

	return !__atomic_load_n(stop, __ATOMIC_RELAXED);
}

void ckpt_gc_behind_begin(struct ckpt_gc_behind *behind)
{
	*behind = (struct ckpt_gc_behind){.after_ns = ckpt_sys.mono_ns() + CKPT_GC_FIRST_NS};
}

static void tell(struct ckpt_store *s, struct ckpt_gc_behind *behind, int rc, const struct ckpt_gc_done *done)
{
	if (!rc)
		behind->damage_told = done->kept[CKPT_GC_DAMAGED].objects > 0;
	if (rc && strcmp(done->why, behind->told))
		ckpt_errlog_add(s->errlog, "gc", rc,
				rc == -EPERM ? "if that is right: `ckptfs gc --force`" : ckpt_gc_hint(rc),
				"garbage was not removed: %s", *done->why ? done->why : strerror(-rc));
	memcpy(behind->told, done->why, sizeof(behind->told));
}

int64_t ckpt_gc_behind(struct ckpt_store *s, struct ckpt_gc_behind *behind, const bool *stop)
{
	const struct ckpt_gc_how how = {
		.grace_ns = CKPT_GC_GRACE_NS,
		.at_once = !behind->was_busy,
		.wait_ns = CKPT_GC_WAIT_NS,
		.repack = {.bytes_max = CKPT_GC_REPACK_BYTES,
			   .gently = true,
			   .no_telling = behind->damage_told,
			   .stuck = &behind->stuck},
		.go_on = is_not_stopped,
		.arg = (void *)(uintptr_t)stop,
	};
	struct ckpt_gc_done done;
	bool soon;
	int rc;

	if (ckpt_sys.mono_ns() < behind->after_ns)
		return behind->after_ns;
	rc = ckpt_gc(s, &how, &done);
	behind->was_busy = rc == -EBUSY;
	soon = rc == -EBUSY || (!rc && done.repacked_objects && done.later_objects);
	// From its end on: others have their time between two rounds, however long one takes.
	behind->after_ns = ckpt_sys.mono_ns() + (soon ? CKPT_GC_FIRST_NS : CKPT_GC_EVERY_NS);
	if (rc != -EBUSY && rc != -EINTR)
		tell(s, behind, rc, &done);
	return behind->after_ns;
}
