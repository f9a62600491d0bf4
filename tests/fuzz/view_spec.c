// Names of views: any bytes are refused with a reason and a hint, or lead to values that are within their bounds and within the result.

#include "tests/fuzz/replay.h"

#include "core/array/cast.h"
#include "core/base/util.h"
#include "core/view/view_spec.h"

#include <errno.h>
#include <string.h>

#define TEXT_MAX 400

static bool is_inside(const struct ckpt_view_spec *s, const char *text)
{
	return text >= s->text && text + strlen(text) < s->text + sizeof(s->text);
}

static void try_globs(const struct ckpt_view_spec *s, const char *const *globs)
{
	size_t count = 0;

	for (; globs[count]; count++)
		fuzz_assert(is_inside(s, globs[count]) && *globs[count]);
	fuzz_assert(count <= CKPT_VIEW_GLOBS_MAX);
}

static void try_spec(const struct ckpt_view_spec *s)
{
	const char *const texts[] = {s->only_file, s->not_file, s->rename_file, s->prefix};

	try_globs(s, s->only);
	try_globs(s, s->not );
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		fuzz_assert(!texts[i] || (is_inside(s, texts[i]) && *texts[i]));
	fuzz_assert(!s->dtype || ckpt_is_floating(s->dtype));
	fuzz_assert(s->shards ? s->shard >= 1 && s->shard <= s->shards && s->shards <= CKPT_VIEW_SHARDS_MAX
			      : !s->shard && !s->axis);
	fuzz_assert(s->axis < CKPT_ARRAY_DIMS_MAX && s->unroll_axis < CKPT_ARRAY_DIMS_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	char name[TEXT_MAX + 1];
	struct ckpt_view_spec s;
	struct ckpt_view_why why;
	size_t n = MIN(len, (size_t)TEXT_MAX);
	int rc;

	memcpy(name, data, n);
	name[n] = '\0';
	rc = ckpt_view_spec_parse(name, &s, &why);
	fuzz_assert(!rc || rc == -EINVAL);
	if (rc)
		fuzz_assert(*why.why && *why.hint);
	else
		try_spec(&s);
	return 0;
}
