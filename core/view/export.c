#include "core/view/export.h"

#include "core/array/cast.h"
#include "core/array/findings.h"
#include "core/array/gather.h"
#include "core/array/write.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/view/array_glob.h"
#include "core/view/array_name.h"
#include "core/view/array_row.h"
#include "core/view/read_ahead.h"

#include <stdio.h>

#define COPY_BYTES ((uint64_t)64 << 20) // until progress is told

// An array of the output.
struct item {
	const struct ckpt_catalog *catalog; // that it was chosen from; NULL: it was added
	size_t array;                       // of that
	char *name, *path;
	struct ckpt_expr *expr;
	// All its bytes lie in this file of the step, from this byte on. NULL: they are gathered, or changed.
	const char *file;
	uint64_t file_at;
	const struct ckpt_catalog_files *files; // of it
	bool copied;                            // from the file of a disk, not read
};

struct ckpt_export_items {
	struct item *at;
	struct ckpt_write_array *arrays; // as many
	uint64_t *sources;               // as well
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

static void find_file(struct item *i)
{
	uint64_t width = ckpt_dtype_width(ckpt_expr_shape(i->expr)->dtype);
	struct ckpt_expr_place place;

	if (!ckpt_expr_is_part(i->expr, &place) || !place.files->raw ||
	    !ckpt_gather_finds_plain(place.catalog, place.array, &i->file, &i->file_at))
		return;
	i->file_at += place.first * width;
	i->files = place.files;
}

// The places of the arrays count for the layout.
static bool can_share(const struct ckpt_export *e)
{
	const struct ckpt_export_items *c = e->items;
	size_t i = 0;
	bool can;
	int fd;

	while (i < c->count && !c->at[i].file)
		i++;
	if (!e->shares || i == c->count || c->at[i].files->raw(c->at[i].files->arg, c->at[i].file, &fd))
		return false;
	can = ckpt_shares_blocks(fd);
	ckpt_sys.close(fd);
	return can;
}

static int lay_out(struct ckpt_export *e)
{
	struct ckpt_export_items *c = e->items;
	char why[CKPT_WRITE_WHY_MAX] = "";
	int rc;

	c->arrays = ckpt_calloc(c->count, sizeof(*c->arrays));
	c->sources = ckpt_calloc(c->count, sizeof(*c->sources));
	if (!c->arrays || !c->sources)
		return -ENOMEM;
	for (size_t i = 0; i < c->count; i++) {
		const struct ckpt_expr_shape *s = ckpt_expr_shape(c->at[i].expr);

		c->arrays[i] = (struct ckpt_write_array){c->at[i].name, c->at[i].path, s->dtype, s->ndim, s->at};
		find_file(&c->at[i]);
		c->sources[i] = c->at[i].file ? c->at[i].file_at : CKPT_WRITE_NO_SOURCE;
	}
	c->plan = (struct ckpt_write_plan){c->arrays, c->count, e->shard_bytes, can_share(e) ? c->sources : NULL};
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
	free(c->sources);
	free(c->at);
	free(c);
}

// --- Writing ----------------------------------------------------------------------------------------------------------------

struct writing {
	struct ckpt_export *e;
	struct ckpt_writer *writer;
	struct ckpt_read_ahead *ahead; // of what is not copied
	const char *file;              // that fd reads; NULL: none
	int fd;
	struct ckpt_expr_reader *reader; // of an array that was to be copied; NULL: there is none
	size_t array;                    // that one
	uint8_t *bytes;                  // CKPT_READ_RUN, with the first reader
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

static void close_raw(struct writing *w)
{
	if (w->file && w->fd >= 0)
		ckpt_sys.close(w->fd);
	w->file = NULL;
}

// False: its bytes are in no file of a disk.
static bool open_raw(struct writing *w, const struct item *i)
{
	if (w->file && w->file == i->file)
		return w->fd >= 0;
	close_raw(w);
	w->file = i->file;
	if (i->files->raw(i->files->arg, i->file, &w->fd))
		w->fd = -1;
	return w->fd >= 0;
}

// The file of the disk is gone since: its bytes are in packs by now.
static int read_instead(struct writing *w, const struct ckpt_write_range *range, uint64_t *ret_bytes)
{
	struct ckpt_expr *expr = w->e->items->at[range->array].expr;
	unsigned width = ckpt_dtype_width(ckpt_expr_shape(expr)->dtype);
	int rc = 0;

	if (!w->bytes && !(w->bytes = malloc(CKPT_READ_RUN)))
		return -ENOMEM;
	if (!w->reader || w->array != range->array) {
		ckpt_expr_close(TAKE_PTR(w->reader));
		w->array = range->array;
		rc = ckpt_expr_open(expr, &w->reader);
	}
	*ret_bytes = MIN(range->bytes, CKPT_READ_RUN);
	if (!rc)
		rc = ckpt_expr_run(w->reader, range->first / width, *ret_bytes / width, w->bytes);
	if (rc)
		return blame_array(w, range->array, rc);
	rc = ckpt_write_put(w->writer, w->bytes, (size_t)*ret_bytes);
	return rc ? blame_file(w, rc) : 0;
}

static int copy_run(struct writing *w, const struct ckpt_write_range *range, uint64_t *ret_bytes)
{
	const struct item *i = &w->e->items->at[range->array];
	int rc;

	*ret_bytes = MIN(range->bytes, COPY_BYTES);
	if (!open_raw(w, i))
		return read_instead(w, range, ret_bytes);
	rc = ckpt_write_copy(w->writer, w->fd, i->file_at + range->first, *ret_bytes);
	return rc == -ENODATA ? blame_array(w, range->array, rc) : rc ? blame_file(w, rc) : 0;
}

static int read_run(struct writing *w, const struct ckpt_write_range *range, uint64_t *ret_bytes)
{
	const struct ckpt_read_run *run = ckpt_read_ahead_next(w->ahead);
	int rc;

	if (run->rc)
		return blame_array(w, range->array, run->rc);
	*ret_bytes = run->bytes;
	rc = ckpt_write_put(w->writer, run->at, (size_t)run->bytes);
	return rc ? blame_file(w, rc) : 0;
}

static int write_run(struct writing *w, const struct ckpt_write_range *range)
{
	bool copied = w->e->items->at[range->array].copied;
	uint64_t bytes;
	int rc = (copied ? copy_run : read_run)(w, range, &bytes);

	if (rc)
		return rc;
	w->done += bytes;
	if (w->e->progress)
		w->e->progress(w->done);
	return 0;
}

static int write_all(struct writing *w)
{
	struct ckpt_write_range range;
	int rc = 0, error = 0;

	while (!rc && ckpt_write_wants(w->writer, &range, &error))
		rc = w->e->stop && *w->e->stop ? -EINTR : write_run(w, &range);
	return rc ? rc : error ? blame_file(w, error) : 0;
}

static struct ckpt_expr *expr_of(void *arg, size_t array)
{
	const struct ckpt_export_items *c = arg;

	return c->at[array].copied ? NULL : c->at[array].expr;
}

int ckpt_export_write(struct ckpt_export *e, const struct ckpt_write_target *target)
{
	struct ckpt_export_items *c = e->items;
	bool may_copy = target->copy && !ckpt_layout_has_sums(c->layout);
	struct writing w = {.e = e};
	int rc;

	for (size_t i = 0; i < c->count; i++)
		c->at[i].copied = may_copy && c->at[i].file && open_raw(&w, &c->at[i]);
	rc = ckpt_write_new(c->layout, target, &w.writer);
	if (!rc)
		rc = ckpt_read_ahead_new(c->layout, expr_of, c, &w.ahead);
	if (!rc)
		rc = write_all(&w);
	ckpt_read_ahead_free(w.ahead);
	ckpt_write_free(w.writer);
	ckpt_expr_close(w.reader);
	free(w.bytes);
	close_raw(&w);
	return rc;
}
