// Garbage collection on a remote, here a directory that nodes share: what goes, what stays, and that nothing which anybody pushes meanwhile is
// lost, wherever a collection is cut off (REMOTE.md section 7).
#include "tests/support/collecting.h"
#include "tests/support/backendfault.h"

#include "core/remote/collector.h"

// --- What goes, and what stays ------------------------------------------------------------------------------------------

START_TEST(garbage_goes_and_what_is_needed_stays)
{
	struct node a = {0}, b = {0};
	struct ckpt_collect_done done;
	size_t packs, manifests;

	save_all(&a);
	packs = count(&a, "packs/");
	manifests = count(&a, "m/");
	ck_assert_uint_ge(manifests, 1);
	delete_saved(a.store, CKPT_SAVE_MANY);
	delete_saved(a.store, CKPT_SAVE_LARGE);
	push(&a);
	done = collect(&a, &at_once); // what is in the trash may be had back
	ck_assert_uint_eq(done.condemned.objects + done.deleted.objects, 0);
	(void)ckpt_expire_before(a.store, INT64_MAX, &(bool){false});
	push(&a);
	open_node(&b);
	ck_assert_uint_eq(collect(&b, &(struct ckpt_collect_how){.grace_ns = CKPT_COLLECT_GRACE_NS}).condemned.objects,
			  0);
	done = collect(&b, &(struct ckpt_collect_how){.dry_run = true});
	ck_assert_uint_gt(done.condemned.objects, 1);
	done = collect(&b, &an_hour);
	ck_assert_uint_gt(done.condemned.objects, 1);
	ck_assert_uint_eq(done.deleted.objects, 0);
	ck_assert_uint_eq(done.waiting.objects, done.condemned.objects);
	ck_assert_int_gt(done.waiting_ns, CKPT_COLLECT_DELAY_NS - INT64_C(60000000000));
	ck_assert_uint_eq(count(&b, "packs/"), packs);
	check_saved(b.store, ALL & ~MANY & ~LARGE);
	close_node(&b);
	open_node(&b); // what is condemned stands in the log
	packs = count(&b, "packs/") - (done.condemned.objects - 1);
	done = collect(&b, &at_once);
	ck_assert_uint_eq(done.condemned.objects, 0);
	ck_assert_uint_gt(done.deleted.objects, 1);
	ck_assert_uint_eq(done.young.objects, 0);
	ck_assert_uint_eq(count(&b, "packs/"), packs);
	ck_assert_uint_eq(count(&b, "m/"), manifests - 1);
	ck_assert_uint_eq(count(&b, "packs/") + count(&b, "m/"), done.live.objects);
	ck_assert_uint_eq(collect(&b, &at_once).deleted.objects, 0);
	ck_assert_uint_eq(count(&b, "probe/"), 0);
	close_node(&b);
	close_node(&a);
	open_node(&b);
	check_saved(b.store, ALL & ~MANY & ~LARGE);
	close_node(&b);
	memset(b.dir, 0, sizeof(b.dir));
	open_node(&b);
	check_saved(b.store, ALL & ~MANY & ~LARGE);
	close_node(&b);
}
END_TEST

// One that ends anywhere, with any answer lost: the next one ends it.
START_TEST(collection_that_was_cut_off_is_ended_by_the_next)
{
	struct ckpt_fault fault = ckpt_objectsfault_ways[_i];
	struct ckpt_collect_done done;
	struct ckpt_objects *faulty;
	struct node a = {0}, b = {0};
	struct ckpt_pack pack;

	leave_garbage(&a, &pack);
	for (uint8_t at = 1, fired = 1; fired; at++) {
		int rc;

		open_node(&b);
		put_orphan(&b, at, 10); // names are used once
		ck_ok(ckpt_fault_new(there(&b), &fault, &faulty));
		fault.count = 0;
		fault.at = at;
		rc = ckpt_collect(b.store, &at_once, &done);
		ck_assert(!rc || *done.why);
		fired = fault.count >= at;
		ck_assert(fired || !rc);
		fault.at = 0;
		close_node(&b);
		open_node(&b);
		done = collect(&b, &at_once);
		ck_assert_uint_eq(count(&b, "packs/"), 1);
		ck_assert_uint_eq(done.live.objects, 1);
		ck_assert_uint_le(count(&b, "probe/"), at);
		close_node(&b);
	}
	check_by_another("2", "another text");
}
END_TEST

// --- Brakes -------------------------------------------------------------------------------------------------------------

START_TEST(where_a_manifest_cannot_be_read_nothing_goes)
{
	struct ckpt_collect_done done;
	struct node a = {0}, b = {0};
	char command[PATH_MAX + 64];

	save_all(&a);
	put_orphan(&a, 7, 10);
	close_node(&a);
	snprintf(command, sizeof(command),
		 _i ? "rm '%s'/m/*" : "for f in '%s'/m/*; do chmod u+w $f; printf x >$f; done", remote_dir);
	ck_assert_int_eq(system(command), 0);
	open_node(&b);
	ck_error(ckpt_collect(b.store, &by_force, &done), EBADMSG);
	ck_assert_ptr_nonnull(strstr(done.why, ckpt_save_steps[CKPT_SAVE_LARGE].name));
	ck_assert_uint_eq(done.condemned.objects + done.deleted.objects, 0);
	close_node(&b);
}
END_TEST

// Objects that no entry has named may be lost by somebody. Named ones have gone by acts.
START_TEST(more_than_half_goes_by_force_or_if_the_log_has_named_it)
{
	struct ckpt_collect_done done;
	struct node a = {0};

	open_node(&a);
	save(a.store, "1", TEXT);
	save(a.store, "2", "another text");
	push(&a);
	put_orphan(&a, 7, 100000);
	ck_error(ckpt_collect(a.store, &at_once, &done), EPERM);
	ck_assert_uint_eq(done.condemned.objects, 0);
	ck_assert_uint_eq(count(&a, "packs/"), 3);
	ck_assert_uint_eq(collect(&a, &by_force).deleted.objects, 1);
	expire(a.store, "1");
	expire(a.store, "2");
	push(&a);
	ck_assert_uint_eq(collect(&a, &at_once).deleted.objects, 2);
	close_node(&a);
}
END_TEST

// --- By itself ----------------------------------------------------------------------------------------------------------

#define MS INT64_C(1000000)

// A mount waits for its turn, comes back for what it has condemned, and leaves a word for the others where there is nothing.
START_TEST(a_mount_collects_when_nobody_has_for_a_while)
{
	struct ckpt_collector_pace pace = {
		.period_ns = 300 * MS, .spread_ns = 50 * MS, .retry_ns = 50 * MS, .delay_ns = 100 * MS};
	struct ckpt_collector *collector, *other;
	struct node a = {0}, b = {0};
	struct ckpt_pack pack;
	uint64_t seq;

	leave_garbage(&a, &pack);
	open_node(&b);
	push(&b);
	ckpt_sys.sleep_ns(400 * MS);
	pace.period_ns = INT64_C(3600000) * MS;
	ck_ok(ckpt_collector_new(b.store, &pace, &other)); // which is never due
	pace.period_ns = 300 * MS;
	ck_ok(ckpt_collector_new(b.store, &pace, &collector));
	for (unsigned i = 0; has_pack(&b, &pack); i++) {
		ck_assert_uint_lt(i, 1000);
		ckpt_sys.sleep_ns(10 * MS);
	}
	ckpt_collector_stop(other);
	ckpt_collector_free(other);
	seq = last_condemn(&b);
	ck_assert_uint_gt(seq, 0);
	for (unsigned i = 0; last_condemn(&b) == seq; i++) { // there is nothing, and it says so
		ck_assert_uint_lt(i, 1000);
		ckpt_remote_wake(remote(&b));
		ckpt_sys.sleep_ns(10 * MS);
	}
	ckpt_collector_stop(collector);
	ckpt_collector_free(collector);
	close_node(&b);
	check_by_another("2", "another text");
}
END_TEST

START_TEST(a_mount_tells_once_that_it_cannot_collect)
{
	const struct ckpt_collector_pace pace = {.period_ns = 20 * MS, .spread_ns = 5 * MS, .retry_ns = 5 * MS};
	struct ckpt_collector *collector;
	struct node a = {0};

	open_node(&a);
	save(a.store, "1", TEXT);
	push(&a);
	put_orphan(&a, 7, 100000);
	ckpt_sys.sleep_ns(50 * MS);
	ck_ok(ckpt_collector_new(a.store, &pace, &collector));
	for (unsigned i = 0; !ckpt_save_errors(a.store, "garbage was not removed from the bucket"); i++) {
		ck_assert_uint_lt(i, 1000);
		ckpt_sys.sleep_ns(10 * MS);
	}
	ckpt_sys.sleep_ns(200 * MS);
	ckpt_collector_stop(collector);
	ckpt_collector_free(collector);
	ck_assert_uint_eq(ckpt_save_errors(a.store, "garbage was not removed from the bucket"), 1);
	ck_assert_uint_eq(count(&a, "packs/"), 2);
	close_node(&a);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("collect");
	TCase *tcase = tcase_create("collect");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, garbage_goes_and_what_is_needed_stays);
	tcase_add_loop_test(tcase, collection_that_was_cut_off_is_ended_by_the_next, 0, CKPT_BACKENDFAULT_WAYS);
	tcase_add_loop_test(tcase, where_a_manifest_cannot_be_read_nothing_goes, 0, 2);
	tcase_add_test(tcase, more_than_half_goes_by_force_or_if_the_log_has_named_it);
	tcase_add_test(tcase, a_mount_collects_when_nobody_has_for_a_while);
	tcase_add_test(tcase, a_mount_tells_once_that_it_cannot_collect);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
