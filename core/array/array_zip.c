#include "core/array/array_format.h"

#include "core/array/zip.h"
#include "core/base/util.h"
#include "core/limits.h"

_Static_assert(CKPT_ZIP_DIRECTORY_MAX / 46 < CKPT_ARRAYS_MAX, "no directory has more members");

struct range {
	uint64_t begin, end;
};

struct reading {
	struct ckpt_arrays *arrays;
	const struct ckpt_source *source;
	struct range *members; // local header and bytes of each, whether an array or not
	size_t count, cap;
};

static bool ends_in(const struct ckpt_zip_member *m, const char *end)
{
	size_t len = strlen(end);

	return m->name_len >= len && !memcmp(m->name + m->name_len - len, end, len);
}

// TOP/data/N: where "data/N" begins; NULL: it is no such name.
static const char *storage_name(const struct ckpt_zip_member *m)
{
	static const char data[] = "/data/";
	const size_t data_len = sizeof(data) - 1;
	const char *slash = memchr(m->name, '/', m->name_len), *end = m->name + m->name_len, *at;

	if (!slash || slash == m->name || (size_t)(end - slash) <= data_len || memcmp(slash, data, data_len))
		return NULL;
	for (at = slash + data_len; at < end; at++)
		if (*at < '0' || *at > '9')
			return NULL;
	return slash + 1;
}

// An array, if it is one, whose bytes begin at data. What is called .npy and breaks the rules of that (objects, above all) is
// bytes of the file.
static int add_array(struct reading *r, const struct ckpt_zip_member *m, uint64_t data)
{
	const char *storage = storage_name(m);
	struct ckpt_array array = {.name = storage, .offset = data, .bytes = m->bytes};
	int rc;

	if (storage)
		return ckpt_arrays_add(r->arrays, &array, (size_t)(m->name + m->name_len - storage));
	rc = ckpt_arrays_npy(r->arrays, m->name, m->name_len - strlen(".npy"), r->source, data, m->bytes);
	return rc == -EINVAL ? 0 : rc;
}

static int add_member(void *arg, const struct ckpt_zip_member *m)
{
	struct reading *r = arg;
	bool candidate = m->stored && (ends_in(m, ".npy") || storage_name(m));
	uint64_t data = m->header, end;
	int rc = candidate ? ckpt_zip_data(r->source, m, &data) : 0;

	if (rc)
		return rc;
	if (__builtin_add_overflow(data, m->bytes, &end) || end > r->source->bytes)
		return -EINVAL;
	if (candidate)
		rc = add_array(r, m, data);
	if (!rc)
		rc = ckpt_grow((void **)&r->members, &r->cap, r->count + 1, sizeof(*r->members));
	if (!rc)
		r->members[r->count++] = (struct range){m->header, end};
	return rc;
}

static int by_begin(const void *one, const void *other)
{
	const struct range *x = one, *y = other;

	return x->begin < y->begin ? -1 : x->begin > y->begin;
}

// Many names for the same bytes are a bomb, or a lie.
static int check_members(const struct reading *r, uint64_t directory)
{
	for (size_t i = 0; i < r->count; i++)
		if (r->members[i].end > (i + 1 < r->count ? r->members[i + 1].begin : directory))
			return -EINVAL;
	return 0;
}

int ckpt_arrays_zip(struct ckpt_arrays *a, const struct ckpt_source *s)
{
	struct reading r = {.arrays = a, .source = s};
	struct ckpt_zip z;
	int rc = ckpt_zip_find(s, &z);

	if (!rc)
		rc = ckpt_zip_each(s, &z, add_member, &r);
	if (!rc && r.count)
		qsort(r.members, r.count, sizeof(*r.members), by_begin);
	if (!rc)
		rc = check_members(&r, z.directory);
	free(r.members);
	return rc;
}
