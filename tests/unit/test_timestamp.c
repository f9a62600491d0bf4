// When a step was saved by its own word: what a file may hold, and the order that comes of it.
#include "tests/support/fixture.h"

#include "core/base/util.h"
#include "core/find/find.h"
#include "core/find/timestamp.h"

#include <stdio.h>
#include <time.h>

#define SECOND INT64_C(1000000000)
#define BAD INT64_C(-1)

static void setup(void)
{
	setenv("TZ", "UTC-2", 1);
	tzset();
	ckpt_fixture_open();
}

static void save(const char *name, const char *metadata, size_t len)
{
	struct ckpt_step *step = ckpt_staged_begin(s, name);
	int fd = ckpt_staged_put(step, "model.bin", name);

	close(fd);
	if (metadata) {
		fd = ckpt_staged_put(step, "metadata.json", "");
		ck_assert_int_eq(pwrite(fd, metadata, len, 0), (ssize_t)len);
		close(fd);
	}
	ck_ok(ckpt_staged_commit(step, 5000000, NULL));
	ckpt_step_unref(step);
}

static void says(const char *name, const char *timestamp)
{
	char text[256];

	save(name, text,
	     (size_t)snprintf(text, sizeof(text), "{\"step\": -1, \"timestamp\": %s, \"is_temporary\": false}",
			      timestamp));
}

static void is(size_t back, const char *name)
{
	struct ckpt_folders folders = {0};
	struct ckpt_step *step = NULL;
	int rc = ckpt_find_newest(s, &folders, "", CKPT_LATEST_BY_TIMESTAMP, back, &step);

	ck_error(rc, name ? 0 : ENOENT);
	if (name)
		ck_assert_str_eq(step->name, name);
	ckpt_step_unref(step);
}

START_TEST(the_word_of_a_step_counts_and_the_commit_of_one_that_says_nothing)
{
	says("run-100", "\"2199-01-01T10:00:00.5\"");
	says("run-200", "\"2199-01-01T10:00:00.25\"");
	says("run-300", "\"2001-01-01T10:00:00\"");
	says("run-90", "\"2199-01-01T10:00:00.500\"");
	save("run-400", NULL, 0);                              // now
	save("run-350", "{\"sharded_backend\":\"zarr\"}", 26); // that of another framework
	is(0, "run-100");                                      // of two that say the same the higher one
	is(1, "run-90");
	is(2, "run-200");
	is(3, "run-350");
	is(4, "run-400");
	is(5, "run-300");
	is(6, NULL);
	ckpt_fixture_reopen();
	is(0, "run-100");
}
END_TEST

START_TEST(what_cannot_be_read_is_the_oldest)
{
	static const char *const bad[] = {"\"now\"", "17", "null", "{}", "\"2199-01-01\\u0000\"", "NaN"};
	CLEANUP_FREE char *deep = malloc(3 << 20);
	char name[32];

	says("run-1", "\"1900-01-01\"");
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		snprintf(name, sizeof(name), "run-%zu", 10 + i);
		says(name, bad[i]);
		is(0, "run-1");
	}
	memset(deep, '[', 3 << 20);
	save("run-20", deep, 1 << 20);
	save("run-21", deep, 3 << 20);
	save("run-22", "", 0);
	save("run-23", "[\"timestamp\"]", 13);
	save("run-24", "{\"timestamp\":", 13);
	memset(deep, ' ', 3 << 20);
	memcpy(deep, "{\"timestamp\":\"2199-01-01\"}", 26);
	save("run-25", deep, (1 << 20) + 1); // longer than any is
	is(0, "run-1");
	is(1, "run-25");
	save("run-26", deep, 1 << 20);
	is(0, "run-26");
}
END_TEST

START_TEST(another_version_has_another_word)
{
	struct ckpt_step *step;

	says("run-1", "\"2199-01-01\"");
	says("run-2", "\"2198-01-01\"");
	is(0, "run-1");
	step = ckpt_step_find(s, "", "run-1");
	ckpt_lock_take(&step->lock);
	ck_assert_int_eq(ckpt_saved_ns_locked(step) != CKPT_TIMESTAMP_NONE, true);
	step->version->is.version++; // as if it had been saved anew: nobody has looked at that
	ck_assert_int_eq(ckpt_saved_ns_locked(step), CKPT_TIMESTAMP_NONE);
	step->version->is.version--;
	ckpt_lock_drop(&step->lock);
	ckpt_step_unref(step);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("timestamp");
	TCase *tcase = tcase_create("timestamp");

	tcase_add_checked_fixture(tcase, setup, ckpt_fixture_close);
	tcase_add_test(tcase, the_word_of_a_step_counts_and_the_commit_of_one_that_says_nothing);
	tcase_add_test(tcase, what_cannot_be_read_is_the_oldest);
	tcase_add_test(tcase, another_version_has_another_word);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
