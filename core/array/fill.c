#include "core/array/fill.h"

#include "core/array/cast.h"
#include "core/base/util.h"

#include <stdlib.h>

// The box, where its elements go, and a part of it at a time.
struct filling {
	struct ckpt_gather *gather;
	bool by_run; // elements of the wanted array are those of the other in C order: FIRST, RESHAPED
	enum ckpt_dtype from, to;
	unsigned ndim, width, to_width;
	uint64_t shape[CKPT_ARRAY_DIMS_MAX];
	uint64_t start[CKPT_ARRAY_DIMS_MAX], extent[CKPT_ARRAY_DIMS_MAX];
	int64_t strides[CKPT_ARRAY_DIMS_MAX];
	uint8_t *into;
	size_t room;         // bytes of each buffer
	uint8_t *raw, *cast; // made when they are needed
};

static bool multiply(const uint64_t *numbers, unsigned count, uint64_t by, uint64_t *ret_product)
{
	*ret_product = by;
	for (unsigned k = 0; k < count; k++)
		if (__builtin_mul_overflow(*ret_product, numbers[k], ret_product))
			return false;
	return true;
}

static bool is_packed(const struct filling *f)
{
	int64_t step = f->to_width;

	for (unsigned k = f->ndim; k-- > 0;) {
		if (f->extent[k] > 1 && f->strides[k] != step)
			return false;
		step *= (int64_t)f->extent[k];
	}
	return true;
}

// Calls row() for each row along the last dimension of a box of this extent.
static void each_row(const struct filling *f, const uint64_t *extent, uint8_t *at,
		     void (*row)(const struct filling *f, uint8_t *at, uint64_t count, void *arg), void *arg)
{
	uint64_t index[CKPT_ARRAY_DIMS_MAX] = {0};
	unsigned last = f->ndim - 1, k;

	for (unsigned i = 0; i < f->ndim; i++)
		if (!extent[i])
			return;
	for (;;) {
		row(f, at, extent[last], arg);
		for (k = last; k > 0; k--) {
			at += f->strides[k - 1];
			if (++index[k - 1] < extent[k - 1])
				break;
			at -= f->strides[k - 1] * (int64_t)extent[k - 1];
			index[k - 1] = 0;
		}
		if (!k)
			return;
	}
}

static void put_row(const struct filling *f, uint8_t *at, uint64_t count, void *arg)
{
	const uint8_t **from = arg;
	int64_t step = f->strides[f->ndim - 1];

	if (step == f->to_width)
		memcpy(at, *from, count * f->to_width);
	else
		for (uint64_t i = 0; i < count; i++)
			memcpy(at + (int64_t)i * step, *from + i * f->to_width, f->to_width);
	*from += count * f->to_width;
}

static void zero_row(const struct filling *f, uint8_t *at, uint64_t count, void *arg)
{
	int64_t step = f->strides[f->ndim - 1];

	(void)arg;
	if (step == f->to_width)
		memset(at, 0, count * f->to_width);
	else
		for (uint64_t i = 0; i < count; i++)
			memset(at + (int64_t)i * step, 0, f->to_width);
}

// --- Slabs ------------------------------------------------------------------------------------------------------------------

static int get(struct filling *f, const uint64_t *start, const uint64_t *extent, void *into)
{
	uint64_t first = 0, count;

	if (!f->by_run)
		return ckpt_gather_box(f->gather, start, extent, into);
	for (unsigned k = 0; k < f->ndim; k++)
		first = first * f->shape[k] + start[k];
	return multiply(extent, f->ndim, 1, &count) ? ckpt_gather_run(f->gather, first, count, into) : -EFBIG;
}

static int make_buffers(struct filling *f)
{
	if (!f->raw)
		f->raw = malloc(f->room);
	if (f->from != f->to && !f->cast)
		f->cast = malloc(f->room);
	return f->raw && (f->from == f->to || f->cast) ? 0 : -ENOMEM;
}

static int fill_slab(struct filling *f, const uint64_t *start, const uint64_t *extent, uint8_t *at)
{
	const uint8_t *from = f->raw;
	uint64_t count;
	int rc = get(f, start, extent, f->raw);

	if (rc)
		return rc;
	if (f->from != f->to) {
		multiply(extent, f->ndim, 1, &count);
		ckpt_cast(f->from, f->to, f->raw, count, f->cast);
		from = f->cast;
	}
	each_row(f, extent, at, put_row, &from);
	return 0;
}

// The dimension that slabs cut, and how many of its rows each has: what comes after it is in a slab as a whole. A run has to lie together.
static unsigned slab_dimension(const struct filling *f, uint64_t *ret_rows)
{
	uint64_t room = f->room / MAX(f->width, f->to_width);
	unsigned k = f->ndim - 1;

	while (k > 0 && f->extent[k] <= room && (!f->by_run || f->extent[k] == f->shape[k])) {
		room /= f->extent[k];
		k--;
	}
	*ret_rows = MIN(room, f->extent[k]);
	return k;
}

static int fill_slabs(struct filling *f)
{
	uint64_t start[CKPT_ARRAY_DIMS_MAX], extent[CKPT_ARRAY_DIMS_MAX], rows;
	unsigned cut = slab_dimension(f, &rows), k;
	uint8_t *at = f->into;
	int rc = make_buffers(f);

	for (unsigned i = 0; i < f->ndim; i++) {
		start[i] = f->start[i];
		extent[i] = i < cut ? 1 : f->extent[i];
	}
	while (!rc) {
		uint64_t done = start[cut] - f->start[cut];

		extent[cut] = MIN(rows, f->extent[cut] - done);
		rc = fill_slab(f, start, extent, at + (int64_t)done * f->strides[cut]);
		start[cut] += extent[cut];
		if (start[cut] - f->start[cut] < f->extent[cut])
			continue;
		start[cut] = f->start[cut];
		for (k = cut; k > 0; k--) {
			at += f->strides[k - 1];
			if (++start[k - 1] - f->start[k - 1] < f->extent[k - 1])
				break;
			at -= f->strides[k - 1] * (int64_t)f->extent[k - 1];
			start[k - 1] = f->start[k - 1];
		}
		if (!k)
			break;
	}
	return rc;
}

// --- A box ------------------------------------------------------------------------------------------------------------------

static int begin(struct filling *f, struct ckpt_gather *g, const struct ckpt_fill *fill)
{
	uint64_t bytes;
	int64_t step;

	if (fill->ndim > CKPT_ARRAY_DIMS_MAX)
		return -ERANGE;
	if (fill->from != fill->to && (!ckpt_is_floating(fill->from) || !ckpt_is_floating(fill->to)))
		return -ENOTSUP;
	*f = (struct filling){.gather = g,
			      .by_run = fill->fit == CKPT_FIT_FIRST || fill->fit == CKPT_FIT_RESHAPED,
			      .from = fill->from,
			      .to = fill->to,
			      .ndim = MAX(fill->ndim, 1u),
			      .width = ckpt_dtype_width(fill->from),
			      .to_width = ckpt_dtype_width(fill->to),
			      .shape = {1},
			      .extent = {1},
			      .into = fill->into,
			      .room = ckpt_gather_is_decoded(g) ? CKPT_FILL_DECODED_BYTES : CKPT_FILL_BYTES};
	for (unsigned k = 0; k < fill->ndim; k++) {
		f->shape[k] = fill->shape[k];
		f->start[k] = fill->start ? fill->start[k] : 0;
		f->extent[k] = fill->start ? fill->extent[k] : fill->shape[k];
		if (f->start[k] > f->shape[k] || f->extent[k] > f->shape[k] - f->start[k])
			return -ERANGE;
	}
	if (!multiply(f->extent, f->ndim, MAX(f->width, f->to_width), &bytes) || bytes > INT64_MAX)
		return -EFBIG;
	step = f->to_width;
	for (unsigned k = f->ndim; k-- > 0;) {
		f->strides[k] = fill->strides && fill->ndim ? fill->strides[k] : step;
		if (__builtin_mul_overflow(step, MAX(f->extent[k], UINT64_C(1)), &step))
			return -EFBIG;
	}
	return 0;
}

// Elements that the catalog's array lacks become zeros; the box is the rest.
static void pad(struct filling *f, const struct ckpt_fill *fill)
{
	each_row(f, f->extent, f->into, zero_row, NULL);
	for (unsigned k = 0; k < fill->ndim; k++)
		f->extent[k] = f->start[k] < fill->found[k] ? MIN(f->extent[k], fill->found[k] - f->start[k]) : 0;
}

int ckpt_fill_box(struct ckpt_gather *g, const struct ckpt_fill *fill)
{
	struct filling f;
	uint64_t count;
	int rc = begin(&f, g, fill);

	if (rc)
		return rc;
	if (fill->fit == CKPT_FIT_PADDED)
		pad(&f, fill);
	if (!multiply(f.extent, f.ndim, 1, &count))
		return -EFBIG;
	if (!count)
		return 0;
	if (f.from == f.to && is_packed(&f) && (!f.by_run || !fill->start))
		return get(&f, f.start, f.extent, f.into);
	rc = fill_slabs(&f);
	free(f.raw);
	free(f.cast);
	return rc;
}

// --- A flat range -------------------------------------------------------------------------------------------------------------

struct flat {
	struct ckpt_gather *gather;
	struct ckpt_fill box;
	uint64_t start[CKPT_ARRAY_DIMS_MAX], extent[CKPT_ARRAY_DIMS_MAX]; // of the part that is read now
	int64_t strides[CKPT_ARRAY_DIMS_MAX];
	uint64_t step[CKPT_ARRAY_DIMS_MAX]; // elements of the box from one index of a dimension to the next
};

// The part from element `first` of the box on, of `left` elements or fewer: whole steps of the first dimension on which the range has any. *ret_count: its
// elements.
static void choose_part(struct flat *f, const uint64_t *extent, uint64_t first, uint64_t left, uint64_t *ret_count)
{
	unsigned ndim = f->box.ndim, cut = 0;

	while (cut + 1 < ndim && (first % f->step[cut] || left < f->step[cut]))
		cut++;
	*ret_count = 1;
	for (unsigned k = 0; k < ndim; k++) {
		uint64_t index = first / f->step[k] % extent[k];

		f->start[k] = (f->box.start ? f->box.start[k] : 0) + (k <= cut ? index : 0);
		f->extent[k] = k < cut ? 1 : k > cut ? extent[k] : MIN(left / f->step[k], extent[k] - index);
		*ret_count *= f->extent[k];
	}
}

static int fill_parts(struct flat *f, const uint64_t *extent, uint64_t first, uint64_t count, uint8_t *into,
		      int64_t step)
{
	struct ckpt_fill part = f->box;
	uint64_t done = 0, now;
	int rc = 0;

	part.start = f->start;
	part.extent = f->extent;
	part.strides = f->strides;
	for (; done < count && !rc; done += now) {
		choose_part(f, extent, first + done, count - done, &now);
		part.into = into + (int64_t)done * step;
		rc = ckpt_fill_box(f->gather, &part);
	}
	return rc;
}

int ckpt_fill_flat(struct ckpt_gather *g, const struct ckpt_fill *fill, uint64_t first, uint64_t count)
{
	const uint64_t *extent = fill->start ? fill->extent : fill->shape;
	int64_t step = fill->strides ? *fill->strides : (int64_t)ckpt_dtype_width(fill->to), bytes;
	struct flat f = {.gather = g, .box = *fill};
	uint64_t elements = 1;

	if (fill->ndim > CKPT_ARRAY_DIMS_MAX)
		return -ERANGE;
	for (unsigned k = fill->ndim; k-- > 0;) {
		f.step[k] = elements;
		if (__builtin_mul_overflow(elements, extent[k], &elements))
			return -EFBIG;
	}
	if (first > elements || count > elements - first)
		return -ERANGE;
	for (unsigned k = 0; k < fill->ndim && count; k++)
		if (__builtin_mul_overflow(step, f.step[k], &f.strides[k]) ||
		    __builtin_mul_overflow(step, elements, &bytes))
			return -EFBIG;
	if (!fill->ndim) // a scalar is a range of one
		return count ? ckpt_fill_box(g, fill) : 0;
	return fill_parts(&f, extent, first, count, fill->into, step);
}
