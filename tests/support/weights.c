#include "tests/support/weights.h"

#include "tests/support/array_files.h"
#include "tests/support/suite.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/file.h"

#include <stdio.h>
#include <unistd.h>

// --- Values -------------------------------------------------------------------------------------------------------------

static uint64_t next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static uint16_t rounded(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void ckpt_weights_round(struct ckpt_weights *w, size_t first, size_t count)
{
	for (size_t i = first; i < first + count; i++) {
		float x;

		memcpy(&x, w->fp32 + 4 * i, sizeof(x));
		ckpt_put16(w->bf16 + 2 * i, rounded(x));
	}
}

struct ckpt_weights ckpt_weights_make(size_t elements, uint64_t seed)
{
	struct ckpt_weights w = {elements, malloc(2 * elements), malloc(4 * elements)};
	uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;

	ck_assert(w.bf16 && w.fp32);
	for (size_t i = 0; i < elements; i++) {
		uint64_t dice = next(&state);
		// The sum of four is near enough to a bell.
		float x = (float)((int64_t)(dice & 0xffff) + (int64_t)(dice >> 16 & 0xffff) +
				  (int64_t)(dice >> 32 & 0xffff) + (int64_t)(dice >> 48) - 131070);

		x *= 0x1.3579bdp-22f;
		memcpy(w.fp32 + 4 * i, &x, sizeof(x));
	}
	ckpt_weights_round(&w, 0, elements);
	return w;
}

void ckpt_weights_train(struct ckpt_weights *w)
{
	uint64_t state = 1;

	for (size_t i = 0; i < w->elements; i++) {
		float x;

		memcpy(&x, w->fp32 + 4 * i, sizeof(x));
		x += x * 0x1p-22f * (float)(next(&state) % 2048);
		memcpy(w->fp32 + 4 * i, &x, sizeof(x));
	}
	ckpt_weights_round(w, 0, w->elements);
}

void ckpt_weights_done(struct ckpt_weights *w)
{
	free(w->bf16);
	free(w->fp32);
	*w = (struct ckpt_weights){0};
}

// --- Files --------------------------------------------------------------------------------------------------------------

#define HEADER_BYTES 192

static void fill_npy(struct ckpt_bytes *b, const char *descr, size_t elements)
{
	char header[HEADER_BYTES];

	snprintf(header, sizeof(header), "{'descr': '%s', 'fortran_order': False, 'shape': (%10zu,), }\n", descr,
		 elements);
	ckpt_sample_npy(b, 1, header, 0);
}

static void fill_safetensors(struct ckpt_bytes *b, const char *dtype, size_t elements, size_t bytes)
{
	char header[HEADER_BYTES];

	snprintf(header, sizeof(header),
		 "{\"model.layers.0\":{\"dtype\":\"%s\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}", dtype, elements,
		 bytes);
	snprintf(header + strlen(header), sizeof(header) - strlen(header), "%*s",
		 (int)(HEADER_BYTES - 1 - strlen(header)), "");
	ckpt_sample_safetensors(b, header, 0);
}

static void fill_torch(struct ckpt_bytes *b, const uint8_t *data, size_t bytes)
{
	const struct ckpt_zip_part pickle = {.name = "archive/data.pkl", .data = "\x80\2}.", .len = 4, .padding = 20},
				   storage = {.name = "archive/data/0", .data = data, .len = bytes, .padding = 30};
	struct ckpt_zip_sample z;

	ckpt_sample_zip_begin(&z, b);
	ckpt_sample_zip_add(&z, &pickle);
	ckpt_sample_zip_add(&z, &storage);
	ckpt_sample_zip_end(&z, false);
}

static struct ckpt_bytes fill(enum ckpt_weights_file file, const uint8_t *data, size_t elements, unsigned width)
{
	struct ckpt_bytes b = {0};

	if (file == CKPT_WEIGHTS_TORCH) {
		fill_torch(&b, data, elements * width);
		return b;
	}
	if (file == CKPT_WEIGHTS_SAFETENSORS)
		fill_safetensors(&b, width == 2 ? "BF16" : "F32", elements, elements * width);
	else if (file == CKPT_WEIGHTS_NPY)
		fill_npy(&b, width == 2 ? "<u2" : "<f4", elements);
	else
		fill_npy(&b, width == 2 ? "|V2" : "|V4", elements);
	ckpt_bytes_add(&b, data, elements * width);
	return b;
}

size_t ckpt_weights_at(enum ckpt_weights_file file)
{
	struct ckpt_bytes b = fill(file, (const uint8_t *)"ab", 1, 2);
	struct ckpt_arrays *arrays = ckpt_bytes_read(&b, "");
	size_t at = (size_t)ckpt_array_at(arrays, 0).offset;

	ckpt_arrays_free(arrays);
	free(b.data);
	return at;
}

void ckpt_weights_put(struct ckpt_step *step, const char *path, enum ckpt_weights_file file, const uint8_t *data,
		      size_t elements, unsigned width)
{
	struct ckpt_bytes b = fill(file, data, elements, width);
	CLEANUP_FD int fd = ckpt_staged_put(step, path, "");

	ck_assert_int_eq(ckpt_sys.pwrite(fd, b.data, b.len, 0), (ssize_t)b.len);
	free(b.data);
}

int ckpt_weights_read(struct ckpt_step *step, const char *path, enum ckpt_weights_file file, const uint8_t *data,
		      size_t elements, unsigned width)
{
	struct ckpt_bytes b = fill(file, data, elements, width);
	CLEANUP_FREE uint8_t *there = malloc(b.len + 1);
	struct ckpt_manifest *m;
	uint32_t index;
	ssize_t n;
	int rc = ckpt_step_manifest(step, &m);

	if (!rc) {
		rc = ckpt_manifest_lookup(m, path, &index);
		n = rc ? rc : ckpt_staged_read(step, m, index, there, b.len + 1);
		rc = n < 0 ? (int)n : (size_t)n != b.len || memcmp(there, b.data, b.len) ? -EILSEQ : 0;
		ckpt_manifest_unref(m);
	}
	free(b.data);
	return rc;
}
