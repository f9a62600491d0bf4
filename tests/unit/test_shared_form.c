// The state of a node with a remote, as bytes and as what comes from there: bytes that no act makes are refused, or are another state; and
// without memory nothing has happened.
#include "tests/support/allocfault.h"
#include "tests/support/formats.h"
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/state/act.h"
#include "core/state/jump.h"
#include "core/state/needed.h"
#include "core/state/shared.h"
#include "core/state/state.h"
#include "core/state/table.h"

#include <stdio.h>

#define STORE CKPT_SAMPLE_STORE
#define NODE "22222222-2222-4222-8222-222222222220"
#define OTHER "22222222-2222-4222-8222-222222222221"
#define MANY 2000 // allocations; no act makes so many

enum { ACTS_MAX = 8 };

static struct ckpt_state *state;
static uint64_t number; // of the last operation of the node's log
static struct ckpt_log_position end;
static unsigned nonces;

// --- Acts ---------------------------------------------------------------------------------------------------------------

struct batch {
	struct ckpt_operation ops[ACTS_MAX];
	void *bodies[ACTS_MAX];
	uint32_t count;
};

static void batch_done(struct batch *b)
{
	for (uint32_t i = 0; i < b->count; i++)
		free(b->bodies[i]);
}
#define CLEANUP_BATCH CLEANUP(batch_done)

static void step_id(char ret_id[CKPT_UUID_LEN + 1], const char *name)
{
	snprintf(ret_id, CKPT_UUID_LEN + 1, "aaaaaaaa-aaaa-4aaa-8aaa-%012u", (unsigned)atoi(name));
}

static void add(struct batch *b, struct ckpt_act *a)
{
	struct ckpt_operation *op = &b->ops[b->count];

	ck_ok(ckpt_act_encode(a, &b->bodies[b->count], &op->len));
	op->body = b->bodies[b->count++];
	op->kind = (uint16_t)a->kind;
	op->required = true;
	strcpy(op->node, OTHER);
}

static void add_recorded(struct batch *b, enum ckpt_act_kind kind, const char *name, uint32_t version)
{
	struct ckpt_record r = {.store_id = STORE};
	struct ckpt_act a = {.kind = kind};
	CLEANUP_FREE void *record = NULL;

	ckpt_sample_summary(&r.summary, name, version);
	step_id(r.summary.session, name);
	r.summary.pinned = r.summary.temporary = false;
	ckpt_put64(r.summary.nonce, ++nonces);
	ck_ok(ckpt_record_encode(&r, &record, &a.record_len));
	a.record = record;
	add(b, &a);
}

static void add_plain(struct batch *b, enum ckpt_act_kind kind, const char *name, uint32_t version, uint32_t flags)
{
	struct ckpt_act a = {.kind = kind, .version = version, .flags = flags, .time_ns = 2000};

	step_id(a.step, name);
	add(b, &a);
}

static int apply_to(struct ckpt_state *s, const struct ckpt_operation *of)
{
	struct ckpt_operation op = *of;
	struct ckpt_span at = {.seq = number + 1, .offset = 100, .len = (uint32_t)op.len};

	strcpy(op.node, NODE);
	op.number = number + 1;
	return ckpt_state_apply(s, STORE, &op, &at);
}

static void act_all(const struct batch *b)
{
	for (uint32_t i = 0; i < b->count; i++, number++)
		ck_assert_int_eq(apply_to(state, &b->ops[i]), 0);
}

// The next entry of the remote's log with these acts.
static void *entry_of(const struct batch *b, size_t *ret_len)
{
	struct ckpt_log_entry e = {.seq = end.seq + 1, .time_ns = 1, .count = b->count};
	void *entry;

	strcpy(e.store_id, STORE);
	strcpy(e.node, OTHER);
	memcpy(e.before, end.sha256, sizeof(e.before));
	ck_ok(ckpt_log_entry_encode(&e, b->ops, &entry, ret_len));
	return entry;
}

// acts, NULL: none.
static struct ckpt_operation pull_of(const void *entry, size_t len, const struct batch *acts)
{
	struct ckpt_pull pull = {.host = "", .entry = entry, .entry_len = len};
	struct ckpt_operation op = {.kind = CKPT_PULL_KIND, .required = true};
	void *body;

	if (!entry)
		pull.host = "h1";
	if (acts) {
		pull.acts = acts->ops;
		pull.act_count = acts->count;
	}
	ck_ok(ckpt_pull_encode(&pull, &body, &op.len));
	op.body = body;
	return op;
}

static void pull(const void *entry, size_t len)
{
	struct ckpt_operation op = pull_of(entry, len, NULL);

	ck_assert_int_eq(apply_to(state, &op), 0);
	number++;
	end = ckpt_state_remote(state);
	free((void *)(uintptr_t)op.body);
}

// Five steps of the remote, of which 1 is pinned here, 2 renamed there since, 3 expired here, 4 as it is there, 5 in its trash and back here;
// and one that only we have.
static void setup(void)
{
	CLEANUP_BATCH struct batch theirs = {0}, ours = {0};
	CLEANUP_FREE void *entry = NULL;
	size_t len;

	state = ckpt_state_new();
	number = nonces = 0;
	end = (struct ckpt_log_position){0};
	pull(NULL, 0);
	for (char name[] = "1"; *name <= '5'; ++*name)
		add_recorded(&theirs, CKPT_ACT_SAVE, name, 1);
	add_plain(&theirs, CKPT_ACT_DELETE, "5", 2, 0);
	entry = entry_of(&theirs, &len);
	pull(entry, len);
	add_plain(&ours, CKPT_ACT_FLAG, "1", 2, CKPT_FLAG_PINNED);
	add_recorded(&ours, CKPT_ACT_AMEND, "2", 2);
	add_plain(&ours, CKPT_ACT_DELETE, "3", 2, 0);
	add_plain(&ours, CKPT_ACT_EXPIRE, "3", 2, 0);
	add_plain(&ours, CKPT_ACT_UNDELETE, "5", 3, 0);
	add_recorded(&ours, CKPT_ACT_SAVE, "6", 1);
	act_all(&ours);
}

static void teardown(void)
{
	ckpt_state_free(state);
}

// Changes of both since then, and those that the node makes at once.
static void meet(struct batch *theirs, struct batch *ours)
{
	add_recorded(theirs, CKPT_ACT_AMEND, "1", 2);
	add_recorded(theirs, CKPT_ACT_AMEND, "2", 2);
	add_plain(theirs, CKPT_ACT_FLAG, "3", 2, CKPT_FLAG_PINNED);
	add_plain(theirs, CKPT_ACT_DELETE, "4", 2, 0);
	add_recorded(theirs, CKPT_ACT_SAVE, "7", 1);
	add_plain(ours, CKPT_ACT_FLAG, "7", 2, CKPT_FLAG_TEMPORARY);
	add_recorded(ours, CKPT_ACT_AMEND, "6", 2);
}

static void *bytes_of(const struct ckpt_state *s, size_t *ret_len)
{
	void *bytes;

	ck_ok(ckpt_state_encode(s, &bytes, ret_len));
	return bytes;
}

static struct ckpt_state *copy_of(const void *bytes, size_t len)
{
	struct ckpt_state *copy;

	ck_ok(ckpt_state_decode(bytes, len, &copy));
	return copy;
}

// --- The bytes of a state -------------------------------------------------------------------------------------------------

// Bytes that are taken have one form.
static int decode(const void *bytes, size_t len)
{
	CLEANUP_FREE void *exact = malloc(len + !len), *again = NULL;
	struct ckpt_state *s;
	size_t again_len;
	int rc;

	memcpy(exact, bytes, len);
	rc = ckpt_state_decode(exact, len, &s);
	if (rc)
		return rc;
	again = bytes_of(s, &again_len);
	ckpt_state_free(s);
	ck_assert_uint_eq(again_len, len);
	ck_assert_mem_eq(again, bytes, len);
	return 0;
}

START_TEST(each_bit_that_is_flipped_is_seen_or_is_another_state)
{
	size_t len, others = 0;
	CLEANUP_FREE uint8_t *bytes = bytes_of(state, &len);

	ck_ok(decode(bytes, len));
	for (size_t i = 0; i < len * 8; i++) {
		int rc;

		bytes[i / 8] ^= (uint8_t)(1u << i % 8);
		rc = decode(bytes, len);
		bytes[i / 8] ^= (uint8_t)(1u << i % 8);
		ck_assert(!rc || rc == -EBADMSG || rc == -ENOTSUP); // newer: the form of a summary
		others += !rc;
	}
	ck_assert_uint_gt(others, 0);
	for (size_t n = 0; n < len; n++)
		ck_error(decode(bytes, n), EBADMSG);
}
END_TEST

// The place of the change of step 1, which is the first.
enum { CHANGED_BYTES = 64, SINCE = 40, LATEST = 48, FLAGS = 56, MERGED = 60, MERGED_MOST = 20 };

static uint8_t *change_of(uint8_t *bytes, size_t len, const char *name)
{
	char id[CKPT_UUID_LEN + 1];
	uint8_t *last = NULL;

	step_id(id, name);
	for (size_t i = 0; i + CHANGED_BYTES <= len; i++)
		if (!memcmp(bytes + i, id, CKPT_UUID_LEN) && ckpt_get32(bytes + i + MERGED) <= MERGED_MOST &&
		    ckpt_get32(bytes + i + FLAGS) <= 3 && ckpt_get64(bytes + i + SINCE) &&
		    ckpt_get64(bytes + i + SINCE) <= number)
			last = bytes + i;
	ck_assert_ptr_nonnull(last);
	return last;
}

static const struct {
	const char *step;
	unsigned at;
	uint32_t is;
} changes[] = {
	{"1", CKPT_UUID_LEN, 1}, // zeros
	{"1", MERGED, 1000},     // no version
	{"1", SINCE, 0},         {"1", LATEST, 1},
	{"1", FLAGS, 7},         {"1", FLAGS, 1}, // gone, and the remote never had it
	{"1", FLAGS, 3},                          // gone, and there
	{"3", FLAGS, 2},                          // not gone, and not there
};

START_TEST(changes_that_no_act_makes_are_no_state)
{
	size_t len;
	CLEANUP_FREE uint8_t *bytes = bytes_of(state, &len);
	uint8_t *change = change_of(bytes, len, changes[_i].step);

	ckpt_put32(change + changes[_i].at, changes[_i].is);
	ck_error(decode(bytes, len), EBADMSG);
}
END_TEST

START_TEST(a_change_is_one_of_a_step_once_and_of_that_step)
{
	size_t len;
	CLEANUP_FREE uint8_t *bytes = bytes_of(state, &len);
	uint8_t *change = change_of(bytes, len, "6");

	ck_assert_uint_eq(ckpt_get32(change + FLAGS), 0); // the remote never had it
	change[CKPT_UUID_LEN - 1] = '1';
	ck_error(decode(bytes, len), EBADMSG); // a second one of 1
	change[CKPT_UUID_LEN - 1] = '9';
	ck_error(decode(bytes, len), EBADMSG); // of none
	change[CKPT_UUID_LEN - 1] = '6';
	ck_ok(decode(bytes, len));
	change_of(bytes, len, "1")[CKPT_UUID_LEN - 1] = '4'; // its other half is of 1
	ck_error(decode(bytes, len), EBADMSG);
}
END_TEST

// --- What comes -----------------------------------------------------------------------------------------------------------

// Refused before anything of it is done, or done.
static int try_pull(const void *bytes, size_t len, const struct ckpt_operation *op)
{
	struct ckpt_state *s = copy_of(bytes, len);
	int check = ckpt_pull_check(STORE, op->body, op->len), rc = apply_to(s, op);
	size_t after_len;
	CLEANUP_FREE void *after = bytes_of(s, &after_len);

	ck_assert_msg(check ? rc == check || rc == CKPT_STATE_VOID : rc >= 0 || rc == -EBADMSG, "%d after %d", rc,
		      check);
	if (rc < 0) {
		ck_assert_uint_eq(after_len, len);
		ck_assert_mem_eq(after, bytes, len);
	}
	ckpt_state_free(s);
	return rc;
}

START_TEST(each_bit_of_a_pull_that_is_flipped_is_seen_or_is_another_act)
{
	CLEANUP_BATCH struct batch theirs = {0}, ours = {0};
	size_t len, entry_len, seen = 0;
	CLEANUP_FREE uint8_t *bytes = bytes_of(state, &len);
	CLEANUP_FREE void *entry = NULL;
	CLEANUP_FREE uint8_t *body = NULL, *exact = NULL;
	struct ckpt_operation op;

	meet(&theirs, &ours);
	entry = entry_of(&theirs, &entry_len);
	op = pull_of(entry, entry_len, &ours);
	body = (uint8_t *)(uintptr_t)op.body;
	ck_assert_int_eq(try_pull(bytes, len, &op), 0);
	for (size_t i = 0; i < op.len * 8; i++) {
		int rc;

		body[i / 8] ^= (uint8_t)(1u << i % 8);
		rc = try_pull(bytes, len, &op);
		body[i / 8] ^= (uint8_t)(1u << i % 8);
		ck_assert(rc >= 0 || rc == -EBADMSG || rc == -ENOTSUP);
		seen += rc < 0;
	}
	ck_assert_uint_gt(seen, 1000);
	exact = malloc(op.len);
	for (size_t n = 0; n < op.len; n++) {
		struct ckpt_operation cut = op;

		cut.len = n;
		cut.body = memcpy(exact + (op.len - n), body, n); // its end is that of the memory
		// Without an entry it would detach the node: that has no acts.
		ck_assert_int_eq(try_pull(bytes, len, &cut), -EBADMSG);
	}
}
END_TEST

// The entry is the remote's: what is wrong in it, its digest does not say.
static void refuse(const struct batch *theirs, const struct batch *ours, int error)
{
	size_t len, entry_len;
	CLEANUP_FREE uint8_t *bytes = bytes_of(state, &len);
	CLEANUP_FREE void *entry = entry_of(theirs, &entry_len);
	struct ckpt_operation op = pull_of(entry, entry_len, ours);

	ck_assert_int_eq(try_pull(bytes, len, &op), error);
	free((void *)(uintptr_t)op.body);
}

static void record_is(struct batch *b, uint32_t version, const char *store, bool is_deleted)
{
	struct ckpt_record r = {0};
	struct ckpt_act a = {.kind = CKPT_ACT_SAVE};
	CLEANUP_FREE void *record = NULL;

	strcpy(r.store_id, store);
	ckpt_sample_summary(&r.summary, "8", version);
	r.summary.deleted = is_deleted;
	ck_ok(ckpt_record_encode(&r, &record, &a.record_len));
	a.record = record;
	add(b, &a);
}

START_TEST(acts_that_no_node_sends_are_refused)
{
	CLEANUP_BATCH struct batch theirs = {0}, ours = {0}, value = {0}, expiry = {0}, alien = {0}, high = {0},
				   deleted = {0};
	struct ckpt_act set = {.kind = CKPT_ACT_SET, .key = "policy", .value = "1", .value_len = 1};
	struct batch newer;

	meet(&theirs, &ours);
	refuse(&theirs, &ours, 0);
	add(&value, &set);
	add_plain(&expiry, CKPT_ACT_EXPIRE, "6", 1, 0);
	refuse(&theirs, &value, -EBADMSG); // a node's own acts on a step are those of a merge
	refuse(&theirs, &expiry, -EBADMSG);
	record_is(&alien, 1, OTHER, false);
	refuse(&alien, NULL, -EBADMSG);
	record_is(&high, CKPT_STATE_VERSION_MAX + 1, STORE, false);
	refuse(&high, NULL, -EBADMSG);
	record_is(&deleted, 1, STORE, true);
	refuse(&deleted, NULL, -EBADMSG);
	newer = theirs;
	newer.ops[1].kind = CKPT_ACT_KINDS + 7;
	refuse(&newer, NULL, -ENOTSUP);
	newer.ops[1].required = false; // it is passed over
	refuse(&newer, NULL, 0);
	newer.ops[1].kind = CKPT_PULL_KIND;
	refuse(&newer, NULL, -EBADMSG);
}
END_TEST

START_TEST(a_node_has_one_remote)
{
	struct ckpt_operation op = pull_of(NULL, 0, NULL);
	CLEANUP_BATCH struct batch theirs = {0}, ours = {0};
	struct ckpt_state *alone = ckpt_state_new();
	CLEANUP_FREE void *entry = NULL, *body = NULL;
	char long_host[CKPT_PULL_HOST_MAX + 2];
	size_t len;

	ck_assert_int_eq(apply_to(state, &op), CKPT_STATE_VOID); // it has one
	free((void *)(uintptr_t)op.body);
	meet(&theirs, &ours);
	entry = entry_of(&theirs, &len);
	op = pull_of(entry, len, NULL);
	ck_assert_int_eq(apply_to(alone, &op), CKPT_STATE_VOID); // it has none
	free((void *)(uintptr_t)op.body);
	ck_ok(ckpt_pull_encode(&(struct ckpt_pull){.host = "h1", .entry = entry, .entry_len = len}, &body, &op.len));
	op.body = body;
	ck_assert_int_eq(apply_to(state, &op), -EBADMSG); // an entry is of no host
	memset(long_host, 'h', sizeof(long_host));
	long_host[sizeof(long_host) - 1] = '\0';
	ck_error(ckpt_pull_encode(&(struct ckpt_pull){.host = long_host}, &body, &len), EINVAL);
	ckpt_state_free(alone);
}
END_TEST

// --- Without memory -------------------------------------------------------------------------------------------------------

// Nothing has happened, and it does once there is memory; the same as if there had always been.
static uint64_t fail_each(const struct ckpt_operation *op)
{
	size_t len, good_len;
	CLEANUP_FREE void *bytes = bytes_of(state, &len), *good = NULL;
	struct ckpt_state *s = copy_of(bytes, len);
	uint64_t made = 1;

	ck_assert_int_ge(apply_to(s, op), 0);
	good = bytes_of(s, &good_len);
	ckpt_state_free(s);
	for (uint64_t n = 1; n <= made; n++) {
		CLEANUP_FREE void *after = NULL;
		size_t after_len;
		int rc;

		ck_assert_uint_lt(n, MANY);
		s = copy_of(bytes, len);
		ckpt_allocfault_begin(n, false);
		rc = apply_to(s, op);
		made = ckpt_allocfault_end();
		ck_assert(n > made ? rc >= 0 : rc >= 0 || rc == -ENOMEM);
		if (rc)
			rc = apply_to(s, op);
		ck_assert_int_ge(rc, 0);
		after = bytes_of(s, &after_len);
		ck_assert_uint_eq(after_len, good_len);
		ck_assert_mem_eq(after, good, good_len);
		ckpt_state_free(s);
	}
	return made;
}

START_TEST(without_memory_nothing_comes)
{
	CLEANUP_BATCH struct batch theirs = {0}, ours = {0};
	CLEANUP_FREE void *entry = NULL;
	struct ckpt_operation op;
	size_t len;

	meet(&theirs, &ours);
	entry = entry_of(&theirs, &len);
	op = pull_of(entry, len, _i ? &ours : NULL);
	ck_assert_uint_gt(fail_each(&op), 0);
	free((void *)(uintptr_t)op.body);
}
END_TEST

START_TEST(without_memory_no_act_of_the_node_is_done)
{
	CLEANUP_BATCH struct batch b = {0};
	uint64_t made = 0;

	add_plain(&b, CKPT_ACT_DELETE, "4", 2, 0);
	add_plain(&b, CKPT_ACT_EXPIRE, "4", 2, 0);
	add_recorded(&b, CKPT_ACT_SAVE, "9", 1);
	add_recorded(&b, CKPT_ACT_AMEND, "6", 2);
	add_plain(&b, CKPT_ACT_DELETE, "6", 3, 0);
	add_plain(&b, CKPT_ACT_EXPIRE, "6", 3, 0); // the remote never had it
	for (uint32_t i = 0; i < b.count; i++, number++) {
		made += fail_each(&b.ops[i]);
		ck_assert_int_eq(apply_to(state, &b.ops[i]), 0);
	}
	ck_assert_uint_gt(made, 0);
}
END_TEST

START_TEST(without_memory_no_remote_is_attached)
{
	struct ckpt_operation op = pull_of(NULL, 0, NULL);
	CLEANUP_BATCH struct batch b = {0};

	ckpt_state_free(state);
	state = ckpt_state_new();
	add_recorded(&b, CKPT_ACT_SAVE, "1", 1);
	add_recorded(&b, CKPT_ACT_SAVE, "2", 1);
	act_all(&b);
	ck_assert_uint_gt(fail_each(&op), 0);
	free((void *)(uintptr_t)op.body);
}
END_TEST

// The entries that a node's log must keep: those of its own records, and of those which only the remote has of a step that is gone here.
START_TEST(without_memory_it_is_not_known_which_entries_are_needed)
{
	CLEANUP_BATCH struct batch theirs = {0}, ours = {0};
	CLEANUP_FREE void *entry = NULL;
	int rc = -ENOMEM;
	uint64_t gone;
	size_t len;

	add_recorded(&theirs, CKPT_ACT_SAVE, "8", 1);
	entry = entry_of(&theirs, &len);
	pull(entry, len);
	gone = number;
	add_plain(&ours, CKPT_ACT_DELETE, "8", 2, 0);
	add_plain(&ours, CKPT_ACT_EXPIRE, "8", 2, 0);
	add_recorded(&ours, CKPT_ACT_SAVE, "9", 1);
	act_all(&ours);
	for (uint64_t n = 1; rc; n++) {
		struct ckpt_needed needed = {0};

		ck_assert_uint_lt(n, MANY);
		ckpt_allocfault_begin(n, false);
		rc = ckpt_needed_find(state, &needed);
		(void)ckpt_allocfault_end();
		ck_assert(!rc || rc == -ENOMEM);
		if (!rc) {
			ck_assert(!ckpt_needed_has(&needed, 1)); // that attached the remote
			ck_assert(ckpt_needed_has(&needed, 2));  // the remote's, with five steps
			ck_assert(ckpt_needed_has(&needed, gone));
			ck_assert(ckpt_needed_has(&needed, number)); // the save of the last one
			ck_assert(!ckpt_needed_has(&needed, number + 1));
		}
		ckpt_needed_done(&needed);
	}
}
END_TEST

START_TEST(without_memory_there_are_no_bytes_and_no_state)
{
	size_t len, again_len;
	CLEANUP_FREE void *bytes = bytes_of(state, &len), *again = NULL;
	int rc = -ENOMEM;

	for (uint64_t n = 1; rc; n++) {
		struct ckpt_state *s;

		ck_assert_uint_lt(n, MANY);
		ckpt_allocfault_begin(n, false);
		rc = ckpt_state_decode(bytes, len, &s);
		(void)ckpt_allocfault_end();
		ck_assert(!rc || rc == -ENOMEM);
		if (!rc)
			ckpt_state_free(s);
	}
	rc = -ENOMEM;
	for (uint64_t n = 1; rc; n++) {
		ck_assert_uint_lt(n, MANY);
		ckpt_allocfault_begin(n, false);
		rc = ckpt_state_encode(state, &again, &again_len);
		(void)ckpt_allocfault_end();
		ck_assert(!rc || rc == -ENOMEM);
	}
	ck_assert_uint_eq(again_len, len);
	ck_assert_mem_eq(again, bytes, len);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("shared form");
	TCase *forms = tcase_create("forms"), *memory = tcase_create("memory");

	tcase_add_checked_fixture(forms, setup, teardown);
	tcase_add_test(forms, each_bit_that_is_flipped_is_seen_or_is_another_state);
	tcase_add_loop_test(forms, changes_that_no_act_makes_are_no_state, 0, (int)ARRAY_LEN(changes));
	tcase_add_test(forms, a_change_is_one_of_a_step_once_and_of_that_step);
	tcase_add_test(forms, each_bit_of_a_pull_that_is_flipped_is_seen_or_is_another_act);
	tcase_add_test(forms, acts_that_no_node_sends_are_refused);
	tcase_add_test(forms, a_node_has_one_remote);
	suite_add_tcase(suite, forms);
	tcase_add_checked_fixture(memory, setup, teardown);
	tcase_add_loop_test(memory, without_memory_nothing_comes, 0, 2);
	tcase_add_test(memory, without_memory_no_act_of_the_node_is_done);
	tcase_add_test(memory, without_memory_no_remote_is_attached);
	tcase_add_test(memory, without_memory_it_is_not_known_which_entries_are_needed);
	tcase_add_test(memory, without_memory_there_are_no_bytes_and_no_state);
	suite_add_tcase(suite, memory);
	return ckpt_suite_run(suite);
}
