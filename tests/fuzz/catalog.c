// Hostile files of each format of the catalog. The first byte chooses the file's name, and the second a part of it that is a
// pickle: such an input stands in a zip as torch.save() writes one, so that mutations meet its opcodes. Of OCDBT the inputs are the
// bodies of a manifest and of nodes, which get lengths and checksums that are right. The checksums of HDF5 are made right where the reader
// refuses one. Of DeepSpeed's ZeRO they are the pickles of the model states and of the optimizer's.
#include "tests/fuzz/replay.h"

#include "tests/support/catalog_files.h"

#include "core/base/util.h"

#define HEAD_BYTES 2
#define OCDBT "s/manifest.ocdbt"
#define ZERO "s/mp_rank_00_model_states.pt"

static const char *const names[] = {"a.npy",
				    "b.npz",
				    "c.safetensors",
				    "d.pt",
				    "e.gguf",
				    "s/.metadata",
				    "s/.zarray",
				    "s/zarr.json",
				    OCDBT,
				    "m.safetensors.index.json",
				    "s/arrays.json",
				    "f.msgpack",
				    "s/_METADATA",
				    "s/tensorstore_index.json",
				    "s/m_structure.json",
				    ZERO,
				    "i.h5"};

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

// Bodies behind each other, with their lengths of two bytes: that of the manifest first. Nodes lie in one file, each at a multiple of
// 256 bytes, so that a mutation can hardly lose it.
static int read_ocdbt(const uint8_t *data, size_t len)
{
	static struct ckpt_sample_file files[] = {{.path = OCDBT}, {.path = "s/d/0"}};
	static const uint8_t zeros[256];
	struct ckpt_catalog *c;

	files[0].bytes.len = files[1].bytes.len = 0;
	for (int which = 0; len >= 2; which = 1) {
		size_t body = MIN((size_t)ckpt_get16(data), len - 2);
		struct ckpt_bytes *b = &files[which].bytes;

		ckpt_sample_block(b, which ? CKPT_SAMPLE_NODE : CKPT_SAMPLE_MANIFEST, data + 2, body);
		if (which)
			ckpt_bytes_add(b, zeros, -b->len % 256);
		data += 2 + body;
		len -= 2 + body;
	}
	fuzz_assert(!ckpt_catalog_of_files(files, ARRAY_LEN(files), OCDBT, &c));
	ckpt_walk_catalog_of(c, files, ARRAY_LEN(files));
	ckpt_catalog_free(c);
	return 0;
}

// Pickles behind each other, with their lengths of two bytes.
static int read_zero(const uint8_t *data, size_t len, bool is_stage_3)
{
	static struct ckpt_sample_file files[] = {{0},
						  {.path = "s/zero_pp_rank_0_mp_rank_00_optim_states.pt"},
						  {.path = "s/zero_pp_rank_1_mp_rank_00_optim_states.pt"}};
	struct ckpt_catalog *c;

	files[0].path = is_stage_3 ? "s/zero_pp_rank_0_mp_rank_00_model_states.pt" : ZERO;
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		size_t body = len >= 2 ? MIN((size_t)ckpt_get16(data), len - 2) : 0;

		files[i].bytes.len = files[i].bytes.zeros = 0;
		wrap(&files[i].bytes, len >= 2 ? data + 2 : data, body);
		data += len >= 2 ? 2 + body : 0;
		len -= len >= 2 ? 2 + body : 0;
	}
	fuzz_assert(!ckpt_catalog_of_files(files, ARRAY_LEN(files), NULL, &c));
	ckpt_walk_catalog_of(c, files, ARRAY_LEN(files));
	ckpt_catalog_free(c);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static struct ckpt_bytes file;
	struct ckpt_catalog *c;

	if (len < HEAD_BYTES)
		return 0;
	if (!strcmp(names[data[0] % ARRAY_LEN(names)], OCDBT))
		return read_ocdbt(data + HEAD_BYTES, len - HEAD_BYTES);
	if (!strcmp(names[data[0] % ARRAY_LEN(names)], ZERO))
		return read_zero(data + HEAD_BYTES, len - HEAD_BYTES, data[1] % 2);
	file.len = file.zeros = 0;
	if (data[1] % 2)
		wrap(&file, data + HEAD_BYTES, len - HEAD_BYTES);
	else
		ckpt_bytes_add(&file, data + HEAD_BYTES, len - HEAD_BYTES);
	ckpt_sample_sums(&file, names[data[0] % ARRAY_LEN(names)]);
	fuzz_assert(!ckpt_catalog_of_bytes(&file, names[data[0] % ARRAY_LEN(names)], &c));
	ckpt_walk_catalog(c, file.len + file.zeros);
	ckpt_catalog_free(c);
	return 0;
}
