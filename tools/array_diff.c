#include "tools/array_diff.h"

#include "core/array/findings.h"
#include "core/array/gather.h"
#include "core/array/names.h"
#include "core/base/util.h"
#include "tools/output.h"

#include <stdio.h>

#define PIECE ((uint64_t)1 << 20) // bytes that are compared at once

struct item {
	struct ckpt_catalog_array array;
	size_t index; // of the catalog
	char *tree;   // as the other side would call it
};

struct list {
	const struct ckpt_array_diff_side *side;
	struct item *at;
	size_t count;
};

// A pair of arrays that is compared.
struct pair {
	struct ckpt_array_diff *d;
	const struct item *a, *b;
	const char *name;
	uint8_t *x, *y; // PIECE each
};

static int by_name(const void *one, const void *other)
{
	const struct item *a = one, *b = other;

	return strcmp(a->array.name, b->array.name);
}

static int by_name_and_tree(const void *one, const void *other)
{
	const struct item *a = one, *b = other;
	int order = by_name(a, b);

	if (!order)
		order = strcmp(a->tree, b->tree);
	return order ? order : (a->index > b->index) - (a->index < b->index);
}

// Its tree as the other side calls it: by the same name, where that has it, or with the number of that step. names: NULL, as it is.
static char *tree_there(const struct ckpt_array_diff_side *side, const struct ckpt_catalog_array *a, int64_t number,
			const struct ckpt_names *names)
{
	CLEANUP_FREE char *full = ckpt_need(ckpt_text("%s:%s", a->tree, a->name));
	size_t at;

	if (names && !ckpt_names_find(names, full, &at))
		number = -1;
	return ckpt_need(ckpt_findings_tree(a->tree, side->number, number));
}

static void list_of(const struct ckpt_array_diff_side *side, const struct ckpt_array_diff_side *other, struct list *l)
{
	struct ckpt_names *names = NULL;

	if (other && ckpt_names_new(other->catalog, &names))
		ckpt_need(NULL);
	l->side = side;
	l->count = ckpt_catalog_count(side->catalog);
	l->at = ckpt_need(ckpt_calloc(l->count + 1, sizeof(*l->at)));
	for (size_t i = 0; i < l->count; i++) {
		struct item *one = &l->at[i];

		one->index = i;
		ckpt_catalog_get(side->catalog, i, &one->array);
		one->tree = tree_there(side, &one->array, other ? other->number : -1, names);
	}
	ckpt_names_free(names);
	qsort(l->at, l->count, sizeof(*l->at), by_name_and_tree);
}

static void list_done(struct list *l)
{
	for (size_t i = 0; i < l->count; i++)
		free(l->at[i].tree);
	free(l->at);
}

// --- Without their elements -------------------------------------------------------------------------------------------------

static bool same_shape(const struct ckpt_catalog_array *a, const struct ckpt_catalog_array *b)
{
	return a->ndim == b->ndim && !memcmp(a->shape, b->shape, a->ndim * sizeof(*a->shape));
}

static bool same_fill(const struct ckpt_catalog_array *a, const struct ckpt_catalog_array *b)
{
	return a->fill && b->fill ? !memcmp(a->fill, b->fill, ckpt_dtype_width(a->dtype)) : !a->fill && !b->fill;
}

static void piece_of(const struct ckpt_array_diff_side *side, const struct item *of, size_t i, struct ckpt_piece *ret)
{
	ckpt_catalog_piece(side->catalog, of->index, i, ret);
}

static bool same_place(const struct ckpt_piece *a, const struct ckpt_piece *b, unsigned ndim)
{
	size_t bytes = ndim * sizeof(uint64_t);

	if (a->data || b->data)
		return false;
	return a->offset == b->offset && a->bytes == b->bytes && a->first == b->first && !strcmp(a->file, b->file) &&
	       !memcmp(a->codecs, b->codecs, sizeof(a->codecs)) && !memcmp(a->start, b->start, bytes) &&
	       !memcmp(a->extent, b->extent, bytes) && !memcmp(a->strides, b->strides, bytes);
}

// All bytes lie at the same places of files that are the same.
static bool is_unmoved(const struct pair *p)
{
	const struct ckpt_catalog_array *a = &p->a->array, *b = &p->b->array;

	if (a->big_endian != b->big_endian || a->pieces != b->pieces || !same_fill(a, b) ||
	    strcmp(a->format, b->format) || strcmp(a->tree, b->tree))
		return false;
	for (size_t i = 0; i < a->pieces; i++) {
		struct ckpt_piece x, y;

		piece_of(&p->d->a, p->a, i, &x);
		piece_of(&p->d->b, p->b, i, &y);
		if (!same_place(&x, &y, a->ndim) || !p->d->is_same_file(p->d->arg, x.file))
			return false;
	}
	return a->pieces || a->fill || p->d->is_same_file(p->d->arg, a->tree);
}

static bool is_as_sealed(const struct pair *p, char which)
{
	const struct ckpt_array_diff_side *side = which == 'a' ? &p->d->a : &p->d->b;
	const struct item *of = which == 'a' ? p->a : p->b;
	struct ckpt_piece piece;

	for (size_t i = 0; i < of->array.pieces; i++) {
		piece_of(side, of, i, &piece);
		if (!p->d->is_as_sealed(p->d->arg, which, piece.file))
			return false;
	}
	return true;
}

// The elements were the same when they were read.
static bool is_same_digest(const struct pair *p)
{
	const uint8_t *a = p->a->array.digest, *b = p->b->array.digest;

	return a && b && !memcmp(a, b, CKPT_ARRAY_DIGEST_LEN) && is_as_sealed(p, 'a') && is_as_sealed(p, 'b');
}

// --- As they are stored -----------------------------------------------------------------------------------------------------

static int fail(const struct pair *p, char side, int rc)
{
	p->d->failed = side;
	free(p->d->failed_array);
	p->d->failed_array = ckpt_text("%s", p->name);
	return rc;
}

static int compare_sources(const struct pair *p, const struct ckpt_source *a, const struct ckpt_piece *x,
			   const struct ckpt_source *b, const struct ckpt_piece *y, bool *ret_same)
{
	for (uint64_t at = 0, n; at < x->bytes && *ret_same; at += n) {
		int rc;

		n = MIN(x->bytes - at, PIECE);
		rc = ckpt_source_read(a, x->offset + at, p->x, (size_t)n);
		if (rc)
			return fail(p, 'a', rc);
		rc = ckpt_source_read(b, y->offset + at, p->y, (size_t)n);
		if (rc)
			return fail(p, 'b', rc);
		*ret_same = !memcmp(p->x, p->y, (size_t)n);
		p->d->progress(p->d->arg, n);
	}
	return 0;
}

static int compare_pieces(const struct pair *p, const struct ckpt_piece *x, const struct ckpt_piece *y, bool *ret_same)
{
	const struct ckpt_catalog_files *a = p->d->a.files, *b = p->d->b.files;
	struct ckpt_source one, other;
	int rc = a->open(a->arg, x->file, &one);

	if (rc)
		return fail(p, 'a', rc);
	rc = b->open(b->arg, y->file, &other);
	if (rc) {
		rc = fail(p, 'b', rc);
	} else {
		rc = compare_sources(p, &one, x, &other, y, ret_same);
		b->close(b->arg, &other);
	}
	a->close(a->arg, &one);
	return rc;
}

// Bytes of what has no elements here: blocks of a quantised type, objects. False: their bytes cannot be compared.
static bool has_bytes(const struct pair *p)
{
	const struct ckpt_catalog_array *a = &p->a->array, *b = &p->b->array;

	if (strcmp(a->format, b->format) || a->pieces != b->pieces || !a->pieces)
		return false;
	for (size_t i = 0; i < a->pieces; i++) {
		struct ckpt_piece x, y;

		piece_of(&p->d->a, p->a, i, &x);
		piece_of(&p->d->b, p->b, i, &y);
		if (x.data || y.data || x.codecs[0] || y.codecs[0])
			return false;
	}
	return true;
}

static int compare_bytes(const struct pair *p, bool *ret_same)
{
	int rc = 0;

	*ret_same = true;
	for (size_t i = 0; i < p->a->array.pieces && !rc && *ret_same; i++) {
		struct ckpt_piece x, y;

		piece_of(&p->d->a, p->a, i, &x);
		piece_of(&p->d->b, p->b, i, &y);
		*ret_same = x.bytes == y.bytes;
		rc = *ret_same ? compare_pieces(p, &x, &y, ret_same) : 0;
	}
	return rc;
}

// --- By their elements ------------------------------------------------------------------------------------------------------

static bool is_own_fault(int rc)
{
	return rc == -ENODATA || rc == -EBADMSG || rc == -EFBIG || rc == -ENOTSUP;
}

static int compare_runs(const struct pair *p, struct ckpt_gather *x, struct ckpt_gather *y, struct ckpt_difference *by)
{
	enum ckpt_dtype a = p->a->array.dtype, b = p->b->array.dtype;
	unsigned widths = MAX(ckpt_gather_width(x), ckpt_gather_width(y));
	uint64_t count = ckpt_gather_elements(x);

	for (uint64_t at = 0, n; at < count; at += n) {
		int rc;

		n = MIN(count - at, PIECE / widths);
		rc = ckpt_gather_run(x, at, n, p->x);
		if (rc)
			return fail(p, 'a', rc);
		rc = ckpt_gather_run(y, at, n, p->y);
		if (rc)
			return fail(p, 'b', rc);
		ckpt_difference_add(by, a, p->x, b, p->y, (size_t)n);
		p->d->progress(p->d->arg, n * ckpt_gather_width(x));
	}
	return 0;
}

static int compare_elements(const struct pair *p, struct ckpt_difference *by)
{
	struct ckpt_gather *x = NULL, *y = NULL;
	int rc = ckpt_gather_new(p->d->a.catalog, p->a->index, p->d->a.files, &x);

	if (rc) {
		rc = fail(p, 'a', rc);
	} else {
		rc = ckpt_gather_new(p->d->b.catalog, p->b->index, p->d->b.files, &y);
		rc = rc ? fail(p, 'b', rc) : compare_runs(p, x, y, by);
	}
	ckpt_gather_free(x);
	ckpt_gather_free(y);
	return rc;
}

// --- One array --------------------------------------------------------------------------------------------------------------

static void tell(const struct pair *p, char mark, const struct ckpt_difference *by, const char *why)
{
	p->d->tell(p->d->arg, &(struct ckpt_array_told){mark, p->name, p->a ? &p->a->array : NULL,
							p->b ? &p->b->array : NULL, by, why});
}

// Objects, and blocks of types that have no elements here.
static int compare_opaque(const struct pair *p, const char *why)
{
	bool same;
	int rc;

	if (!has_bytes(p)) {
		tell(p, '?', NULL, why);
		return 0;
	}
	rc = compare_bytes(p, &same);
	if (rc)
		return rc;
	if (same)
		p->d->same++;
	else
		tell(p, '~', NULL, NULL);
	return 0;
}

static const char *reason_of(const struct ckpt_array_diff_side *side, const struct item *of)
{
	if (of->array.why)
		return of->array.why;
	return ckpt_findings_may_read(side->catalog, of->index) ? NULL : "its elements are mostly not stored";
}

static int compare_values(const struct pair *p)
{
	struct ckpt_difference by = {0};
	int rc = compare_elements(p, &by);

	if (is_own_fault(rc)) {
		CLEANUP_FREE char *why = ckpt_text("%s, in %s", ckpt_findings_why(rc), p->d->failed == 'a' ? "A" : "B");

		tell(p, '?', NULL, why);
		return 0;
	}
	if (rc)
		return rc;
	if (by.differ || p->a->array.dtype != p->b->array.dtype)
		tell(p, '~', &by, NULL);
	else
		p->d->same++;
	return 0;
}

static int compare(const struct pair *p)
{
	const struct ckpt_catalog_array *a = &p->a->array, *b = &p->b->array;
	const char *why;

	if (!same_shape(a, b) || (a->dtype != b->dtype && !ckpt_difference_is_known(a->dtype, b->dtype))) {
		tell(p, '~', NULL, NULL);
		return 0;
	}
	if (a->dtype == b->dtype && (is_unmoved(p) || is_same_digest(p))) {
		p->d->same++;
		return 0;
	}
	why = reason_of(&p->d->a, p->a);
	why = why ? why : reason_of(&p->d->b, p->b);
	if (why || !ckpt_difference_is_known(a->dtype, b->dtype))
		return compare_opaque(p, why ? why : "several of its elements share a byte");
	return compare_values(p);
}

// --- All of them ------------------------------------------------------------------------------------------------------------

// Those of one name.
static size_t group_of(const struct list *l, size_t from)
{
	size_t end = from;

	while (end < l->count && !by_name(&l->at[from], &l->at[end]))
		end++;
	return end - from;
}

static int take(struct pair *p, const struct item *a, const struct item *b, bool full)
{
	const struct ckpt_catalog_array *one = b ? &b->array : &a->array;
	CLEANUP_FREE char *name = full ? ckpt_text("%s:%s", one->tree, one->name) : ckpt_text("%s", one->name);

	p->a = a;
	p->b = b;
	p->name = name;
	if (a && b)
		return compare(p);
	tell(p, a ? '-' : '+', NULL, NULL);
	return 0;
}

static int take_group(struct pair *p, const struct item *a, size_t a_count, const struct item *b, size_t b_count)
{
	bool full = a_count > 1 || b_count > 1;
	size_t i = 0, k = 0;
	int rc = 0;

	if (a_count == 1 && b_count == 1)
		return take(p, a, b, false);
	while (!rc && (i < a_count || k < b_count)) {
		int order = i == a_count ? 1 : k == b_count ? -1 : strcmp(a[i].tree, b[k].tree);
		const struct item *one = order <= 0 ? &a[i++] : NULL, *other = order >= 0 ? &b[k++] : NULL;

		rc = take(p, one, other, full);
	}
	return rc;
}

static int take_all(struct pair *p, const struct list *a, const struct list *b)
{
	size_t i = 0, k = 0;
	int rc = 0;

	while (!rc && (i < a->count || k < b->count)) {
		int order = i == a->count ? 1 : k == b->count ? -1 : by_name(&a->at[i], &b->at[k]);
		size_t a_count = order <= 0 ? group_of(a, i) : 0, b_count = order >= 0 ? group_of(b, k) : 0;

		rc = take_group(p, a->at + i, a_count, b->at + k, b_count);
		i += a_count;
		k += b_count;
	}
	return rc;
}

int ckpt_array_diff(struct ckpt_array_diff *d)
{
	struct pair p = {.d = d, .x = ckpt_need(malloc(PIECE)), .y = ckpt_need(malloc(PIECE))};
	struct list a, b;
	int rc;

	list_of(&d->a, NULL, &a);
	list_of(&d->b, &d->a, &b);
	rc = take_all(&p, &a, &b);
	list_done(&a);
	list_done(&b);
	free(p.x);
	free(p.y);
	return rc;
}
