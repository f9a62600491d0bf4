// Files of a change of several files that did not come: the next such change removes them, and no other.
#include "core/save/amend_left.h"
#include "tests/support/fixture.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/record/manifest.h"
#include "core/save/amend.h"

#include <fcntl.h>
#include <sys/file.h>

static struct ckpt_step *base;
static int session_fd; // of its session

static void setup(void)
{
	ckpt_fixture_open();
	base = ckpt_staged_one(s, "1000", "model.bin", "first");
	session_fd = ckpt_sys.open(s->sessions_fd, base->session, O_RDONLY | O_DIRECTORY, 0);
	ck_ok(session_fd);
}

static void teardown(void)
{
	ckpt_sys.close(session_fd);
	ckpt_step_unref(base);
	ckpt_fixture_close();
}

static void put(const char *raw, const char *text)
{
	CLEANUP_FD int fd = ckpt_sys.open(session_fd, raw, O_RDWR | O_CREAT | O_EXCL, 0600);

	ck_ok(fd);
	ck_ok(ckpt_sys.pwrite(fd, text, strlen(text), 0));
}

static void put_left(char raw[CKPT_AMENDING_RAW_MAX], const char *text)
{
	ck_ok(ckpt_amend_left_name(raw));
	put(raw, text);
}

static bool is_there(const char *raw)
{
	return !faccessat(session_fd, raw, F_OK, AT_SYMLINK_NOFOLLOW);
}

// model.bin gets the bytes of raw; false: who asks has seen another file.
static int change(const char *raw, bool seen)
{
	struct ckpt_manifest *m = ckpt_staged_manifest(base);
	struct ckpt_amend_change c = {.path = "model.bin", .raw = raw};
	struct ckpt_entry e;
	uint32_t index;

	ck_ok(ckpt_manifest_lookup(m, "model.bin", &index));
	ckpt_manifest_entry(m, index, &e);
	c.ino = e.ino;
	c.bytes = e.bytes + !seen;
	c.mtime_s = e.mtime_s;
	c.mtime_ns = e.mtime_ns;
	ckpt_manifest_unref(m);
	return ckpt_amend_change_all(base, &c, 1);
}

START_TEST(a_change_that_is_refused_leaves_nothing)
{
	char raw[CKPT_AMENDING_RAW_MAX];

	put_left(raw, "second");
	ck_error(change(raw, false), ESTALE);
	ck_assert(!is_there(raw));
	ckpt_staged_check(base, "model.bin", "first");
}
END_TEST

START_TEST(what_a_killed_verb_has_left_goes_with_the_next_change)
{
	char left[CKPT_AMENDING_RAW_MAX], raw[CKPT_AMENDING_RAW_MAX];

	put_left(left, "left over");
	put_left(raw, "second");
	ck_ok(change(raw, true));
	ck_assert(!is_there(left));
	ckpt_staged_check(base, "model.bin", "second");
}
END_TEST

START_TEST(what_a_version_names_stays_and_so_does_what_is_not_of_a_change)
{
	char second[CKPT_AMENDING_RAW_MAX], third[CKPT_AMENDING_RAW_MAX], raw[CKPT_AMENDING_RAW_MAX];

	put_left(second, "second");
	ck_ok(change(second, true));
	put_left(third, "third");
	ck_ok(change(third, true));
	put(".again-1", "of an editor");
	put_left(raw, "fourth");
	ck_error(change(raw, false), ESTALE);
	ck_assert(is_there(second) && is_there(third) && is_there(".again-1") && is_there("model.bin"));
	ckpt_staged_check(base, "model.bin", "third");
	ck_ok(change(third, false)); // it is in place: the answer was lost
	ck_assert(is_there(third));
}
END_TEST

START_TEST(nothing_goes_while_a_verb_writes)
{
	CLEANUP_FD int other = ckpt_sys.open(session_fd, ".", O_RDONLY | O_DIRECTORY, 0);
	CLEANUP_FD int asks = -1, another = -1;
	char raw[CKPT_AMENDING_RAW_MAX];

	ck_ok(other);
	ck_ok(ckpt_amend_left_hold(other));
	put_left(raw, "half of it");
	ck_error(change("nosuch", false), ESTALE);
	ck_assert(is_there(raw));
	asks = ckpt_amend_left_ask(s, other);
	ck_ok(asks);
	another = ckpt_sys.open(s->trash_fd, ".", O_RDONLY | O_DIRECTORY, 0);
	ck_assert(flock(another, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK); // who asks is alone
	ck_error(change("nosuch", false), ESTALE);
	ck_assert(!is_there(raw));
}
END_TEST

#define NOTES ".arrays-notes"
#define DIGITS ".arrays-0123456789abcdef"

// Of a user, who gives his files what names he likes.
START_TEST(a_committed_file_with_such_a_name_stays)
{
	static const char *const names[] = {NOTES, DIGITS};
	char raw[CKPT_AMENDING_RAW_MAX];

	ckpt_sys.close(session_fd);
	ckpt_step_unref(base);
	base = ckpt_staged_begin(s, "2000");
	ckpt_sys.close(ckpt_staged_put(base, "model.bin", "first"));
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		ckpt_sys.close(ckpt_staged_put(base, names[i], names[i]));
	ck_ok(ckpt_staged_commit(base, 5000000, NULL));
	session_fd = ckpt_sys.open(s->sessions_fd, base->session, O_RDONLY | O_DIRECTORY, 0);
	ck_ok(session_fd);
	for (int round = 0; round < 2; round++) {
		put_left(raw, round ? "third" : "second");
		ck_ok(change(raw, true));
		for (size_t i = 0; i < ARRAY_LEN(names); i++) {
			ck_assert(is_there(names[i]));
			ckpt_staged_check(base, names[i], names[i]);
		}
	}
	for (size_t i = 0; i < ARRAY_LEN(names); i++) // older versions alone have them
		ck_ok(ckpt_amend_remove(base, names[i]));
	put_left(raw, "fourth");
	ck_ok(change(raw, true));
	ck_assert(is_there(NOTES) && is_there(DIGITS));
}
END_TEST

START_TEST(a_file_that_is_being_added_under_such_a_name_stays)
{
	char raw[CKPT_AMENDING_RAW_MAX];

	ck_ok(ckpt_amending_begin(base, DIGITS, NULL));
	put(DIGITS, "half of it");
	put_left(raw, "second");
	ck_ok(change(raw, true));
	ck_assert(is_there(DIGITS));
	ckpt_amending_forget(base, DIGITS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("amend_left");
	TCase *left = tcase_create("left");

	tcase_add_checked_fixture(left, setup, teardown);
	tcase_add_test(left, a_change_that_is_refused_leaves_nothing);
	tcase_add_test(left, what_a_killed_verb_has_left_goes_with_the_next_change);
	tcase_add_test(left, what_a_version_names_stays_and_so_does_what_is_not_of_a_change);
	tcase_add_test(left, nothing_goes_while_a_verb_writes);
	tcase_add_test(left, a_committed_file_with_such_a_name_stays);
	tcase_add_test(left, a_file_that_is_being_added_under_such_a_name_stays);
	suite_add_tcase(suite, left);
	return ckpt_suite_run(suite);
}
