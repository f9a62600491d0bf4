// How frameworks write checkpoints, replayed call by call without any of them: plainly, with the daemon killed on the way,
// with a disk that gets full, and with children that are forked all the time. An observer looks on, and may see of each step
// nothing or all of it.
//
//   replay VARIANT    plain killed full forked; one trace of it with CK_RUN_CASE=T4
#include "tests/replay/observer.h"
#include "tests/replay/ranks.h"
#include "tests/replay/shared.h"
#include "tests/replay/trace.h"
#include "tests/replay/tree.h"

#include "tests/support/suite.h"
#include "tests/support/world.h"

#include "core/base/util.h"

#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define CASE_S 60
#define DISK_MB 128
#define FULL_FACTOR 10
#define WAIT_US 1000
#define MODES 2       // of a mount
#define CUTS 12       // of the disk, in a full run
#define KILLS 80      // of the daemon, in a full run
#define CUT_DEFAULT 5 // the disk is full in the middle

struct replay {
	const struct trace *trace;
	struct world world;
	struct shared *shared;
	struct expect expect;
	unsigned before[EXPECT_MAX]; // how many states before() reached
	uint64_t bytes;              // that the trace writes
	unsigned calls;              // that it makes
	pid_t observer;
};

static bool is_full_run(void)
{
	const char *text = getenv("CKPT_TEST_FULL");

	return text && *text && strcmp(text, "0");
}

// --- Processes --------------------------------------------------------------------------------------------------------

// gone: how to end where the daemon is dead already.
static void become(pid_t test, const struct replay *r, const char *folder, enum replay_exit gone)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != test)
		_exit(EXIT_FAILED);
	if (!chdir(folder))
		return;
	if (__atomic_load_n(&r->shared->dead, __ATOMIC_SEQ_CST))
		_exit(gone);
	shared_fail(r->shared, "%s: %s", folder, strerror(errno));
	_exit(EXIT_FAILED);
}

static pid_t start_rank(struct replay *r, struct rank rank, const char *folder)
{
	pid_t test = getpid(), pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid)
		return pid;
	become(test, r, folder, EXIT_CUT);
	me = rank;
	if (rank.number < 0)
		r->trace->before();
	else
		r->trace->run(rank.number);
	_exit(EXIT_DONE);
}

static void complain(struct replay *r)
{
	world_tell(&r->world);
	ck_abort_msg("%s %s", r->trace->name, r->shared->failed ? r->shared->failure : "ended by itself");
}

// Runs the trace, or what is before it, in the folder. True: to its end, false: it was cut.
static bool run_ranks(struct replay *r, const char *folder, bool before)
{
	int count = before ? 1 : r->trace->ranks;
	bool whole = true, failed = false;
	pid_t pids[RANKS_MAX] = {0};
	struct rank rank = {
		.count = count,
		.shared = r->shared,
		.expect = r->shared->daemon ? &r->expect : NULL,
		.states = r->world.states,
	};

	ck_assert_int_le(count, RANKS_MAX);
	ck_assert(!pipe2(rank.arrive, O_CLOEXEC) && !pipe2(rank.leave, O_CLOEXEC));
	for (int i = 0; i < count; i++) {
		rank.number = before ? -1 : i;
		pids[i] = start_rank(r, rank, folder);
	}
	for (int left = count; left; usleep(WAIT_US)) {
		for (int i = 0; i < count; i++) {
			int status;

			// Not of any child: the daemon is world's.
			if (!pids[i] || !waitpid(pids[i], &status, WNOHANG))
				continue;
			left--;
			pids[i] = 0;
			if (!status)
				continue;
			failed |= whole && status != W_EXITCODE(EXIT_CUT, 0);
			whole = false;
			for (int k = 0; k < count; k++) // the job is over
				if (pids[k])
					kill(pids[k], SIGKILL);
		}
	}
	for (int i = 0; i < 2; i++) {
		close(rank.arrive[i]);
		close(rank.leave[i]);
	}
	if (failed)
		complain(r);
	return whole;
}

// --- What is expected -------------------------------------------------------------------------------------------------

static char *text_of(const char *folder)
{
	char *text;

	ck_assert_msg(!chdir(folder), "%s: %s", folder, strerror(errno));
	text = tree_text(".");
	ck_assert_msg(text != NULL, "%s cannot be read: %s", folder, strerror(errno));
	ck_assert_int_eq(chdir("/"), 0);
	return text;
}

// Runs the trace on the plain filesystem: what may then be seen is what was seen there.
static void learn(struct replay *r, unsigned attempt)
{
	struct shared *s = r->shared;

	ckpt_temp_empty(r->world.plain, 0);
	unlink(r->world.states);
	expect_done(&r->expect);
	memset(r->before, 0, sizeof(r->before));
	*s = (struct shared){0};
	if (r->trace->before) {
		ck_assert(run_ranks(r, r->world.plain, true));
		expect_read(&r->expect, r->world.states);
		for (size_t i = 0; i < r->expect.count; i++)
			r->before[i] = (unsigned)r->expect.things[i].count;
		expect_done(&r->expect);
	}
	*s = (struct shared){.attempt = attempt};
	ck_assert(run_ranks(r, r->world.plain, false));
	r->bytes = s->bytes;
	r->calls = s->calls;
	expect_read(&r->expect, r->world.states);
	r->expect.last = text_of(r->world.plain);
	ck_assert_msg(r->expect.count > 0, "%s completes nothing", r->trace->name);
}

// Before the trace runs in the mount; what is before it runs unless it has.
static void prepare(struct replay *r, unsigned attempt, bool before)
{
	struct shared *s = r->shared;

	*s = (struct shared){.daemon = r->world.daemon};
	if (before && r->trace->before)
		ck_assert(run_ranks(r, r->world.mount, true));
	*s = (struct shared){.daemon = r->world.daemon, .attempt = attempt};
	memcpy(s->done, r->before, sizeof(s->done));
}

static void check_info(struct replay *r)
{
	CLEANUP_FREE char *command = NULL;
	json_t *info, *version;
	FILE *in;

	if (!r->trace->step)
		return;
	ck_assert_int_gt(
		asprintf(&command, "'%s' info --json '%s' '%s'", getenv("CKPTFS"), r->world.store, r->trace->step), 0);
	in = popen(command, "re");
	ck_assert_ptr_nonnull(in);
	info = json_loadf(in, 0, NULL);
	ck_assert_int_eq(pclose(in), 0);
	ck_assert_ptr_nonnull(info);
	ck_assert_str_eq(json_string_value(json_object_get(info, "profile")), r->trace->profile);
	version = json_array_get(json_object_get(info, "versions"), 0);
	ck_assert_str_eq(json_string_value(json_object_get(version, "event")), r->trace->event);
	json_decref(info);
}

// All that the mount shows is as it is on the plain filesystem.
static void check_end(struct replay *r)
{
	CLEANUP_FREE char *text = text_of(r->world.mount), *difference = tree_difference(text, r->expect.last);

	if (strcmp(text, r->expect.last)) {
		world_tell(&r->world);
		ck_abort_msg("%s in the end: %s", r->trace->name, difference);
	}
	check_info(r);
}

// What the thing is now; malloc'ed, NULL: it is not listed.
static char *state_of(const struct expected *x)
{
	return tree_is_listed(x->path) ? tree_text(x->path) : NULL;
}

static bool is_state(const char *text, const struct expected *x, unsigned n)
{
	const char *state = n && n <= x->count ? x->states[n - 1] : NULL;

	return text && state ? !strcmp(text, state) : !text && !state;
}

// After a cut: only whole things are listed, and what was said to be complete is there.
static void check_cut(struct replay *r)
{
	ck_assert_int_eq(chdir(r->world.mount), 0);
	r->shared->dead = false;
	if (!observer_look(r->trace, &r->expect, r->shared))
		complain(r);
	for (size_t i = 0; i < r->expect.count; i++) {
		const struct expected *x = &r->expect.things[i];
		CLEANUP_FREE char *text = state_of(x);
		unsigned done = r->shared->done[i];

		// The call after the last that was acknowledged may have happened, too.
		if (r->shared->turn[i] % 2 == 0 && !is_state(text, x, done) && !is_state(text, x, done + 1))
			ck_abort_msg("%s: %s is not as it was acknowledged", r->trace->name, x->path);
	}
	ck_assert_int_eq(chdir("/"), 0);
}

// Whether the trace came so far that something was completed.
static bool has_progressed(struct replay *r)
{
	bool progressed = false;

	ck_assert_int_eq(chdir(r->world.mount), 0);
	for (size_t i = 0; i < r->expect.count; i++) {
		CLEANUP_FREE char *text = state_of(&r->expect.things[i]);

		progressed |= !is_state(text, &r->expect.things[i], r->before[i]);
	}
	ck_assert_int_eq(chdir("/"), 0);
	return progressed;
}

// --- Observer ---------------------------------------------------------------------------------------------------------

static void start_observer(struct replay *r)
{
	pid_t test = getpid();

	r->observer = fork();
	ck_assert_int_ge(r->observer, 0);
	if (r->observer)
		return;
	become(test, r, r->world.mount, EXIT_DONE);
	_exit(observer_run(r->trace, &r->expect, r->shared));
}

static void stop_observer(struct replay *r)
{
	int status;

	__atomic_store_n(&r->shared->quit, true, __ATOMIC_SEQ_CST);
	ck_assert_int_eq(waitpid(r->observer, &status, 0), r->observer);
	if (status)
		complain(r);
}

// --- Variants ---------------------------------------------------------------------------------------------------------

static void open_replay(struct replay *r, int trace, enum world_io io, unsigned disk_mb)
{
	*r = (struct replay){.trace = &traces[trace], .shared = shared_new()};
	world_open(&r->world, io, traces[trace].options, disk_mb);
	learn(r, 1);
}

static void close_replay(struct replay *r)
{
	expect_done(&r->expect);
	world_close(&r->world);
}

static void remount(struct replay *r)
{
	world_umount(&r->world);
	world_mount(&r->world);
}

static void run_to_end(struct replay *r)
{
	start_observer(r);
	if (!run_ranks(r, r->world.mount, false))
		complain(r);
	check_end(r);
	stop_observer(r);
	ck_assert_msg(r->shared->sights > 0, "%s: the observer saw nothing", r->trace->name);
	remount(r);
	check_end(r);
}

// A job that is started again: over what the last one left, or, where that had done its work, once more from the start.
static void run_anew(struct replay *r)
{
	bool anew = has_progressed(r);

	if (anew)
		ckpt_temp_empty(r->world.mount, 0);
	learn(r, 2);
	prepare(r, 2, anew);
	run_to_end(r);
}

START_TEST(plain)
{
	struct replay r;

	open_replay(&r, _i / MODES, _i % MODES ? WORLD_DAEMON : WORLD_PASSTHROUGH, 0);
	prepare(&r, 1, true);
	run_to_end(&r);
	close_replay(&r);
}
END_TEST

// The daemon dies at the trace's midpoint, or, in a full run, before each of its calls.
START_TEST(killed)
{
	unsigned point = (unsigned)_i % KILLS;
	struct replay r;

	open_replay(&r, _i / KILLS, WORLD_PASSTHROUGH, 0);
	if (point <= r.calls) {
		prepare(&r, 1, true);
		r.shared->die_at_midpoint = !point;
		r.shared->die_at = r.calls > KILLS ? point * r.calls / KILLS : point;
		start_observer(&r);
		if (run_ranks(&r, r.world.mount, false))
			ck_abort_msg("%s was not cut", r.trace->name);
		stop_observer(&r);
		world_kill(&r.world);
		check_cut(&r);
		run_anew(&r);
	}
	close_replay(&r);
}
END_TEST

// The disk is full after part of what the trace writes.
START_TEST(full)
{
	unsigned part = is_full_run() ? (unsigned)_i % CUTS : CUT_DEFAULT;
	struct replay r;

	open_replay(&r, _i / CUTS, WORLD_PASSTHROUGH, DISK_MB);
	prepare(&r, 1, true);
	r.shared->full = true;
	world_fill_disk(&r.world, r.bytes * part / CUTS);
	start_observer(&r);
	// What is removed on the way gives back its room, so that less than all can be enough.
	if (run_ranks(&r, r.world.mount, false) && part <= CUT_DEFAULT)
		ck_abort_msg("%s had room enough", r.trace->name);
	stop_observer(&r);
	check_cut(&r);
	world_make_room(&r.world);
	run_anew(&r);
	close_replay(&r);
}
END_TEST

// Children come and go with all descriptors, and one stays.
START_TEST(forked)
{
	struct replay r;

	open_replay(&r, _i, WORLD_PASSTHROUGH, 0);
	prepare(&r, 1, true);
	r.shared->forking = true;
	start_observer(&r);
	if (!run_ranks(&r, r.world.mount, false))
		complain(&r);
	check_end(&r);
	ck_assert_msg(r.shared->living, "%s forked no children", r.trace->name);
	__atomic_store_n(&r.shared->let_go, true, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&r.shared->living, __ATOMIC_SEQ_CST))
		usleep(WAIT_US);
	check_end(&r);
	stop_observer(&r);
	remount(&r);
	check_end(&r);
	close_replay(&r);
}
END_TEST

static Suite *suite(const char *variant)
{
	Suite *s = suite_create(variant);
	int full_run = is_full_run();

	for (int i = 0; i < (int)trace_count; i++) {
		TCase *tc = tcase_create(traces[i].name);

		tcase_set_timeout(tc, CASE_S * (full_run ? FULL_FACTOR : 1));
		if (!strcmp(variant, "plain"))
			tcase_add_loop_test(tc, plain, i * MODES, (i + 1) * MODES);
		else if (!strcmp(variant, "killed"))
			tcase_add_loop_test(tc, killed, i * KILLS, i * KILLS + (full_run ? KILLS : 1));
		else if (!strcmp(variant, "full"))
			tcase_add_loop_test(tc, full, i * CUTS, i * CUTS + (full_run ? CUTS : 1));
		else
			tcase_add_loop_test(tc, forked, i, i + 1);
		suite_add_tcase(s, tc);
	}
	return s;
}

int main(int argc, char **argv)
{
	const char *obstacle = world_obstacle();

	if (argc != 2 || !getenv("CKPTFS")) {
		fprintf(stderr, "usage: CKPTFS=PROGRAM replay plain|killed|full|forked\n");
		return 2;
	}
	if (obstacle) {
		printf("SKIPPED replay %s: %s\n", argv[1], obstacle);
		return 0;
	}
	return ckpt_suite_run(suite(argv[1]));
}
