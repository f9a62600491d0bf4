// Links of a large group: link messages in a fractal heap, found by the records of a B-tree of version 2.
//
// The heap is one range of offsets. A table of blocks covers it: rows of `width` blocks, of `start` bytes in the first two rows and twice as
// many in each row after that. Rows of blocks beyond the largest direct block have indirect ones, which are tables of the same form.
#include "core/array/catalog_hdf5.h"

#include "core/base/util.h"
#include "core/limits.h"

#define HEAP_BITS_MAX 62u

struct dense {
	struct ckpt_hdf5 *h;
	// Of the heap:
	uint64_t start, root;
	unsigned width, direct_rows, root_rows, bits;
	unsigned offset_bytes, length_bytes; // of an ID
	unsigned id_bytes;
	bool is_summed; // its direct blocks have checksums
	char *name;
	ckpt_hdf5_link_fn *fn;
	void *arg;
};

static unsigned log2_of(uint64_t n) // n > 0
{
	return 63u - (unsigned)__builtin_clzll(n);
}

static bool is_power(uint64_t n)
{
	return n && !(n & (n - 1));
}

// --- The heap ---------------------------------------------------------------------------------------------------------

#define DIRECT_SUMMED 2 // of the flags

static int open_heap(struct dense *d, uint64_t address)
{
	struct ckpt_hdf5 *h = d->h;
	uint8_t front[200];
	struct ckpt_hdf5_bytes b = {front, 18 + 12 * h->length_bytes + 3 * h->offset_bytes, false};
	uint64_t object_max, direct_max, filters, flags, bytes;
	int rc = ckpt_hdf5_read_block(h, address, "FRHP", front, b.left);

	if (rc)
		return rc;
	// Filters are described behind the rest, after the bytes and the mask of a filtered block.
	filters = ckpt_get16(front + 3);
	bytes = 4 + b.left + (filters ? h->length_bytes + 4 + filters : 0);
	rc = ckpt_hdf5_check(h, "FRHP", address, bytes);
	if (rc)
		return rc;
	if (ckpt_hdf5_take(&b, 1))
		return ckpt_hdf5_refuse(h, "FRHP");
	d->id_bytes = (unsigned)ckpt_hdf5_take(&b, 2);
	ckpt_hdf5_take(&b, 2);
	flags = ckpt_hdf5_take(&b, 1);
	object_max = ckpt_hdf5_take(&b, 4);
	ckpt_hdf5_skip(&b, 10 * h->length_bytes + 2 * h->offset_bytes);
	d->width = (unsigned)ckpt_hdf5_take(&b, 2);
	d->start = ckpt_hdf5_take_length(h, &b);
	direct_max = ckpt_hdf5_take_length(h, &b);
	d->bits = (unsigned)ckpt_hdf5_take(&b, 2);
	ckpt_hdf5_take(&b, 2);
	d->root = ckpt_hdf5_take_address(h, &b);
	d->root_rows = (unsigned)ckpt_hdf5_take(&b, 2);
	d->is_summed = flags & DIRECT_SUMMED;
	if (filters)
		return ckpt_catalog_refuse(h->reading, "FRHP", "the names of a group are compressed");
	if (b.broken || !is_power(d->start) || !is_power(d->width) || !is_power(direct_max) || direct_max < d->start ||
	    d->bits > HEAP_BITS_MAX || log2_of(d->start) + log2_of(d->width) > HEAP_BITS_MAX)
		return ckpt_hdf5_refuse(h, "FRHP");
	d->direct_rows = log2_of(direct_max) - log2_of(d->start) + 2;
	d->offset_bytes = (d->bits + 7) / 8;
	d->length_bytes = MIN((log2_of(direct_max) + 7) / 8, ckpt_hdf5_bytes_up_to(object_max));
	return 1 + d->offset_bytes + d->length_bytes > d->id_bytes ? ckpt_hdf5_refuse(h, "FRHP") : 0;
}

static uint64_t front_bytes(const struct dense *d) // of a block, before its entries or its checksum
{
	return 5 + d->h->offset_bytes + d->offset_bytes;
}

// The entry of an indirect block, which has so many rows.
static int take_entry(const struct dense *d, uint64_t block, unsigned rows, uint64_t entry, uint64_t *ret_block)
{
	struct ckpt_hdf5 *h = d->h;
	uint64_t at = block + front_bytes(d);
	uint8_t bytes[8], version;
	struct ckpt_hdf5_bytes b = {bytes, h->offset_bytes, false};
	int rc = ckpt_hdf5_read_block(h, block, "FHIB", &version, 1);

	if (!rc)
		rc = ckpt_hdf5_check(h, "FHIB", block, front_bytes(d) + (uint64_t)rows * d->width * h->offset_bytes);
	if (!rc)
		rc = ckpt_hdf5_read(h, at + entry * h->offset_bytes, bytes, h->offset_bytes);
	*ret_block = rc ? CKPT_HDF5_NONE : ckpt_hdf5_take_address(h, &b);
	return rc;
}

static int check_direct(const struct dense *d, uint64_t block, uint64_t bytes)
{
	int rc = block == CKPT_HDF5_NONE ? ckpt_hdf5_refuse(d->h, "FHDB")
					 : ckpt_hdf5_read_block(d->h, block, "FHDB", NULL, 0);

	return rc || !d->is_summed ? rc : ckpt_hdf5_check_inside(d->h, "FHDB", block, bytes, block + front_bytes(d));
}

// The address of an offset of the heap, and how many bytes its block has from there on. Each step halves the block at least.
static int find_offset(const struct dense *d, uint64_t offset, uint64_t *ret_at, uint64_t *ret_left)
{
	struct ckpt_hdf5 *h = d->h;
	uint64_t block = d->root, bytes = d->start, row_bytes = d->start * d->width;
	unsigned rows = d->root_rows;
	int rc = 0;

	while (rows && !rc) {
		unsigned row = offset < row_bytes ? 0 : log2_of(offset / row_bytes) + 1;
		uint64_t skipped = row ? row_bytes << (row - 1) : 0, entry;

		if (row >= rows)
			return ckpt_hdf5_refuse(h, "FHIB");
		bytes = row ? d->start << (row - 1) : d->start;
		entry = (uint64_t)row * d->width + (offset - skipped) / bytes;
		offset = (offset - skipped) % bytes;
		rc = take_entry(d, block, rows, entry, &block);
		if (row < d->direct_rows)
			break;
		rows = bytes < row_bytes ? 0 : log2_of(bytes / row_bytes) + 1;
		if (!rows)
			return ckpt_hdf5_refuse(h, "FHIB");
	}
	if (rc)
		return rc;
	if (offset >= bytes)
		return ckpt_hdf5_refuse(h, "FHDB");
	*ret_at = block + offset;
	*ret_left = bytes - offset;
	return check_direct(d, block, bytes);
}

// --- Links ------------------------------------------------------------------------------------------------------------

#define ID_KIND 0xf0 // of its first byte: version 0, managed by the table of blocks

static int take_record(void *arg, struct ckpt_hdf5_bytes *record)
{
	const struct dense *d = arg;
	struct ckpt_hdf5 *h = d->h;
	struct ckpt_hdf5_bytes body = {.at = h->body};
	struct ckpt_hdf5_link link;
	uint64_t kind, offset, len, at = 0, left = 0;
	int rc;

	ckpt_hdf5_take(record, 4); // the hash of its name
	kind = ckpt_hdf5_take(record, 1) & ID_KIND;
	offset = ckpt_hdf5_take(record, d->offset_bytes);
	len = ckpt_hdf5_take(record, d->length_bytes);
	if (kind)
		return ckpt_catalog_refuse(h->reading, "link", "its name is too long");
	rc = find_offset(d, offset, &at, &left);
	if (rc)
		return rc;
	if (len > left || len > sizeof(h->body))
		return ckpt_hdf5_refuse(h, "FHDB");
	body.left = (size_t)len;
	rc = ckpt_hdf5_read(h, at, h->body, (size_t)len);
	if (!rc)
		rc = ckpt_hdf5_parse_link(h, &body, d->name, &link);
	if (rc)
		return rc;
	// fn may come to another group.
	link.name = strndup(link.name, link.name_len);
	rc = link.name ? d->fn(d->arg, &link) : -ENOMEM;
	free((char *)link.name);
	return rc;
}

int ckpt_hdf5_each_dense_link(struct ckpt_hdf5 *h, uint64_t heap, uint64_t index, ckpt_hdf5_link_fn *fn, void *arg)
{
	CLEANUP_FREE char *name = malloc(CKPT_HDF5_BODY_MAX);
	struct dense d = {.h = h, .name = name, .fn = fn, .arg = arg};
	int rc = name ? open_heap(&d, heap) : -ENOMEM;

	return rc ? rc : ckpt_hdf5_each_record(h, index, CKPT_HDF5_RECORDS_LINKS, 4 + d.id_bytes, take_record, &d);
}
