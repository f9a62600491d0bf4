// The plain tree in snapshots of a state: the same tree has the same bytes, and bytes that no acts make are refused. And large trees.
#include "tests/support/allocfault.h"
#include "tests/support/formats.h"
#include "tests/support/plain_tree.h"
#include "tests/support/suite.h"

#include <malloc.h>
#include <stdio.h>

#define A CKPT_TREE_A
#define B CKPT_TREE_B
#define C CKPT_TREE_C
#define NONE CKPT_TREE_NONE

// --- As bytes -----------------------------------------------------------------------------------------------------------

static int decode(const void *bytes, size_t len)
{
	CLEANUP_FREE uint8_t *exact = malloc(len);
	struct ckpt_state *s;
	int rc;

	if (len)
		memcpy(exact, bytes, len);
	rc = ckpt_state_decode(exact, len, &s);
	if (rc)
		return rc;
	ckpt_tree_assert_bytes(s, bytes, len);
	ckpt_state_free(s);
	return 0;
}

START_TEST(a_state_of_bytes_goes_on_as_the_one_that_they_are_of)
{
	struct ckpt_act acts[] = {ckpt_tree_mkdir(C, B, "new"),
				  ckpt_tree_file(A, "new", 0, "x"),
				  ckpt_tree_remove("", "fa", 1u << 16), // void
				  ckpt_tree_remove(B, "file", 3u << 16),
				  ckpt_tree_remove(A, "fb", 2u << 16),    // void: the new one is in it
				  ckpt_tree_move(A, C, "down", 1u << 16), // void
				  ckpt_tree_move(B, "", "up", 2u << 16)};
	CLEANUP_FREE uint8_t *bytes = NULL, *after = NULL;
	CLEANUP_FREE char *text = NULL, *other_text = NULL;
	struct ckpt_state *back;
	size_t len, after_len, pull_len;

	ckpt_tree_make_rich();
	ckpt_tree_bytes(ckpt_tree.state, &bytes, &len);
	ck_ok(ckpt_state_decode(bytes, len, &back));
	text = ckpt_tree_said(ckpt_tree.state);
	other_text = ckpt_tree_said(back);
	ck_assert_str_eq(text, other_text);
	ckpt_tree_assert_bytes(back, bytes, len);
	for (size_t i = 0; i < ARRAY_LEN(acts); i++)
		ckpt_tree_add(&acts[i], CKPT_TREE_OTHER);
	ckpt_tree.number++;
	ckpt_tree_make_pull(&ckpt_tree.pulls[ckpt_tree.number], &pull_len);
	ck_ok(ckpt_tree_apply(ckpt_tree.state, CKPT_PULL_KIND, ckpt_tree.pulls[ckpt_tree.number], pull_len));
	ck_ok(ckpt_tree_apply(back, CKPT_PULL_KIND, ckpt_tree.pulls[ckpt_tree.number], pull_len));
	ckpt_tree_bytes(ckpt_tree.state, &after, &after_len);
	ckpt_tree_assert_bytes(back, after, after_len);
	ck_assert_uint_eq(ckpt_tree_count(back), 6);
	ckpt_state_free(back);
}
END_TEST

START_TEST(an_empty_tree_has_no_bytes)
{
	CLEANUP_FREE uint8_t *before = NULL, *after = NULL;
	size_t before_len, after_len;
	uint64_t version = ckpt_tree_fits(ckpt_tree_file("", "f", 0, "x"));

	ckpt_tree_bytes(ckpt_tree.state, &before, &before_len);
	ckpt_tree_fits(ckpt_tree_remove("", "f", version));
	ckpt_tree_bytes(ckpt_tree.state, &after, &after_len);
	ck_assert_uint_eq(before_len - after_len, 8 + 128 + 1);
	ck_ok(decode(after, after_len));
}
END_TEST

// The places in the bytes of the tree of ckpt_tree_make_rich(), from its end.
enum {
	FIXED = 128,
	NAMES = 2 + 2 + 4 + 4 + 4,
	PLAINS = 8 + 5 * FIXED + NAMES,
	FOLDER_A = 8,
	FOLDER_B = FOLDER_A + FIXED + 2,
	FILE_ = FOLDER_B + FIXED + 2,
	LINK = FILE_ + FIXED + 4,
	EMPTY = LINK + FIXED + 4,

	TIME = 8,
	MODE = 16,
	PUT_BY = 20,
	TYPE = 24,
	NAME_LEN = 26,
	LEN = 28,
	SEQ = 32,
	AT = 40,
	ZEROS = 44,
	UID = 112,
	SIZE = 120,
	FOLDER = 48,
	ID = 64,
	SHA = 80,
	NAME = FIXED,
};

static int decode_with(const uint8_t *bytes, size_t len, size_t at, const void *value, size_t value_len)
{
	CLEANUP_FREE uint8_t *copy = malloc(len);

	memcpy(copy, bytes, len);
	memcpy(copy + len - PLAINS + at, value, value_len);
	return decode(copy, len);
}

START_TEST(numbers_that_no_act_makes_are_no_tree)
{
	static const struct {
		size_t at;
		unsigned bytes;
		uint64_t value;
		int rc;
	} rows[] = {
		{0, 4, 0, -EBADMSG}, // the count
		{0, 4, 4, -EBADMSG},
		{0, 4, 6, -EBADMSG},
		{0, 4, UINT32_MAX, -EBADMSG},
		{4, 4, 1, -EBADMSG},
		{FOLDER_A, 8, 0, -EBADMSG}, // versions: of no entry, doubled, out of order, of one that is not yet read
		{FOLDER_A, 8, 0xffff, -EBADMSG},
		{FOLDER_B, 8, 1u << 16, -EBADMSG},
		{FOLDER_A, 8, 2u << 16 | 1, -EBADMSG},
		{EMPTY, 8, 6u << 16, -EBADMSG},
		{EMPTY, 8, UINT64_MAX, -EBADMSG},
		{EMPTY, 8, 5u << 16 | 0xffff, 0},
		{FOLDER_A + TIME, 8, 1, -EBADMSG},
		{FILE_ + TIME, 8, 1, 0},
		{FOLDER_A + MODE, 4, 010000, -EBADMSG},
		{FOLDER_A + MODE, 4, 07777, 0},
		{FILE_ + PUT_BY, 4, 2, -EBADMSG}, // there are two nodes
		{FILE_ + PUT_BY, 4, UINT32_MAX, -EBADMSG},
		{FILE_ + TYPE, 2, 4, -ENOTSUP},
		{FILE_ + TYPE, 2, 3, -EBADMSG}, // a large file that is small
		{FILE_ + TYPE, 2, 0, -EBADMSG}, // a folder without an id
		{FOLDER_A + TYPE, 2, 1, -EBADMSG},
		{EMPTY + TYPE, 2, 2, -EBADMSG}, // a link without a target
		{FILE_ + NAME_LEN, 2, 0, -EBADMSG},
		{EMPTY + NAME_LEN, 2, 5, -EBADMSG},
		{EMPTY + NAME_LEN, 2, 3, -EBADMSG},
		{EMPTY + NAME_LEN, 2, UINT16_MAX, -EBADMSG},
		{FOLDER_A + LEN, 4, 1, -EBADMSG},
		{FOLDER_A + SEQ, 8, 1, -EBADMSG},
		{FOLDER_A + AT, 4, 1, -EBADMSG},
		{FILE_ + LEN, 4, 0, -EBADMSG},
		{FILE_ + LEN, 4, CKPT_PLAIN_INLINE_MAX, -EBADMSG}, // of another size
		{FILE_ + SIZE, 8, CKPT_PLAIN_INLINE_MAX, -EBADMSG},
		{EMPTY + SIZE, 8, 1, -EBADMSG},
		{FOLDER_A + SIZE, 8, 1, -EBADMSG},
		{FOLDER_A + UID, 8, UINT64_MAX, 0},
		{LINK + LEN, 4, CKPT_PLAIN_TARGET_MAX + 1, -EBADMSG},
		{FILE_ + SEQ, 8, 0, -EBADMSG},
		{FILE_ + AT, 4, CKPT_LOG_ENTRY_BYTES_MAX - 7, 0},
		{FILE_ + AT, 4, CKPT_LOG_ENTRY_BYTES_MAX - 6, -EBADMSG},
		{FILE_ + AT, 4, UINT32_MAX, -EBADMSG},
		{EMPTY + SEQ, 8, 1, -EBADMSG},
		{EMPTY + AT, 4, 1, -EBADMSG},
		{EMPTY + LEN, 4, 1, -EBADMSG},
		{EMPTY + ZEROS, 4, 1, -EBADMSG},
		{FOLDER_A + SHA, 1, 1, -EBADMSG},
		{FILE_ + SHA, 1, 1, 0}, // that is seen when the content is read
		{EMPTY + SHA, 1, 1, -EBADMSG},
	};
	CLEANUP_FREE uint8_t *bytes = NULL;
	size_t len;

	ckpt_tree_make_rich();
	ckpt_tree_bytes(ckpt_tree.state, &bytes, &len);
	ck_ok(decode(bytes, len));
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		int rc = decode_with(bytes, len, rows[i].at, &rows[i].value, rows[i].bytes);

		ck_assert_msg(rc == rows[i].rc, "row %zu: %d", i, rc);
	}
}
END_TEST

START_TEST(names_that_no_act_makes_are_no_tree)
{
	static const struct {
		size_t at;
		const char *text;
		int rc;
	} rows[] = {
		{FILE_ + FOLDER, NONE, -EBADMSG}, // in no folder
		{FOLDER_B + FOLDER, NONE, -EBADMSG},
		{FILE_ + FOLDER, A, 0},
		{FILE_ + FOLDER, "BBBBBBBBBBBBBBBB", -EBADMSG},
		{FILE_ + ID, C, -EBADMSG},        // a file with an id
		{FOLDER_A + FOLDER, B, -EBADMSG}, // in a circle
		{FOLDER_A + FOLDER, A, -EBADMSG},
		{FOLDER_B + FOLDER, B, -EBADMSG},
		{FOLDER_B + ID, A, -EBADMSG}, // of two
		{FOLDER_A + ID, "aaaaaaaaaaaaaaaA", -EBADMSG},
		{EMPTY + NAME, "link", -EBADMSG}, // at one place
		{LINK + NAME, "none", -EBADMSG},
		{FOLDER_B + NAME, "fa", 0},
		{EMPTY + NAME, "n/ne", -EBADMSG},
		{EMPTY + NAME, "non\xff", -EBADMSG},
		{FOLDER_A + NAME, "..", -EBADMSG},
	};
	CLEANUP_FREE uint8_t *bytes = NULL;
	size_t len;

	ckpt_tree_make_rich();
	ckpt_tree_bytes(ckpt_tree.state, &bytes, &len);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		int rc = decode_with(bytes, len, rows[i].at, rows[i].text, strlen(rows[i].text));

		ck_assert_msg(rc == rows[i].rc, "row %zu: %d", i, rc);
	}
	ck_error(decode_with(bytes, len, EMPTY + NAME, "\0one", 4), EBADMSG);
	ck_error(decode_with(bytes, len, FILE_ + FOLDER, "\0", 1), EBADMSG);
	ck_error(decode_with(bytes, len, FILE_ + FOLDER + 15, "\0", 1), EBADMSG);
	ck_error(decode_with(bytes, len, FOLDER_A + ID, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16), EBADMSG);
}
END_TEST

START_TEST(parts_of_a_state_are_those_that_are_there)
{
	CLEANUP_FREE uint8_t *bytes = NULL;
	size_t len;

	ckpt_tree_make_rich();
	ckpt_tree_bytes(ckpt_tree.state, &bytes, &len);
	ck_assert_uint_eq(ckpt_get32(bytes + 12), 3);
	for (uint32_t parts = 0; parts < 16; parts++) {
		ckpt_put32(bytes + 12, parts);
		ck_assert_int_eq(decode(bytes, len), parts == 3 ? 0 : -EBADMSG);
	}
	ckpt_put32(bytes + 12, 1);
	ck_ok(decode(bytes, len - PLAINS));
	ckpt_put32(bytes + 12, 3);
	for (size_t n = len - PLAINS; n < len; n++)
		ck_error(decode(bytes, n), EBADMSG);
}
END_TEST

START_TEST(each_bit_that_is_flipped_is_seen_or_is_another_tree)
{
	CLEANUP_FREE uint8_t *bytes = NULL;
	size_t len, others = 0;

	ckpt_tree_make_rich();
	ckpt_tree_bytes(ckpt_tree.state, &bytes, &len);
	for (size_t i = (len - PLAINS) * 8; i < len * 8; i++) {
		int rc;

		bytes[i / 8] ^= (uint8_t)(1u << i % 8);
		rc = decode(bytes, len);
		bytes[i / 8] ^= (uint8_t)(1u << i % 8);
		ck_assert(rc == 0 || rc == -EBADMSG || rc == -ENOTSUP);
		others += !rc;
	}
	ck_assert_uint_gt(others, 0);
}
END_TEST

START_TEST(mutations_are_no_tree_or_have_one_form)
{
	CLEANUP_FREE uint8_t *bytes = NULL, *mutant = NULL;
	uint64_t random = 1;
	size_t len, before;

	ckpt_tree_make_rich();
	ckpt_tree_bytes(ckpt_tree.state, &bytes, &len);
	before = len - PLAINS;
	mutant = malloc(len + 64);
	for (unsigned i = 0; i < 50000; i++) {
		size_t mutant_len;
		int rc;

		memcpy(mutant, bytes, len);
		mutant_len = before + ckpt_sample_mutate(&random, mutant + before, PLAINS, PLAINS + 64);
		rc = decode(mutant, mutant_len);
		ck_assert_msg(rc == 0 || rc == -EBADMSG || rc == -ENOTSUP, "mutation %u: %d", i, rc);
	}
}
END_TEST

START_TEST(without_memory_there_is_no_tree)
{
	CLEANUP_FREE uint8_t *bytes = NULL;
	size_t len;

	ckpt_tree_make_rich();
	ckpt_tree_bytes(ckpt_tree.state, &bytes, &len);
	for (uint64_t n = 1, count = n; count + 1 >= n; n++) {
		struct ckpt_state *s = NULL;
		int rc;

		ckpt_allocfault_begin(n, false);
		rc = ckpt_state_decode(bytes, len, &s);
		count = ckpt_allocfault_end();
		ck_assert(rc == (count >= n ? -ENOMEM : 0) && !s == !!rc);
		ckpt_state_free(s);
	}
	for (uint64_t n = 1, count = n; count + 1 >= n; n++) {
		void *made = NULL;
		size_t made_len;
		int rc;

		ckpt_allocfault_begin(n, false);
		rc = ckpt_state_encode(ckpt_tree.state, &made, &made_len);
		count = ckpt_allocfault_end();
		ck_assert(rc == (count >= n ? -ENOMEM : 0) && !made == !!rc);
		free(made);
	}
}
END_TEST

// --- Many -----------------------------------------------------------------------------------------------------------------

enum { MANY = 100000, PER_ENTRY = 1000 };

#ifdef ALLOC_SANITIZED // which counts no bytes
enum { MEASURED = false };
#else
enum { MEASURED = true };
#endif

static void many_name(unsigned i, char name[64])
{
	snprintf(name, 64, "events.out.tfevents.1763719200.node-17.%06u", i);
}

START_TEST(a_hundred_thousand_entries_need_little_memory)
{
	size_t before = mallinfo2().uordblks + mallinfo2().hblkhd, after;
	char name[64];

	ckpt_tree_fits(ckpt_tree_mkdir(A, "", "runs"));
	for (unsigned i = 0; i < MANY; i++) {
		struct ckpt_act a;

		many_name(i, name);
		a = ckpt_tree_file(A, name, 0, "");
		ckpt_tree_add(&a, CKPT_TREE_OTHER);
		if (i % PER_ENTRY == PER_ENTRY - 1) {
			ckpt_tree_pull();
			free(TAKE_PTR(ckpt_tree.pulls[ckpt_tree.number]));
		}
	}
	after = mallinfo2().uordblks + mallinfo2().hblkhd;
	ck_assert_uint_eq(ckpt_tree_count(ckpt_tree.state), MANY + 1);
	for (unsigned i = 0; i < MANY; i++) {
		many_name(i, name);
		ck_assert_uint_eq(ckpt_state_plain(ckpt_tree.state, A, name)->version,
				  ((uint64_t)i / PER_ENTRY + 2) << 16 | i % PER_ENTRY);
	}
	if (!MEASURED)
		return;
	ck_assert_uint_gt(after - before, MANY * sizeof(struct ckpt_plain));
	ck_assert_uint_lt(after - before, 40000000);
}
END_TEST

// With the 65th entry it would grow.
START_TEST(a_table_that_cannot_grow_serves_on)
{
	struct ckpt_act a = ckpt_tree_mkdir(A, "", "folder");
	CLEANUP_FREE uint8_t *before = NULL, *after = NULL;
	size_t before_len, after_len, len;
	unsigned served = 0;
	char name[64];

	for (unsigned i = 0; i < 64; i++) {
		struct ckpt_act file;

		many_name(i, name);
		file = ckpt_tree_file("", name, 0, "x");
		ckpt_tree_add(&file, CKPT_TREE_OTHER);
	}
	ckpt_tree_pull();
	ckpt_tree_bytes(ckpt_tree.state, &before, &before_len);
	ckpt_tree_add(&a, CKPT_TREE_OTHER);
	ckpt_tree.number++;
	ckpt_tree_make_pull(&ckpt_tree.pulls[ckpt_tree.number], &len);
	ck_ok(ckpt_tree_apply(ckpt_tree.state, CKPT_PULL_KIND, ckpt_tree.pulls[ckpt_tree.number], len));
	ckpt_tree_bytes(ckpt_tree.state, &after, &after_len);
	for (uint64_t n = 1, count = n; count + 1 >= n; n++) {
		struct ckpt_state *s;
		int rc;

		ck_ok(ckpt_state_decode(before, before_len, &s));
		ckpt_allocfault_begin(n, false);
		rc = ckpt_tree_apply(s, CKPT_PULL_KIND, ckpt_tree.pulls[ckpt_tree.number], len);
		count = ckpt_allocfault_end();
		if (!rc) {
			CLEANUP_FREE char *text = ckpt_tree_said(s); // each is found

			served += count >= n;
			ckpt_tree_assert_bytes(s, after, after_len);
		}
		ckpt_state_free(s);
	}
	ck_assert_uint_eq(served, 2); // both tables
}
END_TEST

// A walk over the whole way up of each folder would take minutes.
START_TEST(a_deep_tree_is_loaded_in_a_moment)
{
	enum { DEEP = 30000 };
	CLEANUP_FREE uint8_t *bytes = NULL;
	char folder[CKPT_FOLDER_ID_LEN + 1] = "", id[CKPT_FOLDER_ID_LEN + 1];
	size_t len;

	for (unsigned i = 1; i <= DEEP; i++) {
		struct ckpt_act a;

		snprintf(id, sizeof(id), "%016x", i);
		a = ckpt_tree_mkdir(id, folder, "d");
		ckpt_tree_add(&a, CKPT_TREE_OTHER);
		strcpy(folder, id);
		if (i % PER_ENTRY == 0)
			ckpt_tree_pull();
	}
	ckpt_tree_bytes(ckpt_tree.state, &bytes, &len);
	ck_ok(decode(bytes, len));
	snprintf(id, sizeof(id), "%016x", DEEP); // the first one is in the last
	memcpy(bytes + len - DEEP * (FIXED + 1) + FOLDER, id, CKPT_FOLDER_ID_LEN);
	ck_error(decode(bytes, len), EBADMSG);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("plain_form");
	TCase *bytes = tcase_create("bytes");

	tcase_add_checked_fixture(bytes, ckpt_tree_begin, ckpt_tree_end);
	tcase_add_test(bytes, a_state_of_bytes_goes_on_as_the_one_that_they_are_of);
	tcase_add_test(bytes, an_empty_tree_has_no_bytes);
	tcase_add_test(bytes, numbers_that_no_act_makes_are_no_tree);
	tcase_add_test(bytes, names_that_no_act_makes_are_no_tree);
	tcase_add_test(bytes, parts_of_a_state_are_those_that_are_there);
	tcase_add_test(bytes, each_bit_that_is_flipped_is_seen_or_is_another_tree);
	tcase_add_test(bytes, mutations_are_no_tree_or_have_one_form);
	tcase_add_test(bytes, without_memory_there_is_no_tree);
	tcase_add_test(bytes, a_hundred_thousand_entries_need_little_memory);
	tcase_add_test(bytes, a_table_that_cannot_grow_serves_on);
	tcase_add_test(bytes, a_deep_tree_is_loaded_in_a_moment);
	suite_add_tcase(suite, bytes);
	return ckpt_suite_run(suite);
}
