#include "tests/support/array_files.h"

#include "core/base/util.h"
#include "core/cold/chunk.h"

#include <assert.h>

// --- Bytes --------------------------------------------------------------------------------------------------------------

void ckpt_bytes_add(struct ckpt_bytes *b, const void *data, size_t len)
{
	int rc = ckpt_grow((void **)&b->data, &b->cap, b->len + len + 1, 1);

	assert(!rc);
	if (len)
		memcpy(b->data + b->len, data, len);
	b->len += len;
}

void ckpt_bytes_text(struct ckpt_bytes *b, const char *text)
{
	ckpt_bytes_add(b, text, strlen(text));
}

void ckpt_bytes_number(struct ckpt_bytes *b, uint64_t value, size_t bytes)
{
	ckpt_bytes_add(b, &value, bytes);
}

void ckpt_bytes_fill(struct ckpt_bytes *b, size_t len, unsigned seed)
{
	uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;

	for (size_t i = 0; i < len; i += sizeof(x)) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		ckpt_bytes_add(b, &x, MIN(len - i, sizeof(x)));
	}
}

// The bytes from `at` on that lie together, len of them at most.
static size_t read_run(const struct ckpt_bytes *b, uint64_t at, uint8_t *to, size_t len)
{
	uint64_t behind = at - MIN(at, b->zeros_at);
	size_t run = len;

	if (at < b->zeros_at)
		run = (size_t)MIN((uint64_t)len, b->zeros_at - at);
	else if (behind < b->zeros)
		run = (size_t)MIN((uint64_t)len, b->zeros - behind);
	if (at >= b->zeros_at && behind < b->zeros)
		memset(to, 0, run);
	else
		memcpy(to, b->data + (at < b->zeros_at ? at : at - b->zeros), run);
	return run;
}

static int read_bytes(void *arg, uint64_t offset, void *buf, size_t len)
{
	struct ckpt_bytes *b = arg;
	uint8_t *to = buf;

	assert(offset <= b->len + b->zeros && len <= b->len + b->zeros - offset);
	if (++b->reads == b->fails_at)
		return -EIO;
	b->read_end = MAX(b->read_end, offset + len);
	for (size_t i = 0; i < len;)
		i += read_run(b, offset + i, to + i, len - i);
	return 0;
}

struct ckpt_source ckpt_bytes_source(struct ckpt_bytes *b)
{
	return (struct ckpt_source){.bytes = b->len + b->zeros, .read = read_bytes, .arg = b};
}

int ckpt_bytes_arrays(struct ckpt_bytes *b, const char *name, struct ckpt_arrays **ret_arrays)
{
	const struct ckpt_source s = ckpt_bytes_source(b);

	b->reads = b->read_end = 0;
	return ckpt_arrays_read(name, &s, ret_arrays);
}

struct ckpt_arrays *ckpt_bytes_read(struct ckpt_bytes *b, const char *name)
{
	struct ckpt_arrays *a;
	int rc = ckpt_bytes_arrays(b, name, &a);

	assert(!rc);
	if (a)
		ckpt_walk_arrays(a, b->len + b->zeros);
	return a;
}

bool ckpt_bytes_has_arrays(struct ckpt_bytes *b, const char *name)
{
	struct ckpt_arrays *a = ckpt_bytes_read(b, name);

	ckpt_arrays_free(a);
	return a;
}

struct ckpt_array ckpt_array_at(const struct ckpt_arrays *a, size_t i)
{
	struct ckpt_array array;

	assert(i < ckpt_arrays_count(a));
	ckpt_arrays_get(a, i, &array);
	return array;
}

void ckpt_check_array(const struct ckpt_arrays *a, size_t i, const char *name, enum ckpt_dtype dtype, uint64_t offset,
		      uint64_t bytes)
{
	struct ckpt_array array = ckpt_array_at(a, i);

	assert(!strcmp(array.name, name));
	assert(array.dtype == dtype);
	assert(array.offset == offset);
	assert(array.bytes == bytes);
}

// --- Formats ------------------------------------------------------------------------------------------------------------

static void begin(struct ckpt_bytes *b)
{
	b->len = 0;
	b->zeros = b->zeros_at = 0;
}

static void end_in_zeros(struct ckpt_bytes *b, uint64_t zeros)
{
	b->zeros = zeros;
	b->zeros_at = b->len;
}

void ckpt_sample_safetensors(struct ckpt_bytes *b, const char *header, uint64_t data)
{
	begin(b);
	ckpt_bytes_number(b, strlen(header), 8);
	ckpt_bytes_text(b, header);
	end_in_zeros(b, data);
}

void ckpt_sample_npy(struct ckpt_bytes *b, int version, const char *header, uint64_t data)
{
	begin(b);
	ckpt_bytes_add(b, "\x93NUMPY", 6);
	ckpt_bytes_number(b, (uint64_t)version, 2);
	ckpt_bytes_number(b, strlen(header), version == 1 ? 2 : 4);
	ckpt_bytes_text(b, header);
	end_in_zeros(b, data);
}

void ckpt_sample_zip_begin(struct ckpt_zip_sample *z, struct ckpt_bytes *b)
{
	begin(b);
	*z = (struct ckpt_zip_sample){.file = b};
}

// What the two headers of a member have in common.
static void add_fields(struct ckpt_bytes *to, const struct ckpt_zip_part *p, size_t extra)
{
	ckpt_bytes_number(to, p->zip64 ? 45 : 20, 2);
	ckpt_bytes_number(to, p->flags, 2);
	ckpt_bytes_number(to, p->method, 2);
	ckpt_bytes_number(to, 0, 8); // time, date, CRC
	ckpt_bytes_number(to, p->zip64 ? UINT32_MAX : p->len + p->zeros, 4);
	ckpt_bytes_number(to, p->zip64 ? UINT32_MAX : p->len + p->zeros, 4);
	ckpt_bytes_number(to, strlen(p->name), 2);
	ckpt_bytes_number(to, extra, 2);
}

static void add_zip64(struct ckpt_bytes *to, const struct ckpt_zip_part *p, size_t len)
{
	ckpt_bytes_number(to, 1, 2);
	ckpt_bytes_number(to, len, 2);
	ckpt_bytes_number(to, p->len + p->zeros, 8);
	ckpt_bytes_number(to, p->len + p->zeros, 8);
}

void ckpt_sample_zip_add(struct ckpt_zip_sample *z, const struct ckpt_zip_part *p)
{
	uint64_t header = z->file->len + z->file->zeros;

	ckpt_bytes_text(z->file, "PK\3\4");
	add_fields(z->file, p, (p->zip64 ? 20 : 0) + p->padding);
	ckpt_bytes_text(z->file, p->name);
	if (p->zip64)
		add_zip64(z->file, p, 16);
	if (p->padding) {
		ckpt_bytes_text(z->file, "FB");
		ckpt_bytes_number(z->file, p->padding - 4, 2);
		ckpt_bytes_fill(z->file, p->padding - 4, 1);
	}
	ckpt_bytes_add(z->file, p->data, p->len);
	if (p->zeros)
		end_in_zeros(z->file, p->zeros);
	ckpt_bytes_text(&z->directory, "PK\1\2");
	ckpt_bytes_number(&z->directory, 20, 2);
	add_fields(&z->directory, p, p->zip64 ? 28 : 0);
	ckpt_bytes_number(&z->directory, 0, 8); // comment, volume, attributes
	ckpt_bytes_number(&z->directory, 0, 2);
	ckpt_bytes_number(&z->directory, p->zip64 ? UINT32_MAX : header, 4);
	ckpt_bytes_text(&z->directory, p->name);
	if (p->zip64) {
		add_zip64(&z->directory, p, 24);
		ckpt_bytes_number(&z->directory, header, 8);
	}
	z->members++;
}

void ckpt_sample_zip_end(struct ckpt_zip_sample *z, bool zip64)
{
	uint64_t bytes = z->directory.len, end;

	z->directory_at = z->file->len + z->file->zeros;
	ckpt_bytes_add(z->file, z->directory.data, z->directory.len);
	free(z->directory.data);
	end = z->file->len + z->file->zeros;
	if (zip64) {
		ckpt_bytes_text(z->file, "PK\6\6");
		ckpt_bytes_number(z->file, 44, 8);
		ckpt_bytes_number(z->file, 0, 8);
		ckpt_bytes_number(z->file, 0, 4);
		ckpt_bytes_number(z->file, z->members, 8);
		ckpt_bytes_number(z->file, z->members, 8);
		ckpt_bytes_number(z->file, bytes, 8);
		ckpt_bytes_number(z->file, z->directory_at, 8);
		ckpt_bytes_text(z->file, "PK\6\7");
		ckpt_bytes_number(z->file, 0, 4);
		ckpt_bytes_number(z->file, end, 8);
		ckpt_bytes_number(z->file, 1, 4);
	}
	ckpt_bytes_text(z->file, "PK\5\6");
	ckpt_bytes_number(z->file, 0, 4);
	ckpt_bytes_number(z->file, zip64 ? UINT16_MAX : z->members, 2);
	ckpt_bytes_number(z->file, zip64 ? UINT16_MAX : z->members, 2);
	ckpt_bytes_number(z->file, zip64 ? UINT32_MAX : bytes, 4);
	ckpt_bytes_number(z->file, zip64 ? UINT32_MAX : z->directory_at, 4);
	ckpt_bytes_number(z->file, 0, 2);
}

// --- Walks --------------------------------------------------------------------------------------------------------------

static void walk_shape(const struct ckpt_array *a)
{
	unsigned __int128 bits = ckpt_dtype_bits(a->dtype);

	assert(a->ndim <= CKPT_ARRAY_DIMS_MAX);
	for (unsigned i = 0; i < a->ndim; i++) {
		bits *= a->shape[i];
		assert(bits <= (unsigned __int128)INT64_MAX * 128);
	}
	assert(!a->dtype || bits == (unsigned __int128)a->bytes * 8);
}

void ckpt_walk_arrays(const struct ckpt_arrays *a, uint64_t file_bytes)
{
	uint64_t end = 0;

	for (size_t i = 0; i < ckpt_arrays_count(a); i++) {
		struct ckpt_array array = ckpt_array_at(a, i);

		assert(array.offset >= end && array.offset <= file_bytes);
		assert(array.bytes <= file_bytes - array.offset);
		assert(array.dtype < CKPT_DTYPE_COUNT && strlen(array.name) <= UINT16_MAX);
		walk_shape(&array);
		end = array.offset + array.bytes;
	}
}

// How many arrays are large. A chunk begins with each.
static uint64_t count_large(const struct ckpt_arrays *a)
{
	uint64_t large = 0;

	for (size_t i = 0; a && i < ckpt_arrays_count(a); i++)
		large += ckpt_array_at(a, i).bytes >= CKPT_CHUNK_ARRAY_MIN;
	return large;
}

void ckpt_walk_cuts(const struct ckpt_source *s)
{
	struct ckpt_arrays *arrays = NULL;
	struct ckpt_cuts cuts;
	uint64_t chunks = 0, begun = 0, large;
	int rc = ckpt_arrays_read("", s, &arrays);

	assert(!rc);
	rc = ckpt_cuts_init(&cuts, s);
	assert(!rc);
	large = count_large(arrays);
	for (uint64_t at = 0; at < s->bytes; chunks++) {
		uint32_t len = ckpt_cuts_next(&cuts, at);

		assert(len && len <= CKPT_CHUNK_BYTES && len <= s->bytes - at);
		begun += begun < cuts.count && cuts.arrays[begun].begin == at;
		at += len;
	}
	assert(begun == large && cuts.count == large);
	assert(chunks <= s->bytes / CKPT_CHUNK_BYTES + 2 * large + 1);
	ckpt_cuts_done(&cuts);
	ckpt_arrays_free(arrays);
}
