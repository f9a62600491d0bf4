// Clients of a node are told of the changes of another node, whoever has made the steps follow them: the thread of the remote, or an act
// that came between the PULL of an entry and that thread.
#include "tests/support/hooks.h"
#include "tests/support/staged.h"
#include "tests/support/suite.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/remote/place.h"
#include "core/remote/remote.h"
#include "core/save/amend.h"
#include "core/save/change.h"
#include "core/save/remove.h"
#include "core/save/reopen.h"
#include "core/save/session.h"
#include "core/save/stage.h"
#include "core/step/amending.h"
#include "core/store/open.h"
#include "tests/support/save.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NAME "1000"
#define ADDED "added" // by the other node
#define TRIES 2000
#define TRY_NS INT64_C(10000000)

static char remote_dir[PATH_MAX], url[PATH_MAX + 8];
static struct ckpt_store *a, *b;

static struct {
	bool added; // ADDED, which was not there before
	unsigned renewed;
	uint32_t mode; // of config.json, when clients were told that it may have changed
} told;                // clients of b; atomic

#define WAIT_UNTIL(is_so)                                                                                              \
	do {                                                                                                           \
		for (unsigned tries = 0; !(is_so); tries++) {                                                          \
			ck_assert_msg(tries < TRIES, "in vain: %s", #is_so);                                           \
			ckpt_remote_wake(*ckpt_remote_of(a));                                                          \
			ckpt_remote_wake(*ckpt_remote_of(b));                                                          \
			ckpt_sys.sleep_ns(TRY_NS);                                                                     \
		}                                                                                                      \
	} while (0)

// --- The clients of b ---------------------------------------------------------------------------------------------------

static void renew(void *arg __attribute__((unused)), struct ckpt_step *from __attribute__((unused)),
		  struct ckpt_step *to __attribute__((unused)))
{
	__atomic_add_fetch(&told.renewed, 1, __ATOMIC_RELAXED);
}

static void changed(void *arg __attribute__((unused)), struct ckpt_step *step, struct ckpt_manifest *was,
		    struct ckpt_manifest *is)
{
	struct ckpt_entry e;
	uint32_t index;

	if (!ckpt_manifest_lookup(is, "config.json", &index)) {
		ckpt_manifest_entry(is, index, &e);
		ckpt_attributes_apply(step, is, &e);
		__atomic_store_n(&told.mode, e.mode, __ATOMIC_RELAXED);
	}
	if (ckpt_manifest_lookup(was, ADDED, &index) && !ckpt_manifest_lookup(is, ADDED, &index))
		__atomic_store_n(&told.added, true, __ATOMIC_RELEASE);
}

static bool is_told(void)
{
	return __atomic_load_n(&told.added, __ATOMIC_ACQUIRE);
}

// --- Nodes --------------------------------------------------------------------------------------------------------------

static struct ckpt_store *open_node(void)
{
	char why[CKPT_OBJECTS_WHY_MAX], dir[PATH_MAX];
	CLEANUP_FREE char *path = NULL;
	struct ckpt_store *s;

	ckpt_temp_dir(dir);
	setenv("CKPTFS_WORK_DIR", dir, 1);
	ck_ok(ckpt_remote_place(&(struct ckpt_remote_at){.url = url, .make = true}, &path, why));
	ck_ok(ckpt_store_open(path, CKPT_STORE_WRITE, NULL, &s));
	return s;
}

static bool is_idle(struct ckpt_store *s)
{
	struct ckpt_remote_queue q;

	ckpt_remote_queue(*ckpt_remote_of(s), &q);
	return !q.steps;
}

static int where_it_is(void *arg, const struct ckpt_state *state)
{
	*(uint64_t *)arg = ckpt_state_remote(state).seq;
	return 0;
}

// The next entry of the remote's log comes into the log of b, which its steps do not follow yet; false: there is none.
static bool pull_next(void)
{
	char path[PATH_MAX + 32];
	static char entry[1u << 18];
	uint64_t seq;
	ssize_t len;

	ck_ok(ckpt_journal_look(b->journal, where_it_is, &seq));
	snprintf(path, sizeof(path), "%s/log/%016llx", remote_dir, (unsigned long long)seq + 1);
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	len = read(fd, entry, sizeof(entry));
	ck_assert_int_gt(len, 0);
	ck_ok(ckpt_journal_pull(b->journal, &(struct ckpt_pull){.host = "", .entry = entry, .entry_len = (size_t)len},
				1));
	return true;
}

static void pull(void)
{
	ck_assert(pull_next());
	while (pull_next())
		;
}

// A step that both nodes have; b's thread does not work yet.
static void setup(void)
{
	struct ckpt_step *step;

	memset(&told, 0, sizeof(told));
	ckpt_temp_dir(remote_dir);
	snprintf(url, sizeof(url), "file://%s", remote_dir);
	a = open_node();
	step = ckpt_staged_begin(a, NAME);
	close(ckpt_staged_put(step, "config.json", "of the save"));
	close(ckpt_staged_put(step, "other.json", "of the save"));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ckpt_step_unref(step);
	ck_ok(ckpt_store_work_behind(a));
	for (unsigned tries = 0; !is_idle(a) && tries < TRIES; tries++)
		ckpt_sys.sleep_ns(TRY_NS);
	ck_assert(is_idle(a));
	b = open_node();
	b->calls.renew = renew;
	b->calls.changed = changed;
}

static void teardown(void)
{
	ckpt_save_settle_all(a);
	ckpt_save_settle_all(b);
	ckpt_store_close(a);
	ckpt_store_close(b);
}

// --- Acts ---------------------------------------------------------------------------------------------------------------

static struct ckpt_step *find(struct ckpt_store *s)
{
	struct ckpt_step *step = ckpt_step_find(s, "", NAME);

	ck_assert_ptr_nonnull(step);
	return step;
}

static void begin_added(struct ckpt_step *step, const char *path)
{
	CLEANUP_FD int dirfd = ckpt_session_open(step), fd = -1;
	char raw[CKPT_AMENDING_RAW_MAX];

	ck_ok(dirfd);
	ck_ok(ckpt_amending_raw_name(raw));
	fd = ckpt_sys.open(dirfd, raw, O_RDWR | O_CREAT | O_EXCL, 0644);
	ck_ok(fd);
	ck_ok(ckpt_amending_begin(step, path, raw));
}

static void add(struct ckpt_step *step, const char *path)
{
	begin_added(step, path);
	ck_ok(ckpt_amend_add(step, path));
	ckpt_amending_forget(step, path);
}

// The other node puts a file into the step: by a version of it, or by an edit, which has its place then.
static void change_there(bool edits)
{
	const struct ckpt_commit how = {
		.event = "quiet", .profile = "generic", .keeps_metadata = true, .keeps_place = true};
	struct ckpt_step *step = find(a), *staged;

	if (edits) {
		ck_ok(ckpt_reopen(step, &staged));
		ck_ok(ckpt_stage_enter(staged, true));
		close(ckpt_staged_put(staged, ADDED, "of a"));
		ckpt_stage_leave(staged);
		ck_ok(ckpt_commit(staged, &how));
		ckpt_step_unref(staged);
	} else {
		add(step, ADDED);
	}
	ckpt_step_unref(step);
	WAIT_UNTIL(is_idle(a));
}

static void set_mode(struct ckpt_step *step)
{
	const struct ckpt_attributes_new what = {.which = CKPT_ATTRIBUTE_MODE, .mode = 0604};
	struct ckpt_manifest *m = ckpt_staged_manifest(step);
	struct ckpt_entry e;
	uint32_t index;

	ck_ok(ckpt_manifest_lookup(m, "config.json", &index));
	ckpt_manifest_entry(m, index, &e);
	ck_ok(ckpt_change_attributes(step, m, &e, &what));
	ckpt_manifest_unref(m);
}

enum { MODE, REMOVAL, ADDITION, ACTS };

static void begin_act(struct ckpt_step *step, int act)
{
	struct ckpt_manifest *m;

	if (act == MODE) {
		set_mode(step);
	} else if (act == REMOVAL) {
		m = ckpt_staged_manifest(step);
		ck_ok(ckpt_remove_entry(step, m, 0, "other.json", false, 0));
		ckpt_manifest_unref(m);
	} else {
		begin_added(step, "own");
	}
}

static void end_act(struct ckpt_step *step, int act)
{
	if (act == MODE)
		(void)ckpt_change_publish(step); // of a step that an edit has replaced, the edit's thread does it
	else if (act == REMOVAL)
		ck_ok(ckpt_remove_publish(step));
	else
		ck_ok(ckpt_amend_add(step, "own"));
}

// Entries of the other node come before the act, or in the midst of it: when it has looked at the log, and its own entry is not there yet.
enum { BEFORE, MEANWHILE, WAYS };

static int (*real_random)(void *buf, size_t len);
static pthread_t actor;
static bool has_pulled;

static int pulling_random(void *buf, size_t len)
{
	if (!has_pulled && pthread_equal(pthread_self(), actor)) {
		has_pulled = true;
		pull();
	}
	return real_random(buf, len);
}

static void pull_and_end_act(struct ckpt_step *step, int act, int way)
{
	has_pulled = false;
	actor = pthread_self();
	real_random = ckpt_hooks.random;
	if (way == MEANWHILE)
		ckpt_hook_set(random, pulling_random);
	else
		pull();
	end_act(step, act);
	ckpt_hook_set(random, real_random);
	ck_assert(has_pulled == (way == MEANWHILE));
}

// --- Tests --------------------------------------------------------------------------------------------------------------

START_TEST(clients_are_told_of_changes_that_an_act_has_found_first)
{
	bool edits = _i / ACTS % 2;
	struct ckpt_step *step = find(b);

	begin_act(step, _i % ACTS);
	change_there(edits);
	pull_and_end_act(step, _i % ACTS, _i / ACTS / 2);
	ck_assert(!is_told());
	ck_ok(ckpt_store_work_behind(b));
	WAIT_UNTIL(is_told());
	ck_assert_uint_eq(__atomic_load_n(&told.renewed, __ATOMIC_RELAXED), edits);
	ckpt_step_unref(step);
	WAIT_UNTIL(is_idle(b));
}
END_TEST

// Clients that look again when they are told see the mode that they have set.
START_TEST(edit_has_pending_attributes_when_clients_are_told)
{
	struct ckpt_step *step = find(b);

	change_there(true);
	set_mode(step);
	ck_ok(ckpt_store_work_behind(b));
	WAIT_UNTIL(is_told());
	ck_assert_uint_eq(__atomic_load_n(&told.mode, __ATOMIC_RELAXED), 0604);
	ckpt_step_unref(step);
	WAIT_UNTIL(is_idle(b));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("remote_told");
	TCase *tcase = tcase_create("told");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, clients_are_told_of_changes_that_an_act_has_found_first, 0, WAYS * 2 * ACTS);
	tcase_add_test(tcase, edit_has_pending_attributes_when_clients_are_told);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
