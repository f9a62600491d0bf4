// Hostile files with arrays in them. The first five bytes make them large: that many zeros (a power of two) stand somewhere in
// the rest, so that offsets and lengths of real files can be met.
#include "tests/fuzz/replay.h"

#include "tests/support/array_files.h"

#include "core/base/util.h"
#include "core/cold/chunk.h"

#define HEAD_BYTES 5
#define ZEROS_MAX 34 // 16 GiB: 4096 chunks

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static struct ckpt_bytes file;
	struct ckpt_arrays *arrays = NULL;
	struct ckpt_source source;

	if (len < HEAD_BYTES)
		return 0;
	file.len = 0;
	ckpt_bytes_add(&file, data + HEAD_BYTES, len - HEAD_BYTES);
	file.zeros = data[0] % (ZEROS_MAX + 1) ? UINT64_C(1) << data[0] % (ZEROS_MAX + 1) : 0;
	file.zeros_at = ckpt_get32(data + 1) % (file.len + 1);
	fuzz_assert(!ckpt_bytes_arrays(&file, "a.npy", &arrays));
	if (arrays)
		ckpt_walk_arrays(arrays, file.len + file.zeros);
	ckpt_arrays_free(arrays);
	source = ckpt_bytes_source(&file);
	ckpt_walk_cuts(&source);
	return 0;
}
