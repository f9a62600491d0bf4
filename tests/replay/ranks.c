// What a rank says to the test: where it is, what is complete, how it ends.
#include "tests/replay/ranks.h"

#include "tests/replay/trace.h"
#include "tests/replay/tree.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/support/suite.h"

#define SOON_S 5

struct rank me;

// --- How it ends ------------------------------------------------------------------------------------------------------

struct shared *shared_new(void)
{
	struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(s, MAP_FAILED);
	return s;
}

static void vfail(struct shared *s, const char *fmt, va_list args)
{
	if (!__atomic_exchange_n(&s->failed, true, __ATOMIC_SEQ_CST))
		vsnprintf(s->failure, sizeof(s->failure), fmt, args);
}

void shared_fail(struct shared *s, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vfail(s, fmt, args);
	va_end(args);
}

static bool is_due(int error)
{
	if (__atomic_load_n(&me.shared->dead, __ATOMIC_SEQ_CST))
		return true; // ENOTCONN, ECONNABORTED, EIO: whatever it is that a dead mount says
	return me.shared->full && (error == ENOSPC || error == EDQUOT);
}

void rank_ends(int error, const char *fmt, ...)
{
	char what[1024];
	va_list args;

	if (is_due(error))
		_exit(EXIT_CUT);
	va_start(args, fmt);
	vsnprintf(what, sizeof(what), fmt, args);
	va_end(args);
	shared_fail(me.shared, "rank %d: %s%s%s", me.number, what, error ? ": " : "", error ? strerror(error) : "");
	_exit(EXIT_FAILED);
}

long must(long result, const char *call, const char *path)
{
	if (result < 0)
		rank_ends(errno, "%s %s", call, path);
	return result;
}

static _Noreturn void kill_daemon(void)
{
	__atomic_store_n(&me.shared->dead, true, __ATOMIC_SEQ_CST);
	kill(me.shared->daemon, SIGKILL);
	_exit(EXIT_CUT);
}

void about_to(void)
{
	unsigned call = __atomic_add_fetch(&me.shared->calls, 1, __ATOMIC_SEQ_CST);

	if (call == me.shared->die_at)
		kill_daemon();
}

void midpoint(void)
{
	if (me.shared->die_at_midpoint && me.number >= 0)
		kill_daemon();
}

void together(void)
{
	char token = 0;

	if (me.number == 0) {
		for (int i = 1; i < me.count; i++)
			must(read(me.arrive[0], &token, 1), "read", "the barrier");
		for (int i = 1; i < me.count; i++)
			must(write(me.leave[1], &token, 1), "write", "the barrier");
	} else {
		must(write(me.arrive[1], &token, 1), "write", "the barrier");
		must(read(me.leave[0], &token, 1), "read", "the barrier");
	}
}

// --- What is complete -------------------------------------------------------------------------------------------------

static void next_turn(int i, bool odd)
{
	unsigned *turn = &me.shared->turn[i];

	if (*turn % 2 != odd)
		__atomic_add_fetch(turn, 1, __ATOMIC_SEQ_CST);
}

// The thing, and its next state: NULL, it is to be gone.
static int next_state(const char *path, const char **ret_text)
{
	int i = expect_find(me.expect, path);
	unsigned n;

	if (i < 0)
		rank_ends(0, "%s: nothing was declared on the plain filesystem", path);
	n = __atomic_fetch_add(&me.shared->done[i], 1, __ATOMIC_SEQ_CST);
	if (n >= me.expect->things[i].count)
		rank_ends(0, "%s: one state more than on the plain filesystem", path);
	*ret_text = me.expect->things[i].states[n];
	return i;
}

void complete(const char *path)
{
	CLEANUP_FREE char *text = tree_text(path), *difference = NULL;
	const char *expected;
	int i;

	if (!text)
		rank_ends(errno, "it is complete and cannot be read: %s", path);
	if (!me.expect) {
		expect_write(me.states, path, text);
		return;
	}
	i = next_state(path, &expected);
	if (!tree_is_listed(path))
		rank_ends(0, "it is complete and not listed: %s", path);
	difference = tree_difference(text, expected ? expected : "");
	if (!expected || strcmp(text, expected))
		rank_ends(0, "%s is not as on the plain filesystem, state %u: %s", path, me.shared->done[i],
			  difference);
	next_turn(i, false);
}

void complete_soon(const char *path)
{
	for (int i = 0; i < SOON_S * 100 && !tree_is_listed(path); i++)
		usleep(10000);
	complete(path);
}

void edited(const char *path)
{
	CLEANUP_FREE char *text = NULL;
	const char *expected;

	if (me.expect) {
		next_state(path, &expected);
		return;
	}
	text = tree_text(path);
	if (!text)
		rank_ends(errno, "it was edited and cannot be read: %s", path);
	expect_write(me.states, path, text);
}

void gone(const char *path)
{
	const char *expected;
	int i;

	if (is_there(path) || tree_is_listed(path))
		rank_ends(0, "it is to be gone, and is there: %s", path);
	if (!me.expect) {
		expect_write(me.states, path, NULL);
		return;
	}
	i = next_state(path, &expected);
	if (expected)
		rank_ends(0, "%s was there on the plain filesystem", path);
	next_turn(i, false);
}

void hidden(const char *path)
{
	if (me.shared->daemon && tree_is_listed(path))
		rank_ends(0, "it is not complete, and listed: %s", path);
}

void missing(const char *path)
{
	if (is_there(path))
		rank_ends(0, "it is not to be there yet, and is: %s", path);
}

void changing(const char *path)
{
	int i = me.expect ? expect_find(me.expect, path) : -1;

	if (i >= 0)
		next_turn(i, true);
}

// --- Children ---------------------------------------------------------------------------------------------------------

static _Noreturn void live_on(void)
{
	for (int i = 0; i < 2000 && !__atomic_load_n(&me.shared->let_go, __ATOMIC_SEQ_CST); i++)
		usleep(10000);
	__atomic_sub_fetch(&me.shared->living, 1, __ATOMIC_SEQ_CST);
	_exit(0);
}

static void fork_one(bool lives, bool killed)
{
	pid_t pid;

	if (lives)
		__atomic_add_fetch(&me.shared->living, 1, __ATOMIC_SEQ_CST);
	pid = (pid_t)must(fork(), "fork", "");
	if (!pid) {
		if (lives)
			live_on();
		if (killed)
			raise(SIGKILL);
		_exit(0);
	}
	if (!lives)
		must(waitpid(pid, NULL, 0), "waitpid", "");
}

// Two that are gone when this returns, one by a signal. The first time in a run one more, which lives on past its end.
void fork_children(void)
{
	if (me.shared->forking && !__atomic_exchange_n(&me.shared->forked, true, __ATOMIC_SEQ_CST))
		fork_one(true, false);
	fork_one(false, false);
	fork_one(false, true);
}

void killed_after(void (*work)(int rank), int rank)
{
	pid_t pid = (pid_t)must(fork(), "fork", "");
	int status;

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		me.life++;
		work(rank);
		raise(SIGKILL);
	}
	must(waitpid(pid, &status, 0), "waitpid", "");
	if (WIFEXITED(status))
		_exit(WEXITSTATUS(status)); // it has said why
}
