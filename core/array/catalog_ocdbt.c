// OCDBT, as TensorStore and Orbax write it: a database whose keys are those of arrays of zarr, NAME/.zarray and NAME/0.0, or
// NAME/zarr.json and NAME/c/0/0. The tree of its arrays is its directory.
//
// Orbax lets each process write a database of its own, ocdbt.process_N, and then one above them that names their nodes and values.
// Those of processes add nothing where the one above is there; where the save ended before that, they are all that is left, and each
// has but a part of the chunks.
#include "core/array/catalog_ocdbt.h"

#include "core/array/catalog_zarr.h"
#include "core/base/util.h"
#include "core/limits.h"

#define NONE CKPT_OCDBT_NONE
#define PROCESS "ocdbt.process_"

static bool is_ocdbt(const struct ckpt_catalog_reading *r)
{
	return !strcmp(r->base, "manifest.ocdbt");
}

// --- The database of one process --------------------------------------------------------------------------------------

static size_t length_above(const struct ckpt_catalog_reading *r) // of the path, with its slash
{
	size_t len = r->dir_len;

	while (len && r->path[len - 1] != '/')
		len--;
	return len;
}

static bool is_of_process(const struct ckpt_catalog_reading *r)
{
	size_t above = length_above(r);

	return r->dir_len - above > strlen(PROCESS) && !memcmp(r->path + above, PROCESS, strlen(PROCESS));
}

// 1: the database above it is there; 0: it is not.
static int is_joined(const struct ckpt_catalog_reading *r)
{
	size_t above = length_above(r);
	CLEANUP_FREE char *path = malloc(above + sizeof("manifest.ocdbt"));
	struct ckpt_source source;
	int rc;

	if (!path)
		return -ENOMEM;
	memcpy(path, r->path, above);
	memcpy(path + above, "manifest.ocdbt", sizeof("manifest.ocdbt"));
	rc = r->files->open(r->files->arg, path, &source);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	r->files->close(r->files->arg, &source);
	return 1;
}

// --- Arrays -----------------------------------------------------------------------------------------------------------

struct range { // of entries, whose keys begin alike
	const struct ckpt_ocdbt *table;
	const char *prefix;
	size_t len;
};

static size_t first_of(const struct range *g)
{
	const struct ckpt_ocdbt *t = g->table;
	size_t low = 0, high = t->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (strncmp(t->text + t->entries[middle].key, g->prefix, g->len) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct ckpt_zarr_value value_of(const struct ckpt_ocdbt *t, const struct ckpt_ocdbt_entry *e)
{
	return (struct ckpt_zarr_value){
		.file = e->file == NONE ? NULL : t->listing.files[e->file].path,
		.offset = e->offset,
		.bytes = e->bytes,
		.data = e->data == NONE ? NULL : (const uint8_t *)t->text + e->data,
	};
}

static int each_key(void *arg, int (*fn)(void *, const char *, const struct ckpt_zarr_value *), void *fn_arg)
{
	const struct range *g = arg;
	const struct ckpt_ocdbt *t = g->table;
	int rc = 0;

	for (size_t i = first_of(g); i < t->count && !rc; i++) {
		struct ckpt_zarr_value value = value_of(t, &t->entries[i]);
		const char *key = t->text + t->entries[i].key;

		if (strncmp(key, g->prefix, g->len))
			break;
		rc = fn(fn_arg, key + g->len, &value);
	}
	return rc;
}

// Metadata that lies outside of the nodes: *ret_json is malloc'ed, or NULL where it is not all there.
static int read_json(struct ckpt_catalog_reading *r, const struct ckpt_zarr_value *v, char **ret_json)
{
	CLEANUP_FREE char *json = NULL;
	struct ckpt_source source;
	int rc = 0;

	*ret_json = NULL;
	if (v->file && v->bytes <= CKPT_ARRAY_PIECE_MAX)
		rc = ckpt_catalog_spend(r, v->bytes);
	if (rc || !v->file || v->bytes > CKPT_ARRAY_PIECE_MAX)
		return rc;
	json = malloc((size_t)v->bytes + 1);
	if (!json)
		return -ENOMEM;
	rc = r->files->open(r->files->arg, v->file, &source);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	rc = ckpt_source_read(&source, v->offset, json, (size_t)v->bytes);
	r->files->close(r->files->arg, &source);
	if (!rc)
		*ret_json = TAKE_PTR(json);
	return rc == -EINVAL || rc == -ENODATA ? 0 : rc;
}

struct arrays {
	struct ckpt_catalog_reading *reading;
	struct ckpt_ocdbt *table;
	const char *tree;
	bool is_part;
};

// The array whose metadata the entry is; name_len is that of its key without the metadata's name.
static int add_array(const struct arrays *a, const struct ckpt_ocdbt_entry *e, size_t name_len, int version)
{
	const char *key = a->table->text + e->key;
	CLEANUP_FREE char *name = name_len ? strndup(key, name_len - 1) : strdup(".");
	CLEANUP_FREE char *json = NULL;
	struct ckpt_zarr_value value = value_of(a->table, e);
	struct range range = {a->table, key, name_len};
	struct ckpt_zarr_place place = {
		.tree = a->tree,
		.name = name,
		.format = "ocdbt",
		.json = (const char *)value.data,
		.json_len = (size_t)value.bytes,
		.is_inside = true,
		.is_part = a->is_part,
		.each = each_key,
		.arg = &range,
	};
	int rc = !name ? -ENOMEM : value.data ? 0 : read_json(a->reading, &value, &json);

	if (rc)
		return rc;
	if (!value.data && !json)
		place.json_len = 0; // it is refused as what it is: no JSON
	if (!value.data)
		place.json = json ? json : "";
	return ckpt_catalog_read_zarr(a->reading, version, &place);
}

static int add_arrays(const struct arrays *a)
{
	int rc = 0;

	for (size_t i = 0; i < a->table->count && !rc; i++) {
		const struct ckpt_ocdbt_entry *e = &a->table->entries[i];
		const char *key = a->table->text + e->key, *slash = strrchr(key, '/'), *last = slash ? slash + 1 : key;

		if (!strcmp(last, ".zarray"))
			rc = add_array(a, e, (size_t)(last - key), 2);
		else if (!strcmp(last, "zarr.json"))
			rc = add_array(a, e, (size_t)(last - key), 3);
	}
	return rc;
}

static int read_ocdbt(struct ckpt_catalog_reading *r)
{
	CLEANUP_FREE char *tree = r->dir_len ? strndup(r->path, r->dir_len) : strdup(".");
	struct ckpt_ocdbt table = {0};
	struct arrays arrays = {.reading = r, .table = &table, .tree = tree, .is_part = is_of_process(r)};
	int rc = !tree ? -ENOMEM : arrays.is_part ? is_joined(r) : 0;

	if (rc)
		return rc < 0 ? rc : 0;
	rc = ckpt_ocdbt_read(r, &table);
	if (!rc)
		rc = add_arrays(&arrays);
	ckpt_ocdbt_done(&table);
	return rc;
}

const struct ckpt_catalog_format ckpt_catalog_ocdbt = {"ocdbt", is_ocdbt, read_ocdbt};
