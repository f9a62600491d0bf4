// Zarr's directories: .zarray or zarr.json, and a file for each chunk. An array is called like its directory, from the step on; one that is the
// step itself is called ".".
//
// Megatron-core had a backend "zarr" for them (megatron/core/dist_checkpointing/strategies/zarr.py). The form below is that of release 0.8.0,
// which warns that the backend is deprecated. Later releases refuse it.
//
//	metadata.json   of the checkpoint: {"sharded_backend": "zarr", ...}
//	KEY/            zarr 2, with the global shape of the array; its chunks are as large as a rank's box, without a codec. The fill value is
//			null, and empty chunks are written, too: a missing chunk is the part of a rank that is missing. bfloat16 is the dtype
//			"bfloat16"
//	KEY.sync/       locks of zarr.ProcessSynchronizer: empty files that have the names of those in KEY
//	KEY/shard_*.pt  objects, and common.pt: torch.save()
//
// Flat shards of the optimizer (flattened_range) have no form there: each rank sets its elements in KEY, whole arrays with their shape
// (set_coordinate_selection), and KEY.sync keeps others away meanwhile. Elements that no rank has set cannot be told from others.
#include "core/array/catalog_zarr.h"

#include "core/base/json.h"
#include "core/base/util.h"
#include "core/limits.h"

#include <stdio.h>

#define JSON_BYTES_MAX CKPT_ARRAY_PIECE_MAX
#define CONFIG_BYTES_MAX 4096u

static const char lock_suffix[] = ".sync";

// --- A directory ------------------------------------------------------------------------------------------------------

struct directory {
	const struct ckpt_catalog_files *files;
	const char *path;
	size_t len; // of the path with its slash
	int (*fn)(void *fn_arg, const char *key, const struct ckpt_zarr_value *value);
	void *fn_arg;
};

static int take_file(void *arg, const char *path, uint64_t bytes)
{
	const struct directory *d = arg;

	return strlen(path) <= d->len
		       ? 0
		       : d->fn(d->fn_arg, path + d->len, &(struct ckpt_zarr_value){path, 0, bytes, NULL});
}

static int each_file(void *arg, int (*fn)(void *, const char *, const struct ckpt_zarr_value *), void *fn_arg)
{
	struct directory *d = arg;

	d->fn = fn;
	d->fn_arg = fn_arg;
	return d->files->each(d->files->arg, d->path, take_file, d);
}

// --- Megatron ---------------------------------------------------------------------------------------------------------

// 1: the file DIR/NAME is there, len bytes of dir; 0: it is not.
static int open_in(const struct ckpt_catalog_files *files, const char *dir, size_t len, const char *name,
		   struct ckpt_source *ret_source)
{
	size_t bytes = len + 1 + strlen(name) + 1;
	CLEANUP_FREE char *path = malloc(bytes);
	int rc;

	if (!path)
		return -ENOMEM;
	snprintf(path, bytes, "%.*s%s%s", (int)len, dir, len ? "/" : "", name);
	rc = files->open(files->arg, path, ret_source);
	return rc == -ENOENT ? 0 : rc ? rc : 1;
}

// 1: this empty file is a lock, as the array without ".sync" is there.
static int is_lock(const struct ckpt_catalog_reading *r)
{
	const size_t len = sizeof(lock_suffix) - 1;
	struct ckpt_source source;
	int rc;

	if (r->source.bytes || r->dir_len <= len || memcmp(r->path + r->dir_len - len, lock_suffix, len))
		return 0;
	rc = open_in(r->files, r->path, r->dir_len - len, ".zarray", &source);
	if (rc == 1)
		r->files->close(r->files->arg, &source);
	return rc;
}

static int load_config(const struct ckpt_catalog_files *files, struct ckpt_source *source, json_t **ret_json)
{
	char text[CONFIG_BYTES_MAX];
	int rc = source->bytes > sizeof(text) ? -EINVAL : ckpt_source_read(source, 0, text, (size_t)source->bytes);

	if (!rc)
		rc = ckpt_json_load(text, (size_t)source->bytes, 0, NULL, ret_json);
	files->close(files->arg, source);
	return rc;
}

static int is_of_megatron(void *arg)
{
	const struct directory *d = arg;
	const char *slash = strrchr(d->path, '/');
	struct ckpt_source source;
	const char *backend;
	json_t *json = NULL;
	int rc = open_in(d->files, d->path, slash ? (size_t)(slash - d->path) : 0, "metadata.json", &source);

	if (rc != 1)
		return rc;
	rc = load_config(d->files, &source, &json);
	backend = json_string_value(json_object_get(json, "sharded_backend"));
	rc = rc == -EINVAL ? 0 : rc ? rc : backend && !strcmp(backend, "zarr");
	json_decref(json);
	return rc;
}

// --- The files --------------------------------------------------------------------------------------------------------

static int read_directory(struct ckpt_catalog_reading *r, int version)
{
	CLEANUP_FREE char *dir = strndup(r->path, r->dir_len);
	CLEANUP_FREE char *json = NULL;
	struct directory d = {.files = r->files, .path = dir, .len = r->dir_len ? r->dir_len + 1 : 0};
	struct ckpt_zarr_place place = {.tree = ".", .is_whole = is_of_megatron, .each = each_file, .arg = &d};
	int rc;

	if (!dir)
		return -ENOMEM;
	rc = is_lock(r);
	if (rc)
		return MIN(rc, 0);
	if (r->source.bytes > JSON_BYTES_MAX)
		return ckpt_catalog_refuse(r, "JSON", "it is longer than %u bytes", JSON_BYTES_MAX);
	json = malloc((size_t)r->source.bytes + 1);
	rc = json ? ckpt_source_read(&r->source, 0, json, (size_t)r->source.bytes) : -ENOMEM;
	if (rc)
		return rc;
	place.name = *dir ? dir : ".";
	place.format = version == 2 ? "zarr2" : "zarr3";
	place.json = json;
	place.json_len = (size_t)r->source.bytes;
	return ckpt_catalog_read_zarr(r, version, &place);
}

static int read_zarr2(struct ckpt_catalog_reading *r)
{
	return read_directory(r, 2);
}

static int read_zarr3(struct ckpt_catalog_reading *r)
{
	return read_directory(r, 3);
}

static bool is_zarr2(const struct ckpt_catalog_reading *r)
{
	return !strcmp(r->base, ".zarray");
}

static bool is_zarr3(const struct ckpt_catalog_reading *r)
{
	return !strcmp(r->base, "zarr.json");
}

const struct ckpt_catalog_format ckpt_catalog_zarr2 = {"zarr2", is_zarr2, read_zarr2};
const struct ckpt_catalog_format ckpt_catalog_zarr3 = {"zarr3", is_zarr3, read_zarr3};
