// A committed step that is reopened. For suites of core/save/reopen.h.
#pragma once

#include "core/save/stage.h"
#include "core/save/version.h"
#include "core/step/follow.h"
#include "core/store/open.h"
#include "tests/support/fixture.h"
#include "tests/support/hooks.h"
#include "tests/support/sysfault.h"

#include "core/base/lock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/policy/temporary.h"
#include "core/save/delete.h"
#include "core/save/remove.h"
#include "core/save/reopen.h"
#include "core/save/share.h"
#include "core/store/load.h"

#include <fcntl.h>
#include <stdio.h>

#define CALLS_MAX 500
#define WAIT_MS 5000

static struct ckpt_step *base;

static inline void setup(void)
{
	struct ckpt_step *step;

	ckpt_fixture_open();
	step = ckpt_staged_begin(s, "1000");
	close(ckpt_staged_put(step, "model.bin", "committed"));
	close(ckpt_staged_put(step, "config.json", "{}"));
	ck_ok(ckpt_sys.mkdir(step->dirfd, "params", 0755));
	close(ckpt_staged_put(step, "params/w", "w"));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	base = step;
}

static inline void teardown(void)
{
	ckpt_step_unref(base);
	ckpt_fixture_close();
}

static inline void start_anew(void)
{
	ckpt_step_unref(TAKE_PTR(base));
	ckpt_fixture_reopen();
	base = ckpt_step_find(s, "", "1000");
}

static inline struct ckpt_step *reopen(void)
{
	struct ckpt_step *step;

	ck_ok(ckpt_reopen(base, &step));
	return step;
}

// The same as a client's open with O_TRUNC.
static inline void write_anew(struct ckpt_step *step, const char *path, const char *text)
{
	ck_ok(ckpt_stage_enter(step, true));
	ck_ok(ckpt_sys.unlink(step->dirfd, path, 0));
	close(ckpt_staged_put(step, path, text));
	ckpt_stage_leave(step);
}

static inline bool wait_for(struct ckpt_step *step, enum ckpt_step_state state)
{
	for (int i = 0; i < WAIT_MS && ckpt_step_state(step) != state; i++)
		usleep(1000);
	return ckpt_step_state(step) == state;
}

static inline void is_as_before(void)
{
	struct ckpt_step *found = ckpt_step_find(s, "", "1000");

	ck_assert_ptr_nonnull(found);
	ck_assert(!ckpt_step_is_reopened(found));
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_COMMITTED), 1);
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_DELETED), 0);
	ckpt_staged_check(found, "model.bin", "committed");
	ckpt_staged_check(found, "config.json", "{}");
	ckpt_staged_check(found, "params/w", "w");
	ckpt_step_unref(found);
}
