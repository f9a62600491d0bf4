#include "core/view/array_row.h"

#include "core/array/array_format.h"
#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/base/util.h"
#include "core/record/name.h"

#include <stdio.h>

// An array of more bytes than a number has is listed, with its reason.
uint64_t ckpt_array_bytes(const struct ckpt_catalog_array *a)
{
	uint64_t elements, bits;

	if (!ckpt_array_elements(a->shape, a->ndim, &elements) ||
	    __builtin_mul_overflow(elements, (uint64_t)ckpt_dtype_bits(a->dtype), &bits))
		return INT64_MAX;
	return bits / 8 + (bits % 8 != 0);
}

// --- Text -------------------------------------------------------------------------------------------------------------------

int ckpt_row_text_add(struct ckpt_row_text *t, const char *bytes, size_t len)
{
	int rc = ckpt_grow((void **)&t->at, &t->cap, t->len + len, 1);

	if (rc)
		return rc;
	memcpy(t->at + t->len, bytes, len);
	t->len += len;
	return 0;
}

void ckpt_row_text_done(struct ckpt_row_text *t)
{
	free(t->at);
	*t = (struct ckpt_row_text){0};
}

static int add_plain(struct ckpt_row_text *t, const char *plain)
{
	return ckpt_row_text_add(t, plain, strlen(plain));
}

static int add_dumped(const char *bytes, size_t len, void *t)
{
	return ckpt_row_text_add(t, bytes, len);
}

// A string, or null where there is none.
static int add_string(struct ckpt_row_text *t, const char *before, const char *string)
{
	CLEANUP_FREE char *clean = string ? ckpt_name_clean(string) : NULL;
	json_t *json = clean ? json_string(clean) : NULL;
	int rc = string && !json ? -ENOMEM : add_plain(t, before);

	if (!rc && json)
		rc = json_dump_callback(json, add_dumped, t, JSON_ENCODE_ANY) ? -ENOMEM : 0;
	else if (!rc)
		rc = add_plain(t, "null");
	json_decref(json);
	return rc;
}

static int add_number(struct ckpt_row_text *t, const char *before, uint64_t number)
{
	char digits[24];
	int rc = add_plain(t, before);

	snprintf(digits, sizeof(digits), "%lld", (long long)number);
	return rc ? rc : add_plain(t, digits);
}

static int add_numbers(struct ckpt_row_text *t, const char *before, const uint64_t *list, unsigned count)
{
	int rc = add_plain(t, before);

	for (unsigned i = 0; i < count && !rc; i++)
		rc = add_number(t, i ? ", " : "", list[i]);
	return rc ? rc : add_plain(t, "]");
}

// Names of codecs need no escape.
static int add_codecs(struct ckpt_row_text *t, const struct ckpt_piece *p)
{
	int rc = add_plain(t, ", \"codecs\": [");

	for (int i = 0; i < CKPT_PIECE_CODECS_MAX && p->codecs[i] && !rc; i++) {
		rc = add_plain(t, i ? ", \"" : "\"");
		if (!rc)
			rc = add_plain(t, ckpt_piece_codec_name(p->codecs[i]));
		if (!rc)
			rc = add_plain(t, "\"");
	}
	return rc ? rc : add_plain(t, "]");
}

static int add_piece(struct ckpt_row_text *t, const struct ckpt_piece *p, unsigned ndim)
{
	int rc = add_string(t, "{\"file\": ", p->file);

	if (!rc)
		rc = add_number(t, ", \"offset\": ", p->offset);
	if (!rc)
		rc = add_number(t, ", \"bytes\": ", p->bytes);
	if (!rc)
		rc = add_numbers(t, ", \"start\": [", p->start, ndim);
	if (!rc)
		rc = add_numbers(t, ", \"extent\": [", p->extent, ndim);
	if (!rc && p->codecs[0])
		rc = add_codecs(t, p);
	return rc ? rc : add_plain(t, "}");
}

static const char *digest_of(const struct ckpt_catalog_array *a, char hex[2 * CKPT_ARRAY_DIGEST_LEN + 1])
{
	if (!a->digest)
		return NULL;
	ckpt_hex(a->digest, CKPT_ARRAY_DIGEST_LEN, hex);
	return hex;
}

int ckpt_array_row_text(const struct ckpt_catalog *c, size_t i, struct ckpt_row_text *t)
{
	char hex[2 * CKPT_ARRAY_DIGEST_LEN + 1];
	struct ckpt_catalog_array a;
	int rc;

	ckpt_catalog_get(c, i, &a);
	rc = add_string(t, "{\"name\": ", a.name);
	if (!rc)
		rc = add_string(t, ", \"tree\": ", a.tree);
	if (!rc)
		rc = add_string(t, ", \"dtype\": ", ckpt_dtype_numpy(a.dtype));
	if (!rc)
		rc = add_numbers(t, ", \"shape\": [", a.shape, a.ndim);
	if (!rc)
		rc = add_number(t, ", \"bytes\": ", ckpt_array_bytes(&a));
	if (!rc)
		rc = add_string(t, ", \"format\": ", a.format);
	if (!rc)
		rc = add_plain(t, ", \"pieces\": [");
	for (size_t k = 0; k < a.pieces && !rc; k++) {
		struct ckpt_piece p;

		ckpt_catalog_piece(c, i, k, &p);
		rc = k ? add_plain(t, ", ") : 0;
		if (!rc)
			rc = add_piece(t, &p, a.ndim);
	}
	if (!rc)
		rc = add_string(t, "], \"why\": ", a.why);
	if (!rc)
		rc = add_string(t, ", \"digest\": ", digest_of(&a, hex));
	return rc ? rc : add_plain(t, "}");
}

// --- Values -----------------------------------------------------------------------------------------------------------------

int ckpt_array_fault_text(const struct ckpt_catalog *c, size_t i, struct ckpt_row_text *t)
{
	struct ckpt_catalog_fault f;
	int rc;

	ckpt_catalog_fault(c, i, &f);
	rc = add_string(t, "{\"name\": null, \"tree\": null, \"file\": ", f.file);
	if (!rc)
		rc = add_string(t, ", \"field\": ", f.field);
	if (!rc)
		rc = add_string(t, ", \"why\": ", f.reason);
	return rc ? rc : add_plain(t, "}");
}

json_t *ckpt_array_row(const struct ckpt_catalog *c, size_t i)
{
	struct ckpt_row_text t = {0};
	json_t *row = NULL;

	if (ckpt_array_row_text(c, i, &t) || ckpt_json_load(t.at, t.len, 0, NULL, &row))
		row = NULL;
	ckpt_row_text_done(&t);
	return row;
}

static json_t *text(const char *bytes)
{
	CLEANUP_FREE char *clean = ckpt_name_clean(bytes);

	return clean ? json_string(clean) : NULL;
}

static json_t *numbers(const uint64_t *list, unsigned count)
{
	json_t *array = json_array();

	for (unsigned i = 0; array && i < count; i++)
		if (json_array_append_new(array, json_integer((json_int_t)list[i]))) {
			json_decref(array);
			return NULL;
		}
	return array;
}

json_t *ckpt_array_head(const struct ckpt_catalog *c, size_t i)
{
	char hex[2 * CKPT_ARRAY_DIGEST_LEN + 1];
	struct ckpt_catalog_array a;

	ckpt_catalog_get(c, i, &a);
	return json_pack("{s:o, s:o, s:s?, s:o, s:I, s:s, s:I, s:s?, s:s?}", "name", text(a.name), "tree", text(a.tree),
			 "dtype", ckpt_dtype_numpy(a.dtype), "shape", numbers(a.shape, a.ndim), "bytes",
			 (json_int_t)ckpt_array_bytes(&a), "format", a.format, "pieces", (json_int_t)a.pieces, "why",
			 a.why, "digest", digest_of(&a, hex));
}
