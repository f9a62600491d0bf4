#include "core/array/catalog_form.h"

#include "core/array/buffer.h"
#include "core/base/util.h"
#include "core/codec/codec_zstd.h"
#include "core/limits.h"

#define VARINT_MAX 10

// Trees, formats, reasons and files, sorted, each once: many rows share them.
struct words {
	const char **at;
	size_t count, cap;
	int rc;
};

struct writer {
	struct ckpt_buffer out;
	struct words words;
	struct ckpt_form_place before;
	bool too_large;
};

// --- Words --------------------------------------------------------------------------------------------------------------

static void add_word(struct words *w, const char *word)
{
	if (!word || (w->count && w->at[w->count - 1] == word) || w->rc)
		return;
	w->rc = ckpt_grow((void **)&w->at, &w->cap, w->count + 1, sizeof(*w->at));
	if (!w->rc)
		w->at[w->count++] = word;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void sort_words(struct words *w)
{
	size_t kept = 0;

	if (w->count)
		qsort(w->at, w->count, sizeof(*w->at), by_text);
	for (size_t i = 0; i < w->count; i++)
		if (!kept || strcmp(w->at[kept - 1], w->at[i]))
			w->at[kept++] = w->at[i];
	w->count = kept;
}

// One after the other, so that neighbours that share a word add it once.
static int collect_words(struct writer *w, const struct ckpt_catalog *c)
{
	struct ckpt_catalog_array a;
	struct ckpt_piece p;

	for (int round = 0; round < 4; round++)
		for (size_t i = 0; i < ckpt_catalog_count(c); i++) {
			ckpt_catalog_get(c, i, &a);
			if (round < 3)
				add_word(&w->words, round == 0 ? a.tree : round == 1 ? a.format : a.why);
			for (size_t k = 0; round == 3 && k < a.pieces; k++) {
				ckpt_catalog_piece(c, i, k, &p);
				add_word(&w->words, p.file);
			}
		}
	if (!w->words.rc)
		sort_words(&w->words);
	return w->words.rc;
}

static uint32_t word_of(const struct writer *w, const char *word)
{
	const char *const *found = bsearch(&word, w->words.at, w->words.count, sizeof(*w->words.at), by_text);

	return (uint32_t)(found - (const char *const *)w->words.at);
}

// --- Parts --------------------------------------------------------------------------------------------------------------

static void put_bytes(struct writer *w, const void *bytes, size_t len)
{
	w->too_large |= w->out.len > CKPT_CATALOG_PLAIN_MAX || len > CKPT_CATALOG_PLAIN_MAX;
	if (!w->too_large)
		ckpt_buffer_add(&w->out, bytes, len);
}

static void put_byte(struct writer *w, unsigned byte)
{
	put_bytes(w, &(uint8_t){(uint8_t)byte}, 1);
}

// Seven bits in a byte, the lowest first; the highest bit says that more follow.
static void put_number(struct writer *w, uint64_t number)
{
	uint8_t bytes[VARINT_MAX];
	size_t len = 0;

	do {
		bytes[len++] = (uint8_t)((number & 0x7f) | (number > 0x7f ? 0x80 : 0));
		number >>= 7;
	} while (number);
	put_bytes(w, bytes, len);
}

static void put_numbers(struct writer *w, const uint64_t *numbers, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		put_number(w, numbers[i]);
}

static void put_text(struct writer *w, const char *text)
{
	size_t len = strlen(text);

	put_number(w, len);
	put_bytes(w, text, len);
}

// --- Arrays -------------------------------------------------------------------------------------------------------------

static bool is_whole(const struct ckpt_catalog_array *a, const struct ckpt_piece *p)
{
	for (unsigned i = 0; i < a->ndim; i++)
		if (p->start[i] || p->extent[i] != a->shape[i])
			return false;
	return true;
}

static unsigned bits_of(const struct writer *w, const struct ckpt_catalog_array *a, const struct ckpt_piece *p,
			uint32_t file)
{
	static const uint8_t raw[CKPT_PIECE_CODECS_MAX];
	uint64_t strides[CKPT_ARRAY_DIMS_MAX];
	uint64_t bytes = ckpt_form_expect(a, p->extent, strides);

	return (file != w->before.file ? CKPT_FORM_FILE : 0) | (p->offset != w->before.end ? CKPT_FORM_OFFSET : 0) |
	       (p->bytes != bytes ? CKPT_FORM_BYTES : 0) |
	       (memcmp(p->codecs, raw, sizeof(raw)) ? CKPT_FORM_CODECS : 0) | (is_whole(a, p) ? 0 : CKPT_FORM_BOX) |
	       (a->ndim && memcmp(p->strides, strides, a->ndim * sizeof(*strides)) ? CKPT_FORM_STRIDES : 0) |
	       (p->first ? CKPT_FORM_FIRST : 0) | (p->data ? CKPT_FORM_DATA : 0);
}

static void put_piece(struct writer *w, const struct ckpt_catalog_array *a, const struct ckpt_piece *p)
{
	uint32_t file = word_of(w, p->file);
	unsigned bits = bits_of(w, a, p, file);

	put_byte(w, bits);
	if (bits & CKPT_FORM_FILE)
		put_number(w, file);
	if (bits & CKPT_FORM_OFFSET)
		put_number(w, p->offset);
	if (bits & CKPT_FORM_BYTES)
		put_number(w, p->bytes);
	if (bits & CKPT_FORM_CODECS)
		put_bytes(w, p->codecs, sizeof(p->codecs));
	if (bits & CKPT_FORM_BOX) {
		put_numbers(w, p->start, a->ndim);
		put_numbers(w, p->extent, a->ndim);
	}
	if (bits & CKPT_FORM_STRIDES)
		put_numbers(w, p->strides, a->ndim);
	if (bits & CKPT_FORM_FIRST)
		put_number(w, p->first);
	if (bits & CKPT_FORM_DATA)
		put_bytes(w, p->data, (size_t)p->bytes);
	w->before = (struct ckpt_form_place){p->offset + p->bytes, file};
}

static void put_array(struct writer *w, const struct ckpt_catalog *c, size_t i)
{
	struct ckpt_catalog_array a;
	struct ckpt_piece p;

	ckpt_catalog_get(c, i, &a);
	put_number(w, word_of(w, a.tree));
	put_text(w, a.name);
	put_number(w, word_of(w, a.format));
	put_number(w, a.why ? word_of(w, a.why) + UINT64_C(1) : 0);
	put_byte(w, a.dtype);
	put_byte(w, (a.big_endian ? CKPT_FORM_BIG_ENDIAN : 0) | (a.fill ? CKPT_FORM_FILL : 0) |
			    (a.digest ? CKPT_FORM_DIGEST : 0));
	put_byte(w, a.ndim);
	put_numbers(w, a.shape, a.ndim);
	if (a.fill)
		put_bytes(w, a.fill, ckpt_dtype_width(a.dtype));
	if (a.digest)
		put_bytes(w, a.digest, CKPT_ARRAY_DIGEST_LEN);
	put_number(w, a.pieces);
	for (size_t k = 0; k < a.pieces; k++) {
		ckpt_catalog_piece(c, i, k, &p);
		put_piece(w, &a, &p);
	}
}

static void put_faults(struct writer *w, const struct ckpt_catalog *c)
{
	put_number(w, ckpt_catalog_faults(c));
	for (size_t i = 0; i < ckpt_catalog_faults(c); i++) {
		struct ckpt_catalog_fault f;

		ckpt_catalog_fault(c, i, &f);
		put_text(w, f.file);
		put_text(w, f.field);
		put_text(w, f.reason);
	}
}

static int put_all(struct writer *w, const struct ckpt_catalog *c)
{
	int rc = collect_words(w, c);

	if (rc)
		return rc;
	w->before.file = UINT32_MAX;
	put_number(w, w->words.count);
	for (size_t i = 0; i < w->words.count; i++)
		put_text(w, w->words.at[i]);
	put_number(w, ckpt_catalog_count(c));
	for (size_t i = 0; i < ckpt_catalog_count(c) && !w->too_large; i++)
		put_array(w, c, i);
	put_faults(w, c);
	return w->out.rc ? w->out.rc : w->too_large || w->out.len > CKPT_CATALOG_PLAIN_MAX ? -EFBIG : 0;
}

// --- The whole ----------------------------------------------------------------------------------------------------------

static int pack(const struct ckpt_buffer *plain, uint32_t form, uint8_t *out, size_t *ret_len)
{
	struct ckpt_zstd *z;
	uint32_t stored;
	int rc = ckpt_zstd_new(&z);

	if (rc)
		return rc;
	rc = ckpt_zstd_encode(z, CKPT_ZSTD_FAST, plain->at, (uint32_t)plain->len, out + FORM_HEAD,
			      CKPT_CATALOG_STORED_MAX - FORM_HEAD, &stored);
	ckpt_zstd_free(z);
	if (rc)
		return rc == -ENOSPC ? -EFBIG : rc;
	ckpt_put32(out + FORM_VERSION, form);
	ckpt_put32(out + FORM_PLAIN, (uint32_t)plain->len);
	*ret_len = FORM_HEAD + stored;
	return 0;
}

int ckpt_catalog_encode(const struct ckpt_catalog *c, void **ret_bytes, size_t *ret_len)
{
	CLEANUP_FREE uint8_t *out = malloc(CKPT_CATALOG_STORED_MAX);
	struct writer w = {0};
	bool digests = false;
	size_t len = 0;
	void *bytes;
	int rc = out ? put_all(&w, c) : -ENOMEM;

	for (size_t i = 0; i < ckpt_catalog_count(c) && !digests; i++) {
		struct ckpt_catalog_array a;

		ckpt_catalog_get(c, i, &a);
		digests = a.digest;
	}
	if (!rc)
		rc = pack(&w.out, digests ? CKPT_CATALOG_FORM : CKPT_CATALOG_FORM_PLAIN, out, &len);
	free(w.words.at);
	ckpt_buffer_done(&w.out);
	bytes = rc ? NULL : malloc(len);
	if (!bytes)
		return rc ? rc : -ENOMEM;
	memcpy(bytes, out, len);
	*ret_bytes = bytes;
	*ret_len = len;
	return 0;
}
