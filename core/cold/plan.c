#include "core/cold/plan.h"

#include "core/array/array.h"
#include "core/base/util.h"
#include "core/cold/chunk.h"

#include <assert.h>

#define BLOCK_ELEMENTS 2048u // of an array, that are looked at: in the middle, where no padding is

// A large array that is chunks of its own.
struct array {
	uint32_t index; // of the file
	uint32_t first, count;
	uint64_t begin, bytes;
};

// An array as one of a pair.
struct half {
	uint64_t elements;
	uint64_t hash;   // of the block in the middle, as bf16
	uint64_t others; // of two more
	size_t array;
};

struct halves {
	struct half *at;
	size_t count, cap;
};

struct ckpt_plan {
	// While it is made.
	struct ckpt_manifest *m;
	bool (*go_on)(void *arg, uint64_t bytes);
	void *arg;
	// For good.
	struct ckpt_planned *chunks;
	uint32_t chunk_count;
	struct array *arrays;
	size_t array_count, array_cap;
	struct halves weights, masters;
};

// --- Blocks -------------------------------------------------------------------------------------------------------------

static uint16_t rounded(uint32_t x)
{
	return (uint16_t)((x + 0x7fff + (x >> 16 & 1)) >> 16);
}

// Those that are all alike say nothing: there are many.
static bool is_telling(const uint8_t *block)
{
	return memcmp(block, block + 2, (BLOCK_ELEMENTS - 1) * (size_t)2) != 0;
}

// As bf16, of an array whose elements have `width` bytes; part: of the four quarters, behind how many it is in the middle.
static bool read_block(const struct ckpt_source *s, const struct ckpt_array *a, unsigned width, unsigned part,
		       uint8_t *block)
{
	uint64_t first = (a->bytes / width - BLOCK_ELEMENTS) * part / 4;

	if (ckpt_source_read(s, a->offset + first * width, block, BLOCK_ELEMENTS * (size_t)width))
		return false;
	for (size_t i = 0; i < BLOCK_ELEMENTS && width == 4; i++)
		ckpt_put16(block + 2 * i, rounded(ckpt_get32(block + 4 * i)));
	return true;
}

// What cannot be read, or says nothing, is half of no pair.
static int add_half(struct halves *to, const struct ckpt_source *s, const struct ckpt_array *a, unsigned width,
		    size_t array)
{
	struct half half = {.elements = a->bytes / width, .array = array};
	uint8_t block[BLOCK_ELEMENTS * 4];
	int rc;

	if (!read_block(s, a, width, 2, block) || !is_telling(block))
		return 0;
	half.hash = ckpt_checksum(block, BLOCK_ELEMENTS * (size_t)2, 0);
	for (unsigned part = 1; part < 4; part += 2) {
		if (!read_block(s, a, width, part, block))
			return 0;
		half.others = ckpt_checksum(block, BLOCK_ELEMENTS * (size_t)2, half.others);
	}
	rc = ckpt_grow((void **)&to->at, &to->cap, to->count + 1, sizeof(half));
	if (!rc)
		to->at[to->count++] = half;
	return rc;
}

// Where the format says nothing, or what NumPy has instead of bf16, it may be.
static bool may_be_weights(const struct ckpt_array *a)
{
	return (a->dtype == CKPT_DTYPE_BF16 || a->dtype == CKPT_DTYPE_U16 || a->dtype == CKPT_DTYPE_I16 ||
		a->dtype == CKPT_DTYPE_NONE) &&
	       !(a->bytes % 2) && a->bytes >= CKPT_CHUNK_ARRAY_MIN;
}

static bool may_be_master(const struct ckpt_array *a)
{
	return (a->dtype == CKPT_DTYPE_F32 || a->dtype == CKPT_DTYPE_NONE) && !(a->bytes % 4) &&
	       a->bytes >= 2 * CKPT_CHUNK_ARRAY_MIN;
}

static int take_halves(struct ckpt_plan *p, const struct ckpt_source *s, const struct ckpt_array *a)
{
	int rc = may_be_weights(a) ? add_half(&p->weights, s, a, 2, p->array_count - 1) : 0;

	return rc || !may_be_master(a) ? rc : add_half(&p->masters, s, a, 4, p->array_count - 1);
}

// --- Files --------------------------------------------------------------------------------------------------------------

// 0 where the dtype is one that bytes of anything have.
static unsigned width_of(enum ckpt_dtype dtype)
{
	switch (dtype) {
	case CKPT_DTYPE_I8:
	case CKPT_DTYPE_U8:
		return 0;
	case CKPT_DTYPE_C64:
	case CKPT_DTYPE_C128:
		return ckpt_dtype_width(dtype) / 2;
	default:
		return ckpt_dtype_width(dtype);
	}
}

// A master that is known as fp32 is encoded as any.
unsigned ckpt_plan_array(const struct ckpt_array *a, bool *ret_may_pair)
{
	*ret_may_pair = may_be_weights(a);
	return width_of(a->dtype);
}

static uint32_t chunk_bytes(const struct ckpt_plan *p, uint32_t row)
{
	struct ckpt_chunk chunk;

	ckpt_manifest_chunk(p->m, row, &chunk);
	return chunk.bytes;
}

// Its chunks, from the first on that does not lie before it, at *at; false: the file is cut otherwise.
static bool find_chunks(struct ckpt_plan *p, const struct ckpt_seal *seal, struct array *array, uint32_t *row,
			uint64_t *at)
{
	uint64_t end = array->begin + array->bytes;

	for (; *row < seal->first + seal->count && *at < array->begin; (*row)++)
		*at += chunk_bytes(p, *row);
	array->first = *row;
	if (*at != array->begin)
		return false;
	for (; *row < seal->first + seal->count && *at < end; (*row)++)
		*at += chunk_bytes(p, *row);
	array->count = *row - array->first;
	return *at == end;
}

static int take_arrays(struct ckpt_plan *p, uint32_t index, const struct ckpt_seal *seal, const struct ckpt_source *s,
		       const struct ckpt_arrays *arrays)
{
	uint32_t row = seal->first;
	uint64_t at = 0;
	int rc = 0;

	for (size_t i = 0; i < ckpt_arrays_count(arrays) && !rc; i++) {
		struct array array = {.index = index};
		struct ckpt_array a;

		ckpt_arrays_get(arrays, i, &a);
		array.begin = a.offset;
		array.bytes = a.bytes;
		if (a.bytes < CKPT_CHUNK_ARRAY_MIN || !find_chunks(p, seal, &array, &row, &at))
			continue;
		for (uint32_t k = 0; k < array.count; k++)
			p->chunks[array.first + k].width = (uint8_t)width_of(a.dtype);
		rc = ckpt_grow((void **)&p->arrays, &p->array_cap, p->array_count + 1, sizeof(array));
		if (rc)
			break;
		p->arrays[p->array_count++] = array;
		rc = take_halves(p, s, &a);
		if (!rc && p->go_on && !p->go_on(p->arg, 0))
			rc = -EINTR;
	}
	return rc;
}

static int take_file(struct ckpt_plan *p, struct ckpt_step *step, const struct ckpt_entry *e)
{
	struct ckpt_arrays *arrays = NULL;
	struct ckpt_source source;
	struct ckpt_seal seal;
	CLEANUP_FD int fd = -1;
	int rc;

	if (e->content != CKPT_CONTENT_RAW || e->bytes < CKPT_CHUNK_ARRAY_MIN ||
	    ckpt_manifest_first_link(p->m, e->index) != e->index || !ckpt_manifest_seal(p->m, e->index, &seal))
		return 0;
	if (ckpt_step_open_raw(step, p->m, e->index, &fd))
		return 0; // who cools it says so
	source = ckpt_source_file(fd, e->bytes);
	rc = ckpt_arrays_read("", &source, &arrays);
	if (rc)
		return rc == -ENOMEM ? rc : 0;
	rc = arrays ? take_arrays(p, e->index, &seal, &source, arrays) : 0;
	ckpt_arrays_free(arrays);
	return rc;
}

// --- Pairs --------------------------------------------------------------------------------------------------------------

static int by_content(const void *a, const void *b)
{
	const struct half *x = a, *y = b;

	if (x->elements != y->elements)
		return x->elements < y->elements ? -1 : 1;
	return (x->hash > y->hash) - (x->hash < y->hash);
}

static int by_content_and_place(const void *a, const void *b)
{
	const struct half *x = a, *y = b;
	int order = by_content(a, b);

	return order ? order : (x->array > y->array) - (x->array < y->array);
}

// Of those that look as these weights do the first that does so at other places, too, or just the first: weights may differ from
// their master here and there. NULL: there is none.
static const struct half *master_of(const struct ckpt_plan *p, const struct half *weights)
{
	const struct half *all = p->masters.at,
			  *found = p->masters.count ? bsearch(weights, all, p->masters.count, sizeof(*all), by_content)
						    : NULL;

	while (found > all && !by_content(found - 1, weights))
		found--;
	for (const struct half *h = found; h && h < all + p->masters.count && !by_content(h, weights); h++)
		if (h->others == weights->others)
			return h;
	return found;
}

// From `row` on, just so many bytes; 0: it is cut otherwise.
static uint8_t count_pieces(const struct ckpt_plan *p, const struct array *master, uint32_t row, uint64_t bytes)
{
	for (uint32_t n = 0; n < CKPT_BASE_PIECES_MAX && row + n < master->first + master->count; n++) {
		uint32_t piece = chunk_bytes(p, row + n);

		if (piece > bytes)
			return 0;
		bytes -= piece;
		if (!bytes)
			return (uint8_t)(n + 1);
	}
	return 0;
}

// Each chunk of the weights stands for twice as many bytes of the master, at twice its place.
static void pair(struct ckpt_plan *p, const struct array *weights, const struct array *master)
{
	uint32_t row = master->first;
	uint64_t at = 0, row_at = 0;

	for (uint32_t i = 0; i < master->count; i++)
		if (!p->chunks[master->first + i].base_count) // else it is somebody's weights itself
			p->chunks[master->first + i].width = 4;
	for (uint32_t i = weights->first; i < weights->first + weights->count; i++) {
		struct ckpt_planned *planned = &p->chunks[i];
		uint32_t bytes = chunk_bytes(p, i);

		for (; row_at < 2 * at; row++)
			row_at += chunk_bytes(p, row);
		planned->width = 2;
		if (row_at == 2 * at && bytes <= CKPT_BASED_BYTES_MAX)
			planned->base_count = count_pieces(p, master, row, 2 * (uint64_t)bytes);
		planned->base_first = row;
		planned->base_index = master->index;
		planned->base_at = master->begin + row_at;
		at += bytes;
	}
}

static void pair_all(struct ckpt_plan *p)
{
	if (p->masters.count)
		qsort(p->masters.at, p->masters.count, sizeof(*p->masters.at), by_content_and_place);
	for (size_t i = 0; i < p->weights.count; i++) {
		const struct half *found = master_of(p, &p->weights.at[i]);

		if (found)
			pair(p, &p->arrays[p->weights.at[i].array], &p->arrays[found->array]);
	}
}

// --- All of it ----------------------------------------------------------------------------------------------------------

static void done_with_arrays(struct ckpt_plan *p)
{
	free(TAKE_PTR(p->arrays));
	free(TAKE_PTR(p->weights.at));
	free(TAKE_PTR(p->masters.at));
}

int ckpt_plan_new(struct ckpt_step *step, struct ckpt_manifest *m, bool (*go_on)(void *arg, uint64_t bytes), void *arg,
		  struct ckpt_plan **ret_plan)
{
	struct ckpt_plan *p = ckpt_calloc(1, sizeof(*p));
	int rc = 0;

	if (!p)
		return -ENOMEM;
	p->m = m;
	p->go_on = go_on;
	p->arg = arg;
	p->chunk_count = ckpt_manifest_chunk_count(m);
	p->chunks = ckpt_calloc((size_t)p->chunk_count + 1, sizeof(*p->chunks));
	if (!p->chunks)
		rc = -ENOMEM;
	for (uint32_t i = 0; i < ckpt_manifest_count(m) && !rc; i++) {
		struct ckpt_entry e;

		ckpt_manifest_entry(m, i, &e);
		rc = take_file(p, step, &e);
	}
	if (!rc)
		pair_all(p);
	done_with_arrays(p);
	p->m = NULL;
	if (rc)
		ckpt_plan_free(p);
	else
		*ret_plan = p;
	return rc;
}

void ckpt_plan_free(struct ckpt_plan *p)
{
	if (!p)
		return;
	free(p->chunks);
	free(p);
}

const struct ckpt_planned *ckpt_plan_chunk(const struct ckpt_plan *p, uint32_t chunk)
{
	assert(chunk < p->chunk_count);
	return &p->chunks[chunk];
}
