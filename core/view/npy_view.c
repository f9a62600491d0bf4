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

bool ckpt_npy_view_bytes_of(const struct ckpt_expr_shape *shape, uint64_t *ret_bytes)
{
	uint8_t header[CKPT_NPY_WRITTEN_MAX];
	size_t n = ckpt_npy_header(shape->dtype, shape->ndim, shape->at, header);
	uint64_t elements = 1;

	if (!n)
		return false;
	for (unsigned i = 0; i < shape->ndim; i++)
		elements *= shape->at[i];
	*ret_bytes = n + elements * ckpt_dtype_width(shape->dtype);
	return true;
}

static struct ckpt_expr_shape shape_of(const struct ckpt_catalog_array *a)
{
	struct ckpt_expr_shape s = {.dtype = a->dtype, .ndim = a->ndim};

	memcpy(s.at, a->shape, a->ndim * sizeof(*s.at));
	return s;
}

bool ckpt_npy_view_bytes(const struct ckpt_catalog_array *a, uint64_t *ret_bytes)
{
	struct ckpt_expr_shape s = shape_of(a);

	return !a->why && ckpt_npy_view_bytes_of(&s, ret_bytes);
}

// Takes the elements. rc: how their opening went.
static int open_view(const struct ckpt_expr_shape *s, int rc, struct ckpt_elements *elements,
		     struct ckpt_npy_view **ret_view)
{
	struct ckpt_npy_view *n = rc ? NULL : ckpt_calloc(1, sizeof(*n));

	if (!n) {
		ckpt_elements_close(rc ? NULL : elements);
		return rc ? rc : -ENOMEM;
	}
	ckpt_lock_init(&n->lock, CKPT_LOCK_VIEW);
	n->elements = elements;
	n->header_len = ckpt_npy_header(s->dtype, s->ndim, s->at, n->header);
	(void)ckpt_npy_view_bytes_of(s, &n->bytes);
	*ret_view = n;
	return 0;
}

int ckpt_npy_view_open(const struct ckpt_catalog *c, size_t array, const struct ckpt_catalog_files *files,
		       struct ckpt_npy_view **ret_view)
{
	struct ckpt_elements *elements = NULL;
	struct ckpt_catalog_array a;
	struct ckpt_expr_shape s;
	uint64_t bytes;
	int rc;

	ckpt_catalog_get(c, array, &a);
	rc = ckpt_npy_view_bytes(&a, &bytes) ? ckpt_elements_open(c, array, files, &elements) : -ENOTSUP;
	s = shape_of(&a);
	return open_view(&s, rc, elements, ret_view);
}

int ckpt_npy_view_open_chosen(const struct ckpt_array_choice *k, size_t i, const struct ckpt_catalog_files *files,
			      struct ckpt_npy_view **ret_view)
{
	struct ckpt_elements *elements = NULL;
	struct ckpt_array_chosen chosen;
	uint64_t bytes;
	int rc;

	ckpt_array_choice_get(k, i, &chosen);
	rc = ckpt_npy_view_bytes_of(&chosen.shape, &bytes) ? ckpt_elements_open_chosen(k, i, files, &elements)
							   : -ENOTSUP;
	return open_view(&chosen.shape, rc, elements, ret_view);
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
