// The index of a model whose arrays are in several files, as Hugging Face's transformers and accelerate write it:
// *.safetensors.index.json, *.bin.index.json: {"metadata": {...}, "weight_map": {NAME: FILE, ...}}. It has no arrays of its own.
#include "core/array/catalog_listing.h"

#include "core/base/json.h"
#include "core/base/util.h"
#include "core/limits.h"

#define INDEX ".index.json"

static bool ends_in(const char *text, const char *end)
{
	size_t len = strlen(text), n = strlen(end);

	return len > n && !strcmp(text + len - n, end);
}

static bool is_index(const struct ckpt_catalog_reading *r)
{
	return ends_in(r->base, ".safetensors" INDEX) || ends_in(r->base, ".bin" INDEX);
}

// Each file is joined once: the names of those that were are the keys of *joined.
static int join_file(struct ckpt_catalog_reading *r, json_t *joined, const char *file, const char *path,
		     const char *tree)
{
	if (json_object_get(joined, file))
		return 0;
	if (json_object_set_new(joined, file, json_true()))
		return -ENOMEM;
	return path ? ckpt_catalog_join(r, path, tree)
		    : ckpt_catalog_tell(r, "weight_map", "the file %.200s is missing", file);
}

static int take_name(struct ckpt_catalog_reading *r, const struct ckpt_catalog_listing *l, json_t *joined,
		     const char *name, const json_t *value, const char *tree)
{
	const char *file = json_string_value(value);
	const struct ckpt_listed *found;
	struct ckpt_catalog_promise p = {
		.tree = tree, .name = name, .name_len = strlen(name), .file = file, .ndim = CKPT_SHAPE_UNKNOWN};
	int rc;

	if (!file)
		return ckpt_catalog_refuse(r, "weight_map", "%.200s names no file", name);
	found = ckpt_catalog_listing_beside(l, r, file, strlen(file));
	rc = join_file(r, joined, file, found ? found->path : NULL, tree);
	return rc ? rc : ckpt_catalog_promise(r, &p);
}

static int read_map(struct ckpt_catalog_reading *r, const struct ckpt_catalog_listing *l, json_t *map)
{
	CLEANUP_FREE char *tree = strndup(r->path, strlen(r->path) - strlen(INDEX));
	json_t *joined = json_object(), *value;
	const char *name;
	int rc = tree && joined ? 0 : -ENOMEM;

	if (!rc)
		json_object_foreach(map, name, value)
		{
			rc = take_name(r, l, joined, name, value, tree);
			if (rc)
				break;
		}
	json_decref(joined);
	return rc ? rc : ckpt_catalog_covers(r, tree);
}

static int read_index(struct ckpt_catalog_reading *r)
{
	struct ckpt_catalog_listing listing = {0};
	json_t *json = NULL, *map;
	int rc = ckpt_catalog_load_json(r, &json);

	map = json_object_get(json, "weight_map");
	if (!rc && !json_is_object(map))
		rc = ckpt_catalog_refuse(r, "weight_map", "it is missing, or no object");
	if (!rc)
		rc = ckpt_catalog_listing_read(r, &listing);
	if (!rc)
		rc = read_map(r, &listing, map);
	ckpt_catalog_listing_done(&listing);
	json_decref(json);
	return rc;
}

const struct ckpt_catalog_format ckpt_catalog_index = {"index", is_index, read_index};
