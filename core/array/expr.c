#include "core/array/expr.h"

#include "core/array/cast.h"
#include "core/array/gather.h"
#include "core/base/util.h"

#include <assert.h>

#define CAST_PART (UINT64_C(16) << 10) // elements
#define OPEN_MAX 64                    // gathers: each has a buffer, and descriptors

enum kind { ARRAY, CAST, SLICE, TRANSPOSE, RESHAPE, PAD, CONCAT };

struct ckpt_expr {
	unsigned refs; // atomic
	enum kind kind;
	unsigned depth;
	unsigned levels; // ckpt_expr_levels()
	uint64_t nodes;  // it and what it is made of, each as often as it comes
	struct ckpt_expr_shape shape;
	uint64_t elements;
	struct ckpt_expr **of;
	size_t count;
	unsigned axis;                     // SLICE, CONCAT
	uint64_t start;                    // SLICE
	uint8_t axes[CKPT_ARRAY_DIMS_MAX]; // TRANSPOSE
	bool same_boxes;                   // RESHAPE: only axes of one element come or go
	// ARRAY
	const struct ckpt_catalog *catalog;
	const struct ckpt_catalog_files *files;
	size_t array;
	uint64_t dims[]; // shape.at
};

// --- Making ---------------------------------------------------------------------------------------------------------------

const struct ckpt_expr_shape *ckpt_expr_shape(const struct ckpt_expr *e)
{
	return &e->shape;
}

uint64_t ckpt_expr_elements(const struct ckpt_expr *e)
{
	return e->elements;
}

struct ckpt_expr *ckpt_expr_ref(struct ckpt_expr *e)
{
	__atomic_add_fetch(&e->refs, 1, __ATOMIC_RELAXED);
	return e;
}

// Its depth is bounded, and so is the recursion.
void ckpt_expr_unref(struct ckpt_expr *e)
{
	if (!e || __atomic_sub_fetch(&e->refs, 1, __ATOMIC_ACQ_REL))
		return;
	for (size_t i = 0; i < e->count; i++)
		ckpt_expr_unref(e->of[i]);
	free(e->of);
	free(e);
}

static int count_elements(struct ckpt_expr *e)
{
	uint64_t bytes = ckpt_dtype_width(e->shape.dtype);
	bool empty = false, over = false;

	for (unsigned i = 0; i < e->shape.ndim; i++) {
		if (!e->shape.at[i])
			empty = true;
		else
			over |= __builtin_mul_overflow(bytes, e->shape.at[i], &bytes);
	}
	if (over || bytes > INT64_MAX)
		return -EOVERFLOW;
	e->elements = empty ? 0 : bytes / ckpt_dtype_width(e->shape.dtype);
	return 0;
}

static struct ckpt_expr *new_expr(enum kind kind, enum ckpt_dtype dtype, unsigned ndim, const uint64_t *shape)
{
	struct ckpt_expr *e = ckpt_calloc(1, sizeof(*e) + ndim * sizeof(*e->dims));

	if (!e)
		return NULL;
	e->refs = 1;
	e->kind = kind;
	e->shape = (struct ckpt_expr_shape){dtype, ndim, e->dims};
	for (unsigned i = 0; i < ndim; i++)
		e->dims[i] = shape[i];
	return e;
}

// The caller's to change, and then to be ended by finish().
static int begin_shaped(enum kind kind, struct ckpt_expr *const *of, size_t count, unsigned ndim, const uint64_t *shape,
			struct ckpt_expr **ret_expr)
{
	struct ckpt_expr *e = new_expr(kind, of[0]->shape.dtype, ndim, shape);

	if (!e)
		return -ENOMEM;
	e->of = ckpt_calloc(count, sizeof(struct ckpt_expr *));
	if (!e->of) {
		ckpt_expr_unref(e);
		return -ENOMEM;
	}
	for (; e->count < count; e->count++) {
		e->of[e->count] = ckpt_expr_ref(of[e->count]);
		e->nodes += of[e->count]->nodes; // CKPT_EXPR_NODES_MAX each
		e->levels = MAX(e->levels, of[e->count]->levels);
		e->depth = e->depth > of[e->count]->depth ? e->depth : of[e->count]->depth + 1;
	}
	e->levels += kind == CAST || kind == TRANSPOSE || kind == PAD || kind == CONCAT;
	*ret_expr = e;
	return 0;
}

// With the shape of the first.
static int begin(enum kind kind, struct ckpt_expr *const *of, size_t count, struct ckpt_expr **ret_expr)
{
	return begin_shaped(kind, of, count, of[0]->shape.ndim, of[0]->shape.at, ret_expr);
}

// rc: the maker's own outcome.
static int finish(struct ckpt_expr *e, int rc, struct ckpt_expr **ret_expr)
{
	if (!rc && (e->depth >= CKPT_EXPR_DEPTH_MAX || ++e->nodes > CKPT_EXPR_NODES_MAX))
		rc = -EINVAL;
	if (!rc)
		rc = count_elements(e);
	if (rc)
		ckpt_expr_unref(e);
	else
		*ret_expr = e;
	return rc;
}

int ckpt_expr_array(const struct ckpt_catalog *c, size_t array, const struct ckpt_catalog_files *files,
		    struct ckpt_expr **ret_expr)
{
	struct ckpt_catalog_array a;
	struct ckpt_expr *e;

	ckpt_catalog_get(c, array, &a);
	e = new_expr(ARRAY, a.dtype, a.ndim, a.shape);
	if (!e)
		return -ENOMEM;
	e->catalog = c;
	e->files = files;
	e->array = array;
	return finish(e, a.why || ckpt_dtype_bits(a.dtype) < 8 ? -ENOTSUP : 0, ret_expr);
}

int ckpt_expr_cast(struct ckpt_expr *of, enum ckpt_dtype dtype, struct ckpt_expr **ret_expr)
{
	struct ckpt_expr *e;
	int rc = ckpt_is_floating(dtype) && ckpt_is_floating(of->shape.dtype) ? begin(CAST, &of, 1, &e) : -EINVAL;

	if (rc)
		return rc;
	e->shape.dtype = dtype;
	return finish(e, 0, ret_expr);
}

int ckpt_expr_slice(struct ckpt_expr *of, unsigned axis, uint64_t start, uint64_t extent, struct ckpt_expr **ret_expr)
{
	struct ckpt_expr *e;
	int rc = axis < of->shape.ndim && start <= of->shape.at[axis] && extent <= of->shape.at[axis] - start
			 ? begin(SLICE, &of, 1, &e)
			 : -EINVAL;

	if (rc)
		return rc;
	e->axis = axis;
	e->start = start;
	e->dims[axis] = extent;
	return finish(e, 0, ret_expr);
}

int ckpt_expr_transpose(struct ckpt_expr *of, const unsigned *axes, struct ckpt_expr **ret_expr)
{
	struct ckpt_expr *e;
	uint32_t seen = 0;
	int rc = begin(TRANSPOSE, &of, 1, &e);

	if (rc)
		return rc;
	for (unsigned i = 0; i < of->shape.ndim && !rc; i++) {
		if (axes[i] >= of->shape.ndim || seen & UINT32_C(1) << axes[i]) {
			rc = -EINVAL;
			break;
		}
		seen |= UINT32_C(1) << axes[i];
		e->axes[i] = (uint8_t)axes[i];
		e->dims[i] = of->shape.at[axes[i]];
	}
	return finish(e, rc, ret_expr);
}

static bool differ_in_ones(const struct ckpt_expr_shape *a, const struct ckpt_expr_shape *b)
{
	unsigned i = 0, k = 0;

	for (;;) {
		while (i < a->ndim && a->at[i] == 1)
			i++;
		while (k < b->ndim && b->at[k] == 1)
			k++;
		if (i == a->ndim || k == b->ndim)
			return i == a->ndim && k == b->ndim;
		if (a->at[i++] != b->at[k++])
			return false;
	}
}

int ckpt_expr_reshape(struct ckpt_expr *of, unsigned ndim, const uint64_t *shape, struct ckpt_expr **ret_expr)
{
	struct ckpt_expr *e;
	int rc = ndim <= CKPT_ARRAY_DIMS_MAX ? begin_shaped(RESHAPE, &of, 1, ndim, shape, &e) : -EINVAL;

	if (rc)
		return rc;
	e->same_boxes = differ_in_ones(&e->shape, &of->shape);
	rc = count_elements(e);
	return finish(e, rc ? rc : e->elements == of->elements ? 0 : -EINVAL, ret_expr);
}

int ckpt_expr_take(struct ckpt_expr *of, unsigned axis, uint64_t index, struct ckpt_expr **ret_expr)
{
	struct ckpt_expr *one;
	uint64_t shape[CKPT_ARRAY_DIMS_MAX];
	int rc = axis < of->shape.ndim && index < of->shape.at[axis] ? ckpt_expr_slice(of, axis, index, 1, &one)
								     : -EINVAL;

	if (rc)
		return rc;
	for (unsigned i = 0; i + 1 < of->shape.ndim; i++)
		shape[i] = of->shape.at[i + (i >= axis)];
	rc = ckpt_expr_reshape(one, of->shape.ndim - 1, shape, ret_expr);
	ckpt_expr_unref(one);
	return rc;
}

int ckpt_expr_pad(struct ckpt_expr *of, const uint64_t *shape, struct ckpt_expr **ret_expr)
{
	struct ckpt_expr *e;
	int rc = begin(PAD, &of, 1, &e);

	if (rc)
		return rc;
	for (unsigned i = 0; i < of->shape.ndim; i++) {
		if (shape[i] < of->shape.at[i])
			rc = -EINVAL;
		e->dims[i] = shape[i];
	}
	return finish(e, rc, ret_expr);
}

int ckpt_expr_concat(struct ckpt_expr *const *of, size_t count, unsigned axis, struct ckpt_expr **ret_expr)
{
	struct ckpt_expr *e;
	int rc = count && axis < of[0]->shape.ndim ? begin(CONCAT, of, count, &e) : -EINVAL;

	if (rc)
		return rc;
	e->axis = axis;
	for (size_t i = 1; i < count && !rc; i++) {
		const struct ckpt_expr_shape *s = &of[i]->shape;

		if (s->dtype != e->shape.dtype || s->ndim != e->shape.ndim)
			rc = -EINVAL;
		for (unsigned k = 0; k < e->shape.ndim && !rc; k++)
			if (k != axis && s->at[k] != e->shape.at[k])
				rc = -EINVAL;
		if (!rc && __builtin_add_overflow(e->shape.at[axis], s->at[axis], &e->dims[axis]))
			rc = -EOVERFLOW;
	}
	return finish(e, rc, ret_expr);
}

int ckpt_expr_stack(struct ckpt_expr *const *of, size_t count, unsigned axis, struct ckpt_expr **ret_expr)
{
	CLEANUP_FREE struct ckpt_expr **parts = ckpt_calloc(count, sizeof(struct ckpt_expr *));
	size_t made = 0;
	int rc = parts ? 0 : -ENOMEM;

	for (; made < count && !rc; made += !rc) {
		const struct ckpt_expr_shape *s = &of[made]->shape;
		uint64_t shape[CKPT_ARRAY_DIMS_MAX];

		if (axis > s->ndim || s->ndim >= CKPT_ARRAY_DIMS_MAX) {
			rc = -EINVAL;
			break;
		}
		for (unsigned i = 0; i <= s->ndim; i++)
			shape[i] = i == axis ? 1 : s->at[i - (i > axis)];
		rc = ckpt_expr_reshape(of[made], s->ndim + 1, shape, &parts[made]);
	}
	if (!rc)
		rc = ckpt_expr_concat(parts, count, axis, ret_expr);
	for (size_t i = 0; i < made; i++)
		ckpt_expr_unref(parts[i]);
	return rc;
}

static uint64_t volume(unsigned ndim, const uint64_t *extent)
{
	uint64_t n = 1;

	for (unsigned i = 0; i < ndim; i++)
		n *= extent[i];
	return n;
}

bool ckpt_expr_is_part(const struct ckpt_expr *e, struct ckpt_expr_place *ret_place)
{
	uint64_t first = 0;

	for (; e->kind == RESHAPE || e->kind == SLICE; e = e->of[0]) {
		if (e->kind == RESHAPE)
			continue;
		if (!e->elements || (volume(e->axis, e->dims) > 1 && e->dims[e->axis] != e->of[0]->dims[e->axis]))
			return false;
		first += e->start * volume(e->shape.ndim - e->axis - 1, e->dims + e->axis + 1);
	}
	*ret_place = (struct ckpt_expr_place){e->catalog, e->files, e->array, first};
	return e->kind == ARRAY;
}

unsigned ckpt_expr_levels(const struct ckpt_expr *e)
{
	return e->levels;
}

bool ckpt_expr_is_transposed(const struct ckpt_expr *e)
{
	bool found = e->kind == TRANSPOSE;

	for (size_t i = 0; i < e->count && !found; i++)
		found = ckpt_expr_is_transposed(e->of[i]);
	return found;
}

int ckpt_expr_each(const struct ckpt_expr *e, int (*fn)(void *arg, const struct ckpt_catalog *c, size_t array),
		   void *arg)
{
	int rc = e->kind == ARRAY ? fn(arg, e->catalog, e->array) : 0;

	for (size_t i = 0; i < e->count && !rc; i++)
		rc = ckpt_expr_each(e->of[i], fn, arg);
	return rc;
}

// --- Arrays that are open -------------------------------------------------------------------------------------------------

// An array of a catalog, once however often the expression has it.
struct leaf {
	const struct ckpt_expr *expr;
	struct ckpt_gather *gather; // NULL: it was not read yet, or long ago
	uint64_t used;
};

// A part of what an expression is made of. Kept for the next: to map it anew for each would cost more than what is done in it.
struct scratch {
	uint8_t *at;
	size_t bytes;
};

struct ckpt_expr_reader {
	struct ckpt_expr *expr;
	struct scratch scratch[CKPT_EXPR_DEPTH_MAX]; // of each depth
	struct leaf *leaves;
	size_t count, cap;
	uint64_t clock;
};

static bool is_same_array(const struct ckpt_expr *a, const struct ckpt_expr *b)
{
	return a->catalog == b->catalog && a->files == b->files && a->array == b->array;
}

static size_t held_by_leaves(const struct ckpt_expr_reader *r)
{
	size_t bytes = 0;

	for (size_t i = 0; i < r->count; i++)
		bytes += r->leaves[i].gather ? ckpt_gather_held(r->leaves[i].gather) : 0;
	return bytes;
}

size_t ckpt_expr_held(const struct ckpt_expr_reader *r)
{
	size_t bytes = held_by_leaves(r);

	for (unsigned i = 0; i < CKPT_EXPR_DEPTH_MAX; i++)
		bytes += r->scratch[i].bytes;
	return bytes;
}

void ckpt_expr_rest(struct ckpt_expr_reader *r)
{
	for (unsigned i = 0; i < CKPT_EXPR_DEPTH_MAX; i++) {
		free(TAKE_PTR(r->scratch[i].at));
		r->scratch[i].bytes = 0;
	}
	for (size_t i = 0; i < r->count; i++)
		ckpt_gather_free(TAKE_PTR(r->leaves[i].gather));
}

// For what e is made of, while e is read: those below it are less deep. NULL: no memory.
static uint8_t *scratch_of(struct ckpt_expr_reader *r, const struct ckpt_expr *e, uint64_t count, size_t width)
{
	struct scratch *s = &r->scratch[e->depth];

	if (s->bytes >= count * width)
		return s->at;
	free(s->at);
	s->at = malloc(count * width);
	s->bytes = s->at ? count * width : 0;
	return s->at;
}

// Closes those that were not used for longest, but for the newest.
static void make_room(struct ckpt_expr_reader *r)
{
	for (;;) {
		struct leaf *oldest = NULL;
		size_t open = 0;

		for (size_t i = 0; i < r->count; i++) {
			struct leaf *l = &r->leaves[i];

			if (!l->gather)
				continue;
			open++;
			if (l->used != r->clock && (!oldest || l->used < oldest->used))
				oldest = l;
		}
		if (!oldest || (open <= OPEN_MAX && held_by_leaves(r) <= CKPT_EXPR_HELD_MAX))
			return;
		ckpt_gather_free(TAKE_PTR(oldest->gather));
	}
}

static int open_leaf(struct ckpt_expr_reader *r, const struct ckpt_expr *e, struct ckpt_gather **ret_gather)
{
	struct leaf *l = r->leaves;
	int rc = 0;

	while (l < r->leaves + r->count && !is_same_array(l->expr, e))
		l++;
	if (l == r->leaves + r->count) {
		rc = ckpt_grow((void **)&r->leaves, &r->cap, r->count + 1, sizeof(*r->leaves));
		if (rc)
			return rc;
		l = &r->leaves[r->count++];
		*l = (struct leaf){.expr = e};
	}
	l->used = ++r->clock;
	make_room(r);
	if (!l->gather)
		rc = ckpt_gather_new(e->catalog, e->array, e->files, &l->gather);
	*ret_gather = l->gather;
	return rc;
}

int ckpt_expr_open(struct ckpt_expr *e, struct ckpt_expr_reader **ret_reader)
{
	struct ckpt_expr_reader *r = ckpt_calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->expr = ckpt_expr_ref(e);
	*ret_reader = r;
	return 0;
}

void ckpt_expr_close(struct ckpt_expr_reader *r)
{
	if (!r)
		return;
	ckpt_expr_rest(r);
	ckpt_expr_unref(r->expr);
	free(r->leaves);
	free(r);
}

// --- Boxes in memory ------------------------------------------------------------------------------------------------------

struct box {
	const uint64_t *start, *extent;
};

// The next index of a box, in C order. False: that was the last one.
static bool step(unsigned ndim, const uint64_t *extent, uint64_t *at)
{
	for (unsigned i = ndim; i-- > 0; at[i] = 0)
		if (++at[i] < extent[i])
			return true;
	return false;
}

// Puts a packed box at start into the packed box of extent whole. Neither is empty.
static void put_box(unsigned ndim, size_t width, const uint64_t *extent, const uint8_t *from, const uint64_t *start,
		    const uint64_t *whole, uint8_t *into)
{
	uint64_t at[CKPT_ARRAY_DIMS_MAX] = {0};
	size_t row = (ndim ? extent[ndim - 1] : 1) * width;

	do {
		uint64_t place = 0;

		for (unsigned i = 0; i < ndim; i++)
			place = place * whole[i] + start[i] + at[i];
		memcpy(into + place * width, from, row);
		from += row;
	} while (ndim && step(ndim - 1, extent, at));
}

// A column of a packed box becomes a row: the inner loop of a transposition.
static void put_column(size_t width, uint64_t count, const uint8_t *from, uint64_t stride, uint8_t *into)
{
	for (uint64_t i = 0; i < count; i++) {
		const uint8_t *one = from + i * stride * width;

		switch (width) {
		case 1:
			into[i] = *one;
			break;
		case 2:
			memcpy(into + i * 2, one, 2);
			break;
		case 4:
			memcpy(into + i * 4, one, 4);
			break;
		case 8:
			memcpy(into + i * 8, one, 8);
			break;
		default:
			memcpy(into + i * width, one, width);
		}
	}
}

// --- Reading --------------------------------------------------------------------------------------------------------------

static int read_box(struct ckpt_expr_reader *r, const struct ckpt_expr *e, const struct box *box, uint8_t *into);
static int read_run(struct ckpt_expr_reader *r, const struct ckpt_expr *e, uint64_t first, uint64_t count,
		    uint8_t *into);

static size_t width_of(const struct ckpt_expr *e)
{
	return ckpt_dtype_width(e->shape.dtype);
}

static int slice_box(struct ckpt_expr_reader *r, const struct ckpt_expr *e, const struct box *box, uint8_t *into)
{
	uint64_t start[CKPT_ARRAY_DIMS_MAX];

	for (unsigned i = 0; i < e->shape.ndim; i++)
		start[i] = box->start[i] + (i == e->axis ? e->start : 0);
	return read_box(r, e->of[0], &(struct box){start, box->extent}, into);
}

static int cast_box(struct ckpt_expr_reader *r, const struct ckpt_expr *e, const struct box *box, uint8_t *into)
{
	const struct ckpt_expr *of = e->of[0];
	uint64_t count = volume(e->shape.ndim, box->extent);
	uint8_t *elements = scratch_of(r, e, count, width_of(of));
	int rc = elements ? read_box(r, of, box, elements) : -ENOMEM;

	if (!rc)
		ckpt_cast(of->shape.dtype, e->shape.dtype, elements, (size_t)count, into);
	return rc;
}

static int transpose_box(struct ckpt_expr_reader *r, const struct ckpt_expr *e, const struct box *box, uint8_t *into)
{
	uint64_t start[CKPT_ARRAY_DIMS_MAX], extent[CKPT_ARRAY_DIMS_MAX], strides[CKPT_ARRAY_DIMS_MAX],
		at[CKPT_ARRAY_DIMS_MAX] = {0};
	unsigned ndim = e->shape.ndim;
	size_t width = width_of(e), row = (ndim ? box->extent[ndim - 1] : 1) * width;
	uint8_t *elements = scratch_of(r, e, volume(ndim, box->extent), width);
	int rc;

	if (!elements)
		return -ENOMEM;
	for (unsigned i = 0; i < ndim; i++) {
		start[e->axes[i]] = box->start[i];
		extent[e->axes[i]] = box->extent[i];
	}
	rc = read_box(r, e->of[0], &(struct box){start, extent}, elements);
	if (rc)
		return rc;
	for (unsigned i = 0; i < ndim; i++)
		strides[i] = volume(ndim - 1 - e->axes[i], extent + e->axes[i] + 1);
	do {
		uint64_t from = 0;

		for (unsigned i = 0; i + 1 < ndim; i++)
			from += at[i] * strides[i];
		put_column(width, row / width, elements + from * width, ndim ? strides[ndim - 1] : 1, into);
		into += row;
	} while (ndim && step(ndim - 1, box->extent, at));
	return 0;
}

// The parts of the box that lie in one of what is joined, or in what is padded.
static int read_part(struct ckpt_expr_reader *r, const struct ckpt_expr *e, size_t part, const uint64_t *shift,
		     const struct box *box, uint8_t *into)
{
	const struct ckpt_expr *of = e->of[part];
	uint64_t start[CKPT_ARRAY_DIMS_MAX], extent[CKPT_ARRAY_DIMS_MAX], place[CKPT_ARRAY_DIMS_MAX];
	unsigned ndim = of->shape.ndim;
	uint8_t *elements;
	int rc;

	for (unsigned i = 0; i < ndim; i++) {
		uint64_t begin = box->start[i] > shift[i] ? box->start[i] : shift[i];
		uint64_t end = MIN(box->start[i] + box->extent[i], shift[i] + of->shape.at[i]);

		if (begin >= end)
			return 0;
		start[i] = begin - shift[i];
		place[i] = begin - box->start[i];
		extent[i] = end - begin;
	}
	elements = scratch_of(r, e, volume(ndim, extent), width_of(of));
	rc = elements ? read_box(r, of, &(struct box){start, extent}, elements) : -ENOMEM;
	if (!rc)
		put_box(ndim, width_of(of), extent, elements, place, box->extent, into);
	return rc;
}

static int pad_box(struct ckpt_expr_reader *r, const struct ckpt_expr *e, const struct box *box, uint8_t *into)
{
	static const uint64_t origin[CKPT_ARRAY_DIMS_MAX];

	memset(into, 0, volume(e->shape.ndim, box->extent) * width_of(e));
	return read_part(r, e, 0, origin, box, into);
}

static int concat_box(struct ckpt_expr_reader *r, const struct ckpt_expr *e, const struct box *box, uint8_t *into)
{
	uint64_t shift[CKPT_ARRAY_DIMS_MAX] = {0};
	int rc = 0;

	for (size_t i = 0; i < e->count && !rc; shift[e->axis] += e->of[i]->shape.at[e->axis], i++)
		rc = read_part(r, e, i, shift, box, into);
	return rc;
}

// The same box of a shape that has other axes of one element.
static int same_box(struct ckpt_expr_reader *r, const struct ckpt_expr *e, const struct box *box, uint8_t *into)
{
	const struct ckpt_expr_shape *of = &e->of[0]->shape;
	uint64_t start[CKPT_ARRAY_DIMS_MAX], extent[CKPT_ARRAY_DIMS_MAX];
	unsigned k = 0;

	for (unsigned i = 0; i < of->ndim; i++) {
		start[i] = 0;
		extent[i] = 1;
		if (of->at[i] == 1)
			continue;
		while (e->shape.at[k] == 1)
			k++;
		start[i] = box->start[k];
		extent[i] = box->extent[k++];
	}
	return read_box(r, e->of[0], &(struct box){start, extent}, into);
}

// Row after row of the box; trailing axes that it has whole are one row with the axis before them.
static int reshape_box(struct ckpt_expr_reader *r, const struct ckpt_expr *e, const struct box *box, uint8_t *into)
{
	uint64_t at[CKPT_ARRAY_DIMS_MAX] = {0}, row = 1;
	unsigned outer = e->shape.ndim;
	int rc = 0;

	while (outer && (outer == e->shape.ndim || box->extent[outer] == e->shape.at[outer]))
		row *= box->extent[--outer];
	do {
		uint64_t first = 0;

		for (unsigned i = 0; i < e->shape.ndim; i++)
			first = first * e->shape.at[i] + box->start[i] + (i < outer ? at[i] : 0);
		rc = read_run(r, e->of[0], first, row, into);
		into += row * width_of(e);
	} while (!rc && step(outer, box->extent, at));
	return rc;
}

static int array_box(struct ckpt_expr_reader *r, const struct ckpt_expr *e, const struct box *box, uint8_t *into)
{
	struct ckpt_gather *g;
	int rc = open_leaf(r, e, &g);

	return rc ? rc : ckpt_gather_box(g, box->start, box->extent, into);
}

static int read_box(struct ckpt_expr_reader *r, const struct ckpt_expr *e, const struct box *box, uint8_t *into)
{
	static int (*const read[])(struct ckpt_expr_reader *, const struct ckpt_expr *, const struct box *,
				   uint8_t *) = {
		[ARRAY] = array_box,         [CAST] = cast_box, [SLICE] = slice_box,
		[TRANSPOSE] = transpose_box, [PAD] = pad_box,   [CONCAT] = concat_box,
	};

	if (!volume(e->shape.ndim, box->extent))
		return 0;
	if (e->kind == RESHAPE)
		return e->same_boxes ? same_box(r, e, box, into) : reshape_box(r, e, box, into);
	return read[e->kind](r, e, box, into);
}

// The largest box that begins at pos and is a run of elements; how many.
static uint64_t box_of_run(const struct ckpt_expr_shape *s, uint64_t pos, uint64_t count, uint64_t *start,
			   uint64_t *extent)
{
	uint64_t inner = 1; // elements of the axes behind the one that is looked at

	for (unsigned i = s->ndim; i-- > 0; pos /= s->at[i]) {
		start[i] = pos % s->at[i];
		extent[i] = 1;
	}
	for (unsigned i = s->ndim; i-- > 0; inner *= s->at[i]) {
		extent[i] = MIN(count / inner, s->at[i] - start[i]);
		if (extent[i] < s->at[i])
			return extent[i] * inner;
	}
	return inner;
}

static int run_of_boxes(struct ckpt_expr_reader *r, const struct ckpt_expr *e, uint64_t first, uint64_t count,
			uint8_t *into)
{
	uint64_t start[CKPT_ARRAY_DIMS_MAX], extent[CKPT_ARRAY_DIMS_MAX], done;
	int rc = 0;

	for (; count && !rc; first += done, count -= done, into += done * width_of(e)) {
		done = box_of_run(&e->shape, first, count, start, extent);
		rc = read_box(r, e, &(struct box){start, extent}, into);
	}
	return rc;
}

// In parts that stay in the processor's cache between reading and casting.
static int cast_run(struct ckpt_expr_reader *r, const struct ckpt_expr *e, uint64_t first, uint64_t count,
		    uint8_t *into)
{
	const struct ckpt_expr *of = e->of[0];
	uint64_t each = of->kind == ARRAY ? MIN(count, CAST_PART) : count;
	uint8_t *elements = scratch_of(r, e, each, width_of(of));
	int rc = elements ? 0 : -ENOMEM;

	for (uint64_t done = 0, part; done < count && !rc; done += part) {
		part = MIN(each, count - done);
		rc = read_run(r, of, first + done, part, elements);
		if (!rc)
			ckpt_cast(of->shape.dtype, e->shape.dtype, elements, (size_t)part, into + done * width_of(e));
	}
	return rc;
}

static int read_run(struct ckpt_expr_reader *r, const struct ckpt_expr *e, uint64_t first, uint64_t count,
		    uint8_t *into)
{
	struct ckpt_gather *g;
	int rc;

	switch (e->kind) {
	case ARRAY:
		rc = open_leaf(r, e, &g);
		return rc ? rc : ckpt_gather_run(g, first, count, into);
	case CAST:
		return cast_run(r, e, first, count, into);
	case RESHAPE: // the same elements, in the same order
		return read_run(r, e->of[0], first, count, into);
	case SLICE:
	case TRANSPOSE:
	case PAD:
	case CONCAT:
		break;
	}
	return run_of_boxes(r, e, first, count, into);
}

int ckpt_expr_box(struct ckpt_expr_reader *r, const uint64_t *start, const uint64_t *extent, void *into)
{
	for (unsigned i = 0; i < r->expr->shape.ndim; i++)
		assert(start[i] <= r->expr->shape.at[i] && extent[i] <= r->expr->shape.at[i] - start[i]);
	return read_box(r, r->expr, &(struct box){start, extent}, into);
}

int ckpt_expr_run(struct ckpt_expr_reader *r, uint64_t first, uint64_t count, void *into)
{
	assert(first <= r->expr->elements && count <= r->expr->elements - first);
	return count ? read_run(r, r->expr, first, count, into) : 0;
}
