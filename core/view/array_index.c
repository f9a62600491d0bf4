#include "core/view/array_index.h"

#include "core/base/util.h"
#include "core/view/array_row.h"

#include <stdio.h>

struct ckpt_array_index {
	const struct ckpt_catalog *catalog;
	size_t count;
	uint64_t *ends; // of each row
};

// The brackets belong to the first and the last row; where there is none they are one of their own.
static int row_text(const struct ckpt_array_index *x, size_t i, char **ret_text, size_t *ret_len)
{
	CLEANUP_FREE char *row = NULL;
	json_t *json;
	int len;

	if (!x->count) {
		*ret_text = strdup("[]\n");
		*ret_len = 3;
		return *ret_text ? 0 : -ENOMEM;
	}
	json = ckpt_array_row(x->catalog, i);
	row = json ? json_dumps(json, 0) : NULL;
	json_decref(json);
	if (!row)
		return -ENOMEM;
	len = asprintf(ret_text, "%s%s%s", i ? " " : "[", row, i + 1 < x->count ? ",\n" : "]\n");
	*ret_len = (size_t)MAX(len, 0);
	return len < 0 ? -ENOMEM : 0;
}

int ckpt_array_index_new(const struct ckpt_catalog *c, struct ckpt_array_index **ret_index)
{
	struct ckpt_array_index *x = ckpt_calloc(1, sizeof(*x));
	size_t rows = MAX(ckpt_catalog_count(c), (size_t)1), len;
	uint64_t end = 0;

	if (!x)
		return -ENOMEM;
	x->catalog = c;
	x->count = ckpt_catalog_count(c);
	x->ends = ckpt_calloc(rows, sizeof(*x->ends));
	for (size_t i = 0; i < rows; i++) {
		CLEANUP_FREE char *text = NULL;

		if (!x->ends || row_text(x, i, &text, &len)) {
			ckpt_array_index_free(x);
			return -ENOMEM;
		}
		end += len;
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

ssize_t ckpt_array_index_read(const struct ckpt_array_index *x, void *buf, size_t len, uint64_t offset)
{
	size_t done = 0;

	for (size_t i = row_at(x, offset); i < rows_of(x) && done < len; i++) {
		CLEANUP_FREE char *text = NULL;
		uint64_t begin = i ? x->ends[i - 1] : 0, skip = offset + done - begin;
		size_t n, row_len;
		int rc = row_text(x, i, &text, &row_len);

		if (rc)
			return rc;
		n = MIN(len - done, row_len - (size_t)skip);
		memcpy((char *)buf + done, text + skip, n);
		done += n;
	}
	return (ssize_t)done;
}
