#include "tests/support/suite.h"

#include "core/base/hash.h"
#include "core/base/util.h"
#include "core/record/name.h"

static const struct ckpt_place nowhere = {0};
static const struct ckpt_place at_root = {.root = true};
static const struct ckpt_place in_checkpoints = {.in_checkpoints = true};
static const struct ckpt_place beside_steps = {.holds_steps = true};
static const struct ckpt_place below_logs = {.below_logs = true};
static const struct ckpt_place logs_with_steps = {.below_logs = true, .holds_steps = true};

static int check(const char *name)
{
	return ckpt_name_check(name, strlen(name));
}

START_TEST(valid_names_pass)
{
	static const char *const names[] = {"a",
					    "1000",
					    "...",
					    ".hidden",
					    "a b",
					    "%",
					    "model-00001-of-00002.safetensors",
					    "\xc3\xa4",
					    "\xe2\x82\xac",
					    "\xf0\x9f\x98\x80",
					    "\xf4\x8f\xbf\xbf",
					    "-"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		ck_ok(check(names[i]));
}
END_TEST

START_TEST(names_that_a_path_cannot_hold_are_refused)
{
	char longest[CKPT_NAME_MAX + 2];

	ck_error(check(""), EINVAL);
	ck_error(check("."), EINVAL);
	ck_error(check(".."), EINVAL);
	ck_error(check("a/b"), EINVAL);
	ck_error(check("/"), EINVAL);
	ck_error(ckpt_name_check("a\0b", 3), EINVAL);
	ck_error(check("a\nb"), EINVAL);
	ck_error(check("\x7f"), EINVAL);
	ck_error(check("\x1f"), EINVAL);
	memset(longest, 'x', sizeof(longest));
	ck_ok(ckpt_name_check(longest, CKPT_NAME_MAX));
	ck_error(ckpt_name_check(longest, CKPT_NAME_MAX + 1), ENAMETOOLONG);
}
END_TEST

START_TEST(only_well_formed_utf8_passes)
{
	static const char *const bad[] = {
		"\x80",         "\xc3",         "\xc0\xaf",         "\xc1\xbf",         "\xe0\x80\xaf",
		"\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
		"\xff",         "a\xe2\x82",    "\xe2\x28\xa1",     "\xf0\x9f\x98",
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		ck_error(check(bad[i]), EILSEQ);
	// The bytes behind the end do not count.
	ck_error(ckpt_name_check("\xe2\x82\xac", 2), EILSEQ);
}
END_TEST

START_TEST(prefixed_numbers_are_steps_anywhere_but_below_logs)
{
	static const char *const names[] = {
		"checkpoint-500", "checkpoint_500", "ckpt-1",       "ckpt_1",       "step_10",
		"step-10",        "step10",         "iter_0000100", "global_step5", "global_step_5",
		"run-3",          "epoch_1",        "epoch-1",      "step=100",     "epoch=3-step=1000"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		ck_assert_msg(ckpt_name_is_step(names[i], &nowhere), "%s", names[i]);
		ck_assert_msg(ckpt_name_is_step(names[i], &at_root), "%s", names[i]);
		ck_assert_msg(!ckpt_name_is_step(names[i], &below_logs), "%s below logs", names[i]);
		ck_assert_msg(!ckpt_name_is_temp(names[i]), "%s", names[i]);
	}
	ck_assert(ckpt_name_is_step("epoch=3-step=1000.ckpt", &nowhere));
	ck_assert(ckpt_name_is_step("epoch=3-step=1000-v1.ckpt", &nowhere));
	ck_assert(!ckpt_name_is_step("last.ckpt", &nowhere));
}
END_TEST

START_TEST(bare_numbers_are_steps_only_where_steps_are_kept)
{
	static const char *const names[] = {"0", "1000", "0000100"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		ck_assert(ckpt_name_is_step(names[i], &at_root));
		ck_assert(ckpt_name_is_step(names[i], &in_checkpoints));
		ck_assert(ckpt_name_is_step(names[i], &beside_steps));
		ck_assert(ckpt_name_is_step(names[i], &logs_with_steps));
		ck_assert(!ckpt_name_is_step(names[i], &nowhere));
	}
}
END_TEST

START_TEST(other_names_are_plain)
{
	static const char *const names[] = {"release",
					    "logs",
					    "step",
					    "step_",
					    "step_x",
					    "xstep_1",
					    "checkpoint-500.bad",
					    "1000.bad",
					    "-1",
					    "1 ",
					    "checkpoints",
					    "step_1_2",
					    "best",
					    "latest",
					    "run-a",
					    ".orbax-checkpoint-tmp",
					    ".partial_save",
					    "tmp-checkpoint-",
					    "Step_1",
					    "1000x"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		ck_assert_msg(!ckpt_name_is_step(names[i], &at_root), "%s", names[i]);
}
END_TEST

START_TEST(temp_forms_are_steps_everywhere)
{
	static const char *const names[] = {"100.orbax-checkpoint-tmp",
					    "100.orbax-checkpoint-tmp-1700000000",
					    "5.partial_save",
					    "5.partial_save.orbax-checkpoint-tmp",
					    "tmp-checkpoint-500",
					    "checkpoint_tmp",
					    "state.orbax-checkpoint-tmp"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		ck_assert_msg(ckpt_name_is_temp(names[i]), "%s", names[i]);
		ck_assert_msg(ckpt_name_is_step(names[i], &nowhere), "%s", names[i]);
		ck_assert_msg(ckpt_name_is_step(names[i], &below_logs), "%s", names[i]);
	}
	ck_assert(!ckpt_name_is_temp("100"));
	ck_assert(!ckpt_name_is_temp("100.orbax-checkpoint-tmpx"));
}
END_TEST

START_TEST(file_steps_are_known_by_their_names)
{
	static const char *const is[] = {"a.pt",          "model.pth", "last.ckpt",     "pytorch_model.bin",
					 "a.safetensors", "a.npz",     "a.npy",         "a.h5",
					 "a.keras",       "a.msgpack", "checkpoint_70", "a.b.pt"};
	static const char *const is_not[] = {".pt",
					     "pt",
					     "a.pt.tmp",
					     "a.pt ",
					     "a.PT",
					     "config.json",
					     "checkpoint_",
					     "checkpoint_7.tmp",
					     "checkpoint-7",
					     "xcheckpoint_7",
					     "model.bin.index.json",
					     "latest"};

	for (size_t i = 0; i < ARRAY_LEN(is); i++)
		ck_assert_msg(ckpt_name_is_file_step(is[i]), "%s", is[i]);
	for (size_t i = 0; i < ARRAY_LEN(is_not); i++)
		ck_assert_msg(!ckpt_name_is_file_step(is_not[i]), "%s", is_not[i]);
}
END_TEST

START_TEST(folder_names_are_known)
{
	ck_assert(ckpt_name_is_logs("logs") && ckpt_name_is_logs("tb_logs") && ckpt_name_is_logs("wandb"));
	ck_assert(ckpt_name_has_own_latest("global_step7") && !ckpt_name_has_own_latest("global_step"));
	ck_assert(!ckpt_name_has_own_latest("global_step_7") && !ckpt_name_has_own_latest("step_7"));
	ck_assert(!ckpt_name_is_logs("_logs") && !ckpt_name_is_logs("log") && !ckpt_name_is_logs("logs2"));
	ck_assert(ckpt_name_is_checkpoints("ckpt") && ckpt_name_is_checkpoints("checkpoints"));
	ck_assert(!ckpt_name_is_checkpoints("ckpts2"));
}
END_TEST

START_TEST(number_is_the_last_run_of_digits)
{
	ck_assert_int_eq(ckpt_name_number("1000"), 1000);
	ck_assert_int_eq(ckpt_name_number("iter_0000100"), 100);
	ck_assert_int_eq(ckpt_name_number("epoch=3-step=1000"), 1000);
	ck_assert_int_eq(ckpt_name_number("checkpoint-500.bad"), 500);
	ck_assert_int_eq(ckpt_name_number("epoch=3-step=1000.ckpt"), 1000);
	ck_assert_int_eq(ckpt_name_number("epoch=3-step=1000-v1.ckpt"), 1000);
	ck_assert_int_eq(ckpt_name_number("exp-v3.ckpt"), 3);
	ck_assert_int_eq(ckpt_name_number("release"), -1);
	ck_assert_int_eq(ckpt_name_number("0"), 0);
	ck_assert(ckpt_name_number("9223372036854775807") == INT64_MAX);
	ck_assert_int_eq(ckpt_name_number("9223372036854775808"), -1);
	ck_assert_int_eq(ckpt_name_number("step_99999999999999999999999"), -1);
}
END_TEST

START_TEST(keys_are_percent_encoded)
{
	char key[CKPT_STEP_KEY_MAX];

	ck_ok(ckpt_name_key("", "checkpoint-500", key));
	ck_assert_str_eq(key, "checkpoint-500");
	ck_ok(ckpt_name_key("0123456789abcdef", "a b%\xc3\xa4", key));
	ck_assert_str_eq(key, "0123456789abcdef%2Fa%20b%25%C3%A4");
	ck_ok(ckpt_name_key("", "A_z.=+@~-9", key));
	ck_assert_str_eq(key, "A_z.=+@~-9");
	ck_error(ckpt_name_key("", "..", key), EINVAL);
	ck_error(ckpt_name_key("", "a/b", key), EINVAL);
	ck_error(ckpt_name_key("0123", "a", key), EINVAL);
	ck_error(ckpt_name_key("0123456789ABCDEF", "a", key), EINVAL);
	ck_error(ckpt_name_key("0123456789abcdef0", "a", key), EINVAL);
}
END_TEST

START_TEST(long_names_are_keyed_by_their_hash)
{
	char name[CKPT_NAME_MAX + 1] = "", key[CKPT_STEP_KEY_MAX], hex[65];
	uint8_t digest[32];

	memset(name, 'x', CKPT_KEY_NAME_MAX);
	ck_ok(ckpt_name_key("", name, key));
	ck_assert_str_eq(key, name);
	name[CKPT_KEY_NAME_MAX] = 'x';
	ckpt_sha256(name, strlen(name), digest);
	ckpt_hex(digest, sizeof(digest), hex);
	ck_ok(ckpt_name_key("0123456789abcdef", name, key));
	ck_assert_msg(!memcmp(key, "0123456789abcdef%2F%%", 21), "%s", key);
	ck_assert_str_eq(key + 21, hex);
	// The limit is on the encoded bytes.
	memset(name, 0, sizeof(name));
	memset(name, ' ', CKPT_KEY_NAME_MAX / 3 + 1);
	ck_ok(ckpt_name_key("", name, key));
	ck_assert_msg(!memcmp(key, "%%", 2), "%s", key);
}
END_TEST

START_TEST(keys_of_different_names_differ)
{
	// What could be taken for another name's encoding, or for a folder's prefix.
	static const char *const names[] = {"%2F", "%%", "%", "%25", "0123456789abcdef%2Fx", "x"};
	char keys[ARRAY_LEN(names)][CKPT_STEP_KEY_MAX], inside[CKPT_STEP_KEY_MAX];

	ck_ok(ckpt_name_key("0123456789abcdef", "x", inside));
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		ck_ok(ckpt_name_key("", names[i], keys[i]));
		ck_assert_str_ne(keys[i], inside);
		for (size_t k = 0; k < i; k++)
			ck_assert_str_ne(keys[i], keys[k]);
	}
}
END_TEST

START_TEST(what_is_not_utf8_is_cleaned_byte_by_byte)
{
	static const char *const table[][2] = {
		{"", ""},
		{"d\xc3\xa9j\xc3\xa0", "d\xc3\xa9j\xc3\xa0"},
		{"st\xe9", "st\xef\xbf\xbd"},
		{"\xe9/a\xff", "\xef\xbf\xbd/a\xef\xbf\xbd"},
		{"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, // a surrogate
		{"a\xe2\x82", "a\xef\xbf\xbd\xef\xbf\xbd"},               // cut off
	};

	for (size_t i = 0; i < ARRAY_LEN(table); i++) {
		CLEANUP_FREE char *clean = ckpt_name_clean(table[i][0]);

		ck_assert_str_eq(clean, table[i][1]);
	}
}
END_TEST

START_TEST(a_pattern_matches_as_it_says_and_in_no_time)
{
	static const struct {
		const char *pattern, *name;
		bool matches;
	} cases[] = {
		{"", "", true},
		{"*", "", false},
		{"*", "a", true},
		{"#", "12", true},
		{"#", "", false},
		{"#", "1a", false},
		{"a#b", "a12b", true},
		{"*#", "a12", true},
		{"*#", "12", true},
		{"*#", "1", false},
		{"##", "12", false},
		{"*.pt", ".pt", false},
		{"*.pt", "a.pt.pt", true},
		{"*ab*", "xabab", true},
		{"*ab*", "xab", false},
		{"*-#-*", "a-b-1-c", true},
		{"a*", "b", false},
		{"*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b",
		 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		ck_assert_msg(ckpt_name_matches(cases[i].pattern, cases[i].name) == cases[i].matches, "%s %s",
			      cases[i].pattern, cases[i].name);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("name");
	TCase *t = tcase_create("name");

	tcase_add_test(t, valid_names_pass);
	tcase_add_test(t, names_that_a_path_cannot_hold_are_refused);
	tcase_add_test(t, only_well_formed_utf8_passes);
	tcase_add_test(t, prefixed_numbers_are_steps_anywhere_but_below_logs);
	tcase_add_test(t, bare_numbers_are_steps_only_where_steps_are_kept);
	tcase_add_test(t, other_names_are_plain);
	tcase_add_test(t, temp_forms_are_steps_everywhere);
	tcase_add_test(t, file_steps_are_known_by_their_names);
	tcase_add_test(t, folder_names_are_known);
	tcase_add_test(t, number_is_the_last_run_of_digits);
	tcase_add_test(t, keys_are_percent_encoded);
	tcase_add_test(t, long_names_are_keyed_by_their_hash);
	tcase_add_test(t, keys_of_different_names_differ);
	tcase_add_test(t, what_is_not_utf8_is_cleaned_byte_by_byte);
	tcase_add_test(t, a_pattern_matches_as_it_says_and_in_no_time);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}
