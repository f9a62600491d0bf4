// A layout is a list of files, each a list of parts: text that is known, and ranges of arrays. The writer goes through them in order:
//
//	between files -> in a file, at a range -> ... -> in a file, at its end -> between files -> all are written
//
// It stops where bytes of an array are wanted. The error that stopped it stays.
#include "core/array/write.h"

#include "core/array/array_format.h"
#include "core/array/write_layout.h"
#include "core/base/utf8.h"
#include "core/base/util.h"
#include "core/codec/codec_zlib.h"

#include <stdarg.h>
#include <stdio.h>

static const struct ckpt_write_format *const formats[] = {
	&ckpt_write_safetensors, &ckpt_write_npy,   &ckpt_write_npz,   &ckpt_write_torch,
	&ckpt_write_dcp,         &ckpt_write_zarr3, &ckpt_write_orbax, &ckpt_write_raw,
};

const char *ckpt_write_format(size_t i)
{
	return i < ARRAY_LEN(formats) ? formats[i]->name : NULL;
}

uint64_t ckpt_write_elements(const struct ckpt_write_array *a)
{
	uint64_t elements = 1;

	for (unsigned i = 0; i < a->ndim; i++)
		elements *= a->shape[i];
	return elements;
}

uint64_t ckpt_write_bytes(const struct ckpt_write_array *a)
{
	return ckpt_write_elements(a) * ckpt_dtype_width(a->dtype);
}

// --- Making a layout --------------------------------------------------------------------------------------------------------

void ckpt_layout_refuse(struct ckpt_layout *l, const struct ckpt_write_array *array, const char *why, ...)
{
	size_t n = 0;
	va_list args;

	if (l->rc)
		return;
	l->rc = -ENOTSUP;
	if (array)
		n = (size_t)snprintf(l->why, CKPT_WRITE_WHY_MAX, "%.200s: ", array->name);
	va_start(args, why);
	vsnprintf(l->why + n, CKPT_WRITE_WHY_MAX - n, why, args);
	va_end(args);
}

static struct ckpt_layout_file *last_file(const struct ckpt_layout *l)
{
	return &l->files[l->file_count - 1];
}

void ckpt_layout_file(struct ckpt_layout *l, const char *path, ...)
{
	CLEANUP_FREE char *text = NULL;
	va_list args;
	int len;

	if (!l->rc)
		l->rc = ckpt_grow((void **)&l->files, &l->file_cap, l->file_count + 1, sizeof(*l->files));
	if (l->rc)
		return;
	va_start(args, path);
	len = vsnprintf(NULL, 0, path, args);
	va_end(args);
	text = len < 0 ? NULL : malloc((size_t)len + 1);
	if (!text) {
		l->rc = -ENOMEM;
		return;
	}
	va_start(args, path);
	vsnprintf(text, (size_t)len + 1, path, args);
	va_end(args);
	l->files[l->file_count++] = (struct ckpt_layout_file){.path = l->paths.len, .part_end = l->part_count};
	ckpt_buffer_add(&l->paths, text, (size_t)len + 1);
	l->rc = l->paths.rc;
}

uint64_t ckpt_layout_at(const struct ckpt_layout *l)
{
	return l->rc ? 0 : last_file(l)->bytes;
}

static struct ckpt_layout_part *add_part(struct ckpt_layout *l, uint64_t bytes)
{
	struct ckpt_layout_file *file;

	if (!l->rc)
		l->rc = ckpt_grow((void **)&l->parts, &l->part_cap, l->part_count + 1, sizeof(*l->parts));
	if (l->rc)
		return NULL;
	file = last_file(l);
	l->parts[l->part_count] = (struct ckpt_layout_part){.offset = file->bytes, .bytes = bytes};
	file->part_end = l->part_count + 1;
	file->bytes += bytes;
	return &l->parts[l->part_count++];
}

void ckpt_layout_add(struct ckpt_layout *l, const void *bytes, size_t len)
{
	struct ckpt_layout_part *last = l->part_count ? &l->parts[l->part_count - 1] : NULL, *part;
	size_t at = l->text.len;

	if (l->rc || !len)
		return;
	ckpt_buffer_add(&l->text, bytes, len);
	l->rc = l->text.rc;
	if (last && !l->rc && last_file(l)->part_end == l->part_count && last->array == CKPT_LAYOUT_TEXT &&
	    last->offset + last->bytes == last_file(l)->bytes && last_file(l)->bytes) {
		last->bytes += len;
		last_file(l)->bytes += len;
		return;
	}
	part = add_part(l, len);
	if (part) {
		part->array = CKPT_LAYOUT_TEXT;
		part->first = at;
	}
}

void ckpt_layout_add_buffer(struct ckpt_layout *l, struct ckpt_buffer *b)
{
	if (!l->rc)
		l->rc = b->rc;
	ckpt_layout_add(l, b->at, b->len);
	ckpt_buffer_done(b);
}

void ckpt_layout_add_array(struct ckpt_layout *l, size_t array, uint64_t first, uint64_t bytes, size_t sum)
{
	struct ckpt_layout_part *part = bytes ? add_part(l, bytes) : NULL;

	if (part) {
		part->array = array;
		part->first = first;
		part->sum = sum;
	}
}

void ckpt_layout_skip(struct ckpt_layout *l, uint64_t bytes)
{
	if (!l->rc)
		last_file(l)->bytes += bytes;
}

size_t ckpt_layout_sum(struct ckpt_layout *l, uint32_t value, uint64_t in_file)
{
	if (!l->rc)
		l->rc = ckpt_grow((void **)&l->sums, &l->sum_cap, l->sum_count + 1, sizeof(*l->sums));
	if (l->rc)
		return 0;
	l->sums[l->sum_count++] = (struct ckpt_layout_sum){.value = value, .in_file = in_file};
	return l->sum_count;
}

void ckpt_layout_add_sum(struct ckpt_layout *l, size_t sum)
{
	uint8_t bytes[4] = {0};

	if (sum && !l->rc) {
		l->sums[sum - 1].in_text = l->text.len;
		ckpt_put32(bytes, l->sums[sum - 1].value);
	}
	ckpt_layout_add(l, bytes, sizeof(bytes));
}

// --- Shards -----------------------------------------------------------------------------------------------------------------

void ckpt_shards_make(struct ckpt_layout *l, struct ckpt_shards *ret_shards)
{
	const struct ckpt_write_plan *plan = l->plan;
	uint64_t in_shard = 0;
	struct ckpt_shards s = {0};

	s.ends = ckpt_calloc(plan->count + 1, sizeof(*s.ends));
	if (!s.ends && !l->rc)
		l->rc = -ENOMEM;
	for (size_t i = 0; i < plan->count && !l->rc; i++) {
		uint64_t bytes = ckpt_write_bytes(&plan->arrays[i]);

		if (!s.count || (plan->shard_bytes && in_shard && in_shard + bytes > plan->shard_bytes)) {
			s.count++;
			in_shard = 0;
		}
		s.ends[s.count - 1] = i + 1;
		in_shard += bytes;
		s.bytes += bytes;
	}
	*ret_shards = s;
}

void ckpt_shards_done(struct ckpt_shards *s)
{
	free(s->ends);
}

void ckpt_shards_index(struct ckpt_layout *l, const struct ckpt_shards *s, const char *path, const char *name,
		       const char *end)
{
	struct ckpt_buffer b = {0};

	ckpt_layout_file(l, "%s", path);
	ckpt_buffer_print(&b, "{\n  \"metadata\": {\n    \"total_size\": %llu\n  },\n  \"weight_map\": {",
			  (unsigned long long)s->bytes);
	for (size_t k = 0, i = 0; k < s->count && !l->rc; k++)
		for (; i < s->ends[k]; i++) {
			ckpt_buffer_text(&b, i ? ",\n    " : "\n    ");
			ckpt_buffer_json(&b, l->plan->arrays[i].name);
			ckpt_buffer_print(&b, ": \"%s-%05zu-of-%05zu%s\"", name, k + 1, s->count, end);
		}
	ckpt_buffer_text(&b, "\n  }\n}\n");
	ckpt_layout_add_buffer(l, &b);
}

// --- A layout ---------------------------------------------------------------------------------------------------------------

static bool is_utf8(const char *name)
{
	size_t left = strlen(name), n;

	for (; left; name += n, left -= n) {
		n = ckpt_utf8_sequence((const uint8_t *)name, left);
		if (!n)
			return false;
	}
	return true;
}

static void check_plan(struct ckpt_layout *l, const struct ckpt_write_format *f)
{
	const struct ckpt_write_plan *plan = l->plan;
	uint64_t all = 0;

	if (plan->shard_bytes && !f->shards)
		ckpt_layout_refuse(l, NULL, "%s has no shards", f->name);
	for (size_t i = 0; i < plan->count; i++) {
		const struct ckpt_write_array *a = &plan->arrays[i];
		uint64_t elements, bytes;

		if (!f->dtype(a->dtype))
			ckpt_layout_refuse(l, a, "%s has no dtype %s", f->name, ckpt_dtype_numpy(a->dtype));
		if (f->is_text && !is_utf8(a->name))
			ckpt_layout_refuse(l, a, "names in %s are UTF-8", f->name);
		if (!ckpt_array_elements(a->shape, a->ndim, &elements) ||
		    __builtin_mul_overflow(elements, (uint64_t)ckpt_dtype_width(a->dtype), &bytes) ||
		    __builtin_add_overflow(all, bytes, &all) || all > INT64_MAX / 2)
			ckpt_layout_refuse(l, a, "it has more bytes than any file could hold");
	}
}

static const struct ckpt_write_format *find_format(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(formats); i++)
		if (!strcmp(formats[i]->name, name))
			return formats[i];
	return NULL;
}

int ckpt_layout_new(const char *format, const struct ckpt_write_plan *plan, char why[CKPT_WRITE_WHY_MAX],
		    struct ckpt_layout **ret_layout)
{
	const struct ckpt_write_format *f = find_format(format);
	struct ckpt_layout *l = f ? ckpt_calloc(1, sizeof(*l)) : NULL;
	int rc;

	if (!l)
		return f ? -ENOMEM : -ENOENT;
	l->plan = plan;
	l->why = why;
	check_plan(l, f);
	if (!l->rc)
		f->make(l);
	rc = l->rc;
	if (rc)
		ckpt_layout_free(l);
	else
		*ret_layout = l;
	return rc;
}

void ckpt_layout_free(struct ckpt_layout *l)
{
	if (!l)
		return;
	ckpt_buffer_done(&l->text);
	ckpt_buffer_done(&l->paths);
	free(l->files);
	free(l->parts);
	free(l->sums);
	free(l);
}

uint64_t ckpt_layout_bytes(const struct ckpt_layout *l)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < l->file_count; i++)
		bytes += l->files[i].bytes;
	return bytes;
}

size_t ckpt_layout_files(const struct ckpt_layout *l)
{
	return l->file_count;
}

int ckpt_layout_each(const struct ckpt_layout *l,
		     int (*fn)(void *arg, uint64_t offset, const void *text, size_t array, uint64_t bytes), void *arg)
{
	int rc = 0;

	for (size_t i = 0; l->file_count && i < l->files[0].part_end && !rc; i++) {
		const struct ckpt_layout_part *p = &l->parts[i];

		rc = fn(arg, p->offset, p->array == CKPT_LAYOUT_TEXT ? l->text.at + p->first : NULL, p->array,
			p->bytes);
	}
	return rc;
}

bool ckpt_layout_has_sums(const struct ckpt_layout *l)
{
	return l->sum_count;
}

bool ckpt_layout_next(const struct ckpt_layout *l, size_t *part, struct ckpt_write_range *ret_range)
{
	const struct ckpt_layout_part *p;

	while (*part < l->part_count && l->parts[*part].array == CKPT_LAYOUT_TEXT)
		++*part;
	if (*part == l->part_count)
		return false;
	p = &l->parts[(*part)++];
	*ret_range = (struct ckpt_write_range){p->array, p->first, p->bytes};
	return true;
}

// --- Writing ----------------------------------------------------------------------------------------------------------------

struct ckpt_writer {
	struct ckpt_layout *layout;
	const struct ckpt_write_target *target;
	size_t file, part;
	uint64_t done; // of the part
	void *open;
	bool is_open;
	int rc;
};

int ckpt_write_new(struct ckpt_layout *l, const struct ckpt_write_target *target, struct ckpt_writer **ret_writer)
{
	struct ckpt_writer *w = ckpt_calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->layout = l;
	w->target = target;
	*ret_writer = w;
	return 0;
}

static int write_bytes(struct ckpt_writer *w, const void *bytes, size_t len, uint64_t offset)
{
	return w->target->write(w->target->arg, w->open, bytes, len, offset);
}

// All bytes of a part are written: the sum of an array goes to its places.
static int end_part(struct ckpt_writer *w)
{
	const struct ckpt_layout_part *p = &w->layout->parts[w->part++];
	const struct ckpt_layout_sum *s = p->sum ? &w->layout->sums[p->sum - 1] : NULL;
	uint8_t bytes[4];

	w->done = 0;
	if (!s)
		return 0;
	ckpt_put32(bytes, s->value);
	memcpy(w->layout->text.at + s->in_text, bytes, sizeof(bytes));
	return write_bytes(w, bytes, sizeof(bytes), s->in_file);
}

static int open_file(struct ckpt_writer *w)
{
	const struct ckpt_layout_file *f = &w->layout->files[w->file];
	int rc = w->target->create(w->target->arg, w->layout->paths.at + f->path, f->bytes, &w->open);

	w->is_open = !rc;
	return rc;
}

static int close_file(struct ckpt_writer *w)
{
	int rc;

	w->is_open = false;
	rc = w->target->close(w->target->arg, w->open, true);
	w->file += !rc;
	return rc;
}

static bool is_at_range(const struct ckpt_writer *w)
{
	return w->is_open && w->part < w->layout->files[w->file].part_end &&
	       w->layout->parts[w->part].array != CKPT_LAYOUT_TEXT;
}

static int advance(struct ckpt_writer *w)
{
	const struct ckpt_layout *l = w->layout;
	const struct ckpt_layout_part *p = &l->parts[w->part];
	int rc;

	if (!w->is_open)
		return open_file(w);
	if (w->part == l->files[w->file].part_end)
		return close_file(w);
	rc = write_bytes(w, l->text.at + p->first, (size_t)p->bytes, p->offset);
	return rc ? rc : end_part(w);
}

bool ckpt_write_wants(struct ckpt_writer *w, struct ckpt_write_range *ret_range, int *ret_error)
{
	const struct ckpt_layout_part *p;

	while (!w->rc && w->file < w->layout->file_count && !is_at_range(w))
		w->rc = advance(w);
	*ret_error = w->rc;
	if (w->rc || w->file == w->layout->file_count)
		return false;
	p = &w->layout->parts[w->part];
	*ret_range = (struct ckpt_write_range){p->array, p->first + w->done, p->bytes - w->done};
	return true;
}

static int pass(struct ckpt_writer *w, uint64_t len)
{
	w->done += len;
	if (!w->rc && w->done == w->layout->parts[w->part].bytes)
		w->rc = end_part(w);
	return w->rc;
}

int ckpt_write_put(struct ckpt_writer *w, const void *bytes, size_t len)
{
	const struct ckpt_layout_part *p = &w->layout->parts[w->part];

	if (w->rc)
		return w->rc;
	if (p->sum)
		w->layout->sums[p->sum - 1].value = ckpt_crc32(w->layout->sums[p->sum - 1].value, bytes, len);
	w->rc = write_bytes(w, bytes, len, p->offset + w->done);
	return pass(w, len);
}

int ckpt_write_copy(struct ckpt_writer *w, int from_fd, uint64_t from, uint64_t len)
{
	const struct ckpt_layout_part *p = &w->layout->parts[w->part];

	if (w->rc)
		return w->rc;
	if (p->sum || !w->target->copy)
		return -EOPNOTSUPP;
	w->rc = w->target->copy(w->target->arg, w->open, from_fd, from, len, p->offset + w->done);
	return pass(w, len);
}

const char *ckpt_write_path(const struct ckpt_writer *w)
{
	const struct ckpt_layout *l = w->layout;

	return w->file < l->file_count ? l->paths.at + l->files[w->file].path : NULL;
}

void ckpt_write_free(struct ckpt_writer *w)
{
	if (!w)
		return;
	if (w->is_open)
		(void)w->target->close(w->target->arg, w->open, false);
	free(w);
}
