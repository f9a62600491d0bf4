// Formats of a program's own (ckptfs.h), between its functions and the catalog's.
#include "core/ckptfs.h"

#include "core/array/catalog_listing.h"
#include "core/array/formats.h"
#include "core/base/util.h"

#include <stdio.h>
#include <string.h>

struct ckpt_format_file {
	struct ckpt_catalog_reading *reading;
	struct ckpt_catalog_listing listing;
	bool is_listed, has_array, is_noted;
	enum ckpt_dtype dtype; // of the array that was added last; NONE: it has no elements here
	unsigned ndim;
	uint64_t shape[CKPT_ARRAY_DIMS_MAX];
};

static bool probe(void *arg, struct ckpt_catalog_reading *r)
{
	const struct ckpt_format_ops *ops = arg;
	struct ckpt_format_file file = {.reading = r};

	return ops->probe(ops->arg, &file) > 0;
}

static int read_file(void *arg, struct ckpt_catalog_reading *r)
{
	const struct ckpt_format_ops *ops = arg;
	struct ckpt_format_file file = {.reading = r};
	int rc = ops->read(ops->arg, &file);

	ckpt_catalog_listing_done(&file.listing);
	return rc > 0 ? -EINVAL : rc;
}

int ckpt_format_register(const char *name, unsigned version, const struct ckpt_format_ops *ops)
{
	struct ckpt_format_ops *kept;
	int rc;

	if (!ops || !ops->probe || !ops->read)
		return -EINVAL;
	kept = malloc(sizeof(*kept));
	if (!kept)
		return -ENOMEM;
	*kept = *ops;
	rc = ckpt_formats_register(&(struct ckpt_format){name, version, probe, read_file, kept});
	if (rc)
		free(kept);
	return rc;
}

int ckpt_format_find(const char *action, const char *name, unsigned version, char *why, size_t why_bytes)
{
	char text[CKPT_FORMAT_WHY_MAX] = "";
	int rc = action && name ? ckpt_formats_find(action, name, version, text) : -EINVAL;

	if (why && why_bytes)
		snprintf(why, why_bytes, "%s", text);
	return rc;
}

const char *ckpt_format_path(const struct ckpt_format_file *file)
{
	return file->reading->path;
}

uint64_t ckpt_format_bytes(const struct ckpt_format_file *file)
{
	return file->reading->source.bytes;
}

int ckpt_format_read(struct ckpt_format_file *file, uint64_t offset, void *into, size_t len)
{
	const struct ckpt_source *s = &file->reading->source;

	return offset > s->bytes || len > s->bytes - offset ? -ENODATA : ckpt_source_read(s, offset, into, len);
}

// --- What it adds -----------------------------------------------------------------------------------------------------------

static bool find_dtype(const char *name, enum ckpt_dtype *ret_dtype)
{
	*ret_dtype = name ? ckpt_dtype_called(name) : CKPT_DTYPE_NONE;
	return !name || *ret_dtype;
}

// The name of the format that reads: catalogs keep it, and so does the registry.
static const char *format_name(const struct ckpt_format_file *file)
{
	return file->reading->format;
}

int ckpt_format_add(struct ckpt_format_file *file, const struct ckpt_format_array *a)
{
	struct ckpt_catalog_entry e = {.tree = a->tree,
				       .name = a->name,
				       .format = format_name(file),
				       .why = a->why,
				       .big_endian = a->big_endian,
				       .ndim = a->ndim,
				       .shape = a->shape};
	int rc;

	file->has_array = false;
	if (!a->name || !*a->name || (a->tree && !*a->tree) || !find_dtype(a->dtype, &e.dtype) ||
	    a->ndim > CKPT_ARRAY_DIMS_MAX || (a->ndim && !a->shape))
		return -EINVAL;
	e.name_len = strlen(a->name);
	if (!e.why && !e.dtype)
		e.why = "its dtype is not known";
	if (!e.why && ckpt_dtype_bits(e.dtype) < 8)
		e.why = "a byte has several of its elements";
	rc = ckpt_catalog_add(file->reading, &e);
	if (rc)
		return rc;
	file->has_array = !e.why;
	file->is_noted = false;
	file->dtype = e.dtype;
	file->ndim = e.ndim;
	if (e.ndim)
		memcpy(file->shape, e.shape, e.ndim * sizeof(*e.shape));
	return 0;
}

// -ENOENT: the step has no such file.
static int find_file(struct ckpt_format_file *file, const char *path, const char **ret_path, uint64_t *ret_bytes)
{
	const struct ckpt_listed *found;
	int rc = 0;

	*ret_path = NULL;
	*ret_bytes = file->reading->source.bytes;
	if (!path || !strcmp(path, file->reading->path))
		return 0;
	if (!file->is_listed)
		rc = ckpt_catalog_listing_read(file->reading, &file->listing);
	if (rc)
		return rc;
	file->is_listed = true;
	found = ckpt_catalog_listing_find(&file->listing, path);
	if (!found)
		return -ENOENT;
	*ret_path = found->path;
	*ret_bytes = found->bytes;
	return 0;
}

// Later pieces of the array are not looked at.
static int note(struct ckpt_format_file *file, const char *why)
{
	file->is_noted = true;
	return ckpt_catalog_note(file->reading, "%s", why);
}

int ckpt_format_add_piece(struct ckpt_format_file *file, const struct ckpt_format_piece *piece)
{
	static const uint64_t zeros[CKPT_ARRAY_DIMS_MAX];
	uint64_t strides[CKPT_ARRAY_DIMS_MAX], bytes;
	struct ckpt_piece p = {.offset = piece->offset,
			       .start = piece->start ? piece->start : zeros,
			       .extent = piece->extent ? piece->extent : file->shape,
			       .strides = strides};
	int rc;

	if (!file->has_array || !piece->start != !piece->extent)
		return -EINVAL;
	for (unsigned i = 0; i < file->ndim; i++)
		if (p.start[i] > file->shape[i] || p.extent[i] > file->shape[i] - p.start[i])
			return -EINVAL;
	if (file->is_noted)
		return 0;
	if (piece->strides)
		memcpy(strides, piece->strides, file->ndim * sizeof(*strides));
	else
		ckpt_piece_order(&p, file->ndim, strides);
	rc = find_file(file, piece->path, &p.file, &bytes);
	if (rc)
		return rc == -ENOENT ? note(file, CKPT_WHY_NO_FILE) : rc;
	if (!ckpt_piece_span(&p, file->ndim, file->dtype, &p.bytes) || p.offset > bytes || p.bytes > bytes - p.offset)
		return note(file, CKPT_WHY_OUTSIDE);
	return ckpt_catalog_add_piece(file->reading, &p);
}

int ckpt_format_refuse(struct ckpt_format_file *file, const char *field, const char *reason)
{
	return ckpt_catalog_refuse(file->reading, field, "%s", reason);
}
