// Hostile finalize markers: what is taken as metadata has one canonical form, which is taken again as it is; what is
// refused says why. On a thread with as little stack as those have that serve a commit.

#include "tests/fuzz/replay.h"

#include "core/base/json.h"
#include "core/base/util.h"
#include "core/limits.h"
#include "core/record/metadata.h"

#include <pthread.h>

#define STACK_BYTES (256 << 10) // as in fs/call.c

struct text {
	const uint8_t *data;
	size_t len;
};

// As a value of an extended attribute, and as metrics.json.
static void try_others(const struct text *in)
{
	CLEANUP_FREE char *copy = malloc(in->len + 1);
	json_t *value = NULL;
	int rc = ckpt_metadata_value((const char *)in->data, in->len, &value);

	fuzz_assert(rc ? rc == -EINVAL && !value : value != NULL);
	json_decref(value);
	memcpy(copy, in->data, in->len);
	ckpt_json_tame(copy, in->len);
	rc = ckpt_json_load(copy, in->len, 0, NULL, &value);
	fuzz_assert(rc == 0 || rc == -EINVAL);
	json_decref(value);
}

static void *try_marker(void *arg)
{
	const struct text *in = arg;

	if (in->len)
		try_others(in);
	CLEANUP_FREE char *json = NULL, *why = NULL, *again = NULL;
	int rc = ckpt_metadata_parse((const char *)in->data, in->len, &json, &why);
	bool temporary;

	fuzz_assert(rc == 0 || rc == -EINVAL || rc == -EFBIG);
	fuzz_assert(rc ? why && !json : !why);
	if (!json)
		return NULL;
	(void)ckpt_metadata_temporary(json, &temporary);
	CLEANUP_FREE char *no = NULL;
	rc = ckpt_metadata_parse(json, strlen(json), &again, &no);
	// What is written with escapes for half its bytes may be longer than what came, and then too long.
	fuzz_assert(rc == 0 || (rc == -EFBIG && strlen(json) > CKPT_METADATA_BYTES_MAX));
	fuzz_assert(rc || !strcmp(json, again));
	CLEANUP_FREE char *merged = NULL;
	rc = ckpt_metadata_merge(json, json, &merged);
	fuzz_assert(rc == -EFBIG || (rc == 0 && !strcmp(json, merged)));
	return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct text in = {data, len};
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	if (!pthread_create(&thread, &attr, try_marker, &in))
		pthread_join(thread, NULL);
	pthread_attr_destroy(&attr);
	return 0;
}
