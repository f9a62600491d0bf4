#include "core/view/export.h"

#include "core/array/cast.h"
#include "core/array/findings.h"
#include "core/array/write.h"
#include "core/base/util.h"
#include "core/view/array_glob.h"
#include "core/view/array_name.h"
#include "core/view/array_row.h"

#include <stdio.h>

#define RUN_BYTES ((uint64_t)1 << 20)
#define BLOCK_BYTES ((uint64_t)16 << 20) // of what is transposed

// An array of the output.
struct item {
	const struct ckpt_catalog *catalog; // that it was chosen from; NULL: it was added
	size_t array;                       // of that
	char *name, *path;
	struct ckpt_expr *expr;
};

struct ckpt_export_items {
	struct item *at;
	struct ckpt_write_array *arrays; // as many
	size_t count, cap;
	struct ckpt_write_plan plan;
	struct ckpt_layout *layout;
};

enum ckpt_dtype ckpt_export_dtype(const char *name)
{
	return ckpt_view_dtype(name);
}

// As that of a file of NumPy, without its ending.
static char *export_path(const char *name)
{
	char *path = ckpt_array_path(name);

	if (path)
		path[strlen(path) - strlen(".npy")] = '\0';
	return path;
}

// --- Choosing ---------------------------------------------------------------------------------------------------------------

static bool matches(const char *const *globs, const char *tree, const char *name)
{
	for (; globs && *globs; globs++)
		if (ckpt_array_glob(*globs, tree, name))
			return true;
	return false;
}

static bool is_wanted(const struct ckpt_export *e, const char *tree, const char *name)
{
	return (!e->only || matches(e->only, tree, name)) && !matches(e->not, tree, name);
}

bool ckpt_export_wants(const struct ckpt_export *e, const struct ckpt_catalog_array *a)
{
	return is_wanted(e, a->tree, a->name);
}

// The reason why an array has no numbers that could be written; NULL: it has.
static const char *is_opaque(const struct ckpt_catalog_array *a)
{
	if (!a->dtype)
		return a->why ? a->why : "its dtype is not known";
	return ckpt_dtype_bits(a->dtype) < 8 ? "several of its elements share a byte" : NULL;
}

static int cast_to(enum ckpt_dtype dtype, struct ckpt_expr **expr)
{
	struct ckpt_expr *cast;
	int rc = ckpt_expr_cast(*expr, dtype, &cast);

	if (rc)
		return rc;
	ckpt_expr_unref(*expr);
	*expr = cast;
	return 0;
}

// With a reference of its own; its name is taken.
static int add_item(struct ckpt_export *e, const struct item *item)
{
	struct ckpt_export_items *c = e->items;
	int rc = 0;

	if (!c)
		c = e->items = ckpt_calloc(1, sizeof(*c));
	rc = c ? ckpt_grow((void **)&c->at, &c->cap, c->count + 1, sizeof(*c->at)) : -ENOMEM;
	if (rc)
		return rc;
	c->at[c->count] = *item;
	ckpt_expr_ref(c->at[c->count++].expr);
	return 0;
}

int ckpt_export_add(struct ckpt_export *e, const char *name, struct ckpt_expr *expr)
{
	CLEANUP_FREE char *copy = strdup(name), *path = export_path(name);
	int rc = copy && path ? add_item(e, &(struct item){.name = copy, .path = path, .expr = expr}) : -ENOMEM;

	if (!rc) {
		TAKE_PTR(copy);
		TAKE_PTR(path);
	}
	return rc;
}

static int take_array(struct ckpt_export *e, size_t i, const struct ckpt_catalog_array *a)
{
	struct ckpt_expr *expr = NULL;
	const char *opaque = is_opaque(a);
	int rc;

	if (opaque) {
		if (e->left_out)
			e->left_out(e->arg, a, opaque);
		return 0;
	}
	if (a->why) {
		snprintf(e->why, sizeof(e->why), "%.100s:%.200s: %s", a->tree, a->name, a->why);
		return -EBADMSG;
	}
	rc = ckpt_expr_array(e->catalog, i, e->files, &expr);
	if (!rc && e->dtype && ckpt_is_floating(a->dtype) && a->dtype != e->dtype)
		rc = cast_to(e->dtype, &expr);
	if (!rc)
		rc = add_item(e, &(struct item){.catalog = e->catalog, .array = i, .expr = expr});
	ckpt_expr_unref(expr);
	return rc;
}

// A name that an index promises, and no file has: "NAME" or "NAME, in FILE".
static int check_missing(struct ckpt_export *e, const struct ckpt_catalog_fault *f)
{
	CLEANUP_FREE char *name = strdup(f->reason);
	char *end = name ? strstr(name, ", in ") : NULL;

	if (!name)
		return -ENOMEM;
	if (end)
		*end = '\0';
	if (!is_wanted(e, "", name))
		return 0;
	snprintf(e->why, sizeof(e->why), "%.200s: %.100s names it, and no file has it", name, f->file);
	return -EBADMSG;
}

static int check_fault(struct ckpt_export *e, const struct ckpt_catalog_fault *f)
{
	if (!strcmp(f->field, "Missing"))
		return check_missing(e, f);
	if (!strcmp(f->field, "Extra") || e->partial)
		return 0;
	snprintf(e->why, sizeof(e->why), "%.200s: %.100s: %.160s", f->file, f->field, f->reason);
	return -EBADMSG;
}

int ckpt_export_choose(struct ckpt_export *e)
{
	int rc = 0;

	for (size_t i = 0; i < ckpt_catalog_faults(e->catalog) && !rc; i++) {
		struct ckpt_catalog_fault f;

		ckpt_catalog_fault(e->catalog, i, &f);
		rc = check_fault(e, &f);
	}
	for (size_t i = 0; i < ckpt_catalog_count(e->catalog) && !rc; i++) {
		struct ckpt_catalog_array a;

		ckpt_catalog_get(e->catalog, i, &a);
		if (is_wanted(e, a.tree, a.name) && !(e->skip && e->skip[i]))
			rc = take_array(e, i, &a);
	}
	return rc;
}

const char *ckpt_export_format_of(const struct ckpt_export *e)
{
	const char *found = NULL;

	for (size_t i = 0; i < ckpt_catalog_count(e->catalog); i++) {
		struct ckpt_catalog_array a;

		ckpt_catalog_get(e->catalog, i, &a);
		if (!is_wanted(e, a.tree, a.name) || is_opaque(&a) || (e->skip && e->skip[i]))
			continue;
		if (found && strcmp(found, a.format))
			return "safetensors";
		found = a.format;
	}
	for (size_t i = 0; found && ckpt_write_format(i); i++)
		if (!strcmp(ckpt_write_format(i), found))
			return ckpt_write_format(i);
	return "safetensors";
}

// --- Names ------------------------------------------------------------------------------------------------------------------

struct named {
	struct ckpt_catalog_array a;
	struct item *item;
};

static int by_name(const void *one, const void *other)
{
	const struct named *a = one, *b = other;

	return strcmp(a->a.name, b->a.name);
}

static int give_name(struct named *n, bool is_unique)
{
	struct item *c = n->item;

	if (is_unique)
		c->name = strdup(n->a.name);
	else if (asprintf(&c->name, "%s:%s", n->a.tree, n->a.name) < 0)
		c->name = NULL;
	c->path = c->name ? export_path(c->name) : NULL;
	return c->path ? 0 : -ENOMEM;
}

static int name_chosen(struct ckpt_export *e)
{
	struct ckpt_export_items *c = e->items;
	CLEANUP_FREE struct named *list = ckpt_calloc(c->count, sizeof(*list));
	size_t count = 0;
	int rc = list ? 0 : -ENOMEM;

	for (size_t i = 0; i < c->count && !rc; i++) {
		if (!c->at[i].catalog)
			continue;
		list[count].item = &c->at[i];
		ckpt_catalog_get(c->at[i].catalog, c->at[i].array, &list[count++].a);
	}
	if (!rc)
		qsort(list, count, sizeof(*list), by_name);
	for (size_t i = 0; i < count && !rc; i++)
		rc = give_name(&list[i], (!i || by_name(&list[i - 1], &list[i])) &&
						 (i + 1 == count || by_name(&list[i], &list[i + 1])));
	return rc;
}

// --- Parts of them ----------------------------------------------------------------------------------------------------------

static void item_done(struct item *i)
{
	ckpt_expr_unref(i->expr);
	free(i->name);
	free(i->path);
}

static bool can_unroll(const struct ckpt_export *e, const struct item *i)
{
	return e->how->unroll && ckpt_expr_shape(i->expr)->ndim > e->how->unroll_axis;
}

static int add_part(struct ckpt_export *e, const struct item *from, uint32_t slice, bool layers)
{
	CLEANUP_FREE char *full = NULL, *name = NULL;
	struct ckpt_catalog_array a;
	struct ckpt_expr *part;
	int rc;

	if (from->catalog) {
		ckpt_catalog_get(from->catalog, from->array, &a);
		if (asprintf(&full, "%s:%s", a.tree, a.name) < 0)
			return -ENOMEM;
	}
	name = ckpt_choice_name(e->how, from->name, full, slice, layers);
	rc = name ? ckpt_choice_part(e->how, from->expr, slice, &part) : -ENOMEM;
	if (rc)
		return rc;
	rc = ckpt_export_add(e, name, part);
	ckpt_expr_unref(part);
	return rc;
}

static int add_parts(struct ckpt_export *e, const struct item *from, bool layers)
{
	uint64_t count = can_unroll(e, from) ? ckpt_expr_shape(from->expr)->at[e->how->unroll_axis] : 0;
	int rc = 0;

	if (!can_unroll(e, from) || (layers && !ckpt_choice_is_layer(from->name)))
		return add_part(e, from, CKPT_CHOICE_WHOLE, layers);
	if (count > CKPT_CHOICE_ARRAYS_MAX - MIN(e->items ? e->items->count : 0, (size_t)CKPT_CHOICE_ARRAYS_MAX)) {
		snprintf(e->why, sizeof(e->why), "%.300s: it would become too many arrays", from->name);
		return -ENOTSUP;
	}
	for (uint64_t i = 0; i < count && !rc; i++)
		rc = add_part(e, from, (uint32_t)i, layers);
	return rc;
}

// The items become what `how` makes of them.
static int make_parts(struct ckpt_export *e)
{
	struct ckpt_export_items *from = TAKE_PTR(e->items);
	bool layers = false;
	int rc = 0;

	for (size_t i = 0; i < from->count && !layers; i++)
		layers = can_unroll(e, &from->at[i]) && ckpt_choice_is_layer(from->at[i].name);
	for (size_t i = 0; i < from->count; i++) {
		if (!rc)
			rc = add_parts(e, &from->at[i], layers);
		item_done(&from->at[i]);
	}
	free(from->at);
	free(from);
	return !rc && !e->items ? -ENOENT : rc;
}

static int by_item_name(const void *one, const void *other)
{
	struct item *const *a = one, *const *b = other;

	return strcmp((*a)->name, (*b)->name);
}

static int check_names(struct ckpt_export *e)
{
	struct ckpt_export_items *c = e->items;
	CLEANUP_FREE struct item **list = ckpt_calloc(c->count, sizeof(struct item *));

	if (!list)
		return -ENOMEM;
	for (size_t i = 0; i < c->count; i++)
		list[i] = &c->at[i];
	qsort(list, c->count, sizeof(struct item *), by_item_name);
	for (size_t i = 1; i < c->count; i++)
		if (!by_item_name(&list[i - 1], &list[i])) {
			snprintf(e->why, sizeof(e->why), "%.300s: two arrays have this name", list[i]->name);
			return -ENOTSUP;
		}
	return 0;
}

// --- The plan ---------------------------------------------------------------------------------------------------------------

static int lay_out(struct ckpt_export *e)
{
	struct ckpt_export_items *c = e->items;
	char why[CKPT_WRITE_WHY_MAX] = "";
	int rc;

	c->arrays = ckpt_calloc(c->count, sizeof(*c->arrays));
	if (!c->arrays)
		return -ENOMEM;
	for (size_t i = 0; i < c->count; i++) {
		const struct ckpt_expr_shape *s = ckpt_expr_shape(c->at[i].expr);

		c->arrays[i] = (struct ckpt_write_array){c->at[i].name, c->at[i].path, s->dtype, s->ndim, s->at};
	}
	c->plan = (struct ckpt_write_plan){c->arrays, c->count, e->shard_bytes};
	rc = ckpt_layout_new(e->format, &c->plan, why, &c->layout);
	if (rc) {
		snprintf(e->why, sizeof(e->why), "%s", rc == -ENOENT ? "there is no such format" : why);
		return rc == -ENOENT ? -ENOTSUP : rc;
	}
	e->array_count = c->count;
	e->file_count = ckpt_layout_files(c->layout);
	e->bytes = ckpt_layout_bytes(c->layout);
	return 0;
}

int ckpt_export_plan(struct ckpt_export *e)
{
	int rc = e->catalog ? ckpt_export_choose(e) : 0;

	if (!rc && !e->items)
		rc = -ENOENT;
	if (!rc)
		rc = name_chosen(e);
	if (!rc && e->how)
		rc = make_parts(e);
	if (!rc)
		rc = check_names(e);
	return rc ? rc : lay_out(e);
}

static int list_chosen(struct ckpt_export *e, struct ckpt_array_list *list)
{
	struct ckpt_export_items *c = e->items;
	int rc = c ? name_chosen(e) : -ENOENT;

	if (!rc)
		rc = check_names(e);
	for (size_t i = 0; !rc && i < c->count; i++) {
		struct ckpt_catalog_array a;

		ckpt_catalog_get(e->catalog, c->at[i].array, &a);
		rc = ckpt_array_list_add(list, c->at[i].name, a.tree, a.name, c->at[i].expr);
	}
	return rc;
}

int ckpt_export_list(struct ckpt_export *e, struct ckpt_array_list *ret_list)
{
	enum ckpt_dtype dtype = e->dtype;
	int rc;

	e->dtype = CKPT_DTYPE_NONE;
	rc = ckpt_export_choose(e);
	e->dtype = dtype;
	if (!rc)
		rc = list_chosen(e, ret_list);
	ckpt_export_done(e);
	return rc;
}

void ckpt_export_done(struct ckpt_export *e)
{
	struct ckpt_export_items *c = TAKE_PTR(e->items);

	if (!c)
		return;
	for (size_t i = 0; i < c->count; i++)
		item_done(&c->at[i]);
	ckpt_layout_free(c->layout);
	free(c->arrays);
	free(c->at);
	free(c);
}

// --- Writing ----------------------------------------------------------------------------------------------------------------

struct writing {
	struct ckpt_export *e;
	struct ckpt_writer *writer;
	struct ckpt_expr_reader *reader; // of the array
	size_t array;
	bool transposed;
	uint8_t *elements;  // BLOCK_BYTES
	uint64_t at, count; // which elements of the array these are
	uint64_t done;
};

static int blame_array(const struct writing *w, size_t array, int rc)
{
	if (rc == -ENOMEM)
		return rc;
	snprintf(w->e->why, sizeof(w->e->why), "%.300s: %s", w->e->items->arrays[array].name, ckpt_findings_why(rc));
	return -EBADMSG;
}

static int blame_file(const struct writing *w, int rc)
{
	const char *path = ckpt_write_path(w->writer);

	snprintf(w->e->why, sizeof(w->e->why), "%.400s: %s", path ? path : "", strerror(-rc));
	return rc;
}

static int open_array(struct writing *w, size_t array)
{
	int rc;

	if (w->reader && w->array == array)
		return 0;
	ckpt_expr_close(TAKE_PTR(w->reader));
	w->array = array;
	w->count = 0;
	w->transposed = ckpt_expr_is_transposed(w->e->items->at[array].expr);
	rc = ckpt_expr_open(w->e->items->at[array].expr, &w->reader);
	return rc ? blame_array(w, array, rc) : 0;
}

// A small part of a transposed array is a little of each of its rows: many parts at once cost as much. Whole rows are not cut.
static void choose_block(struct writing *w, uint64_t first, uint64_t wanted)
{
	struct ckpt_expr *e = w->e->items->at[w->array].expr;
	const struct ckpt_expr_shape *s = ckpt_expr_shape(e);
	uint64_t at_once = BLOCK_BYTES / MAX(ckpt_expr_levels(e), 1u) / ckpt_dtype_width(s->dtype),
		 rows = ckpt_expr_elements(e);

	if (!w->transposed) {
		w->at = first;
		w->count = MIN(wanted, RUN_BYTES / ckpt_dtype_width(s->dtype));
		return;
	}
	rows = s->ndim ? rows / s->at[0] : 1;
	at_once -= rows <= at_once ? at_once % rows : 0;
	w->at = first / at_once * at_once;
	w->count = MIN(at_once, ckpt_expr_elements(e) - w->at);
}

static int read_elements(struct writing *w, uint64_t first, uint64_t wanted)
{
	int rc;

	if (first >= w->at && first - w->at < w->count)
		return 0;
	choose_block(w, first, wanted);
	rc = ckpt_expr_run(w->reader, w->at, w->count, w->elements);
	if (rc)
		w->count = 0;
	return rc;
}

static int write_run(struct writing *w, const struct ckpt_write_range *range)
{
	unsigned width = ckpt_dtype_width(w->e->items->arrays[range->array].dtype);
	uint64_t first = range->first / width, count = MIN(range->bytes, RUN_BYTES) / width;
	int rc = open_array(w, range->array);

	if (rc)
		return rc;
	rc = read_elements(w, first, count);
	if (rc)
		return blame_array(w, range->array, rc);
	count = MIN(count, w->at + w->count - first);
	rc = ckpt_write_put(w->writer, w->elements + (first - w->at) * width, (size_t)(count * width));
	w->done += count * width;
	if (w->e->progress)
		w->e->progress(w->done);
	return rc ? blame_file(w, rc) : 0;
}

static int write_all(struct writing *w)
{
	struct ckpt_write_range range;
	int rc = 0, error = 0;

	while (!rc && ckpt_write_wants(w->writer, &range, &error))
		rc = w->e->stop && *w->e->stop ? -EINTR : write_run(w, &range);
	return rc ? rc : error ? blame_file(w, error) : 0;
}

int ckpt_export_write(struct ckpt_export *e, const struct ckpt_write_target *target)
{
	struct writing w = {.e = e, .elements = malloc(BLOCK_BYTES)};
	int rc = w.elements ? ckpt_write_new(e->items->layout, target, &w.writer) : -ENOMEM;

	if (!rc)
		rc = write_all(&w);
	ckpt_expr_close(w.reader);
	ckpt_write_free(w.writer);
	free(w.elements);
	return rc;
}
