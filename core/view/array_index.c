#include "core/view/array_index.h"

#include "core/base/util.h"
#include "core/view/array_row.h"

struct ckpt_array_index {
	const struct ckpt_catalog *catalog;
	size_t arrays, count;      // rows: arrays, and all
	uint64_t *ends;            // of each row
	struct ckpt_row_text text; // of the row that was made last
	size_t row;                // its number; SIZE_MAX: none
};

// The brackets belong to the first and the last row; where there is none they are one of their own.
static int make_row(struct ckpt_array_index *x, size_t i)
{
	const char *end = i + 1 < x->count ? ",\n" : "]\n";
	int rc;

	x->text.len = 0;
	x->row = SIZE_MAX;
	rc = ckpt_row_text_add(&x->text, i ? " " : "[", 1);
	if (!rc && i < x->arrays)
		rc = ckpt_array_row_text(x->catalog, i, &x->text);
	else if (!rc && x->count)
		rc = ckpt_array_fault_text(x->catalog, i - x->arrays, &x->text);
	if (!rc)
		rc = ckpt_row_text_add(&x->text, end, strlen(end));
	if (!rc)
		x->row = i;
	return rc;
}

int ckpt_array_index_new(const struct ckpt_catalog *c, struct ckpt_array_index **ret_index)
{
	struct ckpt_array_index *x = ckpt_calloc(1, sizeof(*x));
	size_t rows = MAX(ckpt_catalog_count(c) + ckpt_catalog_faults(c), (size_t)1);
	uint64_t end = 0;

	if (!x)
		return -ENOMEM;
	x->catalog = c;
	x->arrays = ckpt_catalog_count(c);
	x->count = x->arrays + ckpt_catalog_faults(c);
	x->ends = ckpt_calloc(rows, sizeof(*x->ends));
	for (size_t i = 0; i < rows; i++) {
		if (!x->ends || make_row(x, i)) {
			ckpt_array_index_free(x);
			return -ENOMEM;
		}
		end += x->text.len;
		x->ends[i] = end;
	}
	*ret_index = x;
	return 0;
}

void ckpt_array_index_free(struct ckpt_array_index *x)
{
	if (!x)
		return;
	free(x->ends);
	ckpt_row_text_done(&x->text);
	free(x);
}

static size_t rows_of(const struct ckpt_array_index *x)
{
	return MAX(x->count, (size_t)1);
}

uint64_t ckpt_array_index_bytes(const struct ckpt_array_index *x)
{
	return x->ends[rows_of(x) - 1];
}

// The first row that ends behind the offset.
static size_t row_at(const struct ckpt_array_index *x, uint64_t offset)
{
	size_t low = 0, high = rows_of(x);

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (x->ends[middle] <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

ssize_t ckpt_array_index_read(struct ckpt_array_index *x, void *buf, size_t len, uint64_t offset)
{
	size_t done = 0;

	for (size_t i = row_at(x, offset); i < rows_of(x) && done < len; i++) {
		uint64_t begin = i ? x->ends[i - 1] : 0, skip = offset + done - begin;
		int rc = x->row == i ? 0 : make_row(x, i);
		size_t n;

		if (rc)
			return rc;
		n = MIN(len - done, x->text.len - (size_t)skip);
		memcpy((char *)buf + done, x->text.at + skip, n);
		done += n;
	}
	return (ssize_t)done;
}
