// Signatures: the examples that AWS publishes ("Authenticating Requests", examples of signature calculations), and what they do not have.
#include "tests/support/suite.h"

#include "backends/sign.h"
#include "core/base/util.h"

#include <stdio.h>
#include <string.h>

#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static const struct ckpt_keys keys = {.id = "AKIAIOSFODNN7EXAMPLE",
				      .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};

static void check(const char *method, const char *path, const char *query, const char *payload,
		  const char *const *headers, const char *names, const char *signature)
{
	struct ckpt_sign what = {.method = method,
				 .path = path,
				 .query = query,
				 .headers = headers,
				 .payload = payload,
				 .time = "20130524T000000Z",
				 .region = "us-east-1",
				 .service = "s3"};
	char header[CKPT_SIGN_MAX], want[CKPT_SIGN_MAX];

	snprintf(want, sizeof(want),
		 "authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
		 "SignedHeaders=%s,Signature=%s",
		 names, signature);
	ck_ok(ckpt_sign(&keys, &what, header));
	ck_assert_str_eq(header, want);
}

#define HOST "host: examplebucket.s3.amazonaws.com"
#define DATE "x-amz-date: 20130524T000000Z"

START_TEST(the_examples_of_aws_come_out_right)
{
	check("GET", "/test.txt", "", EMPTY,
	      (const char *const[]){HOST, "range: bytes=0-9", "x-amz-content-sha256: " EMPTY, DATE, NULL},
	      "host;range;x-amz-content-sha256;x-amz-date",
	      "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
	check("PUT", "/test%24file.text", "", "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
	      (const char *const[]){
		      "x-amz-storage-class: REDUCED_REDUNDANCY", HOST, DATE,
		      "x-amz-content-sha256: 44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
		      "date: Fri, 24 May 2013 00:00:00 GMT", NULL},
	      "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
	      "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
	check("GET", "/", "lifecycle=", EMPTY, (const char *const[]){HOST, "x-amz-content-sha256: " EMPTY, DATE, NULL},
	      "host;x-amz-content-sha256;x-amz-date",
	      "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
	check("GET", "/", "max-keys=2&prefix=J", EMPTY,
	      (const char *const[]){DATE, HOST, "x-amz-content-sha256: " EMPTY, NULL},
	      "host;x-amz-content-sha256;x-amz-date",
	      "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}
END_TEST

// A name that begins like another comes after it, whatever stands behind the colon.
START_TEST(headers_are_sorted_by_their_names)
{
	struct ckpt_sign what = {.method = "PUT",
				 .path = "/k",
				 .query = "",
				 .headers = (const char *const[]){"x-amz-server-side-encryption-aws-kms-key-id: k",
								  "x-amz-server-side-encryption: aws:kms", HOST, NULL},
				 .payload = EMPTY,
				 .time = "20130524T000000Z",
				 .region = "us-east-1",
				 .service = "s3"};
	char header[CKPT_SIGN_MAX];

	ck_ok(ckpt_sign(&keys, &what, header));
	ck_assert_ptr_nonnull(
		strstr(header,
		       "SignedHeaders=host;x-amz-server-side-encryption;x-amz-server-side-encryption-aws-kms-key-id,"));
}
END_TEST

START_TEST(too_much_to_sign_is_refused)
{
	const char *headers[CKPT_SIGN_HEADERS_MAX + 2] = {0};
	struct ckpt_sign what = {.method = "GET",
				 .path = "/",
				 .query = "",
				 .headers = headers,
				 .payload = EMPTY,
				 .time = "20130524T000000Z",
				 .region = "us-east-1",
				 .service = "s3"};
	char header[CKPT_SIGN_MAX], region[300], name[700];

	for (size_t i = 0; i < CKPT_SIGN_HEADERS_MAX; i++)
		headers[i] = "a: b";
	ck_ok(ckpt_sign(&keys, &what, header));
	headers[CKPT_SIGN_HEADERS_MAX] = "a: b";
	ck_error(ckpt_sign(&keys, &what, header), E2BIG);
	snprintf(name, sizeof(name), "%0690d: x", 1);
	headers[0] = name;
	headers[1] = NULL;
	ck_error(ckpt_sign(&keys, &what, header), E2BIG);
	headers[0] = "a: b";
	snprintf(region, sizeof(region), "%0299d", 1);
	what.region = region;
	ck_error(ckpt_sign(&keys, &what, header), E2BIG);
}
END_TEST

START_TEST(text_is_percent_encoded)
{
	char text[32];

	ck_assert(ckpt_sign_encode("a-Z_0.~/ +%", true, text, sizeof(text)));
	ck_assert_str_eq(text, "a-Z_0.~/%20%2B%25");
	ck_assert(ckpt_sign_encode("/\xc3\xa9", false, text, sizeof(text)));
	ck_assert_str_eq(text, "%2F%C3%A9");
	ck_assert(!ckpt_sign_encode("0123456789012345678901234567890123456789", true, text, sizeof(text)));
	ck_assert_str_eq(text, "");
}
END_TEST

START_TEST(times_are_utc)
{
	char time[CKPT_SIGN_TIME_MAX];

	ckpt_sign_time(INT64_C(1369353600000000000), time);
	ck_assert_str_eq(time, "20130524T000000Z");
}
END_TEST

START_TEST(wiped_keys_are_gone)
{
	struct ckpt_keys copy = keys, none = {0};

	ckpt_keys_wipe(&copy);
	ck_assert_mem_eq(&copy, &none, sizeof(copy));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sign");
	TCase *tcase = tcase_create("sign");

	tcase_add_test(tcase, the_examples_of_aws_come_out_right);
	tcase_add_test(tcase, headers_are_sorted_by_their_names);
	tcase_add_test(tcase, too_much_to_sign_is_refused);
	tcase_add_test(tcase, text_is_percent_encoded);
	tcase_add_test(tcase, times_are_utc);
	tcase_add_test(tcase, wiped_keys_are_gone);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
