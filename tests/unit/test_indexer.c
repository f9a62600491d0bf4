// Manifests that wait to be put into the index: while its disk stalls, they take little memory.
#include "tests/support/formats.h"
#include "tests/support/suite.h"

#include "core/base/hash.h"
#include "core/base/util.h"
#include "core/index/index_db.h"
#include "core/index/indexer.h"
#include "core/jobs/jobs.h"

#include <signal.h>
#include <sys/wait.h>

static char dir[PATH_MAX];

static void setup(void)
{
	ckpt_temp_dir(dir);
}

static int stall(struct ckpt_index_db *db, struct MDB_txn *txn, void *arg)
{
	(void)db;
	(void)txn;
	if (write(*(int *)arg, "x", 1) != 1)
		_exit(1);
	pause();
	return 0;
}

// Another process is in the middle of a write: ours wait for it.
static pid_t stall_begin(void)
{
	int fds[2];
	char c;
	pid_t pid;

	ck_assert_int_eq(pipe(fds), 0);
	pid = fork();
	if (!pid) {
		struct ckpt_index_db db;

		if (!ckpt_index_db_init(&db, dir, false, 0) && !ckpt_index_db_open(&db))
			ckpt_index_db_write(&db, stall, &fds[1]);
		_exit(1);
	}
	close(fds[1]);
	ck_assert_int_eq(read(fds[0], &c, 1), 1);
	close(fds[0]);
	return pid;
}

static void stall_end(pid_t pid)
{
	kill(pid, SIGKILL); // LMDB's lock goes with its holder
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

// Puts count manifests while another process holds the index; how many of them are in it in the end.
static uint64_t put_stalled(int count, size_t bytes)
{
	struct ckpt_index_stat stat;
	struct ckpt_indexer *in;
	struct ckpt_jobs *jobs;
	struct ckpt_index *ix;
	pid_t staller;
	bool fresh;

	ck_ok(ckpt_index_open(dir, CKPT_SAMPLE_STORE, false, &ix, &fresh));
	ckpt_index_close(ix);
	staller = stall_begin();
	ck_ok(ckpt_index_open(dir, CKPT_SAMPLE_STORE, false, &ix, &fresh));
	ck_ok(ckpt_jobs_new(&jobs));
	ck_ok(ckpt_indexer_new(ix, jobs, &in));
	for (int i = 0; i < count; i++) {
		uint8_t sha256[CKPT_SHA256_LEN];

		ckpt_sha256(&i, sizeof(i), sha256);
		ckpt_indexer_put(in, sha256, calloc(1, bytes), bytes);
	}
	ck_assert_uint_gt(ckpt_indexer_pending(in), 0);
	stall_end(staller);
	ckpt_indexer_close(in);
	ckpt_jobs_free(jobs);
	ck_ok(ckpt_index_stat(ix, &stat));
	ckpt_index_close(ix);
	return stat.manifests;
}

START_TEST(manifests_that_wait_for_a_stalled_index_are_bounded_by_their_bytes)
{
	const size_t bytes = (size_t)8 << 20;

	ck_assert_uint_eq(put_stalled(20, bytes), ((size_t)32 << 20) / bytes);
}
END_TEST

START_TEST(manifests_that_wait_for_a_stalled_index_are_bounded_by_their_number)
{
	ck_assert_uint_eq(put_stalled(300, 100), 256);
}
END_TEST

START_TEST(one_large_manifest_waits_alone)
{
	ck_assert_uint_eq(put_stalled(3, (size_t)40 << 20), 1);
}
END_TEST

START_TEST(all_that_wait_are_put_before_the_end)
{
	ck_assert_uint_eq(put_stalled(200, 100), 200);
}
END_TEST

static Suite *indexer_suite(void)
{
	Suite *suite = suite_create("indexer");
	TCase *tcase = tcase_create("indexer");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, manifests_that_wait_for_a_stalled_index_are_bounded_by_their_bytes);
	tcase_add_test(tcase, manifests_that_wait_for_a_stalled_index_are_bounded_by_their_number);
	tcase_add_test(tcase, one_large_manifest_waits_alone);
	tcase_add_test(tcase, all_that_wait_are_put_before_the_end);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(indexer_suite());
}
