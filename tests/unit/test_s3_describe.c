// The report of an S3 store on itself, against a small bucket that answers as a test says: rights that are refused, settings of the bucket, a
// clock that is off; and what stays there afterwards, which is nothing.
#include "tests/support/httpd.h"
#include "tests/support/suite.h"

#include "backends/s3.h"
#include "core/base/log.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#include <stdio.h>

#define CANARY "canary-of-a-secret"
#define DENIED "403 x", "<Error><Code>AccessDenied</Code><Message>no " CANARY_ID "</Message></Error>"
#define CANARY_ID "AKIDEXAMPLE"
#define NOW_NS INT64_C(1795813273000000000) // the Date of each answer
#define PAGE "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"

// The settings of the bucket, and its objects. "": the server has no such setting.
static struct bucket {
	bool no_list, no_get, no_put, no_delete, no_abort, no_settings;
	bool takes_damaged; // bytes that are not those of their sum
	bool keeps;         // an object that is there: its removal fails
	bool loses_answers; // of puts
	const char *list, *versioning, *lock, *lifecycle, *uploads;
	const char *unset; // the status of the answer about a setting that there is none of; NULL: 404
	size_t objects, begun, puts, conditional;
} bucket;

static struct httpd server;
static struct ckpt_objects *s3;
static struct ckpt_rights rights;
static char logged[65536], told[16384];
static size_t failed, warned;
static int64_t now_ns;

static struct httpd_reply answer(const char *status, const char *text)
{
	static _Thread_local char reply[8192];

	snprintf(reply, sizeof(reply),
		 "HTTP/1.1 %s\r\nDate: Fri, 27 Nov 2026 21:01:13 GMT\r\nServer: Small\x01"
		 "Bucket\r\nETag: "
		 "\"e1\"\r\nContent-Length: %zu\r\n\r\n%s",
		 status, strlen(text), text);
	return (struct httpd_reply){reply, HTTPD_GO_ON};
}

static struct httpd_reply setting(const char *text)
{
	if (bucket.no_settings)
		return answer(DENIED);
	return *text ? answer("200 OK", text)
		     : answer(bucket.unset ? bucket.unset : "404 x", "<Error><Code>NoSuchConfiguration</Code></Error>");
}

static struct httpd_reply serve_get(const char *request)
{
	if (strstr(request, "?versioning="))
		return setting(bucket.versioning);
	if (strstr(request, "?object-lock="))
		return setting(bucket.lock);
	if (strstr(request, "?lifecycle="))
		return setting(bucket.lifecycle);
	if (strstr(request, "&uploads="))
		return setting(bucket.uploads);
	if (strstr(request, "list-type=2"))
		return bucket.no_list ? answer(DENIED) : answer("200 OK", bucket.list);
	return bucket.no_get ? answer(DENIED) : answer("404 x", "<Error><Code>NoSuchKey</Code></Error>");
}

static struct httpd_reply serve_put(const char *request)
{
	bool is_damaged = strstr(request, "ckptfs Doctor");

	if (bucket.no_put)
		return answer(DENIED);
	if (is_damaged && !bucket.takes_damaged)
		return answer("400 x", "<Error><Code>BadDigest</Code></Error>");
	bucket.puts++;
	bucket.objects++;
	bucket.conditional += strstr(request, "if-none-match: *") != NULL;
	if (bucket.loses_answers)
		return answer("500 x", "<Error><Code>InternalError</Code></Error>");
	return answer("200 OK", "");
}

static struct httpd_reply serve_delete(const char *request)
{
	if (strstr(request, "?uploadId=none "))
		return bucket.no_abort ? answer(DENIED) : answer("404 x", "<Error><Code>NoSuchUpload</Code></Error>");
	if (strstr(request, "?uploadId=id ")) {
		bucket.begun--;
		return answer("204 x", "");
	}
	if (bucket.no_delete)
		return answer(DENIED);
	if (bucket.keeps && bucket.objects)
		return answer("500 x", "<Error><Code>InternalError</Code></Error>");
	bucket.objects -= MIN(bucket.objects, (size_t)1);
	return answer("204 x", "");
}

static struct httpd_reply serve(void *arg, size_t n, const char *request)
{
	(void)arg, (void)n;
	if (!strncmp(request, "GET ", 4))
		return serve_get(request);
	ck_assert_ptr_nonnull(strstr(request, " /bucket/run/probe/"));
	if (!strncmp(request, "PUT ", 4))
		return serve_put(request);
	if (!strncmp(request, "DELETE ", 7))
		return serve_delete(request);
	ck_assert_ptr_nonnull(strstr(request, "?uploads= "));
	bucket.begun++;
	return answer("200 OK",
		      "<InitiateMultipartUploadResult><UploadId>id</UploadId></InitiateMultipartUploadResult>");
}

static void keep_log(enum ckpt_log_level level, const char *line)
{
	(void)level;
	strncat(logged, line, sizeof(logged) - strlen(logged) - 1);
}

static int64_t now(void)
{
	return now_ns;
}

static void open_at(const char *url)
{
	static char endpoint[64];
	const char *const options[] = {endpoint, NULL};
	struct ckpt_s3_config config;
	char why[CKPT_OBJECTS_WHY_MAX];

	snprintf(endpoint, sizeof(endpoint), "endpoint=%s", server.url);
	ck_ok(ckpt_s3_config_parse(url, options, &config, why));
	ck_assert_msg(!ckpt_s3_new(&config, true, why, &s3), "%s", why);
}

static void setup(void)
{
	bucket = (struct bucket){.list = PAGE, .versioning = "", .lock = "", .lifecycle = "", .uploads = ""};
	server = (struct httpd){.serve = serve};
	httpd_start(&server);
	setenv("AWS_ACCESS_KEY_ID", CANARY_ID, 1);
	setenv("AWS_SECRET_ACCESS_KEY", CANARY, 1);
	setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null/none", 1);
	setenv("AWS_CONFIG_FILE", "/dev/null/none", 1);
	unsetenv("AWS_SESSION_TOKEN");
	unsetenv("AWS_PROFILE");
	unsetenv("AWS_REGION");
	ckpt_log_to(keep_log, CKPT_LOG_DEBUG);
	now_ns = NOW_NS;
	ckpt_sys.now_ns = now;
	open_at("s3://bucket/run");
}

static void teardown(void)
{
	ckpt_objects_close(s3);
	httpd_stop(&server);
	ck_assert_ptr_null(strstr(logged, CANARY));
	ck_assert_ptr_null(strstr(told, CANARY));
}

static void see(void *arg, const struct ckpt_finding *f)
{
	static const char *const words[] = {"ok", "WARN", "FAIL"};
	size_t len = strlen(told);

	(void)arg;
	failed += f->verdict == CKPT_FINDING_FAIL;
	warned += f->verdict == CKPT_FINDING_WARN;
	snprintf(told + len, sizeof(told) - len, "%s %s: %s%s%s\n", words[f->verdict], f->name, f->detail,
		 f->hint ? " | " : "", f->hint ? f->hint : "");
}

static int describe_whatever_stays(void)
{
	int rc;

	*told = '\0';
	failed = warned = 0;
	rights = (struct ckpt_rights){0};
	httpd_step(&server);
	rc = ckpt_objects_describe(s3, see, NULL, &rights);
	httpd_step(&server);
	return rc;
}

// Nothing stays of all that was tried.
static int describe(void)
{
	int rc = describe_whatever_stays();

	ck_assert_uint_eq(bucket.objects, 0);
	ck_assert_uint_eq(bucket.begun, 0);
	return rc;
}

static void assert_told(const char *line)
{
	ck_assert_msg(strstr(told, line) != NULL, "'%s' is not in:\n%s", line, told);
}

START_TEST(a_bucket_that_has_all_is_well)
{
	bucket.lifecycle = "<LifecycleConfiguration><Rule><ID>u</ID><Status>Enabled</Status><Filter><Prefix/></Filter>"
			   "<AbortIncompleteMultipartUpload><DaysAfterInitiation>3</DaysAfterInitiation>"
			   "</AbortIncompleteMultipartUpload></Rule></LifecycleConfiguration>";
	bucket.uploads = "<ListMultipartUploadsResult/>";
	ck_ok(describe());
	ck_assert_msg(!failed && !warned, "%s", told);
	ck_assert(rights.list && rights.get && rights.put && rights.remove);
	ck_assert_uint_eq(bucket.puts, 1);
	ck_assert_uint_eq(bucket.conditional, 1);
	assert_told(" answers as Small Bucket, region us-east-1\n"); // without what a terminal would obey
	assert_told("ok server_clock: 0 s off");
	assert_told("ok credentials: from the environment, without an end\n");
	assert_told("ok checksums: checked: bytes with the SHA-256 of others are refused (400 BadDigest)\n");
	assert_told(
		"ok lifecycle: no rule removes objects of this store; unfinished uploads are given up after 3 days\n");
	assert_told("ok versioning: off");
	assert_told("ok object_lock: off");
	assert_told("ok uploads: none");
}
END_TEST

START_TEST(each_right_that_is_refused_is_told_and_the_others_are_tried)
{
	bucket.no_put = true;
	ck_ok(describe());
	ck_assert(!rights.put && rights.remove && rights.get && rights.list && !failed);
	assert_told("WARN put: refused (s3:PutObject): this node can only read: mount it with -o ro | allow "
		    "s3:PutObject on "
		    "arn:aws:s3:::bucket/run/*\n");
	assert_told("WARN checksums: not tried");
	bucket = (struct bucket){
		.no_delete = true, .list = PAGE, .versioning = "", .lock = "", .lifecycle = "", .uploads = ""};
	ck_ok(describe());
	ck_assert(!rights.remove && !rights.put && !failed);
	ck_assert_uint_eq(bucket.puts, 0); // it could not be removed
	assert_told("WARN delete: refused (s3:DeleteObject)");
	assert_told("WARN put: not tried: it could not be removed again\n");
	bucket.no_delete = false;
	bucket.no_abort = true;
	ck_ok(describe());
	assert_told("WARN abort_upload: refused (s3:AbortMultipartUpload)");
	bucket.no_list = bucket.no_get = true;
	ck_ok(describe());
	assert_told("FAIL list: refused (s3:ListBucket): no mount can find the end of the log | allow s3:ListBucket on "
		    "arn:aws:s3:::bucket\n");
	assert_told("FAIL get: refused (s3:GetObject)");
	ck_assert_uint_eq(failed, 2);
}
END_TEST

// loses_answers: the put may have been done, too.
START_TEST(an_object_that_stays_is_told)
{
	bucket.keeps = true;
	bucket.loses_answers = _i;
	ck_ok(describe_whatever_stays());
	ck_assert_uint_eq(bucket.objects, 1);
	assert_told("WARN scratch: run/probe/");
	assert_told(" may still be there: DELETE probe/");
	assert_told("500 InternalError | remove it: ");
	ck_assert(rights.put == !_i);
	bucket.keeps = false;
	bucket.objects = 0;
	ck_ok(describe());
	ck_assert_ptr_null(strstr(told, "scratch"));
}
END_TEST

START_TEST(a_server_that_takes_damaged_bytes_fails)
{
	bucket.takes_damaged = true;
	ck_ok(describe());
	assert_told("FAIL checksums: not checked");
	ck_assert_uint_eq(failed, 1);
	bucket.takes_damaged = false;
	ck_ok(describe());
	assert_told("WARN uploads: not known: the server does not say\n"); // and not what was refused before
}
END_TEST

static const struct {
	const char *lifecycle, *told;
} rules[] = {
#define RULE(inner)                                                                                                    \
	"<LifecycleConfiguration><Rule><ID>the rule</ID><Status>Enabled</Status>" inner                                \
	"</Rule></LifecycleConfiguration>"
#define DAYS "<Expiration><Days>30</Days></Expiration>"
#define FILTER(prefix) "<Filter><Prefix>" prefix "</Prefix></Filter>"
	{RULE(FILTER("") DAYS), "FAIL lifecycle: the rule 'the rule' removes objects of this store after 30 days, "
				"those with the prefix '' | "},
	{RULE("<Prefix>ru</Prefix>" DAYS), "FAIL lifecycle: "},
	{RULE(FILTER("run/") DAYS), "FAIL lifecycle: "},
	{RULE(FILTER("run/packs/ab") DAYS), "FAIL lifecycle: "},
	{RULE(FILTER("run/store") "<Expiration><Date>2027-01-01T00:00:00Z</Date></Expiration>"), "FAIL lifecycle: "},
	{RULE("<Filter><And><Prefix>run/</Prefix><ObjectSizeGreaterThan>9</ObjectSizeGreaterThan></And></Filter>" DAYS),
	 "FAIL lifecycle: "},
	{RULE(FILTER("run/") "<Transition><Days>1</Days><StorageClass>DEEP_ARCHIVE</StorageClass></Transition>"
			     "<Transition><Days>0</Days><StorageClass>STANDARD_IA</StorageClass></Transition>"),
	 "FAIL lifecycle: the rule 'the rule' archives objects"},
	{RULE(FILTER("run/") "<Transition><Days>1</Days><StorageClass>GLACIER_IR</StorageClass></Transition>"),
	 "WARN lifecycle: no rule removes"},
	{RULE(FILTER("run/probe/") DAYS), "WARN lifecycle: no rule removes"},
	{RULE(FILTER("run4/") DAYS), "WARN lifecycle: no rule removes"},
	{RULE(FILTER("other/") DAYS), "WARN lifecycle: no rule removes"},
	{RULE("<Filter><And><Prefix>run/</Prefix><Tag><Key>Prefix</Key><Value>v</Value></Tag></And></Filter>" DAYS),
	 "WARN lifecycle: no rule removes"},
	{RULE(FILTER("run/") "<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>"),
	 "WARN lifecycle: no rule removes"},
	{RULE("<Status>Disabled</Status>" FILTER("") DAYS), "WARN lifecycle: no rule removes"},
	{RULE(FILTER("run/packs/") "<AbortIncompleteMultipartUpload><DaysAfterInitiation>3</DaysAfterInitiation>"
				   "</AbortIncompleteMultipartUpload>"),
	 "WARN lifecycle: no rule removes objects of this store, and none gives up"},
	{"", "WARN lifecycle: no rule removes"},
	{"<NotWhatWasAsked/>", "WARN lifecycle: no rule removes"},
	{"<!DOCTYPE a><LifecycleConfiguration/>", "WARN lifecycle: not known: the LifecycleConfiguration of "},
	{RULE(FILTER("run/") "<Expiration><Days>many</Days></Expiration>"), "WARN lifecycle: not known: the "},
	{RULE(FILTER("run/") DAYS "</Rule><Rule><Expiration><Days>many</Days></Expiration>"),
	 "FAIL lifecycle: the rule 'the rule' removes"},
};

START_TEST(a_rule_that_takes_objects_of_the_store_fails)
{
	bucket.lifecycle = rules[_i].lifecycle;
	ck_ok(describe());
	assert_told(rules[_i].told);
}
END_TEST

START_TEST(what_deleted_objects_go_on_costing_is_told)
{
	bucket.versioning = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
	bucket.lock = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention>"
		      "<Mode>COMPLIANCE</Mode><Days>30</Days></DefaultRetention></Rule></ObjectLockConfiguration>";
	bucket.uploads =
		"<ListMultipartUploadsResult><Upload><Key>run/packs/p</Key><UploadId>a</UploadId>"
		"<Initiated>2026-11-20T10:00:00Z</Initiated></Upload><Upload><Key>run/m/p</Key><UploadId>b"
		"</UploadId><Initiated>2026-11-27T10:00:00Z</Initiated></Upload><Upload><Key>other/packs/p</Key>"
		"<UploadId>c</UploadId><Initiated>2020-11-27T10:00:00Z</Initiated></Upload>"
		"</ListMultipartUploadsResult>";
	ck_ok(describe());
	assert_told("WARN versioning: Enabled: what is deleted stays as an old version, and is paid for | ");
	assert_told("WARN object_lock: on: each object stays for 30 days (COMPLIANCE), deleted or not | ");
	assert_told("WARN uploads: 2 unfinished, the oldest of 2026-11-20T10:00:00Z | ");
	bucket.lifecycle = RULE(FILTER("run/") "<NoncurrentVersionExpiration><NoncurrentDays>5</NoncurrentDays></"
					       "NoncurrentVersionExpiration>");
	bucket.lock =
		"<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled></ObjectLockConfiguration>";
	ck_ok(describe());
	assert_told("ok versioning: Enabled: what is deleted is paid for 5 days more\n");
	assert_told("ok object_lock: on, without a default retention\n");
	ck_assert_uint_eq(failed, 0);
}
END_TEST

START_TEST(settings_that_may_not_be_read_are_warnings)
{
	bucket.no_settings = true;
	ck_ok(describe());
	assert_told("WARN versioning: not known: no right to ask (s3:GetBucketVersioning)");
	assert_told("WARN object_lock: not known: no right to ask (s3:GetBucketObjectLockConfiguration)");
	assert_told("WARN lifecycle: not known: no right to ask (s3:GetLifecycleConfiguration)");
	assert_told("WARN uploads: not known: no right to ask (s3:ListBucketMultipartUploads)");
	ck_assert_uint_eq(failed, 0);
}
END_TEST

static const struct {
	const char *status;
	bool is_none;
} unset[] = {
	{"400 x", true},  {"404 x", true},  {"405 x", true},  {"501 x", true},  {"408 x", false},
	{"409 x", false}, {"410 x", false}, {"429 x", false}, {"500 x", false}, {"503 x", false},
};

START_TEST(a_server_that_does_not_say_a_setting_is_no_server_without_it)
{
	bucket.unset = unset[_i].status;
	ck_ok(describe());
	assert_told(unset[_i].is_none ? "WARN lifecycle: no rule removes"
				      : "WARN lifecycle: not known: GET the bucket at ");
	assert_told(unset[_i].is_none ? "ok versioning: off" : "WARN versioning: not known: GET the bucket at ");
	assert_told(unset[_i].is_none ? "ok object_lock: off" : "WARN object_lock: not known: GET the bucket at ");
}
END_TEST

START_TEST(a_setting_that_cannot_be_read_is_not_known)
{
	bucket.versioning = "<VersioningConfiguration><Status>Enabled</VersioningConfiguration>";
	bucket.lock = "<ObjectLockConfiguration><Days>12345678901234567</Days></ObjectLockConfiguration>";
	ck_ok(describe());
	assert_told("WARN versioning: not known: the VersioningConfiguration of ");
	assert_told("WARN object_lock: not known: the ObjectLockConfiguration of ");
}
END_TEST

START_TEST(a_clock_that_is_off_is_told_in_seconds)
{
	now_ns = NOW_NS - INT64_C(125000000000);
	ck_ok(describe());
	assert_told("WARN server_clock: the server is 125 s ahead of this machine | ");
	now_ns = NOW_NS + INT64_C(900000000000);
	ck_ok(describe());
	assert_told(
		"WARN server_clock: the server is 899 s behind this machine | "); // the Date has no parts of a second
	now_ns = NOW_NS + INT64_C(60000000000);
	ck_ok(describe());
	assert_told("ok server_clock: -59 s off");
}
END_TEST

START_TEST(keys_that_end_are_told_with_their_end)
{
	ckpt_objects_close(s3);
	setenv("AWS_SESSION_TOKEN", CANARY, 1);
	open_at("s3://bucket/run");
	ck_ok(describe());
	assert_told("WARN credentials: from the environment, with a session token that ends at some time | a mount "
		    "cannot renew");
	ckpt_objects_close(s3);
	unsetenv("AWS_SESSION_TOKEN");
	unsetenv("AWS_ACCESS_KEY_ID");
	setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
	open_at("s3://bucket/run");
	ck_error(describe(), EACCES);
	assert_told("FAIL credentials: no keys: ");
	ck_assert_uint_eq(failed + warned, 1);
}
END_TEST

static const struct {
	const char *list, *told;
} answers[] = {
	{"<html>hello</html>", "FAIL server: "},
	{"hello", "FAIL server: "},
	{"", "FAIL server: "},
};

START_TEST(another_kind_of_server_is_told_in_one_line)
{
	bucket.list = answers[_i].list;
	ck_error(describe(), EIO);
	assert_told(answers[_i].told);
	assert_told("does not speak S3 | look at endpoint=");
	ck_assert_uint_eq(failed, 1);
	ck_assert_ptr_eq(strchr(told, '\n'), told + strlen(told) - 1);
}
END_TEST

START_TEST(a_server_that_is_not_there_is_told_in_one_line)
{
	httpd_stop(&server);
	ck_error(describe(), EAGAIN);
	assert_told("FAIL server: GET the bucket at 127.0.0.1:");
	ck_assert_uint_eq(failed, 1);
	ck_assert_ptr_eq(strchr(told, '\n'), told + strlen(told) - 1);
	httpd_start(&server);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("s3_describe");
	TCase *tcase = tcase_create("describe");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_bucket_that_has_all_is_well);
	tcase_add_test(tcase, each_right_that_is_refused_is_told_and_the_others_are_tried);
	tcase_add_loop_test(tcase, an_object_that_stays_is_told, 0, 2);
	tcase_add_test(tcase, a_server_that_takes_damaged_bytes_fails);
	tcase_add_loop_test(tcase, a_rule_that_takes_objects_of_the_store_fails, 0, ARRAY_LEN(rules));
	tcase_add_test(tcase, what_deleted_objects_go_on_costing_is_told);
	tcase_add_test(tcase, settings_that_may_not_be_read_are_warnings);
	tcase_add_loop_test(tcase, a_server_that_does_not_say_a_setting_is_no_server_without_it, 0, ARRAY_LEN(unset));
	tcase_add_test(tcase, a_setting_that_cannot_be_read_is_not_known);
	tcase_add_test(tcase, a_clock_that_is_off_is_told_in_seconds);
	tcase_add_test(tcase, keys_that_end_are_told_with_their_end);
	tcase_add_loop_test(tcase, another_kind_of_server_is_told_in_one_line, 0, ARRAY_LEN(answers));
	tcase_add_test(tcase, a_server_that_is_not_there_is_told_in_one_line);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}
