// The contract of core/objects/objects.h for calls from many threads at once, against every backend and every stack.
#include "tests/support/stacks.h"

#include <pthread.h>
#include <stdio.h>

#define THREADS 4

struct crew {
	struct stand *s;
	pthread_barrier_t start;
	int rounds;
	unsigned won[THREADS];
	unsigned next; // hands out the members' numbers
	bool stop;
};

static unsigned crew_number(struct crew *c)
{
	return __atomic_fetch_add(&c->next, 1, __ATOMIC_RELAXED);
}

static void crew_run(struct crew *c, void *(*body)(void *arg))
{
	pthread_t threads[THREADS];

	pthread_barrier_init(&c->start, NULL, THREADS);
	for (size_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, body, c), 0);
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&c->start);
}

static void *put_rival(void *arg)
{
	struct crew *c = arg;
	unsigned me = crew_number(c);

	for (int i = 0; i < c->rounds; i++) {
		char key[32], text[2] = {(char)('0' + me), '\0'};
		int r;

		snprintf(key, sizeof(key), i % 2 ? "parts/%d/1" : "m/%d", i);
		pthread_barrier_wait(&c->start);
		r = put_text(c->s, key, text);
		if (r == 0) {
			assert_text(c->s, key, text);
			c->won[me]++;
		} else {
			ck_assert_int_eq(r, -EEXIST);
		}
	}
	return NULL;
}

START_TEST(of_many_puts_of_one_key_exactly_one_wins)
{
	STAND(s);
	// Rivals wait a second for each other in SeaweedFS.
	struct crew c = {.s = &s, .rounds = s.is_s3 ? 30 : 200};
	int won = 0;

	crew_run(&c, put_rival);
	for (size_t i = 0; i < THREADS; i++)
		won += (int)c.won[i];
	ck_assert_int_eq(won, c.rounds);
}
END_TEST

static void *put_neighbour(void *arg)
{
	struct crew *c = arg;
	unsigned me = crew_number(c);

	// The folder appears and goes under everybody's hands; nobody's object may.
	for (int i = 0; i < c->rounds; i++) {
		char key[32];

		snprintf(key, sizeof(key), "parts/shared/%u", me);
		ck_ok(put_text(c->s, key, key));
		assert_text(c->s, key, key);
		ck_ok(ckpt_objects_remove(c->s->b, key));
		assert_missing(c->s, key);
	}
	return NULL;
}

START_TEST(puts_and_removes_in_one_folder_do_not_disturb_each_other)
{
	STAND(s);
	struct crew c = {.s = &s, .rounds = 200};

	crew_run(&c, put_neighbour);
	assert_list(&s, "", NULL, "");
}
END_TEST

static void *read_or_write(void *arg)
{
	struct crew *c = arg;
	unsigned me = crew_number(c);
	char buf[20000];

	// Member 0 writes objects of equal letters in changing lengths; the others may see no mixture.
	for (int i = 0; me == 0 && i < c->rounds; i++) {
		size_t len = i % 2 ? 20000 : 700;

		memset(buf, 'a' + i % 26, len);
		ck_ok(ckpt_objects_remove(c->s->b, "m/x"));
		ck_ok(ckpt_objects_put(c->s->b, "m/x", buf, len, NULL));
	}
	if (me == 0)
		__atomic_store_n(&c->stop, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&c->stop, __ATOMIC_ACQUIRE)) {
		struct ckpt_object object;
		size_t got;
		int r = ckpt_objects_get(c->s->b, "m/x", 0, buf, sizeof(buf), &got, &object);

		if (r == -ENOENT)
			continue;
		ck_ok(r);
		ck_assert_uint_eq(got, object.bytes);
		for (size_t at = 0; at < got; at++)
			ck_assert(buf[at] == buf[0]);
	}
	return NULL;
}

START_TEST(a_reader_sees_one_version)
{
	STAND(s);
	struct crew c = {.s = &s, .rounds = 300};

	ck_ok(put_text(&s, "m/x", "aaaa"));
	crew_run(&c, read_or_write);
}
END_TEST

static void *remove_rival(void *arg)
{
	struct crew *c = arg;
	unsigned me = crew_number(c);

	for (int i = 0; i < c->rounds; i++) {
		int r;

		if (me == 0)
			ck_ok(put_text(c->s, "parts/a/1", "start"));
		pthread_barrier_wait(&c->start);
		r = ckpt_objects_remove(c->s->b, "parts/a/1");
		c->won[me] += r == 0;
		ck_assert(r == 0 || r == -ENOENT);
		pthread_barrier_wait(&c->start);
	}
	return NULL;
}

START_TEST(of_many_removes_of_one_object_exactly_one_wins)
{
	STAND(s);
	struct crew c = {.s = &s, .rounds = 100};
	unsigned won = 0;

	crew_run(&c, remove_rival);
	for (size_t i = 0; i < THREADS; i++)
		won += c.won[i];
	if (s.is_s3)
		ck_assert_uint_ge(won, 100);
	else
		ck_assert_uint_eq(won, 100);
}
END_TEST

static void *list_or_change(void *arg)
{
	struct crew *c = arg;
	unsigned me = crew_number(c);

	for (int i = 0; me == 0 && i < c->rounds; i++) {
		ck_ok(put_text(c->s, "parts/passing/1", "x"));
		ck_ok(ckpt_objects_remove(c->s->b, "parts/passing/1"));
	}
	if (me == 0)
		__atomic_store_n(&c->stop, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&c->stop, __ATOMIC_ACQUIRE)) {
		CLEANUP(keys_done) struct keys k = {0};

		ck_ok(ckpt_objects_list(c->s->b, "parts/", NULL, keys_add, &k));
		ck_assert_uint_ge(k.count, 2);
		ck_assert_uint_le(k.count, 3);
		ck_assert_str_eq(k.keys[0], "parts/a/1");
		ck_assert_str_eq(k.keys[k.count - 1], "parts/z/1");
	}
	return NULL;
}

START_TEST(a_list_during_changes_has_all_that_was_there_throughout)
{
	STAND(s);
	struct crew c = {.s = &s, .rounds = 300};

	ck_ok(put_text(&s, "parts/a/1", "x"));
	ck_ok(put_text(&s, "parts/z/1", "x"));
	crew_run(&c, list_or_change);
}
END_TEST

static Suite *backend_suite(void)
{
	Suite *suite = suite_create("backend threads");
	TCase *tcase = tcase_create("threads");
	int stacks = stand_count();

	tcase_add_loop_test(tcase, of_many_puts_of_one_key_exactly_one_wins, 0, stacks);
	tcase_add_loop_test(tcase, puts_and_removes_in_one_folder_do_not_disturb_each_other, 0, stacks);
	tcase_add_loop_test(tcase, a_reader_sees_one_version, 0, stacks);
	tcase_add_loop_test(tcase, of_many_removes_of_one_object_exactly_one_wins, 0, stacks);
	tcase_add_loop_test(tcase, a_list_during_changes_has_all_that_was_there_throughout, 0, stacks);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	return ckpt_suite_run(backend_suite());
}
