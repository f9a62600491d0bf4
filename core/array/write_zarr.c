// zarr version 3 (zarr-specs: docs/v3/core, docs/v3/codecs), codec "bytes", and what Orbax has beside it. An array is a directory with zarr.json
// and its chunks, c/I/J. A chunk is a run of elements in C order: one axis is cut, those before it have chunks of one, those behind it are
// whole. So chunks are written one behind the other. The last one along the axis is filled up with zeros.
#include "core/array/write_layout.h"
#include "core/base/util.h"

#define COMPONENT_MAX 255

// zarr calls its types as NumPy does. It has none in which elements share a byte, and no scale of the MX formats.
static const char *data_type_of(enum ckpt_dtype dtype)
{
	return ckpt_dtype_bits(dtype) < 8 || dtype == CKPT_DTYPE_F8E8M0 ? NULL : ckpt_dtype_numpy(dtype);
}

static const char *zero_of(enum ckpt_dtype dtype)
{
	return dtype == CKPT_DTYPE_BOOL                              ? "false"
	       : dtype == CKPT_DTYPE_C64 || dtype == CKPT_DTYPE_C128 ? "[0.0,0.0]"
	       : dtype >= CKPT_DTYPE_I8 && dtype <= CKPT_DTYPE_U64   ? "0"
								     : "0.0";
}

// --- Chunks -----------------------------------------------------------------------------------------------------------------

#define CHUNKS_MAX (1u << 18) // of an array: 32 TiB in chunks of the format's own size

struct grid {
	uint64_t chunk[CKPT_ARRAY_DIMS_MAX];
	unsigned axis;  // that is cut
	uint64_t inner; // elements of all behind it
	uint64_t outer; // places in all before it
};

static void cut(const struct ckpt_write_array *a, uint64_t bytes_max, struct grid *g)
{
	uint64_t width = ckpt_dtype_width(a->dtype), rows, parts;

	*g = (struct grid){.inner = 1, .outer = 1};
	for (unsigned i = 0; i < a->ndim; i++)
		g->chunk[i] = MAX(a->shape[i], UINT64_C(1));
	if (!a->ndim || !ckpt_write_elements(a))
		return;
	for (g->axis = a->ndim - 1; g->axis > 0; g->axis--) {
		if (g->inner * a->shape[g->axis] * width > bytes_max)
			break;
		g->inner *= a->shape[g->axis];
	}
	for (unsigned i = 0; i < g->axis; i++) {
		g->chunk[i] = 1;
		g->outer *= a->shape[i];
	}
	rows = MAX(bytes_max / (g->inner * width), UINT64_C(1));
	parts = (a->shape[g->axis] + rows - 1) / rows;
	g->chunk[g->axis] = (a->shape[g->axis] + parts - 1) / parts;
}

static void add_chunk(struct ckpt_layout *l, size_t index, const struct grid *g, const char *path, uint64_t place,
		      uint64_t part)
{
	const struct ckpt_write_array *a = &l->plan->arrays[index];
	uint64_t width = ckpt_dtype_width(a->dtype), rows = a->ndim ? a->shape[g->axis] : 1,
		 at_once = a->ndim ? g->chunk[g->axis] : 1, count = MIN(at_once, rows - part * at_once),
		 at[CKPT_ARRAY_DIMS_MAX] = {0}, first = (place * rows + part * at_once) * g->inner * width;
	struct ckpt_buffer key = {0};

	for (unsigned i = g->axis; i-- > 0; place /= a->shape[i])
		at[i] = place % a->shape[i];
	at[g->axis] = part;
	for (unsigned i = 0; i < a->ndim; i++)
		ckpt_buffer_print(&key, "/%llu", (unsigned long long)at[i]);
	ckpt_buffer_add(&key, "", 1);
	if (!l->rc)
		l->rc = key.rc;
	if (!l->rc)
		ckpt_layout_file(l, "%s/c%s", path, key.at);
	ckpt_layout_add_array(l, index, first, count * g->inner * width, 0);
	ckpt_layout_skip(l, (at_once - count) * g->inner * width);
	ckpt_buffer_done(&key);
}

static void put_numbers(struct ckpt_buffer *b, const char *before, const uint64_t *numbers, unsigned count)
{
	ckpt_buffer_text(b, before);
	for (unsigned i = 0; i < count; i++)
		ckpt_buffer_print(b, "%s%llu", i ? "," : "", (unsigned long long)numbers[i]);
	ckpt_buffer_text(b, "]");
}

static void add_array(struct ckpt_layout *l, size_t index, const char *path, struct grid *g)
{
	const struct ckpt_write_array *a = &l->plan->arrays[index];
	struct ckpt_buffer b = {0};
	uint64_t parts;

	cut(a, l->plan->shard_bytes ? l->plan->shard_bytes : CKPT_WRITE_CHUNK_BYTES, g);
	parts = a->ndim ? (a->shape[g->axis] + g->chunk[g->axis] - 1) / g->chunk[g->axis] : 1;
	// A few bytes of a header may ask for any number of them.
	if (ckpt_write_elements(a) && (g->outer > CHUNKS_MAX || parts > CHUNKS_MAX / g->outer)) {
		ckpt_layout_refuse(l, a, "it would have more than %u chunks: give a larger shard_bytes", CHUNKS_MAX);
		return;
	}
	for (uint64_t i = 0; ckpt_write_elements(a) && i < g->outer && !l->rc; i++)
		for (uint64_t k = 0; k < parts && !l->rc; k++)
			add_chunk(l, index, g, path, i, k);
	ckpt_layout_file(l, "%s/zarr.json", path);
	put_numbers(&b, "{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[", a->shape, a->ndim);
	ckpt_buffer_print(&b, ",\"data_type\":\"%s\"", data_type_of(a->dtype));
	put_numbers(&b, ",\"chunk_grid\":{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":[", g->chunk,
		    a->ndim);
	ckpt_buffer_text(&b,
			 "}},\"chunk_key_encoding\":{\"name\":\"default\",\"configuration\":{\"separator\":\"/\"}}");
	ckpt_buffer_print(&b, ",\"fill_value\":%s", zero_of(a->dtype));
	ckpt_buffer_text(
		&b, ",\"codecs\":[{\"name\":\"bytes\",\"configuration\":{\"endian\":\"little\"}}],\"attributes\":{}}");
	ckpt_layout_add_buffer(l, &b);
}

// --- Names ------------------------------------------------------------------------------------------------------------------

// By components: "a/b" comes directly behind "a", in front of "a-b".
static int compare_paths(const char *a, const char *b, char slash)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return (*a == slash ? 1 : *a ? (unsigned char)*a + 1 : 0) - (*b == slash ? 1 : *b ? (unsigned char)*b + 1 : 0);
}

static int by_path(const void *a, const void *b)
{
	return compare_paths((*(const struct ckpt_write_array *const *)a)->path,
			     (*(const struct ckpt_write_array *const *)b)->path, '/');
}

static int by_keys(const void *a, const void *b)
{
	return compare_paths((*(const struct ckpt_write_array *const *)a)->name,
			     (*(const struct ckpt_write_array *const *)b)->name, '.');
}

static const struct ckpt_write_array **sorted(struct ckpt_layout *l, int (*order)(const void *, const void *))
{
	const struct ckpt_write_array **list = ckpt_calloc(l->plan->count + 1, sizeof(*list));

	if (!list) {
		l->rc = -ENOMEM;
		return NULL;
	}
	for (size_t i = 0; i < l->plan->count; i++)
		list[i] = &l->plan->arrays[i];
	if (l->plan->count)
		qsort(list, l->plan->count, sizeof(*list), order);
	return list;
}

// The bytes that two paths have in common, up to the last slash in them.
static size_t common(const char *a, const char *b)
{
	size_t last = 0;

	for (size_t i = 0; a[i] && a[i] == b[i]; i++)
		if (a[i] == '/')
			last = i + 1;
	return last;
}

static bool is_below(const char *path, const char *above, char slash)
{
	size_t len = strlen(above);

	return !strncmp(path, above, len) && path[len] == slash;
}

static bool has_component(const char *path, const char *component)
{
	size_t len = strlen(component), n;

	for (;; path += n + 1) {
		n = strcspn(path, "/");
		if (n == len && !memcmp(path, component, n))
			return true;
		if (!path[n])
			return false;
	}
}

// --- zarr3 ------------------------------------------------------------------------------------------------------------------

static void add_group(struct ckpt_layout *l, const char *folder, size_t len)
{
	static const char group[] = "{\"zarr_format\":3,\"node_type\":\"group\",\"attributes\":{}}";

	ckpt_layout_file(l, "%.*szarr.json", (int)len, folder);
	ckpt_layout_add(l, group, sizeof(group) - 1);
}

// Each folder is a group: those that the one before, in order, is not in.
static void add_groups(struct ckpt_layout *l)
{
	CLEANUP_FREE const struct ckpt_write_array **list = sorted(l, by_path);

	for (size_t i = 0; list && i < l->plan->count && !l->rc; i++) {
		const char *path = list[i]->path, *before = i ? list[i - 1]->path : "";

		if (i && is_below(path, before, '/'))
			ckpt_layout_refuse(l, list[i], "zarr3 has no array below another, %.100s", list[i - 1]->name);
		if (has_component(path, "zarr.json"))
			ckpt_layout_refuse(l, list[i], "zarr3 has this name for itself");
		for (size_t n = common(path, before); strchr(path + n, '/') && !l->rc;) {
			n = (size_t)(strchr(path + n, '/') - path) + 1;
			add_group(l, path, n);
		}
	}
	add_group(l, "", 0);
}

static void make_zarr3(struct ckpt_layout *l)
{
	struct grid g;

	for (size_t i = 0; i < l->plan->count && !l->rc; i++)
		add_array(l, i, l->plan->arrays[i].path, &g);
	if (!l->rc)
		add_groups(l);
}

const struct ckpt_write_format ckpt_write_zarr3 = {
	.name = "zarr3",
	.dtype = data_type_of,
	.shards = true,
	.make = make_zarr3,
};

// --- Orbax ------------------------------------------------------------------------------------------------------------------

// TensorStore takes a backslash for a slash.
static bool is_path(const char *name)
{
	if (strchr(name, '\\'))
		return false;
	for (size_t n;; name += n + 1) {
		n = strcspn(name, "/");
		if (!n || n > COMPONENT_MAX || (n == 1 && *name == '.') || (n == 2 && !memcmp(name, "..", 2)))
			return false;
		if (!name[n])
			return true;
	}
}

// Names are as they are: Orbax looks for the directories.
static void check_names(struct ckpt_layout *l)
{
	static const char *const taken[] = {"_METADATA",       "_CHECKPOINT_METADATA", "_sharding",
					    "array_metadatas", "manifest.ocdbt",       "commit_success.txt"};
	CLEANUP_FREE const struct ckpt_write_array **list = sorted(l, by_keys);
	CLEANUP_FREE const struct ckpt_write_array **paths = sorted(l, by_path);

	for (size_t i = 0; list && paths && i < l->plan->count && !l->rc; i++) {
		const struct ckpt_write_array *a = list[i];

		if (!is_path(a->name) || has_component(a->name, "zarr.json"))
			ckpt_layout_refuse(l, a, "it cannot be the name of a directory of Orbax");
		for (size_t k = 0; k < ARRAY_LEN(taken); k++)
			if (!strcmp(a->name, taken[k]))
				ckpt_layout_refuse(l, a, "Orbax has this name for itself");
		if (i && is_below(a->name, list[i - 1]->name, '.'))
			ckpt_layout_refuse(l, a, "%.100s is an array, and cannot be a dictionary, too",
					   list[i - 1]->name);
		if (i && is_below(paths[i]->name, paths[i - 1]->name, '/'))
			ckpt_layout_refuse(l, paths[i], "zarr3 has no array below another, %.100s", paths[i - 1]->name);
		if (!ckpt_write_elements(a))
			ckpt_layout_refuse(l, a, "Orbax has no arrays without elements");
	}
}

// As repr() has a tuple of texts. Orbax reads the keys from beside it.
static void put_keypath(struct ckpt_buffer *b, const char *name)
{
	struct ckpt_buffer text = {0};

	ckpt_buffer_text(&text, "(");
	for (size_t n, i = 0;; name += n + 1, i++) {
		n = strcspn(name, ".");
		ckpt_buffer_text(&text, i ? ", '" : "'");
		for (size_t k = 0; k < n; k++) {
			if (name[k] == '\'' || name[k] == '\\')
				ckpt_buffer_text(&text, "\\");
			ckpt_buffer_add(&text, name + k, 1);
		}
		ckpt_buffer_text(&text, "'");
		if (name[n])
			continue;
		ckpt_buffer_text(&text, i ? ")" : ",)");
		break;
	}
	ckpt_buffer_add(&text, "", 1);
	if (text.rc)
		b->rc = text.rc;
	else
		ckpt_buffer_json(b, text.at);
	ckpt_buffer_done(&text);
}

static void put_keys(struct ckpt_buffer *b, struct ckpt_layout *l, const char *name)
{
	for (size_t n, i = 0;; name += n + 1, i++) {
		char *key = strndup(name, n = strcspn(name, "."));

		if (!key) {
			l->rc = -ENOMEM;
			return;
		}
		ckpt_buffer_text(b, i ? ", {\"key\": " : "{\"key\": ");
		ckpt_buffer_json(b, key);
		ckpt_buffer_text(b, ", \"key_type\": 2}");
		free(key);
		if (!name[n])
			return;
	}
}

// An array of JAX has a sharding, and none is known here. As arrays of NumPy they are restored without one, or with that of the caller.
static void add_metadata(struct ckpt_layout *l)
{
	struct ckpt_buffer b = {0};

	ckpt_layout_file(l, "_METADATA");
	ckpt_buffer_text(&b, "{\"tree_metadata\": {");
	for (size_t i = 0; i < l->plan->count && !l->rc; i++) {
		const struct ckpt_write_array *a = &l->plan->arrays[i];

		ckpt_buffer_text(&b, i ? ", " : "");
		put_keypath(&b, a->name);
		ckpt_buffer_text(&b, ": {\"key_metadata\": [");
		put_keys(&b, l, a->name);
		ckpt_buffer_text(
			&b, "], \"value_metadata\": {\"value_type\": \"np.ndarray\", \"skip_deserialize\": false}}");
	}
	ckpt_buffer_text(&b, "}, \"use_ocdbt\": false, \"use_zarr3\": true, "
			     "\"store_array_data_equal_to_fill_value\": true, \"custom_metadata\": null}");
	ckpt_layout_add_buffer(l, &b);
}

static void make_orbax(struct ckpt_layout *l)
{
	static const char checkpoint[] =
		"{\"item_handlers\": "
		"\"orbax.checkpoint._src.handlers.pytree_checkpoint_handler.PyTreeCheckpointHandler\", "
		"\"metrics\": {}, \"performance_metrics\": {}, \"init_timestamp_nsecs\": null, "
		"\"commit_timestamp_nsecs\": null, \"custom_metadata\": {}}";
	struct grid g;

	check_names(l);
	for (size_t i = 0; i < l->plan->count && !l->rc; i++)
		add_array(l, i, l->plan->arrays[i].name, &g);
	if (l->rc)
		return;
	add_metadata(l);
	ckpt_layout_file(l, "_CHECKPOINT_METADATA");
	ckpt_layout_add(l, checkpoint, sizeof(checkpoint) - 1);
}

const struct ckpt_write_format ckpt_write_orbax = {
	.name = "orbax",
	.dtype = data_type_of,
	.shards = true,
	.is_text = true,
	.make = make_orbax,
};
