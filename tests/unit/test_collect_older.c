// Garbage collection on a remote: objects that are held, or needed by older versions, by open files and by what waits to be pushed.
#include "tests/support/collecting.h"
#include "tests/support/hooks.h"
#include "tests/support/remote_log.h"

#include "core/save/amend.h"
#include "core/save/amend_move.h"
#include "core/save/limit.h"
#include "core/save/pin.h"

#include <fcntl.h>
#include <sys/stat.h>

// --- Held, and older ----------------------------------------------------------------------------------------------------

static void age_entry(uint64_t seq, int64_t ns)
{
	struct timespec times[2] = {0};
	char path[PATH_MAX + 32];

	snprintf(path, sizeof(path), "%s/log/%016llx", remote_dir, (unsigned long long)seq);
	times[0].tv_sec = times[1].tv_sec = (ckpt_sys.now_ns() - ns) / 1000000000;
	ck_ok(utimensat(AT_FDCWD, path, times, 0));
}

static int count_held(void *arg, const struct ckpt_state *state)
{
	const struct ckpt_named *const *all = ckpt_state_named_objects(state, arg);
	int held = 0;

	for (size_t i = 0; i < *(size_t *)arg; i++)
		held += *all[i]->step != '\0';
	return held;
}

static size_t held(const struct node *n)
{
	size_t all;

	return (size_t)ckpt_journal_look(n->store->journal, count_held, &all);
}

START_TEST(held_objects_stay_for_some_days_or_until_their_step_is_there)
{
	uint8_t id[CKPT_SHA256_LEN] = {7};
	struct ckpt_act hold = {.kind = CKPT_ACT_HOLD, .pack_count = 1, .objects = id};
	struct ckpt_collect_done done;
	struct node a = {0};
	uint64_t end;

	open_node(&a);
	save(a.store, "2", "another text");
	push(&a);
	put_orphan(&a, 7, 10);
	end = position(&a);
	ckpt_remote_log_session(end + 2, hold.step); // which the entry behind it saves
	ckpt_remote_log_add(there(&a), a.store->id, &hold);
	close_node(&a);
	open_node(&a);
	done = collect(&a, &by_force);
	ck_assert_uint_eq(done.condemned.objects, 0);
	ck_assert_uint_eq(done.live.objects, 2);
	ck_assert_uint_eq(held(&a), 1);
	if (_i)
		age_entry(position(&a), CKPT_COLLECT_HOLD_NS + INT64_C(60000000000));
	else
		ckpt_remote_log_make(there(&a), a.store->id, end + 2, true);
	close_node(&a);
	open_node(&a);
	ck_assert_uint_eq(held(&a), _i);
	if (_i)
		ck_assert_uint_eq(collect(&a, &by_force).deleted.objects, 1);
	close_node(&a);
	open_node(&a);
	ck_assert_uint_eq(held(&a), 0); // nor do its names stay in the state for ever
	close_node(&a);
}
END_TEST

START_TEST(older_versions_stay_until_they_expire)
{
	struct ckpt_pack removed, kept;
	struct ckpt_chunk chunk;
	struct ckpt_step *step;
	struct node a = {0};

	open_node(&a);
	step = ckpt_packed_step(a.store, "1", TEXT, "the text that it has now");
	removed = ckpt_packed_place(step, "0", &chunk);
	kept = ckpt_packed_place(step, "1", &chunk);
	push(&a);
	ck_ok(ckpt_amend_remove(step, "0"));
	push(&a);
	ck_assert_uint_eq(collect(&a, &by_force).condemned.objects, 0);
	a.store->settings.trash_ns = 0;
	// Up to now it could be restored, by what is not in the log yet.
	ck_assert_uint_eq(collect(&a, &an_hour).condemned.objects, 0);
	ck_assert_uint_eq(collect(&a, &by_force).deleted.objects, 1);
	ck_assert(!has_pack(&a, &removed) && has_pack(&a, &kept));
	ckpt_step_unref(step);
	close_node(&a);
}
END_TEST

// A reader that has an older version open reads on for as long as the delay is, and then from the copy that its node has made.
START_TEST(reader_of_what_has_gone_reads_on)
{
	struct node a = {0}, b = {0}, c = {0};
	struct ckpt_pack pack;
	struct ckpt_step *step;
	struct ckpt_file *f;

	open_node(&a);
	save(a.store, "1", TEXT);
	save(a.store, "2", "another text");
	pack = place(a.store, "1");
	push(&a);
	open_node(&b);
	step = ckpt_step_find(b.store, "", "1");
	f = ckpt_packed_open(step, "0");
	expire(a.store, "1");
	push(&a);
	open_node(&c);
	if (_i)
		push(&b); // from now on it reads
	ck_assert_uint_eq(collect(&c, &an_hour).waiting.objects, 1);
	for (unsigned i = 0; _i && !last_condemn(&b); i++) {
		ck_assert_uint_lt(i, 1000);
		ckpt_remote_wake(remote(&b));
		ckpt_sys.sleep_ns(10000000);
	}
	for (unsigned i = 0; _i && !is_here(&b, &pack); i++) {
		ck_assert_uint_lt(i, 1000);
		ckpt_sys.sleep_ns(10000000);
	}
	if (_i) {
		ck_ok(ckpt_remote_read_to(remote(&c), position(&b)));
		ck_assert_uint_eq(collect(&c, &at_once).deleted.objects, 1);
	}
	ckpt_packed_check(f, TEXT);
	ckpt_file_close(f);
	ckpt_step_unref(step);
	close_node(&a);
	close_node(&b);
	close_node(&c);
}
END_TEST

// A step that waits on b needs a pack of the remote that nobody else needs any more.
static void leave_waiting(struct node *a, struct node *b, struct ckpt_pack *ret_pack)
{
	struct ckpt_step *step;
	struct ckpt_chunk chunk;

	open_node(a);
	step = ckpt_packed_step(a->store, "1", TEXT, "another text");
	*ret_pack = ckpt_packed_place(step, "1", &chunk);
	ckpt_step_unref(step);
	push(a);
	open_node(b);
	ckpt_remote_ready(remote(b));
	step = ckpt_step_find(b->store, "", "1");
	ck_ok(ckpt_amend_move(step, &(struct ckpt_names){.from = "1", .to = "moved"}));
	ckpt_step_unref(step);
	expire(a->store, "1");
	push_and_close(a);
}

// The only step; a reference.
static struct ckpt_step *only_step(const struct node *n)
{
	struct ckpt_step **steps, *step;
	size_t count;

	ck_ok(ckpt_step_list(n->store, NULL, 1u << CKPT_STEP_COMMITTED, &steps, &count));
	ck_assert_uint_eq(count, 1);
	step = ckpt_step_ref(*steps);
	ckpt_step_list_free(steps, count);
	return step;
}

// A change that is not pushed yet needs chunks of what all others have given up. Of the step that is gone it is all that stays.
START_TEST(pack_that_a_waiting_step_needs_is_fetched)
{
	struct node a = {0}, b = {0}, c = {0}, d = {0};
	struct ckpt_step *step;
	struct ckpt_pack pack;
	struct ckpt_file *f;

	leave_waiting(&a, &b, &pack);
	open_node(&c);
	ck_assert_uint_ge(collect(&c, &an_hour).waiting.objects, 1);
	ck_ok(ckpt_remote_read_to(remote(&b), position(&c) + 1));
	ck_assert(is_here(&b, &pack));
	collect(&c, &at_once);
	ck_assert(!has_pack(&c, &pack));
	close_node(&c);
	push_and_close(&b);
	open_node(&d);
	step = only_step(&d);
	f = ckpt_packed_open(step, "moved");
	ckpt_packed_check(f, "another text");
	ckpt_file_close(f);
	ckpt_step_unref(step);
	close_node(&d);
}
END_TEST

static int little_room(int fd, uint64_t *ret_free, uint64_t *ret_total)
{
	(void)fd;
	*ret_free = 1000;
	*ret_total = UINT64_C(1) << 40;
	return 0;
}

// Nothing is fetched where the disk is full, or the limit is reached: a save needs the room. It is fetched when there is some.
START_TEST(pack_that_a_waiting_step_needs_is_fetched_when_there_is_room)
{
	int (*real_room)(int fd, uint64_t *ret_free, uint64_t *ret_total) = ckpt_hooks.room;
	struct node a = {0}, b = {0}, c = {0};
	struct ckpt_pack pack;

	leave_waiting(&a, &b, &pack);
	open_node(&c);
	if (_i) {
		b.store->settings.work_limit = 1;
		ck_ok(ckpt_limit_new(b.store, ckpt_limit_of(b.store)));
	} else {
		ckpt_hook_set(room, little_room);
	}
	ck_assert_uint_ge(collect(&c, &an_hour).waiting.objects, 1);
	ck_ok(ckpt_remote_read_to(remote(&b), position(&c) + 1));
	ck_assert(!is_here(&b, &pack));
	ck_assert_uint_eq(ckpt_save_errors(b.store, "no room for"), 1);
	if (_i)
		ckpt_limit_free(TAKE_PTR(*ckpt_limit_of(b.store)));
	else
		ckpt_hook_set(room, real_room);
	(void)collect(&c, &(struct ckpt_collect_how){.delay_ns = CKPT_COLLECT_DELAY_NS, .leaves_word = true});
	ck_ok(ckpt_remote_read_to(remote(&b), position(&c) + 1));
	ck_assert(is_here(&b, &pack));
	close_node(&b);
	close_node(&c);
}
END_TEST

// A get of a pack does not come back before this is set.
static bool released;
static const struct ckpt_objects_ops *real_ops;

static int held_get(struct ckpt_objects *o, const char *key, uint64_t offset, void *buf, size_t len, size_t *ret_len,
		    struct ckpt_object *ret_object)
{
	while (!strncmp(key, "packs/", strlen("packs/")) && !__atomic_load_n(&released, __ATOMIC_ACQUIRE))
		ckpt_sys.sleep_ns(1000000);
	return real_ops->get(o, key, offset, buf, len, ret_len, ret_object);
}

START_TEST(log_is_read_on_while_packs_are_fetched)
{
	struct node a = {0}, b = {0}, c = {0};
	struct ckpt_objects_ops ops;
	struct ckpt_step *step;
	struct ckpt_file *f;

	open_node(&a);
	save(a.store, "1", TEXT);
	save(a.store, "2", "another text");
	push(&a);
	open_node(&b);
	step = ckpt_step_find(b.store, "", "1");
	f = ckpt_packed_open(step, "0");
	expire(a.store, "1");
	push(&a);
	push(&b);
	real_ops = there(&b)->ops;
	ops = *real_ops;
	ops.get = held_get;
	there(&b)->ops = &ops;
	open_node(&c);
	ck_assert_uint_eq(collect(&c, &an_hour).waiting.objects, 1);
	save(a.store, "3", "a third text");
	push(&a);
	for (unsigned i = 0; position(&b) < position(&a); i++) {
		ck_assert_uint_lt(i, 1000);
		ckpt_remote_wake(remote(&b));
		ckpt_sys.sleep_ns(10000000);
	}
	__atomic_store_n(&released, true, __ATOMIC_RELEASE);
	ckpt_packed_check(f, TEXT);
	ckpt_file_close(f);
	ckpt_step_unref(step);
	close_node(&a);
	close_node(&b);
	close_node(&c);
}
END_TEST

// Nothing keeps a version that was over: neither a pin nor a longer time of the trash has it back.
START_TEST(pin_of_a_step_whose_older_version_has_gone_keeps_no_garbage)
{
	struct ckpt_step *step;
	struct node a = {0}, b = {0};
	size_t manifests;

	open_node(&a);
	step = ckpt_save_one(a.store, CKPT_SAVE_LARGE); // its manifest is an object
	push(&a);
	ck_ok(ckpt_amend_remove(step, "config.json"));
	push(&a);
	manifests = count(&a, "m/");
	a.store->settings.trash_ns = 0;
	collect(&a, &by_force);
	ck_assert_uint_lt(count(&a, "m/"), manifests);
	ck_ok(ckpt_pin(step, true));
	ckpt_step_unref(step);
	push_and_close(&a);
	open_node(&b); // which has nothing of it
	put_orphan(&b, 7, 100);
	ck_assert_uint_eq(collect(&b, &by_force).deleted.objects, 1);
	close_node(&b);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("collect_older");
	TCase *tcase = tcase_create("collect_older");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_loop_test(tcase, held_objects_stay_for_some_days_or_until_their_step_is_there, 0, 2);
	tcase_add_test(tcase, older_versions_stay_until_they_expire);
	tcase_add_loop_test(tcase, reader_of_what_has_gone_reads_on, 0, 2);
	tcase_add_test(tcase, pack_that_a_waiting_step_needs_is_fetched);
	tcase_add_loop_test(tcase, pack_that_a_waiting_step_needs_is_fetched_when_there_is_room, 0, 2);
	tcase_add_test(tcase, log_is_read_on_while_packs_are_fetched);
	tcase_add_test(tcase, pin_of_a_step_whose_older_version_has_gone_keeps_no_garbage);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
