#include "backends/s3_parts.h"

#include "backends/s3_get.h"
#include "backends/s3_sum.h"
#include "backends/s3_xml.h"
#include "core/base/util.h"

#include <stdio.h>

#define PART_BYTES ((size_t)32 << 20)
#define AT_ONCE 8 // none of them is in memory
#define UPLOAD_ID_MAX 1024
#define ACT_NS INT64_C(600000000000)

struct upload {
	struct ckpt_s3 *s3;
	const char *key;
	const struct ckpt_source *source;
	size_t len;
	const struct ckpt_until *until;
	char id[UPLOAD_ID_MAX]; // percent-encoded
	size_t count;           // of parts
	struct part {
		struct ckpt_s3_request *request;
		struct ckpt_source source;
		const struct ckpt_source *of;
		uint64_t offset;
		char query[UPLOAD_ID_MAX + 64];
		char etag[CKPT_ETAG_MAX];
		char sum[CKPT_S3_SUM_MAX];
	} * parts;
	struct ckpt_try t;
};

int ckpt_s3_put_headers(struct ckpt_s3_request *r)
{
	const struct ckpt_s3_config *c = &r->s3->config;
	const struct {
		const char *name, *value;
	} headers[] = {
		{"x-amz-storage-class", c->storage_class},
		{"x-amz-server-side-encryption", c->sse},
		{"x-amz-server-side-encryption-aws-kms-key-id", c->sse_kms_key},
		{"x-amz-acl", c->acl},
	};
	int rc = 0;

	for (size_t i = 0; i < ARRAY_LEN(headers) && !rc; i++)
		if (*headers[i].value)
			rc = ckpt_s3_request_header(r, "%s: %s", headers[i].name, headers[i].value);
	return rc;
}

static int begin(struct upload *u)
{
	CLEANUP(ckpt_s3_request_free) struct ckpt_s3_request *r = ckpt_s3_request_new(u->s3, "POST", u->key);
	char id[UPLOAD_ID_MAX];
	struct ckpt_s3_field field = {"UploadId", id, sizeof(id)};
	int rc = r ? ckpt_s3_put_headers(r) : -ENOMEM;

	// Not each server compares the hash that is signed with the bytes; all compare this one.
	if (!rc)
		rc = ckpt_s3_request_header(r, "x-amz-checksum-algorithm: SHA256");
	if (rc)
		return rc;
	r->query = "uploads=";
	r->until = u->until;
	r->changes = true;
	rc = ckpt_s3_request_run(r);
	if (rc)
		return rc;
	if (ckpt_s3_fields_parse(r->text.data ? r->text.data : "", r->text.len, "InitiateMultipartUploadResult", &field,
				 1) ||
	    !*id || !ckpt_sign_encode(id, false, u->id, sizeof(u->id))) {
		ckpt_s3_say(u->s3, "POST %s: the answer names no upload", u->key);
		return -EIO;
	}
	return 0;
}

static int read_part(void *arg, uint64_t offset, void *buf, size_t len)
{
	const struct part *p = arg;

	return ckpt_source_read(p->of, p->offset + offset, buf, len);
}

static int add_sum(struct ckpt_s3_request *r, struct part *p)
{
	uint8_t sha256[CKPT_SHA256_LEN];
	int rc = ckpt_s3_request_hash(r, sha256);

	if (rc)
		return rc; // the source's, maybe
	ckpt_s3_sum_text(sha256, p->sum);
	return ckpt_s3_request_header(r, "x-amz-checksum-sha256: %s", p->sum);
}

static int start_part(struct upload *u, size_t n)
{
	struct part *p = &u->parts[n];
	CLEANUP(ckpt_s3_request_free) struct ckpt_s3_request *r = ckpt_s3_request_new(u->s3, "PUT", u->key);
	int rc;

	if (!r)
		return -ENOMEM;
	p->of = u->source;
	p->offset = n * PART_BYTES;
	p->source =
		(struct ckpt_source){.bytes = MIN(PART_BYTES, u->len - n * PART_BYTES), .read = read_part, .arg = p};
	snprintf(p->query, sizeof(p->query), "partNumber=%zu&uploadId=%s", n + 1, u->id);
	r->query = p->query;
	r->source = &p->source;
	r->body_len = (size_t)p->source.bytes;
	r->until = u->until;
	rc = add_sum(r, p);
	if (rc)
		return rc;
	ckpt_s3_request_start(r);
	p->request = TAKE_PTR(r);
	return 0;
}

// The same part may be sent any number of times, from the same bytes.
static int end_part(struct upload *u, size_t n)
{
	struct part *p = &u->parts[n];
	struct ckpt_object object;
	int rc = ckpt_s3_request_end(p->request);

	while (ckpt_s3_may_pass(rc) && !ckpt_backoff_wait(u->s3->backoff, &u->t))
		rc = ckpt_s3_request_run(p->request);
	if (!rc && !ckpt_s3_request_object(p->request, &object))
		rc = -EIO;
	if (!rc)
		strcpy(p->etag, object.etag);
	ckpt_s3_request_free(&p->request);
	p->request = NULL;
	return rc;
}

static int send_parts(struct upload *u)
{
	size_t started = 0;
	int rc = 0, r;

	for (size_t i = 0; i < u->count; i++) {
		for (; started < u->count && started < i + AT_ONCE && !rc; started++)
			rc = start_part(u, started);
		if (!u->parts[i].request)
			continue;
		r = end_part(u, i);
		rc = rc ? rc : r;
	}
	return rc;
}

// An etag is text of the store, which stands in XML here.
static bool is_plain(const char *etag)
{
	return !strpbrk(etag, "<>&\"");
}

static char *list_parts(const struct upload *u, size_t *ret_len)
{
	char *text = NULL;
	FILE *f = open_memstream(&text, ret_len);
	bool whole = f;

	if (f) {
		fputs("<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">", f);
		for (size_t i = 0; i < u->count; i++) {
			whole = whole && is_plain(u->parts[i].etag);
			fprintf(f,
				"<Part><PartNumber>%zu</PartNumber><ETag>\"%s\"</ETag>"
				"<ChecksumSHA256>%s</ChecksumSHA256></Part>",
				i + 1, u->parts[i].etag, u->parts[i].sum);
		}
		fputs("</CompleteMultipartUpload>", f);
		whole = !ferror(f) && whole;
		whole = !fclose(f) && whole;
	}
	if (!whole)
		free(TAKE_PTR(text));
	return text;
}

static int complete(struct upload *u, struct ckpt_object *ret_object)
{
	CLEANUP(ckpt_s3_request_free) struct ckpt_s3_request *r = ckpt_s3_request_new(u->s3, "POST", u->key);
	char query[UPLOAD_ID_MAX + 16], etag[CKPT_ETAG_MAX + 16];
	struct ckpt_s3_field field = {"ETag", etag, sizeof(etag)};
	size_t len;
	CLEANUP_FREE char *body = list_parts(u, &len);
	int rc = r && body ? ckpt_s3_request_header(r, "if-none-match: *") : -ENOMEM;

	if (rc)
		return rc;
	snprintf(query, sizeof(query), "uploadId=%s", u->id);
	r->query = query;
	r->body = body;
	r->body_len = len;
	r->until = u->until;
	r->changes = r->once = true;
	do
		rc = ckpt_s3_request_run(r);
	while (rc == -EAGAIN && !ckpt_backoff_wait(u->s3->backoff, &u->t));
	if (rc)
		return rc;
	if (ckpt_s3_fields_parse(r->text.data ? r->text.data : "", r->text.len, "CompleteMultipartUploadResult", &field,
				 1)) {
		ckpt_s3_say(u->s3, "POST %s: the answer says nothing of the object", u->key);
		return -EIO;
	}
	(void)ckpt_s3_request_object(r, ret_object); // its time; the etag is in the body
	ret_object->bytes = u->len;
	// Ceph 16 leaves it out.
	return ckpt_s3_etag(etag, ret_object->etag) ? 0 : ckpt_s3_head(u->s3, u->key, NULL, ret_object);
}

static void abandon(struct upload *u)
{
	CLEANUP(ckpt_s3_request_free) struct ckpt_s3_request *r = ckpt_s3_request_new(u->s3, "DELETE", u->key);
	char query[UPLOAD_ID_MAX + 16];

	if (!r || !*u->id)
		return;
	snprintf(query, sizeof(query), "uploadId=%s", u->id);
	r->query = query;
	r->is_quiet = true;
	(void)ckpt_s3_request_run(r);
}

int ckpt_s3_put_parts(struct ckpt_s3 *s3, const char *key, const struct ckpt_source *source,
		      const struct ckpt_until *until, struct ckpt_object *ret_object)
{
	struct upload u = {.s3 = s3, .key = key, .source = source, .len = (size_t)source->bytes, .until = until};
	int rc;

	u.count = (u.len + PART_BYTES - 1) / PART_BYTES;
	u.parts = ckpt_calloc(u.count, sizeof(*u.parts));
	if (!u.parts)
		return -ENOMEM;
	u.t = ckpt_backoff_begin(s3->backoff, until, ACT_NS);
	rc = begin(&u);
	if (!rc)
		rc = send_parts(&u);
	if (!rc)
		rc = complete(&u, ret_object);
	if (rc)
		abandon(&u);
	free(u.parts);
	return rc;
}

// --- Left uploads -------------------------------------------------------------------------------------------------------

struct left {
	struct ckpt_s3 *s3;
	int (*act)(struct left *l, const struct ckpt_s3_upload *upload); // of each
	int64_t before_ns, oldest_ns;
	uint64_t count;
};

// Below probe/ an upload is begun and aborted at once (ckpt_s3_try_abort()): one that stays is nobody's.
static bool is_ours(const char *key)
{
	static const char *const folders[] = {"packs/", "m/", "snap/", "probe/"};
	bool is = false;

	for (size_t i = 0; i < ARRAY_LEN(folders); i++)
		is = is || !strncmp(key, folders[i], strlen(folders[i]));
	return is && !ckpt_objects_key_check(key);
}

static int see_upload(void *arg, const struct ckpt_s3_upload *u)
{
	struct left *l = arg;
	const char *prefix = l->s3->config.prefix;
	struct ckpt_s3_upload ours = *u;

	if (strncmp(u->key, prefix, strlen(prefix)) != 0 || !is_ours(u->key + strlen(prefix)))
		return 0;
	ours.key += strlen(prefix);
	return l->act(l, &ours);
}

static int get_uploads(struct left *l, struct ckpt_s3_uploads_page *page)
{
	CLEANUP(ckpt_s3_request_free) struct ckpt_s3_request *r = ckpt_s3_request_new(l->s3, "GET", NULL);
	char prefix[3 * CKPT_S3_PREFIX_MAX + 4], key[3 * CKPT_S3_KEY_MAX], id[3 * CKPT_S3_TOKEN_MAX];
	char query[sizeof(prefix) + sizeof(key) + sizeof(id) + 128];
	int rc;

	if (!r)
		return -ENOMEM;
	if (!ckpt_sign_encode(l->s3->config.prefix, false, prefix, sizeof(prefix)) ||
	    !ckpt_sign_encode(page->key, false, key, sizeof(key)) || !ckpt_sign_encode(page->id, false, id, sizeof(id)))
		return -EFBIG;
	snprintf(query, sizeof(query),
		 "encoding-type=url%s%s&max-uploads=1000&prefix=%s%s%s&uploads=", *key ? "&key-marker=" : "", key,
		 prefix, *id ? "&upload-id-marker=" : "", id);
	r->query = query;
	rc = ckpt_s3_request_run(r);
	if (!rc)
		rc = ckpt_s3_uploads_parse(r->text.data ? r->text.data : "", r->text.len, see_upload, l, page);
	if (rc != -EBADMSG)
		return rc == -ENOENT ? -EIO : rc;
	ckpt_s3_say(l->s3, "GET of uploads at %s: the answer is no page of them", l->s3->config.host);
	return -EIO;
}

static int each_upload(struct left *l)
{
	struct ckpt_s3_uploads_page *pages = ckpt_calloc(2, sizeof(*pages)); // this one, and the one before
	int rc = pages ? 0 : -ENOMEM;

	for (bool more = true; !rc && more;) {
		pages[1] = pages[0];
		rc = get_uploads(l, &pages[0]);
		more = !rc && pages[0].truncated &&
		       (strcmp(pages[0].key, pages[1].key) || strcmp(pages[0].id, pages[1].id)); // the list gets on
	}
	free(pages);
	return rc;
}

static int count_upload(struct left *l, const struct ckpt_s3_upload *u)
{
	l->oldest_ns = l->count ? MIN(l->oldest_ns, u->began_ns) : u->began_ns;
	l->count++;
	return 0;
}

int ckpt_s3_count_uploads(struct ckpt_s3 *s3, uint64_t *ret_count, int64_t *ret_oldest_ns)
{
	struct left l = {.s3 = s3, .act = count_upload};
	int rc = each_upload(&l);

	*ret_count = l.count;
	*ret_oldest_ns = l.oldest_ns;
	return rc;
}

// id: percent-encoded.
static int abort_upload(struct ckpt_s3 *s3, const char *key, const char *id)
{
	CLEANUP(ckpt_s3_request_free) struct ckpt_s3_request *r = ckpt_s3_request_new(s3, "DELETE", key);
	char query[UPLOAD_ID_MAX + 16];

	if (!r)
		return -ENOMEM;
	snprintf(query, sizeof(query), "uploadId=%s", id);
	r->query = query;
	r->changes = true;
	return ckpt_s3_request_run(r);
}

// One that somebody has ended since is gone: that is well, too.
static int give_up(struct left *l, const struct ckpt_s3_upload *u)
{
	char id[UPLOAD_ID_MAX];
	int rc;

	if (u->began_ns >= l->before_ns)
		return 0;
	if (!ckpt_sign_encode(u->id, false, id, sizeof(id)))
		return -EIO;
	rc = abort_upload(l->s3, u->key, id);
	rc = rc == -ENOENT ? 0 : rc;
	l->count += !rc;
	return rc;
}

int ckpt_s3_abort_uploads(struct ckpt_s3 *s3, int64_t before_ns, uint64_t *ret_count)
{
	struct left l = {.s3 = s3, .act = give_up, .before_ns = before_ns};
	int rc = each_upload(&l);

	*ret_count = l.count;
	return rc;
}

int ckpt_s3_try_abort(struct ckpt_s3 *s3, const char *key)
{
	struct upload u = {.s3 = s3, .key = key};
	int rc = abort_upload(s3, key, "none");

	if (rc == -EACCES)
		return rc;
	rc = begin(&u);
	return rc ? rc : abort_upload(s3, key, u.id);
}
