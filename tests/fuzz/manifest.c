// Hostile manifests. Each input is tried as it is and with its digest made right.

#include "tests/fuzz/replay.h"
#include "tests/support/formats.h"

#include "core/base/util.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	CLEANUP_FREE uint8_t *copy = malloc(len ? len : 1);

	if (!copy)
		return 0;
	ckpt_try_manifest(data, len);
	if (len)
		memcpy(copy, data, len);
	ckpt_sample_reseal(copy, len);
	ckpt_try_manifest(copy, len);
	return 0;
}
