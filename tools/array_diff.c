#include "tools/array_diff.h"

#include "core/base/util.h"
#include "core/record/name.h"
#include "tools/output.h"

#include <stdio.h>

// The arrays of one file, by name.
struct list {
	struct ckpt_arrays *set;
	struct ckpt_array *at;
	size_t count;
};

static int by_name(const void *one, const void *other)
{
	return strcmp(((const struct ckpt_array *)one)->name, ((const struct ckpt_array *)other)->name);
}

// 1: no format of arrays.
static int list_of(const struct ckpt_source *s, const char *path, struct list *l)
{
	int rc = ckpt_arrays_read(path, s, &l->set);

	if (rc || !l->set)
		return rc ? rc : 1;
	l->count = ckpt_arrays_count(l->set);
	l->at = ckpt_need(ckpt_calloc(l->count + 1, sizeof(*l->at)));
	for (size_t i = 0; i < l->count; i++)
		ckpt_arrays_get(l->set, i, &l->at[i]);
	qsort(l->at, l->count, sizeof(*l->at), by_name);
	return 0;
}

static void list_done(struct list *l)
{
	ckpt_arrays_free(l->set);
	free(l->at);
}

static bool same_kind(const struct ckpt_array *a, const struct ckpt_array *b)
{
	return a->dtype == b->dtype && a->ndim == b->ndim && a->bytes == b->bytes &&
	       a->column_major == b->column_major && !memcmp(a->shape, b->shape, a->ndim * sizeof(*a->shape));
}

// 0 the same, 1 not, -errno.
static int compare_bytes(struct ckpt_array_diff *d, const struct ckpt_array *a, const struct ckpt_array *b)
{
	char *one = d->buffer, *other = d->buffer + CKPT_ARRAY_DIFF_PIECE;
	size_t len;
	int rc = 0;

	for (uint64_t at = 0; at < a->bytes && !rc; at += len) {
		len = (size_t)MIN(a->bytes - at, (uint64_t)CKPT_ARRAY_DIFF_PIECE);
		rc = ckpt_source_read(&d->a, a->offset + at, one, len);
		if (!rc)
			rc = ckpt_source_read(&d->b, b->offset + at, other, len);
		if (!rc)
			rc = memcmp(one, other, len) ? 1 : 0;
		d->progress(d->arg, len);
	}
	return rc;
}

static int compare(struct ckpt_array_diff *d, const struct ckpt_array *a, const struct ckpt_array *b)
{
	int rc = same_kind(a, b) ? compare_bytes(d, a, b) : 1;

	if (rc < 0)
		return rc;
	if (rc)
		d->tell(d->arg, '~', b, a);
	else
		d->same++;
	return 0;
}

static int merge(struct ckpt_array_diff *d, const struct list *a, const struct list *b)
{
	size_t i = 0, k = 0;
	int rc = 0;

	while (!rc && (i < a->count || k < b->count)) {
		int order = i == a->count ? 1 : k == b->count ? -1 : by_name(&a->at[i], &b->at[k]);

		if (order < 0)
			d->tell(d->arg, '-', &a->at[i++], NULL);
		else if (order > 0)
			d->tell(d->arg, '+', &b->at[k++], NULL);
		else
			rc = compare(d, &a->at[i++], &b->at[k++]);
	}
	return rc;
}

int ckpt_array_diff(struct ckpt_array_diff *d)
{
	struct list a = {0}, b = {0};
	int rc = list_of(&d->a, d->path, &a);

	if (!rc)
		rc = list_of(&d->b, d->path, &b);
	if (!rc)
		rc = merge(d, &a, &b);
	list_done(&a);
	list_done(&b);
	return rc;
}

// --- As text ------------------------------------------------------------------------------------------------------------

char *ckpt_array_kind(const struct ckpt_array *array)
{
	char *text;

	if (!array->dtype && !array->ndim)
		return ckpt_text("? %llu bytes", (unsigned long long)array->bytes);
	text = ckpt_text("%s [", ckpt_dtype_name(array->dtype));
	for (unsigned i = 0; i < array->ndim; i++) {
		CLEANUP_FREE char *before = text;

		text = ckpt_text("%s%s%llu", before, i ? ", " : "", (unsigned long long)array->shape[i]);
	}
	{
		CLEANUP_FREE char *before = text;

		return ckpt_text("%s]%s", before, array->column_major ? " by columns" : "");
	}
}

char *ckpt_array_name(const struct ckpt_array *array)
{
	CLEANUP_FREE char *clean = ckpt_need(ckpt_name_clean(array->name));
	char *text = ckpt_need(malloc(strlen(clean) * 4 + 1)), *out = text;

	for (const unsigned char *at = (const unsigned char *)clean; *at; at++) {
		bool c1 = at[0] == 0xc2 && at[1] < 0xa0; // U+0080 to U+009F are control characters, too

		if (*at >= ' ' && *at != 0x7f && !c1)
			*out++ = (char)*at;
		else
			out += sprintf(out, "\\x%02x", c1 ? *++at : *at);
	}
	*out = '\0';
	return text;
}
