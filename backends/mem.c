// Objects in memory: an array sorted by key, under one mutex. Nothing survives the backend.
#include "backends/backends.h"

#include "core/base/lock.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#include <inttypes.h>
#include <stdio.h>

struct entry {
	char *key;
	void *data;
	struct ckpt_object object;
};

struct mem {
	struct ckpt_objects base;
	struct ckpt_lock lock;
	// Guarded by lock.
	struct entry *entries;
	size_t count, cap;
	uint64_t version; // of the last change: the etags
};

static struct mem *mem_of(struct ckpt_objects *o)
{
	return (struct mem *)o;
}

static void entry_done(struct entry *e)
{
	free(e->key);
	free(e->data);
}

// The place of the key, or where it would be inserted.
static size_t entry_find_locked(const struct mem *m, const char *key, bool *ret_found)
{
	size_t low = 0, high = m->count;

	*ret_found = false;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = strcmp(m->entries[middle].key, key);

		if (order == 0) {
			*ret_found = true;
			return middle;
		}
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct entry *entry_get_locked(const struct mem *m, const char *key)
{
	bool found;
	size_t at = entry_find_locked(m, key, &found);

	return found ? &m->entries[at] : NULL;
}

static void object_new_locked(struct mem *m, size_t len, struct ckpt_object *ret_object)
{
	*ret_object = (struct ckpt_object){.bytes = len, .mtime_ns = ckpt_sys.now_ns()};
	snprintf(ret_object->etag, sizeof(ret_object->etag), "v%" PRIu64, ++m->version);
}

static void *bytes_copy(const void *data, size_t len)
{
	void *copy = malloc(MAX(len, (size_t)1));

	if (copy && len)
		memcpy(copy, data, len);
	return copy;
}

static int mem_get(struct ckpt_objects *o, const char *key, uint64_t offset, void *buf, size_t len, size_t *ret_len,
		   struct ckpt_object *ret_object)
{
	struct mem *m = mem_of(o);
	LOCK_SCOPE(&m->lock);
	const struct entry *e = entry_get_locked(m, key);
	size_t n = 0;

	if (!e)
		return -ENOENT;
	if (offset < e->object.bytes)
		n = (size_t)MIN((uint64_t)len, e->object.bytes - offset);
	if (n)
		memcpy(buf, (const char *)e->data + offset, n);
	*ret_len = n;
	if (ret_object)
		*ret_object = e->object;
	return 0;
}

static int mem_head(struct ckpt_objects *o, const char *key, struct ckpt_object *ret_object)
{
	struct mem *m = mem_of(o);
	LOCK_SCOPE(&m->lock);
	const struct entry *e = entry_get_locked(m, key);

	if (!e)
		return -ENOENT;
	*ret_object = e->object;
	return 0;
}

// Takes over what new points to, on success only.
static int entry_insert_locked(struct mem *m, struct entry *new, struct ckpt_object *ret_object)
{
	bool found;
	size_t at = entry_find_locked(m, new->key, &found);

	if (found)
		return -EEXIST;
	if (ckpt_grow((void **)&m->entries, &m->cap, m->count + 1, sizeof(*m->entries)) < 0)
		return -ENOMEM;
	object_new_locked(m, (size_t) new->object.bytes, &new->object);
	memmove(&m->entries[at + 1], &m->entries[at], (m->count - at) * sizeof(*m->entries));
	m->entries[at] = *new;
	m->count++;
	*ret_object = new->object;
	*new = (struct entry){0};
	return 0;
}

static int mem_put(struct ckpt_objects *o, const char *key, const void *data, size_t len,
		   bool frees __attribute__((unused)), struct ckpt_object *ret_object)
{
	struct mem *m = mem_of(o);
	CLEANUP(entry_done) struct entry new = {.key = strdup(key), .data = bytes_copy(data, len)};

	if (!new.key || !new.data)
		return -ENOMEM;
	new.object.bytes = len;
	LOCK_SCOPE(&m->lock);
	return entry_insert_locked(m, &new, ret_object);
}

static int mem_remove(struct ckpt_objects *o, const char *key)
{
	struct mem *m = mem_of(o);
	LOCK_SCOPE(&m->lock);
	bool found;
	size_t at = entry_find_locked(m, key, &found);

	if (!found)
		return -ENOENT;
	entry_done(&m->entries[at]);
	m->count--;
	memmove(&m->entries[at], &m->entries[at + 1], (m->count - at) * sizeof(*m->entries));
	return 0;
}

// The next object after `after`, copied, so that no callback runs under the lock.
static int entry_next(struct mem *m, const char *prefix, const char *after, char *ret_key,
		      struct ckpt_object *ret_object)
{
	LOCK_SCOPE(&m->lock);
	bool found;
	size_t at = entry_find_locked(m, strcmp(after, prefix) >= 0 ? after : prefix, &found);

	if (at < m->count && strcmp(m->entries[at].key, after) == 0)
		at++;
	if (at == m->count || strncmp(m->entries[at].key, prefix, strlen(prefix)) != 0)
		return -ENOENT;
	strcpy(ret_key, m->entries[at].key);
	*ret_object = m->entries[at].object;
	return 0;
}

static int mem_list(struct ckpt_objects *o, const char *prefix, const char *after, ckpt_objects_list_fn *fn, void *arg)
{
	char key[CKPT_OBJECT_KEY_MAX + 1];
	struct ckpt_object object;
	int r = 0;

	while (r == 0 && entry_next(mem_of(o), prefix, after, key, &object) == 0) {
		r = fn(arg, key, &object);
		after = key;
	}
	return r;
}

static void mem_close(struct ckpt_objects *o)
{
	struct mem *m = mem_of(o);

	for (size_t i = 0; i < m->count; i++)
		entry_done(&m->entries[i]);
	free(m->entries);
	ckpt_lock_done(&m->lock);
	free(m);
}

static const struct ckpt_objects_ops mem_ops = {
	.name = "mem",
	.get = mem_get,
	.head = mem_head,
	.put = mem_put,
	.remove = mem_remove,
	.list = mem_list,
	.close = mem_close,
};

int ckpt_mem_new(struct ckpt_objects **ret_objects)
{
	struct mem *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	m->base.ops = &mem_ops;
	ckpt_lock_init(&m->lock, CKPT_LOCK_LEAF);
	*ret_objects = &m->base;
	return 0;
}
