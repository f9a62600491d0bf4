// The log of a store: several nodes append to it, through a store whose answers are lost, late or wrong.
#include "tests/support/suite.h"

#include "backends/backends.h"
#include "core/base/util.h"
#include "core/log/log.h"

#include <stdio.h>

#define STORE "11111111-1111-4111-8111-111111111111"

static const char *const node_ids[] = {"22222222-2222-4222-8222-222222222220", "22222222-2222-4222-8222-222222222221",
				       "22222222-2222-4222-8222-222222222222"};

// ---- A store whose answers are lost, and whose puts come late

enum { LATE_MAX = 64 };

static struct flaky {
	struct ckpt_objects base;
	struct ckpt_objects *below;
	unsigned seed, trouble; // of 100 calls
	struct late {
		char key[CKPT_LOG_KEY_MAX];
		void *data;
		size_t len;
	} late[LATE_MAX];
	size_t late_count;
} flaky;

static bool trouble(void)
{
	return (unsigned)rand_r(&flaky.seed) % 100 < flaky.trouble;
}

static int flaky_get(struct ckpt_objects *o, const char *key, uint64_t offset, void *buf, size_t len, size_t *ret_len,
		     struct ckpt_object *ret_object)
{
	(void)o;
	return trouble() ? -ETIMEDOUT : ckpt_objects_get(flaky.below, key, offset, buf, len, ret_len, ret_object);
}

static int flaky_put(struct ckpt_objects *o, const char *key, const void *data, size_t len, bool frees,
		     struct ckpt_object *ret_object)
{
	(void)o, (void)frees;
	if (!trouble())
		return ckpt_objects_put(flaky.below, key, data, len, ret_object);
	switch (rand_r(&flaky.seed) % 4) {
	case 0: // nothing was done
		return -EAGAIN;
	case 1: // the answer is lost
		(void)ckpt_objects_put(flaky.below, key, data, len, ret_object);
		return -EIO;
	case 2: // it is made twice, and meets itself
		(void)ckpt_objects_put(flaky.below, key, data, len, ret_object);
		return ckpt_objects_put(flaky.below, key, data, len, ret_object);
	default: // it comes later
		if (flaky.late_count == LATE_MAX)
			return -EAGAIN;
		snprintf(flaky.late[flaky.late_count].key, CKPT_LOG_KEY_MAX, "%s", key);
		flaky.late[flaky.late_count].data = malloc(len);
		memcpy(flaky.late[flaky.late_count].data, data, len);
		flaky.late[flaky.late_count++].len = len;
		return -ETIMEDOUT;
	}
}

static int flaky_sync(struct ckpt_objects *o, const char *key)
{
	(void)o, (void)key;
	return trouble() ? -EIO : 0;
}

static const struct ckpt_objects_ops flaky_ops = {
	.name = "flaky", .get = flaky_get, .put = flaky_put, .sync = flaky_sync};

static void one_late_put_comes(void)
{
	struct late *l;

	if (!flaky.late_count)
		return;
	l = &flaky.late[(size_t)rand_r(&flaky.seed) % flaky.late_count];
	(void)ckpt_objects_put(flaky.below, l->key, l->data, l->len, NULL);
	free(l->data);
	*l = flaky.late[--flaky.late_count];
}

// ---- Nodes

enum { NODES = 3, OPERATIONS = 12 };

struct node {
	struct ckpt_log *log;
	const char *id;
	uint64_t next; // the first operation that has not been seen in the log
	uint32_t sent; // operations of the last entry
	unsigned applied;
};

static struct ckpt_operation operation_of(const struct node *n, uint64_t number)
{
	struct ckpt_operation op = {.number = number, .kind = 1, .body = "body", .len = 4};

	snprintf(op.node, sizeof(op.node), "%s", n->id);
	memset(op.nonce, (int)number, sizeof(op.nonce));
	return op;
}

static int see(void *arg, const struct ckpt_log_entry *entry)
{
	struct node *n = arg;
	struct ckpt_operation op;

	n->applied++;
	for (size_t cursor = 0; ckpt_log_entry_next(entry, &cursor, &op);)
		if (!strcmp(op.node, n->id)) {
			ck_assert_uint_eq(op.number, n->next); // once each, and in order
			n->next++;
		}
	return 0;
}

static void append(struct node *n)
{
	struct ckpt_operation ops[3];
	uint32_t count = 1 + (uint32_t)rand_r(&flaky.seed) % 3;
	uint64_t first = n->next;
	int rc;

	for (uint32_t i = 0; i < count; i++)
		ops[i] = operation_of(n, n->next + i);
	n->sent = count;
	rc = ckpt_log_append(n->log, ops, count, false);
	ck_assert_uint_eq(n->next - first, rc ? 0 : count); // 0 says that they are in the log
	ck_assert(rc == 0 || rc == -EEXIST || rc == -EAGAIN || rc == -EIO || rc == -ETIMEDOUT);
	ck_assert_int_eq(ckpt_log_is_settled(n->log), rc != -EIO && rc != -ETIMEDOUT);
	if (!ckpt_log_is_settled(n->log))
		ck_error(ckpt_log_append(n->log, ops, count, false), EBUSY);
}

static void turn(struct node *n)
{
	if (!ckpt_log_is_settled(n->log)) {
		uint64_t first = n->next;
		int rc = ckpt_log_settle(n->log);

		ck_assert_uint_eq(n->next - first, rc ? 0 : n->sent);
		return;
	}
	if (!ckpt_log_read(n->log) && n->next <= OPERATIONS)
		append(n);
}

// A stranger who comes later reads all of it.
static void check_whole(void)
{
	for (int i = 0; i < NODES; i++) {
		struct node n = {.id = node_ids[i], .next = 1};

		ck_ok(ckpt_log_new(flaky.below, STORE, "33333333-3333-4333-8333-333333333333", NULL, false, see, &n,
				   &n.log));
		ck_ok(ckpt_log_read(n.log));
		ck_assert_uint_gt(n.next, OPERATIONS);
		ckpt_log_free(n.log);
	}
}

START_TEST(each_operation_comes_once_and_in_order_whatever_is_lost)
{
	for (unsigned seed = 1; seed <= 400; seed++) {
		struct node nodes[NODES];
		bool done = false;

		flaky = (struct flaky){.base.ops = &flaky_ops, .seed = seed, .trouble = seed % 60};
		ck_ok(ckpt_mem_new(&flaky.below));
		for (int i = 0; i < NODES; i++) {
			nodes[i] = (struct node){.id = node_ids[i], .next = 1};
			ck_ok(ckpt_log_new(&flaky.base, STORE, nodes[i].id, NULL, false, see, &nodes[i],
					   &nodes[i].log));
		}
		for (unsigned turns = 0; !done; turns++) {
			ck_assert_uint_lt(turns, 100000);
			turn(&nodes[rand_r(&flaky.seed) % NODES]);
			if (rand_r(&flaky.seed) % 4 == 0)
				one_late_put_comes();
			done = true;
			for (int i = 0; i < NODES; i++)
				done &= nodes[i].next > OPERATIONS && ckpt_log_is_settled(nodes[i].log);
		}
		while (flaky.late_count) // none of them changes anything any more
			one_late_put_comes();
		check_whole();
		for (int i = 0; i < NODES; i++)
			ckpt_log_free(nodes[i].log);
		ckpt_objects_close(flaky.below);
	}
}
END_TEST

// ---- What it finds

static void put_first(struct ckpt_objects *o, const char *store, int count)
{
	struct node n = {.id = node_ids[0], .next = 1};
	struct ckpt_log *log;

	ck_ok(ckpt_log_new(o, store, n.id, NULL, false, see, &n, &log));
	for (int i = 0; i < count; i++) {
		struct ckpt_operation op = operation_of(&n, (uint64_t)i + 1);

		ck_ok(ckpt_log_append(log, &op, 1, false));
		ck_assert_uint_eq(ckpt_log_position(log).seq, (uint64_t)i + 1);
	}
	ckpt_log_free(log);
}

static void put_raw(struct ckpt_objects *o, uint64_t seq, const void *data, size_t len)
{
	char key[CKPT_LOG_KEY_MAX];

	ckpt_log_key(seq, key);
	ckpt_objects_remove(o, key);
	ck_ok(ckpt_objects_put(o, key, data, len, NULL));
}

static int read_all(struct ckpt_objects *o, uint64_t *ret_seq)
{
	struct node n = {.id = ""};
	struct ckpt_log *log;
	int rc;

	ck_ok(ckpt_log_new(o, STORE, node_ids[1], NULL, false, see, &n, &log));
	rc = ckpt_log_read(log);
	*ret_seq = ckpt_log_position(log).seq;
	ck_assert_uint_eq(n.applied, *ret_seq);
	ckpt_log_free(log);
	return rc;
}

START_TEST(a_log_that_does_not_follow_itself_is_refused)
{
	CLEANUP_FD int fd = ckpt_temp_fd();
	struct ckpt_objects *o, *other;
	CLEANUP_FREE void *third = NULL;
	char key[CKPT_LOG_KEY_MAX];
	uint64_t seq;
	size_t len;

	ck_ok(ckpt_local_open(fd, true, &o));
	put_first(o, STORE, 4);
	ck_ok(read_all(o, &seq));
	ck_assert_uint_eq(seq, 4);
	ckpt_log_key(3, key);
	ck_ok(ckpt_objects_get_all(o, key, 1 << 20, &third, &len, NULL));
	put_raw(o, 2, third, len); // an entry in another's place
	ck_error(read_all(o, &seq), EBADMSG);
	ck_assert_uint_eq(seq, 1);
	ck_ok(ckpt_mem_new(&other));
	put_first(other, "44444444-4444-4444-8444-444444444444", 1);
	ck_error(read_all(other, &seq), EBADMSG); // of another store
	ck_assert_uint_eq(seq, 0);
	put_raw(o, 2, "trimmed", 8);
	ck_error(read_all(o, &seq), ESTALE);
	put_raw(o, 2, "trimmed", 7);
	ck_error(read_all(o, &seq), EBADMSG);
	put_raw(o, 2, "", 0);
	ck_error(read_all(o, &seq), EBADMSG);
	ckpt_objects_close(other);
	ckpt_objects_close(o);
}
END_TEST

START_TEST(a_store_that_was_rolled_back_is_noticed)
{
	struct ckpt_objects *o, *other;
	CLEANUP_FREE void *second = NULL;
	char key[CKPT_LOG_KEY_MAX];
	uint64_t seq;
	size_t len;

	ck_ok(ckpt_mem_new(&o));
	ck_ok(ckpt_mem_new(&other));
	put_first(o, STORE, 2);
	put_first(other, STORE, 2); // the same operations, but at another time
	ckpt_log_key(2, key);
	ck_ok(ckpt_objects_get_all(other, key, 1 << 20, &second, &len, NULL));
	put_raw(o, 2, second, len);
	ck_error(read_all(o, &seq), EBADMSG);
	ck_assert_uint_eq(seq, 1);
	ckpt_objects_close(other);
	ckpt_objects_close(o);
}
END_TEST

static int refuse(void *arg, const struct ckpt_log_entry *entry)
{
	return entry->seq == *(uint64_t *)arg ? -ENOTSUP : 0;
}

START_TEST(who_refuses_an_entry_stays_before_it)
{
	struct ckpt_objects *o;
	struct ckpt_log *log;
	uint64_t at = 3;

	ck_ok(ckpt_mem_new(&o));
	put_first(o, STORE, 4);
	ck_ok(ckpt_log_new(o, STORE, node_ids[1], NULL, false, refuse, &at, &log));
	ck_error(ckpt_log_read(log), ENOTSUP);
	ck_assert_uint_eq(ckpt_log_position(log).seq, 2);
	at = 0;
	ck_ok(ckpt_log_read(log));
	ck_assert_uint_eq(ckpt_log_position(log).seq, 4);
	ckpt_log_free(log);
	ckpt_objects_close(o);
}
END_TEST

// ---- What the store answers

struct answers {
	struct ckpt_objects *o;
	struct ckpt_fault fault;
	struct ckpt_log *log;
	struct node node;
};

static void answers_close(struct answers *a)
{
	ckpt_log_free(a->log);
	ckpt_objects_close(a->o);
}

// A log of so many entries, and a node that has read them.
static void answers_open(struct answers *a, int count, ckpt_log_entry_fn *fn, void *arg)
{
	*a = (struct answers){.node = {.id = node_ids[1], .next = 1}};
	ck_ok(ckpt_mem_new(&a->o));
	ck_ok(ckpt_fault_new(a->o, &a->fault, &a->o));
	ck_ok(ckpt_log_new(a->o, STORE, node_ids[1], NULL, false, fn ? fn : see, fn ? arg : &a->node, &a->log));
	put_first(a->o, STORE, count);
	ck_ok(ckpt_log_read(a->log));
	ck_assert_uint_eq(ckpt_log_position(a->log).seq, (uint64_t)count);
}

static int append_one(struct answers *a)
{
	struct ckpt_operation op = operation_of(&a->node, 1);

	return ckpt_log_append(a->log, &op, 1, false);
}

START_TEST(entry_that_is_too_large_is_a_damaged_one)
{
	CLEANUP_FREE uint8_t *data = calloc(1, CKPT_LOG_ENTRY_BYTES_MAX + 1);
	CLEANUP(answers_close) struct answers a;

	answers_open(&a, 1, NULL, NULL);
	put_raw(a.o, 2, data, CKPT_LOG_ENTRY_BYTES_MAX + 1);
	ck_error(ckpt_log_read(a.log), EBADMSG);
	ck_assert_uint_eq(ckpt_log_position(a.log).seq, 1);
	ck_error(append_one(&a), EEXIST);
	ck_assert(ckpt_log_is_settled(a.log));
	ck_ok(ckpt_log_pass_over(a.log));
	ck_assert_uint_eq(ckpt_log_position(a.log).seq, 2);
	ck_ok(append_one(&a));
}
END_TEST

START_TEST(end_of_a_log_is_where_nothing_is_behind_it)
{
	static const struct {
		bool behind;
		uint64_t fails; // which operation
		int rc;
	} cases[] = {{false, 0, 0}, {false, 1, -EACCES}, {true, 0, -EBADMSG}, {true, 1, -EACCES}, {true, 2, -EACCES}};
	CLEANUP(answers_close) struct answers a;

	answers_open(&a, 2, NULL, NULL);
	if (cases[_i].behind) // and nothing at 3
		put_raw(a.o, 4, "nothing", 7);
	a.fault = (struct ckpt_fault){.at = cases[_i].fails, .error = -EACCES};
	ck_assert_int_eq(ckpt_log_check_end(a.log), cases[_i].rc);
	ck_assert_uint_eq(ckpt_log_position(a.log).seq, 2);
}
END_TEST

// Others append while one looks.
START_TEST(end_of_a_log_may_move_on)
{
	CLEANUP(answers_close) struct answers a;

	answers_open(&a, 0, NULL, NULL);
	put_first(a.o, STORE, 3);
	ck_ok(ckpt_log_check_end(a.log));
	ck_assert_uint_eq(ckpt_log_position(a.log).seq, 3);
	put_raw(a.o, 4, "nothing", 7);
	ck_error(ckpt_log_check_end(a.log), EBADMSG);
	ck_assert_uint_eq(ckpt_log_position(a.log).seq, 3);
}
END_TEST

START_TEST(entry_that_cannot_be_read_now_is_not_passed_over)
{
	CLEANUP(answers_close) struct answers a;

	answers_open(&a, 1, NULL, NULL);
	a.fault = (struct ckpt_fault){.at = 1, .error = -EACCES};
	ck_error(ckpt_log_pass_over(a.log), EACCES);
	ck_assert_uint_eq(ckpt_log_position(a.log).seq, 1);
	ck_ok(ckpt_log_pass_over(a.log)); // lost for good
	ck_assert_uint_eq(ckpt_log_position(a.log).seq, 2);
}
END_TEST

// Errors after which nobody knows whether the entry is there; any other says that it is not.
START_TEST(append_without_an_answer_is_settled_first)
{
	static const int unknown[] = {-EIO, -ETIMEDOUT, -ECANCELED};
	CLEANUP(answers_close) struct answers a;

	answers_open(&a, 0, NULL, NULL);
	ck_error(ckpt_log_settle(a.log), ENOENT);
	a.fault = (struct ckpt_fault){.at = 1, .error = -EACCES};
	ck_error(append_one(&a), EACCES);
	ck_assert(ckpt_log_is_settled(a.log));
	a.fault = (struct ckpt_fault){.at = 1, .error = unknown[_i]};
	ck_assert_int_eq(append_one(&a), unknown[_i]);
	ck_assert(!ckpt_log_is_settled(a.log));
	ck_error(append_one(&a), EBUSY);
	ck_error(ckpt_log_settle(a.log), ENOENT);
	ck_assert(ckpt_log_is_settled(a.log));
	a.fault = (struct ckpt_fault){.at = 1, .error = -EIO, .half = true};
	ck_error(append_one(&a), EIO);
	for (uint64_t n = 1; n <= 2; n++) { // its bytes, and its sync
		a.fault = (struct ckpt_fault){.at = n, .error = -EACCES};
		ck_error(ckpt_log_settle(a.log), EACCES);
		ck_assert(!ckpt_log_is_settled(a.log));
		ck_assert_uint_eq(ckpt_log_position(a.log).seq, 0);
	}
	ck_ok(ckpt_log_settle(a.log));
	ck_assert_uint_eq(ckpt_log_position(a.log).seq, 1);
}
END_TEST

// The function has failed once, and is asked again.
static int refuse_once(void *arg, const struct ckpt_log_entry *entry)
{
	bool *refuses = arg;
	int rc = *refuses ? -ENOMEM : 0;

	(void)entry;
	*refuses = false;
	return rc;
}

START_TEST(own_entry_that_was_refused_is_not_settled)
{
	CLEANUP(answers_close) struct answers a;
	bool refuses = true;

	answers_open(&a, 0, refuse_once, &refuses);
	ck_error(append_one(&a), EIO);
	ck_assert(!ckpt_log_is_settled(a.log));
	ck_assert_uint_eq(ckpt_log_position(a.log).seq, 0);
	ck_ok(ckpt_log_settle(a.log));
	ck_assert_uint_eq(ckpt_log_position(a.log).seq, 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("log of a store");
	TCase *tcase = tcase_create("log");

	tcase_add_test(tcase, each_operation_comes_once_and_in_order_whatever_is_lost);
	tcase_add_test(tcase, a_log_that_does_not_follow_itself_is_refused);
	tcase_add_test(tcase, a_store_that_was_rolled_back_is_noticed);
	tcase_add_test(tcase, who_refuses_an_entry_stays_before_it);
	tcase_add_test(tcase, entry_that_is_too_large_is_a_damaged_one);
	tcase_add_loop_test(tcase, end_of_a_log_is_where_nothing_is_behind_it, 0, 5);
	tcase_add_test(tcase, end_of_a_log_may_move_on);
	tcase_add_test(tcase, entry_that_cannot_be_read_now_is_not_passed_over);
	tcase_add_loop_test(tcase, append_without_an_answer_is_settled_first, 0, 3);
	tcase_add_test(tcase, own_entry_that_was_refused_is_not_settled);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
