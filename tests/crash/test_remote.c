// A file that is added to a step which another node has saved: here the step has no directory until then. The process dies at any call, or the
// power goes at any point: an acknowledged file is there, and the step has what it had. The same where the other node has edited the step
// meanwhile, and both changes are put together.
//
// CKPT_CRASH_SEEDS in the environment: states for each point of a power cut, 6 by default; CKPT_TEST_FULL=1: 20.
#include "core/save/session.h"
#include "core/store/open.h"
#include "tests/support/disk.h"
#include "tests/support/save.h"
#include "tests/support/staged.h"
#include "tests/support/sysfault.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/remote/expired.h"
#include "core/remote/place.h"
#include "core/remote/remote.h"
#include "core/save/amend.h"
#include "core/save/delete.h"
#include "core/save/reopen.h"
#include "core/save/reunite.h"
#include "core/save/stage.h"
#include "core/step/amending.h"
#include "core/step/follow.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define NAME "1000"
#define SETTLES_NS 10000000
#define ENTRY_MAX (1u << 18)

static char remote[PATH_MAX], url[PATH_MAX + 8], saver[PATH_MAX]; // of the node that has saved the step
static unsigned nodes;

// The work directory of a new node, which knows what the remote has by now.
static struct ckpt_store *open_node(char *ret_dir)
{
	char why[CKPT_OBJECTS_WHY_MAX];
	CLEANUP_FREE char *path = NULL;
	struct ckpt_store *s;

	ckpt_temp_dir(ret_dir);
	ck_ok(ckpt_remote_place(&(struct ckpt_remote_at){.url = url, .work_dir = ret_dir, .make = !nodes++}, &path,
				why));
	ck_ok(ckpt_store_open(path, CKPT_STORE_WRITE, NULL, &s));
	return s;
}

static void push(struct ckpt_store *s)
{
	struct ckpt_remote_queue q;

	ck_ok(ckpt_store_work_behind(s));
	do {
		ckpt_remote_wake(*ckpt_remote_of(s));
		ckpt_sys.sleep_ns(SETTLES_NS);
		ckpt_remote_queue(*ckpt_remote_of(s), &q);
	} while (q.steps);
}

// A remote with a step, which its node has pushed.
static void setup(void)
{
	struct ckpt_store *s;
	struct ckpt_step *step;

	ckpt_temp_dir(remote);
	snprintf(url, sizeof(url), "file://%s", remote);
	nodes = 0;
	s = open_node(saver);
	step = ckpt_staged_begin(s, NAME);
	ck_ok(ckpt_sys.mkdir(step->dirfd, "sub", 0755));
	close(ckpt_staged_put(step, "sub/model", "weights"));
	ck_ok(ckpt_staged_commit(step, 0, NULL));
	ckpt_step_unref(step);
	push(s);
	ckpt_save_settle_all(s);
	ckpt_store_close(s);
}

// As the mount does it.
static int add(struct ckpt_step *step, const char *path, const char *text)
{
	CLEANUP_FD int dirfd = ckpt_session_open(step);
	char raw[CKPT_AMENDING_RAW_MAX];
	int rc = dirfd < 0 ? dirfd : ckpt_amending_raw_name(raw), fd;

	if (rc)
		return rc;
	fd = ckpt_sys.open(dirfd, raw, O_RDWR | O_CREAT | O_EXCL, 0640);
	if (fd < 0)
		return fd;
	rc = (int)ckpt_sys.pwrite(fd, text, strlen(text), 0);
	ckpt_sys.close(fd);
	if (rc >= 0)
		rc = ckpt_amending_begin(step, path, raw);
	if (!rc)
		rc = ckpt_amend_add(step, path);
	if (!rc)
		ckpt_amending_forget(step, path);
	return rc;
}

static int add_late(struct ckpt_store *s)
{
	struct ckpt_step *step = ckpt_step_find(s, "", NAME);
	int rc;

	ck_assert_ptr_nonnull(step);
	rc = add(step, "sub/late", "late");
	ckpt_step_unref(step);
	ckpt_save_settle_all(s);
	return rc;
}

// Without the other node: its packs are in the remote, and the file that was added is here alone.
static void check(const char *dir, bool acknowledged)
{
	struct ckpt_store *s = ckpt_save_open(dir);
	struct ckpt_step *step = ckpt_step_find(s, "", NAME);

	ck_assert_ptr_nonnull(step);
	ckpt_staged_check(step, "sub/model", "weights");
	if (!ckpt_staged_has(step, "sub/late")) {
		ck_assert(!acknowledged);
		ck_ok(add(step, "sub/late", "late"));
	}
	ckpt_staged_check(step, "sub/late", "late");
	ckpt_step_unref(step);
	ckpt_save_settle_all(s);
	ckpt_store_close(s);
}

// --- The process dies -------------------------------------------------------------------------------------------------

// In memory shared with the child.
struct shared {
	struct ckpt_sysfault fault;
	bool done;
};

static bool died(const char *dir, uint64_t n, struct shared *shared)
{
	pid_t pid;

	*shared = (struct shared){.fault = {.at = n, .die = ckpt_sysfault_kill, .changes_only = true}};
	pid = fork();
	if (!pid) {
		struct ckpt_store *s = ckpt_save_open(dir);

		ckpt_sysfault_begin(&shared->fault);
		if (add_late(s))
			_exit(1);
		__atomic_store_n(&shared->done, true, __ATOMIC_RELEASE);
		_exit(0);
	}
	return ckpt_sysfault_killed(pid, n);
}

START_TEST(deaths_at_every_call_leave_the_step_as_before_or_after)
{
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	bool again = true;
	uint64_t n;

	ck_assert_ptr_ne(shared, MAP_FAILED);
	for (n = 1; again; n++) {
		char dir[PATH_MAX];

		ckpt_store_close(open_node(dir));
		again = died(dir, n, shared);
		check(dir, shared->done);
		ckpt_temp_empty(dir, true);
	}
	printf("death: %llu calls\n", (unsigned long long)n - 2);
	ck_assert_uint_gt(n, 10);
}
END_TEST

// --- The power goes ---------------------------------------------------------------------------------------------------

START_TEST(power_cuts_at_every_point_keep_what_was_acknowledged)
{
	char dir[PATH_MAX], out[PATH_MAX];
	struct ckpt_disk *disk;
	struct ckpt_store *s;
	size_t done_at, states = 0;

	ckpt_store_close(open_node(dir));
	ck_ok(ckpt_disk_begin(dir, &disk));
	s = ckpt_save_open(dir);
	ck_ok(add_late(s));
	done_at = ckpt_disk_count(disk);
	ckpt_store_close(s);
	ckpt_disk_end(disk);
	ckpt_temp_dir(out);
	for (size_t point = 0; point <= ckpt_disk_count(disk); point++)
		for (unsigned k = 0; k < ckpt_suite_seeds(6, 20); k++, states++) {
			ck_ok(ckpt_disk_crash(disk, point, ckpt_disk_seed(k), out));
			check(out, point >= done_at);
			ckpt_temp_empty(out, false);
		}
	printf("power: %zu states at %zu points\n", states, ckpt_disk_count(disk) + 1);
	ck_assert_uint_gt(done_at, 5);
	ckpt_disk_free(disk);
}
END_TEST

// --- Another node lets the step expire ----------------------------------------------------------------------------------

static void expire_elsewhere(void)
{
	char dir[PATH_MAX];
	struct ckpt_store *s = open_node(dir);
	struct ckpt_step *step = ckpt_step_find(s, "", NAME);

	ck_assert_ptr_nonnull(step);
	ck_ok(ckpt_delete_for_good(step));
	ckpt_step_unref(step);
	push(s);
	ckpt_save_settle_all(s);
	ckpt_store_close(s);
}

static bool has_step(struct ckpt_store *s)
{
	struct ckpt_step *step = ckpt_step_find(s, "", NAME);

	ckpt_step_unref(step);
	return step;
}

// The entry of the remote's log at this place comes into that of the node; false: there is none.
static bool pull(struct ckpt_store *s, unsigned seq)
{
	static char entry[ENTRY_MAX];
	char path[PATH_MAX + 32];
	ssize_t len;

	snprintf(path, sizeof(path), "%s/log/%016x", remote, seq);
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	len = read(fd, entry, sizeof(entry));
	ck_assert_int_gt(len, 0);
	ck_ok(ckpt_expired_pull(s, &(struct ckpt_pull){.host = "", .entry = entry, .entry_len = (size_t)len}, 1));
	return true;
}

static int where_it_is(void *arg, const struct ckpt_state *state)
{
	*(unsigned *)arg = (unsigned)ckpt_state_remote(state).seq;
	return 0;
}

static void pull_all(struct ckpt_store *s)
{
	unsigned seq;

	ck_ok(ckpt_journal_look(s->journal, where_it_is, &seq));
	while (pull(s, ++seq))
		;
}

// The copy of its record and its files would tell the next mount that the log has lost an entry, and it would be refused.
START_TEST(power_cuts_while_a_step_goes_that_another_node_let_expire_ask_for_no_repair)
{
	char out[PATH_MAX], why[CKPT_OBJECTS_WHY_MAX];
	CLEANUP_FREE char *path = NULL;
	struct ckpt_disk *disk;
	struct ckpt_store *s;
	size_t states = 0;

	expire_elsewhere();
	ck_ok(ckpt_remote_place(&(struct ckpt_remote_at){.url = url, .work_dir = saver}, &path, why));
	ck_ok(ckpt_disk_begin(saver, &disk));
	ck_ok(ckpt_store_open(path, CKPT_STORE_WRITE, NULL, &s)); // it reads the remote's log
	ck_assert(!has_step(s));
	ckpt_store_close(s);
	ckpt_disk_end(disk);
	ckpt_temp_dir(out);
	for (size_t point = 0; point <= ckpt_disk_count(disk); point++)
		for (unsigned k = 0; k < ckpt_suite_seeds(6, 20); k++, states++) {
			ck_ok(ckpt_disk_crash(disk, point, ckpt_disk_seed(k), out));
			ckpt_store_close(ckpt_save_open(out));
			ckpt_temp_empty(out, false);
		}
	printf("expired: %zu states at %zu points\n", states, ckpt_disk_count(disk) + 1);
	ck_assert_uint_gt(ckpt_disk_count(disk), 5);
	ckpt_disk_free(disk);
}
END_TEST

// A damaged log would have it from there alone.
START_TEST(step_that_stays_since_this_node_has_changed_it_keeps_the_copy_of_its_record)
{
	char dir[PATH_MAX];
	struct ckpt_store *s = open_node(dir);
	struct ckpt_step *step;

	ck_ok(add_late(s));
	expire_elsewhere();
	pull_all(s);
	step = ckpt_step_find(s, "", NAME);
	ck_assert_ptr_nonnull(step);
	ck_assert(!faccessat(s->records_fd, step->session, F_OK, 0));
	ckpt_step_unref(step);
	ckpt_save_settle_all(s);
	ckpt_store_close(s);
}
END_TEST

// --- Another node has edited the step -----------------------------------------------------------------------------------

static void edit_elsewhere(void)
{
	const struct ckpt_commit how = {
		.event = "quiet", .profile = "generic", .keeps_metadata = true, .keeps_place = true};
	char dir[PATH_MAX];
	struct ckpt_store *s = open_node(dir);
	struct ckpt_step *step = ckpt_step_find(s, "", NAME), *staged;

	ck_ok(ckpt_reopen(step, &staged));
	ck_ok(ckpt_stage_enter(staged, true));
	close(ckpt_staged_put(staged, "edited", "elsewhere"));
	ckpt_stage_leave(staged);
	ck_ok(ckpt_commit(staged, &how));
	ckpt_step_unref(staged);
	ckpt_step_unref(step);
	push(s);
	ckpt_save_settle_all(s);
	ckpt_store_close(s);
}

// A node that has added a file to the step, and has read since that another has edited it.
static void make_late_node(char *ret_dir)
{
	struct ckpt_store *s = open_node(ret_dir);

	ck_ok(add_late(s));
	edit_elsewhere();
	pull_all(s);
	ckpt_lock_take(&s->acts_lock);
	ck_ok(ckpt_follow(s));
	ckpt_lock_drop(&s->acts_lock);
	ckpt_save_settle_all(s);
	ckpt_store_close(s);
}

static void put_together(struct ckpt_store *s)
{
	struct ckpt_step **steps;
	size_t count;

	ck_ok(ckpt_reunite_list(s, &steps, &count));
	for (size_t i = 0; i < count; i++) {
		struct ckpt_manifest *was = NULL;
		struct ckpt_step *into = NULL;

		LOCK_SCOPE(&s->acts_lock);
		ck_ok(ckpt_reunite(steps[i], &into, &was));
		ckpt_manifest_unref(was);
		ckpt_step_unref(into);
	}
	ckpt_step_list_free(steps, count);
}

static void check_together(const char *dir)
{
	struct ckpt_store *s = ckpt_save_open(dir);
	struct ckpt_step *step = ckpt_step_find(s, "", NAME);

	ck_assert_ptr_nonnull(step);
	ckpt_staged_check(step, "edited", "elsewhere");
	if (!ckpt_staged_has(step, "sub/late"))
		put_together(s);
	ckpt_staged_check(step, "sub/late", "late");
	ckpt_step_unref(step);
	ckpt_save_settle_all(s);
	ckpt_store_close(s);
}

static int no_link_from;
static int (*link_of_disk)(int from_dirfd, const char *from, int to_dirfd, const char *to);

static int no_link(int from_dirfd, const char *from, int to_dirfd, const char *to)
{
	return from_dirfd == no_link_from ? -EMLINK : link_of_disk(from_dirfd, from, to_dirfd, to);
}

// 0: what comes to the other step is a second name of its file; 1: a copy, as on a disk that allows no more names.
START_TEST(power_cuts_while_two_changes_are_put_together_keep_both)
{
	char dir[PATH_MAX], out[PATH_MAX];
	struct ckpt_disk *disk;
	struct ckpt_store *s;
	size_t states = 0;

	make_late_node(dir);
	ck_ok(ckpt_disk_begin(dir, &disk));
	s = ckpt_save_open(dir);
	no_link_from = _i ? s->sessions_fd : -1;
	link_of_disk = ckpt_sys.link;
	ckpt_sys.link = no_link;
	put_together(s);
	ckpt_sys.link = link_of_disk;
	ckpt_save_settle_all(s);
	ckpt_store_close(s);
	ckpt_disk_end(disk);
	check_together(dir);
	ckpt_temp_dir(out);
	for (size_t point = 0; point <= ckpt_disk_count(disk); point++)
		for (unsigned k = 0; k < ckpt_suite_seeds(6, 20); k++, states++) {
			ck_ok(ckpt_disk_crash(disk, point, ckpt_disk_seed(k), out));
			check_together(out);
			ckpt_temp_empty(out, false);
		}
	printf("together: %zu states at %zu points\n", states, ckpt_disk_count(disk) + 1);
	ck_assert_uint_gt(ckpt_disk_count(disk), 5);
	ckpt_disk_free(disk);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("remote crash");
	TCase *tcase = tcase_create("an added file");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, deaths_at_every_call_leave_the_step_as_before_or_after);
	tcase_add_test(tcase, power_cuts_at_every_point_keep_what_was_acknowledged);
	tcase_add_test(tcase, power_cuts_while_a_step_goes_that_another_node_let_expire_ask_for_no_repair);
	tcase_add_test(tcase, step_that_stays_since_this_node_has_changed_it_keeps_the_copy_of_its_record);
	tcase_add_loop_test(tcase, power_cuts_while_two_changes_are_put_together_keep_both, 0, 2);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
