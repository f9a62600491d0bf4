#include "tools/array_told.h"

#include "core/base/util.h"
#include "core/record/name.h"
#include "tools/output.h"

#include <inttypes.h>
#include <stdio.h>

// --- For people -------------------------------------------------------------------------------------------------------------

// A name as a terminal may have it, with control characters as \xNN.
static char *clean(const char *name)
{
	CLEANUP_FREE char *text = ckpt_need(ckpt_name_clean(name));
	char *made = ckpt_need(malloc(strlen(text) * 4 + 1)), *out = made;

	for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
		bool c1 = at[0] == 0xc2 && at[1] < 0xa0; // U+0080 to U+009F are control characters, too

		if (*at >= ' ' && *at != 0x7f && !c1)
			*out++ = (char)*at;
		else
			out += sprintf(out, "\\x%02x", c1 ? *++at : *at);
	}
	*out = '\0';
	return made;
}

static bool is_known(const struct ckpt_catalog_array *a)
{
	return a->dtype || a->ndim;
}

static void put_kind(FILE *out, const struct ckpt_catalog_array *a)
{
	if (!is_known(a)) {
		fputs("?", out);
		return;
	}
	fprintf(out, "%s [", ckpt_dtype_name(a->dtype));
	for (unsigned i = 0; i < a->ndim; i++)
		fprintf(out, "%s%" PRIu64, i ? ", " : "", a->shape[i]);
	fputs("]", out);
}

static bool same_kind(const struct ckpt_catalog_array *a, const struct ckpt_catalog_array *b)
{
	return a->dtype == b->dtype && a->ndim == b->ndim && !memcmp(a->shape, b->shape, a->ndim * sizeof(*a->shape));
}

static void put_difference(FILE *out, const struct ckpt_array_told *t)
{
	const struct ckpt_difference *by = t->by;

	fprintf(out, ": %" PRIu64 " of %" PRIu64 " element%s", by->differ, by->elements, by->elements == 1 ? "" : "s");
	fprintf(out, ", max abs %.9g", by->max_abs);
	if (ckpt_difference_has_ulp(t->a->dtype, t->b->dtype))
		fprintf(out, ", max ulp %" PRIu64, by->max_ulp);
	if (by->nan)
		fprintf(out, ", %" PRIu64 " NaN", by->nan);
	if (by->inf)
		fprintf(out, ", %" PRIu64 " infinite", by->inf);
}

char *ckpt_array_told_line(const struct ckpt_array_told *t)
{
	CLEANUP_FREE char *name = clean(t->name);
	char *made = NULL;
	size_t len = 0;
	FILE *out = ckpt_need(open_memstream(&made, &len));

	fputs(name, out);
	if (!t->a || !t->b || !same_kind(t->a, t->b)) {
		fputs("  ", out);
		put_kind(out, t->b ? t->b : t->a);
	}
	if (t->a && t->b && !same_kind(t->a, t->b)) {
		fputs(", was ", out);
		put_kind(out, t->a);
	}
	if (t->by)
		put_difference(out, t);
	if (t->why)
		fprintf(out, "  cannot be compared: %s", t->why);
	return fclose(out) ? ckpt_need(NULL) : made;
}

// --- For programs -----------------------------------------------------------------------------------------------------------

static json_t *count(uint64_t value)
{
	return ckpt_need(json_integer((json_int_t)MIN(value, (uint64_t)INT64_MAX)));
}

static json_t *shape_of(const struct ckpt_catalog_array *a)
{
	json_t *shape = is_known(a) ? ckpt_need(json_array()) : json_null();

	for (unsigned i = 0; i < a->ndim; i++)
		json_array_append_new(shape, count(a->shape[i]));
	return shape;
}

static json_t *kind_of(const struct ckpt_catalog_array *a)
{
	return ckpt_need(json_pack("{s:o, s:o, s:o}", "path", ckpt_json_text(a->tree), "dtype",
				   ckpt_json_text(a->dtype ? ckpt_dtype_name(a->dtype) : NULL), "shape", shape_of(a)));
}

json_t *ckpt_array_told_row(const struct ckpt_array_told *t)
{
	const struct ckpt_catalog_array *is = t->b ? t->b : t->a;
	bool ulp = t->by && ckpt_difference_has_ulp(t->a->dtype, t->b->dtype);
	json_t *row = kind_of(is);

	json_object_set_new(row, "array", ckpt_json_text(is->name));
	if (t->why)
		json_object_set_new(row, "why", ckpt_json_text(t->why));
	if (t->mark != '~')
		return row;
	json_object_set_new(row, "was", kind_of(t->a));
	json_object_set_new(row, "elements", t->by ? count(t->by->elements) : json_null());
	json_object_set_new(row, "differ", t->by ? count(t->by->differ) : json_null());
	json_object_set_new(row, "nan", t->by ? count(t->by->nan) : json_null());
	json_object_set_new(row, "inf", t->by ? count(t->by->inf) : json_null());
	json_object_set_new(row, "max_abs", t->by ? ckpt_need(json_real(t->by->max_abs)) : json_null());
	json_object_set_new(row, "max_ulp", ulp ? count(t->by->max_ulp) : json_null());
	return row;
}
