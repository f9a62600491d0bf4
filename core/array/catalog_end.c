// The end of a catalog: files become one tree, what indices promise is compared with the rows, and names that repeat are found.
#include "core/array/catalog_zero.h"

#include "core/base/util.h"

#include <stdarg.h>
#include <stdio.h>

static int compare_names(const struct ckpt_catalog *c, uint32_t tree, uint32_t name, const struct row *row)
{
	int order = tree == row->tree ? 0 : strcmp(c->text + tree, c->text + row->tree);

	return order ? order : strcmp(c->text + name, c->text + row->name);
}

// qsort_r(3)'s: rows of one file share the place of their tree.
static int by_name(const void *one, const void *other, void *arg)
{
	const struct ckpt_catalog *c = arg;
	uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
	int order = compare_names(c, c->rows[a].tree, c->rows[a].name, &c->rows[b]);

	return order ? order : a < b ? -1 : a > b;
}

static int by_from(const void *one, const void *other, void *arg)
{
	const struct ckpt_catalog *c = arg;

	return strcmp(c->text + ((const struct join *)one)->from, c->text + ((const struct join *)other)->from);
}

static const struct join *find_join(const struct ckpt_catalog *c, uint32_t tree)
{
	size_t low = 0, high = c->join_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = strcmp(c->text + tree, c->text + c->joins[middle].from);

		if (!order)
			return &c->joins[middle];
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

static void join_trees(struct ckpt_catalog *c)
{
	const struct join *found = NULL;
	uint32_t last = NONE;

	if (!c->join_count)
		return;
	qsort_r(c->joins, c->join_count, sizeof(*c->joins), by_from, c);
	for (size_t i = 0; i < c->count; i++) {
		if (c->rows[i].tree != last) {
			last = c->rows[i].tree;
			found = find_join(c, last);
		}
		if (found)
			c->rows[i].tree = found->to;
	}
}

// The rows in the order of their names, and which of them an index has named.
struct ending {
	struct ckpt_catalog *c;
	uint32_t *order;
	bool *named;
};

// The first row of this name; false: there is none.
static bool find_row(const struct ending *e, uint32_t tree, uint32_t name, size_t *ret_at)
{
	const struct ckpt_catalog *c = e->c;
	size_t low = 0, high = c->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (compare_names(c, tree, name, &c->rows[e->order[middle]]) > 0)
			low = middle + 1;
		else
			high = middle;
	}
	*ret_at = low;
	return low < c->count && !compare_names(c, tree, name, &c->rows[e->order[low]]);
}

// The same of TREE/NAME in ".": both texts are added for the look and taken back.
static int find_elsewhere(const struct ending *e, const struct promise *p, bool *ret_found, size_t *ret_at)
{
	struct ckpt_catalog *c = e->c;
	size_t len = c->text_len, bytes = strlen(c->text + p->tree) + strlen(c->text + p->name) + 2;
	uint32_t dot, name;
	CLEANUP_FREE char *path = NULL;
	int rc;

	*ret_found = false;
	if (!strcmp(c->text + p->tree, "."))
		return 0;
	path = malloc(bytes);
	if (!path)
		return -ENOMEM;
	snprintf(path, bytes, "%s/%s", c->text + p->tree, c->text + p->name);
	rc = ckpt_catalog_add_text(c, ".", &dot);
	if (!rc)
		rc = ckpt_catalog_add_text(c, path, &name);
	if (!rc)
		*ret_found = find_row(e, dot, name, ret_at);
	c->text_len = len;
	return rc == -EFBIG ? 0 : rc;
}

static int tell(struct ckpt_catalog *c, uint32_t index, const char *field, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
static int tell(struct ckpt_catalog *c, uint32_t index, const char *field, const char *format, ...)
{
	CLEANUP_FREE char *file = strdup(c->text + index);
	char reason[512];
	va_list args;

	va_start(args, format);
	vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	return file ? ckpt_catalog_add_fault(c, file, field, reason) : -ENOMEM;
}

// A checkpoint may be one array without a name.
static const char *shown_name(const struct ckpt_catalog *c, uint32_t name)
{
	return c->text[name] ? c->text + name : "(an array without a name)";
}

static int keep_promise(const struct ending *e, const struct promise *p)
{
	struct ckpt_catalog *c = e->c;
	const struct row *row;
	size_t at;
	bool found = find_row(e, p->tree, p->name, &at);
	int rc = found ? 0 : find_elsewhere(e, p, &found, &at);

	if (rc)
		return rc;
	if (!found && p->file != NONE)
		return tell(c, p->index, "Missing", "%.200s, in %.200s", shown_name(c, p->name), c->text + p->file);
	if (!found)
		return tell(c, p->index, "Missing", "%.200s", shown_name(c, p->name));
	e->named[at] = true;
	row = &c->rows[e->order[at]];
	if (p->ndim == CKPT_SHAPE_UNKNOWN || row->why != NONE ||
	    (row->ndim == p->ndim &&
	     !memcmp(c->numbers + row->shape, c->numbers + p->shape, p->ndim * sizeof(*c->numbers))))
		return 0;
	return tell(c, p->index, "shape", "%.200s has another one than the array", c->text + p->name);
}

// The first row whose tree is this one, or comes after it.
static size_t first_of_tree(const struct ending *e, uint32_t tree)
{
	const struct ckpt_catalog *c = e->c;
	size_t low = 0, high = c->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (strcmp(c->text + c->rows[e->order[middle]].tree, c->text + tree) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int find_extra(const struct ending *e, const struct cover *cover)
{
	struct ckpt_catalog *c = e->c;
	struct ckpt_piece piece;
	int rc = 0;

	for (size_t at = first_of_tree(e, cover->tree); at < c->count && !rc; at++) {
		const struct row *row = &c->rows[e->order[at]];

		if (strcmp(c->text + row->tree, c->text + cover->tree))
			break;
		if (e->named[at])
			continue;
		if (row->pieces)
			ckpt_catalog_piece(c, e->order[at], 0, &piece);
		rc = row->pieces
			     ? tell(c, cover->index, "Extra", "%.200s, in %.200s", shown_name(c, row->name), piece.file)
			     : tell(c, cover->index, "Extra", "%.200s", shown_name(c, row->name));
	}
	return rc;
}

static int keep_promises(const struct ending *e)
{
	int rc = 0;

	for (size_t i = 0; i < e->c->promise_count && !rc; i++)
		rc = ckpt_catalog_goes_on(e->c, 1) ?: keep_promise(e, &e->c->promises[i]);
	for (size_t i = 0; i < e->c->cover_count && !rc; i++)
		rc = find_extra(e, &e->c->covers[i]);
	return rc;
}

static int find_repeats(const struct ending *e)
{
	struct ckpt_catalog *c = e->c;
	uint32_t why = NONE;
	int rc;

	for (size_t i = 1; i < c->count; i++) {
		const struct row *a = &c->rows[e->order[i - 1]];
		struct row *b = &c->rows[e->order[i]];

		if (compare_names(c, a->tree, a->name, b))
			continue;
		rc = why == NONE ? ckpt_catalog_add_text(c, "another array has the same name", &why) : 0;
		if (rc)
			return rc == -EFBIG ? -ENOMEM : rc;
		b->why = why;
	}
	return 0;
}

static int end_rows(struct ckpt_catalog *c)
{
	CLEANUP_FREE uint32_t *order = ckpt_calloc(c->count + 1, sizeof(*order));
	CLEANUP_FREE bool *named = ckpt_calloc(c->count + 1, sizeof(*named));
	const struct ending e = {c, order, named};
	int rc;

	if (!order || !named)
		return -ENOMEM;
	join_trees(c);
	for (uint32_t i = 0; i < c->count; i++)
		order[i] = i;
	qsort_r(order, c->count, sizeof(*order), by_name, c);
	rc = keep_promises(&e);
	return rc ? rc : find_repeats(&e);
}

int ckpt_catalog_end(struct ckpt_catalog *c)
{
	int rc = ckpt_zero_join(c);

	return rc ? rc : end_rows(c);
}
