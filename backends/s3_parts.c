#include "backends/s3_parts.h"

#include "backends/s3_get.h"
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

static int start_part(struct upload *u, size_t n)
{
	struct part *p = &u->parts[n];
	struct ckpt_s3_request *r = p->request = ckpt_s3_request_new(u->s3, "PUT", u->key);

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
	ckpt_s3_request_start(r);
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
			fprintf(f, "<Part><PartNumber>%zu</PartNumber><ETag>\"%s\"</ETag></Part>", i + 1,
				u->parts[i].etag);
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
