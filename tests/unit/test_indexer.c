// What is put behind into the index: while its disk stalls, little memory waits for it.
#include "tests/support/formats.h"
#include "tests/support/suite.h"

#include "core/base/hash.h"
#include "core/base/util.h"
#include "core/index/index_db.h"
#include "core/index/indexer.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#define MANIFEST_BYTES ((size_t)8 << 20)
#define STEPS 20
#define WAITING 200 // entries, less than the queue takes

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

START_TEST(manifests_that_wait_for_a_stalled_index_are_bounded_by_their_bytes)
{
	struct ckpt_index_stat stat;
	struct ckpt_summary summary;
	struct ckpt_indexer *in;
	struct ckpt_index *ix;
	char key[8];
	pid_t staller;
	bool fresh;

	ck_ok(ckpt_index_open(dir, CKPT_SAMPLE_STORE, false, &ix, &fresh));
	ckpt_index_close(ix);
	staller = stall_begin();
	ck_ok(ckpt_index_open(dir, CKPT_SAMPLE_STORE, false, &ix, &fresh));
	ck_ok(ckpt_indexer_new(ix, &in));
	for (int i = 0; i < STEPS; i++) {
		void *manifest = calloc(1, MANIFEST_BYTES);

		snprintf(key, sizeof(key), "%d", i);
		memcpy(manifest, key, sizeof(key));
		ckpt_sample_summary(&summary, key, 1);
		ckpt_sha256(manifest, MANIFEST_BYTES, summary.manifest_sha256);
		ckpt_indexer_put(in, key, &summary, manifest, MANIFEST_BYTES);
	}
	stall_end(staller);
	ckpt_indexer_close(in);
	ck_ok(ckpt_index_stat(ix, &stat));
	ck_assert_uint_eq(stat.versions, STEPS);
	ck_assert_uint_ge(stat.manifests, 1);
	ck_assert_uint_le(stat.manifests, ((size_t)32 << 20) / MANIFEST_BYTES);
	ckpt_index_close(ix);
}
END_TEST

static void put_name(struct ckpt_indexer *in, const char *key, uint32_t version)
{
	struct ckpt_summary summary;

	ckpt_sample_summary(&summary, key, version);
	ckpt_indexer_put(in, key, &summary, NULL, 0);
}

static void *remove_both(void *in)
{
	for (uint32_t version = 2; version; version--)
		ck_ok(ckpt_indexer_remove(in, "gone", version));
	return NULL;
}

// One of them is being written, the other waits.
START_TEST(what_is_removed_does_not_come_back_from_the_queue)
{
	struct ckpt_index_stat stat;
	struct ckpt_indexer *in;
	struct ckpt_index *ix;
	pthread_t thread;
	pid_t staller;
	bool fresh;

	ck_ok(ckpt_index_open(dir, CKPT_SAMPLE_STORE, false, &ix, &fresh));
	ckpt_index_close(ix);
	staller = stall_begin();
	ck_ok(ckpt_index_open(dir, CKPT_SAMPLE_STORE, false, &ix, &fresh));
	ck_ok(ckpt_indexer_new(ix, &in));
	put_name(in, "gone", 1);
	for (uint32_t version = 1; version <= WAITING; version++)
		put_name(in, "kept", version);
	put_name(in, "gone", 2);
	ck_assert_int_eq(pthread_create(&thread, NULL, remove_both, in), 0);
	usleep(20000);
	stall_end(staller);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	put_name(in, "kept", WAITING + 1);
	ckpt_indexer_close(in);
	ck_ok(ckpt_index_stat(ix, &stat));
	ck_assert_uint_eq(stat.versions, WAITING + 1);
	ck_error(ckpt_index_remove(ix, "gone", 1), ENOENT);
	ck_ok(ckpt_index_remove(ix, "kept", WAITING + 1));
	ckpt_index_close(ix);
}
END_TEST

static Suite *indexer_suite(void)
{
	Suite *suite = suite_create("indexer");
	TCase *tcase = tcase_create("indexer");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, manifests_that_wait_for_a_stalled_index_are_bounded_by_their_bytes);
	tcase_add_test(tcase, what_is_removed_does_not_come_back_from_the_queue);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(indexer_suite());
}
