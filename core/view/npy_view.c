#include "core/view/npy_view.h"

#include "core/array/gather.h"
#include "core/array/write_npy.h"
#include "core/base/lock.h"
#include "core/base/util.h"

#define WINDOW_STEP (1u << 20)
#define WINDOW_AHEAD (CKPT_NPY_VIEW_WINDOW - 2 * WINDOW_STEP)

struct ckpt_npy_view {
	struct ckpt_lock lock;
	struct ckpt_gather *gather; // guarded by the lock, as are
	uint8_t *window;            // WINDOW bytes, once something was decoded,
	uint64_t window_at;         // and where in the elements they begin
	size_t window_len;
	size_t held; // atomic: as of the last read
	uint64_t bytes;
	size_t header_len;
	uint8_t header[CKPT_NPY_WRITTEN_MAX];
};

static size_t header_of(const struct ckpt_catalog_array *a, uint8_t out[CKPT_NPY_WRITTEN_MAX])
{
	return a->why ? 0 : ckpt_npy_header(a->dtype, a->ndim, a->shape, out);
}

bool ckpt_npy_view_bytes(const struct ckpt_catalog_array *a, uint64_t *ret_bytes)
{
	uint8_t header[CKPT_NPY_WRITTEN_MAX];
	size_t n = header_of(a, header);
	uint64_t elements = 1;

	if (!n)
		return false;
	for (unsigned i = 0; i < a->ndim; i++)
		elements *= a->shape[i];
	*ret_bytes = n + elements * ckpt_dtype_width(a->dtype);
	return true;
}

int ckpt_npy_view_open(const struct ckpt_catalog *c, size_t array, const struct ckpt_catalog_files *files,
		       struct ckpt_npy_view **ret_view)
{
	struct ckpt_npy_view *n = ckpt_calloc(1, sizeof(*n));
	struct ckpt_catalog_array a;
	int rc;

	if (!n)
		return -ENOMEM;
	ckpt_lock_init(&n->lock, CKPT_LOCK_VIEW);
	ckpt_catalog_get(c, array, &a);
	n->header_len = header_of(&a, n->header);
	rc = n->header_len && ckpt_npy_view_bytes(&a, &n->bytes) ? ckpt_gather_new(c, array, files, &n->gather)
								 : -ENOTSUP;
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
	ckpt_gather_free(n->gather);
	free(n->window);
	ckpt_lock_done(&n->lock);
	free(n);
}

// Elements that are wanted in part.
static int read_part(struct ckpt_npy_view *n, uint64_t element, size_t skip, uint8_t *buf, size_t len)
{
	uint8_t whole[16];
	int rc = ckpt_gather_run(n->gather, element, 1, whole);

	if (!rc)
		memcpy(buf, whole + skip, len);
	return rc;
}

// at: from the first element on.
static int read_elements(struct ckpt_npy_view *n, uint64_t at, uint8_t *buf, size_t len)
{
	unsigned width = ckpt_gather_width(n->gather);
	size_t skip = (size_t)(at % width), first = skip ? MIN(len, width - skip) : 0, middle, last;
	int rc = first ? read_part(n, at / width, skip, buf, first) : 0;

	middle = (len - first) / width * width;
	last = len - first - middle;
	if (!rc && middle)
		rc = ckpt_gather_run(n->gather, (at + first) / width, middle / width, buf + first);
	if (!rc && last)
		rc = read_part(n, (at + first + middle) / width, 0, buf + first + middle, last);
	return rc;
}

static void note_held_locked(struct ckpt_npy_view *n)
{
	__atomic_store_n(&n->held, ckpt_gather_held(n->gather) + (n->window ? CKPT_NPY_VIEW_WINDOW : 0),
			 __ATOMIC_RELAXED);
}

// Adds what follows the window to it, up to `end`; the oldest bytes go.
static int extend_window(struct ckpt_npy_view *n, uint64_t end)
{
	while (n->window_at + n->window_len < end) {
		size_t more = (size_t)MIN(end - n->window_at - n->window_len, (uint64_t)WINDOW_STEP), over;
		int rc;

		over = n->window_len + more > CKPT_NPY_VIEW_WINDOW ? n->window_len + more - CKPT_NPY_VIEW_WINDOW : 0;
		memmove(n->window, n->window + over, n->window_len - over);
		n->window_at += over;
		n->window_len -= over;
		rc = read_elements(n, n->window_at + n->window_len, n->window + n->window_len, more);
		if (rc)
			return rc;
		n->window_len += more;
	}
	return 0;
}

// A read that is a little ahead of the others decodes the bytes between, too: they are needed for it anyway, and will be asked for.
static int read_by_window(struct ckpt_npy_view *n, uint64_t at, uint8_t *buf, size_t len)
{
	if (!n->window && !(n->window = malloc(CKPT_NPY_VIEW_WINDOW)))
		return -ENOMEM;
	while (len) {
		size_t part = MIN(len, (size_t)WINDOW_STEP);
		int rc;

		if (at < n->window_at || at > n->window_at + n->window_len + WINDOW_AHEAD) {
			n->window_at = at;
			n->window_len = 0;
		}
		rc = extend_window(n, at + part);
		if (rc)
			return rc;
		memcpy(buf, n->window + (at - n->window_at), part);
		at += part;
		buf += part;
		len -= part;
	}
	return 0;
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
		rc = (ckpt_gather_is_decoded(n->gather) ? read_by_window : read_elements)(
			n, offset + head - n->header_len, (uint8_t *)buf + head, len - head);
		note_held_locked(n);
	}
	return rc ? rc : (ssize_t)len;
}

bool ckpt_npy_view_is_decoded(const struct ckpt_npy_view *n)
{
	return ckpt_gather_is_decoded(n->gather);
}

size_t ckpt_npy_view_held(const struct ckpt_npy_view *n)
{
	return __atomic_load_n(&n->held, __ATOMIC_RELAXED);
}

void ckpt_npy_view_rest(struct ckpt_npy_view *n)
{
	LOCK_SCOPE(&n->lock);

	ckpt_gather_rest(n->gather);
	free(TAKE_PTR(n->window));
	n->window_len = 0;
	note_held_locked(n);
}

bool ckpt_npy_view_is_plain(const struct ckpt_npy_view *n, const char **ret_file, uint64_t *ret_offset,
			    size_t *ret_header)
{
	*ret_header = n->header_len;
	return ckpt_gather_is_plain(n->gather, ret_file, ret_offset);
}
