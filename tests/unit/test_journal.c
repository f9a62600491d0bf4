// The log of a store and its state together: acts that come at the same time share an entry, an answer that was lost is asked for, a
// reader follows, and what nobody needs goes.
#include "tests/support/suite.h"

#include "backends/backends.h"
#include "core/base/hash.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/log/snapshot.h"
#include "core/state/journal.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define STORE "11111111-1111-4111-8111-111111111111"
#define WRITERS 16

static struct ckpt_objects *objects;
static struct ckpt_fault fault;
static struct ckpt_journal *j;

static void open_journal(void)
{
	uint64_t damaged;

	ck_ok(ckpt_journal_open(objects, STORE, STORE, CKPT_JOURNAL_WRITE, &j, &damaged));
	ck_assert_uint_eq(damaged, 0);
}

static void setup(void)
{
	ck_ok(ckpt_mem_new(&objects));
	fault = (struct ckpt_fault){0};
	ck_ok(ckpt_fault_new(objects, &fault, &objects));
	open_journal();
}

static void teardown(void)
{
	ckpt_journal_close(j);
	ckpt_objects_close(objects);
}

static void reopen(void)
{
	ckpt_journal_close(j);
	open_journal();
}

static void session_of(unsigned i, char ret[CKPT_UUID_LEN + 1])
{
	snprintf(ret, CKPT_UUID_LEN + 1, "00000000-0000-4000-8000-%012u", i);
}

// A save, or with a version after the first one an amendment, of step number i.
static int save(unsigned i, uint32_t version, bool *ret_unknown)
{
	struct ckpt_record r = {.summary = {.event = "marker", .profile = "generic", .number = i, .version = version}};
	struct ckpt_act act = {.kind = version > 1 ? CKPT_ACT_AMEND : CKPT_ACT_SAVE};
	CLEANUP_FREE void *data = NULL;
	bool unknown;
	int rc;

	memcpy(r.store_id, STORE, sizeof(r.store_id));
	snprintf(r.summary.name, sizeof(r.summary.name), "%u", i);
	session_of(i, r.summary.session);
	ck_ok(ckpt_record_encode(&r, &data, &act.record_len));
	act.record = data;
	rc = ckpt_journal_append(j, &act, false, ret_unknown ? ret_unknown : &unknown);
	ck_assert(ret_unknown || !unknown);
	return rc;
}

static int plain(unsigned i, enum ckpt_act_kind kind, uint32_t version)
{
	struct ckpt_act act = {.kind = kind, .version = version, .time_ns = 7};
	bool unknown;

	session_of(i, act.step);
	return ckpt_journal_append(j, &act, kind == CKPT_ACT_EXPIRE, &unknown);
}

static int take_step(void *arg, const struct ckpt_state_step *step)
{
	*(struct ckpt_state_step *)arg = *step;
	return 0;
}

// Its newest version in a journal; 0: there is no such step.
static uint32_t version_in(struct ckpt_journal *journal, unsigned i)
{
	char session[CKPT_UUID_LEN + 1];
	struct ckpt_state_step step;

	session_of(i, session);
	return ckpt_journal_step(journal, session, take_step, &step) ? 0 : step.is.version;
}

// --- By whom ------------------------------------------------------------------------------------------------------------

static void assert_by(unsigned i, uint32_t version, uint32_t uid, const char *comm)
{
	char session[CKPT_UUID_LEN + 1];
	struct ckpt_journal_by by;

	session_of(i, session);
	ck_ok(ckpt_journal_by(j, session, version, &by));
	ck_assert_str_eq(by.node, STORE);
	ck_assert_uint_eq(by.actor.uid, uid);
	ck_assert_str_eq(by.actor.comm, comm);
}

// That of the thread which appends, though another thread leads; and it is known after the entries that said so have gone.
static void *save_as_somebody(void *arg)
{
	unsigned i = (unsigned)(uintptr_t)arg;
	struct ckpt_actor actor = {.uid = 1000 + i};

	snprintf(actor.comm, sizeof(actor.comm), "rank %u", i);
	(void)ckpt_actor_set(&actor);
	ck_ok(save(i, 1, NULL));
	ck_ok(plain(i, CKPT_ACT_DELETE, 2));
	return NULL;
}

START_TEST(each_version_has_the_actor_of_its_act)
{
	char session[CKPT_UUID_LEN + 1], comm[CKPT_COMM_BYTES + 1];
	pthread_t threads[WRITERS];
	struct ckpt_journal_by by;

	ckpt_actor_call_process("daemon");
	for (uintptr_t i = 0; i < WRITERS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, save_as_somebody, (void *)(i + 1)), 0);
	for (size_t i = 0; i < WRITERS; i++)
		pthread_join(threads[i], NULL);
	ck_ok(plain(1, CKPT_ACT_UNDELETE, 3));
	for (int round = 0; round < 3; round++) {
		for (unsigned i = 1; i <= WRITERS; i++) {
			snprintf(comm, sizeof(comm), "rank %u", i);
			assert_by(i, 1, 1000 + i, comm);
			assert_by(i, 2, 1000 + i, comm);
		}
		assert_by(1, 3, geteuid(), "daemon");
		session_of(1, session);
		ck_error(ckpt_journal_by(j, session, 4, &by), ENOENT);
		if (round == 1)
			ck_ok(ckpt_journal_snapshot(j, true));
		reopen();
	}
}
END_TEST

// --- At the same time ---------------------------------------------------------------------------------------------------

static int (*below_put)(struct ckpt_objects *o, const char *key, const void *data, size_t len, bool frees,
			struct ckpt_object *ret_object);

static unsigned begun; // atomic; of the writers

static int slow_put(struct ckpt_objects *o, const char *key, const void *data, size_t len, bool frees,
		    struct ckpt_object *ret_object)
{
	while (__atomic_load_n(&begun, __ATOMIC_RELAXED) < WRITERS)
		ckpt_sys.sleep_ns(1000000);
	ckpt_sys.sleep_ns(30000000);
	return below_put(o, key, data, len, frees, ret_object);
}

static void *save_in_thread(void *arg)
{
	__atomic_add_fetch(&begun, 1, __ATOMIC_RELAXED);
	return (void *)(intptr_t)save((unsigned)(uintptr_t)arg, 1, NULL);
}

START_TEST(acts_that_come_at_the_same_time_share_an_entry)
{
	struct ckpt_objects_ops *ops = (struct ckpt_objects_ops *)(uintptr_t)objects->ops; // the fault layer's own
	pthread_t threads[WRITERS];

	below_put = ops->put;
	ops->put = slow_put;
	for (uintptr_t i = 0; i < WRITERS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, save_in_thread, (void *)(i + 1)), 0);
	for (size_t i = 0; i < WRITERS; i++) {
		void *rc;

		pthread_join(threads[i], &rc);
		ck_ok((int)(intptr_t)rc);
	}
	ops->put = below_put;
	ck_assert_uint_le(ckpt_journal_position(j).seq, 3);
	reopen();
	for (unsigned i = 1; i <= WRITERS; i++)
		ck_assert_uint_eq(version_in(j, i), 1);
}
END_TEST

// Of two that want a name each learns what became of it, though both are in one entry or in two.
static void *save_as_in_thread(void *arg)
{
	struct ckpt_record r = {
		.summary = {.event = "marker", .profile = "generic", .number = 1, .version = 1, .name = "1"}};
	struct ckpt_act act = {.kind = CKPT_ACT_SAVE};
	CLEANUP_FREE void *data = NULL;
	bool unknown;

	memcpy(r.store_id, STORE, sizeof(r.store_id));
	session_of((unsigned)(uintptr_t)arg, r.summary.session);
	ck_ok(ckpt_record_encode(&r, &data, &act.record_len));
	act.record = data;
	return (void *)(intptr_t)ckpt_journal_append(j, &act, false, &unknown);
}

START_TEST(one_of_many_who_want_a_name_has_it)
{
	pthread_t threads[WRITERS];
	unsigned won = 0;

	for (uintptr_t i = 0; i < WRITERS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, save_as_in_thread, (void *)(i + 1)), 0);
	for (size_t i = 0; i < WRITERS; i++) {
		void *rc;

		pthread_join(threads[i], &rc);
		ck_assert((intptr_t)rc == 0 || (intptr_t)rc == -ESTALE);
		won += rc == NULL;
	}
	ck_assert_uint_eq(won, 1);
}
END_TEST

// --- Answers that are lost --------------------------------------------------------------------------------------------

START_TEST(a_lost_answer_is_asked_for_at_once)
{
	fault = (struct ckpt_fault){.at = 1, .error = -EIO, .half = true};
	ck_ok(save(1, 1, NULL));
	ck_assert_uint_eq(version_in(j, 1), 1);
	ck_assert_int_eq(ckpt_journal_settle(j), 0);
	fault = (struct ckpt_fault){.at = 1, .error = -EIO}; // it was not done
	ck_error(save(2, 1, NULL), EIO);
	ck_ok(save(2, 1, NULL));
	reopen();
	ck_assert(version_in(j, 1) == 1 && version_in(j, 2) == 1);
}
END_TEST

// The next act settles it, and the change is told once.
START_TEST(what_nobody_knows_is_settled_before_anything_else)
{
	bool unknown;

	fault = (struct ckpt_fault){.at = 1, .error = -EIO, .half = true, .sticky = true};
	ck_error(save(1, 1, &unknown), EIO);
	ck_assert(unknown);
	ck_assert_uint_eq(version_in(j, 1), 0);
	ck_assert_int_eq(ckpt_journal_settle(j), -EIO);
	ck_error(save(2, 1, &unknown), EIO); // nothing is sent meanwhile
	ck_assert(!unknown);
	fault.at = 0;
	if (_i) {
		ck_assert_int_eq(ckpt_journal_settle(j), 1);
		ck_assert_int_eq(ckpt_journal_settle(j), 0);
	} else {
		ck_ok(save(2, 1, NULL));
		ck_assert_int_eq(ckpt_journal_settle(j), 1);
	}
	ck_assert_uint_eq(version_in(j, 1), 1);
	ck_error(save(1, 1, NULL), ESTALE); // again
	reopen();
	ck_assert_uint_eq(version_in(j, 1), 1);
}
END_TEST

static int failing_sync(struct ckpt_objects *o __attribute__((unused)), const char *key __attribute__((unused)))
{
	return -EIO;
}

// It is there, and may go with the power: before it counts it is made to last.
START_TEST(what_was_found_counts_when_it_lasts)
{
	struct ckpt_objects_ops *ops = (struct ckpt_objects_ops *)(uintptr_t)objects->ops; // the fault layer's own
	int (*below_sync)(struct ckpt_objects * o, const char *key) = ops->sync;
	bool unknown;

	fault = (struct ckpt_fault){.at = 1, .error = -EIO, .half = true, .sticky = true};
	ck_error(save(1, 1, &unknown), EIO);
	fault = (struct ckpt_fault){.at = 2, .error = -EIO}; // it is read, and then synced
	ck_assert_int_eq(ckpt_journal_settle(j), -EIO);
	ck_assert_uint_eq(version_in(j, 1), 0);
	fault.at = 0;
	ck_assert_int_eq(ckpt_journal_settle(j), 1);
	ckpt_journal_close(j);
	ops->sync = failing_sync;
	ck_error(ckpt_journal_open(objects, STORE, STORE, CKPT_JOURNAL_WRITE, &j, &(uint64_t){0}), EIO);
	ops->sync = below_sync;
	open_journal();
}
END_TEST

START_TEST(a_full_disk_refuses_and_what_frees_room_is_not_in_its_entry)
{
	fault = (struct ckpt_fault){.at = 1, .error = -ENOSPC};
	ck_error(save(1, 1, NULL), ENOSPC);
	ck_ok(save(1, 1, NULL));
	ck_ok(plain(1, CKPT_ACT_DELETE, 2));
	ck_ok(plain(1, CKPT_ACT_EXPIRE, 2));
	ck_error(plain(1, CKPT_ACT_EXPIRE, 2), ESTALE);
	ck_assert_uint_eq(version_in(j, 1), 0);
}
END_TEST

// --- Records ------------------------------------------------------------------------------------------------------------

START_TEST(each_version_has_its_record)
{
	char session[CKPT_UUID_LEN + 1];
	struct ckpt_act flag = {.kind = CKPT_ACT_FLAG, .version = 3, .flags = CKPT_FLAG_PINNED, .time_ns = 99};
	struct ckpt_record r;
	bool unknown;

	session_of(1, session);
	ck_ok(save(1, 1, NULL));
	ck_ok(save(1, 2, NULL));
	memcpy(flag.step, session, sizeof(session));
	ck_ok(ckpt_journal_append(j, &flag, false, &unknown));
	flag.version = 4;
	flag.flags = 0;
	ck_ok(ckpt_journal_append(j, &flag, false, &unknown));
	ck_ok(plain(1, CKPT_ACT_DELETE, 5));
	for (int round = 0; round < 2; round++) {
		for (uint32_t version = 1; version <= 5; version++) {
			ck_ok(ckpt_journal_record(j, session, version, &r));
			ck_assert_uint_eq(r.summary.version, version);
			ck_assert(r.summary.pinned == (version == 3) && r.summary.deleted == (version == 5));
			ck_assert_str_eq(r.summary.name, "1");
			ckpt_record_done(&r);
		}
		ck_error(ckpt_journal_record(j, session, 6, &r), ENOENT);
		ck_ok(ckpt_journal_snapshot(j, true));
		reopen();
	}
}
END_TEST

// --- Readers and snapshots ----------------------------------------------------------------------------------------------

static unsigned entries(void)
{
	unsigned count = 0;

	for (uint64_t seq = 1; seq <= ckpt_journal_position(j).seq; seq++) {
		struct ckpt_object object;
		char key[CKPT_LOG_KEY_MAX];

		ckpt_log_key(seq, key);
		count += !ckpt_objects_head(objects, key, &object);
	}
	return count;
}

// Also over what was trimmed meanwhile.
START_TEST(a_reader_follows)
{
	struct ckpt_journal *reader;
	uint64_t damaged;

	ck_ok(save(1, 1, NULL));
	ck_ok(ckpt_journal_open(objects, STORE, STORE, CKPT_JOURNAL_READ, &reader, &damaged));
	ck_assert_uint_eq(version_in(reader, 1), 1);
	ck_assert_int_eq(ckpt_journal_refresh(reader), 0);
	ck_ok(save(1, 2, NULL));
	ck_ok(save(2, 1, NULL));
	ck_assert_uint_eq(version_in(reader, 1), 1);
	fault = (struct ckpt_fault){.at = 2, .error = -EIO}; // one of two is read
	ck_assert_int_eq(ckpt_journal_refresh(reader), -EIO);
	ck_assert_int_eq(ckpt_journal_refresh(reader), 1);
	ck_assert_int_eq(ckpt_journal_refresh(reader), 0);
	ck_assert(version_in(reader, 1) == 2 && version_in(reader, 2) == 1);
	for (uint32_t i = 0; i < 4; i++) {
		for (unsigned k = 0; k < 10; k++)
			ck_ok(save(2, 2 + 10 * i + k, NULL));
		ck_ok(plain(1, i % 2 ? CKPT_ACT_UNDELETE : CKPT_ACT_DELETE, 3 + i));
		ck_ok(ckpt_journal_snapshot(j, true));
	}
	ck_assert_int_eq(ckpt_journal_refresh(reader), 1);
	ck_assert_uint_eq(version_in(reader, 2), 41);
	ck_assert_uint_eq(ckpt_journal_position(reader).seq, ckpt_journal_position(j).seq);
	ckpt_journal_close(reader);
}
END_TEST

// The entries that stay have records of versions, or are not before the older snapshot.
START_TEST(entries_go_that_nobody_needs)
{
	char session[CKPT_UUID_LEN + 1];
	struct ckpt_record r;

	for (unsigned i = 1; i <= 20; i++)
		ck_ok(save(i, 1, NULL));
	for (unsigned i = 2; i <= 20; i++) {
		ck_ok(plain(i, CKPT_ACT_DELETE, 2));
		ck_ok(plain(i, CKPT_ACT_EXPIRE, 2));
	}
	ck_assert_uint_eq(entries(), 58);
	ck_ok(ckpt_journal_snapshot(j, false)); // it is not yet time
	ck_assert_uint_eq(entries(), 58);
	ck_ok(ckpt_journal_snapshot(j, true));
	ck_ok(ckpt_journal_snapshot(j, true)); // nothing has changed
	ck_assert_uint_eq(entries(), 58);
	ck_ok(save(21, 1, NULL));
	ck_ok(ckpt_journal_snapshot(j, true));
	ck_assert_uint_eq(entries(), 3); // that of 1, the one at the older snapshot, that of 21
	reopen();
	session_of(1, session);
	ck_ok(ckpt_journal_record(j, session, 1, &r));
	ckpt_record_done(&r);
	ck_assert(version_in(j, 21) == 1 && !version_in(j, 2));
	ck_ok(save(22, 1, NULL));
}
END_TEST

// --- Values -----------------------------------------------------------------------------------------------------------

// The entry that says so; 0: there is none.
static uint64_t value_in(struct ckpt_journal *journal, const char *key, const char *want)
{
	CLEANUP_FREE char *value = NULL;
	uint64_t seq, again;
	int rc = ckpt_journal_get(journal, key, &value, &seq);

	if (!want) {
		ck_error(rc, ENOENT);
		ck_error(ckpt_journal_get(journal, key, NULL, &seq), ENOENT);
		return 0;
	}
	ck_ok(rc);
	ck_assert_str_eq(value, want);
	ck_ok(ckpt_journal_get(journal, key, NULL, &again));
	ck_assert_uint_eq(again, seq);
	return seq;
}

START_TEST(a_value_that_is_there_is_not_appended)
{
	(void)value_in(j, "policy", NULL);
	ck_ok(ckpt_journal_set(j, "policy", CKPT_ACT_ANY, ""));
	ck_assert_uint_eq(entries(), 0);
	ck_ok(ckpt_journal_set(j, "policy", 0, "a"));
	ck_ok(ckpt_journal_set(j, "policy", CKPT_ACT_ANY, "a"));
	ck_ok(ckpt_journal_set(j, "policy", 1, "a"));
	ck_assert_uint_eq(entries(), 1);
	ck_assert_uint_eq(value_in(j, "policy", "a"), 1);
	ck_error(ckpt_journal_set(j, "policy", 0, "a"), ESTALE);
	ck_error(ckpt_journal_set(j, "policy", 7, "b"), ESTALE);
	ck_ok(ckpt_journal_set(j, "policy", 1, "b"));
	ck_assert_uint_eq(value_in(j, "policy", "b"), 2);
	reopen();
	ck_assert_uint_eq(value_in(j, "policy", "b"), 2);
	ck_ok(ckpt_journal_set(j, "policy", CKPT_ACT_ANY, ""));
	(void)value_in(j, "policy", NULL);
	reopen();
	(void)value_in(j, "policy", NULL);
	ck_error(ckpt_journal_set(j, "Policy", CKPT_ACT_ANY, "b"), EINVAL);
	ck_error(ckpt_journal_set(j, "policy", CKPT_ACT_ANY, "\xff"), EINVAL);
	ck_assert_uint_eq(entries(), 3);
}
END_TEST

// Its entry goes with the others.
START_TEST(a_value_stays_in_the_snapshot)
{
	struct ckpt_journal *reader;
	uint64_t damaged;

	ck_ok(ckpt_journal_open(objects, STORE, STORE, CKPT_JOURNAL_READ, &reader, &damaged));
	ck_ok(ckpt_journal_set(j, "policy", CKPT_ACT_ANY, "a"));
	(void)value_in(reader, "policy", NULL);
	ck_assert_int_eq(ckpt_journal_refresh(reader), 1);
	ck_assert_uint_eq(value_in(reader, "policy", "a"), 1);
	for (unsigned i = 1; i <= 4; i++) {
		ck_ok(save(i, 1, NULL));
		ck_ok(ckpt_journal_snapshot(j, true));
	}
	ck_assert_uint_eq(entries(), 4);
	reopen();
	ck_assert_uint_eq(value_in(j, "policy", "a"), 1);
	ck_ok(ckpt_journal_set(j, "policy", 1, "b"));
	ck_assert_int_eq(ckpt_journal_refresh(reader), 1);
	ck_assert_uint_eq(value_in(reader, "policy", "b"), 6);
	ckpt_journal_close(reader);
}
END_TEST

// The next question finds it, or knows that it was not done.
START_TEST(a_value_of_which_nobody_knows_is_settled)
{
	for (int half = 0; half < 2; half++) {
		fault = (struct ckpt_fault){.at = 1, .error = -EIO, .half = half, .sticky = true};
		ck_error(ckpt_journal_set(j, "policy", 0, "a"), EIO);
		(void)value_in(j, "policy", NULL);
		fault.at = 0;
		(void)value_in(j, "policy", half ? "a" : NULL);
	}
	ck_error(ckpt_journal_set(j, "policy", 0, "b"), ESTALE);
	reopen();
	ck_assert_uint_eq(value_in(j, "policy", "a"), 1);
}
END_TEST

static void *set_in_thread(void *arg)
{
	return (void *)(intptr_t)ckpt_journal_set(j, "policy", 0, arg);
}

START_TEST(one_of_many_who_want_a_key_has_it)
{
	static char *const values[] = {"a", "b", "c", "d", "e", "f"};
	pthread_t threads[ARRAY_LEN(values)];
	const char *won = NULL;

	for (size_t i = 0; i < ARRAY_LEN(values); i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, set_in_thread, values[i]), 0);
	for (size_t i = 0; i < ARRAY_LEN(values); i++) {
		void *rc;

		pthread_join(threads[i], &rc);
		ck_assert((intptr_t)rc == -ESTALE || (!rc && !won));
		won = rc ? won : values[i];
	}
	(void)value_in(j, "policy", won);
	reopen();
	(void)value_in(j, "policy", won);
}
END_TEST

START_TEST(a_snapshot_is_put_when_it_is_time)
{
	struct ckpt_log_position at;
	CLEANUP_FREE void *state = NULL;
	uint32_t version = 1;
	size_t len;

	while (ckpt_journal_position(j).seq < 255)
		ck_ok(save(1, version++, NULL));
	ck_ok(ckpt_journal_snapshot(j, false));
	ck_error(ckpt_snapshot_newest(objects, STORE, &at, &state, &len), ENOENT);
	ck_ok(save(1, version++, NULL));
	ck_ok(ckpt_journal_snapshot(j, false));
	ck_ok(ckpt_snapshot_newest(objects, STORE, &at, &state, &len));
	ck_assert_uint_eq(at.seq, 256);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("journal");
	TCase *t = tcase_create("journal");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, each_version_has_the_actor_of_its_act);
	tcase_add_test(t, acts_that_come_at_the_same_time_share_an_entry);
	tcase_add_test(t, one_of_many_who_want_a_name_has_it);
	tcase_add_test(t, a_lost_answer_is_asked_for_at_once);
	tcase_add_loop_test(t, what_nobody_knows_is_settled_before_anything_else, 0, 2);
	tcase_add_test(t, what_was_found_counts_when_it_lasts);
	tcase_add_test(t, a_full_disk_refuses_and_what_frees_room_is_not_in_its_entry);
	tcase_add_test(t, each_version_has_its_record);
	tcase_add_test(t, a_reader_follows);
	tcase_add_test(t, entries_go_that_nobody_needs);
	tcase_add_test(t, a_value_that_is_there_is_not_appended);
	tcase_add_test(t, a_value_stays_in_the_snapshot);
	tcase_add_test(t, a_value_of_which_nobody_knows_is_settled);
	tcase_add_test(t, one_of_many_who_want_a_key_has_it);
	tcase_add_test(t, a_snapshot_is_put_when_it_is_time);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
