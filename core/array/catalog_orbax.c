// Files that say which arrays a tree has, and have none of their own:
//
//	_METADATA               Orbax: {"tree_metadata": {PATH: {"key_metadata": [{"key": KEY}, ...], "value_metadata": {"value_type":
//	                        "jax.Array" and others, "skip_deserialize": BOOL}}}}. A name is its keys, joined by "."
//	tensorstore_index.json  eFormer: {"format": "tensorstore", "prefixes": {PREFIX: [ARRAY, ...]}, "arrays": [ARRAY, ...]};
//	                        ARRAY is {"path": PATH, "shape": [N, ...]}: a directory with an array of zarr
//	PREFIX_structure.json   eFormer: {"format": "pytree-structure", "array_relpaths": [PATH, ...], "leaf_keys_full": [NAME, ...],
//	                        "arr_mask": [BOOL, ...]}: leaves that are no arrays are pickles in the file, and are listed
//
// Their promises are compared with the arrays at the end. Orbax's array_metadatas and _sharding say how processes shared the arrays
// when they were saved; no reader of their bytes needs that.
#include "core/array/catalog_format.h"

#include "core/base/json.h"
#include "core/base/util.h"
#include "core/limits.h"

static char *tree_of(const struct ckpt_catalog_reading *r)
{
	return r->dir_len ? strndup(r->path, r->dir_len) : strdup(".");
}

// --- Orbax ------------------------------------------------------------------------------------------------------------

static bool is_orbax(const struct ckpt_catalog_reading *r)
{
	return !strcmp(r->base, "_METADATA");
}

// Values of other types are in other files, or nowhere.
static bool is_stored(const json_t *value)
{
	static const char *const stored[] = {"jax.Array", "np.ndarray", "scalar"};
	const char *type = json_string_value(json_object_get(value, "value_type"));

	for (size_t i = 0; type && i < ARRAY_LEN(stored); i++)
		if (!strcmp(type, stored[i]))
			return !json_is_true(json_object_get(value, "skip_deserialize"));
	return false;
}

static int promise_leaf(struct ckpt_catalog_reading *r, const char *tree, char *name, const json_t *keys)
{
	struct ckpt_catalog_promise p = {.tree = tree, .name = name, .ndim = CKPT_SHAPE_UNKNOWN};
	const json_t *part;
	size_t i;

	json_array_foreach(keys, i, part)
	{
		const json_t *key = json_object_get(part, "key");
		size_t len = json_string_length(key);

		if (!json_is_string(key) || p.name_len + 1 + len > CKPT_ARRAY_NAME_MAX)
			return ckpt_catalog_refuse(r, "key_metadata", "a key is no text, or the name is too long");
		if (i)
			name[p.name_len++] = '.';
		memcpy(name + p.name_len, json_string_value(key), len);
		p.name_len += len;
	}
	return ckpt_catalog_promise(r, &p);
}

static int promise_tree(struct ckpt_catalog_reading *r, json_t *leaves)
{
	CLEANUP_FREE char *tree = tree_of(r);
	CLEANUP_FREE char *name = malloc(CKPT_ARRAY_NAME_MAX + 1);
	const char *path;
	json_t *leaf;
	int rc = tree && name ? 0 : -ENOMEM;

	if (!rc)
		json_object_foreach(leaves, path, leaf)
		{
			const json_t *keys = json_object_get(leaf, "key_metadata");

			if (!json_is_array(keys) || !json_is_object(json_object_get(leaf, "value_metadata")))
				return ckpt_catalog_refuse(r, "tree_metadata", "%.200s is not what Orbax writes", path);
			if (is_stored(json_object_get(leaf, "value_metadata")))
				rc = promise_leaf(r, tree, name, keys);
			if (rc)
				break;
		}
	return rc ? rc : ckpt_catalog_covers(r, tree);
}

static int read_orbax(struct ckpt_catalog_reading *r)
{
	json_t *json = NULL, *leaves;
	int rc = ckpt_catalog_load_json(r, &json);

	leaves = json_object_get(json, "tree_metadata");
	if (!rc && !json_is_object(leaves))
		rc = ckpt_catalog_refuse(r, "tree_metadata", "it is missing, or no object");
	if (!rc)
		rc = promise_tree(r, leaves);
	json_decref(json);
	return rc;
}

const struct ckpt_catalog_format ckpt_catalog_orbax = {"orbax", is_orbax, read_orbax};

// --- eFormer's index --------------------------------------------------------------------------------------------------

static bool is_eformer(const struct ckpt_catalog_reading *r)
{
	return !strcmp(r->base, "tensorstore_index.json");
}

static bool take_shape(const json_t *list, uint64_t *shape, unsigned *ret_ndim)
{
	if (!json_is_array(list) || json_array_size(list) > CKPT_ARRAY_DIMS_MAX)
		return false;
	*ret_ndim = (unsigned)json_array_size(list);
	for (unsigned i = 0; i < *ret_ndim; i++) {
		const json_t *n = json_array_get(list, i);

		if (!json_is_integer(n) || json_integer_value(n) < 0)
			return false;
		shape[i] = (uint64_t)json_integer_value(n);
	}
	return true;
}

static int promise_arrays(struct ckpt_catalog_reading *r, const char *tree, const char *field, const json_t *arrays)
{
	uint64_t shape[CKPT_ARRAY_DIMS_MAX];
	const json_t *array;
	int rc = 0;
	size_t i;

	if (!json_is_array(arrays))
		return ckpt_catalog_refuse(r, field, "it is no list");
	json_array_foreach(arrays, i, array)
	{
		const json_t *path = json_object_get(array, "path");
		struct ckpt_catalog_promise p = {.tree = tree, .shape = shape};

		p.name = json_string_value(path);
		p.name_len = json_string_length(path);
		if (!p.name || !take_shape(json_object_get(array, "shape"), shape, &p.ndim))
			return ckpt_catalog_refuse(r, field, "array %zu has no path, or no shape", i);
		rc = ckpt_catalog_promise(r, &p);
		if (rc)
			break;
	}
	return rc;
}

static int promise_prefixes(struct ckpt_catalog_reading *r, json_t *json)
{
	CLEANUP_FREE char *tree = tree_of(r);
	json_t *prefixes = json_object_get(json, "prefixes"), *arrays = json_object_get(json, "arrays"), *value;
	const char *format = json_string_value(json_object_get(json, "format")), *prefix;
	int rc = tree ? 0 : -ENOMEM;

	if (!rc && (!format || strcmp(format, "tensorstore")))
		rc = ckpt_catalog_refuse(r, "format", "it is missing, or not \"tensorstore\"");
	if (!rc && prefixes && !json_is_object(prefixes))
		rc = ckpt_catalog_refuse(r, "prefixes", "it is no object");
	if (rc)
		return rc;
	json_object_foreach(prefixes, prefix, value)
	{
		rc = promise_arrays(r, tree, "prefixes", value);
		if (rc)
			return rc;
	}
	return arrays ? promise_arrays(r, tree, "arrays", arrays) : 0;
}

static int read_eformer(struct ckpt_catalog_reading *r)
{
	json_t *json = NULL;
	int rc = ckpt_catalog_load_json(r, &json);

	if (!rc)
		rc = promise_prefixes(r, json);
	json_decref(json);
	return rc;
}

const struct ckpt_catalog_format ckpt_catalog_eformer = {"eformer", is_eformer, read_eformer};

// --- eFormer's structure ----------------------------------------------------------------------------------------------

static bool is_structure(const struct ckpt_catalog_reading *r)
{
	static const char end[] = "_structure.json";
	size_t len = strlen(r->base);

	// Another program may have a file of this name.
	return len > strlen(end) && !strcmp(r->base + len - strlen(end), end) &&
	       memmem(r->head, r->head_len, "\"pytree-structure\"", 18);
}

static int promise_paths(struct ckpt_catalog_reading *r, const char *tree, const json_t *paths)
{
	const json_t *path;
	int rc = 0;
	size_t i;

	if (!json_is_array(paths))
		return ckpt_catalog_refuse(r, "array_relpaths", "it is missing, or no list");
	json_array_foreach(paths, i, path)
	{
		const struct ckpt_catalog_promise p = {
			.tree = tree,
			.name = json_string_value(path),
			.name_len = json_string_length(path),
			.ndim = CKPT_SHAPE_UNKNOWN,
		};

		rc = p.name ? ckpt_catalog_promise(r, &p)
			    : ckpt_catalog_refuse(r, "array_relpaths", "a path is no text");
		if (rc)
			break;
	}
	return rc;
}

static int list_values(struct ckpt_catalog_reading *r, const json_t *names, const json_t *mask)
{
	const json_t *name;
	int rc = 0;
	size_t i;

	if (!json_is_array(names) || !json_is_array(mask) || json_array_size(names) != json_array_size(mask))
		return ckpt_catalog_refuse(r, "leaf_keys_full", "it and arr_mask are no lists of one length");
	json_array_foreach(names, i, name)
	{
		const struct ckpt_catalog_entry e = {
			.name = json_string_value(name),
			.name_len = json_string_length(name),
			.format = "eformer",
			.why = "it is a value of the program, not an array",
		};

		if (json_is_true(json_array_get(mask, i)))
			continue;
		rc = e.name ? ckpt_catalog_add(r, &e) : ckpt_catalog_refuse(r, "leaf_keys_full", "a name is no text");
		if (rc)
			break;
	}
	return rc;
}

static int read_structure(struct ckpt_catalog_reading *r)
{
	CLEANUP_FREE char *tree = tree_of(r);
	json_t *json = NULL;
	int rc = tree ? ckpt_catalog_load_json(r, &json) : -ENOMEM;

	if (!rc)
		rc = promise_paths(r, tree, json_object_get(json, "array_relpaths"));
	if (!rc)
		rc = list_values(r, json_object_get(json, "leaf_keys_full"), json_object_get(json, "arr_mask"));
	json_decref(json);
	return rc;
}

const struct ckpt_catalog_format ckpt_catalog_structure = {"structure", is_structure, read_structure};
