// safetensors (Hugging Face's safetensors/README.md): within a file wider elements come first, so that all are aligned.
#include "core/array/write_layout.h"
#include "core/base/util.h"
#include "core/limits.h"

#include <stdio.h>

#define ALIGN 8
#define BLOCK 4096       // of most disks
#define SHARED_LEAST 256 // blocks of a file; for fewer it is not made longer

static const char *name_of(enum ckpt_dtype dtype)
{
	static const char *const names[CKPT_DTYPE_COUNT] = {
		[CKPT_DTYPE_BOOL] = "BOOL",
		[CKPT_DTYPE_I8] = "I8",
		[CKPT_DTYPE_I16] = "I16",
		[CKPT_DTYPE_I32] = "I32",
		[CKPT_DTYPE_I64] = "I64",
		[CKPT_DTYPE_U8] = "U8",
		[CKPT_DTYPE_U16] = "U16",
		[CKPT_DTYPE_U32] = "U32",
		[CKPT_DTYPE_U64] = "U64",
		[CKPT_DTYPE_F16] = "F16",
		[CKPT_DTYPE_F32] = "F32",
		[CKPT_DTYPE_F64] = "F64",
		[CKPT_DTYPE_BF16] = "BF16",
		[CKPT_DTYPE_F8E4M3] = "F8_E4M3",
		[CKPT_DTYPE_F8E5M2] = "F8_E5M2",
		[CKPT_DTYPE_C64] = "C64",
		[CKPT_DTYPE_F8E4M3FNUZ] = "F8_E4M3FNUZ",
		[CKPT_DTYPE_F8E5M2FNUZ] = "F8_E5M2FNUZ",
		[CKPT_DTYPE_F8E8M0] = "F8_E8M0",
	};

	return names[dtype];
}

static int by_width(const void *one, const void *other, void *arg)
{
	const struct ckpt_write_array *arrays = arg;
	size_t a = *(const size_t *)one, b = *(const size_t *)other;
	unsigned a_width = ckpt_dtype_width(arrays[a].dtype), b_width = ckpt_dtype_width(arrays[b].dtype);

	return a_width != b_width ? (a_width < b_width) - (a_width > b_width) : (a > b) - (a < b);
}

static void put_tensor(struct ckpt_buffer *b, const struct ckpt_write_array *a, uint64_t offset)
{
	ckpt_buffer_text(b, ",");
	ckpt_buffer_json(b, a->name);
	ckpt_buffer_print(b, ":{\"dtype\":\"%s\",\"shape\":[", name_of(a->dtype));
	for (unsigned i = 0; i < a->ndim; i++)
		ckpt_buffer_print(b, "%s%llu", i ? "," : "", (unsigned long long)a->shape[i]);
	ckpt_buffer_print(b, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)offset,
			  (unsigned long long)(offset + ckpt_write_bytes(a)));
}

// The blocks that both places have whole, where they lie alike in them.
static uint64_t whole_blocks(uint64_t at, uint64_t bytes)
{
	uint64_t begin = (at + BLOCK - 1) / BLOCK, end = (at + bytes) / BLOCK;

	return end > begin ? end - begin : 0;
}

// The spaces behind a header of this length with which most blocks of the arrays can be shared with their sources. order: of those in the file.
static size_t find_spaces(const struct ckpt_write_plan *plan, const size_t *order, size_t count, uint64_t header)
{
	uint64_t blocks[BLOCK / ALIGN] = {0}, at = header;
	size_t best = 0;

	for (size_t i = 0; plan->sources && i < count; i++) {
		uint64_t source = plan->sources[order[i]], bytes = ckpt_write_bytes(&plan->arrays[order[i]]),
			 spaces = (source - at) % BLOCK;

		if (source != CKPT_WRITE_NO_SOURCE && spaces % ALIGN == 0)
			blocks[spaces / ALIGN] += whole_blocks(source, bytes);
		at += bytes;
	}
	for (size_t i = 1; i < ARRAY_LEN(blocks); i++)
		if (blocks[i] > blocks[best])
			best = i;
	return blocks[best] < SHARED_LEAST ? 0 : best * ALIGN;
}

// order: of arrays [first, end).
static void make_file(struct ckpt_layout *l, size_t *order, size_t first, size_t end)
{
	static const char front[] = "{\"__metadata__\":{\"format\":\"pt\"}";
	const struct ckpt_write_array *arrays = l->plan->arrays;
	struct ckpt_buffer b = {0};
	uint64_t offset = 0;
	uint8_t len[8];

	for (size_t i = first; i < end; i++)
		order[i] = i;
	qsort_r(order + first, end - first, sizeof(*order), by_width, (void *)arrays);
	ckpt_buffer_text(&b, front);
	for (size_t i = first; i < end; i++) {
		if (!strcmp(arrays[order[i]].name, "__metadata__"))
			ckpt_layout_refuse(l, &arrays[order[i]], "safetensors has this name for itself");
		put_tensor(&b, &arrays[order[i]], offset);
		offset += ckpt_write_bytes(&arrays[order[i]]);
	}
	ckpt_buffer_text(&b, "}");
	ckpt_buffer_fill(&b, ' ', (ALIGN - b.len % ALIGN) % ALIGN);
	ckpt_buffer_fill(&b, ' ', find_spaces(l->plan, order + first, end - first, sizeof(len) + b.len));
	if (b.len > CKPT_SAFETENSORS_HEADER_MAX)
		ckpt_layout_refuse(l, NULL, "a header of safetensors has 100 MB at most: give a smaller shard_bytes");
	ckpt_put64(len, b.len);
	ckpt_layout_add(l, len, sizeof(len));
	ckpt_layout_add_buffer(l, &b);
	for (size_t i = first; i < end && !l->rc; i++)
		ckpt_layout_add_array(l, order[i], 0, ckpt_write_bytes(&arrays[order[i]]), 0);
}

static void make(struct ckpt_layout *l)
{
	CLEANUP_FREE size_t *order = ckpt_calloc(l->plan->count + 1, sizeof(*order));
	struct ckpt_shards s;

	if (!order)
		l->rc = -ENOMEM;
	ckpt_shards_make(l, &s);
	for (size_t k = 0; k < s.count && !l->rc; k++) {
		if (s.count == 1)
			ckpt_layout_file(l, "model.safetensors");
		else
			ckpt_layout_file(l, "model-%05zu-of-%05zu.safetensors", k + 1, s.count);
		if (!l->rc)
			make_file(l, order, k ? s.ends[k - 1] : 0, s.ends[k]);
	}
	if (s.count > 1 && !l->rc)
		ckpt_shards_index(l, &s, "model.safetensors.index.json", "model", ".safetensors");
	ckpt_shards_done(&s);
}

const struct ckpt_write_format ckpt_write_safetensors = {
	.name = "safetensors",
	.dtype = name_of,
	.shards = true,
	.is_text = true,
	.make = make,
};
