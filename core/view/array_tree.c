#include "core/view/array_tree.h"

#include "core/base/hash.h"
#include "core/base/util.h"
#include "core/limits.h"
#include "core/view/array_name.h"
#include "core/view/npy_view.h"

#include <limits.h>
#include <stdio.h>
#include <sys/random.h>

struct item {
	uint32_t text; // offset in the heap
	uint32_t folder;
	uint32_t of;   // an array; of a folder: the first of its names; the index: INDEX
	uint32_t next; // in the same folder
};

// Types stand apart from items: in these they would take eight bytes.
struct ckpt_array_tree {
	struct item *items;
	uint8_t *types;
	size_t count, cap, types_cap;
	char *heap;
	size_t heap_len, heap_cap;
	uint32_t *slots; // open addressing; NONE: free
	size_t slot_count;
	uint64_t seed; // names are from outside: nobody can make them share a slot
};

// --- Names in folders -------------------------------------------------------------------------------------------------

static size_t slot_of(const struct ckpt_array_tree *t, uint32_t folder, const char *name, size_t len)
{
	return (size_t)ckpt_checksum(name, len, t->seed ^ (folder * UINT64_C(0x9e3779b97f4a7c15))) &
	       (t->slot_count - 1);
}

static bool is_called(const struct ckpt_array_tree *t, uint32_t at, uint32_t folder, const char *name, size_t len)
{
	const struct item *i = &t->items[at];

	return i->folder == folder && !strncmp(t->heap + i->text, name, len) && !t->heap[i->text + len];
}

// The slot with this name in the folder, or the one that it would have.
static uint32_t *find_slot(const struct ckpt_array_tree *t, uint32_t folder, const char *name, size_t len)
{
	size_t at = slot_of(t, folder, name, len);

	while (t->slots[at] != CKPT_ARRAY_TREE_NONE && !is_called(t, t->slots[at], folder, name, len))
		at = (at + 1) & (t->slot_count - 1);
	return &t->slots[at];
}

// ckpt_grow() in the room that the tree has.
static int grow(struct ckpt_array_tree *t, void *items, size_t *cap, size_t need, size_t item_bytes)
{
	if (need > *cap && ckpt_array_tree_bytes(t) + MAX(*cap, need - *cap) * item_bytes > CKPT_ARRAY_TREE_BYTES_MAX)
		return -EFBIG;
	return ckpt_grow(items, cap, need, item_bytes);
}

static int grow_slots(struct ckpt_array_tree *t)
{
	size_t count = t->slot_count ? t->slot_count * 2 : 64;
	uint32_t *slots;

	if (ckpt_array_tree_bytes(t) + (count - t->slot_count) * sizeof(*slots) > CKPT_ARRAY_TREE_BYTES_MAX)
		return -EFBIG;
	slots = malloc(count * sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	memset(slots, 0xff, count * sizeof(*slots));
	free(t->slots);
	t->slots = slots;
	t->slot_count = count;
	for (size_t i = 1; i < t->count; i++) {
		const char *name = t->heap + t->items[i].text;

		*find_slot(t, t->items[i].folder, name, strlen(name)) = (uint32_t)i;
	}
	return 0;
}

static int add_text(struct ckpt_array_tree *t, const char *name, size_t len, uint32_t *ret_text)
{
	int rc = grow(t, &t->heap, &t->heap_cap, t->heap_len + len + 1, 1);

	if (rc)
		return rc;
	memcpy(t->heap + t->heap_len, name, len);
	t->heap[t->heap_len + len] = '\0';
	*ret_text = (uint32_t)t->heap_len;
	t->heap_len += len + 1;
	return 0;
}

static int add_item(struct ckpt_array_tree *t, struct item item, enum ckpt_array_tree_type type)
{
	int rc = grow(t, &t->items, &t->cap, t->count + 1, sizeof(*t->items))
			 ?: grow(t, &t->types, &t->types_cap, t->count + 1, 1);

	if (rc)
		return rc;
	t->types[t->count] = (uint8_t)type;
	t->items[t->count++] = item;
	return 0;
}

// text NONE: the heap does not have the name yet.
static int add_name(struct ckpt_array_tree *t, uint32_t folder, const char *name, size_t len, uint32_t text,
		    enum ckpt_array_tree_type type, uint32_t of)
{
	int rc = t->count * 2 >= t->slot_count ? grow_slots(t) : 0;

	if (!rc && text == CKPT_ARRAY_TREE_NONE)
		rc = add_text(t, name, len, &text);
	if (!rc)
		rc = add_item(t, (struct item){text, folder, of, t->items[folder].of}, type);
	if (rc)
		return rc;
	*find_slot(t, folder, name, len) = (uint32_t)t->count - 1;
	t->items[folder].of = (uint32_t)t->count - 1;
	return 0;
}

// --- Paths of arrays --------------------------------------------------------------------------------------------------

// The items of the components of a path that was added: their texts serve once more.
struct way {
	uint32_t at[CKPT_DEPTH_MAX];
	size_t count;
};

// known: the texts of its components, the last one of which is that of the last one here. Another array has the path: nothing.
static int add_path(struct ckpt_array_tree *t, const char *path, uint32_t array, const struct way *known,
		    size_t components, struct way *ret_way)
{
	uint32_t folder = CKPT_ARRAY_TREE_TOP;
	size_t skip = known ? known->count - components : 0;

	ret_way->count = 0;
	for (;;) {
		size_t len = strcspn(path, "/");
		bool last = !path[len];
		uint32_t at = t->slot_count ? *find_slot(t, folder, path, len) : CKPT_ARRAY_TREE_NONE;

		if (at == CKPT_ARRAY_TREE_NONE) {
			uint32_t text = known ? t->items[known->at[skip + ret_way->count]].text : CKPT_ARRAY_TREE_NONE;
			int rc = add_name(t, folder, path, len, text,
					  last ? CKPT_ARRAY_TREE_ARRAY : CKPT_ARRAY_TREE_FOLDER,
					  last ? array : CKPT_ARRAY_TREE_NONE);

			if (rc)
				return rc;
			at = (uint32_t)t->count - 1;
		}
		ret_way->at[ret_way->count++] = at;
		if (last)
			return 0;
		folder = at;
		path += len + 1;
	}
}

static size_t components_of(const char *path)
{
	size_t n = 1;

	for (; *path; path++)
		n += *path == '/';
	return n;
}

static bool fits(const char *path)
{
	return strlen(path) < PATH_MAX && components_of(path) <= CKPT_DEPTH_MAX;
}

struct adding {
	struct ckpt_array_tree *t;
	const struct ckpt_catalog *c;
	uint32_t *leaves; // by array: its item at FOLDER/PATH; NONE: it has none
	struct way way, other;
};

static int add_whole(struct adding *a, size_t i)
{
	CLEANUP_FREE char *folder = NULL, *file = NULL, *path = NULL;
	struct ckpt_catalog_array array;
	uint64_t bytes;
	int rc;

	a->leaves[i] = CKPT_ARRAY_TREE_NONE;
	ckpt_catalog_get(a->c, i, &array);
	if (!ckpt_npy_view_bytes(&array, &bytes))
		return 0;
	folder = ckpt_array_folder(array.tree);
	file = ckpt_array_path(array.name);
	if (!folder || !file || asprintf(&path, "%s%s%s", folder, *folder ? "/" : "", file) < 0)
		return -ENOMEM;
	if (!fits(path))
		return 0;
	rc = add_path(a->t, path, (uint32_t)i, NULL, 0, &a->way);
	if (!rc)
		a->leaves[i] = a->way.at[a->way.count - 1];
	return rc;
}

static void find_way(struct adding *a, uint32_t leaf)
{
	uint32_t up[CKPT_DEPTH_MAX];
	size_t n = 0;

	for (uint32_t at = leaf; at != CKPT_ARRAY_TREE_TOP; at = a->t->items[at].folder)
		up[n++] = at;
	a->way.count = n;
	for (size_t i = 0; i < n; i++)
		a->way.at[i] = up[n - 1 - i];
}

// The name is in no other tree.
static int add_short(struct adding *a, size_t i)
{
	CLEANUP_FREE char *path = NULL;
	struct ckpt_catalog_array array;
	size_t components;

	if (a->leaves[i] == CKPT_ARRAY_TREE_NONE)
		return 0;
	ckpt_catalog_get(a->c, i, &array);
	path = ckpt_array_path(array.name);
	if (!path)
		return -ENOMEM;
	components = components_of(path);
	find_way(a, a->leaves[i]);
	return a->way.count == components ? 0 : add_path(a->t, path, (uint32_t)i, &a->way, components, &a->other);
}

static int by_name(const void *x, const void *y, void *arg)
{
	struct ckpt_catalog_array a, b;

	ckpt_catalog_get(arg, *(const uint32_t *)x, &a);
	ckpt_catalog_get(arg, *(const uint32_t *)y, &b);
	return strcmp(a.name, b.name);
}

static bool have_one_name(const struct ckpt_catalog *c, uint32_t x, uint32_t y)
{
	return !by_name(&x, &y, (void *)c);
}

static int add_all(struct adding *a)
{
	size_t count = ckpt_catalog_count(a->c);
	CLEANUP_FREE uint32_t *order = ckpt_calloc(count + 1, sizeof(*order));
	int rc = order ? 0 : -ENOMEM;

	for (size_t i = 0; i < count && !rc; i++) {
		order[i] = (uint32_t)i;
		rc = add_whole(a, i);
	}
	if (!rc && count)
		qsort_r(order, count, sizeof(*order), by_name, (void *)a->c);
	for (size_t i = 0; i < count && !rc; i++)
		if ((!i || !have_one_name(a->c, order[i - 1], order[i])) &&
		    (i + 1 == count || !have_one_name(a->c, order[i], order[i + 1])))
			rc = add_short(a, order[i]);
	return rc;
}

int ckpt_array_tree_begin(const char *all, struct ckpt_array_tree **ret_tree)
{
	struct ckpt_array_tree *t = ckpt_calloc(1, sizeof(*t));
	uint32_t text;
	int rc = t ? add_text(t, "", 0, &text) : -ENOMEM;

	if (!rc && getrandom(&t->seed, sizeof(t->seed), 0) != sizeof(t->seed))
		t->seed = (uint64_t)(uintptr_t)t;
	if (!rc)
		rc = add_item(t, (struct item){text, CKPT_ARRAY_TREE_NONE, CKPT_ARRAY_TREE_NONE, CKPT_ARRAY_TREE_NONE},
			      CKPT_ARRAY_TREE_FOLDER);
	if (!rc && all)
		rc = add_name(t, CKPT_ARRAY_TREE_TOP, all, strlen(all), CKPT_ARRAY_TREE_NONE, CKPT_ARRAY_TREE_ALL,
			      CKPT_ARRAY_TREE_NONE);
	if (rc)
		ckpt_array_tree_free(t);
	else
		*ret_tree = t;
	return rc;
}

int ckpt_array_tree_add(struct ckpt_array_tree *t, const char *path, size_t array)
{
	struct way way;

	return fits(path) ? add_path(t, path, (uint32_t)array, NULL, 0, &way) : 0;
}

int ckpt_array_tree_new(const struct ckpt_catalog *c, struct ckpt_array_tree **ret_tree)
{
	CLEANUP_FREE struct adding *a = ckpt_calloc(1, sizeof(*a));
	CLEANUP_FREE uint32_t *leaves = ckpt_calloc(ckpt_catalog_count(c) + 1, sizeof(*leaves));
	struct ckpt_array_tree *t;
	int rc = a && leaves ? ckpt_array_tree_begin(CKPT_ARRAY_INDEX, &t) : -ENOMEM;

	if (rc)
		return rc;
	a->t = t;
	a->c = c;
	a->leaves = leaves;
	rc = add_all(a);
	if (rc)
		ckpt_array_tree_free(t);
	else
		*ret_tree = t;
	return rc;
}

void ckpt_array_tree_free(struct ckpt_array_tree *t)
{
	if (!t)
		return;
	free(t->items);
	free(t->types);
	free(t->heap);
	free(t->slots);
	free(t);
}

size_t ckpt_array_tree_bytes(const struct ckpt_array_tree *t)
{
	return sizeof(*t) + t->cap * sizeof(*t->items) + t->types_cap + t->heap_cap + t->slot_count * sizeof(*t->slots);
}

// --- Questions --------------------------------------------------------------------------------------------------------

int ckpt_array_tree_find(const struct ckpt_array_tree *t, const char *path, uint32_t *ret_at)
{
	uint32_t at = CKPT_ARRAY_TREE_TOP;

	while (*path) {
		size_t len = strcspn(path, "/");

		at = t->types[at] == CKPT_ARRAY_TREE_FOLDER ? *find_slot(t, at, path, len) : CKPT_ARRAY_TREE_NONE;
		if (at == CKPT_ARRAY_TREE_NONE)
			return -ENOENT;
		path += len + (path[len] == '/');
	}
	*ret_at = at;
	return 0;
}

enum ckpt_array_tree_type ckpt_array_tree_type(const struct ckpt_array_tree *t, uint32_t at)
{
	return (enum ckpt_array_tree_type)t->types[at];
}

size_t ckpt_array_tree_array(const struct ckpt_array_tree *t, uint32_t at)
{
	return t->items[at].of;
}

const char *ckpt_array_tree_name(const struct ckpt_array_tree *t, uint32_t at)
{
	return t->heap + t->items[at].text;
}

uint32_t ckpt_array_tree_first(const struct ckpt_array_tree *t, uint32_t folder)
{
	return t->items[folder].of;
}

uint32_t ckpt_array_tree_next(const struct ckpt_array_tree *t, uint32_t at)
{
	return t->items[at].next;
}
