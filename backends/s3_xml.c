#include "backends/s3_xml.h"

#include "core/base/clock.h"
#include "core/base/hash.h"
#include "core/base/util.h"

#include <ctype.h>
#include <expat.h>
#include <stdio.h>

#define DEPTH_MAX 16
#define TEXT_MAX ((size_t)64 << 10)
#define NAME_MAX_BYTES 64 // of the elements that we know
#define BLANKS " \t\r\n"

struct reader;

// Called at the end of each element; a leaf is one without others inside of it. 0, or -errno.
typedef int element_fn(struct reader *r, const char *parent, const char *name, bool leaf);

struct reader {
	XML_Parser parser;
	element_fn *fn;
	void *arg;
	int rc;
	unsigned depth;
	char names[DEPTH_MAX][NAME_MAX_BYTES]; // of the open elements, cut
	bool inner[DEPTH_MAX];                 // has others inside of it
	char *text;                            // of the newest element, with a NUL
	size_t len, cap;
};

static void stop(struct reader *r, int rc)
{
	r->rc = rc;
	XML_StopParser(r->parser, XML_FALSE);
}

static void XMLCALL on_start(void *arg, const char *name, const char **attributes)
{
	struct reader *r = arg;

	(void)attributes;
	if (r->depth == DEPTH_MAX) {
		stop(r, -EBADMSG);
		return;
	}
	if (r->depth)
		r->inner[r->depth - 1] = true;
	snprintf(r->names[r->depth], NAME_MAX_BYTES, "%s", name);
	r->inner[r->depth++] = false;
	r->len = 0;
}

static void XMLCALL on_end(void *arg, const char *name)
{
	struct reader *r = arg;
	int rc = 0;

	if (r->rc)
		return;
	r->depth--;
	if (ckpt_grow((void **)&r->text, &r->cap, r->len + 1, 1))
		rc = -ENOMEM;
	if (!rc) {
		r->text[r->len] = '\0';
		rc = r->fn(r, r->depth ? r->names[r->depth - 1] : "", name, !r->inner[r->depth]);
	}
	r->len = 0;
	if (rc)
		stop(r, rc);
}

static void XMLCALL on_text(void *arg, const char *text, int len)
{
	struct reader *r = arg;

	if (r->rc)
		return;
	if ((size_t)len > TEXT_MAX - r->len)
		stop(r, -EBADMSG);
	else if (ckpt_grow((void **)&r->text, &r->cap, r->len + (size_t)len, 1))
		stop(r, -ENOMEM);
	else {
		memcpy(r->text + r->len, text, (size_t)len);
		r->len += (size_t)len;
	}
}

// It could name entities, which grow without limit, and files.
static void XMLCALL on_doctype(void *arg, const char *name, const char *system_id, const char *public_id, int internal)
{
	(void)name, (void)system_id, (void)public_id, (void)internal;
	stop(arg, -EBADMSG);
}

static int read_xml(const char *xml, size_t len, element_fn *fn, void *arg)
{
	struct reader *r = calloc(1, sizeof(*r));
	int rc = -ENOMEM;

	if (len > CKPT_S3_XML_MAX) {
		free(r);
		return -EBADMSG;
	}
	if (r && (r->parser = XML_ParserCreate("UTF-8"))) {
		r->fn = fn;
		r->arg = arg;
		XML_SetUserData(r->parser, r);
		XML_SetElementHandler(r->parser, on_start, on_end);
		XML_SetCharacterDataHandler(r->parser, on_text);
		XML_SetStartDoctypeDeclHandler(r->parser, on_doctype);
		rc = XML_Parse(r->parser, xml, (int)len, 1) == XML_STATUS_OK ? 0 : r->rc ? r->rc : -EBADMSG;
		XML_ParserFree(r->parser);
		free(r->text);
	}
	free(r);
	return rc;
}

// --- Pages --------------------------------------------------------------------------------------------------------------

struct page {
	ckpt_s3_entry_fn *fn;
	void *arg;
	struct ckpt_s3_page *page;
	bool is_list, is_encoded;
	char key[CKPT_S3_KEY_MAX];
	bool has_key, has_size, has_time;
	struct ckpt_object object;
};

// Percent-encoding, in place; '+' is a space, as in a form.
static int decode(char *text)
{
	char *to = text;

	for (const char *from = text; *from; from++) {
		uint8_t byte = (uint8_t)*from;
		char hex[3] = "";

		if (*from == '%') {
			if (!from[1] || !from[2])
				return -EBADMSG;
			for (int i = 0; i < 2; i++)
				hex[i] = (char)tolower((unsigned char)from[1 + i]);
			if (ckpt_unhex(hex, 1, &byte) || !byte)
				return -EBADMSG;
			from += 2;
		}
		*to++ = *from == '+' ? ' ' : (char)byte;
	}
	*to = '\0';
	return 0;
}

static int keep(const char *text, char *ret_text, size_t size)
{
	return (size_t)snprintf(ret_text, size, "%s", text) < size ? 0 : -EBADMSG;
}

// Blanks around it are those of a document that somebody has indented.
static int number(const char *text, uint64_t *ret_number)
{
	char *end;

	text += strspn(text, BLANKS);
	errno = 0;
	*ret_number = strtoull(text, &end, 10);
	end += strspn(end, BLANKS);
	return *text >= '0' && *text <= '9' && !*end && !errno ? 0 : -EBADMSG;
}

static bool is_word(const char *text, const char *word)
{
	size_t len = strlen(word);

	text += strspn(text, BLANKS);
	return !strncmp(text, word, len) && !text[len + strspn(text + len, BLANKS)];
}

bool ckpt_s3_etag(const char *text, char ret_etag[CKPT_ETAG_MAX])
{
	size_t len;

	text += text[0] == '"';
	len = strcspn(text, "\"");
	*ret_etag = '\0';
	if (!len || len >= CKPT_ETAG_MAX)
		return false;
	memcpy(ret_etag, text, len);
	ret_etag[len] = '\0';
	return true;
}

static int content_field(struct page *p, const char *name, const char *text)
{
	if (!strcmp(name, "Key")) {
		p->has_key = true;
		return keep(text, p->key, sizeof(p->key));
	}
	if (!strcmp(name, "Size")) {
		p->has_size = true;
		return number(text, &p->object.bytes);
	}
	if (!strcmp(name, "LastModified")) {
		p->has_time = true;
		return ckpt_time_parse(text, false, &p->object.mtime_ns) ? -EBADMSG : 0;
	}
	if (!strcmp(name, "ETag"))
		return ckpt_s3_etag(text, p->object.etag) ? 0 : -EBADMSG;
	return 0;
}

static int end_content(struct page *p)
{
	bool whole = p->has_key && p->has_size && p->has_time && *p->object.etag;
	struct ckpt_object object = p->object;

	p->has_key = p->has_size = p->has_time = false;
	p->object = (struct ckpt_object){0};
	if (!whole || (p->is_encoded && decode(p->key)))
		return -EBADMSG;
	return p->fn(p->arg, p->key, &object);
}

static int page_element(struct reader *r, const char *parent, const char *name, bool leaf)
{
	struct page *p = r->arg;

	p->is_list = !strcmp(r->names[0], "ListBucketResult");
	if (!p->is_list)
		return -EBADMSG;
	if (r->depth == 1 && !strcmp(name, "Contents"))
		return end_content(p);
	if (!leaf)
		return 0;
	if (r->depth == 2 && !strcmp(parent, "Contents"))
		return content_field(p, name, r->text);
	if (r->depth == 1 && !strcmp(name, "IsTruncated"))
		p->page->truncated = !strcmp(r->text, "true");
	if (r->depth == 1 && !strcmp(name, "NextContinuationToken"))
		return keep(r->text, p->page->token, sizeof(p->page->token));
	return 0;
}

// Some stores say behind the keys that these are encoded.
static int encoding_element(struct reader *r, const char *parent, const char *name, bool leaf)
{
	(void)parent;
	if (leaf && r->depth == 1 && !strcmp(name, "EncodingType"))
		*(bool *)r->arg = !strcmp(r->text, "url");
	return 0;
}

int ckpt_s3_page_parse(const char *xml, size_t len, ckpt_s3_entry_fn *fn, void *arg, struct ckpt_s3_page *ret_page)
{
	struct page p = {.fn = fn, .arg = arg, .page = ret_page};
	int rc;

	*ret_page = (struct ckpt_s3_page){0};
	rc = read_xml(xml, len, encoding_element, &p.is_encoded);
	if (!rc)
		rc = read_xml(xml, len, page_element, &p);
	return rc ? rc : p.is_list ? 0 : -EBADMSG;
}

// --- Uploads ------------------------------------------------------------------------------------------------------------

struct uploads {
	ckpt_s3_upload_fn *fn;
	void *arg;
	struct ckpt_s3_uploads_page *page;
	bool is_list, is_encoded, has_key, has_time;
	char key[CKPT_S3_KEY_MAX], id[CKPT_S3_TOKEN_MAX];
	int64_t began_ns;
};

static int upload_field(struct uploads *u, const char *name, const char *text)
{
	if (!strcmp(name, "Key")) {
		u->has_key = true;
		return keep(text, u->key, sizeof(u->key));
	}
	if (!strcmp(name, "UploadId"))
		return keep(text, u->id, sizeof(u->id));
	if (!strcmp(name, "Initiated")) {
		u->has_time = true;
		return ckpt_time_parse(text, false, &u->began_ns) ? -EBADMSG : 0;
	}
	return 0;
}

static int end_upload(struct uploads *u)
{
	struct ckpt_s3_upload upload = {u->key, u->id, u->began_ns};
	int rc = !u->has_key || !u->has_time || !*u->id || (u->is_encoded && decode(u->key)) ? -EBADMSG : 0;

	if (!rc)
		rc = u->fn(u->arg, &upload);
	u->has_key = u->has_time = false;
	*u->id = '\0';
	return rc;
}

static int uploads_element(struct reader *r, const char *parent, const char *name, bool leaf)
{
	struct uploads *u = r->arg;

	u->is_list = !strcmp(r->names[0], "ListMultipartUploadsResult");
	if (!u->is_list)
		return -EBADMSG;
	if (r->depth == 1 && !strcmp(name, "Upload"))
		return end_upload(u);
	if (!leaf)
		return 0;
	if (r->depth == 2 && !strcmp(parent, "Upload"))
		return upload_field(u, name, r->text);
	if (r->depth == 1 && !strcmp(name, "IsTruncated"))
		u->page->truncated = !strcmp(r->text, "true");
	if (r->depth == 1 && !strcmp(name, "NextKeyMarker"))
		return keep(r->text, u->page->key, sizeof(u->page->key));
	if (r->depth == 1 && !strcmp(name, "NextUploadIdMarker"))
		return keep(r->text, u->page->id, sizeof(u->page->id));
	return 0;
}

int ckpt_s3_uploads_parse(const char *xml, size_t len, ckpt_s3_upload_fn *fn, void *arg,
			  struct ckpt_s3_uploads_page *ret_page)
{
	struct uploads u = {.fn = fn, .arg = arg, .page = ret_page};
	int rc;

	*ret_page = (struct ckpt_s3_uploads_page){0};
	rc = read_xml(xml, len, encoding_element, &u.is_encoded);
	if (!rc)
		rc = read_xml(xml, len, uploads_element, &u);
	if (!rc && u.is_encoded)
		rc = decode(ret_page->key);
	return rc ? rc : u.is_list ? 0 : -EBADMSG;
}

// --- Rules ----------------------------------------------------------------------------------------------------------------

struct rules {
	ckpt_s3_rule_fn *fn;
	void *arg;
	struct ckpt_s3_rule rule;
	bool is_right;
};

static int days(const char *text, unsigned *ret_days)
{
	uint64_t n;
	int rc = number(text, &n);

	if (!rc)
		*ret_days = (unsigned)MIN(n, (uint64_t)UINT32_MAX);
	return rc;
}

// The prefix of an older rule stands in it, that of a newer one in its Filter, or in And there.
static int rule_field(struct ckpt_s3_rule *r, const char *parent, const char *name, const char *text)
{
	if (!strcmp(name, "Prefix"))
		return keep(text, r->prefix, sizeof(r->prefix));
	if (!strcmp(name, "ID"))
		(void)keep(text, r->id, sizeof(r->id)); // it is for people, and may be cut
	if (!strcmp(name, "Status"))
		r->enabled = is_word(text, "Enabled");
	if (!strcmp(parent, "Expiration") && (!strcmp(name, "Days") || !strcmp(name, "Date")))
		r->expires = true;
	if (!strcmp(parent, "Expiration") && !strcmp(name, "Days"))
		return days(text, &r->expires_days);
	if (!strcmp(parent, "Transition") && (is_word(text, "GLACIER") || is_word(text, "DEEP_ARCHIVE")))
		r->archives = true;
	if (!strcmp(name, "NoncurrentDays"))
		return strcmp(parent, "NoncurrentVersionExpiration") ? 0 : days(text, &r->old_versions_days);
	return strcmp(name, "DaysAfterInitiation") ? 0 : days(text, &r->abort_days);
}

static int rules_element(struct reader *r, const char *parent, const char *name, bool leaf)
{
	struct rules *l = r->arg;

	l->is_right = !strcmp(r->names[0], "LifecycleConfiguration");
	if (!l->is_right)
		return -EBADMSG;
	if (r->depth == 1 && !strcmp(name, "Rule")) {
		int rc = l->fn(l->arg, &l->rule);

		l->rule = (struct ckpt_s3_rule){0};
		return rc;
	}
	if (!strcmp(name, "Tag"))
		l->rule.is_tagged = true;
	return leaf && r->depth >= 2 && strcmp(parent, "Tag") ? rule_field(&l->rule, parent, name, r->text) : 0;
}

int ckpt_s3_rules_parse(const char *xml, size_t len, ckpt_s3_rule_fn *fn, void *arg)
{
	struct rules l = {.fn = fn, .arg = arg};
	int rc = read_xml(xml, len, rules_element, &l);

	return rc ? rc : l.is_right ? 0 : -EBADMSG;
}

// --- Fields -------------------------------------------------------------------------------------------------------------

struct fields {
	struct ckpt_s3_field *fields;
	size_t count;
	const char *root;
	bool is_right;
};

static int field_element(struct reader *r, const char *parent, const char *name, bool leaf)
{
	struct fields *f = r->arg;

	if (!*parent)
		f->is_right = !f->root || !strcmp(name, f->root);
	for (size_t i = 0; leaf && i < f->count; i++)
		if (!strcmp(name, f->fields[i].name))
			return keep(r->text, f->fields[i].text, f->fields[i].size);
	return 0;
}

int ckpt_s3_fields_parse(const char *xml, size_t len, const char *root, struct ckpt_s3_field *fields, size_t count)
{
	struct fields f = {fields, count, root, false};
	int rc;

	for (size_t i = 0; i < count; i++)
		*fields[i].text = '\0';
	rc = read_xml(xml, len, field_element, &f);
	return rc ? rc : f.is_right ? 0 : -EBADMSG;
}
