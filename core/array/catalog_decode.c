// The bytes may be damaged, or another's. Each number is compared with what may hold it before its first use. Arrays and pieces are added only
// when they were checked whole. Memory comes from ckpt_catalog_room(), which has a limit.
#include "core/array/catalog_form.h"

#include "core/array/array_format.h"
#include "core/array/catalog_rows.h"
#include "core/base/util.h"
#include "core/codec/codec_zstd.h"
#include "core/limits.h"

#define FAULTS_MAX 1000
#define FAULT_TEXT_MAX (64u << 10)

// Those of the readers: a catalog points to them.
static const char *const formats[] = {
	"npy",   "npz",   "safetensors", "torch", "deepspeed", "gguf",       "dcp",
	"zarr2", "zarr3", "ocdbt",       "hdf5",  "msgpack",   "descriptor", "eformer",
};

struct reader {
	const uint8_t *at, *end;
	struct ckpt_catalog *c;
	uint32_t *words; // in the text of c
	size_t word_count;
	struct ckpt_form_place before;
	unsigned array_bits; // that its form has
	int rc;              // the first error: nothing is taken any more
};

uint64_t ckpt_form_expect(const struct ckpt_catalog_array *a, const uint64_t *extent, uint64_t *ret_strides)
{
	uint64_t bytes = ckpt_dtype_width(a->dtype), step = 1;

	for (unsigned i = a->ndim; i-- > 0;) {
		ret_strides[i] = step;
		if (__builtin_mul_overflow(step, MAX(extent[i], UINT64_C(1)), &step))
			step = UINT64_MAX;
		if (__builtin_mul_overflow(bytes, extent[i], &bytes))
			bytes = UINT64_MAX;
	}
	return bytes;
}

// --- Parts --------------------------------------------------------------------------------------------------------------

static void refuse(struct reader *r, int rc)
{
	if (!r->rc)
		r->rc = rc;
	r->at = r->end;
}

static const uint8_t *take_bytes(struct reader *r, uint64_t len)
{
	const uint8_t *at = r->at;

	if (r->rc || len > (size_t)(r->end - r->at)) {
		refuse(r, -EBADMSG);
		return NULL;
	}
	r->at += len;
	return at;
}

static unsigned take_byte(struct reader *r)
{
	const uint8_t *byte = take_bytes(r, 1);

	return byte ? *byte : 0;
}

static uint64_t take_number(struct reader *r)
{
	uint64_t number = 0;

	for (unsigned shift = 0; shift < 64; shift += 7) {
		unsigned byte = take_byte(r);

		if (shift == 63 && byte > 1)
			break;
		number |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return r->rc ? 0 : number;
	}
	refuse(r, -EBADMSG);
	return 0;
}

static void take_numbers(struct reader *r, uint64_t *ret, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		ret[i] = take_number(r);
}

// At most max; each of what is counted has a byte at least.
static size_t take_count(struct reader *r, uint64_t max)
{
	uint64_t count = take_number(r);

	if (count <= max && count <= (size_t)(r->end - r->at))
		return (size_t)count;
	refuse(r, -EBADMSG);
	return 0;
}

// Of the catalog: there is no room for what it says.
static bool added(struct reader *r, int rc)
{
	if (rc)
		refuse(r, rc == -EFBIG ? -EBADMSG : rc);
	return !r->rc;
}

// The text's place in that of the catalog.
static uint32_t take_text(struct reader *r, size_t max, size_t min)
{
	size_t len = take_count(r, max);
	const uint8_t *text = take_bytes(r, len);
	uint32_t at = 0;

	if (len < min || (text && memchr(text, '\0', len)))
		refuse(r, -EBADMSG);
	if (!r->rc)
		(void)added(r, ckpt_catalog_add_bytes(r->c, text, len, &at));
	return at;
}

static uint32_t take_word(struct reader *r)
{
	uint64_t word = take_number(r);

	if (!r->rc && word >= r->word_count)
		refuse(r, -EBADMSG);
	return r->rc ? 0 : (uint32_t)word;
}

static void take_words(struct reader *r)
{
	size_t count = take_count(r, CKPT_CATALOG_PLAIN_MAX);

	r->words = r->rc ? NULL : ckpt_calloc(count + 1, sizeof(*r->words));
	if (!r->words)
		refuse(r, -ENOMEM);
	for (; r->word_count < count && !r->rc; r->word_count++) {
		uint32_t *word = &r->words[r->word_count];

		*word = take_text(r, CKPT_ARRAY_NAME_MAX, 1);
		if (!r->rc && r->word_count && strcmp(r->c->text + word[-1], r->c->text + *word) >= 0)
			refuse(r, -EBADMSG);
	}
}

// --- Pieces -------------------------------------------------------------------------------------------------------------

static void take_codecs(struct reader *r, uint8_t codecs[CKPT_PIECE_CODECS_MAX])
{
	const uint8_t *bytes = take_bytes(r, CKPT_PIECE_CODECS_MAX);

	for (unsigned i = 0; bytes && i < CKPT_PIECE_CODECS_MAX; i++) {
		codecs[i] = bytes[i];
		if (bytes[i] >= CKPT_PIECE_CODECS)
			refuse(r, -ENOTSUP);
		else if (i && bytes[i] && !bytes[i - 1])
			refuse(r, -EBADMSG);
	}
}

static bool is_in_array(const struct row *row, const struct ckpt_catalog *c, const uint64_t *start,
			const uint64_t *extent)
{
	for (unsigned i = 0; i < row->ndim; i++) {
		uint64_t size = c->numbers[row->shape + i];

		if (start[i] > size || extent[i] > size - start[i])
			return false;
	}
	return true;
}

// Elements of bytes that are no numbers, or that are decoded first, are not counted.
static bool has_elements(const struct row *row, const struct piece *p, const uint64_t *extent, const uint64_t *strides)
{
	unsigned __int128 last = p->first;

	if (row->why != NONE || p->codecs[0])
		return true;
	for (unsigned i = 0; i < row->ndim; i++) {
		if (!extent[i])
			return true;
		last += (unsigned __int128)(extent[i] - 1) * strides[i];
	}
	return (last + 1) * ckpt_dtype_width(row->dtype) <= p->bytes;
}

static void take_piece(struct reader *r, struct row *row)
{
	uint64_t start[CKPT_ARRAY_DIMS_MAX] = {0}, extent[CKPT_ARRAY_DIMS_MAX], strides[CKPT_ARRAY_DIMS_MAX];
	struct ckpt_catalog_array a = {.dtype = row->dtype, .ndim = row->ndim};
	struct ckpt_catalog *c = r->c;
	struct piece p = {.data = NONE};
	unsigned bits = take_byte(r);
	uint64_t end;

	r->before.file = bits & CKPT_FORM_FILE ? take_word(r) : r->before.file;
	p.offset = bits & CKPT_FORM_OFFSET ? take_number(r) : r->before.end;
	p.bytes = bits & CKPT_FORM_BYTES ? take_number(r) : 0;
	if (bits & CKPT_FORM_CODECS)
		take_codecs(r, p.codecs);
	if (row->ndim)
		memcpy(extent, c->numbers + row->shape, row->ndim * sizeof(*extent));
	if (bits & CKPT_FORM_BOX) {
		take_numbers(r, start, row->ndim);
		take_numbers(r, extent, row->ndim);
	}
	end = ckpt_form_expect(&a, extent, strides);
	p.bytes = bits & CKPT_FORM_BYTES ? p.bytes : end;
	if (bits & CKPT_FORM_STRIDES)
		take_numbers(r, strides, row->ndim);
	p.first = bits & CKPT_FORM_FIRST ? take_number(r) : 0;
	if (r->before.file >= r->word_count || __builtin_add_overflow(p.offset, p.bytes, &end) || end > INT64_MAX ||
	    !is_in_array(row, c, start, extent) || !has_elements(row, &p, extent, strides) ||
	    (bits & CKPT_FORM_DATA && p.offset))
		refuse(r, -EBADMSG);
	if (bits & CKPT_FORM_DATA) {
		const uint8_t *data = take_bytes(r, p.bytes);

		if (r->rc || !added(r, ckpt_catalog_add_bytes(c, data, (size_t)p.bytes, &p.data)))
			return;
	}
	if (r->rc)
		return;
	p.file = r->words[r->before.file];
	p.box = (uint32_t)c->number_count;
	r->before.end = end;
	if (added(r, ckpt_catalog_add_numbers(c, start, row->ndim)) &&
	    added(r, ckpt_catalog_add_numbers(c, extent, row->ndim)) &&
	    added(r, ckpt_catalog_add_numbers(c, strides, row->ndim)) &&
	    added(r, ckpt_catalog_room(c, &c->pieces, &c->piece_cap, c->piece_count + 1, sizeof(p))))
		c->pieces[c->piece_count++] = p;
}

// --- Arrays -------------------------------------------------------------------------------------------------------------

static const char *format_of(struct reader *r, uint32_t word)
{
	for (size_t i = 0; i < ARRAY_LEN(formats) && !r->rc; i++)
		if (!strcmp(formats[i], r->c->text + r->words[word]))
			return formats[i];
	refuse(r, -ENOTSUP);
	return NULL;
}

static uint32_t take_why(struct reader *r)
{
	uint64_t why = take_number(r);

	if (why > r->word_count)
		refuse(r, -EBADMSG);
	return why && !r->rc ? r->words[why - 1] : NONE;
}

static void take_shape(struct reader *r, struct row *row)
{
	uint64_t shape[CKPT_ARRAY_DIMS_MAX], elements, bytes;

	take_numbers(r, shape, row->ndim);
	if (r->rc || !ckpt_array_elements(shape, row->ndim, &elements) ||
	    (row->why == NONE && (__builtin_mul_overflow(elements, (uint64_t)ckpt_dtype_width(row->dtype), &bytes) ||
				  bytes > INT64_MAX / 2)))
		refuse(r, -EBADMSG);
	row->shape = (uint32_t)r->c->number_count;
	if (!r->rc)
		(void)added(r, ckpt_catalog_add_numbers(r->c, shape, row->ndim));
}

static void take_fill(struct reader *r, struct row *row)
{
	unsigned width = ckpt_dtype_width(row->dtype);
	const uint8_t *fill = take_bytes(r, width);

	if (!width)
		refuse(r, -EBADMSG);
	if (!r->rc)
		(void)added(r, ckpt_catalog_add_bytes(r->c, fill, width, &row->fill));
}

// Of the array that is taken.
static void take_digest(struct reader *r)
{
	const uint8_t *digest = take_bytes(r, CKPT_ARRAY_DIGEST_LEN);

	if (digest)
		(void)added(r, ckpt_catalog_set_digest(r->c, r->c->count, digest));
}

static void take_array(struct reader *r)
{
	struct ckpt_catalog *c = r->c;
	struct row row = {.fill = NONE, .piece = (uint32_t)c->piece_count};
	uint32_t tree = take_word(r);
	unsigned bits;

	row.name = take_text(r, CKPT_ARRAY_NAME_MAX, 0);
	row.format = format_of(r, take_word(r));
	row.why = take_why(r);
	row.dtype = (uint8_t)take_byte(r);
	bits = take_byte(r);
	row.ndim = (uint8_t)take_byte(r);
	row.big_endian = bits & CKPT_FORM_BIG_ENDIAN;
	if (row.dtype >= CKPT_DTYPE_COUNT || bits & ~r->array_bits || row.ndim > CKPT_ARRAY_DIMS_MAX ||
	    (!row.dtype && row.why == NONE))
		refuse(r, -EBADMSG);
	if (r->rc)
		return;
	row.tree = r->words[tree];
	take_shape(r, &row);
	if (bits & CKPT_FORM_FILL)
		take_fill(r, &row);
	if (bits & CKPT_FORM_DIGEST)
		take_digest(r);
	row.pieces = (uint32_t)take_count(r, UINT32_MAX);
	for (uint32_t k = 0; k < row.pieces && !r->rc; k++)
		take_piece(r, &row);
	if (!r->rc && added(r, ckpt_catalog_room(c, &c->rows, &c->row_cap, c->count + 1, sizeof(row))))
		c->rows[c->count++] = row;
}

static void take_faults(struct reader *r)
{
	size_t count = take_count(r, FAULTS_MAX);
	struct ckpt_catalog *c = r->c;

	for (size_t i = 0; i < count && !r->rc; i++) {
		struct fault f;

		f.file = take_text(r, FAULT_TEXT_MAX, 1);
		f.field = take_text(r, FAULT_TEXT_MAX, 1);
		f.reason = take_text(r, FAULT_TEXT_MAX, 1);
		if (!r->rc && added(r, ckpt_catalog_room(c, &c->faults, &c->fault_cap, c->fault_count + 1, sizeof(f))))
			c->faults[c->fault_count++] = f;
	}
}

static int take_all(struct reader *r)
{
	size_t count;

	r->before.file = UINT32_MAX;
	take_words(r);
	count = take_count(r, UINT32_MAX);
	for (size_t i = 0; i < count && !r->rc; i++)
		take_array(r);
	take_faults(r);
	if (!r->rc && r->at != r->end)
		refuse(r, -EBADMSG);
	free(r->words);
	return r->rc;
}

// --- The whole ----------------------------------------------------------------------------------------------------------

static int unpack(const uint8_t *bytes, size_t len, uint8_t **ret_plain, uint32_t *ret_len, uint32_t *ret_form)
{
	uint32_t plain_len = len < FORM_HEAD ? 0 : ckpt_get32(bytes + FORM_PLAIN);
	uint32_t form = len < FORM_HEAD ? CKPT_CATALOG_FORM : ckpt_get32(bytes + FORM_VERSION);
	CLEANUP_FREE uint8_t *plain = NULL;
	struct ckpt_zstd *z;
	int rc;

	if (form != CKPT_CATALOG_FORM && form != CKPT_CATALOG_FORM_PLAIN)
		return -ENOTSUP;
	if (len < FORM_HEAD || len > CKPT_CATALOG_STORED_MAX || !plain_len || plain_len > CKPT_CATALOG_PLAIN_MAX)
		return -EBADMSG;
	plain = malloc(plain_len);
	rc = plain ? ckpt_zstd_new(&z) : -ENOMEM;
	if (rc)
		return rc;
	rc = ckpt_zstd_decode(z, bytes + FORM_HEAD, (uint32_t)(len - FORM_HEAD), plain, plain_len, plain_len);
	ckpt_zstd_free(z);
	if (rc)
		return rc;
	*ret_plain = TAKE_PTR(plain);
	*ret_len = plain_len;
	*ret_form = form;
	return 0;
}

int ckpt_catalog_decode(const void *bytes, size_t len, struct ckpt_catalog **ret_catalog)
{
	CLEANUP_FREE uint8_t *plain = NULL;
	struct reader r = {0};
	uint32_t plain_len, form;
	int rc = unpack(bytes, len, &plain, &plain_len, &form);

	if (!rc)
		rc = ckpt_catalog_new(&r.c);
	if (rc)
		return rc;
	r.array_bits = form == CKPT_CATALOG_FORM ? CKPT_FORM_ARRAY_BITS : CKPT_FORM_ARRAY_BITS & ~CKPT_FORM_DIGEST;
	r.at = plain;
	r.end = plain + plain_len;
	rc = take_all(&r);
	if (rc)
		ckpt_catalog_free(r.c);
	else
		*ret_catalog = r.c;
	return rc;
}
