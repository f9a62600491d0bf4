// A look at a staged step, beside others who commit or drop the step meanwhile.
#include "core/save/looker.h"
#include "tests/support/fixture.h"
#include "tests/support/hooks.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/stage.h"

#include <fcntl.h>

#define UNIT_NS INT64_C(20000000)

static struct ckpt_step *step;
static int (*real_open)(int dirfd, const char *path, int flags, mode_t mode);
static void (*meanwhile)(void); // once

static void setup(void)
{
	ckpt_fixture_open();
	s->settings.commit_quiet_ns = UNIT_NS;
	ckpt_jobs_by_hand(s->jobs);
	ck_ok(ckpt_looker_start(s));
	step = ckpt_staged_begin(s, "1000");
	ckpt_staging_of(step)->by_client = true;
	ckpt_staged_put_array(step, "a.npy", 'a', 8);
	real_open = ckpt_hooks.open;
}

static void teardown(void)
{
	ckpt_step_unref(step);
	ckpt_fixture_close();
}

static void look(void)
{
	const char *name;

	(void)ckpt_job_wake(ckpt_looker_of(s)->job);
	do {
		name = ckpt_jobs_run_next(s->jobs, NULL);
		ck_assert_ptr_nonnull(name);
	} while (strcmp(name, "look"));
}

static void commit(void)
{
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ckpt_save_settle(s);
}

static void drop(void)
{
	ck_ok(ckpt_stage_abort(step, false));
}

// The look opens the session for each look at its files.
static int open_meanwhile(int dirfd, const char *path, int flags, mode_t mode)
{
	int fd = real_open(dirfd, path, flags, mode);

	if (dirfd == s->sessions_fd && meanwhile) {
		void (*act)(void) = meanwhile;

		meanwhile = NULL;
		act();
	}
	return fd;
}

static void look_with(void (*act)(void))
{
	meanwhile = act;
	ckpt_hook_set(open, open_meanwhile);
	look();
	ckpt_hook_set(open, real_open);
	ck_assert_ptr_null(meanwhile);
}

static const struct {
	void (*act)(void);
	enum ckpt_step_state becomes;
} acts[] = {{commit, CKPT_STEP_COMMITTED}, {drop, CKPT_STEP_GONE}};

// The first look at its files, and that just before its commit.
START_TEST(a_step_that_is_committed_or_dropped_during_a_look)
{
	const int which = _i % (int)ARRAY_LEN(acts), looks = _i / (int)ARRAY_LEN(acts);

	look();
	ckpt_sys.sleep_ns(UNIT_NS);
	if (looks) {
		s->settings.commit_quiet_ns = INT64_C(3600000000000);
		look(); // it knows the files
		s->settings.commit_quiet_ns = 1;
	}
	look_with(acts[which].act);
	ck_assert_int_eq(ckpt_step_state(step), acts[which].becomes);
	ck_assert_ptr_null(ckpt_staging_of(step)->still);
	look();
	ck_assert_int_eq(ckpt_step_state(step), acts[which].becomes);
}
END_TEST

START_TEST(a_step_that_is_left_alone_is_committed)
{
	for (int tries = 0; tries < 1000 && ckpt_step_state(step) != CKPT_STEP_COMMITTED; tries++) {
		look();
		ckpt_sys.sleep_ns(UNIT_NS / 4);
	}
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_COMMITTED);
	ckpt_save_settle(s);
	ck_assert_ptr_null(ckpt_staging_of(step)->still);
	ck_assert_str_eq(step->version->is.event, "quiet");
}
END_TEST

// Somebody may have it mapped, of which nothing tells but the lease that is refused.
START_TEST(a_step_with_a_file_that_can_still_be_written_is_not_committed)
{
	CLEANUP_FD int fd = ckpt_sys.open(step->dirfd, "a.npy", O_RDWR, 0);
	char what[CKPT_WAITS_FOR_MAX] = "";

	ck_assert_int_ge(fd, 0);
	for (int tries = 0; tries < 1000 && !strstr(what, "mappings of a.npy"); tries++) {
		look();
		ckpt_looker_waits_for(step, what);
		ckpt_sys.sleep_ns(UNIT_NS / 4);
	}
	ck_assert_msg(strstr(what, "mappings of a.npy"), "%s", what);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_STAGED);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("looker");
	TCase *looks = tcase_create("looks");

	tcase_add_checked_fixture(looks, setup, teardown);
	tcase_add_loop_test(looks, a_step_that_is_committed_or_dropped_during_a_look, 0, 2 * (int)ARRAY_LEN(acts));
	tcase_add_test(looks, a_step_that_is_left_alone_is_committed);
	tcase_add_test(looks, a_step_with_a_file_that_can_still_be_written_is_not_committed);
	suite_add_tcase(suite, looks);
	return ckpt_suite_run(suite);
}
