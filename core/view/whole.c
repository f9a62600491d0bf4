#include "core/view/whole.h"

#include "core/base/util.h"

#include <stdio.h>

#define INDEX ".index.json"

enum kind { FILE_UNIT, INDEX_UNIT, DIR_UNIT };

// Arrays that stand or fall together.
struct unit {
	enum kind kind;
	const char *key; // a path: of the file; of the index without INDEX; of the directory, "" for the step
	bool stays;
};

struct row {
	char *key;
	enum kind kind;
	size_t array, unit;
};

struct part {
	const char *file; // borrowed of the catalog
	size_t unit;
};

struct paths {
	char **at; // each malloc'ed
	size_t count, cap;
};

struct finding {
	const struct ckpt_catalog *c;
	const struct ckpt_catalog_files *files;
	struct paths all; // sorted: the files of the step
	struct row *rows; // by array, then sorted by key
	size_t row_count;
	struct unit *units;
	size_t unit_count;
	struct part *parts; // sorted by file
	size_t part_count, part_cap;
	struct paths out;
};

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int take_path(void *arg, const char *path, uint64_t bytes __attribute__((unused)))
{
	struct paths *p = arg;
	int rc = ckpt_grow((void **)&p->at, &p->cap, p->count + 1, sizeof(*p->at));

	if (!rc && !(p->at[p->count] = strdup(path)))
		rc = -ENOMEM;
	p->count += !rc;
	return rc;
}

static void sort_paths(struct paths *p)
{
	if (p->count)
		qsort(p->at, p->count, sizeof(*p->at), by_text);
}

static void paths_done(struct paths *p)
{
	for (size_t i = 0; i < p->count; i++)
		free(p->at[i]);
	free(p->at);
}

static bool has_path(const struct finding *f, const char *path)
{
	return f->all.count && bsearch(&path, f->all.at, f->all.count, sizeof(*f->all.at), by_text);
}

// --- Units ------------------------------------------------------------------------------------------------------------------

static bool is_directory_format(const char *format)
{
	static const char *const of_files[] = {"safetensors", "npy", "npz", "torch", "gguf", "msgpack", "hdf5"};

	for (size_t i = 0; i < ARRAY_LEN(of_files); i++)
		if (!strcmp(format, of_files[i]))
			return false;
	return true;
}

// An array without bytes may have no piece: its file is its tree, where that is one.
static const char *file_of(const struct finding *f, size_t array, const struct ckpt_catalog_array *a,
			   struct ckpt_piece *p)
{
	if (!a->pieces)
		return a->tree;
	ckpt_catalog_piece(f->c, array, 0, p);
	return p->file;
}

static int name_unit(const struct finding *f, size_t array, struct row *r)
{
	CLEANUP_FREE char *index = NULL;
	struct ckpt_catalog_array a;
	struct ckpt_piece p;

	ckpt_catalog_get(f->c, array, &a);
	if (asprintf(&index, "%s" INDEX, a.tree) < 0)
		index = NULL;
	if (!index)
		return -ENOMEM;
	r->array = array;
	r->kind = is_directory_format(a.format) ? DIR_UNIT : has_path(f, index) ? INDEX_UNIT : FILE_UNIT;
	r->key = strdup(r->kind == FILE_UNIT ? file_of(f, array, &a, &p) : strcmp(a.tree, ".") ? a.tree : "");
	return r->key ? 0 : -ENOMEM;
}

static int by_key(const void *one, const void *other)
{
	const struct row *a = one, *b = other;
	int order = strcmp(a->key, b->key);

	return order ? order : (a->kind > b->kind) - (a->kind < b->kind);
}

static int make_units(struct finding *f, const bool *may_stay)
{
	size_t count = ckpt_catalog_count(f->c);
	int rc = 0;

	f->rows = ckpt_calloc(MAX(count, 1u), sizeof(*f->rows));
	f->units = ckpt_calloc(MAX(count, 1u), sizeof(*f->units));
	if (!f->rows || !f->units)
		return -ENOMEM;
	for (; f->row_count < count && !rc; f->row_count += !rc)
		rc = name_unit(f, f->row_count, &f->rows[f->row_count]);
	if (rc)
		return rc;
	qsort(f->rows, f->row_count, sizeof(*f->rows), by_key);
	for (size_t i = 0; i < f->row_count; i++) {
		struct row *r = &f->rows[i];

		if (!i || by_key(r - 1, r))
			f->units[f->unit_count++] = (struct unit){r->kind, r->key, true};
		r->unit = f->unit_count - 1;
		f->units[r->unit].stays &= may_stay[r->array];
	}
	for (size_t i = 0; i < f->unit_count; i++)
		if (f->units[i].kind == FILE_UNIT)
			f->units[i].stays &= has_path(f, f->units[i].key);
	return 0;
}

// --- Files of several units ----------------------------------------------------------------------------------------------

static int by_file(const void *one, const void *other)
{
	const struct part *a = one, *b = other;
	int order = strcmp(a->file, b->file);

	return order ? order : (a->unit > b->unit) - (a->unit < b->unit);
}

static int list_parts(struct finding *f)
{
	int rc = 0;

	for (size_t i = 0; i < f->row_count && !rc; i++) {
		const struct row *r = &f->rows[i];
		struct ckpt_catalog_array a;

		ckpt_catalog_get(f->c, r->array, &a);
		for (size_t k = 0; k < a.pieces && !rc; k++) {
			struct ckpt_piece p;

			ckpt_catalog_piece(f->c, r->array, k, &p);
			if (f->part_count && f->parts[f->part_count - 1].unit == r->unit &&
			    !strcmp(f->parts[f->part_count - 1].file, p.file))
				continue;
			rc = ckpt_grow((void **)&f->parts, &f->part_cap, f->part_count + 1, sizeof(*f->parts));
			if (!rc)
				f->parts[f->part_count++] = (struct part){p.file, r->unit};
		}
	}
	if (f->part_count)
		qsort(f->parts, f->part_count, sizeof(*f->parts), by_file);
	return rc;
}

static bool is_below(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	return !len || (!strncmp(path, dir, len) && path[len] == '/');
}

// A change takes along the directories that it is in, and the other units of a file.
static bool spread_file(struct finding *f, size_t first, size_t end)
{
	bool stays = true, changed = false;

	for (size_t i = first; i < end; i++)
		stays &= f->units[f->parts[i].unit].stays;
	if (stays)
		return false;
	for (size_t i = first; i < end; i++) {
		struct unit *u = &f->units[f->parts[i].unit];

		changed |= u->stays;
		u->stays = false;
	}
	for (size_t i = 0; i < f->unit_count; i++) {
		struct unit *u = &f->units[i];

		if (u->kind == DIR_UNIT && u->stays && is_below(f->parts[first].file, u->key)) {
			u->stays = false;
			changed = true;
		}
	}
	return changed;
}

static void spread(struct finding *f)
{
	bool changed;

	do {
		changed = false;
		for (size_t i = 0, end; i < f->part_count; i = end) {
			for (end = i + 1; end < f->part_count && !strcmp(f->parts[i].file, f->parts[end].file); end++)
				;
			changed |= spread_file(f, i, end);
		}
	} while (changed);
}

// --- The result ---------------------------------------------------------------------------------------------------------

static int take_unit(struct finding *f, const struct unit *u)
{
	CLEANUP_FREE char *index = NULL;

	switch (u->kind) {
	case FILE_UNIT:
		return take_path(&f->out, u->key, 0);
	case INDEX_UNIT:
		if (asprintf(&index, "%s" INDEX, u->key) < 0)
			index = NULL;
		return index ? take_path(&f->out, index, 0) : -ENOMEM;
	default:
		return f->files->each(f->files->arg, u->key, take_path, &f->out);
	}
}

static int take_units(struct finding *f)
{
	int rc = 0;

	for (size_t i = 0; i < f->unit_count && !rc; i++)
		rc = f->units[i].stays ? take_unit(f, &f->units[i]) : 0;
	for (size_t i = 0; i < f->part_count && !rc; i++)
		if (f->units[f->parts[i].unit].stays && f->units[f->parts[i].unit].kind == INDEX_UNIT)
			rc = take_path(&f->out, f->parts[i].file, 0);
	return rc;
}

static int give(struct finding *f, struct ckpt_whole *ret_whole)
{
	struct ckpt_whole w = {.stays = ckpt_calloc(MAX(f->row_count, 1u), sizeof(bool))};

	if (!w.stays)
		return -ENOMEM;
	for (size_t i = 0; i < f->row_count; i++)
		w.stays[f->rows[i].array] = f->units[f->rows[i].unit].stays;
	sort_paths(&f->out);
	for (size_t i = 0; i < f->out.count; i++) {
		if (w.count && !strcmp(f->out.at[w.count - 1], f->out.at[i]))
			free(f->out.at[i]);
		else
			f->out.at[w.count++] = f->out.at[i];
	}
	w.files = TAKE_PTR(f->out.at);
	f->out.count = 0;
	*ret_whole = w;
	return 0;
}

int ckpt_whole_find(const struct ckpt_catalog *c, const struct ckpt_catalog_files *files, const bool *may_stay,
		    struct ckpt_whole *ret_whole)
{
	struct finding f = {.c = c, .files = files};
	int rc = files->each(files->arg, "", take_path, &f.all);

	sort_paths(&f.all);
	if (!rc)
		rc = make_units(&f, may_stay);
	if (!rc)
		rc = list_parts(&f);
	if (!rc)
		spread(&f);
	if (!rc)
		rc = take_units(&f);
	if (!rc)
		rc = give(&f, ret_whole);
	for (size_t i = 0; i < f.row_count; i++)
		free(f.rows[i].key);
	paths_done(&f.all);
	paths_done(&f.out);
	free(f.rows);
	free(f.units);
	free(f.parts);
	return rc;
}

void ckpt_whole_done(struct ckpt_whole *w)
{
	for (size_t i = 0; i < w->count; i++)
		free(w->files[i]);
	free(w->files);
	free(w->stays);
	*w = (struct ckpt_whole){0};
}
