// HDF5 (HDF5 File Format Specification, version 3.0), between the files of its reader:
//
//	catalog_hdf5.c          the superblock, the walk over groups, names
//	catalog_hdf5_sum.c      checksums of structures
//	catalog_hdf5_object.c   bytes by address; object headers and their messages
//	catalog_hdf5_group.c    links of a group: symbol tables, link messages
//	catalog_hdf5_dense.c    links of a large group: a fractal heap and its index
//	catalog_hdf5_records.c  B-trees of version 2: an index of links or of chunks
//	catalog_hdf5_type.c     datatypes and dataspaces
//	catalog_hdf5_attribute.c  attributes that are text
//	catalog_hdf5_dataset.c  a dataset: fill value, filters, layout, and the pieces that follow from them
//	catalog_hdf5_chunks.c   indices of chunks
//
// Each address is from outside, and may lead back. A group is walked once. Each level of a B-tree is one below that before it. No block
// of an object header is read twice. All else is bounded by ckpt_catalog_spend(): each read costs at least CKPT_HDF5_READ_COST of it.
//
// Errors, of all functions here: -EINVAL after ckpt_catalog_refuse(); -ENOMEM; what the source says. All may block.
#pragma once

#include "core/array/catalog_format.h"

#define CKPT_HDF5_NONE UINT64_MAX // the undefined address
#define CKPT_HDF5_PAGE 4096u
#define CKPT_HDF5_PAGES 64u
#define CKPT_HDF5_READ_COST 256u
#define CKPT_HDF5_BLOCKS_MAX 256u    // of an object header
#define CKPT_HDF5_MESSAGES_MAX 4096u // of those, that are kept
#define CKPT_HDF5_LEVELS_MAX 10u     // of a B-tree
#define CKPT_HDF5_BODY_MAX 65536u    // of a message

struct ckpt_hdf5_page {
	uint64_t number; // from 1; 0: it is empty
	uint8_t bytes[CKPT_HDF5_PAGE];
};

struct ckpt_hdf5_block {
	uint64_t at, bytes;
};

// Addresses, by hash. {0} is an empty one; free(slots).
struct ckpt_hdf5_seen {
	uint64_t *slots; // 0: none, else one more than the address
	size_t count, cap;
};

struct ckpt_hdf5 {
	struct ckpt_catalog_reading *reading;
	uint64_t begin, bytes; // of all that has an address, in the file that is read
	unsigned offset_bytes, length_bytes;
	struct ckpt_hdf5_page pages[CKPT_HDF5_PAGES];
	struct ckpt_hdf5_block blocks[CKPT_HDF5_BLOCKS_MAX]; // of the object header that is read
	size_t block_count;
	uint8_t body[CKPT_HDF5_BODY_MAX]; // of the message that is read
	struct ckpt_hdf5_seen summed;     // structures whose checksum was compared
};

// --- Bytes (catalog_hdf5_object.c) ------------------------------------------------------------------------------------------

int ckpt_hdf5_read(struct ckpt_hdf5 *h, uint64_t at, void *buf, size_t len);
// The same, behind four bytes that are to be these.
int ckpt_hdf5_read_block(struct ckpt_hdf5 *h, uint64_t at, const char *signature, void *buf, size_t len);

// A cursor over bytes in memory. Once it is broken it gives zeros: so callers look at the end.
struct ckpt_hdf5_bytes {
	const uint8_t *at;
	size_t left;
	bool broken; // there were too few
};
uint64_t ckpt_hdf5_take(struct ckpt_hdf5_bytes *b, unsigned bytes);                    // 8 at most, little-endian
const uint8_t *ckpt_hdf5_skip(struct ckpt_hdf5_bytes *b, uint64_t bytes);              // NULL: too few
uint64_t ckpt_hdf5_take_address(const struct ckpt_hdf5 *h, struct ckpt_hdf5_bytes *b); // or CKPT_HDF5_NONE
uint64_t ckpt_hdf5_take_length(const struct ckpt_hdf5 *h, struct ckpt_hdf5_bytes *b);
int ckpt_hdf5_refuse(struct ckpt_hdf5 *h, const char *field); // "it breaks a rule of HDF5"

// --- Checksums (catalog_hdf5_sum.c) -----------------------------------------------------------------------------------------

// The four bytes behind these are their checksum. Compared at the first call for an address.
int ckpt_hdf5_check(struct ckpt_hdf5 *h, const char *field, uint64_t at, uint64_t bytes);
// The same of bytes that have their checksum among them, at the address `place`: it counts as zeros.
int ckpt_hdf5_check_inside(struct ckpt_hdf5 *h, const char *field, uint64_t at, uint64_t bytes, uint64_t place);

// --- Objects (catalog_hdf5_object.c) ----------------------------------------------------------------------------------------

enum ckpt_hdf5_message_type {
	CKPT_HDF5_DATASPACE = 1,
	CKPT_HDF5_LINK_INFO = 2,
	CKPT_HDF5_DATATYPE = 3,
	CKPT_HDF5_FILL_OLD = 4,
	CKPT_HDF5_FILL = 5,
	CKPT_HDF5_LINK = 6,
	CKPT_HDF5_EXTERNAL = 7,
	CKPT_HDF5_LAYOUT = 8,
	CKPT_HDF5_GROUP_INFO = 10,
	CKPT_HDF5_FILTERS = 11,
	CKPT_HDF5_ATTRIBUTE = 12,
	CKPT_HDF5_CONTINUATION = 16,
	CKPT_HDF5_SYMBOL_TABLE = 17,
};

struct ckpt_hdf5_message {
	uint64_t at;
	uint16_t bytes;
	uint8_t type;
	bool is_shared; // the body is the place of the message
};

// The messages of an object, of the types above and without continuations. {0} is an empty one.
struct ckpt_hdf5_object {
	struct ckpt_hdf5_message *messages;
	size_t count, cap;
};

int ckpt_hdf5_object_read(struct ckpt_hdf5 *h, uint64_t address, struct ckpt_hdf5_object *ret_object);
void ckpt_hdf5_object_done(struct ckpt_hdf5_object *o); // also after a failed read
// The first one; NULL: there is none.
const struct ckpt_hdf5_message *ckpt_hdf5_find(const struct ckpt_hdf5_object *o, enum ckpt_hdf5_message_type type);
// The body, in h->body until the next one.
int ckpt_hdf5_body(struct ckpt_hdf5 *h, const struct ckpt_hdf5_message *m, struct ckpt_hdf5_bytes *ret_bytes);

// --- Records of a B-tree of version 2 (catalog_hdf5_records.c) -----------------------------------------------------------

#define CKPT_HDF5_RECORD_MAX 512u // bytes of one

enum {                                         // types of records
	CKPT_HDF5_RECORDS_LINKS = 5,           // by the hash of their names
	CKPT_HDF5_RECORDS_CHUNKS = 10,         // without filters
	CKPT_HDF5_RECORDS_FILTERED_CHUNKS = 11 // with filters
};

// Bytes that a number up to this one takes.
unsigned ckpt_hdf5_bytes_up_to(uint64_t limit);
// Calls fn for each record, with all bytes of it: in each node before those of its children. least: bytes that one has to have.
// Ends with what fn answers unless 0. fn may read other objects.
typedef int ckpt_hdf5_record_fn(void *arg, struct ckpt_hdf5_bytes *record);
int ckpt_hdf5_each_record(struct ckpt_hdf5 *h, uint64_t address, unsigned type, unsigned least, ckpt_hdf5_record_fn *fn,
			  void *arg);

// --- Links (catalog_hdf5_group.c, catalog_hdf5_dense.c) ---------------------------------------------------------------------

struct ckpt_hdf5_link {
	const char *name; // without a NUL; until the function that gets it returns
	size_t name_len;
	uint64_t address; // of the object; NONE: why says what it is
	const char *why;
};
typedef int ckpt_hdf5_link_fn(void *arg, const struct ckpt_hdf5_link *link);

bool ckpt_hdf5_is_group(const struct ckpt_hdf5_object *o);
// Ends with what fn answers unless 0. fn may read other objects.
int ckpt_hdf5_each_link(struct ckpt_hdf5 *h, const struct ckpt_hdf5_object *o, ckpt_hdf5_link_fn *fn, void *arg);
// One link message, which the body is. name is of CKPT_ARRAY_NAME_MAX + 1 bytes.
int ckpt_hdf5_parse_link(struct ckpt_hdf5 *h, struct ckpt_hdf5_bytes *body, char *name,
			 struct ckpt_hdf5_link *ret_link);
int ckpt_hdf5_each_dense_link(struct ckpt_hdf5 *h, uint64_t heap, uint64_t index, ckpt_hdf5_link_fn *fn, void *arg);

// --- Datasets (catalog_hdf5_type.c, catalog_hdf5_dataset.c) -----------------------------------------------------------------

struct ckpt_hdf5_type {
	enum ckpt_dtype dtype;
	bool big_endian;
	bool is_opaque; // of bytes
	uint64_t bytes; // of an element
	const char *why;
};
int ckpt_hdf5_type_parse(struct ckpt_hdf5 *h, struct ckpt_hdf5_bytes *body, struct ckpt_hdf5_type *ret_type);

// True: an attribute of this name is this text, of 32 bytes at most.
int ckpt_hdf5_has_attribute(struct ckpt_hdf5 *h, const struct ckpt_hdf5_object *o, const char *name, const char *text,
			    bool *ret_has);

struct ckpt_hdf5_space {
	unsigned ndim;
	uint64_t shape[CKPT_ARRAY_DIMS_MAX];
	uint64_t max[CKPT_ARRAY_DIMS_MAX]; // UINT64_MAX: without end
	bool is_null;
};
int ckpt_hdf5_space_parse(struct ckpt_hdf5 *h, struct ckpt_hdf5_bytes *body, struct ckpt_hdf5_space *ret_space);

bool ckpt_hdf5_is_dataset(const struct ckpt_hdf5_object *o);
int ckpt_hdf5_add_dataset(struct ckpt_hdf5 *h, const struct ckpt_hdf5_object *o, const char *name, size_t name_len);

// --- Chunks (catalog_hdf5_chunks.c) -----------------------------------------------------------------------------------------

enum ckpt_hdf5_index {
	CKPT_HDF5_INDEX_TREE, // a B-tree of version 1
	CKPT_HDF5_INDEX_SINGLE,
	CKPT_HDF5_INDEX_IMPLICIT,
	CKPT_HDF5_INDEX_FIXED,
	CKPT_HDF5_INDEX_EXTENSIBLE,
	CKPT_HDF5_INDEX_RECORDS, // a B-tree of version 2
};

struct ckpt_hdf5_chunks {
	enum ckpt_hdf5_index index;
	const struct ckpt_hdf5_space *space;
	uint64_t extent[CKPT_ARRAY_DIMS_MAX]; // of a chunk, in elements
	uint64_t address;                     // of the index
	uint64_t bytes;                       // of a chunk, without filters
	uint64_t single_bytes;                // SINGLE: as it is stored
	uint32_t single_mask;
	bool is_filtered;
};

struct ckpt_hdf5_chunk {
	uint64_t start[CKPT_ARRAY_DIMS_MAX];
	uint64_t address, bytes; // as it is stored
	uint32_t mask;           // bit i: filter i was left out
};
typedef int ckpt_hdf5_chunk_fn(void *arg, const struct ckpt_hdf5_chunk *chunk);

// Chunks that were never written are left out.
int ckpt_hdf5_each_chunk(struct ckpt_hdf5 *h, const struct ckpt_hdf5_chunks *chunks, ckpt_hdf5_chunk_fn *fn, void *arg);

// --- All (catalog_hdf5.c) ---------------------------------------------------------------------------------------------------

// The address is seen now; *ret_before: it was so before. 0, -ENOMEM.
int ckpt_hdf5_see(struct ckpt_hdf5_seen *seen, uint64_t address, bool *ret_before);
// For formats that have HDF5 inside: these bytes of the file that is read.
int ckpt_catalog_read_hdf5(struct ckpt_catalog_reading *r, uint64_t offset, uint64_t bytes);
