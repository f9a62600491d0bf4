#include "core/store/expiry.h"

#include "core/base/clock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/gc/gc.h"
#include "core/policy/retain.h"
#include "core/policy/temporary.h"
#include "core/save/delete.h"
#include "core/save/outdated.h"
#include "core/save/stage.h"
#include "core/step/store.h"
#include "core/store/room.h"

#define OLDER_NS (INT64_C(3600) * 1000000000) // until versions that are made later can have expired, at the most
#define RETRY_NS (INT64_C(60) * 1000000000)

struct ckpt_expiry {
	struct ckpt_gc_behind gc;
	bool policy_told; // that it cannot be read
};

static int64_t expire_deleted(void *arg, struct ckpt_store *s, const bool *stop)
{
	struct ckpt_expiry *e = arg;
	int64_t trash_ns = s->settings.trash_ns, ttl_ns = s->settings.staging_ttl_ns, now_ns = ckpt_sys.now_ns();
	int64_t next = ckpt_expire_before(s, now_ns - trash_ns, stop);
	int64_t next_staged = ckpt_stage_expire_before(s, ckpt_sys.now_ns() - ttl_ns, stop);
	int64_t next_older = ckpt_outdated_remove(s, stop);
	int64_t gc_ns = ckpt_gc_behind(s, &e->gc, stop) - ckpt_sys.mono_ns(); // what needed packs may have expired
	int64_t due_ns;

	now_ns = ckpt_sys.now_ns();
	// A step that is begun later cannot be due before this.
	due_ns = MAX(MIN(next_staged, now_ns) + ttl_ns, now_ns + RETRY_NS);
	if (next != INT64_MAX) // out of a record: any time
		due_ns = MIN(due_ns, ckpt_time_between(-trash_ns, next));
	due_ns = MIN(due_ns, MIN(next_older, now_ns + MAX(MIN(trash_ns, OLDER_NS), RETRY_NS)));
	return MIN(due_ns, now_ns + gc_ns);
}

static int64_t expire_over(void *arg, struct ckpt_store *s, int64_t after_ns, const bool *stop)
{
	struct ckpt_expiry *e = arg;
	int64_t temporary_ns, again_ns;

	(void)ckpt_journal_snapshot(s->journal, false); // what fails is due again
	temporary_ns = ckpt_temporary_expire(s, after_ns, stop);
	again_ns = ckpt_retain_behind(s, after_ns, stop, &e->policy_told);
	again_ns = MIN(again_ns, temporary_ns);
	return again_ns == INT64_MAX ? INT64_MAX : ckpt_sys.now_ns() + again_ns;
}

static void make_room(struct ckpt_store *s)
{
	ckpt_room_expect(__atomic_load_n(ckpt_room_of(s), __ATOMIC_ACQUIRE), 0);
}

int ckpt_expiry_new(struct ckpt_expiry **ret_expiry)
{
	struct ckpt_expiry *e = calloc(1, sizeof(*e));

	if (!e)
		return -ENOMEM;
	ckpt_gc_behind_begin(&e->gc);
	*ret_expiry = e;
	return 0;
}

void ckpt_expiry_free(struct ckpt_expiry *expiry)
{
	free(expiry);
}

struct ckpt_trash_looks ckpt_expiry_looks(struct ckpt_expiry *expiry)
{
	return (struct ckpt_trash_looks){expire_deleted, expire_over, expiry, make_room};
}

struct ckpt_part ckpt_expiry_part = {.bytes = sizeof(struct ckpt_expiry *)};
