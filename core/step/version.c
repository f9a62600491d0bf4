#include "core/step/version.h"

#include "core/base/sys.h"
#include "core/base/util.h"

#include <stdlib.h>

#define WAIT_NS 1000000 // for memory

struct ckpt_version ckpt_version_none = {.refs = 1};

struct ckpt_version *ckpt_version_new(const struct ckpt_summary *is, struct ckpt_version **spare)
{
	struct ckpt_version *v = malloc(sizeof(*v));

	if (!v && spare)
		v = TAKE_PTR(*spare);
	while (!v && spare && !(v = malloc(sizeof(*v))))
		ckpt_sys.sleep_ns(WAIT_NS);
	if (!v)
		return NULL;
	if (spare && !*spare)
		*spare = malloc(sizeof(*v));
	*v = (struct ckpt_version){.refs = 1, .is = *is};
	return v;
}

struct ckpt_version *ckpt_version_ref(struct ckpt_version *v)
{
	if (v != &ckpt_version_none)
		__atomic_add_fetch(&v->refs, 1, __ATOMIC_RELAXED);
	return v;
}

void ckpt_version_unref(struct ckpt_version *v)
{
	if (v && v != &ckpt_version_none && !__atomic_sub_fetch(&v->refs, 1, __ATOMIC_ACQ_REL))
		free(v);
}
