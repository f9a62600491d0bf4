// Rows of arrays, pieces and faults beside pools of text and numbers, in which they point by offset: so a catalog grows by
// doubling few blocks, and its memory is counted in one place (ckpt_catalog_room()).
#include "core/array/catalog_rows.h"

#include "core/array/array_format.h"
#include "core/base/json.h"
#include "core/base/util.h"
#include "core/limits.h"

#include <stdarg.h>
#include <stdio.h>

#define FAULTS_MAX 1000

static const struct ckpt_catalog_format *const formats[] = {
	&ckpt_catalog_npy,     &ckpt_catalog_zip,   &ckpt_catalog_torch_legacy, &ckpt_catalog_safetensors,
	&ckpt_catalog_gguf,    &ckpt_catalog_dcp,   &ckpt_catalog_zarr2,        &ckpt_catalog_zarr3,
	&ckpt_catalog_ocdbt,   &ckpt_catalog_hdf5,  &ckpt_catalog_index,        &ckpt_catalog_descriptor,
	&ckpt_catalog_msgpack, &ckpt_catalog_orbax, &ckpt_catalog_eformer,      &ckpt_catalog_structure,
};

const struct ckpt_format *(*_Atomic ckpt_catalog_registered)(struct ckpt_catalog_reading *r);

const char *ckpt_catalog_format_name(size_t i)
{
	return i < ARRAY_LEN(formats) ? formats[i]->name : NULL;
}

const char *ckpt_piece_codec_name(enum ckpt_piece_codec codec)
{
	static const char *const names[CKPT_PIECE_CODECS] = {
		[CKPT_PIECE_RAW] = "raw",           [CKPT_PIECE_CRC32C] = "crc32c",
		[CKPT_PIECE_ZSTD] = "zstd",         [CKPT_PIECE_GZIP] = "gzip",
		[CKPT_PIECE_ZLIB] = "zlib",         [CKPT_PIECE_BLOSC] = "blosc",
		[CKPT_PIECE_DEFLATE] = "deflate",   [CKPT_PIECE_FLETCHER32] = "fletcher32",
		[CKPT_PIECE_SHUFFLE2] = "shuffle2", [CKPT_PIECE_SHUFFLE4] = "shuffle4",
		[CKPT_PIECE_SHUFFLE8] = "shuffle8", [CKPT_PIECE_SHUFFLE16] = "shuffle16",
		[CKPT_PIECE_TORCH] = "torch",       [CKPT_PIECE_LZF] = "lzf",
	};

	return codec < CKPT_PIECE_CODECS ? names[codec] : "?";
}

unsigned ckpt_piece_shuffle_width(enum ckpt_piece_codec codec)
{
	return codec >= CKPT_PIECE_SHUFFLE2 && codec <= CKPT_PIECE_SHUFFLE16 ? 2u << (codec - CKPT_PIECE_SHUFFLE2) : 0;
}

bool ckpt_piece_is_alike(const struct ckpt_piece *a, const struct ckpt_piece *b, unsigned ndim)
{
	size_t bytes = ndim * sizeof(uint64_t);

	return a->bytes == b->bytes && a->first == b->first && !memcmp(a->codecs, b->codecs, sizeof(a->codecs)) &&
	       !memcmp(a->start, b->start, bytes) && !memcmp(a->extent, b->extent, bytes) &&
	       !memcmp(a->strides, b->strides, bytes);
}

// --- Stopping ---------------------------------------------------------------------------------------------------------

#define TURNS_UNASKED 64

void ckpt_catalog_stop_by(struct ckpt_catalog *c, struct ckpt_catalog_stop *stop)
{
	c->stop = stop;
}

int ckpt_catalog_goes_on(const struct ckpt_catalog *c, size_t turns)
{
	struct ckpt_catalog_stop *stop = c->stop;

	if (!stop || (stop->turns += turns) < TURNS_UNASKED)
		return 0;
	if (!stop->go_on(stop->arg))
		return -EINTR; // and so it says when it is asked next, at once
	stop->turns = 0;
	return 0;
}

// --- Memory -----------------------------------------------------------------------------------------------------------

int ckpt_catalog_room(struct ckpt_catalog *c, void *items, size_t *cap, size_t need, size_t item_bytes)
{
	size_t before = *cap, want = before ? before : 16;
	int rc = ckpt_catalog_goes_on(c, 1); // each thing that is added comes by here

	if (rc || need <= before)
		return rc;
	while (want < need)
		want *= 2;
	if (want > CKPT_CATALOG_BYTES_MAX / item_bytes ||
	    c->bytes + (want - before) * item_bytes > CKPT_CATALOG_BYTES_MAX)
		return -EFBIG;
	rc = ckpt_grow(items, cap, need, item_bytes);
	c->bytes += (*cap - before) * item_bytes;
	return rc;
}

int ckpt_catalog_add_bytes(struct ckpt_catalog *c, const void *bytes, size_t len, uint32_t *ret_at)
{
	int rc = ckpt_catalog_room(c, &c->text, &c->text_cap, c->text_len + len + 1, 1);

	if (rc)
		return rc;
	*ret_at = (uint32_t)c->text_len;
	if (len)
		memcpy(c->text + c->text_len, bytes, len);
	c->text[c->text_len + len] = '\0';
	c->text_len += len + 1;
	return 0;
}

int ckpt_catalog_add_text(struct ckpt_catalog *c, const char *text, uint32_t *ret_at)
{
	return ckpt_catalog_add_bytes(c, text, strlen(text), ret_at);
}

// The same text as that at `last`, which many rows share, or a new one. Text of the catalog itself is shared, too.
static int share_text(struct ckpt_catalog *c, const char *text, uint32_t last, uint32_t *ret_at)
{
	if ((uintptr_t)text - (uintptr_t)c->text < c->text_len) {
		*ret_at = (uint32_t)(text - c->text);
		return 0;
	}
	if (last != NONE && !strcmp(c->text + last, text)) {
		*ret_at = last;
		return 0;
	}
	return ckpt_catalog_add_text(c, text, ret_at);
}

int ckpt_catalog_add_numbers(struct ckpt_catalog *c, const uint64_t *numbers, unsigned count)
{
	int rc = ckpt_catalog_room(c, &c->numbers, &c->number_cap, c->number_count + count + 1, sizeof(*c->numbers));

	for (unsigned i = 0; !rc && i < count; i++)
		c->numbers[c->number_count++] = numbers[i];
	return rc;
}

static struct row *last_row(const struct ckpt_catalog *c)
{
	return c->count ? &c->rows[c->count - 1] : NULL;
}

// --- What a format adds -----------------------------------------------------------------------------------------------

int ckpt_catalog_add_fault(struct ckpt_catalog *c, const char *file, const char *field, const char *reason)
{
	struct fault f;
	int rc;

	if (c->fault_count == FAULTS_MAX)
		return 0;
	rc = ckpt_catalog_add_text(c, file, &f.file);
	if (!rc)
		rc = ckpt_catalog_add_text(c, field, &f.field);
	if (!rc)
		rc = ckpt_catalog_add_text(c, reason, &f.reason);
	if (!rc)
		rc = ckpt_catalog_room(c, &c->faults, &c->fault_cap, c->fault_count + 1, sizeof(f));
	if (!rc)
		c->faults[c->fault_count++] = f;
	return rc == -EFBIG ? 0 : rc; // no room is left even for this
}

int ckpt_catalog_refuse(struct ckpt_catalog_reading *r, const char *field, const char *format, ...)
{
	char reason[256];
	va_list args;
	int rc;

	va_start(args, format);
	vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	rc = ckpt_catalog_add_fault(r->catalog, r->path, field, reason);
	return rc ? rc : -EINVAL;
}

int ckpt_catalog_spend(struct ckpt_catalog_reading *r, uint64_t bytes)
{
	int rc = ckpt_catalog_goes_on(r->catalog, 1);

	if (rc)
		return rc;
	if (!__builtin_add_overflow(r->spent, bytes, &r->spent) && r->spent <= CKPT_CATALOG_WORK_MAX)
		return 0;
	r->spent = CKPT_CATALOG_WORK_MAX + 1;
	return ckpt_catalog_refuse(r, "catalog", "it takes too much work");
}

static int too_large(struct ckpt_catalog_reading *r, int rc)
{
	return rc == -EFBIG ? ckpt_catalog_refuse(r, "catalog", "it has too many arrays") : rc;
}

static int add_row(struct ckpt_catalog_reading *r, const struct ckpt_catalog_entry *e)
{
	struct ckpt_catalog *c = r->catalog;
	struct row row = {
		.format = e->format,
		.why = NONE,
		.fill = NONE,
		.piece = (uint32_t)c->piece_count,
		.dtype = (uint8_t)e->dtype,
		.ndim = (uint8_t)e->ndim,
		.big_endian = e->big_endian,
	};
	const struct row *last = last_row(c);
	int rc = share_text(c, e->tree ? e->tree : r->path, last ? last->tree : NONE, &row.tree);

	if (!rc)
		rc = ckpt_catalog_add_bytes(c, e->name, e->name_len, &row.name);
	if (!rc && e->why)
		rc = share_text(c, e->why, last ? last->why : NONE, &row.why);
	if (!rc && e->fill)
		rc = ckpt_catalog_add_bytes(c, e->fill, ckpt_dtype_width(e->dtype), &row.fill);
	row.shape = (uint32_t)c->number_count;
	if (!rc)
		rc = ckpt_catalog_add_numbers(c, e->shape, e->ndim);
	if (!rc)
		rc = ckpt_catalog_room(c, &c->rows, &c->row_cap, c->count + 1, sizeof(row));
	if (!rc)
		c->rows[c->count++] = row;
	return rc;
}

int ckpt_catalog_add(struct ckpt_catalog_reading *r, const struct ckpt_catalog_entry *entry)
{
	struct ckpt_catalog_entry e = *entry;
	uint64_t elements, bytes;

	if (r->catalog->count >= CKPT_ARRAYS_MAX)
		return ckpt_catalog_refuse(r, "catalog", "it has too many arrays");
	if (entry->name_len > CKPT_ARRAY_NAME_MAX || (entry->name_len && memchr(entry->name, '\0', entry->name_len)))
		return ckpt_catalog_refuse(r, "name", "the name of an array is too long, or has a NUL in it");
	if (entry->ndim > CKPT_ARRAY_DIMS_MAX || !ckpt_array_elements(entry->shape, entry->ndim, &elements))
		return ckpt_catalog_refuse(r, "shape", "%.*s has more elements than any file could hold",
					   (int)MIN(entry->name_len, (size_t)128), entry->name);
	// Offsets of elements, in bytes, are to be numbers with a sign.
	if (!e.why &&
	    (__builtin_mul_overflow(elements, (uint64_t)ckpt_dtype_width(e.dtype), &bytes) || bytes > INT64_MAX / 2))
		e.why = "it has more bytes than any file could hold";
	return too_large(r, add_row(r, &e));
}

int ckpt_catalog_note(struct ckpt_catalog_reading *r, const char *format, ...)
{
	struct ckpt_catalog *c = r->catalog;
	struct row *row = last_row(c);
	char why[256];
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	return too_large(r, share_text(c, why, c->count > 1 ? row[-1].why : NONE, &row->why));
}

static bool is_in_array(const struct ckpt_catalog *c, const struct row *row, const struct ckpt_piece *p)
{
	for (unsigned i = 0; i < row->ndim; i++) {
		uint64_t size = c->numbers[row->shape + i];

		if (p->start[i] > size || p->extent[i] > size - p->start[i])
			return false;
	}
	return true;
}

static int add_piece(struct ckpt_catalog_reading *r, struct row *row, const struct ckpt_piece *p)
{
	struct ckpt_catalog *c = r->catalog;
	struct piece piece = {
		.offset = p->offset,
		.bytes = p->bytes,
		.first = p->first,
		.data = NONE,
		.box = (uint32_t)c->number_count,
	};
	uint32_t last = c->piece_count ? c->pieces[c->piece_count - 1].file : NONE;
	int rc = share_text(c, p->file ? p->file : r->path, last, &piece.file);

	memcpy(piece.codecs, p->codecs, sizeof(piece.codecs));
	if (!rc && p->data)
		rc = ckpt_catalog_add_bytes(c, p->data, p->bytes, &piece.data);
	if (!rc)
		rc = ckpt_catalog_add_numbers(c, p->start, row->ndim);
	if (!rc)
		rc = ckpt_catalog_add_numbers(c, p->extent, row->ndim);
	if (!rc)
		rc = ckpt_catalog_add_numbers(c, p->strides, row->ndim);
	if (!rc)
		rc = ckpt_catalog_room(c, &c->pieces, &c->piece_cap, c->piece_count + 1, sizeof(piece));
	if (rc)
		return rc;
	c->pieces[c->piece_count++] = piece;
	row->pieces++;
	return 0;
}

int ckpt_catalog_add_piece(struct ckpt_catalog_reading *r, const struct ckpt_piece *piece)
{
	static const uint64_t origin[CKPT_ARRAY_DIMS_MAX];
	uint64_t shape[CKPT_ARRAY_DIMS_MAX], strides[CKPT_ARRAY_DIMS_MAX], step = 1;
	struct ckpt_catalog *c = r->catalog;
	struct row *row = last_row(c);
	struct ckpt_piece p = *piece;

	if (!p.start) {
		memcpy(shape, c->numbers + row->shape, row->ndim * sizeof(*shape));
		p.start = origin;
		p.extent = shape;
	}
	if (!is_in_array(c, row, &p))
		return ckpt_catalog_refuse(r, "box", "%.128s has a piece outside of its shape", c->text + row->name);
	for (unsigned i = row->ndim; !p.strides && i-- > 0;) {
		strides[i] = step;
		step *= MAX(p.extent[i], UINT64_C(1));
	}
	if (!p.strides)
		p.strides = strides;
	return too_large(r, add_piece(r, row, &p));
}

// Of the axes, the first on which whole steps fit: so boxes are as large as they can be.
int ckpt_catalog_add_flat(struct ckpt_catalog_reading *r, const struct ckpt_piece *piece, uint64_t first,
			  uint64_t count)
{
	const struct row *row = last_row(r->catalog);
	uint64_t shape[CKPT_ARRAY_DIMS_MAX], step[CKPT_ARRAY_DIMS_MAX + 1],
		origin[CKPT_ARRAY_DIMS_MAX] = {0}, start[CKPT_ARRAY_DIMS_MAX], extent[CKPT_ARRAY_DIMS_MAX], done = 0,
		elements;
	unsigned ndim = row->ndim, width = ckpt_dtype_width(row->dtype);
	int rc = 0;

	memcpy(shape, piece->start ? piece->extent : r->catalog->numbers + row->shape, ndim * sizeof(*shape));
	if (piece->start)
		memcpy(origin, piece->start, ndim * sizeof(*origin));
	if (!ckpt_array_elements(shape, ndim, &elements) || first > elements || count > elements - first)
		return ckpt_catalog_refuse(r, "flat range", "%.128s has a piece outside of its shape",
					   r->catalog->text + row->name);
	step[ndim] = 1;
	for (unsigned i = ndim; i-- > 0;)
		step[i] = step[i + 1] * shape[i];
	while (done < count && !rc) {
		uint64_t at = first + done, n = 1;
		struct ckpt_piece box = *piece;
		unsigned axis = 0;

		while (axis < ndim && (at % step[axis + 1] || count - done < step[axis + 1]))
			axis++;
		for (unsigned i = 0; i < ndim; i++) {
			start[i] = i <= axis ? at / step[i + 1] % shape[i] : 0;
			extent[i] = i < axis ? 1 : shape[i];
		}
		if (axis < ndim)
			n = extent[axis] = MIN((count - done) / step[axis + 1], shape[axis] - start[axis]);
		for (unsigned i = 0; i < ndim; i++)
			start[i] += origin[i];
		box.start = start;
		box.extent = extent;
		box.strides = NULL;
		if (piece->codecs[0] || piece->data) {
			box.first += done;
		} else {
			box.offset += done * width;
			box.bytes = n * step[MIN(axis + 1, ndim)] * width;
		}
		rc = ckpt_catalog_add_piece(r, &box);
		done += n * step[MIN(axis + 1, ndim)];
		row = last_row(r->catalog);
	}
	return rc;
}

// --- What an index says -----------------------------------------------------------------------------------------------

int ckpt_catalog_promise(struct ckpt_catalog_reading *r, const struct ckpt_catalog_promise *promise)
{
	struct ckpt_catalog *c = r->catalog;
	const struct promise *last = c->promise_count ? &c->promises[c->promise_count - 1] : NULL;
	struct promise p = {.file = NONE, .ndim = (uint8_t)promise->ndim};
	int rc = share_text(c, r->path, last ? last->index : NONE, &p.index);

	if (promise->name_len > CKPT_ARRAY_NAME_MAX || memchr(promise->name, '\0', promise->name_len))
		return ckpt_catalog_refuse(r, "name", "the name of an array is too long, or has a NUL in it");
	if (!rc)
		rc = share_text(c, promise->tree, last ? last->tree : NONE, &p.tree);
	if (!rc)
		rc = ckpt_catalog_add_bytes(c, promise->name, promise->name_len, &p.name);
	if (!rc && promise->file)
		rc = share_text(c, promise->file, last ? last->file : NONE, &p.file);
	p.shape = (uint32_t)c->number_count;
	if (!rc && promise->ndim <= CKPT_ARRAY_DIMS_MAX)
		rc = ckpt_catalog_add_numbers(c, promise->shape, promise->ndim);
	if (!rc)
		rc = ckpt_catalog_room(c, &c->promises, &c->promise_cap, c->promise_count + 1, sizeof(p));
	if (!rc)
		c->promises[c->promise_count++] = p;
	return too_large(r, rc);
}

int ckpt_catalog_covers(struct ckpt_catalog_reading *r, const char *tree)
{
	struct ckpt_catalog *c = r->catalog;
	struct cover cover;
	int rc = ckpt_catalog_add_text(c, r->path, &cover.index);

	if (!rc)
		rc = ckpt_catalog_add_text(c, tree, &cover.tree);
	if (!rc)
		rc = ckpt_catalog_room(c, &c->covers, &c->cover_cap, c->cover_count + 1, sizeof(cover));
	if (!rc)
		c->covers[c->cover_count++] = cover;
	return too_large(r, rc);
}

int ckpt_catalog_join(struct ckpt_catalog_reading *r, const char *from, const char *to)
{
	struct ckpt_catalog *c = r->catalog;
	struct join join;
	int rc = ckpt_catalog_add_text(c, from, &join.from);

	if (!rc)
		rc = share_text(c, to, c->join_count ? c->joins[c->join_count - 1].to : NONE, &join.to);
	if (!rc)
		rc = ckpt_catalog_room(c, &c->joins, &c->join_cap, c->join_count + 1, sizeof(join));
	if (!rc)
		c->joins[c->join_count++] = join;
	return too_large(r, rc);
}

int ckpt_catalog_tell(struct ckpt_catalog_reading *r, const char *field, const char *format, ...)
{
	char reason[256];
	va_list args;

	va_start(args, format);
	vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	return ckpt_catalog_add_fault(r->catalog, r->path, field, reason);
}

int ckpt_catalog_load_json(struct ckpt_catalog_reading *r, json_t **ret_json)
{
	uint64_t bytes = r->source.bytes;
	CLEANUP_FREE char *text = NULL;
	int rc;

	if (bytes > CKPT_CATALOG_JSON_MAX)
		return ckpt_catalog_refuse(r, "JSON", "it is longer than %u bytes", CKPT_CATALOG_JSON_MAX);
	text = malloc((size_t)bytes + 1);
	rc = text ? ckpt_source_read(&r->source, 0, text, (size_t)bytes) : -ENOMEM;
	if (rc)
		return rc;
	(void)ckpt_json_tame(text, (size_t)bytes);
	rc = ckpt_json_load(text, (size_t)bytes, JSON_REJECT_DUPLICATES, NULL, ret_json);
	return rc == -EINVAL ? ckpt_catalog_refuse(r, "JSON", "it is no JSON, or has a name twice") : rc;
}

// --- One file ---------------------------------------------------------------------------------------------------------

int ckpt_catalog_take_back(struct ckpt_catalog_reading *r, const struct ckpt_catalog *before)
{
	struct ckpt_catalog *c = r->catalog;
	bool has_fault = c->fault_count > before->fault_count;
	CLEANUP_FREE char *field = NULL;
	CLEANUP_FREE char *reason = NULL;

	if (has_fault) {
		field = strdup(c->text + c->faults[c->fault_count - 1].field);
		reason = strdup(c->text + c->faults[c->fault_count - 1].reason);
		if (!field || !reason)
			has_fault = false;
	}
	c->count = before->count;
	c->promise_count = before->promise_count;
	c->join_count = before->join_count;
	c->cover_count = before->cover_count;
	c->zero_file_count = before->zero_file_count;
	c->zero_param_count = before->zero_param_count;
	c->piece_count = before->piece_count;
	c->number_count = before->number_count;
	c->text_len = before->text_len;
	c->fault_count = before->fault_count;
	return has_fault ? ckpt_catalog_add_fault(c, r->path, field, reason) : 0;
}

static const struct ckpt_catalog_format *find_format(const struct ckpt_catalog_reading *r)
{
	for (size_t i = 0; i < ARRAY_LEN(formats); i++)
		if (formats[i]->probe(r))
			return formats[i];
	return NULL;
}

bool ckpt_catalog_is_named_like_arrays(const char *path)
{
	static const char *const ends[] = {".safetensors", ".npy",   ".npz",  ".gguf", ".pt",
					   ".pth",         ".keras", ".ckpt", ".h5",   ".hdf5"};
	const char *slash = strrchr(path, '/');
	const char *end = strrchr(slash ? slash : path, '.');

	for (size_t i = 0; end && i < ARRAY_LEN(ends); i++)
		if (!strcmp(end, ends[i]))
			return true;
	return false;
}

// A file that no format knows. A crash or a full disk leaves files that are empty, a clone without Git LFS leaves pointers. Other bytes, zeros too, may be
// those of a program of its own.
static int tell_hollow(struct ckpt_catalog_reading *r)
{
	static const char pointer[] = "version https://git-lfs.github.com/";

	if (!ckpt_catalog_is_named_like_arrays(r->base))
		return 0;
	if (!r->head_len)
		return ckpt_catalog_refuse(r, "file", "it is empty");
	if (r->head_len >= sizeof(pointer) - 1 && !memcmp(r->head, pointer, sizeof(pointer) - 1))
		return ckpt_catalog_refuse(r, "file", "it is a pointer of Git LFS: `git lfs pull` gets its bytes");
	return 0;
}

static int read_file(struct ckpt_catalog_reading *r)
{
	const struct ckpt_catalog_format *format = NULL;
	const struct ckpt_format *(*find)(struct ckpt_catalog_reading *) = ckpt_catalog_registered;
	const struct ckpt_format *registered;
	struct ckpt_catalog before = *r->catalog;
	int rc, taken;

	r->head_len = (size_t)MIN(r->source.bytes, (uint64_t)sizeof(r->head));
	rc = ckpt_source_read(&r->source, 0, r->head, r->head_len);
	if (rc)
		return rc;
	registered = find ? find(r) : NULL;
	if (registered)
		r->format = registered->name;
	else if (r->head_len || !ckpt_catalog_is_named_like_arrays(r->base))
		format = find_format(r);
	rc = registered ? registered->read(registered->arg, r) : format ? format->read(r) : tell_hollow(r);
	if (!rc)
		return 0;
	if (rc == -EINVAL && r->catalog->fault_count == before.fault_count)
		rc = ckpt_catalog_refuse(r,
					 registered ? registered->name
					 : format   ? format->name
						    : "file",
					 "it breaks a rule of its format");
	taken = ckpt_catalog_take_back(r, &before);
	return rc == -EINVAL ? taken : rc;
}

int ckpt_catalog_read(struct ckpt_catalog *c, const struct ckpt_catalog_files *files, const char *path)
{
	const char *slash = strrchr(path, '/');
	struct ckpt_catalog_reading r = {
		.catalog = c,
		.files = files,
		.path = path,
		.base = slash ? slash + 1 : path,
		.dir_len = slash ? (size_t)(slash - path) : 0,
	};
	int rc = files->open(files->arg, path, &r.source);

	if (rc)
		return rc;
	rc = read_file(&r);
	files->close(files->arg, &r.source);
	return rc;
}

// --- The whole --------------------------------------------------------------------------------------------------------

int ckpt_catalog_new(struct ckpt_catalog **ret_catalog)
{
	*ret_catalog = calloc(1, sizeof(**ret_catalog));
	return *ret_catalog ? 0 : -ENOMEM;
}

void ckpt_catalog_free(struct ckpt_catalog *c)
{
	if (!c)
		return;
	free(c->rows);
	free(c->pieces);
	free(c->faults);
	free(c->promises);
	free(c->joins);
	free(c->covers);
	free(c->zero_files);
	free(c->zero_params);
	free(c->text);
	free(c->numbers);
	free(c->digests);
	free(c);
}

size_t ckpt_catalog_bytes(const struct ckpt_catalog *c)
{
	return sizeof(*c) + c->bytes;
}

size_t ckpt_catalog_count(const struct ckpt_catalog *c)
{
	return c->count;
}

static const char *text_at(const struct ckpt_catalog *c, uint32_t at)
{
	return at == NONE ? NULL : c->text + at;
}

int ckpt_catalog_set_digest(struct ckpt_catalog *c, size_t i, const uint8_t digest[CKPT_ARRAY_DIGEST_LEN])
{
	int rc = ckpt_catalog_room(c, &c->digests, &c->digest_cap, i + 1, sizeof(*c->digests));

	if (rc)
		return rc;
	if (i >= c->digest_count) {
		memset(c->digests[c->digest_count], 0, (i + 1 - c->digest_count) * sizeof(*c->digests));
		c->digest_count = i + 1;
	}
	memcpy(c->digests[i], digest, sizeof(*c->digests));
	return 0;
}

void ckpt_catalog_forget_digests(struct ckpt_catalog *c)
{
	c->digest_count = 0;
}

// No SHA-256 is known whose bytes are all zero.
static const uint8_t *digest_at(const struct ckpt_catalog *c, size_t i)
{
	static const uint8_t none[CKPT_ARRAY_DIGEST_LEN];

	return i < c->digest_count && memcmp(c->digests[i], none, sizeof(none)) ? c->digests[i] : NULL;
}

void ckpt_catalog_get(const struct ckpt_catalog *c, size_t i, struct ckpt_catalog_array *ret_array)
{
	const struct row *row = &c->rows[i];

	*ret_array = (struct ckpt_catalog_array){
		.tree = text_at(c, row->tree),
		.name = text_at(c, row->name),
		.format = row->format,
		.why = text_at(c, row->why),
		.dtype = row->dtype,
		.big_endian = row->big_endian,
		.ndim = row->ndim,
		.shape = c->numbers + row->shape,
		.fill = (const uint8_t *)text_at(c, row->fill),
		.pieces = row->pieces,
		.digest = digest_at(c, i),
	};
}

void ckpt_catalog_piece(const struct ckpt_catalog *c, size_t i, size_t k, struct ckpt_piece *ret_piece)
{
	const struct row *row = &c->rows[i];
	const struct piece *piece = &c->pieces[row->piece + k];

	*ret_piece = (struct ckpt_piece){
		.file = c->text + piece->file,
		.offset = piece->offset,
		.bytes = piece->bytes,
		.start = c->numbers + piece->box,
		.extent = c->numbers + piece->box + row->ndim,
		.strides = c->numbers + piece->box + 2 * row->ndim,
		.first = piece->first,
		.data = (const uint8_t *)text_at(c, piece->data),
	};
	memcpy(ret_piece->codecs, piece->codecs, sizeof(ret_piece->codecs));
}

bool ckpt_catalog_is_missing(const struct ckpt_catalog_array *a)
{
	static const char *const whys[] = {CKPT_WHY_NO_FILE,    CKPT_WHY_OUTSIDE,    CKPT_WHY_NO_CHUNK,
					   CKPT_WHY_NO_PIECES,  CKPT_WHY_NO_STORAGE, CKPT_WHY_SHORT,
					   CKPT_WHY_SHORT_SHARD};

	for (size_t i = 0; a->why && i < ARRAY_LEN(whys); i++)
		if (!strcmp(a->why, whys[i]))
			return true;
	return false;
}

bool ckpt_catalog_is_object(const struct ckpt_catalog_array *a)
{
	return a->why && !strcmp(a->why, CKPT_WHY_OBJECT);
}

size_t ckpt_catalog_faults(const struct ckpt_catalog *c)
{
	return c->fault_count;
}

void ckpt_catalog_fault(const struct ckpt_catalog *c, size_t i, struct ckpt_catalog_fault *ret_fault)
{
	const struct fault *f = &c->faults[i];

	*ret_fault = (struct ckpt_catalog_fault){c->text + f->file, c->text + f->field, c->text + f->reason};
}
