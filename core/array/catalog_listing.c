#include "core/array/catalog_listing.h"

#include "core/base/util.h"
#include "core/limits.h"

struct listing {
	struct ckpt_catalog_reading *reading;
	struct ckpt_catalog_listing *list;
};

static int by_path(const void *one, const void *other)
{
	return strcmp(((const struct ckpt_listed *)one)->path, ((const struct ckpt_listed *)other)->path);
}

static int take_file(void *arg, const char *path, uint64_t bytes)
{
	const struct listing *g = arg;
	struct ckpt_catalog_listing *l = g->list;
	int rc;

	l->path_bytes += sizeof(*l->files) + strlen(path) + 1;
	if (l->path_bytes > CKPT_LISTING_BYTES_MAX)
		return ckpt_catalog_refuse(g->reading, "directory", "it has too many files");
	rc = ckpt_grow((void **)&l->files, &l->cap, l->count + 1, sizeof(*l->files));
	if (rc)
		return rc;
	l->files[l->count] = (struct ckpt_listed){strdup(path), bytes};
	if (!l->files[l->count].path)
		return -ENOMEM;
	l->count++;
	return 0;
}

int ckpt_catalog_listing_read(struct ckpt_catalog_reading *r, struct ckpt_catalog_listing *ret_listing)
{
	CLEANUP_FREE char *dir = strndup(r->path, r->dir_len);
	struct listing g = {r, ret_listing};
	int rc = dir ? r->files->each(r->files->arg, dir, take_file, &g) : -ENOMEM;

	if (!rc && ret_listing->count)
		qsort(ret_listing->files, ret_listing->count, sizeof(*ret_listing->files), by_path);
	return rc;
}

void ckpt_catalog_listing_done(struct ckpt_catalog_listing *l)
{
	for (size_t i = 0; i < l->count; i++)
		free(l->files[i].path);
	free(l->files);
	*l = (struct ckpt_catalog_listing){0};
}

const struct ckpt_listed *ckpt_catalog_listing_find(const struct ckpt_catalog_listing *l, const char *path)
{
	const struct ckpt_listed want = {.path = (char *)path};

	return l->count ? bsearch(&want, l->files, l->count, sizeof(want), by_path) : NULL;
}

// Compares the path of a file with DIR/NAME, without making one.
static int compare_beside(const struct ckpt_listed *f, const struct ckpt_catalog_reading *r, const char *name,
			  size_t len)
{
	size_t dir = r->dir_len ? r->dir_len + 1 : 0;
	int order = strncmp(f->path, r->path, dir);

	if (!order)
		order = strncmp(f->path + dir, name, len);
	return order ? order : f->path[dir + len] != '\0';
}

const struct ckpt_listed *ckpt_catalog_listing_beside(const struct ckpt_catalog_listing *l,
						      const struct ckpt_catalog_reading *r, const char *name,
						      size_t len)
{
	size_t low = 0, high = l->count;

	if (memchr(name, '\0', len))
		return NULL;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = compare_beside(&l->files[middle], r, name, len);

		if (!order)
			return &l->files[middle];
		if (order > 0)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}
