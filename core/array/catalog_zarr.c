// Zarr (zarr-specs: v2/v2.0.rst, v3/core, v3/codecs): an array is a directory. .zarray (version 2) or zarr.json (version 3) says its
// shape, dtype, chunks and codecs; each chunk is a file whose name has its place in the grid, and chunks that are not there have the
// fill value.
//
//	version 2   I.J or I/J, by dimension_separator; order "F" is the reverse order of axes; one compressor
//	version 3   c/I/J or c.I.J (default), or as version 2 (v2); codecs: [transpose] bytes (crc32c | zstd | gzip | blosc)*, or
//	            sharding_indexed alone, whose file has chunks of its own and an index of them: offset and length, u64 each,
//	            both 2^64 - 1 where there is none
//
// Its directories are read by catalog_zarr_folder.c.
#include "core/array/catalog_zarr.h"

#include "core/array/array_format.h"
#include "core/array/cast.h"
#include "core/base/crc32c.h"
#include "core/base/json.h"
#include "core/base/util.h"
#include "core/limits.h"

#include <stdio.h>

#define JSON_BYTES_MAX CKPT_ARRAY_PIECE_MAX
#define INDEX_BYTES_MAX (16u << 20)
#define MISSING UINT64_MAX
#define LISTED 1 // a result: the array is listed with its reason, and nothing more is to be done

struct reading {
	struct ckpt_catalog_reading *catalog;
	const struct ckpt_zarr_place *place;
	struct ckpt_catalog_entry entry;
	uint64_t shape[CKPT_ARRAY_DIMS_MAX];
	uint64_t chunk[CKPT_ARRAY_DIMS_MAX]; // that a file has
	uint64_t inner[CKPT_ARRAY_DIMS_MAX]; // that is encoded: of a shard, else the same
	uint8_t order[CKPT_ARRAY_DIMS_MAX];  // axes as they are stored, the slowest first
	uint8_t codecs[CKPT_PIECE_CODECS_MAX];
	unsigned codec_count;
	uint8_t fill[16];
	bool sharded, index_first, index_sum;
	bool named_c; // keys begin with "c"
	char separator;
	uint64_t *index; // of one shard
	const char *why; // found at a chunk
};

// --- JSON -------------------------------------------------------------------------------------------------------------

static int add_named(struct reading *r)
{
	r->entry.tree = r->place->tree;
	r->entry.name = r->place->name;
	r->entry.name_len = strlen(r->entry.name);
	r->entry.format = r->place->format;
	return ckpt_catalog_add(r->catalog, &r->entry);
}

static int refuse(struct reading *r, const char *field)
{
	char why[128];
	int rc;

	if (!r->place->is_inside)
		return ckpt_catalog_refuse(r->catalog, field, "it is missing, or not what zarr writes");
	snprintf(why, sizeof(why), "its metadata is not what zarr writes: %s", field);
	r->entry = (struct ckpt_catalog_entry){.why = why};
	rc = add_named(r);
	return rc ? rc : LISTED;
}

// jansson has no integers from 2^63 on, and refuses the text: they become strings, which take_integer() knows.
static size_t copy_json(const char *from, size_t len, char *into)
{
	static const char last[] = "9223372036854775807";
	const size_t digits = sizeof(last) - 1;
	bool quoted = false;
	size_t made = 0;

	for (size_t i = 0, n; i < len; i += n) {
		bool is_large = false, is_whole = true;

		for (n = 0; !quoted && i + n < len && from[i + n] && strchr("0123456789+-.eE", from[i + n]); n++)
			is_whole = is_whole && from[i + n] >= '0' && from[i + n] <= '9';
		if (n)
			is_large = is_whole && (n > digits || (n == digits && memcmp(from + i, last, n) > 0));
		else if (quoted && from[i] == '\\' && i + 1 < len)
			n = 2;
		else
			quoted ^= from[i] == '"', n = 1;
		if (is_large)
			into[made++] = '"';
		memcpy(into + made, from + i, n);
		made += n;
		if (is_large)
			into[made++] = '"';
	}
	return made;
}

static int load(struct reading *r, json_t **ret_json)
{
	CLEANUP_FREE char *text = NULL;
	size_t len;
	int rc;

	if (r->place->json_len > JSON_BYTES_MAX)
		return refuse(r, "JSON");
	text = malloc(r->place->json_len * 2 + 1);
	if (!text)
		return -ENOMEM;
	len = copy_json(r->place->json, r->place->json_len, text);
	(void)ckpt_json_tame(text, len);
	rc = ckpt_json_load(text, len, JSON_REJECT_DUPLICATES, NULL, ret_json);
	return rc == -EINVAL ? refuse(r, "JSON") : rc;
}

// ndim numbers, none less than `least`.
static bool take_numbers(const json_t *list, unsigned ndim, int64_t least, uint64_t *numbers)
{
	if (!json_is_array(list) || json_array_size(list) != ndim)
		return false;
	for (unsigned i = 0; i < ndim; i++) {
		const json_t *n = json_array_get(list, i);

		if (!json_is_integer(n) || json_integer_value(n) < least)
			return false;
		numbers[i] = (uint64_t)json_integer_value(n);
	}
	return true;
}

static int take_shape(struct reading *r, const json_t *json)
{
	const json_t *shape = json_object_get(json, "shape");

	if (!json_is_array(shape) || json_array_size(shape) > CKPT_ARRAY_DIMS_MAX)
		return refuse(r, "shape");
	r->entry.ndim = (unsigned)json_array_size(shape);
	for (unsigned i = 0; i < r->entry.ndim; i++)
		r->order[i] = (uint8_t)i;
	return take_numbers(shape, r->entry.ndim, 0, r->shape) ? 0 : refuse(r, "shape");
}

// One number of a fill value: a number, "NaN" and the like, or "0x" and the bits of an element.
static bool take_real(const json_t *fill, enum ckpt_dtype dtype, uint8_t *into)
{
	static const struct {
		const char *name;
		double number;
	} named[] = {{"NaN", __builtin_nan("")}, {"Infinity", __builtin_inf()}, {"-Infinity", -__builtin_inf()}};
	const char *text = json_string_value(fill);
	unsigned width = ckpt_dtype_width(dtype);
	double number = json_number_value(fill);
	uint64_t bits;

	if (text && !strncmp(text, "0x", 2)) {
		if (strlen(text) != 2 + 2 * width || strspn(text + 2, "0123456789abcdefABCDEF") != 2 * width)
			return false;
		bits = strtoull(text + 2, NULL, 16);
		memcpy(into, &bits, width);
		return true;
	}
	for (size_t i = 0; text && i < ARRAY_LEN(named); i++) {
		if (strcmp(named[i].name, text))
			continue;
		ckpt_cast(CKPT_DTYPE_F64, dtype, &named[i].number, 1, into);
		return true;
	}
	if (json_is_number(fill))
		ckpt_cast(CKPT_DTYPE_F64, dtype, &number, 1, into);
	return json_is_number(fill);
}

// A string of copy_json().
static bool take_large(const char *text, uint8_t *into)
{
	size_t len = strlen(text);
	uint64_t number = strtoull(text, NULL, 10); // of more: the largest, which has no other text
	char again[24];

	snprintf(again, sizeof(again), "%llu", (unsigned long long)number);
	memcpy(into, &number, sizeof(number));
	return len >= 19 && !strcmp(text, again);
}

static bool take_integer(const json_t *fill, enum ckpt_dtype dtype, uint8_t *into)
{
	double real = json_real_value(fill);
	bool is_whole = json_is_real(fill) && real >= -0x1p63 && real < 0x1p63 && real == (double)(int64_t)real;
	int64_t number = is_whole ? (int64_t)real : json_integer_value(fill);
	unsigned bits = ckpt_dtype_bits(dtype);
	bool is_signed = dtype >= CKPT_DTYPE_I8 && dtype <= CKPT_DTYPE_I64;
	int64_t least = is_signed ? INT64_MIN >> (64 - bits) : 0;

	if (json_is_string(fill))
		return dtype == CKPT_DTYPE_U64 && take_large(json_string_value(fill), into);
	if ((!json_is_integer(fill) && !is_whole) || number < least || (bits < 64 && number >> (bits - is_signed) > 0))
		return false;
	memcpy(into, &number, bits / 8);
	return true;
}

// One element, as far as it is known exactly; where it is not, chunks that are missing are gaps. null says nothing: as zeros.
static void take_fill(struct reading *r, const json_t *fill)
{
	enum ckpt_dtype dtype = r->entry.dtype, part = dtype == CKPT_DTYPE_C64 ? CKPT_DTYPE_F32 : CKPT_DTYPE_F64;
	unsigned width = ckpt_dtype_width(part);
	bool is_known;

	r->entry.fill = r->fill;
	if (!fill || json_is_null(fill) || json_is_false(fill) || (json_is_integer(fill) && !json_integer_value(fill)))
		return;
	if (dtype == CKPT_DTYPE_BOOL) {
		is_known = json_is_true(fill) || json_integer_value(fill) == 1;
		r->fill[0] = 1;
	} else if (dtype == CKPT_DTYPE_C64 || dtype == CKPT_DTYPE_C128) {
		is_known = json_array_size(fill) == 2
				   ? take_real(json_array_get(fill, 0), part, r->fill) &&
					     take_real(json_array_get(fill, 1), part, r->fill + width)
				   : json_is_number(fill) && take_real(fill, part, r->fill);
	} else {
		is_known = ckpt_is_floating(dtype) ? take_real(fill, dtype, r->fill)
						   : dtype >= CKPT_DTYPE_I8 && dtype <= CKPT_DTYPE_U64 &&
							     take_integer(fill, dtype, r->fill);
	}
	if (!is_known)
		r->entry.fill = NULL;
}

// --- Codecs -----------------------------------------------------------------------------------------------------------

static int add_codec(struct reading *r, const char *name)
{
	static const struct {
		const char *name;
		enum ckpt_piece_codec codec;
	} known[] = {
		{"zstd", CKPT_PIECE_ZSTD},   {"gzip", CKPT_PIECE_GZIP},     {"zlib", CKPT_PIECE_ZLIB},
		{"blosc", CKPT_PIECE_BLOSC}, {"crc32c", CKPT_PIECE_CRC32C},
	};

	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		if (strcmp(known[i].name, name))
			continue;
		if (r->codec_count == CKPT_PIECE_CODECS_MAX)
			break;
		// The last one that encodes is the first that decodes.
		memmove(r->codecs + 1, r->codecs, r->codec_count++);
		r->codecs[0] = (uint8_t)known[i].codec;
		return 0;
	}
	r->entry.why = "its chunks have a codec that is not known";
	return 0;
}

static bool take_order(struct reading *r, const json_t *order)
{
	uint64_t axes[CKPT_ARRAY_DIMS_MAX];
	uint32_t seen = 0;

	if (!take_numbers(order, r->entry.ndim, 0, axes))
		return false;
	for (unsigned i = 0; i < r->entry.ndim; i++) {
		if (axes[i] >= r->entry.ndim || seen & 1u << axes[i])
			return false;
		seen |= 1u << axes[i];
		r->order[i] = (uint8_t)axes[i];
	}
	return true;
}

static int take_codecs(struct reading *r, const json_t *codecs, bool inside);

// The index is of fixed size: "bytes", and a checksum perhaps.
static bool take_index(struct reading *r, const json_t *config)
{
	const json_t *codecs = json_object_get(config, "index_codecs");
	const char *at = json_string_value(json_object_get(config, "index_location")), *first, *second;

	first = json_string_value(json_object_get(json_array_get(codecs, 0), "name"));
	second = json_string_value(json_object_get(json_array_get(codecs, 1), "name"));
	r->index_first = at && !strcmp(at, "start");
	r->index_sum = second && !strcmp(second, "crc32c");
	return first && !strcmp(first, "bytes") && json_array_size(codecs) == 1u + r->index_sum &&
	       (!at || r->index_first || !strcmp(at, "end"));
}

static int take_shard(struct reading *r, const json_t *config)
{
	r->sharded = true;
	if (!take_index(r, config))
		r->entry.why = "the index of its shards has a codec that is not known";
	if (!take_numbers(json_object_get(config, "chunk_shape"), r->entry.ndim, 1, r->inner))
		return refuse(r, "sharding_indexed.chunk_shape");
	for (unsigned i = 0; i < r->entry.ndim; i++)
		if (r->chunk[i] % r->inner[i])
			return refuse(r, "sharding_indexed.chunk_shape");
	return take_codecs(r, json_object_get(config, "codecs"), true);
}

static int take_codecs(struct reading *r, const json_t *codecs, bool inside)
{
	const json_t *codec;
	int rc = 0;
	size_t i;

	if (!json_is_array(codecs))
		return refuse(r, "codecs");
	json_array_foreach(codecs, i, codec)
	{
		const char *name = json_string_value(json_object_get(codec, "name")), *endian;
		const json_t *config = json_object_get(codec, "configuration");

		if (!name)
			return refuse(r, "codecs");
		if (!strcmp(name, "bytes")) {
			endian = json_string_value(json_object_get(config, "endian"));
			r->entry.big_endian = endian && !strcmp(endian, "big");
		} else if (!strcmp(name, "transpose") && i == 0) {
			rc = take_order(r, json_object_get(config, "order")) ? 0 : refuse(r, "transpose.order");
		} else if (!strcmp(name, "sharding_indexed") && !inside && json_array_size(codecs) == 1) {
			rc = take_shard(r, config);
		} else {
			rc = add_codec(r, name);
		}
		if (rc)
			return rc;
	}
	return 0;
}

// --- Chunks -----------------------------------------------------------------------------------------------------------

// The place in the grid that the name of a file below the directory has. False: it is no chunk.
static bool parse_key(const struct reading *r, const char *key, uint64_t place[CKPT_ARRAY_DIMS_MAX])
{
	unsigned ndim = r->entry.ndim;

	if (r->named_c && *key++ != 'c')
		return false;
	if (!ndim)
		return r->named_c ? !*key : !strcmp(key, "0");
	for (unsigned i = 0; i < ndim; i++) {
		const char *begin;

		if ((i || r->named_c) && *key++ != r->separator)
			return false;
		begin = key;
		place[i] = 0;
		while (*key >= '0' && *key <= '9' && key - begin < 18)
			place[i] = place[i] * 10 + (uint64_t)(*key++ - '0');
		if (key == begin || (*begin == '0' && key > begin + 1))
			return false;
	}
	return !*key;
}

// A piece of the array: the encoded chunk that begins at `start`.
static int add_chunk(struct reading *r, const struct ckpt_zarr_value *v, const uint64_t *start)
{
	uint64_t extent[CKPT_ARRAY_DIMS_MAX], strides[CKPT_ARRAY_DIMS_MAX], step = 1;
	struct ckpt_piece piece = {
		.file = v->file,
		.offset = v->offset,
		.bytes = v->bytes,
		.start = start,
		.extent = extent,
		.strides = strides,
		.data = v->data,
	};

	for (unsigned i = 0; i < r->entry.ndim; i++) {
		if (start[i] >= r->shape[i])
			return 0; // of a larger array that was made smaller
		extent[i] = MIN(r->inner[i], r->shape[i] - start[i]);
	}
	for (unsigned i = r->entry.ndim; i-- > 0;) {
		strides[r->order[i]] = step;
		step *= r->inner[r->order[i]];
	}
	memcpy(piece.codecs, r->codecs, sizeof(piece.codecs));
	if (!r->codec_count && v->bytes != step * ckpt_dtype_width(r->entry.dtype)) {
		r->why = CKPT_WHY_SHORT;
		return 0;
	}
	return ckpt_catalog_add_piece(r->catalog, &piece);
}

static uint64_t chunks_of_shard(const struct reading *r)
{
	uint64_t count = 1;

	for (unsigned i = 0; i < r->entry.ndim; i++)
		count *= r->chunk[i] / r->inner[i]; // no more than elements of a chunk
	return count;
}

static int load_index(struct reading *r, const struct ckpt_zarr_value *v, uint64_t at, size_t bytes)
{
	const struct ckpt_catalog_files *files = r->catalog->files;
	struct ckpt_source source;
	int rc;

	if (v->data) {
		memcpy(r->index, v->data + at, bytes);
		return 0;
	}
	rc = files->open(files->arg, v->file, &source);
	if (rc)
		return rc;
	rc = ckpt_source_read(&source, v->offset + at, r->index, bytes);
	files->close(files->arg, &source);
	return rc;
}

// LISTED: the shard is too short, or its index is damaged; r->why says which.
static int read_index(struct reading *r, const struct ckpt_zarr_value *v, uint64_t count)
{
	uint64_t bytes = count * 16 + (r->index_sum ? 4 : 0);
	const uint8_t *sum = (const uint8_t *)r->index + count * 16;
	int rc;

	r->why = CKPT_WHY_SHORT_SHARD;
	if (v->bytes < bytes)
		return LISTED;
	rc = ckpt_catalog_spend(r->catalog, bytes);
	if (!rc)
		rc = load_index(r, v, r->index_first ? 0 : v->bytes - bytes, (size_t)bytes);
	if (rc)
		return rc == -ENOENT || rc == -EINVAL || rc == -ENODATA ? LISTED : rc;
	r->why = NULL;
	if (r->index_sum && ckpt_crc32c(0, r->index, (size_t)count * 16) != ckpt_get32(sum))
		r->why = "the index of one of its shards does not match its checksum";
	return r->why ? LISTED : 0;
}

static int add_shard(struct reading *r, const struct ckpt_zarr_value *v, const uint64_t *start)
{
	uint64_t count = chunks_of_shard(r), at[CKPT_ARRAY_DIMS_MAX];
	int rc = read_index(r, v, count);

	for (uint64_t k = 0; k < count && !rc; k++) {
		uint64_t offset = r->index[2 * k], len = r->index[2 * k + 1], rest = k;
		struct ckpt_zarr_value chunk = {v->file, v->offset + offset, len, v->data ? v->data + offset : NULL};

		if (offset == MISSING && len == MISSING)
			continue;
		if (offset > v->bytes || len > v->bytes - offset) {
			r->why = CKPT_WHY_OUTSIDE;
			return 0;
		}
		if (chunk.data)
			chunk.offset = 0;
		for (unsigned i = r->entry.ndim; i-- > 0;) {
			uint64_t across = r->chunk[i] / r->inner[i];

			at[i] = start[i] + rest % across * r->inner[i];
			rest /= across;
		}
		rc = add_chunk(r, &chunk, at);
	}
	return rc == LISTED ? 0 : rc;
}

static int take_key(void *arg, const char *key, const struct ckpt_zarr_value *value)
{
	uint64_t place[CKPT_ARRAY_DIMS_MAX];
	struct reading *r = arg;

	if (r->why || !parse_key(r, key, place))
		return 0;
	if (!value->file) {
		r->why = CKPT_WHY_NO_CHUNK;
		return 0;
	}
	for (unsigned i = 0; i < r->entry.ndim; i++)
		if (__builtin_mul_overflow(place[i], r->chunk[i], &place[i]) || place[i] >= r->shape[i])
			return 0; // of a larger array that was made smaller
	return r->sharded ? add_shard(r, value, place) : add_chunk(r, value, place);
}

// --- The array --------------------------------------------------------------------------------------------------------

static int add_array(struct reading *r)
{
	uint64_t elements, bytes;
	int rc;

	if (!ckpt_array_elements(r->chunk, r->entry.ndim, &elements) ||
	    __builtin_mul_overflow(elements, (uint64_t)16, &bytes))
		return refuse(r, "chunks");
	if (r->place->is_inside && !ckpt_array_elements(r->shape, r->entry.ndim, &elements))
		return refuse(r, "shape");
	if (r->sharded && chunks_of_shard(r) > INDEX_BYTES_MAX / 16)
		r->entry.why = "its shards have too many chunks";
	r->entry.shape = r->shape;
	if (r->place->is_part)
		r->entry.fill = NULL;
	if (!r->entry.dtype && !r->entry.why)
		r->entry.why = "its dtype has no equal here";
	rc = add_named(r);
	if (rc || r->entry.why)
		return rc;
	r->index = r->sharded ? malloc((size_t)chunks_of_shard(r) * 16 + 4) : NULL; // with its checksum
	if (r->sharded && !r->index)
		return -ENOMEM;
	rc = r->place->each(r->place->arg, take_key, r);
	free(r->index);
	return rc || !r->why ? rc : ckpt_catalog_note(r->catalog, "%s", r->why);
}

// --- Version 2 --------------------------------------------------------------------------------------------------------

// "<f4", "|b1", or a name that NumPy does not have: "bfloat16".
static int take_dtype2(struct reading *r, const json_t *json)
{
	const char *dtype = json_string_value(json_object_get(json, "dtype"));

	if (!dtype) {
		r->entry.why = "its elements are no numbers";
		return json_is_array(json_object_get(json, "dtype")) ? 0 : refuse(r, "dtype");
	}
	if (!strchr("<>|", *dtype) || strlen(dtype) < 3) {
		r->entry.dtype = ckpt_torch_dtype(dtype, strlen(dtype));
		return 0;
	}
	r->entry.big_endian = *dtype == '>' && strcmp(dtype + 2, "1");
	if (strspn(dtype + 2, "0123456789") == strlen(dtype + 2) && strlen(dtype) < 6)
		r->entry.dtype = ckpt_npy_number(dtype[1], strtoull(dtype + 2, NULL, 10));
	return 0;
}

// null is no element: its writer may have promised to leave out no chunk.
static int leave_gaps(struct reading *r)
{
	int rc = r->place->is_whole ? r->place->is_whole(r->place->arg) : 0;

	if (rc > 0)
		r->entry.fill = NULL;
	return MIN(rc, 0);
}

static int read_version2(struct reading *r, const json_t *json)
{
	const json_t *compressor = json_object_get(json, "compressor"), *filters = json_object_get(json, "filters");
	const char *order = json_string_value(json_object_get(json, "order")),
		   *separator = json_string_value(json_object_get(json, "dimension_separator")),
		   *id = json_string_value(json_object_get(compressor, "id"));
	int rc = take_shape(r, json);

	if (!rc)
		rc = take_dtype2(r, json);
	if (rc)
		return rc;
	if (json_integer_value(json_object_get(json, "zarr_format")) != 2)
		return refuse(r, "zarr_format");
	if (!take_numbers(json_object_get(json, "chunks"), r->entry.ndim, 1, r->chunk))
		return refuse(r, "chunks");
	memcpy(r->inner, r->chunk, sizeof(r->inner));
	for (unsigned i = 0; order && *order == 'F' && i < r->entry.ndim; i++)
		r->order[i] = (uint8_t)(r->entry.ndim - 1 - i);
	if (json_array_size(filters))
		r->entry.why = "its chunks have filters";
	if (json_is_object(compressor))
		rc = id ? add_codec(r, id) : refuse(r, "compressor");
	r->separator = separator && *separator == '/' ? '/' : '.';
	take_fill(r, json_object_get(json, "fill_value"));
	if (!rc && !r->codec_count && json_is_null(json_object_get(json, "fill_value")))
		rc = leave_gaps(r);
	return rc ? rc : add_array(r);
}

// --- Version 3 --------------------------------------------------------------------------------------------------------

static int take_keys(struct reading *r, const json_t *json)
{
	const json_t *encoding = json_object_get(json, "chunk_key_encoding");
	const char *name = json_string_value(json_object_get(encoding, "name")),
		   *separator =
			   json_string_value(json_object_get(json_object_get(encoding, "configuration"), "separator"));

	if (!name || (strcmp(name, "default") && strcmp(name, "v2")))
		return refuse(r, "chunk_key_encoding");
	r->named_c = !strcmp(name, "default");
	r->separator = separator ? *separator : r->named_c ? '/' : '.';
	return r->separator == '/' || r->separator == '.' ? 0 : refuse(r, "chunk_key_encoding");
}

static int take_grid(struct reading *r, const json_t *json)
{
	const json_t *grid = json_object_get(json, "chunk_grid");
	const char *name = json_string_value(json_object_get(grid, "name"));

	if (!name || strcmp(name, "regular") ||
	    !take_numbers(json_object_get(json_object_get(grid, "configuration"), "chunk_shape"), r->entry.ndim, 1,
			  r->chunk))
		return refuse(r, "chunk_grid");
	memcpy(r->inner, r->chunk, sizeof(r->inner));
	return 0;
}

static int read_version3(struct reading *r, const json_t *json)
{
	const char *node = json_string_value(json_object_get(json, "node_type")),
		   *dtype = json_string_value(json_object_get(json, "data_type"));
	int rc;

	if (json_integer_value(json_object_get(json, "zarr_format")) != 3 || !node)
		return refuse(r, "zarr_format");
	if (!strcmp(node, "group"))
		return 0;
	rc = take_shape(r, json);
	if (!rc)
		rc = take_grid(r, json);
	if (!rc)
		rc = take_keys(r, json);
	r->entry.dtype = dtype ? ckpt_torch_dtype(dtype, strlen(dtype)) : CKPT_DTYPE_NONE;
	if (!rc)
		rc = take_codecs(r, json_object_get(json, "codecs"), false);
	if (json_array_size(json_object_get(json, "storage_transformers")))
		r->entry.why = "it has storage transformers";
	take_fill(r, json_object_get(json, "fill_value"));
	return rc ? rc : add_array(r);
}

int ckpt_catalog_read_zarr(struct ckpt_catalog_reading *catalog, int version, const struct ckpt_zarr_place *place)
{
	struct reading r = {.catalog = catalog, .place = place};
	json_t *json = NULL;
	int rc = load(&r, &json);

	if (!rc)
		rc = version == 2 ? read_version2(&r, json) : read_version3(&r, json);
	json_decref(json);
	return rc == LISTED ? 0 : rc;
}
