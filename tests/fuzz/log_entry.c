// Hostile entries of the log. Each input is tried as it is and with its digest made right.

#include "tests/fuzz/replay.h"
#include "tests/support/formats.h"

#include "core/base/util.h"
#include "core/log/entry.h"

#include <assert.h>

// An entry that is let in can be walked, and has as many operations as it says.
static void try_entry(const uint8_t *data, size_t len)
{
	struct ckpt_log_entry entry;
	struct ckpt_operation op;
	size_t cursor = 0, bytes = 0;
	uint32_t count = 0;

	if (ckpt_log_entry_decode(data, len, &entry))
		return;
	for (; ckpt_log_entry_next(&entry, &cursor, &op); count++)
		for (size_t i = 0; i < op.len; i++)
			bytes += ((const uint8_t *)op.body)[i];
	assert(count == entry.count && cursor == entry.operations_len && bytes < SIZE_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	CLEANUP_FREE uint8_t *copy = malloc(len ? len : 1);

	if (!copy)
		return 0;
	try_entry(data, len);
	if (len)
		memcpy(copy, data, len);
	ckpt_sample_reseal(copy, len);
	try_entry(copy, len);
	return 0;
}
