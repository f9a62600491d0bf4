#include "core/remote/collecting.h"

#include "core/base/util.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int ckpt_collect_fail(struct ckpt_collecting *c, int rc, const char *why, ...)
{
	va_list args;

	va_start(args, why);
	vsnprintf(c->done->why, sizeof(c->done->why), why, args);
	va_end(args);
	return rc;
}

void ckpt_collect_count_object(struct ckpt_collect_count *to, const struct ckpt_collect_object *o)
{
	to->objects++;
	to->bytes += o->bytes;
}

static int by_name(const void *a, const void *b)
{
	return memcmp(((const struct ckpt_collect_object *)a)->name, ((const struct ckpt_collect_object *)b)->name,
		      CKPT_SHA256_LEN);
}

struct ckpt_collect_object *ckpt_collect_find(const struct ckpt_collect_list *list, const uint8_t name[CKPT_SHA256_LEN])
{
	struct ckpt_collect_object want;

	memcpy(want.name, name, sizeof(want.name));
	return list->count ? bsearch(&want, list->at, list->count, sizeof(*list->at), by_name) : NULL;
}

int ckpt_collect_entry_time(struct ckpt_collecting *c, uint64_t seq, int64_t *ret_put_ns)
{
	char key[CKPT_LOG_KEY_MAX];
	struct ckpt_object entry;
	int rc;

	for (size_t i = 0; i < c->time_count; i++)
		if (c->times[i].seq == seq) {
			*ret_put_ns = c->times[i].put_ns;
			return 0;
		}
	ckpt_log_key(seq, key);
	rc = ckpt_grow((void **)&c->times, &c->time_cap, c->time_count + 1, sizeof(*c->times));
	if (!rc)
		rc = ckpt_objects_head(c->there, key, &entry);
	if (rc)
		return ckpt_collect_fail(c, rc == -ENOENT ? -EBADMSG : rc, "%s cannot be looked at: %s", key,
					 strerror(-rc));
	c->times[c->time_count++] = (struct ckpt_collect_time){seq, entry.mtime_ns};
	*ret_put_ns = entry.mtime_ns;
	return 0;
}
