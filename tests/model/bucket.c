#include "tests/model/bucket.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t place(const struct bucket *b, const char *key)
{
	size_t i = 0;

	while (i < b->count && strcmp(b->at[i].key, key) < 0)
		i++;
	return i;
}

const struct bucket_object *bucket_find(const struct bucket *b, const char *key)
{
	size_t i = place(b, key);

	return i < b->count && !strcmp(b->at[i].key, key) ? &b->at[i] : NULL;
}

int bucket_put(struct bucket *b, const char *key, const void *data, size_t len)
{
	size_t i = place(b, key);
	struct bucket_object *o;

	if (bucket_find(b, key))
		return -EEXIST;
	b->at = realloc(b->at, (b->count + 1) * sizeof(*b->at));
	o = &b->at[i];
	memmove(o + 1, o, (b->count++ - i) * sizeof(*o));
	snprintf(o->key, sizeof(o->key), "%s", key);
	o->data = malloc(len + 1);
	memcpy(o->data, data, len);
	o->len = len;
	o->mtime_ns = ++b->now_ns;
	o->etag = ++b->etags;
	return 0;
}

int bucket_remove(struct bucket *b, const char *key)
{
	size_t i = place(b, key);

	if (!bucket_find(b, key))
		return -ENOENT;
	free(b->at[i].data);
	memmove(&b->at[i], &b->at[i + 1], (--b->count - i) * sizeof(*b->at));
	return 0;
}

void bucket_empty(struct bucket *b)
{
	for (size_t i = 0; i < b->count; i++)
		free(b->at[i].data);
	free(b->at);
	*b = (struct bucket){.now_ns = b->now_ns};
}

static void describe(struct wire *w, const struct bucket_object *o)
{
	w->object_bytes = o->len;
	w->object_mtime_ns = o->mtime_ns;
	snprintf(w->object_etag, sizeof(w->object_etag), "v%" PRIu64, o->etag);
}

static void list(const struct bucket *b, const char *prefix, struct wire *ret)
{
	for (size_t i = 0; i < b->count; i++) {
		struct wire_object *o = (struct wire_object *)(ret->bytes + ret->len);

		if (strncmp(b->at[i].key, prefix, strlen(prefix)) || ret->len + sizeof(*o) > WIRE_BYTES_MAX)
			continue;
		*o = (struct wire_object){.bytes = b->at[i].len, .mtime_ns = b->at[i].mtime_ns};
		memcpy(o->key, b->at[i].key, sizeof(o->key));
		snprintf(o->etag, sizeof(o->etag), "v%" PRIu64, b->at[i].etag);
		ret->len += (uint32_t)sizeof(*o);
	}
}

void bucket_do(struct bucket *b, const struct wire *w, struct wire *ret)
{
	const struct bucket_object *o;

	ret->kind = WIRE_ANSWER;
	ret->slot = w->slot;
	ret->rc = 0;
	ret->len = 0;
	if (w->kind == WIRE_PUT)
		ret->rc = bucket_put(b, w->key, w->bytes, w->len);
	else if (w->kind == WIRE_REMOVE)
		ret->rc = bucket_remove(b, w->key);
	else if (w->kind == WIRE_LIST)
		list(b, w->key, ret);
	if (w->kind != WIRE_GET && w->kind != WIRE_HEAD && w->kind != WIRE_PUT)
		return;
	o = bucket_find(b, w->key);
	if (!o) {
		ret->rc = -ENOENT;
		return;
	}
	describe(ret, o);
	if (w->kind == WIRE_GET) {
		memcpy(ret->bytes, o->data, o->len);
		ret->len = (uint32_t)o->len;
	}
}
