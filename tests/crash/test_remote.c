// A file that is added to a step which another node has saved: here the step has no directory until then. The process dies at any call, or the
// power goes at any point: an acknowledged file is there, and the step has what it had.
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
#include "core/remote/place.h"
#include "core/remote/remote.h"
#include "core/save/amend.h"
#include "core/step/amending.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define NAME "1000"
#define SETTLES_NS 10000000

static char url[PATH_MAX + 8];
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
	char remote[PATH_MAX], dir[PATH_MAX];
	struct ckpt_store *s;
	struct ckpt_step *step;

	ckpt_temp_dir(remote);
	snprintf(url, sizeof(url), "file://%s", remote);
	nodes = 0;
	s = open_node(dir);
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

int main(void)
{
	Suite *suite = suite_create("remote crash");
	TCase *tcase = tcase_create("an added file");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, deaths_at_every_call_leave_the_step_as_before_or_after);
	tcase_add_test(tcase, power_cuts_at_every_point_keep_what_was_acknowledged);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
