// The ranges are sorted, and what they cover is cut into pieces: each is one request. What comes is copied to each range that wants it,
// on the thread of the requests.
#include "backends/s3_get.h"

#include "backends/s3_sum.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#include <inttypes.h>
#include <stdio.h>

#define PIECE_BYTES_MAX (32u << 20)
#define GAP_BYTES_MAX (64u << 10) // read for nothing, rather than asking once more
#define AT_ONCE 8                 // requests of one call

struct piece {
	struct ckpt_s3_request *request;
	struct ckpt_range **sorted; // all of the call
	size_t count;
	uint64_t offset;
	size_t len;
	// Of the answer, on the thread of the requests until it has ended.
	bool begun;
	uint64_t at, total; // where the next byte belongs; the size of the object
	bool is_whole;      // all of the object comes, not the range
	bool is_past;       // the object ends before it
	struct ckpt_object object;
};

static uint64_t end_of(uint64_t offset, uint64_t len)
{
	uint64_t end;

	return __builtin_add_overflow(offset, len, &end) ? UINT64_MAX : end;
}

// --- What comes ---------------------------------------------------------------------------------------------------------

static bool number(const char **at, char behind, uint64_t *ret_number)
{
	char *end;

	if (**at < '0' || **at > '9')
		return false;
	errno = 0;
	*ret_number = strtoull(*at, &end, 10);
	if (errno || *end != behind)
		return false;
	*at = end + (behind != '\0');
	return true;
}

// "bytes 0-9/100", of just what was asked for, as far as there is something.
static bool parse_content_range(const char *text, struct piece *p)
{
	uint64_t first, last;

	if (strncmp(text, "bytes ", 6) != 0)
		return false;
	text += 6;
	return number(&text, '-', &first) && number(&text, '/', &last) && number(&text, '\0', &p->total) &&
	       first == p->offset && p->total > first && last == MIN(end_of(p->offset, p->len), p->total) - 1;
}

// Some stores give all of the object where a range was asked for.
static int begin(struct piece *p, const struct ckpt_http_answer *answer)
{
	char range[96], length[32];
	const char *text = length;
	uint64_t bytes;

	p->begun = true;
	ckpt_http_header(answer, "content-range", range, sizeof(range));
	ckpt_http_header(answer, "content-length", length, sizeof(length));
	p->at = p->offset;
	if (*range)
		return parse_content_range(range, p) ? 0 : -EIO;
	if (answer->status != 200 || !number(&text, '\0', &bytes))
		return -EIO;
	p->is_whole = true;
	p->at = 0;
	p->total = bytes;
	return 0;
}

static void scatter(const struct piece *p, const char *data, uint64_t from, uint64_t end)
{
	for (size_t i = 0; i < p->count; i++) {
		const struct ckpt_range *r = p->sorted[i];
		uint64_t first = MAX(from, r->offset), last = MIN(end, end_of(r->offset, r->len));

		if (r->offset >= end)
			break;
		if (first < last)
			memcpy((char *)r->buf + (first - r->offset), data + (first - from), (size_t)(last - first));
	}
}

static int take(void *arg, const struct ckpt_http_answer *answer, const void *data, size_t len)
{
	struct piece *p = arg;
	uint64_t end = p->offset + p->len, first, last;
	int rc = p->begun ? 0 : begin(p, answer);

	if (rc)
		return rc;
	first = MAX(p->at, p->offset);
	last = MIN(p->at + len, end);
	if (first < last)
		scatter(p, (const char *)data + (first - p->at), first, last);
	p->at += len;
	if (p->at > p->total || (!p->is_whole && p->at > end))
		return -EIO;
	return p->is_whole && p->at >= end && p->at < p->total; // enough
}

// --- Requests -----------------------------------------------------------------------------------------------------------

static int start(struct ckpt_s3 *s3, const char *key, const struct ckpt_until *until, struct piece *p)
{
	struct ckpt_s3_request *r = p->request = ckpt_s3_request_new(s3, "GET", key);
	int rc = r ? 0 : -ENOMEM;

	if (!rc)
		rc = ckpt_s3_request_header(r, "range: bytes=%" PRIu64 "-%" PRIu64, p->offset, p->offset + p->len - 1);
	if (!rc && !p->offset)
		rc = ckpt_s3_request_header(r, "x-amz-checksum-mode: ENABLED");
	if (rc)
		return rc;
	r->until = until;
	r->len = p->len;
	r->take = take;
	r->arg = p;
	ckpt_s3_request_start(r);
	return 0;
}

static int check(struct ckpt_s3 *s3, const char *key, struct piece *p)
{
	int rc = p->begun ? 0 : begin(p, &p->request->call.answer); // an empty body was never taken

	p->is_past = p->total <= p->offset;
	if (!rc && !p->is_past && p->at < MIN(p->offset + p->len, p->total))
		rc = -EIO;
	if (!rc && !ckpt_s3_request_object(p->request, &p->object))
		rc = -EIO;
	p->object.bytes = p->total;
	if (!rc && !ckpt_s3_sum_check(p->request, p->sorted, p->count, p->total)) {
		ckpt_s3_say(s3, "GET %s: its SHA-256 is not the one that the store gives with it", key);
		return -EIO;
	}
	if (rc)
		ckpt_s3_say(s3, "GET %s: the answer is not the range that was asked for, or has no etag", key);
	return rc;
}

static int end(struct ckpt_s3 *s3, const char *key, struct piece *p)
{
	int rc = ckpt_s3_request_end(p->request);

	p->is_past = p->request->status == 416;
	if (!p->is_past && !rc)
		rc = check(s3, key, p);
	ckpt_s3_request_free(&p->request);
	p->request = NULL;
	return p->is_past ? 0 : rc;
}

// --- Pieces -------------------------------------------------------------------------------------------------------------

struct pieces {
	struct piece *all;
	size_t count, cap;
};

static int add_pieces(struct pieces *list, struct ckpt_range **sorted, size_t count, uint64_t offset, uint64_t stop)
{
	while (offset < stop) {
		size_t len = (size_t)MIN(stop - offset, (uint64_t)PIECE_BYTES_MAX);

		if (ckpt_grow((void **)&list->all, &list->cap, list->count + 1, sizeof(*list->all)))
			return -ENOMEM;
		list->all[list->count++] =
			(struct piece){.sorted = sorted, .count = count, .offset = offset, .len = len};
		offset += len;
	}
	return 0;
}

// No object is larger than an int64_t says: what is asked for behind that is past its end.
static int cut(struct ckpt_range **sorted, size_t count, struct pieces *ret_pieces)
{
	uint64_t offset = 0, stop = 0;
	int rc = 0;

	for (size_t i = 0; i < count && !rc; i++) {
		uint64_t end_at = MIN(end_of(sorted[i]->offset, sorted[i]->len), (uint64_t)INT64_MAX);

		if (!sorted[i]->len || sorted[i]->offset >= INT64_MAX)
			continue;
		if (stop && sorted[i]->offset <= end_of(stop, GAP_BYTES_MAX)) {
			stop = MAX(stop, end_at);
			continue;
		}
		rc = add_pieces(ret_pieces, sorted, count, offset, stop);
		offset = sorted[i]->offset;
		stop = end_at;
	}
	return rc ? rc : add_pieces(ret_pieces, sorted, count, offset, stop);
}

static int by_offset(const void *a, const void *b)
{
	uint64_t x = (*(struct ckpt_range *const *)a)->offset, y = (*(struct ckpt_range *const *)b)->offset;

	return (x > y) - (x < y);
}

// Each that was started is ended, whatever came of those before it: it writes to the caller's memory.
static int get_pieces(struct ckpt_s3 *s3, const char *key, const struct ckpt_until *until, struct pieces *list)
{
	size_t started = 0;
	int rc = 0, r;

	for (size_t i = 0; i < list->count; i++) {
		for (; started < list->count && started < i + AT_ONCE && !rc; started++)
			rc = start(s3, key, until, &list->all[started]);
		if (!list->all[i].request)
			continue;
		r = end(s3, key, &list->all[i]);
		rc = rc ? rc : r;
	}
	return rc;
}

static void take_version(const struct pieces *list, bool *ret_is_known, int *rc, struct ckpt_object *ret_object)
{
	for (size_t i = 0; i < list->count && !*rc; i++) {
		const struct piece *p = &list->all[i];

		if (!*p->object.etag)
			continue;
		if (*ret_is_known && strcmp(p->object.etag, ret_object->etag) != 0)
			*rc = -ESTALE;
		*ret_is_known = true;
		*ret_object = p->object;
	}
}

// A piece that lies past the end says nothing of the object, and one that changed meanwhile may have been longer.
static int settle(const struct pieces *list, struct ckpt_range *ranges, size_t count, const struct ckpt_object *object)
{
	for (size_t i = 0; i < list->count; i++)
		if (list->all[i].is_past && list->all[i].offset < object->bytes)
			return -ESTALE;
	for (size_t i = 0; i < count; i++)
		ranges[i].got = ranges[i].offset < object->bytes
					? (size_t)MIN((uint64_t)ranges[i].len, object->bytes - ranges[i].offset)
					: 0;
	return 0;
}

int ckpt_s3_get_ranges(struct ckpt_s3 *s3, const char *key, struct ckpt_range *ranges, size_t count,
		       const struct ckpt_until *until, struct ckpt_object *ret_object)
{
	CLEANUP_FREE struct ckpt_range **sorted = calloc(count, sizeof(*sorted));
	struct pieces list = {0};
	bool is_known = false;
	int rc = sorted ? 0 : -ENOMEM;

	for (size_t i = 0; i < count && !rc; i++)
		sorted[i] = &ranges[i];
	if (!rc)
		qsort(sorted, count, sizeof(*sorted), by_offset);
	if (!rc)
		rc = cut(sorted, count, &list);
	if (!rc)
		rc = get_pieces(s3, key, until, &list);
	take_version(&list, &is_known, &rc, ret_object);
	if (!rc && !is_known)
		rc = ckpt_s3_head(s3, key, until, ret_object);
	if (!rc)
		rc = settle(&list, ranges, count, ret_object);
	free(list.all);
	return rc;
}

// --- Head ---------------------------------------------------------------------------------------------------------------

static int ask_head(struct ckpt_s3 *s3, const char *key, const struct ckpt_until *until, int *ret_status,
		    struct ckpt_object *ret_object)
{
	CLEANUP(ckpt_s3_request_free) struct ckpt_s3_request *r = ckpt_s3_request_new(s3, "HEAD", key);
	char length[32];
	const char *text = length;
	int rc;

	if (!r)
		return -ENOMEM;
	r->until = until;
	rc = ckpt_s3_request_run(r);
	*ret_status = r->status;
	ckpt_http_header(&r->call.answer, "content-length", length, sizeof(length));
	if (!rc && (!ckpt_s3_request_object(r, ret_object) || !number(&text, '\0', &ret_object->bytes)))
		rc = -EIO;
	return rc;
}

// The answer to a HEAD has no body: why it was refused, and whether new keys would help, says a GET.
int ckpt_s3_head(struct ckpt_s3 *s3, const char *key, const struct ckpt_until *until, struct ckpt_object *ret_object)
{
	char byte;
	struct ckpt_range range = {.buf = &byte, .len = 1};
	struct ckpt_range *sorted = &range;
	struct piece piece = {.sorted = &sorted, .count = 1, .len = 1};
	struct pieces one = {.all = &piece, .count = 1};
	int status = 0, rc = ask_head(s3, key, until, &status, ret_object);

	if (!rc || (status != 301 && status != 400 && status != 403))
		return rc;
	rc = get_pieces(s3, key, until, &one);
	return rc ? rc : ask_head(s3, key, until, &status, ret_object);
}
