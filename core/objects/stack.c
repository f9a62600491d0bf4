#include "core/objects/stack.h"

#include "core/base/util.h"

static bool is_for(const struct ckpt_scheme *s, const char *url)
{
	size_t len = strlen(s->name);

	return url ? len && !strncmp(url, s->name, len) && !strncmp(url + len, "://", 3) : !len;
}

int ckpt_objects_open(const struct ckpt_objects_at *at, struct ckpt_objects **ret_objects)
{
	if (at->why)
		*at->why = '\0';
	for (const struct ckpt_scheme *s = ckpt_schemes; s->name; s++)
		if (is_for(s, at->url))
			return s->open(at, ret_objects);
	return -EPROTONOSUPPORT;
}
