// Half-dead packs of a remote: what listed steps need of one is put elsewhere, and it goes; nothing is lost beside nodes that push, change and read
// meanwhile, or that have shared it.
#include "tests/support/collecting.h"

#include "tests/support/backendfault.h"

#include "core/remote/collector.h"
#include "core/save/amend.h"
#include "core/save/amend_move.h"

#define SHARED "a text that stays"
#define OWN_TEXT                                                                                                       \
	"the text of a step that goes, which is longer than what is left of its pack by far, so that the pack is "     \
	"half dead, and with all that is in it but one short text"

static const struct ckpt_collect_how moving = {.repack = {.bytes_max = UINT64_MAX}},
				     moving_none_young = {.grace_ns = CKPT_COLLECT_GRACE_NS,
							  .repack = {.bytes_max = UINT64_MAX}};

// Step "2" needs a small part of a pack, whose other part step "1" had.
static void leave_half_dead(struct node *a, struct ckpt_pack *ret_pack)
{
	struct ckpt_step *one, *two;

	open_node(a);
	one = ckpt_packed_together(a->store, "1", SHARED, OWN_TEXT);
	two = ckpt_packed_together(a->store, "2", SHARED, "its own text");
	*ret_pack = place(a->store, "1");
	ck_assert_mem_eq(place(a->store, "2").id, ret_pack->id, sizeof(ret_pack->id));
	ckpt_step_unref(one);
	ckpt_step_unref(two);
	push(a);
	expire(a->store, "1");
	push(a);
}

static bool is_in(const struct node *n, const char *name, const struct ckpt_pack *pack)
{
	return !memcmp(place(n->store, name).id, pack->id, sizeof(pack->id));
}

static void check_moved(const struct ckpt_collect_done *done)
{
	ck_assert_uint_eq(done->half_dead.objects, 1);
	ck_assert_uint_ge(done->half_dead.bytes, strlen(OWN_TEXT) / 2); // as stored
	ck_assert_uint_eq(done->repacked.objects, 1);
	ck_assert_uint_eq(done->repacked.bytes, strlen(SHARED));
}

static void check_nothing_moved(const struct ckpt_collect_done *done)
{
	ck_assert_uint_eq(done->half_dead.objects, 0);
	ck_assert_uint_eq(done->repacked.objects, 0);
	ck_assert_uint_eq(done->repacked.bytes, 0);
}

// By a node that has none of it.
START_TEST(half_dead_pack_goes_when_what_is_needed_is_elsewhere)
{
	struct ckpt_collect_done done;
	struct node a = {0}, b = {0};
	struct ckpt_pack pack;

	leave_half_dead(&a, &pack);
	close_node(&a);
	open_node(&b);
	done = collect(&b, &moving);
	check_moved(&done);
	ck_assert_uint_eq(done.condemned.objects, 0); // up to now the log says that it is needed
	done = collect(&b, &moving);                  // its push has not begun
	check_nothing_moved(&done);
	ck_assert_uint_eq(done.condemned.objects, 0);
	push(&b);
	done = collect(&b, &at_once);
	ck_assert_uint_eq(done.condemned.objects, 1);
	ck_assert_uint_eq(done.deleted.objects, 1);
	ck_assert(!has_pack(&b, &pack) && !is_in(&b, "2", &pack));
	done = collect(&b, &moving);
	check_nothing_moved(&done);
	check(b.store, "2", SHARED);
	close_node(&b);
	check_by_another("2", SHARED);
	open_node(&a); // which has the old pack
	check(a.store, "2", SHARED);
	close_node(&a);
}
END_TEST

START_TEST(dry_run_says_it_and_moves_nothing)
{
	const struct ckpt_collect_how dry = {.dry_run = true};
	struct ckpt_collect_done done;
	struct node a = {0}, b = {0};
	struct ckpt_pack pack;

	leave_half_dead(&a, &pack);
	open_node(&b);
	done = collect(&b, &dry);
	check_moved(&done);
	push(&b);
	ck_assert(is_in(&b, "2", &pack));
	close_node(&b);
	close_node(&a);
}
END_TEST

// Not one that is young, or in the trash, or of an older version, and nothing where nobody asks for it.
START_TEST(pack_that_others_may_want_stays)
{
	struct ckpt_collect_done done;
	struct ckpt_step *step;
	struct node a = {0};
	struct ckpt_pack pack;

	leave_half_dead(&a, &pack);
	done = collect(&a, &moving_none_young);
	check_nothing_moved(&done);
	done = collect(&a, &at_once);
	check_nothing_moved(&done);
	step = ckpt_step_find(a.store, "", "2");
	if (_i) {
		ck_ok(ckpt_amend_remove(step, "1"));
	} else {
		ck_ok(ckpt_delete(step));
	}
	push(&a);
	done = collect(&a, &moving);
	check_nothing_moved(&done);
	ck_assert(has_pack(&a, &pack));
	ckpt_step_unref(step);
	close_node(&a);
}
END_TEST

START_TEST(pack_that_is_used_by_half_stays)
{
	struct ckpt_collect_done done;
	struct ckpt_step *one, *two;
	struct node a = {0};

	open_node(&a);
	one = ckpt_packed_together(a.store, "1", "ten bytes.", "as long 2.");
	two = ckpt_packed_together(a.store, "2", "ten bytes.");
	ckpt_step_unref(one);
	ckpt_step_unref(two);
	expire(a.store, "1");
	push(&a);
	done = collect(&a, &moving);
	check_nothing_moved(&done);
	close_node(&a);
}
END_TEST

// Another node names the old pack in a step of its own before that is condemned: it is needed by both, or moved once more.
START_TEST(pack_that_another_step_shares_meanwhile_stays)
{
	struct ckpt_collect_done done;
	struct node a = {0}, b = {0};
	struct ckpt_pack pack;

	leave_half_dead(&a, &pack);
	open_node(&b);
	done = collect(&b, &moving);
	check_moved(&done);
	ckpt_step_unref(ckpt_packed_together(a.store, "3", SHARED, "a third text"));
	ck_assert(is_in(&a, "3", &pack));
	push(&a);
	push(&b);
	done = collect(&b, &at_once);
	ck_assert_uint_eq(done.condemned.objects, 0);
	ck_assert(has_pack(&b, &pack) && !is_in(&b, "2", &pack) && is_in(&b, "3", &pack));
	push(&b);
	done = collect(&b, &moving);
	ck_assert_uint_eq(done.repacked.objects, 1);
	push(&b);
	ck_assert_uint_eq(collect(&b, &at_once).deleted.objects, 1);
	ck_assert(!has_pack(&b, &pack) && !is_in(&b, "3", &pack));
	close_node(&a);
	close_node(&b);
	check_by_another("2", SHARED);
	check_by_another("3", SHARED);
}
END_TEST

// The same behind the CONDEMN: its chunks are put again.
START_TEST(step_that_shares_the_pack_and_comes_too_late_is_put_again)
{
	struct ckpt_collect_done done;
	struct node a = {0}, b = {0};
	struct ckpt_pack pack;

	leave_half_dead(&a, &pack);
	close_node(&a);
	open_node(&b);
	done = collect(&b, &moving);
	check_moved(&done);
	open_node(&a);
	ckpt_step_unref(ckpt_packed_together(a.store, "3", SHARED, "a third text"));
	ck_assert(is_in(&a, "3", &pack));
	push(&b);
	ck_assert_uint_eq(collect(&b, &at_once).deleted.objects, 1);
	push(&a);
	ck_assert(!is_in(&a, "3", &pack));
	close_node(&a);
	close_node(&b);
	check_by_another("2", SHARED);
	check_by_another("3", SHARED);
}
END_TEST

static void check_file(const struct node *n, const char *path, const char *text)
{
	struct ckpt_step *step = ckpt_step_find(n->store, "", "2");

	ck_ok(ckpt_packed_read(step, path, text));
	ckpt_step_unref(step);
}

// Two nodes have a version of their own of one step: that which has other files holds, whichever is the first in the log.
START_TEST(change_of_another_node_holds)
{
	struct ckpt_collect_done done;
	struct node a = {0}, b = {0}, c = {0};
	struct ckpt_step *step;
	struct ckpt_pack pack;

	leave_half_dead(&a, &pack);
	close_node(&a);
	open_node(&a);
	open_node(&b);
	done = collect(&b, &moving);
	check_moved(&done);
	step = ckpt_step_find(a.store, "", "2");
	ck_ok(ckpt_amend_move(step, &(struct ckpt_names){.from = "1", .to = "moved"}));
	ckpt_step_unref(step);
	push(_i ? &a : &b);
	push(_i ? &b : &a);
	for (unsigned i = 0; position(&a) != position(&b); i++) {
		ck_assert_uint_lt(i, 1000);
		ckpt_remote_wake(remote(&a));
		ckpt_remote_wake(remote(&b));
		ckpt_sys.sleep_ns(10000000);
	}
	open_node(&c);
	for (unsigned i = 0; i < 3; i++) {
		const struct node *n = i == 0 ? &a : i == 1 ? &b : &c;

		check_file(n, "0", SHARED);
		check_file(n, "moved", "its own text");
	}
	close_node(&a);
	close_node(&b);
	close_node(&c);
}
END_TEST

// It has no copy of the pack, and nothing was fetched for it: it finds the same bytes in the new one (REMOTE.md R6).
START_TEST(reader_of_the_old_pack_reads_the_new_one)
{
	struct node a = {0}, b = {0}, c = {0};
	struct ckpt_pack pack;
	struct ckpt_step *step;
	struct ckpt_file *f;
	uint64_t end;

	leave_half_dead(&a, &pack);
	close_node(&a);
	open_node(&c);
	step = ckpt_step_find(c.store, "", "2");
	f = ckpt_packed_open(step, "0");
	open_node(&b);
	(void)collect(&b, &moving);
	push(&b);
	end = position(&b);
	ck_assert_uint_eq(collect(&b, &at_once).deleted.objects, 1);
	close_node(&b);
	ck_ok(ckpt_remote_read_to(remote(&c), end)); // not yet that it is condemned
	ck_assert(!is_here(&c, &pack));
	ckpt_packed_check(f, SHARED);
	ckpt_file_close(f);
	ckpt_step_unref(step);
	close_node(&c);
}
END_TEST

// The log has nothing new for a node before it has found that a pack is gone.
static struct {
	struct ckpt_objects_ops ops;
	const struct ckpt_objects_ops *below;
	uint64_t end;
	char pack_key[CKPT_PACK_KEY_MAX];
	bool missed; // atomic
} late;

static int late_get(struct ckpt_objects *o, const char *key, uint64_t offset, void *buf, size_t len, size_t *ret_len,
		    struct ckpt_object *ret_object)
{
	char end[CKPT_LOG_KEY_MAX];

	ckpt_log_key(late.end, end);
	if (!strcmp(key, late.pack_key))
		__atomic_store_n(&late.missed, true, __ATOMIC_RELEASE);
	if (!strncmp(key, "log/", strlen("log/")) && strcmp(key, end) > 0 &&
	    !__atomic_load_n(&late.missed, __ATOMIC_ACQUIRE))
		return -ENOENT;
	return late.below->get(o, key, offset, buf, len, ret_len, ret_object);
}

START_TEST(reader_that_misses_a_pack_reads_the_log)
{
	struct node a = {0}, b = {0}, c = {0};
	struct ckpt_pack pack;
	struct ckpt_step *step;
	struct ckpt_file *f;

	leave_half_dead(&a, &pack);
	close_node(&a);
	open_node(&c);
	late.below = there(&c)->ops;
	late.ops = *late.below;
	late.ops.get = late_get;
	late.end = position(&c);
	ckpt_pack_key(pack.id, late.pack_key);
	there(&c)->ops = &late.ops;
	push(&c); // from now on it reads
	open_node(&b);
	(void)collect(&b, &moving);
	push(&b);
	ck_assert_uint_eq(collect(&b, &at_once).deleted.objects, 1);
	close_node(&b);
	step = ckpt_step_find(c.store, "", "2");
	f = ckpt_packed_open(step, "0");
	ckpt_packed_check(f, SHARED);
	ckpt_file_close(f);
	ckpt_step_unref(step);
	close_node(&c);
}
END_TEST

START_TEST(two_nodes_move_the_same)
{
	struct ckpt_collect_done done;
	struct node a = {0}, b = {0};
	struct ckpt_pack pack;

	leave_half_dead(&a, &pack);
	open_node(&b);
	done = collect(&b, &moving);
	check_moved(&done);
	done = collect(&a, &moving);
	check_moved(&done);
	push(&b);
	push(&a);
	push(&b);
	ck_assert_uint_ge(collect(&b, &by_force).deleted.objects, 1);
	ck_assert(!has_pack(&b, &pack));
	check(a.store, "2", SHARED);
	check(b.store, "2", SHARED);
	close_node(&a);
	close_node(&b);
	check_by_another("2", SHARED);
}
END_TEST

// Wherever it ends, with any answer lost.
START_TEST(one_that_was_cut_off_is_ended_by_the_next)
{
	struct ckpt_fault fault = ckpt_objectsfault_ways[_i];
	struct ckpt_collect_done done;
	struct ckpt_objects *faulty;
	struct node a = {0}, b = {0};
	struct ckpt_pack pack;

	leave_half_dead(&a, &pack);
	close_node(&a);
	for (uint64_t at = 1, fired = 1; fired; at++) {
		int rc;

		memset(&b, 0, sizeof(b));
		open_node(&b);
		ck_ok(ckpt_fault_new(there(&b), &fault, &faulty));
		fault.count = 0;
		fault.at = at;
		rc = ckpt_collect(b.store, &moving, &done);
		ck_assert(!rc || *done.why);
		fired = fault.count >= at;
		fault.at = 0;
		close_node(&b);
		ck_assert(fired || !rc);
		check_by_another("2", SHARED);
	}
	open_node(&b);
	push(&b);
	(void)collect(&b, &by_force);
	ck_assert(!has_pack(&b, &pack));
	close_node(&b);
	check_by_another("2", SHARED);
}
END_TEST

#define MS INT64_C(1000000)

START_TEST(a_mount_does_it_by_itself)
{
	const struct ckpt_collector_pace pace = {
		.period_ns = 50 * MS, .spread_ns = 5 * MS, .retry_ns = 20 * MS, .repack_bytes = UINT64_MAX};
	struct ckpt_collector *collector;
	struct node a = {0}, b = {0};
	struct ckpt_pack pack;

	leave_half_dead(&a, &pack);
	close_node(&a);
	open_node(&b);
	push(&b);
	ck_ok(ckpt_collector_new(b.store, &pace, &collector));
	for (unsigned i = 0; has_pack(&b, &pack); i++) {
		ck_assert_uint_lt(i, 2000);
		ckpt_sys.sleep_ns(10 * MS);
	}
	ckpt_collector_stop(collector);
	ckpt_collector_free(collector);
	close_node(&b);
	check_by_another("2", SHARED);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("collect_repack");
	TCase *tcase = tcase_create("collect_repack");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, half_dead_pack_goes_when_what_is_needed_is_elsewhere);
	tcase_add_test(tcase, dry_run_says_it_and_moves_nothing);
	tcase_add_loop_test(tcase, pack_that_others_may_want_stays, 0, 2);
	tcase_add_test(tcase, pack_that_is_used_by_half_stays);
	tcase_add_test(tcase, pack_that_another_step_shares_meanwhile_stays);
	tcase_add_test(tcase, step_that_shares_the_pack_and_comes_too_late_is_put_again);
	tcase_add_loop_test(tcase, change_of_another_node_holds, 0, 2);
	tcase_add_test(tcase, reader_of_the_old_pack_reads_the_new_one);
	tcase_add_test(tcase, reader_that_misses_a_pack_reads_the_log);
	tcase_add_test(tcase, two_nodes_move_the_same);
	tcase_add_loop_test(tcase, one_that_was_cut_off_is_ended_by_the_next, 0, CKPT_BACKENDFAULT_WAYS);
	tcase_add_test(tcase, a_mount_does_it_by_itself);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
