#include "core/view/array_choice.h"

#include "core/array/cast.h"
#include "core/base/util.h"
#include "core/limits.h"
#include "core/view/array_glob.h"

#include <stdio.h>

#define WHOLE CKPT_CHOICE_WHOLE

struct item {
	uint32_t array, name; // name: offset in the heap
	uint32_t slice;       // or WHOLE
};

struct ckpt_array_choice {
	const struct ckpt_catalog *c;
	struct item *items;
	size_t count, cap;
	char *heap;
	size_t heap_len, heap_cap;
	struct ckpt_choice_how parts; // unroll, shard and dtype of it
};

static int too_many(struct ckpt_view_why *why)
{
	ckpt_view_wrong(why, "there are more than %u arrays, or names of more than %zu MiB", CKPT_CHOICE_ARRAYS_MAX,
			CKPT_CHOICE_NAME_BYTES_MAX >> 20);
	snprintf(why->hint, sizeof(why->hint), "choose fewer arrays with only= and not=");
	return -EFBIG;
}

// --- Which ------------------------------------------------------------------------------------------------------------------

struct choosing {
	struct ckpt_array_choice *k;
	const struct ckpt_choice_how *how;
	struct ckpt_view_why *why;
	uint64_t work;
	bool layers; // of arrays that can be unrolled, those of layers are
};

static int match(struct choosing *c, const char *const *globs, const struct ckpt_catalog_array *a, bool *ret_matches)
{
	*ret_matches = false;
	for (; globs && *globs && !*ret_matches; globs++) {
		if (c->work > CKPT_CHOICE_WORK_MAX) {
			ckpt_view_wrong(c->why, "its globs would have to be compared with too many names");
			snprintf(c->why->hint, sizeof(c->why->hint), "use fewer globs, with \"**\" for many names");
			return -EFBIG;
		}
		*ret_matches = ckpt_array_glob_counted(*globs, a->tree, a->name, &c->work);
	}
	return 0;
}

static bool has_elements(const struct ckpt_catalog_array *a)
{
	return !a->why && a->dtype && ckpt_dtype_bits(a->dtype) >= 8;
}

static int add_item(struct choosing *c, size_t array, uint32_t slice)
{
	struct ckpt_array_choice *k = c->k;

	if (k->count == CKPT_CHOICE_ARRAYS_MAX)
		return too_many(c->why);
	if (ckpt_grow((void **)&k->items, &k->cap, k->count + 1, sizeof(*k->items)))
		return -ENOMEM;
	k->items[k->count++] = (struct item){.array = (uint32_t)array, .slice = slice};
	return 0;
}

static int choose(struct choosing *c)
{
	const struct ckpt_choice_how *how = c->how;
	int rc = 0;

	for (size_t i = 0; i < ckpt_catalog_count(c->k->c) && !rc; i++) {
		struct ckpt_catalog_array a;
		bool only = true, not = false;

		ckpt_catalog_get(c->k->c, i, &a);
		if (how->only)
			rc = match(c, how->only, &a, &only);
		if (!rc && only)
			rc = match(c, how->not, &a, &not );
		if (rc || !only || not )
			continue;
		if (has_elements(&a))
			rc = add_item(c, i, WHOLE);
		else if (how->left_out)
			rc = how->left_out(how->arg, &a);
	}
	return rc;
}

// --- Names ------------------------------------------------------------------------------------------------------------------

// The end of the last component that is "layers" or ends with "_layers"; NULL: there is none.
static const char *after_layers(const char *name)
{
	static const char word[] = "layers";
	const char *found = NULL;

	for (const char *at = name; (at = strstr(at, word)); at++) {
		const char *end = at + strlen(word);

		if ((at == name || strchr("./_:", at[-1])) && (!*end || *end == '.' || *end == '/'))
			found = end;
	}
	return found;
}

static bool can_unroll(const struct ckpt_array_choice *k, size_t array, struct ckpt_catalog_array *ret_array)
{
	ckpt_catalog_get(k->c, array, ret_array);
	return ret_array->ndim > k->parts.unroll_axis;
}

// The items become those of their slices.
static int unroll(struct choosing *c)
{
	struct ckpt_array_choice *k = c->k;
	CLEANUP_FREE struct item *before = k->items;
	size_t count = k->count;
	struct ckpt_catalog_array a;
	int rc = 0;

	k->items = NULL;
	k->count = k->cap = 0;
	for (size_t i = 0; i < count && !c->layers; i++)
		c->layers = can_unroll(k, before[i].array, &a) && after_layers(a.name);
	for (size_t i = 0; i < count && !rc; i++) {
		if (!can_unroll(k, before[i].array, &a) || (c->layers && !after_layers(a.name)))
			rc = add_item(c, before[i].array, WHOLE);
		else
			for (uint64_t s = 0; s < a.shape[k->parts.unroll_axis] && !rc; s++)
				rc = add_item(c, before[i].array, (uint32_t)s);
	}
	return rc;
}

static int by_name(const void *one, const void *other, void *arg)
{
	const struct ckpt_array_choice *k = arg;
	const uint32_t *a = one, *b = other;
	struct ckpt_catalog_array x, y;

	ckpt_catalog_get(k->c, k->items[*a].array, &x);
	ckpt_catalog_get(k->c, k->items[*b].array, &y);
	return strcmp(x.name, y.name);
}

static bool have_one_name(struct ckpt_array_choice *k, uint32_t one, uint32_t other)
{
	return !by_name(&one, &other, k);
}

static uint32_t *in_order(size_t count)
{
	uint32_t *order = ckpt_calloc(count + 1, sizeof(*order));

	for (size_t i = 0; order && i < count; i++)
		order[i] = (uint32_t)i;
	return order;
}

// Before arrays are unrolled, so that none comes twice.
static int find_short(struct choosing *c, bool *is_short)
{
	struct ckpt_array_choice *k = c->k;
	CLEANUP_FREE uint32_t *order = in_order(k->count);

	if (!order)
		return -ENOMEM;
	if (k->count)
		qsort_r(order, k->count, sizeof(*order), by_name, k);
	for (size_t i = 0; i < k->count; i++)
		is_short[k->items[order[i]].array] = (!i || !have_one_name(k, order[i - 1], order[i])) &&
						     (i + 1 == k->count || !have_one_name(k, order[i], order[i + 1]));
	return 0;
}

bool ckpt_choice_is_layer(const char *name)
{
	return after_layers(name) != NULL;
}

static char *unrolled(const char *name, uint32_t slice, bool layers)
{
	const char *after = layers ? after_layers(name) : NULL;
	char *out;
	int n;

	if (slice == WHOLE)
		n = asprintf(&out, "%s", name);
	else if (after)
		n = asprintf(&out, "%.*s_%u%s", (int)(after - name), name, slice, after);
	else
		n = asprintf(&out, "%s.%u", name, slice);
	return n < 0 ? NULL : out;
}

static const char *renamed(const struct ckpt_choice_how *how, const char *name)
{
	return how->renames ? json_string_value(json_object_get(how->renames, name)) : NULL;
}

char *ckpt_choice_name(const struct ckpt_choice_how *how, const char *name, const char *full, uint32_t slice,
		       bool layers)
{
	CLEANUP_FREE char *one = unrolled(name, slice, layers), *other = full ? unrolled(full, slice, layers) : NULL;
	const char *to;
	char *out;

	if (!one || (full && !other))
		return NULL;
	to = renamed(how, one);
	if (!to && other)
		to = renamed(how, other);
	return asprintf(&out, "%s%s", how->prefix ? how->prefix : "", to ? to : one) < 0 ? NULL : out;
}

static int put_name(struct choosing *c, struct item *item, const char *name)
{
	struct ckpt_array_choice *k = c->k;
	size_t len = strlen(name);

	if (k->heap_len + len + 1 > CKPT_CHOICE_NAME_BYTES_MAX)
		return too_many(c->why);
	if (ckpt_grow((void **)&k->heap, &k->heap_cap, k->heap_len + len + 1, 1))
		return -ENOMEM;
	item->name = (uint32_t)k->heap_len;
	memcpy(k->heap + k->heap_len, name, len + 1);
	k->heap_len += len + 1;
	return 0;
}

static int name_item(struct choosing *c, struct item *item, bool is_short)
{
	CLEANUP_FREE char *full = NULL, *name = NULL;
	struct ckpt_catalog_array a;

	ckpt_catalog_get(c->k->c, item->array, &a);
	if (asprintf(&full, "%s:%s", a.tree, a.name) < 0)
		full = NULL;
	if (full)
		name = ckpt_choice_name(c->how, is_short ? a.name : full, full, item->slice, c->layers);
	return name ? put_name(c, item, name) : -ENOMEM;
}

static int by_text(const void *one, const void *other, void *arg)
{
	const struct ckpt_array_choice *k = arg;

	return strcmp(k->heap + k->items[*(const uint32_t *)one].name,
		      k->heap + k->items[*(const uint32_t *)other].name);
}

static int check_names(struct choosing *c)
{
	struct ckpt_array_choice *k = c->k;
	CLEANUP_FREE uint32_t *order = in_order(k->count);

	if (!order)
		return -ENOMEM;
	if (k->count)
		qsort_r(order, k->count, sizeof(*order), by_text, k);
	for (size_t i = 1; i < k->count; i++)
		if (!by_text(&order[i - 1], &order[i], k)) {
			ckpt_view_wrong(c->why, "two arrays would be called %.200s", k->heap + k->items[order[i]].name);
			snprintf(c->why->hint, sizeof(c->why->hint), "leave one of them out with not=, or rename one");
			return -EINVAL;
		}
	return 0;
}

// --- All --------------------------------------------------------------------------------------------------------------------

static int make(struct choosing *c)
{
	struct ckpt_array_choice *k = c->k;
	CLEANUP_FREE bool *is_short = ckpt_calloc(ckpt_catalog_count(k->c) + 1, sizeof(*is_short));
	int rc = is_short ? choose(c) : -ENOMEM;

	if (!rc)
		rc = find_short(c, is_short);
	if (!rc && c->how->unroll)
		rc = unroll(c);
	for (size_t i = 0; i < k->count && !rc; i++)
		rc = name_item(c, &k->items[i], is_short[k->items[i].array]);
	return rc ? rc : check_names(c);
}

int ckpt_array_choice_new(const struct ckpt_catalog *c, const struct ckpt_choice_how *how,
			  struct ckpt_array_choice **ret_choice, struct ckpt_view_why *ret_why)
{
	struct ckpt_array_choice *k = ckpt_calloc(1, sizeof(*k));
	struct choosing choosing = {.k = k, .how = how, .why = ret_why};
	int rc;

	*ret_why = (struct ckpt_view_why){0};
	if (!k)
		return -ENOMEM;
	k->c = c;
	k->parts = (struct ckpt_choice_how){.unroll = how->unroll,
					    .unroll_axis = how->unroll_axis,
					    .shard = how->shard,
					    .shards = how->shards,
					    .axis = how->axis,
					    .dtype = how->dtype};
	rc = make(&choosing);
	if (rc)
		ckpt_array_choice_free(k);
	else
		*ret_choice = k;
	return rc;
}

void ckpt_array_choice_free(struct ckpt_array_choice *k)
{
	if (!k)
		return;
	free(k->items);
	free(k->heap);
	free(k);
}

size_t ckpt_array_choice_bytes(const struct ckpt_array_choice *k)
{
	return sizeof(*k) + k->cap * sizeof(*k->items) + k->heap_cap;
}

const struct ckpt_catalog *ckpt_array_choice_catalog(const struct ckpt_array_choice *k)
{
	return k->c;
}

size_t ckpt_array_choice_count(const struct ckpt_array_choice *k)
{
	return k->count;
}

// --- Parts ------------------------------------------------------------------------------------------------------------------

// Of n rows: ret_start is where the part begins.
static uint64_t rows_of(const struct ckpt_choice_how *how, uint64_t n, uint64_t *ret_start)
{
	uint64_t each = n / how->shards + (n % how->shards != 0), start;

	if (__builtin_mul_overflow(how->shard - 1, each, &start) || start > n)
		start = n;
	*ret_start = start;
	return MIN(each, n - start);
}

static bool is_cut(const struct ckpt_choice_how *how, unsigned ndim)
{
	return how->shards > 1 && ndim > how->axis;
}

static bool is_cast(const struct ckpt_choice_how *how, enum ckpt_dtype dtype)
{
	return how->dtype && how->dtype != dtype && ckpt_is_floating(dtype);
}

// Takes *e, which becomes what was made of it.
static int replace(struct ckpt_expr **e, int rc, struct ckpt_expr *made)
{
	ckpt_expr_unref(*e);
	*e = rc ? NULL : made;
	return rc;
}

int ckpt_choice_part(const struct ckpt_choice_how *how, struct ckpt_expr *whole, uint32_t slice,
		     struct ckpt_expr **ret_expr)
{
	struct ckpt_expr *e = ckpt_expr_ref(whole), *made = NULL;
	int rc = 0;

	if (slice != WHOLE) {
		rc = ckpt_expr_take(e, how->unroll_axis, slice, &made);
		rc = replace(&e, rc, made);
	}
	if (!rc && is_cut(how, ckpt_expr_shape(e)->ndim)) {
		uint64_t start, rows = rows_of(how, ckpt_expr_shape(e)->at[how->axis], &start);

		rc = ckpt_expr_slice(e, how->axis, start, rows, &made);
		rc = replace(&e, rc, made);
	}
	if (!rc && is_cast(how, ckpt_expr_shape(e)->dtype)) {
		rc = ckpt_expr_cast(e, how->dtype, &made);
		rc = replace(&e, rc, made);
	}
	if (!rc)
		*ret_expr = e;
	return rc;
}

static void drop_axis(struct ckpt_array_chosen *s, unsigned axis)
{
	memmove(s->shape + axis, s->shape + axis + 1, (s->ndim - axis - 1) * sizeof(*s->shape));
	s->ndim--;
}

static uint64_t elements_behind(const struct ckpt_array_chosen *s, unsigned axis)
{
	uint64_t n = 1;

	for (unsigned i = axis + 1; i < s->ndim; i++)
		n *= s->shape[i];
	return n;
}

// A part of this axis is one run.
static bool is_in_front(const struct ckpt_array_chosen *s, unsigned axis)
{
	for (unsigned i = 0; i < axis; i++)
		if (s->shape[i] != 1)
			return false;
	return true;
}

void ckpt_array_choice_get(const struct ckpt_array_choice *k, size_t i, struct ckpt_array_chosen *ret_chosen)
{
	const struct ckpt_choice_how *how = &k->parts;
	const struct item *item = &k->items[i];
	struct ckpt_array_chosen *s = ret_chosen;
	struct ckpt_catalog_array a;

	ckpt_catalog_get(k->c, item->array, &a);
	s->name = k->heap + item->name;
	s->array = item->array;
	s->dtype = a.dtype;
	s->ndim = a.ndim;
	memcpy(s->shape, a.shape, a.ndim * sizeof(*s->shape));
	s->is_run = true;
	s->first = 0;
	if (item->slice != WHOLE) {
		s->is_run = is_in_front(s, how->unroll_axis);
		s->first = item->slice * elements_behind(s, how->unroll_axis);
		drop_axis(s, how->unroll_axis);
	}
	if (is_cut(how, s->ndim)) {
		uint64_t start, rows = rows_of(how, s->shape[how->axis], &start);

		s->is_run = s->is_run && (is_in_front(s, how->axis) || rows == s->shape[how->axis]);
		s->first += start * elements_behind(s, how->axis);
		s->shape[how->axis] = rows;
	}
	if (is_cast(how, s->dtype)) {
		s->is_run = false;
		s->dtype = how->dtype;
	}
}

int ckpt_array_choice_expr(const struct ckpt_array_choice *k, size_t i, const struct ckpt_catalog_files *files,
			   struct ckpt_expr **ret_expr)
{
	const struct item *item = &k->items[i];
	struct ckpt_expr *whole;
	int rc = ckpt_expr_array(k->c, item->array, files, &whole);

	if (rc)
		return rc;
	rc = ckpt_choice_part(&k->parts, whole, item->slice, ret_expr);
	ckpt_expr_unref(whole);
	return rc;
}

// --- Lists ------------------------------------------------------------------------------------------------------------------

int ckpt_choice_globs(const json_t *json, const char ***ret_globs, struct ckpt_view_why *ret_why)
{
	size_t count = json_array_size(json);
	const char **globs = ckpt_calloc(count + 1, sizeof(*globs));

	if (!globs)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		globs[i] = json_string_value(json_array_get(json, i));
		if (!globs[i] || !*globs[i])
			count = 0;
	}
	if (count) {
		*ret_globs = globs;
		return 0;
	}
	free(globs);
	ckpt_view_wrong(ret_why, "it is no list of globs");
	snprintf(ret_why->hint, sizeof(ret_why->hint), "for example [\"model.**\", \"lm_head.weight\"]");
	return -EINVAL;
}

int ckpt_choice_renames(const json_t *json, struct ckpt_view_why *ret_why)
{
	const char *old;
	json_t *new;
	bool fits = json_is_object(json);

	json_object_foreach((json_t *)json, old, new) fits =
		fits && *old && json_string_length(new) && json_string_length(new) <= CKPT_ARRAY_NAME_MAX;
	if (fits)
		return 0;
	ckpt_view_wrong(ret_why, "it is no object of names");
	snprintf(ret_why->hint, sizeof(ret_why->hint), "for example {\"old.weight\": \"new.weight\"}");
	return -EINVAL;
}
