// B-trees of version 2: the records of an index, all of one length. A node has `count` records. Above the leaves, count + 1 children follow
// them: an address and a number of records each. A child that is no leaf also has the number of all records below it.
#include "core/array/catalog_hdf5.h"

#include "core/base/util.h"

struct records {
	struct ckpt_hdf5 *h;
	uint64_t node_bytes;
	unsigned record_bytes, count_bytes;
	unsigned total_bytes[CKPT_HDF5_LEVELS_MAX + 1]; // of the records below a child, by the child's level
	ckpt_hdf5_record_fn *fn;
	void *arg;
};

unsigned ckpt_hdf5_bytes_up_to(uint64_t limit)
{
	return limit ? (63u - (unsigned)__builtin_clzll(limit)) / 8 + 1 : 1;
}

static int each_record(const struct records *r, uint64_t address, unsigned level, uint64_t count)
{
	struct ckpt_hdf5 *h = r->h;
	unsigned child_bytes = level ? h->offset_bytes + r->count_bytes + r->total_bytes[level - 1] : 0;
	uint64_t at = address + 6, children = at + count * r->record_bytes;
	uint8_t front[2], buf[CKPT_HDF5_RECORD_MAX];
	int rc = ckpt_hdf5_read_block(h, address, level ? "BTIN" : "BTLF", front, sizeof(front));

	if (rc)
		return rc;
	if (count * r->record_bytes + (count + 1) * child_bytes > r->node_bytes)
		return ckpt_hdf5_refuse(h, "BTHD");
	rc = ckpt_hdf5_check(h, level ? "BTIN" : "BTLF", address,
			     6 + count * r->record_bytes + (level ? (count + 1) * child_bytes : 0));
	for (uint64_t i = 0; i < count && !rc; i++) {
		struct ckpt_hdf5_bytes b = {buf, r->record_bytes, false};

		rc = ckpt_hdf5_read(h, at + i * r->record_bytes, buf, r->record_bytes);
		if (!rc)
			rc = r->fn(r->arg, &b);
	}
	for (uint64_t i = 0; level && i <= count && !rc; i++) {
		struct ckpt_hdf5_bytes b = {buf, child_bytes, false};
		uint64_t next;

		rc = ckpt_hdf5_read(h, children + i * child_bytes, buf, child_bytes);
		if (rc)
			break;
		next = ckpt_hdf5_take_address(h, &b);
		rc = each_record(r, next, level - 1, ckpt_hdf5_take(&b, r->count_bytes));
	}
	return rc;
}

// The bytes that the counts of records have, which follow from how many a node could have.
static bool take_sizes(struct records *r, unsigned depth)
{
	const unsigned front = 10; // signature, version, type, checksum
	uint64_t most, below;

	if (depth > CKPT_HDF5_LEVELS_MAX || r->node_bytes < front + r->record_bytes)
		return false;
	below = (r->node_bytes - front) / r->record_bytes;
	r->count_bytes = ckpt_hdf5_bytes_up_to(below);
	for (unsigned i = 1; i <= depth; i++) {
		unsigned child = r->h->offset_bytes + r->count_bytes + r->total_bytes[i - 1];

		if (r->node_bytes < front + child || child > CKPT_HDF5_RECORD_MAX)
			return false;
		most = (r->node_bytes - front - child) / (r->record_bytes + child);
		if (__builtin_mul_overflow(most + 1, below, &below) || __builtin_add_overflow(below, most, &below))
			return false;
		r->total_bytes[i] = ckpt_hdf5_bytes_up_to(below);
	}
	return true;
}

int ckpt_hdf5_each_record(struct ckpt_hdf5 *h, uint64_t address, unsigned type, unsigned least, ckpt_hdf5_record_fn *fn,
			  void *arg)
{
	struct records r = {.h = h, .fn = fn, .arg = arg};
	uint8_t front[64];
	struct ckpt_hdf5_bytes b = {front, 14 + h->offset_bytes, false};
	unsigned depth;
	uint64_t root, version, found;
	int rc = ckpt_hdf5_read_block(h, address, "BTHD", front, b.left);

	if (!rc)
		rc = ckpt_hdf5_check(h, "BTHD", address, 18 + h->offset_bytes + h->length_bytes);
	if (rc)
		return rc;
	version = ckpt_hdf5_take(&b, 1);
	found = ckpt_hdf5_take(&b, 1);
	r.node_bytes = ckpt_hdf5_take(&b, 4);
	r.record_bytes = (unsigned)ckpt_hdf5_take(&b, 2);
	depth = (unsigned)ckpt_hdf5_take(&b, 2);
	ckpt_hdf5_take(&b, 2);
	root = ckpt_hdf5_take_address(h, &b);
	if (version || found != type || r.record_bytes > CKPT_HDF5_RECORD_MAX || r.record_bytes < least ||
	    !r.record_bytes || !take_sizes(&r, depth))
		return ckpt_hdf5_refuse(h, "BTHD");
	return root == CKPT_HDF5_NONE ? 0 : each_record(&r, root, depth, ckpt_hdf5_take(&b, 2));
}
