// Hostile files of each format of the catalog. The first byte chooses the file's name, and the second a part of it that is a
// pickle: such an input stands in a zip as torch.save() writes one, so that mutations meet its opcodes.
#include "tests/fuzz/replay.h"

#include "tests/support/catalog_files.h"

#include "core/base/util.h"

#define HEAD_BYTES 2

static const char *const names[] = {"a.npy",  "b.npz",       "c.safetensors", "d.pt",
				    "e.gguf", "s/.metadata", "s/.zarray",     "s/zarr.json"};

static void wrap(struct ckpt_bytes *file, const uint8_t *data, size_t len)
{
	struct ckpt_zip_sample z;

	ckpt_sample_zip_begin(&z, file);
	ckpt_sample_zip_add(&z, &(struct ckpt_zip_part){.name = "a/data.pkl", .data = data, .len = len});
	ckpt_sample_zip_add(&z, &(struct ckpt_zip_part){.name = "a/byteorder", .data = "little", .len = 6});
	ckpt_sample_zip_add(&z, &(struct ckpt_zip_part){.name = "a/data/0", .data = "01234567", .len = 8});
	ckpt_sample_zip_add(&z, &(struct ckpt_zip_part){.name = "a/data/1", .zeros = 4096});
	ckpt_sample_zip_end(&z, false);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static struct ckpt_bytes file;
	struct ckpt_catalog *c;

	if (len < HEAD_BYTES)
		return 0;
	file.len = file.zeros = 0;
	if (data[1] % 2)
		wrap(&file, data + HEAD_BYTES, len - HEAD_BYTES);
	else
		ckpt_bytes_add(&file, data + HEAD_BYTES, len - HEAD_BYTES);
	fuzz_assert(!ckpt_catalog_of_bytes(&file, names[data[0] % ARRAY_LEN(names)], &c));
	ckpt_walk_catalog(c, file.len + file.zeros);
	ckpt_catalog_free(c);
	return 0;
}
