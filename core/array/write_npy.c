#include "core/array/write_npy.h"

#include "core/array/write_zip.h"
#include "core/base/util.h"

#include <stdio.h>

#define MAGIC "\x93NUMPY"
#define ALIGN 64

static const char *descr_of(enum ckpt_dtype dtype)
{
	static const char *const descr[CKPT_DTYPE_COUNT] = {
		[CKPT_DTYPE_BOOL] = "|b1",       [CKPT_DTYPE_I8] = "|i1",     [CKPT_DTYPE_I16] = "<i2",
		[CKPT_DTYPE_I32] = "<i4",        [CKPT_DTYPE_I64] = "<i8",    [CKPT_DTYPE_U8] = "|u1",
		[CKPT_DTYPE_U16] = "<u2",        [CKPT_DTYPE_U32] = "<u4",    [CKPT_DTYPE_U64] = "<u8",
		[CKPT_DTYPE_F16] = "<f2",        [CKPT_DTYPE_F32] = "<f4",    [CKPT_DTYPE_F64] = "<f8",
		[CKPT_DTYPE_BF16] = "<V2",       [CKPT_DTYPE_F8E4M3] = "<V1", [CKPT_DTYPE_F8E5M2] = "<V1",
		[CKPT_DTYPE_C64] = "<c8",        [CKPT_DTYPE_C128] = "<c16",  [CKPT_DTYPE_F8E4M3FNUZ] = "<V1",
		[CKPT_DTYPE_F8E5M2FNUZ] = "<V1", [CKPT_DTYPE_F8E8M0] = "<V1",
	};

	return descr[dtype];
}

// The dictionary, as repr() would write it, filled up with spaces so that the elements are aligned.
size_t ckpt_npy_header(enum ckpt_dtype dtype, unsigned ndim, const uint64_t *shape, uint8_t out[CKPT_NPY_WRITTEN_MAX])
{
	char text[CKPT_NPY_WRITTEN_MAX];
	size_t n, prefix = 10, all;

	if (!descr_of(dtype))
		return 0;
	n = (size_t)snprintf(text, sizeof(text), "{'descr': '%s', 'fortran_order': False, 'shape': (", descr_of(dtype));
	for (unsigned i = 0; i < ndim; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%llu%s", (unsigned long long)shape[i],
				      i + 1 < ndim ? ", "
				      : ndim == 1  ? ","
						   : "");
	n += (size_t)snprintf(text + n, sizeof(text) - n, "), }");
	all = (prefix + n + 1 + ALIGN - 1) / ALIGN * ALIGN;
	memcpy(out, MAGIC, 6);
	out[6] = 1;
	out[7] = 0;
	ckpt_put16(out + 8, (uint16_t)(all - prefix));
	memcpy(out + prefix, text, n);
	memset(out + prefix + n, ' ', all - prefix - n);
	out[all - 1] = '\n';
	return all;
}

static size_t header_of(const struct ckpt_write_array *a, uint8_t out[CKPT_NPY_WRITTEN_MAX])
{
	return ckpt_npy_header(a->dtype, a->ndim, a->shape, out);
}

static void make_npy(struct ckpt_layout *l)
{
	for (size_t i = 0; i < l->plan->count && !l->rc; i++) {
		const struct ckpt_write_array *a = &l->plan->arrays[i];
		uint8_t header[CKPT_NPY_WRITTEN_MAX];

		ckpt_layout_file(l, "%s.npy", a->path);
		ckpt_layout_add(l, header, header_of(a, header));
		ckpt_layout_add_array(l, i, 0, ckpt_write_bytes(a), 0);
	}
}

const struct ckpt_write_format ckpt_write_npy = {.name = "npy", .dtype = descr_of, .make = make_npy};

static void make_npz(struct ckpt_layout *l)
{
	struct ckpt_zip_writer zip;

	ckpt_layout_file(l, "model.npz");
	ckpt_zip_begin(&zip, l);
	for (size_t i = 0; i < l->plan->count && !l->rc; i++) {
		const struct ckpt_write_array *a = &l->plan->arrays[i];
		uint8_t header[CKPT_NPY_WRITTEN_MAX];
		struct ckpt_buffer name = {0};

		ckpt_buffer_text(&name, a->name);
		ckpt_buffer_add(&name, ".npy", 5);
		if (name.rc)
			l->rc = name.rc;
		else
			ckpt_zip_add(&zip, name.at, header, header_of(a, header), i);
		ckpt_buffer_done(&name);
	}
	ckpt_zip_end(&zip);
}

const struct ckpt_write_format ckpt_write_npz = {
	.name = "npz",
	.dtype = descr_of,
	.is_text = true,
	.make = make_npz,
};
