// The places of a dataset's chunks. A B-tree names the place of each: of version 1 in elements, of version 2 in chunks. All other indices go
// by the number of a chunk in the grid of what the dataset may grow to: a single chunk, chunks behind each other, a fixed array of
// addresses, an extensible one.
//
// An extensible array has its first elements in its index block, and then data blocks: super block u is 2^(u/2) data blocks of
// min * 2^((u+1)/2) elements each. The index block has the addresses of the data blocks of the first super blocks, and those of the other
// super blocks, which have the addresses of theirs.
//
// A data block of more than one page has its elements in pages behind it, each with a checksum of its own.
#include "core/array/catalog_hdf5.h"

#include "core/base/util.h"

// --- B-trees of version 1 -----------------------------------------------------------------------------------------------

struct tree {
	struct ckpt_hdf5 *h;
	const struct ckpt_hdf5_chunks *c;
	ckpt_hdf5_chunk_fn *fn;
	void *arg;
};

static int take_chunk(const struct tree *t, struct ckpt_hdf5_bytes *key, uint64_t address)
{
	struct ckpt_hdf5_chunk chunk = {.address = address};

	chunk.bytes = ckpt_hdf5_take(key, 4);
	chunk.mask = (uint32_t)ckpt_hdf5_take(key, 4);
	for (unsigned i = 0; i < t->c->space->ndim; i++) {
		chunk.start[i] = ckpt_hdf5_take(key, 8);
		if (chunk.start[i] % t->c->extent[i])
			return ckpt_hdf5_refuse(t->h, "TREE");
	}
	return address == CKPT_HDF5_NONE ? ckpt_hdf5_refuse(t->h, "TREE") : t->fn(t->arg, &chunk);
}

// level: that which the node has; CKPT_HDF5_LEVELS_MAX: any.
static int each_of_tree(const struct tree *t, uint64_t address, unsigned level)
{
	struct ckpt_hdf5 *h = t->h;
	uint8_t front[4], entry[8 + 8 * (CKPT_ARRAY_DIMS_MAX + 1) + 8];
	size_t key_bytes = 8 + 8 * (t->c->space->ndim + 1), bytes = key_bytes + h->offset_bytes;
	uint64_t at = address + 8 + 2 * h->offset_bytes;
	unsigned count;
	int rc = ckpt_hdf5_read_block(h, address, "TREE", front, sizeof(front));

	if (rc)
		return rc;
	if (front[0] != 1 || front[1] >= CKPT_HDF5_LEVELS_MAX || (level < CKPT_HDF5_LEVELS_MAX && front[1] != level))
		return ckpt_hdf5_refuse(h, "TREE");
	count = ckpt_get16(front + 2);
	for (unsigned i = 0; i < count && !rc; i++, at += bytes) {
		struct ckpt_hdf5_bytes key = {entry, key_bytes, false}, child = {entry + key_bytes, 8, false};
		uint64_t next;

		rc = ckpt_hdf5_read(h, at, entry, bytes);
		if (rc)
			break;
		next = ckpt_hdf5_take_address(h, &child);
		rc = front[1] ? each_of_tree(t, next, front[1] - 1u) : take_chunk(t, &key, next);
	}
	return rc;
}

// --- B-trees of version 2 -----------------------------------------------------------------------------------------------

// The address; with filters the bytes, as wide as the rest leaves, and the mask; the place on each axis.
static int take_record(void *arg, struct ckpt_hdf5_bytes *record)
{
	const struct tree *t = arg;
	const struct ckpt_hdf5_chunks *c = t->c;
	struct ckpt_hdf5_chunk chunk = {.bytes = c->bytes};
	size_t places = 8 * (size_t)c->space->ndim;

	chunk.address = ckpt_hdf5_take_address(t->h, record);
	if (c->is_filtered && record->left > places + 4 && record->left <= places + 4 + 8) {
		chunk.bytes = ckpt_hdf5_take(record, (unsigned)(record->left - places - 4));
		chunk.mask = (uint32_t)ckpt_hdf5_take(record, 4);
	}
	if (record->left != places)
		return ckpt_hdf5_refuse(t->h, "BTHD");
	for (unsigned i = 0; i < c->space->ndim; i++)
		if (__builtin_mul_overflow(ckpt_hdf5_take(record, 8), c->extent[i], &chunk.start[i]))
			return ckpt_hdf5_refuse(t->h, "BTHD");
	return chunk.address == CKPT_HDF5_NONE ? ckpt_hdf5_refuse(t->h, "BTHD") : t->fn(t->arg, &chunk);
}

// --- Elements of arrays -------------------------------------------------------------------------------------------------

struct array {
	struct ckpt_hdf5 *h;
	const struct ckpt_hdf5_chunks *c;
	unsigned element_bytes, page_bits; // pages have 2^page_bits elements
	uint64_t count;                    // fixed
	uint64_t map_bytes;                // fixed: of its pages
	uint64_t block;                    // its data block, or its index block
	// Extensible:
	unsigned count_bits, in_index, least,
		pointers; // elements in the index block and in the first data block; addresses
	unsigned offset_bytes;
};

static unsigned log2_of(uint64_t n) // n > 0
{
	return 63u - (unsigned)__builtin_clzll(n);
}

static int take_address(const struct array *a, uint64_t at, uint64_t *ret_address)
{
	uint8_t bytes[8];
	struct ckpt_hdf5_bytes b = {bytes, a->h->offset_bytes, false};
	int rc = ckpt_hdf5_read(a->h, at, bytes, a->h->offset_bytes);

	*ret_address = rc ? CKPT_HDF5_NONE : ckpt_hdf5_take_address(a->h, &b);
	return rc;
}

// The address of a chunk; where it has filters, its bytes and its mask, too.
static int take_element(const struct array *a, uint64_t at, struct ckpt_hdf5_chunk *chunk)
{
	uint8_t bytes[8 + 8 + 4];
	struct ckpt_hdf5_bytes b = {bytes, a->element_bytes, false};
	int rc = ckpt_hdf5_read(a->h, at, bytes, a->element_bytes);

	if (rc)
		return rc;
	chunk->address = ckpt_hdf5_take_address(a->h, &b);
	chunk->bytes = a->c->bytes;
	if (!a->c->is_filtered)
		return 0;
	chunk->bytes = ckpt_hdf5_take(&b, (unsigned)b.left - 4);
	chunk->mask = (uint32_t)ckpt_hdf5_take(&b, 4);
	return 0;
}

static uint64_t page_elements(const struct array *a)
{
	return UINT64_C(1) << a->page_bits;
}

// Pages of `elements` elements from `at` on. One that was never written has a bit that is 0 in the map; first: the bit of the first page.
struct pages {
	const char *field;
	uint64_t map, first, at, elements;
};

static int take_paged(const struct array *a, const struct pages *p, uint64_t index, struct ckpt_hdf5_chunk *chunk)
{
	uint64_t page = index >> a->page_bits, first = page << a->page_bits;
	uint64_t at = p->at + page * ((a->element_bytes << a->page_bits) + 4);
	uint64_t elements = MIN(page_elements(a), p->elements - first);
	uint8_t bits;
	int rc = ckpt_hdf5_read(a->h, p->map + (p->first + page) / 8, &bits, 1);

	if (rc || !(bits & 0x80 >> (p->first + page) % 8))
		return rc;
	rc = ckpt_hdf5_check(a->h, p->field, at, elements * a->element_bytes);
	return rc ? rc : take_element(a, at + (index - first) * a->element_bytes, chunk);
}

static bool take_sizes(struct array *a, unsigned element_bytes, unsigned page_bits)
{
	unsigned offset = a->h->offset_bytes;

	a->element_bytes = element_bytes;
	a->page_bits = page_bits;
	return page_bits <= 20 && (a->c->is_filtered ? element_bytes > offset + 4 && element_bytes <= offset + 12
						     : element_bytes == offset);
}

// --- Fixed arrays -------------------------------------------------------------------------------------------------------

static bool is_paged(const struct array *a)
{
	return a->count > page_elements(a);
}

static int open_fixed_block(struct array *a)
{
	struct ckpt_hdf5 *h = a->h;
	uint64_t pages = (a->count >> a->page_bits) + (a->count % page_elements(a) != 0), bytes;
	int rc = ckpt_hdf5_read_block(h, a->block, "FADB", NULL, 0);

	a->map_bytes = is_paged(a) ? (pages + 7) / 8 : 0;
	bytes = is_paged(a) ? a->map_bytes : a->count * a->element_bytes;
	return rc ? rc : ckpt_hdf5_check(h, "FADB", a->block, 6 + h->offset_bytes + bytes);
}

static int open_fixed(struct array *a)
{
	struct ckpt_hdf5 *h = a->h;
	uint8_t front[24];
	struct ckpt_hdf5_bytes b = {front, 4 + h->length_bytes + h->offset_bytes, false};
	int rc = ckpt_hdf5_read_block(h, a->c->address, "FAHD", front, b.left);

	if (!rc)
		rc = ckpt_hdf5_check(h, "FAHD", a->c->address, 4 + b.left);
	if (rc)
		return rc;
	ckpt_hdf5_take(&b, 4);
	a->count = ckpt_hdf5_take_length(h, &b);
	a->block = ckpt_hdf5_take_address(h, &b);
	if (front[0] || front[1] != a->c->is_filtered || !take_sizes(a, front[2], front[3]))
		return ckpt_hdf5_refuse(h, "FAHD");
	return a->block == CKPT_HDF5_NONE ? 0 : open_fixed_block(a);
}

static int get_fixed(const struct array *a, uint64_t index, struct ckpt_hdf5_chunk *chunk)
{
	uint64_t at = a->block + 6 + a->h->offset_bytes;

	if (index >= a->count)
		return ckpt_hdf5_refuse(a->h, "FAHD");
	if (a->block == CKPT_HDF5_NONE)
		return 0;
	if (!is_paged(a))
		return take_element(a, at + index * a->element_bytes, chunk);
	return take_paged(a, &(struct pages){"FADB", at, 0, at + a->map_bytes + 4, a->count}, index, chunk);
}

// --- Extensible arrays --------------------------------------------------------------------------------------------------

// Elements, addresses of data blocks, addresses of super blocks.
static int open_index_block(const struct array *a)
{
	struct ckpt_hdf5 *h = a->h;
	unsigned direct = 2 * log2_of(a->pointers), supers = 1 + a->count_bits - log2_of(a->least);
	uint64_t addresses = 2 * (a->pointers - 1) + supers - direct;
	int rc = ckpt_hdf5_read_block(h, a->block, "EAIB", NULL, 0);

	return rc ? rc
		  : ckpt_hdf5_check(h, "EAIB", a->block,
				    6 + h->offset_bytes + a->in_index * a->element_bytes + addresses * h->offset_bytes);
}

static int open_extensible(struct array *a)
{
	struct ckpt_hdf5 *h = a->h;
	uint8_t front[80];
	struct ckpt_hdf5_bytes b = {front, 8 + 6 * h->length_bytes + h->offset_bytes, false};
	int rc = ckpt_hdf5_read_block(h, a->c->address, "EAHD", front, b.left);

	if (!rc)
		rc = ckpt_hdf5_check(h, "EAHD", a->c->address, 4 + b.left);
	if (rc)
		return rc;
	a->count_bits = front[3];
	a->in_index = front[4];
	a->least = front[5];
	a->pointers = front[6];
	a->offset_bytes = (a->count_bits + 7) / 8;
	ckpt_hdf5_skip(&b, 8 + 6 * h->length_bytes);
	a->block = ckpt_hdf5_take_address(h, &b);
	if (front[0] || front[1] != a->c->is_filtered || !take_sizes(a, front[2], front[7]) || a->count_bits > 64 ||
	    !a->least || a->least & (a->least - 1) || !a->pointers || a->pointers & (a->pointers - 1) ||
	    2 * log2_of(a->pointers) + log2_of(a->least) > a->count_bits + 1)
		return ckpt_hdf5_refuse(h, "EAHD");
	return a->block == CKPT_HDF5_NONE ? 0 : open_index_block(a);
}

// Super blocks below u have so many data blocks.
static uint64_t blocks_below(unsigned u)
{
	return (u % 2 ? UINT64_C(3) : UINT64_C(2)) * (UINT64_C(1) << u / 2) - 2;
}

static uint64_t front_bytes(const struct array *a) // of a data block or a super block
{
	return 6 + a->h->offset_bytes + a->offset_bytes;
}

// A data block, of which so many bytes behind its front have its checksum.
static int open_data_block(const struct array *a, uint64_t block, uint64_t bytes)
{
	int rc = ckpt_hdf5_read_block(a->h, block, "EADB", NULL, 0);

	return rc ? rc : ckpt_hdf5_check(a->h, "EADB", block, front_bytes(a) + bytes);
}

static int get_of_block(const struct array *a, uint64_t block, uint64_t elements, uint64_t index,
			struct ckpt_hdf5_chunk *chunk)
{
	int rc = block == CKPT_HDF5_NONE ? 0 : open_data_block(a, block, elements * a->element_bytes);

	return rc || block == CKPT_HDF5_NONE
		       ? rc
		       : take_element(a, block + front_bytes(a) + index * a->element_bytes, chunk);
}

static int get_of_super(const struct array *a, uint64_t super, unsigned u, uint64_t rest, struct ckpt_hdf5_chunk *chunk)
{
	uint64_t block_elements = (uint64_t)a->least << (u + 1) / 2, which = rest / block_elements,
		 index = rest % block_elements, at = super + front_bytes(a), pages = 0, map_bytes, block;
	int rc = ckpt_hdf5_read_block(a->h, super, "EASB", NULL, 0);

	if (block_elements > page_elements(a))
		pages = block_elements >> a->page_bits;
	map_bytes = (pages + 7) / 8 << u / 2;
	if (!rc)
		rc = ckpt_hdf5_check(a->h, "EASB", super,
				     front_bytes(a) + map_bytes + ((uint64_t)a->h->offset_bytes << u / 2));
	if (!rc)
		rc = take_address(a, at + map_bytes + which * a->h->offset_bytes, &block);
	if (rc || block == CKPT_HDF5_NONE)
		return rc;
	if (!pages)
		return get_of_block(a, block, block_elements, index, chunk);
	rc = open_data_block(a, block, 0);
	return rc ? rc
		  : take_paged(a,
			       &(struct pages){"EADB", at, which * pages, block + front_bytes(a) + 4, block_elements},
			       index, chunk);
}

static int get_extensible(const struct array *a, uint64_t index, struct ckpt_hdf5_chunk *chunk)
{
	unsigned offset = a->h->offset_bytes, direct = 2 * log2_of(a->pointers), u;
	uint64_t at = a->block + 6 + offset, blocks = at + a->in_index * a->element_bytes, rest, block_elements,
		 address;
	int rc;

	if (a->block == CKPT_HDF5_NONE)
		return 0;
	if (index < a->in_index)
		return take_element(a, at + index * a->element_bytes, chunk);
	rest = index - a->in_index;
	u = log2_of(rest / a->least + 1);
	if (u > 50 || u + log2_of(a->least) > a->count_bits)
		return ckpt_hdf5_refuse(a->h, "EAHD");
	rest -= a->least * ((UINT64_C(1) << u) - 1);
	block_elements = (uint64_t)a->least << (u + 1) / 2;
	if (u < direct) {
		rc = take_address(a, blocks + (blocks_below(u) + rest / block_elements) * offset, &address);
		if (!rc && block_elements > UINT64_C(1) << a->page_bits)
			rc = ckpt_hdf5_refuse(a->h, "EAHD");
		return rc ? rc : get_of_block(a, address, block_elements, rest % block_elements, chunk);
	}
	rc = take_address(a, blocks + (blocks_below(direct) + u - direct) * offset, &address);
	return rc || address == CKPT_HDF5_NONE ? rc : get_of_super(a, address, u, rest, chunk);
}

// --- The grid -----------------------------------------------------------------------------------------------------------

static uint64_t chunks_in(uint64_t elements, uint64_t extent)
{
	return elements / extent + (elements % extent != 0);
}

// The number of a chunk: the axis without an end, if there is one, is the slowest.
static int number_of(const struct array *a, const uint64_t *start, uint64_t *ret_number)
{
	const struct ckpt_hdf5_chunks *c = a->c;
	unsigned ndim = c->space->ndim, endless = ndim;
	uint64_t number = 0;

	for (unsigned i = 0; i < ndim; i++)
		if (c->space->max[i] == UINT64_MAX) {
			if (c->index != CKPT_HDF5_INDEX_EXTENSIBLE || endless < ndim)
				return ckpt_hdf5_refuse(a->h, "layout");
			endless = i;
		}
	if (endless < ndim)
		number = start[endless] / c->extent[endless];
	for (unsigned i = 0; i < ndim; i++)
		if (i != endless &&
		    (__builtin_mul_overflow(number, chunks_in(c->space->max[i], c->extent[i]), &number) ||
		     __builtin_add_overflow(number, start[i] / c->extent[i], &number)))
			return ckpt_hdf5_refuse(a->h, "layout");
	*ret_number = number;
	return 0;
}

static int get_chunk(const struct array *a, struct ckpt_hdf5_chunk *chunk)
{
	uint64_t number = 0;
	int rc = number_of(a, chunk->start, &number);

	chunk->address = CKPT_HDF5_NONE;
	chunk->mask = 0;
	if (rc)
		return rc;
	switch (a->c->index) {
	case CKPT_HDF5_INDEX_FIXED:
		return get_fixed(a, number, chunk);
	case CKPT_HDF5_INDEX_EXTENSIBLE:
		return get_extensible(a, number, chunk);
	default:
		chunk->bytes = a->c->bytes;
		if (__builtin_mul_overflow(number, chunk->bytes, &number) ||
		    __builtin_add_overflow(a->c->address, number, &chunk->address))
			return ckpt_hdf5_refuse(a->h, "layout");
		return 0;
	}
}

static int each_of_grid(const struct array *a, ckpt_hdf5_chunk_fn *fn, void *arg)
{
	const struct ckpt_hdf5_space *space = a->c->space;
	struct ckpt_hdf5_chunk chunk = {.mask = 0};
	unsigned axis = 0;
	int rc = 0;

	while (!rc) {
		rc = ckpt_catalog_spend(a->h->reading, CKPT_HDF5_READ_COST);
		if (!rc)
			rc = get_chunk(a, &chunk);
		if (!rc && chunk.address != CKPT_HDF5_NONE)
			rc = fn(arg, &chunk);
		for (axis = space->ndim; axis-- > 0;) {
			if (space->shape[axis] - chunk.start[axis] > a->c->extent[axis]) {
				chunk.start[axis] += a->c->extent[axis];
				break;
			}
			chunk.start[axis] = 0;
		}
		if (axis > space->ndim)
			break;
	}
	return rc;
}

int ckpt_hdf5_each_chunk(struct ckpt_hdf5 *h, const struct ckpt_hdf5_chunks *chunks, ckpt_hdf5_chunk_fn *fn, void *arg)
{
	struct tree tree = {h, chunks, fn, arg};
	struct array array = {.h = h, .c = chunks};
	int rc = 0;

	if (chunks->index == CKPT_HDF5_INDEX_TREE)
		return each_of_tree(&tree, chunks->address, CKPT_HDF5_LEVELS_MAX);
	if (chunks->index == CKPT_HDF5_INDEX_RECORDS)
		return ckpt_hdf5_each_record(h, chunks->address,
					     chunks->is_filtered ? CKPT_HDF5_RECORDS_FILTERED_CHUNKS
								 : CKPT_HDF5_RECORDS_CHUNKS,
					     h->offset_bytes, take_record, &tree);
	if (chunks->index == CKPT_HDF5_INDEX_SINGLE)
		return fn(arg, &(struct ckpt_hdf5_chunk){
				       .address = chunks->address,
				       .bytes = chunks->single_bytes,
				       .mask = chunks->single_mask,
			       });
	if (chunks->index == CKPT_HDF5_INDEX_FIXED)
		rc = open_fixed(&array);
	else if (chunks->index == CKPT_HDF5_INDEX_EXTENSIBLE)
		rc = open_extensible(&array);
	return rc ? rc : each_of_grid(&array, fn, arg);
}
