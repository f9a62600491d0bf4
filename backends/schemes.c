// Which backend is for which URL.
#include "backends/backends.h"
#include "core/objects/stack.h"

static int open_directory(const struct ckpt_objects_at *at, struct ckpt_objects **ret_objects)
{
	return ckpt_local_open(at->dirfd, at->writable, ret_objects);
}

const struct ckpt_scheme ckpt_schemes[] = {
	{"", open_directory},
	{0},
};
