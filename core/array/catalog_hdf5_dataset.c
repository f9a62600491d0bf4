// A dataset: its messages say how its elements are stored, and pieces follow from that. Chunks without a place have the fill value, which
// is 0 unless the file has another one.
#include "core/array/catalog_hdf5.h"

#include "core/array/decode.h"
#include "core/base/util.h"

#include <stdio.h>

#define FILTERS_MAX 32u
#define ALL_FILTERS UINT32_MAX // of the mask of a chunk: it has none

struct dataset {
	struct ckpt_hdf5 *h;
	struct ckpt_catalog_entry entry;
	struct ckpt_hdf5_type type;
	struct ckpt_hdf5_space space;
	uint8_t fill[16];
	uint8_t codecs[FILTERS_MAX]; // RAW: the filter changes nothing
	unsigned filters;
	uint64_t bytes;   // of all elements
	bool edges_plain; // chunks that reach out of the array have no filters
	const struct ckpt_hdf5_chunks *chunks;
	char why[96];
	const char *chunk_why; // found at a chunk
};

// --- Fill value -------------------------------------------------------------------------------------------------------

static void turn_parts(uint8_t *bytes, size_t len, size_t part)
{
	for (size_t at = 0; at < len; at += part)
		for (size_t i = 0; i < part / 2; i++) {
			uint8_t one = bytes[at + i];

			bytes[at + i] = bytes[at + part - 1 - i];
			bytes[at + part - 1 - i] = one;
		}
}

#define FILL_DEFINED 0x20 // version 3

static int take_fill(struct dataset *d, const struct ckpt_hdf5_message *m)
{
	unsigned width = ckpt_dtype_width(d->type.dtype);
	bool is_complex = d->type.dtype == CKPT_DTYPE_C64 || d->type.dtype == CKPT_DTYPE_C128;
	struct ckpt_hdf5_bytes b;
	uint64_t version, flags, len = 0;
	const uint8_t *value;
	int rc = ckpt_hdf5_body(d->h, m, &b);

	if (rc)
		return rc;
	if (m->type == CKPT_HDF5_FILL) {
		version = ckpt_hdf5_take(&b, 1);
		flags = ckpt_hdf5_take(&b, 1);
		if (version < 1 || version > 3)
			return ckpt_hdf5_refuse(d->h, "fill value");
		if (version < 3)
			ckpt_hdf5_take(&b, 1);
		if (version < 3 ? version == 2 && !ckpt_hdf5_take(&b, 1) : !(flags & FILL_DEFINED))
			return 0;
		if (version == 1)
			ckpt_hdf5_take(&b, 1);
	}
	if (!m->bytes)
		return 0;
	len = ckpt_hdf5_take(&b, 4);
	if (!len || len >> 31)
		return b.broken ? ckpt_hdf5_refuse(d->h, "fill value") : 0;
	value = ckpt_hdf5_skip(&b, len);
	if (!value || len != width)
		return ckpt_hdf5_refuse(d->h, "fill value");
	memcpy(d->fill, value, width);
	if (d->type.big_endian)
		turn_parts(d->fill, width, is_complex ? width / 2 : width);
	return 0;
}

// --- Filters ----------------------------------------------------------------------------------------------------------

static void take_filter(struct dataset *d, uint64_t id, uint64_t first_value)
{
	static const struct {
		uint16_t id;
		const char *name;
	} named[] = {
		{4, "szip"},       {5, "nbit"},    {6, "scaleoffset"}, {32001, "blosc"},
		{32004, "lz4"},    {307, "bzip2"}, {32013, "zfp"},     {32008, "bitshuffle"},
		{32026, "blosc2"}, {32017, "sz"},  {32024, "sz3"},     {32016, "fpzip"},
	};
	uint8_t codec = CKPT_PIECE_RAW;
	const char *name = NULL;

	if (id == 1)
		codec = CKPT_PIECE_ZLIB;
	else if (id == 3)
		codec = CKPT_PIECE_FLETCHER32;
	else if (id == 32015)
		codec = CKPT_PIECE_ZSTD;
	else if (id == 32000)
		codec = CKPT_PIECE_LZF;
	else if (id == 2 && first_value != 1)
		for (int i = CKPT_PIECE_SHUFFLE2; i <= CKPT_PIECE_SHUFFLE16; i++)
			if (ckpt_piece_shuffle_width(i) == first_value)
				codec = (uint8_t)i;
	d->codecs[d->filters++] = codec;
	if (codec || (id == 2 && first_value == 1) || d->entry.why)
		return;
	for (size_t i = 0; i < ARRAY_LEN(named); i++)
		if (named[i].id == id)
			name = named[i].name;
	if (name)
		snprintf(d->why, sizeof(d->why), "its chunks have the filter %s, which is not known", name);
	else
		snprintf(d->why, sizeof(d->why), "its chunks have the filter %u, which is not known", (unsigned)id);
	d->entry.why = d->why;
}

static int take_filters(struct dataset *d, const struct ckpt_hdf5_message *m)
{
	struct ckpt_hdf5_bytes b;
	uint64_t version, count;
	int rc = ckpt_hdf5_body(d->h, m, &b);

	if (rc)
		return rc;
	version = ckpt_hdf5_take(&b, 1);
	count = ckpt_hdf5_take(&b, 1);
	if (version == 1)
		ckpt_hdf5_take(&b, 6);
	if ((version != 1 && version != 2) || count > FILTERS_MAX)
		return ckpt_hdf5_refuse(d->h, "filters");
	for (uint64_t i = 0; i < count && !b.broken; i++) {
		uint64_t id = ckpt_hdf5_take(&b, 2), name = version == 1 || id >= 256 ? ckpt_hdf5_take(&b, 2) : 0,
			 values, first = 0;

		ckpt_hdf5_take(&b, 2);
		values = ckpt_hdf5_take(&b, 2);
		ckpt_hdf5_skip(&b, version == 1 ? (name + 7) & ~UINT64_C(7) : name);
		if (values)
			first = ckpt_hdf5_take(&b, 4);
		ckpt_hdf5_skip(&b, values ? 4 * (values - 1) + (version == 1 && values % 2 ? 4 : 0) : 0);
		if (!b.broken)
			take_filter(d, id, first);
	}
	return b.broken ? ckpt_hdf5_refuse(d->h, "filters") : 0;
}

// The filter that was used last is decoded first. False: there are too many. *ret_whole: one is decoded at once, in memory.
static bool codecs_of(const struct dataset *d, uint32_t mask, uint8_t codecs[CKPT_PIECE_CODECS_MAX], bool *ret_whole)
{
	unsigned count = 0;

	*ret_whole = false;
	for (unsigned i = d->filters; i-- > 0;) {
		if (!d->codecs[i] || mask & 1u << i)
			continue;
		if (count == CKPT_PIECE_CODECS_MAX)
			return false;
		*ret_whole |= ckpt_piece_shuffle_width(d->codecs[i]) > 0 || d->codecs[i] == CKPT_PIECE_LZF;
		codecs[count++] = d->codecs[i];
	}
	return true;
}

// --- Layout -----------------------------------------------------------------------------------------------------------

// Elements as they are, at a place of the file.
static int add_plain(struct dataset *d, uint64_t address, uint64_t bytes)
{
	struct ckpt_piece piece = {.offset = d->h->begin + address, .bytes = d->bytes};
	bool outside = address > d->h->bytes || d->bytes > d->h->bytes - address;
	int rc;

	if (address == CKPT_HDF5_NONE || !d->bytes)
		return ckpt_catalog_add(d->h->reading, &d->entry);
	d->entry.fill = NULL;
	if (!d->entry.why && (bytes < d->bytes || outside))
		d->entry.why = bytes < d->bytes ? CKPT_WHY_SHORT : CKPT_WHY_OUTSIDE;
	rc = ckpt_catalog_add(d->h->reading, &d->entry);
	return rc || d->entry.why ? rc : ckpt_catalog_add_piece(d->h->reading, &piece);
}

static int add_chunk(void *arg, const struct ckpt_hdf5_chunk *chunk)
{
	struct dataset *d = arg;
	const struct ckpt_hdf5_chunks *chunks = d->chunks;
	uint64_t extent[CKPT_ARRAY_DIMS_MAX], strides[CKPT_ARRAY_DIMS_MAX], step = 1;
	struct ckpt_piece piece = {
		.offset = d->h->begin + chunk->address,
		.bytes = chunk->bytes,
		.start = chunk->start,
		.extent = extent,
		.strides = strides,
	};
	uint32_t mask = chunk->mask;
	bool whole;

	for (unsigned i = d->space.ndim; i-- > 0;) {
		if (chunk->start[i] >= d->space.shape[i])
			return 0; // of a larger array that was made smaller
		extent[i] = MIN(chunks->extent[i], d->space.shape[i] - chunk->start[i]);
		if (d->edges_plain && extent[i] < chunks->extent[i])
			mask = ALL_FILTERS;
		strides[i] = step;
		step *= chunks->extent[i];
	}
	if (chunk->address > d->h->bytes || chunk->bytes > d->h->bytes - chunk->address)
		d->chunk_why = CKPT_WHY_OUTSIDE;
	else if (!codecs_of(d, mask, piece.codecs, &whole))
		d->chunk_why = "its chunks have too many filters";
	else if (whole && chunks->bytes > CKPT_DECODE_SHUFFLE_MAX)
		d->chunk_why = "its chunks are shuffled or have the filter lzf, and are too large";
	else if (!piece.codecs[0] && chunk->bytes < chunks->bytes)
		d->chunk_why = CKPT_WHY_SHORT;
	else
		return ckpt_catalog_add_piece(d->h->reading, &piece);
	return 0;
}

static int add_chunks(struct dataset *d, const struct ckpt_hdf5_chunks *chunks)
{
	struct ckpt_catalog_reading *r = d->h->reading;
	int rc = ckpt_catalog_add(r, &d->entry);

	if (rc || d->entry.why || !d->bytes || chunks->address == CKPT_HDF5_NONE)
		return rc;
	d->chunks = chunks;
	rc = ckpt_hdf5_each_chunk(d->h, chunks, add_chunk, d);
	return rc || !d->chunk_why ? rc : ckpt_catalog_note(r, "%s", d->chunk_why);
}

// The extents of a chunk, whose last one is the bytes of an element.
static int take_extents(struct dataset *d, struct ckpt_hdf5_bytes *b, unsigned ndim, unsigned width,
			struct ckpt_hdf5_chunks *c)
{
	if (ndim != d->space.ndim + 1 || width < 1 || width > 8)
		return ckpt_hdf5_refuse(d->h, "layout");
	c->space = &d->space;
	c->bytes = d->type.bytes;
	for (unsigned i = 0; i < d->space.ndim; i++) {
		c->extent[i] = ckpt_hdf5_take(b, width);
		if (!c->extent[i] || __builtin_mul_overflow(c->bytes, c->extent[i], &c->bytes) ||
		    c->bytes > INT64_MAX / 2)
			return ckpt_hdf5_refuse(d->h, "layout");
	}
	return ckpt_hdf5_take(b, width) == d->type.bytes && !b->broken ? 0 : ckpt_hdf5_refuse(d->h, "layout");
}

enum { COMPACT, CONTIGUOUS, CHUNKED, VIRTUAL };

// Versions 1 to 3: chunks are found by a B-tree.
static int add_chunked(struct dataset *d, struct ckpt_hdf5_bytes *b, uint64_t version, uint64_t ndim, uint64_t address)
{
	struct ckpt_hdf5_chunks c = {.index = CKPT_HDF5_INDEX_TREE, .address = address};
	int rc;

	if (version == 3) {
		ndim = ckpt_hdf5_take(b, 1);
		c.address = ckpt_hdf5_take_address(d->h, b);
	}
	rc = take_extents(d, b, (unsigned)ndim, 4, &c);
	return rc ? rc : add_chunks(d, &c);
}

static int add_old(struct dataset *d, const struct ckpt_hdf5_message *m, struct ckpt_hdf5_bytes *b)
{
	uint64_t ndim = ckpt_hdf5_take(b, 1), class = ckpt_hdf5_take(b, 1), address = CKPT_HDF5_NONE, len;

	ckpt_hdf5_take(b, 5);
	if (class != COMPACT)
		address = ckpt_hdf5_take_address(d->h, b);
	if (class == CHUNKED)
		return add_chunked(d, b, 1, ndim, address);
	ckpt_hdf5_skip(b, 4 * ndim);
	if (class == CONTIGUOUS && !b->broken)
		return add_plain(d, address, d->bytes);
	len = ckpt_hdf5_take(b, 4);
	if (class != COMPACT || b->broken || len > b->left)
		return ckpt_hdf5_refuse(d->h, "layout");
	return add_plain(d, m->at + m->bytes - b->left, len);
}

#define EDGES_PLAIN 1
#define SINGLE_FILTERED 2

// Versions 4 and 5.
static int add_indexed(struct dataset *d, struct ckpt_hdf5_bytes *b)
{
	static const struct {
		uint8_t bytes; // of what the message says of it
		enum ckpt_hdf5_index index;
	} indices[] = {
		[1] = {0, CKPT_HDF5_INDEX_SINGLE},  [2] = {0, CKPT_HDF5_INDEX_IMPLICIT},
		[3] = {1, CKPT_HDF5_INDEX_FIXED},   [4] = {5, CKPT_HDF5_INDEX_EXTENSIBLE},
		[5] = {6, CKPT_HDF5_INDEX_RECORDS},
	};
	struct ckpt_hdf5_chunks c = {.is_filtered = d->filters};
	uint64_t flags = ckpt_hdf5_take(b, 1), ndim = ckpt_hdf5_take(b, 1), width = ckpt_hdf5_take(b, 1), kind;
	int rc = take_extents(d, b, (unsigned)ndim, (unsigned)width, &c);

	if (rc)
		return rc;
	d->edges_plain = flags & EDGES_PLAIN;
	kind = ckpt_hdf5_take(b, 1);
	if (!kind || kind >= ARRAY_LEN(indices)) {
		if (!d->entry.why)
			d->entry.why = "the index of its chunks is of a kind that is not known";
		return ckpt_catalog_add(d->h->reading, &d->entry);
	}
	c.index = indices[kind].index;
	ckpt_hdf5_skip(b, indices[kind].bytes);
	c.single_bytes = c.bytes;
	if (c.index == CKPT_HDF5_INDEX_SINGLE && flags & SINGLE_FILTERED) {
		c.single_bytes = ckpt_hdf5_take_length(d->h, b);
		c.single_mask = (uint32_t)ckpt_hdf5_take(b, 4);
	}
	c.address = ckpt_hdf5_take_address(d->h, b);
	return b->broken ? ckpt_hdf5_refuse(d->h, "layout") : add_chunks(d, &c);
}

static int add_by_layout(struct dataset *d, const struct ckpt_hdf5_message *m)
{
	struct ckpt_hdf5_bytes b;
	uint64_t version, class, address, len;
	int rc = ckpt_hdf5_body(d->h, m, &b);

	if (rc)
		return rc;
	version = ckpt_hdf5_take(&b, 1);
	if (version == 1 || version == 2)
		return add_old(d, m, &b);
	class = ckpt_hdf5_take(&b, 1);
	if (version < 3 || version > 5 || b.broken)
		return ckpt_hdf5_refuse(d->h, "layout");
	if (class == CHUNKED)
		return version == 3 ? add_chunked(d, &b, version, 0, 0) : add_indexed(d, &b);
	if (class == COMPACT) {
		len = ckpt_hdf5_take(&b, 2);
		return b.broken || len > b.left ? ckpt_hdf5_refuse(d->h, "layout")
						: add_plain(d, m->at + m->bytes - b.left, len);
	}
	if (class == CONTIGUOUS) {
		address = ckpt_hdf5_take_address(d->h, &b);
		len = ckpt_hdf5_take_length(d->h, &b);
		return b.broken ? ckpt_hdf5_refuse(d->h, "layout") : add_plain(d, address, len);
	}
	if (!d->entry.why)
		d->entry.why = class == VIRTUAL ? "it is virtual: parts of other datasets"
						: "its layout is of a kind that is not known";
	return ckpt_catalog_add(d->h->reading, &d->entry);
}

// --- All --------------------------------------------------------------------------------------------------------------

bool ckpt_hdf5_is_dataset(const struct ckpt_hdf5_object *o)
{
	return ckpt_hdf5_find(o, CKPT_HDF5_DATASPACE) && ckpt_hdf5_find(o, CKPT_HDF5_DATATYPE) &&
	       ckpt_hdf5_find(o, CKPT_HDF5_LAYOUT);
}

// NumPy's bfloat16 has no type of HDF5 that h5py knows: it is written as bytes, and Keras says so in an attribute.
static int take_opaque(struct dataset *d, const struct ckpt_hdf5_object *o)
{
	bool has = false;
	int rc = d->type.is_opaque && d->type.bytes == 2 ? ckpt_hdf5_has_attribute(d->h, o, "dtype", "bfloat16", &has)
							 : 0;

	if (has) {
		d->type.dtype = CKPT_DTYPE_BF16;
		d->type.why = NULL;
	}
	return rc;
}

#define SHARED_BY_NAME 2 // version 3: the message is one of an object, not of the file's table of messages

// The address of the object whose message stands for a shared one; NONE: it is elsewhere.
static int take_shared(struct dataset *d, const struct ckpt_hdf5_message *m, uint64_t *ret_address)
{
	struct ckpt_hdf5_bytes b;
	uint64_t version, kind;
	int rc = ckpt_hdf5_body(d->h, m, &b);

	*ret_address = CKPT_HDF5_NONE;
	if (rc)
		return rc;
	version = ckpt_hdf5_take(&b, 1);
	kind = ckpt_hdf5_take(&b, 1);
	if (version == 1)
		ckpt_hdf5_skip(&b, 6);
	if (version >= 1 && version <= 3 && (version < 3 || kind == SHARED_BY_NAME))
		*ret_address = ckpt_hdf5_take_address(d->h, &b);
	return b.broken ? ckpt_hdf5_refuse(d->h, "datatype") : 0;
}

// A datatype that has a name of its own, for many datasets.
static int parse_named_type(struct dataset *d, const struct ckpt_hdf5_message *shared)
{
	struct ckpt_hdf5_object named = {0};
	const struct ckpt_hdf5_message *m;
	struct ckpt_hdf5_bytes b;
	uint64_t address;
	int rc = take_shared(d, shared, &address);

	d->type.why = "its datatype is that of another object";
	if (rc || address == CKPT_HDF5_NONE)
		return rc;
	rc = ckpt_hdf5_object_read(d->h, address, &named);
	m = rc ? NULL : ckpt_hdf5_find(&named, CKPT_HDF5_DATATYPE);
	if (m && !m->is_shared) {
		rc = ckpt_hdf5_body(d->h, m, &b);
		if (!rc)
			rc = ckpt_hdf5_type_parse(d->h, &b, &d->type);
	}
	ckpt_hdf5_object_done(&named);
	return rc;
}

static int parse_type(struct dataset *d, const struct ckpt_hdf5_message *m)
{
	struct ckpt_hdf5_bytes b;
	int rc;

	if (m->is_shared)
		return parse_named_type(d, m);
	rc = ckpt_hdf5_body(d->h, m, &b);
	return rc ? rc : ckpt_hdf5_type_parse(d->h, &b, &d->type);
}

static int take_type(struct dataset *d, const struct ckpt_hdf5_object *o)
{
	int rc = parse_type(d, ckpt_hdf5_find(o, CKPT_HDF5_DATATYPE));

	if (!rc)
		rc = take_opaque(d, o);
	d->entry.dtype = d->type.dtype;
	d->entry.big_endian = d->type.big_endian;
	d->entry.why = d->type.why;
	return rc;
}

static int take_storage(struct dataset *d, const struct ckpt_hdf5_object *o)
{
	const struct ckpt_hdf5_message *fill = ckpt_hdf5_find(o, CKPT_HDF5_FILL),
				       *filters = ckpt_hdf5_find(o, CKPT_HDF5_FILTERS);
	uint64_t elements = d->space.is_null ? 0 : 1;
	int rc = 0;

	fill = fill ? fill : ckpt_hdf5_find(o, CKPT_HDF5_FILL_OLD);
	for (unsigned i = 0; i < d->space.ndim; i++)
		if (__builtin_mul_overflow(elements, d->space.shape[i], &elements))
			return ckpt_hdf5_refuse(d->h, "dataspace");
	if (__builtin_mul_overflow(elements, d->type.bytes, &d->bytes))
		return ckpt_hdf5_refuse(d->h, "dataspace");
	if (fill && !fill->is_shared)
		rc = take_fill(d, fill);
	d->entry.fill = d->fill;
	if (!rc && filters && !filters->is_shared)
		rc = take_filters(d, filters);
	if (ckpt_hdf5_find(o, CKPT_HDF5_EXTERNAL))
		d->entry.why = "its elements are in other files";
	else if ((fill && fill->is_shared) || (filters && filters->is_shared))
		d->entry.why = "its fill value or its filters are those of another object";
	return rc;
}

int ckpt_hdf5_add_dataset(struct ckpt_hdf5 *h, const struct ckpt_hdf5_object *o, const char *name, size_t name_len)
{
	struct dataset d = {.h = h, .entry = {.name = name, .name_len = name_len, .format = "hdf5"}};
	const struct ckpt_hdf5_message *space = ckpt_hdf5_find(o, CKPT_HDF5_DATASPACE),
				       *layout = ckpt_hdf5_find(o, CKPT_HDF5_LAYOUT);
	struct ckpt_hdf5_bytes b;
	int rc;

	if (space->is_shared || layout->is_shared)
		return ckpt_hdf5_refuse(h, "dataspace");
	rc = ckpt_hdf5_body(h, space, &b);
	if (!rc)
		rc = ckpt_hdf5_space_parse(h, &b, &d.space);
	if (!rc)
		rc = take_type(&d, o);
	if (rc)
		return rc;
	d.entry.ndim = d.space.ndim;
	d.entry.shape = d.space.shape;
	if (d.space.is_null && !d.entry.why)
		d.entry.why = "it has neither shape nor elements";
	if (!d.entry.why)
		rc = take_storage(&d, o);
	if (rc)
		return rc;
	return d.entry.why ? ckpt_catalog_add(h->reading, &d.entry) : add_by_layout(&d, layout);
}
