// torch.save(): the pickle and the storages are members of a zip. catalog_torch.c has the form.
//
// There is no .format_version: with it torch computes the places of storages, if it is asked to, from what its own writer puts between them
// (torch/serialization.py, _get_offset). Here are no data descriptors, so it would read other bytes.
#include "core/array/write_torch.h"

#include "core/array/pickle_write.h"
#include "core/array/write_zip.h"
#include "core/base/util.h"

#include <stdio.h>

#define TOP "archive"

// "torch\nFloatStorage\n" and "torch\nfloat32\n" for each dtype, as pickles have globals; they are static.
static const char *storage_of(enum ckpt_dtype dtype)
{
	static const char *const classes[CKPT_DTYPE_COUNT] = {
		[CKPT_DTYPE_BOOL] = "torch\nBoolStorage\n",        [CKPT_DTYPE_I8] = "torch\nCharStorage\n",
		[CKPT_DTYPE_I16] = "torch\nShortStorage\n",        [CKPT_DTYPE_I32] = "torch\nIntStorage\n",
		[CKPT_DTYPE_I64] = "torch\nLongStorage\n",         [CKPT_DTYPE_U8] = "torch\nByteStorage\n",
		[CKPT_DTYPE_F16] = "torch\nHalfStorage\n",         [CKPT_DTYPE_F32] = "torch\nFloatStorage\n",
		[CKPT_DTYPE_F64] = "torch\nDoubleStorage\n",       [CKPT_DTYPE_BF16] = "torch\nBFloat16Storage\n",
		[CKPT_DTYPE_C64] = "torch\nComplexFloatStorage\n", [CKPT_DTYPE_C128] = "torch\nComplexDoubleStorage\n",
	};

	return classes[dtype];
}

const char *ckpt_torch_global(enum ckpt_dtype dtype)
{
	static const char *const globals[CKPT_DTYPE_COUNT] = {
		[CKPT_DTYPE_BOOL] = "torch\nbool\n",
		[CKPT_DTYPE_I8] = "torch\nint8\n",
		[CKPT_DTYPE_I16] = "torch\nint16\n",
		[CKPT_DTYPE_I32] = "torch\nint32\n",
		[CKPT_DTYPE_I64] = "torch\nint64\n",
		[CKPT_DTYPE_U8] = "torch\nuint8\n",
		[CKPT_DTYPE_U16] = "torch\nuint16\n",
		[CKPT_DTYPE_U32] = "torch\nuint32\n",
		[CKPT_DTYPE_U64] = "torch\nuint64\n",
		[CKPT_DTYPE_F16] = "torch\nfloat16\n",
		[CKPT_DTYPE_F32] = "torch\nfloat32\n",
		[CKPT_DTYPE_F64] = "torch\nfloat64\n",
		[CKPT_DTYPE_BF16] = "torch\nbfloat16\n",
		[CKPT_DTYPE_F8E4M3] = "torch\nfloat8_e4m3fn\n",
		[CKPT_DTYPE_F8E5M2] = "torch\nfloat8_e5m2\n",
		[CKPT_DTYPE_C64] = "torch\ncomplex64\n",
		[CKPT_DTYPE_C128] = "torch\ncomplex128\n",
		[CKPT_DTYPE_F8E4M3FNUZ] = "torch\nfloat8_e4m3fnuz\n",
		[CKPT_DTYPE_F8E5M2FNUZ] = "torch\nfloat8_e5m2fnuz\n",
		[CKPT_DTYPE_F8E8M0] = "torch\nfloat8_e8m0fnu\n",
	};

	return globals[dtype];
}

// ("storage", CLASS, KEY, "cpu", NUMEL): a storage without a type has bytes.
static void put_storage(struct ckpt_pickle_writer *p, const struct ckpt_write_array *a, size_t key)
{
	const char *class = storage_of(a->dtype);
	char text[24];

	snprintf(text, sizeof(text), "%zu", key);
	ckpt_pickle_write_ops(p, "(");
	ckpt_pickle_write_text(p, "storage");
	ckpt_pickle_write_global(p, class ? class : "torch.storage\nUntypedStorage\n");
	ckpt_pickle_write_text(p, text);
	ckpt_pickle_write_text(p, "cpu");
	ckpt_pickle_write_number(p, class ? ckpt_write_elements(a) : ckpt_write_bytes(a));
	ckpt_pickle_write_ops(p, "tQ");
}

static void put_tensor(struct ckpt_pickle_writer *p, const struct ckpt_write_array *a, size_t key)
{
	bool typed = storage_of(a->dtype);
	uint64_t strides[CKPT_ARRAY_DIMS_MAX], step = 1;

	for (unsigned i = a->ndim; i-- > 0; step *= MAX(a->shape[i], UINT64_C(1)))
		strides[i] = step;
	ckpt_pickle_write_global(p,
				 typed ? "torch._utils\n_rebuild_tensor_v2\n" : "torch._utils\n_rebuild_tensor_v3\n");
	ckpt_pickle_write_ops(p, "(");
	put_storage(p, a, key);
	ckpt_pickle_write_number(p, 0);
	ckpt_pickle_write_sizes(p, a->shape, a->ndim);
	ckpt_pickle_write_sizes(p, strides, a->ndim);
	ckpt_pickle_write_ops(p, "\x89");
	ckpt_pickle_write_global(p, "collections\nOrderedDict\n");
	ckpt_pickle_write_ops(p, ")R");
	if (!typed)
		ckpt_pickle_write_global(p, ckpt_torch_global(a->dtype));
	ckpt_pickle_write_ops(p, "tR");
}

static struct ckpt_buffer pickle_of(const struct ckpt_write_array *arrays, size_t count, bool alone)
{
	struct ckpt_pickle_writer p;

	ckpt_pickle_write_begin(&p);
	if (alone)
		put_tensor(&p, arrays, 0);
	else
		ckpt_pickle_write_ops(&p, "}(");
	for (size_t i = 0; i < count && !alone; i++) {
		ckpt_pickle_write_text(&p, arrays[i].name);
		put_tensor(&p, &arrays[i], i);
	}
	if (!alone)
		ckpt_pickle_write_ops(&p, "u");
	ckpt_pickle_write_end(&p);
	return p.out;
}

static void add_text(struct ckpt_zip_writer *zip, const char *name, const char *text)
{
	ckpt_zip_add(zip, name, text, strlen(text), CKPT_LAYOUT_TEXT);
}

void ckpt_torch_add(struct ckpt_layout *l, size_t first, size_t end, bool alone)
{
	struct ckpt_buffer pickle = pickle_of(l->plan->arrays + first, end - first, alone);
	struct ckpt_zip_writer zip;
	char name[48];

	if (!l->rc)
		l->rc = pickle.rc;
	ckpt_zip_begin(&zip, l);
	if (!l->rc)
		ckpt_zip_add(&zip, TOP "/data.pkl", pickle.at, pickle.len, CKPT_LAYOUT_TEXT);
	ckpt_buffer_done(&pickle);
	add_text(&zip, TOP "/.storage_alignment", "64");
	add_text(&zip, TOP "/byteorder", "little");
	for (size_t i = first; i < end && !l->rc; i++) {
		snprintf(name, sizeof(name), TOP "/data/%zu", i - first);
		ckpt_zip_add(&zip, name, NULL, 0, i);
	}
	add_text(&zip, TOP "/version", "3\n");
	ckpt_zip_end(&zip);
}

static void make(struct ckpt_layout *l)
{
	struct ckpt_shards s;

	ckpt_shards_make(l, &s);
	for (size_t k = 0; k < s.count && !l->rc; k++) {
		if (s.count == 1)
			ckpt_layout_file(l, "model.pt");
		else
			ckpt_layout_file(l, "pytorch_model-%05zu-of-%05zu.bin", k + 1, s.count);
		ckpt_torch_add(l, k ? s.ends[k - 1] : 0, s.ends[k], false);
	}
	if (s.count > 1 && !l->rc)
		ckpt_shards_index(l, &s, "pytorch_model.bin.index.json", "pytorch_model", ".bin");
	ckpt_shards_done(&s);
}

const struct ckpt_write_format ckpt_write_torch = {
	.name = "torch",
	.dtype = ckpt_torch_global,
	.shards = true,
	.is_text = true,
	.make = make,
};
