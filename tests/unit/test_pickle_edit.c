// Pickles without some of their items, opcode by opcode; pickles of which that cannot be done; and graphs that are compared.
#include "tests/support/allocfault.h"
#include "tests/support/array_files.h"
#include "tests/support/suite.h"

#include "core/array/pickle_edit.h"
#include "core/base/util.h"

static struct ckpt_bytes file;
static struct ckpt_pickle *p;
static struct ckpt_pickle_fault fault;
static struct ckpt_buffer out;
static uint8_t cut[8192];

static void teardown(void)
{
	free(file.data);
	file = (struct ckpt_bytes){0};
	ckpt_pickle_free(p);
	p = NULL;
	ckpt_buffer_done(&out);
}

static bool is_dropped(ckpt_value v)
{
	size_t len;
	const char *text = ckpt_value_text(p, v, &len);

	return text && len && *text == 'x';
}

// Keys of dictionaries and items of lists that begin with an x.
static void choose(void)
{
	memset(cut, 0, sizeof(cut));
	for (ckpt_value v = 0; v < ckpt_pickle_count(p); v++) {
		enum ckpt_value_kind kind = ckpt_value_kind(p, v);

		if (kind != CKPT_VALUE_DICT && kind != CKPT_VALUE_LIST)
			continue;
		for (ckpt_item at = ckpt_value_first(p, v); at; at = ckpt_item_next(p, at)) {
			if (is_dropped(ckpt_item_value(p, at)))
				cut[at / 8] |= (uint8_t)(1u << at % 8);
			if (kind == CKPT_VALUE_DICT)
				at = ckpt_item_next(p, at);
		}
	}
}

static int edit(const void *data, size_t len)
{
	struct ckpt_source s;
	int rc;

	ckpt_pickle_free(p);
	p = NULL;
	ckpt_buffer_done(&out);
	file.len = 0;
	ckpt_bytes_add(&file, data, len);
	s = ckpt_bytes_source(&file);
	rc = ckpt_pickle_read_places(&s, 0, s.bytes, &p, &fault);
	if (rc)
		return rc;
	ck_assert_uint_lt(ckpt_pickle_items(p), 8 * sizeof(cut));
	choose();
	return ckpt_pickle_edit(&s, 0, s.bytes, p, cut, &out);
}

static bool is_same(const struct ckpt_pickle *was, const uint8_t *less, const void *data, size_t len)
{
	struct ckpt_bytes bytes = {0};
	struct ckpt_pickle *now;
	struct ckpt_source s;
	bool same = false;

	ckpt_bytes_add(&bytes, data, len);
	s = ckpt_bytes_source(&bytes);
	ck_ok(ckpt_pickle_read(&s, 0, s.bytes, &now, NULL, &fault));
	ck_ok(ckpt_pickle_compare(was, less, now, &same));
	ckpt_pickle_free(now);
	free(bytes.data);
	return same;
}

#define X "X\1\0\0\0x"
#define Y "X\1\0\0\0y"
#define A "X\1\0\0\0a"
#define B "X\1\0\0\0b"
#define SAMPLE(was, now)                                                                                               \
	{                                                                                                              \
		was, sizeof(was) - 1, now, sizeof(now) - 1                                                             \
	}

START_TEST(cut_items_are_gone_and_all_other_opcodes_stay)
{
	static const struct {
		const char *was;
		size_t was_len;
		const char *now;
		size_t now_len;
	} samples[] = {
		SAMPLE("\x80\2}.", "\x80\2}."),
		// Each way to put an item: the first, the last, the only one.
		SAMPLE("\x80\2}(" X "K\1" A "K\2u.", "\x80\2}(" A "K\2u."),
		SAMPLE("\x80\2}(" A "K\1" X "K\2u.", "\x80\2}(" A "K\1u."),
		SAMPLE("\x80\2}(" X "K\2u.", "\x80\2}(u."),
		SAMPLE("\x80\2}" X "K\2s" A "K\3s.", "\x80\2}" A "K\3s."),
		SAMPLE("\x80\2](" X A X "e.", "\x80\2](" A "e."),
		SAMPLE("\x80\2]" X "a" A "a.", "\x80\2]" A "a."),
		SAMPLE("\x80\4\x8f(" X A "\x90.", "\x80\4\x8f(" A "\x90."),
		// In what is in it.
		SAMPLE("\x80\2}" A "}(" X "K\1" B "]N\x86us.", "\x80\2}" A "}(" B "]N\x86us."),
		SAMPLE("\x80\2}" X "}(" X "K\1us.", "\x80\2}."),
		// A class, its state, and an id that nobody here knows.
		SAMPLE("\x80\2}(" A "cm\nn\n)R}" X "K\1sb" X B "Qu.", "\x80\2}(" A "cm\nn\n)R}bu."),
		// A recalled value moves to the first who recalls it: keys and values, and their parts.
		SAMPLE("\x80\2}(" X "q\0K\1" A "h\0u.", "\x80\2}(" A X "q\0u."),
		SAMPLE("\x80\2}(" X "]q\1(K\1e" A "h\1u.", "\x80\2}(" A "]q\1(K\1eu."),
		SAMPLE("\x80\2}(" X "K\5q\1\x85q\2" A "h\1" B "h\2u.", "\x80\2}(" A "K\5q\1" B "j\1\0\0\0\x85q\2u."),
		SAMPLE("\x80\2}(" X "K\5q\1\x85q\2" A "h\2" B "h\1u.", "\x80\2}(" A "K\5q\1\x85q\2" B "h\1u."),
		SAMPLE("\x80\2}(" X "cm\nn\nq\1)Rq\2" A "h\1)R" B "h\2u.",
		       "\x80\2}(" A "cm\nn\nq\1)R" B "j\1\0\0\0)Rq\2u."),
		SAMPLE("\x80\2}(" X "Nq\1" Y "K\1u.", "\x80\2}(" Y "K\1u."),
		// A cut part of what moves stays cut.
		SAMPLE("\x80\2}(" X "K\1}(" A "K\2" X "K\3u\x86q\2" B "h\2u.", "\x80\2}(" B "K\1}(" A "K\2u\x86q\2u."),
		// Frames go, numbers of memos are told.
		SAMPLE("\x80\4\x95\0\0\0\0\0\0\0\0}\x94(\x8c\1x\x94K\1\x8c\1a\x94h\1u.",
		       "\x80\4}r\0\0\0\0(\x8c\1ar\2\0\0\0\x8c\1xr\1\0\0\0u."),
		// A value that has itself in it.
		SAMPLE("\x80\2]q\1(h\1}" X "K\1se.", "\x80\2]q\1(h\1}e."),
	};

	for (size_t i = 0; i < ARRAY_LEN(samples); i++) {
		int rc = edit(samples[i].was, samples[i].was_len);

		ck_assert_msg(!rc, "%zu: %s", i, strerror(-rc));
		ck_assert_msg(out.len == samples[i].now_len && !memcmp(out.at, samples[i].now, out.len), "%zu", i);
		ck_assert_msg(is_same(p, cut, out.at, out.len), "%zu", i);
	}
}
END_TEST

START_TEST(what_cannot_stay_right_is_refused)
{
	static const struct {
		const char *was;
		size_t was_len;
		const char *why;
		size_t why_len;
	} samples[] = {
		SAMPLE("\x80\2(}q\0" X "K\1sh\0t.", "the dictionary is recalled"),
		SAMPLE("\x80\2]q\0(" X "h\0e.", "the list is in itself"),
		SAMPLE("\x80\2}(" X "K\1}q\1(" A "K\2" X "K\3u\x86" B "h\1u.",
		       "a part of what is cut is recalled, and loses an item"),
		SAMPLE("\x80\2(]q\0}h\0h\0t.", ""), // nothing is cut
		SAMPLE("\x80\2(]q\0h\0" X "at.", "a recalled list grows"),
		SAMPLE("\x80\2(}q\0h\0" A "K\1st.", "a recalled dictionary grows"),
		SAMPLE("\x80\2(cm\nn\n)Rq\0h\0}bt.", "a recalled object gets a state"),
		SAMPLE("\x80\2}(" A "K\1q\1" B "K\2q\1u.", "a memo is put twice"),
		SAMPLE("\x80\2}(" A "K\1q\1q\2u.", "a value has two memos"),
		SAMPLE("\x80\2}(" A "K\1K\2"
		       "0u.",
		       "a value is taken back"),
		SAMPLE("\x80\2}(" A "K\1"
		       "2su.",
		       "a value is doubled"),
		SAMPLE("\x80\2K\1p1\n.", "a memo in text"),
		SAMPLE("\x80\2ccollections\nOrderedDict\n]" X "K\1\x86"
		       "a\x85R.",
		       "pairs of Python 2, which no opcode puts into the dictionary"),
		SAMPLE("\x80\2NN.", "a value is left"),
	};

	for (size_t i = 0; i < ARRAY_LEN(samples); i++) {
		int rc = edit(samples[i].was, samples[i].was_len);

		ck_assert_msg(rc == (samples[i].why_len ? -EINVAL : 0), "%s: %d", samples[i].why, rc);
	}
}
END_TEST

// Values in each other's ranges, in a row: each takes the one before with it.
START_TEST(moves_in_moves_end)
{
	struct ckpt_bytes b = {0};

	for (unsigned rows = 60; rows <= 70; rows += 10) {
		b.len = 0;
		ckpt_bytes_add(&b, "\x80\2}(", 4);
		for (unsigned i = 0; i < rows; i++) {
			ckpt_bytes_add(&b, X, sizeof(X) - 1);
			if (i) {
				ckpt_bytes_text(&b, "h");
				ckpt_bytes_number(&b, i - 1, 1);
			} else {
				ckpt_bytes_text(&b, "]");
			}
			ckpt_bytes_add(&b, "\x85q", 2);
			ckpt_bytes_number(&b, i, 1);
		}
		ckpt_bytes_add(&b, A "h", sizeof(A));
		ckpt_bytes_number(&b, rows - 1, 1);
		ckpt_bytes_text(&b, "u.");
		ck_assert_int_eq(edit(b.data, b.len), rows == 60 ? 0 : -EINVAL);
		ck_assert(rows != 60 || is_same(p, cut, out.at, out.len));
	}
	free(b.data);
}
END_TEST

// A dropped value of so many tuples in each other, all of which begin at one place, and each of which what stays recalls.
static int edit_nested(uint32_t count)
{
	struct ckpt_bytes pickle = {0};
	int rc;

	ckpt_bytes_add(&pickle, "\x80\4}(" X "N", 11);
	for (uint32_t i = 0; i < count; i++)
		ckpt_bytes_add(&pickle, "\x85\x94", 2);
	ckpt_bytes_add(&pickle, A "(", 7);
	for (uint32_t i = 0; i < count; i++) {
		ckpt_bytes_add(&pickle, "j", 1);
		ckpt_bytes_number(&pickle, i, 4);
	}
	ckpt_bytes_add(&pickle, "tu.", 3);
	rc = edit(pickle.data, pickle.len);
	free(pickle.data);
	return rc;
}

START_TEST(values_that_begin_at_one_place_are_no_work_without_end)
{
	ck_ok(edit_nested(100));
	ck_assert_int_eq(edit_nested(20000), -EINVAL);
}
END_TEST

START_TEST(graphs_that_differ_are_told)
{
	static const struct {
		const char *was;
		size_t was_len;
		const char *now;
		size_t now_len;
	} same[] =
		{
			SAMPLE("\x80\2](K\1" A "N\x88"
			       "e.",
			       "\x80\4(K\1\x8c\1aN\x88l."),
			SAMPLE("\x80\2(]q\1h\1t.", "\x80\2(]r\7\0\0\0j\7\0\0\0t."),
			SAMPLE("\x80\2(K\1K\1)t.", "\x80\2(M\1\0I1\n(tt."),
		},
	  other[] = {
		  SAMPLE("\x80\2K\1.", "\x80\2K\2."),
		  SAMPLE("\x80\2K\1.", "\x80\2\x88."),
		  SAMPLE("\x80\2" A ".", "\x80\2" B "."),
		  SAMPLE("\x80\2cm\nn\n.", "\x80\2cm\no\n."),
		  SAMPLE("\x80\2(K\1t.", "\x80\2)."),
		  SAMPLE("\x80\2).", "\x80\2(K\1t."),
		  SAMPLE("\x80\2(]q\1h\1t.", "\x80\2(]]t."),
		  SAMPLE("\x80\2(]]t.", "\x80\2(]q\1h\1t."),
		  SAMPLE("\x80\2cm\nn\n)R.", "\x80\2cm\nn\n)R}b."),
		  SAMPLE("\x80\2" A "Q.", "\x80\2" B "Q."),
		  SAMPLE("\x80\3C\1a.", "\x80\3C\2aa."),
		  SAMPLE("\x80\2}" A "K\1s.", "\x80\2}" A "K\2s."),
	  };
	static const uint8_t none[8];

	for (size_t i = 0; i < ARRAY_LEN(other); i++) {
		ck_ok(edit(other[i].was, other[i].was_len));
		ck_assert_msg(is_same(p, none, other[i].was, other[i].was_len), "%zu", i);
		ck_assert_msg(!is_same(p, none, other[i].now, other[i].now_len), "%zu", i);
	}
	for (size_t i = 0; i < ARRAY_LEN(same); i++) {
		ck_ok(edit(same[i].was, same[i].was_len));
		ck_assert_msg(is_same(p, none, same[i].now, same[i].now_len), "%zu", i);
	}
}
END_TEST

START_TEST(a_read_that_fails_and_memory_that_is_short_are_told)
{
	static const char data[] = "\x80\4}\x94(" X "\x94]\x94(K\1K\2e" A "h\1" B "h\2u.";
	struct ckpt_source s = ckpt_bytes_source(&file);
	bool same;

	ck_ok(edit(data, sizeof(data) - 1));
	for (uint64_t n = 1;; n++) {
		int rc;

		ckpt_buffer_done(&out);
		s = ckpt_bytes_source(&file);
		ckpt_allocfault_begin(n, false);
		rc = ckpt_pickle_edit(&s, 0, s.bytes, p, cut, &out);
		if (!rc)
			rc = ckpt_pickle_compare(p, cut, p, &same);
		if (ckpt_allocfault_end() < n) {
			ck_ok(rc);
			ck_assert_uint_gt(n, 8);
			break;
		}
		ck_error(rc, ENOMEM);
	}
	for (uint64_t n = 1;; n++) {
		int rc;

		ckpt_buffer_done(&out);
		file.reads = 0;
		file.fails_at = n;
		rc = ckpt_pickle_edit(&s, 0, s.bytes, p, cut, &out);
		if (file.reads < n) {
			ck_ok(rc);
			ck_assert_uint_gt(n, 2);
			break;
		}
		ck_error(rc, EIO);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pickle edit");
	TCase *t = tcase_create("pickle edit");

	tcase_add_checked_fixture(t, NULL, teardown);
	tcase_add_test(t, cut_items_are_gone_and_all_other_opcodes_stay);
	tcase_add_test(t, what_cannot_stay_right_is_refused);
	tcase_add_test(t, moves_in_moves_end);
	tcase_add_test(t, values_that_begin_at_one_place_are_no_work_without_end);
	tcase_add_test(t, graphs_that_differ_are_told);
	tcase_add_test(t, a_read_that_fails_and_memory_that_is_short_are_told);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}
