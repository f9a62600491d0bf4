// The removal of garbage from a remote: many requests under way, but not too many; what cannot be removed keeps no other, and is told.
#include "tests/support/collecting.h"

#include "core/base/lock.h"

#include <pthread.h>

#define ORPHANS 60
#define AT_ONCE_MIN 8
#define AT_ONCE_MAX 16
#define WAIT_NS INT64_C(5000000000) // for the others, where they do not come

// A store that is far away, as its removals see it.
static struct {
	struct ckpt_objects_ops ops;
	const struct ckpt_objects_ops *below;
	int (*fails)(const char *key); // the error of this removal; NULL: none fails
	struct ckpt_lock lock;
	pthread_cond_t changed;
	unsigned under_way, most, calls; // guarded by lock
	bool alone;                      // the others did not come; guarded by lock
} far = {.lock = CKPT_LOCK_INIT(CKPT_LOCK_LEAF), .changed = PTHREAD_COND_INITIALIZER};

// None ends before several have begun.
static void meet_others(void)
{
	LOCK_SCOPE(&far.lock);
	int64_t until_ns = ckpt_sys.mono_ns() + WAIT_NS;

	far.calls++;
	far.under_way++;
	far.most = MAX(far.most, far.under_way);
	pthread_cond_broadcast(&far.changed);
	while (far.most < AT_ONCE_MIN && !far.alone && ckpt_sys.mono_ns() < until_ns)
		(void)ckpt_lock_wait_ns(&far.changed, &far.lock, WAIT_NS);
	far.alone |= far.most < AT_ONCE_MIN;
	far.under_way--;
}

static int far_remove(struct ckpt_objects *o, const char *key)
{
	int rc = 0;

	if (strncmp(key, "probe/", strlen("probe/"))) {
		meet_others();
		rc = far.fails ? far.fails(key) : 0;
	}
	return rc ? rc : far.below->remove(o, key);
}

static void go_far(const struct node *n, int (*fails)(const char *key))
{
	far.below = there(n)->ops;
	far.ops = *far.below;
	far.ops.is_far = true;
	far.ops.remove = far_remove;
	far.fails = fails;
	there(n)->ops = &far.ops;
}

static void come_back(const struct node *n)
{
	there(n)->ops = far.below;
}

static void put_orphans(struct node *n)
{
	open_node(n);
	save(n->store, "2", "another text");
	push(n);
	for (uint8_t i = 1; i <= ORPHANS; i++)
		put_orphan(n, i, i);
}

static bool add_removed(void *arg, uint64_t bytes)
{
	*(uint64_t *)arg += bytes;
	return true;
}

START_TEST(many_are_under_way_and_each_byte_is_told_once)
{
	uint64_t removed = 0;
	const struct ckpt_collect_how how = {.force = true, .go_on = add_removed, .arg = &removed};
	struct ckpt_collect_done done;
	struct node a = {0};

	put_orphans(&a);
	go_far(&a, NULL);
	done = collect(&a, &how);
	come_back(&a);
	ck_assert_uint_eq(done.deleted.objects, ORPHANS);
	ck_assert_uint_eq(far.calls, ORPHANS);
	ck_assert_uint_ge(far.most, AT_ONCE_MIN);
	ck_assert_uint_le(far.most, AT_ONCE_MAX);
	ck_assert_uint_eq(removed, done.deleted.bytes);
	ck_assert_uint_eq(count(&a, "packs/"), 1);
	close_node(&a);
	check_by_another("2", "another text");
}
END_TEST

// Two are kept, as by a legal hold, and one answers with errors.
static int some_fail(const char *key)
{
	return !strncmp(key, "packs/05", 8) || !strncmp(key, "packs/11", 8) ? -EACCES
	       : !strncmp(key, "packs/20", 8)                               ? -EIO
									    : 0;
}

START_TEST(each_that_cannot_be_removed_is_told_and_keeps_no_other)
{
	struct ckpt_collect_done done;
	struct node a = {0};

	put_orphans(&a);
	go_far(&a, some_fail);
	ck_error(ckpt_collect(a.store, &by_force, &done), EIO);
	come_back(&a);
	ck_assert_uint_eq(done.deleted.objects, ORPHANS - 3);
	ck_assert_uint_eq(count(&a, "packs/"), 4);
	ck_assert_ptr_nonnull(strstr(done.why, "3 of 60 objects cannot be removed: packs/05"));
	ck_assert_ptr_nonnull(strstr(done.why, "packs/11"));
	ck_assert_ptr_nonnull(strstr(done.why, "packs/20"));
	ck_assert_uint_eq(collect(&a, &by_force).deleted.objects, 3);
	close_node(&a);
}
END_TEST

static int all_are_refused(const char *key)
{
	(void)key;
	return -EACCES;
}

START_TEST(more_failures_than_there_is_room_for_are_counted)
{
	struct ckpt_collect_done done;
	struct node a = {0};

	put_orphans(&a);
	go_far(&a, all_are_refused);
	ck_error(ckpt_collect(a.store, &by_force, &done), EACCES);
	come_back(&a);
	ck_assert_ptr_nonnull(strstr(done.why, "60 of 60 objects cannot be removed: packs/01"));
	ck_assert_ptr_nonnull(strstr(done.why, ", and 5"));
	ck_assert_uint_eq(done.deleted.objects, 0);
	close_node(&a);
}
END_TEST

static int nothing_answers(const char *key)
{
	(void)key;
	return -ETIMEDOUT;
}

START_TEST(store_that_does_not_answer_is_not_asked_for_each)
{
	struct ckpt_collect_done done;
	struct node a = {0};

	put_orphans(&a);
	go_far(&a, nothing_answers);
	ck_error(ckpt_collect(a.store, &by_force, &done), ETIMEDOUT);
	come_back(&a);
	ck_assert_uint_le(far.calls, 2 * AT_ONCE_MAX);
	ck_assert_uint_eq(collect(&a, &by_force).deleted.objects, ORPHANS);
	close_node(&a);
}
END_TEST

static bool some_were_removed(void *arg, uint64_t bytes)
{
	*(uint64_t *)arg += bytes;
	return *(uint64_t *)arg < 100;
}

// On a disk, where one goes after the other.
START_TEST(removal_that_is_called_off_is_ended_by_the_next)
{
	uint64_t removed = 0;
	const struct ckpt_collect_how how = {.force = true, .go_on = some_were_removed, .arg = &removed};
	struct ckpt_collect_done done;
	struct node a = {0};

	put_orphans(&a);
	ck_error(ckpt_collect(a.store, &how, &done), EINTR);
	ck_assert_uint_eq(done.deleted.objects, 14); // of 1, 2, 3 ... bytes
	ck_assert_uint_eq(done.deleted.bytes, 105);
	ck_assert_uint_eq(removed, 105);
	ck_assert_uint_eq(collect(&a, &by_force).deleted.objects, ORPHANS - done.deleted.objects);
	close_node(&a);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("collect_remove");
	TCase *tcase = tcase_create("collect_remove");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, many_are_under_way_and_each_byte_is_told_once);
	tcase_add_test(tcase, each_that_cannot_be_removed_is_told_and_keeps_no_other);
	tcase_add_test(tcase, more_failures_than_there_is_room_for_are_counted);
	tcase_add_test(tcase, store_that_does_not_answer_is_not_asked_for_each);
	tcase_add_test(tcase, removal_that_is_called_off_is_ended_by_the_next);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
