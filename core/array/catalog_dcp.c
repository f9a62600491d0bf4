// torch.distributed.checkpoint (torch/distributed/checkpoint: metadata.py, filesystem.py): .metadata is the pickle of
//
//	Metadata           state_dict_metadata: {NAME: tensor or bytes}, storage_data: {MetadataIndex: _StorageInfo}
//	tensor             TensorStorageMetadata: properties (the dtype is its first part), size, chunks: [offsets, sizes]
//	bytes              BytesStorageMetadata: an object of the program, as torch.save() wrote it
//	MetadataIndex      fqn: NAME, offset: that of the chunk, or None
//	_StorageInfo       relative_path, offset, length: bytes of a file beside it; transform_descriptors: what was done to them
//
// and these bytes are a torch.save() of the chunk. They are not read for the catalog: ckpt_piece_resolve() does that for one.
//
// Megatron (megatron/core/dist_checkpointing/strategies/torch.py and resharding.py, to 2025) has beside these
//
//	mcore_data         {NAME: {"nd_reformulated_orig_global_shape": SHAPE}}
//
// of an array whose shards are flat. A grid cuts SHAPE into equal boxes; size is the grid's and the elements of a box, so that a chunk is
// a flat range of one box.
#include "core/array/catalog_listing.h"

#include "core/array/array_format.h"
#include "core/array/pickle.h"
#include "core/base/util.h"
#include "core/limits.h"

#define WHY_BOX "the box of a piece is not what torch writes"
#define WHY_GRID "its shape and the grid of its flat shards do not fit"
#define ATTRIBUTES_MAX 64    // of an object
#define STORED_NAME_MAX 1024 // bytes; names are compared often

struct stored { // a pair of storage_data
	ckpt_value name, offset, info;
};

struct reading {
	struct ckpt_catalog_reading *catalog;
	struct ckpt_pickle *pickle;
	struct stored *stored; // sorted by name and offset
	size_t stored_count, stored_cap;
	struct stored *shapes; // of mcore_data, sorted by name; info is the shape
	size_t shape_count, shape_cap;
	struct ckpt_catalog_listing listing;
	bool stopped;
};

// --- storage_data -----------------------------------------------------------------------------------------------------

static ckpt_value attribute(const struct ckpt_pickle *p, ckpt_value object, const char *name)
{
	ckpt_value state = ckpt_value_state(p, object), value = 0;

	// Many objects may share one large dictionary.
	return ckpt_value_count(p, state) <= 2 * ATTRIBUTES_MAX && ckpt_value_get(p, state, name, &value) ? value : 0;
}

static int compare_text(const struct ckpt_pickle *p, ckpt_value one, ckpt_value other)
{
	size_t a_len = 0, b_len = 0;
	const char *a = ckpt_value_text(p, one, &a_len), *b = ckpt_value_text(p, other, &b_len);
	int order = a && b && a != b ? memcmp(a, b, MIN(a_len, b_len)) : 0;

	return order ? order : (a_len > b_len) - (a_len < b_len);
}

// Tuples of numbers; None is one without numbers.
static int compare_offsets(const struct ckpt_pickle *p, ckpt_value one, ckpt_value other)
{
	ckpt_item a = ckpt_value_first(p, one), b = ckpt_value_first(p, other);

	for (; a && b; a = ckpt_item_next(p, a), b = ckpt_item_next(p, b)) {
		int64_t x = -1, y = -1;

		(void)ckpt_value_int(p, ckpt_item_value(p, a), &x);
		(void)ckpt_value_int(p, ckpt_item_value(p, b), &y);
		if (x != y)
			return x < y ? -1 : 1;
	}
	return (a != 0) - (b != 0);
}

// A sort of names that are long and alike takes seconds. Once it is stopped all are equal, and it ends soon.
static int by_place(const void *one, const void *other, void *arg)
{
	const struct stored *a = one, *b = other;
	struct reading *r = arg;
	int order;

	r->stopped = r->stopped || ckpt_catalog_goes_on(r->catalog->catalog, 1);
	if (r->stopped)
		return 0;
	order = compare_text(r->pickle, a->name, b->name);
	return order ? order : compare_offsets(r->pickle, a->offset, b->offset);
}

static int sort(struct reading *r, struct stored *list, size_t count)
{
	if (count)
		qsort_r(list, count, sizeof(*list), by_place, r);
	return r->stopped ? -EINTR : 0;
}

// A long name or tuple in many pairs would make each comparison long: one that no array has is refused first.
static bool is_pair(const struct ckpt_pickle *p, const struct stored *s)
{
	size_t len;

	return ckpt_value_text(p, s->name, &len) && len <= STORED_NAME_MAX &&
	       ckpt_value_count(p, s->offset) <= CKPT_ARRAY_DIMS_MAX &&
	       ckpt_value_kind(p, s->offset) != CKPT_VALUE_DICT;
}

static int take_stored(struct reading *r, ckpt_value storage_data)
{
	const struct ckpt_pickle *p = r->pickle;
	int rc = 0;

	if (ckpt_value_kind(p, storage_data) != CKPT_VALUE_DICT)
		return ckpt_catalog_refuse(r->catalog, "storage_data", "it is missing, or no dictionary");
	for (ckpt_item at = ckpt_value_first(p, storage_data), value; at && !rc; at = ckpt_item_next(p, value)) {
		ckpt_value index = ckpt_item_value(p, at);
		struct stored s = {attribute(p, index, "fqn"), attribute(p, index, "offset"), 0};

		value = ckpt_item_next(p, at);
		s.info = ckpt_item_value(p, value);
		if (!is_pair(p, &s))
			return ckpt_catalog_refuse(r->catalog, "storage_data", "a key of it is no MetadataIndex");
		rc = ckpt_catalog_goes_on(r->catalog->catalog, 1)
			     ?: ckpt_grow((void **)&r->stored, &r->stored_cap, r->stored_count + 1, sizeof(s));
		if (!rc)
			r->stored[r->stored_count++] = s;
	}
	return rc ? rc : sort(r, r->stored, r->stored_count);
}

static const struct stored *find_in(struct reading *r, const struct stored *list, size_t count, ckpt_value name,
				    ckpt_value offset)
{
	const struct stored want = {name, offset, 0};
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = by_place(&want, &list[middle], r);

		if (r->stopped)
			return NULL; // add_all() says why
		if (!order)
			return &list[middle];
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

static const struct stored *find_stored(struct reading *r, ckpt_value name, ckpt_value offset)
{
	return find_in(r, r->stored, r->stored_count, name, offset);
}

// A value that makes no sense says nothing.
static int take_shapes(struct reading *r, ckpt_value mcore_data)
{
	const struct ckpt_pickle *p = r->pickle;
	int rc = 0;

	if (ckpt_value_kind(p, mcore_data) != CKPT_VALUE_DICT)
		return 0;
	for (ckpt_item at = ckpt_value_first(p, mcore_data), value; at && !rc; at = ckpt_item_next(p, value)) {
		struct stored s = {.name = ckpt_item_value(p, at)};
		ckpt_value data;

		value = ckpt_item_next(p, at);
		data = ckpt_item_value(p, value);
		// Many names may share one large dictionary.
		if (!is_pair(p, &s) || ckpt_value_count(p, data) > 2 * ATTRIBUTES_MAX ||
		    !ckpt_value_get(p, data, "nd_reformulated_orig_global_shape", &s.info))
			continue;
		rc = ckpt_grow((void **)&r->shapes, &r->shape_cap, r->shape_count + 1, sizeof(s));
		if (!rc)
			r->shapes[r->shape_count++] = s;
	}
	return rc ? rc : sort(r, r->shapes, r->shape_count);
}

// --- Arrays -----------------------------------------------------------------------------------------------------------

// The properties are (dtype, ...), or a dictionary in older versions.
static enum ckpt_dtype dtype_of(const struct ckpt_pickle *p, ckpt_value tensor)
{
	static const char torch[] = "torch ";
	ckpt_value properties = attribute(p, tensor, "properties"), state = ckpt_value_state(p, properties);
	ckpt_value dtype = ckpt_value_kind(p, state) == CKPT_VALUE_TUPLE ? ckpt_value_at(p, state, 0)
									 : attribute(p, properties, "dtype");
	size_t len;
	const char *name = ckpt_value_global(p, dtype, &len);

	if (!name || len < sizeof(torch) || memcmp(name, torch, sizeof(torch) - 1))
		return CKPT_DTYPE_NONE;
	return ckpt_torch_dtype(name + sizeof(torch) - 1, len - (sizeof(torch) - 1));
}

// The place of the bytes, as a pair of storage_data says. NULL, or why they cannot be read.
static const char *take_place(struct reading *r, const struct stored *stored, struct ckpt_piece *piece)
{
	const struct ckpt_pickle *p = r->pickle;
	const struct ckpt_listed *file;
	const char *path;
	size_t len;

	if (!stored)
		return "storage_data lacks a piece of it";
	// Only files that are there can be named.
	path = ckpt_value_text(p, attribute(p, stored->info, "relative_path"), &len);
	file = path ? ckpt_catalog_listing_beside(&r->listing, r->catalog, path, len) : NULL;
	if (!file)
		return CKPT_WHY_NO_FILE;
	if (!ckpt_value_size(p, attribute(p, stored->info, "offset"), &piece->offset) ||
	    !ckpt_value_size(p, attribute(p, stored->info, "length"), &piece->bytes))
		return "storage_data does not say where a piece of it is";
	if (piece->offset > file->bytes || piece->bytes > file->bytes - piece->offset)
		return CKPT_WHY_OUTSIDE;
	if (ckpt_value_count(p, attribute(p, stored->info, "transform_descriptors")))
		return "its pieces are stored with an extension of torch.distributed.checkpoint";
	piece->file = file->path;
	piece->codecs[0] = CKPT_PIECE_TORCH;
	return NULL;
}

// An array of .metadata. Of one that is flat the grid has a box for each part of the shape.
struct tensor {
	ckpt_value name;
	unsigned ndim; // of size
	bool is_flat;
	uint64_t size[CKPT_ARRAY_DIMS_MAX], box[CKPT_ARRAY_DIMS_MAX];
};

// Elements of a flat range: those of one box, in C order. NULL: they are none.
static const char *place_flat(const struct tensor *t, const uint64_t *offsets, const uint64_t *sizes,
			      uint64_t start[CKPT_ARRAY_DIMS_MAX])
{
	unsigned ndim = t->ndim - 1;

	for (unsigned i = 0; i < ndim; i++) {
		if (sizes[i] != 1 || offsets[i] >= t->size[i])
			return WHY_BOX;
		start[i] = offsets[i] * t->box[i]; // in the shape
	}
	return offsets[ndim] > t->size[ndim] || sizes[ndim] > t->size[ndim] - offsets[ndim] ? WHY_BOX : NULL;
}

static int add_chunk(struct reading *r, const struct tensor *t, ckpt_value chunk, const char **ret_why)
{
	const struct ckpt_pickle *p = r->pickle;
	uint64_t offsets[CKPT_ARRAY_DIMS_MAX], sizes[CKPT_ARRAY_DIMS_MAX], start[CKPT_ARRAY_DIMS_MAX];
	ckpt_value offset = attribute(p, chunk, "offsets");
	struct ckpt_piece piece = {.start = offsets, .extent = sizes};
	unsigned offset_count, size_count;

	if (!ckpt_value_sizes(p, offset, offsets, &offset_count) ||
	    !ckpt_value_sizes(p, attribute(p, chunk, "sizes"), sizes, &size_count) || offset_count != t->ndim ||
	    size_count != t->ndim)
		*ret_why = WHY_BOX;
	else if (t->is_flat)
		*ret_why = place_flat(t, offsets, sizes, start);
	if (!*ret_why)
		*ret_why = take_place(r, find_stored(r, t->name, offset), &piece);
	if (*ret_why || !t->is_flat)
		return *ret_why ? 0 : ckpt_catalog_add_piece(r->catalog, &piece);
	piece.start = start;
	piece.extent = t->box;
	return ckpt_catalog_add_flat(r->catalog, &piece, offsets[t->ndim - 1], sizes[t->ndim - 1]);
}

// The shape before it was cut into boxes, each of which is flat. NULL; why there is none; *ret_is_flat stays: it is no such array.
static const char *take_flat(struct reading *r, struct tensor *t, uint64_t shape[CKPT_ARRAY_DIMS_MAX])
{
	const struct stored *original = find_in(r, r->shapes, r->shape_count, t->name, 0);
	uint64_t elements;
	unsigned ndim;

	if (!original || ckpt_value_kind(r->pickle, original->info) == CKPT_VALUE_NONE)
		return NULL;
	if (!ckpt_value_sizes(r->pickle, original->info, shape, &ndim) || ndim + 1 != t->ndim)
		return WHY_GRID;
	for (unsigned i = 0; i < ndim; i++) {
		if (!t->size[i] || shape[i] % t->size[i])
			return WHY_GRID;
		t->box[i] = shape[i] / t->size[i];
	}
	t->is_flat = true;
	return ckpt_array_elements(t->box, ndim, &elements) && elements == t->size[ndim] ? NULL : WHY_GRID;
}

static int add_tensor(struct reading *r, struct ckpt_catalog_entry *e, ckpt_value name, ckpt_value tensor)
{
	const struct ckpt_pickle *p = r->pickle;
	uint64_t shape[CKPT_ARRAY_DIMS_MAX];
	struct tensor t = {.name = name};
	const char *why = NULL;
	ckpt_item at;
	int rc;

	e->shape = t.size;
	e->dtype = dtype_of(p, tensor);
	if (!ckpt_value_sizes(p, attribute(p, tensor, "size"), t.size, &t.ndim))
		e->why = "its shape is not what torch writes";
	else if (!e->dtype)
		e->why = "its dtype has no equal here";
	else
		e->why = take_flat(r, &t, shape);
	e->ndim = t.ndim;
	if (t.is_flat && !e->why) {
		e->shape = shape;
		e->ndim = t.ndim - 1;
	}
	rc = ckpt_catalog_add(r->catalog, e);
	at = e->why ? 0 : ckpt_value_first(p, attribute(p, tensor, "chunks"));
	if (!rc && !e->why && !at)
		why = CKPT_WHY_NO_PIECES;
	for (; at && !rc && !why; at = ckpt_item_next(p, at))
		rc = add_chunk(r, &t, ckpt_item_value(p, at), &why);
	return rc || !why ? rc : ckpt_catalog_note(r->catalog, "%s", why);
}

static int add_bytes(struct reading *r, struct ckpt_catalog_entry *e, ckpt_value name)
{
	struct ckpt_piece piece = {0};
	const char *why = take_place(r, find_stored(r, name, 0), &piece);
	int rc;

	e->why = why ? why : CKPT_WHY_OBJECT;
	rc = ckpt_catalog_add(r->catalog, e);
	return rc || why ? rc : ckpt_catalog_add_piece(r->catalog, &piece);
}

static int add_all(struct reading *r, ckpt_value arrays, const char *tree)
{
	const struct ckpt_pickle *p = r->pickle;
	int rc = 0;

	if (ckpt_value_kind(p, arrays) != CKPT_VALUE_DICT)
		return ckpt_catalog_refuse(r->catalog, "state_dict_metadata", "it is missing, or no dictionary");
	for (ckpt_item at = ckpt_value_first(p, arrays), next; at && !rc; at = ckpt_item_next(p, next)) {
		ckpt_value name = ckpt_item_value(p, at), value;
		struct ckpt_catalog_entry e = {.tree = tree, .format = "dcp"};

		next = ckpt_item_next(p, at);
		value = ckpt_item_value(p, next);
		e.name = ckpt_value_text(p, name, &e.name_len);
		if (!e.name)
			return ckpt_catalog_refuse(r->catalog, "state_dict_metadata", "a name in it is no text");
		if (ckpt_value_is_global(p, ckpt_value_callee(p, value),
					 "torch.distributed.checkpoint.metadata BytesStorageMetadata"))
			rc = add_bytes(r, &e, name);
		else
			rc = add_tensor(r, &e, name, value);
		if (!rc && r->stopped)
			rc = -EINTR;
	}
	return rc;
}

// --- The file ---------------------------------------------------------------------------------------------------------

static bool is_dcp(const struct ckpt_catalog_reading *r)
{
	return !strcmp(r->base, ".metadata") && r->head_len > 2 && r->head[0] == 0x80;
}

static int read_all(struct reading *r)
{
	CLEANUP_FREE char *tree = r->catalog->dir_len ? strndup(r->catalog->path, r->catalog->dir_len) : strdup(".");
	struct ckpt_pickle_fault fault;
	ckpt_value root, class;
	int rc;

	if (!tree)
		return -ENOMEM;
	rc = ckpt_pickle_read(&r->catalog->source, 0, r->catalog->source.bytes, &r->pickle, NULL, &fault);
	if (rc == -EINVAL)
		return ckpt_catalog_refuse(r->catalog, "pickle", "byte %llu: %s", (unsigned long long)fault.at,
					   fault.what);
	if (rc)
		return rc;
	root = ckpt_pickle_root(r->pickle);
	class = ckpt_value_callee(r->pickle, root);
	if (!ckpt_value_is_global(r->pickle, class, "torch.distributed.checkpoint.metadata Metadata") &&
	    !ckpt_value_is_global(r->pickle, class, "megatron.core.dist_checkpointing.strategies.torch MCoreMetadata"))
		return ckpt_catalog_refuse(r->catalog, "pickle", "it is no Metadata of torch.distributed.checkpoint");
	rc = ckpt_catalog_listing_read(r->catalog, &r->listing);
	if (!rc)
		rc = take_stored(r, attribute(r->pickle, root, "storage_data"));
	if (!rc)
		rc = take_shapes(r, attribute(r->pickle, root, "mcore_data"));
	return rc ? rc : add_all(r, attribute(r->pickle, root, "state_dict_metadata"), tree);
}

static int read_dcp(struct ckpt_catalog_reading *catalog)
{
	struct reading r = {.catalog = catalog};
	int rc = read_all(&r);

	ckpt_pickle_free(r.pickle);
	ckpt_catalog_listing_done(&r.listing);
	free(r.stored);
	free(r.shapes);
	return rc;
}

const struct ckpt_catalog_format ckpt_catalog_dcp = {"dcp", is_dcp, read_dcp};

// --- One piece --------------------------------------------------------------------------------------------------------

struct slice {
	const struct ckpt_source *source;
	uint64_t offset, bytes;
};

static int read_slice(void *arg, uint64_t offset, void *buf, size_t len)
{
	const struct slice *s = arg;

	return ckpt_source_read(s->source, s->offset + offset, buf, len);
}

static int open_slice(void *arg, const char *path __attribute__((unused)), struct ckpt_source *ret_source)
{
	*ret_source = (struct ckpt_source){.bytes = ((struct slice *)arg)->bytes, .read = read_slice, .arg = arg};
	return 0;
}

static void close_slice(void *arg __attribute__((unused)), struct ckpt_source *source __attribute__((unused)))
{
}

// The only array of the slice has the elements of the box, or those of a flat range in which the box is: one row.
static bool is_box(const struct ckpt_catalog_array *a, const struct ckpt_catalog_array *slice,
		   const struct ckpt_piece *piece)
{
	return slice->ndim == a->ndim && !piece->first &&
	       (!a->ndim || !memcmp(slice->shape, piece->extent, a->ndim * sizeof(*piece->extent)));
}

static bool is_row(const struct ckpt_catalog_array *a, const struct ckpt_catalog_array *slice,
		   const struct ckpt_piece *piece, const uint64_t *strides)
{
	uint64_t elements = 1, length;

	if (slice->ndim != a->ndim + 1)
		return false;
	for (unsigned i = 0; i < a->ndim; i++) {
		if (slice->shape[i] != 1)
			return false;
		elements *= piece->extent[i]; // no more than the array has
	}
	length = slice->shape[a->ndim];
	return (strides[a->ndim] == 1 || length < 2) && piece->first <= length && elements <= length - piece->first;
}

static bool resolve(const struct ckpt_catalog *c, const struct ckpt_catalog_array *array, struct ckpt_piece *piece,
		    uint64_t strides[CKPT_ARRAY_DIMS_MAX], bool *ret_big_endian)
{
	struct ckpt_catalog_array a;
	struct ckpt_piece raw;
	bool box;

	ckpt_catalog_get(c, 0, &a);
	if (a.why || a.pieces != 1 || a.dtype != array->dtype)
		return false;
	ckpt_catalog_piece(c, 0, 0, &raw);
	box = is_box(array, &a, piece);
	if (!box && !is_row(array, &a, piece, raw.strides))
		return false;
	memcpy(strides, box ? raw.strides : piece->strides, array->ndim * sizeof(*strides));
	*ret_big_endian = a.big_endian;
	piece->offset += raw.offset;
	piece->bytes = raw.bytes;
	piece->first += raw.first;
	piece->strides = strides;
	memcpy(piece->codecs, raw.codecs, sizeof(piece->codecs));
	return true;
}

int ckpt_piece_resolve(const struct ckpt_source *file, const struct ckpt_catalog_array *array, struct ckpt_piece *piece,
		       uint64_t strides[CKPT_ARRAY_DIMS_MAX], bool *ret_big_endian)
{
	struct slice slice = {file, piece->offset, piece->bytes};
	const struct ckpt_catalog_files files = {.open = open_slice, .close = close_slice, .arg = &slice};
	struct ckpt_catalog *c;
	int rc;

	*ret_big_endian = array->big_endian;
	if (piece->codecs[0] != CKPT_PIECE_TORCH)
		return 0;
	rc = piece->offset > file->bytes || piece->bytes > file->bytes - piece->offset ? -EINVAL : ckpt_catalog_new(&c);
	if (rc)
		return rc;
	rc = ckpt_catalog_read(c, &files, "slice.pt");
	if (!rc && (ckpt_catalog_count(c) != 1 || !resolve(c, array, piece, strides, ret_big_endian)))
		rc = -EINVAL;
	ckpt_catalog_free(c);
	return rc;
}
