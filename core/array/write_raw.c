// Raw bytes and arrays.json, whose form catalog_descriptor.c has. arrays.json is the last file: without it nothing is a checkpoint.
//
// Large arrays begin at multiples of a page, so that a program can read them past the page cache; small ones at multiples of 64.
#include "core/array/write_layout.h"
#include "core/base/util.h"

#define PAGE UINT64_C(4096)
#define LARGE (UINT64_C(1) << 20)
#define SMALL_ALIGN UINT64_C(64)

static const char *dtype_of(enum ckpt_dtype dtype)
{
	return ckpt_dtype_bits(dtype) >= 8 ? ckpt_dtype_name(dtype) : NULL;
}

static void align(struct ckpt_layout *l, uint64_t to)
{
	uint64_t over = ckpt_layout_at(l) % to;

	if (over)
		ckpt_layout_skip(l, to - over);
}

static void put_numbers(struct ckpt_buffer *b, const uint64_t *numbers, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		ckpt_buffer_print(b, "%s%llu", i ? ", " : "", (unsigned long long)numbers[i]);
}

static void put_array(struct ckpt_buffer *b, const struct ckpt_write_array *a, const struct ckpt_shards *s,
		      size_t shard, uint64_t offset)
{
	ckpt_buffer_text(b, "{\"name\": ");
	ckpt_buffer_json(b, a->name);
	ckpt_buffer_print(b, ", \"dtype\": \"%s\", \"shape\": [", ckpt_dtype_name(a->dtype));
	put_numbers(b, a->shape, a->ndim);
	ckpt_buffer_text(b, "], \"pieces\": [{\"file\": ");
	if (s->count == 1)
		ckpt_buffer_text(b, "\"arrays.bin\"");
	else
		ckpt_buffer_print(b, "\"arrays-%05zu-of-%05zu.bin\"", shard + 1, s->count);
	ckpt_buffer_print(b, ", \"offset\": %llu}]}", (unsigned long long)offset);
}

static void make(struct ckpt_layout *l)
{
	struct ckpt_buffer json = {0};
	struct ckpt_shards s;

	ckpt_shards_make(l, &s);
	ckpt_buffer_text(&json, "{\"arrays\": [");
	for (size_t k = 0, i = 0; k < s.count && !l->rc; k++) {
		if (s.count == 1)
			ckpt_layout_file(l, "arrays.bin");
		else
			ckpt_layout_file(l, "arrays-%05zu-of-%05zu.bin", k + 1, s.count);
		for (; i < s.ends[k] && !l->rc; i++) {
			const struct ckpt_write_array *a = &l->plan->arrays[i];
			uint64_t bytes = ckpt_write_bytes(a);

			if (bytes)
				align(l, bytes >= LARGE ? PAGE : SMALL_ALIGN);
			ckpt_buffer_text(&json, i ? ",\n" : "\n");
			put_array(&json, a, &s, k, ckpt_layout_at(l));
			ckpt_layout_add_array(l, i, 0, bytes, 0);
		}
	}
	ckpt_shards_done(&s);
	ckpt_buffer_text(&json, "\n]}\n");
	if (!l->rc)
		ckpt_layout_file(l, "arrays.json");
	ckpt_layout_add_buffer(l, &json);
}

const struct ckpt_write_format ckpt_write_raw = {
	.name = "raw",
	.dtype = dtype_of,
	.shards = true,
	.is_text = true,
	.make = make,
};
