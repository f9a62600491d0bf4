#include "core/base/part.h"

#include <stdalign.h>

size_t ckpt_parts_place(struct ckpt_part *const *parts, size_t count, size_t bytes)
{
	for (size_t i = 0; i < count; i++) {
		bytes = (bytes + alignof(max_align_t) - 1) / alignof(max_align_t) * alignof(max_align_t);
		parts[i]->offset = bytes;
		bytes += parts[i]->bytes;
	}
	return bytes;
}

void ckpt_parts_init(struct ckpt_part *const *parts, size_t count, void *object)
{
	for (size_t i = 0; i < count; i++)
		if (parts[i]->init)
			parts[i]->init(object);
}

void ckpt_parts_done(struct ckpt_part *const *parts, size_t count, void *object)
{
	for (size_t i = 0; i < count; i++)
		if (parts[i]->done)
			parts[i]->done(object);
}
