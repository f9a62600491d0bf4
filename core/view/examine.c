#include "core/view/examine.h"

#include "core/array/array_digest.h"
#include "core/array/findings.h"
#include "core/base/json.h"
#include "core/base/util.h"
#include "core/cold/chunk.h"
#include "core/step/store.h"
#include "core/view/examine_known.h"
#include "core/view/step_arrays.h"

#include <stdio.h>

#define READ_TIMES 8 // the bytes of all files, and
#define READ_BASE (UINT64_C(256) << 20)

// --- The step before ----------------------------------------------------------------------------------------------------

static int64_t number_of(struct ckpt_step *step)
{
	CLEANUP_VERSION struct ckpt_version *version = ckpt_step_version(step);

	return version->is.number;
}

static bool is_before(struct ckpt_step *a, struct ckpt_step *b)
{
	int64_t x = number_of(a), y = number_of(b);

	return x >= 0 && y >= 0 ? x < y : a->born.sequence < b->born.sequence;
}

struct ckpt_step *ckpt_step_before(struct ckpt_step *step)
{
	struct ckpt_step **list, *found = NULL;
	struct ckpt_step_name name;
	size_t count;

	ckpt_step_name(step, &name);
	if (ckpt_step_list(step->store, name.folder_id, 1u << CKPT_STEP_COMMITTED, &list, &count))
		return NULL;
	for (size_t i = 0; i < count; i++)
		if (list[i] != step && is_before(list[i], step) && (!found || is_before(found, list[i])))
			found = list[i];
	if (found)
		ckpt_step_ref(found);
	ckpt_step_list_free(list, count);
	return found;
}

// --- The same bytes -----------------------------------------------------------------------------------------------------

// The end of the last range: arrays come mostly in the order of their bytes.
struct cursor {
	const struct ckpt_manifest *m;
	const char *file;
	struct ckpt_seal seal;
	uint32_t next; // chunk of the file
	uint64_t at;   // where it begins
};

struct sides {
	const struct ckpt_catalog *now, *before;
	struct cursor is, was;
	struct ckpt_step_arrays *arrays; // of now
};

// Before the chunk that begins at the offset. False: none does, or the file is not sealed.
static bool seek(struct cursor *c, const char *file, uint64_t offset)
{
	uint32_t index;

	if (!c->file || strcmp(c->file, file)) {
		c->file = NULL;
		if (ckpt_manifest_lookup(c->m, file, &index) || !ckpt_manifest_seal(c->m, index, &c->seal))
			return false;
		c->file = file;
		c->next = 0;
		c->at = 0;
	}
	if (c->at > offset)
		c->next = 0, c->at = 0;
	while (c->at < offset && c->next < c->seal.count) {
		struct ckpt_chunk chunk;

		ckpt_manifest_chunk(c->m, c->seal.first + c->next++, &chunk);
		c->at += chunk.bytes;
	}
	return c->at == offset;
}

static bool take(struct cursor *c, struct ckpt_chunk *ret_chunk)
{
	if (c->next == c->seal.count)
		return false;
	ckpt_manifest_chunk(c->m, c->seal.first + c->next++, ret_chunk);
	c->at += ret_chunk->bytes;
	return true;
}

// Chunks that are the piece and nothing else have the same ids, or the bytes are not the same.
static enum ckpt_findings_known compare_pieces(struct sides *s, const struct ckpt_piece *now,
					       const struct ckpt_piece *before)
{
	struct ckpt_chunk is, was;

	if (!seek(&s->is, now->file, now->offset) || !seek(&s->was, before->file, before->offset))
		return CKPT_FINDINGS_NOT_KNOWN;
	for (uint64_t done = 0; done < now->bytes; done += is.bytes) {
		if (!take(&s->is, &is) || !take(&s->was, &was) || is.bytes != was.bytes || is.bytes > now->bytes - done)
			return CKPT_FINDINGS_NOT_KNOWN;
		if (memcmp(is.id, was.id, sizeof(is.id)))
			return CKPT_FINDINGS_CHANGED;
	}
	return CKPT_FINDINGS_SAME;
}

static enum ckpt_findings_known same(void *arg, size_t now, size_t before)
{
	struct sides *s = arg;
	struct ckpt_catalog_array is, was;

	ckpt_catalog_get(s->now, now, &is);
	ckpt_catalog_get(s->before, before, &was);
	if (is.pieces != was.pieces || !is.pieces || is.big_endian != was.big_endian || is.fill || was.fill)
		return CKPT_FINDINGS_NOT_KNOWN;
	for (size_t k = 0; k < is.pieces; k++) {
		enum ckpt_findings_known known;
		struct ckpt_piece a, b;

		ckpt_catalog_piece(s->now, now, k, &a);
		ckpt_catalog_piece(s->before, before, k, &b);
		known = !a.data && !b.data && ckpt_piece_is_alike(&a, &b, is.ndim) ? compare_pieces(s, &a, &b)
										   : CKPT_FINDINGS_NOT_KNOWN;
		if (known == CKPT_FINDINGS_CHANGED && a.codecs[0]) // other bytes may be the same elements
			known = CKPT_FINDINGS_NOT_KNOWN;
		if (known != CKPT_FINDINGS_SAME)
			return known;
	}
	return CKPT_FINDINGS_SAME;
}

// --- Digests ------------------------------------------------------------------------------------------------------------

// The bytes of the piece are the elements, in their order.
static bool is_plain(const struct ckpt_catalog_array *a, const struct ckpt_piece *p)
{
	uint64_t bytes = ckpt_dtype_width(a->dtype);

	if (a->big_endian || p->data || p->codecs[0] || p->first || ckpt_dtype_bits(a->dtype) < 8)
		return false;
	for (unsigned i = a->ndim; i-- > 0;) {
		if (p->extent[i] != a->shape[i] ||
		    (a->shape[i] > 1 && p->strides[i] != bytes / ckpt_dtype_width(a->dtype)) ||
		    __builtin_mul_overflow(bytes, a->shape[i], &bytes))
			return false;
	}
	return bytes && bytes == p->bytes;
}

// Chunks that are the parts that its digest is made of have their SHA-256.
static bool know_digest(void *arg, size_t now, uint8_t ret_digest[CKPT_ARRAY_DIGEST_LEN])
{
	_Static_assert(CKPT_ARRAY_DIGEST_PART == CKPT_CHUNK_BYTES, "an array is cut into the parts of its digest");
	struct sides *s = arg;
	struct ckpt_array_digest digest;
	struct ckpt_catalog_array a;
	struct ckpt_chunk chunk;
	struct ckpt_piece p;

	ckpt_catalog_get(s->now, now, &a);
	if (a.why || a.fill || a.pieces != 1)
		return false;
	ckpt_catalog_piece(s->now, now, 0, &p);
	if (!is_plain(&a, &p) || !seek(&s->is, p.file, p.offset))
		return false;
	ckpt_array_digest_begin(&digest, p.bytes);
	for (uint64_t done = 0; done < p.bytes; done += chunk.bytes) {
		if (!take(&s->is, &chunk) || chunk.bytes != MIN(p.bytes - done, CKPT_ARRAY_DIGEST_PART))
			return false;
		ckpt_array_digest_add_part(&digest, chunk.id);
	}
	ckpt_array_digest_end(&digest, ret_digest);
	return true;
}

// There may be no room for it: then the array has none.
static void take_digest(void *arg, size_t now, const uint8_t digest[CKPT_ARRAY_DIGEST_LEN])
{
	struct sides *s = arg;

	(void)ckpt_step_arrays_set_digest(s->arrays, now, digest);
}

// Of those whose elements need not be read.
static void take_known_digests(struct sides *s)
{
	uint8_t digest[CKPT_ARRAY_DIGEST_LEN];

	for (size_t i = 0; i < ckpt_catalog_count(s->now); i++)
		if (know_digest(s, i, digest))
			take_digest(s, i, digest);
}

// --- Words --------------------------------------------------------------------------------------------------------------

static char *words_of(const struct ckpt_array_finding *f)
{
	CLEANUP_FREE char *text = NULL;
	const char *word = ckpt_array_finding_word(f->kind);
	int rc = f->file ? asprintf(&text, "%s %s: %s", word, f->file, f->detail)
			 : asprintf(&text, "%s %s:%s: %s", word, f->tree, f->name, f->detail);

	if (rc < 0) {
		text = NULL;
		return NULL;
	}
	return ckpt_name_clean(text);
}

// They are left out if there is no room: a name may be longer than all of it.
static int add_text(const char *text, json_t *first, size_t *bytes)
{
	size_t len = strlen(text);

	if (json_array_size(first) == CKPT_EXAMINED_MAX || len > CKPT_EXAMINED_BYTES_MAX - *bytes)
		return 0;
	*bytes += len;
	return json_array_append_new(first, json_string(text)) ? -ENOMEM : 0;
}

static int add_words(const struct ckpt_findings *f, const struct ckpt_examine_known *known, bool troubles,
		     json_t *first, size_t *bytes)
{
	const char *text;
	int rc = 0;

	for (size_t i = 0; !rc && i < f->count && json_array_size(first) < CKPT_EXAMINED_MAX; i++) {
		CLEANUP_FREE char *words = NULL;

		if (ckpt_array_finding_is_trouble(f->at[i].kind) != troubles)
			continue;
		words = words_of(&f->at[i]);
		rc = words ? add_text(words, first, bytes) : -ENOMEM;
	}
	for (size_t i = 0; !rc && (text = ckpt_examine_known_words(known, troubles, i)); i++)
		rc = add_text(text, first, bytes);
	return rc;
}

static int counts_of(const struct ckpt_findings *f, const struct ckpt_examine_known *known, json_t *counts,
		     uint64_t *troubles)
{
	*troubles = 0;
	for (int kind = 0; kind < CKPT_FINDING_KINDS; kind++) {
		uint64_t count = f->counts[kind] + ckpt_examine_known_count(known, kind);

		if (!count)
			continue;
		*troubles += ckpt_array_finding_is_trouble(kind) ? count : 0;
		if (json_object_set_new(counts, ckpt_array_finding_word(kind), json_integer((json_int_t)count)))
			return -ENOMEM;
	}
	return 0;
}

// not_read: arrays whose elements were left out; 0: no array's, or all, as headers alone were read.
static int put_into_words(const struct ckpt_findings *f, const struct ckpt_examine_known *known, size_t arrays,
			  bool elements, uint64_t not_read, struct ckpt_examined *ret)
{
	struct ckpt_examined e = {0};
	json_t *counts, *first;
	size_t bytes = 0;
	int rc;

	ckpt_json_begin();
	counts = json_object();
	first = json_array();
	rc = counts && first ? counts_of(f, known, counts, &e.troubles) : -ENOMEM;
	if (!rc)
		rc = add_words(f, known, true, first, &bytes);
	if (!rc && e.troubles) {
		const char *worst = json_string_value(json_array_get(first, 0));

		e.worst = strdup(worst ? worst : "its name is too long to be told here");
		rc = e.worst ? 0 : -ENOMEM;
	}
	if (!rc)
		rc = add_words(f, known, false, first, &bytes);
	e.json = ckpt_json_dump(rc ? NULL
				   : json_pack("{s:I, s:O, s:O, s:b, s:s, s:o*}", "arrays", (json_int_t)arrays,
					       "counts", counts, "first", first, "healthy", !e.troubles, "looked",
					       elements ? "elements" : "headers", "not_read",
					       not_read ? json_integer((json_int_t)not_read) : NULL),
				JSON_COMPACT | JSON_SORT_KEYS);
	json_decref(counts);
	json_decref(first);
	if (!rc && !e.json)
		rc = -ENOMEM;
	if (rc)
		ckpt_examined_done(&e);
	else
		*ret = e;
	return rc;
}

void ckpt_examined_done(struct ckpt_examined *e)
{
	free(e->catalog);
	free(e->json);
	free(e->worst);
	*e = (struct ckpt_examined){0};
}

// --- Looking ------------------------------------------------------------------------------------------------------------

static struct ckpt_findings_side side_of(struct ckpt_step *step, const struct ckpt_step_arrays *a)
{
	return (struct ckpt_findings_side){ckpt_step_arrays_catalog(a), ckpt_step_arrays_files(a), "", number_of(step)};
}

static uint64_t bytes_max(const struct ckpt_manifest *m)
{
	uint64_t files, bytes;

	ckpt_manifest_totals(m, &files, &bytes);
	return READ_BASE + READ_TIMES * MIN(bytes, UINT64_MAX / READ_TIMES / 2);
}

static int find_all(const struct ckpt_examine *how, struct ckpt_step_arrays *arrays,
		    const struct ckpt_findings_side *now, const struct ckpt_findings_side *before,
		    struct ckpt_findings *f, struct ckpt_examine_known *known, uint64_t *ret_not_read)
{
	struct sides sides = {.now = now->catalog, .is = {.m = how->m}, .arrays = arrays};
	struct ckpt_findings_reading reading = {.go_on = how->go_on,
						.arg = how->arg,
						.bytes_max = bytes_max(how->m),
						.take_digest = take_digest,
						.know_digest = know_digest,
						.digest_arg = &sides};
	int rc = ckpt_findings_of_headers(f, now);

	if (!rc && before)
		rc = ckpt_findings_since(f, now, before);
	if (before) {
		sides.before = before->catalog;
		sides.was.m = how->before_m;
		reading.same = same;
		reading.same_arg = &sides;
	}
	if (!rc && how->elements) {
		rc = ckpt_examine_known_find(how->step, how->m, arrays, known);
		if (rc == -ENOENT)
			rc = ckpt_findings_of_elements(f, now, before, &reading);
	} else if (!rc) {
		take_known_digests(&sides);
	}
	*ret_not_read = reading.not_read;
	return rc;
}

static bool goes_on(void *arg)
{
	const struct ckpt_examine *how = arg;

	return how->go_on(how->arg, 0);
}

int ckpt_examine(const struct ckpt_examine *how, struct ckpt_examined *ret)
{
	struct ckpt_catalog_stop stop = {.go_on = goes_on, .arg = (void *)how};
	struct ckpt_step_arrays *arrays = NULL, *arrays_before = NULL;
	struct ckpt_findings_side now, before;
	struct ckpt_examine_known known = {0};
	struct ckpt_findings found = {0};
	uint64_t not_read = 0;
	int rc = ckpt_step_arrays_read_until(how->step, how->m, "", how->go_on ? &stop : NULL, &arrays);

	*ret = (struct ckpt_examined){0};
	if (rc)
		return rc;
	now = side_of(how->step, arrays);
	if (how->before && ckpt_catalog_count(now.catalog)) {
		rc = ckpt_step_arrays_read_until(how->before, how->before_m, "", how->go_on ? &stop : NULL,
						 &arrays_before);
		if (!rc)
			before = side_of(how->before, arrays_before);
	}
	if (rc != -ENOMEM && rc != -EINTR)
		rc = find_all(how, arrays, &now, arrays_before ? &before : NULL, &found, &known, &not_read);
	if (!rc && (ckpt_catalog_count(now.catalog) || found.count))
		rc = put_into_words(&found, &known, ckpt_catalog_count(now.catalog), how->elements, not_read, ret);
	if (!rc && ckpt_catalog_count(now.catalog))
		rc = ckpt_step_arrays_encode(arrays, &ret->catalog, &ret->catalog_len);
	ckpt_findings_done(&found);
	ckpt_examine_known_done(&known);
	ckpt_step_arrays_free(arrays);
	ckpt_step_arrays_free(arrays_before);
	return rc;
}
