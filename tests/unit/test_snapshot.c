// Snapshots of a log, and what may be removed from the log because of them.
#include "tests/support/suite.h"

#include "backends/backends.h"
#include "core/base/util.h"
#include "core/log/snapshot.h"
#include "core/record/container.h"

#include <stdio.h>

#define STORE "11111111-1111-4111-8111-111111111111"
#define NODE "22222222-2222-4222-8222-222222222222"

enum { ENTRIES = 20, EVERY = 5 };

struct stand {
	struct ckpt_objects *o;
	struct ckpt_log_position at[ENTRIES + 1]; // of each entry
	struct ckpt_fault fault;
};

static void stand_close(struct stand *s)
{
	ckpt_objects_close(s->o);
}

static int count(void *arg, const struct ckpt_log_entry *entry)
{
	*(uint64_t *)arg = entry->seq;
	return 0;
}

// A log of so many entries, with a snapshot of each fifth, which says its number.
static void stand_open(struct stand *s, bool local)
{
	CLEANUP_FD int fd = ckpt_temp_fd();
	struct ckpt_log *log;
	uint64_t last;

	*s = (struct stand){0};
	if (local)
		ck_ok(ckpt_local_open(fd, true, &s->o));
	else
		ck_ok(ckpt_mem_new(&s->o));
	ck_ok(ckpt_fault_new(s->o, &s->fault, &s->o));
	ck_ok(ckpt_log_new(s->o, STORE, NODE, NULL, true, count, &last, &log));
	for (uint64_t i = 1; i <= ENTRIES; i++) {
		struct ckpt_operation op = {.node = NODE, .number = i, .kind = 1};
		char text[8];

		ck_ok(ckpt_log_append(log, &op, 1, false));
		s->at[i] = ckpt_log_position(log);
		snprintf(text, sizeof(text), "%u", (unsigned)i);
		if (i % EVERY == 0)
			ck_ok(ckpt_snapshot_put(s->o, STORE, &s->at[i], text, strlen(text)));
	}
	ckpt_log_free(log);
}

static int newest(struct stand *s)
{
	CLEANUP_FREE char *state = NULL;
	struct ckpt_log_position at;
	char text[8];
	size_t len;
	int rc = ckpt_snapshot_newest(s->o, STORE, &at, (void **)&state, &len);

	if (rc)
		return rc;
	snprintf(text, sizeof(text), "%u", (unsigned)at.seq);
	ck_assert_uint_eq(len, strlen(text));
	ck_assert_mem_eq(state, text, len);
	ck_assert_mem_eq(at.sha256, s->at[at.seq].sha256, CKPT_SHA256_LEN);
	return (int)at.seq;
}

static void damage(struct stand *s, uint64_t seq, size_t byte)
{
	CLEANUP_FREE uint8_t *data = NULL;
	char key[CKPT_SNAPSHOT_KEY_MAX];
	size_t len;

	ckpt_snapshot_key(seq, key);
	ck_ok(ckpt_objects_get_all(s->o, key, 1 << 20, (void **)&data, &len, NULL));
	ck_ok(ckpt_objects_remove(s->o, key));
	data[byte]++;
	if (byte == 8) // the major version: then all but that is right
		ckpt_sha256(data, len - CKPT_SHA256_LEN, data + len - CKPT_SHA256_LEN);
	ck_ok(ckpt_objects_put(s->o, key, data, len, NULL));
}

// How far one comes who has read up to there.
static int read_from(struct stand *s, uint64_t seq, uint64_t *ret_last)
{
	struct ckpt_log *log;
	int rc;

	*ret_last = seq;
	ck_ok(ckpt_log_new(s->o, STORE, NODE, seq ? &s->at[seq] : NULL, true, count, ret_last, &log));
	rc = ckpt_log_read(log);
	ckpt_log_free(log);
	return rc;
}

static int see_first(void *arg, const char *key, const struct ckpt_object *object)
{
	(void)object;
	*(uint64_t *)arg = ckpt_log_number(key);
	return 1;
}

static uint64_t first_entry(struct stand *s)
{
	uint64_t seq = 0;

	ck_assert_int_eq(ckpt_objects_list(s->o, "log/", NULL, see_first, &seq), 1);
	return seq;
}

static void trim(struct stand *s, uint64_t keep_from)
{
	ck_ok(ckpt_log_trim(s->o, STORE, keep_from, NULL, NULL));
}

#define STAND(s)                                                                                                       \
	CLEANUP(stand_close) struct stand s;                                                                           \
	stand_open(&s, _i)

START_TEST(the_newest_one_that_is_whole_is_found)
{
	STAND(s);

	ck_assert_int_eq(newest(&s), 20);
	damage(&s, 20, 60);
	ck_assert_int_eq(newest(&s), 15);
	damage(&s, 15, 8);
	ck_assert_int_eq(newest(&s), -ENOTSUP);
	damage(&s, 15, 60);
	damage(&s, 10, 60);
	damage(&s, 5, 60);
	ck_assert_int_eq(newest(&s), -ENOENT);
}
END_TEST

START_TEST(it_is_put_once)
{
	STAND(s);
	struct ckpt_log_position other = s.at[20];

	ck_ok(ckpt_snapshot_put(s.o, STORE, &s.at[20], "20", 2));
	other.sha256[0]++; // of another log
	ck_error(ckpt_snapshot_put(s.o, STORE, &other, "20", 2), EBADMSG);
	ck_assert_int_eq(newest(&s), 20);
	damage(&s, 20, 60); // what is there is no snapshot, and cannot be put over
	ck_error(ckpt_snapshot_put(s.o, STORE, &s.at[20], "20", 2), EBADMSG);
}
END_TEST

START_TEST(what_two_snapshots_say_is_trimmed)
{
	STAND(s);
	uint64_t last;

	trim(&s, UINT64_MAX);
	ck_assert_uint_eq(first_entry(&s), 15);
	ck_assert_int_eq(newest(&s), 20);
	for (uint64_t seq = 0; seq <= ENTRIES; seq++) {
		int rc = read_from(&s, seq, &last);

		ck_assert_int_eq(rc, seq < 14 ? -ESTALE : 0); // 14: entry 15 follows it
		ck_assert_uint_eq(last, seq < 14 ? seq : ENTRIES);
	}
	damage(&s, 20, 60); // the older one still does
	ck_assert_int_eq(newest(&s), 15);
	ck_ok(read_from(&s, 15, &last));
	ck_assert_uint_eq(last, ENTRIES);
	trim(&s, UINT64_MAX); // there are not two any more
	ck_assert_uint_eq(first_entry(&s), 15);
}
END_TEST

START_TEST(what_is_still_needed_is_kept)
{
	STAND(s);
	uint64_t last;

	damage(&s, 15, 60);
	trim(&s, 7);
	ck_assert_uint_eq(first_entry(&s), 7);
	trim(&s, UINT64_MAX);
	ck_assert_uint_eq(first_entry(&s), 10);
	ck_ok(read_from(&s, 10, &last));
	ck_assert_uint_eq(last, ENTRIES);
}
END_TEST

static bool is_third(void *arg, uint64_t seq)
{
	(void)arg;
	return seq == 3;
}

// A reader that stands at one that was kept, with none behind it, sees by the snapshot that others were there.
START_TEST(an_entry_that_something_names_is_kept)
{
	STAND(s);
	uint64_t last;

	ck_ok(ckpt_log_trim(s.o, STORE, UINT64_MAX, is_third, NULL));
	ck_assert_uint_eq(first_entry(&s), 3);
	ck_ok(read_from(&s, 20, &last));
	ck_assert_int_eq(read_from(&s, 2, &last), -ESTALE);
	ck_assert_uint_eq(last, 3);
	ck_assert_int_eq(read_from(&s, 3, &last), -ESTALE);
}
END_TEST

// After a failure or a death in the middle the newest snapshot still leads to the end, and the trimming can be done again.
START_TEST(a_trimming_that_ends_early_does_no_harm)
{
	bool failed = true;

	for (uint64_t n = 1; failed; n++) {
		STAND(s);
		uint64_t last;

		s.fault = (struct ckpt_fault){.at = n, .error = -ENOSPC, .sticky = true};
		failed = ckpt_log_trim(s.o, STORE, UINT64_MAX, NULL, NULL);
		s.fault.at = 0;
		ck_assert_int_eq(newest(&s), 20);
		ck_ok(read_from(&s, 15, &last));
		ck_assert_uint_eq(last, ENTRIES);
		trim(&s, UINT64_MAX);
		ck_assert_uint_eq(first_entry(&s), 15);
	}
}
END_TEST

// --- Hostile ones -------------------------------------------------------------------------------------------------------

#define HEAD CKPT_FOURCC('H', 'E', 'A', 'D')
#define STATE CKPT_FOURCC('S', 'T', 'A', 'T')
#define RECORDS CKPT_FOURCC('R', 'E', 'C', 'S')
#define HEAD_BYTES 80

static const uint32_t sections_known[] = {HEAD, STATE, RECORDS};
static const struct ckpt_container_kind kind = {.magic = {'c', 'k', 'p', 't', '-', 's', 'n', 'p'},
						.major = 1,
						.types = sections_known,
						.type_count = ARRAY_LEN(sections_known),
						.bytes_max = 1 << 20};

// A whole container, whose sections are not those of a snapshot.
START_TEST(sections_that_are_wrong_are_refused)
{
	static const struct {
		uint32_t types[3];
		size_t head_len;
		int rc;
	} cases[] = {
		{{HEAD, STATE}, HEAD_BYTES, 0},
		{{HEAD, RECORDS, STATE}, HEAD_BYTES, 0},
		{{STATE}, HEAD_BYTES, -EBADMSG},
		{{HEAD}, HEAD_BYTES, -EBADMSG},
		{{HEAD, RECORDS}, HEAD_BYTES, -EBADMSG},
		{{HEAD, STATE}, HEAD_BYTES - 1, -EBADMSG},
		{{HEAD, STATE}, HEAD_BYTES + 1, -EBADMSG},
		{{HEAD, STATE}, 0, -EBADMSG},
		{{HEAD, STATE, RECORDS}, HEAD_BYTES, -EBADMSG}, // records stand in front of the state
	};
	uint8_t head[HEAD_BYTES + 1] = STORE;
	struct ckpt_section sections[3];
	CLEANUP_FREE void *data = NULL;
	struct ckpt_snapshot is;
	size_t count, len;

	ckpt_put64(head + 40, 7);
	for (count = 0; count < 3 && cases[_i].types[count]; count++)
		sections[count] = (struct ckpt_section){.type = cases[_i].types[count],
							.required = true,
							.data = head,
							.len = cases[_i].types[count] == HEAD ? cases[_i].head_len : 8};
	ck_ok(ckpt_container_encode(&kind, 0, 0, sections, count, &data, &len));
	ck_assert_int_eq(ckpt_snapshot_decode(STORE, 7, data, len, &is), cases[_i].rc);
	ck_error(ckpt_snapshot_decode(STORE, 8, data, len, &is), EBADMSG);
	ck_error(ckpt_snapshot_decode(NODE, 7, data, len, &is), EBADMSG);
}
END_TEST

// One that is there already counts once it is on the disk, and can be read.
START_TEST(what_stands_there_is_made_durable_before_it_counts)
{
	STAND(s);
	bool failed = true;

	for (uint64_t n = 2; failed; n++) { // behind the put, which finds it
		s.fault = (struct ckpt_fault){.at = n, .error = -EIO};
		failed = ckpt_snapshot_put(s.o, STORE, &s.at[20], "20", 2);
		ck_assert_uint_le(n, 10);
		ck_assert_int_eq(failed, n <= 3);
	}
}
END_TEST

// Another node trims the same log.
static bool trims_too(void *arg, uint64_t seq)
{
	struct stand *s = arg;
	char key[CKPT_LOG_KEY_MAX];

	ckpt_log_key(seq, key);
	ck_ok(ckpt_objects_remove(s->o, key));
	return false;
}

START_TEST(what_another_has_trimmed_meanwhile_is_gone)
{
	STAND(s);
	uint64_t last;

	ck_ok(ckpt_log_trim(s.o, STORE, UINT64_MAX, trims_too, &s));
	ck_assert_uint_eq(first_entry(&s), 15);
	ck_ok(read_from(&s, 15, &last));
	ck_assert_uint_eq(last, ENTRIES);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("snapshot");
	TCase *tcase = tcase_create("snapshot");

	tcase_add_loop_test(tcase, the_newest_one_that_is_whole_is_found, 0, 2);
	tcase_add_loop_test(tcase, it_is_put_once, 0, 2);
	tcase_add_loop_test(tcase, what_two_snapshots_say_is_trimmed, 0, 2);
	tcase_add_loop_test(tcase, an_entry_that_something_names_is_kept, 0, 2);
	tcase_add_loop_test(tcase, what_is_still_needed_is_kept, 0, 2);
	tcase_add_loop_test(tcase, a_trimming_that_ends_early_does_no_harm, 0, 2);
	tcase_add_loop_test(tcase, sections_that_are_wrong_are_refused, 0, 9);
	tcase_add_loop_test(tcase, what_stands_there_is_made_durable_before_it_counts, 0, 2);
	tcase_add_loop_test(tcase, what_another_has_trimmed_meanwhile_is_gone, 0, 2);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
