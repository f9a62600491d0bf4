// Uploads: several at once, in order, never more than there may be; each once; and what becomes of the rest when one fails.
#include "tests/support/suite.h"

#include "backends/backends.h"
#include "core/base/lock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/remote/upload.h"

#include <pthread.h>
#include <stdio.h>

#define OBJECTS 24
#define BYTES 1000

// A store that is far away: it holds each put until the test lets it go.
static struct far {
	struct ckpt_objects base;
	struct ckpt_objects *below;
	struct ckpt_lock lock;
	pthread_cond_t changed;
	// Guarded by lock.
	unsigned open; // so many more may end; UINT_MAX: all
	unsigned under_way, most, heads;
	char begun[OBJECTS * 2][16]; // keys, in order
	unsigned begun_count;
	unsigned fails_at; // the put with this number, from 1; 0: none
	bool is_wrong;     // a put says that the key is taken, and nothing is there
} far;

// False: it is the one that fails.
static bool begin(const char *key)
{
	LOCK_SCOPE(&far.lock);

	snprintf(far.begun[far.begun_count++], sizeof(far.begun[0]), "%s", key);
	far.under_way++;
	far.most = MAX(far.most, far.under_way);
	pthread_cond_broadcast(&far.changed);
	return far.begun_count != far.fails_at;
}

static void end(void)
{
	LOCK_SCOPE(&far.lock);

	far.under_way--;
}

// Whether it was not called off.
static bool await_open(const struct ckpt_until *until)
{
	LOCK_SCOPE(&far.lock);
	bool goes;

	while (!far.open && !__atomic_load_n(until->cancelled, __ATOMIC_RELAXED))
		(void)ckpt_lock_wait_ns(&far.changed, &far.lock, 1000000);
	goes = far.open;
	far.open -= goes && far.open != UINT_MAX;
	far.under_way--;
	return goes;
}

// A server looks at the bytes that it gets.
static bool is_as_said(const struct ckpt_source *source)
{
	uint8_t data[BYTES], sha256[CKPT_SHA256_LEN];

	ck_assert_uint_le(source->bytes, sizeof(data));
	ck_ok(source->read(source->arg, 0, data, source->bytes));
	ckpt_sha256(data, source->bytes, sha256);
	return !memcmp(sha256, source->sha256, sizeof(sha256));
}

static int far_put_from(struct ckpt_objects *o, const char *key, const struct ckpt_source *source,
			const struct ckpt_until *until, struct ckpt_object *ret_object)
{
	(void)o;
	if (!begin(key)) {
		end();
		return -EACCES;
	}
	if (!await_open(until))
		return -ECANCELED;
	if (far.is_wrong)
		return -EEXIST;
	return is_as_said(source) ? ckpt_objects_put_from(far.below, key, source, until, ret_object) : -EAGAIN;
}

static int far_head(struct ckpt_objects *o, const char *key, struct ckpt_object *ret_object)
{
	(void)o;
	ckpt_lock_take(&far.lock);
	far.heads++;
	ckpt_lock_drop(&far.lock);
	return ckpt_objects_head(far.below, key, ret_object);
}

static const struct ckpt_objects_ops far_ops = {
	.name = "far", .is_far = true, .head = far_head, .put_from = far_put_from};
static const struct ckpt_objects_ops near_ops = {.name = "near", .head = far_head, .put_from = far_put_from};

static const uint8_t no_digest[CKPT_SHA256_LEN];
static struct ckpt_objects *here;
static struct ckpt_uploads *uploads;

static void name(unsigned i, char ret_key[16])
{
	snprintf(ret_key, 16, "packs/%02u", i);
}

static void setup(void)
{
	char data[BYTES], key[16];

	ck_ok(ckpt_mem_new(&here));
	ck_ok(ckpt_mem_new(&far.below));
	far.base.ops = &far_ops;
	ckpt_lock_init(&far.lock, CKPT_LOCK_LEAF);
	pthread_cond_init(&far.changed, NULL);
	for (unsigned i = 0; i < OBJECTS; i++) {
		memset(data, (int)i, sizeof(data));
		name(i, key);
		ck_ok(ckpt_objects_put(here, key, data, sizeof(data), NULL));
	}
}

static void teardown(void)
{
	ckpt_uploads_free(uploads);
	ckpt_objects_close(here);
	ckpt_objects_close(far.below);
}

// A pack younger than tried_ns is not asked about.
static void make_uploads(int64_t tried_ns)
{
	const struct ckpt_uploads_of of = {.here = here, .there = &far.base, .tried_ns = tried_ns};

	ck_ok(ckpt_uploads_new(&of, &uploads));
}

static void add(unsigned from, unsigned end)
{
	uint8_t sha256[CKPT_SHA256_LEN];
	char data[BYTES], key[16];

	for (unsigned i = from; i < end; i++) {
		memset(data, (int)i, sizeof(data));
		ckpt_sha256(data, sizeof(data), sha256);
		name(i, key);
		ck_ok(ckpt_uploads_add(uploads, key, sha256, false));
	}
}

static void let(unsigned count)
{
	LOCK_SCOPE(&far.lock);

	far.open = count;
	pthread_cond_broadcast(&far.changed);
}

static void await_begun(unsigned count)
{
	LOCK_SCOPE(&far.lock);

	for (int tries = 0; far.begun_count < count; tries++) {
		ck_assert_int_lt(tries, 10000);
		(void)ckpt_lock_wait_ns(&far.changed, &far.lock, 1000000);
	}
}

static void assert_sent(unsigned from, unsigned end)
{
	char data[BYTES], want[BYTES], key[16];
	size_t len;

	for (unsigned i = from; i < end; i++) {
		name(i, key);
		memset(want, (int)i, sizeof(want));
		ck_ok(ckpt_objects_get(far.below, key, 0, data, sizeof(data), &len, NULL));
		ck_assert_uint_eq(len, sizeof(data));
		ck_assert_mem_eq(data, want, sizeof(data));
	}
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

static void assert_each_begun_once(unsigned count)
{
	ck_assert_uint_eq(far.begun_count, count);
	qsort(far.begun, count, sizeof(far.begun[0]), by_name);
	for (unsigned i = 1; i < count; i++)
		ck_assert_str_ne(far.begun[i - 1], far.begun[i]);
}

// A store has said "taken" of a key that is free. The pack would be missed when it is read.
START_TEST(what_is_not_there_was_not_sent)
{
	far.is_wrong = true;
	let(UINT_MAX);
	make_uploads(0);
	add(0, 1);
	ck_error(ckpt_uploads_wait(uploads), EAGAIN);
}
END_TEST

START_TEST(so_many_are_under_way_and_no_more)
{
	make_uploads(0);
	add(0, OBJECTS);
	await_begun(CKPT_UPLOADS_AT_ONCE);
	ckpt_sys.sleep_ns(20000000); // for one more
	ck_assert_uint_eq(far.begun_count, CKPT_UPLOADS_AT_ONCE);
	let(1);
	await_begun(CKPT_UPLOADS_AT_ONCE + 1);
	let(UINT_MAX);
	ck_ok(ckpt_uploads_wait(uploads));
	ck_assert_uint_eq(far.most, CKPT_UPLOADS_AT_ONCE);
	ck_assert_uint_eq(far.heads, 0);
	assert_each_begun_once(OBJECTS);
	assert_sent(0, OBJECTS);
}
END_TEST

// The order of what is begun is that of the calls, as far as threads are begun in order: the first of each batch comes first.
START_TEST(they_are_begun_in_order)
{
	char key[16];

	make_uploads(0);
	for (unsigned i = 0; i < OBJECTS; i++) {
		add(i, i + 1);
		if (i < CKPT_UPLOADS_AT_ONCE)
			await_begun(i + 1);
	}
	for (unsigned i = CKPT_UPLOADS_AT_ONCE; i < OBJECTS; i++) {
		let(1);
		await_begun(i + 1);
	}
	for (unsigned i = 0; i < OBJECTS; i++) {
		name(i, key);
		ck_assert_str_eq(far.begun[i], key);
	}
	let(UINT_MAX);
	ck_ok(ckpt_uploads_wait(uploads));
}
END_TEST

START_TEST(what_is_added_again_is_not_sent_again)
{
	make_uploads(0);
	let(UINT_MAX);
	add(0, 4);
	add(0, 4);
	ck_ok(ckpt_uploads_wait(uploads));
	add(2, 6);
	ck_ok(ckpt_uploads_wait(uploads));
	assert_each_begun_once(6);
	assert_sent(0, 6);
}
END_TEST

// Each of the first ones in turn: its error is told, what was under way ends, nothing else is begun.
START_TEST(after_a_failure_none_is_begun)
{
	make_uploads(0);
	far.fails_at = (unsigned)_i;
	add(0, OBJECTS);
	await_begun((unsigned)_i);
	ckpt_sys.sleep_ns(20000000); // for one more
	let(UINT_MAX);
	ck_error(ckpt_uploads_wait(uploads), EACCES);
	ck_assert_uint_le(far.begun_count, CKPT_UPLOADS_AT_ONCE);
	ck_assert_uint_eq(far.under_way, 0);
	ck_error(ckpt_uploads_wait(uploads), EACCES);
	ckpt_uploads_free(uploads);
	// Another attempt sends the rest.
	far.fails_at = far.begun_count = 0;
	make_uploads(INT64_MAX);
	add(0, OBJECTS);
	ck_ok(ckpt_uploads_wait(uploads));
	assert_sent(0, OBJECTS);
}
END_TEST

START_TEST(what_may_be_there_is_asked_about_and_not_sent_again)
{
	make_uploads(INT64_MAX);
	let(UINT_MAX);
	add(0, 5);
	ck_ok(ckpt_uploads_wait(uploads));
	ck_assert_uint_eq(far.heads, 5);
	ckpt_uploads_free(uploads);
	make_uploads(INT64_MAX);
	add(0, 6);
	ck_ok(ckpt_uploads_wait(uploads));
	ck_assert_uint_eq(far.heads, 11);
	assert_each_begun_once(6);
}
END_TEST

// It is there though its name says that it was never sent: a clock was set back.
START_TEST(one_that_is_there_all_the_same_counts_as_sent)
{
	make_uploads(0);
	let(UINT_MAX);
	add(0, 1);
	ck_ok(ckpt_uploads_wait(uploads));
	ckpt_uploads_free(uploads);
	make_uploads(0);
	add(0, 1);
	ck_ok(ckpt_uploads_wait(uploads));
	assert_sent(0, 1);
}
END_TEST

START_TEST(one_that_only_the_remote_has_is_there)
{
	make_uploads(0);
	ck_ok(ckpt_objects_put(far.below, "packs/theirs", "x", 1, NULL));
	ck_ok(ckpt_uploads_add(uploads, "packs/theirs", NULL, false));
	ck_ok(ckpt_uploads_wait(uploads));
	ck_assert_uint_eq(far.begun_count, 0);
}
END_TEST

START_TEST(one_that_is_damaged_here_is_told_from_a_failure_of_the_remote)
{
	make_uploads(INT64_MAX);
	let(UINT_MAX);
	ck_ok(ckpt_uploads_add(uploads, "packs/00", no_digest, false));
	ck_error(ckpt_uploads_wait(uploads), EBADMSG);
	ck_assert(ckpt_uploads_failed_here(uploads));
	ckpt_uploads_free(uploads);
	make_uploads(INT64_MAX);
	far.fails_at = far.begun_count + 1;
	add(1, 2);
	ck_error(ckpt_uploads_wait(uploads), EACCES);
	ck_assert(!ckpt_uploads_failed_here(uploads));
}
END_TEST

// As long as nobody needs it.
START_TEST(one_that_was_removed_meanwhile_is_forgotten)
{
	make_uploads(0);
	let(UINT_MAX);
	ck_ok(ckpt_uploads_add(uploads, "packs/gone", NULL, true));
	add(0, 3);
	ck_ok(ckpt_uploads_wait(uploads));
	assert_sent(0, 3);
	ck_ok(ckpt_uploads_add(uploads, "packs/gone", NULL, false));
	ck_error(ckpt_uploads_wait(uploads), ENOENT);
}
END_TEST

START_TEST(the_end_calls_off_what_is_under_way)
{
	int64_t began_ns = ckpt_sys.mono_ns();
	struct ckpt_object object;

	make_uploads(0);
	add(0, OBJECTS);
	await_begun(CKPT_UPLOADS_AT_ONCE);
	ckpt_uploads_free(uploads);
	uploads = NULL;
	ck_assert_int_lt(ckpt_sys.mono_ns() - began_ns, 2000000000);
	ck_assert_uint_eq(far.begun_count, CKPT_UPLOADS_AT_ONCE);
	ck_error(ckpt_objects_head(far.below, "packs/00", &object), ENOENT);
}
END_TEST

START_TEST(where_answers_come_at_once_they_go_one_by_one)
{
	far.base.ops = &near_ops;
	make_uploads(0);
	let(UINT_MAX);
	add(0, OBJECTS);
	ck_assert_uint_eq(far.begun_count, 0);
	ck_ok(ckpt_uploads_wait(uploads));
	ck_assert_uint_eq(far.most, 1);
	assert_each_begun_once(OBJECTS);
	assert_sent(0, OBJECTS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("uploads");
	TCase *tcase = tcase_create("uploads");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, so_many_are_under_way_and_no_more);
	tcase_add_test(tcase, what_is_not_there_was_not_sent);
	tcase_add_test(tcase, they_are_begun_in_order);
	tcase_add_test(tcase, what_is_added_again_is_not_sent_again);
	tcase_add_loop_test(tcase, after_a_failure_none_is_begun, 1, CKPT_UPLOADS_AT_ONCE + 1);
	tcase_add_test(tcase, what_may_be_there_is_asked_about_and_not_sent_again);
	tcase_add_test(tcase, one_that_is_there_all_the_same_counts_as_sent);
	tcase_add_test(tcase, one_that_only_the_remote_has_is_there);
	tcase_add_test(tcase, one_that_is_damaged_here_is_told_from_a_failure_of_the_remote);
	tcase_add_test(tcase, one_that_was_removed_meanwhile_is_forgotten);
	tcase_add_test(tcase, the_end_calls_off_what_is_under_way);
	tcase_add_test(tcase, where_answers_come_at_once_they_go_one_by_one);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
