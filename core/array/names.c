#include "core/array/names.h"

#include "core/base/util.h"

#include <stdlib.h>

struct ckpt_names {
	const struct ckpt_catalog *catalog;
	size_t count;
	size_t order[]; // arrays by NAME, then TREE
};

static int compare(const void *a, const void *b, void *arg)
{
	struct ckpt_catalog_array one, other;
	int rc;

	ckpt_catalog_get(arg, *(const size_t *)a, &one);
	ckpt_catalog_get(arg, *(const size_t *)b, &other);
	rc = strcmp(one.name, other.name);
	return rc ? rc : strcmp(one.tree, other.tree);
}

int ckpt_names_new(const struct ckpt_catalog *c, struct ckpt_names **ret_names)
{
	size_t count = ckpt_catalog_count(c), bytes;
	struct ckpt_names *n;

	if (__builtin_mul_overflow(count, sizeof(size_t), &bytes) || __builtin_add_overflow(bytes, sizeof(*n), &bytes))
		return -ENOMEM;
	n = calloc(1, bytes);
	if (!n)
		return -ENOMEM;
	n->catalog = c;
	n->count = count;
	for (size_t i = 0; i < count; i++)
		n->order[i] = i;
	qsort_r(n->order, count, sizeof(*n->order), compare, (void *)c);
	*ret_names = n;
	return 0;
}

void ckpt_names_free(struct ckpt_names *n)
{
	free(n);
}

// Of the array at a place of the order, against tree (NULL: any) and name.
static int against(const struct ckpt_names *n, size_t place, const char *tree, size_t tree_len, const char *name)
{
	struct ckpt_catalog_array a;
	int rc;

	ckpt_catalog_get(n->catalog, n->order[place], &a);
	rc = strcmp(a.name, name);
	if (rc || !tree)
		return rc;
	rc = strncmp(a.tree, tree, tree_len);
	return rc ? rc : a.tree[tree_len] != '\0';
}

// The first place whose array does not come before; n->count: there is none.
static size_t lower(const struct ckpt_names *n, const char *tree, size_t tree_len, const char *name)
{
	size_t from = 0, to = n->count;

	while (from < to) {
		size_t mid = from + (to - from) / 2;

		if (against(n, mid, tree, tree_len, name) < 0)
			from = mid + 1;
		else
			to = mid;
	}
	return from;
}

int ckpt_names_find(const struct ckpt_names *n, const char *name, size_t *ret_i)
{
	size_t place;

	// A tree and a name may have colons too.
	for (const char *colon = strchr(name, ':'); colon; colon = strchr(colon + 1, ':')) {
		size_t len = (size_t)(colon - name);

		place = lower(n, name, len, colon + 1);
		if (place < n->count && !against(n, place, name, len, colon + 1)) {
			*ret_i = n->order[place];
			return 0;
		}
	}
	place = lower(n, NULL, 0, name);
	if (place >= n->count || against(n, place, NULL, 0, name))
		return -ENOENT;
	if (place + 1 < n->count && !against(n, place + 1, NULL, 0, name))
		return -EEXIST;
	*ret_i = n->order[place];
	return 0;
}

bool ckpt_names_is_unique(const struct ckpt_names *n, size_t i)
{
	struct ckpt_catalog_array a;
	size_t found;

	ckpt_catalog_get(n->catalog, i, &a);
	// A name with colons may be another array's full name: then only the longer form is clear.
	return !ckpt_names_find(n, a.name, &found) && found == i;
}
