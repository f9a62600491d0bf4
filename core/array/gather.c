#include "core/array/gather.h"

#include "core/array/cover.h"
#include "core/array/decode.h"
#include "core/base/util.h"

#define RUN_BYTES (256u << 10)           // of a run that is not copied at once
#define SPREAD_MAX 16                    // elements between two that are read with what is between
#define BLOCK_BYTES ((uint64_t)32 << 20) // of an array in another order, that is gathered at once

struct open_piece {
	struct open_piece *next; // that was used before
	size_t index;
	struct ckpt_source source;
	struct ckpt_piece piece; // resolved
	uint64_t strides[CKPT_ARRAY_DIMS_MAX];
	bool big_endian;
	struct ckpt_decode *decode;
};

struct ckpt_gather {
	const struct ckpt_catalog *catalog;
	const struct ckpt_catalog_files *files;
	size_t index;
	struct ckpt_catalog_array array;
	uint64_t elements;
	unsigned width, swap;    // bytes of an element, and of what has an order of bytes
	bool gaps, overlaps;     // of its pieces
	uint64_t left;           // of what this call may decode
	bool decoded;            // a piece has codecs, but for the place in a torch.save()
	bool reordered;          // a piece has its elements in another order than C's
	struct open_piece *open; // the one that was used last first
	size_t open_count;
	uint8_t *run;   // RUN_BYTES
	uint8_t *block; // BLOCK_BYTES at most, from element block_at on
	uint64_t block_at, block_count;
};

// --- Pieces -----------------------------------------------------------------------------------------------------------------

static void close_piece(struct ckpt_gather *g, struct open_piece *o)
{
	ckpt_decode_free(o->decode);
	if (o->source.read)
		g->files->close(g->files->arg, &o->source);
	free(o);
}

// The decoded bytes up to its last element.
static int needed_bytes(const struct ckpt_gather *g, const struct ckpt_piece *p, uint64_t *ret_needed)
{
	uint64_t last = p->first, more;

	for (unsigned i = 0; i < g->array.ndim; i++)
		if (__builtin_mul_overflow(p->extent[i] - 1, p->strides[i], &more) ||
		    __builtin_add_overflow(last, more, &last))
			return -EBADMSG;
	return __builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, (uint64_t)g->width, ret_needed)
		       ? -EBADMSG
		       : 0;
}

static int open_piece(struct ckpt_gather *g, struct open_piece *o)
{
	uint64_t needed;
	int rc;

	ckpt_catalog_piece(g->catalog, g->index, o->index, &o->piece);
	o->big_endian = g->array.big_endian;
	rc = o->piece.data ? 0 : g->files->open(g->files->arg, o->piece.file, &o->source);
	if (rc) {
		o->source.read = NULL;
		return rc;
	}
	rc = o->piece.data ? 0 : ckpt_piece_resolve(&o->source, &g->array, &o->piece, o->strides, &o->big_endian);
	if (!rc)
		rc = needed_bytes(g, &o->piece, &needed);
	if (!rc)
		rc = ckpt_decode_new(&o->source, &o->piece, needed, &g->left, &o->decode);
	return rc == -EINVAL ? -EBADMSG : rc;
}

// There is room for one more.
static void close_oldest(struct ckpt_gather *g)
{
	size_t bytes = 0, count = 0;

	for (struct open_piece **place = &g->open; *place;) {
		struct open_piece *o = *place;

		bytes += ckpt_decode_bytes(o->decode);
		if (bytes <= CKPT_GATHER_BYTES_MAX && ++count < CKPT_GATHER_OPEN_MAX) {
			place = &o->next;
			continue;
		}
		*place = o->next;
		g->open_count--;
		close_piece(g, o);
	}
}

static int take_piece(struct ckpt_gather *g, size_t index, struct open_piece **ret)
{
	struct open_piece **place = &g->open, *o;
	int rc;

	while (*place && (*place)->index != index)
		place = &(*place)->next;
	o = *place;
	if (o) {
		*place = o->next;
	} else {
		close_oldest(g);
		o = ckpt_calloc(1, sizeof(*o));
		if (!o)
			return -ENOMEM;
		o->index = index;
		rc = open_piece(g, o);
		if (rc) {
			close_piece(g, o);
			return rc;
		}
		g->open_count++;
	}
	o->next = g->open;
	g->open = o;
	*ret = o;
	return 0;
}

// --- Copying ----------------------------------------------------------------------------------------------------------------

// One dimension of what is copied: strides in elements, there in the piece, here in the box.
struct step {
	uint64_t count, there, here;
};

struct copy {
	struct ckpt_gather *g;
	struct open_piece *from;
	uint8_t *into;
	struct step steps[CKPT_ARRAY_DIMS_MAX]; // the last one moves least in the piece
	unsigned count;
};

static void swap_elements(uint8_t *p, uint64_t count, unsigned width)
{
	for (uint64_t i = 0; i < count; i++, p += width)
		for (unsigned k = 0; k < width / 2; k++) {
			uint8_t byte = p[k];

			p[k] = p[width - 1 - k];
			p[width - 1 - k] = byte;
		}
}

static int read_elements(const struct copy *c, uint64_t first, uint64_t count, uint8_t *into)
{
	const struct ckpt_gather *g = c->g;
	int rc = ckpt_decode_read(c->from->decode, first * g->width, into, (size_t)(count * g->width));

	if (!rc && c->from->big_endian)
		swap_elements(into, count * (g->width / g->swap), g->swap);
	return rc;
}

// Widths are powers of two: a copy of known length is one instruction.
static void scatter(uint8_t *into, uint64_t here, const uint8_t *from, uint64_t there, uint64_t count, unsigned width)
{
	for (uint64_t i = 0; i < count; i++) {
		uint8_t *to = into + i * here * width;
		const uint8_t *of = from + i * there * width;

		switch (width) {
		case 1:
			*to = *of;
			break;
		case 2:
			memcpy(to, of, 2);
			break;
		case 4:
			memcpy(to, of, 4);
			break;
		case 8:
			memcpy(to, of, 8);
			break;
		default:
			memcpy(to, of, width);
		}
	}
}

// The last dimension, from these elements on.
static int copy_run(struct copy *c, uint64_t there, uint64_t here)
{
	const struct step *s = &c->steps[c->count - 1];
	unsigned width = c->g->width;
	uint64_t spread = s->there && s->there <= SPREAD_MAX ? s->there : 1;
	uint64_t at_once = s->there <= SPREAD_MAX && s->there ? RUN_BYTES / width / spread : 1;

	if (s->there == 1 && s->here == 1)
		return read_elements(c, there, s->count, c->into + here * width);
	for (uint64_t i = 0, n; i < s->count; i += n) {
		int rc;

		n = MIN(at_once, s->count - i);
		rc = read_elements(c, there + i * s->there, (n - 1) * spread + 1, c->g->run);
		if (rc)
			return rc;
		scatter(c->into + (here + i * s->here) * width, s->here, c->g->run, spread, n, width);
	}
	return 0;
}

static int copy_all(struct copy *c, uint64_t there, uint64_t here)
{
	uint64_t at[CKPT_ARRAY_DIMS_MAX] = {0};
	unsigned outer = c->count - 1;

	for (;;) {
		int rc = copy_run(c, there, here);
		unsigned i = outer;

		if (rc)
			return rc;
		for (; i-- > 0;) {
			const struct step *s = &c->steps[i];

			there += s->there;
			here += s->here;
			if (++at[i] < s->count)
				break;
			there -= s->count * s->there;
			here -= s->count * s->here;
			at[i] = 0;
		}
		if (i == UINT32_MAX)
			return 0;
	}
}

static void add_step(struct copy *c, struct step step)
{
	unsigned i = c->count++;

	for (; i > 0 && c->steps[i - 1].there < step.there; i--)
		c->steps[i] = c->steps[i - 1];
	c->steps[i] = step;
}

// Neighbours that are one run in both, and dimensions that do not move.
static void join_steps(struct copy *c)
{
	unsigned n = 0;

	for (unsigned i = 0; i < c->count; i++) {
		struct step *before = n ? &c->steps[n - 1] : NULL, s = c->steps[i];

		if (before && before->there == s.there * s.count && before->here == s.here * s.count)
			*before = (struct step){before->count * s.count, s.there, s.here};
		else
			c->steps[n++] = s;
	}
	c->count = n;
	if (!n)
		c->steps[c->count++] = (struct step){1, 1, 1};
}

struct overlap {
	uint64_t start[CKPT_ARRAY_DIMS_MAX], extent[CKPT_ARRAY_DIMS_MAX];
	uint64_t elements;
};

// 0: they have no element in common.
static uint64_t overlap_of(const struct ckpt_gather *g, const struct ckpt_piece *p, const struct ckpt_box *box,
			   struct overlap *ret)
{
	ret->elements = 1;
	for (unsigned i = 0; i < g->array.ndim; i++) {
		uint64_t begin = MAX(p->start[i], box->start[i]),
			 end = MIN(p->start[i] + p->extent[i], box->start[i] + box->extent[i]);

		if (begin >= end)
			return 0;
		ret->start[i] = begin;
		ret->extent[i] = end - begin;
		ret->elements *= end - begin;
	}
	return ret->elements;
}

static int copy_overlap(struct ckpt_gather *g, size_t index, const struct overlap *o, const struct ckpt_box *box,
			uint8_t *into)
{
	struct copy c = {.g = g, .into = into};
	uint64_t there, here = 0, step = 1;
	int rc = take_piece(g, index, &c.from);

	if (rc)
		return rc;
	there = c.from->piece.first;
	for (unsigned i = g->array.ndim; i-- > 0;) {
		there += (o->start[i] - c.from->piece.start[i]) * c.from->piece.strides[i];
		here += (o->start[i] - box->start[i]) * step;
		if (o->extent[i] > 1)
			add_step(&c, (struct step){o->extent[i], c.from->piece.strides[i], step});
		step *= box->extent[i];
	}
	join_steps(&c);
	return copy_all(&c, there, here);
}

// --- Boxes ------------------------------------------------------------------------------------------------------------------

static int cover_of(const struct ckpt_gather *g, const struct ckpt_box *region, struct ckpt_covered *ret)
{
	CLEANUP_FREE struct ckpt_box *boxes = ckpt_calloc(g->array.pieces + 1, sizeof(*boxes));
	struct ckpt_piece p;

	if (!boxes)
		return -ENOMEM;
	for (size_t i = 0; i < g->array.pieces; i++) {
		ckpt_catalog_piece(g->catalog, g->index, i, &p);
		boxes[i] = (struct ckpt_box){p.start, p.extent};
	}
	return ckpt_cover(boxes, g->array.pieces, g->array.ndim, region, ret);
}

static void fill(const struct ckpt_gather *g, uint8_t *into, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++, into += g->width)
		memcpy(into, g->array.fill, g->width);
}

// 0; -ENODATA: elements of the box are in no piece, as far as is known.
static int check(const struct ckpt_gather *g, const struct ckpt_box *box, uint64_t copied, uint64_t wanted)
{
	struct ckpt_covered covered;
	int rc;

	if (g->array.fill || !g->gaps || (copied == wanted && !g->overlaps))
		return 0;
	if (copied < wanted)
		return -ENODATA;
	rc = cover_of(g, box, &covered);
	return rc == -E2BIG || (!rc && covered.missing) ? -ENODATA : rc;
}

static int gather(struct ckpt_gather *g, const struct ckpt_box *box, uint64_t wanted, uint8_t *into)
{
	uint64_t copied = 0;

	if (g->array.fill)
		fill(g, into, wanted);
	for (size_t i = 0; i < g->array.pieces; i++) {
		struct ckpt_piece p;
		struct overlap o;
		int rc;

		ckpt_catalog_piece(g->catalog, g->index, i, &p);
		if (!overlap_of(g, &p, box, &o))
			continue;
		rc = copy_overlap(g, i, &o, box, into);
		if (rc)
			return rc;
		copied += o.elements;
	}
	return check(g, box, copied, wanted);
}

static void give_budget(struct ckpt_gather *g, uint64_t wanted)
{
	g->left = CKPT_GATHER_DECODED_MAX + 64 * g->width * wanted;
}

int ckpt_gather_box(struct ckpt_gather *g, const uint64_t *start, const uint64_t *extent, void *into)
{
	uint64_t wanted = 1;

	for (unsigned i = 0; i < g->array.ndim; i++)
		wanted *= extent[i];
	give_budget(g, wanted);
	return wanted ? gather(g, &(struct ckpt_box){start, extent}, wanted, into) : 0;
}

// --- Runs -------------------------------------------------------------------------------------------------------------------

// The largest box that begins with the run. Its elements.
static uint64_t first_box(const struct ckpt_gather *g, uint64_t first, uint64_t count,
			  uint64_t start[CKPT_ARRAY_DIMS_MAX], uint64_t extent[CKPT_ARRAY_DIMS_MAX])
{
	const uint64_t *shape = g->array.shape;
	uint64_t inner = 1, rest = first;
	unsigned dim = g->array.ndim;

	for (unsigned i = g->array.ndim; i-- > 0; rest /= shape[i]) {
		start[i] = rest % shape[i];
		extent[i] = 1;
	}
	if (!dim)
		return 1;
	for (dim--; dim > 0 && !start[dim] && count >= inner * shape[dim]; dim--) {
		extent[dim] = shape[dim];
		inner *= shape[dim];
	}
	extent[dim] = MIN(shape[dim] - start[dim], count / inner);
	return extent[dim] * inner;
}

static int gather_run(struct ckpt_gather *g, uint64_t first, uint64_t count, uint8_t *into)
{
	while (count) {
		uint64_t start[CKPT_ARRAY_DIMS_MAX], extent[CKPT_ARRAY_DIMS_MAX];
		uint64_t n = first_box(g, first, count, start, extent);
		int rc = gather(g, &(struct ckpt_box){start, extent}, n, into);

		if (rc)
			return rc;
		first += n;
		count -= n;
		into += n * g->width;
	}
	return 0;
}

// A small part of a transposed array is a little of each row that is stored: many parts at once cost as much.
static int run_of_block(struct ckpt_gather *g, uint64_t first, uint64_t count, uint8_t *into)
{
	uint64_t at_once = BLOCK_BYTES / g->width;

	while (count) {
		uint64_t n;

		if (first < g->block_at || first >= g->block_at + g->block_count) {
			int rc;

			g->block_count = 0;
			g->block_at = first / at_once * at_once;
			if (!g->block && !(g->block = malloc((size_t)(MIN(at_once, g->elements) * g->width))))
				return -ENOMEM;
			n = MIN(at_once, g->elements - g->block_at);
			rc = gather_run(g, g->block_at, n, g->block);
			if (rc)
				return rc;
			g->block_count = n;
		}
		n = MIN(count, g->block_at + g->block_count - first);
		memcpy(into, g->block + (first - g->block_at) * g->width, (size_t)(n * g->width));
		first += n;
		count -= n;
		into += n * g->width;
	}
	return 0;
}

int ckpt_gather_run(struct ckpt_gather *g, uint64_t first, uint64_t count, void *into)
{
	give_budget(g, count);
	return g->reordered && count * g->width < BLOCK_BYTES ? run_of_block(g, first, count, into)
							      : gather_run(g, first, count, into);
}

// --- All --------------------------------------------------------------------------------------------------------------------

// True if elements are stored in another order than they are gathered in.
static bool is_reordered(const struct ckpt_gather *g)
{
	struct ckpt_piece p;

	for (size_t i = 0; i < g->array.pieces; i++) {
		uint64_t before = UINT64_MAX;

		ckpt_catalog_piece(g->catalog, g->index, i, &p);
		for (unsigned k = 0; k < g->array.ndim; k++) {
			if (p.extent[k] > 1 && p.strides[k] > before)
				return true;
			before = p.extent[k] > 1 ? p.strides[k] : before;
		}
	}
	return false;
}

static bool is_decoded(const struct ckpt_gather *g)
{
	struct ckpt_piece p;

	for (size_t i = 0; i < g->array.pieces; i++) {
		ckpt_catalog_piece(g->catalog, g->index, i, &p);
		if (p.codecs[0] != CKPT_PIECE_RAW && p.codecs[0] != CKPT_PIECE_TORCH)
			return true;
	}
	return false;
}

// Of all pieces; saturates.
static uint64_t piece_elements(const struct ckpt_gather *g)
{
	uint64_t all = 0;

	for (size_t i = 0; i < g->array.pieces; i++) {
		uint64_t elements = 1;
		struct ckpt_piece p;

		ckpt_catalog_piece(g->catalog, g->index, i, &p);
		for (unsigned k = 0; k < g->array.ndim; k++)
			elements *= p.extent[k]; // no more than the array has
		if (__builtin_add_overflow(all, elements, &all))
			return UINT64_MAX;
	}
	return all;
}

static int init(struct ckpt_gather *g)
{
	static const uint64_t origin[CKPT_ARRAY_DIMS_MAX];
	struct ckpt_covered covered = {0};
	int rc;

	if (g->array.why || !g->array.dtype || ckpt_dtype_bits(g->array.dtype) < 8)
		return -ENOTSUP;
	g->width = ckpt_dtype_width(g->array.dtype);
	g->swap = g->array.dtype == CKPT_DTYPE_C64 || g->array.dtype == CKPT_DTYPE_C128 ? g->width / 2 : g->width;
	g->elements = 1;
	for (unsigned i = 0; i < g->array.ndim; i++)
		g->elements *= g->array.shape[i];
	if (piece_elements(g) / CKPT_GATHER_OVERLAP_MAX > g->elements)
		return -EFBIG;
	g->run = malloc(RUN_BYTES);
	if (!g->run)
		return -ENOMEM;
	rc = cover_of(g, &(struct ckpt_box){origin, g->array.shape}, &covered);
	g->gaps = covered.missing;
	g->overlaps = covered.doubled;
	g->reordered = is_reordered(g);
	g->decoded = is_decoded(g);
	return rc == -E2BIG ? -EFBIG : rc;
}

int ckpt_gather_new(const struct ckpt_catalog *c, size_t array, const struct ckpt_catalog_files *files,
		    struct ckpt_gather **ret_gather)
{
	struct ckpt_gather *g = ckpt_calloc(1, sizeof(*g));
	int rc;

	if (!g)
		return -ENOMEM;
	g->catalog = c;
	g->files = files;
	g->index = array;
	ckpt_catalog_get(c, array, &g->array);
	rc = init(g);
	if (rc)
		ckpt_gather_free(g);
	else
		*ret_gather = g;
	return rc;
}

void ckpt_gather_rest(struct ckpt_gather *g)
{
	for (struct open_piece *o = TAKE_PTR(g->open), *next; o; o = next) {
		next = o->next;
		close_piece(g, o);
	}
	g->open_count = 0;
	free(TAKE_PTR(g->block));
	g->block_count = 0;
}

void ckpt_gather_free(struct ckpt_gather *g)
{
	if (!g)
		return;
	ckpt_gather_rest(g);
	free(g->run);
	free(g);
}

#define HELD_BY_FILE (64u << 10) // a descriptor, or a file in packs

size_t ckpt_gather_held(const struct ckpt_gather *g)
{
	size_t bytes = g->block ? (size_t)MIN(BLOCK_BYTES, g->elements * g->width) : 0;

	for (const struct open_piece *o = g->open; o; o = o->next)
		bytes += HELD_BY_FILE + ckpt_decode_bytes(o->decode);
	return bytes;
}

uint64_t ckpt_gather_held_most(const struct ckpt_gather *g)
{
	uint64_t bytes = g->reordered ? MIN(BLOCK_BYTES, g->elements * g->width) : 0;

	for (size_t i = 0; i < g->array.pieces && bytes < CKPT_GATHER_BYTES_MAX; i++) {
		struct ckpt_piece p;
		uint64_t needed;

		ckpt_catalog_piece(g->catalog, g->index, i, &p);
		if (needed_bytes(g, &p, &needed))
			return CKPT_GATHER_BYTES_MAX;
		bytes += ckpt_decode_bytes_of(&p, needed) + HELD_BY_FILE;
	}
	return MIN(bytes, (uint64_t)CKPT_GATHER_BYTES_MAX);
}

bool ckpt_gather_is_decoded(const struct ckpt_gather *g)
{
	return g->decoded || g->reordered;
}

uint64_t ckpt_gather_elements(const struct ckpt_gather *g)
{
	return g->elements;
}

unsigned ckpt_gather_width(const struct ckpt_gather *g)
{
	return g->width;
}

bool ckpt_gather_finds_plain(const struct ckpt_catalog *c, size_t array, const char **ret_file, uint64_t *ret_offset)
{
	uint64_t width, elements = 1;
	struct ckpt_catalog_array a;
	struct ckpt_piece p;

	ckpt_catalog_get(c, array, &a);
	if (a.why || ckpt_dtype_bits(a.dtype) < 8 || a.pieces != 1 || a.big_endian)
		return false;
	width = ckpt_dtype_width(a.dtype);
	ckpt_catalog_piece(c, array, 0, &p);
	if (p.codecs[0] != CKPT_PIECE_RAW || p.data)
		return false;
	for (unsigned i = a.ndim; i-- > 0; elements *= a.shape[i])
		if (p.start[i] || p.extent[i] != a.shape[i] || (p.extent[i] > 1 && p.strides[i] != elements))
			return false;
	// No more than the piece has.
	if (__builtin_mul_overflow(p.first, width, ret_offset) || *ret_offset > p.bytes ||
	    elements > (p.bytes - *ret_offset) / width)
		return false;
	*ret_offset += p.offset;
	*ret_file = p.file;
	return true;
}

bool ckpt_gather_is_plain(const struct ckpt_gather *g, const char **ret_file, uint64_t *ret_offset)
{
	return ckpt_gather_finds_plain(g->catalog, g->index, ret_file, ret_offset);
}
