// Names of views: what they ask for, and what is said of those that are wrong.
#include "core/view/view_spec.h"
#include "tests/support/suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct ckpt_view_spec s;
static struct ckpt_view_why why;

static void check_wrong(const char *name, const char *says, const char *hint)
{
	ck_assert_int_eq(ckpt_view_spec_parse(name, &s, &why), -EINVAL);
	ck_assert_msg(strstr(why.why, says), "%s: %s", name, why.why);
	ck_assert_msg(strstr(why.hint, hint), "%s: %s", name, why.hint);
}

START_TEST(each_key_is_what_it_asks_for)
{
	ck_ok(ckpt_view_spec_parse(
		"only=model.**,not=*.bias,only=t:x=1,dtype=bf16,shard=3of8,axis=1,unroll=2,rename=d%2Fr.json,prefix=m.",
		&s, &why));
	ck_assert_str_eq(s.only[0], "model.**");
	ck_assert_str_eq(s.only[1], "t:x=1");
	ck_assert_ptr_null(s.only[2]);
	ck_assert_str_eq(s.not [0], "*.bias");
	ck_assert_ptr_null(s.not [1]);
	ck_assert_int_eq(s.dtype, CKPT_DTYPE_BF16);
	ck_assert_uint_eq(s.shard, 3);
	ck_assert_uint_eq(s.shards, 8);
	ck_assert_uint_eq(s.axis, 1);
	ck_assert(s.unroll);
	ck_assert_uint_eq(s.unroll_axis, 2);
	ck_assert_str_eq(s.rename_file, "d/r.json");
	ck_assert_str_eq(s.prefix, "m.");
	ck_assert_ptr_null(s.only_file);
	ck_ok(ckpt_view_spec_parse("dtype=float32", &s, &why));
	ck_assert_int_eq(s.dtype, CKPT_DTYPE_F32);
	ck_ok(ckpt_view_spec_parse("shard=1of1", &s, &why));
	ck_assert_uint_eq(s.axis, 0);
}
END_TEST

START_TEST(escapes_stand_for_bytes)
{
	ck_ok(ckpt_view_spec_parse("only=a%2Cb%2fc%3Dd%25,not=@lists%2Fnot.json,only=%40x", &s, &why));
	ck_assert_str_eq(s.only[0], "a,b/c=d%");
	ck_assert_str_eq(s.only[1], "@x");
	ck_assert_str_eq(s.not_file, "lists/not.json");
	ck_assert_ptr_null(s.not [0]);
	ck_assert_ptr_null(s.only_file);
}
END_TEST

START_TEST(a_wrong_name_says_what_is_wrong_and_what_would_be_right)
{
	char name[400];

	check_wrong("", "is no KEY=VALUE", "only=model.**");
	check_wrong("only=a,", "is no KEY=VALUE", "%2C");
	check_wrong("model", "model is no KEY=VALUE", "only=");
	check_wrong("onyl=a", "onyl= is not known", "did you mean only=?");
	check_wrong("qqqqqqqq=a", "is not known", "prefix are known");
	check_wrong("only=", "only= is not valid", "a value follows");
	check_wrong("only=@", "only= is not valid", "a value follows");
	check_wrong("only=a%2", "an escape", "%XX");
	check_wrong("only=a%00", "an escape", "no NUL");
	check_wrong("only=%", "an escape", "%25");
	check_wrong("dtype=int8", "dtype=int8 is not valid", "floating type");
	check_wrong("dtype=bf16,dtype=f32", "twice", "only=");
	for (const char *const *bad =
		     (const char *const[]){"0of8", "9of8", "of8", "3of", "3", "3/8", "+3of8", "03of8", "3of08",
					   "3of8of9", "1of4294967296", "1of99999999999999999999", NULL};
	     *bad; bad++) {
		snprintf(name, sizeof(name), "shard=%s", *bad);
		check_wrong(name, "is not valid", "shard=3of8");
	}
	check_wrong("shard=1of2,axis=-1", "axis=-1 is not valid", "axis=1");
	check_wrong("shard=1of2,axis=32", "axis=32 is not valid", "axis=1");
	check_wrong("axis=0", "without shard=", "shard=3of8");
	check_wrong("unroll=x", "unroll=x is not valid", "unroll=1");
	check_wrong("rename=a,rename=b", "rename= is there twice", "");
	check_wrong("only=@a,only=@b", "only= is there twice", "");
	memset(name, 'a', sizeof(name));
	memcpy(name, "only=", 5);
	name[CKPT_VIEW_NAME_MAX + 1] = '\0';
	check_wrong(name, "more than 255", "only=@FILE");
	name[CKPT_VIEW_NAME_MAX] = '\0';
	ck_ok(ckpt_view_spec_parse(name, &s, &why));
}
END_TEST

START_TEST(as_many_globs_as_a_name_has_room_for_are_taken)
{
	char name[CKPT_VIEW_NAME_MAX + 1] = "";

	for (int i = 0; i < 42; i++)
		strcat(name, "not=a,");
	strcat(name, "a=");
	check_wrong(name, "a= is not valid", "a value");
	name[strlen(name) - 3] = '\0';
	ck_ok(ckpt_view_spec_parse(name, &s, &why));
	ck_assert_str_eq(s.not [41], "a");
	ck_assert_ptr_null(s.not [42]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("view_spec");
	TCase *tc = tcase_create("view_spec");

	tcase_add_test(tc, each_key_is_what_it_asks_for);
	tcase_add_test(tc, escapes_stand_for_bytes);
	tcase_add_test(tc, a_wrong_name_says_what_is_wrong_and_what_would_be_right);
	tcase_add_test(tc, as_many_globs_as_a_name_has_room_for_are_taken);
	suite_add_tcase(suite, tc);
	return ckpt_suite_run(suite);
}
