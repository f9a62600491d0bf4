#include "tools/cuda/save_blocks.h"

#include "core/array/array_format.h"
#include "core/base/util.h"
#include "core/codec/codec_zlib.h"

#include <stdio.h>

// --- The plan ---------------------------------------------------------------------------------------------------------------

static enum ckpt_dtype dtype_of(const char *name)
{
	for (int i = 1; i < CKPT_DTYPE_COUNT; i++) {
		const char *numpy = ckpt_dtype_numpy(i);

		if (!strcmp(ckpt_dtype_name(i), name) || (numpy && !strcmp(numpy, name)))
			return i;
	}
	return CKPT_DTYPE_NONE;
}

static int copy_plan(struct ckpt_save_blocks *b, const struct ckpt_cuda_plan *plan, char *why)
{
	size_t texts = 0, dims = 0;
	char *text;
	uint64_t *shape;

	for (size_t i = 0; i < plan->count; i++) {
		if (plan->arrays[i].ndim > CKPT_ARRAY_DIMS_MAX) {
			snprintf(why, CKPT_CUDA_WHY_MAX, "%.200s: more than %d dimensions", plan->arrays[i].name,
				 CKPT_ARRAY_DIMS_MAX);
			return -ENOTSUP;
		}
		texts += 2 * (strlen(plan->arrays[i].name) + 1);
		dims += plan->arrays[i].ndim;
	}
	b->arrays = ckpt_calloc(plan->count + 1, sizeof(*b->arrays));
	b->by_name = ckpt_calloc(plan->count + 1, sizeof(*b->by_name));
	b->texts = text = malloc(texts + 1);
	b->shapes = shape = ckpt_calloc(dims + 1, sizeof(*shape));
	if (!b->arrays || !b->by_name || !text || !shape)
		return -ENOMEM;
	for (size_t i = 0; i < plan->count; i++) {
		const struct ckpt_cuda_array *from = &plan->arrays[i];
		struct ckpt_write_array *a = &b->arrays[i];
		size_t len = strlen(from->name) + 1;

		a->dtype = dtype_of(from->dtype);
		if (!a->dtype) {
			snprintf(why, CKPT_CUDA_WHY_MAX, "%.200s: no dtype is called %.64s", from->name, from->dtype);
			return -ENOTSUP;
		}
		a->name = memcpy(text, from->name, len);
		a->path = memcpy(text + len, from->name, len);
		a->ndim = from->ndim;
		a->shape = shape;
		if (from->ndim)
			memcpy(shape, from->shape, from->ndim * sizeof(*shape));
		text += 2 * len;
		shape += from->ndim;
		b->by_name[i] = i;
	}
	b->plan = (struct ckpt_write_plan){.arrays = b->arrays, .count = plan->count, .shard_bytes = plan->shard_bytes};
	return 0;
}

static int by_name(const void *one, const void *other, void *arg)
{
	const struct ckpt_write_array *arrays = arg;

	return strcmp(arrays[*(const size_t *)one].name, arrays[*(const size_t *)other].name);
}

static int sort_names(struct ckpt_save_blocks *b, char *why)
{
	qsort_r(b->by_name, b->plan.count, sizeof(*b->by_name), by_name, b->arrays);
	for (size_t i = 1; i < b->plan.count; i++)
		if (!by_name(&b->by_name[i - 1], &b->by_name[i], b->arrays)) {
			snprintf(why, CKPT_CUDA_WHY_MAX, "two arrays are called %.200s", b->arrays[b->by_name[i]].name);
			return -EINVAL;
		}
	return 0;
}

int ckpt_save_blocks_find(const struct ckpt_save_blocks *b, const char *name, size_t *ret_array)
{
	size_t low = 0, high = b->plan.count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = strcmp(name, b->arrays[b->by_name[middle]].name);

		if (!order) {
			*ret_array = b->by_name[middle];
			return 0;
		}
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return -ENOENT;
}

// --- Blocks -----------------------------------------------------------------------------------------------------------------

static void make_files(struct ckpt_save_blocks *b)
{
	const struct ckpt_layout *l = b->layout;

	for (size_t i = 0, part = 0; i < l->file_count; i++) {
		struct ckpt_save_file *f = &b->files[i];

		*f = (struct ckpt_save_file){.path = l->paths.at + l->files[i].path, .bytes = l->files[i].bytes};
		f->is_text = true;
		f->part_first = part;
		f->part_end = l->files[i].part_end;
		f->block_first = b->block_count;
		for (; part < f->part_end; part++) {
			b->part_file[part] = i;
			f->is_text = f->is_text && l->parts[part].array == CKPT_LAYOUT_TEXT;
		}
		// An empty file has a block, too, so that it is made.
		b->block_count += f->bytes ? (f->bytes - 1) / b->block_bytes + 1 : 1;
		f->block_end = b->block_count;
		if (!f->is_text)
			b->array_blocks += f->block_end - f->block_first;
	}
}

static void make_blocks(struct ckpt_save_blocks *b, size_t *ret_sums)
{
	const struct ckpt_layout *l = b->layout;
	size_t sums = 0;

	for (size_t i = 0; i < l->file_count; i++) {
		const struct ckpt_save_file *f = &b->files[i];
		size_t part = f->part_first;

		for (size_t k = f->block_first; k < f->block_end; k++) {
			struct ckpt_save_block *block = &b->blocks[k];
			uint64_t offset = (k - f->block_first) * b->block_bytes, end;

			end = MIN(offset + b->block_bytes, f->bytes);
			*block = (struct ckpt_save_block){.file = i, .offset = offset, .bytes = end - offset};
			while (part < f->part_end && l->parts[part].offset + l->parts[part].bytes <= offset)
				part++;
			block->part_first = block->part_end = part;
			while (block->part_end < f->part_end && l->parts[block->part_end].offset < end)
				block->missing += l->parts[block->part_end++].array != CKPT_LAYOUT_TEXT;
			block->sum_first = sums;
			sums += block->part_end - block->part_first;
		}
	}
	*ret_sums = sums;
}

static void link_parts(struct ckpt_save_blocks *b)
{
	const struct ckpt_layout *l = b->layout;

	for (size_t i = 0; i < b->plan.count; i++)
		b->array_part[i] = SIZE_MAX;
	for (size_t i = l->part_count; i-- > 0;)
		if (l->parts[i].array != CKPT_LAYOUT_TEXT) {
			b->part_next[i] = b->array_part[l->parts[i].array];
			b->array_part[l->parts[i].array] = i;
		}
}

static int cut(struct ckpt_save_blocks *b)
{
	const struct ckpt_layout *l = b->layout;
	size_t sums;

	b->files = ckpt_calloc(l->file_count + 1, sizeof(*b->files));
	b->part_file = ckpt_calloc(l->part_count + 1, sizeof(*b->part_file));
	b->part_next = ckpt_calloc(l->part_count + 1, sizeof(*b->part_next));
	b->array_part = ckpt_calloc(b->plan.count + 1, sizeof(*b->array_part));
	if (!b->files || !b->part_file || !b->part_next || !b->array_part)
		return -ENOMEM;
	make_files(b);
	b->blocks = ckpt_calloc(b->block_count + 1, sizeof(*b->blocks));
	if (!b->blocks)
		return -ENOMEM;
	make_blocks(b, &sums);
	link_parts(b);
	if (l->sum_count)
		b->sums = ckpt_calloc(sums + 1, sizeof(*b->sums));
	return l->sum_count && !b->sums ? -ENOMEM : 0;
}

int ckpt_save_blocks_init(struct ckpt_save_blocks *b, const struct ckpt_cuda_plan *plan, uint64_t block_bytes,
			  char *why)
{
	int rc;

	*b = (struct ckpt_save_blocks){.block_bytes = block_bytes};
	rc = copy_plan(b, plan, why);
	if (!rc)
		rc = sort_names(b, why);
	if (!rc) {
		rc = ckpt_layout_new(plan->format, &b->plan, why, &b->layout);
		if (rc == -ENOENT)
			snprintf(why, CKPT_CUDA_WHY_MAX, "no format is called %.64s", plan->format);
	}
	if (!rc)
		rc = cut(b);
	if (rc)
		ckpt_save_blocks_done(b);
	return rc;
}

void ckpt_save_blocks_done(struct ckpt_save_blocks *b)
{
	ckpt_layout_free(b->layout);
	free(b->arrays);
	free(b->texts);
	free(b->shapes);
	free(b->by_name);
	free(b->files);
	free(b->blocks);
	free(b->part_file);
	free(b->part_next);
	free(b->array_part);
	free(b->sums);
	*b = (struct ckpt_save_blocks){0};
}

void ckpt_save_blocks_give(struct ckpt_save_blocks *b, size_t array, void (*ready)(void *arg, size_t block), void *arg)
{
	for (size_t i = b->array_part[array]; i != SIZE_MAX; i = b->part_next[i]) {
		const struct ckpt_layout_part *p = &b->layout->parts[i];
		size_t first = b->files[b->part_file[i]].block_first;

		for (uint64_t k = p->offset / b->block_bytes; k <= (p->offset + p->bytes - 1) / b->block_bytes; k++)
			if (!--b->blocks[first + k].missing)
				ready(arg, first + k);
	}
}

struct ckpt_save_range ckpt_save_blocks_range(const struct ckpt_save_blocks *b, const struct ckpt_save_block *block,
					      size_t part)
{
	const struct ckpt_layout_part *p = &b->layout->parts[part];
	uint64_t begin = MAX(p->offset, block->offset), end = MIN(p->offset + p->bytes, block->offset + block->bytes);

	return (struct ckpt_save_range){begin - block->offset, begin - p->offset, (size_t)(end - begin)};
}

// --- Sums -------------------------------------------------------------------------------------------------------------------

static void join_sums(struct ckpt_save_blocks *b)
{
	for (size_t k = 0; k < b->block_count; k++) {
		const struct ckpt_save_block *block = &b->blocks[k];

		for (size_t i = block->part_first; i < block->part_end; i++) {
			const struct ckpt_layout_part *p = &b->layout->parts[i];
			uint32_t *value = p->sum ? &b->layout->sums[p->sum - 1].value : NULL;

			if (value)
				*value = ckpt_crc32_join(*value, b->sums[block->sum_first + i - block->part_first],
							 ckpt_save_blocks_range(b, block, i).bytes);
		}
	}
}

// The part of text that has this byte of the text; from is where the search begins.
static size_t part_of_text(const struct ckpt_layout *l, size_t from, size_t at)
{
	for (size_t k = 0; k < l->part_count; k++) {
		size_t i = (from + k) % l->part_count;
		const struct ckpt_layout_part *p = &l->parts[i];

		if (p->array == CKPT_LAYOUT_TEXT && at >= p->first && at - p->first < p->bytes)
			return i;
	}
	return SIZE_MAX;
}

int ckpt_save_blocks_sums(struct ckpt_save_blocks *b,
			  int (*put)(void *arg, size_t file, uint64_t offset, const uint8_t bytes[4]), void *arg)
{
	struct ckpt_layout *l = b->layout;
	size_t text = 0;
	int rc = 0;

	if (!b->sums)
		return 0;
	join_sums(b);
	for (size_t part = 0; part < l->part_count && !rc; part++) {
		const struct ckpt_layout_sum *s = l->parts[part].sum ? &l->sums[l->parts[part].sum - 1] : NULL;
		uint8_t bytes[4];

		if (!s)
			continue;
		ckpt_put32(bytes, s->value);
		rc = put(arg, b->part_file[part], s->in_file, bytes);
		text = part_of_text(l, text, s->in_text);
		if (!rc && text != SIZE_MAX) // its four bytes are in one part: they were added at once
			rc = put(arg, b->part_file[text], l->parts[text].offset + s->in_text - l->parts[text].first,
				 bytes);
	}
	return rc;
}
