// Garbage collection on a remote beside nodes that push: nothing that anybody names meanwhile is lost (REMOTE.md P4, G3 to G5).
#include "tests/support/collecting.h"
#include "tests/support/hooks.h"
#include "tests/support/remote_log.h"

#include "core/remote/hold.h"
#include "core/remote/snapshots.h"
#include "core/remote/tree.h"

#include <fcntl.h>
#include <unistd.h>

// Between the look at what is needed and the CONDEMN (G3 and G4). Its entry comes first: the pack is needed.
START_TEST(pack_that_is_named_while_it_is_condemned_stays)
{
	struct node a = {0}, b = {0};
	struct ckpt_collect_done done;
	struct ckpt_pack pack;

	leave_garbage(&a, &pack);
	open_node(&b);
	save_again(&a);
	ck_assert_mem_eq(place(a.store, "3").id, pack.id, sizeof(pack.id));
	hook_put(&b, "log/", push_of, &a);
	put_orphan(&b, 7, 10);
	done = collect(&b, &at_once);
	unhook(&b);
	ck_assert_uint_eq(done.condemned.objects, 1);
	ck_assert_uint_eq(done.deleted.objects, 1);
	ck_assert(has_pack(&b, &pack));
	close_node(&a);
	close_node(&b);
	check_by_another("3", TEXT);
}
END_TEST

// Between the CONDEMN and the removal, or behind that (G4 and G5). Who pushes then has read the CONDEMN.
START_TEST(pack_that_was_condemned_is_put_under_another_name)
{
	struct node a = {0}, b = {0};
	struct ckpt_pack pack;

	leave_garbage(&a, &pack);
	save_again(&a);
	open_node(&b);
	ck_assert_uint_eq(collect(&b, _i ? &at_once : &an_hour).condemned.objects, 1);
	ck_assert_int_eq(has_pack(&b, &pack), !_i);
	push(&a);
	ck_assert_mem_ne(place(a.store, "3").id, pack.id, sizeof(pack.id));
	close_node(&b);
	open_node(&b);
	ck_assert_uint_eq(collect(&b, &at_once).deleted.objects, !_i);
	ck_assert(!has_pack(&b, &pack));
	check(a.store, "3", TEXT);
	close_node(&a);
	close_node(&b);
	check_by_another("3", TEXT);
}
END_TEST

// The same of a step whose raw files are gone: its chunks are moved as they are.
START_TEST(chunks_of_a_cold_step_are_moved)
{
	struct node a = {0}, b = {0};
	struct ckpt_step *step;
	struct ckpt_pack pack;

	leave_garbage(&a, &pack);
	save_again(&a);
	step = ckpt_step_find(a.store, "", "3");
	ckpt_packed_cool(step);
	ck_assert(!ckpt_packed_is_raw(step, "0"));
	ckpt_step_unref(step);
	open_node(&b);
	collect(&b, &at_once);
	push(&a);
	ck_assert_mem_ne(place(a.store, "3").id, pack.id, sizeof(pack.id));
	close_node(&a);
	close_node(&b);
	check_by_another("3", TEXT);
}
END_TEST

// Though its chunks are on this node, where they would be found.
START_TEST(new_step_shares_no_condemned_pack)
{
	struct node a = {0}, b = {0};
	struct ckpt_pack pack;

	leave_garbage(&a, &pack);
	open_node(&b);
	collect(&b, &an_hour);
	close_node(&b);
	save_again(&a);
	ck_assert(ckpt_packed_is_there(a.store, &pack));
	ck_assert_mem_ne(place(a.store, "3").id, pack.id, sizeof(pack.id));
	close_node(&a);
}
END_TEST

// Over the CONDEMN a node may jump by a snapshot.
START_TEST(who_jumps_knows_what_is_condemned)
{
	struct node a = {0}, b = {0};
	struct ckpt_pack pack;
	uint64_t end;

	leave_garbage(&a, &pack);
	save_again(&a);
	close_node(&a);
	open_node(&b);
	collect(&b, &at_once);
	ckpt_remote_log_make(there(&b), b.store->id, 300, true);
	close_node(&b);
	open_node(&b);
	ck_ok(ckpt_snapshots_put(b.store, true));
	end = position(&b);
	open_node(&a);
	ck_assert_uint_eq(position(&a), end);
	ck_assert_uint_lt(ckpt_journal_position(a.store->journal).seq, 100); // it has jumped
	push(&a);
	ck_assert_mem_ne(place(a.store, "3").id, pack.id, sizeof(pack.id));
	close_node(&a);
	close_node(&b);
}
END_TEST

// A manifest that is an object is condemned by its name, too: the same files have another one then.
START_TEST(manifest_that_was_condemned_has_another_name)
{
	struct node a = {0}, b = {0};
	struct ckpt_act condemn = {.kind = CKPT_ACT_CONDEMN, .manifest_count = 1};
	CLEANUP_VERSION struct ckpt_version *before = NULL, *after = NULL;
	struct ckpt_tier_done done;
	struct ckpt_step *step;

	open_node(&b);
	open_node(&a);
	step = ckpt_save_one(a.store, CKPT_SAVE_LARGE);
	ck_ok(ckpt_cool_sealed(step, &(struct ckpt_tier_how){.keeps_raw = true, .pack_bytes = 1 << 20}, &done));
	before = ckpt_step_version(step);
	ck_assert_uint_gt(before->is.manifest_bytes, CKPT_MANIFEST_EMBED_MAX);
	condemn.objects = before->is.manifest_sha256;
	ckpt_remote_log_add(there(&a), a.store->id, &condemn);
	push(&a);
	after = ckpt_step_version(step);
	ck_assert_mem_ne(before->is.manifest_sha256, after->is.manifest_sha256, CKPT_SHA256_LEN);
	ckpt_save_check_files(step, CKPT_SAVE_LARGE);
	ckpt_step_unref(step);
	collect(&a, &at_once);
	close_node(&a);
	close_node(&b);
	open_node(&b);
	check_saved(b.store, LARGE);
	close_node(&b);
}
END_TEST

#define LARGE_BYTES 300000

static void put_plain(const struct node *n, const char *name, uint8_t with)
{
	CLEANUP_FREE uint8_t *data = malloc(LARGE_BYTES);
	CLEANUP_FD int fd = openat(n->store->tree_fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	for (size_t i = 0; i < LARGE_BYTES; i++)
		data[i] = (uint8_t)(i * 31 % 251 + with);
	ck_assert_int_eq(write(fd, data, LARGE_BYTES), LARGE_BYTES);
}

static void check_plain(const struct node *n, const char *name, uint8_t with)
{
	CLEANUP_FREE uint8_t *data = calloc(1, LARGE_BYTES + 1);
	CLEANUP_FD int fd = openat(n->store->tree_fd, name, O_RDONLY);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(read(fd, data, LARGE_BYTES + 1), LARGE_BYTES);
	for (size_t i = 0; i < LARGE_BYTES; i++)
		ck_assert_uint_eq(data[i], (uint8_t)(i * 31 % 251 + with));
}

// A large plain file is put, and before its entry is there all of it is condemned, and gone.
START_TEST(plain_file_that_was_condemned_is_put_again)
{
	struct node a = {0}, b = {0};
	struct from from = {.node = &b};

	open_node(&a);
	save(a.store, "2", "another text");
	push(&a);
	open_node(&b);
	hook_put(&a, "log/", collect_from, &from);
	put_plain(&a, "events", 7);
	ckpt_tree_touch(ckpt_remote_tree(remote(&a)));
	for (unsigned i = 0; __atomic_load_n(&hook.act, __ATOMIC_ACQUIRE); i++) {
		ck_assert_uint_lt(i, 2000);
		ckpt_sys.sleep_ns(10000000);
	}
	push(&a);
	unhook(&a);
	ck_assert_uint_eq(from.done.deleted.objects, 2);
	close_node(&a);
	close_node(&b);
	open_node(&b);
	ck_assert_uint_eq(collect(&b, &at_once).live.objects, 3); // its pack and manifest are needed
	check_plain(&b, "events", 7);
	close_node(&b);
}
END_TEST

static int64_t passed_ns; // while something was put
static int64_t (*real_mono_ns)(void);

static int64_t later_mono_ns(void)
{
	return real_mono_ns() + __atomic_load_n(&passed_ns, __ATOMIC_RELAXED);
}

static void pass_time(void *arg)
{
	(void)arg;
	__atomic_add_fetch(&passed_ns, CKPT_HOLD_NS, __ATOMIC_RELAXED);
}

static unsigned count_holds(const struct node *n)
{
	unsigned holds = 0;

	for (uint64_t seq = 1; seq <= position(n); seq++) {
		struct ckpt_log_entry entry;
		struct ckpt_operation op;
		CLEANUP_FREE void *data = NULL;
		char key[CKPT_LOG_KEY_MAX];
		size_t len, cursor = 0;

		ckpt_log_key(seq, key);
		ck_ok(ckpt_objects_get_all(there(n), key, 1u << 20, &data, &len, NULL));
		ck_ok(ckpt_log_entry_decode(data, len, &entry));
		while (ckpt_log_entry_next(&entry, &cursor, &op))
			holds += op.kind == CKPT_ACT_HOLD;
	}
	return holds;
}

START_TEST(push_that_takes_long_holds_what_it_has_put)
{
	struct node a = {0};

	real_mono_ns = ckpt_hooks.mono_ns;
	ckpt_hook_set(mono_ns, later_mono_ns);
	open_node(&a);
	ckpt_step_unref(ckpt_packed_step(a.store, "1", TEXT, "another text", "a third one"));
	hook_put(&a, "packs/", pass_time, NULL);
	push(&a);
	unhook(&a);
	ck_assert_uint_eq(count_holds(&a), 1);
	close_node(&a);
	check_by_another("1", TEXT);
}
END_TEST

// An entry that somebody has put who did not look, whatever it says.
START_TEST(needed_objects_are_not_removed_though_they_are_condemned)
{
	struct ckpt_act condemn = {.kind = CKPT_ACT_CONDEMN, .pack_count = 1};
	struct node a = {0};
	struct ckpt_pack pack;

	open_node(&a);
	save(a.store, "2", "another text");
	pack = place(a.store, "2");
	push(&a);
	condemn.objects = pack.id;
	ckpt_remote_log_add(there(&a), a.store->id, &condemn);
	close_node(&a);
	open_node(&a);
	ck_assert_uint_eq(collect(&a, &by_force).deleted.objects, 0);
	ck_assert(has_pack(&a, &pack));
	close_node(&a);
}
END_TEST

START_TEST(two_collections_at_once_remove_the_same)
{
	struct node a = {0}, b = {0}, c = {0};
	struct from from = {.node = &c};
	struct ckpt_collect_done done;
	struct ckpt_pack pack;

	leave_garbage(&a, &pack);
	open_node(&b);
	open_node(&c);
	hook_put(&b, "log/", collect_from, &from);
	done = collect(&b, &at_once);
	unhook(&b);
	ck_assert_uint_eq(from.done.condemned.objects, 1);
	ck_assert_uint_eq(from.done.deleted.objects, 1);
	ck_assert_uint_eq(done.condemned.objects, 0);
	ck_assert(!has_pack(&b, &pack));
	close_node(&b);
	close_node(&c);
	check_by_another("2", "another text");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("collect_beside");
	TCase *tcase = tcase_create("collect_beside");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, pack_that_is_named_while_it_is_condemned_stays);
	tcase_add_loop_test(tcase, pack_that_was_condemned_is_put_under_another_name, 0, 2);
	tcase_add_test(tcase, new_step_shares_no_condemned_pack);
	tcase_add_test(tcase, chunks_of_a_cold_step_are_moved);
	tcase_add_test(tcase, who_jumps_knows_what_is_condemned);
	tcase_add_test(tcase, manifest_that_was_condemned_has_another_name);
	tcase_add_test(tcase, plain_file_that_was_condemned_is_put_again);
	tcase_add_test(tcase, push_that_takes_long_holds_what_it_has_put);
	tcase_add_test(tcase, needed_objects_are_not_removed_though_they_are_condemned);
	tcase_add_test(tcase, two_collections_at_once_remove_the_same);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
