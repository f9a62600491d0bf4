#include "backends/s3_request.h"

#include "backends/s3_xml.h"
#include "core/base/log.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#include <inttypes.h>
#include <stdio.h>

#define ERROR_BYTES_MAX ((size_t)64 << 10)
#define HASH_BYTES ((size_t)256 << 10) // of a source at once
#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

void ckpt_s3_text(char *ret_text, size_t size, const char *format, va_list args)
{
	vsnprintf(ret_text, size, format, args);
	for (char *c = ret_text; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = ' ';
}

void ckpt_s3_say(struct ckpt_s3 *s3, const char *format, ...)
{
	char text[CKPT_OBJECTS_WHY_MAX];
	va_list args;

	va_start(args, format);
	ckpt_s3_text(text, sizeof(text), format, args);
	va_end(args);
	ckpt_log(CKPT_LOG_DEBUG, "s3: %s", text);
	LOCK_SCOPE(&s3->lock);
	strcpy(s3->why, text);
}

bool ckpt_s3_may_pass(int rc)
{
	return rc == -EAGAIN || rc == -EIO || rc == -ETIMEDOUT;
}

// --- The making ---------------------------------------------------------------------------------------------------------

struct ckpt_s3_request *ckpt_s3_request_new(struct ckpt_s3 *s3, const char *method, const char *key)
{
	struct ckpt_s3_request *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->s3 = s3;
	r->method = method;
	r->key = key;
	return r;
}

static void drop_lines(struct ckpt_s3_request *r, size_t from)
{
	for (size_t i = from; i < r->line_count; i++) {
		explicit_bzero(r->owned[i], strlen(r->owned[i])); // a token may be in it
		free(r->owned[i]);
		r->lines[i] = r->owned[i] = NULL;
	}
	r->line_count = MIN(r->line_count, from);
}

static void drop_keys(struct ckpt_s3_request *r)
{
	if (r->keys)
		ckpt_keys_wipe(r->keys);
	free(TAKE_PTR(r->keys));
}

void ckpt_s3_request_free(struct ckpt_s3_request **at)
{
	struct ckpt_s3_request *r = *at;

	if (!r)
		return;
	drop_lines(r, 0);
	drop_keys(r);
	free(r->text.data);
	free(r);
}

static int add_line(struct ckpt_s3_request *r, const char *format, va_list args)
{
	char *line;

	if (r->line_count == CKPT_SIGN_HEADERS_MAX)
		return -E2BIG;
	if (vasprintf(&line, format, args) < 0)
		return -ENOMEM;
	r->lines[r->line_count] = r->owned[r->line_count] = line;
	r->line_count++;
	return 0;
}

__attribute__((format(printf, 2, 3))) static int add(struct ckpt_s3_request *r, const char *format, ...)
{
	va_list args;
	int rc;

	va_start(args, format);
	rc = add_line(r, format, args);
	va_end(args);
	return rc;
}

int ckpt_s3_request_header(struct ckpt_s3_request *r, const char *format, ...)
{
	va_list args;
	int rc;

	va_start(args, format);
	rc = add_line(r, format, args);
	va_end(args);
	r->added = r->line_count;
	return rc;
}

// The path, which is signed, stands at ret_path in the URL.
static int make_url(struct ckpt_s3_request *r, const char **ret_path)
{
	const struct ckpt_s3_config *c = &r->s3->config;
	char encoded[3200], whole[CKPT_S3_PREFIX_MAX + CKPT_OBJECT_KEY_MAX + 1];
	int at = snprintf(r->url, sizeof(r->url), "%s://%s", c->is_http ? "http" : "https", c->host), path = at;

	snprintf(whole, sizeof(whole), "%s%s", r->key ? c->prefix : "", r->key ? r->key : "");
	if (!ckpt_sign_encode(whole, true, encoded, sizeof(encoded)))
		return -EFBIG;
	at += snprintf(r->url + at, sizeof(r->url) - (size_t)at, "/%s%s%s", c->path_style ? c->bucket : "",
		       c->path_style && *encoded ? "/" : "", encoded);
	*ret_path = r->url + path;
	if (r->query)
		at += snprintf(r->url + at, sizeof(r->url) - (size_t)at, "?%s", r->query);
	return (size_t)at < sizeof(r->url) ? 0 : -EFBIG;
}

static int sign(struct ckpt_s3_request *r, const char *path, const char *time)
{
	char header[CKPT_SIGN_MAX], path_only[sizeof(r->url)];
	struct ckpt_sign what = {.method = r->method,
				 .query = r->query ? r->query : "",
				 .headers = r->lines,
				 .payload = r->sha256,
				 .time = time,
				 .region = r->s3->config.region,
				 .service = "s3"};
	int rc = 0;

	snprintf(path_only, sizeof(path_only), "%.*s", (int)strcspn(path, "?"), path);
	what.path = path_only;
	if (*r->keys->token)
		rc = add(r, "x-amz-security-token: %s", r->keys->token);
	if (!rc)
		rc = ckpt_sign(r->keys, &what, header);
	return rc ? rc : add(r, "%s", header);
}

static int get_keys(struct ckpt_s3_request *r)
{
	char why[CKPT_CREDENTIALS_WHY_MAX];
	int rc;

	drop_keys(r);
	r->keys = calloc(1, sizeof(*r->keys));
	if (!r->keys)
		return -ENOMEM;
	if (!r->s3->credentials)
		return 0;
	rc = ckpt_credentials_get(r->s3->credentials, r->keys, why);
	if (rc)
		ckpt_s3_say(r->s3, "%s", why);
	return rc == -ENOTCONN ? -EAGAIN : rc;
}

static int add_lines(struct ckpt_s3_request *r, const char *path)
{
	char time[CKPT_SIGN_TIME_MAX];
	int64_t skew_ns;
	int rc;

	ckpt_lock_take(&r->s3->lock);
	skew_ns = r->s3->skew_ns;
	ckpt_lock_drop(&r->s3->lock);
	ckpt_sign_time(ckpt_sys.now_ns() + skew_ns, time);
	rc = add(r, "host: %s", r->s3->config.host);
	if (!rc)
		rc = add(r, "x-amz-content-sha256: %s", r->sha256);
	if (!rc)
		rc = add(r, "x-amz-date: %s", time);
	if (!rc && r->s3->config.requester_pays)
		rc = add(r, "x-amz-request-payer: requester");
	return !rc && *r->keys->id ? sign(r, path, time) : rc;
}

static int take(void *arg, const struct ckpt_http_answer *answer, const void *data, size_t len)
{
	struct ckpt_s3_request *r = arg;

	if (answer->status / 100 == 2 && r->take)
		return r->take(r->arg, answer, data, len);
	if (answer->status / 100 != 2) { // more than the start of an error is not looked at
		r->text.max = ERROR_BYTES_MAX;
		len = MIN(len, r->text.max - r->text.len);
	}
	return ckpt_http_take_text(&r->text, answer, data, len);
}

static int hash_source(const struct ckpt_source *source, uint8_t *ret_sha256)
{
	CLEANUP_FREE uint8_t *buf = malloc(HASH_BYTES);
	struct ckpt_sha256 sum;
	int rc = buf ? 0 : -ENOMEM;

	ckpt_sha256_begin(&sum);
	for (uint64_t at = 0; at < source->bytes && !rc; at += HASH_BYTES) {
		size_t len = (size_t)MIN(source->bytes - at, (uint64_t)HASH_BYTES);

		rc = ckpt_source_read(source, at, buf, len);
		if (!rc)
			ckpt_sha256_add(&sum, buf, len);
	}
	ckpt_sha256_end(&sum, ret_sha256);
	return rc;
}

int ckpt_s3_request_hash(struct ckpt_s3_request *r, uint8_t ret_sha256[CKPT_SHA256_LEN])
{
	int rc = 0;

	if (r->source && r->source->sha256)
		memcpy(ret_sha256, r->source->sha256, CKPT_SHA256_LEN);
	else if (r->source)
		rc = hash_source(r->source, ret_sha256);
	else
		ckpt_sha256(r->body, r->body_len, ret_sha256);
	if (!rc)
		ckpt_hex(ret_sha256, CKPT_SHA256_LEN, r->sha256);
	return rc;
}

static int prepare(struct ckpt_s3_request *r)
{
	uint8_t sha256[CKPT_SHA256_LEN];
	const char *path;
	int rc = make_url(r, &path);

	if (!rc && !*r->sha256 && r->body_len)
		rc = ckpt_s3_request_hash(r, sha256);
	else if (!*r->sha256)
		strcpy(r->sha256, EMPTY_SHA256);
	if (!rc)
		rc = get_keys(r);
	return rc ? rc : add_lines(r, path);
}

void ckpt_s3_request_start(struct ckpt_s3_request *r)
{
	r->status = 0;
	*r->code = '\0';
	r->text.len = 0;
	r->text.max = CKPT_S3_XML_MAX;
	r->started_ns = ckpt_sys.mono_ns();
	r->start_rc = prepare(r);
	if (r->start_rc)
		return;
	memset(&r->call, 0, sizeof(r->call));
	r->call.request = (struct ckpt_http_request){.method = r->method,
						     .url = r->url,
						     .headers = r->lines,
						     .body = r->body,
						     .body_len = r->body_len,
						     .source = r->source,
						     .once = r->once,
						     .direct = r->s3->config.is_loopback,
						     .allow_http = r->s3->config.is_http,
						     .len = r->len,
						     .until = r->until,
						     .take = take,
						     .arg = r};
	(void)ckpt_http_start(r->s3->http, &r->call);
}

// --- The answer ---------------------------------------------------------------------------------------------------------

enum { AS_STATUS = 0, KEYS_EXPIRED = 1, CLOCK_IS_OFF = 2, IS_TAKEN = 3, IS_BUSY = 4 };

// The first row that fits; a status of 0 is any, and so is a code that is NULL.
static const struct meaning {
	int status;
	const char *code;
	int rc; // or one of those above
	const char *hint;
} meanings[] = {
	{0, "NoSuchKey", -ENOENT, ""},
	{0, "NoSuchBucket", -EINVAL, "there is no such bucket"},
	{0, "RequestTimeTooSkewed", CLOCK_IS_OFF, "set this machine's clock"},
	{0, "ExpiredToken", KEYS_EXPIRED, "the session token has expired"},
	{0, "TokenRefreshRequired", KEYS_EXPIRED, "the session token has expired"},
	{0, "InvalidToken", KEYS_EXPIRED, "the session token is not valid"},
	{0, "InvalidAccessKeyId", -EACCES, "the store does not know this access key"},
	{0, "SignatureDoesNotMatch", -EACCES, "the secret key is wrong, or a proxy has changed the request"},
	{0, "AccessDenied", -EACCES,
	 "these keys have no right to do this; a key that is missing is answered so to those who may not list"},
	{0, "ConditionalRequestConflict", -EAGAIN, ""},
	{0, "OperationAborted", -EAGAIN, ""},
	{0, "SlowDown", -EAGAIN, "the store is busy"},
	{0, "TooManyRequests", -EAGAIN, "the store is busy"},
	{0, "RequestTimeout", -EAGAIN, ""},
	{0, "BadDigest", -EAGAIN, "the bytes were damaged on their way"},
	{0, "XAmzContentSHA256Mismatch", -EAGAIN, "the bytes were damaged on their way"},
	{0, "QuotaExceeded", -EDQUOT, "the quota of the bucket is used up"},
	{0, "XMinioStorageFull", -ENOSPC, "the store is full"},
	{0, "EntityTooLarge", -EFBIG, ""},
	{0, "NotImplemented", -EINVAL, "the store cannot do this"},
	{0, "AuthorizationHeaderMalformed", -EINVAL, "is region= right?"},
	{301, NULL, -EINVAL, "the bucket is in another region"},
	{302, NULL, -EINVAL, "redirects are not followed: name the right endpoint"},
	{307, NULL, -EINVAL, "redirects are not followed: name the endpoint of the bucket's region"},
	{308, NULL, -EINVAL, "redirects are not followed: name the right endpoint"},
	{400, NULL, -EINVAL, ""},
	{401, NULL, -EACCES, ""},
	{403, NULL, -EACCES, "a key that is missing is answered so to those who may not list"},
	{404, NULL, -ENOENT, ""},
	{405, NULL, -EINVAL, ""},
	{409, NULL, -EAGAIN, ""},
	{411, NULL, -EINVAL, ""},
	{412, NULL, IS_TAKEN, ""},
	{413, NULL, -EFBIG, ""},
	{429, NULL, -EAGAIN, "the store is busy"},
	{500, NULL, IS_BUSY, ""},
	{501, NULL, -EINVAL, "the store cannot do this"},
	{502, NULL, IS_BUSY, ""},
	{503, NULL, IS_BUSY, "the store is busy"},
	{504, NULL, IS_BUSY, ""},
	{507, NULL, -ENOSPC, "the store is full"},
	{0, NULL, -EIO, ""},
};

static const struct meaning *find_meaning(int status, const char *code)
{
	const struct meaning *m = meanings;

	while ((m->status && m->status != status) || (m->code && strcmp(m->code, code) != 0))
		m++;
	return m;
}

// Their names, when the store says them.
static void find_region(const struct ckpt_s3_request *r, const char *in_body, char *ret_hint, size_t size)
{
	char region[64];

	ckpt_http_header(&r->call.answer, "x-amz-bucket-region", region, sizeof(region));
	if (*region || *in_body)
		snprintf(ret_hint, size, "the bucket is in another region: say region=%s", *region ? region : in_body);
}

static void correct_clock(struct ckpt_s3_request *r)
{
	char date[64];
	int64_t theirs_ns;

	ckpt_http_header(&r->call.answer, "date", date, sizeof(date));
	theirs_ns = ckpt_http_time_ns(date);
	LOCK_SCOPE(&r->s3->lock);
	if (theirs_ns)
		r->s3->skew_ns = theirs_ns - ckpt_sys.now_ns();
}

static int errno_of(struct ckpt_s3_request *r, int meaning)
{
	switch (meaning) {
	case KEYS_EXPIRED:
		if (r->s3->credentials)
			ckpt_credentials_refuse(r->s3->credentials, r->keys);
		r->again = true;
		return -EACCES;
	case CLOCK_IS_OFF:
		correct_clock(r);
		r->again = true;
		return -EACCES;
	case IS_TAKEN:
		return r->changes ? -EEXIST : -ESTALE;
	case IS_BUSY:
		return r->changes ? -EIO : -EAGAIN;
	default:
		return meaning;
	}
}

static int judge_error(struct ckpt_s3_request *r)
{
	char message[200], region[64], hint[160] = "";
	struct ckpt_s3_field fields[] = {{"Code", r->code, sizeof(r->code)},
					 {"Message", message, sizeof(message)},
					 {"Region", region, sizeof(region)}};
	const struct meaning *m;
	int rc;

	// A proxy's page, or nothing, is no error of a store: the status says enough.
	if (ckpt_s3_fields_parse(r->text.data ? r->text.data : "", r->text.len, "Error", fields, ARRAY_LEN(fields)))
		*r->code = *message = *region = '\0';
	m = find_meaning(r->status, r->code);
	rc = errno_of(r, m->rc);
	snprintf(hint, sizeof(hint), "%s", m->hint);
	if (rc == -EINVAL || r->status == 301)
		find_region(r, region, hint, sizeof(hint));
	if (rc != -ENOENT && rc != -EEXIST && r->status != 416 &&
	    !r->is_quiet) // what these say belongs to the daily work
		ckpt_s3_say(r->s3, "%s %s at %s: %d %s%s%s%s%s", r->method, r->key ? r->key : "the bucket",
			    r->s3->config.host, r->status, r->code, *message ? ": " : "", message, *hint ? "; " : "",
			    hint);
	return rc;
}

static bool has_error_inside(const struct ckpt_s3_request *r)
{
	return r->text.len && memmem(r->text.data, r->text.len, "<Error>", 7);
}

static int judge(struct ckpt_s3_request *r, int rc)
{
	r->status = r->call.answer.status;
	ckpt_log(CKPT_LOG_DEBUG, "s3: %s %s%s%s: %d, %s, %" PRId64 " us", r->method, r->key ? r->key : "",
		 r->query ? "?" : "", r->query ? r->query : "", r->status, rc ? strerror(-rc) : "ok",
		 (ckpt_sys.mono_ns() - r->started_ns) / 1000);
	if (rc && rc != -ECANCELED && !r->is_quiet)
		ckpt_s3_say(r->s3, "%s %s at %s: %s", r->method, r->key ? r->key : "the bucket", r->s3->config.host,
			    *r->call.answer.why ? r->call.answer.why : strerror(-rc));
	if (rc == -EFBIG || (rc == -ENOMEM && r->changes && r->status))
		return -EIO; // an answer that was not taken: it may be that of a change
	if (rc)
		return rc == -ENOTCONN ? -EAGAIN : rc;
	if (r->status / 100 != 2)
		return judge_error(r);
	if (!r->take && has_error_inside(r)) {
		// "200 OK" was sent before the store knew: it is an error like 500.
		(void)judge_error(r);
		rc = find_meaning(500, r->code)->rc;
		return errno_of(r, rc);
	}
	return 0;
}

int ckpt_s3_request_end(struct ckpt_s3_request *r)
{
	int rc;

	for (int tries = 0;; tries++) {
		r->again = false;
		rc = r->start_rc ? r->start_rc : judge(r, ckpt_http_wait(r->s3->http, &r->call));
		drop_lines(r, r->added);
		drop_keys(r);
		if (!r->again || tries)
			return rc;
		ckpt_s3_request_start(r);
	}
}

int ckpt_s3_request_run(struct ckpt_s3_request *r)
{
	ckpt_s3_request_start(r);
	return ckpt_s3_request_end(r);
}

bool ckpt_s3_request_object(const struct ckpt_s3_request *r, struct ckpt_object *ret_object)
{
	char etag[CKPT_ETAG_MAX + 2], time[64];

	ckpt_http_header(&r->call.answer, "etag", etag, sizeof(etag));
	ckpt_http_header(&r->call.answer, "last-modified", time, sizeof(time));
	if (!*time)
		ckpt_http_header(&r->call.answer, "date", time, sizeof(time));
	ret_object->mtime_ns = ckpt_http_time_ns(time);
	if (!ret_object->mtime_ns)
		ret_object->mtime_ns = ckpt_sys.now_ns();
	return ckpt_s3_etag(etag, ret_object->etag);
}
