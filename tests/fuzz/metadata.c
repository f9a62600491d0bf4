// Hostile finalize markers: what is taken as metadata has one canonical form, which is taken again as it is; what is
// refused says why. On a thread with as little stack as those have that serve a commit.

#include "tests/fuzz/replay.h"

#include "core/limits.h"
#include "core/metadata.h"
#include "core/util.h"

#include <pthread.h>

#define STACK_BYTES (256 << 10) // as in fs/call.c

struct text {
	const uint8_t *data;
	size_t len;
};

static void *try_marker(void *arg)
{
	const struct text *in = arg;
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
