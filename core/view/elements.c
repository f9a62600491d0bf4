#include "core/view/elements.h"

#include "core/array/gather.h"
#include "core/base/util.h"

#define WINDOW_STEP (1u << 20)
#define WINDOW_AHEAD (CKPT_ELEMENTS_WINDOW - 2 * WINDOW_STEP)

struct ckpt_elements {
	struct ckpt_gather *gather; // elements from `first` on, or
	uint64_t first;
	struct ckpt_expr_reader *reader; // of an expression
	unsigned width;
	bool decoded;
	uint8_t *window;    // WINDOW bytes, once something was decoded,
	uint64_t window_at; // and where in the elements they begin
	size_t window_len;
};

static int open_gather(struct ckpt_elements *e, const struct ckpt_catalog *c, size_t array,
		       const struct ckpt_catalog_files *files)
{
	int rc = ckpt_gather_new(c, array, files, &e->gather);

	if (!rc) {
		e->width = ckpt_gather_width(e->gather);
		e->decoded = ckpt_gather_is_decoded(e->gather);
	}
	return rc;
}

int ckpt_elements_open(const struct ckpt_catalog *c, size_t array, const struct ckpt_catalog_files *files,
		       struct ckpt_elements **ret_elements)
{
	struct ckpt_elements *e = ckpt_calloc(1, sizeof(*e));
	int rc = e ? open_gather(e, c, array, files) : -ENOMEM;

	if (rc)
		ckpt_elements_close(e);
	else
		*ret_elements = e;
	return rc;
}

static int open_reader(struct ckpt_elements *e, const struct ckpt_array_choice *k, size_t i,
		       const struct ckpt_catalog_files *files)
{
	struct ckpt_expr *expr;
	int rc = ckpt_array_choice_expr(k, i, files, &expr);

	if (rc)
		return rc;
	rc = ckpt_expr_open(expr, &e->reader);
	e->width = ckpt_dtype_width(ckpt_expr_shape(expr)->dtype);
	ckpt_expr_unref(expr);
	return rc;
}

int ckpt_elements_open_chosen(const struct ckpt_array_choice *k, size_t i, const struct ckpt_catalog_files *files,
			      struct ckpt_elements **ret_elements)
{
	struct ckpt_elements *e = ckpt_calloc(1, sizeof(*e));
	struct ckpt_array_chosen chosen;
	int rc = -ENOMEM;

	if (e) {
		ckpt_array_choice_get(k, i, &chosen);
		rc = open_gather(e, ckpt_array_choice_catalog(k), chosen.array, files);
	}
	if (!rc && chosen.is_run) {
		e->first = chosen.first;
	} else if (!rc) {
		ckpt_gather_free(TAKE_PTR(e->gather)); // it has told whether its pieces are decoded
		rc = open_reader(e, k, i, files);
	}
	if (rc)
		ckpt_elements_close(e);
	else
		*ret_elements = e;
	return rc;
}

void ckpt_elements_close(struct ckpt_elements *e)
{
	if (!e)
		return;
	ckpt_gather_free(e->gather);
	ckpt_expr_close(e->reader);
	free(e->window);
	free(e);
}

// --- Reading ----------------------------------------------------------------------------------------------------------------

static int read_run(struct ckpt_elements *e, uint64_t first, uint64_t count, void *into)
{
	return e->gather ? ckpt_gather_run(e->gather, e->first + first, count, into)
			 : ckpt_expr_run(e->reader, first, count, into);
}

// Elements that are wanted in part.
static int read_part(struct ckpt_elements *e, uint64_t element, size_t skip, uint8_t *buf, size_t len)
{
	uint8_t whole[16];
	int rc = read_run(e, element, 1, whole);

	if (!rc)
		memcpy(buf, whole + skip, len);
	return rc;
}

static int read_elements(struct ckpt_elements *e, uint64_t at, uint8_t *buf, size_t len)
{
	unsigned width = e->width;
	size_t skip = (size_t)(at % width), first = skip ? MIN(len, width - skip) : 0, middle, last;
	int rc = first ? read_part(e, at / width, skip, buf, first) : 0;

	middle = (len - first) / width * width;
	last = len - first - middle;
	if (!rc && middle)
		rc = read_run(e, (at + first) / width, middle / width, buf + first);
	if (!rc && last)
		rc = read_part(e, (at + first + middle) / width, 0, buf + first + middle, last);
	return rc;
}

// Adds what follows the window to it, up to `end`; the oldest bytes go.
static int extend_window(struct ckpt_elements *e, uint64_t end)
{
	while (e->window_at + e->window_len < end) {
		size_t more = (size_t)MIN(end - e->window_at - e->window_len, (uint64_t)WINDOW_STEP), over;
		int rc;

		over = e->window_len + more > CKPT_ELEMENTS_WINDOW ? e->window_len + more - CKPT_ELEMENTS_WINDOW : 0;
		memmove(e->window, e->window + over, e->window_len - over);
		e->window_at += over;
		e->window_len -= over;
		rc = read_elements(e, e->window_at + e->window_len, e->window + e->window_len, more);
		if (rc)
			return rc;
		e->window_len += more;
	}
	return 0;
}

// A read that is a little ahead of the others decodes the bytes between, too: they are needed for it anyway, and will be asked for.
static int read_by_window(struct ckpt_elements *e, uint64_t at, uint8_t *buf, size_t len)
{
	if (!e->window && !(e->window = malloc(CKPT_ELEMENTS_WINDOW)))
		return -ENOMEM;
	while (len) {
		size_t part = MIN(len, (size_t)WINDOW_STEP);
		int rc;

		if (at < e->window_at || at > e->window_at + e->window_len + WINDOW_AHEAD) {
			e->window_at = at;
			e->window_len = 0;
		}
		rc = extend_window(e, at + part);
		if (rc)
			return rc;
		memcpy(buf, e->window + (at - e->window_at), part);
		at += part;
		buf += part;
		len -= part;
	}
	return 0;
}

int ckpt_elements_read(struct ckpt_elements *e, uint64_t at, void *into, size_t len)
{
	return (e->decoded ? read_by_window : read_elements)(e, at, into, len);
}

// --- Questions --------------------------------------------------------------------------------------------------------------

bool ckpt_elements_are_plain(const struct ckpt_elements *e, const char **ret_file, uint64_t *ret_offset)
{
	if (!e->gather || !ckpt_gather_is_plain(e->gather, ret_file, ret_offset))
		return false;
	*ret_offset += e->first * e->width;
	return true;
}

bool ckpt_elements_are_decoded(const struct ckpt_elements *e)
{
	return e->decoded;
}

size_t ckpt_elements_held(const struct ckpt_elements *e)
{
	return (e->gather ? ckpt_gather_held(e->gather) : ckpt_expr_held(e->reader)) +
	       (e->window ? CKPT_ELEMENTS_WINDOW : 0);
}

void ckpt_elements_rest(struct ckpt_elements *e)
{
	if (e->gather)
		ckpt_gather_rest(e->gather);
	else
		ckpt_expr_rest(e->reader);
	free(TAKE_PTR(e->window));
	e->window_len = 0;
}
