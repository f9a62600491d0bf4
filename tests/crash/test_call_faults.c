// What core does when any call of the system fails, once: it is done, or it answers with an error and nothing is lost, in memory
// or on the disk; trying again works, unless what a client wrote is lost, which it says; and no descriptor is left open.
//
// The loops over saves, deletions and amends (test_*_faults.c) know what each of their acts must leave; this one tries every
// act there is (trial.h), and the calls that are not behind ckpt_sys, too.
#include "core/save/stage.h"
#include "tests/support/callfault.h"
#include "tests/support/seen.h"
#include "tests/support/sysfault.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/move.h"

#define POINTS_DEFAULT 8 // of each act, and each way; all of them with CKPT_TEST_FULL

enum way { SYS_IO, SYS_FULL, LIBC_IO, LIBC_FULL, WAYS };

static const char *const ways[] = {"behind ckpt_sys, EIO", "behind ckpt_sys, one error after the other", "of libc, EIO",
				   "of libc, one error after the other"};

static bool is_libc(enum way way)
{
	return way == LIBC_IO || way == LIBC_FULL;
}

static int error_of(enum way way, uint64_t n)
{
	return ckpt_sysfault_error(way == SYS_FULL || way == LIBC_FULL, n);
}

// --- The loop ----------------------------------------------------------------------------------------------------------

// Of an act without a fault.
struct outcome {
	struct ckpt_seen after, anew;
	char said[sizeof(((struct ckpt_trial *)0)->said)];
	uint64_t calls;
};

// What it answers; *ret_calls: how many there were.
static int do_with(struct ckpt_trial *t, const struct ckpt_trial_act *act, enum way way, uint64_t n,
		   uint64_t *ret_calls)
{
	struct ckpt_sysfault fault = {.at = n, .error = error_of(way, n)};
	int rc;

	if (is_libc(way))
		ckpt_callfault_begin(n, error_of(way, n));
	else
		ckpt_sysfault_begin(&fault);
	rc = ckpt_trial_do(t, act);
	if (is_libc(way))
		*ret_calls = ckpt_callfault_end();
	else
		ckpt_sysfault_end(&fault);
	if (!is_libc(way))
		*ret_calls = fault.count;
	ck_assert_int_le(rc, 0);
	return rc;
}

static void forget_line(char *text, const char *with)
{
	char *at = strstr(text, with), *end;

	if (!at)
		return;
	end = strchr(at, '\n');
	while (at > text && at[-1] != '\n')
		at--;
	memmove(at, end, strlen(end) + 1);
}

// What could not be removed, or may be needed still, goes at the next open.
static void forget_litter(struct ckpt_seen *seen)
{
	forget_line(seen->here, " sessions, ");
	forget_line(seen->disk, " sessions, ");
}

static void learn(const struct ckpt_trial_act *act, enum way way, struct outcome *ret)
{
	struct ckpt_trial t;

	ckpt_trial_begin(&t, act);
	ck_ok(do_with(&t, act, way, 0, &ret->calls));
	ret->after = ckpt_see(&t);
	forget_litter(&ret->after);
	memcpy(ret->said, t.said, sizeof(ret->said));
	ckpt_trial_end(&t);
	ret->anew = ckpt_see_anew(t.dir);
	ckpt_temp_empty(t.dir, true);
}

static void outcome_done(struct outcome *o)
{
	ckpt_seen_done(&o->after);
	ckpt_seen_done(&o->anew);
}

// What a client does that is told that a write of his was lost: all files, as it does not matter here which.
static void write_anew(struct ckpt_step *step, int dirfd)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fdopendir(fd);
	struct dirent *e;

	while (!ckpt_sys.readdir(dir, &e) && e) {
		struct statx stx;

		ck_assert_int_eq(statx(fd, e->d_name, AT_SYMLINK_NOFOLLOW, CKPT_STATX_WANT, &stx), 0);
		if (S_ISDIR(stx.stx_mode)) {
			CLEANUP_FD int below = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

			write_anew(step, below);
		}
		ckpt_stage_rewritten(step, ckpt_store_ino(&stx));
	}
	closedir(dir);
}

static int attempt_again(struct ckpt_trial *t, const struct ckpt_trial_act *act)
{
	int rc = ckpt_trial_do(t, act);

	if (rc == -EIO && t->step) {
		CLEANUP_FD int dirfd = ckpt_sys.open(t->s->sessions_fd, t->step->session, O_RDONLY | O_DIRECTORY, 0);

		write_anew(t->step, dirfd);
		rc = ckpt_trial_do(t, act);
	}
	// That is how it says that all was there but the answer.
	return rc == -EEXIST && !strcmp(act->name, "init") ? 0 : rc;
}

// After a second attempt, if the first failed. What has parts (an open, an expiry) may be done without one of them that is made
// up for later: at the next open at the latest.
static void check(struct ckpt_trial *t, const struct ckpt_trial_act *act, int rc, const struct outcome *good)
{
	struct ckpt_seen is;

	if (rc)
		rc = attempt_again(t, act);
	ck_assert_msg(!rc, "the second attempt: %s", strerror(-rc));
	if (act->leaves & CKPT_TRIAL_PARTS)
		return;
	is = ckpt_see(t);
	forget_litter(&is);
	ckpt_seen_assert(&is, &good->after, "it was done");
	ck_assert_str_eq(t->said, good->said);
	ckpt_seen_done(&is);
}

static void faulty(const struct ckpt_trial_act *act, const struct outcome *good, enum way way, uint64_t n)
{
	int descriptors = ckpt_open_descriptors(), rc;
	struct ckpt_seen anew;
	struct ckpt_trial t;
	uint64_t calls;

	ckpt_trial_begin(&t, act);
	rc = do_with(&t, act, way, n, &calls);
	printf("%llu:%s:%s ", (unsigned long long)n, is_libc(way) && callfault.name ? callfault.name : "",
	       rc ? strerror(-rc) : "ok");
	fflush(stdout); // where it is, should it crash
	check(&t, act, rc, good);
	ckpt_trial_end(&t);
	anew = ckpt_see_anew(t.dir);
	if (!(act->leaves & CKPT_TRIAL_LATER))
		ckpt_seen_assert(&anew, &good->anew, "it is opened again");
	ckpt_seen_done(&anew);
	ck_assert_int_eq(ckpt_open_descriptors(), descriptors);
	ckpt_temp_empty(t.dir, true);
}

START_TEST(a_call_that_fails_fails_the_act_and_loses_nothing)
{
	const struct ckpt_trial_act *act = &ckpt_trial_acts[_i / WAYS];
	enum way way = (enum way)(_i % WAYS);
	const char *one = getenv("CKPT_TEST_POINT");
	struct outcome good;
	uint64_t step = 1;

	learn(act, way, &good);
	if (!ckpt_suite_full())
		step = MAX(good.calls / POINTS_DEFAULT, step);
	printf("\n%s: %llu calls %s\n", act->name, (unsigned long long)good.calls, ways[way]);
	if (one) {
		faulty(act, &good, way, strtoull(one, NULL, 10));
		return;
	}
	for (uint64_t n = 1; n <= good.calls; n += step)
		faulty(act, &good, way, n);
	outcome_done(&good);
}
END_TEST

// Some acts have no call of one kind; a seam that others go round has hardly any.
START_TEST(acts_make_calls_of_both_kinds)
{
	static const enum way seams[] = {SYS_IO, LIBC_IO};
	uint64_t calls = 0;

	for (size_t i = 0; i < ckpt_trial_act_count; i++) {
		struct outcome good;

		learn(&ckpt_trial_acts[i], seams[_i], &good);
		calls += good.calls;
		outcome_done(&good);
	}
	printf("%llu calls %s\n", (unsigned long long)calls, ways[seams[_i]]);
	ck_assert_uint_gt(calls, 1000);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("call faults");
	TCase *seams = tcase_create("seams");

	for (int i = 0; i < (int)ckpt_trial_act_count; i++) {
		TCase *tcase = tcase_create(ckpt_trial_acts[i].name);

		tcase_add_loop_test(tcase, a_call_that_fails_fails_the_act_and_loses_nothing, WAYS * i,
				    WAYS * i + WAYS);
		suite_add_tcase(suite, tcase);
	}
	tcase_add_loop_test(seams, acts_make_calls_of_both_kinds, 0, 2);
	suite_add_tcase(suite, seams);
	return ckpt_suite_run(suite);
}
