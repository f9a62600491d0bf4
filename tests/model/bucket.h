// The bucket: what all nodes share. It survives them. One thread.
#pragma once

#include "tests/model/wire.h"

struct bucket_object {
	char key[WIRE_KEY_MAX];
	uint8_t *data;
	size_t len;
	int64_t mtime_ns;
	uint64_t etag;
};

struct bucket {
	struct bucket_object *at; // by key
	size_t count;
	uint64_t etags;
	int64_t now_ns;
};

void bucket_empty(struct bucket *b);
const struct bucket_object *bucket_find(const struct bucket *b, const char *key);
int bucket_put(struct bucket *b, const char *key, const void *data, size_t len); // -EEXIST
int bucket_remove(struct bucket *b, const char *key);
// Does what w asks for, and makes an answer of it.
void bucket_do(struct bucket *b, const struct wire *w, struct wire *ret_answer);
