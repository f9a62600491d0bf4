#include "tests/support/fixture_gc.h"

#include "core/cold/garbage.h"
#include "tests/support/fixture_sharing.h"

#include "core/base/hash.h"
#include "core/base/util.h"
#include "core/cold/pack_use.h"
#include "core/record/container.h"
#include "core/save/delete.h"

#include <fcntl.h>
#include <stdio.h>

struct ckpt_step *other;
struct ckpt_step *a, *b, *c;
const struct ckpt_gc_how all = {.force = true};
struct ckpt_gc_done done;

void ckpt_fixture_gc_open(void)
{
	ckpt_fixture_open();
	other = ckpt_staged_one(s, "other", "file", "other");
}

void ckpt_fixture_gc_reopen(void)
{
	ckpt_step_unref(TAKE_PTR(other));
	ckpt_fixture_reopen();
}

void ckpt_fixture_gc_close(void)
{
	ckpt_step_unref(other);
	ckpt_fixture_close();
}

// Where nothing stays in the trash, the thread of the trash may be first.
void expire(struct ckpt_step *step)
{
	int rc;

	ck_ok(ckpt_delete(step));
	rc = ckpt_expire(step);
	ck_assert(!rc || (rc == -ESTALE && !step->store->settings.trash_ns));
}

void expire_earlier(struct ckpt_step *step)
{
	expire(step);
	ckpt_garbage_expect_no_more(s, ckpt_garbage_packs(s));
}

void gc_all(void)
{
	ck_ok(ckpt_gc(s, &all, &done));
}

uint64_t garbage(void)
{
	uint64_t bytes;

	ck_ok(ckpt_pack_use_garbage(s, &bytes));
	return bytes;
}

bool no_more(void *left)
{
	int *times = left;

	return --*times >= 0;
}

// --- Three steps that share a text --------------------------------------------------------------------------------------

void ckpt_fixture_sharing_open(void)
{
	ckpt_fixture_gc_open();
	a = ckpt_packed_together(s, "a", LONG_1, SHARED, LONG_2);
	b = ckpt_packed_together(s, "b", SHARED, "one of b");
	c = ckpt_packed_together(s, "c", "one of c", SHARED);
}

static void forget_steps(void)
{
	ckpt_step_unref(TAKE_PTR(a));
	ckpt_step_unref(TAKE_PTR(b));
	ckpt_step_unref(TAKE_PTR(c));
}

void ckpt_fixture_sharing_reopen(void)
{
	forget_steps();
	ckpt_fixture_gc_reopen();
	b = ckpt_step_find(s, "", "b");
	c = ckpt_step_find(s, "", "c");
}

void ckpt_fixture_sharing_close(void)
{
	forget_steps();
	ckpt_fixture_gc_close();
}
