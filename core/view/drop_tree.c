// Files that name the arrays of a tree by their folders:
//
//	.zmetadata                  zarr 2, consolidated: {"metadata": {"PATH/.zarray": ..., "PATH/.zattrs": ...}}
//	zarr.json                   a group of zarr 3: {"consolidated_metadata": {"metadata": {PATH: NODE}}}; a NODE may be such a group
//	_METADATA                   Orbax: {"tree_metadata": {TUPLE: {"key_metadata": [{"key": KEY}, ...]}}}; PATH is the keys, joined by "."
//	_sharding                   Orbax: {BASE64 of PATH: TEXT}
//	array_metadatas/process_N   Orbax: {"array_metadatas": [{"array_metadata": {"param_name": PATH}}, ...]}
//	tensorstore_index.json      eFormer: {"prefixes": {PREFIX: [{"path": PATH}, ...]}, "arrays": [{"path": PATH}, ...]}
#include "core/view/drop.h"

#include "core/array/array.h"
#include "core/base/json.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/limits.h"

#include <limits.h>
#include <openssl/evp.h>
#include <stdio.h>

#define DEPTH_MAX 64 // of groups in each other

struct dropping {
	const struct ckpt_drop *how;
	char dir[CKPT_ARRAY_NAME_MAX + 2]; // that PATH counts from, with its slash
	size_t dir_len;
	bool changed;
	int rc;
};

static bool drops(struct dropping *d, const char *path, size_t len)
{
	if (!path || len > CKPT_ARRAY_NAME_MAX - d->dir_len || memchr(path, '\0', len))
		return false;
	memcpy(d->dir + d->dir_len, path, len);
	d->dir[d->dir_len + len] = '\0';
	if (!d->how->drops(d->how->arg, d->dir))
		return false;
	d->changed = true;
	return true;
}

static bool drops_text(struct dropping *d, const json_t *path)
{
	return drops(d, json_string_value(path), json_string_length(path));
}

static void drop_keys2(struct dropping *d, json_t *json)
{
	json_t *nodes = json_object_get(json, "metadata"), *node;
	const char *key;
	void *next;

	json_object_foreach_safe(nodes, next, key, node)
	{
		const char *slash = strrchr(key, '/');

		if (slash && drops(d, key, (size_t)(slash - key)))
			json_object_del(nodes, key);
	}
}

static void drop_nodes3(struct dropping *d, json_t *json, unsigned depth)
{
	json_t *nodes = json_object_get(json_object_get(json, "consolidated_metadata"), "metadata"), *node;
	const char *key;
	void *next;

	if (depth == DEPTH_MAX)
		d->rc = -EBADMSG;
	if (d->rc)
		return;
	json_object_foreach_safe(nodes, next, key, node)
	{
		size_t len = strlen(key), above = d->dir_len;

		if (drops(d, key, len)) {
			json_object_del(nodes, key);
		} else if (len < CKPT_ARRAY_NAME_MAX - above) {
			d->dir_len += (size_t)snprintf(d->dir + above, sizeof(d->dir) - above, "%s/", key);
			drop_nodes3(d, node, depth + 1);
			d->dir_len = above;
		}
	}
}

static bool drops_leaf(struct dropping *d, const json_t *keys)
{
	CLEANUP_FREE char *path = malloc(CKPT_ARRAY_NAME_MAX + 1);
	const json_t *part;
	size_t i, len = 0;

	if (!path)
		d->rc = -ENOMEM;
	if (!path || !json_array_size(keys))
		return false;
	json_array_foreach(keys, i, part)
	{
		const json_t *key = json_object_get(part, "key");
		size_t more = json_string_length(key);

		if (!json_is_string(key) || more + 1 > CKPT_ARRAY_NAME_MAX - len)
			return false;
		if (i)
			path[len++] = '.';
		memcpy(path + len, json_string_value(key), more);
		len += more;
	}
	return drops(d, path, len);
}

static void drop_leaves(struct dropping *d, json_t *json)
{
	json_t *leaves = json_object_get(json, "tree_metadata"), *leaf;
	const char *key;
	void *next;

	json_object_foreach_safe(leaves, next, key, leaf)
	{
		if (drops_leaf(d, json_object_get(leaf, "key_metadata")))
			json_object_del(leaves, key);
	}
}

// False: it is no base64. text has room for as many bytes as there are digits.
static bool decode64(const char *digits, char *text, size_t *ret_len)
{
	size_t len = strlen(digits);
	int n = len > INT_MAX ? -1 : EVP_DecodeBlock((unsigned char *)text, (const unsigned char *)digits, (int)len);

	if (n < 0)
		return false;
	for (; n && len && digits[len - 1] == '='; len--) // each counts as a byte
		n--;
	*ret_len = (size_t)n;
	return true;
}

static void drop_shardings(struct dropping *d, json_t *json)
{
	const char *key;
	json_t *value;
	void *next;

	json_object_foreach_safe(json, next, key, value)
	{
		CLEANUP_FREE char *path = malloc(strlen(key) + 1);
		size_t len;

		if (!path)
			d->rc = -ENOMEM;
		else if (decode64(key, path, &len) && drops(d, path, len))
			json_object_del(json, key);
	}
}

static void drop_rows(struct dropping *d, json_t *rows, const char *inside, const char *field)
{
	for (size_t i = json_array_size(rows); i-- > 0;) {
		const json_t *row = json_array_get(rows, i), *names = inside ? json_object_get(row, inside) : row;

		if (drops_text(d, json_object_get(names, field)))
			json_array_remove(rows, i);
	}
}

static void drop_index(struct dropping *d, json_t *json)
{
	json_t *prefixes = json_object_get(json, "prefixes"), *rows;
	const char *prefix;

	json_object_foreach(prefixes, prefix, rows) drop_rows(d, rows, NULL, "path");
	drop_rows(d, json_object_get(json, "arrays"), NULL, "path");
}

// The last component of path, and in dir what is in front of it; for a file of array_metadatas its folder.
static const char *split(struct dropping *d, const char *path)
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	size_t len = (size_t)(base - path), folder = sizeof(CKPT_ORBAX_FOLDER) - 1;

	if (len > folder && !memcmp(base - 1 - folder, CKPT_ORBAX_FOLDER, folder) &&
	    (len == folder + 1 || path[len - folder - 2] == '/')) {
		base -= folder + 1;
		len -= folder + 1;
	}
	d->dir_len = MIN(len, (size_t)CKPT_ARRAY_NAME_MAX);
	memcpy(d->dir, path, d->dir_len);
	return base;
}

static void drop(struct dropping *d, const char *base, json_t *json)
{
	if (!strcmp(base, ".zmetadata"))
		drop_keys2(d, json);
	else if (!strcmp(base, "zarr.json"))
		drop_nodes3(d, json, 0);
	else if (!strcmp(base, "_METADATA"))
		drop_leaves(d, json);
	else if (!strcmp(base, "_sharding"))
		drop_shardings(d, json);
	else if (!strcmp(base, "tensorstore_index.json"))
		drop_index(d, json);
	else
		drop_rows(d, json_object_get(json, "array_metadatas"), "array_metadata", "param_name");
}

int ckpt_drop_folders(const struct ckpt_drop *how, const char *path, const struct ckpt_source *from, int to,
		      bool *ret_changed)
{
	CLEANUP_FREE struct dropping *d = ckpt_calloc(1, sizeof(*d));
	CLEANUP_FREE char *text = NULL;
	json_t *json = NULL;
	const char *base;
	int rc = d ? 0 : -ENOMEM;

	if (!rc)
		rc = from->bytes > CKPT_CATALOG_JSON_MAX ? -EBADMSG
							 : ckpt_drop_read_json(from, 0, (size_t)from->bytes, &json);
	if (rc)
		return rc;
	d->how = how;
	base = split(d, path);
	drop(d, base, json);
	text = json_dumps(json, 0);
	rc = d->rc ? d->rc : text ? 0 : -ENOMEM;
	if (!rc && d->changed) {
		ssize_t n = ckpt_sys.pwrite(to, text, strlen(text), 0);

		rc = n < 0 ? (int)n : 0;
	}
	if (!rc)
		*ret_changed = d->changed;
	json_decref(json);
	return rc;
}
