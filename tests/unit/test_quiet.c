// The rule of the event `quiet`: each line of it, as a table of facts and verdicts.
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/save/neighbour.h"
#include "core/save/quiet.h"

#include <limits.h>

#define U INT64_C(1000) // a unit

// A step that has what its neighbour has.
#define WHOLE .unit_ns = U, .has_arrays = true, .has_neighbour = true
#define LACKS WHOLE, .lacks_file = true
#define ALONE .unit_ns = U, .has_arrays = true
#define CLAIMED .unit_ns = U, .has_arrays = true, .has_neighbour = true, .is_claimed = true
#define AGAIN .was_interrupted = true
// Files, and no array data. That commit_quiet is off makes no difference.
#define TEXTS .plain_unit_ns = U, .has_files = true, .has_neighbour = true
#define ENDED .all_ended = true
#define EMPTY .plain_unit_ns = U

enum { NEVER = -1, MARKED = -2 };

static const struct {
	const char *what;
	struct ckpt_quiet_facts facts;
	int units; // after so many it is committed; NEVER, or it is marked as interrupted at once
	enum ckpt_quiet_reason reason;
} rows[] = {
	// How long.
	{"it has each file of its neighbour", {WHOLE}, 1, 0},
	{"it has each file of its neighbour, and its writer lives", {WHOLE, .living = 1}, 1, 0},
	{"it stands alone", {ALONE}, 6, 0},
	{"it stands alone, and its writer lives", {ALONE, .living = 1}, 6, 0},
	{"it stands alone, and a framework uses its name", {ALONE, .name_is_used = true}, 30, 0},
	{"it has each file of its neighbour, and a framework uses its name", {WHOLE, .name_is_used = true}, 1, 0},
	{"it lacks a file of its neighbour", {LACKS}, 30, 0},
	{"nobody knows how a writer ended", {WHOLE, .unknown = 1}, 30, 0},
	{"nobody knows how a writer of the first one ended", {ALONE, .unknown = 1}, 30, 0},
	{"its copier ended with 0", {ALONE, .copier_ended = true}, 1, 0},
	{"its copier ended with 0, and it lacks a file", {LACKS, .copier_ended = true}, 1, 0},
	{"its copier ended with 0, and its name is used", {ALONE, .name_is_used = true, .copier_ended = true}, 1, 0},

	// Claimed.
	{"claimed, all ended with 0 or began a later step", {CLAIMED}, 30, 0},
	{"claimed, a writer lives", {CLAIMED, .living = 1}, NEVER, CKPT_QUIET_LIVING},
	{"claimed, nobody knows how a writer ended", {CLAIMED, .unknown = 1}, NEVER, CKPT_QUIET_UNKNOWN},
	{"claimed, a writer is stopped", {CLAIMED, .stopped = 1}, NEVER, CKPT_QUIET_STOPPED},
	{"claimed and whole, a writer failed", {CLAIMED, .failed = 1}, 30, 0},
	{"claimed, lacks a file, a writer failed", {CLAIMED, .lacks_file = true, .failed = 1}, MARKED, 0},

	// Not at all, as it is.
	{"it has no array data but a file of a checkpoint",
	 {TEXTS, .has_known = true, ENDED},
	 NEVER,
	 CKPT_QUIET_NO_ARRAYS},
	{"it has no array data but the beginning of some",
	 {TEXTS, .has_beginning = true, ENDED},
	 NEVER,
	 CKPT_QUIET_NO_ARRAYS},
	{"it has no array data, and its owner says that it is a step",
	 {TEXTS, .is_declared = true, ENDED},
	 NEVER,
	 CKPT_QUIET_NO_ARRAYS},
	{"a file is open", {WHOLE, .is_open = true}, NEVER, CKPT_QUIET_OPEN},
	{"a file is cut off", {WHOLE, .is_cut = true}, NEVER, CKPT_QUIET_CUT},
	{"a file is cut off, its writer ended with 0", {WHOLE, .is_cut = true}, NEVER, CKPT_QUIET_CUT},
	{"a writer is stopped", {WHOLE, .stopped = 1}, NEVER, CKPT_QUIET_STOPPED},
	{"a writer is stopped, the step alone", {ALONE, .stopped = 1}, NEVER, CKPT_QUIET_STOPPED},
	{"it is off", {.has_arrays = true, .has_neighbour = true}, NEVER, CKPT_QUIET_NEVER},
	{"it is off, the step alone", {.has_arrays = true}, NEVER, CKPT_QUIET_NEVER},
	{"its copier is stopped", {ALONE, .copier_ended = true, .stopped = 1}, NEVER, CKPT_QUIET_STOPPED},

	// A writer was killed, or failed.
	{"failed, whole", {WHOLE, .failed = 1}, 1, 0},
	{"failed, lacks a file", {LACKS, .failed = 1}, MARKED, 0},
	{"failed, alone", {ALONE, .failed = 1}, MARKED, 0},
	{"failed, a file open", {WHOLE, .is_open = true, .failed = 1}, MARKED, 0},
	{"failed, a file cut off", {WHOLE, .is_cut = true, .failed = 1}, MARKED, 0},
	{"failed, no arrays", {.unit_ns = U, .has_neighbour = true, .failed = 1}, MARKED, 0},
	{"failed, another stopped", {ALONE, .stopped = 1, .failed = 1}, MARKED, 0},
	{"failed, off", {.has_arrays = true, .failed = 1}, MARKED, 0},
	{"failed, whole, off", {.has_arrays = true, .has_neighbour = true, .failed = 1}, NEVER, CKPT_QUIET_NEVER},
	{"failed, whole, another stopped", {WHOLE, .stopped = 1, .failed = 1}, NEVER, CKPT_QUIET_STOPPED},

	// Interrupted before.
	{"again, nothing of the first attempt left", {ALONE, AGAIN, .has_later_file = true}, 6, 0},
	{"again, an array of the first left",
	 {ALONE, AGAIN, .has_earlier_array = true, .has_later_file = true},
	 NEVER,
	 CKPT_QUIET_INTERRUPTED},
	{"again, an array of the first left, whole by it",
	 {WHOLE, AGAIN, .has_earlier_array = true, .has_later_file = true},
	 NEVER,
	 CKPT_QUIET_INTERRUPTED},
	{"as it was, alone", {ALONE, AGAIN, .has_earlier_array = true}, NEVER, CKPT_QUIET_INTERRUPTED},
	{"as it was, lacks a file", {LACKS, AGAIN, .has_earlier_array = true}, NEVER, CKPT_QUIET_INTERRUPTED},
	{"as it was, whole", {WHOLE, AGAIN, .has_earlier_array = true}, 1, 0},
	{"again, by a copier that ended with 0",
	 {ALONE, AGAIN, .has_earlier_array = true, .has_later_file = true, .copied_since = true},
	 6,
	 0},
	{"again, by a copier that made it",
	 {ALONE, AGAIN, .has_earlier_array = true, .copied_since = true, .copier_ended = true},
	 1,
	 0},
	{"again, all written anew, whole", {WHOLE, AGAIN, .has_later_file = true}, 1, 0},
	{"again, and failed again", {ALONE, AGAIN, .has_later_file = true, .failed = 1}, MARKED, 0},
};

START_TEST(each_line_of_the_rule_holds)
{
	struct ckpt_quiet_facts f = rows[_i].facts;
	struct ckpt_quiet_verdict v;
	const char *what = rows[_i].what;

	if (rows[_i].units > 0) {
		f.still_ns = rows[_i].units * U - 1;
		v = ckpt_quiet_decide(&f);
		ck_assert_msg(v.act == CKPT_QUIET_WAIT, "%s: too early", what);
		ck_assert_int_eq(v.reason, CKPT_QUIET_TIME);
		ck_assert_msg(v.after_ns == rows[_i].units * U, "%s: after %lld", what, (long long)v.after_ns);
		f.still_ns++;
		v = ckpt_quiet_decide(&f);
		ck_assert_msg(v.act == CKPT_QUIET_COMMIT, "%s: not committed", what);
		return;
	}
	f.still_ns = INT64_MAX;
	v = ckpt_quiet_decide(&f);
	if (rows[_i].units == MARKED) {
		ck_assert_msg(v.act == CKPT_QUIET_INTERRUPT, "%s: not marked", what);
		f.still_ns = 0;
		ck_assert_int_eq(ckpt_quiet_decide(&f).act, CKPT_QUIET_INTERRUPT);
		return;
	}
	ck_assert_msg(v.act == CKPT_QUIET_WAIT, "%s: it does not wait", what);
	ck_assert_msg(v.reason == rows[_i].reason, "%s: it waits for %d", what, v.reason);
	ck_assert_int_eq(v.after_ns, INT64_MAX);
}
END_TEST

static const struct {
	const char *what;
	struct ckpt_quiet_facts facts;
	int units; // after so many it becomes a plain folder; NEVER
	enum ckpt_quiet_reason reason;
} plain[] = {
	{"files, their maker lives", {TEXTS, .living = 1, .any_lives = true}, 30, CKPT_QUIET_NO_ARRAYS},
	{"files, their maker ended", {TEXTS, ENDED}, 1, CKPT_QUIET_NO_ARRAYS},
	{"files, their maker was killed", {TEXTS, ENDED, .failed = 1}, 1, CKPT_QUIET_NO_ARRAYS},
	{"files, their maker ended somehow", {TEXTS, ENDED, .unknown = 1}, 1, CKPT_QUIET_NO_ARRAYS},
	{"files, nobody knows their maker", {TEXTS, .unknown = 1}, 30, CKPT_QUIET_NO_ARRAYS},
	{"files, found after a restart", {TEXTS, AGAIN, .unknown = 1}, 30, CKPT_QUIET_NO_ARRAYS},
	{"files, one is open", {TEXTS, ENDED, .is_open = true}, 30, CKPT_QUIET_NO_ARRAYS},
	{"files, their maker is stopped", {TEXTS, .stopped = 1, .any_lives = true}, NEVER, CKPT_QUIET_STOPPED},
	{"empty, its maker lives", {EMPTY, .living = 1, .any_lives = true}, NEVER, CKPT_QUIET_NO_ARRAYS},
	{"empty, its maker has begun a later step", {EMPTY, .any_lives = true}, NEVER, CKPT_QUIET_NO_ARRAYS},
	{"empty, its maker ended", {EMPTY, ENDED}, 1, CKPT_QUIET_NO_ARRAYS},
	{"empty, nobody knows its maker", {EMPTY, .unknown = 1}, 30, CKPT_QUIET_NO_ARRAYS},
};

START_TEST(what_has_no_arrays_becomes_a_plain_folder)
{
	struct ckpt_quiet_facts f = plain[_i].facts;
	struct ckpt_quiet_verdict v;
	const char *what = plain[_i].what;

	f.still_ns = plain[_i].units > 0 ? plain[_i].units * U - 1 : INT64_MAX;
	v = ckpt_quiet_decide(&f);
	ck_assert_msg(v.act == CKPT_QUIET_WAIT && v.reason == plain[_i].reason, "%s: %d, %d", what, v.act, v.reason);
	ck_assert_msg(v.after_ns == (plain[_i].units > 0 ? plain[_i].units * U : INT64_MAX), "%s: after %lld", what,
		      (long long)v.after_ns);
	if (plain[_i].units < 0)
		return;
	f.still_ns++;
	ck_assert_msg(ckpt_quiet_decide(&f).act == CKPT_QUIET_UNSTAGE, "%s: it stays staged", what);
}
END_TEST

START_TEST(a_long_unit_does_not_wrap)
{
	struct ckpt_quiet_facts f = {ALONE, .still_ns = INT64_MAX / 2};
	struct ckpt_quiet_verdict v;

	f.unit_ns = INT64_MAX / 2;
	v = ckpt_quiet_decide(&f);
	ck_assert_int_eq(v.act, CKPT_QUIET_WAIT);
	ck_assert_int_eq(v.after_ns, INT64_MAX);
}
END_TEST

static const struct {
	const char *path;
	int64_t from, to;
	const char *want; // NULL: the number is not in it
} names[] = {
	{"model_100.pt", 100, 200, "model_200.pt"},
	{"model_99.pt", 99, 100, "model_100.pt"},
	{"model_099.pt", 99, 100, "model_100.pt"},
	{"model_0099.pt", 99, 100, "model_0100.pt"},
	{"100/100-of-1000.pt", 100, 7, "7/7-of-1000.pt"},
	{"model.pt", 100, 200, NULL},
	{"model_1000.pt", 100, 200, NULL},
	{"a0", 0, 5, "a5"},
	{"a000", 0, 5, "a005"},
	{"", 1, 2, NULL},
	{"99999999999999999999999999.pt", 1, 2, NULL},
	{"9223372036854775808.pt", 1, 2, NULL},
	{"model-00001-of-00002.pt", 1, 2, "model-00002-of-00002.pt"},
};

START_TEST(a_name_with_the_neighbours_number_has_its_own)
{
	char renamed[PATH_MAX];
	bool is = ckpt_neighbour_rename(names[_i].path, names[_i].from, names[_i].to, renamed);

	ck_assert_msg(is == (names[_i].want != NULL), "%s", names[_i].path);
	if (is)
		ck_assert_str_eq(renamed, names[_i].want);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("quiet");
	TCase *tc = tcase_create("quiet");

	tcase_add_loop_test(tc, each_line_of_the_rule_holds, 0, (int)ARRAY_LEN(rows));
	tcase_add_loop_test(tc, what_has_no_arrays_becomes_a_plain_folder, 0, (int)ARRAY_LEN(plain));
	tcase_add_test(tc, a_long_unit_does_not_wrap);
	tcase_add_loop_test(tc, a_name_with_the_neighbours_number_has_its_own, 0, (int)ARRAY_LEN(names));
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
