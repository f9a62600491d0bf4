// torch.distributed.checkpoint. catalog_dcp.c has the form: .distcp files are torch.save() of one tensor after another, .metadata says
// where each begins. .metadata is the last file: without it nothing is a checkpoint.
#include "core/array/pickle_write.h"
#include "core/array/write_torch.h"
#include "core/base/util.h"

#include <stdio.h>

#define MODULE "torch.distributed.checkpoint.metadata\n"

struct place { // of a tensor in the files
	uint64_t offset, bytes;
	size_t file;
};

static void put_size(struct ckpt_pickle_writer *p, const uint64_t *sizes, unsigned count)
{
	ckpt_pickle_write_global(p, "torch\nSize\n");
	ckpt_pickle_write_sizes(p, sizes, count);
	ckpt_pickle_write_ops(p, "\x85R"); // a tuple of one
}

static void put_object(struct ckpt_pickle_writer *p, const char *class)
{
	ckpt_pickle_write_global(p, class);
	ckpt_pickle_write_ops(p, ")\x81");
}

// TensorProperties: (dtype, layout, requires_grad, memory_format, pin_memory).
static void put_properties(struct ckpt_pickle_writer *p, enum ckpt_dtype dtype)
{
	put_object(p, MODULE "TensorProperties\n");
	ckpt_pickle_write_ops(p, "(");
	ckpt_pickle_write_global(p, ckpt_torch_global(dtype));
	ckpt_pickle_write_global(p, "torch.serialization\n_get_layout\n");
	ckpt_pickle_write_text(p, "torch.strided");
	ckpt_pickle_write_ops(p, "\x85R\x89");
	ckpt_pickle_write_global(p, "builtins\ngetattr\n");
	ckpt_pickle_write_global(p, MODULE "_MEM_FORMAT_ENCODING\n");
	ckpt_pickle_write_text(p, "TORCH_CONTIGUOUS_FORMAT");
	ckpt_pickle_write_ops(p, "\x86R\x89tb");
}

static void put_array(struct ckpt_pickle_writer *p, const struct ckpt_write_array *a)
{
	static const uint64_t origin[CKPT_ARRAY_DIMS_MAX];

	put_object(p, MODULE "TensorStorageMetadata\n");
	ckpt_pickle_write_ops(p, "}(");
	ckpt_pickle_write_text(p, "properties");
	put_properties(p, a->dtype);
	ckpt_pickle_write_text(p, "size");
	put_size(p, a->shape, a->ndim);
	ckpt_pickle_write_text(p, "chunks");
	ckpt_pickle_write_ops(p, "]");
	put_object(p, MODULE "ChunkStorageMetadata\n");
	ckpt_pickle_write_ops(p, "}(");
	ckpt_pickle_write_text(p, "offsets");
	put_size(p, origin, a->ndim);
	ckpt_pickle_write_text(p, "sizes");
	put_size(p, a->shape, a->ndim);
	ckpt_pickle_write_ops(p, "ubaub");
}

static void put_place(struct ckpt_pickle_writer *p, const struct ckpt_write_array *a, const struct place *at)
{
	static const uint64_t origin[CKPT_ARRAY_DIMS_MAX];
	char file[48];

	snprintf(file, sizeof(file), "__0_%zu.distcp", at->file);
	put_object(p, MODULE "MetadataIndex\n");
	ckpt_pickle_write_ops(p, "}(");
	ckpt_pickle_write_text(p, "fqn");
	ckpt_pickle_write_text(p, a->name);
	ckpt_pickle_write_text(p, "index");
	ckpt_pickle_write_number(p, 0);
	ckpt_pickle_write_text(p, "offset");
	put_size(p, origin, a->ndim);
	ckpt_pickle_write_ops(p, "ub");
	put_object(p, "torch.distributed.checkpoint.filesystem\n_StorageInfo\n");
	ckpt_pickle_write_ops(p, "}(");
	ckpt_pickle_write_text(p, "relative_path");
	ckpt_pickle_write_text(p, file);
	ckpt_pickle_write_text(p, "offset");
	ckpt_pickle_write_number(p, at->offset);
	ckpt_pickle_write_text(p, "length");
	ckpt_pickle_write_number(p, at->bytes);
	ckpt_pickle_write_ops(p, "ub");
}

// Names are not parted into dictionaries: planner_data has each as a path of one name.
static void put_metadata(struct ckpt_pickle_writer *p, const struct ckpt_write_plan *plan, const struct place *places)
{
	put_object(p, MODULE "Metadata\n");
	ckpt_pickle_write_ops(p, "}(");
	ckpt_pickle_write_text(p, "state_dict_metadata");
	ckpt_pickle_write_ops(p, "}(");
	for (size_t i = 0; i < plan->count; i++) {
		ckpt_pickle_write_text(p, plan->arrays[i].name);
		put_array(p, &plan->arrays[i]);
	}
	ckpt_pickle_write_ops(p, "u");
	ckpt_pickle_write_text(p, "planner_data");
	ckpt_pickle_write_ops(p, "}(");
	for (size_t i = 0; i < plan->count; i++) {
		ckpt_pickle_write_text(p, plan->arrays[i].name);
		ckpt_pickle_write_text(p, plan->arrays[i].name);
		ckpt_pickle_write_ops(p, "\x85");
	}
	ckpt_pickle_write_ops(p, "u");
	ckpt_pickle_write_text(p, "storage_data");
	ckpt_pickle_write_ops(p, "}(");
	for (size_t i = 0; i < plan->count; i++)
		put_place(p, &plan->arrays[i], &places[i]);
	ckpt_pickle_write_ops(p, "u");
	ckpt_pickle_write_text(p, "storage_meta");
	ckpt_pickle_write_ops(p, "N");
	ckpt_pickle_write_text(p, "version");
	ckpt_pickle_write_text(p, "1.0.0");
	ckpt_pickle_write_ops(p, "ub");
}

static void make(struct ckpt_layout *l)
{
	CLEANUP_FREE struct place *places = ckpt_calloc(l->plan->count + 1, sizeof(*places));
	struct ckpt_pickle_writer p;
	struct ckpt_shards s;

	if (!places)
		l->rc = -ENOMEM;
	ckpt_shards_make(l, &s);
	for (size_t k = 0, i = 0; k < s.count && !l->rc; k++) {
		ckpt_layout_file(l, "__0_%zu.distcp", k);
		for (; i < s.ends[k] && !l->rc; i++) {
			places[i] = (struct place){.file = k, .offset = ckpt_layout_at(l)};
			ckpt_torch_add(l, i, i + 1, true);
			places[i].bytes = ckpt_layout_at(l) - places[i].offset;
		}
	}
	ckpt_shards_done(&s);
	if (l->rc)
		return;
	ckpt_pickle_write_begin(&p);
	put_metadata(&p, l->plan, places);
	ckpt_pickle_write_end(&p);
	ckpt_layout_file(l, ".metadata");
	ckpt_layout_add_buffer(l, &p.out);
}

const struct ckpt_write_format ckpt_write_dcp = {
	.name = "dcp",
	.dtype = ckpt_torch_global,
	.shards = true,
	.is_text = true,
	.make = make,
};
