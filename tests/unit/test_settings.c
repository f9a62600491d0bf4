// The table of settings: its rows parse and print, and what a store says of them outlives faults and power cuts.
#include "core/store/open.h"
#include "tests/support/disk.h"
#include "tests/support/save.h"
#include "tests/support/sysfault.h"

#include "core/base/units.h"
#include "core/base/util.h"
#include "core/step/settings.h"

#include <fcntl.h>
#include <stdio.h>

static char dir[PATH_MAX];

static void setup(void)
{
	ckpt_save_init(dir);
}

static void spill(const char *where, const char *text)
{
	char path[2 * PATH_MAX];

	snprintf(path, sizeof(path), "%s/store.json", where);
	CLEANUP_FD int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

static void slurp(const char *where, char *text, size_t cap)
{
	char path[2 * PATH_MAX];
	ssize_t n;

	snprintf(path, sizeof(path), "%s/store.json", where);
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	n = read(fd, text, cap - 1);
	ck_ok(n);
	text[n] = '\0';
}

static void assert_value(const char *where, const char *name, const char *want)
{
	struct ckpt_settings s;
	CLEANUP_FREE char *text = NULL;

	ck_ok(ckpt_store_settings(where, &s));
	text = ckpt_setting_text(ckpt_setting_find(name), &s);
	ck_assert_str_eq(text, want);
	ckpt_settings_done(&s);
}

START_TEST(durations_are_printed_as_they_parse)
{
	static const int64_t ns[] = {0,
				     1,
				     1500,
				     2000000,
				     INT64_C(1500000000),
				     INT64_C(5000000000),
				     INT64_C(90000000000),
				     INT64_C(600000000000),
				     INT64_C(604800000000000),
				     INT64_C(3600000000001)};
	char text[CKPT_DURATION_EXACT_MAX];
	int64_t again;

	for (size_t i = 0; i < ARRAY_LEN(ns); i++) {
		ck_ok(ckpt_duration_parse(ckpt_duration_exact(ns[i], text), &again));
		ck_assert_int_eq(again, ns[i]);
	}
	ck_assert_str_eq(ckpt_duration_exact(INT64_C(5400000000000), text), "90m");
}
END_TEST

START_TEST(sizes_are_printed_as_they_parse)
{
	static const uint64_t sizes[] = {
		0, 1, 1023, 1024, 1000000, UINT64_C(64) << 20, (UINT64_C(64) << 20) + 1, UINT64_C(1) << 62};
	char text[CKPT_SIZE_EXACT_MAX];
	uint64_t again;

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		ck_ok(ckpt_size_parse(ckpt_size_exact(sizes[i], text), &again));
		ck_assert_uint_eq(again, sizes[i]);
	}
	ck_assert_str_eq(ckpt_size_exact(UINT64_C(1536) << 20, text), "1536MiB");
}
END_TEST

START_TEST(a_size_is_refused_beyond_its_limits)
{
	static const char *const good[] = {"1MiB", "1GiB", "64MiB", "500MB", "1048577"};
	static const char *const bad[] = {"1048575", "1023KiB", "1025MiB", "2GiB", "0",
					  "-1",      "64 MiB",  "64mib",   "1e9",  "99999999999999999999"};
	const struct ckpt_setting *row = ckpt_setting_find("target_data_file_size");
	struct ckpt_settings s;

	ckpt_settings_init(&s);
	ck_assert_uint_eq(s.pack_bytes, UINT64_C(64) << 20);
	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		ck_ok(ckpt_setting_parse(row, good[i], &s));
	ck_assert_uint_eq(s.pack_bytes, 1048577);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		ck_error(ckpt_setting_parse(row, bad[i], &s), EINVAL);
	ck_assert_uint_eq(s.pack_bytes, 1048577);
	ckpt_settings_done(&s);
}
END_TEST

START_TEST(commit_quiet_is_a_duration_or_off)
{
	const struct ckpt_setting *row = ckpt_setting_find("commit_quiet");
	static const char *const bad[] = {"0", "0s", "9ms", "none", "no", "on"};
	struct ckpt_settings s;
	CLEANUP_FREE char *off = NULL;

	ckpt_settings_init(&s);
	ck_assert_int_eq(ckpt_settings_quiet_ns(&s, CKPT_QUIET_TIMES), INT64_C(60000000000));
	ck_ok(ckpt_setting_parse(row, "10ms", &s));
	ck_assert_int_eq(ckpt_settings_quiet_ns(&s, CKPT_QUIET_TIMES_CLAIMED), INT64_C(300000000));
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		ck_error(ckpt_setting_parse(row, bad[i], &s), EINVAL);
	ck_assert_int_eq(s.commit_quiet_ns, INT64_C(10000000));
	ck_ok(ckpt_setting_parse(row, "off", &s));
	ck_assert_int_eq(s.commit_quiet_ns, CKPT_QUIET_OFF);
	ck_assert_int_eq(ckpt_settings_quiet_ns(&s, CKPT_QUIET_TIMES), INT64_C(60000000000));
	off = ckpt_setting_text(row, &s);
	ck_assert_str_eq(off, "off");
	ck_ok(ckpt_setting_parse(row, "36500d", &s));
	ck_assert_int_eq(ckpt_settings_quiet_ns(&s, CKPT_QUIET_TIMES_CLAIMED), INT64_MAX); // and no overflow
	ckpt_settings_done(&s);
}
END_TEST

START_TEST(changes_of_committed_steps_are_denied_or_that_is_not_set)
{
	const struct ckpt_setting *row = ckpt_setting_find("amend");
	static const char *const bad[] = {"add", "replace", "allow", ""};
	struct ckpt_settings s;

	ckpt_settings_init(&s);
	ck_assert_int_eq(s.amend, CKPT_AMEND_ALLOWED);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		ck_error(ckpt_setting_parse(row, bad[i], &s), EINVAL);
	ck_ok(ckpt_setting_parse(row, "deny", &s));
	ck_assert_int_eq(s.amend, CKPT_AMEND_DENY);
	ckpt_settings_done(&s);
}
END_TEST

START_TEST(every_setting_parses_what_it_prints)
{
	const struct ckpt_setting *row;
	struct ckpt_settings a, b;

	ckpt_settings_init(&a);
	ckpt_settings_init(&b);
	for (size_t i = 0; (row = ckpt_setting_at(i)); i++) {
		CLEANUP_FREE char *text = ckpt_setting_text(row, &a);
		CLEANUP_FREE char *again = NULL;

		ck_assert_ptr_eq(ckpt_setting_find(row->name), row);
		ck_assert_str_eq(text, row->initial ? row->initial : "");
		if (row->initial)
			ck_ok(ckpt_setting_parse(row, row->initial, &b));
		again = ckpt_setting_text(row, &b);
		ck_assert_str_eq(again, text);
		ck_assert(*row->help && *row->wants && !strchr(row->help, '\n'));
		ck_error(ckpt_setting_parse(row, "", &b), EINVAL);
		ck_error(ckpt_setting_parse(row, "\x01/", &b), EINVAL);
		ck_error(ckpt_setting_parse(row, "\xff", &b), EINVAL);
	}
	ck_assert_int_eq(a.open_writers_ns, INT64_C(5000000000));
	ck_assert_int_eq(a.commit_timeout_ns, INT64_C(600000000000));
	ck_assert_int_eq(a.trash_ns, INT64_C(604800000000000));
	ckpt_settings_done(&a);
	ckpt_settings_done(&b);
}
END_TEST

START_TEST(what_was_given_wins_over_what_the_store_says)
{
	struct ckpt_settings given;
	struct ckpt_store *s;

	ck_ok(ckpt_store_set(dir, ckpt_setting_find("trash"), "30d"));
	ck_ok(ckpt_store_set(dir, ckpt_setting_find("steps_at"), "a:b"));
	ckpt_settings_init(&given);
	ck_ok(ckpt_setting_give(ckpt_setting_find("trash"), "1s", &given));
	for (enum ckpt_store_mode mode = CKPT_STORE_READ; mode <= CKPT_STORE_WRITE; mode++) {
		ck_ok(ckpt_store_open(dir, mode, &given, &s));
		ck_assert_int_eq(s->settings.trash_ns, INT64_C(1000000000));
		ck_assert_str_eq(s->settings.steps_at, "a:b");
		ckpt_store_close(s);
	}
	ckpt_settings_done(&given);
	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &s));
	ck_assert_int_eq(s->settings.trash_ns, INT64_C(30) * 86400 * 1000000000);
	ckpt_store_close(s);
	ck_ok(ckpt_store_set(dir, ckpt_setting_find("trash"), NULL));
	assert_value(dir, "trash", "7d");
	assert_value(dir, "steps_at", "a:b");
}
END_TEST

START_TEST(a_bad_value_keeps_nobody_from_the_store)
{
	static const char *const bad[] = {"\"trash\": 7", "\"trash\": \"soon\"", "\"trash\": null",
					  "\"trash\": [\"7d\"]", "\"marker\": \"a/b\", \"show_staged\": true"};
	struct ckpt_store *s;
	char text[512];

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		snprintf(text, sizeof(text),
			 "{\"format\": 1, \"id\": \"00000000-0000-4000-8000-00000000000%zu\", \"created_ns\": 1,"
			 " \"required\": [\"log\"], \"optional\": [], \"settings\": {%s, \"later\": 1, \"latest_by\": "
			 "\"step\"}}",
			 i, bad[i]);
		spill(dir, text);
		ck_ok(ckpt_store_open(dir, CKPT_STORE_WRITE, NULL, &s));
		ck_assert_int_eq(s->settings.trash_ns, INT64_C(604800000000000));
		ck_assert_str_eq(s->settings.marker, CKPT_MARKER_DEFAULT);
		ck_assert(!s->settings.show_staged && s->settings.latest_by == CKPT_LATEST_BY_STEP);
		ck_assert_uint_ge(ckpt_save_errors(s, i < 4 ? "value of trash" : "value of marker"), 1);
		ck_assert_uint_eq(ckpt_save_errors(s, "later"), 0);
		ckpt_store_close(s);
	}
	snprintf(text, sizeof(text),
		 "{\"format\": 1, \"id\": \"00000000-0000-4000-8000-000000000000\", \"created_ns\": 1,"
		 " \"required\": [\"log\"], \"optional\": [], \"settings\": 7, \"more\": [1]}");
	spill(dir, text);
	assert_value(dir, "trash", "7d");
	ck_ok(ckpt_store_set(dir, ckpt_setting_find("trash"), "2d"));
	assert_value(dir, "trash", "2d");
	slurp(dir, text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "\"more\"")); // what this version does not know stays
}
END_TEST

// The old value or the new one, whatever fails and whenever the power goes; the new one once that was said.
START_TEST(a_change_is_one_durable_act)
{
	const struct ckpt_setting *trash = ckpt_setting_find("trash");
	struct ckpt_disk *disk;
	uint64_t n = 0;
	char out[PATH_MAX];

	ck_ok(ckpt_store_set(dir, trash, "1d"));
	for (bool fired = true; fired;) {
		struct ckpt_sysfault fault = {.at = ++n, .error = -EIO, .torn = true};
		struct ckpt_settings s;
		int rc;

		ckpt_sysfault_begin(&fault);
		rc = ckpt_store_set(dir, trash, "2d");
		ckpt_sysfault_end(&fault);
		fired = fault.count >= n;
		ck_assert(fired || !rc);
		ck_ok(ckpt_store_settings(dir, &s));
		ck_assert(s.trash_ns == INT64_C(172800000000000) || (rc && s.trash_ns == INT64_C(86400000000000)));
		ckpt_settings_done(&s);
		ck_ok(ckpt_store_set(dir, trash, "1d"));
	}
	ck_assert_uint_gt(n, 4);
	ck_ok(ckpt_disk_begin(dir, &disk));
	ck_ok(ckpt_store_set(dir, trash, "2d"));
	ckpt_disk_end(disk);
	ckpt_temp_dir(out);
	for (size_t point = 0; point <= ckpt_disk_count(disk); point++)
		for (uint64_t seed = 0; seed < 8; seed++) {
			struct ckpt_settings s;

			ckpt_temp_empty(out, 0);
			ck_ok(ckpt_disk_crash(disk, point, seed, out));
			ck_ok(ckpt_store_settings(out, &s));
			ck_assert(s.trash_ns == INT64_C(172800000000000) ||
				  (point < ckpt_disk_count(disk) && s.trash_ns == INT64_C(86400000000000)));
			ckpt_settings_done(&s);
		}
	ckpt_disk_free(disk);
}
END_TEST

START_TEST(init_keeps_what_was_given)
{
	struct ckpt_settings given;
	char below[2 * PATH_MAX];

	snprintf(below, sizeof(below), "%s/new", dir);
	ckpt_settings_init(&given);
	ck_ok(ckpt_setting_give(ckpt_setting_find("marker"), ".done", &given));
	ck_ok(ckpt_store_init_with(below, &given, NULL));
	assert_value(below, "marker", ".done");
	assert_value(below, "trash", "7d");
	ckpt_settings_done(&given);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("settings");
	TCase *t = tcase_create("settings");

	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_test(t, durations_are_printed_as_they_parse);
	tcase_add_test(t, sizes_are_printed_as_they_parse);
	tcase_add_test(t, a_size_is_refused_beyond_its_limits);
	tcase_add_test(t, commit_quiet_is_a_duration_or_off);
	tcase_add_test(t, changes_of_committed_steps_are_denied_or_that_is_not_set);
	tcase_add_test(t, every_setting_parses_what_it_prints);
	tcase_add_test(t, what_was_given_wins_over_what_the_store_says);
	tcase_add_test(t, a_bad_value_keeps_nobody_from_the_store);
	tcase_add_test(t, a_change_is_one_durable_act);
	tcase_add_test(t, init_keeps_what_was_given);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
