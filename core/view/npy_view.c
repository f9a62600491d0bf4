#include "core/view/npy_view.h"

#include "core/array/write_npy.h"
#include "core/base/lock.h"
#include "core/base/util.h"

struct ckpt_npy_view {
	struct ckpt_lock lock;
	struct ckpt_elements *elements; // guarded by the lock
	size_t held;                    // atomic: as of the last read
	uint64_t bytes;
	size_t header_len;
	uint8_t header[CKPT_NPY_WRITTEN_MAX];
};

bool ckpt_npy_view_bytes_of(enum ckpt_dtype dtype, unsigned ndim, const uint64_t *shape, uint64_t *ret_bytes)
{
	uint8_t header[CKPT_NPY_WRITTEN_MAX];
	size_t n = ckpt_npy_header(dtype, ndim, shape, header);
	uint64_t elements = 1;

	if (!n)
		return false;
	for (unsigned i = 0; i < ndim; i++)
		elements *= shape[i];
	*ret_bytes = n + elements * ckpt_dtype_width(dtype);
	return true;
}

bool ckpt_npy_view_bytes(const struct ckpt_catalog_array *a, uint64_t *ret_bytes)
{
	return !a->why && ckpt_npy_view_bytes_of(a->dtype, a->ndim, a->shape, ret_bytes);
}

// Its header is made; the elements are the caller's to open.
static int new_view(enum ckpt_dtype dtype, unsigned ndim, const uint64_t *shape, struct ckpt_npy_view **ret_view)
{
	struct ckpt_npy_view *n = ckpt_calloc(1, sizeof(*n));

	if (!n)
		return -ENOMEM;
	ckpt_lock_init(&n->lock, CKPT_LOCK_VIEW);
	*ret_view = n;
	n->header_len = ckpt_npy_header(dtype, ndim, shape, n->header);
	return ckpt_npy_view_bytes_of(dtype, ndim, shape, &n->bytes) ? 0 : -ENOTSUP;
}

int ckpt_npy_view_open(const struct ckpt_catalog *c, size_t array, const struct ckpt_catalog_files *files,
		       struct ckpt_npy_view **ret_view)
{
	struct ckpt_npy_view *n = NULL;
	struct ckpt_catalog_array a;
	int rc;

	ckpt_catalog_get(c, array, &a);
	rc = new_view(a.why ? CKPT_DTYPE_NONE : a.dtype, a.ndim, a.shape, &n);
	if (!rc)
		rc = ckpt_elements_open(c, array, files, &n->elements);
	if (rc)
		ckpt_npy_view_close(n);
	else
		*ret_view = n;
	return rc;
}

int ckpt_npy_view_open_chosen(const struct ckpt_array_choice *k, size_t i, const struct ckpt_catalog_files *files,
			      struct ckpt_npy_view **ret_view)
{
	struct ckpt_npy_view *n = NULL;
	struct ckpt_array_chosen chosen;
	int rc;

	ckpt_array_choice_get(k, i, &chosen);
	rc = new_view(chosen.dtype, chosen.ndim, chosen.shape, &n);
	if (!rc)
		rc = ckpt_elements_open_chosen(k, i, files, &n->elements);
	if (rc)
		ckpt_npy_view_close(n);
	else
		*ret_view = n;
	return rc;
}

void ckpt_npy_view_close(struct ckpt_npy_view *n)
{
	if (!n)
		return;
	ckpt_elements_close(n->elements);
	ckpt_lock_done(&n->lock);
	free(n);
}

static void note_held_locked(struct ckpt_npy_view *n)
{
	__atomic_store_n(&n->held, ckpt_elements_held(n->elements), __ATOMIC_RELAXED);
}

ssize_t ckpt_npy_view_read(struct ckpt_npy_view *n, void *buf, size_t len, uint64_t offset)
{
	size_t head;
	int rc = 0;

	if (offset >= n->bytes)
		return 0;
	len = (size_t)MIN((uint64_t)len, n->bytes - offset);
	head = offset < n->header_len ? MIN(len, n->header_len - (size_t)offset) : 0;
	memcpy(buf, n->header + MIN(offset, n->header_len), head);
	if (len > head) {
		LOCK_SCOPE(&n->lock);
		rc = ckpt_elements_read(n->elements, offset + head - n->header_len, (uint8_t *)buf + head, len - head);
		note_held_locked(n);
	}
	return rc ? rc : (ssize_t)len;
}

bool ckpt_npy_view_is_decoded(const struct ckpt_npy_view *n)
{
	return ckpt_elements_are_decoded(n->elements);
}

size_t ckpt_npy_view_held(const struct ckpt_npy_view *n)
{
	return __atomic_load_n(&n->held, __ATOMIC_RELAXED);
}

void ckpt_npy_view_rest(struct ckpt_npy_view *n)
{
	LOCK_SCOPE(&n->lock);

	ckpt_elements_rest(n->elements);
	note_held_locked(n);
}

bool ckpt_npy_view_is_plain(const struct ckpt_npy_view *n, const char **ret_file, uint64_t *ret_offset,
			    size_t *ret_header)
{
	*ret_header = n->header_len;
	return ckpt_elements_are_plain(n->elements, ret_file, ret_offset);
}
