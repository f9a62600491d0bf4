#include "backends/s3_describe.h"

#include "backends/s3_parts.h"
#include "backends/s3_sum.h"
#include "backends/s3_xml.h"
#include "core/base/clock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/base/uuid.h"

#include <inttypes.h>
#include <stdio.h>

#define SKEW_S_MAX 60
#define SOON_NS INT64_C(3600000000000)
#define SECOND_NS INT64_C(1000000000)
#define SCRATCH_MAX (sizeof("probe/") + CKPT_UUID_LEN)
#define SCRATCH "ckptfs doctor"

// --- Telling ------------------------------------------------------------------------------------------------------------

void ckpt_s3_report(const struct ckpt_s3_report *report, const char *name, enum ckpt_finding_verdict verdict,
		    const char *hint, const char *format, ...)
{
	char text[2 * CKPT_OBJECTS_WHY_MAX];
	va_list args;

	va_start(args, format);
	ckpt_s3_text(text, sizeof(text), format, args);
	va_end(args);
	report->fn(report->arg, &(struct ckpt_finding){.name = name, .verdict = verdict, .detail = text, .hint = hint});
}

void ckpt_s3_newest(struct ckpt_s3 *s3, char ret_why[CKPT_OBJECTS_WHY_MAX])
{
	LOCK_SCOPE(&s3->lock);
	strcpy(ret_why, s3->why);
	*s3->why = '\0'; // a key that is not there is none, and leaves the one before
}

static void report_why(const struct ckpt_s3_report *report, const char *name, enum ckpt_finding_verdict verdict,
		       const char *hint)
{
	char why[CKPT_OBJECTS_WHY_MAX];

	ckpt_s3_newest(report->s3, why);
	ckpt_s3_report(report, name, verdict, hint, "%s", *why ? why : "the server has nothing of the kind");
}

// --- The keys -----------------------------------------------------------------------------------------------------------

// The keys themselves are not told of, nor their ids.
static void report_end(const struct ckpt_s3_report *report, const char *source, const struct ckpt_keys *keys)
{
	int64_t left_ns = ckpt_time_between(ckpt_sys.now_ns(), keys->expires_ns);
	char end[CKPT_TIME_LEN + 1];

	ckpt_time_format(keys->expires_ns, end);
	if (!keys->expires_ns && *keys->token)
		ckpt_s3_report(report, "credentials", CKPT_FINDING_WARN,
			       "a mount cannot renew them: use a profile with role_arn, or a metadata service",
			       "from %s, with a session token that ends at some time", source);
	else if (!keys->expires_ns)
		ckpt_s3_report(report, "credentials", CKPT_FINDING_OK, NULL, "from %s, without an end", source);
	else
		ckpt_s3_report(report, "credentials", left_ns < SOON_NS ? CKPT_FINDING_WARN : CKPT_FINDING_OK,
			       left_ns < SOON_NS ? "a mount asks their source for new ones five minutes before" : NULL,
			       "from %s, until %.19sZ", source, end);
}

static int get_keys(const struct ckpt_s3_report *report, struct ckpt_keys *ret_keys)
{
	char why[CKPT_CREDENTIALS_WHY_MAX];
	int rc = report->s3->credentials ? ckpt_credentials_get(report->s3->credentials, ret_keys, why) : 0;

	if (rc)
		ckpt_s3_report(report, "credentials", CKPT_FINDING_FAIL,
			       "see ACCESS in ckptfs-remote(7): the environment, a profile, a metadata service", "%s",
			       why);
	return rc;
}

static void report_keys(const struct ckpt_s3_report *report, const struct ckpt_keys *keys)
{
	char source[CKPT_CREDENTIALS_SOURCE_MAX];

	if (!report->s3->credentials) {
		ckpt_s3_report(report, "credentials", CKPT_FINDING_OK, NULL,
			       "none: requests are not signed (no_sign_request)");
		return;
	}
	ckpt_credentials_source(report->s3->credentials, source);
	report_end(report, source, keys);
}

// --- The server ---------------------------------------------------------------------------------------------------------

static bool is_of_keys(const char *code)
{
	static const char *const codes[] = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken",
					    "InvalidToken",       "TokenRefreshRequired",  "InvalidClientTokenId"};

	for (size_t i = 0; i < ARRAY_LEN(codes); i++)
		if (!strcmp(code, codes[i]))
			return true;
	return false;
}

static bool is_page(const struct ckpt_s3_request *r)
{
	return !ckpt_s3_fields_parse(r->text.data ? r->text.data : "", r->text.len, "ListBucketResult", NULL, 0);
}

// A list of one key is what every mount may do. A refused one is an answer, too.
static int ask_list(struct ckpt_s3 *s3, struct ckpt_s3_request *r)
{
	char prefix[3 * CKPT_S3_PREFIX_MAX + 4], query[sizeof(prefix) + 64];
	int rc;

	if (!ckpt_sign_encode(s3->config.prefix, false, prefix, sizeof(prefix)))
		return -EFBIG;
	snprintf(query, sizeof(query), "encoding-type=url&list-type=2&max-keys=1&prefix=%s", prefix);
	r->query = query;
	rc = ckpt_s3_request_run(r);
	r->query = NULL;
	return rc;
}

static void report_server(const struct ckpt_s3_report *report, const struct ckpt_s3_request *r)
{
	const struct ckpt_s3_config *c = &report->s3->config;
	char name[128];

	ckpt_http_header(&r->call.answer, "server", name, sizeof(name));
	ckpt_s3_report(report, "server", CKPT_FINDING_OK, NULL, "%s://%s answers%s%s, region %s",
		       c->is_http ? "http" : "https", c->host, *name ? " as " : "", name, c->region);
}

// Of a whole second at least: the server says no parts of one.
static void report_clock(const struct ckpt_s3_report *report, const struct ckpt_s3_request *r)
{
	char date[64];
	int64_t theirs_ns, ahead_s;

	ckpt_http_header(&r->call.answer, "date", date, sizeof(date));
	theirs_ns = ckpt_http_time_ns(date);
	if (!theirs_ns) {
		ckpt_s3_report(report, "server_clock", CKPT_FINDING_OK, NULL, "the server does not say its time");
		return;
	}
	ahead_s = ckpt_time_between(ckpt_sys.now_ns(), theirs_ns + SECOND_NS / 2) / SECOND_NS;
	if (ahead_s <= SKEW_S_MAX && ahead_s >= -SKEW_S_MAX)
		ckpt_s3_report(report, "server_clock", CKPT_FINDING_OK, NULL, "%" PRId64 " s off this machine's",
			       ahead_s);
	else
		ckpt_s3_report(report, "server_clock", CKPT_FINDING_WARN,
			       "let a time service keep both clocks: signatures and times of steps depend on them",
			       "the server is %" PRId64 " s %s this machine", ahead_s < 0 ? -ahead_s : ahead_s,
			       ahead_s < 0 ? "behind" : "ahead of");
}

// 0: it can be asked for more.
static int judge_server(const struct ckpt_s3_report *report, const struct ckpt_s3_request *r, int rc,
			const struct ckpt_keys *keys)
{
	bool is_no_bucket = !strcmp(r->code, "NoSuchBucket");

	if (!r->status) {
		report_why(report, "server", CKPT_FINDING_FAIL, "look at endpoint=, the network and the certificate");
		return rc ? rc : -EIO;
	}
	if (rc ? rc == -ENOENT && !*r->code : !is_page(r)) {
		ckpt_s3_report(report, "server", CKPT_FINDING_FAIL,
			       "look at endpoint=", "%s answers, but does not speak S3", report->s3->config.host);
		return -EIO;
	}
	if (rc && rc != -EACCES && !is_no_bucket) {
		report_why(report, "server", CKPT_FINDING_FAIL, "look at endpoint= and region=");
		return rc;
	}
	report_server(report, r);
	report_clock(report, r);
	if (is_of_keys(r->code)) {
		report_why(report, "credentials", CKPT_FINDING_FAIL,
			   "look at the access key, the secret and the profile");
		return rc;
	}
	report_keys(report, keys);
	if (!is_no_bucket)
		return 0;
	ckpt_s3_report(report, "bucket", CKPT_FINDING_FAIL,
		       "make it, or look at the URL, endpoint= and region=: ckptfs never makes a bucket",
		       "there is no bucket %s at %s", report->s3->config.bucket, report->s3->config.host);
	return -ENOENT;
}

// --- Rights -------------------------------------------------------------------------------------------------------------

static const struct right {
	const char *name, *action, *without;
	bool of_bucket;
	enum ckpt_finding_verdict verdict; // where it is refused
} list = {"list", "s3:ListBucket", "no mount can find the end of the log", true, CKPT_FINDING_FAIL},
  get = {"get", "s3:GetObject", "nothing can be read", false, CKPT_FINDING_FAIL},
  put = {"put", "s3:PutObject", "this node can only read: mount it with -o ro", false, CKPT_FINDING_WARN},
  delete = {"delete", "s3:DeleteObject", "garbage is left to other nodes, and objects of probes stay", false,
	    CKPT_FINDING_WARN},
  abort_upload = {"abort_upload", "s3:AbortMultipartUpload", "unfinished uploads stay, and are paid for", false,
		  CKPT_FINDING_WARN};

// True: it is there.
static bool report_right(const struct ckpt_s3_report *report, const struct right *right, int rc)
{
	const struct ckpt_s3_config *c = &report->s3->config;
	char hint[CKPT_OBJECTS_WHY_MAX + 256];

	if (!rc) {
		ckpt_s3_report(report, right->name, CKPT_FINDING_OK, NULL, "allowed (%s)", right->action);
		return true;
	}
	snprintf(hint, sizeof(hint), "allow %s on arn:aws:s3:::%s%s%s%s", right->action, c->bucket,
		 right->of_bucket ? "" : "/", right->of_bucket ? "" : c->prefix, right->of_bucket ? "" : "*");
	if (rc == -EACCES)
		ckpt_s3_report(report, right->name, right->verdict, hint, "refused (%s): %s", right->action,
			       right->without);
	else
		report_why(report, right->name, CKPT_FINDING_FAIL, NULL);
	return false;
}

static void report_untried(const struct ckpt_s3_report *report, const char *name, const char *why)
{
	ckpt_s3_report(report, name, CKPT_FINDING_WARN, NULL, "not tried: %s", why);
}

static int make_scratch(char ret_key[SCRATCH_MAX])
{
	char uuid[CKPT_UUID_LEN + 1];
	int rc = ckpt_uuid_make(uuid);

	if (!rc)
		snprintf(ret_key, SCRATCH_MAX, "probe/%s", uuid);
	return rc;
}

// As if the bytes had been damaged on their way: every sum of them is that of others.
static int put_damaged(struct ckpt_s3 *s3, const char *key, int *ret_status, char ret_code[CKPT_S3_CODE_MAX])
{
	CLEANUP(ckpt_s3_request_free) struct ckpt_s3_request *r = ckpt_s3_request_new(s3, "PUT", key);
	uint8_t sha256[CKPT_SHA256_LEN];
	char sum[CKPT_S3_SUM_MAX];
	int rc;

	if (!r)
		return -ENOMEM;
	ckpt_sha256(SCRATCH, strlen(SCRATCH), sha256);
	ckpt_hex(sha256, CKPT_SHA256_LEN, r->sha256);
	ckpt_s3_sum_text(sha256, sum);
	r->body = "ckptfs Doctor";
	r->body_len = strlen(SCRATCH);
	r->changes = true;
	rc = ckpt_s3_request_header(r, "x-amz-sdk-checksum-algorithm: SHA256");
	if (!rc)
		rc = ckpt_s3_request_header(r, "x-amz-checksum-sha256: %s", sum);
	if (!rc)
		rc = ckpt_s3_put_headers(r);
	if (!rc)
		rc = ckpt_s3_request_run(r);
	*ret_status = r->status;
	strcpy(ret_code, r->code);
	return rc;
}

static void try_checksums(const struct ckpt_s3_report *report, const char *key)
{
	char code[CKPT_S3_CODE_MAX] = "";
	int status = 0, rc = put_damaged(report->s3, key, &status, code);

	if (!rc)
		ckpt_s3_report(report, "checksums", CKPT_FINDING_FAIL, "take another server, or one with TLS at least",
			       "not checked: the server took bytes that are not those of their SHA-256");
	else if (status / 100 == 4)
		ckpt_s3_report(report, "checksums", CKPT_FINDING_OK, NULL,
			       "checked: bytes with the SHA-256 of others are refused (%d %s)", status, code);
	else
		report_why(report, "checksums", CKPT_FINDING_WARN, NULL);
}

static void clear_scratch(const struct ckpt_s3_report *report, const char *key)
{
	int rc = ckpt_objects_remove(&report->s3->base, key);
	char why[CKPT_OBJECTS_WHY_MAX];

	if (!rc || rc == -ENOENT)
		return;
	ckpt_s3_newest(report->s3, why);
	ckpt_s3_report(report, "scratch", CKPT_FINDING_WARN, "remove it: nothing needs it, and it is paid for",
		       "%s%s may still be there: %s", report->s3->config.prefix, key, *why ? why : strerror(-rc));
}

// The object is there where it may be removed again. Its put is the ordinary one, with the condition.
static void try_changes(const struct ckpt_s3_report *report, const char *key, struct ckpt_rights *rights)
{
	static const char unremovable[] = "it could not be removed again", unput[] = "there is no right to put";
	struct ckpt_objects *o = &report->s3->base;
	int rc;

	if (!rights->remove) {
		report_untried(report, put.name, unremovable);
		report_untried(report, "checksums", unremovable);
		report_untried(report, abort_upload.name, unremovable);
		return;
	}
	rc = ckpt_objects_put(o, key, SCRATCH, strlen(SCRATCH), NULL);
	rights->put = report_right(report, &put, rc);
	if (!rights->put) {
		if (rc != -EACCES) // its outcome may be unknown
			clear_scratch(report, key);
		report_untried(report, "checksums", unput);
		report_untried(report, abort_upload.name, unput);
		return;
	}
	(void)ckpt_objects_remove(o, key); // where it fails, the one below tells of it
	try_checksums(report, key);
	clear_scratch(report, key);
	rc = ckpt_s3_try_abort(report->s3, key);
	(void)report_right(report, &abort_upload, rc == -ENOENT ? 0 : rc);
}

static int try_get(struct ckpt_s3 *s3)
{
	char byte;
	size_t len;
	int rc = ckpt_objects_get(&s3->base, CKPT_OBJECT_IDENTITY, 0, &byte, 1, &len, NULL);

	return rc == -ENOENT ? 0 : rc;
}

static int try_rights(const struct ckpt_s3_report *report, int list_rc, struct ckpt_rights *ret_rights)
{
	char key[SCRATCH_MAX];
	int rc = make_scratch(key);

	if (rc)
		return rc;
	*ret_rights = (struct ckpt_rights){0};
	ret_rights->list = report_right(report, &list, list_rc);
	ret_rights->get = report_right(report, &get, try_get(report->s3));
	rc = ckpt_objects_remove(&report->s3->base, key); // there is nothing
	ret_rights->remove = report_right(report, &delete, rc == -ENOENT ? 0 : rc);
	try_changes(report, key, ret_rights);
	return 0;
}

// --- All of it ----------------------------------------------------------------------------------------------------------

static int describe(const struct ckpt_s3_report *report, const struct ckpt_keys *keys, struct ckpt_rights *ret_rights)
{
	CLEANUP(ckpt_s3_request_free) struct ckpt_s3_request *r = ckpt_s3_request_new(report->s3, "GET", NULL);
	int list_rc, rc;

	if (!r)
		return -ENOMEM;
	list_rc = ask_list(report->s3, r);
	rc = judge_server(report, r, list_rc, keys);
	if (!rc)
		rc = try_rights(report, list_rc, ret_rights);
	if (!rc)
		ckpt_s3_describe_bucket(report);
	return rc;
}

int ckpt_s3_describe(struct ckpt_objects *o, ckpt_objects_finding_fn *fn, void *arg, struct ckpt_rights *ret_rights)
{
	struct ckpt_s3_report report = {(struct ckpt_s3 *)o, fn, arg};
	struct ckpt_keys keys = {0};
	int rc = get_keys(&report, &keys);

	if (!rc)
		rc = describe(&report, &keys, ret_rights);
	ckpt_keys_wipe(&keys);
	return rc;
}
