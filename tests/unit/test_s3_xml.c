// The XML of S3 stores, as they write it, and as somebody would who means harm.
#include "tests/support/suite.h"

#include "backends/s3_xml.h"
#include "core/base/util.h"

#include <stdio.h>
#include <string.h>

struct seen {
	char text[1024];
	int fails_at, count;
};

static int see(void *arg, const char *key, const struct ckpt_object *object)
{
	struct seen *s = arg;
	size_t len = strlen(s->text);

	if (++s->count == s->fails_at)
		return -EFBIG;
	snprintf(s->text + len, sizeof(s->text) - len, "%s|%llu|%lld|%s\n", key, (unsigned long long)object->bytes,
		 (long long)object->mtime_ns / 1000000, object->etag);
	return 0;
}

static struct seen seen;
static struct ckpt_s3_page page;

static int parse(const char *xml)
{
	seen.count = 0;
	*seen.text = '\0';
	return ckpt_s3_page_parse(xml, strlen(xml), see, &seen, &page);
}

#define CONTENT(key)                                                                                                   \
	"<Contents><Key>" key "</Key><LastModified>2026-11-27T21:01:13.250Z</LastModified>"                            \
	"<ETag>&quot;abc&quot;</ETag><Size>12</Size><Owner><ID>x</ID></Owner></Contents>"
#define LIST(inner)                                                                                                    \
	"<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult xmlns=\"x\">" inner "</ListBucketResult>"

START_TEST(a_page_gives_its_objects)
{
	ck_ok(parse(LIST("<Name>b</Name><IsTruncated>true</IsTruncated>" CONTENT("a/b%26")
				 CONTENT("c d+") "<NextContinuationToken>t/1=</NextContinuationToken>")));
	ck_assert_str_eq(seen.text, "a/b%26|12|1795813273250|abc\nc d+|12|1795813273250|abc\n");
	ck_assert(page.truncated);
	ck_assert_str_eq(page.token, "t/1=");
	ck_ok(parse(LIST("")));
	ck_assert(!page.truncated && !*page.token && !seen.count);
}
END_TEST

// It may stand behind the keys.
START_TEST(encoded_keys_are_decoded)
{
	ck_ok(parse(LIST(CONTENT("a%2Fb+c%2b%25") "<EncodingType>url</EncodingType>")));
	ck_assert_str_eq(seen.text, "a/b c+%|12|1795813273250|abc\n");
	ck_error(parse(LIST(CONTENT("a%2") "<EncodingType>url</EncodingType>")), EBADMSG);
	ck_error(parse(LIST(CONTENT("a%") "<EncodingType>url</EncodingType>")), EBADMSG);
	ck_error(parse(LIST(CONTENT("a%gg") "<EncodingType>url</EncodingType>")), EBADMSG);
	ck_error(parse(LIST(CONTENT("a%00b") "<EncodingType>url</EncodingType>")), EBADMSG);
}
END_TEST

START_TEST(an_object_that_lacks_something_is_refused)
{
	static const char *const bad[] = {
		LIST("<Contents><Key>k</Key></Contents>"),
		LIST("<Contents><Key>k</Key><LastModified>2026-11-27T21:01:13Z</LastModified><Size>1</Size></"
		     "Contents>"),
		LIST("<Contents><Key>k</Key><LastModified>yesterday</LastModified><ETag>e</ETag><Size>1</Size></"
		     "Contents>"),
		LIST("<Contents><Key>k</Key><LastModified>2026-11-27T21:01:13Z</LastModified><ETag>e</ETag><Size>-1</"
		     "Size></Contents>"),
		LIST("<Contents><Key>k</Key><LastModified>2026-11-27T21:01:13Z</LastModified><ETag>e</ETag>"
		     "<Size>99999999999999999999999</Size></Contents>"),
		LIST("<Contents><Key>k</Key><LastModified>2026-11-27T21:01:13Z</LastModified><ETag>\"\"</ETag><Size>1</"
		     "Size></Contents>"),
		"<Error><Code>x</Code></Error>",
		"",
		"no XML",
		"<ListBucketResult>",
		"<ListBucketResult/><ListBucketResult/>",
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		ck_error(parse(bad[i]), EBADMSG);
	seen.fails_at = 2;
	ck_error(parse(LIST(CONTENT("a") CONTENT("b") CONTENT("c"))), EFBIG);
	ck_assert_int_eq(seen.count, 2);
}
END_TEST

START_TEST(a_document_type_is_refused_and_nothing_grows)
{
	ck_error(parse("<!DOCTYPE x [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;\">]>" LIST("")), EBADMSG);
	ck_error(parse("<!DOCTYPE ListBucketResult SYSTEM \"file:///etc/passwd\"><ListBucketResult/>"), EBADMSG);
	ck_error(parse("<!DOCTYPE a><ListBucketResult/>"), EBADMSG);
	ck_error(parse("<ListBucketResult>&x;</ListBucketResult>"), EBADMSG);
}
END_TEST

START_TEST(depth_and_text_have_limits)
{
	size_t len = (65u << 10) + 200;
	CLEANUP_FREE char *text = calloc(1, len), *large = calloc(1, CKPT_S3_XML_MAX + 1);
	char deep[256] = "";

	for (int i = 0; i < 15; i++)
		strcat(deep, "<a>");
	for (int i = 0; i < 15; i++)
		strcat(deep, "</a>");
	snprintf(text, len, LIST("%s"), deep);
	ck_ok(parse(text));
	snprintf(text, len, LIST("<a>%s</a>"), deep);
	ck_error(parse(text), EBADMSG);
	strcpy(text, "<ListBucketResult><x>");
	memset(text + strlen(text), 'x', 64 << 10);
	strcat(text, "</x></ListBucketResult>");
	ck_ok(parse(text));
	strcpy(text, "<ListBucketResult><x>");
	memset(text + strlen(text), 'x', (64 << 10) + 1);
	strcpy(text + strlen("<ListBucketResult><x>") + (64 << 10) + 1, "</x></ListBucketResult>");
	ck_error(parse(text), EBADMSG);
	memset(large, ' ', CKPT_S3_XML_MAX);
	memcpy(large, LIST(""), strlen(LIST("")));
	ck_ok(ckpt_s3_page_parse(large, CKPT_S3_XML_MAX, see, &seen, &page));
	ck_error(ckpt_s3_page_parse(large, CKPT_S3_XML_MAX + 1, see, &seen, &page), EBADMSG);
}
END_TEST

static int see_upload(void *arg, const struct ckpt_s3_upload *u)
{
	struct seen *s = arg;
	size_t len = strlen(s->text);

	if (++s->count == s->fails_at)
		return -EFBIG;
	snprintf(s->text + len, sizeof(s->text) - len, "%s|%s|%lld\n", u->key, u->id, (long long)u->began_ns / 1000000);
	return 0;
}

static struct ckpt_s3_uploads_page uploads;

static int parse_uploads(const char *xml)
{
	seen.count = 0;
	*seen.text = '\0';
	return ckpt_s3_uploads_parse(xml, strlen(xml), see_upload, &seen, &uploads);
}

#define UPLOAD(key, id)                                                                                                \
	"<Upload><Initiator><ID>x</ID></Initiator><Initiated>2026-11-27T21:01:13.250Z</Initiated><Key>" key            \
	"</Key><UploadId>" id "</UploadId></Upload>"
#define UPLOADS(inner) "<ListMultipartUploadsResult xmlns=\"x\">" inner "</ListMultipartUploadsResult>"

START_TEST(uploads_that_nobody_ended_are_found)
{
	static const char *const bad[] = {
		UPLOADS("<Upload><Key>k</Key><UploadId>i</UploadId></Upload>"),
		UPLOADS("<Upload><Key>k</Key><Initiated>2026-11-27T21:01:13Z</Initiated></Upload>"),
		UPLOADS("<Upload><UploadId>i</UploadId><Initiated>2026-11-27T21:01:13Z</Initiated></Upload>"),
		UPLOADS("<Upload><Key>k</Key><UploadId>i</UploadId><Initiated>now</Initiated></Upload>"),
		UPLOADS("<EncodingType>url</EncodingType>" UPLOAD("a%2", "i")),
		LIST(""),
	};

	ck_ok(parse_uploads(
		UPLOADS("<IsTruncated>true</IsTruncated><EncodingType>url</EncodingType>"
			"<NextKeyMarker>c%2Fd</NextKeyMarker><NextUploadIdMarker>n/1</NextUploadIdMarker>" UPLOAD(
				"a%2Fb", "i/1") UPLOAD("c%2Fd", "i2"))));
	ck_assert_str_eq(seen.text, "a/b|i/1|1795813273250\nc/d|i2|1795813273250\n");
	ck_assert(uploads.truncated);
	ck_assert_str_eq(uploads.key, "c/d");
	ck_assert_str_eq(uploads.id, "n/1");
	ck_ok(parse_uploads(UPLOADS("")));
	ck_assert(!uploads.truncated && !*uploads.key && !seen.count);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		ck_error(parse_uploads(bad[i]), EBADMSG);
	seen.fails_at = 1;
	ck_error(parse_uploads(UPLOADS(UPLOAD("a", "i"))), EFBIG);
	seen.fails_at = 0;
}
END_TEST

START_TEST(fields_are_found_by_their_names)
{
	char code[8], id[8];
	struct ckpt_s3_field fields[] = {{"Code", code, sizeof(code)}, {"Id", id, sizeof(id)}};
	const char *xml = "<Error><Code>Slow</Code><a><Id>1</Id></a></Error>";

	ck_ok(ckpt_s3_fields_parse(xml, strlen(xml), "Error", fields, 2));
	ck_assert_str_eq(code, "Slow");
	ck_assert_str_eq(id, "1");
	ck_error(ckpt_s3_fields_parse(xml, strlen(xml), "Errors", fields, 2), EBADMSG);
	ck_ok(ckpt_s3_fields_parse("<b/>", 4, NULL, fields, 2));
	ck_assert_str_eq(code, "");
	xml = "<Error><Code>12345678</Code></Error>";
	ck_error(ckpt_s3_fields_parse(xml, strlen(xml), NULL, fields, 2), EBADMSG);
}
END_TEST

static struct ckpt_s3_rule found_rules[4];
static size_t rule_count;

static int see_rule(void *arg, const struct ckpt_s3_rule *rule)
{
	(void)arg;
	found_rules[rule_count++] = *rule;
	return 0;
}

static int parse_rules(const char *xml)
{
	rule_count = 0;
	return ckpt_s3_rules_parse(xml, strlen(xml), see_rule, NULL);
}

#define RULES(inner) "<LifecycleConfiguration>" inner "</LifecycleConfiguration>"
#define EXPIRES(days) "<Expiration><Days>" days "</Days></Expiration>"

START_TEST(rules_are_read_one_by_one)
{
	const struct ckpt_s3_rule *a = &found_rules[0], *b = &found_rules[1];

	ck_ok(parse_rules(RULES(
		"<Rule><ID>a</ID><Filter><And><Prefix>p/</Prefix><Tag><Key>Prefix</Key><Value>ID</Value></Tag></And>"
		"</Filter><Status>Enabled</Status>" EXPIRES(
			"30") "<Transition><Days>1</Days><StorageClass>GLACIER"
			      "</StorageClass></Transition><NoncurrentVersionExpiration><NoncurrentDays>5</"
			      "NoncurrentDays>"
			      "</NoncurrentVersionExpiration><AbortIncompleteMultipartUpload><DaysAfterInitiation>7"
			      "</DaysAfterInitiation></AbortIncompleteMultipartUpload></Rule>"
			      "<Rule><Prefix>q</Prefix><Status>Disabled</"
			      "Status><NoncurrentVersionTransition><NoncurrentDays>9"
			      "</NoncurrentDays><StorageClass>GLACIER</StorageClass></NoncurrentVersionTransition></"
			      "Rule>")));
	ck_assert_uint_eq(rule_count, 2);
	ck_assert_str_eq(a->id, "a");
	ck_assert_str_eq(a->prefix, "p/");
	ck_assert(a->enabled && a->is_tagged && a->expires && a->archives);
	ck_assert(a->expires_days == 30 && a->old_versions_days == 5 && a->abort_days == 7);
	ck_assert_str_eq(b->id, "");
	ck_assert_str_eq(b->prefix, "q");
	ck_assert(!b->enabled && !b->is_tagged && !b->expires && !b->archives);
	ck_assert(!b->expires_days && !b->old_versions_days && !b->abort_days);
	ck_ok(parse_rules(RULES("")));
	ck_assert_uint_eq(rule_count, 0);
	ck_ok(parse_rules(RULES("<Rule>" EXPIRES("99999999999999") "</Rule>")));
	ck_assert_uint_eq(a->expires_days, UINT32_MAX);
	ck_error(parse_rules(RULES("<Rule>" EXPIRES("-1") "</Rule>")), EBADMSG);
	ck_error(parse_rules(RULES("<Rule>" EXPIRES("1 0") "</Rule>")), EBADMSG);
	ck_error(parse_rules(RULES("<Rule>" EXPIRES(" ") "</Rule>")), EBADMSG);
	ck_error(parse_rules(RULES("<Rule>" EXPIRES("30")) "</Rule>"), EBADMSG);
	ck_error(parse_rules("<ListBucketResult/>"), EBADMSG);
	ck_error(parse_rules(""), EBADMSG);
}
END_TEST

// As servers keep what tools have put there: 255 characters of several bytes are an ID, too.
START_TEST(rules_with_long_ids_and_blanks_are_read)
{
	char id[511], xml[2048];

	for (size_t i = 0; i < sizeof(id) - 1; i++)
		id[i] = (i & 1) ? '\xa9' : '\xc3';
	id[sizeof(id) - 1] = '\0';
	snprintf(xml, sizeof(xml),
		 RULES("<Rule><ID>%s</ID><Status>\n Enabled\n</Status>" EXPIRES(
			 " 30\n") "<Transition><StorageClass>\t"
				  "GLACIER </StorageClass></Transition></Rule>"),
		 id);
	ck_ok(parse_rules(xml));
	ck_assert_uint_eq(rule_count, 1);
	ck_assert_uint_eq(strlen(found_rules->id), sizeof(found_rules->id) - 1);
	ck_assert(!strncmp(found_rules->id, id, sizeof(found_rules->id) - 1));
	ck_assert(found_rules->enabled && found_rules->archives && found_rules->expires_days == 30);
}
END_TEST

START_TEST(etags_lose_their_quotes)
{
	char etag[CKPT_ETAG_MAX], text[CKPT_ETAG_MAX + 2];

	ck_assert(ckpt_s3_etag("\"a-2\"", etag));
	ck_assert_str_eq(etag, "a-2");
	ck_assert(ckpt_s3_etag("a", etag));
	ck_assert_str_eq(etag, "a");
	ck_assert(!ckpt_s3_etag("", etag));
	ck_assert(!ckpt_s3_etag("\"\"", etag));
	memset(text, 'a', sizeof(text));
	text[CKPT_ETAG_MAX] = '\0';
	ck_assert(!ckpt_s3_etag(text, etag));
	text[CKPT_ETAG_MAX - 1] = '\0';
	ck_assert(ckpt_s3_etag(text, etag));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("s3_xml");
	TCase *tcase = tcase_create("xml");

	tcase_add_test(tcase, a_page_gives_its_objects);
	tcase_add_test(tcase, encoded_keys_are_decoded);
	tcase_add_test(tcase, an_object_that_lacks_something_is_refused);
	tcase_add_test(tcase, a_document_type_is_refused_and_nothing_grows);
	tcase_add_test(tcase, depth_and_text_have_limits);
	tcase_add_test(tcase, uploads_that_nobody_ended_are_found);
	tcase_add_test(tcase, fields_are_found_by_their_names);
	tcase_add_test(tcase, rules_are_read_one_by_one);
	tcase_add_test(tcase, rules_with_long_ids_and_blanks_are_read);
	tcase_add_test(tcase, etags_lose_their_quotes);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
