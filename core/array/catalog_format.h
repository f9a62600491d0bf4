// Between catalog.c and the formats, catalog_NAME.c: the table of functions, and what a format adds.
#pragma once

#include "core/array/catalog.h"

#define CKPT_CATALOG_HEAD 64 // bytes of a file that probe() sees

// A file that is being read.
struct ckpt_catalog_reading {
	struct ckpt_catalog *catalog;
	const struct ckpt_catalog_files *files;
	const char *path; // in the step
	const char *base; // its last component
	size_t dir_len;   // of path, without the slash
	struct ckpt_source source;
	uint8_t head[CKPT_CATALOG_HEAD]; // its first bytes, zeros behind the end
	size_t head_len;
	uint64_t spent;     // see ckpt_catalog_spend()
	const char *format; // a registered one (formats.h) that reads it
};

// One format. Both are required. probe() neither blocks nor fails.
struct ckpt_catalog_format {
	const char *name;
	bool (*probe)(const struct ckpt_catalog_reading *r);
	// Adds what the file says. 0; -EINVAL after ckpt_catalog_refuse(); -ENOMEM; what the sources say. May block. What it has
	// added when it fails is taken back.
	int (*read)(struct ckpt_catalog_reading *r);
};

// One that a program has registered (formats.h). As above, with its own argument; probe() may block.
struct ckpt_format {
	const char *name; // [A-Za-z0-9._-]+
	unsigned version; // from 1
	bool (*probe)(void *arg, struct ckpt_catalog_reading *r);
	int (*read)(void *arg, struct ckpt_catalog_reading *r);
	void *arg;
};
// The registered format of the file that is read, or NULL; looked for before ours. Set once, by formats.c: NULL until there is one.
extern const struct ckpt_format *(*_Atomic ckpt_catalog_registered)(struct ckpt_catalog_reading *r);

const char *ckpt_catalog_format_name(size_t i); // of ours; NULL: there are not so many

extern const struct ckpt_catalog_format ckpt_catalog_npy, ckpt_catalog_safetensors, ckpt_catalog_zip,
	ckpt_catalog_torch_legacy, ckpt_catalog_gguf, ckpt_catalog_dcp, ckpt_catalog_zarr2, ckpt_catalog_zarr3,
	ckpt_catalog_ocdbt, ckpt_catalog_hdf5, ckpt_catalog_index, ckpt_catalog_descriptor, ckpt_catalog_msgpack,
	ckpt_catalog_orbax, ckpt_catalog_eformer, ckpt_catalog_structure;

// The file breaks a rule. -EINVAL, or -ENOMEM.
int ckpt_catalog_refuse(struct ckpt_catalog_reading *r, const char *field, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

// So many bytes were looked at beside the file, or made of it: a format counts what a small file could ask for often. 0; -EINVAL
// after ckpt_catalog_refuse(): more than CKPT_CATALOG_WORK_MAX by now; -ENOMEM.
int ckpt_catalog_spend(struct ckpt_catalog_reading *r, uint64_t bytes);

// An array without pieces; name_len bytes of its name, with any byte but NUL. Strings and shape are copied; tree NULL:
// the path of the file. why may be NULL; a CKPT_WHY_* says that bytes of it are missing. -EINVAL: refused, as it is too large; -ENOMEM.
struct ckpt_catalog_entry {
	const char *tree;
	const char *name;
	size_t name_len;
	const char *format; // static
	const char *why;
	enum ckpt_dtype dtype;
	bool big_endian;
	unsigned ndim;
	const uint64_t *shape;
	const uint8_t *fill; // ckpt_dtype_width() bytes
};
int ckpt_catalog_add(struct ckpt_catalog_reading *r, const struct ckpt_catalog_entry *entry);
// A piece of the array that was added last. file NULL: the file that is read. strides NULL: the box is stored in C order;
// start NULL: it is the whole array. Its data is copied. -EINVAL: refused, as the box is not in the array; -ENOMEM.
int ckpt_catalog_add_piece(struct ckpt_catalog_reading *r, const struct ckpt_piece *piece);
// The same of the elements [first, first + count) of a box in C order, which lie behind each other in the piece: as so many boxes as
// that takes, two for each axis at most. The box is that of the piece; start NULL: the whole array. -EINVAL also: they are not in the box.
int ckpt_catalog_add_flat(struct ckpt_catalog_reading *r, const struct ckpt_piece *piece, uint64_t first,
			  uint64_t count);
// Bytes from the first element of a piece to its last, by its strides; false: they are more than any file has.
bool ckpt_piece_span(const struct ckpt_piece *p, unsigned ndim, enum ckpt_dtype dtype, uint64_t *ret_bytes);
// The strides of a piece whose box is stored in C order.
void ckpt_piece_order(const struct ckpt_piece *p, unsigned ndim, uint64_t *strides);
// Why the array that was added last cannot be read as elements; its pieces, if it has some, stay. 0, -EINVAL, -ENOMEM.
int ckpt_catalog_note(struct ckpt_catalog_reading *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define CKPT_WHY_NO_FILE "the file of a piece is missing"
#define CKPT_WHY_OUTSIDE "a piece lies outside of its file"
#define CKPT_WHY_NO_CHUNK "the file of a chunk is missing, or shorter than the chunk"
#define CKPT_WHY_NO_PIECES "it has no pieces"
#define CKPT_WHY_NO_STORAGE "its storage is missing in the file"
#define CKPT_WHY_SHORT "it has not as many bytes as its shape says"
#define CKPT_WHY_SHORT_SHARD "a shard is shorter than its index"
#define CKPT_WHY_OBJECT "it is an object of the program, not an array" // whole, as it should be

// Arrays of other files, as an index names them. ckpt_catalog_end() compares: a difference is a fault of the index.
//
// An array of this name is in tree, or in "." as TREE/NAME. file NULL: it is not said which one; ndim SHAPE_UNKNOWN: likewise.
#define CKPT_SHAPE_UNKNOWN 255u
struct ckpt_catalog_promise {
	const char *tree, *name;
	size_t name_len;
	const char *file;
	unsigned ndim;
	const uint64_t *shape;
};
int ckpt_catalog_promise(struct ckpt_catalog_reading *r,
			 const struct ckpt_catalog_promise *promise); // 0, -EINVAL, -ENOMEM
// All arrays of tree are among those that were promised.
int ckpt_catalog_covers(struct ckpt_catalog_reading *r, const char *tree);
// The arrays of the tree `from`, a file, are of the tree `to`.
int ckpt_catalog_join(struct ckpt_catalog_reading *r, const char *from, const char *to);
// A fault that costs no array.
int ckpt_catalog_tell(struct ckpt_catalog_reading *r, const char *field, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

// The JSON of the file, with what Python writes beside JSON: *ret_json is the caller's. -EINVAL: refused.
struct json_t;
int ckpt_catalog_load_json(struct ckpt_catalog_reading *r, struct json_t **ret_json);

// torch's formats. The names are those of pickles: "float32".
enum ckpt_dtype ckpt_torch_dtype(const char *name, size_t len);
struct ckpt_zip;
int ckpt_catalog_read_torch(struct ckpt_catalog_reading *r, const struct ckpt_zip *zip);
