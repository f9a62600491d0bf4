// Changes of the plain tree that wait to be pushed, of files and folders that are gone from tree/ when their turn comes: a temporary folder
// has become a step, or a file was removed. Nothing of them waits for ever, comes to another node, or comes back. And the number of those that
// wait is never 0 while something is to be pushed: `wait --remote` goes by it.
#include "tests/support/hooks.h"
#include "tests/support/suite.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/remote/place.h"
#include "core/remote/remote.h"
#include "core/remote/tree.h"
#include "core/state/journal.h"
#include "core/state/plain.h"
#include "core/store/open.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FAST 50 // times as fast as the clock goes, by which the node waits between two looks

static char work_dir[PATH_MAX], remote_dir[PATH_MAX], url[PATH_MAX + 8];
static struct ckpt_store *store;
static struct ckpt_sys machine;
static int64_t frozen_ns;    // the time stands still; 0: it goes on, a minute ahead, so that no file is young; atomic
static bool cut_off;         // the remote takes no entry; atomic
static unsigned refused;     // so many; atomic
static const char *unlinked; // a file that goes while the next entry is put; atomic

static int64_t fast_mono_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (t.tv_sec * INT64_C(1000000000) + t.tv_nsec) * FAST;
}

static int64_t shifted_now_ns(void)
{
	int64_t ns = __atomic_load_n(&frozen_ns, __ATOMIC_SEQ_CST);
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return ns ? ns : (t.tv_sec + 60) * INT64_C(1000000000) + t.tv_nsec;
}

static struct ckpt_tree *tree(void)
{
	return ckpt_remote_tree(*ckpt_remote_of(store));
}

static bool is_of_remote(int dirfd)
{
	char link[64], path[PATH_MAX];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", dirfd);
	n = readlink(link, path, sizeof(path));
	return n > (ssize_t)strlen(remote_dir) && !memcmp(path, remote_dir, strlen(remote_dir));
}

// By it a shared directory gets its entries.
static int link_to_remote(int from_dirfd, const char *from, int to_dirfd, const char *to)
{
	const char *goes;

	if (!is_of_remote(to_dirfd))
		return machine.link(from_dirfd, from, to_dirfd, to);
	if (__atomic_load_n(&cut_off, __ATOMIC_SEQ_CST)) {
		__atomic_add_fetch(&refused, 1, __ATOMIC_SEQ_CST);
		return -EIO;
	}
	goes = __atomic_exchange_n(&unlinked, NULL, __ATOMIC_SEQ_CST);
	if (goes) {
		ck_assert_int_eq(unlinkat(store->tree_fd, goes, 0), 0);
		ckpt_tree_take_name(tree(), store->tree_fd, goes);
	}
	return machine.link(from_dirfd, from, to_dirfd, to);
}

static bool watched;               // atomic
static unsigned looked, unnoticed; // at folders of the tree, meanwhile; and while nothing waited, as it seemed; atomic

static int open_watched(int dirfd, const char *path, int flags, mode_t mode)
{
	if (__atomic_load_n(&watched, __ATOMIC_SEQ_CST) && dirfd == store->tree_fd) {
		__atomic_add_fetch(&looked, 1, __ATOMIC_SEQ_CST);
		__atomic_add_fetch(&unnoticed, !ckpt_tree_waits(tree()), __ATOMIC_SEQ_CST);
	}
	return machine.open(dirfd, path, flags, mode);
}

static void setup(void)
{
	char why[CKPT_OBJECTS_WHY_MAX];
	CLEANUP_FREE char *path = NULL;

	machine = ckpt_hooks;
	ckpt_hook_set(mono_ns, fast_mono_ns);
	ckpt_hook_set(now_ns, shifted_now_ns);
	ckpt_hook_set(link, link_to_remote);
	ckpt_temp_dir(remote_dir);
	ckpt_temp_dir(work_dir);
	snprintf(url, sizeof(url), "file://%s", remote_dir);
	setenv("CKPTFS_WORK_DIR", work_dir, 1);
	ck_ok(ckpt_remote_place(&(struct ckpt_remote_at){.url = url, .make = true}, &path, why));
	ck_ok(ckpt_store_open(path, CKPT_STORE_WRITE, NULL, &store));
	ck_ok(ckpt_store_work_behind(store));
}

static void teardown(void)
{
	ckpt_store_rest(store);
	ckpt_store_close(store);
	ckpt_hooks_restore(&machine);
}

static void make_folder(const char *path)
{
	ck_ok(ckpt_sys.mkdir(store->tree_fd, path, 0755));
	ckpt_tree_touch(tree());
}

// The same as a mount's act when a client has closed it. folder: "." is the top. young: until time goes on.
static void put_bytes(const char *folder, const char *name, off_t bytes, bool young)
{
	CLEANUP_FD int dirfd = openat(store->tree_fd, folder, O_RDONLY | O_DIRECTORY);
	CLEANUP_FD int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	struct stat st;

	ck_assert_int_eq(write(fd, name, strlen(name)), (ssize_t)strlen(name));
	ck_assert_int_eq(ftruncate(fd, bytes), 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	if (young)
		__atomic_store_n(&frozen_ns, st.st_ctim.tv_sec * INT64_C(1000000000) + st.st_ctim.tv_nsec + 1,
				 __ATOMIC_SEQ_CST);
	ckpt_tree_take_name(tree(), dirfd, name);
}

static void put(const char *folder, const char *name, bool young)
{
	put_bytes(folder, name, (off_t)strlen(name), young);
}

static void grow_old(void)
{
	__atomic_store_n(&frozen_ns, 0, __ATOMIC_SEQ_CST);
}

// As the rename does by which a plain folder becomes a step.
static void leave_tree(const char *folder)
{
	ck_ok(ckpt_sys.rename(store->tree_fd, folder, store->trash_fd, "was-a-folder", RENAME_NOREPLACE));
	ckpt_tree_touch(tree());
}

static uint64_t waiting(void)
{
	struct ckpt_remote_queue q;

	ckpt_remote_queue(*ckpt_remote_of(store), &q);
	return q.files;
}

#define WAIT_UNTIL(is_so)                                                                                              \
	do {                                                                                                           \
		for (unsigned tries = 0; !(is_so); tries++) {                                                          \
			ck_assert_msg(tries < 4000, "in vain: %s; %llu changes wait", #is_so,                          \
				      (unsigned long long)waiting());                                                  \
			ckpt_remote_wake(*ckpt_remote_of(store));                                                      \
			usleep(5000);                                                                                  \
		}                                                                                                      \
	} while (0)

struct logged {
	uint64_t seq;
	size_t plains;
};

static int look(void *arg, const struct ckpt_state *state)
{
	struct logged *l = arg;

	l->seq = ckpt_state_remote(state).seq;
	(void)ckpt_state_plains(state, &l->plains);
	return 0;
}

static struct logged logged(void)
{
	struct logged l;

	(void)ckpt_journal_look(store->journal, look, &l);
	return l;
}

START_TEST(file_whose_folder_went_before_its_turn_does_not_wait)
{
	make_folder("save.tmp");
	WAIT_UNTIL(logged().plains == 1 && !waiting());
	put("save.tmp", "weights", true);
	leave_tree("save.tmp");
	WAIT_UNTIL(!logged().plains); // the removal of the folder does not wait for it
	grow_old();
	WAIT_UNTIL(!waiting());
	ck_assert_uint_eq(logged().plains, 0);
}
END_TEST

START_TEST(folders_and_files_that_went_while_the_remote_did_not_answer_are_not_pushed)
{
	uint64_t before;

	make_folder("stays");
	WAIT_UNTIL(logged().plains == 1 && !waiting());
	before = logged().seq;
	__atomic_store_n(&cut_off, true, __ATOMIC_SEQ_CST);
	make_folder("save.tmp");
	make_folder("save.tmp/target");
	WAIT_UNTIL(waiting() == 2 &&
		   __atomic_load_n(&refused, __ATOMIC_SEQ_CST)); // both, after a look at the disk and a try
	put("save.tmp/target", "weights", false);
	put("save.tmp", "metadata", false);
	leave_tree("save.tmp");
	__atomic_store_n(&cut_off, false, __ATOMIC_SEQ_CST);
	WAIT_UNTIL(!waiting());
	ck_assert_uint_eq(logged().seq, before);
	ck_assert_uint_eq(logged().plains, 1);
}
END_TEST

START_TEST(folder_that_got_another_name_before_its_turn_is_pushed_under_that)
{
	__atomic_store_n(&cut_off, true, __ATOMIC_SEQ_CST);
	make_folder("before");
	WAIT_UNTIL(waiting() == 1);
	put("before", "file", false);
	ck_ok(ckpt_sys.rename(store->tree_fd, "before", store->tree_fd, "after", RENAME_NOREPLACE));
	ckpt_tree_touch(tree());
	__atomic_store_n(&cut_off, false, __ATOMIC_SEQ_CST);
	WAIT_UNTIL(!waiting());
	ck_assert_uint_eq(logged().plains, 2);
	ck_assert_int_eq(faccessat(store->tree_fd, "after/file", F_OK, 0), 0);
	ck_assert_int_ne(faccessat(store->tree_fd, "before", F_OK, 0), 0);
}
END_TEST

START_TEST(young_file_waits_though_its_folder_gets_another_name)
{
	uint64_t before;

	make_folder("before");
	WAIT_UNTIL(logged().plains == 1 && !waiting());
	before = logged().seq;
	put("before", "file", true);
	ck_ok(ckpt_sys.rename(store->tree_fd, "before", store->tree_fd, "after", RENAME_NOREPLACE));
	ckpt_tree_touch(tree());
	WAIT_UNTIL(logged().seq > before); // the folder's new name does not wait for the file
	ck_assert_uint_eq(logged().plains, 1);
	grow_old();
	WAIT_UNTIL(!waiting());
	ck_assert_uint_eq(logged().plains, 2);
	ck_assert_int_eq(faccessat(store->tree_fd, "after/file", F_OK, 0), 0);
}
END_TEST

START_TEST(file_that_is_removed_while_it_is_put_into_the_log_does_not_come_back)
{
	make_folder("stays");
	WAIT_UNTIL(logged().plains == 1 && !waiting());
	__atomic_store_n(&unlinked, "passing", __ATOMIC_SEQ_CST);
	put(".", "passing", false);
	WAIT_UNTIL(!__atomic_load_n(&unlinked, __ATOMIC_SEQ_CST));
	WAIT_UNTIL(!waiting());
	ck_assert_uint_eq(logged().plains, 1);
	ck_assert_int_ne(faccessat(store->tree_fd, "passing", F_OK, 0), 0);
}
END_TEST

// The folder has no id when the file is closed: a look finds both.
START_TEST(young_file_of_a_new_folder_waits_whatever_its_size)
{
	ck_ok(ckpt_sys.mkdir(store->tree_fd, "new", 0755));
	put_bytes("new", "file", _i ? CKPT_PLAIN_INLINE_MAX + 1 : 1, true);
	WAIT_UNTIL(logged().plains == 1);
	for (unsigned i = 0; i < 200; i++) {
		ck_assert_uint_ge(waiting(), 1);
		ckpt_remote_wake(*ckpt_remote_of(store));
		usleep(2000);
	}
	grow_old();
	WAIT_UNTIL(!waiting());
	ck_assert_uint_eq(logged().plains, 2);
}
END_TEST

START_TEST(what_is_being_looked_for_waits)
{
	__atomic_store_n(&watched, true, __ATOMIC_SEQ_CST);
	ckpt_hook_set(open, open_watched);
	ck_ok(ckpt_sys.mkdir(store->tree_fd, "new", 0755));
	put("new", "file", false);
	WAIT_UNTIL(!waiting());
	ck_assert_uint_eq(logged().plains, 2);
	ck_assert_uint_ge(__atomic_load_n(&looked, __ATOMIC_SEQ_CST), 1);
	ck_assert_uint_eq(__atomic_load_n(&unnoticed, __ATOMIC_SEQ_CST), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tree_gone");
	TCase *t = tcase_create("tree_gone");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, file_whose_folder_went_before_its_turn_does_not_wait);
	tcase_add_test(t, folders_and_files_that_went_while_the_remote_did_not_answer_are_not_pushed);
	tcase_add_test(t, folder_that_got_another_name_before_its_turn_is_pushed_under_that);
	tcase_add_test(t, young_file_waits_though_its_folder_gets_another_name);
	tcase_add_test(t, file_that_is_removed_while_it_is_put_into_the_log_does_not_come_back);
	tcase_add_loop_test(t, young_file_of_a_new_folder_waits_whatever_its_size, 0, 2);
	tcase_add_test(t, what_is_being_looked_for_waits);
	suite_add_tcase(s, t);
	return ckpt_suite_run(s);
}
