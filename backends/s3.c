#include "backends/s3.h"

#include "backends/s3_describe.h"
#include "backends/s3_get.h"
#include "backends/s3_parts.h"
#include "backends/s3_sum.h"
#include "backends/s3_xml.h"
#include "core/base/util.h"

#include <stdio.h>

#define PUT_BYTES_MAX ((size_t)96 << 20) // of one request: a pack of the usual size is a little over 64 MiB
#define LIST_NS INT64_C(600000000000)
#define PAGE_KEYS 1000u
#define EMPTY_PAGES_MAX 100

static struct ckpt_s3 *s3_of(struct ckpt_objects *o)
{
	return (struct ckpt_s3 *)o;
}

// --- Get, head ----------------------------------------------------------------------------------------------------------

static int s3_get(struct ckpt_objects *o, const char *key, uint64_t offset, void *buf, size_t len, size_t *ret_len,
		  struct ckpt_object *ret_object)
{
	struct ckpt_range range = {.offset = offset, .buf = buf, .len = len};
	struct ckpt_object object;
	int rc = ckpt_s3_get_ranges(s3_of(o), key, &range, 1, NULL, &object);

	if (rc)
		return rc;
	*ret_len = range.got;
	if (ret_object)
		*ret_object = object;
	return 0;
}

static int s3_get_ranges(struct ckpt_objects *o, const char *key, struct ckpt_range *ranges, size_t count,
			 const struct ckpt_until *until, struct ckpt_object *ret_object)
{
	return ckpt_s3_get_ranges(s3_of(o), key, ranges, count, until, ret_object);
}

static int s3_head(struct ckpt_objects *o, const char *key, struct ckpt_object *ret_object)
{
	return ckpt_s3_head(s3_of(o), key, NULL, ret_object);
}

// --- Changes ------------------------------------------------------------------------------------------------------------

// Entries and rows are always one request: an upload in parts is not atomic everywhere.
static bool is_cut(const char *key, size_t len)
{
	return len > PUT_BYTES_MAX &&
	       (!strncmp(key, "packs/", 6) || !strncmp(key, "m/", 2) || !strncmp(key, "snap/", 5));
}

static int put_headers(struct ckpt_s3_request *r)
{
	uint8_t sha256[CKPT_SHA256_LEN];
	char sum[CKPT_S3_SUM_MAX];
	int rc = ckpt_s3_request_hash(r, sha256);

	if (rc)
		return rc;
	ckpt_s3_sum_text(sha256, sum);
	rc = ckpt_s3_request_header(r, "if-none-match: *");
	if (!rc)
		rc = ckpt_s3_request_header(r, "x-amz-sdk-checksum-algorithm: SHA256");
	if (!rc)
		rc = ckpt_s3_request_header(r, "x-amz-checksum-sha256: %s", sum);
	return rc ? rc : ckpt_s3_put_headers(r);
}

static int s3_put_from(struct ckpt_objects *o, const char *key, const struct ckpt_source *source,
		       const struct ckpt_until *until, struct ckpt_object *ret_object)
{
	struct ckpt_s3 *s3 = s3_of(o);
	CLEANUP(ckpt_s3_request_free) struct ckpt_s3_request *r = NULL;
	size_t len = (size_t)source->bytes;
	int rc;

	if (!s3->writable)
		return -EROFS;
	if (is_cut(key, len))
		return ckpt_s3_put_parts(s3, key, source, until, ret_object);
	r = ckpt_s3_request_new(s3, "PUT", key);
	if (!r)
		return -ENOMEM;
	r->source = source;
	r->body_len = len;
	r->until = until;
	r->changes = r->once = true;
	rc = put_headers(r);
	if (rc)
		return rc; // the source's, maybe
	rc = ckpt_s3_request_run(r);
	ret_object->bytes = len;
	if (!rc && !ckpt_s3_request_object(r, ret_object)) {
		ckpt_s3_say(s3, "PUT %s: the answer has no etag", key);
		rc = -EIO;
	}
	// Nothing was done where there is nothing to do it in.
	return rc == -ENOENT ? -EIO : rc;
}

static int read_memory(void *arg, uint64_t offset, void *buf, size_t len)
{
	memcpy(buf, (const char *)arg + offset, len);
	return 0;
}

static int s3_put(struct ckpt_objects *o, const char *key, const void *data, size_t len,
		  bool frees __attribute__((unused)), struct ckpt_object *ret_object)
{
	const struct ckpt_source source = {.bytes = len, .read = read_memory, .arg = (void *)(uintptr_t)data};

	return s3_put_from(o, key, &source, NULL, ret_object);
}

static int s3_remove(struct ckpt_objects *o, const char *key)
{
	struct ckpt_s3 *s3 = s3_of(o);
	CLEANUP(ckpt_s3_request_free) struct ckpt_s3_request *r = NULL;

	if (!s3->writable)
		return -EROFS;
	r = ckpt_s3_request_new(s3, "DELETE", key);
	if (!r)
		return -ENOMEM;
	r->changes = true;
	return ckpt_s3_request_run(r);
}

// --- List ---------------------------------------------------------------------------------------------------------------

struct found {
	char *key; // malloc'ed, with the etag behind it
	uint64_t bytes;
	int64_t mtime_ns;
};

struct listing {
	struct ckpt_s3 *s3;
	const char *prefix, *after;
	struct found *all;
	size_t count, cap, page_count;
	uint64_t page_sum, *sums; // of the keys on this page, in any order, and on those before
	size_t sum_count, sum_cap;
};

static void listing_done(struct listing *l)
{
	for (size_t i = 0; i < l->count; i++)
		free(l->all[i].key);
	free(l->all);
	free(l->sums);
}

static int see(void *arg, const char *key, const struct ckpt_object *object)
{
	struct listing *l = arg;
	const char *store = l->s3->config.prefix;
	size_t key_len;
	struct found *f;

	l->page_count++;
	l->page_sum += ckpt_checksum(key, strlen(key), 0);
	if (strncmp(key, store, strlen(store)) != 0 || strncmp(key + strlen(store), l->prefix, strlen(l->prefix)) != 0)
		return -EBADMSG;
	key += strlen(store);
	if (ckpt_objects_key_check(key) || strcmp(key, l->after) <= 0)
		return 0;
	if (ckpt_grow((void **)&l->all, &l->cap, l->count + 1, sizeof(*l->all)))
		return -ENOMEM;
	f = &l->all[l->count];
	key_len = strlen(key) + 1;
	*f = (struct found){.key = malloc(key_len + strlen(object->etag) + 1),
			    .bytes = object->bytes,
			    .mtime_ns = object->mtime_ns};
	if (!f->key)
		return -ENOMEM;
	memcpy(f->key, key, key_len);
	strcpy(f->key + key_len, object->etag);
	l->count++;
	return 0;
}

// The keys of the page that was asked for would be missing. A cache on the way may have any page of this list, not only the last one.
static bool is_a_page_again(const struct listing *l)
{
	for (size_t i = l->sum_count; l->page_count && i-- > 0;)
		if (l->sums[i] == l->page_sum)
			return true;
	return false;
}

static int note_page(struct listing *l)
{
	if (!l->page_count)
		return 0;
	if (ckpt_grow((void **)&l->sums, &l->sum_cap, l->sum_count + 1, sizeof(*l->sums)))
		return -ENOMEM;
	l->sums[l->sum_count++] = l->page_sum;
	return 0;
}

static int get_page(struct listing *l, const char *token, struct ckpt_s3_page *ret_page)
{
	CLEANUP(ckpt_s3_request_free) struct ckpt_s3_request *r = ckpt_s3_request_new(l->s3, "GET", NULL);
	char prefix[3 * (CKPT_S3_PREFIX_MAX + CKPT_OBJECT_KEY_MAX) + 4],
		whole[CKPT_S3_PREFIX_MAX + CKPT_OBJECT_KEY_MAX];
	char query[sizeof(prefix) + 256], encoded[sizeof(query)];
	int rc;

	if (!r)
		return -ENOMEM;
	snprintf(whole, sizeof(whole), "%s%s", l->s3->config.prefix, l->prefix);
	if (!ckpt_sign_encode(whole, false, prefix, sizeof(prefix)) ||
	    !ckpt_sign_encode(token, false, encoded, sizeof(encoded)))
		return -EFBIG;
	if ((size_t)snprintf(query, sizeof(query), "%s%s%sencoding-type=url&list-type=2&max-keys=%u&prefix=%s",
			     *token ? "continuation-token=" : "", encoded, *token ? "&" : "",
			     l->s3->config.page_keys ?: PAGE_KEYS, prefix) >= sizeof(query))
		return -EFBIG;
	r->query = query;
	rc = ckpt_s3_request_run(r);
	if (!rc)
		rc = ckpt_s3_page_parse(r->text.data ? r->text.data : "", r->text.len, see, l, ret_page);
	if (!rc && is_a_page_again(l))
		rc = -EBADMSG;
	if (rc != -EBADMSG)
		return rc == -ENOENT ? -EIO : rc;
	ckpt_s3_say(l->s3, "GET of a list at %s: the answer is no page of the list that was asked for",
		    l->s3->config.host);
	return -EIO;
}

static void forget_from(struct listing *l, size_t count)
{
	while (l->count > count)
		free(l->all[--l->count].key);
}

// A page that fails is asked for again: a list of a thousand pages would never end otherwise.
static int get_page_surely(struct listing *l, const char *token, struct ckpt_s3_page *ret_page)
{
	struct ckpt_try t = ckpt_backoff_begin(l->s3->backoff, NULL, LIST_NS);
	size_t before = l->count;
	int rc;

	do {
		forget_from(l, before);
		l->page_count = 0;
		l->page_sum = 0;
		rc = get_page(l, token, ret_page);
	} while (ckpt_s3_may_pass(rc) && !ckpt_backoff_wait(l->s3->backoff, &t));
	return rc ? rc : note_page(l);
}

static int get_pages(struct listing *l)
{
	struct ckpt_s3_page pages[2] = {0}; // this one, and the one before
	unsigned empty = 0;
	int rc;

	for (unsigned i = 0;; i++) {
		struct ckpt_s3_page *page = &pages[i % 2], *before = &pages[(i + 1) % 2];

		rc = get_page_surely(l, before->token, page);
		if (rc || !page->truncated)
			return rc;
		empty = l->page_count ? 0 : empty + 1;
		if (!*page->token || !strcmp(page->token, before->token) || empty > EMPTY_PAGES_MAX) {
			ckpt_s3_say(l->s3, "GET of a list at %s: the list does not get on", l->s3->config.host);
			return -EIO;
		}
	}
}

static int by_key(const void *a, const void *b)
{
	return strcmp(((const struct found *)a)->key, ((const struct found *)b)->key);
}

static int s3_list(struct ckpt_objects *o, const char *prefix, const char *after, ckpt_objects_list_fn *fn, void *arg)
{
	CLEANUP(listing_done) struct listing l = {.s3 = s3_of(o), .prefix = prefix, .after = after};
	int rc = get_pages(&l);

	if (rc)
		return rc;
	if (l.count)
		qsort(l.all, l.count, sizeof(*l.all), by_key);
	for (size_t i = 0; i < l.count && !rc; i++) {
		const struct found *f = &l.all[i];
		struct ckpt_object object = {.bytes = f->bytes, .mtime_ns = f->mtime_ns};

		if (i && !strcmp(f->key, f[-1].key)) // a key that came on two pages
			continue;
		strcpy(object.etag, f->key + strlen(f->key) + 1);
		rc = fn(arg, f->key, &object);
	}
	return rc;
}

static int s3_abort_uploads(struct ckpt_objects *o, int64_t before_ns, uint64_t *ret_count)
{
	struct ckpt_s3 *s3 = s3_of(o);

	return s3->writable ? ckpt_s3_abort_uploads(s3, before_ns, ret_count) : -EROFS;
}

// --- Open, close --------------------------------------------------------------------------------------------------------

static void s3_why(struct ckpt_objects *o, char ret_why[CKPT_OBJECTS_WHY_MAX])
{
	LOCK_SCOPE(&s3_of(o)->lock);
	strcpy(ret_why, s3_of(o)->why);
}

static void s3_close(struct ckpt_objects *o)
{
	struct ckpt_s3 *s3 = s3_of(o);

	ckpt_credentials_free(s3->credentials);
	ckpt_http_free(s3->http);
	ckpt_backoff_free(s3->backoff);
	ckpt_lock_done(&s3->lock);
	free(s3);
}

static void s3_cleanup(struct ckpt_s3 **at)
{
	if (*at)
		s3_close(&(*at)->base);
}

static const struct ckpt_objects_ops s3_ops = {
	.name = "s3",
	.is_far = true,
	.get = s3_get,
	.get_ranges = s3_get_ranges,
	.head = s3_head,
	.put = s3_put,
	.put_from = s3_put_from,
	.remove = s3_remove,
	.list = s3_list,
	.abort_uploads = s3_abort_uploads,
	.describe = ckpt_s3_describe,
	.why = s3_why,
	.close = s3_close,
};

static int set_up(struct ckpt_s3 *s3, char *ret_why)
{
	struct ckpt_http_config http = {.connections_max = s3->config.connections_max,
					.bytes_per_s = s3->config.bytes_per_s,
					.quiet_ns = s3->config.quiet_ns};
	char region[64] = "", endpoint[CKPT_S3_HOST_MAX] = "";
	int rc = ckpt_http_new(&http, &s3->http);

	if (!rc)
		rc = ckpt_backoff_new(&s3->backoff);
	if (!rc && !s3->config.unsigned_requests)
		rc = ckpt_credentials_new(s3->http, s3->config.profile, s3->config.region, &s3->credentials);
	if (!rc && s3->credentials) {
		ckpt_credentials_setting(s3->credentials, "region", region, sizeof(region));
		ckpt_credentials_setting(s3->credentials, "endpoint_url", endpoint, sizeof(endpoint));
	}
	return rc ? rc : ckpt_s3_config_settle(&s3->config, region, endpoint, ret_why);
}

int ckpt_s3_new(const struct ckpt_s3_config *config, bool writable, char ret_why[CKPT_OBJECTS_WHY_MAX],
		struct ckpt_objects **ret_objects)
{
	CLEANUP(s3_cleanup) struct ckpt_s3 *s3 = calloc(1, sizeof(*s3));
	int rc;

	*ret_why = '\0';
	if (!s3)
		return -ENOMEM;
	s3->base.ops = &s3_ops;
	s3->config = *config;
	s3->writable = writable;
	ckpt_lock_init(&s3->lock, CKPT_LOCK_LEAF);
	rc = set_up(s3, ret_why);
	if (!rc)
		*ret_objects = &TAKE_PTR(s3)->base;
	return rc;
}

int ckpt_s3_open(const struct ckpt_objects_at *at, struct ckpt_objects **ret_objects)
{
	char why[CKPT_OBJECTS_WHY_MAX];
	struct ckpt_s3_config config;
	int rc = ckpt_s3_config_parse(at->url, at->options, &config, why);

	if (!rc)
		rc = ckpt_s3_new(&config, at->writable, why, ret_objects);
	if (at->why)
		strcpy(at->why, why);
	return rc;
}
