// The arrays of a step, for programs (ckptfs.h).
#include "core/ckptfs.h"

#include "core/ckptfs_look.h"

#include "core/array/array_format.h"
#include "core/array/formats.h"
#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/view/array_row.h"
#include "core/view/step_arrays.h"

#include <string.h>

struct ckpt_array_set {
	struct ckpt_look look;
	struct ckpt_step_arrays *arrays;
	struct ckpt_names *names;
	struct ckpt_array_info *infos;
	size_t count;
	struct ckpt_lock lock;
	// Of the array that was read last, so that what a reader decodes serves its next call. Guarded by lock.
	struct ckpt_gather *kept;
	size_t kept_at;
};

const struct ckpt_catalog *ckpt_array_set_catalog(const struct ckpt_array_set *set)
{
	return ckpt_step_arrays_catalog(set->arrays);
}

const struct ckpt_names *ckpt_array_set_names(const struct ckpt_array_set *set)
{
	return set->names;
}

static int make_infos(struct ckpt_array_set *set)
{
	const struct ckpt_catalog *c = ckpt_array_set_catalog(set);

	set->count = ckpt_catalog_count(c);
	set->infos = ckpt_calloc(set->count + 1, sizeof(*set->infos));
	if (!set->infos)
		return -ENOMEM;
	for (size_t i = 0; i < set->count; i++) {
		struct ckpt_catalog_array a;

		ckpt_catalog_get(c, i, &a);
		set->infos[i] = (struct ckpt_array_info){
			.tree = a.tree,
			.name = a.name,
			.dtype = ckpt_dtype_numpy(a.dtype),
			.format = a.format,
			.why = a.why,
			.shape = a.shape,
			.ndim = a.ndim,
			.width = ckpt_dtype_bits(a.dtype) % 8 ? 0 : ckpt_dtype_width(a.dtype),
			.bytes = ckpt_array_bytes(&a),
		};
	}
	return 0;
}

static int read_step(struct ckpt_array_set *set, const char *name)
{
	struct ckpt_manifest *m = NULL;
	struct ckpt_step *step;
	const char *rest;
	int rc = ckpt_view_find(&set->look.view, name, &step, &rest);

	if (rc)
		return rc;
	rc = ckpt_step_manifest(step, &m);
	// The catalog of a manifest is of a process that does not know the formats of this one.
	if (!rc)
		rc = ckpt_formats_registered() ? ckpt_step_arrays_read_files(step, m, rest, &set->arrays)
					       : ckpt_step_arrays_read(step, m, rest, &set->arrays);
	if (!rc)
		rc = make_infos(set);
	if (!rc)
		rc = ckpt_names_new(ckpt_array_set_catalog(set), &set->names);
	ckpt_manifest_unref(m);
	ckpt_step_unref(step);
	return rc;
}

int ckpt_array_set_open(struct ckpt *ckpt, const char *step, struct ckpt_array_set **ret_set)
{
	struct ckpt_array_set *set = ckpt_calloc(1, sizeof(*set));
	int rc = set ? ckpt_look_begin(ckpt, &set->look) : -ENOMEM;

	if (rc) {
		free(set);
		return rc;
	}
	ckpt_lock_init(&set->lock, CKPT_LOCK_LEAF);
	rc = read_step(set, step);
	if (rc)
		ckpt_array_set_free(set);
	else
		*ret_set = set;
	return rc;
}

void ckpt_array_set_free(struct ckpt_array_set *set)
{
	if (!set)
		return;
	ckpt_gather_free(set->kept);
	ckpt_names_free(set->names);
	ckpt_step_arrays_free(set->arrays);
	ckpt_look_end(&set->look);
	ckpt_lock_done(&set->lock);
	free(set->infos);
	free(set);
}

size_t ckpt_array_set_count(const struct ckpt_array_set *set)
{
	return set->count;
}

const struct ckpt_array_info *ckpt_array_set_at(const struct ckpt_array_set *set, size_t i)
{
	return i < set->count ? &set->infos[i] : NULL;
}

int ckpt_array_set_find(const struct ckpt_array_set *set, const char *name, size_t *ret_i)
{
	return ckpt_names_find(set->names, name, ret_i);
}

// --- Elements ---------------------------------------------------------------------------------------------------------------

int ckpt_array_set_take(struct ckpt_array_set *set, size_t i, struct ckpt_gather **ret_gather)
{
	{
		LOCK_SCOPE(&set->lock);
		if (set->kept && set->kept_at == i) {
			*ret_gather = set->kept;
			set->kept = NULL;
			return 0;
		}
	}
	return ckpt_gather_new(ckpt_array_set_catalog(set), i, ckpt_step_arrays_files(set->arrays), ret_gather);
}

void ckpt_array_set_give(struct ckpt_array_set *set, size_t i, struct ckpt_gather *g)
{
	struct ckpt_gather *old;

	{
		LOCK_SCOPE(&set->lock);
		old = set->kept;
		set->kept = g;
		set->kept_at = i;
	}
	ckpt_gather_free(old);
}

void ckpt_array_set_forget(struct ckpt_array_set *set)
{
	struct ckpt_gather *old;

	{
		LOCK_SCOPE(&set->lock);
		old = TAKE_PTR(set->kept);
	}
	ckpt_gather_free(old);
}

static bool is_inside(const struct ckpt_array_info *a, const uint64_t *start, const uint64_t *extent)
{
	for (unsigned k = 0; k < a->ndim; k++)
		if (start[k] > a->shape[k] || extent[k] > a->shape[k] - start[k])
			return false;
	return true;
}

int ckpt_array_set_read(struct ckpt_array_set *set, size_t i, const uint64_t *start, const uint64_t *extent, void *into)
{
	static const uint64_t zeros[CKPT_ARRAY_DIMS_MAX];
	const struct ckpt_array_info *a = ckpt_array_set_at(set, i);
	struct ckpt_gather *g;
	int rc;

	if (!a || !start != !extent)
		return -EINVAL;
	if (!start) {
		start = zeros;
		extent = a->shape;
	}
	if (!is_inside(a, start, extent))
		return -ERANGE;
	rc = ckpt_array_set_take(set, i, &g);
	if (rc)
		return rc;
	rc = ckpt_gather_box(g, start, extent, into);
	ckpt_array_set_give(set, i, g);
	return rc;
}

int ckpt_array_set_open_raw(struct ckpt_array_set *set, size_t i, int *ret_fd, uint64_t *ret_offset)
{
	struct ckpt_gather *g;
	const char *file;
	uint64_t offset;
	int rc;

	if (!ckpt_array_set_at(set, i))
		return -EINVAL;
	rc = ckpt_array_set_take(set, i, &g);
	if (rc)
		return rc == -ENOTSUP ? -ENOENT : rc;
	rc = ckpt_gather_is_plain(g, &file, &offset) ? ckpt_step_arrays_open_raw(set->arrays, file, ret_fd) : -ENOENT;
	ckpt_array_set_give(set, i, g);
	if (!rc)
		*ret_offset = offset;
	return rc;
}
